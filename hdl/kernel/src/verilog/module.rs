//! Prints one module: ports, constants, declarations, logic, instances, registers.
use super::expression::{literal, select};
use super::layout::Layout;
use super::names::{self, NameTable};
use super::statement::{Timing, comments};
use super::{INDENT, Printed, stock};
use crate::design::{Atom, Body, ChildKind, Instance, Scope};
use crate::error::LocalFault;
use crate::ir::{BinaryOp, Kernel, Node, NodeId, Op, UnaryOp, VerilogLeaf};
use crate::netlist::{Domain, Driver, Effect, Netlist, Role, SignalId, Usage, operands};
use num_bigint::BigUint;
use rust_hdl::core::prelude::AtomKind;
use rust_hdl::core::type_descriptor::TypeKind;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Longest value that is printed directly in the port list of an instance.
const CONNECTION: usize = 48;

// ---- ports -----------------------------------------------------------------------------------------------------

/// Checks the ports of a block, of a kernel or of a leaf.
pub(crate) fn check_ports(scope: &Scope) -> Result<(), Vec<LocalFault>> {
    let mut faults = Vec::new();
    let mut seen = HashSet::new();
    for atom in &scope.atoms {
        let mut refuse = |cause: String| faults.push(LocalFault::signal(&atom.rust_name, cause));
        if let Some(cause) = atom.fault {
            refuse(cause.to_owned());
        }
        if atom.width == 0 {
            refuse("has no bits".to_owned());
        }
        if !atom.kind.is_parameter() {
            continue;
        }
        if names::is_reserved(&atom.name) {
            refuse(format!("would be a port called `{}`, a reserved word of Verilog; rename it", atom.name));
        } else if !names::is_identifier(&atom.name) {
            refuse(format!("would be a port called `{}`, which is no Verilog name; rename it", atom.name));
        }
        if !seen.insert(&atom.name) {
            refuse(format!("would be a second port called `{}`; rename it", atom.name));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn ports(scope: &Scope) -> impl Iterator<Item = &Atom> {
    scope.atoms.iter().filter(|atom| atom.kind.is_parameter())
}

/// `[7:0]`, or nothing for a single bit.
fn range(width: usize) -> String {
    if width == 1 { String::new() } else { format!("[{}:0]", width - 1) }
}

/// What the docs of the fields say, each told once: above the first signal of the field.
#[derive(Default)]
pub(crate) struct Docs<'a> {
    by_field: HashMap<&'a str, &'a [String]>,
    told: RefCell<HashSet<&'a str>>,
}

impl<'a> Docs<'a> {
    fn new(kernel: &'a Kernel) -> Self {
        let by_field = kernel.fields.iter().map(|(name, lines)| (name.as_str(), lines.as_slice()));
        Docs { by_field: by_field.collect(), told: RefCell::default() }
    }

    /// The comment above a signal of this field.
    fn tell(&self, field: &str) -> String {
        match self.by_field.get_key_value(field) {
            Some((&field, lines)) if self.told.borrow_mut().insert(field) => comments(lines, 1),
            _ => String::new(),
        }
    }
}

/// From the opening parenthesis to the semicolon; the ports of an interface are listed together.
pub(crate) fn port_list(scope: &Scope, docs: &Docs, is_reg: impl Fn(&Atom) -> bool) -> String {
    let column = ports(scope).map(|port| range(port.width).len()).max().unwrap_or(0);
    let count = ports(scope).count();
    let mut text = "(\n".to_owned();
    let mut group: Option<&Option<String>> = None;
    for (index, port) in ports(scope).enumerate() {
        if group.is_some_and(|previous| *previous != port.group) {
            text.push('\n');
        }
        group = Some(&port.group);
        text.push_str(&docs.tell(&port.field));
        let kind = match (port.kind, is_reg(port)) {
            (AtomKind::InputParameter, _) => "input  wire",
            (_, true) => "output reg ",
            (_, false) => "output wire",
        };
        let comma = if index + 1 == count { "" } else { "," };
        text.push_str(&declaration(kind, column, port.width, &format!("{}{comma}", port.name)));
    }
    text + ");\n"
}

fn declaration(kind: &str, column: usize, width: usize, name: &str) -> String {
    let range = range(width);
    if column == 0 {
        return format!("{INDENT}{} {name}\n", kind.trim_end());
    }
    format!("{INDENT}{kind} {range:column$} {name}\n")
}

// ---- leaves written by hand ------------------------------------------------------------------------------------

/// The text between the port list and `endmodule`.
pub(crate) fn leaf_body(text: &str) -> String {
    stock::indented(text)
}

pub(crate) fn leaf(scope: &Scope, leaf: &VerilogLeaf) -> Result<Printed, Vec<LocalFault>> {
    let is_output = |name: &&String| {
        !scope.atoms.iter().any(|atom| atom.name == **name && atom.kind == AtomKind::OutputParameter)
    };
    let unknown: Vec<_> = leaf.procedural.iter().filter(is_output).collect();
    if !unknown.is_empty() {
        let cause = "is said to be assigned in a procedure, but is not an output of this leaf";
        return Err(unknown.into_iter().map(|name| LocalFault::signal(name, cause)).collect());
    }
    let body = Body {
        documentation: leaf.documentation.clone(),
        before: port_list(scope, &Docs::default(), |port| leaf.procedural.contains(&port.name))
            + &leaf_body(&leaf.body),
        after: "endmodule\n".to_owned(),
        ..Body::default()
    };
    Ok(Printed { names: words(&body), body, paths: Vec::new() })
}

/// Everything in a text written by hand that could be a name.
pub(crate) fn words(body: &Body) -> BTreeSet<String> {
    let is_separator = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '_');
    body.before.split(is_separator).filter(|word| names::is_identifier(word)).map(str::to_owned).collect()
}

// ---- kernels ---------------------------------------------------------------------------------------------------

/// What the printers of values and statements look things up in.
pub(crate) struct Context<'a> {
    scope: &'a Scope,
    pub(crate) netlist: Netlist,
    pub(crate) usage: Usage,
    signal_names: Vec<String>,
    /// Of registers and instances.
    child_names: Vec<String>,
    wire_names: HashMap<NodeId, String>,
    constant_names: HashMap<NodeId, String>,
    /// The same by what they mean: wanted name, width and value.
    constants: HashMap<(String, usize, BigUint), String>,
    /// Signals driven in an `always`.
    procedural: BTreeSet<SignalId>,
    /// Inputs of instances whose value is printed in the port list of the instance.
    connected: BTreeMap<SignalId, (NodeId, Vec<String>)>,
    unused_name: String,
}

pub(crate) fn kernel(scope: &Scope, kernel: &Kernel) -> Result<Printed, Vec<LocalFault>> {
    let netlist = Netlist::new(scope, kernel)?;
    let context = Context::new(scope, netlist);
    let port_name = |signal: SignalId| context.netlist.signals[signal].port_name.clone();
    let paths =
        context.netlist.paths.iter().map(|(output, inputs)| {
            (port_name(*output), inputs.iter().map(|&input| port_name(input)).collect())
        });
    let paths = paths.collect();
    Ok(Printed { body: context.print(kernel), paths, names: context.all_names() })
}

impl<'a> Context<'a> {
    fn new(scope: &'a Scope, netlist: Netlist) -> Self {
        let usage = Usage::new(&netlist);
        let procedural = netlist.drivers.iter().filter_map(|driver| match driver {
            Driver::Always(actions) => Some(actions.iter().flat_map(|action| action.targets())),
            _ => None,
        });
        let procedural = procedural.flatten().collect();
        let mut context = Context {
            scope,
            netlist,
            usage,
            signal_names: Vec::new(),
            child_names: vec![String::new(); scope.children.len()],
            wire_names: HashMap::new(),
            constant_names: HashMap::new(),
            constants: HashMap::new(),
            procedural,
            connected: BTreeMap::new(),
            unused_name: String::new(),
        };
        context.choose_names();
        context.choose_connections();
        context
    }

    pub(crate) fn signal_name(&self, signal: SignalId) -> &str {
        &self.signal_names[signal]
    }

    pub(crate) fn wire_name(&self, node: NodeId) -> &str {
        &self.wire_names[&node]
    }

    pub(crate) fn constant_name(&self, node: NodeId) -> Option<&str> {
        self.constant_names.get(&node).map(String::as_str)
    }

    /// The register whose `d` this is.
    pub(crate) fn register_name(&self, d: SignalId) -> &str {
        &self.child_names[self.register_of(d)]
    }

    /// Index, among the children, of the register whose `d` this is.
    fn register_of(&self, d: SignalId) -> usize {
        match self.netlist.signals[d].role {
            Role::RegisterInput(child) => child,
            role => unreachable!("only registers are assigned at a clock edge, not {role:?}"),
        }
    }

    /// What a register begins with, by the name of the enum's variant if the module knows it.
    fn reset_value(&self, register: usize, signal: SignalId) -> String {
        let ChildKind::Register(leaf) = &self.scope.children[register].kind else {
            unreachable!("only registers are reset")
        };
        let signal = &self.netlist.signals[signal];
        let index = usize::try_from(&leaf.reset_value).ok();
        let variants: &[String] = if let TypeKind::Enum(variants) = &signal.ty { variants } else { &[] };
        let variant = index.and_then(|index| variants.get(index));
        let meaning = variant.map(|name| (name.replace("::", "_"), signal.width, leaf.reset_value.clone()));
        let known = meaning.and_then(|meaning| self.constants.get(&meaning)).cloned();
        known.unwrap_or_else(|| literal(&leaf.reset_value, signal.width))
    }

    // ---- names ----

    /// Ports keep their names; then, from the most to the least important, everything else avoids what is taken.
    fn choose_names(&mut self) {
        let mut table = NameTable::default();
        let signals = &self.netlist.signals;
        let mut names = vec![String::new(); signals.len()];
        let is_port = |role: Role| matches!(role, Role::Input | Role::Output);
        for (id, signal) in signals.iter().filter(|(_, signal)| is_port(signal.role)) {
            table.reserve(&signal.port_name, "port");
            names[id] = signal.port_name.clone();
        }
        for (id, signal) in signals.iter() {
            match signal.role {
                Role::RegisterOutput(child) => {
                    names[id] = table.claim(&self.scope.children[child].name, "register");
                    self.child_names[child] = names[id].clone();
                }
                Role::Local => names[id] = table.claim(&signal.port_name, "signal"),
                _ => {}
            }
        }
        for (name, child) in self.child_names.iter_mut().zip(&self.scope.children) {
            if matches!(child.kind, ChildKind::Instance(_)) {
                // Within the child, a name of its own hides the name of the instance.
                let is_hidden = child.names.contains(&child.name);
                let wanted = if is_hidden { format!("{}_instance", child.name) } else { child.name.clone() };
                *name = table.claim(&wanted, "instance");
            }
        }
        for (id, signal) in signals.iter() {
            let (child, port) = match signal.role {
                Role::ChildInput(child) | Role::ChildOutput(child) => (child, signal.port_name.as_str()),
                Role::RegisterInput(child) if signal.port_name == "d" => (child, "next"),
                Role::RegisterInput(child) => (child, signal.port_name.as_str()),
                _ => continue,
            };
            names[id] = table.claim(&format!("{}_{port}", self.scope.children[child].name), "wire");
        }
        for (id, signal) in signals.iter().filter(|(_, signal)| signal.role == Role::Constant) {
            names[id] = table.claim(&signal.port_name, "constant");
        }
        self.signal_names = names;
        self.name_constants(&mut table);
        self.name_wires(&mut table);
        self.unused_name = table.claim("unused", "bits");
    }

    /// One name for each number that a Rust constant stands for; two widths of one constant are two names.
    fn name_constants(&mut self, table: &mut NameTable) {
        let mut known: HashMap<(String, usize, BigUint), String> = HashMap::new();
        let mut widths: HashMap<String, usize> = HashMap::new();
        for node in 0..self.netlist.graph.len() {
            let data = &self.netlist.graph[node];
            let (Op::Literal(value), Some(wanted)) = (&data.op, &data.name) else { continue };
            if !self.usage.is_used(node) {
                continue;
            }
            let meaning = (wanted.clone(), data.width, value.clone());
            let wanted = match widths.entry(wanted.clone()).or_insert(data.width) {
                width if *width != data.width => format!("{wanted}_{}", data.width),
                _ => wanted.clone(),
            };
            let name = known.entry(meaning).or_insert_with(|| table.claim(&wanted, "constant"));
            self.constant_names.insert(node, name.clone());
        }
        self.constants = known;
    }

    fn name_wires(&mut self, table: &mut NameTable) {
        let wires = (0..self.netlist.graph.len()).filter(|&node| self.usage.is_wire(node));
        let (named, unnamed): (Vec<_>, Vec<_>) =
            wires.partition(|&node| self.netlist.graph[node].name.is_some());
        for node in named {
            let wanted = self.netlist.graph[node].name.as_deref().unwrap_or_default();
            self.wire_names.insert(node, table.claim(wanted, "value"));
        }
        let (fields, unnamed): (Vec<_>, Vec<_>) =
            unnamed.into_iter().partition(|&node| self.netlist.graph[node].field.is_some());
        for node in unnamed {
            self.wire_names.insert(node, table.claim(purpose(&self.netlist.graph[node].op), "value"));
        }
        // A field is called after what it is a field of.
        for node in fields {
            let Node { op: Op::Slice { base, .. }, field: Some(field), .. } = &self.netlist.graph[node]
            else {
                unreachable!("only slices are fields")
            };
            let name = table.claim(&format!("{}_{field}", self.value_text(*base)), "value");
            self.wire_names.insert(node, name);
        }
    }

    /// Short values of instance inputs that nobody reads need no wire.
    fn choose_connections(&mut self) {
        let mut connected = BTreeMap::new();
        for driver in &self.netlist.drivers {
            let Driver::Assign { signal, part: None, value, comments } = driver else { continue };
            let is_input = matches!(self.netlist.signals[*signal].role, Role::ChildInput(_));
            if is_input && !self.usage.is_read(*signal) && self.value(*value).width() <= CONNECTION {
                connected.insert(*signal, (*value, comments.clone()));
            }
        }
        self.connected = connected;
    }

    fn all_names(&self) -> BTreeSet<String> {
        let names = self.signal_names.iter().chain(&self.child_names).chain(self.wire_names.values());
        names.chain(self.constant_names.values()).chain([&self.unused_name]).cloned().collect()
    }

    // ---- sections ----

    fn print(&self, kernel: &Kernel) -> Body {
        let is_reg = |port: &Atom| {
            let signal = self.netlist.signals.find(port.key);
            signal.is_some_and(|signal| self.procedural.contains(&signal))
        };
        let docs = Docs::new(kernel);
        let port_list = port_list(self.scope, &docs, is_reg);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        before.push(self.local_parameters());
        before.push(self.declarations(&docs));
        before.push(self.initial_values());
        before.extend(self.logic());
        after.extend(self.clocked());
        after.push(self.unused());
        let joined = |sections: Vec<String>| -> Vec<String> {
            sections.into_iter().filter(|section| !section.is_empty()).collect()
        };
        let (before, after) = (joined(before), joined(after));
        let instances = self.instances();
        let mut tail = String::new();
        for (index, section) in after.iter().enumerate() {
            if index > 0 || !before.is_empty() || !instances.is_empty() {
                tail.push('\n');
            }
            tail.push_str(section);
        }
        Body {
            documentation: kernel.documentation.clone(),
            before: port_list + &before.join("\n"),
            instances,
            after: tail + "endmodule\n",
        }
    }

    /// Constants that are mentioned, those of one enum in the order of their values.
    fn local_parameters(&self) -> String {
        let mut constants: Vec<(String, usize, BigUint)> = Vec::new();
        let mut listed = HashSet::new();
        for (id, signal) in self.netlist.signals.iter() {
            if signal.role == Role::Constant && self.usage.is_read(id) {
                constants.push((self.signal_name(id).to_owned(), signal.width, signal.value.clone()));
            }
        }
        for node in 0..self.netlist.graph.len() {
            let data = &self.netlist.graph[node];
            if let (Some(name), Op::Literal(value)) = (self.constant_name(node), &data.op)
                && listed.insert(name)
            {
                constants.push((name.to_owned(), data.width, value.clone()));
            }
        }
        let mut families: HashMap<String, usize> = HashMap::new();
        for (name, ..) in &constants {
            let next = families.len();
            families.entry(family(name)).or_insert(next);
        }
        constants.sort_by_key(|(name, _, value)| {
            let is_enum = name.contains(|letter: char| letter.is_ascii_lowercase());
            (families[&family(name)], is_enum.then(|| value.clone()))
        });
        let range_column = constants.iter().map(|(_, width, _)| range(*width).len()).max().unwrap_or(0);
        let name_column = constants.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
        let lines = constants.iter().map(|(name, width, value)| {
            let definition = format!("{name:name_column$} = {};", literal(value, *width));
            declaration("localparam", range_column, *width, &definition)
        });
        lines.collect()
    }

    fn declarations(&self, docs: &Docs) -> String {
        let driven: BTreeSet<_> = self.netlist.drivers.iter().flat_map(driven_by).collect();
        let declared: Vec<_> = self
            .netlist
            .signals
            .iter()
            .filter(|(id, signal)| match signal.role {
                Role::Input | Role::Output | Role::Constant => false,
                Role::Local | Role::ChildOutput(_) | Role::RegisterOutput(_) => true,
                Role::ChildInput(_) => !self.connected.contains_key(id),
                Role::RegisterInput(_) => driven.contains(id),
            })
            .collect();
        let column = declared.iter().map(|(_, signal)| range(signal.width).len()).max().unwrap_or(0);
        let lines = declared.into_iter().map(|(id, signal)| {
            let is_register = matches!(signal.role, Role::RegisterOutput(_));
            let kind = if is_register || self.procedural.contains(&id) { "reg " } else { "wire" };
            let field = match signal.role {
                Role::RegisterOutput(child) => self.scope.children[child].field.as_str(),
                Role::Local => signal.field.as_str(),
                _ => "",
            };
            docs.tell(field) + &declaration(kind, column, signal.width, &format!("{};", self.signal_name(id)))
        });
        lines.collect()
    }

    fn initial_values(&self) -> String {
        let mut values = String::new();
        for (id, signal) in self.netlist.signals.iter() {
            let Role::RegisterOutput(child) = signal.role else { continue };
            let value = self.reset_value(child, id);
            values.push_str(&format!("{INDENT}{INDENT}{} = {value};\n", self.signal_name(id)));
        }
        if values.is_empty() { values } else { format!("{INDENT}initial begin\n{values}{INDENT}end\n") }
    }

    /// Wires and assignments in rows, each `always` in a section of its own.
    fn logic(&self) -> Vec<String> {
        let mut writer = LogicWriter::new(self);
        for driver in &self.netlist.drivers {
            match driver {
                Driver::Wire { node, .. } => writer.need(*node),
                Driver::Assign { signal, .. } if self.connected.contains_key(signal) => {}
                Driver::Assign { signal, part, value, comments: lines } => {
                    writer.need(*value);
                    let target = self.target(*signal, *part, Timing::Combinational);
                    writer.row.push_str(&comments(lines, 1));
                    let left = format!("assign {target} =");
                    writer.row.push_str(&self.assignment(&left, *value, self.field_note(*signal, *part), 1));
                }
                Driver::Always(actions) => {
                    let mut nodes = Vec::new();
                    actions.iter().for_each(|action| action.collect_nodes(&mut nodes));
                    nodes.into_iter().for_each(|node| writer.need(node));
                    let block = self.block(actions, Timing::Combinational, 2);
                    writer.section(format!("{INDENT}always @(*) begin\n{block}{INDENT}end\n"));
                }
            }
        }
        self.connected.values().for_each(|(value, _)| writer.need(*value));
        for domain in &self.netlist.domains {
            let mut nodes = vec![domain.clock];
            nodes.extend(domain.reset);
            domain.actions.iter().for_each(|action| action.collect_nodes(&mut nodes));
            nodes.into_iter().for_each(|node| writer.need(node));
        }
        writer.finish()
    }

    fn instances(&self) -> Vec<Instance> {
        let mut instances = Vec::new();
        for (child, name) in self.scope.children.iter().zip(&self.child_names) {
            let ChildKind::Instance(Some(module)) = child.kind else { continue };
            let mut text = "(\n".to_owned();
            for (index, port) in child.ports.iter().enumerate() {
                let Some(signal) = self.netlist.signals.find(port.key) else { continue };
                let value = match self.connected.get(&signal) {
                    Some((value, lines)) => {
                        text.push_str(&comments(lines, 2));
                        self.value_text(*value)
                    }
                    None => self.signal_name(signal).to_owned(),
                };
                let comma = if index + 1 == child.ports.len() { "" } else { "," };
                text.push_str(&format!("{INDENT}{INDENT}.{}({value}){comma}\n", port.name));
            }
            text.push_str(&format!("{INDENT});\n"));
            instances.push(Instance { module, name: name.clone(), connections: text });
        }
        instances
    }

    /// One `always @(posedge ..)` for the registers of each domain.
    fn clocked(&self) -> Vec<String> {
        let blocks = self.netlist.domains.iter().map(|domain| {
            let head = format!("{INDENT}always @(posedge {}) begin\n", self.value_text(domain.clock));
            let body = match domain.reset {
                None => self.block(&domain.actions, Timing::Clocked, 2),
                Some(reset) => self.with_reset(reset, domain),
            };
            format!("{head}{body}{INDENT}end\n")
        });
        blocks.collect()
    }

    fn with_reset(&self, reset: NodeId, domain: &Domain) -> String {
        let indent = INDENT.repeat(2);
        let mut text = format!("{indent}if ({}) begin\n", self.value_text(reset));
        for &d in &domain.registers {
            let value = self.reset_value(self.register_of(d), d);
            text.push_str(&format!("{indent}{INDENT}{} <= {value};\n", self.register_name(d)));
        }
        text.push_str(&format!("{indent}end else "));
        match domain.actions.as_slice() {
            [single] if single.comments.is_empty() => {
                if let Effect::If { arms, otherwise } = &single.effect {
                    return text + &self.chain(arms, otherwise, Timing::Clocked, 2);
                }
            }
            _ => {}
        }
        text + "begin\n" + &self.block(&domain.actions, Timing::Clocked, 3) + &format!("{indent}end\n")
    }

    /// Names the bits that are deliberately unused, so that a linter reports only mistakes.
    fn unused(&self) -> String {
        let mut parts = Vec::new();
        for (id, signal) in self.netlist.signals.iter() {
            let is_readable = matches!(
                signal.role,
                Role::Input | Role::Local | Role::ChildOutput(_) | Role::RegisterOutput(_)
            );
            if is_readable {
                let ranges = self.usage.unused_of_signal(id, signal.width);
                let name = self.signal_name(id);
                parts.extend(
                    ranges.iter().map(|(start, end)| select(name, signal.width, *start, end - start)),
                );
            }
        }
        for node in (0..self.netlist.graph.len()).filter(|&node| self.usage.is_wire(node)) {
            let width = self.netlist.graph[node].width;
            let ranges = self.usage.unused_of_node(node, width);
            let name = self.wire_name(node);
            parts.extend(ranges.iter().map(|(start, end)| select(name, width, *start, end - start)));
        }
        if parts.is_empty() {
            return String::new();
        }
        let mut row = vec![Layout::text("1'b0")];
        for part in parts {
            row.extend([Layout::text(","), Layout::space(), Layout::text(part)]);
        }
        let start = format!("{INDENT}wire {} = ", self.unused_name);
        let list = Layout::row(row).enclosed("&{", "}").render(1, start.len());
        format!("{start}{list};\n")
    }
}

/// The signals that a driver gives a value.
fn driven_by(driver: &Driver) -> BTreeSet<SignalId> {
    match driver {
        Driver::Wire { .. } => BTreeSet::new(),
        Driver::Assign { signal, .. } => BTreeSet::from([*signal]),
        Driver::Always(actions) => actions.iter().flat_map(|action| action.targets()).collect(),
    }
}

/// Variants of one enum belong together: the part before the last `_`, if it looks like a type.
fn family(name: &str) -> String {
    match name.rsplit_once('_') {
        Some((kind, _)) if kind.contains(|letter: char| letter.is_ascii_lowercase()) => kind.to_owned(),
        _ => name.to_owned(),
    }
}

/// A name for a value whose author gave none.
fn purpose(op: &Op) -> &'static str {
    match op {
        Op::Signal(_) | Op::Literal(_) | Op::Slice { .. } => "value",
        Op::Unary(UnaryOp::Not, _) => "inverted",
        Op::Unary(UnaryOp::AllOnes, _) => "all_ones",
        Op::Unary(UnaryOp::AnyOne, _) => "any_one",
        Op::Unary(UnaryOp::Parity, _) => "parity",
        Op::Binary(operator, ..) => match operator {
            BinaryOp::Add => "sum",
            BinaryOp::Sub => "difference",
            BinaryOp::And => "masked",
            BinaryOp::Or => "merged",
            BinaryOp::Xor => "mixed",
            BinaryOp::Shl | BinaryOp::Shr => "shifted",
            BinaryOp::Eq | BinaryOp::Ne => "is_match",
            BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => "is_in_order",
        },
        Op::Select { .. } => "selected",
        Op::Concat(_) => "joined",
    }
}

/// Collects logic so that each wire is declared before what mentions it.
struct LogicWriter<'a> {
    context: &'a Context<'a>,
    comments: HashMap<NodeId, &'a [String]>,
    declared: HashSet<NodeId>,
    seen: HashSet<NodeId>,
    /// Wires and assignments since the last `always`.
    row: String,
    sections: Vec<String>,
}

impl<'a> LogicWriter<'a> {
    fn new(context: &'a Context<'a>) -> Self {
        let comments = context.netlist.drivers.iter().filter_map(|driver| match driver {
            Driver::Wire { node, comments } => Some((*node, comments.as_slice())),
            _ => None,
        });
        LogicWriter {
            context,
            comments: comments.collect(),
            declared: HashSet::new(),
            seen: HashSet::new(),
            row: String::new(),
            sections: Vec::new(),
        }
    }

    /// Declares the wires that a value mentions, and those that they mention in turn.
    fn need(&mut self, node: NodeId) {
        let graph = &self.context.netlist.graph;
        let mut pending = vec![node];
        let mut wires = BTreeSet::new();
        while let Some(node) = pending.pop() {
            if !self.context.usage.is_used(node) || !self.seen.insert(node) {
                continue;
            }
            if self.context.usage.is_wire(node) {
                wires.insert(node);
            }
            pending.extend(operands(&graph[node].op));
        }
        for wire in wires {
            if self.declared.insert(wire) {
                let lines = self.comments.get(&wire).copied().unwrap_or_default();
                let kind = Layout::text(range(graph[wire].width));
                let space = if kind.width() == 0 { "" } else { " " };
                let name = self.context.wire_name(wire);
                let left = format!("wire {}{space}{name} =", kind.render(0, 0));
                self.row.push_str(&comments(lines, 1));
                self.row.push_str(&self.context.wire_definition(&left, wire, 1));
            }
        }
    }

    fn section(&mut self, text: String) {
        self.sections.push(std::mem::take(&mut self.row));
        self.sections.push(text);
    }

    fn finish(mut self) -> Vec<String> {
        self.sections.push(self.row);
        self.sections
    }
}
