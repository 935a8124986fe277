use super::*;
use rnic_stimulus::chance::Delay;

/// A slave of one register that answers some cycles after it has everything.
#[derive(Default)]
struct Slave {
    latency: u32,
    response: u8,
    address: Option<u32>,
    data: Option<(u64, u8)>,
    is_read: bool,
    wait: u32,
    value: u64,
}

impl Slave {
    fn shows(&self) -> FromSlave {
        let is_ready = self.wait == 0;
        FromSlave {
            awready: self.address.is_none(),
            arready: self.address.is_none(),
            wready: self.data.is_none(),
            write_answer: (is_ready && !self.is_read && self.address.is_some() && self.data.is_some())
                .then_some(self.response),
            read_answer: (is_ready && self.is_read && self.address.is_some())
                .then_some((self.value, self.response)),
        }
    }

    fn edge(&mut self, shown: &FromSlave, to: &ToSlave) {
        let is_taken =
            (shown.write_answer.is_some() && to.bready) || (shown.read_answer.is_some() && to.rready);
        if is_taken {
            if let Some((value, _)) = self.data.take() {
                self.value = value;
            }
            self.address = None;
        }
        self.wait = self.wait.saturating_sub(1);
        if (to.awvalid || to.arvalid) && self.address.is_none() && !is_taken {
            self.address = Some(to.address);
            self.is_read = to.arvalid;
            self.wait = self.latency;
        }
        if to.wvalid && self.data.is_none() && !is_taken {
            self.data = Some((to.data, to.strobe));
            self.wait = self.latency;
        }
    }
}

struct Bench {
    registers: Registers,
    options: HostOptions,
    slave: Slave,
    log: Log,
    now_ps: u64,
}

impl Bench {
    fn new(options: HostOptions, latency: u32) -> Bench {
        Bench {
            registers: Registers::new(Seed(1), "host"),
            options,
            slave: Slave { latency, ..Slave::default() },
            log: Log::new("card0"),
            now_ps: 0,
        }
    }

    fn access(&mut self, operation: Operation) -> Result<u64, AccessError> {
        let access = RegisterAccess { bar: Bar::Doorbells, offset: 0x1018, operation };
        let ticket = self.registers.start(self.now_ps, access, false, &self.options);
        for _ in 0..2000 {
            if let Some(answer) = self.registers.take_answer(self.now_ps, ticket) {
                return answer;
            }
            self.cycle();
        }
        panic!("an access ends")
    }

    fn cycle(&mut self) {
        self.now_ps += 4000;
        let shown = self.slave.shows();
        let to = *self.registers.drives();
        self.slave.edge(&shown, &to);
        self.registers.cycle(self.now_ps, &shown, &self.options, &mut self.log);
    }
}

fn hostile() -> HostOptions {
    HostOptions {
        register_stall: 0.6,
        register_latency: Delay::Uniform { min_ps: 0, max_ps: 50_000 },
        ..HostOptions::IDEAL
    }
}

#[test]
fn what_is_written_is_read_back_however_the_bus_stalls() {
    for options in [HostOptions::IDEAL, hostile()] {
        let mut bench = Bench::new(options, 3);
        for value in 1..50 {
            assert_eq!(bench.access(Operation::Write { value, strobe: 0xff }), Ok(0));
            assert_eq!(bench.access(Operation::Read), Ok(value));
        }
        assert_eq!(bench.log.violations(), []);
        assert_eq!(bench.registers.total(), 98);
    }
}

#[test]
fn a_slave_that_is_too_slow_is_seen_and_one_that_is_just_in_time_is_not() {
    for (latency, is_good) in [(ANSWER_CYCLES_MAX - 1, true), (ANSWER_CYCLES_MAX + 2, false)] {
        let mut bench = Bench::new(HostOptions::IDEAL, latency);
        let answer = bench.access(Operation::Read);
        assert_eq!(answer.is_ok(), is_good, "{answer:?}");
        assert_eq!(bench.log.violations().is_empty(), is_good);
        assert!(bench.log.take().iter().all(|violation| violation.rule == Rule::Answer));
    }
}

#[test]
fn refusals_are_told_and_posted_ones_are_kept() {
    let mut bench = Bench::new(HostOptions::IDEAL, 0);
    bench.slave.response = 2;
    assert!(matches!(bench.access(Operation::Read), Err(AccessError::Refused { response: 2, .. })));
    let operation = Operation::Write { value: 1, strobe: 1 };
    let access = RegisterAccess { bar: Bar::Registers, offset: 8, operation };
    bench.registers.start(0, access, true, &HostOptions::IDEAL);
    for _ in 0..20 {
        bench.cycle();
    }
    assert_eq!(bench.registers.take_failures(), [AccessError::Refused { access, response: 2 }]);
    let outside = RegisterAccess { bar: Bar::Registers, offset: 0x4000, operation };
    bench.registers.start(0, outside, true, &HostOptions::IDEAL);
    assert_eq!(bench.registers.failures(), [AccessError::Outside { access: outside }]);
}

#[test]
fn an_answer_without_a_question_is_seen() {
    let mut bench = Bench::new(HostOptions::IDEAL, 0);
    let from = FromSlave { write_answer: Some(0), ..FromSlave::default() };
    bench.registers.cycle(4000, &from, &bench.options, &mut bench.log);
    assert_eq!(bench.log.take()[0].rule, Rule::Answer);
}
