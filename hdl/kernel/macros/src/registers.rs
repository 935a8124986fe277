//! `#[derive(Registers)]`.
use crate::{comments, syntax};
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Field, Fields, GenericArgument, PathArguments, Result, Type};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let fields = named_fields(input)?;
    let has =
        |wanted: &str| fields.iter().any(|field| field.ident.as_ref().is_some_and(|name| name == wanted));
    let registers: Vec<_> = fields.iter().filter(|field| is_register(&field.ty)).collect();
    if let Some(first) = registers.first()
        && !has("clock")
    {
        return syntax::refuse(first, "a block with registers has a field `clock: Signal<In, Clock>`");
    }
    let (native_reset, staged_reset) = match has("reset") {
        true => (quote!(self.reset.val()), quote!(Some(&self.reset))),
        false => (quote!(false), quote!(None)),
    };
    let registers: Vec<_> = registers.iter().filter_map(|field| field.ident.as_ref()).collect();
    let block_docs = comments::summary(&input.attrs);
    let documented = fields.iter().filter_map(|field| {
        let name = field.ident.as_ref()?.unraw().to_string();
        let lines = comments::summary(&field.attrs);
        (!lines.is_empty()).then(|| quote!((#name, &[#(#lines),*])))
    });
    let name = &input.ident;
    let (generics, arguments, condition) = input.generics.split_for_impl();
    let register = quote!(::rnic_kernel::register::Register);
    Ok(quote! {
        #[automatically_derived]
        #[allow(unused_qualifications)]
        impl #generics ::rnic_kernel::register::Registers for #name #arguments #condition {
            fn hold_registers(&mut self) {
                #(#register::hold(&mut self.#registers, self.clock.val(), #native_reset);)*
            }
            fn connect_registers(&mut self) {
                #(#register::connect_hold(&mut self.#registers);)*
            }
            fn stage_registers(&self) {
                ::rnic_kernel::staged::describe(&[#(#block_docs),*], &[#(#documented),*]);
                #(#register::stage_hold(&self.#registers, &self.clock, #staged_reset);)*
            }
        }
    })
}

fn named_fields(input: &DeriveInput) -> Result<Vec<&Field>> {
    match &input.data {
        Data::Struct(data) if matches!(data.fields, Fields::Named(_)) => Ok(data.fields.iter().collect()),
        _ => syntax::refuse(&input.ident, "a block is a struct with named fields"),
    }
}

/// `Reg<_>`, `DFF<_>`, and arrays and vectors of them.
fn is_register(ty: &Type) -> bool {
    match ty {
        Type::Array(array) => is_register(&array.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            last.ident == "Reg"
                || last.ident == "DFF"
                || (last.ident == "Vec" && holds_registers(&last.arguments))
        }),
        _ => false,
    }
}

fn holds_registers(arguments: &PathArguments) -> bool {
    match arguments {
        PathArguments::AngleBracketed(arguments) => arguments
            .args
            .iter()
            .any(|argument| matches!(argument, GenericArgument::Type(ty) if is_register(ty))),
        _ => false,
    }
}
