//! One program: its types, functions and blocks.
use super::random::Random;
use super::statements::{Target, Writer};
use super::types::{Type, declare};
use super::values::{Function, Scope, Values};
use std::fmt::Write as _;

/// The Rust source of one program. Its top block is called `Top`, and is a `Subject`.
pub(crate) fn program(seed: u64, number: u64) -> String {
    let mut random = Random::new(seed, number);
    let declared = declare(&mut random);
    let mut text = String::from(
        "use rnic_kernel::prelude::*;\nuse rnic_kernel_check::{subject, Random, RandomValue};\n\n",
    );
    text += &declared.source;
    let mut scope = Scope { types: declared.types, ..Scope::default() };
    for index in 0..2 {
        let width = random.between(1, 16);
        let value = random.number(width);
        let name = format!("LIMIT_{index}");
        writeln!(text, "const {name}: u64 = {value};").unwrap();
        scope.constants.push((name, value));
    }
    writeln!(text, "const IS_SPECIAL: bool = {};\n", random.chance(50)).unwrap();
    functions(&mut random, &mut text, &mut scope);
    let has_child = random.chance(50);
    let child_name = format!("Child{number}");
    let child = has_child.then(|| Block::write(&mut random, &mut text, &scope, &child_name, None));
    Block::write(&mut random, &mut text, &scope, "Top", child.as_ref());
    text
}

fn functions(random: &mut Random, text: &mut String, scope: &mut Scope) {
    let outside = scope.atoms.len();
    for index in 0..random.below(3) {
        let arguments: Vec<Type> =
            (0..random.between(1, 3)).map(|_| Values { random }.any_type(scope)).collect();
        let result = Values { random }.any_type(scope);
        let names: Vec<String> = (0..arguments.len()).map(|argument| format!("p{argument}")).collect();
        scope.atoms.extend(names.iter().cloned().zip(arguments.iter().cloned()));
        let parameters: Vec<String> = names
            .iter()
            .zip(&arguments)
            .map(|(name, argument)| format!("{name}: {}", argument.name()))
            .collect();
        writeln!(text, "#[kernel]").unwrap();
        writeln!(text, "fn function_{index}({}) -> {} {{", parameters.join(", "), result.name()).unwrap();
        let mut writer = Writer { random, text: std::mem::take(text), indent: 1 };
        if writer.random.chance(60) {
            writer.binding(scope);
        }
        let value = writer.value(scope, &result, 3);
        writer.line(&value);
        *text = writer.text + "}\n\n";
        scope.atoms.truncate(outside);
        scope.functions.push(Function { path: format!("function_{index}"), arguments, result });
    }
    if random.chance(50) {
        let width = random.width();
        text.push_str(
            "mod shared {\n    use rnic_kernel::prelude::*;\n\n    /// Adds, and keeps the ends apart.\n    \
             #[kernel]\n    pub fn folded<const N: usize>(a: Bits<N>, b: Bits<N>) -> Bits<N> {\n        \
             let sum = a + b;\n        if sum < a { !sum } else { sum ^ b }\n    }\n}\n\n",
        );
        scope.functions.push(Function {
            path: format!("shared::folded::<{width}>"),
            arguments: vec![Type::Bits(width), Type::Bits(width)],
            result: Type::Bits(width),
        });
    }
}

/// The ports of a block that was written.
struct Block {
    name: String,
    inputs: Vec<(String, Type)>,
    outputs: Vec<(String, Type)>,
    is_clocked: bool,
}

/// A register, or an array of them.
struct Register {
    name: String,
    value: Type,
    count: Option<usize>,
    /// The reset value; without one it is a `DFF`.
    reset: Option<String>,
}

impl Block {
    fn write(
        random: &mut Random,
        text: &mut String,
        outer: &Scope,
        name: &str,
        child: Option<&Block>,
    ) -> Block {
        let mut scope = outer.clone();
        let is_clocked = random.chance(75) || child.is_some_and(|child| child.is_clocked);
        let ports = |random: &mut Random, prefix: &str, low, high| -> Vec<(String, Type)> {
            let count = random.between(low, high);
            let name = |index: usize| format!("{prefix}{index}");
            (0..count).map(|index| (name(index), Values { random }.any_type(outer))).collect()
        };
        let is_top = name == "Top";
        let inputs = ports(random, "a", 2, if is_top { 5 } else { 3 });
        let outputs = ports(random, "y", 1, if is_top { 4 } else { 2 });
        let locals = ports(random, "local", 0, 2);
        let registers = if is_clocked { registers(random, outer) } else { Vec::new() };
        let children: Vec<(String, Option<usize>)> = match (child, random.below(3)) {
            (None, _) => Vec::new(),
            (Some(_), 0) => vec![("children".into(), Some(2))],
            (Some(_), 1) => vec![("left".into(), None), ("right".into(), None)],
            _ => vec![("inside".into(), None)],
        };

        let mut fields: Vec<(String, String, String)> = Vec::new();
        let default = || "Default::default()".to_string();
        if is_clocked {
            fields.push(("pub clock".into(), "Signal<In, Clock>".into(), default()));
            fields.push(("pub reset".into(), "Signal<In, Bit>".into(), default()));
        }
        for (direction, list) in [("In", &inputs), ("Out", &outputs)] {
            for (port, port_type) in list {
                let signal = format!("Signal<{direction}, {}>", port_type.name());
                fields.push((format!("pub {port}"), signal, default()));
            }
        }
        for (local, local_type) in &locals {
            fields.push((local.clone(), format!("Signal<Local, {}>", local_type.name()), default()));
        }
        for register in &registers {
            fields.push((register.name.clone(), register.type_name(), register.initial()));
        }
        for (field, count) in &children {
            let child = &child.expect("only a block with a child has children").name;
            let field_type = count.map_or(child.clone(), |count| format!("[{child}; {count}]"));
            fields.push((field.clone(), field_type, default()));
        }
        let has_constant = random.chance(25);
        if has_constant {
            let width = random.width().min(64);
            let value = random.number(width);
            let constant = format!("Constant<Bits<{width}>>");
            fields.push(("fixed".into(), constant, format!("Constant::new({value}.into())")));
            scope.atoms.push(("self.fixed.val()".into(), Type::Bits(width)));
        }

        writeln!(text, "#[derive(LogicBlock, Registers)]\npub struct {name} {{").unwrap();
        for (field, field_type, _) in &fields {
            writeln!(text, "    {field}: {field_type},").unwrap();
        }
        writeln!(text, "}}\n\nimpl Default for {name} {{\n    fn default() -> Self {{\n        {name} {{")
            .unwrap();
        for (field, _, initial) in &fields {
            writeln!(text, "            {}: {initial},", field.trim_start_matches("pub ")).unwrap();
        }
        writeln!(text, "        }}\n    }}\n}}\n").unwrap();

        writeln!(text, "impl Logic for {name} {{\n    #[kernel]\n    fn update(&mut self) {{").unwrap();
        let mut kernel =
            Kernel { writer: Writer { random, text: std::mem::take(text), indent: 2 }, scope: &mut scope };
        kernel.write(is_clocked, &inputs, &outputs, &locals, &registers, child, &children);
        *text = kernel.writer.text + "    }\n}\n\n";

        if is_top {
            let list: Vec<&str> = inputs.iter().map(|(input, _)| input.as_str()).collect();
            let clocks = if is_clocked { ", clock, reset" } else { "" };
            writeln!(text, "subject!({name}{clocks}; {});", list.join(", ")).unwrap();
        }
        Block { name: name.into(), inputs, outputs, is_clocked }
    }
}

fn registers(random: &mut Random, scope: &Scope) -> Vec<Register> {
    (0..random.between(1, 3))
        .map(|index| {
            let value = Values { random }.any_type(scope);
            let count = random.chance(30).then(|| random.between(2, 4));
            let reset = match &value {
                Type::Bits(width) if random.chance(60) => Some(format!("{}.into()", random.number(*width))),
                Type::Bit if random.chance(60) => Some(random.chance(50).to_string()),
                Type::Enum(choice) if random.chance(60) => {
                    Some(format!("{}::{}", choice.name, random.pick(&choice.variants)))
                }
                _ if random.chance(40) => Some("Default::default()".into()),
                _ => None,
            };
            Register { name: format!("r{index}"), value, count, reset }
        })
        .collect()
}

impl Register {
    fn type_name(&self) -> String {
        let kind = if self.reset.is_some() { "Reg" } else { "DFF" };
        let one = format!("{kind}<{}>", self.value.name());
        self.count.map_or(one.clone(), |count| format!("[{one}; {count}]"))
    }

    fn initial(&self) -> String {
        match (&self.reset, self.count) {
            (None, _) => "Default::default()".into(),
            (Some(value), None) => format!("Reg::new({value})"),
            (Some(value), Some(_)) => format!("std::array::from_fn(|_| Reg::new({value}))"),
        }
    }
}

struct Kernel<'a> {
    writer: Writer<'a>,
    scope: &'a mut Scope,
}

impl Kernel<'_> {
    #[expect(clippy::too_many_arguments, reason = "these are the parts of one block")]
    fn write(
        &mut self,
        is_clocked: bool,
        inputs: &[(String, Type)],
        outputs: &[(String, Type)],
        locals: &[(String, Type)],
        registers: &[Register],
        child: Option<&Block>,
        children: &[(String, Option<usize>)],
    ) {
        if is_clocked {
            self.writer.line("self.hold_registers();");
            self.scope.atoms.push(("self.reset.val()".into(), Type::Bit));
        }
        for (input, input_type) in inputs {
            self.scope.atoms.push((format!("self.{input}.val()"), input_type.clone()));
        }
        for register in registers {
            for index in 0..register.count.unwrap_or(1) {
                let place =
                    register.count.map_or(register.name.clone(), |_| format!("{}[{index}]", register.name));
                self.scope.atoms.push((format!("self.{place}.q.val()"), register.value.clone()));
            }
        }
        self.bindings(2);
        for (local, local_type) in locals {
            let place = format!("self.{local}");
            let targets =
                [Target { place: place.clone(), target_type: local_type.clone(), count: None, suffix: "" }];
            self.writer.defaults(self.scope, &targets, 3);
            let count = self.writer.random.below(2);
            self.writer.overrides(self.scope, &targets, count, 2);
            self.scope.atoms.push((format!("{place}.val()"), local_type.clone()));
        }
        if let Some(child) = child {
            for (field, count) in children {
                self.child(child, field, *count);
            }
        }
        self.bindings(2);
        let plain = |place: &str, target_type: &Type| Target {
            place: format!("self.{place}"),
            target_type: target_type.clone(),
            count: None,
            suffix: "",
        };
        let mut targets: Vec<Target> =
            outputs.iter().map(|(output, output_type)| plain(output, output_type)).collect();
        self.writer.defaults(self.scope, &targets, 3);
        for register in registers {
            let place = format!("self.{}", register.name);
            let target_type = register.value.clone();
            targets.push(Target { place, target_type, count: register.count, suffix: ".d" });
        }
        let count = self.writer.random.between(2, 5);
        self.writer.overrides(self.scope, &targets, count, 2);
    }

    fn bindings(&mut self, most: usize) {
        for _ in 0..self.writer.random.below(most + 1) {
            self.writer.binding(self.scope);
        }
    }

    /// Writes all inputs of a child, and only then reads its outputs: no loop can come of it.
    fn child(&mut self, child: &Block, field: &str, count: Option<usize>) {
        let places: Vec<String> = match count {
            Some(count) => (0..count).map(|index| format!("{field}[{index}]")).collect(),
            None => vec![field.to_string()],
        };
        for place in &places {
            // Otherwise `hold_registers` has connected it.
            if child.is_clocked && self.writer.random.chance(50) {
                if count.is_none() && self.writer.random.chance(50) {
                    self.writer.line(&format!("clock!(self, clock, {place});"));
                } else {
                    self.writer.line(&format!("self.{place}.clock.next = self.clock.val();"));
                }
                self.writer.line(&format!("self.{place}.reset.next = self.reset.val();"));
            }
            let targets: Vec<Target> = child
                .inputs
                .iter()
                .map(|(input, input_type)| Target {
                    place: format!("self.{place}.{input}"),
                    target_type: input_type.clone(),
                    count: None,
                    suffix: "",
                })
                .collect();
            self.writer.defaults(self.scope, &targets, 2);
            let count = self.writer.random.below(2);
            self.writer.overrides(self.scope, &targets, count, 2);
            for (output, output_type) in &child.outputs {
                self.scope.atoms.push((format!("self.{place}.{output}.val()"), output_type.clone()));
            }
        }
    }
}
