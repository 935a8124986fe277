//! Reset: drains the card, clears it, and starts it again.
//!
//! A reset that cut off reads and writes would leave completions in flight that the card no longer expects, and memories have no
//! reset. So the card is drained first and swept afterwards, while the registers still answer.
//!
//! ```text
//!  request ──> settle ──> drain ──> pulse ──────> sweep ──────────> forget ─────────> run
//!                         │  │      core_reset    sweep_index       forget, then
//!                         │  └─ time is up:       0 to 1023         is_forgetting
//!                         │     lost              ^
//!  power-up, ─────────────┼──────> pulse          doorbells,
//!  reset                  └─ drained, cut off     registers
//! ```
//!
//! A reset without work lasts 2 + [`SETTLE_CYCLES`] + [`RESET_CYCLES`] + 2^[`SWEEP_BITS`] cycles, and then until the sequencer has
//! forgotten all objects. Draining lasts at most `drain_cycles`: for as long as the host may take for an answer, and a while longer.
//!
//! 1. While `is_resetting`, nothing new begins, and software's writes change nothing.
//! 2. `core_reset` begins only when the card is drained, or the limit is over. Work that begins in the cycle of the request is
//!    counted some cycles later, so `drained` is ignored for [`SETTLE_CYCLES`]. If the limit is over, `lost_read` or
//!    `lost_write` follows when the reset has ended: late completions may still come, and a second reset clears their effect.
//! 3. The reset from outside does all of that except settling and draining.
//! 4. When `quiesces` has been high for the limit and the card is not drained, that is a loss too, unless it may not reach the
//!    host: then what has not begun waits.
//! 5. A card that is cut off from its host is not waited for, once it has sent nothing for [`STILL_CYCLES`]: what is left in it has not
//!    begun, the host knows nothing of it, and no frame is cut.
//!
//! Design decision 12.
use crate::messages::TableSweep;
use rnic_kernel::prelude::*;
use rnic_layout::limits::{DRAIN_UNITS, HOST_LIMIT_UNIT_LOG2};
use rnic_messages::sizes::HOST_LIMIT_BITS;

/// Cycles of `core_reset`: longer than the deepest pipeline of the card.
pub const RESET_CYCLES: u64 = 255;
/// Cycles after which every part has stopped to begin work, and has counted what it had begun.
pub const SETTLE_CYCLES: u64 = 16;
/// Bits of the index that is swept.
pub const SWEEP_BITS: usize = 10;
/// Cycles after which a frame that has left the assembler has left the card.
pub const STILL_CYCLES: u64 = 255;
/// Bits of a number of units that a drain lasts, and of its cycles.
const UNITS: usize = HOST_LIMIT_BITS + 1;
const UNIT_BITS: usize = HOST_LIMIT_UNIT_LOG2 as usize;
pub(crate) const TIME_BITS: usize = UNITS + UNIT_BITS;
const STILL_BITS: usize = 8;

/// Cycles after which what has not drained is lost, by the register `host_limit`; if that is no limit, as for the longest one.
#[kernel]
pub(crate) fn drain_cycles(host_limit: Bits<HOST_LIMIT_BITS>) -> Bits<TIME_BITS> {
    let limit = select(host_limit.any(), host_limit, !bits::<HOST_LIMIT_BITS>(0));
    cat!(bit_cast::<UNITS, HOST_LIMIT_BITS>(limit) + DRAIN_UNITS, bits::<UNIT_BITS>(0))
}

/// What the block does in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Phase {
    /// Holds all other parts in reset.
    Pulse,
    /// Clears tables.
    Sweep,
    /// Asks the sequencer to forget all objects.
    Forget,
    /// Waits until it has.
    Forgetting,
    /// Lets the card work.
    Run,
    /// Waits until work that has begun is counted.
    Settle,
    /// Waits until that work is done.
    Drain,
}

/// Orders the phases of a reset.
#[clocked(reset = "the reset of the whole card")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Reset {
    /// From the registers: a reset is requested.
    pub request: Signal<In, Bit>,
    /// From the registers: the card is to drain.
    pub quiesces: Signal<In, Bit>,
    /// Cycles after which what has not drained is lost, at least two.
    pub drain_cycles: Signal<In, Bits<TIME_BITS>>,
    /// Nothing is in flight to host or wire.
    pub drained: Signal<In, Bit>,
    /// No host read is in flight; tells `lost_read` from `lost_write`.
    pub reads_drained: Signal<In, Bit>,
    /// From the bus master: the card may make requests to the host.
    pub may_request: Signal<In, Bit>,
    /// From the bus master: the host owes no answer, and nothing begins before `core_reset`, if that is decided in this cycle.
    pub is_cut_off: Signal<In, Bit>,
    /// From the assembler: a beat of a frame is offered to the MAC.
    pub sends: Signal<In, Bit>,
    /// From the sequencer: objects are being forgotten, from the cycle after `forget` on.
    pub is_forgetting: Signal<In, Bit>,

    /// To all other parts: reset; registered.
    pub core_reset: Signal<Out, Bit>,
    /// High from a request to the end of its reset; registered.
    pub is_resetting: Signal<Out, Bit>,
    /// To tables; registered.
    pub sweep: Signal<Out, TableSweep>,
    /// To the sequencer: forget all objects; registered, one cycle.
    pub forget: Signal<Out, Bit>,
    /// A host read was not completed in time; registered, one cycle.
    pub lost_read: Signal<Out, Bit>,
    /// Other work was not done in time; registered, one cycle.
    pub lost_write: Signal<Out, Bit>,

    phase: Reg<Phase>,
    /// Cycles that the phase still lasts, less one.
    #[init(Reg::new(bits(RESET_CYCLES)))]
    left: Reg<Bits<TIME_BITS>>,
    #[init(Reg::new(true))]
    in_reset: Reg<Bit>,
    runs: Reg<Bit>,
    index: DFF<Bits<SWEEP_BITS>>,
    in_sweep: Reg<Bit>,
    forgets: Reg<Bit>,
    /// Draining was given up.
    gave_up: Reg<Bit>,
    /// Cycles for which nothing was sent, up to [`STILL_CYCLES`].
    still: Reg<Bits<STILL_BITS>>,
    lacked_read: DFF<Bit>,
    reports: Reg<Bit>,
    /// Cycles for which a card that quiesces may still work; zero after a report.
    quiesce_left: DFF<Bits<TIME_BITS>>,
}

impl Logic for Reset {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let left = self.left.q.val();
        let is_over = left == 0;
        let drained = self.drained.val();
        if !is_over {
            self.left.d.next = left - 1;
        }
        let still = self.still.q.val();
        let is_still = still == STILL_CYCLES;
        if self.sends.val() {
            self.still.d.next = bits(0);
        } else if !is_still {
            self.still.d.next = still + 1;
        }
        self.reports.d.next = false;
        match self.phase.q.val() {
            Phase::Run => {
                if self.request.val() {
                    self.phase.d.next = Phase::Settle;
                    self.left.d.next = bits(SETTLE_CYCLES);
                }
            }
            Phase::Settle => {
                if is_over {
                    self.phase.d.next = Phase::Drain;
                    self.left.d.next = self.drain_cycles.val();
                }
            }
            Phase::Drain => {
                let is_quiet = drained || (is_still && self.is_cut_off.val());
                if is_quiet || is_over {
                    self.phase.d.next = Phase::Pulse;
                    self.left.d.next = bits(RESET_CYCLES);
                    self.gave_up.d.next = !is_quiet;
                    self.lacked_read.d.next = !self.reads_drained.val();
                }
            }
            Phase::Pulse => {
                if is_over {
                    self.phase.d.next = Phase::Sweep;
                    self.left.d.next = bits((1 << SWEEP_BITS) - 1);
                }
            }
            Phase::Sweep => {
                if is_over {
                    self.phase.d.next = Phase::Forget;
                }
            }
            // `forgets` is a register, so `is_forgetting` follows it a cycle later.
            Phase::Forget => {
                self.phase.d.next = if self.forgets.q.val() { Phase::Forgetting } else { Phase::Forget };
            }
            Phase::Forgetting => {
                if !self.is_forgetting.val() {
                    self.phase.d.next = Phase::Run;
                    self.reports.d.next = self.gave_up.q.val();
                    self.gave_up.d.next = false;
                }
            }
        }

        // A card that quiesces must drain in time, if it may.
        let must_drain = self.quiesces.val() && self.may_request.val();
        let is_late = self.phase.q.val() == Phase::Run && must_drain && !drained;
        let quiesce_left = self.quiesce_left.q.val();
        if !is_late {
            self.quiesce_left.d.next = self.drain_cycles.val();
        } else if quiesce_left.any() {
            self.quiesce_left.d.next = quiesce_left - 1;
            if quiesce_left == 1 {
                self.reports.d.next = true;
                self.lacked_read.d.next = !self.reads_drained.val();
            }
        }

        let phase = self.phase.q.val();
        self.in_reset.d.next = phase == Phase::Pulse;
        self.runs.d.next = phase == Phase::Run && !self.request.val();
        self.in_sweep.d.next = phase == Phase::Sweep;
        self.index.d.next = left.get_bits::<SWEEP_BITS>(0);
        self.forgets.d.next = phase == Phase::Forget && !self.forgets.q.val();
        self.core_reset.next = self.in_reset.q.val();
        self.is_resetting.next = !self.runs.q.val();
        self.sweep.next = TableSweep { index: self.index.q.val(), is_sweeping: self.in_sweep.q.val() };
        self.forget.next = self.forgets.q.val();
        self.lost_read.next = self.reports.q.val() && self.lacked_read.q.val();
        self.lost_write.next = self.reports.q.val() && !self.lacked_read.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::Bench;
    use rnic_layout::registers::HostLimit;

    const DRAIN: u64 = 400;
    const FORGETTING: u32 = 30;

    /// The block, and a sequencer that forgets when it is asked to.
    struct World {
        bench: Bench<Reset>,
        forgetting: u32,
        swept: Vec<u64>,
        reset_cycles: u64,
        forgot: u32,
        lost: Vec<&'static str>,
    }

    impl World {
        fn new() -> Self {
            let mut bench = Bench::clocked(Reset::default(), |block| &mut block.clock).in_lock_step();
            bench.block.drain_cycles.next = bits(DRAIN);
            let mut world = World {
                bench,
                forgetting: 0,
                swept: Vec::new(),
                reset_cycles: 0,
                forgot: 0,
                lost: Vec::new(),
            };
            world.drained(true, true);
            world.bench.block.may_request.next = true;
            world
        }

        fn drained(&mut self, drained: bool, reads_drained: bool) {
            self.bench.block.drained.next = drained;
            self.bench.block.reads_drained.next = reads_drained;
        }

        fn tick(&mut self) {
            self.bench.block.is_forgetting.next = self.forgetting > 0;
            self.bench.settle();
            let block = &self.bench.block;
            let is_resetting = block.is_resetting.val();
            let parts = [
                block.core_reset.val(),
                block.sweep.val().is_sweeping,
                block.forget.val(),
                self.forgetting > 0,
            ];
            assert!(parts.iter().filter(|&&part| part).count() <= 1, "one after the other: {parts:?}");
            assert!(is_resetting || parts == [false; 4], "a part of a reset, and none is said to be");
            self.reset_cycles += u64::from(block.core_reset.val());
            if block.sweep.val().is_sweeping {
                self.swept.push(block.sweep.val().index.to_u64());
            }
            self.forgetting = self.forgetting.saturating_sub(1);
            if block.forget.val() {
                self.forgot += 1;
                self.forgetting = FORGETTING;
            }
            if block.lost_read.val() {
                self.lost.push("read");
            }
            if block.lost_write.val() {
                self.lost.push("write");
            }
            self.bench.tick();
            self.bench.block.request.next = false;
        }

        fn request(&mut self) {
            self.bench.block.request.next = true;
            self.tick();
        }

        /// Waits for the end of a reset, and checks that it had all its phases.
        fn expect_reset(&mut self) -> u64 {
            let mut cycles = 0;
            self.bench.settle();
            while self.bench.block.is_resetting.val() {
                self.tick();
                cycles += 1;
                assert!(cycles < 2000, "the reset does not end");
            }
            (0..3).for_each(|_| self.tick());
            // The card starts with its reset on, before the first edge of the clock.
            let reset_cycles = std::mem::take(&mut self.reset_cycles);
            assert!((RESET_CYCLES + 1..=RESET_CYCLES + 2).contains(&reset_cycles), "{reset_cycles} cycles");
            let mut swept = std::mem::take(&mut self.swept);
            swept.sort_unstable();
            assert!(swept.iter().copied().eq(0..1 << SWEEP_BITS), "everything is swept once");
            assert_eq!(std::mem::take(&mut self.forgot), 1);
            cycles
        }
    }

    #[test]
    fn a_drain_lasts_longer_than_the_host_may_take() {
        for (limit, units) in [(1, 65), (15_625, 15_689), (0xffff, 0x1_003f), (0, 0x1_003f)] {
            assert_eq!(drain_cycles(bits(limit)).to_u64(), units << 10, "limit {limit}");
            let layout = HostLimit { limit: limit as u16 };
            assert_eq!(layout.drain_units(), units, "the layout says the same");
        }
    }

    #[test]
    fn the_card_begins_with_a_reset() {
        let mut world = World::new();
        world.drained(false, false);
        world.expect_reset();
        assert!(world.lost.is_empty());
        // As does one from outside, in the middle of a reset too.
        world.request();
        (0..20).for_each(|_| world.tick());
        world.bench.block.reset.next = true;
        world.tick();
        world.bench.block.reset.next = false;
        world.expect_reset();
        assert!(world.lost.is_empty());
    }

    #[test]
    fn a_reset_waits_until_the_card_is_drained() {
        let mut world = World::new();
        world.expect_reset();
        world.drained(false, false);
        world.request();
        (0..DRAIN - 5).for_each(|_| world.tick());
        assert_eq!(world.reset_cycles, 0);
        world.bench.settle();
        assert!(world.bench.block.is_resetting.val());
        world.drained(true, true);
        let cycles = world.expect_reset();
        assert!(cycles <= RESET_CYCLES + (1 << SWEEP_BITS) + u64::from(FORGETTING) + 6, "{cycles} cycles");
        assert!(world.lost.is_empty());
    }

    #[test]
    fn what_was_begun_in_the_cycle_of_the_request_is_waited_for() {
        let mut world = World::new();
        world.expect_reset();
        world.request();
        (0..SETTLE_CYCLES - 1).for_each(|_| world.tick());
        world.drained(false, false);
        (0..DRAIN - 2).for_each(|_| world.tick());
        assert_eq!(world.reset_cycles, 0, "it was drained before anything could be counted");
        world.drained(true, true);
        world.expect_reset();
        assert!(world.lost.is_empty());
    }

    #[test]
    fn a_loss_ends_the_wait_and_is_reported_after_the_reset() {
        for (reads_drained, name) in [(false, "read"), (true, "write")] {
            let mut world = World::new();
            world.expect_reset();
            world.drained(false, reads_drained);
            world.request();
            world.expect_reset();
            assert_eq!(world.lost, [name]);
            world.drained(true, true);
            world.request();
            world.expect_reset();
            assert_eq!(world.lost, [name], "the second reset has nothing to say");
        }
    }

    #[test]
    fn a_card_that_is_cut_off_is_not_waited_for() {
        let mut world = World::new();
        world.expect_reset();
        world.drained(false, false);
        world.bench.block.may_request.next = false;
        world.request();
        (0..DRAIN - 5).for_each(|_| world.tick());
        assert_eq!(world.reset_cycles, 0, "the host owes an answer");
        world.bench.block.is_cut_off.next = true;
        world.expect_reset();
        assert!(world.lost.is_empty());
        // A frame that is being sent is not cut.
        world.request();
        world.bench.block.sends.next = true;
        (0..100).for_each(|_| world.tick());
        world.bench.block.sends.next = false;
        (0..STILL_CYCLES - 1).for_each(|_| world.tick());
        assert_eq!(world.reset_cycles, 0, "it may not have left the card");
        world.expect_reset();
        assert!(world.lost.is_empty());
        // A card that quiesces waits for its right as long as it takes.
        world.bench.block.quiesces.next = true;
        (0..3 * DRAIN).for_each(|_| world.tick());
        assert!(world.lost.is_empty());
        world.bench.block.may_request.next = true;
        (0..3 * DRAIN).for_each(|_| world.tick());
        assert_eq!(world.lost, ["read"]);
    }

    #[test]
    fn a_card_that_does_not_drain_reports_it_once() {
        let mut world = World::new();
        world.expect_reset();
        world.bench.block.quiesces.next = true;
        (0..3 * DRAIN).for_each(|_| world.tick());
        assert!(world.lost.is_empty());
        world.drained(false, false);
        (0..3 * DRAIN).for_each(|_| world.tick());
        assert_eq!(world.lost, ["read"]);
        world.drained(true, true);
        world.tick();
        world.drained(false, true);
        (0..3 * DRAIN).for_each(|_| world.tick());
        assert_eq!(world.lost, ["read", "write"]);
    }
}
