//! The rules as tables, from the numbered rules of the module, protocol 2.1 and 3.10, and design decision 10.
use super::*;
use crate::messages::{SegmentPlan, WqeCompletion, WqeHeader, WqeKind};
use crate::testing::event;
use rnic_layout::state::QpState::{
    Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError,
};

/// A SEND of `packets` packets of a queue pair in its third life.
fn wqe(packets: u64) -> CheckedWqe {
    CheckedWqe {
        header: WqeHeader {
            generation: bits(3),
            last_psn: bits((0xff_ffff + packets - 1) & 0xff_ffff),
            ..WqeHeader::default()
        },
        plan: SegmentPlan {
            first_psn: bits(0xff_ffff),
            path_mtu: bits(PathMtu::Bytes1024 as u64),
            ..SegmentPlan::default()
        },
        length: bits(1024 * packets),
        ..CheckedWqe::default()
    }
}

fn served() -> Life {
    Life { serves: true, generation: bits(3) }
}

fn open() -> Window {
    Window { is_open: true, is_half_open: true }
}

#[test]
fn a_turn_comes_after_a_quantum_of_wqes() {
    // A quantum is 512 units of 32 bytes.
    for (has_turn, has_wqe, share, expected) in [
        (false, false, 0, false),
        (false, true, 512, false),
        (true, false, 0, true),
        (true, true, 0, false),
        (true, true, 511, false),
        (true, true, 512, true),
    ] {
        assert_eq!(takes_turn(has_turn, has_wqe, bits(share)), expected, "{has_turn} {has_wqe} {share}");
    }
}

#[test]
fn events_go_first_and_end_where_they_came() {
    for (has_event, has_message, expected) in [
        (true, true, Step::Event),
        (true, false, Step::Event),
        (false, true, Step::Load),
        (false, false, Step::Idle),
    ] {
        assert_eq!(first_step(has_event, has_message), expected);
    }
    for before in [Step::Idle, Step::Make] {
        for other in [Step::Idle, Step::Make] {
            let resume = resumed_after(before, other);
            assert_eq!(resume, before);
            assert_eq!(resumed_after(Step::Event, resume), before);
        }
    }
}

#[test]
fn packets_are_made_in_rts_and_sqd_and_a_new_life_drops_what_is_left() {
    for (state, serving) in [
        (Reset, false),
        (Init, false),
        (ReadyToReceive, false),
        (ReadyToSend, true),
        (SendQueueDrain, true),
        (SendQueueError, false),
        (Error, false),
    ] {
        assert_eq!(serves(bits(state as u64)), serving, "{state:?}");
        let rest = Rest { exists: true, is_queued: true, ..Rest::default() };
        for (kind, dropping) in
            [(SetupKind::Life, !serving), (SetupKind::Path, !serving), (SetupKind::Restart, true)]
        {
            let event = event(kind, 5, state, 3);
            assert_eq!(drops(event), dropping, "{kind:?} {state:?}");
            // The queue pair still has its turn.
            assert_eq!(after_event(rest, event), Rest { exists: !dropping, ..rest }, "{kind:?} {state:?}");
        }
    }
    let work =
        Work { message: Message { is_local: true, starts: true, ..Message::default() }, ..Work::default() };
    let message = dropped(work).message;
    assert_eq!(message, Message { sends_nothing: true, starts: true, ..Message::default() });
}

#[test]
fn the_window_is_open_below_2_to_15_psns() {
    for (in_flight, is_open, is_half_open) in [
        (0, true, true),
        ((1 << 14) - 1, true, true),
        (1 << 14, true, false),
        ((1 << 15) - 1, true, false),
        (1 << 15, false, false),
        (1 << 22, false, false),
        // Acknowledged meanwhile.
        (0xff_ffff, true, true),
    ] {
        for unacknowledged in [0, 0xff_f000u64] {
            let psn = bits((unacknowledged + in_flight) & 0xff_ffff);
            let window = window_of(psn, bits(unacknowledged));
            assert_eq!(window, Window { is_open, is_half_open }, "{in_flight}");
        }
    }
}

#[test]
fn the_end_of_a_long_message_is_near_when_no_response_can_delay_it() {
    let half = open();
    let full = Window { is_half_open: false, ..open() };
    for (length, window, is_alone, expected) in [
        (QUANTUM, full, false, true),
        (QUANTUM + 1, half, true, true),
        (QUANTUM + 1, half, false, false),
        (QUANTUM + 1, full, true, false),
        (2 * QUANTUM, half, true, true),
        (2 * QUANTUM + 1, half, true, false),
    ] {
        assert_eq!(is_near_end(bits(length), window, is_alone), expected, "{length} {is_alone}");
    }
}

#[test]
fn a_wqe_is_sent_if_its_queue_pair_sends_and_it_is_right() {
    let refused = WqeCompletion { status: bits(CompletionStatus::LocalLength as u64), ..Default::default() };
    let empty = WqeHeader { is_empty: true, ..wqe(1).header };
    let rows: [(&str, CheckedWqe, Life, bool, bool); 9] = [
        ("one packet", wqe(1), served(), true, false),
        ("two packets", wqe(2), served(), true, true),
        ("in ERR", wqe(2), Life { serves: false, ..served() }, false, false),
        ("of another life", wqe(2), Life { generation: bits(4), ..served() }, false, false),
        ("refused", CheckedWqe { completion: refused, ..wqe(2) }, served(), false, false),
        ("no WQE", CheckedWqe { header: empty, ..wqe(2) }, served(), false, false),
        (
            "READ",
            CheckedWqe { kind: WqeKind { is_read: true, ..Default::default() }, ..wqe(9) },
            served(),
            true,
            false,
        ),
        (
            "LOCAL_INVALIDATE",
            CheckedWqe { kind: WqeKind { is_local: true, ..Default::default() }, ..wqe(0) },
            served(),
            true,
            false,
        ),
        (
            "LOCAL_INVALIDATE in ERR",
            CheckedWqe { kind: WqeKind { is_local: true, ..Default::default() }, ..wqe(0) },
            Life { serves: false, ..served() },
            false,
            false,
        ),
    ];
    for (name, wqe, life, is_good, is_split) in rows {
        let admission = admit(false, wqe, life, Rest::default(), open(), true, bits(0));
        assert_eq!((admission.is_good, admission.is_split), (is_good, is_split), "{name}");
        assert_eq!((admission.waits, admission.goes_on), (false, false), "{name}");
        let message = message_of(false, false, wqe, Rest::default(), admission);
        assert_eq!(message.sends_nothing, !is_good || wqe.kind.is_local, "{name}");
        assert_eq!(message.is_local, is_good && wqe.kind.is_local, "{name}");
        assert!(message.starts, "{name}");
        let waits = admit(false, wqe, life, Rest { exists: true, ..Rest::default() }, open(), true, bits(0));
        assert_eq!((waits.waits, waits.wakes), (name != "no WQE", false), "{name} behind a long message");
    }
}

#[test]
fn wqe_parse_is_woken_once_for_each_long_message() {
    let long = |length: u64, generation: u64| CheckedWqe {
        header: WqeHeader { generation: bits(generation), ..wqe(2).header },
        plan: SegmentPlan { is_long: true, ..wqe(2).plan },
        length: bits(length),
        ..wqe(2)
    };
    let left =
        |length: u64, is_woken| Rest { exists: true, is_woken, length: bits(length), ..Rest::default() };
    let none = Rest::default();
    let closed = Window::default();
    // A rest, WQE, what is left, window, alone; woken now, need not be woken any more.
    let rows: [(bool, CheckedWqe, Rest, Window, bool, bool, bool); 11] = [
        (false, wqe(2), none, open(), true, false, true),
        (false, long(2 * QUANTUM, 3), none, open(), true, true, true),
        (false, long(2 * QUANTUM, 3), none, open(), false, false, false),
        (false, long(2 * QUANTUM + 1, 3), none, open(), true, false, false),
        // Nothing of it is sent.
        (false, long(2 * QUANTUM + 1, 4), none, open(), true, true, true),
        (true, wqe(0), left(QUANTUM, false), open(), false, true, true),
        (true, wqe(0), left(QUANTUM, false), closed, false, false, false),
        (true, wqe(0), left(QUANTUM + 1, false), open(), false, false, false),
        (true, wqe(0), left(QUANTUM + 1, false), open(), true, true, true),
        (true, wqe(0), left(QUANTUM, true), open(), false, false, true),
        (true, wqe(0), Rest { exists: false, ..left(QUANTUM, false) }, open(), true, false, false),
    ];
    for (index, (is_rest, wqe, rest, window, is_alone, wakes, is_woken)) in rows.into_iter().enumerate() {
        let admission = admit(is_rest, wqe, served(), rest, window, is_alone, bits(0));
        let stale = admit(is_rest, wqe, served(), rest, window, is_alone, bits(1));
        assert_eq!(stale.wakes, is_rest && admission.wakes, "a WQE of an older epoch wakes nobody");
        assert_eq!((admission.wakes, admission.is_woken), (wakes, is_woken), "row {index}");
        assert_eq!(admission.goes_on, is_rest && rest.exists && window.is_open, "row {index}");
        assert_eq!(begin_work(is_rest, is_rest, wqe, rest, admission).rest.is_woken, is_woken, "row {index}");
    }
}

#[test]
fn a_rest_goes_on_in_its_turn_and_before_a_wqe() {
    let plain = Admission::default();
    let split = Admission { is_split: true, ..plain };
    let waits = Admission { waits: true, ..plain };
    let goes_on = Admission { goes_on: true, ..plain };
    // A turn, a rest, the WQE at the input has a list.
    for (is_turn, is_rest, is_listed, admission, expected) in [
        (false, false, false, plain, Step::Make),
        (false, false, false, split, Step::Plan),
        (false, false, true, plain, Step::Fill),
        (false, false, true, split, Step::Fill),
        (false, false, true, waits, Step::Load),
        (false, true, true, goes_on, Step::Plan),
        (false, true, true, plain, Step::Idle),
        (true, true, false, plain, Step::Make),
        (true, true, true, plain, Step::Make),
        (true, true, false, goes_on, Step::Plan),
        (true, true, true, goes_on, Step::Plan),
    ] {
        let step = step_after_load(is_turn, is_rest, is_listed, admission);
        assert_eq!(step, expected, "{is_turn} {is_rest} {is_listed} {admission:?}");
    }
}

#[test]
fn a_rest_goes_on_where_it_ended_and_a_wqe_begins() {
    let rest = Rest {
        exists: true,
        is_queued: true,
        psn: bits(77),
        packets: bits(31),
        path_mtu: bits(PathMtu::Bytes256 as u64),
        length: bits(5000),
        ..Rest::default()
    };
    let burst = CheckedWqe { header: WqeHeader { ends_burst: true, ..wqe(2).header }, ..wqe(2) };
    let admission = Admission { is_good: true, is_split: true, goes_on: true, ..Admission::default() };
    for is_turn in [false, true] {
        let work = begin_work(is_turn, true, burst, rest, admission);
        assert_eq!(work.rest, rest);
        let message = Message { was_queued: !is_turn, ..Message::default() };
        assert_eq!((work.message, work.packets_left), (message, bits(64)));
    }
    // A turn that sends nothing: the window is closed, or nothing is left.
    let closed = Admission { goes_on: false, ..admission };
    for exists in [false, true] {
        let message = begin_work(true, true, burst, Rest { exists, ..rest }, closed).message;
        assert_eq!(message, Message { sends_nothing: true, is_put_off: exists, ..Message::default() });
    }
    let first = begin_work(false, false, burst, rest, admission);
    assert_eq!(first.rest, rest_of(burst));
    assert_eq!((first.rest.psn, first.rest.packets, first.rest.exists), (bits(0xff_ffff), bits(0), false));
    let message = Message { was_queued: true, starts: true, ends_burst: true, ..Message::default() };
    assert_eq!((first.message, first.packets_left), (message, bits(16)));
    assert!(!first.parts.is_last);
    let only = begin_work(false, false, burst, rest, Admission { is_split: false, ..admission });
    assert!(only.parts.is_last);
}

#[test]
fn a_quantum_is_16_kib_of_packets() {
    use PathMtu::{Bytes256, Bytes512, Bytes1024, Bytes2048, Bytes4096};
    for (code, packets) in [(Bytes256, 64), (Bytes512, 32), (Bytes1024, 16), (Bytes2048, 8), (Bytes4096, 4)] {
        assert_eq!(quantum_packets(bits(code as u64)), bits(packets));
    }
}

#[test]
fn the_only_packet_takes_all_bytes_of_each_sge_and_a_read_says_which_exist() {
    let sge = |length| Sge { length: bits(length), ..Sge::default() };
    let tail = crate::wqe_check::tests::tail;
    // READ, atomic, SGEs; payload and parts.
    for (is_read, is_atomic, lengths, expected) in [
        (false, false, [0, 0], [0, 0, 0]),
        (false, false, [100, 0], [100, 100, 0]),
        (false, false, [100, 4], [104, 100, 4]),
        (true, false, [70_000, 0], [0, 1, 0]),
        (true, false, [70_000, 8192], [0, 1, 1]),
        (true, true, [8, 8192], [0, 1, 0]),
    ] {
        let kind = WqeKind { is_read, is_atomic, ..WqeKind::default() };
        let wqe = CheckedWqe {
            kind,
            length: bits(lengths[0] + lengths[1]),
            first: sge(lengths[0]),
            tail: tail(sge(lengths[1])),
            ..wqe(1)
        };
        let good = Admission { is_good: true, ..Admission::default() };
        let message = message_of(false, false, wqe, Rest::default(), good);
        let parts = only_parts(wqe, message, true);
        let found = [parts.payload, parts.first, parts.second];
        assert_eq!(found, expected.map(bits::<13>), "{is_read} {is_atomic} {lengths:?}");
        assert_eq!((message.is_read, message.is_atomic), (is_read, is_atomic));
    }
}

#[test]
fn a_list_is_stored_before_its_message_is_planned() {
    for (index, listed, sends_nothing, next_index, step) in [
        (0, 3, false, 1, Step::Fill),
        (1, 3, false, 2, Step::Fill),
        (2, 3, false, 0, Step::Plan),
        (2, 3, true, 0, Step::Make),
        (4, 5, false, 0, Step::Plan),
    ] {
        let work = Work {
            rest: Rest { listed: bits(listed), listed_index: bits(index), ..Rest::default() },
            message: Message { sends_nothing, ..Message::default() },
            ..Work::default()
        };
        assert_eq!(after_fill(work).rest.listed_index, bits(next_index), "{index} of {listed}");
        assert_eq!(step_after_fill(work), step, "{index} of {listed}");
    }
}

#[test]
fn what_is_left_waits_for_one_turn() {
    // The message has ended, the queue pair waits for a turn already; it waits for one now.
    for (has_ended, was_queued, is_queued) in
        [(false, false, true), (false, true, true), (true, false, false), (true, true, true)]
    {
        let stored = stored(Rest { psn: bits(9), ..Rest::default() }, has_ended, was_queued);
        assert_eq!((stored.exists, stored.is_queued, stored.psn), (!has_ended, is_queued, bits(9)));
    }
    for (begins, ends, expected) in [(false, false, 5), (true, false, 6), (false, true, 4), (true, true, 5)] {
        assert_eq!(waiting_after(bits(5), begins, ends).to_u64(), expected);
    }
}
