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
use crate::messages::{
    BLOCK_BITS, BLOCK_MESSAGES, Begun, BegunWrite, Issued, IssuedWrite, Link, MessageWrite,
    OutstandingMessage, POOL_SLOT_BITS, PoolRead, Retired, RetiredRead, RetiredWrite,
};
use crate::sweep::SweepStep;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::pool::{LEVEL_BITS, level_after};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, sizes};

/// `log2` of the shared blocks.
pub const SHARED_BITS: usize = QUEUE_PAIR_BITS;
const SHARED_COUNT_BITS: usize = SHARED_BITS + 1;

/// log2 of the blocks of all queue pairs, the shared ones being the upper half.
fn blocks_log2() -> usize {
    sizes().outstanding_blocks() + 1
}

/// The bit of a block's number that shared ones have set.
fn shared_block_bit() -> usize {
    sizes().outstanding_blocks()
}

/// Number of shared blocks, and of the first of them.
fn shared_blocks() -> u64 {
    1 << shared_block_bit()
}

/// The bits that the number of a shared block among these has.
fn shared_block_mask() -> u64 {
    shared_blocks() - 1
}

/// Says whether a block is one of those that all queue pairs share.
#[kernel]
pub(crate) fn is_shared_block(block: Bits<BLOCK_BITS>) -> Bit {
    block.get_bit(shared_block_bit())
}

/// Gives the block of a number among the shared ones.
#[kernel]
pub(crate) fn shared_block(number: Bits<SHARED_BITS>) -> Bits<BLOCK_BITS> {
    bit_cast::<BLOCK_BITS, SHARED_BITS>(number) | shared_blocks()
}

/// Gives the number of a shared block among these.
#[kernel]
pub(crate) fn shared_number(block: Bits<BLOCK_BITS>) -> Bits<SHARED_BITS> {
    block.get_bits::<SHARED_BITS>(0) & shared_block_mask()
}

/// The pool; see the module.
#[clocked(reset = "no block is free then. A sweep must follow, which frees them all")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Outstanding {
    /// From sweep: the records of a queue pair are cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,

    /// From wqe_parse: link in a chain of blocks, to be written.
    pub link: ValidRx<Link>,
    /// From wqe_parse: counts of the queue pair.
    pub begun: Signal<In, BegunWrite>,
    /// From wqe_parse: reads `retired`.
    pub retired_read: Signal<In, RetiredRead>,
    /// To wqe_parse, one cycle after `retired_read`; registered.
    pub retired: Signal<Out, Retired>,
    /// To wqe_parse: a free shared block; registered.
    pub free: StreamTx<Bits<SHARED_BITS>>,

    /// From issue: a message.
    pub message: Signal<In, MessageWrite>,
    /// From issue: counts of the queue pair.
    pub issued: Signal<In, IssuedWrite>,

    /// From acknowledge.
    pub pool_read: Signal<In, PoolRead>,
    /// To acknowledge, one cycle after `reads_issued`; registered.
    pub issued_seen: Signal<Out, Issued>,
    /// To acknowledge, one cycle after `reads_begun`; registered.
    pub begun_seen: Signal<Out, Begun>,
    /// To acknowledge, one cycle after the slot in `pool_read`; registered.
    pub message_seen: Signal<Out, OutstandingMessage>,
    /// To acknowledge, one cycle after the slot in `pool_read`: the block that follows its block; registered.
    pub next_block: Signal<Out, Bits<BLOCK_BITS>>,
    /// From acknowledge: counts of the queue pair.
    pub retired_write: Signal<In, RetiredWrite>,
    /// From acknowledge: a shared block that is free again.
    pub freed: ValidRx<Bits<SHARED_BITS>>,
    /// Shared blocks that are neither free nor the last one of a chain; a function of registers. During a sweep those that it has
    /// not freed are among them.
    pub blocks_used: Signal<Out, Bits<LEVEL_BITS>>,

    #[init(Memory::new(Storage::Ultra).with_words_log2(blocks_log2() + BLOCK_MESSAGES.ilog2() as usize))]
    messages: Memory<OutstandingMessage, POOL_SLOT_BITS>,
    #[init(Memory::default().with_words_log2(blocks_log2()))]
    links: Memory<Bits<BLOCK_BITS>, BLOCK_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    begun_counts: Memory<Begun, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    issued_counts: Memory<Issued, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    retired_counts: Memory<Retired, QUEUE_PAIR_BITS>,
    #[init(Fifo::default().with_beats_log2(sizes().outstanding_blocks()))]
    free_blocks: Fifo<Bits<SHARED_BITS>, SHARED_BITS, SHARED_COUNT_BITS>,
    /// Chains whose last block is a shared one.
    shared_ends: Reg<Bits<LEVEL_BITS>>,
}

impl Logic for Outstanding {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let read = self.pool_read.val();
        let begun = self.begun.val();
        let message = self.message.val();
        let issued = self.issued.val();
        let retired = self.retired_write.val();
        let is_sweeping = self.sweep.val().is_sweeping;
        let sweep_index = self.sweep.val().index;

        self.links.write(self.link.valid.val(), self.link.value.val().block, self.link.value.val().next);
        self.links.read(true, read.pool_slot.get_bits::<BLOCK_BITS>(3));
        self.next_block.next = self.links.read_data.val();

        self.messages.write(message.valid, message.pool_slot, message.message);
        self.messages.read(true, read.pool_slot);
        self.message_seen.next = self.messages.read_data.val();

        self.begun_counts.write_enable.next = begun.valid || is_sweeping;
        self.begun_counts.write_address.next = select(is_sweeping, sweep_index, begun.queue_pair);
        self.begun_counts.write_data.next = begun.begun;
        self.issued_counts.write_enable.next = issued.valid || is_sweeping;
        self.issued_counts.write_address.next = select(is_sweeping, sweep_index, issued.queue_pair);
        self.issued_counts.write_data.next = issued.issued;
        self.retired_counts.write_enable.next = retired.valid || is_sweeping;
        self.retired_counts.write_address.next = select(is_sweeping, sweep_index, retired.queue_pair);
        self.retired_counts.write_data.next = retired.retired;
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
            self.retired_counts.write_data.next.has_failed = false;
        }

        self.begun_counts.read(read.reads_begun, read.queue_pair);
        self.begun_seen.next = self.begun_counts.read_data.val();
        self.issued_counts.read(read.reads_issued, read.queue_pair);
        self.issued_seen.next = self.issued_counts.read_data.val();
        self.retired_counts.read(self.retired_read.val().valid, self.retired_read.val().queue_pair);
        self.retired.next = self.retired_counts.read_data.val();

        // A chain grows from its last block to the next one.
        let link = self.link.value.val();
        let (was_shared, is_shared) = (is_shared_block(link.block), is_shared_block(link.next));
        let grows = self.link.valid.val();
        let shared_ends = self.shared_ends.q.val();
        self.shared_ends.d.next =
            level_after(shared_ends, grows && is_shared && !was_shared, grows && was_shared && !is_shared);
        let free_count = bit_cast::<LEVEL_BITS, SHARED_COUNT_BITS>(self.free_blocks.level.val());
        self.blocks_used.next = bits::<LEVEL_BITS>(shared_blocks()) - free_count - shared_ends;

        // There are as many shared blocks as queue pairs, so the sweep frees each of them once.
        self.free_blocks.rx.valid.next = self.freed.valid.val() || is_sweeping;
        self.free_blocks.rx.beat.next = select(is_sweeping, sweep_index, self.freed.value.val());
        StreamTx::link(&mut self.free, &mut self.free_blocks.tx);
    }
}

#[cfg(test)]
mod tests;
