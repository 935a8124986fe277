//! Computes the ICRC of frames that are sent.
use super::crc;
use super::state::{IcrcState, STATE_LATENCY};
use rnic_blocks::logic::xor_network::XorNetwork;
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{ValidRx, ValidTx};
use rnic_kernel::prelude::*;

/// Width of the place of an ICRC: it starts at byte `4 place + 2` of its beat, up to 62 in a beat of 64 bytes.
pub const PLACE_BITS: usize = 4;

/// A beat of a frame to be sent, as far as its ICRC is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct UncheckedBeat<const DATA: usize> {
    /// Bytes of the frame; zero from the place of the ICRC on.
    pub data: Bits<DATA>,
    /// The first beat of a frame.
    pub start: Bit,
    /// The beat where the ICRC starts.
    pub end: Bit,
    /// On the `end` beat: the ICRC starts at byte `4 end_place + 2`. On an `is_rest` beat: all ones.
    pub end_place: Bits<PLACE_BITS>,
    /// The beat after an `end` beat in which the ICRC did not fit; it holds only the rest of the ICRC.
    pub is_rest: Bit,
    /// The frame has an 802.1Q tag. The same on all beats of a frame.
    pub vlan_present: Bit,
    /// The frame is IPv6. The same on all beats of a frame.
    pub is_ipv6: Bit,
}

/// Computes the ICRC of each frame.
///
/// The register processes whole beats, so after the last beat it has processed zeros after the packet, and is rewound over them in
/// powers of two. Headers are 4m + 2 bytes long and the rest is padded to dwords (protocol 1.1), so the number of zeros is 4k + 2:
/// the register of the engine lags by two bytes, and only steps of 4, 8, 16 and 32 bytes remain.
///
/// ```text
///                 ┌───────────┐      ┌────┐     ┌────┐     ┌─────┐     ┌─────┐
///  from_join ────>│ IcrcState ├─────>│ -4 ├─reg─┤ -8 ├─reg─┤ -16 ├─reg─┤ -32 ├─reg─> icrc
///         │       └───────────┘      └─^──┘     └─^──┘     └──^──┘     └──^──┘
///         └── end, end_place ──────────┴──────────┴───────────┴───────────┘        (DATA = 512)
/// ```
///
/// A beat every cycle and no back-pressure; a result follows each beat after [`generate_latency`] cycles. The results of the `end`
/// beat and of an `is_rest` beat are the ICRC, the others are undefined. Protocol 1.8.
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct IcrcGenerate<const DATA: usize, const BYTES: usize> {
    /// Clock of all registers.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// A beat of a frame.
    pub from_join: ValidRx<UncheckedBeat<DATA>>,
    /// The ICRC in wire order, its first byte in bits 7:0. Registered.
    pub icrc: ValidTx<Bits<32>>,

    #[init(IcrcState::new(2))]
    state: IcrcState<DATA>,
    valids: [Reg<Bit>; STATE_LATENCY],
    places: [DFF<Bits<PLACE_BITS>>; STATE_LATENCY],
    #[init((0..rewind_steps(DATA)).map(RewindStep::new).collect())]
    steps: Vec<RewindStep>,
}

/// Cycles from the `end` beat at the input of [`IcrcGenerate`] to its ICRC, for a datapath of `data_bits`.
pub const fn generate_latency(data_bits: usize) -> usize {
    STATE_LATENCY + rewind_steps(data_bits)
}

/// The steps that tell the dwords of a beat apart.
const fn rewind_steps(data_bits: usize) -> usize {
    (data_bits / 32).ilog2() as usize
}

impl<const DATA: usize, const BYTES: usize> Logic for IcrcGenerate<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        let beat = self.from_join.value.val();
        self.state.data.next = beat.data;
        self.state.covered.next = !bits::<DATA>(0);
        // The rest of an ICRC leaves the register as it is, so that the answer is the same again.
        self.state.valid.next = self.from_join.valid.val() && !beat.is_rest;
        self.state.start.next = beat.start;
        self.state.vlan_present.next = beat.vlan_present;
        self.state.is_ipv6.next = beat.is_ipv6;

        for stage in 0..STATE_LATENCY {
            self.valids[stage].d.next =
                if stage == 0 { self.from_join.valid.val() } else { self.valids[stage - 1].q.val() };
            self.places[stage].d.next =
                if stage == 0 { beat.end_place } else { self.places[stage - 1].q.val() };
        }
        for index in 0..self.steps.len() {
            self.steps[index].valid.next = if index == 0 {
                self.valids[STATE_LATENCY - 1].q.val()
            } else {
                self.steps[index - 1].next_valid.val()
            };
            self.steps[index].state.next =
                if index == 0 { self.state.state.val() } else { self.steps[index - 1].rewound.val() };
            self.steps[index].place.next = if index == 0 {
                self.places[STATE_LATENCY - 1].q.val()
            } else {
                self.steps[index - 1].next_place.val()
            };
        }
        self.icrc.valid.next = self.steps[self.steps.len() - 1].next_valid.val();
        self.icrc.value.next = !self.steps[self.steps.len() - 1].rewound.val();
    }
}

/// Takes the register back over `4 * 2^index` zero bytes, if the frame ended that much earlier.
#[derive(LogicBlock, Registers, Construct)]
#[new(index: usize)]
struct RewindStep {
    clock: Signal<In, Clock>,
    reset: Signal<In, Bit>,
    valid: Signal<In, Bit>,
    state: Signal<In, Bits<32>>,
    place: Signal<In, Bits<PLACE_BITS>>,
    rewound: Signal<Out, Bits<32>>,
    next_valid: Signal<Out, Bit>,
    next_place: Signal<Out, Bits<PLACE_BITS>>,
    #[init(XorNetwork::new(crc::rewind(4 << index)))]
    back: XorNetwork<32, 32>,
    register: DFF<Bits<32>>,
    valids: Reg<Bit>,
    places: DFF<Bits<PLACE_BITS>>,
    #[init(index)]
    _index: usize,
}

impl Logic for RewindStep {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.back.x.next = self.state.val();
        // The dwords between the ICRC and the end of the beat: the complement of its place.
        let is_full = self.place.val().get_bit(self._index);
        self.register.d.next = select(is_full, self.state.val(), self.back.y.val());
        self.places.d.next = self.place.val();
        self.valids.d.next = self.valid.val();
        self.rewound.next = self.register.q.val();
        self.next_valid.next = self.valids.q.val();
        self.next_place.next = self.places.q.val();
    }
}
