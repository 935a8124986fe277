//! RequestTable: keeps the requests of all queue pairs, and the results of their atomics, in slots.
//!
//! ```text
//!  read ──────> life, noted, arrived ──> one cycle later
//!  next_life, request, result ──> their records and slots
//!  fetch ─────> slot, value ──> one cycle later
//!  seek ──────> slot ──> one cycle later, in cycles without a fetch
//! ```
//!
//! 1. `read` is followed by at most one of `sets`, `stores` and `results`, which belongs to the queue pair that
//!    was read.
//! 2. A request stays in its slot until as many newer ones have come as its queue pair has slots, also when it was answered
//!    (protocol 3.5).
//! 3. Requests and results of another generation, or of a queue pair in a state without responses, are dropped.
use super::record::{Life, Slot, Value, slot_of};
use super::replay::{Noted, noted_after};
use crate::messages::AtomicResult;
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS, ReadRequest, numbered_read_place, read_place};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, READ_POOL_BITS, sizes};

/// Keeps requests and results.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct RequestTable {
    /// The records of `read_address` are read.
    pub reads: Signal<In, Bit>,
    /// Queue pair whose records are read.
    pub read_address: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Queue pair that was read, whose records are written.
    pub queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// After a reset: the records of `sweep` are cleared.
    pub clears: Signal<In, Bit>,
    /// Queue pair whose records are cleared.
    pub sweep: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// `next_life` is stored.
    pub sets: Signal<In, Bit>,
    /// Its requests are dropped.
    pub drops: Signal<In, Bit>,
    /// Attributes of the queue pair from now on.
    pub next_life: Signal<In, Life>,
    /// `request` is stored, if it is of this generation.
    pub stores: Signal<In, Bit>,
    /// A READ or an atomic.
    pub request: Signal<In, ReadRequest>,
    /// `result` is stored, if it is of this generation.
    pub results: Signal<In, Bit>,
    /// Result of an atomic.
    pub result: Signal<In, AtomicResult>,
    /// A slot of the queue pair is read.
    pub fetches: Signal<In, Bit>,
    /// Number of the slot.
    pub fetched: Signal<In, Bits<READ_SLOT_BITS>>,
    /// A slot is read for the finder, without its result; not with `fetches`.
    pub seeks: Signal<In, Bit>,
    /// Place of the slot in the pool.
    pub seek_place: Signal<In, Bits<READ_POOL_BITS>>,

    /// Attributes of the queue pair that was read.
    pub life: Signal<Out, Life>,
    /// Its requests.
    pub noted: Signal<Out, Noted>,
    /// `request` is stored, in this cycle.
    pub keeps_request: Signal<Out, Bit>,
    /// Free-running count of its results.
    pub arrived: Signal<Out, Bits<READ_COUNT_BITS>>,
    /// `result` is stored, in this cycle.
    pub keeps_value: Signal<Out, Bit>,
    /// The request that was read.
    pub slot: Signal<Out, Slot>,
    /// Its result, if it is an atomic.
    pub value: Signal<Out, Value>,

    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    lives: Memory<Life, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    noted_requests: Memory<Noted, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    arrived_counts: Memory<Bits<READ_COUNT_BITS>, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Ultra).with_words_log2(sizes().read_slots))]
    slots: Memory<Slot, READ_POOL_BITS>,
    #[init(Memory::new(Storage::Ultra).with_words_log2(sizes().read_slots))]
    values: Memory<Value, READ_POOL_BITS>,
}

impl Logic for RequestTable {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let queue_pair = self.queue_pair.val();
        let request = self.request.val();
        let result = self.result.val();
        let clears = self.clears.val();
        let swept = select(clears, self.sweep.val(), queue_pair);
        let empties = clears || self.drops.val();
        self.lives.read(self.reads.val(), self.read_address.val());
        self.noted_requests.read(self.reads.val(), self.read_address.val());
        self.arrived_counts.read(self.reads.val(), self.read_address.val());
        let life = self.lives.read_data.val();
        let noted = self.noted_requests.read_data.val();
        let arrived = self.arrived_counts.read_data.val();
        let stores = self.stores.val() && life.serves && life.generation == request.generation;
        let keeps_value = self.results.val() && life.serves && life.generation == result.generation;
        let next = self.next_life.val();
        self.lives.write(clears || self.sets.val(), swept, Life { serves: next.serves && !clears, ..next });
        let forgotten = Noted { is_full: false, ..Default::default() };
        self.noted_requests.write(empties || stores, swept, select(stores, noted_after(noted), forgotten));
        self.arrived_counts.write_enable.next = empties || keeps_value;
        self.arrived_counts.write_address.next = swept;
        self.arrived_counts.write_data.next = select(keeps_value, arrived + 1, bits::<READ_COUNT_BITS>(0));
        self.slots.write(stores, numbered_read_place(life.share, noted.count), slot_of(request));
        self.values.write_enable.next = keeps_value;
        self.values.write_address.next = read_place(life.share, result.slot);
        self.values.write_data.next = Value { original: result.original, has_failed: result.has_failed };
        let seeks = self.seeks.val();
        let fetched = read_place(life.share, self.fetched.val());
        self.slots.read(self.fetches.val() || seeks, select(seeks, self.seek_place.val(), fetched));
        self.values.read(self.fetches.val(), fetched);
        self.life.next = life;
        self.noted.next = noted;
        self.keeps_request.next = stores;
        self.arrived.next = arrived;
        self.keeps_value.next = keeps_value;
        self.slot.next = self.slots.read_data.val();
        self.value.next = self.values.read_data.val();
    }
}
