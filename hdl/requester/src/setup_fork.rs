//! SetupFork: gives a setup event to one stage after the other, and takes it when all have taken it.
//!
//! ```text
//!        ┌───────────────────────┐
//!  rx ──>│ event ─┬─ waits[0] ───┼──> stages[0]
//!        │        ├─ waits[1] ───┼──> stages[1]
//!        │        ├─ waits[2] ───┼──> stages[2]
//!        │        ├─ waits[3] ───┼──> stages[3]
//!        │        └─ waits[4] ───┼──> stages[4]
//!        └───────────────────────┘
//! ```
//!
//! Latency 1 cycle to the first stage; the next event is taken when all stages have this one. All outputs are
//! registers.
//!
//! 1. Each stage sees every event once, in order.
//! 2. A stage is offered an event when the one before it has taken it, and so sees everything that one did
//!    before.
//! 3. `rx.ready` is high one cycle after the last stage has taken the event, and the offer lasts until then:
//!    when an event is taken, all stages have acted on it.
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::setup::SetupEvent;

/// Stages that take events.
pub const STAGES: usize = 5;

/// Forks setup events; see the module.
#[clocked(reset = "drops the event")]
#[derive(Default, LogicBlock, Registers)]
pub struct SetupFork {
    /// From control.
    pub rx: StreamRx<SetupEvent>,
    /// To the stages, the first one first.
    pub stages: [StreamTx<SetupEvent>; STAGES],
    event: DFF<SetupEvent>,
    is_busy: Reg<Bit>,
    waits: [Reg<Bit>; STAGES],
}

impl Logic for SetupFork {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_busy = self.is_busy.q.val();
        let is_waited_for = self.waits[0].q.val()
            || self.waits[1].q.val()
            || self.waits[2].q.val()
            || self.waits[3].q.val()
            || self.waits[4].q.val();
        let is_done = is_busy && !is_waited_for;
        self.event.d.next = self.rx.beat.val();
        self.rx.ready.next = is_done;
        if !is_busy {
            self.is_busy.d.next = self.rx.valid.val();
            self.waits[0].d.next = self.rx.valid.val();
        }
        for i in 0..STAGES {
            self.stages[i].offer(self.waits[i].q.val(), self.event.q.val());
            if self.waits[i].q.val() && self.stages[i].ready.val() {
                self.waits[i].d.next = false;
                if i + 1 < STAGES {
                    self.waits[i + 1].d.next = true;
                }
            }
        }
        if is_done {
            self.is_busy.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};

    #[test]
    fn an_event_is_taken_when_all_stages_have_it_one_after_the_other() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let events = (0..200).map(|number| SetupEvent { psn: bits(number), ..SetupEvent::default() });
            let mut bench = Bench::clocked(SetupFork::default(), |block| &mut block.clock).in_lock_step();
            let mut source = Source::of_tokens(events.clone(), stalls);
            let mut sinks: Vec<_> = (0..STAGES).map(|_| Sink::new(stalls)).collect();
            let mut taken = 0;
            while taken < 200 {
                source.drive(&mut bench.block.rx, &mut random);
                for (sink, stage) in sinks.iter_mut().zip(&mut bench.block.stages) {
                    sink.drive(stage, &mut random);
                }
                bench.settle();
                if source.sample(&bench.block.rx) {
                    taken += 1;
                    assert!(sinks.iter().all(|sink| sink.received.len() == taken));
                }
                for (sink, stage) in sinks.iter_mut().zip(&bench.block.stages) {
                    sink.sample(stage);
                }
                assert!(sinks.is_sorted_by_key(|sink| usize::MAX - sink.received.len()));
                bench.tick();
            }
            let events: Vec<_> = events.collect();
            assert!(sinks.iter().all(|sink| sink.received == events));
        }
    }
}
