//! Packets to send: from segmentation, acknowledgement and the read responder to the wire.
use crate::host::HostSpan;
use crate::packet::{EXTENDED_BITS, PacketToken};
use crate::sizes::{EPOCH_BITS, GENERATION_BITS, QUEUE_PAIR_BITS};
use rnic_kernel::prelude::*;

/// Headers of a packet to send, except the fields of the path, which `address_vector` adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct TransmitRequest {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair; a packet of an older generation is dropped.
    pub generation: Bits<GENERATION_BITS>,
    /// BTH: opcode.
    pub opcode: Bits<8>,
    /// BTH: SE, solicited event.
    pub solicited: Bit,
    /// BTH: AckReq, the responder must acknowledge.
    pub ack_request: Bit,
    /// AckReq is also set if the packet is the newest issued packet of its queue pair when it leaves.
    pub asks_if_newest: Bit,
    /// BTH: PSN.
    pub psn: Bits<24>,
    /// A packet with this PSN was sent before.
    pub is_repeated: Bit,
    /// Extended headers in wire order, first byte in bits 7:0; the bits after them are zero.
    pub extended: Bits<EXTENDED_BITS>,
    /// Length of the payload in bytes, without pad.
    pub payload_bytes: Bits<13>,
    /// The packet is a READ response.
    pub is_response: Bit,
    /// The packet is the last response to its READ, and no NAK in its place.
    pub ends_response: Bit,
    /// Of a request: PSN after it, or after its last response if it is a READ.
    pub next_psn: Bits<24>,
    /// Of a request: epoch of its queue pair in which it was issued.
    pub epoch: Bits<EPOCH_BITS>,
}

/// A request has left the card, as far as anything can hold it up there.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Departed {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// PSN after the request, or after its last response if it is a READ.
    pub next_psn: Bits<24>,
    /// Epoch of its queue pair in which it was issued.
    pub epoch: Bits<EPOCH_BITS>,
    /// It leaves in this cycle.
    pub valid: Bit,
}

/// Tells of a packet that `leaves`.
#[kernel]
pub fn departed_of(packet: TransmitRequest, leaves: Bit) -> Departed {
    Departed {
        queue_pair: packet.queue_pair,
        generation: packet.generation,
        next_psn: packet.next_psn,
        epoch: packet.epoch,
        valid: leaves && !packet.is_response,
    }
}

/// PSN up to which the packets of a queue pair have been issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct IssuedPsn {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// PSN after the newest packet, or after its last response if it is a READ.
    pub psn: Bits<24>,
}

/// A packet to send, with the location of its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct GatherCommand {
    /// Headers of the packet.
    pub headers: TransmitRequest,
    /// No packet: comes back as a `GatherFailure` once the payload of all packets before it has been read, or was not given. Of
    /// `headers` only queue pair and generation count, and there is no payload.
    pub is_mark: Bit,
    /// The payload is in the stream of inline data, from byte 32 of its first slot on: no slot for no payload,
    /// one slot for up to 32 bytes, two for up to 96. The slots may arrive before or after this command.
    pub is_inline: Bit,
    /// The next command has more spans of the payload of this packet; its other fields are equal. Each of these
    /// commands has at least one byte in its spans.
    pub continues: Bit,
    /// Spans in use, 0 to 2, concatenated, if the payload is not inline. The lengths in all commands of the
    /// packet add up to `payload_bytes`.
    pub span_count: Bits<2>,
    /// First span of the payload in host memory.
    pub first: HostSpan,
    /// Second span of the payload in host memory.
    pub second: HostSpan,
}

/// `log2` of the bytes of a unit of the wire.
pub const WIRE_UNIT_LOG2: usize = 5;
/// Width of what a packet takes of the wire in units of 32 bytes, 3 to 131.
pub const WIRE_UNIT_BITS: usize = 8;

/// What a packet takes of the wire, in units of 32 bytes: its payload, and three for headers, ICRC, FCS, preamble and gap, which
/// are 92 to 120 bytes.
#[kernel]
pub fn wire_units(payload_bytes: Bits<13>) -> Bits<WIRE_UNIT_BITS> {
    payload_bytes.get_bits::<WIRE_UNIT_BITS>(WIRE_UNIT_LOG2) + 3
}

/// The host failed to read the payload of a packet, which was not sent; or a mark has passed gather.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct GatherFailure {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// PSN of the packet; of a mark, undefined.
    pub psn: Bits<24>,
    /// The packet is a READ response.
    pub is_response: Bit,
    /// A mark has passed, and no packet has failed.
    pub is_mark: Bit,
}

/// A packet to send, with complete headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct TransmitToken {
    /// Headers and payload length.
    pub packet: PacketToken,
    /// Lane of the first payload byte in the first payload beat; less than the number of lanes.
    pub payload_offset: Bits<6>,
}
