//! Read demux: makes slots of 64 bytes from the words that the read engine gives, and hands payload and the words of atomics to their clients.
//!
//! WQEs and commands are whole slots of 64 bytes whatever the width of the datapath, and their clients count them: a read
//! that fails, for which the host may give fewer words, gives as many slots as one that succeeds.
//!
//! ```text
//!             ┌──────────────────────────────────────────────────────────┐
//!             │                        ┌──────┐ full, or the piece ends  │
//!  from_     ─┼─ client 0, 1, 2 ──────>│ slot ├──────────────────────────┼──> slot, slot_valid
//!  engine     │        │               └──────┘                          │
//!             │        └──> missing slots are made up                    │
//!             │                                                          │
//!            ─┼─ client 3 ───────────────────────────────────────────────┼──> payload
//!            ─┼─ client 4 ──────> its lane ──────────────────────────────┼──> word
//!             └──────────────────────────────────────────────────────────┘
//! ```
//!
//! Latency 1 cycle from the last word of a slot to the slot, the same to the word of an atomic, none for payload. One word a cycle; a
//! slot that is made up costs one cycle.
//!
//! 1. A piece of `n` slots gives `n`. Slots that the host did not answer have `error`, as have all later ones of the span.
//! 2. The last slot or word of a span has `last`, and no other.
//! 3. Only payload that is not taken holds answers back; slots and words of atomics never do.
//! 4. Each read of an atomic's word gives one word, with `error` unless the host gave its 8 bytes.
use crate::chunk_buffer::ReadBeat;
use rnic_blocks::stream::{Beat, StreamRx, StreamTx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{HostWord, Slot};

/// Number of clients that get slots, from client 0 on; the next client gets payload, and the one after it words of 8 bytes.
pub const SLOT_CLIENTS: usize = 3;
/// Number of the client that gets words.
pub const WORD_CLIENT: u64 = SLOT_CLIENTS as u64 + 1;
/// Bits of the number of a client.
pub const CLIENT_BITS: usize = 3;
/// Bits of a cookie: client, whether the piece ends its span, and its slots less one.
pub const COOKIE_BITS: usize = CLIENT_BITS + 4;
/// Bytes of the word that an atomic changes.
const WORD_BYTES: u64 = 8;

/// Where a piece of a span belongs. The read engine returns it with every word of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Origin {
    /// Client that reads the span.
    pub client: Bits<CLIENT_BITS>,
    /// It is the last piece of its span.
    pub is_final: Bit,
    /// Number of its slots less one; of an atomic's word, its index in 64 bytes.
    pub last_slot: Bits<3>,
}

/// Packs an origin into a cookie.
#[kernel]
pub fn cookie_of(origin: Origin) -> Bits<COOKIE_BITS> {
    cat!(origin.last_slot, origin.is_final, origin.client)
}

/// Reads an origin from a cookie.
#[kernel]
pub fn origin_of(cookie: Bits<COOKIE_BITS>) -> Origin {
    Origin {
        client: cookie.get_bits::<CLIENT_BITS>(0),
        is_final: cookie.get_bit(CLIENT_BITS),
        last_slot: cookie.get_bits::<3>(CLIENT_BITS + 1),
    }
}

/// Distributes what was read to the clients.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct ReadDemux<const DATA: usize, const BYTES: usize> {
    /// From the read engine; `ready` is combinational from `payload.ready`.
    pub from_engine: StreamRx<ReadBeat<DATA, BYTES, COOKIE_BITS>>,

    /// To clients 0 to 2: a slot; registered.
    pub slot: Signal<Out, Slot>,
    /// Bit i: `slot` is valid in this cycle, for client i; registered.
    pub slot_valid: Signal<Out, Bits<SLOT_CLIENTS>>,
    /// To client 3: payload, in the lanes of its address; combinational.
    pub payload: StreamTx<Beat<DATA, BYTES>>,
    /// To client 4: the word of an atomic; registered.
    pub word: ValidTx<HostWord>,
    /// The last slot, word or beat of a span is given in this cycle; combinational.
    pub ends: Signal<Out, Bit>,

    data: DFF<Bits<512>>,
    valid: Reg<Bits<SLOT_CLIENTS>>,
    last: DFF<Bit>,
    error: DFF<Bit>,
    /// Words in the slot, and slots of the piece that are complete.
    word_index: Reg<Bits<3>>,
    slot_index: Reg<Bits<3>>,
    /// Slots to be made up, their client, and whether they end the span.
    missing: Reg<Bits<3>>,
    client: DFF<Bits<CLIENT_BITS>>,
    is_final: DFF<Bit>,
    word_held: DFF<HostWord>,
    has_word: Reg<Bit>,
    /// The host failed in an earlier piece or word of the span.
    has_failed: Reg<Bit>,
}

impl<const DATA: usize, const BYTES: usize> ReadDemux<DATA, BYTES> {
    const LAST_WORD: u64 = (512 / DATA - 1) as u64;
    /// Bits of the index of a word that select its lane of the datapath.
    const LANES: u64 = (DATA / 64 - 1) as u64;
}

impl<const DATA: usize, const BYTES: usize> Logic for ReadDemux<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let beat = self.from_engine.beat.val();
        let origin = origin_of(beat.cookie);
        let is_payload = origin.client == SLOT_CLIENTS as u64;
        let is_word = origin.client == WORD_CLIENT;
        let is_slot = !is_payload && !is_word;
        let makes_up = self.missing.q.val().any();
        let may = !makes_up && (!is_payload || self.payload.ready.val());
        let takes = may && self.from_engine.valid.val();
        let failed = self.has_failed.q.val() || beat.error;
        let ends_span = beat.last && origin.is_final;
        self.from_engine.ready.next = may;

        self.payload.valid.next = self.from_engine.valid.val() && is_payload && !makes_up;
        self.payload.beat.next =
            Beat::<DATA, BYTES> { data: beat.data, bytes: beat.bytes, last: ends_span, error: failed };
        if takes {
            self.has_failed.d.next = failed && !ends_span;
        }

        // A word is one beat.
        let lane = origin.last_slot & Self::LANES;
        self.has_word.d.next = takes && is_word && beat.last;
        self.word_held.d.next.error = failed || beat.bytes != WORD_BYTES;
        self.word_held.d.next.data = beat.data.get_bits::<64>(0);
        for i in 1..DATA / 64 {
            if lane == i as u64 {
                self.word_held.d.next.data = beat.data.get_bits::<64>(i * 64);
            }
        }
        self.word.offer(self.has_word.q.val(), self.word_held.q.val());

        // A slot is complete with its last word, or with the last word of the answer.
        let is_full = self.word_index.q.val() == Self::LAST_WORD;
        let completes = takes && is_slot && (is_full || beat.last);
        let missing = origin.last_slot - self.slot_index.q.val();
        let lacks = beat.last && (missing.any() || !is_full);
        if takes && is_slot {
            self.data.d.next = (self.data.q.val() >> (DATA as u64))
                | (bit_cast::<512, DATA>(beat.data) << (512 - DATA as u64));
            self.word_index.d.next = if completes { bits::<3>(0) } else { self.word_index.q.val() + 1 };
        }
        if completes {
            self.slot_index.d.next = if beat.last { bits::<3>(0) } else { self.slot_index.q.val() + 1 };
            self.client.d.next = origin.client;
            self.is_final.d.next = origin.is_final;
            if beat.last {
                self.missing.d.next = missing;
                self.has_failed.d.next = (failed || lacks) && (!ends_span || missing.any());
            }
        }
        let makes_last = makes_up && self.missing.q.val() == 1;
        if makes_up {
            self.missing.d.next = self.missing.q.val() - 1;
            if makes_last {
                self.has_failed.d.next = !self.is_final.q.val();
            }
        }

        self.valid.d.next = bits(0);
        if makes_up {
            self.valid.d.next = bits::<SLOT_CLIENTS>(1) << self.client.q.val();
        } else if completes {
            self.valid.d.next = bits::<SLOT_CLIENTS>(1) << origin.client;
        }
        self.last.d.next =
            if makes_up { makes_last && self.is_final.q.val() } else { ends_span && !missing.any() };
        self.error.d.next = makes_up || failed || lacks;
        self.slot.next = Slot { data: self.data.q.val(), last: self.last.q.val(), error: self.error.q.val() };
        self.slot_valid.next = self.valid.q.val();
        let slots_end = if makes_up {
            makes_last && self.is_final.q.val()
        } else {
            completes && ends_span && !missing.any()
        };
        self.ends.next = slots_end || (takes && !is_slot && ends_span);
    }
}
