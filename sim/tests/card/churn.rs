//! Objects that end while traffic is in flight, and whose memory and numbers are used again at once.
//!
//! Each round connects pairs whose ends SEND to, WRITE to and READ from each other. Meanwhile software destroys the region that
//! the peer accesses, invalidates its key, destroys queue pairs, or replaces them with completion queues of another size. How
//! far the messages have come by then is random. What must hold: each request completes once, successes come first and with the
//! right bytes, and no byte of memory changes that was given back and is used for something else.
use crate::hosts::{Host, TURNS_MAX, any_pmtu, connect, cut, open};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::{Error as Failed, ReadyToSend};
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, Function, QueuePair,
    QueuePairOptions, ReceiveRequest, Region, RemoteMemory, RemoteRights, SendRequest, SharedRegion,
};
use rnic_layout::psn::PSN_COUNT;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_stimulus::chance::Seed;
use std::sync::Arc;

/// Pairs of a round, of which each meets another [`Action`].
const PAIRS: usize = 5;
/// Messages of each end.
const MESSAGES: usize = 12;
/// Length of the longest message: the smallest receive buffer has room for all messages of an end together.
const MESSAGE_BYTES_MAX: usize = 1400;
/// Length of a window. The peer writes to its first half, and reads from its second half.
const WINDOW_BYTES: usize = 2 * MESSAGES * MESSAGE_BYTES_MAX;
/// Maximum of calls of `idle` between the messages of a pair and its action, in which all of them may complete.
const IDLE_UNTIL: usize = 25;
/// Contents of memory that was given back and is used for something else.
const CANARY: u8 = 0xc7;

/// What happens to a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// One end destroys its window.
    DestroyRegion,
    /// One end invalidates the key of its own window.
    InvalidateOwn,
    /// One end invalidates the key of the peer's window.
    InvalidatePeer,
    /// One end destroys its queue pair.
    DestroyQueuePair,
    /// Both ends destroy queue pair and completion queue, and connect others, which work.
    Replace,
}

const ACTIONS: [Action; PAIRS] = [
    Action::DestroyRegion,
    Action::InvalidateOwn,
    Action::InvalidatePeer,
    Action::DestroyQueuePair,
    Action::Replace,
];

/// Background of a window.
fn background(index: usize) -> u8 {
    (index % 251) as u8
}

/// Kind of a message, with the offset in the peer's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    Write(usize),
    Read(usize),
}

struct Message {
    kind: Kind,
    bytes: Vec<u8>,
}

/// A queue pair in its life.
enum Life {
    Ready(QueuePair<ReadyToSend>),
    Failed(#[expect(dead_code, reason = "it is kept, so that what is posted completes")] QueuePair<Failed>),
    Gone,
}

/// One end of a pair, with a completion queue of its own.
struct End {
    life: Life,
    queue: CompletionQueue,
    window: Option<SharedRegion>,
    /// Memory that is used for something else since an object has ended.
    reused: Vec<Region>,
    messages: Vec<Message>,
    sends_posted: usize,
    receives_posted: usize,
    sends: Vec<Completion>,
    receives: Vec<Completion>,
}

fn messages(random: &mut ChaCha8Rng) -> Vec<Message> {
    let message = |index: usize| {
        let length = random.random_range(1..=MESSAGE_BYTES_MAX);
        let place = index * MESSAGE_BYTES_MAX;
        let kind = [Kind::Send, Kind::Write(place), Kind::Read(WINDOW_BYTES / 2 + place)];
        let kind = kind[random.random_range(0..kind.len())];
        let bytes = match kind {
            Kind::Read(offset) => (offset..offset + length).map(background).collect(),
            _ => (0..length).map(|_| random.random()).collect(),
        };
        Message { kind, bytes }
    };
    (0..MESSAGES).map(message).collect()
}

fn options(random: &mut ChaCha8Rng) -> QueuePairOptions {
    let first_psn = random.random_bool(0.5).then(|| PSN_COUNT - random.random_range(1..4));
    QueuePairOptions { first_psn, ..QueuePairOptions::default() }
}

/// Creates and connects two queue pairs, each with a new completion queue.
fn pair(
    hosts: &[Host; 2],
    random: &mut ChaCha8Rng,
) -> Result<[(QueuePair<ReadyToSend>, CompletionQueue); 2]> {
    let mut made = Vec::new();
    for host in hosts {
        let completions =
            CompletionQueueOptions { entries_log2: random.random_range(6..9), ..Default::default() };
        let queue = host.device.create_completion_queue(&host.device.events(), &completions)?;
        let queue_pair = host.domain.create_queue_pair(&queue, &queue, &options(random))?;
        let queue_pair = queue_pair.initialize(RemoteRights::ALL).map_err(rnic_driver::Error::from)?;
        made.push((queue_pair, queue));
    }
    let [(first, first_queue), (second, second_queue)] =
        <[_; 2]>::try_from(made).ok().context("two hosts")?;
    let [first, second] = connect([first, second], any_pmtu(random), &ConnectOptions::default())?;
    Ok([(first, first_queue), (second, second_queue)])
}

impl End {
    fn new(
        host: &Host,
        random: &mut ChaCha8Rng,
        (queue_pair, queue): (QueuePair<ReadyToSend>, CompletionQueue),
    ) -> Result<End> {
        let window = host.domain.share_invalidatable(WINDOW_BYTES, RemoteRights::ALL)?;
        let bytes: Vec<u8> = (0..WINDOW_BYTES).map(background).collect();
        window.write(0, &bytes)?;
        Ok(End {
            life: Life::Ready(queue_pair),
            queue,
            window: Some(window),
            reused: Vec::new(),
            messages: messages(random),
            sends_posted: 0,
            receives_posted: 0,
            sends: Vec::new(),
            receives: Vec::new(),
        })
    }

    /// Posts a receive for each message that the peer may send.
    fn post_receives(&mut self, host: &Host) -> Result<()> {
        let Life::Ready(queue_pair) = &mut self.life else { return Ok(()) };
        let mut memory = Some(host.domain.allocate((MESSAGES + 1) * (MESSAGE_BYTES_MAX + 32))?);
        for wr_id in 0..=MESSAGES as u64 {
            let piece = cut(&mut memory, 3, MESSAGE_BYTES_MAX)?;
            queue_pair.post_receive(ReceiveRequest::new(wr_id).sge(piece))?;
            self.receives_posted += 1;
        }
        Ok(())
    }

    fn post_sends(&mut self, host: &Host, remote: RemoteMemory) -> Result<()> {
        let Life::Ready(queue_pair) = &mut self.life else { return Ok(()) };
        let mut memory = Some(host.domain.allocate(MESSAGES * (MESSAGE_BYTES_MAX + 32))?);
        let mut requests = Vec::new();
        for (wr_id, message) in (0..).zip(&self.messages) {
            let mut piece = cut(&mut memory, 5, message.bytes.len())?;
            let at = |offset: usize| RemoteMemory {
                address: remote.address + offset as u64,
                bytes: message.bytes.len() as u64,
                ..remote
            };
            let request = match message.kind {
                Kind::Send => SendRequest::send(wr_id),
                Kind::Write(offset) => SendRequest::write(wr_id, at(offset)),
                Kind::Read(offset) => SendRequest::read(wr_id, at(offset)),
            };
            if !matches!(message.kind, Kind::Read(_)) {
                piece.bytes_mut().copy_from_slice(&message.bytes);
            }
            requests.push(request.sge(piece).signalled());
        }
        queue_pair.post_sends(&mut requests)?;
        self.sends_posted += MESSAGES;
        Ok(())
    }

    /// Posts a request of an action.
    fn post(&mut self, request: SendRequest) -> Result<()> {
        let Life::Ready(queue_pair) = &mut self.life else { return Ok(()) };
        queue_pair.post_send(request)?;
        self.sends_posted += 1;
        Ok(())
    }

    fn poll(&mut self) -> Result<()> {
        let mut completions = Vec::new();
        self.queue.poll(&mut completions, usize::MAX)?;
        for completion in completions {
            let list = if completion.is_receive() { &mut self.receives } else { &mut self.sends };
            list.push(completion);
        }
        Ok(())
    }

    fn fail(&mut self) -> Result<()> {
        self.life = match std::mem::replace(&mut self.life, Life::Gone) {
            Life::Ready(queue_pair) => Life::Failed(queue_pair.fail().map_err(rnic_driver::Error::from)?),
            other => other,
        };
        Ok(())
    }

    /// Uses memory of this size for something else.
    fn reuse(&mut self, host: &Host, bytes: usize) -> Result<()> {
        let mut region = host.domain.allocate(bytes)?;
        region.bytes_mut().fill(CANARY);
        self.reused.push(region);
        Ok(())
    }

    /// Destroys the queue pair. The memory of its requests comes back, and is used for something else.
    fn destroy(&mut self) -> Result<()> {
        self.life = Life::Gone;
        self.poll()?;
        for completion in self.sends.iter_mut().chain(&mut self.receives) {
            if completion.status == CompletionStatus::Flushed {
                self.reused.append(&mut completion.sg_list.drain(..).collect());
            }
        }
        self.reused.iter_mut().for_each(|region| region.bytes_mut().fill(CANARY));
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.sends.len() == self.sends_posted && self.receives.len() == self.receives_posted
    }
}

/// Number of successful completions, which must come first; one failure may follow, and all others are flushed. The failure is
/// that of the access, or of a READ whose responses the peer no longer sends, because a later request has failed its queue
/// pair: cards do not retransmit yet.
fn successes(completions: &[Completion]) -> Result<usize> {
    let count = completions.iter().take_while(|done| done.is_success()).count();
    for (place, done) in completions.iter().enumerate().skip(count) {
        let is_failure =
            matches!(done.status, CompletionStatus::RemoteAccess | CompletionStatus::RetryExceeded);
        let may_fail = place == count && is_failure;
        ensure!(may_fail || done.status == CompletionStatus::Flushed, "{done:?} is number {place}");
    }
    Ok(count)
}

/// Compares what has completed at `from` with the memory of both ends.
fn compare(from: &End, to: &End) -> Result<()> {
    let (sent, received) = (successes(&from.sends)?, successes(&to.receives)?);
    let mut arrived = to.receives[..received].iter().filter(|done| done.invalidated.is_none());
    for done in &from.sends[..sent] {
        // Requests of actions follow the messages.
        let Some(message) = from.messages.get(done.wr_id as usize) else { continue };
        match message.kind {
            Kind::Send => {
                let receive = arrived.next().context("what was acknowledged has arrived")?;
                // The memory of a queue pair that has ended is used for something else.
                let piece = receive.sg_list.first().context("a receive has its memory")?;
                ensure!(piece.bytes()[..message.bytes.len()] == message.bytes, "{receive:?}");
            }
            Kind::Write(offset) => {
                let Some(window) = &to.window else { continue };
                let mut found = vec![0; message.bytes.len()];
                window.read(offset, &mut found)?;
                ensure!(found == message.bytes, "what was written at {offset} is something else");
            }
            Kind::Read(_) => ensure!(done.message() == message.bytes, "{done:?} has read something else"),
        }
    }
    for region in &from.reused {
        let place = region.bytes().iter().position(|&byte| byte != CANARY);
        ensure!(place.is_none(), "{region:?} was written at {place:?} after it was given back");
    }
    Ok(())
}

struct Run {
    hosts: [Host; 2],
    random: ChaCha8Rng,
    pairs: Vec<[End; 2]>,
}

impl Run {
    fn turn(&mut self) -> Result<()> {
        self.hosts[0].function.idle();
        self.pairs.iter_mut().flatten().try_for_each(End::poll)
    }

    fn connect(&mut self) -> Result<()> {
        for _ in 0..PAIRS {
            let [first, second] = pair(&self.hosts, &mut self.random)?;
            let first = End::new(&self.hosts[0], &mut self.random, first)?;
            let second = End::new(&self.hosts[1], &mut self.random, second)?;
            self.pairs.push([first, second]);
        }
        for (side, host) in self.hosts.iter().enumerate() {
            self.pairs.iter_mut().try_for_each(|pair| pair[side].post_receives(host))?;
            host.device.check()?;
        }
        Ok(())
    }

    /// Posts the messages of both ends of a pair.
    fn post(&mut self, index: usize) -> Result<()> {
        let pair = &mut self.pairs[index];
        for side in 0..2 {
            let remote = pair[1 - side].window.as_ref().context("the pair begins")?.remote();
            pair[side].post_sends(&self.hosts[side], remote)?;
        }
        Ok(())
    }

    fn act(&mut self, index: usize, action: Action) -> Result<()> {
        let side = self.random.random_range(0..2);
        let [own, peer] = self.pairs[index].get_disjoint_mut([side, 1 - side]).context("two ends")?;
        let host = &self.hosts[side];
        match action {
            Action::DestroyRegion => {
                own.window = None;
                own.reuse(host, WINDOW_BYTES)
            }
            Action::InvalidateOwn => {
                let key = own.window.as_ref().context("it is there")?.remote().key;
                own.post(SendRequest::local_invalidate(MESSAGES as u64, key).signalled())
            }
            Action::InvalidatePeer => {
                let key = peer.window.as_ref().context("it is there")?.remote().key;
                own.post(SendRequest::send_invalidate(MESSAGES as u64, key).inline(b"end").signalled())
            }
            Action::DestroyQueuePair => own.destroy(),
            Action::Replace => {
                own.destroy()?;
                peer.destroy()?;
                self.exchange()
            }
        }
    }

    /// A message each way on a new pair, between the traffic of the others.
    fn exchange(&mut self) -> Result<()> {
        let mut ends = pair(&self.hosts, &mut self.random)?;
        for (host, (queue_pair, _)) in self.hosts.iter().zip(&mut ends) {
            let receive = ReceiveRequest::new(1).sge(host.domain.allocate(64)?);
            queue_pair.post_receive(receive)?;
            host.device.check()?;
        }
        for (side, (queue_pair, _)) in ends.iter_mut().enumerate() {
            let request = SendRequest::send(2).inline(&[side as u8; 50]).signalled();
            queue_pair.post_send(request)?;
        }
        let mut done = [Vec::new(), Vec::new()];
        for _ in 0..TURNS_MAX {
            self.turn()?;
            for (list, (_, queue)) in done.iter_mut().zip(&ends) {
                queue.poll(list, usize::MAX)?;
            }
            if done.iter().all(|list| list.len() == 2) {
                break;
            }
        }
        for (side, list) in done.iter().enumerate() {
            ensure!(list.len() == 2 && list.iter().all(Completion::is_success), "{list:?}");
            let received = list.iter().find(|done| done.opcode == CompletionOpcode::Receive);
            let message = received.context("one of them is the receive")?.message();
            ensure!(message == [1 - side as u8; 50], "{message:?}");
        }
        Ok(())
    }

    /// Returns how many messages have succeeded, and how many have not.
    fn round(&mut self) -> Result<[usize; 2]> {
        self.connect()?;
        let mut order: Vec<usize> = (0..PAIRS).collect();
        order.shuffle(&mut self.random);
        for index in order {
            self.post(index)?;
            for _ in 0..self.random.random_range(0..IDLE_UNTIL) {
                self.turn()?;
            }
            let action = ACTIONS[index];
            self.act(index, action).with_context(|| format!("{action:?}"))?;
        }
        for _ in 0..self.random.random_range(0..IDLE_UNTIL) {
            self.turn()?;
        }
        self.pairs.iter_mut().flatten().try_for_each(End::fail)?;
        let mut turns = 0;
        while !self.pairs.iter().flatten().all(End::is_done) {
            self.turn()?;
            turns += 1;
            ensure!(turns < TURNS_MAX, "something never completes");
        }
        // What completes twice, or is written late, comes now.
        for _ in 0..IDLE_UNTIL {
            self.turn()?;
        }
        let mut counts = [0; 2];
        for ([first, second], action) in self.pairs.iter().zip(ACTIONS) {
            let context = || format!("{action:?}");
            compare(first, second).with_context(context)?;
            compare(second, first).with_context(context)?;
            for end in [first, second] {
                ensure!(end.is_done(), "{action:?}: something completes twice");
                let good = successes(&end.sends)?;
                counts[0] += good;
                counts[1] += end.sends.len() - good;
            }
        }
        self.pairs.clear();
        for host in &self.hosts {
            while host.device.events().poll()?.is_some() {}
            host.device.check()?;
        }
        Ok(counts)
    }
}

/// Opens two cards and runs the given number of rounds.
pub(crate) fn rounds(functions: [Arc<dyn Function>; 2], seed: Seed, rounds: usize) -> Result<[usize; 2]> {
    let mut run = Run { hosts: open(functions, seed)?, random: seed.stream("churn"), pairs: Vec::new() };
    let mut sum = [0; 2];
    for index in 0..rounds {
        let counts = run.round().with_context(|| format!("round {index}"))?;
        sum = [sum[0] + counts[0], sum[1] + counts[1]];
    }
    Ok(sum)
}
