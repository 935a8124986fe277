//! Widths are types: what does not fit does not compile.
use rnic_kernel::prelude::*;

#[derive(Default, LogicBlock)]
struct Block {
    pub a: Signal<In, Bits<8>>,
    pub b: Signal<In, Bits<9>>,
    pub out: Signal<Out, Bits<8>>,
}

impl Logic for Block {
    #[kernel]
    fn update(&mut self) {
        self.out.next = self.b.val();
    }
}

fn main() {}
