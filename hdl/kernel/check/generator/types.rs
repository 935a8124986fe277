//! The types of a program: their names, fields and widths.
use super::random::Random;
use std::fmt::Write as _;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    Bits(usize),
    Bit,
    Struct(Struct),
    Enum(Enum),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Struct {
    /// As a type: `Pair<3, 8>`.
    pub(crate) name: String,
    /// As a path of a literal: `Pair::<3, 8>`.
    pub(crate) path: String,
    pub(crate) fields: Vec<(String, Type)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Enum {
    pub(crate) name: String,
    pub(crate) variants: Vec<String>,
}

impl Type {
    pub(crate) fn name(&self) -> String {
        match self {
            Type::Bits(width) => format!("Bits<{width}>"),
            Type::Bit => "Bit".into(),
            Type::Struct(record) => record.name.clone(),
            Type::Enum(choice) => choice.name.clone(),
        }
    }
}

/// The structs and enums that a program declares.
pub(crate) struct Declared {
    pub(crate) types: Vec<Type>,
    pub(crate) source: String,
}

pub(crate) fn declare(random: &mut Random) -> Declared {
    let mut declared = Declared { types: Vec::new(), source: String::new() };
    if random.chance(60) {
        declare_enum(random, &mut declared);
    }
    for index in 0..random.below(3) {
        if random.chance(40) {
            declare_generic(random, &mut declared, index);
        } else {
            declare_struct(random, &mut declared, index);
        }
    }
    declared
}

const DERIVES: &str = "#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]";

fn declare_enum(random: &mut Random, declared: &mut Declared) {
    const VARIANTS: [&str; 6] = ["Idle", "Fetch", "Load", "Shift", "Store", "Done"];
    let variants: Vec<String> =
        VARIANTS[..random.between(2, 6)].iter().map(|name| name.to_string()).collect();
    let text = &mut declared.source;
    writeln!(text, "#[derive(Clone, Copy, Debug, PartialEq, LogicState)]").unwrap();
    writeln!(text, "pub enum Mode {{\n    {},\n}}", variants.join(",\n    ")).unwrap();
    let arms: String = variants.iter().enumerate().map(|(i, v)| format!("{i} => Mode::{v}, ")).collect();
    let arms = arms.replace(&format!("{} => ", variants.len() - 1), "_ => ");
    random_value(text, "", "Mode", &format!("match random.below({}) {{ {arms}}}", variants.len()));
    declared.types.push(Type::Enum(Enum { name: "Mode".into(), variants }));
}

fn declare_struct(random: &mut Random, declared: &mut Declared, index: usize) {
    let name = format!("Record{index}");
    let fields: Vec<(String, Type)> = (0..random.between(2, 4))
        .map(|field| {
            let earlier = declared.types.len();
            let nested = earlier > 0 && random.chance(20);
            let field_type = match random.below(3) {
                _ if nested => declared.types[random.below(earlier)].clone(),
                0 => Type::Bit,
                _ => Type::Bits(random.width()),
            };
            (format!("f{field}"), field_type)
        })
        .collect();
    let text = &mut declared.source;
    writeln!(text, "{DERIVES}\npub struct {name} {{").unwrap();
    for (field, field_type) in &fields {
        writeln!(text, "    pub {field}: {},", field_type.name()).unwrap();
    }
    writeln!(text, "}}").unwrap();
    random_value(text, "", &name, &literal_of_draws(&name, &fields));
    declared.types.push(Type::Struct(Struct { name: name.clone(), path: name, fields }));
}

/// A struct with two widths as parameters, used with two different pairs of them.
fn declare_generic(random: &mut Random, declared: &mut Declared, index: usize) {
    let name = format!("Generic{index}");
    let text = &mut declared.source;
    writeln!(text, "{DERIVES}\npub struct {name}<const A: usize, const B: usize> {{").unwrap();
    writeln!(text, "    pub data: Bits<A>,\n    pub last: Bit,\n    pub count: Bits<B>,\n}}").unwrap();
    let draws = format!(
        "{name}::<A, B> {{ data: RandomValue::random(random), last: RandomValue::random(random), \
         count: RandomValue::random(random) }}"
    );
    random_value(text, "<const A: usize, const B: usize>", &format!("{name}<A, B>"), &draws);
    for _ in 0..random.between(1, 2) {
        let (a, b) = (random.width(), random.width());
        declared.types.push(Type::Struct(Struct {
            name: format!("{name}<{a}, {b}>"),
            path: format!("{name}::<{a}, {b}>"),
            fields: vec![
                ("data".into(), Type::Bits(a)),
                ("last".into(), Type::Bit),
                ("count".into(), Type::Bits(b)),
            ],
        }));
    }
}

fn literal_of_draws(name: &str, fields: &[(String, Type)]) -> String {
    let draws: Vec<String> =
        fields.iter().map(|(field, _)| format!("{field}: RandomValue::random(random)")).collect();
    format!("{name} {{ {} }}", draws.join(", "))
}

/// How a test draws a value of the type.
fn random_value(text: &mut String, generics: &str, name: &str, body: &str) {
    writeln!(
        text,
        "impl{generics} RandomValue for {name} {{\n    fn random(random: &mut Random) -> Self {{\n        {body}\n    }}\n}}"
    )
    .unwrap();
}
