//! Times and sizes of an application may be any number: they are waited for, or refused.

use crate::fake::FakeFunction;
use crate::rig::{MAC, card, pair};
use rnic_driver::{
    CompletionQueueOptions, Device, EventQueueOptions, Function, Options, QueuePairOptions, RemoteRights,
    SendRequest, SharedReceiveQueueOptions,
};
use rnic_layout::queue::event::AsyncEvent;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_wait_may_last_for_ever() {
    let mut pair = pair();
    let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
    for limit in [Duration::from_secs(1 << 40), Duration::MAX] {
        for wr_id in 0..3 {
            pair.left.post_send(SendRequest::write(wr_id, target).inline(&[0; 8]).signalled()).unwrap();
        }
        assert!(pair.queues[0].wait(limit).unwrap());
        assert!(pair.queues[0].spin(limit).unwrap().is_some());
        assert!(pair.queues[0].wait_solicited(Duration::ZERO).is_ok());
        let mut poller = pair.queues[0].poller().unwrap();
        assert!(poller.wait(limit).unwrap());
        assert!(poller.spin(limit).unwrap().is_some() && poller.spin(limit).unwrap().is_some());
        drop(poller);
        while pair.device.events().poll().unwrap().is_some() {}
        pair.function.card().raise(0, AsyncEvent::QueuePairFatal, 7);
        assert_eq!(pair.device.events().wait(limit).unwrap().map(|event| event.object_number), Some(7));
    }
}

#[test]
fn a_device_may_have_all_the_time_there_is() {
    let device = Device::open(
        FakeFunction::new(1) as Arc<dyn Function>,
        Options { timeout: Duration::MAX, ..Options::new(MAC) },
    )
    .unwrap();
    device.counters().unwrap();
    device.create_protection_domain().unwrap().allocate(1).unwrap();
}

/// The process lives on, and the card is not asked.
#[test]
fn memory_that_no_host_has_is_refused() {
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let before = function.card().commands.len();
    for bytes in [1 << 46, 1 << 62, isize::MAX as usize, isize::MAX as usize + 1, usize::MAX] {
        let errors =
            [domain.allocate(bytes).unwrap_err(), domain.share(bytes, RemoteRights::ALL).unwrap_err()];
        for error in errors {
            assert!(error.to_string().contains(&bytes.to_string()), "{bytes}: {error}");
        }
    }
    assert_eq!(function.card().commands.len(), before);
    domain.allocate(1).unwrap();
}

/// Sizes far outside their bounds: nothing is shifted by them.
#[test]
fn sizes_of_any_number_are_refused() {
    let (_, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let queue = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    for log2 in [0, 31, 32, 63, 64, 255, u32::MAX] {
        assert!(
            device
                .create_completion_queue(
                    &device.events(),
                    &CompletionQueueOptions { entries_log2: log2, ..Default::default() }
                )
                .is_err()
        );
        assert!(queue.resize(log2).is_err());
        let options = SharedReceiveQueueOptions { entries_log2: log2, ..Default::default() };
        assert!(domain.create_shared_receive_queue(&options).is_err());
        let options = EventQueueOptions { entries_log2: log2, ..Default::default() };
        assert!(device.create_event_queue(&options).is_err());
        for (send, receive) in [(log2, 6), (6, log2)] {
            let options =
                QueuePairOptions { send_slots_log2: send, receive_wqes_log2: receive, ..Default::default() };
            assert!(domain.create_queue_pair(&queue, &queue, &options).is_err());
        }
        let options = Options { eqes_log2: log2, ..Options::new(MAC) };
        assert!(Device::open(FakeFunction::new(1) as Arc<dyn Function>, options).is_err());
    }
}
