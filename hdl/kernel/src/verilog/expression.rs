//! Prints values.
//!
//! Parentheses are printed where the precedence of Verilog's operators is not obvious: chains of one
//! associative operator and comparisons under `&&` and `||` do without.
use super::layout::Layout;
use super::module::Context;
use crate::ir::{BinaryOp, NodeId, Op, UnaryOp};
use crate::netlist::continues_chain;
use num_bigint::BigUint;

/// A number of known width: one bit in binary, all others in hexadecimal.
pub(crate) fn literal(value: &BigUint, width: usize) -> String {
    if width == 1 {
        return format!("1'b{value}");
    }
    let digits = format!("{value:x}");
    if digits.len() <= 8 {
        return format!("{width}'h{digits}");
    }
    // Groups of four from the right, as long hexadecimal numbers are read.
    let (first, rest) = digits.split_at((digits.len() - 1) % 4 + 1);
    let groups =
        rest.as_bytes().chunks(4).map(|group| group.iter().map(|&digit| char::from(digit)).collect());
    let groups: Vec<String> = std::iter::once(first.to_owned()).chain(groups).collect();
    format!("{width}'h{}", groups.join("_"))
}

/// Bits of a name, or all of it.
pub(crate) fn select(name: &str, name_width: usize, offset: usize, width: usize) -> String {
    match width {
        _ if width == name_width => name.to_owned(),
        1 => format!("{name}[{offset}]"),
        _ => format!("{name}[{}:{offset}]", offset + width - 1),
    }
}

/// How tightly a printed value holds together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    /// `c ? a : b`.
    Choice,
    /// `&&`, `||`.
    Logic,
    /// `==` and the like.
    Comparison,
    /// `+`, `&`, `<<` and the like.
    Arithmetic,
    /// `&x`: needs parentheses beside any operator, or it would be read as one with two operands.
    Reduction,
    /// Names, numbers, slices, concatenations, `!x`.
    Atom,
}

impl Context<'_> {
    /// A value as it is mentioned.
    pub(crate) fn value(&self, node: NodeId) -> Layout {
        match self.mention(node) {
            Some(name) => Layout::text(name),
            None => self.definition(node),
        }
    }

    /// A value on one line.
    pub(crate) fn value_text(&self, node: NodeId) -> String {
        self.value(node).render(0, 0)
    }

    /// The name by which a value is mentioned, if it has one.
    fn mention(&self, node: NodeId) -> Option<&str> {
        let data = &self.netlist.graph[node];
        match data.op {
            _ if self.usage.is_wire(node) => Some(self.wire_name(node)),
            Op::Literal(_) => self.constant_name(node),
            _ => None,
        }
    }

    /// A value as it is computed.
    pub(crate) fn definition(&self, node: NodeId) -> Layout {
        let data = &self.netlist.graph[node];
        match &data.op {
            Op::Signal(signal) => Layout::text(self.signal_name(*signal)),
            Op::Literal(value) => Layout::text(literal(value, data.width)),
            Op::Unary(operator, operand) => self.unary(*operator, *operand),
            Op::Binary(operator, ..) => self.binary(node, *operator),
            Op::Select { .. } => self.choices(node),
            Op::Slice { base, offset } => {
                let base_width = self.netlist.graph[*base].width;
                let name = self.value(*base).render(0, 0);
                Layout::text(select(&name, base_width, *offset, data.width))
            }
            Op::Concat(parts) => self.concatenation(parts),
        }
    }

    fn binding(&self, node: NodeId) -> Binding {
        if self.mention(node).is_some() {
            return Binding::Atom;
        }
        match &self.netlist.graph[node].op {
            Op::Signal(_) | Op::Literal(_) | Op::Slice { .. } | Op::Concat(_) => Binding::Atom,
            Op::Unary(UnaryOp::Not, _) => Binding::Atom,
            Op::Unary(..) => Binding::Reduction,
            Op::Select { .. } => Binding::Choice,
            Op::Binary(operator, left, _) => match operator {
                BinaryOp::And | BinaryOp::Or if self.netlist.graph[*left].width == 1 => Binding::Logic,
                BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
                    Binding::Comparison
                }
                _ => Binding::Arithmetic,
            },
        }
    }

    /// A value beside an operator: in parentheses unless it binds at least this tightly.
    fn operand(&self, node: NodeId, at_least: Binding) -> Layout {
        let layout = self.value(node);
        if self.binding(node) >= at_least { layout } else { layout.enclosed("(", ")") }
    }

    fn unary(&self, operator: UnaryOp, operand: NodeId) -> Layout {
        let symbol = match operator {
            UnaryOp::Not if self.netlist.graph[operand].width == 1 => "!",
            UnaryOp::Not => "~",
            UnaryOp::AllOnes => "&",
            UnaryOp::AnyOne => "|",
            UnaryOp::Parity => "^",
        };
        let is_nested_not = symbol != "!" && self.definition_is_not(operand);
        let at_least = Binding::Atom;
        let inner = if is_nested_not {
            self.value(operand).enclosed("(", ")")
        } else {
            self.operand(operand, at_least)
        };
        Layout::row(vec![Layout::text(symbol), inner])
    }

    /// What is true when a condition is not.
    pub(crate) fn negation(&self, condition: NodeId) -> Layout {
        match self.netlist.graph[condition].op {
            Op::Unary(UnaryOp::Not, inner) if self.mention(condition).is_none() => self.value(inner),
            _ => self.unary(UnaryOp::Not, condition),
        }
    }

    fn definition_is_not(&self, node: NodeId) -> bool {
        self.mention(node).is_none() && matches!(self.netlist.graph[node].op, Op::Unary(UnaryOp::Not, _))
    }

    fn binary(&self, node: NodeId, operator: BinaryOp) -> Layout {
        let graph = &self.netlist.graph;
        // A chain of one operator is one row of terms.
        let mut terms = Vec::new();
        let mut pending = vec![node];
        while let Some(next) = pending.pop() {
            let is_link =
                next == node || (self.mention(next).is_none() && continues_chain(graph, node, next));
            match graph[next].op {
                Op::Binary(_, left, right) if is_link => pending.extend([right, left]),
                _ => terms.push(next),
            }
        }
        let is_bit = graph[terms[0]].width == 1;
        let (symbol, at_least) = match operator {
            BinaryOp::Add => ("+", Binding::Atom),
            BinaryOp::Sub => ("-", Binding::Atom),
            BinaryOp::And if is_bit => ("&&", Binding::Comparison),
            BinaryOp::And => ("&", Binding::Atom),
            BinaryOp::Or if is_bit => ("||", Binding::Comparison),
            BinaryOp::Or => ("|", Binding::Atom),
            BinaryOp::Xor => ("^", Binding::Atom),
            BinaryOp::Shl => ("<<", Binding::Atom),
            BinaryOp::Shr => (">>", Binding::Atom),
            BinaryOp::Eq => ("==", Binding::Atom),
            BinaryOp::Ne => ("!=", Binding::Atom),
            BinaryOp::Lt => ("<", Binding::Atom),
            BinaryOp::Le => ("<=", Binding::Atom),
            BinaryOp::Gt => (">", Binding::Atom),
            BinaryOp::Ge => (">=", Binding::Atom),
        };
        let is_shift = matches!(operator, BinaryOp::Shl | BinaryOp::Shr);
        let mut row = vec![self.term(terms[0], at_least)];
        for &term in &terms[1..] {
            row.push(Layout::space());
            row.push(Layout::text(format!("{symbol} ")));
            row.push(match (is_shift, self.mention(term), graph.literal(term)) {
                (true, None, Some(distance)) => Layout::text(distance.to_string()),
                _ => self.term(term, at_least),
            });
        }
        Layout::row(row).group()
    }

    /// Under `&&` and `||` a reduction needs its parentheses although it binds tightly.
    fn term(&self, node: NodeId, at_least: Binding) -> Layout {
        match self.binding(node) {
            Binding::Reduction => self.value(node).enclosed("(", ")"),
            Binding::Arithmetic if at_least == Binding::Comparison => self.value(node).enclosed("(", ")"),
            _ => self.operand(node, at_least),
        }
    }

    /// A chain of choices, one a line if it is long.
    fn choices(&self, node: NodeId) -> Layout {
        let graph = &self.netlist.graph;
        let mut row = Vec::new();
        let mut rest = node;
        while let (true, Op::Select { condition, then, otherwise }) =
            (rest == node || self.mention(rest).is_none(), &graph[rest].op)
        {
            row.push(self.operand(*condition, Binding::Atom));
            row.push(Layout::text(" ? "));
            row.push(self.operand(*then, Binding::Logic));
            row.push(Layout::text(" :"));
            let is_single = rest == node && self.is_braced(*otherwise);
            row.push(if is_single { Layout::text(" ") } else { Layout::space() });
            rest = *otherwise;
        }
        row.push(self.operand(rest, Binding::Logic));
        Layout::row(row).group()
    }

    fn is_braced(&self, node: NodeId) -> bool {
        self.mention(node).is_none() && matches!(self.netlist.graph[node].op, Op::Concat(_))
    }

    /// Parts in braces; one part many times over is a replication.
    fn concatenation(&self, parts: &[NodeId]) -> Layout {
        let graph = &self.netlist.graph;
        let first = parts[0];
        if parts.iter().all(|&part| graph.canonical(part) == graph.canonical(first)) {
            let inner = self.value(first).enclosed("{", "}");
            return Layout::row(vec![Layout::text(format!("{{{}", parts.len())), inner, Layout::text("}")]);
        }
        let mut row = Vec::new();
        let mut pending: Vec<_> = parts.iter().rev().copied().collect();
        while let Some(part) = pending.pop() {
            match &graph[part].op {
                // Braces inside braces say nothing more.
                Op::Concat(inner) if self.mention(part).is_none() => pending.extend(inner.iter().rev()),
                _ => {
                    if !row.is_empty() {
                        row.extend([Layout::text(","), Layout::space()]);
                    }
                    row.push(self.value(part));
                }
            }
        }
        Layout::row(row).enclosed("{", "}")
    }
}
