use super::*;
use rand::{Rng, SeedableRng};
use rnic_blocks::bench::{Bench, ClockOf, Random, Sink, Source, Stalls, random};

type Word = Beat<64, 4>;
type Entry = MacEntry<64, 4, 3, 4>;
type Exit = MacExit<64, 4, 6, 7>;

fn frame(number: u64, beats: u64) -> Vec<Word> {
    let beat = |index| Word {
        data: bits(number << 16 | index),
        bytes: bits(8),
        last: index + 1 == beats,
        error: false,
    };
    (0..beats).map(beat).collect()
}

/// One step of time: each clock ticks in it or not.
fn clocks(random: &mut Random, percent: [u32; 2]) -> Vec<usize> {
    (0..2).filter(|&clock| random.random_range(0..100) < percent[clock]).collect()
}

fn entry() -> Bench<Entry> {
    let clocks: Vec<ClockOf<Entry>> = vec![|block| &mut block.mac_clock, |block| &mut block.clock];
    Bench::with_clocks(Entry::default(), clocks).in_lock_step()
}

/// Sends frames as a MAC does, and returns what the core saw of them.
fn receive(mut random: Random, frames: &[Vec<Word>], percent: [u32; 2], gaps: bool) -> Vec<Vec<Word>> {
    let mut bench = entry();
    let mut beats = frames.concat().into_iter();
    let mut received = vec![Vec::new()];
    let mut idle = 0;
    while idle < 400 {
        let now = clocks(&mut random, percent);
        if now.contains(&0) {
            let beat = if gaps && random.random() { None } else { beats.next() };
            bench.block.valid.next = beat.is_some();
            bench.block.beat.next = beat.unwrap_or_default();
        }
        bench.settle();
        if now.contains(&1) && bench.block.received_valid.val() {
            let beat = bench.block.received.val();
            received.last_mut().unwrap().push(beat);
            if beat.last {
                received.push(Vec::new());
            }
        }
        bench.tick_clocks(&now);
        idle = if beats.len() == 0 { idle + 1 } else { 0 };
    }
    assert!(received.pop().unwrap().is_empty(), "every frame is closed");
    received
}

#[test]
fn frames_from_the_wire_cross_unharmed_into_a_core_that_keeps_up() {
    let frames: Vec<_> = (0..60).map(|number| frame(number, 1 + number % 13)).collect();
    for percent in [[50, 100], [100, 100], [70, 90]] {
        // Other ticks may let the core fall behind by more than the queue takes.
        let random = Random::seed_from_u64(1);
        assert_eq!(receive(random, &frames, percent, percent[0] == percent[1]), frames);
    }
}

#[test]
fn what_finds_no_room_is_cut_off_and_closed_with_an_error() {
    let frames: Vec<_> = (0..80).map(|number| frame(number, 1 + number % 13)).collect();
    let received = receive(random(), &frames, [100, 40], false);
    let mut sent = frames.iter();
    let (mut whole, mut cut) = (0, 0);
    for got in &received {
        let number = got[0].data.to_u64() >> 16;
        let original =
            sent.find(|frame| frame[0].data.to_u64() >> 16 == number).expect("frames keep their order");
        let (end, head) = got.split_last().unwrap();
        assert_eq!(head, &original[..head.len()]);
        if end.error {
            cut += 1;
            assert!(end.last && head.len() < original.len());
        } else {
            whole += 1;
            assert_eq!(got, original);
        }
    }
    assert!(whole > 5 && cut > 5 && whole + cut < frames.len(), "{whole} whole, {cut} cut");
}

#[test]
fn frames_to_the_wire_never_run_dry_after_their_first_beat() {
    let mut random = random();
    let clocks_of: Vec<ClockOf<Exit>> = vec![|block| &mut block.clock, |block| &mut block.mac_clock];
    let mut bench = Bench::with_clocks(Exit::default(), clocks_of).in_lock_step();
    let frames: Vec<_> = (0..40).map(|number| frame(number, 1 + (number * 7) % 66)).collect();
    let mut source = Source::new(frames.concat(), Stalls::None);
    let mut sink: Sink<Word> = Sink::new(Stalls::None);
    let (mut time, mut inside) = (0u64, false);
    let mut received = Vec::new();
    while received.len() < frames.concat().len() {
        // 250 MHz and 322 MHz: 29 core cycles for 37.4 of the MAC.
        time += 1;
        let mut now = Vec::new();
        if time % 40 < 31 {
            now.push(0);
        }
        now.push(1);
        if now.contains(&0) {
            source.drive(&mut bench.block.rx, &mut random);
        }
        sink.drive(&mut bench.block.tx, &mut random);
        bench.settle();
        if now.contains(&0) {
            source.sample(&bench.block.rx);
        }
        let beat = sink.sample(&bench.block.tx);
        assert!(!inside || beat.is_some(), "the frame ran dry after {} beats", received.len());
        if let Some(beat) = beat {
            inside = !beat.last;
            received.push(beat);
        }
        bench.tick_clocks(&now);
        assert!(time < 100_000);
    }
    assert_eq!(received, frames.concat());
}

fn beats_of(number: u64) -> u64 {
    1 + number * 7 % 40
}

/// Frames without end, which a reset of the sender cuts off.
#[derive(Default)]
struct Frames {
    number: u64,
    index: u64,
}

impl Frames {
    fn beat(&self) -> Word {
        frame(self.number, beats_of(self.number))[self.index as usize]
    }

    fn advance(&mut self) {
        self.index += 1;
        if self.index == beats_of(self.number) {
            self.next();
        }
    }

    fn next(&mut self) {
        (self.number, self.index) = (self.number + 1, 0);
    }

    fn is_cut_off(&mut self) {
        if self.index > 0 {
            self.next();
        }
    }
}

/// Takes frames that may be cut off, but are never glued together.
#[derive(Default)]
struct Reader {
    /// Number and next beat of the frame that is being taken.
    frame: Option<(u64, u64)>,
    last_number: Option<u64>,
    whole: usize,
    closed: usize,
}

impl Reader {
    fn take(&mut self, beat: Word) {
        let (number, index) = (beat.data.to_u64() >> 16, beat.data.to_u64() & 0xffff);
        let (expected, next) = match self.frame {
            Some(_) if beat.last && beat.error => {
                self.closed += 1;
                self.frame = None;
                return;
            }
            Some(frame) => frame,
            None => {
                assert!(self.last_number.is_none_or(|last| number > last), "frame {number} came before");
                self.last_number = Some(number);
                (number, 0)
            }
        };
        assert!(!beat.error, "nothing was wrong with frame {number}");
        assert_eq!((number, index), (expected, next), "a frame has its own beats only");
        assert_eq!(beat.last, index + 1 == beats_of(number));
        self.whole += usize::from(beat.last);
        self.frame = (!beat.last).then_some((number, index + 1));
    }
}

/// What is reset in a step, for how many cycles of its clock.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    Mac,
    Core,
    Restart,
}

const CUTS: [Cut; 3] = [Cut::Mac, Cut::Core, Cut::Restart];

#[test]
fn frames_from_the_wire_are_never_glued_together_whatever_is_reset() {
    let mut random = random();
    let (mut closed, mut whole) = (0, 0);
    for percent in [[50, 100], [90, 100], [60, 70]] {
        let mut bench = entry();
        let (mut frames, mut reader) = (Frames::default(), Reader::default());
        let mut cut: Option<(Cut, u32)> = None;
        for _ in 0..12_000 {
            if cut.is_none() && random.random_ratio(1, 150) {
                cut = Some((CUTS[random.random_range(0..3)], random.random_range(1..6)));
            }
            let asserted = cut.map(|(cut, _)| cut);
            bench.block.mac_reset.next = asserted == Some(Cut::Mac);
            bench.block.reset.next = asserted == Some(Cut::Core);
            bench.block.restart.next = matches!(asserted, Some(Cut::Core | Cut::Restart));
            let now = clocks(&mut random, percent);
            let mac_ticks = now.contains(&0);
            let sends = mac_ticks && asserted != Some(Cut::Mac) && random.random_ratio(9, 10);
            if mac_ticks {
                bench.block.valid.next = sends;
                bench.block.beat.next = frames.beat();
            }
            bench.settle();
            if now.contains(&1) {
                if matches!(asserted, Some(Cut::Core | Cut::Restart)) {
                    reader.frame = None;
                } else if bench.block.received_valid.val() {
                    reader.take(bench.block.received.val());
                }
            }
            bench.tick_clocks(&now);
            if sends {
                frames.advance();
            }
            if mac_ticks && asserted == Some(Cut::Mac) {
                frames.is_cut_off();
            }
            if let Some((kind, cycles)) = cut
                && now.contains(&usize::from(kind != Cut::Mac))
            {
                cut = (cycles > 1).then_some((kind, cycles - 1));
            }
        }
        closed += reader.closed;
        whole += reader.whole;
    }
    assert!(closed > 10 && whole > 300, "{closed} closed, {whole} whole");
}

#[test]
fn frames_to_the_wire_are_never_glued_together_whatever_is_reset() {
    let mut random = random();
    let (mut closed, mut whole) = (0, 0);
    for percent in [[100, 60], [80, 100], [70, 60]] {
        let clocks_of: Vec<ClockOf<Exit>> = vec![|block| &mut block.clock, |block| &mut block.mac_clock];
        let mut bench = Bench::with_clocks(Exit::default(), clocks_of).in_lock_step();
        let (mut frames, mut reader) = (Frames::default(), Reader::default());
        let mut cut: Option<(Cut, u32)> = None;
        for _ in 0..12_000 {
            if cut.is_none() && random.random_ratio(1, 150) {
                cut = Some((CUTS[random.random_range(0..3)], random.random_range(1..6)));
            }
            let asserted = cut.map(|(cut, _)| cut);
            let is_forgotten = matches!(asserted, Some(Cut::Core | Cut::Restart));
            bench.block.mac_reset.next = asserted == Some(Cut::Mac);
            bench.block.reset.next = asserted == Some(Cut::Core);
            bench.block.restart.next = is_forgotten;
            let now = clocks(&mut random, percent);
            let core_ticks = now.contains(&0);
            if core_ticks {
                bench.block.rx.valid.next = !is_forgotten && random.random_ratio(9, 10);
                bench.block.rx.beat.next = frames.beat();
            }
            bench.block.tx.ready.next = random.random_ratio(9, 10);
            bench.settle();
            let sends = core_ticks && bench.block.rx.valid.val() && bench.block.rx.ready.val();
            if now.contains(&1) {
                if asserted == Some(Cut::Mac) {
                    reader.frame = None;
                } else if bench.block.tx.valid.val() && bench.block.tx.ready.val() {
                    reader.take(bench.block.tx.beat.val());
                }
            }
            bench.tick_clocks(&now);
            if sends {
                frames.advance();
            }
            if core_ticks && is_forgotten {
                frames.is_cut_off();
            }
            if let Some((kind, cycles)) = cut
                && now.contains(&usize::from(kind == Cut::Mac))
            {
                cut = (cycles > 1).then_some((kind, cycles - 1));
            }
        }
        closed += reader.closed;
        whole += reader.whole;
    }
    assert!(closed > 10 && whole > 300, "{closed} closed, {whole} whole");
}
