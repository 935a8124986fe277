//! What the emitter prints, what it refuses, and that three readers of Verilog agree with it.
mod blocks;
mod graphs;
mod lint;
mod modules;
mod printed;
mod refused;
