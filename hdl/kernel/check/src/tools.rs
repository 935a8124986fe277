//! The other programs that tests run.
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of its own below Cargo's target directory, gone with its value.
pub fn scratch() -> tempfile::TempDir {
    let program = env::current_exe().expect("a running test has a path");
    let folder = program.parent().expect("a program is in a folder");
    tempfile::Builder::new().prefix("check-").tempdir_in(folder).expect("the target directory is writable")
}

/// Runs a program in a folder. Panics, with what to install, when it does not start.
pub(crate) fn run(folder: &Path, program: &Path, arguments: &[&str], install: &str) -> Output {
    Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap_or_else(|error| panic!("cannot run `{}`: {error}; install it: {install}", program.display()))
}

/// Runs a Yosys script in a folder, and returns whether it succeeded and what it said. The Yosys of the project's
/// Python environment comes before one on `PATH`, which may be old.
///
/// # Panics
///
/// When there is no Yosys, saying what to install.
pub fn yosys(folder: &Path, script: &str) -> (bool, String) {
    const LOG: &str = "yosys.log";
    let output = run(folder, &yosys_program(), &["-q", "-l", LOG, "-p", script], "`scripts/setup.sh test`");
    let log = std::fs::read_to_string(folder.join(LOG)).unwrap_or_default();
    let errors = String::from_utf8_lossy(&output.stderr);
    (output.status.success(), format!("{log}{errors}"))
}

/// Yosys of the project's Python environment, or `yosys` to be found on `PATH`.
fn yosys_program() -> PathBuf {
    let current = env::current_dir().unwrap_or_default();
    let environments = current.ancestors().map(|folder| folder.join(".venv"));
    let active = env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let mut programs = active.into_iter().chain(environments).map(|folder| folder.join("bin/yosys"));
    programs.find(|program| program.is_file()).unwrap_or_else(|| "yosys".into())
}
