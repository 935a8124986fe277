//! Memory and numbers of objects whose end the card has not confirmed: kept, because the host may have no IOMMU.

use crate::fake::{FakeFunction, Faults};
use crate::rig::{MAC, Pair, card, pair};
use rnic_driver::{
    Device, Error, Options, Path, QueuePairOptions, ReceiveRequest, RemoteRights, SendRequest,
};
use rnic_layout::admin::{CommandOpcode as Op, CommandStatus};
use rnic_layout::path::Gid;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn options() -> Options {
    Options { seed: Some(1), timeout: Duration::from_micros(100), ..Options::new(MAC) }
}

fn refuse(function: &FakeFunction, opcode: Op) {
    let refuse = Some((opcode, CommandStatus::Busy, 0));
    function.misbehave(Faults { refuse, ..Faults::default() });
}

/// Drops everything of a pair, and checks that its memory is unmapped, none of it while the card could use it.
fn ends_without_leaks(pair: Pair) {
    let Pair { function, device, domain, queues, left, right } = pair;
    drop((device, domain, queues, left, right));
    let card = function.card();
    assert_eq!((&card.unmapped_in_use[..], card.mappings()), (&[][..], 0));
}

/// Creates objects of one kind until no number is free, and returns how many there were.
fn count<T>(mut create: impl FnMut() -> Result<T, Error>) -> u32 {
    let mut objects = Vec::new();
    loop {
        match create() {
            Ok(object) => objects.push(object),
            Err(Error::Exhausted { .. }) => return objects.len() as u32,
            Err(error) => panic!("a number was reused: {error}"),
        }
    }
}

/// Creates one object of a kind, whose destruction the card refuses, and checks that its number and memory are kept.
fn kept<T>(opcode: Op, limit: u32, create: impl Fn(&Device) -> Result<T, Error>) {
    let (function, device) = card();
    assert_eq!(count(|| create(&device)), limit, "{opcode:?}");
    let object = create(&device).unwrap();
    refuse(&function, opcode);
    drop(object);
    assert!(function.card().unmapped_in_use.is_empty(), "{opcode:?}");
    assert_eq!(count(|| create(&device)), limit - 1, "{opcode:?}");
    // It may hold a protection domain.
    drop((create, device));
    let card = function.card();
    assert_eq!((&card.unmapped_in_use[..], card.mappings()), (&[][..], 0), "freed after the reset");
}

#[test]
fn a_region_that_is_not_destroyed_keeps_memory_and_key() {
    let domain = Mutex::new(None);
    kept(Op::DestroyRegion, 128, move |device| {
        let mut domain = domain.lock().unwrap();
        domain.get_or_insert(device.create_protection_domain()?).allocate(1)
    });
}

#[test]
fn an_event_queue_that_is_not_destroyed_keeps_memory_and_number() {
    kept(Op::DestroyEventQueue, 3, |device| device.create_event_queue(&Default::default()));
}

#[test]
fn a_completion_queue_that_is_not_destroyed_keeps_memory_and_number() {
    kept(Op::DestroyCompletionQueue, 8, |device| {
        device.create_completion_queue(&device.events(), &Default::default())
    });
}

#[test]
fn a_shared_receive_queue_that_is_not_destroyed_keeps_memory_and_number() {
    kept(Op::DestroySharedReceiveQueue, 2, |device| {
        device.create_protection_domain()?.create_shared_receive_queue(&Default::default())
    });
}

#[test]
fn an_address_handle_that_is_not_destroyed_keeps_its_number() {
    kept(Op::DestroyAddressHandle, 4, |device| {
        device.create_protection_domain()?.create_address_handle(&Path::new(Gid::from_mac(MAC), MAC))
    });
}

#[test]
fn a_queue_pair_that_is_not_destroyed_keeps_memory_and_number() {
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let queue = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    let create = || domain.create_queue_pair(&queue, &queue, &QueuePairOptions::default());
    assert_eq!(count(create), 16);
    let object = create().unwrap();
    refuse(&function, Op::DestroyQueuePair);
    drop(object);
    assert!(function.card().unmapped_in_use.is_empty());
    assert_eq!(count(create), 15);
    let number = queue.number();
    drop(queue);
    let other = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    assert_ne!(other.number(), number, "the card keeps a completion queue that a queue pair uses");
    drop((other, domain, device));
    let card = function.card();
    assert_eq!((&card.unmapped_in_use[..], card.mappings()), (&[][..], 0));
}

#[test]
fn a_domain_number_is_not_reused_while_the_card_has_an_object_of_it() {
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let number = domain.number();
    let region = domain.share(8, RemoteRights::ALL).unwrap();
    refuse(&function, Op::DestroyRegion);
    drop((region, domain));
    assert_ne!(device.create_protection_domain().unwrap().number(), number);
}

/// The queue pair lives on at the card, and completes its requests later.
#[test]
fn a_queue_pair_that_is_not_destroyed_breaks_no_other() {
    let mut pair = pair();
    let other = pair.domain.create_queue_pair(&pair.queues[0], &pair.queues[0], &Default::default()).unwrap();
    let mut other = other.initialize(RemoteRights::NONE).unwrap();
    other.post_receive(ReceiveRequest::new(9).sge(pair.room(4))).unwrap();
    let number = other.number();
    refuse(&pair.function, Op::DestroyQueuePair);
    drop(other);
    pair.function.card().fail(number);
    pair.idle(5);
    pair.right.post_receive(ReceiveRequest::new(1)).unwrap();
    pair.left.post_send(SendRequest::send(1).signalled()).unwrap();
    assert_eq!((pair.next(0).wr_id, pair.next(1).wr_id), (1, 1));
    ends_without_leaks(pair);
}

/// The card has executed the command, but its answer cannot be read.
#[test]
fn an_object_whose_creation_was_not_answered_keeps_its_memory() {
    type Create = fn(&Pair) -> Option<Error>;
    let creates: [Create; 5] = [
        |pair| pair.domain.allocate(1).err(),
        |pair| pair.device.create_event_queue(&Default::default()).err(),
        |pair| pair.device.create_completion_queue(&pair.device.events(), &Default::default()).err(),
        |pair| pair.domain.create_shared_receive_queue(&Default::default()).err(),
        |pair| pair.domain.create_queue_pair(&pair.queues[0], &pair.queues[0], &Default::default()).err(),
    ];
    for create in creates {
        let pair = pair();
        pair.function.misbehave(Faults { wrong_tag: true, ..Faults::default() });
        assert!(matches!(create(&pair), Some(Error::AdminStopped { .. })));
        assert!(pair.function.card().unmapped_in_use.is_empty());
        ends_without_leaks(pair);
    }
}

#[test]
fn memory_is_leaked_if_the_last_reset_is_not_confirmed() {
    let mut pair = pair();
    let piece = pair.filled(b"mine");
    pair.left.post_send(SendRequest::send(1).sge(piece)).unwrap();
    // Four mappings of the device, one of each completion queue, two of each queue pair, and the region.
    assert_eq!(pair.function.card().mappings(), 11);
    pair.function.misbehave(Faults { mute: true, stuck: true, resets: Some(0), ..Faults::default() });
    let Pair { function, device, domain, queues, left, right } = pair;
    drop((device, domain, queues, left, right));
    let card = function.card();
    assert_eq!((&card.unmapped_in_use[..], card.mappings()), (&[][..], 11));
}

/// A card in another process that has died harms nobody with the files that it had mapped.
#[test]
fn memory_that_a_card_cannot_harm_is_never_leaked() {
    let mut pair = pair();
    let piece = pair.filled(b"mine");
    pair.left.post_send(SendRequest::send(1).sge(piece)).unwrap();
    let faults = Faults { mute: true, stuck: true, resets: Some(0), is_isolated: true, ..Faults::default() };
    pair.function.misbehave(faults);
    let Pair { function, device, domain, queues, left, right } = pair;
    drop((device, domain, queues, left, right));
    assert_eq!(function.card().mappings(), 0);
}

#[test]
fn a_start_that_fails_resets_the_card_before_its_rings_are_freed() {
    let faults = [
        Faults { never_ready: true, ..Faults::default() },
        Faults { mute: true, ..Faults::default() },
        Faults { wrong_tag: true, ..Faults::default() },
        Faults { refuse: Some((Op::Nothing, CommandStatus::HostError, 0)), ..Faults::default() },
    ];
    for (resets, left) in [(None, 0), (Some(1), 4)] {
        for faults in faults {
            let function = FakeFunction::new(1);
            function.misbehave(Faults { resets, ..faults });
            Device::open(Arc::clone(&function) as _, options()).unwrap_err();
            let card = function.card();
            assert_eq!((&card.unmapped_in_use[..], card.mappings()), (&[][..], left), "{faults:?}");
        }
    }
}
