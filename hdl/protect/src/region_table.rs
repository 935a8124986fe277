//! Region table: checks whether an access is allowed, and gives its device address.
//!
//! Every access to memory for a queue pair is checked here. Requester and responder have a table each, so
//! neither waits for the other; commands write both at once.
//!
//! ```text
//!          ┌─────────────────────────────────────────────────────────────────────────┐
//!  write ──┼───────────> ┌─────────┐                                                 │
//!          │             │ regions ├─▯─> key, domain, rights ──▯──────▯──┐           │
//!  request ┼─┬──index──> └─────────┘     address - first ────▯─ + base ─▯─┴> ┌──────┐ │
//!          │ └───────────────▯─────▯────────────────────────▯─ + length ▯ ── │ Fifo ├─┼─> answer
//!          │                                                                └──────┘ │
//!          └─────────────────────────────────────────────────────────────────────────┘
//!  cycle     0           1  2                         3             4           5    7
//! ```
//!
//! An access inside a region, one that ends one byte after it, and one whose key has another variant:
//! ```text
#![doc = include_str!("waves/region_table.txt")]
//! ```
//!
//! Latency [`LATENCY`] cycles; throughput one request a cycle. 276 LUT, 852 FF, 15 RAMB18; depth 18, of which
//! 16 are the carry chain of an address.
//!
//! 1. Answers leave in the order of the requests.
//! 2. An access is allowed if all checks hold; their order is not observable. All 32 bits of the key are
//!    compared, so an index beyond the table and a variant that is no longer valid match no region
//!    (protocol 4.6).
//! 3. Addresses and lengths are compared in 65 bits: an access that wraps at 2^64 is out of bounds.
//! 4. A write applies to requests that are taken in later cycles.
//! 5. Reset drops requests, not regions: those are invalidated by writes.
//!
//! Refuses nothing: an access of length zero needs no permission, and must not be requested (protocol 3.6).
//! Protocol 4.6; design decision 14.
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::protect::{AccessAnswer, AccessRequest, Region, RegionWrite};
use rnic_messages::sizes::{REGION_BITS, region_of_key, sizes};

/// Cycles from a request to its answer, if answers are taken at once.
pub const LATENCY: usize = 7;
/// Bits of an address with a carry.
const WIDE_BITS: usize = 65;
/// log2 of the requests in the pipeline.
const ROOM_BITS: usize = 4;
/// Width of the count of these requests.
const COUNT_BITS: usize = ROOM_BITS + 1;

/// Results of the comparisons, and operands of the additions.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Compared {
    /// Key, domain and rights hold.
    permitted: Bit,
    /// Offset in the region.
    offset: Bits<64>,
    /// The address lies before the region.
    before: Bit,
    access_bytes: Bits<32>,
    region_bytes: Bits<64>,
    translation_base: Bits<64>,
}

/// Operands of the last comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Added {
    permitted: Bit,
    /// Offset of the first byte after the access.
    end: Bits<WIDE_BITS>,
    region_bytes: Bits<64>,
    device_address: Bits<64>,
}

/// Region table; see the module.
#[clocked(reset = "forgets requests, keeps regions")]
#[derive(LogicBlock, Registers, Construct)]
pub struct RegionTable {
    /// From control: write of a region.
    pub write: ValidRx<RegionWrite>,

    /// Accesses to be checked; `ready` is a function of registers.
    pub request: StreamRx<AccessRequest>,
    /// One answer for each; registered.
    pub answer: StreamTx<AccessAnswer>,

    #[init(Memory::new(Storage::Block).with_output_register().with_words_log2(sizes().regions))]
    regions: Memory<Region, REGION_BITS>,
    /// The request whose region is being read, and the one whose region was read.
    asked: [DFF<AccessRequest>; 2],
    compared: DFF<Compared>,
    added: DFF<Added>,
    result: DFF<AccessAnswer>,
    /// Stages that hold a request, the first in bit 0.
    occupied: Reg<Bits<5>>,
    answers: Fifo<AccessAnswer, ROOM_BITS, COUNT_BITS>,
    /// Requests in the pipeline.
    count: Reg<Bits<COUNT_BITS>>,
}

impl Logic for RegionTable {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        let write = self.write.value.val();
        self.regions.write(self.write.valid.val(), write.index, write.region);

        // A request is taken only with room for its answer, so the pipeline never stalls.
        let count = self.count.q.val();
        let has_room = !count.get_bit(ROOM_BITS);
        let takes = self.request.valid.val() && has_room;
        self.request.ready.next = has_room;
        let gives = self.answers.tx.valid.val() && self.answer.ready.val();
        if takes && !gives {
            self.count.d.next = count + 1;
        }
        if gives && !takes {
            self.count.d.next = count - 1;
        }
        self.occupied.d.next = cat!(self.occupied.q.val().get_bits::<4>(0), takes);

        // Cycles 0 and 1: the region is read.
        let request = self.request.beat.val();
        self.regions.read(true, region_of_key(request.key));
        self.asked[0].d.next = request;
        self.asked[1].d.next = self.asked[0].q.val();

        // Cycle 2: key, domain and rights are compared, and the offset in the region is computed.
        let asked = self.asked[1].q.val();
        let region = self.regions.read_data.val();
        let rights = (region.local_write || !asked.local_write)
            && (region.remote_write || !asked.remote_write)
            && (region.remote_read || !asked.remote_read)
            && (region.remote_atomic || !asked.remote_atomic);
        let first = if region.zero_based { bits::<64>(0) } else { region.first_address };
        let offset = bit_cast::<WIDE_BITS, 64>(asked.address) - bit_cast::<WIDE_BITS, 64>(first);
        self.compared.d.next = Compared {
            permitted: region.valid && region.key == asked.key && region.domain == asked.domain && rights,
            offset: offset.get_bits::<64>(0),
            before: offset.get_bit(64),
            access_bytes: asked.length,
            region_bytes: region.length,
            translation_base: region.translation_base,
        };

        // Cycle 3: the end of the access, and its device address.
        let compared = self.compared.q.val();
        self.added.d.next = Added {
            permitted: compared.permitted && !compared.before,
            end: bit_cast::<WIDE_BITS, 64>(compared.offset)
                + bit_cast::<WIDE_BITS, 32>(compared.access_bytes),
            region_bytes: compared.region_bytes,
            device_address: compared.translation_base + compared.offset,
        };

        // Cycle 4: the end is compared with the length of the region.
        let added = self.added.q.val();
        self.result.d.next = AccessAnswer {
            ok: added.permitted && added.end <= bit_cast::<WIDE_BITS, 64>(added.region_bytes),
            device_address: added.device_address,
        };

        self.answers.rx.offer(self.occupied.q.val().get_bit(4), self.result.q.val());
        self.answers.tx.ready.next = self.answer.ready.val();
        self.answer.offer(self.answers.tx.valid.val(), self.answers.tx.beat.val());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Waves, random};
    use rnic_messages::sizes::REGION_VARIANT_BITS;

    fn bench() -> Bench<RegionTable> {
        Bench::clocked(RegionTable::default(), |block| &mut block.clock)
    }

    /// Result that the rules require, in arithmetic that cannot wrap.
    fn expected(regions: &[Region], request: &AccessRequest) -> Option<u64> {
        let region = regions.iter().find(|region| region.valid && region.key == request.key)?;
        let rights = [
            (request.local_write, region.local_write),
            (request.remote_write, region.remote_write),
            (request.remote_read, region.remote_read),
            (request.remote_atomic, region.remote_atomic),
        ];
        if region.domain != request.domain || rights.iter().any(|&(needed, granted)| needed && !granted) {
            return None;
        }
        let wide = |number: u64| i128::from(number);
        let first = if region.zero_based { 0 } else { wide(region.first_address.to_u64()) };
        let begin = wide(request.address.to_u64());
        let end = begin + wide(request.length.to_u64());
        (begin >= first && end <= first + wide(region.length.to_u64()))
            .then(|| region.translation_base.to_u64().wrapping_add((begin - first) as u64))
    }

    fn write(bench: &mut Bench<RegionTable>, index: u64, region: Region) {
        bench.block.write.value.next = RegionWrite { index: bits(index), region };
        bench.block.write.valid.next = true;
        bench.tick();
        bench.block.write.valid.next = false;
    }

    fn some_region(index: u64, random: &mut Random) -> Region {
        let length: u64 =
            *[1, 4096, 1 << 31, 1 << 40, random.random_range(1..100_000)].choose(random).unwrap();
        // Some regions end at 2^64.
        let highest = (u64::MAX - length).wrapping_add(1);
        let first = *[0, highest, random.random_range(0..=highest)].choose(random).unwrap();
        Region {
            key: bits(index << 8 | random.random_range(0..256)),
            valid: random.random_ratio(7, 8),
            local_write: random.random(),
            remote_write: random.random(),
            remote_read: random.random(),
            remote_atomic: random.random(),
            zero_based: random.random_ratio(1, 4),
            first_address: bits(first),
            length: bits(length),
            translation_base: bits(random.random::<u64>() & !0xfff),
            domain: bits(random.random_range(0..2)),
        }
    }

    /// An access that is allowed, or refused for one byte or bit.
    fn some_request(regions: &[Region], random: &mut Random) -> AccessRequest {
        let region = regions.choose(random).unwrap();
        let variant = if random.random_ratio(1, 12) { 1 } else { 0 };
        let beyond = if random.random_ratio(1, 12) { 1 << (REGION_BITS + REGION_VARIANT_BITS) } else { 0 };
        let first = if region.zero_based { 0 } else { region.first_address.to_u64() };
        let length = region.length.to_u64();
        let offset = random.random_range(0..length);
        let left = length - offset;
        let longest = left.min(u32::MAX.into());
        let wanted: u64 = *[1, longest, (left + 1).min(u32::MAX.into()), random.random_range(1..=longest)]
            .choose(random)
            .unwrap();
        let shift = *[0, 0, 0, u64::MAX, random.random_range(0..8)].choose(random).unwrap();
        AccessRequest {
            key: bits(region.key.to_u64() ^ variant ^ beyond),
            domain: if random.random_ratio(1, 8) { bits(1) } else { region.domain },
            address: bits(first.wrapping_add(offset).wrapping_add(shift)),
            length: bits(wanted),
            local_write: region.local_write && random.random() || random.random_ratio(1, 12),
            remote_write: region.remote_write && random.random() || random.random_ratio(1, 12),
            remote_read: region.remote_read && random.random() || random.random_ratio(1, 12),
            remote_atomic: region.remote_atomic && random.random() || random.random_ratio(1, 12),
        }
    }

    #[test]
    fn answers_follow_the_rules_with_all_stalls() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench = bench().in_lock_step();
            let regions: Vec<Region> = (0..24)
                .map(|place| {
                    let index = if place == 23 { (1 << REGION_BITS) - 1 } else { place };
                    let region = some_region(index, &mut random);
                    write(&mut bench, index, region);
                    region
                })
                .collect();
            let requests: Vec<_> = (0..600).map(|_| some_request(&regions, &mut random)).collect();
            let mut source = Source::of_tokens(requests.iter().copied(), stalls);
            let mut sink = Sink::new(stalls);
            let mut cycles = 0;
            while sink.received.len() < requests.len() {
                source.drive(&mut bench.block.request, &mut random);
                sink.drive(&mut bench.block.answer, &mut random);
                bench.settle();
                source.sample(&bench.block.request);
                sink.sample(&bench.block.answer);
                bench.tick();
                cycles += 1;
                assert!(cycles < 10_000, "the table hangs with stalls {stalls:?}");
            }
            let mut allowed = 0;
            for (request, answer) in requests.iter().zip(&sink.received) {
                let place = expected(&regions, request);
                assert_eq!(answer.ok, place.is_some(), "{request:?}");
                if let Some(place) = place {
                    assert_eq!(answer.device_address, bits(place), "{request:?}");
                    allowed += 1;
                }
            }
            assert!((100..500).contains(&allowed), "{allowed} of 600 are allowed: the test tries both");
            if stalls == Stalls::None {
                assert_eq!(cycles, requests.len() + LATENCY, "one request a cycle");
            }
        }
    }

    fn plain() -> (Region, AccessRequest) {
        let region = Region {
            key: bits(0x142),
            valid: true,
            remote_write: true,
            first_address: bits(0x7000),
            length: bits(100),
            translation_base: bits(0x10_0000),
            domain: bits(5),
            ..Region::default()
        };
        let request = AccessRequest {
            key: bits(0x142),
            domain: bits(5),
            address: bits(0x7000),
            length: bits(100),
            remote_write: true,
            ..AccessRequest::default()
        };
        (region, request)
    }

    fn ask(bench: &mut Bench<RegionTable>, request: AccessRequest) -> AccessAnswer {
        bench.block.request.beat.next = request;
        bench.block.request.valid.next = true;
        bench.block.answer.ready.next = true;
        bench.tick();
        bench.block.request.valid.next = false;
        for _ in 0..20 {
            bench.settle();
            if bench.block.answer.valid.val() {
                let answer = bench.block.answer.beat.val();
                bench.tick();
                return answer;
            }
            bench.tick();
        }
        panic!("every request is answered");
    }

    #[test]
    fn each_check_holds_on_both_sides_of_its_boundary() {
        let mut bench = bench().in_lock_step();
        let (region, request) = plain();
        write(&mut bench, 1, region);
        assert_eq!(ask(&mut bench, request), AccessAnswer { ok: true, device_address: bits(0x10_0000) });
        let last = AccessRequest { address: bits(0x7063), length: bits(1), ..request };
        assert_eq!(ask(&mut bench, last), AccessAnswer { ok: true, device_address: bits(0x10_0063) });
        let refused = [
            AccessRequest { key: bits(0x143), ..request },
            AccessRequest { domain: bits(4), ..request },
            AccessRequest { remote_read: true, ..request },
            AccessRequest { length: bits(101), ..request },
            AccessRequest { address: bits(0x6fff), length: bits(1), ..request },
            AccessRequest { address: bits(0x7064), length: bits(1), ..request },
            AccessRequest { address: bits(u64::MAX), length: bits(2), ..request },
        ];
        for request in refused {
            assert!(!ask(&mut bench, request).ok, "{request:?}");
        }
        write(&mut bench, 1, Region { valid: false, ..region });
        assert!(!ask(&mut bench, request).ok, "the region is gone");
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("request_valid").signal("request_beat.length").when("request_valid");
        let waves = waves.signal("request_beat.key").when("request_valid");
        let waves = waves.signal("answer_valid").signal("answer_beat.ok").when("answer_valid");
        let waves = waves.signal("answer_beat.device_address").when("answer_valid");
        let mut bench = bench();
        let (region, request) = plain();
        write(&mut bench, 1, region);
        bench.block.answer.ready.next = true;
        let mut bench = bench.recording(waves);
        let longer = AccessRequest { length: bits(101), ..request };
        let other = AccessRequest { key: bits(0x143), ..request };
        for asked in [Some(request), Some(longer), Some(other)].into_iter().chain([None; 8]) {
            bench.block.request.valid.next = asked.is_some();
            bench.block.request.beat.next = asked.unwrap_or(request);
            bench.tick();
        }
        bench.waves().expect("waves/region_table.txt");
    }
}
