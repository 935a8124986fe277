//! Posted receive WQEs: how many each ring holds, and whether an SRQ has fewer than its limit.
//!
//! ```text
//!  doorbell ──> producers ─────────────┐
//!  queue_pair, srq ──^                 - ──> has_posted, is_low
//!  receive_index, consumed of the SRQ ─┘        │
//!  srq_setup ──> limits, armed ─────────────────┘    limit_notices ──> srq_limit
//! ```
//!
//! The WQEs of a queue pair are counted a cycle after it is asked for, those of its SRQ a cycle later. A doorbell
//! is taken in any cycle and comes first: `empties` and `sets_srq` must be low then, as the memory of producer
//! indices has one write port.
//!
//! 1. A producer index that claims more WQEs than the ring has posts nothing.
//! 2. The event of a limit is raised once for each setting, as soon as there is room for its notice
//!    (protocol 4.5).
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{RegisterSlice, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::doorbell::{ReceivesPosted, own_ring, shared_ring};
use rnic_messages::setup::{SrqLimitNotice, SrqSetup, SrqSetupKind};
use rnic_messages::sizes::{
    GENERATION_BITS, QUEUE_PAIR_BITS, RECEIVE_RING_BITS, SHARED_RECEIVE_BITS, WORK_INDEX_BITS, sizes,
};

/// Attributes of an SRQ, set by commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct SrqPath {
    entries_log2: Bits<4>,
    limit: Bits<WORK_INDEX_BITS>,
    /// Generation of the limit.
    generation: Bits<GENERATION_BITS>,
}

/// Says whether a WQE is posted, and the producer index is within the ring.
#[kernel]
fn is_posted(posted: Bits<WORK_INDEX_BITS>, entries_log2: Bits<4>) -> Bit {
    posted.any() && posted <= bits::<WORK_INDEX_BITS>(1) << entries_log2
}

/// Says whether fewer WQEs than the limit are left before or after the next is taken, even if none is posted.
#[kernel]
fn is_below_limit(posted: Bits<WORK_INDEX_BITS>, limit: Bits<WORK_INDEX_BITS>, has_posted: Bit) -> Bit {
    posted <= limit || !has_posted
}

/// Counts posted receive WQEs; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct PostedWqes {
    /// From the doorbells.
    pub receive_posted: ValidRx<ReceivesPosted>,

    /// `queue_pair` is asked for.
    pub asks: Signal<In, Bit>,
    /// A queue pair.
    pub queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// A cycle later: `srq` is asked for.
    pub asks_srq: Signal<In, Bit>,
    /// The SRQ of that queue pair; valid until the packet is decided.
    pub srq: Signal<In, Bits<SHARED_RECEIVE_BITS>>,
    /// A cycle after `asks_srq`: the answers are those of the SRQ, else of the ring of the queue pair itself.
    pub is_of_srq: Signal<In, Bit>,
    /// Free-running count of WQEs that were consumed of the ring of the queue pair itself.
    pub receive_index: Signal<In, Bits<WORK_INDEX_BITS>>,
    /// log2 of the WQEs of that ring.
    pub entries_log2: Signal<In, Bits<4>>,
    /// A WQE is posted; combinational from the three inputs before.
    pub has_posted: Signal<Out, Bit>,
    /// The event of the limit of the SRQ is due if a WQE is needed; combinational as `has_posted`.
    pub is_low: Signal<Out, Bit>,

    /// A WQE of `srq` is taken.
    pub takes_srq_wqe: Signal<In, Bit>,
    /// The limit of `srq` is reached.
    pub reaches_limit: Signal<In, Bit>,
    /// To control: SRQs that hold fewer WQEs than their limit; registered.
    pub srq_limit: StreamTx<SrqLimitNotice>,

    /// The ring of the queue pair `emptied` starts anew.
    pub empties: Signal<In, Bit>,
    /// A queue pair.
    pub emptied: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// `srq_setup` is applied.
    pub sets_srq: Signal<In, Bit>,
    /// Setup of an SRQ.
    pub srq_setup: Signal<In, SrqSetup>,

    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    producers: Memory<Bits<WORK_INDEX_BITS>, RECEIVE_RING_BITS>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().shared_receive_queues))]
    srq_paths: Memory<SrqPath, SHARED_RECEIVE_BITS>,
    /// Free-running count of WQEs that were consumed of an SRQ.
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().shared_receive_queues))]
    srq_consumed: Memory<Bits<WORK_INDEX_BITS>, SHARED_RECEIVE_BITS>,
    /// The event of the limit of an SRQ is armed.
    #[init(Memory::new(Storage::Distributed).with_words_log2(sizes().shared_receive_queues))]
    armed: Memory<Bit, SHARED_RECEIVE_BITS>,
    limit_notices: RegisterSlice<SrqLimitNotice>,
}

impl Logic for PostedWqes {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.srq_limit, &mut self.limit_notices.tx);
        let asks = self.asks.val();
        let asks_srq = self.asks_srq.val();
        let srq = self.srq.val();
        self.producers.read_enable.next = asks || asks_srq;
        self.producers.read_address.next =
            if asks { own_ring(self.queue_pair.val()) } else { shared_ring(srq) };
        self.srq_paths.read(asks_srq, srq);
        self.srq_consumed.read(asks_srq, srq);
        self.armed.read(asks_srq, srq);

        let is_of_srq = self.is_of_srq.val();
        let srq_path = self.srq_paths.read_data.val();
        let srq_consumed = self.srq_consumed.read_data.val();
        let posted_count =
            self.producers.read_data.val() - select(is_of_srq, srq_consumed, self.receive_index.val());
        let has_posted =
            is_posted(posted_count, select(is_of_srq, srq_path.entries_log2, self.entries_log2.val()));
        let is_below = is_below_limit(posted_count, srq_path.limit, has_posted);
        self.has_posted.next = has_posted;
        self.is_low.next = is_below && self.armed.read_data.val();

        let reaches_limit = self.reaches_limit.val();
        let notifies_limit = reaches_limit && self.limit_notices.rx.ready.val();
        self.limit_notices.rx.valid.next = reaches_limit;
        self.limit_notices.rx.beat.next = SrqLimitNotice { srq, limit_generation: srq_path.generation };

        let setup = self.srq_setup.val();
        let sets_srq = self.sets_srq.val();
        let restarts_srq = sets_srq && setup.kind == SrqSetupKind::Restart;
        self.srq_paths.write_enable.next = sets_srq;
        self.srq_paths.write_address.next = setup.srq;
        self.srq_paths.write_data.next = SrqPath {
            entries_log2: setup.entries_log2,
            limit: setup.limit,
            generation: setup.limit_generation,
        };
        self.armed.write_enable.next = sets_srq || notifies_limit;
        self.armed.write_address.next = select(notifies_limit, srq, setup.srq);
        self.armed.write_data.next = !notifies_limit && setup.limit.any();
        let takes_srq_wqe = self.takes_srq_wqe.val();
        self.srq_consumed.write_enable.next = restarts_srq || takes_srq_wqe;
        self.srq_consumed.write_address.next = select(takes_srq_wqe, srq, setup.srq);
        self.srq_consumed.write_data.next =
            select(takes_srq_wqe, srq_consumed + 1, bits::<WORK_INDEX_BITS>(0));
        let posted = self.receive_posted.value.val();
        let rings = self.receive_posted.valid.val();
        self.producers.write_enable.next = rings || self.empties.val() || restarts_srq;
        self.producers.write_address.next = if rings {
            posted.ring
        } else if restarts_srq {
            shared_ring(setup.srq)
        } else {
            own_ring(self.emptied.val())
        };
        self.producers.write_data.next = select(rings, posted.producer_index, bits::<WORK_INDEX_BITS>(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_index_beyond_the_ring_posts_nothing() {
        for (posted, entries_log2, expected) in [
            (0, 6, false),
            (1, 6, true),
            (64, 6, true),
            (65, 6, false),
            (0x8000, 15, true),
            (0x8001, 15, false),
            (0xffff, 15, false),
        ] {
            assert_eq!(is_posted(bits(posted), bits(entries_log2)), expected, "{posted} of 2^{entries_log2}");
        }
    }

    /// Protocol 4.5: before or after the next WQE is taken, fewer than the limit are left.
    #[test]
    fn the_limit_is_reached_when_one_more_wqe_leaves_fewer() {
        for (posted, limit, has_posted, expected) in [
            (5, 4, true, false),
            (4, 4, true, true),
            (3, 4, true, true),
            (1, 0, true, false),
            (0, 0, false, true),
            (0, 4, false, true),
            (0xfff0, 4, false, true),
        ] {
            let row = format!("{posted} posted, limit {limit}");
            assert_eq!(is_below_limit(bits(posted), bits(limit), has_posted), expected, "{row}");
        }
    }
}
