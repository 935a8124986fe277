//! WqeParse: decides which slots are the next entry of their queue pair, and gives each entry its PSNs and its place.
//!
//! The one stage that knows how far a queue pair has come: everything that was fetched comes past here in order, wanted or not.
//! What does not fit into the window or the pool is let go, and fetched again when there is room.
//!
//! ```text
//!               ┌─────────────────────────────────────────────┐
//!  setup ──────>│            ┌─> record: slot, PSN, tail ─┐   │
//!  wakes ──────>│─> whose? ──┤                            ├───┼──> item (4 deep)
//!  work ───────>│            └─> retired, free blocks ────┘   │
//!               │                     └── held ───────────────┼──> turn (to fetch)
//!               └─────────────────────────────────────────────┘
//!  step          Idle          Judge            Act
//! ```
//!
//! A slot takes 3 cycles, wanted or not: with one slot in eight fetched twice, 3.4 cycles an entry of one slot, 6.9 one of two.
//!
//! 1. Entries of a queue pair leave in order, none left out, none twice, whatever was fetched twice. A slot is wanted if it is the
//!    one behind the last entry, is of the queue pair's generation, and the queue pair is not held.
//! 2. Each item that leaves has its own place in the pool, and the places of a queue pair make one chain in order.
//! 3. A queue pair is held when 1,024 of its messages are in flight or when its last block is full and there is no other. Its
//!    last block is another one when none of its messages is in flight. WqeFetch stops for who is held, and goes on at the slot
//!    that was not taken when the queue pair is woken.
//! 4. The last message of a block asks the peer for an answer, as every signalled one does (protocol 2.4); so what holds a
//!    queue pair is answered.
//! 5. Setup events and wakes are taken between two slots, whether `item` is full or not.
//! 6. In RTS entries are sent, in ERR and SQE they go on as flushed, in other states they wait in their ring.
//! 7. Behind a slot that could not be read, or an overrun of the ring, nothing is wanted until the queue pair is made or reset:
//!    where the next entry begins is not known.
//! 8. A message takes as many PSNs as its length needs packets, which nobody has checked yet; one if it needs none, if it is
//!    inline, and if it is longer than any message may be (protocol 2.1, 2.2). What is flushed takes none.
//! 9. A queue pair with messages in flight is held, too, while 2^15 of its PSNs or more are in flight, and while the next message
//!    would make that more than 2^23 (protocol 2.1). Acknowledge wakes it as for rule 3.
//! 10. Behind a message of more than 16 KiB nothing is taken and fetch stops, until cut says that it may go on; a change of
//!     life to a state in which nothing is sent ends that, too. A READ or an atomic is one packet, and never long.
//! 11. A queue pair is held, too, before a READ or an atomic while `read_atomic` of these are open, and before an entry with a
//!     fence while any is: it is open from here until it leaves the pool (protocol 2.3, 2.10). Each has a slot of its own until then.
//!     Where `read_atomic` is zero, none is ever open, and refused by authorize.
//! 12. A queue pair is held, too, before the end of a key of this host while any message is in flight, and behind it until it has left
//!     the pool (protocol 2.10). It takes no PSN.
//! 13. So the last message that was posted asks for an answer, too, and the last one before the end of a key; and each of two slots,
//!     as what stands behind it is not seen here. An entry at the end of a burst is taken with the next one, if there is a next one,
//!     where it stands first.
use crate::constants::{
    ERROR, PMTU_256, PMTU_512, PMTU_1024, PMTU_2048, READY_TO_SEND, REASON_HALF_ENTRY, REASON_OVERRUN,
    REASON_UNREADABLE, RELIABLE, RESET, SEND_QUEUE_DRAIN, SEND_QUEUE_ERROR, WORK_LOCAL_INVALIDATE, WORK_READ,
};
use crate::messages::{
    BLOCK_BITS, BLOCK_MESSAGES, Begun, FetchResume, Link, MESSAGE_COUNT_BITS, PSN_WINDOW_BITS, ParsedWqe,
    QUANTUM_BITS, Retired, WINDOW, WqeSlot,
};
use crate::outstanding::SHARED_BITS;
use crate::wqe::{WqeFields, fields, is_atomic};
use rnic_blocks::logic::psn;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS};
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, WORK_INDEX_BITS};

/// The bit of a slot that says that a second one follows.
const TWO_SLOTS: usize = rnic_layout::queue::send::SendWqe::RECORD.field("two_slots").offset as usize;
/// More bytes than this are no message.
const LENGTH_MAX: u64 = rnic_layout::limits::MESSAGE_BYTES_MAX as u64;
/// More bytes than this are a long one.
const QUANTUM: u64 = 1 << QUANTUM_BITS;
/// PSNs that a queue pair may have in flight.
const PSN_SPAN: u64 = rnic_layout::psn::HALF_WINDOW as u64;

/// Packets behind the first that so many bytes need.
#[kernel]
fn packets_behind(length: Bits<32>, path_mtu: Bits<3>) -> Bits<24> {
    let last_byte = length - 1;
    let behind = match path_mtu.to_u64() {
        PMTU_256 => last_byte.get_bits::<24>(8),
        PMTU_512 => bit_cast::<24, 23>(last_byte.get_bits::<23>(9)),
        PMTU_1024 => bit_cast::<24, 22>(last_byte.get_bits::<22>(10)),
        PMTU_2048 => bit_cast::<24, 21>(last_byte.get_bits::<21>(11)),
        _ => bit_cast::<24, 20>(last_byte.get_bits::<20>(12)),
    };
    select(length.any(), behind, bits::<24>(0))
}

/// What commands say.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Life {
    state: Bits<3>,
    generation: Bits<GENERATION_BITS>,
    is_reliable: Bit,
    signal_all: Bit,
    path_mtu: Bits<3>,
    domain: Bits<24>,
    /// READs that may be open.
    read_atomic: Bits<READ_COUNT_BITS>,
}

/// How far a queue pair is; mirrors those fields of `rnic_layout::context::SendRecord` that SEND, WRITE and READ need.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Send {
    /// The slot that is wanted next.
    slot_index: Bits<WORK_INDEX_BITS>,
    /// PSN of the next packet.
    next_psn: Bits<24>,
    /// Messages that have a place. Never starts anew, as the places of the pool do not.
    message_count: Bits<MESSAGE_COUNT_BITS>,
    /// READs that were open, free-running; the same.
    reads: Bits<READ_COUNT_BITS>,
    /// The block at the end of the chain; zero is the queue pair's home, so the home is added without carry.
    tail_from_home: Bits<BLOCK_BITS>,
    /// Places taken in it, 0 to 8.
    tail_count: Bits<4>,
    /// Changes when the home block is taken.
    home_lap: Bit,
    /// The block at the end follows itself.
    is_reused: Bit,
    /// The wanted slot waits for room.
    is_held: Bit,
    /// It waits for cut, which has a long message.
    is_behind: Bit,
    /// The last entry was the end of a key.
    follows_local: Bit,
    /// Nothing is wanted any more: the producer index overran the ring, or a slot of it could not be read.
    has_ended: Bit,
    /// An entry was taken since the queue pair was made or reset.
    has_begun: Bit,
}

/// What the block does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Setup,
    Wake,
    Judge,
    Act,
    Recheck,
}

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct WqeParse {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// Records are being cleared.
    pub is_sweeping: Signal<In, Bit>,
    /// Whose.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From collect.
    pub wqe: StreamRx<WqeSlot>,
    /// From acknowledge: messages of a held queue pair have been completed.
    pub wake: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// From cut: what follows a long message may come.
    pub wake_behind: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// To fetch; registered.
    pub turn: StreamTx<FetchResume>,
    /// To authorize; registered.
    pub item: StreamTx<ParsedWqe>,
    /// To the pool: a block follows another.
    pub link: Signal<Out, Link>,
    /// It does.
    pub link_valid: Signal<Out, Bit>,
    /// To the pool: of which queue pair something is said.
    pub begun_queue_pair: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// What.
    pub begun: Signal<Out, Begun>,
    /// It is said now.
    pub begun_valid: Signal<Out, Bit>,
    /// To the pool: which queue pair's `retired` is wanted.
    pub retired_queue_pair: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// It is wanted.
    pub retired_read: Signal<Out, Bit>,
    /// From the pool, one cycle later.
    pub retired: Signal<In, Retired>,
    /// From the pool: a free block.
    pub free: StreamRx<Bits<SHARED_BITS>>,
    /// The PSN that the queue pair of the last probe would use next; registered.
    pub probed: Signal<Out, Bits<24>>,
    /// Messages of that queue pair were in flight; registered.
    pub probed_busy: Signal<Out, Bit>,
    /// A slot of an older generation was dropped; registered.
    pub counts_stale_dropped: Signal<Out, Bit>,

    lives: Memory<Life, QUEUE_PAIR_BITS>,
    sends: Memory<Send, QUEUE_PAIR_BITS>,
    items: Fifo<ParsedWqe, 2, 3>,
    turns: Fifo<FetchResume, 2, 3>,
    step: Reg<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    probed_held: Reg<Bits<24>>,
    is_busy: Reg<Bit>,
    is_stale: Reg<Bit>,
    seen: DFF<Retired>,
    takes: DFF<Bit>,
    is_blocked: DFF<Bit>,
    wakes_behind: DFF<Bit>,
    ahead: DFF<Bits<24>>,
    is_alone: DFF<Bit>,
    packets_behind: DFF<Bits<24>>,
    is_long: DFF<Bit>,
    is_open: DFF<Bit>,
    is_local: DFF<Bit>,
    is_unseen: DFF<Bit>,
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
        StreamTx::<ParsedWqe>::link(&mut self.item, &mut self.items.tx);
        StreamTx::<FetchResume>::link(&mut self.turn, &mut self.turns.tx);
        self.probed.next = self.probed_held.q.val();
        self.probed_busy.next = self.is_busy.q.val();
        self.counts_stale_dropped.next = self.is_stale.q.val();
        self.is_stale.d.next = false;
        let is_sweeping = self.is_sweeping.val();
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let work = self.wqe.beat.val();

        // Everything may tell fetch something, so nothing starts without room for that.
        let may_start = step == Step::Idle && self.turns.rx.ready.val() && !is_sweeping;
        let takes_setup = may_start && self.setup.valid.val();
        let has_wake = self.wake.valid.val() || self.wake_behind.valid.val();
        let takes_wake = may_start && !self.setup.valid.val() && has_wake;
        let takes_work = may_start
            && !self.setup.valid.val()
            && !has_wake
            && self.wqe.valid.val()
            && self.items.rx.ready.val();
        let chosen = if self.setup.valid.val() {
            event.queue_pair
        } else if self.wake.valid.val() {
            self.wake.beat.val()
        } else if self.wake_behind.valid.val() {
            self.wake_behind.beat.val()
        } else {
            work.queue_pair
        };
        if step == Step::Idle {
            self.queue_pair.d.next = chosen;
            self.wakes_behind.d.next = !self.wake.valid.val();
            self.step.d.next = if takes_setup {
                Step::Setup
            } else if takes_wake {
                Step::Wake
            } else if takes_work {
                Step::Judge
            } else {
                Step::Idle
            };
        }
        self.lives.read_enable.next = step == Step::Idle;
        self.lives.read_address.next = chosen;
        self.sends.read_enable.next = step == Step::Idle;
        self.sends.read_address.next = chosen;
        // Read again in the cycle in which the queue pair is said to be held.
        self.retired_read.next = step == Step::Idle || step == Step::Act;
        self.retired_queue_pair.next = select(step == Step::Idle, chosen, queue_pair);

        let life = self.lives.read_data.val();
        let send = self.sends.read_data.val();
        let retired = self.retired.val();
        let home = bit_cast::<BLOCK_BITS, QUEUE_PAIR_BITS>(queue_pair);

        // Defaults: nothing is said.
        self.setup.ready.next = step == Step::Setup;
        let wakes_behind = self.wakes_behind.q.val();
        self.wake.ready.next = step == Step::Wake && !wakes_behind;
        self.wake_behind.ready.next = step == Step::Wake && wakes_behind;
        self.wqe.ready.next = step == Step::Act;
        self.lives.write_enable.next = is_sweeping || step == Step::Setup;
        self.lives.write_address.next = select(is_sweeping, self.sweep_index.val(), queue_pair);
        self.lives.write_data.next = Life {
            state: select(is_sweeping, bits::<3>(RESET), event.state),
            generation: event.generation,
            is_reliable: event.path.service == RELIABLE,
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
        self.turns.rx.valid.next = false;
        self.turns.rx.beat.next = FetchResume {
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
                is_behind: false,
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
                    self.sends.write_data.next.is_behind = false;
                    self.sends.write_data.next.follows_local = false;
                    self.sends.write_data.next.has_begun = false;
                }
                SetupKind::SendPsn => {
                    self.sends.write_data.next.next_psn = event.psn;
                    self.begun.next.is_held = send.is_held;
                }
                SetupKind::Life => {
                    // Whatever was let go is fetched again, to be sent or flushed.
                    let is_behind =
                        send.is_behind && (event.state == READY_TO_SEND || event.state == SEND_QUEUE_DRAIN);
                    self.sends.write_data.next.is_held = false;
                    self.sends.write_data.next.is_behind = is_behind;
                    self.turns.rx.valid.next = (event.state == READY_TO_SEND && !is_behind)
                        || event.state == ERROR
                        || event.state == SEND_QUEUE_ERROR;
                    self.turns.rx.beat.next.generation = event.generation;
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
            let goes_on = select(wakes_behind, send.is_behind, send.is_held);
            self.begun_valid.next = goes_on;
            self.sends.write_enable.next = goes_on;
            self.sends.write_data.next.is_held = false;
            self.sends.write_data.next.is_behind = false;
            self.turns.rx.valid.next = goes_on;
        }

        // What the slot is, and whether there is room for it. No field of it has been checked.
        let fields: WqeFields = fields(work.first);
        let is_double = work.first.get_bit(TWO_SLOTS) && !work.is_unreadable && !work.is_overrun;
        if step == Step::Judge {
            let is_current = work.generation == life.generation;
            // Behind an overrun nothing comes any more, so it ends the queue wherever that is.
            let is_next = work.index == send.slot_index || work.is_overrun;
            let is_wanted = is_next && is_current && !send.is_held && !send.is_behind && !send.has_ended;
            let flushes = life.state == ERROR || life.state == SEND_QUEUE_ERROR;
            // What stands behind it may come with the next burst; only at the end of all bursts is it missing.
            let is_whole = work.has_second || work.ends_queue || work.is_overrun;
            let in_flight = send.message_count - retired.count;
            let needs_block = send.tail_count.get_bit(3);
            let has_home = send.home_lap != retired.home_lap;
            let reuses = !has_home && !self.free.valid.val();
            // In a block that is used again, the way out of it must not be written down before the way back into it was read.
            let is_behind = send.is_reused && in_flight >= BLOCK_MESSAGES;
            let has_block = if reuses { in_flight == 0 } else { !is_behind };
            self.takes.d.next = is_wanted && is_whole && (life.state == READY_TO_SEND || flushes);
            self.ahead.d.next = psn::distance(send.next_psn, retired.una_psn);
            self.is_alone.d.next = in_flight == 0;
            let is_plain = !flushes && !work.is_unreadable && !work.is_overrun;
            let is_read = is_plain && (fields.opcode == WORK_READ || is_atomic(fields.opcode));
            let open = send.reads - retired.reads;
            let waits_for_reads = (is_read && life.read_atomic.any() && open >= life.read_atomic)
                || (is_plain && fields.fence && open.any());
            let is_local = is_plain && fields.opcode == WORK_LOCAL_INVALIDATE;
            let waits_for_all = is_plain && (is_local || send.follows_local) && in_flight.any();
            self.is_local.d.next = is_local;
            let behind: WqeFields = crate::wqe::fields(work.second);
            self.is_unseen.d.next = is_double || !work.has_second || behind.opcode == WORK_LOCAL_INVALIDATE;
            self.is_blocked.d.next =
                in_flight >= WINDOW || (needs_block && !has_block) || waits_for_reads || waits_for_all;
            self.is_open.d.next = is_read && life.read_atomic.any();
            let has_packets = is_plain && !is_local && !fields.inline && fields.length <= LENGTH_MAX;
            // One less than none: its last PSN is the one before it.
            self.packets_behind.d.next = if is_local {
                !bits::<24>(0)
            } else if has_packets {
                packets_behind(fields.length, life.path_mtu)
            } else {
                bits::<24>(0)
            };
            self.is_long.d.next = has_packets && !is_read && fields.length > QUANTUM;
            self.is_flushed.d.next = flushes;
            self.is_half.d.next = is_double && !work.has_second;
            self.is_double.d.next = is_double && work.has_second;
            self.needs_block.d.next = needs_block;
            self.reuses_block.d.next = reuses;
            self.takes_home.d.next = has_home;
            self.seen.d.next = retired;
            self.is_stale.d.next = !is_current;
            self.step.d.next = Step::Act;
        }

        let takes = self.takes.q.val();
        let ahead = self.ahead.q.val();
        let behind = self.packets_behind.q.val();
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
        let place = select(needs_block, bits::<4>(0), send.tail_count);
        let slots = if work.is_overrun {
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
        self.items.rx.valid.next = begins || (acts && work.ends_burst);
        self.items.rx.beat.next = ParsedWqe {
            queue_pair,
            generation: life.generation,
            is_empty: !begins,
            is_first: !send.has_begun,
            ends_burst: work.ends_burst,
            psn: send.next_psn,
            last_psn,
            is_long,
            is_open: self.is_open.q.val(),
            read_slot: send.reads.get_bits::<READ_SLOT_BITS>(0),
            place: cat!(block, place.get_bits::<3>(0)),
            message_count,
            next_slot,
            asks: place == BLOCK_MESSAGES - 1 || self.is_unseen.q.val(),
            two_slots: self.is_double.q.val(),
            is_flushed: self.is_flushed.q.val(),
            reason: if work.is_overrun {
                bits::<8>(REASON_OVERRUN)
            } else if work.is_unreadable {
                bits::<8>(REASON_UNREADABLE)
            } else if self.is_half.q.val() {
                bits::<8>(REASON_HALF_ENTRY)
            } else {
                bits::<8>(0)
            },
            signal_all: life.signal_all,
            is_reliable: life.is_reliable,
            path_mtu: life.path_mtu,
            domain: life.domain,
            first: work.first,
            second: work.second,
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
                tail_count: place + 1,
                home_lap: send.home_lap != (needs_block && self.takes_home.q.val()),
                is_reused: select(needs_block, self.reuses_block.q.val(), send.is_reused),
                is_held: false,
                is_behind: is_long,
                follows_local: self.is_local.q.val(),
                has_ended: work.is_overrun || work.is_unreadable,
                has_begun: true,
            };
        }
        if begins && is_long {
            self.turns.rx.valid.next = true;
            self.turns.rx.beat.next.resumes = false;
        }
        if holds {
            self.begun_valid.next = true;
            self.begun.next.is_held = true;
            self.sends.write_enable.next = true;
            self.sends.write_data.next.is_held = true;
        }
        // Who has completed something in between may not have seen that the queue pair is held.
        if step == Step::Recheck {
            let has_moved = retired != self.seen.q.val();
            self.step.d.next = Step::Idle;
            self.turns.rx.valid.next = true;
            self.turns.rx.beat.next.resumes = has_moved;
            self.begun_valid.next = has_moved;
            self.sends.write_enable.next = has_moved;
            self.sends.write_data.next.is_held = false;
        }
    }
}

#[cfg(test)]
mod tests;
