//! Errors whose text has a reason that is their source too, so that a chain of errors prints it twice.
use std::fmt::Write as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Fields, ItemStruct, Variant};

/// Finds the errors of a Rust source whose text prints their source; each by its name.
pub(crate) fn repeated(text: &str) -> Result<Vec<String>, syn::Error> {
    let mut found = Found::default();
    found.visit_file(&syn::parse_file(text)?);
    Ok(found.0)
}

#[derive(Default)]
struct Found(Vec<String>);

impl Found {
    fn take(&mut self, name: &syn::Ident, attributes: &[Attribute], fields: &Fields) {
        let has = |attributes: &[Attribute], name| {
            attributes.iter().any(|attribute| attribute.path().is_ident(name))
        };
        let mut text = String::new();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("error")) {
            if let syn::Meta::List(list) = &attribute.meta {
                write!(text, "{}", list.tokens).expect("a String takes any text");
            }
        }
        let prints = |(index, field): (usize, &syn::Field)| {
            let field_name = field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
            let is_source =
                ["from", "source"].iter().any(|name| has(&field.attrs, name)) || field_name == "source";
            is_source && ["}", ":"].iter().any(|end| text.contains(&format!("{{{field_name}{end}")))
        };
        if fields.iter().enumerate().any(prints) {
            self.0.push(name.to_string());
        }
    }
}

impl Visit<'_> for Found {
    fn visit_variant(&mut self, variant: &Variant) {
        self.take(&variant.ident, &variant.attrs, &variant.fields);
        visit::visit_variant(self, variant);
    }

    fn visit_item_struct(&mut self, item: &ItemStruct) {
        self.take(&item.ident, &item.attrs, &item.fields);
        visit::visit_item_struct(self, item);
    }
}
