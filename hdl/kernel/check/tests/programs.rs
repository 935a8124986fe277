//! Random programs of the language: what a kernel computes in Rust, its Verilog computes too.
//!
//! `RNIC_KERNEL_SEED` and `RNIC_KERNEL_PROGRAMS` choose other programs, and more of them. A program that fails is
//! printed with its source.

use rnic_kernel_check::{Recording, Subject, icarus, lint, record, verilator};
use std::sync::OnceLock;

#[allow(warnings, clippy::all, reason = "nobody writes the programs, and nobody tidies them")]
mod generated {
    use super::Program;
    include!(concat!(env!("OUT_DIR"), "/programs.rs"));
}

struct Program {
    name: &'static str,
    source: &'static str,
    make: fn() -> Box<dyn Subject>,
}

const CYCLES: usize = 300;

impl Program {
    fn verilog(&self) -> String {
        let generated = (self.make)().generate(self.name);
        generated.unwrap_or_else(|error| self.fail(&format!("it is refused: {error}")))
    }

    fn record(&self) -> Recording {
        record(self.name, &mut *(self.make)(), CYCLES, generated::SEED)
    }

    fn fail(&self, reason: &str) -> ! {
        panic!(
            "{reason}\nthis is {} of RNIC_KERNEL_SEED={}, the source of which is\n{}",
            self.name,
            generated::SEED,
            self.source
        )
    }
}

/// All programs in one Verilog text, so that one model serves them all.
fn all_programs() -> &'static (Recording, String) {
    static ALL: OnceLock<(Recording, String)> = OnceLock::new();
    ALL.get_or_init(|| {
        let programs = generated::programs();
        assert!(!programs.is_empty(), "RNIC_KERNEL_PROGRAMS is at least 1");
        let modules: Vec<String> = programs.iter().map(Program::verilog).collect();
        let recordings: Vec<Recording> = programs.iter().map(Program::record).collect();
        let (joined, top) = Recording::join("programs", &recordings);
        (joined, modules.join("\n") + &top)
    })
}

#[test]
fn random_programs_agree_with_their_verilog() {
    let (joined, text) = all_programs();
    let simulators = [verilator, icarus];
    let different = simulators.iter().find_map(|simulate| simulate(text, joined).into_iter().next());
    let Some(difference) = different else { return };
    let owns_port = |program: &Program| difference.port.starts_with(&format!("{}_", program.name));
    let program = generated::programs().into_iter().find(owns_port).expect("each port has a program");
    let (verilog, recording) = (program.verilog(), program.record());
    let alone: Vec<String> = simulators
        .iter()
        .flat_map(|simulate| simulate(&verilog, &recording))
        .map(|difference| difference.to_string())
        .collect();
    program.fail(&format!("Rust and Verilog differ; alone:\n{}\n{verilog}", alone.join("\n")));
}

#[test]
fn linters_are_silent_about_random_programs() {
    let (_, text) = all_programs();
    // A random program compares a value with itself, or with the largest there is, and Verilator remarks on it.
    let complaints = lint("programs", text, &["CMPCONST", "UNSIGNED"]);
    assert!(complaints.is_empty(), "RNIC_KERNEL_SEED={}: {complaints}", generated::SEED);
}

/// Each kind of fault that an emitter could have, as a change of its text.
const MUTATIONS: [(&str, &str); 12] = [
    (" + ", " - "),
    (" - ", " + "),
    (" & ", " | "),
    (" | ", " & "),
    (" ^ ", " & "),
    (" << ", " >> "),
    (" >> ", " << "),
    (" < ", " >= "),
    (" == ", " != "),
    (" && ", " || "),
    ("~", ""),
    ("if (reset)", "if (!reset)"),
];

/// The first place in one program may not matter, but among all programs there is one where it does. That every
/// single change is noticed or proven to mean the same is shown for the shapes, which are written to be sensitive.
#[test]
fn every_kind_of_mutation_is_noticed_in_some_program() {
    for (from, to) in MUTATIONS {
        let is_noticed = |program: &Program| {
            let verilog = program.verilog();
            let mutant = verilog.replacen(from, to, 1);
            mutant != verilog && !icarus(&mutant, &program.record()).is_empty()
        };
        let programs = generated::programs();
        let noticed = programs.iter().any(is_noticed);
        assert!(noticed, "RNIC_KERNEL_SEED={}: `{from}` as `{to}` is never noticed", generated::SEED);
    }
}
