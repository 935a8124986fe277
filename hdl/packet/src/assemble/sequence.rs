//! Sequencer: selects in each cycle the beat of the frame to make, and the beat of payload to make it from.
use super::plan::{Plan, SLOT_BITS};
use rnic_blocks::stream::{ValidRx, ValidTx};
use rnic_kernel::prelude::*;

/// Beats between the sequencer and the end of the seal's memory; no more may be on their way.
const CREDITS: u64 = 32;

/// What later stages need to know about one beat of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Slot<const BYTES: usize> {
    /// The first beat of its frame.
    pub(super) is_first: Bit,
    /// The last beat of its frame.
    pub(super) is_last: Bit,
    /// Valid bytes.
    pub(super) bytes: Bits<BYTES>,
    /// Some of its bytes are of headers: which beat of the headers.
    pub(super) has_header: Bit,
    pub(super) header_index: Bits<4>,
    /// Lanes of payload run from `begin` up to `end`, excluded; those below `split` come from the payload beat before.
    pub(super) split: Bits<BYTES>,
    pub(super) begin: Bits<BYTES>,
    pub(super) end: Bits<BYTES>,
    /// The ICRC starts in this beat, in the middle of this dword.
    pub(super) has_icrc: Bit,
    pub(super) icrc_dword: Bits<4>,
    /// The beat holds nothing but the rest of the ICRC.
    pub(super) is_rest: Bit,
    /// The kind of frame, for the ICRC.
    pub(super) vlan_present: Bit,
    pub(super) is_ipv6: Bit,
}

/// Makes one slot a cycle, while there are a plan, the payload that the slot needs, and a credit.
///
/// All stalls happen here, so that no later stage stalls. If the next frame needs a payload beat before its
/// first slot, it is taken in the last slot of the current frame, unless that slot takes one itself; only then does
/// taking ahead cost a cycle.
///
/// ```text
///  plan ────────────>┌──────────┐──> slot, slot_valid    registered
///  from_payload ────>│ Sequence │──> takes, rotation     combinational, for the rotator
///  returns_credit ──>└──────────┘──> finishes            combinational, for the plan
/// ```
///
/// 1. No more than 32 slots are between here and `returns_credit`.
/// 2. Payload beats are taken in order, and only in slots of their own frame, or one cycle ahead of them.
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Sequence<const BYTES: usize> {
    pub(super) clock: Signal<In, Clock>,
    pub(super) reset: Signal<In, Bit>,
    pub(super) plan: ValidRx<Plan>,
    pub(super) vlan_present: Signal<In, Bit>,
    pub(super) is_ipv6: Signal<In, Bit>,
    pub(super) next_takes_ahead: Signal<In, Bit>,
    pub(super) next_rotation: Signal<In, Bits<6>>,
    pub(super) finishes: Signal<Out, Bit>,
    pub(super) payload_valid: Signal<In, Bit>,
    pub(super) payload_ready: Signal<Out, Bit>,
    /// A payload beat is taken in this cycle; how far it turns.
    pub(super) takes: Signal<Out, Bit>,
    pub(super) rotation: Signal<Out, Bits<BYTES>>,
    /// The first slot of a frame is made in this cycle.
    pub(super) starts: Signal<Out, Bit>,
    pub(super) slot: ValidTx<Slot<BYTES>>,
    /// A beat has left the memory of the seal.
    pub(super) returns_credit: Signal<In, Bit>,

    index: Reg<Bits<SLOT_BITS>>,
    has_taken_ahead: Reg<Bit>,
    #[init(Reg::new(bits(CREDITS)))]
    credits: Reg<Bits<6>>,
    made_valid: Reg<Bit>,
    made: DFF<Slot<BYTES>>,
}

/// What the plan says about slot `index`.
#[kernel]
fn slot_of<const BYTES: usize>(
    plan: Plan,
    index: Bits<SLOT_BITS>,
    vlan_present: Bit,
    is_ipv6: Bit,
) -> Slot<BYTES> {
    let all_lanes: Bits<BYTES> = bits(1 << (BYTES as u64 - 1));
    let is_last = index == plan.last_slot;
    let has_icrc = index == plan.icrc_slot;
    let is_rest = is_last && !has_icrc;
    let is_end = index == plan.end_slot;
    let is_outside = !plan.has_payload || index < plan.payload_slot || index > plan.end_slot;
    let end_lane = bit_cast::<BYTES, 6>(plan.end_lane) + 1;
    Slot::<BYTES> {
        is_first: index == 0,
        is_last,
        bytes: if is_last { bit_cast::<BYTES, 6>(cat!(plan.last_dword, bits::<2>(2))) } else { all_lanes },
        has_header: index <= plan.payload_slot,
        header_index: bit_cast::<4, SLOT_BITS>(index),
        split: bit_cast::<BYTES, 6>(plan.split),
        begin: if index == plan.payload_slot { bit_cast::<BYTES, 6>(plan.payload_lane) } else { bits(0) },
        end: if is_outside {
            bits(0)
        } else if is_end {
            end_lane
        } else {
            all_lanes
        },
        has_icrc,
        // The rest of an ICRC follows one in the last dword: all ones at any width of datapath.
        icrc_dword: select(is_rest, bits(15), plan.icrc_dword),
        is_rest,
        vlan_present,
        is_ipv6,
    }
}

impl<const BYTES: usize> Logic for Sequence<BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let plan = self.plan.value.val();
        let index = self.index.q.val();

        // A payload beat before the first slot, or one for this slot.
        let is_ahead = plan.takes_ahead && !self.has_taken_ahead.q.val();
        let is_within = plan.has_payload && index >= plan.first_take && index <= plan.last_take;
        let needs_payload = is_ahead || is_within;
        let may = self.plan.valid.val() && self.credits.q.val().any();
        let goes = may && (!needs_payload || self.payload_valid.val());
        let makes = goes && !is_ahead;
        let is_last = index == plan.last_slot;

        // The last slot of a frame takes the beat that the next frame needs ahead, if it takes none itself.
        let may_help = may && !needs_payload && is_last && self.next_takes_ahead.val();
        let helps = may_help && self.payload_valid.val();
        self.payload_ready.next = (may && needs_payload) || may_help;
        self.takes.next = (goes && needs_payload) || helps;
        let rotation = select(may_help, self.next_rotation.val(), plan.rotation);
        self.rotation.next = bit_cast::<BYTES, 6>(rotation);

        self.starts.next = makes && index == 0;
        self.finishes.next = makes && is_last;
        if makes {
            self.index.d.next = if is_last { bits(0) } else { index + 1 };
        }
        if makes && is_last {
            self.has_taken_ahead.d.next = helps;
        } else if goes && is_ahead {
            self.has_taken_ahead.d.next = true;
        }
        if makes && !self.returns_credit.val() {
            self.credits.d.next = self.credits.q.val() - 1;
        } else if !makes && self.returns_credit.val() {
            self.credits.d.next = self.credits.q.val() + 1;
        }

        self.made_valid.d.next = makes;
        self.made.d.next = slot_of::<BYTES>(plan, index, self.vlan_present.val(), self.is_ipv6.val());
        self.slot.offer(self.made_valid.q.val(), self.made.q.val());
    }
}
