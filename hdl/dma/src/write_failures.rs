//! Failed writes: tells the one whose write the host has refused.
//!
//! ```text
//!              ┌────────┐ payload of requests ───> payload
//!  failure ───>│ owner? ├ admin ─────────────────> answer
//!              └────────┘ completion, event ─────> completion
//! ```
//!
//! No latency: `answer` and `completion` are pulses of the cycle in which the failure is taken.
//!
//! 1. Each failure is told once, to one, except payload of answers: place tells of that, in its order. Only payload can wait.
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{WriteFailure, WriteOwner};

/// Tells the one whose write has failed: payload of requests is the responder's matter, answers are the admin queue's. A completion or
/// an event that the host refused is lost, which only software can mend.
#[derive(Default, LogicBlock, Registers)]
pub struct WriteFailures {
    /// From the host writer.
    pub failure: StreamRx<WriteFailure>,
    /// To the responder: payload of requests.
    pub payload: StreamTx<WriteFailure>,
    /// To the admin queue: an answer.
    pub answer: Signal<Out, Bit>,
    /// A completion or an event.
    pub completion: Signal<Out, Bit>,
}

impl Logic for WriteFailures {
    #[kernel]
    fn update(&mut self) {
        let failure = self.failure.beat.val();
        let valid = self.failure.valid.val();
        let is_payload = failure.owner == WriteOwner::Payload && !failure.is_answer;
        self.payload.beat.next = failure;
        self.payload.valid.next = valid && is_payload;
        self.answer.next = valid && failure.owner == WriteOwner::Admin;
        self.completion.next = valid && failure.owner == WriteOwner::Completion;
        self.failure.ready.next = self.payload.ready.val() || !is_payload;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};
    use rnic_kernel::prelude::bits;
    use std::collections::BTreeMap;

    #[test]
    fn every_failure_is_told_once_to_its_owner() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let owners = [WriteOwner::Payload, WriteOwner::Completion, WriteOwner::Admin];
            let failures: Vec<_> = (0..300)
                .map(|number| WriteFailure {
                    owner: owners[random.random_range(0..3)],
                    queue_pair: bits(random.random_range(0..1024)),
                    generation: bits(random.random_range(0..256)),
                    is_answer: random.random_bool(0.2),
                    write_count: bits(number),
                })
                .collect();
            let mut bench = Bench::combinational(WriteFailures::default()).in_lock_step();
            let mut source = Source::of_tokens(failures.clone(), stalls);
            let mut payload = Sink::new(stalls);
            let mut told = BTreeMap::new();
            while !source.is_done() {
                source.drive(&mut bench.block.failure, &mut random);
                payload.drive(&mut bench.block.payload, &mut random);
                bench.settle();
                source.sample(&bench.block.failure);
                payload.sample(&bench.block.payload);
                *told.entry("answer").or_insert(0) += usize::from(bench.block.answer.val());
                *told.entry("completion").or_insert(0) += usize::from(bench.block.completion.val());
            }
            let of = |owner| failures.iter().filter(move |failure| failure.owner == owner);
            assert_eq!(told["answer"], of(WriteOwner::Admin).count());
            assert_eq!(told["completion"], of(WriteOwner::Completion).count());
            let requests = of(WriteOwner::Payload).filter(|failure| !failure.is_answer);
            assert!(payload.received.iter().eq(requests));
        }
    }
}
