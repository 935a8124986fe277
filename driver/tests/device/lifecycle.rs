//! Queue pairs from creation to destruction: transitions, flushes, drops.

use crate::fake::{FakeFunction, Faults};
use crate::rig::{LONG, MAC, Pair, card, pair, pair_with};
use rnic_driver::{
    CompletionQueueOptions, ConnectOptions, ConnectionInfo, Device, Error, Function, Options, Path,
    QueuePairOptions, ReceiveOptions, ReceiveRequest, RemoteRights, SendOptions, SendRequest,
};
use rnic_layout::admin::{CommandOpcode, CommandStatus};
use rnic_layout::path::{Gid, Pmtu};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use std::sync::Arc;

#[test]
fn failing_flushes_everything_in_order() {
    let mut pair = pair();
    pair.function.misbehave(Faults { stuck: true, ..Faults::default() });
    for wr_id in 0..5 {
        let piece = pair.filled(&[wr_id as u8]);
        pair.left.post_send(SendRequest::send(wr_id).sge(piece)).unwrap();
        let room = pair.room(1);
        pair.left.post_receive(ReceiveRequest::new(100 + wr_id).sge(room)).unwrap();
    }
    let number = pair.left.number();
    let failed = pair.left.fail().unwrap();
    let mut done = Vec::new();
    while done.len() < 10 {
        done.push(pair.queues[0].spin(LONG).unwrap().unwrap());
    }
    for kind in [false, true] {
        let of_kind = done.iter().filter(|completion| completion.is_receive() == kind);
        let wr_ids: Vec<_> = of_kind.map(|completion| completion.wr_id % 100).collect();
        assert_eq!(wr_ids, [0, 1, 2, 3, 4]);
    }
    for completion in &done {
        assert_eq!((completion.status, completion.length), (CompletionStatus::Flushed, 0));
        assert_eq!((completion.qp_number, completion.sg_list.len()), (number, 1));
    }
    assert_eq!(failed.in_flight(), (0, 0));
}

/// The card does not know the `wr_id` of a receive that it could not read, so the CQE of a later receive completes it too.
#[test]
fn receives_that_the_card_could_not_read_complete_with_a_later_one() {
    let mut pair = pair();
    pair.function.misbehave(Faults { unreadable_receives: 2, ..Faults::default() });
    for wr_id in 0..4 {
        let room = pair.room(1);
        pair.left.post_receive(ReceiveRequest::new(wr_id).sge(room)).unwrap();
    }
    let failed = pair.left.fail().unwrap();
    for wr_id in 0..4 {
        let completion = pair.queues[0].spin(LONG).unwrap().expect("all come back");
        assert_eq!((completion.wr_id, completion.status), (wr_id, CompletionStatus::Flushed));
        assert_eq!((completion.signalled, completion.sg_list.len()), (wr_id >= 2, 1));
    }
    assert_eq!(failed.in_flight(), (0, 0));
}

#[test]
fn the_cards_own_failure_shows_in_completions_and_events() {
    let mut pair =
        pair_with(RemoteRights::NONE, &QueuePairOptions::default(), &CompletionQueueOptions::default());
    let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
    pair.left.post_send(SendRequest::send(0).inline(b"waits")).unwrap();
    pair.idle(5);
    pair.right.post_receive(ReceiveRequest::new(0).sge(pair.domain.allocate(5).unwrap())).unwrap();
    assert!(pair.next(1).is_success());
    // The region permits writes, the queue pair does not.
    pair.left.post_send(SendRequest::write(1, target).inline(b"x")).unwrap();
    pair.left.post_send(SendRequest::send(2).inline(b"behind")).unwrap();
    let unsignalled = pair.next(0);
    assert_eq!((unsignalled.wr_id, unsignalled.status), (0, CompletionStatus::Success));
    let refused = pair.next(0);
    assert_eq!((refused.wr_id, refused.status), (1, CompletionStatus::RemoteAccess));
    let flushed = pair.next(0);
    assert_eq!((flushed.wr_id, flushed.status), (2, CompletionStatus::Flushed));
    let event = pair.device.events().wait(LONG).unwrap().unwrap();
    assert_eq!((event.code, event.object_number), (AsyncEvent::QueuePairAccessError, pair.right.number()));
}

#[test]
fn a_dropped_queue_pair_gives_its_memory_back() {
    let mut pair = pair();
    pair.function.misbehave(Faults { stuck: true, ..Faults::default() });
    let key = {
        let piece = pair.filled(b"mine");
        let key = piece.key();
        pair.left.post_send(SendRequest::send(1).sge(piece)).unwrap();
        key
    };
    let room = pair.room(4);
    pair.left.post_receive(ReceiveRequest::new(2).sge(room)).unwrap();
    drop(pair.left);
    let mut done = Vec::new();
    assert_eq!(pair.queues[0].poll(&mut done, 10).unwrap(), 2);
    assert!(done.iter().all(|completion| completion.status == CompletionStatus::Flushed));
    assert_eq!((done[0].wr_id, done[0].sg_list[0].key(), done[1].wr_id), (1, key, 2));
    assert_eq!(&*done[0].sg_list[0].bytes(), b"mine");
}

#[test]
fn memory_is_leaked_if_a_queue_pair_cannot_be_destroyed() {
    let mut pair = pair();
    let piece = pair.filled(b"lost");
    pair.function.misbehave(Faults { stuck: true, mute: true, ..Faults::default() });
    pair.left.post_send(SendRequest::send(1).sge(piece)).unwrap();
    drop(pair.left);
    assert!(pair.queues[0].poll_one().unwrap().is_none());
}

#[test]
fn dropping_in_any_order_leaves_nothing_behind() {
    type Part = Box<dyn std::any::Any>;
    for rotation in 0..8 {
        let mut pair = pair();
        let shared = pair.domain.share(64, RemoteRights::ALL).unwrap();
        for wr_id in 0..4 {
            let (piece, room) = (pair.filled(b"payload"), pair.room(10));
            pair.left.post_send(SendRequest::write(wr_id, shared.remote()).sge(piece)).unwrap();
            pair.right.post_receive(ReceiveRequest::new(wr_id).sge(room)).unwrap();
        }
        let Pair { function, device, domain, queues: [first, second], left, right } = pair;
        let mut parts: Vec<Part> = vec![
            Box::new(device),
            Box::new(domain),
            Box::new(first),
            Box::new(second),
            Box::new(left),
            Box::new(right),
            Box::new(shared),
            Box::new(Arc::clone(&function) as Arc<dyn Function>),
        ];
        parts.rotate_left(rotation);
        drop(parts);
        let card = function.card();
        assert_eq!((card.objects(), card.mappings()), ([0; 4], 0));
    }
}

#[test]
fn a_queue_pair_is_reset_and_used_again() {
    let mut pair = pair();
    let psn = pair.left.info(0).unwrap().first_psn;
    for round in 0..5 {
        pair.function.misbehave(Faults { stuck: round % 2 == 0, ..Faults::default() });
        pair.right.post_receive(ReceiveRequest::new(round)).unwrap();
        pair.left.post_send(SendRequest::send(round).signalled()).unwrap();
        pair.idle(5);
        let left = pair.left.reset().unwrap();
        let right = pair.right.reset().unwrap();
        // Requests that were done before the reset complete with success, the others as flushed.
        let status = if round % 2 == 0 { CompletionStatus::Flushed } else { CompletionStatus::Success };
        for queue in &pair.queues {
            let completion = queue.poll_one().unwrap().unwrap();
            assert_eq!((completion.wr_id, completion.status), (round, status));
            assert!(queue.poll_one().unwrap().is_none());
        }
        assert_eq!((left.in_flight(), right.in_flight()), ((0, 0), (0, 0)));
        let [left, right] = [left, right].map(|half| half.initialize(RemoteRights::ALL).unwrap());
        let infos = [left.info(0).unwrap(), right.info(0).unwrap()];
        assert_ne!(infos[0].first_psn, psn);
        pair.left = left.connect(&infos[1], &ConnectOptions::default()).unwrap();
        pair.right = right.connect(&infos[0], &ConnectOptions::default()).unwrap();
    }
}

#[test]
fn a_refused_transition_gives_the_queue_pair_back() {
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let queue = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    let fresh = domain.create_queue_pair(&queue, &queue, &Default::default()).unwrap();
    let refuse = Some((CommandOpcode::ModifyQueuePair, CommandStatus::StateMismatch, 104));
    function.misbehave(Faults { refuse, ..Faults::default() });
    let refused = fresh.initialize(RemoteRights::NONE).unwrap_err();
    assert!(refused.to_string().contains("state_mismatch in ModifyQueuePair.current_state"), "{refused}");
    let init = refused.queue_pair.initialize(RemoteRights::NONE).unwrap();

    let other = device.create_protection_domain().unwrap();
    let path = Path::new(Gid::from_mac(MAC), MAC);
    let foreign = other.create_address_handle(&path).unwrap();
    let receive = ReceiveOptions {
        path_mtu: Pmtu::Bytes1024,
        destination_qp: init.number(),
        receive_psn: 1,
        min_rnr_timer: 12,
        destination_read_atomic: None,
    };
    let refused = init.ready_to_receive(&foreign, &receive).unwrap_err();
    assert!(matches!(refused.error, Error::Mixed { .. }));
    let address = domain.create_address_handle(&path).unwrap();
    let receiving = refused.queue_pair.ready_to_receive(&address, &receive).unwrap();
    // The card has copied the path.
    drop(address);
    let ready = receiving.ready_to_send(&SendOptions::default()).unwrap();
    assert_eq!(format!("{ready:?}"), format!("QueuePair({:#x}, ready_to_send)", ready.number()));
}

#[test]
fn sends_wait_while_their_queue_drains() {
    let mut pair = pair();
    for round in 0..3 {
        let raises_event = round != 1;
        pair.right.post_receive(ReceiveRequest::new(round)).unwrap();
        let mut draining = pair.left.drain(raises_event).unwrap();
        assert!(!draining.is_draining().unwrap());
        draining.post_send(SendRequest::send(round).signalled()).unwrap();
        (0..5).for_each(|_| pair.function.idle());
        assert!(pair.queues.iter().all(|queue| queue.poll_one().unwrap().is_none()), "sends wait");
        let event = pair.device.events().poll().unwrap();
        let expected = raises_event.then_some((AsyncEvent::SendQueueDrained, draining.number()));
        assert_eq!(event.map(|event| (event.code, event.object_number)), expected);
        pair.left = draining.resume().unwrap();
        (0..5).for_each(|_| pair.function.idle());
        for queue in &pair.queues {
            assert!(queue.poll_one().unwrap().unwrap().is_success());
        }
    }
}

#[test]
fn objects_of_two_cards_do_not_mix() {
    let ((_, first), (_, second)) = (card(), card());
    let error = first.create_completion_queue(&second.events(), &Default::default()).unwrap_err();
    assert!(matches!(error, Error::Mixed { owner: "cards", .. }));
    let queue = second.create_completion_queue(&second.events(), &Default::default()).unwrap();
    let domain = first.create_protection_domain().unwrap();
    let error = domain.create_queue_pair(&queue, &queue, &Default::default()).unwrap_err();
    assert!(matches!(error, Error::Mixed { owner: "cards", .. }));
}

#[test]
fn sizes_are_checked_on_both_sides_of_their_bounds() {
    let (_, device) = card();
    for (entries_log2, good) in [(5, false), (6, true), (10, true), (11, false)] {
        let options = CompletionQueueOptions { entries_log2, ..Default::default() };
        assert_eq!(device.create_completion_queue(&device.events(), &options).is_ok(), good);
    }
    let queue = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    let domain = device.create_protection_domain().unwrap();
    for (log2, good) in [(5, false), (6, true), (8, true), (9, false)] {
        let options = QueuePairOptions { send_slots_log2: log2, ..Default::default() };
        assert_eq!(domain.create_queue_pair(&queue, &queue, &options).is_ok(), good);
        let options = QueuePairOptions { receive_wqes_log2: log2, ..Default::default() };
        assert_eq!(domain.create_queue_pair(&queue, &queue, &options).is_ok(), good);
    }
}

/// Protocol 4.1: a path MTU that the port does not carry is refused, and a connection takes the smaller one of both ends.
#[test]
fn the_path_mtu_is_at_most_the_active_mtu_of_the_port() {
    let function = FakeFunction::new(1);
    let options = Options { active_mtu: Pmtu::Bytes1024, ..Options::new(MAC) };
    let device = Device::open(function as Arc<dyn Function>, options).unwrap();
    let queue = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let address = domain.create_address_handle(&Path::new(Gid::from_mac(MAC), MAC)).unwrap();
    let fresh = || {
        let queue_pair = domain.create_queue_pair(&queue, &queue, &Default::default()).unwrap();
        queue_pair.initialize(RemoteRights::NONE).unwrap()
    };
    for (path_mtu, is_good) in [(Pmtu::Bytes256, true), (Pmtu::Bytes1024, true), (Pmtu::Bytes2048, false)] {
        let receive = ReceiveOptions {
            path_mtu,
            destination_qp: 5,
            receive_psn: 1,
            min_rnr_timer: 12,
            destination_read_atomic: None,
        };
        match fresh().ready_to_receive(&address, &receive) {
            Ok(_) => assert!(is_good, "{path_mtu:?} is taken"),
            Err(refused) => {
                let is_told =
                    matches!(refused.error, Error::Option { name: "path_mtu", value: 4, min: 1, max: 3 });
                assert!(!is_good && is_told, "{path_mtu:?}: {}", refused.error);
            }
        }
    }
    let peer = ConnectionInfo { qp_number: 5, path_mtu: Pmtu::Bytes4096, ..fresh().info(0).unwrap() };
    assert_eq!(fresh().info(0).unwrap().path_mtu, Pmtu::Bytes1024);
    fresh().connect(&peer, &ConnectOptions::default()).unwrap();
}

#[test]
fn the_first_psn_is_chosen_by_the_application_or_drawn() {
    let (_, device) = card();
    let queue = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let first_psn = |first_psn| {
        let options = QueuePairOptions { first_psn, ..Default::default() };
        Ok::<_, Error>(domain.create_queue_pair(&queue, &queue, &options)?.info(0)?.first_psn)
    };
    for chosen in [0, 5, 0xff_ffff] {
        assert_eq!(first_psn(Some(chosen)).unwrap(), chosen);
    }
    assert!(matches!(first_psn(Some(0x100_0000)), Err(Error::Option { name: "first_psn", .. })));
    assert_ne!(first_psn(None).unwrap(), first_psn(None).unwrap());
}

#[test]
fn connection_info_is_decoded_as_it_was_encoded() {
    let pair = pair();
    let info = pair.left.info(0).unwrap();
    assert_eq!((info.qp_number, info.mac, info.path_mtu), (pair.left.number(), MAC, Pmtu::Bytes4096));
    assert_eq!(ConnectionInfo::from_bytes(info.to_bytes()), Some(info));
    let mut bytes = info.to_bytes();
    bytes[28] = 6;
    assert_eq!(ConnectionInfo::from_bytes(bytes), None);
    assert!(matches!(pair.left.info(1), Err(Error::Option { max: 0, .. })));
}
