//! Drivers for both ends of a stream, which stall when told to, and hold the block to the handshake.
use super::Bench;
use super::stimulus::{Random, Stimulus};
use crate::stream::{Beat, StreamRx, StreamTx};
use num_bigint::BigUint;
use rand::Rng;
use rnic_kernel::prelude::*;
use std::collections::VecDeque;

/// Which ends of a stream pause at random. Every block is tested with all four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stalls {
    /// Neither end: full throughput.
    None,
    /// The source offers nothing in about half of the cycles.
    Source,
    /// The sink takes nothing in about half of the cycles.
    Sink,
    /// Both of them.
    Both,
}

impl Stalls {
    /// All four combinations.
    pub const ALL: [Stalls; 4] = [Stalls::None, Stalls::Source, Stalls::Sink, Stalls::Both];

    /// Whether the source pauses.
    pub fn source(self) -> bool {
        matches!(self, Stalls::Source | Stalls::Both)
    }

    /// Whether the sink pauses.
    pub fn sink(self) -> bool {
        matches!(self, Stalls::Sink | Stalls::Both)
    }
}

/// Offers beats to a block, in order, each until it is taken; between beats the port carries noise.
pub struct Source<T> {
    waiting: VecDeque<T>,
    stalls: bool,
    is_offering: bool,
    noise: Noise<T>,
    last: T,
}

/// What the port carries between beats.
enum Noise<T> {
    /// Random values.
    Random(fn(&mut Random) -> T),
    /// The beat before.
    Last,
    /// The next beat, although it is not valid yet, or nothing.
    Next,
}

impl<T: Stimulus> Source<T> {
    /// Prepares to send `beats`; the noise between them is random.
    pub fn new(beats: impl IntoIterator<Item = T>, stalls: Stalls) -> Self {
        Source { noise: Noise::Random(T::sample), ..Source::of_tokens(beats, stalls) }
    }
}

impl<T: Synth> Source<T> {
    /// Prepares to send `beats` of a type that cannot be drawn at random; the noise after a beat is the beat itself.
    pub fn of_tokens(beats: impl IntoIterator<Item = T>, stalls: Stalls) -> Self {
        let waiting = beats.into_iter().collect();
        Source {
            waiting,
            stalls: stalls.source(),
            is_offering: false,
            noise: Noise::Last,
            last: T::default(),
        }
    }

    /// Prepares to send `beats`, each of which may be seen at the port before it is valid.
    pub fn showing_next(beats: impl IntoIterator<Item = T>, stalls: Stalls) -> Self {
        Source { noise: Noise::Next, ..Source::of_tokens(beats, stalls) }
    }

    /// Adds a beat after those that wait.
    pub fn push(&mut self, beat: T) {
        self.waiting.push_back(beat);
    }

    /// Sets the inputs of the port; call it before the cycle settles.
    pub fn drive(&mut self, port: &mut StreamRx<T>, random: &mut Random) {
        let may_start = !self.stalls || random.random();
        self.is_offering = !self.waiting.is_empty() && (self.is_offering || may_start);
        port.valid.next = self.is_offering;
        port.beat.next = match (self.waiting.front(), &self.noise) {
            (Some(&beat), _) if self.is_offering => beat,
            (_, Noise::Random(noise)) => noise(random),
            (_, Noise::Last) => self.last,
            (Some(&beat), Noise::Next) if random.random() => beat,
            (_, Noise::Next) => T::default(),
        };
        self.last = port.beat.next;
    }

    /// Sees whether the beat is taken; call it when the cycle has settled, before the clock rises.
    pub fn sample(&mut self, port: &StreamRx<T>) -> bool {
        let is_taken = self.is_offering && port.ready.val();
        if is_taken {
            self.waiting.pop_front();
            self.is_offering = false;
        }
        is_taken
    }

    /// All beats have been taken.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Takes beats from a block and checks that one that is offered stays until it is taken.
pub struct Sink<T> {
    /// What has been taken, in order.
    pub received: Vec<T>,
    stalls: bool,
    offered: Option<T>,
}

impl<T: Synth> Sink<T> {
    /// Takes beats at once, or with pauses.
    pub fn new(stalls: Stalls) -> Self {
        Sink { received: Vec::new(), stalls: stalls.sink(), offered: None }
    }

    /// Sets the input of the port; call it before the cycle settles.
    pub fn drive(&mut self, port: &mut StreamTx<T>, random: &mut Random) {
        port.ready.next = !self.stalls || random.random();
    }

    /// Takes the beat that moves; call it when the cycle has settled, before the clock rises.
    pub fn sample(&mut self, port: &StreamTx<T>) -> Option<T> {
        let (beat, is_valid) = (port.beat.val(), port.valid.val());
        if let Some(offered) = self.offered {
            assert!(is_valid, "an offer was withdrawn before it was taken");
            assert_eq!(beat, offered, "the beat changed before it was taken");
        }
        let is_taken = is_valid && port.ready.val();
        self.offered = (is_valid && !is_taken).then_some(beat);
        if is_taken {
            self.received.push(beat);
        }
        is_taken.then_some(beat)
    }
}

/// Sends `beats` through a block that has one stream in and one out; returns what came out, and in how many cycles.
///
/// # Panics
/// When fewer than `expected_count` beats come out in any sensible time, or when more follow.
pub fn transfer<B: Block + Registers, T: Stimulus, U: Synth>(
    bench: &mut Bench<B>,
    rx: fn(&mut B) -> &mut StreamRx<T>,
    tx: fn(&mut B) -> &mut StreamTx<U>,
    beats: Vec<T>,
    expected_count: usize,
    stalls: Stalls,
    random: &mut Random,
) -> (Vec<U>, usize) {
    let limit = 100 + 10 * (beats.len() + expected_count);
    let mut source = Source::new(beats, stalls);
    let mut sink = Sink::new(stalls);
    let mut cycle = |bench: &mut Bench<B>, source: &mut Source<T>, sink: &mut Sink<U>| {
        source.drive(rx(&mut bench.block), random);
        sink.drive(tx(&mut bench.block), random);
        bench.settle();
        source.sample(rx(&mut bench.block));
        sink.sample(tx(&mut bench.block));
        bench.tick();
    };
    let mut cycles = 0;
    while sink.received.len() < expected_count || !source.is_done() {
        assert!(
            cycles < limit,
            "{} of {expected_count} beats came out in {limit} cycles with stalls {stalls:?}",
            sink.received.len()
        );
        cycle(bench, &mut source, &mut sink);
        cycles += 1;
    }
    (0..20).for_each(|_| cycle(bench, &mut source, &mut sink));
    assert_eq!(sink.received.len(), expected_count, "beats came out that nobody sent");
    (sink.received, cycles)
}

/// Cuts a frame into beats. Bytes beyond the end hold noise, which nothing may depend on.
pub fn beats_of<const DATA: usize, const BYTES: usize>(
    frame: &[u8],
    random: &mut Random,
) -> Vec<Beat<DATA, BYTES>> {
    let chunks: Vec<_> = frame.chunks(DATA / 8).collect();
    let last = chunks.len().saturating_sub(1);
    let beats = chunks.iter().enumerate().map(|(index, chunk)| {
        let mut lanes: Vec<u8> = (0..DATA / 8).map(|_| random.random()).collect();
        lanes[..chunk.len()].copy_from_slice(chunk);
        Beat {
            data: BigUint::from_bytes_le(&lanes).into(),
            bytes: bits(chunk.len() as u64),
            last: index == last,
            error: false,
        }
    });
    beats.collect()
}

/// Joins beats to frames, each with its error mark.
///
/// # Panics
/// When a beat other than the last of a frame is not full, or when the last frame is not finished.
pub fn frames_of<const DATA: usize, const BYTES: usize>(beats: &[Beat<DATA, BYTES>]) -> Vec<(Vec<u8>, bool)> {
    let mut frames = Vec::new();
    let mut frame = Vec::new();
    for beat in beats {
        let count = beat.bytes.to_u64() as usize;
        assert!(count > 0 && count <= DATA / 8, "a beat holds 1 to {} bytes, not {count}", DATA / 8);
        assert!(beat.last || count == DATA / 8, "only the last beat may be short");
        let mut lanes = BigUint::from(beat.data).to_bytes_le();
        lanes.resize(DATA / 8, 0);
        frame.extend_from_slice(&lanes[..count]);
        if beat.last {
            frames.push((std::mem::take(&mut frame), beat.error));
        }
    }
    assert!(frame.is_empty(), "the last frame is not finished");
    frames
}
