//! `#[kernel] fn update(&mut self)`: the body for simulation, beside `connect` and `hdl`.
//! `#[kernel] fn verb(&mut self, ..)`: a group of connections, beside its claims and its staged copy.
use crate::hardware::{self, Names};
use crate::{claims, comments, quick, stage, syntax};
use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::{FnArg, Ident, ItemFn, Pat, Result, ReturnType, Type};

pub(crate) fn expand(item: &ItemFn) -> Result<TokenStream> {
    let ItemFn { attrs, vis, sig, block } = item;
    let receiver = match sig.receiver() {
        Some(receiver) if sig.ident == "update" && sig.inputs.len() == 1 => &receiver.self_token,
        _ => return method(item),
    };
    let native = comments::without_docs(quick::native(block));
    let claims = claims::of_block(block, Names::default());
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

/// A method: `self.part.verb(..);` stands for the statements in its body.
fn method(item: &ItemFn) -> Result<TokenStream> {
    let ItemFn { attrs, vis, sig, block } = item;
    let writes = sig.receiver().is_some_and(|receiver| receiver.mutability.is_some());
    if !writes || !matches!(sig.output, ReturnType::Default) {
        return syntax::refuse(sig, "a method of a kernel takes `&mut self` and has effects only");
    }
    let parameters = sig.inputs.iter().filter_map(|argument| match argument {
        FnArg::Typed(typed) => Some(parameter(&typed.pat, &typed.ty)),
        FnArg::Receiver(_) => None,
    });
    let (names, types): (Vec<_>, Vec<_>) = parameters.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let mut hardware = Names::default();
    sig.inputs.iter().for_each(|argument| {
        if let FnArg::Typed(typed) = argument {
            hardware.bind(&typed.pat);
        }
    });
    let native = comments::without_docs(quick::native(block));
    let claims = claims::of_block(block, hardware.clone());
    let staged = stage::statements(&hardware::mark_generator_values(block, hardware))?;
    let (claim_name, staged_name) = twins(&sig.ident);
    let bindings = names.iter().filter(|name| mentions(block.to_token_stream(), name) > 1).map(|name| {
        let label = format!("{}_{}", sig.ident.unraw(), name.unraw());
        quote!(let #name = ::rnic_kernel::staged::Bind::bind(#name, #label);)
    });
    let bindings: TokenStream = bindings.collect();
    Ok(quote! {
        #(#attrs)*
        #vis #sig #native

        #[doc(hidden)]
        #[allow(unused, missing_docs, unused_qualifications, clippy::all)]
        #vis fn #claim_name(&mut self) {
            #claims
        }

        #[doc(hidden)]
        #[allow(unused, missing_docs, unused_qualifications, unreachable_code, clippy::all)]
        #vis fn #staged_name(&self, #(#names: ::rnic_kernel::Node<#types>),*) {
            use ::rnic_kernel::staged::StagedVal as _;
            ::rnic_kernel::staged::method(|| {
                #bindings
                #staged
            })
        }
    })
}

/// The names under which a method has its claims and its staged copy.
pub(crate) fn twins(method: &Ident) -> (Ident, Ident) {
    (format_ident!("{method}_connect"), format_ident!("{method}_staged"))
}

/// How often a value is named in a body: one that is named twice is a wire, so that its logic is printed once.
fn mentions(tokens: TokenStream, name: &Ident) -> usize {
    let mut dots = 0;
    let mut count = 0;
    for token in tokens {
        count += match &token {
            // Behind one dot it is a field.
            TokenTree::Ident(ident) => usize::from(ident == name && dots != 1),
            TokenTree::Group(group) => mentions(group.stream(), name),
            _ => 0,
        };
        dots = if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.') { dots + 1 } else { 0 };
    }
    count
}

fn parameter<'a>(pattern: &'a Pat, ty: &'a Type) -> Result<(&'a Ident, &'a Type)> {
    match pattern {
        Pat::Ident(name) if name.mutability.is_none() && name.subpat.is_none() => {
            match syntax::is_generator_type(ty) {
                false => Ok((&name.ident, ty)),
                true => syntax::refuse(ty, "a method of a kernel takes hardware only"),
            }
        }
        other => syntax::refuse(other, "a parameter of a method of a kernel is a plain name"),
    }
}
