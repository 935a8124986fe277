//! Which values need a wire, and which bits are used.
use super::coverage::BitRanges;
use super::{Driver, Graph, Netlist, SignalId, operands};
use crate::ir::{BinaryOp, NodeId, Op, UnaryOp};

/// Operators that may be written again instead of naming a value that is used twice or more.
const REPEATED_OPERATORS: usize = 2;
/// Levels of nesting in one expression; chains of `?:` and of one associative operator count as one level.
const NESTING: usize = 8;
/// Terms of one associative chain; more become a tree.
const CHAIN_TERMS: usize = 32;
/// Choices of one `?:` chain.
const CHAIN_CHOICES: usize = 256;

/// What is known of a node, once all that mentions it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    /// How often it is mentioned.
    uses: usize,
    /// Mentioned only as the whole of what is assigned.
    is_whole: bool,
    /// Verilog slices names only.
    is_sliced: bool,
    /// Operators that writing it out takes; adders count twice.
    size: usize,
    depth: usize,
    chain: usize,
    is_wire: bool,
}

/// How the values of a netlist are used.
pub(crate) struct Usage {
    shapes: Vec<Shape>,
    node_bits: Vec<BitRanges>,
    signal_bits: Vec<BitRanges>,
}

impl Usage {
    pub(crate) fn new(netlist: &Netlist) -> Self {
        let graph = &netlist.graph;
        let mut usage = Usage {
            shapes: vec![Shape { is_whole: true, ..Shape::default() }; graph.len()],
            node_bits: vec![BitRanges::default(); graph.len()],
            signal_bits: vec![BitRanges::default(); netlist.signals.len()],
        };
        usage.mention_roots(netlist);
        for node in (0..graph.len()).rev() {
            if usage.shapes[node].uses > 0 {
                usage.mention_operands(graph, node);
            }
        }
        for node in 0..graph.len() {
            if usage.shapes[node].uses > 0 {
                usage.measure(graph, node);
            }
        }
        usage
    }

    /// Whether anything mentions the node.
    pub(crate) fn is_used(&self, node: NodeId) -> bool {
        self.shapes[node].uses > 0
    }

    /// Whether the node is a wire, to be mentioned by name.
    pub(crate) fn is_wire(&self, node: NodeId) -> bool {
        self.shapes[node].is_wire
    }

    /// Whether a signal is mentioned at all.
    pub(crate) fn is_read(&self, signal: SignalId) -> bool {
        self.signal_bits[signal] != BitRanges::default()
    }

    /// The unused bits of a signal, as ranges `start..end`.
    pub(crate) fn unused_of_signal(&self, signal: SignalId, width: usize) -> Vec<(usize, usize)> {
        self.signal_bits[signal].missing(width)
    }

    /// The unused bits of a wire.
    pub(crate) fn unused_of_node(&self, node: NodeId, width: usize) -> Vec<(usize, usize)> {
        self.node_bits[node].missing(width)
    }

    fn mention_roots(&mut self, netlist: &Netlist) {
        let mut nodes = Vec::new();
        for driver in &netlist.drivers {
            match driver {
                Driver::Wire { .. } => {}
                Driver::Assign { value, .. } => nodes.push(*value),
                Driver::Always(actions) => {
                    actions.iter().for_each(|action| action.collect_nodes(&mut nodes));
                }
            }
        }
        for domain in &netlist.domains {
            nodes.push(domain.clock);
            nodes.extend(domain.reset);
            domain.actions.iter().for_each(|action| action.collect_nodes(&mut nodes));
        }
        for node in nodes {
            self.shapes[node].uses += 1;
            self.look_at(&netlist.graph, node, 0, netlist.graph[node].width);
        }
    }

    fn mention_operands(&mut self, graph: &Graph, node: NodeId) {
        let data = &graph[node];
        for operand in operands(&data.op) {
            self.shapes[operand].uses += 1;
            self.shapes[operand].is_whole = false;
            match data.op {
                Op::Slice { offset, .. } => {
                    self.shapes[operand].is_sliced = true;
                    self.look_at(graph, operand, offset, offset + data.width);
                }
                _ => self.look_at(graph, operand, 0, graph[operand].width),
            }
        }
    }

    fn look_at(&mut self, graph: &Graph, node: NodeId, start: usize, end: usize) {
        self.node_bits[node].insert(start, end);
        if let Some(signal) = graph.signal(node) {
            self.signal_bits[signal].insert(start, end);
        }
    }

    /// Decides whether a node becomes a wire; its operands have been decided.
    fn measure(&mut self, graph: &Graph, node: NodeId) {
        let data = &graph[node];
        let mut shape = self.shapes[node];
        let inlined: Vec<_> = operands(&data.op).filter(|&operand| !self.shapes[operand].is_wire).collect();
        let own_size = match &data.op {
            Op::Signal(_) | Op::Literal(_) | Op::Slice { .. } => 0,
            Op::Unary(UnaryOp::Not, operand) if graph[*operand].width == 1 => 0,
            Op::Concat(parts) => parts.len() - 1,
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, ..) => 2,
            Op::Unary(..) | Op::Binary(..) | Op::Select { .. } => 1,
        };
        shape.size = own_size + inlined.iter().map(|&operand| self.shapes[operand].size).sum::<usize>();
        shape.chain = 1;
        for &operand in &inlined {
            let inner = self.shapes[operand];
            let continues = continues_chain(graph, node, operand);
            shape.chain += if continues { inner.chain } else { 0 };
            shape.depth = shape.depth.max(if continues { inner.depth } else { inner.depth + 1 });
        }
        let longest = if matches!(data.op, Op::Select { .. }) { CHAIN_CHOICES } else { CHAIN_TERMS };
        let is_simple = matches!(data.op, Op::Signal(_) | Op::Literal(_));
        let is_repeated = (shape.uses - 1) * shape.size > REPEATED_OPERATORS;
        let is_too_long = !shape.is_whole && (shape.depth > NESTING || shape.chain >= longest);
        let has_name = data.name.is_some() || data.field.is_some();
        let is_indexed = shape.is_sliced || (has_name && !matches!(data.op, Op::Literal(_)));
        shape.is_wire =
            is_indexed && !(is_simple && data.name.is_none()) || !is_simple && (is_repeated || is_too_long);
        self.shapes[node] = shape;
    }
}

/// Whether `operand` is printed in one row with `node`: as a further choice, or a further term.
pub(crate) fn continues_chain(graph: &Graph, node: NodeId, operand: NodeId) -> bool {
    match (&graph[node].op, &graph[operand].op) {
        (Op::Select { otherwise, .. }, Op::Select { .. }) => *otherwise == operand,
        (Op::Binary(operator, ..), Op::Binary(inner, ..)) => {
            operator == inner
                && matches!(operator, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Add)
        }
        _ => false,
    }
}
