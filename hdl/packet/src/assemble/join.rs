//! Joins headers and payload into beats of a frame, in a pipeline that never stops.
use super::sequence::Slot;
use rnic_blocks::logic::byte_mask::ByteMask;
use rnic_blocks::stream::{ValidRx, ValidTx};
use rnic_kernel::prelude::*;

/// Joins the beats that the rotator turned with each other and with the headers.
///
/// A turned beat holds the end of one beat of the frame and the start of the next, so each lane takes payload
/// from the newest turned beat or from the one before; outside the payload it takes the headers, or zero.
///
/// ```text
///  slot ──reg──> lane masks ──reg─────────────┐
///                                             v
///  turned (from the rotator) ──┬───────────> AND ─┐
///                              └─reg "held"─> AND ─ OR ─reg─> joined
///  header (3 cycles after the slot) ──────────────┘
/// ```
///
/// Latency 3 cycles from the registered slot, a beat every cycle.
///
/// 1. Lanes that hold neither header nor payload are zero: pad and ICRC can be added with an OR.
#[derive(Default, LogicBlock, Registers)]
pub(super) struct Join<const DATA: usize, const BYTES: usize> {
    pub(super) clock: Signal<In, Clock>,
    pub(super) reset: Signal<In, Bit>,
    pub(super) slot: ValidRx<Slot<BYTES>>,
    /// A payload beat enters the rotator in this cycle, one before the slot that it is taken for.
    pub(super) takes: Signal<In, Bit>,
    /// What comes out of the rotator, three cycles after it entered.
    pub(super) turned: Signal<In, Bits<DATA>>,
    /// What the headers put into the slot of two cycles ago.
    pub(super) header: Signal<In, Bits<DATA>>,
    /// The slot one cycle later, as the headers need it.
    pub(super) header_slot: Signal<Out, Slot<BYTES>>,
    pub(super) joined_slot: Signal<Out, Slot<BYTES>>,
    pub(super) joined: ValidTx<Bits<DATA>>,

    below_split: ByteMask<DATA, BYTES>,
    below_begin: ByteMask<DATA, BYTES>,
    below_end: ByteMask<DATA, BYTES>,
    valids: [Reg<Bit>; 3],
    slots: [DFF<Slot<BYTES>>; 3],
    taken: [Reg<Bit>; 3],
    newest: DFF<Bits<DATA>>,
    before: DFF<Bits<DATA>>,
    held: DFF<Bits<DATA>>,
    out: DFF<Bits<DATA>>,
}

impl<const DATA: usize, const BYTES: usize> Logic for Join<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        for stage in 0..3 {
            self.valids[stage].d.next =
                if stage == 0 { self.slot.valid.val() } else { self.valids[stage - 1].q.val() };
            self.slots[stage].d.next =
                if stage == 0 { self.slot.value.val() } else { self.slots[stage - 1].q.val() };
            self.taken[stage].d.next =
                if stage == 0 { self.takes.val() } else { self.taken[stage - 1].q.val() };
        }
        self.header_slot.next = self.slots[0].q.val();

        // Which lanes take the newest turned beat, and which the one before.
        let slot = self.slots[0].q.val();
        self.below_split.count.next = slot.split;
        self.below_begin.count.next = slot.begin;
        self.below_end.count.next = slot.end;
        let payload = self.below_end.mask.val() & !self.below_begin.mask.val();
        self.newest.d.next = payload & !self.below_split.mask.val();
        self.before.d.next = payload & self.below_split.mask.val();

        let turned = self.turned.val();
        if self.taken[2].q.val() {
            self.held.d.next = turned;
        }
        self.out.d.next =
            (turned & self.newest.q.val()) | (self.held.q.val() & self.before.q.val()) | self.header.val();

        self.joined_slot.next = self.slots[2].q.val();
        self.joined.offer(self.valids[2].q.val(), self.out.q.val());
    }
}
