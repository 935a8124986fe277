//! Shapes that are known to go wrong between a program and its Verilog: each is an output, each has its test.
//!
//! A printer that drops widths or precedence gets most of them wrong without a word. Here the Rust kernel, Verilator
//! and Icarus must agree on random input, and a mutation of the Verilog must be noticed.

use rnic_kernel::prelude::*;
use rnic_kernel_check::{Difference, Recording, Subject};
use rnic_kernel_check::{icarus, lint, record, scratch, subject, verilator, yosys};
use std::sync::OnceLock;

const CYCLES: usize = 1500;

const LIMIT: u64 = 0x1f;

/// A constant by a path of two segments.
mod band {
    pub(crate) const LOW: u64 = 0x40;
    pub(crate) const HIGH: u64 = 0x7f;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Pair {
    high: Bits<8>,
    low: Bits<8>,
}

#[kernel]
fn doubled(value: Bits<8>) -> Bits<8> {
    value + value
}

#[kernel]
fn lane<const N: usize>(word: Bits<64>, index: usize) -> Bits<N> {
    word.get_bits::<N>(index * N)
}

/// Combinational shapes.
#[derive(Default, LogicBlock)]
struct Shapes {
    pub a: Signal<In, Bits<8>>,
    pub b: Signal<In, Bits<8>>,
    pub n: Signal<In, Bits<4>>,
    pub w: Signal<In, Bits<64>>,
    pub wide: Signal<In, Bits<130>>,
    pub pair: Signal<In, Pair>,
    pub flag: Signal<In, Bit>,
    pub widened_sum: Signal<Out, Bits<16>>,
    pub widened_not: Signal<Out, Bits<8>>,
    pub widened_shift: Signal<Out, Bits<16>>,
    pub wrapped_sum: Signal<Out, Bit>,
    pub wrapped_difference: Signal<Out, Bit>,
    pub masked_zero: Signal<Out, Bit>,
    pub mixed_less: Signal<Out, Bit>,
    pub shifted_sum: Signal<Out, Bit>,
    pub field_bit: Signal<Out, Bit>,
    pub slice_of_xor: Signal<Out, Bits<4>>,
    pub constant_operand: Signal<Out, Bits<8>>,
    pub constant_compare: Signal<Out, Bit>,
    pub shift_beyond: Signal<Out, Bits<8>>,
    pub shift_left_beyond: Signal<Out, Bits<130>>,
    pub shift_by_shift: Signal<Out, Bits<130>>,
    pub static_shift_beyond: Signal<Out, Bits<8>>,
    pub static_shift_by_zero: Signal<Out, Bits<16>>,
    pub moving_comparison: Signal<Out, Bits<64>>,
    pub shift_after_shift: Signal<Out, Bits<130>>,
    pub not_then_shift: Signal<Out, Bits<8>>,
    pub not_of_compare: Signal<Out, Bit>,
    pub or_and_xor: Signal<Out, Bits<8>>,
    pub compare_of_bits: Signal<Out, Bit>,
    pub moving_slice: Signal<Out, Bits<8>>,
    pub moving_slice_at_the_end: Signal<Out, Bits<8>>,
    pub moving_bit: Signal<Out, Bits<64>>,
    pub bit_of_sum: Signal<Out, Bit>,
    pub one_bit_sum: Signal<Out, Bits<1>>,
    pub bands: Signal<Out, Bits<3>>,
    pub guarded: Signal<Out, Bits<2>>,
    pub nested_calls: Signal<Out, Bits<8>>,
    pub lanes: Signal<Out, Bits<8>>,
    pub wide_less: Signal<Out, Bit>,
    pub wide_difference: Signal<Out, Bits<130>>,
    pub wide_parity: Signal<Out, Bit>,
    pub swapped: Signal<Out, Bits<64>>,
    pub unused: Signal<Out, Bit>,
    pub value: Signal<Out, Bits<8>>,
    pub last_assignment: Signal<Out, Bits<8>>,
}

#[allow(clippy::nonminimal_bool, reason = "the shape is what is tested")]
impl Logic for Shapes {
    #[kernel]
    fn update(&mut self) {
        let a = self.a.val();
        let b = self.b.val();
        self.widened_sum.next = bit_cast::<16, 8>(a + b);
        self.widened_not.next = bit_cast::<8, 4>(!self.n.val());
        self.widened_shift.next = bit_cast::<16, 8>(a << 4);
        self.wrapped_sum.next = a + 1 == 0;
        self.wrapped_difference.next = a - b > 3;
        self.masked_zero.next = a & b == 0;
        self.mixed_less.next = a ^ b < 5;
        self.shifted_sum.next = (a >> 1) + b == a;
        self.field_bit.next = self.pair.val().high.get_bit(3);
        self.slice_of_xor.next = (a ^ b).get_bits::<4>(2);
        self.constant_operand.next = a - LIMIT;
        self.constant_compare.next = a <= LIMIT;
        self.shift_beyond.next = a >> self.n.val();
        self.shift_left_beyond.next = self.wide.val() << b;
        self.shift_by_shift.next = !self.wide.val() >> (self.n.val() << a);
        self.static_shift_beyond.next = (a << 8) | (a >> 9);
        self.static_shift_by_zero.next = bit_cast::<16, 8>(b).replace_bit(0, a.any()) ^ cat!(a, b) << 0;
        self.moving_comparison.next = self.w.val().replace_bit(self.n.val().index(), self.n.val() != 0);
        self.shift_after_shift.next = self.wide.val() >> a.get_bits::<6>(0) >> b.get_bits::<6>(0);
        self.not_then_shift.next = !a >> 4;
        self.not_of_compare.next = !(a < b);
        self.or_and_xor.next = a | b & a ^ !b;
        self.compare_of_bits.next = (a < b) == self.flag.val();
        self.moving_slice.next = self.w.val().get_bits::<8>(self.n.val().index());
        self.moving_slice_at_the_end.next = self.w.val().get_bits::<8>(self.a.val().get_bits::<6>(0).index());
        self.moving_bit.next = self.w.val().replace_bit(self.n.val().index(), self.flag.val());
        self.bit_of_sum.next = (a + b).get_bit(self.b.val().get_bits::<3>(0).index());
        self.one_bit_sum.next = a.get_bits::<1>(0) + b.get_bits::<1>(0) + 1;
        self.bands.next = match a.to_u64() {
            0 => bits(0),
            1..=15 => bits(1),
            16 | 32 | 128 => bits(2),
            band::LOW..=band::HIGH => bits(3),
            LIMIT => bits(4),
            _ => bits(7),
        };
        self.guarded.next = match (a.get_bit(0), self.flag.val()) {
            (true, true) => bits(3),
            (true, _) if b.any() => bits(2),
            (false, true) => bits(1),
            _ => bits(0),
        };
        self.nested_calls.next = doubled(doubled(doubled(doubled(a + b))));
        self.lanes.next = bits(0);
        for i in 0..8 {
            if self.n.val() == i as u64 {
                self.lanes.next = lane::<8>(self.w.val(), i);
            }
        }
        self.wide_less.next = self.wide.val() < !self.wide.val();
        self.wide_difference.next = self.wide.val() - bit_cast::<130, 64>(self.w.val()) - 1;
        self.wide_parity.next = self.wide.val().xor() ^ self.wide.val().all();
        self.swapped.next = swap_bytes(self.w.val());
        // Names that a printer may want for itself.
        let unused = a.any();
        let value = a ^ b;
        self.unused.next = unused;
        self.value.next = value;
        self.last_assignment.next = a;
        if self.flag.val() {
            self.last_assignment.next = b;
        }
        if a == b {
            self.last_assignment.next = bits(0x5a);
        }
    }
}

subject!(Shapes; a, b, n, w, wide, pair, flag);

impl rnic_kernel_check::RandomValue for Pair {
    fn random(random: &mut rnic_kernel_check::Random) -> Self {
        Pair {
            high: rnic_kernel_check::RandomValue::random(random),
            low: rnic_kernel_check::RandomValue::random(random),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Mode {
    Idle,
    Load,
    Shift,
}

/// Clones share the ids of their signals in rust-hdl.
#[derive(Clone, Default, LogicBlock, Registers)]
struct Stage {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub d: Signal<In, Bits<8>>,
    pub q: Signal<Out, Bits<8>>,
    held: DFF<Bits<8>>,
}

impl Logic for Stage {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.held.d.next = self.d.val();
        self.q.next = self.held.q.val();
    }
}

const ROWS: usize = 2;
const DEPTH: usize = 3;

/// Shapes with registers and blocks inside.
#[derive(LogicBlock, Registers)]
struct States<const LAST: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub a: Signal<In, Bits<8>>,
    pub go: Signal<In, Bit>,
    pub mode: Signal<Out, Mode>,
    pub delayed: Signal<Out, Bits<8>>,
    pub grid: Signal<Out, Bits<16>>,
    pub preset: Signal<Out, Bits<8>>,
    pub unreset: Signal<Out, Bits<8>>,
    pub cloned: Signal<Out, Bits<8>>,
    pub stairs: Signal<Out, Bits<8>>,
    pub merged: Signal<Out, Bits<16>>,
    pub fixed: Signal<Out, Bits<8>>,
    low: Signal<Local, Bits<8>>,
    scratch: Signal<Local, Pair>,
    state: Reg<Mode>,
    chain: [Reg<Bits<8>>; DEPTH],
    cells: [[DFF<Bits<8>>; DEPTH]; ROWS],
    counter: Reg<Bits<8>>,
    sampled: DFF<Bits<8>>,
    stages: Vec<Stage>,
    factor: Constant<Bits<8>>,
}

impl<const LAST: usize> Default for States<LAST> {
    fn default() -> Self {
        States {
            clock: Default::default(),
            reset: Default::default(),
            a: Default::default(),
            go: Default::default(),
            mode: Default::default(),
            delayed: Default::default(),
            grid: Default::default(),
            preset: Default::default(),
            unreset: Default::default(),
            cloned: Default::default(),
            stairs: Default::default(),
            merged: Default::default(),
            fixed: Default::default(),
            low: Default::default(),
            scratch: Default::default(),
            state: Reg::new(Mode::Shift),
            chain: Default::default(),
            cells: Default::default(),
            counter: Reg::new(0xa5.into()),
            sampled: Default::default(),
            stages: vec![Stage::default(); DEPTH],
            factor: Constant::new(0x3c.into()),
        }
    }
}

impl<const LAST: usize> Logic for States<LAST> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.mode.next = self.state.q.val();
        match self.state.q.val() {
            Mode::Idle if self.a.val().get_bit(0) => self.state.d.next = Mode::Load,
            Mode::Idle => {}
            Mode::Load => {
                if self.go.val() {
                    self.state.d.next = Mode::Shift;
                }
            }
            Mode::Shift => self.state.d.next = Mode::Idle,
        }

        for i in 0..DEPTH {
            self.chain[i].d.next = if i == 0 { self.a.val() } else { self.chain[i - 1].q.val() };
        }
        self.delayed.next = self.chain[LAST].q.val();

        for row in 0..ROWS {
            for column in 0..DEPTH {
                let left = if column == 0 { self.a.val() } else { self.cells[row][column - 1].q.val() };
                self.cells[row][column].d.next = left + (row as u64);
            }
        }
        self.grid.next = cat!(self.cells[1][DEPTH - 1].q.val(), self.cells[0][DEPTH - 1].q.val());

        if self.go.val() {
            self.counter.d.next = self.counter.q.val() + 1;
            self.sampled.d.next = self.a.val();
        }
        self.preset.next = self.counter.q.val();
        self.unreset.next = self.sampled.q.val();

        for i in 0..self.stages.len() {
            self.stages[i].clock.next = self.clock.val();
            self.stages[i].reset.next = self.reset.val();
            self.stages[i].d.next = if i == 0 { self.a.val() } else { self.stages[i - 1].q.val() };
        }
        self.cloned.next = self.stages[self.stages.len() - 1].q.val();

        // Two signals of one `if`, one of which needs the other: no loop.
        self.low.next = bits(0);
        self.stairs.next = bits(0);
        if self.go.val() {
            self.low.next = self.a.val() + 1;
            self.stairs.next = self.low.val() + 1;
        }

        self.scratch.next = Pair { high: self.a.val(), low: self.a.val() + 1 };
        self.scratch.next.low = self.a.val() - 1;
        let scratch = self.scratch.val();
        self.merged.next = cat!(scratch.high, scratch.low);
        self.fixed.next = self.factor.val() ^ self.a.val();
    }
}

subject!(States<{ DEPTH - 1 }>, clock, reset; a, go);

struct Outcome {
    verilog: String,
    recording: Recording,
    differences: Vec<Difference>,
}

fn run(name: &str, make: fn() -> Box<dyn Subject>) -> Outcome {
    let verilog = make().generate(name).unwrap_or_else(|error| panic!("{error}"));
    let recording = record(name, &mut *make(), CYCLES, 7);
    let simulators = [verilator, icarus];
    let differences = simulators.iter().flat_map(|simulate| simulate(&verilog, &recording)).collect();
    Outcome { verilog, recording, differences }
}

fn shapes() -> &'static Outcome {
    static ONCE: OnceLock<Outcome> = OnceLock::new();
    ONCE.get_or_init(|| run("shapes", || Box::new(Shapes::default())))
}

fn states() -> &'static Outcome {
    static ONCE: OnceLock<Outcome> = OnceLock::new();
    ONCE.get_or_init(|| run("states", || Box::new(States::<{ DEPTH - 1 }>::default())))
}

/// Tests, each named as a claim about one output.
macro_rules! claims {
    ($block:ident: $($claim:ident = $port:literal;)*) => { $(
        #[test]
        fn $claim() {
            let outcome = $block();
            assert!(outcome.recording.outputs.iter().any(|(name, _)| name == $port));
            let different = outcome.differences.iter().find(|difference| difference.port == $port);
            assert!(different.is_none(), "{}\n{}", different.unwrap(), outcome.verilog);
        }
    )* };
}

claims! { shapes:
    a_sum_is_not_widened_by_the_cast_around_it = "widened_sum";
    a_complement_is_not_widened_by_the_cast_around_it = "widened_not";
    a_shift_is_not_widened_by_the_cast_around_it = "widened_shift";
    a_sum_wraps_before_it_is_compared = "wrapped_sum";
    a_difference_wraps_before_it_is_compared = "wrapped_difference";
    and_binds_as_in_rust_and_not_as_in_verilog = "masked_zero";
    xor_binds_as_in_rust_and_not_as_in_verilog = "mixed_less";
    a_sum_with_a_shift_keeps_its_width = "shifted_sum";
    a_bit_of_a_field_is_legal_verilog = "field_bit";
    a_slice_of_an_expression_is_legal_verilog = "slice_of_xor";
    a_rust_constant_is_an_operand = "constant_operand";
    a_rust_constant_is_compared = "constant_compare";
    a_shift_by_the_width_or_more_yields_zero = "shift_beyond";
    a_wide_shift_to_the_left_yields_zero_beyond_the_width = "shift_left_beyond";
    a_distance_that_is_shifted_out_is_zero = "shift_by_shift";
    a_known_shift_by_the_width_or_more_yields_zero = "static_shift_beyond";
    a_shift_by_zero_is_the_value_itself = "static_shift_by_zero";
    a_comparison_with_zero_is_one_bit = "moving_comparison";
    two_shifts_go_as_far_as_both_distances = "shift_after_shift";
    a_complement_is_shifted_and_not_the_reverse = "not_then_shift";
    a_comparison_is_inverted_whole = "not_of_compare";
    mixed_bitwise_operators_bind_as_in_rust = "or_and_xor";
    a_comparison_is_compared_as_a_bit = "compare_of_bits";
    a_slice_moves = "moving_slice";
    a_moving_slice_reads_zero_beyond_the_end = "moving_slice_at_the_end";
    a_moving_bit_is_replaced = "moving_bit";
    a_moving_bit_of_a_sum_is_taken_after_wrapping = "bit_of_sum";
    one_bit_numbers_wrap = "one_bit_sum";
    ranges_alternatives_and_constants_are_patterns = "bands";
    guards_fall_through_to_the_next_arm = "guarded";
    functions_call_functions = "nested_calls";
    a_function_takes_numbers_of_the_generator = "lanes";
    wide_numbers_are_compared_unsigned = "wide_less";
    wide_numbers_borrow = "wide_difference";
    wide_numbers_are_reduced = "wide_parity";
    bytes_are_swapped = "swapped";
    a_signal_may_be_called_unused = "unused";
    a_signal_may_be_called_value = "value";
    the_last_assignment_wins = "last_assignment";
}

claims! { states:
    a_state_machine_follows_its_match = "mode";
    an_element_may_be_chosen_by_a_const_generic = "delayed";
    arrays_of_arrays_are_indexed_by_loops = "grid";
    a_register_with_reset_starts_and_resets_to_its_value = "preset";
    a_register_without_reset_ignores_it = "unreset";
    cloned_blocks_are_told_apart = "cloned";
    a_one_way_dependency_in_one_if_is_no_loop = "stairs";
    a_field_overrides_the_struct_before_it = "merged";
    a_constant_of_the_instance_is_read = "fixed";
}

#[test]
fn linters_are_silent_about_the_shapes() {
    for (name, outcome) in [("shapes", shapes()), ("states", states())] {
        let complaints = lint(name, &outcome.verilog, &[]);
        assert!(complaints.is_empty(), "{complaints}\n{}", outcome.verilog);
    }
}

#[test]
fn names_hold_no_dollar_and_equal_designs_equal_text() {
    for (name, outcome) in [("shapes", shapes()), ("states", states())] {
        assert!(!outcome.verilog.contains('$'), "{}", outcome.verilog);
        assert!(outcome.verilog.contains(&format!("module {name} (")));
    }
    assert_eq!(Shapes::default().generate("shapes").unwrap(), shapes().verilog);
}

/// One change of the Verilog for each kind of fault.
const MUTATIONS: [(&str, &str); 14] = [
    (" + ", " - "),
    (" - ", " + "),
    (" & ", " | "),
    (" | ", " & "),
    (" ^ ", " | "),
    (" << ", " >> "),
    (" >> ", " << "),
    (" < ", " <= "),
    (" <= ", " < "),
    (" == ", " != "),
    (" && ", " || "),
    ("? ", "? ~"),
    ("~", ""),
    ("8'h1f", "8'h1e"),
];

#[test]
fn each_mutation_of_the_shapes_is_noticed_or_changes_nothing() {
    let Outcome { verilog, recording, .. } = shapes();
    let mut noticed = 0;
    for (from, to) in MUTATIONS {
        let places: Vec<usize> = verilog.match_indices(from).map(|(place, _)| place).take(3).collect();
        assert!(!places.is_empty(), "nothing to mutate: `{from}`\n{verilog}");
        for place in places {
            let mutant = format!("{}{to}{}", &verilog[..place], &verilog[place + from.len()..]);
            if !icarus(&mutant, recording).is_empty() {
                noticed += 1;
            } else {
                assert!(is_equivalent(verilog, &mutant), "`{from}` as `{to}` is not noticed:\n{mutant}");
            }
        }
    }
    assert!(noticed > 20, "only {noticed} mutations were noticed");
}

/// Proves with Yosys that two combinational texts of the module `shapes` mean the same.
fn is_equivalent(gold: &str, gate: &str) -> bool {
    let folder = scratch();
    std::fs::write(folder.path().join("gold.v"), gold).unwrap();
    std::fs::write(folder.path().join("gate.v"), gate).unwrap();
    let script = "read_verilog gold.v; proc; rename shapes gold; read_verilog gate.v; proc; rename shapes gate; \
                  miter -equiv -flatten -make_outputs gold gate miter; opt; sat -verify -prove trigger 0 miter";
    yosys(folder.path(), script).0
}
