//! Function reset: the handshake by which the PCI function resets the card.
//!
//! ```text
//!  shell ── flr_request ──> ┌─────────────────────────┐ ── request ────> reset
//!        <── flr_done ───── │ idle, ask, resets, done │ <─ is_resetting ─┘
//!                           └─────────────────────────┘
//! ```
//!
//! 1. A function-level reset does all that a write of `control.reset` does; what software writes meanwhile changes nothing.
//! 2. The shell holds `flr_request` until `flr_done`, which stays until the request has fallen: four phases, so that neither
//!    side misses the other.
//! 3. A reset that runs when the request comes is waited for, since what follows it is to be reset as well.
//!
//! A reset lasts until all that is in flight has drained and the objects are forgotten: in simulation 60 to 90 us without the right to
//! be bus master, and up to 214 us with it, since the card then ends the messages that it has begun (64 bits, full traffic). One that
//! gives up lasts as long as the host may take for an answer. PCI Express gives a function 100 ms (Base Specification 6.6.2).
use rnic_kernel::prelude::*;
use rnic_layout::limits::{DRAIN_UNITS, HOST_LIMIT_UNIT_LOG2};

/// Cycles within which a function-level reset is done beside the time of the register `host_limit`. If a reset of another cause runs,
/// one of the two waits for the host: the other finds nothing in flight.
pub const FUNCTION_RESET_CYCLES_MAX: u64 = (DRAIN_UNITS << HOST_LIMIT_UNIT_LOG2) + 2 * (1 << 16);

/// What the block does in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Phase {
    /// Waits for a request, and for the end of a reset of another cause.
    Idle,
    /// Asks for a reset.
    Ask,
    /// Waits for its end.
    Resets,
    /// Waits until the shell has seen that.
    Done,
}

/// Decides what follows.
#[kernel]
fn next_phase(phase: Phase, request: Bit, is_resetting: Bit) -> Phase {
    match phase {
        Phase::Idle => {
            if request && !is_resetting {
                Phase::Ask
            } else {
                Phase::Idle
            }
        }
        Phase::Ask => Phase::Resets,
        Phase::Resets => {
            if is_resetting {
                Phase::Resets
            } else {
                Phase::Done
            }
        }
        Phase::Done => {
            if request {
                Phase::Done
            } else {
                Phase::Idle
            }
        }
    }
}

/// Turns the request of the PCI function into a reset of the card.
#[clocked(reset = "the reset of the whole card")]
#[derive(LogicBlock, Registers, Construct)]
pub struct FunctionReset {
    /// From the shell: the function is to be reset; held until `done`.
    pub flr_request: Signal<In, Bit>,
    /// To the shell: the function is reset; registered.
    pub flr_done: Signal<Out, Bit>,
    /// To the reset: a reset is requested; registered, one cycle.
    pub request: Signal<Out, Bit>,
    /// From the reset: a reset runs, from the cycle after `request` on.
    pub is_resetting: Signal<In, Bit>,

    #[init(Reg::new(Phase::Idle))]
    phase: Reg<Phase>,
}

impl Logic for FunctionReset {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let phase = self.phase.q.val();
        self.phase.d.next = next_phase(phase, self.flr_request.val(), self.is_resetting.val());
        self.request.next = phase == Phase::Ask;
        self.flr_done.next = phase == Phase::Done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::Bench;

    /// The block beside a reset that lasts some cycles.
    struct World {
        bench: Bench<FunctionReset>,
        left: u32,
        resets: u32,
    }

    impl World {
        fn new() -> World {
            let bench = Bench::clocked(FunctionReset::default(), |block| &mut block.clock).in_lock_step();
            World { bench, left: 0, resets: 0 }
        }

        /// A cycle in which the shell requests a reset or not. Returns whether it is done.
        fn tick(&mut self, request: bool) -> bool {
            self.bench.block.flr_request.next = request;
            self.bench.block.is_resetting.next = self.left > 0;
            self.bench.settle();
            self.left = self.left.saturating_sub(1);
            if self.bench.block.request.val() {
                self.resets += 1;
                self.left = 20;
            }
            let done = self.bench.block.flr_done.val();
            assert!(!done || self.left == 0, "done before it is reset");
            self.bench.tick();
            done
        }

        fn wait(&mut self, request: bool, done: bool) -> u32 {
            (1..100).find(|_| self.tick(request) == done).expect("the handshake goes on")
        }
    }

    #[test]
    fn each_request_is_one_reset() {
        let mut world = World::new();
        for resets in 1..5 {
            (0..3).for_each(|_| assert!(!world.tick(false)));
            world.wait(true, true);
            assert_eq!(world.resets, resets);
            // It stays done as long as the shell does not look.
            (0..resets).for_each(|_| assert!(world.tick(true)));
            world.wait(false, false);
        }
    }

    #[test]
    fn a_reset_of_another_cause_is_waited_for() {
        let mut world = World::new();
        world.left = 30;
        (0..30).for_each(|_| assert!(!world.tick(true)));
        assert_eq!(world.resets, 0);
        world.wait(true, true);
        assert_eq!(world.resets, 1);
    }

    #[test]
    fn a_request_that_is_withdrawn_ends_by_itself() {
        let mut world = World::new();
        world.tick(true);
        world.wait(false, true);
        world.wait(false, false);
        assert_eq!(world.resets, 1);
    }
}
