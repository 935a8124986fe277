//! LocalCompletionMux: merges the progress that no response of the peer reports, from issue and from control.
//!
//! ```text
//!  issued ──────> queue (4) ──────────────┐
//!                                         ├──> slice ──> completion
//!  invalidated ──> local_completion_of ───┘
//! ```
//!
//! Latency 3 cycles from `issued`, 1 from `invalidated`, if nothing waits; throughput one a cycle.
//!
//! 1. Each source keeps its order; nothing is lost or duplicated.
//! 2. What issue reports goes first. Control waits with the result of an invalidation until its queue is empty.
use crate::messages::LocalCompletion;
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::protect::Invalidated;

/// Merges local completions; see the module.
#[clocked(reset = "drops what waits")]
#[derive(Default, LogicBlock, Registers)]
pub struct LocalCompletionMux {
    /// From issue: messages that are not sent.
    pub issued: StreamRx<LocalCompletion>,
    /// From control: results of invalidations; `ready` is a function of registers.
    pub invalidated: StreamRx<Invalidated>,
    /// To acknowledge; registered.
    pub completion: StreamTx<LocalCompletion>,

    queue: Fifo<LocalCompletion, 2, 3>,
    slice: RegisterSlice<LocalCompletion>,
}

/// Gives the result of an invalidation as a local completion.
#[kernel]
fn local_completion_of(invalidated: Invalidated) -> LocalCompletion {
    LocalCompletion {
        queue_pair: invalidated.queue_pair,
        generation: invalidated.generation,
        has_failed: false,
        psn: bits(0),
        is_invalidated: true,
        is_denied: !invalidated.ok,
    }
}

impl Logic for LocalCompletionMux {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamRx::link(&mut self.issued, &mut self.queue.rx);
        StreamTx::link(&mut self.completion, &mut self.slice.tx);
        let has_issued = self.queue.tx.valid.val();
        let invalidated = local_completion_of(self.invalidated.beat.val());
        self.slice.rx.valid.next = has_issued || self.invalidated.valid.val();
        self.slice.rx.beat.next = select(has_issued, self.queue.tx.beat.val(), invalidated);
        self.queue.tx.ready.next = self.slice.rx.ready.val();
        self.invalidated.ready.next = self.slice.rx.ready.val() && !has_issued;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};

    fn issued(number: u64) -> LocalCompletion {
        LocalCompletion {
            queue_pair: bits(number),
            generation: bits(number & 0xff),
            has_failed: number.is_multiple_of(3),
            psn: bits(0xff_ff00 + number % 0x100),
            ..LocalCompletion::default()
        }
    }

    fn invalidated(number: u64) -> Invalidated {
        Invalidated {
            queue_pair: bits(number),
            generation: bits(!number & 0xff),
            ok: !number.is_multiple_of(3),
        }
    }

    #[test]
    fn an_invalidation_that_is_refused_is_denied() {
        for (ok, is_denied) in [(true, false), (false, true)] {
            let result = Invalidated { queue_pair: bits(0x2a5), generation: bits(9), ok };
            let expected = LocalCompletion {
                queue_pair: bits(0x2a5),
                generation: bits(9),
                is_invalidated: true,
                is_denied,
                ..LocalCompletion::default()
            };
            assert_eq!(local_completion_of(result), expected);
        }
    }

    /// The block between its neighbours.
    struct World {
        bench: Bench<LocalCompletionMux>,
        random: Random,
        issued: Source<LocalCompletion>,
        invalidated: Source<Invalidated>,
        sink: Sink<LocalCompletion>,
        holds: bool,
    }

    impl World {
        fn new(stalls: Stalls) -> Self {
            World {
                bench: Bench::clocked(LocalCompletionMux::default(), |block| &mut block.clock).in_lock_step(),
                random: random(),
                issued: Source::of_tokens([], stalls),
                invalidated: Source::of_tokens([], stalls),
                sink: Sink::new(stalls),
                holds: false,
            }
        }

        fn step(&mut self) {
            let block = &mut self.bench.block;
            self.issued.drive(&mut block.issued, &mut self.random);
            self.invalidated.drive(&mut block.invalidated, &mut self.random);
            self.sink.drive(&mut block.completion, &mut self.random);
            block.completion.ready.next &= !self.holds;
            self.bench.settle();
            self.issued.sample(&self.bench.block.issued);
            self.invalidated.sample(&self.bench.block.invalidated);
            self.sink.sample(&self.bench.block.completion);
            self.bench.tick();
        }
    }

    #[test]
    fn each_source_keeps_its_order_and_nothing_is_lost() {
        const COUNT: u64 = 300;
        for stalls in Stalls::ALL {
            let mut world = World::new(stalls);
            (0..COUNT).for_each(|number| world.issued.push(issued(number)));
            (0..COUNT).for_each(|number| world.invalidated.push(invalidated(number)));
            for _ in 0..10 * COUNT {
                world.step();
            }
            let (of_control, of_issue): (Vec<_>, Vec<_>) =
                world.sink.received.into_iter().partition(|completion| completion.is_invalidated);
            assert_eq!(of_issue, (0..COUNT).map(issued).collect::<Vec<_>>(), "{stalls:?}");
            let expected: Vec<_> =
                (0..COUNT).map(|number| local_completion_of(invalidated(number))).collect();
            assert_eq!(of_control, expected, "{stalls:?}");
        }
    }

    #[test]
    fn what_issue_reports_goes_first() {
        let mut world = World::new(Stalls::None);
        world.holds = true;
        // The slice takes two, the others wait in the queue.
        (0..5).for_each(|number| world.issued.push(issued(number)));
        (0..10).for_each(|_| world.step());
        (0..3).for_each(|number| world.invalidated.push(invalidated(number)));
        (0..10).for_each(|_| world.step());
        world.holds = false;
        (0..20).for_each(|_| world.step());
        let expected: Vec<_> =
            (0..5).map(issued).chain((0..3).map(|number| local_completion_of(invalidated(number)))).collect();
        assert_eq!(world.sink.received, expected);
    }

    #[test]
    fn control_waits_for_a_cycle_and_issue_for_three() {
        for (is_issued, latency) in [(false, 1), (true, 3)] {
            let mut world = World::new(Stalls::None);
            (0..4).for_each(|_| world.step());
            if is_issued {
                world.issued.push(issued(1));
            } else {
                world.invalidated.push(invalidated(1));
            }
            let cycles = (0..10).find(|_| {
                world.step();
                !world.sink.received.is_empty()
            });
            assert_eq!(cycles, Some(latency));
        }
    }
}
