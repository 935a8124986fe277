//! Between the clocks of the MAC and that of the core.
//!
//! ```text
//!  mac_rx_clock                          core clock                             mac_tx_clock
//!  MacReceive ──> FrameEntry ──> AsyncFifo ──> receive ..  assemble ──> FrameHold ──> AsyncFifo ──> MacTransmit
//!                 closes a frame                                        a frame starts when the
//!                 that found no room                                    wire cannot overtake it
//! ```
//!
//! Resets are paired ([`ResetPair`]): a reset of the MAC or of the core alone empties both sides of the queue. Frames stay
//! whole all the same. A frame of which a part is already on the way is closed with an error; of a frame whose begin is gone, no
//! later beat passes. So a MAC can be reset under traffic, as the re-initialisation of a CMAC does, and the core by software.
//!
//! A MAC cannot wait, neither for room nor for data. So a frame from the wire that finds no room is cut off and marked as
//! broken, which the receive path counts as an error of the MAC; and a frame to the wire is held until it is whole here, or so
//! long that the rest arrives in time.
use rnic_blocks::memory::Storage;
use rnic_blocks::stream::{AsyncFifo, Beat, ResetPair, StreamRx, StreamTx, Synchronizer};
use rnic_kernel::prelude::*;

/// From the MAC to the core: frames cross whole, or cut off with an error on their last beat.
///
/// `2^ADDRESS` beats of room. At 250 MHz the core takes more than 100 Gb/s, so room is needed only while the clocks
/// start, or where a configuration makes the core slower than its wire.
///
/// Latency 6 cycles; a beat a cycle of the slower clock.
///
/// 1. A frame that is cut off is closed by one beat with `last` and `error`.
/// 2. Of a frame that is cut off, no later beat passes.
/// 3. After `restart`, and after a reset of either side, the first beat to the core is the first one of a frame.
#[derive(LogicBlock, Registers, Construct)]
pub struct MacEntry<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> {
    /// Clock of the MAC.
    pub mac_clock: Signal<In, Clock>,
    /// Synchronous to `mac_clock`, active high.
    pub mac_reset: Signal<In, Bit>,
    /// From [`MacReceive`](crate::mac::MacReceive).
    pub beat: Signal<In, Beat<DATA, BYTES>>,
    /// `beat` is valid in this cycle; there is no `ready`.
    pub valid: Signal<In, Bit>,
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// The receive path is reset and has forgotten the frame that it was taking.
    pub restart: Signal<In, Bit>,
    /// To the receive path, which takes every beat; one level of logic after registers.
    pub received: Signal<Out, Beat<DATA, BYTES>>,
    /// `received` is valid in this cycle.
    pub received_valid: Signal<Out, Bit>,
    resets: ResetPair,
    #[domain(clock = mac_clock, reset = mac_reset)]
    guard: FrameEntry<DATA, BYTES>,
    ending: FrameEnding<DATA, BYTES>,
    #[init(AsyncFifo::new(Storage::Block))]
    fifo: AsyncFifo<Beat<DATA, BYTES>, ADDRESS, COUNT>,
}

impl<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> Logic
    for MacEntry<DATA, BYTES, ADDRESS, COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.guard.beat.next = self.beat.val();
        self.guard.valid.next = self.valid.val();
        self.resets.a_clock.next = self.mac_clock.val();
        self.resets.a_reset.next = self.mac_reset.val();
        self.resets.b_clock.next = self.clock.val();
        self.resets.b_reset.next = self.reset.val();
        self.guard.flush.next = self.resets.a_hold.val();
        self.fifo.write_clock.next = self.mac_clock.val();
        self.fifo.write_reset.next = self.resets.a_hold.val();
        StreamTx::<Beat<DATA, BYTES>>::join(&mut self.guard.tx, &mut self.fifo.rx);
        self.fifo.read_clock.next = self.clock.val();
        self.fifo.read_reset.next = self.resets.b_hold.val();
        self.fifo.tx.ready.next = true;
        self.ending.restart.next = self.restart.val();
        self.ending.flush.next = self.resets.b_hold.val();
        self.ending.beat.next = self.fifo.tx.beat.val();
        self.ending.valid.next = self.fifo.tx.valid.val();
        self.received.next = self.ending.received.val();
        self.received_valid.next = self.ending.received_valid.val();
    }
}

/// Turns beats that cannot wait into a stream.
#[derive(Default, LogicBlock, Registers)]
struct FrameEntry<const DATA: usize, const BYTES: usize> {
    /// Clock of the MAC.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// A beat of a frame.
    pub beat: Signal<In, Beat<DATA, BYTES>>,
    /// `beat` is valid in this cycle; there is no `ready`.
    pub valid: Signal<In, Bit>,
    /// The queue is being emptied: the rest of the frame that passes is dropped.
    pub flush: Signal<In, Bit>,
    /// To the queue. A beat is offered once; if it is not taken, it is lost.
    pub tx: StreamTx<Beat<DATA, BYTES>>,
    /// A part of the frame that passes is in the queue.
    begun: Reg<Bit>,
    /// The rest of the frame that passes is dropped.
    dropping: Reg<Bit>,
    /// A frame in the queue waits to be closed.
    closing: Reg<Bit>,
}

impl<const DATA: usize, const BYTES: usize> Logic for FrameEntry<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let beat = self.beat.val();
        let valid = self.valid.val();
        let (dropping, closing) = (self.dropping.q.val(), self.closing.q.val());
        let has_room = self.tx.ready.val();

        // The closing beat goes first; frames that come meanwhile are lost as a whole.
        let flush = self.flush.val();
        self.tx.valid.next = !flush && (closing || (valid && !dropping));
        self.tx.beat.next = beat;
        if closing {
            self.tx.beat.next = Beat::<DATA, BYTES> {
                data: bits::<DATA>(0),
                bytes: bits::<BYTES>(1),
                last: true,
                error: true,
            };
        }
        if closing && has_room {
            self.closing.d.next = false;
        }
        if valid {
            let lost = closing || dropping || !has_room;
            self.dropping.d.next = lost && !beat.last;
            self.begun.d.next = !lost && !beat.last;
            if !closing && !dropping && !has_room && self.begun.q.val() {
                self.closing.d.next = true;
            }
        }
        if flush {
            self.closing.d.next = false;
            self.begun.d.next = false;
            self.dropping.d.next = if valid { !beat.last } else { dropping || self.begun.q.val() };
        }
    }
}

/// Ends frames at the core that the queue lost or that the core has forgotten.
#[derive(Default, LogicBlock, Registers)]
struct FrameEnding<const DATA: usize, const BYTES: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// The receive path has forgotten its frame: the rest of it is dropped.
    pub restart: Signal<In, Bit>,
    /// The queue is being emptied: the frame that the receive path has begun is closed.
    pub flush: Signal<In, Bit>,
    /// Beat of the queue.
    pub beat: Signal<In, Beat<DATA, BYTES>>,
    /// `beat` is valid in this cycle.
    pub valid: Signal<In, Bit>,
    /// See [`MacEntry::received`].
    pub received: Signal<Out, Beat<DATA, BYTES>>,
    /// See [`MacEntry::received_valid`].
    pub received_valid: Signal<Out, Bit>,
    /// The receive path has a part of a frame.
    open: Reg<Bit>,
    /// The rest of a frame is dropped.
    dropping: Reg<Bit>,
}

impl<const DATA: usize, const BYTES: usize> Logic for FrameEnding<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let beat = self.beat.val();
        let (restart, flush) = (self.restart.val(), self.flush.val());
        let (open, dropping) = (self.open.q.val(), self.dropping.q.val());
        let closes = flush && open && !restart;
        let passes = self.valid.val() && !dropping && !flush && !restart;
        self.received.next = Beat::<DATA, BYTES> {
            data: beat.data,
            bytes: select(closes, bits::<BYTES>(1), beat.bytes),
            last: beat.last || closes,
            error: beat.error || closes,
        };
        self.received_valid.next = passes || closes;
        if passes {
            self.open.d.next = !beat.last;
        }
        if flush || restart {
            self.open.d.next = false;
        }
        if flush {
            // The queue begins anew with a frame.
            self.dropping.d.next = false;
        } else if self.valid.val() {
            self.dropping.d.next = (dropping || restart) && !beat.last;
        } else if restart {
            self.dropping.d.next = dropping || open;
        }
    }
}

/// Beats that are stored before an unfinished frame starts: what a MAC at 322 MHz gains on a core at 250 MHz in a frame of
/// 4,224 bytes at 512 bits, and more than it gains at other widths.
const HEAD_START: u64 = 24;
/// Width of the count of frames that may start.
const FRAMES: usize = 8;

/// From the core to the MAC: a frame starts when it can no longer run dry.
///
/// Latency 8 cycles for a frame of one beat; a beat a cycle of the slower clock. `2^ADDRESS` beats of room: at least 32, since
/// a long frame starts when 24 beats of it are here, and at most 128, since the frames are counted in 8 bits; other sizes do
/// not compile.
///
/// 1. Between the first and the last beat of a frame, `tx.valid` stays high if the core offers its beats without a gap.
/// 2. A frame that `restart` or a reset interrupts is closed by one beat with `last` and `error`, if a part of it may be on the
///    wire.
#[derive(LogicBlock, Registers, Construct)]
#[require(5 <= ADDRESS && ADDRESS <= 7)]
pub struct MacExit<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// Frames to send.
    pub rx: StreamRx<Beat<DATA, BYTES>>,
    /// The block before is reset and has forgotten the frame that it was sending.
    pub restart: Signal<In, Bit>,
    /// Clock of the MAC.
    pub mac_clock: Signal<In, Clock>,
    /// Synchronous to `mac_clock`, active high.
    pub mac_reset: Signal<In, Bit>,
    /// To [`MacTransmit`](crate::mac::MacTransmit).
    pub tx: StreamTx<Beat<DATA, BYTES>>,
    resets: ResetPair,
    hold: FrameHold<DATA, BYTES>,
    #[domain(clock = mac_clock, reset = mac_reset)]
    release: FrameRelease<DATA, BYTES>,
    #[init(AsyncFifo::new(Storage::Block))]
    fifo: AsyncFifo<Beat<DATA, BYTES>, ADDRESS, COUNT>,
    #[domain(clock = mac_clock)]
    starts: Synchronizer<FRAMES>,
}

impl<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> Logic
    for MacExit<DATA, BYTES, ADDRESS, COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.resets.a_clock.next = self.clock.val();
        self.resets.a_reset.next = self.reset.val();
        self.resets.b_clock.next = self.mac_clock.val();
        self.resets.b_reset.next = self.mac_reset.val();
        StreamRx::<Beat<DATA, BYTES>>::link(&mut self.rx, &mut self.hold.rx);
        self.hold.restart.next = self.restart.val();
        self.hold.flush.next = self.resets.a_hold.val();
        self.release.flush.next = self.resets.b_hold.val();
        self.fifo.write_clock.next = self.clock.val();
        self.fifo.write_reset.next = self.resets.a_hold.val();
        StreamTx::<Beat<DATA, BYTES>>::join(&mut self.hold.tx, &mut self.fifo.rx);
        self.starts.d.next = self.hold.starts.val();
        self.fifo.read_clock.next = self.mac_clock.val();
        self.fifo.read_reset.next = self.resets.b_hold.val();
        self.release.starts.next = self.starts.q.val();
        StreamTx::<Beat<DATA, BYTES>>::join(&mut self.fifo.tx, &mut self.release.rx);
        StreamTx::<Beat<DATA, BYTES>>::link(&mut self.tx, &mut self.release.tx);
    }
}

/// Counts the frames that may start. Lets every beat pass, but for those of interrupted frames.
#[derive(Default, LogicBlock, Registers)]
struct FrameHold<const DATA: usize, const BYTES: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub rx: StreamRx<Beat<DATA, BYTES>>,
    pub tx: StreamTx<Beat<DATA, BYTES>>,
    /// The frame that passes ends here: its source has forgotten it.
    pub restart: Signal<In, Bit>,
    /// The queue is being emptied: what comes meanwhile is dropped, up to the end of its frame.
    pub flush: Signal<In, Bit>,
    /// Frames that may start, in Gray code; registered.
    pub starts: Signal<Out, Bits<FRAMES>>,
    /// Beats of the current frame that have passed, up to [`HEAD_START`].
    beats: Reg<Bits<5>>,
    /// A frame in the queue waits to be closed.
    closing: Reg<Bit>,
    /// The rest of the frame that passes is dropped.
    dropping: Reg<Bit>,
    count: Reg<Bits<FRAMES>>,
    gray: Reg<Bits<FRAMES>>,
}

impl<const DATA: usize, const BYTES: usize> Logic for FrameHold<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let offered = self.rx.beat.val();
        let valid = self.rx.valid.val();
        let (flush, restart) = (self.flush.val(), self.restart.val());
        let (closing, dropping) = (self.closing.q.val(), self.dropping.q.val());
        let swallows = flush || dropping;
        let beat = Beat::<DATA, BYTES> {
            data: offered.data,
            bytes: select(closing, bits::<BYTES>(1), offered.bytes),
            last: offered.last || closing,
            error: offered.error || closing,
        };
        self.tx.beat.next = beat;
        self.tx.valid.next = closing || (valid && !swallows && !restart);
        self.rx.ready.next = swallows || (self.tx.ready.val() && !closing && !restart);
        self.starts.next = self.gray.q.val();

        let moves = (closing || (valid && !swallows && !restart)) && self.tx.ready.val();
        let beats = self.beats.q.val();
        let is_held = beats != HEAD_START;
        let may_start = moves && is_held && (beat.last || beats == HEAD_START - 1);
        if may_start {
            let next = self.count.q.val() + 1;
            self.count.d.next = next;
            self.gray.d.next = next ^ (next >> 1);
        }
        if moves {
            self.beats.d.next = if beat.last {
                bits(0)
            } else if is_held {
                beats + 1
            } else {
                beats
            };
            self.closing.d.next = false;
        }
        if swallows && valid {
            self.dropping.d.next = !offered.last;
        }
        if restart {
            self.closing.d.next = (closing && !moves) || (!closing && beats.any());
            self.dropping.d.next = false;
        }
        if flush {
            // The queue and the wire begin anew; the source may be in the middle of a frame.
            self.closing.d.next = false;
            self.beats.d.next = bits(0);
            self.count.d.next = bits(0);
            self.gray.d.next = bits(0);
            self.dropping.d.next = if restart {
                false
            } else if valid {
                !offered.last
            } else {
                dropping || (beats.any() && !closing)
            };
        }
    }
}

/// Holds a frame until it may start.
#[derive(Default, LogicBlock, Registers)]
struct FrameRelease<const DATA: usize, const BYTES: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub rx: StreamRx<Beat<DATA, BYTES>>,
    pub tx: StreamTx<Beat<DATA, BYTES>>,
    /// The queue is being emptied: the frame that has started is closed.
    pub flush: Signal<In, Bit>,
    /// Frames that may start, in Gray code.
    pub starts: Signal<In, Bits<FRAMES>>,
    /// Frames that have started, in Gray code; `starts` is ahead by at most the depth of the queue.
    gray: Reg<Bits<FRAMES>>,
    count: Reg<Bits<FRAMES>>,
    inside: Reg<Bit>,
    /// The frame that has started waits to be closed.
    closing: Reg<Bit>,
}

impl<const DATA: usize, const BYTES: usize> Logic for FrameRelease<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let inside = self.inside.q.val();
        let flush = self.flush.val();
        let closing = self.closing.q.val() || (flush && inside);
        let opens = !closing && !flush && (inside || self.gray.q.val() != self.starts.val());
        let offered = self.rx.beat.val();
        self.tx.beat.next = Beat::<DATA, BYTES> {
            data: offered.data,
            bytes: select(closing, bits::<BYTES>(1), offered.bytes),
            last: offered.last || closing,
            error: offered.error || closing,
        };
        self.tx.valid.next = closing || (self.rx.valid.val() && opens);
        self.rx.ready.next = self.tx.ready.val() && opens;
        let moves = self.rx.valid.val() && opens && self.tx.ready.val();
        if moves {
            self.inside.d.next = !offered.last;
        }
        if moves && !inside {
            let next = self.count.q.val() + 1;
            self.count.d.next = next;
            self.gray.d.next = next ^ (next >> 1);
        }
        self.closing.d.next = closing && !self.tx.ready.val();
        if flush {
            self.inside.d.next = false;
            self.count.d.next = bits(0);
            self.gray.d.next = bits(0);
        }
    }
}

#[cfg(test)]
mod tests {
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
}
