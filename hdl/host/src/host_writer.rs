//! Host writer: writes to host memory for four clients, in one order, and tells each what is done of its own.
//!
//! The host promises nothing about a write before it reports it done (design 3.1): so who announces one waits for that. The
//! host reports in the order of the requests, without saying which; the line of owners knows.
//!
//! ```text
//!                ┌─────────────────────────────────────────────────────────┐
//!  payload ─────>│ ┌─────────┐   ┌──────┐──> requests (Fifo) ──> Translate ┼──> request
//!  completion ──>│ │ Arbiter ├──>│ item │──> words (Fifo) ─────────────────┼──> words
//!  admin ───────>│ │ (writes)│   │      │──> owners (Fifo) ──┐             │
//!  exchange ────>│ └─────────┘   └──────┘                    v             │
//!                │                            dones ──> one at a time <────┼─── done (no ready)
//!                │                                           │             │
//!                │            three counts, a pulse, write_failure         │
//!                └─────────────────────────────────────────────────────────┘
//! ```
//!
//! Latency 6 cycles from a write to `request`, 3 to its first word; one word of the datapath a cycle, also when each word is a write. From `done` to
//! the count 3 cycles, one a cycle. Up to 512 writes are under way.
//! At 512 bits 1612 LUTs with those used as memory, 1096 FF, 8.5 RAMB36, 3 URAM, depth 6.
//!
//! 1. Writes are issued in the order in which `ready` took their first words; the words of one follow each other.
//! 2. Each client has a count of its own writes that are done, and itself counts those that were taken; `exchange` has a pulse
//!    for each, with whether it failed.
//! 3. A write that failed is reported before it is counted, but for one of `exchange`; all counts wait until the report is taken. `payload_failed` is up in
//!    the first cycle in which `payload_done_count` counts a failed one.
//! 4. Bytes keep the lanes of their address; other lanes hold anything.
//! 5. A write that waits for words holds the others back: who begins one has all of it.
//! 6. Addresses of `payload` and `exchange` may be in pages (see [`translate`](crate::translate)); the others are device addresses, all 64 bits.
//!
//! A write of payload has 1 to 512 bytes and crosses no multiple of 512. Design 3.1, design decision 11.
use crate::translate::{Access, Translate};
use rnic_blocks::memory::Storage;
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Arbiter, Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{PayloadWrite, SlotWrite, WordWrite, WriteFailure, WriteOwner};
use rnic_messages::protect::PageEntryWrite;
use rnic_messages::setup::InFlight;
use rnic_messages::sizes::{GENERATION_BITS, LENGTH_BITS, QUEUE_PAIR_BITS, WRITE_COUNT_BITS};

/// Bytes of a word of an atomic.
const WORD_BYTES: u64 = 8;
/// Writes under way at most, as a power of two.
const OWNERS: usize = 9;
const OWNER_COUNT: usize = OWNERS + 1;
/// Requests and words that wait for the host, as powers of two.
const REQUESTS: usize = 4;
const REQUEST_COUNT: usize = REQUESTS + 1;
const WORDS: usize = 5;
const WORD_COUNT: usize = WORDS + 1;

/// What the host is to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct HostWrite {
    /// Of the first byte.
    pub address: Bits<64>,
    /// In bytes, 1 to 512.
    pub length: Bits<LENGTH_BITS>,
}

/// A word of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WriteWord<const DATA: usize> {
    /// In the lanes of its address.
    pub data: Bits<DATA>,
    /// The last word of its write.
    pub last: Bit,
}

/// Whose write is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Owner {
    owner: WriteOwner,
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    generation: Bits<GENERATION_BITS>,
    is_answer: Bit,
}

/// A word of payload, or a whole small write.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Item {
    request: HostWrite,
    owner: Owner,
    data: Bits<512>,
    /// The data is less than 64 bytes, which are to stand in every lane that their address could mean.
    has_8: Bit,
    has_16: Bit,
    has_32: Bit,
    /// Words of it, less one.
    words_behind: Bits<3>,
    last: Bit,
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct HostWriter<const DATA: usize, const BYTES: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all writes. The host must have done those before.
    pub reset: Signal<In, Bit>,

    /// From place: payload. `ready` of all four is combinational.
    pub payload: StreamRx<PayloadWrite<DATA>>,
    /// From complete: completions and events.
    pub completion: StreamRx<SlotWrite>,
    /// From control: answers.
    pub admin: StreamRx<SlotWrite>,
    /// From exchange: words of atomics.
    pub exchange: StreamRx<WordWrite>,
    /// Writes of payload that are done; registered.
    pub payload_done_count: Signal<Out, Bits<WRITE_COUNT_BITS>>,
    /// That count has just moved, for a write that failed; registered.
    pub payload_failed: Signal<Out, Bit>,
    /// Completions and events that are done; registered.
    pub completion_done_count: Signal<Out, Bits<WRITE_COUNT_BITS>>,
    /// Answers that are done; registered.
    pub admin_done_count: Signal<Out, Bits<WRITE_COUNT_BITS>>,
    /// A word of an atomic is done; registered.
    pub exchange_done: Signal<Out, Bit>,
    /// It was refused; registered.
    pub exchange_failed: Signal<Out, Bit>,
    /// A write was refused by the host. A function of registers.
    pub write_failure: StreamTx<WriteFailure>,

    /// From control: an entry of the table of pages.
    pub page_write: Signal<In, PageEntryWrite>,
    pub page_write_valid: Signal<In, Bit>,

    /// To the host: requests; registered.
    pub request: StreamTx<HostWrite>,
    /// Their words, in the same order; registered.
    pub words: StreamTx<WriteWord<DATA>>,
    /// From the host: the oldest write is done.
    pub done_valid: Signal<In, Bit>,
    /// It was refused.
    pub done_error: Signal<In, Bit>,
    /// The host reported a write that was not under way: an error of the device; registered.
    pub is_unexpected: Signal<Out, Bit>,

    /// Writes taken, and writes done; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// Counter `host_writes`; registered.
    pub counts_host_writes: Signal<Out, Bit>,
    /// Counter `host_write_errors`; registered.
    pub counts_host_write_errors: Signal<Out, Bit>,

    arbiter: Arbiter<Item, 4>,
    /// The next word of payload begins a write.
    #[init(Reg::new(true))]
    payload_begins: Reg<Bit>,
    item: DFF<Item>,
    item_valid: Reg<Bit>,
    item_begins: DFF<Bit>,
    requests: Fifo<Access<LENGTH_BITS>, REQUESTS, REQUEST_COUNT>,
    translate: Translate<LENGTH_BITS>,
    #[init(Fifo::new(Storage::Block))]
    queue: Fifo<WriteWord<DATA>, WORDS, WORD_COUNT>,
    owners: Fifo<Owner, OWNERS, OWNER_COUNT>,
    dones: Fifo<Bit, OWNERS, OWNER_COUNT>,
    passed: Reg<InFlight>,
    /// Of payload, completions and answers.
    done: [Reg<Bits<WRITE_COUNT_BITS>>; 3],
    payload_has_failed: Reg<Bit>,
    exchange_is_done: Reg<Bit>,
    exchange_has_failed: Reg<Bit>,
    /// Requests at the host that it has not reported.
    under_way: Reg<Bits<OWNER_COUNT>>,
    unexpected: Reg<Bit>,
    writes: Reg<Bit>,
    write_errors: Reg<Bit>,
}

/// A small write as an item of a datapath with so many bits, as a power of two.
#[kernel]
fn item_of(write: SlotWrite, owner: Owner, data_log2: u64) -> Item {
    Item {
        request: HostWrite { address: write.address, length: bit_cast::<LENGTH_BITS, 7>(write.length) },
        owner,
        data: write.data,
        has_8: false,
        has_16: write.length.get_bit(4),
        has_32: write.length.get_bit(5),
        // Lengths are powers of two, so this is their quotient less one, or zero.
        words_behind: if (write.length >> (data_log2 - 3)).any() {
            ((write.length >> (data_log2 - 3)) - 1).get_bits::<3>(0)
        } else {
            bits(0)
        },
        last: true,
    }
}

impl<const DATA: usize, const BYTES: usize> Logic for HostWriter<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // A turn is a write.
        let payload = self.payload.beat.val();
        self.arbiter.rx[0].beat.next = Item {
            request: HostWrite { address: payload.address, length: payload.length },
            owner: Owner {
                owner: WriteOwner::Payload,
                queue_pair: payload.queue_pair,
                generation: payload.generation,
                is_answer: payload.is_answer,
            },
            data: bit_cast::<512, DATA>(payload.data),
            has_8: false,
            has_16: false,
            has_32: false,
            words_behind: bits(0),
            last: payload.last,
        };
        self.arbiter.rx[0].valid.next = self.payload.valid.val();
        self.payload.ready.next = self.arbiter.rx[0].ready.val();
        let completion = Owner {
            owner: WriteOwner::Completion,
            queue_pair: bits(0),
            generation: bits(0),
            is_answer: false,
        };
        self.arbiter.rx[1].beat.next = item_of(self.completion.beat.val(), completion, BYTES as u64 + 2);
        self.arbiter.rx[1].valid.next = self.completion.valid.val();
        self.completion.ready.next = self.arbiter.rx[1].ready.val();
        let admin =
            Owner { owner: WriteOwner::Admin, queue_pair: bits(0), generation: bits(0), is_answer: false };
        self.arbiter.rx[2].beat.next = item_of(self.admin.beat.val(), admin, BYTES as u64 + 2);
        self.arbiter.rx[2].valid.next = self.admin.valid.val();
        self.admin.ready.next = self.arbiter.rx[2].ready.val();
        let word = self.exchange.beat.val();
        self.arbiter.rx[3].beat.next = Item {
            request: HostWrite { address: word.address, length: bits::<LENGTH_BITS>(WORD_BYTES) },
            owner: Owner {
                owner: WriteOwner::Atomics,
                queue_pair: bits(0),
                generation: bits(0),
                is_answer: false,
            },
            data: bit_cast::<512, 64>(word.data),
            has_8: true,
            has_16: true,
            has_32: false,
            words_behind: bits(0),
            last: true,
        };
        self.arbiter.rx[3].valid.next = self.exchange.valid.val();
        self.exchange.ready.next = self.arbiter.rx[3].ready.val();
        self.arbiter.last.next = cat!(true, true, true, payload.last);

        // The item leaves word by word; the first one takes places for the request and its owner too.
        let item = self.item.q.val();
        let begins = self.item_begins.q.val();
        let has_places = self.requests.rx.ready.val() && self.owners.rx.ready.val();
        let goes = self.item_valid.q.val() && self.queue.rx.ready.val() && (!begins || has_places);
        let is_over = !item.words_behind.any();
        let takes = !self.item_valid.q.val() || (goes && is_over);
        self.arbiter.tx.ready.next = takes;
        let is_payload = self.arbiter.origin.val().get_bit(0);
        let came = takes && self.arbiter.tx.valid.val();
        let begins_write = came && (!is_payload || self.payload_begins.q.val());
        if takes {
            self.item.d.next = self.arbiter.tx.beat.val();
            self.item_valid.d.next = self.arbiter.tx.valid.val();
            self.item_begins.d.next = begins_write;
        } else if goes {
            self.item.d.next.data = item.data >> (DATA as u64);
            self.item.d.next.words_behind = item.words_behind - 1;
            self.item_begins.d.next = false;
        }
        if came && is_payload {
            self.payload_begins.d.next = payload.last;
        }
        let second_word = if item.has_8 { item.data.get_bits::<64>(0) } else { item.data.get_bits::<64>(64) };
        let low: Bits<128> = cat!(second_word, item.data.get_bits::<64>(0));
        let second = if item.has_16 { low } else { item.data.get_bits::<128>(128) };
        let half: Bits<256> = cat!(second, low);
        let upper = if item.has_16 || item.has_32 { half } else { item.data.get_bits::<256>(256) };
        let spread: Bits<512> = cat!(upper, half);
        self.queue.rx.valid.next = goes;
        self.queue.rx.beat.next =
            WriteWord::<DATA> { data: spread.get_bits::<DATA>(0), last: item.last && is_over };
        self.requests.rx.valid.next = goes && begins;
        self.requests.rx.beat.next = Access::<LENGTH_BITS> {
            address: item.request.address,
            is_payload: item.owner.owner == WriteOwner::Payload || item.owner.owner == WriteOwner::Atomics,
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

        // Reports wait here, at most as many as there are owners.
        let is_expected = self.under_way.q.val().any();
        let reported = self.done_valid.val() && is_expected;
        let requested = self.translate.tx.valid.val() && self.request.ready.val();
        self.dones.rx.valid.next = reported;
        self.dones.rx.beat.next = self.done_error.val();
        if requested && !reported {
            self.under_way.d.next = self.under_way.q.val() + 1;
        } else if reported && !requested {
            self.under_way.d.next = self.under_way.q.val() - 1;
        }

        let is_done = self.dones.tx.valid.val() && self.owners.tx.valid.val();
        let has_failed = self.dones.tx.beat.val();
        let owner = self.owners.tx.beat.val();
        let tells = has_failed && owner.owner != WriteOwner::Atomics;
        let counts = is_done && (!tells || self.write_failure.ready.val());
        self.dones.tx.ready.next = counts;
        self.owners.tx.ready.next = counts;
        self.write_failure.valid.next = is_done && tells;
        let count_with_it = match owner.owner {
            WriteOwner::Payload => self.done[0].q.val(),
            WriteOwner::Completion => self.done[1].q.val(),
            _ => self.done[2].q.val(),
        } + 1;
        let is_exchange = owner.owner == WriteOwner::Atomics;
        self.write_failure.beat.next = WriteFailure {
            owner: owner.owner,
            queue_pair: owner.queue_pair,
            generation: owner.generation,
            is_answer: owner.is_answer,
            write_count: count_with_it,
        };
        if counts {
            match owner.owner {
                WriteOwner::Payload => self.done[0].d.next = count_with_it,
                WriteOwner::Completion => self.done[1].d.next = count_with_it,
                WriteOwner::Admin => self.done[2].d.next = count_with_it,
                WriteOwner::Atomics => {}
            }
        }
        self.exchange_is_done.d.next = counts && is_exchange;
        self.exchange_has_failed.d.next = has_failed;
        self.exchange_done.next = self.exchange_is_done.q.val();
        self.exchange_failed.next = self.exchange_has_failed.q.val();
        self.payload_has_failed.d.next = counts && has_failed && owner.owner == WriteOwner::Payload;
        self.payload_done_count.next = self.done[0].q.val();
        self.payload_failed.next = self.payload_has_failed.q.val();
        self.completion_done_count.next = self.done[1].q.val();
        self.admin_done_count.next = self.done[2].q.val();

        let passed = self.passed.q.val();
        self.passed.d.next = InFlight {
            entered: if begins_write { passed.entered + 1 } else { passed.entered },
            left: if counts { passed.left + 1 } else { passed.left },
        };
        self.in_flight.next = passed;
        self.unexpected.d.next = self.done_valid.val() && !is_expected;
        self.is_unexpected.next = self.unexpected.q.val();
        self.writes.d.next = requested;
        self.counts_host_writes.next = self.writes.q.val();
        self.write_errors.d.next = counts && has_failed;
        self.counts_host_write_errors.next = self.write_errors.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Offers, bytes_of, generates};
    use num_bigint::BigUint;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, Random, Sink, Stalls, random};
    use std::collections::VecDeque;

    /// A write as a client means it.
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
        Meant { owner, address, bytes: noise(length as usize, random), queue_pair: 0 }
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
            is_answer: write.queue_pair.is_multiple_of(3),
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
        }
    }

    /// Four clients write at once; the host takes requests and words as it likes and reports late.
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
        // Who begins a write has all of it: the words of a write come one a cycle.
        let mut payload_source = Offers::new(words, stalls);
        let slots = |index: usize, random: &mut Random| {
            meant[index].iter().map(|write| slot_write(write, random)).collect::<Vec<_>>()
        };
        let mut completion_source = Offers::new(slots(1, random), stalls);
        let mut admin_source = Offers::new(slots(2, random), stalls);
        let word_write =
            |write: &Meant| WordWrite { address: bits(write.address), data: number(&write.bytes) };
        let mut exchange_source = Offers::new(meant[3].iter().map(word_write), stalls);
        let mut waiting = meant.clone().map(VecDeque::from);
        let (mut request_sink, mut word_sink, mut failure_sink) =
            (Sink::new(stalls), Sink::new(stalls), Sink::new(stalls));
        // Writes in the order in which they were taken, and what the host has of them.
        let mut taken: Vec<Meant> = Vec::new();
        let mut payload_begins = true;
        let (mut requests, mut got): (VecDeque<HostWrite>, Vec<WriteWord<DATA>>) = Default::default();
        let mut dones: VecDeque<(usize, bool)> = VecDeque::new();
        let (mut finished, mut failed) = (0, VecDeque::new());
        let (mut reported, mut failures) = (0usize, 0);
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
            exchange_source.drive(&mut block.exchange, random);
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
            if let Some(word) = payload_source.sample(&block.payload) {
                if payload_begins {
                    taken.push(waiting[0].pop_front().unwrap());
                }
                payload_begins = word.last;
            }
            if completion_source.sample(&block.completion).is_some() {
                taken.push(waiting[1].pop_front().unwrap());
            }
            if admin_source.sample(&block.admin).is_some() {
                taken.push(waiting[2].pop_front().unwrap());
            }
            if exchange_source.sample(&block.exchange).is_some() {
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
            counted_writes += usize::from(block.counts_host_writes.val());
            counted_errors += usize::from(block.counts_host_write_errors.val());
            assert!(!block.is_unexpected.val());
            bench.tick();
            let block = &bench.block;
            let counts = [&block.payload_done_count, &block.completion_done_count, &block.admin_done_count];
            let [payload, completion, admin] = counts.map(|count| count.val().to_u64() as usize);
            let has_exchanged = block.exchange_done.val();
            done_of = [payload, completion, admin, done_of[3] + usize::from(has_exchanged)];
            done_before = done_of.iter().sum();
            let of = |owner| taken[..done_before].iter().filter(|write| write.owner == owner).count();
            let owners =
                [WriteOwner::Payload, WriteOwner::Completion, WriteOwner::Admin, WriteOwner::Atomics];
            assert_eq!(done_of, owners.map(of));
            if has_exchanged && failed.front() == Some(&done_before) {
                failed.pop_front();
                failures += 1;
                assert!(block.exchange_failed.val(), "it is said which has failed");
            } else if has_exchanged {
                assert!(!block.exchange_failed.val());
            }
            assert_eq!(block.payload_failed.val(), failed_now);
            assert!(done_before <= reported);
            cycle += 1;
        }
        bench.settle();
        counted_errors += usize::from(bench.block.counts_host_write_errors.val());
        assert_eq!(bench.block.in_flight.val().entered, bench.block.in_flight.val().left);
        assert_eq!((counted_writes, counted_errors), (total, failures));
        assert!(failures > 0);
        cycle
    }

    #[test]
    fn writes_arrive_in_one_order_at_64_bits() {
        let mut random = random();
        for stalls in Stalls::ALL {
            writes_arrive::<64, 4>(40, stalls, &mut random);
        }
    }

    #[test]
    fn writes_arrive_in_one_order_at_512_bits() {
        let mut random = random();
        for stalls in Stalls::ALL {
            writes_arrive::<512, 7>(100, stalls, &mut random);
        }
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
        let mut payload = Offers::new([payload; 8], Stalls::None);
        let completion = SlotWrite { length: bits(32), ..Default::default() };
        let mut completion = Offers::new([completion; 8], Stalls::None);
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
    fn a_report_that_nobody_waits_for_changes_nothing() {
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
