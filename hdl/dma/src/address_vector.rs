//! Address vector: adds the addresses of its path to each packet that is sent, and drops packets that are stale.
//!
//! Requester and responder know a packet's place in the protocol; the queue pair's path says where it goes, and commands write it. The
//! two meet here, before the wire, so that there is one table of paths.
//!
//! ```text
//!              ┌───────────────────────────────────────────────────────────────┐
//!  reply ─────>│ ┌─────────┐   ┌───────┐   ┌──────────────────┐                │
//!  request ───>│ │ Arbiter ├──>│ paths ├──>│ source addresses ├──> compose ────┼──> token
//!              │ └─────────┘   └───^───┘   └────────^─────────┘       │        │
//!  setup ──────┼───────────────────┤                │             verdicts     │
//!  frontier ───┼───────────────────┘                │                │         │
//!  source_address_write ────────────────────────────┘                v         │
//!  payload ────┼────────────────────────────────────────────> pass or drop ────┼──> payload_out
//!              └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! Latency 3 cycles from a request to `token`, a token every second cycle; payload one beat a cycle, dropped or not. A packet with
//! payload waits behind payload that is dropped, and goes on in the cycle after its last beat.
//!
//! A reply and a request at a time, of which the reply goes first; then two more requests, one of an older generation:
//! ```text
#![doc = include_str!("waves/address_vector.txt")]
//! ```
//!
//! 1. Requests keep their order, and so do replies; a reply goes before a request, but while both wait they take turns. A READ
//!    response waits for the replies that were made before it, of which ack holds two at most: the NAK of a READ ends its queue
//!    pair, and no acknowledgement may follow it (protocol 3.6).
//! 2. A packet is dropped, with its payload, if its generation is not that of its queue pair, if the queue pair is in RESET, or if its
//!    source address is not in use. `counts.stale_dropped` counts it.
//! 3. Payload belongs to requests; replies have none.
//! 4. Setup events and writes of source addresses are taken in the cycle in which they arrive, whatever the outputs do. A packet that
//!    was taken before, or in the same cycle, leaves with the path that it had.
//! 5. A request also gets the AckReq bit if `asks_if_newest` is set and its queue pair has issued nothing after it when it is taken.
//!    So the last packet that leaves always asks for an acknowledgement, whatever becomes of WQEs posted after it (protocol 2.4).
//! 6. The payload of a packet follows its `token` after two cycles at most, and has no gap if that of gather has none. A frame that
//!    has begun cannot wait until payload of packets before it is dropped.
//!
//! ECN bits are zero, since there is no congestion control yet; MigReq is set (protocol 1.3). Protocol 1.2, 1.3, 4.2.
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Arbiter, Beat, Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::PacketToken;
use rnic_messages::setup::{SetupEvent, SetupKind, SourceAddressWrite};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, SOURCE_ADDRESS_BITS, sizes};
use rnic_messages::transmit::TransmitToken;
use rnic_messages::transmit::{IssuedPsn, TransmitRequest};

/// Replies that ack may have made before a READ response that comes to this stage: those in its register slice.
const REPLIES_AHEAD: u64 = 2;
/// log2 of the verdicts that wait for payload.
const VERDICTS: usize = 4;
const VERDICT_COUNT: usize = VERDICTS + 1;

/// Counters of the stage: each bit is high for one cycle for each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AddressVectorCounts {
    /// A packet of an older generation, of a queue pair in RESET, or without a source address is dropped.
    pub stale_dropped: Bit,
}

/// What the headers of a packet need of its queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Route {
    generation: Bits<GENERATION_BITS>,
    /// The queue pair is not in RESET.
    is_alive: Bit,
    destination_qp: Bits<24>,
    is_ipv6: Bit,
    vlan_present: Bit,
    destination_address: Bits<128>,
    destination_mac: Bits<48>,
    vlan_control: Bits<16>,
    traffic_class: Bits<8>,
    hop_limit: Bits<8>,
    flow_label: Bits<20>,
    source_port: Bits<16>,
    source_address_index: Bits<SOURCE_ADDRESS_BITS>,
    partition_key: Bits<16>,
}

/// A source address of this card.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct SourceAddress {
    valid: Bit,
    address: Bits<128>,
    mac: Bits<48>,
}

/// Completes the headers of packets to send from their path records.
#[clocked(reset = "forgets tokens, not tables")]
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct AddressVector<const DATA: usize, const BYTES: usize> {
    /// From the responder: acknowledge packets. `ready` is combinational from `valid` of both.
    pub reply: StreamRx<TransmitRequest>,
    /// From gather: requests, and responses with payload. `ready` is as that of `reply`.
    pub request: StreamRx<TransmitRequest>,
    /// From gather: their payload. `ready` is combinational from `payload_out.ready`.
    pub payload: StreamRx<Beat<DATA, BYTES>>,

    /// From the requester: the next PSN that a queue pair will issue; arrives before the packet before it.
    pub frontier: ValidRx<IssuedPsn>,

    /// From control: states, generations and paths of queue pairs; always taken.
    pub setup: StreamRx<SetupEvent>,
    /// From control: writes a source address of this card.
    pub source_address_write: ValidRx<SourceAddressWrite>,

    /// To assemble: packets with all header fields; registered.
    pub token: StreamTx<TransmitToken>,
    /// To assemble: payload of the packets that are sent. Combinational from `payload`.
    pub payload_out: StreamTx<Beat<DATA, BYTES>>,
    /// Counters; registered.
    pub counts: Signal<Out, AddressVectorCounts>,

    arbiter: Arbiter<TransmitRequest, 2>,
    /// Replies that went before the response that waits; `REPLIES_AHEAD` also if none is left to go before it.
    replies_gone: Reg<Bits<2>>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    paths: Memory<Route, QUEUE_PAIR_BITS>,
    sources: Memory<SourceAddress, SOURCE_ADDRESS_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    frontiers: Memory<Bits<24>, QUEUE_PAIR_BITS>,
    chosen: DFF<TransmitRequest>,
    is_chosen: Reg<Bit>,
    routed: DFF<TransmitRequest>,
    route: DFF<Route>,
    is_routed: Reg<Bit>,
    is_current: DFF<Bit>,
    composed: DFF<TransmitToken>,
    is_composed: Reg<Bit>,
    #[init(Fifo::new(Storage::Distributed))]
    verdicts: Fifo<Bit, VERDICTS, VERDICT_COUNT>,
    /// The newest verdict is on payload that is dropped, and has not been carried out.
    is_dropping: Reg<Bit>,
    counted: Reg<AddressVectorCounts>,
}

/// What the headers need of the queue pair that a setup event is about.
#[kernel]
fn route_of(event: SetupEvent) -> Route {
    let path = event.path;
    Route {
        generation: event.generation,
        is_alive: event.state != QpState::Reset as u64,
        destination_qp: path.destination_qp,
        is_ipv6: path.is_ipv6,
        vlan_present: path.vlan_present,
        destination_address: path.destination_address,
        destination_mac: path.destination_mac,
        vlan_control: path.vlan_control,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        flow_label: path.flow_label,
        source_port: path.source_port,
        source_address_index: path.source_address_index,
        partition_key: path.partition_key,
    }
}

/// A packet belongs to the present life of its queue pair.
#[kernel]
fn is_current(token: TransmitRequest, route: Route) -> Bit {
    route.is_alive && route.generation == token.generation
}

/// A packet asks for an acknowledgement: because its role says so, or because its queue pair has issued nothing after it.
#[kernel]
fn asks_for_ack(token: TransmitRequest, frontier: Bits<24>) -> Bit {
    token.ack_request || (token.asks_if_newest && frontier == token.psn + 1)
}

/// A request may leave: a READ response when the replies made before it have left, any other packet at once.
#[kernel]
fn is_due(is_response: Bit, has_reply: Bit, replies_gone: Bits<2>) -> Bit {
    !is_response || !has_reply || replies_gone == REPLIES_AHEAD
}

/// Gives the replies that have gone before the response that waits, in the next cycle. Once due, it stays due.
#[kernel]
fn replies_gone_after(replies_gone: Bits<2>, waits: Bit, is_due: Bit, reply_goes: Bit) -> Bits<2> {
    if !waits {
        bits::<2>(0)
    } else if is_due {
        bits::<2>(REPLIES_AHEAD)
    } else if reply_goes {
        replies_gone + 1
    } else {
        replies_gone
    }
}

/// The headers of a packet: the fields of its role, and those of its path.
#[kernel]
fn compose(token: TransmitRequest, route: Route, source: SourceAddress) -> PacketToken {
    PacketToken {
        destination_mac: route.destination_mac,
        source_mac: source.mac,
        vlan_present: route.vlan_present,
        vlan_control: if route.vlan_present { route.vlan_control } else { bits(0) },
        is_ipv6: route.is_ipv6,
        traffic_class: route.traffic_class & 0xfc,
        flow_label: if route.is_ipv6 { route.flow_label } else { bits(0) },
        // Any value is allowed; the PSN tells packets apart in a trace.
        identification: if route.is_ipv6 { bits(0) } else { token.psn.get_bits::<16>(0) },
        hop_limit: route.hop_limit,
        source_address: source.address,
        destination_address: route.destination_address,
        source_port: route.source_port,
        opcode: token.opcode,
        solicited: token.solicited,
        migrated: true,
        partition_key: route.partition_key,
        forward_congestion: false,
        backward_congestion: false,
        destination_qp: route.destination_qp,
        queue_pair: bits(0),
        ack_request: token.ack_request,
        psn: token.psn,
        extended: token.extended,
        payload_bytes: token.payload_bytes,
        pad_mismatch: false,
        first_cell: bits(0),
    }
}

impl<const DATA: usize, const BYTES: usize> Logic for AddressVector<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        let event = self.setup.beat.val();
        self.setup.ready.next = true;
        self.paths.write_enable.next = self.setup.valid.val() && event.kind != SetupKind::Probe;
        self.paths.write_address.next = event.queue_pair;
        self.paths.write_data.next = route_of(event);
        let frontier = self.frontier.value.val();
        self.frontiers.write(self.frontier.valid.val(), frontier.queue_pair, frontier.psn);
        let own = self.source_address_write.value.val();
        self.sources.write_enable.next = self.source_address_write.valid.val();
        self.sources.write_address.next = own.index;
        self.sources.write_data.next = SourceAddress { valid: own.valid, address: own.address, mac: own.mac };

        // Third stage: the packet leaves or is dropped. The verdict on its payload is queued.
        let routed = self.routed.q.val();
        let source = self.sources.read_data.val();
        let is_good = self.is_current.q.val() && source.valid;
        let has_payload = routed.payload_bytes.any();
        let waits = has_payload && self.is_dropping.q.val();
        let may_leave = self.verdicts.rx.ready.val() && !self.is_composed.q.val() && !waits;
        let leaves = self.is_routed.q.val() && may_leave;
        if self.token.ready.val() {
            self.is_composed.d.next = false;
        }
        if leaves {
            self.is_composed.d.next = is_good;
            self.composed.d.next = TransmitToken {
                packet: compose(routed, self.route.q.val(), source),
                payload_offset: bits(0),
            };
        }
        self.token.offer(self.is_composed.q.val(), self.composed.q.val());
        self.verdicts.rx.offer(leaves && has_payload, is_good);
        self.counted.d.next = AddressVectorCounts { stale_dropped: leaves && !is_good };
        self.counts.next = self.counted.q.val();

        // Second stage: its path is there, and its source address is looked up.
        let may_route = !self.is_routed.q.val() || leaves;
        let route = self.paths.read_data.val();
        let chosen = self.chosen.q.val();
        if may_route {
            self.is_routed.d.next = self.is_chosen.q.val();
            self.routed.d.next = chosen;
            self.routed.d.next.ack_request = asks_for_ack(chosen, self.frontiers.read_data.val());
            self.route.d.next = route;
            self.is_current.d.next = is_current(chosen, route);
        }
        self.sources.read(may_route, route.source_address_index);

        // First stage: its path is looked up.
        StreamRx::link(&mut self.reply, &mut self.arbiter.rx[0]);
        let request = self.request.beat.val();
        let has_request = self.request.valid.val();
        let replies_gone = self.replies_gone.q.val();
        let has_reply = self.reply.valid.val();
        let is_due = is_due(request.is_response, has_reply, replies_gone);
        self.arbiter.rx[1].offer(has_request && is_due, request);
        let takes_request = self.arbiter.rx[1].ready.val();
        self.request.ready.next = takes_request;
        let reply_goes = has_reply && self.arbiter.rx[0].ready.val();
        self.replies_gone.d.next =
            replies_gone_after(replies_gone, has_request && !takes_request, is_due, reply_goes);
        self.arbiter.last.next = bits(3);
        let may_choose = !self.is_chosen.q.val() || may_route;
        let token = self.arbiter.tx.beat.val();
        self.arbiter.tx.ready.next = may_choose;
        if may_choose {
            self.is_chosen.d.next = self.arbiter.tx.valid.val();
            self.chosen.d.next = token;
        }
        self.paths.read(may_choose, token.queue_pair);
        self.frontiers.read(may_choose, token.queue_pair);

        // Payload passes or is dropped, by the verdict on its packet.
        let has_verdict = self.verdicts.tx.valid.val();
        let passes = self.verdicts.tx.beat.val();
        let beat = self.payload.beat.val();
        let ready = has_verdict && (!passes || self.payload_out.ready.val());
        self.payload_out.offer(has_verdict && passes && self.payload.valid.val(), beat);
        self.payload.ready.next = ready;
        let ends = ready && self.payload.valid.val() && beat.last;
        self.verdicts.tx.ready.next = ends;
        if leaves && has_payload && !is_good {
            self.is_dropping.d.next = true;
        } else if ends && !passes {
            self.is_dropping.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
