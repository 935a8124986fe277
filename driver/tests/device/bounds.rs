//! Settings that cannot work are refused, with their value and what is allowed, on both sides of each bound.

use crate::fake::FakeFunction;
use crate::rig::{MAC, card};
use rnic_driver::{
    CompletionQueueOptions, Device, Error, Function, Options, Path, ReceiveOptions, RemoteRights,
    SendOptions, SharedReceiveQueueOptions, raw,
};
use rnic_layout::admin::ModifyQueuePair;
use rnic_layout::path::{Gid, Pmtu};
use rnic_layout::state::{AttributeMask, QpState};
use std::sync::Arc;

/// Holds an error to the option, its value and its bounds.
fn assert_option(error: &Error, name: &str, value: u64, (min, max): (u64, u64)) {
    let expected = format!("{name} is {value}; this card allows {min} to {max}");
    assert_eq!(error.to_string(), expected);
}

fn moderated(entries_log2: u32, moderation_count: u16, moderation_period: u16) -> CompletionQueueOptions {
    CompletionQueueOptions { entries_log2, moderation_count, moderation_period }
}

/// The queue is full before the event comes.
#[test]
fn an_event_waits_for_no_more_completions_than_the_queue_takes() {
    let (_, device) = card();
    let create = |options: CompletionQueueOptions| device.create_completion_queue(&device.events(), &options);
    for log2 in [6, 8] {
        for (count, period, is_good) in [
            (0, 0, true),
            (1 << log2, 0, true),
            ((1 << log2) + 1, 0, false),
            (u16::MAX, 0, false),
            // The period ends the wait.
            (u16::MAX, 1, true),
        ] {
            match create(moderated(log2, count, period)) {
                Ok(_) => assert!(is_good, "{count} of {}", 1 << log2),
                Err(error) => {
                    assert!(!is_good, "{error}");
                    let bounds = (0, 1 << log2);
                    assert_option(&error, "completion_queue.moderation_count", count.into(), bounds);
                }
            }
        }
    }
    // A queue that becomes smaller keeps its count.
    let queue = create(moderated(8, 100, 0)).unwrap();
    let error = queue.resize(6).unwrap_err();
    assert_option(&error, "completion_queue.moderation_count", 100, (0, 64));
    assert_eq!(queue.entries(), 256);
    queue.resize(7).unwrap();
    let mut poller = queue.poller().unwrap();
    assert!(matches!(poller.resize(6), Err(Error::Option { value: 100, max: 64, .. })));
    poller.resize(9).unwrap();
    create(moderated(8, 100, 3)).unwrap().resize(6).unwrap();
}

/// It would be below its limit for ever.
#[test]
fn the_limit_of_a_shared_receive_queue_is_within_it() {
    let (_, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let create = |limit| {
        domain.create_shared_receive_queue(&SharedReceiveQueueOptions {
            entries_log2: 6,
            limit,
            receives_max: None,
        })
    };
    assert_option(&create(65).unwrap_err(), "shared_receive_queue.limit", 65, (0, 64));
    let queue = create(64).unwrap();
    for limit in [0, 64] {
        queue.set_limit(limit).unwrap();
    }
    for limit in [65, u16::MAX] {
        let error = queue.set_limit(limit).unwrap_err();
        assert_option(&error, "shared_receive_queue.limit", limit.into(), (0, 64));
    }
}

#[test]
fn a_port_has_a_mac_address_of_its_own() {
    let open = |mac| Device::open(FakeFunction::new(1) as Arc<dyn Function>, Options::new(mac));
    assert_option(&open([3, 0, 0, 0, 0, 1]).unwrap_err(), "multicast bit of mac", 1, (0, 0));
    open([2, 0, 0, 0, 0, 1]).unwrap();
}

fn receive() -> ReceiveOptions {
    ReceiveOptions {
        path_mtu: Pmtu::Bytes1024,
        destination_qp: 0x123,
        receive_psn: 1,
        min_rnr_timer: 12,
        destination_read_atomic: None,
    }
}

/// The bounds of every attribute, each asked for with a queue pair of its own.
#[test]
fn attributes_are_checked_on_both_sides_of_their_bounds() {
    let (_, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let queue = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    let address = domain.create_address_handle(&Path::new(Gid::from_mac(MAC), MAC)).unwrap();
    let fresh = || {
        let queue_pair = domain.create_queue_pair(&queue, &queue, &Default::default()).unwrap();
        queue_pair.initialize(RemoteRights::NONE).unwrap()
    };
    let receives = |options| fresh().ready_to_receive(&address, &options).map(drop).map_err(Error::from);
    let sends = |options| {
        let queue_pair = fresh().ready_to_receive(&address, &receive()).unwrap();
        queue_pair.ready_to_send(&options).map(drop).map_err(Error::from)
    };
    for destination_qp in [2, 0xff_fffe] {
        receives(ReceiveOptions { destination_qp, ..receive() }).unwrap();
    }
    for destination_qp in [0, 1, 0xff_ffff] {
        let error = receives(ReceiveOptions { destination_qp, ..receive() }).unwrap_err();
        assert_option(&error, "destination_qp", destination_qp.into(), (2, 0xff_fffe));
    }
    type Receive = fn(u32) -> ReceiveOptions;
    let of_receive: [(Receive, u32, &str); 3] = [
        (|value| ReceiveOptions { receive_psn: value, ..receive() }, 0xff_ffff, "0xffffff"),
        (|value| ReceiveOptions { min_rnr_timer: value as u8, ..receive() }, 31, "0x1f"),
        (|value| ReceiveOptions { destination_read_atomic: Some(value as u8), ..receive() }, 16, "16"),
    ];
    for (options, most, told) in of_receive {
        receives(options(most)).unwrap();
        let error = receives(options(most + 1)).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    type Send = fn(u8) -> SendOptions;
    let of_send: [(Send, u8, &str); 4] = [
        (|value| SendOptions { timeout: value, ..Default::default() }, 31, "0x1f"),
        (|value| SendOptions { retry_count: value, ..Default::default() }, 7, "0x7"),
        (|value| SendOptions { rnr_retry: value, ..Default::default() }, 7, "0x7"),
        (|value| SendOptions { read_atomic: Some(value), ..Default::default() }, 16, "16"),
    ];
    for (options, most, told) in of_send {
        sends(options(most)).unwrap();
        let error = sends(options(most + 1)).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn attributes_without_types_have_the_same_bounds() {
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let queue = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    let mut queue_pair =
        raw::QueuePair::from(domain.create_queue_pair(&queue, &queue, &Default::default()).unwrap());
    let mask = [AttributeMask::PARTITION, AttributeMask::PORT, AttributeMask::ACCESS]
        .into_iter()
        .fold(AttributeMask::STATE, AttributeMask::and);
    let next_state = QpState::Init;
    let good = ModifyQueuePair { next_state, port: 1, partition_key: 0xffff, ..ModifyQueuePair::at_reset() };
    let before = function.card().commands.len();
    for (bad, name, bounds) in [
        (ModifyQueuePair { port: 0, ..good }, "port", (1, 1)),
        (ModifyQueuePair { partition_key: 0, ..good }, "partition", (1, 0xffff)),
    ] {
        assert_option(&queue_pair.modify(mask, &bad).unwrap_err(), name, 0, bounds);
    }
    assert_eq!(function.card().commands.len(), before, "the card is not asked");
    queue_pair.modify(mask, &good).unwrap();
}
