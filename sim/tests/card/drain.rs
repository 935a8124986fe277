//! Send queues that software drains while they are busy, and resumes.
//!
//! How far a queue has come by then is random. What must hold: messages that have begun complete, and no others begin; the end
//! of draining is reported once, by an event if one was requested, and by a query; after the queue resumes, everything
//! completes in order, including messages that were posted meanwhile. Requests of the peer are served all the time.
use crate::hosts::{Host, TURNS_MAX, Turns, any_pmtu, connect, cut, open};
use anyhow::{Context, Result, bail, ensure};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::{ReadyToSend, SendQueueDrain};
use rnic_driver::{
    Completion, ConnectOptions, Function, QueuePair, RemoteMemory, RemoteRights, SendOptions, SendRequest,
    SharedRegion,
};
use rnic_layout::queue::event::AsyncEvent;
use rnic_stimulus::chance::Seed;
use std::sync::Arc;

/// Busy pairs.
const PAIRS: usize = 3;
/// Messages of a pair. Each is a READ or has a fence, and only one READ may be outstanding, so they are executed one by one.
const MESSAGES: usize = 16;
/// Length of the longest message: the smallest receive buffer has room for two of each pair.
const BYTES: usize = 4 << 10;
/// Maximum of calls of `idle` before a queue is drained.
const IDLE_UNTIL: usize = 150;
/// Calls of `idle` in which completions in flight arrive.
const IDLE_SETTLE: usize = 150;

enum Sender {
    Ready(QueuePair<ReadyToSend>),
    Draining(QueuePair<SendQueueDrain>),
    Gone,
}

/// A message: a WRITE to the peer's window, or a READ from it.
struct Message {
    is_read: bool,
    offset: usize,
    bytes: Vec<u8>,
}

/// Two queue pairs; the first host is the requester.
struct Pair {
    sender: Sender,
    number: u32,
    peer: QueuePair<ReadyToSend>,
    /// Memory of the peer, with room for each message.
    window: SharedRegion,
    /// Local memory that the peer writes to.
    own: SharedRegion,
    messages: Vec<Message>,
    posted: usize,
    done: usize,
    notifies: bool,
    is_drained: bool,
}

struct Run {
    hosts: [Host; 2],
    random: ChaCha8Rng,
    pairs: Vec<Pair>,
    /// Nothing may complete at the first host.
    is_quiet: bool,
    /// Completed messages of the peers.
    answered: usize,
}

impl Turns for Run {
    fn turn(&mut self) -> Result<()> {
        while let Some(event) = self.hosts[0].device.events().poll()? {
            let pair = self.pairs.iter_mut().find(|pair| pair.number == event.object_number);
            let pair = pair.with_context(|| format!("{event:?} should not come"))?;
            ensure!(event.code == AsyncEvent::SendQueueDrained, "{event:?}");
            let Sender::Draining(sender) = &pair.sender else { bail!("{event:?}: it does not drain") };
            ensure!(pair.notifies && !pair.is_drained, "{event:?} was not asked for, or came before");
            ensure!(!sender.is_draining()?, "{event:?} comes too soon");
            pair.is_drained = true;
        }
        let completions = self.hosts[0].poll()?;
        completions.iter().try_for_each(|completion| self.complete(completion))?;
        let completions = self.hosts[1].poll()?;
        ensure!(completions.iter().all(Completion::is_success), "{completions:?}");
        self.answered += completions.len();
        self.hosts[0].function.idle();
        Ok(())
    }
}

impl Run {
    fn connect(&mut self) -> Result<()> {
        self.pairs.clear();
        for _ in 0..PAIRS {
            let rights = RemoteRights { read: true, ..RemoteRights::WRITE };
            let [own, window] =
                self.hosts.each_ref().map(|host| host.domain.share((MESSAGES + 1) * BYTES, rights));
            let (own, window) = (own?, window?);
            let messages: Vec<_> = (0..MESSAGES).map(|place| self.message(place, place % 2 == 0)).collect();
            for message in messages.iter().filter(|message| message.is_read) {
                window.write(message.offset, &message.bytes)?;
            }
            let send = SendOptions { read_atomic: Some(1), ..SendOptions::default() };
            let options = ConnectOptions { send, ..ConnectOptions::default() };
            let [first, second] = &self.hosts;
            let queue_pairs = [first.queue_pair(rights)?, second.queue_pair(rights)?];
            let [sender, peer] = connect(queue_pairs, any_pmtu(&mut self.random), &options)?;
            self.pairs.push(Pair {
                number: sender.number(),
                sender: Sender::Ready(sender),
                peer,
                window,
                own,
                messages,
                posted: 0,
                done: 0,
                notifies: false,
                is_drained: false,
            });
        }
        Ok(())
    }

    fn message(&mut self, place: usize, is_read: bool) -> Message {
        let length = self.random.random_range(1..=BYTES);
        let bytes = (0..length).map(|_| self.random.random()).collect();
        Message { is_read, offset: place * BYTES, bytes }
    }

    /// Requests that remain to be posted. Making them takes longer than posting them.
    fn requests(&self, place: usize) -> Result<Vec<SendRequest>> {
        let pair = &self.pairs[place];
        let messages = &pair.messages[pair.posted..];
        let mut memory = Some(self.hosts[0].domain.allocate(messages.len() * (BYTES + 64) + 64)?);
        let mut requests = Vec::new();
        for (wr_id, message) in (pair.posted as u64..).zip(messages) {
            let mut piece = cut(&mut memory, 43, message.bytes.len())?;
            let remote = pair.window.remote();
            let remote = RemoteMemory {
                address: remote.address + message.offset as u64,
                bytes: message.bytes.len() as u64,
                ..remote
            };
            let request = if message.is_read {
                SendRequest::read(wr_id, remote)
            } else {
                piece.bytes_mut().copy_from_slice(&message.bytes);
                SendRequest::write(wr_id, remote).fence()
            };
            requests.push(request.sge(piece).signalled());
        }
        Ok(requests)
    }

    fn post(&mut self, place: usize, mut requests: Vec<SendRequest>) -> Result<()> {
        let pair = &mut self.pairs[place];
        pair.posted += requests.len();
        match &mut pair.sender {
            Sender::Ready(sender) => sender.post_sends(&mut requests)?,
            Sender::Draining(sender) => sender.post_sends(&mut requests)?,
            Sender::Gone => bail!("it is gone"),
        }
        Ok(())
    }

    fn complete(&mut self, completion: &Completion) -> Result<()> {
        let is_quiet = self.is_quiet;
        let pair = self.pairs.iter_mut().find(|pair| pair.number == completion.qp_number);
        let pair = pair.context("an unknown queue pair")?;
        ensure!(!is_quiet, "{completion:?} comes from a queue that has drained");
        ensure!(completion.is_success() && completion.wr_id == pair.done as u64, "{completion:?}");
        let message = &pair.messages[pair.done];
        if message.is_read {
            ensure!(*completion.sg_list[0].bytes() == *message.bytes, "{completion:?} holds something else");
        } else {
            let mut found = vec![0; message.bytes.len()];
            pair.window.read(message.offset, &mut found)?;
            ensure!(found == message.bytes, "what {completion:?} has written is something else");
        }
        pair.done += 1;
        Ok(())
    }

    fn drain(&mut self, place: usize, notifies: bool) -> Result<()> {
        let pair = &mut self.pairs[place];
        let Sender::Ready(sender) = std::mem::replace(&mut pair.sender, Sender::Gone) else {
            bail!("it is not in RTS")
        };
        (pair.notifies, pair.is_drained) = (notifies, false);
        pair.sender = Sender::Draining(sender.drain(notifies).map_err(rnic_driver::Error::from)?);
        Ok(())
    }

    fn resume(&mut self, place: usize) -> Result<()> {
        let pair = &mut self.pairs[place];
        let Sender::Draining(sender) = std::mem::replace(&mut pair.sender, Sender::Gone) else {
            bail!("it is not in SQD")
        };
        pair.sender = Sender::Ready(sender.resume().map_err(rnic_driver::Error::from)?);
        Ok(())
    }

    /// Drains all queues at random times, and resumes them. Returns how many messages had completed when their queue was
    /// drained, and how many had to wait.
    fn round(&mut self) -> Result<[usize; 2]> {
        self.connect()?;
        let requests = (0..PAIRS).map(|place| self.requests(place)).collect::<Result<Vec<_>>>()?;
        for (place, requests) in requests.into_iter().enumerate() {
            self.post(place, requests)?;
        }
        let mut counts = [0; 2];
        let mut places: Vec<usize> = (0..PAIRS).collect();
        places.shuffle(&mut self.random);
        for &place in &places {
            let turns = self.random.random_range(0..IDLE_UNTIL) / PAIRS;
            self.turn_times(turns)?;
            let notifies = self.random.random_bool(0.7);
            self.drain(place, notifies)?;
            let late = self.message(MESSAGES, true);
            let pair = &mut self.pairs[place];
            pair.window.write(late.offset, &late.bytes)?;
            pair.messages.push(late);
            let requests = self.requests(place)?;
            self.post(place, requests)?;
        }
        for place in 0..PAIRS {
            if !self.pairs[place].notifies {
                let mut turns = 0;
                while let Sender::Draining(sender) = &self.pairs[place].sender
                    && sender.is_draining()?
                {
                    self.turn()?;
                    turns += 1;
                    ensure!(turns < TURNS_MAX, "it does not come to rest");
                }
                self.pairs[place].is_drained = true;
            }
        }
        self.turn_until("draining", |run| run.pairs.iter().all(|pair| pair.is_drained))?;
        self.turn_times(IDLE_SETTLE)?;
        // Nothing begins, and the peers are served.
        self.is_quiet = true;
        self.answered = 0;
        for pair in &mut self.pairs {
            counts[0] += pair.done;
            counts[1] += MESSAGES - pair.done;
            let remote = RemoteMemory { bytes: 32, ..pair.own.remote() };
            let request = SendRequest::write(0, remote).inline(&[7; 32]).signalled();
            pair.peer.post_send(request)?;
        }
        self.turn_until("what the peers have sent", |run| run.answered == PAIRS)?;
        self.turn_times(IDLE_SETTLE)?;
        self.is_quiet = false;
        places.shuffle(&mut self.random);
        places.into_iter().try_for_each(|place| self.resume(place))?;
        self.turn_until("the rest", |run| run.pairs.iter().all(|pair| pair.done == pair.messages.len()))?;
        // A queue without messages in flight is drained at once.
        for place in 0..PAIRS {
            self.drain(place, true)?;
        }
        self.turn_until("draining of nothing", |run| run.pairs.iter().all(|pair| pair.is_drained))?;
        Ok(counts)
    }
}

/// Opens two cards and runs the given number of rounds.
pub(crate) fn rounds(functions: [Arc<dyn Function>; 2], seed: Seed, rounds: usize) -> Result<[usize; 2]> {
    let mut run = Run {
        hosts: open(functions, seed)?,
        random: seed.stream("drain"),
        pairs: Vec::new(),
        is_quiet: false,
        answered: 0,
    };
    let mut sum = [0; 2];
    for index in 0..rounds {
        let counts = run.round().with_context(|| format!("round {index}"))?;
        sum = [sum[0] + counts[0], sum[1] + counts[1]];
    }
    Ok(sum)
}
