//! Faults that an endpoint can be made to inject.
//!
//! A [`Fault`] changes a correct frame of the endpoint in one place. Lengths, IPv4 checksum and ICRC are corrected after the
//! change, unless they are the fault. Packets that no correct peer would send at all are sent with
//! [`Endpoint::inject`](super::Endpoint::inject).

use rnic_layout::opcode::{EXTENDED_BYTES, ExtendedHeader, lookup};
use rnic_layout::path::Gid;
use rnic_layout::wire::extended::{AethPacket, AtomicEthPacket, RethPacket};
use rnic_layout::wire::{
    BthPacket, EthernetPacket, Ipv4Packet, Ipv6Packet, MacAddress, UdpPacket, bth, icrc,
};

use super::packet::{Places, seal};

/// Frames of a queue pair to which a fault applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Requests of the requester.
    Requester,
    /// Acknowledgements and responses.
    Responder,
}

/// A fault or an oddity of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The frame is lost.
    Lose,
    /// The frame is sent this many times more.
    Repeat(u32),
    /// The frame is sent after the next one of the same side.
    Overtake,

    /// Ethernet destination address.
    DestinationMac(MacAddress),
    /// Ethernet source address.
    SourceMac(MacAddress),
    /// EtherType of the frame.
    Ethertype(u16),
    /// Number of bytes after the ICRC, as a MAC adds them to short frames.
    EthernetPad(usize),

    /// First byte of the IP header: version and, for IPv4, header length.
    IpFirstByte(u8),
    /// Error of the IP length.
    IpLength(i16),
    /// IPv4: checksum bits to flip.
    IpChecksum(u16),
    /// IPv4: the flag that more fragments follow.
    MoreFragments,
    /// IPv4: fragment offset.
    FragmentOffset(u16),
    /// IP protocol or next header.
    Protocol(u8),
    /// Source address, of the same IP version.
    SourceAddress(Gid),
    /// Destination address, of the same IP version.
    DestinationAddress(Gid),
    /// Traffic class.
    TrafficClass(u8),
    /// Hop limit.
    HopLimit(u8),
    /// IPv6: flow label.
    FlowLabel(u32),

    /// UDP destination port.
    DestinationPort(u16),
    /// UDP source port.
    SourcePort(u16),
    /// Error of the UDP length.
    UdpLength(i16),
    /// UDP checksum.
    UdpChecksum(u16),

    /// ICRC bits to flip.
    Icrc(u32),
    /// Bit of the IP packet to flip, counted from the first one on the wire; nothing is corrected.
    FlipBit(usize),

    /// BTH opcode; headers and payload stay as they are.
    Opcode(u8),
    /// BTH solicited event bit.
    Solicited(bool),
    /// BTH MigReq bit.
    Migrated(bool),
    /// BTH pad count; the bytes stay as they are.
    PadCount(u8),
    /// Number of pad bytes and BTH pad count, whatever the payload needs; the lengths of IP and UDP follow.
    Pad(u8),
    /// Value of the pad bytes.
    PadBytes(u8),
    /// BTH version.
    Version(u8),
    /// BTH partition key.
    PartitionKey(u16),
    /// BTH byte of congestion flags and reserved bits.
    CongestionByte(u8),
    /// BTH destination QP.
    DestinationQp(u32),
    /// BTH AckReq bit.
    AckRequest(bool),
    /// BTH reserved bits after AckReq.
    Reserved7(u8),
    /// Error of the PSN.
    Psn(i32),

    /// Virtual address of the RETH or AtomicETH.
    VirtualAddress(u64),
    /// R_Key of the RETH or AtomicETH.
    RemoteKey(u32),
    /// DMA length of the RETH.
    DmaLength(u32),
    /// Syndrome of the AETH.
    Syndrome(u8),
    /// MSN of the AETH.
    Msn(u32),

    /// Length of the payload, which is truncated or extended with zeros, with the pad that it needs.
    PayloadBytes(usize),
}

impl Fault {
    /// Changes a correct frame.
    ///
    /// # Panics
    ///
    /// If the frame has no such field, as a SEND has no RETH: a mistake of the test.
    pub fn apply(&self, frame: &mut Vec<u8>) {
        let places = Places::of(frame);
        let mut bth = BthPacket::new_unchecked(&mut frame[places.bth..]);
        match *self {
            Self::Lose | Self::Repeat(_) | Self::Overtake => {
                unreachable!("what concerns more than one frame is done where frames leave")
            }

            Self::DestinationMac(mac) => {
                EthernetPacket::new_unchecked(frame).set_destination(mac);
                return;
            }
            Self::SourceMac(mac) => {
                EthernetPacket::new_unchecked(frame).set_source(mac);
                return;
            }
            Self::Ethertype(ethertype) => {
                frame[places.ip - 2..places.ip].copy_from_slice(&ethertype.to_be_bytes());
                return;
            }
            Self::EthernetPad(bytes) => {
                frame.resize(frame.len() + bytes, 0);
                return;
            }

            Self::IpFirstByte(byte) => frame[places.ip] = byte,
            Self::IpLength(by) => change_ip_length(frame, places, by),
            Self::IpChecksum(bits) => {
                let mut ip = ipv4(frame, places);
                let wrong = ip.checksum() ^ bits;
                ip.set_checksum(wrong);
                return;
            }
            Self::MoreFragments => ipv4(frame, places).set_more_fragments(true),
            Self::FragmentOffset(offset) => ipv4(frame, places).set_fragment_offset(offset),
            Self::Protocol(protocol) => {
                if places.is_ipv4 {
                    ipv4(frame, places).set_protocol(protocol);
                } else {
                    ipv6(frame, places).set_next_header(protocol);
                }
            }
            Self::SourceAddress(gid) => match gid.to_ipv4() {
                Some(address) => ipv4(frame, places).set_source(address),
                None => ipv6(frame, places).set_source(gid.to_ipv6()),
            },
            Self::DestinationAddress(gid) => match gid.to_ipv4() {
                Some(address) => ipv4(frame, places).set_destination(address),
                None => ipv6(frame, places).set_destination(gid.to_ipv6()),
            },
            Self::TrafficClass(class) => {
                if places.is_ipv4 {
                    ipv4(frame, places).set_traffic_class(class);
                } else {
                    ipv6(frame, places).set_traffic_class(class);
                }
            }
            Self::HopLimit(hops) => {
                if places.is_ipv4 {
                    ipv4(frame, places).set_hop_limit(hops);
                } else {
                    ipv6(frame, places).set_hop_limit(hops);
                }
            }
            Self::FlowLabel(label) => ipv6(frame, places).set_flow_label(label),

            Self::DestinationPort(port) => udp(frame, places).set_destination_port(port),
            Self::SourcePort(port) => udp(frame, places).set_source_port(port),
            Self::UdpLength(by) => change_udp_length(frame, places, by),
            Self::UdpChecksum(checksum) => udp(frame, places).set_checksum(checksum),

            Self::Icrc(bits) => {
                let check = frame.last_chunk_mut::<{ icrc::BYTES }>().expect("a frame ends with its ICRC");
                *check = (u32::from_be_bytes(*check) ^ bits).to_be_bytes();
                return;
            }
            Self::FlipBit(bit) => {
                frame[places.ip + bit / 8] ^= 0x80 >> (bit % 8);
                return;
            }

            Self::Opcode(opcode) => bth.set_opcode(opcode),
            Self::Solicited(solicited) => bth.set_solicited(solicited),
            Self::Migrated(migrated) => bth.set_migrated(migrated),
            Self::PadCount(count) => bth.set_pad_count(count),
            Self::Pad(count) => {
                let before = bth.pad_count();
                bth.set_pad_count(count);
                change_pad(frame, places, before, count);
            }
            Self::PadBytes(byte) => {
                let pad = usize::from(bth.pad_count());
                let end = frame.len() - icrc::BYTES;
                frame[end - pad..end].fill(byte);
            }
            Self::Version(version) => bth.set_version(version),
            Self::PartitionKey(key) => bth.set_partition_key(key),
            Self::CongestionByte(byte) => frame[places.bth + bth::fields::RESERVED6.byte] = byte,
            Self::DestinationQp(number) => bth.set_destination_qp(number),
            Self::AckRequest(ack_request) => bth.set_ack_request(ack_request),
            Self::Reserved7(bits) => bth.set_reserved7(bits),
            Self::Psn(by) => {
                let psn = bth.psn().add(by as u32);
                bth.set_psn(psn);
            }

            Self::VirtualAddress(address) => match memory_header(frame, places) {
                MemoryHeader::Reth(mut reth) => reth.set_virtual_address(address),
                MemoryHeader::Atomic(mut atomic) => atomic.set_virtual_address(address),
            },
            Self::RemoteKey(key) => match memory_header(frame, places) {
                MemoryHeader::Reth(mut reth) => reth.set_remote_key(key),
                MemoryHeader::Atomic(mut atomic) => atomic.set_remote_key(key),
            },
            Self::DmaLength(bytes) => match memory_header(frame, places) {
                MemoryHeader::Reth(mut reth) => reth.set_dma_length(bytes),
                MemoryHeader::Atomic(_) => panic!("an atomic has no length"),
            },
            Self::Syndrome(syndrome) => aeth(frame, places).set_syndrome(syndrome),
            Self::Msn(msn) => aeth(frame, places).set_msn(rnic_layout::psn::Psn::wrapping(msn)),

            Self::PayloadBytes(bytes) => change_payload(frame, places, bytes),
        }
        seal(frame, places);
    }
}

fn ipv4(frame: &mut [u8], places: Places) -> Ipv4Packet<&mut [u8]> {
    assert!(places.is_ipv4, "the frame has no IPv4 header");
    Ipv4Packet::new_unchecked(&mut frame[places.ip..])
}

fn ipv6(frame: &mut [u8], places: Places) -> Ipv6Packet<&mut [u8]> {
    assert!(!places.is_ipv4, "the frame has no IPv6 header");
    Ipv6Packet::new_unchecked(&mut frame[places.ip..])
}

fn udp(frame: &mut [u8], places: Places) -> UdpPacket<&mut [u8]> {
    UdpPacket::new_unchecked(&mut frame[places.udp..])
}

fn extended_kinds(frame: &[u8], places: Places) -> &'static [ExtendedHeader] {
    lookup(frame[places.bth]).map_or(&[], |row| row.extended)
}

enum MemoryHeader<'a> {
    Reth(RethPacket<&'a mut [u8]>),
    Atomic(AtomicEthPacket<&'a mut [u8]>),
}

/// The header with the remote address.
fn memory_header(frame: &mut [u8], places: Places) -> MemoryHeader<'_> {
    let first = extended_kinds(frame, places).first();
    let bytes = &mut frame[places.bth + bth::fields::BYTES..];
    match first {
        Some(ExtendedHeader::Reth) => MemoryHeader::Reth(RethPacket::new_unchecked(bytes)),
        Some(ExtendedHeader::AtomicEth) => MemoryHeader::Atomic(AtomicEthPacket::new_unchecked(bytes)),
        _ => panic!("the frame has neither RETH nor AtomicETH"),
    }
}

fn aeth(frame: &mut [u8], places: Places) -> AethPacket<&mut [u8]> {
    let first = extended_kinds(frame, places).first();
    assert_eq!(first, Some(&ExtendedHeader::Aeth), "the frame has no AETH");
    AethPacket::new_unchecked(&mut frame[places.bth + bth::fields::BYTES..])
}

fn change_ip_length(frame: &mut [u8], places: Places, by: i16) {
    if places.is_ipv4 {
        let mut ip = ipv4(frame, places);
        let length = ip.total_length().wrapping_add_signed(by);
        ip.set_total_length(length);
    } else {
        let mut ip = ipv6(frame, places);
        let length = ip.payload_length().wrapping_add_signed(by);
        ip.set_payload_length(length);
    }
}

fn change_udp_length(frame: &mut [u8], places: Places, by: i16) {
    let mut udp = udp(frame, places);
    let length = udp.length().wrapping_add_signed(by);
    udp.set_length(length);
}

/// Truncates or extends the payload; all lengths and the pad follow.
fn change_payload(frame: &mut Vec<u8>, places: Places, bytes: usize) {
    let before = frame.len();
    let opcode = usize::from(frame[places.bth]);
    let start = places.bth + bth::fields::BYTES + usize::from(EXTENDED_BYTES[opcode]);
    let old_pad = usize::from(BthPacket::new_unchecked(&frame[places.bth..]).pad_count());
    let old_end = before - icrc::BYTES - old_pad;
    let pad = bth::pad_count(bytes);
    frame.truncate(old_end.min(start + bytes));
    frame.resize(start + bytes + usize::from(pad) + icrc::BYTES, 0);
    BthPacket::new_unchecked(&mut frame[places.bth..]).set_pad_count(pad);
    let by = (frame.len() as i64 - before as i64) as i16;
    change_ip_length(frame, places, by);
    change_udp_length(frame, places, by);
}

/// Gives the payload another pad; all lengths follow.
fn change_pad(frame: &mut Vec<u8>, places: Places, before: u8, after: u8) {
    let payload_end = frame.len() - icrc::BYTES - usize::from(before);
    frame.truncate(payload_end);
    frame.resize(payload_end + usize::from(after) + icrc::BYTES, 0);
    let by = i16::from(after) - i16::from(before);
    change_ip_length(frame, places, by);
    change_udp_length(frame, places, by);
}

/// A fault that waits for a frame of one side of a queue pair.
#[derive(Debug)]
pub(super) struct Armed {
    number: u32,
    side: Side,
    after: u32,
    wait: Waiting,
}

#[derive(Debug)]
enum Waiting {
    /// A fault to make.
    Fault(Fault),
    /// Frames that were overtaken and wait.
    Overtaken(Vec<Vec<u8>>),
}

impl Armed {
    pub(super) fn new(number: u32, side: Side, after: u32, fault: Fault) -> Self {
        Self { number, side, after, wait: Waiting::Fault(fault) }
    }
}

/// Applies the faults that are due, and returns the frames that are sent instead of this one.
pub(super) fn spoil(armed: &mut Vec<Armed>, number: u32, side: Side, frame: Vec<u8>) -> Vec<Vec<u8>> {
    let mut frames = vec![frame];
    let mut overtaken = Vec::new();
    armed.retain_mut(|armed| {
        if (armed.number, armed.side) != (number, side) {
            return true;
        }
        if armed.after > 0 {
            armed.after -= 1;
            return true;
        }
        match &mut armed.wait {
            Waiting::Fault(Fault::Lose) => frames.clear(),
            Waiting::Fault(Fault::Repeat(times)) => {
                let copies = frames.len() * (*times as usize + 1);
                frames = frames.iter().cycle().take(copies).cloned().collect();
            }
            Waiting::Fault(Fault::Overtake) => overtaken.append(&mut frames),
            Waiting::Fault(fault) => frames.iter_mut().for_each(|frame| fault.apply(frame)),
            Waiting::Overtaken(late) => frames.append(late),
        }
        false
    });
    if !overtaken.is_empty() {
        armed.push(Armed { number, side, after: 0, wait: Waiting::Overtaken(overtaken) });
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Packet, Path};
    use rnic_layout::psn::Psn;
    use rnic_layout::wire::extended::RethRepr;
    use rnic_layout::wire::{BthRepr, DropReason, ExtendedRepr, Filter, PacketRepr, classify};
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn paths() -> [Path; 2] {
        let [a, b] = [1, 2].map(|last| MacAddress([2, 0, 0, 0, 0, last]));
        let v4 = [1, 2].map(|last| Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, last)));
        let v6 = [1, 2].map(|last| Gid::from_ipv6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)));
        [Path::new(a, v4[0], b, v4[1]), Path::new(a, v6[0], b, v6[1])]
    }

    /// A WRITE of seven bytes.
    fn frame(path: &Path) -> Vec<u8> {
        let reth = RethRepr { virtual_address: 0x1000, remote_key: 5, dma_length: 7 };
        let bth = BthRepr::new(0x0a, 0x11, Psn::ZERO);
        Packet::new(bth, vec![ExtendedRepr::Reth(reth)], vec![1, 2, 3, 4, 5, 6, 7]).frame(path, 0)
    }

    fn judge(frame: &[u8]) -> Result<PacketRepr<'_>, DropReason> {
        classify(frame, false, &Filter::PROMISCUOUS)
    }

    fn spoiled(fault: Fault, path: &Path) -> Vec<u8> {
        let mut frame = frame(path);
        fault.apply(&mut frame);
        frame
    }

    #[test]
    fn a_fault_is_the_first_thing_wrong_with_its_frame() {
        let expected = [
            (Fault::SourceMac(MacAddress([1, 0, 0, 0, 0, 0])), DropReason::SourceMac),
            (Fault::Ethertype(0x8915), DropReason::OtherEthertype),
            (Fault::IpFirstByte(0x55), DropReason::IpHeader),
            (Fault::IpLength(1), DropReason::IpLength),
            (Fault::IpLength(-4), DropReason::UdpLength),
            (Fault::Protocol(6), DropReason::OtherProtocol),
            (Fault::DestinationPort(4790), DropReason::OtherPort),
            (Fault::UdpLength(4), DropReason::UdpLength),
            (Fault::Icrc(1), DropReason::Icrc),
            (Fault::FlipBit(8 * 60 + 3), DropReason::Icrc),
            (Fault::Version(1), DropReason::BthVersion),
            (Fault::Opcode(0x40), DropReason::UnsupportedTransport),
            (Fault::DestinationQp(0), DropReason::DestinationQp),
        ];
        for path in paths() {
            assert!(judge(&frame(&path)).is_ok());
            for (fault, reason) in &expected {
                assert_eq!(judge(&spoiled(fault.clone(), &path)).unwrap_err(), *reason, "{fault:?}");
            }
        }
        let ipv4 = [
            (Fault::IpChecksum(1), DropReason::IpChecksum),
            (Fault::MoreFragments, DropReason::IpFragment),
            (Fault::FragmentOffset(1), DropReason::IpFragment),
        ];
        for (fault, reason) in ipv4 {
            assert_eq!(judge(&spoiled(fault, &paths()[0])).unwrap_err(), reason);
        }
    }

    #[test]
    fn fields_that_receivers_ignore_may_have_any_value() {
        for path in paths() {
            for fault in [
                Fault::EthernetPad(2),
                Fault::TrafficClass(0xff),
                Fault::HopLimit(1),
                Fault::SourcePort(0),
                Fault::UdpChecksum(0xabcd),
                Fault::CongestionByte(0xff),
                Fault::Reserved7(0x7f),
                Fault::PadBytes(0xff),
                Fault::Migrated(false),
            ] {
                let spoiled = spoiled(fault.clone(), &path);
                let packet = judge(&spoiled).unwrap_or_else(|reason| panic!("{fault:?}: {reason}"));
                assert_eq!(packet.payload, [1, 2, 3, 4, 5, 6, 7]);
            }
        }
    }

    #[test]
    fn a_pad_that_the_payload_does_not_need_leaves_the_payload_as_it_is() {
        for path in paths() {
            for count in 0..4 {
                let spoiled = spoiled(Fault::Pad(count), &path);
                let packet = judge(&spoiled).unwrap();
                assert_eq!((packet.payload, packet.bth.pad_count), (&[1, 2, 3, 4, 5, 6, 7][..], count));
                assert_eq!(spoiled.len() % 4, frame(&path).len().wrapping_add(3 + usize::from(count)) % 4);
            }
        }
    }

    #[test]
    fn payload_is_truncated_and_extended_with_its_lengths_and_pad() {
        for path in paths() {
            for bytes in [0, 1, 6, 7, 8, 9, 4096] {
                let spoiled = spoiled(Fault::PayloadBytes(bytes), &path);
                let packet = judge(&spoiled).unwrap();
                assert_eq!(packet.payload.len(), bytes);
                assert!(packet.payload.iter().zip(1..=7).all(|(found, sent)| *found == sent));
            }
        }
    }

    #[test]
    fn frames_are_lost_repeated_and_overtaken_when_their_turn_comes() {
        let mut armed = vec![
            Armed::new(1, Side::Requester, 1, Fault::Lose),
            Armed::new(1, Side::Requester, 2, Fault::Repeat(2)),
            Armed::new(1, Side::Requester, 3, Fault::Overtake),
        ];
        let mut send = |number, byte| spoil(&mut armed, number, Side::Requester, vec![byte]);
        assert_eq!(send(1, 0), [[0]]);
        assert_eq!(send(2, 9), [[9]]);
        assert_eq!(send(1, 1), [[0u8; 1]; 0]);
        assert_eq!(send(1, 2), [[2], [2], [2]]);
        assert_eq!(send(1, 3), [[0u8; 1]; 0]);
        assert_eq!(send(1, 4), [[4], [3]]);
        assert!(armed.is_empty());
    }
}
