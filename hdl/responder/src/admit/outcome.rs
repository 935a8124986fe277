//! Decisions of [`Admit`](super::Admit): what becomes of a packet (protocol 3.1 to 3.6), and what the sweep does
//! with a queue pair in ERR (protocol 4.3).
use super::check::{Findings, Identity, PacketClass, needs_wqe};
use super::record::{AdmitPath, AdmitRecord, Message};
use crate::messages::{AdmitCounts, Decision};
use rnic_blocks::logic::psn::PsnCheck;
use rnic_kernel::prelude::*;
use rnic_layout::syndrome::{CREDITS_UNLIMITED, NakCode, Syndrome};
use rnic_messages::packet::PacketToken;

/// AETH syndromes (protocol 1.6). Credits are not limited.
const ACKNOWLEDGED: u64 = Syndrome::Ack { credit_code: CREDITS_UNLIMITED }.emit() as u64;
const NOT_READY: u64 = Syndrome::RnrNak { timer_code: 0 }.emit() as u64;
const NAK_SEQUENCE: u64 = Syndrome::Nak(NakCode::PsnSequenceError).emit() as u64;
const NAK_INVALID: u64 = Syndrome::Nak(NakCode::InvalidRequest).emit() as u64;

/// Place of a packet in the order of its queue pair. At most one of the last three is set, and only with the
/// first.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Order {
    /// It is a packet of the queue pair, and none before it has failed.
    pub is_checked: Bit,
    pub is_expected: Bit,
    pub is_gap: Bit,
    pub is_duplicate: Bit,
}

/// What the sweep does with a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Flush {
    /// A WQE is flushed, or the last WQE reached is reported.
    pub flushes: Bit,
    /// The WQE is the next of the ring, not the one of the SEND that is arriving.
    pub takes_wqe: Bit,
    /// The queue pair of an SRQ reports last WQE reached.
    pub reports_last_wqe: Bit,
}

/// Outcome of a packet, or of a step of the sweep. Of a packet at most one of `executes`, `refuses`,
/// `is_not_ready`, `naks_gap` and `repeats` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Outcome {
    pub decision: Decision,
    pub order: Order,
    /// It is executed, if keys and receive WQE allow it.
    pub executes: Bit,
    /// It is invalid: NAK 0x61.
    pub refuses: Bit,
    /// It needs a receive WQE and none is posted: RNR NAK.
    pub is_not_ready: Bit,
    /// It is the first one after a gap: NAK 0x60.
    pub naks_gap: Bit,
    /// It is a duplicate whose sender asks for an ACK.
    pub repeats: Bit,
    /// It is valid up to its receive WQE, and needs one.
    pub wants_wqe: Bit,
    /// A receive WQE is taken for it.
    pub takes_wqe: Bit,
    /// A WQE of the ring of the queue pair itself is taken for it, or flushed.
    pub takes_own_wqe: Bit,
    pub flush: Flush,
}

/// Says whether a packet passes step 1 of protocol 3.1.
#[kernel]
fn is_known(identity: Identity) -> Bit {
    identity.qp_matches
        && identity.is_ready
        && identity.transport_matches
        && identity.partition_matches
        && identity.address_matches
}

/// Finds the place of a packet in the order of its queue pair (protocol 3.2). A packet after one that has failed
/// has none.
#[kernel]
fn order_of(found: Findings) -> Order {
    let is_checked = is_known(found.identity) && !found.has_failed;
    Order {
        is_checked,
        is_expected: is_checked && found.psn_check == PsnCheck::Expected,
        is_gap: is_checked && found.psn_check == PsnCheck::Gap,
        is_duplicate: is_checked && found.psn_check == PsnCheck::Duplicate,
    }
}

/// Says whether the access flags of the queue pair, the alignment of an atomic and the READs in flight permit
/// the operation (protocol 3.6 rows 5 to 7). What is no request is not permitted (row 3).
#[kernel]
fn is_allowed(path: AdmitPath, found: Findings) -> Bit {
    let class = found.class;
    let has_right = if class.is_atomic { path.remote_atomic && found.is_aligned } else { path.remote_read };
    let may_read = class.is_read && has_right && found.has_slot;
    class.is_send || (class.is_write && path.remote_write) || may_read
}

/// Says whether payload and pad are as protocol 3.6 rows 8 and 9 ask. An only packet may be empty, and one that
/// does not end its message is full.
#[kernel]
fn fits(found: Findings, pad_mismatch: Bit) -> Bit {
    let class = found.class;
    let lengths = found.lengths;
    let has_room =
        select(class.ends, !lengths.too_long && (class.starts || !lengths.is_empty), lengths.is_full);
    let is_all = select(class.is_read, lengths.is_empty, lengths.is_complete);
    let adds_up = !lengths.promises_too_much && select(class.ends, is_all, !lengths.overruns);
    has_room && !pad_mismatch && (class.is_send || adds_up)
}

/// Says whether a duplicate of the class is acknowledged again (protocol 3.4). READs and atomics are dropped.
#[kernel]
fn can_repeat(class: PacketClass) -> Bit {
    class.is_send || class.is_write
}

/// Decides what the sweep does with a queue pair in ERR: it flushes its WQEs one after the other, that of a SEND
/// that has not ended first, for it was consumed before the others; the WQEs of an SRQ stay, and last WQE reached
/// is reported once.
#[kernel]
fn flush_of(is_sweep: Bit, path: AdmitPath, record: AdmitRecord, found: Findings) -> Flush {
    let is_sending = record.message == Message::Send;
    let owes_report = path.is_shared && !record.is_last_wqe_reported;
    let flushes = is_sweep && found.is_error && (is_sending || found.has_wqe || owes_report);
    Flush {
        flushes,
        takes_wqe: flushes && !is_sending && !path.is_shared,
        reports_last_wqe: flushes && !is_sending && path.is_shared,
    }
}

/// Decides about a packet in the order of protocol 3.1, or with `is_sweep` about the queue pair of the sweep.
#[kernel]
pub(super) fn outcome_of(
    is_sweep: Bit,
    token: PacketToken,
    path: AdmitPath,
    record: AdmitRecord,
    found: Findings,
) -> Outcome {
    let order = order_of(found);
    let makes_sense = found.is_in_order && is_allowed(path, found);
    let wants_wqe = order.is_expected && makes_sense && needs_wqe(found.class);
    let is_not_ready = wants_wqe && !found.has_wqe;
    let takes_wqe = wants_wqe && found.has_wqe;
    let is_valid = makes_sense && fits(found, token.pad_mismatch);
    let executes = order.is_expected && !is_not_ready && is_valid;
    let refuses = order.is_expected && !is_not_ready && !is_valid;
    let naks_gap = order.is_gap && !record.nak_sent;
    let repeats = order.is_duplicate && can_repeat(found.class) && token.ack_request;
    let flush = flush_of(is_sweep, path, record, found);
    Outcome {
        decision: if flush.flushes {
            Decision::Flush
        } else if executes {
            Decision::Execute
        } else if refuses {
            Decision::Refuse
        } else if naks_gap || is_not_ready || repeats {
            Decision::Reply
        } else {
            Decision::Drop
        },
        order,
        executes,
        refuses,
        is_not_ready,
        naks_gap,
        repeats,
        wants_wqe,
        takes_wqe,
        takes_own_wqe: (takes_wqe && !path.is_shared) || flush.takes_wqe,
        flush,
    }
}

/// Gives the AETH syndrome of the reply.
#[kernel]
pub(super) fn syndrome_of(outcome: Outcome, min_rnr_timer: Bits<5>) -> Bits<8> {
    if outcome.refuses {
        bits::<8>(NAK_INVALID)
    } else if outcome.is_not_ready {
        bits::<8>(NOT_READY) | bit_cast::<8, 5>(min_rnr_timer)
    } else if outcome.naks_gap {
        bits::<8>(NAK_SEQUENCE)
    } else {
        bits::<8>(ACKNOWLEDGED)
    }
}

/// Gives the PSN of the reply: of a gap the expected PSN (protocol 3.2), of a duplicate the one before it
/// (protocol 3.4), else that of the packet.
#[kernel]
pub(super) fn reply_psn(outcome: Outcome, psn: Bits<24>, expected_psn: Bits<24>) -> Bits<24> {
    if outcome.naks_gap {
        expected_psn
    } else if outcome.repeats {
        expected_psn - 1
    } else {
        psn
    }
}

/// Gives the counters that a packet increments in the cycle in which it is decided: one for a packet that is
/// dropped in step 1, by the first comparison that fails.
#[kernel]
pub(super) fn counts_of(is_decided: Bit, found: Findings, outcome: Outcome) -> AdmitCounts {
    let identity = found.identity;
    let is_ready = identity.qp_matches && identity.is_ready;
    let reaches_partition = is_ready && identity.transport_matches;
    let reaches_address = reaches_partition && identity.partition_matches;
    let can_repeat = can_repeat(found.class);
    AdmitCounts {
        unknown_qp: is_decided && !identity.qp_matches,
        qp_not_ready: is_decided && identity.qp_matches && !identity.is_ready,
        transport_mismatch: is_decided && is_ready && !identity.transport_matches,
        partition_key: is_decided && reaches_partition && !identity.partition_matches,
        source_address: is_decided && reaches_address && !identity.address_matches,
        duplicate_request: is_decided && outcome.order.is_duplicate && can_repeat,
        duplicate_dropped: is_decided && outcome.order.is_duplicate && !can_repeat,
        request_gap: is_decided && outcome.order.is_gap,
        requests_after_failure: is_decided && is_known(identity) && found.has_failed,
    }
}

#[cfg(test)]
mod tests {
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

    const REQUESTS: [u64; 17] = [
        0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x13, 0x14, 0x16, 0x17,
    ];

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
    fn a_gap_gets_one_nak_and_a_duplicate_an_ack_if_asked() {
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
            (0x0c, Duplicate, false, true, Drop, 0x1f, 0x80),
            (0x13, Duplicate, false, true, Drop, 0x1f, 0x80),
            (0x14, Duplicate, false, true, Drop, 0x1f, 0x80),
        ] {
            let found = Findings { psn_check, ..good(opcode) };
            let record = AdmitRecord { nak_sent, ..AdmitRecord::default() };
            let outcome = outcome_of(false, token(ack_request), path(ALL_RIGHTS), record, found);
            let row =
                format!("opcode {opcode:#04x}, {psn_check:?}, NAK sent {nak_sent}, AckReq {ack_request}");
            assert_eq!(outcome.decision, decision, "{row}");
            assert_eq!(syndrome_of(outcome, bits(9)), bits(syndrome), "{row}");
            assert_eq!(reply_psn(outcome, bits(0x80), bits(0x40)), bits(psn), "{row}");
            assert_eq!(outcome.takes_wqe, psn_check == Expected, "{row}");
            let counts = counts_of(true, found, outcome);
            assert_eq!(counts.request_gap, psn_check == Gap, "{row}");
            let is_read = matches!(opcode, 0x0c | 0x13 | 0x14);
            assert_eq!(counts.duplicate_request, psn_check == Duplicate && !is_read, "{row}");
            assert_eq!(counts.duplicate_dropped, psn_check == Duplicate && is_read, "{row}");
        }
        let duplicate = Outcome { repeats: true, ..Outcome::default() };
        assert_eq!(reply_psn(duplicate, bits(0xff_fff0), bits(0)), bits(0xff_ffff), "PSNs wrap");
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
            assert_eq!(reply_psn(outcome, bits(0x80), bits(0x80)), bits(0x80), "opcode {opcode:#04x}");
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
                assert_eq!(
                    [flushes, takes_wqe, reports_last_wqe],
                    expected.map(|set| set && is_sweep),
                    "{row}"
                );
                let decision = if flushes { Decision::Flush } else { Drop };
                assert_eq!((outcome.decision, outcome.takes_own_wqe), (decision, takes_wqe), "{row}");
            }
        }
    }
}
