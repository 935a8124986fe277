//! Collects the first 128 bytes of every frame, so that the parser is independent of the width of the datapath.
//!
//! The beats of a frame move through a window as wide as the header vector. When the first beat of a frame reaches
//! its oldest position, the window *is* the header vector: it is output in that one cycle, while the beat leaves. So even
//! frames of one beat, one in every cycle, each have a vector, and no header is stored twice.
//!
//! ```text
//!              ┌──────────────── 128 bytes ───────────────┐
//!  from_mac ──>│ newest │  ...  │  ...  │  ...  │  oldest ├──> beat, beat_first
//!              └───┬────────┬───────┬───────┬────────┬────┘
//!                  └────────┴───────┴───────┴────────┴───────> header, header_bytes
//! ```
//!
//! A frame of one beat and a frame of two, at 512 bits:
//! ```text
#![doc = include_str!("waves/collect.txt")]
//! ```
//!
//! Latency `1024 / DATA` cycles (2, 4, 8, 16), throughput one beat a cycle. There is no `ready`: the MAC is never
//! stalled. The window stops only in a gap *inside* a frame, and moves with the next beat; after the last beat of a frame it
//! empties by itself.
//!
//! 1. Every beat leaves once, in order.
//! 2. `header.valid` is high for one cycle per frame, together with the first beat of the frame.
//! 3. The bytes of `header` below `header_bytes` are those of the frame; the others have no meaning.
//!
//! Refuses nothing. Protocol 1.1, 1.7.
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Beat, ValidRx, ValidTx};
use rnic_kernel::prelude::*;

/// Bits of a header vector: 128 bytes, more than the longest chain of headers (106 bytes, protocol 1.7).
pub const HEADER_BITS: usize = 1024;

/// The window over the beats from the MAC.
#[clocked(reset = "forgets the frames in the window")]
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct Collect<const DATA: usize, const BYTES: usize> {
    /// From the MAC: a beat of a frame.
    pub from_mac: ValidRx<Beat<DATA, BYTES>>,

    /// To the parser: the first bytes of a frame, byte 0 in bits 7:0; registered. `valid` depends on `from_mac` in this cycle.
    pub header: ValidTx<Bits<HEADER_BITS>>,
    /// Number of bytes of the frame in `header`, 1 to 128; a function of registers.
    pub header_bytes: Signal<Out, Bits<8>>,

    /// To the delay line: the oldest beat; registered. `valid` depends on `from_mac` in this cycle.
    pub beat: ValidTx<Beat<DATA, BYTES>>,
    /// `beat` is the first of its frame; registered.
    pub beat_first: Signal<Out, Bit>,

    window: DFF<Bits<HEADER_BITS>>,
    counts: DFF<Bits<64>>,
    firsts: DFF<Bits<16>>,
    errors: DFF<Bits<16>>,
    lasts: Reg<Bits<16>>,
    occupied: Reg<Bits<16>>,
    is_inside: Reg<Bit>,
}

impl<const DATA: usize, const BYTES: usize> Collect<DATA, BYTES> {
    /// Beats in the window.
    pub const STAGES: usize = HEADER_BITS / DATA;
}

impl<const DATA: usize, const BYTES: usize> Logic for Collect<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let beat = self.from_mac.value.val();
        let is_valid = self.from_mac.valid.val();
        let is_inside = self.is_inside.q.val();

        // The window moves unless the next beat of the newest frame has not come yet.
        let moves = is_valid || !is_inside;
        if moves {
            self.window.d.next = (self.window.q.val() >> (DATA as u64))
                | (bit_cast::<HEADER_BITS, DATA>(beat.data) << ((HEADER_BITS - DATA) as u64));
            self.counts.d.next = (self.counts.q.val() >> (BYTES as u64))
                | (bit_cast::<64, BYTES>(beat.bytes) << (((Self::STAGES - 1) * BYTES) as u64));
            self.firsts.d.next = (self.firsts.q.val() >> 1)
                | (bit_cast::<16, 1>((!is_inside).into()) << ((Self::STAGES - 1) as u64));
            self.errors.d.next = (self.errors.q.val() >> 1)
                | (bit_cast::<16, 1>(beat.error.into()) << ((Self::STAGES - 1) as u64));
            self.lasts.d.next = (self.lasts.q.val() >> 1)
                | (bit_cast::<16, 1>((is_valid && beat.last).into()) << ((Self::STAGES - 1) as u64));
            self.occupied.d.next = (self.occupied.q.val() >> 1)
                | (bit_cast::<16, 1>(is_valid.into()) << ((Self::STAGES - 1) as u64));
        }
        if is_valid {
            self.is_inside.d.next = !beat.last;
        }

        let oldest_leaves = moves && self.occupied.q.val().get_bit(0);
        let counts = self.counts.q.val();
        self.beat.value.next = Beat::<DATA, BYTES> {
            data: self.window.q.val().get_bits::<DATA>(0),
            bytes: counts.get_bits::<BYTES>(0),
            last: self.lasts.q.val().get_bit(0),
            error: self.errors.q.val().get_bit(0),
        };
        self.beat.valid.next = oldest_leaves;
        self.beat_first.next = self.firsts.q.val().get_bit(0);

        self.header.offer(oldest_leaves && self.firsts.q.val().get_bit(0), self.window.q.val());
        // The oldest end of a frame in the window is that of the frame in front.
        self.header_bytes.next = bits(128);
        for stage in (0..Self::STAGES).rev() {
            if self.lasts.q.val().get_bit(stage) {
                self.header_bytes.next = bit_cast::<8, BYTES>(counts.get_bits::<BYTES>(stage * BYTES))
                    + ((stage * DATA / 8) as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Waves, beats_of, frames_of, random};
    use std::collections::VecDeque;

    fn bench<const DATA: usize, const BYTES: usize>() -> Bench<Collect<DATA, BYTES>> {
        Bench::clocked(Collect::default(), |block| &mut block.clock)
    }

    /// Sends frames of random lengths with gaps everywhere; every header must be right, and every beat pass.
    fn headers_come_with_first_beats<const DATA: usize, const BYTES: usize>(gaps: bool, frame_count: usize) {
        let mut random = random();
        let mut bench = bench::<DATA, BYTES>().in_lock_step();
        let lengths = [1, DATA / 8, DATA / 8 + 1, 127, 128, 129];
        let frame = |index: usize| -> Vec<u8> {
            let length = lengths.get(index).copied().unwrap_or_else(|| random.random_range(1..300));
            (0..length).map(|_| random.random()).collect()
        };
        let frames: Vec<_> = (0..frame_count).map(frame).collect();
        let beats: Vec<_> =
            frames.iter().flat_map(|frame| beats_of::<DATA, BYTES>(frame, &mut random)).collect();
        let beat_count = beats.len();
        let mut waiting = VecDeque::from(beats);
        let (mut headers, mut beats, mut cycles) = (Vec::new(), Vec::new(), 0);
        while beats.len() < beat_count {
            let beat = if gaps && random.random() { None } else { waiting.pop_front() };
            bench.block.from_mac.valid.next = beat.is_some();
            bench.block.from_mac.value.next = beat.unwrap_or_default();
            bench.settle();
            let block = &bench.block;
            if block.header.valid.val() {
                assert!(block.beat.valid.val() && block.beat_first.val());
                let count = block.header_bytes.val().to_u64() as usize;
                let mut bytes = BigUint::from(block.header.value.val()).to_bytes_le();
                bytes.resize(128, 0);
                headers.push(bytes[..count].to_vec());
            }
            if block.beat.valid.val() {
                assert_eq!(block.beat_first.val(), block.header.valid.val());
                beats.push(block.beat.value.val());
            }
            bench.tick();
            cycles += 1;
        }
        let expected: Vec<_> = frames.iter().map(|frame| frame[..frame.len().min(128)].to_vec()).collect();
        assert_eq!(headers, expected);
        assert_eq!(frames_of(&beats), frames.into_iter().map(|frame| (frame, false)).collect::<Vec<_>>());
        if !gaps {
            assert_eq!(cycles, beat_count + Collect::<DATA, BYTES>::STAGES);
        }
    }

    #[test]
    fn headers_come_with_first_beats_at_every_width() {
        for gaps in [false, true] {
            headers_come_with_first_beats::<64, 4>(gaps, 20);
            headers_come_with_first_beats::<128, 5>(gaps, 20);
            headers_come_with_first_beats::<256, 6>(gaps, 20);
            headers_come_with_first_beats::<512, 7>(gaps, 20);
        }
    }

    #[test]
    fn impossible_widths_are_refused() {
        assert_eq!(Collect::<64, 4>::REFUSAL, None);
        assert_eq!(Collect::<512, 7>::REFUSAL, None);
        assert!(Collect::<32, 3>::REFUSAL.is_some_and(|refusal| refusal.contains("DATA")));
        assert!(Collect::<1024, 8>::REFUSAL.is_some_and(|refusal| refusal.contains("DATA")));
        assert!(Collect::<64, 5>::REFUSAL.is_some_and(|refusal| refusal.contains("BYTES")));
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves =
            Waves::new().signal("from_mac_valid").signal("from_mac_value.bytes").when("from_mac_valid");
        let waves = waves.signal("from_mac_value.last").when("from_mac_valid");
        let waves = waves.signal("header_valid").signal("header_bytes").when("header_valid");
        let waves = waves.signal("beat_valid").signal("beat_value.bytes").when("beat_valid");
        let mut bench = bench::<512, 7>().recording(waves);
        let beats = [(60, true), (64, false), (40, true)];
        for cycle in 0..7 {
            let beat = beats.get(cycle);
            bench.block.from_mac.valid.next = beat.is_some();
            if let Some((bytes, last)) = beat {
                bench.block.from_mac.value.next =
                    Beat { bytes: bits(*bytes), last: *last, ..Default::default() };
            }
            bench.tick();
        }
        bench.waves().expect("waves/collect.txt");
    }
}
