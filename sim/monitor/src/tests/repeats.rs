//! From where on the card sends requests again, and how often.
use super::*;

/// T of the queue pairs, in picoseconds.
const TIMEOUT_PS: u64 = 2 * 4_096_000;

fn send(number: u32) -> Draft {
    send_only(SEND_PSN.add(number), 5)
}

fn answered(number: u32, syndrome: u8) -> Draft {
    ack(SEND_PSN.add(number), syndrome, number)
}

fn not_ready(number: u32) -> Draft {
    answered(number, Syndrome::RnrNak { timer_code: 1 }.emit())
}

fn gap(number: u32) -> Draft {
    answered(number, nak(NakCode::PsnSequenceError))
}

fn retries(bench: &mut Bench, retry_count: u8, rnr_retry: u8) {
    let mask = Bench::mask(&[AttributeMask::RETRY_COUNT, AttributeMask::RNR_RETRY]);
    let body = ModifyQueuePair {
        mask,
        next_state: QpState::ReadyToSend,
        retry_count,
        rnr_retry,
        ..ModifyQueuePair::at_reset()
    };
    bench.command(CommandOpcode::ModifyQueuePair, NUMBER, Body::ModifyQueuePair(body));
}

#[test]
fn what_a_nak_acknowledges_is_not_sent_again_for_it() {
    for (first, expected) in [(2, &[][..]), (3, &[]), (1, &[Rule::RequestPsn]), (0, &[Rule::RequestPsn])] {
        let mut bench = Bench::new();
        (0..5).for_each(|number| bench.sends(&send(number)));
        bench.arrives(gap(2));
        bench.sends(&send(first));
        assert_eq!(bench.rules(), expected, "from packet {first} on");
    }
    // An earlier loss, or a timer that has run out, is a reason.
    let mut bench = Bench::new();
    (0..5).for_each(|number| bench.sends(&send(number)));
    bench.arrives(gap(1));
    bench.arrives(gap(2));
    bench.sends(&send(1));
    bench.now_ps += 10 * TIMEOUT_PS;
    bench.arrives(gap(4));
    bench.sends(&send(2));
    assert_eq!(bench.rules(), []);
}

#[test]
fn without_progress_the_card_goes_back_as_often_as_it_has_retries() {
    type Happens = fn(&mut Bench);
    let expires: Happens = |bench| bench.now_ps += 10 * TIMEOUT_PS;
    let loses: Happens = |bench| bench.arrives(gap(0));
    let waits: Happens = |bench| bench.arrives(not_ready(0));
    // Retries of both kinds, what happens each time, and how often the card may go back.
    for (retry_count, rnr_retry, happens, allowed) in
        [(0, 3, expires, 0), (2, 3, expires, 2), (2, 0, loses, 2), (1, 2, waits, 3), (0, 7, waits, 20)]
    {
        let mut bench = Bench::new();
        retries(&mut bench, retry_count, rnr_retry);
        (0..2).for_each(|number| bench.sends(&send(number)));
        for time in 0..=allowed {
            assert_eq!(bench.rules(), [], "time {time} of {allowed}");
            happens(&mut bench);
            (0..2).for_each(|number| bench.sends(&send(number)));
        }
        let expected = if rnr_retry == 7 { &[][..] } else { &[Rule::RequestPsn] };
        assert_eq!(bench.rules(), expected, "{retry_count} and {rnr_retry} retries");
    }
    // An acknowledgement gives all back.
    let mut bench = Bench::new();
    retries(&mut bench, 1, 0);
    (0..5).for_each(|number| bench.sends(&send(number)));
    for number in 0..4 {
        expires(&mut bench);
        (number..5).for_each(|number| bench.sends(&send(number)));
        bench.arrives(answered(number, ACK));
    }
    assert_eq!(bench.rules(), []);
}
