//! Compares the Verilog that the hardware language prints with the Rust that it is printed from.
//!
//! ```text
//! Subject ─ record ─> Recording ─┬─ verilator ─> the same, or the first difference
//!   │    random input, each      └─ icarus ────> the same, or the first difference
//!   │    cycle of the Rust kernel
//!   └─ generate ─> Verilog ─ lint ─> silence of Verilator, Icarus and Yosys
//! ```
//!
//! The tests of this package are the tests of the language as a compiler: shapes that are known to go wrong in
//! hardware languages, mistakes that must be refused, and random programs.

mod icarus;
mod lint;
mod random;
mod recording;
mod tools;
mod verilator;

pub use icarus::icarus;
pub use lint::lint;
pub use random::{Random, RandomValue};
pub use recording::{Cycle, Difference, Recording, Subject, record};
pub use tools::{scratch, yosys};
pub use verilator::verilator;

/// Records `cycles` of the subject with random input, replays them on its Verilog in Verilator and Icarus, and lints
/// the Verilog with all three linters. Returns the Verilog.
///
/// # Panics
///
/// When anything differs or complains; the message holds the Verilog.
pub fn check(name: &str, subject: &mut dyn Subject, cycles: usize) -> String {
    let verilog = subject.generate(name).unwrap_or_else(|error| panic!("{name} is refused: {error}"));
    let recording = record(name, subject, cycles, 1);
    for simulate in [verilator, icarus] {
        if let Some(difference) = simulate(&verilog, &recording).first() {
            panic!("{difference}\n{verilog}");
        }
    }
    let complaints = lint(name, &verilog, &[]);
    assert!(complaints.is_empty(), "{complaints}\n{verilog}");
    verilog
}

/// Writes [`Subject`] for a block: its clock and reset, if it has them, and its random inputs.
///
/// ```text
/// subject!(Counter, clock, reset; enable, step);
/// subject!(Adder; a, b);
/// ```
#[macro_export]
macro_rules! subject {
    ($block:ty $(, $clock:ident $(, $reset:ident)?)?; $($($input:ident).+),* $(,)?) => {
        impl $crate::Subject for $block {
            fn generate(&mut self, name: &str) -> Result<String, String> {
                rnic_kernel::generate(self, name).map_err(|error| error.to_string())
            }
            fn drive(&mut self, _random: &mut $crate::Random) {
                $(self.$($input).+.next = $crate::RandomValue::random(_random);)*
            }
            $(
                fn set_clock(&mut self, level: bool) {
                    self.$clock.next = level.into();
                }
                $(
                    fn set_reset(&mut self, level: bool) {
                        self.$reset.next = level;
                    }
                )?
            )?
            fn as_block(&mut self) -> &mut dyn Block {
                self
            }
        }
    };
}
