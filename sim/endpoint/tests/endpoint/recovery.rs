//! Loss, reordering and duplication: with retries all messages succeed, without them the right error is reported.

use super::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn patient(setup: &mut QueuePairSetup) {
    setup.pmtu = Pmtu::Bytes256;
    (setup.timeout, setup.retry_count, setup.rnr_retry) = (1, 7, 7);
}

#[test]
fn without_a_retry_a_noticed_loss_is_an_error_and_an_unnoticed_one_is_forever() {
    let mut pair = Pair::new();
    pair.a.misbehave(A, Side::Requester, 0, Fault::Lose);
    pair.a.post_send(A, write(1, 0, 0, 10));
    pair.a.post_send(A, write(2, 0, 0, 10));
    pair.run();
    let expected = [(1, CompletionStatus::RetryExceeded), (2, CompletionStatus::Flushed)];
    assert_eq!(pair.statuses_of_a(), expected);

    let mut pair = Pair::new();
    pair.a.misbehave(A, Side::Requester, 0, Fault::Lose);
    pair.a.post_send(A, write(1, 0, 0, 10));
    pair.run();
    assert_eq!(pair.statuses_of_a(), []);
}

#[test]
fn a_peer_that_never_answers_uses_up_all_retries() {
    let mut pair = Pair::with(|setup| (setup.timeout, setup.retry_count) = (1, 3));
    (0..4).for_each(|_| pair.a.misbehave(A, Side::Requester, 0, Fault::Lose));
    // Faults that wait for the same frame all see it, so each waits for its own.
    let mut pair_of = |after| pair.a.misbehave(A, Side::Requester, after, Fault::Lose);
    (1..4).for_each(&mut pair_of);
    pair.a.post_send(A, write(1, 0, 0, 10));
    pair.run();
    assert_eq!(pair.statuses_of_a(), [(1, CompletionStatus::RetryExceeded)]);
    assert_eq!(pair.a.counter("timeout"), 4);
    assert_eq!(pair.now_ps, 4 * (4_096_000 << 1));
}

#[test]
fn a_peer_that_is_never_ready_uses_up_the_other_retries() {
    let mut pair = Pair::with(|setup| (setup.rnr_retry, setup.retry_count) = (2, 7));
    pair.a.post_send(A, send(1, 0, 10));
    pair.run();
    assert_eq!(pair.statuses_of_a(), [(1, CompletionStatus::RnrRetryExceeded)]);
    assert_eq!(pair.acknowledgements().len(), 3);
}

#[test]
fn an_rnr_nak_in_the_middle_of_a_write_repeats_its_last_packet_alone() {
    let mut pair = Pair::with(patient);
    let operation = Operation::WriteImmediate { address: FIRST, key: KEY, immediate: [1; 4] };
    pair.a.post_send(A, SendWqe::new(1, operation, sges(100, 600)));
    pair.a_speaks();
    pair.b_speaks();
    pair.seen.clear();
    pair.b.post_receive(B, receive(9, 0, 0));
    pair.run();
    assert_eq!(pair.brief_from(A), [(Op::WriteLastImmediate.code(), 0)]);
    assert_eq!(pair.statuses_of_b(), [(9, CompletionStatus::Success)]);
}

/// Posts one message of every kind, several times over.
fn post_all_kinds(pair: &mut Pair) {
    for round in 0..6 {
        let (wr_id, at) = (10 * round, 3000 * round);
        pair.b.post_receive(B, receive(wr_id, 20_000 + 500 * round, 500));
        pair.a.post_send(A, write(wr_id + 1, at, at, 1000));
        pair.a.post_send(A, read(wr_id + 2, at + 1000, at + 1000, 700));
        pair.a.post_send(A, send(wr_id + 3, 20_000 + 500 * round, 300));
        pair.a.post_send(A, fetch_add(wr_id + 4, 24_000, 24_100 + 8 * round, 1));
    }
}

fn check_all_kinds(pair: &mut Pair, what: &str) {
    let statuses = pair.statuses_of_a();
    assert!(statuses.iter().all(|(_, status)| *status == CompletionStatus::Success), "{what}: {statuses:?}");
    let order: Vec<u64> = statuses.iter().map(|(wr_id, _)| *wr_id).collect();
    assert_eq!(order, (0..6).flat_map(|round| (1..5).map(move |kind| 10 * round + kind)).collect::<Vec<_>>());
    let received: Vec<u64> = pair.statuses_of_b().iter().map(|(wr_id, _)| *wr_id).collect();
    assert_eq!(received, (0..6).map(|round| 10 * round).collect::<Vec<_>>(), "{what}");
    for round in 0..6 {
        let at = 3000 * round;
        assert_eq!(bytes(&mut pair.b, at, 1000), bytes(&mut pair.a, at, 1000), "{what}");
        assert_eq!(bytes(&mut pair.a, at + 1000, 700), bytes(&mut pair.b, at + 1000, 700), "{what}");
        let at = 20_000 + 500 * round;
        assert_eq!(bytes(&mut pair.b, at, 300), bytes(&mut pair.a, at, 300), "{what}");
    }
    let originals: Vec<u64> = (0..6)
        .map(|round| bytes(&mut pair.a, 24_100 + 8 * round, 8))
        .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert!(originals.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)), "{what}: {originals:?}");
}

#[test]
fn any_single_loss_repetition_or_overtaking_is_survived() {
    for fault in [Fault::Lose, Fault::Repeat(2), Fault::Overtake, Fault::Icrc(1)] {
        for side in [Side::Requester, Side::Responder] {
            for after in 0..40 {
                let mut pair = Pair::with(patient);
                match side {
                    Side::Requester => pair.a.misbehave(A, side, after, fault.clone()),
                    Side::Responder => pair.b.misbehave(B, side, after, fault.clone()),
                }
                post_all_kinds(&mut pair);
                pair.run();
                check_all_kinds(&mut pair, &format!("{fault:?} after {after} of {side:?}"));
            }
        }
    }
}

#[test]
fn messages_complete_though_frames_are_lost_repeated_overtaken_and_corrupted() {
    for seed in 0..200 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut pair = Pair::with(|setup| {
            patient(setup);
            setup.coalesce = random.random();
            setup.window_packets = random.random_range(1..40);
            setup.read_atomic = random.random_range(1..5);
            setup.destination_read_atomic = setup.read_atomic;
        });
        for side in [Side::Requester, Side::Responder] {
            for after in 0..200 {
                if random.random_bool(0.08) {
                    let faults = [Fault::Lose, Fault::Repeat(1), Fault::Overtake, Fault::FlipBit(8 * 30)];
                    let fault = faults[random.random_range(0..faults.len())].clone();
                    match side {
                        Side::Requester => pair.a.misbehave(A, side, after, fault),
                        Side::Responder => pair.b.misbehave(B, side, after, fault),
                    }
                }
            }
        }
        post_all_kinds(&mut pair);
        pair.run();
        check_all_kinds(&mut pair, &format!("seed {seed}"));
    }
}

#[test]
fn a_late_duplicate_of_an_atomic_does_not_repeat_it_and_a_forgotten_one_is_not_answered() {
    let mut pair = Pair::with(|setup| (setup.destination_read_atomic, setup.read_atomic) = (2, 2));
    pair.a.post_send(A, fetch_add(0, 0, 0, 1));
    let first = pair.a.transmit().unwrap();
    pair.b.receive(&first);
    pair.run();
    pair.a.post_send(A, fetch_add(1, 0, 8, 1));
    pair.run();
    pair.b.receive(&first);
    let answer = Seen::of(B, &pair.b.transmit().unwrap()).unwrap();
    assert_eq!(answer.brief(), (Op::AtomicAcknowledge.code(), PSN_A.value()));
    pair.a.post_send(A, fetch_add(2, 0, 16, 1));
    pair.run();
    pair.b.receive(&first);
    assert!(pair.b.transmit().is_none(), "two newer ones have taken all places");
    assert_eq!(pair.b.counter("duplicate_dropped"), 1);
}

/// Protocol 3.4: what the ACK of a duplicate names is no READ or atomic, of which the requester may have no response.
#[test]
fn the_ack_of_a_duplicate_names_the_last_send_or_write() {
    let mut pair = Pair::with(|setup| setup.pmtu = Pmtu::Bytes256);
    let before = PSN_A.sub(1);
    // Nothing was executed but a READ.
    pair.a.post_send(A, read(0, 0, 0, 600));
    pair.run();
    pair.a.post_send(A, write(1, 0, 0, 300));
    let packets: Vec<Vec<u8>> = std::iter::from_fn(|| pair.a.transmit()).collect();
    let again = |pair: &mut Pair, frame: &[u8]| {
        pair.b.receive(frame);
        let answers: Vec<_> = std::iter::from_fn(|| pair.b.transmit()).collect();
        answers.iter().map(|frame| Seen::of(B, frame).unwrap().brief()).collect::<Vec<_>>()
    };
    let acknowledge = |psn: Psn| vec![(Op::Acknowledge.code(), psn.value())];
    let mut early = packets[1].clone();
    Fault::Psn(-4).apply(&mut early);
    assert_eq!(again(&mut pair, &early), acknowledge(before), "no SEND or WRITE was executed");
    // The first packet of the WRITE, then all of it, then a READ and an atomic behind it.
    assert_eq!(again(&mut pair, &packets[0]), []);
    assert_eq!(again(&mut pair, &early), acknowledge(PSN_A.add(3)));
    assert_eq!(again(&mut pair, &packets[1]), acknowledge(PSN_A.add(4)));
    pair.a.post_send(A, read(2, 0, 0, 600));
    pair.a.post_send(A, fetch_add(3, 0, 0, 1));
    pair.run();
    assert_eq!(pair.b.expected_psn(B), PSN_A.add(9));
    assert_eq!(again(&mut pair, &packets[1]), acknowledge(PSN_A.add(4)));
}

/// Protocol 3.5: a READ that was answered takes no slot while it is answered again.
#[test]
fn a_replay_that_waits_takes_no_slot() {
    let mut pair = Pair::with(|setup| {
        (setup.destination_read_atomic, setup.read_atomic) = (1, 1);
        setup.pmtu = Pmtu::Bytes256;
    });
    for work in [read(0, 0, 0, 600), fetch_add(0, 0, 0, 1)] {
        pair.a.post_send(A, work);
        let request = pair.a.transmit().unwrap();
        pair.b.receive(&request);
        let answer: Vec<Vec<u8>> = std::iter::from_fn(|| pair.b.transmit()).collect();
        // The wire has doubled it. Its second answer waits while the next request arrives.
        pair.b.receive(&request);
        answer.iter().for_each(|frame| {
            pair.a.receive(frame);
        });
        pair.a.post_send(A, read(1, 0, 0, 10));
        let next = pair.a.transmit().unwrap();
        pair.b.receive(&next);
        pair.run();
        assert_eq!(pair.statuses_of_a(), [0, 1].map(|wr_id| (wr_id, CompletionStatus::Success)));
    }
}

#[test]
fn a_duplicate_read_must_stay_in_what_was_granted() {
    let mut pair = Pair::with(|setup| setup.pmtu = Pmtu::Bytes256);
    pair.a.post_send(A, read(0, 100, 0, 600));
    let request = pair.a.transmit().unwrap();
    pair.b.receive(&request);
    pair.run();
    let ask = |pair: &mut Pair, faults: &[Fault]| {
        let mut frame = request.clone();
        faults.iter().for_each(|fault| fault.apply(&mut frame));
        pair.b.receive(&frame);
        std::iter::from_fn(|| pair.b.transmit()).count()
    };
    assert_eq!(ask(&mut pair, &[]), 3);
    let rest = [Fault::Psn(1), Fault::VirtualAddress(FIRST + 356), Fault::DmaLength(344)];
    assert_eq!(ask(&mut pair, &rest), 2);
    assert_eq!(ask(&mut pair, &[Fault::DmaLength(601)]), 0);
    assert_eq!(ask(&mut pair, &[Fault::VirtualAddress(FIRST + 99)]), 0);
    assert_eq!(ask(&mut pair, &[Fault::VirtualAddress(FIRST + 101)]), 0);
    assert_eq!(ask(&mut pair, &[Fault::RemoteKey(KEY ^ 1)]), 0);
    pair.b.memory().deregister(KEY);
    assert_eq!(ask(&mut pair, &[]), 1, "the region is looked up again");
    assert_eq!(pair.b.state(B), QpState::Error);
}

#[test]
fn read_responses_in_the_wrong_order_or_of_the_wrong_length_end_the_queue_pair() {
    let faults = [
        (0, Fault::Opcode(Op::ReadResponseLast.code()), CompletionStatus::BadResponse),
        (0, Fault::PayloadBytes(255), CompletionStatus::LocalLength),
        (2, Fault::PayloadBytes(89), CompletionStatus::LocalLength),
        (2, Fault::Opcode(Op::ReadResponseFirst.code()), CompletionStatus::BadResponse),
        (2, Fault::Opcode(Op::ReadResponseOnly.code()), CompletionStatus::BadResponse),
    ];
    for (after, fault, status) in faults {
        let mut pair = Pair::with(|setup| setup.pmtu = Pmtu::Bytes256);
        pair.b.misbehave(B, Side::Responder, after, fault.clone());
        pair.a.post_send(A, read(0, 0, 0, 600));
        pair.run();
        assert_eq!(pair.statuses_of_a(), [(0, status)], "{fault:?}");
    }
}
