//! Setup broadcast: offers a setup event to all stages, and takes the next one when each has taken it.
//!
//! Every field has one writer (design decision 6): the sequencer writes no record of a stage, but sends all stages the same event.
//!
//! ```text
//!             ┌────────────────────────┐
//!  from ─────>│ open: one bit a stage  ├─┬─> to[0], to[1], ...
//!  from_srq ─>│                        │ └─> to_srq[0], to_srq[1]
//!             └────────────────────────┘
//! ```
//!
//! Latency 1 cycle. Throughput one event in three cycles if all stages take it at once.
//!
//! 1. Every stage gets every event of a queue pair once, in order. Admission gets every event of an SRQ too, and the prefetch
//!    of receive WQEs those that restart its ring.
//! 2. No stage gets an event before all stages have taken the one before it.
//! 3. `from.ready` and `from_srq.ready` say that all stages have taken the event. Only one of both is offered at a time.
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::setup::{SetupEvent, SrqSetup, SrqSetupKind};

/// Stages that keep records of SRQs.
pub const SRQ_STAGES: usize = 2;
/// Index of admission among them.
pub const ADMIT: usize = 0;
/// Index of the prefetch of receive WQEs among them.
pub const RQ_PREFETCH: usize = 1;

/// Sends setup events to `N` stages, and those of SRQs to two.
#[clocked(reset = "drops the event")]
#[derive(LogicBlock, Registers, Construct)]
pub struct SetupBroadcast<const N: usize> {
    /// Event of a queue pair from the sequencer, held until `ready`, which is a function of registers.
    pub from: StreamRx<SetupEvent>,
    /// Event of an SRQ from the sequencer, held until `ready`, which is a function of registers.
    pub from_srq: StreamRx<SrqSetup>,
    /// To the stages: `valid` is registered, the event is that of `from`.
    pub to: [StreamTx<SetupEvent>; N],
    /// To [`ADMIT`] and [`RQ_PREFETCH`]: `valid` is registered, the event is that of `from_srq`.
    pub to_srq: [StreamTx<SrqSetup>; SRQ_STAGES],
    /// The event has been offered.
    offers: Reg<Bit>,
    open: [Reg<Bit>; N],
    open_srq: [Reg<Bit>; SRQ_STAGES],
    /// Bit i: a stage up to i has not taken the event.
    any: [Signal<Local, Bit>; N],
}

impl<const N: usize> Logic for SetupBroadcast<N> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let any_srq = self.open_srq[ADMIT].q.val() || self.open_srq[RQ_PREFETCH].q.val();
        for i in 0..N {
            let before = if i == 0 { any_srq } else { self.any[i - 1].val() };
            self.any[i].next = before || self.open[i].q.val();
        }
        let offers = self.offers.q.val();
        let is_taken = offers && !self.any[N - 1].val();
        let begins = self.from.valid.val() && !offers;
        let begins_srq = self.from_srq.valid.val() && !offers;
        self.from.ready.next = is_taken;
        self.from_srq.ready.next = is_taken;
        self.offers.d.next = begins || begins_srq || (offers && !is_taken);
        for i in 0..N {
            self.to[i].offer(self.open[i].q.val(), self.from.beat.val());
            self.open[i].d.next = begins || (self.open[i].q.val() && !self.to[i].ready.val());
        }
        for i in 0..SRQ_STAGES {
            self.to_srq[i].offer(self.open_srq[i].q.val(), self.from_srq.beat.val());
            let concerns =
                if i == ADMIT { true } else { self.from_srq.beat.val().kind == SrqSetupKind::Restart };
            self.open_srq[i].d.next =
                (begins_srq && concerns) || (self.open_srq[i].q.val() && !self.to_srq[i].ready.val());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};
    use rnic_messages::setup::SetupKind;

    const STAGES: usize = 6;

    #[test]
    fn every_stage_gets_every_event_before_any_gets_the_next() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench =
                Bench::clocked(SetupBroadcast::<STAGES>::default(), |block| &mut block.clock).in_lock_step();
            let event = |index| SetupEvent {
                kind: if index % 2 == 0 { SetupKind::Life } else { SetupKind::Path },
                queue_pair: bits(index),
                psn: bits(index * 0x1234),
                ..SetupEvent::default()
            };
            let events: Vec<_> = (0..100).map(event).collect();
            let mut source = Source::of_tokens(events.clone(), stalls);
            let mut sinks: Vec<_> = (0..STAGES).map(|_| Sink::new(stalls)).collect();
            let mut cycles = 0;
            while sinks.iter().any(|sink| sink.received.len() < events.len()) {
                source.drive(&mut bench.block.from, &mut random);
                for (stage, sink) in sinks.iter_mut().enumerate() {
                    sink.drive(&mut bench.block.to[stage], &mut random);
                }
                bench.settle();
                source.sample(&bench.block.from);
                for (stage, sink) in sinks.iter_mut().enumerate() {
                    sink.sample(&bench.block.to[stage]);
                }
                let counts = sinks.iter().map(|sink| sink.received.len());
                let (least, most) = (counts.clone().min().unwrap(), counts.max().unwrap());
                assert!(most - least <= 1, "a stage is {} events ahead", most - least);
                bench.tick();
                cycles += 1;
                assert!(cycles < 3000, "the events do not pass");
            }
            if stalls == Stalls::None {
                assert_eq!(cycles, 3 * events.len() - 1);
            }
            sinks.iter().for_each(|sink| assert_eq!(sink.received, events));
        }
    }

    #[test]
    fn events_of_srqs_go_to_two_stages() {
        let mut random = random();
        let mut bench =
            Bench::clocked(SetupBroadcast::<STAGES>::default(), |block| &mut block.clock).in_lock_step();
        let setup = SetupEvent { kind: SetupKind::Path, ..SetupEvent::default() };
        let [restart, limit] =
            [SrqSetupKind::Restart, SrqSetupKind::Limit].map(|kind| SrqSetup { kind, ..SrqSetup::default() });
        let mut stages: Vec<Sink<SetupEvent>> = (0..STAGES).map(|_| Sink::new(Stalls::Both)).collect();
        let mut srq_stages: Vec<Sink<SrqSetup>> = (0..SRQ_STAGES).map(|_| Sink::new(Stalls::Both)).collect();
        // As the sequencer: one after the other.
        for event in [Err(restart), Err(limit), Ok(setup)] {
            let mut source = Source::of_tokens(event.ok(), Stalls::None);
            let mut srq_source = Source::of_tokens(event.err(), Stalls::None);
            for _ in 0..20 {
                source.drive(&mut bench.block.from, &mut random);
                srq_source.drive(&mut bench.block.from_srq, &mut random);
                for (stage, sink) in stages.iter_mut().enumerate() {
                    sink.drive(&mut bench.block.to[stage], &mut random);
                }
                for (stage, sink) in srq_stages.iter_mut().enumerate() {
                    sink.drive(&mut bench.block.to_srq[stage], &mut random);
                }
                bench.settle();
                source.sample(&bench.block.from);
                srq_source.sample(&bench.block.from_srq);
                for (stage, sink) in stages.iter_mut().enumerate() {
                    sink.sample(&bench.block.to[stage]);
                }
                for (stage, sink) in srq_stages.iter_mut().enumerate() {
                    sink.sample(&bench.block.to_srq[stage]);
                }
                bench.tick();
            }
            assert!(source.is_done() && srq_source.is_done(), "all stages have taken {event:?}");
        }
        stages.iter().for_each(|sink| assert_eq!(sink.received, [setup]));
        assert_eq!(srq_stages[ADMIT].received, [restart, limit]);
        assert_eq!(srq_stages[RQ_PREFETCH].received, [restart]);
    }
}
