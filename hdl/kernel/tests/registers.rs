//! Registers in the stock simulation of rust-hdl.
#![allow(missing_docs, reason = "blocks of a test")]
use rnic_kernel::prelude::*;

/// Counts while enabled, and remembers the last two counts.
#[derive(LogicBlock, Registers)]
struct Counter {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub enable: Signal<In, Bit>,
    pub count: Signal<Out, Bits<8>>,
    pub oldest: Signal<Out, Bits<8>>,
    value: Reg<Bits<8>>,
    history: [DFF<Bits<8>>; 2],
}

impl Default for Counter {
    fn default() -> Self {
        Counter {
            clock: Signal::default(),
            reset: Signal::default(),
            enable: Signal::default(),
            count: Signal::default(),
            oldest: Signal::default(),
            value: Reg::new(bits(7)),
            history: Default::default(),
        }
    }
}

impl Logic for Counter {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.count.next = self.value.q.val();
        self.oldest.next = self.history[1].q.val();
        if self.enable.val() {
            self.value.d.next = self.value.q.val() + 1;
            self.history[0].d.next = self.value.q.val();
            self.history[1].d.next = self.history[0].q.val();
        }
    }
}

#[test]
fn registers_reset_hold_and_shift_in_the_stock_simulation() {
    let mut simulation: Simulation<Counter> = Simulation::default();
    simulation.add_clock(5, |counter: &mut Box<Counter>| counter.clock.next = !counter.clock.val());
    simulation.add_testbench(|mut sim: Sim<Counter>| {
        let mut counter = sim.init()?;
        sim_assert_eq!(sim, counter.count.val(), 7, counter);
        counter.enable.next = true;
        wait_clock_cycles!(sim, clock, counter, 3);
        sim_assert_eq!(sim, counter.count.val(), 10, counter);
        sim_assert_eq!(sim, counter.oldest.val(), 8, counter);
        counter.enable.next = false;
        wait_clock_cycles!(sim, clock, counter, 5);
        sim_assert_eq!(sim, counter.count.val(), 10, counter);
        // The register without reset keeps what it has.
        counter.reset.next = true;
        wait_clock_cycles!(sim, clock, counter, 1);
        sim_assert_eq!(sim, counter.count.val(), 7, counter);
        sim_assert_eq!(sim, counter.oldest.val(), 8, counter);
        sim.done(counter)
    });
    let mut counter = Counter::default();
    counter.connect_all();
    simulation.run(Box::new(counter), 10_000).expect("the test bench ends without a complaint");
}

#[test]
fn each_register_is_claimed_once() {
    let mut counter = Counter::default();
    counter.connect_all();
    check_all(&counter).expect("rust-hdl finds every signal driven");
}

#[test]
fn reset_value_is_that_of_the_constructor() {
    let verilog = rnic_kernel::generate(&mut Counter::default(), "counter").expect("the block is complete");
    assert!(verilog.contains("value = 8'h7;"), "{verilog}");
    assert!(verilog.contains("value <= 8'h7;"), "{verilog}");
}
