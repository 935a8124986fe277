//! `#[derive(LogicBlock)]`: rust-hdl's own, and a quick evaluation, of which `rnic_kernel::quick` tells.
use crate::syntax;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Field, GenericArgument, Ident, PathArguments, Result, Type, Visibility};

/// Names that Verilog keeps for itself, and rust-hdl does not rename.
const KEYWORDS: [&str; 6] = ["config", "wire", "reg", "module", "edge", "disable"];

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let mut fields = Vec::new();
    for field in syntax::named_fields(input)? {
        let name = field.ident.as_ref().expect("a named field");
        if KEYWORDS.iter().any(|keyword| name == keyword) {
            return syntax::refuse(name, "a field is not named like a keyword of Verilog");
        }
        // A name that begins so is one of the generator or of the simulation, not of hardware.
        if !name.to_string().starts_with('_') {
            fields.push((name, Role::of(field)));
        }
    }
    let with = |wanted: fn(&Role) -> bool| {
        fields.iter().filter(move |(_, role)| wanted(role)).map(|&(name, _)| name).collect::<Vec<&Ident>>()
    };
    let parts = with(|_| true);
    let inputs = with(|role| matches!(role, Role::Input | Role::Interface));
    let outputs = with(|role| !matches!(role, Role::Input));
    let names = parts.iter().map(|part| part.to_string());
    let name = &input.ident;
    let (generics, arguments, condition) = input.generics.split_for_impl();
    let block = quote!(::rnic_kernel::rust_hdl::core::prelude::Block);
    let probe = quote!(::rnic_kernel::rust_hdl::core::prelude::Probe);
    let logic = quote!(::rnic_kernel::rust_hdl::core::prelude::Logic);
    Ok(quote! {
        #[automatically_derived]
        impl #generics #block for #name #arguments #condition {
            fn connect_all(&mut self) {
                #logic::connect(self);
                #(#block::connect_all(&mut self.#parts);)*
            }
            fn update_all(&mut self) {
                if !::rnic_kernel::quick::is_quick() {
                    #logic::update(self);
                    #(#block::update_all(&mut self.#parts);)*
                    return;
                }
                let rests = !#block::has_changed(self);
                #(#block::update_all(&mut self.#inputs);)*
                if rests #(&& !#block::has_changed(&self.#inputs))* {
                    return;
                }
                #logic::update(self);
                #(#block::update_all(&mut self.#outputs);)*
            }
            fn has_changed(&self) -> bool {
                false #(|| #block::has_changed(&self.#parts))*
            }
            fn accept(&self, name: &str, probe: &mut dyn #probe) {
                probe.visit_start_scope(name, self);
                #(#block::accept(&self.#parts, #names, probe);)*
                probe.visit_end_scope(name, self);
            }
        }
    })
}

/// Who sets the signals of a field.
enum Role {
    /// The block around this one.
    Input,
    /// Both of them: a bundle of signals that is a port.
    Interface,
    /// This block: outputs, signals within it, registers, children.
    Inside,
}

impl Role {
    fn of(field: &Field) -> Role {
        match direction(&field.ty) {
            Some(direction) if direction == "In" => Role::Input,
            Some(_) => Role::Inside,
            None if matches!(field.vis, Visibility::Inherited) => Role::Inside,
            None => Role::Interface,
        }
    }
}

/// The `D` of `Signal<D, T>`, or of an array of these.
fn direction(field: &Type) -> Option<&Ident> {
    match field {
        Type::Array(array) => direction(&array.elem),
        Type::Path(path) => {
            let segment = path.path.segments.last().filter(|segment| segment.ident == "Signal")?;
            let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
            match arguments.args.first()? {
                GenericArgument::Type(Type::Path(direction)) => Some(&direction.path.segments.last()?.ident),
                _ => None,
            }
        }
        _ => None,
    }
}
