//! Mistakes that compile as Rust: each is refused, with the block, the signal and the cause.

use rnic_kernel::prelude::*;

/// A block with two inputs, two outputs and a local, around one kernel body.
macro_rules! block {
    ($name:ident, |$self:ident| $body:block) => {
        #[derive(Default, LogicBlock)]
        struct $name {
            pub a: Signal<In, Bits<8>>,
            pub c: Signal<In, Bit>,
            pub x: Signal<Out, Bits<8>>,
            pub y: Signal<Out, Bits<8>>,
            l: Signal<Local, Bits<8>>,
        }

        impl Logic for $name {
            #[kernel]
            fn update(&mut $self) $body
        }
    };
}

/// The error of generating a block, which must hold all of the parts.
#[track_caller]
fn refused<B: Block>(mut block: B, parts: &[&str]) {
    match rnic_kernel::generate(&mut block, "dut") {
        Ok(text) => panic!("accepted:\n{text}"),
        Err(error) => {
            let text = error.to_string();
            for part in ["dut", "refusals.rs:"].iter().chain(parts) {
                assert!(text.contains(part), "`{part}` is missing in: {text}");
            }
        }
    }
}

block!(MissingElse, |self| {
    self.l.next = self.a.val();
    self.y.next = self.l.val();
    if self.c.val() {
        self.x.next = self.a.val();
    }
});

#[test]
fn a_path_without_a_value_is_refused() {
    refused(MissingElse::default(), &["MissingElse", "`x`"]);
}

block!(WriteReadWrite, |self| {
    self.l.next = self.a.val();
    self.x.next = self.l.val();
    self.l.next = self.a.val() + 1;
    self.y.next = self.l.val();
});

#[test]
fn a_write_after_a_read_is_refused() {
    refused(WriteReadWrite::default(), &["WriteReadWrite", "`l`"]);
}

block!(ReadBeforeWrite, |self| {
    self.x.next = self.l.val();
    self.l.next = self.a.val();
    self.y.next = self.a.val();
});

#[test]
fn a_read_before_the_write_is_refused() {
    refused(ReadBeforeWrite::default(), &["ReadBeforeWrite", "`l`"]);
}

fn main_error<B: Block>(mut block: B) -> String {
    rnic_kernel::generate(&mut block, "dut")
        .map_or_else(|error| error.to_string(), |text| panic!("accepted:\n{text}"))
}

block!(Loop, |self| {
    self.l.next = self.a.val();
    self.x.next = self.y.val();
    self.y.next = self.x.val() & self.l.val();
});

#[test]
fn a_combinational_loop_is_refused() {
    let error = main_error(Loop::default());
    assert!(error.contains("Loop") && (error.contains("`x`") || error.contains("`y`")), "{error}");
}

block!(NeverAssigned, |self| {
    self.l.next = self.a.val();
    self.x.next = self.l.val();
});

#[test]
fn an_output_without_a_value_is_refused() {
    let error = main_error(NeverAssigned::default());
    assert!(error.contains("NeverAssigned") && error.contains("`y`"), "{error}");
}

block!(WideLiteral, |self| {
    self.l.next = self.a.val();
    self.x.next = self.l.val() + 300;
    self.y.next = self.l.val();
});

#[test]
fn a_literal_that_is_too_wide_is_refused() {
    refused(WideLiteral::default(), &["WideLiteral", "300", "8 bits"]);
}

block!(SliceBeyondEnd, |self| {
    self.l.next = self.a.val();
    self.x.next = bit_cast::<8, 4>(self.l.val().get_bits::<4>(6));
    self.y.next = self.l.val();
});

#[test]
fn a_slice_beyond_the_end_is_refused() {
    refused(SliceBeyondEnd::default(), &["SliceBeyondEnd", "8 bits"]);
}

block!(InputWritten, |self| {
    self.a.next = bits(3);
    self.l.next = bits(1);
    self.x.next = self.l.val();
    self.y.next = self.l.val();
});

#[test]
fn a_write_to_an_input_is_refused() {
    refused(InputWritten::default(), &["InputWritten", "`a`", "input"]);
}

/// Fields that are keywords of Verilog, or of SystemVerilog only.
#[derive(Default, LogicBlock)]
struct Keywords {
    pub begin: Signal<In, Bits<8>>,
    pub buf: Signal<In, Bits<8>>,
    pub logic: Signal<Out, Bits<8>>,
}

impl Logic for Keywords {
    #[kernel]
    fn update(&mut self) {
        self.logic.next = self.begin.val() ^ self.buf.val();
    }
}

#[test]
fn a_port_named_like_a_keyword_is_refused() {
    let error = main_error(Keywords::default());
    for name in ["begin", "buf", "logic"] {
        assert!(error.contains(&format!("`{name}`")), "{error}");
    }
}

#[derive(Default, LogicBlock)]
struct Inner {
    pub a: Signal<In, Bits<8>>,
    pub b: Signal<In, Bits<8>>,
    pub x: Signal<Out, Bits<8>>,
}

impl Logic for Inner {
    #[kernel]
    fn update(&mut self) {
        self.x.next = self.a.val() + self.b.val();
    }
}

#[derive(Default, LogicBlock)]
struct Outer {
    pub a: Signal<In, Bits<8>>,
    pub x: Signal<Out, Bits<8>>,
    inner: Inner,
}

impl Logic for Outer {
    #[kernel]
    fn update(&mut self) {
        self.inner.a.next = self.a.val();
        self.x.next = self.inner.x.val();
    }
}

#[test]
fn a_child_with_an_undriven_input_is_refused() {
    let error = main_error(Outer::default());
    assert!(error.contains("Outer") && error.contains("inner.b"), "{error}");
}

#[derive(Default, LogicBlock)]
struct LongIndex {
    pub a: Signal<In, Bits<64>>,
    pub at: Signal<In, Bits<40>>,
    pub x: Signal<Out, Bit>,
}

impl Logic for LongIndex {
    #[kernel]
    fn update(&mut self) {
        self.x.next = self.a.val().get_bit(self.at.val().index());
    }
}

#[test]
fn an_index_that_rust_cannot_take_is_refused() {
    refused(LongIndex::default(), &["LongIndex", "at most 32 bits, this value has 40"]);
}

#[derive(Default, LogicBlock)]
struct LongDistance {
    pub a: Signal<In, Bits<8>>,
    pub by: Signal<In, Bits<100>>,
    pub x: Signal<Out, Bits<8>>,
}

impl Logic for LongDistance {
    #[kernel]
    fn update(&mut self) {
        self.x.next = self.a.val() << self.by.val();
    }
}

#[test]
fn a_distance_that_rust_cannot_take_is_refused() {
    refused(LongDistance::default(), &["LongDistance", "64 bits", "100"]);
}
