//! The Verilog of a block, run beside it.
//!
//! To read the bits of a wide port takes long, so only ports that have changed are read.
use super::ports::see_ports;
use num_bigint::BigUint;
use rnic_kernel::ports::{Port, ports_of, put_bits};
use rnic_kernel::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use verilator_sys::{AnyPort, Instance, Model, ModelOptions, Optimization, Toolchain};

/// What the block was printed as, verilated.
pub(super) struct Twin {
    instance: Instance,
    /// The ports, in the order of the block.
    ports: Vec<Watched>,
    words: Vec<u32>,
}

/// A port and what the block has on it.
struct Watched {
    name: String,
    is_input: bool,
    kind: TypeKind,
    handle: AnyPort,
    /// It may have changed since it was read.
    is_old: bool,
    value: Vec<u32>,
}

impl Twin {
    /// Generates and verilates the Verilog of a block.
    ///
    /// # Panics
    /// When the block cannot be generated, when Verilator warns about it, or when there is no Verilator.
    pub(super) fn of<B: Block + Registers>(block: &mut B) -> Self {
        let verilog = rnic_kernel::generate(block, "dut").unwrap_or_else(|error| panic!("{error:?}"));
        let toolchain = Toolchain::find().unwrap_or_else(|error| panic!("{error}"));
        // A test makes a bench for each kind of stall; their text is the same.
        static LINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let is_linted = LINTED.lock().unwrap_or_else(PoisonError::into_inner).contains(&verilog);
        if !is_linted {
            // One text holds all modules, so no file can be named like each of them.
            let complaints = toolchain
                .lint("dut", &verilog, &["-Wno-DECLFILENAME"])
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(complaints.is_empty(), "{complaints}\n{verilog}");
            LINTED.lock().unwrap_or_else(PoisonError::into_inner).insert(verilog.clone());
        }
        // Tests run a model for a few thousand cycles, so its compilation is what takes time.
        let options = ModelOptions { optimization: Optimization::O0, ..ModelOptions::default() };
        let model = Model::build_with(&toolchain, "dut", &verilog, &options);
        let instance = model.unwrap_or_else(|error| panic!("{error}\n{verilog}")).instance();
        let watch = |port: Port| {
            let handle = instance.any_port(&port.name).unwrap_or_else(|error| panic!("{error}"));
            let Port { name, is_input, kind, .. } = port;
            Watched { name, is_input, kind, handle, is_old: true, value: vec![0; handle.words()] }
        };
        let ports: Vec<_> = ports_of(block).into_iter().map(watch).collect();
        let mut seen = 0;
        see_ports(block, |_, _| seen += 1);
        assert_eq!(seen, ports.len(), "ports are the public fields of a block");
        Twin { instance, ports, words: Vec::new() }
    }

    /// Takes note of the ports that have changed in the last pass over the block.
    pub(super) fn note(&mut self, block: &dyn Registers) {
        see_ports(block, |place, atom| self.ports[place].is_old |= atom.changed());
    }

    /// Sets the inputs as the block has them, and lets them take effect.
    pub(super) fn follow(&mut self, block: &dyn Registers) {
        if !self.ports.iter().any(|port| port.is_old) {
            return;
        }
        see_ports(block, |place, atom| {
            let port = &mut self.ports[place];
            if std::mem::take(&mut port.is_old) {
                port.value.fill(0);
                put_bits(&atom.vcd(), &port.kind, &mut port.value, &mut 0);
                if port.is_input {
                    self.instance.write_words(port.handle, &port.value);
                }
            }
        });
        self.instance.eval();
    }

    /// Finds the outputs in which block and Verilog differ; says so in words.
    pub(super) fn differences(&mut self) -> Vec<String> {
        let mut differences = Vec::new();
        for port in self.ports.iter().filter(|port| !port.is_input) {
            self.words.resize(port.handle.words(), 0);
            self.instance.read_words(port.handle, &mut self.words);
            if self.words != port.value {
                let [rust, verilog] = [&port.value, &self.words].map(|words| BigUint::from_slice(words));
                differences.push(format!("{}: Rust {rust:x}, Verilog {verilog:x}", port.name));
            }
        }
        differences
    }
}
