//! Registers of the packet path alone: those of BAR 0 that it needs.
//!
//! The registers of the whole card ([`rnic_control::registers`]) depend on its reset, its admin queue and its interrupts, which
//! this design does not have.
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
//! Latency: data is valid on `read_data` [`READ_CYCLES`] after `read`; a write takes effect in the next cycle.
//!
//! 1. Reading has no side effect, and never waits.
//! 2. Other registers read as zero and cannot be written; [`Features`] has only the packet path.
//! 3. `control.reset` and `counter_latch.latch` act when byte 7 is written, so two 32-bit writes, low then high, do what one
//!    64-bit write does.
//!
//! All offsets and reset values are those of [`rnic_layout::registers`].
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]
use rnic_blocks::stream::ValidRx;
use rnic_control::axi_lite::READ_CYCLES;
use rnic_control::frame_counters::FrameCounters;
use rnic_control::register_map::{ADDRESS_BITS, at, merge};
use rnic_control::register_value;
use rnic_kernel::prelude::*;
use rnic_layout::registers::{self as map, Features, Geometry, LayoutVersion};
use rnic_messages::drop_reason::REASON_BITS;
use rnic_messages::frame::Count;
use rnic_messages::frame::FrameOutcome;

/// Cycles for which a reset by software lasts: longer than the deepest pipeline of the card.
pub const RESET_CYCLES: u64 = 255;

const _: () = assert!(READ_CYCLES == 3, "the read path below has three registers");

/// Registers of a card that has a packet path and nothing else.
#[clocked(reset = "the reset of the whole card")]
#[derive(LogicBlock, Registers, Construct)]
#[new(
    /// Makes the registers of a card of this width and core clock.
    datapath_bits: u16,
    clock_khz: u32,
)]
pub struct PacketRegisters {
    /// From the slave: a write, one cycle.
    pub write: Signal<In, Bit>,
    /// Byte address of the write, a multiple of eight.
    pub write_address: Signal<In, Bits<ADDRESS_BITS>>,
    /// Data of the write.
    pub write_data: Signal<In, Bits<64>>,
    /// Bytes of `write_data` that are written.
    pub write_strobe: Signal<In, Bits<8>>,
    /// Byte address of the read, a multiple of eight; steady until the data is taken.
    pub read_address: Signal<In, Bits<ADDRESS_BITS>>,
    /// To the slave: data of the read, [`READ_CYCLES`] after its address; registered.
    pub read_data: Signal<Out, Bits<64>>,

    /// To all other parts: reset, from outside or by software; registered.
    pub core_reset: Signal<Out, Bit>,
    /// To the packet path: packets may come in; registered.
    pub enable: Signal<Out, Bit>,
    /// To the packet path: Ethernet address of the card; registered.
    pub own_mac: Signal<Out, Bits<48>>,
    /// To the packet path: frames to any unicast address are taken; registered.
    pub promiscuous: Signal<Out, Bit>,
    /// To the packet path: frames to any group address are taken; registered.
    pub accept_multicast: Signal<Out, Bit>,

    /// From the packet path: what became of a frame.
    pub outcome: ValidRx<FrameOutcome>,
    /// From the MAC's side: a frame has been sent.
    pub sent_frame: Signal<In, Bit>,
    /// Bytes that were sent in this cycle.
    pub sent_bytes: Signal<In, Bits<16>>,
    /// To all counters: copy the counts; registered, one cycle.
    pub counter_latch: Signal<Out, Bit>,
    /// To the counters of the packet path: number of the one that is read.
    pub counter_index: Signal<Out, Bits<REASON_BITS>>,
    /// From the counters of the packet path: its value, at most two cycles later.
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
    /// Cycles that a reset by software still lasts; zero at power-up.
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
        self.frames.outcome.value.next = self.outcome.value.val();
        self.frames.outcome.valid.next = self.outcome.valid.val() && !in_reset;
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
            block.outcome.valid.next = random.random();
            block.outcome.value.next = FrameOutcome {
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
