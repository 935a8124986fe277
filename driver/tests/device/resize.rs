//! Completion queues that are resized.

use crate::fake::Faults;
use crate::rig::{pair, pair_with};
use rnic_driver::{CompletionQueueOptions, Error, QueuePairOptions, RemoteMemory, RemoteRights, SendRequest};
use rnic_layout::doorbell::Arm;

fn write(wr_id: u64, target: RemoteMemory) -> SendRequest {
    SendRequest::write(wr_id, target).inline(&[1; 8]).signalled()
}

/// Index and size of rings meet in every way: CQEs before and after the resize, read before it and not.
#[test]
fn completions_before_and_after_a_resize_are_read_in_order() {
    for (before, after) in [(6, 8), (8, 6), (6, 6), (7, 6), (6, 7)] {
        for read in [0, 5, 63, 64, 65, 127, 128, 200] {
            let options = CompletionQueueOptions { entries_log2: before, ..Default::default() };
            let mut pair = pair_with(RemoteRights::ALL, &QueuePairOptions::default(), &options);
            let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
            for wr_id in 0..read {
                pair.left.post_send(write(wr_id, target)).unwrap();
                assert_eq!(pair.next(0).wr_id, wr_id);
            }
            // Some are in the former ring, and some come later.
            (read..read + 9).for_each(|wr_id| pair.left.post_send(write(wr_id, target)).unwrap());
            pair.idle(20);
            pair.queues[0].resize(after).unwrap();
            pair.queues[0].resize(after).unwrap();
            assert_eq!(pair.queues[0].entries(), 1 << after);
            (read + 9..read + 20).for_each(|wr_id| pair.left.post_send(write(wr_id, target)).unwrap());
            for wr_id in read..read + 20 {
                assert_eq!(pair.next(0).wr_id, wr_id, "{before} to {after} after {read}");
            }
            // The new ring wraps around.
            for wr_id in read + 20..read + 320 {
                pair.left.post_send(write(wr_id, target)).unwrap();
                assert_eq!(pair.next(0).wr_id, wr_id, "{before} to {after} after {read}");
            }
        }
    }
}

#[test]
fn a_queue_is_not_smaller_than_what_is_in_flight() {
    let options = CompletionQueueOptions { entries_log2: 8, ..Default::default() };
    let pair_options = QueuePairOptions { send_slots_log2: 8, ..Default::default() };
    let mut pair = pair_with(RemoteRights::ALL, &pair_options, &options);
    let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
    (0..65).for_each(|wr_id| pair.left.post_send(write(wr_id, target)).unwrap());
    let error = pair.queues[0].resize(6).unwrap_err();
    assert!(matches!(error, Error::Reserved { asked: 64, reserved: 65, .. }), "{error}");
    assert_eq!(pair.queues[0].entries(), 256);
    pair.queues[0].resize(7).unwrap();
    // As many are accepted as the new ring has CQEs, and no more.
    (65..128).for_each(|wr_id| pair.left.post_send(write(wr_id, target)).unwrap());
    let refused = pair.left.post_send(write(128, target)).unwrap_err();
    assert!(refused.reason.to_string().starts_with("all 128 CQEs"), "{}", refused.reason);
    pair.queues[0].resize(8).unwrap();
    pair.left.post_send(write(128, target)).unwrap();
    (0..129).for_each(|wr_id| assert_eq!(pair.next(0).wr_id, wr_id));
}

#[test]
fn what_a_queue_was_armed_for_comes_after_a_resize() {
    let mut pair = pair();
    let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
    pair.queues[0].arm(Arm::Next);
    pair.queues[0].resize(7).unwrap();
    assert!(!pair.queues[0].is_signalled().unwrap());
    pair.left.post_send(write(1, target)).unwrap();
    pair.idle(20);
    assert!(pair.queues[0].is_signalled().unwrap());
    assert_eq!(pair.next(0).wr_id, 1);
}

#[test]
fn a_resize_that_is_not_possible_is_refused_by_name() {
    let pair = pair();
    let queue = &pair.queues[0];
    for log2 in [0, 5, 23, 40] {
        let text = queue.resize(log2).unwrap_err().to_string();
        assert!(
            text.starts_with(&format!("completion_queue.entries_log2 is {log2}; this card allows 6 to "))
        );
    }
    let mut poller = queue.poller().unwrap();
    let text = queue.resize(7).unwrap_err().to_string();
    assert!(
        text.ends_with("is in the hands of a poller; resize it there, or drop the poller first"),
        "{text}"
    );
    poller.resize(7).unwrap();
    assert_eq!(queue.entries(), 128);
}

/// A card that does not answer may have moved the queue: no more is posted than the smaller ring has room for.
#[test]
fn a_resize_without_an_answer_leaves_the_queue_as_small_as_it_may_be() {
    let options = CompletionQueueOptions { entries_log2: 7, ..Default::default() };
    let pair_options = QueuePairOptions { send_slots_log2: 8, ..Default::default() };
    let mut pair = pair_with(RemoteRights::ALL, &pair_options, &options);
    let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
    pair.function.misbehave(Faults { mute: true, ..Faults::default() });
    pair.queues[0].resize(6).unwrap_err();
    (0..64).for_each(|wr_id| pair.left.post_send(write(wr_id, target)).unwrap());
    let refused = pair.left.post_send(write(64, target)).unwrap_err();
    assert!(refused.reason.to_string().contains("CQEs"), "{}", refused.reason);
}
