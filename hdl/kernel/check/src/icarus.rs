//! A recording against its Verilog in Icarus, which knows unknown values.
use crate::recording::{CLOCK, Difference, Differences, Recording};
use crate::tools::{run, scratch};
use num_bigint::BigUint;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const INSTALL: &str = "`apt install iverilog`";

/// Replays a recording, and reports the first difference of each output; an unknown bit is one.
///
/// # Panics
///
/// When Icarus is missing or refuses the Verilog.
pub fn icarus(verilog: &str, recording: &Recording) -> Vec<Difference> {
    let folder = scratch();
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("a scratch folder is writable");
    };
    let mut stimulus = String::new();
    for cycle in &recording.cycles {
        writeln!(stimulus, "{:x}", packed(&recording.inputs, &cycle.inputs))
            .expect("a String takes any text");
    }
    write("stimulus.hex", &stimulus);
    write("dut.v", verilog);
    write("bench.v", &bench(recording));
    let arguments = ["-g2005", "-o", "bench.vvp", "-s", "bench", "bench.v", "dut.v"];
    let compiled = run(folder.path(), Path::new("iverilog"), &arguments, INSTALL);
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "Icarus refuses `{}`:\n{errors}\n{verilog}", recording.name);
    let output = run(folder.path(), Path::new("vvp"), &["-n", "bench.vvp"], INSTALL);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('=')).collect();
    assert_eq!(lines.len(), recording.cycles.len(), "Icarus stopped early: {text}");
    let mut differences = Differences::new(recording, "Icarus");
    for (index, (line, cycle)) in lines.iter().zip(&recording.cycles).enumerate() {
        let values = line[1..].split(' ').zip(&cycle.outputs).enumerate();
        for (number, (actual, expected)) in values {
            if BigUint::parse_bytes(actual.as_bytes(), 16).as_ref() != Some(expected) {
                differences.note(index, number, actual.into());
            }
        }
    }
    differences.first_of_each()
}

fn total(ports: &[(String, usize)]) -> usize {
    ports.iter().map(|(_, width)| width).sum()
}

/// All values in one number, the first most significant.
fn packed(ports: &[(String, usize)], values: &[BigUint]) -> BigUint {
    ports.iter().zip(values).fold(BigUint::default(), |number, ((_, width), value)| number << *width | value)
}

/// Applies one line of the stimulus a cycle, and prints the outputs before the clock rises.
fn bench(recording: &Recording) -> String {
    let mut names = Vec::new();
    let mut text = String::from("module bench;\n");
    let mut declare = |kind: &str, ports: &[(String, usize)]| {
        for (name, width) in ports {
            writeln!(text, "    {kind} [{}:0] {name};", width - 1).expect("a String takes any text");
            names.push(format!(".{name}({name})"));
        }
    };
    declare("reg ", &recording.inputs);
    declare("wire", &recording.outputs);
    if recording.has_clock {
        text += "    reg clock = 0;\n";
        names.push(format!(".{CLOCK}({CLOCK})"));
    }
    let list = |ports: &[(String, usize)]| {
        ports.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let formats = vec!["%h"; recording.outputs.len()].join(" ");
    let tick = if recording.has_clock { "clock = 1; #1 clock = 0; #1;" } else { ";" };
    let apply = if recording.inputs.is_empty() {
        String::new()
    } else {
        format!("{{{}}} = stimulus[cycle];", list(&recording.inputs))
    };
    let (module, count) = (&recording.name, recording.cycles.len());
    write!(
        text,
        "    {module} dut ({connections});
    integer cycle;
    reg [{last}:0] stimulus [0:{last_cycle}];
    initial begin
        $readmemh(\"stimulus.hex\", stimulus);
        for (cycle = 0; cycle < {count}; cycle = cycle + 1) begin
            {apply}
            #1 $display(\"={formats}\", {outputs});
            {tick}
        end
        $finish;
    end
endmodule
",
        connections = names.join(", "),
        last = total(&recording.inputs).max(1) - 1,
        last_cycle = count.max(1) - 1,
        outputs = list(&recording.outputs),
    )
    .expect("a String takes any text");
    text
}
