//! Null card: a card that does nothing but complete, so that what is left to measure is the driver.
//!
//! A doorbell of a send or receive queue completes the posted WQEs before it returns: the card writes a CQE for each that is
//! signalled. With [`NullCard::hold`] it notes the doorbell only, and completes in [`NullCard::complete`]. No payload moves. It
//! knows the layout alone, answers every command with success, and allocates nothing after the queues are created.

use rnic_driver::{Bar, DeviceView, Function, FunctionError, Memory, Ownership, Purpose};
use rnic_layout::admin::{Answer, Body, COMMAND_BYTES, Command, CommandOpcode, CommandStatus};
use rnic_layout::doorbell::{self, CompletionDoorbell, WorkDoorbell};
use rnic_layout::limits::WQE_SLOT_BYTES;
use rnic_layout::pci;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus, RawCqe};
use rnic_layout::queue::phase;
use rnic_layout::queue::receive::RawReceiveWqe;
use rnic_layout::queue::send::{RawSendWqe, SIGNALLED, TWO_SLOTS, WqeOpcode};
use rnic_layout::registers::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// log2 of the number of queue pairs, whose index is in the low bits of their number.
const QUEUE_PAIRS_LOG2: u8 = 3;
/// Number of queue pairs, and of completion queues.
const OBJECTS: usize = 1 << QUEUE_PAIRS_LOG2;

/// A ring in the memory of the host.
#[derive(Default)]
struct Ring {
    memory: Option<DeviceView>,
    log2: u32,
    producer: u32,
    consumer: u32,
}

impl Ring {
    fn new(memory: DeviceView, log2: u8) -> Self {
        Self { memory: Some(memory), log2: log2.into(), producer: 0, consumer: 0 }
    }

    fn slot(&self, index: u32) -> usize {
        (index & ((1 << self.log2) - 1)) as usize
    }

    fn memory(&self) -> &DeviceView {
        self.memory.as_ref().expect("the ring was created")
    }
}

#[derive(Default)]
struct QueuePair {
    number: u32,
    signals_all: bool,
    send: Ring,
    receive: Ring,
    /// Completion queues of sends and receives.
    completions: [usize; 2],
}

#[derive(Default)]
struct Card {
    config: Vec<u8>,
    written: BTreeMap<u32, u64>,
    mappings: BTreeMap<u64, DeviceView>,
    next_address: u64,
    commands: u32,
    queue_pairs: [QueuePair; OBJECTS],
    completions: [Ring; OBJECTS],
    /// Number of doorbells of work queues and of completion queues.
    doorbells: [u64; 2],
}

impl Card {
    fn register(&self, offset: u32) -> u64 {
        self.written.get(&offset).copied().unwrap_or(0)
    }

    fn read_register(&self, offset: u32) -> u64 {
        let value = |bytes: Result<[u8; 8], _>| u64::from_le_bytes(bytes.expect("a legal value"));
        if offset == REG_MAGIC.offset {
            MAGIC
        } else if offset == REG_LAYOUT_VERSION.offset {
            value(LayoutVersion::at_reset().to_bytes())
        } else if offset == REG_FEATURES.offset {
            value(Features { packet_path: true, reliable_connected: true, ..Features::at_reset() }.to_bytes())
        } else if offset == REG_GEOMETRY.offset {
            value(Geometry { datapath_bits: 512, interrupt_vectors: 1, clock_khz: 250_000 }.to_bytes())
        } else if offset == REG_TABLE_SIZES.offset {
            let sizes = TableSizes {
                queue_pairs_log2: QUEUE_PAIRS_LOG2,
                completion_queues_log2: QUEUE_PAIRS_LOG2,
                event_queues_log2: 1,
                shared_receive_queues_log2: 0,
                regions_log2: 12,
                address_handles_log2: 2,
                doorbell_pages_log2: 0,
                outstanding_blocks_log2: 4,
            };
            value(sizes.to_bytes())
        } else if offset == REG_QUEUE_LIMITS.offset {
            let limits = QueueLimits {
                send_slots_log2: 12,
                receive_wqes_log2: 12,
                cqes_log2: 14,
                eqes_log2: 8,
                response_sges: 2,
                send_sges: 6,
                receive_sges: 3,
                inline_bytes: 96,
                read_atomic: 16,
                destination_read_atomic: 16,
                psn_window_log2: 8,
            };
            value(limits.to_bytes())
        } else if offset == REG_MESSAGE_LIMIT.offset {
            1 << 31
        } else if offset == REG_STATUS.offset {
            let ready = self.register(REG_CONTROL.offset) & 1 == 1;
            value(Status { ready, link_up: ready, ..Status::at_reset() }.to_bytes())
        } else {
            0
        }
    }

    fn write_register(&mut self, offset: u32, value: u64) {
        self.written.insert(offset, value);
        if offset == REG_ADMIN_DOORBELL.offset {
            self.execute();
        } else if offset == REG_CONTROL.offset && value & 1 == 0 {
            // A reset: the admin queue begins again.
            self.commands = 0;
        }
    }

    fn mapping(&self, address: u64) -> DeviceView {
        self.mappings.get(&address).expect("rings begin with their mapping").clone()
    }

    /// Executes one command, and answers it.
    fn execute(&mut self) {
        let control = AdminControl::parse(&self.register(REG_ADMIN_CONTROL.offset).to_le_bytes());
        let log2 = u32::from(control.expect("a legal value").entries_log2);
        let slot = (self.commands & ((1 << log2) - 1)) as usize;
        let mut bytes = [0; COMMAND_BYTES];
        let commands = self.mapping(self.register(REG_ADMIN_COMMAND_BASE.offset));
        commands.read(slot * COMMAND_BYTES, &mut bytes).expect("the ring is mapped");
        let command = Command::parse(&bytes).expect("the driver writes legal commands");
        let number = command.header.object_number;
        match command.body {
            Body::CreateCompletionQueue(body) => {
                self.completions[number as usize] = Ring::new(self.mapping(body.base), body.entries_log2);
            }
            Body::CreateQueuePair(body) => {
                self.queue_pairs[number as usize % OBJECTS] = QueuePair {
                    number,
                    signals_all: body.signal_all,
                    send: Ring::new(self.mapping(body.send_base), body.send_slots_log2),
                    receive: Ring::new(self.mapping(body.receive_base), body.receive_wqes_log2),
                    completions: [body.send_completion_queue, body.receive_completion_queue]
                        .map(|queue| queue as usize),
                };
            }
            // The rings keep their memory, which may not outlive its mapping.
            _ if command.header.opcode == CommandOpcode::DestroyCompletionQueue => {
                self.completions[number as usize] = Ring::default();
            }
            _ if command.header.opcode == CommandOpcode::DestroyQueuePair => {
                self.queue_pairs[number as usize % OBJECTS] = QueuePair::default();
            }
            _ => {}
        }
        let answer = Answer {
            tag: command.header.tag,
            opcode: command.header.opcode.number(),
            status: CommandStatus::Success,
            object_number: number,
            detail: 0,
            phase: phase(self.commands, log2),
        };
        let answers = self.mapping(self.register(REG_ADMIN_ANSWER_BASE.offset));
        answers.write(slot * Answer::BYTES, &answer.to_bytes().expect("legal")).expect("the ring is mapped");
        self.commands += 1;
    }

    /// Completes the WQEs of a queue up to a producer index.
    fn complete(&mut self, is_send: bool, bell: WorkDoorbell) {
        let WorkDoorbell { object_number, producer_index } = bell;
        let queue_pair = &mut self.queue_pairs[object_number as usize % OBJECTS];
        assert_eq!(queue_pair.number, object_number, "the queue pair was created");
        let signals_all = queue_pair.signals_all || !is_send;
        let ring = if is_send { &mut queue_pair.send } else { &mut queue_pair.receive };
        let completions = &mut self.completions[queue_pair.completions[usize::from(!is_send)]];
        while ring.consumer as u16 != producer_index {
            let mut slot = [0; WQE_SLOT_BYTES];
            let offset = ring.slot(ring.consumer) * WQE_SLOT_BYTES;
            ring.memory().read(offset, &mut slot).expect("the ring is mapped");
            let (wr_id, opcode, flags) = if is_send {
                let wqe = RawSendWqe::read_from_bytes(&slot).expect("a slot is a WQE");
                (wqe.wr_id, completes_as(wqe.opcode), wqe.flags)
            } else {
                let wqe = RawReceiveWqe::read_from_bytes(&slot).expect("a slot is a WQE");
                (wqe.wr_id, CompletionOpcode::Receive, 0)
            };
            ring.consumer += if flags & TWO_SLOTS == 0 { 1 } else { 2 };
            if !signals_all && flags & SIGNALLED == 0 {
                continue;
            }
            assert!(
                completions.producer - completions.consumer < 1 << completions.log2,
                "a completion queue overran"
            );
            let cqe = RawCqe {
                wr_id,
                qp_number: object_number.into(),
                consumer_index: (ring.consumer as u16).into(),
                opcode: opcode.number(),
                status: CompletionStatus::Success.number(),
                phase: phase(completions.producer, completions.log2).into(),
                ..RawCqe::default()
            };
            let offset = completions.slot(completions.producer) * size_of::<RawCqe>();
            completions.memory().write(offset, cqe.as_bytes()).expect("the ring is mapped");
            completions.producer += 1;
        }
    }

    fn consume(&mut self, bell: CompletionDoorbell) {
        let ring = &mut self.completions[bell.object_number as usize];
        // The index has 24 bits.
        let read = bell.consumer_index.wrapping_sub(ring.consumer) & 0xff_ffff;
        ring.consumer += read;
        assert!(ring.consumer <= ring.producer, "CQEs were read that are not written");
    }
}

fn completes_as(opcode: u8) -> CompletionOpcode {
    let is = |kind: WqeOpcode| kind.number() == opcode;
    if is(WqeOpcode::Write) || is(WqeOpcode::WriteImmediate) {
        CompletionOpcode::Write
    } else if is(WqeOpcode::Read) {
        CompletionOpcode::Read
    } else {
        CompletionOpcode::Send
    }
}

/// What the BARs share.
struct Shared {
    card: Mutex<Card>,
    /// Doorbells are noted, and not carried out.
    holds: AtomicBool,
    /// The last doorbell of each queue that was noted; zero if there is none.
    noted: [[AtomicU64; OBJECTS]; 2],
    idles: AtomicU64,
    /// Number of accesses to BARs and of mappings that were made and ended.
    calls: AtomicU64,
}

impl Shared {
    fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn card(&self) -> MutexGuard<'_, Card> {
        self.card.lock().expect("the card has not failed")
    }
}

/// BAR 0 or, if `rings` is set, BAR 2.
struct NullBar {
    shared: Arc<Shared>,
    rings: bool,
}

impl Bar for NullBar {
    fn bytes(&self) -> u64 {
        if self.rings { pci::DOORBELL_BAR_BYTES } else { pci::REGISTER_BAR_BYTES }
    }

    fn read32(&self, offset: u64) -> u32 {
        (self.read64(offset & !7) >> (offset % 8 * 8)) as u32
    }

    fn write32(&self, _: u64, _: u32) {
        panic!("the driver writes 64 bits");
    }

    fn read64(&self, offset: u64) -> u64 {
        self.shared.called();
        if self.rings { 0 } else { self.shared.card().read_register(offset as u32) }
    }

    fn write64(&self, offset: u64, value: u64) {
        self.shared.called();
        let offset = offset as u32;
        if !self.rings {
            return self.shared.card().write_register(offset, value);
        }
        let is_send = offset == doorbell::SEND.offset;
        if is_send || offset == doorbell::RECEIVE.offset {
            if self.shared.holds.load(Ordering::Relaxed) {
                let queue = &self.shared.noted[usize::from(is_send)][value as usize % OBJECTS];
                return queue.store(value, Ordering::Release);
            }
            let mut card = self.shared.card();
            card.doorbells[0] += 1;
            card.complete(is_send, WorkDoorbell::parse(&value.to_le_bytes()).expect("legal"));
        } else if offset == doorbell::COMPLETION.offset {
            let mut card = self.shared.card();
            card.doorbells[1] += 1;
            card.consume(CompletionDoorbell::parse(&value.to_le_bytes()).expect("legal"));
        }
    }
}

/// The null card, as the driver accesses it.
pub(crate) struct NullCard {
    shared: Arc<Shared>,
    bars: [NullBar; 2],
    ownership: Ownership,
    start: Instant,
}

impl NullCard {
    pub(crate) fn new() -> Arc<Self> {
        let card = Card { config: pci::config_image(0).to_vec(), next_address: 1 << 20, ..Card::default() };
        let shared = Arc::new(Shared {
            card: Mutex::new(card),
            holds: AtomicBool::new(false),
            noted: Default::default(),
            idles: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        });
        let bars = [false, true].map(|rings| NullBar { shared: Arc::clone(&shared), rings });
        Arc::new(Self { shared, bars, ownership: Ownership::default(), start: Instant::now() })
    }

    /// Chooses whether doorbells wait for [`Self::complete`].
    pub(crate) fn hold(&self, holds: bool) {
        self.shared.holds.store(holds, Ordering::Relaxed);
    }

    /// Completes what was posted while doorbells were held.
    pub(crate) fn complete(&self) {
        let mut card = self.shared.card();
        for (is_send, queues) in [false, true].into_iter().zip(&self.shared.noted) {
            for noted in queues {
                match noted.swap(0, Ordering::Acquire) {
                    0 => {}
                    value => {
                        card.complete(is_send, WorkDoorbell::parse(&value.to_le_bytes()).expect("legal"));
                    }
                }
            }
        }
    }

    /// Number of doorbells of work queues and of completion queues.
    pub(crate) fn doorbells(&self) -> [u64; 2] {
        self.shared.card().doorbells
    }

    /// Number of accesses to BARs and of mappings that were made and ended.
    pub(crate) fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Number of calls of `idle`.
    pub(crate) fn idles(&self) -> u64 {
        self.shared.idles.load(Ordering::Relaxed)
    }
}

impl Function for NullCard {
    fn config_space(&self) -> Result<Vec<u8>, FunctionError> {
        Ok(self.shared.card().config.clone())
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        let mask = pci::config_write_mask();
        let mut card = self.shared.card();
        for (place, byte) in (usize::from(offset)..).zip(bytes) {
            card.config[place] = card.config[place] & !mask[place] | byte & mask[place];
        }
        Ok(())
    }

    fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        match index {
            0 => Ok(&self.bars[0]),
            2 => Ok(&self.bars[1]),
            _ => Err(FunctionError::NoBar { index }),
        }
    }

    /// Memory in files, as of a card in another process: a process that is forked does not have it.
    fn allocate(&self, bytes: usize, purpose: Purpose) -> Result<Arc<Memory>, FunctionError> {
        Ok(Arc::new(Memory::in_file(bytes, purpose)?))
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError> {
        self.shared.called();
        let mut card = self.shared.card();
        let address = card.next_address;
        card.next_address += memory.bytes() as u64;
        card.mappings.insert(address, memory.device_view());
        Ok(address)
    }

    fn unmap(&self, device_address: u64) -> Result<(), FunctionError> {
        self.shared.called();
        let removed = self.shared.card().mappings.remove(&device_address);
        removed.map(drop).ok_or(FunctionError::NotMapped { device_address })
    }

    fn interrupt_vectors(&self) -> u32 {
        0
    }

    fn take_interrupt(&self, vector: u32) -> Result<bool, FunctionError> {
        Err(FunctionError::NoVector { vector })
    }

    fn reset(&self) -> Result<(), FunctionError> {
        Err(FunctionError::Unsupported { what: "reset the function" })
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn idle(&self) {
        self.shared.idles.fetch_add(1, Ordering::Relaxed);
    }
}
