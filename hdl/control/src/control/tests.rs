use super::*;
use crate::axi_lite::READ_CYCLES;
use crate::register_map::at;
use num_bigint::BigUint;
use rand::Rng;
use rnic_blocks::bench::{Random, random};
use rnic_layout::admin::{
    ANSWER_BYTES, Answer, BODY_OFFSET, COMMAND_BYTES, CommandHeader, CommandOpcode, CommandStatus,
    CreateCompletionQueue, CreateQueuePair,
};
use rnic_layout::doorbell::{COMPLETION, RECEIVE, SEND, offset_in_bar};
use rnic_layout::queue::event::{AsyncEvent, EventKind};
use rnic_layout::registers::{FatalCode, MAGIC, Status};
use rnic_messages::setup::SetupKind;
use std::collections::{HashMap, VecDeque};
use verilator_sys::{AnyPort, Instance, Model, ModelOptions};

const COMMAND_BASE: u64 = 0x10_0000;
const ANSWER_BASE: u64 = 0x20_0000;
/// Cycles in which the slave answers a master that takes answers at once.
const ANSWER_CYCLES: u32 = READ_CYCLES as u32 + 3;
const QPN: u32 = 0xab_c005;
const PAGE: u32 = 7;

/// The Verilog of the block: a reset has too many cycles for the simulation in Rust.
struct Verilog {
    instance: Instance,
    ports: HashMap<String, AnyPort>,
}

impl Verilog {
    fn new() -> Self {
        let mut control = Control::new(64, 250_000);
        let text = rnic_kernel::generate(&mut control, "control").unwrap_or_else(|error| panic!("{error}"));
        let model = Model::build("control", &text, &ModelOptions::default());
        let instance = model.unwrap_or_else(|error| panic!("{error}")).instance();
        Verilog { instance, ports: HashMap::new() }
    }

    fn port(&mut self, name: &str) -> AnyPort {
        let find = || self.instance.any_port(name).unwrap_or_else(|error| panic!("{error}"));
        *self.ports.entry(name.to_string()).or_insert_with(find)
    }

    fn get(&mut self, name: &str) -> BigUint {
        let port = self.port(name);
        let mut words = vec![0; port.words()];
        self.instance.read_words(port, &mut words);
        BigUint::from_slice(&words)
    }

    /// A field of an output, by its first bit and its width.
    fn field(&mut self, name: &str, offset: usize, width: usize) -> u64 {
        let mask = u64::MAX >> (64 - width);
        u64::try_from((self.get(name) >> offset) & BigUint::from(mask)).expect("it is masked")
    }

    fn is(&mut self, name: &str) -> bool {
        self.field(name, 0, 1) == 1
    }

    fn set(&mut self, name: &str, value: impl Into<BigUint>) {
        let port = self.port(name);
        self.instance.write_words(port, &value.into().to_u32_digits());
    }

    fn tick(&mut self) {
        for level in [1u8, 0] {
            self.set("clock", level);
            self.instance.eval();
        }
    }
}

/// What a stage is told, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Told {
    kind: u64,
    queue_pair: u64,
    state: u64,
    generation: u64,
    local_qp: u64,
}

/// A card's slow path with a host and stages around it.
struct World {
    block: Verilog,
    random: Random,
    memory: HashMap<u64, [u8; COMMAND_BYTES]>,
    answers: HashMap<u64, Vec<u8>>,
    reads: VecDeque<(u32, u64)>,
    writes: VecDeque<u32>,
    done: u64,
    commands: u64,
    setups: [Vec<Told>; STAGES],
    /// Kind and code.
    events: Vec<(u64, u64)>,
    posted: Vec<(&'static str, u64, u64)>,
    /// Index, whether it is valid, address, and Ethernet address.
    sources: Vec<(u64, bool, BigUint, u64)>,
    foreign: u32,
    unknown: u32,
}

impl World {
    fn new() -> Self {
        let mut block = Verilog::new();
        block.set("drained", 1u8);
        block.set("reads_drained", 1u8);
        block.set("may_request", 1u8);
        World {
            block,
            random: random(),
            memory: HashMap::new(),
            answers: HashMap::new(),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            done: 0,
            commands: 0,
            setups: std::array::from_fn(|_| Vec::new()),
            events: Vec::new(),
            posted: Vec::new(),
            sources: Vec::new(),
            foreign: 0,
            unknown: 0,
        }
    }

    fn draw(&mut self, name: &str, probability: f64) {
        let value = u8::from(self.random.random_bool(probability));
        self.block.set(name, value);
    }

    /// Whether a beat moves.
    fn moves(&mut self, stream: &str) -> bool {
        self.block.is(&format!("{stream}_valid")) && self.block.is(&format!("{stream}_ready"))
    }

    fn settle(&mut self) {
        self.block.instance.eval();
    }

    fn tick(&mut self) {
        let due = self.reads.front_mut().is_some_and(|read| {
            read.0 = read.0.saturating_sub(1);
            read.0 == 0
        });
        self.block.set("admin_slot_valid", u8::from(due));
        if due {
            let (_, address) = self.reads.pop_front().expect("it is due");
            let bytes = self.memory.get(&address).copied().unwrap_or([0; COMMAND_BYTES]);
            // The last slot of its span.
            self.block.set(
                "admin_slot_value",
                BigUint::from_bytes_le(&bytes) | BigUint::from(1u8) << (8 * COMMAND_BYTES),
            );
        }
        if let Some(left) = self.writes.front_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.writes.pop_front();
                self.done += 1;
            }
        }
        self.block.set("admin_done_count", self.done & 0xffff);
        for stream in ["admin_read", "admin_write", "event"] {
            self.draw(&format!("{stream}_ready"), 0.5);
        }
        for stage in 0..STAGES {
            self.draw(&format!("setup_{stage}_ready"), 0.8);
        }
        self.settle();

        if self.block.is("core_reset") {
            self.done = 0;
            self.reads.clear();
            self.writes.clear();
        }
        if self.moves("admin_read") {
            assert_eq!(self.block.field("admin_read_beat", 64, 13), 64);
            let address = self.block.field("admin_read_beat", 0, 64);
            self.reads.push_back((self.random.random_range(1..20), address));
        }
        if self.moves("admin_write") {
            let address = self.block.field("admin_write_beat", 0, 64);
            let length = self.block.field("admin_write_beat", 64, 7);
            let mut bytes = (self.block.get("admin_write_beat") >> 71u32).to_bytes_le();
            bytes.resize(length as usize, 0);
            self.answers.insert(address, bytes);
            self.writes.push_back(self.random.random_range(1..20));
        }
        for stage in 0..STAGES {
            if self.moves(&format!("setup_{stage}")) {
                let beat = format!("setup_{stage}_beat");
                self.setups[stage].push(Told {
                    kind: self.block.field(&beat, 0, 3),
                    queue_pair: self.block.field(&beat, 3, 10),
                    state: self.block.field(&beat, 13, 3),
                    generation: self.block.field(&beat, 16, 8),
                    local_qp: self.block.field(&beat, 48, 24),
                });
            }
        }
        if self.moves("event") {
            self.events.push((self.block.field("event_beat", 56, 8), self.block.field("event_beat", 64, 8)));
        }
        for (name, port, index_width) in [
            ("send", "messages_send_posted", 16),
            ("receive", "messages_receive_posted", 16),
            ("completions", "messages_completions_read", 24),
        ] {
            if self.block.is(&format!("{port}_valid")) {
                // Rings of receive entries are more than queue pairs.
                let width = if name == "receive" { 11 } else { 10 };
                let port = format!("{port}_value");
                let index = self.block.field(&port, width, index_width);
                self.posted.push((name, self.block.field(&port, 0, width), index));
            }
        }
        if self.block.is("source_address_write_valid") {
            let port = "source_address_write_value";
            let address = (self.block.get(port) >> 5u32) & BigUint::from(u128::MAX);
            self.sources.push((
                self.block.field(port, 0, 4),
                self.block.field(port, 4, 1) == 1,
                address,
                self.block.field(port, 133, 48),
            ));
        }
        // The first two fields of the counts.
        self.foreign += self.block.field("counts", 0, 1) as u32;
        self.unknown += self.block.field("counts", 1, 1) as u32;
        self.block.tick();
    }

    fn write(&mut self, address: u64, data: u64) {
        for (name, value) in [
            ("axi_awaddr", address),
            ("axi_awvalid", 1),
            ("axi_wdata", data),
            ("axi_wstrb", 0xff),
            ("axi_wvalid", 1),
            ("axi_bready", 1),
        ] {
            self.block.set(name, value);
        }
        self.settle();
        assert!(self.block.is("axi_awready") && self.block.is("axi_wready"), "the slave is free");
        self.tick();
        self.block.set("axi_awvalid", 0u8);
        self.block.set("axi_wvalid", 0u8);
        let mut cycles = 0;
        while {
            self.settle();
            !self.block.is("axi_bvalid")
        } {
            self.tick();
            cycles += 1;
            assert!(cycles <= ANSWER_CYCLES, "a write is answered in time");
        }
        self.tick();
    }

    fn read(&mut self, address: u64) -> u64 {
        for (name, value) in [("axi_araddr", address), ("axi_arvalid", 1), ("axi_rready", 1)] {
            self.block.set(name, value);
        }
        self.settle();
        assert!(self.block.is("axi_arready"), "the slave is free");
        self.tick();
        self.block.set("axi_arvalid", 0u8);
        let mut cycles = 0;
        while {
            self.settle();
            !self.block.is("axi_rvalid")
        } {
            self.tick();
            cycles += 1;
            assert!(cycles <= ANSWER_CYCLES, "a read is answered in time");
        }
        let data = self.block.field("axi_rdata", 0, 64);
        self.tick();
        data
    }

    fn status(&mut self) -> Status {
        Status::parse(&self.read(at::STATUS).to_le_bytes()).expect("reserved bits are zero")
    }

    /// Reads registers until the reset has ended.
    fn wait_for_reset(&mut self) {
        let mut reads = 0;
        while self.status().resetting {
            assert_eq!(self.read(at::MAGIC), MAGIC);
            assert_eq!(self.read(1 << BAR | 8), 0, "pages read as zero");
            reads += 1;
            assert!(reads < 4000, "the reset does not end");
        }
        assert!(self.status().ready);
    }

    /// Gives memory, and starts the card.
    fn start(&mut self) {
        self.write(at::ADMIN_COMMAND_BASE, COMMAND_BASE);
        self.write(at::ADMIN_ANSWER_BASE, ANSWER_BASE);
        self.write(at::ADMIN_CONTROL, 6 | 3 << 8);
        self.write(at::EVENT_QUEUE_BASE, 0x30_0000);
        self.write(at::EVENT_QUEUE_CONTROL, 6 | 1 << 8 | 5 << 16);
        self.write(at::CONTROL, 1);
        self.commands = 0;
        self.done = 0;
    }

    /// Gives a command, waits for its answer, and says how it ended.
    fn command(&mut self, opcode: CommandOpcode, object_number: u32, body: &[u8]) -> CommandStatus {
        let slot = self.commands % 64;
        let tag = 0x100 + self.commands as u16;
        let header = CommandHeader { opcode, tag, object_number }.to_bytes().unwrap();
        let mut bytes = [0; COMMAND_BYTES];
        bytes[..BODY_OFFSET].copy_from_slice(&header);
        bytes[BODY_OFFSET..BODY_OFFSET + body.len()].copy_from_slice(body);
        self.memory.insert(COMMAND_BASE + 64 * slot, bytes);
        self.commands += 1;
        let events = self.events.len();
        self.write(at::ADMIN_DOORBELL, self.commands);
        let mut cycles = 0;
        while self.events.len() == events {
            self.tick();
            cycles += 1;
            assert!(cycles < 20_000, "{opcode:?} has no answer");
        }
        assert_eq!(self.events[events].0, u64::from(EventKind::AdminAnswer.number()));
        let answer = &self.answers[&(ANSWER_BASE + ANSWER_BYTES as u64 * slot)];
        let answer = Answer::parse(answer).unwrap();
        assert_eq!((answer.tag, answer.opcode), (tag, opcode.number()));
        assert!(answer.phase, "the first round of the ring");
        assert_eq!(self.read(at::ADMIN_PROGRESS) & 0xffff, self.commands);
        answer.status
    }

    fn make_queues(&mut self) {
        let queue = CreateCompletionQueue {
            doorbell_page: PAGE as u16,
            base: 0x40_0000,
            ..CreateCompletionQueue::at_reset()
        };
        let status = self.command(CommandOpcode::CreateCompletionQueue, 3, &queue.to_bytes().unwrap());
        assert_eq!(status, CommandStatus::Success);
        let pair = CreateQueuePair {
            doorbell_page: PAGE as u16,
            domain: 1,
            send_completion_queue: 3,
            receive_completion_queue: 3,
            send_base: 0x50_0000,
            receive_base: 0x60_0000,
            ..CreateQueuePair::at_reset()
        };
        let status = self.command(CommandOpcode::CreateQueuePair, QPN, &pair.to_bytes().unwrap());
        assert_eq!(status, CommandStatus::Success);
    }

    fn ring(&mut self, page: u32, doorbell: &rnic_layout::doorbell::Doorbell, data: u64) {
        self.write(1 << BAR | offset_in_bar(page, doorbell), data);
        (0..8).for_each(|_| self.tick());
    }
}

/// One world for all of it: a reset takes longer than everything else together.
#[test]
fn a_card_starts_works_and_is_reset_through_its_slave() {
    let mut world = World::new();
    assert!(world.status().resetting, "the card begins with a reset");
    world.wait_for_reset();
    assert_eq!(world.sources.len(), 2 * 3 * 16, "the sweep clears the source addresses, twice");

    // A source address, and a command end to end.
    world.sources.clear();
    world.write(0x400, 0x1122_3344_5566_7788);
    world.write(0x408, 0x99aa_bbcc_ddee_ff00);
    world.write(0x410, 1 << 48 | 0x0203_0405_0607);
    (0..5).for_each(|_| world.tick());
    let address = BigUint::from(0x1122_3344_5566_7788_99aa_bbcc_ddee_ff00u128);
    assert_eq!(world.sources.last(), Some(&(0, true, address, 0x0203_0405_0607)));
    world.start();
    assert_eq!(world.command(CommandOpcode::Nothing, 0, &[]), CommandStatus::Success);
    world.make_queues();
    for events in &world.setups {
        let last = events.last().expect("every stage is told");
        assert_eq!((last.kind, last.local_qp), (SetupKind::Restart as u64, u64::from(QPN)));
        assert_eq!(events.len(), 1);
    }

    // Doorbells.
    let number = u64::from(QPN);
    world.ring(PAGE, &SEND, number | 9 << 32);
    world.ring(PAGE, &RECEIVE, number | 11 << 32);
    world.ring(PAGE, &COMPLETION, 3 | 13 << 32);
    assert_eq!(world.posted, [("send", 5, 9), ("receive", 5, 11), ("completions", 3, 13)]);
    world.ring(PAGE + 1, &SEND, number | 9 << 32);
    world.ring(PAGE, &SEND, number ^ 1 << 20);
    assert_eq!((world.posted.len(), world.foreign, world.unknown), (3, 1, 1));

    // A reset waits for the card to drain, and answers meanwhile.
    world.block.set("drained", 0u8);
    world.write(at::CONTROL, 0b10);
    for _ in 0..10 {
        let status = world.status();
        assert!(status.resetting && !status.ready && !status.drained);
        assert!(!world.block.is("core_reset") && !world.block.is("enable"));
    }
    world.block.set("drained", 1u8);
    world.wait_for_reset();
    for events in &world.setups {
        let last = events.last().expect("every stage is told");
        assert_eq!((last.kind, last.queue_pair), (SetupKind::Restart as u64, 5));
        assert_eq!((events.len(), last.state), (2, 0));
        assert_ne!(last.generation, events[0].generation);
    }
    assert_eq!(world.read(at::ADMIN_COMMAND_BASE), 0);
    assert!(!world.status().fatal);
    world.start();
    world.ring(PAGE, &SEND, number | 9 << 32);
    assert_eq!((world.posted.len(), world.unknown), (3, 2), "no such object");
    // What was destroyed can be made again.
    world.make_queues();
    world.ring(PAGE, &SEND, number | 9 << 32);
    assert_eq!(world.posted.len(), 4);

    // A failure of the device is reported, and commands are answered with its status.
    world.events.clear();
    world.block.set("lost_read_tag", 1u8);
    world.tick();
    world.block.set("lost_read_tag", 0u8);
    assert!(world.status().fatal);
    assert_eq!(world.read(at::FATAL), u64::from(FatalCode::LostReadTag.number()));
    assert!(!world.block.is("enable"), "a card that has failed begins nothing");
    while world.events.is_empty() {
        world.tick();
    }
    let (asynchronous, fatal) = (EventKind::Asynchronous.number(), AsyncEvent::DeviceFatal.number());
    assert_eq!(world.events, [(u64::from(asynchronous), u64::from(fatal))]);
    assert_eq!(world.command(CommandOpcode::Nothing, 0, &[]), CommandStatus::DeviceFailed);
    world.ring(PAGE, &SEND, number | 9 << 32);
    assert_eq!(world.posted.len(), 4, "and doorbells");
}
