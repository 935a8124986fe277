//! Streams: the one handshake that every block of the card obeys.
//!
//! A beat moves in each cycle in which `valid` and `ready` are both high. A producer that raised `valid` keeps it
//! high, with the same beat, until the beat has moved. `valid` never waits for `ready`; `ready` may wait for `valid`.
//!
//! ```text
//!              ┌──────────┐  beat, valid   ┌──────────┐
//!              │ StreamTx ├───────────────>│ StreamRx │
//!              │          │<───────────────┤          │
//!              └──────────┘     ready      └──────────┘
//! ```
//!
//! A value that its consumer takes in whatever cycle it comes has no `ready`: [`ValidTx`] and [`ValidRx`].
//!
//! | Block | What it does to a stream |
//! |---|---|
//! | [`RegisterSlice`] | registers it in both directions |
//! | [`Fifo`] | queues it |
//! | [`PacketFifo`] | queues it, and releases a packet only when it is committed |
//! | [`AsyncFifo`] | moves it from one clock to another; a [`ResetPair`] resets both of its sides together |
//! | [`Arbiter`] | merges it with others, frame by frame |
//! | [`TurnQueue`] | queues numbers, each at most once |
//! | [`Splitter`] | splits the spans of bytes that it carries at boundaries |
//!
//! LUT, FF and depth in the headers are those of Yosys (`synth_xilinx -family xcup`), without wire delays; depth counts LUTs and
//! carry cells on the longest path.
pub mod slice;
pub mod fifo;
pub mod packet_fifo;
pub mod async_fifo;
pub mod synchronizer;
pub mod reset_pair;
pub mod arbiter;
pub mod split;
pub mod turn_queue;

pub use arbiter::Arbiter;
pub use async_fifo::AsyncFifo;
pub use fifo::{FIFO_LATENCY, Fifo};
pub use packet_fifo::PacketFifo;
pub use reset_pair::ResetPair;
pub use slice::RegisterSlice;
pub use split::{Piece, Span, Splitter};
pub use synchronizer::Synchronizer;
pub use turn_queue::TurnQueue;

use rnic_kernel::prelude::*;

/// One beat of a frame or of a payload.
///
/// `DATA` is the width of the datapath in bits: 64, 128, 256 or 512. `BYTES` is the width of a count of its bytes:
/// 4, 5, 6 or 7. Byte 0, the first on the wire, is in bits 7:0.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Beat<const DATA: usize, const BYTES: usize> {
    /// Data; lanes from `bytes` on are undefined.
    pub data: Bits<DATA>,
    /// Valid bytes from lane 0 on: `DATA / 8`, or on the last beat 1 to `DATA / 8`.
    pub bytes: Bits<BYTES>,
    /// The last beat of its frame.
    pub last: Bit,
    /// On the last beat: the frame is broken and must not be used.
    pub error: Bit,
}

/// The consumer's end of a stream.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
#[join = "StreamTx"]
pub struct StreamRx<T: Synth> {
    /// What is offered; meaningful while `valid`.
    pub beat: Signal<In, T>,
    /// A beat is offered.
    pub valid: Signal<In, Bit>,
    /// The beat is taken in this cycle, if there is one.
    pub ready: Signal<Out, Bit>,
}

/// The producer's end of a stream.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
#[join = "StreamRx"]
pub struct StreamTx<T: Synth> {
    /// What is offered; meaningful while `valid`.
    pub beat: Signal<Out, T>,
    /// A beat is offered.
    pub valid: Signal<Out, Bit>,
    /// The beat is taken in this cycle, if there is one.
    pub ready: Signal<In, Bit>,
}

impl<T: Synth> StreamRx<T> {
    /// Offers `beat`, or nothing, to the part of the block that has this port.
    #[kernel]
    pub fn offer(&mut self, valid: Bit, beat: T) {
        self.valid.next = valid;
        self.beat.next = beat;
    }
}

impl<T: Synth> StreamTx<T> {
    /// Offers `beat`, or nothing, at this port of the block itself.
    #[kernel]
    pub fn offer(&mut self, valid: Bit, beat: T) {
        self.valid.next = valid;
        self.beat.next = beat;
    }
}

/// The consumer's end of a value that comes when it comes: it is taken in the cycle in which it is valid.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
#[join = "ValidTx"]
pub struct ValidRx<T: Synth> {
    /// Meaningful while `valid`.
    pub value: Signal<In, T>,
    /// There is a value in this cycle.
    pub valid: Signal<In, Bit>,
}

/// The producer's end of a value that comes when it comes.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
#[join = "ValidRx"]
pub struct ValidTx<T: Synth> {
    /// Meaningful while `valid`.
    pub value: Signal<Out, T>,
    /// There is a value in this cycle.
    pub valid: Signal<Out, Bit>,
}

impl<T: Synth> ValidRx<T> {
    /// Gives `value`, or none, to the part of the block that has this port.
    #[kernel]
    pub fn offer(&mut self, valid: Bit, value: T) {
        self.valid.next = valid;
        self.value.next = value;
    }
}

impl<T: Synth> ValidTx<T> {
    /// Gives `value`, or none, at this port of the block itself.
    #[kernel]
    pub fn offer(&mut self, valid: Bit, value: T) {
        self.valid.next = valid;
        self.value.next = value;
    }
}
