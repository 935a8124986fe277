//! Strips the headers of a frame, and aligns its payload to lane 0.
//!
//! Headers end anywhere, so every payload beat is made of two frame beats: the end of one and the beginning of the
//! next. Both are rotated by the same distance as they pass, so one rotator serves for both, and a mask then
//! takes each lane from the one or the other.
//!
//! ```text
//!             ┌────────────┐   ┌────────────┐ next  ┌──────┐
//!  beat ─────>│ rotate by  ├─┬>│ rotate by  ├─┬────>│ merge├──> payload, payload_valid
//!             │ 4, 8 dwords│   │ 1, 2 dwords│ │ ┌──>│      │    frame_end
//!             └────────────┘   └────────────┘ └▯┘   └──────┘
//!  cycle           0                 1         2 current  3
//! ```
//!
//! At 64 bits, 12 bytes of payload that begin at byte 6 (no header is that short), with a gap before the last beat:
//! ```text
#![doc = include_str!("waves/strip.txt")]
//! ```
//!
//! Latency 4 cycles after the last beat of a frame, and after any beat that another one follows at once;
//! throughput one beat a cycle; never stalls.
//!
//! A header always is 4m + 2 bytes long (14 or 18 bytes of Ethernet, and multiples of 4), hence rotation by whole
//! dwords and two bytes more.
//!
//! No flush is ever needed: a payload beat leaves in the cycle of the frame beat with its first byte, and takes its other bytes from
//! the next frame beat. With B bytes a beat, `h = k0 * B + r` header bytes (`r < B`) and P payload
//! bytes, the frame is at least `h + P + 4` bytes long, that is `n >= k0 + ceil((r + P + 4) / B)` beats, and so
//! `n >= k0 + ceil(P / B)`: there are as many frame beats from `k0` on as payload beats.
//!
//! 1. A frame with `payload_bytes` = P gives `ceil(P / B)` payload beats; bytes after P are undefined.
//! 2. `frame_end` is high for one cycle per frame, exactly 4 cycles after its last beat, and no earlier than with its
//!    last payload beat.
//! 3. A frame that is shorter than its headers say gives no more payload beats than it has beats.
//!
//! Refuses nothing. Protocol 1.1, 1.7.
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Beat, ValidRx, ValidTx};
use rnic_kernel::prelude::*;

/// Cycles from the last beat of a frame to [`Strip::frame_end`].
pub const STRIP_LATENCY: usize = 4;

/// Rotates to the right by `distance` bits, unless the beat is no wider than that.
#[kernel]
fn rotate<const DATA: usize>(data: Bits<DATA>, distance: usize) -> Bits<DATA> {
    if distance < DATA { (data >> (distance as u64)) | (data << ((DATA - distance) as u64)) } else { data }
}

/// Rotates to the right by `count`, 0 to 3, units of `unit` bits.
#[kernel]
fn rotate_by<const DATA: usize>(data: Bits<DATA>, count: Bits<2>, unit: usize) -> Bits<DATA> {
    match count.to_u64() {
        0 => data,
        1 => rotate::<DATA>(data, unit),
        2 => rotate::<DATA>(data, 2 * unit),
        _ => rotate::<DATA>(data, 3 * unit),
    }
}

/// Shifts payload to lane 0 and drops headers, pad and ICRC.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct Strip<const DATA: usize, const BYTES: usize> {
    /// A beat of a frame.
    pub beat: ValidRx<Beat<DATA, BYTES>>,
    /// `beat` is the first of its frame.
    pub beat_first: Signal<In, Bit>,
    /// With the first beat: bytes before the payload, 4m + 2 and at most 106.
    pub header_bytes: Signal<In, Bits<7>>,
    /// With the first beat: bytes of the payload.
    pub payload_bytes: Signal<In, Bits<13>>,

    /// To the buffer: payload, from lane 0 on; registered.
    pub payload: ValidTx<Bits<DATA>>,
    /// The frame has passed; registered.
    pub frame_end: Signal<Out, Bit>,

    /// Of the frame that passes: header bytes, beats to skip, payload bytes to come.
    header_bytes_held: DFF<Bits<7>>,
    skip_beats: DFF<Bits<4>>,
    payload_bytes_left: DFF<Bits<13>>,

    coarse: DFF<Bits<DATA>>,
    coarse_flags: DFF<BeatFlags>,
    coarse_valid: Reg<Bit>,
    next_beat: DFF<Bits<DATA>>,
    next_flags: DFF<BeatFlags>,
    next_valid: Reg<Bit>,
    current: DFF<Bits<DATA>>,
    current_flags: DFF<BeatFlags>,
    current_valid: Reg<Bit>,
    merged: DFF<Bits<DATA>>,
    merged_valid: Reg<Bit>,
    merged_end: Reg<Bit>,
}

/// What travels with a beat.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct BeatFlags {
    /// The last of its frame.
    last: Bit,
    /// A payload beat begins in it.
    carries: Bit,
    /// Dwords by which it is rotated.
    dwords: Bits<4>,
}

impl<const DATA: usize, const BYTES: usize> Strip<DATA, BYTES> {
    const BEAT_BYTES: u64 = DATA as u64 / 8;
    const LANE_BITS: u64 = BYTES as u64 - 1;
}

impl<const DATA: usize, const BYTES: usize> Logic for Strip<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let beat = self.beat.value.val();
        let is_first = self.beat_first.val();

        // Cycle 0: count beats down to the payload, and payload down to nothing; rotate by many dwords.
        let header_bytes = select(is_first, self.header_bytes.val(), self.header_bytes_held.q.val());
        let skip_beats = select(
            is_first,
            bit_cast::<4, 7>(self.header_bytes.val() >> Self::LANE_BITS),
            self.skip_beats.q.val(),
        );
        let bytes_left = select(is_first, self.payload_bytes.val(), self.payload_bytes_left.q.val());
        let is_header = skip_beats.any();
        if self.beat.valid.val() {
            self.header_bytes_held.d.next = header_bytes;
            self.skip_beats.d.next = if is_header { skip_beats - 1 } else { skip_beats };
            self.payload_bytes_left.d.next = if is_header {
                bytes_left
            } else if bytes_left < Self::BEAT_BYTES {
                bits::<13>(0)
            } else {
                bytes_left - Self::BEAT_BYTES
            };
        }
        let dwords = bit_cast::<4, 7>((header_bytes & (Self::BEAT_BYTES - 1)) >> 2);
        self.coarse.d.next = rotate_by::<DATA>(beat.data, dwords.get_bits::<2>(2), 128);
        self.coarse_flags.d.next =
            BeatFlags { last: beat.last, carries: !is_header && bytes_left.any(), dwords };
        self.coarse_valid.d.next = self.beat.valid.val();

        // Cycle 1: rotate by few dwords, and by the two bytes that every header has beyond whole dwords.
        let flags = self.coarse_flags.q.val();
        let fine = rotate_by::<DATA>(self.coarse.q.val(), flags.dwords.get_bits::<2>(0), 32);
        self.next_beat.d.next = rotate::<DATA>(fine, 16);
        self.next_flags.d.next = flags;
        self.next_valid.d.next = self.coarse_valid.q.val();

        // Cycle 2: a beat waits until the next one of its frame is there, if there is one.
        let current = self.current_flags.q.val();
        let next_valid = self.next_valid.q.val();
        let leaves = self.current_valid.q.val() && (current.last || next_valid);
        if next_valid {
            self.current.d.next = self.next_beat.q.val();
            self.current_flags.d.next = self.next_flags.q.val();
        }
        self.current_valid.d.next = next_valid || (self.current_valid.q.val() && !leaves);

        // Cycle 3: the lanes up to the end of the current beat are its own, the others are the next one's.
        let distance: Bits<9> = cat!(current.dwords, bits::<5>(0));
        let own_lanes = (!bits::<DATA>(0) >> 16) >> distance;
        self.merged.d.next = (self.current.q.val() & own_lanes) | (self.next_beat.q.val() & !own_lanes);
        self.merged_valid.d.next = leaves && current.carries;
        self.merged_end.d.next = leaves && current.last;

        self.payload.offer(self.merged_valid.q.val(), self.merged.q.val());
        self.frame_end.next = self.merged_end.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Random, Waves, beats_of, frames_of, random};
    use std::collections::VecDeque;

    /// A frame as `strip` sees it.
    struct Frame {
        bytes: Vec<u8>,
        header_bytes: usize,
        payload_bytes: usize,
    }

    /// A frame with any possible header length, payload, ICRC, and sometimes pad after it.
    fn frame(payload_bytes: usize, random: &mut Random) -> Frame {
        let header_bytes = 54 + 4 * random.random_range(0..=13);
        let pad_bytes = payload_bytes.wrapping_neg() % 4 + random.random_range(0..3);
        let length = header_bytes + payload_bytes + pad_bytes + 4;
        Frame { bytes: (0..length).map(|_| random.random()).collect(), header_bytes, payload_bytes }
    }

    /// Sends frames and compares every payload; the Verilog runs beside.
    fn payloads_are_aligned<const DATA: usize, const BYTES: usize>(gaps: bool) {
        let mut random = random();
        let mut bench = Bench::clocked(Strip::<DATA, BYTES>::default(), |block| &mut block.clock);
        bench = bench.in_lock_step();
        let lanes = DATA / 8;
        let lengths = [0, 1, lanes - 1, lanes, lanes + 1, 2 * lanes, 2 * lanes + 2, 130];
        let frames: Vec<_> = (0..40).map(|index| frame(lengths[index % 8], &mut random)).collect();
        let mut waiting = VecDeque::new();
        for (index, frame) in frames.iter().enumerate() {
            let beats = beats_of::<DATA, BYTES>(&frame.bytes, &mut random);
            waiting.extend(
                beats.into_iter().enumerate().map(|(beat_index, beat)| (index, beat_index == 0, beat)),
            );
        }
        // The cycle in which the last beat of each frame came.
        let mut ends = VecDeque::new();
        let (mut cycle, mut ended_count, mut payload) = (0, 0, Vec::new());
        while ended_count < frames.len() {
            let beat = if gaps && random.random() { None } else { waiting.pop_front() };
            let block = &mut bench.block;
            block.beat.valid.next = beat.is_some();
            if let Some((index, is_first, beat)) = beat {
                block.beat.value.next = beat;
                block.beat_first.next = is_first;
                let (header_bytes, payload_bytes) = match is_first {
                    true => (frames[index].header_bytes, frames[index].payload_bytes),
                    false => (random.random_range(0..128), random.random_range(0..5000)),
                };
                block.header_bytes.next = bits(header_bytes as u64);
                block.payload_bytes.next = bits(payload_bytes as u64);
                if beat.last {
                    ends.push_back(cycle);
                }
            }
            bench.settle();
            if bench.block.payload.valid.val() {
                let bytes = bits(lanes as u64);
                let data = bench.block.payload.value.val();
                payload.push(Beat::<DATA, BYTES> { data, bytes, last: false, error: false });
            }
            if bench.block.frame_end.val() {
                assert_eq!(ends.pop_front(), Some(cycle - STRIP_LATENCY));
                let frame = &frames[ended_count];
                assert_eq!(payload.len(), frame.payload_bytes.div_ceil(lanes), "beats of payload");
                if let Some(last) = payload.last_mut() {
                    last.bytes = bits(((frame.payload_bytes - 1) % lanes + 1) as u64);
                    last.last = true;
                    let expected = &frame.bytes[frame.header_bytes..][..frame.payload_bytes];
                    assert_eq!(frames_of(&payload), [(expected.to_vec(), false)]);
                }
                payload.clear();
                ended_count += 1;
            }
            bench.tick();
            cycle += 1;
        }
    }

    #[test]
    fn payloads_are_aligned_at_64_bits() {
        payloads_are_aligned::<64, 4>(false);
        payloads_are_aligned::<64, 4>(true);
    }

    #[test]
    fn payloads_are_aligned_at_128_bits() {
        payloads_are_aligned::<128, 5>(true);
    }

    #[test]
    fn payloads_are_aligned_at_256_bits() {
        payloads_are_aligned::<256, 6>(true);
    }

    #[test]
    fn payloads_are_aligned_at_512_bits() {
        payloads_are_aligned::<512, 7>(false);
        payloads_are_aligned::<512, 7>(true);
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("beat_valid").signal("beat_value.last").when("beat_valid");
        let waves = waves.signal("payload_valid").signal("frame_end");
        let mut bench = Bench::clocked(Strip::<64, 4>::default(), |block| &mut block.clock);
        bench = bench.recording(waves);
        for cycle in 0..9 {
            bench.block.beat.valid.next = matches!(cycle, 0 | 1 | 3);
            bench.block.beat_first.next = cycle == 0;
            bench.block.header_bytes.next = bits(6);
            bench.block.payload_bytes.next = bits(12);
            bench.block.beat.value.next = Beat { bytes: bits(8), last: cycle == 3, ..Beat::default() };
            bench.tick();
        }
        bench.waves().expect("waves/strip.txt");
    }
}
