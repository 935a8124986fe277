//! The register map of BAR 0, as the kernels of this crate use it.
use rnic_kernel::prelude::*;
use rnic_layout::registers as map;

/// Bits of a byte address in BAR 0.
pub const ADDRESS_BITS: usize = map::BAR0_BYTES.trailing_zeros() as usize;

/// Offsets of registers, in the form in which kernels can match them.
pub mod at {
    use rnic_layout::registers as map;

    /// Register `magic`.
    pub const MAGIC: u64 = map::REG_MAGIC.offset as u64;
    /// Register `layout_version`.
    pub const LAYOUT_VERSION: u64 = map::REG_LAYOUT_VERSION.offset as u64;
    /// Register `features`.
    pub const FEATURES: u64 = map::REG_FEATURES.offset as u64;
    /// Register `geometry`.
    pub const GEOMETRY: u64 = map::REG_GEOMETRY.offset as u64;
    /// Register `table_sizes`.
    pub const TABLE_SIZES: u64 = map::REG_TABLE_SIZES.offset as u64;
    /// Register `queue_limits`.
    pub const QUEUE_LIMITS: u64 = map::REG_QUEUE_LIMITS.offset as u64;
    /// Register `message_limit`.
    pub const MESSAGE_LIMIT: u64 = map::REG_MESSAGE_LIMIT.offset as u64;
    /// Register `memory_limits`.
    pub const MEMORY_LIMITS: u64 = map::REG_MEMORY_LIMITS.offset as u64;
    /// Register `control`.
    pub const CONTROL: u64 = map::REG_CONTROL.offset as u64;
    /// Register `status`.
    pub const STATUS: u64 = map::REG_STATUS.offset as u64;
    /// Register `fatal`.
    pub const FATAL: u64 = map::REG_FATAL.offset as u64;
    /// Register `scratch`.
    pub const SCRATCH: u64 = map::REG_SCRATCH.offset as u64;
    /// Register `host_limit`.
    pub const HOST_LIMIT: u64 = map::REG_HOST_LIMIT.offset as u64;
    /// Register `timer_unit`.
    pub const TIMER_UNIT: u64 = map::REG_TIMER_UNIT.offset as u64;
    /// Register `own_mac`.
    pub const OWN_MAC: u64 = map::REG_OWN_MAC.offset as u64;
    /// Register `port_control`.
    pub const PORT_CONTROL: u64 = map::REG_PORT_CONTROL.offset as u64;
    /// Register `permanent_mac`.
    pub const PERMANENT_MAC: u64 = map::REG_PERMANENT_MAC.offset as u64;
    /// Register `port_speed`.
    pub const PORT_SPEED: u64 = map::REG_PORT_SPEED.offset as u64;
    /// Register `admin_command_base`.
    pub const ADMIN_COMMAND_BASE: u64 = map::REG_ADMIN_COMMAND_BASE.offset as u64;
    /// Register `admin_answer_base`.
    pub const ADMIN_ANSWER_BASE: u64 = map::REG_ADMIN_ANSWER_BASE.offset as u64;
    /// Register `admin_control`.
    pub const ADMIN_CONTROL: u64 = map::REG_ADMIN_CONTROL.offset as u64;
    /// Register `admin_doorbell`.
    pub const ADMIN_DOORBELL: u64 = map::REG_ADMIN_DOORBELL.offset as u64;
    /// Register `admin_progress`.
    pub const ADMIN_PROGRESS: u64 = map::REG_ADMIN_PROGRESS.offset as u64;
    /// Register `event_queue_base`.
    pub const EVENT_QUEUE_BASE: u64 = map::REG_EVENT_QUEUE_BASE.offset as u64;
    /// Register `event_queue_control`.
    pub const EVENT_QUEUE_CONTROL: u64 = map::REG_EVENT_QUEUE_CONTROL.offset as u64;
    /// Register `interrupt_pending`.
    pub const INTERRUPT_PENDING: u64 = map::REG_INTERRUPT_PENDING.offset as u64;
    /// Register `interrupt_mask`.
    pub const INTERRUPT_MASK: u64 = map::REG_INTERRUPT_MASK.offset as u64;
    /// Register `counter_latch`.
    pub const COUNTER_LATCH: u64 = map::REG_COUNTER_LATCH.offset as u64;

    /// First counter.
    pub const COUNTERS: u64 = map::COUNTER_BASE as u64;
    /// Last byte of the counters of drops, in the order of their reasons.
    pub const DROPS_END: u64 = map::counter_offset(map::DROP_COUNTERS) as u64 - 1;
    /// Counter of packets that the responder was given.
    pub const REQUESTS_RECEIVED: u64 = counter("requests_received");
    /// Counter of packets that the requester was given.
    pub const RESPONSES_RECEIVED: u64 = counter("responses_received");
    /// Counter of congestion notifications.
    pub const CONGESTION_RECEIVED: u64 = counter("congestion_notifications_received");
    /// Counter of frames from the MAC.
    pub const FRAMES_RECEIVED: u64 = counter("frames_received");
    /// Counter of bytes from the MAC.
    pub const BYTES_RECEIVED: u64 = counter("bytes_received");
    /// Counter of frames to the MAC.
    pub const FRAMES_SENT: u64 = counter("frames_sent");
    /// Counter of bytes to the MAC.
    pub const BYTES_SENT: u64 = counter("bytes_sent");

    /// Gives the offset of a counter.
    pub const fn counter(name: &str) -> u64 {
        map::counter_offset(map::counter(name)) as u64
    }
}

/// Gives a register after a write of the bytes that the strobe selects.
#[kernel]
pub fn merge(old: Bits<64>, new: Bits<64>, strobe: Bits<8>) -> Bits<64> {
    let byte_7 = select(strobe.get_bit(7), new.get_bits::<8>(56), old.get_bits::<8>(56));
    let byte_6 = select(strobe.get_bit(6), new.get_bits::<8>(48), old.get_bits::<8>(48));
    let byte_5 = select(strobe.get_bit(5), new.get_bits::<8>(40), old.get_bits::<8>(40));
    let byte_4 = select(strobe.get_bit(4), new.get_bits::<8>(32), old.get_bits::<8>(32));
    let byte_3 = select(strobe.get_bit(3), new.get_bits::<8>(24), old.get_bits::<8>(24));
    let byte_2 = select(strobe.get_bit(2), new.get_bits::<8>(16), old.get_bits::<8>(16));
    let byte_1 = select(strobe.get_bit(1), new.get_bits::<8>(8), old.get_bits::<8>(8));
    let byte_0 = select(strobe.get_bit(0), new.get_bits::<8>(0), old.get_bits::<8>(0));
    cat!(byte_7, byte_6, byte_5, byte_4, byte_3, byte_2, byte_1, byte_0)
}

/// Gives the value of a register from a value of its record.
#[macro_export]
macro_rules! register_value {
    ($record:expr) => {{
        let bytes = $record.to_bytes().expect("the value fits its fields");
        u64::from_le_bytes(bytes.try_into().expect("a register has eight bytes"))
    }};
}
