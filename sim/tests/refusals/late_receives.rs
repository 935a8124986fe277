//! Receives that a slow host gives while the SENDs wait that take them: each SEND has the next one, in order and soon, whatever comes
//! when. The test plays the peer.
use crate::asker::{Asker, FIRST_PSN};
use crate::pace::send_paced;
use crate::rig::{IPV4, RECEIVE_TAG, Rig};
use anyhow::{Context, Result, ensure};
use rnic_driver::RemoteRights;
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_machine::host::HostOptions;
use rnic_stimulus::chance::Delay;
use std::ops::Range;

/// Latency of the host, and nanoseconds in which all SENDs must have completed after their receives and they have come.
const LATENCY_NS: u64 = 8_000;
const SOON_NS: u64 = 8_000;
/// SENDs of a stream, and receives of one doorbell: as many as are read at once.
const SENDS: u32 = 60;
const TOGETHER: u32 = 4;
/// Nanoseconds from one doorbell to the next.
const GAPS_NS: [u64; 5] = [0, 20, 50, 120, 200];
/// Nanoseconds from the first SEND of a stream to the arrival of the first receives.
const EARLY_NS: [u64; 8] = [300, 700, 1_100, 1_500, 1_900, 2_300, 2_700, 3_100];
/// Bytes of a SEND.
const BYTES: usize = 16;
/// Nanoseconds in a cycle, and cycles on each side of the arrival of a receive in which a SEND comes.
const CYCLE_NS: u64 = 4;
const AROUND: u64 = 40;
/// Latency of the host when a SEND comes at the arrival of its receive.
const SHORT_NS: u64 = 2_000;

/// QPN of the peer of another queue pair, and how many WRITEs of it the host does not take while SENDs come behind them: from fewer
/// than there is room for behind the packets that wait for their receives, to so many that no SEND comes that far.
const OTHER: u32 = 0x5b;
const WRITES: Range<u32> = 4..160;
const WRITES_STEP: usize = 12;
/// Latency of the host meanwhile, in which all WRITEs come. SENDs come so long before and after their receives, and the host takes
/// writes again so long after them.
const LONG_NS: u64 = 16_000;
const BEFORE_NS: u64 = 1_000;
const AFTER_NS: u64 = 800;
const AGAIN_NS: u64 = 1_800;

/// What a SEND carries.
fn message(number: u32) -> Vec<u8> {
    (0..BYTES as u32).map(|place| (number * 5 + place * 3 + (number >> 6)) as u8).collect()
}

/// A queue pair of the card that receives.
struct Receiver<'rig> {
    rig: &'rig mut Rig,
    asker: Asker,
    /// Another queue pair, and how many WRITEs it has received.
    other: Asker,
    written: u32,
    /// SENDs that have come.
    count: u32,
}

impl Receiver<'_> {
    fn now_ns(&self) -> u64 {
        self.rig.world().now_ps() / 1000
    }

    /// The host reads in this time, and takes writes or none.
    fn set_host(&self, latency_ns: u64, takes_writes: bool) {
        let read_latency = Delay::nanoseconds(latency_ns);
        let write_request_stall = f64::from(u8::from(!takes_writes));
        let host = HostOptions { read_latency, write_request_stall, ..HostOptions::IDEAL };
        self.rig.world().host_mut(0).set_options(host);
    }

    fn wait_until(&self, at_ns: u64) -> Result<()> {
        let rest_ns = at_ns.checked_sub(self.now_ns()).context("the time is past")?;
        self.rig.step_ns(rest_ns)
    }

    fn post(&mut self, numbers: Range<u32>) -> Result<()> {
        let mut receives = numbers.map(|number| self.rig.receive_request(number.into())).collect();
        Ok(self.asker.queue_pair.post_receives(&mut receives)?)
    }

    /// Lets SENDs come at a time.
    fn send(&self, numbers: Range<u32>, at_ns: u64) -> Result<()> {
        self.wait_until(at_ns)?;
        let frame = |number| {
            let psn = (FIRST_PSN + number) & 0xff_ffff;
            self.asker.frame(Op::SendOnly, psn, Vec::new(), message(number))
        };
        self.rig.send(&numbers.map(frame).collect::<Vec<_>>());
        Ok(())
    }

    /// Waits until SENDs have completed in their order and are acknowledged, which they are before a time. Returns when they are.
    fn completes(&mut self, numbers: Range<u32>, until_ns: u64) -> Result<u64> {
        let last = (FIRST_PSN + numbers.end - 1) & 0xff_ffff;
        let (mut done, mut is_acknowledged) = (Vec::new(), false);
        while done.len() < numbers.len() || !is_acknowledged {
            let now_ns = self.now_ns();
            ensure!(now_ns < until_ns, "at {now_ns} ns {} have completed: {:?}", done.len(), done.last());
            self.rig.step_ns(CYCLE_NS)?;
            done.extend(self.rig.completions()?);
            for (operation, psn, _, syndrome) in self.asker.heard(self.rig)? {
                ensure!(operation == Op::Acknowledge && syndrome.is_empty(), "{operation:?} {syndrome:x?}");
                is_acknowledged |= psn == last;
            }
        }
        let now_ns = self.now_ns();
        for (number, done) in numbers.zip(&done) {
            let is_next = done.wr_id == RECEIVE_TAG | u64::from(number);
            let is_right = done.status == CompletionStatus::Success && done.message == message(number);
            ensure!(is_next && is_right, "SEND {number}: {done:?}");
        }
        Ok(now_ns)
    }

    /// The numbers of the next SENDs.
    fn next(&mut self, count: u32) -> Range<u32> {
        let first = self.count;
        self.count += count;
        first..self.count
    }

    /// Posts receives for a stream of SENDs, a few at a time. Returns the numbers of the SENDs, and when the first receives come.
    fn begin(&mut self, gap_ns: u64) -> Result<(Range<u32>, u64)> {
        let numbers = self.next(SENDS);
        let begin_ns = self.now_ns();
        for first in numbers.clone().step_by(TOGETHER as usize) {
            self.post(first..first + TOGETHER)?;
            self.rig.step_ns(gap_ns)?;
        }
        Ok((numbers, begin_ns + LATENCY_NS))
    }

    /// Lets SENDs come before their receives and while these come.
    fn stream(&mut self, gap_ns: u64, early_ns: u64) -> Result<()> {
        let (numbers, arrival_ns) = self.begin(gap_ns)?;
        self.send(numbers.clone(), arrival_ns - early_ns)?;
        self.completes(numbers, arrival_ns + SOON_NS)?;
        Ok(())
    }

    /// A SEND waits for its receive. Others come before and after it is there, behind WRITEs of another queue pair that the host does
    /// not take: what has come after it must not be asked for before what has come before it.
    fn behind_writes(&mut self, writes: u32) -> Result<()> {
        self.set_host(LONG_NS, true);
        let arrival_ns = self.now_ns() + LONG_NS;
        let numbers = self.next(TOGETHER);
        let (first, before, after) = (numbers.start, numbers.start + 1, numbers.start + 2);
        self.post(numbers.clone())?;
        self.send(first..before, self.now_ns())?;
        self.rig.step_ns(LONG_NS / 16)?;
        self.set_host(LONG_NS, false);
        let write = |place| {
            let psn = (FIRST_PSN + self.written + place) & 0xff_ffff;
            self.other.frame(Op::WriteOnly, psn, vec![self.other.reth(0, 8)], vec![1; 8])
        };
        send_paced(self.rig, &(0..writes).map(write).collect::<Vec<_>>())?;
        self.written += writes;
        self.send(before..after, arrival_ns - BEFORE_NS)?;
        self.send(after..numbers.end, arrival_ns + AFTER_NS)?;
        self.wait_until(arrival_ns + AGAIN_NS)?;
        self.set_host(SHORT_NS, true);
        self.completes(numbers, arrival_ns + SOON_NS)?;
        Ok(())
    }
}

/// SENDs come while a slow host gives their receives a few at a time: packets that wait, those that come while these are tried, and
/// those that come behind them take the receives in their order, and soon.
fn streams(receiver: &mut Receiver<'_>) -> Result<()> {
    receiver.set_host(LATENCY_NS, true);
    for (gap_ns, early_ns) in GAPS_NS.into_iter().flat_map(|gap| EARLY_NS.map(|early| (gap, early))) {
        receiver
            .stream(gap_ns, early_ns)
            .with_context(|| format!("receives every {gap_ns} ns, SENDs {early_ns} ns before them"))?;
    }
    Ok(())
}

/// A SEND comes in each cycle around the arrival of its receive, which is the only one: it takes it, whether it has waited or not.
fn at_the_arrival(receiver: &mut Receiver<'_>) -> Result<()> {
    receiver.set_host(SHORT_NS, true);
    // Nanoseconds from the doorbell until a SEND is answered that comes so long after it.
    let mut attempt = |after_ns: u64| -> Result<u64> {
        let numbers = receiver.next(1);
        let begin_ns = receiver.now_ns();
        receiver.post(numbers.clone())?;
        receiver.send(numbers.clone(), begin_ns + after_ns)?;
        Ok(receiver.completes(numbers, begin_ns + 2 * SHORT_NS + SOON_NS)? - begin_ns)
    };
    let (waited_ns, late_ns) = (attempt(SHORT_NS / 2)?, 2 * SHORT_NS);
    let taken_ns = attempt(late_ns)? - late_ns;
    let arrival_ns = waited_ns - taken_ns;
    let around = arrival_ns - AROUND * CYCLE_NS..=arrival_ns + AROUND * CYCLE_NS;
    for after_ns in around.step_by(CYCLE_NS as usize) {
        attempt(after_ns).with_context(|| format!("a SEND {after_ns} ns after the doorbell"))?;
    }
    Ok(())
}

pub(crate) fn are_given_in_order(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(64, RemoteRights::ALL)?;
    let other = rig.new_queue_pair(RemoteRights::ALL)?;
    let other = rig.connect(other, OTHER, IPV4, Pmtu::Bytes1024, FIRST_PSN)?;
    let other = Asker { queue_pair: other, version: IPV4, remote: window.remote() };
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes1024, window.remote(), 1)?;
    let mut receiver = Receiver { rig, asker, other, written: 0, count: 0 };
    streams(&mut receiver).context("SENDs while their receives come")?;
    for writes in WRITES.step_by(WRITES_STEP) {
        receiver
            .behind_writes(writes)
            .with_context(|| format!("SENDs behind {writes} WRITEs that the host does not take"))?;
    }
    at_the_arrival(&mut receiver).context("SENDs at the arrival of their receives")?;
    let Receiver { rig, asker, other, .. } = receiver;
    rig.world().host_mut(0).set_options(HostOptions::IDEAL);
    let moved = rig.moved()?;
    ensure!(moved.named().is_empty(), "{moved:?}");
    drop((asker, other));
    rig.exchange()?;
    rig.settle()
}
