//! The language before any Verilog: what its macros write, what is recorded, and how its blocks are simulated.
mod constructors;
mod methods;
mod recording;
mod registers;
mod settle;
mod structs;
