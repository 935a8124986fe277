//! Measures what a cycle of a wide model costs, with and without traffic on its ports.
//! Run it with `cargo run --release -p verilator-sys --example port_traffic`.

use std::hint::black_box;
use std::time::Instant;
use verilator_sys::{Error, Model, ModelOptions, Optimization};

const CYCLES: u64 = 5_000_000;

const ECHO: &str = "
module echo (input wire clock, input wire [599:0] a, input wire [599:0] b,
             output reg [599:0] x, output reg [599:0] y);
    always @(posedge clock) begin
        x <= a ^ b;
        y <= {a[299:0], b[599:300]};
    end
endmodule
";

fn main() -> Result<(), Error> {
    let options = ModelOptions { optimization: Optimization::O2, ..ModelOptions::default() };
    let mut echo = Model::build("echo", ECHO, &options)?.instance();
    let clock = echo.port::<u8>("clock")?;
    let [a, b, x, y] = ["a", "b", "x", "y"].map(|name| echo.port::<[u32; 19]>(name));
    let (a, b, x, y) = (a?, b?, x?, y?);
    let report = |what: &str, start: Instant| {
        let nanoseconds = start.elapsed().as_secs_f64() * 1e9 / CYCLES as f64;
        println!("{what:<56} {nanoseconds:6.1} ns a cycle");
    };

    let start = Instant::now();
    echo.steps(clock, CYCLES);
    report("all cycles in one call", start);

    let start = Instant::now();
    for _ in 0..CYCLES {
        echo.step(clock);
    }
    report("one call a cycle", start);

    let (mut left, mut right) = ([1u32; 19], [2u32; 19]);
    let start = Instant::now();
    for cycle in 0..CYCLES {
        left[(cycle % 18) as usize] ^= cycle as u32;
        right[(cycle % 17) as usize] ^= cycle as u32;
        echo.set(a, left);
        echo.set(b, right);
        echo.step(clock);
        black_box((echo.get(x), echo.get(y)));
    }
    report("one call a cycle, two ports of 600 bits in, two out", start);
    Ok(())
}
