//! Registers of BAR 0: what the card is, how it is started, and what it has counted.
//!
//! Most registers only keep what software writes: one memory holds all of them and is read back. What the card needs at all
//! times is also held in registers of its own ([`settings`]); what it needs once becomes a message when it is written.
//!
//! ```text
//!            ┌───────────────────────────────────────────────────────┐
//!  sweep ─┬──┼─> mask ─> written ─┬─> file ─────────────────────┐    │
//!  write ─┘  │                    ├─> settings ─────────────────┼────┼─> to the parts of the card
//!            │                    └─> entries ──────────────────┼────┼─> source_address_write,
//!            │                                                  │    │   interrupt_moderation_write
//!  read ─────┼────────────────────────────────────────> select ─┴─>  ├─> read_data
//!  status, counters, pool levels ──────────────────────────┘         │
//!            └───────────────────────────────────────────────────────┘
//! ```
//!
//! Latency: `read_data` follows `read` after [`READ_CYCLES`]; a write takes effect in the third cycle, and its message leaves
//! in the fifth. Throughput: one write and one read a cycle.
//!
//! 1. Reading has no side effect, and never waits.
//! 2. Reserved bits read as zero, whatever was written; registers that are read-only keep their value.
//! 3. A register acts when its byte 7 is written, so two 32-bit writes, low then high, do what one 64-bit write does. Only
//!    `interrupt_pending` acts on each byte that is written.
//! 4. While `is_resetting`, writes of software change nothing; a sweep writes every register with its value at reset.
//! 5. An access to an address without a register is counted; such a read yields zero.
//!
//! A card works as it was generated: of `port_control` only the filters can be changed. All offsets, masks and values at reset
//! are those of [`rnic_layout::registers`].
mod entries;
mod settings;

use crate::axi_lite::READ_CYCLES;
use crate::frame_counters::FrameCounters;
use crate::messages::{AdminRegistersTx, CounterReads, InterruptRegisters, PortFacts, TableSweep};
use crate::register_map::{ADDRESS_BITS, at};
use crate::register_value;
use entries::EntryRegisters;
use rnic_blocks::logic::rom::ConstantRom;
use rnic_blocks::memory::{ByteMemory, Storage};
use rnic_blocks::stream::ValidTx;
use rnic_kernel::prelude::*;
use rnic_layout::limits;
use rnic_layout::registers::{
    self as map, Access, Features, Geometry, HostLimit, LayoutVersion, MemoryLimits, MessageLimit,
    PortControl, QueueLimits, REGISTERS, TableSizes,
};
use rnic_messages::complete::EventQueueSetup;
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::read::READ_SLOT_BITS;
use rnic_messages::setup::SourceAddressWrite;
use rnic_messages::sizes::{
    DOORBELL_PAGE_BITS, HOST_LIMIT_BITS, SOURCE_ADDRESS_BITS, TIMER_UNIT_BITS, VECTOR_BITS, sizes,
};
use settings::{
    Permissions, RegisterWrite, Requests, Settings, event_queue_0, next_settings, permissions, requests_of,
    settings_at_reset, timer_unit,
};

/// Bits of a byte address of the slave in the space of BAR 0, which is larger than the BAR.
pub const SPACE_BITS: usize = 24;
/// Bits of the number of an event counter.
pub const EVENT_COUNTER_BITS: usize = 6;
/// Bits of the number of a pool.
pub const POOL_BITS: usize = 6;
/// Number of event counters, which follow those of the packet path.
pub const EVENT_COUNTERS: usize = map::COUNTERS.len() - FIRST_EVENT;

/// The first event counter.
const FIRST_EVENT: usize = map::counter("unknown_qp");
/// Bits of the number of a register, counters aside, and its first bit in an address.
const WORD_BITS: usize = 9;
const WORD: usize = 3;
/// Bits of an address above the registers, and above the BAR.
const ABOVE: usize = WORD + WORD_BITS;
const ABOVE_BITS: usize = SPACE_BITS - ABOVE;
const BEYOND_BITS: usize = SPACE_BITS - ADDRESS_BITS;
/// Registers are 64 bits wide: a mask, whether software can write, and whether there is a register.
const RULE_BITS: usize = 66;
const IS_WRITABLE: usize = 64;
const IS_MAPPED: usize = 65;

/// The flags of `port_control` that software may change; its other fields are fixed in this card.
const PORT_CONTROL_KEPT: u64 = 0b11;
/// Bits of an address that tell three arrays of registers apart.
const BLOCK: usize = 9;
const BLOCK_BITS: usize = 3;
const SOURCE_ADDRESSES: u64 = map::REG_SOURCE_ADDRESS_HIGH.offset as u64 >> BLOCK;
const MODERATIONS: u64 = map::REG_INTERRUPT_MODERATION.offset as u64 >> BLOCK;
/// First bits, in an address, of the index of a source address and of its part.
const SOURCE_ADDRESS: usize = 5;
const PART: usize = 3;
const HIGH: u64 = 0;
const LOW: u64 = 1;
const PORT: u64 = 2;
const PORT_VALID: usize = map::SourceAddressPort::RECORD.field("valid").offset as usize;
const MAC_BITS: usize = map::SourceAddressPort::RECORD.field("mac").width as usize;
/// Bits of the speed of the port.
pub const SPEED_BITS: usize = map::PortSpeed::RECORD.field("megabits").width as usize;

/// Rings begin at a page.
const PAGE_BITS: usize = 52;
const OFFSET_BITS: usize = limits::RING_ALIGNMENT_BYTES.trailing_zeros() as usize;

/// Bits of registers.
mod bit {
    use rnic_layout::registers as map;

    pub(super) const ENABLE: usize = map::Control::RECORD.field("enable").offset as usize;
    pub(super) const RESET: usize = map::Control::RECORD.field("reset").offset as usize;
    pub(super) const QUIESCE: usize = map::Control::RECORD.field("quiesce").offset as usize;
    pub(super) const ADMIN_ENABLE: usize = map::AdminControl::RECORD.field("enable").offset as usize;
    pub(super) const EVENT_ON_ANSWER: usize =
        map::AdminControl::RECORD.field("event_on_answer").offset as usize;
    pub(super) const QUEUE_ENABLE: usize = map::EventQueueControl::RECORD.field("enable").offset as usize;
    pub(super) const QUEUE_VECTOR: usize = map::EventQueueControl::RECORD.field("vector").offset as usize;
}

const _: () = {
    assert!(READ_CYCLES == 3, "the read path below has three registers");
    assert!(map::POOLS.len() <= 1 << POOL_BITS && POOLS_BEGIN.is_multiple_of(8 << POOL_BITS));
    assert!(map::PoolLevel::RECORD.field("in_use").offset == 0);
    assert!(map::COUNTER_BASE == 1 << ABOVE && EVENT_COUNTERS <= 1 << EVENT_COUNTER_BITS);
    assert!(map::REG_SOURCE_ADDRESS_HIGH.stride == 1 << SOURCE_ADDRESS);
    assert!(map::REG_SOURCE_ADDRESS_HIGH.offset as u64 == SOURCE_ADDRESSES << BLOCK);
    assert!(map::REG_SOURCE_ADDRESS_LOW.offset - map::REG_SOURCE_ADDRESS_HIGH.offset == (LOW as u32) << PART);
    assert!(
        map::REG_SOURCE_ADDRESS_PORT.offset - map::REG_SOURCE_ADDRESS_HIGH.offset == (PORT as u32) << PART
    );
    assert!(limits::SOURCE_ADDRESSES << SOURCE_ADDRESS == 1 << BLOCK && SOURCE_ADDRESS_BITS == 4);
    assert!(map::REG_INTERRUPT_MODERATION.offset as u64 == MODERATIONS << BLOCK);
    assert!(map::REG_INTERRUPT_MODERATION.stride as usize * (1 << VECTOR_BITS) == 1 << BLOCK);
    assert!(PAGE_BITS + OFFSET_BITS == 64 && MAC_BITS == 48);
    assert!(bit::ENABLE == 0 && bit::RESET == 1 && bit::QUIESCE == 2, "the word below");
    let status = map::Status::RECORD;
    assert!(status.field("ready").offset == 0 && status.field("resetting").offset == 1);
    assert!(status.field("drained").offset == 2 && status.field("fatal").offset == 3);
    assert!(status.field("link_up").offset == 4 && status.field("bus_master").offset == 5);
    assert!(map::PermanentMac::RECORD.field("mac").width == 48);
    assert!(map::Fatal::RECORD.field("code").offset == 0 && map::Fatal::RECORD.field("detail").offset == 32);
    let progress = map::AdminProgress::RECORD;
    assert!(progress.field("busy").offset == 16 && progress.field("failed").offset == 17);
};

/// Gives the registers of a card of this width and core clock whose values at reset are not zero.
fn values(datapath_bits: u16, clock_khz: u32) -> [(u64, u64); 11] {
    let features = Features {
        packet_path: true,
        reliable_connected: true,
        read: true,
        atomics: true,
        shared_receive_queues: true,
        page_lists: true,
        retransmission: true,
        ..Features::at_reset()
    };
    let geometry = Geometry { datapath_bits, interrupt_vectors: 1 << VECTOR_BITS, clock_khz };
    let sizes = sizes();
    let tables = TableSizes {
        queue_pairs_log2: sizes.queue_pairs as u8,
        completion_queues_log2: sizes.completion_queues as u8,
        event_queues_log2: sizes.event_queues as u8,
        shared_receive_queues_log2: sizes.shared_receive_queues as u8,
        regions_log2: sizes.regions as u8,
        address_handles_log2: sizes.address_handles as u8,
        doorbell_pages_log2: DOORBELL_PAGE_BITS as u8,
        // One of each queue pair, and those that all share.
        outstanding_blocks_log2: sizes.outstanding_blocks() as u8 + 1,
    };
    let queues = QueueLimits {
        send_slots_log2: limits::SEND_SLOTS_LOG2_MAX as u8,
        response_sges: limits::RESPONSE_SGES_MAX as u8,
        receive_wqes_log2: limits::RECEIVE_WQES_LOG2_MAX as u8,
        cqes_log2: limits::CQES_LOG2_MAX as u8,
        eqes_log2: limits::EQES_LOG2_MAX as u8,
        send_sges: SEND_SGES,
        receive_sges: limits::RECEIVE_SGES_MAX as u8,
        inline_bytes: limits::INLINE_BYTES_MAX as u8,
        read_atomic: 1 << READ_SLOT_BITS,
        destination_read_atomic: 1 << READ_SLOT_BITS,
        psn_window_log2: PSN_WINDOW_LOG2,
    };
    let memory = MemoryLimits {
        address_bits: limits::DEVICE_ADDRESS_BITS as u8,
        smallest_page_log2: limits::PAGE_LOG2_MIN,
        largest_page_log2: limits::PAGE_LOG2_MAX,
        pages_log2: sizes.page_entries as u8,
        read_slots_log2: sizes.read_slots as u8,
    };
    let message = MessageLimit { message_bytes: limits::MESSAGE_BYTES_MAX.into() };
    [
        (at::MAGIC, map::MAGIC),
        (at::LAYOUT_VERSION, register_value!(LayoutVersion::at_reset())),
        (at::FEATURES, register_value!(features)),
        (at::GEOMETRY, register_value!(geometry)),
        (at::TABLE_SIZES, register_value!(tables)),
        (at::QUEUE_LIMITS, register_value!(queues)),
        (at::MESSAGE_LIMIT, register_value!(message)),
        (at::MEMORY_LIMITS, register_value!(memory)),
        (at::HOST_LIMIT, register_value!(HostLimit::at_reset_of(clock_khz))),
        (at::TIMER_UNIT, register_value!(timer_unit(clock_khz))),
        (at::PORT_CONTROL, register_value!(PortControl::at_reset())),
    ]
}

/// SGEs of a send WQE, at most.
const SEND_SGES: u8 = limits::SEND_SGES_MAX as u8;
/// PSNs that a queue pair has in flight at most, as a power of two.
const PSN_WINDOW_LOG2: u8 = limits::PSN_WINDOW_LOG2_MAX as u8;

/// Gives, for each register, the mask of its bits, whether software writes it, and whether it exists.
fn rules() -> Vec<u128> {
    let mut rules = vec![0; 1 << WORD_BITS];
    for register in REGISTERS {
        let fields = register.record.fields.iter();
        let mask = fields.fold(0u64, |mask, field| mask | field.max() << field.offset);
        let mask = if u64::from(register.offset) == at::PORT_CONTROL { PORT_CONTROL_KEPT } else { mask };
        for index in 0..register.count {
            let (mask, is_writable) = match register.access {
                Access::ReadOnly => (0, 0),
                Access::ReadWrite => (mask, 1),
                Access::WriteOneToClear | Access::WriteOnly => (mask, 0),
            };
            rules[register.at(index) as usize >> WORD] =
                u128::from(mask) | is_writable << IS_WRITABLE | 1 << IS_MAPPED;
        }
    }
    rules
}

/// Gives the register file at reset, word by word.
fn contents(datapath_bits: u16, clock_khz: u32) -> Vec<Bits<64>> {
    let mut contents = vec![Bits::default(); 1 << WORD_BITS];
    for (address, value) in values(datapath_bits, clock_khz) {
        contents[address as usize >> WORD] = value.to_bits();
    }
    contents
}

/// Makes a table that says whether a register exists.
fn read_rules() -> ConstantRom<WORD_BITS, 1> {
    let rules = rules();
    ConstantRom::new(|word| bits((rules[word] >> IS_MAPPED) as u64))
}

fn write_rules() -> ConstantRom<WORD_BITS, RULE_BITS> {
    let rules = rules();
    ConstantRom::new(|word| rules[word].to_bits())
}

/// Holds the registers of BAR 0.
#[clocked(reset = "the reset of the whole card")]
#[derive(LogicBlock, Registers, Construct)]
#[new(
    /// Makes the registers of a card of this width and core clock.
    datapath_bits: u16,
    clock_khz: u32,
)]
pub struct CardRegisters {
    /// From the slave: a write, one cycle.
    pub write: Signal<In, Bit>,
    /// Byte address of the write, a multiple of eight.
    pub write_address: Signal<In, Bits<SPACE_BITS>>,
    /// Data of the write.
    pub write_data: Signal<In, Bits<64>>,
    /// Bytes of `write_data` that are written.
    pub write_strobe: Signal<In, Bits<8>>,
    /// From the slave: a read begins, one cycle.
    pub read: Signal<In, Bit>,
    /// Byte address of the read, a multiple of eight; steady until the data is taken.
    pub read_address: Signal<In, Bits<SPACE_BITS>>,
    /// To the slave: data of the read, [`READ_CYCLES`] after its address; registered.
    pub read_data: Signal<Out, Bits<64>>,

    /// To the reset: software asks for one; registered, one cycle.
    pub reset_request: Signal<Out, Bit>,
    /// From the reset: a reset runs.
    pub is_resetting: Signal<In, Bit>,
    /// From the reset: all parts are in reset.
    pub core_reset: Signal<In, Bit>,
    /// From the reset: a register takes its value at reset; the index is larger than needed.
    pub sweep: Signal<In, TableSweep>,
    /// Nothing is in flight to host or wire.
    pub drained: Signal<In, Bit>,
    /// The network port.
    pub port: PortFacts,
    /// The card may make requests to the host.
    pub may_request: Signal<In, Bit>,
    /// The device has failed.
    pub device_failed: Signal<In, Bit>,
    /// A `FatalCode`: why the device has failed.
    pub fatal_code: Signal<In, Bits<8>>,
    /// Detail of the failure, whose meaning depends on the code.
    pub fatal_detail: Signal<In, Bits<32>>,

    /// New work may begin; registered.
    pub enable: Signal<Out, Bit>,
    /// Doorbells are taken, also while the card quiesces; registered.
    pub doorbell_enable: Signal<Out, Bit>,
    /// The card quiesces: it begins nothing new; registered.
    pub quiesces: Signal<Out, Bit>,
    /// Register `host_limit`; registered.
    pub host_limit: Signal<Out, Bits<HOST_LIMIT_BITS>>,
    /// Register `timer_unit`; registered.
    pub timer_unit: Signal<Out, Bits<TIMER_UNIT_BITS>>,
    /// Ethernet address of the card; registered.
    pub own_mac: Signal<Out, Bits<48>>,
    /// Frames to any unicast address are taken; registered.
    pub promiscuous: Signal<Out, Bit>,
    /// Frames to any group address are taken; registered.
    pub accept_multicast: Signal<Out, Bit>,
    /// An entry of the table of source addresses; registered.
    pub source_address_write: ValidTx<SourceAddressWrite>,
    /// Source addresses in use, one bit each; registered.
    pub source_addresses: Signal<Out, Bits<{ limits::SOURCE_ADDRESSES }>>,

    /// To and from the admin ring.
    pub admin: AdminRegistersTx,
    /// Settings of event queue 0, when they have changed; registered.
    pub event_queue_0: ValidTx<EventQueueSetup>,

    /// To and from the interrupts.
    pub interrupt: InterruptRegisters,
    /// To and from the counters.
    pub counters: CounterReads,
    /// An access to an address without a register; registered.
    pub counts_register_unmapped: Signal<Out, Bit>,

    #[init(write_rules())]
    rules: ConstantRom<WORD_BITS, RULE_BITS>,
    #[init(read_rules())]
    read_rules: ConstantRom<WORD_BITS, 1>,
    #[init(ByteMemory::with_contents(Storage::Block, &contents(datapath_bits, clock_khz)))]
    file: ByteMemory<64, 8, WORD_BITS>,
    entries: EntryRegisters,
    frames: FrameCounters,
    #[init(Constant::new(contents(datapath_bits, clock_khz)[at::PORT_CONTROL as usize >> WORD]))]
    port_control_at_reset: Constant<Bits<64>>,
    #[init(Constant::new(contents(datapath_bits, clock_khz)[at::HOST_LIMIT as usize >> WORD]))]
    host_limit_at_reset: Constant<Bits<64>>,
    #[init(Constant::new(contents(datapath_bits, clock_khz)[at::TIMER_UNIT as usize >> WORD]))]
    timer_unit_at_reset: Constant<Bits<64>>,

    /// A write, without its reserved bits.
    write_held: DFF<RegisterWrite>,
    has_write: Reg<Bit>,
    /// The write is of a register that is kept in the file.
    is_kept: Reg<Bit>,

    #[init(Reg::new(settings_at_reset(clock_khz)))]
    settings: Reg<Settings>,
    requests: Reg<Requests>,
    /// Event queue 0 was enabled when its settings last changed.
    event_queue_was_enabled: Reg<Bit>,
    permissions: Reg<Permissions>,
    unmapped: Reg<Bit>,
    /// Two accesses in one cycle had no register.
    owes_unmapped: Reg<Bit>,

    selected: DFF<Bits<64>>,
    selects_event_counter: DFF<Bit>,
    selects_pool: DFF<Bit>,
    is_inside: DFF<Bit>,
    read_held: DFF<Bits<64>>,
}

/// Tells whether an address is that of a counter.
#[kernel]
fn is_counter(address: Bits<SPACE_BITS>) -> Bit {
    let ends_before = address < COUNTERS_END;
    ends_before && address >= COUNTERS_BEGIN
}

/// Tells whether an address is that of the level of a pool.
#[kernel]
fn is_pool(address: Bits<SPACE_BITS>) -> Bit {
    let ends_before = address < POOLS_END;
    ends_before && address >= POOLS_BEGIN
}

const POOLS_BEGIN: u64 = map::POOL_BASE as u64;
const POOLS_END: u64 = POOLS_BEGIN + 8 * map::POOLS.len() as u64;
const COUNTERS_BEGIN: u64 = map::COUNTER_BASE as u64;
const EVENTS_BEGIN: u64 = map::counter_offset(FIRST_EVENT) as u64;
const COUNTERS_END: u64 = COUNTERS_BEGIN + 8 * map::COUNTERS.len() as u64;
/// The number of the first event counter, modulo the width of an index.
const FIRST_INDEX: u64 = FIRST_EVENT as u64 % (1 << EVENT_COUNTER_BITS);

/// Accesses without a register, to be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Misses {
    /// One is counted.
    any: Bit,
    /// Another one is still to be counted.
    owes: Bit,
}

/// Counts accesses without a register, of which a write and a read may come in one cycle.
#[kernel]
fn misses(write_misses: Bit, read_misses: Bit, owed: Bit) -> Misses {
    Misses {
        any: write_misses || read_misses || owed,
        owes: (write_misses && read_misses) || (owed && (write_misses || read_misses)),
    }
}

impl Logic for CardRegisters {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_resetting = self.is_resetting.val();
        let sweeps = self.sweep.val().is_sweeping;

        // A write, of software or of a sweep, loses its reserved bits.
        let write_address = self.write_address.val();
        let is_register = !write_address.get_bits::<ABOVE_BITS>(ABOVE).any();
        let word = select(
            sweeps,
            self.sweep.val().index.get_bits::<WORD_BITS>(0),
            write_address.get_bits::<WORD_BITS>(WORD),
        );
        self.rules.address.next = word;
        let rule = self.rules.value.val();
        let takes = sweeps || (self.write.val() && is_register && !is_resetting);
        let fixed = select(word == at::PORT_CONTROL >> WORD, self.port_control_at_reset.val(), bits::<64>(0));
        let is_limit = word == at::HOST_LIMIT >> WORD;
        let is_unit = word == at::TIMER_UNIT >> WORD;
        let swept_unit = select(is_unit, self.timer_unit_at_reset.val(), bits::<64>(0));
        let swept = select(is_limit, self.host_limit_at_reset.val(), swept_unit);
        let offered = select(sweeps, swept, self.write_data.val() & rule.get_bits::<64>(0));
        self.has_write.d.next = takes;
        self.is_kept.d.next = takes && rule.get_bit(IS_WRITABLE);
        self.write_held.d.next = RegisterWrite {
            word,
            data: offered | fixed,
            strobe: select(sweeps, bits::<8>(0xff), self.write_strobe.val()),
            is_swept: sweeps,
        };

        // The file and the entries store it.
        let has_write = self.has_write.q.val();
        let write = self.write_held.q.val();
        self.file.write(select(self.is_kept.q.val(), write.strobe, bits::<8>(0)), write.word, write.data);
        self.entries.write.offer(has_write, write);
        ValidTx::link(&mut self.source_address_write, &mut self.entries.source_address_write);
        self.source_addresses.next = self.entries.source_addresses.val();
        self.interrupt.moderation_write.next = self.entries.interrupt_moderation_write.val();
        self.interrupt.moderation_vector.next = self.entries.interrupt_moderation_vector.val();
        self.interrupt.moderation_period.next = self.entries.interrupt_moderation_period.val();

        // The write takes effect.
        let settings = self.settings.q.val();
        let requests = self.requests.q.val();
        if has_write {
            self.settings.d.next = next_settings(settings, write);
        }
        self.requests.d.next = select(has_write, requests_of(settings, write), Requests::default());
        let queue_0 = event_queue_0(settings, self.event_queue_was_enabled.q.val());
        if write.is_swept {
            self.event_queue_was_enabled.d.next = false;
        } else if requests.event_queue {
            self.event_queue_was_enabled.d.next = queue_0.valid;
        }
        let resets = is_resetting || requests.reset;
        let failed = self.device_failed.val();
        self.permissions.d.next = permissions(settings.control, resets, failed);
        self.reset_request.next = requests.reset;
        self.enable.next = self.permissions.q.val().work;
        self.admin.may_begin.next = self.permissions.q.val().commands;
        self.doorbell_enable.next = self.permissions.q.val().doorbells;
        self.quiesces.next = settings.control.get_bit(bit::QUIESCE);
        self.host_limit.next = settings.host_limit;
        self.timer_unit.next = settings.timer_unit;
        self.own_mac.next = settings.own_mac;
        self.promiscuous.next = settings.port_flags.get_bit(0);
        self.accept_multicast.next = settings.port_flags.get_bit(1);
        self.admin.command_base.next = cat!(settings.command_page, bits::<OFFSET_BITS>(0));
        self.admin.answer_base.next = cat!(settings.answer_page, bits::<OFFSET_BITS>(0));
        self.admin.entries_log2.next = settings.admin_control.get_bits::<4>(0);
        self.admin.enable.next = settings.admin_control.get_bit(bit::ADMIN_ENABLE);
        self.admin.event_on_answer.next = settings.admin_control.get_bit(bit::EVENT_ON_ANSWER);
        self.admin.doorbell.offer(requests.admin_doorbell, settings.admin_doorbell);
        self.event_queue_0.offer(requests.event_queue, queue_0);
        self.interrupt.mask.next = settings.interrupt_mask;
        self.interrupt.pending_clear.next = requests.pending_clear;

        // Counters. An outcome that a reset takes from the counters of the packet path does not count here either.
        let read_address = self.read_address.val();
        self.counters.latch.next = requests.latch;
        self.frames.latch.next = requests.latch;
        self.frames.outcome.value.next = self.port.outcome.value.val();
        self.frames.outcome.valid.next = self.port.outcome.valid.val() && !self.core_reset.val();
        self.frames.sent_frame.next = self.port.sent_frame.val();
        self.frames.sent_bytes.next = self.port.sent_bytes.val();
        self.frames.read_address.next = read_address.get_bits::<ADDRESS_BITS>(0);
        self.counters.frame_index.next = self.frames.counter_index.val();
        self.frames.counter.next = self.counters.frame_value.val();
        self.counters.event_index.next = read_address.get_bits::<EVENT_COUNTER_BITS>(WORD) - FIRST_INDEX;
        self.counters.pool_index.next = read_address.get_bits::<POOL_BITS>(WORD);

        // Reads: a register of the file, one that the card drives, a counter, or the level of a pool.
        let reads_register = !read_address.get_bits::<ABOVE_BITS>(ABOVE).any();
        self.file.read(true, read_address.get_bits::<WORD_BITS>(WORD));
        let link = self.port.link_up.val();
        let status = cat!(self.may_request.val(), link, failed, self.drained.val(), resets, !resets);
        let progress = cat!(self.admin.failed.val(), self.admin.busy.val(), self.admin.consumer_index.val());
        let is_latching = requests.latch || self.counters.is_latching.val();
        let latch = settings.latch_requested || is_latching;
        self.selected.d.next = match read_address.to_u64() {
            at::CONTROL => bit_cast::<64, 3>(settings.control),
            at::STATUS => bit_cast::<64, 6>(status),
            at::FATAL => cat!(self.fatal_detail.val(), bits::<24>(0), self.fatal_code.val()),
            at::PERMANENT_MAC => bit_cast::<64, 48>(self.port.permanent_mac.val()),
            at::PORT_SPEED => bit_cast::<64, SPEED_BITS>(self.port.speed.val()),
            at::ADMIN_DOORBELL => bit_cast::<64, 16>(self.admin.producer_index.val()),
            at::ADMIN_PROGRESS => bit_cast::<64, 18>(progress),
            at::INTERRUPT_PENDING => self.interrupt.pending.val(),
            at::COUNTER_LATCH => bit_cast::<64, 1>(cat!(latch)),
            _ if reads_register => self.file.read_data.val(),
            _ => bits::<64>(0),
        };
        let reads_counter = is_counter(read_address);
        self.selects_event_counter.d.next = reads_counter && read_address >= EVENTS_BEGIN;
        let reads_pool = is_pool(read_address);
        self.selects_pool.d.next = reads_pool;
        self.is_inside.d.next = !read_address.get_bits::<BEYOND_BITS>(ADDRESS_BITS).any();
        self.read_held.d.next = if self.frames.is_counter.val() && self.is_inside.q.val() {
            self.frames.value.val()
        } else if self.selects_event_counter.q.val() {
            self.counters.event_value.val()
        } else if self.selects_pool.q.val() {
            bit_cast::<64, LEVEL_BITS>(self.counters.pool_level.val())
        } else {
            self.selected.q.val()
        };
        self.read_data.next = self.read_held.q.val();

        // Accesses without a register.
        self.read_rules.address.next = read_address.get_bits::<WORD_BITS>(WORD);
        let writes_mapped =
            (is_register && rule.get_bit(IS_MAPPED)) || is_counter(write_address) || is_pool(write_address);
        let reads_mapped =
            (reads_register && self.read_rules.value.val().any()) || reads_counter || reads_pool;
        let write_misses = self.write.val() && !writes_mapped && !sweeps;
        let read_misses = self.read.val() && !reads_mapped;
        let missed = misses(write_misses, read_misses, self.owes_unmapped.q.val());
        self.owes_unmapped.d.next = missed.owes;
        self.unmapped.d.next = missed.any;
        self.counts_register_unmapped.next = self.unmapped.q.val();
    }
}

#[cfg(test)]
mod tests;
