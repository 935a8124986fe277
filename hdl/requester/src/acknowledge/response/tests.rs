//! The rules as tables, from the numbered rules of the module and protocol 1.6, 2.5, 2.11 and 8.3.
use super::*;
use ResponseClass::{
    Congestion, NotReady, Other, Placed, Progress as Acknowledges, ReadData, Refusal, Reserved,
};
use rnic_layout::state::QpState;
use rnic_layout::state::QpState::{
    Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError,
};

/// An ACK for a queue pair of the peer.
fn ack() -> PacketToken {
    PacketToken {
        opcode: bits(ACKNOWLEDGE),
        destination_qp: bits(0x12_3456),
        partition_key: bits(0xffff),
        source_address: bits(0xa),
        psn: bits(3),
        ..PacketToken::default()
    }
}

fn peer(state: QpState) -> Peer {
    Peer {
        state: bits(state as u64),
        generation: bits(3),
        service: bits(Service::ReliableConnected as u64),
        local_qp: bits(0x12_3456),
        partition_key: bits(0xffff),
        address: bits(0xa),
        ..Peer::default()
    }
}

/// PSNs 0xfffffe to 1 are in flight.
fn progress() -> Progress {
    Progress { retired: Retired { una_psn: bits(0xff_fffe), ..Retired::default() }, ..Progress::default() }
}

fn issued() -> Issued {
    Issued { count: bits(4), unsent_psn: bits(2), generation: bits(3), ..Issued::default() }
}

/// What is found out about a response of that class.
fn check(class: ResponseClass, psn: u64, has_open: bool) -> Check {
    let arrival = Arrival { class, psn: bits(psn), ..Arrival::default() };
    let issued = Issued { reads: bits(u64::from(has_open)), ..issued() };
    check_of(Step::Check, bits(0), arrival, Fault::None, peer(ReadyToSend), progress(), issued)
}

#[test]
fn a_response_says_what_its_opcode_and_syndrome_say() {
    let extended = |syndrome: u64| bits(syndrome);
    let (reads, atomic) = (bits(0x0f), bits(ATOMIC_ACKNOWLEDGE));
    for (packet, class) in [
        (ack(), Acknowledges),
        (PacketToken { extended: extended(0x62), ..ack() }, Refusal),
        (PacketToken { extended: extended(0x21), ..ack() }, NotReady),
        (PacketToken { extended: extended(0x80), ..ack() }, Reserved),
        (PacketToken { payload_bytes: bits(1), ..ack() }, Other),
        (PacketToken { pad_mismatch: true, ..ack() }, Other),
        (PacketToken { opcode: reads, payload_bytes: bits(1), pad_mismatch: true, ..ack() }, ReadData),
        (PacketToken { opcode: reads, extended: extended(0x62), ..ack() }, Reserved),
        (PacketToken { opcode: atomic, ..ack() }, ReadData),
        (PacketToken { opcode: atomic, extended: extended(0x80), ..ack() }, Reserved),
        (PacketToken { opcode: atomic, payload_bytes: bits(1), ..ack() }, Other),
        (PacketToken { opcode: atomic, pad_mismatch: true, ..ack() }, Other),
        (PacketToken { opcode: bits(0x81), ..ack() }, Congestion),
        (PacketToken { opcode: bits(0x04), ..ack() }, Other),
    ] {
        let arrival = arrival_of(false, packet, ResponseNotice::default());
        let expected =
            Arrival { is_back: false, class, psn: packet.psn, syndrome: packet.extended.get_bits::<8>(0) };
        assert_eq!(arrival, expected, "{class:?}");
    }
    let returned =
        ResponseNotice { psn: bits(9), is_placed: true, syndrome: bits(0x1f), ..Default::default() };
    let expected = Arrival { is_back: true, class: Placed, psn: bits(9), syndrome: bits(0x1f) };
    assert_eq!(arrival_of(true, ack(), returned), expected);
}

#[test]
fn responses_are_checked_in_the_order_of_the_counters() {
    let rows: [(&str, PacketToken, Peer, bool, bool, Fault); 12] = [
        ("right", ack(), peer(ReadyToSend), false, true, Fault::None),
        (
            "low bits of a QPN",
            PacketToken { destination_qp: bits(0x3456), ..ack() },
            peer(ReadyToSend),
            false,
            true,
            Fault::UnknownQp,
        ),
        (
            "high bits of a QPN",
            PacketToken { destination_qp: bits(0x92_3456), ..ack() },
            peer(Reset),
            true,
            false,
            Fault::UnknownQp,
        ),
        ("failed", ack(), peer(ReadyToSend), true, true, Fault::NotReady),
        (
            "failed, of another service",
            ack(),
            Peer { service: bits(1), ..peer(ReadyToSend) },
            true,
            true,
            Fault::NotReady,
        ),
        (
            "UC opcode",
            PacketToken { opcode: bits(0x31), ..ack() },
            peer(ReadyToSend),
            false,
            true,
            Fault::Transport,
        ),
        (
            "UC queue pair",
            ack(),
            Peer { service: bits(1), ..peer(ReadyToSend) },
            false,
            true,
            Fault::Transport,
        ),
        (
            "another partition",
            PacketToken { partition_key: bits(0x8001), ..ack() },
            peer(ReadyToSend),
            false,
            false,
            Fault::Partition,
        ),
        (
            "a limited member",
            PacketToken { partition_key: bits(0x7fff), ..ack() },
            peer(ReadyToSend),
            false,
            true,
            Fault::None,
        ),
        (
            "two limited members",
            PacketToken { partition_key: bits(0x7fff), ..ack() },
            Peer { partition_key: bits(0x7fff), ..peer(ReadyToSend) },
            false,
            true,
            Fault::Partition,
        ),
        (
            "from another address",
            PacketToken { source_address: bits(0xb), ..ack() },
            peer(ReadyToSend),
            false,
            true,
            Fault::SourceAddress,
        ),
        ("to another address", ack(), peer(ReadyToSend), false, false, Fault::SourceAddress),
    ];
    for (name, packet, peer, has_failed, is_own_address, fault) in rows {
        let found = fault_of(false, packet, ResponseNotice::default(), peer, has_failed, is_own_address);
        assert_eq!(found, fault, "{name}");
    }
}

#[test]
fn responses_are_taken_from_rtr_on_until_an_error() {
    for (state, taken) in [
        (Reset, false),
        (Init, false),
        (ReadyToReceive, true),
        (ReadyToSend, true),
        (SendQueueDrain, true),
        (SendQueueError, true),
        (Error, false),
    ] {
        let fault = if taken { Fault::None } else { Fault::NotReady };
        assert_eq!(fault_of(false, ack(), ResponseNotice::default(), peer(state), false, true), fault);
        // One that returns has been counted before.
        for (generation, has_failed) in [(3, false), (2, false), (3, true)] {
            let returned = ResponseNotice { generation: bits(generation), ..ResponseNotice::default() };
            let found = fault_of(true, ack(), returned, peer(state), has_failed, false);
            let is_taken = taken && generation == 3 && !has_failed;
            assert_eq!(found, if is_taken { Fault::None } else { Fault::Silent }, "{state:?} {generation}");
        }
    }
}

#[test]
fn a_psn_is_in_flight_from_the_oldest_unacknowledged_one_to_the_one_before_the_next() {
    // PSN; accepted, stale, never sent.
    for (psn, expected) in [
        (0xff_fffd, (false, true, false)),
        (0xff_fffe, (true, false, false)),
        (0, (true, false, false)),
        (1, (true, false, false)),
        (2, (false, false, true)),
        (0x7f_fffd, (false, false, true)),
        (0x7f_fffe, (false, true, false)),
    ] {
        let outcome = outcome_of(check(Acknowledges, psn, false), false, bits(ACKNOWLEDGE), false);
        let found = (outcome.is_good, outcome.is_stale, outcome.is_never_sent);
        assert_eq!(found, expected, "{psn:#x}");
        assert_eq!((outcome.moves, outcome.joins, outcome.refuses), (expected.0, expected.0, false));
    }
    let arrival = Arrival { class: Acknowledges, psn: bits(0), ..Arrival::default() };
    for (name, issued) in [
        ("nothing in flight", Issued { count: bits(0), ..issued() }),
        ("of an older generation", Issued { generation: bits(2), ..issued() }),
    ] {
        let check =
            check_of(Step::Check, bits(0), arrival, Fault::None, peer(ReadyToSend), progress(), issued);
        assert!(!outcome_of(check, false, bits(ACKNOWLEDGE), false).is_good, "{name}");
    }
    let faulty = Check { fault: Fault::Partition, ..check(Acknowledges, 0, false) };
    assert_eq!(outcome_of(faulty, false, bits(ACKNOWLEDGE), false), Outcome::default());
    let congestion = check_of(
        Step::Check,
        bits(0),
        Arrival { class: Congestion, ..arrival },
        Fault::UnknownQp,
        peer(Reset),
        progress(),
        issued(),
    );
    assert_eq!(congestion.fault, Fault::Silent, "a CNP is no response");
}

#[test]
fn data_and_what_must_not_overtake_it_pass_the_place_stage() {
    const READ: u64 = 0x10;
    // Class, opcode, a READ is open, it returns; deferred, moves, refuses, answers no request.
    for (class, opcode, has_open, is_back, deferred, moves, refuses, other) in [
        (Acknowledges, ACKNOWLEDGE, false, false, false, true, false, false),
        (Acknowledges, ACKNOWLEDGE, true, false, true, false, false, false),
        (Acknowledges, ACKNOWLEDGE, true, true, false, true, false, false),
        (Refusal, ACKNOWLEDGE, false, false, false, true, true, false),
        (Refusal, ACKNOWLEDGE, true, false, true, false, false, false),
        (Refusal, ACKNOWLEDGE, true, true, false, true, true, false),
        (NotReady, ACKNOWLEDGE, false, false, false, true, true, false),
        (NotReady, ACKNOWLEDGE, true, false, true, false, false, false),
        (Reserved, ACKNOWLEDGE, true, false, false, false, false, false),
        (ReadData, READ, true, false, true, false, false, false),
        (ReadData, READ, false, false, true, false, false, false),
        (ReadData, READ, true, true, false, false, true, false),
        (ReadData, ATOMIC_ACKNOWLEDGE, true, false, true, false, false, false),
        (ReadData, ATOMIC_ACKNOWLEDGE, false, false, false, false, false, true),
        (Reserved, ATOMIC_ACKNOWLEDGE, false, false, false, false, false, false),
        (Reserved, ATOMIC_ACKNOWLEDGE, true, false, false, false, false, false),
        (Placed, ACKNOWLEDGE, true, true, false, true, false, false),
        (ResponseClass::Failure, ACKNOWLEDGE, true, true, false, true, true, false),
        (Other, ACKNOWLEDGE, true, false, false, false, false, true),
    ] {
        let name = format!("{class:?} {opcode:#x} {has_open} {is_back}");
        let outcome = outcome_of(check(class, 0, has_open), is_back, bits(opcode), false);
        assert_eq!(outcome.is_deferred, deferred, "{name}");
        assert_eq!((outcome.moves, outcome.refuses, outcome.is_other), (moves, refuses, other), "{name}");
        assert_eq!(outcome.joins, moves || refuses, "{name}");
        let stale = outcome_of(check(class, 0xff_fffd, has_open), is_back, bits(opcode), false);
        assert!(stale.is_stale && !stale.is_deferred && !stale.moves && !stale.refuses, "{name}");
    }
    let middle = outcome_of(check(Placed, 0, true), true, bits(ACKNOWLEDGE), true);
    assert_eq!((middle.moves, middle.joins), (true, false), "no message ends in the middle of a READ");
}

#[test]
fn a_refusal_acknowledges_what_is_before_its_psn_and_an_ack_its_own_too() {
    for (class, psn, una_psn) in [
        (Acknowledges, 0, 1),
        (Acknowledges, 0xff_ffff, 0),
        (Placed, 0, 1),
        (Refusal, 0, 0),
        (Refusal, 0xff_fffe, 0xff_fffe),
        (NotReady, 0, 0),
        (ResponseClass::Failure, 1, 1),
        (Reserved, 1, 0xff_fffe),
        (Other, 1, 0xff_fffe),
    ] {
        let outcome = outcome_of(check(class, psn, false), false, bits(ACKNOWLEDGE), false);
        let after = after_acknowledgement(progress(), outcome, bits(psn));
        assert_eq!(after.retired.una_psn, bits(una_psn), "{class:?} {psn:#x}");
        assert_eq!(after.is_queued, outcome.joins);
    }
}

#[test]
fn the_message_that_fails_is_that_of_the_psn_or_the_oldest() {
    let una_psn = progress().retired.una_psn;
    // Step, class of the response; PSN.
    for (step, class, expected) in [
        (Step::Failure, ReadData, bits(0x55)),
        (Step::Failure, Refusal, bits(0x55)),
        (Step::Check, Refusal, bits(1)),
        (Step::Check, ReadData, una_psn),
        (Step::Timeout, Refusal, una_psn),
    ] {
        let arrival = Arrival { class, psn: bits(1), ..Arrival::default() };
        let check = check_of(step, bits(0x55), arrival, Fault::None, peer(ReadyToSend), progress(), issued());
        assert_eq!((check.failing_psn, check.keeps), (expected, false), "{step:?} {class:?}");
        let known = Progress { will_fail: true, failed_psn: expected, ..progress() };
        assert!(check_of(step, bits(0x55), arrival, Fault::None, peer(ReadyToSend), known, issued()).keeps);
    }
}

#[test]
fn failures_have_the_status_of_the_peer_or_of_the_read() {
    use CompletionStatus as Status;
    let placed = ResponseNotice { is_placed: true, write_failed: true, ..ResponseNotice::default() };
    let bad = ResponseNotice { status: bits(Status::BadResponse as u64), ..ResponseNotice::default() };
    let lost = ResponseNotice { status: bits(Status::RetryExceeded as u64), ..ResponseNotice::default() };
    let none = ResponseNotice::default();
    // Class, syndrome, notice; status, vendor_error, whether something was lost.
    for (class, syndrome, returned, status, reason, lost) in [
        (Refusal, 0x60, none, Status::RetryExceeded, 0x60, true),
        (Refusal, 0x61, none, Status::RemoteInvalidRequest, 0x61, false),
        (Refusal, 0x62, none, Status::RemoteAccess, 0x62, false),
        (Refusal, 0x63, none, Status::RemoteOperation, 0x63, false),
        (NotReady, 0x34, none, Status::RnrRetryExceeded, 0x34, false),
        (ReadData, 0, none, Status::BadResponse, 0, false),
        (ResponseClass::Failure, 0, placed, Status::LocalProtection, vendor_error::PAYLOAD, false),
        (ResponseClass::Failure, 0, bad, Status::BadResponse, 0, false),
        (ResponseClass::Failure, 0, lost, Status::RetryExceeded, 0, true),
    ] {
        let expected = Failure { status: bits(status as u64), reason: bits(reason) };
        assert_eq!(failure_of(class, bits(syndrome), returned), expected, "{class:?} {syndrome:#x}");
        assert_eq!(says_lost(class, bits(syndrome), returned), lost, "{class:?} {syndrome:#x}");
        let check = check(class, 0, false);
        let arrival = Arrival { class, psn: bits(0), syndrome: bits(syndrome), ..Arrival::default() };
        for fails in [false, true] {
            let outcome = Outcome::default();
            let after =
                after_response(progress(), check, outcome, arrival, returned, Recovery::default(), fails);
            let found = Failure { status: after.failed_status, reason: after.failed_reason };
            assert_eq!(found, if fails { expected } else { Failure::default() }, "{class:?}");
            assert_eq!(after.will_fail, fails);
        }
    }
    for is_own in [false, true] {
        let check = Check { failing_psn: bits(0x55), ..Check::default() };
        let after = after_loss(progress(), check, is_own, true);
        assert_eq!((after.will_fail, after.is_queued, after.failed_psn), (true, true, bits(0x55)));
        assert!(!after_loss(progress(), check, is_own, false).will_fail);
    }
}

#[test]
fn a_queue_pair_is_queued_when_it_may_have_something_to_complete() {
    let joins = Outcome { joins: true, ..Outcome::default() };
    let quiet = Outcome::default();
    for (step, kind, is_current, outcome, expected) in [
        (Step::Setup, SetupKind::Life, false, quiet, true),
        (Step::Setup, SetupKind::Path, true, joins, false),
        (Step::Local, SetupKind::Path, false, quiet, true),
        (Step::Lost, SetupKind::Path, true, quiet, true),
        (Step::Lost, SetupKind::Path, false, joins, false),
        (Step::Response, SetupKind::Life, true, joins, true),
        (Step::Response, SetupKind::Life, true, quiet, false),
        (Step::Check, SetupKind::Life, true, joins, false),
        (Step::Idle, SetupKind::Life, true, joins, false),
        (Step::Store, SetupKind::Life, true, joins, false),
        (Step::Expired, SetupKind::Life, true, joins, false),
    ] {
        let found = joins_queue(step, kind, is_current, outcome.joins, Timeout::default());
        assert_eq!(found, expected, "{step:?} {kind:?}");
    }
    let silence = Timeout { counts: true, ..Timeout::default() };
    let end = Timeout { ends_wait: true, ..Timeout::default() };
    for (step, timeout, expected) in [
        (Step::Expired, silence, true),
        (Step::Expired, end, true),
        (Step::Timeout, silence, false),
        (Step::Response, end, false),
    ] {
        assert_eq!(
            joins_queue(step, SetupKind::Path, true, quiet.joins, timeout),
            expected,
            "{step:?} {timeout:?}"
        );
    }
}

#[test]
fn each_response_moves_one_counter_and_a_failure_one_more() {
    let none = AcknowledgeCounts::default();
    let counted = |step, class, psn: u64, fault, syndrome: u64, fails| {
        let check = Check { fault, ..check(class, psn, false) };
        let outcome = outcome_of(check, false, bits(ACKNOWLEDGE), false);
        let says_lost = says_lost(class, bits(syndrome), ResponseNotice::default());
        counts_of(step, check, outcome, says_lost, fails, true, Verdict::Stays)
    };
    let ok = Fault::None;
    for (class, psn, fault, syndrome, fails, expected) in [
        (Acknowledges, 0, ok, 0, false, AcknowledgeCounts { acknowledgements_received: true, ..none }),
        (Refusal, 0, ok, 0x61, true, AcknowledgeCounts { nak_received: true, ..none }),
        (Refusal, 0, ok, 0x60, true, AcknowledgeCounts { nak_received: true, retry_exhausted: true, ..none }),
        (Refusal, 0, ok, 0x60, false, AcknowledgeCounts { nak_received: true, ..none }),
        (
            NotReady,
            0,
            ok,
            0x20,
            true,
            AcknowledgeCounts { nak_rnr_received: true, rnr_retry_exceeded: true, ..none },
        ),
        (Reserved, 0, ok, 0x80, false, AcknowledgeCounts { response_reserved: true, ..none }),
        (Other, 0, ok, 0, false, AcknowledgeCounts { response_unexpected: true, ..none }),
        (Acknowledges, 0xff_fffd, ok, 0, false, AcknowledgeCounts { response_stale: true, ..none }),
        (Acknowledges, 2, ok, 0, false, AcknowledgeCounts { response_never_sent: true, ..none }),
        (Acknowledges, 0, Fault::UnknownQp, 0, false, AcknowledgeCounts { unknown_qp: true, ..none }),
        (Acknowledges, 0, Fault::NotReady, 0, false, AcknowledgeCounts { qp_not_ready: true, ..none }),
        (Acknowledges, 0, Fault::Transport, 0, false, AcknowledgeCounts { transport_mismatch: true, ..none }),
        (Acknowledges, 0, Fault::Partition, 0, false, AcknowledgeCounts { partition_key: true, ..none }),
        (Acknowledges, 0, Fault::SourceAddress, 0, false, AcknowledgeCounts { source_address: true, ..none }),
        (Acknowledges, 0, Fault::Silent, 0, false, none),
    ] {
        let found = counted(Step::Response, class, psn, fault, syndrome, fails);
        assert_eq!(found, expected, "{class:?} {psn:#x} {fault:?}");
        assert_eq!(counted(Step::Check, class, psn, fault, syndrome, fails), none, "{class:?}");
    }
    let other = |step, is_current, verdict| {
        counts_of(step, Check::default(), Outcome::default(), false, false, is_current, verdict)
    };
    assert!(other(Step::Lost, false, Verdict::Stays).stale_dropped);
    assert_eq!(other(Step::Lost, true, Verdict::Stays), none);
    assert!(other(Step::Complete, true, Verdict::Success).messages_completed);
    assert_eq!(other(Step::Complete, true, Verdict::Flushed), none);
}

#[test]
fn what_a_queue_pair_awaits_behind_its_data_is_of_its_own_life() {
    let ready = Peer { generation: bits(3), ..peer(ReadyToSend) };
    // Awaited, returns, is the last, generation.
    for (awaits_last, is_back, is_last, generation, expected) in [
        (true, true, true, 3, true),
        (false, true, true, 3, false),
        (true, false, true, 3, false),
        (true, true, false, 3, false),
        (true, true, true, 2, false),
    ] {
        let returned = ResponseNotice { is_last, generation: bits(generation), ..ResponseNotice::default() };
        let before = Progress { awaits_last, ..progress() };
        let name = format!("{awaits_last} {is_back} {is_last} {generation}");
        let settles = settles(before, is_back, returned, ready);
        assert_eq!(settles, expected, "{name}");
        let after = settled(before, settles);
        let found = (after.awaits_last, after.is_queued);
        assert_eq!(found, (awaits_last && !expected, before.is_queued || expected), "{name}");
    }
}

#[test]
fn what_follows_the_last_response_has_no_payload_and_is_not_taken_for_one() {
    let ready = Peer { generation: bits(3), ..peer(ReadyToSend) };
    let packet = PacketToken { payload_bytes: bits(9), ..ack() };
    let last = Response { queue_pair: bits(7), generation: bits(3), is_last: true, ..Response::default() };
    assert_eq!(sent_of(true, bits(7), packet, ready, true, ResponseClass::Progress), last);
    let other = sent_of(false, bits(7), packet, ready, true, ResponseClass::Progress);
    assert!(!other.is_last && other.is_good && other.payload_bytes == bits(9));
}
