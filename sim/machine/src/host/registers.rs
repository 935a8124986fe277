//! Register accesses of software: the master of the card's AXI4-Lite slave.
//!
//! Accesses are made one after the other. Address and data of a write are sent together or apart, and answers are stalled at
//! times. An access fails if the slave does not answer within [`ANSWER_CYCLES_MAX`] cycles in which only the card is waited
//! for; design decision 5 guarantees an answer.
use super::options::HostOptions;
use crate::monitor::{Log, Rule};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_layout::pci::{DOORBELL_BAR_BYTES, REGISTER_BAR_BYTES};
use rnic_stimulus::chance::{Seed, happens};
use std::collections::VecDeque;
use thiserror::Error;

/// Cycles within which the register slave must answer.
pub const ANSWER_CYCLES_MAX: u32 = 64;

/// A BAR of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// BAR 0.
    Registers,
    /// BAR 2.
    Doorbells,
}

impl Bar {
    /// Address bits of the slave above those of the offset.
    fn base(self) -> u32 {
        match self {
            Bar::Registers => 0,
            Bar::Doorbells => 1 << 24,
        }
    }

    /// Size, in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Bar::Registers => REGISTER_BAR_BYTES,
            Bar::Doorbells => DOORBELL_BAR_BYTES,
        }
    }
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads eight bytes.
    Read,
    /// Writes the bytes whose bit in `strobe` is set.
    Write {
        /// Eight bytes, as a little-endian number.
        value: u64,
        /// Byte enables, one bit a byte.
        strobe: u8,
    },
}

/// What happens in a cycle of the register slave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// An access begins.
    pub begins: Option<RegisterAccess>,
    /// An access is answered without an error: with this value, if it is a read.
    pub answered: Option<(RegisterAccess, u64)>,
}

/// A register access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterAccess {
    /// BAR that is accessed.
    pub bar: Bar,
    /// Offset in the BAR, in bytes. A read of eight bytes ignores the low three bits.
    pub offset: u64,
    /// Kind of access.
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
        /// AXI response code.
        response: u8,
    },
    /// The slave did not answer in time.
    #[error("{access:?}: no answer in {ANSWER_CYCLES_MAX} cycles")]
    NoAnswer {
        /// The access.
        access: RegisterAccess,
    },
    /// The offset is outside the BAR.
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
    /// `awready`: takes the address of a write.
    pub awready: bool,
    /// `wready`: takes the data of a write.
    pub wready: bool,
    /// `bresp`, while `bvalid`.
    pub write_answer: Option<u8>,
    /// `arready`: takes the address of a read.
    pub arready: bool,
    /// `rdata` and `rresp`, while `rvalid`.
    pub read_answer: Option<(u64, u8)>,
}

/// Inputs of the slave after the edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToSlave {
    /// `awaddr` and `araddr`.
    pub address: u32,
    /// Data of a write (`wdata`).
    pub data: u64,
    /// Byte enables of a write (`wstrb`).
    pub strobe: u8,
    /// `awvalid`: the write address is valid.
    pub awvalid: bool,
    /// `wvalid`: the write data is valid.
    pub wvalid: bool,
    /// `bready`: takes the response of a write.
    pub bready: bool,
    /// `arvalid`: the read address is valid.
    pub arvalid: bool,
    /// `rready`: takes the response of a read.
    pub rready: bool,
}

struct Waiting {
    ticket: Ticket,
    access: RegisterAccess,
    arrives_ps: u64,
    is_posted: bool,
}

/// The access that the slave is processing.
struct Active {
    waiting: Waiting,
    /// Cycles until address or data are offered; `None` once they are.
    address_in: Option<u32>,
    data_in: Option<u32>,
    cycles: u32,
}

/// AXI4-Lite master of one card.
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

    /// Starts an access. A posted one has no answer: if it fails, the failure is kept for
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

    /// Takes the answer of an access, if it has arrived; for a write it is zero.
    pub fn take_answer(&mut self, now_ps: u64, ticket: Ticket) -> Option<Result<u64, AccessError>> {
        let index = self.answers.iter().position(|answer| answer.0 == ticket && answer.1 <= now_ps)?;
        self.answers.remove(index).map(|answer| answer.2)
    }

    /// Takes the failures of posted writes since the last call.
    pub fn take_failures(&mut self) -> Vec<AccessError> {
        std::mem::take(&mut self.failures)
    }

    /// Failures of posted writes that were not taken.
    pub fn failures(&self) -> &[AccessError] {
        &self.failures
    }

    /// Accesses in flight.
    pub fn under_way(&self) -> usize {
        self.waiting.len() + usize::from(self.active.is_some())
    }

    /// Accesses that the slave has answered.
    pub fn total(&self) -> u64 {
        self.accesses
    }

    /// Inputs of the slave.
    pub fn drives(&self) -> &ToSlave {
        &self.drives
    }

    /// Returns whether no access is in flight and the slave shows no unexpected answer.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.active.is_none() && self.waiting.is_empty()
    }

    /// Processes one cycle. Returns the access that begins, if one does.
    pub fn cycle(&mut self, now_ps: u64, from: &FromSlave, options: &HostOptions, log: &mut Log) -> Heard {
        let answered = self.advance(now_ps, from, options, log);
        let mut begins = None;
        if self.active.is_none()
            && let Some(waiting) = self.waiting.pop_front_if(|waiting| waiting.arrives_ps <= now_ps)
        {
            begins = Some(waiting.access);
            self.begin(waiting, options);
        }
        self.drive(options);
        Heard { begins, answered }
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

    /// Evaluates the outputs of the slave, which belong to the inputs of this cycle. Returns an access that it has answered without an
    /// error, and the value.
    fn advance(
        &mut self,
        now_ps: u64,
        from: &FromSlave,
        options: &HostOptions,
        log: &mut Log,
    ) -> Option<(RegisterAccess, u64)> {
        let drives = &mut self.drives;
        drives.awvalid &= !from.awready;
        drives.wvalid &= !from.wready;
        drives.arvalid &= !from.arready;
        let operation = self.active.as_ref().map(|active| active.waiting.access.operation);
        let is_read = operation == Some(Operation::Read);
        let is_write = operation.is_some() && !is_read;
        if (from.write_answer.is_some() && !is_write) || (from.read_answer.is_some() && !is_read) {
            log.report(now_ps, Rule::Answer, || "the register slave answers without being asked".into());
            return None;
        }
        let active = self.active.as_mut()?;
        let answer = if is_read {
            from.read_answer.filter(|_| drives.rready)
        } else {
            from.write_answer.filter(|_| drives.bready).map(|response| (0, response))
        };
        let access = active.waiting.access;
        // Only cycles count in which everything was offered and an answer would have been accepted.
        let is_offered = active.address_in.is_none() && active.data_in.is_none();
        active.cycles += u32::from(is_offered && (drives.bready || drives.rready));
        let result = match answer {
            Some((value, 0)) => Ok(value),
            Some((_, response)) => Err(AccessError::Refused { access, response }),
            None if active.cycles <= ANSWER_CYCLES_MAX => return None,
            None => {
                log.report(now_ps, Rule::Answer, || format!("{access:?}: no answer"));
                Err(AccessError::NoAnswer { access })
            }
        };
        *drives = ToSlave::default();
        self.accesses += 1;
        let back_ps = options.register_latency.draw_ps(&mut self.random);
        let answered = result.as_ref().ok().map(|value| (access, *value));
        if let Some(Active { waiting, .. }) = self.active.take() {
            self.finish(waiting.ticket, now_ps + back_ps, waiting.is_posted, result);
        }
        answered
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

/// Counts down. Returns true in the one cycle in which the count ends.
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
mod tests;
