//! A count of bytes as a mask, as a leaf block.
use rnic_kernel::prelude::*;

/// Turns a count of bytes into a mask with that many bytes of ones, from lane 0 on.
///
/// A kernel has no name for the lanes of a word of any width: one bit a byte would need `Bits<{ DATA / 8 }>`.
///
/// ```text
///          ┌───────────┐
///  count ─>│ 0, 1, 2 … ├──> mask        combinational
///          └───────────┘
/// ```
#[derive(Clone, Debug, Default, LogicBlock, Registers)]
pub struct ByteMask<const DATA: usize, const COUNT: usize> {
    /// Number of bytes; a number above `DATA / 8` means all of them.
    pub count: Signal<In, Bits<COUNT>>,
    /// Byte `i` is all ones if `i < count`, else all zeros. Combinational.
    pub mask: Signal<Out, Bits<DATA>>,
}

impl<const DATA: usize, const COUNT: usize> Logic for ByteMask<DATA, COUNT> {
    fn update(&mut self) {
        let ones = !Bits::<DATA>::default();
        let bits = 8 * self.count.val().index();
        self.mask.next = if bits < DATA { !(ones << bits as u64) } else { ones };
    }

    fn connect(&mut self) {
        self.mask.connect();
    }

    fn hdl(&self) -> Verilog {
        let lane = |lane: usize| {
            // A count that cannot exceed this lane leaves it dark; Verilator warns of such comparisons.
            let is_reachable = lane + 1 < 1 << COUNT;
            let enable = if is_reachable { format!("count > {COUNT}'h{lane:x}") } else { "1'b0".into() };
            format!("assign mask[{}:{}] = {{8{{{enable}}}}};\n", 8 * lane + 7, 8 * lane)
        };
        let body: String = (0..DATA / 8).map(lane).collect();
        rnic_kernel::leaf(core::any::type_name::<Self>(), "As many bytes of ones as counted.", body, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Bench;

    fn every_count<const DATA: usize, const COUNT: usize>() {
        let mut bench = Bench::combinational(ByteMask::<DATA, COUNT>::default()).in_lock_step();
        for count in 0..1 << COUNT {
            bench.block.count.next = count.to_bits();
            bench.settle();
            for bit in 0..DATA {
                assert_eq!(bench.block.mask.val().get_bit(bit), bit / 8 < count, "count {count}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_count_of_all_bytes_enables_every_lane() {
        every_count::<64, 4>();
        every_count::<512, 7>();
    }

    #[test]
    fn a_count_too_narrow_for_all_bytes_never_enables_the_last_lanes() {
        every_count::<64, 3>();
    }
}
