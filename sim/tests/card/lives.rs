//! Queue pairs that are reset in full traffic, and begin their next life at once under the same number.
//!
//! Requests and responses of the former life are still under way then, in the card, on the wire, and at the peer, which does not
//! know. What must hold when the answer to the reset has come: nothing of the former life changes memory any more, whether it was
//! requested by the queue pair or by its peer; the queue pair can be connected again at once, and its messages arrive.
use crate::function::{End, fill, pairs};
use crate::hosts::{Host, Turns, any_pmtu, connect, open};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Completion, ConnectOptions, Error, Function, QueuePair, Region, RemoteMemory, RemoteRights, SendRequest,
    SharedRegion,
};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_stimulus::chance::Seed;
use std::sync::Arc;

/// Calls of `idle` before the first reset, and between the life of one end and that of the other.
const IDLE_UNTIL: usize = 120;
const IDLE_BETWEEN: usize = 20;
/// Calls of `idle` in which everything that was under way has arrived.
const IDLE_SETTLE: usize = 150;
/// Contents of memory of a former life.
const CANARY: u8 = 0xc7;
/// `wr_id` and length of the message of a next life.
const RENEWED: u64 = 1 << 40;
const MESSAGE_BYTES: usize = 600;

struct Run {
    hosts: [Host; 2],
    random: ChaCha8Rng,
    /// Memory that former lives have given back.
    given_back: Vec<Region>,
    /// Completions of messages that were flushed.
    flushed: usize,
    /// Queue pairs whose message of their next life is done.
    done: Vec<u32>,
}

impl Turns for Run {
    fn turn(&mut self) -> Result<()> {
        for side in 0..2 {
            for completion in self.hosts[side].poll()? {
                self.complete(completion)?;
            }
        }
        self.hosts[0].function.idle();
        Ok(())
    }
}

impl Run {
    fn complete(&mut self, completion: Completion) -> Result<()> {
        let allowed = [CompletionStatus::Success, CompletionStatus::Flushed];
        ensure!(allowed.contains(&completion.status), "{completion:?}");
        self.flushed += usize::from(completion.status == CompletionStatus::Flushed);
        if completion.wr_id == RENEWED {
            ensure!(completion.is_success(), "{completion:?}");
            self.done.push(completion.qp_number);
        }
        for mut region in completion.sg_list {
            region.bytes_mut().fill(CANARY);
            self.given_back.push(region);
        }
        Ok(())
    }

    /// Resets both ends, one after the other, and connects them again. Each is shown again with its host, window and peer's window.
    fn renew(&mut self, pair: [End; 2]) -> Result<[Life; 2]> {
        let rights = RemoteRights { read: true, ..RemoteRights::WRITE };
        let [first, second] = pair;
        let mut ends = [(0, first), (1, second)];
        if self.random.random() {
            ends.reverse();
        }
        let mut fresh = Vec::new();
        let mut rest = Vec::new();
        for (side, End { queue_pair, window, remote }) in ends {
            let number = queue_pair.number();
            let queue_pair = queue_pair.reset().map_err(Error::from)?;
            window.write(0, &vec![CANARY; window.len()])?;
            let queue_pair = queue_pair.initialize(rights).map_err(Error::from)?;
            ensure!(queue_pair.number() == number);
            fresh.push(queue_pair);
            rest.push((side, window, remote));
            let turns = self.random.random_range(0..IDLE_BETWEEN);
            self.turn_times(turns)?;
        }
        let fresh: [_; 2] = fresh.try_into().ok().context("a pair has two ends")?;
        let pmtu = any_pmtu(&mut self.random);
        let queue_pairs = connect(fresh, pmtu, &ConnectOptions::default())?;
        let lives = queue_pairs.into_iter().zip(rest);
        let lives =
            lives.map(|(queue_pair, (side, window, remote))| Life { side, queue_pair, window, remote });
        lives.collect::<Vec<_>>().try_into().ok().context("a pair has two ends")
    }
}

/// A queue pair in its second life.
struct Life {
    side: usize,
    queue_pair: QueuePair<ReadyToSend>,
    window: SharedRegion,
    /// Window of the peer.
    remote: RemoteMemory,
}

impl Life {
    /// Bytes of its message.
    fn message(&self) -> [u8; MESSAGE_BYTES] {
        std::array::from_fn(|place| (place as u8).wrapping_mul(29) ^ self.queue_pair.number() as u8)
    }

    /// Checks that the window has this at its beginning, and else what the end of the former life left.
    fn check(&self, begin: &[u8]) -> Result<()> {
        let mut found = vec![0; self.window.len()];
        self.window.read(0, &mut found)?;
        let (message, rest) = found.split_at(begin.len());
        ensure!(message == begin, "queue pair {:#x}: the message", self.queue_pair.number());
        ensure!(rest.iter().all(|&byte| byte == CANARY), "a former life has written to the window");
        Ok(())
    }
}

/// Ends the lives of all queue pairs of two cards in full traffic of messages of some bytes, once in each round, and sends a message in each next life. Returns
/// how many messages of former lives were not done.
pub(crate) fn rounds(
    functions: [Arc<dyn Function>; 2],
    bytes: usize,
    seed: Seed,
    rounds: usize,
) -> Result<usize> {
    let mut run = Run {
        hosts: open(functions, seed)?,
        random: seed.stream("lives"),
        given_back: Vec::new(),
        flushed: 0,
        done: Vec::new(),
    };
    for _ in 0..rounds {
        let mut ends = pairs(&run.hosts, bytes, &mut run.random)?;
        fill(&run.hosts, &mut ends)?;
        let turns = run.random.random_range(0..IDLE_UNTIL);
        run.turn_times(turns)?;
        let mut lives = Vec::new();
        for pair in ends {
            lives.extend(run.renew(pair)?);
        }
        run.turn_times(IDLE_SETTLE)?;
        lives.iter().try_for_each(|life| life.check(&[]))?;
        for life in &mut lives {
            let mut piece = run.hosts[life.side].domain.allocate(MESSAGE_BYTES)?;
            piece.bytes_mut().copy_from_slice(&life.message());
            let remote = RemoteMemory { bytes: MESSAGE_BYTES as u64, ..life.remote };
            let request = SendRequest::write(RENEWED, remote).sge(piece).signalled();
            life.queue_pair.post_send(request)?;
        }
        run.turn_until("the messages of the next lives", |run| run.done.len() == lives.len())?;
        for pair in lives.chunks_exact(2) {
            pair[0].check(&pair[1].message())?;
            pair[1].check(&pair[0].message())?;
        }
        run.done.clear();
        for region in run.given_back.drain(..) {
            ensure!(
                region.bytes().iter().all(|&byte| byte == CANARY),
                "memory that was given back has changed"
            );
        }
    }
    Ok(run.flushed)
}
