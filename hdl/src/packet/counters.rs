//! Counts events, with frames and bytes for each kind, and holds all counts of one moment for reading.
//!
//! The counters lie in memory, so that there can be many of them and 64 bits each, and yet one event a cycle is counted.
//! A copy of all of them at once would take as many cycles as there are counters. So nothing is copied until it must
//! be: `latch` marks every counter, and the first event that changes a marked one saves its old value.
//!
//! ```text
//!            ┌────────┐  old   ┌─────┐  new
//!  outcome ─>│ counts ├─────┬─>│ add ├────────┬──> counts, and their copy for the reader
//!            └────────┘     │  └─────┘        │
//!                           │ if marked   ┌───▼──┐    marked    ┌───┐
//!  latch ──> marks          └────────────>│ saved├─────────────>│   ├──> read
//!  read_index ───────────────────────────>│ copy │   not so     │ ? │
//!                                         └──────┘─────────────>└───┘
//! ```
//!
//! Latency 2 cycles from an event to its count, [`READ_LATENCY`] from `read_index` to `read`; throughput one event and one
//! reading a cycle.
//!
//! 1. `read` is the count of all events that came before the last `latch`, whatever has happened since.
//! 2. Events of one cycle before `latch` and in the same cycle are counted before it, up to the pipeline's depth.
//! 3. Before the first `latch`, `read` is zero.
//!
//! Counts wrap at 2^64. Reset does not clear them: who reads takes differences.
use super::dispatch::FrameOutcome;
use super::reason::REASON_BITS;
use crate::memory::{Memory, Storage};
use crate::parameter::ParameterError;
use rnic_kernel::prelude::*;

/// Cycles from [`Counters::read_index`] to [`Counters::read`].
pub const READ_LATENCY: usize = 2;

/// Frames of one kind, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Count {
    /// How many.
    pub frames: Bits<64>,
    /// How many bytes they had together.
    pub bytes: Bits<64>,
}

/// One counter for each number of an outcome.
#[derive(LogicBlock, Registers)]
pub struct Counters {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets an event on its way, but no count.
    pub reset: Signal<In, Bit>,
    /// From dispatch: what became of a frame.
    pub outcome: Signal<In, FrameOutcome>,
    /// There was one.
    pub outcome_valid: Signal<In, Bit>,
    /// From the registers: hold the counts of this moment.
    pub latch: Signal<In, Bit>,
    /// Number of the counter to read.
    pub read_index: Signal<In, Bits<REASON_BITS>>,
    /// What it was when it was latched; registered.
    pub read: Signal<Out, Count>,

    counts: Memory<Count, REASON_BITS>,
    copy: Memory<Count, REASON_BITS>,
    saved: Memory<Count, REASON_BITS>,
    /// Counters that have not changed since they were latched.
    marks: Reg<Bits<32>>,
    held: DFF<FrameOutcome>,
    held_valid: Reg<Bit>,
    /// What was written in the cycle before, which the memory did not show yet.
    written: DFF<Count>,
    written_number: DFF<Bits<REASON_BITS>>,
    written_valid: Reg<Bit>,
    reads_copy: DFF<Bit>,
    reading: DFF<Count>,
}

impl Counters {
    /// Makes counters that are all zero.
    ///
    /// # Errors
    /// None with the widths that are built in.
    pub fn new() -> Result<Self, ParameterError> {
        Ok(Counters {
            clock: Signal::default(),
            reset: Signal::default(),
            outcome: Signal::default(),
            outcome_valid: Signal::default(),
            latch: Signal::default(),
            read_index: Signal::default(),
            read: Signal::default(),
            counts: Memory::new(Storage::Distributed)?,
            copy: Memory::new(Storage::Distributed)?,
            saved: Memory::new(Storage::Distributed)?,
            marks: Reg::default(),
            held: DFF::default(),
            held_valid: Reg::default(),
            written: DFF::default(),
            written_number: DFF::default(),
            written_valid: Reg::default(),
            reads_copy: DFF::default(),
            reading: DFF::default(),
        })
    }
}

impl Logic for Counters {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        clock!(self, clock, counts, copy, saved);
        // Cycle 0: the old count is looked up.
        self.counts.read_enable.next = self.outcome_valid.val();
        self.counts.read_address.next = self.outcome.val().number;
        self.held.d.next = self.outcome.val();
        self.held_valid.d.next = self.outcome_valid.val();

        // Cycle 1: it grows. The event of the cycle before may have been of the same kind.
        let outcome = self.held.q.val();
        let is_again = self.written_valid.q.val() && self.written_number.q.val() == outcome.number;
        let old = select(is_again, self.written.q.val(), self.counts.read_data.val());
        let new_frames = old.frames + 1;
        let new_bytes = old.bytes + bit_cast::<64, 16>(outcome.frame_bytes);
        let held_valid = self.held_valid.q.val();
        self.counts.write_enable.next = held_valid;
        self.counts.write_address.next = outcome.number;
        self.counts.write_data.next = Count { frames: new_frames, bytes: new_bytes };
        self.copy.write_enable.next = held_valid;
        self.copy.write_address.next = outcome.number;
        self.copy.write_data.next = Count { frames: new_frames, bytes: new_bytes };
        self.written.d.next = Count { frames: new_frames, bytes: new_bytes };
        self.written_number.d.next = outcome.number;
        self.written_valid.d.next = held_valid;

        // A counter that changes for the first time since the latch leaves its old value behind.
        let is_marked = self.marks.q.val().get_bit(outcome.number.index());
        self.saved.write_enable.next = held_valid && is_marked;
        self.saved.write_address.next = outcome.number;
        self.saved.write_data.next = old;
        if self.latch.val() {
            self.marks.d.next = !bits::<32>(0);
        } else if held_valid {
            self.marks.d.next = self.marks.q.val().replace_bit(outcome.number.index(), false);
        }

        // Reading: a marked counter still is what it was.
        self.copy.read_enable.next = true;
        self.copy.read_address.next = self.read_index.val();
        self.saved.read_enable.next = true;
        self.saved.read_address.next = self.read_index.val();
        self.reads_copy.d.next = self.marks.q.val().get_bit(self.read_index.val().index());
        self.reading.d.next =
            select(self.reads_copy.q.val(), self.copy.read_data.val(), self.saved.read_data.val());
        self.read.next = self.reading.q.val();
    }
}
