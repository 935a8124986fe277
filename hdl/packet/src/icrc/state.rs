//! The part that receive and transmit share: from beats of a frame to the CRC register after each of them.
use super::crc::{self, HeaderMask};
use num_bigint::BigUint;
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
#[derive(LogicBlock, Registers)]
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
    keep: ConstantRom<6, DATA>,
    ones: ConstantRom<6, 32>,

    kept: LaneRegister<DATA>,
    kept_ones: DFF<Bits<32>>,
    kept_valid: Reg<Bit>,
    kept_start: DFF<Bit>,

    fold: XorNetwork<DATA, 32>,
    folded: DFF<Bits<32>>,
    folded_valid: Reg<Bit>,
    folded_start: DFF<Bit>,

    step: XorNetwork<32, 32>,
    register: DFF<Bits<32>>,
    _index_max: u64,
}

impl<const DATA: usize> IcrcState<DATA> {
    /// Makes the engine; its register is that of `rewound_bytes` zero bytes before the end of the beat.
    pub(super) fn new(rewound_bytes: usize) -> Self {
        let lanes = DATA / 8;
        let rewind = crc::rewind(rewound_bytes);
        let index_max = crc::masked_beats(lanes);
        // The address of both tables: IPv6, VLAN, index.
        let mask = |address: usize| {
            HeaderMask::new(address >> INDEX_BITS & 1 == 1, address >> (INDEX_BITS + 1) == 1)
        };
        let index = |address: usize| (address % (1 << INDEX_BITS)).min(index_max);
        let keep = |address| BigUint::from_bytes_le(&mask(address).keep(index(address), lanes)).into();
        let ones = |address| {
            let register = crc::take(0, &mask(address).flip(index(address), lanes));
            rewind.apply(&[register.into()])[0].into()
        };
        Self {
            clock: Default::default(),
            reset: Default::default(),
            data: Default::default(),
            covered: Default::default(),
            valid: Default::default(),
            start: Default::default(),
            vlan_present: Default::default(),
            is_ipv6: Default::default(),
            state: Default::default(),
            index: Default::default(),
            keep: ConstantRom::new(keep),
            ones: ConstantRom::new(ones),
            kept: Default::default(),
            kept_ones: Default::default(),
            kept_valid: Default::default(),
            kept_start: Default::default(),
            fold: XorNetwork::new(rewind.after(&crc::contribution(lanes))),
            folded: Default::default(),
            folded_valid: Default::default(),
            folded_start: Default::default(),
            step: XorNetwork::new(crc::advance(lanes)),
            register: Default::default(),
            _index_max: index_max as u64,
        }
    }
}

impl<const DATA: usize> Logic for IcrcState<DATA> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        clock!(self, clock, kept);

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
