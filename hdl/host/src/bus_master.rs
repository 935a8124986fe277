//! Bus master: lets requests to the host begin only while the card may make them.
//!
//! Software may take a function its right to be bus master at any time, also in full traffic. What has begun must then end, since
//! the host waits for it; what has not begun waits in the card, so nothing is lost when software gives the right back.
//!
//! ```text
//!                        ┌────────────────────────────────┐
//!  host_reader ─────────>│ read ─────> may begin? ────────┼──> to_host
//!  host_writer ─────────>│ write ────> may begin? ─┐      ├──> request
//!              ─────────>│ word ─────> requested? <┘      ├──> words
//!  complete ────────────>│ interrupt ─> may begin? ───────┼──> irq
//!  host (answers) ──────>│ owed ─────────> is_cut_off ────┼──> control
//!                        └────────────────────────────────┘
//! ```
//!
//! Latency none, except that the first word of a write follows its request by a cycle.
//!
//! 1. From the second cycle after `enable` falls on, no read, no write and no interrupt begins. One that is offered then stays until
//!    it is taken, and a write that is requested gets its words.
//! 2. They begin again [`OPENING_CYCLES`] cycles after `enable` has risen.
//! 3. `is_cut_off` says that nothing is offered, that the host owes no answer, and that nothing begins in this cycle and the two
//!    that follow, whatever `enable` does. So a reset that begins within two cycles cuts off nothing that the host knows of.
//! 4. The words of a write are offered after its request has been taken.
//!
//! Design 3.1, design decision 12.
use crate::host_writer::{HostWrite, WORDS, WriteWord};
use crate::read_engine::HostRead;
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::VECTOR_BITS;

/// Cycles for which `enable` must have been high before anything begins.
pub const OPENING_CYCLES: usize = 4;
/// Of these, the ones that are kept.
const KEPT: usize = OPENING_CYCLES - 1;
/// Bits of the number of writes whose request is ahead of their last word: each has a word in the queue of words, or is the one
/// that is being given out.
const AHEAD_BITS: usize = WORDS + 1;
/// Bits of the number of answers that the host owes: for 256 reads and 512 writes.
const OWED_BITS: usize = 10;

/// Lets requests to the host begin only while the card may make them.
#[clocked(reset = "forgets what the host owes")]
#[derive(LogicBlock, Registers, Construct)]
pub struct BusMaster<const DATA: usize, const TAG: usize> {
    /// From the shell: the card may reach memory and raise interrupts.
    pub enable: Signal<In, Bit>,

    /// From the host reader; `ready` is combinational, as that of all four.
    pub read: StreamRx<HostRead<TAG>>,
    /// From the host writer: requests.
    pub write: StreamRx<HostWrite>,
    /// From the host writer: their words.
    pub word: StreamRx<WriteWord<DATA>>,
    /// From the completion stage.
    pub interrupt: StreamRx<Bits<VECTOR_BITS>>,

    /// To the host: reads; a function of registers, as are the three below.
    pub to_host: StreamTx<HostRead<TAG>>,
    /// To the host: requests of writes.
    pub request: StreamTx<HostWrite>,
    /// To the host: words of writes, in the order of their requests.
    pub words: StreamTx<WriteWord<DATA>>,
    /// To the shell: vectors to raise.
    pub irq: StreamTx<Bits<VECTOR_BITS>>,
    /// From the host: the last word of the answer to a read.
    pub read_ends: Signal<In, Bit>,
    /// From the host: the oldest write is done.
    pub write_ends: Signal<In, Bit>,

    /// The card may make requests; registered.
    pub is_open: Signal<Out, Bit>,
    /// The card makes no requests, and the host owes none; registered.
    pub is_cut_off: Signal<Out, Bit>,

    /// `enable` in the last cycles, the newest in bit 0.
    recent: Reg<Bits<OPENING_CYCLES>>,
    open: Reg<Bit>,
    /// What was offered in the last cycle and not taken: a read, a write, an interrupt.
    held: Reg<Bits<3>>,
    /// Writes whose request is taken, and whose last word is not.
    ahead: Reg<Bits<AHEAD_BITS>>,
    /// Reads and writes that the host has taken, and not answered.
    owed: Reg<Bits<OWED_BITS>>,
    cut_off: Reg<Bit>,
}

/// Widens a bit to a number.
#[kernel]
fn count(is_one: Bit) -> Bits<OWED_BITS> {
    bit_cast::<OWED_BITS, 1>(cat!(is_one))
}

/// Counts what the host owes after a cycle in which it took requests and answered others.
#[kernel]
fn owed_after(
    owed: Bits<OWED_BITS>,
    takes_read: Bit,
    takes_write: Bit,
    read_ends: Bit,
    write_ends: Bit,
) -> Bits<OWED_BITS> {
    owed + (count(takes_read) + count(takes_write)) - (count(read_ends) + count(write_ends))
}

/// Counts the writes whose request is taken and whose last word is not.
#[kernel]
fn ahead_after(ahead: Bits<AHEAD_BITS>, takes_write: Bit, takes_last_word: Bit) -> Bits<AHEAD_BITS> {
    if takes_write == takes_last_word {
        ahead
    } else if takes_write {
        ahead + 1
    } else {
        ahead - 1
    }
}

impl<const DATA: usize, const TAG: usize> Logic for BusMaster<DATA, TAG> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let recent = cat!(self.recent.q.val().get_bits::<KEPT>(0), self.enable.val());
        let open = self.open.q.val();
        let held = self.held.q.val();
        self.recent.d.next = recent;
        self.open.d.next = recent.all();
        self.is_open.next = open;

        // What is offered stays; what is not, begins only while the card may make requests.
        let offers_read = self.read.valid.val() && (open || held.get_bit(0));
        self.to_host.offer(offers_read, self.read.beat.val());
        self.read.ready.next = self.to_host.ready.val() && (open || held.get_bit(0));
        let offers_write = self.write.valid.val() && (open || held.get_bit(1));
        self.request.offer(offers_write, self.write.beat.val());
        self.write.ready.next = self.request.ready.val() && (open || held.get_bit(1));
        let offers_interrupt = self.interrupt.valid.val() && (open || held.get_bit(2));
        self.irq.offer(offers_interrupt, self.interrupt.beat.val());
        self.interrupt.ready.next = self.irq.ready.val() && (open || held.get_bit(2));
        self.held.d.next = cat!(
            offers_interrupt && !self.irq.ready.val(),
            offers_write && !self.request.ready.val(),
            offers_read && !self.to_host.ready.val(),
        );

        // Words follow their request, whatever the card may do meanwhile.
        let is_requested = self.ahead.q.val().any();
        let word = self.word.beat.val();
        self.words.offer(self.word.valid.val() && is_requested, word);
        self.word.ready.next = self.words.ready.val() && is_requested;

        let takes_read = offers_read && self.to_host.ready.val();
        let takes_write = offers_write && self.request.ready.val();
        let takes_last_word = self.word.valid.val() && is_requested && self.words.ready.val() && word.last;
        let owed = self.owed.q.val();
        self.ahead.d.next = ahead_after(self.ahead.q.val(), takes_write, takes_last_word);
        self.owed.d.next =
            owed_after(owed, takes_read, takes_write, self.read_ends.val(), self.write_ends.val());
        self.cut_off.d.next = !self.recent.q.val().any() && !owed.any() && !held.any();
        self.is_cut_off.next = self.cut_off.q.val();
    }
}

#[cfg(test)]
mod tests;
