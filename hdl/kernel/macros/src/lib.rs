//! The attribute and derive macros of the rnic hardware language.
//!
//! `#[kernel]` keeps the Rust body as it is, for simulation, and adds a second, staged copy in which hardware
//! values are nodes of a graph and control flow is recorded (`stage`). Everything else that rust-hdl wants to
//! know about a block follows from the same body: which signals it drives (`claims`), what its comments say
//! (`comments`).
mod block;
mod claims;
mod clocked;
mod comments;
mod construct;
mod function;
mod hardware;
mod quick;
mod registers;
mod stage;
mod structs;
mod syntax;
mod update;

use proc_macro::TokenStream;
use syn::{DeriveInput, Error, ItemFn, parse_macro_input};

/// Makes hardware of `fn update(&mut self)` in an `impl Logic`, of a pure free function, or of a method that connects ports.
///
/// The body is ordinary Rust within a subset, which is the same for both:
///
/// * statements: `let`, `signal.next = v` and `signal.next.field = v`, `if`, `match`, `for` over a range known at
///   generation, blocks, `const` items, `clock!`, `Type::link`, `Type::join`, `self.hold_registers()`,
///   and `self.part.verb(..)` with a method that is a kernel;
/// * values: literals, constants, `.val()`, operators, comparisons, `if`, `match`, tuples, arrays, struct literals,
///   fields, `cat!`, `select`, `bits`, `bit_cast`, `.into()`, the methods of `Bits`, calls of other `#[kernel]`
///   functions, and calls of any function whose arguments are all known at generation.
///
/// A function that takes hardware must itself be a `#[kernel]`. rustc says of one that is not that it "cannot find
/// module or crate" of its name, for that is where a kernel function keeps its staged copy.
///
/// A parameter or result of type `usize`, `u64` or the like is a number of the generator, not hardware.
///
/// A method `fn verb(&mut self, ..)` of a block or of an interface is a group of connections: whoever calls it has the
/// statements of its body in that place. It takes hardware and returns nothing.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    if !arguments.is_empty() {
        let error = Error::new(proc_macro2::Span::call_site(), "`#[kernel]` takes no arguments");
        return error.into_compile_error().into();
    }
    let item = parse_macro_input!(item as ItemFn);
    let expanded =
        if item.sig.receiver().is_some() { update::expand(&item) } else { function::expand(&item) };
    expanded.unwrap_or_else(|error| refusal(&item, &error)).into()
}

/// The error alone would be followed by others about a missing function.
fn refusal(item: &ItemFn, error: &Error) -> proc_macro2::TokenStream {
    let ItemFn { vis, sig, .. } = item;
    let error = error.to_compile_error();
    quote::quote! {
        #error
        #[allow(unused, missing_docs)]
        #vis #sig { ::core::unreachable!() }
    }
}

/// Gives a block the ports `clock` and, with `#[clocked(reset)]`, `reset`, before its own. It stands above the derives.
///
/// `#[clocked(reset = "drops the event")]` says what the reset does, as the end of "Synchronous, active high; ..".
#[proc_macro_attribute]
pub fn clocked(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let ports = parse_macro_input!(arguments as clocked::Ports);
    let block = parse_macro_input!(item as DeriveInput);
    clocked::expand(&ports, block).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a block of a struct, as rust-hdl's derive of this name does, which `rnic_kernel::quick::settle` evaluates in fewer passes.
///
/// Fields whose names begin with `_` are no hardware.
#[proc_macro_derive(LogicBlock)]
pub fn derive_logic_block(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    block::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Lets a kernel begin with `self.hold_registers();`, which connects clock and reset of all `Reg` and `DFF` fields and
/// of all children of the block, and holds the registers. A child says with the same derive which of the two it has.
///
/// They come from the fields `clock` and `reset`, if the block has these. `#[domain(clock = mac_clock, reset = mac_reset)]`
/// above the block or above a field names others, as paths from `self`: `reset = control.core_reset`.
/// `#[domain(skip)]` leaves a field to the kernel.
#[proc_macro_derive(Registers, attributes(domain))]
pub fn derive_registers(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    registers::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Writes `Default` for a block, arrays of any length included.
///
/// * `#[init(Reg::new(bits(7)))]` above a field is what it begins with, instead of its default.
/// * `#[require(COUNT == ADDRESS + 1)]` above the block is checked by the compiler where the block is made. A second
///   argument is the message. The constant `REFUSAL` of the block tells tests what the compiler would say.
/// * `#[new(storage: Storage)]` above the block writes `new` with these parameters instead of `Default`; `init` may use them.
///   Doc comments before the first parameter are those of `new`.
#[proc_macro_derive(Construct, attributes(init, require, new))]
pub fn derive_construct(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    construct::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a struct of hardware values one value, packed with the first field lowest. It takes generic structs, too.
#[proc_macro_derive(LogicStruct)]
pub fn derive_logic_struct(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    structs::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}
