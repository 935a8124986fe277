//! What `#[derive(Construct)]` writes.
#![allow(missing_docs, reason = "blocks of a test")]
use rnic_kernel::prelude::*;

/// Registers that begin with rising numbers, and many others.
#[derive(LogicBlock, Registers, Construct)]
#[require(WORDS <= 1 << WIDTH, "WORDS fit in WIDTH bits")]
#[require(WORDS > 0)]
#[new(
    /// Makes a table that begins with `first`.
    first: u64,
)]
struct Table<T: Synth, const WORDS: usize, const WIDTH: usize> {
    pub clock: Signal<In, Clock>,
    pub tag: Signal<In, T>,
    pub last: Signal<Out, Bits<WIDTH>>,
    pub oldest: Signal<Out, T>,
    #[init(std::array::from_fn(|index| Reg::new(bits(first + index as u64))))]
    words: [Reg<Bits<WIDTH>>; WORDS],
    marks: [[DFF<T>; 2]; 40],
    #[init(WORDS - 1)]
    _last: usize,
}

impl<T: Synth, const WORDS: usize, const WIDTH: usize> Logic for Table<T, WORDS, WIDTH> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.last.next = self.words[self._last].q.val();
        self.oldest.next = self.marks[39][1].q.val();
        for i in 0..40 {
            self.marks[i][0].d.next = if i == 0 { self.tag.val() } else { self.marks[i - 1][1].q.val() };
            self.marks[i][1].d.next = self.marks[i][0].q.val();
        }
    }
}

/// Chooses the parameters.
#[derive(LogicBlock, Registers, Construct)]
struct Tables {
    pub clock: Signal<In, Clock>,
    pub tag: Signal<In, Bits<3>>,
    pub last: [Signal<Out, Bits<5>>; 2],
    pub oldest: [Signal<Out, Bits<3>>; 2],
    #[init([Table::new(3), Table::new(20)])]
    tables: [Table<Bits<3>, 4, 5>; 2],
}

impl Logic for Tables {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        for i in 0..2 {
            self.tables[i].tag.next = self.tag.val();
            self.last[i].next = self.tables[i].last.val();
            self.oldest[i].next = self.tables[i].oldest.val();
        }
    }
}

#[test]
fn fields_begin_with_what_they_say_or_with_their_default() {
    let tables = Tables::default();
    let values = |table: usize| {
        tables.tables[table].words.iter().map(|word| word.q.val().to_u64()).collect::<Vec<_>>()
    };
    assert_eq!(values(0), [3, 4, 5, 6]);
    assert_eq!(values(1), [20, 21, 22, 23]);
    assert!(tables.tables[0].marks.iter().flatten().all(|mark| mark.q.val() == bits(0)));
    let verilog = rnic_kernel::generate(&mut Tables::default(), "tables").expect("the block is complete");
    assert!(verilog.contains("words_3 = 5'h6;") && verilog.contains("words_3 = 5'h17;"), "{verilog}");
}

#[test]
fn the_first_requirement_that_does_not_hold_is_the_reason() {
    assert_eq!(Table::<Bit, 8, 3>::REFUSAL, None);
    assert_eq!(Table::<Bit, 9, 3>::REFUSAL, Some("Table: WORDS fit in WIDTH bits"));
    assert_eq!(Table::<Bit, 0, 3>::REFUSAL, Some("Table is built with WORDS > 0 only"));
}
