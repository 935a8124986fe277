//! The receive half of the packet path: from the frames of the MAC to tokens and payload.
//!
//! ```text
//!           ┌─────────┐ header  ┌───────┐ coverage        headers, token
//!  from_mac │ collect ├────────>│ parse ├──────┬────────────────┬─────────────────────┐
//!  ────────>│         │         └───────┘      │                │                     │
//!           │         │ beat    ┌───────┐   ┌──▼────┐   ┌───────▼────┐  payload  ┌────▼─────┐
//!           │         ├────────>│ delay ├──>│ measure├┬─>│ strip      ├──────────>│ requests ├──> request_*
//!           └─────────┘         └───────┘   └───────┘│  └────────────┘           ├──────────┤
//!                                   frame, frame_end │  ┌────────────┐  commit   │ responses├──> response_*
//!                                                    ├─>│ dispatch   ├──────────>└──────────┘
//!                                                    │  └──▲───┬─────┘  event    ┌──────────┐
//!                                                    │  ┌──┴───│─────┐  ────────>│ counters ├──> counter
//!                                                    └─>│ icrc ▼     │           └──────────┘
//!                                                       └────────────┘
//!  cycle     W = 1024 / DATA     W + 3       W + 4         W + 8                  W + 10
//! ```
//!
//! Beside a token go the answers of two [`EntryShare`]s whether its queue pair may have more of the request buffer, and of the
//! response buffer.
//!
//! No stage before the buffers can be stalled, and the MAC never waits. Back-pressure ends at the buffers: if one is full, whole
//! frames for its role are dropped and counted, and frames of the other role are not affected. The depth of every stage is
//! fixed, so that what is known about a frame meets its beats without any queue: the window of `collect` lets a frame go
//! on only as far as its beats have come, and from there to the buffers every beat takes the same time.
//!
//! Latency from the last beat of a frame to its token: `1024 / DATA + 10` cycles, one more to the payload of a response;
//! 4 from the reference to the payload of a request. Throughput one beat a cycle, with frames back to back from one beat on.
//!
//! 1. Every frame is accepted once or dropped once, with one outcome.
//! 2. Payload and token become visible only after the ICRC of their packet has been found right.
//! 3. A malformed frame does not affect the frames after it.
//! 4. A queue pair that holds as many packets of a buffer as there is room left for, or as much payload, has the next one dropped
//!    ([`EntryShare`]); so the frames of one cannot keep those of others out, however fast they come and however slow the host is.
//! 5. Payload of requests is given when and in the order in which it is asked for; that of responses in their order.
//!
//! Protocol 1.1 to 1.8, 8.3.
use super::buffer::PacketBuffer;
use super::collect::Collect;
use super::counters::Counters;
use super::delay::Delay;
use super::dispatch::Dispatch;
use super::entry_share::{EntryShare, SHARE_LATENCY};
use super::icrc::IcrcCheck;
use super::measure::Measure;
use super::parse::{COVERAGE_LATENCY, Parse};
use super::request_buffer::RequestBuffer;
use super::strip::{STRIP_LATENCY, Strip};
use rnic_blocks::stream::{Beat, StreamRx, StreamTx, ValidRx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::PacketToken;
use rnic_messages::drop_reason::{self as reason, REASON_BITS};
use rnic_messages::frame::{Count, FrameOutcome};
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::receive::PayloadReference;

/// Levels of the pools of the receive path.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReceivePools {
    /// Cells of the request buffer.
    pub request_cells: Bits<LEVEL_BITS>,
    /// Packets in the request buffer.
    pub request_packets: Bits<LEVEL_BITS>,
    /// Beats in the response buffer.
    pub response_beats: Bits<LEVEL_BITS>,
    /// Packets in the response buffer.
    pub response_packets: Bits<LEVEL_BITS>,
}

/// A beat on its way to the header's findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct PlacedBeat<const DATA: usize, const BYTES: usize> {
    beat: Beat<DATA, BYTES>,
    first: Bit,
}

/// Cycles that a token waits on its way to dispatch, besides one in a register that holds it to the end of its frame.
const TOKEN_DELAY: usize = STRIP_LATENCY - 1;
const _: () = assert!(SHARE_LATENCY == TOKEN_DELAY, "what is said of a queue pair comes with the token");

/// The receive path; each of its two buffers has `2^ADDRESS` beats and `2^TOKENS` tokens.
///
/// `COUNT` is `ADDRESS + 1`, and `TOKEN_COUNT` is `TOKENS + 1`.
#[clocked(reset = "forgets all frames, but not the counts")]
#[derive(Default, LogicBlock, Registers)]
pub struct Receive<
    const DATA: usize,
    const BYTES: usize,
    const ADDRESS: usize,
    const COUNT: usize,
    const TOKENS: usize,
    const TOKEN_COUNT: usize,
> {
    /// From the MAC: a beat of a frame without FCS.
    pub from_mac: ValidRx<Beat<DATA, BYTES>>,

    /// From the registers: packets may come in; while low, good packets find no room.
    pub enable: Signal<In, Bit>,
    /// From the registers: the card's own address, the first byte on the wire most significant.
    pub own_mac: Signal<In, Bits<48>>,
    /// Accept any destination address.
    pub promiscuous: Signal<In, Bit>,
    /// Accept the addresses of IP groups.
    pub accept_multicast: Signal<In, Bit>,
    /// Copy the counts for the reader.
    pub counter_latch: Signal<In, Bit>,
    /// Number of the counter to read: a [`reason`], or an accepted class.
    pub counter_index: Signal<In, Bits<REASON_BITS>>,
    /// Its value at the last latch, [`READ_LATENCY`](super::counters::READ_LATENCY) cycles later; registered.
    pub counter: Signal<Out, Count>,

    /// To the responder: headers of requests.
    pub request_token: StreamTx<PacketToken>,
    /// From place: the request whose payload is read next.
    pub reference: StreamRx<PayloadReference>,
    /// To place: payload of these requests.
    pub request_payload: StreamTx<Beat<DATA, BYTES>>,
    /// To the requester: headers of responses and congestion notifications.
    pub response_token: StreamTx<PacketToken>,
    /// Their payload.
    pub response_payload: StreamTx<Beat<DATA, BYTES>>,

    /// To monitors: what became of a frame; registered.
    pub outcome: ValidTx<FrameOutcome>,
    /// Levels of pools; registered.
    pub pools: Signal<Out, ReceivePools>,

    collect: Collect<DATA, BYTES>,
    parse: Parse,
    beats: Delay<PlacedBeat<DATA, BYTES>, COVERAGE_LATENCY>,
    beats_valid: Reg<Bits<COVERAGE_LATENCY>>,
    measure: Measure<DATA, BYTES>,
    icrc: IcrcCheck<DATA, BYTES>,
    strip: Strip<DATA, BYTES>,
    tokens: Delay<PacketToken, TOKEN_DELAY>,
    tokens_valid: Reg<Bits<TOKEN_DELAY>>,
    /// Headers of the frame that is being written.
    token: DFF<PacketToken>,
    /// The queue pair of this frame has its share of the request buffer, and of the response buffer.
    requests_exceed: DFF<Bit>,
    responses_exceed: DFF<Bit>,
    request_share: EntryShare,
    response_share: EntryShare,
    dispatch: Dispatch,
    requests: RequestBuffer<DATA, BYTES, ADDRESS, TOKENS, TOKEN_COUNT>,
    responses: PacketBuffer<DATA, BYTES, ADDRESS, COUNT, TOKENS, TOKEN_COUNT>,
    counters: Counters,
    pools_held: DFF<ReceivePools>,
}

impl<
    const DATA: usize,
    const BYTES: usize,
    const ADDRESS: usize,
    const COUNT: usize,
    const TOKENS: usize,
    const TOKEN_COUNT: usize,
> Logic for Receive<DATA, BYTES, ADDRESS, COUNT, TOKENS, TOKEN_COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        ValidRx::link(&mut self.from_mac, &mut self.collect.from_mac);
        self.parse.own_mac.next = self.own_mac.val();
        self.parse.promiscuous.next = self.promiscuous.val();
        self.parse.accept_multicast.next = self.accept_multicast.val();
        ValidTx::join(&mut self.collect.header, &mut self.parse.header);
        self.parse.header_bytes.next = self.collect.header_bytes.val();

        // Beats arrive at `measure` together with the coverage of their frame.
        self.beats.from.next = PlacedBeat::<DATA, BYTES> {
            beat: self.collect.beat.value.val(),
            first: self.collect.beat_first.val(),
        };
        self.beats_valid.d.next =
            cat!(self.beats_valid.q.val().get_bits::<2>(0), self.collect.beat.valid.val());
        let placed = self.beats.to.val();
        self.measure.from_delay_first.next = placed.first;
        self.measure.from_delay.offer(self.beats_valid.q.val().get_bit(COVERAGE_LATENCY - 1), placed.beat);
        self.measure.coverage.next = self.parse.coverage.val();

        ValidTx::join(&mut self.measure.to_icrc, &mut self.icrc.from_frame);

        // What has no good headers is not written, since its lengths mean nothing.
        let headers = self.parse.headers.value.val();
        let token = self.parse.token.val();
        ValidTx::join(&mut self.measure.beat, &mut self.strip.beat);
        self.strip.beat_first.next = self.measure.beat_first.val();
        self.strip.header_bytes.next = headers.header_bytes;
        self.strip.payload_bytes.next =
            select(headers.fault == reason::NONE, token.payload_bytes, bits::<13>(0));

        // The token arrives at the buffers with the first payload, and stays to the end of its frame.
        self.tokens.from.next = token;
        self.tokens_valid.d.next =
            cat!(self.tokens_valid.q.val().get_bits::<2>(0), self.parse.headers.valid.val());
        if self.tokens_valid.q.val().get_bit(TOKEN_DELAY - 1) {
            self.token.d.next = self.tokens.to.val();
            self.requests_exceed.d.next = self.request_share.exceeds.val();
            self.responses_exceed.d.next = self.response_share.exceeds.val();
        }

        self.dispatch.from_parse.offer(self.parse.headers.valid.val(), headers);
        self.dispatch.frame_end.next = self.measure.frame_end.val();
        self.dispatch.frame.next = self.measure.frame.val();
        self.dispatch.verdict_valid.next = self.icrc.verdict_valid.val();
        self.dispatch.verdict_ok.next = self.icrc.verdict_ok.val();
        self.dispatch.requests_fit.next = self.requests.fits.val() && self.enable.val();
        self.dispatch.responses_fit.next = self.responses.fits.val() && self.enable.val();

        self.dispatch.requests_exceed.next = self.requests_exceed.q.val();
        self.dispatch.responses_exceed.next = self.responses_exceed.q.val();

        // What each queue pair holds of the two buffers.
        let kept = self.token.q.val();
        self.request_share.free_packets.next = self.requests.free_packets.val();
        self.request_share.free_room.next = self.requests.room.val();
        self.request_share.look.next = token.queue_pair;
        self.request_share.enters.next = self.dispatch.commit_requests.val();
        self.request_share.entering.next = kept.queue_pair;
        self.request_share.entering_bytes.next = kept.payload_bytes;
        self.request_share.takes.next = self.requests.token_tx.valid.val() && self.request_token.ready.val();
        self.request_share.taken.next = self.requests.token_tx.beat.val().queue_pair;
        self.request_share.releases.next = self.requests.releases.val();
        self.request_share.released.next = self.requests.released.val().queue_pair;
        self.request_share.released_bytes.next = self.requests.released.val().payload_bytes;
        self.response_share.free_packets.next = self.responses.free_packets.val();
        self.response_share.free_room.next = self.responses.room.val();
        self.response_share.look.next = token.queue_pair;
        self.response_share.enters.next = self.dispatch.commit_responses.val();
        self.response_share.entering.next = kept.queue_pair;
        self.response_share.entering_bytes.next = kept.payload_bytes;
        self.response_share.takes.next =
            self.responses.token_tx.valid.val() && self.response_token.ready.val();
        self.response_share.taken.next = self.responses.token_tx.beat.val().queue_pair;
        self.response_share.releases.next = self.responses.releases.val();
        self.response_share.released.next = self.responses.released.val().queue_pair;
        self.response_share.released_bytes.next = self.responses.released.val().bytes;

        let to_responses = self.dispatch.to_responses.val();
        self.requests.payload.value.next = self.strip.payload.value.val();
        self.requests.payload.valid.next = self.strip.payload.valid.val() && !to_responses;
        self.requests.token.next = self.token.q.val();
        self.requests.commit.next = self.dispatch.commit_requests.val();
        self.requests.rollback.next = self.dispatch.rollback.val();
        self.responses.payload.value.next = self.strip.payload.value.val();
        self.responses.payload.valid.next = self.strip.payload.valid.val() && to_responses;
        self.responses.token.next = self.token.q.val();
        self.responses.commit.next = self.dispatch.commit_responses.val();
        self.responses.rollback.next = self.dispatch.rollback.val();
        StreamTx::link(&mut self.request_token, &mut self.requests.token_tx);
        StreamRx::link(&mut self.reference, &mut self.requests.reference);
        StreamTx::link(&mut self.request_payload, &mut self.requests.payload_tx);
        StreamTx::link(&mut self.response_token, &mut self.responses.token_tx);
        StreamTx::link(&mut self.response_payload, &mut self.responses.payload_tx);

        ValidTx::join(&mut self.dispatch.outcome, &mut self.counters.outcome);
        self.counters.latch.next = self.counter_latch.val();
        self.counters.read_index.next = self.counter_index.val();
        self.counter.next = self.counters.read.val();
        ValidTx::link(&mut self.outcome, &mut self.dispatch.outcome);
        self.pools_held.d.next = ReceivePools {
            request_cells: self.requests.cells_used.val(),
            request_packets: bit_cast::<LEVEL_BITS, TOKEN_COUNT>(self.requests.packets.val()),
            response_beats: bit_cast::<LEVEL_BITS, COUNT>(self.responses.beats_used.val()),
            response_packets: bit_cast::<LEVEL_BITS, TOKEN_COUNT>(self.responses.packets.val()),
        };
        self.pools.next = self.pools_held.q.val();
    }
}
