//! Records that the stages of the requester pass to each other, and records of the pool of outstanding
//! messages.
//!
//! A WQE travels as [`ParsedWqe`], [`CheckedWqe`] and [`Packet`]. What all three carry is one record,
//! [`WqeHeader`]; what a completion needs is another, [`WqeCompletion`], which enters the pool as part of
//! [`OutstandingMessage`].
use crate::weight::{CHARGE_BITS, WEIGHT_BITS};
use crate::wqe::SGE_BITS;
use rnic_kernel::prelude::*;
use rnic_messages::packet::EXTENDED_BITS;
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS};
use rnic_messages::sizes::{EPOCH_BITS, GENERATION_BITS, QUEUE_PAIR_BITS, READ_POOL_BITS, WORK_INDEX_BITS};

/// Width of the number of a pool block: the first 2^10 blocks are the homes of the queue pairs, the others are
/// shared.
pub const BLOCK_BITS: usize = QUEUE_PAIR_BITS + 1;
/// Width of the number of a pool slot: a block, and one of its eight slots.
pub const POOL_SLOT_BITS: usize = BLOCK_BITS + 3;
/// Width of a free-running count of messages.
pub const MESSAGE_COUNT_BITS: usize = 16;
/// Messages in a block.
pub const BLOCK_MESSAGES: u64 = rnic_layout::limits::OUTSTANDING_BLOCK_MESSAGES as u64;
/// Messages that a queue pair may have in flight.
pub const WINDOW: u64 = 1024;
/// `log2` of the PSNs in flight below which a message, or a quantum of a long one, may begin (protocol 2.1).
pub const PSN_WINDOW_BITS: usize = 15;
/// `log2` of the bytes above which a message is long; a long one is segmented in quanta of that size
/// (design decision 10).
pub const QUANTUM_BITS: usize = 14;
/// Width of a lap: how often wqe_parse has moved the index of wqe_fetch other than slot by slot.
pub const LAP_BITS: usize = 2;
/// Most slots in a burst.
pub const BURST_SLOTS: u64 = 8;
/// Width of the timer code of an RNR NAK.
pub const RNR_CODE_BITS: usize = 5;
/// Width of a number of retries.
pub const RETRY_BITS: usize = 3;
/// Width of the name of an attempt: the retries of both kinds.
pub const ATTEMPT_BITS: usize = 2 * RETRY_BITS;
/// Bits of a slot of a send queue.
pub const SLOT_BITS: usize = 8 * rnic_layout::limits::WQE_SLOT_BYTES;

/// A burst of consecutive slots that was requested from the host, or is shown again.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeBurst {
    /// Queue pair that owns the ring.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair at the time of the request.
    pub generation: Bits<GENERATION_BITS>,
    /// Free-running index of the first slot.
    pub first_index: Bits<WORK_INDEX_BITS>,
    /// Slots in the burst, 1 to 8.
    pub count: Bits<4>,
    /// Lap in which it was requested.
    pub lap: Bits<LAP_BITS>,
    /// No slot was posted after the last one of the burst.
    pub ends_queue: Bit,
    /// The producer index claims more slots than the ring has; the burst has no slots.
    pub is_overrun: Bit,
    /// More was posted, and is not fetched until wqe_parse requests it.
    pub is_single: Bit,
    /// The slots are those that kept_slots has.
    pub is_kept: Bit,
    /// Weight that its messages are counted with.
    pub weight: Bits<WEIGHT_BITS>,
    /// Units that it takes of the line to segment.
    pub charge: Bits<CHARGE_BITS>,
}

/// Tells fetch to continue at a slot, or to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct FetchResume {
    /// Queue pair whose fetching changes.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair; ignored when it is not the current one.
    pub generation: Bits<GENERATION_BITS>,
    /// Free-running index of the slot to fetch next.
    pub slot_index: Bits<WORK_INDEX_BITS>,
    /// Continue at `slot_index`; else stop.
    pub resumes: Bit,
    /// Stop after one burst, if more was posted.
    pub is_single: Bit,
    /// Messages that were begun are sent again from there on, in SQD too.
    pub replays: Bit,
    /// How often the index has gone back or forth.
    pub lap: Bits<LAP_BITS>,
}

/// A fetched slot with its successor, in case both are one WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeSlot {
    /// Queue pair that owns the ring.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair when the slot was requested.
    pub generation: Bits<GENERATION_BITS>,
    /// Free-running index of the slot.
    pub index: Bits<WORK_INDEX_BITS>,
    /// Lap in which it was requested.
    pub lap: Bits<LAP_BITS>,
    /// `second` is valid.
    pub has_second: Bit,
    /// No slot was posted after this one.
    pub ends_queue: Bit,
    /// Last slot of its burst.
    pub ends_burst: Bit,
    /// The burst has no slot, as the producer index claims more than the ring has.
    pub is_overrun: Bit,
    /// More was posted than its burst has, and is not fetched until wqe_parse requests it.
    pub is_single: Bit,
    /// It comes from kept_slots.
    pub is_kept: Bit,
    /// Weight that it was counted with.
    pub weight: Bits<WEIGHT_BITS>,
    /// Units of its burst.
    pub charge: Bits<CHARGE_BITS>,
    /// The host failed to return this slot, or its successor where the WQE has two slots.
    pub is_unreadable: Bit,
    /// The slot, byte 0 in bits 7:0.
    pub first: Bits<SLOT_BITS>,
    /// Its successor.
    pub second: Bits<SLOT_BITS>,
}

/// What wqe_parse tells kept_slots in a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct KeptEvent {
    /// Queue pair of all that follows.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Its row is read.
    pub looks: Bit,
    /// The slot that is shown is taken or dropped.
    pub acts: Bit,
    /// `acts`: its queue pair is held at it.
    pub holds: Bit,
    /// `holds`: it waits for READs or atomics.
    pub keeps: Bit,
    /// The queue pair was held, and is woken: asks for the slot at the cursor.
    pub wakes: Bit,
    /// The last slot of a kept or single burst was shown, and the queue pair goes on: asks as well.
    pub ends: Bit,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Free-running index of the slot that is wanted next.
    pub cursor: Bits<WORK_INDEX_BITS>,
    /// Lap of the cursor.
    pub lap: Bits<LAP_BITS>,
}

/// Answer of kept_slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct KeptAnswer {
    /// A burst is under way after which wqe_parse will ask again; else fetch must be resumed.
    pub serves: Bit,
    /// One burst is to be fetched, from `last` on.
    pub refills: Bit,
    /// Free-running index of the last slot that is kept.
    pub last: Bits<WORK_INDEX_BITS>,
}

/// What identifies a message from the parsing of its WQE to its slot in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeHeader {
    /// Queue pair that posted the WQE.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair when the WQE was parsed.
    pub generation: Bits<GENERATION_BITS>,
    /// There is no WQE and no packet: only the `ends_` flags are valid.
    pub is_empty: Bit,
    /// First WQE since the queue pair was created or reset.
    pub is_first: Bit,
    /// Epoch of the queue pair when the WQE was parsed.
    pub epoch: Bits<EPOCH_BITS>,
    /// The message has its place in the pool, and is sent again.
    pub is_replay: Bit,
    /// A burst of slots ends here.
    pub ends_burst: Bit,
    /// READ or atomic that counts against the queue pair's limit of outstanding ones.
    pub is_open: Bit,
    /// PSN of the last packet of the message, if its status is success.
    pub last_psn: Bits<24>,
    /// Pool slot of the message.
    pub pool_slot: Bits<POOL_SLOT_BITS>,
    /// Messages of the queue pair that are in the pool or on their way there up to this one, free-running; of a replay, all.
    pub message_count: Bits<MESSAGE_COUNT_BITS>,
    /// Free-running index of the slot after the WQE.
    pub next_slot: Bits<WORK_INDEX_BITS>,
}

/// What segment needs to know of a message besides its WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SegmentPlan {
    /// PSN of the first packet that is sent.
    pub first_psn: Bits<24>,
    /// Packets of the message before that one are not sent again.
    pub is_continued: Bit,
    /// WqeParse accepts no WQE of the queue pair after this one until segment wakes it.
    pub is_long: Bit,
    /// Units of the burst that ends with it, if one does.
    pub charge: Bits<CHARGE_BITS>,
    /// Place of the [`ReadRecord`] in the pool of READ slots, where `is_open`.
    pub read_place: Bits<READ_POOL_BITS>,
    /// A `PathMtu`.
    pub path_mtu: Bits<3>,
    /// Protection domain of the queue pair.
    pub domain: Bits<24>,
}

/// What the CQE of a WQE is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeCompletion {
    /// The WQE was read; else `wr_id` is zero, and no CQE can report the message.
    pub has_wr_id: Bit,
    /// `wr_id` of the WQE.
    pub wr_id: Bits<64>,
    /// A successful completion writes a CQE.
    pub is_signalled: Bit,
    /// A `CompletionStatus`, as far as it is known; with any but success, nothing is sent.
    pub status: Bits<8>,
    /// `vendor_error` of the CQE.
    pub reason: Bits<8>,
}

/// Operation of a WQE; a SEND if no flag is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeKind {
    /// WRITE, with or without immediate data.
    pub is_write: Bit,
    /// READ or atomic.
    pub is_read: Bit,
    /// Compare and swap, or fetch and add.
    pub is_atomic: Bit,
    /// Compare and swap.
    pub is_compare: Bit,
    /// LOCAL_INVALIDATE: nothing is sent.
    pub is_local: Bit,
}

/// A WQE that has its PSNs and its pool slot. No field of its slots has been checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ParsedWqe {
    /// Identity of the message.
    pub header: WqeHeader,
    /// How to segment it.
    pub plan: SegmentPlan,
    /// Packets of the message, or responses to it, that are not asked for again.
    pub skipped_packets: Bits<24>,
    /// The last packet must request an acknowledgement, whatever the WQE says.
    pub needs_ack: Bit,
    /// The WQE takes two slots.
    pub two_slots: Bit,
    /// The WQE completes as flushed.
    pub is_flushed: Bit,
    /// `vendor_error` of a WQE that must not be read, else zero.
    pub reason: Bits<8>,
    /// The queue pair signals every WQE.
    pub signal_all: Bit,
    /// The queue pair's service is the reliable connection.
    pub is_reliable: Bit,
    /// First slot.
    pub first: Bits<SLOT_BITS>,
    /// Second slot, if `two_slots`.
    pub second: Bits<SLOT_BITS>,
}

/// What is left of a scatter/gather element (SGE).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Sge {
    /// Local key of the region.
    pub key: Bits<32>,
    /// Address in the region's own address space.
    pub address: Bits<64>,
    /// In bytes; zero for an SGE that is not there.
    pub length: Bits<32>,
}

/// Operands of an atomic, as integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AtomicOperands {
    /// Value to compare with; ignored by fetch and add.
    pub compare: Bits<64>,
    /// Value to write, or to add.
    pub swap_add: Bits<64>,
}

/// The last 16 bytes of a checked WQE, as the WQE has them: read them with [`atomic_operands`] for an atomic,
/// and with [`second_sge`] for everything else. One field for both saves 128 bits in the queue before segment,
/// and as many registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeTail {
    /// Byte 0 in bits 7:0.
    pub bytes: Bits<SGE_BITS>,
}

/// A WQE whose fields have been checked; its keys have not.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CheckedWqe {
    /// Identity of the message.
    pub header: WqeHeader,
    /// How to segment it.
    pub plan: SegmentPlan,
    /// How it completes.
    pub completion: WqeCompletion,
    /// Kind of the operation.
    pub kind: WqeKind,
    /// The message carries immediate data.
    pub has_immediate: Bit,
    /// SEND with Invalidate.
    pub with_invalidate: Bit,
    /// SE bit of the last packet.
    pub solicited: Bit,
    /// AckReq bit of the last packet.
    pub ack_request: Bit,
    /// ImmDt or IETH as on the wire; the key of LOCAL_INVALIDATE, as a number; else zero.
    pub immediate_or_key: Bits<32>,
    /// RETH as on the wire; zero for a SEND.
    pub reth: Bits<128>,
    /// Length of the message in bytes.
    pub length: Bits<32>,
    /// Slots of inline data, 0 to 2.
    pub inline_count: Bits<2>,
    /// First SGE that is not empty.
    pub first: Sge,
    /// Second SGE that is not empty, or the operands of an atomic. Undefined if `listed_count` is not zero.
    pub tail: WqeTail,
    /// SGEs after the first, if more than two are not empty: these come on a stream of their own. Else zero.
    pub listed_count: Bits<3>,
}

/// A packet whose keys are being looked up, or a WQE that sends nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Packet {
    /// Identity of the message. `is_first` and `is_open` are set in its first packet only.
    pub header: WqeHeader,
    /// How the message completes. Valid in its first packet, but for the status: with any but success, nothing
    /// is sent.
    pub completion: WqeCompletion,
    /// Operation of the message.
    pub kind: WqeKind,
    /// First packet of the message, with which it is written into the pool.
    pub starts: Bit,
    /// A turn of a long message ends here.
    pub ends_turn: Bit,
    /// BTH opcode.
    pub opcode: Bits<8>,
    /// BTH SE bit.
    pub solicited: Bit,
    /// BTH AckReq bit.
    pub ack_request: Bit,
    /// BTH PSN.
    pub psn: Bits<24>,
    /// Extended headers as on the wire: RETH and ImmDt, or IETH, or AtomicETH. Of a LOCAL_INVALIDATE, which
    /// sends none, key and protection domain: read them with [`invalidated_key`] and [`invalidated_domain`].
    pub extended_or_key: Bits<EXTENDED_BITS>,
    /// Bytes of payload.
    pub payload_bytes: Bits<13>,
    /// Slots of inline data, 0 to 2.
    pub inline_count: Bits<2>,
    /// Access requests in flight for the packet, 0 to 2: one for each SGE that it takes bytes of.
    pub request_count: Bits<2>,
    /// More requests follow the only counted one, up to the last that [`SgePart`] marks.
    pub is_listed: Bit,
    /// Bytes from the first SGE; none of a READ, which sends none.
    pub first_length: Bits<13>,
    /// Bytes from the second SGE.
    pub second_length: Bits<13>,
}

/// Bytes that a packet takes of an SGE after the first of a list; one for each access request that
/// `request_count` leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SgePart {
    /// In bytes.
    pub length: Bits<13>,
    /// The packet is complete with it.
    pub is_last: Bit,
}

/// A READ or an atomic, as its responses need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadRecord {
    /// PSN of the first response.
    pub psn: Bits<24>,
    /// Length in bytes.
    pub length: Bits<32>,
    /// A `PathMtu`.
    pub path_mtu: Bits<3>,
    /// Protection domain of the queue pair.
    pub domain: Bits<24>,
    /// Compare and swap, or fetch and add.
    pub is_atomic: Bit,
    /// First SGE that is not empty.
    pub first: Sge,
    /// Second SGE that is not empty. Undefined for an atomic, which has one SGE.
    pub second: Sge,
}

/// A READ or an atomic was issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct IssuedRead {
    /// Queue pair that reads.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Slot of its [`ReadRecord`]; of a replay, undefined.
    pub slot: Bits<READ_SLOT_BITS>,
    /// It was issued before, and is requested again.
    pub is_replay: Bit,
}

/// A response of the peer whose payload is to be placed or dropped, or an acknowledgement that must not
/// overtake data.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Response {
    /// Queue pair that it is for.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair when the response was received.
    pub generation: Bits<GENERATION_BITS>,
    /// It is from the peer and its PSN is in flight; else its payload is dropped.
    pub is_good: Bit,
    /// Response to a READ or an atomic; else ACK or NAK.
    pub is_data: Bit,
    /// BTH opcode.
    pub opcode: Bits<8>,
    /// BTH PSN.
    pub psn: Bits<24>,
    /// AETH syndrome, where there is an AETH.
    pub syndrome: Bits<8>,
    /// Bytes of payload.
    pub payload_bytes: Bits<13>,
    /// The pad is not the one that the payload needs.
    pub pad_mismatch: Bit,
    /// AtomicAckETH as on the wire, where there is one.
    pub original: Bits<64>,
    /// No response, but what acknowledge sends after the last one of a queue pair in error.
    pub is_last: Bit,
}

/// Progress that no response of the peer reports: a message that was not sent, or the result of an
/// invalidation.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct LocalCompletion {
    /// Queue pair that is concerned.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// A packet after the first of its message was not sent, as an access check failed.
    pub has_failed: Bit,
    /// PSN of that packet.
    pub psn: Bits<24>,
    /// Control has answered a LOCAL_INVALIDATE.
    pub is_invalidated: Bit,
    /// Control has refused it.
    pub is_denied: Bit,
}

/// A message in the pool of outstanding messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct OutstandingMessage {
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// PSN of the last packet.
    pub last_psn: Bits<24>,
    /// Free-running index of the slot after the WQE.
    pub next_slot: Bits<WORK_INDEX_BITS>,
    /// READ or atomic that counts against the queue pair's limit of outstanding ones.
    pub is_open: Bit,
    /// How it completes; status is success if it was sent.
    pub completion: WqeCompletion,
    /// Operation. `is_local` only if control was asked to invalidate the key.
    pub kind: WqeKind,
    /// Bytes of a READ or an atomic; else undefined.
    pub length: Bits<32>,
}

/// Counts of the parsing stage for a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Begun {
    /// Messages that have got a pool slot, free-running.
    pub count: Bits<MESSAGE_COUNT_BITS>,
    /// The next WQE waits for room.
    pub is_held: Bit,
}

/// Counts of the issuing stage for a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Issued {
    /// Messages that were written into the pool, free-running.
    pub count: Bits<MESSAGE_COUNT_BITS>,
    /// READs and atomics with `is_open` among them, free-running.
    pub reads: Bits<READ_COUNT_BITS>,
    /// First PSN that was never sent and that no response to a READ will have.
    pub unsent_psn: Bits<24>,
    /// PSN after the last packet that was sent, or after its last response if it was a READ.
    pub next_psn: Bits<24>,
    /// Epoch of that packet.
    pub epoch: Bits<EPOCH_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
}

/// Counts of the completing stage for a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Retired {
    /// Messages that have left the pool, free-running.
    pub count: Bits<MESSAGE_COUNT_BITS>,
    /// READs and atomics with `is_open` among them, free-running.
    pub reads: Bits<READ_COUNT_BITS>,
    /// Toggles when the home block returns.
    pub home_lap: Bit,
    /// Oldest unacknowledged PSN.
    pub una_psn: Bits<24>,
    /// Free-running index of the slot after the last WQE that has left: that of the oldest message.
    pub oldest_slot: Bits<WORK_INDEX_BITS>,
    /// First PSN of the oldest message.
    pub oldest_psn: Bits<24>,
    /// Counts up when the cursor goes back to the oldest unacknowledged PSN.
    pub epoch: Bits<EPOCH_BITS>,
    /// The cursor stays there, and nothing is sent, until acknowledge wakes the queue pair.
    pub waits: Bit,
    /// A message was completed in error, or the queue pair is in ERR or SQE: what has not begun is flushed.
    pub has_failed: Bit,
}

/// Write of [`Begun`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct BegunWrite {
    /// Queue pair whose counts these are.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// The counts.
    pub begun: Begun,
    /// They are written in this cycle.
    pub valid: Bit,
}

/// Write of [`Issued`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct IssuedWrite {
    /// Queue pair whose counts these are.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// The counts.
    pub issued: Issued,
    /// They are written in this cycle.
    pub valid: Bit,
}

/// Write of [`Retired`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RetiredWrite {
    /// Queue pair whose counts these are.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Its generation.
    pub generation: Bits<GENERATION_BITS>,
    /// A message in error is the oldest or has left, or the queue pair is in ERR or SQE: nothing more of this generation is
    /// sent.
    pub is_closed: Bit,
    /// The counts.
    pub retired: Retired,
    /// They are written in this cycle.
    pub valid: Bit,
}

/// What acknowledge sends behind the last packet of a queue pair, to learn when gather has read all payload before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Mark {
    /// Queue pair that is closed.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Its generation.
    pub generation: Bits<GENERATION_BITS>,
}

/// Read of [`Retired`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RetiredRead {
    /// Queue pair whose counts are read.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// They are read in this cycle.
    pub valid: Bit,
}

/// Write of a message into the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct MessageWrite {
    /// Slot of the pool.
    pub pool_slot: Bits<POOL_SLOT_BITS>,
    /// The message.
    pub message: OutstandingMessage,
    /// It is written in this cycle.
    pub valid: Bit,
}

/// What acknowledge reads from the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PoolRead {
    /// Queue pair whose counts are read.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Its [`Issued`] is read in this cycle.
    pub reads_issued: Bit,
    /// Its [`Begun`] is read in this cycle.
    pub reads_begun: Bit,
    /// Slot whose message is read, in every cycle, and the link of its block.
    pub pool_slot: Bits<POOL_SLOT_BITS>,
}

/// What the timer of a queue pair waits for.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum TimerKind {
    /// The timer does not run.
    Stop,
    /// An acknowledgement, as long as a packet is not acknowledged.
    Ack,
    /// The end of the delay of an RNR NAK.
    RnrWait,
}

/// What acknowledge wants of the timer of a queue pair. The timer starts anew when `kind`, `una_psn` or `attempt`
/// changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct TimerOrder {
    /// What the timer waits for.
    pub kind: TimerKind,
    /// Timer code of the RNR NAK; undefined for other kinds.
    pub rnr_code: Bits<RNR_CODE_BITS>,
    /// Oldest unacknowledged PSN.
    pub una_psn: Bits<24>,
    /// RNR waits and retries since `una_psn` moved; retries in the low half.
    pub attempt: Bits<ATTEMPT_BITS>,
    /// Epoch of the packets that are waited for.
    pub epoch: Bits<EPOCH_BITS>,
}

/// Order to the timer of a queue pair; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct TimerSet {
    /// Queue pair whose timer is set.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// What it is set to.
    pub order: TimerOrder,
}

/// The timer of a queue pair has expired. It was running for the PSN and the attempt that are named: where these
/// have moved since, the message comes too late.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Expired {
    /// Queue pair whose timer expired.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Its generation.
    pub generation: Bits<GENERATION_BITS>,
    /// What the timer waited for.
    pub kind: TimerKind,
    /// [`TimerOrder::una_psn`] of its order.
    pub una_psn: Bits<24>,
    /// [`TimerOrder::attempt`] of its order.
    pub attempt: Bits<ATTEMPT_BITS>,
}

/// Link in a chain of pool blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Link {
    /// Block that is followed.
    pub block: Bits<BLOCK_BITS>,
    /// Block that follows it.
    pub next: Bits<BLOCK_BITS>,
}

/// Events that the requester counts, each a pulse of one cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RequesterCounts {
    /// A response names no queue pair.
    pub unknown_qp: Bit,
    /// A response is for a queue pair whose state takes none.
    pub qp_not_ready: Bit,
    /// A response is of another service than its queue pair.
    pub transport_mismatch: Bit,
    /// A response is of another partition than its queue pair.
    pub partition_key: Bit,
    /// A response is from another address than the peer's, or to another than the queue pair's.
    pub source_address: Bit,
    /// An ACK was accepted.
    pub acknowledgements_received: Bit,
    /// A NAK with a code of 0 to 3 was accepted.
    pub nak_received: Bit,
    /// An RNR NAK was accepted.
    pub nak_rnr_received: Bit,
    /// The PSN of a response was acknowledged before.
    pub response_stale: Bit,
    /// The PSN of a response was never sent.
    pub response_never_sent: Bit,
    /// The syndrome of a response is reserved.
    pub response_reserved: Bit,
    /// A response answers no request, or not as requested.
    pub response_unexpected: Bit,
    /// A response to a READ or an atomic was lost.
    pub implied_nak: Bit,
    /// An acknowledgement timer expired.
    pub timeout: Bit,
    /// A queue pair failed for a lost response, for a NAK of a PSN sequence error, or for its last timeout.
    pub retry_exhausted: Bit,
    /// A queue pair failed for an RNR NAK.
    pub rnr_retry_exceeded: Bit,
    /// A packet was sent again.
    pub packets_retransmitted: Bit,
    /// A message completed with success.
    pub messages_completed: Bit,
    /// A malformed WQE was refused.
    pub work_refused: Bit,
    /// An access check of a local key failed.
    pub local_protection: Bit,
    /// A slot, a failure or a local completion of an older generation was dropped.
    pub stale_dropped: Bit,
}

/// The second SGE of a WQE that is not an atomic.
#[kernel]
pub fn second_sge(tail: WqeTail) -> Sge {
    crate::wqe::sge(tail.bytes)
}

/// The operands of an atomic.
#[kernel]
pub fn atomic_operands(tail: WqeTail) -> AtomicOperands {
    AtomicOperands { compare: tail.bytes.get_bits::<64>(0), swap_add: tail.bytes.get_bits::<64>(64) }
}

/// Key of a LOCAL_INVALIDATE.
#[kernel]
pub fn invalidated_key(extended_or_key: Bits<EXTENDED_BITS>) -> Bits<32> {
    extended_or_key.get_bits::<32>(0)
}

/// Protection domain of a LOCAL_INVALIDATE.
#[kernel]
pub fn invalidated_domain(extended_or_key: Bits<EXTENDED_BITS>) -> Bits<24> {
    extended_or_key.get_bits::<24>(32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;

    #[test]
    fn the_tail_of_a_wqe_is_its_second_sge_or_the_operands_of_an_atomic() {
        let bytes: Vec<u8> = (1..=16).collect();
        let tail = WqeTail { bytes: BigUint::from_bytes_le(&bytes).into() };
        let sge =
            Sge { address: bits(0x0807_0605_0403_0201), key: bits(0x0c0b_0a09), length: bits(0x100f_0e0d) };
        let operands =
            AtomicOperands { compare: bits(0x0807_0605_0403_0201), swap_add: bits(0x100f_0e0d_0c0b_0a09) };
        assert_eq!(second_sge(tail), sge);
        assert_eq!(atomic_operands(tail), operands);
    }

    #[test]
    fn key_and_domain_of_an_invalidation_are_in_the_extended_headers() {
        let extended_or_key = cat!(bits::<168>(0), bits::<24>(0xab_cdef), bits::<32>(0x8765_4321));
        assert_eq!(invalidated_key(extended_or_key), bits(0x8765_4321));
        assert_eq!(invalidated_domain(extended_or_key), bits(0xab_cdef));
    }
}
