//! All queue pairs of the card, each connected to a peer, fail in all ways at once, while software reads no event.
//!
//! Nobody is lost: each failure has its NAK or its completion and moves its counter, and each event is written or counted as lost. The
//! device goes on: queue pairs that were not meant are well, and a new one moves data at the wire's rate.
use crate::bystander::Bystander;
use crate::rig::{IPV4, Moved, PEER_FIRST, PEER_KEY, Rig, path_to_card};
use anyhow::{Context, Result, bail, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    CompletionQueue, CompletionQueueOptions, ConnectOptions, Error, QueuePair, QueuePairOptions,
    RemoteMemory, RemoteRights, SendRequest, SharedRegion,
};
use rnic_endpoint::packet::Packet;
use rnic_layout::doorbell::{Arm, COMPLETION, CompletionDoorbell, offset_in_bar};
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::registers::REG_TIMER_UNIT;
use rnic_layout::wire::extended::{AtomicEthRepr, RethRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr};
use rnic_machine::host::Bar as Window;
use std::collections::BTreeMap;

/// log2 of the EQEs of event queue 0: far fewer than events.
pub(crate) const EQES_LOG2: u32 = 6;
/// Queue pairs of the crowd, at least: all that the card has, but those that are not meant.
const CROWD: usize = 1020;
/// QPN of the first peer.
const FIRST_PEER: u32 = 0x1000;
const FIRST_PSN: u32 = 7;
/// Unit of the timers in cycles of 4 ns, and the timeout of those that wait for an answer: T is 4 us.
const UNIT: u64 = 128;
const TIMEOUT: u8 = 3;
/// Indices of a completion queue are modulo this.
const INDEX_COUNT: u32 = 1 << 24;
const CQES_LOG2: u32 = 12;
const FULL_CQES_LOG2: u32 = 8;
/// Doorbells that arm a completion queue whose completions are not read.
const ARMINGS: usize = 300;
/// Opcode of RC that no operation has.
const UNASSIGNED: u8 = 0x1f;

/// How a queue pair fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// The peer names a key that is not valid.
    WrongKey,
    /// The peer reads, which the queue pair does not allow.
    NotAllowed,
    /// The peer's WRITE has more data than its RETH says.
    TooLong,
    /// The peer's opcode is reserved.
    Reserved,
    /// The word of the peer's atomic is not aligned.
    Unaligned,
    /// A request of the peer is missing: a NAK, and no failure.
    Gap,
    /// The peer does not answer.
    Silent,
    /// The peer posts no receive.
    NotReady,
    /// The peer refuses the card's key.
    Refused,
    /// The completion queue is full.
    Overrun,
}

const WAYS: [Way; 10] = [
    Way::WrongKey,
    Way::NotAllowed,
    Way::TooLong,
    Way::Reserved,
    Way::Unaligned,
    Way::Gap,
    Way::Silent,
    Way::NotReady,
    Way::Refused,
    Way::Overrun,
];

impl Way {
    /// Status of the send that fails.
    fn status(self) -> Option<CompletionStatus> {
        match self {
            Way::Silent => Some(CompletionStatus::RetryExceeded),
            Way::NotReady => Some(CompletionStatus::RnrRetryExceeded),
            Way::Refused => Some(CompletionStatus::RemoteAccess),
            _ => None,
        }
    }

    fn event(self) -> Option<AsyncEvent> {
        match self {
            Way::WrongKey => Some(AsyncEvent::QueuePairAccessError),
            Way::NotAllowed | Way::TooLong | Way::Reserved | Way::Unaligned => {
                Some(AsyncEvent::QueuePairRequestError)
            }
            Way::Overrun => Some(AsyncEvent::QueuePairFatal),
            _ => None,
        }
    }

    /// The peer's request, if it sends one.
    fn frame(self, number: u32, window: RemoteMemory) -> Option<Vec<u8>> {
        let RemoteMemory { address, key, .. } = window;
        let reth = |remote_key, dma_length| {
            vec![ExtendedRepr::Reth(RethRepr { virtual_address: address, remote_key, dma_length })]
        };
        let atomic = AtomicEthRepr { virtual_address: address + 4, remote_key: key, swap_add: 1, compare: 0 };
        let (code, ahead, headers, payload) = match self {
            Way::WrongKey => (Op::WriteOnly.code(), 0, reth(key ^ 0x100, 8), vec![1; 8]),
            Way::NotAllowed => (Op::ReadRequest.code(), 0, reth(key, 8), vec![]),
            Way::TooLong => (Op::WriteOnly.code(), 0, reth(key, 4), vec![1; 8]),
            Way::Reserved => (UNASSIGNED, 0, vec![], vec![]),
            Way::Unaligned => (Op::FetchAdd.code(), 0, vec![ExtendedRepr::AtomicEth(atomic)], vec![]),
            Way::Gap => (Op::SendOnly.code(), 1, vec![], vec![]),
            Way::Silent | Way::NotReady | Way::Refused | Way::Overrun => return None,
        };
        let bth = BthRepr::new(code, number, Psn::wrapping(FIRST_PSN + ahead));
        Some(Packet::new(bth, headers, payload).frame(&path_to_card(IPV4), 1))
    }

    /// The card's request, if it sends one.
    fn request(self, wr_id: u64) -> Option<SendRequest> {
        let target = |key| RemoteMemory { address: PEER_FIRST, key, bytes: 8 };
        let request = match self {
            Way::Silent | Way::NotReady => SendRequest::send(wr_id).inline(&[1; 8]),
            Way::Refused => SendRequest::write(wr_id, target(PEER_KEY ^ 0x100)).inline(&[1; 8]),
            Way::Overrun => SendRequest::write(wr_id, target(PEER_KEY)).inline(&[1; 8]),
            _ => return None,
        };
        Some(request.signalled())
    }
}

/// A queue pair of the crowd.
struct One {
    queue_pair: QueuePair<ReadyToSend>,
    way: Way,
}

/// The crowd, and what it uses.
struct Crowd {
    all: Vec<One>,
    completions: CompletionQueue,
    /// One that will be full.
    full: CompletionQueue,
    window: SharedRegion,
}

impl Crowd {
    /// Connects all queue pairs that the card has left.
    fn gather(rig: &mut Rig) -> Result<Crowd> {
        let queue = |entries_log2| {
            let options = CompletionQueueOptions { entries_log2, ..CompletionQueueOptions::default() };
            rig.device.create_completion_queue(&rig.device.events(), &options)
        };
        let (completions, full) = (queue(CQES_LOG2)?, queue(FULL_CQES_LOG2)?);
        let window = rig.domain.share(64, RemoteRights::ALL)?;
        let mut all = Vec::new();
        for (peer, way) in (FIRST_PEER..).zip(WAYS.into_iter().cycle()) {
            let queue = if way == Way::Overrun { &full } else { &completions };
            let options = QueuePairOptions::default();
            let queue_pair = match rig.domain.create_queue_pair(queue, &completions, &options) {
                Ok(queue_pair) => queue_pair,
                Err(Error::Exhausted { .. }) => break,
                Err(error) => bail!(error),
            };
            let rights = if way == Way::NotAllowed { RemoteRights::WRITE } else { RemoteRights::ALL };
            let queue_pair = queue_pair.initialize(rights).map_err(Error::from)?;
            // The smallest share of READ slots: the bystander has a large one.
            let change = |options: &mut ConnectOptions| {
                (options.destination_read_atomic, options.send.read_atomic) = (Some(4), Some(4));
                if way == Way::Silent {
                    (options.send.timeout, options.send.retry_count) = (TIMEOUT, 1);
                }
            };
            let queue_pair = if way == Way::Silent {
                rig.connect_with(queue_pair, peer, IPV4, Pmtu::Bytes256, FIRST_PSN, change)?
            } else {
                rig.connect_to_endpoint_with(queue_pair, peer, IPV4, Pmtu::Bytes256, FIRST_PSN, change)?
            };
            all.push(One { queue_pair, way });
        }
        ensure!(all.len() >= CROWD, "only {} queue pairs", all.len());
        Ok(Crowd { all, completions, full, window })
    }

    fn count(&self, is_meant: impl Fn(Way) -> bool) -> u64 {
        self.all.iter().filter(|one| is_meant(one.way)).count() as u64
    }

    /// Everything fails, in mixed order. Nothing is polled, since that would read the events.
    fn fail(&mut self, rig: &mut Rig) -> Result<()> {
        let ring = |rig: &Rig, number, arm, consumer_index| -> Result<()> {
            let doorbell = CompletionDoorbell { object_number: number, arm, consumer_index };
            let value = u64::from_le_bytes(doorbell.to_bytes()?);
            rig.world().post_register(0, Window::Doorbells, offset_in_bar(0, &COMPLETION), value);
            Ok(())
        };
        // Software takes back what it has read of this one.
        ring(rig, self.full.number(), Arm::Keep, INDEX_COUNT - (1 << FULL_CQES_LOG2))?;
        rig.device.check()?;
        let window = self.window.remote();
        let frames: Vec<_> =
            self.all.iter().filter_map(|one| one.way.frame(one.queue_pair.number(), window)).collect();
        rig.send(&frames);
        for (wr_id, one) in (0..).zip(&mut self.all) {
            if let Some(request) = one.way.request(wr_id) {
                one.queue_pair.post_send(request)?;
            }
        }
        // The last timeout, an RNR NAK, and a turn for each of them.
        rig.idle(2000);
        // There are completions that nobody reads, so each arming asks for an event.
        for _ in 0..ARMINGS {
            ring(rig, self.completions.number(), Arm::Next, 0)?;
            rig.idle(1);
        }
        rig.idle(200);
        rig.device.check().context("the device goes on")
    }

    /// Each failure has moved its counter, and nothing else has moved one.
    fn check_counters(&self, moved: &Moved) -> Result<()> {
        let of = |ways: &'static [Way]| self.count(|way| ways.contains(&way));
        let mut found = moved.named();
        // Of the events, some are written, and the others are counted.
        let lost = found.remove("event_queue_overrun").context("no event was lost")?;
        let written = moved.of("events_written");
        let events = self.count(|way| way.event().is_some()) + 1;
        // While half of the queue is unread, the event of the completion queue that was armed waits.
        ensure!(
            written == 1 << EQES_LOG2 && written + lost == events,
            "{written} + {lost} of {events} events"
        );
        // A timer may expire once more before what was lost has had its turn, which takes no retry.
        let timeouts = found.remove("timeout").unwrap_or_default();
        ensure!(timeouts >= 2 * of(&[Way::Silent]), "{timeouts} timeouts");
        let expected = BTreeMap::from([
            ("nak_access_sent", of(&[Way::WrongKey])),
            ("remote_protection", of(&[Way::WrongKey])),
            ("nak_invalid_request_sent", of(&[Way::NotAllowed, Way::TooLong, Way::Reserved, Way::Unaligned])),
            ("nak_sequence_sent", of(&[Way::Gap])),
            ("request_gap", of(&[Way::Gap])),
            ("packets_retransmitted", of(&[Way::Silent])),
            ("retry_exhausted", of(&[Way::Silent])),
            ("nak_rnr_received", of(&[Way::NotReady])),
            ("rnr_retry_exceeded", of(&[Way::NotReady])),
            ("nak_received", of(&[Way::Refused])),
            ("completion_queue_overrun", of(&[Way::Overrun])),
        ]);
        ensure!(found == expected, "counters {found:?}, expected {expected:?}");
        Ok(())
    }

    /// Each send that has failed completes with its status, once.
    fn check_completions(&self) -> Result<()> {
        let mut expected: BTreeMap<u64, CompletionStatus> =
            (0..).zip(&self.all).filter_map(|(wr_id, one)| Some((wr_id, one.way.status()?))).collect();
        while let Some(done) = self.completions.poll_one()? {
            let status = expected.remove(&done.wr_id);
            ensure!(status == Some(done.status), "{done:?}, expected {status:?}");
        }
        ensure!(expected.is_empty(), "{expected:?} are missing");
        Ok(())
    }

    /// Software reads at last: the events that had room are those of queue pairs that have failed so, and of the completion queue; the
    /// number of the others is told once.
    fn check_events(&self, rig: &mut Rig, lost: u64) -> Result<()> {
        let mut expected: BTreeMap<(u32, u32), AsyncEvent> = BTreeMap::new();
        for One { queue_pair, way } in &self.all {
            if let Some(event) = way.event() {
                expected.insert((queue_pair.number(), event as u32), event);
            }
        }
        let ends = AsyncEvent::CompletionQueueError;
        expected.insert((self.full.number(), ends as u32), ends);
        let (mut told, mut heard) = (0, 0);
        let mut idle = 0;
        while idle < 50 {
            match rig.device.events().poll() {
                Ok(Some(event)) => {
                    let place = (event.object_number, event.code as u32);
                    ensure!(expected.remove(&place).is_some(), "{event:?}");
                    heard += 1;
                }
                Ok(None) => {
                    rig.idle(1);
                    idle += 1;
                }
                Err(Error::EventsLost { number: 0, count }) => told += count,
                Err(error) => bail!(error),
            }
        }
        ensure!(told == lost, "{told} of {lost}, {heard} heard");
        ensure!(told as usize == expected.len(), "{} events are neither heard nor counted", expected.len());
        // What the lost events said can be queried.
        for One { queue_pair, way } in &self.all {
            let has_failed = queue_pair.has_failed()?;
            ensure!(has_failed == (*way != Way::Gap), "{way:?}: {queue_pair:?}");
        }
        Ok(())
    }
}

/// All of it.
pub(crate) fn fails(rig: &mut Rig, width_bits: u32) -> Result<usize> {
    rig.world().write_register(0, Window::Registers, REG_TIMER_UNIT.offset.into(), UNIT)?;
    let mut bystander = Bystander::new(rig, width_bits)?;
    bystander.run(rig).context("before")?;
    let mut crowd = Crowd::gather(rig)?;
    rig.moved()?;
    crowd.fail(rig)?;
    let moved = rig.moved()?;
    crowd.check_counters(&moved)?;
    crowd.check_completions()?;
    crowd.check_events(rig, moved.of("event_queue_overrun"))?;
    ensure!(crowd.completions.is_signalled()?, "the completion queue that was armed has its event");

    bystander.run(rig).context("a queue pair that was not meant")?;
    ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
    drop(bystander);
    let mut renewed = Bystander::new(rig, width_bits).context("a new queue pair")?;
    for _ in 0..4 {
        renewed.run(rig).context("a new queue pair")?;
    }
    let count = crowd.all.len();
    drop((renewed, crowd));
    rig.device.check()?;
    Ok(count)
}
