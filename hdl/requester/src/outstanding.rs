//! Outstanding: the pool of messages that are not completed, and what the stages around it say of their numbers.
//!
//! What is sent completes when the peer says so, in order; until then its tag and its PSN must be kept somewhere. A queue
//! pair with much in flight needs much room and most have nothing in flight; so all share one pool, in blocks of eight messages,
//! and each has one block of its own, its home, so that none can be starved (design decision 9).
//!
//! ```text
//!                 ┌──────────────────────────────────────────────────────────┐
//!  segment ──────>│ links: block -> next block      free ────────────────────┼──> segment
//!                 │ begun: count, held ──────────────────────────────────────┼──> acknowledge
//!  issue ────────>│ messages: 2^11 blocks of 8 ──────────────────────────────┼──> acknowledge
//!                 │ issued: count, unsent PSN ───────────────────────────────┼──> acknowledge
//!  acknowledge ──>│ retired: count, home, acknowledged PSN ──────────────────┼──> segment
//!                 └──────────────────────────────────────────────────────────┘
//! ```
//!
//! Messages of a queue pair stand in a chain of blocks. Segmentation gives places at its end, issuing fills them, completing
//! empties them from its beginning. Each of the three keeps a count that only rises, modulo 2^16, and has the other ends' counts
//! to look at. The first chain of a queue pair begins at its home. A block leaves its chain when the first message
//! of the next one is looked at; the last one stays, and follows itself when no other is free and all its messages have
//! been completed. So a queue pair always has a block, and can always go on when what it has sent is completed.
//!
//! Latency 1 cycle for each read; everything once a cycle. UltraRAM for the messages, block RAM for the rest.
//!
//! 1. Every memory has one writer.
//! 2. A shared block is in one chain or free.
//! 3. Who writes a count and then reads what another says, while the other does the same the other way round, cannot both miss
//!    each other: reads see all writes of earlier cycles. This is how a held queue pair is woken exactly when there is room.
use crate::messages::{BLOCK_BITS, Begun, Issued, Link, OutstandingMessage, PLACE_BITS, Retired};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// Shared blocks, as a power of two.
pub const SHARED_BITS: usize = QUEUE_PAIR_BITS;
const SHARED_COUNT_BITS: usize = SHARED_BITS + 1;

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct Outstanding {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; no block is free then. A sweep must follow, which frees them all.
    pub reset: Signal<In, Bit>,
    /// Records are being cleared.
    pub is_sweeping: Signal<In, Bit>,
    /// Whose.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,

    /// From segmentation: a block follows another.
    pub link: Signal<In, Link>,
    /// It does.
    pub link_valid: Signal<In, Bit>,
    /// From segmentation: of which queue pair something is said.
    pub begun_queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// What.
    pub begun: Signal<In, Begun>,
    /// It is said now.
    pub begun_valid: Signal<In, Bit>,
    /// From segmentation: which queue pair's `retired` it wants to see.
    pub retired_queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// It wants to.
    pub retired_read: Signal<In, Bit>,
    /// To segmentation, one cycle later; registered.
    pub retired: Signal<Out, Retired>,
    /// To segmentation: a shared block that is free; registered.
    pub free: StreamTx<Bits<SHARED_BITS>>,

    /// From issuing: a message.
    pub message: Signal<In, OutstandingMessage>,
    /// Its place.
    pub message_place: Signal<In, Bits<PLACE_BITS>>,
    /// From issuing: whose it is.
    pub issued_queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// What issuing says of it.
    pub issued: Signal<In, Issued>,
    /// It is written now.
    pub message_valid: Signal<In, Bit>,
    /// That is said now.
    pub issued_valid: Signal<In, Bit>,

    /// From acknowledge: which queue pair's `begun` and `issued` it wants to see.
    pub queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// It wants to see `issued_seen`.
    pub issued_read: Signal<In, Bit>,
    /// It wants to see `begun_seen`.
    pub begun_read: Signal<In, Bit>,
    /// One cycle later; registered.
    pub issued_seen: Signal<Out, Issued>,
    /// One cycle later; registered.
    pub begun_seen: Signal<Out, Begun>,
    /// From acknowledge: which message it wants to see, in the next cycle.
    pub place: Signal<In, Bits<PLACE_BITS>>,
    /// One cycle later; registered.
    pub message_seen: Signal<Out, OutstandingMessage>,
    /// One cycle later: the block behind that of `place`; registered.
    pub next_block: Signal<Out, Bits<BLOCK_BITS>>,
    /// From acknowledge: of which queue pair something is said.
    pub retired_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// What.
    pub retires: Signal<In, Retired>,
    /// It is said now.
    pub retires_valid: Signal<In, Bit>,
    /// From acknowledge: a shared block that is free again.
    pub freed: Signal<In, Bits<SHARED_BITS>>,
    /// It is.
    pub freed_valid: Signal<In, Bit>,

    #[init(Memory::new(Storage::Ultra))]
    messages: Memory<OutstandingMessage, PLACE_BITS>,
    #[init(Memory::new(Storage::Block))]
    links: Memory<Bits<BLOCK_BITS>, BLOCK_BITS>,
    begun_counts: Memory<Begun, QUEUE_PAIR_BITS>,
    issued_counts: Memory<Issued, QUEUE_PAIR_BITS>,
    retired_counts: Memory<Retired, QUEUE_PAIR_BITS>,
    free_blocks: Fifo<Bits<SHARED_BITS>, SHARED_BITS, SHARED_COUNT_BITS>,
}

impl Logic for Outstanding {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_sweeping = self.is_sweeping.val();
        let sweep_index = self.sweep_index.val();

        self.links.write_enable.next = self.link_valid.val();
        self.links.write_address.next = self.link.val().block;
        self.links.write_data.next = self.link.val().next;
        self.links.read_enable.next = true;
        self.links.read_address.next = self.place.val().get_bits::<BLOCK_BITS>(3);
        self.next_block.next = self.links.read_data.val();

        self.messages.write_enable.next = self.message_valid.val();
        self.messages.write_address.next = self.message_place.val();
        self.messages.write_data.next = self.message.val();
        self.messages.read_enable.next = true;
        self.messages.read_address.next = self.place.val();
        self.message_seen.next = self.messages.read_data.val();

        self.begun_counts.write_enable.next = self.begun_valid.val() || is_sweeping;
        self.begun_counts.write_address.next = select(is_sweeping, sweep_index, self.begun_queue_pair.val());
        self.begun_counts.write_data.next = self.begun.val();
        self.issued_counts.write_enable.next = self.issued_valid.val() || is_sweeping;
        self.issued_counts.write_address.next =
            select(is_sweeping, sweep_index, self.issued_queue_pair.val());
        self.issued_counts.write_data.next = self.issued.val();
        self.retired_counts.write_enable.next = self.retires_valid.val() || is_sweeping;
        self.retired_counts.write_address.next = select(is_sweeping, sweep_index, self.retired_index.val());
        self.retired_counts.write_data.next = self.retires.val();
        if is_sweeping {
            self.begun_counts.write_data.next.count = bits(0);
            self.begun_counts.write_data.next.is_held = false;
            self.issued_counts.write_data.next.count = bits(0);
            self.issued_counts.write_data.next.reads = bits(0);
            self.retired_counts.write_data.next.count = bits(0);
            self.retired_counts.write_data.next.reads = bits(0);
            self.retired_counts.write_data.next.home_lap = false;
            self.retired_counts.write_data.next.una_psn = bits(0);
        }

        self.begun_counts.read_enable.next = self.begun_read.val();
        self.begun_counts.read_address.next = self.queue_pair.val();
        self.begun_seen.next = self.begun_counts.read_data.val();
        self.issued_counts.read_enable.next = self.issued_read.val();
        self.issued_counts.read_address.next = self.queue_pair.val();
        self.issued_seen.next = self.issued_counts.read_data.val();
        self.retired_counts.read_enable.next = self.retired_read.val();
        self.retired_counts.read_address.next = self.retired_queue_pair.val();
        self.retired.next = self.retired_counts.read_data.val();

        // There are as many shared blocks as queue pairs, so the sweep names each of them once.
        self.free_blocks.rx.valid.next = self.freed_valid.val() || is_sweeping;
        self.free_blocks.rx.beat.next = select(is_sweeping, sweep_index, self.freed.val());
        StreamTx::<Bits<SHARED_BITS>>::link(&mut self.free, &mut self.free_blocks.tx);
    }
}

#[cfg(test)]
mod tests;
