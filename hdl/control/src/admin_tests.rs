//! Admin ring and execute, joined, against an interpreter of commands in plain Rust.
//!
//! The interpreter knows the layout's parser, its tables of states and its records, and nothing of steps and stores. The host, the
//! stages and the sections of the card are played by the test, with random delays.
use crate::admin_ring::AdminRing;
use crate::invalidate::BUSY_CYCLES;
use crate::messages::{PageWrite, SECTIONS};
use crate::object_store::Kind;
use crate::sequencer::Sequencer;
use num_bigint::BigUint;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, random};
use rnic_kernel::prelude::*;
use rnic_layout::admin::{
    Answer, BODIES, BODY_OFFSET, COMMAND_BYTES, Command, CommandHeader, CommandOpcode, CommandStatus,
    CreateAddressHandle, CreateCompletionQueue, CreateEventQueue, CreateQueuePair, CreateRegion,
    CreateSharedReceiveQueue, ModifyQueuePair, ModifyRegion, ModifySharedReceiveQueue, Query, RegionKind,
};
use rnic_layout::context::PathRecord;
use rnic_layout::field::Record;
use rnic_layout::queue::event::{AsyncEvent, EventKind};
use rnic_layout::registers::FatalCode;
use rnic_layout::state::{
    ATTRIBUTES, AttributeMask, Cause, QpState, Service, TransitionError, after, check_transition, transition,
};
use rnic_messages::complete::{CompletionQueueSetup, EventQueueSetup};
use rnic_messages::host::Slot;
use rnic_messages::protect::{Invalidated, Invalidation, PageEntryWrite, Region, RegionWrite};
use rnic_messages::setup::{
    InFlight, NoticeKind, QpNotice, SetupEvent, SetupKind, SrqLimitNotice, SrqSetup, SrqSetupKind,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

type Bytes = [u8; COMMAND_BYTES];
type Refusal = (CommandStatus, u32);

/// Cycles from a request to end a key to the tables of regions.
const TOLD_AFTER: u64 = 6;
const COMMAND_BASE: u64 = 0x1234_5678_9000;
const ANSWER_BASE: u64 = 0xffff_0000_1000;
const PATH: Record = PathRecord::RECORD;

/// A queue pair, as the interpreter has it.
#[derive(Clone)]
struct Pair {
    number: u32,
    page: u64,
    state: QpState,
    /// The create command, as far as it can be read back.
    created: Bytes,
    /// A modify command with all attributes that are kept.
    attributes: Bytes,
    /// The handle's command.
    handle: Bytes,
}

/// What somebody outside is told.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Setup(Box<SetupEvent>),
    SrqSetup(SrqSetup),
    Region(RegionWrite),
    CompletionQueue(CompletionQueueSetup),
    EventQueue(EventQueueSetup),
    Page(PageWrite),
    PageEntry(PageEntryWrite),
    Write(u64, Vec<u8>),
    Event(u64, u64, u64, u64),
}

/// A notice of a stage.
#[derive(Clone, Copy)]
enum Notice {
    OfPair(QpNotice),
    OfLimit(SrqLimitNotice),
}

/// The interpreter.
#[derive(Default)]
struct Model {
    pairs: BTreeMap<u32, Pair>,
    generations: BTreeMap<u32, u8>,
    /// Key, create command, and where the first byte is.
    regions: BTreeMap<u32, (u32, Bytes, u64)>,
    /// Entries of lists of pages in host memory, and slots that the host does not give.
    lists: BTreeMap<u64, u64>,
    bad_slots: BTreeSet<u64>,
    completion_queues: BTreeMap<u32, Bytes>,
    event_queues: BTreeMap<u32, Bytes>,
    /// Shared receive queues, with the limit as it reads back.
    shared: BTreeMap<u32, Bytes>,
    /// How often their limits were set.
    settings: BTreeMap<u32, u8>,
    handles: BTreeMap<u32, Bytes>,
    /// Those in use, one bit each.
    source_addresses: u64,
    told: Vec<Told>,
}

fn body(bytes: &Bytes) -> &[u8] {
    &bytes[BODY_OFFSET..]
}

fn get(record: &Record, bytes: &Bytes, name: &str) -> u64 {
    record.field(name).get(body(bytes))
}

fn put(record: &Record, bytes: &mut Bytes, name: &str, value: u64) {
    record.field(name).set(&mut bytes[BODY_OFFSET..], value).expect("the value fits");
}

fn at(record: &Record, name: &str) -> u32 {
    BODY_OFFSET as u32 * 8 + record.field(name).offset
}

fn refuse<T>(status: CommandStatus, detail: u32) -> Result<T, Refusal> {
    Err((status, detail))
}

const HANDLED: [&str; 9] = [
    "is_ipv6",
    "vlan_present",
    "source_address_index",
    "vlan_control",
    "source_port",
    "destination_mac",
    "traffic_class",
    "hop_limit",
    "flow_label",
];

/// Attributes of a modify command that are kept, by flag.
fn kept() -> Vec<(u32, Vec<&'static str>)> {
    let elsewhere = AttributeMask::STATE
        .and(AttributeMask::CURRENT_STATE)
        .and(AttributeMask::PORT)
        .and(AttributeMask::ADDRESS)
        .and(AttributeMask::RECEIVE_PSN)
        .and(AttributeMask::SEND_PSN);
    let kept = ATTRIBUTES.iter().filter(|one| !one.field.is_empty() && !elsewhere.contains(one.mask));
    kept.map(|one| {
        let rights = vec!["local_write", "remote_write", "remote_read", "remote_atomic"];
        (one.mask.0, if one.mask == AttributeMask::ACCESS { rights } else { vec![one.field] })
    })
    .collect()
}

impl Model {
    fn generation(&self, index: u32) -> u8 {
        self.generations.get(&index).copied().unwrap_or(0)
    }

    fn age(&mut self, index: u32) {
        let generation = self.generations.entry(index).or_default();
        *generation = generation.wrapping_add(1);
    }

    fn path(&self, pair: &Pair) -> Bits<576> {
        let create = &CreateQueuePair::RECORD;
        let mut bytes = [0; 72];
        let mut set = |name: &str, value: u64| PATH.field(name).set(&mut bytes, value).expect("it fits");
        for name in [
            "service",
            "shared_receive",
            "signal_all",
            "send_slots_log2",
            "receive_wqes_log2",
            "domain",
            "send_completion_queue",
            "receive_completion_queue",
            "shared_receive_queue",
        ] {
            set(name, get(create, &pair.created, name));
        }
        set("send_base_page", get(create, &pair.created, "send_base") >> 12);
        set("receive_base_page", get(create, &pair.created, "receive_base") >> 12);
        for (_, names) in kept() {
            for name in names {
                set(name, get(&ModifyQueuePair::RECORD, &pair.attributes, name));
            }
        }
        for name in HANDLED {
            set(name, get(&CreateAddressHandle::RECORD, &pair.handle, name));
        }
        set("local_qp", u64::from(pair.number));
        set("generation", u64::from(self.generation(pair.number % 1024)));
        let address = CreateAddressHandle::RECORD.field("destination_address").offset as usize / 8;
        let address: [u8; 16] = body(&pair.handle)[address..address + 16].try_into().expect("16 bytes");
        PATH.field("destination_address")
            .set_wide(&mut bytes, u128::from_be_bytes(address))
            .expect("it fits");
        BigUint::from_bytes_le(&bytes).into()
    }

    fn tell_setup(&mut self, kind: SetupKind, pair: &Pair, psn: u64) {
        let path = self.path(pair);
        self.told.push(Told::Setup(Box::new(SetupEvent {
            kind,
            queue_pair: bits(u64::from(pair.number % 1024)),
            state: bits(pair.state.number().into()),
            generation: bits(self.generation(pair.number % 1024).into()),
            psn: bits(psn),
            path: crate::path::path_of(path),
        })));
    }

    /// The stages are told of a shared receive queue; of one that ends no limit.
    fn tell_shared(&mut self, kind: SrqSetupKind, number: u32, exists: bool) {
        let create = self.shared[&number];
        let record = &CreateSharedReceiveQueue::RECORD;
        let if_exists = |value: u64| if exists { value } else { 0 };
        self.told.push(Told::SrqSetup(SrqSetup {
            kind,
            srq: bits(number.into()),
            is_alive: exists,
            base_page: bits(get(record, &create, "base") >> 12),
            entries_log2: bits(get(record, &create, "entries_log2")),
            limit: bits(if_exists(get(record, &create, "limit"))),
            limit_generation: bits(if_exists(self.settings[&number].into())),
        }));
    }

    fn set_limit(&mut self, number: u32, limit: u64) {
        let setting = self.settings.entry(number).or_default();
        *setting = setting.wrapping_add(1);
        let create = self.shared.get_mut(&number).expect("it exists");
        put(&CreateSharedReceiveQueue::RECORD, create, "limit", limit);
    }

    fn end_shared(&mut self, number: u32) {
        let page = get(&CreateSharedReceiveQueue::RECORD, &self.shared[&number], "doorbell_page");
        self.tell_page(Kind::SharedReceive, number, page, false);
        self.tell_shared(SrqSetupKind::Restart, number, false);
        let setting = self.settings.get_mut(&number).expect("it exists");
        *setting = setting.wrapping_add(1);
        self.shared.remove(&number);
    }

    fn tell_page(&mut self, kind: Kind, number: u32, page: u64, valid: bool) {
        self.told.push(Told::Page(PageWrite {
            kind,
            index: bits(u64::from(number % 1024)),
            valid,
            page: bits(page),
            number: bits(number.into()),
        }));
    }

    fn tell_region(&mut self, &(key, ref create, first_byte): &(u32, Bytes, u64), valid: bool) {
        let record = &CreateRegion::RECORD;
        let flag = |name| get(record, create, name) == 1;
        if !valid || get(record, create, "kind") == u64::from(RegionKind::Free.number()) {
            self.told.push(Told::Region(no_region(key)));
            return;
        }
        self.told.push(Told::Region(RegionWrite {
            index: bits(u64::from(key >> 8 & 1023)),
            region: Region {
                key: bits(key.into()),
                valid: true,
                local_write: flag("local_write"),
                remote_write: flag("remote_write"),
                remote_read: flag("remote_read"),
                remote_atomic: flag("remote_atomic"),
                zero_based: flag("zero_based"),
                first_address: bits(get(record, create, "first_address")),
                length: bits(get(record, create, "length")),
                translation_base: bits(first_byte),
                domain: bits(get(record, create, "domain")),
            },
        }));
    }

    fn tell_completion_queue(&mut self, number: u32, create: &Bytes, restarts: bool, valid: bool) {
        let record = &CreateCompletionQueue::RECORD;
        self.told.push(Told::CompletionQueue(CompletionQueueSetup {
            completion_queue: bits(number.into()),
            restarts,
            valid,
            entries_log2: bits(get(record, create, "entries_log2")),
            event_queue: bits(get(record, create, "event_queue")),
            moderation_count: bits(get(record, create, "moderation_count")),
            moderation_period: bits(get(record, create, "moderation_period")),
            base_page: bits(get(record, create, "base") >> 12),
        }));
        self.tell_page(Kind::CompletionQueue, number, get(record, create, "doorbell_page"), valid);
    }

    fn tell_event_queue(&mut self, number: u32, create: &Bytes, restarts: bool, valid: bool) {
        let record = &CreateEventQueue::RECORD;
        self.told.push(Told::EventQueue(EventQueueSetup {
            event_queue: bits(number.into()),
            restarts,
            valid,
            entries_log2: bits(get(record, create, "entries_log2")),
            vector: bits(get(record, create, "vector")),
            base_page: bits(get(record, create, "base") >> 12),
        }));
        self.tell_page(Kind::EventQueue, number, get(record, create, "doorbell_page"), valid);
    }

    fn set_event_queue_0(&mut self, setup: EventQueueSetup) {
        let record = &CreateEventQueue::RECORD;
        let mut bytes = [0; COMMAND_BYTES];
        // The registers allow smaller rings than commands do.
        bytes[BODY_OFFSET] = setup.entries_log2.to_u64() as u8;
        put(record, &mut bytes, "vector", setup.vector.to_u64());
        put(record, &mut bytes, "base", setup.base_page.to_u64() << 12);
        self.event_queues.insert(0, bytes);
        self.tell_event_queue(0, &bytes, setup.restarts, setup.valid);
    }

    /// Everything that exists is forgotten.
    fn forget(&mut self) {
        let sorted = |keys: Vec<u32>| {
            let mut keys = keys;
            keys.sort_unstable();
            keys
        };
        for index in sorted(self.pairs.keys().copied().collect()) {
            let mut pair = self.pairs.remove(&index).expect("it exists");
            pair.state = QpState::Reset;
            self.age(index);
            self.tell_page(Kind::QueuePair, pair.number, pair.page, false);
            self.tell_setup(SetupKind::Restart, &pair, 0);
        }
        for index in sorted(self.regions.keys().copied().collect()) {
            let region = self.regions.remove(&index).expect("it exists");
            self.tell_region(&region, false);
        }
        for number in sorted(self.completion_queues.keys().copied().collect()) {
            let create = self.completion_queues.remove(&number).expect("it exists");
            self.tell_completion_queue(number, &create, true, false);
        }
        self.handles.clear();
        for number in sorted(self.event_queues.keys().copied().collect()) {
            let create = self.event_queues.remove(&number).expect("it exists");
            self.tell_event_queue(number, &create, true, false);
        }
        sorted(self.shared.keys().copied().collect()).into_iter().for_each(|number| self.end_shared(number));
    }

    /// A limit is reached; what is not said of its last setting means nothing.
    fn reach_limit(&mut self, notice: SrqLimitNotice) {
        let number = notice.srq.to_u64() as u32;
        let setting = self.settings.get(&number).copied().unwrap_or(0);
        if !self.shared.contains_key(&number) || notice.limit_generation != u64::from(setting) {
            return;
        }
        put(&CreateSharedReceiveQueue::RECORD, self.shared.get_mut(&number).expect("it exists"), "limit", 0);
        let kind = u64::from(EventKind::Asynchronous.number());
        let code = AsyncEvent::SharedReceiveLimit.number();
        self.told.push(Told::Event(number.into(), 0, kind, code.into()));
    }

    /// A queue pair fails or has drained; tells whether the notice was of an older generation.
    fn fail(&mut self, event: QpNotice) -> bool {
        let index = event.queue_pair.to_u64() as u32;
        let Some(pair) = self.pairs.get(&index).cloned() else { return true };
        if event.generation != u64::from(self.generation(index)) {
            return true;
        }
        let cause = match event.kind {
            NoticeKind::RequesterError => Cause::RequesterError,
            NoticeKind::ResponderError => Cause::ResponderError,
            NoticeKind::QueueError => Cause::QueueError,
            NoticeKind::Drained => {
                if pair.state == QpState::SendQueueDrain {
                    let kind = u64::from(EventKind::Asynchronous.number());
                    self.told.push(Told::Event(pair.number.into(), 0, kind, event.event_code.to_u64()));
                }
                return false;
            }
        };
        let state = after(Service::ReliableConnected, pair.state, cause);
        if state != pair.state {
            let pair = Pair { state, ..pair };
            self.tell_setup(SetupKind::Life, &pair, 0);
            if event.has_event {
                let kind = u64::from(EventKind::Asynchronous.number());
                self.told.push(Told::Event(pair.number.into(), 0, kind, event.event_code.to_u64()));
            }
            self.pairs.insert(index, pair);
        }
        false
    }

    /// Eight entries of a list of pages.
    fn list_slot(&self, address: u64) -> Bytes {
        let mut bytes = [0; COMMAND_BYTES];
        for (index, entry) in bytes.chunks_exact_mut(8).enumerate() {
            let page = self.lists.get(&(address + 8 * index as u64)).copied().unwrap_or(0);
            entry.copy_from_slice(&page.to_le_bytes());
        }
        bytes
    }

    fn pair(&self, number: u32) -> Result<Pair, Refusal> {
        if number >> 24 != 0 {
            return refuse(CommandStatus::NumberOutOfRange, 32);
        }
        match self.pairs.get(&(number % 1024)) {
            Some(pair) if pair.number == number => Ok(pair.clone()),
            _ => refuse(CommandStatus::DoesNotExist, 0),
        }
    }

    fn within(number: u32, bits: u32) -> Result<(), Refusal> {
        if number >> bits != 0 { refuse(CommandStatus::NumberOutOfRange, 32) } else { Ok(()) }
    }

    fn found(table: &BTreeMap<u32, Bytes>, number: u32, bits: u32) -> Result<Bytes, Refusal> {
        Self::within(number, bits)?;
        table.get(&number).copied().ok_or((CommandStatus::DoesNotExist, 0))
    }

    /// Executes a command; gives the detail of the answer.
    fn sequencer(&mut self, bytes: &Bytes, probed: (u64, u64, bool)) -> Result<u32, Refusal> {
        use CommandOpcode as Op;
        let command = Command::parse(bytes).map_err(|refusal| (refusal.status, refusal.detail))?;
        let number = command.header.object_number;
        match command.header.opcode {
            Op::Nothing => {}
            Op::CreateQueuePair => self.create_pair(bytes, number)?,
            Op::ModifyQueuePair => self.modify_pair(bytes, number)?,
            Op::QueryQueuePair => return self.query_pair(bytes, number, probed),
            Op::DestroyQueuePair => {
                let mut pair = self.pair(number)?;
                pair.state = QpState::Reset;
                self.pairs.remove(&(number % 1024));
                self.age(number % 1024);
                self.tell_page(Kind::QueuePair, number, pair.page, false);
                self.tell_setup(SetupKind::Life, &pair, 0);
            }
            Op::CreateCompletionQueue => {
                let record = &CreateCompletionQueue::RECORD;
                self.ring(record, bytes, &["base"])?;
                Self::within(number, 10)?;
                if self.completion_queues.contains_key(&number) {
                    return refuse(CommandStatus::AlreadyExists, 0);
                }
                let queue = get(record, bytes, "event_queue") as u32;
                if !self.event_queues.contains_key(&queue) {
                    return refuse(CommandStatus::ReferenceDoesNotExist, at(record, "event_queue"));
                }
                self.completion_queues.insert(number, *bytes);
                self.tell_completion_queue(number, bytes, true, true);
            }
            Op::ModifyCompletionQueue => {
                let mut create = Self::found(&self.completion_queues, number, 10)?;
                let record = &CreateCompletionQueue::RECORD;
                for name in ["moderation_count", "moderation_period"] {
                    put(record, &mut create, name, get(record, bytes, name));
                }
                self.completion_queues.insert(number, create);
                self.tell_completion_queue(number, &create, false, true);
            }
            Op::QueryCompletionQueue => {
                Self::room(bytes, 64)?;
                let create = Self::found(&self.completion_queues, number, 10)?;
                return Ok(self.write(bytes, Op::CreateCompletionQueue, number, &create));
            }
            Op::DestroyCompletionQueue => {
                let create = Self::found(&self.completion_queues, number, 10)?;
                let record = &CreateQueuePair::RECORD;
                let uses = |pair: &Pair| {
                    ["send_completion_queue", "receive_completion_queue"]
                        .iter()
                        .any(|name| get(record, &pair.created, name) == u64::from(number))
                };
                if self.pairs.values().any(uses) {
                    return refuse(CommandStatus::Busy, 0);
                }
                self.completion_queues.remove(&number);
                self.tell_completion_queue(number, &create, true, false);
            }
            Op::CreateEventQueue => {
                self.ring(&CreateEventQueue::RECORD, bytes, &["base"])?;
                Self::within(number, 5)?;
                if number == 0 || self.event_queues.contains_key(&number) {
                    return refuse(CommandStatus::AlreadyExists, 0);
                }
                self.event_queues.insert(number, *bytes);
                self.tell_event_queue(number, bytes, true, true);
            }
            Op::ModifyEventQueue => {
                let mut create = Self::found(&self.event_queues, number, 5)?;
                if number == 0 {
                    return refuse(CommandStatus::Busy, 0);
                }
                let record = &CreateEventQueue::RECORD;
                put(record, &mut create, "vector", get(record, bytes, "vector"));
                self.event_queues.insert(number, create);
                self.tell_event_queue(number, &create, false, true);
            }
            Op::QueryEventQueue => {
                Self::room(bytes, 64)?;
                let create = Self::found(&self.event_queues, number, 5)?;
                return Ok(self.write(bytes, Op::CreateEventQueue, number, &create));
            }
            Op::DestroyEventQueue => {
                let create = Self::found(&self.event_queues, number, 5)?;
                let record = &CreateCompletionQueue::RECORD;
                let uses = |queue: &Bytes| get(record, queue, "event_queue") == u64::from(number);
                if number == 0 || self.completion_queues.values().any(uses) {
                    return refuse(CommandStatus::Busy, 0);
                }
                self.event_queues.remove(&number);
                self.tell_event_queue(number, &create, true, false);
            }
            Op::CreateRegion => {
                let record = &CreateRegion::RECORD;
                let kind = get(record, bytes, "kind");
                if kind == u64::from(RegionKind::Free.number()) {
                    return refuse(CommandStatus::ValueNotAllowed, at(record, "kind"));
                }
                if kind != u64::from(RegionKind::Region.number()) {
                    return refuse(CommandStatus::NotSupported, at(record, "kind"));
                }
                Self::translatable(record, bytes)?;
                Self::consistent(bytes)?;
                Self::placed(bytes)?;
                if self.regions.contains_key(&(number >> 8 & 1023)) {
                    return refuse(CommandStatus::AlreadyExists, 0);
                }
                let region = (number, *bytes, self.first_byte(bytes)?);
                self.regions.insert(number >> 8 & 1023, region);
                self.tell_region(&region, true);
            }
            Op::ModifyRegion => {
                let record = &ModifyRegion::RECORD;
                Self::translatable(record, bytes)?;
                let before = self.region(number)?;
                let (_, mut create, mut first_byte) = before;
                for (change, names) in [
                    (
                        "change_rights",
                        &[
                            "local_write",
                            "remote_write",
                            "remote_read",
                            "remote_atomic",
                            "window_bind",
                            "relaxed_order",
                        ][..],
                    ),
                    ("change_domain", &["domain"]),
                    (
                        "change_translation",
                        &[
                            "zero_based",
                            "translation",
                            "page_log2",
                            "first_address",
                            "length",
                            "translation_base",
                            "first_offset",
                            "first_entry",
                        ],
                    ),
                ] {
                    if get(record, bytes, change) == 1 {
                        for name in names {
                            put(&CreateRegion::RECORD, &mut create, name, get(record, bytes, name));
                        }
                    }
                }
                Self::consistent(&create)?;
                if get(record, bytes, "change_translation") == 1 {
                    Self::placed(&create)?;
                    first_byte = self.first_byte(&create)?;
                }
                self.tell_region(&before, false);
                let region = (number, create, first_byte);
                self.regions.insert(number >> 8 & 1023, region);
                self.tell_region(&region, true);
            }
            Op::QueryRegion => {
                Self::room(bytes, 64)?;
                let (_, create, _) = self.region(number)?;
                return Ok(self.write(bytes, Op::CreateRegion, number, &create));
            }
            Op::DestroyRegion => {
                let region = self.region(number)?;
                self.regions.remove(&(number >> 8 & 1023));
                self.tell_region(&region, false);
            }
            Op::CreateAddressHandle => {
                Self::within(number, 8)?;
                if self.handles.contains_key(&number) {
                    return refuse(CommandStatus::AlreadyExists, 0);
                }
                self.handles.insert(number, *bytes);
            }
            Op::ModifyAddressHandle => {
                Self::found(&self.handles, number, 8)?;
                self.handles.insert(number, *bytes);
            }
            Op::QueryAddressHandle => {
                Self::room(bytes, 64)?;
                let create = Self::found(&self.handles, number, 8)?;
                return Ok(self.write(bytes, Op::CreateAddressHandle, number, &create));
            }
            Op::DestroyAddressHandle => {
                Self::found(&self.handles, number, 8)?;
                self.handles.remove(&number);
            }
            Op::CreateSharedReceiveQueue => {
                let record = &CreateSharedReceiveQueue::RECORD;
                self.ring(record, bytes, &["base"])?;
                Self::within(number, 6)?;
                if self.shared.contains_key(&number) {
                    return refuse(CommandStatus::AlreadyExists, 0);
                }
                self.shared.insert(number, *bytes);
                self.set_limit(number, get(record, bytes, "limit"));
                self.tell_shared(SrqSetupKind::Restart, number, true);
                self.tell_page(Kind::SharedReceive, number, get(record, bytes, "doorbell_page"), true);
            }
            Op::ModifySharedReceiveQueue => {
                Self::found(&self.shared, number, 6)?;
                self.set_limit(number, get(&ModifySharedReceiveQueue::RECORD, bytes, "limit"));
                self.tell_shared(SrqSetupKind::Limit, number, true);
            }
            Op::QuerySharedReceiveQueue => {
                Self::room(bytes, 64)?;
                let create = Self::found(&self.shared, number, 6)?;
                return Ok(self.write(bytes, Op::CreateSharedReceiveQueue, number, &create));
            }
            Op::DestroySharedReceiveQueue => {
                Self::found(&self.shared, number, 6)?;
                let of = |pair: &Pair, name| get(&CreateQueuePair::RECORD, &pair.created, name);
                let uses = |pair: &Pair| {
                    of(pair, "shared_receive") == 1 && of(pair, "shared_receive_queue") == u64::from(number)
                };
                if self.pairs.values().any(uses) {
                    return refuse(CommandStatus::Busy, 0);
                }
                self.end_shared(number);
            }
        }
        Ok(0)
    }

    fn ring(&self, record: &Record, bytes: &Bytes, bases: &[&str]) -> Result<(), Refusal> {
        if get(record, bytes, "doorbell_page") > 255 {
            return refuse(CommandStatus::ValueNotAllowed, at(record, "doorbell_page"));
        }
        match bases.iter().find(|base| !get(record, bytes, base).is_multiple_of(4096)) {
            Some(base) => refuse(CommandStatus::Misaligned, at(record, base)),
            None => Ok(()),
        }
    }

    fn room(bytes: &Bytes, least: u64) -> Result<(), Refusal> {
        let record = &Query::RECORD;
        if !get(record, bytes, "buffer").is_multiple_of(64) {
            return refuse(CommandStatus::Misaligned, at(record, "buffer"));
        }
        if get(record, bytes, "buffer_bytes") < least {
            return refuse(CommandStatus::SizeNotAllowed, at(record, "buffer_bytes"));
        }
        Ok(())
    }

    /// Writes a create command, of which the driver's tag is not kept.
    fn write(&mut self, query: &Bytes, opcode: CommandOpcode, number: u32, create: &Bytes) -> u32 {
        let mut bytes = *create;
        CommandHeader { opcode, tag: 0, object_number: number }.emit(&mut bytes[..8]).expect("it fits");
        self.told.push(Told::Write(get(&Query::RECORD, query, "buffer"), bytes.to_vec()));
        64
    }

    /// Ends a key; tells whether it could.
    fn invalidate(&mut self, key: u32, domain: u64) -> bool {
        let record = &CreateRegion::RECORD;
        let Ok(mut region) = self.region(key) else { return false };
        let is = |name, value| get(record, &region.1, name) == value;
        let ends = is("kind", RegionKind::Region.number().into()) && is("invalidatable", 1);
        if !ends || !is("domain", domain) {
            return false;
        }
        put(record, &mut region.1, "kind", RegionKind::Free.number().into());
        self.regions.insert(key >> 8 & 1023, region);
        self.tell_region(&region, false);
        true
    }

    fn region(&self, key: u32) -> Result<(u32, Bytes, u64), Refusal> {
        match self.regions.get(&(key >> 8 & 1023)) {
            Some(region) if region.0 == key => Ok(*region),
            _ => refuse(CommandStatus::DoesNotExist, 0),
        }
    }

    fn translatable(record: &Record, bytes: &Bytes) -> Result<(), Refusal> {
        if get(record, bytes, "translation") > 1 {
            return refuse(CommandStatus::NotSupported, at(record, "translation"));
        }
        Ok(())
    }

    fn placed(create: &Bytes) -> Result<(), Refusal> {
        let record = &CreateRegion::RECORD;
        let value = |name| get(record, create, name);
        if value("translation") == 1 {
            let is_aligned = value("translation_base").is_multiple_of(4096);
            return if is_aligned {
                Ok(())
            } else {
                refuse(CommandStatus::Misaligned, at(record, "translation_base"))
            };
        }
        if u128::from(value("translation_base")) + u128::from(value("length")) > 1 << 63 {
            return refuse(CommandStatus::RangeNotAllowed, at(record, "translation_base"));
        }
        match ["first_offset", "first_entry"].iter().find(|name| value(name) != 0) {
            Some(name) => refuse(CommandStatus::ValueNotAllowed, at(record, name)),
            None => Ok(()),
        }
    }

    /// Where the first byte is; enters the pages if there are any.
    fn first_byte(&mut self, create: &Bytes) -> Result<u64, Refusal> {
        let record = &CreateRegion::RECORD;
        let value = |name| get(record, create, name);
        let (base, log2, first) = (value("translation_base"), value("page_log2"), value("first_entry"));
        if value("translation") == 0 {
            return Ok(base);
        }
        if value("first_offset") >= 1 << log2 {
            return refuse(CommandStatus::ValueNotAllowed, at(record, "first_offset"));
        }
        let count = (u128::from(value("first_offset")) + u128::from(value("length"))).div_ceil(1 << log2);
        if u128::from(first) + count > 16_384 {
            return refuse(CommandStatus::RangeNotAllowed, at(record, "length"));
        }
        for index in 0..count as u64 {
            let place = base.wrapping_add(8 * index);
            if self.bad_slots.contains(&(place & !63)) {
                return refuse(CommandStatus::HostError, 1 << 31 | index as u32);
            }
            let page = self.lists.get(&place).copied().unwrap_or(0);
            if !page.is_multiple_of(1 << log2) {
                return refuse(CommandStatus::Misaligned, 1 << 31 | index as u32);
            }
            let write = PageEntryWrite { entry: bits(first + index), page: bits(page >> 12) };
            self.told.push(Told::PageEntry(write));
        }
        Ok(1 << 63 | (log2 - 12) << 58 | first << log2 | value("first_offset"))
    }

    fn consistent(create: &Bytes) -> Result<(), Refusal> {
        let record = &CreateRegion::RECORD;
        let value = |name| get(record, create, name);
        if value("remote_write") + value("remote_atomic") > 0 && value("local_write") == 0 {
            return refuse(CommandStatus::RightsContradict, 0);
        }
        if value("zero_based") == 1 && value("first_address") != 0 {
            return refuse(CommandStatus::ValueNotAllowed, at(record, "first_address"));
        }
        if u128::from(value("first_address")) + u128::from(value("length")) > 1 << 64 {
            return refuse(CommandStatus::RangeNotAllowed, at(record, "first_address"));
        }
        Ok(())
    }

    fn create_pair(&mut self, bytes: &Bytes, number: u32) -> Result<(), Refusal> {
        let record = &CreateQueuePair::RECORD;
        // Reliable connections have number zero.
        if get(record, bytes, "service") != 0 {
            return refuse(CommandStatus::NotSupported, at(record, "service"));
        }
        self.ring(record, bytes, &["send_base", "receive_base"])?;
        let shared = get(record, bytes, "shared_receive_queue");
        if shared > 63 {
            return refuse(CommandStatus::ReferenceDoesNotExist, at(record, "shared_receive_queue"));
        }
        Self::within(number, 24)?;
        if self.pairs.contains_key(&(number % 1024)) {
            return refuse(CommandStatus::AlreadyExists, 0);
        }
        for name in ["send_completion_queue", "receive_completion_queue"] {
            if !self.completion_queues.contains_key(&(get(record, bytes, name) as u32)) {
                return refuse(CommandStatus::ReferenceDoesNotExist, at(record, name));
            }
        }
        if get(record, bytes, "shared_receive") == 1 {
            let detail = at(record, "shared_receive_queue");
            let Some(queue) = self.shared.get(&(shared as u32)) else {
                return refuse(CommandStatus::ReferenceDoesNotExist, detail);
            };
            if get(&CreateSharedReceiveQueue::RECORD, queue, "domain") != get(record, bytes, "domain") {
                return refuse(CommandStatus::DomainMismatch, detail);
            }
        }
        self.age(number % 1024);
        let pair = Pair {
            number,
            page: get(record, bytes, "doorbell_page"),
            state: QpState::Reset,
            created: *bytes,
            attributes: [0; COMMAND_BYTES],
            handle: [0; COMMAND_BYTES],
        };
        self.tell_setup(SetupKind::Restart, &pair, 0);
        self.tell_page(Kind::QueuePair, number, pair.page, true);
        self.pairs.insert(number % 1024, pair);
        Ok(())
    }

    fn modify_pair(&mut self, bytes: &Bytes, number: u32) -> Result<(), Refusal> {
        let record = &ModifyQueuePair::RECORD;
        let mask = AttributeMask(get(record, bytes, "mask") as u32);
        for attribute in ATTRIBUTES {
            if attribute.field.is_empty() && mask.contains(attribute.mask) {
                return refuse(CommandStatus::NotSupported, at(record, "mask"));
            }
        }
        for attribute in ATTRIBUTES.iter().filter(|attribute| !attribute.field.is_empty()) {
            if attribute.mask != AttributeMask::ACCESS && mask.contains(attribute.mask) {
                let value = get(record, bytes, attribute.field);
                if value < attribute.range.0 || value > attribute.range.1 {
                    return refuse(CommandStatus::ValueNotAllowed, at(record, attribute.field));
                }
            }
        }
        let mut pair = self.pair(number)?;
        let state = |name| QpState::from_number(get(record, bytes, name)).expect("the parser has checked it");
        if mask.contains(AttributeMask::CURRENT_STATE) && state("current_state") != pair.state {
            return refuse(CommandStatus::StateMismatch, 0);
        }
        let goes = mask.contains(AttributeMask::STATE);
        let next = if goes { state("next_state") } else { pair.state };
        match check_transition(Service::ReliableConnected, pair.state, next, mask) {
            Ok(()) => {}
            Err(TransitionError::NotAllowed { .. }) => return refuse(CommandStatus::TransitionNotAllowed, 0),
            Err(TransitionError::Missing(mask)) => return refuse(CommandStatus::AttributeMissing, mask.0),
            Err(TransitionError::Unexpected(mask)) => {
                return refuse(CommandStatus::AttributeNotAllowed, mask.0);
            }
        }
        if mask.contains(AttributeMask::ADDRESS) {
            let detail = at(record, "address_handle");
            let Some(handle) = self.handles.get(&(get(record, bytes, "address_handle") as u32)) else {
                return refuse(CommandStatus::ReferenceDoesNotExist, detail);
            };
            let of = |name| get(&CreateAddressHandle::RECORD, handle, name);
            if of("domain") != get(&CreateQueuePair::RECORD, &pair.created, "domain") {
                return refuse(CommandStatus::DomainMismatch, detail);
            }
            if self.source_addresses >> of("source_address_index") & 1 == 0 {
                return refuse(CommandStatus::ReferenceDoesNotExist, detail);
            }
            pair.handle = *handle;
        }
        for (flag, names) in kept() {
            if mask.contains(AttributeMask(flag)) {
                for name in names {
                    put(record, &mut pair.attributes, name, get(record, bytes, name));
                }
            }
        }
        self.tell_setup(SetupKind::Path, &pair, 0);
        if mask.contains(AttributeMask::SEND_PSN) {
            self.tell_setup(SetupKind::SendPsn, &pair, get(record, bytes, "send_psn"));
        }
        if mask.contains(AttributeMask::RECEIVE_PSN) {
            self.tell_setup(SetupKind::ReceivePsn, &pair, get(record, bytes, "receive_psn"));
        }
        if goes {
            pair.state = next;
            if next == QpState::Reset {
                self.age(number % 1024);
                pair.attributes = [0; COMMAND_BYTES];
                pair.handle = [0; COMMAND_BYTES];
                self.tell_setup(SetupKind::Restart, &pair, 0);
            } else {
                self.tell_setup(SetupKind::Life, &pair, 0);
            }
        }
        self.pairs.insert(number % 1024, pair);
        Ok(())
    }

    fn query_pair(&mut self, bytes: &Bytes, number: u32, probed: (u64, u64, bool)) -> Result<u32, Refusal> {
        Self::room(bytes, 192)?;
        let pair = self.pair(number)?;
        self.tell_setup(SetupKind::Probe, &pair, 0);
        let buffer = get(&Query::RECORD, bytes, "buffer");
        let header = |opcode, bytes: &mut Bytes| {
            CommandHeader { opcode, tag: 0, object_number: number }.emit(&mut bytes[..8]).expect("it fits");
        };
        let mut create = pair.created;
        header(CommandOpcode::CreateQueuePair, &mut create);
        let record = &ModifyQueuePair::RECORD;
        let mut modify = pair.attributes;
        header(CommandOpcode::ModifyQueuePair, &mut modify);
        let mask = ATTRIBUTES.iter().filter(|attribute| !attribute.field.is_empty());
        put(record, &mut modify, "mask", mask.fold(0, |mask, attribute| mask | u64::from(attribute.mask.0)));
        put(record, &mut modify, "port", 1);
        put(record, &mut modify, "next_state", pair.state.number().into());
        put(record, &mut modify, "current_state", pair.state.number().into());
        put(record, &mut modify, "send_psn", probed.0);
        put(record, &mut modify, "receive_psn", probed.1);
        put(record, &mut modify, "requests_in_flight", probed.2.into());
        let mut handle = pair.handle;
        handle[..8].fill(0);
        handle[0] = CommandOpcode::CreateAddressHandle.number();
        let domain = get(&CreateQueuePair::RECORD, &pair.created, "domain");
        put(&CreateAddressHandle::RECORD, &mut handle, "domain", domain);
        for (index, part) in [create, modify, handle].into_iter().enumerate() {
            self.told.push(Told::Write(buffer.wrapping_add(64 * index as u64), part.to_vec()));
        }
        Ok(192)
    }
}

/// An entry that permits nothing: only its index counts.
fn no_region(key: u32) -> RegionWrite {
    RegionWrite { index: bits(u64::from(key >> 8 & 1023)), region: Region::default() }
}

/// A key that is to be ended, and what became of it.
#[derive(Clone, Copy)]
struct Ending {
    asked: Invalidation,
    /// When it was offered, and when it was taken.
    offered: u64,
    taken: u64,
    ok: bool,
    /// What had entered the sections when the tables were told.
    mark: Option<[u64; SECTIONS]>,
}

/// A write that the host was given.
struct Pending {
    address: u64,
    bytes: Vec<u8>,
    fails: bool,
}

/// Both blocks, and everybody around them.
struct World {
    ring: Bench<AdminRing>,
    sequencer: Bench<Sequencer>,
    random: Random,
    model: Model,
    /// Commands and answers in host memory.
    commands: BTreeMap<u64, Bytes>,
    answers: BTreeMap<u64, Vec<u8>>,
    entries_log2: u32,
    written: u16,
    /// Answers that the host has not yet seen, of commands that have begun.
    expected: VecDeque<(Bytes, Result<u32, Refusal>)>,
    reads: VecDeque<(u64, bool)>,
    writes: VecDeque<Pending>,
    done_count: u16,
    notices: VecDeque<Notice>,
    /// Told by the blocks, and by the interpreter.
    told: Vec<Told>,
    admin_events: Vec<u64>,
    stale: (usize, usize),
    counted: (usize, usize),
    fatal: Vec<(u64, u64)>,
    /// Tokens in the sections, and how many ever entered each.
    inside: [u64; SECTIONS],
    entered: [u64; SECTIONS],
    /// What had entered when the last life ended.
    mark: Option<[u64; SECTIONS]>,
    ringing: bool,
    /// Keys that the requester and the responder want to end, and those for which they have no answer yet.
    keys: [VecDeque<Ending>; 2],
    endings: [VecDeque<Ending>; 2],
    /// Answers so far, good and bad, and the longest that a peer has waited, in cycles.
    ended: (usize, usize),
    slowest: u64,
    /// Chances of one cycle.
    chance: f64,
    refuses_queries: bool,
    refuses_answers: bool,
    refuses_reads: bool,
    /// Nothing leaves the card.
    is_stuck: bool,
    cycles: u64,
}

impl World {
    fn new(chance: f64) -> Self {
        let mut ring = Bench::clocked(AdminRing::default(), |block| &mut block.clock).in_lock_step();
        let sequencer = Bench::clocked(Sequencer::default(), |block| &mut block.clock).in_lock_step();
        let entries_log2 = 3;
        ring.block.command_base.next = bits(COMMAND_BASE);
        ring.block.answer_base.next = bits(ANSWER_BASE);
        ring.block.entries_log2.next = bits(entries_log2);
        ring.block.may_begin.next = true;
        ring.block.event_on_answer.next = true;
        let mut world = World {
            ring,
            sequencer,
            random: random(),
            model: Model::default(),
            commands: BTreeMap::new(),
            answers: BTreeMap::new(),
            entries_log2: entries_log2 as u32,
            written: 0,
            expected: VecDeque::new(),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            done_count: 0,
            notices: VecDeque::new(),
            told: Vec::new(),
            admin_events: Vec::new(),
            stale: (0, 0),
            counted: (0, 0),
            fatal: Vec::new(),
            inside: [0; SECTIONS],
            entered: [0; SECTIONS],
            mark: None,
            ringing: false,
            keys: Default::default(),
            endings: Default::default(),
            ended: (0, 0),
            slowest: 0,
            chance,
            refuses_queries: false,
            refuses_answers: false,
            refuses_reads: false,
            is_stuck: false,
            cycles: 0,
        };
        world.cycle();
        world.ring.block.enable.next = true;
        world.cycle();
        world
    }

    fn happens(&mut self) -> bool {
        let chance = self.chance;
        self.random.random_bool(chance)
    }

    /// Tokens walk through the sections; nothing leaves the second while a failure waits to be taken.
    fn walk(&mut self) {
        if self.random.random_bool(0.1) {
            self.inside[0] += 1;
            self.entered[0] += 1;
        }
        for section in (0..SECTIONS).rev() {
            let is_blocked = self.is_stuck || (section == 1 && !self.notices.is_empty());
            if self.inside[section] > 0 && !is_blocked && self.random.random_bool(0.3) {
                self.inside[section] -= 1;
                if section + 1 < SECTIONS {
                    self.inside[section + 1] += 1;
                    self.entered[section + 1] += 1;
                }
            }
        }
        for section in 0..SECTIONS {
            let (entered, inside) = (self.entered[section], self.inside[section]);
            self.sequencer.block.in_flight[section].next =
                InFlight { entered: bits(entered & 0xffff), left: bits((entered - inside) & 0xffff) };
        }
    }

    /// What one says to the other is in registers, but for three `ready`.
    fn join(&mut self) {
        let (ring, sequencer) = (&mut self.ring.block, &mut self.sequencer.block);
        ring.outcome.beat.next = sequencer.outcome.beat.val();
        ring.outcome.valid.next = sequencer.outcome.valid.val();
        ring.write.beat.next = sequencer.write.beat.val();
        ring.write.valid.next = sequencer.write.valid.val();
        sequencer.command.beat.next = ring.command.beat.val();
        sequencer.command.valid.next = ring.command.valid.val();
        ring.list_read.beat.next = sequencer.list_read.beat.val();
        ring.list_read.valid.next = sequencer.list_read.valid.val();
        sequencer.list_valid.next = ring.list_valid.val();
        sequencer.list_error.next = ring.list_error.val();
        sequencer.outcome.ready.next = ring.outcome.ready.val();
    }

    fn cycle(&mut self) {
        self.cycles += 1;
        self.join();
        let (read_ready, write_ready, event_ready, admin_event_ready) =
            (self.happens(), self.happens(), self.happens(), self.happens());
        let setup_ready = self.happens();
        let own_ready = self.happens();
        self.walk();
        let (delivers, completes) = (self.happens(), self.happens());
        let block = &mut self.ring.block;
        block.admin_read.ready.next = read_ready;
        block.admin_write.ready.next = write_ready;
        block.event.ready.next = admin_event_ready;
        block.doorbell.next = bits(self.written.into());
        block.doorbell_valid.next = self.ringing;
        self.ringing = false;
        block.admin_slot_valid.next = false;
        if delivers && let Some((address, error)) = self.reads.pop_front() {
            let bytes = self.commands.get(&address).copied();
            let bytes = bytes.unwrap_or_else(|| self.model.list_slot(address));
            block.admin_slot_valid.next = true;
            block.admin_slot.next = Slot { data: BigUint::from_bytes_le(&bytes).into(), last: true, error };
        }
        block.write_failed.next = false;
        if completes && let Some(write) = self.writes.pop_front() {
            self.done_count = self.done_count.wrapping_add(1);
            block.write_failed.next = write.fails;
            if !write.fails {
                if write.bytes.len() == 16 {
                    self.answers.insert(write.address, write.bytes);
                } else {
                    self.told.push(Told::Write(write.address, write.bytes));
                }
            }
        }
        block.admin_done_count.next = bits(self.done_count.into());
        let block = &mut self.sequencer.block;
        block.event.ready.next = event_ready;
        block.setup.ready.next = setup_ready;
        block.srq_setup.ready.next = setup_ready;
        for (source, keys) in self.keys.iter_mut().enumerate() {
            block.invalidate[source].valid.next = !keys.is_empty();
            if let Some(ending) = keys.front_mut() {
                ending.offered = if ending.offered == 0 { self.cycles } else { ending.offered };
                block.invalidate[source].beat.next = ending.asked;
            }
        }
        block.invalidated[0].ready.next = own_ready;
        block.invalidated[1].ready.next = true;
        block.notice.valid.next = false;
        block.srq_limit.valid.next = false;
        block.source_addresses.next = bits(self.model.source_addresses);
        match self.notices.front() {
            Some(&Notice::OfPair(notice)) => {
                block.notice.valid.next = true;
                block.notice.beat.next = notice;
            }
            Some(&Notice::OfLimit(notice)) => {
                block.srq_limit.valid.next = true;
                block.srq_limit.beat.next = notice;
            }
            None => {}
        }
        self.ring.settle();
        self.sequencer.block.write.ready.next = self.ring.block.write.ready.val();
        self.sequencer.block.list_read.ready.next = self.ring.block.list_read.ready.val();
        self.sequencer.settle();
        self.ring.block.command.ready.next = self.sequencer.block.command.ready.val();
        self.watch();
        self.ring.tick();
        self.sequencer.tick();
    }

    /// Sees what moves in this cycle.
    fn watch(&mut self) {
        let block = &self.sequencer.block;
        let psns = (block.probed_send.val().to_u64(), block.probed_receive.val().to_u64());
        let probed = (psns.0, psns.1, block.probed_busy.val());
        let takes_notice = block.notice.valid.val() && block.notice.ready.val();
        if takes_notice || (block.srq_limit.valid.val() && block.srq_limit.ready.val()) {
            match self.notices.pop_front().expect("it was offered") {
                Notice::OfPair(notice) => self.stale.1 += usize::from(self.model.fail(notice)),
                Notice::OfLimit(notice) => self.model.reach_limit(notice),
            }
        }
        if block.command.valid.val() && block.command.ready.val() {
            let mut bytes = BigUint::from(block.command.beat.val()).to_bytes_le();
            bytes.resize(COMMAND_BYTES, 0);
            let bytes: Bytes = bytes.try_into().expect("64 bytes");
            let outcome = self.model.sequencer(&bytes, probed);
            self.expected.push_back((bytes, outcome));
            self.mark = None;
        }
        self.stale.0 += usize::from(block.counts_stale_dropped.val());
        if block.setup.valid.val() && block.setup.ready.val() {
            let setup = block.setup.beat.val();
            if matches!(setup.kind, SetupKind::Life | SetupKind::Restart) {
                self.mark = Some(self.entered);
            }
            let has_psn = matches!(setup.kind, SetupKind::SendPsn | SetupKind::ReceivePsn);
            let psn = if has_psn { setup.psn } else { bits(0) };
            self.told.push(Told::Setup(Box::new(SetupEvent { psn, ..setup })));
        }
        if block.srq_setup.valid.val() && block.srq_setup.ready.val() {
            let setup = block.srq_setup.beat.val();
            if setup.kind == SrqSetupKind::Restart {
                self.mark = Some(self.entered);
            }
            self.told.push(Told::SrqSetup(setup));
        }
        assert!(!block.setup.valid.val() || !block.srq_setup.valid.val(), "one event at a time");
        if block.region_write_valid.val() {
            let write = block.region_write.val();
            let is_valid = write.region.valid;
            self.told.push(Told::Region(if is_valid {
                write
            } else {
                RegionWrite { region: Region::default(), ..write }
            }));
            let told = self.cycles - TOLD_AFTER;
            if let Some(ending) =
                self.endings.iter_mut().flatten().find(|ending| ending.ok && ending.taken == told)
            {
                ending.mark = Some(self.entered);
            } else if !is_valid {
                // A region that is changed permits nothing from then on; one whose key has ended is told of twice.
                self.mark = self.mark.or(Some(self.entered));
            }
        }
        if block.page_entry_write_valid.val() {
            self.told.push(Told::PageEntry(block.page_entry_write.val()));
        }
        self.watch_keys();
        let block = &self.sequencer.block;
        if block.completion_queue_setup_valid.val() {
            self.told.push(Told::CompletionQueue(block.completion_queue_setup.val()));
        }
        if block.event_queue_setup_valid.val() {
            self.told.push(Told::EventQueue(block.event_queue_setup.val()));
        }
        if block.page_write_valid.val() {
            self.told.push(Told::Page(block.page_write.val()));
        }
        if block.event.valid.val() && block.event.ready.val() {
            let event = block.event.beat.val();
            self.told.push(Told::Event(
                event.object_number.to_u64(),
                event.detail.to_u64(),
                event.kind.to_u64(),
                event.code.to_u64(),
            ));
        }
        if block.outcome.valid.val() && block.outcome.ready.val() {
            self.left_the_card();
        }
        let block = &self.ring.block;
        if block.admin_read.valid.val() && block.admin_read.ready.val() {
            let span = block.admin_read.beat.val();
            assert_eq!(span.length, bits(64));
            let fails = self.refuses_reads && self.random.random_bool(0.05);
            let fails = fails || self.model.bad_slots.contains(&span.address.to_u64());
            self.reads.push_back((span.address.to_u64(), fails));
        }
        if block.admin_write.valid.val() && block.admin_write.ready.val() {
            let write = block.admin_write.beat.val();
            let length = write.length.to_u64() as usize;
            let mut bytes = BigUint::from(write.data).to_bytes_le();
            bytes.resize(64, 0);
            bytes.truncate(length);
            assert_eq!(write.address.to_u64() % length as u64, 0);
            let refuses = if length == 16 { self.refuses_answers } else { self.refuses_queries };
            let fails = refuses && self.random.random_bool(0.1);
            if fails && length == 64 {
                let (_, outcome) = self.expected.back_mut().expect("a command writes");
                *outcome = Err((CommandStatus::HostError, 0));
            }
            self.writes.push_back(Pending { address: write.address.to_u64(), bytes, fails });
        }
        if block.event.valid.val() && block.event.ready.val() {
            let event = block.event.beat.val();
            assert_eq!(event.kind, bits(EventKind::AdminAnswer.number().into()));
            assert_eq!((event.object_number, event.code), (bits(0), bits(0)));
            self.admin_events.push(event.detail.to_u64());
        }
        self.counted.0 += usize::from(block.counts_commands_executed.val());
        self.counted.1 += usize::from(block.counts_commands_refused.val());
        if block.fatal_valid.val() {
            let report = block.fatal.val();
            self.fatal.push((report.code.to_u64(), report.detail.to_u64()));
        }
    }

    /// A key ends when the request is taken, and the answer says so when nobody can use it any more.
    fn watch_keys(&mut self) {
        let block = &self.sequencer.block;
        for source in 0..2 {
            if block.invalidate[source].valid.val() && block.invalidate[source].ready.val() {
                let mut ending = self.keys[source].pop_front().expect("it was offered");
                ending.taken = self.cycles;
                ending.ok =
                    self.model.invalidate(ending.asked.key.to_u64() as u32, ending.asked.domain.to_u64());
                self.endings[source].push_back(ending);
            }
            let answer = &block.invalidated[source];
            if answer.valid.val() && answer.ready.val() {
                let ending = self.endings[source].pop_front().expect("it was asked for");
                let Invalidation { queue_pair, generation, .. } = ending.asked;
                let expected = Invalidated { queue_pair, generation, ok: ending.ok };
                assert_eq!(answer.beat.val(), expected, "{:?}", ending.asked);
                assert_eq!(ending.ok, ending.mark.is_some(), "the tables were told");
                let count = if ending.ok { &mut self.ended.0 } else { &mut self.ended.1 };
                *count += 1;
                if source == 1 {
                    self.slowest = self.slowest.max(self.cycles - ending.offered);
                    continue;
                }
                for (section, marked) in ending.mark.into_iter().flatten().enumerate() {
                    let left = self.entered[section] - self.inside[section];
                    assert!(left >= marked, "section {section} holds what was there");
                }
            }
        }
    }

    /// Somebody wants to end a key.
    fn end_key(&mut self, source: usize, key: u32, domain: u64) {
        let asked = Invalidation {
            queue_pair: bits(self.random.random_range(0..1024)),
            generation: bits(self.random.random_range(0..256)),
            key: bits(key.into()),
            domain: bits(domain),
        };
        self.keys[source].push_back(Ending { asked, offered: 0, taken: 0, ok: false, mark: None });
    }

    /// A command that ends a life has waited for what could still use it.
    fn left_the_card(&mut self) {
        let Some((bytes, outcome)) = self.expected.back() else { return };
        use CommandOpcode as Op;
        let goes_to_reset = bytes[0] == Op::ModifyQueuePair.number()
            && get(&ModifyQueuePair::RECORD, bytes, "mask") & 1 == 1
            && get(&ModifyQueuePair::RECORD, bytes, "next_state") == 0;
        let waits =
            [Op::DestroyQueuePair, Op::DestroyRegion, Op::ModifyRegion, Op::DestroySharedReceiveQueue];
        let waits = goes_to_reset || waits.iter().any(|opcode| opcode.number() == bytes[0]);
        if waits && outcome.is_ok() && self.sequencer.block.outcome.beat.val().status == 0 {
            let mark = self.mark.expect("somebody was told");
            for (section, marked) in mark.into_iter().enumerate() {
                let left = self.entered[section] - self.inside[section];
                assert!(left >= marked, "section {section} holds what was there");
            }
        }
    }

    /// Writes a command into the ring and rings.
    fn post(&mut self, command: Bytes) {
        let place = u64::from(self.written) & ((1 << self.entries_log2) - 1);
        self.commands.insert(COMMAND_BASE + 64 * place, command);
        self.written = self.written.wrapping_add(1);
        self.ringing = true;
    }

    /// Runs until the oldest answer stands in host memory, and compares it.
    fn answer(&mut self, index: u16) -> Answer {
        let place = u64::from(index) & ((1 << self.entries_log2) - 1);
        let address = ANSWER_BASE + 16 * place;
        let phase = index >> self.entries_log2 & 1 == 0;
        for _ in 0..100_000 {
            if let Some(bytes) = self.answers.get(&address)
                && (bytes[15] == 1) == phase
            {
                let answer = Answer::parse(bytes).expect("an answer can be read");
                let (command, outcome) = self.expected.pop_front().expect("a command was begun");
                let (status, detail) = match outcome {
                    Ok(detail) => (CommandStatus::Success, detail),
                    Err(refusal) => refusal,
                };
                let tag = u16::from_le_bytes([command[2], command[3]]);
                let number = u32::from_le_bytes(command[4..8].try_into().expect("four bytes"));
                let expected =
                    Answer { tag, opcode: command[0], status, object_number: number, detail, phase };
                assert_eq!(
                    answer,
                    expected,
                    "{:?} {command:x?}",
                    CommandOpcode::from_number(command[0].into())
                );
                return answer;
            }
            self.cycle();
        }
        panic!("no answer to {:x?}", self.expected);
    }

    /// Executes one command and compares all that was told.
    fn command(&mut self, command: Bytes) -> Answer {
        let index = self.written;
        self.post(command);
        let answer = self.answer(index);
        self.compare();
        answer
    }

    fn answer_and_compare(
        &mut self,
        index: u16,
        command: &Bytes,
        outcomes: &mut BTreeMap<(u8, CommandStatus), usize>,
    ) {
        let answer = self.answer(index);
        self.compare();
        *outcomes.entry((command[0], answer.status)).or_default() += 1;
        assert_eq!(self.admin_events.pop(), Some(index.wrapping_add(1).into()));
    }

    /// Lets everything come to rest.
    fn rest(&mut self) {
        let mut quiet = 0;
        for _ in 0..60_000 {
            self.cycle();
            let is_quiet = self.sequencer.block.is_idle.val()
                && !self.ring.block.busy.val()
                && self.notices.is_empty()
                && self.keys.iter().all(VecDeque::is_empty)
                && self.endings.iter().all(VecDeque::is_empty)
                && self.writes.is_empty();
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet > 3 {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Everybody was told the same as by the interpreter, each in its order.
    fn compare(&mut self) {
        self.rest();
        self.compare_told();
    }

    fn compare_told(&mut self) {
        let mut found = core::mem::take(&mut self.told);
        let mut expected = core::mem::take(&mut self.model.told);
        if self.refuses_queries {
            found.retain(|told| !matches!(told, Told::Write(..)));
            expected.retain(|told| !matches!(told, Told::Write(..)));
        }
        let kind = |told: &Told| match told {
            Told::Setup(_) => 0,
            Told::Region(_) => 1,
            Told::CompletionQueue(_) => 2,
            Told::EventQueue(_) => 3,
            Told::Page(_) => 4,
            Told::Write(..) => 5,
            Told::Event(..) => 6,
            Told::PageEntry(_) => 7,
            Told::SrqSetup(_) => 8,
        };
        found.sort_by_key(kind);
        expected.sort_by_key(kind);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected);
        }
        assert_eq!(found.len(), expected.len());
        assert_eq!(self.stale.0, self.stale.1);
    }

    /// Gives event queue 0 to the card.
    fn event_queue_0(&mut self, valid: bool, restarts: bool) {
        let setup = EventQueueSetup {
            event_queue: bits(0),
            restarts,
            valid,
            entries_log2: bits(self.random.random_range(0..17)),
            vector: bits(self.random.random_range(0..64)),
            base_page: bits(self.random.random::<u64>() >> 12),
        };
        self.sequencer.block.event_queue_0.next = setup;
        self.sequencer.block.event_queue_0_valid.next = true;
        self.cycle();
        self.sequencer.block.event_queue_0_valid.next = false;
        self.sequencer.block.event_queue_0.next = EventQueueSetup::default();
        self.model.set_event_queue_0(setup);
        self.compare();
    }
}

/// A command with a body at its reset values.
fn blank(opcode: CommandOpcode, number: u32, random: &mut Random) -> Bytes {
    let mut bytes = [0; COMMAND_BYTES];
    if let Some(record) = record_of(opcode) {
        record.reset(&mut bytes[BODY_OFFSET..]);
    }
    CommandHeader { opcode, tag: random.random(), object_number: number }
        .emit(&mut bytes[..8])
        .expect("it fits");
    bytes
}

fn record_of(opcode: CommandOpcode) -> Option<&'static Record> {
    BODIES.iter().find(|(opcodes, _)| opcodes.contains(&opcode)).map(|entry| entry.1)
}

/// A number of an object: one of few, and now and then one beyond.
fn draw_number(kind: u8, random: &mut Random) -> u32 {
    let edge = random.random_bool(0.1);
    match kind {
        1 if edge => 1 << 24 | 1,
        1 => random.random_range(0..3) | *[0, 0, 0, 0x40_0400].choose(random).expect("there are some"),
        2 if edge => *[1023, 1024].choose(random).expect("there are some"),
        4 if edge => *[63, 64].choose(random).expect("there are some"),
        3 if edge => *[31, 32].choose(random).expect("there are some"),
        5 => random.random_range(0..3) << 8 | *[7, 7, 7, 0x0400_0007].choose(random).expect("there are some"),
        6 if edge => *[255, 256].choose(random).expect("there are some"),
        _ => random.random_range(0..3),
    }
}

/// The number of an object that exists.
fn draw_existing(model: &Model, kind: u8, random: &mut Random) -> Option<u32> {
    let numbers: Vec<u32> = match kind {
        1 => model.pairs.values().map(|pair| pair.number).collect(),
        2 => model.completion_queues.keys().copied().collect(),
        3 => model.event_queues.keys().copied().collect(),
        4 => model.shared.keys().copied().collect(),
        5 => model.regions.values().map(|region| region.0).collect(),
        6 => model.handles.keys().copied().collect(),
        _ => Vec::new(),
    };
    numbers.choose(random).copied()
}

/// A command that is likely to succeed, or wrong in one place.
fn draw(world: &mut World) -> Bytes {
    use CommandOpcode as Op;
    let random = &mut world.random;
    let modifies = random.random_bool(0.4);
    let opcode =
        if modifies { Op::ModifyQueuePair } else { *Op::ALL.choose(random).expect("there are some") };
    let kind = opcode.number() >> 4;
    let is_create = opcode.number() & 15 == 1;
    let existing = draw_existing(&world.model, kind, random);
    let number = match existing {
        Some(existing) if !is_create && random.random_bool(0.9) => existing,
        _ => draw_number(kind, random),
    };
    let queue = draw_existing(&world.model, 2, random).unwrap_or(0);
    let handle = draw_existing(&world.model, 6, random).unwrap_or(0);
    let events = draw_existing(&world.model, 3, random).unwrap_or(0);
    let shared = draw_existing(&world.model, 4, random);
    let mut bytes = blank(opcode, number, random);
    let Some(record) = record_of(opcode) else { return spoil(bytes, random) };
    for field in record.fields.iter().filter(|field| field.width <= 64) {
        let value = random.random::<u64>() & field.max();
        let value = match field.name {
            "domain" => u64::from(random.random_bool(0.1)),
            "service" | "first_offset" | "first_entry" => 0,
            "shared_receive" => value & u64::from(shared.is_some()),
            "shared_receive_queue" => shared.unwrap_or(0).into(),
            "translation" => random.random_range(0..2),
            "page_log2" => random.random_range(12..31),
            "kind" => 1,
            "doorbell_page" => value & 255,
            "base" | "send_base" | "receive_base" => value & !0xfff,
            "buffer" => value & !0x3f,
            "buffer_bytes" => *[64, 192, 192, 4096].choose(random).expect("there are some"),
            "event_queue" => events.into(),
            "send_completion_queue" | "receive_completion_queue" => queue.into(),
            "address_handle" => handle.into(),
            "local_write" => u64::from(random.random_bool(0.8)),
            "zero_based" => 0,
            "first_address" | "length" | "translation_base" => value >> 2,
            "source_address_index" => random.random_range(0..7),
            "partition_key" => value | 1,
            "path_mtu" => random.random_range(1..6),
            "port" => 1,
            _ => value,
        };
        let _ = field.set(&mut bytes[BODY_OFFSET..], value);
    }
    if opcode == Op::ModifyQueuePair {
        let state = world.model.pairs.get(&(number % 1024)).map_or(QpState::Reset, |pair| pair.state);
        let goals: Vec<QpState> = QpState::ALL
            .iter()
            .copied()
            .filter(|to| transition(Service::ReliableConnected, state, *to).is_some())
            .collect();
        // Onwards more often than to an end.
        let to = *goals.choose(random).expect("RESET can be reached");
        let to =
            if random.random_bool(0.6) { *goals.iter().find(|to| **to > state).unwrap_or(&to) } else { to };
        let row = transition(Service::ReliableConnected, state, to).expect("it was found above");
        let not_here = ATTRIBUTES.iter().filter(|attribute| attribute.field.is_empty());
        let not_here = not_here.fold(0, |mask, attribute| mask | attribute.mask.0);
        let optional = row.optional.0 & random.random::<u32>() & !not_here;
        let mut mask = row.required.0 | optional | 1;
        if random.random_bool(0.1) {
            mask ^= 1 << random.random_range(0..26);
        }
        put(record, &mut bytes, "mask", mask.into());
        put(record, &mut bytes, "next_state", to.number().into());
        let current = if random.random_bool(0.9) { state } else { QpState::Error };
        put(record, &mut bytes, "current_state", current.number().into());
    }
    if matches!(opcode, Op::CreateRegion | Op::ModifyRegion) {
        let is_paged = get(record, &bytes, "translation") == 1;
        if is_paged {
            draw_pages(record, &mut bytes, random);
        }
        bytes = spoil(bytes, random);
        draw_list(&mut world.model, record, &bytes, random);
        return bytes;
    }
    spoil(bytes, random)
}

/// A region of some pages, whose first byte and last byte are anywhere in theirs.
fn draw_pages(record: &Record, bytes: &mut Bytes, random: &mut Random) {
    let log2 = get(record, bytes, "page_log2");
    let size = 1u64 << log2;
    let pages = random.random_range(1..40);
    let offset = *[0, size - 1, random.random_range(0..size)].choose(random).expect("there are some");
    let end = *[1, size, random.random_range(1..=size)].choose(random).expect("there are some");
    let length = ((pages - 1) * size + end).saturating_sub(offset);
    let last = *[16_384, 16_384 - random.random_range(0..3), 5_000].choose(random).expect("there are some");
    let beyond = u64::from(random.random_bool(0.1));
    put(record, bytes, "first_offset", offset);
    put(record, bytes, "first_entry", last - pages + beyond);
    put(record, bytes, "length", length);
    let base = get(record, bytes, "translation_base");
    put(record, bytes, "translation_base", if random.random_bool(0.95) { base & !0xfff } else { base });
}

/// What stands in host memory where a region has its list: pages of its size, seldom one that is none.
fn draw_list(model: &mut Model, record: &Record, bytes: &Bytes, random: &mut Random) {
    let (base, log2) = (get(record, bytes, "translation_base"), get(record, bytes, "page_log2").max(12));
    let bad = random.random_range(0..160);
    for index in 0..40 {
        let page = random.random::<u64>() >> log2 << log2;
        let page = if index == bad { page | 1 << random.random_range(0..log2) } else { page };
        model.lists.insert(base.wrapping_add(8 * index), page);
    }
    let slot = base.wrapping_add(64 * random.random_range(0..5)) & !63;
    if random.random_bool(0.1) {
        model.bad_slots.insert(slot);
    }
}

/// Makes a command wrong in one place, now and then.
fn spoil(mut bytes: Bytes, random: &mut Random) -> Bytes {
    let opcode = CommandOpcode::from_number(bytes[0].into()).expect("it was drawn");
    match random.random_range(0..20) {
        0 => {
            let bit = random.random_range(0..8 * COMMAND_BYTES);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        1 | 2 => {
            if let Some(field) = record_of(opcode).and_then(|record| record.fields.choose(random))
                && field.width <= 64
            {
                let value = random.random::<u64>() & field.max();
                let _ = field.set(&mut bytes[BODY_OFFSET..], value);
            }
        }
        _ => {}
    }
    bytes
}

/// A failure of a queue pair that may exist, in a generation that may be its own.
fn draw_failure(world: &mut World) -> Notice {
    let index = world.random.random_range(0..3);
    let is_limit = world.random.random_bool(0.25);
    let setting = world.model.settings.get(&index).copied().unwrap_or(0);
    let generation = if is_limit { setting } else { world.model.generation(index) };
    // Nobody speaks of a setting that is still to come.
    let may_be_current = !is_limit || world.model.shared.contains_key(&index);
    let is_current = world.random.random_bool(0.8) && may_be_current;
    let generation = if is_current { generation } else { generation.wrapping_sub(1) };
    if is_limit {
        return Notice::OfLimit(SrqLimitNotice {
            srq: bits(index.into()),
            limit_generation: bits(generation.into()),
        });
    }
    use NoticeKind::{Drained, QueueError, RequesterError, ResponderError};
    // Whoever is in SQD drains as a rule.
    let pair = world.model.pairs.get(&index);
    let drains = pair.is_some_and(|pair| pair.state == QpState::SendQueueDrain);
    let kinds = if drains {
        [Drained, Drained, RequesterError, QueueError]
    } else {
        [RequesterError, ResponderError, QueueError, Drained]
    };
    let kind = kinds[world.random.random_range(0..4)];
    Notice::OfPair(QpNotice {
        queue_pair: bits(index.into()),
        generation: bits(generation.into()),
        kind,
        has_event: kind == Drained || world.random.random(),
        event_code: bits(AsyncEvent::QueuePairAccessError.number().into()),
    })
}

fn probe(world: &mut World) {
    world.sequencer.block.probed_send.next = bits(world.random.random::<u64>() & 0xff_ffff);
    world.sequencer.block.probed_receive.next = bits(world.random.random::<u64>() & 0xff_ffff);
    world.sequencer.block.probed_busy.next = world.random.random();
}

/// Somebody wants to end a key: of a region that exists, or of another.
fn draw_key(world: &mut World) {
    let regions: Vec<_> = world.model.regions.values().copied().collect();
    let Some(&(key, create, _)) = regions.choose(&mut world.random) else { return };
    let domain = get(&CreateRegion::RECORD, &create, "domain");
    let source = world.random.random_range(0..2);
    match world.random.random_range(0..6) {
        0 => world.end_key(source, key ^ 1, domain),
        1 => {
            let bit = world.random.random_range(0..24);
            world.end_key(source, key, domain ^ 1 << bit);
        }
        2 => world.end_key(source, key ^ 1 << 31, domain),
        _ => world.end_key(source, key, domain),
    }
}

/// Random commands, right and wrong, with failures of queue pairs at any time.
fn run(world: &mut World, commands: usize, failing: f64) -> BTreeMap<(u8, CommandStatus), usize> {
    world.model.source_addresses = 0x3f;
    (world.counted, world.admin_events) = ((0, 0), Vec::new());
    let mut outcomes: BTreeMap<(u8, CommandStatus), usize> = BTreeMap::new();
    for _ in 0..commands {
        probe(world);
        let command = draw(world);
        let index = world.written;
        world.post(command);
        if world.random.random_bool(failing) {
            for _ in 0..world.random.random_range(0..600) {
                world.cycle();
            }
            for _ in 0..world.random.random_range(1..4) {
                let failure = draw_failure(world);
                world.notices.push_back(failure);
            }
        }
        // Beside a command about regions the interpreter would have to know more than what was and what will be.
        let is_region = (0x51..0x55).contains(&command[0]);
        if is_region {
            world.answer_and_compare(index, &command, &mut outcomes);
        }
        for _ in 0..world.random.random_range(0..4) {
            draw_key(world);
            for _ in 0..world.random.random_range(0..100) {
                world.cycle();
            }
        }
        if is_region {
            world.compare();
            continue;
        }
        world.answer_and_compare(index, &command, &mut outcomes);
    }
    let good = |(_, status): &(u8, CommandStatus)| *status == CommandStatus::Success;
    let executed: usize = outcomes.iter().filter(|(key, _)| good(key)).map(|(_, count)| count).sum();
    assert_eq!(core::mem::take(&mut world.counted), (executed, commands - executed));
    let mut shown: Vec<_> = outcomes.iter().map(|(key, count)| (key.0, key.1 as u8, count)).collect();
    shown.sort_unstable();
    println!("{} cycles; opcode, status, count: {shown:?}", world.cycles);
    println!("keys ended {:?}; a peer has waited for {} cycles at most", world.ended, world.slowest);
    assert!(world.slowest <= BUSY_CYCLES);
    outcomes
}

#[test]
fn random_commands_end_as_the_contract_says() {
    let mut world = World::new(0.9);
    prepare(&mut world);
    let outcomes = run(&mut world, 100, 0.0);
    let successes = outcomes.iter().filter(|(key, _)| key.1 == CommandStatus::Success).count();
    assert!(successes > 10, "{successes} kinds of commands succeeded");
}

#[test]
fn queue_pairs_fail_at_any_time() {
    let mut world = World::new(0.5);
    prepare(&mut world);
    for step in [QpState::Reset, QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend].windows(2) {
        let command = goes_to(&mut world, step[0], step[1]);
        assert_eq!(world.command(command).status, CommandStatus::Success);
    }
    run(&mut world, 60, 0.5);
}

/// Makes what a queue pair needs, and queue pair 1 in INIT.
fn prepare(world: &mut World) {
    use CommandOpcode as Op;
    world.model.source_addresses = 1;
    world.event_queue_0(true, true);
    let mut random = random();
    assert_eq!(
        world.command(blank(Op::CreateCompletionQueue, 2, &mut random)).status,
        CommandStatus::Success
    );
    let mut create = blank(Op::CreateQueuePair, 1, &mut random);
    for name in ["send_completion_queue", "receive_completion_queue"] {
        put(&CreateQueuePair::RECORD, &mut create, name, 2);
    }
    assert_eq!(world.command(create).status, CommandStatus::Success);
    assert_eq!(world.command(blank(Op::CreateAddressHandle, 5, &mut random)).status, CommandStatus::Success);
    assert_eq!(world.command(blank(Op::DestroyCompletionQueue, 2, &mut random)).status, CommandStatus::Busy);
    let mut region = blank(Op::CreateRegion, 0x307, &mut random);
    put(&CreateRegion::RECORD, &mut region, "kind", RegionKind::Region.number().into());
    put(&CreateRegion::RECORD, &mut region, "invalidatable", 1);
    assert_eq!(world.command(region).status, CommandStatus::Success);
}

/// A modify command with all attributes that a transition calls for.
fn goes_to(world: &mut World, from: QpState, to: QpState) -> Bytes {
    let record = &ModifyQueuePair::RECORD;
    let mut bytes = blank(CommandOpcode::ModifyQueuePair, 1, &mut world.random);
    let row = transition(Service::ReliableConnected, from, to).expect("there is such a transition");
    put(record, &mut bytes, "mask", u64::from(row.required.0) | 1);
    put(record, &mut bytes, "next_state", to.number().into());
    for (name, value) in [("partition_key", 0xffff), ("port", 1), ("path_mtu", 5), ("address_handle", 5)] {
        put(record, &mut bytes, name, value);
    }
    bytes
}

#[test]
fn a_queue_pair_lives_through_all_states() {
    use CommandOpcode as Op;
    let mut world = World::new(0.7);
    prepare(&mut world);
    use QpState::*;
    let life = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrain, ReadyToSend, Error, Reset, Init];
    for step in life.windows(2) {
        let command = goes_to(&mut world, step[0], step[1]);
        assert_eq!(world.command(command).status, CommandStatus::Success, "{step:?}");
    }
    for (opcode, number) in [(Op::QueryQueuePair, 1), (Op::QueryRegion, 0x307), (Op::QueryEventQueue, 0)] {
        let mut query = blank(opcode, number, &mut world.random);
        put(&Query::RECORD, &mut query, "buffer_bytes", 192);
        assert_eq!(world.command(query).status, CommandStatus::Success);
    }
}

#[test]
fn a_shared_receive_queue_outlives_its_queue_pairs() {
    use CommandOpcode as Op;
    let mut world = World::new(0.7);
    prepare(&mut world);
    let mut random = random();
    let good = CommandStatus::Success;
    let record = &CreateSharedReceiveQueue::RECORD;
    let mut create = blank(Op::CreateSharedReceiveQueue, 63, &mut random);
    for (name, value) in [("domain", 0x12_3456), ("base", 0x7654_3210_f000), ("limit", 0x8001)] {
        put(record, &mut create, name, value);
    }
    assert_eq!(world.command(create).status, good);
    let mut pair = blank(Op::CreateQueuePair, 2, &mut random);
    for (name, value) in [
        ("send_completion_queue", 2),
        ("receive_completion_queue", 2),
        ("shared_receive", 1),
        ("shared_receive_queue", 63),
    ] {
        put(&CreateQueuePair::RECORD, &mut pair, name, value);
    }
    assert_eq!(world.command(pair).status, CommandStatus::DomainMismatch);
    put(&CreateQueuePair::RECORD, &mut pair, "domain", 0x12_3456);
    assert_eq!(world.command(pair).status, good);
    assert_eq!(
        world.command(blank(Op::DestroySharedReceiveQueue, 63, &mut random)).status,
        CommandStatus::Busy
    );
    // The event of a limit comes once, and not any more for one that was set anew.
    let reached = |world: &mut World, setting: u8| {
        world.notices.push_back(Notice::OfLimit(SrqLimitNotice {
            srq: bits(63),
            limit_generation: bits(setting.into()),
        }));
        world.rest();
        let events = world.told.iter().filter(|told| matches!(told, Told::Event(..))).count();
        world.compare_told();
        events
    };
    let limit = |world: &mut World| {
        let mut query = blank(Op::QuerySharedReceiveQueue, 63, &mut world.random);
        put(&Query::RECORD, &mut query, "buffer_bytes", 64);
        assert_eq!(world.command(query).status, CommandStatus::Success);
        get(record, &world.model.shared[&63], "limit")
    };
    assert_eq!(limit(&mut world), 0x8001);
    assert_eq!(reached(&mut world, 0), 0);
    assert_eq!(reached(&mut world, 1), 1);
    assert_eq!(limit(&mut world), 0);
    let mut modify = blank(Op::ModifySharedReceiveQueue, 63, &mut random);
    put(&ModifySharedReceiveQueue::RECORD, &mut modify, "limit", 7);
    assert_eq!(world.command(modify).status, good);
    assert_eq!(reached(&mut world, 1), 0);
    assert_eq!(limit(&mut world), 7);
    for (opcode, number) in [(Op::DestroyQueuePair, 2), (Op::DestroySharedReceiveQueue, 63)] {
        assert_eq!(world.command(blank(opcode, number, &mut random)).status, good);
    }
    assert_eq!(reached(&mut world, 2), 0);
}

#[test]
fn a_query_that_the_host_refuses_is_answered_with_that() {
    let mut world = World::new(0.9);
    prepare(&mut world);
    world.refuses_queries = true;
    let mut refused = 0;
    for _ in 0..12 {
        probe(&mut world);
        let mut query = blank(CommandOpcode::QueryQueuePair, 1, &mut world.random);
        put(&Query::RECORD, &mut query, "buffer_bytes", 192);
        refused += usize::from(world.command(query).status == CommandStatus::HostError);
    }
    assert!((1..12).contains(&refused), "{refused} of 12 were refused");
    assert!(world.fatal.is_empty() && !world.ring.block.failed.val());
}

/// A command for a region of pages that are all good: entry, log2 of a page, first offset, length.
fn paged(
    world: &mut World,
    opcode: CommandOpcode,
    key: u32,
    (entry, log2): (u64, u64),
    offset: u64,
    length: u64,
) -> Bytes {
    let record = record_of(opcode).expect("it has a body");
    let mut bytes = blank(opcode, key, &mut world.random);
    let list = 0x4_0000_0000 + (u64::from(key) << 20);
    if opcode == CommandOpcode::CreateRegion {
        put(record, &mut bytes, "kind", RegionKind::Region.number().into());
    } else {
        put(record, &mut bytes, "change_translation", 1);
    }
    for (name, value) in [
        ("translation", 1),
        ("page_log2", log2),
        ("length", length),
        ("translation_base", list),
        ("first_offset", offset),
        ("first_entry", entry),
    ] {
        put(record, &mut bytes, name, value);
    }
    for index in 0..(offset + length).div_ceil(1 << log2).min(2_000) {
        world.model.lists.insert(list + 8 * index, (index + 7) << log2);
    }
    bytes
}

#[test]
fn pages_fit_the_table_to_the_last_entry() {
    use CommandOpcode::{CreateRegion as Create, DestroyRegion, ModifyRegion as Modify, QueryRegion};
    use CommandStatus::{DoesNotExist, HostError, Misaligned, RangeNotAllowed, Success, ValueNotAllowed};
    let mut world = World::new(1.0);
    let size = 1u64 << 30;
    let cases = [
        // The first entry of all, the last one, and one too many.
        (Create, 0x100, (0, 12), 0, 9 << 12, Success),
        (Create, 0x201, (16_383, 30), size - 1, 1, Success),
        (Create, 0x302, (16_383, 30), size - 1, 2, RangeNotAllowed),
        (Create, 0x302, (16_382, 30), size - 1, 2, Success),
        (Create, 0x403, (16_384 - 9, 21), 1, 8 << 21, Success),
        (Create, 0x504, (16_384 - 8, 21), 1, 8 << 21, RangeNotAllowed),
        (Create, 0x504, (0, 12), 4096, 1, ValueNotAllowed),
        (Create, 0x504, (0, 16), 1 << 16, 1, ValueNotAllowed),
        (Create, 0x504, (0, 12), 0, u64::MAX, RangeNotAllowed),
        (Create, 0x504, (1, 30), 0, size << 14, RangeNotAllowed),
        (Create, 0x504, (0, 16), 4095, 0, Success),
        // What a region was, it stays if the change is refused.
        (Modify, 0x100, (16_383, 12), 0, 4097, RangeNotAllowed),
        (Modify, 0x100, (9, 13), 5000, 9 << 12, Success),
        (Modify, 0x605, (9, 13), 5000, 9 << 12, DoesNotExist),
    ];
    for (opcode, key, (entry, log2), offset, length, status) in cases {
        let command = paged(&mut world, opcode, key, (entry, log2), offset, length);
        assert_eq!(world.command(command).status, status, "{opcode:?} {key:#x}");
    }
    for (bad, status) in [(8 * 17, Misaligned), (64 * 2, HostError)] {
        let command = paged(&mut world, Create, 0x706, (100, 16), 0, 20 << 16);
        let list = get(&CreateRegion::RECORD, &command, "translation_base");
        if status == Misaligned {
            world.model.lists.insert(list + bad, 0x8000);
        } else {
            world.model.bad_slots.insert(list + bad);
        }
        let answer = world.command(command);
        let page = bad as u32 / 8;
        assert_eq!((answer.status, answer.detail), (status, 1 << 31 | page));
    }
    for (opcode, key, status) in [
        (QueryRegion, 0x100, Success),
        (QueryRegion, 0x201, Success),
        (DestroyRegion, 0x201, Success),
        (DestroyRegion, 0x706, DoesNotExist),
    ] {
        let mut command = blank(opcode, key, &mut world.random);
        if opcode == QueryRegion {
            put(&Query::RECORD, &mut command, "buffer_bytes", 64);
        }
        assert_eq!(world.command(command).status, status, "{opcode:?} {key:#x}");
    }
}

#[test]
fn queue_pairs_fail_while_pages_are_read() {
    let mut world = World::new(0.9);
    prepare(&mut world);
    for step in [QpState::Reset, QpState::Init, QpState::ReadyToReceive].windows(2) {
        let command = goes_to(&mut world, step[0], step[1]);
        assert_eq!(world.command(command).status, CommandStatus::Success);
    }
    let index = world.written;
    let command = paged(&mut world, CommandOpcode::CreateRegion, 0x908, (50, 12), 7, 300 << 12);
    let entered = |world: &World| world.told.iter().filter(|told| matches!(told, Told::PageEntry(_))).count();
    world.post(command);
    while entered(&world) < 80 {
        world.cycle();
        assert!(world.cycles < 40_000, "pages are read");
    }
    for has_event in [true, false] {
        let generation = bits(world.model.generation(1).into());
        let kind = NoticeKind::ResponderError;
        let code = AsyncEvent::QueuePairAccessError.number();
        world.notices.push_back(Notice::OfPair(QpNotice {
            queue_pair: bits(1),
            generation,
            kind,
            has_event,
            event_code: bits(code.into()),
        }));
    }
    while !world.notices.is_empty() {
        world.cycle();
        assert!(entered(&world) < 300, "they are taken in the middle of the list");
    }
    assert_eq!(world.answer(index).status, CommandStatus::Success);
    world.compare();
}

/// Runs commands until the queue stops.
fn until_it_stops(world: &mut World) -> u16 {
    for _ in 0..1000 {
        let index = world.written;
        let command = blank(CommandOpcode::Nothing, 0, &mut world.random);
        world.post(command);
        world.rest();
        if world.ring.block.failed.val() {
            return index;
        }
        world.answer(index);
    }
    panic!("the queue does not stop");
}

#[test]
fn a_ring_that_the_host_refuses_stops_the_queue() {
    for (code, base, bytes) in
        [(FatalCode::HostReadError, COMMAND_BASE, 64), (FatalCode::HostWriteError, ANSWER_BASE, 16)]
    {
        let mut world = World::new(0.9);
        world.refuses_reads = code == FatalCode::HostReadError;
        world.refuses_answers = !world.refuses_reads;
        let index = until_it_stops(&mut world);
        let address = base + u64::from(index % 8) * bytes;
        assert_eq!(world.fatal, [(u64::from(code.number()), address & 0xffff_ffff)]);
        world.post([0; COMMAND_BYTES]);
        world.rest();
        assert_eq!(world.fatal.len(), 1, "it has stopped");
        // Enabling it anew starts at entry 0 with phase 1.
        (world.refuses_reads, world.refuses_answers) = (false, false);
        world.ring.block.enable.next = false;
        world.cycle();
        world.ring.block.enable.next = true;
        world.cycle();
        world.cycle();
        assert_eq!(world.ring.block.consumer_index.val(), bits(0));
        world.answers.clear();
        world.expected.clear();
        world.written = 0;
        let command = blank(CommandOpcode::Nothing, 0, &mut world.random);
        assert_eq!(world.command(command).status, CommandStatus::Success);
    }
}

#[test]
fn many_commands_at_once_are_answered_in_order() {
    let mut world = World::new(0.9);
    for _ in 0..4 {
        let first = world.written;
        for _ in 0..8 {
            let command = blank(CommandOpcode::Nothing, 0, &mut world.random);
            world.post(command);
        }
        // More than the ring holds is no doorbell.
        world.cycle();
        world.written = world.written.wrapping_add(1);
        world.ringing = true;
        world.cycle();
        world.written = world.written.wrapping_sub(1);
        let expected: Vec<Bytes> = (0..8)
            .map(|place| world.commands[&(COMMAND_BASE + 64 * (u64::from(first + place) % 8))])
            .collect();
        world.rest();
        let executed: Vec<Bytes> = world.expected.iter().map(|(bytes, _)| *bytes).collect();
        assert_eq!(executed, expected);
        (0..8).for_each(|place| {
            world.answer(first + place);
        });
    }
}

#[test]
fn a_failed_device_executes_nothing() {
    let mut world = World::new(0.9);
    prepare(&mut world);
    // A command that waits for ever: nothing leaves while a failure waits, and none is taken here.
    world.is_stuck = true;
    let index = world.written;
    let destroy = blank(CommandOpcode::DestroyQueuePair, 1, &mut world.random);
    world.post(destroy);
    (0..3000).for_each(|_| world.cycle());
    assert!(world.ring.block.busy.val(), "it waits");
    world.ring.block.device_failed.next = true;
    world.sequencer.block.device_failed.next = true;
    world.cycle();
    world.expected[0].1 = Err((CommandStatus::DeviceFailed, 0));
    assert_eq!(world.answer(index).status, CommandStatus::DeviceFailed);
    world.compare();
    let index = world.written;
    let nothing = blank(CommandOpcode::Nothing, 0, &mut world.random);
    world.post(nothing);
    world.expected.push_back((nothing, Err((CommandStatus::DeviceFailed, 0))));
    world.answer(index);
}

#[test]
fn a_reset_in_a_command_leaves_nothing_behind() {
    let mut world = World::new(0.9);
    prepare(&mut world);
    world.is_stuck = true;
    let destroy = blank(CommandOpcode::DestroyQueuePair, 1, &mut world.random);
    world.post(destroy);
    (0..3000).for_each(|_| world.cycle());
    assert!(world.ring.block.busy.val(), "it waits");
    world.compare_told();
    for is_reset in [true, false] {
        world.ring.block.reset.next = is_reset;
        world.sequencer.block.reset.next = is_reset;
        world.ring.block.enable.next = !is_reset;
        world.cycle();
    }
    world.is_stuck = false;
    (world.written, world.done_count) = (0, 0);
    world.answers.clear();
    world.expected.clear();
    world.model.forget();
    // The queue pair is gone, but its stages are told once more.
    let torn = world.model.told.len();
    world.sequencer.block.forget.next = true;
    world.cycle();
    world.sequencer.block.forget.next = false;
    world.rest();
    let is_torn = |told: &Told| {
        matches!(told, Told::Setup(setup) if setup.kind == SetupKind::Restart && setup.queue_pair == 1)
            || matches!(told, Told::Page(page) if page.kind == Kind::QueuePair && page.index == 1 && !page.valid)
    };
    assert_eq!(world.told.iter().filter(|told| is_torn(told)).count(), 2);
    world.told.retain(|told| !is_torn(told));
    assert_eq!(world.told.len(), torn);
    world.compare();
    world.model.age(1);
    for (opcode, number) in [
        (CommandOpcode::DestroyQueuePair, 1),
        (CommandOpcode::DestroyRegion, 0x307),
        (CommandOpcode::DestroyCompletionQueue, 2),
        (CommandOpcode::DestroyAddressHandle, 5),
        (CommandOpcode::DestroyEventQueue, 0),
    ] {
        let destroy = blank(opcode, number, &mut world.random);
        assert_eq!(world.command(destroy).status, CommandStatus::DoesNotExist);
    }
    // Nobody uses the queues of the time before.
    prepare(&mut world);
    for (opcode, number) in [(CommandOpcode::DestroyQueuePair, 1), (CommandOpcode::DestroyCompletionQueue, 2)]
    {
        let destroy = blank(opcode, number, &mut world.random);
        assert_eq!(world.command(destroy).status, CommandStatus::Success);
    }
}

/// Makes region `key` of domain 5.
fn make_region(world: &mut World, key: u32, invalidatable: bool) {
    let mut create = blank(CommandOpcode::CreateRegion, key, &mut random());
    let kind = u64::from(RegionKind::Region.number());
    for (name, value) in
        [("kind", kind), ("invalidatable", invalidatable.into()), ("domain", 5), ("local_write", 1)]
    {
        put(&CreateRegion::RECORD, &mut create, name, value);
    }
    assert_eq!(world.command(create).status, CommandStatus::Success);
}

#[test]
fn a_key_ends_once_and_its_index_stays_in_use() {
    use CommandOpcode as Op;
    let mut world = World::new(0.7);
    prepare(&mut world);
    make_region(&mut world, 0x1_0a01, true);
    make_region(&mut world, 0x1_0b02, false);
    // Each side: another variant, another domain, a region that is not made for it, no region; then the key, twice.
    for source in 0..2 {
        for (key, domain) in [(0x1_0a02, 5), (0x1_0a01, 4), (0x1_0b02, 5), (0x1_0c03, 5)] {
            world.end_key(source, key, domain);
        }
    }
    world.compare();
    assert_eq!(world.ended, (0, 8));
    world.end_key(0, 0x1_0a01, 5);
    world.end_key(0, 0x1_0a01, 5);
    world.compare();
    assert_eq!(world.ended, (1, 9));
    let mut query = blank(Op::QueryRegion, 0x1_0a01, &mut world.random);
    put(&Query::RECORD, &mut query, "buffer_bytes", 64);
    assert_eq!(world.command(query).status, CommandStatus::Success);
    let mut modify = blank(Op::ModifyRegion, 0x1_0a01, &mut world.random);
    put(&ModifyRegion::RECORD, &mut modify, "change_rights", 1);
    assert_eq!(world.command(modify).status, CommandStatus::Success);
    let mut again = blank(Op::CreateRegion, 0x1_0a07, &mut world.random);
    put(&CreateRegion::RECORD, &mut again, "kind", RegionKind::Region.number().into());
    assert_eq!(world.command(again).status, CommandStatus::AlreadyExists);
    let destroy = blank(Op::DestroyRegion, 0x1_0a01, &mut world.random);
    assert_eq!(world.command(destroy).status, CommandStatus::Success);
    make_region(&mut world, 0x1_0a07, true);
    world.end_key(1, 0x1_0a07, 5);
    world.compare();
    assert_eq!(world.ended, (2, 9));
}

/// While a command waits for the card, and while its host takes nothing, keys end all the same; a key that a command is changing is
/// none.
#[test]
fn keys_end_whatever_a_command_waits_for() {
    use CommandOpcode as Op;
    let mut world = World::new(0.9);
    prepare(&mut world);
    for index in 0..8 {
        make_region(&mut world, 0x2_0001 + (index << 8), true);
    }
    world.is_stuck = true;
    let mut modify = blank(Op::ModifyRegion, 0x2_0001, &mut world.random);
    put(&ModifyRegion::RECORD, &mut modify, "change_rights", 1);
    let written = world.written;
    world.post(modify);
    (0..1500).for_each(|_| world.cycle());
    // The interpreter is done with it already.
    let changed = world.model.regions.remove(&0x200).expect("it exists");
    let last = world.model.told.pop().expect("the tables are told");
    for index in [1, 0, 2] {
        world.end_key(1, 0x2_0001 + (index << 8), 5);
        (0..BUSY_CYCLES).for_each(|_| world.cycle());
    }
    // An own one is not answered as long as something is in the card.
    world.end_key(0, 0x2_0301, 5);
    (0..1500).for_each(|_| world.cycle());
    assert_eq!((world.ended, world.endings[0].len()), ((2, 1), 1));
    world.is_stuck = false;
    world.model.regions.insert(0x200, changed);
    world.model.told.push(last);
    assert_eq!(world.answer(written).status, CommandStatus::Success);
    world.compare();
    assert_eq!(world.ended, (3, 1));
    // The stages do not take what they are told.
    let life = goes_to(&mut world, QpState::Reset, QpState::Init);
    let written = world.written;
    world.post(life);
    while world.expected.is_empty() {
        world.cycle();
    }
    world.chance = 0.0;
    (0..1500).for_each(|_| world.cycle());
    assert!(world.sequencer.block.setup.valid.val());
    world.end_key(1, 0x2_0401, 5);
    (0..BUSY_CYCLES).for_each(|_| world.cycle());
    assert_eq!(world.ended, (4, 1));
    world.chance = 0.9;
    assert_eq!(world.answer(written).status, CommandStatus::Success);
    world.compare();
}

/// So they do while pages are read, and nothing of the list is lost, whenever they end.
#[test]
fn keys_end_while_pages_are_read() {
    let mut world = World::new(1.0);
    prepare(&mut world);
    for (round, begins) in (-60..=-60).chain(-12..14).enumerate() {
        let key = 0x2_0001 + ((round as u32) << 8);
        make_region(&mut world, key, true);
        let create = paged(&mut world, CommandOpcode::CreateRegion, key + 0x4000, (5, 12), 9, 2 << 12);
        let written = world.written;
        world.post(create);
        while !world.sequencer.block.list_read.valid.val() {
            world.cycle();
        }
        // The interpreter is done with it already.
        let made = world.model.told.pop().expect("the tables are told");
        world.chance = 0.0;
        if begins < 0 {
            world.end_key(1, key, 5);
            (begins..0).for_each(|_| world.cycle());
        }
        assert!(begins > -60 || world.ended.0 == 1, "a peer does not wait for the host");
        world.chance = 1.0;
        if begins >= 0 {
            (0..begins).for_each(|_| world.cycle());
            world.end_key(1, key, 5);
        }
        assert_eq!(world.answer(written).status, CommandStatus::Success);
        world.rest();
        let is_region = |told: &&Told| matches!(told, Told::Region(_));
        let place = world.told.iter().filter(is_region).position(|told| *told == made);
        let at =
            if place == Some(0) { world.model.told.iter().position(|told| is_region(&told)) } else { None };
        world.model.told.insert(at.unwrap_or(world.model.told.len()), made);
        world.compare();
        assert_eq!(world.ended, (round + 1, 0));
        let mut query = blank(CommandOpcode::QueryRegion, key, &mut world.random);
        put(&Query::RECORD, &mut query, "buffer_bytes", 64);
        assert_eq!(world.command(query).status, CommandStatus::Success);
    }
    assert!(world.slowest <= BUSY_CYCLES);
}
