//! Comments and locations in a kernel, for its Verilog and its error messages.
//!
//! A macro sees `///` as an attribute but `//` not at all, so that is read from the source file, to which the span
//! leads. Where there is no file (as in an editor) the Verilog has fewer comments, and nothing else changes.
use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

thread_local! {
    static FILES: RefCell<HashMap<PathBuf, Vec<String>>> = RefCell::default();
}

/// The call that tells the recorder the location of `statement` and the comments above it.
pub(crate) fn mark(statement: &impl ToTokens) -> TokenStream {
    mark_below(&[], statement)
}

/// As [`mark`], with comments from further above.
pub(crate) fn mark_below(outer: &[String], statement: &impl ToTokens) -> TokenStream {
    // A doc comment is the first token of its statement; the place to report is what it documents.
    let code = first_span(without_docs(statement.to_token_stream()));
    let (file, line) = (code.file(), u32::try_from(code.start().line).unwrap_or_default());
    let own = above(statement);
    quote!(::rnic_kernel::staged::statement(#file, #line, &[#(#outer,)* #(#own),*]);)
}

/// The comments directly above a piece of source, and its own doc comments.
pub(crate) fn above(source: &impl ToTokens) -> Vec<String> {
    let tokens = source.to_token_stream();
    let mut comments = lines_above(first_span(tokens.clone()));
    comments.extend(leading_docs(tokens));
    comments
}

fn first_span(tokens: TokenStream) -> Span {
    tokens.into_iter().next().map_or_else(Span::call_site, |token| token.span())
}

/// The text of doc attributes.
pub(crate) fn documentation(attributes: &[Attribute]) -> Vec<String> {
    let texts = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    texts.flat_map(|text| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()).collect()
}

/// The first paragraph of doc attributes, with links to other items as plain code.
pub(crate) fn summary(attributes: &[Attribute]) -> Vec<String> {
    let lines = documentation(attributes).into_iter().take_while(|line| !line.is_empty());
    lines.map(|line| line.replace("[`", "`").replace("`]", "`")).collect()
}

/// The `//` lines directly above a piece of source.
fn lines_above(span: Span) -> Vec<String> {
    let Some(path) = span.local_file() else { return Vec::new() };
    FILES.with_borrow_mut(|files| {
        let source = files.entry(path).or_insert_with_key(|path| read_lines(path));
        let first = span.start().line.saturating_sub(1).min(source.len());
        let mut lines: Vec<_> = source[..first].iter().rev().map_while(|line| comment(line)).collect();
        lines.reverse();
        lines
    })
}

fn read_lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn comment(line: &str) -> Option<String> {
    let text = line.trim_start().strip_prefix("//")?;
    // `///` documents the item around a kernel, or arrives as an attribute.
    (!text.starts_with('/') && !text.starts_with('!')).then(|| text.trim().to_owned())
}

fn leading_docs(tokens: TokenStream) -> Vec<String> {
    let mut tokens = tokens.into_iter();
    let mut docs = Vec::new();
    while let (Some(TokenTree::Punct(_)), Some(TokenTree::Group(group))) = (tokens.next(), tokens.next()) {
        if !is_doc(&group) {
            break;
        }
        let text = group.stream().into_iter().last().map(|text| text.to_string()).unwrap_or_default();
        docs.extend(syn::parse_str::<syn::LitStr>(&text).map(|text| text.value().trim().to_owned()));
    }
    docs
}

fn is_doc(group: &Group) -> bool {
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket && matches!(first, Some(TokenTree::Ident(name)) if name == "doc")
}

/// The same code without doc comments, which rustc does not accept on every statement.
pub(crate) fn without_docs(tokens: TokenStream) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) if is_doc(&group) => {
                kept.pop();
            }
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), without_docs(group.stream()));
                inner.set_span(group.span());
                kept.push(TokenTree::Group(inner));
            }
            other => kept.push(other),
        }
    }
    kept.into_iter().collect()
}
