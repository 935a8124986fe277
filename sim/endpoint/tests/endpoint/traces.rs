//! The worked traces A to J of protocol 3.12.

use super::*;
use rnic_layout::state::QpState;

const WRITE_FIRST: u8 = 0x06;
const WRITE_MIDDLE: u8 = 0x07;
const WRITE_LAST: u8 = 0x08;
const READ_REQUEST: u8 = 0x0c;
const SEND_ONLY: u8 = 0x04;
const FETCH_ADD: u8 = 0x14;
const RESPONSE_FIRST: u8 = 0x0d;
const RESPONSE_MIDDLE: u8 = 0x0e;
const RESPONSE_LAST: u8 = 0x0f;
const ACKNOWLEDGE: u8 = 0x11;
const ATOMIC_ACKNOWLEDGE: u8 = 0x12;

/// The six request packets when none is lost.
const REQUESTS: [(u8, u32); 6] = [
    (WRITE_FIRST, 0xff_fffe),
    (WRITE_MIDDLE, 0xff_ffff),
    (WRITE_LAST, 0),
    (READ_REQUEST, 1),
    (SEND_ONLY, 4),
    (FETCH_ADD, 5),
];

/// PMTU 1024; WRITE of 2500 bytes, READ of 3000, SEND of none, FETCH_ADD.
fn posted(change: impl FnOnce(&mut QueuePairSetup)) -> Pair {
    let mut pair = Pair::with(|setup| {
        setup.retry_count = 3;
        setup.rnr_retry = 3;
        change(setup);
    });
    pair.b.post_receive(B, receive(9, 0, 0));
    for work in
        [write(0, 0, 0, 2500), read(1, 8000, 4000, 3000), send(2, 0, 0), fetch_add(3, 20_000, 9000, 5)]
    {
        pair.a.post_send(A, work);
    }
    pair
}

fn all_is_well(pair: &mut Pair) {
    assert_eq!(pair.statuses_of_a(), [0, 1, 2, 3].map(|wr_id| (wr_id, CompletionStatus::Success)));
    assert_eq!(pair.statuses_of_b(), [(9, CompletionStatus::Success)]);
    assert_eq!(bytes(&mut pair.b, 0, 2500), bytes(&mut pair.a, 0, 2500));
    assert_eq!(bytes(&mut pair.a, 4000, 3000), bytes(&mut pair.b, 8000, 3000));
    assert_eq!((pair.b.expected_psn(B), pair.b.msn(B)), (Psn::wrapping(6), Psn::wrapping(4)));
    let cell = ((FIRST + 20_000).next_multiple_of(8) - FIRST) as usize;
    let before = u64::from_le_bytes(bytes(&mut pair.a, 9000, 8).try_into().unwrap());
    let after = u64::from_le_bytes(bytes(&mut pair.b, cell as u64, 8).try_into().unwrap());
    assert_eq!(after, before.wrapping_add(5), "the atomic was done once");
}

fn answers(pair: &Pair) -> Vec<(u8, u32, Option<u32>)> {
    pair.seen_from(B).iter().map(|seen| (seen.code, seen.psn, seen.aeth.map(|(_, msn)| msn))).collect()
}

#[test]
fn trace_a_no_loss() {
    let mut pair = posted(|_| {});
    pair.a_speaks();
    pair.b_speaks();
    assert_eq!(pair.brief_from(A), REQUESTS);
    assert_eq!(pair.seen.iter().take(3).map(|seen| seen.bytes).collect::<Vec<_>>(), [1024, 1024, 452]);
    let expected = [
        (ACKNOWLEDGE, 0, Some(1)),
        (RESPONSE_FIRST, 1, Some(2)),
        (RESPONSE_MIDDLE, 2, None),
        (RESPONSE_LAST, 3, Some(2)),
        (ACKNOWLEDGE, 4, Some(3)),
        (ATOMIC_ACKNOWLEDGE, 5, Some(4)),
    ];
    assert_eq!(answers(&pair), expected);
    all_is_well(&mut pair);
}

#[test]
fn trace_b_a_request_is_lost() {
    let mut pair = posted(|_| {});
    pair.a.misbehave(A, Side::Requester, 1, Fault::Lose);
    pair.a_speaks();
    pair.b_speaks();
    assert_eq!(pair.acknowledgements(), [(0x60, 0xff_ffff, 0)], "once");
    pair.seen.clear();
    pair.run();
    assert_eq!(pair.brief_from(A), REQUESTS[1..]);
    assert_eq!(pair.seen[0].reth, None);
    all_is_well(&mut pair);
}

#[test]
fn trace_c_a_read_response_is_lost() {
    let mut pair = posted(|_| {});
    pair.b.misbehave(B, Side::Responder, 2, Fault::Lose);
    pair.a_speaks();
    pair.b_speaks();
    pair.seen.clear();
    pair.a_speaks();
    assert_eq!(pair.brief_from(A), [(READ_REQUEST, 2), (SEND_ONLY, 4), (FETCH_ADD, 5)]);
    assert_eq!(pair.seen[0].reth, Some((FIRST + 8000 + 1024, 1976)));
    pair.b_speaks();
    // The ACK names the SEND, and not the atomic behind it.
    let expected = [(RESPONSE_FIRST, 2), (RESPONSE_LAST, 3), (ACKNOWLEDGE, 4), (ATOMIC_ACKNOWLEDGE, 5)];
    assert_eq!(pair.brief_from(B), expected);
    pair.run();
    all_is_well(&mut pair);
}

#[test]
fn trace_d_the_acknowledgement_after_a_read_overtakes_it() {
    let mut pair = posted(|_| {});
    // All three responses are lost.
    for _ in 0..3 {
        pair.b.misbehave(B, Side::Responder, 1, Fault::Lose);
    }
    let Pair { a, b, .. } = &mut pair;
    while let Some(frame) = a.transmit() {
        b.receive(&frame);
    }
    for _ in 0..2 {
        let frame = b.transmit().unwrap();
        a.receive(&frame);
    }
    assert_eq!(pair.statuses_of_a(), [(0, CompletionStatus::Success)], "the WRITE, and not the SEND");
    assert_eq!(pair.a.counter("implied_nak"), 1);
    pair.a.post_send(A, SendWqe { signalled: false, ..write(4, 0, 0, 0) });
    pair.a_speaks();
    assert_eq!(pair.seen[0].brief(), (READ_REQUEST, 1));
    pair.run();
    assert_eq!(pair.statuses_of_a(), [1, 2, 3].map(|wr_id| (wr_id, CompletionStatus::Success)));
}

#[test]
fn trace_e_no_receive_is_posted() {
    let mut pair = posted(|_| {});
    pair.b.modify(B, QpState::Reset);
    pair.b.modify(B, QpState::ReadyToSend);
    pair.a_speaks();
    pair.b_speaks();
    assert_eq!(pair.acknowledgements().last(), Some(&(0x2c, 4, 2)));
    assert_eq!(pair.b.expected_psn(B), Psn::wrapping(4));
    assert_eq!(pair.a_speaks(), 0, "the requester sleeps");
    let until = pair.a.next_deadline_ps().unwrap();
    assert_eq!(until, 640_000_000, "0.64 ms");
    pair.b.post_receive(B, receive(9, 0, 0));
    pair.seen.clear();
    pair.a.advance(until - 1);
    assert_eq!(pair.a_speaks(), 0);
    pair.a.advance(until);
    pair.a_speaks();
    assert_eq!(pair.brief_from(A), REQUESTS[4..]);
    pair.run();
    all_is_well(&mut pair);
}

#[test]
fn trace_f_the_acknowledgement_of_the_write_is_lost() {
    let mut pair = Pair::with(|setup| (setup.retry_count, setup.timeout) = (1, 8));
    pair.a.post_send(A, write(0, 0, 0, 2500));
    pair.b.misbehave(B, Side::Responder, 0, Fault::Lose);
    pair.settle();
    pair.b.memory().region_bytes(KEY)[..2500].fill(0);
    assert_eq!(pair.a.next_deadline_ps(), Some(4_096_000 << 8));
    pair.seen.clear();
    pair.run();
    assert_eq!(pair.brief_from(A), REQUESTS[..3]);
    assert_eq!(pair.acknowledgements(), [(0x1f, 0, 1)], "one, since only the last packet asks");
    assert_eq!(bytes(&mut pair.b, 0, 2500), vec![0; 2500], "nothing is written twice");
    assert_eq!(pair.statuses_of_a(), [(0, CompletionStatus::Success)]);
}

#[test]
fn trace_g_the_answer_of_an_atomic_is_lost() {
    let mut pair = posted(|setup| setup.timeout = 8);
    pair.b.misbehave(B, Side::Responder, 5, Fault::Lose);
    pair.settle();
    pair.seen.clear();
    pair.run();
    assert_eq!(pair.brief_from(A), [(FETCH_ADD, 5)]);
    assert_eq!(pair.brief_from(B), [(ATOMIC_ACKNOWLEDGE, 5)]);
    all_is_well(&mut pair);
}

#[test]
fn trace_h_the_key_of_the_write_is_wrong() {
    let mut pair = posted(|_| {});
    pair.a.misbehave(A, Side::Requester, 0, Fault::RemoteKey(KEY ^ 1));
    pair.run();
    assert_eq!(pair.acknowledgements(), [(0x62, 0xff_fffe, 0)]);
    assert_eq!(pair.events_of_b(), [AsyncEvent::QueuePairAccessError]);
    let expected = [
        (0, CompletionStatus::RemoteAccess),
        (1, CompletionStatus::Flushed),
        (2, CompletionStatus::Flushed),
        (3, CompletionStatus::Flushed),
    ];
    assert_eq!(pair.statuses_of_a(), expected);
    assert_eq!(pair.statuses_of_b(), [(9, CompletionStatus::Flushed)]);
    assert_eq!((pair.a.state(A), pair.b.state(B)), (QpState::Error, QpState::Error));
}

#[test]
fn trace_i_the_region_goes_away_while_it_is_read() {
    let mut pair = posted(|_| {});
    pair.a_speaks();
    for _ in 0..2 {
        let frame = pair.b.transmit().unwrap();
        pair.seen.extend(Seen::of(B, &frame));
        pair.a.receive(&frame);
    }
    pair.b.memory().deregister(KEY);
    pair.run();
    let expected = [(ACKNOWLEDGE, 0, Some(1)), (RESPONSE_FIRST, 1, Some(2)), (ACKNOWLEDGE, 2, Some(2))];
    assert_eq!(answers(&pair), expected);
    assert_eq!(pair.acknowledgements().last().unwrap().0, 0x62);
    let expected = [
        (0, CompletionStatus::Success),
        (1, CompletionStatus::RemoteAccess),
        (2, CompletionStatus::Flushed),
        (3, CompletionStatus::Flushed),
    ];
    assert_eq!(pair.statuses_of_a(), expected);
}

#[test]
fn trace_j_the_nak_is_lost_as_well() {
    let mut pair = posted(|setup| setup.timeout = 8);
    pair.a.misbehave(A, Side::Requester, 1, Fault::Lose);
    pair.b.misbehave(B, Side::Responder, 0, Fault::Lose);
    pair.settle();
    assert_eq!(pair.seen_from(B), [], "no second NAK");
    pair.run();
    assert_eq!(pair.a.counter("timeout"), 1);
    all_is_well(&mut pair);
}
