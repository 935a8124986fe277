//! `#[kernel] fn name(..) -> ..`: the function itself, and its staged twin `name::lower`.
use crate::hardware::{self, Names};
use crate::{comments, quick, stage, syntax};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{FnArg, Ident, ItemFn, Pat, Result, ReturnType, Type};

pub(crate) fn expand(item: &ItemFn) -> Result<TokenStream> {
    let ItemFn { attrs, vis, sig, block } = item;
    if let Some(qualifier) = &sig.asyncness {
        return syntax::refuse(qualifier, "hardware has no `async`");
    }
    let ReturnType::Type(_, result) = &sig.output else {
        return syntax::refuse(sig, "a kernel function returns a value; it has no effects");
    };
    let native = comments::without_docs(quick::native(block));
    let parameters = sig.inputs.iter().map(Parameter::of).collect::<Result<Vec<_>>>()?;
    let twin = twin(item, &parameters, result)?;
    let name = &sig.ident;
    Ok(quote! {
        #(#attrs)*
        #vis #sig #native

        #[doc(hidden)]
        #[allow(unused, missing_docs, private_interfaces, unreachable_pub, unused_qualifications, clippy::all)]
        #vis mod #name {
            use super::*;
            use ::rnic_kernel::staged::StagedVal as _;
            #twin
        }
    })
}

/// A parameter and how the twin takes it.
struct Parameter<'a> {
    pattern: &'a Pat,
    name: &'a Ident,
    ty: &'a Type,
}

impl<'a> Parameter<'a> {
    fn of(argument: &'a FnArg) -> Result<Self> {
        let FnArg::Typed(typed) = argument else {
            return syntax::refuse(argument, "a kernel function has no `self`");
        };
        match &*typed.pat {
            Pat::Ident(name) if name.mutability.is_none() && name.subpat.is_none() => {
                Ok(Parameter { pattern: &typed.pat, name: &name.ident, ty: &typed.ty })
            }
            other => syntax::refuse(other, "a parameter of a kernel function is a plain name"),
        }
    }

    /// A lone hardware value may also be given as a constant.
    fn is_single(&self) -> bool {
        !syntax::is_generator_type(self.ty) && !matches!(self.ty, Type::Tuple(_) | Type::Array(_))
    }

    fn declaration(&self) -> TokenStream {
        let Parameter { name, ty, .. } = self;
        if self.is_single() {
            return quote!(#name: impl ::rnic_kernel::node::IntoNode<#ty>);
        }
        let ty = stage::node_type(ty);
        quote!(#name: #ty)
    }

    /// An argument is used as often as the body likes, so it becomes a wire once.
    fn binding(&self) -> TokenStream {
        let name = self.name;
        let label = name.to_string();
        let value = match self.is_single() {
            true => quote!(::rnic_kernel::node::IntoNode::into_node(#name)),
            false => quote!(#name),
        };
        quote!(let #name = ::rnic_kernel::staged::Bind::bind(#value, #label);)
    }
}

fn twin(item: &ItemFn, parameters: &[Parameter<'_>], result: &Type) -> Result<TokenStream> {
    let (generics, _, condition) = item.sig.generics.split_for_impl();
    let names = parameters.iter().map(|parameter| parameter.name);
    let declarations = parameters.iter().map(Parameter::declaration);
    if syntax::is_generator_type(result) {
        // All of it happens while the hardware is generated.
        let (block, types) = (&item.block, parameters.iter().map(|parameter| parameter.ty));
        return Ok(quote!(pub fn lower #generics (#(#names: #types),*) -> #result #condition #block));
    }
    let label = item.sig.ident.to_string();
    let result = stage::node_type(result);
    let bindings = parameters.iter().map(Parameter::binding);
    let mut hardware = Names::default();
    for parameter in parameters.iter().filter(|parameter| !syntax::is_generator_type(parameter.ty)) {
        hardware.bind(parameter.pattern);
    }
    let body = stage::value_block(&hardware::mark_generator_values(&item.block, hardware))?;
    Ok(quote! {
        pub fn lower #generics (#(#declarations),*) -> #result #condition {
            ::rnic_kernel::staged::function(#label, || {
                #(#bindings)*
                #body
            })
        }
    })
}
