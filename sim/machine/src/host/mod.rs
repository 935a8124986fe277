//! Host of a card: memory with an IOMMU, a link, interrupts, and register accesses of software.
//!
//! ```text
//!   software                                                     card
//!   ────────                                                     ────
//!   access ──────────> registers ───────────────────────────────> s_axil
//!   bytes ───> memory <── read  <── downlink/uplink ────────────> host_rd
//!                  ^───── write <── uplink <──────────────────── host_wr
//!   interrupts <────────── latency <── uplink <───────────────── irq
//! ```
//!
//! A host uses the freedom that the boundary leaves it (`docs/hardware.md`) as far as its [`HostOptions`] say. Nothing here knows
//! Verilog: each cycle is a call with the outputs of the card, and its result is the inputs of the next cycle.
pub mod link;
pub mod memory;
pub mod options;
pub mod read;
pub mod registers;
pub mod write;

pub use memory::{Access, Backing, BufferId, Direction, Fault, Memory, MemoryError, Refusal};
pub use options::{HostOptions, LinkOptions, WriteOrder};
pub use read::{ReadRequest, ReadWord};
pub use registers::{AccessError, Bar, FromSlave, Operation, RegisterAccess, Ticket, ToSlave};
pub use write::{WriteRequest, WriteWord};

use crate::monitor::dma::check_idle;
use crate::monitor::order::OrderMonitor;
use crate::monitor::overhear::Overheard;
use crate::monitor::pools::Remains;
use crate::monitor::posted::Posted;
use crate::monitor::trail::{Moment, Trail};
use crate::monitor::{Log, Rule};
use crate::world::clock::SECOND_PS;
use link::Link;
use rand_chacha::ChaCha8Rng;
use read::Reads;
use registers::{Heard, Registers};
use rnic_driver::Ownership;
use rnic_layout::doorbell::SEND;
use rnic_layout::limits::DOORBELL_PAGE_BYTES;
use rnic_layout::registers::{Control, REG_CONTROL};
use rnic_monitor::{Monitor, Rates};
use rnic_stimulus::chance::{Seed, happens};
use std::collections::VecDeque;
use std::ops::Range;
use write::Writes;

/// Bytes of the widest datapath.
pub const LANES_MAX: usize = 64;

/// A word of the datapath. Narrow datapaths use the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub [u8; LANES_MAX]);

/// An interrupt that software has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Time at which software received it.
    pub time_ps: u64,
    /// Interrupt vector.
    pub vector: u8,
}

/// Outputs of the card that transfer at an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FromCard {
    /// Read request (`host_rd_req`).
    pub read_request: Option<ReadRequest>,
    /// Write request (`host_wr_req`).
    pub write_request: Option<WriteRequest>,
    /// Word of write data (`host_wr_data`).
    pub write_word: Option<WriteWord>,
    /// Interrupt vector (`irq`).
    pub interrupt: Option<u8>,
}

/// Inputs of the card after the edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToCard {
    /// `host_rd_req_ready`: the host takes a read request.
    pub read_request_ready: bool,
    /// `host_wr_req_ready`: the host takes a write request.
    pub write_request_ready: bool,
    /// `host_wr_data_ready`: the host takes a word of write data.
    pub write_data_ready: bool,
    /// `irq_ready`: the host takes an interrupt.
    pub interrupt_ready: bool,
    /// Word of read data (`host_rd_data`).
    pub read_word: Option<ReadWord>,
    /// `host_wr_done`, with its error.
    pub write_done: Option<bool>,
}

/// Counts of what has crossed the boundary of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read requests.
    pub reads: u64,
    /// Bytes of the read requests.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes of the write requests.
    pub written_bytes: u64,
    /// Interrupts that the host took.
    pub interrupts: u64,
    /// Register accesses that were answered.
    pub register_accesses: u64,
}

/// Host of one card.
pub struct Host {
    options: HostOptions,
    memory: Memory,
    order: OrderMonitor,
    overheard: Overheard,
    posted: Posted,
    random: ChaCha8Rng,
    up: Link,
    backlog_max_ps: u64,
    reads: Reads,
    writes: Writes,
    registers: Registers,
    /// Interrupts in flight, and those that software has not taken.
    announced: VecDeque<Interrupt>,
    arrived: VecDeque<Interrupt>,
    interrupts: u64,
    ownership: Ownership,
}

impl Host {
    /// Makes a host of a card of these rates. `lanes` is the width of its words in bytes, and `name` the name of the card.
    ///
    /// # Panics
    /// If an option is outside its range.
    pub fn new(options: HostOptions, rates: Rates, lanes: usize, seed: Seed, name: &str) -> Host {
        options.link.check();
        Host {
            memory: Memory::default(),
            order: OrderMonitor::default(),
            overheard: Overheard::new(rates),
            posted: Posted::default(),
            random: seed.stream(&format!("{name}/host")),
            up: Link::new(options.link.bytes_per_second),
            backlog_max_ps: backlog_max_ps(&options.link),
            reads: Reads::new(&options, lanes, seed, name),
            writes: Writes::new(lanes, seed, name),
            registers: Registers::new(seed, name),
            announced: VecDeque::new(),
            arrived: VecDeque::new(),
            interrupts: 0,
            ownership: Ownership::default(),
            options,
        }
    }

    /// Behaviour of the host.
    pub fn options(&self) -> &HostOptions {
        &self.options
    }

    /// Place for the driver that has opened the card: one place, whatever way the driver comes.
    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// Takes notice of a reset of the card, which software has begun by its register since the last call.
    pub fn take_reset(&mut self) -> bool {
        self.overheard.take_reset()
    }

    /// The driver that has opened the card is gone, with what it had: another one can open it.
    pub(crate) fn disown(&mut self) {
        self.ownership = Ownership::default();
    }

    /// Changes the behaviour from now on. The link keeps its parameters.
    pub fn set_options(&mut self, options: HostOptions) {
        self.options = HostOptions { link: self.options.link, ..options };
    }

    /// Answers further reads that begin at these addresses later by this time, in picoseconds; `None` ends that. The time must be
    /// longer than the card waits, because the monitor of frames takes such a read for one that has failed.
    pub fn delay_reads(&mut self, delayed: Option<(Range<u64>, u64)>) {
        self.reads.delay(delayed);
    }

    /// Memory of the host.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Memory of the host, to allocate, map and change it.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Monitor of completions, events and interrupts; rings and payload buffers must be registered with it.
    pub fn order_mut(&mut self) -> &mut OrderMonitor {
        &mut self.order
    }

    /// Monitor of the frames of the card's port, which knows what software has set up.
    pub fn port_mut(&mut self) -> &mut Monitor {
        self.overheard.port_mut()
    }

    /// What software has left on the card, as far as it can know.
    pub fn remains(&mut self) -> Remains {
        Remains { queues: self.posted.has_queues(&mut self.memory), ..Remains::default() }
    }

    /// Trail of events, for measurements.
    pub fn trail_mut(&mut self) -> &mut Trail {
        self.order.trail_mut()
    }

    /// Register accesses of software.
    pub fn registers_mut(&mut self) -> &mut Registers {
        &mut self.registers
    }

    /// Register accesses in flight.
    pub fn registers_under_way(&self) -> usize {
        self.registers.under_way()
    }

    /// Starts a register access.
    pub fn start(&mut self, now_ps: u64, access: RegisterAccess, is_posted: bool) -> Ticket {
        self.posted.hear(&access, &mut self.memory);
        self.registers.start(now_ps, access, is_posted, &self.options)
    }

    /// The function is reset: the monitors know nothing any more of what software has set up, as after a reset by register.
    pub fn forget(&mut self, now_ps: u64) {
        let value = Control { reset: true, ..Control::at_reset() }.to_bytes().map_or(0, u64::from_le_bytes);
        let (offset, operation) = (REG_CONTROL.offset.into(), Operation::Write { value, strobe: 0xff });
        let access = RegisterAccess { bar: Bar::Registers, offset, operation };
        self.posted.hear(&access, &mut self.memory);
        self.overhear(now_ps, &access);
        self.overheard.end_reset(now_ps);
    }

    /// Takes the oldest interrupt.
    pub fn take_interrupt(&mut self) -> Option<Interrupt> {
        self.arrived.pop_front()
    }

    /// Takes all interrupts of a vector. Returns whether there were any.
    pub fn take_interrupts_of(&mut self, vector: u8) -> bool {
        let before = self.arrived.len();
        self.arrived.retain(|interrupt| interrupt.vector != vector);
        self.arrived.len() < before
    }

    /// Interrupts that software has not taken.
    pub fn interrupts(&self) -> impl Iterator<Item = &Interrupt> {
        self.arrived.iter()
    }

    /// Returns whether a write to part of this range is in flight and not yet visible.
    pub fn has_pending_write(&self, address: u64, length: u64) -> bool {
        self.writes.is_pending(address, length)
    }

    /// Counts of what has crossed the boundary.
    pub fn traffic(&self) -> Traffic {
        let (reads, read_bytes) = self.reads.totals();
        let (writes, written_bytes) = self.writes.totals();
        let register_accesses = self.registers.total();
        Traffic { reads, read_bytes, writes, written_bytes, interrupts: self.interrupts, register_accesses }
    }

    /// Number of reads and of writes in flight.
    pub fn in_flight(&self) -> (usize, usize) {
        (self.reads.under_way(), self.writes.under_way())
    }

    /// Returns whether nothing is in flight between card and host.
    pub fn is_idle(&self) -> bool {
        self.reads.under_way() == 0
            && self.writes.under_way() == 0
            && self.writes.words_ahead() == 0
            && self.announced.is_empty()
            && self.registers.under_way() == 0
    }

    /// Reports what is in flight, and failures that no test has taken.
    pub fn check_end(&self, now_ps: u64, log: &mut Log) {
        check_idle(log, now_ps, "reads", self.reads.under_way());
        check_idle(log, now_ps, "writes", self.writes.under_way());
        check_idle(log, now_ps, "words without a write", self.writes.words_ahead());
        self.check_faults(log);
    }

    /// Reports refused accesses and failed doorbells that no test has taken.
    pub fn check_faults(&self, log: &mut Log) {
        for fault in self.memory.faults() {
            log.report(fault.time_ps, Rule::Bounds, || {
                format!("the card may not {:?} at {:#x}: {:?}", fault.direction, fault.address, fault.refusal)
            });
        }
        for failure in self.registers.failures() {
            log.report(0, Rule::Answer, || failure.to_string());
        }
    }

    /// Software is about to unmap the memory at a device address: reports it if an object of the card may still access it.
    pub fn check_release(&mut self, now_ps: u64, address: u64, log: &mut Log) {
        let length = self.memory.mapped_bytes(address).unwrap_or(0);
        if let Some(user) = self.posted.user(address, length, &mut self.memory) {
            log.report(now_ps, Rule::Release, || {
                format!("software unmaps {length} bytes at {address:#x}, which {user} may still access")
            });
        }
        if let Some(number) = self.order.release(address, length) {
            log.report(now_ps, Rule::Release, || {
                format!("software unmaps {length} bytes at {address:#x}, which completion queue {number} may not have left")
            });
        }
    }

    /// Processes one cycle of the core clock. `to_card` holds the current inputs of the card, and is changed to those of the
    /// next cycle.
    pub fn cycle(&mut self, now_ps: u64, from_card: &FromCard, to_card: &mut ToCard, log: &mut Log) {
        let options = &self.options;
        if let Some(request) = from_card.read_request {
            self.order.trail_mut().note(now_ps, Moment::ReadAsked);
            if self.reads.is_delayed(request.address) {
                self.overheard.port_mut().read_failed();
            }
            self.reads.request(now_ps, request, options, &mut self.up, &mut self.memory, log);
        }
        if let Some(request) = from_card.write_request {
            self.writes.request(now_ps, request, log);
        }
        if let Some(word) = from_card.write_word {
            self.writes.word(word);
        }
        let (memory, order) = (&mut self.memory, &mut self.order);
        to_card.write_done = self.writes.cycle(now_ps, options, &mut self.up, memory, order, log);
        if to_card.write_done == Some(true) {
            self.overheard.port_mut().write_failed();
        }
        for answer in self.order.take_answers() {
            self.overheard.port_mut().answer(now_ps, &answer);
        }
        if to_card.write_done.is_some() {
            self.order.trail_mut().note(now_ps, Moment::WriteDone);
        }
        if let Some(vector) = from_card.interrupt {
            self.announce(now_ps, vector, log);
        }
        while let Some(interrupt) = self.announced.pop_front_if(|interrupt| interrupt.time_ps <= now_ps) {
            self.arrived.push_back(interrupt);
        }
        let options = &self.options;
        to_card.read_word = self.reads.cycle(now_ps, options, &mut self.memory);
        if to_card.read_word.is_some_and(|word| word.error) {
            self.overheard.port_mut().read_failed();
        }
        if to_card.read_word.is_some_and(|word| word.last) {
            self.order.trail_mut().note(now_ps, Moment::ReadAnswered);
        }
        for slot in self.memory.posted_mut().take_changed() {
            log.report(now_ps, Rule::Posted, || {
                format!("{slot}: software has changed it after its doorbell")
            });
        }
        let random = &mut self.random;
        let is_free = self.up.backlog_ps(now_ps) <= self.backlog_max_ps;
        to_card.read_request_ready =
            is_free && self.reads.has_room(options) && !happens(random, options.read_request_stall);
        to_card.write_request_ready =
            is_free && self.writes.has_room(options) && !happens(random, options.write_request_stall);
        to_card.write_data_ready =
            is_free && self.writes.has_room_for_word() && !happens(random, options.write_data_stall);
        to_card.interrupt_ready = is_free && !happens(random, options.interrupt_stall);
    }

    fn announce(&mut self, now_ps: u64, vector: u8, log: &mut Log) {
        self.interrupts += 1;
        self.order.interrupt(now_ps, vector, log);
        let arrival_ps = self.up.send(now_ps, self.options.link.request_overhead_bytes);
        let mut time_ps = arrival_ps + self.options.interrupt_latency.draw_ps(&mut self.random);
        if self.options.write_order == WriteOrder::Posted {
            time_ps = time_ps.max(self.writes.last_visible_ps());
        }
        // Interrupts are writes of their own, and keep their order.
        time_ps = time_ps.max(self.announced.back().map_or(0, |interrupt| interrupt.time_ps));
        self.announced.push_back(Interrupt { time_ps, vector });
    }

    /// Processes one cycle of the register slave, whose next inputs are in [`Registers::drives`] afterwards.
    pub fn register_cycle(&mut self, now_ps: u64, from: &FromSlave, log: &mut Log) {
        let Heard { begins, answered } = self.registers.cycle(now_ps, from, &self.options, log);
        if let Some((access, value)) = answered {
            self.overheard.answer(now_ps, &access, value);
        }
        if let Some(access) = begins {
            self.overhear(now_ps, &access);
        }
    }

    /// Passes a write of software on to the monitors that depend on it. The card may act on it before it responds.
    fn overhear(&mut self, now_ps: u64, access: &RegisterAccess) {
        let RegisterAccess { bar, offset, operation: Operation::Write { value, strobe } } = *access else {
            return;
        };
        let (memory, order) = (&self.memory, &mut self.order);
        let is_whole = strobe == 0xff;
        match bar {
            Bar::Registers if is_whole => self.overheard.register(offset, value, memory, order),
            Bar::Registers => {}
            Bar::Doorbells => {
                order.doorbell(offset, value, strobe);
                if is_whole {
                    self.overheard.doorbell(offset, value, memory, order);
                    if offset % DOORBELL_PAGE_BYTES == u64::from(SEND.offset) {
                        order.trail_mut().note(now_ps, Moment::SendDoorbell);
                    }
                }
            }
        }
    }
}

/// Time that the buffer of a link takes to drain.
fn backlog_max_ps(link: &LinkOptions) -> u64 {
    link.buffer_bytes * SECOND_PS / link.bytes_per_second
}
