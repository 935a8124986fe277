//! WqePair: gives each fetched slot its queue pair and index, and shows it with its successor.
//!
//! A WQE of two slots is one message, and whether it has two is written in its first slot. So every slot is
//! shown with its successor of the same burst, and wqe_parse takes one or both. What waits for the host waits
//! here, where it delays no other queue pair.
//!
//! ```text
//!            ┌─────────────────────────────────────────┐
//!  bursts ──>│ first, count ──> index ─────────────────┼──> wqe_slot
//!  slots ───>│─┬─> first slot ─────────────────────────┤
//!            │ └─────────────────> second slot ────────┤
//!            └─────────────────────────────────────────┘
//! ```
//!
//! Latency 1 cycle from the successor of a slot; one slot a cycle.
//!
//! 1. Each slot of a burst is shown once, in order, the last of a burst without a successor.
//! 2. `slot_returned` pulses once for every slot that leaves the queue before this block.
//! 3. A burst that overruns its ring is shown as one slot without data.
use crate::messages::{WqeBurst, WqeSlot};
use crate::wqe::TWO_SLOTS;
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::Slot;

/// Pairs slots; see the module.
#[derive(Default, LogicBlock, Registers)]
pub struct WqePair {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; drops the slot.
    pub reset: Signal<In, Bit>,
    /// From wqe_fetch: what was requested.
    pub bursts: StreamRx<WqeBurst>,
    /// From the host; `ready` is combinational from `wqe_slot.ready`.
    pub slots: StreamRx<Slot>,
    /// To wqe_parse; `second` may change while `has_second` is low. `valid` depends on registers and on the
    /// valid of `slots` and `bursts`.
    pub wqe_slot: StreamTx<WqeSlot>,
    /// A slot has left the queue from the host.
    pub slot_returned: Signal<Out, Bit>,
    current: DFF<Slot>,
    has_current: Reg<Bit>,
    position: Reg<Bits<4>>,
}

impl Logic for WqePair {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let burst = self.bursts.beat.val();
        let has_current = self.has_current.q.val();
        let position = self.position.q.val();
        let current = self.current.q.val();
        let follower = self.slots.beat.val();
        let has_follower = self.slots.valid.val();
        let is_last = position + 1 == burst.count;

        let is_here = burst.is_overrun || (has_current && (is_last || has_follower));
        let offers = self.bursts.valid.val() && is_here;
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
            is_unreadable: current.error || (follower.error && !is_last && current.data.get_bit(TWO_SLOTS)),
            first: current.data,
            second: follower.data,
        };
        self.bursts.ready.next = moves && (is_last || burst.is_overrun);

        let takes = !has_current || (moves && !burst.is_overrun);
        self.slots.ready.next = takes;
        self.slot_returned.next = takes && has_follower;
        if takes {
            self.current.d.next = follower;
            self.has_current.d.next = has_follower;
        }
        if moves && !burst.is_overrun {
            self.position.d.next = if is_last { bits::<4>(0) } else { position + 1 };
        }
    }
}

#[cfg(test)]
mod tests;
