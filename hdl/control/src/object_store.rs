//! Layout of the object store: the memory of everything that commands have set.
//!
//! ```text
//!  0iiiiiiiiiiwwww   queue pair i: header, then the path record, then its shares of READ slots
//!  10iiiiiiiiiiwww   region i: header, then the body of its create command
//!  110iiiiiiiiiiww   completion queue i: the same
//!  1110iiiiiiiiwww   address handle i: the same
//!  11110iiiiiiwwww   shared receive queue i: header, a path record of which only ring and domain are used, and its limit
//!  111110000000www   the command that is executed
//!  1111100001wwwww   scratch words
//!  11111100iiiiiww   event queue i: header, then the body of its create command
//! ```
//!
//! Every object begins with a header: whether it exists, its number, and its state. The body of a create command is kept
//! unchanged, because a query writes it back; a queue pair keeps its path record instead, which is what the stages need.
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{
    ADDRESS_HANDLE_BITS, COMPLETION_QUEUE_BITS, EVENT_QUEUE_BITS, QUEUE_PAIR_BITS, REGION_BITS,
    SHARED_RECEIVE_BITS, queue_pair_of, region_of_key,
};

/// Bits of an address of the store, in words of 64 bits.
pub const STORE_BITS: usize = 15;
/// Bits of the index of an object, for the largest table.
pub const INDEX_BITS: usize = 10;
/// First word of the command.
pub const COMMAND: u64 = 0x7c00;
/// First scratch word.
pub const SCRATCH: u64 = 0x7c20;
/// Words of an object that are loaded: header, path record and shares of READ slots.
pub const LOADED_WORDS: usize = 11;

/// Header: the object exists.
pub const VALID: usize = 0;
/// Header: first bit of the number, or key.
pub const NUMBER: usize = 1;
/// Width of the number in a header.
pub const NUMBER_BITS: usize = 32;
/// Header of a queue pair: first bit of the state.
pub const STATE: usize = 33;
/// Width of the state in a header.
pub const STATE_BITS: usize = 3;
/// Header: first bit of the doorbell page.
pub const PAGE: usize = 36;
/// Header of a queue pair: first bit of the generation, which outlives the object.
pub const GENERATION: usize = 56;
/// Header of a queue: first bit of the count of its users. It is the last field of the word, so that an addition carries into no
/// other field.
pub const USERS: usize = 52;
/// Word of a region, after its body: device address of its first byte, in the form of the page tables.
pub const FIRST_BYTE: usize = 6;
/// First bit of the path record of a queue pair, and of the body of any other object: the first one after the header.
pub const BODY: usize = 64;
/// Word of a queue pair with its shares of READ slots.
pub const READ_SHARES: usize = 10;
/// Its first bit of the share of the responder; that of the requester comes first.
pub const DESTINATION_SHARE: usize = 32;
/// First bit of the limit of a shared receive queue; its other settings are in a path record.
pub const LIMIT: usize = 64 * LOADED_WORDS;
/// Width of the limit.
pub const LIMIT_BITS: usize = 16;
/// First bit of the generation of the limit, which outlives the object. It is the last field of its word, so that it can be
/// incremented; its low eight bits are compared.
pub const LIMIT_GENERATION: usize = LIMIT + LIMIT_BITS;

const _: () = assert!(
    QUEUE_PAIR_BITS == INDEX_BITS
        && REGION_BITS == INDEX_BITS
        && COMPLETION_QUEUE_BITS == INDEX_BITS
        && ADDRESS_HANDLE_BITS == 8
        && EVENT_QUEUE_BITS == 5
        && SHARED_RECEIVE_BITS == 6,
    "the layout above"
);

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, LogicState)]
pub enum Kind {
    /// Queue pair.
    QueuePair,
    /// Memory region.
    Region,
    /// Completion queue.
    CompletionQueue,
    /// Address handle.
    AddressHandle,
    /// Event queue.
    EventQueue,
    /// Shared receive queue.
    SharedReceive,
}

/// Bits of a [`Kind`].
pub const KIND_BITS: usize = 3;
/// Kinds, as numbers in the constants of instructions.
pub mod kind {
    use super::Kind;

    /// Queue pair.
    pub const QUEUE_PAIR: u64 = Kind::QueuePair as u64;
    /// Memory region.
    pub const REGION: u64 = Kind::Region as u64;
    /// Completion queue.
    pub const COMPLETION_QUEUE: u64 = Kind::CompletionQueue as u64;
    /// Address handle.
    pub const ADDRESS_HANDLE: u64 = Kind::AddressHandle as u64;
    /// Event queue.
    pub const EVENT_QUEUE: u64 = Kind::EventQueue as u64;
    /// Shared receive queue.
    pub const SHARED_RECEIVE: u64 = Kind::SharedReceive as u64;
}

/// Gives the index of an object in the table of its kind, from its number.
#[kernel]
pub fn index_of(kind: Bits<KIND_BITS>, number: Bits<NUMBER_BITS>) -> Bits<INDEX_BITS> {
    match kind.to_u64() {
        kind::REGION => region_of_key(number),
        kind::QUEUE_PAIR => queue_pair_of(number.get_bits::<24>(0)),
        _ => number.get_bits::<INDEX_BITS>(0),
    }
}

/// Gives the address of the header of an object.
#[kernel]
pub fn header_of(kind: Bits<KIND_BITS>, index: Bits<INDEX_BITS>) -> Bits<STORE_BITS> {
    match kind.to_u64() {
        kind::QUEUE_PAIR => cat!(bits::<1>(0), index, bits::<4>(0)),
        kind::REGION => cat!(bits::<2>(2), index, bits::<3>(0)),
        kind::COMPLETION_QUEUE => cat!(bits::<3>(6), index, bits::<2>(0)),
        kind::ADDRESS_HANDLE => cat!(bits::<4>(14), index.get_bits::<ADDRESS_HANDLE_BITS>(0), bits::<3>(0)),
        kind::SHARED_RECEIVE => cat!(bits::<5>(30), index.get_bits::<SHARED_RECEIVE_BITS>(0), bits::<4>(0)),
        _ => cat!(bits::<8>(0xfc), index.get_bits::<EVENT_QUEUE_BITS>(0), bits::<2>(0)),
    }
}
