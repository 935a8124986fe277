//! `#[clocked]`: the ports that nearly all blocks have, with their stock documentation.
use crate::syntax;
use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{DeriveInput, Fields, Ident, LitStr, Result, Token};

/// What stands between the parentheses.
pub(crate) struct Ports {
    /// Documentation of the reset, if the block has one.
    reset: Option<String>,
}

impl Parse for Ports {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.is_empty() {
            return Ok(Ports { reset: None });
        }
        let name: Ident = input.parse()?;
        if name != "reset" {
            return syntax::refuse(name, "expected `reset`, or `reset = \"what it does\"`");
        }
        if input.is_empty() {
            return Ok(Ports { reset: Some("Synchronous, active high.".to_owned()) });
        }
        let _: Token![=] = input.parse()?;
        let text: LitStr = input.parse()?;
        Ok(Ports { reset: Some(reset_documentation(&text.value())) })
    }
}

/// A clause goes on with the stock sentence; a sentence follows it.
fn reset_documentation(text: &str) -> String {
    let joint = if text.starts_with(char::is_uppercase) { '.' } else { ';' };
    format!("Synchronous, active high{joint} {text}.")
}

pub(crate) fn expand(ports: &Ports, mut block: DeriveInput) -> Result<TokenStream> {
    syntax::named_fields(&block)?;
    let syn::Data::Struct(data) = &mut block.data else { unreachable!("it has named fields") };
    let Fields::Named(fields) = &mut data.fields else { unreachable!("they are named") };
    let prelude = quote!(::rnic_kernel::rust_hdl::core::prelude);
    let reset = ports.reset.as_ref().map(|documentation| {
        quote!(#[doc = #documentation] pub reset: #prelude::Signal<#prelude::In, #prelude::Bit>,)
    });
    let own = &fields.named;
    let all: syn::FieldsNamed = syn::parse2(quote!({
        #[doc = "Core clock."]
        pub clock: #prelude::Signal<#prelude::In, #prelude::Clock>,
        #reset
        #own
    }))?;
    *fields = all;
    Ok(quote!(#block))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_and_a_sentence_follow_the_stock_sentence() {
        assert_eq!(reset_documentation("drops the event"), "Synchronous, active high; drops the event.");
        assert_eq!(
            reset_documentation("A sweep must follow"),
            "Synchronous, active high. A sweep must follow."
        );
    }
}
