//! Executes a plan, and compares the results with the model.
//!
//! Queue pairs are served in an order that is drawn anew each round, and each posts a few requests at a time. A receive is
//! known to its card before the message that consumes it is posted.
use super::model::{
    Arrived, Model, ReceiveResult, SendResult, execute, shared_index, shared_wr_id, window, wr_id,
};
use super::plan::{Message, Plan, Receive};
use anyhow::{Context, Result, bail, ensure};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use std::collections::BTreeSet;

/// Calls of [`Machine::idle`] without progress after which a run has stalled.
const IDLE_MAX: usize = 20_000;
/// Maximum of requests that are posted at once.
const BATCH_MAX: usize = 8;

/// A message to post, with its payload.
#[derive(Clone, Copy, Debug)]
pub struct Post<'a> {
    /// `wr_id`, which is returned in the completion.
    pub wr_id: u64,
    /// Message to post.
    pub message: &'a Message,
    /// Payload of the message.
    pub payload: &'a [u8],
    /// Compare operand of a compare and swap.
    pub compare: u64,
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Pair of queue pairs, by index in the plan.
    pub pair: usize,
    /// The request is a receive.
    pub is_receive: bool,
    /// `wr_id` of the request.
    pub wr_id: u64,
    /// Status of the completion.
    pub status: CompletionStatus,
    /// Operation. Undefined for receives that failed.
    pub opcode: CompletionOpcode,
    /// Receives: length of the message, in bytes.
    pub length: u32,
    /// Receives: immediate data.
    pub immediate: Option<[u8; 4]>,
    /// Receives: the sender requested a solicited event.
    pub is_solicited: bool,
    /// Receives: it has invalidated the key that peers may invalidate in its direction.
    pub ends_key: bool,
    /// It had a CQE of its own.
    pub is_signalled: bool,
    /// Receives, READs and atomics: contents of the pieces.
    pub contents: Vec<Vec<u8>>,
}

/// Two hosts with connected queue pairs, set up as the plan says. `side` is a host, `pair` one of its queue pairs.
pub trait Machine {
    /// Posts messages in order, as many as there is room for, and returns their number.
    ///
    /// # Errors
    /// If a message cannot be posted at all.
    fn post_sends(&mut self, side: usize, pair: usize, posts: &[Post]) -> Result<usize>;

    /// Posts a receive. Returns false if there is no room for it.
    ///
    /// # Errors
    /// If it cannot be posted at all.
    fn post_receive(&mut self, side: usize, pair: usize, wr_id: u64, receive: &Receive) -> Result<bool>;

    /// Posts a receive to the shared receive queue of a host. Returns false if there is no room for it.
    ///
    /// # Errors
    /// If it cannot be posted at all.
    fn post_shared_receive(&mut self, side: usize, wr_id: u64, receive: &Receive) -> Result<bool>;

    /// Waits until all posted receives have reached the card.
    ///
    /// # Errors
    /// If the card cannot be reached.
    fn confirm(&mut self, side: usize) -> Result<()>;

    /// Advances time by a little.
    ///
    /// # Errors
    /// If the machine has failed.
    fn idle(&mut self) -> Result<()>;

    /// Appends the results of completed requests, in the order of each queue.
    ///
    /// # Errors
    /// If the card reports an impossible completion.
    fn poll(&mut self, side: usize, outcomes: &mut Vec<Outcome>) -> Result<()>;

    /// Moves a queue pair to ERR.
    ///
    /// # Errors
    /// If the card refuses.
    fn fail(&mut self, side: usize, pair: usize) -> Result<()>;

    /// Copies the window of a queue pair.
    ///
    /// # Errors
    /// If it cannot be read.
    fn window(&mut self, side: usize, pair: usize) -> Result<Vec<u8>>;

    /// Takes the next asynchronous event of a host, with its pair.
    ///
    /// # Errors
    /// If the card reports an impossible event.
    fn event(&mut self, side: usize) -> Result<Option<(usize, AsyncEvent)>>;

    /// Checks memory that must not have changed.
    ///
    /// # Errors
    /// If it has.
    fn check_untouched(&mut self) -> Result<()>;
}

/// Counts of what a run has compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages that were executed.
    pub messages: u64,
    /// Bytes of these messages, each of which was compared.
    pub bytes: u64,
    /// Completions that were compared.
    pub completions: u64,
    /// Asynchronous events.
    pub events: u64,
    /// Mistakes that were refused as required.
    pub mistakes: u64,
}

/// Runs a plan on a machine, and compares completions, memory and events with the model.
///
/// # Errors
/// The first difference, or a stalled run.
pub fn run(plan: &Plan, machine: &mut impl Machine) -> Result<Totals> {
    let model = Model::new(plan);
    let random = plan.seed.stream("run");
    let counts = || vec![Counts::default(); plan.pairs.len()];
    let (counts, shared) = ([counts(), counts()], Default::default());
    let windows = || -> Vec<Window> {
        plan.pairs.iter().map(|_| Window { bytes: window(plan), executed: 0 }).collect()
    };
    let windows = [windows(), windows()];
    let mut runner = Runner { plan, model: &model, machine, random, counts, shared, windows, idle: 0 };
    runner.run().with_context(|| format!("seed {}", plan.seed.0))
}

/// Progress of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    sends_posted: usize,
    sends_done: usize,
    receives_posted: usize,
    receives_done: usize,
    /// Number of receives that have reached its card.
    receives_known: usize,
    /// Posted messages that consume a receive of it.
    receives_taken: usize,
    /// First receive of the shared queue that its next message may consume.
    next_shared: usize,
}

/// Progress of a shared receive queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shared {
    posted: usize,
    /// Number of receives that have reached its card.
    known: usize,
    /// Posted messages that consume one.
    taken: usize,
    /// Indices of completed receives.
    done: BTreeSet<usize>,
}

impl Counts {
    fn is_idle(&self) -> bool {
        self.sends_posted == self.sends_done && self.receives_posted == self.receives_done
    }
}

/// The window that messages of a host access at the peer, as it must be when those that are done have been executed.
#[derive(Clone, Debug)]
struct Window {
    bytes: Vec<u8>,
    /// Messages that are executed in `bytes`.
    executed: usize,
}

struct Runner<'a, M: Machine> {
    plan: &'a Plan,
    model: &'a Model,
    machine: &'a mut M,
    random: ChaCha8Rng,
    /// By host and pair.
    counts: [Vec<Counts>; 2],
    /// By host.
    shared: [Shared; 2],
    /// By host whose messages access it, and pair.
    windows: [Vec<Window>; 2],
    idle: usize,
}

impl<M: Machine> Runner<'_, M> {
    fn run(&mut self) -> Result<Totals> {
        self.messages()?;
        self.endings()?;
        self.memory()?;
        let events = self.events()?;
        self.machine.check_untouched()?;
        Ok(self.totals(events))
    }

    /// Runs all valid messages.
    fn messages(&mut self) -> Result<()> {
        let pairs = self.plan.pairs.len();
        let mut turns: Vec<(usize, usize)> = (0..pairs).flat_map(|pair| [(0, pair), (1, pair)]).collect();
        let plan = self.plan;
        let ends = |side: usize, pair: usize| {
            let plan = &plan.pairs[pair];
            (plan.lanes[side].sends.len(), plan.receives_taken(side))
        };
        loop {
            turns.shuffle(&mut self.random);
            let mut posted = false;
            for &(side, pair) in &turns {
                if plan.pairs[pair].shares[side] {
                    continue;
                }
                posted |= self.post_receives(side, pair, ends(side, pair).1, BATCH_MAX)?;
            }
            for side in 0..2 {
                posted |= self.post_shared(side)?;
            }
            self.confirm()?;
            for &(side, pair) in &turns {
                let most = if self.random.random() { BATCH_MAX } else { 0 };
                posted |= self.post_sends(side, pair, ends(side, pair).0, most)?;
            }
            self.turn(posted)?;
            for &(side, pair) in &turns {
                self.compare_window(side, pair)?;
            }
            let is_done = |&(side, pair): &(usize, usize)| {
                let (sends, receives) = ends(side, pair);
                let counts = &self.counts[side][pair];
                counts.sends_done == sends && counts.receives_done == receives
            };
            if turns.iter().all(is_done) {
                return Ok(());
            }
        }
    }

    /// Runs all mistakes, at the same time.
    fn endings(&mut self) -> Result<()> {
        let plan = self.plan;
        let endings = || {
            let pairs = plan.pairs.iter().enumerate();
            pairs.filter_map(|(pair, plan)| Some((pair, plan, plan.ending.as_ref()?)))
        };
        for (pair, _, ending) in endings() {
            for side in 0..2 {
                let end = self.counts[side][pair].receives_posted + ending.receives[side].len();
                self.post_all_receives(side, pair, end)?;
            }
        }
        self.confirm()?;
        for (pair, _, ending) in endings() {
            let counts = &mut self.counts[1 - ending.side][pair];
            // The limit of receives applies only to messages that must find one.
            counts.receives_known = usize::MAX;
            let end = self.counts[ending.side][pair].sends_posted + ending.sends.len();
            self.post_all_sends(ending.side, pair, end)?;
        }
        self.settle(|_, ending, side| side == ending.side || ending.mistake.fails_responder())?;
        for (pair, pair_plan, ending) in endings() {
            for side in 0..2 {
                let fails = side == ending.side || ending.mistake.fails_responder();
                if fails {
                    self.counts[1 - side][pair].receives_known = usize::MAX;
                    self.post_all_sends(side, pair, pair_plan.sends(side).count())?;
                    self.post_all_receives(side, pair, pair_plan.receives(side).count())?;
                } else {
                    self.machine.fail(side, pair)?;
                }
            }
        }
        self.settle(|_, _, _| true)
    }

    /// Waits until all work on failed queue pairs has completed.
    fn settle(&mut self, is_failed: impl Fn(usize, &super::plan::Ending, usize) -> bool) -> Result<()> {
        let plan = self.plan;
        loop {
            let waits = plan.pairs.iter().enumerate().any(|(pair, pair_plan)| {
                pair_plan.ending.as_ref().is_some_and(|ending| {
                    (0..2).any(|side| is_failed(pair, ending, side) && !self.counts[side][pair].is_idle())
                })
            });
            if !waits {
                return Ok(());
            }
            self.turn(false)?;
        }
    }

    fn post_all_receives(&mut self, side: usize, pair: usize, end: usize) -> Result<()> {
        while self.counts[side][pair].receives_posted < end {
            let posted = self.post_receives(side, pair, end, usize::MAX)?;
            if !posted {
                self.turn(false)?;
            }
        }
        Ok(())
    }

    fn post_all_sends(&mut self, side: usize, pair: usize, end: usize) -> Result<()> {
        while self.counts[side][pair].sends_posted < end {
            let posted = self.post_sends(side, pair, end, usize::MAX)?;
            if !posted {
                self.turn(false)?;
            }
        }
        Ok(())
    }

    /// Posts up to `most` receives with an index below `end`. Returns whether it posted any.
    fn post_receives(&mut self, side: usize, pair: usize, end: usize, most: usize) -> Result<bool> {
        let first = self.counts[side][pair].receives_posted;
        let count = end.saturating_sub(first).min(most);
        for (place, receive) in self.plan.pairs[pair].receives(side).enumerate().skip(first).take(count) {
            if !self.machine.post_receive(side, pair, wr_id(pair, place), receive)? {
                break;
            }
            self.counts[side][pair].receives_posted += 1;
        }
        Ok(self.counts[side][pair].receives_posted != first)
    }

    /// Posts some receives to the shared receive queue of a host. Returns whether it posted any.
    fn post_shared(&mut self, side: usize) -> Result<bool> {
        let first = self.shared[side].posted;
        for (place, receive) in self.plan.shared[side].iter().enumerate().skip(first).take(BATCH_MAX) {
            if !self.machine.post_shared_receive(side, shared_wr_id(place), receive)? {
                break;
            }
            self.shared[side].posted += 1;
        }
        Ok(self.shared[side].posted != first)
    }

    /// Posts up to `most` messages with an index below `end`, as far as there is room. Returns whether it posted any.
    fn post_sends(&mut self, side: usize, pair: usize, end: usize, most: usize) -> Result<bool> {
        let first = self.counts[side][pair].sends_posted;
        let count = self.ready(side, pair, end.saturating_sub(first).min(most));
        let ready = self.plan.pairs[pair].sends(side).skip(first).take(count);
        let payloads: Vec<(&Message, Vec<u8>)> = ready
            .enumerate()
            .map(|(place, message)| (message, self.plan.payload(side, pair, first + place, message.length())))
            .collect();
        let posts: Vec<Post> = payloads
            .iter()
            .enumerate()
            .map(|(place, (message, payload))| {
                let compare = self.model.sides[side][pair].sends[first + place].compare(message);
                Post { wr_id: wr_id(pair, first + place), message, payload, compare }
            })
            .collect();
        if posts.is_empty() {
            return Ok(false);
        }
        let posted = self.machine.post_sends(side, pair, &posts)?;
        self.counts[side][pair].sends_posted += posted;
        // Messages at the end do not consume shared receives.
        let is_shared = self.shares(1 - side, pair);
        let taken = posts[..posted].iter().filter(|post| post.message.kind.consumes()).count();
        let counts = &mut self.counts[1 - side][pair];
        counts.receives_taken += taken;
        if is_shared {
            counts.receives_posted += taken;
            self.shared[1 - side].taken += taken;
        }
        Ok(posted > 0)
    }

    /// Number of the next messages, at most `most`, that may be posted now: the receives that they consume are known, their
    /// bytes are within the limit, and the last one is signalled, so that all of them complete. After a mistake all messages
    /// complete.
    fn ready(&self, side: usize, pair: usize, most: usize) -> usize {
        let pair_plan = &self.plan.pairs[pair];
        let first = self.counts[side][pair].sends_posted;
        let Counts { receives_known, receives_taken, .. } = self.counts[1 - side][pair];
        let mut room = receives_known.saturating_sub(receives_taken);
        if self.shares(1 - side, pair) {
            let Shared { known, taken, .. } = self.shared[1 - side];
            room = known - taken;
        }
        let in_flight = self.bytes_in_flight(side);
        let mut bytes = in_flight;
        let mut ready = 0;
        for (count, message) in (1..).zip(pair_plan.sends(side).skip(first).take(most)) {
            bytes += message.length();
            let takes = usize::from(message.kind.consumes());
            let is_alone = ready == 0 && in_flight == 0;
            if room < takes || (bytes > self.plan.in_flight_bytes && !is_alone) {
                break;
            }
            room -= takes;
            if message.signalled || first + count > pair_plan.lanes[side].sends.len() {
                ready = count;
            }
        }
        ready
    }

    /// Returns whether messages to a queue pair consume receives of a shared queue; those at the end do not.
    fn shares(&self, side: usize, pair: usize) -> bool {
        self.plan.pairs[pair].shares[side] && self.counts[side][pair].receives_known != usize::MAX
    }

    /// Bytes in flight from a host.
    fn bytes_in_flight(&self, side: usize) -> usize {
        let pairs = self.plan.pairs.iter().zip(&self.counts[side]);
        let under_way = pairs.flat_map(|(pair, counts)| {
            pair.sends(side).skip(counts.sends_done).take(counts.sends_posted - counts.sends_done)
        });
        under_way.map(Message::length).sum()
    }

    fn confirm(&mut self) -> Result<()> {
        for side in 0..2 {
            let is_news = |counts: &Counts| counts.receives_known < counts.receives_posted;
            let shared = &self.shared[side];
            if shared.known < shared.posted || self.counts[side].iter().any(is_news) {
                self.machine.confirm(side)?;
                self.shared[side].known = self.shared[side].posted;
                for counts in &mut self.counts[side] {
                    counts.receives_known = counts.receives_known.max(counts.receives_posted);
                }
            }
        }
        Ok(())
    }

    /// Collects completions, and advances time.
    fn turn(&mut self, posted: bool) -> Result<()> {
        let mut news = posted;
        for side in 0..2 {
            let mut outcomes = Vec::new();
            self.machine.poll(side, &mut outcomes)?;
            news |= !outcomes.is_empty();
            for outcome in outcomes {
                self.compare(side, &outcome)?;
            }
        }
        self.idle = if news { 0 } else { self.idle + 1 };
        if self.idle > IDLE_MAX {
            bail!("the run has stalled; missing are {}", self.missing());
        }
        self.machine.idle()
    }

    fn missing(&self) -> String {
        let lines = self.counts.iter().enumerate().flat_map(|(side, list)| {
            let waiting = list.iter().enumerate().filter(|(_, counts)| !counts.is_idle());
            waiting.map(move |(pair, counts)| {
                let Counts { sends_posted, sends_done, receives_posted, receives_done, .. } = counts;
                format!(
                    "host {side} pair {pair}: {sends_done} of {sends_posted} messages and {receives_done} of \
                     {receives_posted} receives are done"
                )
            })
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    fn compare(&mut self, side: usize, outcome: &Outcome) -> Result<()> {
        let pair = outcome.pair;
        let counts = &mut self.counts[side][pair];
        let done = if outcome.is_receive { &mut counts.receives_done } else { &mut counts.sends_done };
        let place = *done;
        *done += 1;
        let what = if outcome.is_receive { "receive" } else { "message" };
        let context = || format!("host {side}, pair {pair}, {what} {place}");
        if outcome.is_receive && self.plan.pairs[pair].shares[side] {
            return self.compare_shared(side, place, outcome).with_context(context);
        }
        ensure!(outcome.wr_id == wr_id(pair, place), "{}: wr_id {:#x} completes", context(), outcome.wr_id);
        let expected = &self.model.sides[side][pair];
        if outcome.is_receive {
            compare_receive(&expected.receives[place], outcome).with_context(context)
        } else {
            compare_send(&expected.sends[place], outcome).with_context(context)
        }
    }

    /// A message may have consumed any receive of the shared queue, but each only once, and those of a queue pair in order.
    fn compare_shared(&mut self, side: usize, place: usize, outcome: &Outcome) -> Result<()> {
        let shared = &mut self.shared[side];
        let index = shared_index(outcome.wr_id).filter(|&index| index < shared.posted);
        let index = index.with_context(|| format!("wr_id {:#x} was not posted", outcome.wr_id))?;
        ensure!(shared.done.insert(index), "receive {index} of the shared queue completes twice");
        let next = &mut self.counts[side][outcome.pair].next_shared;
        ensure!(index >= *next, "receive {index} of the shared queue was taken before its turn");
        *next = index + 1;
        let expected = self.model.sides[side][outcome.pair].receives.get(place);
        let mut expected = expected.context("no such message was sent")?.clone();
        expected.contents = expected.contents_of(outcome.wr_id, &self.plan.shared[side][index]);
        compare_receive(&expected, outcome)
    }

    /// Compares the window that messages of a host access with what those that are done have left there, if there are more of
    /// them than before. Bytes that messages in flight may change are not compared.
    fn compare_window(&mut self, side: usize, pair: usize) -> Result<()> {
        let Counts { sends_done, sends_posted, .. } = self.counts[side][pair];
        let (plan, expected) = (self.plan, &mut self.windows[side][pair]);
        if expected.executed == sends_done {
            return Ok(());
        }
        let sends = || plan.pairs[pair].sends(side).enumerate();
        for (place, message) in sends().take(sends_done).skip(expected.executed) {
            execute(plan, side, pair, place, message, &mut expected.bytes);
        }
        expected.executed = sends_done;
        let mut found = self.machine.window(1 - side, pair)?;
        let in_flight = sends().take(sends_posted).skip(sends_done);
        for range in in_flight.filter_map(|(_, message)| message.window()) {
            if let Some(place) = found.get_mut(range.clone()) {
                place.copy_from_slice(&expected.bytes[range]);
            }
        }
        if let Some(place) = first_difference(&found, &expected.bytes) {
            bail!(
                "host {}, window of pair {pair}, after {sends_done} messages: byte {place} is {:?} and not {:?}",
                1 - side,
                found.get(place),
                expected.bytes.get(place)
            );
        }
        Ok(())
    }

    fn memory(&mut self) -> Result<()> {
        for side in 0..2 {
            for (pair, expected) in self.model.sides[side].iter().enumerate() {
                let mut window = self.machine.window(side, pair)?;
                let unpromised = expected.unpromised.clone();
                if let Some(place) = window.get_mut(unpromised.clone()) {
                    place.copy_from_slice(&expected.window[unpromised]);
                }
                if let Some(place) = first_difference(&window, &expected.window) {
                    bail!(
                        "host {side}, window of pair {pair}: byte {place} is {:?} and not {:?}",
                        window.get(place),
                        expected.window.get(place)
                    );
                }
            }
        }
        Ok(())
    }

    /// Events may arrive after the last completion.
    fn events(&mut self) -> Result<u64> {
        let mut missing: [Vec<(usize, AsyncEvent)>; 2] = self.model.sides.each_ref().map(|side| {
            let pairs = side.iter().enumerate();
            pairs.flat_map(|(pair, result)| result.events.iter().map(move |&event| (pair, event))).collect()
        });
        let count = missing.iter().map(|list| list.len() as u64).sum();
        // Long enough for an unexpected event to arrive.
        let mut idle = 0;
        while idle < 100 || (missing.iter().any(|list| !list.is_empty()) && idle < IDLE_MAX) {
            for (side, list) in missing.iter_mut().enumerate() {
                while let Some(event) = self.machine.event(side)? {
                    let place = list.iter().position(|expected| *expected == event);
                    let place = place.with_context(|| format!("host {side}: {event:?} should not come"))?;
                    list.swap_remove(place);
                }
            }
            self.machine.idle()?;
            idle += 1;
        }
        ensure!(missing.iter().all(Vec::is_empty), "events do not come, by host: {missing:?}");
        Ok(count)
    }

    fn totals(&self, events: u64) -> Totals {
        let lanes = || self.plan.pairs.iter().flat_map(|pair| &pair.lanes).flat_map(|lane| &lane.sends);
        let done = |counts: &Counts| (counts.sends_done + counts.receives_done) as u64;
        Totals {
            messages: lanes().count() as u64,
            bytes: lanes().map(|message| message.length() as u64).sum(),
            completions: self.counts.iter().flatten().map(done).sum(),
            events,
            mistakes: self.plan.pairs.iter().filter(|pair| pair.ending.is_some()).count() as u64,
        }
    }
}

fn compare_send(expected: &SendResult, outcome: &Outcome) -> Result<()> {
    let found = (outcome.status, outcome.opcode);
    ensure!(found == (expected.status, expected.opcode), "{found:?}, not {expected:?}");
    ensure!(outcome.is_signalled || !expected.is_signalled, "it has no completion of its own");
    compare_contents(expected.contents.as_deref(), outcome)
}

fn compare_receive(expected: &ReceiveResult, outcome: &Outcome) -> Result<()> {
    ensure!(outcome.status == expected.status, "{:?}, not {expected:?}", outcome.status);
    if let Some(arrived) = expected.arrived {
        let Outcome { opcode, length, immediate, is_solicited, ends_key, .. } = *outcome;
        let found = Arrived { opcode, length, immediate, is_solicited, ends_key };
        ensure!(found == arrived, "{found:?}, not {arrived:?}");
    }
    compare_contents(expected.contents.as_deref(), outcome)
}

fn compare_contents(expected: Option<&[Vec<u8>]>, outcome: &Outcome) -> Result<()> {
    for (place, contents) in expected.into_iter().flatten().enumerate() {
        let found = outcome.contents.get(place).map_or(&[][..], Vec::as_slice);
        if let Some(byte) = first_difference(found, contents) {
            bail!("piece {place}, byte {byte} is {:?}, not {:?}", found.get(byte), contents.get(byte));
        }
    }
    Ok(())
}

fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    let common = left.iter().zip(right).position(|(left, right)| left != right);
    common.or((left.len() != right.len()).then(|| left.len().min(right.len())))
}
