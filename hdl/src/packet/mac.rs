//! Where the MAC's AXI4-Stream meets the card's beats.
//!
//! ```text
//!  MAC ── tdata, tkeep, tlast, tuser, tvalid ──> MacReceive  ──> beats, never stalled
//!  MAC <── tdata, tkeep, tlast, tuser, tvalid ── MacTransmit <── beats
//!      ─── tready ────────────────────────────────────────────>
//! ```
//!
//! Frames are whole and carry no FCS. `tkeep` is contiguous from lane 0, and full on every beat but the last, as the
//! Ethernet MACs of all vendors drive it.
use crate::logic::gf2::Matrix;
use crate::logic::xor_network::XorNetwork;
use crate::stream::{Beat, StreamRx};
use rnic_kernel::prelude::*;

/// From the MAC: counts the lanes of `tkeep`. Latency 1, one beat a cycle.
///
/// A MAC cannot wait, so there is no `tready`.
#[derive(LogicBlock, Registers)]
pub struct MacReceive<const DATA: usize, const BYTES: usize, const LANES: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// A beat is there.
    pub tvalid: Signal<In, Bit>,
    /// Lane 0 is the first byte on the wire.
    pub tdata: Signal<In, Bits<DATA>>,
    /// Valid lanes.
    pub tkeep: Signal<In, Bits<LANES>>,
    /// The last beat of its frame.
    pub tlast: Signal<In, Bit>,
    /// On the last beat: the MAC saw an error, such as a bad FCS.
    pub tuser: Signal<In, Bit>,
    /// Registered.
    pub beat: Signal<Out, Beat<DATA, BYTES>>,
    /// Registered.
    pub valid: Signal<Out, Bit>,
    count: XorNetwork<LANES, BYTES>,
    held: DFF<Beat<DATA, BYTES>>,
    held_valid: Reg<Bit>,
}

impl<const DATA: usize, const BYTES: usize, const LANES: usize> Default for MacReceive<DATA, BYTES, LANES> {
    fn default() -> Self {
        // The highest valid lane, one-hot, selects its number plus one; of one-hot terms XOR is OR.
        let lane_to_count = Matrix::from_columns(BYTES, LANES, |lane| vec![lane as u64 + 1]);
        MacReceive {
            clock: Default::default(),
            reset: Default::default(),
            tvalid: Default::default(),
            tdata: Default::default(),
            tkeep: Default::default(),
            tlast: Default::default(),
            tuser: Default::default(),
            beat: Default::default(),
            valid: Default::default(),
            count: XorNetwork::new(lane_to_count),
            held: Default::default(),
            held_valid: Default::default(),
        }
    }
}

impl<const DATA: usize, const BYTES: usize, const LANES: usize> Logic for MacReceive<DATA, BYTES, LANES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let keep = self.tkeep.val();
        self.count.x.next = keep & !(keep >> 1);
        self.held.d.next = Beat::<DATA, BYTES> {
            data: self.tdata.val(),
            bytes: self.count.y.val(),
            last: self.tlast.val(),
            error: self.tlast.val() && self.tuser.val(),
        };
        self.held_valid.d.next = self.tvalid.val();
        self.beat.next = self.held.q.val();
        self.valid.next = self.held_valid.q.val();
    }
}

/// To the MAC: spreads the byte count into `tkeep`. Combinational; the stream before it is registered.
#[derive(Default, LogicBlock)]
pub struct MacTransmit<const DATA: usize, const BYTES: usize, const LANES: usize> {
    /// Frames to send.
    pub from_assemble: StreamRx<Beat<DATA, BYTES>>,
    /// A beat is offered.
    pub tvalid: Signal<Out, Bit>,
    /// The MAC takes it.
    pub tready: Signal<In, Bit>,
    /// Lane 0 is the first byte on the wire.
    pub tdata: Signal<Out, Bits<DATA>>,
    /// Valid lanes.
    pub tkeep: Signal<Out, Bits<LANES>>,
    /// The last beat of its frame.
    pub tlast: Signal<Out, Bit>,
    /// On the last beat: the frame must not reach anybody.
    pub tuser: Signal<Out, Bit>,
    /// To the counters: a frame has been sent.
    pub sent_frame: Signal<Out, Bit>,
    /// To the counters: bytes that were sent in this cycle.
    pub sent_bytes: Signal<Out, Bits<16>>,
}

impl<const DATA: usize, const BYTES: usize, const LANES: usize> Logic for MacTransmit<DATA, BYTES, LANES> {
    #[kernel]
    fn update(&mut self) {
        let beat = self.from_assemble.beat.val();
        self.tvalid.next = self.from_assemble.valid.val();
        self.from_assemble.ready.next = self.tready.val();
        self.tdata.next = beat.data;
        let no_lane = Bits::<LANES>::default();
        self.tkeep.next = !(!no_lane << beat.bytes);
        self.tlast.next = beat.last;
        self.tuser.next = beat.error;
        let moves = self.from_assemble.valid.val() && self.tready.val();
        self.sent_frame.next = moves && beat.last;
        self.sent_bytes.next = select(moves, bit_cast::<16, BYTES>(beat.bytes), bits::<16>(0));
    }
}
