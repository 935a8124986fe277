//! Between the clocks of the MAC and that of the core.
//!
//! ```text
//!  mac_rx_clock                          core clock                             mac_tx_clock
//!  MacReceive ──> FrameEntry ──> AsyncFifo ──> receive ..  assemble ──> FrameHold ──> AsyncFifo ──> MacTransmit
//!                 closes a frame                                        a frame starts when the
//!                 that found no room                                    wire cannot overtake it
//! ```
//!
//! Resets are paired ([`ResetPair`]): a reset of the MAC or of the core alone empties both sides of the queue. Frames stay
//! whole all the same. A frame of which a part is already on the way is closed with an error; of a frame whose begin is gone, no
//! later beat passes. So a MAC can be reset under traffic, as the re-initialisation of a CMAC does, and the core by software.
//!
//! A MAC cannot wait, neither for room nor for data. So a frame from the wire that finds no room is cut off and marked as
//! broken, which the receive path counts as an error of the MAC; and a frame to the wire is held until it is whole here, or until
//! so much of it is here, its *head start*, that the rest arrives in time.
//!
//! **Head start.** Let a frame have F beats. The core writes one in each of its cycles, and the MAC takes one in each of its own. A
//! MAC with the faster clock gains on the core, and the queue must not be empty before the last beat. While the core writes n beats,
//! the MAC has at most ceil(n r) edges, where r is the rate of the MAC over that of the core. The MAC side sees the pointer of a beat
//! and the count of frames that may start after the same number of cycles, and takes the beat two cycles later, since it reads the
//! memory first; the first beat of a frame has been read before the frame starts. So a frame that starts with its beat H has no gap
//! if ceil((k - H) r) <= k - 2 for every later beat k. One edge more is allowed for what is not exact: jitter and tolerance of the
//! clocks, a synchronizer whose input changes at its edge, and bits on ways of different length, one period of the MAC in sum. Then
//! (k - H) r <= k - 3. The last beat decides if the MAC is faster, and the one after the head start if it is not:
//!
//! ```text
//!  head_start = F - floor((F - 3) / r), and at least 3
//! ```
//!
//! A frame that is shorter starts when it is complete. A MAC with a slower clock than the one that a card is built for is fed too.
//!
//! **Room.** When the queue is full the core stops. It goes on up to four of its cycles after the MAC has taken a beat, when it sees
//! the pointer of the MAC side. The worst case is a queue that is full when the head start of a frame is in it. The beats behind the
//! MAC must then last for these four cycles, for three of its own, and for what it gains in the rest of the frame, F - H - 1 beats:
//!
//! ```text
//!  (F - H - 1)(r - 1) + 4 r + 3 <= head_start + ceil(3 r) + 1 = room, which is at most 2^ADDRESS
//! ```
//!
//! The queue from the MAC is as deep. It holds a frame that comes at the clock of the MAC instead of the pace of the wire, as from a
//! MAC that stores frames. That takes F - (F - 4) / r + 3 beats, which is not more than `room`.
use rnic_blocks::memory::Storage;
use rnic_blocks::stream::{AsyncFifo, Beat, ResetPair, StreamRx, StreamTx, Synchronizer, ValidTx};
use rnic_kernel::prelude::*;
use rnic_layout::limits::FRAME_BYTES_MAX;

/// Address bits of the queues at a width of the datapath: the longest frame, and 128 beats at most.
pub const fn queue_address_bits(width_bits: usize) -> usize {
    if width_bits == 512 { 6 } else { 7 }
}

/// Beats of the longest frame that the card sends at a width of the datapath.
pub const fn frame_beats_max(width_bits: usize) -> u64 {
    (FRAME_BYTES_MAX * 8).div_ceil(width_bits) as u64
}

/// Beats of a frame of `frame_beats` that must be in the queue before it starts, as the module derives.
pub const fn head_start(frame_beats: u64, core_hz: u64, mac_hz: u64) -> u64 {
    let behind = (frame_beats - HEAD_START_MIN) as u128 * core_hz as u128 / mac_hz as u128;
    if behind < (frame_beats - HEAD_START_MIN) as u128 { frame_beats - behind as u64 } else { HEAD_START_MIN }
}

/// Beats that the queue must hold, so that a frame has no gap though the queue was full, as the module derives.
pub const fn room(frame_beats: u64, core_hz: u64, mac_hz: u64) -> u64 {
    head_start(frame_beats, core_hz, mac_hz) + mac_hz.saturating_mul(3).div_ceil(core_hz) + 1
}

/// Head start where the core is as fast as the MAC: two cycles of the read register, and one for the uncertainty of the edges.
const HEAD_START_MIN: u64 = 3;

/// From the MAC to the core: frames cross whole, or cut off with an error on their last beat.
///
/// `2^ADDRESS` beats of room, for a frame that comes faster than the core takes it: the core keeps up with the line rate, but a MAC
/// may hand over a frame at its own clock.
///
/// Latency 6 cycles; a beat a cycle of the slower clock.
///
/// 1. A frame that is cut off is closed by one beat with `last` and `error`.
/// 2. Of a frame that is cut off, no later beat passes.
/// 3. After `restart`, and after a reset of either side, the first beat to the core is the first one of a frame.
#[derive(LogicBlock, Registers, Construct)]
pub struct MacEntry<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> {
    /// Clock of the MAC.
    pub mac_clock: Signal<In, Clock>,
    /// Synchronous to `mac_clock`, active high.
    pub mac_reset: Signal<In, Bit>,
    /// From [`MacReceive`](crate::mac::MacReceive).
    pub beat: Signal<In, Beat<DATA, BYTES>>,
    /// `beat` is valid in this cycle; there is no `ready`.
    pub valid: Signal<In, Bit>,
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// The receive path is reset and has forgotten the frame that it was taking.
    pub restart: Signal<In, Bit>,
    /// To the receive path, which takes every beat; one level of logic after registers.
    pub received: ValidTx<Beat<DATA, BYTES>>,
    resets: ResetPair,
    #[domain(clock = mac_clock, reset = mac_reset)]
    guard: FrameEntry<DATA, BYTES>,
    ending: FrameEnding<DATA, BYTES>,
    #[init(AsyncFifo::new(Storage::Block))]
    fifo: AsyncFifo<Beat<DATA, BYTES>, ADDRESS, COUNT>,
}

impl<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> Logic
    for MacEntry<DATA, BYTES, ADDRESS, COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.guard.beat.next = self.beat.val();
        self.guard.valid.next = self.valid.val();
        self.resets.a_clock.next = self.mac_clock.val();
        self.resets.a_reset.next = self.mac_reset.val();
        self.resets.b_clock.next = self.clock.val();
        self.resets.b_reset.next = self.reset.val();
        self.guard.flush.next = self.resets.a_hold.val();
        self.fifo.write_clock.next = self.mac_clock.val();
        self.fifo.write_reset.next = self.resets.a_hold.val();
        StreamTx::join(&mut self.guard.tx, &mut self.fifo.rx);
        self.fifo.read_clock.next = self.clock.val();
        self.fifo.read_reset.next = self.resets.b_hold.val();
        self.fifo.tx.ready.next = true;
        self.ending.restart.next = self.restart.val();
        self.ending.flush.next = self.resets.b_hold.val();
        self.ending.beat.next = self.fifo.tx.beat.val();
        self.ending.valid.next = self.fifo.tx.valid.val();
        ValidTx::link(&mut self.received, &mut self.ending.received);
    }
}

/// Turns beats that cannot wait into a stream.
#[derive(Default, LogicBlock, Registers)]
struct FrameEntry<const DATA: usize, const BYTES: usize> {
    /// Clock of the MAC.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// A beat of a frame.
    pub beat: Signal<In, Beat<DATA, BYTES>>,
    /// `beat` is valid in this cycle; there is no `ready`.
    pub valid: Signal<In, Bit>,
    /// The queue is being emptied: the rest of the frame that passes is dropped.
    pub flush: Signal<In, Bit>,
    /// To the queue. A beat is offered once; if it is not taken, it is lost.
    pub tx: StreamTx<Beat<DATA, BYTES>>,
    /// A part of the frame that passes is in the queue.
    begun: Reg<Bit>,
    /// The rest of the frame that passes is dropped.
    dropping: Reg<Bit>,
    /// A frame in the queue waits to be closed.
    closing: Reg<Bit>,
}

impl<const DATA: usize, const BYTES: usize> Logic for FrameEntry<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let beat = self.beat.val();
        let valid = self.valid.val();
        let (dropping, closing) = (self.dropping.q.val(), self.closing.q.val());
        let has_room = self.tx.ready.val();

        // The closing beat goes first; frames that come meanwhile are lost as a whole.
        let flush = self.flush.val();
        self.tx.valid.next = !flush && (closing || (valid && !dropping));
        self.tx.beat.next = beat;
        if closing {
            self.tx.beat.next = Beat::<DATA, BYTES> {
                data: bits::<DATA>(0),
                bytes: bits::<BYTES>(1),
                last: true,
                error: true,
            };
        }
        if closing && has_room {
            self.closing.d.next = false;
        }
        if valid {
            let lost = closing || dropping || !has_room;
            self.dropping.d.next = lost && !beat.last;
            self.begun.d.next = !lost && !beat.last;
            if !closing && !dropping && !has_room && self.begun.q.val() {
                self.closing.d.next = true;
            }
        }
        if flush {
            self.closing.d.next = false;
            self.begun.d.next = false;
            self.dropping.d.next = if valid { !beat.last } else { dropping || self.begun.q.val() };
        }
    }
}

/// Ends frames at the core that the queue lost or that the core has forgotten.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
struct FrameEnding<const DATA: usize, const BYTES: usize> {
    /// The receive path has forgotten its frame: the rest of it is dropped.
    pub restart: Signal<In, Bit>,
    /// The queue is being emptied: the frame that the receive path has begun is closed.
    pub flush: Signal<In, Bit>,
    /// Beat of the queue.
    pub beat: Signal<In, Beat<DATA, BYTES>>,
    /// `beat` is valid in this cycle.
    pub valid: Signal<In, Bit>,
    /// See [`MacEntry::received`].
    pub received: ValidTx<Beat<DATA, BYTES>>,
    /// The receive path has a part of a frame.
    open: Reg<Bit>,
    /// The rest of a frame is dropped.
    dropping: Reg<Bit>,
}

impl<const DATA: usize, const BYTES: usize> Logic for FrameEnding<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let beat = self.beat.val();
        let (restart, flush) = (self.restart.val(), self.flush.val());
        let (open, dropping) = (self.open.q.val(), self.dropping.q.val());
        let closes = flush && open && !restart;
        let passes = self.valid.val() && !dropping && !flush && !restart;
        self.received.value.next = Beat::<DATA, BYTES> {
            data: beat.data,
            bytes: select(closes, bits::<BYTES>(1), beat.bytes),
            last: beat.last || closes,
            error: beat.error || closes,
        };
        self.received.valid.next = passes || closes;
        if passes {
            self.open.d.next = !beat.last;
        }
        if flush || restart {
            self.open.d.next = false;
        }
        if flush {
            // The queue begins anew with a frame.
            self.dropping.d.next = false;
        } else if self.valid.val() {
            self.dropping.d.next = (dropping || restart) && !beat.last;
        } else if restart {
            self.dropping.d.next = dropping || open;
        }
    }
}

/// From the core to the MAC: a frame starts when it can no longer run dry.
///
/// Latency 8 cycles for a frame of one beat, and as many and one for each further beat of its head start for a longer one; a beat a
/// cycle of the slower clock. `2^ADDRESS` beats of room, 32 to 128; other sizes do not compile.
///
/// 1. Between the first and the last beat of a frame, `tx.valid` stays high if the core offers its beats without a gap, and the
///    clocks are those for which [`head_start`] was computed, or the MAC has a slower one.
/// 2. A frame that `restart` or a reset interrupts is closed by one beat with `last` and `error`, if a part of it may be on the
///    wire.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
#[require(5 <= ADDRESS && ADDRESS <= 7)]
#[new(
    /// Makes an empty queue, in which a frame starts when `head_start` beats of it are here, 1 to `2^ADDRESS - 1`.
    head_start: u64,
)]
pub struct MacExit<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> {
    /// Frames to send.
    pub rx: StreamRx<Beat<DATA, BYTES>>,
    /// The block before is reset and has forgotten the frame that it was sending.
    pub restart: Signal<In, Bit>,
    /// Clock of the MAC.
    pub mac_clock: Signal<In, Clock>,
    /// Synchronous to `mac_clock`, active high.
    pub mac_reset: Signal<In, Bit>,
    /// To [`MacTransmit`](crate::mac::MacTransmit).
    pub tx: StreamTx<Beat<DATA, BYTES>>,
    resets: ResetPair,
    #[init(FrameHold::new(head_start))]
    hold: FrameHold<DATA, BYTES, ADDRESS, COUNT>,
    #[domain(clock = mac_clock, reset = mac_reset)]
    release: FrameRelease<DATA, BYTES, COUNT>,
    #[init(AsyncFifo::new(Storage::Block))]
    fifo: AsyncFifo<Beat<DATA, BYTES>, ADDRESS, COUNT>,
    #[domain(clock = mac_clock)]
    starts: Synchronizer<COUNT>,
}

impl<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> Logic
    for MacExit<DATA, BYTES, ADDRESS, COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.resets.a_clock.next = self.clock.val();
        self.resets.a_reset.next = self.reset.val();
        self.resets.b_clock.next = self.mac_clock.val();
        self.resets.b_reset.next = self.mac_reset.val();
        StreamRx::link(&mut self.rx, &mut self.hold.rx);
        self.hold.restart.next = self.restart.val();
        self.hold.flush.next = self.resets.a_hold.val();
        self.release.flush.next = self.resets.b_hold.val();
        self.fifo.write_clock.next = self.clock.val();
        self.fifo.write_reset.next = self.resets.a_hold.val();
        StreamTx::join(&mut self.hold.tx, &mut self.fifo.rx);
        self.starts.d.next = self.hold.starts.val();
        self.fifo.read_clock.next = self.mac_clock.val();
        self.fifo.read_reset.next = self.resets.b_hold.val();
        self.release.starts.next = self.starts.q.val();
        StreamTx::join(&mut self.fifo.tx, &mut self.release.rx);
        StreamTx::link(&mut self.tx, &mut self.release.tx);
    }
}

/// Counts the frames that may start. Lets every beat pass, but for those of interrupted frames.
///
/// The other side has not started more of them than the queue holds beats, so they are counted in `COUNT` bits.
#[derive(LogicBlock, Registers, Construct)]
#[new(head_start: u64)]
struct FrameHold<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub rx: StreamRx<Beat<DATA, BYTES>>,
    pub tx: StreamTx<Beat<DATA, BYTES>>,
    /// The frame that passes ends here: its source has forgotten it.
    pub restart: Signal<In, Bit>,
    /// The queue is being emptied: what comes meanwhile is dropped, up to the end of its frame.
    pub flush: Signal<In, Bit>,
    /// Frames that may start, in Gray code; registered.
    pub starts: Signal<Out, Bits<COUNT>>,
    #[init(Constant::new(bits(head_start)))]
    head_start: Constant<Bits<ADDRESS>>,
    /// Beats of the current frame that have passed, up to `head_start`.
    beats: Reg<Bits<ADDRESS>>,
    /// A frame in the queue waits to be closed.
    closing: Reg<Bit>,
    /// The rest of the frame that passes is dropped.
    dropping: Reg<Bit>,
    count: Reg<Bits<COUNT>>,
    gray: Reg<Bits<COUNT>>,
}

impl<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> Logic
    for FrameHold<DATA, BYTES, ADDRESS, COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let offered = self.rx.beat.val();
        let valid = self.rx.valid.val();
        let (flush, restart) = (self.flush.val(), self.restart.val());
        let (closing, dropping) = (self.closing.q.val(), self.dropping.q.val());
        let swallows = flush || dropping;
        let beat = Beat::<DATA, BYTES> {
            data: offered.data,
            bytes: select(closing, bits::<BYTES>(1), offered.bytes),
            last: offered.last || closing,
            error: offered.error || closing,
        };
        self.tx.beat.next = beat;
        self.tx.valid.next = closing || (valid && !swallows && !restart);
        self.rx.ready.next = swallows || (self.tx.ready.val() && !closing && !restart);
        self.starts.next = self.gray.q.val();

        let moves = (closing || (valid && !swallows && !restart)) && self.tx.ready.val();
        let beats = self.beats.q.val();
        let is_held = beats != self.head_start.val();
        let may_start = moves && is_held && (beat.last || beats == self.head_start.val() - 1);
        if may_start {
            let next = self.count.q.val() + 1;
            self.count.d.next = next;
            self.gray.d.next = next ^ (next >> 1);
        }
        if moves {
            self.beats.d.next = if beat.last {
                bits(0)
            } else if is_held {
                beats + 1
            } else {
                beats
            };
            self.closing.d.next = false;
        }
        if swallows && valid {
            self.dropping.d.next = !offered.last;
        }
        if restart {
            self.closing.d.next = (closing && !moves) || (!closing && beats.any());
            self.dropping.d.next = false;
        }
        if flush {
            // The queue and the wire begin anew; the source may be in the middle of a frame.
            self.closing.d.next = false;
            self.beats.d.next = bits(0);
            self.count.d.next = bits(0);
            self.gray.d.next = bits(0);
            self.dropping.d.next = if restart {
                false
            } else if valid {
                !offered.last
            } else {
                dropping || (beats.any() && !closing)
            };
        }
    }
}

/// Holds a frame until it may start.
#[derive(Default, LogicBlock, Registers)]
struct FrameRelease<const DATA: usize, const BYTES: usize, const COUNT: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub rx: StreamRx<Beat<DATA, BYTES>>,
    pub tx: StreamTx<Beat<DATA, BYTES>>,
    /// The queue is being emptied: the frame that has started is closed.
    pub flush: Signal<In, Bit>,
    /// Frames that may start, in Gray code.
    pub starts: Signal<In, Bits<COUNT>>,
    /// Frames that have started, in Gray code; `starts` is ahead by at most the depth of the queue.
    gray: Reg<Bits<COUNT>>,
    count: Reg<Bits<COUNT>>,
    inside: Reg<Bit>,
    /// The frame that has started waits to be closed.
    closing: Reg<Bit>,
}

impl<const DATA: usize, const BYTES: usize, const COUNT: usize> Logic for FrameRelease<DATA, BYTES, COUNT> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let inside = self.inside.q.val();
        let flush = self.flush.val();
        let closing = self.closing.q.val() || (flush && inside);
        let opens = !closing && !flush && (inside || self.gray.q.val() != self.starts.val());
        let offered = self.rx.beat.val();
        self.tx.beat.next = Beat::<DATA, BYTES> {
            data: offered.data,
            bytes: select(closing, bits::<BYTES>(1), offered.bytes),
            last: offered.last || closing,
            error: offered.error || closing,
        };
        self.tx.valid.next = closing || (self.rx.valid.val() && opens);
        self.rx.ready.next = self.tx.ready.val() && opens;
        let moves = self.rx.valid.val() && opens && self.tx.ready.val();
        if moves {
            self.inside.d.next = !offered.last;
        }
        if moves && !inside {
            let next = self.count.q.val() + 1;
            self.count.d.next = next;
            self.gray.d.next = next ^ (next >> 1);
        }
        self.closing.d.next = closing && !self.tx.ready.val();
        if flush {
            self.inside.d.next = false;
            self.count.d.next = bits(0);
            self.gray.d.next = bits(0);
        }
    }
}

#[cfg(test)]
mod tests;
