//! Request buffer: stores received requests, whose payload is read in any order.
//!
//! A token says in which cell its payload begins. Whoever has decided on the packet asks for the payload by this reference,
//! so a packet that waits keeps its own cells, and those of the packets that are read return.
//!
//! ```text
//!  payload ──> ┌─────────────────────────────┐ beat  ┌──────┐
//!              │ memory: cells               ├──────>│ head ├──────> payload_tx
//!              └───▲──────────────────▲──────┘       └──────┘
//!           cell of│the beat      cell│of the beat
//!  commit ───> ┌───┴────┐ head   ┌────┴───┐ references (16)
//!  rollback ─> │ writer │<───────┤FreeCells│<── reader <──────────── reference
//!  fits <──────┤        │ takes  └────────┘ after, gives
//!              └────────┘────────────^
//!  token ────> Fifo: tokens, with the first cell ─────────────────> token_tx
//! ```
//!
//! A cell has 128 bytes, or 64 in buffers of up to 32 KiB where a beat is half of that or less: so there are at least as many
//! cells as packets in every preset.
//!
//! Latency 2 cycles from the commit to the token, 4 from the reference to the first payload beat; throughput one token and
//! one payload beat a cycle, also when every packet is one beat, whatever the order of the references.
//!
//! 1. Tokens leave in the order of their commits; payload leaves in the order of the references.
//! 2. A packet has exactly `payload_bytes` bytes of payload: full beats, then one of 1 to `DATA / 8` bytes with `last`.
//! 3. `fits` is low when the payload or the token finds no room; then the packet must be rolled back, and all of its cells
//!    are free in the next cycle.
//! 4. A cell is free again when its last beat has been read, before the packet as a whole is.
//! 5. One cell is never used ([`FreeCells`] rule 3).
//!
//! Each packet with payload must be asked for once, with its first cell and its length. Refuses less room than two packets of the
//! largest PMTU. A full buffer drops whole frames (design decision 3).
use super::buffer::{beats_log2, packets_log2};
use super::entry_share::PACKETS_BITS;
use super::free_cells::FreeCells;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Beat, Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::PacketToken;
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::receive::{PayloadReference, ROOM_BITS, ROOM_UNIT_LOG2};
use rnic_messages::sizes::{CELL_BITS, SPAN_BITS};

/// Bits of the number of a beat in its cell; at 64 bits a cell has 16.
const PLACE_BITS: usize = 4;
/// log2 of the references that wait.
const REFERENCES: usize = 4;
const REFERENCE_COUNT: usize = REFERENCES + 1;

/// log2 of the bytes in `2^beats_log2` beats.
const fn buffer_bytes_log2(beats_log2: usize, bytes: usize) -> usize {
    beats_log2 + bytes - 1
}

/// log2 of the bytes of a cell. Small buffers have cells of 64 bytes if that is two beats, so that few bytes of many short
/// packets are lost.
const fn cell_bytes_log2(beats_log2: usize, bytes: usize) -> usize {
    let is_small = buffer_bytes_log2(beats_log2, bytes) <= 15 && bytes < 7;
    if is_small { ROOM_UNIT_LOG2 - 1 } else { ROOM_UNIT_LOG2 }
}

/// log2 of the beats of a cell: two at least, so that its link is read before it is needed.
const fn cell_beats_log2(beats_log2: usize, bytes: usize) -> usize {
    cell_bytes_log2(beats_log2, bytes) + 1 - bytes
}

/// Number of cells.
const fn cell_count(beats_log2: usize, bytes: usize) -> u64 {
    1 << (beats_log2 - cell_beats_log2(beats_log2, bytes))
}

/// What is left to read of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Reading {
    cell: Bits<CELL_BITS>,
    /// The next beat of the cell.
    place: Bits<PLACE_BITS>,
    /// Index of the last byte, counted from the next beat.
    last_byte: Bits<SPAN_BITS>,
}

/// Address of a beat.
#[kernel]
fn address_of<const ADDRESS: usize>(
    cell: Bits<CELL_BITS>,
    place: Bits<PLACE_BITS>,
    cell_beats_log2: usize,
) -> Bits<ADDRESS> {
    (bit_cast::<ADDRESS, CELL_BITS>(cell) << (cell_beats_log2 as u64))
        | bit_cast::<ADDRESS, PLACE_BITS>(place)
}

/// The place after `place`, the first one after the last one.
#[kernel]
fn place_after(place: Bits<PLACE_BITS>, cell_beats_log2: usize) -> Bits<PLACE_BITS> {
    (place + 1) & ((1u64 << (cell_beats_log2 as u64)) - 1)
}

/// Begins to read a packet.
#[kernel]
fn reading_of(reference: PayloadReference) -> Reading {
    Reading { cell: reference.first_cell, place: bits(0), last_byte: reference.payload_bytes - 1 }
}

/// What is left after the next beat, of which there is more; `after` follows its cell.
#[kernel]
fn reading_after(
    reading: Reading,
    after: Bits<CELL_BITS>,
    beat_bytes: u64,
    cell_beats_log2: usize,
) -> Reading {
    let place = place_after(reading.place, cell_beats_log2);
    Reading {
        cell: select(place.any(), reading.cell, after),
        place,
        last_byte: reading.last_byte - beat_bytes,
    }
}

/// A buffer of up to `2^ADDRESS` beats and `2^TOKENS` packets: as many as the card that is made has. `TOKEN_COUNT` is `TOKENS + 1`.
#[clocked(reset = "forgets all packets")]
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
#[require(
    13 <= buffer_bytes_log2(ADDRESS, BYTES) && buffer_bytes_log2(ADDRESS, BYTES) <= 17,
    "ADDRESS is that of 8 to 128 KiB"
)]
#[require(2 <= TOKENS && TOKENS < PACKETS_BITS)]
pub struct RequestBuffer<
    const DATA: usize,
    const BYTES: usize,
    const ADDRESS: usize,
    const TOKENS: usize,
    const TOKEN_COUNT: usize,
> {
    /// From strip: a beat of payload of the packet that is being received, if it belongs to this buffer.
    pub payload: ValidRx<Bits<DATA>>,
    /// From dispatch: the packet, with the beat of this cycle, is good; only while `fits`.
    pub commit: Signal<In, Bit>,
    /// The packet is discarded.
    pub rollback: Signal<In, Bit>,
    /// With `commit`: its headers.
    pub token: Signal<In, PacketToken>,
    /// The packet, with the beat of this cycle, has found room; combinational.
    pub fits: Signal<Out, Bit>,

    /// Headers of the packets, with their first cells.
    pub token_tx: StreamTx<PacketToken>,
    /// Packets whose payload is to be read; `ready` is a function of registers, and falls only when one is taken.
    pub reference: StreamRx<PayloadReference>,
    /// The payload of `released` is read from now on, and its cells return; combinational in the `ready` of `payload_tx`.
    pub releases: Signal<Out, Bit>,
    /// A packet; registered.
    pub released: Signal<Out, PayloadReference>,
    /// Their payload; a function of registers.
    pub payload_tx: StreamTx<Beat<DATA, BYTES>>,

    /// Room that no packet has, in units of 128 bytes, rounded down; registered.
    pub room: Signal<Out, Bits<ROOM_BITS>>,
    /// Cells in use; a function of registers.
    pub cells_used: Signal<Out, Bits<LEVEL_BITS>>,
    /// Packets whose token has not left; registered.
    pub packets: Signal<Out, Bits<TOKEN_COUNT>>,
    /// Packets more for whose tokens there is room; a function of registers.
    pub free_packets: Signal<Out, Bits<PACKETS_BITS>>,

    #[init(FreeCells::new(cell_count(beats_log2(ADDRESS, BYTES), BYTES)))]
    cells: FreeCells<CELL_BITS>,
    #[init(Memory::new(Storage::Block).without_old_word().with_words_log2(beats_log2(ADDRESS, BYTES)))]
    beats: Memory<Bits<DATA>, ADDRESS>,
    #[init(Fifo::default().with_beats_log2(packets_log2(TOKENS)))]
    tokens: Fifo<PacketToken, TOKENS, TOKEN_COUNT>,
    #[init(Fifo::new(Storage::Distributed))]
    references: Fifo<PayloadReference, REFERENCES, REFERENCE_COUNT>,

    room_held: DFF<Bits<ROOM_BITS>>,
    /// Of the packet that is being received: the cell of its last beat, and the place of the next one.
    cell: DFF<Bits<CELL_BITS>>,
    place: Reg<Bits<PLACE_BITS>>,
    has_overflowed: Reg<Bit>,

    is_reading: Reg<Bit>,
    reading: DFF<Reading>,
    /// The cell that was read to its end in the cycle before.
    gives: Reg<Bit>,
    given: DFF<Bits<CELL_BITS>>,
    /// Of the beat at the exit.
    head_valid: Reg<Bit>,
    head_bytes: DFF<Bits<BYTES>>,
    head_is_last: DFF<Bit>,

    #[init(packets_log2(TOKENS))]
    _packets_log2: usize,
    #[init(cell_beats_log2(beats_log2(ADDRESS, BYTES), BYTES))]
    _cell_beats_log2: usize,
    /// Cells that packets can have.
    #[init(cell_count(beats_log2(ADDRESS, BYTES), BYTES) - 1)]
    _cells: u64,
    /// log2 of the cells in a unit of room.
    #[init((ROOM_UNIT_LOG2 - cell_bytes_log2(beats_log2(ADDRESS, BYTES), BYTES)) as u64)]
    _unit_cells_log2: u64,
}

impl<
    const DATA: usize,
    const BYTES: usize,
    const ADDRESS: usize,
    const TOKENS: usize,
    const TOKEN_COUNT: usize,
> RequestBuffer<DATA, BYTES, ADDRESS, TOKENS, TOKEN_COUNT>
{
    const BEAT_BYTES: u64 = DATA as u64 / 8;
}

impl<
    const DATA: usize,
    const BYTES: usize,
    const ADDRESS: usize,
    const TOKENS: usize,
    const TOKEN_COUNT: usize,
> Logic for RequestBuffer<DATA, BYTES, ADDRESS, TOKENS, TOKEN_COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.token_tx, &mut self.tokens.tx);
        StreamRx::link(&mut self.reference, &mut self.references.rx);

        self.cells_used.next = self.cells.level.val();
        let free_cells = bits::<LEVEL_BITS>(self._cells) - self.cells.level.val();
        self.room_held.d.next = (free_cells >> self._unit_cells_log2).get_bits::<ROOM_BITS>(0);
        self.room.next = self.room_held.q.val();
        self.packets.next = self.tokens.level.val();
        self.free_packets.next = bits::<PACKETS_BITS>(1 << self._packets_log2)
            - bit_cast::<PACKETS_BITS, TOKEN_COUNT>(self.tokens.level.val());

        // In: payload at once, into a new cell where one begins; token when the frame is accepted.
        let commit = self.commit.val();
        let rollback = self.rollback.val();
        let writes = self.payload.valid.val();
        let place = self.place.q.val();
        let begins = writes && !place.any();
        let overflows = self.has_overflowed.q.val() || (begins && !self.cells.has_cell.val());
        let cell = select(begins, self.cells.head.val(), self.cell.q.val());
        self.cells.takes.next = begins && !overflows;
        self.cells.commit.next = commit;
        self.cells.rollback.next = rollback;
        self.cell.d.next = cell;
        self.beats.write_enable.next = writes && !overflows;
        self.beats.write_address.next = address_of::<ADDRESS>(cell, place, self._cell_beats_log2);
        self.beats.write_data.next = self.payload.value.val();
        if commit || rollback {
            self.place.d.next = bits(0);
            self.has_overflowed.d.next = false;
        } else if writes {
            self.place.d.next = place_after(place, self._cell_beats_log2);
            self.has_overflowed.d.next = overflows;
        }
        self.fits.next = !overflows && self.tokens.rx.ready.val();
        self.tokens.rx.offer(commit, PacketToken { first_cell: self.cells.start.val(), ..self.token.val() });

        // Out: the next reference is taken in the cycle in which the last beat is read, so that no cycle is lost between packets.
        let reading = self.reading.q.val();
        let is_reading = self.is_reading.q.val();
        let head_valid = self.head_valid.q.val();
        let moves = self.payload_tx.ready.val() || !head_valid;
        let reads = is_reading && moves;
        let is_last = reading.last_byte < Self::BEAT_BYTES;
        let next_place = place_after(reading.place, self._cell_beats_log2);
        self.beats.read_enable.next = reads;
        self.beats.read_address.next =
            address_of::<ADDRESS>(reading.cell, reading.place, self._cell_beats_log2);
        self.cells.follows.next = reading.cell;
        self.gives.d.next = reads && (is_last || !next_place.any());
        self.given.d.next = reading.cell;
        self.cells.gives.next = self.gives.q.val();
        self.cells.given.next = self.given.q.val();
        let is_free = !is_reading || (moves && is_last);
        self.references.tx.ready.next = is_free;
        self.releases.next = is_free && self.references.tx.valid.val();
        self.released.next = self.references.tx.beat.val();
        if is_free {
            self.is_reading.d.next = self.references.tx.valid.val();
            self.reading.d.next = reading_of(self.references.tx.beat.val());
        } else if moves {
            self.reading.d.next =
                reading_after(reading, self.cells.after.val(), Self::BEAT_BYTES, self._cell_beats_log2);
        }
        if moves {
            self.head_valid.d.next = is_reading;
            self.head_is_last.d.next = is_last;
            self.head_bytes.d.next = if is_last {
                bit_cast::<BYTES, SPAN_BITS>(reading.last_byte) + 1
            } else {
                bits::<BYTES>(Self::BEAT_BYTES)
            };
        }
        self.payload_tx.valid.next = head_valid;
        self.payload_tx.beat.next = Beat::<DATA, BYTES> {
            data: self.beats.read_data.val(),
            bytes: self.head_bytes.q.val(),
            last: self.head_is_last.q.val(),
            error: false,
        };
    }
}

#[cfg(test)]
mod tests;
