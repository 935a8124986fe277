//! When the card raises events and interrupts (protocol 4.4): with event and completion queues that are armed before or after
//! their entries come, masked vectors, and moderation of both. Also a completion queue that software claims not to have read.
use crate::rig::{IPV4, Rig};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    CompletionQueue, CompletionQueueOptions, Error, EventQueue, EventQueueOptions, QueuePair,
    QueuePairOptions, ReceiveRequest, RemoteRights,
};
use rnic_endpoint::qp::{Data, Operation, SendWqe};
use rnic_layout::doorbell::{Arm, COMPLETION, CompletionDoorbell, EVENT, EventDoorbell, offset_in_bar};
use rnic_layout::path::Pmtu;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::registers::{REG_INTERRUPT_MASK, REG_INTERRUPT_MODERATION, REG_INTERRUPT_PENDING};
use rnic_machine::host::Bar as Window;
use rnic_machine::world::Domain;
use std::time::Duration;

/// QPN of the first peer; the others follow.
const PEER: u32 = 0x140;
/// Interrupt vector of the event queues.
const VECTOR: u8 = 5;
/// log2 of the CQEs of a completion queue.
const CQES_LOG2: u32 = 6;
/// Receives that are posted.
const RECEIVES: u64 = 32;
/// Time in which a message, its CQE, its EQE and its interrupt have come on any host, in tenths of a microsecond.
const LONG: usize = 150;
/// Consumer indices are below this.
const INDEX_COUNT: u32 = 1 << 24;
/// Unit of the periods of moderation, in cycles of the core clock.
const UNIT_CYCLES: u64 = 256;

/// A completion queue, its event queue, and a queue pair that receives empty messages.
struct Bench<'rig> {
    rig: &'rig mut Rig,
    events: EventQueue,
    queue: CompletionQueue,
    queue_pair: QueuePair<ReadyToSend>,
    peer: u32,
    messages: u64,
    /// CQEs and EQEs that software has read.
    polled: u32,
    read: u32,
}

impl Bench<'_> {
    fn new(rig: &mut Rig, place: u32, moderation: (u16, u16)) -> Result<Bench<'_>> {
        let options = EventQueueOptions { vector: VECTOR.into(), ..EventQueueOptions::default() };
        let events = rig.device.create_event_queue(&options)?;
        let (moderation_count, moderation_period) = moderation;
        let options = CompletionQueueOptions { entries_log2: CQES_LOG2, moderation_count, moderation_period };
        let queue = rig.device.create_completion_queue(&events, &options)?;
        let queue_pair = rig.domain.create_queue_pair(&queue, &queue, &QueuePairOptions::default())?;
        let queue_pair = queue_pair.initialize(RemoteRights::NONE).map_err(Error::from)?;
        let peer = PEER + place;
        let mut queue_pair = rig.connect_to_endpoint(queue_pair, peer, IPV4, Pmtu::Bytes1024, 7)?;
        for wr_id in 0..RECEIVES {
            queue_pair.post_receive(ReceiveRequest::new(wr_id))?;
        }
        rig.device.check()?;
        let (messages, polled, read) = (0, 0, 0);
        Ok(Bench { rig, events, queue, queue_pair, peer, messages, polled, read })
    }

    fn now_ps(&self) -> u64 {
        self.rig.world().now_ps()
    }

    /// Time of this many units of moderation.
    fn units_ps(&self, count: u64) -> u64 {
        count * UNIT_CYCLES * self.rig.world().card(0).period_ps(Domain::Core)
    }

    /// Sends this many messages to the card, and waits until all that they cause at once has come.
    fn receives(&mut self, count: u64) -> Result<()> {
        let (peer, first) = (self.peer, self.messages);
        self.messages += count;
        self.rig.endpoint(|endpoint| {
            for wr_id in first..first + count {
                endpoint.post_send(peer, SendWqe::new(wr_id, Operation::Send, Data::Inline(Vec::new())));
            }
        });
        let mut done = 0;
        self.rig.wait("the messages", |rig| {
            rig.endpoint(|endpoint| done += std::iter::from_fn(|| endpoint.poll(peer)).count() as u64);
            Ok((done == count).then_some(()))
        })?;
        self.rig.idle(LONG);
        Ok(())
    }

    fn write(&self, offset: u64, value: [u8; 8]) -> Result<()> {
        self.rig.world().post_register(0, Window::Doorbells, offset, u64::from_le_bytes(value));
        // The read returns after the doorbell.
        Ok(self.rig.device.check()?)
    }

    /// Arms the completion queue, of which software has read as many CQEs as it has polled.
    fn arm_queue(&self) -> Result<()> {
        let object_number = self.queue.number();
        let doorbell = CompletionDoorbell { object_number, arm: Arm::Next, consumer_index: self.polled };
        self.write(offset_in_bar(0, &COMPLETION), doorbell.to_bytes()?)
    }

    /// Has the driver arm the completion queue, and waits until the card knows: a CQE that comes before is unread at the arming,
    /// and its event is not moderated.
    fn arm(&self) -> Result<()> {
        self.queue.arm(Arm::Next);
        // The read returns after the doorbell.
        Ok(self.rig.device.check()?)
    }

    /// Arms the event queue, of which software has read as many EQEs as it has seen.
    fn arm_events(&self) -> Result<()> {
        let doorbell =
            EventDoorbell { object_number: self.events.number(), arm: true, consumer_index: self.read };
        self.write(offset_in_bar(0, &EVENT), doorbell.to_bytes()?)
    }

    /// Polls all completions. Returns their number.
    fn poll(&mut self) -> Result<u64> {
        let mut count = 0;
        while let Some(completion) = self.queue.poll_one()? {
            ensure!(completion.is_success(), "{completion:?}");
            count += 1;
        }
        self.polled += count as u32;
        Ok(count)
    }

    /// Whether a further event of the completion queue has come. Reads it.
    fn has_event(&mut self) -> Result<bool> {
        let has_event = self.queue.is_signalled()?;
        self.read += u32::from(has_event);
        // The next event counts anew; the card is not armed by that.
        Ok(has_event)
    }

    /// Times of the interrupts that have come since the last call.
    fn interrupts(&mut self) -> Vec<u64> {
        let mut world = self.rig.world();
        let host = world.host_mut(0);
        let of_vector = host.interrupts().filter(|interrupt| interrupt.vector == VECTOR);
        let times = of_vector.map(|interrupt| interrupt.time_ps).collect();
        host.take_interrupts_of(VECTOR);
        times
    }

    fn write_register(&self, offset: u32, value: u64) -> Result<()> {
        Ok(self.rig.world().write_register(0, Window::Registers, offset.into(), value)?)
    }

    fn end(self) -> Result<()> {
        let Bench { rig, events, queue, queue_pair, .. } = self;
        drop((queue_pair, queue, events));
        ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
        rig.settle()
    }
}

/// An event comes if its completion queue is armed, before or after the CQE; an interrupt if the event queue is.
fn arming(rig: &mut Rig) -> Result<()> {
    let mut bench = Bench::new(rig, 0, (0, 0))?;
    bench.receives(1)?;
    ensure!(!bench.has_event()? && bench.interrupts().is_empty(), "nothing is armed");
    bench.arm_queue()?;
    bench.rig.idle(LONG);
    ensure!(bench.interrupts().is_empty(), "the event queue is not armed");
    // Nobody has read the EQE, so arming finds it.
    bench.arm_events()?;
    bench.rig.idle(LONG);
    ensure!(bench.interrupts().len() == 1, "the event queue was armed with an unread EQE");
    ensure!(bench.has_event()?, "the completion queue was armed with an unread CQE");
    ensure!(bench.poll()? == 1);

    // Both are armed before the message; each tells of it once.
    bench.queue.arm(Arm::Next);
    bench.arm_events()?;
    bench.rig.idle(LONG);
    ensure!(!bench.has_event()? && bench.interrupts().is_empty(), "nothing is unread");
    bench.receives(3)?;
    ensure!(bench.has_event()? && bench.interrupts().len() == 1, "three CQEs");
    ensure!(bench.poll()? == 3);

    // A thread that waits sleeps until the interrupt.
    for _ in 0..4 {
        let (peer, wr_id) = (bench.peer, bench.messages);
        bench.messages += 1;
        bench.rig.endpoint(|endpoint| {
            endpoint.post_send(peer, SendWqe::new(wr_id, Operation::Send, Data::Inline(Vec::new())));
        });
        let before_ps = bench.now_ps();
        ensure!(bench.queue.wait(Duration::from_millis(5))?, "the wait ends without a completion");
        let waited_ps = bench.now_ps() - before_ps;
        ensure!(waited_ps < LONG as u64 * 100_000, "the wait has lasted {waited_ps} ps");
        ensure!(bench.poll()? == 1);
    }
    bench.end()
}

/// A masked vector is pending until it is unmasked, and then raised once.
fn mask(rig: &mut Rig) -> Result<()> {
    let mut bench = Bench::new(rig, 1, (0, 0))?;
    bench.write_register(REG_INTERRUPT_MASK.offset, 1 << VECTOR)?;
    bench.queue.arm(Arm::Next);
    bench.arm_events()?;
    bench.receives(1)?;
    ensure!(bench.interrupts().is_empty(), "the vector is masked");
    let pending =
        bench.rig.world().read_register(0, Window::Registers, REG_INTERRUPT_PENDING.offset.into())?;
    ensure!(pending == 1 << VECTOR, "pending are {pending:#x}");
    bench.write_register(REG_INTERRUPT_MASK.offset, 0)?;
    bench.rig.idle(LONG);
    ensure!(bench.interrupts().len() == 1, "the vector was pending");
    ensure!(bench.has_event()? && bench.poll()? == 1);
    bench.end()
}

/// Two interrupts of a vector are at least its period apart.
fn interrupt_period(rig: &mut Rig) -> Result<()> {
    const PERIOD: u64 = 60;
    let mut bench = Bench::new(rig, 2, (0, 0))?;
    let moderation = REG_INTERRUPT_MODERATION.offset + 8 * u32::from(VECTOR);
    bench.write_register(moderation, PERIOD)?;
    let mut times = Vec::new();
    for round in 0..3 {
        bench.queue.arm(Arm::Next);
        bench.arm_events()?;
        bench.receives(1)?;
        ensure!(bench.has_event()? && bench.poll()? == 1, "round {round}: the event is not moderated");
        let limit_ps = bench.now_ps() + bench.units_ps(2 * PERIOD);
        while times.len() == round {
            ensure!(bench.now_ps() < limit_ps, "round {round}: the interrupt does not come");
            bench.rig.idle(1);
            times.extend(bench.interrupts());
        }
    }
    // The latency of an interrupt is up to 1 us on a hostile host.
    let least_ps = bench.units_ps(PERIOD) - 1_000_000;
    ensure!(times.len() == 3 && times.windows(2).all(|pair| pair[1] - pair[0] >= least_ps), "{times:?}");
    bench.write_register(moderation, 0)?;
    bench.end()
}

/// A completion queue with moderation raises an event for a number of CQEs, or after a period.
fn completion_moderation(rig: &mut Rig) -> Result<()> {
    const COUNT: u16 = 4;
    const PERIOD: u16 = 100;
    let mut bench = Bench::new(rig, 3, (COUNT, 0))?;
    for round in 0..2 {
        bench.arm()?;
        bench.receives(u64::from(COUNT) - 1)?;
        ensure!(!bench.has_event()?, "round {round}: a CQE is missing");
        bench.receives(1)?;
        ensure!(bench.has_event()?, "round {round}: as many CQEs as an event needs");
        ensure!(bench.poll()? == u64::from(COUNT));
    }
    bench.end()?;

    let mut bench = Bench::new(rig, 4, (COUNT, PERIOD))?;
    for round in 0..2 {
        bench.arm()?;
        let begin_ps = bench.now_ps();
        bench.receives(1)?;
        ensure!(!bench.has_event()?, "round {round}: too few CQEs, and too early");
        let limit_ps = begin_ps + bench.units_ps(2 * u64::from(PERIOD));
        while !bench.has_event()? {
            ensure!(bench.now_ps() < limit_ps, "round {round}: the period does not end");
            bench.rig.idle(1);
        }
        let waited_ps = bench.now_ps() - begin_ps;
        // The card counts whole units, of which the first has begun before the CQE.
        let least_ps = bench.units_ps(u64::from(PERIOD) - 1);
        ensure!(waited_ps >= least_ps, "round {round}: after {waited_ps} ps");
        ensure!(bench.poll()? == 1);
    }
    bench.end()
}

/// A CQE that finds its queue full ends the queue, and the queue pair that completes there; no unread CQE is overwritten.
fn overrun(rig: &mut Rig) -> Result<()> {
    let mut bench = Bench::new(rig, 5, (0, 0))?;
    bench.receives(2)?;
    // Software takes back what it has read: the queue is full.
    let consumer_index = 2 + INDEX_COUNT - (1 << CQES_LOG2);
    let doorbell = CompletionDoorbell { object_number: bench.queue.number(), arm: Arm::Keep, consumer_index };
    bench.write(offset_in_bar(0, &COMPLETION), doorbell.to_bytes()?)?;
    bench.rig.moved()?;
    let (peer, wr_id) = (bench.peer, bench.messages);
    bench.rig.endpoint(|endpoint| {
        endpoint.post_send(peer, SendWqe::new(wr_id, Operation::Send, Data::Inline(Vec::new())));
    });
    let (queue, queue_pair) = (bench.queue.number(), bench.queue_pair.number());
    let mut expected =
        vec![(AsyncEvent::CompletionQueueError, queue), (AsyncEvent::QueuePairFatal, queue_pair)];
    bench.rig.wait("the events", |rig| {
        if let Some(event) = rig.event()? {
            let place = expected.iter().position(|one| *one == (event.code, event.object_number));
            expected.remove(place.with_context(|| format!("{event:?}, expected {expected:?}"))?);
        }
        Ok(expected.is_empty().then_some(()))
    })?;
    let moved = bench.rig.moved()?;
    ensure!(moved.of("completion_queue_overrun") > 0 && moved.of("completions_written") == 0, "{moved:?}");
    bench.end()
}

/// All of them.
pub(crate) fn when_they_are_due(rig: &mut Rig) -> Result<()> {
    arming(rig).context("arming")?;
    mask(rig).context("a mask")?;
    interrupt_period(rig).context("the period of a vector")?;
    completion_moderation(rig).context("moderation of a completion queue")?;
    overrun(rig).context("an overrun")
}
