//! A recording against its Verilog in Verilator.
use crate::recording::{CLOCK, Difference, Differences, Recording};
use num_bigint::BigUint;
use verilator_sys::{AnyPort, Model, ModelOptions, Optimization};

/// Replays a recording, and reports the first difference of each output: none is what a test wants.
///
/// # Panics
///
/// When Verilator is missing or refuses the Verilog.
pub fn verilator(verilog: &str, recording: &Recording) -> Vec<Difference> {
    let options = ModelOptions { optimization: Optimization::O0, ..ModelOptions::default() };
    let model = Model::build(&recording.name, verilog, &options).unwrap_or_else(|error| panic!("{error}"));
    let handle = |name: &str| model.any_port(name).unwrap_or_else(|error| panic!("{error}"));
    let handles = |ports: &[(String, usize)]| -> Vec<AnyPort> {
        ports
            .iter()
            .map(|(name, width)| {
                let port = handle(name);
                assert_eq!(port.width() as usize, *width, "width of `{name}` of `{}`", recording.name);
                port
            })
            .collect()
    };
    let (inputs, outputs) = (handles(&recording.inputs), handles(&recording.outputs));
    let clock = recording.has_clock.then(|| model.port::<u8>(CLOCK).expect("a clock is one bit"));
    let mut instance = model.instance();
    let mut differences = Differences::new(recording, "Verilator");
    for (index, cycle) in recording.cycles.iter().enumerate() {
        for (port, value) in inputs.iter().zip(&cycle.inputs) {
            instance.write_words(*port, &value.to_u32_digits());
        }
        instance.eval();
        for (number, (port, expected)) in outputs.iter().zip(&cycle.outputs).enumerate() {
            let mut words = vec![0; port.words()];
            instance.read_words(*port, &mut words);
            let actual = BigUint::from_slice(&words);
            if actual != *expected {
                differences.note(index, number, format!("{actual:x}"));
            }
        }
        if let Some(clock) = clock {
            instance.step(clock);
        }
    }
    differences.first_of_each()
}
