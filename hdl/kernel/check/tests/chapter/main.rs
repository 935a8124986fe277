//! `LANGUAGE.md`, the chapter on the language, shows what its examples are and become today.
//!
//! `RNIC_BLESS=1 cargo test -p rnic-kernel-check --test chapter` writes it anew.

#[allow(missing_docs, unreachable_pub, dead_code, reason = "they are examples")]
mod examples;

use std::fmt::Write as _;
use std::path::Path;

const SOURCE: &str = include_str!("examples.rs");

#[test]
fn the_chapter_shows_what_its_examples_become() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../LANGUAGE.md");
    let chapter = std::fs::read_to_string(&path).expect("hdl/kernel/LANGUAGE.md is the chapter");
    let refreshed = refresh(&chapter);
    if std::env::var_os("RNIC_BLESS").is_some() {
        std::fs::write(&path, &refreshed).expect("the chapter is writable");
        return;
    }
    let line = chapter.lines().zip(refreshed.lines()).position(|(old, new)| old != new);
    assert!(
        chapter == refreshed,
        "hdl/kernel/LANGUAGE.md is stale from line {}; if the change is meant, run\n\
         \n    RNIC_BLESS=1 cargo test -p rnic-kernel-check --test chapter\n",
        line.map_or(0, |line| line + 1)
    );
}

/// Replaces everything between `<!-- example Name -->` and `<!-- end -->`.
fn refresh(chapter: &str) -> String {
    let mut text = String::new();
    let mut is_old = false;
    for line in chapter.lines() {
        if line == "<!-- end -->" {
            is_old = false;
        }
        if !is_old {
            writeln!(text, "{line}").unwrap();
        }
        let marker = line.strip_prefix("<!-- example ").and_then(|rest| rest.strip_suffix(" -->"));
        if let Some(name) = marker {
            text += &example(name);
            is_old = true;
        }
    }
    assert!(!is_old, "an example without <!-- end -->");
    text
}

fn example(name: &str) -> String {
    let (language, outcome) = match examples::generate(name) {
        Ok(verilog) => ("verilog", body(&verilog)),
        Err(error) => ("text", without_places(&error)),
    };
    format!("```rust\n{}```\n```{language}\n{outcome}```\n", source(name))
}

/// The lines of the source between the markers, at the left margin.
fn source(name: &str) -> String {
    let mut text = String::new();
    let mut lines = SOURCE.lines();
    while let Some(line) = lines.next() {
        if line.trim() != format!("// example {name}") {
            continue;
        }
        let margin = line.len() - line.trim_start().len();
        for line in lines.by_ref().take_while(|line| line.trim() != "// end") {
            writeln!(text, "{}", line.get(margin..).unwrap_or("")).unwrap();
        }
    }
    assert!(!text.is_empty(), "no example {name} in the source");
    text
}

/// The top module, which is the last, after its port list. The markers of the examples are comments that went
/// along; they are left out, and so is the list of unused bits.
fn body(verilog: &str) -> String {
    let top = verilog.split_once("module example (").expect("there is a top module").1;
    let body = top.split_once("\n);\n").expect("it has ports").1;
    let body = body.split("endmodule").next().expect("split yields something");
    let mut text = String::new();
    let is_shown = |line: &&str| {
        let line = line.trim_start();
        !line.starts_with("wire unused") && !line.starts_with("// example ")
    };
    for line in body.lines().filter(is_shown) {
        let line = line.strip_prefix("    ").unwrap_or(line);
        if !(line.is_empty() && (text.is_empty() || text.ends_with("\n\n"))) {
            writeln!(text, "{line}").unwrap();
        }
    }
    text.trim_end().to_string() + "\n"
}

/// Lines of files move with every edit, so they are not part of the chapter.
fn without_places(error: &str) -> String {
    let lines = error.lines().filter(|line| !line.trim_start().starts_with("at "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn refreshing_twice_changes_nothing_more() {
    let stale = "before\n<!-- example Shifts -->\nold\n<!-- end -->\nafter\n";
    let fresh = refresh(stale);
    assert!(
        !fresh.contains("old")
            && fresh.contains("self.wide.val() << self.a.val()")
            && fresh.ends_with("after\n")
    );
    assert_eq!(refresh(&fresh), fresh);
}
