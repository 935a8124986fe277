//! Records the statements of a staged kernel body, and refuses those that would mean something else in Verilog.
//!
//! The recorder lives in a thread-local while a body runs, so that a [`Node`](crate::Node) can be a `Copy` handle
//! and staged code can look like the Rust that it came from.
//!
//! # Order of reads and writes
//!
//! Rust executes a kernel from top to bottom, but a wire has one value. The two agree if every write of a local or of an
//! output comes before its first read, which is what [`Recorder::read`] and [`Recorder::assign`] insist on. Arms of
//! one branch never execute together, so what one of them reads may still be written by another. (The value
//! of a child's input is that of the previous round of the simulation, which settles; it may be read at any time.)
use crate::ir::*;
use num_bigint::BigUint;
use rust_hdl::core::prelude::{Atom, AtomKind, Block, Probe};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// A kernel that is being recorded.
pub(crate) struct Recording {
    outer: Option<Recorder>,
}

impl Recording {
    /// Begins to record the kernel of `block`.
    pub(crate) fn begin(block: &dyn Block, kernel: Kernel) -> Self {
        let recorder = Recorder { kernel, roles: Roles::of(block), ..Recorder::default() };
        Recording { outer: RECORDER.replace(Some(recorder)) }
    }

    /// What was recorded since then.
    pub(crate) fn end(self, block: &dyn Block) -> Kernel {
        let recorder = RECORDER.replace(self.outer).expect("nothing else takes a recorder away");
        let mut kernel = recorder.kernel;
        for fault in &mut kernel.faults {
            if let Some(signal) = fault.signal.filter(|signal| recorder.roles.get(*signal) == Role::Hidden) {
                // The emitter has names for the signals of a block and the ports of its children only.
                fault.signal = None;
                fault.cause = format!("`{}` {}", Search::name(block, signal), fault.cause);
            }
        }
        kernel
    }
}

/// Looks for the name of a signal somewhere in a block.
struct Search {
    wanted: SignalKey,
    path: Vec<String>,
    found: Option<String>,
}

impl Search {
    fn name(block: &dyn Block, wanted: SignalKey) -> String {
        let mut search = Search { wanted, path: Vec::new(), found: None };
        block.accept("self", &mut search);
        search.found.unwrap_or_else(|| "a signal of another block".to_owned())
    }
}

impl Probe for Search {
    fn visit_start_scope(&mut self, name: &str, _block: &dyn Block) {
        self.path.push(name.to_owned());
    }

    fn visit_end_scope(&mut self, _name: &str, _block: &dyn Block) {
        self.path.pop();
    }

    fn visit_start_namespace(&mut self, name: &str, _block: &dyn Block) {
        self.path.push(name.to_owned());
    }

    fn visit_end_namespace(&mut self, _name: &str, _block: &dyn Block) {
        self.path.pop();
    }

    fn visit_atom(&mut self, name: &str, atom: &dyn Atom) {
        if atom_key(atom) == self.wanted {
            self.found = Some(format!("{}.{name}", self.path.join(".")));
        }
    }
}

/// Reports a fault where it is not certain that a kernel is being recorded.
///
/// # Panics
/// Outside of a kernel, where the fault would be lost.
pub(crate) fn fault(cause: &str) {
    RECORDER.with_borrow_mut(|slot| match slot {
        Some(recorder) => recorder.fault(cause),
        None => panic!("{cause}"),
    });
}

/// Lets `action` use the recorder of the kernel that is being recorded.
///
/// For code that is compiled once. Generic code calls the functions of [`steps`] instead: a closure here is compiled again for
/// every type of its caller, and a card has thousands of them.
pub(crate) fn with<R>(action: impl FnOnce(&mut Recorder) -> R) -> R {
    RECORDER.with_borrow_mut(|slot| action(slot.as_mut().expect("staged code runs only inside `hdl()`")))
}

pub(crate) mod steps {
    //! What generic code asks of the recorder, each compiled once.
    use super::{Mark, Recorder, with};
    use crate::ir::{NodeId, Op, SignalKey, Target};
    use num_bigint::BigUint;

    /// See [`Recorder::node`].
    pub(crate) fn node(op: Op, width: usize) -> NodeId {
        with(|recorder| recorder.node(op, width))
    }

    /// Insists that a node has the width of its Rust type.
    pub(crate) fn checked(node: NodeId, width: usize) -> NodeId {
        debug_assert_eq!(with(|recorder| recorder.width(node)), width);
        node
    }

    /// See [`Recorder::width`].
    pub(crate) fn width(node: NodeId) -> usize {
        with(|recorder| recorder.width(node))
    }

    /// The value of a bit that is known at generation.
    pub(crate) fn known_bit(node: NodeId) -> Option<bool> {
        with(|recorder| recorder.known(node).map(|value| value.bits() > 0))
    }

    /// See [`Recorder::literal`].
    pub(crate) fn literal(value: BigUint, width: usize) -> NodeId {
        with(|recorder| recorder.literal(value, width))
    }

    /// See [`Recorder::slice`].
    pub(crate) fn slice(base: NodeId, offset: usize, width: usize) -> NodeId {
        with(|recorder| recorder.slice(base, offset, width))
    }

    /// See [`Recorder::field`].
    pub(crate) fn field(base: NodeId, offset: usize, width: usize, name: &str) -> NodeId {
        with(|recorder| recorder.field(base, offset, width, name))
    }

    /// See [`Recorder::resize`].
    pub(crate) fn resize(node: NodeId, width: usize) -> NodeId {
        with(|recorder| recorder.resize(node, width))
    }

    /// See [`Recorder::concat`].
    pub(crate) fn concat(parts: Vec<NodeId>) -> NodeId {
        with(|recorder| recorder.concat(parts))
    }

    /// `base` of `width` bits with one bit replaced.
    pub(crate) fn replace_bit(base: NodeId, width: usize, position: usize, bit: NodeId) -> NodeId {
        with(|recorder| {
            if position >= width {
                recorder.fault(format!("bit {position} does not exist in a value of {width} bits"));
                return base;
            }
            let mut parts = Vec::new();
            if position + 1 < width {
                parts.push(recorder.slice(base, position + 1, width - position - 1));
            }
            parts.push(bit);
            if position > 0 {
                parts.push(recorder.slice(base, 0, position));
            }
            recorder.concat(parts)
        })
    }

    /// See [`Recorder::bind`].
    pub(crate) fn bind(node: NodeId, name: &str) {
        with(|recorder| recorder.bind(node, name));
    }

    /// See [`Recorder::bind_unless_slice`].
    pub(crate) fn bind_unless_slice(node: NodeId, name: &str) {
        with(|recorder| recorder.bind_unless_slice(node, name));
    }

    /// See [`Recorder::name_next_literal`].
    pub(crate) fn name_next_literal(name: Option<&str>) {
        with(|recorder| recorder.name_next_literal(name));
    }

    /// See [`Recorder::read`].
    pub(crate) fn read(signal: SignalKey, width: usize) -> NodeId {
        with(|recorder| recorder.read(signal, width))
    }

    /// See [`Recorder::assign`].
    pub(crate) fn assign(target: Target, value: NodeId) {
        with(|recorder| recorder.assign(target, value));
    }

    /// See [`Recorder::fault`].
    pub(crate) fn fault(cause: String) {
        with(|recorder| recorder.fault(cause));
    }

    /// See [`Recorder::take_mark`].
    pub(crate) fn take_mark() -> Mark {
        with(Recorder::take_mark)
    }

    /// See [`Recorder::enter_function`].
    pub(crate) fn enter_function(name: &'static str) -> Mark {
        with(|recorder| recorder.enter_function(name))
    }

    /// See [`Recorder::leave_function`].
    pub(crate) fn leave_function(caller: Mark) {
        with(|recorder| recorder.leave_function(caller));
    }
}

/// What a signal is to the block whose kernel is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Input,
    Output,
    Local,
    Bidirectional,
    ChildInput,
    ChildOutput,
    /// Inside a child, where this kernel must not reach.
    Hidden,
}

/// The roles of all signals of a block and of its children.
#[derive(Default)]
struct Roles {
    roles: HashMap<SignalKey, Role>,
    depth: usize,
}

impl Roles {
    fn of(block: &dyn Block) -> Self {
        let mut roles = Roles::default();
        block.accept("", &mut roles);
        roles
    }

    fn get(&self, signal: SignalKey) -> Role {
        self.roles.get(&signal).copied().unwrap_or(Role::Hidden)
    }
}

impl Probe for Roles {
    fn visit_start_scope(&mut self, _name: &str, _block: &dyn Block) {
        self.depth += 1;
    }

    fn visit_end_scope(&mut self, _name: &str, _block: &dyn Block) {
        self.depth -= 1;
    }

    fn visit_atom(&mut self, _name: &str, atom: &dyn Atom) {
        let role = match (self.depth, atom.kind()) {
            (_, AtomKind::Constant) => return,
            (1 | 2, AtomKind::InOutParameter) => Role::Bidirectional,
            (1, AtomKind::InputParameter) => Role::Input,
            (1, AtomKind::OutputParameter) => Role::Output,
            (1, AtomKind::LocalSignal) => Role::Local,
            (2, AtomKind::InputParameter) => Role::ChildInput,
            (2, AtomKind::OutputParameter) => Role::ChildOutput,
            _ => Role::Hidden,
        };
        self.roles.insert(atom_key(atom), role);
    }
}

/// The key of a signal that is known as an atom only.
pub(crate) fn atom_key(atom: &dyn Atom) -> SignalKey {
    std::ptr::from_ref(atom).cast::<()>() as SignalKey
}

/// Location of a statement, and the comments above it.
#[derive(Clone, Default)]
pub(crate) struct Mark {
    location: Location,
    comments: Vec<String>,
}

impl Mark {
    /// A statement at this place, without its comments.
    pub(crate) fn statement(&self, kind: StatementKind) -> Statement {
        Statement { comments: Vec::new(), location: self.location.clone(), kind }
    }
}

/// The signals read so far, forgotten while a sibling arm is recorded.
#[derive(Default)]
struct Reads {
    active: HashSet<SignalKey>,
    /// `active` in the order of insertion.
    log: Vec<SignalKey>,
}

impl Reads {
    fn insert(&mut self, signal: SignalKey) {
        if self.active.insert(signal) {
            self.log.push(signal);
        }
    }

    /// Forgets what was read since the log was `start` long.
    fn forget_since(&mut self, start: usize) -> Vec<SignalKey> {
        let forgotten = self.log.split_off(start);
        for signal in &forgotten {
            self.active.remove(signal);
        }
        forgotten
    }
}

/// The graph so far, and what is needed to judge the next step.
#[derive(Default)]
pub(crate) struct Recorder {
    kernel: Kernel,
    roles: Roles,
    /// Statement lists being filled, innermost last. Outside of all of them statements become items.
    open_lists: Vec<Vec<Statement>>,
    mark: Mark,
    constant_name: Option<String>,
    /// Kernel functions being inlined, innermost last.
    functions: Vec<&'static str>,
    /// Methods being inlined.
    methods: usize,
    reads: Reads,
    written: HashSet<SignalKey>,
}

impl Recorder {
    // ---- faults ----

    pub(crate) fn fault(&mut self, cause: impl Into<String>) {
        self.fault_at(None, cause);
    }

    pub(crate) fn fault_at(&mut self, signal: Option<SignalKey>, cause: impl Into<String>) {
        let fault = RecordFault { location: self.mark.location.clone(), signal, cause: cause.into() };
        self.kernel.faults.push(fault);
    }

    // ---- nodes ----

    pub(crate) fn node(&mut self, op: Op, width: usize) -> NodeId {
        if width == 0 {
            self.fault("a value of no bits (such as an enum with a single variant) has no wire");
        }
        self.kernel.nodes.push(Node { op, width, name: None, field: None });
        self.kernel.nodes.len() - 1
    }

    pub(crate) fn width(&self, node: NodeId) -> usize {
        self.kernel.nodes[node].width
    }

    pub(crate) fn op(&self, node: NodeId) -> &Op {
        &self.kernel.nodes[node].op
    }

    /// The value of a node that is known at generation.
    pub(crate) fn known(&self, node: NodeId) -> Option<&BigUint> {
        match self.op(node) {
            Op::Literal(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn literal(&mut self, value: BigUint, width: usize) -> NodeId {
        if value.bits() > width as u64 {
            self.fault(format!("the constant {value} does not fit in {width} bits"));
        }
        let name = self.constant_name.take();
        let node = self.node(Op::Literal(value), width);
        self.kernel.nodes[node].name = name;
        node
    }

    /// Lets the next literal carry the name of the Rust constant that it comes from.
    pub(crate) fn name_next_literal(&mut self, name: Option<&str>) {
        self.constant_name = name.map(str::to_owned);
    }

    /// Bits `offset ..` of `base`, which must exist.
    pub(crate) fn slice(&mut self, base: NodeId, offset: usize, width: usize) -> NodeId {
        let base_width = self.width(base);
        if offset + width > base_width {
            let last = (offset + width).saturating_sub(1);
            self.fault(format!("bits {offset} to {last} are not all in a value of {base_width} bits"));
            return self.node(Op::Literal(BigUint::default()), width);
        }
        if width == base_width {
            return base;
        }
        let Node { op, name, field, .. } = &self.kernel.nodes[base];
        match (op.clone(), name.as_ref().or(field.as_ref())) {
            (Op::Literal(value), _) => {
                let mask = (BigUint::from(1u8) << width) - 1u8;
                self.node(Op::Literal((value >> offset) & mask), width)
            }
            (Op::Slice { base: outer, offset: first }, None) => {
                self.node(Op::Slice { base: outer, offset: first + offset }, width)
            }
            _ => self.node(Op::Slice { base, offset }, width),
        }
    }

    /// A field of `base`, to be mentioned by name; one of a field is a field of the whole.
    pub(crate) fn field(&mut self, base: NodeId, offset: usize, width: usize, name: &str) -> NodeId {
        let Node { op, name: known, field, .. } = &self.kernel.nodes[base];
        let (whole, start, path) = match (op, known, field) {
            (Op::Slice { base: whole, offset: start }, None, Some(outer)) => {
                (*whole, start + offset, format!("{outer}_{name}"))
            }
            _ => (base, offset, name.to_owned()),
        };
        let node = self.slice(whole, start, width);
        if matches!(self.op(node), Op::Slice { base, .. } if *base == whole) {
            self.kernel.nodes[node].field = Some(path);
        }
        node
    }

    /// Parts, most significant first; parts of no bits vanish.
    pub(crate) fn concat(&mut self, mut parts: Vec<NodeId>) -> NodeId {
        parts.retain(|&part| self.width(part) > 0);
        match parts.as_slice() {
            &[only] => only,
            _ => {
                let width = parts.iter().map(|&part| self.width(part)).sum();
                self.node(Op::Concat(parts), width)
            }
        }
    }

    /// Extends a number with zeros, or drops its high bits.
    pub(crate) fn resize(&mut self, node: NodeId, width: usize) -> NodeId {
        let present = self.width(node);
        if width <= present {
            return self.slice(node, 0, width);
        }
        let zeros = self.node(Op::Literal(BigUint::default()), width - present);
        self.concat(vec![zeros, node])
    }

    // ---- names ----

    /// Names a node after a `let`, unless it has a name or is itself a signal, a field or a constant.
    pub(crate) fn bind(&mut self, node: NodeId, name: &str) {
        let Node { op, name: known, field, .. } = &self.kernel.nodes[node];
        let is_alias = matches!(op, Op::Signal(_) | Op::Literal(_)) || known.is_some() || field.is_some();
        if !is_alias {
            self.make_wire(node, name);
        }
    }

    /// Names a node only if it would be printed as more than a piece of something.
    pub(crate) fn bind_unless_slice(&mut self, node: NodeId, name: &str) {
        if !matches!(self.op(node), Op::Slice { .. }) {
            self.bind(node, name);
        }
    }

    fn make_wire(&mut self, node: NodeId, name: &str) {
        let name = match self.functions.last() {
            Some(function) => format!("{function}_{name}"),
            None => name.to_owned(),
        };
        self.kernel.nodes[node].name = Some(name);
        let comments = std::mem::take(&mut self.mark.comments);
        self.kernel.items.push(Item::Wire { node, comments });
    }

    /// Notes what the docs of the block and of its fields say.
    pub(crate) fn describe(&mut self, block: &[&str], fields: &[(&str, &[&str])]) {
        let owned = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        self.kernel.documentation.splice(0..0, owned(block));
        self.kernel.fields = fields.iter().map(|(name, lines)| ((*name).to_owned(), owned(lines))).collect();
    }

    pub(crate) fn enter_function(&mut self, name: &'static str) -> Mark {
        self.functions.push(name);
        self.take_mark()
    }

    /// `caller` is what [`Recorder::enter_function`] returned.
    pub(crate) fn leave_function(&mut self, caller: Mark) {
        self.functions.pop();
        self.mark = caller;
    }

    // ---- signals ----

    pub(crate) fn read(&mut self, signal: SignalKey, width: usize) -> NodeId {
        match self.roles.get(signal) {
            Role::Output | Role::Local if !self.written.contains(&signal) => {
                self.fault_at(
                    Some(signal),
                    "is read before it is written; Rust would see the value of the round before",
                );
            }
            Role::Bidirectional => {
                self.fault_at(Some(signal), "is bidirectional, which a kernel cannot express")
            }
            Role::Hidden => self.fault_at(Some(signal), "lies inside another block and cannot be read here"),
            _ => {}
        }
        self.reads.insert(signal);
        self.node(Op::Signal(signal), width)
    }

    pub(crate) fn assign(&mut self, target: Target, value: NodeId) {
        let signal = target.signal;
        match self.roles.get(signal) {
            Role::Output | Role::Local if self.reads.active.contains(&signal) => {
                self.fault_at(Some(signal), "is written after it was read; use a second signal or a `let`");
            }
            Role::Input => {
                self.fault_at(Some(signal), "is an input of this block and cannot be written by it")
            }
            Role::ChildOutput => {
                self.fault_at(Some(signal), "is an output of a child and cannot be written from outside");
            }
            Role::Bidirectional => {
                self.fault_at(Some(signal), "is bidirectional, which a kernel cannot express")
            }
            Role::Hidden => {
                self.fault_at(Some(signal), "lies inside another block and cannot be written here")
            }
            _ => {}
        }
        self.written.insert(signal);
        self.push(StatementKind::Assign { target, value });
    }

    // ---- statements ----

    /// Until [`Recorder::leave_method`] no statement has a location or comments of its own.
    pub(crate) fn enter_method(&mut self) {
        self.methods += 1;
    }

    pub(crate) fn leave_method(&mut self) {
        self.methods -= 1;
    }

    pub(crate) fn start_statement(&mut self, file: &str, line: u32, comments: &[&str]) {
        if self.methods > 0 {
            return;
        }
        self.mark = Mark {
            location: Location { file: file.to_owned(), line },
            comments: comments.iter().map(|&line| line.to_owned()).collect(),
        };
    }

    /// Takes the comments of the current statement while its parts are recorded.
    pub(crate) fn take_mark(&mut self) -> Mark {
        Mark { location: self.mark.location.clone(), comments: std::mem::take(&mut self.mark.comments) }
    }

    /// Gives the comments that were taken to the next statement or wire.
    pub(crate) fn restore_comments(&mut self, mark: Mark) {
        self.mark = mark;
    }

    pub(crate) fn push(&mut self, kind: StatementKind) {
        let mark = self.take_mark();
        self.push_at(mark, kind);
    }

    pub(crate) fn push_at(&mut self, mark: Mark, kind: StatementKind) {
        self.push_statement(Statement { comments: mark.comments, location: mark.location, kind });
    }

    pub(crate) fn push_statement(&mut self, statement: Statement) {
        match self.open_lists.last_mut() {
            Some(list) => list.push(statement),
            None => self.kernel.items.push(Item::Statement(statement)),
        }
    }
}

/// Records the arms of one branch, of which only one ever executes.
pub(crate) struct Arms {
    log_start: usize,
    forgotten: Vec<SignalKey>,
}

impl Arms {
    pub(crate) fn begin() -> Self {
        Arms { log_start: with(|recorder| recorder.reads.log.len()), forgotten: Vec::new() }
    }

    /// Begins one arm.
    pub(crate) fn open(&mut self) {
        // A guard may have read something since the last arm; that holds for the arms after it, too.
        self.log_start = with(|recorder| {
            recorder.open_lists.push(Vec::new());
            recorder.reads.log.len()
        });
    }

    /// Ends the arm that was opened last, and returns its effects.
    pub(crate) fn close(&mut self) -> Vec<Statement> {
        with(|recorder| {
            self.forgotten.extend(recorder.reads.forget_since(self.log_start));
            recorder.open_lists.pop().expect("lists are opened and closed in pairs")
        })
    }

    pub(crate) fn end(self) {
        with(|recorder| self.forgotten.into_iter().for_each(|signal| recorder.reads.insert(signal)));
    }
}
