//! The bound of every queue, table and loop in the formats.
//!
//! No configuration can exceed these bounds, because a field would not hold the number. A generated card may have lower ones; it
//! reports them in the registers `table_sizes` and `queue_limits`.

/// A bound with its name and meaning, for the manual and the C header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Name of the constant.
    pub name: &'static str,
    /// Value of the constant.
    pub value: u64,
    /// What it bounds, with the unit.
    pub meaning: &'static str,
}

macro_rules! limits {
    ($( $(#[doc = $doc:literal])+ $name:ident: $type:ty = $value:expr; )+) => {
        $( $(#[doc = $doc])+ pub const $name: $type = $value; )+

        /// All bounds, in the order of the manual.
        pub const LIMITS: &[Limit] = &[ $( Limit {
            name: stringify!($name),
            value: $name as u64,
            meaning: concat!($($doc),+).trim_ascii(),
        } ),+ ];
    };
}

limits! {
    /// Bits of a QPN on the wire (protocol 1.3).
    QPN_BITS: u32 = 24;
    /// Largest number of queue pairs, log2. The low bits of a QPN index the tables. The driver chooses the other bits at random
    /// and the card compares all bits, so that a stale or guessed QPN matches no queue pair.
    QUEUE_PAIRS_LOG2_MAX: u32 = 16;
    /// Largest number of completion queues, log2.
    COMPLETION_QUEUES_LOG2_MAX: u32 = 16;
    /// Largest number of event queues, log2.
    EVENT_QUEUES_LOG2_MAX: u32 = 8;
    /// Largest number of SRQs, log2.
    SHARED_RECEIVE_QUEUES_LOG2_MAX: u32 = 16;
    /// Largest number of regions and windows, log2: a key is a 24-bit index and an 8-bit variant (protocol 4.6).
    REGIONS_LOG2_MAX: u32 = 24;
    /// Largest number of address handles, log2.
    ADDRESS_HANDLES_LOG2_MAX: u32 = 16;
    /// Bits of the number of a protection domain. The driver allocates the numbers.
    DOMAIN_BITS: u32 = 24;

    /// Doorbell pages of BAR 2, log2, and as many push pages behind them. Each process has one of each.
    DOORBELL_PAGES_LOG2_MAX: u32 = 11;
    /// Size of a doorbell page, in bytes.
    DOORBELL_PAGE_BYTES: u64 = 4096;

    /// Slots of a send queue, log2. Its indices are free-running and 16 bits wide, so that a full ring differs from an empty one.
    SEND_SLOTS_LOG2_MAX: u32 = 15;
    /// WQEs of a receive queue or SRQ, log2.
    RECEIVE_WQES_LOG2_MAX: u32 = 15;
    /// CQEs of a completion queue, log2. Its indices are free-running and 24 bits wide.
    CQES_LOG2_MAX: u32 = 22;
    /// EQEs of an event queue, log2.
    EQES_LOG2_MAX: u32 = 16;
    /// Entries of the smallest ring of every kind, log2: 64 slots of 64 bytes fill one page, and no prefetch is longer.
    RING_LOG2_MIN: u32 = 6;
    /// Commands of the admin queue, log2.
    ADMIN_COMMANDS_LOG2_MAX: u32 = 8;
    /// Alignment of the base of a ring, in bytes, so that no entry crosses a page.
    RING_ALIGNMENT_BYTES: u64 = 4096;

    /// Bytes of a slot of a send queue, and of a receive WQE.
    WQE_SLOT_BYTES: usize = 64;
    /// Bytes of the word that an atomic changes, which is aligned to its length.
    ATOMIC_BYTES: usize = 8;
    /// Slots of the longest send WQE.
    SEND_SLOTS_MAX: usize = 2;
    /// SGEs in the first slot of a send WQE.
    SEND_SGES_FIRST_SLOT: usize = 2;
    /// SGEs of a send WQE of two slots.
    SEND_SGES_MAX: usize = 6;
    /// Inline bytes in the first slot of a send WQE.
    INLINE_BYTES_FIRST_SLOT: usize = 32;
    /// Inline bytes of a send WQE of two slots.
    INLINE_BYTES_MAX: usize = 96;
    /// SGEs of a READ or atomic, which the card keeps on the chip until the response has arrived.
    RESPONSE_SGES_MAX: usize = 2;
    /// SGEs of a receive WQE.
    RECEIVE_SGES_MAX: usize = 3;

    /// Longest message, in bytes (protocol 2.1).
    MESSAGE_BYTES_MAX: u32 = 1 << 31;
    /// Longest payload of a packet, in bytes (protocol 1.1).
    PAYLOAD_BYTES_MAX: usize = 4096;
    /// Bytes of the longest chain of extended headers, which is the AtomicETH alone (protocol 1.4).
    EXTENDED_BYTES_MAX: usize = 28;
    /// Most bytes ahead of the payload: Ethernet, VLAN, IPv6, UDP, BTH and the longest chain (protocol 1.7).
    HEADER_BYTES_MAX: usize = 14 + 4 + 40 + 8 + 12 + EXTENDED_BYTES_MAX;
    /// Longest frame without FCS, in bytes. PMTU 4096 over tagged IPv6 with the longest headers of a data packet needs 4198
    /// (protocol 1.1); this is the next multiple of 128, so that a frame buffer is a whole number of header vectors.
    FRAME_BYTES_MAX: usize = 4224;
    /// Unacknowledged PSNs of one queue pair, log2. The protocol allows up to half of the number space (protocol 2.1).
    PSN_WINDOW_LOG2_MAX: u32 = 15;
    /// READs and atomics of a queue pair in flight, as requester and as responder (protocol 2.3, 3.5).
    READ_ATOMIC_MAX: u8 = 16;
    /// Messages in a block of the pool of outstanding messages.
    OUTSTANDING_BLOCK_MESSAGES: usize = 8;
    /// Blocks of the pool of outstanding messages, log2.
    OUTSTANDING_BLOCKS_LOG2_MAX: u32 = 16;
    /// Bytes of the GRH area that a UD receive places ahead of the payload (protocol 1.9).
    GRH_BYTES: usize = 40;

    /// Bytes of the smallest page of a region, log2.
    PAGE_LOG2_MIN: u8 = 12;
    /// Bytes of the largest page of a region, log2.
    PAGE_LOG2_MAX: u8 = 30;
    /// Entries of the page table, which all regions made of pages share, log2.
    PAGE_ENTRIES_LOG2: u32 = 14;
    /// Flag in the `detail` of an answer: the other bits are the index of a page in its list.
    DETAIL_IS_PAGE: u32 = 1 << 31;

    /// Bits of a device address.
    DEVICE_ADDRESS_BITS: u32 = 64;
    /// Longest read or write request of the card to its host, in bytes.
    HOST_REQUEST_BYTES_MAX: u32 = 512;
    /// Read requests in flight at the host.
    HOST_READ_TAGS_MAX: u32 = 256;
    /// No request to the host crosses a multiple of this many bytes.
    HOST_BOUNDARY_BYTES: u64 = 4096;
    /// Cycles of the core clock in a unit of the register `host_limit`, log2.
    HOST_LIMIT_UNIT_LOG2: u32 = 10;
    /// Time that the host has for an answer after a reset, in milliseconds: longer than the 50 after which a PCI Express endpoint
    /// gives a read up, and shorter than the 100 that PCI Express gives a function-level reset.
    HOST_LIMIT_RESET_MS: u64 = 64;
    /// What a reset or a quiesce waits longer than `host_limit`, in its units: the work that a late answer sets off.
    DRAIN_UNITS: u64 = 64;
    /// Interrupt vectors of the card.
    INTERRUPT_VECTORS_MAX: u32 = 64;

    /// Source addresses of the port: entries of the GID table (protocol 4.2).
    SOURCE_ADDRESSES: usize = 16;
    /// Ethernet multicast groups that the port accepts.
    MULTICAST_GROUPS: usize = 8;
}
