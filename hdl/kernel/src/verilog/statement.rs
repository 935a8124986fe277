//! Prints assignments and the conditions around them.
use super::INDENT;
use super::expression::select;
use super::layout::Layout;
use super::module::Context;
use crate::ir::{NodeId, Op};
use crate::netlist::{Action, Effect, SignalId, continues_chain};
use crate::ports;

/// A `//` comment on lines of its own.
pub(crate) fn comment(text: &str, depth: usize) -> String {
    // Some tools take directions from comments that begin with their name.
    let text = text.trim();
    let is_direction = ["verilator", "synopsys", "synthesis", "pragma", "cadence", "xilinx"]
        .iter()
        .any(|tool| text.to_ascii_lowercase().starts_with(tool));
    let note = if is_direction { "note: " } else { "" };
    format!("{}// {note}{text}", INDENT.repeat(depth)).trim_end().to_owned() + "\n"
}

pub(crate) fn comments(lines: &[String], depth: usize) -> String {
    lines.iter().map(|line| comment(line, depth)).collect()
}

/// How the targets of a block are assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// `x = v`.
    Combinational,
    /// `x <= v`, with the register in place of its `d`.
    Clocked,
}

impl Context<'_> {
    /// `left = value;`, broken over lines if it is long.
    pub(crate) fn assignment(&self, left: &str, value: NodeId, note: String, depth: usize) -> String {
        let is_chain = !self.usage.is_wire(value) && self.is_chain_of_choices(value);
        let text = self.laid_out(left, self.value(value), self.hugs(value), is_chain, depth);
        format!("{text}{note}\n")
    }

    /// The comment behind an assignment that gives one field of a signal a value.
    pub(crate) fn field_note(&self, signal: SignalId, part: Option<(usize, usize)>) -> String {
        let ty = &self.netlist.signals[signal].ty;
        let field = part.and_then(|(offset, width)| ports::field_at(ty, offset, width));
        field.map_or_else(String::new, |field| format!(" // {field}"))
    }

    /// `left = definition;` for a wire, whose value is not its own name.
    pub(crate) fn wire_definition(&self, left: &str, node: NodeId, depth: usize) -> String {
        let hugs = matches!(self.netlist.graph[node].op, Op::Concat(_));
        self.laid_out(left, self.definition(node), hugs, self.is_chain_of_choices(node), depth) + "\n"
    }

    /// Braces open on the line of the assignment; anything else that is long begins on the next.
    fn hugs(&self, value: NodeId) -> bool {
        !self.usage.is_wire(value) && matches!(self.netlist.graph[value].op, Op::Concat(_))
    }

    /// A chain of choices reads best as a table, one per line.
    fn is_chain_of_choices(&self, node: NodeId) -> bool {
        match self.netlist.graph[node].op {
            Op::Select { otherwise, .. } => {
                !self.usage.is_wire(otherwise) && continues_chain(&self.netlist.graph, node, otherwise)
            }
            _ => false,
        }
    }

    fn laid_out(&self, left: &str, value: Layout, hugs: bool, is_chain: bool, depth: usize) -> String {
        let indent = INDENT.repeat(depth);
        let start = Layout::text(left);
        let value = if is_chain { value.broken() } else { value };
        let layout = if hugs {
            Layout::row(vec![start, Layout::text(" "), value])
        } else {
            let value = Layout::row(vec![Layout::space(), value]).indented();
            Layout::row(vec![start, value]).group()
        };
        format!("{indent}{};", layout.render(depth, indent.len()))
    }

    pub(crate) fn block(&self, actions: &[Action], timing: Timing, depth: usize) -> String {
        actions.iter().map(|action| self.action(action, timing, depth)).collect()
    }

    fn action(&self, action: &Action, timing: Timing, depth: usize) -> String {
        let indent = INDENT.repeat(depth);
        let mut text = comments(&action.comments, depth);
        match &action.effect {
            Effect::Assign { signal, part, value } => {
                let operator = if timing == Timing::Clocked { "<=" } else { "=" };
                let left = format!("{} {operator}", self.target(*signal, *part, timing));
                text.push_str(&self.assignment(&left, *value, self.field_note(*signal, *part), depth));
            }
            Effect::If { arms, otherwise } => {
                text.push_str(&indent);
                text.push_str(&self.chain(arms, otherwise, timing, depth));
            }
            Effect::Case { subject, arms, default_labels, default } => {
                text.push_str(&format!("{indent}case ({})\n", self.value_text(*subject)));
                for (labels, block) in arms {
                    text.push_str(&self.case_arm(&self.labels(labels), "", block, timing, depth + 1));
                }
                let named =
                    default_labels.iter().filter_map(|&label| self.netlist.graph[label].name.as_deref());
                let named = named.collect::<Vec<_>>().join(", ");
                let note = if named.is_empty() { named } else { format!(" // {named}") };
                text.push_str(&self.case_arm("default", &note, default, timing, depth + 1));
                text.push_str(&format!("{indent}endcase\n"));
            }
        }
        text
    }

    /// `if (..) begin .. end else ..`, without the indentation of its first line.
    pub(crate) fn chain(
        &self,
        arms: &[(NodeId, Vec<Action>)],
        otherwise: &[Action],
        timing: Timing,
        depth: usize,
    ) -> String {
        let indent = INDENT.repeat(depth);
        if let Some(((condition, []), rest)) =
            arms.split_first().map(|((node, block), rest)| ((node, &block[..]), rest))
        {
            // Nothing happens under the first condition: the rest goes under its negation.
            let head = self.negation(*condition).enclosed("if (", ") begin").render(depth, indent.len());
            let inner = match rest {
                [] => self.block(otherwise, timing, depth + 1),
                rest => format!("{indent}{INDENT}{}", self.chain(rest, otherwise, timing, depth + 1)),
            };
            return format!("{head}\n{inner}{indent}end\n");
        }
        let mut text = String::new();
        for (index, (condition, block)) in arms.iter().enumerate() {
            let keyword = if index == 0 { "if (" } else { " else if (" };
            let condition = self.value(*condition).enclosed(keyword, ") begin");
            text.push_str(&condition.render(depth, indent.len()));
            text.push_str(&format!("\n{}{indent}end", self.block(block, timing, depth + 1)));
        }
        if !otherwise.is_empty() {
            text.push_str(&format!(" else begin\n{}{indent}end", self.block(otherwise, timing, depth + 1)));
        }
        text + "\n"
    }

    fn labels(&self, labels: &[NodeId]) -> String {
        let mut row = Vec::new();
        for (index, &label) in labels.iter().enumerate() {
            if index > 0 {
                row.push(Layout::text(","));
                row.push(Layout::space());
            }
            row.push(self.value(label));
        }
        Layout::row(row).group().render(2, 0)
    }

    fn case_arm(&self, labels: &str, note: &str, block: &[Action], timing: Timing, depth: usize) -> String {
        let indent = INDENT.repeat(depth);
        match block {
            [] => format!("{indent}{labels}: ;{note}\n"),
            [single] if single.comments.is_empty() && matches!(single.effect, Effect::Assign { .. }) => {
                let text = self.action(single, timing, 0);
                let line = format!("{indent}{labels}: {}", text.trim_end());
                if !line.contains('\n') && line.len() <= 100 {
                    return format!("{line}{note}\n");
                }
                self.begin_arm(labels, note, block, timing, depth)
            }
            _ => self.begin_arm(labels, note, block, timing, depth),
        }
    }

    fn begin_arm(&self, labels: &str, note: &str, block: &[Action], timing: Timing, depth: usize) -> String {
        let indent = INDENT.repeat(depth);
        format!("{indent}{labels}: begin{note}\n{}{indent}end\n", self.block(block, timing, depth + 1))
    }

    /// The left side of an assignment.
    pub(crate) fn target(&self, signal: SignalId, part: Option<(usize, usize)>, timing: Timing) -> String {
        let name = match timing {
            Timing::Combinational => self.signal_name(signal),
            Timing::Clocked => self.register_name(signal),
        };
        match part {
            Some((offset, width)) => select(name, self.netlist.signals[signal].width, offset, width),
            None => name.to_owned(),
        }
    }
}
