//! Completion queues that are resized, larger and smaller, while CQEs arrive.
//!
//! Which ring a CQE is in only the card knows. What must hold: each message completes once, those of a queue pair in order; a queue
//! that becomes too small for what is in flight is refused and goes on; and no ring is unmapped to which the card still writes, which a
//! monitor watches.
use crate::hosts::{Host, Turns, any_pmtu, connect, open};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    ConnectOptions, Error, Function, QueuePair, Refusal, RemoteMemory, RemoteRights, SendRequest,
    SharedRegion,
};
use rnic_stimulus::chance::Seed;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Queue pairs of each host.
const PAIRS: usize = 4;
/// Messages of a queue pair in flight: all together more than the smallest queue has CQEs.
const IN_FLIGHT: u64 = 30;
/// Sizes of queues, log2.
const LOG2: RangeInclusive<u32> = 6..=10;
/// Chance that a turn resizes a queue.
const RESIZES: f64 = 0.2;
const WINDOW_BYTES: usize = 64;

/// One end of a pair.
struct End {
    queue_pair: QueuePair<ReadyToSend>,
    remote: RemoteMemory,
    _window: SharedRegion,
    posted: u64,
    done: u64,
}

/// Resizes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resizes {
    pub(crate) larger: u32,
    pub(crate) smaller: u32,
    /// Resizes that keep the size.
    pub(crate) others: u32,
    pub(crate) refused: u32,
}

struct Run {
    hosts: [Host; 2],
    random: ChaCha8Rng,
    /// The ends of each host.
    ends: [Vec<End>; 2],
    messages: u64,
    resizes: Resizes,
}

impl Turns for Run {
    fn turn(&mut self) -> Result<()> {
        for side in 0..2 {
            self.poll(side)?;
            self.post(side)?;
            if self.random.random_bool(RESIZES) {
                self.resize(side)?;
            }
        }
        self.hosts[0].function.idle();
        Ok(())
    }
}

impl Run {
    fn poll(&mut self, side: usize) -> Result<()> {
        for completion in self.hosts[side].poll()? {
            ensure!(completion.is_success(), "{completion:?}");
            let mut ends = self.ends[side].iter_mut();
            let end = ends.find(|end| end.queue_pair.number() == completion.qp_number);
            let end = end.with_context(|| format!("{completion:?} belongs to no queue pair"))?;
            ensure!(completion.wr_id == end.done, "{completion:?} is not message {}", end.done);
            end.done += 1;
        }
        Ok(())
    }

    /// Posts as many messages as there is room for.
    fn post(&mut self, side: usize) -> Result<()> {
        for end in &mut self.ends[side] {
            while end.posted < self.messages && end.posted - end.done < IN_FLIGHT {
                let remote = RemoteMemory { bytes: 8, ..end.remote };
                let request = SendRequest::write(end.posted, remote);
                match end.queue_pair.post_send(request.inline(&end.posted.to_le_bytes()).signalled()) {
                    Ok(()) => end.posted += 1,
                    Err(refused) => {
                        let is_full = matches!(refused.reason, Refusal::CompletionQueueFull { .. });
                        ensure!(is_full, "{}", refused.reason);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn resize(&mut self, side: usize) -> Result<()> {
        let queue = &self.hosts[side].queue;
        let (before, log2) = (queue.entries(), self.random.random_range(LOG2));
        // The queue may also be in the hands of one thread.
        let resized = if self.random.random() {
            queue.poller().context("nobody else polls")?.resize(log2)
        } else {
            queue.resize(log2)
        };
        let after = 1 << log2;
        match resized {
            Ok(()) => {
                ensure!(queue.entries() == after);
                self.resizes.larger += u32::from(after > before);
                self.resizes.smaller += u32::from(after < before);
                self.resizes.others += u32::from(after == before);
            }
            Err(Error::Reserved { asked, reserved, .. }) => {
                ensure!(asked == after && reserved > after && queue.entries() == before);
                self.resizes.refused += 1;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Sends messages of all queue pairs of two cards in both directions, and resizes their completion queues meanwhile.
pub(crate) fn run(functions: [Arc<dyn Function>; 2], seed: Seed, messages: u64) -> Result<Resizes> {
    let mut random = seed.stream("resizes");
    let hosts = open(functions, seed)?;
    let rights = RemoteRights::WRITE;
    let mut ends = [Vec::new(), Vec::new()];
    for _ in 0..PAIRS {
        let queue_pairs = [hosts[0].queue_pair(rights)?, hosts[1].queue_pair(rights)?];
        let queue_pairs = connect(queue_pairs, any_pmtu(&mut random), &ConnectOptions::default())?;
        let windows =
            [hosts[0].domain.share(WINDOW_BYTES, rights)?, hosts[1].domain.share(WINDOW_BYTES, rights)?];
        let remotes = [windows[1].remote(), windows[0].remote()];
        for (side, ((queue_pair, window), remote)) in
            queue_pairs.into_iter().zip(windows).zip(remotes).enumerate()
        {
            ends[side].push(End { queue_pair, remote, _window: window, posted: 0, done: 0 });
        }
    }
    let mut run = Run { hosts, random, ends, messages, resizes: Resizes::default() };
    let is_done = |run: &Run| run.ends.iter().flatten().all(|end| end.done == messages);
    run.turn_until("all messages", is_done)?;
    Ok(run.resizes)
}
