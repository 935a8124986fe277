//! Placement of requests: from admission to host memory, and the notices of place once the payload is written.
use crate::complete::CqeToken;
use crate::host::HostSpan;
use crate::read::ResponseNotice;
use crate::sizes::{CELL_BITS, GENERATION_BITS, QUEUE_PAIR_BITS, SPAN_BITS, WRITE_COUNT_BITS};
use rnic_kernel::prelude::*;

/// Width of the body of a [`PlaceNotice`]: that of the larger kind, acknowledgements.
pub const NOTICE_BODY_BITS: usize = 28;
/// log2 of the bytes of a unit of room in the request buffer, which is its largest cell.
pub const ROOM_UNIT_LOG2: usize = 7;
/// Bits of an amount of room in the request buffer, in units of 128 bytes: up to 128 KiB.
pub const ROOM_BITS: usize = 11;
/// Width of the body of a response.
const RESPONSE_BODY_BITS: usize = 14;
/// Bits of a body that a response does not have.
const FILLER_BITS: usize = NOTICE_BODY_BITS - RESPONSE_BODY_BITS;

/// Kind of a [`PlaceNotice`], which determines the role that receives it.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum PlaceNoticeKind {
    /// An [`AckNotice`] for the responder.
    Ack,
    /// A [`ResponseNotice`] for the requester.
    Response,
}

/// Notice of place: the host has reported the payload writes of a packet and of all packets before it as done.
/// Both kinds have the same width; depending on `kind`, the notice is unpacked with [`ack_of`] or
/// [`response_of`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PlaceNotice {
    /// Kind of the notice.
    pub kind: PlaceNoticeKind,
    /// Queue pair that the packet belongs to.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of that queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// PSN of the message.
    pub psn: Bits<24>,
    /// AETH syndrome of the message (protocol 1.6).
    pub syndrome: Bits<8>,
    /// Payload writes up to the end of the packet, modulo 2^16; filled in by place.
    pub write_count: Bits<WRITE_COUNT_BITS>,
    /// The host refused a write of the packet's payload; filled in by place.
    pub write_failed: Bit,
    /// Fields that only one kind has. Unused bits are undefined.
    pub body: Bits<NOTICE_BODY_BITS>,
}

/// Acknowledgement, or release of a READ or atomic, that the responder sends once the writes before it are
/// done. A newer one of the same queue pair replaces an older one.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AckNotice {
    /// Queue pair that the request belongs to.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of that queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// AETH syndrome: ACK, NAK or RNR NAK (protocol 1.6).
    pub syndrome: Bits<8>,
    /// PSN of the acknowledge packet.
    pub psn: Bits<24>,
    /// MSN of the acknowledge packet.
    pub msn: Bits<24>,
    /// No acknowledge packet: a READ or an atomic may be answered instead.
    pub is_read: Bit,
    /// With `is_read`: the request is an atomic, which may be executed now.
    pub is_atomic: Bit,
    /// With `is_read`: the peer asks again for a READ or an atomic, which may be answered again.
    pub is_again: Bit,
    /// Host writes that must be done before the acknowledge packet leaves, modulo 2^16; filled in by place.
    pub write_count: Bits<WRITE_COUNT_BITS>,
    /// A NAK that moves the queue pair to ERR without a CQE in error: an asynchronous event reports it.
    pub has_event: Bit,
}

/// Packs an acknowledgement into a notice.
#[kernel]
pub fn ack_notice(ack: AckNotice) -> PlaceNotice {
    PlaceNotice {
        kind: PlaceNoticeKind::Ack,
        queue_pair: ack.queue_pair,
        generation: ack.generation,
        psn: ack.psn,
        syndrome: ack.syndrome,
        write_count: ack.write_count,
        write_failed: false,
        body: cat!(ack.is_again, ack.has_event, ack.is_atomic, ack.is_read, ack.msn),
    }
}

/// Unpacks a notice whose kind is [`PlaceNoticeKind::Ack`].
#[kernel]
pub fn ack_of(notice: PlaceNotice) -> AckNotice {
    AckNotice {
        queue_pair: notice.queue_pair,
        generation: notice.generation,
        syndrome: notice.syndrome,
        psn: notice.psn,
        msn: notice.body.get_bits::<24>(0),
        is_read: notice.body.get_bit(24),
        is_atomic: notice.body.get_bit(25),
        write_count: notice.write_count,
        has_event: notice.body.get_bit(26),
        is_again: notice.body.get_bit(27),
    }
}

/// Packs a response into a notice. Bits that a response does not have, and fields that place fills in, are
/// those of `filler`. Where one of both kinds is selected, `filler` is the notice of the other kind, so that
/// these bits need no multiplexer.
#[kernel]
pub fn response_notice(response: ResponseNotice, filler: PlaceNotice) -> PlaceNotice {
    PlaceNotice {
        kind: PlaceNoticeKind::Response,
        queue_pair: response.queue_pair,
        generation: response.generation,
        psn: response.psn,
        syndrome: response.syndrome,
        body: cat!(
            filler.body.get_bits::<FILLER_BITS>(RESPONSE_BODY_BITS),
            response.is_last,
            response.is_middle,
            response.is_unexpected,
            response.is_read_error,
            response.is_acknowledge,
            response.is_placed,
            response.status
        ),
        ..filler
    }
}

/// Unpacks a notice whose kind is [`PlaceNoticeKind::Response`].
#[kernel]
pub fn response_of(notice: PlaceNotice) -> ResponseNotice {
    ResponseNotice {
        queue_pair: notice.queue_pair,
        generation: notice.generation,
        psn: notice.psn,
        is_placed: notice.body.get_bit(8),
        is_middle: notice.body.get_bit(12),
        is_acknowledge: notice.body.get_bit(9),
        is_read_error: notice.body.get_bit(10),
        is_unexpected: notice.body.get_bit(11),
        syndrome: notice.syndrome,
        status: notice.body.get_bits::<8>(0),
        write_failed: notice.write_failed,
        is_last: notice.body.get_bit(13),
    }
}

/// Request for the payload of a packet that waits in the request buffer. It is made once, and gives back the cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PayloadReference {
    /// Queue pair that the packet belongs to.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// First cell of the payload.
    pub first_cell: Bits<CELL_BITS>,
    /// Bytes of the payload, 1 to 4,096.
    pub payload_bytes: Bits<SPAN_BITS>,
}

/// Placement of an admitted packet. One command for every packet, in order; its payload is the next in the
/// payload stream if `payload_bytes` is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PlaceCommand {
    /// Queue pair that the packet belongs to.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of that queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Bytes of payload in the payload stream, 0 to 4,096.
    pub payload_bytes: Bits<13>,
    /// Of a request with payload: first cell of its payload in the request buffer.
    pub first_cell: Bits<CELL_BITS>,
    /// Spans that the payload is written to, 0 to 3. Their lengths add up to `payload_bytes`; without a span
    /// the payload is dropped.
    pub span_count: Bits<2>,
    /// First span of host memory.
    pub first: HostSpan,
    /// Second span of host memory.
    pub second: HostSpan,
    /// Third span of host memory.
    pub third: HostSpan,
    /// A CQE follows the payload.
    pub has_completion: Bit,
    /// The CQE.
    pub completion: CqeToken,
    /// A notice follows the payload and the CQE.
    pub has_notice: Bit,
    /// The notice. Its kind is the role that the payload belongs to, even without `has_notice`.
    pub notice: PlaceNotice,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that differ in all fields, from a seed.
    fn number<const N: usize>(seed: u64) -> Bits<N> {
        bits(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - N))
    }

    #[test]
    fn acknowledgements_pass_through_a_notice_unchanged() {
        for seed in 0..64 {
            let ack = AckNotice {
                queue_pair: number(seed + 1),
                generation: number(seed + 2),
                syndrome: number(seed + 3),
                psn: number(seed + 4),
                msn: number(seed + 5),
                is_read: seed & 1 != 0,
                is_atomic: seed & 2 != 0,
                write_count: number(seed + 6),
                has_event: seed & 4 != 0,
                is_again: seed & 8 != 0,
            };
            let notice = ack_notice(ack);
            assert_eq!((notice.kind, notice.write_failed), (PlaceNoticeKind::Ack, false));
            assert_eq!(ack_of(notice), ack);
            assert_eq!(ack_notice(ack_of(notice)), notice);
        }
    }

    #[test]
    fn responses_pass_through_a_notice_unchanged_with_any_filler() {
        for seed in 0..64 {
            let response = ResponseNotice {
                queue_pair: number(seed + 1),
                generation: number(seed + 2),
                psn: number(seed + 3),
                is_placed: seed & 1 != 0,
                is_middle: seed & 2 != 0,
                is_acknowledge: seed & 4 != 0,
                is_read_error: seed & 8 != 0,
                is_unexpected: seed & 16 != 0,
                syndrome: number(seed + 4),
                status: number(seed + 5),
                write_failed: seed & 32 != 0,
                is_last: seed & 3 == 3,
            };
            let filler = PlaceNotice {
                body: number(seed + 6),
                write_count: number(seed + 7),
                write_failed: response.write_failed,
                ..PlaceNotice::default()
            };
            let notice = response_notice(response, filler);
            assert_eq!((notice.kind, notice.write_count), (PlaceNoticeKind::Response, filler.write_count));
            assert_eq!(response_of(notice), response);
            assert_eq!(response_notice(response_of(notice), filler), notice);
            let above = |notice: PlaceNotice| notice.body.to_u64() >> RESPONSE_BODY_BITS;
            assert_eq!(above(notice), above(filler));
        }
    }
}
