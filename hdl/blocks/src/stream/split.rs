//! Splitter: cuts spans of bytes at boundaries that no request may cross.
//!
//! A host request stays within 4 KiB, since a PCIe request must, and pages begin there; a read also within 512 bytes, the
//! size of a chunk of the read buffer.
//!
//! ```text
//!            ┌──────────────────────────────────────────────┐
//!            │  ┌─────────┐                                 │
//!  rx ──────>│─>│ address ├──> room to the boundary ──┐     │
//!  (Span)    │  ├─────────┤                           v     │
//!            │  │ left    ├────────────────────> the smaller┼──> tx
//!            │  └─────────┘ <── minus piece, up to boundary │  (Piece)
//!            └──────────────────────────────────────────────┘
//! ```
//!
//! Boundaries of 16 bytes: 34 bytes from 0x1e on, then 3 bytes from 0x40 on:
//! ```text
#![doc = include_str!("waves/split.txt")]
//! ```
//!
//! Latency 1 cycle; one piece a cycle, without a pause between two spans. At 4 KiB: 126 LUT, 97 FF, and 27 CARRY4 for a
//! comparison, two differences and the next address.
//!
//! 1. The pieces of a span follow each other without gap or overlap, and add up to it; the last one is marked.
//! 2. No piece crosses a multiple of `2^BOUNDARY`, and only a span of no bytes has a piece of no bytes, its only one.
//! 3. `tx.valid` is a register; the piece depends on registers only.
//!
//! Refuses boundaries other than `2^4` to `2^16`, and `LENGTH` other than `BOUNDARY + 1`.
use super::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;

/// Consecutive bytes, anywhere. The longest message has 2^31 of them (protocol 1.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Span {
    /// Address of the first byte.
    pub address: Bits<64>,
    /// Length in bytes, 0 to 2^31.
    pub length: Bits<32>,
}

/// A part of a span that crosses no boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Piece<const LENGTH: usize> {
    /// Address of the first byte.
    pub address: Bits<64>,
    /// Length in bytes, 0 to `2^BOUNDARY`.
    pub length: Bits<LENGTH>,
    /// Last piece of its span.
    pub last: Bit,
}

/// Cuts spans at multiples of `2^BOUNDARY`; `LENGTH`, the width of a piece's length, is `BOUNDARY + 1`.
#[clocked(reset = "forgets the span")]
#[derive(LogicBlock, Registers, Construct)]
#[require(4 <= BOUNDARY && BOUNDARY <= 16)]
#[require(LENGTH == BOUNDARY + 1)]
pub struct Splitter<const BOUNDARY: usize, const LENGTH: usize> {
    /// From the block before; `ready` is combinational.
    pub rx: StreamRx<Span>,
    /// To the next block.
    pub tx: StreamTx<Piece<LENGTH>>,
    address: DFF<Bits<64>>,
    left: DFF<Bits<32>>,
    is_busy: Reg<Bit>,
}

impl<const BOUNDARY: usize, const LENGTH: usize> Logic for Splitter<BOUNDARY, LENGTH> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let address = self.address.q.val();
        let left = self.left.q.val();
        let offset = address.get_bits::<BOUNDARY>(0);
        let room = bits::<LENGTH>(1 << BOUNDARY) - bit_cast::<LENGTH, BOUNDARY>(offset);
        let ends = left <= bit_cast::<32, LENGTH>(room);
        let length = select(ends, left.get_bits::<LENGTH>(0), room);

        self.tx.offer(self.is_busy.q.val(), Piece::<LENGTH> { address, length, last: ends });
        let may_load = !self.is_busy.q.val() || (self.tx.ready.val() && ends);
        self.rx.ready.next = may_load;
        if may_load {
            self.address.d.next = self.rx.beat.val().address;
            self.left.d.next = self.rx.beat.val().length;
            self.is_busy.d.next = self.rx.valid.val();
        } else if self.tx.ready.val() {
            // The next piece begins at the boundary.
            self.address.d.next = (address | bits::<64>((1 << BOUNDARY) - 1)) + 1;
            self.left.d.next = left - bit_cast::<32, LENGTH>(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, Waves, random, transfer};
    use num_bigint::BigUint;
    use rand::Rng;

    impl Stimulus for Span {
        fn from_number(number: &BigUint) -> Self {
            Span { address: Stimulus::from_number(number), length: Stimulus::from_number(&(number >> 64)) }
        }
    }

    fn span(address: u64, length: u64) -> Span {
        Span { address: bits(address), length: bits(length) }
    }

    /// What the splitter is to do, as a loop.
    fn pieces_of<const BOUNDARY: usize, const LENGTH: usize>(span: &Span) -> Vec<Piece<LENGTH>> {
        let (mut address, mut left) = (span.address.to_u64(), span.length.to_u64());
        let mut pieces = Vec::new();
        loop {
            let length = left.min((1 << BOUNDARY) - address % (1 << BOUNDARY));
            left -= length;
            pieces.push(Piece { address: bits(address), length: bits(length), last: left == 0 });
            address = address.wrapping_add(length);
            if left == 0 {
                return pieces;
            }
        }
    }

    fn spans<const BOUNDARY: usize>(random: &mut Random) -> Vec<Span> {
        let size = 1u64 << BOUNDARY;
        let mut spans = vec![
            span(0, 0),
            span(size - 1, 0),
            span(0, size),
            span(0, size + 1),
            span(1, size),
            span(size - 1, 1),
            span(size - 1, 2),
            span(u64::MAX - size + 1, size),
        ];
        let any = (0..60).map(|_| span(random.random(), random.random_range(0..8 * size)));
        spans.extend(any);
        spans
    }

    fn spans_are_cut<const BOUNDARY: usize, const LENGTH: usize>() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let splitter = Splitter::<BOUNDARY, LENGTH>::default();
            let mut bench = Bench::clocked(splitter, |block| &mut block.clock).in_lock_step();
            let spans = spans::<BOUNDARY>(&mut random);
            let expected: Vec<_> = spans.iter().flat_map(pieces_of::<BOUNDARY, LENGTH>).collect();
            let (pieces, cycles) = transfer(
                &mut bench,
                |block| &mut block.rx,
                |block| &mut block.tx,
                spans,
                expected.len(),
                stalls,
                &mut random,
            );
            assert_eq!(pieces, expected, "stalls: {stalls:?}");
            if stalls == Stalls::None {
                assert_eq!(cycles, expected.len() + 1, "one piece a cycle after one cycle of latency");
            }
        }
    }

    #[test]
    fn writes_are_cut_at_4096_bytes() {
        spans_are_cut::<12, 13>();
    }

    #[test]
    fn reads_are_cut_at_512_bytes() {
        spans_are_cut::<9, 10>();
    }

    /// Inputs that no connected block would give, and resets at any time.
    #[test]
    fn any_input_does_the_same_in_verilog() {
        let mut random = random();
        let splitter = Splitter::<9, 10>::default();
        let mut bench = Bench::clocked(splitter, |block| &mut block.clock).in_lock_step();
        for _ in 0..1000 {
            bench.block.reset.next = random.random_bool(0.02);
            bench.block.rx.beat.next = Stimulus::sample(&mut random);
            bench.block.rx.valid.next = random.random();
            bench.block.tx.ready.next = random.random_bool(0.8);
            bench.tick();
        }
    }

    #[test]
    fn the_longest_message_is_counted_to_its_end() {
        let mut random = random();
        let splitter = Splitter::<16, 17>::default();
        let mut bench = Bench::clocked(splitter, |block| &mut block.clock);
        let longest = span(0x1234_5678_9abc_def0, 1 << 31);
        let mut source = Source::new([longest], Stalls::None);
        let mut sink = Sink::new(Stalls::None);
        let expected = pieces_of::<16, 17>(&longest);
        while sink.received.len() < expected.len() {
            source.drive(&mut bench.block.rx, &mut random);
            sink.drive(&mut bench.block.tx, &mut random);
            bench.settle();
            source.sample(&bench.block.rx);
            sink.sample(&bench.block.tx);
            bench.tick();
        }
        assert_eq!(sink.received, expected);
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert_eq!(Splitter::<4, 5>::REFUSAL, None);
        assert_eq!(Splitter::<16, 17>::REFUSAL, None);
        assert!(Splitter::<3, 4>::REFUSAL.is_some());
        assert!(Splitter::<17, 18>::REFUSAL.is_some());
        assert_eq!(Splitter::<12, 12>::REFUSAL, Some("Splitter is built with LENGTH == BOUNDARY + 1 only"));
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("rx_valid").signal("rx_beat.address").when("rx_valid");
        let waves = waves.signal("rx_beat.length").when("rx_valid").signal("rx_ready").signal("tx_valid");
        let waves =
            waves.signal("tx_beat.address").when("tx_valid").signal("tx_beat.length").when("tx_valid");
        let waves = waves.signal("tx_beat.last").when("tx_valid").signal("tx_ready");
        let splitter = Splitter::<4, 5>::default();
        let mut bench = Bench::clocked(splitter, |block| &mut block.clock).recording(waves);
        let mut random = random();
        let mut source = Source::new([span(0x1e, 34), span(0x40, 3)], Stalls::None);
        bench.block.tx.ready.next = true;
        for cycle in 0..8 {
            if cycle >= 1 {
                source.drive(&mut bench.block.rx, &mut random);
            }
            bench.settle();
            source.sample(&bench.block.rx);
            bench.tick();
        }
        bench.waves().expect("stream/waves/split.txt");
    }
}
