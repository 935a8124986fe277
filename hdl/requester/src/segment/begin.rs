//! Rules of [`Segment`](super::Segment) about a message or a turn that begins: which goes first, whether it may
//! begin, and when wqe_parse is woken (protocol 2.1, design decision 10).
use super::{LISTED_BITS, QUANTUM, QUANTUM_UNITS_LOG2, READY_COUNT_BITS, SHARE_BITS, Step};
use crate::messages::{CheckedWqe, MESSAGE_COUNT_BITS, PSN_WINDOW_BITS, Retired, Sge, second_sge};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::state::{PathMtu, QpState};
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{EPOCH_BITS, GENERATION_BITS};

/// State of a queue pair, as commands set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Life {
    /// Packets are made.
    pub serves: Bit,
    pub generation: Bits<GENERATION_BITS>,
}

/// What acknowledge says of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Acknowledged {
    /// Oldest unacknowledged PSN.
    pub una_psn: Bits<24>,
    pub epoch: Bits<EPOCH_BITS>,
}

/// What is left of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Rest {
    /// Bytes are left.
    pub exists: Bit,
    /// The queue pair waits for a turn; perhaps for a message that was dropped.
    pub is_queued: Bit,
    /// WqeParse need not be woken any more.
    pub is_woken: Bit,
    pub generation: Bits<GENERATION_BITS>,
    pub epoch: Bits<EPOCH_BITS>,
    /// It was sent before.
    pub is_replay: Bit,
    pub message_count: Bits<MESSAGE_COUNT_BITS>,
    pub is_write: Bit,
    pub has_immediate: Bit,
    pub with_invalidate: Bit,
    pub solicited: Bit,
    pub ack_request: Bit,
    pub immediate: Bits<32>,
    pub domain: Bits<24>,
    pub path_mtu: Bits<3>,
    /// PSN of the next packet.
    pub psn: Bits<24>,
    /// Packets so far, modulo 32.
    pub packets: Bits<5>,
    /// Bytes that are left.
    pub length: Bits<32>,
    pub first: Sge,
    pub second: Sge,
    /// SGEs after the first that are in the list, in which case `second` is empty.
    pub listed: Bits<LISTED_BITS>,
    /// Place of the next one in the list.
    pub listed_index: Bits<LISTED_BITS>,
}

/// What a message is, besides what is left of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Message {
    /// The queue pair waits for a turn, and this is not it.
    pub was_queued: Bit,
    /// The first packet of the WQE has not been made.
    pub starts: Bit,
    /// Packets of the message before that one were sent, and are not sent again.
    pub is_continued: Bit,
    /// A burst of slots ends with it.
    pub ends_burst: Bit,
    /// There is no packet to send.
    pub sends_nothing: Bit,
    /// A turn that sends nothing, as the window is closed. What is left waits for another one.
    pub is_put_off: Bit,
    /// READ or atomic.
    pub is_read: Bit,
    /// Atomic.
    pub is_atomic: Bit,
    /// LOCAL_INVALIDATE.
    pub is_local: Bit,
}

/// The bytes of the next packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Parts {
    /// It is the last packet of its message.
    pub is_last: Bit,
    /// Bytes of payload.
    pub payload: Bits<13>,
    /// Those from the first SGE; of a READ, whether there is one.
    pub first: Bits<13>,
    /// Those from the second SGE, or from the list.
    pub second: Bits<13>,
}

/// A message whose packets are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Work {
    /// What is left of it.
    pub rest: Rest,
    pub message: Message,
    /// The next packet.
    pub parts: Parts,
    /// Packets that are left of the quantum.
    pub packets_left: Bits<7>,
}

/// PSNs of a queue pair in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Window {
    /// There are less than 2^15.
    pub is_open: Bit,
    /// There are less than 2^14.
    pub is_half_open: Bit,
}

/// Whether a message or a turn begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Admission {
    /// Something is left of the message before the WQE, and goes first.
    pub waits: Bit,
    /// The WQE is sent or executed; else it becomes a flushed one, or has its status already.
    pub is_good: Bit,
    /// It takes several packets.
    pub is_split: Bit,
    /// What is left of a message goes on.
    pub goes_on: Bit,
    /// WqeParse is woken now.
    pub wakes: Bit,
    /// WqeParse need not be woken any more.
    pub is_woken: Bit,
}

/// Chooses between a turn and a WQE: WQEs go first until they have had a quantum. `share` is
/// what they have had, in units of the wire.
#[kernel]
pub(super) fn takes_turn(has_turn: Bit, has_wqe: Bit, share: Bits<SHARE_BITS>) -> Bit {
    has_turn && (!has_wqe || share.get_bit(QUANTUM_UNITS_LOG2))
}

/// Chooses what an idle block does: events go first.
#[kernel]
pub(super) fn first_step(has_event: Bit, has_message: Bit) -> Step {
    if has_event {
        Step::Event
    } else if has_message {
        Step::Load
    } else {
        Step::Idle
    }
}

/// State to continue in after an event, which comes between two messages or two packets.
#[kernel]
pub(super) fn resumed_after(step: Step, resume: Step) -> Step {
    match step {
        Step::Idle => Step::Idle,
        Step::Make => Step::Make,
        _ => resume,
    }
}

/// Says whether packets are made in a state. SQD finishes the messages that were begun (protocol 3.10).
#[kernel]
pub(super) fn serves(state: Bits<3>) -> Bit {
    state == QpState::ReadyToSend as u64 || state == QpState::SendQueueDrain as u64
}

/// Says whether an event drops what is left of a message.
#[kernel]
pub(super) fn drops(event: SetupEvent) -> Bit {
    !serves(event.state) || event.kind == SetupKind::Restart
}

/// Says how much of the window is open, if the next packet has `psn`. All of it is where packets are sent again that
/// were acknowledged meanwhile.
#[kernel]
pub(super) fn window_of(psn: Bits<24>, unacknowledged: Bits<24>) -> Window {
    let in_flight = psn - unacknowledged;
    let is_past = in_flight.get_bit(23);
    let is_open = !in_flight.get_bits::<9>(PSN_WINDOW_BITS).any();
    Window {
        is_open: is_past || is_open,
        is_half_open: is_past || (is_open && !in_flight.get_bit(PSN_WINDOW_BITS - 1)),
    }
}

/// Says whether a queue pair whose WQE after this one is held can be woken: the rest is sent without another
/// turn, or with one that no other queue pair and no acknowledgement can delay.
#[kernel]
pub(super) fn is_near_end(length: Bits<32>, window: Window, is_alone: Bit) -> Bit {
    length <= QUANTUM || (length <= 2 * QUANTUM && is_alone && window.is_half_open)
}

/// Decides whether a message begins, or the rest of one goes on; `is_alone` says that no other queue pair has a rest.
#[kernel]
pub(super) fn admit(
    is_rest: Bit,
    wqe: CheckedWqe,
    life: Life,
    rest: Rest,
    window: Window,
    is_alone: Bit,
    epoch: Bits<EPOCH_BITS>,
) -> Admission {
    let is_served = life.serves && life.generation == wqe.header.generation;
    let is_success = wqe.completion.status == CompletionStatus::Success as u64;
    let is_good = is_served && is_success && !wqe.header.is_empty;
    let has_one_packet = wqe.kind.is_read || wqe.kind.is_local || wqe.plan.first_psn == wqe.header.last_psn;
    // An empty one, the end of a burst, has nothing to wait for.
    let waits = !is_rest && rest.exists && !wqe.header.is_empty;
    let goes_on = is_rest && rest.exists && window.is_open;
    // WqeParse accepts no WQE until it is woken.
    let holds = select(is_rest, !rest.is_woken, wqe.plan.is_long && !wqe.header.is_empty);
    let is_near = is_near_end(select(is_rest, rest.length, wqe.length), window, is_alone);
    let ends_hold = holds && (is_near || (!is_rest && !is_good));
    let begins = !is_rest || goes_on;
    Admission {
        waits,
        is_good,
        is_split: is_good && !has_one_packet,
        goes_on,
        // WqeParse has forgotten a message of an older epoch, and may wait for another one.
        wakes: ends_hold && !waits && begins && (is_rest || wqe.header.epoch == epoch),
        is_woken: !holds || (ends_hold && begins),
    }
}

/// Says what follows when a message, or what is left of one, is there. A turn that can send nothing is an empty packet; a
/// WQE behind what can send nothing now is looked at again.
#[kernel]
pub(super) fn step_after_load(is_turn: Bit, is_rest: Bit, is_listed: Bit, admission: Admission) -> Step {
    if is_rest {
        match (admission.goes_on, is_turn) {
            (true, _) => Step::Plan,
            (false, true) => Step::Make,
            (false, false) => Step::Idle,
        }
    } else if admission.waits {
        Step::Load
    } else if is_listed {
        Step::Fill
    } else if admission.is_split {
        Step::Plan
    } else {
        Step::Make
    }
}

/// The message that begins, or goes on.
#[kernel]
pub(super) fn message_of(
    is_turn: Bit,
    is_rest: Bit,
    wqe: CheckedWqe,
    rest: Rest,
    admission: Admission,
) -> Message {
    let is_new = !is_rest;
    let is_read = is_new && wqe.kind.is_read;
    Message {
        was_queued: !is_turn && rest.is_queued,
        starts: is_new,
        is_continued: is_new && wqe.plan.is_continued,
        ends_burst: is_new && wqe.header.ends_burst,
        sends_nothing: select(is_rest, !admission.goes_on, !admission.is_good || wqe.kind.is_local),
        is_put_off: is_rest && rest.exists && !admission.goes_on,
        is_read,
        is_atomic: is_read && wqe.kind.is_atomic,
        is_local: is_new && admission.is_good && wqe.kind.is_local,
    }
}

/// Bytes that the only packet of a message takes of an SGE; for a READ, whether the SGE is there.
#[kernel]
pub(super) fn part(is_read: Bit, length: Bits<32>) -> Bits<13> {
    select(is_read, bit_cast::<13, 1>(length.any().into()), length.get_bits::<13>(0))
}

/// The bytes of a message of one packet. An atomic has no second SGE: its operands are in that place.
#[kernel]
pub(super) fn only_parts(wqe: CheckedWqe, message: Message, is_last: Bit) -> Parts {
    let second: Sge = second_sge(wqe.tail);
    let is_read = message.is_read;
    Parts {
        is_last,
        payload: select(is_read, bits::<13>(0), wqe.length.get_bits::<13>(0)),
        first: part(is_read, wqe.first.length),
        second: select(message.is_atomic, bits::<13>(0), part(is_read, second.length)),
    }
}

/// The whole of a WQE, of which nothing has been sent.
#[kernel]
pub(super) fn rest_of(wqe: CheckedWqe) -> Rest {
    Rest {
        exists: false,
        is_queued: false,
        is_woken: false,
        generation: wqe.header.generation,
        epoch: wqe.header.epoch,
        is_replay: wqe.header.is_replay,
        message_count: wqe.header.message_count,
        is_write: wqe.kind.is_write,
        has_immediate: wqe.has_immediate,
        with_invalidate: wqe.with_invalidate,
        solicited: wqe.solicited,
        ack_request: wqe.ack_request,
        immediate: wqe.immediate_or_key,
        domain: wqe.plan.domain,
        path_mtu: wqe.plan.path_mtu,
        psn: wqe.plan.first_psn,
        packets: bits::<5>(0),
        length: wqe.length,
        first: wqe.first,
        second: second_sge(wqe.tail),
        listed: wqe.listed_count,
        listed_index: bits::<LISTED_BITS>(0),
    }
}

/// The work after an SGE of the list has been stored.
#[kernel]
pub(super) fn after_fill(work: Work) -> Work {
    let next_index = work.rest.listed_index + 1;
    let is_whole = next_index == work.rest.listed;
    let listed_index = select(is_whole, bits::<LISTED_BITS>(0), next_index);
    Work { rest: Rest { listed_index, ..work.rest }, ..work }
}

/// Says what follows an SGE of the list. A list is stored as a whole, also that of a WQE which sends nothing.
#[kernel]
pub(super) fn step_after_fill(work: Work) -> Step {
    if work.rest.listed_index + 1 != work.rest.listed {
        Step::Fill
    } else if work.message.sends_nothing {
        Step::Make
    } else {
        Step::Plan
    }
}

/// The work of a message whose queue pair sends nothing any more.
#[kernel]
pub(super) fn dropped(work: Work) -> Work {
    Work { message: Message { sends_nothing: true, is_local: false, ..work.message }, ..work }
}

/// Record of a queue pair whose message has left, or waits for its turn; `was_queued` if the queue pair waited for one.
#[kernel]
pub(super) fn stored(current: Rest, has_ended: Bit, was_queued: Bit) -> Rest {
    Rest { exists: !has_ended, is_queued: !has_ended || was_queued, ..current }
}

/// Record of a queue pair after an event. One whose message was dropped still has its turn.
#[kernel]
pub(super) fn after_event(rest: Rest, event: SetupEvent) -> Rest {
    Rest { exists: rest.exists && !drops(event), ..rest }
}

/// What is kept of the counts of acknowledge; after a sweep, the first epoch.
#[kernel]
pub(super) fn acknowledged_of(is_sweeping: Bit, retired: Retired) -> Acknowledged {
    Acknowledged {
        una_psn: retired.una_psn,
        epoch: select(is_sweeping, bits::<EPOCH_BITS>(0), retired.epoch),
    }
}

/// What is left of a message in the epoch of its queue pair; what was left when the cursor went back is not sent.
#[kernel]
pub(super) fn current(rest: Rest, epoch: Bits<EPOCH_BITS>) -> Rest {
    Rest { exists: rest.exists && rest.epoch == epoch, ..rest }
}

/// Queue pairs that wait for a turn, after one has begun to wait, and one has had its turn.
#[kernel]
pub(super) fn waiting_after(
    waiting: Bits<READY_COUNT_BITS>,
    begins: Bit,
    ends: Bit,
) -> Bits<READY_COUNT_BITS> {
    waiting + bit_cast::<READY_COUNT_BITS, 1>(begins.into()) - bit_cast::<READY_COUNT_BITS, 1>(ends.into())
}

/// Packets of a quantum.
#[kernel]
pub(super) fn quantum_packets(code: Bits<3>) -> Bits<7> {
    match PathMtu::from_number(code.to_u64()) {
        Some(PathMtu::Bytes256) => bits::<7>(QUANTUM / 256),
        Some(PathMtu::Bytes512) => bits::<7>(QUANTUM / 512),
        Some(PathMtu::Bytes1024) => bits::<7>(QUANTUM / 1024),
        Some(PathMtu::Bytes2048) => bits::<7>(QUANTUM / 2048),
        _ => bits::<7>(QUANTUM / 4096),
    }
}

/// The message that begins, or goes on.
#[kernel]
pub(super) fn begin_work(
    is_turn: Bit,
    is_rest: Bit,
    wqe: CheckedWqe,
    rest: Rest,
    admission: Admission,
) -> Work {
    let message = message_of(is_turn, is_rest, wqe, rest, admission);
    let whole = rest_of(wqe);
    let left = select(is_rest, rest, whole);
    Work {
        rest: Rest { is_woken: admission.is_woken, ..left },
        message,
        parts: only_parts(wqe, message, !is_rest && !admission.is_split),
        packets_left: quantum_packets(left.path_mtu),
    }
}

#[cfg(test)]
mod tests;
