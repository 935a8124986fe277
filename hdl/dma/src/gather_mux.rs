//! Gather mux: requests and READ responses take turns at one gather stage.
//!
//! Both read payload from host memory for packets to be sent, for which there is one buffer and one rotator.
//!
//! ```text
//!              ┌────────────────────────────────────┐
//!  requester ─>│ ┌─────────┐   ┌───────────────┐    │
//!              │ │ Arbiter ├──>│ RegisterSlice ├────┼──> command
//!  responder ─>│ └─────────┘   └───────────────┘    │
//!              │                                    │
//!  requester_failure <──┬── is_response? <──────────┼─── failure
//!  responder_failure <──┘                           │
//!              └────────────────────────────────────┘
//! ```
//!
//! A command a cycle, latency 1; failures without latency.
//!
//! 1. Commands of one role keep their order; while both have some, they take turns packet by packet.
//! 2. A failure goes to the role whose packet failed.
//!
//! Both roles wait for the wire alone, after gather, so neither waits for the other (design decision 4).
use rnic_blocks::stream::{Arbiter, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::transmit::{GatherCommand, GatherFailure};

/// Shares one gather between requester and responder.
#[derive(Default, LogicBlock, Registers)]
pub struct GatherMux {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// From the requester: requests; `ready` is combinational.
    pub requester: StreamRx<GatherCommand>,
    /// From the responder: READ responses; `ready` is combinational.
    pub responder: StreamRx<GatherCommand>,
    /// To gather; registered.
    pub command: StreamTx<GatherCommand>,
    /// From gather: packets whose payload could not be read; `ready` is combinational.
    pub failure: StreamRx<GatherFailure>,
    /// To the requester: a request that was not sent; combinational.
    pub requester_failure: StreamTx<GatherFailure>,
    /// To the responder: a response that was not sent; combinational.
    pub responder_failure: StreamTx<GatherFailure>,
    arbiter: Arbiter<GatherCommand, 2>,
    slice: RegisterSlice<GatherCommand>,
}

impl Logic for GatherMux {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.arbiter.last.next =
            cat!(!self.responder.beat.val().continues, !self.requester.beat.val().continues);
        StreamRx::<GatherCommand>::link(&mut self.requester, &mut self.arbiter.rx[0]);
        StreamRx::<GatherCommand>::link(&mut self.responder, &mut self.arbiter.rx[1]);
        StreamTx::<GatherCommand>::join(&mut self.arbiter.tx, &mut self.slice.rx);
        StreamTx::<GatherCommand>::link(&mut self.command, &mut self.slice.tx);

        let failure = self.failure.beat.val();
        let valid = self.failure.valid.val();
        self.requester_failure.beat.next = failure;
        self.requester_failure.valid.next = valid && !failure.is_response;
        self.responder_failure.beat.next = failure;
        self.responder_failure.valid.next = valid && failure.is_response;
        self.failure.ready.next = select(
            failure.is_response,
            self.responder_failure.ready.val(),
            self.requester_failure.ready.val(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};
    use rnic_messages::transmit::TransmitRequest;

    #[test]
    fn commands_take_turns_and_failures_go_back() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let commands = |is_response| {
                // Every third packet takes another command.
                (0..200).map(move |number| GatherCommand {
                    continues: number % 3 == 0,
                    headers: TransmitRequest { psn: bits(number), is_response, ..TransmitRequest::default() },
                    ..GatherCommand::default()
                })
            };
            let failures: Vec<_> = (0..200)
                .map(|number| GatherFailure {
                    psn: bits(number),
                    is_response: random.random(),
                    ..GatherFailure::default()
                })
                .collect();
            let mut bench = Bench::clocked(GatherMux::default(), |block| &mut block.clock).in_lock_step();
            let mut requests = Source::of_tokens(commands(false), stalls);
            let mut responses = Source::of_tokens(commands(true), stalls);
            let mut lost = Source::of_tokens(failures.clone(), stalls);
            let mut command = Sink::new(stalls);
            let mut failed = [Sink::new(stalls), Sink::new(stalls)];
            while command.received.len() < 400 || !lost.is_done() {
                let block = &mut bench.block;
                requests.drive(&mut block.requester, &mut random);
                responses.drive(&mut block.responder, &mut random);
                lost.drive(&mut block.failure, &mut random);
                command.drive(&mut block.command, &mut random);
                failed[0].drive(&mut block.requester_failure, &mut random);
                failed[1].drive(&mut block.responder_failure, &mut random);
                bench.settle();
                let block = &bench.block;
                requests.sample(&block.requester);
                responses.sample(&block.responder);
                lost.sample(&block.failure);
                command.sample(&block.command);
                failed[0].sample(&block.requester_failure);
                failed[1].sample(&block.responder_failure);
                bench.tick();
            }
            for is_response in [false, true] {
                let mine = command.received.iter().filter(|found| found.headers.is_response == is_response);
                assert!(mine.copied().eq(commands(is_response)));
                let lost = failures.iter().filter(|failure| failure.is_response == is_response);
                assert!(failed[usize::from(is_response)].received.iter().eq(lost));
            }
            let changes = |two: &[GatherCommand]| two[0].headers.is_response != two[1].headers.is_response;
            assert!(command.received.windows(2).all(|two| !two[0].continues || !changes(two)));
            if stalls == Stalls::None {
                assert!(command.received.windows(2).take(390).all(|two| two[0].continues || changes(two)));
            }
        }
    }
}
