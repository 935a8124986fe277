//! Converts the headers of a frame to bytes, one beat at a time.
use super::plan::Sums;
use rnic_kernel::prelude::*;
use rnic_messages::PacketToken;

/// The longest chain of headers: Ethernet, VLAN, IPv6, UDP, BTH and 28 bytes of extended headers (protocol 1.7).
const HEADER_BITS: usize = 8 * (14 + 4 + 40 + 8 + 12 + 28);

/// UDP, BTH and extended headers.
const TRANSPORT_BITS: usize = 8 * (8 + 12 + 28);

/// The UDP port of RoCEv2 (protocol 1.1).
const ROCE_PORT: u64 = 4791;

/// Converts the headers of each frame to bytes, and outputs the beat of them that a slot needs.
///
/// The token does not know the datapath's width; here its fields become one vector of 106 bytes, of which each slot takes
/// its beat. Runs beside the rotator and is as deep.
///
/// ```text
///  token, sums ─starts─reg─> checksum, order of bytes ─reg─> which beat ─reg─> beat
/// ```
///
/// Latency 3 cycles from the slot, a frame every cycle.
///
/// 1. Bytes after the headers are zero.
///
/// Protocol 1.1 to 1.5. IPv4 frames say "do not fragment"; the UDP checksum is zero.
#[derive(Default, LogicBlock, Registers)]
pub(super) struct Headers<const DATA: usize, const BYTES: usize> {
    pub(super) clock: Signal<In, Clock>,
    /// The token and its sums, in the cycle in which the first slot is made.
    pub(super) starts: Signal<In, Bit>,
    pub(super) token: Signal<In, PacketToken>,
    pub(super) sums: Signal<In, Sums>,
    /// Which beat of the headers, if any, two cycles later.
    pub(super) has_header: Signal<In, Bit>,
    pub(super) header_index: Signal<In, Bits<4>>,
    /// The bytes, with zeros in all other lanes. Registered.
    pub(super) beat: Signal<Out, Bits<DATA>>,

    started: DFF<Bit>,
    packet: DFF<PacketToken>,
    udp_dwords: DFF<Bits<12>>,
    sum: DFF<Bits<19>>,
    bytes: DFF<Bits<HEADER_BITS>>,
    shown: DFF<Bits<DATA>>,
}

/// The Internet checksum from the sum of all words but the total length, and that length (protocol 1.2).
#[kernel]
fn checksum(sum: Bits<19>) -> Bits<16> {
    let once = bit_cast::<17, 16>(sum.get_bits::<16>(0)) + bit_cast::<17, 3>(sum.get_bits::<3>(16));
    let twice = once.get_bits::<16>(0) + bit_cast::<16, 1>(once.get_bits::<1>(16));
    !twice
}

/// IPv4 header, 20 bytes in wire order.
#[kernel]
fn ipv4(packet: PacketToken, udp_dwords: Bits<12>, sum: Bits<19>) -> Bits<160> {
    // The IP header is five dwords longer.
    let total_length: Bits<16> = cat!(bits::<2>(0), udp_dwords + 5, bits::<2>(0));
    let first: Bits<32> = cat!(bits::<8>(0x45), packet.traffic_class, total_length);
    let second: Bits<32> = cat!(packet.identification, bits::<16>(0x4000));
    let third: Bits<32> = cat!(packet.hop_limit, bits::<8>(17), checksum(sum));
    let source = packet.source_address.get_bits::<32>(0);
    let destination = packet.destination_address.get_bits::<32>(0);
    swap_bytes::<160>(cat!(first, second, third, source, destination))
}

/// IPv6 header, 40 bytes in wire order.
#[kernel]
fn ipv6(packet: PacketToken, udp_dwords: Bits<12>) -> Bits<320> {
    let first: Bits<32> = cat!(bits::<4>(6), packet.traffic_class, packet.flow_label);
    let second: Bits<32> = cat!(bits::<2>(0), udp_dwords, bits::<2>(0), bits::<8>(17), packet.hop_limit);
    swap_bytes::<320>(cat!(first, second, packet.source_address, packet.destination_address))
}

/// UDP, BTH and extended headers in wire order.
#[kernel]
fn transport(packet: PacketToken, udp_dwords: Bits<12>) -> Bits<TRANSPORT_BITS> {
    let length: Bits<16> = cat!(bits::<2>(0), udp_dwords, bits::<2>(0));
    let udp: Bits<64> = cat!(packet.source_port, bits::<16>(ROCE_PORT), length, bits::<16>(0));
    let pad_count = bits::<2>(0) - packet.payload_bytes.get_bits::<2>(0);
    let flags: Bits<8> = cat!(packet.solicited, packet.migrated, pad_count, bits::<4>(0));
    let congestion: Bits<8> = cat!(packet.forward_congestion, packet.backward_congestion, bits::<6>(0));
    let first: Bits<32> = cat!(packet.opcode, flags, packet.partition_key);
    let second: Bits<32> = cat!(congestion, packet.destination_qp);
    let third: Bits<32> = cat!(packet.ack_request, bits::<7>(0), packet.psn);
    let fixed = swap_bytes::<160>(cat!(udp, first, second, third));
    cat!(packet.extended, fixed)
}

/// All headers in wire order, followed by zeros.
#[kernel]
fn headers(packet: PacketToken, udp_dwords: Bits<12>, sum: Bits<19>) -> Bits<HEADER_BITS> {
    let transport = transport(packet, udp_dwords);
    let network: Bits<704> = if packet.is_ipv6 {
        cat!(transport, ipv6(packet, udp_dwords))
    } else {
        cat!(bits::<160>(0), transport, ipv4(packet, udp_dwords, sum))
    };
    let ether_type: Bits<16> = if packet.is_ipv6 { bits(0x86dd) } else { bits(0x0800) };
    let tag: Bits<48> = swap_bytes::<48>(cat!(bits::<16>(0x8100), packet.vlan_control, ether_type));
    let behind_addresses: Bits<752> = if packet.vlan_present {
        cat!(network, tag)
    } else {
        cat!(bits::<32>(0), network, swap_bytes::<16>(ether_type))
    };
    let addresses = swap_bytes::<96>(cat!(packet.destination_mac, packet.source_mac));
    cat!(behind_addresses, addresses)
}

impl<const DATA: usize, const BYTES: usize> Logic for Headers<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        self.started.d.next = self.starts.val();
        if self.starts.val() {
            let sums = self.sums.val();
            let total_length: Bits<19> = cat!(bits::<5>(0), sums.udp_dwords + 5, bits::<2>(0));
            self.packet.d.next = self.token.val();
            self.udp_dwords.d.next = sums.udp_dwords;
            self.sum.d.next =
                bit_cast::<19, 18>(sums.addresses) + bit_cast::<19, 18>(sums.fields) + total_length;
        }
        if self.started.q.val() {
            self.bytes.d.next = headers(self.packet.q.val(), self.udp_dwords.q.val(), self.sum.q.val());
        }

        // A beat starts at one of 1,024 bits, given by ten bits: its index, shifted by log2 of its width.
        let position = bit_cast::<10, 4>(self.header_index.val()) << (BYTES as u64 + 2);
        let beat = bit_cast::<1024, HEADER_BITS>(self.bytes.q.val()).get_bits::<DATA>(position.index());
        self.shown.d.next = if self.has_header.val() { beat } else { bits(0) };
        self.beat.next = self.shown.q.val();
    }
}
