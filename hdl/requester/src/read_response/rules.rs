//! Decisions of the block about one response.
use crate::messages::{IssuedRead, ReadRecord, Response, Sge};
use crate::opcode::{
    ATOMIC_ACKNOWLEDGE, READ_RESPONSE_FIRST, READ_RESPONSE_LAST, READ_RESPONSE_MIDDLE, READ_RESPONSE_ONLY,
};
use crate::wqe::ATOMIC_BYTES;
use rnic_blocks::logic::psn;
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_messages::path::pmtu_bytes;
use rnic_messages::protect::AccessRequest;
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS, ReadResponseCommand, ResponseNotice};

/// First bit of the class of a syndrome, which is zero in an ACK.
const SYNDROME_CLASS: usize = 5;

/// READs of a queue pair that wait for responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Progress {
    /// READs that wait for data.
    pub open: Bits<READ_COUNT_BITS>,
    /// Slot of the record of the oldest one.
    pub slot: Bits<READ_SLOT_BITS>,
    /// It has received data.
    pub has_begun: Bit,
    /// Bytes that it has received.
    pub bytes: Bits<32>,
    /// The queue pair has received data since it was created or reset.
    pub has_psn: Bit,
    /// PSN after that of the last data.
    pub psn: Bits<24>,
    /// The oldest one was requested again: what comes next may be the first response to that request.
    pub is_requested_again: Bit,
    /// A response was lost since the last data, and acknowledge knows it.
    pub is_reported: Bit,
    /// A READ has failed: nothing more is placed.
    pub has_failed: Bit,
}

/// What the next response must be, and where its data goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Due {
    /// PSN of that response.
    pub psn: Bits<24>,
    /// Bytes of the READ that are missing.
    pub rest: Bits<32>,
    /// Bytes of these that go to the first SGE.
    pub first_rest: Bits<32>,
    /// Bytes in the second SGE.
    pub second_filled: Bits<32>,
}

/// A response compared with what is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Comparison {
    /// Its PSN comes before the one that is due.
    pub is_before: Bit,
    /// Its PSN is the one that is due.
    pub is_due: Bit,
    /// Opcode, length and pad are those that the READ calls for.
    pub is_right: Bit,
    /// The READ ends with the response that is due.
    pub is_last: Bit,
    /// Bytes of its data that go to the first SGE.
    pub first_part: Bits<13>,
    /// Bytes of its data that go to the second SGE.
    pub second_part: Bits<13>,
    /// Address of the first part.
    pub first_address: Bits<64>,
    /// Address of the second part.
    pub second_address: Bits<64>,
}

/// What becomes of a response. With no flag set, it is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Outcome {
    /// Its data is placed.
    pub places: Bit,
    /// Its data was received before.
    pub is_stale: Bit,
    /// No READ waits for its data.
    pub is_unexpected: Bit,
    /// Response to an atomic where a READ is due, which is dropped (protocol 8.3).
    pub is_other_kind: Bit,
    /// Its data is not what the READ calls for, which fails.
    pub is_bad: Bit,
    /// A response before it was lost, and acknowledge does not know it.
    pub is_missing: Bit,
    /// ACK or NAK that overtakes nothing.
    pub is_acknowledge: Bit,
}

/// Says what the oldest READ waits for.
#[kernel]
pub(super) fn due(record: ReadRecord, progress: Progress) -> Due {
    let has_open = progress.open.any();
    let first_rest = bit_cast::<33, 32>(record.first.length) - bit_cast::<33, 32>(progress.bytes);
    let is_first_full = first_rest.get_bit(32);
    Due {
        psn: select(progress.has_begun || !has_open, progress.psn, record.psn),
        rest: record.length - progress.bytes,
        first_rest: select(is_first_full, bits::<32>(0), first_rest.get_bits::<32>(0)),
        second_filled: select(is_first_full, progress.bytes - record.first.length, bits::<32>(0)),
    }
}

/// Says whether a response has the opcode that is due. The first response to a READ that was requested again is FIRST or
/// ONLY, or, of peers that go on where they were, MIDDLE or LAST (protocol 2.5).
#[kernel]
fn is_due_opcode(opcode: Bits<8>, is_atomic: Bit, progress: Progress, is_last: Bit) -> Bit {
    let may_begin = !progress.has_begun || progress.is_requested_again;
    let begins = opcode == select(is_last, bits::<8>(READ_RESPONSE_ONLY), bits::<8>(READ_RESPONSE_FIRST));
    let goes_on = opcode == select(is_last, bits::<8>(READ_RESPONSE_LAST), bits::<8>(READ_RESPONSE_MIDDLE));
    if is_atomic {
        opcode == ATOMIC_ACKNOWLEDGE
    } else {
        (may_begin && begins) || (progress.has_begun && goes_on)
    }
}

/// Compares a response with what is due. The data of an atomic is in a header, so it has no payload.
#[kernel]
pub(super) fn compare(response: Response, record: ReadRecord, progress: Progress, due: Due) -> Comparison {
    let packet_bytes = pmtu_bytes(record.path_mtu);
    let is_last = due.rest <= bit_cast::<32, 13>(packet_bytes);
    let due_data = select(is_last, due.rest.get_bits::<13>(0), packet_bytes);
    let due_bytes = select(record.is_atomic, bits::<13>(0), due_data);
    let placed_bytes = select(record.is_atomic, bits::<13>(ATOMIC_BYTES), response.payload_bytes);
    let is_enough = due.first_rest >= bit_cast::<32, 13>(placed_bytes);
    let first_part = select(is_enough, placed_bytes, due.first_rest.get_bits::<13>(0));
    Comparison {
        is_before: psn::is_before(response.psn, due.psn),
        is_due: response.psn == due.psn,
        is_right: is_due_opcode(response.opcode, record.is_atomic, progress, is_last)
            && response.payload_bytes == due_bytes
            && !response.pad_mismatch,
        is_last,
        first_part,
        second_part: placed_bytes - first_part,
        first_address: record.first.address + bit_cast::<64, 32>(progress.bytes),
        second_address: record.second.address + bit_cast::<64, 32>(due.second_filled),
    }
}

/// Whether a syndrome says that its PSN itself has not been executed; that of an ACK says that it has.
#[kernel]
fn is_nak(syndrome: Bits<8>) -> Bit {
    syndrome.get_bits::<3>(SYNDROME_CLASS).any()
}

/// Says what becomes of a response. One that is not live is dropped: it is not from the peer, or of an older
/// generation, or for a queue pair that has failed or takes none.
#[kernel]
pub(super) fn decide(
    is_live: Bit,
    response: Response,
    progress: Progress,
    is_atomic: Bit,
    found: Comparison,
) -> Outcome {
    let has_open = progress.open.any();
    let is_data = is_live && response.is_data;
    let is_known = has_open || progress.has_psn;
    let is_stale = is_data && is_known && found.is_before;
    let is_due_data = is_data && has_open && found.is_due;
    let is_other_kind = is_due_data && response.opcode == ATOMIC_ACKNOWLEDGE && !is_atomic;
    // A NAK of the PSN that is due responds to it.
    let is_beyond = !found.is_before && !(found.is_due && (response.is_data || is_nak(response.syndrome)));
    let is_lost = is_live && has_open && is_beyond;
    let is_missing = is_lost && !progress.is_reported;
    Outcome {
        places: is_due_data && found.is_right,
        is_stale,
        is_unexpected: is_data && !has_open && !is_stale,
        is_other_kind,
        is_bad: is_due_data && !found.is_right && !is_other_kind,
        is_missing,
        is_acknowledge: is_live && !response.is_data && !is_lost,
    }
}

/// What acknowledge gets of a response, if the access checks of its data succeed.
#[kernel]
pub(super) fn notice(
    response: Response,
    has_begun: Bit,
    due_psn: Bits<24>,
    is_last: Bit,
    outcome: Outcome,
) -> ResponseNotice {
    let fails = outcome.is_bad || outcome.is_missing;
    ResponseNotice {
        queue_pair: response.queue_pair,
        generation: response.generation,
        psn: select(fails, due_psn, response.psn),
        is_placed: outcome.places,
        is_middle: outcome.places && has_begun && !is_last,
        is_acknowledge: outcome.is_acknowledge,
        is_read_error: fails,
        is_unexpected: outcome.is_unexpected,
        syndrome: response.syndrome,
        status: if outcome.is_missing {
            bits::<8>(CompletionStatus::RetryExceeded as u64)
        } else if outcome.is_bad {
            bits::<8>(CompletionStatus::BadResponse as u64)
        } else {
            bits::<8>(CompletionStatus::Success as u64)
        },
        write_failed: false,
        is_last: response.is_last,
    }
}

/// The record after a response before which another one was lost: until more data comes, no other one says so.
#[kernel]
pub(super) fn after_missing(progress: Progress) -> Progress {
    Progress { is_reported: true, ..progress }
}

/// The record after a response that was placed, or with which a READ failed.
#[kernel]
pub(super) fn after_response(
    progress: Progress,
    response: Response,
    outcome: Outcome,
    is_last: Bit,
) -> Progress {
    let ends = outcome.places && is_last;
    let bytes = progress.bytes + bit_cast::<32, 13>(response.payload_bytes);
    Progress {
        open: select(ends, progress.open - 1, progress.open),
        slot: select(ends, progress.slot + 1, progress.slot),
        has_begun: outcome.places && !is_last,
        bytes: select(ends, bits::<32>(0), bytes),
        has_psn: true,
        psn: response.psn + 1,
        is_requested_again: progress.is_requested_again && !ends,
        is_reported: false,
        has_failed: outcome.is_bad,
    }
}

/// The record after a READ was issued, or requested again; one that has ended meanwhile needs no response.
#[kernel]
pub(super) fn after_issue(progress: Progress, issued: IssuedRead) -> Progress {
    let has_open = progress.open.any();
    if issued.is_replay {
        Progress { is_requested_again: has_open, ..progress }
    } else {
        let oldest = select(has_open, progress.slot, issued.slot);
        Progress { open: progress.open + 1, slot: oldest, ..progress }
    }
}

/// The access check for a part of the data.
#[kernel]
pub(super) fn access(sge: Sge, domain: Bits<24>, address: Bits<64>, bytes: Bits<13>) -> AccessRequest {
    AccessRequest {
        key: sge.key,
        domain,
        address,
        length: bit_cast::<32, 13>(bytes),
        local_write: true,
        remote_write: false,
        remote_read: false,
        remote_atomic: false,
    }
}

/// The command without data, where an access check has failed: the READ ends with LOC_PROT.
#[kernel]
pub(super) fn refused(command: ReadResponseCommand) -> ReadResponseCommand {
    ReadResponseCommand {
        span_count: bits::<2>(0),
        notice: ResponseNotice {
            is_placed: false,
            is_middle: false,
            is_read_error: true,
            status: bits::<8>(CompletionStatus::LocalProtection as u64),
            ..command.notice
        },
        ..command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sge(address: u64, length: u64) -> Sge {
        Sge { key: bits(1), address: bits(address), length: bits(length) }
    }

    /// A READ of 3,000 bytes into SGEs of 1,500 at a PMTU of 1,024, from PSN 100 on.
    fn record() -> ReadRecord {
        ReadRecord {
            psn: bits(100),
            length: bits(3000),
            path_mtu: bits(3),
            first: sge(0x1000, 1500),
            second: sge(0x8000, 1500),
            ..ReadRecord::default()
        }
    }

    fn progress(responses: u64) -> Progress {
        Progress {
            open: bits(1),
            has_begun: responses > 0,
            bytes: bits(1024 * responses),
            has_psn: true,
            psn: bits(100 + responses),
            ..Progress::default()
        }
    }

    fn response(opcode: u64, psn: u64, payload_bytes: u64) -> Response {
        Response {
            is_good: true,
            is_data: true,
            opcode: bits(opcode),
            psn: bits(psn),
            payload_bytes: bits(payload_bytes),
            ..Response::default()
        }
    }

    #[test]
    fn what_is_due_follows_from_the_bytes_that_came() {
        // Responses so far; PSN, bytes that are missing, those of the first SGE, bytes in the second.
        for (responses, psn, rest, first_rest, second_filled) in
            [(0, 100, 3000, 1500, 0), (1, 101, 1976, 476, 0), (2, 102, 952, 0, 548)]
        {
            let expected = Due {
                psn: bits(psn),
                rest: bits(rest),
                first_rest: bits(first_rest),
                second_filled: bits(second_filled),
            };
            assert_eq!(due(record(), progress(responses)), expected, "{responses} responses");
        }
        // The first response of a READ has the PSN of its request, whatever came before.
        let after_others = Progress { psn: bits(77), ..progress(0) };
        assert_eq!(due(record(), after_others).psn, bits(100));
        let without_reads = Progress { open: bits(0), ..after_others };
        assert_eq!(due(record(), without_reads).psn, bits(77));
    }

    #[test]
    fn a_response_is_right_with_opcode_and_length_of_its_place() {
        let (first, middle, last, only) =
            (READ_RESPONSE_FIRST, READ_RESPONSE_MIDDLE, READ_RESPONSE_LAST, READ_RESPONSE_ONLY);
        // Length of the READ, responses so far, opcode, payload; whether it is right, and the last one.
        for (length, responses, opcode, bytes, is_right, is_last) in [
            (1024, 0, only, 1024, true, true),
            (1024, 0, only, 1023, false, true),
            (1024, 0, first, 1024, false, true),
            (0, 0, only, 0, true, true),
            (1025, 0, first, 1024, true, false),
            (1025, 0, only, 1024, false, false),
            (1025, 1, last, 1, true, true),
            (1025, 1, last, 2, false, true),
            (1025, 1, middle, 1, false, true),
            (3000, 1, middle, 1024, true, false),
            (3000, 1, last, 1024, false, false),
            (3000, 1, first, 1024, false, false),
        ] {
            let record = ReadRecord { length: bits(length), ..record() };
            let response = response(opcode, 100 + responses, bytes);
            let progress = progress(responses);
            let found = compare(response, record, progress, due(record, progress));
            let name = format!("{length} bytes, opcode {opcode:#x}, {bytes} bytes");
            assert!(found.is_due && !found.is_before, "{name}");
            assert_eq!((found.is_right, found.is_last), (is_right, is_last), "{name}");
            let padded = Response { pad_mismatch: true, ..response };
            assert!(!compare(padded, record, progress, due(record, progress)).is_right, "{name}, pad");
        }
        let atomic = ReadRecord { is_atomic: true, length: bits(8), first: sge(0x1000, 8), ..record() };
        for (opcode, bytes, expected) in
            [(ATOMIC_ACKNOWLEDGE, 0, true), (ATOMIC_ACKNOWLEDGE, 8, false), (READ_RESPONSE_ONLY, 8, false)]
        {
            let found = compare(response(opcode, 100, bytes), atomic, progress(0), due(atomic, progress(0)));
            assert_eq!((found.is_right, found.is_last), (expected, true), "atomic, opcode {opcode:#x}");
            assert_eq!((found.first_part, found.second_part), (bits(8), bits(0)));
        }
    }

    #[test]
    fn data_is_split_between_the_sges() {
        // Responses so far, bytes of this one; parts, and the addresses of both.
        for (responses, bytes, parts, addresses) in [
            (0, 1024, (1024, 0), (0x1000, 0x8000)),
            (1, 1024, (476, 548), (0x1400, 0x8000)),
            (2, 952, (0, 952), (0x1800, 0x8000 + 548)),
        ] {
            let (record, progress) = (record(), progress(responses));
            let response = response(READ_RESPONSE_MIDDLE, 100 + responses, bytes);
            let found = compare(response, record, progress, due(record, progress));
            assert_eq!((found.first_part.to_u64(), found.second_part.to_u64()), parts);
            assert_eq!((found.first_address.to_u64(), found.second_address.to_u64()), addresses);
        }
    }

    #[test]
    fn the_psn_says_whether_a_response_is_stale_or_another_one_was_lost() {
        for (psn, is_before, is_due) in
            [(99, true, false), (100, false, true), (101, false, false), (100 + (1 << 23), true, false)]
        {
            let response = response(READ_RESPONSE_FIRST, psn, 1024);
            let found = compare(response, record(), progress(0), due(record(), progress(0)));
            assert_eq!((found.is_before, found.is_due), (is_before, is_due), "PSN {psn}");
        }
    }

    #[test]
    fn every_response_has_one_outcome() {
        let dropped = Outcome::default();
        let before = Comparison { is_before: true, ..Comparison::default() };
        let due = Comparison { is_due: true, ..Comparison::default() };
        let right = Comparison { is_right: true, ..due };
        let after = Comparison::default();
        let data = response(READ_RESPONSE_ONLY, 100, 8);
        let atomic = response(ATOMIC_ACKNOWLEDGE, 100, 0);
        let ack = Response { is_data: false, ..Response::default() };
        let nak = Response { syndrome: bits(0x60), ..ack };
        let one = progress(0);
        let none = Progress { open: bits(0), ..one };
        let fresh = Progress { has_psn: false, ..none };
        let placed = Outcome { places: true, ..dropped };
        let stale = Outcome { is_stale: true, ..dropped };
        let unexpected = Outcome { is_unexpected: true, ..dropped };
        let other_kind = Outcome { is_other_kind: true, ..dropped };
        let bad = Outcome { is_bad: true, ..dropped };
        let missing = Outcome { is_missing: true, ..dropped };
        let acknowledged = Outcome { is_acknowledge: true, ..dropped };
        for (name, response, progress, is_atomic, found, expected) in [
            ("data that is due and right", data, one, false, right, placed),
            ("data that is due and wrong", data, one, false, due, bad),
            ("data of the past", data, one, false, before, stale),
            ("data after a gap", data, one, false, after, missing),
            ("data of the past without a READ", data, none, false, before, stale),
            ("data without a READ", data, none, false, after, unexpected),
            ("data without a READ, of the next PSN", data, none, false, due, unexpected),
            ("data before the first READ", data, fresh, false, before, unexpected),
            ("response to an atomic", atomic, one, true, right, placed),
            ("wrong response to an atomic", atomic, one, true, due, bad),
            ("response to an atomic where a READ is due", atomic, one, false, due, other_kind),
            ("READ response where an atomic is due", data, one, true, due, bad),
            ("ACK of the past", ack, one, false, before, acknowledged),
            ("ACK of what is due", ack, one, false, due, missing),
            ("ACK of what comes later", ack, one, false, after, missing),
            ("NAK of the past", nak, one, false, before, acknowledged),
            ("NAK of what is due", nak, one, false, due, acknowledged),
            ("NAK of what comes later", nak, one, false, after, missing),
            ("ACK without a READ", ack, none, false, after, acknowledged),
            ("NAK without a READ", nak, none, false, due, acknowledged),
        ] {
            assert_eq!(decide(true, response, progress, is_atomic, found), expected, "{name}");
            assert_eq!(decide(false, response, progress, is_atomic, found), dropped, "{name}, not live");
        }
    }

    #[test]
    fn a_failure_reports_the_psn_that_is_due() {
        use CompletionStatus::{BadResponse, RetryExceeded, Success};
        let data = response(READ_RESPONSE_MIDDLE, 105, 8);
        let places = Outcome { places: true, ..Outcome::default() };
        let bad = Outcome { is_bad: true, ..Outcome::default() };
        let missing = Outcome { is_missing: true, ..Outcome::default() };
        let acknowledged = Outcome { is_acknowledge: true, ..Outcome::default() };
        // Outcome, whether the READ has begun and whether it ends; PSN, status, whether no message can end with
        // it.
        for (outcome, has_begun, is_last, psn, status, is_middle) in [
            (places, false, false, 105, Success, false),
            (places, true, false, 105, Success, true),
            (places, true, true, 105, Success, false),
            (acknowledged, true, false, 105, Success, false),
            (bad, true, false, 103, BadResponse, false),
            (missing, true, false, 103, RetryExceeded, false),
        ] {
            let returned = notice(data, has_begun, bits(103), is_last, outcome);
            assert_eq!((returned.psn, returned.status), (bits(psn), bits(status as u64)), "{outcome:?}");
            assert_eq!((returned.is_placed, returned.is_middle), (outcome.places, is_middle), "{outcome:?}");
            assert_eq!(returned.is_read_error, outcome.is_bad || outcome.is_missing, "{outcome:?}");
        }
    }

    #[test]
    fn the_record_follows_placed_data_and_keeps_a_failure() {
        let before = Progress { open: bits(2), slot: bits(15), ..progress(1) };
        let data = response(READ_RESPONSE_MIDDLE, 101, 1000);
        let places = Outcome { places: true, ..Outcome::default() };
        let next = Progress { bytes: bits(2024), psn: bits(102), ..before };
        assert_eq!(after_response(before, data, places, false), next);
        let ended = Progress { open: bits(1), slot: bits(0), has_begun: false, bytes: bits(0), ..next };
        assert_eq!(after_response(before, data, places, true), ended);
        let bad = Outcome { is_bad: true, ..Outcome::default() };
        assert!(after_response(before, data, bad, false).has_failed);

        let read = IssuedRead { slot: bits(7), ..IssuedRead::default() };
        let issued = after_issue(before, read);
        assert_eq!(issued, Progress { open: bits(3), ..before }, "the oldest READ keeps its slot");
        let idle = Progress { open: bits(0), ..before };
        assert_eq!(after_issue(idle, read), Progress { open: bits(1), slot: bits(7), ..before });
        let again = IssuedRead { is_replay: true, ..read };
        assert_eq!(after_issue(before, again), Progress { is_requested_again: true, ..before });
        assert_eq!(after_issue(idle, again), idle, "it has ended meanwhile");

        // One response that shows a loss is told, until data comes.
        let missing = after_missing(before);
        assert_eq!(missing, Progress { is_reported: true, ..before });
        assert_eq!(after_response(missing, data, places, false), next);
    }

    #[test]
    fn a_refused_access_places_nothing() {
        let notice = ResponseNotice { is_placed: true, is_middle: true, ..ResponseNotice::default() };
        let command =
            ReadResponseCommand { payload_bytes: bits(9), span_count: bits(2), notice, ..Default::default() };
        let refused = refused(command);
        assert_eq!((refused.payload_bytes, refused.span_count), (bits(9), bits(0)));
        let status = bits(CompletionStatus::LocalProtection as u64);
        assert_eq!(
            refused.notice,
            ResponseNotice { is_read_error: true, status, ..ResponseNotice::default() }
        );
    }
}
