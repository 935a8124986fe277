//! Models for tests: host memory, and a host that answers reads late, out of order and with errors.
use crate::arrivals::ReadWord;
use crate::read_engine::HostRead;
use num_bigint::BigUint;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::Random;
use rnic_kernel::prelude::*;
use std::collections::VecDeque;

/// Generates a block, as the card does at widths at which it is not run.
pub fn generates<B: Block>(mut block: B) {
    rnic_kernel::generate(&mut block, "block").expect("the block has exact Verilog");
}

/// The byte at an address of host memory.
pub fn memory_byte(address: u64) -> u8 {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// The bytes of a span of host memory.
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
    /// The answer is complete.
    None,
    /// The answer ends early, with an error.
    Error,
    /// The answer ends early, without an error.
    Short,
}

/// A host that answers reads after a random time.
pub struct ReadHost<const DATA: usize, const BYTES: usize, const TAG: usize> {
    /// Cycles to the first word of an answer.
    pub latency: std::ops::RangeInclusive<u64>,
    /// Answers overtake each other and are mixed word by word.
    pub reorders: bool,
    /// How a read is treated, by its address.
    pub fault: fn(u64) -> Fault,
    /// Reads that were accepted.
    pub requests: usize,
    /// Reads that were answered with an error.
    pub errors: usize,
    now: u64,
    answers: Vec<(u64, VecDeque<ReadWord<DATA, BYTES, TAG>>)>,
}

impl<const DATA: usize, const BYTES: usize, const TAG: usize> ReadHost<DATA, BYTES, TAG> {
    /// Makes a host that has no reads to answer.
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

    /// Gives a word of an answer, or none; called once a cycle.
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
