//! The three linters, which must have nothing to say.
use crate::tools::{run, scratch, yosys};
use std::fmt::Write as _;
use std::path::Path;
use verilator_sys::Toolchain;

/// Lints the module `top` in Verilator, Icarus and Yosys, but for Verilator's warnings of the given kinds. Returns
/// their complaints, which should be none.
///
/// # Panics
///
/// When one of them is missing, saying what to install.
pub fn lint(top: &str, verilog: &str, waived: &[&str]) -> String {
    let mut complaints = String::new();
    let toolchain = Toolchain::find().unwrap_or_else(|error| panic!("{error}"));
    // One text holds many modules, and a model of several programs has several tops.
    let flags: Vec<String> =
        ["DECLFILENAME", "MULTITOP"].iter().chain(waived).map(|kind| format!("-Wno-{kind}")).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let verilator = toolchain.lint(top, verilog, &flags).unwrap_or_else(|error| panic!("{error}"));
    note(&mut complaints, "Verilator", &verilator);

    let folder = scratch();
    std::fs::write(folder.path().join("dut.v"), verilog).expect("a scratch folder is writable");
    let arguments = ["-g2005", "-Wall", "-t", "null", "-s", top, "dut.v"];
    let icarus = run(folder.path(), Path::new("iverilog"), &arguments, "`apt install iverilog`");
    note(&mut complaints, "Icarus", &String::from_utf8_lossy(&icarus.stderr));

    let script = format!(
        "read_verilog dut.v; hierarchy -check -top {top}; proc; check -assert; \
         select -assert-none t:$dlatch t:$adlatch t:$dlatchsr"
    );
    let (passed, log) = yosys(folder.path(), &script);
    let warnings: Vec<&str> =
        log.lines().filter(|line| !passed || line.to_lowercase().contains("warning")).collect();
    note(&mut complaints, "Yosys", &warnings.join("\n"));
    complaints
}

fn note(complaints: &mut String, tool: &str, text: &str) {
    if !text.trim().is_empty() {
        writeln!(complaints, "{tool}:\n{}", text.trim()).expect("a String takes any text");
    }
}
