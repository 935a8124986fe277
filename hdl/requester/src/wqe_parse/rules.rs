//! Rules of [`WqeParse`](super::WqeParse): which slots are the next WQE, whether it may begin, and what it and
//! the events make of the record of its queue pair (protocol 2.1, 2.3, 2.10).
use super::Step;
use crate::messages::{
    BLOCK_BITS, BLOCK_MESSAGES, KeptAnswer, LAP_BITS, MESSAGE_COUNT_BITS, PSN_WINDOW_BITS, ParsedWqe,
    QUANTUM_BITS, Retired, SegmentPlan, WINDOW, WqeHeader, WqeSlot,
};
use crate::outstanding::{SHARED_BITS, shared_block};
use crate::vendor_error;
use crate::weight::{Estimate, Outlook, WEIGHT_BITS, estimate_after, is_too_heavy, outlook_of, weight_of};
use crate::wqe::{TWO_SLOTS, WqeFields, WqeOperation, classify, fields};
use rnic_blocks::logic::psn;
use rnic_kernel::prelude::*;
use rnic_layout::queue::send::WqeOpcode;
use rnic_layout::state::{PathMtu, QpState, Service};
use rnic_messages::read::{READ_COUNT_BITS, ReadShare, numbered_read_place};
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{EPOCH_BITS, GENERATION_BITS, WORK_INDEX_BITS};

/// Most bytes of a message.
pub(super) const LENGTH_MAX: u64 = rnic_layout::limits::MESSAGE_BYTES_MAX as u64;
/// Most bytes of a message that is not long.
pub(super) const QUANTUM: u64 = 1 << QUANTUM_BITS;
/// Width of a count of messages in flight, 0 to 1,024.
const REPLAY_BITS: usize = 11;
/// Width of a number of single bursts.
const CAREFUL_BITS: usize = 2;
/// Single bursts after a wait for READs: their slots, of which each but the first has seven new ones, are more than
/// the READs that may be open.
const CAREFUL: u64 = 3;
/// PSNs that a queue pair may have in flight.
pub(super) const PSN_SPAN: u64 = rnic_layout::psn::HALF_WINDOW as u64;

/// State and path of a queue pair, as commands set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Life {
    pub state: Bits<3>,
    pub generation: Bits<GENERATION_BITS>,
    pub is_reliable: Bit,
    pub signal_all: Bit,
    pub path_mtu: Bits<3>,
    pub domain: Bits<24>,
    /// READs and atomics that may be outstanding.
    pub read_atomic: Bits<READ_COUNT_BITS>,
    /// Their slots.
    pub read_share: ReadShare,
}

/// Progress of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Send {
    /// Cursor: free-running index of the slot that is wanted next.
    pub slot_index: Bits<WORK_INDEX_BITS>,
    /// Cursor: PSN of the next packet.
    pub next_psn: Bits<24>,
    /// Messages between the cursor and the first one that was never begun; these are sent again.
    pub behind: Bits<REPLAY_BITS>,
    /// Slot after the last message that was begun, where `behind` is not zero.
    pub high_slot: Bits<WORK_INDEX_BITS>,
    /// PSN after the last message that was begun, where `behind` is not zero.
    pub high_psn: Bits<24>,
    /// Epoch of the cursor.
    pub epoch: Bits<EPOCH_BITS>,
    /// How often the cursor has moved other than message by message.
    pub lap: Bits<LAP_BITS>,
    /// Messages that have got a pool slot, free-running. Never reset, as the slots of the pool are not.
    pub message_count: Bits<MESSAGE_COUNT_BITS>,
    /// READs and atomics that were outstanding, free-running; never reset.
    pub reads: Bits<READ_COUNT_BITS>,
    /// Last block of the chain, relative to the home: zero is the home.
    pub tail_from_home: Bits<BLOCK_BITS>,
    /// Slots taken in it, 0 to 8.
    pub tail_count: Bits<4>,
    /// Toggles when the home block is taken.
    pub home_lap: Bit,
    /// The last block follows itself.
    pub is_reused: Bit,
    /// The wanted slot waits for room.
    pub is_held: Bit,
    /// Single bursts to fetch before fetch goes on without a word: a queue pair that waited for READs is soon
    /// held again.
    pub careful: Bits<CAREFUL_BITS>,
    /// The wanted slot waits for segment, which has a long message, or one that was counted as much lighter.
    pub waits_for_long: Bit,
    /// The last WQE was a LOCAL_INVALIDATE.
    pub follows_local: Bit,
    /// No slot is wanted any more: the producer index overran the ring, or a slot could not be read.
    pub has_ended: Bit,
    /// A WQE was taken since the queue pair was created or reset.
    pub has_begun: Bit,
    /// How long its messages are.
    pub estimate: Estimate,
}

/// What the slot is as a WQE. Its fields are not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct SlotKind {
    /// The WQE is sent, not flushed, and its slot was read.
    pub is_plain: Bit,
    /// The WQE has a second slot.
    pub is_double: Bit,
    /// READ or atomic that is plain.
    pub is_read: Bit,
    /// LOCAL_INVALIDATE that is plain.
    pub is_local: Bit,
    /// Plain, and waits for the READs and atomics before it.
    pub has_fence: Bit,
    /// Its length counts in PSNs: its payload is not in the WQE, and it is not too long.
    pub has_length: Bit,
    /// In bytes.
    pub length: Bits<32>,
}

/// Where the pool slot of the next message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct BlockChoice {
    /// The last block is full.
    pub needs_block: Bit,
    /// It is used again, as there is no other.
    pub reuses_block: Bit,
    /// The home block has returned.
    pub takes_home: Bit,
}

/// What is decided about a slot, before the PSNs in flight are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Decision {
    /// The slot is the next WQE.
    pub takes: Bit,
    /// Its message is in the pool, and is sent again.
    pub is_replay: Bit,
    /// The message of the cursor has left the pool: the cursor goes to the oldest one.
    pub jumps: Bit,
    /// Its message was begun, and cannot be read again.
    pub is_lost: Bit,
    /// It waits for something else than PSNs.
    pub is_blocked: Bit,
    /// It waits for READs or atomics.
    pub awaits_reads: Bit,
    /// No message is in flight.
    pub is_alone: Bit,
    /// PSNs in flight before the message; negative where some of its own were acknowledged.
    pub ahead: Bits<24>,
    /// Packets after the first.
    pub further_packets: Bits<24>,
    /// It is a message of more than a quantum.
    pub is_long: Bit,
    /// Its weight; zero if it has no payload to send.
    pub weight: Bits<WEIGHT_BITS>,
    /// How heavy its queue pair is.
    pub outlook: Outlook,
    /// READ or atomic that counts against the queue pair's limit of outstanding ones.
    pub is_open: Bit,
    /// LOCAL_INVALIDATE.
    pub is_local: Bit,
    /// The WQE after it is not seen, or is a LOCAL_INVALIDATE.
    pub next_is_unknown: Bit,
    /// It completes as flushed.
    pub is_flushed: Bit,
    /// The slot comes from kept_slots.
    pub is_kept: Bit,
    /// It has two slots, and the second one was not posted.
    pub is_half: Bit,
    /// It has two slots.
    pub is_double: Bit,
    /// Where its pool slot is.
    pub block: BlockChoice,
    /// Messages that had left the pool.
    pub seen: Retired,
}

/// A slot of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct PoolPlace {
    pub block: Bits<BLOCK_BITS>,
    /// Slot in the block, 0 to 7.
    pub index: Bits<4>,
}

/// Chooses what an idle block does: events go before wakes, and wakes before slots.
#[kernel]
pub(super) fn first_step(may_start: Bit, has_setup: Bit, has_wake: Bit, has_slot: Bit) -> Step {
    if !may_start {
        Step::Idle
    } else if has_setup {
        Step::Setup
    } else if has_wake {
        Step::Wake
    } else if has_slot {
        Step::Decide
    } else {
        Step::Idle
    }
}

/// State and path that an event sets.
#[kernel]
pub(super) fn life_of(event: SetupEvent) -> Life {
    Life {
        state: event.state,
        generation: event.generation,
        is_reliable: event.path.service == Service::ReliableConnected as u64,
        signal_all: event.path.signal_all,
        path_mtu: event.path.path_mtu,
        domain: event.path.domain,
        read_atomic: event.path.read_atomic,
        read_share: event.read_share,
    }
}

/// Says whether WQEs leave as flushed ones.
#[kernel]
pub(super) fn flushes(state: Bits<3>) -> Bit {
    state == QpState::Error as u64 || state == QpState::SendQueueError as u64
}

/// Says whether a queue pair waits for a long message after a change of its state. Segment drops the message in
/// a state in which nothing is sent, and wakes nobody then.
#[kernel]
pub(super) fn still_waits_for_long(waits_for_long: Bit, state: Bits<3>) -> Bit {
    waits_for_long && (state == QpState::ReadyToSend as u64 || state == QpState::SendQueueDrain as u64)
}

/// Says whether an event makes wqe_fetch begin anew: after a change of state, WQEs that were dropped are fetched
/// again, to be sent or flushed.
#[kernel]
pub(super) fn resumes_after_setup(send: Send, event: SetupEvent) -> Bit {
    let is_sent =
        event.state == QpState::ReadyToSend as u64 && !still_waits_for_long(send.waits_for_long, event.state);
    event.kind == SetupKind::Life && (is_sent || flushes(event.state))
}

/// Says whether messages that were begun are sent, and sent again, in a state (protocol 3.10).
#[kernel]
pub(super) fn sends(state: Bits<3>) -> Bit {
    state == QpState::ReadyToSend as u64 || state == QpState::SendQueueDrain as u64
}

/// Record with the cursor after the last message that was begun.
#[kernel]
pub(super) fn at_end(send: Send) -> Send {
    let is_back = send.behind.any();
    Send {
        slot_index: select(is_back, send.high_slot, send.slot_index),
        next_psn: select(is_back, send.high_psn, send.next_psn),
        behind: bits::<REPLAY_BITS>(0),
        ..send
    }
}

/// Says whether the cursor must go back: acknowledge has raised the epoch, and waits for nothing.
#[kernel]
pub(super) fn goes_back(life: Life, send: Send, retired: Retired) -> Bit {
    send.epoch != retired.epoch && !retired.waits && sends(life.state)
}

/// Record with the cursor at the oldest message of the pool (design decision 9).
#[kernel]
pub(super) fn at_oldest(send: Send, retired: Retired) -> Send {
    let end = at_end(send);
    let in_flight = send.message_count - retired.count;
    let has_any = in_flight.any();
    Send {
        slot_index: select(has_any, retired.oldest_slot, end.slot_index),
        next_psn: select(has_any, retired.oldest_psn, end.next_psn),
        behind: in_flight.get_bits::<REPLAY_BITS>(0),
        high_slot: end.slot_index,
        high_psn: end.next_psn,
        epoch: retired.epoch,
        lap: send.lap + 1,
        is_held: false,
        waits_for_long: false,
        ..end
    }
}

/// Record after an event. In a state in which nothing is sent, nothing is sent again.
#[kernel]
pub(super) fn after_setup(send: Send, event: SetupEvent, retired: Retired) -> Send {
    let kept = select(sends(event.state), send, at_end(send));
    match event.kind {
        SetupKind::Restart => Send {
            slot_index: bits::<WORK_INDEX_BITS>(0),
            behind: bits::<REPLAY_BITS>(0),
            epoch: retired.epoch,
            lap: bits::<LAP_BITS>(0),
            is_held: false,
            waits_for_long: false,
            follows_local: false,
            has_ended: false,
            has_begun: false,
            estimate: Estimate { ..Default::default() },
            ..send
        },
        // Nothing is in flight, and acknowledge has ended what it was about.
        SetupKind::SendPsn => Send { next_psn: event.psn, epoch: retired.epoch, ..send },
        SetupKind::Life => Send {
            is_held: false,
            waits_for_long: still_waits_for_long(send.waits_for_long, event.state),
            ..kept
        },
        _ => send,
    }
}

/// Packets after the first that a message of `length` bytes needs.
#[kernel]
pub(super) fn further_packets(length: Bits<32>, path_mtu: Bits<3>) -> Bits<24> {
    let last_byte = length - 1;
    let behind = match PathMtu::from_number(path_mtu.to_u64()) {
        Some(PathMtu::Bytes256) => last_byte.get_bits::<24>(8),
        Some(PathMtu::Bytes512) => bit_cast::<24, 23>(last_byte.get_bits::<23>(9)),
        Some(PathMtu::Bytes1024) => bit_cast::<24, 22>(last_byte.get_bits::<22>(10)),
        Some(PathMtu::Bytes2048) => bit_cast::<24, 21>(last_byte.get_bits::<21>(11)),
        _ => bit_cast::<24, 20>(last_byte.get_bits::<20>(12)),
    };
    select(length.any(), behind, bits::<24>(0))
}

/// Says whether a slot is the next WQE of its queue pair. None is while the cursor must go back.
#[kernel]
pub(super) fn is_next_wqe(slot: WqeSlot, life: Life, send: Send, retired: Retired) -> Bit {
    // Nothing follows an overrun, so it ends the queue at any index.
    let is_next = slot.index == send.slot_index || slot.is_overrun;
    let is_current = slot.generation == life.generation && (slot.lap == send.lap || !slot.is_overrun);
    let has_ended = send.has_ended && !send.behind.any();
    let is_wanted = is_next && is_current && !send.is_held && !send.waits_for_long && !has_ended;
    // The next slot may come with the next burst; it is missing only at the end of all bursts.
    let is_whole = slot.has_second || slot.ends_queue || slot.is_overrun;
    is_wanted && is_whole && is_active(life, send, retired)
}

/// Says whether WQEs of a queue pair leave, to be sent or flushed.
#[kernel]
pub(super) fn is_active(life: Life, send: Send, retired: Retired) -> Bit {
    let is_sent = life.state == QpState::ReadyToSend as u64 || (sends(life.state) && send.behind.any());
    (is_sent && send.epoch == retired.epoch) || flushes(life.state)
}

/// Says whether a slot is the last one of a kept or single burst after which its queue pair goes on: it waits for
/// nothing that would wake it.
#[kernel]
pub(super) fn ends_kept(slot: WqeSlot, life: Life, send: Send) -> Bit {
    let is_asked = (slot.is_kept || slot.is_single) && slot.ends_burst;
    let is_last = is_asked && slot.generation == life.generation;
    let has_ended = send.has_ended && !send.behind.any();
    is_last && !send.is_held && !send.waits_for_long && !has_ended
}

/// Record after a slot at which the queue pair is held.
#[kernel]
pub(super) fn after_hold(send: Send, awaits_reads: Bit) -> Send {
    let careful = select(awaits_reads, bits::<CAREFUL_BITS>(CAREFUL), bits::<CAREFUL_BITS>(0));
    Send { is_held: true, careful, ..send }
}

/// Record of a queue pair that goes on, or is woken; `serves` if it needs no burst of wqe_fetch.
#[kernel]
pub(super) fn after_wake(send: Send, serves: Bit) -> Send {
    let is_single = send.careful.any() && !serves;
    Send {
        is_held: false,
        waits_for_long: false,
        careful: select(is_single, send.careful - 1, send.careful),
        ..send
    }
}

/// Says whether a step writes the record. A slot may change it, and a queue pair that is held is not where it has moved
/// meanwhile.
#[kernel]
pub(super) fn writes_record(step: Step, is_woken: Bit, changes: Bit, has_moved: Bit, serves: Bit) -> Bit {
    match step {
        Step::Setup => true,
        Step::Wake => is_woken,
        Step::Act => changes,
        Step::Recheck => has_moved,
        Step::KeptEnd => !serves,
        _ => false,
    }
}

/// Says whether a step after a slot or a wake tells wqe_fetch to go on or to stop. Where a kept slot is held, fetch has
/// stopped.
#[kernel]
pub(super) fn tells_fetch(
    step: Step,
    is_woken: Bit,
    act: Act,
    waits_for_long: Bit,
    is_kept: Bit,
    kept: KeptAnswer,
) -> Bit {
    let fetches = !kept.serves || kept.refills;
    match step {
        Step::Wake => is_woken && fetches,
        Step::KeptEnd => fetches,
        Step::Act => act.jumps || ((act.begins || act.replays) && waits_for_long),
        Step::Recheck => !is_kept,
        _ => false,
    }
}

/// Step after another one. `first` is that of an idle block; a slot makes its queue pair held, or ends a kept burst.
#[kernel]
pub(super) fn step_after(step: Step, first: Step, holds: Bit, ends_kept: Bit) -> Step {
    match step {
        Step::Idle => first,
        Step::Decide => Step::Act,
        Step::Act if holds => Step::Recheck,
        Step::Act if ends_kept => Step::KeptLook,
        Step::KeptLook => Step::KeptEnd,
        _ => Step::Idle,
    }
}

/// Says what a slot is as a WQE.
#[kernel]
pub(super) fn kind_of(slot: WqeSlot, is_flushed: Bit) -> SlotKind {
    let wqe: WqeFields = fields(slot.first);
    let operation: WqeOperation = classify(wqe.opcode);
    let is_readable = !slot.is_unreadable && !slot.is_overrun;
    let is_plain = !is_flushed && is_readable;
    SlotKind {
        is_plain,
        is_double: slot.first.get_bit(TWO_SLOTS) && is_readable,
        is_read: is_plain && operation.kind.is_read,
        is_local: is_plain && operation.kind.is_local,
        has_fence: is_plain && wqe.fence,
        has_length: !wqe.inline && wqe.length <= LENGTH_MAX,
        length: wqe.length,
    }
}

/// Says whether a WQE has payload to send that is not in it.
#[kernel]
pub(super) fn has_payload(kind: SlotKind) -> Bit {
    kind.is_plain && kind.has_length && !kind.is_local && !kind.is_read
}

/// Packets after the first of a WQE. A LOCAL_INVALIDATE takes no PSN: its last PSN is the one before its first.
#[kernel]
pub(super) fn packets_of(kind: SlotKind, path_mtu: Bits<3>) -> Bits<24> {
    if kind.is_local {
        !bits::<24>(0)
    } else if kind.is_plain && kind.has_length {
        further_packets(kind.length, path_mtu)
    } else {
        bits::<24>(0)
    }
}

/// Says whether the pool slot of the next message is in another block, and in which.
#[kernel]
pub(super) fn choose_block(send: Send, retired: Retired, has_free: Bit) -> BlockChoice {
    let takes_home = send.home_lap != retired.home_lap;
    BlockChoice {
        needs_block: send.tail_count.get_bit(3),
        reuses_block: !takes_home && !has_free,
        takes_home,
    }
}

/// Says whether a message waits for a block. A block that is used again links to itself: that link must be read
/// before the next one is written.
#[kernel]
pub(super) fn waits_for_block(
    choice: BlockChoice,
    is_reused: Bit,
    in_flight: Bits<MESSAGE_COUNT_BITS>,
) -> Bit {
    let waits = if choice.reuses_block { in_flight.any() } else { is_reused && in_flight >= BLOCK_MESSAGES };
    choice.needs_block && waits
}

/// Says whether a READ or an atomic waits as too many are open, or a fence as any is (protocol 2.3, 2.10).
#[kernel]
pub(super) fn waits_for_reads(
    kind: SlotKind,
    read_atomic: Bits<READ_COUNT_BITS>,
    open: Bits<READ_COUNT_BITS>,
) -> Bit {
    (kind.is_read && read_atomic.any() && open >= read_atomic) || (kind.has_fence && open.any())
}

/// Says whether a WQE waits until no message is in flight: a LOCAL_INVALIDATE, and what follows one
/// (protocol 2.10).
#[kernel]
pub(super) fn waits_for_all(kind: SlotKind, follows_local: Bit, in_flight: Bits<MESSAGE_COUNT_BITS>) -> Bit {
    let is_early = kind.is_local && in_flight.any();
    let is_behind = kind.is_plain && follows_local && in_flight.any();
    is_early || is_behind
}

/// Says whether a WQE waits until the state changes: a message in error has left, and the queue pair is in ERR soon. A fence
/// and a LOCAL_INVALIDATE wait only until what is before has left, so without this rule what is behind them would be sent, or
/// its key invalidated, although it completes as flushed (protocol 2.10, 2.11).
#[kernel]
pub(super) fn waits_for_error(kind: SlotKind, retired: Retired) -> Bit {
    kind.is_plain && retired.has_failed
}

/// Decides about a slot.
#[kernel]
pub(super) fn decide(slot: WqeSlot, life: Life, send: Send, retired: Retired, has_free: Bit) -> Decision {
    let is_flushed = flushes(life.state);
    let kind = kind_of(slot, is_flushed);
    let has_payload = has_payload(kind);
    let in_flight = send.message_count - retired.count;
    let block = choose_block(send, retired, has_free);
    let awaits_reads = waits_for_reads(kind, life.read_atomic, send.reads - retired.reads);
    let after: WqeFields = fields(slot.second);
    let is_next = is_next_wqe(slot, life, send, retired);
    // The message of the cursor has left, and its slots may have been posted anew: also an overrun then.
    let has_left = bit_cast::<MESSAGE_COUNT_BITS, REPLAY_BITS>(send.behind) > in_flight;
    let is_replay = send.behind.any();
    Decision {
        takes: is_next && !has_left,
        is_replay,
        is_lost: is_replay && (slot.is_overrun || slot.is_unreadable),
        jumps: is_next && has_left,
        is_blocked: in_flight >= WINDOW
            || waits_for_block(block, send.is_reused, in_flight)
            || awaits_reads
            || waits_for_all(kind, send.follows_local, in_flight)
            || waits_for_error(kind, retired),
        awaits_reads,
        is_alone: in_flight == 0,
        ahead: psn::distance(send.next_psn, retired.una_psn),
        further_packets: packets_of(kind, life.path_mtu),
        is_long: has_payload && kind.length > QUANTUM,
        weight: select(has_payload, weight_of(kind.length), bits::<WEIGHT_BITS>(0)),
        outlook: outlook_of(send.estimate, slot.weight),
        is_open: kind.is_read && life.read_atomic.any(),
        is_local: kind.is_local,
        next_is_unknown: kind.is_double
            || !slot.has_second
            || after.opcode == WqeOpcode::LocalInvalidate as u64,
        is_flushed,
        is_kept: slot.is_kept,
        is_half: kind.is_double && !slot.has_second,
        is_double: kind.is_double && slot.has_second,
        block,
        seen: retired,
    }
}

/// Says whether a WQE waits, now that the PSNs in flight are known. One that is alone, or takes no PSN, does
/// not wait for PSNs (protocol 2.1).
#[kernel]
pub(super) fn is_blocked(decision: Decision) -> Bit {
    let is_wide = decision.ahead.get_bits::<9>(PSN_WINDOW_BITS).any()
        || decision.ahead + decision.further_packets >= PSN_SPAN;
    decision.is_blocked || (is_wide && !decision.is_alone && !decision.is_flushed)
}

/// What becomes of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Act {
    /// It begins a message.
    pub begins: Bit,
    /// Its message waits for room.
    pub holds: Bit,
    /// Its message was begun before.
    pub replays: Bit,
    /// The cursor goes to the oldest message.
    pub jumps: Bit,
    /// It leaves as a WQE.
    pub leaves: Bit,
    /// It changes the record.
    pub changes: Bit,
}

/// Says what becomes of a slot, now that it is decided.
#[kernel]
pub(super) fn act_of(step: Step, decision: Decision) -> Act {
    let takes = step == Step::Act && decision.takes;
    let begins = takes && !decision.is_replay && !is_blocked(decision);
    let replays = takes && decision.is_replay;
    let jumps = step == Step::Act && decision.jumps;
    Act {
        begins,
        holds: takes && !decision.is_replay && is_blocked(decision),
        replays,
        jumps,
        leaves: begins || (replays && (decision.is_lost || !is_acknowledged(decision))),
        changes: takes || jumps,
    }
}

/// Packets of the message at the cursor, or responses to it, that need not be sent again: those before the
/// oldest unacknowledged PSN.
#[kernel]
pub(super) fn skipped_packets(decision: Decision) -> Bits<24> {
    let is_past = decision.is_replay && decision.ahead.get_bit(23);
    select(is_past, bits::<24>(0) - decision.ahead, bits::<24>(0))
}

/// Says whether a message that was begun needs no packet any more: all of it is acknowledged.
#[kernel]
pub(super) fn is_acknowledged(decision: Decision) -> Bit {
    skipped_packets(decision) > decision.further_packets
}

/// Pool slot of the next message; `free` is the shared block that is free.
#[kernel]
pub(super) fn place_of(
    choice: BlockChoice,
    send: Send,
    home: Bits<BLOCK_BITS>,
    free: Bits<SHARED_BITS>,
) -> PoolPlace {
    let block = if !choice.needs_block || choice.reuses_block {
        send.tail_from_home ^ home
    } else if choice.takes_home {
        home
    } else {
        shared_block(free)
    };
    PoolPlace { block, index: select(choice.needs_block, bits::<4>(0), send.tail_count) }
}

/// Slots that a WQE takes; an overrun takes none.
#[kernel]
pub(super) fn slots_of(is_overrun: Bit, is_double: Bit) -> Bits<WORK_INDEX_BITS> {
    if is_overrun {
        bits::<WORK_INDEX_BITS>(0)
    } else if is_double {
        bits::<WORK_INDEX_BITS>(2)
    } else {
        bits::<WORK_INDEX_BITS>(1)
    }
}

/// Says whether what is behind a message waits until segment wakes the queue pair: the message is long, or has payload
/// and was counted as much lighter than the queue pair is.
#[kernel]
pub(super) fn is_awaited(before: Estimate, decision: Decision, after: Estimate) -> Bit {
    decision.is_long || (decision.weight.any() && is_too_heavy(before, decision.outlook, after))
}

/// Record after a WQE has begun.
#[kernel]
pub(super) fn after_wqe(
    send: Send,
    slot: WqeSlot,
    decision: Decision,
    place: PoolPlace,
    home: Bits<BLOCK_BITS>,
) -> Send {
    let block = decision.block;
    let next_psn = send.next_psn + decision.further_packets + 1;
    let estimate = estimate_after(send.estimate, decision.outlook, decision.weight);
    Send {
        slot_index: send.slot_index + slots_of(slot.is_overrun, decision.is_double),
        next_psn: select(decision.is_flushed, send.next_psn, next_psn),
        message_count: send.message_count + 1,
        reads: select(decision.is_open, send.reads + 1, send.reads),
        tail_from_home: place.block ^ home,
        tail_count: place.index + 1,
        home_lap: send.home_lap != (block.needs_block && block.takes_home),
        is_reused: select(block.needs_block, block.reuses_block, send.is_reused),
        is_held: false,
        waits_for_long: is_awaited(send.estimate, decision, estimate),
        follows_local: decision.is_local,
        has_ended: slot.is_overrun || slot.is_unreadable,
        has_begun: true,
        estimate,
        ..send
    }
}

/// Record after a message that was begun before. The cursor is back where it was after the last one, even if
/// software has changed WQEs meanwhile.
#[kernel]
pub(super) fn after_replay(send: Send, decision: Decision) -> Send {
    let behind = send.behind - 1;
    let slot_index = send.slot_index + slots_of(false, decision.is_double);
    let estimate = estimate_after(send.estimate, decision.outlook, decision.weight);
    let next_psn = send.next_psn + decision.further_packets + 1;
    Send {
        slot_index: select(behind.any(), slot_index, send.high_slot),
        next_psn: select(behind.any(), next_psn, send.high_psn),
        behind,
        waits_for_long: is_awaited(send.estimate, decision, estimate) && !is_acknowledged(decision),
        estimate,
        ..send
    }
}

/// Record after a slot whose message begins, or was begun before.
#[kernel]
pub(super) fn after_slot(
    send: Send,
    slot: WqeSlot,
    decision: Decision,
    place: PoolPlace,
    home: Bits<BLOCK_BITS>,
) -> Send {
    if decision.is_lost {
        // Its message fails, and the others are flushed.
        Send { has_ended: send.has_ended || slot.is_overrun, ..at_end(send) }
    } else if decision.is_replay {
        after_replay(send, decision)
    } else {
        after_wqe(send, slot, decision, place, home)
    }
}

/// `vendor_error` of a WQE that must not be read, else zero.
#[kernel]
pub(super) fn reason_of(slot: WqeSlot, is_half: Bit) -> Bits<8> {
    if slot.is_overrun {
        bits::<8>(vendor_error::OVERRUN)
    } else if slot.is_unreadable {
        bits::<8>(vendor_error::UNREADABLE)
    } else if is_half {
        bits::<8>(vendor_error::HALF_WQE)
    } else {
        bits::<8>(0)
    }
}

/// The WQE as it leaves, if `leaves`; `after` is the record after it. The last message of a block requests an
/// acknowledgement, and so does each one that is sent again (protocol 2.4).
#[kernel]
pub(super) fn parsed_of(
    leaves: Bit,
    slot: WqeSlot,
    life: Life,
    send: Send,
    decision: Decision,
    place: PoolPlace,
    after: Send,
) -> ParsedWqe {
    ParsedWqe {
        header: WqeHeader {
            queue_pair: slot.queue_pair,
            generation: life.generation,
            is_empty: !leaves,
            is_first: !send.has_begun,
            epoch: send.epoch,
            is_replay: decision.is_replay,
            ends_burst: slot.ends_burst,
            is_open: decision.is_open,
            last_psn: send.next_psn + decision.further_packets,
            pool_slot: cat!(place.block, place.index.get_bits::<3>(0)),
            message_count: after.message_count,
            next_slot: after.slot_index,
        },
        plan: SegmentPlan {
            first_psn: send.next_psn + skipped_packets(decision),
            is_continued: skipped_packets(decision).any(),
            is_long: after.waits_for_long,
            charge: slot.charge,
            // Of one that is sent again it is not used: its record is there.
            read_place: numbered_read_place(life.read_share, send.reads),
            path_mtu: life.path_mtu,
            domain: life.domain,
        },
        skipped_packets: skipped_packets(decision),
        needs_ack: place.index == BLOCK_MESSAGES - 1 || decision.next_is_unknown || decision.is_replay,
        two_slots: decision.is_double,
        is_flushed: decision.is_flushed,
        reason: reason_of(slot, decision.is_half),
        signal_all: life.signal_all,
        is_reliable: life.is_reliable,
        first: slot.first,
        second: slot.second,
    }
}

#[cfg(test)]
mod tests;
