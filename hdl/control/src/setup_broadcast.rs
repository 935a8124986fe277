//! SetupBroadcast: offers a setup event to all stages, and goes on when each has taken it.
//!
//! One writer for every field (design decision 6): commands write no record of a stage, they tell all stages the same.
//!
//! ```text
//!             ┌────────────────────────┐
//!  from ─────>│ open: one bit a stage  ├─┬─> to[0]
//!             └────────────────────────┘ ├─> to[1]
//!                                        └─> ...
//! ```
//!
//! Latency 1 cycle; an event in three cycles if all stages take it at once.
//!
//! 1. Every stage gets every event that concerns it once, in order: those of shared receive queues only admission and receive
//!    entries.
//! 2. No stage gets an event before all stages have taken the one before it.
//! 3. `from.ready` says that all stages have taken the event.
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::setup::{SetupEvent, SetupKind};

/// Place of admission among the stages.
pub const ADMIT: usize = 2;
/// Place of the receive entries.
pub const RECEIVE_ENTRIES: usize = 3;

/// Sends setup events to `N` stages.
#[derive(LogicBlock, Registers, Construct)]
pub struct SetupBroadcast<const N: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets the event.
    pub reset: Signal<In, Bit>,
    /// From the commands, a register; `ready` follows registers.
    pub from: StreamRx<SetupEvent>,
    /// To the stages: `valid` is registered, the event is that of `from`.
    pub to: [StreamTx<SetupEvent>; N],
    /// The event has been offered.
    offers: Reg<Bit>,
    open: [Reg<Bit>; N],
    /// Element i: a stage up to i has not taken the event.
    any: [Signal<Local, Bit>; N],
}

impl<const N: usize> Logic for SetupBroadcast<N> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        for i in 0..N {
            let before = if i == 0 { false } else { self.any[i - 1].val() };
            self.any[i].next = before || self.open[i].q.val();
        }
        let offers = self.offers.q.val();
        let is_taken = offers && !self.any[N - 1].val();
        let begins = self.from.valid.val() && !offers;
        let kind = self.from.beat.val().kind;
        self.from.ready.next = is_taken;
        self.offers.d.next = begins || (offers && !is_taken);
        for i in 0..N {
            self.to[i].beat.next = self.from.beat.val();
            self.to[i].valid.next = self.open[i].q.val();
            let concerns = if i == ADMIT {
                true
            } else if i == RECEIVE_ENTRIES {
                kind != SetupKind::SharedLimit
            } else {
                kind != SetupKind::SharedLimit && kind != SetupKind::SharedReceive
            };
            self.open[i].d.next = (begins && concerns) || (self.open[i].q.val() && !self.to[i].ready.val());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};

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
    fn shared_receive_queues_concern_two_stages() {
        let mut random = random();
        let mut bench =
            Bench::clocked(SetupBroadcast::<STAGES>::default(), |block| &mut block.clock).in_lock_step();
        let kinds = [SetupKind::SharedReceive, SetupKind::SharedLimit, SetupKind::Life];
        let events = kinds.map(|kind| SetupEvent { kind, ..SetupEvent::default() });
        let mut source = Source::of_tokens(events, Stalls::None);
        let mut sinks: Vec<_> = (0..STAGES).map(|_| Sink::new(Stalls::Both)).collect();
        for _ in 0..60 {
            source.drive(&mut bench.block.from, &mut random);
            for (stage, sink) in sinks.iter_mut().enumerate() {
                sink.drive(&mut bench.block.to[stage], &mut random);
            }
            bench.settle();
            source.sample(&bench.block.from);
            for (stage, sink) in sinks.iter_mut().enumerate() {
                sink.sample(&bench.block.to[stage]);
            }
            bench.tick();
        }
        for (stage, sink) in sinks.iter().enumerate() {
            let told: Vec<_> = sink.received.iter().map(|event| event.kind).collect();
            let expected = match stage {
                ADMIT => &kinds[..],
                RECEIVE_ENTRIES => &[SetupKind::SharedReceive, SetupKind::Life],
                _ => &kinds[2..],
            };
            assert_eq!(told, expected, "stage {stage}");
        }
    }
}
