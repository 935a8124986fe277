//! Registers in the stock simulation of rust-hdl.
#![allow(missing_docs, reason = "blocks of a test")]
use rnic_kernel::prelude::*;

/// Counts while enabled, and remembers the last two counts.
#[derive(LogicBlock, Registers, Construct)]
struct Counter {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub enable: Signal<In, Bit>,
    pub count: Signal<Out, Bits<8>>,
    pub oldest: Signal<Out, Bits<8>>,
    #[init(Reg::new(bits(7)))]
    value: Reg<Bits<8>>,
    history: [DFF<Bits<8>>; 2],
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

/// Has no clock.
#[derive(Default, LogicBlock, Registers)]
struct Inverter {
    pub a: Signal<In, Bit>,
    pub x: Signal<Out, Bit>,
}

impl Logic for Inverter {
    #[kernel]
    fn update(&mut self) {
        self.x.next = !self.a.val();
    }
}

/// Counters in two domains, one with a reset of its own, and one that the kernel connects itself.
#[derive(LogicBlock, Registers, Construct)]
#[domain(clock = core_clock, reset = core_reset)]
struct Counters {
    pub core_clock: Signal<In, Clock>,
    pub core_reset: Signal<In, Bit>,
    pub other_clock: Signal<In, Clock>,
    pub enable: Signal<In, Bit>,
    pub counts: [Signal<Out, Bits<8>>; 40],
    pub of_slow: Signal<Out, Bits<8>>,
    pub of_stopped: Signal<Out, Bits<8>>,
    pub of_own: Signal<Out, Bits<8>>,
    counters: [Counter; 40],
    #[domain(clock = other_clock, reset = core_reset)]
    slow: Counter,
    #[domain(reset = inverter.x)]
    stopped: Counter,
    #[domain(skip)]
    own: Counter,
    inverter: Inverter,
    #[domain(clock = other_clock)]
    seen: Reg<Bit>,
}

impl Logic for Counters {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        clock!(self, core_clock, own);
        self.own.reset.next = !self.enable.val();
        for i in 0..40 {
            self.counters[i].enable.next = self.enable.val();
            self.counts[i].next = self.counters[i].count.val();
        }
        // The last assignment wins over the domain.
        self.counters[39].reset.next = true;
        self.slow.enable.next = self.enable.val() || self.seen.q.val();
        self.stopped.enable.next = self.enable.val();
        self.own.enable.next = self.enable.val();
        self.inverter.a.next = self.enable.val();
        self.seen.d.next = self.enable.val();
        self.of_slow.next = self.slow.count.val();
        self.of_stopped.next = self.stopped.count.val();
        self.of_own.next = self.own.count.val();
    }
}

#[test]
fn children_are_in_the_domain_of_their_block_or_in_the_named_one() {
    let mut counters = Counters::default();
    let verilog = rnic_kernel::generate(&mut counters, "counters").expect("every input is driven");
    check_all(&counters).expect("rust-hdl finds every signal driven");
    let ports = |instance: &str| {
        let from = verilog.split_once(&format!(" {instance} (")).expect("the instance is there").1;
        let text = from.split_once(");").expect("it ends").0;
        text.lines()
            .map(str::trim)
            .filter(|line| line.contains(".clock(") || line.contains(".reset("))
            .collect::<String>()
    };
    assert_eq!(ports("counters_0"), ".clock(core_clock),.reset(core_reset),");
    assert_eq!(ports("counters_38"), ".clock(core_clock),.reset(core_reset),");
    assert!(!ports("counters_39").contains("core_reset"), "{}", ports("counters_39"));
    assert_eq!(ports("slow"), ".clock(other_clock),.reset(core_reset),");
    assert_eq!(ports("stopped"), ".clock(core_clock),.reset(inverter_x),");
    assert_eq!(ports("own"), ".clock(core_clock),.reset(!enable),");
    // Another clock has no reset that is not named with it.
    let seen = verilog.split("always").find(|text| text.contains("seen <= ")).expect("the register is there");
    assert!(seen.starts_with(" @(posedge other_clock)") && !seen.contains("reset"), "{seen}");
}

#[test]
fn children_run_in_the_stock_simulation() {
    let mut simulation: Simulation<Counters> = Simulation::default();
    simulation.add_clock(5, |block: &mut Box<Counters>| block.core_clock.next = !block.core_clock.val());
    simulation.add_testbench(|mut sim: Sim<Counters>| {
        let mut block = sim.init()?;
        block.enable.next = true;
        wait_clock_cycles!(sim, core_clock, block, 3);
        sim_assert_eq!(sim, block.counts[0].val(), 10, block);
        sim_assert_eq!(sim, block.counts[39].val(), 7, block);
        sim_assert_eq!(sim, block.of_stopped.val(), 10, block);
        sim_assert_eq!(sim, block.of_own.val(), 10, block);
        sim_assert_eq!(sim, block.of_slow.val(), 7, block);
        block.enable.next = false;
        wait_clock_cycles!(sim, core_clock, block, 2);
        sim_assert_eq!(sim, block.counts[0].val(), 10, block);
        sim_assert_eq!(sim, block.of_stopped.val(), 7, block);
        sim_assert_eq!(sim, block.of_own.val(), 7, block);
        sim.done(block)
    });
    let mut counters = Counters::default();
    counters.connect_all();
    simulation.run(Box::new(counters), 10_000).expect("the test bench ends without a complaint");
}
