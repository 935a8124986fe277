//! Layout of the object store: the memory of everything that commands have set.
//!
//! | Table | Words of an object |
//! |---|---|
//! | queue pairs | 16: header, then the path record, then its shares of READ slots |
//! | regions | 8: header, then the body of its create command |
//! | completion queues | 4: the same |
//! | address handles | 8: the same |
//! | shared receive queues | 16: header, a path record of which only ring and domain are used, and its limit |
//! | event queues | 4: header, then the body of its create command |
//! | work | 64: the command that is executed, and scratch words |
//!
//! Each table has a power of two of words, and the larger ones come first; so each begins at a multiple of its size, and an address
//! is the first one of its table with the index in it.
//!
//! Every object begins with a header: whether it exists, its number, and its state. The body of a create command is kept
//! unchanged, because a query writes it back; a queue pair keeps its path record instead, which is what the stages need.
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{
    SHARED_RECEIVE_BITS, completion_queue_index, index_mask, queue_pair_of, region_of_key,
    shared_receive_index, sizes,
};

/// Bits of an address of the store, in words of 64 bits.
pub const STORE_BITS: usize = 15;
/// Bits of the index of an object, for the largest table.
pub const INDEX_BITS: usize = 10;
/// log2 of the objects of each kind, and of the words of one, by the number of the kind.
fn tables() -> [(usize, usize); 6] {
    let sizes = sizes();
    [
        (sizes.queue_pairs, 4),
        (sizes.regions, 3),
        (sizes.completion_queues, 2),
        (sizes.address_handles, 3),
        (sizes.event_queues, 2),
        (sizes.shared_receive_queues, 4),
    ]
}

/// log2 of the words that no object has.
const WORK_LOG2: usize = 6;
/// Number of their table, behind those of the kinds.
const WORK: u64 = kind::SHARED_RECEIVE + 1;

/// log2 of the words of each table.
fn table_words() -> impl Iterator<Item = (u64, usize)> {
    let words = tables().into_iter().map(|(objects, words)| objects + words).chain([WORK_LOG2]);
    (0..).zip(words)
}

/// First word of a table: behind those that are larger, and those as large with a lower number.
fn first_word(table: u64) -> u64 {
    let (_, words_log2) = table_words().nth(table as usize).expect("a table of the store");
    let is_before =
        |(number, other): &(u64, usize)| *other > words_log2 || (*other == words_log2 && *number < table);
    table_words().filter(is_before).map(|(_, words_log2)| 1 << words_log2).sum()
}

/// log2 of the words of the store.
pub fn words_log2() -> usize {
    let words: usize = table_words().map(|(_, words_log2)| 1 << words_log2).sum();
    words.next_power_of_two().ilog2() as usize
}

/// First word of the command.
pub fn command() -> u64 {
    first_word(WORK)
}

/// First scratch word.
pub fn scratch() -> u64 {
    command() + 32
}

/// The bits that the index of an object of a kind has: those of the last one.
fn kind_mask(kind: u64) -> u64 {
    index_mask(tables()[kind as usize].0)
}

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
pub fn index_of(table: Bits<KIND_BITS>, number: Bits<NUMBER_BITS>) -> Bits<INDEX_BITS> {
    match table.to_u64() {
        kind::REGION => region_of_key(number),
        kind::QUEUE_PAIR => queue_pair_of(number.get_bits::<24>(0)),
        kind::COMPLETION_QUEUE => completion_queue_index(number.get_bits::<24>(0)),
        kind::ADDRESS_HANDLE => number.get_bits::<INDEX_BITS>(0) & kind_mask(kind::ADDRESS_HANDLE),
        kind::SHARED_RECEIVE => {
            bit_cast::<INDEX_BITS, SHARED_RECEIVE_BITS>(shared_receive_index(number.get_bits::<24>(0)))
        }
        _ => number.get_bits::<INDEX_BITS>(0) & kind_mask(kind::EVENT_QUEUE),
    }
}

/// Gives the last index of a kind of objects.
#[kernel]
pub fn last_index(table: Bits<KIND_BITS>) -> Bits<INDEX_BITS> {
    match table.to_u64() {
        kind::REGION => bits::<INDEX_BITS>(kind_mask(kind::REGION)),
        kind::QUEUE_PAIR => bits::<INDEX_BITS>(kind_mask(kind::QUEUE_PAIR)),
        kind::COMPLETION_QUEUE => bits::<INDEX_BITS>(kind_mask(kind::COMPLETION_QUEUE)),
        kind::ADDRESS_HANDLE => bits::<INDEX_BITS>(kind_mask(kind::ADDRESS_HANDLE)),
        kind::SHARED_RECEIVE => bits::<INDEX_BITS>(kind_mask(kind::SHARED_RECEIVE)),
        _ => bits::<INDEX_BITS>(kind_mask(kind::EVENT_QUEUE)),
    }
}

/// Gives the address of the header of an object.
#[kernel]
pub fn header_of(table: Bits<KIND_BITS>, index: Bits<INDEX_BITS>) -> Bits<STORE_BITS> {
    let by_4 = bit_cast::<STORE_BITS, INDEX_BITS>(index) << 2u64;
    let by_8 = by_4 << 1u64;
    let by_16 = by_4 << 2u64;
    match table.to_u64() {
        kind::QUEUE_PAIR => by_16 | first_word(kind::QUEUE_PAIR),
        kind::REGION => by_8 | first_word(kind::REGION),
        kind::COMPLETION_QUEUE => by_4 | first_word(kind::COMPLETION_QUEUE),
        kind::ADDRESS_HANDLE => by_8 | first_word(kind::ADDRESS_HANDLE),
        kind::SHARED_RECEIVE => by_16 | first_word(kind::SHARED_RECEIVE),
        _ => by_4 | first_word(kind::EVENT_QUEUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_messages::sizes::Sizes;

    const KINDS: [(u64, u64); 6] = [
        (kind::QUEUE_PAIR, 16),
        (kind::REGION, 8),
        (kind::COMPLETION_QUEUE, 4),
        (kind::ADDRESS_HANDLE, 8),
        (kind::EVENT_QUEUE, 4),
        (kind::SHARED_RECEIVE, 16),
    ];

    /// No word has two owners, whatever table is the largest.
    #[test]
    fn every_object_has_its_own_words() {
        let tiny = Sizes { queue_pairs: 4, regions: 4, completion_queues: 1, ..Sizes::LARGEST };
        let odd = Sizes { shared_receive_queues: 1, event_queues: 2, address_handles: 1, ..Sizes::LARGEST };
        let least = Sizes { event_queues: 2, address_handles: 1, shared_receive_queues: 1, ..tiny };
        for sizes in [Sizes::LARGEST, tiny, odd, least] {
            sizes.make(|| {
                let mut is_taken = vec![false; 1 << words_log2()];
                let mut take = |first: u64, words: u64| {
                    for word in first..first + words {
                        assert!(!is_taken[word as usize], "{sizes:?}: word {word:#x} has two owners");
                        is_taken[word as usize] = true;
                    }
                };
                for (kind, words) in KINDS {
                    for index in 0..=last_index(bits(kind)).to_u64() {
                        let header = header_of(bits(kind), bits(index)).to_u64();
                        assert_eq!(header % words, 0, "words are named by their low bits");
                        take(header, words);
                    }
                }
                take(command(), 1 << WORK_LOG2);
                assert_eq!(command() % (1 << WORK_LOG2), 0);
            });
        }
    }

    /// A number beyond the table is looked up in the table of its kind, where nobody has it.
    #[test]
    fn a_number_beyond_its_table_leads_to_no_other_table() {
        let small = Sizes { completion_queues: 2, event_queues: 2, address_handles: 1, ..Sizes::LARGEST };
        small.make(|| {
            for (kind, _) in KINDS {
                assert_eq!(index_of(bits(kind), bits(0xffff_ffff)), last_index(bits(kind)));
            }
            assert_eq!(index_of(bits(kind::COMPLETION_QUEUE), bits(0x106)), bits(2));
        });
    }
}
