//! Two counts that grow together, of frames and of their bytes, with a copy for the reader.
use rnic_kernel::prelude::*;

/// Counts frames and bytes; `latch` copies both at once.
///
/// Latency 1 cycle; one event a cycle. Events of the cycle of `latch` are not in the copy. Counts wrap at 2^64, and reset
/// clears them with their copies.
#[derive(Default, LogicBlock, Registers)]
pub(super) struct Totals {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// A frame has ended.
    pub frame: Signal<In, Bit>,
    /// Bytes that came in this cycle.
    pub bytes: Signal<In, Bits<16>>,
    /// Copy both counts.
    pub latch: Signal<In, Bit>,
    /// Frames up to the last `latch`; registered.
    pub latched_frames: Signal<Out, Bits<64>>,
    /// Bytes up to the last `latch`; registered.
    pub latched_bytes: Signal<Out, Bits<64>>,
    frames_counted: Reg<Bits<64>>,
    bytes_counted: Reg<Bits<64>>,
    frames_copied: Reg<Bits<64>>,
    bytes_copied: Reg<Bits<64>>,
}

impl Logic for Totals {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        if self.frame.val() {
            self.frames_counted.d.next = self.frames_counted.q.val() + 1;
        }
        self.bytes_counted.d.next = self.bytes_counted.q.val() + bit_cast::<64, 16>(self.bytes.val());
        if self.latch.val() {
            self.frames_copied.d.next = self.frames_counted.q.val();
            self.bytes_copied.d.next = self.bytes_counted.q.val();
        }
        self.latched_frames.next = self.frames_copied.q.val();
        self.latched_bytes.next = self.bytes_copied.q.val();
    }
}
