//! Translate: makes device addresses of addresses in pages, for accesses that are already split at page boundaries.
//!
//! A region whose memory is scattered has its pages one after the other in a table. To all other stages it is contiguous:
//! they use an address that holds the size of its pages, and the distance of a byte from the beginning of entry 0.
//!
//! ```text
//!  63      62..58            57..44   43..0
//!  paged   log2(page) - 12   0        entry of the page, then offset in the page
//!
//!                     ┌─────────────────────────────────────────────────────────┐
//!  page_write ───────>│ table (16,384 pages) ─────────────┐                     │
//!                     │   ^                               v                     │
//!  rx (address) ─────>│ shift ──> entry ──> read ──> page | offset in it ───────┼──> tx (device address)
//!                     └─────────────────────────────────────────────────────────┘
//! ```
//!
//! Latency 3 cycles, one access a cycle. Reads and writes have a block each, with a table of its own: so neither waits for the
//! other nor for commands, and they may be placed far apart.
//!
//! 1. Accesses leave in order, each with its `rest`. Pages have at least 4,096 bytes, so the low 12 bits of an address stay, and with
//!    them the boundaries at which accesses were split.
//! 2. An address that is not in pages leaves unchanged, and so does that of a client whose addresses never are.
//! 3. An access sees the table as it is when it enters. Entries change only while no region uses them.
//!
//! An access crosses no multiple of 4,096 bytes. Design 3.2.
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::protect::{IS_PAGED, PAGE_SIZE, PAGE_SIZE_BITS, PAGED_BITS, PageEntryWrite};
use rnic_messages::sizes::{PAGE_ENTRY_BITS, PAGE_NUMBER_BITS, sizes};

/// Bits of an address in the smallest page.
const SMALLEST: usize = 64 - PAGE_NUMBER_BITS;
/// Bits of an address in pages from which the entry is taken.
const SHIFTED_BITS: usize = PAGED_BITS - SMALLEST;
/// Bits that a larger page adds to the offset in a page.
const LARGER_BITS: usize = SHIFTED_BITS - PAGE_ENTRY_BITS;
/// Bits of a page's number above any offset in a page.
const UPPER_BITS: usize = PAGE_NUMBER_BITS - LARGER_BITS;

/// A read or a write to be translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Access<const REST: usize> {
    /// Address of the first byte.
    pub address: Bits<64>,
    /// The client accesses memory regions, so the address may be in pages.
    pub is_payload: Bit,
    /// Passes through unchanged.
    pub rest: Bits<REST>,
}

/// An access whose page is being looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct InTable<const REST: usize> {
    address: Bits<64>,
    is_paged: Bit,
    /// Ones where a page is larger than the smallest.
    inside: Bits<LARGER_BITS>,
    rest: Bits<REST>,
}

/// Translates addresses in paged regions to device addresses.
#[clocked(reset = "forgets accesses, and keeps the table")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Translate<const REST: usize> {
    /// From control: a page table entry.
    pub page_write: ValidRx<PageEntryWrite>,
    /// Accesses; `ready` is combinational.
    pub rx: StreamRx<Access<REST>>,
    /// The same with device addresses; registered.
    pub tx: StreamTx<Access<REST>>,

    #[init(Memory::new(Storage::Ultra).with_words_log2(sizes().page_entries))]
    pages: Memory<Bits<PAGE_NUMBER_BITS>, PAGE_ENTRY_BITS>,
    entry: DFF<Bits<PAGE_ENTRY_BITS>>,
    waiting: [DFF<InTable<REST>>; 2],
    result: DFF<Access<REST>>,
    /// Stages that hold an access, the first in bit 0.
    occupied: Reg<Bits<3>>,
}

/// Finds the page table entry of an address, of which `linear` are the bits above the smallest page.
#[kernel]
fn entry_of(linear: Bits<SHIFTED_BITS>, size: Bits<PAGE_SIZE_BITS>) -> Bits<PAGE_ENTRY_BITS> {
    let by_ones = match size.get_bits::<2>(0).to_u64() {
        0 => linear,
        1 => linear >> 1,
        2 => linear >> 2,
        _ => linear >> 3,
    };
    let by_fours = match size.get_bits::<2>(2).to_u64() {
        0 => by_ones,
        1 => by_ones >> 4,
        2 => by_ones >> 8,
        _ => by_ones >> 12,
    };
    let shifted = if size.get_bit(4) { by_fours >> 16 } else { by_fours };
    shifted.get_bits::<PAGE_ENTRY_BITS>(0)
}

impl<const REST: usize> Logic for Translate<REST> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let write = self.page_write.value.val();
        self.pages.write(self.page_write.valid.val(), write.entry, write.page);

        // The stages move together.
        let occupied = self.occupied.q.val();
        let moves = !occupied.get_bit(2) || self.tx.ready.val();
        self.rx.ready.next = moves;
        let access = self.rx.beat.val();
        let size = access.address.get_bits::<PAGE_SIZE_BITS>(PAGE_SIZE);
        self.pages.read(moves, self.entry.q.val());
        let found = self.waiting[1].q.val();
        let page = self.pages.read_data.val();
        let inside = found.address.get_bits::<LARGER_BITS>(SMALLEST) & found.inside;
        let paged: Bits<64> = cat!(
            page.get_bits::<UPPER_BITS>(LARGER_BITS),
            page.get_bits::<LARGER_BITS>(0) | inside,
            found.address.get_bits::<SMALLEST>(0)
        );
        if moves {
            self.occupied.d.next = cat!(occupied.get_bits::<2>(0), self.rx.valid.val());
            self.entry.d.next = entry_of(access.address.get_bits::<SHIFTED_BITS>(SMALLEST), size);
            self.waiting[0].d.next = InTable::<REST> {
                address: access.address,
                is_paged: access.is_payload && access.address.get_bit(IS_PAGED),
                inside: !(!bits::<LARGER_BITS>(0) << size),
                rest: access.rest,
            };
            self.waiting[1].d.next = self.waiting[0].q.val();
            self.result.d.next = Access::<REST> {
                address: select(found.is_paged, paged, found.address),
                is_payload: found.is_paged,
                rest: found.rest,
            };
        }
        self.tx.offer(occupied.get_bit(2), self.result.q.val());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::generates;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, random};
    use std::collections::BTreeMap;

    type Block = Translate<12>;

    /// An address in pages: entry, log2 of the page, offset in it.
    fn paged(entry: u64, log2: u64, place: u64) -> u64 {
        1 << 63 | (log2 - 12) << 58 | entry << log2 | place
    }

    /// A page of a size, anywhere.
    fn page(log2: u64, random: &mut Random) -> u64 {
        random.random::<u64>() >> log2 << log2
    }

    /// Accesses to regions of all sizes of pages, each of which uses its own entries, and to contiguous memory.
    fn accesses(
        table: &mut BTreeMap<u64, u64>,
        count: usize,
        random: &mut Random,
    ) -> (Vec<Access<12>>, Vec<u64>) {
        let sizes: Vec<(u64, u64)> = (12..=30).map(|log2| ((log2 - 12) * 800, log2)).collect();
        for &(first, log2) in &sizes {
            for entry in [first, first + 1, first + 799] {
                table.insert(entry, page(log2, random));
            }
        }
        table.insert(16_383, page(30, random));
        let one = |random: &mut Random| {
            let rest = bits(random.random_range(0..1 << 12));
            let kind = random.random_range(0..10);
            if kind < 3 {
                let address = random.random::<u64>() >> 1;
                return (Access { address: bits(address), is_payload: random.random(), rest }, address);
            }
            if kind == 3 {
                // Rings may be anywhere.
                let address = random.random::<u64>() | 1 << 63;
                return (Access { address: bits(address), is_payload: false, rest }, address);
            }
            let &(first, log2) = sizes.choose(random).unwrap();
            let (entry, log2) = match random.random_range(0..12) {
                0 => (16_383, 30),
                1..4 => (first + 799, log2),
                4..8 => (first + 1, log2),
                _ => (first, log2),
            };
            let last = (1 << log2) - 1;
            let place = *[0, last, 4095, last - 4095, random.random_range(0..=last)].choose(random).unwrap();
            let access = Access { address: bits(paged(entry, log2, place)), is_payload: true, rest };
            (access, table[&entry] + place)
        };
        (0..count).map(|_| one(random)).unzip()
    }

    fn run(bench: &mut Bench<Block>, stalls: Stalls, count: usize, random: &mut Random) -> usize {
        let mut table = BTreeMap::new();
        let (accesses, expected) = accesses(&mut table, count, random);
        for (&entry, &address) in &table {
            bench.block.page_write.valid.next = true;
            bench.block.page_write.value.next =
                PageEntryWrite { entry: bits(entry), page: bits(address >> 12) };
            bench.tick();
        }
        bench.block.page_write.valid.next = false;
        let mut source = Source::showing_next(accesses.clone(), stalls);
        let mut sink = Sink::new(stalls);
        let mut cycles = 0;
        while sink.received.len() < count {
            assert!(cycles < 20 * count + 100, "translate is stuck; stalls: {stalls:?}");
            // Entries of others are written meanwhile.
            bench.block.page_write.valid.next = random.random();
            bench.block.page_write.value.next = PageEntryWrite {
                entry: bits(2 + random.random_range(0..700)),
                page: Stimulus::sample(random),
            };
            source.drive(&mut bench.block.rx, random);
            sink.drive(&mut bench.block.tx, random);
            bench.settle();
            source.sample(&bench.block.rx);
            sink.sample(&bench.block.tx);
            bench.tick();
            cycles += 1;
        }
        for ((found, access), expected) in sink.received.iter().zip(&accesses).zip(expected) {
            assert_eq!((found.address.to_u64(), found.rest), (expected, access.rest), "{access:x?}");
        }
        cycles
    }

    #[test]
    fn every_byte_of_every_page_has_its_device_address() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench = Bench::clocked(Block::default(), |block| &mut block.clock).in_lock_step();
            run(&mut bench, stalls, 400, &mut random);
        }
    }

    #[test]
    fn one_access_a_cycle_after_three_cycles() {
        let mut random = random();
        let mut bench = Bench::clocked(Block::default(), |block| &mut block.clock);
        assert_eq!(run(&mut bench, Stalls::None, 1000, &mut random), 1003);
    }

    /// Inputs that no connected block would give, and resets at any time.
    #[test]
    fn any_input_does_the_same_in_verilog() {
        let mut random = random();
        let mut bench = Bench::clocked(Block::default(), |block| &mut block.clock).in_lock_step();
        for _ in 0..1500 {
            let block = &mut bench.block;
            block.reset.next = random.random_bool(0.01);
            block.page_write.valid.next = random.random();
            block.page_write.value.next = PageEntryWrite {
                entry: bits(random.random_range(0..64)),
                page: Stimulus::sample(&mut random),
            };
            // Of addresses beyond those that are, only that both are the same is asked.
            let address = random.random::<u64>() & 0xffff_f000_0003_ffff;
            block.rx.valid.next = random.random();
            block.rx.beat.next = Access {
                address: bits(address),
                is_payload: random.random(),
                rest: Stimulus::sample(&mut random),
            };
            block.tx.ready.next = random.random_bool(0.8);
            bench.tick();
        }
    }

    #[test]
    fn it_is_generated_for_reads_and_writes() {
        generates(Translate::<17>::default());
        generates(Translate::<10>::default());
    }
}
