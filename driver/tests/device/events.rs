//! Event queues: illegal EQEs, waits of several threads, and draining.

use crate::fake::FakeFunction;
use crate::rig::{LONG, MAC, SHORT, card, pair, pair_with};
use rnic_driver::memory::Memory;
use rnic_driver::{
    Bar, CompletionQueueOptions, Device, Error, EventQueueOptions, Function, FunctionError, Options,
    QueuePairOptions, ReceiveRequest, RemoteRights, SendRequest,
};
use rnic_layout::doorbell::Arm;
use rnic_layout::queue::event::AsyncEvent;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

/// Real time after which a thread that was not woken is given up.
const GIVE_UP: Duration = Duration::from_secs(5);

#[test]
fn a_command_succeeds_beside_an_illegal_event() {
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    function.card().raise(0, AsyncEvent::PortActive, 1);
    function.card().raise_illegal(0);
    function.card().raise(0, AsyncEvent::PortActive, 2);
    let region = domain.allocate(1).unwrap();
    assert_eq!(function.card().objects()[1], 1);
    assert_eq!(function.card().unreleased_events(0), 0, "the consumer index covers the illegal EQE");
    drop(region);
    assert_eq!(function.card().objects()[1], 0);
}

#[test]
fn an_illegal_event_is_reported_once_and_no_other_is_lost() {
    let (function, device) = card();
    let events = device.events();
    for round in 0..3 {
        function.card().raise(0, AsyncEvent::PortActive, 10 * round);
        for _ in 0..=round {
            function.card().raise_illegal(0);
        }
        function.card().raise(0, AsyncEvent::PortActive, 10 * round + 1);
        // A command reads the events, and the next call that asks for events reports them.
        if round == 1 {
            device.create_protection_domain().unwrap().allocate(1).unwrap();
        }
        let error = if round == 2 { events.wait(SHORT) } else { events.poll() }.unwrap_err().to_string();
        assert!(error.contains("event queue 0") && error.contains("kind"), "{error}");
        assert!(error.contains(&format!("{} EQE", round + 1)), "{error}");
        for number in [10 * round, 10 * round + 1] {
            assert_eq!(events.poll().unwrap().unwrap().object_number, number);
        }
        assert_eq!(events.poll().unwrap(), None);
    }
}

#[test]
fn an_illegal_event_wakes_every_completion_queue() {
    let pair = pair();
    for queue in &pair.queues {
        queue.arm(Arm::Next);
    }
    pair.function.card().raise_illegal(0);
    assert!(pair.queues[0].is_signalled().is_err());
    assert!(pair.queues.iter().all(|queue| queue.is_signalled().unwrap()));
    // With nothing to poll, a wait goes on until its limit.
    pair.function.card().raise_illegal(0);
    assert!(pair.queues[0].wait(SHORT).is_err());
    assert!(!pair.queues[0].wait(SHORT).unwrap());
}

#[test]
fn lost_events_are_reported_once_and_wake_every_completion_queue() {
    let pair = pair();
    let events = pair.device.events();
    for queue in &pair.queues {
        queue.arm(Arm::Next);
    }
    pair.function.card().raise(0, AsyncEvent::PortActive, 1);
    pair.function.card().raise_lost(0, 3);
    pair.function.card().raise(0, AsyncEvent::PortActive, 2);
    assert!(pair.queues.iter().all(|queue| queue.is_signalled().unwrap()));
    let found = events.poll();
    assert!(matches!(found, Err(Error::EventsLost { number: 0, count: 3 })), "{found:?}");
    for number in [1, 2] {
        assert_eq!(events.poll().unwrap().unwrap().object_number, number);
    }
    assert_eq!(events.poll().unwrap(), None);
    assert_eq!(events.lost(), 3);
    // What a lost event of a queue pair said can be queried.
    pair.function.card().fail(pair.left.number());
    assert!(pair.left.has_failed().unwrap() && !pair.right.has_failed().unwrap());
    // A wait for completions has lost nothing and goes on; one for events ends.
    pair.function.card().raise_lost(0, 0xffff);
    assert!(!pair.queues[0].wait(SHORT).unwrap());
    pair.function.card().raise_lost(0, 1);
    let found = events.wait(LONG);
    assert!(matches!(found, Err(Error::EventsLost { number: 0, count: 0x1_0000 })), "{found:?}");
    assert_eq!(events.wait(SHORT).unwrap(), None);
    assert_eq!(events.lost(), 0x1_0003);
}

#[test]
fn an_event_loop_of_the_application_gets_the_interrupts_that_it_asks_for() {
    let pair = pair();
    let events = pair.device.events();
    assert!(events.interrupt_fd().unwrap().is_none(), "a card in this process has none");
    while events.take_interrupt().unwrap() {}
    pair.function.card().raise(0, AsyncEvent::PortActive, 1);
    assert!(!events.take_interrupt().unwrap(), "nobody has asked");
    events.arm();
    assert!(events.take_interrupt().unwrap(), "an event was not read");
    assert!(!events.take_interrupt().unwrap(), "it was taken");
    assert_eq!(events.poll().unwrap().unwrap().object_number, 1);
    events.arm();
    assert!(!events.take_interrupt().unwrap(), "nothing has happened");
    pair.function.card().raise(0, AsyncEvent::PortActive, 2);
    assert!(events.take_interrupt().unwrap());
    // A vector that the back end does not deliver has no interrupts.
    let function = FakeFunction::new(0);
    let device = Device::open(function as Arc<dyn Function>, Options::new([2, 0, 0, 0, 0, 1])).unwrap();
    assert!(device.events().interrupt_fd().unwrap().is_none() && !device.events().take_interrupt().unwrap());
}

#[test]
fn a_solicited_wait_sees_completions_that_were_harvested() {
    let mut pair = pair();
    for (wr_id, is_solicited) in [(0, true), (1, false)] {
        pair.right.post_receive(ReceiveRequest::new(wr_id)).unwrap();
        let request = SendRequest::send(wr_id);
        pair.left.post_send(if is_solicited { request.solicited() } else { request }).unwrap();
        pair.idle(5);
        // The wait has read the CQE, so the card raises no event for it.
        assert!(pair.queues[1].wait(LONG).unwrap());
        assert_eq!(pair.queues[1].wait_solicited(SHORT).unwrap(), is_solicited);
        assert_eq!(pair.next(1).wr_id, wr_id);
        assert!(!pair.queues[1].wait_solicited(SHORT).unwrap());
    }
}

#[test]
fn a_solicited_wait_sees_completions_that_a_destroyed_queue_pair_has_flushed() {
    let mut pair = pair();
    pair.left.post_receive(ReceiveRequest::new(3)).unwrap();
    drop(pair.left);
    assert!(pair.queues[0].wait_solicited(SHORT).unwrap(), "a flushed receive has failed");
    assert!(!pair.queues[0].poll_one().unwrap().unwrap().is_success());
}

#[test]
fn a_wait_does_not_take_the_event_of_an_earlier_arming() {
    let mut pair = pair();
    pair.right.post_receive(ReceiveRequest::new(0)).unwrap();
    pair.queues[1].arm(Arm::Next);
    pair.left.post_send(SendRequest::send(0)).unwrap();
    pair.idle(5);
    assert!(pair.queues[1].is_signalled().unwrap());
    assert!(!pair.queues[1].wait_solicited(SHORT).unwrap());
    assert!(pair.queues[1].is_signalled().unwrap(), "the event was that of the first arming");
}

/// A card whose interrupts end a sleep, while its time stands still.
struct Sleeper {
    card: Arc<FakeFunction>,
    /// Number of threads that sleep.
    asleep: Mutex<u32>,
    changed: Condvar,
    is_over: AtomicBool,
}

impl Sleeper {
    fn wake(&self) {
        let _asleep = self.asleep.lock().unwrap();
        self.changed.notify_all();
    }
}

impl Function for Sleeper {
    forward_to_card!();

    fn wait_interrupt(&self, vector: u32, _: Duration) -> Result<bool, FunctionError> {
        let mut asleep = self.asleep.lock().unwrap();
        *asleep += 1;
        self.changed.notify_all();
        loop {
            let is_taken = self.take_interrupt(vector)?;
            if is_taken || self.is_over.load(Ordering::Relaxed) {
                *asleep -= 1;
                return Ok(is_taken);
            }
            asleep = self.changed.wait(asleep).unwrap();
        }
    }
}

/// Two threads wait for completion queues that share one interrupt vector, on one event queue or on two. One interrupt of
/// the card announces the events of both queues.
fn one_interrupt_wakes_both(event_queues: usize) {
    let card = FakeFunction::new(1);
    let sleeper = Arc::new(Sleeper {
        card: Arc::clone(&card),
        asleep: Mutex::new(0),
        changed: Condvar::new(),
        is_over: AtomicBool::new(false),
    });
    let options = Options { seed: Some(7), timeout: Duration::from_micros(100), ..Options::new(MAC) };
    let device = Device::open(Arc::clone(&sleeper) as _, options).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let first = device.events();
    let second = if event_queues == 1 {
        device.events()
    } else {
        device.create_event_queue(&EventQueueOptions::default()).unwrap()
    };
    let queues = [first, second]
        .map(|events| device.create_completion_queue(&events, &CompletionQueueOptions::default()).unwrap());
    // A queue pair that fails completes its receive.
    let queue_pairs = [&queues[0], &queues[1]].map(|queue| {
        let queue_pair = domain.create_queue_pair(queue, queue, &QueuePairOptions::default()).unwrap();
        let mut queue_pair = queue_pair.initialize(RemoteRights::NONE).unwrap();
        queue_pair.post_receive(ReceiveRequest::new(1)).unwrap();
        queue_pair
    });
    let (done, is_done) = mpsc::channel();
    let threads = queues.map(|queue| {
        let done = done.clone();
        std::thread::spawn(move || done.send(queue.wait(Duration::from_secs(1)).unwrap()))
    });
    // At least one thread sleeps, and the other had the time to.
    drop(sleeper.changed.wait_while(sleeper.asleep.lock().unwrap(), |asleep| *asleep == 0).unwrap());
    std::thread::sleep(Duration::from_millis(100));
    {
        let mut card = card.card();
        queue_pairs.iter().for_each(|queue_pair| card.fail(queue_pair.number()));
    }
    card.idle();
    sleeper.wake();
    let woken: Vec<_> = (0..2).map_while(|_| is_done.recv_timeout(GIVE_UP).ok()).collect();
    sleeper.is_over.store(true, Ordering::Relaxed);
    // Time goes on, so that a thread that was not woken ends too.
    (0..1_000_000).for_each(|_| card.idle());
    sleeper.wake();
    threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    assert_eq!(woken, [true, true], "{event_queues} event queues");
}

#[test]
fn an_interrupt_wakes_all_threads_that_wait_for_its_event_queue() {
    one_interrupt_wakes_both(1);
}

#[test]
fn an_interrupt_wakes_all_threads_that_wait_for_its_vector() {
    one_interrupt_wakes_both(2);
}

#[test]
fn arming_and_polling_does_not_overrun_the_event_queue() {
    // Event queue 0 has 256 EQEs; the fake card panics on an overrun.
    let mut pair = pair();
    for wr_id in 0..1000 {
        pair.queues[1].arm(Arm::Next);
        pair.right.post_receive(ReceiveRequest::new(wr_id)).unwrap();
        pair.left.post_send(SendRequest::send(wr_id).signalled()).unwrap();
        assert_eq!((pair.next(1).wr_id, pair.next(0).wr_id), (wr_id, wr_id));
    }
}

#[test]
fn polling_drains_event_queue_0() {
    // The completion queues have an event queue of their own.
    let (function, device) = card();
    let events = device.create_event_queue(&EventQueueOptions::default()).unwrap();
    let queue = device.create_completion_queue(&events, &CompletionQueueOptions::default()).unwrap();
    for number in 0..1000 {
        function.card().raise(0, AsyncEvent::PortActive, number);
        assert!(queue.poll(&mut Vec::new(), 10).unwrap() == 0 && queue.poll_one().unwrap().is_none());
    }
    assert_eq!(device.events().poll().unwrap().unwrap().object_number, 744);
    assert_eq!(device.events().lost(), 744);
}

#[test]
fn a_failed_completion_drains_the_events_of_the_failure_at_once() {
    let options = QueuePairOptions::default();
    let mut pair = pair_with(RemoteRights::NONE, &options, &CompletionQueueOptions::default());
    let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
    pair.left.post_send(SendRequest::write(1, target).inline(b"x")).unwrap();
    pair.idle(5);
    assert_eq!(pair.function.card().unreleased_events(0), 1);
    assert!(!pair.queues[0].poll_one().unwrap().unwrap().is_success());
    assert_eq!(pair.function.card().unreleased_events(0), 0);
}
