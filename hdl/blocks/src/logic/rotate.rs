//! Rotation of a wide word: the byte shifter with which headers are removed and inserted.
use rnic_kernel::prelude::*;

const BYTE_BITS: usize = 8;

/// Rotates a word upwards by a number of bytes, a few positions in each registered stage.
///
/// Payload follows headers of any length, and starts at any address of host memory, so its beats are rotated between the two. A
/// rotation loses no byte, so the same rotator inserts and removes headers; its user takes the wrapped lanes from the beat before
/// (insertion) or after (removal).
///
/// The distance may be wider than needed. Its bits are shared out over `STAGES` stages, at most two to a stage, so that each is a
/// mux of at most four: one LUT a bit.
///
/// ```text
///             ┌───────┐     ┌───────┐     ┌───────┐
///  data ─────>│ 0, 1, │     │ 0, 4, │     │ 0, 16,│      ┌─> rotated
///  distance ─>│ 2, 3  ├─reg─┤ 8, 12 ├─reg─┤ 32, 48├─reg──┴─> rotated_by
///             └───────┘     └───────┘     └───────┘        (DATA = 512, DISTANCE = 6, STAGES = 3)
/// ```
///
/// Latency `STAGES` cycles, a word every cycle, no back-pressure.
///
/// 1. Byte `i` of a word of `n` appears as byte `(i + distance) mod n` of the result.
/// 2. `rotated_by` is the distance that came with the word.
#[derive(LogicBlock, Registers)]
pub struct Rotator<const DATA: usize, const DISTANCE: usize, const STAGES: usize> {
    /// Clock of all stages.
    pub clock: Signal<In, Clock>,
    /// The word to turn.
    pub data: Signal<In, Bits<DATA>>,
    /// How far, in bytes, towards the more significant end.
    pub distance: Signal<In, Bits<DISTANCE>>,
    /// The word turned, registered.
    pub rotated: Signal<Out, Bits<DATA>>,
    /// How far it was turned, registered.
    pub rotated_by: Signal<Out, Bits<DISTANCE>>,
    words: [DFF<Bits<DATA>>; STAGES],
    distances: [DFF<Bits<DISTANCE>>; STAGES],
    _first_bit: [usize; STAGES],
    _has_two_bits: [bool; STAGES],
}

impl<const DATA: usize, const DISTANCE: usize, const STAGES: usize> Rotator<DATA, DISTANCE, STAGES> {
    /// Whether it can turn by bytes.
    pub const TURNS_BYTES: bool = DATA >= 16
        && DATA.is_power_of_two()
        && DISTANCE >= Self::BYTE_DISTANCE
        && DISTANCE <= 32
        && Self::has_stages_for(Self::BYTE_DISTANCE);

    /// Bits of a distance in bytes that is less than a whole turn.
    const BYTE_DISTANCE: usize = DATA.ilog2() as usize - 3;

    /// Each stage takes one or two bits of the distance.
    const fn has_stages_for(bits: usize) -> bool {
        bits.div_ceil(2) <= STAGES && STAGES <= bits
    }

    /// Makes a rotator by bytes; higher bits of the distance are whole turns and have no effect.
    ///
    /// `DATA` that is not a power of two, `DISTANCE` that is too narrow, and too many or too few stages do not compile.
    pub fn by_bytes() -> Self {
        const { assert!(Self::TURNS_BYTES, "Rotator: DATA, DISTANCE and STAGES do not fit together") };
        // The first stages take two bits of the distance each, the last ones one.
        let two_bit_stages = Self::BYTE_DISTANCE - STAGES;
        Self {
            clock: Default::default(),
            data: Default::default(),
            distance: Default::default(),
            rotated: Default::default(),
            rotated_by: Default::default(),
            words: core::array::from_fn(|_| Default::default()),
            distances: core::array::from_fn(|_| Default::default()),
            _first_bit: core::array::from_fn(|stage| stage + stage.min(two_bit_stages)),
            _has_two_bits: core::array::from_fn(|stage| stage < two_bit_stages),
        }
    }
}

/// Rotates a word upwards by a constant number of bits between 0 and its width, both excluded.
#[kernel]
fn rotated<const N: usize>(word: Bits<N>, distance: u64) -> Bits<N> {
    (word << distance) | (word >> (N as u64 - distance))
}

impl<const DATA: usize, const DISTANCE: usize, const STAGES: usize> Logic
    for Rotator<DATA, DISTANCE, STAGES>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        for stage in 0..STAGES {
            let word = if stage == 0 { self.data.val() } else { self.words[stage - 1].q.val() };
            let distance = if stage == 0 { self.distance.val() } else { self.distances[stage - 1].q.val() };
            let first_bit = self._first_bit[stage];
            let unit = (BYTE_BITS << first_bit) as u64;
            self.distances[stage].d.next = distance;
            self.words[stage].d.next = if self._has_two_bits[stage] {
                match distance.get_bits::<2>(first_bit).to_u64() {
                    0 => word,
                    1 => rotated(word, unit),
                    2 => rotated(word, 2 * unit),
                    _ => rotated(word, 3 * unit),
                }
            } else {
                select(distance.get_bit(first_bit), rotated(word, unit), word)
            };
        }
        self.rotated.next = self.words[STAGES - 1].q.val();
        self.rotated_by.next = self.distances[STAGES - 1].q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Stimulus, random};
    use num_bigint::BigUint;
    use std::collections::VecDeque;

    /// Every distance, a new word in every cycle, in both languages; the expected words are turned as numbers.
    fn turns<const DATA: usize, const DISTANCE: usize, const STAGES: usize>() {
        let mut bench =
            Bench::clocked(Rotator::<DATA, DISTANCE, STAGES>::by_bytes(), |block| &mut block.clock)
                .in_lock_step();
        let mut random = random();
        let mut expected = VecDeque::new();
        for cycle in 0..(2 << DISTANCE) + STAGES {
            let word = Bits::<DATA>::sample(&mut random);
            let distance =
                if cycle < 1 << DISTANCE { cycle.to_bits() } else { Bits::<DISTANCE>::sample(&mut random) };
            bench.block.data.next = word;
            bench.block.distance.next = distance;
            bench.settle();
            if expected.len() == STAGES {
                let found = (bench.block.rotated.val(), bench.block.rotated_by.val());
                assert_eq!(Some(found), expected.pop_front(), "cycle {cycle}");
            }
            let turned = BigUint::from(word) << (8 * distance.index() % DATA);
            let low = Bits::<DATA>::from_number(&turned);
            let wrapped = Bits::<DATA>::from_number(&(turned >> DATA));
            expected.push_back((low | wrapped, distance));
            bench.tick();
        }
    }

    #[test]
    fn bytes_turn_by_every_distance() {
        turns::<64, 3, 3>();
        turns::<128, 5, 3>();
        turns::<256, 5, 3>();
        turns::<512, 7, 3>();
    }

    #[test]
    fn parameters_that_do_not_fit_are_refused() {
        let fits = [Rotator::<512, 6, 3>::TURNS_BYTES, Rotator::<512, 6, 6>::TURNS_BYTES];
        assert_eq!(fits, [true, true]);
        let too_few_or_many = [Rotator::<512, 6, 2>::TURNS_BYTES, Rotator::<512, 6, 7>::TURNS_BYTES];
        assert_eq!(too_few_or_many, [false, false]);
        let is_narrow = Rotator::<512, 5, 3>::TURNS_BYTES;
        assert!(!is_narrow, "5 bits do not reach 63 bytes");
        let is_odd = Rotator::<96, 4, 3>::TURNS_BYTES;
        assert!(!is_odd, "96 bits are no power of two");
    }
}
