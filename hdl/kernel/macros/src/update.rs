//! `#[kernel] fn update(&mut self)`: the body for simulation, beside `connect` and `hdl`.
use crate::hardware::{self, Names};
use crate::{claims, comments, quick, stage, syntax};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{ItemFn, Result};

pub(crate) fn expand(item: &ItemFn) -> Result<TokenStream> {
    let ItemFn { attrs, vis, sig, block } = item;
    let receiver = match sig.receiver() {
        Some(receiver) if sig.ident == "update" && sig.inputs.len() == 1 => &receiver.self_token,
        _ => return syntax::refuse(sig, "a kernel is `fn update(&mut self)` or a function without `self`"),
    };
    let native = comments::without_docs(quick::native(block));
    let claims = claims::of_block(block);
    let staged = stage::statements(&hardware::mark_generator_values(block, Names::default()))?;
    let documentation = comments::documentation(attrs);
    Ok(quote! {
        #(#attrs)*
        #vis #sig #native

        #[allow(unused, unused_qualifications, clippy::all)]
        fn connect(&mut #receiver) {
            #claims
        }

        #[allow(unused, unused_qualifications, unreachable_code, clippy::all)]
        fn hdl(&#receiver) -> ::rnic_kernel::rust_hdl::core::prelude::Verilog {
            use ::rnic_kernel::staged::StagedVal as _;
            ::rnic_kernel::staged::kernel(#receiver, &[#(#documentation),*], || { #staged })
        }
    })
}
