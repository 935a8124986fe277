use super::super::LinkOptions;
use super::super::memory::Access;
use super::*;
use rnic_stimulus::chance::Delay;

const CYCLE_PS: u64 = 4000;

struct Bench {
    reads: Reads,
    options: HostOptions,
    memory: Memory,
    up: Link,
    log: Log,
    now_ps: u64,
}

impl Bench {
    fn new(options: HostOptions, lanes: usize) -> Bench {
        let mut memory = Memory::default();
        let buffer = memory.allocate(16384);
        for (index, byte) in memory.buffer_mut(buffer).unwrap().iter_mut().enumerate() {
            *byte = (index % 251) as u8;
        }
        memory.map(0, buffer, 0, 16384, Access::Read).unwrap();
        let reads = Reads::new(&options, lanes, Seed(1), "host");
        let up = Link::new(options.link.bytes_per_second);
        Bench { reads, options, memory, up, log: Log::new("card0"), now_ps: 0 }
    }

    fn request(&mut self, address: u64, length: u32, tag: u8) {
        let request = ReadRequest { address, length, tag };
        self.reads.request(
            self.now_ps,
            request,
            &self.options,
            &mut self.up,
            &mut self.memory,
            &mut self.log,
        );
    }

    fn words(&mut self, cycles: u64) -> Vec<(u64, ReadWord)> {
        let mut words = Vec::new();
        for cycle in 0..cycles {
            self.now_ps += CYCLE_PS;
            let word = self.reads.cycle(self.now_ps, &self.options, &mut self.memory);
            words.extend(word.map(|word| (cycle, word)));
        }
        words
    }
}

#[test]
fn bytes_keep_the_lanes_of_their_addresses() {
    for lanes in [8, 64] {
        let mut bench = Bench::new(HostOptions::IDEAL, lanes);
        bench.request(0x1f3, 0x62, 9);
        let words = bench.words(100);
        let mut address = 0x1f3_usize;
        for (position, (_, word)) in words.iter().enumerate() {
            let lane = address % lanes;
            for index in 0..word.bytes as usize {
                assert_eq!(word.data.0[lane + index], ((address + index) % 251) as u8);
            }
            assert!(word.data.0[..lane].iter().all(|&byte| byte == NOISE), "other lanes say nothing");
            address += word.bytes as usize;
            assert_eq!(word.last, position + 1 == words.len());
            let is_inner = position > 0 && !word.last;
            assert!(!is_inner || word.bytes as usize == lanes, "inner words are full");
            assert!(word.tag == 9 && !word.error);
        }
        assert_eq!(address, 0x1f3 + 0x62);
        assert_eq!(bench.reads.under_way(), 0);
    }
}

/// A read of 512 bytes takes the time of its completions on the link, which are smaller and more at 64 bytes.
#[test]
fn small_completions_take_more_of_the_link() {
    let cycles = |completion_bytes| {
        let link = LinkOptions { completion_bytes, ..LinkOptions::GEN3_X16 };
        let mut bench = Bench::new(HostOptions { link, ..HostOptions::IDEAL }, 64);
        for tag in 0..16 {
            bench.request(u64::from(tag) * 512, 512, tag);
        }
        let words = bench.words(1000);
        words.last().expect("all reads are answered").0
    };
    // 16 reads of 512 bytes at 15.4 GB/s, with 20 bytes more for each completion; then the words of the last one.
    assert_eq!([256, 64].map(cycles), [25 + 143 + 4, 25 + 174 + 1]);
}

#[test]
fn no_more_reads_are_taken_than_there_are_credits() {
    let options = HostOptions { reads_max: 2, ..HostOptions::IDEAL };
    let mut bench = Bench::new(options, 64);
    bench.request(0, 64, 0);
    assert!(bench.reads.has_room(&options));
    bench.request(64, 64, 1);
    assert!(!bench.reads.has_room(&options));
    bench.words(100);
    assert!(bench.reads.has_room(&options));
}

#[test]
fn answers_overtake_and_mix_but_each_stays_in_order() {
    let options = HostOptions {
        read_latency: Delay::Uniform { min_ps: 0, max_ps: 400_000 },
        interleave: 6,
        read_data_stall: 0.2,
        early_read: 0.5,
        ..HostOptions::STANDARD
    };
    let mut bench = Bench::new(options, 64);
    for tag in 0..20_u8 {
        bench.request(u64::from(tag) * 512 + 5, 500, tag);
    }
    let words = bench.words(2000);
    let mut next = [5_usize; 20];
    let (mut switches, mut last_tag, mut ends) = (0, 0, Vec::new());
    for (_, word) in &words {
        let tag = usize::from(word.tag);
        let address = tag * 512 + next[tag];
        assert_eq!(word.data.0[address % 64], (address % 251) as u8);
        next[tag] += word.bytes as usize;
        switches += u32::from(last_tag != tag);
        last_tag = tag;
        if word.last {
            ends.push(tag);
        }
    }
    assert_eq!(next, [505; 20]);
    assert!(switches > 40, "words of several answers mix");
    assert!(!ends.is_sorted(), "answers overtake each other");
    assert!(bench.log.violations().is_empty());
}

/// The pieces of a failed request that come after its end are not sent, though other answers are in front of them.
#[test]
fn nothing_of_a_read_follows_its_error() {
    for _ in 0..50 {
        let options = HostOptions { interleave: 8, ..HostOptions::STANDARD };
        let mut bench = Bench::new(options, 64);
        bench.request(0, 512, 0);
        // Both pieces are beyond the mapped memory.
        bench.request(16384, 512, 1);
        bench.request(512, 512, 2);
        let words = bench.words(1000);
        let failed: Vec<_> = words.iter().filter(|(_, word)| word.tag == 1).collect();
        assert!(failed.len() == 1 && failed[0].1.error && failed[0].1.last, "{}", failed.len());
        assert_eq!(bench.reads.under_way(), 0);
    }
}

#[test]
fn a_read_that_fails_ends_with_one_marked_word() {
    let mut bench = Bench::new(HostOptions::IDEAL, 64);
    bench.request(16384 - 64, 64, 1);
    bench.request(16384, 512, 2);
    let words = bench.words(100);
    let failed: Vec<_> = words.iter().filter(|(_, word)| word.tag == 2).collect();
    assert!(failed.len() == 1 && failed[0].1.error && failed[0].1.last);
    assert!(words.iter().any(|(_, word)| word.tag == 1 && !word.error && word.last));
    assert_eq!(bench.memory.take_faults().len(), 1);
    bench.request(0, 64, 2);
    assert!(!bench.words(100)[0].1.error, "the tag can be used again");
}

#[test]
fn errors_can_be_asked_for() {
    let mut bench = Bench::new(HostOptions { read_error: 1.0, ..HostOptions::STANDARD }, 8);
    bench.request(0, 512, 3);
    let words = bench.words(1000);
    let (_, last) = words.last().unwrap();
    assert!(last.error && last.last);
    assert!(bench.memory.faults().is_empty(), "nothing was out of reach");
    assert_eq!(bench.words(1000).len(), 0, "nothing follows it");
}

#[test]
fn a_tag_that_is_used_twice_and_a_bad_length_are_seen() {
    let mut bench = Bench::new(HostOptions::IDEAL, 64);
    bench.request(0, 64, 7);
    bench.request(64, 64, 7);
    bench.request(0, 513, 8);
    let rules: Vec<Rule> = bench.log.take().iter().map(|violation| violation.rule).collect();
    assert_eq!(rules, [Rule::Tag, Rule::Shape]);
    let words = bench.words(100);
    assert!(words.iter().any(|(_, word)| word.tag == 8 && word.error && word.last));
}

#[test]
fn the_link_takes_its_time() {
    let options = HostOptions { read_latency: Delay::NONE, ..HostOptions::STANDARD };
    let mut bench = Bench::new(options, 64);
    for tag in 0..16 {
        bench.request(u64::from(tag) * 512, 512, tag);
    }
    let words = bench.words(1000);
    // 16 requests are two pieces of 256 + 20 bytes each; at 15.4 GB/s, 8832 bytes take 573.5 ns.
    let last_ps = (words.last().unwrap().0 + 1) * CYCLE_PS;
    assert!((573_000..600_000).contains(&last_ps), "{last_ps}");
}

#[test]
fn an_early_read_misses_what_is_written_later() {
    for (early_read, expected) in [(1.0, 0), (0.0, 0xee)] {
        let mut bench = Bench::new(HostOptions { early_read, ..HostOptions::IDEAL }, 64);
        bench.request(0, 1, 0);
        bench.memory.write_bytes(0, &[0xee]).unwrap();
        assert_eq!(bench.words(100)[0].1.data.0[0], expected);
    }
}
