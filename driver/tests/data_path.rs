//! The data path over the null card: halves on threads, doorbells, and queues that one thread has.
#![cfg(not(loom))]

#[allow(dead_code, reason = "only the bench completes between two measurements")]
#[path = "null_card/mod.rs"]
mod null_card;

use null_card::NullCard;
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, Device, Error, Function, Options,
    ProtectionDomain, QueuePair, QueuePairOptions, ReceiveHalf, ReceiveRequest, Refusal, RemoteRights,
    SendHalf, SendRequest, state::ReadyToSend,
};
use rnic_layout::queue::completion::CompletionStatus;
use std::sync::Arc;
use std::thread;

struct Ground {
    card: Arc<NullCard>,
    device: Device,
    domain: ProtectionDomain,
    queue: CompletionQueue,
}

impl Ground {
    fn new(cqes_log2: u32) -> Self {
        let card = NullCard::new();
        let options = Options { seed: Some(1), ..Options::new([2, 0, 0, 0, 0, 1]) };
        let device = Device::open(Arc::clone(&card) as Arc<dyn Function>, options).unwrap();
        let domain = device.create_protection_domain().unwrap();
        let options = CompletionQueueOptions { entries_log2: cqes_log2, ..Default::default() };
        let queue = device.create_completion_queue(&device.events(), &options).unwrap();
        Self { card, device, domain, queue }
    }

    fn queue_pair(&self) -> QueuePair<ReadyToSend> {
        let queue = &self.queue;
        let queue_pair = self.domain.create_queue_pair(queue, queue, &QueuePairOptions::default()).unwrap();
        connect(queue_pair.initialize(RemoteRights::ALL).unwrap())
    }
}

fn connect(queue_pair: QueuePair<rnic_driver::state::Init>) -> QueuePair<ReadyToSend> {
    let peer = queue_pair.info(0).unwrap();
    queue_pair.connect(&peer, &ConnectOptions::default()).unwrap()
}

fn is_full(reason: Refusal) -> bool {
    matches!(reason, Refusal::QueueFull { .. } | Refusal::CompletionQueueFull { .. })
}

fn send_all(send: &mut SendHalf, count: u64) {
    for wr_id in 0..count {
        let mut request = SendRequest::send(wr_id).inline(&wr_id.to_le_bytes());
        if wr_id % 5 == 0 || wr_id == count - 1 {
            request = request.signalled();
        }
        while let Err(error) = send.post_send(request) {
            assert!(is_full(error.reason), "{error}");
            request = error.request;
            thread::yield_now();
        }
    }
}

fn receive_all(receive: &mut ReceiveHalf, count: u64) {
    for wr_id in 0..count {
        let mut request = ReceiveRequest::new(wr_id);
        while let Err(error) = receive.post_receive(request) {
            assert!(is_full(error.reason), "{error}");
            request = error.request;
            thread::yield_now();
        }
    }
}

/// Two threads post, and a third one polls.
#[test]
fn the_halves_of_a_queue_pair_are_used_by_two_threads() {
    const COUNT: u64 = 100_000;
    let ground = Ground::new(7);
    let (mut send, mut receive) = ground.queue_pair().split();
    let mut poller = ground.queue.poller().expect("nobody else polls");
    thread::scope(|scope| {
        scope.spawn(|| send_all(&mut send, COUNT));
        scope.spawn(|| receive_all(&mut receive, COUNT));
        let mut next = [0; 2];
        while next != [COUNT; 2] {
            let Some(completion) = poller.poll_one().unwrap() else {
                thread::yield_now();
                continue;
            };
            let next = &mut next[usize::from(completion.is_receive())];
            assert_eq!((completion.wr_id, completion.is_success()), (*next, true), "in order, each once");
            *next += 1;
        }
    });
    assert_eq!((send.in_flight(), receive.in_flight()), (0, 0));
    assert_eq!(send.join(receive).unwrap().in_flight(), (0, 0));
}

#[test]
fn only_the_halves_of_one_queue_pair_are_joined() {
    let ground = Ground::new(6);
    let (one, two) = (ground.queue_pair(), ground.queue_pair());
    let numbers = [one.number(), two.number()];
    let ((send, receive), (other_send, other_receive)) = (one.split(), two.split());
    let (send, other_receive) = send.join(other_receive).unwrap_err();
    assert_eq!([send.join(receive).unwrap().number(), other_receive.number()], numbers);
    assert_eq!(other_send.join(other_receive).unwrap().number(), numbers[1]);
}

#[test]
fn a_queue_pair_ends_with_its_second_half() {
    let ground = Ground::new(6);
    ground.card.hold(true);
    let (mut send, mut receive) = ground.queue_pair().split();
    send.post_send(SendRequest::send(1)).unwrap();
    drop(send);
    receive.post_receive(ReceiveRequest::new(2)).unwrap();
    assert!(ground.queue.poll_one().unwrap().is_none());
    drop(receive);
    let flushed = [1, 2].map(|_| ground.queue.poll_one().unwrap().expect("it completes"));
    assert_eq!(flushed.each_ref().map(|completion| completion.wr_id), [1, 2]);
    assert!(flushed.iter().all(|completion| completion.status == CompletionStatus::Flushed));
}

#[test]
fn a_list_has_one_doorbell() {
    let ground = Ground::new(6);
    let mut queue_pair = ground.queue_pair();
    let doorbells = |ground: &Ground| ground.card.doorbells()[0];
    {
        let mut batch = queue_pair.send_batch();
        (0..10).for_each(|wr_id| batch.post(SendRequest::send(wr_id).signalled()).unwrap());
        assert_eq!(doorbells(&ground), 0);
        // One that is refused keeps those before it.
        assert!(batch.post(SendRequest::send(10).inline(&[0; 97])).is_err());
    }
    assert_eq!(doorbells(&ground), 1);
    {
        let mut batch = queue_pair.receive_batch();
        (0..10).for_each(|wr_id| batch.post(ReceiveRequest::new(wr_id)).unwrap());
    }
    assert_eq!(doorbells(&ground), 2);
    drop(queue_pair.send_batch());
    assert_eq!(doorbells(&ground), 2, "an empty batch has no doorbell");
    let mut done = Vec::new();
    assert_eq!(ground.queue.poll(&mut done, 100).unwrap(), 20);
}

/// The card refuses to write more CQEs than it knows to be free, so that posting beyond them would be seen.
#[test]
fn the_doorbell_of_a_completion_queue_is_rung_after_a_quarter_of_it() {
    let ground = Ground::new(6);
    let mut queue_pair = ground.queue_pair();
    let mut done = Vec::new();
    for count in 1..=1000 {
        queue_pair.post_receive(ReceiveRequest::new(count)).unwrap();
        assert_eq!(ground.queue.poll(&mut done, 2).unwrap(), 1);
        assert_eq!(ground.card.doorbells()[1], count / 16);
    }
    // What the card takes for unread is not reserved again, and arming tells the card.
    let fill = |queue_pair: &mut QueuePair<ReadyToSend>| {
        (0..).take_while(|&wr_id| queue_pair.post_receive(ReceiveRequest::new(wr_id)).is_ok()).count()
    };
    assert_eq!(fill(&mut queue_pair), 64 - 1000 % 16);
    ground.queue.poll(&mut done, 100).unwrap();
    let before = ground.card.doorbells()[1];
    ground.queue.arm(rnic_layout::doorbell::Arm::Next);
    assert_eq!(ground.card.doorbells()[1], before + 1);
    assert_eq!(fill(&mut queue_pair), 64);
}

#[test]
fn a_poll_that_finds_nothing_idles_once() {
    let ground = Ground::new(6);
    let mut queue_pair = ground.queue_pair();
    let idles = || ground.card.idles();
    let before = idles();
    assert!(ground.queue.poll_one().unwrap().is_none());
    assert_eq!(ground.queue.poll(&mut Vec::new(), 5).unwrap(), 0);
    assert_eq!(idles(), before + 2);
    let mut poller = ground.queue.poller().unwrap();
    assert!(poller.poll_one().unwrap().is_none());
    assert_eq!(idles(), before + 3);
    queue_pair.post_receive(ReceiveRequest::new(1)).unwrap();
    assert!(poller.poll_one().unwrap().is_some());
    assert_eq!(poller.poll(&mut Vec::new(), 0).unwrap(), 0);
    assert_eq!(idles(), before + 3);
}

#[test]
fn a_queue_has_one_poller() {
    let ground = Ground::new(6);
    let mut queue_pair = ground.queue_pair();
    let mut poller = ground.queue.poller().unwrap();
    assert!(ground.queue.poller().is_none());
    queue_pair.post_receive(ReceiveRequest::new(1)).unwrap();
    assert!(ground.queue.poll_one().unwrap().is_none());
    assert!(poller.wait(Default::default()).unwrap());
    assert_eq!(poller.poll_one().unwrap().unwrap().wr_id, 1);
    queue_pair.post_receive(ReceiveRequest::new(2)).unwrap();
    drop(poller);
    assert_eq!(ground.queue.poll_one().unwrap().unwrap().wr_id, 2);
    assert!(ground.queue.poller().is_some());
}

/// Whoever ends a queue pair does not wait for the poller, and its number is not used again before the poller has read its last
/// CQE.
#[test]
fn a_queue_pair_ends_beside_a_poller() {
    let ground = Ground::new(6);
    let mut queue_pair = ground.queue_pair();
    let mut poller = ground.queue.poller().unwrap();
    queue_pair.post_receive(ReceiveRequest::new(1)).unwrap();
    ground.card.hold(true);
    queue_pair.post_receive(ReceiveRequest::new(2)).unwrap();
    drop(queue_pair);
    let create = || {
        let queue = &ground.queue;
        ground.domain.create_queue_pair(queue, queue, &QueuePairOptions::default())
    };
    let others: Vec<_> = std::iter::from_fn(|| create().ok()).collect();
    assert_eq!(others.len(), 7, "one number is not free");
    assert!(matches!(create().unwrap_err(), Error::Exhausted { .. }));
    let [first, second] = [1, 2].map(|_| poller.poll_one().unwrap().expect("it completes"));
    assert_eq!((first.wr_id, first.status), (1, CompletionStatus::Success));
    assert_eq!((second.wr_id, second.status), (2, CompletionStatus::Flushed));
    create().unwrap();
}

/// A reset begins again with index 0. Until the poller has seen what was in flight, the queue is full.
#[test]
fn a_queue_pair_is_reset_beside_a_poller() {
    let ground = Ground::new(6);
    let mut poller = ground.queue.poller().unwrap();
    let mut queue_pair = ground.queue_pair();
    for life in 0..3u64 {
        ground.card.hold(true);
        for wr_id in 0..3 {
            queue_pair.post_receive(ReceiveRequest::new(wr_id)).unwrap();
        }
        // The null card keeps its own index when a queue pair is reset, so the queue pair is created again.
        let reset = queue_pair.reset().unwrap();
        let mut initial = reset.initialize(RemoteRights::ALL).unwrap();
        let refused = initial.post_receive(ReceiveRequest::new(9)).unwrap_err();
        assert_eq!(refused.reason, Refusal::QueueFull { needed: 1, free: 0 });
        let mut flushed = Vec::new();
        assert_eq!(poller.poll(&mut flushed, 10).unwrap(), 3, "life {life}");
        assert!(flushed.iter().map(|completion: &Completion| completion.wr_id).eq(0..3));
        initial.post_receive(ReceiveRequest::new(9)).unwrap();
        assert_eq!(initial.in_flight(), (0, 1));
        drop(initial);
        queue_pair = ground.queue_pair();
        assert_eq!(poller.poll_one().unwrap().unwrap().wr_id, 9);
    }
    ground.device.check().unwrap();
}
