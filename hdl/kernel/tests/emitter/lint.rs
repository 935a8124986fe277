//! Icarus and Verilator, asked whether they have anything to say about a text.
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use verilator_sys::Toolchain;

/// Insists that both are silent.
pub(crate) fn check(top: &str, verilog: &str) {
    let toolchain = Toolchain::find().unwrap_or_else(|error| panic!("{error}"));
    // One text holds all modules, so no file can be named like each of them.
    let complaints = toolchain.lint(top, verilog, &["-Wno-DECLFILENAME"]);
    let complaints = complaints.unwrap_or_else(|error| panic!("{error}\n{verilog}"));
    assert!(complaints.is_empty(), "Verilator: {complaints}\n{verilog}");
    let complaints = icarus(verilog);
    assert!(complaints.is_empty(), "Icarus: {complaints}\n{verilog}");
}

fn icarus(verilog: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}_{number}.v", std::process::id());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, verilog).expect("the directory for temporary files can be written");
    let output = Command::new("iverilog").args(["-g2005", "-Wall", "-t", "null"]).arg(&file).output();
    let output = output.expect("Icarus Verilog is needed: install the package `iverilog`");
    std::fs::remove_file(&file).expect("the file is there");
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    if output.status.success() { said.trim().to_owned() } else { format!("failed: {said}") }
}
