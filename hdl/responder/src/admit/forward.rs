//! Messages of [`Admit`](super::Admit): the packet with the decision on it, the operands of an atomic, and the
//! receive ring.
use super::check::{Findings, PacketClass};
use super::outcome::{Outcome, reply_psn, syndrome_of};
use super::record::{AdmitPath, AdmitRecord, Message};
use crate::messages::{Admitted, AtomicOperands, Decision, Responses};
use rnic_kernel::prelude::*;
use rnic_layout::opcode::Operation;
use rnic_messages::doorbell::{own_ring, shared_ring};
use rnic_messages::packet::{EXTENDED_BITS, PacketToken};
use rnic_messages::read::READ_SLOT_BITS;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, RECEIVE_RING_BITS};

/// Decides whether a packet is forwarded: what is dropped has to be, if its payload waits in the receive buffer.
/// A flush always is.
#[kernel]
pub(super) fn is_forwarded(is_decided: Bit, outcome: Outcome, payload_bytes: Bits<13>) -> Bit {
    outcome.flush.flushes || (is_decided && (outcome.decision != Decision::Drop || payload_bytes.any()))
}

/// Gives the immediate data as it is on the wire, or the key to invalidate as a number. They are after the RETH
/// of a WRITE, else first.
#[kernel]
fn immediate_of(class: PacketClass, extended: Bits<EXTENDED_BITS>) -> Bits<32> {
    let with_reth = class.is_write && class.starts;
    if with_reth {
        extended.get_bits::<32>(128)
    } else if class.with_invalidate {
        swap_bytes(extended.get_bits::<32>(0))
    } else {
        extended.get_bits::<32>(0)
    }
}

/// Makes the packet of `queue_pair` that later stages get. `record` is the one before the packet, `after` the one after it.
#[kernel]
pub(super) fn admitted_of(
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    token: PacketToken,
    path: AdmitPath,
    record: AdmitRecord,
    after: AdmitRecord,
    found: Findings,
    outcome: Outcome,
) -> Admitted {
    let executes = outcome.executes;
    let flushes = outcome.flush.flushes;
    let class = found.class;
    let uses_held = record.message == Message::Send && (executes || outcome.refuses || flushes);
    Admitted {
        decision: outcome.decision,
        is_send: class.is_send || flushes || uses_held,
        is_read: executes && class.is_read,
        is_atomic: executes && class.is_atomic,
        is_again: outcome.asks_again,
        is_atomic_again: outcome.asks_again && class.is_atomic,
        starts: class.starts,
        ends: class.ends,
        takes_wqe: outcome.takes_wqe || outcome.flush.takes_wqe,
        uses_held,
        is_last_wqe: outcome.flush.reports_last_wqe,
        starts_generation: !record.is_known,
        queue_pair,
        generation: path.generation,
        qp_number: path.local_qp,
        domain: path.domain,
        completion_queue: path.completion_queue,
        payload_bytes: select(flushes, bits::<13>(0), token.payload_bytes),
        first_cell: token.first_cell,
        address: found.transfer.address,
        key: found.transfer.key,
        message_length: found.transfer.length,
        immediate: immediate_of(class, token.extended),
        with_immediate: class.with_immediate && !flushes,
        with_invalidate: class.with_invalidate && executes,
        solicited: token.solicited && !flushes,
        consumer_index: after.receive_index,
        has_reply: token.ack_request
            || outcome.refuses
            || outcome.is_not_ready
            || outcome.naks_gap
            || outcome.asks_again
            || (executes && class.is_read),
        syndrome: syndrome_of(outcome, path.min_rnr_timer),
        psn: reply_psn(outcome, token.psn, record.expected_psn, record.read_psns),
        msn: after.msn,
        responses: Responses {
            last_psn: token.psn + found.responses,
            slot: record.reads.get_bits::<READ_SLOT_BITS>(0),
            share: path.read_share,
        },
    }
}

/// Gives the operands of an atomic, as they follow the RETH fields in its AtomicETH.
#[kernel]
pub(super) fn operands_of(token: PacketToken) -> AtomicOperands {
    AtomicOperands {
        is_compare: token.opcode == Operation::CompareSwap as u64,
        operand: swap_bytes(token.extended.get_bits::<64>(96)),
        compare: swap_bytes(token.extended.get_bits::<64>(160)),
    }
}

/// Gives the receive ring of a queue pair: its own, or that of its SRQ.
#[kernel]
pub(super) fn ring_of(queue_pair: Bits<QUEUE_PAIR_BITS>, path: AdmitPath) -> Bits<RECEIVE_RING_BITS> {
    if path.is_shared { shared_ring(path.shared) } else { own_ring(queue_pair) }
}

#[cfg(test)]
mod tests {
    use super::super::check::class_of;
    use super::super::outcome::Flush;
    use super::*;
    use rnic_messages::read::ReadShare;

    #[test]
    fn a_dropped_packet_is_forwarded_only_for_its_payload() {
        let flush = Outcome {
            decision: Decision::Flush,
            flush: Flush { flushes: true, ..Flush::default() },
            ..Outcome::default()
        };
        let of = |decision| Outcome { decision, ..Outcome::default() };
        for (is_decided, outcome, payload_bytes, expected) in [
            (true, of(Decision::Drop), 0, false),
            (true, of(Decision::Drop), 1, true),
            (true, of(Decision::Reply), 0, true),
            (true, of(Decision::Execute), 0, true),
            (true, of(Decision::Refuse), 0, true),
            (false, of(Decision::Execute), 64, false),
            (false, flush, 0, true),
        ] {
            assert_eq!(
                is_forwarded(is_decided, outcome, bits(payload_bytes)),
                expected,
                "{is_decided} {outcome:?} {payload_bytes}"
            );
        }
    }

    /// Protocol 1.4: ImmDt follows the RETH of WRITE ONLY, and is first elsewhere; an IETH is a number.
    #[test]
    fn the_immediate_is_where_its_opcode_has_it() {
        let first = bits::<EXTENDED_BITS>(0x0403_0201);
        let extended = first | (bits::<EXTENDED_BITS>(0x0d0c_0b0a) << 128u64);
        for (opcode, expected) in [
            (0x03, 0x0403_0201),
            (0x05, 0x0403_0201),
            (0x09, 0x0403_0201),
            (0x0b, 0x0d0c_0b0a),
            (0x16, 0x0102_0304),
            (0x17, 0x0102_0304),
        ] {
            assert_eq!(
                immediate_of(class_of(bits(opcode)), extended),
                bits(expected),
                "opcode {opcode:#04x}"
            );
        }
    }

    /// Protocol 1.4: AtomicETH has address, key, swap or add data, and compare data.
    #[test]
    fn operands_are_big_endian_after_address_and_key() {
        let wire: Vec<u8> = (0..28).collect();
        let extended = wire
            .iter()
            .rev()
            .fold(bits::<EXTENDED_BITS>(0), |value, byte| (value << 8u64) | u64::from(*byte));
        for (opcode, is_compare) in [(0x13, true), (0x14, false)] {
            let token = PacketToken { opcode: bits(opcode), extended, ..PacketToken::default() };
            let expected = AtomicOperands {
                is_compare,
                operand: bits(0x0c0d_0e0f_1011_1213),
                compare: bits(0x1415_1617_1819_1a1b),
            };
            assert_eq!(operands_of(token), expected);
        }
    }

    #[test]
    fn wqes_come_from_the_ring_of_the_queue_pair_or_of_its_srq() {
        let path = AdmitPath { shared: bits(63), ..Default::default() };
        for (is_shared, ring) in [(false, 0x3ff), (true, 0x43f)] {
            assert_eq!(ring_of(bits(0x3ff), AdmitPath { is_shared, ..path }), bits(ring));
        }
    }

    /// Protocol 3.4, 3.7, 3.8: who is answered, and what holds the WQE of a SEND.
    #[test]
    fn a_packet_carries_the_reply_of_its_outcome() {
        let executed = Outcome { decision: Decision::Execute, executes: true, ..Outcome::default() };
        let refused = Outcome { decision: Decision::Refuse, refuses: true, ..Outcome::default() };
        let reply = Outcome { decision: Decision::Reply, ..Outcome::default() };
        // Opcode, message before, outcome, AckReq; has a reply, uses the WQE that is held.
        for (opcode, message, outcome, ack_request, has_reply, uses_held) in [
            (0x04, Message::Nothing, executed, true, true, false),
            (0x04, Message::Nothing, executed, false, false, false),
            (0x0c, Message::Nothing, executed, false, true, false),
            (0x13, Message::Nothing, executed, false, true, false),
            (0x01, Message::Send, executed, false, false, true),
            (0x07, Message::Write, executed, false, false, false),
            (0x0a, Message::Send, refused, false, true, true),
            (0x0a, Message::Nothing, refused, false, true, false),
            (0x04, Message::Nothing, Outcome { is_not_ready: true, ..reply }, false, true, false),
            (0x04, Message::Send, Outcome { naks_gap: true, ..reply }, false, true, false),
            (0x04, Message::Send, Outcome { repeats: true, ..reply }, true, true, false),
        ] {
            let found = Findings { class: class_of(bits(opcode)), ..Findings::default() };
            let token = PacketToken { ack_request, ..PacketToken::default() };
            let record = AdmitRecord { message, ..AdmitRecord::default() };
            let packet = admitted_of(bits(3), token, AdmitPath::default(), record, record, found, outcome);
            let row = format!("opcode {opcode:#04x} {message:?} {outcome:?}");
            assert_eq!((packet.has_reply, packet.uses_held), (has_reply, uses_held), "{row}");
            let is_read = outcome.executes && matches!(opcode, 0x0c | 0x13);
            assert_eq!((packet.is_read, packet.is_atomic), (is_read, is_read && opcode == 0x13), "{row}");
            let is_send = matches!(opcode, 0x01 | 0x04) || uses_held;
            assert_eq!(packet.is_send, is_send, "{row}");
        }
    }

    #[test]
    fn a_flush_carries_neither_payload_nor_immediate_of_an_earlier_packet() {
        let outcome = Outcome {
            decision: Decision::Flush,
            flush: Flush { flushes: true, takes_wqe: true, reports_last_wqe: false },
            ..Outcome::default()
        };
        let found = Findings { class: class_of(bits(0x0b)), ..Findings::default() };
        let token = PacketToken { payload_bytes: bits(64), solicited: true, ..PacketToken::default() };
        let record = AdmitRecord::default();
        let packet = admitted_of(bits(3), token, AdmitPath::default(), record, record, found, outcome);
        assert_eq!(packet.payload_bytes, bits(0));
        assert!(!packet.solicited && !packet.with_immediate && packet.takes_wqe && packet.is_send);
    }

    #[test]
    fn numbers_of_the_reply_are_those_after_the_packet_and_the_slot_is_the_one_before() {
        let record = AdmitRecord { reads: bits(17), msn: bits(5), ..AdmitRecord::default() };
        let after = AdmitRecord { reads: bits(18), msn: bits(6), receive_index: bits(9), ..record };
        let found = Findings { responses: bits(2), ..Findings::default() };
        let token = PacketToken { psn: bits(0xff_ffff), ..PacketToken::default() };
        let share = ReadShare { unit: bits(6), size: bits(2) };
        let path = AdmitPath { read_share: share, ..AdmitPath::default() };
        let packet = admitted_of(bits(3), token, path, record, after, found, Outcome::default());
        assert_eq!((packet.msn, packet.consumer_index), (bits(6), bits(9)));
        assert_eq!(packet.responses, Responses { last_psn: bits(1), slot: bits(1), share });
    }
}
