//! The cases of the error and fuzz tables against the endpoint itself, and invalid work requests.

use super::*;
use rnic_endpoint::cases::{Ending, Fate, Receives, RequestCase, Target, request_cases, response_cases};
use std::net::Ipv6Addr;

const RECEIVE_BYTES: u32 = 100;

fn target(setup: &QueuePairSetup, expected_psn: Psn, msn: Psn) -> Target {
    Target {
        path: setup.path,
        number: B,
        unknown_number: 0x77_7777,
        pmtu: setup.pmtu,
        expected_psn,
        msn,
        region: (KEY, FIRST, LENGTH),
        local_key: LOCAL_KEY,
        foreign_key: FOREIGN_KEY,
        receive_bytes: RECEIVE_BYTES,
        min_rnr_timer: setup.min_rnr_timer,
    }
}

/// Runs a case against B, and checks that B still works if it must.
fn attack(setup: QueuePairSetup, case: &RequestCase, target: &Target) {
    let name = &case.name;
    let mut b = endpoint(MAC_B, 2);
    b.create(QueuePairSetup {
        rights: case.rights,
        destination_read_atomic: case.destination_read_atomic,
        ..opposite(setup)
    });
    let good = receive(1, 0, RECEIVE_BYTES);
    let bad = ReceiveWqe { wr_id: 1, sges: vec![Sge { key: 0xbad, ..sge(0, RECEIVE_BYTES) }] };
    let posted = match case.receives {
        Receives::None => vec![],
        Receives::Two => vec![good.clone(), good],
        Receives::BadKey => vec![bad],
    };
    let posted_count = posted.len();
    posted.into_iter().for_each(|work| b.post_receive(B, work));
    let before = b.memory().bytes.clone();

    for frame in &case.frames {
        b.receive(frame);
    }
    let answers: Vec<Seen> =
        std::iter::from_fn(|| b.transmit()).map(|frame| Seen::of(B, &frame).unwrap()).collect();
    assert_eq!(answers.len(), case.answers.len(), "{name}: {answers:?}");
    for (found, expected) in answers.iter().zip(&case.answers) {
        let (syndrome, msn) = found.aeth.unwrap();
        let agrees = expected.agrees(target, syndrome, Psn::wrapping(found.psn), Psn::wrapping(msn));
        assert!(agrees, "{name}: {found:?}, expected {expected:?}");
    }
    let (messages, packets) = case.executed;
    assert_eq!(b.msn(B), target.msn.add(messages), "{name}");
    assert_eq!(b.expected_psn(B), target.expected_psn.add(packets), "{name}");
    if packets == 0 {
        assert!(b.memory().bytes == before, "{name} wrote");
    }

    let completions = drain(&mut b);
    let with = |status| completions.iter().filter(|completion| completion.status == status).count();
    assert_eq!(with(CompletionStatus::Success), case.received as usize, "{name}");
    let events: Vec<AsyncEvent> = std::iter::from_fn(|| b.event()).map(|event| event.kind).collect();
    match case.ending {
        Ending::GoesOn => {
            assert_eq!(b.state(B), QpState::ReadyToSend, "{name}");
            assert_eq!((completions.len(), events.len()), (case.received as usize, 0), "{name}");
        }
        Ending::Event(event) => {
            assert_eq!((b.state(B), events), (QpState::Error, vec![event]), "{name}");
            assert_eq!(with(CompletionStatus::Flushed), posted_count, "{name}");
        }
        Ending::Receive(status) => {
            assert_eq!((b.state(B), events.len()), (QpState::Error, 0), "{name}");
            assert_eq!((with(status), completions[0].status), (1, status), "{name}");
            assert_eq!(with(CompletionStatus::Flushed), posted_count - 1, "{name}");
        }
    }
}

fn ipv6(setup: QueuePairSetup) -> QueuePairSetup {
    let [local, remote] = [1, 2].map(|last| Gid::from_ipv6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)));
    QueuePairSetup { path: Path::new(MAC_A, local, MAC_B, remote), ..setup }
}

#[test]
fn every_row_of_the_error_and_fuzz_tables_has_its_reaction() {
    for setup in [setup_a(), ipv6(setup_a())] {
        for pmtu in Pmtu::ALL {
            let setup = QueuePairSetup { pmtu, ..setup };
            let target = target(&setup, PSN_A, Psn::ZERO);
            let cases = request_cases(&target);
            assert!(cases.len() > 150, "{}", cases.len());
            cases.iter().for_each(|case| attack(setup, case, &target));
        }
    }
}

#[test]
fn every_answer_that_a_requester_can_get_has_its_effect() {
    for setup in [setup_a(), ipv6(setup_a())] {
        let setup = QueuePairSetup { retry_count: 1, rnr_retry: 1, ..setup };
        // Here B is the requester, and A attacks.
        let target = target(&setup, PSN_B, Psn::ZERO);
        for case in response_cases(&target) {
            let name = &case.name;
            let mut b = endpoint(MAC_B, 2);
            b.create(opposite(setup));
            b.post_send(B, write(1, 0, 0, 10));
            b.transmit().unwrap();
            for frame in &case.frames {
                b.receive(frame);
            }
            let statuses: Vec<_> = drain(&mut b).iter().map(|completion| completion.status).collect();
            let again = b.transmit().and_then(|frame| Seen::of(B, &frame)).map(|seen| seen.psn);
            match case.fate {
                Fate::InFlight => assert_eq!((statuses, again), (vec![], None), "{name}"),
                Fate::Completes(status) => {
                    assert_eq!((statuses, again), (vec![status], None), "{name}");
                    assert_eq!(b.state(B) == QpState::Error, status != CompletionStatus::Success, "{name}");
                }
                Fate::AgainNow => assert_eq!((statuses, again), (vec![], Some(PSN_B.value())), "{name}"),
                Fate::AgainAfter(delay_us) => {
                    assert_eq!((statuses, again), (vec![], None), "{name}");
                    let until_ps = u64::from(delay_us) * 1_000_000;
                    b.advance(until_ps - 1);
                    assert!(b.transmit().is_none(), "{name}");
                    b.advance(until_ps);
                    assert!(b.transmit().is_some(), "{name}");
                }
            }
        }
    }
}

#[test]
fn packets_for_a_queue_pair_that_is_not_ready_vanish() {
    for state in [QpState::Reset, QpState::Init, QpState::Error] {
        let mut pair = Pair::new();
        pair.b.modify(B, state);
        pair.a.post_send(A, write(1, 0, 0, 10));
        pair.run();
        assert_eq!((pair.seen_from(B), pair.b.counter("qp_not_ready")), (vec![], 1), "{state:?}");
    }
}

#[test]
fn work_that_is_wrong_in_itself_ends_the_queue_pair_in_its_turn() {
    let bad = |key, address, length| Data::Sges(vec![Sge { address, key, length }]);
    let write_of = |data| SendWqe { data, ..write(2, 0, 0, 0) };
    let into = |data| SendWqe { data, ..read(2, 0, 0, 0) };
    let wrong = [
        (write_of(bad(KEY ^ 1, FIRST, 1)), CompletionStatus::LocalProtection),
        (write_of(bad(FOREIGN_KEY, FIRST, 1)), CompletionStatus::LocalProtection),
        (write_of(bad(KEY, FIRST - 1, 2)), CompletionStatus::LocalProtection),
        (write_of(bad(KEY, FIRST + LENGTH - 1, 2)), CompletionStatus::LocalProtection),
        (into(bad(LOCAL_KEY, FIRST, 1)), CompletionStatus::LocalProtection),
        (write_of(Data::Sges(vec![sge(0, u32::MAX), sge(0, 1 << 31)])), CompletionStatus::LocalLength),
        (into(Data::Inline(vec![1])), CompletionStatus::LocalQueuePairOperation),
        (SendWqe { data: sges(0, 4), ..fetch_add(2, 0, 0, 0) }, CompletionStatus::LocalQueuePairOperation),
    ];
    for (work, status) in wrong {
        let mut pair = Pair::new();
        pair.a.post_receive(A, receive(9, 0, 0));
        pair.a.post_send(A, SendWqe { signalled: false, ..work });
        pair.a.post_send(A, write(3, 0, 0, 10));
        pair.run();
        let expected = [(2, status), (3, CompletionStatus::Flushed), (9, CompletionStatus::Flushed)];
        assert_eq!(pair.statuses_of_a(), expected);
        assert_eq!(pair.seen, []);

        // After work that is in flight it waits for its turn.
        let mut pair = Pair::new();
        pair.a.post_send(A, write(1, 0, 0, 10));
        pair.a.post_send(A, write_of(bad(KEY ^ 1, FIRST, 1)));
        pair.run();
        let expected = [(1, CompletionStatus::Success), (2, CompletionStatus::LocalProtection)];
        assert_eq!(pair.statuses_of_a(), expected);
    }
}

#[test]
fn a_queue_pair_in_err_flushes_what_is_posted_before_and_after() {
    let mut pair = Pair::new();
    pair.a.post_receive(A, receive(1, 0, 0));
    pair.a.post_send(A, write(2, 0, 0, 10));
    pair.a_speaks();
    pair.a.modify(A, QpState::Error);
    pair.a.post_receive(A, receive(3, 0, 0));
    pair.a.post_send(A, SendWqe { signalled: false, ..write(4, 0, 0, 10) });
    pair.run();
    let expected = [2, 1, 3, 4].map(|wr_id| (wr_id, CompletionStatus::Flushed));
    assert_eq!(pair.statuses_of_a(), expected);
    assert_eq!(pair.a.counter("qp_not_ready"), 1, "the acknowledgement comes too late");
}

#[test]
fn reset_forgets_everything_and_begins_again() {
    let mut pair = Pair::new();
    pair.a.post_receive(A, receive(1, 0, 0));
    pair.a.post_send(A, write(2, 0, 0, 10));
    pair.a_speaks();
    pair.a.modify(A, QpState::Reset);
    pair.a.modify(A, QpState::ReadyToSend);
    pair.a.post_send(A, write(3, 0, 0, 10));
    pair.run();
    assert_eq!(pair.statuses_of_a(), [(3, CompletionStatus::Success)]);
    assert_eq!(pair.b.msn(B), Psn::wrapping(1), "the peer takes the second for a duplicate");
}

#[test]
fn a_read_that_is_still_being_answered_keeps_its_place() {
    let mut pair = Pair::with(|setup| (setup.destination_read_atomic, setup.read_atomic) = (2, 16));
    for wr_id in 1..=3 {
        pair.a.post_send(A, read(wr_id, 0, 0, 10));
    }
    // The answers to two have not left when the third comes.
    pair.a_speaks();
    pair.b_speaks();
    let expected = [
        (1, CompletionStatus::Success),
        (2, CompletionStatus::Success),
        (3, CompletionStatus::RemoteInvalidRequest),
    ];
    assert_eq!(pair.statuses_of_a(), expected);
    assert_eq!(pair.events_of_b(), [AsyncEvent::QueuePairRequestError]);
}
