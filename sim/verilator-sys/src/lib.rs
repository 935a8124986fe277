//! Verilog in, a stepping handle with typed port pointers out.
