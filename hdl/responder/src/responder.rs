//! The responder: from a request to host memory, and to an acknowledgement or response.
//!
//! ```text
//!               ┌───────┐ admitted ┌──────┐ passed ┌─────────┐ scattered ┌─────────┐
//!  requests ───>│ admit ├─────────>│ park ├───────>│ scatter ├──────────>│ resolve ├──> place
//!               └───────┘          └─┬──^─┘  wqe   └───────┬─┘           └─^─────┬─┘
//!                            request │  │ answer, wakes    v access_request│answer└──> stop
//!                    ┌───────────────v──┴──┐
//!  receive_slot ────>│ rq_prefetch         ├──> receive_read
//!                    └─────────────────────┘    ┌───────┐
//!  place_reply, done_count, write_failure ─────>│ ack   ├──> ack
//!                                               └───┬───┘
//!                           resolve ─read_request─┐ │release ^withdrawn
//!                                           ┌─────v─v────────┐
//!  read_lost ──────────────────────────────>│ read_responder ├──> gather
//!                                           └───────^────────┘
//!                                                   │result
//!                                             ┌─────┴────┐
//!  atomics_word, atomics_done ───────────────>│ atomics  ├──> atomics_read, atomics_write
//!                                             └──────────┘
//! ```
//!
//! Throughput one packet in 3 cycles; one cycle more for each SGE of a SEND after the first, one more for each
//! packet of a SEND after its first, and three more after every sixteen packets. Latency from a request to its
//! command 16 cycles, with a region table that answers in one cycle, and 17 for a packet of a SEND after its
//! first.
//!
//! 1. Each packet makes at most one command to place; those of a receive ring in the order of its packets. Packets pass
//!    those of another ring that wait for a receive WQE.
//! 2. Nothing that is received waits for what is sent: [`Ack`] takes `place_reply` in bounded time, whatever
//!    `ack` does.
//! 3. `in_flight` counts packets and reads of receive WQEs; a packet that was sent to place has left, or waits
//!    in [`Atomics`].
//! 4. A SEND with Invalidate blocks later packets until its key is invalidated, for some 20 cycles and those of
//!    control.
//! 5. An atomic is executed after all earlier writes of its queue pair. Later WRITEs and SENDs do not wait for
//!    it, unless the peer uses a fence (protocol 2.10).
//!
//! The stages document what they refuse. Protocol chapter 3.
use crate::ack::{Ack, OWING_BITS};
use crate::admit::Admit;
use crate::atomics::{Atomics, IN_FLIGHT_COUNT};
use crate::merge::{InFlightCount, NoticeMerge};
use crate::messages::ResponderCounts;
use crate::park::{ENTRY_COUNT, Park};
use crate::read_responder::{ReadPools, ReadResponder};
use crate::resolve::Resolve;
use crate::rq_prefetch::{PrefetchPools, RqPrefetch};
use crate::scatter::Scatter;
use rnic_blocks::pulse::PulseSum;
use rnic_blocks::stream::{StreamRx, StreamTx, ValidRx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::PacketToken;
use rnic_messages::doorbell::ReceivesPosted;
use rnic_messages::host::{HostSpan, HostWord, Slot, WordWrite, WriteFailure};
use rnic_messages::pool::{LEVEL_BITS, level_of};
use rnic_messages::protect::{AccessAnswer, AccessRequest, Invalidated, Invalidation};
use rnic_messages::read::ReadClosed;
use rnic_messages::receive::{AckNotice, PlaceCommand};
use rnic_messages::setup::{InFlight, QpNotice, SetupEvent, SourceAddressWrite, SrqLimitNotice, SrqSetup};
use rnic_messages::sizes::WRITE_COUNT_BITS;
use rnic_messages::transmit::{GatherCommand, GatherFailure, TransmitRequest};
use rnic_protect::RegionMux;

/// Levels of the pools of the responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ResponderPools {
    /// Packets between admission and place or the stages of READs and atomics, and reads of receive WQEs.
    pub packets: Bits<LEVEL_BITS>,
    /// Entries of park.
    pub parked: Bits<LEVEL_BITS>,
    /// Pools of receive WQEs.
    pub prefetch: PrefetchPools,
    /// Queue pairs that owe a reply.
    pub replies: Bits<LEVEL_BITS>,
    /// Pools of READs.
    pub reads: ReadPools,
    /// Responses to READs and atomics between the ready queue and gather.
    pub read_responses: Bits<LEVEL_BITS>,
    /// Atomics that are not done.
    pub atomics: Bits<LEVEL_BITS>,
    /// Those that read or write their word.
    pub atomics_executing: Bits<LEVEL_BITS>,
}

/// The responder; see the module.
#[clocked(reset = "forgets all queue pairs")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Responder {
    /// From control: receive WQEs may be prefetched. Packets are taken regardless.
    pub enable: Signal<In, Bit>,
    /// From control: write of the table of source addresses.
    pub source_address_write: ValidRx<SourceAddressWrite>,
    /// From control, to admission.
    pub setup_admit: StreamRx<SetupEvent>,
    /// From control, to the prefetch of receive WQEs.
    pub setup_prefetch: StreamRx<SetupEvent>,
    /// From control, to ack.
    pub setup_ack: StreamRx<SetupEvent>,
    /// From control, to the READ responder.
    pub setup_read: StreamRx<SetupEvent>,
    /// From control, to admission: setup of shared receive queues.
    pub srq_setup_admit: StreamRx<SrqSetup>,
    /// From control, to the prefetch of receive WQEs: setup of shared receive queues.
    pub srq_setup_prefetch: StreamRx<SrqSetup>,
    /// To control: PSN that the queue pair of the last setup event expects; registered.
    pub probed: Signal<Out, Bits<24>>,
    /// To control: queue pairs that have failed, or whose communication is established; registered.
    pub notice: StreamTx<QpNotice>,
    /// To control: shared receive queues that hold fewer WQEs than their limit; registered.
    pub srq_limit: StreamTx<SrqLimitNotice>,
    /// To control: packets and reads of receive WQEs that have entered and left; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// To control: responses that have entered and left; registered.
    pub read_in_flight: Signal<Out, InFlight>,
    /// To control: periods of atomics that have entered and left; registered.
    pub atomics_in_flight: Signal<Out, InFlight>,
    /// From the doorbells.
    pub receive_posted: ValidRx<ReceivesPosted>,

    /// Requests from the wire.
    pub requests: StreamRx<PacketToken>,
    /// To the region table; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// From the region table, in order.
    pub access_answer: StreamRx<AccessAnswer>,
    /// To control: keys to invalidate; registered.
    pub invalidate: StreamTx<Invalidation>,
    /// From control: the result for each key.
    pub invalidated: StreamRx<Invalidated>,

    /// To the host reader: receive WQEs; registered.
    pub receive_read: StreamTx<HostSpan>,
    /// From the host reader: receive WQEs, in the order of the reads.
    pub receive_slot: ValidRx<Slot>,

    /// To the host reader: words of atomics; registered.
    pub atomics_read: StreamTx<HostSpan>,
    /// From the host reader, in order.
    pub atomics_word: ValidRx<HostWord>,
    /// To the host writer: words of atomics; registered.
    pub atomics_write: StreamTx<WordWrite>,
    /// From the host writer: the oldest of these writes is done.
    pub atomics_done: Signal<In, Bit>,
    /// The host refused that write.
    pub atomics_failed: Signal<In, Bit>,

    /// To place; registered.
    pub place: StreamTx<PlaceCommand>,
    /// From place: replies with the host writes that they wait for.
    pub place_reply: StreamRx<AckNotice>,
    /// From the host writer: free-running count of payload writes that are done.
    pub done_count: Signal<In, Bits<WRITE_COUNT_BITS>>,
    /// From the host writer: a write that the host refused.
    pub write_failure: StreamRx<WriteFailure>,
    /// To the address vector stage: acknowledge packets; registered.
    pub ack: StreamTx<TransmitRequest>,
    /// To gather: responses to READs; registered.
    pub gather: StreamTx<GatherCommand>,
    /// From gather: responses whose payload could not be read.
    pub read_lost: StreamRx<GatherFailure>,
    /// From the address vector stage: the last response to a READ is on its way.
    pub read_closed: ValidRx<ReadClosed>,

    /// Counters; registered.
    pub counts: Signal<Out, ResponderCounts>,
    /// Levels of pools; registered.
    pub pools: Signal<Out, ResponderPools>,

    admit: Admit,
    rq_prefetch: RqPrefetch,
    park: Park,
    scatter: Scatter,
    resolve: Resolve,
    replies: Ack,
    read_responder: ReadResponder,
    atomics: Atomics,
    region_mux: RegionMux,
    notices: NoticeMerge,
    in_flight_count: InFlightCount,
    after_failure: PulseSum<2>,
    stale: PulseSum<2>,
    access_naks: PulseSum<2>,
    operational_naks: PulseSum<2>,
    protection: PulseSum<2>,
    duplicates: PulseSum<2>,
    duplicates_dropped: PulseSum<2>,
    pools_held: DFF<ResponderPools>,
}

#[cfg(test)]
impl Responder {
    /// Queue pair and generation that admission stops from the next cycle on.
    pub(crate) fn stopped(&self) -> Option<(u16, u8)> {
        let stop = self.resolve.stop.value.val();
        let is_stopped = self.resolve.stop.valid.val();
        is_stopped.then(|| (stop.queue_pair.to_u64() as u16, stop.generation.to_u64() as u8))
    }
}

impl Logic for Responder {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        StreamRx::link(&mut self.setup_admit, &mut self.admit.setup);
        StreamRx::link(&mut self.setup_prefetch, &mut self.rq_prefetch.setup);
        StreamRx::link(&mut self.setup_ack, &mut self.replies.setup);
        StreamRx::link(&mut self.setup_read, &mut self.read_responder.setup);
        StreamRx::link(&mut self.srq_setup_admit, &mut self.admit.srq_setup);
        StreamRx::link(&mut self.srq_setup_prefetch, &mut self.rq_prefetch.srq_setup);
        self.probed.next = self.admit.probed.val();
        ValidTx::join(&mut self.read_responder.served, &mut self.admit.reads_served);
        ValidRx::link(&mut self.receive_posted, &mut self.admit.receive_posted);
        self.rq_prefetch.enable.next = self.enable.val();
        ValidRx::link(&mut self.source_address_write, &mut self.admit.source_address_write);
        ValidRx::link(&mut self.receive_posted, &mut self.rq_prefetch.receive_posted);

        StreamRx::link(&mut self.requests, &mut self.admit.requests);
        StreamTx::join(&mut self.admit.admitted, &mut self.park.admitted);
        self.park.next_ring.next = self.admit.next_ring.val();
        self.admit.exceeds_share.next = self.park.exceeds_share.val();
        StreamTx::join(&mut self.park.request, &mut self.rq_prefetch.request);
        StreamTx::join(&mut self.rq_prefetch.wqe, &mut self.park.answer);
        self.park.answer_count.next = self.rq_prefetch.wqe_count.val();
        self.park.wakes.next = self.rq_prefetch.wakes.val();
        self.park.woken.next = self.rq_prefetch.woken.val();
        StreamTx::join(&mut self.park.passed, &mut self.scatter.admitted);
        StreamTx::join(&mut self.park.wqe, &mut self.scatter.wqe);
        StreamTx::join(&mut self.scatter.scattered, &mut self.resolve.scattered);
        StreamTx::join(&mut self.scatter.access_request, &mut self.region_mux.request[0]);
        StreamTx::join(&mut self.read_responder.access_request, &mut self.region_mux.request[1]);
        StreamTx::join(&mut self.region_mux.answer[0], &mut self.resolve.access_answer);
        StreamTx::join(&mut self.region_mux.answer[1], &mut self.read_responder.access_answer);
        StreamTx::link(&mut self.access_request, &mut self.region_mux.table_request);
        StreamRx::link(&mut self.access_answer, &mut self.region_mux.table_answer);
        StreamTx::link(&mut self.invalidate, &mut self.resolve.invalidate);
        StreamRx::link(&mut self.invalidated, &mut self.resolve.invalidated);
        self.scatter.ended.next = self.resolve.ended.val();
        StreamTx::join(&mut self.resolve.read_request, &mut self.read_responder.request);
        StreamTx::join(&mut self.replies.release, &mut self.read_responder.release);
        StreamTx::join(&mut self.read_responder.withdrawn, &mut self.replies.withdrawn);
        StreamTx::join(&mut self.park.operands, &mut self.resolve.operands);
        StreamTx::join(&mut self.resolve.atomic_request, &mut self.atomics.request);
        StreamTx::join(&mut self.replies.atomic_release, &mut self.atomics.release);
        StreamTx::join(&mut self.atomics.result, &mut self.read_responder.result);
        StreamTx::link(&mut self.atomics_read, &mut self.atomics.read);
        ValidRx::link(&mut self.atomics_word, &mut self.atomics.word);
        StreamTx::link(&mut self.atomics_write, &mut self.atomics.write);
        self.atomics.write_done.next = self.atomics_done.val();
        self.atomics.write_failed.next = self.atomics_failed.val();
        self.atomics_in_flight.next = self.atomics.in_flight.val();
        StreamTx::link(&mut self.gather, &mut self.read_responder.gather);
        StreamRx::link(&mut self.read_lost, &mut self.read_responder.lost);
        ValidRx::link(&mut self.read_closed, &mut self.replies.read_closed);
        self.read_in_flight.next = self.read_responder.in_flight.val();
        StreamTx::link(&mut self.receive_read, &mut self.rq_prefetch.receive_read);
        ValidRx::link(&mut self.receive_slot, &mut self.rq_prefetch.receive_slot);
        StreamTx::link(&mut self.place, &mut self.resolve.place);

        StreamRx::link(&mut self.place_reply, &mut self.replies.place_reply);
        StreamRx::link(&mut self.write_failure, &mut self.replies.write_failure);
        self.replies.done_count.next = self.done_count.val();
        StreamTx::link(&mut self.ack, &mut self.replies.tx);

        ValidTx::join(&mut self.resolve.stop, &mut self.admit.stop);
        StreamTx::link(&mut self.srq_limit, &mut self.admit.srq_limit);
        StreamTx::join(&mut self.replies.failure, &mut self.notices.first);
        StreamTx::join(&mut self.read_responder.failure, &mut self.notices.second);
        StreamTx::join(&mut self.admit.established, &mut self.notices.third);
        StreamTx::link(&mut self.notice, &mut self.notices.tx);
        self.in_flight_count.enters.next = self.admit.enters.val();
        self.in_flight_count.fetches.next = self.rq_prefetch.fetches.val();
        self.in_flight_count.fetched.next = self.rq_prefetch.fetched.val();
        self.in_flight_count.vanishes.next = self.resolve.vanishes.val();
        self.in_flight_count.leaves.next = self.resolve.leaves.val();
        self.in_flight.next = self.in_flight_count.in_flight.val();

        self.pools_held.d.next = ResponderPools {
            packets: level_of(self.in_flight_count.in_flight.val()),
            parked: bit_cast::<LEVEL_BITS, ENTRY_COUNT>(self.park.entries_used.val()),
            prefetch: self.rq_prefetch.pools.val(),
            replies: bit_cast::<LEVEL_BITS, OWING_BITS>(self.replies.owing.val()),
            reads: self.read_responder.pools.val(),
            read_responses: level_of(self.read_responder.in_flight.val()),
            atomics: self.atomics.level.val(),
            atomics_executing: bit_cast::<LEVEL_BITS, IN_FLIGHT_COUNT>(self.atomics.executing.val()),
        };
        self.pools.next = self.pools_held.q.val();

        let admit = self.admit.counts.val();
        let resolve = self.resolve.counts.val();
        let ack = self.replies.counts.val();
        let read_responder = self.read_responder.counts.val();
        self.after_failure.lines[0].next = admit.requests_after_failure;
        self.after_failure.lines[1].next = resolve.requests_after_failure;
        self.access_naks.lines[0].next = ack.nak_access_sent;
        self.access_naks.lines[1].next = read_responder.nak_access_sent;
        self.operational_naks.lines[0].next = ack.nak_operational_sent;
        self.operational_naks.lines[1].next = read_responder.nak_operational_sent;
        self.stale.lines[0].next = ack.stale_dropped;
        self.stale.lines[1].next = resolve.stale_dropped;
        // A response that is not allowed any more is a protection error too.
        self.protection.lines[0].next = resolve.remote_protection;
        self.protection.lines[1].next = read_responder.nak_access_sent;
        self.duplicates.lines[0].next = admit.duplicate_request;
        self.duplicates.lines[1].next = read_responder.duplicate_request;
        self.duplicates_dropped.lines[0].next = admit.duplicate_dropped;
        self.duplicates_dropped.lines[1].next = read_responder.duplicate_dropped;
        self.counts.next = ResponderCounts {
            unknown_qp: admit.unknown_qp,
            qp_not_ready: admit.qp_not_ready,
            transport_mismatch: admit.transport_mismatch,
            partition_key: admit.partition_key,
            source_address: admit.source_address,
            duplicate_request: self.duplicates.pulse.val(),
            duplicate_dropped: self.duplicates_dropped.pulse.val(),
            request_gap: admit.request_gap,
            requests_after_failure: self.after_failure.pulse.val(),
            share_exceeded: admit.share_exceeded,
            acknowledgements_sent: ack.acknowledgements_sent,
            nak_sequence_sent: ack.nak_sequence_sent,
            nak_invalid_request_sent: ack.nak_invalid_request_sent,
            nak_access_sent: self.access_naks.pulse.val(),
            nak_operational_sent: self.operational_naks.pulse.val(),
            nak_rnr_sent: ack.nak_rnr_sent,
            stale_dropped: self.stale.pulse.val(),
            remote_protection: self.protection.pulse.val(),
            local_protection: resolve.local_protection,
            work_refused: resolve.work_refused,
        };
    }
}
