use super::*;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, Stimulus, random};
use rnic_messages::frame::{ACCEPTED_CONGESTION, ACCEPTED_REQUEST, ACCEPTED_RESPONSE, Count};
use rnic_messages::sizes::Sizes;
use std::collections::BTreeMap;

const DATAPATH_BITS: u16 = 512;
const CLOCK_KHZ: u32 = 250_000;
/// Cycles from a write to its message, and one more.
const WRITE_CYCLES: usize = 5;

/// A message of the registers to a part of the card.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Message {
    Source(SourceAddressWrite),
    Moderation(u64, u64),
    Doorbell(u64),
    EventQueue(EventQueueSetup),
    Clear(u64),
    Reset,
    Latch,
    Unmapped,
}

/// Tells whether an address is that of a counter or of the level of a pool.
fn is_count(address: u64) -> bool {
    (COUNTERS_BEGIN..COUNTERS_END).contains(&address) || (POOLS_BEGIN..POOLS_END).contains(&address)
}

/// The registers in plain Rust, from their tables.
struct Model {
    values: BTreeMap<u64, u64>,
    queue_runs: bool,
    messages: Vec<Message>,
}

fn register_at(address: u64) -> Option<&'static map::Register> {
    REGISTERS
        .iter()
        .find(|register| (0..register.count).any(|index| u64::from(register.at(index)) == address))
}

fn mask_of(register: &map::Register) -> u64 {
    if register.name == "port_control" {
        return 3;
    }
    register.record.fields.iter().fold(0, |mask, field| mask | field.max() << field.offset)
}

fn bytes_of(strobe: u64) -> u64 {
    (0..8).filter(|byte| strobe >> byte & 1 == 1).fold(0, |mask, byte| mask | 0xff << (8 * byte))
}

impl Model {
    fn new() -> Self {
        let values = values(DATAPATH_BITS, CLOCK_KHZ).into();
        Model { values, queue_runs: false, messages: Vec::new() }
    }

    fn value(&self, address: u64) -> u64 {
        self.values.get(&address).copied().unwrap_or(0)
    }

    fn write(&mut self, address: u64, data: u64, strobe: u64) {
        let Some(register) = register_at(address) else {
            self.messages.extend((!is_count(address)).then_some(Message::Unmapped));
            return;
        };
        let mask = mask_of(register) & bytes_of(strobe);
        let acts = strobe >> 7 == 1;
        match register.access {
            Access::ReadOnly | Access::WriteOnly => return,
            Access::WriteOneToClear => {
                self.messages.extend((data & mask != 0).then_some(Message::Clear(data & mask)));
                return;
            }
            Access::ReadWrite => {}
        }
        let value = self.value(address) & !mask | data & mask;
        self.values.insert(address, value);
        if !acts {
            return;
        }
        let index = (address - u64::from(register.offset)) / u64::from(register.stride);
        match register.name {
            "control" => {
                self.values.insert(address, value & !2);
                self.messages.extend((value & 2 != 0).then_some(Message::Reset));
            }
            "counter_latch" => {
                self.values.insert(address, 0);
                self.messages.extend((value & 1 != 0).then_some(Message::Latch));
            }
            "admin_doorbell" => self.messages.push(Message::Doorbell(value)),
            "event_queue_control" => {
                let runs = value >> 8 & 1 == 1;
                self.messages.push(Message::EventQueue(EventQueueSetup {
                    event_queue: bits(0),
                    restarts: runs != std::mem::replace(&mut self.queue_runs, runs),
                    valid: runs,
                    entries_log2: bits(value & 31),
                    vector: bits(value >> 16 & 63),
                    base_page: bits(self.value(at::EVENT_QUEUE_BASE) >> 12),
                }));
            }
            "interrupt_moderation" => self.messages.push(Message::Moderation(index, value)),
            name if name.starts_with("source_address") => {
                let part = |part: u32| self.value(u64::from(0x400 + 8 * part) + 32 * index);
                let address = u128::from(part(0)) << 64 | u128::from(part(1));
                self.messages.push(Message::Source(SourceAddressWrite {
                    index: bits(index),
                    valid: part(2) >> 48 & 1 == 1,
                    address: address.to_bits(),
                    mac: bits(part(2) & 0xffff_ffff_ffff),
                }));
            }
            _ => {}
        }
    }
}

struct World {
    bench: Bench<CardRegisters>,
    messages: Vec<Message>,
}

impl World {
    fn new() -> Self {
        let registers = CardRegisters::new(DATAPATH_BITS, CLOCK_KHZ);
        World { bench: Bench::clocked(registers, |block| &mut block.clock), messages: Vec::new() }
    }

    fn in_lock_step(self) -> Self {
        World { bench: self.bench.in_lock_step(), ..self }
    }

    fn tick(&mut self) {
        self.bench.settle();
        let block = &self.bench.block;
        let period = block.interrupt.moderation_period.val().to_u64();
        let clear = block.interrupt.pending_clear.val().to_u64();
        let offers = [
            (block.source_address_write.valid.val(), Message::Source(block.source_address_write.value.val())),
            (
                block.interrupt.moderation_write.val(),
                Message::Moderation(block.interrupt.moderation_vector.val().to_u64(), period),
            ),
            (block.admin.doorbell.valid.val(), Message::Doorbell(block.admin.doorbell.value.val().to_u64())),
            (block.event_queue_0.valid.val(), Message::EventQueue(block.event_queue_0.value.val())),
            (clear != 0, Message::Clear(clear)),
            (block.reset_request.val(), Message::Reset),
            (block.counters.latch.val(), Message::Latch),
            (block.counts_register_unmapped.val(), Message::Unmapped),
        ];
        self.messages.extend(offers.iter().filter(|offer| offer.0).map(|offer| offer.1));
        self.bench.tick();
        self.bench.block.write.next = false;
        self.bench.block.read.next = false;
    }

    fn write(&mut self, address: u64, data: u64, strobe: u64) {
        let block = &mut self.bench.block;
        block.write.next = true;
        block.write_address.next = bits(address);
        block.write_data.next = bits(data);
        block.write_strobe.next = bits(strobe);
        (0..WRITE_CYCLES).for_each(|_| self.tick());
    }

    fn read(&mut self, address: u64) -> u64 {
        self.bench.block.read.next = true;
        self.bench.block.read_address.next = bits(address);
        (0..READ_CYCLES).for_each(|_| self.tick());
        self.bench.settle();
        self.bench.block.read_data.val().to_u64()
    }
}

/// Registers that only keep what is written, and where they end.
fn draw_address(random: &mut Random) -> u64 {
    match random.random_range(0..12) {
        0 => 8 * random.random_range(0..0x1000),
        1 => {
            *[COUNTERS_END, POOLS_BEGIN, POOLS_END].choose(random).expect("ends")
                + 8 * random.random_range(0..2)
                - 8
        }
        2 => 1 << random.random_range(14..SPACE_BITS),
        3..=5 => 0x400 + 8 * random.random_range(0..12),
        6 => 0x800 + 8 * random.random_range(0..4),
        _ => {
            let register = REGISTERS.choose(random).expect("there are registers");
            register.at(random.random_range(0..register.count)).into()
        }
    }
}

#[test]
fn registers_behave_as_their_tables_say() {
    let mut random = random();
    let mut world = World::new().in_lock_step();
    let mut model = Model::new();
    for round in 0..2500 {
        let address = draw_address(&mut random);
        let data = Bits::<64>::sample(&mut random).to_u64();
        let strobe =
            *[0xff, 0xff, 0xff, 0x0f, 0xf0, random.random_range(0..256)].choose(&mut random).unwrap();
        world.write(address, data, strobe);
        model.write(address, data, strobe);
        assert_eq!(
            std::mem::take(&mut world.messages),
            std::mem::take(&mut model.messages),
            "round {round}: {data:x} with {strobe:x} to {address:x}"
        );
        let block = &world.bench.block;
        let control = model.value(at::CONTROL);
        let (enable, quiesces) = (control & 1 == 1, control & 4 == 4);
        assert_eq!(block.enable.val(), enable && !quiesces);
        assert_eq!((block.doorbell_enable.val(), block.quiesces.val()), (enable, quiesces));
        assert_eq!(block.own_mac.val().to_u64(), model.value(at::OWN_MAC));
        assert_eq!(block.host_limit.val().to_u64(), model.value(at::HOST_LIMIT));
        assert_eq!(block.timer_unit.val().to_u64(), model.value(at::TIMER_UNIT));
        let port = model.value(at::PORT_CONTROL);
        assert_eq!(block.promiscuous.val(), port & 1 == 1);
        assert_eq!(block.accept_multicast.val(), port & 2 == 2);
        let page = |address| model.value(address) & !0xfff;
        assert_eq!(block.admin.command_base.val().to_u64(), page(at::ADMIN_COMMAND_BASE));
        assert_eq!(block.admin.answer_base.val().to_u64(), page(at::ADMIN_ANSWER_BASE));
        let admin = model.value(at::ADMIN_CONTROL);
        assert_eq!(block.admin.entries_log2.val().to_u64(), admin & 15);
        assert_eq!(block.admin.enable.val(), admin >> 8 & 1 == 1);
        assert_eq!(block.admin.event_on_answer.val(), admin >> 9 & 1 == 1);
        assert_eq!(block.interrupt.mask.val().to_u64(), model.value(at::INTERRUPT_MASK));
        let valid = (0..16).filter(|index| model.value(0x410 + 32 * index) >> 48 & 1 == 1);
        assert_eq!(block.source_addresses.val().to_u64(), valid.fold(0, |all, index| all | 1 << index));

        let address = if random.random() { address } else { draw_address(&mut random) };
        let is_live = [at::STATUS, at::FATAL, at::ADMIN_DOORBELL, at::ADMIN_PROGRESS, at::INTERRUPT_PENDING];
        if is_live.contains(&address) || is_count(address) {
            continue;
        }
        assert_eq!(world.read(address), model.value(address), "round {round}: {address:x}");
        let is_mapped = register_at(address).is_some();
        assert_eq!(
            std::mem::take(&mut world.messages),
            if is_mapped { vec![] } else { vec![Message::Unmapped] }
        );
    }
}

#[test]
fn registers_that_describe_the_card_have_their_values() {
    let mut world = World::new();
    assert_eq!(world.read(at::MAGIC), map::MAGIC);
    let read = |world: &mut World, address| world.read(address).to_le_bytes();
    let features = Features::parse(&read(&mut world, at::FEATURES)).unwrap();
    assert!(features.packet_path && features.reliable_connected && features.read && features.atomics);
    assert!(features.page_lists && features.retransmission);
    let geometry = Geometry::parse(&read(&mut world, at::GEOMETRY)).unwrap();
    assert_eq!((geometry.datapath_bits, geometry.clock_khz), (DATAPATH_BITS, CLOCK_KHZ));
    let tables = TableSizes::parse(&read(&mut world, at::TABLE_SIZES)).unwrap();
    assert_eq!(tables.queue_pairs_log2 as usize, Sizes::LARGEST.queue_pairs);
    let queues = QueueLimits::parse(&read(&mut world, at::QUEUE_LIMITS)).unwrap();
    assert_eq!((queues.send_sges, queues.receive_sges, queues.inline_bytes), (6, 3, 96));
    assert_eq!((world.read(at::MESSAGE_LIMIT), queues.psn_window_log2), (1 << 31, 15));
    let memory = MemoryLimits::parse(&read(&mut world, at::MEMORY_LIMITS)).unwrap();
    assert_eq!((memory.address_bits, memory.smallest_page_log2, memory.largest_page_log2), (64, 12, 30));
    assert_eq!((memory.pages_log2, memory.read_slots_log2, queues.response_sges), (14, 13, 2));
    assert_eq!(world.read(at::PORT_CONTROL), 4224 << 16 | 5 << 4);
    assert_eq!(world.read(at::HOST_LIMIT), 15_625);
    assert_eq!(world.read(at::TIMER_UNIT), 1024);
}

#[test]
fn what_the_card_does_can_be_read() {
    let mut random = random();
    let mut world = World::new().in_lock_step();
    for _ in 0..100 {
        let block = &mut world.bench.block;
        let flags: [bool; 8] = random.random();
        let [drained, link_up, failed, busy, stopped, resetting, latching, bus_master] = flags;
        block.drained.next = drained;
        block.port.link_up.next = link_up;
        block.may_request.next = bus_master;
        block.port.permanent_mac.next = bits(0x0200_0304_0506);
        block.port.speed.next = bits(400_000);
        block.device_failed.next = failed;
        block.admin.busy.next = busy;
        block.admin.failed.next = stopped;
        block.is_resetting.next = resetting;
        block.counters.is_latching.next = latching;
        block.fatal_code.next = bits(0x12);
        block.fatal_detail.next = bits(0x3456_789a);
        block.admin.producer_index.next = bits(0xabcd);
        block.admin.consumer_index.next = bits(0xfedc);
        block.interrupt.pending.next = bits(0x1234_5678_9abc_def0);
        let status =
            map::Status { ready: !resetting, resetting, drained, fatal: failed, link_up, bus_master };
        let progress = map::AdminProgress { consumer_index: 0xfedc, busy, failed: stopped };
        let value = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
        for (address, expected) in [
            (at::STATUS, value(status.to_bytes().unwrap())),
            (at::ADMIN_PROGRESS, value(progress.to_bytes().unwrap())),
            (at::FATAL, 0x3456_789a << 32 | 0x12),
            (at::PERMANENT_MAC, 0x0200_0304_0506),
            (at::PORT_SPEED, 400_000),
            (at::ADMIN_DOORBELL, 0xabcd),
            (at::INTERRUPT_PENDING, 0x1234_5678_9abc_def0),
            (at::COUNTER_LATCH, latching.into()),
        ] {
            assert_eq!(world.read(address), expected, "{address:x}");
        }
    }
}

/// Both kinds of counters answer two cycles after their index, as late as they may.
#[test]
fn every_counter_is_read_from_where_it_is_counted() {
    let mut world = World::new().in_lock_step();
    for (index, counter) in map::COUNTERS.iter().enumerate() {
        let address = u64::from(map::counter_offset(index));
        let mut delayed = [(0, 0); 2];
        world.bench.block.read.next = true;
        world.bench.block.read_address.next = bits(address);
        for _ in 0..READ_CYCLES {
            world.bench.settle();
            let block = &mut world.bench.block;
            let next = (block.counters.frame_index.val().to_u64(), block.counters.event_index.val().to_u64());
            let due = delayed[1];
            delayed = [next, delayed[0]];
            block.counters.frame_value.next = Count { frames: bits(0x1000 + due.0), bytes: bits(0) };
            block.counters.event_value.next = bits(0x2000 + due.1);
            world.tick();
        }
        world.bench.settle();
        let value = world.bench.block.read_data.val().to_u64();
        let expected = match counter.name {
            "frames_received" | "bytes_received" | "frames_sent" | "bytes_sent" => 0,
            "requests_received" => 0x1000 + ACCEPTED_REQUEST,
            "responses_received" => 0x1000 + ACCEPTED_RESPONSE,
            "congestion_notifications_received" => 0x1000 + ACCEPTED_CONGESTION,
            _ if index < map::DROP_COUNTERS => 0x1000 + index as u64,
            _ => 0x2000 + (index - FIRST_EVENT) as u64,
        };
        assert_eq!(value, expected, "{}", counter.name);
    }
    assert!(world.messages.is_empty(), "counters are mapped");
}

/// A level answers two cycles after its index, as late as it may.
#[test]
fn every_pool_is_read_at_its_offset() {
    let mut world = World::new().in_lock_step();
    for (index, pool) in map::POOLS.iter().enumerate() {
        let mut delayed = [0; 2];
        world.bench.block.read.next = true;
        world.bench.block.read_address.next = bits(map::pool_offset(index).into());
        for _ in 0..READ_CYCLES {
            world.bench.settle();
            let next = world.bench.block.counters.pool_index.val().to_u64();
            world.bench.block.counters.pool_level.next = bits(0x3000 + delayed[1]);
            delayed = [next, delayed[0]];
            world.tick();
        }
        world.bench.settle();
        let value = world.bench.block.read_data.val().to_u64();
        assert_eq!(value, 0x3000 + index as u64, "{}", pool.name);
    }
    assert!(world.messages.is_empty(), "pools are mapped");
}

#[test]
fn frames_are_counted_up_to_the_latch() {
    let mut world = World::new();
    for round in 1..=5 {
        world.bench.block.port.outcome.valid.next = true;
        world.bench.block.port.outcome.value.next.frame_bytes = bits(100);
        world.bench.block.port.sent_frame.next = round % 2 == 0;
        world.bench.block.port.sent_bytes.next = bits(50);
        world.tick();
    }
    world.bench.block.port.outcome.valid.next = false;
    world.bench.block.port.sent_frame.next = false;
    world.bench.block.port.sent_bytes.next = bits(0);
    assert_eq!(world.read(at::FRAMES_RECEIVED), 0);
    world.write(at::COUNTER_LATCH, 1, 0xff);
    assert_eq!(world.read(at::FRAMES_RECEIVED), 5);
    assert_eq!(world.read(at::BYTES_RECEIVED), 500);
    assert_eq!(world.read(at::FRAMES_SENT), 2);
    assert_eq!(world.read(at::BYTES_SENT), 250);
}

#[test]
fn a_sweep_brings_every_register_back() {
    let mut random = random();
    let mut world = World::new().in_lock_step();
    let mut model = Model::new();
    for register in REGISTERS {
        for index in 0..register.count {
            let data = random.random::<u64>() | 1;
            if register.name != "control" && register.name != "counter_latch" {
                world.write(register.at(index).into(), data, 0xff);
            }
        }
    }
    world.bench.block.is_resetting.next = true;
    world.messages.clear();
    for index in 0..1 << WORD_BITS {
        // What software writes meanwhile is lost.
        world.bench.block.write.next = true;
        world.bench.block.sweep.next.is_sweeping = true;
        world.bench.block.sweep.next.index = bits(index);
        world.tick();
    }
    world.bench.block.sweep.next.is_sweeping = false;
    (0..WRITE_CYCLES).for_each(|_| world.tick());
    // Tables of other parts are cleared too; rings are not rung.
    let sources = world.messages.iter().filter(|message| matches!(message, Message::Source(_))).count();
    let moderations = world.messages.iter().filter(|message| matches!(message, Message::Moderation(_, 0)));
    assert_eq!((sources, moderations.count()), (3 * 16, 64));
    assert_eq!(world.messages.len(), 3 * 16 + 64);
    let last = world.messages.iter().rev().find_map(|message| match message {
        Message::Source(write) => Some(*write),
        _ => None,
    });
    assert_eq!(last, Some(SourceAddressWrite { index: bits(15), ..SourceAddressWrite::default() }));
    assert!(!world.bench.block.enable.val() && !world.bench.block.doorbell_enable.val());
    world.write(at::SCRATCH, 5, 0xff);
    world.bench.block.is_resetting.next = false;
    for register in REGISTERS {
        for index in 0..register.count {
            let address = register.at(index).into();
            let is_live = ["status", "fatal", "admin_progress"].contains(&register.name);
            if !is_live {
                assert_eq!(world.read(address), model.value(address), "{} {index}", register.name);
            }
        }
    }
    // Event queue 0 starts anew when it is enabled again.
    world.messages.clear();
    world.write(at::EVENT_QUEUE_CONTROL, 1 << 8 | 7, 0xff);
    model.write(at::EVENT_QUEUE_CONTROL, 1 << 8 | 7, 0xff);
    assert_eq!(world.messages, model.messages);
}

#[test]
fn every_access_without_a_register_is_counted_once() {
    // Write, read, one still to be counted; counted, still to be counted.
    for (write, read, owed, any, owes) in [
        (false, false, false, false, false),
        (true, false, false, true, false),
        (false, true, false, true, false),
        (true, true, false, true, true),
        (false, false, true, true, false),
        (true, false, true, true, true),
        (false, true, true, true, true),
    ] {
        assert_eq!(misses(write, read, owed), Misses { any, owes });
    }
}
