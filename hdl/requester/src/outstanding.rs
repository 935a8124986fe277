//! Outstanding: the pool of messages that are not completed, and the counts that the stages around it keep of
//! them.
//!
//! A message completes when the peer acknowledges it, in order; until then its `wr_id` and its PSN are kept
//! here. A queue pair with much in flight needs many slots and most have nothing in flight; so all share one
//! pool, in blocks of eight messages, and each has one block of its own, its home, so that none can be starved
//! (design decision 9).
//!
//! ```text
//!                 ┌──────────────────────────────────────────────────────────┐
//!  wqe_parse ────>│ links: block -> next block      free ────────────────────┼──> wqe_parse
//!                 │ begun: count, held ──────────────────────────────────────┼──> acknowledge
//!  issue ────────>│ messages: 2^11 blocks of 8 ──────────────────────────────┼──> acknowledge
//!                 │ issued: count, unsent PSN ───────────────────────────────┼──> acknowledge
//!  acknowledge ──>│ retired: count, home, acknowledged PSN, oldest, epoch ───┼──> wqe_parse
//!                 └──────────────────────────────────────────────────────────┘
//! ```
//!
//! Messages of a queue pair are in a chain of blocks. WqeParse assigns slots at its end, issue fills them,
//! acknowledge empties them from its beginning. Each of the three keeps a count that only rises, modulo 2^16,
//! and reads the counts of the others. The first chain of a queue pair begins at its home. A block leaves its
//! chain when the first message of the next one is read; the last one stays, and follows itself when no other
//! is free and all its messages have completed. So a queue pair always has a block, and can always continue
//! when its messages have completed.
//!
//! A message keeps its slot until it completes, however often it is sent: wqe_parse finds the oldest one
//! by the slot in the ring and the first PSN in `retired`, which acknowledge moves with each message that
//! leaves.
//!
//! Latency 1 cycle for each read; every port once a cycle. UltraRAM for the messages, block RAM for the rest.
//!
//! 1. Every memory has one writer.
//! 2. A shared block is in one chain or free.
//! 3. Of two stages that each write a count and then read that of the other, at least one sees the other's
//!    write: reads see all writes of earlier cycles. So a held queue pair is woken exactly when there is room.
use crate::messages::{BLOCK_BITS, Begun, Issued, Link, OutstandingMessage, POOL_SLOT_BITS, Retired};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::pool::{LEVEL_BITS, level_after};
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// `log2` of the shared blocks.
pub const SHARED_BITS: usize = QUEUE_PAIR_BITS;
const SHARED_COUNT_BITS: usize = SHARED_BITS + 1;

/// The pool; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub struct Outstanding {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; no block is free then. A sweep must follow, which frees them all.
    pub reset: Signal<In, Bit>,
    /// The records of `sweep_index` are cleared in this cycle.
    pub is_sweeping: Signal<In, Bit>,
    /// Queue pair whose records are cleared.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,

    /// From wqe_parse: link in a chain of blocks.
    pub link: Signal<In, Link>,
    /// `link` is valid and is written.
    pub link_valid: Signal<In, Bit>,
    /// From wqe_parse: queue pair of `begun`.
    pub begun_queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From wqe_parse: counts of the queue pair.
    pub begun: Signal<In, Begun>,
    /// `begun` is valid and is written.
    pub begun_valid: Signal<In, Bit>,
    /// From wqe_parse: queue pair whose `retired` is read.
    pub retired_queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From wqe_parse: reads `retired`.
    pub retired_read: Signal<In, Bit>,
    /// To wqe_parse, one cycle after `retired_read`; registered.
    pub retired: Signal<Out, Retired>,
    /// To wqe_parse: a free shared block; registered.
    pub free: StreamTx<Bits<SHARED_BITS>>,

    /// From issue: a message.
    pub message: Signal<In, OutstandingMessage>,
    /// From issue: pool slot of `message`.
    pub message_slot: Signal<In, Bits<POOL_SLOT_BITS>>,
    /// From issue: queue pair of `issued`.
    pub issued_queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From issue: counts of the queue pair.
    pub issued: Signal<In, Issued>,
    /// `message` is valid and is written.
    pub message_valid: Signal<In, Bit>,
    /// `issued` is valid and is written.
    pub issued_valid: Signal<In, Bit>,

    /// From acknowledge: queue pair whose `begun` and `issued` are read.
    pub queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From acknowledge: reads `issued_seen`.
    pub issued_read: Signal<In, Bit>,
    /// From acknowledge: reads `begun_seen`.
    pub begun_read: Signal<In, Bit>,
    /// To acknowledge, one cycle after `issued_read`; registered.
    pub issued_seen: Signal<Out, Issued>,
    /// To acknowledge, one cycle after `begun_read`; registered.
    pub begun_seen: Signal<Out, Begun>,
    /// From acknowledge: slot to read.
    pub pool_slot: Signal<In, Bits<POOL_SLOT_BITS>>,
    /// To acknowledge, one cycle after `pool_slot`; registered.
    pub message_seen: Signal<Out, OutstandingMessage>,
    /// To acknowledge, one cycle after `pool_slot`: the block that follows its block; registered.
    pub next_block: Signal<Out, Bits<BLOCK_BITS>>,
    /// From acknowledge: queue pair of `retired_write`.
    pub retired_write_queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From acknowledge: counts of the queue pair.
    pub retired_write: Signal<In, Retired>,
    /// `retired_write` is valid and is written.
    pub retired_write_valid: Signal<In, Bit>,
    /// From acknowledge: a shared block that is free again.
    pub freed: Signal<In, Bits<SHARED_BITS>>,
    /// `freed` is valid.
    pub freed_valid: Signal<In, Bit>,
    /// Shared blocks that are neither free nor the last one of a chain; a function of registers. During a sweep those that it has
    /// not freed are among them.
    pub blocks_used: Signal<Out, Bits<LEVEL_BITS>>,

    #[init(Memory::new(Storage::Ultra))]
    messages: Memory<OutstandingMessage, POOL_SLOT_BITS>,
    links: Memory<Bits<BLOCK_BITS>, BLOCK_BITS>,
    begun_counts: Memory<Begun, QUEUE_PAIR_BITS>,
    issued_counts: Memory<Issued, QUEUE_PAIR_BITS>,
    retired_counts: Memory<Retired, QUEUE_PAIR_BITS>,
    free_blocks: Fifo<Bits<SHARED_BITS>, SHARED_BITS, SHARED_COUNT_BITS>,
    /// Chains whose last block is a shared one.
    shared_ends: Reg<Bits<LEVEL_BITS>>,
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
        self.links.read_address.next = self.pool_slot.val().get_bits::<BLOCK_BITS>(3);
        self.next_block.next = self.links.read_data.val();

        self.messages.write_enable.next = self.message_valid.val();
        self.messages.write_address.next = self.message_slot.val();
        self.messages.write_data.next = self.message.val();
        self.messages.read_enable.next = true;
        self.messages.read_address.next = self.pool_slot.val();
        self.message_seen.next = self.messages.read_data.val();

        self.begun_counts.write_enable.next = self.begun_valid.val() || is_sweeping;
        self.begun_counts.write_address.next = select(is_sweeping, sweep_index, self.begun_queue_pair.val());
        self.begun_counts.write_data.next = self.begun.val();
        self.issued_counts.write_enable.next = self.issued_valid.val() || is_sweeping;
        self.issued_counts.write_address.next =
            select(is_sweeping, sweep_index, self.issued_queue_pair.val());
        self.issued_counts.write_data.next = self.issued.val();
        self.retired_counts.write_enable.next = self.retired_write_valid.val() || is_sweeping;
        self.retired_counts.write_address.next =
            select(is_sweeping, sweep_index, self.retired_write_queue_pair.val());
        self.retired_counts.write_data.next = self.retired_write.val();
        if is_sweeping {
            self.begun_counts.write_data.next.count = bits(0);
            self.begun_counts.write_data.next.is_held = false;
            self.issued_counts.write_data.next.count = bits(0);
            self.issued_counts.write_data.next.reads = bits(0);
            self.retired_counts.write_data.next.count = bits(0);
            self.retired_counts.write_data.next.reads = bits(0);
            self.retired_counts.write_data.next.home_lap = false;
            self.retired_counts.write_data.next.una_psn = bits(0);
            self.retired_counts.write_data.next.oldest_slot = bits(0);
            self.retired_counts.write_data.next.oldest_psn = bits(0);
            self.retired_counts.write_data.next.epoch = bits(0);
            self.retired_counts.write_data.next.waits = false;
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

        // A chain grows from its last block to the next one.
        let link = self.link.val();
        let (was_shared, is_shared) = (link.block.get_bit(SHARED_BITS), link.next.get_bit(SHARED_BITS));
        let grows = self.link_valid.val();
        let shared_ends = self.shared_ends.q.val();
        self.shared_ends.d.next =
            level_after(shared_ends, grows && is_shared && !was_shared, grows && was_shared && !is_shared);
        let free_count = bit_cast::<LEVEL_BITS, SHARED_COUNT_BITS>(self.free_blocks.level.val());
        self.blocks_used.next = bits::<LEVEL_BITS>(1 << SHARED_BITS) - free_count - shared_ends;

        // There are as many shared blocks as queue pairs, so the sweep frees each of them once.
        self.free_blocks.rx.valid.next = self.freed_valid.val() || is_sweeping;
        self.free_blocks.rx.beat.next = select(is_sweeping, sweep_index, self.freed.val());
        StreamTx::<Bits<SHARED_BITS>>::link(&mut self.free, &mut self.free_blocks.tx);
    }
}

#[cfg(test)]
mod tests;
