//! Graphs recorded by hand: what no kernel says, or says only when it is very large.
use crate::lint;
use rnic_kernel::ir::*;
use rnic_kernel::leaf::deposit;
use rnic_kernel::prelude::*;
use rnic_kernel::{GenerateError, generate};

/// Two inputs and an output, driven by whatever graph a test makes of them.
#[derive(LogicBlock)]
struct Probe8 {
    a: Signal<In, Bits<8>>,
    b: Signal<In, Bits<8>>,
    x: Signal<Out, Bits<8>>,
    graph: graph::Graph,
}

mod graph {
    use super::*;
    use rust_hdl::core::prelude::Probe;

    /// Makes a kernel, given the keys of `a`, `b` and `x`. To rust-hdl it is a field without signals.
    #[derive(Clone, Copy)]
    pub(crate) struct Graph(pub(crate) fn(Keys) -> Kernel);

    impl Logic for Graph {
        fn update(&mut self) {}
    }

    impl Block for Graph {
        fn connect_all(&mut self) {}
        fn update_all(&mut self) {}
        fn has_changed(&self) -> bool {
            false
        }
        fn accept(&self, _name: &str, _probe: &mut dyn Probe) {}
    }
}

#[derive(Clone, Copy)]
struct Keys {
    a: SignalKey,
    b: SignalKey,
    x: SignalKey,
}

impl Logic for Probe8 {
    fn update(&mut self) {}

    fn hdl(&self) -> Verilog {
        let key = |signal: *const ()| signal as SignalKey;
        let keys = Keys {
            a: key(std::ptr::from_ref(&self.a).cast()),
            b: key(std::ptr::from_ref(&self.b).cast()),
            x: key(std::ptr::from_ref(&self.x).cast()),
        };
        deposit(Staged::Kernel((self.graph.0)(keys)));
        Verilog::Empty
    }
}

fn generated(graph: fn(Keys) -> Kernel) -> Result<String, GenerateError> {
    let mut block = Probe8 {
        a: Default::default(),
        b: Default::default(),
        x: Default::default(),
        graph: graph::Graph(graph),
    };
    generate(&mut block, "top")
}

fn printed(graph: fn(Keys) -> Kernel) -> String {
    let verilog = generated(graph).unwrap_or_else(|error| panic!("{error}"));
    lint::check("top", &verilog);
    verilog
}

/// The lines between the declarations and `endmodule`.
fn logic(verilog: &str) -> String {
    let (_, body) = verilog.split_once(");\n").expect("a module has ports");
    body.trim_end().trim_end_matches("endmodule").trim_end().to_owned()
}

struct Builder {
    kernel: Kernel,
    a: NodeId,
    b: NodeId,
    x: SignalKey,
}

impl Builder {
    fn new(keys: Keys) -> Self {
        let kernel = Kernel { type_name: "graphs::Probe8".into(), ..Kernel::default() };
        let mut builder = Builder { kernel, a: 0, b: 0, x: keys.x };
        builder.a = builder.node(Op::Signal(keys.a), 8);
        builder.b = builder.node(Op::Signal(keys.b), 8);
        builder
    }

    fn node(&mut self, op: Op, width: usize) -> NodeId {
        self.kernel.nodes.push(Node { op, width, name: None, field: None });
        self.kernel.nodes.len() - 1
    }

    fn binary(&mut self, op: BinaryOp, left: NodeId, right: NodeId) -> NodeId {
        let is_comparison = matches!(
            op,
            BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge
        );
        let width = if is_comparison { 1 } else { self.kernel.nodes[left].width };
        self.node(Op::Binary(op, left, right), width)
    }

    fn literal(&mut self, value: u64, width: usize) -> NodeId {
        self.node(Op::Literal(value.into()), width)
    }

    fn assign(mut self, value: NodeId) -> Kernel {
        let target = Target { signal: self.x, part: None };
        let statement = statement(StatementKind::Assign { target, value });
        self.kernel.items.push(Item::Statement(statement));
        self.kernel
    }
}

fn statement(kind: StatementKind) -> Statement {
    Statement { comments: Vec::new(), location: Location::default(), kind }
}

#[test]
fn a_value_used_again_and_again_is_computed_once() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let mut value = builder.a;
        // Written out, this doubles at every step.
        for _ in 0..64 {
            let shifted = builder.binary(BinaryOp::Add, value, builder.b);
            value = builder.binary(BinaryOp::Xor, value, shifted);
        }
        builder.assign(value)
    });
    assert!(verilog.len() < 10_000, "{}", verilog.len());
    insta::assert_snapshot!(verilog);
}

#[test]
fn ten_thousand_nodes_deep_is_not_too_deep() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let mut value = builder.a;
        for step in 0..10_000 {
            let op = if step % 2 == 0 { BinaryOp::Add } else { BinaryOp::Xor };
            value = builder.binary(op, builder.b, value);
        }
        builder.assign(value)
    });
    let longest = verilog.lines().map(str::len).max();
    assert!(longest <= Some(120), "{longest:?}");
}

#[test]
fn a_chain_of_a_thousand_terms_is_cut_into_pieces() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let mut value = builder.a;
        for _ in 0..1_000 {
            value = builder.binary(BinaryOp::Xor, value, builder.b);
        }
        builder.assign(value)
    });
    let most = verilog.split(';').map(|statement| statement.matches('^').count()).max();
    assert!(most <= Some(32), "{most:?}");
}

#[test]
fn a_thousand_choices_are_printed_one_per_line() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let mut value = builder.b;
        for number in 0..1_000 {
            let number = builder.literal(number % 256, 8);
            let condition = builder.binary(BinaryOp::Eq, builder.a, number);
            value = builder.node(Op::Select { condition, then: number, otherwise: value }, 8);
        }
        builder.assign(value)
    });
    assert!(verilog.lines().count() >= 1_000);
}

#[test]
fn a_thousand_conditions_are_printed_as_one_chain() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let target = Target { signal: keys.x, part: None };
        let assign = |value| statement(StatementKind::Assign { target: target.clone(), value });
        let mut chain = vec![assign(builder.b)];
        for number in 0..1_000 {
            let number = builder.literal(number % 256, 8);
            let condition = builder.binary(BinaryOp::Eq, builder.a, number);
            chain = vec![statement(StatementKind::If {
                condition,
                then: vec![assign(number)],
                otherwise: chain,
            })];
        }
        builder.kernel.items.extend(chain.into_iter().map(Item::Statement));
        builder.kernel
    });
    assert_eq!(verilog.matches("else if").count(), 999);
    assert!(verilog.lines().all(|line| line.len() - line.trim_start().len() <= 12));
}

#[test]
fn numbers_and_neighbouring_slices_are_put_together() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let high = builder.node(Op::Slice { base: builder.a, offset: 4 }, 2);
        let low = builder.node(Op::Slice { base: builder.a, offset: 2 }, 2);
        let zero = builder.literal(0, 1);
        let three = builder.literal(3, 3);
        let inner = builder.node(Op::Concat(vec![low, zero]), 3);
        let value = builder.node(Op::Concat(vec![high, inner, three]), 8);
        builder.assign(value)
    });
    assert_eq!(logic(&verilog).trim_start().lines().next(), Some("assign x = {a[5:2], 4'h3};"));
}

#[test]
fn one_part_many_times_is_a_replication() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let sign = builder.node(Op::Slice { base: builder.a, offset: 7 }, 1);
        let value = builder.node(Op::Concat(vec![sign; 8]), 8);
        builder.assign(value)
    });
    assert!(verilog.contains("assign x = {8{a[7]}};"), "{verilog}");
}

#[test]
fn fixed_shifts_of_parts_are_put_together_again() {
    let first_line = |graph: fn(Keys) -> Kernel| {
        let verilog = printed(graph);
        logic(&verilog).trim_start().lines().next().unwrap_or_default().to_owned()
    };
    let both = "assign x = {a[3:0], b[3:0]};";
    assert_eq!(first_line(|keys| shifted_nibbles(keys, BinaryOp::Shl, 0)), both);
    assert_eq!(first_line(|keys| shifted_nibbles(keys, BinaryOp::Shr, 0)), both);
    let up = "assign x = {a[0], b[3:0], 3'h0};";
    assert_eq!(first_line(|keys| shifted_nibbles(keys, BinaryOp::Shl, 3)), up);
    let down = "assign x = {3'h0, a[3:0], b[3]};";
    assert_eq!(first_line(|keys| shifted_nibbles(keys, BinaryOp::Shr, 3)), down);
}

/// The low halves of both inputs, shifted together.
fn shifted_nibbles(keys: Keys, op: BinaryOp, distance: u64) -> Kernel {
    let mut builder = Builder::new(keys);
    let high = builder.node(Op::Slice { base: builder.a, offset: 0 }, 4);
    let low = builder.node(Op::Slice { base: builder.b, offset: 0 }, 4);
    let both = builder.node(Op::Concat(vec![high, low]), 8);
    let distance = builder.literal(distance, 4);
    let value = builder.binary(op, both, distance);
    builder.assign(value)
}

#[test]
fn two_shifts_side_by_side_are_one_concatenation() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let (three, five) = (builder.literal(3, 3), builder.literal(5, 3));
        let up = builder.binary(BinaryOp::Shl, builder.a, three);
        let down = builder.binary(BinaryOp::Shr, builder.a, five);
        let value = builder.binary(BinaryOp::Or, up, down);
        builder.assign(value)
    });
    assert!(verilog.contains("assign x = {a[4:0], a[7:5]};"), "{verilog}");
    let overlapping = printed(|keys| {
        let mut builder = Builder::new(keys);
        let (three, four) = (builder.literal(3, 3), builder.literal(4, 3));
        let up = builder.binary(BinaryOp::Shl, builder.a, three);
        let down = builder.binary(BinaryOp::Shr, builder.a, four);
        let value = builder.binary(BinaryOp::Or, up, down);
        builder.assign(value)
    });
    assert!(overlapping.contains("assign x = (a << 3) | (a >> 4);"), "{overlapping}");
}

#[test]
fn what_has_no_name_is_named_before_it_is_sliced() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let sum = builder.binary(BinaryOp::Add, builder.a, builder.b);
        let low = builder.node(Op::Slice { base: sum, offset: 0 }, 4);
        let zero = builder.literal(0, 4);
        let value = builder.node(Op::Concat(vec![zero, low]), 8);
        builder.assign(value)
    });
    let expected = "    wire [7:0] sum = a + b;\n    assign x = {4'h0, sum[3:0]};\n\n    wire unused = &{1'b0, sum[7:4]};";
    assert_eq!(logic(&verilog), expected);
}

#[test]
fn a_block_of_constants_is_no_always() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let all = builder.literal(0xab, 8);
        let middle = builder.literal(0, 2);
        for (part, value) in [(None, all), (Some((3, 2)), middle)] {
            let target = Target { signal: keys.x, part };
            builder.kernel.items.push(Item::Statement(statement(StatementKind::Assign { target, value })));
        }
        builder.kernel
    });
    assert!(verilog.contains("assign x = 8'ha3;"), "{verilog}");
}

#[test]
fn comparisons_are_inverted_and_not_negated() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let less = builder.binary(BinaryOp::Lt, builder.a, builder.b);
        let not_less = builder.node(Op::Unary(UnaryOp::Not, less), 1);
        let any = builder.node(Op::Unary(UnaryOp::AnyOne, builder.b), 1);
        let both = builder.binary(BinaryOp::And, not_less, any);
        let value = builder.node(Op::Select { condition: both, then: builder.a, otherwise: builder.b }, 8);
        builder.assign(value)
    });
    assert!(verilog.contains("assign x = (a >= b && (|b)) ? a : b;"), "{verilog}");
}

#[test]
fn a_label_that_occurs_twice_is_printed_once() {
    let verilog = printed(|keys| {
        let mut builder = Builder::new(keys);
        let (one, two) = (builder.literal(1, 8), builder.literal(2, 8));
        let target = Target { signal: keys.x, part: None };
        let arm = |labels: Vec<NodeId>, value| CaseArm {
            labels,
            body: vec![statement(StatementKind::Assign { target: target.clone(), value })],
        };
        let arms =
            vec![arm(vec![one, two, one], builder.a), arm(vec![two], builder.b), arm(vec![], builder.b)];
        let case = StatementKind::Case { subject: builder.a, arms };
        builder.kernel.items.push(Item::Statement(statement(case)));
        builder.kernel
    });
    assert!(verilog.contains("8'h1, 8'h2: x = a;\n            default: x = b;\n"), "{verilog}");
}

#[test]
fn a_comment_cannot_direct_a_tool() {
    let verilog = printed(|keys| {
        let builder = Builder::new(keys);
        let (a, x) = (builder.a, builder.x);
        let mut kernel = builder.kernel;
        let kind = StatementKind::Assign { target: Target { signal: x, part: None }, value: a };
        let comments = vec!["synopsys translate_off".to_owned()];
        let statement = Statement { comments, location: Location::default(), kind };
        kernel.items.push(Item::Statement(statement));
        kernel
    });
    assert!(verilog.contains("// note: synopsys translate_off"), "{verilog}");
}

fn cause(graph: fn(Keys) -> Kernel) -> String {
    generated(graph).expect_err("this graph is refused").faults[0].cause.clone()
}

#[test]
fn widths_that_do_not_fit_are_refused() {
    let literal = cause(|keys| {
        let mut builder = Builder::new(keys);
        let value = builder.literal(256, 8);
        builder.assign(value)
    });
    assert_eq!(literal, "the constant 0x100 does not fit in 8 bits");
    let slice = cause(|keys| {
        let mut builder = Builder::new(keys);
        let value = builder.node(Op::Slice { base: builder.a, offset: 1 }, 8);
        builder.assign(value)
    });
    assert_eq!(slice, "bits 8 down to 1 do not exist in a value of 8 bits");
    let sum = cause(|keys| {
        let mut builder = Builder::new(keys);
        let four = builder.literal(4, 4);
        let value = builder.binary(BinaryOp::Add, builder.a, four);
        builder.assign(value)
    });
    assert_eq!(sum, "a right operand has 4 bits and needs 8");
    let assigned = cause(|keys| {
        let mut builder = Builder::new(keys);
        let value = builder.literal(4, 4);
        builder.assign(value)
    });
    assert_eq!(assigned, "is assigned 4 bits where it has 8");
}

#[test]
fn signals_of_others_are_refused() {
    let read = cause(|keys| {
        let mut builder = Builder::new(keys);
        let value = builder.node(Op::Signal(1), 8);
        builder.assign(value)
    });
    assert!(read.contains("neither of this block nor a port"), "{read}");
    let written = cause(|keys| {
        let mut builder = Builder::new(keys);
        builder.x = 1;
        let value = builder.a;
        builder.assign(value)
    });
    assert!(written.contains("neither of this block nor an input"), "{written}");
    let input = cause(|keys| {
        let mut builder = Builder::new(keys);
        builder.x = keys.a;
        let value = builder.b;
        builder.assign(value)
    });
    assert_eq!(input, "is an input and cannot be assigned");
}

#[test]
fn an_operand_after_its_operator_is_refused() {
    let order = cause(|keys| {
        let mut builder = Builder::new(keys);
        let own = builder.kernel.nodes.len();
        let value = builder.node(Op::Unary(UnaryOp::Not, own), 8);
        builder.assign(value)
    });
    assert_eq!(order, "a value is recorded before its operands");
}
