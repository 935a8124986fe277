//! What the blocks of the requester say to each other, and what stands in the pool.
use rnic_kernel::prelude::*;
use rnic_messages::packet::EXTENDED_BITS;
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, WORK_INDEX_BITS};

/// Number of a block of outstanding messages: the first 2^10 are the homes of the queue pairs, the others are shared.
pub const BLOCK_BITS: usize = QUEUE_PAIR_BITS + 1;
/// Number of a place in the pool: a block, and one of its eight places.
pub const PLACE_BITS: usize = BLOCK_BITS + 3;
/// Width of the count of messages.
pub const MESSAGE_COUNT_BITS: usize = 16;
/// Messages in a block.
pub const BLOCK_MESSAGES: u64 = rnic_layout::limits::OUTSTANDING_BLOCK_MESSAGES as u64;
/// Messages that a queue pair may have in flight.
pub const WINDOW: u64 = 1024;
/// A message or a quantum of a long one begins only with fewer packets than 2 to this in flight (protocol 2.1).
pub const PSN_WINDOW_BITS: usize = 15;
/// A message of more than 2 to so many bytes is a long one: it is cut so much at a time (design decision 10).
pub const QUANTUM_BITS: usize = 14;
/// Slots of a burst.
pub const BURST_SLOTS: u64 = 8;
/// Bits of a slot.
pub const SLOT_BITS: usize = 8 * rnic_layout::limits::WQE_SLOT_BYTES;

/// Slots that were asked for at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeBurst {
    /// Of which queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// Free-running index of the first.
    pub first_index: Bits<WORK_INDEX_BITS>,
    /// How many.
    pub count: Bits<4>,
    /// Nothing was posted behind the last.
    pub ends_queue: Bit,
    /// The producer index claims more than the ring has; no slots follow.
    pub is_overrun: Bit,
}

/// Where fetching is to go on, or that it is to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct FetchResume {
    /// Of which queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// The slot that is wanted next.
    pub slot_index: Bits<WORK_INDEX_BITS>,
    /// Go on there; else stop.
    pub resumes: Bit,
}

/// A slot, and the one behind it, in case both are one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeSlot {
    /// Of which queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// Free-running index of the slot.
    pub index: Bits<WORK_INDEX_BITS>,
    /// The slot behind it is here.
    pub has_second: Bit,
    /// Nothing was posted behind it.
    pub ends_queue: Bit,
    /// The last of its burst.
    pub ends_burst: Bit,
    /// There is no slot: the producer index claims more than the ring has.
    pub is_overrun: Bit,
    /// The host failed to give it, or the one behind it.
    pub is_unreadable: Bit,
    /// The slot.
    pub first: Bits<SLOT_BITS>,
    /// The one behind it.
    pub second: Bits<SLOT_BITS>,
}

/// An entry that has its PSN and its place in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ParsedWqe {
    /// Of which queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// There is no entry; only `ends_burst` counts.
    pub is_empty: Bit,
    /// The first entry since the queue pair was made or reset.
    pub is_first: Bit,
    /// The burst ends here.
    pub ends_burst: Bit,
    /// PSN of its first packet.
    pub psn: Bits<24>,
    /// PSN of its last packet, if all is right with it.
    pub last_psn: Bits<24>,
    /// Segmentation takes nothing more of its queue pair before cut says so.
    pub is_long: Bit,
    /// It is a READ or an atomic that counts among those that are open.
    pub is_open: Bit,
    /// Where that is written down.
    pub read_slot: Bits<READ_SLOT_BITS>,
    /// Its place in the pool.
    pub place: Bits<PLACE_BITS>,
    /// Messages of the queue pair up to this one.
    pub message_count: Bits<MESSAGE_COUNT_BITS>,
    /// The slot behind it.
    pub next_slot: Bits<WORK_INDEX_BITS>,
    /// The peer must be asked for an answer.
    pub asks: Bit,
    /// It takes two slots.
    pub two_slots: Bit,
    /// It completes as flushed.
    pub is_flushed: Bit,
    /// Not to be read: the reason, else zero.
    pub reason: Bits<8>,
    /// Every entry counts as signalled.
    pub signal_all: Bit,
    /// The service is the one that is served.
    pub is_reliable: Bit,
    /// Code of the PMTU.
    pub path_mtu: Bits<3>,
    /// Protection domain.
    pub domain: Bits<24>,
    /// First slot.
    pub first: Bits<SLOT_BITS>,
    /// Second slot.
    pub second: Bits<SLOT_BITS>,
}

/// What is left of an element that a message is gathered from.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Sge {
    /// Key of its region.
    pub key: Bits<32>,
    /// In the region's own address space.
    pub address: Bits<64>,
    /// In bytes; zero if there is no such element.
    pub length: Bits<32>,
}

/// An entry whose fields are right or wrong; nobody has asked for its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CheckedWqe {
    /// Of which queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// There is no entry; only `ends_burst` counts.
    pub is_empty: Bit,
    /// The first entry since the queue pair was made or reset.
    pub is_first: Bit,
    /// The burst ends here.
    pub ends_burst: Bit,
    /// PSN of its first packet.
    pub psn: Bits<24>,
    /// PSN of its last packet, if the status is success.
    pub last_psn: Bits<24>,
    /// Segmentation takes nothing more of its queue pair before cut says so.
    pub is_long: Bit,
    /// It is a READ or an atomic that counts among those that are open.
    pub is_open: Bit,
    /// Where that is written down.
    pub read_slot: Bits<READ_SLOT_BITS>,
    /// Its place in the pool.
    pub place: Bits<PLACE_BITS>,
    /// Messages of the queue pair up to this one.
    pub message_count: Bits<MESSAGE_COUNT_BITS>,
    /// The slot behind it.
    pub next_slot: Bits<WORK_INDEX_BITS>,
    /// There is an entry that was read; else `tag` is zero, and no completion can tell.
    pub has_wr_id: Bit,
    /// Tag of the entry.
    pub wr_id: Bits<64>,
    /// A `CompletionStatus`, as far as it is known.
    pub status: Bits<8>,
    /// More about an error.
    pub reason: Bits<8>,
    /// It completes visibly also when all goes well.
    pub is_signalled: Bit,
    /// A WRITE of some kind.
    pub is_write: Bit,
    /// A READ or an atomic; if neither, a SEND.
    pub is_read: Bit,
    /// An atomic.
    pub is_atomic: Bit,
    /// It is a compare and swap.
    pub is_compare: Bit,
    /// It has immediate data.
    pub has_immediate: Bit,
    /// A SEND that ends a key of the peer.
    pub with_invalidate: Bit,
    /// The end of a key of this host: nothing is sent.
    pub is_local: Bit,
    /// BTH of its last packet: SE.
    pub solicited: Bit,
    /// BTH of its last packet: AckReq.
    pub ack_request: Bit,
    /// ImmDt or IETH as on the wire; of the end of a key of this host, the key as a number; else zero.
    pub immediate: Bits<32>,
    /// RETH in wire order; zero for a SEND.
    pub remote: Bits<128>,
    /// Bytes of the message.
    pub length: Bits<32>,
    /// Slots of inline data, 0 to 2.
    pub inline_count: Bits<2>,
    /// Code of the PMTU.
    pub path_mtu: Bits<3>,
    /// Protection domain.
    pub domain: Bits<24>,
    /// First element with bytes.
    pub first: Sge,
    /// Second element with bytes. The operands of an atomic: `compare` as its address, the other one as key and length.
    pub second: Sge,
    /// Elements with bytes behind the first, if there are more than two: they come as a list, and `second` means nothing.
    pub listed_count: Bits<3>,
}

/// A packet whose keys are being looked up, or an entry that makes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Packet {
    /// Of which queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// There is none; only `ends_burst` and `ends_turn` count.
    pub is_empty: Bit,
    /// That of the first entry since the queue pair was made or reset.
    pub is_first: Bit,
    /// The first of its message, which is written down with it. Others do not need what belongs to the entry.
    pub starts: Bit,
    /// A burst of slots ends here.
    pub ends_burst: Bit,
    /// A turn of a long message ends here.
    pub ends_turn: Bit,
    /// Messages of the queue pair up to this one.
    pub message_count: Bits<MESSAGE_COUNT_BITS>,
    /// Of the entry: PSN of its last packet.
    pub last_psn: Bits<24>,
    /// Of the entry: its place in the pool.
    pub place: Bits<PLACE_BITS>,
    /// Of the entry: the slot behind it.
    pub next_slot: Bits<WORK_INDEX_BITS>,
    /// Of the entry: it was read, and has a tag.
    pub has_wr_id: Bit,
    /// Of the entry: its tag.
    pub wr_id: Bits<64>,
    /// A `CompletionStatus`, as far as it is known; other than success, nothing is sent.
    pub status: Bits<8>,
    /// Of the entry: more about an error.
    pub reason: Bits<8>,
    /// Of the entry: it completes visibly also when all goes well.
    pub is_signalled: Bit,
    /// Of the entry: a WRITE of some kind.
    pub is_write: Bit,
    /// Of the entry: a READ or an atomic.
    pub is_read: Bit,
    /// Of the entry: an atomic.
    pub is_atomic: Bit,
    /// Of the entry: it is a compare and swap.
    pub is_compare: Bit,
    /// Of the entry: a READ or an atomic that counts among those that are open.
    pub is_open: Bit,
    /// It is the end of a key of this host, and no packet.
    pub is_local: Bit,
    /// BTH: operation.
    pub opcode: Bits<8>,
    /// BTH: SE.
    pub solicited: Bit,
    /// BTH: AckReq.
    pub ack_request: Bit,
    /// BTH: PSN.
    pub psn: Bits<24>,
    /// RETH and ImmDt, or IETH, or AtomicETH, in wire order; of the end of a key of this host, key and protection domain.
    pub extended: Bits<EXTENDED_BITS>,
    /// Bytes of payload.
    pub payload_bytes: Bits<13>,
    /// Slots of inline data, 0 to 2.
    pub inline_count: Bits<2>,
    /// Keys that are being looked up, 0 to 2: one for each stretch of memory.
    pub request_count: Bits<2>,
    /// Behind the only one of these come others, up to the last one that `parts` says.
    pub is_listed: Bit,
    /// Bytes of the first stretch; nothing of a READ, which sends none.
    pub first_length: Bits<13>,
    /// Bytes of the second stretch.
    pub second_length: Bits<13>,
}

/// What an element behind the first one of a list gives to a packet, when its key is being looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SgePart {
    /// In bytes.
    pub length: Bits<13>,
    /// The packet is complete with it.
    pub is_last: Bit,
}

/// A READ or an atomic as its responses need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadRecord {
    /// PSN of its first response.
    pub psn: Bits<24>,
    /// In bytes.
    pub length: Bits<32>,
    /// Code of the PMTU.
    pub path_mtu: Bits<3>,
    /// Protection domain.
    pub domain: Bits<24>,
    /// It is an atomic.
    pub is_atomic: Bit,
    /// First element with bytes.
    pub first: Sge,
    /// Second element with bytes; means nothing of an atomic.
    pub second: Sge,
}

/// A READ or an atomic is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct IssuedRead {
    /// Of which queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// Where its record is.
    pub slot: Bits<READ_SLOT_BITS>,
}

/// An answer of the peer whose payload is to be placed or dropped, or which must not overtake that of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Response {
    /// Of which queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// From the peer, and its PSN is in flight; else its payload is dropped.
    pub is_good: Bit,
    /// It answers a READ or an atomic; else it is an ACK or NAK.
    pub is_data: Bit,
    /// BTH: operation.
    pub opcode: Bits<8>,
    /// BTH: PSN.
    pub psn: Bits<24>,
    /// AETH: syndrome, where there is one.
    pub syndrome: Bits<8>,
    /// Bytes of payload.
    pub payload_bytes: Bits<13>,
    /// AtomicAckETH as on the wire, where there is one.
    pub original: Bits<64>,
}

/// Something has ended that no answer of the peer will complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct LocalCompletion {
    /// Of which queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// A packet behind the first of its message could not be sent, as a local key, bound or right did not hold.
    pub has_failed: Bit,
    /// The PSN of that packet.
    pub psn: Bits<24>,
    /// Control has ended a key, or has refused to.
    pub is_freed: Bit,
    /// It has refused.
    pub is_denied: Bit,
}

/// A message that is not completed; mirrors those fields of `rnic_layout::context::OutstandingMessage` that SEND, WRITE and READ
/// need, and says how it has ended where the card knew that before sending it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct OutstandingMessage {
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// PSN of its last packet.
    pub last_psn: Bits<24>,
    /// The slot behind it.
    pub next_slot: Bits<WORK_INDEX_BITS>,
    /// Its tag is known; else no completion can tell how it ended.
    pub has_wr_id: Bit,
    /// Its tag.
    pub wr_id: Bits<64>,
    /// It completes visibly also when all goes well.
    pub is_signalled: Bit,
    /// A WRITE of some kind.
    pub is_write: Bit,
    /// A READ or an atomic; if neither, a SEND.
    pub is_read: Bit,
    /// An atomic.
    pub is_atomic: Bit,
    /// It is a compare and swap.
    pub is_compare: Bit,
    /// A READ or an atomic that counts among those that are open.
    pub is_open: Bit,
    /// The end of a key of this host, which control must say.
    pub is_local: Bit,
    /// Bytes of the message; of a READ or an atomic only.
    pub length: Bits<32>,
    /// Success if it was sent, else how it has ended.
    pub status: Bits<8>,
    /// More about an error.
    pub reason: Bits<8>,
}

/// What segmentation says of the messages of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Begun {
    /// Messages that have a place.
    pub count: Bits<MESSAGE_COUNT_BITS>,
    /// The next one waits for room.
    pub is_held: Bit,
}

/// What issuing says of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Issued {
    /// Messages that stand in the pool.
    pub count: Bits<MESSAGE_COUNT_BITS>,
    /// READs among those that ever stood there and were open, free-running.
    pub reads: Bits<READ_COUNT_BITS>,
    /// First PSN that was not sent, and that no response to a READ will have.
    pub unsent_psn: Bits<24>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
}

/// What completing says of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Retired {
    /// Messages that have left the pool.
    pub count: Bits<MESSAGE_COUNT_BITS>,
    /// READs among those that were open, free-running.
    pub reads: Bits<READ_COUNT_BITS>,
    /// Changes when the home block comes back.
    pub home_lap: Bit,
    /// Oldest PSN that is not acknowledged.
    pub una_psn: Bits<24>,
}

/// Which block follows another.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Link {
    /// The block.
    pub block: Bits<BLOCK_BITS>,
    /// The one behind it.
    pub next: Bits<BLOCK_BITS>,
}
