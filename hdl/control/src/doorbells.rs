//! Doorbells: what software writes into its pages of BAR 2, checked against the owner of each object.
//!
//! A process may ring only for its own queues, and no process may make the card wait. So the owner of every object is kept here,
//! with the object's number and its page, and a doorbell that passes the check leaves as a message without `ready`.
//!
//! ```text
//!  write ──┬─────────────> whole? ─┐   ┌───────────────────┐ owner
//!          └─> low halves, one a ──┴──>│ queue pairs       ├──> number, page? ──> send_posted, receive_posted,
//!              page and doorbell       │ completion queues │                      completions_read, events_read
//!  page_write ────────────────────────>│ event queues, SRQs│                 └──> counts
//!                                      └───────────────────┘
//! ```
//!
//! A send doorbell of queue pair 5 as a whole, one of two halves, and one without its low half:
//! ```text
#![doc = include_str!("waves/doorbells.txt")]
//! ```
//!
//! Latency [`DOORBELL_CYCLES`] from `write` to the message. Throughput one write in two cycles; the slave needs four.
//!
//! 1. A doorbell reaches only an object whose number and page it names in full.
//! 2. Of two halves, the low one waits in the latch of its doorbell and page until a high half of both takes it, whatever is
//!    written to other doorbells meanwhile. A write of other bytes than a half or the whole is torn.
//! 3. While `enable` is low, writes are ignored.
//! 4. A doorbell that does nothing is counted once: torn, foreign or unknown. Each write to an offset without a doorbell, or to a
//!    page that this card does not have, is unknown; so is one to a push page, of which this card has none.
//!
//! An `arm` that has no meaning counts as `keep`; reserved bits are ignored. Design decisions 5 and 14.
use crate::messages::{DoorbellMessages, PageWrite, QUEUE_NUMBER_BITS, TableSweep};
use crate::object_store::Kind;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::ValidRx;
use rnic_kernel::prelude::*;
use rnic_messages::doorbell::{
    CompletionsRead, EventsRead, ReceivesPosted, SendsPosted, own_ring, shared_ring,
};
use rnic_messages::sizes::{
    COMPLETION_QUEUE_BITS, DOORBELL_PAGE_BITS, ENTRY_INDEX_BITS, EVENT_QUEUE_BITS, QUEUE_PAIR_BITS,
    SHARED_RECEIVE_BITS, WORK_INDEX_BITS, completion_queue_index, queue_pair_of, shared_receive_index, sizes,
};

/// Bits of a byte address in BAR 2.
pub const BAR2_BITS: usize = rnic_layout::pci::DOORBELL_BAR_BYTES.trailing_zeros() as usize;
/// Cycles from a write to its message.
pub const DOORBELL_CYCLES: usize = 4;
/// First bit of the number of the doorbell in an address, and its width.
const SELECT: usize = 3;
const SELECT_BITS: usize = 3;
/// Doorbells of a page.
const DOORBELLS: usize = rnic_layout::doorbell::DOORBELLS.len();
/// First bit of the page in an address.
const PAGE: usize = 12;
/// Bits of an address that must be zero: between doorbell and page, and above the pages that the card has, where push pages begin.
const BETWEEN: usize = SELECT + SELECT_BITS;
const BETWEEN_BITS: usize = PAGE - BETWEEN;
const ABOVE: usize = PAGE + DOORBELL_PAGE_BITS;
const ABOVE_BITS: usize = BAR2_BITS - ABOVE;

/// Numbers of doorbells, and offsets of their fields, in the form in which kernels can use them.
mod at {
    use rnic_layout::doorbell::{Arm, CompletionDoorbell, DOORBELLS, Doorbell, EventDoorbell, WorkDoorbell};
    use rnic_layout::limits;

    const fn number(doorbell: &Doorbell) -> u64 {
        doorbell.offset as u64 >> super::SELECT
    }

    pub(super) const SEND: u64 = number(&rnic_layout::doorbell::SEND);
    pub(super) const RECEIVE: u64 = number(&rnic_layout::doorbell::RECEIVE);
    pub(super) const SHARED_RECEIVE: u64 = number(&rnic_layout::doorbell::SHARED_RECEIVE);
    pub(super) const COMPLETION: u64 = number(&rnic_layout::doorbell::COMPLETION);
    pub(super) const EVENT: u64 = number(&rnic_layout::doorbell::EVENT);

    pub(super) const PRODUCER_INDEX: usize = WorkDoorbell::RECORD.field("producer_index").offset as usize;
    pub(super) const CONSUMER_INDEX: usize =
        CompletionDoorbell::RECORD.field("consumer_index").offset as usize;
    pub(super) const ARM: usize = CompletionDoorbell::RECORD.field("arm").offset as usize;
    pub(super) const EVENT_ARM: usize = EventDoorbell::RECORD.field("arm").offset as usize;
    pub(super) const ARM_LAST: u64 = Arm::Solicited as u64;

    const _: () = {
        assert!(EventDoorbell::RECORD.field("consumer_index").offset as usize == CONSUMER_INDEX);
        assert!(DOORBELLS.len() <= 1 << super::SELECT_BITS);
        assert!(SEND == 0 && RECEIVE == 1 && SHARED_RECEIVE == 2 && COMPLETION == 3 && EVENT == 4);
        assert!(limits::DOORBELL_PAGE_BYTES == 1 << super::PAGE);
        // The upper half of the BAR has the push pages.
        assert!(super::BAR2_BITS == super::PAGE + limits::DOORBELL_PAGES_LOG2_MAX as usize + 1);
        let mut index = 0;
        while index < DOORBELLS.len() {
            let number = DOORBELLS[index].record.field("object_number");
            assert!(number.offset == 0 && number.width as usize == super::QUEUE_NUMBER_BITS);
            index += 1;
        }
    };
}

/// Owner of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Owner {
    number: Bits<QUEUE_NUMBER_BITS>,
    page: Bits<DOORBELL_PAGE_BITS>,
    valid: Bit,
}

/// The low half of a doorbell.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Half {
    data: Bits<32>,
    valid: Bit,
}

/// A write of a doorbell.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Written {
    data: Bits<64>,
    doorbell: Bits<SELECT_BITS>,
    page: Bits<DOORBELL_PAGE_BITS>,
    /// It has only the high half.
    is_high: Bit,
}

/// What a write is, by its address and its strobe; at most one is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Access {
    /// A whole doorbell, or a high half.
    rings: Bit,
    /// A low half.
    keeps: Bit,
    /// Other bytes of a doorbell.
    tears: Bit,
    /// An address without a doorbell.
    misses: Bit,
}

/// What a whole doorbell does, by the owner of its object; at most one is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Verdict {
    sends: Bit,
    receives: Bit,
    completes: Bit,
    reads_events: Bit,
    /// The object is of another page.
    is_foreign: Bit,
    /// The object does not exist.
    is_unknown: Bit,
}

/// Doorbells that did nothing, one bit a counter; registered, one cycle each.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct DoorbellCounts {
    /// A doorbell for an object of another page.
    pub foreign: Bit,
    /// A doorbell for an object that does not exist, or a write where no doorbell is.
    pub unknown: Bit,
    /// A half of a doorbell without its other half, or a write of other bytes than a half or the whole.
    pub torn: Bit,
}

/// Checks doorbells.
#[clocked(reset = "drops writes that are in flight, and keeps the owners")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Doorbells {
    /// From the slave: a write, one cycle.
    pub write: Signal<In, Bit>,
    /// Byte address in BAR 2.
    pub write_address: Signal<In, Bits<BAR2_BITS>>,
    /// Data of the write.
    pub write_data: Signal<In, Bits<64>>,
    /// Bytes of `write_data` that are written.
    pub write_strobe: Signal<In, Bits<8>>,

    /// From the registers: doorbells are taken.
    pub enable: Signal<In, Bit>,
    /// From the reset: owners and half doorbells at an index of objects, and number of a page, are forgotten.
    pub sweep: Signal<In, TableSweep>,
    /// From the sequencer: the page that owns an object.
    pub page_write: ValidRx<PageWrite>,

    /// To the stages; registered.
    pub messages: DoorbellMessages,

    /// To the counters: doorbells that did nothing.
    pub counts: Signal<Out, DoorbellCounts>,

    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    queue_pairs: Memory<Owner, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().completion_queues))]
    completion_queues: Memory<Owner, COMPLETION_QUEUE_BITS>,
    #[init(Memory::default().with_words_log2(sizes().event_queues))]
    event_queues: Memory<Owner, EVENT_QUEUE_BITS>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().shared_receive_queues))]
    shared_receive_queues: Memory<Owner, SHARED_RECEIVE_BITS>,
    /// The latch of each page, by the number of the doorbell.
    halves: [Memory<Half, DOORBELL_PAGE_BITS>; DOORBELLS],

    /// A whole doorbell or a high half, whose low half is being read.
    taken: DFF<Written>,
    has_taken: Reg<Bit>,
    /// A whole doorbell, whose owner is being read.
    joined: DFF<Written>,
    has_joined: Reg<Bit>,
    /// A whole doorbell with its owner.
    looked: DFF<Written>,
    has_looked: Reg<Bit>,
    result: DFF<Written>,
    verdict: Reg<Verdict>,
    is_torn: Reg<Bit>,
    /// Writes where no doorbell is, which are counted as late as others.
    misses: Reg<Bits<3>>,
    /// A write of other bytes than a half or the whole.
    tears: Reg<Bit>,
}

/// Classifies a write to BAR 2.
#[kernel]
fn classify(address: Bits<BAR2_BITS>, strobe: Bits<8>) -> Access {
    let doorbell = address.get_bits::<SELECT_BITS>(SELECT);
    let is_doorbell = doorbell == at::SEND
        || doorbell == at::RECEIVE
        || doorbell == at::SHARED_RECEIVE
        || doorbell == at::COMPLETION
        || doorbell == at::EVENT;
    let is_mapped = is_doorbell
        && !address.get_bits::<BETWEEN_BITS>(BETWEEN).any()
        && !address.get_bits::<ABOVE_BITS>(ABOVE).any();
    let rings = strobe.all() || strobe == 0xf0;
    let keeps = strobe == 0x0f;
    Access {
        rings: is_mapped && rings,
        keeps: is_mapped && keeps,
        tears: is_mapped && strobe.any() && !rings && !keeps,
        misses: strobe.any() && !is_mapped,
    }
}

/// Tells whether the latch of doorbell and page holds the low half that a high half needs; a whole doorbell needs none.
#[kernel]
fn is_complete(taken: Written, half: Half) -> Bit {
    !taken.is_high || half.valid
}

/// Gives a whole doorbell: the data of the write, or its high half and the low half of the latch.
#[kernel]
fn join(taken: Written, half: Half) -> Written {
    let low = select(taken.is_high, half.data, taken.data.get_bits::<32>(0));
    Written { data: cat!(taken.data.get_bits::<32>(32), low), ..taken }
}

/// Decides what a whole doorbell does, by the owner that is kept at the index of its object.
#[kernel]
fn check(written: Written, owner: Owner) -> Verdict {
    let exists = owner.valid && owner.number == written.data.get_bits::<QUEUE_NUMBER_BITS>(0);
    let acts = exists && owner.page == written.page;
    let doorbell = written.doorbell;
    Verdict {
        sends: acts && doorbell == at::SEND,
        receives: acts && (doorbell == at::RECEIVE || doorbell == at::SHARED_RECEIVE),
        completes: acts && doorbell == at::COMPLETION,
        reads_events: acts && doorbell == at::EVENT,
        is_foreign: exists && !acts,
        is_unknown: !exists,
    }
}

/// Gives the receive queue of a doorbell: that of a queue pair, or an SRQ.
#[kernel]
fn receives_posted(written: Written) -> ReceivesPosted {
    ReceivesPosted {
        ring: if written.doorbell == at::SHARED_RECEIVE {
            shared_ring(shared_receive_index(written.data.get_bits::<QUEUE_NUMBER_BITS>(0)))
        } else {
            own_ring(queue_pair_of(written.data.get_bits::<QUEUE_NUMBER_BITS>(0)))
        },
        producer_index: written.data.get_bits::<WORK_INDEX_BITS>(at::PRODUCER_INDEX),
    }
}

/// Gives the message of a completion doorbell; an `arm` without meaning counts as `keep`.
#[kernel]
fn completions_read(written: Written) -> CompletionsRead {
    let arm = written.data.get_bits::<2>(at::ARM);
    CompletionsRead {
        completion_queue: completion_queue_index(written.data.get_bits::<QUEUE_NUMBER_BITS>(0)),
        consumer_index: written.data.get_bits::<ENTRY_INDEX_BITS>(at::CONSUMER_INDEX),
        arm: select(arm <= at::ARM_LAST, arm, bits::<2>(0)),
    }
}

impl Logic for Doorbells {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let clears = self.sweep.val().is_sweeping;
        let clear_index = self.sweep.val().index;

        // Owners.
        let page_write = self.page_write.value.val();
        let has_owner = self.page_write.valid.val();
        let new_owner = Owner { number: page_write.number, page: page_write.page, valid: page_write.valid };
        let owner = select(clears, Owner::default(), new_owner);
        let index = select(clears, clear_index, page_write.index);
        self.queue_pairs.write(clears || (has_owner && page_write.kind == Kind::QueuePair), index, owner);
        self.completion_queues.write_enable.next =
            clears || (has_owner && page_write.kind == Kind::CompletionQueue);
        self.completion_queues.write_address.next = index.get_bits::<COMPLETION_QUEUE_BITS>(0);
        self.completion_queues.write_data.next = owner;
        self.event_queues.write_enable.next = clears || (has_owner && page_write.kind == Kind::EventQueue);
        self.event_queues.write_address.next = index.get_bits::<EVENT_QUEUE_BITS>(0);
        self.event_queues.write_data.next = owner;
        self.shared_receive_queues.write_enable.next =
            clears || (has_owner && page_write.kind == Kind::SharedReceive);
        self.shared_receive_queues.write_address.next = index.get_bits::<SHARED_RECEIVE_BITS>(0);
        self.shared_receive_queues.write_data.next = owner;

        // Cycle 0: the write is classified, and the latches of its page are read.
        let address = self.write_address.val();
        let strobe = self.write_strobe.val();
        let is_write = self.write.val() && self.enable.val();
        let access = classify(address, strobe);
        let doorbell = address.get_bits::<SELECT_BITS>(SELECT);
        let page = address.get_bits::<DOORBELL_PAGE_BITS>(PAGE);
        self.misses.d.next = cat!(self.misses.q.val().get_bits::<2>(0), is_write && access.misses);
        self.tears.d.next = is_write && access.tears;
        self.has_taken.d.next = is_write && access.rings;
        self.taken.d.next = Written { data: self.write_data.val(), doorbell, page, is_high: !strobe.all() };

        // Cycle 1: the halves are joined, and the latch is written.
        let taken = self.taken.q.val();
        let has_taken = self.has_taken.q.val();
        let half = match taken.doorbell.to_u64() {
            at::RECEIVE => self.halves[1].read_data.val(),
            at::SHARED_RECEIVE => self.halves[2].read_data.val(),
            at::COMPLETION => self.halves[3].read_data.val(),
            at::EVENT => self.halves[4].read_data.val(),
            _ => self.halves[0].read_data.val(),
        };
        let joins = has_taken && is_complete(taken, half);
        self.is_torn.d.next = (has_taken && !joins) || self.tears.q.val();
        self.has_joined.d.next = joins;
        self.joined.d.next = join(taken, half);
        let uses = joins && taken.is_high;
        let keeps = is_write && access.keeps;
        let latch_page = if clears {
            clear_index.get_bits::<DOORBELL_PAGE_BITS>(0)
        } else if uses {
            taken.page
        } else {
            page
        };
        let latched = select(uses, taken.doorbell, doorbell);
        let kept = Half { data: self.write_data.val().get_bits::<32>(0), valid: true };
        for i in 0..DOORBELLS {
            self.halves[i].read(is_write && strobe.any(), page);
            self.halves[i].write_enable.next = clears || ((uses || keeps) && latched == i as u64);
            self.halves[i].write_address.next = latch_page;
            self.halves[i].write_data.next = select(clears || uses, Half::default(), kept);
        }

        // Cycle 2: the owner is read.
        let joined = self.joined.q.val();
        let has_joined = self.has_joined.q.val();
        self.queue_pairs.read(has_joined, queue_pair_of(joined.data.get_bits::<QUEUE_NUMBER_BITS>(0)));
        self.completion_queues.read(has_joined, joined.data.get_bits::<COMPLETION_QUEUE_BITS>(0));
        self.event_queues.read(has_joined, joined.data.get_bits::<EVENT_QUEUE_BITS>(0));
        self.shared_receive_queues.read(has_joined, joined.data.get_bits::<SHARED_RECEIVE_BITS>(0));
        self.has_looked.d.next = has_joined;
        self.looked.d.next = joined;

        // Cycle 3: the owner is compared.
        let looked = self.looked.q.val();
        let kept_owner = match looked.doorbell.to_u64() {
            at::COMPLETION => self.completion_queues.read_data.val(),
            at::EVENT => self.event_queues.read_data.val(),
            at::SHARED_RECEIVE => self.shared_receive_queues.read_data.val(),
            _ => self.queue_pairs.read_data.val(),
        };
        let none = Verdict::default();
        let verdict = select(self.has_looked.q.val(), check(looked, kept_owner), none);
        let is_unknown = verdict.is_unknown || self.misses.q.val().get_bit(2);
        self.result.d.next = looked;
        self.verdict.d.next = Verdict { is_unknown, ..verdict };

        // Cycle 4: the message leaves.
        let result = self.result.q.val();
        let done = self.verdict.q.val();
        self.messages.send_posted.value.next = SendsPosted {
            queue_pair: queue_pair_of(result.data.get_bits::<QUEUE_NUMBER_BITS>(0)),
            producer_index: result.data.get_bits::<WORK_INDEX_BITS>(at::PRODUCER_INDEX),
        };
        self.messages.send_posted.valid.next = done.sends;
        self.messages.receive_posted.offer(done.receives, receives_posted(result));
        self.messages.completions_read.offer(done.completes, completions_read(result));
        self.messages.events_read.value.next = EventsRead {
            event_queue: result.data.get_bits::<EVENT_QUEUE_BITS>(0),
            consumer_index: result.data.get_bits::<ENTRY_INDEX_BITS>(at::CONSUMER_INDEX),
            arm: result.data.get_bit(at::EVENT_ARM),
        };
        self.messages.events_read.valid.next = done.reads_events;
        self.counts.next =
            DoorbellCounts { foreign: done.is_foreign, unknown: done.is_unknown, torn: self.is_torn.q.val() };
    }
}

#[cfg(test)]
mod tests;
