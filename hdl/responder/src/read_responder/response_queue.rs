//! ResponseQueue: responses that wait for their access answers and for gather.
//!
//! Gather has a buffer of its own before the wire, so little has to wait here: what does delays the responses of all
//! queue pairs that come after it.
//!
//! ```text
//!  rx ──> queue (128) ──> tx
//!   └─> units <── left ───┘ └──> may_turn
//! ```
//!
//! One response a cycle, latency 1 cycle.
//!
//! 1. Responses leave in order.
//! 2. `may_turn` is high while there is room for all responses of a turn, and less than a quantum waits, in bytes as they
//!    are on the wire.
use super::record::{Response, TURN_LOG2, UNIT_COUNT_BITS, is_quantum, units_of};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;

/// log2 of the responses that wait.
const RESPONSES: usize = 7;
const RESPONSE_COUNT: usize = RESPONSES + 1;
/// Most responses that wait when a turn begins: as many are left for the turn.
const WAITING_MAX: u64 = 1 << TURN_LOG2;

/// Queue of responses; see the module.
#[clocked(reset = "empties the queue")]
#[derive(Default, LogicBlock, Registers)]
pub(super) struct ResponseQueue {
    /// Responses.
    pub rx: StreamRx<Response>,
    /// To the sender; registered.
    pub tx: StreamTx<Response>,
    /// A turn may begin; a function of registers.
    pub may_turn: Signal<Out, Bit>,
    queue: Fifo<Response, RESPONSES, RESPONSE_COUNT>,
    units: Reg<Bits<UNIT_COUNT_BITS>>,
}

impl Logic for ResponseQueue {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamRx::link(&mut self.rx, &mut self.queue.rx);
        StreamTx::link(&mut self.tx, &mut self.queue.tx);
        let enters = self.rx.valid.val() && self.queue.rx.ready.val();
        let leaves = self.queue.tx.valid.val() && self.tx.ready.val();
        let entered = units_of(enters, self.rx.beat.val().payload_bytes);
        let left = units_of(leaves, self.queue.tx.beat.val().payload_bytes);
        let units = self.units.q.val();
        self.units.d.next = units + entered - left;
        self.may_turn.next = self.queue.level.val() <= WAITING_MAX && !is_quantum(units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};

    #[test]
    fn a_turn_waits_for_room_and_for_bytes() {
        let mut random = random();
        // Cycles in which turns waited for bytes, and for room.
        let mut waits = [0; 2];
        for stalls in Stalls::ALL {
            let mut bench = Bench::clocked(ResponseQueue::default(), |block| &mut block.clock).in_lock_step();
            let (mut source, mut sink) = (Source::of_tokens([], stalls), Sink::new(stalls));
            let mut waiting = std::collections::VecDeque::new();
            let mut turns: u64 = 0;
            while turns < 200 {
                let units = waiting.iter().sum::<u64>();
                let level = waiting.len();
                bench.settle();
                let may_turn = bench.block.may_turn.val();
                assert_eq!(may_turn, level <= 64 && units < 512, "{level} responses of {units} units");
                waits[0] += u64::from(units >= 512);
                waits[1] += u64::from(level > 64);
                if may_turn && source.is_done() {
                    let (packets, bytes) = [(4, 4096), (16, 1024), (64, 256), (60, 0)][turns as usize / 50];
                    for number in 0..packets {
                        let payload_bytes = bits(bytes);
                        source.push(Response { psn: bits(number), payload_bytes, ..Response::default() });
                    }
                    turns += 1;
                }
                source.drive(&mut bench.block.rx, &mut random);
                sink.drive(&mut bench.block.tx, &mut random);
                bench.settle();
                if source.sample(&bench.block.rx) {
                    waiting.push_back(bench.block.rx.beat.val().payload_bytes.to_u64() / 32 + 3);
                }
                if sink.sample(&bench.block.tx).is_some() {
                    waiting.pop_front();
                }
                bench.tick();
            }
        }
        assert!(waits[0] > 0 && waits[1] > 0, "{waits:?}");
    }
}
