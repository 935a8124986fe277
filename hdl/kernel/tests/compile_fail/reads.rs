//! Reads that the generator would do behind the recorder's back.
use rnic_kernel::prelude::*;

#[derive(Default, LogicBlock)]
struct Next {
    pub a: Signal<In, Bits<8>>,
    pub out: Signal<Out, Bits<8>>,
}

impl Logic for Next {
    #[kernel]
    fn update(&mut self) {
        self.out.next = self.a.next;
    }
}

#[derive(Default, LogicBlock)]
struct Edge {
    pub clock: Signal<In, Clock>,
    pub out: Signal<Out, Bit>,
}

impl Logic for Edge {
    #[kernel]
    fn update(&mut self) {
        self.out.next = self.clock.pos_edge();
    }
}

#[derive(Default, LogicBlock)]
struct Helper {
    pub a: Signal<In, Bits<8>>,
    pub out: Signal<Out, Bits<8>>,
}

impl Helper {
    fn helper(&self) -> Bits<8> {
        self.a.val()
    }
}

impl Logic for Helper {
    #[kernel]
    fn update(&mut self) {
        self.out.next = self.helper();
    }
}

#[derive(Default, LogicBlock)]
struct Choice {
    pub a: Signal<In, Bits<8>>,
    pub out: Signal<Out, Bits<8>>,
}

fn same(value: Bits<8>) -> Bits<8> {
    value
}

impl Logic for Choice {
    #[kernel]
    fn update(&mut self) {
        let value = if true { bits(1) } else { same(self.a.next) };
        self.out.next = value;
    }
}

fn main() {}
