//! Queue pairs that take their receives from one shared receive queue, which outlives them.
//!
//! Which message takes which receive is random, so the checks hold for any outcome: the messages of a queue pair arrive in
//! order and unchanged, each in a receive of its own; the limit event is raised once if fewer receives were left, and not
//! otherwise; a queue pair that fails flushes the receive that it holds, raises an event after that, and does not affect
//! receives that others may still take.
use crate::hosts::{Host, TURNS_MAX, Turns, any_pmtu, connect, cut, open};
use anyhow::{Context, Result, bail, ensure};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::{Error as Failed, ReadyToSend};
use rnic_driver::{
    Completion, ConnectOptions, Function, QueuePair, ReceiveRequest, RemoteMemory, RemoteRights, SendRequest,
    SgList, SharedReceiveQueue, SharedReceiveQueueOptions, SharedRegion,
};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_stimulus::chance::Seed;
use std::sync::Arc;

/// Busy pairs.
const PAIRS: usize = 6;
/// Receives that are kept posted, unless a test lets them run out.
const RECEIVES: usize = 40;
/// Length of a receive, in two pieces.
const ROOM: usize = 4096;
/// Maximum of bytes in flight: the smallest receive buffer has room for them.
const BYTES: usize = 16 << 10;
/// Messages of a round whose receivers fail.
const CUT_OFF: usize = 10;

/// A message, which consumes a receive.
struct Message {
    opcode: CompletionOpcode,
    bytes: Vec<u8>,
    immediate: Option<[u8; 4]>,
}

/// Two connected queue pairs; the first host sends.
struct Pair {
    sender: Option<QueuePair<ReadyToSend>>,
    sender_number: u32,
    receiver: Option<QueuePair<ReadyToSend>>,
    number: u32,
    failed: Vec<QueuePair<Failed>>,
    messages: Vec<Message>,
    posted: usize,
    received: usize,
    /// A receive was flushed.
    is_flushed: bool,
    /// The event that it takes no more receives was raised.
    is_over: bool,
}

struct Run {
    hosts: [Host; 2],
    random: ChaCha8Rng,
    window: SharedRegion,
    shared: SharedReceiveQueue,
    /// Memory that is not posted.
    free: Vec<SgList>,
    wr_id: u64,
    /// `wr_id`s of the posted receives.
    wr_ids: Vec<u64>,
    pairs: Vec<Pair>,
    limit_events: usize,
    /// Messages that arrived, and receives that were flushed.
    counts: [usize; 2],
}

fn fail(queue_pair: &mut Option<QueuePair<ReadyToSend>>, failed: &mut Vec<QueuePair<Failed>>) -> Result<()> {
    if let Some(queue_pair) = queue_pair.take() {
        failed.push(queue_pair.fail().map_err(rnic_driver::Error::from)?);
    }
    Ok(())
}

impl Turns for Run {
    fn turn(&mut self) -> Result<()> {
        let mut over = Vec::new();
        while let Some(event) = self.hosts[1].device.events().poll()? {
            match event.code {
                AsyncEvent::SharedReceiveLimit => {
                    ensure!(event.object_number == self.shared.number(), "{event:?}");
                    self.limit_events += 1;
                }
                AsyncEvent::LastWqeReached => over.push(event.object_number),
                _ => bail!("{event:?} should not come"),
            }
        }
        self.hosts[1].poll()?.into_iter().try_for_each(|completion| self.receive(completion))?;
        for number in over {
            let pair = self.pairs.iter_mut().find(|pair| pair.number == number);
            let pair = pair.context("an unknown queue pair has ended")?;
            ensure!(pair.receiver.is_none() && !pair.is_over, "it is not over, or was before");
            pair.is_over = true;
        }
        let completions = self.hosts[0].poll()?;
        let is_cut_off = self.pairs.iter().any(|pair| pair.receiver.is_none());
        // Messages of the previous round may complete late.
        let is_ours = |number: u32| self.pairs.iter().any(|pair| pair.sender_number == number);
        let mut ours = completions.iter().filter(|completion| is_ours(completion.qp_number));
        ensure!(ours.all(Completion::is_success) || is_cut_off, "{completions:?}");
        self.hosts[0].function.idle();
        Ok(())
    }
}

impl Run {
    fn message(&mut self) -> Message {
        use CompletionOpcode::{Receive, ReceiveWrite};
        let length = match self.random.random_range(0..4) {
            0 => self.random.random_range(0..=64),
            1 => self.random.random_range(0..=ROOM),
            _ => self.random.random_range(0..=1024),
        };
        let is_write = self.random.random_bool(0.2);
        let has_immediate = is_write || self.random.random();
        Message {
            opcode: if is_write { ReceiveWrite } else { Receive },
            bytes: (0..length).map(|_| self.random.random()).collect(),
            immediate: has_immediate.then(|| self.random.random()),
        }
    }

    /// Connects pairs that send this many messages together.
    fn connect(&mut self, count: usize) -> Result<()> {
        self.pairs.clear();
        for _ in 0..PAIRS {
            let [first, second] = &self.hosts;
            let sender = first.queue_pair(RemoteRights::NONE)?;
            let receiver = second.domain.create_queue_pair_with_srq(
                &second.queue,
                &second.queue,
                &self.shared,
                &second.options(),
            )?;
            let receiver = receiver.initialize(RemoteRights::WRITE).map_err(rnic_driver::Error::from)?;
            let pmtu = any_pmtu(&mut self.random);
            let [sender, mut receiver] = connect([sender, receiver], pmtu, &ConnectOptions::default())?;
            ensure!(receiver.post_receive(ReceiveRequest::new(0)).is_err(), "it has no receives of its own");
            self.pairs.push(Pair {
                number: receiver.number(),
                sender_number: sender.number(),
                sender: Some(sender),
                receiver: Some(receiver),
                failed: Vec::new(),
                messages: Vec::new(),
                posted: 0,
                received: 0,
                is_flushed: false,
                is_over: false,
            });
        }
        for _ in 0..count {
            let message = self.message();
            let place = self.random.random_range(0..PAIRS);
            self.pairs[place].messages.push(message);
        }
        Ok(())
    }

    /// Posts this many receives, as far as there is memory for them.
    fn post_receives(&mut self, count: usize) -> Result<()> {
        let count = count.min(self.free.len());
        let mut requests = Vec::new();
        for mut pieces in self.free.drain(..count) {
            pieces.iter_mut().for_each(|piece| piece.bytes_mut().fill(0xa5));
            requests.push(pieces.into_iter().fold(ReceiveRequest::new(self.wr_id), ReceiveRequest::sge));
            self.wr_ids.push(self.wr_id);
            self.wr_id += 1;
        }
        self.shared.post_receives(&mut requests)?;
        // The read returns after all doorbells that were written before it.
        Ok(self.hosts[1].device.check()?)
    }

    /// Posts the next message of a pair.
    fn send(&mut self, place: usize) -> Result<()> {
        let pair = &mut self.pairs[place];
        let message = &pair.messages[pair.posted];
        let wr_id = pair.posted as u64;
        let remote = self.window.remote();
        let bytes = message.bytes.len() as u64;
        let request = match (message.opcode, message.immediate) {
            (CompletionOpcode::ReceiveWrite, Some(immediate)) => {
                SendRequest::write_immediate(wr_id, RemoteMemory { bytes, ..remote }, immediate)
            }
            (_, Some(immediate)) => SendRequest::send_immediate(wr_id, immediate),
            (_, None) => SendRequest::send(wr_id),
        };
        let request = if bytes <= 64 {
            request.inline(&message.bytes)
        } else {
            let mut memory = Some(self.hosts[0].domain.allocate(message.bytes.len() + 128)?);
            let mut piece = cut(&mut memory, 61, message.bytes.len())?;
            piece.bytes_mut().copy_from_slice(&message.bytes);
            request.sge(piece)
        };
        let sender = pair.sender.as_mut().context("it was failed")?;
        sender.post_send(request.signalled())?;
        pair.posted += 1;
        Ok(())
    }

    fn receive(&mut self, completion: Completion) -> Result<()> {
        let place = self.wr_ids.iter().position(|wr_id| *wr_id == completion.wr_id);
        self.wr_ids.swap_remove(place.with_context(|| format!("{completion:?} was not posted"))?);
        let pair = self.pairs.iter_mut().find(|pair| pair.number == completion.qp_number);
        let pair = pair.context("an unknown queue pair")?;
        ensure!(!pair.is_over, "{completion:?} follows the last one");
        if completion.status == CompletionStatus::Flushed {
            pair.is_flushed = true;
            self.counts[1] += 1;
        } else {
            ensure!(completion.is_success() && !pair.is_flushed, "{completion:?}");
            let message = pair.messages.get(pair.received).context("no such message was sent")?;
            let found = (completion.opcode, completion.immediate, completion.length as usize);
            ensure!(found == (message.opcode, message.immediate, message.bytes.len()), "{completion:?}");
            let held: Vec<u8> = completion.sg_list.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
            let is_write = message.opcode == CompletionOpcode::ReceiveWrite;
            let here: &[u8] = if is_write { &[] } else { &message.bytes };
            ensure!(held.starts_with(here), "{completion:?} holds something else");
            ensure!(held[here.len()..].iter().all(|byte| *byte == 0xa5), "{completion:?} holds too much");
            pair.received += 1;
            self.counts[0] += 1;
        }
        self.free.push(completion.sg_list);
        Ok(())
    }

    /// Fails all queue pairs; the receivers must raise the event that they take no more receives.
    fn end(&mut self, pause: usize) -> Result<()> {
        let mut places: Vec<usize> = (0..PAIRS).collect();
        places.shuffle(&mut self.random);
        for place in places {
            let turns = self.random.random_range(0..=pause);
            self.turn_times(turns)?;
            let pair = &mut self.pairs[place];
            fail(&mut pair.receiver, &mut pair.failed)?;
        }
        self.turn_until("the last receive", |run| run.pairs.iter().all(|pair| pair.is_over))?;
        for pair in &mut self.pairs {
            fail(&mut pair.sender, &mut pair.failed)?;
        }
        let left = self.shared.in_flight();
        ensure!(left == self.wr_ids.len(), "{left} receives are left, and not {}", self.wr_ids.len());
        Ok(())
    }

    /// Sends on all pairs and keeps posting receives, until `left` messages are left.
    fn calm(&mut self, left: usize) -> Result<()> {
        self.post_receives(RECEIVES)?;
        let mut again = self.random.random_range(10..40);
        self.connect(RECEIVES + again - left)?;
        let limit = self.random.random_range(1..12_u16);
        self.shared.set_limit(limit)?;
        self.limit_events = 0;
        let mut idle = 0;
        while self.pairs.iter().any(|pair| pair.received < pair.messages.len()) {
            let count = again.min(self.free.len());
            again -= count;
            if count > 0 {
                self.post_receives(count)?;
            }
            let under_way = |pair: &Pair| pair.posted - pair.received;
            let open: usize = self.pairs.iter().map(under_way).sum();
            let bytes = |pair: &Pair| -> usize {
                pair.messages[pair.received..pair.posted].iter().map(|message| message.bytes.len()).sum()
            };
            let bytes: usize = self.pairs.iter().map(bytes).sum();
            let place = self.random.random_range(0..PAIRS);
            let pair = &self.pairs[place];
            if open < self.shared.in_flight() && bytes + ROOM <= BYTES && pair.posted < pair.messages.len() {
                self.send(place)?;
            }
            let before = self.counts;
            self.turn()?;
            idle = if self.counts == before { idle + 1 } else { 0 };
            ensure!(idle < TURNS_MAX, "messages do not arrive");
        }
        self.turn_times(200)?;
        let expected = usize::from(usize::from(limit) > left);
        ensure!(
            self.limit_events == expected,
            "{} events of a limit of {limit} with {left} left",
            self.limit_events
        );
        self.end(0)
    }

    /// Fails the receivers before all messages have arrived.
    fn cut_off(&mut self) -> Result<()> {
        self.post_receives(RECEIVES)?;
        self.connect(CUT_OFF)?;
        for place in 0..PAIRS {
            while self.pairs[place].posted < self.pairs[place].messages.len() {
                self.send(place)?;
            }
        }
        self.end(25)
    }
}

/// Opens two cards and runs some rounds. Returns how many messages arrived, and how many receives were flushed.
pub(crate) fn rounds(functions: [Arc<dyn Function>; 2], seed: Seed) -> Result<[usize; 2]> {
    let hosts = open(functions, seed)?;
    let shared = hosts[1].domain.create_shared_receive_queue(&SharedReceiveQueueOptions::default())?;
    let mut memory = Some(hosts[1].domain.allocate(RECEIVES * (ROOM + 64) + 64)?);
    let free = (0..RECEIVES).map(|_| -> Result<SgList> {
        let first = cut(&mut memory, 13, 1000)?;
        let mut pieces = SgList::new();
        pieces.push(first);
        pieces.push(cut(&mut memory, 7, ROOM - 1000)?);
        Ok(pieces)
    });
    let free = free.collect::<Result<Vec<_>>>()?;
    let mut run = Run {
        window: hosts[1].domain.share(ROOM, RemoteRights::WRITE)?,
        random: seed.stream("shared"),
        hosts,
        shared,
        free,
        wr_id: 0,
        wr_ids: Vec::new(),
        pairs: Vec::new(),
        limit_events: 0,
        counts: [0; 2],
    };
    for index in 0..2 {
        let left = run.random.random_range(0..4);
        run.calm(left).with_context(|| format!("calm round {index}"))?;
        run.cut_off().with_context(|| format!("round {index} that is cut off"))?;
    }
    // All remaining receives must still be usable.
    run.calm(0).context("the last round")?;
    Ok(run.counts)
}
