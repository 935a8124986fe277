#![doc = include_str!("manual/registers.md")]

use crate::field::{Record, record, values};
use crate::limits;
use crate::wire::DropReason;

/// How software may use a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// RO: writes are ignored.
    ReadOnly,
    /// RW: a read returns the value that was written.
    ReadWrite,
    /// W1C: writing one to a bit clears it; zeros change nothing.
    WriteOneToClear,
    /// WO: a write acts and is not stored; a read returns zero.
    WriteOnly,
}

impl Access {
    /// Returns the usual abbreviation: RO, RW, W1C or WO.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "RO",
            Self::ReadWrite => "RW",
            Self::WriteOneToClear => "W1C",
            Self::WriteOnly => "WO",
        }
    }
}

/// A register of 64 bits, or an array of equal registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Name in `snake_case`.
    pub name: &'static str,
    /// Byte offset in BAR 0 of the register, or of the first of the array.
    pub offset: u32,
    /// How software may access it.
    pub access: Access,
    /// Registers of the array; 1 for a single register.
    pub count: u32,
    /// Bytes from one register of the array to the next.
    pub stride: u32,
    /// Fields of the register.
    pub record: &'static Record,
}

impl Register {
    /// Returns the byte offset in BAR 0 of register `index` of the array.
    ///
    /// # Panics
    ///
    /// If `index` is not below `count`.
    pub const fn at(&self, index: u32) -> u32 {
        assert!(index < self.count, "the array of registers is shorter");
        self.offset + index * self.stride
    }
}

/// Size of BAR 0, in bytes.
pub const BAR0_BYTES: u32 = 0x4000;
/// Value of the register `magic`: the bytes `rnic-hw!`, little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rnic-hw!");
/// Major version of the layout. It counts up when something moves; a driver refuses another major version.
pub const LAYOUT_MAJOR: u64 = 2;
/// Minor version of the layout. It counts up when reserved bits get a meaning.
pub const LAYOUT_MINOR: u64 = 0;

record! {
    /// Identifies an rnic card. The driver checks it before it reads any other register.
    pub struct Magic: 64 bits by Fixed, "design 3.1" {
        /// The bytes `rnic-hw!`, lowest first.
        magic: u64 = 0..64, "design 3.1", reset 0x2177_682d_6369_6e72;
    }
}

record! {
    /// Version of the layout in this manual.
    pub struct LayoutVersion: 64 bits by Fixed, "design 3.1" {
        /// Minor version: counts up when reserved bits get a meaning. Older drivers keep working.
        minor: u16 = 0..16, "design 3.1", reset 0;
        /// Major version: counts up when a bit moves or changes its meaning. A driver of another major version must stop.
        major: u16 = 16..32, "design 3.1", reset 2;
    }
    reserved { 32..64 }
}

record! {
    /// Features that the card was generated with. If a bit is zero, commands and opcodes of the feature are refused with
    /// `not_supported` or LOC_QP_OP.
    pub struct Features: 64 bits by Generated, "design 3.1" {
        /// Packet path: parsing, ICRC, assembly.
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
        /// SRQs.
        shared_receive_queues: bool = 6..7, "protocol 4.5";
        /// Memory windows.
        memory_windows: bool = 7..8, "protocol 4.6";
        /// Fast registration by WQE.
        fast_registration: bool = 8..9, "protocol 4.6";
        /// Regions given by a page list, for hosts without an IOMMU.
        page_lists: bool = 9..10, "design 3.2";
        /// Recovery from loss: retransmission, RNR delays, acknowledgement timers.
        retransmission: bool = 10..11, "protocol 2.6";
        /// Rate control by congestion notifications.
        congestion_control: bool = 11..12, "protocol 5.1";
        /// The transmitter obeys priority flow control frames.
        flow_control: bool = 12..13, "protocol 5.2";
        /// Contexts that do not fit on the chip are kept in host memory.
        context_cache: bool = 13..14, "design decision 7";
        /// Push pages take WQEs.
        push_window: bool = 14..15, "design 3.2";
        /// Queues for frames other than RoCEv2.
        host_network: bool = 15..16, "design 3";
        /// The FLUSH and ATOMIC_WRITE operations.
        persistence: bool = 16..17, "protocol 1.4";
    }
    reserved { 17..64 }
}

record! {
    /// Datapath width, interrupt vectors and clock of the card.
    pub struct Geometry: 64 bits by Generated, "design 3" {
        /// Width of the datapath: 64, 128, 256 or 512.
        datapath_bits: u16 = 0..16, "design decision 2", unit "bits";
        /// Interrupt vectors that the card can raise.
        interrupt_vectors: u16 = 16..32, "protocol 4.4";
        /// Frequency of the core clock. Times in this manual count its cycles.
        clock_khz: u32 = 32..64, "design 8", unit "kHz";
    }
}

record! {
    /// Sizes of the card's tables, log2. Object numbers are below these sizes, except QPNs and keys, of which only some bits are
    /// the index.
    pub struct TableSizes: 64 bits by Generated, "design 3" {
        /// Queue pairs, log2.
        queue_pairs_log2: u8 = 0..5, "design decision 5", allowed 0..=16;
        /// Completion queues, log2.
        completion_queues_log2: u8 = 8..13, "protocol 4.4", allowed 0..=16;
        /// Event queues, log2.
        event_queues_log2: u8 = 16..21, "protocol 4.4", allowed 0..=8;
        /// SRQs, log2.
        shared_receive_queues_log2: u8 = 24..29, "protocol 4.5", allowed 0..=16;
        /// Regions and windows together, log2.
        regions_log2: u8 = 32..37, "protocol 4.6", allowed 0..=24;
        /// Address handles, log2.
        address_handles_log2: u8 = 40..45, "protocol 4.2", allowed 0..=16;
        /// Doorbell pages, log2. Page 0, the driver's own, is included.
        doorbell_pages_log2: u8 = 48..53, "design decision 14", allowed 0..=11;
        /// Blocks of eight outstanding messages, shared by all queue pairs, log2.
        outstanding_blocks_log2: u8 = 56..61, "design decision 9", allowed 0..=16;
    }
    reserved { 5..8, 13..16, 21..24, 29..32, 37..40, 45..48, 53..56, 61..64 }
}

record! {
    /// Largest values that commands and WQEs may ask for.
    pub struct QueueLimits: 64 bits by Generated, "design 3.2" {
        /// Slots of a send queue, log2.
        send_slots_log2: u8 = 0..5, "design 3.2", allowed 0..=15;
        /// SGEs of a READ or atomic.
        response_sges: u8 = 5..8, "design 3.2", allowed 0..=2;
        /// WQEs of a receive queue, log2.
        receive_wqes_log2: u8 = 8..13, "design 3.2", allowed 0..=15;
        /// CQEs of a completion queue, log2.
        cqes_log2: u8 = 16..21, "protocol 4.4", allowed 0..=22;
        /// EQEs of an event queue, log2.
        eqes_log2: u8 = 24..29, "protocol 4.4", allowed 0..=16;
        /// SGEs of a send WQE.
        send_sges: u8 = 32..36, "design 3.2", allowed 0..=6;
        /// SGEs of a receive WQE.
        receive_sges: u8 = 36..40, "design 3.2", allowed 0..=3;
        /// Inline data of a send WQE.
        inline_bytes: u8 = 40..48, "design 3.2", unit "bytes", allowed 0..=96;
        /// READs and atomics of a queue pair in flight as requester.
        read_atomic: u8 = 48..53, "protocol 2.3", allowed 0..=16;
        /// READs and atomics of a queue pair in flight as responder.
        destination_read_atomic: u8 = 53..58, "protocol 3.5", allowed 0..=16;
        /// Unacknowledged PSNs of a queue pair, log2.
        psn_window_log2: u8 = 58..63, "protocol 2.1", allowed 0..=15;
    }
    reserved { 13..16, 21..24, 29..32, 63..64 }
}

record! {
    /// Device addresses, the pages of regions, and the slots of READs and atomics.
    pub struct MemoryLimits: 64 bits by Generated, "design 3.1" {
        /// Bits of a device address that the card puts out: rings and regions lie below this power of two. Cards of layout 1.0 read
        /// zero, and put out 64.
        address_bits: u8 = 0..7, "design 3.1", unit "bits", allowed 0..=64;
        /// Smallest page of a region, log2 of its bytes.
        smallest_page_log2: u8 = 8..14, "protocol 4.6", unit "bytes", allowed 0..=30;
        /// Largest page of a region, log2 of its bytes.
        largest_page_log2: u8 = 16..22, "protocol 4.6", unit "bytes", allowed 0..=30;
        /// Pages of all regions together, log2.
        pages_log2: u8 = 24..29, "protocol 4.6", unit "pages", allowed 0..=24;
        /// READs and atomics that all queue pairs together can have in flight as requesters, and as many as responders, log2: each
        /// queue pair that has any has a share of 4, 8 or 16. Cards that read zero have 16 for each queue pair.
        read_slots_log2: u8 = 32..37, "design decision 7", allowed 0..=20;
    }
    reserved { 7..8, 14..16, 22..24, 29..32, 37..64 }
}

record! {
    /// Longest message that a WQE may ask for.
    pub struct MessageLimit: 64 bits by Generated, "protocol 2.1" {
        /// Largest length of a message.
        message_bytes: u64 = 0..64, "protocol 2.1", unit "bytes";
    }
}

record! {
    /// Starts and stops the card.
    pub struct Control: 64 bits by Driver, "design decision 12" {
        /// Enables frames, doorbells and commands. While zero, no ring is processed, and good frames are dropped and counted as
        /// `buffer_full`.
        enable: bool = 0..1, "design decision 12";
        /// Writing one resets the card: it quiesces, drains its reads and writes for at most `host_limit` and 64 units, removes every
        /// object and resets all registers. Reads as zero; `status.resetting` shows when the reset is complete.
        reset: bool = 1..2, "design decision 12";
        /// Writing one stops new work and drains the work in flight; objects are kept. Writing zero resumes.
        quiesce: bool = 2..3, "design decision 12";
    }
    reserved { 3..64 }
}

record! {
    /// State of the card.
    pub struct Status: 64 bits by Control, "design decision 12" {
        /// No reset is in progress; the card takes commands.
        ready: bool = 0..1, "design decision 12";
        /// A reset is in progress.
        resetting: bool = 1..2, "design decision 12";
        /// Nothing is in flight to the host or the wire.
        drained: bool = 2..3, "design decision 12", reset 1;
        /// The device has failed; the register `fatal` has the code. Only a reset clears it.
        fatal: bool = 3..4, "protocol 4.4";
        /// The network port has a link.
        link_up: bool = 4..5, "protocol 4.4";
        /// The card may reach its host: the function is bus master. While zero, no read, write or interrupt begins.
        bus_master: bool = 5..6, "design 3.1";
    }
    reserved { 6..64 }
}

values! {
    /// Cause of a device failure.
    pub enum FatalCode, "design decision 12" {
        /// The device has not failed.
        None = 0, "none";
        /// A host read was not completed before a reset or a quiesce gave up, half of all tags wait for answers that are overdue,
        /// or an answer came for no read.
        LostReadTag = 1, "lost_read_tag";
        /// The host reported no write for the time of `host_limit` although some were in flight, or not before a reset or a
        /// quiesce gave up, or it reported one although none was.
        LostWrite = 2, "lost_write";
        /// The host completed a read of the admin ring, of a context or of a translation with an error.
        HostReadError = 3, "host_read_error";
        /// The host refused a write of an EQE, an admin answer or a context.
        HostWriteError = 4, "host_write_error";
    }
}

record! {
    /// First device failure since reset.
    pub struct Fatal: 64 bits by Control, "design decision 12" {
        /// Cause of the failure.
        code: FatalCode = 0..8, "design decision 12";
        /// Tag, queue number or low address bits, depending on the code.
        detail: u32 = 32..64, "design decision 12";
    }
    reserved { 8..32 }
}

record! {
    /// Holds the value that software writes, without effect. Tests the path to the card.
    pub struct Scratch: 64 bits by Driver, "design 3.1" {
        /// Any value.
        scratch: u64 = 0..64, "design 3.1";
    }
}

record! {
    /// Longest time that the host may take to answer a read, or to report a write. Software that
    /// sets it waits for the card accordingly: a reset takes little longer, and a command as many times this time as its accesses of
    /// the host ("Time of a command", in the part on the admin queue).
    pub struct HostLimit: 64 bits by Driver, "design decision 12" {
        /// A read that is not answered after this time, in units of 1024 cycles of the core clock, fails as if the host had
        /// refused it. The value at reset is 64 ms of the card's core clock, rounded up; the one shown is that of 250 MHz. A late
        /// answer is dropped. If writes are in flight and none is reported done for this time, the device fails, since reports do
        /// not name their writes. A reset, a function-level reset and a quiesce wait for the host for 64 units longer, and then
        /// report `lost_read_tag` or `lost_write`; PCI Express gives a function-level reset 100 ms. Zero: no limit; they wait for
        /// 65,599 units then. A new value also counts for what is in flight.
        limit: u16 = 0..16, "design decision 12", unit "1024 cycles", reset 15625;
    }
    reserved { 16..64 }
}

impl HostLimit {
    /// Largest limit, in units.
    pub const UNITS_MAX: u64 = u16::MAX as u64;

    /// Units that last at least this long, at a core clock; [`Self::UNITS_MAX`] fit in the register.
    pub const fn units(nanoseconds: u64, clock_khz: u32) -> u64 {
        let cycles = (nanoseconds as u128 * clock_khz as u128).div_ceil(1_000_000);
        let units = cycles.div_ceil(1 << limits::HOST_LIMIT_UNIT_LOG2);
        if units > u64::MAX as u128 { u64::MAX } else { units as u64 }
    }

    /// Time of some units at a core clock, in nanoseconds, rounded up. A clock of zero counts as 1 kHz.
    pub const fn nanoseconds(units: u64, clock_khz: u32) -> u64 {
        let cycles = (units as u128) << limits::HOST_LIMIT_UNIT_LOG2;
        let clock_khz = if clock_khz == 0 { 1 } else { clock_khz };
        let nanoseconds = (cycles * 1_000_000).div_ceil(clock_khz as u128);
        if nanoseconds > u64::MAX as u128 { u64::MAX } else { nanoseconds as u64 }
    }

    /// The value at reset of a card of this core clock.
    ///
    /// # Panics
    ///
    /// If the clock is above 1 GHz, which is more than the register can count.
    pub const fn at_reset_of(clock_khz: u32) -> HostLimit {
        let units = Self::units(limits::HOST_LIMIT_RESET_MS * 1_000_000, clock_khz);
        assert!(units <= Self::UNITS_MAX, "no core clock is so fast");
        HostLimit { limit: units as u16 }
    }

    /// Units for which a reset or a quiesce waits for the host.
    pub const fn drain_units(self) -> u64 {
        let units = if self.limit == 0 { Self::UNITS_MAX } else { self.limit as u64 };
        units + limits::DRAIN_UNITS
    }
}

record! {
    /// Unit of the acknowledgement timers and of RNR delays. Only tests that cannot wait change it.
    pub struct TimerUnit: 64 bits by Driver, "protocol 2.6" {
        /// Cycles of the core clock in 4.096 us. The value at reset is that of the card's core clock, rounded up; the one shown
        /// is that of 250 MHz. Zero counts as one. A timer expires between T and 4T, but where 4T is less than 3584 cycles,
        /// only within 3584 cycles. A new value also counts for timers that run.
        cycles: u16 = 0..16, "protocol 2.6", unit "cycles", reset 1024;
    }
    reserved { 16..64 }
}

record! {
    /// MAC address of the port.
    pub struct OwnMac: 64 bits by Driver, "protocol 1.2" {
        /// MAC address as a number, the first byte on the wire being the most significant.
        mac: u64 = 0..48, "protocol 1.2";
    }
    reserved { 48..64 }
}

record! {
    /// Address filter, MTU and largest frame of the port.
    pub struct PortControl: 64 bits by Driver, "protocol 1.2" {
        /// Frames to any unicast address are accepted.
        promiscuous: bool = 0..1, "protocol 8.3";
        /// Frames to any multicast address are accepted, not only those to `multicast_group`.
        all_multicast: bool = 1..2, "protocol 8.3";
        /// Active MTU of the port, as a PMTU code. The PMTU of a queue pair may not exceed it.
        active_mtu: crate::state::PathMtu = 4..7, "protocol 4.1", reset 5;
        /// Longest frame accepted, without FCS.
        frame_bytes_max: u16 = 16..32, "protocol 1.1", unit "bytes", reset 4224, allowed 58..=4224;
    }
    reserved { 2..4, 7..16, 32..64 }
}

record! {
    /// MAC address that the board was given. Software that has no other writes it to `own_mac`.
    pub struct PermanentMac: 64 bits by Shell, "protocol 1.2" {
        /// MAC address as a number, the first byte on the wire being the most significant; zero if the board has none.
        mac: u64 = 0..48, "protocol 1.2";
    }
    reserved { 48..64 }
}

record! {
    /// Speed of the port.
    pub struct PortSpeed: 64 bits by Shell, "protocol 4.1" {
        /// Rate of the link, or that of the port while it has none; zero if the board does not know.
        megabits: u32 = 0..24, "protocol 4.1", unit "Mb/s";
    }
    reserved { 24..64 }
}

record! {
    /// An Ethernet multicast group that the port accepts.
    pub struct MulticastGroup: 64 bits by Driver, "protocol 8.3" {
        /// MAC address as a number, the first byte on the wire being the most significant.
        mac: u64 = 0..48, "protocol 1.2";
        /// The group is in use.
        valid: bool = 48..49, "protocol 8.3";
    }
    reserved { 49..64 }
}

record! {
    /// First eight bytes of a source address as a GID, the first byte on the wire being the most significant. An IPv4
    /// address a.b.c.d is written as ::ffff:a.b.c.d. QPs and address handles name a source address by its index.
    pub struct SourceAddressHigh: 64 bits by Driver, "protocol 4.2" {
        /// Bytes 0 to 7 of the GID.
        address_high: u64 = 0..64, "protocol 4.2";
    }
}

record! {
    /// Last eight bytes of a source address as a GID.
    pub struct SourceAddressLow: 64 bits by Driver, "protocol 4.2" {
        /// Bytes 8 to 15 of the GID.
        address_low: u64 = 0..64, "protocol 4.2";
    }
}

record! {
    /// MAC address and valid bit of a source address.
    pub struct SourceAddressPort: 64 bits by Driver, "protocol 4.2" {
        /// Source MAC address of frames from this address, the first byte on the wire being the most significant.
        mac: u64 = 0..48, "protocol 4.2";
        /// The source address is in use. A queue pair that names an unused one is refused.
        valid: bool = 48..49, "protocol 4.2";
    }
    reserved { 49..64 }
}

record! {
    /// Base of the ring of admin commands.
    pub struct AdminCommandBase: 64 bits by Driver, "design decision 12" {
        /// Device address of the ring, a multiple of 4096.
        address: u64 = 0..64, "design decision 12";
    }
}

record! {
    /// Base of the ring of admin answers.
    pub struct AdminAnswerBase: 64 bits by Driver, "design decision 12" {
        /// Device address of the ring, a multiple of 4096.
        address: u64 = 0..64, "design decision 12";
    }
}

record! {
    /// Size of both admin rings, enable, and event on answers.
    pub struct AdminControl: 64 bits by Driver, "design decision 12" {
        /// Entries of each ring, log2.
        entries_log2: u8 = 0..4, "design decision 12", allowed 0..=8;
        /// Enables the queue. Setting it starts both rings at index 0, with phase 1.
        enable: bool = 8..9, "design decision 12";
        /// Every answer also raises an event in event queue 0.
        event_on_answer: bool = 9..10, "protocol 4.4";
    }
    reserved { 4..8, 10..64 }
}

record! {
    /// Producer index of the ring of commands. Writing it makes the card read new commands.
    pub struct AdminDoorbell: 64 bits by Driver, "design decision 12" {
        /// Index of the next command that software will write; free-running, modulo 65536.
        producer_index: u16 = 0..16, "design decision 12";
    }
    reserved { 16..64 }
}

record! {
    /// Progress of the admin queue.
    pub struct AdminProgress: 64 bits by Control, "design decision 12" {
        /// Index of the next command that the card will read; free-running, modulo 65536.
        consumer_index: u16 = 0..16, "design decision 12";
        /// A command is being executed.
        busy: bool = 16..17, "design decision 12";
        /// A command could not be read or an answer could not be written; the queue has stopped.
        failed: bool = 17..18, "design decision 12";
    }
    reserved { 18..64 }
}

record! {
    /// Base of event queue 0. It exists before the first command, since it carries the events of the device and of the admin
    /// queue; all other event queues are created by command.
    pub struct EventQueueBase: 64 bits by Driver, "protocol 4.4" {
        /// Device address of the ring, a multiple of 4096.
        address: u64 = 0..64, "protocol 4.4";
    }
}

record! {
    /// Size, enable and interrupt vector of event queue 0.
    pub struct EventQueueControl: 64 bits by Driver, "protocol 4.4" {
        /// EQEs of the queue, log2.
        entries_log2: u8 = 0..5, "protocol 4.4", allowed 0..=16;
        /// Enables the queue. Setting it starts the ring at index 0, with phase 1.
        enable: bool = 8..9, "protocol 4.4";
        /// Interrupt vector that the queue raises.
        vector: u8 = 16..22, "protocol 4.4";
    }
    reserved { 5..8, 9..16, 22..64 }
}

values! {
    /// A kind of object whose contexts are kept in host memory if they do not fit on the chip.
    pub enum MemoryKind, "design decision 7" {
        /// Queue pair contexts.
        QueuePair = 0, "queue_pair";
        /// Completion queue contexts.
        CompletionQueue = 1, "completion_queue";
        /// SRQ contexts.
        SharedReceiveQueue = 2, "shared_receive_queue";
        /// Region entries.
        Region = 3, "region";
        /// Address handles.
        AddressHandle = 4, "address_handle";
        /// READs and atomics that a responder keeps to answer duplicates.
        Resource = 5, "resource";
    }
}

record! {
    /// Host memory for the contexts of one kind. The index of the array is the kind, a `MemoryKind`.
    pub struct HostMemoryBase: 64 bits by Driver, "design decision 7" {
        /// Device address, a multiple of 4096. Software must not access the memory while the card is enabled.
        address: u64 = 0..64, "design decision 7";
    }
}

record! {
    /// Size of the host memory that the card needs for one kind. Zero if all contexts fit on the chip, as they do in every card
    /// of this version.
    pub struct HostMemoryBytes: 64 bits by Generated, "design decision 7" {
        /// Size of the memory at `host_memory_base`.
        bytes: u64 = 0..64, "design decision 7", unit "bytes";
    }
}

record! {
    /// Interrupt vectors that are pending because they are masked in `interrupt_mask`. The MSI-X table belongs to the shell.
    pub struct InterruptPending: 64 bits by Complete, "protocol 4.4" {
        /// Bit n is vector n.
        vectors: u64 = 0..64, "protocol 4.4";
    }
}

record! {
    /// Interrupt vectors that are masked. Unmasking a pending vector raises it once.
    pub struct InterruptMask: 64 bits by Driver, "protocol 4.4" {
        /// Bit n is vector n.
        vectors: u64 = 0..64, "protocol 4.4";
    }
}

record! {
    /// Shortest time between two interrupts of one vector.
    pub struct InterruptModeration: 64 bits by Driver, "protocol 4.4" {
        /// Shortest time, in units of 256 cycles of the core clock. Zero: no moderation.
        period: u16 = 0..16, "protocol 4.4", unit "256 cycles";
    }
    reserved { 16..64 }
}

record! {
    /// Takes a snapshot of all counters.
    pub struct CounterLatch: 64 bits by Driver, "design decision 13" {
        /// Writing one takes the snapshot. Reads as one until the snapshot is complete, at most 4096 cycles later.
        latch: bool = 0..1, "design decision 13";
    }
    reserved { 1..64 }
}

record! {
    /// Value of a counter in the last snapshot.
    pub struct CounterValue: 64 bits by Control, "design decision 13" {
        /// Events since the card was configured, modulo 2^64; a reset does not clear it.
        count: u64 = 0..64, "design decision 13";
    }
}

record! {
    /// Level of a pool: how much of it is in use.
    pub struct PoolLevel: 64 bits by Control, "design decision 13" {
        /// Entries in use now, a few cycles ago.
        in_use: u32 = 0..32, "design decision 13";
    }
    reserved { 32..64 }
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

        /// Every register of BAR 0 except the counters, in ascending order of offsets.
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
    REG_MEMORY_LIMITS, "memory_limits" @ 0x0038, ReadOnly, MemoryLimits;
    REG_CONTROL, "control" @ 0x0100, ReadWrite, Control;
    REG_STATUS, "status" @ 0x0108, ReadOnly, Status;
    REG_FATAL, "fatal" @ 0x0110, ReadOnly, Fatal;
    REG_SCRATCH, "scratch" @ 0x0118, ReadWrite, Scratch;
    REG_HOST_LIMIT, "host_limit" @ 0x0120, ReadWrite, HostLimit;
    REG_TIMER_UNIT, "timer_unit" @ 0x0128, ReadWrite, TimerUnit;
    REG_OWN_MAC, "own_mac" @ 0x0200, ReadWrite, OwnMac;
    REG_PORT_CONTROL, "port_control" @ 0x0208, ReadWrite, PortControl;
    REG_PERMANENT_MAC, "permanent_mac" @ 0x0210, ReadOnly, PermanentMac;
    REG_PORT_SPEED, "port_speed" @ 0x0218, ReadOnly, PortSpeed;
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

/// A counter: one read-only 64-bit register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Name in `snake_case`.
    pub name: &'static str,
    /// What is counted.
    pub meaning: &'static str,
    /// Citation of the rule: `protocol 3.4`, `design 3.2` or `design decision 9`.
    pub section: &'static str,
    /// The card counts it. Otherwise the register is kept for a feature that it has not, and reads as zero.
    pub is_counted: bool,
}

/// Byte offset in BAR 0 of counter 0; the others follow, eight bytes each.
pub const COUNTER_BASE: u32 = 0x1000;

/// Returns the byte offset in BAR 0 of counter `index`.
///
/// # Panics
///
/// If no counter has this index; in a constant that is a compile error.
pub const fn counter_offset(index: usize) -> u32 {
    assert!(index < COUNTERS.len(), "there are fewer counters");
    COUNTER_BASE + index as u32 * 8
}

/// Number of drop counters of the packet path. They come first in [`COUNTERS`], in the order of the checks and of
/// [`DropReason`]; `reason as usize` is the index of its counter.
pub const DROP_COUNTERS: usize = 21;

/// What a counter says, and whether the card counts it: not if its row ends with `uncounted`.
macro_rules! counter {
    ($name:literal, $meaning:expr, $section:literal) => {
        Counter { name: $name, meaning: $meaning, section: $section, is_counted: true }
    };
    ($name:literal, $meaning:literal, $section:literal, uncounted) => {
        Counter {
            is_counted: false,
            ..counter!($name, concat!($meaning, " Not counted yet: always zero."), $section)
        }
    };
}

macro_rules! counters {
    ($( $name:literal, $meaning:literal, $section:literal $(, $uncounted:ident)?; )+) => {
        /// All counters, in the order of their registers.
        ///
        /// The first 21 count drops of the packet path, one counter for each reason, in the order of the checks. A dropped
        /// frame is counted by the first reason that applies, so `frames_received` is the sum of these 21, of
        /// `requests_received`, of `responses_received` and of `congestion_notifications_received`. A request or response that
        /// is dropped later counts in one counter of its role.
        pub const COUNTERS: &[Counter] = &[ $(counter!($name, $meaning, $section $(, $uncounted)?)),+ ];
    };
}

counters! {
    "mac_error", "Frames that the MAC marked as bad.", "design 3.1";
    "too_long", "Frames longer than `port_control.frame_bytes_max`, without FCS.", "protocol 1.1";
    "short_ethernet", "Frames shorter than their Ethernet header, a VLAN tag included.", "protocol 8.3";
    "destination_mac", "Frames whose destination MAC address the filter refuses.", "protocol 8.3";
    "source_mac", "Frames whose source MAC address is a multicast address.", "protocol 8.3";
    "other_ethertype", "Frames whose EtherType is neither IPv4 nor IPv6.", "protocol 8.3";
    "ip_header", "Packets with a truncated IP header, wrong version, IPv4 options, or an IPv4 total length below 20.", "protocol 8.3";
    "ip_length", "Packets whose IP length exceeds the frame.", "protocol 8.3";
    "ip_checksum", "Packets with a wrong IPv4 header checksum.", "protocol 8.3";
    "ip_fragment", "IPv4 fragments.", "protocol 8.3";
    "other_protocol", "IP packets that are not UDP, IPv6 extension headers included.", "protocol 8.3";
    "udp_header", "Packets whose IP payload is shorter than a UDP header.", "protocol 8.3";
    "other_port", "UDP datagrams to a port other than 4791.", "protocol 8.3";
    "udp_length", "Datagrams whose UDP length is below 24, or is not the length of the IP payload.", "protocol 8.3";
    "icrc", "Packets with a wrong ICRC.", "protocol 1.8";
    "bth_version", "Packets with a transport version (TVer) other than 0.", "protocol 8.3";
    "unsupported_transport", "Packets of RD, XRC or a reserved transport, or with an unassigned opcode of UC or UD.", "protocol 1.4";
    "header_length", "Packets too short for the headers of their opcode, the pad and the ICRC.", "protocol 8.3";
    "destination_qp", "Packets with destination QP 0.", "protocol 8.3";
    "buffer_full", "Good frames for which the receive buffer had no room.", "design decision 3";
    "buffer_share", "Good packets for which there was room, but whose queue pair held as many packets of the buffer of requests, or of that of responses, as were free, or as much room; and those of the first 1,024 cycles after a reset.", "design decision 3";

    "frames_received", "Frames from the MAC, good or bad.", "design decision 13";
    "bytes_received", "Bytes of the received frames, without FCS.", "design decision 13";
    "requests_received", "Packets passed to the responder.", "design 3";
    "responses_received", "Packets passed to the requester: READ responses, acknowledgements, atomic responses.", "design 3";
    "congestion_notifications_received", "CNPs passed to the requester.", "protocol 1.10";
    "frames_sent", "Frames passed to the MAC.", "design decision 13";
    "bytes_sent", "Bytes of the transmitted frames, without FCS.", "design decision 13";

    "unknown_qp", "Packets whose destination QPN, all bits compared, is no queue pair.", "protocol 3.6 row 1";
    "qp_not_ready", "Packets for a queue pair that is not in RTR, RTS, SQD or SQE.", "protocol 3.6 row 1";
    "transport_mismatch", "Packets of another transport service than that of the queue pair.", "protocol 3.6 row 1";
    "partition_key", "Packets with a P_Key that does not match.", "protocol 4.3";
    "queue_key", "Datagrams with a wrong Q_Key.", "protocol 3.6 row 17", uncounted;
    "source_address", "Packets to a connected queue pair whose source is not its peer, or whose destination is not its own address.", "protocol 3.6 row 1";
    "no_receive_wqe", "UC and UD messages that found no posted receive WQE.", "protocol 3.6 row 18", uncounted;
    "unreliable_refused", "UC and UD packets refused for access, length or opcode order.", "protocol 3.6 row 20", uncounted;
    "duplicate_request", "RC requests with a PSN before the expected one, answered again or dropped.", "protocol 3.4";
    "duplicate_dropped", "Duplicate READs and atomics whose response is no longer stored.", "protocol 3.4";
    "request_gap", "RC requests with a PSN after the expected one; they are not executed.", "protocol 3.2";
    "requests_after_failure", "Packets for a queue pair whose responder has already failed.", "protocol 3.2";
    "acknowledgements_sent", "Positive acknowledgements sent.", "protocol 3.8";
    "nak_sequence_sent", "PSN sequence error NAKs (0x60) sent.", "protocol 3.2";
    "nak_invalid_request_sent", "Invalid request NAKs (0x61) sent.", "protocol 3.6";
    "nak_access_sent", "Remote access error NAKs (0x62) sent.", "protocol 3.6";
    "nak_operational_sent", "Remote operational error NAKs (0x63) sent.", "protocol 3.6";
    "nak_rnr_sent", "RNR NAKs sent.", "protocol 3.6 row 12";
    "congestion_notifications_sent", "CNPs sent.", "protocol 5.1", uncounted;
    "marked_received", "Packets received with ECN congestion experienced.", "protocol 5.1", uncounted;

    "acknowledgements_received", "Positive acknowledgements received that acknowledge something new.", "protocol 2.5";
    "nak_received", "NAKs 0x60 to 0x63 received.", "protocol 2.5";
    "nak_rnr_received", "RNR NAKs received.", "protocol 2.7";
    "response_stale", "Responses with a PSN that is already acknowledged.", "protocol 2.5";
    "response_never_sent", "Responses with a PSN that was never sent (ghost acknowledgements).", "protocol 2.5";
    "response_reserved", "Responses with a reserved syndrome.", "protocol 1.6";
    "response_unexpected", "Responses with a wrong opcode or length, which fail the queue pair.", "protocol 2.5";
    "implied_nak", "Gaps in the PSNs of responses, which count as a NAK.", "protocol 2.5";
    "timeout", "Acknowledgement timers that expired.", "protocol 2.6";
    "retry_exhausted", "Queue pairs that failed because no retry was left.", "protocol 2.6";
    "rnr_retry_exceeded", "Queue pairs that failed because no RNR retry was left.", "protocol 2.7";
    "packets_retransmitted", "Request packets retransmitted.", "protocol 2.8";
    "messages_completed", "Messages of the requester that completed with success.", "protocol 2.11";
    "completions_written", "CQEs written.", "protocol 2.11";
    "completions_in_error", "CQEs written with a status other than success.", "protocol 2.11";
    "completion_queue_overrun", "CQEs that found their completion queue full or in error.", "protocol 4.4";
    "events_written", "EQEs written.", "protocol 4.4";
    "event_queue_overrun", "EQEs that found their event queue full and were lost.", "protocol 4.4";
    "interrupts_raised", "Interrupts raised.", "protocol 4.4";

    "doorbell_foreign", "Doorbells for an object that the doorbell page does not own.", "design decision 14";
    "doorbell_unknown", "Doorbells for an object that does not exist, or at an offset without a doorbell.", "design decision 14";
    "doorbell_torn", "High halves of a doorbell without the low half of the same doorbell.", "design 3.1";
    "register_unmapped", "Accesses to BAR 0 at an offset without a register.", "design decision 5";
    "commands_executed", "Admin commands that completed with success.", "design decision 12";
    "commands_refused", "Admin commands that completed with another status.", "design decision 12";
    "work_refused", "Malformed WQEs.", "protocol 8.3";
    "local_protection", "Local accesses refused for key, bounds or rights.", "protocol 2.11";
    "remote_protection", "Remote accesses refused for key, bounds, rights or domain.", "protocol 4.6";
    "host_reads", "Read requests to the host.", "design 3.1";
    "host_read_errors", "Read requests that the host completed with an error, or not within `host_limit`.", "design 3.1";
    "host_writes", "Write requests to the host.", "design 3.1";
    "host_write_errors", "Write requests that the host refused.", "design 3.1";
    "context_misses", "Contexts fetched from host memory.", "design decision 7", uncounted;
    "stale_dropped", "WQEs, tokens and timers of an older generation that were dropped.", "design decision 8";
    "share_exceeded", "Requests dropped because as much of their receive queue is parked as is free for all.", "design decision 3";
}

/// Returns the index of the counter with this name.
///
/// # Panics
///
/// If no counter has this name; in a constant that is a compile error.
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

values! {
    /// When nothing of a pool is in use.
    pub enum PoolRest, "design decision 13" {
        /// Nothing is on its way inside the card: no frame has come, no command, doorbell or timer has acted, and no host request
        /// was answered for some microseconds.
        Quiet = 0, "quiet";
        /// As `quiet`, and the card is enabled and does not quiesce.
        Enabled = 1, "enabled";
        /// As `quiet`, and every posted message has completed.
        Completed = 2, "completed";
        /// As `quiet`, and no queue pair and no SRQ exists.
        Unused = 3, "unused";
    }
}

/// A pool of the card: entries that work takes and gives back. Its level is one read-only register, a [`PoolLevel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Name in `snake_case`.
    pub name: &'static str,
    /// What its entries are, and who takes and gives them.
    pub meaning: &'static str,
    /// When its level is zero.
    pub rest: PoolRest,
    /// Citation of the rule: `design 3.2` or `design decision 9`.
    pub section: &'static str,
}

/// Byte offset in BAR 0 of the level of pool 0; the others follow, eight bytes each.
pub const POOL_BASE: u32 = 0x3000;

/// Returns the byte offset in BAR 0 of the level of pool `index`.
///
/// # Panics
///
/// If no pool has this index; in a constant that is a compile error.
pub const fn pool_offset(index: usize) -> u32 {
    assert!(index < POOLS.len(), "there are fewer pools");
    POOL_BASE + index as u32 * 8
}

macro_rules! pools {
    ($( $name:literal, $rest:ident, $meaning:literal, $section:literal; )+) => {
        /// All pools, in the order of their registers.
        pub const POOLS: &[Pool] =
            &[ $(Pool { name: $name, meaning: $meaning, rest: PoolRest::$rest, section: $section }),+ ];
    };
}

pools! {
    "host_read_tags", Quiet, "Tags of reads that the host has not answered, or whose answer has not been taken.", "design 3.1";
    "host_read_words", Quiet, "Words of the buffer of host reads that are reserved for their answers.", "design 3.1";
    "host_read_late_tags", Quiet, "Tags of reads that were given up, and that the host still owes an answer.", "design 3.1";
    "host_writes", Quiet, "Writes that were taken from a stage and that the host has not reported.", "design decision 11";
    "request_cells", Quiet, "Cells of the request buffer that hold payload.", "design decision 3";
    "request_packets", Quiet, "Requests in the request buffer that the responder has not taken.", "design decision 3";
    "response_beats", Quiet, "Beats of payload in the response buffer.", "design decision 3";
    "response_packets", Quiet, "Responses in the response buffer that the requester has not taken.", "design decision 3";
    "responder_packets", Quiet, "Requests between admission and their command to place, and reads of receive WQEs.", "design decision 8";
    "parked_packets", Quiet, "Requests that park holds, those that pass at once included.", "design decision 3";
    "receive_lines", Unused, "Lines of four prefetched receive WQEs, those that a queue has for itself aside.", "protocol 3.7";
    "receive_reads", Quiet, "Reads of lines that the host has not answered.", "protocol 3.7";
    "receive_demands", Quiet, "Receive WQEs that a packet waits for and that are not on the card.", "protocol 3.7";
    "replies", Quiet, "Queue pairs that owe an acknowledgement or a NAK.", "design decision 4";
    "read_turns", Quiet, "Queue pairs with READs or atomics of the peer to answer.", "design decision 4";
    "read_responses", Quiet, "Responses to READs and atomics that were made and that gather has not taken.", "design decision 4";
    "read_duplicates", Quiet, "Duplicates of READs and atomics that were not looked up.", "protocol 3.4";
    "atomics", Quiet, "Atomics of the peer that are not done.", "protocol 3.5";
    "atomics_executing", Quiet, "Atomics of the peer that read or write their word.", "protocol 3.5";
    "send_queues", Enabled, "Queue pairs whose send queue is to be looked at, whether it has WQEs or not.", "design decision 5";
    "wqe_slots", Quiet, "WQE slots that were requested from the host, or wait to be parsed.", "design decision 9";
    "wqe_bursts", Quiet, "Bursts of WQE slots of which gather has not taken all packets.", "design decision 8";
    "send_line", Quiet, "Units of 128 bytes that bursts of WQE slots are counted as, from their request to segmentation.", "design decision 10";
    "messages", Completed, "Messages that have begun and have not completed.", "design decision 9";
    "message_blocks", Completed, "Shared blocks of eight messages, without the last one of each queue pair, which it keeps.", "design decision 9";
    "long_messages", Quiet, "Queue pairs that wait for a turn for the rest of a long message.", "design decision 10";
    "long_turns", Quiet, "Turns for rests of long messages of which gather has not taken all packets.", "design decision 10";
    "responses", Quiet, "Responses of peers whose data is on its way to host memory, and those after them.", "protocol 2.5";
    "completing", Quiet, "Queue pairs whose messages may complete.", "protocol 2.11";
    "gather_packets", Quiet, "Packets whose payload is being gathered.", "design decision 3";
    "gather_beats", Quiet, "Beats of the buffer of payload to send that are reserved or hold some.", "design decision 3";
    "inline_slots", Quiet, "Slots with inline data that gather has not sent.", "design 3.2";
    "place_packets", Quiet, "Received packets whose payload is being written to host memory.", "design decision 11";
    "place_writes", Quiet, "Host writes of these packets.", "design decision 11";
    "place_failures", Quiet, "Host writes that failed and whose packet has not retired.", "design decision 11";
    "completions", Quiet, "CQEs on their way from the completion queues to the host writer.", "protocol 4.4";
    "completion_writes", Quiet, "Writes of CQEs and EQEs that the host has not reported.", "protocol 4.4";
    "events", Quiet, "EQEs and interrupts that wait for the writes before them.", "protocol 4.4";
    "refused_completions", Quiet, "CQEs that the host refused and whose queue does not know it.", "protocol 4.4";
    "commands", Quiet, "Admin commands that were posted and are not answered.", "design decision 12";
    "read_slots", Unused, "READ slots of requesters, in the shares of queue pairs that are not in RESET.", "design decision 7";
    "destination_read_slots", Unused, "READ slots of responders, in the shares of queue pairs that are not in RESET.", "design decision 7";
}

/// Returns the index of the pool with this name.
///
/// # Panics
///
/// If no pool has this name; in a constant that is a compile error.
pub const fn pool(name: &str) -> usize {
    let mut index = 0;
    while index < POOLS.len() {
        if crate::field::same(POOLS[index].name, name) {
            return index;
        }
        index += 1;
    }
    panic!("no pool has this name")
}

// Registers are in ascending order, aligned, inside the BAR, and no two elements of register arrays share an offset.
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
    assert!(counter_offset(COUNTERS.len() - 1) + 8 <= POOL_BASE);
    assert!(pool_offset(POOLS.len() - 1) + 8 <= BAR0_BYTES);
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
        for (index, found) in COUNTERS.iter().enumerate() {
            assert_eq!(counter(found.name), index, "{} occurs twice", found.name);
        }
    }

    #[test]
    fn every_pool_has_a_name_of_its_own() {
        for (index, found) in POOLS.iter().enumerate() {
            assert_eq!(pool(found.name), index, "{} occurs twice", found.name);
        }
    }

    #[test]
    fn the_magic_reads_as_text_in_memory() {
        assert_eq!(Magic::at_reset().to_bytes().unwrap(), *b"rnic-hw!");
    }

    #[test]
    fn a_host_limit_lasts_as_long_as_asked_at_every_clock() {
        for (clock_khz, units) in [(50_000, 3125), (250_000, 15_625), (322_266, 20_142), (500_000, 31_250)] {
            assert_eq!(u64::from(HostLimit::at_reset_of(clock_khz).limit), units);
        }
        assert_eq!(HostLimit::at_reset(), HostLimit::at_reset_of(250_000));
        for nanoseconds in [1, 4095, 4096, 4097, 64_000_000, 268_431_360] {
            let units = HostLimit::units(nanoseconds, 250_000);
            assert!(HostLimit::nanoseconds(units, 250_000) >= nanoseconds);
            assert!(HostLimit::nanoseconds(units - 1, 250_000) < nanoseconds);
        }
        assert_eq!(HostLimit::units(268_431_360, 250_000), HostLimit::UNITS_MAX);
        assert_eq!(HostLimit::units(u64::MAX, u32::MAX), u64::MAX);
        assert_eq!(HostLimit::nanoseconds(1, 0), 1_024_000_000);
        let [none, least] = [0, 1].map(|limit| HostLimit { limit }.drain_units());
        assert_eq!((none, least), (65_599, 65));
    }

    #[test]
    fn a_register_at_reset_gives_its_reset_values() {
        let port = PortControl::at_reset();
        assert_eq!(port.active_mtu, crate::state::PathMtu::Bytes4096);
        assert_eq!(port.frame_bytes_max, 4224);
        assert_eq!(port.to_bytes().unwrap(), [0x50, 0, 0x80, 0x10, 0, 0, 0, 0]);
    }
}
