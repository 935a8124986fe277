//! Names and versions of the functions that programs call: those of `symbols.txt`, which `build.rs` has made directives of.
#![allow(unsafe_code)]

// A test is no library, and its linker knows no versions.
#[cfg(not(test))]
std::arch::global_asm!(include_str!(concat!(env!("OUT_DIR"), "/symbols.s")));
