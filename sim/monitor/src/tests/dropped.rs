//! Responses that have arrived at the port, and that the card has dropped for lack of room.
use super::*;

/// T of the queue pairs, in picoseconds.
const TIMEOUT_PS: u64 = 2 * 4_096_000;
/// Opcodes of READ responses.
const FIRST: Operation = Operation::ReadResponseFirst;
const MIDDLE: Operation = Operation::ReadResponseMiddle;
const LAST: Operation = Operation::ReadResponseLast;
const ONLY: Operation = Operation::ReadResponseOnly;

fn send(number: u32) -> Draft {
    send_only(SEND_PSN.add(number), 5)
}

/// A READ of so many responses, the last of five bytes.
fn read(number: u32, responses: usize) -> Draft {
    let bytes = (responses - 1) * PMTU + 5;
    draft(Operation::ReadRequest, SEND_PSN.add(number), &[reth(bytes)], 0).asking()
}

fn response(operation: Operation, number: u32) -> Draft {
    let headers = [aeth(ACK, 1)];
    let count = usize::from(operation != MIDDLE);
    let bytes = if matches!(operation, FIRST | MIDDLE) { PMTU } else { 5 };
    draft(operation, SEND_PSN.add(number), &headers[..count], bytes)
}

fn acknowledged(number: u32) -> Draft {
    ack(SEND_PSN.add(number), ACK, number + 1)
}

/// Sends a READ of three responses, of which the card drops the second.
fn lose_in_a_read(bench: &mut Bench) {
    bench.sends(&read(0, 3));
    [response(FIRST, 0), response(MIDDLE, 1), response(LAST, 2)]
        .into_iter()
        .for_each(|frame| bench.arrives(frame));
    bench.sends(&read(1, 2));
}

/// Sends a SEND again when its timer has run out, since the card has dropped the ACK.
fn lose_an_ack(bench: &mut Bench, number: u32) {
    bench.sends(&send(number));
    bench.arrives(acknowledged(number));
    bench.now_ps += 10 * TIMEOUT_PS;
    bench.sends(&send(number));
}

/// What a card does that drops responses, and how often it goes back without a reason that its port has seen.
const RUNS: &[(&str, u64, fn(&mut Bench))] = &[
    ("a response of a READ", 1, |bench| {
        lose_in_a_read(bench);
        [response(FIRST, 1), response(LAST, 2)].into_iter().for_each(|frame| bench.arrives(frame));
        bench.sends(&send(3));
    }),
    ("the only ACK", 1, |bench| {
        lose_an_ack(bench, 0);
        bench.arrives(acknowledged(0));
        bench.sends(&send(1));
    }),
    ("an ACK, from which on the port counts the time of the timer", 1, |bench| {
        // T is 80 us.
        bench.monitor.register(REG_TIMER_UNIT.offset.into(), 10_000);
        (0..2).for_each(|number| bench.sends(&send(number)));
        bench.now_ps += 79_000_000;
        bench.arrives(acknowledged(0));
        bench.now_ps += 30_000_000;
        (0..2).for_each(|number| bench.sends(&send(number)));
        // The timer of the card runs from then on, and for the oldest request.
        bench.now_ps += 79_000_000;
        (0..2).for_each(|number| bench.sends(&send(number)));
    }),
    ("none: the timer has run out before an ACK that had come took effect behind a READ", 0, |bench| {
        // T is 80 us.
        bench.monitor.register(REG_TIMER_UNIT.offset.into(), 10_000);
        bench.sends(&send(0));
        bench.sends(&read(1, 1));
        bench.now_ps += 79_000_000;
        bench.arrives(acknowledged(0));
        bench.now_ps += 25_000_000;
        bench.sends(&read(1, 1));
    }),
    ("one response, and what is sent again is answered after several timeouts", 1, |bench| {
        lose_an_ack(bench, 0);
        for _ in 0..3 {
            bench.now_ps += TIMEOUT_PS;
            bench.sends(&send(0));
        }
        bench.arrives(acknowledged(0));
        bench.sends(&send(1));
    }),
    ("one response, and the answers of another READ go on behind the gap", 1, |bench| {
        bench.sends(&read(0, 3));
        bench.sends(&read(3, 3));
        for frame in [response(FIRST, 0), response(MIDDLE, 1), response(LAST, 2), response(FIRST, 3)] {
            bench.arrives(frame);
        }
        bench.sends(&read(1, 2));
        bench.arrives(response(MIDDLE, 4));
        bench.sends(&read(1, 2));
        bench.sends(&read(3, 3));
        for frame in [response(FIRST, 1), response(LAST, 2), response(FIRST, 3), response(MIDDLE, 4)] {
            bench.arrives(frame);
        }
        bench.arrives(response(LAST, 5));
        bench.sends(&send(6));
    }),
    ("one response of a READ, and others are lost on the wire, more than the card has retries", 1, |bench| {
        bench.sends(&read(0, 12));
        bench.arrives(response(FIRST, 0));
        (1..11).for_each(|number| bench.arrives(response(MIDDLE, number)));
        bench.arrives(response(LAST, 11));
        for (number, left) in (1..11).zip((2..12).rev()) {
            bench.sends(&read(number, left));
            bench.arrives(response(FIRST, number));
            bench.arrives(response(LAST, 11));
        }
    }),
    ("a READ and what follows it", 1, |bench| {
        bench.sends(&read(0, 1));
        bench.sends(&send(1));
        bench.sends(&read(2, 1));
        [response(ONLY, 0), acknowledged(1), response(ONLY, 2)]
            .into_iter()
            .for_each(|frame| bench.arrives(frame));
        bench.sends(&read(0, 1));
        bench.sends(&send(1));
        // The ACK passes a READ that the card may not know to be answered.
        bench.arrives(acknowledged(1));
        bench.sends(&read(0, 1));
        bench.sends(&send(1));
        bench.sends(&read(2, 1));
    }),
    ("none in truth: answers reach the card just after it has gone back", 1, |bench| {
        (0..6).for_each(|number| bench.sends(&send(number)));
        bench.arrives(acknowledged(3));
        (0..2).for_each(|number| bench.sends(&send(number)));
        (4..7).for_each(|number| bench.sends(&send(number)));
    }),
    ("none in truth, and further READs follow", 1, |bench| {
        (0..2).for_each(|number| bench.sends(&read(number, 1)));
        (0..2).for_each(|number| bench.arrives(response(ONLY, number)));
        bench.sends(&read(0, 1));
        for number in [2, 4, 6] {
            (number..number + 2).for_each(|number| bench.sends(&read(number, 1)));
            (number..number + 2).for_each(|number| bench.arrives(response(ONLY, number)));
        }
        bench.sends(&send(8));
        bench.arrives(acknowledged(8));
        bench.sends(&send(9));
    }),
    ("one response, and one more when that is answered", 2, |bench| {
        lose_an_ack(bench, 0);
        bench.arrives(acknowledged(0));
        lose_an_ack(bench, 1);
    }),
    ("one response of a READ, and one more when that is answered", 2, |bench| {
        lose_in_a_read(bench);
        [response(FIRST, 1), response(LAST, 2)].into_iter().for_each(|frame| bench.arrives(frame));
        bench.sends(&read(2, 1));
    }),
    ("one response, and the card goes back twice before a timer can have run out", 2, |bench| {
        lose_an_ack(bench, 0);
        bench.sends(&send(0));
    }),
    ("one response of each of two queue pairs", 2, |bench| {
        lose_an_ack(bench, 0);
        let request = || Draft::new(true, Operation::SendOnly, SEND_PSN, &[], 5).asking();
        bench.sends(&request());
        bench.arrives(Draft::new(true, Operation::Acknowledge, SEND_PSN, &[aeth(ACK, 1)], 0));
        bench.sends(&request());
    }),
];

#[test]
fn each_dropped_frame_lets_a_card_go_back_once() {
    for (what, times, run) in RUNS {
        let mut bench = Bench::new();
        bench.dropped = u64::MAX;
        run(&mut bench);
        assert_eq!(bench.found, [], "{what}");
        assert_eq!(bench.monitor.unexplained(), *times, "{what}");
        assert_eq!(bench.monitor.explain(*times, *times), [], "{what}");
        let Some(fewer) = times.checked_sub(1) else { continue };
        let found = bench.monitor.explain(*times, fewer);
        assert!(found.iter().all(|(_, finding)| finding.rule == Rule::RequestPsn), "{what}: {found:?}");
        assert_eq!(found.len() as u64, *times, "{what}: one frame fewer does not explain it");
        assert_eq!(bench.monitor.unexplained(), 0, "{what}: what was found is not found again");
    }
}

/// What no dropped frame explains is found at once.
#[test]
fn a_card_that_drops_frames_may_leave_out_no_psn() {
    const FAULTS: &[(&str, fn(&mut Bench))] = &[
        ("a PSN that was never sent", |bench| bench.sends(&send(1))),
        ("one that was sent, after going back", |bench| {
            (0..4).for_each(|number| bench.sends(&send(number)));
            bench.sends(&send(0));
            bench.sends(&send(2));
        }),
    ];
    for (what, run) in FAULTS {
        let mut bench = Bench::new();
        bench.dropped = u64::MAX;
        run(&mut bench);
        assert_eq!(bench.rules(), [Rule::RequestPsn], "{what}: {:?}", bench.found);
    }
}

#[test]
fn a_finding_names_the_packet_that_went_back_its_time_and_the_counts() {
    let mut bench = Bench::new();
    bench.dropped = u64::MAX;
    bench.sends(&send(0));
    bench.sends(&send(1));
    bench.sends(&send(0));
    let went_back_ps = bench.now_ps;
    bench.sends(&send(1));
    let found = bench.monitor.explain(1, 0);
    let [(time_ps, finding)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((*time_ps, finding.qp_number), (went_back_ps, Some(NUMBER)));
    let text = finding.to_string();
    for part in [
        "RC_SEND_ONLY PSN 0xfffffe",
        "the PSN is 0xfffffe, allowed is 0x000000; nothing was lost",
        "it is one of 1 times, and the card has dropped 0 frames for lack of room",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
}

#[test]
fn of_many_findings_the_first_are_kept() {
    let mut bench = Bench::new();
    bench.dropped = u64::MAX;
    bench.sends(&send(0));
    (0..100).for_each(|_| bench.sends(&send(0)));
    let found = bench.monitor.explain(100, 99);
    assert_eq!(found.len(), 64);
    assert!(
        found[0]
            .1
            .text
            .ends_with("it is one of 100 times, and the card has dropped 99 frames for lack of room")
    );
}
