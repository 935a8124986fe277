//! Event queues: illegal EQEs, waits of several threads, and draining.

use crate::rig::{SHORT, card, pair};
use rnic_layout::doorbell::Arm;
use rnic_layout::queue::event::AsyncEvent;

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
