//! Holds received packets of one role until they are wanted.
//!
//! Payload is written while nobody knows yet whether the packet is good; it becomes visible, and its token with it, when
//! the frame is accepted. Each role has a buffer of its own, so that neither can take the other's room.
//!
//! ```text
//!  payload ──> ┌──────────────────────────────┐       ┌──────────────┐
//!  commit ───> │ PacketFifo: DATA bits a beat ├──────>│ bytes, last  ├──> payload_tx
//!  rollback ─> └──────────────────────────────┘       └──────▲───────┘
//!  fits <───┐  ┌──────────────────────────────┐              │
//!           └──┤ Fifo: lengths                ├──────────────┘
//!              ├──────────────────────────────┤
//!  token ─────>│ Fifo: tokens                 ├────────────────────────> token_tx
//!              └──────────────────────────────┘
//! ```
//!
//! Latency 2 cycles from the commit to the token, 3 to the first payload beat; throughput one token and one payload beat a
//! cycle, also when every packet is one beat.
//!
//! 1. Tokens leave in the order of their commits; payload leaves in the same order, without beats for packets that have
//!    none. The two streams need not be taken in step.
//! 2. A packet has exactly `payload_bytes` bytes of payload: full beats, then one of 1 to `DATA / 8` bytes with `last`.
//! 3. `fits` is low when the payload or the token finds no room; then the packet must be rolled back.
//!
//! Refuses less payload room than one packet of the largest PMTU. Decision 3 of the card: a full buffer drops whole frames.
use super::collect::check_widths;
use super::token::PacketToken;
use crate::memory::Storage;
use crate::parameter::{ParameterError, check_range};
use crate::stream::{Beat, Fifo, PacketFifo, StreamTx};
use rnic_kernel::prelude::*;

/// Payload of the largest packet: PMTU 4096.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// Bits of the address of a memory of 64 words, up to which LUTs are the cheaper storage.
const DISTRIBUTED_ADDRESS_MAX: usize = 6;

/// A buffer of `2^ADDRESS` beats and `2^TOKENS` packets.
///
/// `COUNT` is `ADDRESS + 1`, and `TOKEN_COUNT` is `TOKENS + 1`.
#[derive(LogicBlock, Registers)]
pub struct PacketBuffer<
    const DATA: usize,
    const BYTES: usize,
    const ADDRESS: usize,
    const COUNT: usize,
    const TOKENS: usize,
    const TOKEN_COUNT: usize,
> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all packets.
    pub reset: Signal<In, Bit>,

    /// From strip: a beat of payload of the packet that is being received.
    pub payload: Signal<In, Bits<DATA>>,
    /// There is one, and it is for this buffer.
    pub payload_valid: Signal<In, Bit>,
    /// From dispatch: the packet, with the beat of this cycle, is good; only while `fits`.
    pub commit: Signal<In, Bit>,
    /// The packet is to be forgotten.
    pub rollback: Signal<In, Bit>,
    /// With `commit`: its headers.
    pub token: Signal<In, PacketToken>,
    /// The packet, with the beat of this cycle, has found room; combinational.
    pub fits: Signal<Out, Bit>,

    /// Headers of the packets.
    pub token_tx: StreamTx<PacketToken>,
    /// Payload of the packets; `bytes` and `last` are functions of registers.
    pub payload_tx: StreamTx<Beat<DATA, BYTES>>,

    beats: PacketFifo<Bits<DATA>, ADDRESS, COUNT>,
    tokens: Fifo<PacketToken, TOKENS, TOKEN_COUNT>,
    /// Of packets with payload: its length less one.
    lengths: Fifo<Bits<13>, TOKENS, TOKEN_COUNT>,
    /// Of the packet that leaves: index of its last byte, counted from the beat that leaves.
    last_byte: DFF<Bits<13>>,
    is_leaving: Reg<Bit>,
}

impl<
    const DATA: usize,
    const BYTES: usize,
    const ADDRESS: usize,
    const COUNT: usize,
    const TOKENS: usize,
    const TOKEN_COUNT: usize,
> PacketBuffer<DATA, BYTES, ADDRESS, COUNT, TOKENS, TOKEN_COUNT>
{
    const BEAT_BYTES: u64 = DATA as u64 / 8;

    /// Makes an empty buffer.
    ///
    /// # Errors
    /// `ADDRESS` must give room for a packet of 4096 bytes at least, and be 16 at most; `TOKENS` must be 2 to 16; and the
    /// counts and the width must agree with them.
    pub fn new() -> Result<Self, ParameterError> {
        check_widths(DATA, BYTES)?;
        check_range("ADDRESS", ADDRESS, (PAYLOAD_BYTES_MAX * 8 / DATA).ilog2() as usize..=16)?;
        check_range("TOKENS", TOKENS, 2..=16)?;
        let storage = if TOKENS > DISTRIBUTED_ADDRESS_MAX { Storage::Block } else { Storage::Distributed };
        Ok(PacketBuffer {
            clock: Signal::default(),
            reset: Signal::default(),
            payload: Signal::default(),
            payload_valid: Signal::default(),
            commit: Signal::default(),
            rollback: Signal::default(),
            token: Signal::default(),
            fits: Signal::default(),
            token_tx: StreamTx::default(),
            payload_tx: StreamTx::default(),
            beats: PacketFifo::new(Storage::Block)?,
            tokens: Fifo::new(storage)?,
            lengths: Fifo::new(storage)?,
            last_byte: DFF::default(),
            is_leaving: Reg::default(),
        })
    }
}

impl<
    const DATA: usize,
    const BYTES: usize,
    const ADDRESS: usize,
    const COUNT: usize,
    const TOKENS: usize,
    const TOKEN_COUNT: usize,
> Logic for PacketBuffer<DATA, BYTES, ADDRESS, COUNT, TOKENS, TOKEN_COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        clock!(self, clock, beats, tokens, lengths);
        self.beats.reset.next = self.reset.val();
        self.tokens.reset.next = self.reset.val();
        self.lengths.reset.next = self.reset.val();

        // In: payload at once, token and length when the frame is accepted.
        let token = self.token.val();
        let commit = self.commit.val();
        self.beats.beat.next = self.payload.val();
        self.beats.write.next = self.payload_valid.val();
        self.beats.commit.next = commit;
        self.beats.rollback.next = self.rollback.val();
        self.tokens.rx.beat.next = token;
        self.tokens.rx.valid.next = commit;
        self.lengths.rx.beat.next = token.payload_bytes - 1;
        self.lengths.rx.valid.next = commit && token.payload_bytes.any();
        self.fits.next = self.beats.fits.val() && self.tokens.rx.ready.val() && self.lengths.rx.ready.val();

        // Out: tokens as they are, payload cut by the lengths.
        StreamTx::<PacketToken>::link(&mut self.token_tx, &mut self.tokens.tx);
        let last_byte = self.last_byte.q.val();
        let is_last = last_byte < Self::BEAT_BYTES;
        let offers = self.is_leaving.q.val() && self.beats.tx.valid.val();
        let moves = offers && self.payload_tx.ready.val();
        self.payload_tx.valid.next = offers;
        self.payload_tx.beat.next = Beat::<DATA, BYTES> {
            data: self.beats.tx.beat.val(),
            bytes: if is_last {
                bit_cast::<BYTES, 13>(last_byte) + 1
            } else {
                bits::<BYTES>(Self::BEAT_BYTES)
            },
            last: is_last,
            error: false,
        };
        self.beats.tx.ready.next = self.is_leaving.q.val() && self.payload_tx.ready.val();

        // The next length is taken in the cycle in which the last beat moves, so that no cycle is lost between packets.
        let is_free = !self.is_leaving.q.val() || (moves && is_last);
        self.lengths.tx.ready.next = is_free;
        if is_free {
            self.is_leaving.d.next = self.lengths.tx.valid.val();
            self.last_byte.d.next = self.lengths.tx.beat.val();
        } else if moves {
            self.last_byte.d.next = last_byte - Self::BEAT_BYTES;
        }
    }
}
