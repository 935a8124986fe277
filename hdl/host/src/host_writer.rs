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
//!                └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! Latency 6 cycles from a write to `request`, 3 to its first word; one word of the datapath a cycle, also when each word is a write. From
//! `done_valid` to the count 3 cycles, one report a cycle. Up to 512 writes are in flight.
//! At 512 bits 1612 LUTs with those used as memory, 1096 FF, 8.5 RAMB36, 3 URAM, depth 6.
//!
//! 1. Writes are issued in the order in which `ready` took their first words; the words of one follow each other.
//! 2. Payload, completion and admin each have a count of their writes that are done, and count themselves those that were taken.
//!    `atomics` has a pulse for each, with whether it failed.
//! 3. A write that failed is given out as `write_failure` before it is counted, except for one of `atomics`; all counts wait until the
//!    failure is taken. That of a CQE names its queue. `payload_failed` is high in the first cycle in which `payload_done_count`
//!    counts a failed write.
//! 4. Bytes keep the lanes of their address; other lanes hold anything.
//! 5. A write that waits for words holds the others back: a client that begins a write has all of it.
//! 6. Addresses of `payload` and `atomics` may be in pages (see [`translate`](crate::translate)); those of `completion` and `admin` are
//!    device addresses, all 64 bits.
//!
//! A write of payload has 1 to 512 bytes and crosses no multiple of 512. Design 3.1, design decision 11.
use crate::translate::{Access, Translate};
use rnic_blocks::memory::Storage;
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Arbiter, Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{CqeOwner, PayloadWrite, SlotWrite, WordWrite, WriteFailure, WriteOwner};
use rnic_messages::protect::PageEntryWrite;
use rnic_messages::setup::{InFlight, in_flight_after};
use rnic_messages::sizes::{
    COMPLETION_LIFE_BITS, COMPLETION_QUEUE_BITS, GENERATION_BITS, LENGTH_BITS, QUEUE_PAIR_BITS,
    WRITE_COUNT_BITS,
};

/// Bytes of the word that an atomic changes.
const WORD_BYTES: u64 = 8;
/// log2 of the writes in flight at most.
const OWNERS: usize = 9;
const OWNER_COUNT: usize = OWNERS + 1;
/// log2 of the requests and of the words that wait for the host.
const REQUESTS: usize = 4;
const REQUEST_COUNT: usize = REQUESTS + 1;
const WORDS: usize = 5;
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
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct HostWriter<const DATA: usize, const BYTES: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all writes. The host must have done those before.
    pub reset: Signal<In, Bit>,

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
    pub page_write: Signal<In, PageEntryWrite>,
    /// `page_write` is valid in this cycle.
    pub page_write_valid: Signal<In, Bit>,

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

    /// Writes taken, and writes done; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// Counters; registered.
    pub counts: Signal<Out, HostWriteCounts>,

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
    #[init(Fifo::new(Storage::Block))]
    queue: Fifo<WriteWord<DATA>, WORDS, WORD_COUNT>,
    #[init(Fifo::new(Storage::Block))]
    owners: Fifo<Owner, OWNERS, OWNER_COUNT>,
    /// Whether the host refused each write that it has reported.
    #[init(Fifo::new(Storage::Block))]
    reports: Fifo<Bit, OWNERS, OWNER_COUNT>,
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
}

impl<const DATA: usize, const BYTES: usize> Logic for HostWriter<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // The arbiter changes clients between writes only.
        let payload = self.payload.beat.val();
        self.arbiter.rx[0].beat.next = payload_item::<DATA>(payload);
        self.arbiter.rx[0].valid.next = self.payload.valid.val();
        self.payload.ready.next = self.arbiter.rx[0].ready.val();
        self.arbiter.rx[1].beat.next =
            slot_item(self.completion.beat.val(), WriteOwner::Completion, BYTES as u64 + 2);
        self.arbiter.rx[1].valid.next = self.completion.valid.val();
        self.completion.ready.next = self.arbiter.rx[1].ready.val();
        self.arbiter.rx[2].beat.next = slot_item(self.admin.beat.val(), WriteOwner::Admin, BYTES as u64 + 2);
        self.arbiter.rx[2].valid.next = self.admin.valid.val();
        self.admin.ready.next = self.arbiter.rx[2].ready.val();
        self.arbiter.rx[3].beat.next = word_item(self.atomics.beat.val());
        self.arbiter.rx[3].valid.next = self.atomics.valid.val();
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
        self.owners.rx.valid.next = goes && begins;
        self.owners.rx.beat.next = item.owner;
        self.translate.page_write.next = self.page_write.val();
        self.translate.page_write_valid.next = self.page_write_valid.val();
        StreamTx::<Access<LENGTH_BITS>>::join(&mut self.requests.tx, &mut self.translate.rx);
        let translated = self.translate.tx.beat.val();
        self.request.valid.next = self.translate.tx.valid.val();
        self.translate.tx.ready.next = self.request.ready.val();
        self.request.beat.next = HostWrite { address: translated.address, length: translated.rest };
        StreamTx::<WriteWord<DATA>>::link(&mut self.words, &mut self.queue.tx);

        // Reports are queued; there are at most as many as owners.
        let outstanding = self.outstanding.q.val();
        let is_expected = outstanding.any();
        let reported = self.done_valid.val() && is_expected;
        let requested = self.translate.tx.valid.val() && self.request.ready.val();
        self.reports.rx.valid.next = reported;
        self.reports.rx.beat.next = self.done_error.val();
        if requested && !reported {
            self.outstanding.d.next = outstanding + 1;
        } else if reported && !requested {
            self.outstanding.d.next = outstanding - 1;
        }

        // The oldest report counts the oldest write.
        let is_done = self.reports.tx.valid.val() && self.owners.tx.valid.val();
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes_of, generates};
    use num_bigint::BigUint;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};
    use std::collections::VecDeque;

    /// A write that a client makes.
    #[derive(Clone, Debug, PartialEq)]
    struct Meant {
        owner: WriteOwner,
        address: u64,
        bytes: Vec<u8>,
        queue_pair: u64,
    }

    fn number<const N: usize>(bytes: &[u8]) -> Bits<N> {
        BigUint::from_bytes_le(bytes).into()
    }

    fn noise(count: usize, random: &mut Random) -> Vec<u8> {
        (0..count).map(|_| random.random()).collect()
    }

    fn payload(random: &mut Random) -> Meant {
        let offset = *[0, 1, 448, 511, random.random_range(0..512)].choose(random).unwrap();
        let longest = 512 - offset;
        let length = *[1, longest, 64.min(longest), random.random_range(1..=longest)].choose(random).unwrap();
        let address = random.random_range(0..1u64 << 50) << 9 | offset;
        let bytes = noise(length as usize, random);
        Meant { owner: WriteOwner::Payload, address, bytes, queue_pair: random.random_range(0..1024) }
    }

    fn slot(owner: WriteOwner, random: &mut Random) -> Meant {
        let length = *[16, 32, 64].choose(random).unwrap();
        let address = random.random_range(0..1u64 << 50) * length;
        let queue_pair = if owner == WriteOwner::Completion { random.random_range(0..1024) } else { 0 };
        Meant { owner, address, bytes: noise(length as usize, random), queue_pair }
    }

    fn word(random: &mut Random) -> Meant {
        let address = random.random_range(0..1u64 << 50) * 8;
        Meant { owner: WriteOwner::Atomics, address, bytes: noise(8, random), queue_pair: 0 }
    }

    fn words_of<const DATA: usize>(write: &Meant, random: &mut Random) -> Vec<PayloadWrite<DATA>> {
        let lanes = DATA / 8;
        let lane = write.address as usize % lanes;
        let mut bytes = noise(lane, random);
        bytes.extend(&write.bytes);
        let behind = bytes.len().wrapping_neg() % lanes;
        bytes.extend(noise(behind, random));
        let count = bytes.len() / lanes;
        let word = |(index, chunk): (usize, &[u8])| PayloadWrite {
            address: bits(write.address),
            length: bits(write.bytes.len() as u64),
            queue_pair: bits(write.queue_pair),
            generation: bits(write.queue_pair & 0xff),
            is_response: write.queue_pair.is_multiple_of(3),
            data: number(chunk),
            last: index + 1 == count,
        };
        bytes.chunks(lanes).enumerate().map(word).collect()
    }

    fn slot_write(write: &Meant, random: &mut Random) -> SlotWrite {
        let mut bytes = write.bytes.clone();
        let behind = 64 - bytes.len();
        bytes.extend(noise(behind, random));
        SlotWrite {
            address: bits(write.address),
            length: bits(write.bytes.len() as u64),
            data: number(&bytes),
            is_cqe: is_cqe(write),
            cqe: CqeOwner {
                completion_queue: bits(1023 - write.queue_pair),
                life: bits(write.queue_pair & 7),
                queue_pair: bits(write.queue_pair),
                generation: bits(write.queue_pair & 0xff),
            },
        }
    }

    /// A small write of the completion part is a CQE or an EQE.
    fn is_cqe(write: &Meant) -> bool {
        write.owner == WriteOwner::Completion && write.bytes.len() == 32
    }

    /// Four clients write at once; the host takes requests and words as it likes and reports late. Returns how many CQEs it refused.
    fn writes_arrive<const DATA: usize, const BYTES: usize>(
        count: usize,
        stalls: Stalls,
        random: &mut Random,
    ) -> usize {
        let writer = HostWriter::<DATA, BYTES>::default();
        let mut bench = Bench::clocked(writer, |block| &mut block.clock).in_lock_step();
        let meant = [
            (0..count).map(|_| payload(random)).collect::<Vec<_>>(),
            (0..count).map(|_| slot(WriteOwner::Completion, random)).collect(),
            (0..count / 4).map(|_| slot(WriteOwner::Admin, random)).collect(),
            (0..count).map(|_| word(random)).collect(),
        ];
        let words: Vec<_> = meant[0].iter().flat_map(|write| words_of::<DATA>(write, random)).collect();
        // A client that begins a write has all of it: the words of a write follow each other, one a cycle.
        let mut payload_source = Source::showing_next(words, stalls);
        let slots = |index: usize, random: &mut Random| {
            meant[index].iter().map(|write| slot_write(write, random)).collect::<Vec<_>>()
        };
        let mut completion_source = Source::showing_next(slots(1, random), stalls);
        let mut admin_source = Source::showing_next(slots(2, random), stalls);
        let word_write =
            |write: &Meant| WordWrite { address: bits(write.address), data: number(&write.bytes) };
        let mut atomics_source = Source::showing_next(meant[3].iter().map(word_write), stalls);
        let mut waiting = meant.clone().map(VecDeque::from);
        let (mut request_sink, mut word_sink, mut failure_sink) =
            (Sink::new(stalls), Sink::new(stalls), Sink::new(stalls));
        // Writes in the order in which they were taken, and what the host has of them.
        let mut taken: Vec<Meant> = Vec::new();
        let mut payload_begins = true;
        let (mut requests, mut got): (VecDeque<HostWrite>, Vec<WriteWord<DATA>>) = Default::default();
        let mut dones: VecDeque<(usize, bool)> = VecDeque::new();
        let (mut finished, mut failed) = (0, VecDeque::new());
        let (mut reported, mut failures, mut cqe_failures) = (0usize, 0, 0);
        let (mut counted_writes, mut counted_errors) = (0, 0);
        let total = meant.iter().map(Vec::len).sum::<usize>();
        let mut cycle = 0;
        let mut done_before = 0;
        let mut done_of = [0usize; 4];
        while done_before < total {
            assert!(cycle < 40_000, "the writer is stuck: {done_before} of {total}, {stalls:?}");
            let block = &mut bench.block;
            payload_source.drive(&mut block.payload, random);
            completion_source.drive(&mut block.completion, random);
            admin_source.drive(&mut block.admin, random);
            atomics_source.drive(&mut block.atomics, random);
            request_sink.drive(&mut block.request, random);
            word_sink.drive(&mut block.words, random);
            failure_sink.drive(&mut block.write_failure, random);
            let report = dones.front().filter(|done| done.0 <= cycle).copied();
            block.done_valid.next = report.is_some();
            block.done_error.next = report.is_some_and(|done| done.1);
            bench.settle();
            if let Some((_, error)) = report {
                dones.pop_front();
                reported += 1;
                if error {
                    failed.push_back(reported);
                }
            }
            let block = &bench.block;
            assert_eq!(
                block.in_flight.val().entered,
                bits(taken.len() as u64),
                "one cycle after it was taken"
            );
            if payload_source.sample(&block.payload) {
                let word = block.payload.beat.val();
                if payload_begins {
                    taken.push(waiting[0].pop_front().unwrap());
                }
                payload_begins = word.last;
            }
            if completion_source.sample(&block.completion) {
                taken.push(waiting[1].pop_front().unwrap());
            }
            if admin_source.sample(&block.admin) {
                taken.push(waiting[2].pop_front().unwrap());
            }
            if atomics_source.sample(&block.atomics) {
                taken.push(waiting[3].pop_front().unwrap());
            }
            if let Some(request) = request_sink.sample(&block.request) {
                requests.push_back(request);
            }
            if let Some(word) = word_sink.sample(&block.words) {
                got.push(word);
            }
            let mut failed_now = false;
            if let Some(failure) = failure_sink.sample(&block.write_failure) {
                let at = failed.pop_front().expect("a failure that the host reported");
                assert_eq!(done_before, at - 1, "the counts wait for the report");
                let write = &taken[at - 1];
                assert_eq!(failure.write_count, bits(done_of[write.owner as usize] as u64 + 1));
                failed_now = write.owner == WriteOwner::Payload;
                assert_eq!((failure.owner, failure.queue_pair), (write.owner, bits(write.queue_pair)));
                assert_eq!(failure.is_cqe, is_cqe(write), "a CQE is told from an EQE");
                if failure.is_cqe {
                    let queues = (failure.completion_queue, failure.life);
                    assert_eq!(queues, (bits(1023 - write.queue_pair), bits(write.queue_pair & 7)));
                    cqe_failures += 1;
                }
                failures += 1;
            }
            // The host has a request and all of its words.
            while let Some(end) = got.iter().position(|word| word.last).filter(|_| !requests.is_empty()) {
                let request = requests.pop_front().unwrap();
                let write = &taken[finished];
                assert_eq!(
                    (request.address.to_u64(), request.length.to_u64() as usize),
                    (write.address, write.bytes.len())
                );
                let bytes: Vec<u8> = got.drain(..=end).flat_map(|word| bytes_of(word.data)).collect();
                let lane = write.address as usize % (DATA / 8);
                assert_eq!(bytes.len(), (lane + write.bytes.len()).next_multiple_of(DATA / 8));
                assert_eq!(bytes[lane..lane + write.bytes.len()], write.bytes, "write {finished}");
                finished += 1;
                let due = dones.back().map_or(0, |done| done.0 + 1);
                dones.push_back((due.max(cycle + random.random_range(1..100)), random.random_bool(0.1)));
            }
            counted_writes += usize::from(block.counts.val().host_writes);
            counted_errors += usize::from(block.counts.val().host_write_errors);
            assert!(!block.is_unexpected.val());
            bench.tick();
            let block = &bench.block;
            let counts = [&block.payload_done_count, &block.completion_done_count, &block.admin_done_count];
            let [payload, completion, admin] = counts.map(|count| count.val().to_u64() as usize);
            let atomic_is_done = block.atomics_done.val();
            done_of = [payload, completion, admin, done_of[3] + usize::from(atomic_is_done)];
            done_before = done_of.iter().sum();
            let of = |owner| taken[..done_before].iter().filter(|write| write.owner == owner).count();
            let owners =
                [WriteOwner::Payload, WriteOwner::Completion, WriteOwner::Admin, WriteOwner::Atomics];
            assert_eq!(done_of, owners.map(of));
            if atomic_is_done && failed.front() == Some(&done_before) {
                failed.pop_front();
                failures += 1;
                assert!(block.atomics_failed.val(), "with its pulse");
            } else if atomic_is_done {
                assert!(!block.atomics_failed.val());
            }
            assert_eq!(block.payload_failed.val(), failed_now);
            assert!(done_before <= reported);
            cycle += 1;
        }
        bench.settle();
        counted_errors += usize::from(bench.block.counts.val().host_write_errors);
        assert_eq!(bench.block.in_flight.val().entered, bench.block.in_flight.val().left);
        assert_eq!((counted_writes, counted_errors), (total, failures));
        assert!(failures > 0);
        cqe_failures
    }

    #[test]
    fn a_small_write_has_as_many_words_as_its_length_fills() {
        // Bytes, log2 of the datapath's bits, words; whether 16 and 32 bytes are repeated.
        for ((bytes, data_log2), (words, has_16, has_32)) in [
            ((16, 6), (2, true, false)),
            ((32, 6), (4, false, true)),
            ((64, 6), (8, false, false)),
            ((16, 7), (1, true, false)),
            ((32, 7), (2, false, true)),
            ((64, 8), (2, false, false)),
            ((16, 9), (1, true, false)),
            ((32, 9), (1, false, true)),
            ((64, 9), (1, false, false)),
        ] {
            let write = SlotWrite { address: bits(0x40), length: bits(bytes), ..Default::default() };
            let item = slot_item(write, WriteOwner::Admin, data_log2);
            assert_eq!(item.words_left, bits(words - 1), "{bytes} bytes");
            assert_eq!((item.has_8, item.has_16, item.has_32), (false, has_16, has_32));
            assert_eq!((item.request.address, item.request.length), (bits(0x40), bits(bytes)));
            assert_eq!((item.owner.owner, item.last), (WriteOwner::Admin, true));
        }
    }

    #[test]
    fn small_data_is_repeated_in_every_lane_of_its_size() {
        let data: Vec<u8> = (1..=64).collect();
        let write = |length| SlotWrite {
            address: bits(0),
            length: bits(length),
            data: number(&data),
            ..Default::default()
        };
        let word = WordWrite { address: bits(0), data: number(&data[..8]) };
        for (item, bytes) in [
            (word_item(word), 8),
            (slot_item(write(16), WriteOwner::Completion, 9), 16),
            (slot_item(write(32), WriteOwner::Completion, 9), 32),
            (slot_item(write(64), WriteOwner::Completion, 9), 64),
        ] {
            assert_eq!(bytes_of(spread(item)), data[..bytes].repeat(64 / bytes), "{bytes} bytes");
        }
    }

    #[test]
    fn payload_and_atomics_may_be_in_pages_and_all_but_atomics_give_out_failures() {
        for (owner, is_paged, refused) in [
            (WriteOwner::Payload, true, Report::Failure),
            (WriteOwner::Completion, false, Report::Failure),
            (WriteOwner::Admin, false, Report::Failure),
            (WriteOwner::Atomics, true, Report::Count),
        ] {
            assert_eq!(may_be_paged(owner), is_paged);
            assert_eq!(report_of(owner, true), refused);
            assert_eq!(report_of(owner, false), Report::Count);
        }
    }

    #[test]
    fn writes_arrive_in_one_order_at_64_bits() {
        let mut random = random();
        let refused = Stalls::ALL.map(|stalls| writes_arrive::<64, 4>(40, stalls, &mut random));
        assert!(refused.iter().sum::<usize>() > 0, "no CQE was refused");
    }

    #[test]
    fn writes_arrive_in_one_order_at_512_bits() {
        let mut random = random();
        let refused = Stalls::ALL.map(|stalls| writes_arrive::<512, 7>(100, stalls, &mut random));
        assert!(refused.iter().sum::<usize>() > 0, "no CQE was refused");
    }

    #[test]
    fn every_width_of_the_card_is_generated() {
        generates(HostWriter::<128, 5>::default());
        generates(HostWriter::<256, 6>::default());
        assert!(HostWriter::<256, 7>::REFUSAL.is_some());
    }

    /// Eight small writes and eight of a word of payload, all at once, at a host that reports each as soon as it has it.
    #[test]
    fn latency_and_throughput_are_as_the_header_says() {
        let mut random = random();
        let mut bench = Bench::clocked(HostWriter::<512, 7>::default(), |block| &mut block.clock);
        let payload = PayloadWrite::<512> { length: bits(64), last: true, ..Default::default() };
        let mut payload = Source::showing_next([payload; 8], Stalls::None);
        let completion = SlotWrite { length: bits(32), ..Default::default() };
        let mut completion = Source::showing_next([completion; 8], Stalls::None);
        let (mut given, mut requested, mut counted) = (Vec::new(), Vec::new(), Vec::new());
        for cycle in 0..40 {
            let block = &mut bench.block;
            payload.drive(&mut block.payload, &mut random);
            completion.drive(&mut block.completion, &mut random);
            block.request.ready.next = true;
            block.words.ready.next = true;
            block.done_valid.next = requested.last() == Some(&(cycle - 1));
            bench.settle();
            let block = &bench.block;
            payload.sample(&block.payload);
            completion.sample(&block.completion);
            if block.words.valid.val() {
                given.push(cycle);
            }
            if block.request.valid.val() {
                requested.push(cycle);
            }
            let done = block.payload_done_count.val() + block.completion_done_count.val();
            counted.resize(done.to_u64() as usize, cycle);
            bench.tick();
        }
        assert_eq!(given, (3..3 + 16).collect::<Vec<_>>());
        assert_eq!(requested, (6..6 + 16).collect::<Vec<_>>());
        assert_eq!(counted, (7 + 3..7 + 3 + 16).collect::<Vec<_>>(), "reported a cycle after the request");
    }

    #[test]
    fn a_report_without_a_write_in_flight_changes_nothing() {
        let mut bench =
            Bench::clocked(HostWriter::<64, 4>::default(), |block| &mut block.clock).in_lock_step();
        bench.block.done_valid.next = true;
        bench.tick();
        bench.block.done_valid.next = false;
        bench.settle();
        assert!(bench.block.is_unexpected.val());
        (0..5).for_each(|_| bench.tick());
        assert_eq!(bench.block.in_flight.val().left, bits(0));
    }
}
