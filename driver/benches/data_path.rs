//! Time of posting and polling over the null card: what the driver itself costs.
//!
//! Doorbells are noted only while posts are measured, and the card completes between the measurements. The table shows the median
//! over all rounds; `cargo bench -p rnic-driver` prints it.
//!
//! The post path of rdma-core does not stand beside it. Its providers make a context only from a device of the kernel, through
//! `/dev/infiniband/uverbs*`, or, mlx5, from a function of that family behind VFIO; and that of rxe, which needs no hardware, rings
//! its doorbell by a call of the kernel. A null provider would be code of our own under another name.
#![cfg(not(loom))]

#[allow(dead_code, reason = "the bench counts nothing")]
#[path = "../tests/null_card/mod.rs"]
mod null_card;
#[path = "../tests/null_card/ground.rs"]
mod ground;

use ground::Ground;
use rnic_driver::{Completion, QueuePairOptions, ReceiveRequest, SendRequest};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Posts of a round.
const POSTS: u64 = 32;
/// Rounds of a measurement, and those before it.
const ROUNDS: usize = 20_000;
const WARM_UP: usize = 1_000;

fn ground() -> Ground {
    let options = QueuePairOptions { send_slots_log2: 8, receive_wqes_log2: 8, ..Default::default() };
    let ground = Ground::new(&options, 2 * POSTS);
    ground.card.hold(true);
    ground
}

/// What a round posts.
#[derive(Clone, Copy)]
enum Shape {
    Inline,
    Memory,
    Write,
    Unsignalled,
    Batch,
    Receive,
}

impl Shape {
    const ALL: [(Self, &str); 6] = [
        (Self::Inline, "SEND, 8 bytes inline, signalled"),
        (Self::Memory, "SEND, one SGE, signalled"),
        (Self::Write, "WRITE, one SGE, signalled"),
        (Self::Unsignalled, "WRITE, 8 bytes inline, every 32nd signalled"),
        (Self::Batch, "WRITE, 8 bytes inline, every 32nd signalled, one doorbell"),
        (Self::Receive, "receive, one SGE"),
    ];

    fn post(self, ground: &mut Ground) {
        let Ground { queue_pair, remote, regions, .. } = ground;
        let mut region = || regions.pop().expect("memory comes back");
        let last = POSTS - 1;
        let write = |wr_id: u64| {
            let request = SendRequest::write(wr_id, *remote).inline(&wr_id.to_le_bytes());
            if wr_id == last { request.signalled() } else { request }
        };
        let mut post = |request| queue_pair.post_send(request).expect("there is room");
        match self {
            Self::Inline => (0..POSTS)
                .for_each(|wr_id| post(SendRequest::send(wr_id).inline(&wr_id.to_le_bytes()).signalled())),
            Self::Memory => {
                (0..POSTS).for_each(|wr_id| post(SendRequest::send(wr_id).sge(region()).signalled()));
            }
            Self::Write => {
                (0..POSTS)
                    .for_each(|wr_id| post(SendRequest::write(wr_id, *remote).sge(region()).signalled()));
            }
            Self::Unsignalled => (0..POSTS).for_each(|wr_id| post(write(wr_id))),
            Self::Batch => {
                let mut batch = queue_pair.send_batch();
                (0..POSTS).for_each(|wr_id| batch.post(write(wr_id)).expect("there is room"));
            }
            Self::Receive => {
                let mut post = |request| queue_pair.post_receive(request).expect("there is room");
                (0..POSTS).for_each(|wr_id| post(ReceiveRequest::new(wr_id).sge(region())));
            }
        }
    }
}

/// Median of the time for each of [`POSTS`] requests, in nanoseconds.
fn median(mut rounds: Vec<Duration>) -> f64 {
    rounds.sort_unstable();
    rounds[rounds.len() / 2].as_nanos() as f64 / POSTS as f64
}

/// Measures posts, and completions through `poll`.
fn measure(ground: &mut Ground, shape: Shape, mut poll: impl FnMut(&mut Vec<Completion>)) -> [f64; 2] {
    let mut done = Vec::with_capacity(POSTS as usize);
    let mut times = [const { Vec::new() }; 2];
    for round in 0..WARM_UP + ROUNDS {
        let start = Instant::now();
        shape.post(ground);
        let posted = start.elapsed();
        ground.card.complete();
        let start = Instant::now();
        poll(&mut done);
        let polled = start.elapsed();
        assert_eq!(done.len() as u64, POSTS, "all requests complete");
        for completion in black_box(&mut done).drain(..) {
            ground.regions.extend(completion.sg_list);
        }
        if round >= WARM_UP {
            times[0].push(posted);
            times[1].push(polled);
        }
    }
    times.map(median)
}

fn main() {
    println!("{:58} {:>6} {:>9} {:>9} {:>9}", "", "", "poll_one", "poll_one", "poll of");
    let unit = "ns for each request, median";
    println!("{unit:58} {:>6} {:>9} {:>9} {:>9}", "post", "of queue", "of poller", "32");
    let one = |polled: Result<Option<Completion>, _>| polled.expect("the card writes legal CQEs");
    for (shape, name) in Shape::ALL {
        let mut ground = ground();
        let queue = ground.queue.clone();
        let [_, locked] = measure(&mut ground, shape, |done| {
            (0..POSTS).for_each(|_| done.extend(one(queue.poll_one())));
        });
        let mut poller = queue.poller().expect("nobody else polls");
        let [_, own] = measure(&mut ground, shape, |done| {
            (0..POSTS).for_each(|_| done.extend(one(poller.poll_one())));
        });
        let [post, list] = measure(&mut ground, shape, |done| {
            poller.poll(done, POSTS as usize).expect("the card writes legal CQEs");
        });
        println!("{name:58} {post:6.1} {locked:9.1} {own:9.1} {list:9.1}");
    }
}
