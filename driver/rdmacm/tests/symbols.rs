//! The list of symbols is true: the library of the distribution has no public symbol that it lacks, and this library has those that
//! it says are here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A version and a name.
type Symbol = (String, String);

/// The list: each symbol with the reason why it is not here, which is empty if it is.
fn listed() -> BTreeMap<Symbol, String> {
    let text = include_str!("../symbols.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let entries = lines.map(|line| {
        let mut words = line.splitn(3, ' ').map(str::to_string);
        let mut word = || words.next().unwrap_or_default();
        ((word(), word()), word())
    });
    let entries: Vec<_> = entries.collect();
    let count = entries.len();
    let listed = BTreeMap::from_iter(entries);
    assert_eq!(listed.len(), count, "each symbol is listed once");
    listed
}

/// Symbols with a version that a library defines, other than the versions themselves.
fn defined(library: &Path) -> BTreeSet<Symbol> {
    let output = Command::new("readelf").args(["--wide", "--dyn-syms"]).arg(library).output();
    let output = output.expect("readelf, of the package binutils, runs");
    assert!(output.status.success(), "{}: {}", library.display(), String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names are text");
    let symbols = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, kind, _, _, section, name, ..] = *words else { return None };
        let (name, version) = name.split_once('@')?;
        // What is of no section is not defined here, or is the version itself.
        let is_defined = ["FUNC", "OBJECT"].contains(&kind) && !["UND", "ABS"].contains(&section);
        is_defined.then(|| (version.trim_start_matches('@').to_string(), name.to_string()))
    });
    symbols.filter(|(version, _)| version.starts_with("RDMACM")).collect()
}

/// The library that cargo has built for this test, beside it.
fn ours() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let library = test.with_file_name("librdmacm.so");
    assert!(library.exists(), "cargo builds {} before this test", library.display());
    library
}

/// The library of the distribution.
fn theirs() -> PathBuf {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found = folders.iter().map(|folder| Path::new(folder).join("librdmacm.so.1"));
    let found = found.into_iter().find(|path| path.exists());
    found.expect("the distribution's librdmacm.so.1 is installed: run scripts/setup.sh test")
}

#[test]
fn every_symbol_of_the_distribution_is_listed() {
    let (listed, theirs) = (listed(), defined(&theirs()));
    assert!(theirs.len() > 60, "only {} symbols were found", theirs.len());
    let missing: Vec<_> = theirs.iter().filter(|symbol| !listed.contains_key(*symbol)).collect();
    assert!(missing.is_empty(), "not in symbols.txt: {missing:?}");
    let invented: Vec<_> = listed.keys().filter(|symbol| !theirs.contains(*symbol)).collect();
    assert!(invented.is_empty(), "in symbols.txt, and not in the library of the distribution: {invented:?}");
}

#[test]
fn this_library_has_the_symbols_that_are_listed_without_a_reason() {
    let expected = listed().into_iter().filter(|(_, reason)| reason.is_empty()).map(|(symbol, _)| symbol);
    assert_eq!(defined(&ours()), expected.collect());
}

#[test]
fn what_is_not_here_has_a_reason() {
    for ((_, name), reason) in listed() {
        assert!(
            reason.is_empty() || reason.split_whitespace().count() > 5,
            "{name}: `{reason}` is no reason"
        );
    }
}

#[test]
fn the_library_has_the_name_that_programs_ask_for() {
    let output = Command::new("readelf").arg("--dynamic").arg(ours()).output().expect("readelf runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Library soname: [librdmacm.so.1]"), "{text}");
}
