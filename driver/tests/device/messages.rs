//! Messages between two queue pairs: SEND, WRITE, READ, atomics, invalidates, and their WQE sizes.

use crate::rig::{LONG, Pair, pair, pattern};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    CompletionQueue, QueuePair, ReceiveRequest, Refusal, Region, RemoteMemory, RemoteRights, SendRequest,
};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};

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
    // As the peer would receive it.
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

    // The right to write does not include the right to read.
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
fn keys_are_invalidated_by_their_owner_and_by_the_peer() {
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

    // A local invalidate has no memory.
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
fn sges_and_inline_bytes_fill_one_slot_or_two() {
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
fn indices_wrap_many_times() {
    let mut pair = pair();
    // Enough for the 16-bit indices of the work queues to wrap, with WQEs that wrap at the end of the ring.
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
                request = (0..2).fold(request, |request, _| request.sge(empty_sge(&pair)));
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
                assert_eq!(completion.wr_id, u64::from(next[side]));
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
    /// Returned source and receive memory, until both parts of a pair are back.
    static POOL: std::cell::RefCell<(Vec<Region>, Vec<Region>)> = const { std::cell::RefCell::new((Vec::new(), Vec::new())) };
}

/// An empty SGE, which the card skips.
fn empty_sge(pair: &Pair) -> Region {
    let (empty, _) = pair.room(1).split_at(0).unwrap();
    empty
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
