//! Event queue 0: keeps its settings, which registers of BAR 0 hold, until the sequencer enters them.
//!
//! ```text
//!  setup, setup_valid ──> settings, pending ──> pending, body
//!  begins ──────────────> taken ─────────────> restarts, is_off
//! ```
//!
//! Latency 1 cycle.
//!
//! 1. Of several settings before `begins`, the last counts; it restarts the queue if any of them does.
//! 2. `restarts` and `is_off` are those of the settings that the last `begins` took.
use crate::object_view::event_queue_body;
use rnic_blocks::stream::ValidRx;
use rnic_kernel::prelude::*;
use rnic_messages::complete::EventQueueSetup;

/// Keeps the settings of event queue 0.
#[clocked(reset = "drops settings that are pending")]
#[derive(Default, LogicBlock, Registers)]
pub(super) struct EventQueue0 {
    /// From the registers: the settings, when they have changed.
    pub setup: ValidRx<EventQueueSetup>,
    /// From the sequencer: the settings are taken.
    pub begins: Signal<In, Bit>,
    /// Settings wait to be taken; registered.
    pub pending: Signal<Out, Bit>,
    /// Body of a create command with these settings; a function of registers.
    pub body: Signal<Out, Bits<128>>,
    /// The queue restarts; registered.
    pub restarts: Signal<Out, Bit>,
    /// The queue takes no events; registered.
    pub is_off: Signal<Out, Bit>,

    held: DFF<EventQueueSetup>,
    held_restarts: Reg<Bit>,
    has_setup: Reg<Bit>,
    taken_restarts: DFF<Bit>,
    taken_is_off: DFF<Bit>,
}

impl Logic for EventQueue0 {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let held = self.held.q.val();
        let setup = self.setup.value.val();
        let has_new = self.setup.valid.val();
        let begins = self.begins.val();
        if has_new {
            self.held.d.next = setup;
        }
        if begins {
            self.taken_restarts.d.next = self.held_restarts.q.val();
            self.taken_is_off.d.next = !held.valid;
        }
        self.has_setup.d.next = has_new || (self.has_setup.q.val() && !begins);
        self.held_restarts.d.next = (has_new && setup.restarts) || (self.held_restarts.q.val() && !begins);
        self.pending.next = self.has_setup.q.val();
        self.body.next = event_queue_body(held);
        self.restarts.next = self.taken_restarts.q.val();
        self.is_off.next = self.taken_is_off.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::Bench;

    #[test]
    fn settings_wait_until_they_are_taken() {
        let mut bench = Bench::clocked(EventQueue0::default(), |block| &mut block.clock).in_lock_step();
        // New settings: valid, restarts; taken; pending, restarts and off after the cycle.
        for (setup, begins, pending, taken) in [
            (Some((true, true)), false, true, None),
            (Some((false, false)), false, true, None),
            (None, true, false, Some((true, true))),
            (None, false, false, Some((true, true))),
            (Some((true, false)), false, true, Some((true, true))),
            // The new settings of the cycle of `begins` are taken the next time.
            (Some((false, true)), true, true, Some((false, false))),
            (None, true, false, Some((true, true))),
        ] {
            let (valid, restarts) = setup.unwrap_or_default();
            bench.block.setup.valid.next = setup.is_some();
            bench.block.setup.value.next = EventQueueSetup { valid, restarts, ..EventQueueSetup::default() };
            bench.block.begins.next = begins;
            bench.tick();
            bench.settle();
            assert_eq!(bench.block.pending.val(), pending);
            if let Some(taken) = taken {
                assert_eq!((bench.block.restarts.val(), bench.block.is_off.val()), taken);
            }
        }
    }
}
