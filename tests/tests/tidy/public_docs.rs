//! Finds public items of a source file that no sentence documents.
//!
//! rustc's `missing_docs` cannot do this here: the derives of rust-hdl write public methods without documentation, so crates
//! with hardware allow that lint. This check sees only what is written in the file: items inside macro calls are not seen.
use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Fields, ImplItem, Item, Lit, Meta, TraitItem, Visibility};

/// One public item without a sentence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Undocumented {
    /// Line of the item, counted from 1.
    pub line: usize,
    /// Kind and name, such as `field Beat::data`.
    pub item: String,
    /// The documentation that was found, if it is too short to say anything.
    pub found: Option<String>,
}

/// Documentation that repeats nothing but a pronoun.
const STUBS: [&str; 12] = [
    "there is one",
    "there are some",
    "whose",
    "what",
    "who",
    "they",
    "it",
    "which",
    "where",
    "the block",
    "how many",
    "the same",
];

/// Lists the undocumented public items of a file in the order of its lines.
///
/// # Errors
/// If the text is no Rust.
pub(crate) fn undocumented(text: &str) -> Result<Vec<Undocumented>, syn::Error> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder::default();
    finder.visit_file(&file);
    finder.found.sort_by_key(|item| item.line);
    Ok(finder.found)
}

#[derive(Default)]
struct Finder {
    found: Vec<Undocumented>,
}

/// The documentation of an item as one text; `None` if there is none. `Some("include")` for text from a file.
fn documentation(attributes: &[Attribute]) -> Option<String> {
    let lines: Vec<String> = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("doc"))
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(value) => match &value.value {
                Expr::Lit(literal) => match &literal.lit {
                    Lit::Str(text) => Some(text.value().trim().to_string()),
                    _ => None,
                },
                _ => Some("included from a file".to_string()),
            },
            // `#[doc(hidden)]` takes an item out of the documentation.
            Meta::List(_) => Some("hidden from the documentation".to_string()),
            Meta::Path(_) => None,
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join(" ").trim().to_string())
}

/// Says whether documentation is a sentence: at least two words, and no stub.
fn is_sentence(documentation: &str) -> bool {
    let plain = documentation.trim_end_matches(['.', ':', '!', '?']).to_lowercase();
    plain.split_whitespace().count() >= 2 && !STUBS.contains(&plain.as_str())
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg")
            && list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
    })
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

impl Finder {
    fn check(&mut self, attributes: &[Attribute], span: Span, item: String) {
        let found = documentation(attributes);
        if !found.as_deref().is_some_and(is_sentence) {
            self.found.push(Undocumented { line: span.start().line, item, found });
        }
    }

    fn check_fields(&mut self, owner: &str, fields: &Fields, all: bool) {
        for field in fields {
            // Fields of a tuple are documented by their owner.
            let Some(name) = &field.ident else { continue };
            if all || is_public(&field.vis) {
                self.check(&field.attrs, name.span(), format!("field {owner}::{name}"));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Struct(item) if is_public(&item.vis) && !is_for_tests(&item.attrs) => {
                self.check(&item.attrs, item.ident.span(), format!("struct {}", item.ident));
                self.check_fields(&item.ident.to_string(), &item.fields, false);
            }
            Item::Enum(item) if is_public(&item.vis) && !is_for_tests(&item.attrs) => {
                self.check(&item.attrs, item.ident.span(), format!("enum {}", item.ident));
                for variant in &item.variants {
                    let name = format!("{}::{}", item.ident, variant.ident);
                    self.check(&variant.attrs, variant.ident.span(), format!("variant {name}"));
                    self.check_fields(&name, &variant.fields, true);
                }
            }
            Item::Fn(item) if is_public(&item.vis) && !is_for_tests(&item.attrs) => {
                self.check(&item.attrs, item.sig.ident.span(), format!("function {}", item.sig.ident));
            }
            Item::Const(item) if is_public(&item.vis) && !is_for_tests(&item.attrs) => {
                self.check(&item.attrs, item.ident.span(), format!("constant {}", item.ident));
            }
            Item::Static(item) if is_public(&item.vis) && !is_for_tests(&item.attrs) => {
                self.check(&item.attrs, item.ident.span(), format!("static {}", item.ident));
            }
            Item::Type(item) if is_public(&item.vis) && !is_for_tests(&item.attrs) => {
                self.check(&item.attrs, item.ident.span(), format!("type {}", item.ident));
            }
            Item::Trait(item) if is_public(&item.vis) && !is_for_tests(&item.attrs) => {
                self.check(&item.attrs, item.ident.span(), format!("trait {}", item.ident));
                for member in &item.items {
                    let (attributes, name) = match member {
                        TraitItem::Fn(member) => (&member.attrs, &member.sig.ident),
                        TraitItem::Const(member) => (&member.attrs, &member.ident),
                        TraitItem::Type(member) => (&member.attrs, &member.ident),
                        _ => continue,
                    };
                    self.check(attributes, name.span(), format!("member {}::{name}", item.ident));
                }
            }
            // The trait documents what an implementation of it does.
            Item::Impl(item) if item.trait_.is_none() && !is_for_tests(&item.attrs) => {
                for member in &item.items {
                    match member {
                        ImplItem::Fn(member) if is_public(&member.vis) => {
                            self.check(
                                &member.attrs,
                                member.sig.ident.span(),
                                format!("method {}", member.sig.ident),
                            );
                        }
                        ImplItem::Const(member) if is_public(&member.vis) => {
                            self.check(
                                &member.attrs,
                                member.ident.span(),
                                format!("constant {}", member.ident),
                            );
                        }
                        _ => {}
                    }
                }
            }
            // What a private module holds is not public.
            Item::Mod(item) if is_public(&item.vis) && !is_for_tests(&item.attrs) => {
                if item.content.is_some() {
                    self.check(&item.attrs, item.ident.span(), format!("module {}", item.ident));
                }
                visit::visit_item_mod(self, item);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Vec<String> {
        undocumented(text).expect("it is Rust").into_iter().map(|item| item.item).collect()
    }

    #[test]
    fn an_item_without_a_sentence_is_found() {
        assert_eq!(items("pub struct A;"), ["struct A"]);
        assert_eq!(items("/// Number of packets.\npub struct A { pub b: u8 }"), ["field A::b"]);
        assert_eq!(items("/// Kind of packet.\npub enum A { B }"), ["variant A::B"]);
        assert_eq!(items("impl A { pub fn b() {} }"), ["method b"]);
        assert_eq!(items("/// Sink of frames.\npub trait A { fn b(); }"), ["member A::b"]);
    }

    #[test]
    fn a_stub_is_no_sentence() {
        for stub in ["Whose.", "There is one.", "They.", "Length."] {
            assert_eq!(items(&format!("/// {stub}\npub const A: u8 = 0;")), ["constant A"], "{stub}");
        }
        assert!(items("/// Length in bytes.\npub const A: u8 = 0;").is_empty());
    }

    #[test]
    fn private_items_and_tests_need_none() {
        assert!(items("struct A { b: u8 } fn c() {} #[cfg(test)] mod tests { pub fn d() {} }").is_empty());
        assert!(items("impl B for A { fn c() {} }").is_empty());
    }
}
