//! Models that are built, loaded and run. Every test has a cache of its own where it counts builds.

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use verilator_sys::{Direction, Error, Model, ModelOptions, Optimization, Toolchain};

const COUNTER: &str = "
module counter (input wire clock, input wire reset, input wire [7:0] by, output reg [7:0] count);
    initial count = 8'h0;
    always @(posedge clock) if (reset) count <= 8'h0; else count <= count + by;
endmodule
";

/// One port of each storage, each through a register and, inverted, without one.
const WIDE: &str = "
module wide (
    input  wire clock,
    input  wire [599:0] a, output reg [599:0] a_q, output wire [599:0] a_n,
    input  wire [63:0]  b, output reg [63:0]  b_q, output wire [63:0]  b_n,
    input  wire [16:0]  c, output reg [16:0]  c_q, output wire [16:0]  c_n,
    input  wire [8:0]   d, output reg [8:0]   d_q, output wire [8:0]   d_n,
    input  wire [64:0]  e__f, output wire [64:0] e_n
);
    assign a_n = ~a;
    assign b_n = ~b;
    assign c_n = ~c;
    assign d_n = ~d;
    assign e_n = ~e__f;
    always @(posedge clock) begin
        a_q <= a;
        b_q <= b;
        c_q <= c;
        d_q <= d;
    end
endmodule
";

fn options() -> ModelOptions {
    ModelOptions { optimization: Optimization::O0, ..ModelOptions::default() }
}

fn cached_in(folder: &Path) -> ModelOptions {
    ModelOptions { cache_directory: Some(folder.to_path_buf()), ..options() }
}

fn build(top: &str, verilog: &str) -> Model {
    Model::build(top, verilog, &options()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn two_models_with_two_instances_each_are_independent() {
    let (counter, wide) = (build("counter", COUNTER), build("wide", WIDE));
    let mut counters = [counter.instance(), counter.instance()];
    let mut wides = [wide.instance(), wide.instance()];
    let clock = counter.port::<u8>("clock").unwrap();
    let by = counter.port::<u8>("by").unwrap();
    let count = counter.port::<u8>("count").unwrap();
    for (index, instance) in counters.iter_mut().enumerate() {
        instance.set(by, index as u8 + 1);
    }
    counters[0].step(clock);
    counters[1].steps(clock, 5);
    assert_eq!(counters.each_ref().map(|instance| instance.get(count)), [1, 10]);

    let wide_clock = wide.port::<u8>("clock").unwrap();
    let (b, b_q) = (wide.port::<u64>("b").unwrap(), wide.port::<u64>("b_q").unwrap());
    for (index, instance) in wides.iter_mut().enumerate() {
        instance.set(b, u64::MAX - index as u64);
        instance.step(wide_clock);
    }
    assert_eq!(wides.each_ref().map(|instance| instance.get(b_q)), [u64::MAX, u64::MAX - 1]);
    drop(counters);
    wides[0].step(wide_clock);
    assert_eq!(wides[0].get(b_q), u64::MAX);
}

#[test]
fn ports_of_every_storage_pass_values_through() {
    let mut wide = build("wide", WIDE).instance();
    let clock = wide.port::<u8>("clock").unwrap();
    let a = wide.port::<[u32; 19]>("a").unwrap();
    let a_q = wide.port::<[u32; 19]>("a_q").unwrap();
    let a_n = wide.port::<[u32; 19]>("a_n").unwrap();
    let mut value: [u32; 19] = std::array::from_fn(|word| 0x9e37_79b9u32.wrapping_mul(word as u32 + 1));
    value[18] &= 0xff_ffff;
    wide.set(a, value);
    wide.step(clock);
    assert_eq!(wide.get(a_q), value);
    let mut inverted = value.map(|word| !word);
    inverted[18] &= 0xff_ffff;
    assert_eq!(wide.view(a_n), &inverted);

    wide.view_mut(a)[3] = 7;
    wide.eval();
    assert_eq!(wide.view(a_n)[3], !7);
    assert_eq!(wide.view(a_q)[3], value[3], "no clock edge has passed");

    let (c, c_n) = (wide.port::<u32>("c").unwrap(), wide.port::<u32>("c_n").unwrap());
    let (d, d_n) = (wide.port::<u16>("d").unwrap(), wide.port::<u16>("d_n").unwrap());
    wide.set(c, 0x1_2345);
    wide.set(d, 0x1f0);
    wide.eval();
    assert_eq!((wide.get(c_n), wide.get(d_n)), (0xe_dcba & 0x1_ffff, 0x00f));
}

#[test]
fn words_reach_ports_of_every_width() {
    let mut wide = build("wide", WIDE).instance();
    for (input, output, width) in
        [("a", "a_n", 600), ("b", "b_n", 64), ("c", "c_n", 17), ("d", "d_n", 9), ("e__f", "e_n", 65)]
    {
        let (input, output) = (wide.any_port(input).unwrap(), wide.any_port(output).unwrap());
        assert_eq!((input.width(), output.words()), (width, (width as usize).div_ceil(32)));
        wide.write_words(input, &[0x155]);
        wide.eval();
        let mut words = [0xdead_beefu32; 20];
        wide.read_words(output, &mut words);
        for (index, word) in words.iter().enumerate() {
            let value = if index == 0 { 0x155 } else { 0 };
            let bits = (width as usize).saturating_sub(32 * index).min(32);
            let mask = ((1u64 << bits) - 1) as u32;
            assert_eq!(*word, !value & mask, "word {index} of {width} bits");
        }
    }
}

#[test]
fn distances_of_nested_shifts_do_not_wrap() {
    let verilog = "
module nested (input wire [63:0] a, input wire [5:0] b, input wire [5:0] c,
               output wire [63:0] right, output wire [63:0] left);
    assign right = (a >> b) >> c;
    assign left = (a << b) << c;
endmodule
";
    let mut nested = build("nested", verilog).instance();
    let [a, right, left] = ["a", "right", "left"].map(|name| nested.port::<u64>(name).unwrap());
    let [b, c] = ["b", "c"].map(|name| nested.port::<u8>(name).unwrap());
    nested.set(a, u64::MAX);
    for (first, second) in [(3, 4), (40, 20), (40, 40), (63, 63)] {
        nested.set(b, first);
        nested.set(c, second);
        nested.eval();
        let expected = (u64::MAX >> first >> second, u64::MAX << first << second);
        assert_eq!((nested.get(right), nested.get(left)), expected, "by {first} and {second}");
    }
}

#[test]
fn the_port_list_says_names_widths_and_directions() {
    let model = build("wide", WIDE);
    let text: Vec<_> = model
        .ports()
        .iter()
        .map(|port| (port.name(), port.width(), port.direction() == Direction::Input))
        .collect();
    assert_eq!(text.len(), 15);
    for expected in [("clock", 1, true), ("a", 600, true), ("a_q", 600, false), ("e__f", 65, true)] {
        assert!(text.contains(&expected), "{expected:?} is missing in {text:?}");
    }
}

#[test]
fn a_wrong_name_or_type_is_an_error_that_says_the_right_one() {
    let model = build("counter", COUNTER);
    let message = model.port::<u8>("cuont").unwrap_err().to_string();
    assert!(message.contains("no port `cuont`") && message.contains("clock, reset, by, count"), "{message}");
    let message = model.port::<u16>("count").unwrap_err().to_string();
    assert_eq!(message, "port `count` of `counter` has 8 bits and is a `u8`, not a `u16`");
    let message = build("wide", WIDE).port::<[u32; 18]>("a").unwrap_err().to_string();
    assert_eq!(message, "port `a` of `wide` has 600 bits and is a `[u32; 19]`, not a `[u32; 18]`");
}

#[test]
#[should_panic(expected = "bits beyond the 1 bits of port `reset`")]
fn a_value_wider_than_its_port_panics() {
    let mut instance = build("counter", COUNTER).instance();
    let reset = instance.port::<u8>("reset").unwrap();
    instance.set(reset, 2);
}

#[test]
#[should_panic(expected = "port `count` is an output")]
fn driving_an_output_panics() {
    let mut instance = build("counter", COUNTER).instance();
    let count = instance.port::<u8>("count").unwrap();
    instance.set(count, 2);
}

#[test]
#[should_panic(expected = "belongs to another model")]
fn a_handle_of_another_model_panics() {
    let clock = build("counter", COUNTER).port::<u8>("clock").unwrap();
    build("wide", WIDE).instance().step(clock);
}

#[test]
fn an_instance_may_move_to_another_thread() {
    let model = build("counter", COUNTER);
    let (clock, by) = (model.port::<u8>("clock").unwrap(), model.port::<u8>("by").unwrap());
    let count = model.port::<u8>("count").unwrap();
    let workers: Vec<_> = (1..=4u8)
        .map(|step| {
            let mut instance = model.instance();
            thread::spawn(move || {
                instance.set(by, step);
                instance.steps(clock, 10);
                instance
            })
        })
        .collect();
    for (step, worker) in (1..=4).zip(workers) {
        assert_eq!(worker.join().unwrap().get(count), 10 * step);
    }
}

#[test]
fn a_cached_model_is_not_built_again_and_a_damaged_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let options = cached_in(folder.path());
    let first = Model::build("counter", COUNTER, &options).unwrap();
    assert!(!first.is_from_cache());
    let built = fs::metadata(first.library()).unwrap().modified().unwrap();
    let second = Model::build("counter", COUNTER, &options).unwrap();
    assert!(second.is_from_cache());
    assert_eq!(fs::metadata(second.library()).unwrap().modified().unwrap(), built);

    let other = COUNTER.replace("count + by", "count - by");
    assert!(!Model::build("counter", &other, &options).unwrap().is_from_cache(), "another text");

    // Replaced, not overwritten: this process still has the old file mapped.
    let path = first.library().to_path_buf();
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"no library").unwrap();
    let third = Model::build("counter", COUNTER, &options).unwrap();
    assert!(!third.is_from_cache());
    let mut instance = third.instance();
    instance.step(third.port::<u8>("clock").unwrap());
}

#[test]
fn parallel_builds_of_one_model_compile_once() {
    let folder = tempfile::tempdir().unwrap();
    let options = cached_in(folder.path());
    let barrier = Barrier::new(4);
    let hits: Vec<bool> = thread::scope(|scope| {
        let build = || {
            barrier.wait();
            Model::build("counter", COUNTER, &options).unwrap().is_from_cache()
        };
        let builders: Vec<_> = (0..4).map(|_| scope.spawn(build)).collect();
        builders.into_iter().map(|builder| builder.join().unwrap()).collect()
    });
    assert_eq!(hits.iter().filter(|&&hit| !hit).count(), 1);
    let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with("scratch")));
}

#[test]
fn a_trace_is_written_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let traced = ModelOptions { trace: true, ..options() };
    let mut instance = Model::build("counter", COUNTER, &traced).unwrap().instance();
    let (clock, by) = (instance.port::<u8>("clock").unwrap(), instance.port::<u8>("by").unwrap());
    instance.set(by, 3);
    instance.step(clock);
    let paths = [folder.path().join("first.fst"), folder.path().join("second.fst")];
    let mut times = 0..;
    for path in &paths {
        instance.trace_open(path).unwrap();
        for time in times.by_ref().take(10) {
            instance.step(clock);
            instance.trace_dump(time);
        }
        instance.trace_close();
    }
    for path in &paths {
        let bytes = fs::read(path).unwrap();
        // The first block of an FST file is its header: type 0, then its length of 329 bytes.
        assert_eq!(bytes[..9], [0, 0, 0, 0, 0, 0, 0, 1, 73], "{}", path.display());
        assert!(bytes.len() > 329);
    }
    let missing = instance.trace_open(folder.path().join("no/such/folder.fst")).unwrap_err();
    assert!(matches!(missing, Error::TraceFile { .. }));
}

#[test]
fn a_trace_of_an_untraced_model_is_an_error() {
    let message = build("counter", COUNTER).instance().trace_open("never.fst").unwrap_err().to_string();
    assert!(message.contains("`counter` was built without traces"), "{message}");
}

#[test]
fn verilog_that_verilator_refuses_is_an_error_with_its_words() {
    let message = Model::build("top", "module top (output wire x); assign x = y z; endmodule", &options())
        .unwrap_err()
        .to_string();
    assert!(message.contains("Verilator refuses `top`") && message.contains("syntax error"), "{message}");
    let message = Model::build("nowhere", COUNTER, &options()).unwrap_err().to_string();
    assert!(message.contains("nowhere"), "{message}");
}

#[test]
fn lint_warnings_stop_no_build_and_are_found_by_lint() {
    let verilog = "module narrow (input wire [7:0] a, output wire [3:0] x); assign x = a; endmodule";
    build("narrow", verilog);
    let toolchain = Toolchain::find().unwrap();
    let warnings = toolchain.lint("narrow", verilog, &[]).unwrap();
    assert!(warnings.contains("WIDTHTRUNC"), "{warnings}");
    assert_eq!(toolchain.lint("counter", COUNTER, &[]).unwrap(), "");
}

#[test]
fn a_missing_compiler_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let surroundings = verilator_sys::Surroundings {
        cxx: Some("no-such-compiler -v".into()),
        ..verilator_sys::Surroundings::of_this_process()
    };
    let toolchain = Toolchain::find_in(&surroundings).unwrap();
    let error = Model::build_with(&toolchain, "counter", COUNTER, &cached_in(folder.path())).unwrap_err();
    assert!(error.to_string().contains("cannot run `no-such-compiler`"), "{error}");
}

/// A compiler whose headers can't be moved, such as Clang.
#[test]
fn a_compiler_that_is_not_gcc_compiles_without_compiled_headers() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let compiler = folder.path().join("compiler");
    let script = "#!/bin/sh\ncase \"$*\" in\n*-dM*) echo '#define __clang__ 1' ;;\n*-include*|*c++-header*) exit 1 ;;\n\
                  *) exec g++ \"$@\" ;;\nesac\n";
    fs::write(&compiler, script).unwrap();
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
    let surroundings = verilator_sys::Surroundings {
        cxx: Some(compiler.display().to_string()),
        ..verilator_sys::Surroundings::of_this_process()
    };
    let toolchain = Toolchain::find_in(&surroundings).unwrap();
    let model = Model::build_with(&toolchain, "counter", COUNTER, &cached_in(folder.path())).unwrap();
    assert_eq!(model.ports().len(), 4);
}
