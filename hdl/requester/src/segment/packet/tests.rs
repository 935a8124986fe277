//! The rules as tables, from the numbered rules of the module and protocol 1.4, 2.2 and 2.4.
use super::*;
use crate::messages::WqeTail;
use rnic_layout::opcode::{Operation, Transport};
use rnic_layout::state::PathMtu;

fn sge(key: u64, address: u64, length: u64) -> Sge {
    Sge { key: bits(key), address: bits(address), length: bits(length) }
}

/// A message with 1,024 bytes a packet, of which `length` bytes are left.
fn rest(length: u64) -> Rest {
    Rest { path_mtu: bits(PathMtu::Bytes1024 as u64), length: bits(length), ..Rest::default() }
}

#[test]
fn the_next_packet_is_full_or_the_last_and_takes_the_first_sge_before_the_second() {
    // Bytes left, bytes of the first SGE; last, payload, parts.
    for (length, first, is_last, payload, parts) in [
        (0, 0, true, 0, [0, 0]),
        (1, 1, true, 1, [1, 0]),
        (1023, 1000, true, 1023, [1000, 23]),
        (1024, 1024, true, 1024, [1024, 0]),
        (1025, 1025, false, 1024, [1024, 0]),
        (5000, 1, false, 1024, [1, 1023]),
        (5000, 1023, false, 1024, [1023, 1]),
        (5000, 1024, false, 1024, [1024, 0]),
        (1 << 31, 1 << 30, false, 1024, [1024, 0]),
    ] {
        let found = next_parts(Rest { first: sge(1, 0, first), ..rest(length) });
        assert_eq!((found.is_last, found.payload), (is_last, bits(payload)), "{length}");
        assert_eq!([found.first, found.second], parts.map(bits::<13>), "{length} {first}");
    }
    use PathMtu::{Bytes256, Bytes512, Bytes1024, Bytes2048, Bytes4096};
    for (code, bytes) in
        [(Bytes256, 256), (Bytes512, 512), (Bytes1024, 1024), (Bytes2048, 2048), (Bytes4096, 4096)]
    {
        let found = next_parts(Rest { path_mtu: bits(code as u64), ..rest(1 << 20) });
        assert_eq!((found.is_last, found.payload), (false, bits(bytes)), "{code:?}");
    }
}

#[test]
fn each_sge_of_a_packet_has_one_request() {
    // Parts, list, nothing to send; requests for the first, the second, the list.
    for (first, second, is_listed, sends_nothing, expected) in [
        (0, 0, false, false, [false, false, false]),
        (9, 0, false, false, [true, false, false]),
        (9, 1, false, false, [true, true, false]),
        (9, 0, true, false, [true, false, false]),
        (9, 1, true, false, [true, false, true]),
        (9, 1, false, true, [false, false, false]),
        (9, 1, true, true, [false, false, false]),
    ] {
        let work = Work {
            rest: Rest { listed: bits(u64::from(is_listed) * 3), ..Rest::default() },
            message: Message { sends_nothing, ..Message::default() },
            parts: Parts { first: bits(first), second: bits(second), ..Parts::default() },
            ..Work::default()
        };
        let found = requests_of(work);
        assert_eq!([found.has_first, found.has_second, found.has_listed], expected, "{first} {second}");
        let packet = packet_of(bits(5), false, true, CheckedWqe::default(), work, found);
        let counted = u64::from(found.has_first) + u64::from(found.has_second);
        assert_eq!((packet.request_count, packet.is_listed), (bits(counted), found.has_listed));
    }
}

#[test]
fn opcodes_say_where_in_its_message_a_packet_is() {
    use Operation::{
        SendFirst, SendLast, SendLastImmediate, SendLastInvalidate, SendMiddle, SendOnly, SendOnlyImmediate,
        SendOnlyInvalidate, WriteFirst, WriteLast, WriteLastImmediate, WriteMiddle, WriteOnly,
        WriteOnlyImmediate,
    };
    // WRITE, immediate data, invalidate; ONLY, FIRST, MIDDLE, LAST.
    for (is_write, has_immediate, with_invalidate, expected) in [
        (false, false, false, [SendOnly, SendFirst, SendMiddle, SendLast]),
        (false, true, false, [SendOnlyImmediate, SendFirst, SendMiddle, SendLastImmediate]),
        (false, false, true, [SendOnlyInvalidate, SendFirst, SendMiddle, SendLastInvalidate]),
        (true, false, false, [WriteOnly, WriteFirst, WriteMiddle, WriteLast]),
        (true, true, false, [WriteOnlyImmediate, WriteFirst, WriteMiddle, WriteLastImmediate]),
    ] {
        let current = Rest { is_write, has_immediate, with_invalidate, ..Rest::default() };
        for ((starts, is_last), operation) in
            [(true, true), (true, false), (false, false), (false, true)].into_iter().zip(expected)
        {
            let message = Message { starts, ..Message::default() };
            let code = Transport::Rc.base() | operation.code();
            assert_eq!(opcode_of(current, message, is_last, false), bits(u64::from(code)), "{operation:?}");
        }
    }
    for (is_atomic, is_compare, operation) in [
        (false, false, Operation::ReadRequest),
        (true, true, Operation::CompareSwap),
        (true, false, Operation::FetchAdd),
    ] {
        let message = Message { starts: true, is_read: true, is_atomic, ..Message::default() };
        let code = Transport::Rc.base() | operation.code();
        assert_eq!(opcode_of(Rest::default(), message, true, is_compare), bits(u64::from(code)));
    }
}

#[test]
fn reth_is_in_first_and_only_and_immediate_data_in_last_and_only() {
    let reth = bits::<128>(0x1234_5678_9abc_def0);
    let wqe = CheckedWqe { reth, ..CheckedWqe::default() };
    let immediate = bits::<32>(0xaabb_ccdd);
    let none = bits::<32>(0);
    let with_reth = |immediate: Bits<32>| cat!(bits::<64>(0), immediate, reth);
    let without = |immediate: Bits<32>| cat!(bits::<192>(0), immediate);
    // WRITE, READ, first packet, last packet.
    for (is_write, is_read, starts, is_last, expected) in [
        (true, false, true, true, with_reth(immediate)),
        (true, false, true, false, with_reth(none)),
        (true, false, false, false, without(none)),
        (true, false, false, true, without(immediate)),
        (false, false, true, false, without(none)),
        (false, false, true, true, without(immediate)),
        (false, true, true, true, with_reth(immediate)),
    ] {
        let current = Rest { is_write, immediate, domain: bits(0x77), ..Rest::default() };
        let message = Message { starts, is_read, ..Message::default() };
        let found: Bits<EXTENDED_BITS> = extended_of(wqe, current, message, is_last);
        assert_eq!(found, expected, "{is_write} {is_read} {starts} {is_last}");
    }
    let current = Rest { immediate, domain: bits(0x77), ..Rest::default() };
    let message = Message { starts: true, is_local: true, ..Message::default() };
    let expected: Bits<EXTENDED_BITS> = cat!(bits::<168>(0), bits::<24>(0x77), immediate);
    assert_eq!(extended_of(wqe, current, message, true), expected, "key and protection domain");
    // AtomicETH: address, key, swap or add, compare, each with its first byte on the wire lowest.
    let tail = WqeTail { bytes: cat!(bits::<64>(0x0102), bits::<64>(0x0304)) };
    let message = Message { starts: true, is_read: true, is_atomic: true, ..Message::default() };
    let expected: Bits<EXTENDED_BITS> =
        cat!(swap_bytes(bits::<64>(0x0304)), swap_bytes(bits::<64>(0x0102)), reth.get_bits::<96>(0));
    assert_eq!(extended_of(CheckedWqe { tail, ..wqe }, current, message, true), expected);
}

#[test]
fn acknowledgements_are_requested_in_the_last_packet_and_in_every_32nd() {
    for (asked, is_last, packets, expected) in [
        (false, true, 0, false),
        (true, false, 0, false),
        (true, true, 0, true),
        (false, false, 30, false),
        (false, false, 31, true),
    ] {
        let current = Rest { ack_request: asked, packets: bits(packets), ..Rest::default() };
        assert_eq!(asks_for_ack(current, is_last), expected, "{asked} {is_last} {packets}");
    }
}

#[test]
fn what_is_not_sent_is_flushed_unless_it_has_a_status() {
    use CompletionStatus::{Flushed, LocalLength, Success};
    // First packet, nothing to send, LOCAL_INVALIDATE that is executed, status.
    for (starts, sends_nothing, is_local, status, expected) in [
        (true, false, false, Success, Success),
        (true, true, false, Success, Flushed),
        (true, true, false, LocalLength, LocalLength),
        (true, true, true, Success, Success),
        (false, false, false, LocalLength, Success),
        (false, true, false, Success, Success),
    ] {
        let message = Message { starts, sends_nothing, is_local, ..Message::default() };
        let found = status_of(bits(status as u64), message);
        assert_eq!(found, bits(expected as u64), "{starts} {sends_nothing} {is_local} {status:?}");
    }
}

#[test]
fn only_the_first_packet_has_what_its_wqe_has_once() {
    let header =
        WqeHeader { is_first: true, is_open: true, is_empty: true, ends_burst: true, ..Default::default() };
    let wqe = CheckedWqe { header, inline_count: bits(2), solicited: true, ..CheckedWqe::default() };
    // First packet, last packet, the message or turn ends, nothing to send, a turn.
    for (starts, is_last, ends, sends_nothing, is_turn) in [
        (true, true, true, false, false),
        (true, false, false, false, false),
        (false, false, true, false, true),
        (false, true, true, false, true),
        (false, false, true, true, true),
    ] {
        let work = Work {
            rest: Rest { solicited: true, ..Rest::default() },
            message: Message { starts, sends_nothing, ends_burst: true, ..Message::default() },
            parts: Parts { is_last, ..Parts::default() },
            ..Work::default()
        };
        let packet = packet_of(bits(5), is_turn, ends, wqe, work, Requests::default());
        assert_eq!((packet.starts, packet.header.is_first, packet.header.is_open), (starts, starts, starts));
        assert_eq!(packet.inline_count, bits(if starts { 2 } else { 0 }));
        assert_eq!(packet.header.is_empty, starts || sends_nothing, "the WQE is empty here");
        assert_eq!((packet.header.ends_burst, packet.ends_turn), (ends, ends && is_turn));
        assert_eq!(packet.solicited, is_last);
    }
}

#[test]
fn an_access_request_is_for_the_bytes_of_the_packet_or_the_whole_sge_of_a_read() {
    let work = Work {
        rest: Rest { first: sge(1, 0x1000, 5000), second: sge(2, 0x2000, 5000), ..Rest::default() },
        parts: Parts { first: bits(100), second: bits(60), ..Parts::default() },
        ..Work::default()
    };
    // The step, the SGE of the list; key and bytes.
    for (step, listed, key, bytes) in [
        (Step::Make, 40, 1, 100),
        (Step::Second, 40, 2, 60),
        (Step::Listed, 40, 3, 40),
        (Step::Listed, 60, 3, 60),
        (Step::Listed, 61, 3, 60),
    ] {
        let taken = taken_of(step, work, sge(3, 0x3000, listed));
        assert_eq!((taken.sge.key, taken.bytes), (bits(key), bits(bytes)), "{step:?} {listed}");
        for is_read in [false, true] {
            let request = access_of(taken, bits(9), is_read);
            let length = if is_read { taken.sge.length } else { bits(bytes) };
            assert_eq!((request.key, request.length), (bits(key), length));
            assert_eq!((request.address, request.domain), (taken.sge.address, bits(9)));
            assert_eq!(request.local_write, is_read);
        }
    }
}

#[test]
fn a_packet_ends_in_the_sge_of_a_list_that_has_bytes_left_or_is_the_last() {
    // Bytes of the SGE, bytes that are missing, SGEs in the list; ends here, is the last part.
    for (length, missing, listed, ends, is_last) in [
        (40, 60, 2, false, false),
        (60, 60, 2, false, true),
        (61, 60, 2, true, true),
        (60, 60, 1, true, true),
        (40, 0, 2, true, true),
    ] {
        assert_eq!(ends_list(bits(length), bits(missing), bits(listed)), ends, "{length} {missing}");
        let work = Work { parts: Parts { second: bits(missing), ..Parts::default() }, ..Work::default() };
        let taken = taken_of(Step::Listed, work, sge(3, 0x3000, length));
        assert_eq!(is_used_up(taken), length <= missing, "{length} {missing}");
        assert_eq!(listed_part(taken, bits(missing)), SgePart { length: taken.bytes, is_last });
        assert_eq!(sge_after(taken).length, bits(length - taken.bytes.to_u64()));
    }
}

#[test]
fn what_is_left_of_the_sges_is_what_the_packet_has_not_taken() {
    let (first, second) = (sge(1, 0x1000, 100), sge(2, 0x2000, 50));
    let none = Sge::default();
    let work = |first_part, second_part| Work {
        rest: Rest { first, second, psn: bits(0xff_ffff), packets: bits(31), ..rest(150) },
        message: Message { starts: true, ..Message::default() },
        parts: Parts {
            payload: bits(first_part + second_part),
            first: bits(first_part),
            second: bits(second_part),
            is_last: false,
        },
        packets_left: bits(7),
    };
    // A part of the first, all of the first.
    for (bytes, left) in [(40, [sge(1, 0x1028, 60), second]), (100, [second, none])] {
        let work = work(bytes, 0);
        let after = after_packet(work, taken_of(Step::Make, work, none), false, false);
        assert_eq!([after.rest.first, after.rest.second], left, "{bytes}");
        assert_eq!((after.rest.psn, after.rest.packets, after.packets_left), (bits(0), bits(0), bits(6)));
        assert_eq!((after.rest.length, after.message.starts), (bits(150 - bytes), false));
        let walks = after_packet(work, taken_of(Step::Make, work, none), false, true);
        assert_eq!(walks.packets_left, bits(7), "the packet goes on in the list");
    }
    // All of the first and a part of the second, a cycle later.
    let both = work(100, 20);
    let made = after_packet(both, taken_of(Step::Make, both, none), true, false);
    assert_eq!((made.rest.first, made.rest.second, made.packets_left), (first, second, bits(7)));
    let after = after_second(made, taken_of(Step::Second, made, none));
    assert_eq!((after.rest.first, after.rest.second), (sge(2, 0x2014, 30), none));
    assert_eq!(after.packets_left, bits(6));
    // An SGE of the list takes the place of the first.
    let listed = Work { rest: Rest { listed: bits(2), listed_index: bits(7), ..both.rest }, ..both };
    for ends in [false, true] {
        let after = after_listed(listed, taken_of(Step::Listed, listed, sge(3, 0x3000, 15)), ends);
        assert_eq!(after.rest.first, sge(3, 0x300f, 0));
        assert_eq!((after.rest.listed, after.rest.listed_index), (bits(1), bits(0)), "the index wraps");
        assert_eq!(after.parts.second, bits(5));
        assert_eq!(after.packets_left, bits(if ends { 6 } else { 7 }));
    }
    assert_eq!(listed_place(Step::Listed, bits(7)), bits(0));
    assert_eq!(listed_place(Step::Make, bits(7)), bits(7));
}

#[test]
fn a_message_ends_or_goes_on_with_a_packet_or_a_turn() {
    for (has_ended, is_turn, ends, expected) in [
        (true, false, true, Step::Idle),
        (true, true, true, Step::Store),
        (false, false, true, Step::Store),
        (false, true, true, Step::Store),
        (false, false, false, Step::Plan),
        (false, true, false, Step::Plan),
    ] {
        assert_eq!(step_after_packet(has_ended, is_turn, ends), expected, "{has_ended} {is_turn} {ends}");
    }
    for (has_second, walks, expected) in
        [(true, false, Step::Second), (false, true, Step::Listed), (false, false, Step::Plan)]
    {
        assert_eq!(step_after_make(has_second, walks, Step::Plan), expected);
    }
}

#[test]
fn a_packet_counts_as_96_bytes_more_than_its_payload() {
    // Share in units of 32 bytes, payload, nothing to send.
    for (share, payload, sends_nothing, expected) in [
        (0, 0, false, 3),
        (0, 31, false, 3),
        (0, 32, false, 4),
        (10, 4096, false, 141),
        (10, 4096, true, 13),
        (511, 4096, false, 642),
        (512, 4096, false, 512),
    ] {
        let work = Work {
            message: Message { sends_nothing, ..Message::default() },
            parts: Parts { payload: bits(payload), ..Parts::default() },
            ..Work::default()
        };
        assert_eq!(share_after(bits(share), work), bits(expected), "{share} {payload}");
        // A packet, a turn that is loaded, neither.
        for (loads_turn, makes, next) in [(false, true, expected), (true, false, 0), (false, false, share)] {
            assert_eq!(share_next(loads_turn, makes, bits(share), work), bits(next), "{share} {payload}");
        }
    }
}
