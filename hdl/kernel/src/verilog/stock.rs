//! What rust-hdl's own widgets print: taken as it is, except for its flip-flop.
use super::module::{Docs, leaf_body, port_list, words};
use super::{INDENT, Printed};
use crate::design::{Atom, Body, Code, Scope};
use crate::ir::{RegisterLeaf, Staged};
use crate::literal::parse_hex;
use num_bigint::BigUint;
use rust_hdl::core::prelude::AtomKind;

/// rust-hdl's `DFF` has no mark of its own: it is known by its ports and by the words of its Verilog.
pub(crate) fn recognize_register(scope: &mut Scope) {
    let Code::Raw(text) = &scope.code else { return };
    if !scope.children.is_empty() || !has_register_ports(&scope.atoms) {
        return;
    }
    if let Some(initial) = initial_value(text) {
        scope.code = Code::Staged(Staged::Register(RegisterLeaf { reset_value: initial, has_reset: false }));
    }
}

fn has_register_ports(atoms: &[Atom]) -> bool {
    let width = |name: &str, kind: AtomKind| {
        atoms.iter().find(|atom| atom.name == name && atom.kind == kind).map(|atom| atom.width)
    };
    let data = width("d", AtomKind::InputParameter);
    atoms.len() == 3
        && data.is_some()
        && data == width("q", AtomKind::OutputParameter)
        && width("clock", AtomKind::InputParameter) == Some(1)
}

/// The value that `q` begins with, if the text is that of the `DFF`.
fn initial_value(text: &str) -> Option<BigUint> {
    let words: Vec<_> = text.split_whitespace().collect();
    let (before, value, after) = match words.as_slice() {
        [before @ .., value, "end", "always", after_1, after_2, "begin", "q", "<=", "d;", "end"] => {
            (before, value, [*after_1, *after_2])
        }
        _ => return None,
    };
    let is_dff = before == ["initial", "begin", "q", "="] && after == ["@(posedge", "clock)"];
    if is_dff { parse_hex(value.trim_end_matches(';')) } else { None }
}

/// A widget as a module of its own.
pub(crate) fn print(scope: &Scope, text: &str) -> Printed {
    let text = without_dollars(scope, text);
    let before = port_list(scope, &Docs::default(), |port| is_procedural(&text, &port.name));
    let body = Body {
        documentation: vec!["A widget of rust-hdl.".to_owned()],
        before: before + &leaf_body(&text),
        after: "endmodule\n".to_owned(),
        ..Body::default()
    };
    Printed { names: words(&body), body, paths: Vec::new() }
}

/// Widgets call the signals of their interfaces `bus$data`.
fn without_dollars(scope: &Scope, text: &str) -> String {
    scope
        .atoms
        .iter()
        .filter(|atom| atom.rust_name.contains('.'))
        .fold(text.to_owned(), |text, atom| text.replace(&atom.rust_name.replace('.', "$"), &atom.name))
}

/// Whether some line assigns the name without `assign`: then it must be `reg`.
fn is_procedural(text: &str, name: &str) -> bool {
    text.lines().flat_map(|line| line.split(';')).any(|statement| {
        let words = statement.trim_start().trim_start_matches("begin").trim_start();
        let rest = words.strip_prefix(name).map(str::trim_start);
        rest.is_some_and(|rest| rest.starts_with(['=', '<', '[']))
    })
}

/// Indents by one level what its author wrote at the margin.
pub(crate) fn indented(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    let margin =
        lines.iter().filter(|line| !line.is_empty()).map(|line| line.len() - line.trim_start().len());
    let margin = margin.min().unwrap_or(0);
    let mut body = String::new();
    let mut was_empty = true;
    for line in lines {
        if !line.is_empty() {
            body.push_str(&format!("{INDENT}{}\n", &line[margin..]));
        } else if !was_empty {
            body.push('\n');
        }
        was_empty = line.is_empty();
    }
    body.trim_end().to_owned() + "\n"
}
