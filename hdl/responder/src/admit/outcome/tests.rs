use super::super::check::{Lengths, class_of};
use super::*;
use Decision::{Drop, Execute, Refuse, Reply};

const KNOWN: Identity = Identity {
    qp_matches: true,
    is_ready: true,
    transport_matches: true,
    partition_matches: true,
    address_matches: true,
};
const ALL_RIGHTS: [bool; 3] = [true; 3];

/// The comparisons of a good packet: in order, all that it needs is there, of the length that its opcode
/// asks for.
fn good(opcode: u64) -> Findings {
    let class = class_of(bits(opcode));
    Findings {
        identity: KNOWN,
        psn_check: PsnCheck::Expected,
        class,
        is_in_order: true,
        is_aligned: true,
        has_slot: true,
        has_wqe: true,
        follows_message: true,
        lengths: Lengths {
            is_full: !class.ends,
            is_empty: class.is_read,
            is_complete: class.ends && !class.is_read,
            ..Lengths::default()
        },
        ..Findings::default()
    }
}

/// A queue pair with the rights to write, to read, and to atomics.
fn path([remote_write, remote_read, remote_atomic]: [bool; 3]) -> AdmitPath {
    AdmitPath { remote_write, remote_read, remote_atomic, ..AdmitPath::default() }
}

fn token(ack_request: bool) -> PacketToken {
    PacketToken { ack_request, ..PacketToken::default() }
}

fn decide(found: Findings) -> Outcome {
    outcome_of(false, token(true), path(ALL_RIGHTS), AdmitRecord::default(), found)
}

const REQUESTS: [u64; 17] =
    [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x13, 0x14, 0x16, 0x17];

#[test]
fn a_good_packet_is_executed_whatever_its_opcode() {
    for opcode in REQUESTS {
        let outcome = decide(good(opcode));
        assert_eq!(outcome.decision, Execute, "opcode {opcode:#04x}");
        assert_eq!(outcome.takes_wqe, needs_wqe(class_of(bits(opcode))), "opcode {opcode:#04x}");
    }
}

/// Protocol 3.1: what fails step 1 is dropped and moves one counter, that of the first check that fails.
#[test]
fn a_packet_that_is_not_of_the_queue_pair_is_dropped_and_counted_once() {
    let none = AdmitCounts::default();
    for (identity, counts) in [
        (KNOWN, none),
        (Identity { qp_matches: false, ..KNOWN }, AdmitCounts { unknown_qp: true, ..none }),
        (Identity::default(), AdmitCounts { unknown_qp: true, ..none }),
        (Identity { is_ready: false, ..KNOWN }, AdmitCounts { qp_not_ready: true, ..none }),
        (
            Identity { is_ready: false, transport_matches: false, ..KNOWN },
            AdmitCounts { qp_not_ready: true, ..none },
        ),
        (
            Identity { transport_matches: false, partition_matches: false, ..KNOWN },
            AdmitCounts { transport_mismatch: true, ..none },
        ),
        (
            Identity { partition_matches: false, address_matches: false, ..KNOWN },
            AdmitCounts { partition_key: true, ..none },
        ),
        (Identity { address_matches: false, ..KNOWN }, AdmitCounts { source_address: true, ..none }),
    ] {
        let found = Findings { identity, ..good(0x04) };
        let outcome = decide(found);
        assert_eq!(outcome.decision == Drop, identity != KNOWN, "{identity:?}");
        assert_eq!(counts_of(true, found, outcome), counts, "{identity:?}");
        assert_eq!(counts_of(false, found, outcome), none, "{identity:?}");
    }
}

#[test]
fn nothing_is_admitted_after_a_failure() {
    let after = AdmitCounts { requests_after_failure: true, ..AdmitCounts::default() };
    for psn_check in [PsnCheck::Expected, PsnCheck::Gap, PsnCheck::Duplicate] {
        let found = Findings { has_failed: true, psn_check, ..good(0x04) };
        let outcome = decide(found);
        assert_eq!((outcome.decision, outcome.takes_wqe), (Drop, false), "{psn_check:?}");
        assert_eq!(counts_of(true, found, outcome), after, "{psn_check:?}");
    }
    let unknown = Findings { identity: Identity::default(), has_failed: true, ..good(0x04) };
    assert!(!counts_of(true, unknown, decide(unknown)).requests_after_failure);
}

/// Protocol 3.2 and 3.4: opcode, PSN, NAK sent, AckReq; decision, syndrome, PSN of the reply.
#[test]
fn a_gap_gets_one_nak_and_a_duplicate_an_ack_if_asked_or_its_answer_again() {
    use PsnCheck::{Duplicate, Expected, Gap};
    for (opcode, psn_check, nak_sent, ack_request, decision, syndrome, psn) in [
        (0x04, Expected, false, false, Execute, 0x1f, 0x80),
        (0x04, Expected, true, false, Execute, 0x1f, 0x80),
        (0x04, Gap, false, false, Reply, 0x60, 0x40),
        (0x04, Gap, false, true, Reply, 0x60, 0x40),
        (0x04, Gap, true, true, Drop, 0x1f, 0x80),
        (0x0c, Gap, false, true, Reply, 0x60, 0x40),
        (0x04, Duplicate, false, true, Reply, 0x1f, 0x3f),
        (0x04, Duplicate, true, true, Reply, 0x1f, 0x3f),
        (0x04, Duplicate, false, false, Drop, 0x1f, 0x80),
        (0x0b, Duplicate, false, true, Reply, 0x1f, 0x3f),
        (0x17, Duplicate, false, true, Reply, 0x1f, 0x3f),
        (0x0c, Duplicate, false, false, Reply, 0x1f, 0x80),
        (0x0c, Duplicate, true, true, Reply, 0x1f, 0x80),
        (0x13, Duplicate, false, false, Reply, 0x1f, 0x80),
        (0x14, Duplicate, false, true, Reply, 0x1f, 0x80),
        (0x15, Duplicate, false, true, Drop, 0x1f, 0x80),
    ] {
        let found = Findings { psn_check, ..good(opcode) };
        let record = AdmitRecord { nak_sent, ..AdmitRecord::default() };
        let outcome = outcome_of(false, token(ack_request), path(ALL_RIGHTS), record, found);
        let row = format!("opcode {opcode:#04x}, {psn_check:?}, NAK sent {nak_sent}, AckReq {ack_request}");
        assert_eq!(outcome.decision, decision, "{row}");
        assert_eq!(syndrome_of(outcome, bits(9)), bits(syndrome), "{row}");
        assert_eq!(reply_psn(outcome, bits(0x80), bits(0x40), bits(0)), bits(psn), "{row}");
        let behind_reads = if outcome.repeats { psn - 3 } else { psn };
        assert_eq!(reply_psn(outcome, bits(0x80), bits(0x40), bits(3)), bits(behind_reads), "{row}");
        assert_eq!(outcome.takes_wqe, psn_check == Expected, "{row}");
        let counts = counts_of(true, found, outcome);
        assert_eq!(counts.request_gap, psn_check == Gap, "{row}");
        let is_read = matches!(opcode, 0x0c | 0x13 | 0x14);
        let is_repeated = psn_check == Duplicate && !is_read && opcode != 0x15;
        assert_eq!(counts.duplicate_request, is_repeated, "{row}");
        assert_eq!(outcome.asks_again, psn_check == Duplicate && is_read, "{row}");
        assert_eq!(counts.duplicate_dropped, opcode == 0x15, "{row}");
    }
    let duplicate = Outcome { repeats: true, ..Outcome::default() };
    for (expected_psn, read_psns, psn) in
        [(0, 0, 0xff_ffff), (0, 4, 0xff_fffb), (0x10, 0x20, 0xff_ffef), (0x10, 0x7f_ffff, 0x80_0010)]
    {
        let found = reply_psn(duplicate, bits(0xff_fff0), bits(expected_psn), bits(read_psns));
        assert_eq!(found, bits(psn), "PSNs wrap: {expected_psn:#x} {read_psns:#x}");
    }
}

/// Protocol 3.4: with READs and atomics alone in the window there is no SEND or WRITE that could have been doubled.
#[test]
fn a_duplicate_of_no_message_is_dropped() {
    for (opcode, follows_message, decision) in [
        (0x04, true, Reply),
        (0x04, false, Drop),
        (0x0a, false, Drop),
        (0x0c, false, Reply),
        (0x14, false, Reply),
    ] {
        let found = Findings { psn_check: PsnCheck::Duplicate, follows_message, ..good(opcode) };
        let outcome = decide(found);
        assert_eq!(outcome.decision, decision, "opcode {opcode:#04x} {follows_message}");
        let counts = counts_of(true, found, outcome);
        assert_eq!(counts.duplicate_dropped, decision == Drop, "opcode {opcode:#04x} {follows_message}");
    }
}

/// Protocol 3.6 rows 3 to 7, each on both sides.
#[test]
fn what_is_out_of_order_or_not_permitted_is_refused() {
    for opcode in REQUESTS {
        let out_of_order = Findings { is_in_order: false, ..good(opcode) };
        assert_eq!(decide(out_of_order).decision, Refuse, "opcode {opcode:#04x} out of order");
    }
    for opcode in [0x0d, 0x11, 0x12, 0x15, 0x18, 0x1f] {
        assert_eq!(decide(good(opcode)).decision, Refuse, "opcode {opcode:#04x} is no request");
    }
    for (opcode, rights, decision) in [
        (0x04, [false; 3], Execute),
        (0x17, [false; 3], Execute),
        (0x06, [true, false, false], Execute),
        (0x06, [false, true, true], Refuse),
        (0x0b, [false, true, true], Refuse),
        (0x0c, [false, true, false], Execute),
        (0x0c, [true, false, true], Refuse),
        (0x13, [false, false, true], Execute),
        (0x13, [true, true, false], Refuse),
        (0x14, [true, true, false], Refuse),
    ] {
        let outcome = outcome_of(false, token(false), path(rights), AdmitRecord::default(), good(opcode));
        assert_eq!(outcome.decision, decision, "opcode {opcode:#04x}, rights {rights:?}");
    }
    for (opcode, is_aligned, has_slot, decision) in [
        (0x0c, false, true, Execute),
        (0x0c, true, false, Refuse),
        (0x13, true, true, Execute),
        (0x13, false, true, Refuse),
        (0x13, true, false, Refuse),
        (0x14, false, true, Refuse),
        (0x04, false, false, Execute),
        (0x0a, false, false, Execute),
    ] {
        let found = Findings { is_aligned, has_slot, ..good(opcode) };
        assert_eq!(decide(found).decision, decision, "opcode {opcode:#04x} {is_aligned} {has_slot}");
    }
    assert_eq!(syndrome_of(decide(good(0x15)), bits(9)), bits(0x61));
}

/// Protocol 3.6 rows 8 and 9: flags of the lengths that are set, for FIRST, MIDDLE, LAST and ONLY.
#[test]
fn the_length_of_a_packet_is_that_of_its_place() {
    let none = Lengths::default();
    let empty = Lengths { is_empty: true, ..none };
    let full = Lengths { is_full: true, ..none };
    let long = Lengths { too_long: true, ..none };
    // SEND: FIRST, MIDDLE, LAST, ONLY.
    for (lengths, [first, middle, last, only]) in [
        (none, [false, false, true, true]),
        (empty, [false, false, false, true]),
        (full, [true, true, true, true]),
        (long, [false, false, false, false]),
        (Lengths { promises_too_much: true, overruns: true, ..full }, [true, true, true, true]),
    ] {
        for (opcode, expected) in [(0x00, first), (0x01, middle), (0x02, last), (0x04, only)] {
            let found = Findings { lengths, ..good(opcode) };
            assert_eq!(fits(found, false), expected, "opcode {opcode:#04x} {lengths:?}");
            assert!(!fits(found, true), "opcode {opcode:#04x} {lengths:?}, wrong pad");
        }
    }
    // WRITE: FIRST, MIDDLE, LAST, ONLY.
    for (lengths, [first, middle, last, only]) in [
        (full, [true, true, false, false]),
        (Lengths { overruns: true, ..full }, [false, false, false, false]),
        (Lengths { promises_too_much: true, ..full }, [false, false, false, false]),
        (Lengths { is_complete: true, ..full }, [true, true, true, true]),
        (Lengths { is_complete: true, ..none }, [false, false, true, true]),
        (Lengths { is_complete: true, ..empty }, [false, false, false, true]),
        (Lengths { is_complete: true, promises_too_much: true, ..none }, [false, false, false, false]),
        (Lengths { is_complete: true, ..long }, [false, false, false, false]),
        (none, [false, false, false, false]),
    ] {
        for (opcode, expected) in [(0x06, first), (0x07, middle), (0x08, last), (0x0a, only)] {
            let found = Findings { lengths, ..good(opcode) };
            assert_eq!(fits(found, false), expected, "opcode {opcode:#04x} {lengths:?}");
        }
    }
    // READ and atomics have no payload; the length of a READ is limited, too.
    for opcode in [0x0c, 0x13, 0x14] {
        for (lengths, expected) in [
            (empty, true),
            (none, false),
            (Lengths { is_complete: true, ..none }, false),
            (Lengths { promises_too_much: true, ..empty }, false),
        ] {
            let found = Findings { lengths, ..good(opcode) };
            assert_eq!(fits(found, false), expected, "opcode {opcode:#04x} {lengths:?}");
        }
    }
}

/// Protocol 3.1 steps 3 to 6 and 3.6 row 12: an RNR NAK comes after order and rights, before the length.
#[test]
fn a_packet_without_a_receive_wqe_gets_an_rnr_nak() {
    for (opcode, is_in_order, pad_mismatch, decision, syndrome) in [
        (0x00, true, false, Reply, 0x20 + 9),
        (0x04, true, false, Reply, 0x20 + 9),
        (0x04, true, true, Reply, 0x20 + 9),
        (0x04, false, false, Refuse, 0x61),
        (0x02, true, false, Execute, 0x1f),
        (0x09, true, false, Reply, 0x20 + 9),
        (0x0b, true, false, Reply, 0x20 + 9),
        (0x0a, true, false, Execute, 0x1f),
        (0x0c, true, false, Execute, 0x1f),
    ] {
        let found = Findings { has_wqe: false, is_in_order, ..good(opcode) };
        let token = PacketToken { pad_mismatch, ..token(false) };
        let outcome = outcome_of(false, token, path(ALL_RIGHTS), AdmitRecord::default(), found);
        assert_eq!(outcome.decision, decision, "opcode {opcode:#04x}");
        assert_eq!(syndrome_of(outcome, bits(9)), bits(syndrome), "opcode {opcode:#04x}");
        assert_eq!(reply_psn(outcome, bits(0x80), bits(0x80), bits(5)), bits(0x80), "opcode {opcode:#04x}");
        assert_eq!((outcome.takes_wqe, outcome.takes_own_wqe), (false, false), "opcode {opcode:#04x}");
    }
    let denied = Findings { has_wqe: false, ..good(0x0b) };
    let outcome = outcome_of(false, token(false), path([false; 3]), AdmitRecord::default(), denied);
    assert_eq!(outcome.decision, Refuse, "the right is checked first");
}

#[test]
fn a_packet_takes_its_wqe_even_if_its_length_is_refused() {
    for (is_shared, takes_own_wqe) in [(false, true), (true, false)] {
        let found = Findings { lengths: Lengths { too_long: true, ..Lengths::default() }, ..good(0x04) };
        let path = AdmitPath { is_shared, ..path(ALL_RIGHTS) };
        let outcome = outcome_of(false, token(false), path, AdmitRecord::default(), found);
        assert_eq!(outcome.decision, Refuse);
        assert_eq!((outcome.takes_wqe, outcome.takes_own_wqe), (true, takes_own_wqe), "{is_shared}");
    }
}

/// Protocol 4.3: state ERR, message, WQE posted, SRQ, reported; flushes, takes a WQE, reports.
#[test]
fn the_sweep_flushes_the_held_wqe_then_the_posted_ones_then_reports() {
    use Message::{Nothing, Send, Write};
    for (is_error, message, has_wqe, is_shared, is_last_wqe_reported, expected) in [
        (true, Send, true, false, false, [true, false, false]),
        (true, Send, false, false, false, [true, false, false]),
        (true, Send, false, true, false, [true, false, false]),
        (true, Nothing, true, false, false, [true, true, false]),
        (true, Write, true, false, false, [true, true, false]),
        (true, Nothing, false, false, false, [false, false, false]),
        (true, Nothing, false, true, false, [true, false, true]),
        (true, Nothing, false, true, true, [false, false, false]),
        (false, Send, true, false, false, [false, false, false]),
        (false, Nothing, false, true, false, [false, false, false]),
    ] {
        let found = Findings { is_error, has_wqe, ..Findings::default() };
        let path = AdmitPath { is_shared, ..AdmitPath::default() };
        let record = AdmitRecord { message, is_last_wqe_reported, ..AdmitRecord::default() };
        for is_sweep in [true, false] {
            let outcome = outcome_of(is_sweep, token(false), path, record, found);
            let Flush { flushes, takes_wqe, reports_last_wqe } = outcome.flush;
            let row = format!("{is_error} {message:?} {has_wqe} {is_shared} {is_last_wqe_reported}");
            assert_eq!([flushes, takes_wqe, reports_last_wqe], expected.map(|set| set && is_sweep), "{row}");
            let decision = if flushes { Decision::Flush } else { Drop };
            assert_eq!((outcome.decision, outcome.takes_own_wqe), (decision, takes_wqe), "{row}");
        }
    }
}

/// Protocol 3.4, 3.5: a duplicate is not counted against the READs in flight, and of an atomic only the PSN matters.
#[test]
fn a_duplicate_read_or_atomic_is_answered_unless_it_is_malformed_or_has_no_right() {
    let malformed = PacketToken { pad_mismatch: true, ..token(true) };
    for (opcode, spoil, token, rights, expected) in [
        (0x0c, 0, token(false), ALL_RIGHTS, true),
        (0x0c, 0, token(false), [false, true, false], true),
        (0x0c, 0, token(false), [true, false, true], false),
        (0x14, 0, token(false), [false, false, true], true),
        (0x14, 0, token(false), [true, true, false], false),
        (0x0c, 1, token(false), ALL_RIGHTS, true),
        (0x0c, 2, token(false), ALL_RIGHTS, false),
        (0x0c, 3, token(false), ALL_RIGHTS, true),
        (0x14, 3, token(false), ALL_RIGHTS, true),
        (0x0c, 0, malformed, ALL_RIGHTS, false),
    ] {
        let mut found = Findings { psn_check: PsnCheck::Duplicate, ..good(opcode) };
        found.has_slot = spoil != 1;
        found.lengths.is_empty = spoil != 2;
        found.is_aligned = spoil != 3;
        let outcome = outcome_of(false, token, path(rights), AdmitRecord::default(), found);
        let row = format!("opcode {opcode:#04x}, {spoil}, {rights:?}");
        assert_eq!(outcome.asks_again, expected, "{row}");
        assert_eq!(outcome.decision, if expected { Reply } else { Drop }, "{row}");
        assert_eq!(counts_of(true, found, outcome).duplicate_dropped, !expected, "{row}");
    }
}
