#![doc = include_str!("manual/admin.md")]

use crate::field::{Field, FieldError, Record, record, values};
use crate::state::{PathMtu, QpState, Service};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

values! {
    /// What a command does: the high four bits are the kind of object, the low four what happens to it.
    pub enum CommandOpcode, "design decision 12" {
        /// Nothing; answered with success.
        Nothing = 0x00, "nothing";
        /// Makes a queue pair, in RESET.
        CreateQueuePair = 0x11, "create_queue_pair";
        /// Changes attributes and state.
        ModifyQueuePair = 0x12, "modify_queue_pair";
        /// Reads everything back.
        QueryQueuePair = 0x13, "query_queue_pair";
        /// Ends it; answered when nothing in flight can use it any more.
        DestroyQueuePair = 0x14, "destroy_queue_pair";
        /// Makes a completion queue.
        CreateCompletionQueue = 0x21, "create_completion_queue";
        /// Changes the moderation.
        ModifyCompletionQueue = 0x22, "modify_completion_queue";
        /// Reads everything back.
        QueryCompletionQueue = 0x23, "query_completion_queue";
        /// Ends it; refused while queue pairs use it.
        DestroyCompletionQueue = 0x24, "destroy_completion_queue";
        /// Makes an event queue.
        CreateEventQueue = 0x31, "create_event_queue";
        /// Changes the interrupt vector.
        ModifyEventQueue = 0x32, "modify_event_queue";
        /// Reads everything back.
        QueryEventQueue = 0x33, "query_event_queue";
        /// Ends it; refused while completion queues use it.
        DestroyEventQueue = 0x34, "destroy_event_queue";
        /// Makes a shared receive queue.
        CreateSharedReceiveQueue = 0x41, "create_shared_receive_queue";
        /// Sets the limit, and arms its event.
        ModifySharedReceiveQueue = 0x42, "modify_shared_receive_queue";
        /// Reads everything back.
        QuerySharedReceiveQueue = 0x43, "query_shared_receive_queue";
        /// Ends it; refused while queue pairs use it.
        DestroySharedReceiveQueue = 0x44, "destroy_shared_receive_queue";
        /// Makes a region or window.
        CreateRegion = 0x51, "create_region";
        /// Changes rights, domain or translation.
        ModifyRegion = 0x52, "modify_region";
        /// Reads everything back.
        QueryRegion = 0x53, "query_region";
        /// Ends it; answered when nothing in flight can use it any more.
        DestroyRegion = 0x54, "destroy_region";
        /// Makes an address handle.
        CreateAddressHandle = 0x61, "create_address_handle";
        /// Changes it as a whole.
        ModifyAddressHandle = 0x62, "modify_address_handle";
        /// Reads everything back.
        QueryAddressHandle = 0x63, "query_address_handle";
        /// Ends it.
        DestroyAddressHandle = 0x64, "destroy_address_handle";
    }
}

values! {
    /// How a command ended. Everything but success means that nothing was changed.
    pub enum CommandStatus, "design decision 12" {
        /// It was executed.
        Success = 0, "success";
        /// There is no such opcode.
        UnknownOpcode = 1, "unknown_opcode";
        /// The card was generated without this feature.
        NotSupported = 2, "not_supported";
        /// A reserved bit is not zero.
        ReservedNotZero = 3, "reserved_not_zero";
        /// A field holds a number outside its range or list.
        ValueNotAllowed = 4, "value_not_allowed";
        /// The object number is beyond the card's table.
        NumberOutOfRange = 5, "number_out_of_range";
        /// An object of this index exists.
        AlreadyExists = 6, "already_exists";
        /// No object has this number, compared whole.
        DoesNotExist = 7, "does_not_exist";
        /// An object that the command refers to does not exist.
        ReferenceDoesNotExist = 8, "reference_does_not_exist";
        /// Objects of different domains.
        DomainMismatch = 9, "domain_mismatch";
        /// The service or state of the queue pair has no such transition.
        TransitionNotAllowed = 10, "transition_not_allowed";
        /// The queue pair is not in the state that the command names.
        StateMismatch = 11, "state_mismatch";
        /// An attribute is required and missing; `detail` is the mask of those.
        AttributeMissing = 12, "attribute_missing";
        /// An attribute is neither required nor optional; `detail` is the mask of those.
        AttributeNotAllowed = 13, "attribute_not_allowed";
        /// The object is in use by others: queues by queue pairs, regions by windows.
        Busy = 14, "busy";
        /// A pool is used up.
        NoResources = 15, "no_resources";
        /// An address is not aligned as it must be.
        Misaligned = 16, "misaligned";
        /// A size is larger than the card's limit, or smaller than a ring can be.
        SizeNotAllowed = 17, "size_not_allowed";
        /// Rights that exclude each other: remote write or atomic without local write.
        RightsContradict = 18, "rights_contradict";
        /// The range of a region wraps, or does not fit its pages.
        RangeNotAllowed = 19, "range_not_allowed";
        /// The host answered a read, or a write of a query, with an error.
        HostError = 20, "host_error";
        /// The device has failed; only a reset helps.
        DeviceFailed = 21, "device_failed";
    }
}

record! {
    /// The first eight bytes of every command.
    pub struct CommandHeader: 64 bits by Driver, "design decision 12" {
        /// What to do.
        opcode: CommandOpcode = 0..8, "design decision 12";
        /// Comes back in the answer.
        tag: u16 = 16..32, "design decision 12";
        /// Which object: QPN, number, or key of a region.
        object_number: u32 = 32..64, "design decision 14";
    }
    reserved { 8..16 }
}

record! {
    /// Body: makes a queue pair in RESET.
    pub struct CreateQueuePair: 448 bits by Driver, "protocol 4.1" {
        /// Transport service.
        service: Service = 0..2, "protocol 4.1";
        /// Receives come from a shared queue; the own one has no ring then.
        shared_receive: bool = 2..3, "protocol 4.5";
        /// Every send entry counts as signalled.
        signal_all: bool = 3..4, "protocol 2.11";
        /// Slots of the send queue, as a power of two.
        send_slots_log2: u8 = 8..12, "design 3.2", reset 6, allowed 6..=15;
        /// Entries of the receive queue, as a power of two.
        receive_wqes_log2: u8 = 16..20, "design 3.2", reset 6, allowed 6..=15;
        /// Doorbell page that owns the queue pair.
        doorbell_page: u16 = 32..44, "design decision 14";
        /// Protection domain.
        domain: u32 = 64..88, "protocol 4.6";
        /// Completion queue of the send queue.
        send_completion_queue: u32 = 96..120, "protocol 4.4";
        /// Completion queue of the receive queue.
        receive_completion_queue: u32 = 128..152, "protocol 4.4";
        /// Shared receive queue, of the same domain.
        shared_receive_queue: u32 = 160..184, "protocol 4.5";
        /// Device address of the send ring, a multiple of 4096.
        send_base: u64 = 192..256, "design 3.2";
        /// Device address of the receive ring, a multiple of 4096.
        receive_base: u64 = 256..320, "design 3.2";
    }
    reserved { 4..8, 12..16, 20..32, 44..64, 88..96, 120..128, 152..160, 184..192, 320..448 }
}

record! {
    /// Body: changes attributes of a queue pair and its state. Attributes that are not in `mask` are ignored, but
    /// must still be legal numbers.
    pub struct ModifyQueuePair: 448 bits by Driver, "protocol 4.1" {
        /// Which attributes count.
        mask: u32 = 0..32, "protocol 4.1";
        /// State to go to; without its bit in the mask, the queue pair stays where it is.
        next_state: QpState = 32..35, "protocol 4.1";
        /// State that the queue pair is believed to be in.
        current_state: QpState = 40..43, "protocol 4.1";
        /// Local write.
        local_write: bool = 48..49, "protocol 4.6";
        /// Peers may write.
        remote_write: bool = 49..50, "protocol 4.6";
        /// Peers may read.
        remote_read: bool = 50..51, "protocol 4.6";
        /// Peers may do atomics.
        remote_atomic: bool = 51..52, "protocol 4.6";
        /// The end of draining raises an event.
        drain_notify: bool = 52..53, "protocol 3.10";
        /// What a query writes: sends that were begun are not done, so a queue pair in SQD is still draining. It means nothing
        /// in a command.
        requests_in_flight: bool = 53..54, "protocol 3.10";
        /// PMTU, at most that of the port.
        path_mtu: PathMtu = 56..59, "protocol 4.1";
        /// Acknowledgement time-out 4.096 us x 2^n; zero for none.
        timeout: u8 = 64..69, "protocol 2.6";
        /// Retries after time-outs and NAK 0x60.
        retry_count: u8 = 72..75, "protocol 2.6";
        /// Retries after RNR; seven for ever.
        rnr_retry: u8 = 80..83, "protocol 2.7";
        /// RNR delay that this side asks for, in the code of the AETH.
        min_rnr_timer: u8 = 88..93, "protocol 1.6";
        /// READs and atomics in flight as requester.
        read_atomic: u8 = 96..101, "protocol 2.3", allowed 0..=16;
        /// READs and atomics in flight as responder.
        destination_read_atomic: u8 = 104..109, "protocol 3.5", allowed 0..=16;
        /// Port; there is one.
        port: u8 = 112..113, "protocol 4.1";
        /// P_Key. The driver keeps the table of the verbs' indices.
        partition_key: u16 = 128..144, "protocol 4.3";
        /// Q_Key.
        queue_key: u32 = 160..192, "protocol 4.3";
        /// QPN of the peer.
        destination_qp: u32 = 192..216, "protocol 4.1";
        /// First PSN to expect.
        receive_psn: u32 = 224..248, "protocol 3.2";
        /// First PSN to send.
        send_psn: u32 = 256..280, "protocol 2.1";
        /// Handle whose address is copied.
        address_handle: u32 = 288..312, "protocol 4.2";
    }
    reserved {
        35..40, 43..48, 54..56, 59..64, 69..72, 75..80, 83..88, 93..96, 101..104, 109..112, 113..128, 144..160,
        216..224, 248..256, 280..288, 312..448
    }
}

record! {
    /// Body: makes a completion queue.
    pub struct CreateCompletionQueue: 448 bits by Driver, "protocol 4.4" {
        /// Entries, as a power of two.
        entries_log2: u8 = 0..5, "protocol 4.4", reset 6, allowed 6..=22;
        /// Event queue for its events.
        event_queue: u8 = 8..16, "protocol 4.4";
        /// Doorbell page that owns the queue.
        doorbell_page: u16 = 16..28, "design decision 14";
        /// An event waits for so many completions; zero and one for none.
        moderation_count: u16 = 32..48, "protocol 4.4";
        /// But no longer than so many units of 256 cycles after the first of them; zero for ever.
        moderation_period: u16 = 48..64, "protocol 4.4", unit "256 cycles";
        /// Device address of the ring, a multiple of 4096.
        base: u64 = 64..128, "design 3.2";
    }
    reserved { 5..8, 28..32, 128..448 }
}

record! {
    /// Body: changes the moderation of a completion queue.
    pub struct ModifyCompletionQueue: 448 bits by Driver, "protocol 4.4" {
        /// An event waits for so many completions; zero and one for none.
        moderation_count: u16 = 32..48, "protocol 4.4";
        /// But no longer than so many units of 256 cycles after the first of them; zero for ever.
        moderation_period: u16 = 48..64, "protocol 4.4", unit "256 cycles";
    }
    reserved { 0..32, 64..448 }
}

record! {
    /// Body: makes an event queue.
    pub struct CreateEventQueue: 448 bits by Driver, "protocol 4.4" {
        /// Entries, as a power of two.
        entries_log2: u8 = 0..5, "protocol 4.4", reset 6, allowed 6..=16;
        /// Interrupt vector.
        vector: u8 = 8..14, "protocol 4.4";
        /// Doorbell page that owns the queue.
        doorbell_page: u16 = 16..28, "design decision 14";
        /// Device address of the ring, a multiple of 4096.
        base: u64 = 64..128, "design 3.2";
    }
    reserved { 5..8, 14..16, 28..64, 128..448 }
}

record! {
    /// Body: changes the interrupt vector of an event queue.
    pub struct ModifyEventQueue: 448 bits by Driver, "protocol 4.4" {
        /// Interrupt vector.
        vector: u8 = 8..14, "protocol 4.4";
    }
    reserved { 0..8, 14..448 }
}

record! {
    /// Body: makes a shared receive queue.
    pub struct CreateSharedReceiveQueue: 448 bits by Driver, "protocol 4.5" {
        /// Entries, as a power of two.
        entries_log2: u8 = 0..4, "protocol 4.5", reset 6, allowed 6..=15;
        /// Doorbell page that owns the queue.
        doorbell_page: u16 = 16..28, "design decision 14";
        /// Protection domain, in which its elements are checked.
        domain: u32 = 32..56, "protocol 4.5";
        /// Device address of the ring, a multiple of 4096.
        base: u64 = 64..128, "design 3.2";
        /// One event when fewer entries than this are posted; zero for none. Reads back zero once it was raised.
        limit: u16 = 128..144, "protocol 4.5", unit "entries";
    }
    reserved { 4..16, 28..32, 56..64, 144..448 }
}

record! {
    /// Body: sets the limit of a shared receive queue and arms its event.
    pub struct ModifySharedReceiveQueue: 448 bits by Driver, "protocol 4.5" {
        /// One event when fewer entries than this are posted; zero disarms.
        limit: u16 = 128..144, "protocol 4.5", unit "entries";
    }
    reserved { 0..128, 144..448 }
}

values! {
    /// What a key stands for.
    pub enum RegionKind, "protocol 4.6" {
        /// Nothing: the entry is free, or its key was invalidated.
        Free = 0, "free";
        /// Memory that the driver registered.
        Region = 1, "region";
        /// Memory for fast registration by work request.
        FastRegion = 2, "fast_region";
        /// A window that the driver binds.
        WindowType1 = 3, "window_type_1";
        /// A window that a work request binds.
        WindowType2 = 4, "window_type_2";
    }
}

values! {
    /// How addresses of a region become device addresses.
    pub enum Translation, "design 3.2" {
        /// One range: device address = `translation_base` + offset. It lies below 2^63.
        Contiguous = 0, "contiguous";
        /// `translation_base` is a list of device addresses of pages, 8 bytes each. The card reads it once, while it
        /// executes the command.
        PageList = 1, "page_list";
        /// `translation_base` is a list of lists: each entry a page of 512 addresses of pages.
        TwoLevels = 2, "two_levels";
    }
}

record! {
    /// Body: makes a region or a window. The object number is the key: index in its high 24 bits, variant in its low 8.
    pub struct CreateRegion: 448 bits by Driver, "protocol 4.6" {
        /// What the key stands for.
        kind: RegionKind = 0..3, "protocol 4.6";
        /// Work requests and peers may invalidate the key.
        invalidatable: bool = 3..4, "protocol 4.6";
        /// Local write.
        local_write: bool = 8..9, "protocol 4.6";
        /// Peers may write.
        remote_write: bool = 9..10, "protocol 4.6";
        /// Peers may read.
        remote_read: bool = 10..11, "protocol 4.6";
        /// Peers may do atomics.
        remote_atomic: bool = 11..12, "protocol 4.6";
        /// Windows may be bound.
        window_bind: bool = 12..13, "protocol 4.6";
        /// Addresses count from zero at the region's beginning.
        zero_based: bool = 13..14, "protocol 4.6";
        /// Payload may be written out of order.
        relaxed_order: bool = 14..15, "protocol 4.6";
        /// How addresses are translated.
        translation: Translation = 16..18, "design 3.2";
        /// Size of its pages, as a power of two.
        page_log2: u8 = 24..29, "design 3.2", reset 12, allowed 12..=30;
        /// Protection domain.
        domain: u32 = 32..56, "protocol 4.6";
        /// First address in the region's own address space; zero if it is zero-based.
        first_address: u64 = 64..128, "protocol 4.6";
        /// Length.
        length: u64 = 128..192, "protocol 4.6", unit "bytes";
        /// Contiguous: device address of the first byte. Else: device address of the list, a multiple of 4096.
        translation_base: u64 = 192..256, "design 3.2";
        /// Place of the first byte in the first page; zero for a contiguous region.
        first_offset: u32 = 256..286, "design 3.2", unit "bytes";
        /// Where its pages stand in the card's table of pages, one behind the other from this entry on. No other region may
        /// use these entries. Zero for a contiguous region.
        first_entry: u16 = 288..302, "design 3.2";
    }
    reserved { 4..8, 15..16, 18..24, 29..32, 56..64, 286..288, 302..448 }
}

record! {
    /// Body: changes a region. Accesses that are in flight end before the change, or are refused with NAK 0x62.
    pub struct ModifyRegion: 448 bits by Driver, "protocol 4.6" {
        /// The rights change.
        change_rights: bool = 4..5, "protocol 4.6";
        /// The domain changes.
        change_domain: bool = 5..6, "protocol 4.6";
        /// Address, length and translation change.
        change_translation: bool = 6..7, "protocol 4.6";
        /// Local write.
        local_write: bool = 8..9, "protocol 4.6";
        /// Peers may write.
        remote_write: bool = 9..10, "protocol 4.6";
        /// Peers may read.
        remote_read: bool = 10..11, "protocol 4.6";
        /// Peers may do atomics.
        remote_atomic: bool = 11..12, "protocol 4.6";
        /// Windows may be bound.
        window_bind: bool = 12..13, "protocol 4.6";
        /// Addresses count from zero at the region's beginning.
        zero_based: bool = 13..14, "protocol 4.6";
        /// Payload may be written out of order.
        relaxed_order: bool = 14..15, "protocol 4.6";
        /// How addresses are translated.
        translation: Translation = 16..18, "design 3.2";
        /// Size of its pages, as a power of two.
        page_log2: u8 = 24..29, "design 3.2", reset 12, allowed 12..=30;
        /// Protection domain.
        domain: u32 = 32..56, "protocol 4.6";
        /// First address in the region's own address space; zero if it is zero-based.
        first_address: u64 = 64..128, "protocol 4.6";
        /// Length.
        length: u64 = 128..192, "protocol 4.6", unit "bytes";
        /// Contiguous: device address of the first byte. Else: device address of the list, a multiple of 4096.
        translation_base: u64 = 192..256, "design 3.2";
        /// Place of the first byte in the first page; zero for a contiguous region.
        first_offset: u32 = 256..286, "design 3.2", unit "bytes";
        /// Where its pages stand in the card's table from now on: not in entries that it uses until now.
        first_entry: u16 = 288..302, "design 3.2";
    }
    reserved { 0..4, 7..8, 15..16, 18..24, 29..32, 56..64, 286..288, 302..448 }
}

record! {
    /// Body: makes or changes an address handle, with everything resolved that a frame to that peer needs.
    pub struct CreateAddressHandle: 448 bits by Driver, "protocol 4.2" {
        /// Protection domain.
        domain: u32 = 0..24, "protocol 4.2";
        /// IPv6 if set, else IPv4.
        is_ipv6: bool = 24..25, "protocol 4.2";
        /// Frames carry an 802.1Q tag.
        vlan_present: bool = 25..26, "protocol 4.2";
        /// Entry of the table of source addresses.
        source_address_index: u8 = 28..32, "protocol 4.2";
        /// Tag control information: PCP, DEI, VID.
        vlan_control: u16 = 32..48, "protocol 1.2";
        /// UDP source port.
        source_port: u16 = 48..64, "protocol 1.2";
        /// Ethernet address of the next hop, the first byte on the wire being the most significant.
        destination_mac: u64 = 64..112, "protocol 4.2";
        /// IPv4 type of service, or IPv6 traffic class.
        traffic_class: u8 = 112..120, "protocol 4.2";
        /// IPv4 time to live, or IPv6 hop limit.
        hop_limit: u8 = 120..128, "protocol 4.2";
        /// The peer's address as a GID, its bytes as on the wire.
        destination_address: [u8; 16] = 128..256, "protocol 4.2";
        /// IPv6 flow label.
        flow_label: u32 = 256..276, "protocol 1.2";
    }
    reserved { 26..28, 276..448 }
}

record! {
    /// Body: reads an object back to host memory, in the format of commands.
    pub struct Query: 448 bits by Driver, "protocol 4.1" {
        /// Device address to write to, a multiple of 64.
        buffer: u64 = 0..64, "protocol 4.1";
        /// Room there: at least 192 for a queue pair, 64 for everything else.
        buffer_bytes: u16 = 64..80, "protocol 4.1", unit "bytes";
    }
    reserved { 80..448 }
}

record! {
    /// Body of the commands that say nothing more than their header.
    pub struct Destroy: 448 bits by Driver, "design decision 8" {}
    reserved { 0..448 }
}

record! {
    /// The answer to a command.
    pub struct Answer: 128 bits by Admin, "design decision 12" {
        /// Tag of the command.
        tag: u16 = 0..16, "design decision 12";
        /// Opcode byte of the command, whatever it was.
        opcode: u8 = 16..24, "design decision 12";
        /// How it ended.
        status: CommandStatus = 24..32, "design decision 12";
        /// Object number of the command.
        object_number: u32 = 32..64, "design decision 12";
        /// Success of a query: bytes written. Refusal of a field: its bit offset in the command. Refusal of
        /// attributes: their mask. A page that is misaligned, or that the host did not give: 2^31 + its index in the list.
        /// Else zero.
        detail: u32 = 64..96, "design decision 12";
        /// Turns with every pass of the ring; written last.
        phase: bool = 120..121, "design 3.2";
    }
    reserved { 96..120, 121..128 }
}

/// A command in memory: [`CommandHeader`] and a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawCommand {
    /// A [`CommandOpcode`].
    pub opcode: u8,
    /// Zero.
    pub zero: u8,
    /// Comes back in the answer.
    pub tag: U16,
    /// Which object.
    pub object_number: U32,
    /// The body, by opcode.
    pub body: [u8; 56],
}

/// An answer in memory: [`Answer`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawAnswer {
    /// Tag of the command.
    pub tag: U16,
    /// Opcode byte of the command.
    pub opcode: u8,
    /// A [`CommandStatus`].
    pub status: u8,
    /// Object number of the command.
    pub object_number: U32,
    /// More, by status.
    pub detail: U32,
    /// Zero.
    pub zero: [u8; 3],
    /// Turns with every pass of the ring.
    pub phase: u8,
}

/// Size of a command.
pub const COMMAND_BYTES: usize = 64;
/// Byte at which the body of a command begins.
pub const BODY_OFFSET: usize = 8;
/// Size of an answer.
pub const ANSWER_BYTES: usize = 16;
/// Bytes that a query of a queue pair writes: create, modify, address.
pub const QUEUE_PAIR_QUERY_BYTES: usize = 3 * COMMAND_BYTES;

/// Which body belongs to which opcodes. Opcodes that are not listed have an empty body, [`Destroy`].
pub const BODIES: &[(&[CommandOpcode], &Record)] = {
    use CommandOpcode::*;
    &[
        (&[CreateQueuePair], &self::CreateQueuePair::RECORD),
        (&[ModifyQueuePair], &self::ModifyQueuePair::RECORD),
        (&[CreateCompletionQueue], &self::CreateCompletionQueue::RECORD),
        (&[ModifyCompletionQueue], &self::ModifyCompletionQueue::RECORD),
        (&[CreateEventQueue], &self::CreateEventQueue::RECORD),
        (&[ModifyEventQueue], &self::ModifyEventQueue::RECORD),
        (&[CreateSharedReceiveQueue], &self::CreateSharedReceiveQueue::RECORD),
        (&[ModifySharedReceiveQueue], &self::ModifySharedReceiveQueue::RECORD),
        (&[CreateRegion], &self::CreateRegion::RECORD),
        (&[ModifyRegion], &self::ModifyRegion::RECORD),
        (&[CreateAddressHandle, ModifyAddressHandle], &self::CreateAddressHandle::RECORD),
        (
            &[
                QueryQueuePair,
                QueryCompletionQueue,
                QueryEventQueue,
                QuerySharedReceiveQueue,
                QueryRegion,
                QueryAddressHandle,
            ],
            &Query::RECORD,
        ),
    ]
};

/// What a command says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    Nothing,
    /// Makes a queue pair.
    CreateQueuePair(CreateQueuePair),
    /// Changes a queue pair.
    ModifyQueuePair(ModifyQueuePair),
    /// Makes a completion queue.
    CreateCompletionQueue(CreateCompletionQueue),
    /// Changes a completion queue.
    ModifyCompletionQueue(ModifyCompletionQueue),
    /// Makes an event queue.
    CreateEventQueue(CreateEventQueue),
    /// Changes an event queue.
    ModifyEventQueue(ModifyEventQueue),
    /// Makes a shared receive queue.
    CreateSharedReceiveQueue(CreateSharedReceiveQueue),
    /// Changes a shared receive queue.
    ModifySharedReceiveQueue(ModifySharedReceiveQueue),
    /// Makes a region or window.
    CreateRegion(CreateRegion),
    /// Changes a region.
    ModifyRegion(ModifyRegion),
    /// Makes or changes an address handle.
    AddressHandle(CreateAddressHandle),
    /// Reads an object back.
    Query(Query),
    /// Ends an object.
    Destroy,
}

/// A command: whose, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Opcode, tag, object.
    pub header: CommandHeader,
    /// The rest.
    pub body: Body,
}

/// A command that is refused before anything is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the answer.
    pub status: CommandStatus,
    /// What was wrong.
    pub error: FieldError,
    /// `detail` of the answer: bit offset of the field in the command; zero if reserved bits are at fault.
    pub detail: u32,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.status.name(), self.error)
    }
}

impl core::error::Error for Refusal {}

/// Turns what is wrong with a record into what the answer says about it.
fn refuse(record: &Record, begin_bits: u32, error: FieldError) -> Refusal {
    let field = record.fields.iter().find(|field| field.name == error.field);
    let status = match (field, error.field) {
        (Some(field), "opcode") if field.record == CommandHeader::RECORD.name => CommandStatus::UnknownOpcode,
        (None, "reserved") => CommandStatus::ReservedNotZero,
        _ => CommandStatus::ValueNotAllowed,
    };
    Refusal { status, error, detail: field.map_or(0, |field: &Field| begin_bits + field.offset) }
}

impl Command {
    /// Reads a command as the card does, up to the point where objects are looked up.
    ///
    /// # Errors
    ///
    /// Gives the status and detail of the answer: unknown opcode, reserved bits, a value outside its range.
    pub fn parse(bytes: &[u8; COMMAND_BYTES]) -> Result<Self, Refusal> {
        use CommandOpcode as Op;
        let (head, rest) = bytes.split_at(BODY_OFFSET);
        let header = CommandHeader::parse(head).map_err(|error| refuse(&CommandHeader::RECORD, 0, error))?;
        macro_rules! body {
            ($type:ident, $variant:ident) => {
                $type::parse(rest)
                    .map(Body::$variant)
                    .map_err(|error| refuse(&$type::RECORD, BODY_OFFSET as u32 * 8, error))?
            };
            ($type:ident) => {
                body!($type, $type)
            };
        }
        let body = match header.opcode {
            Op::CreateQueuePair => body!(CreateQueuePair),
            Op::ModifyQueuePair => body!(ModifyQueuePair),
            Op::CreateCompletionQueue => body!(CreateCompletionQueue),
            Op::ModifyCompletionQueue => body!(ModifyCompletionQueue),
            Op::CreateEventQueue => body!(CreateEventQueue),
            Op::ModifyEventQueue => body!(ModifyEventQueue),
            Op::CreateSharedReceiveQueue => body!(CreateSharedReceiveQueue),
            Op::ModifySharedReceiveQueue => body!(ModifySharedReceiveQueue),
            Op::CreateRegion => body!(CreateRegion),
            Op::ModifyRegion => body!(ModifyRegion),
            Op::CreateAddressHandle | Op::ModifyAddressHandle => body!(CreateAddressHandle, AddressHandle),
            Op::QueryQueuePair
            | Op::QueryCompletionQueue
            | Op::QueryEventQueue
            | Op::QuerySharedReceiveQueue
            | Op::QueryRegion
            | Op::QueryAddressHandle => body!(Query),
            Op::Nothing
            | Op::DestroyQueuePair
            | Op::DestroyCompletionQueue
            | Op::DestroyEventQueue
            | Op::DestroySharedReceiveQueue
            | Op::DestroyRegion
            | Op::DestroyAddressHandle => {
                Destroy::parse(rest)
                    .map_err(|error| refuse(&Destroy::RECORD, BODY_OFFSET as u32 * 8, error))?;
                if header.opcode == Op::Nothing { Body::Nothing } else { Body::Destroy }
            }
        };
        Ok(Self { header, body })
    }

    /// Writes the command.
    ///
    /// # Errors
    ///
    /// If a value does not fit its field.
    pub fn to_bytes(self) -> Result<[u8; COMMAND_BYTES], FieldError> {
        let mut bytes = [0; COMMAND_BYTES];
        let (head, rest) = bytes.split_at_mut(BODY_OFFSET);
        self.header.emit(head)?;
        match self.body {
            Body::Nothing | Body::Destroy => {}
            Body::CreateQueuePair(body) => body.emit(rest)?,
            Body::ModifyQueuePair(body) => body.emit(rest)?,
            Body::CreateCompletionQueue(body) => body.emit(rest)?,
            Body::ModifyCompletionQueue(body) => body.emit(rest)?,
            Body::CreateEventQueue(body) => body.emit(rest)?,
            Body::ModifyEventQueue(body) => body.emit(rest)?,
            Body::CreateSharedReceiveQueue(body) => body.emit(rest)?,
            Body::ModifySharedReceiveQueue(body) => body.emit(rest)?,
            Body::CreateRegion(body) => body.emit(rest)?,
            Body::ModifyRegion(body) => body.emit(rest)?,
            Body::AddressHandle(body) => body.emit(rest)?,
            Body::Query(body) => body.emit(rest)?,
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::pin;
    use crate::state::{ATTRIBUTES, AttributeMask};

    #[test]
    fn entries_in_memory_agree_with_their_tables() {
        pin!(RawAnswer, Answer::RECORD, [tag, opcode, status, object_number, detail, zero, phase]);
        assert_eq!(size_of::<RawCommand>(), COMMAND_BYTES);
        assert_eq!(core::mem::offset_of!(RawCommand, body), BODY_OFFSET);
        for (name, offset) in [
            ("opcode", core::mem::offset_of!(RawCommand, opcode)),
            ("tag", core::mem::offset_of!(RawCommand, tag)),
            ("object_number", core::mem::offset_of!(RawCommand, object_number)),
        ] {
            assert_eq!(CommandHeader::RECORD.field(name).offset as usize, offset * 8);
        }
    }

    /// Worked by hand: completion queue 3, 2^10 entries, event queue 1, page 2, an event for 8 completions or 4 units.
    const CREATE: [u8; 64] = {
        let mut bytes = [0; 64];
        bytes[0] = 0x21;
        bytes[2] = 0x34;
        bytes[3] = 0x12;
        bytes[4] = 3;
        bytes[8] = 10;
        bytes[9] = 1;
        bytes[10] = 2;
        bytes[12] = 8;
        bytes[14] = 4;
        bytes[17] = 0x50; // base 0x105000
        bytes[18] = 0x10;
        bytes
    };

    fn create() -> Command {
        Command {
            header: CommandHeader {
                opcode: CommandOpcode::CreateCompletionQueue,
                tag: 0x1234,
                object_number: 3,
            },
            body: Body::CreateCompletionQueue(CreateCompletionQueue {
                entries_log2: 10,
                event_queue: 1,
                doorbell_page: 2,
                moderation_count: 8,
                moderation_period: 4,
                base: 0x10_5000,
            }),
        }
    }

    #[test]
    fn a_command_stands_in_memory_as_worked_by_hand() {
        assert_eq!(create().to_bytes(), Ok(CREATE));
        assert_eq!(Command::parse(&CREATE), Ok(create()));
    }

    /// Worked by hand: refusal of the command above for a missing event queue, in the first pass.
    #[test]
    fn an_answer_stands_in_memory_as_worked_by_hand() {
        let bytes = [0x34, 0x12, 0x21, 0x08, 3, 0, 0, 0, 0x48, 0, 0, 0, 0, 0, 0, 0x01];
        let answer = Answer {
            tag: 0x1234,
            opcode: 0x21,
            status: CommandStatus::ReferenceDoesNotExist,
            object_number: 3,
            detail: 72,
            phase: true,
        };
        assert_eq!(answer.to_bytes(), Ok(bytes));
        assert_eq!(Answer::parse(&bytes), Ok(answer));
        assert_eq!(BODY_OFFSET as u32 * 8 + CreateCompletionQueue::RECORD.field("event_queue").offset, 72);
    }

    #[test]
    fn every_opcode_parses_with_an_empty_or_reset_body() {
        for &opcode in CommandOpcode::ALL {
            let header = CommandHeader { opcode, tag: 1, object_number: 2 };
            let mut bytes = [0; 64];
            header.emit(&mut bytes[..8]).unwrap();
            for record in BODIES.iter().filter(|entry| entry.0.contains(&opcode)).map(|entry| entry.1) {
                record.reset(&mut bytes[8..]);
            }
            let command = Command::parse(&bytes).unwrap();
            assert_eq!(command.header, header);
            assert_eq!(command.to_bytes(), Ok(bytes));
        }
    }

    #[test]
    fn each_refusal_says_which_field_is_at_fault() {
        let refusal = |change: &dyn Fn(&mut [u8; 64])| {
            let mut bytes = CREATE;
            change(&mut bytes);
            let refusal = Command::parse(&bytes).unwrap_err();
            (refusal.status, refusal.detail)
        };
        assert_eq!(refusal(&|bytes| bytes[0] = 0x25), (CommandStatus::UnknownOpcode, 0));
        assert_eq!(refusal(&|bytes| bytes[0] = 0x71), (CommandStatus::UnknownOpcode, 0));
        assert_eq!(refusal(&|bytes| bytes[1] = 1), (CommandStatus::ReservedNotZero, 0));
        assert_eq!(refusal(&|bytes| bytes[63] = 0x80), (CommandStatus::ReservedNotZero, 0));
        assert_eq!(refusal(&|bytes| bytes[8] = 5), (CommandStatus::ValueNotAllowed, 64));
        assert_eq!(refusal(&|bytes| bytes[8] = 23), (CommandStatus::ValueNotAllowed, 64));
        for entries_log2 in [6, 22] {
            let mut bytes = CREATE;
            bytes[8] = entries_log2;
            assert!(Command::parse(&bytes).is_ok());
        }
    }

    #[test]
    fn every_attribute_has_its_field() {
        let record = ModifyQueuePair::RECORD;
        for attribute in ATTRIBUTES.iter().filter(|attribute| !attribute.field.is_empty()) {
            if attribute.mask == AttributeMask::ACCESS {
                // Four rights, one bit each, in the order of the verbs' flags.
                let first = record.field("local_write").offset;
                for (place, name) in
                    ["local_write", "remote_write", "remote_read", "remote_atomic"].iter().enumerate()
                {
                    assert_eq!(record.field(name).offset, first + place as u32);
                }
                continue;
            }
            let field = record.field(attribute.field);
            assert!(attribute.range.1 <= field.max(), "{} does not hold {:?}", field.name, attribute.range);
            if let Some(range) = field.range {
                assert_eq!(range.1, attribute.range.1, "{}", field.name);
            }
        }
    }
}
