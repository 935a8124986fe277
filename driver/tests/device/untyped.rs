//! Queue pairs without types: transitions with attribute masks, and requests whose memory stays where it is.

use crate::fake::{FakeFunction, Faults};
use crate::rig::{LONG, card};
use rnic_driver::raw::{BadRequest, QueuePair, ReceiveRequest, SendRequest};
use rnic_driver::{
    AddressHandle, Completion, CompletionQueue, CompletionQueueOptions, Device, Error, Function, Operation,
    Path, ProtectionDomain, QueuePairOptions, Refusal, RemoteRights, SharedRegion,
};
use rnic_layout::admin::ModifyQueuePair;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::state::{AttributeMask, PathMtu, QpState, TransitionError};
use std::sync::Arc;

/// Two queue pairs without types, each with a completion queue of 64 CQEs.
struct Pair {
    function: Arc<FakeFunction>,
    _device: Device,
    domain: ProtectionDomain,
    queues: [CompletionQueue; 2],
    left: QueuePair,
    right: QueuePair,
    memory: SharedRegion,
    address: AddressHandle,
}

fn mask(attributes: &[AttributeMask]) -> AttributeMask {
    attributes.iter().copied().fold(AttributeMask::STATE, AttributeMask::and)
}

fn init() -> (AttributeMask, ModifyQueuePair) {
    let attributes = ModifyQueuePair {
        next_state: QpState::Init,
        port: 1,
        partition_key: 0xffff,
        local_write: true,
        remote_write: true,
        ..ModifyQueuePair::at_reset()
    };
    (mask(&[AttributeMask::PARTITION, AttributeMask::PORT, AttributeMask::ACCESS]), attributes)
}

fn ready_to_receive(peer: u32, address: &AddressHandle) -> (AttributeMask, ModifyQueuePair) {
    let attributes = ModifyQueuePair {
        next_state: QpState::ReadyToReceive,
        path_mtu: PathMtu::Bytes1024,
        destination_qp: peer,
        receive_psn: 5,
        min_rnr_timer: 12,
        destination_read_atomic: 4,
        address_handle: address.number(),
        ..ModifyQueuePair::at_reset()
    };
    let mask = mask(&[
        AttributeMask::ADDRESS,
        AttributeMask::PATH_MTU,
        AttributeMask::DESTINATION_QP,
        AttributeMask::RECEIVE_PSN,
        AttributeMask::DESTINATION_READ_ATOMIC,
        AttributeMask::MIN_RNR_TIMER,
    ]);
    (mask, attributes)
}

fn ready_to_send() -> (AttributeMask, ModifyQueuePair) {
    let attributes = ModifyQueuePair {
        next_state: QpState::ReadyToSend,
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        send_psn: 5,
        read_atomic: 4,
        ..ModifyQueuePair::at_reset()
    };
    let mask = mask(&[
        AttributeMask::SEND_PSN,
        AttributeMask::TIMEOUT,
        AttributeMask::RETRY_COUNT,
        AttributeMask::RNR_RETRY,
        AttributeMask::READ_ATOMIC,
    ]);
    (mask, attributes)
}

fn to(state: QpState) -> (AttributeMask, ModifyQueuePair) {
    (AttributeMask::STATE, ModifyQueuePair { next_state: state, ..ModifyQueuePair::at_reset() })
}

fn modify(queue_pair: &mut QueuePair, (mask, attributes): (AttributeMask, ModifyQueuePair)) {
    queue_pair.modify(mask, &attributes).unwrap();
    assert_eq!(queue_pair.state(), attributes.next_state);
}

fn connect(queue_pair: &mut QueuePair, peer: u32, address: &AddressHandle) {
    modify(queue_pair, init());
    modify(queue_pair, ready_to_receive(peer, address));
    modify(queue_pair, ready_to_send());
}

fn pair() -> Pair {
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let options = CompletionQueueOptions { entries_log2: 6, ..Default::default() };
    let queue = || device.create_completion_queue(&device.events(), &options).unwrap();
    let queues = [queue(), queue()];
    let options = QueuePairOptions { send_slots_log2: 8, receive_wqes_log2: 8, ..Default::default() };
    let [mut left, mut right] = [&queues[0], &queues[1]]
        .map(|queue| QueuePair::from(domain.create_queue_pair(queue, queue, &options).unwrap()));
    // With a flow label no queue pair needs a path of its own.
    let path = Path { flow_label: 1, ..Path::new(device.address(0).unwrap(), [2; 6]) };
    let address = domain.create_address_handle(&path).unwrap();
    let numbers = [left.number(), right.number()];
    connect(&mut left, numbers[1], &address);
    connect(&mut right, numbers[0], &address);
    let memory = domain.share(4096, RemoteRights::ALL).unwrap();
    Pair { function, _device: device, domain, queues, left, right, memory, address }
}

impl Pair {
    /// Posts sends of the left side without payload, which write nothing.
    fn write(&mut self, wr_ids: std::ops::Range<u64>, signalled: bool) -> Result<(), BadRequest> {
        let operation = Operation::Write(self.memory.remote());
        let requests: Vec<_> = wr_ids
            .map(|wr_id| SendRequest { signalled, ..SendRequest::new(wr_id, operation, &[]) })
            .collect();
        self.left.post_send(&requests)
    }

    fn idle(&self, steps: u32) {
        (0..steps).for_each(|_| self.function.idle());
    }

    fn poll(&self, side: usize) -> Vec<Completion> {
        let mut done = Vec::new();
        while let Some(completion) = self.queues[side].poll_one().unwrap() {
            done.push(completion);
        }
        done
    }
}

#[test]
fn memory_of_an_untyped_request_stays_where_it_is() {
    let mut pair = pair();
    pair.memory.write(100, b"to the peer").unwrap();
    let [first, second] = [(100, 6), (106, 5)].map(|(at, length)| pair.memory.sge(at, length).unwrap());
    let room = [pair.memory.sge(1000, 64).unwrap()];
    assert!(pair.memory.sge(4090, 7).is_err());
    pair.right.post_receive(&[ReceiveRequest { wr_id: 2, sges: &room }]).unwrap();
    let request = SendRequest::new(1, Operation::SendImmediate([9; 4]), &[]);
    pair.left
        .post_send(&[SendRequest { sges: &[first, second], signalled: true, solicited: true, ..request }])
        .unwrap();
    let received = pair.queues[1].spin(LONG).unwrap().expect("a completion comes");
    assert_eq!((received.wr_id, received.length, received.immediate), (2, 11, Some([9; 4])));
    assert!(received.solicited && received.sg_list.is_empty());
    let mut seen = [0; 11];
    pair.memory.read(1000, &mut seen).unwrap();
    assert_eq!(&seen, b"to the peer");
    let sent = pair.queues[0].spin(LONG).unwrap().expect("a completion comes");
    assert_eq!((sent.wr_id, sent.opcode, sent.length), (1, CompletionOpcode::Send, 11));
}

#[test]
fn a_transition_carries_its_attributes() {
    let mut pair = pair();
    let (whole, attributes) = ready_to_send();
    let left = &mut pair.left;
    let refused =
        |left: &mut QueuePair, mask, attributes: &ModifyQueuePair| match left.modify(mask, attributes) {
            Err(Error::Transition(error)) => error,
            other => panic!("{other:?}"),
        };
    let not_allowed = refused(left, mask(&[]), &to(QpState::Init).1);
    assert!(matches!(not_allowed, TransitionError::NotAllowed { from: QpState::ReadyToSend, .. }));
    modify(left, to(QpState::Reset));
    modify(left, init());
    let (receive_mask, receive_attributes) = ready_to_receive(pair.right.number(), &pair.address);
    let lacks = receive_mask.without(AttributeMask::PATH_MTU);
    assert_eq!(refused(left, lacks, &receive_attributes), TransitionError::Missing(AttributeMask::PATH_MTU));
    let too_many = receive_mask.and(AttributeMask::RETRY_COUNT);
    assert_eq!(
        refused(left, too_many, &receive_attributes),
        TransitionError::Unexpected(AttributeMask::RETRY_COUNT)
    );
    let commands = pair.function.card().commands.len();
    assert_eq!(left.state(), QpState::Init);
    modify(left, (receive_mask, receive_attributes));
    assert_eq!(pair.function.card().commands.len(), commands + 1, "the card was not asked before");
    assert_eq!(
        left.post_send(&[SendRequest::new(1, Operation::Send, &[])]),
        Err(BadRequest { index: 0, reason: Refusal::NotInThisState })
    );
    modify(left, (whole, attributes));
    assert_eq!(left.query().unwrap().current_state, QpState::ReadyToSend);
    left.post_send(&[SendRequest::new(1, Operation::Send, &[])]).unwrap();
}

/// A queue of unsignalled sends has four times the slots of its completion queue, and goes on though nothing is polled that the
/// application has asked for.
#[test]
fn unsignalled_sends_take_no_place_and_forced_signals_are_invisible() {
    let mut pair = pair();
    let mut posted = 0;
    while posted < 2000 {
        match pair.write(posted..posted + 1, false) {
            Ok(()) => posted += 1,
            Err(BadRequest { reason: Refusal::QueueFull { .. }, .. }) => {
                assert!(posted >= 255, "more are in flight than the completion queue has CQEs");
                pair.idle(300);
                assert!(pair.poll(0).is_empty());
            }
            Err(error) => panic!("{error}"),
        }
    }
    pair.write(posted..posted + 1, true).unwrap();
    pair.idle(300);
    let done = pair.poll(0);
    assert_eq!(done.iter().map(|done| done.wr_id).collect::<Vec<_>>(), [posted]);
}

#[test]
fn signalled_sends_and_receives_cannot_overrun() {
    let mut pair = pair();
    let full = Refusal::CompletionQueueFull { entries: 64 };
    for round in 0..5 {
        assert_eq!(pair.write(0..100, true), Err(BadRequest { index: 64, reason: full }), "round {round}");
        pair.idle(100);
        assert!(pair.poll(0).iter().map(|done| done.wr_id).eq(0..64));
        // An unsignalled one needs none.
        assert_eq!(pair.write(0..64, true), Ok(()));
        assert_eq!(pair.write(64..100, false), Ok(()));
        pair.idle(100);
        assert_eq!(pair.poll(0).len(), 64);
    }
}

#[test]
fn an_unsignalled_send_that_fails_completes() {
    let mut pair = pair();
    pair.function.misbehave(Faults { stuck: true, ..Faults::default() });
    pair.write(0..2, false).unwrap();
    pair.write(2..3, true).unwrap();
    pair.function.card().fail(pair.left.number());
    pair.idle(5);
    let flushed: Vec<_> = pair.poll(0).iter().map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(flushed, [0, 1, 2].map(|wr_id| (wr_id, CompletionStatus::Flushed)));
    assert_eq!(pair.left.query().unwrap().current_state, QpState::Error);
}

#[test]
fn what_is_in_flight_is_discarded_by_a_reset_and_its_places_return() {
    let mut pair = pair();
    for _ in 0..10 {
        pair.function.misbehave(Faults { stuck: true, ..Faults::default() });
        pair.write(0..30, true).unwrap();
        pair.write(30..40, false).unwrap();
        let receives = [ReceiveRequest { wr_id: 1, sges: &[] }; 20];
        pair.left.post_receive(&receives).unwrap();
        modify(&mut pair.left, to(QpState::Reset));
        assert!(pair.poll(0).is_empty());
        pair.function.misbehave(Faults::default());
        connect(&mut pair.left, pair.right.number(), &pair.address);
        pair.write(7..8, true).unwrap();
        pair.idle(5);
        assert_eq!(pair.poll(0).iter().map(|done| done.wr_id).collect::<Vec<_>>(), [7]);
    }
    // A queue pair with types on the same completion queue finds all CQEs but those that the card takes for unread.
    let queue = &pair.queues[0];
    let typed = pair.domain.create_queue_pair(queue, queue, &QueuePairOptions::default()).unwrap();
    let mut typed = typed.initialize(RemoteRights::NONE).unwrap();
    queue.arm(rnic_layout::doorbell::Arm::Next);
    for wr_id in 0..64 {
        typed.post_receive(rnic_driver::ReceiveRequest::new(wr_id)).unwrap();
    }
}
