//! A function that takes hardware but is no kernel.
use rnic_kernel::prelude::*;

fn double(value: Bits<8>) -> Bits<8> {
    value + value
}

#[derive(Default, LogicBlock)]
struct Block {
    pub a: Signal<In, Bits<8>>,
    pub out: Signal<Out, Bits<8>>,
}

impl Logic for Block {
    #[kernel]
    fn update(&mut self) {
        self.out.next = double(self.a.val());
    }
}

fn main() {}
