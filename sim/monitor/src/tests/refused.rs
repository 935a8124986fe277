//! Requests that a card refuses, with a cause that its port has seen and without one (protocol 3.6).
use super::*;
use NakCode::{InvalidRequest, RemoteAccessError, RemoteOperationalError};
use Operation as Op;

/// A request of the peer, so many PSNs after its first one.
fn request(number: u32, operation: Op, headers: &[ExtendedRepr], bytes: usize) -> Draft {
    draft(operation, RECEIVE_PSN.add(number), headers, bytes).asking()
}

/// A READ of so many responses, the last of five bytes.
fn read(number: u32, responses: usize) -> Draft {
    request(number, Op::ReadRequest, &[reth((responses - 1) * PMTU + 5)], 0)
}

fn fetch_add(number: u32) -> Draft {
    request(number, Op::FetchAdd, &[atomic()], 0)
}

fn response(number: u32, operation: Op, msn: u32) -> Draft {
    let is_full = matches!(operation, Op::ReadResponseFirst | Op::ReadResponseMiddle);
    let headers = [aeth(ACK, msn)];
    let count = usize::from(operation != Op::ReadResponseMiddle);
    draft(operation, RECEIVE_PSN.add(number), &headers[..count], if is_full { PMTU } else { 5 })
}

fn refusal(number: u32, code: NakCode, msn: u32) -> Draft {
    ack(RECEIVE_PSN.add(number), nak(code), msn)
}

fn not_ready(number: u32, msn: u32) -> Draft {
    ack(RECEIVE_PSN.add(number), 0x20 | RNR_TIMER, msn)
}

impl Bench {
    /// Software lets the peer do this, and that it may have so many READs and atomics in flight.
    fn permit(&mut self, [write, read, atomic]: [bool; 3], reads: u8) {
        let body = ModifyQueuePair {
            mask: AttributeMask::ACCESS.and(AttributeMask::DESTINATION_READ_ATOMIC).0,
            remote_write: write,
            remote_read: read,
            remote_atomic: atomic,
            destination_read_atomic: reads,
            ..ModifyQueuePair::at_reset()
        };
        self.command(CommandOpcode::ModifyQueuePair, NUMBER, Body::ModifyQueuePair(body));
    }

    /// Two READs of three responses and of one have arrived, and a response of the first was lost: the answer to what the peer asks for
    /// again serves it before its own answer has come to its end.
    fn serve_by_replay(&mut self) {
        self.arrives(read(0, 3));
        self.arrives(read(3, 1));
        self.sends(&response(0, Op::ReadResponseFirst, 2));
        self.arrives(read(1, 2));
        self.sends(&response(1, Op::ReadResponseFirst, 2));
        self.sends(&response(2, Op::ReadResponseLast, 2));
    }
}

/// Refusals without a cause. The peer may have two READs and atomics in flight.
pub(super) const FAULTS: &[InSequence] = &[
    (
        Rule::Refusal,
        "a READ is one too many though the answer to a duplicate has served the first",
        |bench| {
            bench.serve_by_replay();
            bench.arrives(read(4, 1));
            bench.sends(&response(3, Op::ReadResponseOnly, 2));
            assert_eq!(bench.rules(), []);
            bench.sends(&refusal(4, InvalidRequest, 2));
        },
    ),
    (
        Rule::Refusal,
        "an atomic is one too many though the answer to a duplicate has served a READ",
        |bench| {
            bench.serve_by_replay();
            bench.arrives(fetch_add(4));
            bench.sends(&response(1, Op::ReadResponseMiddle, 2));
            bench.sends(&response(2, Op::ReadResponseLast, 2));
            bench.sends(&response(3, Op::ReadResponseOnly, 2));
            assert_eq!(bench.rules(), []);
            bench.sends(&refusal(4, InvalidRequest, 2));
        },
    ),
    (Rule::Refusal, "a READ is one too many though its duplicate is being answered again", |bench| {
        (0..2).for_each(|number| bench.arrives(read(number, 1)));
        (0..2).for_each(|number| bench.sends(&response(number, Op::ReadResponseOnly, 2)));
        (0..2).for_each(|number| bench.arrives(read(number, 1)));
        bench.arrives(read(2, 1));
        bench.sends(&refusal(2, InvalidRequest, 2));
    }),
    (Rule::Refusal, "a READ is one too many that is the second of two", |bench| {
        bench.arrives(fetch_add(0));
        bench.arrives(read(1, 1));
        bench.sends(&atomic_ack(RECEIVE_PSN, 1));
        bench.sends(&refusal(1, InvalidRequest, 1));
    }),
    (Rule::Refusal, "0x61 of a SEND of no bytes", |bench| {
        bench.arrives(request(0, Op::SendOnly, &[], 0));
        bench.sends(&refusal(0, InvalidRequest, 0));
    }),
    (Rule::Refusal, "0x61 of a WRITE whose length is right", |bench| {
        bench.arrives(request(0, Op::WriteFirst, &[reth(PMTU + 5)], PMTU));
        bench.arrives(request(1, Op::WriteLast, &[], 5));
        bench.sends(&refusal(1, InvalidRequest, 0));
    }),
    (Rule::Refusal, "0x61 of a request that arrives again after an RNR NAK", |bench| {
        let immediate = ExtendedRepr::Immediate(ImmediateRepr { data: 1 });
        for _ in 0..2 {
            bench.arrives(request(0, Op::WriteOnlyImmediate, &[reth(5), immediate], 5));
            bench.sends(&not_ready(0, 0));
        }
        bench.arrives(request(0, Op::WriteOnlyImmediate, &[reth(5), immediate], 5));
        assert_eq!(bench.rules(), []);
        bench.sends(&refusal(0, InvalidRequest, 0));
    }),
    (Rule::Refusal, "0x62 of a SEND", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&refusal(0, RemoteAccessError, 0));
    }),
    (Rule::Refusal, "0x62 of a WRITE of no bytes", |bench| {
        bench.arrives(request(0, Op::WriteOnly, &[reth(0)], 0));
        bench.sends(&refusal(0, RemoteAccessError, 0));
    }),
    (Rule::Refusal, "0x62 of a READ of no bytes", |bench| {
        bench.arrives(request(0, Op::ReadRequest, &[reth(0)], 0));
        bench.sends(&refusal(0, RemoteAccessError, 0));
    }),
    (Rule::Refusal, "0x63 of a READ, and the host gave all", |bench| {
        bench.arrives(read(0, 1));
        bench.sends(&refusal(0, RemoteOperationalError, 0));
    }),
    (Rule::Refusal, "an RNR NAK of a WRITE", |bench| {
        bench.arrives(request(0, Op::WriteOnly, &[reth(5)], 5));
        bench.sends(&not_ready(0, 0));
    }),
    (Rule::Refusal, "an RNR NAK of the end of a SEND", |bench| {
        bench.arrives(request(0, Op::SendFirst, &[], PMTU));
        bench.arrives(request(1, Op::SendLast, &[], 5));
        bench.sends(&not_ready(1, 0));
    }),
];

/// A cause: what the peer does before its last request, how many PSNs and messages that takes, that request, and the NAK.
type Cause = (&'static str, fn(&mut Bench), u32, u32, Draft, NakCode);

#[test]
fn what_has_a_cause_may_be_refused() {
    let nothing: fn(&mut Bench) = |_| {};
    let in_send: fn(&mut Bench) = |bench| bench.arrives(request(0, Op::SendFirst, &[], PMTU));
    let in_write: fn(&mut Bench) =
        |bench| bench.arrives(request(0, Op::WriteFirst, &[reth(2 * PMTU + 5)], PMTU));
    let two_reads: fn(&mut Bench) = |bench| (0..2).for_each(|number| bench.arrives(read(number, 1)));
    let may_not: [fn(&mut Bench); 3] = [
        |bench| bench.permit([false, true, true], 2),
        |bench| bench.permit([true, false, true], 2),
        |bench| bench.permit([true, true, false], 2),
    ];
    let no_reads: fn(&mut Bench) = |bench| bench.permit([true; 3], 0);
    let host_fails: [fn(&mut Bench); 2] =
        [|bench| bench.monitor.read_failed(), |bench| bench.monitor.write_failed()];
    let write = || request(0, Op::WriteOnly, &[reth(5)], 5);
    let unassigned = request(0, Op::SendOnly, &[], 0).with(|packet| packet.bth.opcode = 0x18);
    let odd = |draft: Draft| {
        draft.with(|packet| {
            let ExtendedRepr::AtomicEth(header) = atomic() else { panic!("it is one") };
            let header = AtomicEthRepr { virtual_address: header.virtual_address + 4, ..header };
            packet.extended = Extended::from_headers(&[ExtendedRepr::AtomicEth(header)]).unwrap();
        })
    };
    let ending = [ExtendedRepr::Ieth(rnic_layout::wire::extended::IethRepr { remote_key: 1 })];
    let causes: Vec<Cause> = vec![
        ("row 3", nothing, 0, 0, unassigned, InvalidRequest),
        ("row 4, MIDDLE", nothing, 0, 0, request(0, Op::SendMiddle, &[], PMTU), InvalidRequest),
        ("row 4, READ", in_send, 1, 0, read(1, 1), InvalidRequest),
        ("row 4, kind", in_send, 1, 0, request(1, Op::WriteLast, &[], 5), InvalidRequest),
        ("row 5, WRITE", may_not[0], 0, 0, write(), InvalidRequest),
        ("row 5, READ", may_not[1], 0, 0, read(0, 1), InvalidRequest),
        ("row 5, atomic", may_not[2], 0, 0, fetch_add(0), InvalidRequest),
        ("row 6", nothing, 0, 0, odd(fetch_add(0)), InvalidRequest),
        ("row 7, READ", two_reads, 2, 2, read(2, 1), InvalidRequest),
        ("row 7, atomic", two_reads, 2, 2, fetch_add(2), InvalidRequest),
        ("row 7, none", no_reads, 0, 0, read(0, 1), InvalidRequest),
        ("row 8, payload", nothing, 0, 0, request(0, Op::WriteFirst, &[reth(PMTU)], 8), InvalidRequest),
        ("row 8, pad", nothing, 0, 0, write().with(|packet| packet.bth.pad_count = 2), InvalidRequest),
        ("row 8, length", nothing, 0, 0, read(0, (1 << 23) + 2), InvalidRequest),
        ("row 9, short", in_write, 1, 0, request(1, Op::WriteLast, &[], 5), InvalidRequest),
        ("row 9, long", in_write, 1, 0, request(1, Op::WriteLast, &[], PMTU), InvalidRequest),
        ("row 10", nothing, 0, 0, request(0, Op::SendOnly, &[], 1), InvalidRequest),
        ("row 11, WRITE", nothing, 0, 0, write(), RemoteAccessError),
        ("row 11, WRITE_MIDDLE", in_write, 1, 0, request(1, Op::WriteMiddle, &[], PMTU), RemoteAccessError),
        ("row 11, READ", nothing, 0, 0, read(0, 1), RemoteAccessError),
        ("row 11, atomic", nothing, 0, 0, fetch_add(0), RemoteAccessError),
        ("row 13, SEND", nothing, 0, 0, request(0, Op::SendOnly, &[], 0), RemoteOperationalError),
        ("row 13, a read", host_fails[0], 0, 0, read(0, 1), RemoteOperationalError),
        ("row 13, a write", host_fails[1], 0, 0, write(), RemoteOperationalError),
        ("row 15", nothing, 0, 0, request(0, Op::SendOnlyInvalidate, &ending, 0), RemoteAccessError),
    ];
    for (what, before, psn, msn, last, code) in causes {
        let mut bench = Bench::new();
        before(&mut bench);
        bench.arrives(last);
        // What waits for its answer precedes the NAK.
        (0..msn).for_each(|number| bench.sends(&response(number, Op::ReadResponseOnly, msn)));
        bench.sends(&refusal(psn, code, msn));
        assert_eq!(bench.found, [], "{what}");
    }
}

/// Protocol 3.7: what is invalidated in the middle of a READ ends it there, in its own answer or in that to a duplicate.
#[test]
fn a_nak_may_take_the_place_of_any_response_of_a_read() {
    for replays in [false, true] {
        let mut bench = Bench::new();
        bench.arrives(read(0, 3));
        bench.sends(&response(0, Op::ReadResponseFirst, 1));
        if replays {
            bench.arrives(read(0, 3));
            bench.sends(&response(0, Op::ReadResponseFirst, 1));
            bench.sends(&response(1, Op::ReadResponseMiddle, 1));
        }
        bench.sends(&refusal(1 + u32::from(replays), RemoteAccessError, 1));
        assert_eq!(bench.found, []);
    }
}

/// Protocol 3.5: a READ that the answer to a duplicate has served holds up nothing; its own answer may go on or not.
#[test]
fn what_a_replay_has_served_is_served() {
    for goes_on in [false, true] {
        let mut bench = Bench::new();
        bench.serve_by_replay();
        bench.arrives(request(4, Op::SendOnly, &[], 5));
        if goes_on {
            bench.sends(&response(1, Op::ReadResponseMiddle, 2));
        }
        bench.sends(&response(3, Op::ReadResponseOnly, 3));
        bench.sends(&ack(RECEIVE_PSN.add(4), ACK, 3));
        assert_eq!(bench.found, []);
        bench.sends(&response(1 + u32::from(goes_on), Op::ReadResponseMiddle, 3));
        assert_eq!(bench.rules().len(), usize::from(goes_on), "it ends with a LAST: {:?}", bench.found);
    }
}

/// Protocol 3.4: of a duplicate, the ACK names the last SEND or WRITE.
#[test]
fn an_ack_names_a_send_or_write_before_a_read() {
    let mut bench = Bench::new();
    bench.arrives(send_only(RECEIVE_PSN, 5));
    bench.arrives(read(1, 2));
    bench.arrives(fetch_add(3));
    bench.sends(&response(1, Op::ReadResponseFirst, 3));
    bench.sends(&response(2, Op::ReadResponseLast, 3));
    bench.sends(&atomic_ack(RECEIVE_PSN.add(3), 3));
    bench.arrives(send_only(RECEIVE_PSN, 5));
    bench.sends(&ack(RECEIVE_PSN, ACK, 3));
    assert_eq!(bench.found, []);
}

/// A card may have dropped a request that the port has seen, and then sees only the one that comes in its place.
#[test]
fn the_causes_of_all_requests_with_one_psn_count() {
    let mut bench = Bench::new();
    bench.arrives(request(0, Op::WriteFirst, &[reth(PMTU + 5)], PMTU));
    bench.arrives(request(1, Op::WriteLast, &[], 5));
    bench.arrives(request(0, Op::WriteOnly, &[reth(5)], 5));
    bench.arrives(request(1, Op::WriteLast, &[], 5));
    bench.sends(&refusal(1, InvalidRequest, 1));
    assert_eq!(bench.found, []);
}
