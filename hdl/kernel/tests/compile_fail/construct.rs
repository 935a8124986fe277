//! What constructors and domains may say.
use rnic_kernel::prelude::*;

#[derive(Construct)]
#[require(N == 3, 7)]
struct Message<const N: usize> {
    pub a: Signal<In, Bits<N>>,
}

#[derive(Construct)]
#[new(&self)]
struct Receiver {
    pub a: Signal<In, Bit>,
}

/// A child that does not say whether it has a clock.
#[derive(Default, LogicBlock)]
struct Child {
    pub clock: Signal<In, Clock>,
}

impl Logic for Child {
    fn update(&mut self) {}
}

#[derive(Default, LogicBlock, Registers)]
struct Parent {
    pub clock: Signal<In, Clock>,
    child: Child,
}

impl Logic for Parent {
    fn update(&mut self) {}
}

#[derive(Registers)]
struct Named {
    pub clock: Signal<In, Clock>,
    #[domain(clocked = clock)]
    state: Reg<Bit>,
}

#[derive(Registers)]
#[domain(skip)]
struct Skipped {
    pub clock: Signal<In, Clock>,
}

fn main() {}
