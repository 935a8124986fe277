//! Queue pairs, completion queues and memory, over two queue pairs of the fake card that are each other's peers.

use crate::fake::{FakeFunction, Faults};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Completion, CompletionError, CompletionQueue, CompletionQueueOptions, ConnectOptions, ConnectionInfo,
    Device, Error, Function, Options, Path, ProtectionDomain, QueuePair, QueuePairOptions, ReceiveOptions,
    ReceiveRequest, Refusal, Region, RemoteMemory, RemoteRights, SendOptions, SendRequest,
    SharedReceiveQueue, SharedReceiveQueueOptions,
};
use rnic_layout::admin::{CommandOpcode, CommandStatus};
use rnic_layout::doorbell::Arm;
use rnic_layout::path::{Gid, Pmtu};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use std::sync::Arc;
use std::time::Duration;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const LONG: Duration = Duration::from_micros(1000);
const SHORT: Duration = Duration::from_micros(20);

/// A card with two queue pairs that are connected, each with completion queues of its own.
struct Pair {
    function: Arc<FakeFunction>,
    device: Device,
    domain: ProtectionDomain,
    queues: [CompletionQueue; 2],
    left: QueuePair<ReadyToSend>,
    right: QueuePair<ReadyToSend>,
}

fn card() -> (Arc<FakeFunction>, Device) {
    let function = FakeFunction::new(1);
    let options = Options { seed: Some(7), timeout: Duration::from_micros(100), ..Options::new(MAC) };
    let device = Device::open(Arc::clone(&function) as Arc<dyn Function>, options).unwrap();
    (function, device)
}

fn pair() -> Pair {
    pair_with(RemoteRights::ALL, &QueuePairOptions::default(), &CompletionQueueOptions::default())
}

fn pair_with(
    rights: RemoteRights,
    options: &QueuePairOptions,
    completion_options: &CompletionQueueOptions,
) -> Pair {
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let queue = || device.create_completion_queue(&device.events(), completion_options).unwrap();
    let queues = [queue(), queue()];
    let [left, right] = [&queues[0], &queues[1]]
        .map(|queue| domain.create_queue_pair(queue, queue, options).unwrap().initialize(rights).unwrap());
    let infos = [left.info(0).unwrap(), right.info(0).unwrap()];
    let left = left.connect(&infos[1], &ConnectOptions::default()).unwrap();
    let right = right.connect(&infos[0], &ConnectOptions::default()).unwrap();
    Pair { function, device, domain, queues, left, right }
}

impl Pair {
    /// A piece with these bytes.
    fn filled(&self, bytes: &[u8]) -> Region {
        let mut region = self.domain.allocate(bytes.len()).unwrap();
        region.bytes_mut().copy_from_slice(bytes);
        region
    }

    fn room(&self, bytes: usize) -> Region {
        self.domain.allocate(bytes).unwrap()
    }

    /// The next completion of one side.
    fn next(&self, side: usize) -> Completion {
        self.queues[side].spin(LONG).unwrap().expect("a completion comes")
    }

    fn idle(&self, steps: u32) {
        for _ in 0..steps {
            self.function.idle();
        }
    }
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|index| (index as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}

#[test]
fn a_message_arrives_with_its_immediate() {
    let mut pair = pair();
    let room = pair.room(100);
    pair.right.post_receive(ReceiveRequest::new(11).sge(room)).unwrap();
    let bytes = pattern(77, 1);
    let message = pair.filled(&bytes);
    pair.left.post_send(SendRequest::send_immediate(22, [1, 2, 3, 4]).sge(message).signalled()).unwrap();
    let sent = pair.next(0);
    assert_eq!(
        (sent.wr_id, sent.status, sent.opcode),
        (22, CompletionStatus::Success, CompletionOpcode::Send)
    );
    assert_eq!((sent.length, sent.signalled, sent.qp_number), (77, true, pair.left.number()));
    assert_eq!(*sent.sg_list[0].bytes(), *bytes);
    let received = pair.next(1);
    assert_eq!((received.wr_id, received.opcode), (11, CompletionOpcode::Receive));
    assert_eq!((received.length, received.immediate), (77, Some([1, 2, 3, 4])));
    assert!(received.is_receive() && !received.solicited);
    assert_eq!(received.message(), bytes);
    assert_eq!((pair.left.in_flight(), pair.right.in_flight()), ((0, 0), (0, 0)));
}

#[test]
fn a_write_reaches_shared_memory_at_any_byte() {
    let mut pair = pair();
    let target = pair.domain.share(300, RemoteRights::WRITE).unwrap();
    target.write(0, &[0xee; 300]).unwrap();
    let bytes = pattern(200, 3);
    let (_, source) = pair.filled(&[&[0; 5], &bytes[..]].concat()).split_at(5).unwrap();
    // What the peer would have been told.
    let remote = RemoteMemory::from_bytes(target.remote().to_bytes()).part(13, 250).unwrap();
    pair.right.post_receive(ReceiveRequest::new(1)).unwrap();
    pair.left.post_send(SendRequest::write_immediate(2, remote, *b"done").sge(source).signalled()).unwrap();
    let sent = pair.next(0);
    assert_eq!((sent.opcode, sent.length, sent.is_success()), (CompletionOpcode::Write, 200, true));
    let received = pair.next(1);
    assert_eq!((received.opcode, received.length), (CompletionOpcode::ReceiveWrite, 200));
    assert_eq!(received.immediate, Some(*b"done"));
    let mut seen = vec![0; 300];
    target.read(0, &mut seen).unwrap();
    assert_eq!(seen, [&[0xee; 13], &bytes[..], &[0xee; 87]].concat());
}

#[test]
fn a_read_fills_its_memory_from_any_byte() {
    let mut pair = pair();
    let source = pair.domain.share(300, RemoteRights { read: true, ..RemoteRights::NONE }).unwrap();
    let bytes = pattern(300, 5);
    source.write(0, &bytes).unwrap();
    let (front, back) = pair.room(200).split_at(70).unwrap();
    let remote = source.remote().part(13, 250).unwrap();
    pair.left.post_send(SendRequest::read(4, remote).sge(front).sge(back).signalled()).unwrap();
    let read = pair.next(0);
    assert_eq!((read.wr_id, read.opcode, read.length), (4, CompletionOpcode::Read, 200));
    let found: Vec<u8> = read.sg_list.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
    assert_eq!(found, bytes[13..213]);

    // Whoever may write only may not read.
    let closed = pair.domain.share(300, RemoteRights::WRITE).unwrap();
    let room = pair.room(10);
    pair.left.post_send(SendRequest::read(5, closed.remote()).sge(room)).unwrap();
    assert_eq!(pair.next(0).status, CompletionStatus::RemoteAccess);
}

#[test]
fn atomics_change_a_cell_and_bring_the_original() {
    let mut pair = pair();
    let cells = pair.domain.share(24, RemoteRights { atomic: true, ..RemoteRights::NONE }).unwrap();
    cells.write(8, &7u64.to_le_bytes()).unwrap();
    let remote = cells.remote().part(8, 8).unwrap();
    let mut done = |request: SendRequest| {
        let room = pair.room(8);
        pair.left.post_send(request.sge(room).signalled()).unwrap();
        let done = pair.next(0);
        let mut cell = [0; 8];
        cells.read(8, &mut cell).unwrap();
        (done.opcode, done.length, done.original(), u64::from_le_bytes(cell))
    };
    let added = done(SendRequest::fetch_add(1, remote, u64::MAX));
    assert_eq!(added, (CompletionOpcode::FetchAdd, 8, Some(7), 6));
    let swapped = done(SendRequest::compare_swap(2, remote, 6, 0x0102_0304_0506_0708));
    assert_eq!(swapped, (CompletionOpcode::CompareSwap, 8, Some(6), 0x0102_0304_0506_0708));
    let kept = done(SendRequest::compare_swap(3, remote, 6, 9));
    assert_eq!(kept, (CompletionOpcode::CompareSwap, 8, Some(0x0102_0304_0506_0708), 0x0102_0304_0506_0708));

    let mut refused = |request: SendRequest| pair.left.post_send(request).unwrap_err().reason;
    let room = |bytes| pair.domain.allocate(bytes).unwrap();
    let nine = SendRequest::fetch_add(4, cells.remote(), 1).sge(room(9));
    assert_eq!(refused(nine), Refusal::AtomicMemory { count: 1, length: 9 });
    let two = SendRequest::fetch_add(4, cells.remote(), 1).sge(room(4)).sge(room(4));
    assert_eq!(refused(two), Refusal::AtomicMemory { count: 2, length: 8 });
    let inline = SendRequest::compare_swap(4, cells.remote(), 1, 2).inline(&[0; 8]);
    assert_eq!(refused(inline), Refusal::InlineRead);
    let odd = cells.remote().part(4, 8).unwrap();
    let address = odd.address;
    assert_eq!(refused(SendRequest::fetch_add(4, odd, 1).sge(room(8))), Refusal::Misaligned { address });
    let short = RemoteMemory { bytes: 7, ..cells.remote() };
    let refusal = refused(SendRequest::fetch_add(4, short, 1).sge(room(8)));
    assert_eq!(refusal, Refusal::RemoteTooShort { length: 8, remote: 7 });
}

#[test]
fn keys_end_by_their_owner_and_by_the_peer() {
    let mut pair = pair();
    let regions = [(); 2].map(|()| pair.domain.share_invalidatable(8, RemoteRights::ALL).unwrap());
    let remotes = [regions[0].remote(), regions[1].remote()];
    pair.right.post_receive(ReceiveRequest::new(1).sge(pair.room(4))).unwrap();
    pair.left.post_send(SendRequest::write(2, remotes[0]).inline(b"before")).unwrap();
    pair.left.post_send(SendRequest::send_invalidate(3, remotes[0].key).inline(b"end").signalled()).unwrap();
    let received = pair.next(1);
    assert_eq!((received.invalidated, received.immediate), (Some(remotes[0].key), None));
    assert_eq!(received.message(), b"end");
    assert!(pair.next(0).is_success() && pair.next(0).is_success());
    let mut seen = [0; 6];
    regions[0].read(0, &mut seen).unwrap();
    assert_eq!(seen, *b"before");

    // It has no memory.
    let key = remotes[1].key;
    let with_bytes = SendRequest::local_invalidate(4, key).inline(b"x");
    assert_eq!(pair.right.post_send(with_bytes).unwrap_err().reason, Refusal::InvalidateWithPayload);
    let with_memory = SendRequest::local_invalidate(4, key).sge(pair.room(1));
    assert_eq!(pair.right.post_send(with_memory).unwrap_err().reason, Refusal::InvalidateWithPayload);
    pair.right.post_send(SendRequest::local_invalidate(5, key).signalled()).unwrap();
    let ended = pair.next(1);
    assert_eq!((ended.wr_id, ended.opcode), (5, CompletionOpcode::LocalInvalidate));
    assert_eq!((ended.status, ended.length), (CompletionStatus::Success, 0));
    pair.left.post_send(SendRequest::write(6, remotes[1]).inline(b"behind")).unwrap();
    assert_eq!(pair.next(0).status, CompletionStatus::RemoteAccess);
    regions[1].read(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 6]);
}

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
fn pieces_and_inline_bytes_fill_one_slot_or_two() {
    let mut pair = pair();
    let mut wr_id = 0;
    let mut check = |pair: &mut Pair, request: SendRequest, bytes: &[u8]| {
        let room = pair.room(200).split_at(90).unwrap();
        let (middle, last) = room.1.split_at(50).unwrap();
        wr_id += 1;
        let receive = ReceiveRequest::new(wr_id).sge(room.0).sge(middle).sge(last);
        pair.right.post_receive(receive).unwrap();
        pair.left.post_send(request).unwrap();
        assert!(pair.next(0).is_success());
        let received = pair.next(1);
        assert_eq!((received.wr_id, &received.message()[..]), (wr_id, bytes));
    };
    for count in [0, 1, 2, 3, 6] {
        let bytes = pattern(17 * count, count as u8);
        let mut request = SendRequest::send(0).signalled();
        for part in bytes.chunks(17) {
            request = request.sge(pair.filled(part));
        }
        check(&mut pair, request, &bytes);
    }
    for length in [0, 1, 32, 33, 96] {
        let bytes = pattern(length, 9);
        check(&mut pair, SendRequest::send(0).inline(&bytes).signalled(), &bytes);
    }
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
fn a_queue_of_unsignalled_work_never_comes_to_a_stand() {
    for completion_entries_log2 in [6, 8] {
        let options = CompletionQueueOptions { entries_log2: completion_entries_log2, ..Default::default() };
        let pair_options = QueuePairOptions { send_slots_log2: 7, ..Default::default() };
        let mut pair = pair_with(RemoteRights::ALL, &pair_options, &options);
        let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
        let (mut posted, mut done) = (0, 0);
        while done < 1000 {
            // Two slots each, now and then, so that the ring is never full to the last slot.
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
    // Two queue pairs of 256 slots complete into 64 entries; the fake card panics if it finds no room.
    let options = QueuePairOptions { send_slots_log2: 8, receive_entries_log2: 8, signal_all: true };
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
fn indices_wrap_many_times() {
    let mut pair = pair();
    // Enough for the 16-bit indices of the work queues to wrap, with slots that run over the end of the ring.
    let mut free: Vec<_> = (0..16).map(|_| (pair.room(40), pair.room(40))).collect();
    let mut next = [0u32; 2];
    let mut posted = 0u32;
    while next[1] < 50_000 {
        while let Some((source, room)) = free.pop() {
            let mut source = source;
            source.bytes_mut()[..4].copy_from_slice(&posted.to_le_bytes());
            pair.right.post_receive(ReceiveRequest::new(posted.into()).sge(room)).unwrap();
            let mut request = SendRequest::send(posted.into()).sge(source);
            if posted.is_multiple_of(3) {
                request = (0..2).fold(request, |request, _| request.sge(empty_piece(&pair)));
            }
            pair.left
                .post_send(if posted.is_multiple_of(4) { request.signalled() } else { request })
                .unwrap();
            posted += 1;
        }
        let mut back = [Vec::new(), Vec::new()];
        pair.idle(8);
        for side in 0..2 {
            let mut done = Vec::new();
            pair.queues[side].poll(&mut done, 64).unwrap();
            for completion in done {
                assert_eq!(completion.wr_id, next[side].into());
                assert!(completion.is_success());
                next[side] += 1;
                if side == 1 {
                    assert_eq!(completion.message()[..4], (completion.wr_id as u32).to_le_bytes());
                }
                back[side].extend(completion.sg_list.into_iter().next());
            }
        }
        let [sources, rooms] = back;
        POOL.with_borrow_mut(|pool| {
            pool.0.extend(sources);
            pool.1.extend(rooms);
            while !pool.0.is_empty() && !pool.1.is_empty() {
                free.extend(pool.0.pop().zip(pool.1.pop()));
            }
        });
    }
    POOL.take();
}

thread_local! {
    /// Sources and rooms that wait for each other.
    static POOL: std::cell::RefCell<(Vec<Region>, Vec<Region>)> = const { std::cell::RefCell::new((Vec::new(), Vec::new())) };
}

/// A piece without bytes, which the card skips.
fn empty_piece(pair: &Pair) -> Region {
    let (empty, _) = pair.room(1).split_at(0).unwrap();
    empty
}

#[test]
fn waiting_for_an_event_loses_nothing() {
    let mut pair = pair();
    assert!(!pair.queues[1].wait(SHORT).unwrap());
    for wr_id in 0..100 {
        pair.right.post_receive(ReceiveRequest::new(wr_id)).unwrap();
        pair.left.post_send(SendRequest::send(wr_id).signalled()).unwrap();
        // With the message on its way, arrived before the wait, and told by an event of before.
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
    // Arming again with the completion unread raises the event at once.
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

/// The card does not know the wr_ids of receives that it could not read, so what completes behind them tells of them.
#[test]
fn receives_that_the_card_could_not_read_come_back_with_those_behind_them() {
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
    // The queue pair gives no right to write, whatever the region says.
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
fn memory_of_work_that_was_not_ended_is_not_given_back() {
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
        // What was done is told as done although it was read only now; the rest is flushed.
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
    // The card has copied the address.
    drop(address);
    let ready = receiving.ready_to_send(&SendOptions::default()).unwrap();
    assert_eq!(format!("{ready:?}"), format!("QueuePair({:#x}, ready_to_send)", ready.number()));
}

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
    // Whoever gets a message takes the next receive, and completes it in its own completion queue.
    for (wr_id, sender, receiver) in [(10, &mut left, 1), (11, &mut right, 0)] {
        assert_eq!(event(), None);
        sender.post_send(SendRequest::send(wr_id).inline(&[wr_id as u8; 7])).unwrap();
        let received = queues[receiver].spin(LONG).unwrap().expect("a completion comes");
        assert_eq!((received.wr_id, received.qp_number), (wr_id, infos[receiver].qp_number));
        assert_eq!(received.message(), [wr_id as u8; 7]);
    }
    assert_eq!(event(), Some((AsyncEvent::SharedReceiveLimit, shared.number())));
    // A queue pair that fails keeps no receive from the others.
    let failed = right.fail().unwrap();
    (0..5).for_each(|_| function.idle());
    assert_eq!(event(), Some((AsyncEvent::LastEntryReached, failed.number())));
    assert_eq!((event(), shared.in_flight()), (None, 1));
    drop((left, failed));

    // There must be room for all of them wherever they may complete.
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
        assert!(pair.queues.iter().all(|queue| queue.poll_one().unwrap().is_none()), "it waits");
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
        let options = QueuePairOptions { receive_entries_log2: log2, ..Default::default() };
        assert_eq!(domain.create_queue_pair(&queue, &queue, &options).is_ok(), good);
    }
}

#[test]
fn a_completion_of_unknown_work_breaks_the_queue_after_the_good_ones() {
    // A wr_id of the future, a receive's wr_id where none is posted, and a wr_id that was used up.
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
        assert!(pair.queues[0].wait(SHORT).unwrap(), "a poll has something to tell");
    }
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

#[test]
fn connection_info_survives_the_way_to_the_peer() {
    let pair = pair();
    let info = pair.left.info(0).unwrap();
    assert_eq!((info.qp_number, info.mac, info.path_mtu), (pair.left.number(), MAC, Pmtu::Bytes4096));
    assert_eq!(ConnectionInfo::from_bytes(info.to_bytes()), Some(info));
    let mut bytes = info.to_bytes();
    bytes[28] = 6;
    assert_eq!(ConnectionInfo::from_bytes(bytes), None);
    assert!(matches!(pair.left.info(1), Err(Error::Option { max: 0, .. })));
}

#[test]
fn queue_pairs_may_live_on_different_threads() {
    let mut pair = pair();
    let target = pair.domain.share(8, RemoteRights::WRITE).unwrap().remote();
    let [first, second] = &pair.queues;
    let work = |qp: &mut QueuePair<ReadyToSend>, queue: &CompletionQueue| {
        for wr_id in 0..200 {
            qp.post_send(SendRequest::write(wr_id, target).inline(b"race").signalled()).unwrap();
            assert_eq!(queue.spin(LONG).unwrap().unwrap().wr_id, wr_id);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(&mut pair.left, first));
        scope.spawn(|| work(&mut pair.right, second));
    });
}
