//! The part that receive and transmit share: from beats of a frame to the CRC register after each of them.
use super::crc::{self, HeaderMask};
use num_bigint::BigUint;
use rnic_blocks::logic::gf2::Matrix;
use rnic_blocks::logic::lane_register::LaneRegister;
use rnic_blocks::logic::rom::ConstantRom;
use rnic_blocks::logic::xor_network::XorNetwork;
use rnic_kernel::prelude::*;

/// Cycles from a beat at the input to the register that includes it.
pub(super) const STATE_LATENCY: usize = 3;

/// Width of the number of a beat within its frame; it stops at the first beat without masked bytes, at most the ninth.
const INDEX_BITS: usize = 4;

/// Runs the CRC register of the ICRC over whole beats.
///
/// The register starts from zero at each frame; Ethernet and VLAN bytes are wiped out, masked fields become ones
/// and the seed is added to the first bytes of the IP header (protocol 1.8). Of these, only wiping out touches the
/// data. Ones and seed are constants of each beat, and so is what they leave in the register: one table entry.
///
/// ```text
///            ┌──────┐     ┌──────────┐        ┌───┐
///  data ────>│ keep ├─reg─┤ fold to  ├─(xor)─reg──>(xor)─reg──┬──> state
///            └──^───┘     │ 32 bits  │    ^           ^       │
///               │         └──────────┘    │     ┌─────┴────┐  │
///  index, ──> tables ──────reg────────────┘     │ one beat │<─┘
///  kind of frame                                │ of zeros │  (from zero at the start of a frame)
///                                               └──────────┘
/// ```
///
/// Latency 3 cycles, a beat every cycle.
#[derive(LogicBlock, Registers, Construct)]
#[new(
    /// Makes the engine; its register is that of `rewound_bytes` zero bytes before the end of the beat.
    rewound_bytes: usize,
)]
pub(super) struct IcrcState<const DATA: usize> {
    pub(super) clock: Signal<In, Clock>,
    pub(super) reset: Signal<In, Bit>,
    /// A beat.
    pub(super) data: Signal<In, Bits<DATA>>,
    /// Ones in the lanes of it that are covered.
    pub(super) covered: Signal<In, Bits<DATA>>,
    pub(super) valid: Signal<In, Bit>,
    /// The first beat of a frame.
    pub(super) start: Signal<In, Bit>,
    /// The kind of frame, on all of its beats.
    pub(super) vlan_present: Signal<In, Bit>,
    pub(super) is_ipv6: Signal<In, Bit>,
    /// The register after the beat of three cycles ago, if that one was valid; times a constant, see `new`.
    pub(super) state: Signal<Out, Bits<32>>,

    index: Reg<Bits<INDEX_BITS>>,
    #[init(ConstantRom::new(|address| kept(DATA / 8, address)))]
    keep: ConstantRom<6, DATA>,
    #[init(ConstantRom::new(|address| ones(DATA / 8, address, &crc::rewind(rewound_bytes))))]
    ones: ConstantRom<6, 32>,

    kept: LaneRegister<DATA>,
    kept_ones: DFF<Bits<32>>,
    kept_valid: Reg<Bit>,
    kept_start: DFF<Bit>,

    #[init(XorNetwork::new(crc::rewind(rewound_bytes).after(&crc::contribution(DATA / 8))))]
    fold: XorNetwork<DATA, 32>,
    folded: DFF<Bits<32>>,
    folded_valid: Reg<Bit>,
    folded_start: DFF<Bit>,

    #[init(XorNetwork::new(crc::advance(DATA / 8)))]
    step: XorNetwork<32, 32>,
    register: DFF<Bits<32>>,
    #[init(crc::masked_beats(DATA / 8) as u64)]
    _index_max: u64,
}

/// The kind of frame and the index of the beat in an address of both tables: IPv6, VLAN, index.
fn beat_at(lanes: usize, address: usize) -> (HeaderMask, usize) {
    let mask = HeaderMask::new(address >> INDEX_BITS & 1 == 1, address >> (INDEX_BITS + 1) == 1);
    (mask, (address % (1 << INDEX_BITS)).min(crc::masked_beats(lanes)))
}

/// The bits of a beat that its ICRC covers.
fn kept<const DATA: usize>(lanes: usize, address: usize) -> Bits<DATA> {
    let (mask, index) = beat_at(lanes, address);
    BigUint::from_bytes_le(&mask.keep(index, lanes)).into()
}

/// What the bits of a beat that count as ones make of the register.
fn ones(lanes: usize, address: usize, rewind: &Matrix) -> Bits<32> {
    let (mask, index) = beat_at(lanes, address);
    let register = crc::take(0, &mask.flip(index, lanes));
    rewind.apply(&[register.into()])[0].into()
}

impl<const DATA: usize> Logic for IcrcState<DATA> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // Index of this beat in the headers.
        let index = select(self.start.val(), bits(0), self.index.q.val());
        if self.valid.val() && index != self._index_max {
            self.index.d.next = index + 1;
        } else if self.valid.val() {
            self.index.d.next = index;
        }
        let address = cat!(self.is_ipv6.val(), self.vlan_present.val(), index);
        self.keep.address.next = address;
        self.ones.address.next = address;
        self.kept.data.next = self.data.val();
        self.kept.takes.next = !bits::<DATA>(0);
        self.kept.clears.next = !(self.keep.value.val() & self.covered.val());
        self.kept_ones.d.next = self.ones.value.val();
        self.kept_valid.d.next = self.valid.val();
        self.kept_start.d.next = self.start.val();

        self.fold.x.next = self.kept.value.val();
        self.folded.d.next = self.fold.y.val() ^ self.kept_ones.q.val();
        self.folded_valid.d.next = self.kept_valid.q.val();
        self.folded_start.d.next = self.kept_start.q.val();

        // The only loop: one 32 by 32 product.
        self.step.x.next = self.register.q.val();
        if self.folded_valid.q.val() {
            let carried = select(self.folded_start.q.val(), bits(0), self.step.y.val());
            self.register.d.next = carried ^ self.folded.q.val();
        }
        self.state.next = self.register.q.val();
    }
}
