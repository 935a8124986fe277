//! Refusals of requests at the post, and full queues.

use crate::fake::Faults;
use crate::rig::{card, pair};
use rnic_driver::{
    CompletionQueueOptions, ConnectOptions, ProtectionDomain, QueuePairOptions, ReceiveRequest, Refusal,
    RemoteMemory, RemoteRights, SendOptions, SendRequest,
};

#[test]
fn a_queue_pair_without_reads_refuses_them() {
    let (_function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let queue = device.create_completion_queue(&device.events(), &CompletionQueueOptions::default()).unwrap();
    let begin = || {
        let queue_pair = domain.create_queue_pair(&queue, &queue, &QueuePairOptions::default()).unwrap();
        queue_pair.initialize(RemoteRights::ALL).unwrap()
    };
    let (left, right) = (begin(), begin());
    let peer = right.info(0).unwrap();
    let with = |read_atomic| ConnectOptions {
        send: SendOptions { read_atomic: Some(read_atomic), ..SendOptions::default() },
        ..ConnectOptions::default()
    };
    let mut left = left.connect(&peer, &with(0)).unwrap();
    let remote = RemoteMemory { address: 0, key: 0, bytes: 9 };
    let refused = left.post_send(SendRequest::read(1, remote).sge(domain.allocate(9).unwrap())).unwrap_err();
    assert_eq!(refused.reason, Refusal::ReadsNotAllowed);
    let error = right.connect(&peer, &with(17)).unwrap_err();
    assert!(error.to_string().contains("read_atomic is 17; this card allows 0 to 16"), "{error}");
}

#[test]
fn what_does_not_fit_is_handed_back() {
    let mut pair = pair();
    let mut refused = |request: SendRequest| {
        let error = pair.left.post_send(request).unwrap_err();
        assert_eq!(error.request.wr_id, 5, "the request comes back");
        (error.reason, error.request.sg_list.len())
    };
    let empty = |pair: &ProtectionDomain| pair.allocate(1).unwrap();
    let seven = (0..7).fold(SendRequest::send(5), |request, _| request.sge(empty(&pair.domain)));
    assert_eq!(refused(seven), (Refusal::TooManySges { count: 7, allowed: 6 }, 7));
    let anywhere = RemoteMemory { address: 0, key: 0, bytes: 9 };
    let three = (0..3).fold(SendRequest::read(5, anywhere), |request, _| request.sge(empty(&pair.domain)));
    assert_eq!(refused(three), (Refusal::TooManySges { count: 3, allowed: 2 }, 3));
    let long = SendRequest::send(5).inline(&[0; 97]);
    assert_eq!(refused(long), (Refusal::InlineTooLong { length: 97, allowed: 96 }, 0));
    let both = SendRequest::send(5).inline(&[0]).sge(empty(&pair.domain));
    assert_eq!(refused(both), (Refusal::InlineWithSges, 1));
    let long = SendRequest::send(5).sge(pair.domain.allocate((1 << 20) + 1).unwrap());
    assert_eq!(refused(long), (Refusal::TooLong { length: (1 << 20) + 1, allowed: 1 << 20 }, 1));
    let remote = RemoteMemory { address: 0, key: 0, bytes: 9 };
    let beyond = SendRequest::write(5, remote).inline(&[0; 10]);
    assert_eq!(refused(beyond), (Refusal::RemoteTooShort { length: 10, remote: 9 }, 0));
    let both = SendRequest::read(5, remote).inline(&[0; 9]);
    assert_eq!(refused(both), (Refusal::InlineRead, 0));
    let beyond = SendRequest::read(5, remote).sge(pair.domain.allocate(10).unwrap());
    assert_eq!(refused(beyond), (Refusal::RemoteTooShort { length: 10, remote: 9 }, 1));
    let other = pair.device.create_protection_domain().unwrap();
    let foreign = SendRequest::send(5).sge(other.allocate(1).unwrap());
    assert_eq!(refused(foreign), (Refusal::OtherDomain, 1));

    let mut receive = |request: ReceiveRequest| pair.right.post_receive(request).unwrap_err();
    let four = (0..4).fold(ReceiveRequest::new(6), |request, _| request.sge(empty(&pair.domain)));
    let error = receive(four);
    assert_eq!(
        (error.reason, error.request.sg_list.len()),
        (Refusal::TooManySges { count: 4, allowed: 3 }, 4)
    );
    let error = receive(ReceiveRequest::new(6).sge(other.allocate(1).unwrap()));
    assert_eq!(error.reason, Refusal::OtherDomain);
}

#[test]
fn a_full_queue_hands_work_back_and_goes_on_when_it_is_polled() {
    let mut pair = pair();
    pair.function.misbehave(Faults { stuck: true, ..Faults::default() });
    for wr_id in 0..64 {
        pair.left.post_send(SendRequest::send(wr_id).inline(&[0; 8])).unwrap();
        pair.right.post_receive(ReceiveRequest::new(wr_id)).unwrap();
    }
    let piece = pair.filled(b"kept");
    let error = pair.left.post_send(SendRequest::send(64).sge(piece)).unwrap_err();
    assert_eq!(error.reason, Refusal::QueueFull { needed: 1, free: 0 });
    assert_eq!(&*error.request.sg_list[0].bytes(), b"kept");
    let error = pair.right.post_receive(ReceiveRequest::new(64)).unwrap_err();
    assert_eq!(error.reason, Refusal::QueueFull { needed: 1, free: 0 });
}

#[test]
fn lists_are_posted_as_far_as_they_fit() {
    let mut pair = pair();
    pair.function.misbehave(Faults { stuck: true, ..Faults::default() });
    let mut receives: Vec<_> = (0..70).map(ReceiveRequest::new).collect();
    let full = Refusal::QueueFull { needed: 1, free: 0 };
    assert_eq!(pair.right.post_receives(&mut receives), Err(full));
    assert_eq!((receives.len(), receives[0].wr_id), (6, 64));
    let mut sends: Vec<_> = (0..64).map(|wr_id| SendRequest::send(wr_id).inline(&[1])).collect();
    sends.insert(10, SendRequest::send(99).inline(&[0; 97]));
    assert_eq!(pair.left.post_sends(&mut sends), Err(Refusal::InlineTooLong { length: 97, allowed: 96 }));
    assert_eq!((sends.len(), sends[0].wr_id), (55, 99));
    sends.remove(0);
    assert_eq!(pair.left.post_sends(&mut sends), Ok(()));
    assert!(sends.is_empty());
    pair.function.misbehave(Faults::default());
    pair.idle(200);
    let mut done = Vec::new();
    pair.queues[1].poll(&mut done, 1000).unwrap();
    assert!(done.iter().map(|completion| completion.wr_id).eq(0..64));
}

#[test]
fn a_wqe_that_is_written_after_its_doorbell_is_caught() {
    let mut pair = pair();
    pair.left.post_send(SendRequest::send(1).inline(b"late")).unwrap();
    let number = pair.left.number();
    let address = pair.function.card().change_posted(number);
    pair.right.post_receive(ReceiveRequest::new(2).sge(pair.room(4))).unwrap();
    pair.idle(10);
    let changed = pair.function.card().take_changed();
    assert!(!changed.is_empty() && changed.iter().all(|&slot| slot == address), "{changed:x?}");
}
