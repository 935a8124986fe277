//! Every operation, at every length that matters, when nothing goes wrong.

use super::*;
use rnic_endpoint::qp::{AckRequest, Queue};
use rnic_layout::queue::completion::CompletionOpcode;
use rnic_layout::wire::VlanTag;
use std::net::Ipv6Addr;

/// Lengths on both sides of every boundary of a path MTU.
fn lengths(pmtu: Pmtu) -> Vec<u32> {
    let pmtu = pmtu.bytes();
    vec![0, 1, 3, 4, 5, pmtu - 1, pmtu, pmtu + 1, 2 * pmtu, 2 * pmtu + 1, 3 * pmtu + pmtu / 2]
}

#[test]
fn a_write_of_any_length_arrives_and_touches_nothing_else() {
    for pmtu in Pmtu::ALL {
        for length in lengths(pmtu) {
            let mut pair = Pair::with(|setup| setup.pmtu = pmtu);
            let mut expected = pair.b.memory().bytes.clone();
            expected[77..][..length as usize].copy_from_slice(&bytes(&mut pair.a, 5, length));
            pair.a.post_send(A, write(1, 5, 77, length));
            pair.run();
            assert_eq!(pair.statuses_of_a(), [(1, CompletionStatus::Success)]);
            assert!(pair.b.memory().bytes == expected, "{pmtu:?}, {length}");
            assert_eq!(pair.b.msn(B), Psn::wrapping(1));
        }
    }
}

#[test]
fn a_send_of_any_length_fills_the_receive_across_its_sges() {
    for length in lengths(Pmtu::Bytes256) {
        let mut pair = Pair::with(|setup| setup.pmtu = Pmtu::Bytes256);
        let sent = bytes(&mut pair.a, 1, length);
        let sges = vec![sge(300, 100), sge(0, 0), sge(1000, 3), sge(2001, 2000)];
        pair.b.post_receive(B, ReceiveWqe { wr_id: 9, sges: sges.clone() });
        let work = SendWqe { solicited: true, ..send(1, 1, length) };
        pair.a.post_send(A, SendWqe { operation: Operation::SendImmediate([1, 2, 3, 4]), ..work });
        pair.run();
        assert_eq!(pair.statuses_of_a(), [(1, CompletionStatus::Success)]);
        let expected = Completion {
            qp_number: B,
            queue: Queue::Receive,
            wr_id: 9,
            status: CompletionStatus::Success,
            opcode: CompletionOpcode::Receive,
            length,
            immediate: Some([1, 2, 3, 4]),
            invalidated: None,
            solicited: true,
        };
        assert_eq!(drain(&mut pair.b), [expected]);
        let arrived = pair.b.memory().gather(DOMAIN, &sges, 0, length as usize);
        assert_eq!(arrived, Ok(sent));
    }
}

#[test]
fn a_write_with_immediate_takes_a_receive_and_leaves_its_memory_alone() {
    for length in lengths(Pmtu::Bytes256) {
        let mut pair = Pair::with(|setup| setup.pmtu = Pmtu::Bytes256);
        let mut expected = pair.b.memory().bytes.clone();
        expected[4000..][..length as usize].copy_from_slice(&bytes(&mut pair.a, 5, length));
        pair.b.post_receive(B, receive(9, 0, 4));
        let immediate = [0xde, 0xad, 0xbe, 0xef];
        let operation = Operation::WriteImmediate { address: FIRST + 4000, key: KEY, immediate };
        pair.a.post_send(A, SendWqe::new(1, operation, sges(5, length)));
        pair.run();
        let completion = drain(&mut pair.b)[0];
        assert_eq!((completion.opcode, completion.length), (CompletionOpcode::ReceiveWrite, length));
        assert_eq!((completion.wr_id, completion.immediate), (9, Some(immediate)));
        assert!(pair.b.memory().bytes == expected, "{length}");
    }
}

#[test]
fn a_read_of_any_length_brings_the_bytes() {
    for pmtu in [Pmtu::Bytes256, Pmtu::Bytes1024] {
        for length in lengths(pmtu) {
            let mut pair = Pair::with(|setup| setup.pmtu = pmtu);
            let expected = bytes(&mut pair.b, 33, length);
            pair.a.post_send(A, read(1, 33, 500, length));
            pair.run();
            let completion = drain(&mut pair.a)[0];
            assert_eq!((completion.status, completion.length), (CompletionStatus::Success, length));
            assert_eq!(bytes(&mut pair.a, 500, length), expected);
            assert_eq!(pair.b.msn(B), Psn::wrapping(1), "a READ counts once");
        }
    }
}

#[test]
fn atomics_change_the_cell_and_bring_back_what_it_held() {
    let mut pair = Pair::new();
    let address = (FIRST + 800).next_multiple_of(8);
    let cell = (address - FIRST) as usize;
    pair.b.memory().region_bytes(KEY)[cell..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let swap = |wr_id, compare, swap| {
        let operation = Operation::CompareSwap { address, key: KEY, compare, swap };
        SendWqe::new(wr_id, operation, sges(8 * wr_id, 8))
    };
    pair.a.post_send(A, fetch_add(1, 800, 8, 3));
    pair.a.post_send(A, swap(2, 1, 77));
    pair.a.post_send(A, swap(3, 2, 0x0123_4567_89ab_cdef));
    pair.a.post_send(A, fetch_add(4, 800, 32, 1));
    pair.run();
    assert!(pair.statuses_of_a().iter().all(|(_, status)| *status == CompletionStatus::Success));
    let originals: Vec<u64> = bytes(&mut pair.a, 8, 32)
        .chunks(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(originals, [u64::MAX, 2, 2, 0x0123_4567_89ab_cdef]);
    assert_eq!(bytes(&mut pair.b, cell as u64, 8), 0x0123_4567_89ab_cdf0u64.to_le_bytes());
}

#[test]
fn a_send_with_invalidate_frees_the_key_after_its_data_has_arrived() {
    let mut pair = Pair::new();
    let freed = 0x0001_0903;
    let region = *pair.b.memory().region(KEY).unwrap();
    pair.b.memory().register(freed, Region { invalidatable: true, ..region });
    for (wr_id, key) in [(1, freed), (2, KEY)] {
        pair.b.post_receive(B, receive(wr_id, 0, 10));
        pair.a.post_send(A, SendWqe { operation: Operation::SendInvalidate(key), ..send(wr_id, 0, 10) });
    }
    pair.run();
    let told = drain(&mut pair.b);
    let told: Vec<_> = told.iter().map(|completion| (completion.status, completion.invalidated)).collect();
    assert_eq!(told, [(CompletionStatus::Success, Some(freed)), (CompletionStatus::RemoteAccess, None)]);
    assert_eq!(
        pair.statuses_of_a(),
        [(1, CompletionStatus::Success), (2, CompletionStatus::RemoteAccess)],
        "the peer is told"
    );
    assert!(pair.b.memory().region(freed).is_none());
    assert!(pair.b.memory().region(KEY).is_some(), "it is not one that may be freed");
}

#[test]
fn an_own_key_is_invalidated_after_the_work_before_it() {
    let mut pair = Pair::with(|setup| setup.ack_request = AckRequest::WhenNeeded);
    let freed = 0x0001_0903;
    let region = *pair.a.memory().region(KEY).unwrap();
    pair.a.memory().register(freed, Region { invalidatable: true, ..region });
    let by_key = |wr_id| {
        let sge = Sge { address: FIRST, key: freed, length: 10 };
        SendWqe { data: Data::Sges(vec![sge]), signalled: false, ..send(wr_id, 0, 10) }
    };
    pair.b.post_receive(B, receive(1, 0, 10));
    pair.a.post_send(A, by_key(1));
    pair.a.post_send(A, SendWqe::new(2, Operation::LocalInvalidate(freed), Data::EMPTY));
    pair.a.post_send(A, by_key(3));
    pair.run();
    assert_eq!(drain(&mut pair.b).len(), 1);
    assert_eq!(
        pair.statuses_of_a(),
        [(2, CompletionStatus::Success), (3, CompletionStatus::LocalProtection)]
    );
    let mut pair = Pair::new();
    pair.a.post_send(A, SendWqe::new(1, Operation::LocalInvalidate(KEY), Data::EMPTY));
    pair.run();
    assert_eq!(pair.statuses_of_a(), [(1, CompletionStatus::LocalQueuePairOperation)]);
}

#[test]
fn inline_data_needs_no_key_and_empty_messages_none_at_all() {
    let mut pair = Pair::new();
    let inline = Data::Inline((0..96).collect());
    pair.a.post_send(A, SendWqe { data: inline, ..write(1, 0, 100, 0) });
    let nowhere = Operation::Write { address: 0xdead_beef, key: 0xbad };
    pair.a.post_send(A, SendWqe::new(2, nowhere, Data::EMPTY));
    let nowhere = Operation::Read { address: u64::MAX, key: 0xbad };
    pair.a.post_send(A, SendWqe::new(3, nowhere, Data::EMPTY));
    pair.b.post_receive(B, ReceiveWqe { wr_id: 9, sges: Vec::new() });
    pair.a.post_send(A, SendWqe::new(4, Operation::Send, Data::EMPTY));
    pair.run();
    assert_eq!(pair.statuses_of_a(), [1, 2, 3, 4].map(|wr_id| (wr_id, CompletionStatus::Success)));
    assert_eq!(pair.statuses_of_b(), [(9, CompletionStatus::Success)], "an empty SEND takes a receive too");
    assert_eq!(bytes(&mut pair.b, 100, 96), (0..96).collect::<Vec<u8>>());
}

#[test]
fn only_signalled_work_completes_unless_all_does() {
    for (signal_all, expected) in [(false, vec![2]), (true, vec![1, 2, 3])] {
        let mut pair = Pair::with(|setup| setup.signal_all = signal_all);
        for wr_id in 1..=3 {
            pair.a.post_send(A, SendWqe { signalled: wr_id == 2, ..write(wr_id, 0, 0, 10) });
        }
        pair.run();
        let tags: Vec<u64> = drain(&mut pair.a).iter().map(|completion| completion.wr_id).collect();
        assert_eq!(tags, expected);
        assert_eq!(pair.a.counter("messages_completed"), 3);
    }
}

#[test]
fn acknowledgements_are_asked_for_as_often_as_the_setup_says() {
    let asked = |ack_request, signalled: fn(u64) -> bool| {
        let mut pair = Pair::with(|setup| (setup.ack_request, setup.pmtu) = (ack_request, Pmtu::Bytes256));
        for wr_id in 0..4 {
            pair.a.post_send(A, SendWqe { signalled: signalled(wr_id), ..write(wr_id, 0, 0, 600) });
        }
        pair.run();
        assert_eq!(pair.a.counter("messages_completed"), 4);
        let seen = pair.seen_from(A);
        seen.iter()
            .enumerate()
            .filter(|(_, seen)| seen.ack_request)
            .map(|(index, _)| index)
            .collect::<Vec<_>>()
    };
    assert_eq!(asked(AckRequest::EveryMessage, |_| true), [2, 5, 8, 11]);
    assert_eq!(asked(AckRequest::EveryPacket, |_| false), (0..12).collect::<Vec<_>>());
    assert_eq!(asked(AckRequest::WhenNeeded, |wr_id| wr_id == 1), [5, 11]);
}

#[test]
fn a_long_message_asks_every_32_packets_and_stays_in_the_window() {
    let mut pair = Pair::with(|setup| (setup.pmtu, setup.window_packets) = (Pmtu::Bytes256, 48));
    pair.a.post_send(A, write(1, 0, 0, 100 * 256));
    assert_eq!(pair.a_speaks(), 48);
    let asked: Vec<usize> = (0..48).filter(|index| pair.seen[*index].ack_request).collect();
    assert_eq!(asked, [31, 47], "and where the window ends");
    pair.run();
    assert_eq!(pair.statuses_of_a(), [(1, CompletionStatus::Success)]);
    assert_eq!(bytes(&mut pair.b, 0, 25600), bytes(&mut pair.a, 0, 25600));
}

#[test]
fn reads_in_flight_are_limited_and_a_fence_waits_for_them() {
    let mut pair = Pair::with(|setup| setup.read_atomic = 2);
    for wr_id in 1..=3 {
        pair.a.post_send(A, read(wr_id, 0, 0, 10));
    }
    assert_eq!(pair.a_speaks(), 2);
    pair.run();
    pair.a.post_send(A, read(4, 0, 0, 10));
    pair.a.post_send(A, SendWqe { fence: true, ..write(5, 0, 0, 10) });
    assert_eq!(pair.a_speaks(), 1);
    pair.run();
    assert_eq!(pair.statuses_of_a(), [1, 2, 3, 4, 5].map(|wr_id| (wr_id, CompletionStatus::Success)));
}

#[test]
fn both_directions_many_queue_pairs_ipv6_and_tags() {
    let (mut a, mut b) = (endpoint(MAC_A, 1), endpoint(MAC_B, 2));
    let [local, remote] = [1, 2].map(|last| Gid::from_ipv6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)));
    for index in 0..16 {
        let mut way = if index % 2 == 0 { path() } else { Path::new(MAC_A, local, MAC_B, remote) };
        way.vlan = (index % 3 == 0).then(|| VlanTag::from_control(0x6064));
        let setup = QueuePairSetup { number: 0x100 + index, peer: 0x200 + index, path: way, ..setup_a() };
        a.create(setup);
        b.create(opposite(setup));
        let stripe = u64::from(index) * 1000;
        a.post_send(setup.number, write(1, stripe, stripe, 900));
        b.post_send(setup.peer, write(2, stripe, 16_000 + stripe, 900));
    }
    let mut pair = Pair { a, b, seen: Vec::new(), now_ps: 0 };
    pair.run();
    assert_eq!((pair.statuses_of_a().len(), pair.statuses_of_b().len()), (16, 16));
    for stripe in (0..16_000).step_by(1000) {
        assert_eq!(bytes(&mut pair.b, stripe, 900), bytes(&mut pair.a, stripe, 900));
        assert_eq!(bytes(&mut pair.a, 16_000 + stripe, 900), bytes(&mut pair.b, stripe, 900));
    }
    assert_eq!(pair.seen[0].from, A);
    let first_turns: Vec<u8> = pair.seen.iter().take(16).map(|seen| seen.code).collect();
    assert_eq!(first_turns, [Op::WriteOnly.code(); 16], "each has its turn before an answer is there");
}

#[test]
fn credits_count_the_receives_that_are_posted() {
    let mut pair = Pair::with(|setup| setup.credits = true);
    for wr_id in 0..6 {
        pair.b.post_receive(B, receive(wr_id, 0, 10));
    }
    pair.a.post_send(A, send(1, 0, 10));
    pair.run();
    // Five are left: code 4 promises four.
    assert_eq!(pair.acknowledgements(), [(4, PSN_A.value(), 1)]);
}

#[test]
fn a_queue_pair_in_rtr_answers_and_tells_once_that_somebody_is_there() {
    let mut pair = Pair::new();
    pair.b.modify(B, QpState::ReadyToReceive);
    pair.b.post_send(B, write(9, 0, 0, 1));
    for wr_id in 1..=2 {
        pair.a.post_send(A, write(wr_id, 0, 0, 10));
    }
    pair.run();
    assert_eq!(pair.statuses_of_a().len(), 2);
    assert_eq!(pair.events_of_b(), [AsyncEvent::CommunicationEstablished]);
    assert!(pair.brief_from(B).iter().all(|(code, _)| *code == Op::Acknowledge.code()));
    pair.b.modify(B, QpState::ReadyToSend);
    pair.run();
    assert_eq!(pair.statuses_of_b(), [(9, CompletionStatus::Success)]);
}
