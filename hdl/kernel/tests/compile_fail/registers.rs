//! Registers need a clock.
use rnic_kernel::prelude::*;

#[derive(Default, LogicBlock, Registers)]
struct Block {
    pub d: Signal<In, Bits<8>>,
    state: Reg<Bits<8>>,
}

impl Logic for Block {
    fn update(&mut self) {}
}

fn main() {}
