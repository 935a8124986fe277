//! The body of a kernel as it is simulated in Rust: as written, but for calls that are slow in rust-hdl.
use proc_macro2::TokenStream;
use quote::quote;
use syn::visit_mut::{VisitMut, visit_expr_method_call_mut};
use syn::{Block, ExprMethodCall, Ident};

/// Calls `quick_bits` in the place of `get_bits`.
struct Quicken {
    has_calls: bool,
}

impl VisitMut for Quicken {
    fn visit_expr_method_call_mut(&mut self, call: &mut ExprMethodCall) {
        if call.method == "get_bits" {
            call.method = Ident::new("quick_bits", call.method.span());
            self.has_calls = true;
        }
        visit_expr_method_call_mut(self, call);
    }
}

/// Gives the body for simulation.
pub(crate) fn native(block: &Block) -> TokenStream {
    let mut native = block.clone();
    let mut quicken = Quicken { has_calls: false };
    quicken.visit_block_mut(&mut native);
    if !quicken.has_calls {
        return quote!(#block);
    }
    let statements = &native.stmts;
    quote!({
        use ::rnic_kernel::quick::QuickBits as _;
        #(#statements)*
    })
}
