//! Two causes at once, with the card as requester: a NAK and an ACK of all before the next turn, a loss behind a loss, RNR NAKs one
//! after the other, an ACK of what is being sent again, a host read that fails behind slots that
//! are kept, and an ACK in each cycle around an expiry. The test plays the peer.
use crate::own_reads::response;
use crate::rig::{IPV4, Rig};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, RemoteMemory, RemoteRights, SendOptions, SendRequest};
use rnic_layout::limits::RING_LOG2_MIN;
use rnic_layout::opcode::{Operation as Op, lookup};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::registers::REG_TIMER_UNIT;
use rnic_layout::syndrome::rnr_timer_us;
use rnic_layout::wire::{ExtendedRepr, PacketRepr};
use rnic_machine::host::{Bar as Window, HostOptions};
use rnic_stimulus::chance::Delay;

/// QPN of the peer, whom the test plays.
const PLAYED: u32 = 0x3a;
/// Syndromes: an ACK, a NAK of a gap, and an RNR NAK with timer code 1.
const ACK: u8 = 0x1f;
const NAK_SEQUENCE: u8 = 0x60;
const NOT_READY: u8 = 0x20;
/// Bytes in a packet.
const PMTU_BYTES: usize = 1024;
/// Tenths of a microsecond in which the card would do what it must not.
const LONG: usize = 150;
/// Cycles of 4 ns in a unit of the timers.
const UNIT: u64 = 16;
/// Nanoseconds in a cycle, and in a round of the timers of all queue pairs.
const CYCLE_NS: u64 = 4;
const ROUND_NS: u64 = 1024 * CYCLE_NS;
/// Nanoseconds in which what is sent again comes, when a timer has expired.
const AGAIN_NS: u64 = 6_000;

/// What WRITEs and READs name. Nobody looks.
fn remote(length: usize) -> RemoteMemory {
    RemoteMemory { address: 0x1000, key: 7, bytes: length as u64 }
}

/// A queue pair of the card, whose peer is the test.
struct Asked {
    queue_pair: QueuePair<ReadyToSend>,
    first_psn: Psn,
}

/// A request: operation, PSN from the first one of the queue pair on, length in its RETH, and whether it asks for an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    operation: Op,
    number: u32,
    length: Option<u32>,
    asks: bool,
}

impl Asked {
    fn connect(rig: &mut Rig, unit: u64, change: impl FnOnce(&mut SendOptions)) -> Result<Asked> {
        let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
        rig.world().write_register(0, Window::Registers, REG_TIMER_UNIT.offset.into(), unit)?;
        let first_psn = Psn::wrapping(queue_pair.info(IPV4)?.first_psn);
        let queue_pair = rig.connect_with(queue_pair, PLAYED, IPV4, Pmtu::Bytes1024, 0, |options| {
            change(&mut options.send);
        })?;
        rig.settle()?;
        rig.passed();
        Ok(Asked { queue_pair, first_psn })
    }

    /// Posts empty SENDs, one packet each.
    fn post_sends(&mut self, numbers: std::ops::Range<u64>) -> Result<()> {
        let mut requests: Vec<_> = numbers.map(|number| SendRequest::send(number).signalled()).collect();
        Ok(self.queue_pair.post_sends(&mut requests)?)
    }

    /// Requests that have arrived since the last call.
    fn heard(&self, rig: &Rig) -> Result<Vec<Heard>> {
        let mut heard = Vec::new();
        for frame in rig.heard() {
            let packet = PacketRepr::parse(&frame).map_err(|reason| anyhow::anyhow!("{reason:?}"))?;
            if packet.bth.destination_qp != PLAYED {
                continue;
            }
            let length = packet.extended_headers().find_map(|header| match header {
                ExtendedRepr::Reth(reth) => Some(reth.dma_length),
                _ => None,
            });
            let operation = lookup(packet.bth.opcode).context("it is assigned")?.operation;
            let number = packet.bth.psn.sub(self.first_psn.value()).value();
            heard.push(Heard { operation, number, length, asks: packet.bth.ack_request });
        }
        Ok(heard)
    }

    /// Waits for so many requests, which are all that come.
    fn wait_for(&self, rig: &mut Rig, count: usize) -> Result<Vec<Heard>> {
        let mut heard = Vec::new();
        rig.wait("the requests", |rig| {
            heard.extend(self.heard(rig)?);
            Ok((heard.len() >= count).then_some(()))
        })
        .with_context(|| format!("{heard:?}"))?;
        ensure!(heard.len() == count, "{heard:?}");
        Ok(heard)
    }

    /// A response. Those that carry an AETH have this syndrome.
    fn response(&self, operation: Op, number: u32, syndrome: u8, payload: Vec<u8>) -> Vec<u8> {
        response(self.queue_pair.number(), operation, self.first_psn.add(number), syndrome, payload)
    }

    fn ack(&self, number: u32, syndrome: u8) -> Vec<u8> {
        self.response(Op::Acknowledge, number, syndrome, Vec::new())
    }

    /// A full packet of data of a READ.
    fn data(&self, operation: Op, number: u32) -> Vec<u8> {
        self.response(operation, number, ACK, vec![number as u8; PMTU_BYTES])
    }
}

/// A NAK of a message, and an ACK of that message and all others, before the turn in which the card would go back: nothing is sent
/// again, and what comes later waits for nothing.
fn nak_and_ack(rig: &mut Rig, syndrome: u8) -> Result<()> {
    // So many messages complete first, in turns of eight, that both responses are there before the last turn.
    const FIRST: u32 = 32;
    const ALL: u32 = FIRST + 8;
    let mut asked = Asked::connect(rig, UNIT, |send| (send.retry_count, send.rnr_retry) = (1, 1))?;
    asked.post_sends(0..ALL.into())?;
    asked.wait_for(rig, ALL as usize)?;
    rig.send(&[asked.ack(FIRST - 1, ACK), asked.ack(FIRST, syndrome), asked.ack(ALL - 1, ACK)]);
    let done = rig.completed(ALL as usize)?;
    ensure!(done.iter().map(|done| done.wr_id).eq(0..ALL.into()), "{done:?}");
    ensure!(done.iter().all(|done| done.status == CompletionStatus::Success), "{done:?}");
    // The first of two more is acknowledged: what was to be done about the NAK is done now, if anything is.
    asked.post_sends(ALL.into()..u64::from(ALL) + 2)?;
    asked.wait_for(rig, 2)?;
    rig.send(&[asked.ack(ALL, ACK)]);
    rig.completed(1)?;
    rig.idle(LONG);
    ensure!(asked.heard(rig)?.is_empty(), "something is sent again");
    rig.send(&[asked.ack(ALL + 1, ACK)]);
    rig.completed(1)?;
    let moved = rig.moved()?;
    let name = if syndrome == NAK_SEQUENCE { "nak_received" } else { "nak_rnr_received" };
    ensure!(moved.of(name) == 1 && moved.named().len() == 1, "{moved:?}");
    drop(asked);
    rig.settle()
}

/// Of a READ of eight packets the second is lost, and all that follow arrive: that is one loss, and takes one retry. Then the next
/// READ is not one that was asked again: a FIRST in its middle is no response to it.
fn losses_of_a_read(rig: &mut Rig) -> Result<()> {
    const BYTES: usize = 8 * PMTU_BYTES;
    use Op::{ReadResponseFirst as First, ReadResponseLast as Last, ReadResponseMiddle as Middle};
    let mut asked = Asked::connect(rig, UNIT, |send| send.retry_count = 1)?;
    let post = |rig: &Rig, asked: &mut Asked, wr_id| -> Result<()> {
        let read = SendRequest::read(wr_id, remote(BYTES)).sge(rig.domain.allocate(BYTES)?).signalled();
        Ok(asked.queue_pair.post_send(read)?)
    };
    post(rig, &mut asked, 1)?;
    asked.wait_for(rig, 1)?;
    let frames = [(First, 0), (Middle, 2), (Middle, 3), (Middle, 4), (Middle, 5), (Middle, 6), (Last, 7)];
    rig.send(&frames.map(|(operation, number)| asked.data(operation, number)));
    let again = asked.wait_for(rig, 1)?;
    let rest = (BYTES - PMTU_BYTES) as u32;
    let [Heard { operation: Op::ReadRequest, number: 1, length, .. }] = again[..] else {
        anyhow::bail!("{again:?}")
    };
    ensure!(length == Some(rest), "{again:?}");
    rig.idle(LONG);
    let moved = rig.moved()?;
    ensure!(moved.of("implied_nak") == 1, "{moved:?}");
    // The same again: no retry is left once this loss has taken one, and a third one, after progress, has one again.
    rig.send(&[asked.data(First, 1), asked.data(Middle, 3), asked.data(Middle, 4)]);
    let again = asked.wait_for(rig, 1)?;
    ensure!(again[0].number == 2, "{again:?}");
    rig.send(&[asked.data(First, 2)]);
    rig.send(&(3..7).map(|number| asked.data(Middle, number)).collect::<Vec<_>>());
    rig.send(&[asked.data(Last, 7)]);
    let done = rig.completed(1)?;
    ensure!(done[0].status == CompletionStatus::Success, "{done:?}");
    let expected: Vec<u8> = (0..8).flat_map(|number| [number; PMTU_BYTES]).collect();
    crate::rig::ensure_same(&done[0].message, &expected)?;

    post(rig, &mut asked, 2)?;
    asked.wait_for(rig, 1)?;
    rig.send(&[asked.data(First, 8), asked.data(First, 9)]);
    let done = rig.completed(1)?;
    ensure!(done[0].status == CompletionStatus::BadResponse, "{done:?}");
    drop(asked);
    rig.settle()
}

/// Ten RNR NAKs of one message, with codes of all ranges: each has its own delay, and `rnr_retry` 7 is no limit.
fn not_ready_again_and_again(rig: &mut Rig) -> Result<()> {
    let mut asked = Asked::connect(rig, UNIT, |send| send.rnr_retry = 7)?;
    asked.post_sends(0..1)?;
    asked.wait_for(rig, 1)?;
    for code in [20, 1, 16, 5, 19, 9, 2, 18, 12, 15] {
        rig.send(&[asked.ack(0, NOT_READY | code)]);
        let begin_ps = rig.world().now_ps();
        rig.passed();
        asked.wait_for(rig, 1)?;
        let came = rig.passed().into_iter().find(|one| one.destination == PLAYED).context("it came")?;
        let after_ns = (came.time_ps - begin_ps) / 1000;
        // The delay in units of 4.096 us, which the register makes shorter.
        let units = (u64::from(rnr_timer_us(code)) * 1000).div_ceil(4096);
        let delay_ns = units * UNIT * CYCLE_NS;
        let allowed = delay_ns..delay_ns + 2 * ROUND_NS + AGAIN_NS;
        ensure!(allowed.contains(&after_ns), "code {code}: after {after_ns} ns, not {allowed:?}");
    }
    rig.send(&[asked.ack(0, ACK)]);
    let done = rig.completed(1)?;
    ensure!(done[0].status == CompletionStatus::Success, "{done:?}");
    let moved = rig.moved()?;
    ensure!(moved.of("nak_rnr_received") == 10 && moved.of("rnr_retry_exceeded") == 0, "{moved:?}");
    drop(asked);
    rig.settle()
}

/// All messages of a ring are refused, and then acknowledged, while the card has asked a slow host for their slots again. Software
/// posts longer messages into these slots at once: what comes is those, each once, with the PSNs that follow.
fn slots_are_posted_anew(rig: &mut Rig) -> Result<()> {
    const SLOTS: u32 = 1 << RING_LOG2_MIN;
    const PACKETS: u32 = 2;
    let read_latency = Delay::nanoseconds(5_000);
    let mut asked = Asked::connect(rig, UNIT, |send| send.retry_count = 1)?;
    asked.post_sends(0..SLOTS.into())?;
    asked.wait_for(rig, SLOTS as usize)?;
    let bytes = PMTU_BYTES * PACKETS as usize;
    let longer = |rig: &Rig, number| -> Result<SendRequest> {
        Ok(SendRequest::send(number).sge(rig.domain.allocate(bytes)?).signalled())
    };
    let mut requests = (0..SLOTS.into()).map(|number| longer(rig, number)).collect::<Result<Vec<_>>>()?;
    rig.world().host_mut(0).set_options(HostOptions { read_latency, ..HostOptions::IDEAL });
    rig.send(&[asked.ack(0, NAK_SEQUENCE), asked.ack(SLOTS - 1, ACK)]);
    rig.completed(SLOTS as usize)?;
    asked.queue_pair.post_sends(&mut requests)?;
    let heard = asked.wait_for(rig, (SLOTS * PACKETS) as usize)?;
    rig.world().host_mut(0).set_options(HostOptions::IDEAL);
    let numbers = heard.iter().map(|heard| heard.number);
    ensure!(numbers.eq(SLOTS..SLOTS + SLOTS * PACKETS), "{heard:?}");
    rig.send(&[asked.ack(SLOTS + SLOTS * PACKETS - 1, ACK)]);
    rig.completed(SLOTS as usize)?;
    drop(asked);
    rig.settle()
}

/// With one retry, a peer has lost the first packet of a WRITE, and says of a later one that it is missing while the card has not come to
/// it again: that is no news, and takes no retry. When it has come to it, it is, and there is one.
fn loss_that_is_due_anyway(rig: &mut Rig) -> Result<()> {
    const PACKETS: usize = 160;
    const LATER: u32 = 80;
    let mut asked = Asked::connect(rig, UNIT, |send| send.retry_count = 1)?;
    let bytes = PACKETS * PMTU_BYTES;
    let write = SendRequest::write(1, remote(bytes)).sge(rig.domain.allocate(bytes)?).signalled();
    asked.queue_pair.post_send(write)?;
    let until = |rig: &mut Rig, number: u32| {
        rig.wait("a packet", |rig| {
            let heard = asked.heard(rig)?;
            Ok(heard.iter().any(|heard| heard.number == number).then_some(()))
        })
        .with_context(|| format!("packet {number}"))
    };
    until(rig, PACKETS as u32 - 1)?;
    for (nak, comes) in [(0, 0), (LATER, LATER), (LATER, LATER)] {
        rig.send(&[asked.ack(nak, NAK_SEQUENCE)]);
        until(rig, comes)?;
    }
    rig.send(&[asked.ack(PACKETS as u32 - 1, ACK)]);
    let done = rig.completed(1)?;
    ensure!(done[0].status == CompletionStatus::Success, "{done:?}");
    drop(asked);
    rig.settle()
}

/// Of messages that no completion is wanted of, the last one asks for an acknowledgement; and each that is sent again (protocol 2.4).
fn what_comes_again_asks(rig: &mut Rig) -> Result<()> {
    let mut asked = Asked::connect(rig, UNIT, |send| send.retry_count = 1)?;
    asked.queue_pair.post_sends(&mut (0..4).map(SendRequest::send).collect())?;
    let heard = asked.wait_for(rig, 4)?;
    ensure!(heard.iter().map(|heard| heard.asks).eq([false, false, false, true]), "{heard:?}");
    rig.send(&[asked.ack(0, NAK_SEQUENCE)]);
    let heard = asked.wait_for(rig, 4)?;
    ensure!(heard.iter().all(|heard| heard.asks), "{heard:?}");
    asked.post_sends(4..5)?;
    asked.wait_for(rig, 1)?;
    rig.send(&[asked.ack(4, ACK)]);
    rig.completed(5)?;
    drop(asked);
    rig.settle()
}

/// With one retry after an RNR NAK, each of several messages is refused once: an acknowledgement gives the retry back.
fn not_ready_once_each(rig: &mut Rig) -> Result<()> {
    let mut asked = Asked::connect(rig, UNIT, |send| send.rnr_retry = 1)?;
    for number in 0..4 {
        asked.post_sends(number.into()..u64::from(number) + 1)?;
        asked.wait_for(rig, 1)?;
        rig.send(&[asked.ack(number, NOT_READY | 1)]);
        asked.wait_for(rig, 1)?;
        rig.send(&[asked.ack(number, ACK)]);
        let done = rig.completed(1)?;
        ensure!(done[0].status == CompletionStatus::Success, "{done:?}");
    }
    drop(asked);
    rig.settle()
}

/// A long WRITE is acknowledged when the card has begun to send it again: most of it does not come again, and what follows it does not
/// wait.
fn acknowledged_while_sent_again(rig: &mut Rig) -> Result<()> {
    const PACKETS: usize = 256;
    const TIMEOUT: u8 = 12;
    const AGAIN_IDLES: usize = 4_000;
    let mut asked = Asked::connect(rig, UNIT, |send| (send.timeout, send.retry_count) = (TIMEOUT, 1))?;
    let bytes = PACKETS * PMTU_BYTES;
    let write = SendRequest::write(1, remote(bytes)).sge(rig.domain.allocate(bytes)?).signalled();
    asked.queue_pair.post_send(write)?;
    let mut heard = Vec::new();
    // Until the first packet comes again: the time of the timer with its rounds, of which one may have begun.
    for _ in 0..AGAIN_IDLES {
        heard.extend(asked.heard(rig)?);
        if heard.len() > PACKETS {
            break;
        }
        rig.idle(1);
    }
    ensure!(heard.len() > PACKETS, "{} packets have come, and none again", heard.len());
    ensure!(heard[PACKETS].number == 0, "it begins again: {:?}", &heard[PACKETS..]);
    rig.send(&[asked.ack(PACKETS as u32 - 1, ACK)]);
    let done = rig.completed(1)?;
    ensure!(done[0].status == CompletionStatus::Success, "{done:?}");
    asked.post_sends(2..3)?;
    let mut again = 0;
    rig.wait("what follows the WRITE", |rig| {
        let heard = asked.heard(rig)?;
        again += heard.iter().filter(|one| (one.number as usize) < PACKETS).count();
        Ok(heard.iter().any(|one| one.number as usize == PACKETS).then_some(()))
    })?;
    ensure!(again < PACKETS / 2, "{again} packets come again that were acknowledged");
    rig.send(&[asked.ack(PACKETS as u32, ACK)]);
    rig.completed(1)?;
    let moved = rig.moved()?;
    ensure!(moved.of("timeout") == 1, "{moved:?}");
    drop(asked);
    rig.settle()
}

/// READs that wait for one another, whose slots the card keeps, and whose ring the host does not give while the card asks for more of
/// them: no slot that has not come is taken for one, and all READs complete when the host gives them.
fn unreadable_behind_kept_slots(rig: &mut Rig) -> Result<()> {
    const READS: u32 = 40;
    const BYTES: usize = 16;
    let mapped = rig.interposer.mapped().len();
    let mut asked = Asked::connect(rig, UNIT, |send| send.read_atomic = Some(1))?;
    let send_ring = rig.interposer.mapped()[mapped];
    let read = |rig: &Rig, number: u32| -> Result<SendRequest> {
        Ok(SendRequest::read(number.into(), remote(BYTES)).sge(rig.domain.allocate(BYTES)?).signalled())
    };
    let mut requests = (0..READS).map(|number| read(rig, number)).collect::<Result<Vec<_>>>()?;
    asked.queue_pair.post_sends(&mut requests)?;
    let answer = |rig: &Rig, asked: &Asked, number: u32| {
        rig.send(&[asked.response(Op::ReadResponseOnly, number, ACK, vec![number as u8; BYTES])]);
    };
    asked.wait_for(rig, 1)?;
    rig.idle(LONG);
    rig.moved()?;
    let interposer = std::sync::Arc::clone(&rig.interposer);
    let (answered, faults) = interposer.without(send_ring, || {
        for number in 0..READS - 1 {
            answer(rig, &asked, number);
            asked.wait_for(rig, 1)?;
            if rig.moved()?.of("host_read_errors") > 0 {
                return Ok(number + 1);
            }
        }
        anyhow::bail!("the ring is not read")
    })?;
    ensure!(faults > 0, "the ring was read");
    for number in answered..READS {
        answer(rig, &asked, number);
        if number + 1 < READS {
            asked.wait_for(rig, 1)?;
        }
    }
    let done = rig.completed(READS as usize)?;
    for (number, done) in done.iter().enumerate() {
        let is_right = done.status == CompletionStatus::Success && done.message == [number as u8; BYTES];
        ensure!(is_right && done.wr_id == number as u64, "READ {number}: {done:?}");
    }
    drop(asked);
    rig.settle()
}

/// A NAK and an ACK at once, losses one after the other, RNR NAKs one after the other, and a late ACK.
pub(crate) fn causes(rig: &mut Rig, width_bits: u32) -> Result<()> {
    if width_bits == 64 {
        // A faster card would have come to the later packet.
        loss_that_is_due_anyway(rig).context("a NAK of what is sent again anyway")?;
    }
    nak_and_ack(rig, NAK_SEQUENCE).context("the NAK of a gap and an ACK of all")?;
    nak_and_ack(rig, NOT_READY | 1).context("an RNR NAK and an ACK of all")?;
    losses_of_a_read(rig).context("losses of a READ")?;
    not_ready_again_and_again(rig).context("RNR NAKs of one message")?;
    slots_are_posted_anew(rig).context("slots that are posted anew while the card goes back")?;
    what_comes_again_asks(rig).context("a NAK of messages that ask for nothing")?;
    not_ready_once_each(rig).context("an RNR NAK of each message")?;
    acknowledged_while_sent_again(rig).context("an ACK of what is sent again")?;
    unreadable_behind_kept_slots(rig).context("a ring that cannot be read behind slots that are kept")
}

/// Messages whose peer is silent but for the ACKs of a test, one of which comes around an expiry.
struct Expiries<'rig> {
    rig: &'rig mut Rig,
    asked: Asked,
    /// Messages that were posted, and that are acknowledged.
    posted: u64,
    acknowledged: u32,
}

/// Timeout of these messages, and its time.
const TIMEOUT: u8 = 11;
const PERIOD_NS: u64 = CYCLE_NS << TIMEOUT;
/// Messages in flight.
const IN_FLIGHT: u64 = 6;
/// Nanoseconds in which all of them have come, after the first one, or after their doorbell.
const ALL_NS: u64 = 2_000;

impl Expiries<'_> {
    fn now_ns(&self) -> u64 {
        self.rig.world().now_ps() / 1000
    }

    /// Sends new messages, up to those that are in flight.
    fn fill(&mut self) -> Result<()> {
        let until = u64::from(self.acknowledged) + IN_FLIGHT;
        self.asked.post_sends(self.posted..until)?;
        self.posted = until;
        self.rig.step_ns(ALL_NS)?;
        self.rig.passed();
        Ok(())
    }

    /// Waits until messages are sent again, and all of them have come. Returns when the first did, unless the queue pair ends.
    fn round(&mut self) -> Result<Option<u64>> {
        let limit_ns = self.now_ns() + 8 * PERIOD_NS;
        let mut first_ns = None;
        while first_ns.is_none_or(|first_ns| self.now_ns() < first_ns + ALL_NS) {
            ensure!(self.now_ns() < limit_ns, "nothing comes again");
            self.rig.step_ns(100)?;
            let came = self.rig.passed().into_iter().find(|one| one.destination == PLAYED);
            first_ns = first_ns.or(came.map(|one| one.time_ps / 1000));
            if self.rig.completions()?.iter().any(|done| done.status != CompletionStatus::Success) {
                return Ok(None);
            }
        }
        self.rig.heard();
        Ok(first_ns)
    }

    /// Acknowledges the oldest message at a time.
    fn acknowledge(&mut self, at_ns: u64) -> Result<()> {
        let rest_ns = at_ns.checked_sub(self.now_ns()).context("the time is past")?;
        self.rig.step_ns(rest_ns)?;
        self.rig.send(&[self.asked.ack(self.acknowledged, ACK)]);
        self.acknowledged += 1;
        Ok(())
    }

    /// Begins a period, with all retries there, when messages have come again at a time.
    fn begin(&mut self, came_ns: u64) -> Result<()> {
        self.acknowledge(came_ns + 3 * ALL_NS)
    }

    /// Lets an ACK come at a time, and says whether it came before the expiry: then the next expiry is a whole period later. Returns
    /// also when messages have come again, with no retry left.
    fn ack_wins(&mut self, at_ns: u64) -> Result<(bool, u64)> {
        self.acknowledge(at_ns)?;
        let came_ns = self.round()?.context("the queue pair has ended at once")?;
        if came_ns >= at_ns + PERIOD_NS {
            return Ok((true, came_ns));
        }
        // Behind the expiry, the ACK has given back the retry that it took.
        let again_ns = self.round()?;
        let text = || format!("an ACK at {at_ns} ns, messages again at {came_ns} ns, and no retry is left");
        Ok((false, again_ns.with_context(text)?))
    }
}

/// With one retry, a peer acknowledges a message in each cycle around an expiry: either the ACK comes first, and the timer starts anew,
/// or it comes behind the expiry, and gives the retry back (protocol 2.6).
pub(crate) fn acks_and_expiries(rig: &mut Rig) -> Result<()> {
    let asked = Asked::connect(rig, 1, |send| (send.timeout, send.retry_count) = (TIMEOUT, 1))?;
    let mut expiries = Expiries { rig, asked, posted: 0, acknowledged: 0 };
    expiries.fill()?;
    let mut came_ns = expiries.round()?.context("the first expiry")?;
    expiries.fill()?;
    // How long it takes until messages come again, from one such time to the next.
    expiries.begin(came_ns)?;
    let next_ns = expiries.round()?.context("the second expiry")?;
    let distance_ns = next_ns - came_ns;
    came_ns = next_ns;
    // How much sooner an ACK must come than these to be before the expiry: first by halves, then cycle by cycle.
    let mut attempt = |before_ns: u64| -> Result<bool> {
        expiries.fill()?;
        expiries.begin(came_ns)?;
        let (wins, next_ns) = expiries.ack_wins(came_ns + distance_ns - before_ns)?;
        came_ns = next_ns;
        Ok(wins)
    };
    let (mut late_ns, mut early_ns) = (0, 4_000);
    ensure!(attempt(early_ns)? && !attempt(late_ns)?, "the expiry is between these times");
    while early_ns - late_ns > CYCLE_NS {
        let middle_ns = (early_ns + late_ns) / 2;
        if attempt(middle_ns)? { early_ns = middle_ns } else { late_ns = middle_ns }
    }
    let around = late_ns.saturating_sub(12 * CYCLE_NS)..=early_ns + 12 * CYCLE_NS;
    let all = around.step_by(CYCLE_NS as usize).map(attempt).collect::<Result<Vec<_>>>()?;
    let wins = all.iter().filter(|wins| **wins).count();
    ensure!(wins > 4 && all.len() - wins > 4, "not around the expiry: {all:?}");
    let Expiries { rig, asked, .. } = expiries;
    drop(asked);
    rig.settle()
}
