//! The registers of BAR 0: what the card is, how it is started, and what it has counted.
//!
//! Most registers only keep what software writes. They stand in one memory, which gives it back; what the card needs
//! at all times stands in registers beside it, and what it needs once is said when it is written.
//!
//! ```text
//!            ┌───────────────────────────────────────────────────────┐
//!  sweep ─┬──┼─> mask ─> written ─┬─> file ─────────────────────┐    │
//!  write ─┘  │                    ├─> control, bases, masks ────┼────┼─> to the parts of the card
//!            │                    ├─> source addresses ─────────┼────┼─> source_address_write
//!            │                    └─> interrupt moderation ─────┼────┼─> interrupt_moderation_write
//!  read ─────┼────────────────────────────────────────> select ─┴─>  ├─> read_data
//!  status, counters ───────────────────────────────────────┘         │
//!            └───────────────────────────────────────────────────────┘
//! ```
//!
//! Latency: data stands on `read_data` [`READ_CYCLES`] after `read`; a write takes effect in the third cycle, and leaves as
//! a message in the fifth. One write and one read a cycle.
//!
//! 1. Reading has no side effect, and never waits.
//! 2. Reserved bits read as zero, whatever was written; registers that are read-only keep what they are.
//! 3. What acts, acts when byte 7 is written, so two 32-bit writes, low then high, do what one 64-bit write does.
//! 4. While `is_resetting`, software's writes change nothing; a sweep writes every register with its value at reset.
//! 5. An access where no register stands is counted; such reads yield zero.
//!
//! The card keeps to what it was generated with: of `port_control` only the filters can be changed. All offsets, masks and
//! values at reset are those of [`rnic_layout::registers`].
use crate::axi_lite::READ_CYCLES;
use crate::frame_counters::FrameCounters;
use crate::packet_registers::{ADDRESS_BITS, at, merge};
use crate::register_value;
use rnic_blocks::logic::rom::ConstantRom;
use rnic_blocks::memory::{ByteMemory, Storage};
use rnic_kernel::prelude::*;
use rnic_layout::limits;
use rnic_layout::registers::{
    self as map, Access, Features, Geometry, LayoutVersion, MessageLimit, PortControl, QueueLimits,
    REGISTERS, TableSizes,
};
use rnic_messages::complete::EventQueueSetup;
use rnic_messages::drop_reason::REASON_BITS;
use rnic_messages::frame::Count;
use rnic_messages::frame::FrameOutcome;
use rnic_messages::read::READ_SLOT_BITS;
use rnic_messages::setup::SourceAddressWrite;
use rnic_messages::sizes::{
    ADDRESS_HANDLE_BITS, COMPLETION_QUEUE_BITS, DOORBELL_PAGE_BITS, EVENT_QUEUE_BITS, QUEUE_PAIR_BITS,
    REGION_BITS, SHARED_RECEIVE_BITS, SOURCE_ADDRESS_BITS, VECTOR_BITS,
};

/// Bits of a byte address in the space of BAR 0 as the slave has it, which is larger than the BAR.
pub const SPACE_BITS: usize = 24;
/// Bits of the number of a counter of events.
pub const TALLY_BITS: usize = 6;
/// Counters of events: those behind the packet path's.
pub const TALLY_COUNT: usize = map::COUNTERS.len() - FIRST_EVENT;

/// First counter of events.
const FIRST_EVENT: usize = map::counter("unknown_qp");
/// Bits of the number of a register, counters aside, and where it begins in an address.
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
/// Three arrays begin and end where few bits of an address say so.
const BLOCK: usize = 9;
const BLOCK_BITS: usize = 3;
const SOURCE_ADDRESSES: u64 = map::REG_SOURCE_ADDRESS_HIGH.offset as u64 >> BLOCK;
const MODERATIONS: u64 = map::REG_INTERRUPT_MODERATION.offset as u64 >> BLOCK;
/// Where an address says which source address, and which part of it.
const SOURCE_ADDRESS: usize = 5;
const PART: usize = 3;
const HIGH: u64 = 0;
const LOW: u64 = 1;
const PORT: u64 = 2;
const PORT_VALID: usize = map::SourceAddressPort::RECORD.field("valid").offset as usize;
const MAC_BITS: usize = map::SourceAddressPort::RECORD.field("mac").width as usize;

/// Device addresses of rings count in pages.
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
    assert!(map::COUNTER_BASE == 1 << ABOVE && TALLY_COUNT <= 1 << TALLY_BITS);
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
    assert!(status.field("link_up").offset == 4);
    assert!(map::Fatal::RECORD.field("code").offset == 0 && map::Fatal::RECORD.field("detail").offset == 32);
    let progress = map::AdminProgress::RECORD;
    assert!(progress.field("busy").offset == 16 && progress.field("failed").offset == 17);
};

/// The values at reset of a card of this width and core clock that are not zero.
fn values(datapath_bits: u16, clock_khz: u32) -> [(u64, u64); 8] {
    let features = Features {
        packet_path: true,
        reliable_connected: true,
        read: true,
        atomics: true,
        shared_receive_queues: true,
        page_lists: true,
        ..Features::at_reset()
    };
    let geometry = Geometry { datapath_bits, interrupt_vectors: 1 << VECTOR_BITS, clock_khz };
    let tables = TableSizes {
        queue_pairs_log2: QUEUE_PAIR_BITS as u8,
        completion_queues_log2: COMPLETION_QUEUE_BITS as u8,
        event_queues_log2: EVENT_QUEUE_BITS as u8,
        shared_receive_queues_log2: SHARED_RECEIVE_BITS as u8,
        regions_log2: REGION_BITS as u8,
        address_handles_log2: ADDRESS_HANDLE_BITS as u8,
        doorbell_pages_log2: DOORBELL_PAGE_BITS as u8,
        outstanding_blocks_log2: OUTSTANDING_BLOCKS_LOG2,
    };
    let queues = QueueLimits {
        send_slots_log2: limits::SEND_SLOTS_LOG2_MAX as u8,
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
    let message = MessageLimit { message_bytes: limits::MESSAGE_BYTES_MAX.into() };
    [
        (at::MAGIC, map::MAGIC),
        (at::LAYOUT_VERSION, register_value!(LayoutVersion::at_reset())),
        (at::FEATURES, register_value!(features)),
        (at::GEOMETRY, register_value!(geometry)),
        (at::TABLE_SIZES, register_value!(tables)),
        (at::QUEUE_LIMITS, register_value!(queues)),
        (at::MESSAGE_LIMIT, register_value!(message)),
        (at::PORT_CONTROL, register_value!(PortControl::at_reset())),
    ]
}

/// Blocks of outstanding messages: one a queue pair, and as many that all share.
const OUTSTANDING_BLOCKS_LOG2: u8 = QUEUE_PAIR_BITS as u8 + 1;
/// Pieces that a message is gathered from.
const SEND_SGES: u8 = limits::SEND_SGES_MAX as u8;
/// PSNs that a queue pair has in flight, as a power of two.
const PSN_WINDOW_LOG2: u8 = limits::PSN_WINDOW_LOG2_MAX as u8;

/// What software may do with each register.
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

/// Keeps the page of a ring's address.
#[kernel]
fn merge_page(page: Bits<PAGE_BITS>, data: Bits<64>, strobe: Bits<8>) -> Bits<PAGE_BITS> {
    merge(cat!(page, bits::<OFFSET_BITS>(0)), data, strobe).get_bits::<PAGE_BITS>(OFFSET_BITS)
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
#[new(
    /// Makes the registers of a card of this width and core clock.
    datapath_bits: u16,
    clock_khz: u32,
)]
pub struct CardRegisters {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high: the reset of the whole card.
    pub reset: Signal<In, Bit>,

    /// From the slave: write now.
    pub write: Signal<In, Bit>,
    /// Byte address, a multiple of eight.
    pub write_address: Signal<In, Bits<SPACE_BITS>>,
    /// What.
    pub write_data: Signal<In, Bits<64>>,
    /// Which bytes of it.
    pub write_strobe: Signal<In, Bits<8>>,
    /// From the slave: a read begins.
    pub read: Signal<In, Bit>,
    /// Byte address, a multiple of eight; steady until the data is taken.
    pub read_address: Signal<In, Bits<SPACE_BITS>>,
    /// To the slave, [`READ_CYCLES`] after the address; registered.
    pub read_data: Signal<Out, Bits<64>>,

    /// To the reset: software asks for one; registered, one cycle.
    pub reset_request: Signal<Out, Bit>,
    /// From the reset: one is under way.
    pub is_resetting: Signal<In, Bit>,
    /// From the reset: all parts are in reset.
    pub core_reset: Signal<In, Bit>,
    /// From the reset: the register of this number takes its value at reset; the index is larger than needed.
    pub sweeps: Signal<In, Bit>,
    /// Which.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Nothing is in flight towards host or wire.
    pub drained: Signal<In, Bit>,
    /// The network port has a link.
    pub link_up: Signal<In, Bit>,
    /// The device has failed.
    pub device_failed: Signal<In, Bit>,
    /// Why: a `FatalCode`.
    pub fatal_code: Signal<In, Bits<8>>,
    /// And more.
    pub fatal_detail: Signal<In, Bits<32>>,

    /// New work may begin; registered.
    pub enable: Signal<Out, Bit>,
    /// Commands may begin, which a card that has failed refuses by code; registered.
    pub command_enable: Signal<Out, Bit>,
    /// Doorbells are taken, also while the card is to rest; registered.
    pub doorbell_enable: Signal<Out, Bit>,
    /// The card is to rest; registered.
    pub quiesces: Signal<Out, Bit>,
    /// The card's own address; registered.
    pub own_mac: Signal<Out, Bits<48>>,
    /// Take any unicast address; registered.
    pub promiscuous: Signal<Out, Bit>,
    /// Take any group address; registered.
    pub accept_multicast: Signal<Out, Bit>,
    /// An entry of the table of source addresses; registered.
    pub source_address_write: Signal<Out, SourceAddressWrite>,
    /// There is one.
    pub source_address_write_valid: Signal<Out, Bit>,
    /// Entries in use; registered.
    pub source_addresses: Signal<Out, Bits<{ limits::SOURCE_ADDRESSES }>>,

    /// Register `admin_command_base`.
    pub command_base: Signal<Out, Bits<64>>,
    /// Register `admin_answer_base`.
    pub answer_base: Signal<Out, Bits<64>>,
    /// Of `admin_control`.
    pub admin_entries_log2: Signal<Out, Bits<4>>,
    /// Of `admin_control`.
    pub admin_enable: Signal<Out, Bit>,
    /// Of `admin_control`.
    pub event_on_answer: Signal<Out, Bit>,
    /// `admin_doorbell` as it was written.
    pub admin_doorbell: Signal<Out, Bits<16>>,
    /// It was; registered, one cycle.
    pub admin_doorbell_valid: Signal<Out, Bit>,
    /// What `admin_doorbell` reads.
    pub producer_index: Signal<In, Bits<16>>,
    /// Of `admin_progress`.
    pub consumer_index: Signal<In, Bits<16>>,
    /// Of `admin_progress`.
    pub admin_busy: Signal<In, Bit>,
    /// Of `admin_progress`.
    pub admin_failed: Signal<In, Bit>,
    /// Event queue 0 as its registers have it.
    pub event_queue_0: Signal<Out, EventQueueSetup>,
    /// They have changed; registered, one cycle.
    pub event_queue_0_valid: Signal<Out, Bit>,

    /// Register `interrupt_mask`.
    pub interrupt_mask: Signal<Out, Bits<64>>,
    /// Ones take pending vectors back; registered, one cycle.
    pub interrupt_pending_clear: Signal<Out, Bits<64>>,
    /// Register `interrupt_pending`.
    pub interrupt_pending: Signal<In, Bits<64>>,
    /// Register `interrupt_moderation` was written; registered, one cycle.
    pub interrupt_moderation_write: Signal<Out, Bit>,
    /// For this vector.
    pub interrupt_moderation_vector: Signal<Out, Bits<VECTOR_BITS>>,
    /// With this period.
    pub interrupt_moderation_period: Signal<Out, Bits<16>>,

    /// From the packet path: what became of a frame.
    pub outcome: Signal<In, FrameOutcome>,
    /// There was one.
    pub outcome_valid: Signal<In, Bit>,
    /// From the MAC's side: a frame has been sent.
    pub sent_frame: Signal<In, Bit>,
    /// Bytes that were sent in this cycle.
    pub sent_bytes: Signal<In, Bits<16>>,
    /// To all counters: hold this moment; registered, one cycle.
    pub counter_latch: Signal<Out, Bit>,
    /// To the packet path's counters: which one is read.
    pub counter_index: Signal<Out, Bits<REASON_BITS>>,
    /// From them, at most two cycles later.
    pub counter: Signal<In, Count>,
    /// To the counters of events: which one is read.
    pub tally_index: Signal<Out, Bits<TALLY_BITS>>,
    /// From them, at most two cycles later.
    pub tally_value: Signal<In, Bits<64>>,
    /// From them: they are not all held yet.
    pub tally_is_latching: Signal<In, Bit>,
    /// An access where no register stands; registered.
    pub counts_register_unmapped: Signal<Out, Bit>,

    #[init(write_rules())]
    rules: ConstantRom<WORD_BITS, RULE_BITS>,
    #[init(read_rules())]
    read_rules: ConstantRom<WORD_BITS, 1>,
    #[init(ByteMemory::with_contents(Storage::Block, &contents(datapath_bits, clock_khz)))]
    file: ByteMemory<64, 8, WORD_BITS>,
    source_high: ByteMemory<64, 8, SOURCE_ADDRESS_BITS>,
    source_low: ByteMemory<64, 8, SOURCE_ADDRESS_BITS>,
    source_port: ByteMemory<64, 8, SOURCE_ADDRESS_BITS>,
    moderations: ByteMemory<16, 2, VECTOR_BITS>,
    frames: FrameCounters,
    #[init(Constant::new(contents(datapath_bits, clock_khz)[at::PORT_CONTROL as usize >> WORD]))]
    port_control_at_reset: Constant<Bits<64>>,

    /// A write, with its reserved bits taken away.
    written: Reg<Bit>,
    is_kept: Reg<Bit>,
    is_swept: DFF<Bit>,
    written_word: DFF<Bits<WORD_BITS>>,
    written_data: DFF<Bits<64>>,
    written_strobe: DFF<Bits<8>>,
    /// An entry of a table that was written, on its way out.
    changed_word: DFF<Bits<WORD_BITS>>,
    changes_source: Reg<Bit>,
    changes_moderation: Reg<Bit>,
    said_word: DFF<Bits<WORD_BITS>>,
    says_source: Reg<Bit>,
    says_moderation: Reg<Bit>,

    control: Reg<Bits<3>>,
    requests: Reg<Bit>,
    own_mac_register: Reg<Bits<48>>,
    port_flags: Reg<Bits<2>>,
    sources_valid: [Reg<Bit>; limits::SOURCE_ADDRESSES],
    sources_joined: [Signal<Local, Bits<{ limits::SOURCE_ADDRESSES }>>; limits::SOURCE_ADDRESSES],
    command_page: Reg<Bits<PAGE_BITS>>,
    answer_page: Reg<Bits<PAGE_BITS>>,
    admin_control: Reg<Bits<10>>,
    doorbell: Reg<Bits<16>>,
    rings: Reg<Bit>,
    event_queue_page: Reg<Bits<PAGE_BITS>>,
    event_queue_control: Reg<Bits<22>>,
    event_queue_changes: Reg<Bit>,
    /// Event queue 0 was said to be enabled.
    event_queue_runs: Reg<Bit>,
    mask: Reg<Bits<64>>,
    pending_clear: Reg<Bits<64>>,
    latch_requested: Reg<Bit>,
    latches: Reg<Bit>,
    may_begin: Reg<Bit>,
    takes_commands: Reg<Bit>,
    takes_doorbells: Reg<Bit>,
    unmapped: Reg<Bit>,
    /// Two accesses at once found no register.
    owes_unmapped: Reg<Bit>,

    selected: DFF<Bits<64>>,
    selects_tally: DFF<Bit>,
    is_inside: DFF<Bit>,
    answer: DFF<Bits<64>>,
}

/// The register file at reset, word by word.
fn contents(datapath_bits: u16, clock_khz: u32) -> Vec<Bits<64>> {
    let mut contents = vec![Bits::default(); 1 << WORD_BITS];
    for (address, value) in values(datapath_bits, clock_khz) {
        contents[address as usize >> WORD] = value.to_bits();
    }
    contents
}

/// Says of a word whether a register stands there.
fn read_rules() -> ConstantRom<WORD_BITS, 1> {
    let rules = rules();
    ConstantRom::new(|word| bits((rules[word] >> IS_MAPPED) as u64))
}

fn write_rules() -> ConstantRom<WORD_BITS, RULE_BITS> {
    let rules = rules();
    ConstantRom::new(|word| rules[word].to_bits())
}

/// An address is that of a counter.
#[kernel]
fn is_counter(address: Bits<SPACE_BITS>) -> Bit {
    let ends_before = address < COUNTERS_END;
    ends_before && address >= COUNTERS_BEGIN
}

const COUNTERS_BEGIN: u64 = map::COUNTER_BASE as u64;
const EVENTS_BEGIN: u64 = map::counter_offset(FIRST_EVENT) as u64;
const COUNTERS_END: u64 = COUNTERS_BEGIN + 8 * map::COUNTERS.len() as u64;
/// The number of the first counter of events, as far as it is seen in an index.
const FIRST_INDEX: u64 = FIRST_EVENT as u64 % (1 << TALLY_BITS);

impl Logic for CardRegisters {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_resetting = self.is_resetting.val();
        let sweeps = self.sweeps.val();

        // A write, of software or of a sweep, loses its reserved bits.
        let address = self.write_address.val();
        let is_register = !address.get_bits::<ABOVE_BITS>(ABOVE).any();
        let word = select(
            sweeps,
            self.sweep_index.val().get_bits::<WORD_BITS>(0),
            address.get_bits::<WORD_BITS>(WORD),
        );
        self.rules.address.next = word;
        let rule = self.rules.value.val();
        let takes = sweeps || (self.write.val() && is_register && !is_resetting);
        let fixed = select(word == at::PORT_CONTROL >> WORD, self.port_control_at_reset.val(), bits::<64>(0));
        let offered = select(sweeps, bits::<64>(0), self.write_data.val() & rule.get_bits::<64>(0));
        self.written.d.next = takes;
        self.is_kept.d.next = takes && rule.get_bit(IS_WRITABLE);
        self.is_swept.d.next = sweeps;
        self.written_word.d.next = word;
        self.written_data.d.next = offered | fixed;
        self.written_strobe.d.next = select(sweeps, bits::<8>(0xff), self.write_strobe.val());

        // It is kept.
        let written = self.written.q.val();
        let word = self.written_word.q.val();
        let data = self.written_data.q.val();
        let strobe = self.written_strobe.q.val();
        let none = bits::<8>(0);
        self.file.write_strobe.next = select(self.is_kept.q.val(), strobe, none);
        self.file.write_address.next = word;
        self.file.write_data.next = data;
        let address: Bits<ABOVE> = cat!(word, bits::<WORD>(0));
        let block = address.get_bits::<BLOCK_BITS>(BLOCK);
        let source = address.get_bits::<SOURCE_ADDRESS_BITS>(SOURCE_ADDRESS);
        let part = address.get_bits::<2>(PART);
        let is_source = written && block == SOURCE_ADDRESSES;
        let is_moderation = written && block == MODERATIONS;
        self.source_high.write_strobe.next = select(is_source && part == HIGH, strobe, none);
        self.source_high.write_address.next = source;
        self.source_high.write_data.next = data;
        self.source_low.write_strobe.next = select(is_source && part == LOW, strobe, none);
        self.source_low.write_address.next = source;
        self.source_low.write_data.next = data;
        self.source_port.write_strobe.next = select(is_source && part == PORT, strobe, none);
        self.source_port.write_address.next = source;
        self.source_port.write_data.next = data;
        self.moderations.write_strobe.next = select(is_moderation, strobe.get_bits::<2>(0), bits::<2>(0));
        self.moderations.write_address.next = address.get_bits::<VECTOR_BITS>(WORD);
        self.moderations.write_data.next = data.get_bits::<16>(0);
        for i in 0..limits::SOURCE_ADDRESSES {
            if is_source && part == PORT && source == i as u64 && strobe.get_bit(PORT_VALID / 8) {
                self.sources_valid[i].d.next = data.get_bit(PORT_VALID);
            }
            let mine = bit_cast::<{ limits::SOURCE_ADDRESSES }, 1>(self.sources_valid[i].q.val().into())
                << (i as u64);
            self.sources_joined[i].next = if i == 0 { mine } else { self.sources_joined[i - 1].val() | mine };
        }
        self.source_addresses.next = self.sources_joined[limits::SOURCE_ADDRESSES - 1].val();

        // It acts.
        let acts = strobe.get_bit(7);
        let is_swept = self.is_swept.q.val();
        let control = select(strobe.get_bit(0), data.get_bits::<3>(0), self.control.q.val());
        let latch = select(strobe.get_bit(0), data.get_bit(0), self.latch_requested.q.val());
        self.requests.d.next = false;
        self.rings.d.next = false;
        self.event_queue_changes.d.next = false;
        self.latches.d.next = false;
        self.pending_clear.d.next = bits(0);
        if written {
            match bit_cast::<64, ABOVE>(address).to_u64() {
                at::CONTROL => {
                    self.control.d.next = select(acts, control.replace_bit(bit::RESET, false), control);
                    self.requests.d.next = acts && control.get_bit(bit::RESET);
                }
                at::OWN_MAC => {
                    let own_mac = bit_cast::<64, 48>(self.own_mac_register.q.val());
                    self.own_mac_register.d.next = merge(own_mac, data, strobe).get_bits::<48>(0);
                }
                at::PORT_CONTROL => {
                    let flags = data.get_bits::<2>(0);
                    self.port_flags.d.next = select(strobe.get_bit(0), flags, self.port_flags.q.val());
                }
                at::ADMIN_COMMAND_BASE => {
                    self.command_page.d.next = merge_page(self.command_page.q.val(), data, strobe);
                }
                at::ADMIN_ANSWER_BASE => {
                    self.answer_page.d.next = merge_page(self.answer_page.q.val(), data, strobe);
                }
                at::ADMIN_CONTROL => {
                    let old = bit_cast::<64, 10>(self.admin_control.q.val());
                    self.admin_control.d.next = merge(old, data, strobe).get_bits::<10>(0);
                }
                at::ADMIN_DOORBELL => {
                    let old = bit_cast::<64, 16>(self.doorbell.q.val());
                    self.doorbell.d.next = merge(old, data, strobe).get_bits::<16>(0);
                    self.rings.d.next = acts && !is_swept;
                }
                at::EVENT_QUEUE_BASE => {
                    self.event_queue_page.d.next = merge_page(self.event_queue_page.q.val(), data, strobe);
                }
                at::EVENT_QUEUE_CONTROL => {
                    let old = bit_cast::<64, 22>(self.event_queue_control.q.val());
                    self.event_queue_control.d.next = merge(old, data, strobe).get_bits::<22>(0);
                    self.event_queue_changes.d.next = acts && !is_swept;
                }
                at::INTERRUPT_PENDING => self.pending_clear.d.next = merge(bits::<64>(0), data, strobe),
                at::INTERRUPT_MASK => self.mask.d.next = merge(self.mask.q.val(), data, strobe),
                at::COUNTER_LATCH => {
                    self.latch_requested.d.next = latch && !acts;
                    self.latches.d.next = latch && acts;
                }
                _ => {}
            }
        }

        // What it changes is read back as a whole, and said.
        self.changed_word.d.next = word;
        self.changes_source.d.next = is_source && acts && part <= PORT;
        self.changes_moderation.d.next = is_moderation && acts;
        let changed: Bits<ABOVE> = cat!(self.changed_word.q.val(), bits::<WORD>(0));
        let changed_source = changed.get_bits::<SOURCE_ADDRESS_BITS>(SOURCE_ADDRESS);
        self.source_high.read_enable.next = self.changes_source.q.val();
        self.source_high.read_address.next = changed_source;
        self.source_low.read_enable.next = self.changes_source.q.val();
        self.source_low.read_address.next = changed_source;
        self.source_port.read_enable.next = self.changes_source.q.val();
        self.source_port.read_address.next = changed_source;
        self.moderations.read_enable.next = self.changes_moderation.q.val();
        self.moderations.read_address.next = changed.get_bits::<VECTOR_BITS>(WORD);
        self.said_word.d.next = self.changed_word.q.val();
        self.says_source.d.next = self.changes_source.q.val();
        self.says_moderation.d.next = self.changes_moderation.q.val();
        let said: Bits<ABOVE> = cat!(self.said_word.q.val(), bits::<WORD>(0));
        let port = self.source_port.read_data.val();
        self.source_address_write.next = SourceAddressWrite {
            index: said.get_bits::<SOURCE_ADDRESS_BITS>(SOURCE_ADDRESS),
            valid: port.get_bit(PORT_VALID),
            address: cat!(self.source_high.read_data.val(), self.source_low.read_data.val()),
            mac: port.get_bits::<MAC_BITS>(0),
        };
        self.source_address_write_valid.next = self.says_source.q.val();
        self.interrupt_moderation_write.next = self.says_moderation.q.val();
        self.interrupt_moderation_vector.next = said.get_bits::<VECTOR_BITS>(WORD);
        self.interrupt_moderation_period.next = self.moderations.read_data.val();

        // What registers say at all times.
        let failed = self.device_failed.val();
        let control = self.control.q.val();
        let runs = control.get_bit(bit::ENABLE) && !is_resetting && !self.requests.q.val();
        let may_begin = runs && !control.get_bit(bit::QUIESCE);
        self.may_begin.d.next = may_begin && !failed;
        self.takes_commands.d.next = may_begin;
        self.takes_doorbells.d.next = runs && !failed;
        self.reset_request.next = self.requests.q.val();
        self.enable.next = self.may_begin.q.val();
        self.command_enable.next = self.takes_commands.q.val();
        self.doorbell_enable.next = self.takes_doorbells.q.val();
        self.quiesces.next = control.get_bit(bit::QUIESCE);
        self.own_mac.next = self.own_mac_register.q.val();
        self.promiscuous.next = self.port_flags.q.val().get_bit(0);
        self.accept_multicast.next = self.port_flags.q.val().get_bit(1);
        let page_begin = bits::<OFFSET_BITS>(0);
        self.command_base.next = cat!(self.command_page.q.val(), page_begin);
        self.answer_base.next = cat!(self.answer_page.q.val(), page_begin);
        let admin_control = self.admin_control.q.val();
        self.admin_entries_log2.next = admin_control.get_bits::<4>(0);
        self.admin_enable.next = admin_control.get_bit(bit::ADMIN_ENABLE);
        self.event_on_answer.next = admin_control.get_bit(bit::EVENT_ON_ANSWER);
        self.admin_doorbell.next = self.doorbell.q.val();
        self.admin_doorbell_valid.next = self.rings.q.val();
        let event_queue = self.event_queue_control.q.val();
        let queue_runs = event_queue.get_bit(bit::QUEUE_ENABLE);
        self.event_queue_0.next = EventQueueSetup {
            event_queue: bits(0),
            restarts: queue_runs != self.event_queue_runs.q.val(),
            valid: queue_runs,
            entries_log2: event_queue.get_bits::<5>(0),
            vector: event_queue.get_bits::<VECTOR_BITS>(bit::QUEUE_VECTOR),
            base_page: self.event_queue_page.q.val(),
        };
        self.event_queue_0_valid.next = self.event_queue_changes.q.val();
        if is_swept {
            self.event_queue_runs.d.next = false;
        } else if self.event_queue_changes.q.val() {
            self.event_queue_runs.d.next = queue_runs;
        }
        self.interrupt_mask.next = self.mask.q.val();
        self.interrupt_pending_clear.next = self.pending_clear.q.val();

        // Counting. An outcome that a reset takes from the packet path's counters does not count here either.
        self.counter_latch.next = self.latches.q.val();
        self.frames.latch.next = self.latches.q.val();
        self.frames.outcome.next = self.outcome.val();
        self.frames.outcome_valid.next = self.outcome_valid.val() && !self.core_reset.val();
        self.frames.sent_frame.next = self.sent_frame.val();
        self.frames.sent_bytes.next = self.sent_bytes.val();
        let read_address = self.read_address.val();
        self.frames.read_address.next = read_address.get_bits::<ADDRESS_BITS>(0);
        self.counter_index.next = self.frames.counter_index.val();
        self.frames.counter.next = self.counter.val();
        self.tally_index.next = read_address.get_bits::<TALLY_BITS>(WORD) - FIRST_INDEX;

        // Reading: what stands in memory, or nowhere.
        let reads_register = !read_address.get_bits::<ABOVE_BITS>(ABOVE).any();
        self.file.read_enable.next = true;
        self.file.read_address.next = read_address.get_bits::<WORD_BITS>(WORD);
        let resets = is_resetting || self.requests.q.val();
        let status = cat!(self.link_up.val(), failed, self.drained.val(), resets, !resets);
        let progress = cat!(self.admin_failed.val(), self.admin_busy.val(), self.consumer_index.val());
        let is_latching = self.latches.q.val() || self.tally_is_latching.val();
        let latches = self.latch_requested.q.val() || is_latching;
        self.selected.d.next = match read_address.to_u64() {
            at::CONTROL => bit_cast::<64, 3>(control),
            at::STATUS => bit_cast::<64, 5>(status),
            at::FATAL => cat!(self.fatal_detail.val(), bits::<24>(0), self.fatal_code.val()),
            at::ADMIN_DOORBELL => bit_cast::<64, 16>(self.producer_index.val()),
            at::ADMIN_PROGRESS => bit_cast::<64, 18>(progress),
            at::INTERRUPT_PENDING => self.interrupt_pending.val(),
            at::COUNTER_LATCH => bit_cast::<64, 1>(cat!(latches)),
            _ if reads_register => self.file.read_data.val(),
            _ => bits::<64>(0),
        };
        self.selects_tally.d.next = is_counter(read_address) && read_address >= EVENTS_BEGIN;
        self.is_inside.d.next = !read_address.get_bits::<BEYOND_BITS>(ADDRESS_BITS).any();
        self.answer.d.next = if self.frames.is_counter.val() && self.is_inside.q.val() {
            self.frames.value.val()
        } else if self.selects_tally.q.val() {
            self.tally_value.val()
        } else {
            self.selected.q.val()
        };
        self.read_data.next = self.answer.q.val();

        // Where no register stands.
        let address = self.write_address.val();
        let writes_mapped = (is_register && rule.get_bit(IS_MAPPED)) || is_counter(address);
        let write_misses = self.write.val() && !writes_mapped && !sweeps;
        self.read_rules.address.next = read_address.get_bits::<WORD_BITS>(WORD);
        let reads_mapped = (reads_register && self.read_rules.value.val().any()) || is_counter(read_address);
        let read_misses = self.read.val() && !reads_mapped;
        let owed = self.owes_unmapped.q.val();
        self.owes_unmapped.d.next = (write_misses && read_misses) || (owed && (write_misses || read_misses));
        self.unmapped.d.next = write_misses || read_misses || owed;
        self.counts_register_unmapped.next = self.unmapped.q.val();
    }
}

#[cfg(test)]
mod tests;
