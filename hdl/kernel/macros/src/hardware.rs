//! Tells what exists in hardware from what the generator computes, by the source alone.
//!
//! A value is hardware if it is read from a signal, or made of such values. Everything else is known while the
//! hardware is generated: numbers, constants, indices of loops, and what ordinary functions make of them.
use crate::syntax;
use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use std::collections::BTreeSet;
use syn::visit::Visit;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Arm, Block, Expr, ExprCall, ExprField, ExprForLoop, ExprMatch, ExprMethodCall, ExprReference, Local, Pat,
    PatIdent,
};

/// The names that stand for hardware in the kernel seen so far.
#[derive(Clone, Default)]
pub(crate) struct Names(BTreeSet<String>);

impl Names {
    /// All names that `pattern` binds stand for hardware.
    pub(crate) fn bind(&mut self, pattern: &Pat) {
        self.visit_pat(pattern);
    }

    /// Besides names and `.val()`, whatever else reaches into a signal counts as hardware: the staged copy must
    /// see it, to refuse it.
    pub(crate) fn is_hardware(&self, expression: &Expr) -> bool {
        let mut reach = Reach(false);
        reach.visit_expr(expression);
        reach.0 || self.mentions_hardware(expression.to_token_stream())
    }

    fn mentions_hardware(&self, tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Group(group) => self.mentions_hardware(group.stream()),
            TokenTree::Ident(name) => name == "val" || self.0.contains(&name.to_string()),
            _ => false,
        })
    }
}

impl Visit<'_> for Names {
    fn visit_pat_ident(&mut self, name: &PatIdent) {
        self.0.insert(name.ident.to_string());
        syn::visit::visit_pat_ident(self, name);
    }
}

/// Whether parts of the block are handed out, or read otherwise than with `.val()`.
struct Reach(bool);

impl Visit<'_> for Reach {
    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        self.0 |= syntax::is_place(&call.receiver) && !syntax::is_generator_method(&call.method);
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_field(&mut self, access: &ExprField) {
        let is_state = ["next", "changed"].iter().any(|name| syntax::is_named(&access.member, name));
        self.0 |= is_state && syntax::is_place(&access.base);
        syn::visit::visit_expr_field(self, access);
    }

    fn visit_expr_reference(&mut self, reference: &ExprReference) {
        self.0 |= syntax::is_place(&reference.expr);
        syn::visit::visit_expr_reference(self, reference);
    }

    fn visit_expr_call(&mut self, call: &ExprCall) {
        self.0 |= call.args.iter().any(is_self);
        syn::visit::visit_expr_call(self, call);
    }
}

fn is_self(expression: &Expr) -> bool {
    matches!(expression, Expr::Path(path) if path.path.is_ident("self"))
}

/// Marks what the generator computes as Rust does, by turning it into [`Expr::Verbatim`].
///
/// These are calls without hardware among the arguments, whose functions then need no staged twin, and an `if` or
/// `match` without any hardware on the right of a `let`. `names` are the parameters that are hardware.
pub(crate) fn mark_generator_values(block: &Block, names: Names) -> Block {
    let mut block = block.clone();
    Marker { names }.visit_block_mut(&mut block);
    block
}

struct Marker {
    names: Names,
}

/// Functions that make hardware of a number, and connections, which the staged copy knows by name.
const BUILT_IN: [&str; 9] =
    ["bits", "bit_cast", "default", "mask", "from", "link", "join", "select", "concat"];

impl Marker {
    fn is_generator_call(&self, call: &ExprCall) -> bool {
        let Expr::Path(function) = &*call.func else { return false };
        let is_built_in =
            function.path.segments.last().is_some_and(|last| BUILT_IN.iter().any(|name| last.ident == name));
        !is_built_in
            && !call.args.iter().any(|argument| self.names.is_hardware(argument) || is_self(argument))
    }
}

/// Whether a value is hardware although it reads no signal: `bits(3)`, `cat!(..)`, `Mode::Idle`.
struct Literal(bool);

impl Literal {
    fn is_in(expression: &Expr) -> bool {
        let mut literal = Literal(false);
        literal.visit_expr(expression);
        literal.0
    }
}

impl Visit<'_> for Literal {
    fn visit_expr_call(&mut self, call: &ExprCall) {
        if let Expr::Path(function) = &*call.func {
            let name = function.path.segments.last().filter(|_| !syntax::is_primitive(&function.path));
            self.0 |= name.is_some_and(|last| BUILT_IN.iter().any(|built_in| last.ident == built_in));
        }
        syn::visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, call: &syn::Macro) {
        self.0 |= call.path.is_ident("cat");
    }

    fn visit_expr_cast(&mut self, cast: &syn::ExprCast) {
        // The number of a variant is a number.
        if !matches!(&*cast.expr, Expr::Path(_)) {
            syn::visit::visit_expr_cast(self, cast);
        }
    }

    fn visit_expr_path(&mut self, path: &syn::ExprPath) {
        self.0 |= syntax::is_variant(&path.path);
    }
}

impl VisitMut for Marker {
    fn visit_local_mut(&mut self, local: &mut Local) {
        match &mut local.init {
            Some(init) if self.names.is_hardware(&init.expr) => {
                visit_mut::visit_local_init_mut(self, init);
                self.names.bind(&local.pat);
            }
            Some(init)
                if matches!(*init.expr, Expr::If(_) | Expr::Match(_)) && !Literal::is_in(&init.expr) =>
            {
                *init.expr = Expr::Verbatim(init.expr.to_token_stream());
            }
            Some(init) => {
                visit_mut::visit_local_init_mut(self, init);
                if Literal::is_in(&init.expr) {
                    self.names.bind(&local.pat);
                }
            }
            None => {}
        }
    }

    fn visit_expr_for_loop_mut(&mut self, repeat: &mut ExprForLoop) {
        if self.names.is_hardware(&repeat.expr) {
            self.names.bind(&repeat.pat);
        }
        visit_mut::visit_expr_for_loop_mut(self, repeat);
    }

    fn visit_expr_match_mut(&mut self, choice: &mut ExprMatch) {
        if self.names.is_hardware(&choice.expr) {
            choice.arms.iter().for_each(|Arm { pat, .. }| self.names.bind(pat));
        }
        visit_mut::visit_expr_match_mut(self, choice);
    }

    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        match expression {
            Expr::Call(call) if self.is_generator_call(call) => {
                *expression = Expr::Verbatim(quote!(::rnic_kernel::staged::lift(#call)));
            }
            other => visit_mut::visit_expr_mut(self, other),
        }
    }
}
