//! Our own `LogicStruct` against that of rust-hdl.
#![allow(missing_docs, reason = "types of a test")]
use num_bigint::BigUint;
use rnic_kernel::literal::number_of;
use rnic_kernel::ports::put_bits;
use rnic_kernel::prelude::*;
use rnic_kernel::rust_hdl::core::prelude as stock;

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Kind {
    Send,
    Write,
    Read,
}

/// The same struct, packed by either derive.
macro_rules! twins {
    ($($name:ident by $derive:path;)*) => { $(
        #[derive(Clone, Copy, Debug, Default, PartialEq, $derive)]
        struct $name {
            kind: Kind,
            length: Bits<13>,
            last: Bit,
            data: Bits<70>,
        }

        impl $name {
            fn sample() -> Self {
                $name {
                    kind: Kind::Read,
                    length: bits(0x1abc),
                    last: true,
                    data: Bits::<70>::mask() - 0x1234_5678,
                }
            }
        }
    )* };
}

twins! {
    Ours by rnic_kernel::prelude::LogicStruct;
    Theirs by stock::LogicStruct;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Generic<T: Synth, const N: usize>
where
    T: PartialEq,
{
    head: T,
    data: Bits<N>,
    last: Bit,
}

#[test]
fn packing_is_that_of_rust_hdl() {
    let ours: Bits<{ Ours::BITS }> = Ours::sample().into();
    let theirs: Bits<{ Theirs::BITS }> = Theirs::sample().into();
    assert_eq!(ours, theirs);
    assert_eq!(Ours::BITS, Theirs::BITS);
    let (ours, theirs) = (Ours::sample(), Theirs::sample());
    assert_eq!(ours.get_my_offset_kind(), theirs.get_my_offset_kind());
    assert_eq!(ours.get_my_offset_length(), theirs.get_my_offset_length());
    assert_eq!(ours.get_my_offset_last(), theirs.get_my_offset_last());
    assert_eq!(ours.get_my_offset_data(), theirs.get_my_offset_data());
    assert_eq!(ours.get_my_width_data(), theirs.get_my_width_data());
}

#[test]
fn description_is_that_of_rust_hdl() {
    assert_eq!(format!("{:?}", Ours::descriptor().kind), format!("{:?}", Theirs::descriptor().kind));
    assert_eq!(Ours::sample().vcd(), Theirs::sample().vcd());
}

/// The bits that a bench gets are those of the constant.
fn has_the_bits_of_its_literal<T: Synth>(value: T) {
    let width = T::BITS;
    let (mut words, mut end) = (vec![0; width.div_ceil(32)], 0);
    put_bits(&value.vcd(), &T::descriptor().kind, &mut words, &mut end);
    assert_eq!(end, width);
    assert_eq!(Some(BigUint::new(words)), number_of(&value.verilog()), "{value:?}");
}

#[test]
fn bits_for_a_bench_are_those_of_the_literal() {
    [Kind::Send, Kind::Write, Kind::Read].into_iter().for_each(has_the_bits_of_its_literal);
    has_the_bits_of_its_literal(true);
    has_the_bits_of_its_literal(Bits::<1>::from(1));
    has_the_bits_of_its_literal(Ours::sample());
    let inner = Generic { head: Ours::sample(), data: Bits::<31>::mask() - 5, last: true };
    has_the_bits_of_its_literal(Generic { head: inner, data: bits::<9>(0x155), last: false });
}

#[test]
fn generic_struct_packs_its_first_field_lowest() {
    assert_eq!(<Generic<Kind, 20> as Synth>::BITS, 2 + 20 + 1);
    let value = Generic::<Kind, 20> { head: Kind::Write, data: bits(0x8_0001), last: true };
    assert_eq!(format!("{:x}", value.verilog()).split("'h").nth(1), Some("600005"));
    assert_eq!(value.get_my_offset_last(), 22);
}

#[test]
fn generic_structs_nest() {
    type Inner = Generic<Bits<600>, 500>;
    let value =
        Generic::<Inner, 4> { head: Inner { last: true, ..Inner::default() }, data: bits(9), last: false };
    assert_eq!(<Generic<Inner, 4> as Synth>::BITS, 1101 + 5);
    let digits = format!("{:x}", value.verilog());
    // Bit 1100 is the inner `last`, bits 1101 to 1104 are `data`.
    assert!(digits.ends_with(&format!("13{}", "0".repeat(275))), "{digits}");
}

#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Header {
    flags: Bits<3>,
    ours: Ours,
}

/// Reads and writes fields, and fields of fields.
#[derive(Default, LogicBlock)]
struct Fields {
    pub rx: Signal<In, Header>,
    pub length: Signal<Out, Bits<13>>,
    pub high: Signal<Out, Bits<5>>,
    pub flags: Signal<Out, Bits<3>>,
    pub tx: Signal<Out, Header>,
}

impl Logic for Fields {
    #[kernel]
    fn update(&mut self) {
        let header = self.rx.val();
        let length = header.ours.length;
        self.length.next = length;
        self.high.next = header.ours.length.get_bits::<5>(8);
        self.flags.next = header.flags;
        self.tx.next = header;
        self.tx.next.ours.length = length + 1;
    }
}

/// Each field is one wire, which is called after the whole, and a part of a field is a part of that wire.
#[test]
fn fields_have_their_names_in_verilog() {
    let verilog = rnic_kernel::generate(&mut Fields::default(), "fields").expect("the block is complete");
    for line in [
        "    wire [12:0] rx_ours_length = rx[17:5];",
        "    assign length = rx_ours_length;",
        "    assign high = rx_ours_length[12:8];",
        "    wire [2:0] rx_flags = rx[2:0];",
        "    assign flags = rx_flags;",
        "        tx[17:5] = rx_ours_length + 13'h1; // ours.length",
    ] {
        assert_eq!(verilog.lines().filter(|found| *found == line).count(), 1, "{line} in:\n{verilog}");
    }
}
