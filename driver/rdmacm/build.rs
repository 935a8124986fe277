//! Gives the library its name, and its functions the names and versions of `symbols.txt`.
//!
//! rustc has a version script of its own, which exports the functions as they are called in Rust: `rnic_rdma_create_id`. A directive
//! of the assembler gives each a second name with a version, and a second script defines the versions.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=symbols.txt");
    let text = fs::read_to_string("symbols.txt").expect("symbols.txt can be read");
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // A line with more than two words names a symbol that the library has not.
        if let [version, name] = *line.split_whitespace().collect::<Vec<_>>() {
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
    fs::write(folder.join("versions.map"), script).expect("the script can be written");
    fs::write(folder.join("symbols.s"), directives).expect("the directives can be written");
    let script = folder.join("versions.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librdmacm.so.1");
}
