//! A counter of frames and a counter of their bytes, with a copy for the reader.
use rnic_kernel::prelude::*;

/// Counts frames and bytes; `latch` copies both at once.
///
/// Latency 1 cycle; one event a cycle. Events of the cycle of `latch` are not in the copy. Counts wrap at 2^64, and no reset
/// clears them: as with those of the packet path, software reads differences.
#[clocked]
#[derive(Default, LogicBlock, Registers)]
pub(super) struct Totals {
    /// A frame has ended.
    pub frame: Signal<In, Bit>,
    /// Bytes of this cycle.
    pub bytes: Signal<In, Bits<16>>,
    /// Copy both counts.
    pub latch: Signal<In, Bit>,
    /// Frames up to the last `latch`; registered.
    pub latched_frames: Signal<Out, Bits<64>>,
    /// Bytes up to the last `latch`; registered.
    pub latched_bytes: Signal<Out, Bits<64>>,
    frames_counted: DFF<Bits<64>>,
    bytes_counted: DFF<Bits<64>>,
    frames_copied: DFF<Bits<64>>,
    bytes_copied: DFF<Bits<64>>,
}

impl Logic for Totals {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        if self.frame.val() {
            self.frames_counted.d.next = self.frames_counted.q.val() + 1;
        }
        self.bytes_counted.d.next = self.bytes_counted.q.val() + bit_cast::<64, 16>(self.bytes.val());
        if self.latch.val() {
            self.frames_copied.d.next = self.frames_counted.q.val();
            self.bytes_copied.d.next = self.bytes_counted.q.val();
        }
        self.latched_frames.next = self.frames_copied.q.val();
        self.latched_bytes.next = self.bytes_copied.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Stimulus, random};

    #[test]
    fn copies_hold_what_came_before_the_latch() {
        let mut random = random();
        let mut bench = Bench::clocked(Totals::default(), |block| &mut block.clock).in_lock_step();
        let (mut frames, mut bytes, mut copied) = (0u64, 0u64, (0, 0));
        for _ in 0..500 {
            let (frame, latch) = (random.random(), random.random_bool(0.1));
            let length: Bits<16> = Stimulus::sample(&mut random);
            bench.block.frame.next = frame;
            bench.block.bytes.next = length;
            bench.block.latch.next = latch;
            bench.tick();
            if latch {
                copied = (frames, bytes);
            }
            frames += u64::from(frame);
            bytes += length.to_u64();
            bench.settle();
            assert_eq!(bench.block.latched_frames.val().to_u64(), copied.0);
            assert_eq!(bench.block.latched_bytes.val().to_u64(), copied.1);
        }
    }
}
