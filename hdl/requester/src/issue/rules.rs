//! Rules of [`Issue`](super::Issue): what becomes of a packet once its access checks are answered, and what it
//! leaves in the pool and in the record of its queue pair (protocol 2.1, 2.10, 2.11).
use super::{IssueCounts, Step};
use crate::messages::{
    Issued, IssuedRead, LocalCompletion, Mark, OutstandingMessage, Packet, RetiredWrite, WqeCompletion,
    WqeKind, invalidated_domain, invalidated_key,
};
use crate::wqe::ATOMIC_BYTES;
use rnic_blocks::logic::psn;
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_messages::host::HostSpan;
use rnic_messages::protect::{AccessAnswer, Invalidation};
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS};
use rnic_messages::sizes::{EPOCH_BITS, GENERATION_BITS, SPAN_BITS};
use rnic_messages::transmit::{GatherCommand, TransmitRequest};

/// Packets of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Record {
    /// A packet was in error.
    pub has_failed: Bit,
    /// PSN of that packet, if `has_failed`.
    pub failed_psn: Bits<24>,
    /// PSN of the first packet that was never sent.
    pub unsent_psn: Bits<24>,
    /// PSN after the last packet that was sent, or after its last response if it was a READ.
    pub next_psn: Bits<24>,
    /// Epoch of that packet.
    pub epoch: Bits<EPOCH_BITS>,
    /// READs and atomics with `is_open`, free-running; never reset.
    pub reads: Bits<READ_COUNT_BITS>,
}

/// What acknowledge says of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Now {
    pub epoch: Bits<EPOCH_BITS>,
    /// Oldest unacknowledged PSN.
    pub una_psn: Bits<24>,
    /// Nothing more of `generation` is sent.
    pub is_closed: Bit,
    pub generation: Bits<GENERATION_BITS>,
}

/// What is kept of the counts of acknowledge; after a sweep, the first epoch.
#[kernel]
pub(super) fn now_of(is_sweeping: Bit, write: RetiredWrite) -> Now {
    Now {
        epoch: select(is_sweeping, bits::<EPOCH_BITS>(0), write.retired.epoch),
        una_psn: write.retired.una_psn,
        is_closed: write.is_closed && !is_sweeping,
        generation: write.generation,
    }
}

/// Answers to the access checks of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Answers {
    /// Counted ones that are outstanding.
    pub left: Bits<2>,
    /// None was refused.
    pub are_ok: Bit,
    /// Device address of the first part.
    pub first_address: Bits<64>,
    /// Device address of the second part.
    pub second_address: Bits<64>,
}

/// What becomes of a packet. At most one of `is_flushed`, `is_refused`, `is_protected`, `is_invalidation` and
/// `is_sent` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Outcome {
    /// A packet of its queue pair before it was in error.
    pub has_failed: Bit,
    /// So it is flushed, or its WQE was before.
    pub is_flushed: Bit,
    /// Its WQE is malformed.
    pub is_refused: Bit,
    /// One of its access checks failed.
    pub is_protected: Bit,
    /// Control is asked to invalidate its key.
    pub is_invalidation: Bit,
    /// It is of an older epoch, was acknowledged meanwhile, or its queue pair is closed: its message is written, but nothing is
    /// sent.
    pub is_stale: Bit,
    /// It is sent.
    pub is_sent: Bit,
}

/// A command for gather, and what ends when gather takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Command {
    pub gather: GatherCommand,
    /// A burst of slots.
    pub ends_burst: Bit,
    /// A turn of a long message.
    pub ends_turn: Bit,
}

/// Says what follows when a packet is there.
#[kernel]
pub(super) fn step_after_begin(packet: Packet) -> Step {
    if packet.header.is_empty {
        Step::Begin
    } else if packet.request_count.any() {
        Step::Answers
    } else {
        Step::Write
    }
}

/// Says what follows when a packet has been written: its inline data, or the rest of its list.
#[kernel]
pub(super) fn step_after_write(packet: Packet) -> Step {
    if packet.inline_count.any() {
        Step::Inline
    } else if packet.is_listed {
        Step::Continue
    } else {
        Step::Begin
    }
}

/// Answers after one of the counted ones. Each has an address of its own.
#[kernel]
pub(super) fn after_answer(answers: Answers, answer: AccessAnswer, request_count: Bits<2>) -> Answers {
    let is_first = answers.left == request_count;
    Answers {
        left: answers.left - 1,
        are_ok: answers.are_ok && answer.ok,
        first_address: select(is_first, answer.device_address, answers.first_address),
        second_address: select(is_first, answers.second_address, answer.device_address),
    }
}

/// Decides what becomes of a packet; `are_ok` says that its access checks have succeeded. What comes before the packet
/// in error is sent again, if need be. What was acknowledged meanwhile can fail no more: software may have ended its
/// region.
#[kernel]
pub(super) fn outcome_of(packet: Packet, record: Record, now: Now, are_ok: Bit) -> Outcome {
    let status = packet.completion.status;
    let is_replay = packet.header.is_replay;
    let last_psn = select(packet.kind.is_read, packet.header.last_psn, packet.psn);
    let is_over = is_replay && psn::is_before(last_psn, now.una_psn);
    let is_closed = now.is_closed && now.generation == packet.header.generation;
    let is_stale = packet.header.epoch != now.epoch || is_over || is_closed;
    let is_before = is_replay && psn::is_before(packet.psn, record.failed_psn);
    let has_failed = record.has_failed && !packet.header.is_first && !is_before;
    let is_flushed = has_failed || status == CompletionStatus::Flushed as u64;
    let is_success = status == CompletionStatus::Success as u64;
    let may_fail = !is_replay || !is_stale;
    let is_refused = !is_flushed && !is_success && may_fail;
    let is_protected = !is_flushed && is_success && !are_ok && !is_stale;
    let is_right = !is_flushed && !is_refused && !is_protected;
    Outcome {
        has_failed,
        is_flushed,
        is_refused,
        is_protected,
        is_invalidation: is_right && packet.kind.is_local && !is_replay,
        is_stale,
        is_sent: is_right && !packet.kind.is_local && !is_stale,
    }
}

/// How a message completes, as far as it is known when it is written into the pool.
#[kernel]
pub(super) fn status_of(packet: Packet, outcome: Outcome) -> Bits<8> {
    if outcome.is_flushed {
        bits::<8>(CompletionStatus::Flushed as u64)
    } else if outcome.is_protected {
        bits::<8>(CompletionStatus::LocalProtection as u64)
    } else {
        packet.completion.status
    }
}

/// The message as the pool keeps it.
#[kernel]
pub(super) fn message_of(packet: Packet, outcome: Outcome) -> OutstandingMessage {
    OutstandingMessage {
        generation: packet.header.generation,
        last_psn: packet.header.last_psn,
        next_slot: packet.header.next_slot,
        is_open: packet.header.is_open,
        completion: WqeCompletion {
            status: status_of(packet, outcome),
            reason: select(outcome.is_refused, packet.completion.reason, bits::<8>(0)),
            ..packet.completion
        },
        kind: WqeKind { is_local: outcome.is_invalidation, ..packet.kind },
        // The length in RETH.
        length: if packet.kind.is_atomic {
            bits::<32>(ATOMIC_BYTES)
        } else {
            swap_bytes(packet.extended_or_key.get_bits::<32>(96))
        },
    }
}

/// Record of the queue pair after a packet. A PSN is sent with its packet, and those of all its responses if it is a
/// READ (protocol 2.1).
#[kernel]
pub(super) fn record_after(packet: Packet, record: Record, outcome: Outcome) -> Record {
    let is_first = packet.header.is_first;
    let after = select(packet.kind.is_read, packet.header.last_psn, packet.psn) + 1;
    let unsent_psn = select(is_first, packet.psn, record.unsent_psn);
    let next_psn = select(is_first, packet.psn, record.next_psn);
    let is_new = outcome.is_sent && psn::is_before(unsent_psn, after);
    let fails = outcome.is_refused || outcome.is_protected;
    Record {
        has_failed: (record.has_failed && !is_first) || fails,
        failed_psn: select(fails, packet.psn, record.failed_psn),
        unsent_psn: select(is_new, after, unsent_psn),
        next_psn: select(outcome.is_sent, after, next_psn),
        epoch: select(outcome.is_sent || is_first, packet.header.epoch, record.epoch),
        reads: select(packet.header.is_open && !packet.header.is_replay, record.reads + 1, record.reads),
    }
}

/// The record that is written: that after a packet, or after a sweep one of a queue pair that has issued no READ.
#[kernel]
pub(super) fn record_written(is_sweeping: Bit, after: Record) -> Record {
    Record {
        has_failed: after.has_failed && !is_sweeping,
        reads: select(is_sweeping, bits::<READ_COUNT_BITS>(0), after.reads),
        ..after
    }
}

/// Says whether a message is written into the pool with a packet: with its first one, when it is first sent.
#[kernel]
pub(super) fn is_new_message(packet: Packet) -> Bit {
    packet.starts && !packet.header.is_replay
}

/// Says whether read_response is told of a READ or an atomic: once, and each time that it is sent again.
#[kernel]
pub(super) fn announces_read(packet: Packet, outcome: Outcome) -> Bit {
    let is_first = !packet.header.is_replay && outcome.is_stale && is_right(outcome);
    packet.header.is_open && (outcome.is_sent || is_first)
}

/// Says whether nothing keeps a packet from being sent but its epoch.
#[kernel]
pub(super) fn is_right(outcome: Outcome) -> Bit {
    !outcome.is_flushed && !outcome.is_refused && !outcome.is_protected
}

/// What the pool is told of the queue pair; `after` is its record after the packet.
#[kernel]
pub(super) fn issued_of(packet: Packet, after: Record) -> Issued {
    Issued {
        count: packet.header.message_count,
        reads: after.reads,
        unsent_psn: after.unsent_psn,
        next_psn: after.next_psn,
        epoch: after.epoch,
        generation: packet.header.generation,
    }
}

/// The READ or atomic that read_response waits for.
#[kernel]
pub(super) fn issued_read_of(packet: Packet, record: Record) -> IssuedRead {
    IssuedRead {
        queue_pair: packet.header.queue_pair,
        generation: packet.header.generation,
        slot: record.reads.get_bits::<READ_SLOT_BITS>(0),
        is_replay: packet.header.is_replay,
    }
}

/// Says whether a message fails that is in the pool already: as one whose payload could not be read.
#[kernel]
pub(super) fn fails_later(packet: Packet, outcome: Outcome) -> Bit {
    (outcome.is_protected || outcome.is_refused) && !is_new_message(packet)
}

/// Says whether acknowledge is told of a packet: no response will complete its message. Of a message that has
/// failed before, it knows already.
#[kernel]
pub(super) fn completes_here(packet: Packet, outcome: Outcome) -> Bit {
    !is_right(outcome) && (is_new_message(packet) || fails_later(packet, outcome))
}

/// What acknowledge is told.
#[kernel]
pub(super) fn local_completion_of(packet: Packet, outcome: Outcome) -> LocalCompletion {
    LocalCompletion {
        queue_pair: packet.header.queue_pair,
        generation: packet.header.generation,
        has_failed: fails_later(packet, outcome),
        psn: packet.psn,
        is_invalidated: false,
        is_denied: false,
    }
}

/// What control is asked to invalidate.
#[kernel]
pub(super) fn invalidation_of(packet: Packet) -> Invalidation {
    Invalidation {
        queue_pair: packet.header.queue_pair,
        generation: packet.header.generation,
        key: invalidated_key(packet.extended_or_key),
        domain: invalidated_domain(packet.extended_or_key),
    }
}

/// Says whether a packet with the PSN of this one was sent before.
#[kernel]
pub(super) fn is_repeated(packet: Packet, record: Record) -> Bit {
    packet.header.is_replay && psn::is_before(packet.psn, record.unsent_psn)
}

/// The first command of a packet, with the parts that have been counted.
#[kernel]
pub(super) fn command_of(packet: Packet, record: Record, after: Record, answers: Answers) -> Command {
    Command {
        gather: GatherCommand {
            is_mark: false,
            headers: TransmitRequest {
                queue_pair: packet.header.queue_pair,
                generation: packet.header.generation,
                opcode: packet.opcode,
                solicited: packet.solicited,
                ack_request: packet.ack_request,
                asks_if_newest: true,
                psn: packet.psn,
                is_repeated: is_repeated(packet, record),
                extended: packet.extended_or_key,
                payload_bytes: packet.payload_bytes,
                is_response: false,
                ends_response: false,
                next_psn: after.next_psn,
                epoch: after.epoch,
            },
            is_inline: packet.inline_count.any(),
            continues: packet.is_listed,
            span_count: select(packet.kind.is_read, bits::<2>(0), packet.request_count),
            first: HostSpan {
                address: answers.first_address,
                length: bit_cast::<SPAN_BITS, 13>(packet.first_length),
            },
            second: HostSpan {
                address: answers.second_address,
                length: bit_cast::<SPAN_BITS, 13>(packet.second_length),
            },
        },
        ends_burst: packet.header.ends_burst,
        ends_turn: packet.ends_turn,
    }
}

/// The command of a mark.
#[kernel]
pub(super) fn mark_command_of(mark: Mark) -> Command {
    Command {
        gather: GatherCommand {
            is_mark: true,
            headers: TransmitRequest {
                queue_pair: mark.queue_pair,
                generation: mark.generation,
                ..Default::default()
            },
            ..Default::default()
        },
        ends_burst: false,
        ends_turn: false,
    }
}

/// The next command of the packet of `command`, with one more span of its list.
#[kernel]
pub(super) fn command_after(command: Command, span: HostSpan, is_last: Bit) -> Command {
    Command { gather: GatherCommand { first: span, continues: !is_last, ..command.gather }, ..command }
}

/// Events that a packet counts when it is written.
#[kernel]
pub(super) fn counts_of(writes: Bit, packet: Packet, record: Record, outcome: Outcome) -> IssueCounts {
    IssueCounts {
        packets_retransmitted: writes && outcome.is_sent && is_repeated(packet, record),
        work_refused: writes && outcome.is_refused,
        local_protection: writes && outcome.is_protected,
    }
}

/// Counts two events.
#[kernel]
pub(super) fn ended(one: Bit, other: Bit) -> Bits<16> {
    match (one, other) {
        (true, true) => bits::<16>(2),
        (false, false) => bits::<16>(0),
        _ => bits::<16>(1),
    }
}

#[cfg(test)]
mod tests;
