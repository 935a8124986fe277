//! Rules of [`Segment`](super::Segment) about one packet: its bytes, its opcode and headers, its access
//! requests, and what is left after it (protocol 2.2, 2.4).
use super::begin::{Message, Parts, Rest, Work};
use super::{LISTED_BITS, QUANTUM_UNITS_LOG2, SHARE_BITS, Step};
use crate::messages::{
    AtomicOperands, CheckedWqe, Packet, ReadRecord, Sge, SgePart, WqeCompletion, WqeHeader, WqeKind,
    atomic_operands,
};
use crate::opcode::{
    COMPARE_SWAP, FETCH_ADD, READ_REQUEST, SEND_FIRST, SEND_LAST, SEND_LAST_IMMEDIATE, SEND_LAST_INVALIDATE,
    SEND_MIDDLE, SEND_ONLY, SEND_ONLY_IMMEDIATE, SEND_ONLY_INVALIDATE, WRITE_FIRST, WRITE_LAST,
    WRITE_LAST_IMMEDIATE, WRITE_MIDDLE, WRITE_ONLY, WRITE_ONLY_IMMEDIATE,
};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_messages::packet::EXTENDED_BITS;
use rnic_messages::path::pmtu_bytes;
use rnic_messages::protect::AccessRequest;
use rnic_messages::sizes::QUEUE_PAIR_BITS;
use rnic_messages::transmit::{WIRE_UNIT_BITS, wire_units};

/// Access requests of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Requests {
    /// One for the first SGE.
    pub has_first: Bit,
    /// One for the second.
    pub has_second: Bit,
    /// Some for SGEs of the list.
    pub has_listed: Bit,
}

/// The SGE that an access request is for, and the bytes that the packet takes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Taken {
    pub sge: Sge,
    pub bytes: Bits<13>,
}

/// Bytes that are taken of an SGE where `wanted` are missing.
#[kernel]
pub(super) fn bytes_of(length: Bits<32>, wanted: Bits<13>) -> Bits<13> {
    select(length >= bit_cast::<32, 13>(wanted), wanted, length.get_bits::<13>(0))
}

/// The bytes of the next packet of a message.
#[kernel]
pub(super) fn next_parts(current: Rest) -> Parts {
    let packet_bytes = pmtu_bytes(current.path_mtu);
    let fits = current.length <= bit_cast::<32, 13>(packet_bytes);
    let payload = select(fits, current.length.get_bits::<13>(0), packet_bytes);
    let first = bytes_of(current.first.length, payload);
    Parts { is_last: fits, payload, first, second: payload - first }
}

/// Access requests of a packet: one for each SGE that it takes bytes of. What is not from the first SGE is from
/// the second, or from the list.
#[kernel]
pub(super) fn requests_of(work: Work) -> Requests {
    let sends_nothing = work.message.sends_nothing;
    let is_listed = work.rest.listed.any();
    let has_more = work.parts.second.any() && !sends_nothing;
    Requests {
        has_first: work.parts.first.any() && !sends_nothing,
        has_second: has_more && !is_listed,
        has_listed: has_more && is_listed,
    }
}

/// Opcode of a packet.
#[kernel]
pub(super) fn opcode_of(current: Rest, message: Message, is_last: Bit, is_compare: Bit) -> Bits<8> {
    let starts = message.starts && !message.is_continued;
    let plain_opcode = match (current.is_write, starts, is_last, current.has_immediate) {
        (false, true, true, false) => bits::<8>(SEND_ONLY),
        (false, true, true, true) => bits::<8>(SEND_ONLY_IMMEDIATE),
        (false, true, false, _) => bits::<8>(SEND_FIRST),
        (false, false, false, _) => bits::<8>(SEND_MIDDLE),
        (false, false, true, false) => bits::<8>(SEND_LAST),
        (false, false, true, true) => bits::<8>(SEND_LAST_IMMEDIATE),
        (true, true, true, false) => bits::<8>(WRITE_ONLY),
        (true, true, true, true) => bits::<8>(WRITE_ONLY_IMMEDIATE),
        (true, true, false, _) => bits::<8>(WRITE_FIRST),
        (true, false, false, _) => bits::<8>(WRITE_MIDDLE),
        (true, false, true, false) => bits::<8>(WRITE_LAST),
        (true, false, true, true) => bits::<8>(WRITE_LAST_IMMEDIATE),
    };
    let message_opcode = if current.with_invalidate && is_last {
        select(starts, bits::<8>(SEND_ONLY_INVALIDATE), bits::<8>(SEND_LAST_INVALIDATE))
    } else {
        plain_opcode
    };
    match (message.is_read, message.is_atomic, is_compare) {
        (false, _, _) => message_opcode,
        (true, false, _) => bits::<8>(READ_REQUEST),
        (true, true, true) => bits::<8>(COMPARE_SWAP),
        (true, true, false) => bits::<8>(FETCH_ADD),
    }
}

/// Says how a message completes, as far as it is known with one of its packets. What is not sent is flushed,
/// unless it has a status of its own.
#[kernel]
pub(super) fn status_of(status: Bits<8>, message: Message) -> Bits<8> {
    let is_flushed = message.sends_nothing && !message.is_local;
    if !message.starts {
        bits::<8>(CompletionStatus::Success as u64)
    } else if is_flushed && status == CompletionStatus::Success as u64 {
        bits::<8>(CompletionStatus::Flushed as u64)
    } else {
        status
    }
}

/// Extended headers of a packet as on the wire: AtomicETH; or RETH in FIRST and ONLY, and ImmDt or IETH in LAST
/// and ONLY. Of a LOCAL_INVALIDATE, key and protection domain.
#[kernel]
pub(super) fn extended_of(
    wqe: CheckedWqe,
    current: Rest,
    message: Message,
    is_last: Bit,
) -> Bits<EXTENDED_BITS> {
    let operands: AtomicOperands = atomic_operands(wqe.tail);
    let immediate = select(is_last, current.immediate, bits::<32>(0));
    let domain = select(message.is_local, current.domain, bits::<24>(0));
    if message.is_atomic {
        cat!(swap_bytes(operands.compare), swap_bytes(operands.swap_add), wqe.reth.get_bits::<96>(0))
    } else if message.starts && ((current.is_write && !message.is_continued) || message.is_read) {
        cat!(bits::<64>(0), immediate, wqe.reth)
    } else {
        cat!(bits::<168>(0), domain, immediate)
    }
}

/// Says whether a packet requests an acknowledgement: the last one where the WQE asks for it, and every 32nd
/// (protocol 2.4).
#[kernel]
pub(super) fn asks_for_ack(current: Rest, is_last: Bit) -> Bit {
    (current.ack_request && is_last) || current.packets.all()
}

/// The packet; `ends` says that its message or its turn ends with it.
#[kernel]
pub(super) fn packet_of(
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    is_turn: Bit,
    ends: Bit,
    wqe: CheckedWqe,
    work: Work,
    requests: Requests,
) -> Packet {
    let current = work.rest;
    let message = work.message;
    let starts = message.starts;
    let is_last = work.parts.is_last;
    let is_compare = wqe.kind.is_compare;
    Packet {
        header: WqeHeader {
            queue_pair,
            generation: current.generation,
            epoch: current.epoch,
            is_replay: current.is_replay,
            is_empty: select(starts, wqe.header.is_empty, message.sends_nothing),
            is_first: wqe.header.is_first && starts,
            ends_burst: ends && message.ends_burst,
            is_open: wqe.header.is_open && starts,
            message_count: current.message_count,
            ..wqe.header
        },
        completion: WqeCompletion { status: status_of(wqe.completion.status, message), ..wqe.completion },
        kind: WqeKind {
            is_write: current.is_write,
            is_read: message.is_read,
            is_atomic: message.is_atomic,
            is_compare: message.is_atomic && is_compare,
            is_local: message.is_local,
        },
        starts,
        ends_turn: ends && is_turn,
        opcode: opcode_of(current, message, is_last, is_compare),
        solicited: current.solicited && is_last,
        ack_request: asks_for_ack(current, is_last),
        psn: current.psn,
        extended_or_key: extended_of(wqe, current, message, is_last),
        payload_bytes: work.parts.payload,
        inline_count: select(starts, wqe.inline_count, bits::<2>(0)),
        request_count: cat!(
            requests.has_first && requests.has_second,
            requests.has_first && !requests.has_second
        ),
        is_listed: requests.has_listed,
        first_length: work.parts.first,
        second_length: work.parts.second,
    }
}

/// Says whether a packet is a READ or an atomic whose record is not written yet.
#[kernel]
pub(super) fn is_new_read(work: Work) -> Bit {
    work.message.is_read && !work.message.sends_nothing && !work.rest.is_replay
}

/// What the responses to a READ or an atomic need.
#[kernel]
pub(super) fn read_record_of(current: Rest, is_atomic: Bit) -> ReadRecord {
    ReadRecord {
        psn: current.psn,
        length: current.length,
        path_mtu: current.path_mtu,
        domain: current.domain,
        is_atomic,
        first: current.first,
        second: current.second,
    }
}

/// The SGE that the access request of a step is for; `listed` is the next one of the list.
#[kernel]
pub(super) fn taken_of(step: Step, work: Work, listed: Sge) -> Taken {
    match step {
        Step::Listed => Taken { sge: listed, bytes: bytes_of(listed.length, work.parts.second) },
        Step::Second => Taken { sge: work.rest.second, bytes: work.parts.second },
        _ => Taken { sge: work.rest.first, bytes: work.parts.first },
    }
}

/// The access request: of a READ for the whole SGE and for local write, else for the bytes of the packet.
#[kernel]
pub(super) fn access_of(taken: Taken, domain: Bits<24>, is_read: Bit) -> AccessRequest {
    AccessRequest {
        key: taken.sge.key,
        domain,
        address: taken.sge.address,
        length: select(is_read, taken.sge.length, bit_cast::<32, 13>(taken.bytes)),
        local_write: is_read,
        remote_write: false,
        remote_read: false,
        remote_atomic: false,
    }
}

/// What the access request for an SGE of the list is for; `missing` bytes of the packet are not from an SGE
/// before it.
#[kernel]
pub(super) fn listed_part(taken: Taken, missing: Bits<13>) -> SgePart {
    SgePart { length: taken.bytes, is_last: taken.sge.length >= bit_cast::<32, 13>(missing) }
}

/// Says whether a packet is complete with an SGE of the list: bytes of it are left, or none is after it.
#[kernel]
pub(super) fn ends_list(length: Bits<32>, missing: Bits<13>, listed: Bits<LISTED_BITS>) -> Bit {
    length > bit_cast::<32, 13>(missing) || listed == 1
}

/// Says whether a packet takes the last byte of an SGE.
#[kernel]
pub(super) fn is_used_up(taken: Taken) -> Bit {
    taken.sge.length == bit_cast::<32, 13>(taken.bytes)
}

/// What is left of an SGE.
#[kernel]
pub(super) fn sge_after(taken: Taken) -> Sge {
    Sge {
        key: taken.sge.key,
        address: taken.sge.address + bit_cast::<64, 13>(taken.bytes),
        length: taken.sge.length - bit_cast::<32, 13>(taken.bytes),
    }
}

/// What is left after bytes of the first SGE: one that is used up gives its place to the second.
#[kernel]
pub(super) fn after_first(rest: Rest, taken: Taken) -> Rest {
    let is_used_up = is_used_up(taken);
    let none = Sge { key: bits::<32>(0), address: bits::<64>(0), length: bits::<32>(0) };
    Rest {
        first: select(is_used_up, rest.second, sge_after(taken)),
        second: select(is_used_up, none, rest.second),
        ..rest
    }
}

/// The work after the cycle in which a packet is made. It is complete, unless other SGEs follow.
#[kernel]
pub(super) fn after_packet(work: Work, taken: Taken, has_second: Bit, walks: Bit) -> Work {
    let counted = Rest {
        psn: work.rest.psn + 1,
        packets: work.rest.packets + 1,
        length: work.rest.length - bit_cast::<32, 13>(work.parts.payload),
        ..work.rest
    };
    let is_complete = !has_second && !walks;
    Work {
        rest: select(has_second, counted, after_first(counted, taken)),
        message: Message { starts: false, ..work.message },
        packets_left: select(is_complete, work.packets_left - 1, work.packets_left),
        ..work
    }
}

/// The work after bytes of the second SGE, which becomes the first; the packet is complete.
#[kernel]
pub(super) fn after_second(work: Work, taken: Taken) -> Work {
    let none = Sge { key: bits::<32>(0), address: bits::<64>(0), length: bits::<32>(0) };
    Work {
        rest: Rest { first: sge_after(taken), second: none, ..work.rest },
        packets_left: work.packets_left - 1,
        ..work
    }
}

/// The work after bytes of an SGE of the list, which becomes the first; `ends` says that the packet is complete.
#[kernel]
pub(super) fn after_listed(work: Work, taken: Taken, ends: Bit) -> Work {
    Work {
        rest: Rest {
            first: sge_after(taken),
            listed: work.rest.listed - 1,
            listed_index: work.rest.listed_index + 1,
            ..work.rest
        },
        parts: Parts { second: work.parts.second - taken.bytes, ..work.parts },
        packets_left: select(ends, work.packets_left - 1, work.packets_left),
        ..work
    }
}

/// Says what follows a packet: the record, where the rest of a message has ended or a message goes on in turns.
#[kernel]
pub(super) fn step_after_packet(has_ended: Bit, is_rest: Bit, ends: Bit) -> Step {
    if has_ended && !is_rest {
        Step::Idle
    } else if ends {
        Step::Store
    } else {
        Step::Plan
    }
}

/// Says what follows in the cycle in which a packet is made.
#[kernel]
pub(super) fn step_after_make(has_second: Bit, walks: Bit, after: Step) -> Step {
    if has_second {
        Step::Second
    } else if walks {
        Step::Listed
    } else {
        after
    }
}

/// What WQEs have had of the wire since the last turn, in units, after a packet of one.
#[kernel]
pub(super) fn share_after(share: Bits<SHARE_BITS>, work: Work) -> Bits<SHARE_BITS> {
    let payload = select(work.message.sends_nothing, bits::<13>(0), work.parts.payload);
    let units = bit_cast::<SHARE_BITS, WIRE_UNIT_BITS>(wire_units(payload));
    select(share.get_bit(QUANTUM_UNITS_LOG2), share, share + units)
}

/// What WQEs have had after a cycle: a turn that is loaded begins a new count, and a packet of a WQE adds to it.
#[kernel]
pub(super) fn share_next(
    loads_turn: Bit,
    makes: Bit,
    share: Bits<SHARE_BITS>,
    work: Work,
) -> Bits<SHARE_BITS> {
    if loads_turn {
        bits::<SHARE_BITS>(0)
    } else if makes {
        share_after(share, work)
    } else {
        share
    }
}

/// Place in the list that is read next: with the last SGE of a packet, the one of the next.
#[kernel]
pub(super) fn listed_place(step: Step, index: Bits<LISTED_BITS>) -> Bits<LISTED_BITS> {
    if step == Step::Listed { index + 1 } else { index }
}

#[cfg(test)]
mod tests;
