//! Host writer: writes to host memory for four clients, in one order, and reports to each which of its writes are done.
//!
//! The host promises nothing about a write before it reports it done (design 3.1): a client that announces a write waits for that. The
//! host reports in the order of the requests, without naming them; the queue of owners says which client each report is for.
//!
//! ```text
//!                ┌──────────────────────────────────────────────────────────────┐
//!  payload ─────>│ ┌─────────┐   ┌──────┐──> requests (Fifo) ──> Translate ─────┼──> request
//!  completion ──>│ │ Arbiter ├──>│ item │──> words (Fifo) ──────────────────────┼──> words
//!  admin ───────>│ │ (writes)│   │      │──> owners (Fifo) ──┐                  │
//!  atomics ─────>│ └─────────┘   └──────┘                    v                  │
//!                │                        reports (Fifo) ──> one at a time <────┼─── done (no ready)
//!                │                                           │                  │
//!                │       payload_done_count, completion_done_count,             │
//!                │       admin_done_count, atomics_done, write_failure          │
//!                │                      limit ──> watch ──> is_overdue          │
//!                └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! Latency 6 cycles from a write to `request`, 3 to its first word; one word of the datapath a cycle, also when each word is a write. From
//! `done_valid` to the count 3 cycles, one report a cycle. Up to 512 writes are in flight.
//!
//! 1. Writes are issued in the order in which `ready` took their first words; the words of one follow each other.
//! 2. Payload, completion and admin each have a count of their writes that are done, and count themselves those that were taken.
//!    `atomics` has a pulse for each, with whether it failed.
//! 3. A write that failed is given out as `write_failure` before it is counted, except for one of `atomics`; all counts wait until the
//!    failure is taken. That of a CQE names its queue. `payload_failed` is high in the first cycle in which `payload_done_count`
//!    counts a failed write.
//! 4. Bytes keep the lanes of their address; other lanes hold anything.
//! 5. A write that waits for words holds the others back: a client that begins a write has all of it.
//! 6. `is_overdue` rises when there are writes in flight and the host has reported none for `limit`, whether it has taken them or not
//!    (see [`report_watch`](crate::report_watch)).
//! 7. Addresses of `payload` and `atomics` may be in pages (see [`translate`](crate::translate)); those of `completion` and `admin` are
//!    device addresses, all 64 bits.
//!
//! A write of payload has 1 to 512 bytes and crosses no multiple of 512. Design 3.1, design decision 11.
use crate::report_watch::ReportWatch;
use crate::translate::{Access, Translate};
use rnic_blocks::memory::Storage;
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Arbiter, Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{CqeOwner, PayloadWrite, SlotWrite, WordWrite, WriteFailure, WriteOwner};
use rnic_messages::pool::{LEVEL_BITS, level_of};
use rnic_messages::protect::PageEntryWrite;
use rnic_messages::setup::{InFlight, in_flight_after};
use rnic_messages::sizes::{
    COMPLETION_LIFE_BITS, COMPLETION_QUEUE_BITS, GENERATION_BITS, HOST_LIMIT_BITS, LENGTH_BITS,
    QUEUE_PAIR_BITS, WRITE_COUNT_BITS,
};

/// Bytes of the word that an atomic changes.
const WORD_BYTES: u64 = 8;
/// log2 of the writes in flight at most.
const OWNERS: usize = 9;
const OWNER_COUNT: usize = OWNERS + 1;
/// log2 of the requests and of the words that wait for the host.
const REQUESTS: usize = 4;
const REQUEST_COUNT: usize = REQUESTS + 1;
pub(crate) const WORDS: usize = 5;
const WORD_COUNT: usize = WORDS + 1;

/// A write request to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct HostWrite {
    /// Device address of the first byte.
    pub address: Bits<64>,
    /// Length in bytes, 1 to 512.
    pub length: Bits<LENGTH_BITS>,
}

/// A word of the data of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WriteWord<const DATA: usize> {
    /// Bytes in the lanes of their address.
    pub data: Bits<DATA>,
    /// Last word of its write.
    pub last: Bit,
}

/// Counters of the host writer: each bit is high for one cycle for each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct HostWriteCounts {
    /// A write was requested from the host.
    pub host_writes: Bit,
    /// The host refused a write.
    pub host_write_errors: Bit,
}

/// Levels of the pools of the host writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct HostWritePools {
    /// Writes that were taken and are not done.
    pub writes: Bits<LEVEL_BITS>,
}

/// The client whose write is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Owner {
    owner: WriteOwner,
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    generation: Bits<GENERATION_BITS>,
    is_response: Bit,
    is_cqe: Bit,
    completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    life: Bits<COMPLETION_LIFE_BITS>,
}

/// A word of payload, or a whole small write.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Item {
    request: HostWrite,
    owner: Owner,
    data: Bits<512>,
    /// The data has only 8, 16 or 32 bytes, which are repeated in every lane that the address could mean.
    has_8: Bit,
    has_16: Bit,
    has_32: Bit,
    /// Number of its words less one.
    words_left: Bits<3>,
    last: Bit,
}

/// What a report of the host does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Report {
    /// The write is counted.
    Count,
    /// `write_failure` is offered, and the write is counted when that is taken.
    Failure,
}

/// The owner of a small write: of a CQE, with its queues.
#[kernel]
fn owner_of(owner: WriteOwner, is_cqe: Bit, cqe: CqeOwner) -> Owner {
    Owner {
        owner,
        queue_pair: cqe.queue_pair,
        generation: cqe.generation,
        is_response: false,
        is_cqe,
        completion_queue: cqe.completion_queue,
        life: cqe.life,
    }
}

/// A word of payload as an item.
#[kernel]
fn payload_item<const DATA: usize>(payload: PayloadWrite<DATA>) -> Item {
    Item {
        request: HostWrite { address: payload.address, length: payload.length },
        owner: Owner {
            owner: WriteOwner::Payload,
            queue_pair: payload.queue_pair,
            generation: payload.generation,
            is_response: payload.is_response,
            is_cqe: false,
            completion_queue: bits(0),
            life: bits(0),
        },
        data: bit_cast::<512, DATA>(payload.data),
        has_8: false,
        has_16: false,
        has_32: false,
        words_left: bits(0),
        last: payload.last,
    }
}

/// A small write as an item of a datapath of `2^data_log2` bits.
#[kernel]
fn slot_item(write: SlotWrite, owner: WriteOwner, data_log2: u64) -> Item {
    // Lengths are powers of two, so the words are their quotient, or one.
    let words = write.length >> (data_log2 - 3);
    Item {
        request: HostWrite { address: write.address, length: bit_cast::<LENGTH_BITS, 7>(write.length) },
        owner: owner_of(owner, write.is_cqe, write.cqe),
        data: write.data,
        has_8: false,
        has_16: write.length.get_bit(4),
        has_32: write.length.get_bit(5),
        words_left: if words.any() { (words - 1).get_bits::<3>(0) } else { bits(0) },
        last: true,
    }
}

/// The word of an atomic as an item.
#[kernel]
fn word_item(word: WordWrite) -> Item {
    Item {
        request: HostWrite { address: word.address, length: bits::<LENGTH_BITS>(WORD_BYTES) },
        owner: owner_of(WriteOwner::Atomics, false, CqeOwner::default()),
        data: bit_cast::<512, 64>(word.data),
        has_8: true,
        has_16: true,
        has_32: false,
        words_left: bits(0),
        last: true,
    }
}

/// Repeats data of 8, 16 or 32 bytes in all lanes.
#[kernel]
fn spread(item: Item) -> Bits<512> {
    let second_word = if item.has_8 { item.data.get_bits::<64>(0) } else { item.data.get_bits::<64>(64) };
    let low: Bits<128> = cat!(second_word, item.data.get_bits::<64>(0));
    let second = if item.has_16 { low } else { item.data.get_bits::<128>(128) };
    let half: Bits<256> = cat!(second, low);
    let upper = if item.has_16 || item.has_32 { half } else { item.data.get_bits::<256>(256) };
    cat!(upper, half)
}

/// Addresses of payload and atomics may be in pages; rings and the admin queue have device addresses.
#[kernel]
fn may_be_paged(owner: WriteOwner) -> Bit {
    owner == WriteOwner::Payload || owner == WriteOwner::Atomics
}

/// Decides what a report does: a refusal is given out as a failure first, except that of the atomics stage, which has `atomics_failed`.
#[kernel]
fn report_of(owner: WriteOwner, is_refused: Bit) -> Report {
    if is_refused && owner != WriteOwner::Atomics { Report::Failure } else { Report::Count }
}

/// Writes to host memory for four clients, in one order.
#[clocked(reset = "forgets all writes. The host must have done those before")]
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct HostWriter<const DATA: usize, const BYTES: usize> {
    /// From place: payload. `ready` of all four clients is combinational.
    pub payload: StreamRx<PayloadWrite<DATA>>,
    /// From the event queues: CQEs and EQEs.
    pub completion: StreamRx<SlotWrite>,
    /// From control: answers of the admin queue.
    pub admin: StreamRx<SlotWrite>,
    /// From atomics: new values of words.
    pub atomics: StreamRx<WordWrite>,
    /// Writes of payload that are done, modulo 2^16; registered.
    pub payload_done_count: Signal<Out, Bits<WRITE_COUNT_BITS>>,
    /// `payload_done_count` has just counted a write that failed; registered.
    pub payload_failed: Signal<Out, Bit>,
    /// Writes of CQEs and EQEs that are done, modulo 2^16; registered.
    pub completion_done_count: Signal<Out, Bits<WRITE_COUNT_BITS>>,
    /// Writes of answers that are done, modulo 2^16; registered.
    pub admin_done_count: Signal<Out, Bits<WRITE_COUNT_BITS>>,
    /// The oldest write of `atomics` is done; registered.
    pub atomics_done: Signal<Out, Bit>,
    /// With `atomics_done`: the host refused that write; registered.
    pub atomics_failed: Signal<Out, Bit>,
    /// To the write failures stage: the host refused a write. A function of registers.
    pub write_failure: StreamTx<WriteFailure>,

    /// From control: a page table entry.
    pub page_write: ValidRx<PageEntryWrite>,

    /// To the host: requests; registered.
    pub request: StreamTx<HostWrite>,
    /// Their words, in the same order; registered.
    pub words: StreamTx<WriteWord<DATA>>,
    /// From the host: the oldest write in flight is done.
    pub done_valid: Signal<In, Bit>,
    /// With `done_valid`: the host refused that write.
    pub done_error: Signal<In, Bit>,
    /// The host reported a write although none is in flight: an error of the device; registered.
    pub is_unexpected: Signal<Out, Bit>,

    /// Register `host_limit`: longest time without a report, in units of 1024 cycles; zero for none.
    pub limit: Signal<In, Bits<HOST_LIMIT_BITS>>,
    /// The time of this cycle does not count: the card may make no requests.
    pub pauses: Signal<In, Bit>,
    /// It is over while writes are in flight: an error of the device; registered.
    pub is_overdue: Signal<Out, Bit>,

    /// Writes taken, and writes done; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// Counters; registered.
    pub counts: Signal<Out, HostWriteCounts>,
    /// Levels of pools; registered.
    pub pools: Signal<Out, HostWritePools>,

    arbiter: Arbiter<Item, 4>,
    /// The next word of payload begins a write.
    #[init(Reg::new(true))]
    payload_begins: Reg<Bit>,
    item: DFF<Item>,
    item_valid: Reg<Bit>,
    item_begins: DFF<Bit>,
    #[init(Fifo::new(Storage::Distributed))]
    requests: Fifo<Access<LENGTH_BITS>, REQUESTS, REQUEST_COUNT>,
    translate: Translate<LENGTH_BITS>,
    queue: Fifo<WriteWord<DATA>, WORDS, WORD_COUNT>,
    #[init(Fifo::new(Storage::Block))]
    owners: Fifo<Owner, OWNERS, OWNER_COUNT>,
    /// Whether the host refused each write that it has reported.
    #[init(Fifo::new(Storage::Block))]
    reports: Fifo<Bit, OWNERS, OWNER_COUNT>,
    watch: ReportWatch,
    flight: Reg<InFlight>,
    /// Writes that are done, of payload, completion and admin.
    done: [Reg<Bits<WRITE_COUNT_BITS>>; 3],
    payload_has_failed: Reg<Bit>,
    atomics_is_done: Reg<Bit>,
    atomics_has_failed: Reg<Bit>,
    /// Requests that the host has taken and not reported.
    outstanding: Reg<Bits<OWNER_COUNT>>,
    unexpected: Reg<Bit>,
    counted: Reg<HostWriteCounts>,
    pools_held: DFF<HostWritePools>,
}

impl<const DATA: usize, const BYTES: usize> Logic for HostWriter<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // The arbiter changes clients between writes only.
        let payload = self.payload.beat.val();
        self.arbiter.rx[0].offer(self.payload.valid.val(), payload_item::<DATA>(payload));
        self.payload.ready.next = self.arbiter.rx[0].ready.val();
        self.arbiter.rx[1].beat.next =
            slot_item(self.completion.beat.val(), WriteOwner::Completion, BYTES as u64 + 2);
        self.arbiter.rx[1].valid.next = self.completion.valid.val();
        self.completion.ready.next = self.arbiter.rx[1].ready.val();
        self.arbiter.rx[2].beat.next = slot_item(self.admin.beat.val(), WriteOwner::Admin, BYTES as u64 + 2);
        self.arbiter.rx[2].valid.next = self.admin.valid.val();
        self.admin.ready.next = self.arbiter.rx[2].ready.val();
        self.arbiter.rx[3].offer(self.atomics.valid.val(), word_item(self.atomics.beat.val()));
        self.atomics.ready.next = self.arbiter.rx[3].ready.val();
        self.arbiter.last.next = cat!(true, true, true, payload.last);

        // The item leaves word by word; with the first one its request and its owner are queued.
        let item = self.item.q.val();
        let begins = self.item_begins.q.val();
        let has_places = self.requests.rx.ready.val() && self.owners.rx.ready.val();
        let goes = self.item_valid.q.val() && self.queue.rx.ready.val() && (!begins || has_places);
        let is_over = !item.words_left.any();
        let may_take = !self.item_valid.q.val() || (goes && is_over);
        self.arbiter.tx.ready.next = may_take;
        let is_payload = self.arbiter.origin.val().get_bit(0);
        let takes = may_take && self.arbiter.tx.valid.val();
        let begins_write = takes && (!is_payload || self.payload_begins.q.val());
        if may_take {
            self.item.d.next = self.arbiter.tx.beat.val();
            self.item_valid.d.next = self.arbiter.tx.valid.val();
            self.item_begins.d.next = begins_write;
        } else if goes {
            self.item.d.next.data = item.data >> (DATA as u64);
            self.item.d.next.words_left = item.words_left - 1;
            self.item_begins.d.next = false;
        }
        if takes && is_payload {
            self.payload_begins.d.next = payload.last;
        }
        self.queue.rx.valid.next = goes;
        self.queue.rx.beat.next =
            WriteWord::<DATA> { data: spread(item).get_bits::<DATA>(0), last: item.last && is_over };
        self.requests.rx.valid.next = goes && begins;
        self.requests.rx.beat.next = Access::<LENGTH_BITS> {
            address: item.request.address,
            is_payload: may_be_paged(item.owner.owner),
            rest: item.request.length,
        };
        self.owners.rx.offer(goes && begins, item.owner);
        ValidRx::link(&mut self.page_write, &mut self.translate.page_write);
        StreamTx::join(&mut self.requests.tx, &mut self.translate.rx);
        let translated = self.translate.tx.beat.val();
        self.request.valid.next = self.translate.tx.valid.val();
        self.translate.tx.ready.next = self.request.ready.val();
        self.request.beat.next = HostWrite { address: translated.address, length: translated.rest };
        StreamTx::link(&mut self.words, &mut self.queue.tx);

        // Reports are queued; there are at most as many as owners.
        let outstanding = self.outstanding.q.val();
        let is_expected = outstanding.any();
        let reported = self.done_valid.val() && is_expected;
        let requested = self.translate.tx.valid.val() && self.request.ready.val();
        self.reports.rx.offer(reported, self.done_error.val());
        if requested && !reported {
            self.outstanding.d.next = outstanding + 1;
        } else if reported && !requested {
            self.outstanding.d.next = outstanding - 1;
        }

        // The oldest report counts the oldest write.
        let has_report = self.reports.tx.valid.val();
        let has_owner = self.owners.tx.valid.val();
        let is_done = has_report && has_owner;
        self.watch.is_waiting.next = has_owner && !has_report;
        self.watch.limit.next = self.limit.val();
        self.watch.pauses.next = self.pauses.val();
        self.is_overdue.next = self.watch.is_overdue.val();
        let is_refused = self.reports.tx.beat.val();
        let owner = self.owners.tx.beat.val();
        let is_failure = report_of(owner.owner, is_refused) == Report::Failure;
        let counts = is_done && (!is_failure || self.write_failure.ready.val());
        self.reports.tx.ready.next = counts;
        self.owners.tx.ready.next = counts;
        let count = match owner.owner {
            WriteOwner::Payload => self.done[0].q.val(),
            WriteOwner::Completion => self.done[1].q.val(),
            _ => self.done[2].q.val(),
        } + 1;
        self.write_failure.valid.next = is_done && is_failure;
        self.write_failure.beat.next = WriteFailure {
            owner: owner.owner,
            queue_pair: owner.queue_pair,
            generation: owner.generation,
            is_cqe: owner.is_cqe,
            completion_queue: owner.completion_queue,
            life: owner.life,
            is_response: owner.is_response,
            write_count: count,
        };
        if counts {
            match owner.owner {
                WriteOwner::Payload => self.done[0].d.next = count,
                WriteOwner::Completion => self.done[1].d.next = count,
                WriteOwner::Admin => self.done[2].d.next = count,
                WriteOwner::Atomics => {}
            }
        }
        self.atomics_is_done.d.next = counts && owner.owner == WriteOwner::Atomics;
        self.atomics_has_failed.d.next = is_refused;
        self.atomics_done.next = self.atomics_is_done.q.val();
        self.atomics_failed.next = self.atomics_has_failed.q.val();
        self.payload_has_failed.d.next = counts && is_refused && owner.owner == WriteOwner::Payload;
        self.payload_done_count.next = self.done[0].q.val();
        self.payload_failed.next = self.payload_has_failed.q.val();
        self.completion_done_count.next = self.done[1].q.val();
        self.admin_done_count.next = self.done[2].q.val();

        self.flight.d.next = in_flight_after(self.flight.q.val(), begins_write, counts);
        self.in_flight.next = self.flight.q.val();
        self.unexpected.d.next = self.done_valid.val() && !is_expected;
        self.is_unexpected.next = self.unexpected.q.val();
        self.counted.d.next =
            HostWriteCounts { host_writes: requested, host_write_errors: counts && is_refused };
        self.counts.next = self.counted.q.val();
        self.pools_held.d.next = HostWritePools { writes: level_of(self.flight.q.val()) };
        self.pools.next = self.pools_held.q.val();
    }
}

#[cfg(test)]
mod tests;
