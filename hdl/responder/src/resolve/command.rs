//! Messages of [`Resolve`](super::Resolve): the command to place, and the request to the READ responder.
use super::outcome::{Outcome, reply_msn, status_of, syndrome_of};
use crate::messages::{Admitted, Scattered};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionOpcode;
use rnic_messages::complete::CqeToken;
use rnic_messages::host::HostSpan;
use rnic_messages::read::ReadRequest;
use rnic_messages::receive::{AckNotice, PlaceCommand, ack_notice};

/// Device addresses of the parts of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Addresses {
    /// Address of the first part.
    pub first: Bits<64>,
    /// Address of the second part.
    pub second: Bits<64>,
    /// Address of the third part.
    pub third: Bits<64>,
}

/// Gives the addresses of `count` parts from the last three access answers, of which the last `count` belong to
/// the packet.
#[kernel]
pub(super) fn addresses_of(
    count: Bits<2>,
    oldest: Bits<64>,
    middle: Bits<64>,
    newest: Bits<64>,
) -> Addresses {
    Addresses {
        first: if count == 3 {
            oldest
        } else if count == 2 {
            middle
        } else {
            newest
        },
        second: select(count == 3, middle, newest),
        third: newest,
    }
}

/// Makes the CQE of the receive WQE.
#[kernel]
fn cqe_of(scattered: Scattered, outcome: Outcome, syndrome: Bits<8>) -> CqeToken {
    let packet = scattered.packet;
    CqeToken {
        completion_queue: packet.completion_queue,
        wr_id: scattered.wr_id,
        length: scattered.message_bytes,
        immediate: packet.immediate,
        qp_number: packet.qp_number,
        queue_pair: packet.queue_pair,
        generation: packet.generation,
        consumer_index: packet.consumer_index,
        opcode: select(
            packet.is_send,
            bits::<8>(CompletionOpcode::Receive as u64),
            bits::<8>(CompletionOpcode::ReceiveWrite as u64),
        ),
        status: status_of(packet, scattered.fault, outcome),
        vendor_error: select(outcome.fails, syndrome, bits::<8>(0)),
        with_immediate: packet.with_immediate && outcome.is_done,
        with_invalidate: packet.with_invalidate && outcome.is_done,
        solicited: packet.solicited && outcome.is_done,
        is_last: packet.is_last_wqe,
    }
}

/// Makes the command to place. Payload is placed only if the packet is executed; a failure raises an event
/// unless a CQE reports it.
#[kernel]
pub(super) fn place_command_of(
    scattered: Scattered,
    outcome: Outcome,
    addresses: Addresses,
    has_completion: Bit,
    has_reply: Bit,
) -> PlaceCommand {
    let packet = scattered.packet;
    let is_read = outcome.is_done && packet.is_read;
    let is_again = packet.is_again && has_reply;
    let syndrome = syndrome_of(packet, scattered.fault, outcome);
    PlaceCommand {
        queue_pair: packet.queue_pair,
        generation: packet.generation,
        payload_bytes: packet.payload_bytes,
        first_cell: packet.first_cell,
        span_count: select(outcome.is_done && !packet.is_read, scattered.answer_count, bits::<2>(0)),
        first: HostSpan { address: addresses.first, length: scattered.parts.first },
        second: HostSpan { address: addresses.second, length: scattered.parts.second },
        third: HostSpan { address: addresses.third, length: scattered.parts.third },
        has_completion,
        completion: cqe_of(scattered, outcome, syndrome),
        has_notice: has_reply,
        notice: ack_notice(AckNotice {
            queue_pair: packet.queue_pair,
            generation: packet.generation,
            syndrome,
            psn: select(is_read, packet.responses.last_psn, packet.psn),
            msn: reply_msn(packet, outcome),
            is_read: is_read || is_again,
            is_again,
            is_atomic: outcome.is_done && packet.is_atomic,
            has_event: outcome.fails && !has_completion,
            ..Default::default()
        }),
    }
}

/// Makes the request to the READ responder; an atomic reads no bytes there.
#[kernel]
pub(super) fn read_request_of(packet: Admitted) -> ReadRequest {
    let is_atomic = packet.is_atomic || packet.is_atomic_again;
    ReadRequest {
        queue_pair: packet.queue_pair,
        generation: packet.generation,
        psn: packet.psn,
        last_psn: packet.responses.last_psn,
        msn: packet.msn,
        key: packet.key,
        address: packet.address,
        length: select(is_atomic, bits::<32>(0), packet.message_length),
        is_atomic,
        is_again: packet.is_again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Decision, Parts, Responses};
    use rnic_messages::receive::ack_of;

    const DONE: Outcome = Outcome {
        is_stale: false,
        is_late: false,
        is_invalid: false,
        is_broken: false,
        is_kept_out: false,
        is_local: false,
        may_be_done: true,
        is_done: true,
        fails: false,
    };
    const REFUSED: Outcome =
        Outcome { is_kept_out: true, fails: true, may_be_done: false, is_done: false, ..DONE };

    fn packet() -> Admitted {
        Admitted {
            decision: Decision::Execute,
            payload_bytes: bits(30),
            first_cell: bits(9),
            message_length: bits(100),
            syndrome: bits(0x1f),
            psn: bits(5),
            msn: bits(6),
            responses: Responses { last_psn: bits(9), slot: bits(2), ..Responses::default() },
            solicited: true,
            with_immediate: true,
            ..Admitted::default()
        }
    }

    #[test]
    fn addresses_are_in_the_order_of_the_parts() {
        for (count, expected) in [(1, [3, 3, 3]), (2, [2, 3, 3]), (3, [1, 2, 3])] {
            let addresses = addresses_of(bits(count), bits(1), bits(2), bits(3));
            let expected = expected.map(bits);
            let found = [addresses.first, addresses.second, addresses.third];
            let count = count as usize;
            assert_eq!(found[..count], expected[..count]);
        }
    }

    #[test]
    fn only_executed_packets_are_placed() {
        let read = Admitted { is_read: true, ..packet() };
        for (packet, outcome, spans, psn) in
            [(packet(), DONE, 2, 5), (packet(), REFUSED, 0, 5), (read, DONE, 0, 9), (read, REFUSED, 0, 5)]
        {
            let parts = Parts { first: bits(10), second: bits(20), third: bits(0) };
            let scattered = Scattered { packet, answer_count: bits(2), parts, ..Scattered::default() };
            let addresses = Addresses { first: bits(0x1000), second: bits(0x2000), third: bits(0) };
            let command = place_command_of(scattered, outcome, addresses, false, true);
            assert_eq!((command.span_count, command.payload_bytes), (bits(spans), bits(30)));
            assert_eq!(command.first_cell, bits(9), "whatever becomes of it, its cells return");
            assert_eq!(command.first, HostSpan { address: bits(0x1000), length: bits(10) });
            assert_eq!(
                (ack_of(command.notice).psn, ack_of(command.notice).is_read),
                (bits(psn), packet.is_read && outcome.is_done)
            );
        }
    }

    #[test]
    fn a_failure_is_reported_by_its_completion_or_by_an_event() {
        let scattered = Scattered { packet: packet(), ..Scattered::default() };
        for (outcome, has_completion, has_event, is_good) in
            [(DONE, true, false, true), (REFUSED, true, false, false), (REFUSED, false, true, false)]
        {
            let command = place_command_of(scattered, outcome, Addresses::default(), has_completion, true);
            assert_eq!(ack_of(command.notice).has_event, has_event);
            let cqe = command.completion;
            assert_eq!((cqe.solicited, cqe.with_immediate), (is_good, is_good));
            assert_eq!(cqe.vendor_error.any(), !is_good);
        }
    }

    #[test]
    fn an_atomic_requests_no_bytes_of_the_read_responder() {
        let atomic = Admitted { is_read: true, is_atomic: true, ..packet() };
        assert_eq!(read_request_of(atomic).length, bits(0));
        let read = read_request_of(Admitted { is_read: true, ..packet() });
        assert_eq!((read.length, read.psn, read.msn), (bits(100), bits(5), bits(6)));
    }
}
