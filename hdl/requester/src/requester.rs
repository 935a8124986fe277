//! The requester: everything between the doorbell of a send queue, the packets of its work and their completions.
//!
//! ```text
//!  send_posted ─┬────────────┐                     work_slot ─> slots (512)
//!               v            v                                      v
//!            schedule ──> fetch ──> work_read        bursts ──> collect
//!               ^  again ──┘ ^  └───────────────────────┘           v
//!  setup_fetch ────────────> │ <───────── turn ────────────────── segment <───┬──────┐ wakes
//!  setup_segment ─> fork ────│──────────────────────────────────────┘   v     │      │
//!                     │      │                           queues <── authorize │      │
//!                     │      │        access_request <── cut ─────────────────┘      │
//!                     │      │                            v                          │
//!                     │      │        access_answer ──> issue ──> gather             │
//!                     │      │                            │  └──> inline_slot        │
//!                     │      │        outstanding <───────┤ kick                     │
//!                     │      │             ^              v                          │
//!                     └──────┼─────────────└─────────> acknowledge ──────────────────┘
//!  responses, gather_failure ┴───────────────────┬────────┘  └──> completion, failure
//!                      READs: cut, issue ──> deposit ──> place ──> returned ──> acknowledge
//! ```
//!
//! A message of one slot, one element and one packet takes 3.4 cycles in its slowest part, segmentation; so measured over 1,000
//! messages of one queue pair, with a host that answers after 150 cycles. With it, packets of messages of 4 KiB and 16 KiB at a PMTU of
//! 1,024 leave every 3.0 cycles, and of 512 KiB every 3.2. What each part promises stands in its own header.
//!
//! After reset and at power-up, records are cleared for 1,024 cycles, in which nothing is taken; doorbells are lost then.
//!
//! `passage` counts rounds of bursts of slots, from their being asked for until gather has taken the last packet that was made of
//! them, of turns of long messages, and of answers from their being taken until the place stage has done what they ask for. A burst is done with when what is left of its last message stands in cut's record: that
//! sends nothing without a turn, and dies with its queue pair.
use crate::acknowledge::Acknowledge;
use crate::in_flight_rounds::InFlightRounds;
use crate::issue::Issue;
use crate::messages::{
    CheckedWqe, FetchResume, IssuedRead, LocalCompletion, Packet, ParsedWqe, Response, SLOT_BITS, Sge,
    SgePart, WqeBurst, WqeSlot,
};
use crate::outstanding::{Outstanding, SHARED_BITS};
use crate::read_response::ReadResponse;
use crate::ready_queue::ReadyQueue;
use crate::segment::Segment;
use crate::setup_fork::SetupFork;
use crate::sweep::Sweep;
use crate::wqe_check::WqeCheck;
use crate::wqe_fetch::{SLOT_COUNT_BITS, SLOT_QUEUE_BITS, WqeFetch};
use crate::wqe_pair::WqePair;
use crate::wqe_parse::WqeParse;
use rnic_blocks::pulse::PulseSum;
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::PacketToken;
use rnic_messages::complete::CqeToken;
use rnic_messages::doorbell::SendsPosted;
use rnic_messages::host::{HostSpan, Slot};
use rnic_messages::protect::{AccessAnswer, AccessRequest, Invalidated, Invalidation};
use rnic_messages::read::{ReadResponseCommand, ReturnedAnswer};
use rnic_messages::setup::{FailureEvent, InFlight, SetupEvent, SourceAddressWrite};
use rnic_messages::sizes::QUEUE_PAIR_BITS;
use rnic_messages::transmit::{GatherCommand, GatherFailure, IssuedPsn};

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct Requester {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,

    /// From control: work may be begun; what was begun goes on without it.
    pub enable: Signal<In, Bit>,
    /// From control: an own address.
    pub source_address_write: Signal<In, SourceAddressWrite>,
    /// There is one.
    pub source_address_write_valid: Signal<In, Bit>,
    /// From control, to fetch.
    pub setup_fetch: StreamRx<SetupEvent>,
    /// From control, to segmentation and acknowledge.
    pub setup_segment: StreamRx<SetupEvent>,
    /// A doorbell of a send queue.
    pub send_posted: Signal<In, SendsPosted>,
    /// It rang.
    pub send_posted_valid: Signal<In, Bit>,

    /// Up to eight slots that are wanted; registered.
    pub work_read: StreamTx<HostSpan>,
    /// They come, in the order of the spans.
    pub work_slot: Signal<In, Slot>,
    /// One is here.
    pub work_slot_valid: Signal<In, Bit>,
    /// To the region table; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// Its answers, in order.
    pub access_answer: StreamRx<AccessAnswer>,

    /// To control: keys of this host to be ended; registered.
    pub invalidate: StreamTx<Invalidation>,
    /// What has become of them; `ready` is a function of registers.
    pub invalidated: StreamRx<Invalidated>,

    /// Packets to be sent; registered.
    pub gather: StreamTx<GatherCommand>,
    /// How far the packets of a queue pair go, before the last of them can have left; registered.
    pub frontier: Signal<Out, IssuedPsn>,
    /// That is said now; registered.
    pub frontier_valid: Signal<Out, Bit>,
    /// Their inline data; a function of registers.
    pub inline_slot: StreamTx<Slot>,
    /// Packets that could not be sent.
    pub gather_failure: StreamRx<GatherFailure>,
    /// Answers of peers; each one with payload becomes a command of `place`, in order.
    pub responses: StreamRx<PacketToken>,
    /// To the region table, for their data; registered.
    pub deposit_request: StreamTx<AccessRequest>,
    /// Its answers, in order.
    pub deposit_answer: StreamRx<AccessAnswer>,
    /// To the place stage: what becomes of their data; registered.
    pub place: StreamTx<ReadResponseCommand>,
    /// From the place stage: that is done; taken whatever outputs do.
    pub returned: StreamRx<ReturnedAnswer>,
    /// What has ended; registered.
    pub completion: StreamTx<CqeToken>,
    /// Queue pairs that have failed; registered.
    pub failure: StreamTx<FailureEvent>,

    /// The PSN that the queue pair of the last probe would use next; registered.
    pub probed: Signal<Out, Bits<24>>,
    /// Messages of that queue pair were in flight; registered.
    pub probed_busy: Signal<Out, Bit>,
    /// Bursts of slots and answers that are under way; registered.
    pub in_flight: Signal<Out, InFlight>,

    /// An answer names no queue pair. Registered, as all counts.
    pub counts_unknown_qp: Signal<Out, Bit>,
    /// The queue pair takes no answers.
    pub counts_qp_not_ready: Signal<Out, Bit>,
    /// It is of another service.
    pub counts_transport_mismatch: Signal<Out, Bit>,
    /// Of another partition.
    pub counts_partition_key: Signal<Out, Bit>,
    /// From another address than the peer's.
    pub counts_source_address: Signal<Out, Bit>,
    /// An ACK made progress.
    pub counts_acknowledgements_received: Signal<Out, Bit>,
    /// NAK 0x60 to 0x63.
    pub counts_nak_received: Signal<Out, Bit>,
    /// RNR NAK.
    pub counts_nak_not_ready_received: Signal<Out, Bit>,
    /// The PSN was answered before.
    pub counts_response_stale: Signal<Out, Bit>,
    /// The PSN was never sent.
    pub counts_response_never_sent: Signal<Out, Bit>,
    /// The syndrome is reserved.
    pub counts_response_reserved: Signal<Out, Bit>,
    /// Answers that nobody asked for.
    pub counts_response_unexpected: Signal<Out, Bit>,
    /// A response to a READ was lost.
    pub counts_implied_nak: Signal<Out, Bit>,
    /// A queue pair ended by that, or by NAK 0x60.
    pub counts_retry_exhausted: Signal<Out, Bit>,
    /// A queue pair ended by an RNR NAK.
    pub counts_not_ready_exhausted: Signal<Out, Bit>,
    /// A message ended well.
    pub counts_messages_completed: Signal<Out, Bit>,
    /// An entry was malformed.
    pub counts_work_refused: Signal<Out, Bit>,
    /// A local key, bound or right did not hold.
    pub counts_local_protection: Signal<Out, Bit>,
    /// Something of an older generation was dropped.
    pub counts_stale_dropped: Signal<Out, Bit>,

    sweep: Sweep,
    setup_fork: SetupFork,
    ready_queue: ReadyQueue,
    wqe_fetch: WqeFetch,
    slots: Fifo<Slot, SLOT_QUEUE_BITS, SLOT_COUNT_BITS>,
    wqe_pair: WqePair,
    wqe_parse: WqeParse,
    outstanding: Outstanding,
    wqe_check: WqeCheck,
    checked: Fifo<CheckedWqe, 4, 5>,
    listed: Fifo<Sge, 4, 5>,
    inline_data: Fifo<Bits<SLOT_BITS>, 4, 5>,
    segment: Segment,
    issue: Issue,
    kicks: Fifo<LocalCompletion, 2, 3>,
    kick: RegisterSlice<LocalCompletion>,
    keys: Fifo<Invalidation, 2, 3>,
    acknowledge: Acknowledge,
    opened: Fifo<IssuedRead, 2, 3>,
    read_response: ReadResponse,
    in_flight_rounds: InFlightRounds,
    stale: PulseSum<2>,
    response_stale: PulseSum<2>,
    response_unexpected: PulseSum<2>,
    local_protection: PulseSum<2>,
}

impl Logic for Requester {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        let is_sweeping = self.sweep.is_sweeping.val();
        let sweep_index = self.sweep.index.val();
        self.ready_queue.is_sweeping.next = is_sweeping;
        self.ready_queue.sweep_index.next = sweep_index;
        self.wqe_fetch.is_sweeping.next = is_sweeping;
        self.wqe_fetch.sweep_index.next = sweep_index;
        self.wqe_parse.is_sweeping.next = is_sweeping;
        self.wqe_parse.sweep_index.next = sweep_index;
        self.outstanding.is_sweeping.next = is_sweeping;
        self.outstanding.sweep_index.next = sweep_index;
        self.segment.is_sweeping.next = is_sweeping;
        self.segment.sweep_index.next = sweep_index;
        self.issue.is_sweeping.next = is_sweeping;
        self.issue.sweep_index.next = sweep_index;
        self.acknowledge.is_sweeping.next = is_sweeping;
        self.acknowledge.sweep_index.next = sweep_index;
        self.read_response.is_sweeping.next = is_sweeping;
        self.read_response.sweep_index.next = sweep_index;

        StreamRx::<SetupEvent>::link(&mut self.setup_fetch, &mut self.wqe_fetch.setup);
        StreamRx::<SetupEvent>::link(&mut self.setup_segment, &mut self.setup_fork.rx);
        StreamTx::<SetupEvent>::join(&mut self.setup_fork.stages[0], &mut self.wqe_parse.setup);
        StreamTx::<SetupEvent>::join(&mut self.setup_fork.stages[1], &mut self.segment.setup);
        StreamTx::<SetupEvent>::join(&mut self.setup_fork.stages[2], &mut self.acknowledge.setup);
        StreamTx::<SetupEvent>::join(&mut self.setup_fork.stages[3], &mut self.read_response.setup);

        // Who has work, and the work.
        self.ready_queue.posted.next = self.send_posted.val().queue_pair;
        self.ready_queue.posted_valid.next = self.send_posted_valid.val();
        self.wqe_fetch.posted.next = self.send_posted.val();
        self.wqe_fetch.enable.next = self.enable.val();
        self.segment.enable.next = self.enable.val();
        self.acknowledge.source_address_write.next = self.source_address_write.val();
        self.acknowledge.source_address_write_valid.next = self.source_address_write_valid.val();
        self.wqe_fetch.posted_valid.next = self.send_posted_valid.val();
        StreamTx::<Bits<QUEUE_PAIR_BITS>>::join(
            &mut self.ready_queue.to_fetch,
            &mut self.wqe_fetch.from_schedule,
        );
        StreamTx::<Bits<QUEUE_PAIR_BITS>>::join(&mut self.wqe_fetch.again, &mut self.ready_queue.again);
        StreamTx::<FetchResume>::join(&mut self.wqe_parse.turn, &mut self.wqe_fetch.turn);
        StreamTx::<HostSpan>::link(&mut self.work_read, &mut self.wqe_fetch.work_read);
        // WqeFetch has counted the room.
        self.slots.rx.beat.next = self.work_slot.val();
        self.slots.rx.valid.next = self.work_slot_valid.val();
        StreamTx::<Slot>::join(&mut self.slots.tx, &mut self.wqe_pair.slots);
        StreamTx::<WqeBurst>::join(&mut self.wqe_fetch.bursts, &mut self.wqe_pair.bursts);
        self.wqe_fetch.returned.next = self.wqe_pair.returned.val();
        StreamTx::<WqeSlot>::join(&mut self.wqe_pair.wqe, &mut self.wqe_parse.wqe);

        // From entry to packet.
        StreamTx::<ParsedWqe>::join(&mut self.wqe_parse.item, &mut self.wqe_check.item);
        StreamTx::<CheckedWqe>::join(&mut self.wqe_check.checked, &mut self.checked.rx);
        StreamTx::<Bits<SLOT_BITS>>::join(&mut self.wqe_check.inline_data, &mut self.inline_data.rx);
        StreamTx::<CheckedWqe>::join(&mut self.checked.tx, &mut self.segment.item);
        StreamTx::<Sge>::join(&mut self.wqe_check.listed, &mut self.listed.rx);
        StreamTx::<Sge>::join(&mut self.listed.tx, &mut self.segment.listed);
        StreamTx::<SgePart>::join(&mut self.segment.parts, &mut self.issue.parts);
        StreamTx::<AccessRequest>::link(&mut self.access_request, &mut self.segment.access_request);
        StreamTx::<Packet>::join(&mut self.segment.packet, &mut self.issue.packet);
        StreamTx::<Bits<QUEUE_PAIR_BITS>>::join(&mut self.segment.wake, &mut self.wqe_parse.wake_behind);
        StreamTx::<Bits<SLOT_BITS>>::join(&mut self.inline_data.tx, &mut self.issue.inline_data);
        StreamRx::<AccessAnswer>::link(&mut self.access_answer, &mut self.issue.answers);
        StreamTx::<GatherCommand>::link(&mut self.gather, &mut self.issue.gather);
        StreamTx::<Slot>::link(&mut self.inline_slot, &mut self.issue.inline_slot);
        StreamTx::<LocalCompletion>::join(&mut self.issue.kick, &mut self.kicks.rx);
        StreamTx::<Invalidation>::join(&mut self.issue.invalidate, &mut self.keys.rx);
        StreamTx::<Invalidation>::link(&mut self.invalidate, &mut self.keys.tx);
        // What issuing says goes before what control says, which waits here.
        let has_kick = self.kicks.tx.valid.val();
        let freed = self.invalidated.beat.val();
        self.kick.rx.valid.next = has_kick || self.invalidated.valid.val();
        self.kick.rx.beat.next = if has_kick {
            self.kicks.tx.beat.val()
        } else {
            LocalCompletion {
                queue_pair: freed.queue_pair,
                generation: freed.generation,
                has_failed: false,
                psn: bits::<24>(0),
                is_freed: true,
                is_denied: !freed.ok,
            }
        };
        self.kicks.tx.ready.next = self.kick.rx.ready.val();
        self.invalidated.ready.next = self.kick.rx.ready.val() && !has_kick;
        StreamTx::<LocalCompletion>::join(&mut self.kick.tx, &mut self.acknowledge.kick);

        // From answer to completion.
        StreamRx::<GatherFailure>::link(&mut self.gather_failure, &mut self.acknowledge.gather_failure);
        StreamRx::<PacketToken>::link(&mut self.responses, &mut self.acknowledge.responses);
        StreamTx::<CqeToken>::link(&mut self.completion, &mut self.acknowledge.completion);
        StreamTx::<FailureEvent>::link(&mut self.failure, &mut self.acknowledge.failure);
        StreamTx::<Bits<QUEUE_PAIR_BITS>>::join(&mut self.acknowledge.wake, &mut self.wqe_parse.wake);

        // Data of READs, and what must not overtake it.
        self.read_response.read.next = self.segment.read.val();
        self.read_response.read_place.next = self.segment.read_place.val();
        self.read_response.read_valid.next = self.segment.read_valid.val();
        StreamTx::<IssuedRead>::join(&mut self.issue.opened, &mut self.opened.rx);
        StreamTx::<IssuedRead>::join(&mut self.opened.tx, &mut self.read_response.opened);
        StreamTx::<Response>::join(&mut self.acknowledge.response, &mut self.read_response.response);
        StreamTx::<AccessRequest>::link(&mut self.deposit_request, &mut self.read_response.access_request);
        StreamRx::<AccessAnswer>::link(&mut self.deposit_answer, &mut self.read_response.access_answer);
        StreamTx::<ReadResponseCommand>::link(&mut self.place, &mut self.read_response.place);
        StreamRx::<ReturnedAnswer>::link(&mut self.returned, &mut self.acknowledge.returned);

        // Three writers of the pool.
        self.outstanding.link.next = self.wqe_parse.link.val();
        self.outstanding.link_valid.next = self.wqe_parse.link_valid.val();
        self.outstanding.begun_queue_pair.next = self.wqe_parse.begun_queue_pair.val();
        self.outstanding.begun.next = self.wqe_parse.begun.val();
        self.outstanding.begun_valid.next = self.wqe_parse.begun_valid.val();
        self.outstanding.retired_queue_pair.next = self.wqe_parse.retired_queue_pair.val();
        self.outstanding.retired_read.next = self.wqe_parse.retired_read.val();
        self.wqe_parse.retired.next = self.outstanding.retired.val();
        StreamTx::<Bits<SHARED_BITS>>::join(&mut self.outstanding.free, &mut self.wqe_parse.free);
        self.outstanding.message.next = self.issue.message.val();
        self.outstanding.message_place.next = self.issue.message_place.val();
        self.outstanding.issued_queue_pair.next = self.issue.issued_queue_pair.val();
        self.outstanding.issued.next = self.issue.issued.val();
        self.outstanding.message_valid.next = self.issue.message_valid.val();
        self.outstanding.issued_valid.next = self.issue.issued_valid.val();
        self.frontier.next = self.issue.frontier.val();
        self.frontier_valid.next = self.issue.frontier_valid.val();
        self.outstanding.queue_pair.next = self.acknowledge.queue_pair.val();
        self.outstanding.issued_read.next = self.acknowledge.issued_read.val();
        self.outstanding.begun_read.next = self.acknowledge.begun_read.val();
        self.acknowledge.issued.next = self.outstanding.issued_seen.val();
        self.acknowledge.begun.next = self.outstanding.begun_seen.val();
        self.outstanding.place.next = self.acknowledge.place.val();
        self.acknowledge.message.next = self.outstanding.message_seen.val();
        self.acknowledge.next_block.next = self.outstanding.next_block.val();
        self.outstanding.retired_index.next = self.acknowledge.retired_index.val();
        self.outstanding.retires.next = self.acknowledge.retires.val();
        self.outstanding.retires_valid.next = self.acknowledge.retires_valid.val();
        self.segment.retired_index.next = self.acknowledge.retired_index.val();
        self.segment.retires.next = self.acknowledge.retires.val();
        self.segment.retires_valid.next = self.acknowledge.retires_valid.val();
        self.outstanding.freed.next = self.acknowledge.freed.val();
        self.outstanding.freed_valid.next = self.acknowledge.freed_valid.val();

        self.probed.next = self.wqe_parse.probed.val();
        self.probed_busy.next = self.wqe_parse.probed_busy.val();
        self.in_flight_rounds.lines[0].next =
            InFlight { entered: self.wqe_fetch.burst_count.val(), left: self.issue.burst_count.val() };
        self.in_flight_rounds.lines[1].next =
            InFlight { entered: self.segment.turn_count.val(), left: self.issue.turn_count.val() };
        self.in_flight_rounds.lines[2].next = self.acknowledge.in_flight.val();
        self.in_flight.next = self.in_flight_rounds.in_flight.val();
        self.counts_unknown_qp.next = self.acknowledge.counts_unknown_qp.val();
        self.counts_qp_not_ready.next = self.acknowledge.counts_qp_not_ready.val();
        self.counts_transport_mismatch.next = self.acknowledge.counts_transport_mismatch.val();
        self.counts_partition_key.next = self.acknowledge.counts_partition_key.val();
        self.counts_source_address.next = self.acknowledge.counts_source_address.val();
        self.counts_acknowledgements_received.next = self.acknowledge.counts_acknowledgements_received.val();
        self.counts_nak_received.next = self.acknowledge.counts_nak_received.val();
        self.counts_nak_not_ready_received.next = self.acknowledge.counts_nak_not_ready_received.val();
        self.response_stale.lines[0].next = self.acknowledge.counts_response_stale.val();
        self.response_stale.lines[1].next = self.read_response.counts_response_stale.val();
        self.counts_response_stale.next = self.response_stale.pulse.val();
        self.counts_response_never_sent.next = self.acknowledge.counts_response_never_sent.val();
        self.counts_response_reserved.next = self.acknowledge.counts_response_reserved.val();
        self.response_unexpected.lines[0].next = self.acknowledge.counts_response_unexpected.val();
        self.response_unexpected.lines[1].next = self.read_response.counts_response_unexpected.val();
        self.counts_response_unexpected.next = self.response_unexpected.pulse.val();
        self.counts_implied_nak.next = self.read_response.counts_implied_nak.val();
        self.counts_retry_exhausted.next = self.acknowledge.counts_retry_exhausted.val();
        self.counts_not_ready_exhausted.next = self.acknowledge.counts_not_ready_exhausted.val();
        self.counts_messages_completed.next = self.acknowledge.counts_messages_completed.val();
        self.counts_work_refused.next = self.issue.counts_work_refused.val();
        self.local_protection.lines[0].next = self.issue.counts_local_protection.val();
        self.local_protection.lines[1].next = self.read_response.counts_local_protection.val();
        self.counts_local_protection.next = self.local_protection.pulse.val();

        self.stale.lines[0].next = self.wqe_parse.counts_stale_dropped.val();
        self.stale.lines[1].next = self.acknowledge.counts_stale_dropped.val();
        self.counts_stale_dropped.next = self.stale.pulse.val();
    }
}

#[cfg(test)]
mod tests;
