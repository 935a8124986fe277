//! The command line of `synth_report`.
use anyhow::{Result, ensure};
use std::process::Command;

#[test]
fn an_error_names_the_file_and_has_no_backtrace() -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_synth_report"));
    let output = command.arg("no_such").env("RUST_BACKTRACE", "1").env("RUST_LIB_BACKTRACE", "1").output()?;
    let text = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1), "{}: {text}", output.status);
    ensure!(text.starts_with("error: cannot read ") && text.contains("no_such.toml: "), "{text}");
    ensure!(!text.to_lowercase().contains("backtrace"), "{text}");
    Ok(())
}
