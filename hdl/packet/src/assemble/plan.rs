//! Computes the layout of a frame before its first beat is made.
use super::TransmitToken;
use rnic_blocks::logic::rom::ConstantRom;
use rnic_blocks::stream::{StreamRx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_layout::opcode;

/// Width of the number of a beat within its frame; at 64 bits, 13 bits of payload bytes make 1,037 beats.
pub(super) const SLOT_BITS: usize = 11;

/// Width of a length in dwords.
const DWORDS: usize = 12;

/// Layout of one frame. A slot is a beat of the frame, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Plan {
    /// There is payload, so that the fields about it mean something.
    pub(super) has_payload: Bit,
    /// A payload beat must be taken before slot 0, because slot 0 needs bytes of two of them.
    pub(super) takes_ahead: Bit,
    /// The first slot in which a payload beat is taken.
    pub(super) first_take: Bits<SLOT_BITS>,
    /// The last one.
    pub(super) last_take: Bits<SLOT_BITS>,
    /// How far payload beats turn, in bytes.
    pub(super) rotation: Bits<6>,
    /// Lanes below this one come from the payload beat before.
    pub(super) split: Bits<6>,
    /// The slot where the headers end and the payload starts.
    pub(super) payload_slot: Bits<SLOT_BITS>,
    /// The lane where the payload starts in that slot.
    pub(super) payload_lane: Bits<6>,
    /// The slot with the last byte of payload.
    pub(super) end_slot: Bits<SLOT_BITS>,
    /// The lane of that byte.
    pub(super) end_lane: Bits<6>,
    /// The slot where the ICRC starts.
    pub(super) icrc_slot: Bits<SLOT_BITS>,
    /// The dword in that slot in the middle of which it starts.
    pub(super) icrc_dword: Bits<4>,
    /// The last slot.
    pub(super) last_slot: Bits<SLOT_BITS>,
    /// The dword in that slot in the middle of which the frame ends.
    pub(super) last_dword: Bits<4>,
}

/// What the headers need besides the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Sums {
    /// UDP length in dwords.
    pub(super) udp_dwords: Bits<DWORDS>,
    /// One part of the sum for the IPv4 checksum: the addresses.
    pub(super) addresses: Bits<18>,
    /// The other part: everything else but the length.
    pub(super) fields: Bits<18>,
}

/// Takes tokens and computes, for each, the plan of its frame and the sums for its headers, in two stages.
///
/// Everything later is wide and never stops; what needs arithmetic is done here, where a token may wait. The plan of the
/// next frame shows in advance whether its payload should be started while the current frame ends.
///
/// ```text
///  from_token ──> lengths, first sums ─reg─> places, sums ─reg─> current
///                                      └───> next
/// ```
///
/// Latency 2 cycles, a token every cycle.
///
/// Header lengths are 4m + 2 (protocol 1.1), so lengths are counted in dwords and the halves added when needed.
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Planner<const DATA: usize, const BYTES: usize> {
    pub(super) clock: Signal<In, Clock>,
    pub(super) reset: Signal<In, Bit>,
    pub(super) from_token: StreamRx<TransmitToken>,
    pub(super) current: ValidTx<Plan>,
    pub(super) current_token: Signal<Out, TransmitToken>,
    pub(super) current_sums: Signal<Out, Sums>,
    /// The next frame is known, and must take a payload beat ahead of its first slot.
    pub(super) next_takes_ahead: Signal<Out, Bit>,
    /// Distance by which that beat turns.
    pub(super) next_rotation: Signal<Out, Bits<6>>,
    /// The last slot of the current frame is made in this cycle.
    pub(super) finishes: Signal<In, Bit>,

    #[init(ConstantRom::new(extended_dwords))]
    extended: ConstantRom<8, 3>,
    first_valid: Reg<Bit>,
    first: DFF<TransmitToken>,
    header: DFF<Bits<5>>,
    transport: DFF<Bits<4>>,
    payload: DFF<Bits<DWORDS>>,
    span: DFF<Bits<14>>,
    source_sum: DFF<Bits<17>>,
    destination_sum: DFF<Bits<17>>,
    field_sum: DFF<Bits<17>>,

    plan_valid: Reg<Bit>,
    plan: DFF<Plan>,
    token: DFF<TransmitToken>,
    sums: DFF<Sums>,
}

/// Dwords of extended headers of an opcode.
fn extended_dwords(code: usize) -> Bits<3> {
    let opcode = opcode::lookup(code as u8);
    bits(opcode.map_or(0, |opcode| opcode.extended_bytes() as u64 / 4))
}

/// The sum of the halves of an IPv4 address.
#[kernel]
fn halves(address: Bits<128>) -> Bits<17> {
    bit_cast::<17, 16>(address.get_bits::<16>(0)) + bit_cast::<17, 16>(address.get_bits::<16>(16))
}

/// Dwords of Ethernet, IP, UDP and BTH, without the half dword that Ethernet begins with.
#[kernel]
fn fixed_dwords(vlan_present: Bit, is_ipv6: Bit) -> Bits<5> {
    match (vlan_present, is_ipv6) {
        (false, false) => bits(13),
        (true, false) => bits(14),
        (false, true) => bits(18),
        (true, true) => bits(19),
    }
}

/// The plan of a frame: `header` and `payload` in dwords, `span` the last byte of payload counted from lane 0 of its
/// first beat.
#[kernel]
fn plan_of<const BYTES: usize>(
    header: Bits<5>,
    payload: Bits<DWORDS>,
    payload_bytes: Bits<13>,
    offset: Bits<6>,
    span: Bits<14>,
) -> Plan {
    // Counts of lanes and dwords in a beat are powers of two: 2^lane_bits and 2^dword_bits.
    let lane_bits = BYTES as u64 - 1;
    let dword_bits = BYTES as u64 - 3;
    let lane_mask: Bits<6> = bits((1 << lane_bits) - 1);
    let dword_mask: Bits<4> = bits((1 << dword_bits) - 1);

    let has_payload = payload_bytes.any();
    let payload_slot = bit_cast::<SLOT_BITS, 5>(header >> dword_bits);
    let payload_lane = cat!(bit_cast::<4, 5>(header) & dword_mask, bits::<2>(2));
    let rotation = (payload_lane - offset) & lane_mask;

    // Bytes in a higher lane in memory than in the frame pass the end of a beat when they turn; if there is a second
    // payload beat, the first slot with payload needs both.
    let wraps = offset > payload_lane;
    let further_beats = bit_cast::<SLOT_BITS, 14>(span >> lane_bits);
    let needs_two = has_payload && wraps && further_beats.any();
    let ahead: Bits<SLOT_BITS> = select(needs_two, bits(1), bits(0));
    let takes_ahead = needs_two && !payload_slot.any();

    let end = cat!(bits::<7>(0), header, bits::<2>(1)) + bit_cast::<14, 13>(payload_bytes);
    let icrc = bit_cast::<DWORDS, 5>(header) + payload;
    let last = icrc + 1;
    Plan {
        has_payload,
        takes_ahead,
        first_take: select(takes_ahead, bits(0), payload_slot - ahead),
        last_take: payload_slot + further_beats - ahead,
        rotation,
        split: select(wraps && !needs_two, bits(0), rotation),
        payload_slot,
        payload_lane,
        end_slot: bit_cast::<SLOT_BITS, 14>(end >> lane_bits),
        end_lane: bit_cast::<6, 14>(end) & lane_mask,
        icrc_slot: bit_cast::<SLOT_BITS, DWORDS>(icrc >> dword_bits),
        icrc_dword: bit_cast::<4, DWORDS>(icrc) & dword_mask,
        last_slot: bit_cast::<SLOT_BITS, DWORDS>(last >> dword_bits),
        last_dword: bit_cast::<4, DWORDS>(last) & dword_mask,
    }
}

impl<const DATA: usize, const BYTES: usize> Logic for Planner<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        let plan_moves = self.finishes.val() || !self.plan_valid.q.val();
        let first_moves = plan_moves || !self.first_valid.q.val();
        self.from_token.ready.next = first_moves;

        // From the token: lengths in dwords and the first sums.
        let token = self.from_token.beat.val();
        let packet = token.packet;
        self.extended.address.next = packet.opcode;
        if first_moves {
            let dwords = self.extended.value.val();
            let payload = bit_cast::<14, 13>(packet.payload_bytes);
            self.first_valid.d.next = self.from_token.valid.val();
            self.first.d.next = token;
            self.header.d.next = fixed_dwords(packet.vlan_present, packet.is_ipv6) + bit_cast::<5, 3>(dwords);
            // UDP and BTH headers and the ICRC are six dwords.
            self.transport.d.next = bit_cast::<4, 3>(dwords) + 6;
            self.payload.d.next = bit_cast::<DWORDS, 14>((payload + 3) >> 2);
            self.span.d.next = payload + bit_cast::<14, 6>(token.payload_offset) - 1;
            self.source_sum.d.next = halves(packet.source_address);
            self.destination_sum.d.next = halves(packet.destination_address);
            // Identification; time to live and the protocol number of UDP.
            self.field_sum.d.next = bit_cast::<17, 16>(packet.identification)
                + cat!(bits::<1>(0), packet.hop_limit, bits::<8>(17));
        }

        let first = self.first.q.val();
        let payload = self.payload.q.val();
        let plan = plan_of::<BYTES>(
            self.header.q.val(),
            payload,
            first.packet.payload_bytes,
            first.payload_offset,
            self.span.q.val(),
        );
        self.next_takes_ahead.next = self.first_valid.q.val() && plan.takes_ahead;
        self.next_rotation.next = plan.rotation;
        if plan_moves {
            self.plan_valid.d.next = self.first_valid.q.val();
            self.plan.d.next = plan;
            self.token.d.next = first;
            self.sums.d.next = Sums {
                udp_dwords: bit_cast::<DWORDS, 4>(self.transport.q.val()) + payload,
                addresses: bit_cast::<18, 17>(self.source_sum.q.val())
                    + bit_cast::<18, 17>(self.destination_sum.q.val()),
                // Version, header length and type of service; "do not fragment".
                fields: bit_cast::<18, 17>(self.field_sum.q.val())
                    + cat!(bits::<2>(0), bits::<8>(0x85), first.packet.traffic_class),
            };
        }
        self.current.offer(self.plan_valid.q.val(), self.plan.q.val());
        self.current_token.next = self.token.q.val();
        self.current_sums.next = self.sums.q.val();
    }
}
