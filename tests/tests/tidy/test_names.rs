//! Finds the tests of a crate in its sources, and names them as `cargo test` does.
//!
//! Modules are followed from the roots of the library and of each test target, so a file that no module includes has no tests
//! here. The sources are read through a function, so that a planted crate can be looked at.
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::{Attribute, Expr, Item, Lit, Meta};

/// Macros that make a test of each name after a colon.
const MAKERS: [&str; 1] = ["at_both_widths"];

/// Reads a source file; `None` if there is none.
pub(crate) type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Tests of a target, as `target::module::name`, from the file at its root.
///
/// # Errors
/// If a file of the target is missing or no Rust.
pub(crate) fn tests_of(target: &str, root: &Path, read: Read) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    let folder = root.parent().unwrap_or(Path::new("")).to_path_buf();
    visit_file(root, &folder, target, read, &mut names)?;
    Ok(names)
}

/// Looks at a file. Files of its modules lie in `folder`.
fn visit_file(
    path: &Path,
    folder: &Path,
    prefix: &str,
    read: Read,
    names: &mut BTreeSet<String>,
) -> Result<(), String> {
    let text = read(path).ok_or_else(|| format!("{} does not exist", path.display()))?;
    let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let here = path.parent().unwrap_or(Path::new(""));
    visit_items(&file.items, here, folder, prefix, read, names)
}

/// Looks at the items of a module in a file of folder `here`.
fn visit_items(
    items: &[Item],
    here: &Path,
    folder: &Path,
    prefix: &str,
    read: Read,
    names: &mut BTreeSet<String>,
) -> Result<(), String> {
    for item in items {
        match item {
            Item::Fn(item) if is_run(&item.attrs) => {
                names.insert(format!("{prefix}::{}", item.sig.ident));
            }
            Item::Macro(item) => {
                let maker = item.mac.path.segments.last().map(|segment| segment.ident.to_string());
                let is_maker = maker.is_some_and(|maker| MAKERS.contains(&maker.as_str()));
                let tokens = item.mac.tokens.clone();
                let made = if is_maker { names_after_colons(tokens) } else { functions_with_test(tokens) };
                names.extend(made.into_iter().map(|name| format!("{prefix}::{name}")));
            }
            Item::Mod(item) => {
                let (name, inner) = (item.ident.to_string(), format!("{prefix}::{}", item.ident));
                match (&item.content, path_of(&item.attrs)) {
                    (Some((_, items)), _) => {
                        visit_items(items, here, &folder.join(name), &inner, read, names)?;
                    }
                    (None, Some(path)) => {
                        let path = here.join(path);
                        let beside = path.parent().unwrap_or(Path::new("")).to_path_buf();
                        visit_file(&path, &beside, &inner, read, names)?;
                    }
                    (None, None) => {
                        let inside = folder.join(&name);
                        let flat = folder.join(format!("{name}.rs"));
                        let path = if read(&flat).is_some() { flat } else { inside.join("mod.rs") };
                        visit_file(&path, &inside, &inner, read, names)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Says whether these are the attributes of a test that is not ignored.
fn is_run(attributes: &[Attribute]) -> bool {
    let has = |name| attributes.iter().any(|attribute| attribute.path().is_ident(name));
    has("test") && !has("ignore")
}

/// The file that `#[path = "..."]` names.
fn path_of(attributes: &[Attribute]) -> Option<PathBuf> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("path") => match &meta.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(PathBuf::from(text.value())),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

/// Identifiers after a colon, or after the comma that follows one.
fn names_after_colons(tokens: TokenStream) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_list = false;
    for token in tokens {
        match token {
            TokenTree::Punct(mark) => is_list = mark.as_char() == ':' || is_list && mark.as_char() == ',',
            TokenTree::Ident(name) if is_list => names.push(name.to_string()),
            _ => is_list = false,
        }
    }
    names
}

/// Functions behind `#[test]` in the tokens of another macro, as in `proptest!`.
fn functions_with_test(tokens: TokenStream) -> Vec<String> {
    let mut names = Vec::new();
    let (mut is_test, mut is_function) = (false, false);
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                is_test |= group.stream().to_string() == "test";
            }
            TokenTree::Ident(word) if is_test && word == "fn" => is_function = true,
            TokenTree::Ident(name) if is_function => {
                names.push(name.to_string());
                (is_test, is_function) = (false, false);
            }
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let read = |path: &Path| {
            let text = files.iter().find(|(name, _)| Path::new(name) == path);
            text.map(|(_, text)| text.to_string())
        };
        Ok(tests_of("lib", Path::new(files[0].0), &read)?.into_iter().collect())
    }

    #[test]
    fn tests_are_found_in_the_modules_of_all_files() {
        let files = [
            (
                "a/src/lib.rs",
                "mod b; mod c; #[path = \"../d/e.rs\"] mod d; mod f { mod g; #[test] fn inline() {} } fn no_test() {}",
            ),
            ("a/src/b.rs", "#[cfg(test)] mod tests;"),
            ("a/src/b/tests.rs", "#[test] fn beside() -> Result<()> { Ok(()) }"),
            ("a/src/c/mod.rs", "mod deep; #[test] fn c() {}"),
            ("a/src/c/deep.rs", "#[test] #[should_panic] fn d() {}"),
            ("a/src/../d/e.rs", "mod h; #[test] fn elsewhere() {}"),
            ("a/src/../d/h.rs", "#[test] fn beside_elsewhere() {}"),
            ("a/src/f/g.rs", "#[test] fn inside() {}"),
            ("a/src/orphan.rs", "#[test] fn orphan() {}"),
        ];
        let expected = [
            "lib::b::tests::beside",
            "lib::c::c",
            "lib::c::deep::d",
            "lib::d::elsewhere",
            "lib::d::h::beside_elsewhere",
            "lib::f::g::inside",
            "lib::f::inline",
        ];
        assert_eq!(found(&files).unwrap(), expected);
    }

    #[test]
    fn tests_that_macros_make_are_found() {
        let text = "proptest! { #![cases(9)] #[test] fn holds(a: u8, b in [0]) { fn no_test() {} } #[test] fn also(c: u8) {} }\n\
                    at_both_widths! { part: part_at_64, part_at_512; other: other_at_64, other_at_512; }\n\
                    print! { fn no_test() {} }";
        let expected = ["also", "holds", "other_at_512", "other_at_64", "part_at_512", "part_at_64"];
        assert_eq!(found(&[("lib.rs", text)]).unwrap(), expected.map(|name| format!("lib::{name}")));
    }

    #[test]
    fn what_is_never_run_is_no_test() {
        // In parts, so that a search for tests that are left out does not find this line.
        let skipped = ["#[test] #[", "ignore", "] fn slow() {}"].concat();
        let others = "#[tests] fn a() {} /// #[test]\nfn b() {} // #[test] fn c() {}";
        for text in [&skipped, others] {
            assert!(found(&[("lib.rs", text)]).unwrap().is_empty(), "{text}");
        }
    }

    #[test]
    fn a_missing_file_is_an_error() {
        assert_eq!(found(&[("lib.rs", "mod gone;")]).unwrap_err(), "gone/mod.rs does not exist");
        assert!(found(&[("lib.rs", "fn (")]).unwrap_err().starts_with("lib.rs: "));
    }
}
