//! Prints modules as Verilog-2005.
//!
//! Width rule: the operands of an operator have the width of its result, those of a comparison each other's, and
//! only a concatenation widens. No operand is ever extended by its context, so that Verilog computes what Rust
//! computes without casts or masks.
mod expression;
mod layout;
mod module;
pub(crate) mod names;
mod statement;
pub(crate) mod stock;

use crate::design::{Body, Code, Scope};
use crate::error::LocalFault;
use crate::ir::Staged;
use std::collections::BTreeSet;

/// One level of indentation.
pub(crate) const INDENT: &str = "    ";

/// A module without a name, and what its parent must know of it.
pub(crate) struct Printed {
    pub(crate) body: Body,
    /// For every output port that follows input ports within the cycle, those ports.
    pub(crate) paths: Vec<(String, Vec<String>)>,
    /// All names inside, and perhaps some words that are none.
    pub(crate) names: BTreeSet<String>,
}

/// Prints one block.
pub(crate) fn print(scope: &Scope) -> Result<Printed, Vec<LocalFault>> {
    module::check_ports(scope)?;
    match &scope.code {
        Code::Staged(Staged::Kernel(kernel)) => module::kernel(scope, kernel),
        Code::Staged(Staged::Verilog(leaf)) => module::leaf(scope, leaf),
        Code::Raw(text) => Ok(stock::print(scope, text)),
        Code::Staged(Staged::Register(_)) => {
            Err(vec![LocalFault::block("is a register, which only the block around it can print")])
        }
        Code::Refused(cause) => Err(vec![LocalFault::block(cause.clone())]),
    }
}

/// The whole text of a module, now that it and its children have names.
pub(crate) fn module_text(body: &Body, type_name: &str, name: &str, names: &[String]) -> String {
    let mut text = String::new();
    let heading = (!type_name.is_empty()).then_some(type_name);
    for line in heading.into_iter().chain(body.documentation.iter().map(String::as_str)) {
        text.push_str(&statement::comment(line, 0));
    }
    text.push_str(&format!("module {name} {}", body.before));
    for instance in &body.instances {
        let module = &names[instance.module];
        text.push_str(&format!("\n{INDENT}{module} {} {}", instance.name, instance.connections));
    }
    text.push_str(&body.after);
    text
}
