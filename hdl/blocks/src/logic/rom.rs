//! A table of constants as a leaf block.
use rnic_kernel::prelude::*;

/// Looks a word up in a constant table.
///
/// A kernel would need a `match` with every entry written out; here the entries come from Rust data, such as the
/// opcode table of `rnic-layout`. Meant for tables that fit into logic; it is combinational.
///
/// ```text
///            ┌────────────────────────┐
///  address ─>│ value = table[address] ├──> value        combinational
///            └────────────────────────┘
/// ```
#[derive(Clone, Debug, LogicBlock, Registers)]
pub struct ConstantRom<const ADDRESS: usize, const WIDTH: usize> {
    /// Address of the entry.
    pub address: Signal<In, Bits<ADDRESS>>,
    /// The entry, combinational.
    pub value: Signal<Out, Bits<WIDTH>>,
    _table: Vec<Bits<WIDTH>>,
}

impl<const ADDRESS: usize, const WIDTH: usize> ConstantRom<ADDRESS, WIDTH> {
    /// Makes the table with `entry(i)` at address `i`.
    pub fn new(entry: impl FnMut(usize) -> Bits<WIDTH>) -> Self {
        let table = (0..1 << ADDRESS).map(entry).collect();
        Self { address: Default::default(), value: Default::default(), _table: table }
    }
}

impl<const ADDRESS: usize, const WIDTH: usize> Logic for ConstantRom<ADDRESS, WIDTH> {
    fn update(&mut self) {
        self.value.next = self._table[self.address.val().index()];
    }

    fn connect(&mut self) {
        self.value.connect();
    }

    fn hdl(&self) -> Verilog {
        // The entry that is met most often becomes the default, which keeps sparse tables short.
        let common =
            self._table.iter().max_by_key(|entry| self._table.iter().filter(|other| other == entry).count());
        let common = common.copied().unwrap_or_default();
        let mut body = String::from("always @(*) begin\n    case (address)\n");
        for (address, entry) in self._table.iter().enumerate().filter(|(_, entry)| **entry != common) {
            body += &format!("        {ADDRESS}'h{address:x}: value = {WIDTH}'h{entry:x};\n");
        }
        body += &format!("        default: value = {WIDTH}'h{common:x};\n    endcase\nend\n");
        rnic_kernel::leaf(core::any::type_name::<Self>(), "A table of constants.", body, &["value"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Stimulus, random};
    use rand::Rng;

    #[test]
    fn rust_and_verilog_agree_on_every_entry() {
        let mut random = random();
        let sparse = |random: &mut _| if Rng::random(random) { Bits::<70>::sample(random) } else { bits(5) };
        let table: Vec<_> = (0..64).map(|_| sparse(&mut random)).collect();
        let mut bench = Bench::combinational(ConstantRom::<6, 70>::new(|entry| table[entry])).in_lock_step();
        for (address, entry) in table.iter().enumerate() {
            bench.block.address.next = address.to_bits();
            bench.settle();
            assert_eq!(bench.block.value.val(), *entry);
        }
    }
}
