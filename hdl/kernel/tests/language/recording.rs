//! What a kernel may not say although it is valid Rust, and what the generator answers.
#![allow(missing_docs, reason = "blocks of a test")]
use rnic_kernel::GenerateError;
use rnic_kernel::prelude::*;

/// Declares a test: a block around one kernel body, and what is wrong with it.
macro_rules! refuses {
    ($test:ident, $signal:expr, $cause:literal, |$this:ident| $body:block) => {
        #[test]
        fn $test() {
            #[derive(Default, LogicBlock)]
            struct Subject {
                pub octet: Signal<In, Bits<8>>,
                pub wide: Signal<In, Bits<80>>,
                pub pair: Signal<In, Pair>,
                pub flag: Signal<In, Bit>,
                pub out: Signal<Out, Bits<8>>,
                pub verdict: Signal<Out, Bit>,
                scratch: Signal<Local, Bits<8>>,
                child: Child,
            }

            impl Logic for Subject {
                #[kernel]
                fn update(&mut $this) $body
            }

            expect_fault(rnic_kernel::generate(&mut Subject::default(), "top"), $signal, $cause);
        }
    };
}

fn expect_fault(generated: Result<String, GenerateError>, signal: Option<&str>, cause: &str) {
    let error = generated.expect_err("this block must be refused");
    let found = error
        .faults
        .iter()
        .find(|fault| fault.signal.as_deref() == signal && fault.cause.contains(cause))
        .unwrap_or_else(|| panic!("no fault of {signal:?} with {cause:?} in: {error}"));
    let location = found.location.as_ref().expect("the recorder knows the place");
    assert!(location.file.ends_with("recording.rs"), "{location:?}");
    assert!(location.line > 0);
}

#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, LogicStruct)]
struct Pair {
    low: Bits<8>,
    high: Bits<8>,
}

/// A block inside the subject.
#[derive(Default, LogicBlock)]
struct Child {
    pub source: Signal<In, Bits<8>>,
    pub sink: Signal<Out, Bits<8>>,
    pub hidden: Signal<Local, Bits<8>>,
}

impl Logic for Child {
    #[kernel]
    fn update(&mut self) {
        self.hidden.next = self.source.val();
        self.sink.next = self.hidden.val();
    }
}

refuses!(local_read_before_it_is_written, Some("scratch"), "is read before it is written", |self| {
    self.out.next = self.scratch.val();
    self.scratch.next = self.octet.val();
});

refuses!(output_read_before_it_is_written, Some("verdict"), "is read before it is written", |self| {
    self.out.next = select(self.verdict.val(), self.octet.val(), bits(0));
    self.verdict.next = self.flag.val();
});

refuses!(local_written_after_it_was_read, Some("scratch"), "is written after it was read", |self| {
    self.scratch.next = self.octet.val();
    self.out.next = self.scratch.val();
    self.scratch.next = self.octet.val() + 1;
});

refuses!(output_written_after_it_was_read, Some("out"), "is written after it was read", |self| {
    self.out.next = self.octet.val();
    self.verdict.next = self.out.val().any();
    self.out.next = self.octet.val() + 1;
});

refuses!(
    condition_that_reads_what_its_body_writes,
    Some("scratch"),
    "is written after it was read",
    |self| {
        self.scratch.next = self.octet.val();
        if self.scratch.val() == 3 {
            self.scratch.next = bits(0);
        }
    }
);

refuses!(input_that_is_written, Some("octet"), "is an input of this block", |self| {
    self.octet.next = bits(1);
});

refuses!(child_output_that_is_written, Some("child.sink"), "is an output of a child", |self| {
    self.child.sink.next = bits(1);
});

refuses!(local_of_a_child_that_is_read, None, "`self.child.hidden` lies inside another block", |self| {
    self.out.next = self.child.hidden.val();
});

refuses!(literal_that_is_too_wide, None, "the constant 256 does not fit in 8 bits", |self| {
    self.out.next = self.octet.val() + 256;
});

refuses!(
    comparison_with_a_literal_that_is_too_wide,
    None,
    "the constant 256 does not fit in 8 bits",
    |self| {
        self.verdict.next = self.octet.val() < 256;
    }
);

refuses!(bits_beyond_the_end, None, "bits 6 to 9 are not all in a value of 8 bits", |self| {
    self.out.next = bit_cast::<8, 4>(self.octet.val().get_bits::<4>(6));
});

refuses!(more_bits_than_there_are_at_a_moving_position, None, "not all in a value of 8 bits", |self| {
    self.verdict.next = self.octet.val().get_bits::<9>(self.octet.val().index()).any();
});

refuses!(bit_that_does_not_exist, None, "bit 8 does not exist in a value of 8 bits", |self| {
    self.out.next = self.octet.val().replace_bit(8, true);
});

refuses!(index_that_rust_cannot_make, None, "`index` takes at most 32 bits, this value has 80", |self| {
    self.verdict.next = self.octet.val().get_bit(self.wide.val().index());
});

refuses!(shift_by_a_distance_that_rust_cannot_read, None, "`to_u64` takes at most 64 bits", |self| {
    self.out.next = self.octet.val() >> self.wide.val();
});

refuses!(index_times_three, None, "multiplied by a power of two, not by 3", |self| {
    self.verdict.next = self.wide.val().get_bit(3 * self.octet.val().index());
});

refuses!(order_of_structs, None, "structs and signed values have no order", |self| {
    self.verdict.next = self.pair.val() < Pair::default();
});

refuses!(hardware_that_chooses_a_number_of_the_generator, None, "cannot choose between numbers", |self| {
    let position = if self.flag.val() { 1_usize } else { 2 };
    self.verdict.next = self.octet.val().get_bit(position);
});

#[test]
fn signed_values_are_refused() {
    #[derive(Default, LogicBlock)]
    struct Block {
        pub source: Signal<In, Signed<8>>,
        pub sink: Signal<Out, Signed<8>>,
    }

    impl Logic for Block {
        #[kernel]
        fn update(&mut self) {
            self.sink.next = self.source.val();
        }
    }

    let error = rnic_kernel::generate(&mut Block::default(), "top").expect_err("the ports are signed");
    assert!(error.faults.iter().any(|fault| fault.signal.as_deref() == Some("source")), "{error}");
    assert!(error.to_string().contains("is signed"), "{error}");
}

#[test]
fn an_enum_with_one_variant_has_no_wire() {
    #[derive(Clone, Copy, Debug, PartialEq, LogicState)]
    enum Only {
        Choice,
    }

    #[derive(Default, LogicBlock)]
    struct Block {
        pub source: Signal<In, Only>,
        pub sink: Signal<Out, Bit>,
    }

    impl Logic for Block {
        #[kernel]
        fn update(&mut self) {
            self.sink.next = self.source.val() == Only::Choice;
        }
    }

    let error = rnic_kernel::generate(&mut Block::default(), "top").expect_err("the port has no bits");
    assert_eq!(error.faults[0].signal.as_deref(), Some("source"));
    assert!(error.to_string().contains("has no bits"), "{error}");
}

/// Exclusive arms may read and write what they like, as long as each path writes first.
#[derive(Default, LogicBlock)]
struct Arms {
    pub flag: Signal<In, Bit>,
    pub octet: Signal<In, Bits<8>>,
    pub out: Signal<Out, Bits<8>>,
    scratch: Signal<Local, Bits<8>>,
}

impl Logic for Arms {
    #[kernel]
    fn update(&mut self) {
        self.scratch.next = bits(1);
        if self.flag.val() {
            self.out.next = self.scratch.val();
        } else {
            self.scratch.next = self.octet.val();
            self.out.next = self.scratch.val() + 1;
        }
    }
}

#[test]
fn what_one_arm_reads_another_may_write() {
    rnic_kernel::generate(&mut Arms::default(), "arms").expect("no path writes after it has read");
}

/// An assignment inside a value belongs to the branch in which it stands.
#[derive(Default, LogicBlock)]
struct Effects {
    pub flag: Signal<In, Bit>,
    pub out: Signal<Out, Bits<8>>,
    pub verdict: Signal<Out, Bit>,
}

impl Logic for Effects {
    #[kernel]
    fn update(&mut self) {
        self.verdict.next = false;
        self.out.next = if self.flag.val() {
            self.verdict.next = true;
            bits(3)
        } else {
            bits(4)
        };
    }
}

#[test]
fn assignment_inside_a_value_is_conditional() {
    let verilog = rnic_kernel::generate(&mut Effects::default(), "effects").expect("the block is complete");
    let conditional = verilog.split_once("if (flag)").expect("there is a branch").1;
    assert!(conditional.contains("verdict = 1'b1"), "{verilog}");
}

/// Ordinary functions and tables are evaluated while generating.
#[derive(Default, LogicBlock)]
struct Generated {
    pub octet: Signal<In, Bits<8>>,
    pub out: Signal<Out, Bits<8>>,
    pub other: Signal<Out, Bits<8>>,
}

const TABLE: [u64; 3] = [2, 3, 5];

fn power(base: u64, exponent: usize) -> u64 {
    base.pow(exponent as u32)
}

impl Logic for Generated {
    /// Adds numbers that Rust computes.
    #[kernel]
    fn update(&mut self) {
        let exponent = if TABLE.len() > 2 { 3 } else { 4 };
        let mask: Bits<8> = bits(power(2, exponent) - 1);
        // The third prime.
        self.out.next = (self.octet.val() & mask) + TABLE[2];
        self.other.next = if TABLE[0] == 2 { self.octet.val() } else { bits(power(9, 9)) };
    }
}

#[test]
fn the_generator_calls_functions_and_decides() {
    let verilog = rnic_kernel::generate(&mut Generated::default(), "generated").expect("all of it is known");
    assert!(verilog.contains("// Adds numbers that Rust computes."), "{verilog}");
    assert!(verilog.contains("// The third prime.\n    assign out = (octet & 8'h7) + 8'h5;"), "{verilog}");
    assert!(verilog.contains("assign other = octet;"), "{verilog}");
}

/// The names that the staged copy itself uses belong to the author all the same.
#[derive(Default, LogicBlock)]
struct Names {
    pub octet: Signal<In, Bits<8>>,
    pub other: Signal<In, Bits<8>>,
    pub out: Signal<Out, Bit>,
    pub matched: Signal<Out, Bit>,
}

impl Logic for Names {
    #[kernel]
    fn update(&mut self) {
        let left = self.octet.val();
        let right = self.other.val();
        self.out.next = right == left;
        let (subject, arms, test) = (left.any(), right.any(), left.all());
        self.matched.next = match right.to_u64() {
            0 => subject,
            1 if arms => test,
            _ => arms,
        };
    }
}

#[test]
fn names_of_the_author_meet_no_others() {
    let verilog = rnic_kernel::generate(&mut Names::default(), "names").expect("all names are free");
    assert!(verilog.contains("assign out = other == octet;"), "{verilog}");
    assert!(verilog.contains("(other == 8'h0) ? subject"), "{verilog}");
}
