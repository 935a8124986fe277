//! Makes frames of tokens and payload.
//!
//! ```text
//!             ┌──────┐ plan ┌──────────┐ slot          ┌──────┐       ┌──────┐
//!  from_token>│ Plan ├─────>│ Sequence ├──────────────>│      │joined │      │
//!             │      │      └──┬───┬───┘               │ Join ├──────>│ Seal ├─> to_mac
//!             │      │ starts  │   │ takes ┌─────────┐ │      │       │      │
//!             │      ├──────┐  v   └──────>│ Rotator ├>│      │       └──┬───┘
//!  from_payload ─────│──────│──────────────>         │ │      │          │
//!             └──────┘   ┌──v──────┐       └─────────┘ │      │          │
//!                        │ Headers ├──────────────────>│      │          │
//!                        └─────────┘                   └──────┘          │
//!                 Sequence <─────────────── credits ─────────────────────┘
//! ```
mod plan;
mod sequence;
mod headers;
mod join;
mod seal;
#[cfg(test)]
mod tests;

use headers::Headers;
use join::Join;
use plan::Planner;
use rnic_blocks::logic::rotate::Rotator;
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Beat, StreamRx, StreamTx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::transmit::TransmitToken;
use seal::Seal;
use sequence::Sequence;

/// Stages of the rotator; the headers are written in as many.
const ROTATOR_STAGES: usize = 3;

/// Makes frames of tokens and payload: headers, payload, pad, ICRC.
///
/// Payload arrives as it was in host memory, so it may start at any lane of its first beat; it is rotated to its position after the
/// headers, whose length depends on the packet. Stalls are decided once, at the front; a pipeline without enables leads from there
/// into a small memory, so `to_mac.ready` reaches no wide register except the last two.
///
/// Two frames of one beat, one of three and one more of one, at 512 bits:
/// ```text
#[doc = include_str!("../waves/assemble.txt")]
/// ```
///
/// | Width | Latency from token to first beat, in cycles |
/// |---|---|
/// | 64 | 13 |
/// | 128 | 14 |
/// | 256 | 15 |
/// | 512 | 16 |
///
/// A beat of frame every cycle, from one frame to the next as within a frame: frames of one beat leave in every
/// cycle. There are two exceptions, both at 512 bits only. A frame that needs bytes of two payload beats in its first beat
/// costs one cycle more if the frame before it left no cycle without payload; and a payload that spans more beats than
/// its frame takes as long as the payload.
///
/// 1. Frames leave in the order of the tokens, whole, with no beats of error.
/// 2. Payload beats are taken in order: none for a token without payload, else
///    `ceil((payload_offset + payload_bytes) / lanes)`. Only their data counts; `bytes`, `last` and `error` do not.
/// 3. Bytes of payload beats before the offset and after the payload do not appear in the frame.
/// 4. Frames are not padded to the 60 bytes of Ethernet: the shortest has 58, and the MAC pads after the ICRC.
/// 5. Packets whose opcode is not in the table have no extended headers; bits of `extended` after the headers of the opcode must
///    be zero, as [`PacketToken`](rnic_messages::PacketToken) promises.
///
/// It refuses nothing: every token is sent. Protocol 1.1 to 1.8.
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct Assembler<const DATA: usize, const BYTES: usize> {
    /// Clock of all registers.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// Packets to send. `ready` is combinational from `from_payload.valid`.
    pub from_token: StreamRx<TransmitToken>,
    /// Their payload. `ready` is combinational, but not from `valid`.
    pub from_payload: StreamRx<Beat<DATA, BYTES>>,
    /// Frames without FCS. Registered.
    pub to_mac: StreamTx<Beat<DATA, BYTES>>,
    plan: Planner<DATA, BYTES>,
    sequence: Sequence<BYTES>,
    #[init(Rotator::by_bytes())]
    rotator: Rotator<DATA, BYTES, ROTATOR_STAGES>,
    headers: Headers<DATA, BYTES>,
    join: Join<DATA, BYTES>,
    seal: Seal<DATA, BYTES>,
}

impl<const DATA: usize, const BYTES: usize> Logic for Assembler<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamRx::link(&mut self.from_token, &mut self.plan.from_token);
        StreamTx::link(&mut self.to_mac, &mut self.seal.to_mac);

        let packet = self.plan.current_token.val().packet;
        ValidTx::join(&mut self.plan.current, &mut self.sequence.plan);
        self.sequence.vlan_present.next = packet.vlan_present;
        self.sequence.is_ipv6.next = packet.is_ipv6;
        self.sequence.next_takes_ahead.next = self.plan.next_takes_ahead.val();
        self.sequence.next_rotation.next = self.plan.next_rotation.val();
        self.sequence.payload_valid.next = self.from_payload.valid.val();
        self.sequence.returns_credit.next = self.seal.returns_credit.val();
        self.from_payload.ready.next = self.sequence.payload_ready.val();
        self.plan.finishes.next = self.sequence.finishes.val();

        self.rotator.data.next = self.from_payload.beat.val().data;
        self.rotator.distance.next = self.sequence.rotation.val();

        self.headers.starts.next = self.sequence.starts.val();
        self.headers.token.next = packet;
        self.headers.sums.next = self.plan.current_sums.val();
        self.headers.has_header.next = self.join.header_slot.val().has_header;
        self.headers.header_index.next = self.join.header_slot.val().header_index;

        ValidTx::join(&mut self.sequence.slot, &mut self.join.slot);
        self.join.takes.next = self.sequence.takes.val();
        self.join.turned.next = self.rotator.rotated.val();
        self.join.header.next = self.headers.beat.val();

        ValidTx::join(&mut self.join.joined, &mut self.seal.joined);
        self.seal.joined_slot.next = self.join.joined_slot.val();
    }
}
