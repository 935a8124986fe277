//! Neighbours for tests: streams of tokens, host memory, and a host that reads and answers as it likes.
use crate::arrivals::ReadWord;
use crate::read_engine::HostRead;
use num_bigint::BigUint;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Random, Stalls};
use rnic_blocks::stream::StreamRx;
use rnic_kernel::prelude::*;
use std::collections::VecDeque;

/// Offers tokens in order, each until it is taken; between them the port shows one that is not offered.
pub struct Offers<T> {
    waiting: VecDeque<T>,
    stalls: bool,
    is_offering: bool,
}

impl<T: Synth> Offers<T> {
    pub fn new(tokens: impl IntoIterator<Item = T>, stalls: Stalls) -> Self {
        Offers { waiting: tokens.into_iter().collect(), stalls: stalls.source(), is_offering: false }
    }

    pub fn push(&mut self, token: T) {
        self.waiting.push_back(token);
    }

    /// Sets the inputs of the port, before the cycle settles.
    pub fn drive(&mut self, port: &mut StreamRx<T>, random: &mut Random) {
        let may_start = !self.stalls || random.random_bool(0.4);
        self.is_offering = !self.waiting.is_empty() && (self.is_offering || may_start);
        port.valid.next = self.is_offering;
        port.beat.next = match self.waiting.front() {
            Some(&token) if self.is_offering || random.random() => token,
            _ => T::default(),
        };
    }

    /// Says which token was taken, when the cycle has settled.
    pub fn sample(&mut self, port: &StreamRx<T>) -> Option<T> {
        let is_taken = self.is_offering && port.ready.val();
        self.is_offering &= !is_taken;
        if is_taken { self.waiting.pop_front() } else { None }
    }
}

/// Generates a block, as the card does at widths at which it is not run.
pub fn generates<B: Block>(mut block: B) {
    rnic_kernel::generate(&mut block, "block").expect("the block has exact Verilog");
}

/// What stands at an address of host memory.
pub fn memory_byte(address: u64) -> u8 {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// What stands in a stretch of it.
pub fn memory_bytes(address: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|offset| memory_byte(address.wrapping_add(offset))).collect()
}

/// The bytes of a value, the lowest first.
pub fn bytes_of<const N: usize>(value: Bits<N>) -> Vec<u8> {
    let mut bytes = BigUint::from(value).to_bytes_le();
    bytes.resize(N / 8, 0);
    bytes
}

/// How a host treats a read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// It answers.
    None,
    /// It ends the answer early, with an error.
    Error,
    /// It ends the answer early and does not say so.
    Short,
}

/// A host that reads its memory when and in which order it likes.
pub struct ReadHost<const DATA: usize, const BYTES: usize, const TAG: usize> {
    /// Cycles to the first word of an answer.
    pub latency: std::ops::RangeInclusive<u64>,
    /// Answers overtake each other and are mixed word by word.
    pub reorders: bool,
    /// Decides what becomes of a read by its address.
    pub fault: fn(u64) -> Fault,
    pub requests: usize,
    pub errors: usize,
    now: u64,
    answers: Vec<(u64, VecDeque<ReadWord<DATA, BYTES, TAG>>)>,
}

impl<const DATA: usize, const BYTES: usize, const TAG: usize> ReadHost<DATA, BYTES, TAG> {
    pub fn new(latency: std::ops::RangeInclusive<u64>, reorders: bool, fault: fn(u64) -> Fault) -> Self {
        ReadHost { latency, reorders, fault, requests: 0, errors: 0, now: 0, answers: Vec::new() }
    }

    /// Takes a request.
    pub fn accept(&mut self, read: HostRead<TAG>, random: &mut Random) {
        let (width, mut address, length) = ((DATA / 8) as u64, read.address.to_u64(), read.length.to_u64());
        assert!(length > 0 && address % 512 + length <= 512, "a read crosses a boundary: {read:?}");
        let end = address + length;
        let mut words = VecDeque::new();
        while address < end {
            let base = address / width * width;
            let next = base + width;
            let lanes: Vec<u8> = (base..next)
                .map(|at| if at >= address && at < end { memory_byte(at) } else { random.random() })
                .collect();
            let data = BigUint::from_bytes_le(&lanes).into();
            let bytes = bits(next.min(end) - address);
            words.push_back(ReadWord { data, bytes, last: next >= end, error: false, tag: read.tag });
            address = next;
        }
        let fault = (self.fault)(read.address.to_u64());
        if fault != Fault::None {
            words.truncate(random.random_range(1..=words.len()));
            let last = words.back_mut().expect("an answer has words");
            last.last = true;
            last.error = fault == Fault::Error;
        }
        self.requests += 1;
        self.errors += usize::from(fault == Fault::Error);
        self.answers.push((self.now + random.random_range(self.latency.clone()), words));
    }

    /// Answers a word, perhaps; called once a cycle.
    pub fn word(&mut self, random: &mut Random) -> Option<ReadWord<DATA, BYTES, TAG>> {
        self.now += 1;
        let due: Vec<usize> =
            (0..self.answers.len()).filter(|&index| self.answers[index].0 <= self.now).collect();
        let chosen = if self.reorders { due.choose(random) } else { due.first() };
        let index = *chosen.filter(|_| !self.reorders || random.random_bool(0.9))?;
        let word = self.answers[index].1.pop_front();
        if self.answers[index].1.is_empty() {
            self.answers.remove(index);
        }
        word
    }
}
