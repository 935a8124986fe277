//! What is counted: posts and polls of every kind, over a card that completes at once.

#[allow(dead_code, reason = "only the bench holds doorbells")]
#[path = "../null_card/mod.rs"]
mod null_card;
#[path = "../null_card/ground.rs"]
mod ground;

use ground::Ground;
use rnic_driver::{Completion, QueuePairOptions, ReceiveRequest, SendRequest};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region as Span, Stats, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests of each kind.
const REQUESTS: u64 = 1_000_000;
/// Requests between two polls of everything.
const ROUND: u64 = 50;
/// Every how many sends one is signalled.
const SIGNAL_EVERY: u64 = 8;

fn count(run: impl FnOnce()) -> Stats {
    let span = Span::new(ALLOCATOR);
    run();
    span.change()
}

fn is_silent(stats: &Stats) -> bool {
    (stats.allocations, stats.reallocations, stats.deallocations) == (0, 0, 0)
}

fn ground() -> Ground {
    Ground::new(&QueuePairOptions { send_slots_log2: 7, ..Default::default() }, 2 * ROUND)
}

/// Posts sends of several shapes and receives, and polls them through `poll`, which appends to a list.
fn run(ground: &mut Ground, mut poll: impl FnMut(&mut Vec<Completion>)) {
    let Ground { queue_pair, remote, regions, .. } = ground;
    let mut done = Vec::with_capacity(4 * ROUND as usize);
    let mut sends = Vec::with_capacity(ROUND as usize);
    let mut completed = [0; 2];
    let stats = count(|| {
        for first in (0..REQUESTS).step_by(ROUND as usize) {
            for wr_id in first..first + ROUND {
                let mut region = || regions.pop().expect("memory comes back");
                let send = match wr_id % 4 {
                    0 => SendRequest::send(wr_id).sge(region()).sge(region()),
                    1 => SendRequest::read(wr_id, *remote).sge(region()).fence(),
                    2 => SendRequest::write(wr_id, *remote).inline(&wr_id.to_le_bytes()),
                    _ => SendRequest::write(wr_id, *remote).inline(&[7; 96]),
                };
                sends.push(if wr_id % SIGNAL_EVERY == 0 { send.signalled() } else { send });
            }
            // One by one, as a list, and as a batch.
            match first / ROUND % 3 {
                0 => sends.drain(..).for_each(|send| queue_pair.post_send(send).unwrap()),
                1 => queue_pair.post_sends(&mut sends).unwrap(),
                _ => {
                    let mut batch = queue_pair.send_batch();
                    sends.drain(..).for_each(|send| batch.post(send).unwrap());
                }
            }
            for wr_id in first..first + ROUND {
                let region = regions.pop().expect("memory comes back");
                queue_pair.post_receive(ReceiveRequest::new(wr_id).sge(region)).unwrap();
            }
            loop {
                poll(&mut done);
                if done.is_empty() {
                    break;
                }
                for completion in done.drain(..) {
                    assert!(completion.is_success());
                    let kind = usize::from(completion.is_receive());
                    assert_eq!(completion.wr_id, completed[kind], "in the order of the posts");
                    completed[kind] += 1;
                    regions.extend(completion.sg_list);
                }
            }
        }
    });
    assert!(is_silent(&stats), "{stats:?}");
    let in_flight = queue_pair.in_flight().0 as u64;
    assert_eq!((completed[0] + in_flight, completed[1]), (REQUESTS, REQUESTS));
    assert!(in_flight < SIGNAL_EVERY);
}

/// Checks that a million posts and polls of each kind allocate nothing.
pub(crate) fn a_million_posts_and_polls_allocate_nothing() {
    // The counters work: one box is seen.
    assert!(!is_silent(&count(|| drop(std::hint::black_box(Box::new(1))))));
    // Any number of threads may poll this queue.
    let mut shared = ground();
    let queue = shared.queue.clone();
    run(&mut shared, |done| {
        queue.poll(done, 7).unwrap();
    });
    // One thread has this one, and takes no lock.
    let mut own = ground();
    let mut poller = own.queue.poller().expect("nobody else polls");
    run(&mut own, |done| {
        poller.poll(done, usize::MAX).unwrap();
    });
    // A loop of polls lets a simulated card go on, and most CQEs need no doorbell.
    let [posts, polls] = own.card.doorbells();
    assert!(own.card.idles() >= REQUESTS / ROUND);
    assert!(posts < 2 * REQUESTS && polls < 2 * REQUESTS / 50, "{posts} and {polls} doorbells");
}
