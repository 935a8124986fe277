//! Statements without a meaning in hardware.
use rnic_kernel::prelude::*;

#[derive(Default, LogicBlock)]
struct Block {
    pub a: Signal<In, Bits<8>>,
    pub out: Signal<Out, Bits<8>>,
}

impl Logic for Block {
    #[kernel]
    fn update(&mut self) {
        let mut sum = self.a.val();
        self.out.next = sum;
    }
}

#[kernel]
fn rounds(value: Bits<8>) -> Bits<8> {
    while value.any() {}
    value
}

#[kernel]
fn early(value: Bits<8>) -> Bits<8> {
    if value.any() {
        return value;
    }
    value
}

#[kernel]
fn prints(value: Bits<8>) -> Bits<8> {
    println!("{value:?}");
    value
}

#[kernel]
fn negates(value: Bits<8>) -> Bits<8> {
    -value
}

#[kernel]
fn updates(value: Bits<8>) -> Bits<8> {
    value += 1;
    value
}

#[kernel]
fn configured(value: Bits<8>) -> Bits<8> {
    #[cfg(test)]
    let value = value + 1;
    value
}

#[kernel]
fn nothing(value: Bits<8>) {
    let _ = value;
}

#[kernel(fast)]
fn fast(value: Bits<8>) -> Bits<8> {
    value
}

#[kernel]
fn closure(value: Bits<8>) -> Bits<8> {
    (|other: Bits<8>| other + 1)(value)
}

fn main() {}
