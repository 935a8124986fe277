//! Random values: an expression of a wanted type over what can be read.
use super::random::Random;
use super::types::{Enum, Struct, Type};

/// An expression with the strength of its outermost operator, as Rust counts it.
#[derive(Clone)]
pub(crate) struct Text {
    pub(crate) text: String,
    strength: u8,
}

const ATOM: u8 = 20;
const NOT: u8 = 15;
const PLUS: u8 = 12;
const SHIFT: u8 = 11;
const AND: u8 = 10;
const XOR: u8 = 9;
const OR: u8 = 8;
const COMPARE: u8 = 7;
const BOTH: u8 = 6;
const EITHER: u8 = 5;
/// `if`, `match` and struct literals: in parentheses wherever they are an operand.
const OPEN: u8 = 0;

impl Text {
    fn new(text: impl Into<String>, strength: u8) -> Text {
        Text { text: text.into(), strength }
    }

    fn atom(text: impl Into<String>) -> Text {
        Text::new(text, ATOM)
    }

    /// The expression where an operator of `strength` takes it.
    fn under(&self, strength: u8) -> String {
        if self.strength < strength { format!("({})", self.text) } else { self.text.clone() }
    }
}

/// A free kernel function.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) path: String,
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
}

/// What a value may be made of.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    /// Readable expressions.
    pub(crate) atoms: Vec<(String, Type)>,
    pub(crate) functions: Vec<Function>,
    /// Types of the program.
    pub(crate) types: Vec<Type>,
    /// Rust constants of type `u64`, with their values.
    pub(crate) constants: Vec<(String, u64)>,
    /// Loop variables, with their bounds.
    pub(crate) indices: Vec<(String, usize)>,
    /// How many names have been given.
    pub(crate) names: usize,
}

impl Scope {
    pub(crate) fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn atoms_of(&self, wanted: impl Fn(&Type) -> bool) -> Vec<(String, Type)> {
        self.atoms.iter().filter(|(_, atom)| wanted(atom)).cloned().collect()
    }
}

pub(crate) struct Values<'a> {
    pub(crate) random: &'a mut Random,
}

impl Values<'_> {
    /// Any type of the program, most often a number.
    pub(crate) fn any_type(&mut self, scope: &Scope) -> Type {
        if !scope.types.is_empty() && self.random.chance(25) {
            return self.random.pick(&scope.types).clone();
        }
        if self.random.chance(25) { Type::Bit } else { Type::Bits(self.random.width()) }
    }

    /// A value of a type, `depth` operators deep at most.
    pub(crate) fn value(&mut self, scope: &mut Scope, wanted: &Type, depth: usize) -> Text {
        if depth > 0
            && let Some(text) = self.of_any_type(scope, wanted, depth)
        {
            return text;
        }
        match wanted {
            Type::Bits(width) => self.bits(scope, *width, depth),
            Type::Bit => self.bit(scope, depth),
            Type::Struct(record) => self.record(scope, record, depth),
            Type::Enum(choice) => self.choice(scope, choice),
        }
    }

    /// What exists for every type: reading, choosing, calling, projecting.
    fn of_any_type(&mut self, scope: &mut Scope, wanted: &Type, depth: usize) -> Option<Text> {
        match self.random.below(20) {
            0..=2 => self.atom(scope, wanted),
            3 => Some(self.if_value(scope, wanted, depth)),
            4 => Some(self.match_value(scope, wanted, depth)),
            5 => {
                let condition = self.bit_operand(scope, depth);
                let [then, otherwise] = self.two(scope, wanted, depth);
                Some(Text::atom(format!("select({condition}, {}, {})", then.text, otherwise.text)))
            }
            6 => self.call(scope, wanted, depth),
            7 => self.projection(scope, wanted),
            _ => None,
        }
    }

    fn atom(&mut self, scope: &Scope, wanted: &Type) -> Option<Text> {
        let atoms = scope.atoms_of(|atom| atom == wanted);
        (!atoms.is_empty()).then(|| Text::atom(self.random.pick(&atoms).0.clone()))
    }

    fn two(&mut self, scope: &mut Scope, wanted: &Type, depth: usize) -> [Text; 2] {
        [self.value(scope, wanted, depth - 1), self.value(scope, wanted, depth - 1)]
    }

    fn bit_operand(&mut self, scope: &mut Scope, depth: usize) -> String {
        self.value(scope, &Type::Bit, depth.saturating_sub(1)).text
    }

    fn condition(&mut self, scope: &mut Scope, depth: usize) -> String {
        let condition = self.value(scope, &Type::Bit, depth.saturating_sub(1));
        // A struct literal would be taken for the body of the `if`.
        if condition.strength == OPEN || condition.text.contains('{') {
            format!("({})", condition.text)
        } else {
            condition.text
        }
    }

    fn if_value(&mut self, scope: &mut Scope, wanted: &Type, depth: usize) -> Text {
        let condition = self.condition(scope, depth);
        let then = self.branch(scope, wanted, depth);
        let otherwise = self.branch(scope, wanted, depth);
        Text::new(format!("if {condition} {then} else {otherwise}"), OPEN)
    }

    /// A block with a value, sometimes with a name of its own inside.
    fn branch(&mut self, scope: &mut Scope, wanted: &Type, depth: usize) -> String {
        if !self.random.chance(30) {
            return format!("{{ {} }}", self.value(scope, wanted, depth - 1).text);
        }
        let local_type = self.any_type(scope);
        let local = self.value(scope, &local_type, depth - 1).text;
        let name = scope.fresh("inner");
        let outside = scope.atoms.len();
        scope.atoms.push((name.clone(), local_type));
        let value = self.value(scope, wanted, depth - 1).text;
        scope.atoms.truncate(outside);
        format!("{{ let {name} = {local}; {value} }}")
    }

    pub(crate) fn match_value(&mut self, scope: &mut Scope, wanted: &Type, depth: usize) -> Text {
        let (subject, patterns) = self.subject(scope, depth);
        let mut text = format!("match {subject} {{ ");
        for pattern in patterns {
            let value = self.value(scope, wanted, depth - 1).text;
            text += &format!("{pattern} => {value}, ");
        }
        Text::new(text + "}", OPEN)
    }

    /// What a `match` looks at, and patterns that together fit every value.
    pub(crate) fn subject(&mut self, scope: &mut Scope, depth: usize) -> (String, Vec<String>) {
        let enums = scope.atoms_of(|atom| matches!(atom, Type::Enum(_)));
        let numbers = scope.atoms_of(|atom| matches!(atom, Type::Bits(2..=64)));
        match self.random.below(8) {
            0..=2 if !enums.is_empty() => {
                let (atom, atom_type) = self.random.pick(&enums).clone();
                let Type::Enum(choice) = atom_type else { unreachable!("only enums were taken") };
                (atom, self.enum_patterns(scope, &choice, depth))
            }
            3 | 4 => {
                let [left, right] = [self.tested_bit(scope), self.tested_bit(scope)];
                let rows = [["true", "true"], ["false", "_"], ["_", "_"]];
                let mut patterns = Vec::new();
                for [a, b] in rows {
                    let guard = if patterns.len() < 2 { self.guard(scope, depth) } else { String::new() };
                    patterns.push(format!("({a}, {b}){guard}"));
                }
                (format!("({left}, {right})"), patterns)
            }
            5 => (self.tested_bit(scope), vec!["true".into(), "false".into()]),
            _ if !numbers.is_empty() => {
                let (atom, atom_type) = self.random.pick(&numbers).clone();
                let Type::Bits(width) = atom_type else { unreachable!("only numbers were taken") };
                (format!("{atom}.to_u64()"), self.number_patterns(scope, width, depth))
            }
            _ => (self.tested_bit(scope), vec!["false".into(), "_".into()]),
        }
    }

    /// A bit as a subject; braces would be taken for the arms.
    fn tested_bit(&mut self, scope: &mut Scope) -> String {
        let bit = self.value(scope, &Type::Bit, 1);
        if bit.text.contains('{') { format!("({})", bit.text) } else { bit.text }
    }

    fn guard(&mut self, scope: &mut Scope, depth: usize) -> String {
        if self.random.chance(25) { format!(" if {}", self.condition(scope, depth)) } else { String::new() }
    }

    fn enum_patterns(&mut self, scope: &mut Scope, choice: &Enum, depth: usize) -> Vec<String> {
        let mut variants: Vec<String> =
            choice.variants.iter().map(|variant| format!("{}::{variant}", choice.name)).collect();
        let guard = self.guard(scope, depth);
        let mut patterns = Vec::new();
        if !guard.is_empty() {
            patterns.push(format!("{}{guard}", variants[0]));
        }
        while !variants.is_empty() {
            let count = self.random.between(1, variants.len().min(3));
            let rest = variants.split_off(count);
            patterns.push(variants.join(" | "));
            variants = rest;
        }
        if self.random.chance(50) {
            *patterns.last_mut().expect("an enum has variants") = "_".into();
        }
        patterns
    }

    fn number_patterns(&mut self, scope: &mut Scope, width: usize, depth: usize) -> Vec<String> {
        let mut patterns = Vec::new();
        for _ in 0..self.random.between(1, 4) {
            let (a, b) = (self.random.number(width), self.random.number(width));
            let (low, high) = (a.min(b), a.max(b));
            let constants: Vec<_> = scope
                .constants
                .iter()
                .filter(|(_, value)| width == 64 || *value >> width == 0)
                .cloned()
                .collect();
            let pattern = match self.random.below(5) {
                0 => format!("{a:#x}"),
                1 => format!("{a} | {b}"),
                2 => format!("{low}..={high}"),
                3 => format!("..={low}"),
                _ if constants.is_empty() => format!("{low} | {high}"),
                _ => self.random.pick(&constants).0.clone(),
            };
            patterns.push(pattern + &self.guard(scope, depth));
        }
        patterns.push("_".into());
        patterns
    }

    fn call(&mut self, scope: &mut Scope, wanted: &Type, depth: usize) -> Option<Text> {
        let fitting: Vec<Function> =
            scope.functions.iter().filter(|function| function.result == *wanted).cloned().collect();
        if fitting.is_empty() {
            return None;
        }
        let function = self.random.pick(&fitting).clone();
        let arguments: Vec<String> =
            function.arguments.iter().map(|argument| self.value(scope, argument, depth - 1).text).collect();
        Some(Text::atom(format!("{}({})", function.path, arguments.join(", "))))
    }

    /// A field of a struct, or of a struct in it.
    fn projection(&mut self, scope: &Scope, wanted: &Type) -> Option<Text> {
        let mut found = Vec::new();
        for (atom, atom_type) in &scope.atoms {
            let Type::Struct(record) = atom_type else { continue };
            for (field, field_type) in &record.fields {
                let path = format!("{atom}.{field}");
                if field_type == wanted {
                    found.push(path.clone());
                }
                if let Type::Struct(inner) = field_type {
                    let fitting = inner.fields.iter().filter(|(_, inner_type)| inner_type == wanted);
                    found.extend(fitting.map(|(inner, _)| format!("{path}.{inner}")));
                }
            }
        }
        (!found.is_empty()).then(|| Text::atom(self.random.pick(&found).clone()))
    }

    fn record(&mut self, scope: &mut Scope, record: &Struct, depth: usize) -> Text {
        if depth == 0
            && let Some(text) = self.atom(scope, &Type::Struct(record.clone()))
        {
            return text;
        }
        let rest = self.atom(scope, &Type::Struct(record.clone())).filter(|_| self.random.chance(50));
        let mut fields = Vec::new();
        for (field, field_type) in &record.fields {
            if rest.is_none() || self.random.chance(50) {
                let value = self.value(scope, field_type, depth.saturating_sub(1)).text;
                fields.push(format!("{field}: {value}"));
            }
        }
        fields.extend(rest.map(|rest| format!("..{}", rest.text)));
        Text::new(format!("{} {{ {} }}", record.path, fields.join(", ")), OPEN)
    }

    fn choice(&mut self, scope: &Scope, choice: &Enum) -> Text {
        match self.atom(scope, &Type::Enum(choice.clone())) {
            Some(text) if self.random.chance(60) => text,
            _ => Text::atom(format!("{}::{}", choice.name, self.random.pick(&choice.variants))),
        }
    }

    // ---- bits ----------------------------------------------------------------------------------

    fn bits(&mut self, scope: &mut Scope, width: usize, depth: usize) -> Text {
        if depth == 0 {
            return self.bits_leaf(scope, width);
        }
        let wanted = Type::Bits(width);
        match self.random.below(16) {
            0..=4 => {
                let (operator, strength) =
                    *self.random.pick(&[("+", PLUS), ("-", PLUS), ("&", AND), ("^", XOR), ("|", OR)]);
                let [left, right] = self.two(scope, &wanted, depth);
                let text = format!("{} {operator} {}", left.under(strength), right.under(strength + 1));
                Text::new(text, strength)
            }
            5 => {
                let (operator, strength) =
                    *self.random.pick(&[("+", PLUS), ("-", PLUS), ("&", AND), ("^", XOR)]);
                let left = self.value(scope, &wanted, depth - 1);
                let literal = self.literal(scope, width);
                Text::new(format!("{} {operator} {literal}", left.under(strength)), strength)
            }
            6 => {
                let inner = self.value(scope, &wanted, depth - 1);
                Text::new(format!("!{}", inner.under(NOT)), NOT)
            }
            7 => self.static_shift(scope, width, depth),
            8 => self.dynamic_shift(scope, width, depth),
            9 => self.cast(scope, width, depth),
            10 => self.slice(scope, width, depth),
            11 => self.dynamic_slice(scope, width, depth),
            12 | 13 => self.concatenation(scope, width, depth),
            14 if width.is_multiple_of(8) => {
                let inner = self.value(scope, &wanted, depth - 1).text;
                Text::atom(format!("swap_bytes({inner})"))
            }
            _ => self.replaced_bit(scope, width, depth),
        }
    }

    fn bits_leaf(&mut self, scope: &mut Scope, width: usize) -> Text {
        if let Some(text) = self.atom(scope, &Type::Bits(width)) {
            return text;
        }
        if let Some(text) = self.projection(scope, &Type::Bits(width)) {
            return text;
        }
        let others = scope.atoms_of(|atom| matches!(atom, Type::Bits(_)));
        if others.is_empty() || self.random.chance(15) {
            return Text::atom(format!("bits::<{width}>({})", self.literal(scope, width)));
        }
        let (other, other_type) = self.random.pick(&others).clone();
        let Type::Bits(from) = other_type else { unreachable!("only numbers were taken") };
        Text::atom(format!("bit_cast::<{width}, {from}>({other})"))
    }

    /// A number that fits, sometimes by name.
    pub(crate) fn literal(&mut self, scope: &Scope, width: usize) -> String {
        let fitting: Vec<_> =
            scope.constants.iter().filter(|(_, value)| width >= 64 || value >> width == 0).collect();
        if !fitting.is_empty() && self.random.chance(20) {
            return self.random.pick(&fitting).0.clone();
        }
        let number = self.random.number(width);
        if self.random.chance(50) { format!("{number:#x}") } else { number.to_string() }
    }

    /// By a number known at generation, up to beyond the width.
    fn static_shift(&mut self, scope: &mut Scope, width: usize, depth: usize) -> Text {
        let value = self.value(scope, &Type::Bits(width), depth - 1);
        let operator = *self.random.pick(&["<<", ">>"]);
        let distance =
            if self.random.chance(15) { width + self.random.below(3) } else { self.random.below(width) };
        Text::new(format!("{} {operator} {distance}", value.under(SHIFT)), SHIFT)
    }

    /// By a value, whose range may reach beyond the width.
    fn dynamic_shift(&mut self, scope: &mut Scope, width: usize, depth: usize) -> Text {
        let value = self.value(scope, &Type::Bits(width), depth - 1);
        let operator = *self.random.pick(&["<<", ">>"]);
        let distance_width = *self.random.pick(&[3, 6, 8]);
        let distance = self.value(scope, &Type::Bits(distance_width), depth - 1);
        Text::new(format!("{} {operator} {}", value.under(SHIFT), distance.under(SHIFT + 1)), SHIFT)
    }

    fn cast(&mut self, scope: &mut Scope, width: usize, depth: usize) -> Text {
        if width == 1 && self.random.chance(50) {
            let bit = self.value(scope, &Type::Bit, depth - 1);
            return Text::atom(format!("bit_cast::<1, 1>({}.into())", bit.under(ATOM)));
        }
        let from = self.random.width();
        let inner = self.value(scope, &Type::Bits(from), depth - 1).text;
        Text::atom(format!("bit_cast::<{width}, {from}>({inner})"))
    }

    fn slice(&mut self, scope: &mut Scope, width: usize, depth: usize) -> Text {
        let from = self.random.width_from(width).unwrap_or(width);
        let inner = self.value(scope, &Type::Bits(from), depth - 1);
        let offset = self.random.below(from - width + 1);
        Text::atom(format!("{}.get_bits::<{width}>({offset})", inner.under(ATOM)))
    }

    /// At a place that the hardware computes; what lies beyond the end reads as zero.
    fn dynamic_slice(&mut self, scope: &mut Scope, width: usize, depth: usize) -> Text {
        let from = self.random.width_from(width + 1).unwrap_or(width + 1);
        let inner = self.value(scope, &Type::Bits(from), depth - 1);
        let index = if self.random.chance(50) {
            self.index(scope, from - width + 1, depth)
        } else {
            self.hardware_index(scope, from, depth)
        };
        Text::atom(format!("{}.get_bits::<{width}>({index})", inner.under(ATOM)))
    }

    /// An index that is below `bound`, by its width or by a loop.
    fn index(&mut self, scope: &mut Scope, bound: usize, depth: usize) -> String {
        let loops: Vec<_> = scope.indices.iter().filter(|(_, count)| *count <= bound).cloned().collect();
        if !loops.is_empty() && self.random.chance(40) {
            return self.random.pick(&loops).0.clone();
        }
        self.hardware_index(scope, bound, depth)
    }

    fn hardware_index(&mut self, scope: &mut Scope, bound: usize, depth: usize) -> String {
        if bound < 2 {
            return "0".into();
        }
        let width = bound.ilog2() as usize;
        let value = self.value(scope, &Type::Bits(width), depth - 1);
        format!("{}.index()", value.under(ATOM))
    }

    fn concatenation(&mut self, scope: &mut Scope, width: usize, depth: usize) -> Text {
        let (mut rest, mut parts) = (width, Vec::new());
        while rest > 0 {
            let part = if parts.len() == 3 { rest } else { self.random.width().min(rest) };
            let part_type = if part == 1 && self.random.chance(60) { Type::Bit } else { Type::Bits(part) };
            parts.push(self.value(scope, &part_type, depth - 1).text);
            rest -= part;
        }
        // The width of the result must be known from outside.
        Text::atom(format!("bit_cast::<{width}, {width}>(cat!({}))", parts.join(", ")))
    }

    fn replaced_bit(&mut self, scope: &mut Scope, width: usize, depth: usize) -> Text {
        let value = self.value(scope, &Type::Bits(width), depth - 1);
        let position = if self.random.chance(50) {
            self.random.below(width).to_string()
        } else {
            self.index(scope, width, depth)
        };
        let bit = self.value(scope, &Type::Bit, depth - 1).text;
        Text::atom(format!("{}.replace_bit({position}, {bit})", value.under(ATOM)))
    }

    // ---- bit -----------------------------------------------------------------------------------

    fn bit(&mut self, scope: &mut Scope, depth: usize) -> Text {
        if depth == 0 {
            return self.bit_leaf(scope);
        }
        match self.random.below(14) {
            0..=3 => self.comparison(scope, depth),
            4 => {
                let [left, right] = self.two(scope, &Type::Bit, depth);
                Text::new(format!("{} && {}", left.under(BOTH), right.under(BOTH + 1)), BOTH)
            }
            5 => {
                let [left, right] = self.two(scope, &Type::Bit, depth);
                Text::new(format!("{} || {}", left.under(EITHER), right.under(EITHER + 1)), EITHER)
            }
            6 => {
                let (operator, strength) = *self.random.pick(&[("&", AND), ("^", XOR), ("|", OR)]);
                let [left, right] = self.two(scope, &Type::Bit, depth);
                let text = format!("{} {operator} {}", left.under(strength), right.under(strength + 1));
                Text::new(text, strength)
            }
            7 => {
                let inner = self.value(scope, &Type::Bit, depth - 1);
                Text::new(format!("!{}", inner.under(NOT)), NOT)
            }
            8 | 9 => {
                let width = self.random.width();
                let inner = self.value(scope, &Type::Bits(width), depth - 1);
                let reduction = *self.random.pick(&["any", "all", "xor"]);
                Text::atom(format!("{}.{reduction}()", inner.under(ATOM)))
            }
            10 => {
                let equal = self.enum_comparison(scope);
                equal.unwrap_or_else(|| self.comparison(scope, depth))
            }
            11 => {
                let width = self.random.width();
                let inner = self.value(scope, &Type::Bits(width), depth - 1);
                Text::atom(format!("{}.get_bit({})", inner.under(ATOM), self.random.below(width)))
            }
            _ => {
                let width = self.random.width_from(2).unwrap_or(2);
                let inner = self.value(scope, &Type::Bits(width), depth - 1);
                let index = self.index(scope, width, depth);
                Text::atom(format!("{}.get_bit({index})", inner.under(ATOM)))
            }
        }
    }

    fn bit_leaf(&mut self, scope: &mut Scope) -> Text {
        if let Some(text) = self.atom(scope, &Type::Bit) {
            return text;
        }
        let numbers = scope.atoms_of(|atom| matches!(atom, Type::Bits(_)));
        match numbers.is_empty() {
            true => Text::atom("false"),
            false => Text::atom(format!("{}.any()", self.random.pick(&numbers).0)),
        }
    }

    fn comparison(&mut self, scope: &mut Scope, depth: usize) -> Text {
        let width = self.random.width();
        let operator = *self.random.pick(&["==", "!=", "<", "<=", ">", ">="]);
        let left = self.value(scope, &Type::Bits(width), depth - 1);
        let right = if self.random.chance(40) {
            Text::atom(self.literal(scope, width))
        } else {
            self.value(scope, &Type::Bits(width), depth - 1)
        };
        // Rust would take `<` after a cast or a generic path for the start of its parameters.
        let text = format!("{} {operator} {}", left.under(COMPARE + 1), right.under(COMPARE + 1));
        Text::new(text, COMPARE)
    }

    fn enum_comparison(&mut self, scope: &Scope) -> Option<Text> {
        let enums = scope.atoms_of(|atom| matches!(atom, Type::Enum(_)));
        if enums.is_empty() {
            return None;
        }
        let (atom, atom_type) = self.random.pick(&enums).clone();
        let Type::Enum(choice) = atom_type else { unreachable!("only enums were taken") };
        let operator = *self.random.pick(&["==", "!="]);
        Some(Text::new(format!("{atom} {operator} {}", self.choice(scope, &choice).text), COMPARE))
    }
}
