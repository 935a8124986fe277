//! Conversion between the AXI4-Stream of the MAC and the beats of the card.
//!
//! ```text
//!  MAC ── tdata, tkeep, tlast, tuser, tvalid ──> MacReceive  ──> beats, never stalled
//!  MAC <── tdata, tkeep, tlast, tuser, tvalid ── MacTransmit <── beats
//!      ─── tready ────────────────────────────────────────────>
//! ```
//!
//! Frames are whole and carry no FCS. `tkeep` is contiguous from lane 0, and full on every beat but the last, as the
//! Ethernet MACs of all vendors drive it.
use rnic_blocks::logic::gf2::Matrix;
use rnic_blocks::logic::xor_network::XorNetwork;
use rnic_blocks::stream::{Beat, StreamRx};
use rnic_kernel::prelude::*;

/// From the MAC: counts the lanes of `tkeep`. Latency 1, one beat a cycle.
///
/// A MAC cannot wait, so there is no `tready`.
#[derive(LogicBlock, Registers, Construct)]
pub struct MacReceive<const DATA: usize, const BYTES: usize, const LANES: usize> {
    /// Clock of the MAC.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// `tdata` is valid in this cycle; there is no `tready`.
    pub tvalid: Signal<In, Bit>,
    /// Lane 0 is the first byte on the wire.
    pub tdata: Signal<In, Bits<DATA>>,
    /// Valid lanes.
    pub tkeep: Signal<In, Bits<LANES>>,
    /// The last beat of its frame.
    pub tlast: Signal<In, Bit>,
    /// On the last beat: the MAC saw an error, such as a bad FCS.
    pub tuser: Signal<In, Bit>,
    /// Beat of a frame; registered.
    pub beat: Signal<Out, Beat<DATA, BYTES>>,
    /// `beat` is valid in this cycle; registered.
    pub valid: Signal<Out, Bit>,
    #[init(XorNetwork::new(lane_to_count(LANES, BYTES)))]
    count: XorNetwork<LANES, BYTES>,
    held: DFF<Beat<DATA, BYTES>>,
    held_valid: Reg<Bit>,
}

/// The highest valid lane, one-hot, selects its number plus one; of one-hot terms XOR is OR.
fn lane_to_count(lanes: usize, bits: usize) -> Matrix {
    Matrix::from_columns(bits, lanes, |lane| vec![lane as u64 + 1])
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
#[derive(Default, LogicBlock, Registers)]
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
    /// On the last beat: the MAC must send the frame as a bad one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Stimulus, random};

    fn keep_of(count: usize) -> u64 {
        u64::MAX >> (64 - count)
    }

    fn lanes_are_counted<const DATA: usize, const BYTES: usize, const LANES: usize>() {
        let mut random = random();
        let block = MacReceive::<DATA, BYTES, LANES>::default();
        let mut bench = Bench::clocked(block, |block| &mut block.clock).in_lock_step();
        for _ in 0..200 {
            let count = random.random_range(1..=LANES);
            let (is_valid, is_last, is_broken) = (random.random(), random.random(), random.random());
            let data: Bits<DATA> = Stimulus::sample(&mut random);
            bench.block.tvalid.next = is_valid;
            bench.block.tdata.next = data;
            bench.block.tkeep.next = bits(keep_of(count));
            bench.block.tlast.next = is_last;
            bench.block.tuser.next = is_broken;
            bench.tick();
            bench.settle();
            let beat = bench.block.beat.val();
            assert_eq!(bench.block.valid.val(), is_valid);
            assert_eq!((beat.data, beat.bytes.to_u64(), beat.last), (data, count as u64, is_last));
            assert_eq!(beat.error, is_last && is_broken, "only the last beat can be marked");
        }
    }

    fn counts_become_lanes<const DATA: usize, const BYTES: usize, const LANES: usize>() {
        let mut random = random();
        let mut bench = Bench::combinational(MacTransmit::<DATA, BYTES, LANES>::default()).in_lock_step();
        for _ in 0..200 {
            let count = random.random_range(1..=LANES);
            let mut beat: Beat<DATA, BYTES> = Stimulus::sample(&mut random);
            beat.bytes = bits(count as u64);
            let (is_valid, is_ready) = (random.random(), random.random());
            let block = &mut bench.block;
            block.from_assemble.beat.next = beat;
            block.from_assemble.valid.next = is_valid;
            block.tready.next = is_ready;
            bench.settle();
            let block = &bench.block;
            assert_eq!((block.tkeep.val().to_u64(), block.tdata.val()), (keep_of(count), beat.data));
            assert_eq!((block.tvalid.val(), block.from_assemble.ready.val()), (is_valid, is_ready));
            assert_eq!(block.sent_frame.val(), is_valid && is_ready && beat.last);
            let moved = if is_valid && is_ready { count as u64 } else { 0 };
            assert_eq!(block.sent_bytes.val().to_u64(), moved);
        }
    }

    #[test]
    fn lanes_are_counted_at_all_widths() {
        lanes_are_counted::<64, 4, 8>();
        lanes_are_counted::<128, 5, 16>();
        lanes_are_counted::<256, 6, 32>();
        lanes_are_counted::<512, 7, 64>();
    }

    #[test]
    fn counts_become_lanes_at_all_widths() {
        counts_become_lanes::<64, 4, 8>();
        counts_become_lanes::<128, 5, 16>();
        counts_become_lanes::<256, 6, 32>();
        counts_become_lanes::<512, 7, 64>();
    }
}
