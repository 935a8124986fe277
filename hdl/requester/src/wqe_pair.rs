//! WqePair: gives each fetched slot its queue pair and index, and shows it with its successor.
//!
//! A WQE of two slots is one message, and whether it has two is written in its first slot. So every slot is
//! shown with its successor of the same burst, and wqe_parse takes one or both. What waits for the host waits
//! here, where it delays no other queue pair; slots that are on the card already do not wait behind it.
//!
//! ```text
//!                  ┌────────────────────────────────────────────────────┐
//!  bursts ────────>│─┐                                                  │
//!  kept_bursts ───>│─┴─> first, count ──> index ────────────────────────┼──> wqe_slot
//!  slots ─────────>│─┬─┬─> first slot ──────────────────────────────────┤
//!  kept_slots ────>│─┘ └────────────────> second slot ──────────────────┤
//!                  └────────────────────────────────────────────────────┘
//! ```
//!
//! Latency 1 cycle from the successor of a slot; one slot a cycle.
//!
//! 1. Each slot of a burst is shown once, in order, the last of a burst without a successor.
//! 2. `slot_returned` pulses once for every slot that leaves the queue before this block.
//! 3. A burst that overruns its ring is shown as one slot without data.
//! 4. Bursts of each source are shown in order, and whole; where both sources have a slot, a kept burst goes first.
use crate::messages::{WqeBurst, WqeSlot};
use crate::wqe::TWO_SLOTS;
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::Slot;

/// Pairs slots; see the module.
#[clocked(reset = "drops the slot")]
#[derive(LogicBlock, Registers, Construct)]
pub struct WqePair {
    /// From wqe_fetch: what was requested.
    pub bursts: StreamRx<WqeBurst>,
    /// From the host; `ready` is combinational from `wqe_slot.ready`.
    pub slots: StreamRx<Slot>,
    /// From kept_slots: what is shown again; its slots follow without waiting for anything.
    pub kept_bursts: StreamRx<WqeBurst>,
    /// From kept_slots, a slot at the earliest when its burst is first in `kept_bursts`.
    pub kept_slots: StreamRx<Slot>,
    /// To wqe_parse; `second` may change while `has_second` is low. `valid` depends on registers and on the
    /// valid of its inputs.
    pub wqe_slot: StreamTx<WqeSlot>,
    /// A slot has left the queue from the host.
    pub slot_returned: Signal<Out, Bit>,
    current: DFF<Slot>,
    has_current: Reg<Bit>,
    is_kept: Reg<Bit>,
    position: Reg<Bits<4>>,
    /// `position` + 1, which is compared with the slots of the burst: its adder would lengthen a path that is long.
    #[init(Reg::new(bits(1)))]
    number: Reg<Bits<4>>,
}

impl Logic for WqePair {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_kept = self.is_kept.q.val();
        let burst = select(is_kept, self.kept_bursts.beat.val(), self.bursts.beat.val());
        let has_burst = select(is_kept, self.kept_bursts.valid.val(), self.bursts.valid.val());
        let has_current = self.has_current.q.val();
        let position = self.position.q.val();
        let current = self.current.q.val();
        let number = self.number.q.val();
        let is_last = number == burst.count;

        // The next slot. A source is chosen where a burst begins; within one, the next slot is the successor. An
        // overrun that is shown, which has no slot, is not exchanged for another burst.
        let begins = !has_current || is_last;
        let may_change = self.kept_slots.valid.val() && !(has_burst && burst.is_overrun);
        let takes_kept = select(begins, may_change, is_kept);
        let follower = select(takes_kept, self.kept_slots.beat.val(), self.slots.beat.val());
        let has_follower = select(takes_kept, self.kept_slots.valid.val(), self.slots.valid.val());

        let is_here = burst.is_overrun || (has_current && (is_last || has_follower));
        let offers = has_burst && is_here;
        let moves = offers && self.wqe_slot.ready.val();
        self.wqe_slot.valid.next = offers;
        self.wqe_slot.beat.next = WqeSlot {
            queue_pair: burst.queue_pair,
            generation: burst.generation,
            index: burst.first_index + bit_cast::<16, 4>(position),
            lap: burst.lap,
            has_second: !is_last && !burst.is_overrun,
            ends_queue: burst.ends_queue && is_last,
            ends_burst: is_last || burst.is_overrun,
            is_overrun: burst.is_overrun,
            is_single: burst.is_single,
            is_kept,
            weight: burst.weight,
            charge: burst.charge,
            is_unreadable: current.error || (follower.error && !is_last && current.data.get_bit(TWO_SLOTS)),
            first: current.data,
            second: follower.data,
        };
        let ends = moves && (is_last || burst.is_overrun);
        self.bursts.ready.next = ends && !is_kept;
        self.kept_bursts.ready.next = ends && is_kept;

        let takes = !has_current || (moves && !burst.is_overrun);
        self.slots.ready.next = takes && !takes_kept;
        self.kept_slots.ready.next = takes && takes_kept;
        self.slot_returned.next = takes && has_follower && !takes_kept;
        if takes {
            self.current.d.next = follower;
            self.has_current.d.next = has_follower;
            self.is_kept.d.next = has_follower && takes_kept;
        }
        if moves && !burst.is_overrun {
            self.position.d.next = if is_last { bits::<4>(0) } else { number };
            self.number.d.next = if is_last { bits::<4>(1) } else { number + 1 };
        }
    }
}

#[cfg(test)]
mod tests;
