//! Methods that are kernels.
#![allow(missing_docs, reason = "blocks of a test")]
use rnic_kernel::prelude::*;

/// An output.
#[derive(Default, LogicInterface)]
struct Sink {
    pub value: Signal<Out, Bits<8>>,
}

impl Sink {
    /// Decides by one parameter, and names another one twice.
    #[kernel]
    fn show(&mut self, adds: Bit, value: Bits<8>) {
        if adds {
            self.value.next = value + 1;
        } else {
            self.value.next = value;
        }
    }
}

#[derive(Default, LogicBlock)]
struct Shown {
    pub a: Signal<In, Bits<8>>,
    pub b: Signal<In, Bits<8>>,
    pub flag: Signal<In, Bit>,
    pub sink: Sink,
}

impl Logic for Shown {
    #[kernel]
    fn update(&mut self) {
        self.sink.show(self.flag.val(), self.a.val() ^ self.b.val());
    }
}

#[test]
fn a_parameter_is_hardware_and_is_printed_once() {
    let verilog = rnic_kernel::generate(&mut Shown::default(), "shown").expect("the block is complete");
    assert_eq!(verilog.matches("a ^ b").count(), 1, "{verilog}");
    assert!(verilog.contains("wire [7:0] show_value = a ^ b;"), "{verilog}");
    assert!(verilog.contains("if (flag) begin"), "{verilog}");
}
