//! Fake card for the tests of the driver.
//!
//! It has registers, an admin queue, event queues and completion queues, and passes messages between queue pairs of the same
//! card without packets. It parses commands and WQEs with the functions of the layout, advances one step per
//! [`Function::idle`] and not otherwise, and injects [`Faults`]. The tests of the driver with the generated card are in the
//! simulator.
//!
//! ```text
//!   driver ── Function ──> function ──> registers ──> admin
//!                                          │  doorbells
//!                                          └────────> work ──> queues: CQEs, EQEs, interrupts
//! ```

mod admin;
mod function;
mod queues;
mod registers;
mod work;

pub(crate) use function::FakeFunction;
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use rnic_driver::{Bar, DeviceView, Function, FunctionError, Memory, Ownership};
use rnic_layout::admin::{
    Answer, Body, Command, CommandHeader, CommandOpcode as Op, CommandStatus, CreateAddressHandle,
    CreateCompletionQueue, CreateQueuePair, CreateRegion, CreateSharedReceiveQueue, ModifyQueuePair, Query,
    RegionKind,
};
use rnic_layout::doorbell::{self, Arm, CompletionDoorbell, EventDoorbell, WorkDoorbell};
use rnic_layout::limits::WQE_SLOT_BYTES;
use rnic_layout::pci::{self, COMMAND, COMMAND_BUS_MASTER, COMMAND_MEMORY};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus, Cqe};
use rnic_layout::queue::event::{AsyncEvent, Eqe, EventKind};
use rnic_layout::queue::phase;
use rnic_layout::queue::receive::ReceiveWqe;
use rnic_layout::queue::send::{AtomicWqe, SendWqe, Sge, Wqe, WqeOpcode, sges};
use rnic_layout::registers::*;
use rnic_layout::state::{AttributeMask, PERMISSIONS, Posting, QpState, check_transition};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Bits of a device address that the card puts out.
pub(crate) const ADDRESS_BITS: u8 = 40;
/// Frequency of its core clock.
pub(crate) const CLOCK_KHZ: u32 = 250_000;
/// Time that passes in one call of `idle`.
const STEP: Duration = Duration::from_micros(1);
/// First device address that is mapped.
const FIRST_ADDRESS: u64 = 0x10_0000;

/// Faults that the card injects.
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
    /// Steps for which the host does not answer the read of a command.
    pub(crate) slow_commands: u32,
    /// The card answers no command.
    pub(crate) mute: bool,
    /// Answers carry the tag of another command.
    pub(crate) wrong_tag: bool,
    /// The next command of this opcode is refused with this status and detail.
    pub(crate) refuse: Option<(Op, CommandStatus, u32)>,
    /// The next CQE carries this `wr_id`.
    pub(crate) completion_wr_id: Option<u64>,
    /// The next CQE carries this opcode.
    pub(crate) completion_opcode: Option<CompletionOpcode>,
    /// The host refuses the next CQE.
    pub(crate) refuse_completion: bool,
    /// Number of receive WQEs that the card fails to read. Such a receive is not flushed with a CQE either.
    pub(crate) unreadable_receives: u32,
    /// Number of messages of which only the first packet arrives: the receiver keeps the receive that it has taken.
    pub(crate) half_messages: u32,
    /// The card executes no send WQE.
    pub(crate) stuck: bool,
    /// A byte of the configuration space that is not the right one: its offset and value.
    pub(crate) config_byte: Option<(usize, u8)>,
    /// Bytes of the configuration space, if they are not all.
    pub(crate) config_bytes: Option<usize>,
    /// Size of BAR 2, if it is not the right one.
    pub(crate) doorbell_bytes: Option<u64>,
    /// Memory that was freed is used for nothing else, so that the card may still access it.
    pub(crate) is_isolated: bool,
    /// Number of resets that end. Later ones never do, and the function cannot be reset then either.
    pub(crate) resets: Option<u32>,
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
    /// That of its path.
    source_port: u16,
    send_producer: u16,
    send_consumer: u16,
    receive_producer: u16,
    receive_consumer: u16,
    /// `wr_id` of the receive of a message that has not ended.
    held: Option<u64>,
    /// The event `last_wqe_reached` was raised.
    last_wqe_reached: bool,
}

#[derive(Clone, Debug)]
struct SharedRing {
    /// Its limit becomes zero when the event is raised.
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
    /// Mappings that were unmapped while the card could still access them.
    pub(crate) unmapped_in_use: Vec<u64>,
    /// Posted slots that had changed when the card read them.
    changed: RefCell<Vec<u64>>,
    time: Duration,
    /// Bits of device addresses, if the driver has limited them.
    pub(crate) address_bits: Option<u32>,
    /// Configuration space.
    config: Vec<u8>,
    written: BTreeMap<u32, u64>,
    resetting: u32,
    memory: BTreeMap<u64, DeviceView>,
    next_address: u64,
    admin_consumer: u16,
    /// Steps for which a command has waited to be read.
    admin_waited: u32,
    /// Commands and WQEs by address, as they were when their doorbell arrived.
    posted: BTreeMap<u64, [u8; WQE_SLOT_BYTES]>,
    pending_interrupts: u64,
    events: BTreeMap<u32, EventRing>,
    completions: BTreeMap<u32, CompletionRing>,
    regions: BTreeMap<u32, CreateRegion>,
    addresses: BTreeMap<u32, CreateAddressHandle>,
    queue_pairs: BTreeMap<u32, QueuePair>,
    shared: BTreeMap<u32, SharedRing>,
}

type Refusal = (CommandStatus, u32);

/// Meaning of the four bytes `immediate` of a CQE.
#[derive(Clone, Copy, Debug)]
enum With {
    Nothing,
    Immediate([u8; 4]),
    /// Key that was invalidated.
    Key([u8; 4]),
}

fn place(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

impl Card {
    /// Bits of the command register that software has set.
    pub(crate) fn command(&self) -> u16 {
        let offset = usize::from(COMMAND);
        u16::from_le_bytes([self.config[offset], self.config[offset + 1]])
    }

    /// Number of objects: completion queues, regions, address handles, queue pairs.
    pub(crate) fn objects(&self) -> [usize; 4] {
        [self.completions.len(), self.regions.len(), self.addresses.len(), self.queue_pairs.len()]
    }

    /// Number of DMA mappings.
    pub(crate) fn mappings(&self) -> usize {
        self.memory.len()
    }

    /// Value last written to a register.
    pub(crate) fn register(&self, offset: u32) -> u64 {
        self.written.get(&offset).copied().unwrap_or(0)
    }

    /// Raises an asynchronous event.
    pub(crate) fn raise(&mut self, queue: u32, code: AsyncEvent, object_number: u32) {
        self.event(queue, EventKind::Asynchronous, code, object_number, 0);
    }

    /// Reports that this number of events found no room.
    pub(crate) fn raise_lost(&mut self, queue: u32, count: u32) {
        self.event(queue, EventKind::EventsLost, AsyncEvent::CompletionQueueError, 0, count);
    }

    /// Writes an EQE whose kind is illegal.
    pub(crate) fn raise_illegal(&mut self, queue: u32) {
        self.eqe(queue, |phase| {
            let eqe = Eqe { phase, ..Eqe::at_reset() };
            let mut bytes = eqe.to_bytes().expect("legal");
            bytes[8] = 0x7f;
            bytes
        });
    }

    /// Number of EQEs that the driver has not released.
    pub(crate) fn unreleased_events(&self, queue: u32) -> u32 {
        self.events[&queue].producer - self.events[&queue].consumer
    }

    /// Returns whether the card may access the mapping at this address: a ring, a region or host memory of its own.
    fn uses(&self, address: u64) -> bool {
        let registers = [
            REG_ADMIN_COMMAND_BASE.offset,
            REG_ADMIN_ANSWER_BASE.offset,
            REG_HOST_MEMORY_BASE.at(MemoryKind::Region.number().into()),
        ];
        let is_enabled = self.register(REG_CONTROL.offset) & 1 == 1;
        let of_device = is_enabled && registers.iter().any(|&offset| self.register(offset) == address);
        let work = self.queue_pairs.values().map(|qp| &qp.create);
        let mut rings = (self.events.values().map(|ring| ring.base))
            .chain(self.completions.values().map(|ring| ring.create.base))
            .chain(self.shared.values().map(|ring| ring.create.base))
            .chain(work.flat_map(|create| [create.send_base, create.receive_base]))
            .chain(self.regions.values().map(|region| region.translation_base));
        // A reset that has not ended may still wait for accesses of the host memory.
        self.resetting != 0 || of_device || is_enabled && rings.any(|base| base == address)
    }

    /// UDP source port of a queue pair.
    pub(crate) fn source_port(&self, qp_number: u32) -> u16 {
        self.queue_pairs[&qp_number].source_port
    }

    /// Moves a queue pair to the error state, as the card does after a failure.
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

    /// The driver posts slots of a ring: those from index `before` to `producer`.
    fn post(&mut self, base: u64, log2: u8, before: u16, producer: u16) {
        let count = producer.wrapping_sub(before);
        assert!(u32::from(count) <= 1 << log2, "{count} slots are more than the ring holds");
        for place in 0..count {
            let slot = u64::from(before.wrapping_add(place)) & ((1 << log2) - 1);
            let address = base + slot * WQE_SLOT_BYTES as u64;
            let mut bytes = [0; WQE_SLOT_BYTES];
            self.read_memory(address, &mut bytes);
            self.posted.insert(address, bytes);
        }
    }

    /// Reads a slot that was posted. Its contents must be those that it had when its doorbell arrived.
    fn read_posted(&self, address: u64, slot: &mut [u8]) {
        self.read_memory(address, slot);
        if *slot != self.posted[&address] {
            self.changed.borrow_mut().push(address);
        }
    }

    /// Takes the addresses of posted slots that had changed when the card read them.
    pub(crate) fn take_changed(&mut self) -> Vec<u64> {
        self.changed.take()
    }

    /// Changes one byte of the first slot of a send queue, as a driver would that writes a WQE after its doorbell. Returns the
    /// address of the slot.
    pub(crate) fn change_posted(&mut self, qp_number: u32) -> u64 {
        let address = self.queue_pairs[&qp_number].create.send_base;
        self.write_memory(address + 8, &[0xff]);
        address
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
}
