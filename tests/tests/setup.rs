//! `scripts/setup.sh` on machines whose Pythons are programs of the test, in a checkout whose path has a blank.
use std::fs::{copy, create_dir_all, read_to_string, remove_file, rename, write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// What the script calls, and finds on every machine.
const TOOLS: [&str; 11] =
    ["bash", "cat", "chmod", "cp", "dirname", "grep", "id", "mkdir", "rm", "tail", "tr"];
/// What it would install if it were missing.
const INSTALLED: [&str; 4] = ["cargo", "g++", "make", "ccache"];

/// A Python that makes environments like itself, whose `pip` needs the Python at the path where it was made.
const PYTHON: &str = r#"#!/bin/bash
here=$(dirname "$0")
case "$1 $2" in
--version*) echo "Python VERSION" ;;
"-c import pip"*) [ -e "$here/pip" ] && exit IS_OLD ;;
-c*) exit IS_OLD ;;
"-m venv")
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    printf '#!/bin/bash\n[ -e "%s" ]\n' "$PWD/$3/bin/python" >"$3/bin/pip"
    chmod +x "$3/bin/pip"
    ;;
"-m pip") echo "VERSION" >>"$here/installations" ;;
esac
"#;

/// A machine and a checkout on it.
struct Machine(TempDir);

impl Machine {
    fn new(pythons: &[(&str, &str)]) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        let (bin, scripts) = (machine.0.path().join("bin"), machine.checkout().join("scripts"));
        create_dir_all(&bin).unwrap();
        create_dir_all(&scripts).unwrap();
        for tool in TOOLS {
            let found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
            symlink(found.iter().find(|path| path.exists()).expect("the tool is installed"), bin.join(tool))
                .unwrap();
        }
        for program in INSTALLED {
            program_at(&bin.join(program), "#!/bin/bash\n");
        }
        for (name, version) in pythons {
            program_at(&bin.join(name), &python(version));
        }
        let of_project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
        for script in ["lib.sh", "requirements-demo.txt"] {
            copy(of_project.join(script), scripts.join(script)).unwrap();
        }
        // The Python of this machine is none of the test's.
        let text = read_to_string(of_project.join("setup.sh")).unwrap();
        program_at(&scripts.join("setup.sh"), &text.replace("/usr/bin/python3", "/nowhere/python3"));
        machine
    }

    fn checkout(&self) -> PathBuf {
        self.0.path().join("a checkout")
    }

    fn setup(&self, checkout: &Path) -> Output {
        let bin = self.0.path().join("bin");
        Command::new(bin.join("bash"))
            .arg(checkout.join("scripts/setup.sh"))
            .arg("demo")
            .env("PATH", bin)
            .output()
            .unwrap()
    }

    /// Runs the script, and returns the versions of the Pythons that have installed something into the environment.
    fn installations(&self, checkout: &Path) -> String {
        let output = self.setup(checkout);
        let text =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        read_to_string(checkout.join(".venv/bin/installations")).unwrap()
    }
}

fn python(version: &str) -> String {
    let is_old = version.starts_with("3.8") || version.starts_with('2');
    PYTHON.replace("VERSION", version).replace("IS_OLD", if is_old { "1" } else { "0" })
}

fn program_at(path: &Path, text: &str) {
    write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn an_old_python_first_on_path_is_passed_over() {
    let machine = Machine::new(&[("python3", "3.8.1"), ("python3.12", "3.12.4")]);
    let checkout = machine.checkout();
    assert_eq!(machine.installations(&checkout), "3.12.4\n");
    assert_eq!(machine.installations(&checkout), "3.12.4\n", "the second run has nothing to do");
}

#[test]
fn a_broken_environment_is_made_anew() {
    let machine = Machine::new(&[("python3", "3.11.2")]);
    let checkout = machine.checkout();
    let environment = checkout.join(".venv/bin");
    let is_made = |checkout: &Path| assert_eq!(machine.installations(checkout), "3.11.2\n");
    is_made(&checkout);
    // As it is left by an interruption, by an older Python, and by a Python that was removed.
    remove_file(environment.join("pip")).unwrap();
    is_made(&checkout);
    program_at(&environment.join("python"), &python("3.8.1"));
    is_made(&checkout);
    remove_file(environment.join("python")).unwrap();
    symlink("/nowhere/python3", environment.join("python")).unwrap();
    is_made(&checkout);
    let moved = machine.0.path().join("moved");
    rename(&checkout, &moved).unwrap();
    is_made(&moved);
}

#[test]
fn without_a_python_the_version_is_named_and_what_there_is_instead() {
    let machine = Machine::new(&[("python3", "3.8.1"), ("python", "2.7.18")]);
    let output = machine.setup(&machine.checkout());
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("there is no Python 3.9 or later"), "{text}");
    assert!(text.contains("python3 is Python 3.8.1, python is Python 2.7.18"), "{text}");
}
