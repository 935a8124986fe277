#![doc = include_str!("manual/admin.md")]

use crate::field::{Field, FieldError, Record, record, values};
use crate::state::{PathMtu, QpState, Service};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

values! {
    /// Opcode of a command: the high four bits are the kind of object, the low four the operation.
    pub enum CommandOpcode, "design decision 12" {
        /// No operation; completes with success.
        Nothing = 0x00, "nothing";
        /// Creates a queue pair in RESET.
        CreateQueuePair = 0x11, "create_queue_pair";
        /// Changes attributes and state of a queue pair.
        ModifyQueuePair = 0x12, "modify_queue_pair";
        /// Reads back a queue pair.
        QueryQueuePair = 0x13, "query_queue_pair";
        /// Destroys a queue pair; answered once nothing in flight can use it.
        DestroyQueuePair = 0x14, "destroy_queue_pair";
        /// Creates a completion queue.
        CreateCompletionQueue = 0x21, "create_completion_queue";
        /// Changes the moderation of a completion queue.
        ModifyCompletionQueue = 0x22, "modify_completion_queue";
        /// Reads back a completion queue.
        QueryCompletionQueue = 0x23, "query_completion_queue";
        /// Destroys a completion queue; refused while queue pairs use it.
        DestroyCompletionQueue = 0x24, "destroy_completion_queue";
        /// Moves a completion queue to another ring, larger or smaller; its CQEs, indices and arming stay.
        ResizeCompletionQueue = 0x25, "resize_completion_queue";
        /// Creates an event queue.
        CreateEventQueue = 0x31, "create_event_queue";
        /// Changes the interrupt vector of an event queue.
        ModifyEventQueue = 0x32, "modify_event_queue";
        /// Reads back an event queue.
        QueryEventQueue = 0x33, "query_event_queue";
        /// Destroys an event queue; refused while completion queues use it.
        DestroyEventQueue = 0x34, "destroy_event_queue";
        /// Creates an SRQ.
        CreateSharedReceiveQueue = 0x41, "create_shared_receive_queue";
        /// Sets the limit of an SRQ and arms its event.
        ModifySharedReceiveQueue = 0x42, "modify_shared_receive_queue";
        /// Reads back an SRQ.
        QuerySharedReceiveQueue = 0x43, "query_shared_receive_queue";
        /// Destroys an SRQ; refused while queue pairs use it.
        DestroySharedReceiveQueue = 0x44, "destroy_shared_receive_queue";
        /// Creates a region or window.
        CreateRegion = 0x51, "create_region";
        /// Changes rights, protection domain or translation of a region.
        ModifyRegion = 0x52, "modify_region";
        /// Reads back a region or window.
        QueryRegion = 0x53, "query_region";
        /// Destroys a region or window; answered once nothing in flight can use it.
        DestroyRegion = 0x54, "destroy_region";
        /// Creates an address handle.
        CreateAddressHandle = 0x61, "create_address_handle";
        /// Replaces all fields of an address handle.
        ModifyAddressHandle = 0x62, "modify_address_handle";
        /// Reads back an address handle.
        QueryAddressHandle = 0x63, "query_address_handle";
        /// Destroys an address handle.
        DestroyAddressHandle = 0x64, "destroy_address_handle";
    }
}

values! {
    /// Status of a command. After any status except success nothing has changed.
    pub enum CommandStatus, "design decision 12" {
        /// The command was executed.
        Success = 0, "success";
        /// The opcode is not defined.
        UnknownOpcode = 1, "unknown_opcode";
        /// The card was generated without this feature.
        NotSupported = 2, "not_supported";
        /// A reserved bit is not zero.
        ReservedNotZero = 3, "reserved_not_zero";
        /// A field has a value outside its range or enumeration.
        ValueNotAllowed = 4, "value_not_allowed";
        /// The object number is beyond the card's table.
        NumberOutOfRange = 5, "number_out_of_range";
        /// An object with this index exists.
        AlreadyExists = 6, "already_exists";
        /// No object has this number; all bits are compared.
        DoesNotExist = 7, "does_not_exist";
        /// An object that a field names does not exist.
        ReferenceDoesNotExist = 8, "reference_does_not_exist";
        /// The objects belong to different protection domains.
        DomainMismatch = 9, "domain_mismatch";
        /// The transition is not defined for the service and state of the queue pair.
        TransitionNotAllowed = 10, "transition_not_allowed";
        /// The queue pair is not in the state `current_state`.
        StateMismatch = 11, "state_mismatch";
        /// Required attributes are missing; `detail` is their mask.
        AttributeMissing = 12, "attribute_missing";
        /// Attributes are present that are neither required nor optional; `detail` is their mask.
        AttributeNotAllowed = 13, "attribute_not_allowed";
        /// Other objects use this one: queue pairs a queue, windows a region.
        Busy = 14, "busy";
        /// Too few of what all objects share are left: READ slots, of which `detail` names the attribute.
        NoResources = 15, "no_resources";
        /// An address is not aligned.
        Misaligned = 16, "misaligned";
        /// A size exceeds the limit of the card, or is below the smallest ring.
        SizeNotAllowed = 17, "size_not_allowed";
        /// The rights contradict each other: remote write or atomic without local write.
        RightsContradict = 18, "rights_contradict";
        /// The range of a region wraps, or exceeds its pages.
        RangeNotAllowed = 19, "range_not_allowed";
        /// The host completed a read of a page list, or a write of a query, with an error.
        HostError = 20, "host_error";
        /// The device has failed; only a reset clears that.
        DeviceFailed = 21, "device_failed";
    }
}

record! {
    /// Header: the first eight bytes of every command.
    pub struct CommandHeader: 64 bits by Driver, "design decision 12" {
        /// Opcode of the command.
        opcode: CommandOpcode = 0..8, "design decision 12";
        /// Driver's name for the command, returned in its answer.
        tag: u16 = 16..32, "design decision 12";
        /// The object: QPN, key of a region, or number of any other object.
        object_number: u32 = 32..64, "design decision 14";
    }
    reserved { 8..16 }
}

record! {
    /// Body: creates a queue pair in RESET.
    pub struct CreateQueuePair: 448 bits by Driver, "protocol 4.1" {
        /// Transport service.
        service: Service = 0..2, "protocol 4.1";
        /// Receive WQEs are taken from an SRQ; the queue pair has no receive ring.
        shared_receive: bool = 2..3, "protocol 4.5";
        /// Every send WQE is treated as signalled.
        signal_all: bool = 3..4, "protocol 2.11";
        /// Slots of the send queue, log2.
        send_slots_log2: u8 = 8..12, "design 3.2", reset 6, allowed 6..=15;
        /// WQEs of the receive queue, log2.
        receive_wqes_log2: u8 = 16..20, "design 3.2", reset 6, allowed 6..=15;
        /// Doorbell page that owns the queue pair.
        doorbell_page: u16 = 32..44, "design decision 14";
        /// Protection domain.
        domain: u32 = 64..88, "protocol 4.6";
        /// Number of the completion queue of the send queue.
        send_completion_queue: u32 = 96..120, "protocol 4.4";
        /// Number of the completion queue of the receive queue.
        receive_completion_queue: u32 = 128..152, "protocol 4.4";
        /// Number of the SRQ, of the same protection domain, if `shared_receive` is set.
        shared_receive_queue: u32 = 160..184, "protocol 4.5";
        /// Device address of the send ring, a multiple of 4096.
        send_base: u64 = 192..256, "design 3.2";
        /// Device address of the receive ring, a multiple of 4096.
        receive_base: u64 = 256..320, "design 3.2";
    }
    reserved { 4..8, 12..16, 20..32, 44..64, 88..96, 120..128, 152..160, 184..192, 320..448 }
}

record! {
    /// Body: changes attributes of a queue pair and its state. Attributes that are not in `mask` are ignored, but their values
    /// must be allowed.
    pub struct ModifyQueuePair: 448 bits by Driver, "protocol 4.1" {
        /// Attributes that are set, in the bits of the verbs' mask.
        mask: u32 = 0..32, "protocol 4.1";
        /// State to change to. If its bit is not in the mask, the state does not change.
        next_state: QpState = 32..35, "protocol 4.1";
        /// State that the queue pair must be in, if its bit is in the mask.
        current_state: QpState = 40..43, "protocol 4.1";
        /// Local write permission.
        local_write: bool = 48..49, "protocol 4.6";
        /// Peers may write (RDMA WRITE).
        remote_write: bool = 49..50, "protocol 4.6";
        /// Peers may read (RDMA READ).
        remote_read: bool = 50..51, "protocol 4.6";
        /// Peers may do atomics.
        remote_atomic: bool = 51..52, "protocol 4.6";
        /// SQD raises `send_queue_drained` once the send queue has drained.
        drain_notify: bool = 52..53, "protocol 3.10";
        /// Set by a query only, ignored in a command: send WQEs that were begun have not completed, so a queue pair in SQD is still
        /// draining.
        requests_in_flight: bool = 53..54, "protocol 3.10";
        /// PMTU, at most `active_mtu` of the port.
        path_mtu: PathMtu = 56..59, "protocol 4.1";
        /// Acknowledgement timeout: 4.096 us x 2^n. 0 disables the timer.
        timeout: u8 = 64..69, "protocol 2.6";
        /// Retries after a timeout or a NAK 0x60.
        retry_count: u8 = 72..75, "protocol 2.6";
        /// Retries after an RNR NAK. 7: no limit.
        rnr_retry: u8 = 80..83, "protocol 2.7";
        /// Timer code of the RNR NAKs that this queue pair sends.
        min_rnr_timer: u8 = 88..93, "protocol 1.6";
        /// READs and atomics outstanding as requester. The first value above zero takes 4, 8 or 16 READ slots, until the queue pair is
        /// reset or destroyed; later ones are refused if they exceed these.
        read_atomic: u8 = 96..101, "protocol 2.3", allowed 0..=16;
        /// READs and atomics accepted and not answered as responder, with slots as `read_atomic` has them. As many requests are kept for
        /// duplicates as there are slots.
        destination_read_atomic: u8 = 104..109, "protocol 3.5", allowed 0..=16;
        /// Port number. The card has one port, number 1.
        port: u8 = 112..113, "protocol 4.1";
        /// P_Key itself, not an index; the driver keeps the table of indices of the verbs.
        partition_key: u16 = 128..144, "protocol 4.3";
        /// Q_Key.
        queue_key: u32 = 160..192, "protocol 4.3";
        /// QPN of the peer.
        destination_qp: u32 = 192..216, "protocol 4.1";
        /// PSN that the responder expects first.
        receive_psn: u32 = 224..248, "protocol 3.2";
        /// PSN of the first request.
        send_psn: u32 = 256..280, "protocol 2.1";
        /// Number of the address handle whose fields are copied.
        address_handle: u32 = 288..312, "protocol 4.2";
    }
    reserved {
        35..40, 43..48, 54..56, 59..64, 69..72, 75..80, 83..88, 93..96, 101..104, 109..112, 113..128, 144..160,
        216..224, 248..256, 280..288, 312..448
    }
}

record! {
    /// Body: creates a completion queue.
    pub struct CreateCompletionQueue: 448 bits by Driver, "protocol 4.4" {
        /// CQEs of the ring, log2.
        entries_log2: u8 = 0..5, "protocol 4.4", reset 6, allowed 6..=22;
        /// Number of the event queue that gets its events.
        event_queue: u8 = 8..16, "protocol 4.4";
        /// Doorbell page that owns the queue.
        doorbell_page: u16 = 16..28, "design decision 14";
        /// CQEs that an event waits for; 0 or 1 disables moderation.
        moderation_count: u16 = 32..48, "protocol 4.4";
        /// Longest time that an event waits after the first of these CQEs; 0 for no limit.
        moderation_period: u16 = 48..64, "protocol 4.4", unit "256 cycles";
        /// Device address of the ring, a multiple of 4096.
        base: u64 = 64..128, "design 3.2";
    }
    reserved { 5..8, 28..32, 128..448 }
}

record! {
    /// Body: changes the moderation of a completion queue.
    pub struct ModifyCompletionQueue: 448 bits by Driver, "protocol 4.4" {
        /// CQEs that an event waits for; 0 or 1 disables moderation.
        moderation_count: u16 = 32..48, "protocol 4.4";
        /// Longest time that an event waits after the first of these CQEs; 0 for no limit.
        moderation_period: u16 = 48..64, "protocol 4.4", unit "256 cycles";
    }
    reserved { 0..32, 64..448 }
}

record! {
    /// Body: moves a completion queue to another ring. CQE *i* is in slot *i* modulo the entries of the ring that was in use when
    /// it was written, with the phase of that ring. The unread CQEs, those not written yet included, must fit into the new ring.
    pub struct ResizeCompletionQueue: 448 bits by Driver, "protocol 4.4" {
        /// CQEs of the new ring, log2.
        entries_log2: u8 = 0..5, "protocol 4.4", reset 6, allowed 6..=22;
        /// Device address of the new ring, a multiple of 4096.
        base: u64 = 64..128, "design 3.2";
    }
    reserved { 5..64, 128..448 }
}

record! {
    /// Body: creates an event queue.
    pub struct CreateEventQueue: 448 bits by Driver, "protocol 4.4" {
        /// EQEs of the ring, log2.
        entries_log2: u8 = 0..5, "protocol 4.4", reset 6, allowed 6..=16;
        /// Interrupt vector that the queue raises.
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
        /// Interrupt vector that the queue raises.
        vector: u8 = 8..14, "protocol 4.4";
    }
    reserved { 0..8, 14..448 }
}

record! {
    /// Body: creates an SRQ.
    pub struct CreateSharedReceiveQueue: 448 bits by Driver, "protocol 4.5" {
        /// WQEs of the ring, log2.
        entries_log2: u8 = 0..4, "protocol 4.5", reset 6, allowed 6..=15;
        /// Doorbell page that owns the queue.
        doorbell_page: u16 = 16..28, "design decision 14";
        /// Protection domain, against which the L_Keys of the SGEs are checked.
        domain: u32 = 32..56, "protocol 4.5";
        /// Device address of the ring, a multiple of 4096.
        base: u64 = 64..128, "design 3.2";
        /// Raises `shared_receive_limit` once when fewer WQEs than this are posted; 0 disables it. Reads back as 0 after the event.
        limit: u16 = 128..144, "protocol 4.5", unit "WQEs";
    }
    reserved { 4..16, 28..32, 56..64, 144..448 }
}

record! {
    /// Body: sets the limit of an SRQ and arms its event.
    pub struct ModifySharedReceiveQueue: 448 bits by Driver, "protocol 4.5" {
        /// Raises `shared_receive_limit` once when fewer WQEs than this are posted; 0 disarms it.
        limit: u16 = 128..144, "protocol 4.5", unit "WQEs";
    }
    reserved { 0..128, 144..448 }
}

values! {
    /// Kind of a key.
    pub enum RegionKind, "protocol 4.6" {
        /// Free: never created, destroyed, or invalidated.
        Free = 0, "free";
        /// Region that the driver registered.
        Region = 1, "region";
        /// Region for fast registration by WQE.
        FastRegion = 2, "fast_region";
        /// Type 1 window, bound by the driver.
        WindowType1 = 3, "window_type_1";
        /// Type 2 window, bound by a WQE.
        WindowType2 = 4, "window_type_2";
    }
}

values! {
    /// Translation of the addresses of a region to device addresses.
    pub enum Translation, "design 3.2" {
        /// One range: device address = `translation_base` + offset, below 2^63.
        Contiguous = 0, "contiguous";
        /// `translation_base` is the address of a list of device addresses of pages, 8 bytes each. The card reads it once, while it
        /// executes the command.
        PageList = 1, "page_list";
        /// `translation_base` is the address of a list of lists: each entry is the address of a page with 512 addresses of pages.
        TwoLevels = 2, "two_levels";
    }
}

record! {
    /// Body: creates a region or a window. The object number is its key: index in the high 24 bits, variant in the low 8.
    pub struct CreateRegion: 448 bits by Driver, "protocol 4.6" {
        /// Kind of the key.
        kind: RegionKind = 0..3, "protocol 4.6";
        /// WQEs and peers may invalidate the key.
        invalidatable: bool = 3..4, "protocol 4.6";
        /// Local write permission.
        local_write: bool = 8..9, "protocol 4.6";
        /// Peers may write (RDMA WRITE).
        remote_write: bool = 9..10, "protocol 4.6";
        /// Peers may read (RDMA READ).
        remote_read: bool = 10..11, "protocol 4.6";
        /// Peers may do atomics.
        remote_atomic: bool = 11..12, "protocol 4.6";
        /// Windows may be bound to the region.
        window_bind: bool = 12..13, "protocol 4.6";
        /// Zero-based: addresses count from zero at the start of the region.
        zero_based: bool = 13..14, "protocol 4.6";
        /// Payload may be written out of order.
        relaxed_order: bool = 14..15, "protocol 4.6";
        /// Translation of addresses.
        translation: Translation = 16..18, "design 3.2";
        /// Bytes of a page, log2.
        page_log2: u8 = 24..29, "design 3.2", reset 12, allowed 12..=30;
        /// Protection domain.
        domain: u32 = 32..56, "protocol 4.6";
        /// First address in the address space of the region; zero if it is zero-based.
        first_address: u64 = 64..128, "protocol 4.6";
        /// Length of the region.
        length: u64 = 128..192, "protocol 4.6", unit "bytes";
        /// Contiguous: device address of the first byte. Else: device address of the page list, a multiple of 4096.
        translation_base: u64 = 192..256, "design 3.2";
        /// Offset of the first byte in the first page; zero for a contiguous region.
        first_offset: u32 = 256..286, "design 3.2", unit "bytes";
        /// First of the contiguous entries of the page table that hold its pages. No other region may use these entries. Zero for a
        /// contiguous region.
        first_entry: u16 = 288..302, "design 3.2";
    }
    reserved { 4..8, 15..16, 18..24, 29..32, 56..64, 286..288, 302..448 }
}

record! {
    /// Body: changes a region. Accesses in flight complete before the change, or are refused with NAK 0x62.
    pub struct ModifyRegion: 448 bits by Driver, "protocol 4.6" {
        /// Change the rights.
        change_rights: bool = 4..5, "protocol 4.6";
        /// Change the protection domain.
        change_domain: bool = 5..6, "protocol 4.6";
        /// Change address, length and translation.
        change_translation: bool = 6..7, "protocol 4.6";
        /// Local write permission.
        local_write: bool = 8..9, "protocol 4.6";
        /// Peers may write (RDMA WRITE).
        remote_write: bool = 9..10, "protocol 4.6";
        /// Peers may read (RDMA READ).
        remote_read: bool = 10..11, "protocol 4.6";
        /// Peers may do atomics.
        remote_atomic: bool = 11..12, "protocol 4.6";
        /// Windows may be bound to the region.
        window_bind: bool = 12..13, "protocol 4.6";
        /// Zero-based: addresses count from zero at the start of the region.
        zero_based: bool = 13..14, "protocol 4.6";
        /// Payload may be written out of order.
        relaxed_order: bool = 14..15, "protocol 4.6";
        /// Translation of addresses.
        translation: Translation = 16..18, "design 3.2";
        /// Bytes of a page, log2.
        page_log2: u8 = 24..29, "design 3.2", reset 12, allowed 12..=30;
        /// Protection domain.
        domain: u32 = 32..56, "protocol 4.6";
        /// First address in the address space of the region; zero if it is zero-based.
        first_address: u64 = 64..128, "protocol 4.6";
        /// Length of the region.
        length: u64 = 128..192, "protocol 4.6", unit "bytes";
        /// Contiguous: device address of the first byte. Else: device address of the page list, a multiple of 4096.
        translation_base: u64 = 192..256, "design 3.2";
        /// Offset of the first byte in the first page; zero for a contiguous region.
        first_offset: u32 = 256..286, "design 3.2", unit "bytes";
        /// First of the contiguous entries of the page table for the new pages. They must not overlap the entries in use.
        first_entry: u16 = 288..302, "design 3.2";
    }
    reserved { 0..4, 7..8, 15..16, 18..24, 29..32, 56..64, 286..288, 302..448 }
}

record! {
    /// Body: creates or replaces an address handle, with all resolved addresses that a frame to the peer needs.
    pub struct CreateAddressHandle: 448 bits by Driver, "protocol 4.2" {
        /// Protection domain.
        domain: u32 = 0..24, "protocol 4.2";
        /// 1: IPv6. 0: IPv4.
        is_ipv6: bool = 24..25, "protocol 4.2";
        /// Frames carry an 802.1Q tag.
        vlan_present: bool = 25..26, "protocol 4.2";
        /// Index of the source address in the registers `source_address_*`.
        source_address_index: u8 = 28..32, "protocol 4.2";
        /// Tag control information of the 802.1Q tag: PCP, DEI, VID.
        vlan_control: u16 = 32..48, "protocol 1.2";
        /// UDP source port.
        source_port: u16 = 48..64, "protocol 1.2";
        /// MAC address of the next hop, the first byte on the wire being the most significant.
        destination_mac: u64 = 64..112, "protocol 4.2";
        /// IPv4 type of service, or IPv6 traffic class.
        traffic_class: u8 = 112..120, "protocol 4.2";
        /// IPv4 time to live, or IPv6 hop limit.
        hop_limit: u8 = 120..128, "protocol 4.2";
        /// Address of the peer as a GID, in wire order.
        destination_address: [u8; 16] = 128..256, "protocol 4.2";
        /// IPv6 flow label.
        flow_label: u32 = 256..276, "protocol 1.2";
    }
    reserved { 26..28, 276..448 }
}

record! {
    /// Body: writes an object to host memory, in the format of commands.
    pub struct Query: 448 bits by Driver, "protocol 4.1" {
        /// Device address to write to, a multiple of 64.
        buffer: u64 = 0..64, "protocol 4.1";
        /// Size of the buffer: at least 192 for a queue pair, 64 for any other object.
        buffer_bytes: u16 = 64..80, "protocol 4.1", unit "bytes";
    }
    reserved { 80..448 }
}

record! {
    /// Body of commands that need only their header.
    pub struct Destroy: 448 bits by Driver, "design decision 8" {}
    reserved { 0..448 }
}

record! {
    /// The answer to a command.
    pub struct Answer: 128 bits by Control, "design decision 12" {
        /// `tag` of the command.
        tag: u16 = 0..16, "design decision 12";
        /// Opcode byte of the command, even if it is not defined.
        opcode: u8 = 16..24, "design decision 12";
        /// Status of the command.
        status: CommandStatus = 24..32, "design decision 12";
        /// Object number of the command.
        object_number: u32 = 32..64, "design decision 12";
        /// Query with success: bytes written. Refused field: its bit offset in the command. Refused attributes: their mask. Page
        /// that is misaligned or could not be read: 2^31 + its index in the list. Else zero.
        detail: u32 = 64..96, "design decision 12";
        /// Phase bit: inverts at each pass of the ring; written last.
        phase: bool = 120..121, "design 3.2";
    }
    reserved { 96..120, 121..128 }
}

/// Memory image of a command: [`CommandHeader`] and a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawCommand {
    /// A [`CommandOpcode`].
    pub opcode: u8,
    /// Reserved: zero.
    pub zero: u8,
    /// Driver's name for the command, returned in its answer.
    pub tag: U16,
    /// The object: QPN, key of a region, or number.
    pub object_number: U32,
    /// Body, whose format depends on the opcode.
    pub body: [u8; 56],
}

/// Memory image of an answer: [`Answer`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawAnswer {
    /// `tag` of the command.
    pub tag: U16,
    /// Opcode byte of the command.
    pub opcode: u8,
    /// A [`CommandStatus`].
    pub status: u8,
    /// Object number of the command.
    pub object_number: U32,
    /// Detail, by status.
    pub detail: U32,
    /// Reserved: zero.
    pub zero: [u8; 3],
    /// Phase bit, in bit 0.
    pub phase: u8,
}

/// Size of a command, in bytes.
pub const COMMAND_BYTES: usize = 64;
/// Byte offset of the body of a command.
pub const BODY_OFFSET: usize = 8;
/// Size of an answer, in bytes.
pub const ANSWER_BYTES: usize = 16;
/// Bytes that a query of a queue pair writes: the create, modify and create address handle commands.
pub const QUEUE_PAIR_QUERY_BYTES: usize = 3 * COMMAND_BYTES;

/// Body of each opcode. Opcodes that are not listed have the empty body [`Destroy`].
pub const BODIES: &[(&[CommandOpcode], &Record)] = {
    use CommandOpcode::*;
    &[
        (&[CreateQueuePair], &self::CreateQueuePair::RECORD),
        (&[ModifyQueuePair], &self::ModifyQueuePair::RECORD),
        (&[CreateCompletionQueue], &self::CreateCompletionQueue::RECORD),
        (&[ModifyCompletionQueue], &self::ModifyCompletionQueue::RECORD),
        (&[ResizeCompletionQueue], &self::ResizeCompletionQueue::RECORD),
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

/// Parsed body of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// No operation.
    Nothing,
    /// Creates a queue pair.
    CreateQueuePair(CreateQueuePair),
    /// Changes a queue pair.
    ModifyQueuePair(ModifyQueuePair),
    /// Creates a completion queue.
    CreateCompletionQueue(CreateCompletionQueue),
    /// Changes a completion queue.
    ModifyCompletionQueue(ModifyCompletionQueue),
    /// Moves a completion queue to another ring.
    ResizeCompletionQueue(ResizeCompletionQueue),
    /// Creates an event queue.
    CreateEventQueue(CreateEventQueue),
    /// Changes an event queue.
    ModifyEventQueue(ModifyEventQueue),
    /// Creates an SRQ.
    CreateSharedReceiveQueue(CreateSharedReceiveQueue),
    /// Changes an SRQ.
    ModifySharedReceiveQueue(ModifySharedReceiveQueue),
    /// Creates a region or window.
    CreateRegion(CreateRegion),
    /// Changes a region.
    ModifyRegion(ModifyRegion),
    /// Creates or replaces an address handle.
    AddressHandle(CreateAddressHandle),
    /// Writes an object to host memory.
    Query(Query),
    /// Destroys an object.
    Destroy,
}

/// A parsed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Opcode, tag and object number.
    pub header: CommandHeader,
    /// Parameters of the opcode.
    pub body: Body,
}

/// Accesses of the host that a command waits for, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostWait {
    /// What is waited for.
    pub meaning: &'static str,
    /// Commands that wait for it; empty for all.
    pub opcodes: &'static [CommandOpcode],
    /// Accesses, each of which ends within the register `host_limit`; zero for one each 64 bytes of a list of pages.
    pub accesses: u32,
}

/// What commands wait for at the host. The sum of a command's accesses is its longest time, in units of `host_limit`.
pub const HOST_WAITS: &[HostWait] = {
    use CommandOpcode::*;
    &[
        HostWait { meaning: "The command is read.", opcodes: &[], accesses: 1 },
        HostWait {
            meaning: "The list of pages is read, 64 bytes at a time.",
            opcodes: &[CreateRegion, ModifyRegion],
            accesses: 0,
        },
        HostWait {
            meaning: "Work in flight ends: send WQEs, receive WQEs, payload to send, operands of atomics; then payload, results of atomics, CQEs. This \
                      twice, since keys that peers end may be waited for first.",
            opcodes: &[
                ModifyQueuePair,
                DestroyQueuePair,
                DestroySharedReceiveQueue,
                ModifyRegion,
                DestroyRegion,
            ],
            accesses: 2 * 7,
        },
        HostWait {
            meaning: "The object is written.",
            opcodes: &[
                QueryQueuePair,
                QueryCompletionQueue,
                QueryEventQueue,
                QuerySharedReceiveQueue,
                QueryRegion,
                QueryAddressHandle,
            ],
            accesses: 1,
        },
        HostWait { meaning: "The answer is written.", opcodes: &[], accesses: 1 },
    ]
};

/// Bytes of a list of pages that the card reads at a time.
const LIST_READ_BYTES: u64 = 64;

/// Refusal of a command by the checks that need no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the answer.
    pub status: CommandStatus,
    /// The field, its value and what is allowed.
    pub error: FieldError,
    /// `detail` of the answer: bit offset of the field in the command; zero if reserved bits are set.
    pub detail: u32,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.status.name(), self.error)
    }
}

impl core::error::Error for Refusal {}

/// Converts a field error of a record that begins at bit `begin_bits` of the command into a refusal.
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
    /// Parses a command and checks it as the card does before it looks up any object.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] with the status and detail of the answer: unknown opcode, reserved bits, or a value that is not allowed.
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
            Op::ResizeCompletionQueue => body!(ResizeCompletionQueue),
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

    /// Accesses of the host that the command waits for, one after the other, by [`HOST_WAITS`].
    pub fn host_accesses(&self) -> u32 {
        let waits = HOST_WAITS
            .iter()
            .filter(|wait| wait.opcodes.is_empty() || wait.opcodes.contains(&self.header.opcode));
        waits.fold(0, |sum: u32, wait| {
            sum.saturating_add(if wait.accesses == 0 { self.list_reads() } else { wait.accesses })
        })
    }

    /// Reads of the list of pages that the command names.
    fn list_reads(&self) -> u32 {
        let (translation, offset, length, page_log2) = match self.body {
            Body::CreateRegion(body) => (body.translation, body.first_offset, body.length, body.page_log2),
            Body::ModifyRegion(body) => (body.translation, body.first_offset, body.length, body.page_log2),
            _ => return 0,
        };
        if translation == Translation::Contiguous {
            return 0;
        }
        let pages = length
            .saturating_add(offset.into())
            .div_ceil(1u64.checked_shl(page_log2.into()).unwrap_or(u64::MAX));
        let reads = pages.div_ceil(LIST_READ_BYTES / 8);
        u32::try_from(reads).unwrap_or(u32::MAX)
    }

    /// Returns the command as bytes.
    ///
    /// # Errors
    ///
    /// If a value is not allowed in its field.
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
            Body::ResizeCompletionQueue(body) => body.emit(rest)?,
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
    fn images_agree_with_their_tables() {
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
    fn a_command_waits_for_the_host_as_often_as_its_accesses_follow_one_another() {
        use CommandOpcode::*;
        let of = |opcode, body| {
            Command { header: CommandHeader { opcode, tag: 0, object_number: 0 }, body }.host_accesses()
        };
        for (opcode, body, accesses) in [
            (Nothing, Body::Nothing, 2),
            (QueryQueuePair, Body::Query(Query::at_reset()), 3),
            (DestroyQueuePair, Body::Destroy, 16),
            (DestroyCompletionQueue, Body::Destroy, 2),
        ] {
            assert_eq!(of(opcode, body), accesses, "{}", opcode.name());
        }
        let region = |translation, first_offset, length| {
            of(
                CreateRegion,
                Body::CreateRegion(super::CreateRegion {
                    translation,
                    first_offset,
                    length,
                    page_log2: 12,
                    ..super::CreateRegion::at_reset()
                }),
            )
        };
        assert_eq!(region(Translation::Contiguous, 0, 1 << 30), 2);
        for (offset, length, reads) in
            [(0, 1, 1), (0, 8 << 12, 1), (1, 8 << 12, 2), (0, 1 << 26, 2048), (0, u64::MAX, u32::MAX - 2)]
        {
            assert_eq!(region(Translation::PageList, offset, length), 2 + reads, "{offset} {length:#x}");
        }
    }

    #[test]
    fn a_command_has_the_bytes_worked_by_hand() {
        assert_eq!(create().to_bytes(), Ok(CREATE));
        assert_eq!(Command::parse(&CREATE), Ok(create()));
    }

    /// Worked by hand: refusal of the command above for a missing event queue, in the first pass.
    #[test]
    fn an_answer_has_the_bytes_worked_by_hand() {
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
            for record in BODIES.iter().filter(|body| body.0.contains(&opcode)).map(|body| body.1) {
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
        assert_eq!(refusal(&|bytes| bytes[0] = 0x26), (CommandStatus::UnknownOpcode, 0));
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
