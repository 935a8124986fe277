//! Appends the ICRC to each frame, and stores frames until the MAC takes them.
use super::sequence::Slot;
use crate::icrc::{IcrcGenerate, UncheckedBeat};
use num_bigint::BigUint;
use rnic_blocks::logic::gf2::Matrix;
use rnic_blocks::logic::rom::ConstantRom;
use rnic_blocks::logic::xor_network::XorNetwork;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Beat, StreamTx, ValidRx};
use rnic_kernel::prelude::*;

/// Address bits of the memories: 32 beats, more than are on their way while the output runs freely.
const ADDRESS: usize = 5;

/// Width of a count of beats that tells full from empty.
const COUNT: usize = ADDRESS + 1;

/// A beat that waits for its ICRC.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct OpenBeat<const DATA: usize, const BYTES: usize> {
    data: Bits<DATA>,
    bytes: Bits<BYTES>,
    is_last: Bit,
    has_icrc: Bit,
    is_rest: Bit,
    icrc_dword: Bits<4>,
}

/// Completes beats with the ICRC and sends them to the MAC.
///
/// A memory stores beats that the MAC does not take at once. Beats wait for their ICRC in the same memory, so that they need no second
/// delay. The results of the generator are stored in a small memory at the same addresses; both are read together.
///
/// ```text
///              ┌───────────────────┐
///  joined ──┬─>│ memory of 32 beats├───────────> OR ─reg─> to_mac
///           │  └───────────────────┘              ^
///           │  ┌──────────────┐   ┌───────────┐   │
///           └─>│ IcrcGenerate ├──>│ 32 x ICRC ├───┘
///              └──────────────┘   └───────────┘
/// ```
///
/// Latency `generate_latency + 3` cycles, a beat every cycle. Never full, if no more beats come than credits return.
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Seal<const DATA: usize, const BYTES: usize> {
    pub(super) clock: Signal<In, Clock>,
    pub(super) reset: Signal<In, Bit>,
    pub(super) joined_slot: Signal<In, Slot<BYTES>>,
    pub(super) joined: ValidRx<Bits<DATA>>,
    /// A beat has left the memory. Combinational from `to_mac.ready`.
    pub(super) returns_credit: Signal<Out, Bit>,
    pub(super) to_mac: StreamTx<Beat<DATA, BYTES>>,

    generate: IcrcGenerate<DATA, BYTES>,
    #[init(Memory::new(Storage::Block).without_old_word())]
    beats: Memory<OpenBeat<DATA, BYTES>, ADDRESS>,
    icrcs: Memory<Bits<32>, ADDRESS>,
    beat_count: Reg<Bits<COUNT>>,
    icrc_count: Reg<Bits<COUNT>>,
    read_count: Reg<Bits<COUNT>>,

    /// Lanes of the ICRC, by `is_rest`, `has_icrc` and `icrc_dword`.
    #[init(ConstantRom::new(icrc_lanes))]
    lanes: ConstantRom<6, DATA>,
    /// The ICRC at each position that it can have: in the middle of a dword, so its first byte is in lane 2, 6, 10 and so on.
    #[init(XorNetwork::new(Matrix::from_sources(DATA, 32, |bit| (bit + 16) % 32)))]
    copies: XorNetwork<32, DATA>,
    read_valid: Reg<Bit>,
    out_valid: Reg<Bit>,
    out: DFF<Beat<DATA, BYTES>>,
}

fn icrc_lanes<const DATA: usize>(address: usize) -> Bits<DATA> {
    let (is_rest, has_icrc, dword) = (address >> 5 == 1, address >> 4 & 1 == 1, address % 16);
    let start = 8 * (4 * dword + 2);
    let own = if has_icrc { BigUint::from(u32::MAX) << start } else { BigUint::ZERO };
    let rest = BigUint::from(if is_rest { u16::MAX } else { 0 });
    ((own | rest) & ((BigUint::from(1u8) << DATA) - 1u8)).into()
}

impl<const DATA: usize, const BYTES: usize> Logic for Seal<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // In: beats as they come, ICRCs some cycles later, both in order.
        let slot = self.joined_slot.val();
        let data = self.joined.value.val();
        self.generate.from_join.valid.next = self.joined.valid.val();
        self.generate.from_join.value.next = UncheckedBeat::<DATA> {
            data,
            start: slot.is_first,
            end: slot.has_icrc,
            end_place: slot.icrc_dword,
            is_rest: slot.is_rest,
            vlan_present: slot.vlan_present,
            is_ipv6: slot.is_ipv6,
        };
        self.beats.write_enable.next = self.joined.valid.val();
        self.beats.write_address.next = self.beat_count.q.val().get_bits::<ADDRESS>(0);
        self.beats.write_data.next = OpenBeat::<DATA, BYTES> {
            data,
            bytes: slot.bytes,
            is_last: slot.is_last,
            has_icrc: slot.has_icrc,
            is_rest: slot.is_rest,
            icrc_dword: slot.icrc_dword,
        };
        if self.joined.valid.val() {
            self.beat_count.d.next = self.beat_count.q.val() + 1;
        }
        self.icrcs.write_enable.next = self.generate.icrc.valid.val();
        self.icrcs.write_address.next = self.icrc_count.q.val().get_bits::<ADDRESS>(0);
        self.icrcs.write_data.next = self.generate.icrc.value.val();
        if self.generate.icrc.valid.val() {
            self.icrc_count.d.next = self.icrc_count.q.val() + 1;
        }

        // Out: from the memories to their read registers, and with the ICRC inserted to the output.
        let out_moves = self.to_mac.ready.val() || !self.out_valid.q.val();
        let read_moves = out_moves || !self.read_valid.q.val();
        let reads = read_moves && self.read_count.q.val() != self.icrc_count.q.val();
        let read_address = self.read_count.q.val().get_bits::<ADDRESS>(0);
        self.beats.read(reads, read_address);
        self.icrcs.read(reads, read_address);
        self.returns_credit.next = reads;
        if reads {
            self.read_count.d.next = self.read_count.q.val() + 1;
        }
        if read_moves {
            self.read_valid.d.next = reads;
        }
        let open = self.beats.read_data.val();
        self.copies.x.next = self.icrcs.read_data.val();
        self.lanes.address.next = cat!(open.is_rest, open.has_icrc, open.icrc_dword);
        if out_moves {
            self.out_valid.d.next = self.read_valid.q.val();
            self.out.d.next = Beat::<DATA, BYTES> {
                data: open.data | (self.copies.y.val() & self.lanes.value.val()),
                bytes: open.bytes,
                last: open.is_last,
                error: false,
            };
        }
        self.to_mac.offer(self.out_valid.q.val(), self.out.q.val());
    }
}
