//! Shared receive queues.

use crate::rig::{LONG, card};
use rnic_driver::{
    CompletionQueue, CompletionQueueOptions, ConnectOptions, Error, Function, ReceiveRequest, Refusal,
    RemoteRights, SendRequest, SharedReceiveQueue, SharedReceiveQueueOptions,
};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;

#[test]
fn queue_pairs_share_receives() {
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let queue = |entries_log2| {
        let options = CompletionQueueOptions { entries_log2, ..Default::default() };
        device.create_completion_queue(&device.events(), &options).unwrap()
    };
    let queues = [queue(8), queue(8)];
    let shared = domain.create_shared_receive_queue(&SharedReceiveQueueOptions::default()).unwrap();
    let create = |queue: &CompletionQueue, shared: &SharedReceiveQueue| {
        domain.create_queue_pair_with_srq(queue, queue, shared, &Default::default())
    };
    let [left, right] = [&queues[0], &queues[1]]
        .map(|queue| create(queue, &shared).unwrap().initialize(RemoteRights::NONE).unwrap());
    let infos = [left.info(0).unwrap(), right.info(0).unwrap()];
    let mut left = left.connect(&infos[1], &ConnectOptions::default()).unwrap();
    let mut right = right.connect(&infos[0], &ConnectOptions::default()).unwrap();
    let refused = right.post_receive(ReceiveRequest::new(0)).unwrap_err();
    assert!(matches!(refused.reason, Refusal::UsesSharedReceiveQueue));

    let mut receives: Vec<_> =
        (10..13).map(|wr_id| ReceiveRequest::new(wr_id).sge(domain.allocate(20).unwrap())).collect();
    shared.post_receives(&mut receives).unwrap();
    shared.set_limit(2).unwrap();
    let event = || device.events().poll().unwrap().map(|event| (event.code, event.object_number));
    // The queue pair that receives a message takes the next receive, and completes it in its own completion queue.
    for (wr_id, sender, receiver) in [(10, &mut left, 1), (11, &mut right, 0)] {
        assert_eq!(event(), None);
        sender.post_send(SendRequest::send(wr_id).inline(&[wr_id as u8; 7])).unwrap();
        let received = queues[receiver].spin(LONG).unwrap().expect("a completion comes");
        assert_eq!((received.wr_id, received.qp_number), (wr_id, infos[receiver].qp_number));
        assert_eq!(received.message(), [wr_id as u8; 7]);
    }
    assert_eq!(event(), Some((AsyncEvent::SharedReceiveLimit, shared.number())));
    // A failed queue pair returns its receive to the SRQ.
    let failed = right.fail().unwrap();
    (0..5).for_each(|_| function.idle());
    assert_eq!(event(), Some((AsyncEvent::LastWqeReached, failed.number())));
    assert_eq!((event(), shared.in_flight()), (None, 1));
    drop((left, failed));

    // Each completion queue needs a CQE for every receive of the SRQ.
    let small = queue(6);
    let reserved = create(&small, &shared).unwrap();
    let options = SharedReceiveQueueOptions { entries_log2: 7, ..Default::default() };
    drop((reserved, shared));
    let large = domain.create_shared_receive_queue(&options).unwrap();
    assert!(matches!(create(&small, &large).unwrap_err(), Error::Exhausted { .. }));
    let other = device.create_protection_domain().unwrap();
    let mixed = other.create_queue_pair_with_srq(&small, &small, &large, &Default::default());
    assert!(matches!(mixed.unwrap_err(), Error::Mixed { owner: "protection domains", .. }));
}

/// Clients end in the middle of a message, more of them than the SRQ has receives: each receive completes as flushed and can be
/// posted again, so that the next client finds it. The application has not failed the queue pairs and gets no event of them.
#[test]
fn queue_pairs_that_end_in_the_middle_of_a_message_give_their_receives_back() {
    const RECEIVES: u64 = 3;
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let queue = || device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    let [sends, receives] = [queue(), queue()];
    let shared = domain.create_shared_receive_queue(&SharedReceiveQueueOptions::default()).unwrap();
    for wr_id in 0..RECEIVES {
        shared.post_receive(ReceiveRequest::new(wr_id).sge(domain.allocate(20).unwrap())).unwrap();
    }
    for client in 0..3 * RECEIVES {
        let left = domain.create_queue_pair(&sends, &sends, &Default::default()).unwrap();
        let right = domain.create_queue_pair_with_srq(&receives, &receives, &shared, &Default::default());
        let [left, right] = [left, right.unwrap()].map(|one| one.initialize(RemoteRights::NONE).unwrap());
        let infos = [left.info(0).unwrap(), right.info(0).unwrap()];
        let mut left = left.connect(&infos[1], &ConnectOptions::default()).unwrap();
        let right = right.connect(&infos[0], &ConnectOptions::default()).unwrap();
        function.card().faults.half_messages = 1;
        left.post_send(SendRequest::send(0).inline(&[1; 7])).unwrap();
        (0..5).for_each(|_| function.idle());
        assert_eq!(function.card().faults.half_messages, 0, "client {client}: the message has begun");
        let number = right.number();
        match client % 3 {
            0 => drop(right),
            1 => drop(right.reset().unwrap()),
            _ => {
                // It has failed by itself.
                function.card().fail(number);
                drop(right);
            }
        }
        let flushed = receives.spin(LONG).unwrap().expect("the receive completes");
        assert_eq!((flushed.status, flushed.qp_number), (CompletionStatus::Flushed, number), "{flushed:?}");
        let region = flushed.sg_list.into_iter().next().expect("its memory comes back");
        shared.post_receive(ReceiveRequest::new(flushed.wr_id).sge(region)).unwrap();
        assert_eq!(shared.in_flight() as u64, RECEIVES, "client {client}");
        assert_eq!(device.events().poll().unwrap(), None, "client {client}");
    }
}
