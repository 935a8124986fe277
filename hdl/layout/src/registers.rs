#![doc = include_str!("manual/registers.md")]

use crate::field::{Record, record, values};
use crate::limits;
use crate::wire::DropReason;

/// How software may use a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes are ignored.
    ReadOnly,
    /// Reads give back what was written.
    ReadWrite,
    /// Writing a one to a bit clears it; zeros change nothing.
    WriteOneToClear,
    /// A write acts and is not kept; reads give zero.
    WriteOnly,
}

impl Access {
    /// Short name, as register manuals print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "RO",
            Self::ReadWrite => "RW",
            Self::WriteOneToClear => "W1C",
            Self::WriteOnly => "WO",
        }
    }
}

/// A register, or an array of equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Name in `snake_case`.
    pub name: &'static str,
    /// Byte offset in BAR 0 of the first.
    pub offset: u32,
    /// What software may do with it.
    pub access: Access,
    /// How many there are.
    pub count: u32,
    /// Bytes from one to the next.
    pub stride: u32,
    /// Its 64 bits.
    pub record: &'static Record,
}

impl Register {
    /// Byte offset of one register of an array.
    ///
    /// # Panics
    ///
    /// If `index` is beyond the array.
    pub const fn at(&self, index: u32) -> u32 {
        assert!(index < self.count, "the array of registers is shorter");
        self.offset + index * self.stride
    }
}

/// Size of BAR 0.
pub const BAR0_BYTES: u32 = 0x4000;
/// `rnic-hw!` as it stands in memory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rnic-hw!");
/// A driver refuses another major version: something moved.
pub const LAYOUT_MAJOR: u64 = 1;
/// Rises when something is added where zero stood.
pub const LAYOUT_MINOR: u64 = 0;

record! {
    /// Shows that this is an rnic card, before anything else is believed.
    pub struct Magic: 64 bits by Fixed, "design 3.1" {
        /// The bytes `rnic-hw!`.
        magic: u64 = 0..64, "design 3.1", reset 0x2177_682d_6369_6e72;
    }
}

record! {
    /// Version of everything in this manual.
    pub struct LayoutVersion: 64 bits by Fixed, "design 3.1" {
        /// Something was added where reserved bits stood; older drivers go on working.
        minor: u16 = 0..16, "design 3.1";
        /// Something moved or changed its meaning; a driver of another major version stops here.
        major: u16 = 16..32, "design 3.1", reset 1;
    }
    reserved { 32..64 }
}

record! {
    /// What this card was generated with; a bit that is zero means that the commands, opcodes and registers of the
    /// feature are refused by code.
    pub struct Features: 64 bits by Generated, "design 3.1" {
        /// Packet path: parse, ICRC, assemble.
        packet_path: bool = 0..1, "design 3";
        /// Reliable connected service.
        reliable_connected: bool = 1..2, "protocol 2.1";
        /// Unreliable connected service.
        unreliable_connected: bool = 2..3, "protocol 2.12";
        /// Unreliable datagrams and address handles.
        unreliable_datagram: bool = 3..4, "protocol 2.12";
        /// RDMA READ.
        read: bool = 4..5, "protocol 2.3";
        /// COMPARE_SWAP and FETCH_ADD.
        atomics: bool = 5..6, "protocol 3.7";
        /// Shared receive queues.
        shared_receive_queues: bool = 6..7, "protocol 4.5";
        /// Memory windows.
        memory_windows: bool = 7..8, "protocol 4.6";
        /// Fast registration by work request.
        fast_registration: bool = 8..9, "protocol 4.6";
        /// Regions made of page lists, for hosts without an IOMMU.
        page_lists: bool = 9..10, "design 3.2";
        /// Recovery from loss: retransmission, RNR, timers.
        retransmission: bool = 10..11, "protocol 2.6";
        /// Rate control by congestion notifications.
        congestion_control: bool = 11..12, "protocol 5.1";
        /// Priority flow control frames are honoured.
        flow_control: bool = 12..13, "protocol 5.2";
        /// Contexts that do not fit on chip live in host memory.
        context_cache: bool = 13..14, "design decision 7";
        /// The push window of the doorbell page takes work requests.
        push_window: bool = 14..15, "design 3.2";
        /// Queues for frames that are not RoCEv2.
        host_network: bool = 15..16, "design 3";
        /// The FLUSH and ATOMIC_WRITE operations.
        persistence: bool = 16..17, "protocol 1.4";
    }
    reserved { 17..64 }
}

record! {
    /// How wide and how fast the card is.
    pub struct Geometry: 64 bits by Generated, "design 3" {
        /// Width of the datapath: 64, 128, 256 or 512.
        datapath_bits: u16 = 0..16, "design decision 2", unit "bits";
        /// Interrupt vectors that the card can raise.
        interrupt_vectors: u16 = 16..32, "protocol 4.4";
        /// Frequency of the core clock, in which all times of this manual are counted.
        clock_khz: u32 = 32..64, "design 8", unit "kHz";
    }
}

record! {
    /// Sizes of the card's tables, as powers of two. Object numbers are below these, but for QPNs and keys, of which
    /// only the low bits are an index.
    pub struct TableSizes: 64 bits by Generated, "design 3" {
        /// Queue pairs.
        queue_pairs_log2: u8 = 0..5, "design decision 5", allowed 0..=16;
        /// Completion queues.
        completion_queues_log2: u8 = 8..13, "protocol 4.4", allowed 0..=16;
        /// Event queues.
        event_queues_log2: u8 = 16..21, "protocol 4.4", allowed 0..=8;
        /// Shared receive queues.
        shared_receive_queues_log2: u8 = 24..29, "protocol 4.5", allowed 0..=16;
        /// Regions and windows together.
        regions_log2: u8 = 32..37, "protocol 4.6", allowed 0..=24;
        /// Address handles.
        address_handles_log2: u8 = 40..45, "protocol 4.2", allowed 0..=16;
        /// Doorbell pages, page 0 (the driver's own) included.
        doorbell_pages_log2: u8 = 48..53, "design decision 14", allowed 0..=12;
        /// Blocks of eight outstanding messages, shared by all queue pairs.
        outstanding_blocks_log2: u8 = 56..61, "design decision 9", allowed 0..=16;
    }
    reserved { 5..8, 13..16, 21..24, 29..32, 37..40, 45..48, 53..56, 61..64 }
}

record! {
    /// Largest queues and requests that commands and work requests may ask for.
    pub struct QueueLimits: 64 bits by Generated, "design 3.2" {
        /// Slots of a send queue, as a power of two.
        send_slots_log2: u8 = 0..5, "design 3.2", allowed 0..=15;
        /// Entries of a receive queue, as a power of two.
        receive_wqes_log2: u8 = 8..13, "design 3.2", allowed 0..=15;
        /// Entries of a completion queue, as a power of two.
        cqes_log2: u8 = 16..21, "protocol 4.4", allowed 0..=22;
        /// Entries of an event queue, as a power of two.
        eqes_log2: u8 = 24..29, "protocol 4.4", allowed 0..=16;
        /// Scatter/gather elements of a send entry.
        send_sges: u8 = 32..36, "design 3.2", allowed 0..=6;
        /// Scatter elements of a receive entry.
        receive_sges: u8 = 36..40, "design 3.2", allowed 0..=3;
        /// Inline bytes of a send entry.
        inline_bytes: u8 = 40..48, "design 3.2", unit "bytes", allowed 0..=96;
        /// READs and atomics in flight as requester.
        read_atomic: u8 = 48..53, "protocol 2.3", allowed 0..=16;
        /// READs and atomics in flight as responder.
        destination_read_atomic: u8 = 53..58, "protocol 3.5", allowed 0..=16;
        /// Unacknowledged PSNs of one queue pair, as a power of two.
        psn_window_log2: u8 = 58..63, "protocol 2.1", allowed 0..=15;
    }
    reserved { 5..8, 13..16, 21..24, 29..32, 63..64 }
}

record! {
    /// Longest message.
    pub struct MessageLimit: 64 bits by Generated, "protocol 2.1" {
        /// Largest sum of the lengths of a work request.
        message_bytes: u64 = 0..64, "protocol 2.1", unit "bytes";
    }
}

record! {
    /// Starts and stops the card.
    pub struct Control: 64 bits by Driver, "design decision 12" {
        /// Frames, doorbells and commands are taken. While zero, rings stand still, and good frames find no
        /// room: they count as `buffer_full`.
        enable: bool = 0..1, "design decision 12";
        /// Writing one resets the card: it quiesces, drains its reads and writes, forgets every object and clears all
        /// registers. Reads as zero; `status` tells when it is done.
        reset: bool = 1..2, "design decision 12";
        /// Writing one stops new work and drains what is in flight, objects kept; writing zero goes on.
        quiesce: bool = 2..3, "design decision 12";
    }
    reserved { 3..64 }
}

record! {
    /// What the card is doing.
    pub struct Status: 64 bits by Host, "design decision 12" {
        /// The card has its memory, and takes commands.
        ready: bool = 0..1, "design decision 12";
        /// A reset is under way.
        resetting: bool = 1..2, "design decision 12";
        /// Nothing is in flight towards host or wire.
        drained: bool = 2..3, "design decision 12", reset 1;
        /// The device has failed: `fatal` says how. Only a reset helps.
        fatal: bool = 3..4, "protocol 4.4";
        /// The network port has a link.
        link_up: bool = 4..5, "protocol 4.4";
    }
    reserved { 5..64 }
}

values! {
    /// Why the device has failed.
    pub enum FatalCode, "design decision 12" {
        /// It has not.
        None = 0, "none";
        /// A host read was never answered: a tag is lost.
        LostReadTag = 1, "lost_read_tag";
        /// A host write was never reported done.
        LostWrite = 2, "lost_write";
        /// The host answered a read of the admin ring, of a context or of a translation with an error.
        HostReadError = 3, "host_read_error";
        /// The host refused a write of an event, an answer or a context.
        HostWriteError = 4, "host_write_error";
        /// Event queue 0 is full: an event would be lost.
        EventQueueOverrun = 5, "event_queue_overrun";
        /// A pool that can never be empty was empty: a fault of the card.
        PoolExhausted = 6, "pool_exhausted";
    }
}

record! {
    /// The first fatal failure since reset.
    pub struct Fatal: 64 bits by Host, "design decision 12" {
        /// What happened.
        code: FatalCode = 0..8, "design decision 12";
        /// Which one: tag, queue number or low address bits, by code.
        detail: u32 = 32..64, "design decision 12";
    }
    reserved { 8..32 }
}

record! {
    /// Holds what software writes; it moves nothing, and tests the path to the card.
    pub struct Scratch: 64 bits by Driver, "design 3.1" {
        /// Any value.
        scratch: u64 = 0..64, "design 3.1";
    }
}

record! {
    /// The station address of the port.
    pub struct OwnMac: 64 bits by Driver, "protocol 1.2" {
        /// As a number: the first byte on the wire is the most significant.
        mac: u64 = 0..48, "protocol 1.2";
    }
    reserved { 48..64 }
}

record! {
    /// Which frames are taken, and how long a frame the port carries.
    pub struct PortControl: 64 bits by Driver, "protocol 1.2" {
        /// Frames to any unicast address are taken.
        promiscuous: bool = 0..1, "protocol 8.3";
        /// Frames to any multicast address are taken, not only to those of `multicast_group`.
        all_multicast: bool = 1..2, "protocol 8.3";
        /// The MTU in force, which no QP's PMTU may exceed.
        active_mtu: crate::state::PathMtu = 4..7, "protocol 4.1", reset 5;
        /// Longest frame taken, without FCS.
        frame_bytes_max: u16 = 16..32, "protocol 1.1", unit "bytes", reset 4224, allowed 58..=4224;
    }
    reserved { 2..4, 7..16, 32..64 }
}

record! {
    /// An Ethernet multicast group that the port accepts.
    pub struct MulticastGroup: 64 bits by Driver, "protocol 8.3" {
        /// As a number: the first byte on the wire is the most significant.
        mac: u64 = 0..48, "protocol 1.2";
        /// The entry is in use.
        valid: bool = 48..49, "protocol 8.3";
    }
    reserved { 49..64 }
}

record! {
    /// First eight bytes of a source address as a GID, the first byte on the wire being the most significant. An IPv4
    /// address a.b.c.d stands as ::ffff:a.b.c.d. QPs and address handles name a source address by its index.
    pub struct SourceAddressHigh: 64 bits by Driver, "protocol 4.2" {
        /// Bytes 0 to 7 of the GID.
        address_high: u64 = 0..64, "protocol 4.2";
    }
}

record! {
    /// Last eight bytes of a source address.
    pub struct SourceAddressLow: 64 bits by Driver, "protocol 4.2" {
        /// Bytes 8 to 15 of the GID.
        address_low: u64 = 0..64, "protocol 4.2";
    }
}

record! {
    /// What belongs to a source address beside the address.
    pub struct SourceAddressPort: 64 bits by Driver, "protocol 4.2" {
        /// Ethernet source address of frames from this address.
        mac: u64 = 0..48, "protocol 4.2";
        /// The entry is in use; a QP that names an unused one is refused.
        valid: bool = 48..49, "protocol 4.2";
    }
    reserved { 49..64 }
}

record! {
    /// Where the ring of admin commands stands.
    pub struct AdminCommandBase: 64 bits by Driver, "design decision 12" {
        /// Device address, a multiple of 4096.
        address: u64 = 0..64, "design decision 12";
    }
}

record! {
    /// Where the ring of admin answers stands.
    pub struct AdminAnswerBase: 64 bits by Driver, "design decision 12" {
        /// Device address, a multiple of 4096.
        address: u64 = 0..64, "design decision 12";
    }
}

record! {
    /// Size of both admin rings, and how their answers are announced.
    pub struct AdminControl: 64 bits by Driver, "design decision 12" {
        /// Entries of each ring, as a power of two.
        entries_log2: u8 = 0..4, "design decision 12", allowed 0..=8;
        /// The queue runs. Setting it starts both rings at entry 0, with phase 1.
        enable: bool = 8..9, "design decision 12";
        /// Every answer also raises an event in event queue 0.
        event_on_answer: bool = 9..10, "protocol 4.4";
    }
    reserved { 4..8, 10..64 }
}

record! {
    /// Tells the card how far commands are written.
    pub struct AdminDoorbell: 64 bits by Driver, "design decision 12" {
        /// Index of the next command that software will write; runs free modulo 65536.
        producer_index: u16 = 0..16, "design decision 12";
    }
    reserved { 16..64 }
}

record! {
    /// How far the admin queue has come.
    pub struct AdminProgress: 64 bits by Admin, "design decision 12" {
        /// Index of the next command that the card will read.
        consumer_index: u16 = 0..16, "design decision 12";
        /// A command is being executed.
        busy: bool = 16..17, "design decision 12";
        /// The ring could not be read or an answer not be written; the queue has stopped.
        failed: bool = 17..18, "design decision 12";
    }
    reserved { 18..64 }
}

record! {
    /// Where event queue 0 stands. It exists before the first command, since it carries the events of the device and
    /// of the admin queue; all other event queues are made by command.
    pub struct EventQueueBase: 64 bits by Driver, "protocol 4.4" {
        /// Device address, a multiple of 4096.
        address: u64 = 0..64, "protocol 4.4";
    }
}

record! {
    /// Size and vector of event queue 0.
    pub struct EventQueueControl: 64 bits by Driver, "protocol 4.4" {
        /// Entries, as a power of two.
        entries_log2: u8 = 0..5, "protocol 4.4", allowed 0..=16;
        /// The queue takes events. Setting it starts the ring at entry 0, with phase 1.
        enable: bool = 8..9, "protocol 4.4";
        /// Interrupt vector.
        vector: u8 = 16..22, "protocol 4.4";
    }
    reserved { 5..8, 9..16, 22..64 }
}

values! {
    /// A kind of object whose contexts live in host memory where they do not fit on chip.
    pub enum MemoryKind, "design decision 7" {
        /// The records of a queue pair.
        QueuePair = 0, "queue_pair";
        /// Completion queue contexts.
        CompletionQueue = 1, "completion_queue";
        /// Shared receive queue contexts.
        SharedReceiveQueue = 2, "shared_receive_queue";
        /// Region entries.
        Region = 3, "region";
        /// Address handles.
        AddressHandle = 4, "address_handle";
        /// READs and atomics that a responder keeps for replay.
        Resource = 5, "resource";
    }
}

record! {
    /// Memory that the driver gives the card for contexts of one kind; the index of the array is the kind.
    pub struct HostMemoryBase: 64 bits by Driver, "design decision 7" {
        /// Device address, a multiple of 4096; software does not touch the memory while the card is enabled.
        address: u64 = 0..64, "design decision 7";
    }
}

record! {
    /// How much memory the card needs for one kind; zero where everything fits on chip.
    pub struct HostMemoryBytes: 64 bits by Generated, "design decision 7" {
        /// Bytes from `host_memory_base` on.
        bytes: u64 = 0..64, "design decision 7", unit "bytes";
    }
}

record! {
    /// Vectors that have raised an interrupt which is masked here, one bit a vector; the MSI-X table is the shell's.
    pub struct InterruptPending: 64 bits by Host, "protocol 4.4" {
        /// One bit a vector.
        vectors: u64 = 0..64, "protocol 4.4";
    }
}

record! {
    /// Vectors that are held back, one bit a vector. Unmasking a pending vector raises it once.
    pub struct InterruptMask: 64 bits by Driver, "protocol 4.4" {
        /// One bit a vector.
        vectors: u64 = 0..64, "protocol 4.4";
    }
}

record! {
    /// Least time between two interrupts of one vector.
    pub struct InterruptModeration: 64 bits by Driver, "protocol 4.4" {
        /// Counted in units of 256 cycles of the core clock; zero for none.
        period: u16 = 0..16, "protocol 4.4", unit "256 cycles";
    }
    reserved { 16..64 }
}

record! {
    /// Takes a snapshot of all counters.
    pub struct CounterLatch: 64 bits by Driver, "design decision 13" {
        /// Writing one takes the snapshot; reads as one until it is complete, at most 4096 cycles later.
        latch: bool = 0..1, "design decision 13";
    }
    reserved { 1..64 }
}

record! {
    /// A counter as of the last snapshot.
    pub struct CounterValue: 64 bits by Packet, "design decision 13" {
        /// Events since the card was configured, modulo 2^64; a reset does not clear it.
        count: u64 = 0..64, "design decision 13";
    }
}

macro_rules! registers {
    ($( $constant:ident, $name:literal @ $offset:literal, $access:ident, $record:ident $(, $count:tt x $stride:literal)?; )+) => {
        $(
            #[doc = concat!("The register `", $name, "` at offset `", stringify!($offset), "`: [`", stringify!($record), "`].")]
            pub const $constant: Register = Register {
                name: $name,
                offset: $offset,
                access: Access::$access,
                count: crate::field::option!($($count)?; 1),
                stride: crate::field::option!($($stride)?; 8),
                record: &$record::RECORD,
            };
        )+

        /// Every register of BAR 0 but the counters, in rising order.
        pub const REGISTERS: &[Register] = &[ $($constant),+ ];
    };
}

registers! {
    REG_MAGIC, "magic" @ 0x0000, ReadOnly, Magic;
    REG_LAYOUT_VERSION, "layout_version" @ 0x0008, ReadOnly, LayoutVersion;
    REG_FEATURES, "features" @ 0x0010, ReadOnly, Features;
    REG_GEOMETRY, "geometry" @ 0x0018, ReadOnly, Geometry;
    REG_TABLE_SIZES, "table_sizes" @ 0x0020, ReadOnly, TableSizes;
    REG_QUEUE_LIMITS, "queue_limits" @ 0x0028, ReadOnly, QueueLimits;
    REG_MESSAGE_LIMIT, "message_limit" @ 0x0030, ReadOnly, MessageLimit;
    REG_CONTROL, "control" @ 0x0100, ReadWrite, Control;
    REG_STATUS, "status" @ 0x0108, ReadOnly, Status;
    REG_FATAL, "fatal" @ 0x0110, ReadOnly, Fatal;
    REG_SCRATCH, "scratch" @ 0x0118, ReadWrite, Scratch;
    REG_OWN_MAC, "own_mac" @ 0x0200, ReadWrite, OwnMac;
    REG_PORT_CONTROL, "port_control" @ 0x0208, ReadWrite, PortControl;
    REG_MULTICAST_GROUP, "multicast_group" @ 0x0240, ReadWrite, MulticastGroup, 8 x 8;
    REG_ADMIN_COMMAND_BASE, "admin_command_base" @ 0x0300, ReadWrite, AdminCommandBase;
    REG_ADMIN_ANSWER_BASE, "admin_answer_base" @ 0x0308, ReadWrite, AdminAnswerBase;
    REG_ADMIN_CONTROL, "admin_control" @ 0x0310, ReadWrite, AdminControl;
    REG_ADMIN_DOORBELL, "admin_doorbell" @ 0x0318, ReadWrite, AdminDoorbell;
    REG_ADMIN_PROGRESS, "admin_progress" @ 0x0320, ReadOnly, AdminProgress;
    REG_EVENT_QUEUE_BASE, "event_queue_base" @ 0x0340, ReadWrite, EventQueueBase;
    REG_EVENT_QUEUE_CONTROL, "event_queue_control" @ 0x0348, ReadWrite, EventQueueControl;
    REG_HOST_MEMORY_BASE, "host_memory_base" @ 0x0380, ReadWrite, HostMemoryBase, 6 x 16;
    REG_HOST_MEMORY_BYTES, "host_memory_bytes" @ 0x0388, ReadOnly, HostMemoryBytes, 6 x 16;
    REG_SOURCE_ADDRESS_HIGH, "source_address_high" @ 0x0400, ReadWrite, SourceAddressHigh, 16 x 32;
    REG_SOURCE_ADDRESS_LOW, "source_address_low" @ 0x0408, ReadWrite, SourceAddressLow, 16 x 32;
    REG_SOURCE_ADDRESS_PORT, "source_address_port" @ 0x0410, ReadWrite, SourceAddressPort, 16 x 32;
    REG_INTERRUPT_PENDING, "interrupt_pending" @ 0x0600, WriteOneToClear, InterruptPending;
    REG_INTERRUPT_MASK, "interrupt_mask" @ 0x0608, ReadWrite, InterruptMask;
    REG_INTERRUPT_MODERATION, "interrupt_moderation" @ 0x0800, ReadWrite, InterruptModeration, 64 x 8;
    REG_COUNTER_LATCH, "counter_latch" @ 0x0ff8, ReadWrite, CounterLatch;
}

/// A counter: one 64-bit register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Name in `snake_case`.
    pub name: &'static str,
    /// What moves it.
    pub meaning: &'static str,
    /// The rule behind it.
    pub section: &'static str,
}

/// Byte offset of counter 0; the others follow, eight bytes each.
pub const COUNTER_BASE: u32 = 0x1000;

/// Byte offset of a counter.
///
/// # Panics
///
/// If there is no such counter; in a constant that is a compile error.
pub const fn counter_offset(index: usize) -> u32 {
    assert!(index < COUNTERS.len(), "there are fewer counters");
    COUNTER_BASE + index as u32 * 8
}

/// Counters of the packet path's drops: the first of [`COUNTERS`], in the order of the checks, which is that of
/// [`DropReason`]; `reason as usize` is the counter's index.
pub const DROP_COUNTERS: usize = 20;

macro_rules! counters {
    ($( $name:literal, $meaning:literal, $section:literal; )+) => {
        /// All counters, in the order of their registers.
        ///
        /// The first twenty are drops of the packet path, one a reason, in the order of the checks: the first reason
        /// that holds is counted, so `frames_received` is the sum of these twenty, of `requests_received`, of
        /// `responses_received` and of `congestion_notifications_received`. A request or response that goes no further
        /// moves one counter of its role.
        pub const COUNTERS: &[Counter] = &[ $(Counter { name: $name, meaning: $meaning, section: $section }),+ ];
    };
}

counters! {
    "mac_error", "Frames that the MAC marked as bad.", "design 3.1";
    "too_long", "Frames longer than `port_control.frame_bytes_max`.", "protocol 1.1";
    "short_ethernet", "Frames shorter than their Ethernet header, a VLAN tag included.", "protocol 8.3";
    "destination_mac", "Frames to another station.", "protocol 8.3";
    "source_mac", "Frames from a multicast address.", "protocol 8.3";
    "other_ethertype", "Frames that are neither IPv4 nor IPv6.", "protocol 8.3";
    "ip_header", "Truncated IP header, wrong version, IPv4 options, or an IPv4 total length below 20.", "protocol 8.3";
    "ip_length", "The IP length exceeds the frame.", "protocol 8.3";
    "ip_checksum", "Wrong IPv4 header checksum.", "protocol 8.3";
    "ip_fragment", "IPv4 fragments.", "protocol 8.3";
    "other_protocol", "IP packets that are not UDP, IPv6 extension headers included.", "protocol 8.3";
    "udp_header", "The IP payload is shorter than a UDP header.", "protocol 8.3";
    "other_port", "UDP to a port other than 4791.", "protocol 8.3";
    "udp_length", "UDP length below 24, or not that of the IP payload.", "protocol 8.3";
    "icrc", "Wrong ICRC.", "protocol 1.8";
    "bth_version", "Transport version other than 0.", "protocol 8.3";
    "unsupported_transport", "RD, XRC, reserved transports, and unassigned opcodes of UC and UD.", "protocol 1.4";
    "header_length", "Too short for the headers, the pad and the ICRC that the opcode calls for.", "protocol 8.3";
    "destination_qp", "Destination QP 0.", "protocol 8.3";
    "buffer_full", "The packet buffer had no room for the whole frame.", "design decision 3";

    "frames_received", "Frames from the MAC, good or bad.", "design decision 13";
    "bytes_received", "Bytes of those frames, without FCS.", "design decision 13";
    "requests_received", "Packets handed to the responder.", "design 3";
    "responses_received", "Packets handed to the requester: READ responses, acknowledgements, atomic answers.", "design 3";
    "congestion_notifications_received", "CNPs handed to the requester.", "protocol 1.10";
    "frames_sent", "Frames given to the MAC.", "design decision 13";
    "bytes_sent", "Bytes of those frames, without FCS.", "design decision 13";

    "unknown_qp", "Packets whose whole QPN names no queue pair.", "protocol 3.6 row 1";
    "qp_not_ready", "Packets for a queue pair that is not in RTR, RTS, SQD or SQE.", "protocol 3.6 row 1";
    "transport_mismatch", "Packets of another transport than the queue pair's.", "protocol 3.6 row 1";
    "partition_key", "Packets of another partition.", "protocol 4.3";
    "queue_key", "Datagrams with the wrong Q_Key.", "protocol 3.6 row 17";
    "source_address", "Packets to a connected queue pair from another address than its peer's, or to another one than its own.", "protocol 3.6 row 1";
    "no_receive_entry", "UC and UD messages without a posted receive.", "protocol 3.6 row 18";
    "unreliable_refused", "UC and UD packets refused for access, length or opcode order.", "protocol 3.6 row 20";
    "duplicate_request", "RC requests with a PSN in the past, answered again or dropped.", "protocol 3.4";
    "duplicate_dropped", "Duplicate READs and atomics of which nothing is kept any more.", "protocol 3.4";
    "request_gap", "RC requests with a PSN in the future, that are not executed.", "protocol 3.2";
    "requests_after_failure", "Packets for a queue pair whose failure had already been answered.", "protocol 3.2";
    "acknowledgements_sent", "Positive acknowledgements.", "protocol 3.8";
    "nak_sequence_sent", "NAK 0x60.", "protocol 3.2";
    "nak_invalid_request_sent", "NAK 0x61.", "protocol 3.6";
    "nak_access_sent", "NAK 0x62.", "protocol 3.6";
    "nak_operational_sent", "NAK 0x63.", "protocol 3.6";
    "nak_not_ready_sent", "RNR NAKs.", "protocol 3.6 row 12";
    "congestion_notifications_sent", "CNPs.", "protocol 5.1";
    "marked_received", "Packets that arrived with congestion experienced.", "protocol 5.1";

    "acknowledgements_received", "Positive acknowledgements that made progress.", "protocol 2.5";
    "nak_received", "NAK 0x60 to 0x63.", "protocol 2.5";
    "nak_not_ready_received", "RNR NAKs.", "protocol 2.7";
    "response_stale", "Responses with a PSN that was already answered.", "protocol 2.5";
    "response_never_sent", "Responses with a PSN that was never sent.", "protocol 2.5";
    "response_reserved", "Responses with a reserved syndrome.", "protocol 1.6";
    "response_unexpected", "Responses that ended a queue pair: wrong opcode or length.", "protocol 2.5";
    "implied_nak", "Gaps in the responses, answered by going back.", "protocol 2.5";
    "timeout", "Acknowledgement timers that fired.", "protocol 2.6";
    "retry_exhausted", "Queue pairs that ended because no retry was left.", "protocol 2.6";
    "not_ready_exhausted", "Queue pairs that ended because the peer was not ready too often.", "protocol 2.7";
    "packets_retransmitted", "Request packets sent again.", "protocol 2.8";
    "messages_completed", "Messages of the requester that ended well.", "protocol 2.11";
    "completions_written", "Completion entries.", "protocol 2.11";
    "completions_in_error", "Completion entries with a status other than success.", "protocol 2.11";
    "completion_queue_overrun", "Completions that found their queue full.", "protocol 4.4";
    "events_written", "Event entries.", "protocol 4.4";
    "event_queue_overrun", "Events that found their queue full.", "protocol 4.4";
    "interrupts_raised", "Interrupts.", "protocol 4.4";

    "doorbell_foreign", "Doorbells for an object that the page does not own.", "design decision 14";
    "doorbell_unknown", "Doorbells for an object that does not exist, or at an offset without a doorbell.", "design decision 14";
    "doorbell_torn", "High halves of a doorbell without their low half.", "design 3.1";
    "register_unmapped", "Accesses to BAR 0 where no register stands.", "design decision 5";
    "commands_executed", "Admin commands that ended well.", "design decision 12";
    "commands_refused", "Admin commands refused by code.", "design decision 12";
    "work_refused", "Work requests that were malformed.", "protocol 8.3";
    "local_protection", "Local keys, bounds or rights that did not hold.", "protocol 2.11";
    "remote_protection", "Remote keys, bounds, rights or domains that did not hold.", "protocol 4.6";
    "host_reads", "Read requests to the host.", "design 3.1";
    "host_read_errors", "Reads that the host answered with an error.", "design 3.1";
    "host_writes", "Write requests to the host.", "design 3.1";
    "host_write_errors", "Writes that the host refused.", "design 3.1";
    "context_misses", "Records, regions or translations fetched from host memory.", "design decision 7";
    "stale_dropped", "Tokens, answers and timers of an older generation.", "design decision 8";
}

/// Finds a counter by name.
///
/// # Panics
///
/// If there is none of this name; in a constant that is a compile error.
pub const fn counter(name: &str) -> usize {
    let mut index = 0;
    while index < COUNTERS.len() {
        if crate::field::same(COUNTERS[index].name, name) {
            return index;
        }
        index += 1;
    }
    panic!("no counter has this name")
}

// The map: rising, aligned, inside the BAR, and no register array inside another's stride reaches a neighbour.
const _: () = {
    let mut index = 0;
    while index < REGISTERS.len() {
        let register = &REGISTERS[index];
        assert!(register.record.bits == 64, "registers are 64 bits wide");
        assert!(register.offset.is_multiple_of(8) && register.stride.is_multiple_of(8));
        assert!(register.at(register.count - 1) + 8 <= COUNTER_BASE, "a register reaches into the counters");
        assert!(index == 0 || REGISTERS[index - 1].offset < register.offset, "registers must rise");
        let mut other = 0;
        while other < index {
            let mut mine = 0;
            while mine < register.count {
                let mut theirs = 0;
                while theirs < REGISTERS[other].count {
                    assert!(register.at(mine) != REGISTERS[other].at(theirs), "two registers at one offset");
                    theirs += 1;
                }
                mine += 1;
            }
            other += 1;
        }
        index += 1;
    }
    assert!(counter_offset(COUNTERS.len() - 1) + 8 <= BAR0_BYTES);
    assert!(DROP_COUNTERS == DropReason::ALL.len());
    let mut reason = 0;
    while reason < DROP_COUNTERS {
        assert!(crate::field::same(COUNTERS[reason].name, DropReason::ALL[reason].name()));
        reason += 1;
    }
    assert!(REG_MULTICAST_GROUP.count as usize == limits::MULTICAST_GROUPS);
    assert!(REG_SOURCE_ADDRESS_HIGH.count as usize == limits::SOURCE_ADDRESSES);
    assert!(REG_INTERRUPT_MODERATION.count == limits::INTERRUPT_VECTORS_MAX);
    assert!(REG_HOST_MEMORY_BASE.count as usize == MemoryKind::ALL.len());
    assert!(Magic::RECORD.fields[0].reset == MAGIC);
    assert!(LayoutVersion::RECORD.field("major").reset == LAYOUT_MAJOR);
    assert!(LayoutVersion::RECORD.field("minor").reset == LAYOUT_MINOR);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_name_of_its_own() {
        for (index, entry) in COUNTERS.iter().enumerate() {
            assert_eq!(counter(entry.name), index, "{} occurs twice", entry.name);
        }
    }

    #[test]
    fn the_magic_reads_as_text_in_memory() {
        assert_eq!(Magic::at_reset().to_bytes().unwrap(), *b"rnic-hw!");
    }

    #[test]
    fn a_register_at_reset_gives_its_reset_values() {
        let port = PortControl::at_reset();
        assert_eq!(port.active_mtu, crate::state::PathMtu::Bytes4096);
        assert_eq!(port.frame_bytes_max, 4224);
        assert_eq!(port.to_bytes().unwrap(), [0x50, 0, 0x80, 0x10, 0, 0, 0, 0]);
    }
}
