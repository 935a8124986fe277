//! The rates of a card. Every time that the monitors allow the card follows from them.
//!
//! ```text
//!   issue ──> gather ──> address vector ──> assembler ──> crossing, MAC ──> wire
//!   16        256        2                  1             2                       packets
//!             32 KiB                                                              of payload
//!   └────────────────── core clock ──────────────────┘    └─── line rate ───┘
//! ```
//!
//! A time is so many cycles of the core clock, in which the wire moves [`BITS_A_CYCLE`]. A wire that is slower for its core holds frames up
//! that wait for it, so it adds what each of them takes longer. A core of 250 MHz has such a wire below 10 Gb/s.
use rnic_layout::limits::FRAME_BYTES_MAX;

/// Picoseconds in a second.
pub const SECOND_PS: u64 = 1_000_000_000_000;
/// Overhead of a frame in bytes: preamble 8, FCS 4, gap 12.
pub const FRAME_OVERHEAD_BYTES: u64 = 24;
/// Bits that a wire of 10 Gb/s moves in a cycle of 250 MHz.
const BITS_A_CYCLE: u64 = 40;
/// What waits for the wire behind issue, in frames of the greatest length: gather's 32 KiB of payload with the headers of 256 packets
/// are as long as 15, and 5 have left gather.
const WAITING_FRAMES: u64 = 15 + 5;
/// Packets that issue holds.
const ISSUE_FRAMES: u64 = 16;

/// Time for which a frame of so many bytes without FCS occupies a wire, in picoseconds.
pub const fn frame_ps(bytes: usize, bits_per_second: u64) -> u64 {
    (bytes as u64 + FRAME_OVERHEAD_BYTES) * 8 * SECOND_PS / bits_per_second
}

/// Rates of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Core clock, in hertz.
    pub core_hertz: u64,
    /// Line rate of the network port.
    pub bits_per_second: u64,
}

impl Rates {
    /// Time of so many cycles of the core clock, in picoseconds.
    pub const fn cycles_ps(self, cycles: u64) -> u64 {
        cycles * SECOND_PS / self.core_hertz
    }

    /// Time of so many cycles in which so many of the longest frames leave, in picoseconds.
    const fn leave_ps(self, cycles: u64, frames: u64) -> u64 {
        let frame_bits = (FRAME_BYTES_MAX as u64 + FRAME_OVERHEAD_BYTES) * 8;
        let in_time_ps = self.cycles_ps(frame_bits.div_ceil(BITS_A_CYCLE));
        let late_ps = frame_ps(FRAME_BYTES_MAX, self.bits_per_second).saturating_sub(in_time_ps);
        self.cycles_ps(cycles) + frames * late_ps
    }

    /// Time for which frames of the set-up before may follow the answer to a command, in picoseconds: those that wait for the wire.
    pub const fn linger_ps(self) -> u64 {
        self.leave_ps(5_000, WAITING_FRAMES)
    }

    /// Time for which a response may wait on the card before it counts, in picoseconds: behind completions that the host is slow to
    /// take. None of them waits for the wire.
    pub(crate) const fn unread_ps(self) -> u64 {
        self.cycles_ps(5_000)
    }

    /// Time for which packets that the card had begun may leave after it has gone back, in picoseconds: they wait for their payload, of
    /// which a slow host takes 10 us to read each, and for the wire.
    pub(crate) const fn begun_ps(self) -> u64 {
        self.leave_ps(15_000, ISSUE_FRAMES + WAITING_FRAMES)
    }

    /// Time between the start of a timer, when its packet leaves gather, and the end of that packet on the wire, in picoseconds: it
    /// waits for one other.
    pub(crate) const fn leaving_ps(self) -> u64 {
        self.leave_ps(2_000, 2)
    }
}
