//! Completion queues: order, reservation, events, and failures.

use crate::fake::Faults;
use crate::rig::{LONG, SHORT, pair, pair_with};
use rnic_driver::{
    CompletionError, CompletionQueueOptions, QueuePairOptions, ReceiveRequest, Refusal, RemoteRights,
    SendRequest,
};
use rnic_layout::doorbell::Arm;
use rnic_layout::queue::completion::CompletionOpcode;
use rnic_layout::queue::event::AsyncEvent;

#[test]
fn unsignalled_work_comes_back_in_order_with_the_next_signalled_one() {
    let mut pair = pair();
    for wr_id in 0..8 {
        let room = pair.room(4);
        pair.right.post_receive(ReceiveRequest::new(wr_id).sge(room)).unwrap();
    }
    for wr_id in 0..8 {
        let piece = pair.filled(&[wr_id; 4]);
        let request = SendRequest::send(wr_id.into()).sge(piece);
        pair.left.post_send(if wr_id == 5 { request.signalled() } else { request }).unwrap();
    }
    pair.idle(20);
    let mut done = Vec::new();
    assert_eq!(pair.queues[0].poll(&mut done, 100).unwrap(), 6);
    for (wr_id, completion) in done.iter().enumerate() {
        assert_eq!((completion.wr_id, completion.signalled), (wr_id as u64, wr_id == 5));
        assert!(completion.is_success() && completion.length == 4);
        assert_eq!(*completion.sg_list[0].bytes(), [wr_id as u8; 4]);
    }
    assert_eq!(pair.left.in_flight().0, 2);
}

#[test]
fn a_queue_of_unsignalled_work_never_stalls() {
    for cqes_log2 in [6, 8] {
        let options = CompletionQueueOptions { entries_log2: cqes_log2, ..Default::default() };
        let pair_options = QueuePairOptions { send_slots_log2: 7, ..Default::default() };
        let mut pair = pair_with(RemoteRights::ALL, &pair_options, &options);
        let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
        let (mut posted, mut done) = (0, 0);
        while done < 1000 {
            // Some WQEs occupy two slots, so that the ring is rarely full to the last slot.
            let bytes = [0; 40];
            let length = if posted % 3 == 0 { 0 } else { 8 };
            let request = SendRequest::write(posted, target).inline(&bytes[..length]);
            match pair.left.post_send(request) {
                Ok(()) => posted += 1,
                Err(_) => {
                    let completion = pair.next(0);
                    assert_eq!(completion.wr_id, done);
                    done += 1;
                }
            }
        }
    }
}

#[test]
fn a_completion_queue_cannot_overrun() {
    // A send queue of 256 slots completes into 64 CQEs; the fake card panics on an overrun.
    let options =
        QueuePairOptions { send_slots_log2: 8, receive_wqes_log2: 8, signal_all: true, ..Default::default() };
    let completion_options = CompletionQueueOptions { entries_log2: 6, ..Default::default() };
    let mut pair = pair_with(RemoteRights::ALL, &options, &completion_options);
    let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
    let mut posted = 0;
    let full = Refusal::CompletionQueueFull { entries: 64 };
    for round in 1..10 {
        let error = loop {
            match pair.left.post_send(SendRequest::write(posted, target).inline(b"x")) {
                Ok(()) => posted += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((error.reason, posted), (full, 64 * round));
        pair.idle(100);
        let mut done = Vec::new();
        assert_eq!(pair.queues[0].poll(&mut done, 1000).unwrap(), 64);
    }
}

#[test]
fn waiting_for_an_event_loses_nothing() {
    let mut pair = pair();
    assert!(!pair.queues[1].wait(SHORT).unwrap());
    for wr_id in 0..100 {
        pair.right.post_receive(ReceiveRequest::new(wr_id)).unwrap();
        pair.left.post_send(SendRequest::send(wr_id).signalled()).unwrap();
        // The message is on its way, has arrived before the wait, or was reported by an earlier event.
        pair.idle(wr_id as u32 % 3);
        assert!(pair.queues[1].wait(LONG).unwrap());
        assert_eq!(pair.next(1).wr_id, wr_id);
        assert_eq!(pair.next(0).wr_id, wr_id);
    }
    assert!(!pair.queues[1].wait(SHORT).unwrap());
}

#[test]
fn an_armed_queue_raises_one_event() {
    let mut pair = pair();
    for wr_id in 0..3 {
        pair.right.post_receive(ReceiveRequest::new(wr_id)).unwrap();
    }
    pair.queues[1].arm(Arm::Next);
    assert!(!pair.queues[1].is_signalled().unwrap());
    pair.left.post_send(SendRequest::send(0)).unwrap();
    pair.idle(5);
    assert!(pair.queues[1].is_signalled().unwrap());
    // Arming with a completion unread raises the event at once.
    pair.queues[1].arm(Arm::Next);
    assert!(pair.queues[1].is_signalled().unwrap());
    assert_eq!(pair.next(1).wr_id, 0);
    pair.queues[1].arm(Arm::Solicited);
    pair.left.post_send(SendRequest::send(1)).unwrap();
    pair.idle(5);
    assert!(!pair.queues[1].is_signalled().unwrap());
    assert!(!pair.queues[1].wait_solicited(SHORT).unwrap());
    pair.left.post_send(SendRequest::send(2).solicited()).unwrap();
    assert!(pair.queues[1].wait_solicited(LONG).unwrap());
    assert_eq!(pair.next(1).wr_id, 1);
    assert!(pair.next(1).solicited);
}

#[test]
fn a_completion_of_unknown_work_breaks_the_queue_after_the_good_ones() {
    // The next wr_id, a receive's wr_id though none is posted, and one that no queue has.
    for wr_id in [2, 1 << 63, u64::MAX] {
        let mut pair = pair();
        let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
        pair.left.post_send(SendRequest::write(7, target).signalled()).unwrap();
        pair.idle(5);
        pair.function.misbehave(Faults { completion_wr_id: Some(wr_id), ..Faults::default() });
        pair.left.post_send(SendRequest::write(8, target).signalled()).unwrap();
        pair.idle(5);
        let mut done = Vec::new();
        assert_eq!(pair.queues[0].poll(&mut done, 10).unwrap(), 1);
        assert_eq!(done[0].wr_id, 7);
        let error = pair.queues[0].poll(&mut done, 10).unwrap_err();
        assert_eq!(error, CompletionError::UnknownWrId { qp_number: pair.left.number(), wr_id });
        assert!(pair.queues[0].wait(SHORT).unwrap(), "a poll has an error to return");
    }
}

#[test]
fn a_refused_cqe_fails_its_queue_and_its_queue_pair() {
    let mut pair = pair();
    let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
    pair.function.misbehave(Faults { refuse_completion: true, ..Faults::default() });
    pair.left.post_send(SendRequest::write(7, target).signalled()).unwrap();
    pair.idle(5);
    let events = pair.device.events();
    let told: Vec<_> = std::iter::from_fn(|| events.poll().unwrap())
        .map(|event| (event.code, event.object_number))
        .collect();
    let (queue, number) = (pair.queues[0].number(), pair.left.number());
    assert_eq!(told, [(AsyncEvent::CompletionQueueError, queue), (AsyncEvent::QueuePairFatal, number)]);
    assert!(pair.queues[0].wait(SHORT).unwrap(), "a poll has an error to return");
    assert_eq!(pair.queues[0].poll_one().unwrap_err(), CompletionError::QueueFailed { number: queue });
    // The card itself and the other queue go on.
    pair.device.check().unwrap();
    assert!(pair.queues[1].poll_one().unwrap().is_none());
}

#[test]
fn a_success_that_nobody_asked_for_breaks_the_queue() {
    let mut pair = pair();
    let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
    pair.left.post_send(SendRequest::write(7, target)).unwrap();
    // The CQE of the second request names the first one, which is not signalled.
    pair.function.misbehave(Faults { completion_wr_id: Some(0), ..Faults::default() });
    pair.left.post_send(SendRequest::write(8, target).signalled()).unwrap();
    pair.idle(5);
    let error = pair.queues[0].poll_one().unwrap_err();
    assert_eq!(error, CompletionError::NotSignalled { qp_number: pair.left.number(), wr_id: 0 });
}

#[test]
fn the_success_of_another_operation_breaks_the_queue() {
    let mut pair = pair();
    let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
    pair.function.misbehave(Faults { completion_opcode: Some(CompletionOpcode::Read), ..Faults::default() });
    pair.left.post_send(SendRequest::write(7, target).signalled()).unwrap();
    pair.idle(5);
    let error = pair.queues[0].poll_one().unwrap_err();
    let (found, expected) = (CompletionOpcode::Read, CompletionOpcode::Write);
    let qp_number = pair.left.number();
    assert_eq!(error, CompletionError::OtherOperation { qp_number, wr_id: 0, found, expected });
    let text = "a CQE reports the success of wr_id 0x0 as read, which was posted as write";
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn a_failed_completion_queue_says_so() {
    let pair = pair();
    pair.function.card().raise(0, AsyncEvent::CompletionQueueError, pair.queues[1].number());
    assert!(pair.queues[1].wait(LONG).unwrap());
    let error = pair.queues[1].poll_one().unwrap_err();
    assert_eq!(error, CompletionError::QueueFailed { number: pair.queues[1].number() });
    assert!(pair.queues[0].poll_one().unwrap().is_none());
}
