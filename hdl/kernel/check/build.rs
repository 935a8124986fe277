//! Writes the random programs that `tests/programs.rs` compiles.
//!
//! `RNIC_KERNEL_SEED` and `RNIC_KERNEL_PROGRAMS` say which and how many.

mod generator;

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

const SEED: u64 = 1;
const PROGRAMS: u64 = 40;

fn main() {
    let seed = setting("RNIC_KERNEL_SEED", SEED);
    let count = setting("RNIC_KERNEL_PROGRAMS", PROGRAMS);
    let out = env::var("OUT_DIR").expect("Cargo sets OUT_DIR");
    let mut index = format!("pub const SEED: u64 = {seed};\n\n");
    let mut list = String::new();
    for number in 0..count {
        let name = format!("program_{number}");
        let file = Path::new(&out).join(format!("{name}.rs"));
        fs::write(&file, generator::program(seed, number)).expect("OUT_DIR is writable");
        let path = file.display();
        writeln!(index, "mod {name} {{\n    include!({:?});\n}}", path.to_string())
            .expect("a String takes text");
        writeln!(
            list,
            "        Program {{ name: {name:?}, source: include_str!({:?}), make: || Box::new({name}::Top::default()) }},",
            path.to_string()
        )
        .expect("a String takes text");
    }
    writeln!(index, "\npub fn programs() -> Vec<Program> {{\n    vec![\n{list}    ]\n}}")
        .expect("a String takes text");
    fs::write(Path::new(&out).join("programs.rs"), index).expect("OUT_DIR is writable");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=generator");
}

fn setting(name: &str, default: u64) -> u64 {
    println!("cargo:rerun-if-env-changed={name}");
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")),
        Err(_) => default,
    }
}
