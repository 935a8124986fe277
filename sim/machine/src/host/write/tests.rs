use super::super::LANES_MAX;
use super::super::memory::Access;
use super::*;
use rand::Rng;
use rnic_stimulus::chance::Delay;

const CYCLE_PS: u64 = 4000;

struct Bench {
    writes: Writes,
    options: HostOptions,
    memory: Memory,
    order: OrderMonitor,
    up: Link,
    log: Log,
    now_ps: u64,
    lanes: usize,
}

impl Bench {
    fn new(options: HostOptions, lanes: usize) -> Bench {
        let mut memory = Memory::default();
        let buffer = memory.allocate(16384);
        memory.map(0, buffer, 0, 16384, Access::ReadWrite).unwrap();
        Bench {
            writes: Writes::new(lanes, Seed(1), "host"),
            options,
            memory,
            order: OrderMonitor::default(),
            up: Link::new(options.link.bytes_per_second),
            log: Log::new("card0"),
            now_ps: 0,
            lanes,
        }
    }

    fn request(&mut self, address: u64, length: u32) {
        self.writes.request(self.now_ps, WriteRequest { address, length }, &mut self.log);
    }

    /// The words of a write whose bytes are all `value`, and whose other lanes are not.
    fn data(&mut self, address: u64, length: u32, value: u8) {
        let lane = address as usize % self.lanes;
        let words = (lane + length as usize).div_ceil(self.lanes);
        for index in 0..words {
            let mut data = Word([!value; LANES_MAX]);
            for byte in 0..self.lanes {
                if (lane..lane + length as usize).contains(&(index * self.lanes + byte)) {
                    data.0[byte] = value;
                }
            }
            self.writes.word(WriteWord { data, last: index + 1 == words });
        }
    }

    fn cycle(&mut self) -> Option<bool> {
        self.now_ps += CYCLE_PS;
        self.writes.cycle(
            self.now_ps,
            &self.options,
            &mut self.up,
            &mut self.memory,
            &mut self.order,
            &mut self.log,
        )
    }

    fn done(&mut self, cycles: usize) -> Vec<bool> {
        (0..cycles).filter_map(|_| self.cycle()).collect()
    }

    fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read_bytes(address, &mut bytes).unwrap();
        bytes
    }
}

#[test]
fn exactly_the_bytes_of_the_span_are_written() {
    for lanes in [8, 64] {
        for (address, length) in [(0, 64), (5, 1), (63, 2), (0x1ff, 512), (100, 300)] {
            let mut bench = Bench::new(HostOptions::IDEAL, lanes);
            bench.memory.write_bytes(0, &[0x11; 4096]).unwrap();
            bench.data(address, length, 0xcc);
            assert!(bench.done(5).is_empty(), "data waits for its request");
            bench.request(address, length);
            assert_eq!(bench.done(5), [false]);
            let bytes = bench.bytes(0, 4096);
            for (index, byte) in bytes.iter().enumerate() {
                let is_inside = (address..address + u64::from(length)).contains(&(index as u64));
                assert_eq!(*byte, if is_inside { 0xcc } else { 0x11 }, "{lanes} lanes, byte {index}");
            }
            assert!(bench.log.violations().is_empty());
        }
    }
}

#[test]
fn a_read_that_overtakes_a_write_sees_old_bytes_until_it_is_done() {
    let options = HostOptions {
        write_visible: Delay::Fixed { ps: 100_000 },
        write_done: Delay::Fixed { ps: 100_000 },
        ..HostOptions::IDEAL
    };
    let mut bench = Bench::new(options, 64);
    bench.request(64, 64);
    bench.data(64, 64, 7);
    let (mut visible_cycle, mut done_cycle) = (None, None);
    for cycle in 0..60 {
        let is_done = bench.cycle().is_some();
        if bench.bytes(64, 1) == [7] {
            visible_cycle.get_or_insert(cycle);
        }
        if is_done {
            done_cycle.get_or_insert(cycle);
        }
    }
    assert!(visible_cycle >= Some(24) && done_cycle >= Some(49), "{visible_cycle:?} {done_cycle:?}");
    assert!(visible_cycle < done_cycle);
}

#[test]
fn only_a_free_order_lets_writes_overtake_and_never_on_the_same_bytes() {
    for (write_order, may_overtake) in [(WriteOrder::Posted, false), (WriteOrder::Free, true)] {
        let options = HostOptions {
            write_order,
            write_visible: Delay::Uniform { min_ps: 0, max_ps: 300_000 },
            ..HostOptions::IDEAL
        };
        let mut bench = Bench::new(options, 64);
        let mut random = Seed(5).stream("addresses");
        let mut overtaken = 0;
        for round in 1..100_u8 {
            let address = random.random_range(0..4) * 512;
            for target in [address, 4096, address] {
                bench.request(target, 64);
                bench.data(target, 64, if target == 4096 { round } else { round.wrapping_mul(3) });
            }
            let mut dones = 0;
            while dones < 3 {
                let first_is_new = bench.bytes(address, 1) == [round.wrapping_mul(3)];
                overtaken += u32::from(bench.bytes(4096, 1) == [round] && !first_is_new);
                dones += usize::from(bench.cycle().is_some());
            }
            assert_eq!(bench.bytes(address, 1), [round.wrapping_mul(3)]);
        }
        assert_eq!(overtaken > 0, may_overtake, "{write_order:?}");
    }
}

#[test]
fn writes_are_reported_done_in_order_with_their_errors() {
    let mut bench = Bench::new(HostOptions::STANDARD, 64);
    for address in [0, 16384, 64] {
        bench.request(address, 64);
        bench.data(address, 64, 1);
    }
    assert!(bench.writes.is_pending(32, 1) && !bench.writes.is_pending(128, 512));
    assert_eq!(bench.done(2000), [false, true, false]);
    assert_eq!(bench.memory.take_faults().len(), 1);
    assert_eq!(bench.writes.under_way(), 0);
    assert!(!bench.writes.is_pending(32, 1));
}

#[test]
fn a_wrong_number_of_words_is_seen() {
    for (length, sent) in [(128, 64), (64, 128)] {
        let mut bench = Bench::new(HostOptions::IDEAL, 64);
        bench.request(0, length);
        bench.data(0, sent, 1);
        bench.done(10);
        let violations = bench.log.take();
        assert_eq!(violations[0].rule, Rule::Words, "{violations:?}");
    }
}

#[test]
fn an_injected_error_changes_nothing() {
    let mut bench = Bench::new(HostOptions { write_error: 1.0, ..HostOptions::IDEAL }, 8);
    bench.request(8, 8);
    bench.data(8, 8, 9);
    assert_eq!(bench.done(10), [true]);
    assert_eq!(bench.bytes(8, 8), [0; 8]);
    assert!(bench.memory.faults().is_empty());
}
