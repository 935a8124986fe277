//! Names and versions of functions: for build scripts, and for tests that hold the list of them true.
//!
//! A list has a line for each symbol of the distribution's library, its version and its name, and behind them, if it is not here, the
//! reason:
//!
//! ```text
//! IBVERBS_1.1 ibv_alloc_pd
//! IBVERBS_1.1 ibv_register_driver takes a provider of the ABI before version 1.1, and there are no providers here
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A version and a name.
type Symbol = (String, String);

/// A library, and the list of its symbols.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// Its name as cargo builds it, such as `libibverbs.so`; programs ask for `libibverbs.so.1`.
    pub name: &'static str,
    /// How its versions begin, such as `IBVERBS`.
    pub versions: &'static str,
    /// The text of the list.
    pub list: &'static str,
}

impl Library {
    /// For a build script: gives the library its name, and its functions the names and versions of the list.
    ///
    /// rustc has a version script of its own, which exports the functions as they are called in Rust: `rnic_ibv_open_device`. A
    /// directive of the assembler gives each a second name with a version, and a second script defines the versions. The library
    /// includes the directives, `symbols.s`, from its `OUT_DIR`.
    ///
    /// # Panics
    /// If it is not called by a build script, or the files cannot be written.
    pub fn export(&self) {
        let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for ((version, name), reason) in self.listed() {
            if reason.is_empty() {
                versions.entry(version).or_default().push(name);
            }
        }
        let (mut script, mut directives) = (String::new(), String::new());
        for (version, names) in versions {
            script += &format!("{version} {{ global: {}; }};\n", names.join("; "));
            for name in names {
                directives += &format!(".symver rnic_{name}, {name}@@{version}\n");
            }
        }
        let folder = env::var("OUT_DIR").expect("cargo names a folder");
        let folder = Path::new(&folder);
        fs::write(folder.join("symbols.s"), directives).expect("the directives can be written");
        let versions = folder.join("versions.map");
        fs::write(&versions, script).expect("the script can be written");
        println!("cargo::rerun-if-changed=symbols.txt");
        println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", versions.display());
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{}.1", self.name);
    }

    /// For a test: the list has all symbols of the distribution's library, which are more than `count`, and no others.
    ///
    /// # Panics
    /// If it has not, or the library is not installed.
    pub fn check_list(&self, count: usize) {
        let (listed, theirs) = (self.listed(), self.defined(&self.theirs()));
        assert!(theirs.len() > count, "only {} symbols were found", theirs.len());
        let missing: Vec<_> = theirs.iter().filter(|symbol| !listed.contains_key(*symbol)).collect();
        assert!(missing.is_empty(), "not in symbols.txt: {missing:?}");
        let invented: Vec<_> = listed.keys().filter(|symbol| !theirs.contains(*symbol)).collect();
        assert!(
            invented.is_empty(),
            "in symbols.txt, and not in the library of the distribution: {invented:?}"
        );
    }

    /// For a test of the library: it has the symbols that are listed without a reason, and no others.
    ///
    /// # Panics
    /// If it has not.
    pub fn check_symbols(&self) {
        let here =
            self.listed().into_iter().filter(|(_, reason)| reason.is_empty()).map(|(symbol, _)| symbol);
        assert_eq!(self.defined(&self.ours()), here.collect());
    }

    /// For a test: a reason is more than a word or two.
    ///
    /// # Panics
    /// If one is not.
    pub fn check_reasons(&self) {
        for ((_, name), reason) in self.listed() {
            let is_one = reason.is_empty() || reason.split_whitespace().count() > 5;
            assert!(is_one, "{name}: `{reason}` is no reason");
        }
    }

    /// For a test of the library: it has the name that programs ask for.
    ///
    /// # Panics
    /// If it has not.
    pub fn check_name(&self) {
        let text = readelf(&["--dynamic"], &self.ours());
        assert!(text.contains(&format!("Library soname: [{}.1]", self.name)), "{text}");
    }

    /// Each symbol with the reason why it is not here, which is empty if it is.
    fn listed(&self) -> BTreeMap<Symbol, String> {
        let lines = self.list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let entries = lines.map(|line| {
            let mut words = line.splitn(3, ' ').map(str::to_string);
            let mut word = || words.next().unwrap_or_default();
            ((word(), word()), word())
        });
        let entries: Vec<_> = entries.collect();
        let count = entries.len();
        let listed = BTreeMap::from_iter(entries);
        assert_eq!(listed.len(), count, "each symbol is listed once");
        listed
    }

    /// Symbols with a version that a library defines, other than the versions themselves.
    fn defined(&self, library: &Path) -> BTreeSet<Symbol> {
        let text = readelf(&["--wide", "--dyn-syms"], library);
        let symbols = text.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, _, _, kind, _, _, section, name, ..] = *words else { return None };
            let (name, version) = name.split_once('@')?;
            // What is of no section is not defined here, or is the version itself.
            let is_defined = ["FUNC", "OBJECT"].contains(&kind) && !["UND", "ABS"].contains(&section);
            is_defined.then(|| (version.trim_start_matches('@').to_string(), name.to_string()))
        });
        symbols.filter(|(version, _)| version.starts_with(self.versions)).collect()
    }

    /// The library that cargo has built for this test, beside it.
    fn ours(&self) -> PathBuf {
        let test = env::current_exe().expect("a test has a path");
        let library = test.with_file_name(self.name);
        assert!(library.exists(), "cargo builds {} before this test", library.display());
        library
    }

    /// The library of the distribution.
    fn theirs(&self) -> PathBuf {
        let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
        let name = format!("{}.1", self.name);
        let found = folders.iter().map(|folder| Path::new(folder).join(&name)).find(|path| path.exists());
        found.unwrap_or_else(|| panic!("the distribution's {name} is installed: run scripts/setup.sh test"))
    }
}

/// What `readelf` says of a library.
fn readelf(options: &[&str], library: &Path) -> String {
    let output = Command::new("readelf").args(options).arg(library).output();
    let output = output.expect("readelf, of the package binutils, runs");
    assert!(output.status.success(), "{}: {}", library.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("names are text")
}
