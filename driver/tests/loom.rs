//! The handshakes of the rings, in every order that the memory model allows.
//!
//! The card is a thread that follows the layout: it reads WQEs only below the producer index of the doorbell, writes the phase
//! bit of a CQE last, and overwrites a CQE only after the doorbell has released it. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p rnic-driver --release --test loom`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use rnic_driver::ring::{PhaseRing, Words, WorkRing, write_slot};
use rnic_layout::queue::phase;

struct Cells(Vec<AtomicU64>);

impl Cells {
    fn new(words: usize) -> Self {
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Words for Cells {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.0[word].load(order)
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.0[word].store(value, order);
    }
}

fn bytes(first: u64, last: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_ne_bytes());
    bytes[8..].copy_from_slice(&last.to_ne_bytes());
    bytes
}

/// Writes a CQE with first word `value` into a ring of 2^`log2`, as the card does: the word with the phase bit last.
fn write_cqe(words: &Cells, index: u32, log2: u32, value: u64, order: Ordering) {
    let slot = 2 * (index & ((1 << log2) - 1)) as usize;
    words.store(slot, value, Ordering::Relaxed);
    let last = u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, u8::from(phase(index, log2))]);
    words.store(slot + 1, last, order);
}

fn completions(order: Ordering) {
    loom::model(move || {
        const LOG2: u32 = 0;
        let words = Arc::new(Cells::new(2));
        let released = Arc::new(AtomicU64::new(0));
        let card = {
            let (words, released) = (Arc::clone(&words), Arc::clone(&released));
            thread::spawn(move || {
                for index in 0..2 {
                    while index - released.load(Ordering::Acquire) >= 1 << LOG2 {
                        thread::yield_now();
                    }
                    write_cqe(&words, index as u32, LOG2, 100 + index, order);
                }
            })
        };
        let mut ring = PhaseRing::new(LOG2, 24);
        for index in 0..2 {
            let cqe = loop {
                match ring.next::<16>(&*words) {
                    Some(cqe) => break cqe,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(
                cqe[..8],
                (100u64 + index).to_ne_bytes(),
                "a CQE is complete when its phase bit is seen"
            );
            released.store(ring.consumer_index().into(), Ordering::Release);
        }
        card.join().unwrap();
    });
}

fn work(order: Ordering) {
    loom::model(move || {
        const LOG2: u32 = 0;
        let words = Arc::new(Cells::new(2));
        let doorbell = Arc::new(AtomicU64::new(0));
        let done = Arc::new(AtomicU64::new(0));
        let card = {
            let (words, doorbell, done) = (Arc::clone(&words), Arc::clone(&doorbell), Arc::clone(&done));
            thread::spawn(move || {
                for index in 0..2u64 {
                    while doorbell.load(Ordering::Acquire) <= index {
                        thread::yield_now();
                    }
                    let seen = (words.load(0, Ordering::Relaxed), words.load(1, Ordering::Relaxed));
                    assert_eq!(
                        seen,
                        (200 + index, 300 + index),
                        "a WQE is complete when its doorbell arrives"
                    );
                    done.store(index + 1, Ordering::Release);
                }
            })
        };
        let mut ring = WorkRing::new(LOG2);
        for value in 0..2 {
            let index = loop {
                if let Some(index) = ring.claim(1) {
                    break index;
                }
                // A slot is free when the card has reported it.
                ring.release(done.load(Ordering::Acquire) as u16).unwrap();
                thread::yield_now();
            };
            write_slot(&*words, ring.slot(index), &bytes(200 + value, 300 + value));
            doorbell.store(ring.producer_index().into(), order);
        }
        card.join().unwrap();
    });
}

#[test]
fn a_cqe_is_complete_when_its_phase_bit_is_seen() {
    completions(Ordering::Release);
}

#[test]
#[should_panic(expected = "a CQE is complete")]
fn a_card_that_does_not_write_the_phase_bit_last_is_caught() {
    completions(Ordering::Relaxed);
}

#[test]
fn a_wqe_is_complete_when_its_doorbell_arrives() {
    work(Ordering::Release);
}

#[test]
#[should_panic(expected = "a WQE is complete")]
fn a_doorbell_that_overtakes_its_wqe_is_caught() {
    work(Ordering::Relaxed);
}
