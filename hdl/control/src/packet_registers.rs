//! The registers of BAR 0, as far as the packet path has a use for them.
//!
//! ```text
//!              ┌──────────────────────────────────────────────┐
//!  write bus ──┼─> control, scratch, own_mac, port_control ───┼─> to the packet path
//!              │        │ reset                               │
//!              │        └─> counts RESET_CYCLES ──────────────┼─> core_reset
//!  read bus ───┼─> select ──> held ──> select ──> read_data   │
//!              │                          ^                   │
//!  counters ───┼──────────────────────────┘                   │
//!              └──────────────────────────────────────────────┘
//! ```
//!
//! Latency: data stands on `read_data` [`READ_CYCLES`] after `read`; a write takes effect in the next cycle.
//!
//! 1. Reading has no side effect, and never waits.
//! 2. Registers that this card has no use for read as zero and cannot be written; [`Features`] says so.
//! 3. `control.reset` and `counter_latch.latch` act when byte 7 is written, so two 32-bit writes, low then high, do what one
//!    64-bit write does.
//!
//! All offsets and reset values are those of [`rnic_layout::registers`].
use crate::axi_lite::READ_CYCLES;
use crate::frame_counters::FrameCounters;
use rnic_kernel::prelude::*;
use rnic_layout::registers::{self as map, Features, Geometry, LayoutVersion};
use rnic_messages::drop_reason::REASON_BITS;
use rnic_messages::frame::Count;
use rnic_messages::frame::FrameOutcome;

/// Bits of a byte address in BAR 0.
pub const ADDRESS_BITS: usize = map::BAR0_BYTES.trailing_zeros() as usize;
/// Cycles for which a reset by software lasts: longer than the deepest pipeline of the card.
pub const RESET_CYCLES: u64 = 255;

const _: () = assert!(READ_CYCLES == 3, "the read path below has three registers");

/// Offsets, in the form in which kernels can match them.
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
    /// Register `control`.
    pub const CONTROL: u64 = map::REG_CONTROL.offset as u64;
    /// Register `status`.
    pub const STATUS: u64 = map::REG_STATUS.offset as u64;
    /// Register `fatal`.
    pub const FATAL: u64 = map::REG_FATAL.offset as u64;
    /// Register `scratch`.
    pub const SCRATCH: u64 = map::REG_SCRATCH.offset as u64;
    /// Register `own_mac`.
    pub const OWN_MAC: u64 = map::REG_OWN_MAC.offset as u64;
    /// Register `port_control`.
    pub const PORT_CONTROL: u64 = map::REG_PORT_CONTROL.offset as u64;
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
    /// Counters of drops, in the order of their reasons, end here.
    pub const DROPS_END: u64 = map::counter_offset(map::DROP_COUNTERS) as u64 - 1;
    /// Packets handed to the responder.
    pub const REQUESTS_RECEIVED: u64 = counter("requests_received");
    /// Packets handed to the requester.
    pub const RESPONSES_RECEIVED: u64 = counter("responses_received");
    /// Congestion notifications.
    pub const CONGESTION_RECEIVED: u64 = counter("congestion_notifications_received");
    /// Frames from the MAC.
    pub const FRAMES_RECEIVED: u64 = counter("frames_received");
    /// Their bytes.
    pub const BYTES_RECEIVED: u64 = counter("bytes_received");
    /// Frames to the MAC.
    pub const FRAMES_SENT: u64 = counter("frames_sent");
    /// Their bytes.
    pub const BYTES_SENT: u64 = counter("bytes_sent");

    /// The offset of a counter.
    pub const fn counter(name: &str) -> u64 {
        map::counter_offset(map::counter(name)) as u64
    }
}

/// Writes the strobed bytes of a register.
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

/// A register's value, from its table.
#[macro_export]
macro_rules! register_value {
    ($record:expr) => {{
        let bytes = $record.to_bytes().expect("the value fits its fields");
        u64::from_le_bytes(bytes.try_into().expect("a register has eight bytes"))
    }};
}

/// Registers of a card that has a packet path and nothing else.
#[derive(LogicBlock, Registers, Construct)]
#[new(
    /// Makes the registers of a card of this width and core clock.
    datapath_bits: u16,
    clock_khz: u32,
)]
pub struct PacketRegisters {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high: the reset of the whole card.
    pub reset: Signal<In, Bit>,

    /// From the slave: write now.
    pub write: Signal<In, Bit>,
    /// Byte address, a multiple of eight.
    pub write_address: Signal<In, Bits<ADDRESS_BITS>>,
    /// What.
    pub write_data: Signal<In, Bits<64>>,
    /// Which bytes of it.
    pub write_strobe: Signal<In, Bits<8>>,
    /// Byte address, a multiple of eight; steady until the data is taken.
    pub read_address: Signal<In, Bits<ADDRESS_BITS>>,
    /// To the slave, [`READ_CYCLES`] after the address; registered.
    pub read_data: Signal<Out, Bits<64>>,

    /// To all else: reset, from outside or by software; registered.
    pub core_reset: Signal<Out, Bit>,
    /// To the packet path: packets may come in; registered.
    pub enable: Signal<Out, Bit>,
    /// To the packet path: the card's own address; registered.
    pub own_mac: Signal<Out, Bits<48>>,
    /// To the packet path: take any unicast address; registered.
    pub promiscuous: Signal<Out, Bit>,
    /// To the packet path: take the addresses of IP groups; registered.
    pub accept_multicast: Signal<Out, Bit>,

    /// From the packet path: what became of a frame.
    pub outcome: Signal<In, FrameOutcome>,
    /// There was one.
    pub outcome_valid: Signal<In, Bit>,
    /// From the MAC's side: a frame has been sent.
    pub sent_frame: Signal<In, Bit>,
    /// Bytes that were sent in this cycle.
    pub sent_bytes: Signal<In, Bits<16>>,
    /// To all counters: hold this moment; registered, one cycle.
    pub counter_latch: Signal<Out, Bit>,
    /// To the packet path's counters: which one is read.
    pub counter_index: Signal<Out, Bits<REASON_BITS>>,
    /// From them, at most two cycles later.
    pub counter: Signal<In, Count>,

    #[init(Constant::new(register_value!(LayoutVersion::at_reset()).to_bits()))]
    layout_version: Constant<Bits<64>>,
    #[init(Constant::new(features().to_bits()))]
    features: Constant<Bits<64>>,
    #[init(Constant::new(geometry(datapath_bits, clock_khz).to_bits()))]
    geometry: Constant<Bits<64>>,
    #[init(Constant::new(port_control().to_bits()))]
    port_control_at_reset: Constant<Bits<64>>,
    frames: FrameCounters,
    /// Cycles that a reset by software still lasts; from power-up on none.
    resetting: Reg<Bits<8>>,
    in_reset: Reg<Bit>,
    control: Reg<Bits<64>>,
    scratch: Reg<Bits<64>>,
    own_mac_register: Reg<Bits<64>>,
    #[init(Reg::new(port_control().to_bits()))]
    port_control: Reg<Bits<64>>,
    latch_requested: Reg<Bit>,
    latches: Reg<Bit>,
    selected: DFF<Bits<64>>,
    answer: DFF<Bits<64>>,
}

fn features() -> u64 {
    register_value!(Features { packet_path: true, ..Features::at_reset() })
}

fn geometry(datapath_bits: u16, clock_khz: u32) -> u64 {
    register_value!(Geometry { datapath_bits, clock_khz, ..Geometry::at_reset() })
}

fn port_control() -> u64 {
    register_value!(map::PortControl::at_reset())
}

/// Bits of `control` that are kept: `enable` and `quiesce`; `reset` acts and reads as zero.
const CONTROL_KEPT: u64 = 0b101;
/// The flags of `port_control` that software may change; its other fields are fixed in this card.
const PORT_CONTROL_KEPT: u64 = 0b11;
const MAC_KEPT: u64 = (1 << 48) - 1;

impl Logic for PacketRegisters {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let in_reset = self.in_reset.q.val();
        self.core_reset.next = in_reset;

        // Writing.
        let data = self.write_data.val();
        let strobe = self.write_strobe.val();
        let control = merge(self.control.q.val(), data, strobe);
        let latch = merge(bit_cast::<64, 1>(cat!(self.latch_requested.q.val())), data, strobe);
        let acts = strobe.get_bit(7);
        self.latches.d.next = false;
        if self.write.val() {
            match self.write_address.val().to_u64() {
                at::CONTROL => {
                    self.control.d.next = control;
                    if acts {
                        self.control.d.next = control & CONTROL_KEPT;
                        if control.get_bit(1) {
                            self.resetting.d.next = bits(RESET_CYCLES);
                        }
                    }
                }
                at::SCRATCH => self.scratch.d.next = merge(self.scratch.q.val(), data, strobe),
                at::OWN_MAC => {
                    self.own_mac_register.d.next =
                        merge(self.own_mac_register.q.val(), data, strobe) & MAC_KEPT;
                }
                at::PORT_CONTROL => {
                    let flags = merge(self.port_control.q.val(), data, strobe) & PORT_CONTROL_KEPT;
                    self.port_control.d.next =
                        (self.port_control_at_reset.val() & !bits::<64>(PORT_CONTROL_KEPT)) | flags;
                }
                at::COUNTER_LATCH => {
                    self.latch_requested.d.next = latch.get_bit(0) && !acts;
                    self.latches.d.next = latch.get_bit(0) && acts;
                }
                _ => {}
            }
        }
        self.enable.next = self.control.q.val().get_bit(0) && !self.control.q.val().get_bit(2);
        self.own_mac.next = self.own_mac_register.q.val().get_bits::<48>(0);
        self.promiscuous.next = self.port_control.q.val().get_bit(0);
        self.accept_multicast.next = self.port_control.q.val().get_bit(1);

        // A reset by software runs for its time and takes the registers with it.
        let is_resetting = self.resetting.q.val().any();
        self.in_reset.d.next = is_resetting;
        if is_resetting {
            self.resetting.d.next = self.resetting.q.val() - 1;
            self.control.d.next = bits(0);
            self.scratch.d.next = bits(0);
            self.own_mac_register.d.next = bits(0);
            self.port_control.d.next = self.port_control_at_reset.val();
            self.latch_requested.d.next = false;
        }

        // Counting.
        self.counter_latch.next = self.latches.q.val();
        // An outcome that a reset takes from the packet path's counters does not count here either.
        self.frames.outcome.next = self.outcome.val();
        self.frames.outcome_valid.next = self.outcome_valid.val() && !in_reset;
        self.frames.sent_frame.next = self.sent_frame.val();
        self.frames.sent_bytes.next = self.sent_bytes.val();
        self.frames.latch.next = self.latches.q.val();

        // Reading: first everything that is a register, then the counters in memory.
        let address = self.read_address.val();
        self.frames.read_address.next = address;
        self.counter_index.next = self.frames.counter_index.val();
        self.frames.counter.next = self.counter.val();
        let status_resetting = cat!(!is_resetting, is_resetting, !is_resetting);
        self.selected.d.next = bits(0);
        match address.to_u64() {
            at::MAGIC => self.selected.d.next = bits(map::MAGIC),
            at::LAYOUT_VERSION => self.selected.d.next = self.layout_version.val(),
            at::FEATURES => self.selected.d.next = self.features.val(),
            at::GEOMETRY => self.selected.d.next = self.geometry.val(),
            at::CONTROL => self.selected.d.next = self.control.q.val(),
            at::STATUS => self.selected.d.next = bit_cast::<64, 3>(status_resetting),
            at::SCRATCH => self.selected.d.next = self.scratch.q.val(),
            at::OWN_MAC => self.selected.d.next = self.own_mac_register.q.val(),
            at::PORT_CONTROL => self.selected.d.next = self.port_control.q.val(),
            _ => {}
        }
        self.answer.d.next =
            select(self.frames.is_counter.val(), self.frames.value.val(), self.selected.q.val());
        self.read_data.next = self.answer.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, Stimulus, random};

    fn bench() -> Bench<PacketRegisters> {
        Bench::clocked(PacketRegisters::new(512, 250_000), |block| &mut block.clock)
    }

    fn write(bench: &mut Bench<PacketRegisters>, address: u64, data: u64, strobe: u64) {
        bench.block.write.next = true;
        bench.block.write_address.next = bits(address);
        bench.block.write_data.next = bits(data);
        bench.block.write_strobe.next = bits(strobe);
        bench.tick();
        bench.block.write.next = false;
    }

    fn read(bench: &mut Bench<PacketRegisters>, address: u64) -> u64 {
        bench.block.read_address.next = bits(address);
        for _ in 0..READ_CYCLES {
            bench.tick();
        }
        bench.settle();
        bench.block.read_data.val().to_u64()
    }

    #[test]
    fn the_card_says_what_it_is() {
        let mut bench = bench();
        assert_eq!(read(&mut bench, at::MAGIC), map::MAGIC);
        assert_eq!(read(&mut bench, at::LAYOUT_VERSION), map::LAYOUT_MAJOR << 16 | map::LAYOUT_MINOR);
        assert_eq!(read(&mut bench, at::FEATURES), 1);
        assert_eq!(read(&mut bench, at::GEOMETRY), 250_000 << 32 | 512);
    }

    #[test]
    fn bytes_are_written_one_by_one_and_reserved_bits_stay_zero() {
        let mut bench = bench();
        for byte in 0..8 {
            write(&mut bench, at::OWN_MAC, u64::MAX, 1 << byte);
            let expected = MAC_KEPT & (u64::MAX >> (56 - 8 * byte));
            assert_eq!(read(&mut bench, at::OWN_MAC), expected);
        }
        write(&mut bench, at::PORT_CONTROL, u64::MAX, 0xff);
        assert_eq!(read(&mut bench, at::PORT_CONTROL), 4224 << 16 | 5 << 4 | 3);
    }

    #[test]
    fn random_accesses_are_the_same_in_rust_and_verilog() {
        let mut random = random();
        let mut bench = bench().in_lock_step();
        let addresses = [
            at::MAGIC,
            at::CONTROL,
            at::STATUS,
            at::SCRATCH,
            at::OWN_MAC,
            at::PORT_CONTROL,
            at::COUNTER_LATCH,
        ];
        let counters =
            [at::COUNTERS, at::DROPS_END - 7, at::REQUESTS_RECEIVED, at::FRAMES_SENT, 0x3ff8, 0x88];
        for _ in 0..1500 {
            let block = &mut bench.block;
            let pool: &[u64] = if random.random() { &addresses } else { &counters };
            let address = *pool.choose(&mut random).expect("the pool is not empty");
            block.write.next = random.random_bool(0.3);
            block.write_address.next = bits(address);
            block.write_data.next = Stimulus::sample(&mut random);
            block.write_strobe.next = Stimulus::sample(&mut random);
            block.read_address.next = bits(address);
            block.outcome_valid.next = random.random();
            block.outcome.next = FrameOutcome {
                number: Stimulus::sample(&mut random),
                frame_bytes: Stimulus::sample(&mut random),
            };
            block.sent_frame.next = random.random();
            block.sent_bytes.next = Stimulus::sample(&mut random);
            block.counter.next =
                Count { frames: Stimulus::sample(&mut random), bytes: Stimulus::sample(&mut random) };
            bench.tick();
        }
    }
}
