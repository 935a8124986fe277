//! Register slice: cuts a stream in time, in both directions.
//!
//! Long paths end here: `valid` and the beat leave from flip-flops, and so does `ready`, so no logic reaches through.
//!
//! ```text
//!            ┌──────────────────────────────┐
//!            │            ┌───────────────┐ │
//!  rx.beat ──┼─┬──────────┤0              │ │
//!  rx.valid ─┤ │ ┌───────┐│ select ─> head├─┼─ tx.beat, tx.valid
//!  rx.ready ─┤ └─┤ spare ├┤1              │ │
//!            │   └───────┘└───────────────┘ ├─ tx.ready
//!            └──────────────────────────────┘
//! ```
//!
//! The sink stalls in cycles 3 and 4; the source stalls from cycle 4 on:
//! ```text
#![doc = include_str!("waves/slice.txt")]
//! ```
//!
//! Latency 1 cycle, throughput one beat a cycle. With beats of 512 bits of data: 524 LUT, 1044 FF, depth 1.
//!
//! 1. Beats leave in the order of arrival; none is lost or duplicated.
//! 2. `spare` is valid only while `head` is.
//! 3. `rx.ready`, `tx.valid` and `tx.beat` are registers.
use super::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;

/// A stage of two beats between two neighbours.
#[clocked(reset = "forgets the beats")]
#[derive(Default, LogicBlock, Registers)]
pub struct RegisterSlice<T: Synth> {
    /// From the block before; `ready` is registered.
    pub rx: StreamRx<T>,
    /// To the next block; registered.
    pub tx: StreamTx<T>,
    head: DFF<T>,
    head_valid: Reg<Bit>,
    spare: DFF<T>,
    spare_valid: Reg<Bit>,
}

impl<T: Synth> Logic for RegisterSlice<T> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_stalled = self.head_valid.q.val() && !self.tx.ready.val();
        let spare_valid = self.spare_valid.q.val();

        self.rx.ready.next = !spare_valid;
        self.tx.offer(self.head_valid.q.val(), self.head.q.val());

        // Without a spare beat the register follows the input, so that a stall finds the beat already there.
        if !spare_valid {
            self.spare.d.next = self.rx.beat.val();
        }
        if is_stalled {
            self.spare_valid.d.next = spare_valid || self.rx.valid.val();
        } else {
            self.head.d.next = select(spare_valid, self.spare.q.val(), self.rx.beat.val());
            self.head_valid.d.next = spare_valid || self.rx.valid.val();
            self.spare_valid.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Stalls, Stimulus, Waves, random, transfer};
    use rand::Rng;

    type Slice = RegisterSlice<Bits<40>>;

    fn bench() -> Bench<Slice> {
        Bench::clocked(Slice::default(), |block| &mut block.clock).in_lock_step()
    }

    #[test]
    fn beats_leave_in_order_whoever_stalls() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench = bench();
            let beats: Vec<Bits<40>> = (0..500).map(|_| Stimulus::sample(&mut random)).collect();
            let (received, cycles) = transfer(
                &mut bench,
                |block| &mut block.rx,
                |block| &mut block.tx,
                beats.clone(),
                beats.len(),
                stalls,
                &mut random,
            );
            assert_eq!(received, beats, "stalls: {stalls:?}");
            if stalls == Stalls::None {
                assert_eq!(cycles, beats.len() + 1, "one beat a cycle after one cycle of latency");
            }
        }
    }

    /// Inputs that no connected block would give, and resets at any time.
    #[test]
    fn any_input_does_the_same_in_verilog() {
        let mut random = random();
        let mut bench = bench();
        for _ in 0..500 {
            bench.block.reset.next = random.random_bool(0.05);
            bench.block.rx.beat.next = Stimulus::sample(&mut random);
            bench.block.rx.valid.next = random.random();
            bench.block.tx.ready.next = random.random();
            bench.tick();
        }
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("rx_valid").signal("rx_beat").when("rx_valid").signal("rx_ready");
        let waves = waves.signal("tx_valid").signal("tx_beat").when("tx_valid").signal("tx_ready");
        let slice = RegisterSlice::<Bits<8>>::default();
        let mut bench = Bench::clocked(slice, |block| &mut block.clock).recording(waves);
        let mut beats = (0xa1..=0xa5).peekable();
        for cycle in 0..10 {
            let beat = if cycle >= 1 { beats.peek().copied() } else { None };
            bench.block.rx.valid.next = beat.is_some();
            bench.block.rx.beat.next = bits(beat.unwrap_or(0));
            bench.block.tx.ready.next = !(3..=4).contains(&cycle);
            bench.settle();
            if beat.is_some() && bench.block.rx.ready.val() {
                beats.next();
            }
            bench.tick();
        }
        bench.waves().expect("stream/waves/slice.txt");
    }
}
