//! `#[derive(Construct)]`.
use crate::syntax;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, DeriveInput, Expr, Field, Ident, LitStr, PatType, Result, Token, Type};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let fields = syntax::named_fields(input)?;
    let requirements = all(&input.attrs, "require").map(|attribute| attribute.parse_args());
    let requirements: Vec<Requirement> = requirements.collect::<Result<_>>()?;
    let values = fields.iter().map(|field| {
        let (name, value) = (&field.ident, initial(field)?);
        Ok(quote!(#name: #value))
    });
    let values = values.collect::<Result<Vec<_>>>()?;
    let (name, visibility) = (&input.ident, &input.vis);
    let (generics, arguments, condition) = input.generics.split_for_impl();
    let check = (!requirements.is_empty()).then(|| {
        quote!(
            const {
                if let Some(refusal) = Self::REFUSAL {
                    ::core::panic!("{}", refusal);
                }
            }
        )
    });
    let refusal = check.is_some().then(|| {
        let refusal = refusal(name, &requirements);
        quote! {
            #[automatically_derived]
            #[allow(unused_qualifications, clippy::all)]
            impl #generics #name #arguments #condition {
                /// Why a block with these parameters does not compile, if it does not.
                #visibility const REFUSAL: Option<&'static str> = #refusal;
            }
        }
    });
    let body = quote! {
        #check
        Self { #(#values),* }
    };
    let Some(constructor) = all(&input.attrs, "new").next() else {
        return Ok(quote! {
            #refusal

            #[automatically_derived]
            #[allow(unused_qualifications)]
            impl #generics ::core::default::Default for #name #arguments #condition {
                fn default() -> Self {
                    #body
                }
            }
        });
    };
    let Constructor { documentation, parameters } = constructor.parse_args()?;
    Ok(quote! {
        #refusal

        #[automatically_derived]
        #[allow(unused_qualifications)]
        impl #generics #name #arguments #condition {
            #(#documentation)*
            #visibility fn new(#parameters) -> Self {
                #body
            }
        }
    })
}

fn all<'a>(attributes: &'a [Attribute], name: &'a str) -> impl Iterator<Item = &'a Attribute> {
    attributes.iter().filter(move |attribute| attribute.path().is_ident(name))
}

/// What a field begins with: what `#[init(..)]` says, or its default.
fn initial(field: &Field) -> Result<TokenStream> {
    match all(&field.attrs, "init").next() {
        Some(attribute) => Ok(attribute.parse_args::<Expr>()?.into_token_stream()),
        None => Ok(default_of(&field.ty)),
    }
}

/// The standard library has defaults for arrays of up to 32 elements only.
fn default_of(ty: &Type) -> TokenStream {
    match ty {
        Type::Array(array) => {
            let element = default_of(&array.elem);
            quote!(::core::array::from_fn(|_| #element))
        }
        Type::Group(group) => default_of(&group.elem),
        other => quote_spanned!(other.span()=> ::core::default::Default::default()),
    }
}

/// `COUNT == ADDRESS + 1`, with a message of its own if wanted.
struct Requirement {
    condition: Expr,
    message: Option<LitStr>,
}

impl Parse for Requirement {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let condition = input.parse()?;
        let message = match input.parse::<Option<Token![,]>>()? {
            Some(_) if !input.is_empty() => Some(input.parse()?),
            _ => None,
        };
        Ok(Requirement { condition, message })
    }
}

/// The message of the first requirement that does not hold, if any.
fn refusal(block: &Ident, requirements: &[Requirement]) -> TokenStream {
    requirements.iter().rev().fold(quote!(None), |others, Requirement { condition, message }| {
        let message = match message {
            Some(message) => format!("{block}: {}", message.value()),
            None => format!("{block} is built with {} only", condition.to_token_stream()),
        };
        quote!(if #condition { #others } else { Some(#message) })
    })
}

/// The parameters of `new`, below its documentation.
struct Constructor {
    documentation: Vec<Attribute>,
    parameters: Punctuated<PatType, Token![,]>,
}

impl Parse for Constructor {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut documentation = Attribute::parse_outer(input)?;
        if documentation.is_empty() {
            documentation.push(syn::parse_quote!(#[doc = "Makes the block as it is at power-up."]));
        }
        let parameters = Punctuated::parse_terminated_with(input, parameter)?;
        Ok(Constructor { documentation, parameters })
    }
}

fn parameter(input: ParseStream<'_>) -> Result<PatType> {
    match input.parse()? {
        syn::FnArg::Typed(parameter) => Ok(parameter),
        syn::FnArg::Receiver(receiver) => syntax::refuse(receiver, "a block is made without another one"),
    }
}
