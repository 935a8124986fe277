//! A process that is forked has copies of all objects of a card. Whatever it does to them, the card of the other process does not
//! notice.
#![cfg(not(loom))]

mod forked;
#[allow(dead_code, reason = "other tests count doorbells")]
#[path = "null_card/mod.rs"]
mod null_card;

use forked::in_forked_process;
use null_card::NullCard;
use rnic_driver::{
    ConnectOptions, Device, Error, EventQueueOptions, Function, FunctionError, Options, Path,
    QueuePairOptions, ReceiveRequest, RemoteRights, SendRequest, raw,
};
use std::sync::Arc;

fn open(card: &Arc<NullCard>) -> Result<Device, Error> {
    let options = Options { seed: Some(1), ..Options::new([2, 0, 0, 0, 0, 1]) };
    Device::open(Arc::clone(card) as Arc<dyn Function>, options)
}

/// Returns whether this process has memory of the card.
fn has_memory_of_the_card() -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains("/memfd:rnic")
}

#[test]
fn dropping_copies_of_all_objects_does_nothing() {
    let card = NullCard::new();
    card.hold(true);
    let device = open(&card).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let events = device.create_event_queue(&EventQueueOptions::default()).unwrap();
    let queue = device.create_completion_queue(&events, &Default::default()).unwrap();
    let polled = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    let options = QueuePairOptions::default();
    let queue_pair = domain.create_queue_pair(&queue, &polled, &options).unwrap();
    let untyped = raw::QueuePair::from(domain.create_queue_pair(&queue, &queue, &options).unwrap());
    let queue_pair = queue_pair.initialize(RemoteRights::ALL).unwrap();
    let peer = queue_pair.info(0).unwrap();
    let mut queue_pair = queue_pair.connect(&peer, &ConnectOptions::default()).unwrap();
    let path = Path::new(device.address(0).unwrap(), [2, 0, 0, 0, 0, 2]);
    let handle = domain.create_address_handle(&path).unwrap();
    let shared = domain.share(64, RemoteRights::ALL).unwrap();
    let region = || domain.allocate(64).unwrap();
    let (sent, received, free) = (region(), region(), region());
    queue_pair.post_receive(ReceiveRequest::new(1).sge(received)).unwrap();
    queue_pair.post_send(SendRequest::send(2).sge(sent).signalled()).unwrap();
    let poller = polled.poller().unwrap();
    assert!(has_memory_of_the_card());

    let calls = card.calls();
    let objects = (queue_pair, untyped, poller, handle, shared, free);
    let mut all = Some((objects, domain, queue, polled, events, device));
    in_forked_process(|| {
        assert!(!has_memory_of_the_card(), "an access would be noticed");
        let (_, domain, ..) = all.as_ref().unwrap();
        assert!(matches!(domain.create_address_handle(&path), Err(Error::Forked)));
        drop(all.take());
        assert_eq!(card.calls(), calls);
        // Not even the function is free.
        assert!(matches!(open(&card), Err(Error::Function(FunctionError::InUse { .. }))));
    });

    card.complete();
    let ((_, _, poller, ..), domain, queue, ..) = all.as_mut().unwrap();
    assert_eq!(queue.poll_one().unwrap().unwrap().wr_id, 2);
    assert_eq!(poller.poll_one().unwrap().unwrap().wr_id, 1);
    domain.create_address_handle(&path).unwrap();
    drop(all);
    assert!(card.calls() > calls);
    open(&card).unwrap();
}
