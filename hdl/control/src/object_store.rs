//! Where objects stand in the store: the one memory of everything that commands have set.
//!
//! ```text
//!  0iiiiiiiiiiwwww   queue pair i: header, then the path record
//!  10iiiiiiiiiiwww   region i: header, then the body of its create command
//!  110iiiiiiiiiiww   completion queue i: the same
//!  1110iiiiiiiiwww   address handle i: the same
//!  11110iiiiiiwwww   shared receive queue i: header, a path record of which its ring and domain are in use, and its limit
//!  111110000000www   the command that is being executed
//!  1111100001wwwww   room to build in
//!  11111100iiiiiww   event queue i: header, then the body of its create command
//! ```
//!
//! Every object begins with a header: whether it exists, its whole number, and what the life of the object needs. The
//! body of a create command is kept as it came, because a query writes it back; a queue pair keeps its path record in its
//! place, because that is what the stages want.
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{
    ADDRESS_HANDLE_BITS, COMPLETION_QUEUE_BITS, EVENT_QUEUE_BITS, QUEUE_PAIR_BITS, REGION_BITS,
    SHARED_RECEIVE_BITS,
};

/// Bits of an address of the store, in words of 64 bits.
pub const STORE_BITS: usize = 15;
/// Bits of the longest index of an object.
pub const INDEX_BITS: usize = 10;
/// First word of the command.
pub const COMMAND: u64 = 0x7c00;
/// First word of the room to build in.
pub const SCRATCH: u64 = 0x7c20;
/// Words of an object that stages can be told: header and path record.
pub const LOADED_WORDS: usize = 10;

/// Header: the object exists.
pub const VALID: usize = 0;
/// Header: first bit of the whole number, or key.
pub const NUMBER: usize = 1;
/// Its width.
pub const NUMBER_BITS: usize = 32;
/// Header of a queue pair: first bit of the life state.
pub const STATE: usize = 33;
/// Its width.
pub const STATE_BITS: usize = 3;
/// Header: first bit of the doorbell page.
pub const PAGE: usize = 36;
/// Header of a queue pair: first bit of the generation, which outlives the object.
pub const GENERATION: usize = 56;
/// Header of a queue: first bit of the count of its users. The field ends with the word, so that it can be counted
/// without a neighbour to carry into.
pub const USERS: usize = 52;
/// Word of a region, behind its body, that says where its first byte is, as stages take it for a device address.
pub const FIRST_BYTE: usize = 6;
/// Bits of the path record of a queue pair, and of the body of any other object, begin behind the header.
pub const BODY: usize = 64;
/// First bit of the limit of a shared receive queue; its other settings stand in a path record, because that is what the stages
/// want.
pub const LIMIT: usize = 64 * LOADED_WORDS;
/// Its width.
pub const LIMIT_BITS: usize = 16;
/// First bit behind the limit of the count of its settings, which outlives the object. The field ends nowhere, so that it can be
/// counted; eight bits of it are looked at.
pub const LIMIT_GENERATION: usize = LIMIT + LIMIT_BITS;

const _: () = assert!(
    QUEUE_PAIR_BITS == INDEX_BITS
        && REGION_BITS == INDEX_BITS
        && COMPLETION_QUEUE_BITS == INDEX_BITS
        && ADDRESS_HANDLE_BITS == 8
        && EVENT_QUEUE_BITS == 5
        && SHARED_RECEIVE_BITS == 6,
    "the map above"
);

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, LogicState)]
pub enum Kind {
    /// Queue pair.
    QueuePair,
    /// Region.
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
/// Kinds, as numbers of a step.
pub mod kind {
    use super::Kind;

    /// Queue pair.
    pub const QUEUE_PAIR: u64 = Kind::QueuePair as u64;
    /// Region.
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

/// Gives the index in its table that the number of an object stands for.
#[kernel]
pub fn index_of(kind: Bits<KIND_BITS>, number: Bits<NUMBER_BITS>) -> Bits<INDEX_BITS> {
    select(kind == kind::REGION, number.get_bits::<INDEX_BITS>(8), number.get_bits::<INDEX_BITS>(0))
}

/// Gives the place of an object's header.
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
