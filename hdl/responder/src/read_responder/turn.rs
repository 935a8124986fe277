//! Turn: makes the responses of a turn, from the byte where the last turn of the queue pair ended.
//!
//! ```text
//!  life, progress, replay ─> loads ──┐
//!  slot, value ────────────> fetches ┴─> plans ─> makes ─┬─> response, access_request
//!                                          ^─────────────┴─> progress_after
//! ```
//!
//! The state machine is that of [`ReadResponder`](super::ReadResponder): each of `loads`, `fetches`, `plans`
//! and `makes` is high for one cycle, in this order; the last two repeat for each response.
//!
//! 1. All outputs are functions of registers.
//! 2. A turn answers the replay of the queue pair, if it has one, or else its oldest request. What short answers leave
//!    of a quantum, in bytes as they are on the wire, is for the next one.
//! 3. A replay whose last response is the first to the last PSN of its request ends the answer to that request, too.
//! 4. After a failed write, the only response of a turn has no payload, and ends its request.
use super::record::{
    Life, Place, Progress, Response, Slot, UNIT_COUNT_BITS, Value, access_request_of, goes_on, is_quantum,
    progress_after_turn, progress_of_turn, response_of, slot_of_turn, turn_packets, units_of, value_of,
};
use super::replay::{Replay, ends_answer};
use rnic_kernel::prelude::*;
use rnic_messages::path::pmtu_bytes;
use rnic_messages::protect::AccessRequest;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// Makes the responses of a turn.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub(super) struct Turn {
    /// A turn begins: `queue_pair`, `life`, `progress` and `replay` are valid.
    pub loads: Signal<In, Bit>,
    /// It goes on with the quantum of the one before, of the same queue pair.
    pub goes_on: Signal<In, Bit>,
    /// Queue pair of the turn.
    pub queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Its attributes.
    pub life: Signal<In, Life>,
    /// Its progress.
    pub progress: Signal<In, Progress>,
    /// Its replay.
    pub replay: Signal<In, Replay>,
    /// `slot` and `value` are valid.
    pub fetches: Signal<In, Bit>,
    /// The request.
    pub slot: Signal<In, Slot>,
    /// Its result, if it is an atomic.
    pub value: Signal<In, Value>,
    /// The next response is measured.
    pub plans: Signal<In, Bit>,
    /// The response is taken.
    pub makes: Signal<In, Bit>,

    /// Queue pair of the turn.
    pub turn_pair: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// The turn answers a replay.
    pub is_replaying: Signal<Out, Bit>,
    /// Its progress within the turn.
    pub current: Signal<Out, Progress>,
    /// The next response, once it is measured.
    pub response: Signal<Out, Response>,
    /// Its access request; it has one if it has payload.
    pub access_request: Signal<Out, AccessRequest>,
    /// It is the last response of the turn.
    pub ends_turn: Signal<Out, Bit>,
    /// The queue pair has had a quantum.
    pub is_used_up: Signal<Out, Bit>,
    /// The last response that was measured is the last one to its request, or of its replay.
    pub is_last: Signal<Out, Bit>,
    /// With that response the oldest request is answered.
    pub serves: Signal<Out, Bit>,
    /// Progress of the queue pair after the turn; of a turn that answers a replay and does not serve, its place in the request.
    pub progress_after: Signal<Out, Progress>,

    turn_pair_held: DFF<Bits<QUEUE_PAIR_BITS>>,
    life_held: DFF<Life>,
    progress_held: DFF<Progress>,
    replay_held: DFF<Replay>,
    goes_on_held: DFF<Bit>,
    /// The replay ends the answer to the oldest request.
    ends_answer_held: DFF<Bit>,
    slot_held: DFF<Slot>,
    value_held: DFF<Value>,
    /// Bytes of the request for which no response is made.
    bytes_left: DFF<Bits<32>>,
    packets_left: DFF<Bits<7>>,
    units: DFF<Bits<UNIT_COUNT_BITS>>,
    is_last_held: DFF<Bit>,
    payload_bytes: DFF<Bits<13>>,
}

impl Logic for Turn {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let turn_pair = self.turn_pair_held.q.val();
        let life = self.life_held.q.val();
        let current = self.progress_held.q.val();
        let replay = self.replay_held.q.val();
        let slot = self.slot_held.q.val();
        let value = self.value_held.q.val();
        let bytes_left = self.bytes_left.q.val();
        let payload_bytes = self.payload_bytes.q.val();
        let is_last = self.is_last_held.q.val();
        if self.loads.val() {
            self.turn_pair_held.d.next = self.queue_pair.val();
            self.life_held.d.next = self.life.val();
            self.progress_held.d.next = progress_of_turn(self.progress.val(), self.replay.val());
            self.replay_held.d.next = self.replay.val();
            self.goes_on_held.d.next = goes_on(self.progress.val(), self.replay.val());
            self.ends_answer_held.d.next =
                ends_answer(self.life.val().write_failed, self.replay.val(), self.progress.val());
            self.packets_left.d.next = turn_packets(self.life.val().path_mtu);
            self.units.d.next = select(self.goes_on.val(), self.units.q.val(), bits::<UNIT_COUNT_BITS>(0));
        }
        if self.fetches.val() {
            let asked = slot_of_turn(self.slot.val(), replay);
            self.slot_held.d.next = asked;
            self.value_held.d.next = value_of(asked, self.value.val());
            self.bytes_left.d.next = asked.length - current.bytes;
        }
        if self.plans.val() {
            let packet_bytes = pmtu_bytes(life.path_mtu);
            let fits = bytes_left <= bit_cast::<32, 13>(packet_bytes);
            let due = select(fits, bytes_left.get_bits::<13>(0), packet_bytes);
            self.is_last_held.d.next = fits || life.write_failed;
            self.payload_bytes.d.next = select(life.write_failed, bits::<13>(0), due);
        }
        if self.makes.val() {
            self.progress_held.d.next.bytes = current.bytes + bit_cast::<32, 13>(payload_bytes);
            self.progress_held.d.next.packets = current.packets + 1;
            self.progress_held.d.next.has_begun = true;
            self.goes_on_held.d.next = true;
            self.bytes_left.d.next = bytes_left - bit_cast::<32, 13>(payload_bytes);
            self.packets_left.d.next = self.packets_left.q.val() - 1;
            self.units.d.next = self.units.q.val() + units_of(true, payload_bytes);
        }
        self.turn_pair.next = turn_pair;
        self.is_replaying.next = replay.is_active;
        self.current.next = current;
        let place = Place { is_later: self.goes_on_held.q.val(), is_last };
        self.response.next = response_of(turn_pair, life, current, slot, value, payload_bytes, place);
        self.access_request.next = access_request_of(life, current, slot, payload_bytes);
        self.ends_turn.next = is_last || self.packets_left.q.val() == 1;
        self.is_used_up.next = is_quantum(self.units.q.val());
        self.is_last.next = is_last;
        let serves = is_last && (!replay.is_active || self.ends_answer_held.q.val());
        let answered = progress_after_turn(current, slot.is_atomic, is_last);
        self.serves.next = serves;
        self.progress_after.next = select(replay.is_active && !serves, current, answered);
    }
}
