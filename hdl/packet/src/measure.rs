//! Measures each frame: the beats that the ICRC covers, the length of the frame, and whether its IP packet fits.
//!
//! The ICRC is at the end of the IP packet, not of the frame: a short frame has Ethernet pad after it (protocol 1.1). Where the packet
//! ends, and whether the frame is that long, is one comparison for each beat, made here for all other blocks.
//!
//! ```text
//!  beat, beat_first ──>┌─────────┐──> beat, beat_first, beat_valid     (strip)
//!  coverage ──────────>│ Measure │──> to_icrc, to_icrc_valid           (IcrcCheck)
//!  (with beat_first)   └─────────┘──> frame_end, frame                 (dispatch)
//! ```
//!
//! Latency 1 cycle, throughput one beat a cycle; never stalls.
//!
//! 1. `to_icrc` carries the beats of a frame up to the one with the last byte of its IP packet, that with `end`.
//!    A frame that ends before gets no `end`, or one that the verdict on its length makes void.
//! 2. `frame` describes the frame whose last beat is `beat`, while `frame_end` is high.
//!
//! Protocol 1.1, 1.8.
use super::icrc::CoveredBeat;
use super::parse::Coverage;
use rnic_blocks::stream::{Beat, ValidRx, ValidTx};
use rnic_kernel::prelude::*;

/// The longest frame that is accepted, a whole number of beats at every width.
const FRAME_BYTES_MAX: u64 = rnic_layout::limits::FRAME_BYTES_MAX as u64;

/// Measurements of a frame, known at its last beat.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct FrameEnd {
    /// Length of the frame in bytes. Saturates far above the longest accepted frame.
    pub frame_bytes: Bits<16>,
    /// The MAC marked the frame as bad.
    pub mac_error: Bit,
    /// The frame is longer than [`rnic_layout::limits::FRAME_BYTES_MAX`].
    pub too_long: Bit,
    /// The IP length exceeds the frame.
    pub ip_length: Bit,
}

/// Marks what the ICRC covers, and where each frame ends.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct Measure<const DATA: usize, const BYTES: usize> {
    /// From the delay line.
    pub from_delay: ValidRx<Beat<DATA, BYTES>>,
    /// `from_delay` is the first beat of its frame.
    pub from_delay_first: Signal<In, Bit>,
    /// From the parser, with the first beat.
    pub coverage: Signal<In, Coverage>,

    /// To strip: the beat; registered.
    pub beat: ValidTx<Beat<DATA, BYTES>>,
    /// `beat` is the first of its frame; registered.
    pub beat_first: Signal<Out, Bit>,
    /// To the ICRC check; registered.
    pub to_icrc: ValidTx<CoveredBeat<DATA, BYTES>>,
    /// To dispatch: the frame ends with this beat; registered.
    pub frame_end: Signal<Out, Bit>,
    /// Measurements of that frame; registered.
    pub frame: Signal<Out, FrameEnd>,

    beat_out: DFF<Beat<DATA, BYTES>>,
    first_out: DFF<Bit>,
    valid_out: Reg<Bit>,
    end_out: DFF<Bit>,
    end_bytes_out: DFF<Bits<BYTES>>,
    covered_valid: Reg<Bit>,
    frame_out: DFF<FrameEnd>,
    /// Coverage from the parser, stored at the first beat.
    covered: DFF<Coverage>,
    /// Bytes of the frame before the next beat.
    bytes_before: DFF<Bits<16>>,
    /// The last byte of the IP packet has passed.
    is_behind: DFF<Bit>,
}

impl<const DATA: usize, const BYTES: usize> Measure<DATA, BYTES> {
    const BEAT_BYTES: u64 = DATA as u64 / 8;
    /// Low bits of an offset that select a byte within a beat.
    const LANE_BITS: u64 = BYTES as u64 - 1;
}

impl<const DATA: usize, const BYTES: usize> Logic for Measure<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let beat = self.from_delay.value.val();
        let is_valid = self.from_delay.valid.val();
        let is_first = self.from_delay_first.val();

        let coverage = select(is_first, self.coverage.val(), self.covered.q.val());
        let bytes_before = select(is_first, bits::<16>(0), self.bytes_before.q.val());
        let is_behind = !is_first && self.is_behind.q.val();

        let last_byte = bit_cast::<16, 13>(coverage.last_byte);
        let is_here = (last_byte >> Self::LANE_BITS) == (bytes_before >> Self::LANE_BITS);
        let end_bytes = (bit_cast::<BYTES, 16>(last_byte) & (Self::BEAT_BYTES - 1)) + 1;
        let ends = is_here && !is_behind;
        let is_covered = is_behind || (is_here && end_bytes <= beat.bytes);

        if is_valid {
            self.covered.d.next = coverage;
            self.is_behind.d.next = is_behind || ends;
            // A frame that never ends must not look short again.
            self.bytes_before.d.next = if bytes_before < 65536 - 2 * Self::BEAT_BYTES {
                bytes_before + Self::BEAT_BYTES
            } else {
                bytes_before
            };
        }

        self.beat_out.d.next = beat;
        self.first_out.d.next = is_first;
        self.valid_out.d.next = is_valid;
        self.end_out.d.next = ends;
        self.end_bytes_out.d.next = end_bytes;
        self.covered_valid.d.next = is_valid && !is_behind;
        self.frame_out.d.next = FrameEnd {
            frame_bytes: bytes_before + bit_cast::<16, BYTES>(beat.bytes),
            mac_error: beat.error,
            too_long: bytes_before >= FRAME_BYTES_MAX,
            ip_length: !is_covered,
        };

        self.beat.offer(self.valid_out.q.val(), self.beat_out.q.val());
        self.beat_first.next = self.first_out.q.val();
        self.to_icrc.value.next = CoveredBeat::<DATA, BYTES> {
            data: self.beat_out.q.val().data,
            start: self.first_out.q.val(),
            end: self.end_out.q.val(),
            end_bytes: self.end_bytes_out.q.val(),
            vlan_present: self.covered.q.val().vlan_present,
            is_ipv6: self.covered.q.val().is_ipv6,
        };
        self.to_icrc.valid.next = self.covered_valid.q.val();
        self.frame_end.next = self.valid_out.q.val() && self.beat_out.q.val().last;
        self.frame.next = self.frame_out.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, beats_of, random};

    /// Sends frames whose IP packet ends near the end of a beat or of the frame, with gaps.
    fn the_end_of_the_packet_is_found<const DATA: usize, const BYTES: usize>() {
        let mut random = random();
        let mut bench = Bench::clocked(Measure::<DATA, BYTES>::default(), |block| &mut block.clock);
        bench = bench.in_lock_step();
        let lanes = DATA / 8;
        for _ in 0..40 {
            let frame: Vec<u8> = (0..random.random_range(1..4 * lanes)).map(|_| random.random()).collect();
            let near = if random.random() { frame.len() } else { lanes * random.random_range(1..4) };
            let covered_bytes = (near + random.random_range(0..3)).saturating_sub(1).max(1);
            let mut to_icrc = Vec::new();
            let beats = beats_of::<DATA, BYTES>(&frame, &mut random);
            for (index, beat) in beats.iter().enumerate() {
                while random.random_bool(0.3) {
                    bench.block.from_delay.valid.next = false;
                    bench.tick();
                }
                let block = &mut bench.block;
                block.from_delay.value.next = *beat;
                block.from_delay_first.next = index == 0;
                block.from_delay.valid.next = true;
                let last_byte = if index == 0 { covered_bytes - 1 } else { random.random_range(0..8192) };
                block.coverage.next = Coverage { last_byte: bits(last_byte as u64), ..Coverage::default() };
                bench.tick();
                bench.settle();
                let block = &bench.block;
                assert_eq!(block.beat.value.val(), *beat);
                assert_eq!(block.frame_end.val(), beat.last);
                if block.to_icrc.valid.val() {
                    to_icrc.push(block.to_icrc.value.val());
                }
            }
            let end = bench.block.frame.val();
            assert_eq!(end.frame_bytes.to_u64() as usize, frame.len());
            assert_eq!(end.ip_length, covered_bytes > frame.len());
            assert!(!end.too_long && !end.mac_error);
            if covered_bytes <= frame.len() {
                assert_eq!(to_icrc.len(), covered_bytes.div_ceil(lanes));
                let last = to_icrc.pop().expect("a packet has a byte");
                assert!(last.end && to_icrc.iter().all(|beat| !beat.end));
                assert_eq!(last.end_bytes.to_u64() as usize, (covered_bytes - 1) % lanes + 1);
            }
        }
    }

    #[test]
    fn the_end_of_the_packet_is_found_at_every_width() {
        the_end_of_the_packet_is_found::<64, 4>();
        the_end_of_the_packet_is_found::<128, 5>();
        the_end_of_the_packet_is_found::<256, 6>();
        the_end_of_the_packet_is_found::<512, 7>();
    }

    #[test]
    fn a_frame_is_too_long_from_one_byte_above_the_limit_and_for_ever() {
        let mut bench = Bench::clocked(Measure::<512, 7>::default(), |block| &mut block.clock);
        bench.block.from_delay.value.next = Beat { bytes: bits(64), ..Beat::default() };
        bench.block.from_delay.valid.next = true;
        bench.block.from_delay_first.next = true;
        for beat_count in 1..1200 {
            bench.tick();
            bench.block.from_delay_first.next = false;
            bench.settle();
            let frame = bench.block.frame.val();
            assert_eq!(frame.too_long, 64 * beat_count > FRAME_BYTES_MAX, "{beat_count} beats");
            if beat_count < 1000 {
                assert_eq!(frame.frame_bytes.to_u64(), 64 * beat_count);
            }
        }
    }
}
