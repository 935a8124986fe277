//! What software has handed over to the card: posted work, and memory.
//!
//! ```text
//!   driver ── stores ──> rings, payload                  card
//!          ── doorbell ──> copies of the posted slots ──compared──> its reads of the ring
//!          ── commands ──> objects, and the memory that each may access
//!          ── unmap ──> is it one of these?
//! ```
//!
//! A driver runs in no simulated time: a WQE that it writes after its doorbell is complete before the card can read it. On real
//! hardware it is not. So this monitor copies WQEs and commands at the moment at which software writes their doorbell, which
//! is before the doorbell begins its way to the card.
//!
//! 1. A WQE or command that the card reads is what was in its slot when software wrote the doorbell.
//! 2. Memory that is unmapped belongs to no object of the card: the card has answered the command that destroys the object, or
//!    was reset.
use super::overhear::Region;
use crate::host::{Bar, Memory, Operation, RegisterAccess};
use rnic_layout::admin::{
    ANSWER_BYTES, Answer, Body, COMMAND_BYTES, Command, CommandOpcode, CommandStatus, Translation,
};
use rnic_layout::doorbell::{RECEIVE, SEND, SHARED_RECEIVE, WorkDoorbell};
use rnic_layout::limits::{DOORBELL_PAGE_BYTES, WQE_SLOT_BYTES};
use rnic_layout::queue::completion::Cqe;
use rnic_layout::queue::event::Eqe;
use rnic_layout::queue::phase;
use rnic_layout::registers::{
    AdminControl, Control, EventQueueControl, REG_ADMIN_ANSWER_BASE, REG_ADMIN_COMMAND_BASE,
    REG_ADMIN_CONTROL, REG_ADMIN_DOORBELL, REG_CONTROL, REG_EVENT_QUEUE_BASE, REG_EVENT_QUEUE_CONTROL,
};
use rnic_layout::state::{AttributeMask, QpState};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::{Range, RangeBounds};

// WQE slots and commands have the same size, so one table holds both.
const _: () = assert!(WQE_SLOT_BYTES == COMMAND_BYTES);

/// Kinds of rings that software fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WorkKind {
    Send,
    Receive,
    SharedReceive,
    Command,
}

/// A posted slot: index `index` of the ring of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostedSlot {
    kind: WorkKind,
    number: u32,
    index: u16,
    bytes: [u8; WQE_SLOT_BYTES],
}

impl fmt::Display for PostedSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PostedSlot { kind, number, index, .. } = self;
        match kind {
            WorkKind::Send => write!(f, "send queue of QP {number:#x}, index {index}"),
            WorkKind::Receive => write!(f, "receive queue of QP {number:#x}, index {index}"),
            WorkKind::SharedReceive => write!(f, "shared receive queue {number}, index {index}"),
            WorkKind::Command => write!(f, "admin queue, index {index}"),
        }
    }
}

/// Copies of posted slots, by device address. The memory compares each read of the card with them.
#[derive(Clone, Debug, Default)]
pub struct PostedSlots {
    slots: BTreeMap<u64, PostedSlot>,
    /// Slots that the card has read, and that were not as posted.
    changed: Vec<PostedSlot>,
}

impl PostedSlots {
    fn keep(&mut self, address: u64, slot: PostedSlot) {
        self.slots.insert(address, slot);
    }

    /// Forgets the slots in a range of device addresses.
    pub fn forget(&mut self, addresses: impl RangeBounds<u64> + Clone) {
        while let Some((&address, _)) = self.slots.range(addresses.clone()).next() {
            self.slots.remove(&address);
        }
    }

    /// The card has read these bytes.
    pub fn compare(&mut self, address: u64, bytes: &[u8]) {
        let slot_bytes = WQE_SLOT_BYTES as u64;
        let first = address.saturating_sub(slot_bytes - 1);
        for (&place, slot) in self.slots.range(first..address.saturating_add(bytes.len() as u64)) {
            let inside = address.saturating_sub(place) as usize;
            let posted = &slot.bytes[inside..];
            let read = &bytes[place.saturating_sub(address) as usize..];
            let length = posted.len().min(read.len());
            if posted[..length] != read[..length] {
                self.changed.push(*slot);
            }
        }
    }

    /// Takes the slots that the card has read since the last call, and that were not as posted.
    pub fn take_changed(&mut self) -> Vec<PostedSlot> {
        std::mem::take(&mut self.changed)
    }
}

/// A ring that software fills, with the producer index of its last doorbell.
#[derive(Clone, Copy, Debug)]
struct WorkRing {
    base: u64,
    entries_log2: u8,
    doorbell_page: u16,
    posted: u16,
}

impl WorkRing {
    fn new(base: u64, entries_log2: u8, doorbell_page: u16) -> WorkRing {
        WorkRing { base, entries_log2, doorbell_page, posted: 0 }
    }

    fn addresses(&self) -> Range<u64> {
        self.base..self.base.saturating_add((WQE_SLOT_BYTES as u64) << self.entries_log2)
    }

    /// Software posts up to an index. What cannot be read is not compared: the card is to refuse it.
    fn post(&mut self, kind: WorkKind, number: u32, producer: u16, memory: &mut Memory) {
        let entries = 1_u32 << self.entries_log2;
        if u32::from(producer.wrapping_sub(self.posted)) > entries {
            // More than the ring holds: the queue pair fails.
            memory.posted_mut().forget(self.addresses());
            self.posted = producer;
        }
        while self.posted != producer {
            let index = self.posted;
            self.posted = index.wrapping_add(1);
            let slot = u64::from(index) & u64::from(entries - 1);
            let address = self.base.wrapping_add(slot * WQE_SLOT_BYTES as u64);
            let mut bytes = [0; WQE_SLOT_BYTES];
            memory.posted_mut().forget(address..address.saturating_add(1));
            if memory.read_bytes(address, &mut bytes).is_ok() {
                memory.posted_mut().keep(address, PostedSlot { kind, number, index, bytes });
            }
        }
    }
}

/// Kinds of objects that may access host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectKind {
    CompletionQueue,
    EventQueue,
    QueuePair,
    SharedReceiveQueue,
    Region,
}

/// First device address and length of memory that an object may access.
type Reach = Vec<(u64, u64)>;

fn touches(reach: &Reach, address: u64, length: u64) -> bool {
    let overlaps = |&(first, bytes): &(u64, u64)| {
        first < address.saturating_add(length) && address < first.saturating_add(bytes)
    };
    reach.iter().any(overlaps)
}

/// A command without an answer, and the memory that the card may access by it.
#[derive(Clone, Debug)]
struct Outstanding {
    index: u16,
    /// `None` if it is malformed, or could not be read.
    command: Option<Command>,
    /// Memory of the object that it creates.
    reach: Reach,
    /// Memory that the card accesses until it answers.
    briefly: Reach,
}

/// Rings and objects of one card, as software has set them up and the card has confirmed.
#[derive(Clone, Debug, Default)]
pub struct Posted {
    commands: Option<WorkRing>,
    command_base: u64,
    answer_base: u64,
    event_base: u64,
    event_reach: Reach,
    outstanding: VecDeque<Outstanding>,
    rings: BTreeMap<(WorkKind, u32), WorkRing>,
    objects: BTreeMap<(ObjectKind, u32), Reach>,
    /// Low halves of doorbells that are written in two halves, by offset in the BAR.
    low_halves: BTreeMap<u64, u64>,
}

impl Posted {
    /// Software writes a register or a doorbell. The access is on its way to the card, and has not arrived.
    pub fn hear(&mut self, access: &RegisterAccess, memory: &mut Memory) {
        let RegisterAccess { bar, offset, operation: Operation::Write { value, strobe } } = *access else {
            return;
        };
        match bar {
            Bar::Registers if strobe == 0xff => self.register(offset, value, memory),
            Bar::Registers => {}
            Bar::Doorbells => self.doorbell_part(offset, value, strobe, memory),
        }
    }

    fn register(&mut self, offset: u64, value: u64, memory: &mut Memory) {
        let bytes = value.to_le_bytes();
        let is = |register: rnic_layout::registers::Register| u64::from(register.offset) == offset;
        if is(REG_CONTROL) {
            if Control::parse(&bytes).is_ok_and(|control| control.reset) {
                *self = Posted::default();
                memory.posted_mut().forget(0..u64::MAX);
            }
        } else if is(REG_ADMIN_COMMAND_BASE) {
            self.command_base = value;
        } else if is(REG_ADMIN_ANSWER_BASE) {
            self.answer_base = value;
        } else if is(REG_ADMIN_CONTROL) {
            let control = AdminControl::parse(&bytes).ok().filter(|control| control.enable);
            self.commands = control.map(|control| WorkRing::new(self.command_base, control.entries_log2, 0));
            self.outstanding.clear();
        } else if is(REG_ADMIN_DOORBELL) {
            self.post_commands(value as u16, memory);
        } else if is(REG_EVENT_QUEUE_BASE) {
            self.event_base = value;
        } else if is(REG_EVENT_QUEUE_CONTROL)
            && let Ok(control) = EventQueueControl::parse(&bytes)
            && control.enable
        {
            self.event_reach = vec![(self.event_base, (Eqe::BYTES as u64) << control.entries_log2)];
        }
    }

    fn post_commands(&mut self, producer: u16, memory: &mut Memory) {
        self.read_answers(memory);
        let Some(mut ring) = self.commands else { return };
        let first = ring.posted;
        ring.post(WorkKind::Command, 0, producer, memory);
        self.commands = Some(ring);
        let count = producer.wrapping_sub(first).min(1 << ring.entries_log2);
        for place in 0..count {
            let index = producer.wrapping_sub(count).wrapping_add(place);
            let slot = u64::from(index) & ((1 << ring.entries_log2) - 1);
            let mut bytes = [0; COMMAND_BYTES];
            let address = ring.base.wrapping_add(slot * COMMAND_BYTES as u64);
            let is_there = memory.read_bytes(address, &mut bytes).is_ok();
            let command = is_there.then(|| Command::parse(&bytes).ok()).flatten();
            let reach = command.map_or_else(Vec::new, |command| reach_of(&command.body, memory));
            let briefly = command.map_or_else(Vec::new, |command| brief_reach_of(&command.body, &reach));
            self.outstanding.push_back(Outstanding { index, command, reach, briefly });
        }
    }

    /// Tells whether a queue pair or SRQ exists, as far as software can know.
    pub fn has_queues(&mut self, memory: &mut Memory) -> bool {
        self.read_answers(memory);
        let are_queues = |kind| matches!(kind, ObjectKind::QueuePair | ObjectKind::SharedReceiveQueue);
        self.objects.keys().any(|&(kind, _)| are_queues(kind))
    }

    /// Takes the answers that software can see.
    fn read_answers(&mut self, memory: &mut Memory) {
        let Some(ring) = self.commands else { return };
        let log2 = u32::from(ring.entries_log2);
        while let Some(oldest) = self.outstanding.front() {
            let slot = u64::from(oldest.index) & ((1 << log2) - 1);
            let address = self.answer_base.wrapping_add(slot * ANSWER_BYTES as u64);
            let mut bytes = [0; ANSWER_BYTES];
            if memory.read_bytes(address, &mut bytes).is_err() {
                return;
            }
            let Ok(answer) = Answer::parse(&bytes) else { return };
            if answer.phase != phase(oldest.index.into(), log2) {
                return;
            }
            let Some(Outstanding { command, reach, .. }) = self.outstanding.pop_front() else { return };
            if let Some(command) = command.filter(|_| answer.status == CommandStatus::Success) {
                self.executed(&command, reach, memory);
            }
        }
    }

    /// The card has executed a command.
    fn executed(&mut self, command: &Command, reach: Reach, memory: &mut Memory) {
        let number = command.header.object_number;
        let mut ring = |kind, ring| {
            self.rings.insert((kind, number), ring);
        };
        match command.body {
            Body::CreateQueuePair(body) => {
                ring(WorkKind::Send, WorkRing::new(body.send_base, body.send_slots_log2, body.doorbell_page));
                let receives = WorkRing::new(body.receive_base, body.receive_wqes_log2, body.doorbell_page);
                if !body.shared_receive {
                    ring(WorkKind::Receive, receives);
                }
            }
            Body::CreateSharedReceiveQueue(body) => {
                let receives = WorkRing::new(body.base, body.entries_log2, body.doorbell_page);
                ring(WorkKind::SharedReceive, receives);
            }
            Body::ModifyQueuePair(body)
                if body.next_state == QpState::Reset
                    && AttributeMask(body.mask).contains(AttributeMask::STATE) =>
            {
                self.empty(&[WorkKind::Send, WorkKind::Receive], number, memory);
            }
            _ => {}
        }
        if let Some((kind, is_destroyed)) = object_of(command.header.opcode) {
            if is_destroyed {
                self.objects.remove(&(kind, number));
                self.end(kind, number, memory);
            } else {
                self.objects.insert((kind, number), reach);
            }
        }
    }

    /// The rings of an object are empty again.
    fn empty(&mut self, kinds: &[WorkKind], number: u32, memory: &mut Memory) {
        for &kind in kinds {
            if let Some(ring) = self.rings.get_mut(&(kind, number)) {
                memory.posted_mut().forget(ring.addresses());
                ring.posted = 0;
            }
        }
    }

    /// The rings of an object are gone.
    fn end(&mut self, kind: ObjectKind, number: u32, memory: &mut Memory) {
        let kinds: &[WorkKind] = match kind {
            ObjectKind::QueuePair => &[WorkKind::Send, WorkKind::Receive],
            ObjectKind::SharedReceiveQueue => &[WorkKind::SharedReceive],
            _ => &[],
        };
        self.empty(kinds, number, memory);
        for &kind in kinds {
            self.rings.remove(&(kind, number));
        }
    }

    /// Software writes a doorbell, whole or in two halves; `offset` is the offset in the BAR.
    fn doorbell_part(&mut self, offset: u64, value: u64, strobe: u8, memory: &mut Memory) {
        let place = offset & !7;
        match strobe {
            0xff => self.doorbell(place, value, memory),
            0x0f => {
                self.low_halves.insert(place, value & 0xffff_ffff);
            }
            0xf0 => {
                if let Some(low) = self.low_halves.remove(&place) {
                    self.doorbell(place, value & !0xffff_ffff | low, memory);
                }
            }
            _ => {}
        }
    }

    fn doorbell(&mut self, offset: u64, value: u64, memory: &mut Memory) {
        let (page, in_page) = (offset / DOORBELL_PAGE_BYTES, offset % DOORBELL_PAGE_BYTES);
        let is = |doorbell: rnic_layout::doorbell::Doorbell| u64::from(doorbell.offset) == in_page;
        let kind = match () {
            () if is(SEND) => WorkKind::Send,
            () if is(RECEIVE) => WorkKind::Receive,
            () if is(SHARED_RECEIVE) => WorkKind::SharedReceive,
            () => return,
        };
        let Ok(bell) = WorkDoorbell::parse(&value.to_le_bytes()) else { return };
        self.read_answers(memory);
        let ring = self.rings.get_mut(&(kind, bell.object_number));
        if let Some(ring) = ring.filter(|ring| u64::from(ring.doorbell_page) == page) {
            ring.post(kind, bell.object_number, bell.producer_index, memory);
        }
    }

    /// Software unmaps memory. Returns the object that may still access it, if there is one.
    pub fn user(&mut self, address: u64, length: u64, memory: &mut Memory) -> Option<String> {
        self.read_answers(memory);
        if let Some(ring) = self.commands {
            let entries = 1_u64 << ring.entries_log2;
            let reach = vec![
                (ring.base, entries * COMMAND_BYTES as u64),
                (self.answer_base, entries * ANSWER_BYTES as u64),
            ];
            if touches(&reach, address, length) {
                return Some("the admin queue".into());
            }
        }
        if touches(&self.event_reach, address, length) {
            return Some("event queue 0".into());
        }
        let mut commands = self.outstanding.iter();
        let is_of = |one: &&Outstanding| {
            [&one.reach, &one.briefly].iter().any(|reach| touches(reach, address, length))
        };
        if let Some(one) = commands.find(is_of) {
            return Some(format!("the command of index {} without an answer", one.index));
        }
        let mut objects = self.objects.iter();
        let (&(kind, number), _) = objects.find(|(_, reach)| touches(reach, address, length))?;
        Some(format!("{kind:?} {number:#x}"))
    }
}

/// Kind of the object that a command creates or destroys, and whether it destroys it.
fn object_of(opcode: CommandOpcode) -> Option<(ObjectKind, bool)> {
    use CommandOpcode as Op;
    Some(match opcode {
        Op::CreateCompletionQueue | Op::ResizeCompletionQueue => (ObjectKind::CompletionQueue, false),
        Op::DestroyCompletionQueue => (ObjectKind::CompletionQueue, true),
        Op::CreateEventQueue => (ObjectKind::EventQueue, false),
        Op::DestroyEventQueue => (ObjectKind::EventQueue, true),
        Op::CreateQueuePair => (ObjectKind::QueuePair, false),
        Op::DestroyQueuePair => (ObjectKind::QueuePair, true),
        Op::CreateSharedReceiveQueue => (ObjectKind::SharedReceiveQueue, false),
        Op::DestroySharedReceiveQueue => (ObjectKind::SharedReceiveQueue, true),
        Op::CreateRegion => (ObjectKind::Region, false),
        Op::DestroyRegion => (ObjectKind::Region, true),
        _ => return None,
    })
}

/// Memory that the card may access from the command on until the object is destroyed that it creates.
fn reach_of(body: &Body, memory: &Memory) -> Reach {
    let slots = |log2: u8| (WQE_SLOT_BYTES as u64) << log2;
    match body {
        Body::CreateCompletionQueue(body) => vec![(body.base, (Cqe::BYTES as u64) << body.entries_log2)],
        Body::ResizeCompletionQueue(body) => vec![(body.base, (Cqe::BYTES as u64) << body.entries_log2)],
        Body::CreateEventQueue(body) => vec![(body.base, (Eqe::BYTES as u64) << body.entries_log2)],
        Body::CreateSharedReceiveQueue(body) => vec![(body.base, slots(body.entries_log2))],
        Body::CreateQueuePair(body) => {
            let send = (body.send_base, slots(body.send_slots_log2));
            let receive = (body.receive_base, slots(body.receive_wqes_log2));
            if body.shared_receive { vec![send] } else { vec![send, receive] }
        }
        Body::CreateRegion(body) => Region::new(body, memory).parts(0, body.length).collect(),
        _ => Vec::new(),
    }
}

/// Memory that the card accesses only while it executes a command: the page list of a region, whose pages are `reach`, or the
/// buffer of a query.
fn brief_reach_of(body: &Body, reach: &Reach) -> Reach {
    match body {
        Body::CreateRegion(body) if body.translation == Translation::PageList => {
            vec![(body.translation_base, (size_of::<u64>() * reach.len()) as u64)]
        }
        Body::Query(body) => vec![(body.buffer, body.buffer_bytes.into())],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
