//! Fork: gives a setup event to one stage, then to another, and says that it is taken when both have taken it.
//!
//! ```text
//!        ┌───────────────────────┐
//!  rx ──>│ event ─┬─ waits[0] ───┼──> first
//!        │        └─ waits[1] ───┼──> second
//!        └───────────────────────┘
//! ```
//!
//! Latency 1 cycle to the first stage; the next event is taken when both stages have this one. All outputs are registers.
//!
//! 1. Each stage sees every event once, in order.
//! 2. The second stage is offered an event when the first one has taken it, and so knows what the first did before.
//! 3. `rx.ready` comes one cycle after the last stage has taken the event, and the offer lasts until then: who sees its event
//!    taken knows that both stages have acted on it.
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_token::setup::SetupEvent;

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct Fork {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets the event.
    pub reset: Signal<In, Bit>,
    /// From control.
    pub rx: StreamRx<SetupEvent>,
    /// To the stage before.
    pub first: StreamTx<SetupEvent>,
    /// To the stage behind it.
    pub second: StreamTx<SetupEvent>,
    event: DFF<SetupEvent>,
    is_busy: Reg<Bit>,
    first_waits: Reg<Bit>,
    second_waits: Reg<Bit>,
}

impl Logic for Fork {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_busy = self.is_busy.q.val();
        let first_waits = self.first_waits.q.val();
        let second_waits = self.second_waits.q.val();
        let is_done = is_busy && !first_waits && !second_waits;
        self.event.d.next = self.rx.beat.val();
        self.rx.ready.next = is_done;
        self.first.beat.next = self.event.q.val();
        self.first.valid.next = first_waits;
        self.second.beat.next = self.event.q.val();
        self.second.valid.next = second_waits;
        if !is_busy {
            self.is_busy.d.next = self.rx.valid.val();
            self.first_waits.d.next = self.rx.valid.val();
        }
        if first_waits && self.first.ready.val() {
            self.first_waits.d.next = false;
            self.second_waits.d.next = true;
        }
        if second_waits && self.second.ready.val() {
            self.second_waits.d.next = false;
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
    fn an_event_is_taken_when_both_stages_have_it() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let events = (0..200).map(|number| SetupEvent { psn: bits(number), ..SetupEvent::default() });
            let mut bench = Bench::clocked(Fork::default(), |block| &mut block.clock).in_lock_step();
            let mut source = Source::of_tokens(events.clone(), stalls);
            let (mut first, mut second) = (Sink::new(stalls), Sink::new(stalls));
            let mut taken = 0;
            while taken < 200 {
                source.drive(&mut bench.block.rx, &mut random);
                first.drive(&mut bench.block.first, &mut random);
                second.drive(&mut bench.block.second, &mut random);
                bench.settle();
                if source.sample(&bench.block.rx) {
                    taken += 1;
                    assert_eq!((first.received.len(), second.received.len()), (taken, taken));
                }
                first.sample(&bench.block.first);
                second.sample(&bench.block.second);
                bench.tick();
            }
            let events: Vec<_> = events.collect();
            assert!(first.received == events && second.received == events);
        }
    }
}
