//! How the `hdl()` of a block hands more to the emitter than rust-hdl's [`Verilog`] can carry.
//!
//! `hdl()` may only return a [`Verilog`], whose variants know neither widths nor reset values. So our own blocks
//! [`deposit`] their hardware and return a note in its place; the emitter calls `hdl()` and [`collect`]s. Both
//! ends run on the thread that generates.
use crate::ir::{Staged, VerilogLeaf};
use rust_hdl::core::prelude::Verilog;
use std::cell::RefCell;

thread_local! {
    static DEPOSITED: RefCell<Option<Staged>> = const { RefCell::new(None) };
}

/// Leaves the hardware of a block for the emitter, which is about to [`collect`] it.
pub fn deposit(staged: Staged) {
    DEPOSITED.set(Some(staged));
}

/// Takes what the last call of `hdl()` deposited, if it was that of one of our own blocks.
pub fn collect() -> Option<Staged> {
    DEPOSITED.take()
}

/// The `hdl()` of a block whose Verilog is written by hand: `body` is printed between the port list and `endmodule`.
///
/// `type_name` is `core::any::type_name::<Self>()`; `documentation` becomes the comment above the module;
/// `procedural_outputs` names the outputs that the body assigns in `always` or `initial` and that must
/// therefore be declared `reg`. Ports of an interface `rx` are called `rx_beat`, `rx_valid` and so on.
///
/// ```
/// # use rust_hdl::core::prelude::*;
/// #[derive(LogicBlock, Default)]
/// struct Parity {
///     value: Signal<In, Bits<8>>,
///     parity: Signal<Out, Bit>,
/// }
///
/// impl Logic for Parity {
///     fn update(&mut self) {
///         self.parity.next = self.value.val().xor();
///     }
///     fn connect(&mut self) {
///         self.parity.connect();
///     }
///     fn hdl(&self) -> Verilog {
///         rnic_kernel::leaf(
///             core::any::type_name::<Self>(),
///             "Says whether the number of ones is odd.",
///             "assign parity = ^value;",
///             &[],
///         )
///     }
/// }
/// ```
pub fn leaf(
    type_name: &str,
    documentation: &str,
    body: impl Into<String>,
    procedural_outputs: &[&str],
) -> Verilog {
    deposit(Staged::Verilog(VerilogLeaf {
        type_name: type_name.into(),
        documentation: documentation.lines().map(str::to_owned).collect(),
        body: body.into(),
        procedural: procedural_outputs.iter().map(|&name| name.to_owned()).collect(),
    }));
    Verilog::Custom(format!("// {type_name} is printed by rnic_kernel\n"))
}
