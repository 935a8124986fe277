//! Doorbells: what software writes into its page of BAR 2, checked against the page's owner.
//!
//! A process may ring for its own queues only, and nobody may make the card wait. So every object has an entry here, with
//! its whole number and its page, and a doorbell that has passed the check leaves as a message without `ready`.
//!
//! ```text
//!  write ──┬─────────────> whole? ─┐   ┌───────────────────┐ entry
//!          └─> low halves, ────────┴──>│ queue pairs       ├──> number, page? ──> send_posted, receive_posted,
//!              one a page              │ completion queues │                      completions_read, events_read
//!  page_write ────────────────────────>│ event queues      │                 └──> foreign, unknown, torn
//!                                      └───────────────────┘
//! ```
//!
//! A send doorbell of queue pair 5 as a whole, one of two halves, and one without its low half:
//! ```text
#![doc = include_str!("waves/doorbells.txt")]
//! ```
//!
//! Latency [`DOORBELL_CYCLES`] from `write` to the message; one write in two cycles, and the slave needs four.
//!
//! 1. A doorbell reaches only an object whose whole number and page are its own.
//! 2. Of two halves, the low one waits in the latch of its page, until a high half of the same doorbell takes it away. A write
//!    of other bytes than a half or the whole is torn.
//! 3. While `enable` is low, writes are ignored.
//! 4. A doorbell that does nothing is counted once: torn, foreign or unknown. Of an offset without a doorbell, and of a page that
//!    this card does not have, each write is unknown.
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
/// Cycles from a write to what follows from it.
pub const DOORBELL_CYCLES: usize = 4;
/// First bit of the number of the doorbell in an address, and its width.
const SELECT: usize = 3;
const SELECT_BITS: usize = 3;
/// First bit of the page in an address.
const PAGE: usize = 12;
/// Bits of an address that must be zero: between doorbell and page, and above the pages that the card has.
const BETWEEN: usize = SELECT + SELECT_BITS;
const BETWEEN_BITS: usize = PAGE - BETWEEN;
const ABOVE: usize = PAGE + DOORBELL_PAGE_BITS;
const ABOVE_BITS: usize = BAR2_BITS - ABOVE;

/// Where fields stand, in the form in which kernels can use them.
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

/// What is known of an object.
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
    doorbell: Bits<SELECT_BITS>,
    valid: Bit,
}

/// A write on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Written {
    data: Bits<64>,
    doorbell: Bits<SELECT_BITS>,
    page: Bits<DOORBELL_PAGE_BITS>,
    /// Its low half is in the latch.
    is_high: Bit,
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct Doorbells {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets writes on their way, but no owner.
    pub reset: Signal<In, Bit>,

    /// From the slave: write now.
    pub write: Signal<In, Bit>,
    /// Byte address in BAR 2.
    pub write_address: Signal<In, Bits<BAR2_BITS>>,
    /// What.
    pub write_data: Signal<In, Bits<64>>,
    /// Which bytes of it.
    pub write_strobe: Signal<In, Bits<8>>,

    /// From the registers: doorbells are taken.
    pub enable: Signal<In, Bit>,
    /// From the reset: objects and half doorbells of this index are forgotten.
    pub clears: Signal<In, Bit>,
    /// Which index.
    pub clear_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From the commands: which page owns an object.
    pub page_write: Signal<In, PageWrite>,
    /// There is one.
    pub page_write_valid: Signal<In, Bit>,

    /// Send queues that were filled; registered.
    pub send_posted: Signal<Out, SendsPosted>,
    /// There is one.
    pub send_posted_valid: Signal<Out, Bit>,
    /// Receive queues that were filled; registered.
    pub receive_posted: Signal<Out, ReceivesPosted>,
    /// There is one.
    pub receive_posted_valid: Signal<Out, Bit>,
    /// Completion queues that were read; registered.
    pub completions_read: Signal<Out, CompletionsRead>,
    /// There is one.
    pub completions_read_valid: Signal<Out, Bit>,
    /// Event queues that were read; registered.
    pub events_read: Signal<Out, EventsRead>,
    /// There is one.
    pub events_read_valid: Signal<Out, Bit>,

    /// A doorbell for an object of another page.
    pub counts_doorbell_foreign: Signal<Out, Bit>,
    /// A doorbell for nothing.
    pub counts_doorbell_unknown: Signal<Out, Bit>,
    /// A half without its other half.
    pub counts_doorbell_torn: Signal<Out, Bit>,

    queue_pairs: Memory<Owner, QUEUE_PAIR_BITS>,
    completion_queues: Memory<Owner, COMPLETION_QUEUE_BITS>,
    event_queues: Memory<Owner, EVENT_QUEUE_BITS>,
    #[init(Memory::new(Storage::Block))]
    shared_receive_queues: Memory<Owner, SHARED_RECEIVE_BITS>,
    halves: Memory<Half, DOORBELL_PAGE_BITS>,

    /// A write whose low half is being fetched.
    taken: DFF<Written>,
    has_taken: Reg<Bit>,
    /// A whole doorbell, whose owner is being fetched.
    joined: DFF<Written>,
    has_joined: Reg<Bit>,
    /// A whole doorbell, whose owner is there.
    looked: DFF<Written>,
    has_looked: Reg<Bit>,
    result: DFF<Written>,
    sends: Reg<Bit>,
    receives: Reg<Bit>,
    completes: Reg<Bit>,
    reads_events: Reg<Bit>,
    is_foreign: Reg<Bit>,
    is_unknown: Reg<Bit>,
    is_torn: Reg<Bit>,
    /// Writes to no doorbell, which are counted as late as others.
    misses: Reg<Bits<3>>,
    /// A write of other bytes than a half or the whole.
    tears: Reg<Bit>,
}

impl Logic for Doorbells {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let clears = self.clears.val();
        let clear_index = self.clear_index.val();

        // Owners.
        let owner = self.page_write.val();
        let writes_owner = self.page_write_valid.val();
        let entry = Owner { number: owner.number, page: owner.page, valid: owner.valid };
        let entry = select(clears, Owner::default(), entry);
        let index = select(clears, clear_index, owner.index);
        self.queue_pairs.write_enable.next = clears || (writes_owner && owner.kind == Kind::QueuePair);
        self.queue_pairs.write_address.next = index;
        self.queue_pairs.write_data.next = entry;
        self.completion_queues.write_enable.next =
            clears || (writes_owner && owner.kind == Kind::CompletionQueue);
        self.completion_queues.write_address.next = index.get_bits::<COMPLETION_QUEUE_BITS>(0);
        self.completion_queues.write_data.next = entry;
        self.event_queues.write_enable.next = clears || (writes_owner && owner.kind == Kind::EventQueue);
        self.event_queues.write_address.next = index.get_bits::<EVENT_QUEUE_BITS>(0);
        self.event_queues.write_data.next = entry;

        self.shared_receive_queues.write_enable.next =
            clears || (writes_owner && owner.kind == Kind::SharedReceive);
        self.shared_receive_queues.write_address.next = index.get_bits::<SHARED_RECEIVE_BITS>(0);
        self.shared_receive_queues.write_data.next = entry;

        // Cycle 0: what is written, and the low half that may have come before.
        let address = self.write_address.val();
        let strobe = self.write_strobe.val();
        let doorbell = address.get_bits::<SELECT_BITS>(SELECT);
        let is_doorbell = doorbell == at::SEND
            || doorbell == at::RECEIVE
            || doorbell == at::SHARED_RECEIVE
            || doorbell == at::COMPLETION
            || doorbell == at::EVENT;
        let is_place = is_doorbell
            && !address.get_bits::<BETWEEN_BITS>(BETWEEN).any()
            && !address.get_bits::<ABOVE_BITS>(ABOVE).any();
        let is_write = self.write.val() && self.enable.val() && strobe.any();
        let is_whole = strobe.all();
        let is_low = strobe == 0x0f;
        let is_high = strobe == 0xf0;
        let page = address.get_bits::<DOORBELL_PAGE_BITS>(PAGE);
        let keeps = is_write && is_place && is_low;
        self.misses.d.next = cat!(self.misses.q.val().get_bits::<2>(0), is_write && !is_place);
        let is_part = !is_whole && !is_low && !is_high;
        self.tears.d.next = is_write && is_place && is_part;
        self.has_taken.d.next = is_write && is_place && (is_whole || is_high);
        self.taken.d.next = Written { data: self.write_data.val(), doorbell, page, is_high };
        self.halves.read_enable.next = is_write;
        self.halves.read_address.next = page;

        // Cycle 1: the halves are joined.
        let taken = self.taken.q.val();
        let half = self.halves.read_data.val();
        let has_half = half.valid && half.doorbell == taken.doorbell;
        let joins = self.has_taken.q.val() && (!taken.is_high || has_half);
        let lacks_half = self.has_taken.q.val() && taken.is_high && !has_half;
        self.is_torn.d.next = lacks_half || self.tears.q.val();
        let low = select(taken.is_high, half.data, taken.data.get_bits::<32>(0));
        self.has_joined.d.next = joins;
        self.joined.d.next = taken;
        self.joined.d.next.data = cat!(taken.data.get_bits::<32>(32), low);
        let uses = joins && taken.is_high;
        self.halves.write_enable.next = clears || keeps || uses;
        self.halves.write_address.next = if clears {
            clear_index.get_bits::<DOORBELL_PAGE_BITS>(0)
        } else if uses {
            taken.page
        } else {
            page
        };
        let kept = Half { data: self.write_data.val().get_bits::<32>(0), doorbell, valid: true };
        self.halves.write_data.next = select(clears || uses, Half::default(), kept);

        // Cycle 2: whose it is.
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

        // Cycle 3: may it?
        let looked = self.looked.q.val();
        let has_looked = self.has_looked.q.val();
        let entry = match looked.doorbell.to_u64() {
            at::COMPLETION => self.completion_queues.read_data.val(),
            at::EVENT => self.event_queues.read_data.val(),
            at::SHARED_RECEIVE => self.shared_receive_queues.read_data.val(),
            _ => self.queue_pairs.read_data.val(),
        };
        let exists = entry.valid && entry.number == looked.data.get_bits::<QUEUE_NUMBER_BITS>(0);
        let is_own = entry.page == looked.page;
        let acts = has_looked && exists && is_own;
        self.result.d.next = looked;
        self.sends.d.next = acts && looked.doorbell == at::SEND;
        self.receives.d.next =
            acts && (looked.doorbell == at::RECEIVE || looked.doorbell == at::SHARED_RECEIVE);
        self.completes.d.next = acts && looked.doorbell == at::COMPLETION;
        self.reads_events.d.next = acts && looked.doorbell == at::EVENT;
        self.is_foreign.d.next = has_looked && exists && !is_own;
        self.is_unknown.d.next = (has_looked && !exists) || self.misses.q.val().get_bit(2);

        // Cycle 4: it leaves.
        let result = self.result.q.val();
        let posted = SendsPosted {
            queue_pair: result.data.get_bits::<QUEUE_PAIR_BITS>(0),
            producer_index: result.data.get_bits::<WORK_INDEX_BITS>(at::PRODUCER_INDEX),
        };
        let consumer_index = result.data.get_bits::<ENTRY_INDEX_BITS>(at::CONSUMER_INDEX);
        let arm = result.data.get_bits::<2>(at::ARM);
        self.send_posted.next = posted;
        self.send_posted_valid.next = self.sends.q.val();
        self.receive_posted.next = ReceivesPosted {
            ring: if result.doorbell == at::SHARED_RECEIVE {
                shared_ring(result.data.get_bits::<SHARED_RECEIVE_BITS>(0))
            } else {
                own_ring(result.data.get_bits::<QUEUE_PAIR_BITS>(0))
            },
            producer_index: posted.producer_index,
        };
        self.receive_posted_valid.next = self.receives.q.val();
        self.completions_read.next = CompletionsRead {
            completion_queue: result.data.get_bits::<COMPLETION_QUEUE_BITS>(0),
            consumer_index,
            arm: select(arm <= at::ARM_LAST, arm, bits::<2>(0)),
        };
        self.completions_read_valid.next = self.completes.q.val();
        self.events_read.next = EventsRead {
            event_queue: result.data.get_bits::<EVENT_QUEUE_BITS>(0),
            consumer_index,
            arm: result.data.get_bit(at::EVENT_ARM),
        };
        self.events_read_valid.next = self.reads_events.q.val();
        self.counts_doorbell_foreign.next = self.is_foreign.q.val();
        self.counts_doorbell_unknown.next = self.is_unknown.q.val();
        self.counts_doorbell_torn.next = self.is_torn.q.val();
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
            self.foreign += u32::from(block.counts_doorbell_foreign.val());
            self.unknown += u32::from(block.counts_doorbell_unknown.val());
            self.torn += u32::from(block.counts_doorbell_torn.val());
        }
    }

    /// The same in plain Rust, from the register manual.
    #[derive(Default)]
    struct Model {
        owners: HashMap<(u64, u64), (u64, u64)>,
        halves: HashMap<u64, (u64, u64)>,
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
                    self.halves.insert(page, (offset, data & 0xffff_ffff));
                    return;
                }
                0xf0 => match self.halves.get(&page) {
                    Some(&(doorbell, low)) if doorbell == offset => {
                        self.halves.remove(&page);
                        Some(data >> 32 << 32 | low)
                    }
                    _ => None,
                },
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
                for _ in 0..DOORBELL_CYCLES {
                    bench.settle();
                    outcome.sample(&bench.block);
                    bench.tick();
                }
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
            for _ in 0..random.random_range(2..5) {
                bench.settle();
                outcome.sample(&bench.block);
                bench.tick();
                bench.block.write.next = false;
            }
        }
        for _ in 0..DOORBELL_CYCLES {
            bench.settle();
            outcome.sample(&bench.block);
            bench.tick();
        }
        assert_eq!(outcome, model.outcome);
        assert!(outcome.messages.len() > 500, "{} messages", outcome.messages.len());
        assert!(outcome.foreign > 100 && outcome.unknown > 100 && outcome.torn > 100);
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
        own(&mut bench, Kind::QueuePair, 2, 2, true);
        write(&mut bench, send, 2, 0x0f);
        bench.tick();
        bench.block.page_write_valid.next = false;
        bench.block.write.next = false;
        bench.block.clears.next = true;
        bench.block.clear_index.next = bits(2);
        bench.tick();
        bench.block.clears.next = false;
        let mut outcome = Outcome::default();
        for strobe in [0xf0, 0xff] {
            write(&mut bench, send, 2, strobe);
            for _ in 0..=DOORBELL_CYCLES {
                bench.settle();
                outcome.sample(&bench.block);
                bench.tick();
                bench.block.write.next = false;
            }
        }
        assert_eq!(outcome, Outcome { torn: 1, unknown: 1, ..Outcome::default() });
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("write").signal("write_data").when("write");
        let waves = waves.signal("write_strobe").when("write").signal("send_posted_valid");
        let waves = waves.signal("counts_doorbell_torn");
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
