//! WqeParse: decides which slots are the next WQE of their queue pair, and gives each WQE its PSNs and its pool
//! slot.
//!
//! The one stage that knows how far a queue pair has come: every fetched slot passes here in order, wanted or
//! not. A WQE that does not fit into the window or the pool is dropped, and fetched again when there is room.
//!
//! ```text
//!                  ┌──────────────────────────────────────────────────┐
//!  setup ─────────>│                 ┌─> record: slot, PSN, tail ─┐   │
//!  wake_held,      │                 │                            │   │
//!  wake_long ─────>│─> queue pair ──>┤                            ├───┼──> parsed (4 deep)
//!  wqe_slot ──────>│                 └─> retired, free blocks ────┘   │
//!                  │                          └── held ───────────────┼──> resume (to wqe_fetch)
//!                  └──────────────────────────────────────────────────┘
//!  step              Idle               Decide            Act (Recheck)
//! ```
//!
//! A slot takes 3 cycles, wanted or not: with one slot in eight fetched twice, 3.4 cycles a WQE of one slot,
//! 6.9 one of two.
//!
//! 1. WQEs of a queue pair leave in order, none left out, none twice, whatever was fetched twice. A slot is
//!    wanted if it is the one after the last WQE, is of the queue pair's generation, and the queue pair is not
//!    held.
//! 2. Each WQE that leaves has its own pool slot, and the slots of a queue pair make one chain in order.
//! 3. A queue pair is held while 1,024 of its messages are in flight, or while its last block is full and there
//!    is no other. With none of its messages in flight, its last block counts as another one. WqeFetch stops
//!    for a held queue pair, and resumes at the slot that was not taken when the queue pair is woken.
//! 4. The last message of a block requests an acknowledgement, as every signalled one does (protocol 2.4); so
//!    what holds a queue pair is acknowledged.
//! 5. Setup events and wakes are taken between two slots, whether `parsed` is full or not.
//! 6. In RTS WQEs are sent, in ERR and SQE they leave as flushed, in other states they wait in their ring.
//! 7. After a slot that could not be read, or an overrun of the ring, nothing is wanted until the queue pair is
//!    created or reset: where the next WQE begins is not known.
//! 8. A message takes as many PSNs as its length needs packets, which is not checked yet; one if it needs none,
//!    if it is inline, and if it is longer than any message may be (protocol 2.1, 2.2). A flushed WQE takes
//!    none.
//! 9. A queue pair with messages in flight is held, too, while 2^15 of its PSNs or more are in flight, and
//!    while the next message would make that more than 2^23 (protocol 2.1). Acknowledge wakes it as for rule 3.
//! 10. After a message of more than 16 KiB nothing is taken and fetch stops, until segment wakes the queue
//!     pair; a change to a state in which nothing is sent ends that, too. A READ or an atomic is one packet,
//!     and never long.
//! 11. A queue pair is held, too, before a READ or an atomic while `read_atomic` of these are outstanding, and
//!     before a WQE with a fence while any is: each is outstanding from here until it leaves the pool
//!     (protocol 2.3, 2.10), and has a slot of its own until then. Where `read_atomic` is zero, none is ever
//!     outstanding, and wqe_check refuses it.
//! 12. A queue pair is held, too, before a LOCAL_INVALIDATE while any message is in flight, and after it until
//!     it has left the pool (protocol 2.10). It takes no PSN.
//! 13. So the last message that was posted requests an acknowledgement, too, and the last one before a
//!     LOCAL_INVALIDATE; and each of two slots, as the slot after it is not seen here. A WQE at the end of a
//!     burst is taken with the next one, if there is a next one, where it is first.
use crate::messages::{
    BLOCK_BITS, BLOCK_MESSAGES, Begun, FetchResume, Link, MESSAGE_COUNT_BITS, PSN_WINDOW_BITS, ParsedWqe,
    QUANTUM_BITS, Retired, SegmentPlan, WINDOW, WqeHeader, WqeSlot,
};
use crate::outstanding::SHARED_BITS;
use crate::vendor_error;
use crate::wqe::{TWO_SLOTS, WqeFields, WqeOperation, classify, fields};
use rnic_blocks::logic::psn;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::send::WqeOpcode;
use rnic_layout::state::{PathMtu, QpState, Service};
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS};
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, WORK_INDEX_BITS};

/// Most bytes of a message.
const LENGTH_MAX: u64 = rnic_layout::limits::MESSAGE_BYTES_MAX as u64;
/// Most bytes of a message that is not long.
const QUANTUM: u64 = 1 << QUANTUM_BITS;
/// PSNs that a queue pair may have in flight.
const PSN_SPAN: u64 = rnic_layout::psn::HALF_WINDOW as u64;

/// Packets after the first that a message of `length` bytes needs.
#[kernel]
fn further_packets(length: Bits<32>, path_mtu: Bits<3>) -> Bits<24> {
    let last_byte = length - 1;
    let behind = match PathMtu::from_number(path_mtu.to_u64()) {
        Some(PathMtu::Bytes256) => last_byte.get_bits::<24>(8),
        Some(PathMtu::Bytes512) => bit_cast::<24, 23>(last_byte.get_bits::<23>(9)),
        Some(PathMtu::Bytes1024) => bit_cast::<24, 22>(last_byte.get_bits::<22>(10)),
        Some(PathMtu::Bytes2048) => bit_cast::<24, 21>(last_byte.get_bits::<21>(11)),
        _ => bit_cast::<24, 20>(last_byte.get_bits::<20>(12)),
    };
    select(length.any(), behind, bits::<24>(0))
}

/// State and path of a queue pair, as commands set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Life {
    state: Bits<3>,
    generation: Bits<GENERATION_BITS>,
    is_reliable: Bit,
    signal_all: Bit,
    path_mtu: Bits<3>,
    domain: Bits<24>,
    /// READs and atomics that may be outstanding.
    read_atomic: Bits<READ_COUNT_BITS>,
}

/// Progress of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Send {
    /// Free-running index of the slot that is wanted next.
    slot_index: Bits<WORK_INDEX_BITS>,
    /// PSN of the next packet.
    next_psn: Bits<24>,
    /// Messages that have got a pool slot, free-running. Never reset, as the slots of the pool are not.
    message_count: Bits<MESSAGE_COUNT_BITS>,
    /// READs and atomics that were outstanding, free-running; never reset.
    reads: Bits<READ_COUNT_BITS>,
    /// Last block of the chain, relative to the home: zero is the home.
    tail_from_home: Bits<BLOCK_BITS>,
    /// Slots taken in it, 0 to 8.
    tail_count: Bits<4>,
    /// Toggles when the home block is taken.
    home_lap: Bit,
    /// The last block follows itself.
    is_reused: Bit,
    /// The wanted slot waits for room.
    is_held: Bit,
    /// The wanted slot waits for segment, which has a long message.
    waits_for_long: Bit,
    /// The last WQE was a LOCAL_INVALIDATE.
    follows_local: Bit,
    /// No slot is wanted any more: the producer index overran the ring, or a slot could not be read.
    has_ended: Bit,
    /// A WQE was taken since the queue pair was created or reset.
    has_begun: Bit,
}

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Setup,
    Wake,
    Decide,
    Act,
    Recheck,
}

/// Parses WQEs; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub struct WqeParse {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// The records of `sweep_index` are cleared in this cycle.
    pub is_sweeping: Signal<In, Bit>,
    /// Queue pair whose records are cleared.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From wqe_pair.
    pub wqe_slot: StreamRx<WqeSlot>,
    /// From acknowledge: messages of a held queue pair have completed.
    pub wake_held: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// From segment: the WQE after a long message may come.
    pub wake_long: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// To wqe_fetch; registered.
    pub resume: StreamTx<FetchResume>,
    /// To wqe_check; registered.
    pub parsed: StreamTx<ParsedWqe>,
    /// To the pool: link in a chain of blocks.
    pub link: Signal<Out, Link>,
    /// `link` is valid and is written.
    pub link_valid: Signal<Out, Bit>,
    /// To the pool: queue pair of `begun`.
    pub begun_queue_pair: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// To the pool: counts of the queue pair.
    pub begun: Signal<Out, Begun>,
    /// `begun` is valid and is written.
    pub begun_valid: Signal<Out, Bit>,
    /// To the pool: queue pair whose `retired` is read.
    pub retired_queue_pair: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// To the pool: reads `retired`.
    pub retired_read: Signal<Out, Bit>,
    /// From the pool, one cycle after `retired_read`.
    pub retired: Signal<In, Retired>,
    /// From the pool: a free shared block.
    pub free: StreamRx<Bits<SHARED_BITS>>,
    /// PSN that the queue pair of the last probe would send next; registered.
    pub probed: Signal<Out, Bits<24>>,
    /// That queue pair had messages in flight; registered.
    pub probed_busy: Signal<Out, Bit>,
    /// A slot of an older generation was dropped: an event to count; registered.
    pub counts_stale_dropped: Signal<Out, Bit>,

    lives: Memory<Life, QUEUE_PAIR_BITS>,
    sends: Memory<Send, QUEUE_PAIR_BITS>,
    parsed_wqes: Fifo<ParsedWqe, 2, 3>,
    resumes: Fifo<FetchResume, 2, 3>,
    step: Reg<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    probed_held: Reg<Bits<24>>,
    is_busy: Reg<Bit>,
    is_stale: Reg<Bit>,
    seen: DFF<Retired>,
    takes: DFF<Bit>,
    is_blocked: DFF<Bit>,
    wakes_long: DFF<Bit>,
    ahead: DFF<Bits<24>>,
    is_alone: DFF<Bit>,
    further_packets: DFF<Bits<24>>,
    is_long: DFF<Bit>,
    is_open: DFF<Bit>,
    is_local: DFF<Bit>,
    next_is_unknown: DFF<Bit>,
    is_flushed: DFF<Bit>,
    is_half: DFF<Bit>,
    is_double: DFF<Bit>,
    needs_block: DFF<Bit>,
    reuses_block: DFF<Bit>,
    takes_home: DFF<Bit>,
}

impl Logic for WqeParse {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<ParsedWqe>::link(&mut self.parsed, &mut self.parsed_wqes.tx);
        StreamTx::<FetchResume>::link(&mut self.resume, &mut self.resumes.tx);
        self.probed.next = self.probed_held.q.val();
        self.probed_busy.next = self.is_busy.q.val();
        self.counts_stale_dropped.next = self.is_stale.q.val();
        self.is_stale.d.next = false;
        let is_sweeping = self.is_sweeping.val();
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let slot = self.wqe_slot.beat.val();

        // Every input may make a resume, so nothing starts without room for one.
        let may_start = step == Step::Idle && self.resumes.rx.ready.val() && !is_sweeping;
        let takes_setup = may_start && self.setup.valid.val();
        let has_wake = self.wake_held.valid.val() || self.wake_long.valid.val();
        let takes_wake = may_start && !self.setup.valid.val() && has_wake;
        let takes_slot = may_start
            && !self.setup.valid.val()
            && !has_wake
            && self.wqe_slot.valid.val()
            && self.parsed_wqes.rx.ready.val();
        let chosen = if self.setup.valid.val() {
            event.queue_pair
        } else if self.wake_held.valid.val() {
            self.wake_held.beat.val()
        } else if self.wake_long.valid.val() {
            self.wake_long.beat.val()
        } else {
            slot.queue_pair
        };
        if step == Step::Idle {
            self.queue_pair.d.next = chosen;
            self.wakes_long.d.next = !self.wake_held.valid.val();
            self.step.d.next = if takes_setup {
                Step::Setup
            } else if takes_wake {
                Step::Wake
            } else if takes_slot {
                Step::Decide
            } else {
                Step::Idle
            };
        }
        self.lives.read_enable.next = step == Step::Idle;
        self.lives.read_address.next = chosen;
        self.sends.read_enable.next = step == Step::Idle;
        self.sends.read_address.next = chosen;
        // Read again in the cycle in which the queue pair becomes held.
        self.retired_read.next = step == Step::Idle || step == Step::Act;
        self.retired_queue_pair.next = select(step == Step::Idle, chosen, queue_pair);

        let life = self.lives.read_data.val();
        let send = self.sends.read_data.val();
        let retired = self.retired.val();
        let home = bit_cast::<BLOCK_BITS, QUEUE_PAIR_BITS>(queue_pair);

        // Defaults: nothing is written.
        self.setup.ready.next = step == Step::Setup;
        let wakes_long = self.wakes_long.q.val();
        self.wake_held.ready.next = step == Step::Wake && !wakes_long;
        self.wake_long.ready.next = step == Step::Wake && wakes_long;
        self.wqe_slot.ready.next = step == Step::Act;
        self.lives.write_enable.next = is_sweeping || step == Step::Setup;
        self.lives.write_address.next = select(is_sweeping, self.sweep_index.val(), queue_pair);
        self.lives.write_data.next = Life {
            state: select(is_sweeping, bits::<3>(QpState::Reset as u64), event.state),
            generation: event.generation,
            is_reliable: event.path.service == Service::ReliableConnected as u64,
            signal_all: event.path.signal_all,
            path_mtu: event.path.path_mtu,
            domain: event.path.domain,
            read_atomic: event.path.read_atomic,
        };
        self.sends.write_enable.next = is_sweeping;
        self.sends.write_address.next = select(is_sweeping, self.sweep_index.val(), queue_pair);
        self.sends.write_data.next = send;
        self.begun_queue_pair.next = queue_pair;
        self.begun.next = Begun { count: send.message_count, is_held: false };
        self.begun_valid.next = false;
        self.resumes.rx.valid.next = false;
        self.resumes.rx.beat.next = FetchResume {
            queue_pair,
            generation: life.generation,
            slot_index: send.slot_index,
            resumes: true,
        };
        if is_sweeping {
            self.sends.write_data.next = Send {
                slot_index: bits::<WORK_INDEX_BITS>(0),
                next_psn: bits::<24>(0),
                message_count: bits::<MESSAGE_COUNT_BITS>(0),
                reads: bits::<READ_COUNT_BITS>(0),
                tail_from_home: bits::<BLOCK_BITS>(0),
                tail_count: bits::<4>(0),
                home_lap: false,
                is_reused: false,
                is_held: false,
                waits_for_long: false,
                follows_local: false,
                has_ended: false,
                has_begun: false,
            };
        }

        if step == Step::Setup {
            self.step.d.next = Step::Idle;
            self.begun_valid.next = true;
            self.sends.write_enable.next = true;
            match event.kind {
                SetupKind::Restart => {
                    self.sends.write_data.next.slot_index = bits(0);
                    self.sends.write_data.next.has_ended = false;
                    self.sends.write_data.next.is_held = false;
                    self.sends.write_data.next.waits_for_long = false;
                    self.sends.write_data.next.follows_local = false;
                    self.sends.write_data.next.has_begun = false;
                }
                SetupKind::SendPsn => {
                    self.sends.write_data.next.next_psn = event.psn;
                    self.begun.next.is_held = send.is_held;
                }
                SetupKind::Life => {
                    // WQEs that were dropped are fetched again, to be sent or flushed.
                    let waits_for_long = send.waits_for_long
                        && (event.state == QpState::ReadyToSend as u64
                            || event.state == QpState::SendQueueDrain as u64);
                    self.sends.write_data.next.is_held = false;
                    self.sends.write_data.next.waits_for_long = waits_for_long;
                    self.resumes.rx.valid.next = (event.state == QpState::ReadyToSend as u64
                        && !waits_for_long)
                        || event.state == QpState::Error as u64
                        || event.state == QpState::SendQueueError as u64;
                    self.resumes.rx.beat.next.generation = event.generation;
                }
                SetupKind::Probe => {
                    self.probed_held.d.next = send.next_psn;
                    self.is_busy.d.next = send.message_count != retired.count;
                    self.begun.next.is_held = send.is_held;
                }
                _ => {
                    self.begun.next.is_held = send.is_held;
                }
            }
        }
        if step == Step::Wake {
            self.step.d.next = Step::Idle;
            let continues = select(wakes_long, send.waits_for_long, send.is_held);
            self.begun_valid.next = continues;
            self.sends.write_enable.next = continues;
            self.sends.write_data.next.is_held = false;
            self.sends.write_data.next.waits_for_long = false;
            self.resumes.rx.valid.next = continues;
        }

        // What the slot is, and whether there is room for it. Its fields are not checked.
        let fields: WqeFields = fields(slot.first);
        let operation: WqeOperation = classify(fields.opcode);
        let is_double = slot.first.get_bit(TWO_SLOTS) && !slot.is_unreadable && !slot.is_overrun;
        if step == Step::Decide {
            let is_current = slot.generation == life.generation;
            // Nothing follows an overrun, so it ends the queue at any index.
            let is_next = slot.index == send.slot_index || slot.is_overrun;
            let is_wanted = is_next && is_current && !send.is_held && !send.waits_for_long && !send.has_ended;
            let flushes = life.state == QpState::Error as u64 || life.state == QpState::SendQueueError as u64;
            // The next slot may come with the next burst; it is missing only at the end of all bursts.
            let is_whole = slot.has_second || slot.ends_queue || slot.is_overrun;
            let in_flight = send.message_count - retired.count;
            let needs_block = send.tail_count.get_bit(3);
            let has_home = send.home_lap != retired.home_lap;
            let reuses = !has_home && !self.free.valid.val();
            // A block that is used again links to itself: that link must be read before the next one is
            // written.
            let waits_for_long = send.is_reused && in_flight >= BLOCK_MESSAGES;
            let has_block = if reuses { in_flight == 0 } else { !waits_for_long };
            self.takes.d.next =
                is_wanted && is_whole && (life.state == QpState::ReadyToSend as u64 || flushes);
            self.ahead.d.next = psn::distance(send.next_psn, retired.una_psn);
            self.is_alone.d.next = in_flight == 0;
            let is_plain = !flushes && !slot.is_unreadable && !slot.is_overrun;
            let is_read = is_plain && (operation.kind.is_read);
            let open = send.reads - retired.reads;
            let waits_for_reads = (is_read && life.read_atomic.any() && open >= life.read_atomic)
                || (is_plain && fields.fence && open.any());
            let is_local = is_plain && operation.kind.is_local;
            let waits_for_all = is_plain && (is_local || send.follows_local) && in_flight.any();
            self.is_local.d.next = is_local;
            let behind: WqeFields = crate::wqe::fields(slot.second);
            self.next_is_unknown.d.next =
                is_double || !slot.has_second || behind.opcode == WqeOpcode::LocalInvalidate as u64;
            self.is_blocked.d.next =
                in_flight >= WINDOW || (needs_block && !has_block) || waits_for_reads || waits_for_all;
            self.is_open.d.next = is_read && life.read_atomic.any();
            let has_packets = is_plain && !is_local && !fields.inline && fields.length <= LENGTH_MAX;
            // A LOCAL_INVALIDATE takes no PSN: its last PSN is the one before its first.
            self.further_packets.d.next = if is_local {
                !bits::<24>(0)
            } else if has_packets {
                further_packets(fields.length, life.path_mtu)
            } else {
                bits::<24>(0)
            };
            self.is_long.d.next = has_packets && !is_read && fields.length > QUANTUM;
            self.is_flushed.d.next = flushes;
            self.is_half.d.next = is_double && !slot.has_second;
            self.is_double.d.next = is_double && slot.has_second;
            self.needs_block.d.next = needs_block;
            self.reuses_block.d.next = reuses;
            self.takes_home.d.next = has_home;
            self.seen.d.next = retired;
            self.is_stale.d.next = !is_current;
            self.step.d.next = Step::Act;
        }

        let takes = self.takes.q.val();
        let ahead = self.ahead.q.val();
        let behind = self.further_packets.q.val();
        let is_wide = ahead.get_bits::<9>(PSN_WINDOW_BITS).any() || ahead + behind >= PSN_SPAN;
        let is_blocked =
            self.is_blocked.q.val() || (is_wide && !self.is_alone.q.val() && !self.is_flushed.q.val());
        let is_long = self.is_long.q.val();
        let last_psn = send.next_psn + behind;
        let acts = step == Step::Act;
        let begins = acts && takes && !is_blocked;
        let holds = acts && takes && is_blocked;
        let needs_block = self.needs_block.q.val();
        let takes_shared = needs_block && !self.reuses_block.q.val() && !self.takes_home.q.val();
        let tail = send.tail_from_home ^ home;
        let block = if !needs_block || self.reuses_block.q.val() {
            tail
        } else if self.takes_home.q.val() {
            home
        } else {
            cat!(true, self.free.beat.val())
        };
        let index_in_block = select(needs_block, bits::<4>(0), send.tail_count);
        let slots = if slot.is_overrun {
            bits::<WORK_INDEX_BITS>(0)
        } else if self.is_double.q.val() {
            bits::<WORK_INDEX_BITS>(2)
        } else {
            bits::<WORK_INDEX_BITS>(1)
        };
        let next_slot = send.slot_index + slots;
        let message_count = send.message_count + 1;
        self.link.next = Link { block: tail, next: block };
        self.link_valid.next = begins && needs_block;
        self.free.ready.next = begins && takes_shared;
        self.parsed_wqes.rx.valid.next = begins || (acts && slot.ends_burst);
        self.parsed_wqes.rx.beat.next = ParsedWqe {
            header: WqeHeader {
                queue_pair,
                generation: life.generation,
                is_empty: !begins,
                is_first: !send.has_begun,
                ends_burst: slot.ends_burst,
                is_open: self.is_open.q.val(),
                last_psn,
                pool_slot: cat!(block, index_in_block.get_bits::<3>(0)),
                message_count,
                next_slot,
            },
            plan: SegmentPlan {
                first_psn: send.next_psn,
                is_long,
                read_slot: send.reads.get_bits::<READ_SLOT_BITS>(0),
                path_mtu: life.path_mtu,
                domain: life.domain,
            },
            needs_ack: index_in_block == BLOCK_MESSAGES - 1 || self.next_is_unknown.q.val(),
            two_slots: self.is_double.q.val(),
            is_flushed: self.is_flushed.q.val(),
            reason: if slot.is_overrun {
                bits::<8>(vendor_error::OVERRUN)
            } else if slot.is_unreadable {
                bits::<8>(vendor_error::UNREADABLE)
            } else if self.is_half.q.val() {
                bits::<8>(vendor_error::HALF_WQE)
            } else {
                bits::<8>(0)
            },
            signal_all: life.signal_all,
            is_reliable: life.is_reliable,
            first: slot.first,
            second: slot.second,
        };
        if acts {
            self.step.d.next = if holds { Step::Recheck } else { Step::Idle };
        }
        if begins {
            self.begun_valid.next = true;
            self.begun.next.count = message_count;
            self.sends.write_enable.next = true;
            self.sends.write_data.next = Send {
                slot_index: next_slot,
                next_psn: if self.is_flushed.q.val() { send.next_psn } else { last_psn + 1 },
                message_count,
                reads: select(self.is_open.q.val(), send.reads + 1, send.reads),
                tail_from_home: block ^ home,
                tail_count: index_in_block + 1,
                home_lap: send.home_lap != (needs_block && self.takes_home.q.val()),
                is_reused: select(needs_block, self.reuses_block.q.val(), send.is_reused),
                is_held: false,
                waits_for_long: is_long,
                follows_local: self.is_local.q.val(),
                has_ended: slot.is_overrun || slot.is_unreadable,
                has_begun: true,
            };
        }
        if begins && is_long {
            self.resumes.rx.valid.next = true;
            self.resumes.rx.beat.next.resumes = false;
        }
        if holds {
            self.begun_valid.next = true;
            self.begun.next.is_held = true;
            self.sends.write_enable.next = true;
            self.sends.write_data.next.is_held = true;
        }
        // Acknowledge may have completed a message in between without seeing that the queue pair is held.
        if step == Step::Recheck {
            let has_moved = retired != self.seen.q.val();
            self.step.d.next = Step::Idle;
            self.resumes.rx.valid.next = true;
            self.resumes.rx.beat.next.resumes = has_moved;
            self.begun_valid.next = has_moved;
            self.sends.write_enable.next = has_moved;
            self.sends.write_data.next.is_held = false;
        }
    }
}

#[cfg(test)]
mod tests;
