//! AXI4-Lite slave: the host's accesses, one read and one write at a time, as pulses on a register bus.
//!
//! The host bridge waits for every access to complete, and a whole machine can hang on one that does not. So this slave
//! answers after a fixed number of cycles, and waits for no other part.
//!
//! ```text
//!                ┌─────────────────────────────────────────┐
//!  awaddr, aw… ──┤ held address ┐                          │
//!                │              ├─ both here ─> write ─────┼─> write, write_address, write_data, write_strobe
//!  wdata, w… ────┤ held data ───┘        └─> bvalid        ├─> bvalid
//!  araddr, ar… ──┤ held address ──> read ──────────────────┼─> read, read_address
//!                │                   └─ READ_CYCLES later: │<── read_data
//!  rdata, rvalid <── held data <───────────────────────────┤
//!                └─────────────────────────────────────────┘
//! ```
//!
//! A read of 0x10, and a write to 0x08 whose data follows a cycle after its address:
//! ```text
#![doc = include_str!("waves/axi_lite.txt")]
//! ```
//!
//! Latency: a read is answered [`READ_CYCLES`] + 2 cycles after its address was taken, a write is answered two cycles
//! after the later of address and data. Throughput: one read and one write at a time, independently of each other.
//!
//! 1. Every access that was taken is answered in the time above, if the master takes responses.
//! 2. Address and data of a write may arrive in either order; each is held until the other one has arrived.
//! 3. A response is offered until the master has taken it.
//! 4. All outputs are registered, except `awready`, `wready` and `arready`, which are functions of registers.
//!
//! It refuses nothing: an address without a register reads as zero, and writing it does nothing (design decision 5).
//! The data width is 64 bits; AXI allows that for AXI4-Lite.
use rnic_kernel::prelude::*;

/// Cycles from a pulse of `read` to the data on `read_data`.
pub const READ_CYCLES: usize = 3;

/// Bits of the counter of these cycles.
const WAIT_BITS: usize = 2;
/// Its first value; it counts down to zero.
const WAIT_START: u64 = READ_CYCLES as u64 - 1;

/// The slave's end of AXI4-Lite, with addresses of `ADDRESS` bits, in bytes, and data of 64 bits.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
pub struct AxiLite<const ADDRESS: usize> {
    /// Byte address of a write; the low three bits are ignored, as the strobes select the bytes.
    pub awaddr: Signal<In, Bits<ADDRESS>>,
    /// `awaddr` is offered.
    pub awvalid: Signal<In, Bit>,
    /// `awaddr` is taken.
    pub awready: Signal<Out, Bit>,
    /// Data of a write.
    pub wdata: Signal<In, Bits<64>>,
    /// Bytes of `wdata` that are written.
    pub wstrb: Signal<In, Bits<8>>,
    /// `wdata` is offered.
    pub wvalid: Signal<In, Bit>,
    /// `wdata` is taken.
    pub wready: Signal<Out, Bit>,
    /// Response to a write: always OKAY.
    pub bresp: Signal<Out, Bits<2>>,
    /// A write is done; registered.
    pub bvalid: Signal<Out, Bit>,
    /// The master takes the response to a write.
    pub bready: Signal<In, Bit>,

    /// Byte address of a read; the low three bits are ignored.
    pub araddr: Signal<In, Bits<ADDRESS>>,
    /// `araddr` is offered.
    pub arvalid: Signal<In, Bit>,
    /// `araddr` is taken.
    pub arready: Signal<Out, Bit>,
    /// Data of a read; registered.
    pub rdata: Signal<Out, Bits<64>>,
    /// Response to a read: always OKAY.
    pub rresp: Signal<Out, Bits<2>>,
    /// A read is done; registered.
    pub rvalid: Signal<Out, Bit>,
    /// The master takes `rdata`.
    pub rready: Signal<In, Bit>,
}

/// An AXI4-Lite slave with addresses of `ADDRESS` bits, in bytes.
#[clocked(reset = "drops accesses in flight")]
#[derive(Default, LogicBlock, Registers)]
pub struct AxiLiteSlave<const ADDRESS: usize> {
    /// The bus.
    pub axi: AxiLite<ADDRESS>,

    /// To the registers: a write; registered, one cycle.
    pub write: Signal<Out, Bit>,
    /// Byte address of the write; registered, its low three bits zero.
    pub write_address: Signal<Out, Bits<ADDRESS>>,
    /// Data of the write; registered.
    pub write_data: Signal<Out, Bits<64>>,
    /// Bytes of `write_data` that are written; registered.
    pub write_strobe: Signal<Out, Bits<8>>,
    /// To the registers: a read begins; registered, one cycle.
    pub read: Signal<Out, Bit>,
    /// Byte address of the read; registered, its low three bits zero, and steady until the data is taken.
    pub read_address: Signal<Out, Bits<ADDRESS>>,
    /// From the registers: data of the read, [`READ_CYCLES`] after `read`.
    pub read_data: Signal<In, Bits<64>>,

    write_address_held: DFF<Bits<ADDRESS>>,
    has_write_address: Reg<Bit>,
    write_data_held: DFF<Bits<64>>,
    write_strobe_held: DFF<Bits<8>>,
    has_write_data: Reg<Bit>,
    writes: Reg<Bit>,
    is_written: Reg<Bit>,
    read_address_held: DFF<Bits<ADDRESS>>,
    reads: Reg<Bit>,
    is_reading: Reg<Bit>,
    countdown: DFF<Bits<WAIT_BITS>>,
    read_data_held: DFF<Bits<64>>,
    is_read: Reg<Bit>,
}

impl<const ADDRESS: usize> Logic for AxiLiteSlave<ADDRESS> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // Writes: address and data are taken independently.
        let has_address = self.has_write_address.q.val();
        let has_data = self.has_write_data.q.val();
        self.axi.awready.next = !has_address;
        self.axi.wready.next = !has_data;
        if !has_address {
            self.write_address_held.d.next = (self.axi.awaddr.val() >> 3) << 3;
            self.has_write_address.d.next = self.axi.awvalid.val();
        }
        if !has_data {
            self.write_data_held.d.next = self.axi.wdata.val();
            self.write_strobe_held.d.next = self.axi.wstrb.val();
            self.has_write_data.d.next = self.axi.wvalid.val();
        }
        // The pulse lasts one cycle; address and data are held until the response is taken.
        let is_written = self.is_written.q.val();
        self.writes.d.next = has_address && has_data && !self.writes.q.val() && !is_written;
        if self.writes.q.val() {
            self.is_written.d.next = true;
        }
        if is_written && self.axi.bready.val() {
            self.is_written.d.next = false;
            self.has_write_address.d.next = false;
            self.has_write_data.d.next = false;
        }
        self.axi.bvalid.next = is_written;
        self.axi.bresp.next = bits(0);
        self.write.next = self.writes.q.val();
        self.write_address.next = self.write_address_held.q.val();
        self.write_data.next = self.write_data_held.q.val();
        self.write_strobe.next = self.write_strobe_held.q.val();

        // Reads: one at a time, answered after a count of cycles.
        let is_reading = self.is_reading.q.val();
        let is_read = self.is_read.q.val();
        let takes_read = self.axi.arvalid.val() && !is_reading && !is_read;
        self.axi.arready.next = !is_reading && !is_read;
        self.reads.d.next = takes_read;
        if takes_read {
            self.read_address_held.d.next = (self.axi.araddr.val() >> 3) << 3;
            self.is_reading.d.next = true;
        }
        if self.reads.q.val() {
            self.countdown.d.next = bits(WAIT_START);
        } else if is_reading {
            self.countdown.d.next = self.countdown.q.val() - 1;
            if self.countdown.q.val() == 0 {
                self.read_data_held.d.next = self.read_data.val();
                self.is_reading.d.next = false;
                self.is_read.d.next = true;
            }
        }
        if is_read && self.axi.rready.val() {
            self.is_read.d.next = false;
        }
        self.axi.rvalid.next = is_read;
        self.axi.rdata.next = self.read_data_held.q.val();
        self.axi.rresp.next = bits(0);
        self.read.next = self.reads.q.val();
        self.read_address.next = self.read_address_held.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Waves, random};
    use std::collections::{BTreeMap, VecDeque};

    type Slave = AxiLiteSlave<8>;

    fn bench() -> Bench<Slave> {
        Bench::clocked(Slave::default(), |block| &mut block.clock)
    }

    /// The bits that a strobe lets through.
    fn mask(strobe: u64) -> u64 {
        (0..8).filter(|byte| strobe >> byte & 1 == 1).fold(0, |mask, byte| mask | 0xff << (8 * byte))
    }

    /// The registers: they answer a read as late as they may.
    #[derive(Default)]
    struct Registers {
        values: BTreeMap<u64, u64>,
        answers: VecDeque<(usize, u64)>,
    }

    impl Registers {
        /// Drives the answer that is due in this cycle; before and after, the data is anything.
        fn drive(&mut self, slave: &mut Slave) {
            for answer in &mut self.answers {
                answer.0 -= 1;
            }
            let due = self.answers.pop_front_if(|answer| answer.0 == 0);
            slave.read_data.next = bits(due.map_or(0xdead_dead_dead_dead, |answer| answer.1));
        }

        /// Looks at the bus in a settled cycle.
        fn sample(&mut self, slave: &Slave) {
            if slave.write.val() {
                let mask = mask(slave.write_strobe.val().to_u64());
                let value = self.values.entry(slave.write_address.val().to_u64()).or_default();
                *value = *value & !mask | slave.write_data.val().to_u64() & mask;
            }
            if slave.read.val() {
                let value = self.values.get(&slave.read_address.val().to_u64()).copied().unwrap_or(0);
                self.answers.push_back((READ_CYCLES, value));
            }
        }
    }

    #[test]
    fn random_accesses_do_what_a_memory_does() {
        let mut random = random();
        let mut bench = bench().in_lock_step();
        let mut registers = Registers::default();
        let mut expected = BTreeMap::<u64, u64>::new();
        let (mut address, mut data) = (None::<u64>, None::<(u64, u64)>);
        let (mut writes_done, mut reads_done) = (0, 0);
        let mut pending_write = (None, None);
        let mut reading = None::<u64>;
        let mut waited = 0;
        for _ in 0..4000 {
            // What is read while it is written may be old or new, so reads and writes take turns here. Offers stay until
            // they are taken.
            let writes = pending_write != (None, None) || address.is_some() || data.is_some();
            let offers_read = reading.is_none() && !writes && random.random_bool(0.5);
            if reading.is_none() && !writes && !offers_read && random.random_bool(0.5) {
                address = Some(random.random_range(0..256));
                data = Some((random.random(), random.random_range(0..256)));
            }
            let offers_address = address.is_some() && random.random_bool(0.7);
            let offers_data = data.is_some() && random.random_bool(0.7);
            let read_address = random.random_range(0..256);
            let block = &mut bench.block;
            block.axi.awvalid.next = offers_address;
            block.axi.awaddr.next = bits(address.unwrap_or(0x55));
            block.axi.wvalid.next = offers_data;
            block.axi.wdata.next = bits(data.map_or(0, |data| data.0));
            block.axi.wstrb.next = bits(data.map_or(0, |data| data.1));
            block.axi.arvalid.next = offers_read;
            block.axi.araddr.next = bits(read_address);
            block.axi.bready.next = random.random();
            block.axi.rready.next = random.random();
            registers.drive(block);
            bench.settle();
            let block = &mut bench.block;
            if offers_address && block.axi.awready.val() {
                pending_write.0 = address.take();
            }
            if offers_data && block.axi.wready.val() {
                pending_write.1 = data.take();
            }
            if block.axi.bvalid.val() && block.axi.bready.val() {
                let (Some(address), Some((value, strobe))) = std::mem::take(&mut pending_write) else {
                    panic!("a write is answered before it was complete");
                };
                let mask = mask(strobe);
                let old = expected.entry(address & !7).or_default();
                *old = *old & !mask | value & mask;
                writes_done += 1;
            }
            if offers_read && block.axi.arready.val() {
                reading = Some(read_address & !7);
                waited = 0;
            } else if let Some(address) = reading {
                waited += 1;
                assert!(waited <= READ_CYCLES + 2 || block.axi.rvalid.val(), "a read is answered in time");
                if block.axi.rvalid.val() && block.axi.rready.val() {
                    assert_eq!(block.axi.rdata.val().to_u64(), expected.get(&address).copied().unwrap_or(0));
                    reading = None;
                    reads_done += 1;
                }
            }
            registers.sample(&bench.block);
            bench.tick();
        }
        assert!(writes_done > 100 && reads_done > 100, "{writes_done} writes, {reads_done} reads");
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new()
            .signal("axi_awvalid")
            .signal("axi_awready")
            .signal("axi_wvalid")
            .signal("axi_wready")
            .signal("write");
        let waves = waves
            .signal("write_address")
            .when("write")
            .signal("axi_bvalid")
            .signal("axi_arvalid")
            .signal("axi_arready");
        let waves = waves
            .signal("read")
            .signal("read_address")
            .when("read")
            .signal("axi_rvalid")
            .signal("axi_rdata")
            .when("axi_rvalid");
        let mut bench = bench().recording(waves);
        let mut registers = Registers::default();
        registers.values.insert(0x10, 0xabc);
        for cycle in 0..10 {
            bench.block.axi.awvalid.next = cycle == 1;
            bench.block.axi.awaddr.next = bits(0x08);
            bench.block.axi.wvalid.next = cycle == 2;
            bench.block.axi.wdata.next = bits(7);
            bench.block.axi.wstrb.next = bits(0xff);
            bench.block.axi.bready.next = true;
            bench.block.axi.arvalid.next = cycle == 1;
            bench.block.axi.araddr.next = bits(0x10);
            bench.block.axi.rready.next = true;
            registers.drive(&mut bench.block);
            bench.settle();
            registers.sample(&bench.block);
            bench.tick();
        }
        assert_eq!(registers.values.get(&0x08), Some(&7));
        bench.waves().expect("waves/axi_lite.txt");
    }
}
