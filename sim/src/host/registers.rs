//! Register accesses of software: the master of the card's AXI4-Lite slave.
//!
//! Accesses go one after the other, each to its end. Address and data of a write come together or apart, and answers are
//! held back now and then. An access that is not answered within [`ANSWER_CYCLES_MAX`] cycles, while nobody but the card is
//! waited for, fails; design decision 5 promises that it never happens.
use super::options::HostOptions;
use crate::chance::{Seed, happens};
use crate::monitor::{Log, Rule};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use thiserror::Error;

/// Cycles within which the register slave answers, whatever card and host are doing.
pub const ANSWER_CYCLES_MAX: u32 = 64;

/// A window of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// BAR 0.
    Registers,
    /// BAR 2.
    Doorbells,
}

impl Bar {
    /// The address bits of the slave beyond those of the offset.
    fn base(self) -> u32 {
        match self {
            Bar::Registers => 0,
            Bar::Doorbells => 1 << 24,
        }
    }

    /// Size of the window.
    pub fn bytes(self) -> u64 {
        match self {
            Bar::Registers => rnic_layout::registers::BAR0_BYTES.into(),
            Bar::Doorbells => 1 << 24,
        }
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads eight bytes.
    Read,
    /// Writes those bytes whose bit in `strobe` is set.
    Write {
        /// The eight bytes, as a little-endian number.
        value: u64,
        /// One bit a byte.
        strobe: u8,
    },
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterAccess {
    /// Where.
    pub bar: Bar,
    /// Offset in the window; its low three bits do not matter to a read of eight bytes.
    pub offset: u64,
    /// What.
    pub operation: Operation,
}

/// Why an access failed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AccessError {
    /// The slave answered with an error.
    #[error("{access:?}: the slave answers {response}")]
    Refused {
        /// The access.
        access: RegisterAccess,
        /// The code on the bus.
        response: u8,
    },
    /// The slave did not answer.
    #[error("{access:?}: no answer in {ANSWER_CYCLES_MAX} cycles")]
    NoAnswer {
        /// The access.
        access: RegisterAccess,
    },
    /// There is no such place in the window.
    #[error("{access:?}: the offset is outside the window")]
    Outside {
        /// The access.
        access: RegisterAccess,
    },
}

/// Names an access until its answer is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What the slave shows before an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FromSlave {
    /// `awready`.
    pub awready: bool,
    /// `wready`.
    pub wready: bool,
    /// `bresp`, while `bvalid`.
    pub write_answer: Option<u8>,
    /// `arready`.
    pub arready: bool,
    /// `rdata` and `rresp`, while `rvalid`.
    pub read_answer: Option<(u64, u8)>,
}

/// What the slave is shown after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToSlave {
    /// `awaddr` and `araddr`.
    pub address: u32,
    /// `wdata`.
    pub data: u64,
    /// `wstrb`.
    pub strobe: u8,
    /// `awvalid`.
    pub awvalid: bool,
    /// `wvalid`.
    pub wvalid: bool,
    /// `bready`.
    pub bready: bool,
    /// `arvalid`.
    pub arvalid: bool,
    /// `rready`.
    pub rready: bool,
}

struct Waiting {
    ticket: Ticket,
    access: RegisterAccess,
    arrives_ps: u64,
    is_posted: bool,
}

/// The access that the slave is working on.
struct Active {
    waiting: Waiting,
    /// Address or data are still to be offered, in so many cycles.
    address_in: Option<u32>,
    data_in: Option<u32>,
    cycles: u32,
}

/// The master of one card.
pub struct Registers {
    random: ChaCha8Rng,
    next: u64,
    waiting: VecDeque<Waiting>,
    last_arrival_ps: u64,
    active: Option<Active>,
    drives: ToSlave,
    answers: VecDeque<(Ticket, u64, Result<u64, AccessError>)>,
    failures: Vec<AccessError>,
    accesses: u64,
}

impl Registers {
    /// Makes a master without accesses.
    pub fn new(seed: Seed, name: &str) -> Registers {
        Registers {
            random: seed.stream(&format!("{name}/registers")),
            next: 0,
            waiting: VecDeque::new(),
            last_arrival_ps: 0,
            active: None,
            drives: ToSlave::default(),
            answers: VecDeque::new(),
            failures: Vec::new(),
            accesses: 0,
        }
    }

    /// Starts an access. A posted one has no answer that could be taken: if it fails, that is kept in
    /// [`take_failures`](Self::take_failures).
    pub fn start(
        &mut self,
        now_ps: u64,
        access: RegisterAccess,
        is_posted: bool,
        options: &HostOptions,
    ) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        if access.offset >= access.bar.bytes() {
            self.finish(ticket, now_ps, is_posted, Err(AccessError::Outside { access }));
            return ticket;
        }
        let latency_ps = options.register_latency.draw_ps(&mut self.random);
        self.last_arrival_ps = self.last_arrival_ps.max(now_ps + latency_ps);
        self.waiting.push_back(Waiting { ticket, access, arrives_ps: self.last_arrival_ps, is_posted });
        ticket
    }

    fn finish(&mut self, ticket: Ticket, at_ps: u64, is_posted: bool, result: Result<u64, AccessError>) {
        match result {
            Err(error) if is_posted => self.failures.push(error),
            _ if is_posted => {}
            _ => self.answers.push_back((ticket, at_ps, result)),
        }
    }

    /// The answer of an access, if it has come; a write's is zero.
    pub fn take_answer(&mut self, now_ps: u64, ticket: Ticket) -> Option<Result<u64, AccessError>> {
        let index = self.answers.iter().position(|answer| answer.0 == ticket && answer.1 <= now_ps)?;
        self.answers.remove(index).map(|answer| answer.2)
    }

    /// Posted writes that failed, since the last call.
    pub fn take_failures(&mut self) -> Vec<AccessError> {
        std::mem::take(&mut self.failures)
    }

    /// Posted writes that failed and that nobody has taken.
    pub fn failures(&self) -> &[AccessError] {
        &self.failures
    }

    /// Accesses that the slave has not answered.
    pub fn under_way(&self) -> usize {
        self.waiting.len() + usize::from(self.active.is_some())
    }

    /// Accesses that the slave has answered.
    pub fn total(&self) -> u64 {
        self.accesses
    }

    /// What the slave is shown.
    pub fn drives(&self) -> &ToSlave {
        &self.drives
    }

    /// Whether there is nothing to do: no access, and no answer that should not be there.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.active.is_none() && self.waiting.is_empty()
    }

    /// One cycle. Returns the access that begins, if one does.
    pub fn cycle(
        &mut self,
        now_ps: u64,
        from: &FromSlave,
        options: &HostOptions,
        log: &mut Log,
    ) -> Option<RegisterAccess> {
        self.advance(now_ps, from, options, log);
        let mut begins = None;
        if self.active.is_none()
            && let Some(waiting) = self.waiting.pop_front_if(|waiting| waiting.arrives_ps <= now_ps)
        {
            begins = Some(waiting.access);
            self.begin(waiting, options);
        }
        self.drive(options);
        begins
    }

    fn begin(&mut self, waiting: Waiting, options: &HostOptions) {
        let is_write = matches!(waiting.access.operation, Operation::Write { .. });
        let mut skew = || {
            if happens(&mut self.random, options.register_stall) { self.random.random_range(0..8) } else { 0 }
        };
        let address_in = Some(skew());
        let data_in = is_write.then(&mut skew);
        self.drives.address = waiting.access.bar.base() | waiting.access.offset as u32;
        if let Operation::Write { value, strobe } = waiting.access.operation {
            (self.drives.data, self.drives.strobe) = (value, strobe);
        }
        self.active = Some(Active { waiting, address_in, data_in, cycles: 0 });
    }

    /// Looks at what the slave shows, under what it was shown.
    fn advance(&mut self, now_ps: u64, from: &FromSlave, options: &HostOptions, log: &mut Log) {
        let drives = &mut self.drives;
        drives.awvalid &= !from.awready;
        drives.wvalid &= !from.wready;
        drives.arvalid &= !from.arready;
        let operation = self.active.as_ref().map(|active| active.waiting.access.operation);
        let is_read = operation == Some(Operation::Read);
        let is_write = operation.is_some() && !is_read;
        if (from.write_answer.is_some() && !is_write) || (from.read_answer.is_some() && !is_read) {
            log.report(now_ps, Rule::Answer, || "the register slave answers without being asked".into());
            return;
        }
        let Some(active) = &mut self.active else { return };
        let answer = if is_read {
            from.read_answer.filter(|_| drives.rready)
        } else {
            from.write_answer.filter(|_| drives.bready).map(|response| (0, response))
        };
        let access = active.waiting.access;
        // Only cycles in which everything was offered, and the answer would have been taken, count.
        let is_offered = active.address_in.is_none() && active.data_in.is_none();
        active.cycles += u32::from(is_offered && (drives.bready || drives.rready));
        let result = match answer {
            Some((value, 0)) => Ok(value),
            Some((_, response)) => Err(AccessError::Refused { access, response }),
            None if active.cycles <= ANSWER_CYCLES_MAX => return,
            None => {
                log.report(now_ps, Rule::Answer, || format!("{access:?}: no answer"));
                Err(AccessError::NoAnswer { access })
            }
        };
        *drives = ToSlave::default();
        self.accesses += 1;
        let back_ps = options.register_latency.draw_ps(&mut self.random);
        if let Some(Active { waiting, .. }) = self.active.take() {
            self.finish(waiting.ticket, now_ps + back_ps, waiting.is_posted, result);
        }
    }

    fn drive(&mut self, options: &HostOptions) {
        let Some(active) = &mut self.active else { return };
        let is_read = active.waiting.access.operation == Operation::Read;
        if due(&mut active.address_in) {
            self.drives.arvalid = is_read;
            self.drives.awvalid = !is_read;
        }
        if due(&mut active.data_in) {
            self.drives.wvalid = true;
        }
        let takes = !happens(&mut self.random, options.register_stall);
        self.drives.rready = takes && is_read;
        self.drives.bready = takes && !is_read;
    }
}

/// Counts down; true in the one cycle in which it ends.
fn due(cycles: &mut Option<u32>) -> bool {
    match cycles {
        Some(0) => {
            *cycles = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Delay;

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
}
