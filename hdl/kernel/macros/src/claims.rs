//! `connect`: rust-hdl wants each signal that a kernel drives to be claimed.
//!
//! The claims follow what the kernel decides at generation: loops, constant conditions, indices. Of a condition in
//! hardware both sides are claimed. Statements of the generator that need a signal's value are left out, since it has none yet.
use crate::hardware::Names;
use crate::{stage, syntax, update};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{BinOp, Block, Expr, ExprCall, ExprIf, ExprMatch, Local, Stmt};

/// The claims of a body; `hardware` are the names that are hardware from its beginning.
pub(crate) fn of_block(block: &Block, hardware: Names) -> TokenStream {
    Claims { hardware }.block(block)
}

struct Claims {
    hardware: Names,
}

impl Claims {
    fn block(&mut self, block: &Block) -> TokenStream {
        block.stmts.iter().map(|statement| self.statement(statement)).collect()
    }

    fn statement(&mut self, statement: &Stmt) -> TokenStream {
        match statement {
            Stmt::Expr(expression, _) => self.effect(expression),
            Stmt::Local(local) => self.binding(local),
            Stmt::Macro(call) => clocks(&call.mac),
            Stmt::Item(item) => quote!(#item),
        }
    }

    /// A `let` of the generator may be an index later; one of hardware may not.
    fn binding(&mut self, local: &Local) -> TokenStream {
        if local.init.as_ref().is_some_and(|init| self.hardware.is_hardware(&init.expr)) {
            self.hardware.bind(&local.pat);
            return TokenStream::new();
        }
        quote!(#local)
    }

    fn effect(&mut self, expression: &Expr) -> TokenStream {
        match expression {
            Expr::Assign(assignment) => syntax::Target::of(&assignment.left)
                .map(|target| {
                    let signal = target.signal;
                    quote!(::rnic_kernel::rust_hdl::core::prelude::Logic::connect(&mut #signal);)
                })
                .unwrap_or_default(),
            Expr::If(conditional) => self.conditional(conditional),
            Expr::Match(choice) => self.choice(choice),
            Expr::Block(inner) => {
                let body = self.block(&inner.block);
                quote!({ #body })
            }
            Expr::ForLoop(repeat) => {
                let (pattern, range, body) = (&repeat.pat, &repeat.expr, self.block(&repeat.body));
                quote!(for #pattern in #range { #body })
            }
            Expr::Call(call) => connection(call),
            Expr::Macro(call) => clocks(&call.mac),
            Expr::MethodCall(call) if call.method == "hold_registers" => {
                let block = &call.receiver;
                quote!(::rnic_kernel::register::Registers::connect_registers(#block);)
            }
            Expr::MethodCall(call) if syntax::is_place(&call.receiver) => {
                let (receiver, (claims, _)) = (&call.receiver, update::twins(&call.method));
                quote!(#receiver.#claims();)
            }
            _ => TokenStream::new(),
        }
    }

    fn conditional(&mut self, conditional: &ExprIf) -> TokenStream {
        let then = self.block(&conditional.then_branch);
        let otherwise = conditional.else_branch.as_ref().map(|(_, otherwise)| self.effect(otherwise));
        let condition = &conditional.cond;
        if !self.hardware.is_hardware(condition) {
            return quote!(if #condition { #then } else { #otherwise });
        }
        // `if i > 0 && self.a.val()`: the body may rely on what the generator knows.
        let known = self.known_parts(condition);
        quote!(if true #(&& (#known))* { #then } { #otherwise })
    }

    /// The operands of `&&` that the generator can decide.
    fn known_parts<'a>(&self, condition: &'a Expr) -> Vec<&'a Expr> {
        match condition {
            Expr::Paren(inner) => self.known_parts(&inner.expr),
            Expr::Binary(operation) if matches!(operation.op, BinOp::And(_)) => {
                [self.known_parts(&operation.left), self.known_parts(&operation.right)].concat()
            }
            other if self.hardware.is_hardware(other) => Vec::new(),
            other => vec![other],
        }
    }

    fn choice(&mut self, choice: &ExprMatch) -> TokenStream {
        let is_hardware = self.hardware.is_hardware(&choice.expr);
        let bodies: Vec<_> = choice.arms.iter().map(|arm| self.effect(&arm.body)).collect();
        if is_hardware || choice.arms.iter().any(|arm| arm.guard.is_some()) {
            return quote!(#({ #bodies })*);
        }
        let (subject, patterns) = (&choice.expr, choice.arms.iter().map(|arm| &arm.pat));
        quote!(match #subject { #(#patterns => { #bodies })* })
    }
}

fn connection(call: &ExprCall) -> TokenStream {
    let Expr::Path(path) = &*call.func else { return TokenStream::new() };
    let arguments = &call.args;
    let logic = quote!(::rnic_kernel::rust_hdl::core::prelude::logic);
    match path.path.segments.last().map(|last| last.ident.to_string()).as_deref() {
        Some("link") => quote!(#logic::logic_connect_link_fn(#arguments);),
        Some("join") => quote!(#logic::logic_connect_join_fn(#arguments);),
        _ => TokenStream::new(),
    }
}

fn clocks(call: &syn::Macro) -> TokenStream {
    // A malformed call is reported by the staged copy.
    let Ok(stage::Clocks { block, children, .. }) = call.parse_body::<stage::Clocks>() else {
        return TokenStream::new();
    };
    quote!(#(::rnic_kernel::rust_hdl::core::prelude::Logic::connect(&mut #block.#children.clock);)*)
}
