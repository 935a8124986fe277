//! From the segmentation and the reply stage to the wire.
use crate::host::HostSpan;
use crate::packet::{EXTENDED_BITS, PacketToken};
use crate::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS};
use rnic_kernel::prelude::*;

/// The headers of a packet as far as they are not the path's: what follows looks up addresses and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct TransmitRequest {
    /// Whose packet.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation; a packet of an older one is dropped.
    pub generation: Bits<GENERATION_BITS>,
    /// BTH: operation.
    pub opcode: Bits<8>,
    /// BTH: SE.
    pub solicited: Bit,
    /// BTH: AckReq.
    pub ack_request: Bit,
    /// So it is, too, if nothing of its queue pair has been issued behind it when it leaves.
    pub asks_if_newest: Bit,
    /// BTH: PSN.
    pub psn: Bits<24>,
    /// Extended headers in wire order, first byte in bits 7:0; zeros behind them.
    pub extended: Bits<EXTENDED_BITS>,
    /// Bytes of payload, without pad.
    pub payload_bytes: Bits<13>,
    /// It answers a READ.
    pub is_response: Bit,
    /// Nothing of that READ follows.
    pub ends_response: Bit,
}

/// How far a queue pair's packets have been issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct IssuedPsn {
    /// Whose.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// PSN behind the newest one, and behind the last response to it if it is a READ.
    pub psn: Bits<24>,
}

/// A packet to be sent, and where its payload is.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct GatherCommand {
    /// Its headers.
    pub headers: TransmitRequest,
    /// The payload follows as slots of the stream of inline data: from byte 32 of the first on. So many slots as that takes:
    /// none for no payload, one for up to 32 bytes, two for up to 96. They may come before or after this command.
    pub is_inline: Bit,
    /// More of the packet's payload is where the next command says, which repeats all else. Each of such commands has a span with
    /// bytes.
    pub continues: Bit,
    /// Else it is here, end to end: so many spans, 0 to 2, whose lengths add up to `payload_bytes` in all commands of the packet.
    pub span_count: Bits<2>,
    /// First span.
    pub first: HostSpan,
    /// Second span.
    pub second: HostSpan,
}

/// The payload of a packet could not be read; the packet was not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct GatherFailure {
    /// Whose packet.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// Its PSN.
    pub psn: Bits<24>,
    /// It answers a READ.
    pub is_response: Bit,
}

/// A packet to send, with complete headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct TransmitToken {
    /// Headers and payload length.
    pub packet: PacketToken,
    /// Lane of the first payload byte in the first payload beat; less than the number of lanes.
    pub payload_offset: Bits<6>,
}
