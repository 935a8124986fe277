//! Peers that do not answer: the timer ends their queue pair, after its retries, and nobody else's.
use crate::rig::{IPV4, PEER_FIRST, PEER_KEY, Rig, path_to_card};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, RemoteMemory, RemoteRights, SendOptions, SendRequest};
use rnic_endpoint::packet::Packet;
use rnic_layout::opcode::{Operation, Transport};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::registers::REG_TIMER_UNIT;
use rnic_layout::wire::extended::AethRepr;
use rnic_layout::wire::{BthRepr, ExtendedRepr};
use rnic_machine::host::Bar as Window;
use std::collections::BTreeMap;
use std::time::Duration;

/// QPN of the peer that does not answer: the endpoint has no such queue pair.
const SILENT: u32 = 0x35;
/// QPN of one that does.
const ALIVE: u32 = 0x36;
/// What WRITEs and READs of the silent peer name. Nobody looks.
const NOWHERE: RemoteMemory = RemoteMemory { address: 0x1000, key: 7, bytes: 64 };
/// Time of the timers that are tested: the shortest one, as it is at reset.
const T: Duration = Duration::from_nanos(8192);
/// Time from an expiry to its CQE, the slowest host's included.
const REPORT: Duration = Duration::from_micros(8);

/// A timeout, and the unit of the timers in cycles of 4 ns, that make [`T`].
const SETTINGS: [(u8, u64); 2] = [(1, 1024), (6, 32)];

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
        Ok(self.silent.post_sends(&mut vec![send, write, read].into())?)
    }

    /// The peer that answers takes a WRITE.
    fn lives(&mut self) -> Result<()> {
        self.writes += 1;
        let wr_id = 100 + self.writes;
        let target = RemoteMemory { address: PEER_FIRST, key: PEER_KEY, bytes: 64 };
        let write = SendRequest::write(wr_id, target).inline(&[3; 40]).signalled();
        self.alive.post_send(write).map_err(|refused| refused.reason)?;
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

    /// Runs until something is so, with WRITEs of the other queue pair meanwhile, one every microsecond or less.
    fn lives_until(&mut self, is_so: impl Fn(&Play<'_>) -> bool) -> Result<Duration> {
        let begin = self.now();
        while !is_so(self) {
            self.lives()?;
            for (name, count) in self.rig.moved()?.named() {
                *self.counters.entry(name).or_default() += count;
            }
            self.rig.idle(3);
            ensure!(self.now() - begin < 40 * T, "{:?}, {:?}", self.done, self.counters);
        }
        Ok(self.now() - begin)
    }

    /// The peer acknowledges the first request after all.
    fn answers_one(&self) {
        let operation = Transport::Rc.base() | Operation::Acknowledge.code();
        let bth = BthRepr::new(operation, self.silent.number(), self.first_psn);
        let aeth = ExtendedRepr::Aeth(AethRepr { syndrome: 0x1f, msn: Psn::wrapping(1) });
        self.rig.send(&[Packet::new(bth, vec![aeth], vec![]).frame(&path_to_card(IPV4), 3)]);
    }

    /// Everything has completed as expected, and nothing else was counted than so many timeouts.
    fn ends(self, done: &[(u64, CompletionStatus)], timeouts: u64) -> Result<()> {
        ensure!(self.done == done, "{:?}, expected {done:?}", self.done);
        let expected = BTreeMap::from([("retry_exhausted", 1), ("timeout", timeouts)]);
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
    play.rig.idle((T * 5).as_nanos() as usize / 100);
    play.asks()?;
    let timeouts = u32::from(retry_count) + 1;
    let after = play.lives_until(|play| play.done.len() == ALL_FAIL.len())?;
    ensure!(after >= T * timeouts && after <= 4 * T * timeouts + REPORT, "{timeouts} timeouts in {after:?}");
    play.ends(&ALL_FAIL, timeouts.into())
}

/// A peer that answers once, after a timeout: that gives the retry back.
fn answers_once(rig: &mut Rig) -> Result<()> {
    let mut play = Play::new(rig, 1, 1024, 1)?;
    play.asks()?;
    play.lives_until(|play| play.counters.contains_key("timeout"))?;
    play.answers_one();
    let after = play.lives_until(|play| play.done.len() == ALL_FAIL.len())?;
    ensure!(after >= T * 2 && after <= 8 * T + REPORT, "two timeouts in {after:?}");
    let done = [
        (1, CompletionStatus::Success),
        (2, CompletionStatus::RetryExceeded),
        (3, CompletionStatus::Flushed),
    ];
    play.ends(&done, 3)
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
    for (timeout, unit) in SETTINGS {
        for retry_count in [0, 2] {
            never_answers(rig, timeout, unit, retry_count)
                .with_context(|| format!("timeout {timeout}, unit {unit}, retry_count {retry_count}"))?;
        }
    }
    answers_once(rig).context("an answer after a timeout")?;
    waits_for_ever(rig).context("no timeout")
}
