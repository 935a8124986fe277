//! The bound of every queue, table and loop, as the formats carry it.
//!
//! These are bounds of the *contract*: no configuration can exceed them, because a field would not hold the number. A
//! generated card may have less, and says so in its capability registers.

/// A bound with its name, for the manual and the C header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Name of the constant.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// What it bounds.
    pub meaning: &'static str,
}

macro_rules! limits {
    ($( $(#[doc = $doc:literal])+ $name:ident: $type:ty = $value:expr; )+) => {
        $( $(#[doc = $doc])+ pub const $name: $type = $value; )+

        /// All bounds.
        pub const LIMITS: &[Limit] = &[ $( Limit {
            name: stringify!($name),
            value: $name as u64,
            meaning: concat!($($doc),+).trim_ascii(),
        } ),+ ];
    };
}

limits! {
    /// Bits of a queue pair number on the wire (protocol 1.3).
    QPN_BITS: u32 = 24;
    /// Largest number of queue pairs, as a power of two. The low bits of a QPN index the tables; the driver draws the
    /// rest at random, and the card compares the whole number, so that a stale or guessed QPN meets nothing.
    QUEUE_PAIRS_LOG2_MAX: u32 = 16;
    /// Largest number of completion queues, as a power of two.
    COMPLETION_QUEUES_LOG2_MAX: u32 = 16;
    /// Largest number of event queues, as a power of two.
    EVENT_QUEUES_LOG2_MAX: u32 = 8;
    /// Largest number of shared receive queues, as a power of two.
    SHARED_RECEIVE_QUEUES_LOG2_MAX: u32 = 16;
    /// Largest number of regions and windows, as a power of two: a key is a 24-bit index and a variant (protocol 4.6).
    REGIONS_LOG2_MAX: u32 = 24;
    /// Largest number of address handles, as a power of two.
    ADDRESS_HANDLES_LOG2_MAX: u32 = 16;
    /// Protection domains are plain numbers of this many bits; the driver hands them out.
    DOMAIN_BITS: u32 = 24;

    /// Doorbell pages, as a power of two: one page of BAR 2 for each process.
    DOORBELL_PAGES_LOG2_MAX: u32 = 12;
    /// Size of a doorbell page.
    DOORBELL_PAGE_BYTES: u64 = 4096;

    /// Slots of a send queue, as a power of two. Indices are 16 bits wide and run free, so that a full ring differs from
    /// an empty one.
    SEND_SLOTS_LOG2_MAX: u32 = 15;
    /// Entries of a receive queue or shared receive queue, as a power of two.
    RECEIVE_WQES_LOG2_MAX: u32 = 15;
    /// Entries of a completion queue, as a power of two. Indices are 24 bits wide and run free.
    CQES_LOG2_MAX: u32 = 22;
    /// Entries of an event queue, as a power of two.
    EQES_LOG2_MAX: u32 = 16;
    /// Smallest ring of every kind, as a power of two: one page of 64-byte slots, so that no ring is shorter than the
    /// longest prefetch.
    RING_LOG2_MIN: u32 = 6;
    /// Commands of the admin queue, as a power of two.
    ADMIN_COMMANDS_LOG2_MAX: u32 = 8;
    /// Rings begin at a multiple of this many bytes, so that no entry crosses a page.
    RING_ALIGNMENT_BYTES: u64 = 4096;

    /// Bytes of a slot of a send queue, and of a receive entry.
    WQE_SLOT_BYTES: usize = 64;
    /// Slots of the longest send entry.
    SEND_SLOTS_MAX: usize = 2;
    /// Scatter/gather elements in the first slot of a send entry.
    SEND_SGES_FIRST_SLOT: usize = 2;
    /// Scatter/gather elements of a send entry of two slots.
    SEND_SGES_MAX: usize = 6;
    /// Inline bytes in the first slot of a send entry.
    INLINE_BYTES_FIRST_SLOT: usize = 32;
    /// Inline bytes of a send entry of two slots.
    INLINE_BYTES_MAX: usize = 96;
    /// Elements of a READ or atomic: its answer's places are held on chip.
    RESPONSE_SGES_MAX: usize = 2;
    /// Scatter elements of a receive entry.
    RECEIVE_SGES_MAX: usize = 3;

    /// Longest message (protocol 2.1).
    MESSAGE_BYTES_MAX: u32 = 1 << 31;
    /// Longest payload of a packet (protocol 1.1).
    PAYLOAD_BYTES_MAX: usize = 4096;
    /// Bytes of extended headers in the longest chain, which is the AtomicETH alone (protocol 1.4).
    EXTENDED_BYTES_MAX: usize = 28;
    /// Bytes before the payload at most: Ethernet, VLAN, IPv6, UDP, BTH and the longest chain (protocol 1.7).
    HEADER_BYTES_MAX: usize = 14 + 4 + 40 + 8 + 12 + EXTENDED_BYTES_MAX;
    /// Longest frame without FCS. PMTU 4096 over tagged IPv6 with the longest headers of a data packet needs 4198 (protocol
    /// 1.1); this is the next multiple of 128, so that a frame buffer is a whole number of header vectors.
    FRAME_BYTES_MAX: usize = 4224;
    /// Unacknowledged PSNs of one queue pair: half the number space would still be safe (protocol 2.1).
    PSN_WINDOW_LOG2_MAX: u32 = 15;
    /// READs and atomics that a queue pair has in flight, as requester and as responder (protocol 2.3, 3.5).
    READ_ATOMIC_MAX: u8 = 16;
    /// Messages in a block of the pool of outstanding messages.
    OUTSTANDING_BLOCK_MESSAGES: usize = 8;
    /// Blocks of that pool, as a power of two.
    OUTSTANDING_BLOCKS_LOG2_MAX: u32 = 16;
    /// Bytes that a UD receive places before the payload (protocol 1.9).
    GRH_BYTES: usize = 40;

    /// Smallest page of a region, as a power of two.
    PAGE_LOG2_MIN: u8 = 12;
    /// Largest page of a region, as a power of two.
    PAGE_LOG2_MAX: u8 = 30;
    /// Entries of the table of pages, which regions that are made of pages share, as a power of two.
    PAGE_ENTRIES_LOG2: u32 = 14;
    /// Detail of an answer: the rest of it is the index of a page in its list.
    DETAIL_IS_PAGE: u32 = 1 << 31;

    /// Longest read and write that the card asks of its host.
    HOST_REQUEST_BYTES_MAX: u32 = 512;
    /// Reads in flight at the host.
    HOST_READ_TAGS_MAX: u32 = 256;
    /// No request crosses a multiple of this.
    HOST_BOUNDARY_BYTES: u64 = 4096;
    /// Interrupt vectors.
    INTERRUPT_VECTORS_MAX: u32 = 64;

    /// Source addresses that the card answers for (protocol 4.2).
    SOURCE_ADDRESSES: usize = 16;
    /// Ethernet multicast groups that the card accepts.
    MULTICAST_GROUPS: usize = 8;
}
