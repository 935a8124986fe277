//! A wide register whose lanes are written, cleared and held one by one, as a leaf block.
use rnic_kernel::prelude::*;

/// Bits of a lane.
const LANE: usize = 4;

/// Holds a word, each lane of which is loaded, cleared or kept.
///
/// Flip-flops have an enable and a reset of their own; masks that reach them by these pins cost no LUT a bit, where an AND or
/// a multiplexer in front of them costs one. Eight bits share such pins.
///
/// ```text
///           ┌───────────┐
///  data ───>│ D       Q ├──> value
///  takes ──>│ enable    │
///  clears ─>│ reset     │
///           └───────────┘
/// ```
///
/// Latency 1 cycle. A lane is four bits; its lowest bit in `takes` and `clears` controls it, the others are ignored.
///
/// 1. A lane that is taken and not cleared becomes that of `data`, one that is taken and cleared zero; others stay.
/// 2. It starts with zeros. Reset does not touch it.
#[clocked]
#[derive(Clone, Debug, Default, LogicBlock, Registers)]
pub struct LaneRegister<const DATA: usize> {
    /// New value of the lanes that change.
    pub data: Signal<In, Bits<DATA>>,
    /// Ones in the lanes that change.
    pub takes: Signal<In, Bits<DATA>>,
    /// Ones in the lanes that become zero if they change.
    pub clears: Signal<In, Bits<DATA>>,
    /// The word; registered.
    pub value: Signal<Out, Bits<DATA>>,
}

/// The lowest bit of each lane in all of its bits.
fn spread<const DATA: usize>(mask: Bits<DATA>) -> Bits<DATA> {
    let lowest =
        (0..DATA / LANE).fold(Bits::<DATA>::default(), |all, lane| all.replace_bit(LANE * lane, true));
    let mask = mask & lowest;
    mask | mask << 1 | mask << 2 | mask << 3
}

impl<const DATA: usize> Logic for LaneRegister<DATA> {
    fn update(&mut self) {
        if self.clock.pos_edge() {
            let takes = spread(self.takes.val());
            let comes = self.data.val() & !spread(self.clears.val());
            self.value.next = (comes & takes) | (self.value.val() & !takes);
        }
    }

    fn connect(&mut self) {
        self.value.connect();
    }

    fn hdl(&self) -> Verilog {
        const { assert!(DATA.is_multiple_of(LANE), "a word is made of whole lanes") };
        let zero = format!("{DATA}'h0");
        let lane = |lane: usize| {
            let (low, high) = (LANE * lane, LANE * lane + LANE - 1);
            format!(
                "    if (takes[{low}]) value[{high}:{low}] <= clears[{low}] ? 4'h0 : data[{high}:{low}];\n"
            )
        };
        let lanes: String = (0..DATA / LANE).map(lane).collect();
        let unused = "wire unused = &{1'b0, takes, clears};\n";
        let body = format!("initial value = {zero};\nalways @(posedge clock) begin\n{lanes}end\n{unused}");
        let doc = "Each lane of four bits takes what comes, becomes zero, or stays.";
        rnic_kernel::leaf(core::any::type_name::<Self>(), doc, body, &["value"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Stimulus, random};

    #[test]
    fn lanes_are_written_one_by_one() {
        let mut random = random();
        let block = LaneRegister::<72>::default();
        let mut bench = Bench::clocked(block, |block| &mut block.clock).in_lock_step();
        let mut lanes = [0; 18];
        for _ in 0..300 {
            let word = |random: &mut _| -> Bits<72> { Stimulus::sample(random) };
            let (data, takes, clears) = (word(&mut random), word(&mut random), word(&mut random));
            bench.block.data.next = data;
            bench.block.takes.next = takes;
            bench.block.clears.next = clears;
            for (lane, value) in lanes.iter_mut().enumerate() {
                if takes.get_bit(4 * lane) {
                    *value = if clears.get_bit(4 * lane) { 0 } else { data.get_bits::<4>(4 * lane).to_u64() };
                }
            }
            bench.tick();
            for (lane, value) in lanes.iter().enumerate() {
                assert_eq!(bench.block.value.val().get_bits::<4>(4 * lane).to_u64(), *value, "lane {lane}");
            }
        }
    }
}
