//! Write failures: reports each write that the host refused to the part of the card that made it.
//!
//! Payload ends its queue pair, a CQE its completion queue. An EQE that the host refused is lost without a trace, as its queue
//! cannot say so, and ends the device, as does an answer of the admin queue.
//!
//! ```text
//!              ┌────────┐ payload of requests ──> payload
//!  failure ───>│ owner? ├ admin ────────────────> answer
//!              │        ├ CQE ──────────────────> cqe
//!              └────────┘ EQE ──────────────────> lost_event
//! ```
//!
//! No latency: `answer`, `cqe` and `lost_event` are pulses in the cycle in which the failure is taken.
//!
//! 1. Each failure is reported once, except payload of responses, which place reports in its order. Only `payload` can hold failures
//!    back.
use rnic_blocks::stream::{StreamRx, StreamTx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{CqeOwner, WriteFailure, WriteOwner};

/// Reports each failed host write to its owner.
#[derive(Default, LogicBlock, Registers)]
pub struct WriteFailures {
    /// From the host writer; `ready` is combinational.
    pub failure: StreamRx<WriteFailure>,
    /// To the responder: payload of a request; combinational.
    pub payload: StreamTx<WriteFailure>,
    /// To control: an answer of the admin queue; combinational.
    pub answer: Signal<Out, Bit>,
    /// To the completion queues: a CQE; combinational.
    pub cqe: ValidTx<CqeOwner>,
    /// To control: an EQE; combinational.
    pub lost_event: Signal<Out, Bit>,
}

impl Logic for WriteFailures {
    #[kernel]
    fn update(&mut self) {
        let failure = self.failure.beat.val();
        let valid = self.failure.valid.val();
        let is_payload = failure.owner == WriteOwner::Payload && !failure.is_response;
        self.payload.offer(valid && is_payload, failure);
        self.answer.next = valid && failure.owner == WriteOwner::Admin;
        let is_completion = valid && failure.owner == WriteOwner::Completion;
        self.cqe.value.next = CqeOwner {
            completion_queue: failure.completion_queue,
            life: failure.life,
            queue_pair: failure.queue_pair,
            generation: failure.generation,
        };
        self.cqe.valid.next = is_completion && failure.is_cqe;
        self.lost_event.next = is_completion && !failure.is_cqe;
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
    fn every_failure_is_reported_once_to_its_owner() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let owners = [WriteOwner::Payload, WriteOwner::Completion, WriteOwner::Admin];
            let failures: Vec<_> = (0..300)
                .map(|number| WriteFailure {
                    owner: owners[random.random_range(0..3)],
                    queue_pair: bits(random.random_range(0..1024)),
                    generation: bits(random.random_range(0..256)),
                    is_response: random.random_bool(0.2),
                    is_cqe: random.random_bool(0.5),
                    completion_queue: bits(random.random_range(0..1024)),
                    life: bits(random.random_range(0..8)),
                    write_count: bits(number),
                })
                .collect();
            let mut bench = Bench::combinational(WriteFailures::default()).in_lock_step();
            let mut source = Source::of_tokens(failures.clone(), stalls);
            let mut payload = Sink::new(stalls);
            let (mut reported, mut cqes) = (BTreeMap::new(), Vec::new());
            while !source.is_done() {
                source.drive(&mut bench.block.failure, &mut random);
                payload.drive(&mut bench.block.payload, &mut random);
                bench.settle();
                source.sample(&bench.block.failure);
                payload.sample(&bench.block.payload);
                *reported.entry("answer").or_insert(0) += usize::from(bench.block.answer.val());
                *reported.entry("event").or_insert(0) += usize::from(bench.block.lost_event.val());
                if bench.block.cqe.valid.val() {
                    cqes.push(bench.block.cqe.value.val());
                }
            }
            let of = |owner| failures.iter().filter(move |failure| failure.owner == owner);
            assert_eq!(reported["answer"], of(WriteOwner::Admin).count());
            assert_eq!(
                reported["event"],
                of(WriteOwner::Completion).filter(|failure| !failure.is_cqe).count()
            );
            let cqe = |failure: &WriteFailure| CqeOwner {
                completion_queue: failure.completion_queue,
                life: failure.life,
                queue_pair: failure.queue_pair,
                generation: failure.generation,
            };
            let expected = of(WriteOwner::Completion).filter(|failure| failure.is_cqe).map(cqe);
            assert!(cqes.into_iter().eq(expected));
            let requests = of(WriteOwner::Payload).filter(|failure| !failure.is_response);
            assert!(payload.received.iter().eq(requests));
        }
    }
}
