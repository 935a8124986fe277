use super::*;
use rand::{Rng, SeedableRng};
use rnic_blocks::bench::{Bench, ClockOf, Random, random};

type Word = Beat<64, 4>;
type Entry = MacEntry<64, 4, 3, 4>;
type Exit = MacExit<64, 4, 6, 7>;

/// Of the frames in the tests of resets, some are shorter and some are longer.
const HEAD_START: u64 = 24;

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
        if now.contains(&1) && bench.block.received.valid.val() {
            let beat = bench.block.received.value.val();
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

/// Attoseconds in a second: no period of a clock here is a whole number of picoseconds.
const SECOND_AS: u64 = 1_000_000_000_000_000_000;

/// Clocks of core and MAC that a configuration may have.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    core_hz: u64,
    mac_hz: u64,
}

/// When the MAC is ready.
#[derive(Clone, Copy, Debug)]
enum Mac {
    /// Always, and a frame comes when the one before has left.
    Idle,
    /// From the cycle on in which the queue is full, or has everything.
    Late,
    /// At random, most of the time.
    Random,
}

/// The crossing to the MAC between two clocks. For a frame that comes alone, edges are as unfavourable as the crossing allows: when it
/// may start, the MAC has an edge at once, and one more when it has started.
struct Wire<const ADDRESS: usize, const COUNT: usize> {
    bench: Bench<MacExit<64, 4, ADDRESS, COUNT>>,
    head_start: u64,
    periods_as: [u64; 2],
    due_as: [u64; 2],
    /// The MAC has an edge more than its frequency.
    has_extra_edge: bool,
    random: Random,
}

impl<const ADDRESS: usize, const COUNT: usize> Wire<ADDRESS, COUNT> {
    fn new(head_start: u64, ratio: Ratio) -> Self {
        let clocks_of: Vec<ClockOf<MacExit<64, 4, ADDRESS, COUNT>>> =
            vec![|block| &mut block.clock, |block| &mut block.mac_clock];
        let mut random = random();
        let periods_as = [ratio.core_hz, ratio.mac_hz].map(|hertz| SECOND_AS / hertz);
        Wire {
            bench: Bench::with_clocks(MacExit::new(head_start), clocks_of),
            head_start,
            periods_as,
            due_as: periods_as.map(|period_as| random.random_range(1..=period_as)),
            has_extra_edge: false,
            random,
        }
    }

    /// Sends frames of these lengths in beats, and returns the number of beats after which a frame has a gap, if one has.
    fn gap(&mut self, lengths: &[u64], mac: Mac) -> Option<usize> {
        let frames: Vec<Word> =
            (0..).zip(lengths).flat_map(|(number, &length)| frame(number, length)).collect();
        let (mut offered, mut received) = (0, Vec::new());
        let (mut index, mut full_cycles, mut is_open) = (0, 0, false);
        let is_alone = matches!(mac, Mac::Idle);
        while received.len() < frames.len() {
            if self.due_as[0] <= self.due_as[1] && !self.has_extra_edge {
                let is_held = is_alone && index == 0 && received.len() < offered;
                let beat = frames.get(offered).filter(|_| !is_held);
                let rx = &mut self.bench.block.rx;
                rx.valid.next = beat.is_some();
                rx.beat.next = beat.copied().unwrap_or_default();
                self.bench.settle();
                if let Some(beat) = beat
                    && self.bench.block.rx.ready.val()
                {
                    (offered, index, full_cycles) = (offered + 1, index + 1, 0);
                    if is_alone && (index == self.head_start || (beat.last && index < self.head_start)) {
                        self.due_as[1] = self.due_as[0] + 1;
                    }
                    index = if beat.last { 0 } else { index };
                } else {
                    full_cycles += 1;
                }
                self.bench.tick_clocks(&[0]);
                self.due_as[0] += self.periods_as[0];
                continue;
            }
            is_open |= full_cycles > 20;
            self.bench.block.tx.ready.next = match mac {
                Mac::Idle => true,
                Mac::Late => is_open,
                Mac::Random => self.random.random_ratio(19, 20),
            };
            self.bench.settle();
            let tx = &self.bench.block.tx;
            let is_inside = received.last().is_some_and(|beat: &Word| !beat.last);
            if is_inside && !tx.valid.val() {
                return Some(received.len());
            }
            let takes = tx.valid.val() && tx.ready.val();
            if takes {
                received.push(tx.beat.val());
            }
            self.bench.tick_clocks(&[1]);
            if !std::mem::take(&mut self.has_extra_edge) {
                self.due_as[1] += self.periods_as[1];
                self.has_extra_edge = is_alone && takes && !is_inside;
            }
        }
        assert_eq!(received, frames);
        None
    }
}

/// The fastest MAC that a configuration may have beside a core.
fn fastest(frame_beats: u64, holds: u64, core_hz: u64) -> u64 {
    let fits = |mac_hz: &u64| room(frame_beats, core_hz, *mac_hz) <= holds;
    (1..)
        .map(|step| core_hz + step * core_hz / 1000)
        .take_while(fits)
        .last()
        .expect("it may be faster than the core")
}

/// No frame has a gap at the clocks of a width that the configuration takes, and one beat less of head start is seen.
fn no_frame_has_a_gap<const ADDRESS: usize, const COUNT: usize>(width_bits: usize) {
    assert_eq!(ADDRESS, queue_address_bits(width_bits));
    let (longest, holds) = (frame_beats_max(width_bits), 1 << ADDRESS);
    for core_mhz in [50, 208, 250, 391] {
        let core_hz = core_mhz * 1_000_000;
        let macs = [core_hz / 3, core_hz, 322_265_625, fastest(longest, holds, core_hz)];
        for mac_hz in macs.into_iter().filter(|&mac_hz| room(longest, core_hz, mac_hz) <= holds) {
            let ratio = Ratio { core_hz, mac_hz };
            let start = head_start(longest, core_hz, mac_hz);
            let gap = |head_start, lengths: &[u64], mac| {
                Wire::<ADDRESS, COUNT>::new(head_start, ratio).gap(lengths, mac)
            };
            let alone = [longest, 1, 2, start, start + 1, longest];
            assert_eq!(gap(start, &alone, Mac::Idle), None, "{ratio:?}");
            // A slow MAC needs all of it only for bits on ways of different length, which no simulation has.
            if mac_hz >= core_hz {
                assert!(
                    gap(start - 1, &alone, Mac::Idle).is_some(),
                    "{ratio:?}: {start} is more than needed"
                );
            }
            // The queue is full when the head start of the second frame is here.
            let before = holds - start;
            assert_eq!(gap(start, &[before, longest, longest], Mac::Late), None, "{ratio:?}");
            assert_eq!(
                gap(start, &[1, longest, 3, 2 + longest / 2, longest], Mac::Random),
                None,
                "{ratio:?}"
            );
        }
    }
}

#[test]
fn no_frame_has_a_gap_at_64_bits() {
    no_frame_has_a_gap::<7, 8>(64);
}

#[test]
fn no_frame_has_a_gap_at_128_bits() {
    no_frame_has_a_gap::<7, 8>(128);
}

#[test]
fn no_frame_has_a_gap_at_256_bits() {
    no_frame_has_a_gap::<7, 8>(256);
}

#[test]
fn no_frame_has_a_gap_at_512_bits() {
    no_frame_has_a_gap::<6, 7>(512);
}

/// A MAC that hands over whole frames at its own clock, and on average at the line rate, never finds the queue full.
fn no_frame_is_cut_off<const ADDRESS: usize, const COUNT: usize>(width_bits: usize) {
    let (longest, holds) = (frame_beats_max(width_bits), 1 << ADDRESS);
    for core_hz in [50_000_000, 250_000_000] {
        for mac_hz in [core_hz, fastest(longest, holds, core_hz)] {
            let clocks_of: Vec<ClockOf<MacEntry<64, 4, ADDRESS, COUNT>>> =
                vec![|block| &mut block.mac_clock, |block| &mut block.clock];
            let mut bench = Bench::with_clocks(MacEntry::default(), clocks_of);
            let periods_as = [mac_hz, core_hz].map(|hertz| SECOND_AS / hertz);
            let mut due_as = periods_as;
            let lengths = [longest, longest, 1, 3, longest];
            let sent: Vec<Word> =
                (0..).zip(lengths).flat_map(|(number, length)| frame(number, length)).collect();
            let (mut offered, mut received, mut begins_as) = (0, Vec::new(), 0);
            while received.len() < sent.len() {
                assert!(due_as[1] < sent.len() as u64 * 3 * periods_as[1], "beats are lost: {mac_hz} Hz");
                let clock = usize::from(due_as[1] < due_as[0]);
                if clock == 0 {
                    // The wire brings no beat sooner than the core takes it.
                    let is_due = due_as[0] >= begins_as;
                    let beat = sent.get(offered).filter(|_| is_due);
                    bench.block.valid.next = beat.is_some();
                    bench.block.beat.next = beat.copied().unwrap_or_default();
                    offered += usize::from(beat.is_some());
                    if beat.is_some_and(|beat| beat.last) {
                        begins_as = offered as u64 * periods_as[1];
                    }
                }
                bench.settle();
                if clock == 1 && bench.block.received.valid.val() {
                    received.push(bench.block.received.value.val());
                }
                bench.tick_clocks(&[clock]);
                due_as[clock] += periods_as[clock];
            }
            assert_eq!(received, sent, "{core_hz} Hz, {mac_hz} Hz");
        }
    }
}

#[test]
fn a_mac_may_hand_over_a_frame_at_its_own_clock() {
    no_frame_is_cut_off::<7, 8>(64);
    no_frame_is_cut_off::<7, 8>(256);
    no_frame_is_cut_off::<6, 7>(512);
}

#[test]
fn a_head_start_is_what_the_mac_gains_in_a_frame() {
    let start = |width_bits, core_mhz: u64, mac_hz| {
        head_start(frame_beats_max(width_bits), core_mhz * 1_000_000, mac_hz)
    };
    for (width_bits, core_mhz, mac_hz, beats) in [
        (64, 250, 156_250_000, 3),
        (512, 250, 250_000_000, 3),
        (512, 250, 250_000_001, 4),
        (512, 250, 322_265_625, 18),
        (512, 208, 322_265_625, 26),
        (512, 200, 322_265_625, 27),
        (256, 250, 322_265_625, 32),
        (64, 250, 322_265_625, 121),
    ] {
        assert_eq!(
            start(width_bits, core_mhz, mac_hz),
            beats,
            "{width_bits} bits, {core_mhz} MHz, {mac_hz} Hz"
        );
    }
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
                } else if bench.block.received.valid.val() {
                    reader.take(bench.block.received.value.val());
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
        let mut bench = Bench::with_clocks(Exit::new(HEAD_START), clocks_of).in_lock_step();
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
