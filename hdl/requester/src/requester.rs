//! Requester: everything between the doorbell of a send queue, the packets of its WQEs and their completions.
//!
//! ```text
//!  send_posted, setup_fetch ──> wqe_supply ──> wqe_read
//!  wqe_slot (of the host) ───────^ ^    │ slots
//!                           resume │    v
//!  setup_parse ──> setup_fork ──> wqe_parse <──────────────────┬──────┐ wakes
//!                      │              v                        │      │
//!                      │          wqe_check ──> queues ──> segment    │
//!                      │                                       │ │    │
//!                      │          access_answer ──> issue <────┘ └────│──> access_request
//!                      │                            │   │             │
//!                      │          outstanding <─────┤   └─────────────│──> gather, inline_slot
//!                      │             ^   │          v                 │
//!                      └─────────────┼───┴────> acknowledge ──────────┘
//!  responses, gather_failure ────────┼────────>  │   └──> completion, failure
//!                                    └───────────┘
//!           READs: segment, issue ──> read_response ──> place ──> returned ──> acknowledge
//! ```
//!
//! A message of one slot, one SGE and one packet takes 3.4 cycles in its slowest stage, wqe_parse: measured
//! over 1,000 messages of one queue pair, with a host that answers after 150 cycles. With the same host,
//! packets of messages of 4 KiB and 16 KiB at a PMTU of 1,024 leave every 3.0 cycles, and of 512 KiB every 3.2.
//! The header of each stage lists what it guarantees.
//!
//! What was lost takes the same way again: acknowledge raises the epoch of the queue pair and wakes
//! wqe_parse, which goes back to its oldest message; its WQEs and payload are fetched again, and what is
//! on its way in an older epoch is dropped by segment and issue (design decisions 8, 9; protocol 2.5 to
//! 2.8).
//!
//! What is in error leaves when a response of acknowledge has come back through read_response and place, and a mark
//! through issue and gather: then nothing of its queue pair's memory is written or read any more.
//!
//! After reset and at power-up, records are cleared for 1,024 cycles, in which nothing is taken; doorbells are
//! lost then.
//!
//! `in_flight` counts rounds of: bursts of slots, from their request until gather has taken the last packet
//! made from them; turns of long messages; and responses, from acceptance until the place stage has executed
//! their command. A burst has left when the rest of its last message is in the record of segment: no packet of
//! that rest is sent without a turn, and it is dropped with its queue pair.
use crate::ack_timer::AckTimer;
use crate::acknowledge::{Acknowledge, READY_COUNT_BITS as READY_BITS};
use crate::event_sums::EventSums;
use crate::in_flight_rounds::InFlightRounds;
use crate::issue::Issue;
use crate::local_completion_mux::LocalCompletionMux;
use crate::messages::{CheckedWqe, IssuedRead, RequesterCounts, SLOT_BITS, Sge};
use crate::outstanding::Outstanding;
use crate::read_response::ReadResponse;
use crate::ready_queue::COUNT_BITS as WAITING_BITS;
use crate::segment::{READY_COUNT_BITS as LONG_BITS, Segment};
use crate::setup_fork::SetupFork;
use crate::sweep::Sweep;
use crate::wqe_check::WqeCheck;
use crate::wqe_fetch::{LINE_BITS, SLOT_COUNT_BITS};
use crate::wqe_parse::WqeParse;
use crate::wqe_supply::WqeSupply;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidRx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::PacketToken;
use rnic_messages::complete::CqeToken;
use rnic_messages::doorbell::SendsPosted;
use rnic_messages::host::{HostSpan, Slot};
use rnic_messages::pool::{LEVEL_BITS, level_after, level_of};
use rnic_messages::protect::{AccessAnswer, AccessRequest, Invalidated, Invalidation};
use rnic_messages::read::{ReadResponseCommand, ResponseNotice};
use rnic_messages::setup::{InFlight, QpNotice, SetupEvent, SourceAddressWrite};
use rnic_messages::sizes::TIMER_UNIT_BITS;
use rnic_messages::transmit::{Departed, GatherCommand, GatherFailure, IssuedPsn};

/// Levels of the pools of the requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RequesterPools {
    /// Queue pairs that wait for the fetch of their WQEs.
    pub send_queues: Bits<LEVEL_BITS>,
    /// Slots of the queue of WQE slots.
    pub wqe_slots: Bits<LEVEL_BITS>,
    /// Bursts of slots of which gather has not taken all packets.
    pub wqe_bursts: Bits<LEVEL_BITS>,
    /// Units of 256 bytes that bursts are counted as of which segment has not taken all WQEs.
    pub send_line: Bits<LEVEL_BITS>,
    /// Messages in the pool of outstanding messages.
    pub messages: Bits<LEVEL_BITS>,
    /// Shared blocks of that pool, those at the end of a chain aside.
    pub message_blocks: Bits<LEVEL_BITS>,
    /// Queue pairs that wait for a turn for the rest of a long message.
    pub long_messages: Bits<LEVEL_BITS>,
    /// Turns for rests of long messages of which gather has not taken all packets.
    pub long_turns: Bits<LEVEL_BITS>,
    /// Responses that the READ response stage and place have.
    pub responses: Bits<LEVEL_BITS>,
    /// Queue pairs whose messages wait to be completed.
    pub completing: Bits<LEVEL_BITS>,
}

/// The requester; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub struct Requester {
    /// From control: bursts and turns may begin; what has begun continues without it.
    pub enable: Signal<In, Bit>,
    /// From control: write of the table of source addresses.
    pub source_address_write: ValidRx<SourceAddressWrite>,
    /// From control, to wqe_fetch.
    pub setup_fetch: StreamRx<SetupEvent>,
    /// From control, to wqe_parse, segment, acknowledge, read_response and ack_timer.
    pub setup_parse: StreamRx<SetupEvent>,
    /// From control: register `timer_unit`.
    pub timer_unit: Signal<In, Bits<TIMER_UNIT_BITS>>,
    /// From the doorbells: new producer index of a send queue.
    pub send_posted: ValidRx<SendsPosted>,

    /// To the host: up to eight slots to read; registered.
    pub wqe_read: StreamTx<HostSpan>,
    /// From the host: slots, in the order of the spans.
    pub wqe_slot: ValidRx<Slot>,
    /// To the region table, for payload; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// From the region table, in order.
    pub access_answer: StreamRx<AccessAnswer>,

    /// To control: keys of this host to invalidate; registered.
    pub invalidate: StreamTx<Invalidation>,
    /// From control: results of invalidations; `ready` is a function of registers.
    pub invalidated: StreamRx<Invalidated>,

    /// To gather: packets to send; registered.
    pub gather: StreamTx<GatherCommand>,
    /// To address_vector: PSN after the last packet of a queue pair, before that packet can have left; registered.
    pub issued_psn: ValidTx<IssuedPsn>,
    /// From gather: a request leaves the card.
    pub departed: Signal<In, Departed>,
    /// To gather: inline data of the packets; a function of registers.
    pub inline_slot: StreamTx<Slot>,
    /// From gather: packets that were not sent, and marks that return.
    pub gather_failure: StreamRx<GatherFailure>,
    /// From the packet path: responses of peers; each one with payload becomes a command of `place`, in order.
    pub responses: StreamRx<PacketToken>,
    /// To the region table, for the data of responses; registered.
    pub response_access_request: StreamTx<AccessRequest>,
    /// From the region table, in order.
    pub response_access_answer: StreamRx<AccessAnswer>,
    /// To the place stage: where the data of responses is written; registered.
    pub place: StreamTx<ReadResponseCommand>,
    /// From the place stage: a command is done; taken in bounded time, whatever the outputs do.
    pub returned: StreamRx<ResponseNotice>,
    /// To the completion queues; registered.
    pub completion: StreamTx<CqeToken>,
    /// To control: queue pairs that have failed; registered.
    pub failure: StreamTx<QpNotice>,

    /// PSN that the queue pair of the last probe would send next; registered.
    pub probed: Signal<Out, Bits<24>>,
    /// That queue pair had messages in flight; registered.
    pub probed_busy: Signal<Out, Bit>,
    /// Bursts, turns and responses in flight, in rounds; registered.
    pub in_flight: Signal<Out, InFlight>,

    /// Events to count; registered.
    pub counts: Signal<Out, RequesterCounts>,
    /// Levels of pools; registered.
    pub pools: Signal<Out, RequesterPools>,

    sweep: Sweep,
    setup_fork: SetupFork,
    wqe_supply: WqeSupply,
    wqe_parse: WqeParse,
    outstanding: Outstanding,
    wqe_check: WqeCheck,
    checked: Fifo<CheckedWqe, 4, 5>,
    listed_sges: Fifo<Sge, 4, 5>,
    inline_data: Fifo<Bits<SLOT_BITS>, 4, 5>,
    segment: Segment,
    issue: Issue,
    local_completion_mux: LocalCompletionMux,
    keys: Fifo<Invalidation, 2, 3>,
    acknowledge: Acknowledge,
    ack_timer: AckTimer,
    issued_reads: Fifo<IssuedRead, 2, 3>,
    read_response: ReadResponse,
    in_flight_rounds: InFlightRounds,
    event_sums: EventSums,
    messages: Reg<Bits<LEVEL_BITS>>,
    pools_held: DFF<RequesterPools>,
}

/// What has entered a line of tokens, and has left it.
#[kernel]
fn in_flight_of(entered: Bits<16>, left: Bits<16>) -> InFlight {
    InFlight { entered, left }
}

impl Logic for Requester {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        let sweep = self.sweep.step.val();
        self.wqe_supply.sweep.next = sweep;
        self.wqe_parse.sweep.next = sweep;
        self.outstanding.sweep.next = sweep;
        self.segment.sweep.next = sweep;
        self.issue.sweep.next = sweep;
        self.acknowledge.sweep.next = sweep;
        self.ack_timer.sweep.next = sweep;
        self.read_response.sweep.next = sweep;

        StreamRx::link(&mut self.setup_fetch, &mut self.wqe_supply.setup);
        StreamRx::link(&mut self.setup_parse, &mut self.setup_fork.rx);
        StreamTx::join(&mut self.setup_fork.stages[0], &mut self.wqe_parse.setup);
        StreamTx::join(&mut self.setup_fork.stages[1], &mut self.segment.setup);
        StreamTx::join(&mut self.setup_fork.stages[2], &mut self.acknowledge.setup);
        StreamTx::join(&mut self.setup_fork.stages[3], &mut self.read_response.setup);
        StreamTx::join(&mut self.setup_fork.stages[4], &mut self.ack_timer.setup);

        // Ready queue pairs, and their WQEs.
        ValidRx::link(&mut self.send_posted, &mut self.wqe_supply.posted);
        self.wqe_supply.enable.next = self.enable.val();
        ValidRx::link(&mut self.source_address_write, &mut self.acknowledge.source_address_write);
        StreamTx::join(&mut self.wqe_parse.resume, &mut self.wqe_supply.resume);
        StreamTx::link(&mut self.wqe_read, &mut self.wqe_supply.wqe_read);
        ValidRx::link(&mut self.wqe_slot, &mut self.wqe_supply.slot);
        StreamTx::join(&mut self.wqe_supply.wqe_slot, &mut self.wqe_parse.wqe_slot);
        self.wqe_supply.kept_event.next = self.wqe_parse.kept_event.val();
        self.wqe_parse.kept_answer.next = self.wqe_supply.kept_answer.val();
        self.wqe_supply.weight.next = self.wqe_parse.weight.val();
        self.wqe_supply.charge_returned.next = self.segment.charge_returned.val();
        StreamTx::join(&mut self.segment.rest, &mut self.wqe_supply.rest);
        StreamTx::join(&mut self.wqe_supply.turn, &mut self.segment.turn);

        // From WQE to packet.
        StreamTx::join(&mut self.wqe_parse.parsed, &mut self.wqe_check.parsed);
        StreamTx::join(&mut self.wqe_check.checked, &mut self.checked.rx);
        StreamTx::join(&mut self.wqe_check.inline_data, &mut self.inline_data.rx);
        StreamTx::join(&mut self.checked.tx, &mut self.segment.checked);
        StreamTx::join(&mut self.wqe_check.listed_sges, &mut self.listed_sges.rx);
        StreamTx::join(&mut self.listed_sges.tx, &mut self.segment.listed_sges);
        StreamTx::join(&mut self.segment.sge_parts, &mut self.issue.sge_parts);
        StreamTx::link(&mut self.access_request, &mut self.segment.access_request);
        StreamTx::join(&mut self.segment.packet, &mut self.issue.packet);
        StreamTx::join(&mut self.segment.wake, &mut self.wqe_parse.wake_long);
        StreamTx::join(&mut self.inline_data.tx, &mut self.issue.inline_data);
        StreamRx::link(&mut self.access_answer, &mut self.issue.access_answer);
        StreamTx::link(&mut self.gather, &mut self.issue.gather);
        StreamTx::link(&mut self.inline_slot, &mut self.issue.inline_slot);
        StreamTx::join(&mut self.issue.local_completion, &mut self.local_completion_mux.issued);
        StreamTx::join(&mut self.issue.invalidate, &mut self.keys.rx);
        StreamTx::link(&mut self.invalidate, &mut self.keys.tx);
        StreamRx::link(&mut self.invalidated, &mut self.local_completion_mux.invalidated);
        StreamTx::join(&mut self.local_completion_mux.completion, &mut self.acknowledge.local_completion);

        // From response to completion.
        StreamRx::link(&mut self.gather_failure, &mut self.acknowledge.gather_failure);
        StreamRx::link(&mut self.responses, &mut self.acknowledge.responses);
        StreamTx::link(&mut self.completion, &mut self.acknowledge.completion);
        StreamTx::link(&mut self.failure, &mut self.acknowledge.failure);
        StreamTx::join(&mut self.acknowledge.wake, &mut self.wqe_parse.wake_held);
        StreamTx::join(&mut self.acknowledge.mark, &mut self.issue.mark);

        // Silence of the peer.
        self.ack_timer.unit.next = self.timer_unit.val();
        self.ack_timer.departed.next = self.departed.val();
        ValidTx::join(&mut self.acknowledge.timer_set, &mut self.ack_timer.set);
        StreamTx::join(&mut self.ack_timer.expired, &mut self.acknowledge.expired);

        // Data of READs, and responses that must not overtake it.
        ValidTx::join(&mut self.segment.read, &mut self.read_response.read);
        self.read_response.read_place.next = self.segment.read_place.val();
        StreamTx::join(&mut self.issue.issued_read, &mut self.issued_reads.rx);
        StreamTx::join(&mut self.issued_reads.tx, &mut self.read_response.issued_read);
        StreamTx::join(&mut self.acknowledge.response, &mut self.read_response.response);
        StreamTx::link(&mut self.response_access_request, &mut self.read_response.access_request);
        StreamRx::link(&mut self.response_access_answer, &mut self.read_response.access_answer);
        StreamTx::link(&mut self.place, &mut self.read_response.place);
        StreamRx::link(&mut self.returned, &mut self.acknowledge.returned);

        // The pool has three writers.
        ValidTx::join(&mut self.wqe_parse.link, &mut self.outstanding.link);
        self.outstanding.begun.next = self.wqe_parse.begun.val();
        self.outstanding.retired_read.next = self.wqe_parse.retired_read.val();
        self.wqe_parse.retired.next = self.outstanding.retired.val();
        StreamTx::join(&mut self.outstanding.free, &mut self.wqe_parse.free);
        self.outstanding.message.next = self.issue.message.val();
        self.outstanding.issued.next = self.issue.issued.val();
        ValidTx::link(&mut self.issued_psn, &mut self.issue.issued_psn);
        self.outstanding.pool_read.next = self.acknowledge.pool_read.val();
        self.acknowledge.issued.next = self.outstanding.issued_seen.val();
        self.acknowledge.begun.next = self.outstanding.begun_seen.val();
        self.acknowledge.message.next = self.outstanding.message_seen.val();
        self.acknowledge.next_block.next = self.outstanding.next_block.val();
        let retired = self.acknowledge.retired.val();
        self.outstanding.retired_write.next = retired;
        self.segment.retired.next = retired;
        self.issue.retired.next = retired;
        ValidTx::join(&mut self.acknowledge.freed, &mut self.outstanding.freed);

        self.probed.next = self.wqe_parse.probed.val();
        self.probed_busy.next = self.wqe_parse.probed_busy.val();
        let bursts = in_flight_of(self.wqe_supply.burst_count.val(), self.issue.burst_count.val());
        let turns = in_flight_of(self.wqe_supply.turn_count.val(), self.issue.turn_count.val());
        self.in_flight_rounds.lines[0].next = bursts;
        self.in_flight_rounds.lines[1].next = turns;
        self.in_flight_rounds.lines[2].next = self.acknowledge.in_flight.val();
        self.in_flight.next = self.in_flight_rounds.in_flight.val();
        self.messages.d.next =
            level_after(self.messages.q.val(), self.wqe_parse.begins.val(), self.acknowledge.ends.val());
        self.pools_held.d.next = RequesterPools {
            send_queues: bit_cast::<LEVEL_BITS, WAITING_BITS>(self.wqe_supply.queues_waiting.val()),
            wqe_slots: bit_cast::<LEVEL_BITS, SLOT_COUNT_BITS>(self.wqe_supply.slots_used.val()),
            wqe_bursts: level_of(bursts),
            send_line: bit_cast::<LEVEL_BITS, LINE_BITS>(self.wqe_supply.line_used.val()),
            messages: self.messages.q.val(),
            message_blocks: self.outstanding.blocks_used.val(),
            long_messages: bit_cast::<LEVEL_BITS, LONG_BITS>(self.segment.waiting.val()),
            long_turns: level_of(turns),
            responses: level_of(self.acknowledge.in_flight.val()),
            completing: bit_cast::<LEVEL_BITS, READY_BITS>(self.acknowledge.waiting.val()),
        };
        self.pools.next = self.pools_held.q.val();
        self.event_sums.acknowledge.next = self.acknowledge.counts.val();
        self.event_sums.read_response.next = self.read_response.counts.val();
        self.event_sums.issue.next = self.issue.counts.val();
        self.event_sums.parse_stale_dropped.next = self.wqe_parse.counts_stale_dropped.val();
        self.counts.next = self.event_sums.counts.val();
    }
}

#[cfg(test)]
mod tests;
