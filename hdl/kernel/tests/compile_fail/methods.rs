//! Methods that are more than a group of connections.
use rnic_kernel::prelude::*;

struct Ports {
    pub a: Signal<In, Bits<8>>,
    pub out: Signal<Out, Bits<8>>,
}

impl Ports {
    #[kernel]
    fn sum(&self) -> Bits<8> {
        self.a.val() + 1
    }

    #[kernel]
    fn adds(&mut self, number: u64) {
        self.out.next = self.a.val() + number;
    }

    #[kernel]
    fn takes_both(&mut self, (a, _): (Bits<8>, Bit)) {
        self.out.next = a;
    }
}

#[clocked(rest)]
#[derive(Default, LogicBlock, Registers)]
struct Clocked {
    pub out: Signal<Out, Bits<8>>,
}

fn main() {}
