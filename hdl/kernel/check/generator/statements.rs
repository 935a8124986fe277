//! Random statements of a kernel.
use super::random::Random;
use super::types::Type;
use super::values::{Scope, Values};
use std::fmt::Write as _;

/// Something that a kernel writes: `self.x` of `self.x.next = ..`.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) place: String,
    pub(crate) target_type: Type,
    /// Elements, when the place is an array.
    pub(crate) count: Option<usize>,
    /// What follows an index: `.d` of `self.lanes[i].d`.
    pub(crate) suffix: &'static str,
}

impl Target {
    fn element(&self, index: &str) -> String {
        match self.count {
            Some(_) => format!("{}[{index}]{}", self.place, self.suffix),
            None => format!("{}{}", self.place, self.suffix),
        }
    }
}

pub(crate) struct Writer<'a> {
    pub(crate) random: &'a mut Random,
    pub(crate) text: String,
    pub(crate) indent: usize,
}

impl Writer<'_> {
    pub(crate) fn line(&mut self, text: &str) {
        let indent = "    ".repeat(self.indent);
        writeln!(self.text, "{indent}{text}").unwrap();
    }

    pub(crate) fn value(&mut self, scope: &mut Scope, wanted: &Type, depth: usize) -> String {
        Values { random: self.random }.value(scope, wanted, depth).text
    }

    /// One or more names for values: a `let` of a name, a tuple or an array.
    pub(crate) fn binding(&mut self, scope: &mut Scope) {
        if self.random.chance(20) {
            self.line("// A comment that goes to the Verilog.");
        }
        match self.random.below(5) {
            0 => {
                let types = [0, 1].map(|_| Values { random: self.random }.any_type(scope));
                let names = [0, 1].map(|_| scope.fresh("x"));
                let condition = self.condition(scope);
                let sides = [0, 1].map(|_| {
                    let [a, b] = [&types[0], &types[1]].map(|each| self.value(scope, each, 2));
                    format!("{{ ({a}, {b}) }}")
                });
                self.line(&format!(
                    "let ({}, {}) = if {condition} {} else {};",
                    names[0], names[1], sides[0], sides[1]
                ));
                scope.atoms.extend(names.into_iter().zip(types));
            }
            1 => {
                let element = Values { random: self.random }.any_type(scope);
                let name = scope.fresh("array");
                let elements: Vec<String> = (0..3).map(|_| self.value(scope, &element, 2)).collect();
                self.line(&format!("let {name} = [{}];", elements.join(", ")));
                scope.atoms.extend((0..3).map(|index| (format!("{name}[{index}]"), element.clone())));
            }
            2 => {
                let value_type = Values { random: self.random }.any_type(scope);
                let (name, value) = (scope.fresh("typed"), self.value(scope, &value_type, 3));
                self.line(&format!("let {name}: {} = {value};", value_type.name()));
                scope.atoms.push((name, value_type));
            }
            _ => {
                let value_type = Values { random: self.random }.any_type(scope);
                let (name, value) = (scope.fresh("x"), self.value(scope, &value_type, 3));
                self.line(&format!("let {name} = {value};"));
                scope.atoms.push((name, value_type));
            }
        }
    }

    fn condition(&mut self, scope: &mut Scope) -> String {
        let condition = self.value(scope, &Type::Bit, 2);
        if condition.contains('{') { format!("({condition})") } else { condition }
    }

    /// Gives every target a value, whatever happens later.
    pub(crate) fn defaults(&mut self, scope: &mut Scope, targets: &[Target], depth: usize) {
        for target in targets {
            for index in 0..target.count.unwrap_or(1) {
                let value = self.value(scope, &target.target_type, depth);
                self.line(&format!("{}.next = {value};", target.element(&index.to_string())));
            }
        }
    }

    /// Statements that write some of the targets under some conditions.
    pub(crate) fn overrides(&mut self, scope: &mut Scope, targets: &[Target], count: usize, depth: usize) {
        if targets.is_empty() {
            return;
        }
        let outside = scope.atoms.len();
        for _ in 0..count {
            if self.random.chance(15) {
                self.line("// Another comment.");
            }
            let kind = if depth == 0 { 0 } else { self.random.below(8) };
            match kind {
                1 | 2 => self.if_statement(scope, targets, depth),
                3 | 4 => self.match_statement(scope, targets, depth),
                5 => self.binding(scope),
                6 => self.for_statement(scope, targets, depth),
                _ => self.assignment(scope, targets),
            }
        }
        scope.atoms.truncate(outside);
    }

    fn assignment(&mut self, scope: &mut Scope, targets: &[Target]) {
        let target = self.random.pick(targets).clone();
        let index = self.random.below(target.count.unwrap_or(1)).to_string();
        let place = target.element(&index);
        if let (Type::Struct(record), true) = (&target.target_type, self.random.chance(50)) {
            let (field, field_type) = self.random.pick(&record.fields).clone();
            let value = self.value(scope, &field_type, 3);
            self.line(&format!("{place}.next.{field} = {value};"));
            return;
        }
        let value = self.value(scope, &target.target_type, 3);
        self.line(&format!("{place}.next = {value};"));
    }

    fn body(&mut self, scope: &mut Scope, targets: &[Target], depth: usize) {
        self.indent += 1;
        let count = self.random.between(1, 2);
        self.overrides(scope, targets, count, depth - 1);
        self.indent -= 1;
    }

    fn if_statement(&mut self, scope: &mut Scope, targets: &[Target], depth: usize) {
        let condition = if self.random.chance(10) { "IS_SPECIAL".into() } else { self.condition(scope) };
        self.line(&format!("if {condition} {{"));
        self.body(scope, targets, depth);
        if self.random.chance(35) {
            let condition = self.condition(scope);
            self.line(&format!("}} else if {condition} {{"));
            self.body(scope, targets, depth);
        }
        if self.random.chance(50) {
            self.line("} else {");
            self.body(scope, targets, depth);
        }
        self.line("}");
    }

    fn match_statement(&mut self, scope: &mut Scope, targets: &[Target], depth: usize) {
        let (subject, patterns) = Values { random: self.random }.subject(scope, 2);
        self.line(&format!("match {subject} {{"));
        self.indent += 1;
        for pattern in patterns {
            if self.random.chance(20) {
                self.line(&format!("{pattern} => {{}}"));
                continue;
            }
            self.line(&format!("{pattern} => {{"));
            self.body(scope, targets, depth);
            self.line("}");
        }
        self.indent -= 1;
        self.line("}");
    }

    /// A loop over the elements of an array, or one whose last assignment wins.
    fn for_statement(&mut self, scope: &mut Scope, targets: &[Target], depth: usize) {
        let target = self.random.pick(targets).clone();
        let count = target.count.unwrap_or(3);
        let index = scope.fresh("i");
        self.line(&format!("for {index} in 0..{count} {{"));
        self.indent += 1;
        scope.indices.push((index.clone(), count));
        let place = target.element(&index);
        let value = self.value(scope, &target.target_type, 2);
        if self.random.chance(50) {
            let condition = self.condition(scope);
            self.line(&format!("if {condition} {{"));
            self.line(&format!("    {place}.next = {value};"));
            self.line("}");
        } else if self.random.chance(50) {
            let first = self.value(scope, &target.target_type, 1);
            self.line(&format!("{place}.next = if {index} == 0 {{ {first} }} else {{ {value} }};"));
        } else {
            self.line(&format!("{place}.next = {value};"));
        }
        if depth > 1 && self.random.chance(30) {
            self.overrides(scope, targets, 1, depth - 1);
        }
        scope.indices.pop();
        self.indent -= 1;
        self.line("}");
    }
}
