//! What `#[kernel]` writes in place of Rust's own reads, writes, control flow and calls.
//!
//! These functions are not called by hand. Each has its counterpart in the source of a kernel: `x.next = v` becomes
//! `assign`, `a == b` `Compare::compare`, `if` `branch` or `choose`, `match` `MatchStatement` or
//! `MatchValue`, `let` `Bind::bind`, a struct literal `StructLiteral`. They are public only because they are
//! called from the crates that hold the kernels.
mod bind;
mod branch;
mod call;
mod compare;
mod pattern;

pub use bind::{Bind, Generator, Hardware, Lift, lift, named};
pub use branch::{Condition, Decision, Merge, branch, choose};
pub use call::{ConvertTo, StructLiteral, any, bit_cast, bits, constant, convert};
pub use compare::{Compare, ShortCircuit};
pub use pattern::{MatchStatement, MatchValue, Matches, Test, all, alternatives, within};

use crate::ir::{Kernel, Op, RegisterLeaf, SignalKey, Staged, Target};
use crate::leaf::deposit;
use crate::node::{IntoNode, Node, number_of};
use crate::recorder::{self, Recording, atom_key, steps};
use rust_hdl::core::prelude::*;

/// The `hdl()` of a block with a kernel: records `body` and leaves the graph for the emitter.
pub fn kernel<B: Block>(block: &B, documentation: &[&str], body: impl FnOnce()) -> Verilog {
    let recording = begin_kernel(block, core::any::type_name::<B>(), documentation);
    body();
    end_kernel(block, recording)
}

fn begin_kernel(block: &dyn Block, type_name: &str, documentation: &[&str]) -> Recording {
    let kernel = Kernel {
        type_name: type_name.to_owned(),
        documentation: documentation.iter().map(|&line| line.to_owned()).collect(),
        ..Kernel::default()
    };
    Recording::begin(block, kernel)
}

fn end_kernel(block: &dyn Block, recording: Recording) -> Verilog {
    let kernel = recording.end(block);
    let text = format!("// {} is printed by rnic_kernel\n", kernel.type_name);
    deposit(Staged::Kernel(kernel));
    Verilog::Custom(text)
}

/// The `hdl()` of a register, which its parent prints.
pub fn register<T: Synth>(reset_value: T, has_reset: bool) -> Verilog {
    let reset_value = number_of(&reset_value.verilog());
    deposit(Staged::Register(RegisterLeaf { reset_value, has_reset }));
    Verilog::Custom("// a register is printed by its parent\n".to_owned())
}

/// Sets the location of the next statement and the comments above it.
pub fn statement(file: &str, line: u32, comments: &[&str]) {
    recorder::with(|recorder| recorder.start_statement(file, line, comments));
}

/// Records the first paragraphs of the docs of the block and of its fields.
pub fn describe(block: &[&str], fields: &[(&str, &[&str])]) {
    recorder::with(|recorder| recorder.describe(block, fields));
}

/// Inlines a function; its wires carry its name. The comments of the calling statement wait for its own wire.
pub fn function<R>(name: &'static str, body: impl FnOnce() -> R) -> R {
    let mark = steps::enter_function(name);
    let result = body();
    steps::leave_function(mark);
    result
}

/// Inlines a method: its statements belong to the one that calls it, with the comments above that.
pub fn method(body: impl FnOnce()) {
    recorder::with(recorder::Recorder::enter_method);
    body();
    recorder::with(recorder::Recorder::leave_method);
}

// ---- signals ---------------------------------------------------------------------------------------------

fn key<D: Direction, T: Synth>(signal: &Signal<D, T>) -> SignalKey {
    std::ptr::from_ref(signal) as SignalKey
}

/// `.val()` of a signal or of a constant.
pub trait StagedVal {
    /// The type of its value.
    type Value: Synth;
    /// Reads it.
    fn staged_val(&self) -> Node<Self::Value>;
}

impl<D: Direction, T: Synth> StagedVal for Signal<D, T> {
    type Value = T;
    fn staged_val(&self) -> Node<T> {
        Node::from_id(steps::read(key(self), T::BITS))
    }
}

impl<T: Synth> StagedVal for Constant<T> {
    type Value = T;
    fn staged_val(&self) -> Node<T> {
        Node::new(Op::Signal(std::ptr::from_ref(self) as SignalKey))
    }
}

/// `signal.next = value`.
pub fn assign<D: Direction, T: Synth>(signal: &Signal<D, T>, value: impl IntoNode<T>) {
    let target = Target { signal: key(signal), part: None };
    let value = value.into_node().id;
    steps::assign(target, value);
}

/// `signal.next.field = value`, also for fields of fields.
pub fn assign_field<D: Direction, T: Synth, F: Synth>(
    signal: &Signal<D, T>,
    _field: impl Fn(T) -> F,
    offset: impl Fn(T) -> usize,
    value: impl IntoNode<F>,
) {
    let target = Target { signal: key(signal), part: Some((offset(T::default()), F::BITS)) };
    let value = value.into_node().id;
    steps::assign(target, value);
}

/// One port of an interface.
struct Port {
    signal: SignalKey,
    kind: AtomKind,
    width: usize,
}

/// Collects the ports of an interface, or a lone signal, in order.
#[derive(Default)]
struct Ports(Vec<Port>);

impl Ports {
    fn of(interface: &dyn Block) -> Vec<Port> {
        let mut ports = Ports::default();
        interface.accept("", &mut ports);
        ports.0
    }
}

impl Probe for Ports {
    fn visit_atom(&mut self, _name: &str, atom: &dyn Atom) {
        self.0.push(Port { signal: atom_key(atom), kind: atom.kind(), width: atom.bits() });
    }
}

/// Connects two interfaces port by port. Ports of the left one that are of kind `forward` drive the right one.
fn connect(left: &dyn Block, right: &dyn Block, forward: AtomKind) {
    for (left, right) in Ports::of(left).into_iter().zip(Ports::of(right)) {
        let (source, target) = if left.kind == forward { (left, right) } else { (right, left) };
        recorder::with(|recorder| {
            let value = recorder.read(source.signal, source.width);
            recorder.assign(Target { signal: target.signal, part: None }, value);
        });
    }
}

/// `Type::link(&mut self.port, &mut self.child.port)`: hands a whole interface to a child.
pub fn link(own: &dyn Block, child: &dyn Block) {
    connect(own, child, AtomKind::InputParameter);
}

/// `Type::join(&mut self.a.port, &mut self.b.port)`: joins opposite ends of an interface.
pub fn join(left: &dyn Block, right: &dyn Block) {
    connect(left, right, AtomKind::OutputParameter);
}
