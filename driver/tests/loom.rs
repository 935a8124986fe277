//! The handshakes of driver and card, in every order that the memory model allows.
//!
//! Two parts. The rings alone: the card is a thread that follows the layout, reads WQEs only below the producer index of the
//! doorbell, writes the phase bit of a CQE last, and overwrites a CQE only after the doorbell has released it. The driver as it
//! is: one thread posts and polls through [`rnic_driver::QueuePair`] and [`rnic_driver::CompletionQueue`], while others run the
//! fake card, or poll too, or have the other half of the queue pair; at most two preemptions happen in one run. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p rnic-driver --release --test loom`.
#![cfg(loom)]

#[allow(dead_code, reason = "the model checker uses a part of the fake card")]
#[path = "device/fake/mod.rs"]
mod fake;
#[allow(dead_code, reason = "and a part of the rig")]
#[path = "device/rig.rs"]
mod rig;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use rnic_driver::in_flight::in_flight;
use rnic_driver::ring::{PhaseRing, Words, WorkRing, write_slot};
use rnic_driver::{Completion, CompletionQueue, Function, ReceiveRequest, SendRequest};
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

/// A table of one slot: each request is put after the one before it was taken, and taken as it was put.
#[test]
fn a_request_in_flight_belongs_to_one_thread() {
    loom::model(|| {
        let (mut poster, mut retirer) = in_flight(0);
        let other = thread::spawn(move || {
            for request in 0..2 {
                while poster.free(1) == 0 {
                    thread::yield_now();
                }
                poster.put(request, 1);
            }
        });
        for request in 0..2 {
            while retirer.look(request, |&seen| assert_eq!(seen, request)).is_none() {
                thread::yield_now();
            }
            retirer.take_before(request + 1, |taken| assert_eq!(taken, request));
        }
        other.join().unwrap();
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

/// Steps of the card that run beside the driver. Later ones run after it.
const STEPS: usize = 2;

/// Stack of a thread that opens a card, in words of 64 bits; the usual one of loom is too small for that.
const STACK_WORDS: usize = 1 << 16;

fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().stack_size(STACK_WORDS).spawn(run).expect("loom starts a thread")
}

/// Explores the orders of a run with at most two preemptions.
fn explore(run: impl Fn() + Sync + Send + 'static) {
    let run = std::sync::Arc::new(run);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    // Opening a card and connecting its queue pairs are some thousand accesses.
    builder.max_branches = 100_000;
    builder.check(move || {
        let run = std::sync::Arc::clone(&run);
        spawn(move || run()).join().expect("the run ends");
    });
}

/// Starts a thread in which the card takes some steps.
fn start_card(function: &std::sync::Arc<fake::FakeFunction>) -> thread::JoinHandle<()> {
    let function = std::sync::Arc::clone(function);
    spawn(move || (0..STEPS).for_each(|_| function.idle()))
}

fn poll(queue: &CompletionQueue, into: &mut Vec<Completion>) {
    let done = queue.poll_one().expect("the card writes legal CQEs");
    assert!(done.as_ref().is_none_or(Completion::is_success), "{done:?}");
    into.extend(done);
}

/// Polls completions of any status.
fn poll_any(queue: &CompletionQueue, into: &mut Vec<Completion>) {
    into.extend(queue.poll_one().expect("the card writes legal CQEs"));
}

fn wr_ids(done: &[Completion]) -> Vec<u64> {
    done.iter().map(|completion| completion.wr_id).collect()
}

/// The card takes WQEs and writes CQEs while the driver posts and polls.
#[test]
fn what_is_posted_beside_the_card_completes() {
    explore(|| {
        let mut pair = rig::pair();
        let immediate = |wr_id: u64| [wr_id as u8; 4];
        pair.right.post_receive(ReceiveRequest::new(11)).expect("there is room");
        let card = start_card(&pair.function);
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for wr_id in [1, 2] {
            let request = SendRequest::send_immediate(wr_id, immediate(wr_id)).signalled();
            pair.left.post_send(request).expect("there is room");
            poll(&pair.queues[0], &mut sent);
        }
        pair.right.post_receive(ReceiveRequest::new(12)).expect("there is room");
        poll(&pair.queues[1], &mut received);
        card.join().expect("the card sees nothing wrong");
        pair.idle(4);
        for _ in 0..2 {
            poll(&pair.queues[0], &mut sent);
            poll(&pair.queues[1], &mut received);
        }
        assert_eq!((wr_ids(&sent), wr_ids(&received)), (vec![1, 2], vec![11, 12]));
        let seen: Vec<_> = received.iter().map(|completion| completion.immediate).collect();
        assert_eq!(seen, [1, 2].map(|wr_id| Some(immediate(wr_id))), "each message is what was posted");
    });
}

/// Two threads poll one queue while the card writes to it: each completion is taken once.
#[test]
fn a_completion_is_taken_by_one_thread() {
    explore(|| {
        let mut pair = rig::pair();
        for wr_id in [1, 2] {
            pair.right.post_receive(ReceiveRequest::new(10 + wr_id)).expect("there is room");
            pair.left.post_send(SendRequest::send(wr_id).signalled()).expect("there is room");
        }
        let card = start_card(&pair.function);
        let other = {
            let queue = pair.queues[0].clone();
            spawn(move || {
                let mut taken = Vec::new();
                poll(&queue, &mut taken);
                wr_ids(&taken)
            })
        };
        let mut taken = Vec::new();
        poll(&pair.queues[0], &mut taken);
        card.join().expect("the card sees nothing wrong");
        let mut all = other.join().expect("the other thread polls");
        pair.idle(4);
        (0..2).for_each(|_| poll(&pair.queues[0], &mut taken));
        all.extend(wr_ids(&taken));
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}

/// One thread has the send half, one the receive half, and one the completion queue.
#[test]
fn two_threads_post_to_one_queue_pair_and_a_third_one_polls() {
    explore(|| {
        let mut pair = rig::pair();
        let mut poller = pair.queues[0].poller().expect("nobody else polls");
        let (mut send, mut receive) = pair.left.split();
        pair.right.post_receive(ReceiveRequest::new(21)).expect("there is room");
        pair.right.post_send(SendRequest::send(31).signalled()).expect("there is room");
        let sender = spawn(move || {
            send.post_send(SendRequest::send(1).signalled()).expect("there is room");
            send
        });
        let receiver = spawn(move || {
            receive.post_receive(ReceiveRequest::new(11)).expect("there is room");
            receive
        });
        // Polls that find nothing let the card go on.
        let mut done = Vec::new();
        (0..STEPS).for_each(|_| done.extend(poller.poll_one().expect("the card writes legal CQEs")));
        let halves = (sender.join().expect("it posts"), receiver.join().expect("it posts"));
        while done.len() < 2 {
            done.extend(poller.poll_one().expect("the card writes legal CQEs"));
        }
        let mut ids = wr_ids(&done);
        ids.sort_unstable();
        assert_eq!(ids, [1, 11]);
        assert_eq!((halves.0.in_flight(), halves.1.in_flight()), (0, 0));
    });
}

/// A queue pair ends while another thread has its completion queue: what was posted completes once, whoever is first.
#[test]
fn a_queue_pair_ends_beside_a_poller() {
    explore(|| {
        let mut pair = rig::pair();
        let mut poller = pair.queues[0].poller().expect("nobody else polls");
        pair.left.post_receive(ReceiveRequest::new(11)).expect("there is room");
        let left = pair.left;
        let ends = spawn(move || drop(left));
        let mut done = Vec::new();
        done.extend(poller.poll_one().expect("the card writes legal CQEs"));
        ends.join().expect("it ends");
        drop(poller);
        poll_any(&pair.queues[0], &mut done);
        poll_any(&pair.queues[0], &mut done);
        assert_eq!(wr_ids(&done), [11]);
    });
}
