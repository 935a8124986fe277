//! A stand-in for the card, for the driver's own tests and nothing else.
//!
//! It has registers, an admin queue, event and completion queues, and passes messages between queue pairs of the same
//! card without any wire. It reads commands and work with the layout's own functions, moves one step per
//! [`Function::idle`] and not at all otherwise, and can be told to misbehave. What the driver does with a real card is
//! tested with the generated one, in simulation.

use rnic_driver::{Bar, DeviceView, Function, FunctionError, Memory};
use rnic_layout::admin::{
    Answer, Body, Command, CommandHeader, CommandOpcode as Op, CommandStatus, CreateCompletionQueue,
    CreateQueuePair, CreateRegion, CreateSharedReceiveQueue, ModifyQueuePair, Query, RegionKind,
};
use rnic_layout::doorbell::{self, Arm, CompletionDoorbell, EventDoorbell, WorkDoorbell};
use rnic_layout::limits::{DOORBELL_PAGE_BYTES, WORK_SLOT_BYTES};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus, Cqe};
use rnic_layout::queue::event::{AsyncEvent, Eqe, EventKind};
use rnic_layout::queue::phase;
use rnic_layout::queue::receive::ReceiveWqe;
use rnic_layout::queue::send::{AtomicWqe, SendWqe, Sge, Wqe, WqeOpcode, sges};
use rnic_layout::registers::*;
use rnic_layout::state::{AttributeMask, PERMISSIONS, Posting, QpState, check_transition};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Time that passes in one call of `idle`.
const STEP: Duration = Duration::from_micros(1);
/// Device addresses begin here; nothing is mapped below.
const FIRST_ADDRESS: u64 = 0x10_0000;

/// How the card misbehaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Value of the register `magic`, if it is not the right one.
    pub(crate) magic: Option<u64>,
    /// Value of the register `layout_version`, if it is not the right one.
    pub(crate) layout_version: Option<u64>,
    /// Steps that a reset takes; `u32::MAX` never ends before a reset of the function.
    pub(crate) reset_steps: u32,
    /// The card never becomes ready.
    pub(crate) never_ready: bool,
    /// The card answers no command.
    pub(crate) mute: bool,
    /// Answers carry another command's tag.
    pub(crate) wrong_tag: bool,
    /// The next command of this opcode is refused with this status and detail.
    pub(crate) refuse: Option<(Op, CommandStatus, u32)>,
    /// The next completion carries this tag.
    pub(crate) completion_wr_id: Option<u64>,
    /// So many receives cannot be read; what cannot be read is not flushed with a completion either.
    pub(crate) unreadable_receives: u32,
    /// Nothing is sent: work stays where it is.
    pub(crate) stuck: bool,
}

#[derive(Clone, Debug)]
struct EventRing {
    base: u64,
    log2: u32,
    vector: u32,
    producer: u32,
    consumer: u32,
    armed: bool,
}

#[derive(Clone, Debug)]
struct CompletionRing {
    create: CreateCompletionQueue,
    producer: u32,
    consumer: u32,
    arm: Arm,
    failed: bool,
}

#[derive(Clone, Debug)]
struct QueuePair {
    create: CreateQueuePair,
    state: QpState,
    attributes: ModifyQueuePair,
    send_producer: u16,
    send_consumer: u16,
    receive_producer: u16,
    receive_consumer: u16,
    /// It was said that it has no shared receive any more.
    is_last_said: bool,
}

#[derive(Clone, Debug)]
struct SharedRing {
    /// Its limit is zero once it was reached.
    create: CreateSharedReceiveQueue,
    producer: u16,
    consumer: u16,
}

/// State of the card.
#[derive(Default)]
pub(crate) struct Card {
    pub(crate) faults: Faults,
    /// Opcodes of all commands, in order.
    pub(crate) commands: Vec<Op>,
    /// Calls of `Function::reset`.
    pub(crate) function_resets: u32,
    time: Duration,
    written: BTreeMap<u32, u64>,
    resetting: u32,
    memory: BTreeMap<u64, DeviceView>,
    next_address: u64,
    admin_consumer: u16,
    pending_interrupts: u64,
    events: BTreeMap<u32, EventRing>,
    completions: BTreeMap<u32, CompletionRing>,
    regions: BTreeMap<u32, CreateRegion>,
    addresses: BTreeMap<u32, u32>,
    queue_pairs: BTreeMap<u32, QueuePair>,
    shared: BTreeMap<u32, SharedRing>,
}

type Refusal = (CommandStatus, u32);

/// What four bytes of a completion are.
#[derive(Clone, Copy, Debug)]
enum With {
    Nothing,
    Immediate([u8; 4]),
    /// The key that was ended.
    Key([u8; 4]),
}

fn place(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

impl Card {
    /// How many objects of the application exist: completion queues, regions, address handles, queue pairs.
    pub(crate) fn objects(&self) -> [usize; 4] {
        [self.completions.len(), self.regions.len(), self.addresses.len(), self.queue_pairs.len()]
    }

    /// Mappings that the driver holds.
    pub(crate) fn mappings(&self) -> usize {
        self.memory.len()
    }

    /// The value last written to a register.
    pub(crate) fn register(&self, offset: u32) -> u64 {
        self.written.get(&offset).copied().unwrap_or(0)
    }

    /// Raises an asynchronous event.
    pub(crate) fn raise(&mut self, queue: u32, code: AsyncEvent, object_number: u32) {
        self.event(queue, EventKind::Asynchronous, code, object_number, 0);
    }

    /// Moves a queue pair to ERR, as the card does by itself.
    pub(crate) fn fail(&mut self, qp_number: u32) {
        self.queue_pairs.get_mut(&qp_number).expect("the queue pair exists").state = QpState::Error;
    }

    fn dma(&self, address: u64, length: usize) -> Option<(&DeviceView, usize)> {
        let (&start, view) = self.memory.range(..=address).next_back()?;
        let offset = (address - start) as usize;
        (offset + length <= view.bytes()).then_some((view, offset))
    }

    fn read_memory(&self, address: u64, into: &mut [u8]) {
        let (view, offset) = self.dma(address, into.len()).expect("the address is mapped");
        view.read(offset, into).expect("the application does not hold it");
    }

    fn write_memory(&self, address: u64, from: &[u8]) {
        let (view, offset) = self.dma(address, from.len()).expect("the address is mapped");
        view.write(offset, from).expect("the application does not hold it");
    }

    fn read_register(&mut self, offset: u32) -> u64 {
        let value = |bytes: Result<[u8; 8], _>| place(&bytes.expect("a legal value"));
        let fault = |fault: Option<u64>, value: u64| fault.unwrap_or(value);
        if offset == REG_MAGIC.offset {
            fault(self.faults.magic, MAGIC)
        } else if offset == REG_LAYOUT_VERSION.offset {
            fault(self.faults.layout_version, value(LayoutVersion::at_reset().to_bytes()))
        } else if offset == REG_FEATURES.offset {
            let features = Features {
                packet_path: true,
                reliable_connected: true,
                shared_receive_queues: true,
                ..Features::at_reset()
            };
            value(features.to_bytes())
        } else if offset == REG_GEOMETRY.offset {
            let geometry = Geometry { datapath_bits: 512, interrupt_vectors: 4, clock_khz: 250_000 };
            value(geometry.to_bytes())
        } else if offset == REG_TABLE_SIZES.offset {
            let sizes = TableSizes {
                queue_pairs_log2: 4,
                completion_queues_log2: 3,
                event_queues_log2: 2,
                shared_receive_queues_log2: 1,
                regions_log2: 7,
                address_handles_log2: 2,
                doorbell_pages_log2: 0,
                outstanding_blocks_log2: 4,
            };
            value(sizes.to_bytes())
        } else if offset == REG_QUEUE_LIMITS.offset {
            let limits = QueueLimits {
                send_slots_log2: 8,
                receive_entries_log2: 8,
                completion_entries_log2: 10,
                event_entries_log2: 8,
                send_sges: 6,
                receive_sges: 3,
                inline_bytes: 96,
                read_atomic: 16,
                destination_read_atomic: 16,
                psn_window_log2: 8,
            };
            value(limits.to_bytes())
        } else if offset == REG_MESSAGE_LIMIT.offset {
            1 << 20
        } else if offset == REG_STATUS.offset {
            let enabled = self.register(REG_CONTROL.offset) & 1 == 1;
            let ready = enabled && self.resetting == 0 && !self.faults.never_ready;
            let status =
                Status { ready, resetting: self.resetting != 0, link_up: ready, ..Status::at_reset() };
            value(status.to_bytes())
        } else if offset == REG_ADMIN_PROGRESS.offset || offset == REG_COUNTER_LATCH.offset {
            0
        } else if offset == REG_HOST_MEMORY_BYTES.at(MemoryKind::Region.number().into()) {
            5000
        } else if offset >= COUNTER_BASE {
            u64::from(offset - COUNTER_BASE) / 8 + 1
        } else {
            self.register(offset)
        }
    }

    fn write_register(&mut self, offset: u32, value: u64) {
        let bytes = value.to_le_bytes();
        self.written.insert(offset, value);
        if offset == REG_CONTROL.offset && Control::parse(&bytes).expect("a legal value").reset {
            let Faults { reset_steps, .. } = self.faults;
            let kept = std::mem::take(self);
            *self = Self {
                faults: kept.faults,
                commands: kept.commands,
                function_resets: kept.function_resets,
                time: kept.time,
                memory: kept.memory,
                next_address: kept.next_address,
                resetting: reset_steps,
                ..Self::default()
            };
        } else if offset == REG_EVENT_QUEUE_CONTROL.offset {
            let control = EventQueueControl::parse(&bytes).expect("a legal value");
            let base = self.register(REG_EVENT_QUEUE_BASE.offset);
            self.create_events(0, base, control.entries_log2.into(), control.vector.into());
        }
    }

    fn create_events(&mut self, number: u32, base: u64, log2: u32, vector: u32) {
        let ring = EventRing { base, log2, vector, producer: 0, consumer: 0, armed: false };
        self.events.insert(number, ring);
    }

    fn write_doorbell(&mut self, offset: u32, value: u64) {
        let bytes = value.to_le_bytes();
        if offset == doorbell::SHARED_RECEIVE.offset {
            let WorkDoorbell { object_number, producer_index } = WorkDoorbell::parse(&bytes).expect("legal");
            self.shared.get_mut(&object_number).expect("the queue exists").producer = producer_index;
        } else if offset == doorbell::SEND.offset || offset == doorbell::RECEIVE.offset {
            let WorkDoorbell { object_number, producer_index } = WorkDoorbell::parse(&bytes).expect("legal");
            let qp = self.queue_pairs.get_mut(&object_number).expect("the queue pair exists");
            let posting = if offset == doorbell::SEND.offset {
                qp.send_producer = producer_index;
                PERMISSIONS[qp.state as usize].post_send
            } else {
                qp.receive_producer = producer_index;
                PERMISSIONS[qp.state as usize].post_receive
            };
            assert_ne!(posting, Posting::Refused, "posted in {}", qp.state.name());
        } else if offset == doorbell::COMPLETION.offset {
            let bell = CompletionDoorbell::parse(&bytes).expect("legal");
            let ring = self.completions.get_mut(&bell.object_number).expect("the queue exists");
            ring.consumer = bell.consumer_index;
            ring.arm = ring.arm.max(bell.arm);
            if ring.arm == Arm::Next && ring.producer != ring.consumer {
                self.tell(bell.object_number);
            }
        } else if offset == doorbell::EVENT.offset {
            let bell = EventDoorbell::parse(&bytes).expect("legal");
            let ring = self.events.get_mut(&bell.object_number).expect("the queue exists");
            ring.consumer = bell.consumer_index;
            ring.armed |= bell.arm;
            self.interrupt(bell.object_number);
        } else {
            panic!("there is no doorbell at {offset:#x}");
        }
    }

    fn interrupt(&mut self, queue: u32) {
        let ring = self.events.get_mut(&queue).expect("the queue exists");
        if ring.armed && ring.producer != ring.consumer {
            ring.armed = false;
            self.pending_interrupts |= 1 << ring.vector;
        }
    }

    fn event(&mut self, queue: u32, kind: EventKind, code: AsyncEvent, object_number: u32, detail: u32) {
        let ring = self.events.get_mut(&queue).expect("the queue exists");
        assert!((ring.producer - ring.consumer) >> ring.log2 == 0, "an event queue overran");
        let phase = phase(ring.producer, ring.log2);
        let slot = ring.producer & ((1 << ring.log2) - 1);
        let address = ring.base + u64::from(slot) * Eqe::BYTES as u64;
        ring.producer += 1;
        let event = Eqe { object_number, detail, kind, code, phase };
        self.write_memory(address, &event.to_bytes().expect("legal"));
        self.interrupt(queue);
    }

    fn tell(&mut self, number: u32) {
        let ring = self.completions.get_mut(&number).expect("the queue exists");
        ring.arm = Arm::Keep;
        let (queue, producer) = (ring.create.event_queue.into(), ring.producer);
        self.event(queue, EventKind::Completion, AsyncEvent::CompletionQueueError, number, producer);
    }

    fn step(&mut self) {
        self.time += STEP;
        if self.resetting != 0 {
            self.resetting = if self.resetting == u32::MAX { u32::MAX } else { self.resetting - 1 };
            return;
        }
        if self.register(REG_CONTROL.offset) & 1 == 0 {
            return;
        }
        self.step_admin();
        for number in self.queue_pairs.keys().copied().collect::<Vec<_>>() {
            self.step_queue_pair(number);
        }
    }

    fn step_admin(&mut self) {
        let control =
            AdminControl::parse(&self.register(REG_ADMIN_CONTROL.offset).to_le_bytes()).expect("legal");
        let producer = self.register(REG_ADMIN_DOORBELL.offset) as u16;
        if !control.enable || producer == self.admin_consumer || self.faults.mute {
            return;
        }
        let log2 = u32::from(control.entries_log2);
        let index = u32::from(self.admin_consumer);
        let slot = u64::from(index & ((1 << log2) - 1));
        self.admin_consumer = self.admin_consumer.wrapping_add(1);
        let mut bytes = [0; 64];
        self.read_memory(self.register(REG_ADMIN_COMMAND_BASE.offset) + slot * 64, &mut bytes);
        let (status, detail) = match Command::parse(&bytes) {
            Ok(command) => {
                self.commands.push(command.header.opcode);
                match self.faults.refuse {
                    Some((opcode, status, detail)) if opcode == command.header.opcode => {
                        self.faults.refuse = None;
                        (status, detail)
                    }
                    _ => self.execute(&command).err().unwrap_or((CommandStatus::Success, 0)),
                }
            }
            Err(refusal) => (refusal.status, refusal.detail),
        };
        let answer = Answer {
            tag: u16::from_le_bytes([bytes[2], bytes[3]]) ^ u16::from(self.faults.wrong_tag),
            opcode: bytes[0],
            status,
            object_number: u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")),
            detail,
            phase: phase(index, log2),
        };
        let address = self.register(REG_ADMIN_ANSWER_BASE.offset) + slot * 16;
        self.write_memory(address, &answer.to_bytes().expect("legal"));
    }

    fn execute(&mut self, command: &Command) -> Result<(), Refusal> {
        use CommandStatus::*;
        let number = command.header.object_number;
        let index_of = |number: u32, log2: u32| number & ((1 << log2) - 1);
        let missing = |found: bool| if found { Ok(()) } else { Err((DoesNotExist, 32)) };
        match (command.header.opcode, command.body) {
            (Op::Nothing, _) => Ok(()),
            (Op::CreateEventQueue, Body::CreateEventQueue(body)) => {
                if self.events.contains_key(&number) {
                    return Err((AlreadyExists, 32));
                }
                self.create_events(number, body.base, body.entries_log2.into(), body.vector.into());
                Ok(())
            }
            (Op::DestroyEventQueue, _) => {
                if self.completions.values().any(|ring| u32::from(ring.create.event_queue) == number) {
                    return Err((Busy, 0));
                }
                missing(self.events.remove(&number).is_some())
            }
            (Op::CreateCompletionQueue, Body::CreateCompletionQueue(create)) => {
                if !self.events.contains_key(&create.event_queue.into()) {
                    return Err((ReferenceDoesNotExist, 72));
                }
                if self.completions.contains_key(&number) {
                    return Err((AlreadyExists, 32));
                }
                let ring = CompletionRing { create, producer: 0, consumer: 0, arm: Arm::Keep, failed: false };
                self.completions.insert(number, ring);
                Ok(())
            }
            (Op::DestroyCompletionQueue, _) => {
                let uses = |qp: &QueuePair| {
                    qp.create.send_completion_queue == number || qp.create.receive_completion_queue == number
                };
                if self.queue_pairs.values().any(uses) {
                    return Err((Busy, 0));
                }
                missing(self.completions.remove(&number).is_some())
            }
            (Op::CreateRegion, Body::CreateRegion(body)) => {
                let index = index_of(number >> 8, 7);
                if self.regions.keys().any(|key| index_of(key >> 8, 7) == index) {
                    return Err((AlreadyExists, 32));
                }
                self.dma(body.translation_base, body.length as usize).expect("the region is mapped");
                self.regions.insert(number, body);
                Ok(())
            }
            (Op::DestroyRegion, _) => missing(self.regions.remove(&number).is_some()),
            (Op::CreateAddressHandle, Body::AddressHandle(body)) => {
                if number >= 4 {
                    return Err((NumberOutOfRange, 32));
                }
                self.addresses.insert(number, body.domain);
                Ok(())
            }
            (Op::DestroyAddressHandle, _) => missing(self.addresses.remove(&number).is_some()),
            (Op::CreateSharedReceiveQueue, Body::CreateSharedReceiveQueue(create)) => {
                let ring = SharedRing { create, producer: 0, consumer: 0 };
                if self.shared.insert(number, ring).is_some() { Err((AlreadyExists, 32)) } else { Ok(()) }
            }
            (Op::ModifySharedReceiveQueue, Body::ModifySharedReceiveQueue(body)) => self
                .shared
                .get_mut(&number)
                .map(|ring| ring.create.limit = body.limit)
                .ok_or((DoesNotExist, 32)),
            (Op::DestroySharedReceiveQueue, _) => {
                let uses =
                    |qp: &QueuePair| qp.create.shared_receive && qp.create.shared_receive_queue == number;
                if self.queue_pairs.values().any(uses) {
                    return Err((Busy, 0));
                }
                missing(self.shared.remove(&number).is_some())
            }
            (Op::CreateQueuePair, Body::CreateQueuePair(create)) => {
                let index = index_of(number, 4);
                if self.queue_pairs.keys().any(|&other| index_of(other, 4) == index) {
                    return Err((AlreadyExists, 32));
                }
                for (queue, detail) in
                    [(create.send_completion_queue, 160), (create.receive_completion_queue, 192)]
                {
                    if !self.completions.contains_key(&queue) {
                        return Err((ReferenceDoesNotExist, detail));
                    }
                }
                let shared = self.shared.get(&create.shared_receive_queue);
                if create.shared_receive && shared.is_none_or(|ring| ring.create.domain != create.domain) {
                    return Err((DomainMismatch, 224));
                }
                let qp = QueuePair {
                    create,
                    state: QpState::Reset,
                    attributes: ModifyQueuePair::at_reset(),
                    send_producer: 0,
                    send_consumer: 0,
                    receive_producer: 0,
                    receive_consumer: 0,
                    is_last_said: false,
                };
                self.queue_pairs.insert(number, qp);
                Ok(())
            }
            (Op::ModifyQueuePair, Body::ModifyQueuePair(body)) => self.modify(number, body),
            (Op::QueryQueuePair, Body::Query(query)) => self.query(number, query),
            (Op::DestroyQueuePair, _) => missing(self.queue_pairs.remove(&number).is_some()),
            _ => Err((NotSupported, 0)),
        }
    }

    fn modify(&mut self, number: u32, body: ModifyQueuePair) -> Result<(), Refusal> {
        let mask = AttributeMask(body.mask);
        let address_domain = self.addresses.get(&body.address_handle).copied();
        let qp = self.queue_pairs.get_mut(&number).ok_or((CommandStatus::DoesNotExist, 32))?;
        check_transition(qp.create.service, qp.state, body.next_state, mask).map_err(|error| {
            use rnic_layout::state::TransitionError::*;
            match error {
                NotAllowed { .. } => (CommandStatus::TransitionNotAllowed, 96),
                Missing(mask) => (CommandStatus::AttributeMissing, mask.0),
                Unexpected(mask) => (CommandStatus::AttributeNotAllowed, mask.0),
            }
        })?;
        if mask.contains(AttributeMask::ADDRESS) && address_domain != Some(qp.create.domain) {
            return Err((CommandStatus::DomainMismatch, 352));
        }
        let drains = qp.state == QpState::ReadyToSend && body.next_state == QpState::SendQueueDrain;
        qp.state = body.next_state;
        if mask.contains(AttributeMask::DRAIN_NOTIFY) {
            qp.attributes.drain_notify = body.drain_notify;
        }
        let notifies = drains && qp.attributes.drain_notify;
        match body.next_state {
            QpState::Reset => {
                (qp.send_producer, qp.send_consumer) = (0, 0);
                (qp.receive_producer, qp.receive_consumer) = (0, 0);
                qp.is_last_said = false;
            }
            // The rights of INIT and the peer of RTR are what the rest needs.
            QpState::Init => qp.attributes = body,
            QpState::ReadyToReceive => qp.attributes.destination_qp = body.destination_qp,
            _ => {}
        }
        // A message is done in one step here, so nothing is ever in flight.
        if notifies {
            self.raise(0, AsyncEvent::SendQueueDrained, number);
        }
        Ok(())
    }

    /// Writes what was set, of which the driver wants to see no more than the attributes.
    fn query(&mut self, number: u32, query: Query) -> Result<(), Refusal> {
        let qp = self.queue_pairs.get(&number).ok_or((CommandStatus::DoesNotExist, 32))?;
        let attributes = ModifyQueuePair { next_state: qp.state, ..qp.attributes };
        let header = CommandHeader { opcode: Op::ModifyQueuePair, tag: 0, object_number: number };
        let command = Command { header, body: Body::ModifyQueuePair(attributes) };
        self.write_memory(query.buffer + 64, &command.to_bytes().expect("legal"));
        Ok(())
    }

    fn step_queue_pair(&mut self, number: u32) {
        let qp = self.queue_pairs[&number].clone();
        if qp.state == QpState::Error {
            self.flush(number);
        } else if qp.state == QpState::ReadyToSend
            && qp.send_consumer != qp.send_producer
            && !self.faults.stuck
        {
            self.send(number, &qp);
        }
    }

    fn flush(&mut self, number: u32) {
        let qp = self.queue_pairs[&number].clone();
        if qp.send_consumer != qp.send_producer {
            let slots = self.send_slots(&qp);
            let work = SendWqe::parse(&slots).expect("work that was posted is legal");
            let opcode = opcode_of(work.opcode);
            self.advance_send(number, work.two_slots);
            self.complete_send(number, work.wr_id, opcode, CompletionStatus::Flushed);
        }
        if qp.create.shared_receive && !qp.is_last_said {
            self.queue_pairs.get_mut(&number).expect("it exists").is_last_said = true;
            self.raise(0, AsyncEvent::LastEntryReached, number);
        }
        if qp.receive_consumer != qp.receive_producer {
            let (work, _) = self.take_receive(number).expect("it was posted");
            if self.faults.unreadable_receives > 0 {
                self.faults.unreadable_receives -= 1;
            } else {
                self.complete_receive(
                    number,
                    work.wr_id,
                    CompletionStatus::Flushed,
                    With::Nothing,
                    None,
                    0,
                    false,
                );
            }
        }
    }

    fn send_slots(&self, qp: &QueuePair) -> [u8; 2 * WORK_SLOT_BYTES] {
        let mut slots = [0; 2 * WORK_SLOT_BYTES];
        for (place, slot) in slots.chunks_exact_mut(WORK_SLOT_BYTES).enumerate() {
            let index = qp.send_consumer.wrapping_add(place as u16);
            let index = index & ((1 << qp.create.send_slots_log2) - 1);
            self.read_memory(qp.create.send_base + u64::from(index) * WORK_SLOT_BYTES as u64, slot);
        }
        slots
    }

    fn advance_send(&mut self, number: u32, two_slots: bool) {
        let qp = self.queue_pairs.get_mut(&number).expect("it exists");
        qp.send_consumer = qp.send_consumer.wrapping_add(1 + u16::from(two_slots));
    }

    /// The memory behind an element, if key, domain, bounds and right hold.
    fn resolve(
        &self,
        domain: u32,
        key: u32,
        address: u64,
        length: u64,
        right: fn(&CreateRegion) -> bool,
    ) -> Option<u64> {
        let holds = |region: &&CreateRegion| region.kind == RegionKind::Region && region.domain == domain;
        let region = self.regions.get(&key).filter(holds).filter(|region| right(region))?;
        let offset = address.checked_sub(region.first_address)?;
        let inside = region.length.checked_sub(offset).is_some_and(|rest| length <= rest);
        inside.then_some(region.translation_base + offset)
    }

    /// Ends a key, if it may be ended; its index stays in use.
    fn invalidate(&mut self, domain: u32, key: u32) -> bool {
        let ends = |region: &&mut CreateRegion| {
            region.kind == RegionKind::Region && region.domain == domain && region.invalidatable
        };
        let region = self.regions.get_mut(&key).filter(ends);
        region.map(|region| region.kind = RegionKind::Free).is_some()
    }

    fn gather(&self, qp: &QueuePair, work: &SendWqe, slots: &[u8]) -> Option<Vec<u8>> {
        if work.inline {
            return Some(slots[32..32 + work.length as usize].to_vec());
        }
        let mut payload = Vec::new();
        for element in sges(slots, work.sge_count).filter(|element| element.length != 0) {
            let Sge { address, local_key, length } = element;
            let address = self.resolve(qp.create.domain, local_key, address, length.into(), |_| true)?;
            let mut bytes = vec![0; length as usize];
            self.read_memory(address, &mut bytes);
            payload.extend(bytes);
        }
        Some(payload)
    }

    /// Executes one message, from the reading of its work to both completions.
    fn send(&mut self, number: u32, qp: &QueuePair) {
        let slots = self.send_slots(qp);
        let parsed = Wqe::parse(qp.create.service, &slots).expect("the driver posts legal work");
        let peer_number = qp.attributes.destination_qp;
        use QpState::{ReadyToReceive, ReadyToSend, SendQueueDrain};
        let ready = |peer: &QueuePair| matches!(peer.state, ReadyToReceive | ReadyToSend | SendQueueDrain);
        let Some(peer) = self.queue_pairs.get(&peer_number).filter(|peer| ready(peer)).cloned() else {
            return;
        };
        let work = match parsed {
            Wqe::Message(work) => work,
            Wqe::Atomic(work) => return self.atomic(number, qp, &work, &peer),
            other => panic!("the driver posted {other:?}"),
        };
        if work.opcode == WqeOpcode::LocalInvalidate {
            self.advance_send(number, work.two_slots);
            let key = u32::from_le_bytes(work.immediate);
            let status = if self.invalidate(qp.create.domain, key) {
                CompletionStatus::Success
            } else {
                CompletionStatus::LocalQueuePairOperation
            };
            if work.signalled || qp.create.signal_all || status != CompletionStatus::Success {
                self.complete_send(number, work.wr_id, CompletionOpcode::LocalInvalidate, status);
            }
            if status != CompletionStatus::Success {
                self.fail(number);
            }
            return;
        }
        if work.opcode == WqeOpcode::Read {
            self.read(number, qp, &work, &slots, &peer);
            return;
        }
        // What is wrong here is seen whether the peer is ready or not.
        let opcode = opcode_of(work.opcode);
        let Some(payload) = self.gather(qp, &work, &slots) else {
            self.advance_send(number, work.two_slots);
            self.complete_send(number, work.wr_id, opcode, CompletionStatus::LocalProtection);
            self.fail(number);
            return;
        };
        let immediate = matches!(work.opcode, WqeOpcode::SendImmediate | WqeOpcode::WriteImmediate);
        let is_write = matches!(work.opcode, WqeOpcode::Write | WqeOpcode::WriteImmediate);
        let consumes = immediate || !is_write;
        let (producer, consumer) = match self.shared.get(&peer.create.shared_receive_queue) {
            Some(shared) if peer.create.shared_receive => (shared.producer, shared.consumer),
            _ => (peer.receive_producer, peer.receive_consumer),
        };
        if consumes && producer == consumer {
            // The peer is not ready; a later step tries again.
            return;
        }
        self.advance_send(number, work.two_slots);
        let length = payload.len() as u32;
        // No key is checked for an empty message.
        if is_write && length != 0 {
            let right = |region: &CreateRegion| region.remote_write;
            let target = self
                .resolve(peer.create.domain, work.remote_key, work.remote_address, length.into(), right)
                .filter(|_| peer.attributes.remote_write);
            let Some(target) = target else {
                self.refuse(number, peer_number, work.wr_id, opcode);
                return;
            };
            self.write_memory(target, &payload);
        }
        if consumes {
            let (receive, entry) = self.take_receive(peer_number).expect("checked above");
            if !is_write && !self.scatter(&peer, &receive, &entry, &payload) {
                let status = CompletionStatus::LocalLength;
                self.complete_receive(peer_number, receive.wr_id, status, With::Nothing, None, 0, false);
                self.fail(peer_number);
                self.complete_send(number, work.wr_id, opcode, CompletionStatus::RemoteInvalidRequest);
                self.fail(number);
                return;
            }
            let ends_key = work.opcode == WqeOpcode::SendInvalidate;
            if ends_key && !self.invalidate(peer.create.domain, u32::from_le_bytes(work.immediate)) {
                let status = CompletionStatus::RemoteAccess;
                self.complete_receive(peer_number, receive.wr_id, status, With::Nothing, None, 0, false);
                self.fail(peer_number);
                self.complete_send(number, work.wr_id, opcode, status);
                self.fail(number);
                return;
            }
            let with = match work.opcode {
                WqeOpcode::SendInvalidate => With::Key(work.immediate),
                _ if immediate => With::Immediate(work.immediate),
                _ => With::Nothing,
            };
            self.complete_receive(
                peer_number,
                receive.wr_id,
                CompletionStatus::Success,
                with,
                is_write.then_some(()),
                length,
                work.solicited,
            );
        }
        if work.signalled || qp.create.signal_all {
            self.complete_send(number, work.wr_id, opcode, CompletionStatus::Success);
        }
    }

    /// The peer's memory may not be reached: both queue pairs fail.
    fn refuse(&mut self, number: u32, peer_number: u32, tag: u64, opcode: CompletionOpcode) {
        self.raise(0, AsyncEvent::QueuePairAccessError, peer_number);
        self.fail(peer_number);
        self.complete_send(number, tag, opcode, CompletionStatus::RemoteAccess);
        self.fail(number);
    }

    /// Executes a READ.
    fn read(&mut self, number: u32, qp: &QueuePair, work: &SendWqe, slots: &[u8], peer: &QueuePair) {
        self.advance_send(number, work.two_slots);
        let filled = sges(slots, work.sge_count).filter(|element| element.length != 0);
        let targets: Option<Vec<(u64, usize)>> = filled
            .map(|Sge { address, local_key, length }| {
                let right = |region: &CreateRegion| region.local_write;
                let target = self.resolve(qp.create.domain, local_key, address, length.into(), right)?;
                Some((target, length as usize))
            })
            .collect();
        let Some(targets) = targets else {
            self.complete_send(number, work.wr_id, CompletionOpcode::Read, CompletionStatus::LocalProtection);
            self.fail(number);
            return;
        };
        let right = |region: &CreateRegion| region.remote_read;
        let (address, length) = (work.remote_address, work.length);
        let mut bytes = vec![0; length as usize];
        // No key is checked for an empty message.
        if length != 0 {
            let source = self
                .resolve(peer.create.domain, work.remote_key, address, length.into(), right)
                .filter(|_| peer.attributes.remote_read);
            let Some(source) = source else {
                self.refuse(number, qp.attributes.destination_qp, work.wr_id, CompletionOpcode::Read);
                return;
            };
            self.read_memory(source, &mut bytes);
        }
        let mut rest = &bytes[..];
        for (target, length) in targets {
            let (part, later) = rest.split_at(length);
            self.write_memory(target, part);
            rest = later;
        }
        assert!(rest.is_empty(), "the elements of a READ hold all of it");
        if work.signalled || qp.create.signal_all {
            self.complete_send(number, work.wr_id, CompletionOpcode::Read, CompletionStatus::Success);
        }
    }

    /// Executes an atomic.
    fn atomic(&mut self, number: u32, qp: &QueuePair, work: &AtomicWqe, peer: &QueuePair) {
        self.advance_send(number, false);
        let is_swap = work.opcode == WqeOpcode::CompareSwap;
        let opcode = if is_swap { CompletionOpcode::CompareSwap } else { CompletionOpcode::FetchAdd };
        let right = |region: &CreateRegion| region.remote_atomic;
        let cell = self
            .resolve(peer.create.domain, work.remote_key, work.remote_address, 8, right)
            .filter(|_| peer.attributes.remote_atomic);
        let Some(cell) = cell else {
            self.refuse(number, qp.attributes.destination_qp, work.wr_id, opcode);
            return;
        };
        let mut bytes = [0; 8];
        self.read_memory(cell, &mut bytes);
        let original = u64::from_le_bytes(bytes);
        let value = match is_swap {
            true if original == work.compare => work.swap_or_add,
            true => original,
            false => original.wrapping_add(work.swap_or_add),
        };
        self.write_memory(cell, &value.to_le_bytes());
        let right = |region: &CreateRegion| region.local_write;
        let target = self.resolve(qp.create.domain, work.local_key, work.local_address, 8, right);
        self.write_memory(target.expect("the driver posts pieces of regions"), &bytes);
        if work.signalled || qp.create.signal_all {
            self.complete_send(number, work.wr_id, opcode, CompletionStatus::Success);
        }
    }

    fn take_receive(&mut self, number: u32) -> Option<(ReceiveWqe, [u8; WORK_SLOT_BYTES])> {
        let qp = self.queue_pairs.get_mut(&number)?;
        let (base, log2, consumer, producer) = if qp.create.shared_receive {
            let shared = self.shared.get_mut(&qp.create.shared_receive_queue)?;
            let CreateSharedReceiveQueue { base, entries_log2, .. } = shared.create;
            (base, entries_log2, &mut shared.consumer, shared.producer)
        } else {
            let CreateQueuePair { receive_base, receive_entries_log2, .. } = qp.create;
            (receive_base, receive_entries_log2, &mut qp.receive_consumer, qp.receive_producer)
        };
        if *consumer == producer {
            return None;
        }
        let slot = *consumer & ((1 << log2) - 1);
        *consumer = consumer.wrapping_add(1);
        let address = base + u64::from(slot) * WORK_SLOT_BYTES as u64;
        if qp.create.shared_receive {
            let number = qp.create.shared_receive_queue;
            let shared = self.shared.get_mut(&number).expect("it was found");
            if shared.producer.wrapping_sub(shared.consumer) < shared.create.limit {
                shared.create.limit = 0;
                self.raise(0, AsyncEvent::SharedReceiveLimit, number);
            }
        }
        let mut entry = [0; WORK_SLOT_BYTES];
        self.read_memory(address, &mut entry);
        Some((ReceiveWqe::parse(&entry).expect("the driver posts legal receives"), entry))
    }

    fn scatter(&self, peer: &QueuePair, work: &ReceiveWqe, entry: &[u8], payload: &[u8]) -> bool {
        let mut rest = payload;
        for bytes in entry[16..].chunks_exact(Sge::BYTES).take(work.sge_count.into()) {
            let element = Sge::parse(bytes).expect("any bits are an element");
            let Sge { address, local_key, length } = element;
            let (part, later) = rest.split_at(rest.len().min(length as usize));
            let right = |region: &CreateRegion| region.local_write;
            let target = self.resolve(peer.create.domain, local_key, address, length.into(), right);
            self.write_memory(target.expect("the driver posts pieces of regions"), part);
            rest = later;
        }
        rest.is_empty()
    }

    fn complete_send(&mut self, number: u32, tag: u64, opcode: CompletionOpcode, status: CompletionStatus) {
        let qp = &self.queue_pairs[&number];
        let completion = Cqe {
            wr_id: tag,
            qp_number: number,
            consumer_index: qp.send_consumer,
            opcode,
            status,
            ..Cqe::at_reset()
        };
        self.complete(qp.create.send_completion_queue, completion);
    }

    #[expect(clippy::too_many_arguments, reason = "a completion has as many members")]
    fn complete_receive(
        &mut self,
        number: u32,
        tag: u64,
        status: CompletionStatus,
        with: With,
        write: Option<()>,
        length: u32,
        solicited: bool,
    ) {
        let qp = &self.queue_pairs[&number];
        let is_write = write.is_some();
        let immediate = match with {
            With::Nothing => [0; 4],
            With::Immediate(bytes) | With::Key(bytes) => bytes,
        };
        let completion = Cqe {
            wr_id: tag,
            length,
            immediate,
            qp_number: number,
            consumer_index: qp.receive_consumer,
            opcode: if is_write { CompletionOpcode::ReceiveWrite } else { CompletionOpcode::Receive },
            status,
            with_immediate: matches!(with, With::Immediate(_)),
            with_invalidate: matches!(with, With::Key(_)),
            solicited,
            ..Cqe::at_reset()
        };
        self.complete(qp.create.receive_completion_queue, completion);
    }

    fn complete(&mut self, queue: u32, mut completion: Cqe) {
        if let Some(tag) = self.faults.completion_wr_id.take() {
            completion.wr_id = tag;
        }
        let ring = self.completions.get_mut(&queue).expect("queue pairs keep their queues");
        let log2 = u32::from(ring.create.entries_log2);
        assert!((ring.producer - ring.consumer) >> log2 == 0 && !ring.failed, "a completion queue overran");
        completion.phase = phase(ring.producer, log2);
        let slot = ring.producer & ((1 << log2) - 1);
        let address = ring.create.base + u64::from(slot) * Cqe::BYTES as u64;
        ring.producer += 1;
        let arm = ring.arm;
        let special = completion.solicited || completion.status != CompletionStatus::Success;
        self.write_memory(address, &completion.to_bytes().expect("legal"));
        if arm == Arm::Next || arm == Arm::Solicited && special {
            self.tell(queue);
        }
    }
}

fn opcode_of(opcode: WqeOpcode) -> CompletionOpcode {
    match opcode {
        WqeOpcode::Write | WqeOpcode::WriteImmediate => CompletionOpcode::Write,
        WqeOpcode::LocalInvalidate => CompletionOpcode::LocalInvalidate,
        _ => CompletionOpcode::Send,
    }
}

/// A window of the fake card.
struct FakeBar {
    card: Arc<Mutex<Card>>,
    bytes: u64,
    doorbells: bool,
}

impl Bar for FakeBar {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read32(&self, offset: u64) -> u32 {
        (self.read64(offset & !7) >> (offset % 8 * 8)) as u32
    }

    fn write32(&self, _: u64, _: u32) {
        panic!("the driver writes 64 bits");
    }

    fn read64(&self, offset: u64) -> u64 {
        let mut card = self.card.lock().unwrap();
        if self.doorbells { 0 } else { card.read_register(offset as u32) }
    }

    fn write64(&self, offset: u64, value: u64) {
        let mut card = self.card.lock().unwrap();
        if self.doorbells {
            card.write_doorbell(offset as u32, value);
        } else {
            card.write_register(offset as u32, value);
        }
    }
}

/// The card behind the driver's trait.
pub(crate) struct FakeFunction {
    card: Arc<Mutex<Card>>,
    registers: FakeBar,
    doorbells: FakeBar,
    vectors: u32,
}

impl FakeFunction {
    /// A card that behaves, with `vectors` interrupt vectors.
    pub(crate) fn new(vectors: u32) -> Arc<Self> {
        let card = Card { next_address: FIRST_ADDRESS, ..Card::default() };
        let card = Arc::new(Mutex::new(card));
        let bar = |bytes, doorbells| FakeBar { card: Arc::clone(&card), bytes, doorbells };
        let registers = bar(BAR0_BYTES.into(), false);
        let doorbells = bar(DOORBELL_PAGE_BYTES, true);
        Arc::new(Self { card, registers, doorbells, vectors })
    }

    /// The card itself.
    pub(crate) fn card(&self) -> MutexGuard<'_, Card> {
        self.card.lock().unwrap()
    }

    /// Sets how the card misbehaves.
    pub(crate) fn misbehave(&self, faults: Faults) {
        self.card().faults = faults;
    }
}

impl Function for FakeFunction {
    fn config_space(&self) -> Result<Vec<u8>, FunctionError> {
        Ok(Vec::new())
    }

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        match index {
            0 => Ok(&self.registers),
            2 => Ok(&self.doorbells),
            _ => Err(FunctionError::NoBar { index }),
        }
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError> {
        let mut card = self.card();
        let address = card.next_address;
        // A hole of a page behind each mapping, so that an access that is too long is seen.
        card.next_address += memory.bytes() as u64 + 0x1000;
        card.memory.insert(address, memory.device_view());
        Ok(address)
    }

    fn unmap(&self, device_address: u64) -> Result<(), FunctionError> {
        let removed = self.card().memory.remove(&device_address);
        removed.map(drop).ok_or(FunctionError::NotMapped { device_address })
    }

    fn interrupt_vectors(&self) -> u32 {
        self.vectors
    }

    fn take_interrupt(&self, vector: u32) -> Result<bool, FunctionError> {
        if vector >= self.vectors {
            return Err(FunctionError::NoVector { vector });
        }
        let mut card = self.card();
        let was = card.pending_interrupts >> vector & 1 == 1;
        card.pending_interrupts &= !(1 << vector);
        Ok(was)
    }

    fn reset(&self) -> Result<(), FunctionError> {
        let mut card = self.card();
        card.function_resets += 1;
        card.resetting = 0;
        card.faults.reset_steps = 0;
        Ok(())
    }

    fn now(&self) -> Duration {
        self.card().time
    }

    fn idle(&self) {
        self.card().step();
    }
}
