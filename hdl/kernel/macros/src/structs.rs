//! `#[derive(LogicStruct)]`: that of rust-hdl, and generic structs too.
use crate::syntax;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Fields, Result};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let fields = match &input.data {
        Data::Struct(data) if matches!(data.fields, Fields::Named(_)) => &data.fields,
        _ => return syntax::refuse(&input.ident, "a hardware struct has named fields"),
    };
    if fields.is_empty() {
        return syntax::refuse(&input.ident, "a hardware struct has at least one field");
    }
    let name = &input.ident;
    let names: Vec<_> = fields.iter().filter_map(|field| field.ident.as_ref()).collect();
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let core = quote!(::rnic_kernel::rust_hdl::core);
    let synth = quote!(#core::prelude::Synth);
    let labels: Vec<_> = names.iter().map(|name| name.to_string()).collect();
    let struct_label = name.to_string();
    let widths: Vec<_> = names.iter().map(|name| format_ident!("get_my_width_{name}")).collect();
    let offsets: Vec<_> = names.iter().map(|name| format_ident!("get_my_offset_{name}")).collect();
    // A field starts where the one before it ends.
    let starts = (0..types.len()).map(|index| {
        let before = &types[..index];
        quote!(0usize #(+ <#before as #synth>::BITS)*)
    });
    let (generics, arguments, condition) = input.generics.split_for_impl();
    let bits_conversion = input.generics.params.is_empty().then(|| {
        quote! {
            #[automatically_derived]
            #[allow(unused_qualifications)]
            impl From<#name> for #core::prelude::Bits<{ <#name as #synth>::BITS }> {
                fn from(value: #name) -> Self {
                    ::rnic_kernel::structs::to_bits(value)
                }
            }
        }
    });
    Ok(quote! {
        #[automatically_derived]
        #[allow(missing_docs, unreachable_pub, unused_qualifications, dead_code)]
        impl #generics #name #arguments #condition {
            #(
                #[doc(hidden)]
                pub fn #widths(&self) -> usize {
                    <#types as #synth>::BITS
                }
                #[doc(hidden)]
                pub fn #offsets(&self) -> usize {
                    #starts
                }
            )*
        }

        #[automatically_derived]
        #[allow(unused_qualifications)]
        impl #generics #synth for #name #arguments #condition {
            const BITS: usize = 0usize #(+ <#types as #synth>::BITS)*;

            fn descriptor() -> #core::type_descriptor::TypeDescriptor {
                let fields = vec![#(Box::new(#core::type_descriptor::TypeField {
                    fieldname: #labels.to_string(),
                    kind: <#types as #synth>::descriptor(),
                })),*];
                #core::type_descriptor::TypeDescriptor {
                    name: #struct_label.to_string(),
                    kind: #core::type_descriptor::TypeKind::Composite(fields),
                }
            }

            fn vcd(self) -> #core::prelude::VCDValue {
                #core::prelude::VCDValue::Composite(vec![#(Box::new(#synth::vcd(self.#names))),*])
            }

            fn verilog(self) -> #core::prelude::VerilogLiteral {
                let fields = [#((self.#offsets(), #synth::verilog(self.#names))),*];
                ::rnic_kernel::structs::pack(&fields, <Self as #synth>::BITS)
            }
        }

        #bits_conversion
    })
}
