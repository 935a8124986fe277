//! Verilated card, host, wire: the simulated machine.
