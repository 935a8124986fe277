//! The Verilog of a block, run beside it.
use super::ports::Port;
use num_bigint::BigUint;
use rnic_kernel::prelude::*;
use verilator_sys::{AnyPort, Instance, Model, ModelOptions, Optimization, Toolchain};

/// What the block was printed as, verilated.
pub(super) struct Twin {
    instance: Instance,
    /// Handles to the ports, in the order of the block.
    handles: Vec<AnyPort>,
    words: Vec<u32>,
}

impl Twin {
    /// Generates and verilates the Verilog of a block.
    ///
    /// # Panics
    /// When the block cannot be generated, when Verilator warns about it, or when there is no Verilator.
    pub(super) fn of<B: Block>(block: &mut B) -> Self {
        let verilog = rnic_kernel::generate(block, "dut").unwrap_or_else(|error| panic!("{error:?}"));
        let toolchain = Toolchain::find().unwrap_or_else(|error| panic!("{error}"));
        // One text holds all modules, so no file can be named like each of them.
        let complaints =
            toolchain.lint("dut", &verilog, &["-Wno-DECLFILENAME"]).unwrap_or_else(|error| panic!("{error}"));
        assert!(complaints.is_empty(), "{complaints}\n{verilog}");
        // Tests run a model for a few thousand cycles, so its compilation is what takes time.
        let options = ModelOptions { optimization: Optimization::O0, ..ModelOptions::default() };
        let model = Model::build_with(&toolchain, "dut", &verilog, &options);
        let instance = model.unwrap_or_else(|error| panic!("{error}\n{verilog}")).instance();
        Twin { instance, handles: Vec::new(), words: Vec::new() }
    }

    /// Sets the inputs as the block has them, and lets them take effect.
    pub(super) fn follow(&mut self, ports: &[Port]) {
        if self.handles.is_empty() {
            let handle = |port: &Port| self.instance.any_port(&port.name);
            let handles = ports.iter().map(handle).collect::<Result<_, _>>();
            self.handles = handles.unwrap_or_else(|error| panic!("{error}"));
        }
        for (port, &handle) in ports.iter().zip(&self.handles).filter(|(port, _)| port.is_input) {
            self.instance.write_words(handle, &port.value.to_u32_digits());
        }
        self.instance.eval();
    }

    /// Finds the outputs in which block and Verilog differ; says so in words.
    pub(super) fn differences(&mut self, ports: &[Port]) -> Vec<String> {
        let mut differences = Vec::new();
        for (port, &handle) in ports.iter().zip(&self.handles).filter(|(port, _)| !port.is_input) {
            self.words.resize(handle.words(), 0);
            self.instance.read_words(handle, &mut self.words);
            let value = BigUint::from_slice(&self.words);
            if value != port.value {
                differences.push(format!("{}: Rust {:x}, Verilog {value:x}", port.name, port.value));
            }
        }
        differences
    }
}
