//! Peers that do not answer: the timer ends their queue pair, after its retries, and nobody else's.
use crate::own_reads::response;
use crate::rig::{IPV4, PEER_FIRST, PEER_KEY, Rig};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, RemoteMemory, RemoteRights, SendOptions, SendRequest};
use rnic_layout::opcode::Operation;
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::registers::REG_TIMER_UNIT;
use rnic_layout::wire::PacketRepr;
use rnic_machine::host::{Bar as Window, HostOptions};
use rnic_stimulus::chance::Delay;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// QPN of the peer that does not answer: the endpoint has no such queue pair.
const SILENT: u32 = 0x35;
/// QPN of one that does.
const ALIVE: u32 = 0x36;
/// What WRITEs and READs of the silent peer name. Nobody looks.
const NOWHERE: RemoteMemory = RemoteMemory { address: 0x1000, key: 7, bytes: 1 << 20 };
/// Unit of the timers at reset, in cycles of 4 ns.
const UNIT: u64 = 1024;
/// Time from the doorbell to the packet and from an expiry to the CQE, on the slowest host and with a WRITE meanwhile.
const REPORT: Duration = Duration::from_micros(20);
/// What a slow host takes for a read.
const SLOW_READ: Duration = Duration::from_micros(80);
const SLOW: Delay = Delay::nanoseconds(SLOW_READ.as_nanos() as u64);

/// Longest time in which nothing is in flight.
const IDLE: Duration = Duration::from_micros(200);

/// T of a timeout, for a unit in cycles.
fn t(timeout: u8, unit: u64) -> Duration {
    Duration::from_nanos((4 * unit) << timeout)
}

/// A queue pair whose peer is silent, beside one with the same timer whose peer answers.
struct Play<'rig> {
    rig: &'rig mut Rig,
    silent: QueuePair<ReadyToSend>,
    first_psn: Psn,
    alive: QueuePair<ReadyToSend>,
    /// Completions of the silent one: `wr_id`, and status.
    done: Vec<(u64, CompletionStatus)>,
    counters: BTreeMap<&'static str, u64>,
    writes: u64,
}

impl Play<'_> {
    fn new(rig: &mut Rig, timeout: u8, unit: u64, retry_count: u8) -> Result<Play<'_>> {
        let offset = u64::from(REG_TIMER_UNIT.offset);
        rig.world().write_register(0, Window::Registers, offset, unit)?;
        let silent = rig.new_queue_pair(RemoteRights::NONE)?;
        let first_psn = Psn::wrapping(silent.info(IPV4)?.first_psn);
        let send = |send| SendOptions { timeout, retry_count, ..send };
        let silent = rig.connect_with(silent, SILENT, IPV4, Pmtu::Bytes1024, 0, |options| {
            options.send = send(options.send);
        })?;
        let alive = rig.new_queue_pair(RemoteRights::NONE)?;
        let alive = rig.connect_to_endpoint_with(alive, ALIVE, IPV4, Pmtu::Bytes1024, 5, |options| {
            options.send = send(options.send);
        })?;
        rig.moved()?;
        rig.heard();
        let (done, counters) = Default::default();
        Ok(Play { rig, silent, first_psn, alive, done, counters, writes: 0 })
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.rig.world().now_ps() / 1000)
    }

    /// A SEND, a WRITE and a READ, which nobody answers.
    fn asks(&mut self) -> Result<()> {
        let region = self.rig.domain.allocate(64)?;
        let send = SendRequest::send(1).inline(&[1; 9]).signalled();
        let write = SendRequest::write(2, NOWHERE).inline(&[2; 64]).signalled();
        let read = SendRequest::read(3, NOWHERE).sge(region).signalled();
        Ok(self.silent.post_sends(&mut vec![send, write, read])?)
    }

    /// The peer that answers takes a WRITE.
    fn lives(&mut self) -> Result<()> {
        self.writes += 1;
        let wr_id = 100 + self.writes;
        let target = RemoteMemory { address: PEER_FIRST, key: PEER_KEY, bytes: 64 };
        let write = SendRequest::write(wr_id, target).inline(&[3; 40]).signalled();
        self.alive.post_send(write)?;
        let number = self.alive.number();
        let mut others = vec![];
        let done = self.rig.wait("a WRITE beside the silence", |rig| {
            let (mine, theirs) =
                rig.completions()?.into_iter().partition::<Vec<_>, _>(|done| done.qp_number == number);
            others.extend(theirs);
            Ok(mine.into_iter().next())
        })?;
        ensure!((done.wr_id, done.status) == (wr_id, CompletionStatus::Success), "{done:?}");
        self.done.extend(others.into_iter().map(|done| (done.wr_id, done.status)));
        Ok(())
    }

    /// Runs until the silent queue pair has completed so much, with WRITEs of the other one meanwhile.
    fn lives_until_done(&mut self, count: usize, limit: Duration) -> Result<Duration> {
        let begin = self.now();
        while self.done.len() < count {
            self.lives()?;
            self.rig.idle(3);
            ensure!(self.now() - begin < 2 * limit, "{:?} in twice {limit:?}", self.done);
        }
        self.counts()?;
        Ok(self.now() - begin)
    }

    /// Runs until a timeout is counted.
    fn lives_until_timeout(&mut self, limit: Duration) -> Result<()> {
        let begin = self.now();
        while !self.counters.contains_key("timeout") {
            self.counts()?;
            ensure!(self.now() - begin < limit, "no timeout within {limit:?}");
        }
        Ok(())
    }

    fn counts(&mut self) -> Result<()> {
        for (name, count) in self.rig.moved()?.named() {
            *self.counters.entry(name).or_default() += count;
        }
        Ok(())
    }

    /// The peer acknowledges this request after all.
    fn answers_one(&self, number: u32) {
        let psn = self.first_psn.add(number);
        let ack = response(self.silent.number(), Operation::Acknowledge, psn, 0x1f, vec![]);
        self.rig.send(&[ack]);
    }

    /// Packets that the silent peer has heard more than once.
    fn repeated(&self) -> u64 {
        let mut seen = BTreeSet::new();
        let heard = self.rig.heard();
        let packets = heard.iter().filter_map(|frame| PacketRepr::parse(frame).ok());
        let asked = packets.filter(|packet| packet.bth.destination_qp == SILENT);
        asked.filter(|packet| !seen.insert(packet.bth.psn.value())).count() as u64
    }

    /// Everything has completed as expected, and nothing else was counted than so many timeouts, and what was sent again.
    fn ends(self, done: &[(u64, CompletionStatus)], timeouts: u64) -> Result<()> {
        ensure!(self.done == done, "{:?}, expected {done:?}", self.done);
        let repeated = self.repeated();
        ensure!((timeouts > 1) == (repeated > 0), "{timeouts} timeouts, {repeated} packets were sent again");
        let mut expected = BTreeMap::from([("retry_exhausted", 1), ("timeout", timeouts)]);
        if repeated > 0 {
            expected.insert("packets_retransmitted", repeated);
        }
        ensure!(self.counters == expected, "{:?}, expected {expected:?}", self.counters);
        let Play { rig, silent, alive, .. } = self;
        ensure!(rig.event()?.is_none(), "the CQE says it");
        ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
        drop((silent, alive));
        rig.settle()
    }
}

/// The messages of a queue pair whose peer never answers.
const ALL_FAIL: [(u64, CompletionStatus); 3] =
    [(1, CompletionStatus::RetryExceeded), (2, CompletionStatus::Flushed), (3, CompletionStatus::Flushed)];

/// A peer that never answers: the queue pair ends after `retry_count` and one timeouts, each between T and 4T.
fn never_answers(rig: &mut Rig, timeout: u8, unit: u64, retry_count: u8) -> Result<()> {
    let mut play = Play::new(rig, timeout, unit, retry_count)?;
    // Nothing is in flight, so nothing expires.
    let timeouts = u32::from(retry_count) + 1;
    let t = t(timeout, unit) * timeouts;
    play.rig.idle((t * 2).min(IDLE).as_nanos() as usize / 100);
    play.asks()?;
    let after = play.lives_until_done(ALL_FAIL.len(), 4 * t)?;
    ensure!(after >= t && after <= 4 * t + REPORT, "{timeouts} timeouts in {after:?}, of {t:?} together");
    play.ends(&ALL_FAIL, timeouts.into())
}

/// The same with a message that takes longer to send than T: while its packets wait in the card to be sent again, no timer runs.
fn never_answers_a_long_message(rig: &mut Rig) -> Result<()> {
    const BYTES: usize = 200_000;
    let mut play = Play::new(rig, 2, UNIT, 2)?;
    let write = SendRequest::write(1, NOWHERE).sge(play.rig.domain.allocate(BYTES)?).signalled();
    play.silent.post_send(write)?;
    // Each time, all that was made before may leave before what is sent again.
    play.lives_until_done(1, 3 * (4 * t(2, UNIT) + Duration::from_micros(200)))?;
    play.ends(&[(1, CompletionStatus::RetryExceeded)], 3)
}

/// The same on a host whose reads take longer than 4T: no timeout comes before what is sent again has left the card.
fn never_answers_a_slow_host(rig: &mut Rig) -> Result<()> {
    let t = t(2, UNIT);
    let mut play = Play::new(rig, 2, UNIT, 2)?;
    play.rig.passed();
    play.rig.world().host_mut(0).set_options(HostOptions { read_latency: SLOW, ..HostOptions::IDEAL });
    let write = SendRequest::write(1, NOWHERE).sge(play.rig.domain.allocate(64)?).signalled();
    play.silent.post_send(write)?;
    play.lives_until_done(1, 3 * (4 * t + 4 * SLOW_READ))?;
    play.rig.world().host_mut(0).set_options(HostOptions::IDEAL);
    let sent = play.rig.passed().into_iter().filter(|one| one.destination == SILENT);
    let sent: Vec<_> = sent.map(|one| Duration::from_nanos(one.time_ps / 1000)).collect();
    ensure!(sent.len() == 3, "sent at {sent:?}");
    let gaps = sent.windows(2).map(|two| two[1] - two[0]);
    ensure!(gaps.into_iter().all(|gap| gap >= t + SLOW_READ), "sent at {sent:?}");
    play.ends(&[(1, CompletionStatus::RetryExceeded)], 3)
}

/// A peer that answers once, after a timeout: that gives the retry back.
fn answers_once(rig: &mut Rig) -> Result<()> {
    let t = t(5, UNIT);
    let mut play = Play::new(rig, 5, UNIT, 1)?;
    play.asks()?;
    play.lives_until_timeout(4 * t + REPORT)?;
    play.answers_one(0);
    let after = play.lives_until_done(ALL_FAIL.len(), 8 * t)?;
    ensure!(after >= t * 2 && after <= 8 * t + REPORT, "two timeouts in {after:?}, of {t:?} each");
    let done = [
        (1, CompletionStatus::Success),
        (2, CompletionStatus::RetryExceeded),
        (3, CompletionStatus::Flushed),
    ];
    play.ends(&done, 3)
}

/// A peer that answers one request at a time, each when more than half of T is over: the timer starts anew with each answer.
fn answers_slowly(rig: &mut Rig) -> Result<()> {
    const REQUESTS: u32 = 6;
    let t = t(5, UNIT / 2);
    let mut play = Play::new(rig, 5, UNIT / 2, 0)?;
    let mut sends: Vec<_> =
        (0..REQUESTS.into()).map(|wr_id| SendRequest::send(wr_id).inline(&[1; 9]).signalled()).collect();
    play.silent.post_sends(&mut sends)?;
    for number in 0..REQUESTS {
        let begin = play.now();
        while play.now() - begin < t * 5 / 8 {
            play.lives()?;
        }
        play.answers_one(number);
    }
    play.lives_until_done(REQUESTS as usize, t)?;
    let done: Vec<_> = (0..REQUESTS.into()).map(|wr_id| (wr_id, CompletionStatus::Success)).collect();
    ensure!(play.done == done && play.counters.is_empty(), "{:?}, {:?}", play.done, play.counters);
    ensure!(play.repeated() == 0, "something is sent again");
    let Play { rig, silent, alive, .. } = play;
    drop((silent, alive));
    rig.settle()
}

/// A timeout of zero: nothing expires.
fn waits_for_ever(rig: &mut Rig) -> Result<()> {
    let mut play = Play::new(rig, 0, 1, 0)?;
    play.asks()?;
    play.rig.idle(400);
    play.lives()?;
    ensure!(play.done.is_empty(), "{:?}", play.done);
    let moved = play.rig.moved()?;
    ensure!(moved.named().is_empty(), "{moved:?}");
    let Play { rig, silent, alive, .. } = play;
    drop((silent, alive));
    rig.settle()
}

/// Peers that never answer, or once.
pub(crate) fn of_peers(rig: &mut Rig) -> Result<()> {
    for (timeout, unit, retry_count) in [(3, UNIT, 0), (6, UNIT / 8, 2), (16, 1, 0)] {
        never_answers(rig, timeout, unit, retry_count)
            .with_context(|| format!("timeout {timeout}, unit {unit}, retry_count {retry_count}"))?;
    }
    never_answers_a_long_message(rig).context("a long message")?;
    never_answers_a_slow_host(rig).context("a slow host")?;
    answers_once(rig).context("an answer after a timeout")?;
    answers_slowly(rig).context("an answer in each half of a timeout")?;
    waits_for_ever(rig).context("no timeout")
}
