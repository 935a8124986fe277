//! RegionMux: two clients share one region table.
//!
//! Two stages of the requester, or of the responder, use the same table, and neither must wait for the other
//! (design decision 4). So a request is passed on only with room for its answer, and the table is never
//! blocked.
//!
//! ```text
//!  request[0] ──> room? ─┐                             ┌──> answers (16) ──> answer[0]
//!                        ├─ arbiter ─> table ─ origin ─┤
//!  request[1] ──> room? ─┘                             └──> answers (16) ──> answer[1]
//! ```
//!
//! Throughput one request a cycle for both ports together; latency 2 cycles more than the table. Each port may
//! have 16 answers outstanding.
//!
//! 1. Each answer goes to the port of its request, in the order of the requests.
//! 2. An answer that is not taken blocks its own port only.
use rnic_blocks::stream::{Arbiter, Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::protect::{AccessAnswer, AccessRequest};

/// log2 of the answers of a port.
const ANSWERS: usize = 4;
const ANSWER_COUNT: usize = ANSWERS + 1;
/// log2 of the requests at the table: room for those of both ports.
const ASKED: usize = 5;
const ASKED_COUNT: usize = ASKED + 1;

/// Shares one region table between two clients.
#[clocked(reset = "drops outstanding requests")]
#[derive(LogicBlock, Registers, Construct)]
pub struct RegionMux {
    /// Access requests of both ports; `ready` is combinational.
    pub request: [StreamRx<AccessRequest>; 2],
    /// Their answers; registered.
    pub answer: [StreamTx<AccessAnswer>; 2],
    /// To the region table; registered.
    pub table_request: StreamTx<AccessRequest>,
    /// From the region table, in order; always taken.
    pub table_answer: StreamRx<AccessAnswer>,

    arbiter: Arbiter<AccessRequest, 2>,
    slice: RegisterSlice<AccessRequest>,
    asked: Fifo<Bit, ASKED, ASKED_COUNT>,
    answers: [Fifo<AccessAnswer, ANSWERS, ANSWER_COUNT>; 2],
    /// Answers of each port that are outstanding or not taken.
    open: [Reg<Bits<ANSWER_COUNT>>; 2],
}

impl Logic for RegionMux {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.arbiter.last.next = bits(3);
        for i in 0..2 {
            StreamTx::link(&mut self.answer[i], &mut self.answers[i].tx);
        }
        let may_ask = self.slice.rx.ready.val() && self.asked.rx.ready.val();
        for i in 0..2 {
            let has_room = !self.open[i].q.val().get_bit(ANSWERS);
            self.arbiter.rx[i].offer(self.request[i].valid.val() && has_room, self.request[i].beat.val());
            self.request[i].ready.next = self.arbiter.rx[i].ready.val() && has_room;
        }
        let asks = self.arbiter.tx.valid.val() && may_ask;
        let origin = self.arbiter.origin.val();
        self.arbiter.tx.ready.next = may_ask;
        self.slice.rx.offer(asks, self.arbiter.tx.beat.val());
        self.asked.rx.offer(asks, origin.get_bit(1));
        StreamTx::link(&mut self.table_request, &mut self.slice.tx);

        let comes = self.table_answer.valid.val();
        let is_second = self.asked.tx.beat.val();
        self.table_answer.ready.next = true;
        self.asked.tx.ready.next = comes;
        for i in 0..2 {
            let is_mine = if i == 0 { !is_second } else { is_second };
            self.answers[i].rx.offer(comes && is_mine, self.table_answer.beat.val());
            let has_asked = asks && origin.get_bit(i);
            let takes = self.answers[i].tx.valid.val() && self.answer[i].ready.val();
            let open = self.open[i].q.val();
            if has_asked && !takes {
                self.open[i].d.next = open + 1;
            }
            if takes && !has_asked {
                self.open[i].d.next = open - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};
    use std::collections::VecDeque;

    #[test]
    fn answers_return_to_their_port_and_no_port_blocks_the_other() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench = Bench::clocked(RegionMux::default(), |block| &mut block.clock).in_lock_step();
            let asked = |client: u64, number: u64| AccessRequest {
                key: bits(client),
                address: bits(number),
                ..AccessRequest::default()
            };
            let mut sources =
                [0, 1].map(|client| Source::of_tokens((0..300).map(|number| asked(client, number)), stalls));
            let mut sinks = [Sink::new(stalls), Sink::new(stalls)];
            let mut table = Sink::new(stalls);
            let mut answers = Source::of_tokens([], Stalls::None);
            let mut due: VecDeque<(u64, AccessAnswer)> = VecDeque::new();
            let mut cycle = 0;
            // The second port takes no answer until the first has all of its answers.
            while sinks[1].received.len() < 300 {
                while due.front().is_some_and(|due| due.0 <= cycle) {
                    answers.push(due.pop_front().expect("it is there").1);
                }
                for i in 0..2 {
                    sources[i].drive(&mut bench.block.request[i], &mut random);
                    sinks[i].drive(&mut bench.block.answer[i], &mut random);
                }
                bench.block.answer[1].ready.next &= sinks[0].received.len() == 300;
                table.drive(&mut bench.block.table_request, &mut random);
                answers.drive(&mut bench.block.table_answer, &mut random);
                bench.settle();
                for i in 0..2 {
                    sources[i].sample(&bench.block.request[i]);
                    sinks[i].sample(&bench.block.answer[i]);
                }
                assert!(bench.block.table_answer.ready.val(), "the table is never blocked");
                answers.sample(&bench.block.table_answer);
                if let Some(request) = table.sample(&bench.block.table_request) {
                    let device_address = request.address + (request.key.to_u64() << 32);
                    let answer = AccessAnswer { ok: request.key == 1, device_address };
                    let after = due.back().map_or(0, |due: &(u64, _)| due.0 + 1);
                    due.push_back((after.max(cycle + random.random_range(1..8)), answer));
                }
                bench.tick();
                cycle += 1;
                assert!(cycle < 20_000, "both ports get all answers");
            }
            for (client, sink) in sinks.iter().enumerate() {
                let expected = (0..300).map(|number| AccessAnswer {
                    ok: client == 1,
                    device_address: bits(number + ((client as u64) << 32)),
                });
                assert!(sink.received.iter().copied().eq(expected), "client {client}");
            }
        }
    }
}
