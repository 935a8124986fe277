//! `#[derive(Registers)]`.
use crate::{comments, syntax};
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, DeriveInput, Expr, Field, GenericArgument, Ident, PathArguments, Result, Type, Visibility,
};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let fields = syntax::named_fields(input)?;
    let own = Domain::of_block(input, &fields)?;
    let mut parts = Vec::new();
    for field in fields.iter().filter(|field| may_be_clocked(field)) {
        match own.clone().of_attributes(&field.attrs)? {
            Some(Domain { clock: Some(clock), reset }) => {
                parts.push(Part::new(field, &clock, reset.as_ref()))
            }
            Some(_) if is_register(&field.ty) => {
                return syntax::refuse(
                    field,
                    "a block with registers has a field `clock: Signal<In, Clock>`",
                );
            }
            _ => {}
        }
    }
    let native = parts.iter().map(|part| &part.native);
    let claims = parts.iter().map(|part| &part.claim);
    let staged = parts.iter().map(|part| &part.staged);
    let block_docs = comments::summary(&input.attrs);
    let documented = fields.iter().filter_map(|field| {
        let name = field.ident.as_ref()?.unraw().to_string();
        let lines = comments::summary(&field.attrs);
        (!lines.is_empty()).then(|| quote!((#name, &[#(#lines),*])))
    });
    let is_port = |field: &&&Field| matches!(field.vis, Visibility::Public(_));
    let ports: Vec<_> = fields.iter().filter(is_port).filter_map(|field| field.ident.as_ref()).collect();
    let port_names = ports.iter().map(|port| port.unraw().to_string());
    let name = &input.ident;
    let (generics, arguments, condition) = input.generics.split_for_impl();
    let clocked = as_child(input, &fields);
    Ok(quote! {
        #[automatically_derived]
        #[allow(unused_qualifications)]
        impl #generics ::rnic_kernel::register::Registers for #name #arguments #condition {
            fn hold_registers(&mut self) {
                #(#native)*
            }
            fn connect_registers(&mut self) {
                #(#claims)*
            }
            fn stage_registers(&self) {
                use ::rnic_kernel::staged::StagedVal as _;
                ::rnic_kernel::staged::describe(&[#(#block_docs),*], &[#(#documented),*]);
                #(#staged)*
            }
            fn accept_ports(&self, probe: &mut dyn ::rnic_kernel::rust_hdl::core::prelude::Probe) {
                #(::rnic_kernel::rust_hdl::core::prelude::Block::accept(&self.#ports, #port_names, probe);)*
            }
        }

        #clocked
    })
}

/// What `hold_registers` says of one register or child.
struct Part {
    native: TokenStream,
    claim: TokenStream,
    staged: TokenStream,
}

impl Part {
    fn new(field: &Field, clock: &Expr, reset: Option<&Expr>) -> Self {
        let clocked = quote_spanned!(field.ty.span()=> ::rnic_kernel::register::Clocked);
        let (name, has_reset) = (&field.ident, reset.is_some());
        let reset = |read: &str| {
            let read = format_ident!("{read}");
            reset.map_or(quote!(None), |reset| quote!(Some(self.#reset.#read())))
        };
        let (native_reset, staged_reset) = (reset("val"), reset("staged_val"));
        Part {
            native: quote!(#clocked::hold(&mut self.#name, self.#clock.val(), #native_reset);),
            claim: quote!(#clocked::connect_hold(&mut self.#name, #has_reset);),
            staged: quote!(#clocked::stage_hold(&self.#name, self.#clock.staged_val(), #staged_reset);),
        }
    }
}

/// How the block itself is connected where it is a child.
fn as_child(input: &DeriveInput, fields: &[&Field]) -> TokenStream {
    let port = |wanted: &str| find(fields, wanted).map(|field| &field.ident);
    let (clock, reset) = (port("clock").into_iter(), port("reset").into_iter());
    let (claimed_clock, claimed_reset) = (clock.clone(), reset.clone());
    let (staged_clock, staged_reset) = (clock.clone(), reset.clone());
    let name = &input.ident;
    let (generics, arguments, condition) = input.generics.split_for_impl();
    let logic = quote!(::rnic_kernel::rust_hdl::core::prelude::Logic);
    let clock_type = quote!(::rnic_kernel::rust_hdl::core::prelude::Clock);
    quote! {
        #[automatically_derived]
        #[allow(unused_qualifications, unused_variables)]
        impl #generics ::rnic_kernel::register::Clocked for #name #arguments #condition {
            fn hold(&mut self, clock: #clock_type, reset: Option<bool>) {
                #(self.#clock.next = clock;)*
                #(if let Some(reset) = reset {
                    self.#reset.next = reset;
                })*
            }
            fn connect_hold(&mut self, has_reset: bool) {
                #(#logic::connect(&mut self.#claimed_clock);)*
                #(if has_reset {
                    #logic::connect(&mut self.#claimed_reset);
                })*
            }
            fn stage_hold(
                &self,
                clock: ::rnic_kernel::Node<#clock_type>,
                reset: Option<::rnic_kernel::Node<bool>>,
            ) {
                #(::rnic_kernel::staged::assign(&self.#staged_clock, clock);)*
                #(if let Some(reset) = reset {
                    ::rnic_kernel::staged::assign(&self.#staged_reset, reset);
                })*
            }
        }
    }
}

/// Where clock and reset come from: paths from `self`.
#[derive(Clone, Default)]
struct Domain {
    clock: Option<Expr>,
    reset: Option<Expr>,
}

impl Domain {
    /// The fields `clock` and `reset`, or what `#[domain(..)]` above the block says.
    fn of_block(input: &DeriveInput, fields: &[&Field]) -> Result<Self> {
        let field = |name: &str| -> Option<Expr> {
            let name = &find(fields, name)?.ident;
            Some(syn::parse_quote!(#name))
        };
        let own = Domain { clock: field("clock"), reset: field("reset") };
        match own.of_attributes(&input.attrs)? {
            Some(domain) => Ok(domain),
            None => syntax::refuse(&input.ident, "`#[domain(skip)]` leaves out a field, not a block"),
        }
    }

    /// What `#[domain(clock = .., reset = ..)]` makes of it, or nothing for `#[domain(skip)]`.
    ///
    /// Another clock has no reset but one that is named with it; another reset has the same clock.
    fn of_attributes(mut self, attributes: &[Attribute]) -> Result<Option<Self>> {
        let mut is_skipped = false;
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("domain")) {
            let (mut clock, mut reset) = (None, None);
            attribute.parse_nested_meta(|meta| {
                let part = match meta.path.get_ident().map(Ident::to_string).as_deref() {
                    Some("clock") => &mut clock,
                    Some("reset") => &mut reset,
                    Some("skip") => {
                        is_skipped = true;
                        return Ok(());
                    }
                    _ => return Err(meta.error("a domain is `clock = ..`, `reset = ..` or `skip`")),
                };
                *part = Some(meta.value()?.parse()?);
                Ok(())
            })?;
            match clock {
                Some(_) => self = Domain { clock, reset },
                None => self.reset = reset.or(self.reset),
            }
        }
        Ok((!is_skipped).then_some(self))
    }
}

fn find<'a>(fields: &[&'a Field], wanted: &str) -> Option<&'a Field> {
    fields.iter().find(|field| field.ident.as_ref().is_some_and(|name| name == wanted)).copied()
}

/// Registers and children, and interfaces, which derive `Registers` to say that they have no clock.
///
/// Signals and constants are recognized by name. rust-hdl takes fields that begin with `_` for data.
fn may_be_clocked(field: &Field) -> bool {
    let is_data = field.ident.as_ref().is_some_and(|name| name.to_string().starts_with('_'));
    !is_data && !is_signal(&field.ty)
}

fn is_signal(ty: &Type) -> bool {
    match ty {
        Type::Array(array) => is_signal(&array.elem),
        // A type that came through `macro_rules!`.
        Type::Group(group) => is_signal(&group.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            last.ident == "Signal"
                || last.ident == "Constant"
                || (last.ident == "Vec" && holds(&last.arguments, is_signal))
        }),
        _ => false,
    }
}

/// `Reg<_>`, `DFF<_>`, and arrays and vectors of them.
fn is_register(ty: &Type) -> bool {
    match ty {
        Type::Array(array) => is_register(&array.elem),
        Type::Group(group) => is_register(&group.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            last.ident == "Reg"
                || last.ident == "DFF"
                || (last.ident == "Vec" && holds(&last.arguments, is_register))
        }),
        _ => false,
    }
}

fn holds(arguments: &PathArguments, is_wanted: fn(&Type) -> bool) -> bool {
    match arguments {
        PathArguments::AngleBracketed(arguments) => arguments
            .args
            .iter()
            .any(|argument| matches!(argument, GenericArgument::Type(ty) if is_wanted(ty))),
        _ => false,
    }
}
