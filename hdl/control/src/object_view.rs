//! Views of an object: its words in the store as the messages of the other parts of the card.
//!
//! All are functions of the first words of an object, header and body, as they are loaded.
use crate::messages::{PageWrite, QUEUE_NUMBER_BITS};
use crate::object_store::{
    BODY, DESTINATION_SHARE, GENERATION, INDEX_BITS, Kind, LOADED_WORDS, NUMBER, NUMBER_BITS, PAGE,
    READ_SHARES, STATE, STATE_BITS, VALID, kind,
};
use crate::page_list::{LOG2_BITS, PAGE_OFFSET_BITS, PagedRegion};
use crate::path::{PATH_BITS, path_of};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::complete::{CompletionQueueSetup, EventQueueSetup};
use rnic_messages::protect::{Region, RegionWrite};
use rnic_messages::read::{READ_UNIT_BITS, ReadShare};
use rnic_messages::setup::{SetupEvent, SetupKind, SrqSetup, SrqSetupKind};
use rnic_messages::sizes::{
    COMPLETION_QUEUE_BITS, DOORBELL_PAGE_BITS, EVENT_QUEUE_BITS, GENERATION_BITS, PAGE_ENTRY_BITS,
    SHARED_RECEIVE_BITS, VECTOR_BITS, WORK_INDEX_BITS, queue_pair_of, region_of_key,
};

/// Bits of an object that are loaded.
pub const LOADED_BITS: usize = 64 * LOADED_WORDS;
/// Bits of a share of READ slots.
const SHARE_BITS: usize = READ_UNIT_BITS + 2;
/// Bits of a page of a ring's address.
const BASE_PAGE_BITS: usize = 52;

const _: () = assert!(
    BODY + PATH_BITS == 64 * READ_SHARES && READ_SHARES + 1 == LOADED_WORDS,
    "header, path record and shares of READ slots are all of a queue pair"
);

/// Offsets of fields in an object, in the form in which kernels can use them.
mod at {
    use crate::object_store::BODY;
    use rnic_layout::admin::{CreateCompletionQueue, CreateEventQueue, CreateRegion};
    use rnic_layout::limits::RING_ALIGNMENT_BYTES;

    /// Bits of an address within a page.
    const PAGE_BITS: usize = RING_ALIGNMENT_BYTES.trailing_zeros() as usize;

    const fn region(name: &str) -> usize {
        BODY + CreateRegion::RECORD.field(name).offset as usize
    }

    const fn completion_queue(name: &str) -> usize {
        BODY + CreateCompletionQueue::RECORD.field(name).offset as usize
    }

    const fn event_queue(name: &str) -> usize {
        BODY + CreateEventQueue::RECORD.field(name).offset as usize
    }

    pub(super) const REGION_KIND: usize = region("kind");
    pub(super) const REGION_KIND_BITS: usize = CreateRegion::RECORD.field("kind").width as usize;
    pub(super) const REGION: u64 = rnic_layout::admin::RegionKind::Region as u64;
    pub(super) const LOCAL_WRITE: usize = region("local_write");
    pub(super) const REMOTE_WRITE: usize = region("remote_write");
    pub(super) const REMOTE_READ: usize = region("remote_read");
    pub(super) const REMOTE_ATOMIC: usize = region("remote_atomic");
    pub(super) const ZERO_BASED: usize = region("zero_based");
    pub(super) const FIRST_ADDRESS: usize = region("first_address");
    pub(super) const LENGTH: usize = region("length");
    pub(super) const LIST: usize = region("translation_base");
    pub(super) const FIRST_OFFSET: usize = region("first_offset");
    pub(super) const FIRST_ENTRY: usize = region("first_entry");
    pub(super) const PAGE_LOG2: usize = region("page_log2");
    pub(super) const FIRST_BYTE: usize = 64 * crate::object_store::FIRST_BYTE;
    pub(super) const DOMAIN: usize = region("domain");

    pub(super) const COMPLETION_ENTRIES: usize = completion_queue("entries_log2");
    pub(super) const COMPLETION_EVENTS: usize = completion_queue("event_queue");
    pub(super) const MODERATION_COUNT: usize = completion_queue("moderation_count");
    pub(super) const MODERATION_PERIOD: usize = completion_queue("moderation_period");
    pub(super) const COMPLETION_PAGE: usize = completion_queue("base") + PAGE_BITS;

    pub(super) const EVENT_ENTRIES: usize = event_queue("entries_log2");
    pub(super) const VECTOR: usize = event_queue("vector");
    pub(super) const EVENT_PAGE: usize = event_queue("base") + PAGE_BITS;
}

/// Gives the state of a queue pair.
#[kernel]
pub fn state_of(header: Bits<64>) -> Bits<STATE_BITS> {
    header.get_bits::<STATE_BITS>(STATE)
}

/// Gives the generation of a queue pair.
#[kernel]
pub fn generation_of(header: Bits<64>) -> Bits<GENERATION_BITS> {
    header.get_bits::<GENERATION_BITS>(GENERATION)
}

/// Gives the number of an object, or its key.
#[kernel]
pub fn number_of(header: Bits<64>) -> Bits<NUMBER_BITS> {
    header.get_bits::<NUMBER_BITS>(NUMBER)
}

/// Gives the setup event of a queue pair.
#[kernel]
pub fn setup_of(loaded: Bits<LOADED_BITS>, kind: SetupKind, psn: Bits<24>) -> SetupEvent {
    let header = loaded.get_bits::<64>(0);
    let shares = loaded.get_bits::<64>(64 * READ_SHARES);
    SetupEvent {
        kind,
        queue_pair: queue_pair_of(header.get_bits::<24>(NUMBER)),
        state: state_of(header),
        generation: generation_of(header),
        psn,
        path: path_of(loaded.get_bits::<PATH_BITS>(BODY)),
        read_share: share_of(shares, false),
        destination_read_share: share_of(shares, true),
    }
}

/// Gives a share of READ slots of a queue pair, from the word with both.
#[kernel]
pub fn share_of(shares: Bits<64>, is_destination: Bit) -> ReadShare {
    let word = select(
        is_destination,
        shares.get_bits::<SHARE_BITS>(DESTINATION_SHARE),
        shares.get_bits::<SHARE_BITS>(0),
    );
    ReadShare { unit: word.get_bits::<READ_UNIT_BITS>(0), size: word.get_bits::<2>(READ_UNIT_BITS) }
}

/// Gives that word after a share has changed.
#[kernel]
pub fn shares_after(shares: Bits<64>, is_destination: Bit, share: ReadShare) -> Bits<64> {
    let word = bit_cast::<32, SHARE_BITS>(cat!(share.size, share.unit));
    let own = shares.get_bits::<32>(0);
    let destination = shares.get_bits::<32>(DESTINATION_SHARE);
    cat!(select(is_destination, word, destination), select(is_destination, own, word))
}

/// Gives the setup event of a shared receive queue. `limit` is its limit in 16 bits, and the generation of that in the next 8.
#[kernel]
pub fn srq_setup_of(loaded: Bits<LOADED_BITS>, kind: SrqSetupKind, limit: Bits<24>) -> SrqSetup {
    let header = loaded.get_bits::<64>(0);
    let path = path_of(loaded.get_bits::<PATH_BITS>(BODY));
    SrqSetup {
        kind,
        srq: header.get_bits::<SHARED_RECEIVE_BITS>(NUMBER),
        is_alive: state_of(header) != QpState::Reset as u64,
        base_page: path.receive_base_page,
        entries_log2: path.receive_wqes_log2,
        limit: limit.get_bits::<WORK_INDEX_BITS>(0),
        limit_generation: limit.get_bits::<GENERATION_BITS>(WORK_INDEX_BITS),
    }
}

/// Gives the entry of a region in the region tables.
#[kernel]
pub fn region_of(loaded: Bits<LOADED_BITS>) -> RegionWrite {
    RegionWrite {
        index: region_of_key(loaded.get_bits::<NUMBER_BITS>(NUMBER)),
        region: Region {
            key: loaded.get_bits::<NUMBER_BITS>(NUMBER),
            valid: loaded.get_bit(VALID)
                && loaded.get_bits::<{ at::REGION_KIND_BITS }>(at::REGION_KIND) == at::REGION,
            local_write: loaded.get_bit(at::LOCAL_WRITE),
            remote_write: loaded.get_bit(at::REMOTE_WRITE),
            remote_read: loaded.get_bit(at::REMOTE_READ),
            remote_atomic: loaded.get_bit(at::REMOTE_ATOMIC),
            zero_based: loaded.get_bit(at::ZERO_BASED),
            first_address: loaded.get_bits::<64>(at::FIRST_ADDRESS),
            length: loaded.get_bits::<64>(at::LENGTH),
            translation_base: loaded.get_bits::<64>(at::FIRST_BYTE),
            domain: loaded.get_bits::<24>(at::DOMAIN),
        },
    }
}

/// Gives what the list of pages of a region needs.
#[kernel]
pub fn paged_region_of(loaded: Bits<LOADED_BITS>) -> PagedRegion {
    PagedRegion {
        length: loaded.get_bits::<64>(at::LENGTH),
        list: loaded.get_bits::<64>(at::LIST),
        first_offset: loaded.get_bits::<PAGE_OFFSET_BITS>(at::FIRST_OFFSET),
        page_log2: loaded.get_bits::<LOG2_BITS>(at::PAGE_LOG2),
        first_entry: loaded.get_bits::<PAGE_ENTRY_BITS>(at::FIRST_ENTRY),
    }
}

/// Gives the settings of a completion queue.
#[kernel]
pub fn completion_queue_of(loaded: Bits<LOADED_BITS>, restarts: Bit) -> CompletionQueueSetup {
    CompletionQueueSetup {
        completion_queue: loaded.get_bits::<COMPLETION_QUEUE_BITS>(NUMBER),
        restarts,
        valid: loaded.get_bit(VALID),
        entries_log2: loaded.get_bits::<5>(at::COMPLETION_ENTRIES),
        event_queue: loaded.get_bits::<EVENT_QUEUE_BITS>(at::COMPLETION_EVENTS),
        moderation_count: loaded.get_bits::<16>(at::MODERATION_COUNT),
        moderation_period: loaded.get_bits::<16>(at::MODERATION_PERIOD),
        base_page: loaded.get_bits::<BASE_PAGE_BITS>(at::COMPLETION_PAGE),
    }
}

/// Gives the settings of an event queue; with `is_off` it takes no events, although it exists.
#[kernel]
pub fn event_queue_of(loaded: Bits<LOADED_BITS>, restarts: Bit, is_off: Bit) -> EventQueueSetup {
    EventQueueSetup {
        event_queue: loaded.get_bits::<EVENT_QUEUE_BITS>(NUMBER),
        restarts,
        valid: loaded.get_bit(VALID) && !is_off,
        entries_log2: loaded.get_bits::<5>(at::EVENT_ENTRIES),
        vector: loaded.get_bits::<VECTOR_BITS>(at::VECTOR),
        base_page: loaded.get_bits::<BASE_PAGE_BITS>(at::EVENT_PAGE),
    }
}

/// Gives the body that a create command of event queue 0 would have: two words.
#[kernel]
pub fn event_queue_body(setup: EventQueueSetup) -> Bits<128> {
    cat!(setup.base_page, bits::<12>(0), bits::<50>(0), setup.vector, bits::<3>(0), setup.entries_log2)
}

/// Gives the owner of the doorbells of an object.
#[kernel]
pub fn page_of(loaded: Bits<LOADED_BITS>, number_kind: Bits<3>, is_off: Bit) -> PageWrite {
    let kind = match number_kind.to_u64() {
        kind::COMPLETION_QUEUE => Kind::CompletionQueue,
        kind::EVENT_QUEUE => Kind::EventQueue,
        kind::SHARED_RECEIVE => Kind::SharedReceive,
        _ => Kind::QueuePair,
    };
    PageWrite {
        kind,
        index: loaded.get_bits::<INDEX_BITS>(NUMBER),
        valid: loaded.get_bit(VALID) && !is_off,
        page: loaded.get_bits::<DOORBELL_PAGE_BITS>(PAGE),
        number: loaded.get_bits::<QUEUE_NUMBER_BITS>(NUMBER),
    }
}
