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
//!    page that this card does not have, is unknown.
//!
//! An `arm` that has no meaning counts as `keep`; reserved bits are ignored. Design decisions 5 and 14.
use crate::messages::{PageWrite, QUEUE_NUMBER_BITS};
use crate::object_store::Kind;
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;
use rnic_messages::doorbell::{
    CompletionsRead, EventsRead, ReceivesPosted, SendsPosted, own_ring, shared_ring,
};
use rnic_messages::sizes::{
    COMPLETION_QUEUE_BITS, DOORBELL_PAGE_BITS, ENTRY_INDEX_BITS, EVENT_QUEUE_BITS, QUEUE_PAIR_BITS,
    SHARED_RECEIVE_BITS, WORK_INDEX_BITS,
};

/// Bits of a byte address in BAR 2.
pub const BAR2_BITS: usize = 24;
/// Cycles from a write to its message.
pub const DOORBELL_CYCLES: usize = 4;
/// First bit of the number of the doorbell in an address, and its width.
const SELECT: usize = 3;
const SELECT_BITS: usize = 3;
/// Doorbells of a page.
const DOORBELLS: usize = rnic_layout::doorbell::DOORBELLS.len();
/// First bit of the page in an address.
const PAGE: usize = 12;
/// Bits of an address that must be zero: between doorbell and page, and above the pages that the card has.
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
        assert!(super::BAR2_BITS == super::PAGE + limits::DOORBELL_PAGES_LOG2_MAX as usize);
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
#[derive(LogicBlock, Registers, Construct)]
pub struct Doorbells {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; drops writes that are in flight, and keeps the owners.
    pub reset: Signal<In, Bit>,

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
    /// From the reset: owners and half doorbells at `clear_index` are forgotten.
    pub clears: Signal<In, Bit>,
    /// Index of objects, and number of a page, to be cleared.
    pub clear_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From the sequencer: the page that owns an object.
    pub page_write: Signal<In, PageWrite>,
    /// `page_write` is valid in this cycle.
    pub page_write_valid: Signal<In, Bit>,

    /// To the requester: WQEs were posted to a send queue; registered.
    pub send_posted: Signal<Out, SendsPosted>,
    /// `send_posted` is valid in this cycle; registered.
    pub send_posted_valid: Signal<Out, Bit>,
    /// To the responder: WQEs were posted to a receive queue or an SRQ; registered.
    pub receive_posted: Signal<Out, ReceivesPosted>,
    /// `receive_posted` is valid in this cycle; registered.
    pub receive_posted_valid: Signal<Out, Bit>,
    /// To the completion stage: CQEs were polled, or the queue was armed; registered.
    pub completions_read: Signal<Out, CompletionsRead>,
    /// `completions_read` is valid in this cycle; registered.
    pub completions_read_valid: Signal<Out, Bit>,
    /// To the completion stage: EQEs were polled, or the queue was armed; registered.
    pub events_read: Signal<Out, EventsRead>,
    /// `events_read` is valid in this cycle; registered.
    pub events_read_valid: Signal<Out, Bit>,

    /// To the counters: doorbells that did nothing.
    pub counts: Signal<Out, DoorbellCounts>,

    queue_pairs: Memory<Owner, QUEUE_PAIR_BITS>,
    completion_queues: Memory<Owner, COMPLETION_QUEUE_BITS>,
    event_queues: Memory<Owner, EVENT_QUEUE_BITS>,
    #[init(Memory::new(Storage::Block))]
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
            shared_ring(written.data.get_bits::<SHARED_RECEIVE_BITS>(0))
        } else {
            own_ring(written.data.get_bits::<QUEUE_PAIR_BITS>(0))
        },
        producer_index: written.data.get_bits::<WORK_INDEX_BITS>(at::PRODUCER_INDEX),
    }
}

/// Gives the message of a completion doorbell; an `arm` without meaning counts as `keep`.
#[kernel]
fn completions_read(written: Written) -> CompletionsRead {
    let arm = written.data.get_bits::<2>(at::ARM);
    CompletionsRead {
        completion_queue: written.data.get_bits::<COMPLETION_QUEUE_BITS>(0),
        consumer_index: written.data.get_bits::<ENTRY_INDEX_BITS>(at::CONSUMER_INDEX),
        arm: select(arm <= at::ARM_LAST, arm, bits::<2>(0)),
    }
}

impl Logic for Doorbells {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let clears = self.clears.val();
        let clear_index = self.clear_index.val();

        // Owners.
        let page_write = self.page_write.val();
        let has_owner = self.page_write_valid.val();
        let new_owner = Owner { number: page_write.number, page: page_write.page, valid: page_write.valid };
        let owner = select(clears, Owner::default(), new_owner);
        let index = select(clears, clear_index, page_write.index);
        self.queue_pairs.write_enable.next = clears || (has_owner && page_write.kind == Kind::QueuePair);
        self.queue_pairs.write_address.next = index;
        self.queue_pairs.write_data.next = owner;
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
            self.halves[i].read_enable.next = is_write && strobe.any();
            self.halves[i].read_address.next = page;
            self.halves[i].write_enable.next = clears || ((uses || keeps) && latched == i as u64);
            self.halves[i].write_address.next = latch_page;
            self.halves[i].write_data.next = select(clears || uses, Half::default(), kept);
        }

        // Cycle 2: the owner is read.
        let joined = self.joined.q.val();
        let has_joined = self.has_joined.q.val();
        self.queue_pairs.read_enable.next = has_joined;
        self.queue_pairs.read_address.next = joined.data.get_bits::<QUEUE_PAIR_BITS>(0);
        self.completion_queues.read_enable.next = has_joined;
        self.completion_queues.read_address.next = joined.data.get_bits::<COMPLETION_QUEUE_BITS>(0);
        self.event_queues.read_enable.next = has_joined;
        self.event_queues.read_address.next = joined.data.get_bits::<EVENT_QUEUE_BITS>(0);
        self.shared_receive_queues.read_enable.next = has_joined;
        self.shared_receive_queues.read_address.next = joined.data.get_bits::<SHARED_RECEIVE_BITS>(0);
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
        self.send_posted.next = SendsPosted {
            queue_pair: result.data.get_bits::<QUEUE_PAIR_BITS>(0),
            producer_index: result.data.get_bits::<WORK_INDEX_BITS>(at::PRODUCER_INDEX),
        };
        self.send_posted_valid.next = done.sends;
        self.receive_posted.next = receives_posted(result);
        self.receive_posted_valid.next = done.receives;
        self.completions_read.next = completions_read(result);
        self.completions_read_valid.next = done.completes;
        self.events_read.next = EventsRead {
            event_queue: result.data.get_bits::<EVENT_QUEUE_BITS>(0),
            consumer_index: result.data.get_bits::<ENTRY_INDEX_BITS>(at::CONSUMER_INDEX),
            arm: result.data.get_bit(at::EVENT_ARM),
        };
        self.events_read_valid.next = done.reads_events;
        self.counts.next =
            DoorbellCounts { foreign: done.is_foreign, unknown: done.is_unknown, torn: self.is_torn.q.val() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, Random, Waves, random};
    use rnic_layout::doorbell::{
        Arm, COMPLETION, CompletionDoorbell, Doorbell, EVENT, EventDoorbell, RECEIVE, SEND, SHARED_RECEIVE,
        WorkDoorbell, offset_in_bar,
    };
    use std::collections::HashMap;

    fn bench() -> Bench<Doorbells> {
        let mut bench = Bench::clocked(Doorbells::default(), |block| &mut block.clock);
        bench.block.enable.next = true;
        bench
    }

    fn index_mask(kind: Kind) -> u64 {
        match kind {
            Kind::EventQueue => 0x1f,
            Kind::SharedReceive => 0x3f,
            _ => 0x3ff,
        }
    }

    /// What software notices.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Message {
        Send(SendsPosted),
        Receive(ReceivesPosted),
        Completions(CompletionsRead),
        Events(EventsRead),
    }

    #[derive(Debug, Default, PartialEq)]
    struct Outcome {
        messages: Vec<Message>,
        foreign: u32,
        unknown: u32,
        torn: u32,
    }

    impl Outcome {
        fn sample(&mut self, block: &Doorbells) {
            let offers = [
                (block.send_posted_valid.val(), Message::Send(block.send_posted.val())),
                (block.receive_posted_valid.val(), Message::Receive(block.receive_posted.val())),
                (block.completions_read_valid.val(), Message::Completions(block.completions_read.val())),
                (block.events_read_valid.val(), Message::Events(block.events_read.val())),
            ];
            self.messages.extend(offers.iter().filter(|offer| offer.0).map(|offer| offer.1));
            let counts = block.counts.val();
            self.foreign += u32::from(counts.foreign);
            self.unknown += u32::from(counts.unknown);
            self.torn += u32::from(counts.torn);
        }

        /// Follows the block for some cycles, of which the first one has the write.
        fn follow(&mut self, bench: &mut Bench<Doorbells>, cycles: usize) {
            for _ in 0..cycles {
                bench.settle();
                self.sample(&bench.block);
                bench.tick();
                bench.block.write.next = false;
            }
        }
    }

    /// The checks of doorbells in plain Rust, from the register manual.
    #[derive(Default)]
    struct Model {
        owners: HashMap<(u64, u64), (u64, u64)>,
        /// Low halves by page and offset.
        halves: HashMap<(u64, u64), u64>,
        outcome: Outcome,
    }

    impl Model {
        fn write(&mut self, address: u64, data: u64, strobe: u64) {
            let (page, offset) = (address >> 12, address & 0xfff & !7);
            if strobe == 0 {
                return;
            }
            let known =
                [SEND, RECEIVE, SHARED_RECEIVE, COMPLETION, EVENT].map(|doorbell| u64::from(doorbell.offset));
            if page >= 256 || !known.contains(&offset) {
                self.outcome.unknown += 1;
                return;
            }
            let whole = match strobe {
                0xff => Some(data),
                0x0f => {
                    self.halves.insert((page, offset), data & 0xffff_ffff);
                    return;
                }
                0xf0 => self.halves.remove(&(page, offset)).map(|low| data >> 32 << 32 | low),
                _ => None,
            };
            match whole {
                Some(whole) => self.ring(page, offset, whole),
                None => self.outcome.torn += 1,
            }
        }

        fn ring(&mut self, page: u64, offset: u64, data: u64) {
            let is = |doorbell: &Doorbell| u64::from(doorbell.offset) == offset;
            let kind = if is(&COMPLETION) {
                Kind::CompletionQueue
            } else if is(&EVENT) {
                Kind::EventQueue
            } else if is(&SHARED_RECEIVE) {
                Kind::SharedReceive
            } else {
                Kind::QueuePair
            };
            let number = data & 0xff_ffff;
            let index = number & index_mask(kind);
            match self.owners.get(&(kind as u64, index)) {
                Some(&(owned, own_page)) if owned == number && own_page == page => {}
                Some(&(owned, _)) if owned == number => return self.outcome.foreign += 1,
                _ => return self.outcome.unknown += 1,
            }
            let posted = SendsPosted { queue_pair: bits(index), producer_index: bits(data >> 32 & 0xffff) };
            let consumer_index = bits(data >> 32 & 0xff_ffff);
            self.outcome.messages.push(if is(&SEND) {
                Message::Send(posted)
            } else if is(&RECEIVE) || is(&SHARED_RECEIVE) {
                let first = if is(&SHARED_RECEIVE) { 1024 } else { 0 };
                let producer_index = posted.producer_index;
                Message::Receive(ReceivesPosted { ring: bits(first + index), producer_index })
            } else if is(&COMPLETION) {
                let arm = data >> 24 & 3;
                let arm = bits(if arm == 3 { 0 } else { arm });
                Message::Completions(CompletionsRead { completion_queue: bits(index), consumer_index, arm })
            } else {
                let arm = data >> 24 & 1 == 1;
                Message::Events(EventsRead { event_queue: bits(index), consumer_index, arm })
            });
        }
    }

    fn write(bench: &mut Bench<Doorbells>, address: u64, data: u64, strobe: u64) {
        bench.block.write.next = true;
        bench.block.write_address.next = bits(address);
        bench.block.write_data.next = bits(data);
        bench.block.write_strobe.next = bits(strobe);
    }

    fn own(bench: &mut Bench<Doorbells>, kind: Kind, number: u64, page: u64, valid: bool) {
        let index = number & index_mask(kind);
        let (index, page, number) = (bits(index), bits(page), bits(number));
        bench.block.page_write.next = PageWrite { kind, index, valid, page, number };
        bench.block.page_write_valid.next = true;
    }

    /// Few objects, so that doorbells meet one now and then, and indices that several numbers share.
    fn object(random: &mut Random) -> (Kind, u64) {
        let kinds = [Kind::QueuePair, Kind::CompletionQueue, Kind::EventQueue, Kind::SharedReceive];
        let kind = *kinds.choose(random).unwrap();
        let index = random.random_range(0..4) * 7;
        (kind, if kind == Kind::QueuePair { index | random.random_range(0..3) << 10 } else { index })
    }

    #[test]
    fn doorbells_reach_what_their_page_owns_and_nothing_else() {
        let mut random = random();
        let mut bench = bench().in_lock_step();
        let (mut model, mut outcome) = (Model::default(), Outcome::default());
        for _ in 0..6000 {
            // A doorbell meets an object as it is one or three cycles later, so objects change while nothing is on its way.
            if random.random_bool(0.05) {
                outcome.follow(&mut bench, DOORBELL_CYCLES);
                let (kind, number) = object(&mut random);
                let page = random.random_range(0..4);
                let valid = random.random_bool(0.8);
                let index = number & index_mask(kind);
                own(&mut bench, kind, number, page, valid);
                match valid {
                    true => model.owners.insert((kind as u64, index), (number, page)),
                    false => model.owners.remove(&(kind as u64, index)),
                };
                bench.tick();
                bench.block.page_write_valid.next = false;
            }
            let enable = random.random_bool(0.97);
            bench.block.enable.next = enable;
            let doorbell = [SEND, RECEIVE, SHARED_RECEIVE, COMPLETION, EVENT].choose(&mut random).unwrap();
            let page = if random.random_bool(0.02) { 256 } else { random.random_range(0..4) };
            let noise = if random.random_bool(0.05) { 8 << random.random_range(0..6) } else { 0 };
            // Every other doorbell is one for an object that is there.
            let owners: Vec<_> = model.owners.iter().collect();
            let owner = owners.choose(&mut random).filter(|_| random.random());
            let (doorbell, page, number) = match owner {
                Some(((kind, _), (number, page))) if *kind == Kind::CompletionQueue as u64 => {
                    (&COMPLETION, *page, *number)
                }
                Some(((kind, _), (number, page))) if *kind == Kind::EventQueue as u64 => {
                    (&EVENT, *page, *number)
                }
                Some(((kind, _), (number, page))) if *kind == Kind::SharedReceive as u64 => {
                    (&SHARED_RECEIVE, *page, *number)
                }
                Some((_, (number, page))) => (&SEND, *page, *number),
                None => (doorbell, page, object(&mut random).1),
            };
            let address = offset_in_bar(page as u32, doorbell) ^ noise;
            let data = number | random.random::<u64>() << 24;
            let strobe = *[0xff, 0xff, 0x0f, 0x0f, 0xf0, 0xf0, 0x3c, 0].choose(&mut random).unwrap();
            write(&mut bench, address, data, strobe);
            if enable {
                model.write(address, data, strobe);
            }
            outcome.follow(&mut bench, random.random_range(2..5));
        }
        outcome.follow(&mut bench, DOORBELL_CYCLES);
        assert_eq!(outcome, model.outcome);
        assert!(outcome.messages.len() > 500, "{} messages", outcome.messages.len());
        assert!(outcome.foreign > 100 && outcome.unknown > 100 && outcome.torn > 100);
    }

    /// Threads of four processes, each with a doorbell of its own, write halves in any order.
    #[test]
    fn pairs_of_halves_come_out_right_however_threads_interleave() {
        struct Thread {
            page: u64,
            doorbell: &'static Doorbell,
            number: u64,
            /// The doorbell whose low half is written.
            half: Option<u64>,
        }
        let mut random = random();
        let mut bench = bench().in_lock_step();
        let (mut model, mut outcome) = (Model::default(), Outcome::default());
        let mut threads = Vec::new();
        for page in 0..4 {
            for (doorbell, kind) in [
                (&SEND, Kind::QueuePair),
                (&RECEIVE, Kind::QueuePair),
                (&SHARED_RECEIVE, Kind::SharedReceive),
                (&COMPLETION, Kind::CompletionQueue),
                (&EVENT, Kind::EventQueue),
            ] {
                let number = page * 5 + u64::from(doorbell.offset) / 8;
                own(&mut bench, kind, number, page, true);
                bench.tick();
                model.owners.insert((kind as u64, number), (number, page));
                threads.push(Thread { page, doorbell, number, half: None });
            }
        }
        bench.block.page_write_valid.next = false;
        let mut pairs = 0;
        for _ in 0..4000 {
            let place = random.random_range(0..threads.len());
            let Thread { page, doorbell, number, half } = &mut threads[place];
            let address = offset_in_bar(*page as u32, doorbell);
            match half.take() {
                Some(data) => {
                    write(&mut bench, address, data & !0xffff_ffff, 0xf0);
                    model.ring(*page, doorbell.offset.into(), data);
                    pairs += 1;
                }
                None => {
                    let data = *number | random.random::<u64>() << 24;
                    if random.random_bool(0.2) {
                        write(&mut bench, address, data, 0xff);
                        model.ring(*page, doorbell.offset.into(), data);
                    } else {
                        write(&mut bench, address, data & 0xffff_ffff, 0x0f);
                        *half = Some(data);
                    }
                }
            }
            outcome.follow(&mut bench, random.random_range(2..5));
        }
        outcome.follow(&mut bench, DOORBELL_CYCLES);
        assert_eq!(outcome, model.outcome);
        assert_eq!((outcome.torn, outcome.foreign, outcome.unknown), (0, 0, 0));
        assert!(pairs > 1000, "{pairs} pairs");
    }

    #[test]
    fn a_write_rings_is_kept_tears_or_misses() {
        let none = Access::default();
        let rings = Access { rings: true, ..none };
        let keeps = Access { keeps: true, ..none };
        let tears = Access { tears: true, ..none };
        let misses = Access { misses: true, ..none };
        let last_page = 1 << (PAGE + DOORBELL_PAGE_BITS);
        for (address, strobe, expected) in [
            (offset_in_bar(3, &SEND), 0xff, rings),
            (offset_in_bar(3, &SEND), 0xf0, rings),
            (offset_in_bar(3, &SEND), 0x0f, keeps),
            (offset_in_bar(3, &SEND), 0x1f, tears),
            (offset_in_bar(3, &SEND), 0xf8, tears),
            (offset_in_bar(3, &SEND), 0, none),
            (offset_in_bar(3, &RECEIVE), 0xff, rings),
            (offset_in_bar(3, &SHARED_RECEIVE), 0xff, rings),
            (offset_in_bar(3, &COMPLETION), 0xff, rings),
            (offset_in_bar(3, &EVENT), 0xff, rings),
            (last_page - 0x1000 + u64::from(SEND.offset), 0xff, rings),
            (last_page + u64::from(SEND.offset), 0xff, misses),
            (last_page + u64::from(SEND.offset), 0, none),
            (u64::from(SEND.offset) | 1 << BETWEEN, 0x0f, misses),
        ] {
            assert_eq!(classify(bits(address), bits(strobe)), expected, "{address:x} {strobe:x}");
        }
    }

    #[test]
    fn a_high_half_needs_a_low_half() {
        let taken = |is_high| Written {
            data: bits(0x1111_1111_2222_2222),
            doorbell: bits(at::SEND),
            is_high,
            ..Written::default()
        };
        for (is_high, valid, complete, data) in [
            (false, false, true, 0x1111_1111_2222_2222u64),
            (false, true, true, 0x1111_1111_2222_2222),
            (true, true, true, 0x1111_1111_3333_3333),
            (true, false, false, 0x1111_1111_3333_3333),
        ] {
            let half = Half { data: bits(0x3333_3333), valid };
            assert_eq!(is_complete(taken(is_high), half), complete);
            assert_eq!(join(taken(is_high), half).data, bits(data));
        }
    }

    #[test]
    fn a_doorbell_acts_if_number_and_page_are_those_of_the_owner() {
        let owner = |number: u64, page: u64, valid| Owner { number: bits(number), page: bits(page), valid };
        let none = Verdict::default();
        let unknown = Verdict { is_unknown: true, ..none };
        for (doorbell, owner, expected) in [
            (at::SEND, owner(0x40_0005, 7, true), Verdict { sends: true, ..none }),
            (at::RECEIVE, owner(0x40_0005, 7, true), Verdict { receives: true, ..none }),
            (at::SHARED_RECEIVE, owner(0x40_0005, 7, true), Verdict { receives: true, ..none }),
            (at::COMPLETION, owner(0x40_0005, 7, true), Verdict { completes: true, ..none }),
            (at::EVENT, owner(0x40_0005, 7, true), Verdict { reads_events: true, ..none }),
            (at::SEND, owner(0x40_0005, 6, true), Verdict { is_foreign: true, ..none }),
            (at::SEND, owner(0x41_0005, 7, true), unknown),
            (at::SEND, owner(0x41_0005, 6, true), unknown),
            (at::SEND, owner(0x40_0005, 7, false), unknown),
        ] {
            let written = Written {
                data: bits(9 << 32 | 0x40_0005),
                doorbell: bits(doorbell),
                page: bits(7),
                is_high: false,
            };
            assert_eq!(check(written, owner), expected, "{doorbell} {owner:?}");
        }
    }

    #[test]
    fn layout_and_hardware_agree_on_every_doorbell() {
        let mut bench = bench();
        for (kind, number) in [
            (Kind::QueuePair, 0xab_cd05),
            (Kind::CompletionQueue, 0x3ff),
            (Kind::EventQueue, 31),
            (Kind::SharedReceive, 63),
        ] {
            own(&mut bench, kind, number, 0xfe, true);
            bench.tick();
        }
        bench.block.page_write_valid.next = false;
        let word = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
        let work = WorkDoorbell { object_number: 0xab_cd05, producer_index: 0x8001 };
        let completion =
            CompletionDoorbell { object_number: 0x3ff, arm: Arm::Solicited, consumer_index: 0xff_fffe };
        let event = EventDoorbell { object_number: 31, arm: true, consumer_index: 0x12_3456 };
        let posted = SendsPosted { queue_pair: bits(0x105), producer_index: bits(0x8001) };
        let shared = WorkDoorbell { object_number: 63, producer_index: 0x8001 };
        let received =
            |ring| Message::Receive(ReceivesPosted { ring: bits(ring), producer_index: bits(0x8001) });
        let cases = [
            (SEND, word(work.to_bytes().unwrap()), Message::Send(posted)),
            (RECEIVE, word(work.to_bytes().unwrap()), received(0x105)),
            (SHARED_RECEIVE, word(shared.to_bytes().unwrap()), received(1024 + 63)),
            (
                COMPLETION,
                word(completion.to_bytes().unwrap()),
                Message::Completions(CompletionsRead {
                    completion_queue: bits(0x3ff),
                    consumer_index: bits(0xff_fffe),
                    arm: bits(2),
                }),
            ),
            (
                EVENT,
                word(event.to_bytes().unwrap()),
                Message::Events(EventsRead {
                    event_queue: bits(31),
                    consumer_index: bits(0x12_3456),
                    arm: true,
                }),
            ),
        ];
        for (doorbell, data, message) in cases {
            let mut outcome = Outcome::default();
            write(&mut bench, offset_in_bar(0xfe, &doorbell), data, 0xff);
            for cycle in 0..=DOORBELL_CYCLES {
                bench.settle();
                assert_eq!(outcome.messages.len(), 0, "cycle {cycle}");
                outcome.sample(&bench.block);
                bench.tick();
                bench.block.write.next = false;
            }
            assert_eq!(outcome, Outcome { messages: vec![message], ..Outcome::default() });
        }
    }

    #[test]
    fn what_is_cleared_is_unknown_and_torn() {
        let mut bench = bench().in_lock_step();
        let send = offset_in_bar(2, &SEND);
        let all = [SEND, RECEIVE, SHARED_RECEIVE, COMPLETION, EVENT].map(|it| offset_in_bar(2, &it));
        own(&mut bench, Kind::QueuePair, 2, 2, true);
        for address in all {
            write(&mut bench, address, 2, 0x0f);
            bench.tick();
            bench.block.page_write_valid.next = false;
            bench.block.write.next = false;
            bench.tick();
        }
        bench.block.clears.next = true;
        bench.block.clear_index.next = bits(2);
        bench.tick();
        bench.block.clears.next = false;
        let mut outcome = Outcome::default();
        for (address, strobe) in all.map(|address| (address, 0xf0)).into_iter().chain([(send, 0xff)]) {
            write(&mut bench, address, 2, strobe);
            outcome.follow(&mut bench, DOORBELL_CYCLES + 1);
        }
        assert_eq!(outcome, Outcome { torn: 5, unknown: 1, ..Outcome::default() });
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("write").signal("write_data").when("write");
        let waves = waves.signal("write_strobe").when("write").signal("send_posted_valid");
        let waves = waves.signal("counts.torn");
        let mut bench = bench();
        own(&mut bench, Kind::QueuePair, 5, 1, true);
        bench.tick();
        bench.block.page_write_valid.next = false;
        let mut bench = bench.recording(waves);
        for cycle in 0..15 {
            bench.block.write.next = false;
            match cycle {
                1 => write(&mut bench, offset_in_bar(1, &SEND), 0x5, 0xff),
                4 => write(&mut bench, offset_in_bar(1, &SEND), 0x5, 0x0f),
                7 => write(&mut bench, offset_in_bar(1, &SEND), 0x1_0000_0000, 0xf0),
                10 => write(&mut bench, offset_in_bar(1, &SEND), 0x2_0000_0000, 0xf0),
                _ => {}
            }
            bench.tick();
        }
        bench.waves().expect("waves/doorbells.txt");
    }
}
