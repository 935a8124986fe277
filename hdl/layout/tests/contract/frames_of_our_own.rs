//! Generated frames: `emit` and `parse` are inverse, malformed frames are refused with the right reason, and no input causes a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use rnic_layout::limits::{FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX};
use rnic_layout::opcode::{self, EXTENDED_BYTES, OPCODES};
use rnic_layout::path::ROCE_PORT;
use rnic_layout::psn::Psn;
use rnic_layout::wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use rnic_layout::wire::{
    BthPacket, BthRepr, DropReason, EthernetPacket, EthernetRepr, Extended, Filter, IpRepr, Ipv4Packet,
    Ipv4Repr, Ipv6Packet, Ipv6Repr, MacAddress, PacketRepr, UdpPacket, UdpRepr, VlanTag, classify, explain,
    icrc,
};

/// A packet that owns its payload.
#[derive(Clone, Debug)]
struct Owned {
    repr: PacketRepr<'static>,
    payload: Vec<u8>,
}

impl Owned {
    fn repr(&self) -> PacketRepr<'_> {
        PacketRepr { payload: &self.payload, ..self.repr }
    }

    fn emit(&self) -> Vec<u8> {
        emit(&self.repr())
    }
}

fn emit(repr: &PacketRepr<'_>) -> Vec<u8> {
    let mut frame = vec![0xA5; repr.buffer_len()];
    assert_eq!(repr.emit(&mut frame), Ok(frame.len()));
    frame
}

fn any_ethernet() -> impl Strategy<Value = EthernetRepr> {
    (any::<[u8; 6]>(), any::<[u8; 6]>(), any::<Option<u16>>(), any::<bool>()).prop_map(
        |(destination, mut source, control, v6)| {
            source[0] &= !1;
            EthernetRepr {
                destination: MacAddress(destination),
                source: MacAddress(source),
                vlan: control.map(VlanTag::from_control),
                ethertype: if v6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 },
            }
        },
    )
}

fn any_ip(ethertype: u16) -> BoxedStrategy<IpRepr> {
    if ethertype == ETHERTYPE_IPV6 {
        let fields = (any::<u8>(), 0..1u32 << 20, any::<u8>(), any::<[u8; 16]>(), any::<[u8; 16]>());
        fields
            .prop_map(|(traffic_class, flow_label, hop_limit, source, destination)| {
                let (source, destination) = (source.into(), destination.into());
                IpRepr::V6(Ipv6Repr { traffic_class, flow_label, hop_limit, source, destination })
            })
            .boxed()
    } else {
        let fields =
            (any::<u8>(), any::<u16>(), any::<[bool; 2]>(), any::<u8>(), any::<[u8; 4]>(), any::<[u8; 4]>());
        fields
            .prop_map(|(traffic_class, identification, flags, hop_limit, source, destination)| {
                IpRepr::V4(Ipv4Repr {
                    traffic_class,
                    identification,
                    reserved_flag: flags[0],
                    dont_fragment: flags[1],
                    hop_limit,
                    source: source.into(),
                    destination: destination.into(),
                })
            })
            .boxed()
    }
}

prop_compose! {
    /// Any BTH that the card takes: every opcode of the table, and the unassigned ones of RC.
    fn any_bth()(
        opcode in prop_oneof![
            9 => select(OPCODES.to_vec()).prop_map(|row| row.code),
            1 => select(vec![0x15, 0x18, 0x1C, 0x1D, 0x1F]),
        ],
        flags: [bool; 5],
        pad_count in 0..4u8,
        partition_key: u16,
        reserved6 in 0..1u8 << 6,
        destination_qp in 1..1u32 << 24,
        reserved7 in 0..1u8 << 7,
        psn: u32,
    ) -> BthRepr {
        BthRepr {
            opcode,
            solicited: flags[0],
            migrated: flags[1],
            pad_count,
            version: 0,
            partition_key,
            forward_congestion: flags[2],
            backward_congestion: flags[3],
            reserved6,
            destination_qp,
            ack_request: flags[4],
            reserved7,
            psn: Psn::wrapping(psn),
        }
    }
}

/// Any packet that the card accepts. Most payloads are short; some have the largest size.
fn any_packet() -> impl Strategy<Value = Owned> {
    let payload = prop_oneof![
        4 => vec(any::<u8>(), 0..80),
        1 => vec(any::<u8>(), 0..=PAYLOAD_BYTES_MAX),
        1 => vec(any::<u8>(), PAYLOAD_BYTES_MAX - 3..=PAYLOAD_BYTES_MAX),
    ];
    let headers =
        any_ethernet().prop_flat_map(|ethernet| (Just(ethernet), any_ip(ethernet.ethertype), any_bth()));
    let rest = (any::<u16>(), any::<u16>(), any::<[u8; 28]>(), any::<[u8; 3]>());
    (headers, rest, payload).prop_map(
        |((ethernet, ip, bth), (source_port, checksum, bytes, mut pad), payload)| {
            pad[usize::from(bth.pad_count)..].fill(0);
            let repr = PacketRepr {
                ethernet,
                ip,
                udp: UdpRepr { source_port, checksum },
                bth,
                extended: Extended::parse(bth.opcode, &bytes).unwrap(),
                payload: &[],
                pad,
            };
            Owned { repr, payload }
        },
    )
}

/// Corrects checksum and ICRC, if the length fields still give their positions.
fn seal(frame: &mut [u8]) {
    let Ok(ethernet) = EthernetRepr::parse(frame) else { return };
    let packet = &mut frame[ethernet.buffer_len()..];
    let is_ipv4 = ethernet.ethertype == ETHERTYPE_IPV4;
    if let (true, Ok(mut ip)) = (is_ipv4, Ipv4Packet::new_checked(&mut *packet)) {
        ip.fill_checksum();
    }
    let ip_bytes = if is_ipv4 { 20 } else { 40 };
    let Some(Ok(udp)) = packet.get(ip_bytes..).map(UdpPacket::new_checked) else { return };
    let packet_bytes = ip_bytes + usize::from(udp.length());
    if packet_bytes >= ip_bytes + 12
        && let Some(packet) = packet.get_mut(..packet_bytes)
    {
        let (covered, check) = packet.split_last_chunk_mut().unwrap();
        *check = icrc::compute(covered);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_written_is_read(packet in any_packet(), trailing in vec(any::<u8>(), 0..20)) {
        let mut frame = packet.emit();
        prop_assert_eq!(PacketRepr::parse(&frame), Ok(packet.repr()));
        // The pad of Ethernet follows the ICRC and is ignored.
        frame.extend(&trailing);
        frame.truncate(FRAME_BYTES_MAX);
        prop_assert_eq!(classify(&frame, false, &Filter::PROMISCUOUS), Ok(packet.repr()));
    }

    #[test]
    fn a_canonical_packet_has_nothing_that_its_token_lacks(packet in any_packet()) {
        let canonical = packet.repr().canonical();
        if let IpRepr::V4(ip) = canonical.ip {
            prop_assert!(ip.dont_fragment && !ip.reserved_flag);
        }
        prop_assert_eq!(canonical.udp.checksum, 0);
        let BthRepr { version, reserved6, reserved7, .. } = canonical.bth;
        prop_assert_eq!((version, reserved6, reserved7), (0, 0, 0));
        prop_assert_eq!(canonical.pad, [0; 3]);
    }

    #[test]
    fn a_canonical_packet_keeps_what_its_token_carries(packet in any_packet()) {
        let (repr, canonical) = (packet.repr(), packet.repr().canonical());
        prop_assert_eq!((canonical.payload.len() + usize::from(canonical.bth.pad_count)) % 4, 0);
        prop_assert_eq!(canonical.canonical(), canonical);
        let frame = emit(&canonical);
        let received = classify(&frame, false, &Filter::PROMISCUOUS);
        prop_assert_eq!(received, Ok(canonical));
        let token = |repr: &PacketRepr<'_>| {
            let bth = repr.bth;
            let flags = (bth.solicited, bth.migrated, bth.ack_request);
            let congestion = (bth.forward_congestion, bth.backward_congestion);
            let bth = (bth.opcode, bth.partition_key, bth.destination_qp, bth.psn, flags, congestion);
            let ip = (repr.ip.source(), repr.ip.destination(), repr.ip.traffic_class(), repr.ip.hop_limit());
            (repr.ethernet, ip, repr.udp.source_port, bth, repr.extended, repr.payload.to_vec())
        };
        prop_assert_eq!(token(&canonical), token(&repr));
    }

    #[test]
    fn random_bytes_never_panic(frame in vec(any::<u8>(), 0..300), mac_error: bool) {
        let explained = explain(&frame, mac_error, &Filter::PROMISCUOUS).map_err(|refusal| refusal.reason);
        prop_assert_eq!(explained, classify(&frame, mac_error, &Filter::PROMISCUOUS));
        let _ = PacketRepr::parse(&frame);
    }

    #[test]
    fn a_mutated_frame_is_refused_or_says_exactly_what_it_holds(
        packet in any_packet(),
        edits in vec((any::<Index>(), any::<u8>()), 0..4),
        header_edits in vec((0..110usize, any::<u8>()), 0..3),
        length in any::<Option<Index>>(),
        sealed: bool,
    ) {
        let mut frame = packet.emit();
        for (index, byte) in &edits {
            let index = index.index(frame.len());
            frame[index] = *byte;
        }
        for (index, byte) in header_edits {
            if let Some(place) = frame.get_mut(index) {
                *place = byte;
            }
        }
        if let Some(length) = length {
            frame.truncate(length.index(frame.len()));
        }
        if sealed {
            seal(&mut frame);
        }
        let parsed = PacketRepr::parse(&frame);
        match explain(&frame, false, &Filter::PROMISCUOUS) {
            Ok(repr) => {
                prop_assert_eq!(parsed, Ok(repr));
                let written = emit(&repr);
                // An IPv4 checksum of 0xFFFF is accepted, and written as 0x0000.
                let checksum = repr.ethernet.buffer_len() + 10;
                let differs = |at: &usize| written[*at] != frame[*at];
                let is_spelling = matches!(repr.ip, IpRepr::V4(_)) && frame[checksum..][..2] == [0xFF, 0xFF];
                let differences: Vec<usize> = (0..written.len()).filter(differs).collect();
                prop_assert!(differences.is_empty() || is_spelling && differences == [checksum, checksum + 1]);
            }
            // The walk is the same without a filter, but for the checks that it leaves out.
            Err(refusal) => match refusal.reason {
                DropReason::DestinationMac
                | DropReason::SourceMac
                | DropReason::Icrc
                | DropReason::DestinationQp => {}
                _ => prop_assert_eq!(parsed, Err(refusal.error)),
            },
        }
    }
}

#[test]
fn a_frame_that_its_opcode_or_its_size_forbids_is_not_written() {
    let mut packet = base(false, false);
    packet.repr.bth.opcode = 0x0C;
    let error = packet.repr().emit(&mut [0; 200]).unwrap_err();
    let text = "BTH opcode: found 0xc, allowed is the opcode of the extended headers";
    assert_eq!(error.to_string(), text);

    let mut packet = base(false, false);
    packet.payload = vec![0; FRAME_BYTES_MAX - 58];
    let mut buffer = vec![0; FRAME_BYTES_MAX + 1];
    assert_eq!(packet.repr().emit(&mut buffer), Ok(FRAME_BYTES_MAX));
    packet.payload.push(0);
    assert!(packet.repr().emit(&mut buffer).is_err());

    let packet = base(false, false);
    assert_eq!(packet.repr().emit(&mut [0; 58]), Ok(58));
    let error = packet.repr().emit(&mut [0; 57]).unwrap_err();
    assert_eq!(error.to_string(), "frame: 57 bytes are there, at least 58 are needed");
}

const OWN_MAC: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 0x02]);
const FILTER: Filter = Filter { own_mac: OWN_MAC, promiscuous: false, accept_multicast: false };

/// A SEND_ONLY without payload: the shortest packet, in which every byte is a header's or the ICRC's.
fn base(is_ipv6: bool, is_tagged: bool) -> Owned {
    let ip = if is_ipv6 {
        IpRepr::V6(Ipv6Repr {
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            source: "fd00::10".parse().unwrap(),
            destination: "fd00::20".parse().unwrap(),
        })
    } else {
        IpRepr::V4(Ipv4Repr {
            traffic_class: 0,
            identification: 7,
            reserved_flag: false,
            dont_fragment: true,
            hop_limit: 64,
            source: [192, 168, 1, 10].into(),
            destination: [192, 168, 1, 20].into(),
        })
    };
    let repr = PacketRepr {
        ethernet: EthernetRepr {
            destination: OWN_MAC,
            source: MacAddress([0x02, 0, 0, 0, 0, 0x01]),
            vlan: is_tagged.then_some(VlanTag { priority: 3, drop_eligible: false, identifier: 100 }),
            ethertype: if is_ipv6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 },
        },
        ip,
        udp: UdpRepr { source_port: 0xC001, checksum: 0 },
        bth: BthRepr::new(0x04, 0x12, Psn::ZERO),
        extended: Extended::EMPTY,
        payload: &[],
        pad: [0; 3],
    };
    Owned { repr, payload: Vec::new() }
}

/// Views of a frame's headers, to break them one field at a time.
struct Broken {
    frame: Vec<u8>,
    ethernet_bytes: usize,
    ip_bytes: usize,
}

impl Broken {
    fn new(packet: &Owned) -> Self {
        let (ethernet_bytes, ip_bytes) = (packet.repr.ethernet.buffer_len(), packet.repr.ip.buffer_len());
        Self { frame: packet.emit(), ethernet_bytes, ip_bytes }
    }
    fn ethernet(&mut self) -> EthernetPacket<&mut [u8]> {
        EthernetPacket::new_unchecked(&mut self.frame)
    }
    fn ipv4(&mut self) -> Ipv4Packet<&mut [u8]> {
        assert_eq!(self.ip_bytes, 20);
        Ipv4Packet::new_unchecked(&mut self.frame[self.ethernet_bytes..])
    }
    fn ipv6(&mut self) -> Ipv6Packet<&mut [u8]> {
        assert_eq!(self.ip_bytes, 40);
        Ipv6Packet::new_unchecked(&mut self.frame[self.ethernet_bytes..])
    }
    fn udp(&mut self) -> UdpPacket<&mut [u8]> {
        UdpPacket::new_unchecked(&mut self.frame[self.ethernet_bytes + self.ip_bytes..])
    }
    fn bth(&mut self) -> BthPacket<&mut [u8]> {
        BthPacket::new_unchecked(&mut self.frame[self.ethernet_bytes + self.ip_bytes + 8..])
    }
    fn seal(mut self) -> Vec<u8> {
        seal(&mut self.frame);
        self.frame
    }
}

/// Returns the result of classifying a frame that was edited and then given a correct checksum and ICRC.
fn outcome(packet: &Owned, edit: impl FnOnce(&mut Broken)) -> Result<(), DropReason> {
    let mut broken = Broken::new(packet);
    edit(&mut broken);
    classify(&broken.seal(), false, &FILTER).map(drop)
}

#[test]
fn a_mac_error_is_refused_whatever_the_frame() {
    let frame = base(false, false).emit();
    assert_eq!(classify(&frame, true, &FILTER), Err(DropReason::MacError));
    assert!(classify(&frame, false, &FILTER).is_ok());
    assert_eq!(classify(&[], true, &FILTER), Err(DropReason::MacError));
}

#[test]
fn a_frame_has_at_most_4224_bytes() {
    let mut frame = base(false, false).emit();
    frame.resize(4224, 0);
    assert!(classify(&frame, false, &FILTER).is_ok());
    frame.push(0);
    assert_eq!(classify(&frame, false, &FILTER), Err(DropReason::TooLong));
}

#[test]
fn a_frame_that_ends_in_a_header_is_refused_for_that_header() {
    for (is_ipv6, is_tagged) in [(false, false), (false, true), (true, false), (true, true)] {
        let packet = base(is_ipv6, is_tagged);
        let frame = packet.emit();
        let ethernet_bytes = packet.repr.ethernet.buffer_len();
        let ip_end = ethernet_bytes + packet.repr.ip.buffer_len();
        for bytes in 0..frame.len() {
            let expected = if bytes < ethernet_bytes {
                DropReason::ShortEthernet
            } else if bytes < ip_end {
                DropReason::IpHeader
            } else {
                DropReason::IpLength
            };
            assert_eq!(classify(&frame[..bytes], false, &FILTER), Err(expected), "{bytes} bytes");
        }
        assert!(classify(&frame, false, &FILTER).is_ok());
    }
}

#[test]
fn the_filter_decides_about_destinations() {
    let ip_groups = [[0x01, 0x00, 0x5E, 0x80, 0, 1], [0x33, 0x33, 0, 0, 0, 1]];
    let others = [[0xFF; 6], [0x01, 0x80, 0xC2, 0, 0, 1], [0x02, 0, 0, 0, 0, 3]];
    let own = [OWN_MAC.0];
    let multicast = Filter { accept_multicast: true, ..FILTER };
    let promiscuous = Filter { promiscuous: true, ..FILTER };
    let accepted = |filter: &Filter, destination: [u8; 6]| {
        let mut packet = base(false, false);
        packet.repr.ethernet.destination = MacAddress(destination);
        match classify(&packet.emit(), false, filter) {
            Ok(_) => true,
            Err(reason) => {
                assert_eq!(reason, DropReason::DestinationMac);
                false
            }
        }
    };
    let all = |filter, destinations: &[[u8; 6]]| destinations.iter().all(|&mac| accepted(filter, mac));
    let none = |filter, destinations: &[[u8; 6]]| !destinations.iter().any(|&mac| accepted(filter, mac));
    assert!(all(&FILTER, &own) && none(&FILTER, &ip_groups) && none(&FILTER, &others));
    assert!(all(&multicast, &own) && all(&multicast, &ip_groups) && none(&multicast, &others));
    assert!(all(&promiscuous, &own) && all(&promiscuous, &ip_groups) && all(&promiscuous, &others));
}

#[test]
fn a_group_does_not_send() {
    let source = |mac| outcome(&base(false, false), |broken| broken.ethernet().set_source(MacAddress(mac)));
    assert_eq!(source([0x03, 0, 0, 0, 0, 1]), Err(DropReason::SourceMac));
    assert_eq!(source([0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]), Ok(()));
}

#[test]
fn an_ethertype_is_ip_or_other() {
    let ethertype = |code| outcome(&base(false, false), |broken| broken.ethernet().set_ethertype(code));
    assert_eq!(ethertype(0x0800), Ok(()));
    // ARP, RoCEv1, QinQ, and neighbours of the right numbers.
    for code in [0x0806, 0x8915, 0x88A8, 0x0801, 0x86DC, 0x0000] {
        assert_eq!(ethertype(code), Err(DropReason::OtherEthertype), "{code:#06x}");
    }
    // A second tag after the first.
    let mut frame = base(false, true).emit();
    frame[16..18].copy_from_slice(&[0x81, 0x00]);
    assert_eq!(classify(&frame, false, &FILTER), Err(DropReason::OtherEthertype));
    // The right family under the other family's number.
    assert_eq!(ethertype(0x86DD), Err(DropReason::IpHeader));
}

#[test]
fn an_ip_header_has_the_right_version_and_no_options() {
    let ipv4 = |edit: fn(&mut Ipv4Packet<&mut [u8]>)| {
        outcome(&base(false, false), |broken| edit(&mut broken.ipv4()))
    };
    assert_eq!(ipv4(|ip| ip.set_version(4)), Ok(()));
    assert_eq!(ipv4(|ip| ip.set_version(5)), Err(DropReason::IpHeader));
    assert_eq!(ipv4(|ip| ip.set_version(6)), Err(DropReason::IpHeader));
    assert_eq!(ipv4(|ip| ip.set_header_words(4)), Err(DropReason::IpHeader));
    assert_eq!(ipv4(|ip| ip.set_header_words(6)), Err(DropReason::IpHeader));
    assert_eq!(ipv4(|ip| ip.set_total_length(19)), Err(DropReason::IpHeader));
    assert_eq!(ipv4(|ip| ip.set_total_length(20)), Err(DropReason::UdpHeader));
    let ipv6 = |version| outcome(&base(true, false), |broken| broken.ipv6().set_version(version));
    assert_eq!(ipv6(6), Ok(()));
    assert_eq!(ipv6(4), Err(DropReason::IpHeader));
    assert_eq!(ipv6(7), Err(DropReason::IpHeader));
}

#[test]
fn an_ip_packet_ends_with_the_frame_or_before() {
    let ipv4 = |length| outcome(&base(false, true), |broken| broken.ipv4().set_total_length(length));
    assert_eq!(ipv4(44), Ok(()));
    assert_eq!(ipv4(45), Err(DropReason::IpLength));
    assert_eq!(ipv4(u16::MAX), Err(DropReason::IpLength));
    let ipv6 = |length| outcome(&base(true, true), |broken| broken.ipv6().set_payload_length(length));
    assert_eq!(ipv6(24), Ok(()));
    assert_eq!(ipv6(25), Err(DropReason::IpLength));
    assert_eq!(ipv6(u16::MAX), Err(DropReason::IpLength));
}

#[test]
fn a_checksum_is_right_or_refused() {
    let mut broken = Broken::new(&base(false, false));
    assert!(classify(&broken.frame, false, &FILTER).is_ok());
    let checksum = broken.ipv4().checksum();
    for wrong in [checksum ^ 1, checksum ^ 0x8000, !checksum, 0] {
        broken.ipv4().set_checksum(wrong);
        assert_eq!(classify(&broken.frame, false, &FILTER), Err(DropReason::IpChecksum), "{wrong:#06x}");
    }
}

#[test]
fn both_spellings_of_a_zero_checksum_are_accepted_and_zero_is_written() {
    let mut packet = base(false, false);
    let IpRepr::V4(ip) = &mut packet.repr.ip else { unreachable!("the base is IPv4") };
    // With this identification the header sums to 0xFFFF without its checksum.
    let checksum = Broken::new(&base(false, false)).ipv4().checksum();
    ip.identification += checksum;
    let mut broken = Broken::new(&packet);
    assert_eq!(broken.ipv4().checksum(), 0);
    let frame = broken.frame.clone();
    broken.ipv4().set_checksum(0xFFFF);
    let repr = classify(&broken.frame, false, &FILTER).unwrap();
    assert_eq!(emit(&repr), frame);
}

#[test]
fn fragments_are_refused_and_other_flags_ignored() {
    let ipv4 = |edit: fn(&mut Ipv4Packet<&mut [u8]>)| {
        outcome(&base(false, false), |broken| edit(&mut broken.ipv4()))
    };
    assert_eq!(ipv4(|ip| ip.set_more_fragments(true)), Err(DropReason::IpFragment));
    assert_eq!(ipv4(|ip| ip.set_fragment_offset(1)), Err(DropReason::IpFragment));
    assert_eq!(ipv4(|ip| ip.set_fragment_offset(0x1000)), Err(DropReason::IpFragment));
    assert_eq!(ipv4(|ip| ip.set_dont_fragment(false)), Ok(()));
    assert_eq!(ipv4(|ip| ip.set_reserved_flag(true)), Ok(()));
}

#[test]
fn protocols_other_than_udp_are_refused() {
    for protocol in [6, 16, 18, 0] {
        let ipv4 = outcome(&base(false, false), |broken| broken.ipv4().set_protocol(protocol));
        assert_eq!(ipv4, Err(DropReason::OtherProtocol));
        let ipv6 = outcome(&base(true, false), |broken| broken.ipv6().set_next_header(protocol));
        assert_eq!(ipv6, Err(DropReason::OtherProtocol));
    }
}

#[test]
fn an_ip_payload_holds_a_udp_header() {
    let ipv4 = |length| outcome(&base(false, false), |broken| broken.ipv4().set_total_length(length));
    assert_eq!(ipv4(27), Err(DropReason::UdpHeader));
    assert_eq!(ipv4(28), Err(DropReason::UdpLength));
    let ipv6 = |length| outcome(&base(true, false), |broken| broken.ipv6().set_payload_length(length));
    assert_eq!(ipv6(0), Err(DropReason::UdpHeader));
    assert_eq!(ipv6(7), Err(DropReason::UdpHeader));
    assert_eq!(ipv6(8), Err(DropReason::UdpLength));
}

#[test]
fn only_the_destination_port_counts() {
    let port = |port| outcome(&base(false, false), |broken| broken.udp().set_destination_port(port));
    assert_eq!(port(ROCE_PORT), Ok(()));
    assert_eq!(port(ROCE_PORT - 1), Err(DropReason::OtherPort));
    assert_eq!(port(ROCE_PORT + 1), Err(DropReason::OtherPort));
    for source in [0, 53, ROCE_PORT, 0xFFFF] {
        assert_eq!(outcome(&base(false, false), |broken| broken.udp().set_source_port(source)), Ok(()));
        assert_eq!(outcome(&base(false, false), |broken| broken.udp().set_checksum(source)), Ok(()));
    }
}

#[test]
fn the_udp_length_is_that_of_the_ip_payload_and_at_least_24() {
    let length = |length| outcome(&base(false, false), |broken| broken.udp().set_length(length));
    assert_eq!(length(24), Ok(()));
    assert_eq!(length(23), Err(DropReason::UdpLength));
    assert_eq!(length(25), Err(DropReason::UdpLength));
    assert_eq!(length(0), Err(DropReason::UdpLength));
    // Both lengths agree, and are one too small.
    let both = outcome(&base(false, false), |broken| {
        broken.ipv4().set_total_length(43);
        broken.udp().set_length(23);
    });
    assert_eq!(both, Err(DropReason::UdpLength));
}

#[test]
fn a_wrong_icrc_is_refused() {
    let frame = base(true, true).emit();
    assert!(classify(&frame, false, &FILTER).is_ok());
    for bit in 0..32 {
        let mut wrong = frame.clone();
        let at = wrong.len() - 4 + bit / 8;
        wrong[at] ^= 1 << (bit % 8);
        assert_eq!(classify(&wrong, false, &FILTER), Err(DropReason::Icrc));
    }
}

#[test]
fn the_header_version_is_zero() {
    let version = |version| outcome(&base(false, false), |broken| broken.bth().set_version(version));
    assert_eq!(version(0), Ok(()));
    for other in 1..16 {
        assert_eq!(version(other), Err(DropReason::BthVersion));
    }
}

#[test]
fn every_opcode_is_taken_or_refused_as_its_class_says() {
    for code in 0..=255u8 {
        let mut packet = base(false, false);
        packet.repr.bth.opcode = code;
        packet.repr.extended = Extended::parse(code, &[0; 28]).unwrap();
        let expected = match opcode::class(code) {
            Some(_) => Ok(()),
            None => Err(DropReason::UnsupportedTransport),
        };
        assert_eq!(outcome(&packet, |_| ()), expected, "opcode {code:#04x}");
    }
}

#[test]
fn a_packet_has_room_for_its_headers_and_pad() {
    for row in &OPCODES {
        let extended_bytes = usize::from(EXTENDED_BYTES[usize::from(row.code)]);
        // A SEND_ONLY with a payload of exactly the size of this opcode's headers, or one byte less.
        let room = |body_bytes: usize, pad_count| {
            let mut packet = base(false, false);
            packet.payload = vec![0; body_bytes];
            outcome(&packet, |broken| {
                broken.bth().set_opcode(row.code);
                broken.bth().set_pad_count(pad_count);
            })
        };
        assert_eq!(room(extended_bytes, 0), Ok(()), "{}", row.name);
        assert_eq!(room(extended_bytes + 3, 3), Ok(()), "{}", row.name);
        assert_eq!(room(extended_bytes + 2, 3), Err(DropReason::HeaderLength), "{}", row.name);
        if extended_bytes > 0 {
            assert_eq!(room(extended_bytes - 1, 0), Err(DropReason::HeaderLength), "{}", row.name);
        }
    }
}

#[test]
fn queue_pair_zero_is_refused() {
    let qp = |qp| outcome(&base(false, false), |broken| broken.bth().set_destination_qp(qp));
    assert_eq!(qp(0), Err(DropReason::DestinationQp));
    assert_eq!(qp(1), Ok(()));
    assert_eq!(qp(0xFF_FFFF), Ok(()));
}

#[test]
fn fields_that_are_to_be_ignored_are_ignored() {
    let bth =
        |edit: fn(&mut BthPacket<&mut [u8]>)| outcome(&base(false, false), |broken| edit(&mut broken.bth()));
    assert_eq!(bth(|bth| bth.set_migrated(false)), Ok(()));
    assert_eq!(bth(|bth| bth.set_reserved6(0x3F)), Ok(()));
    assert_eq!(bth(|bth| bth.set_reserved7(0x7F)), Ok(()));
    assert_eq!(bth(|bth| bth.set_forward_congestion(true)), Ok(()));
    assert_eq!(bth(|bth| bth.set_backward_congestion(true)), Ok(()));
    assert_eq!(bth(|bth| bth.set_partition_key(0)), Ok(()));
    let ipv4 = |edit: fn(&mut Ipv4Packet<&mut [u8]>)| {
        outcome(&base(false, false), |broken| edit(&mut broken.ipv4()))
    };
    assert_eq!(ipv4(|ip| ip.set_hop_limit(0)), Ok(()));
    assert_eq!(ipv4(|ip| ip.set_traffic_class(0xFF)), Ok(()));
    assert_eq!(outcome(&base(true, false), |broken| broken.ipv6().set_flow_label(0xF_FFFF)), Ok(()));
}

/// Gives a frame the fault of a drop reason, as far as it can be made before checksum and ICRC are corrected.
fn break_headers(broken: &mut Broken, reason: DropReason) {
    match reason {
        DropReason::DestinationMac => broken.ethernet().set_destination(MacAddress([2, 0, 0, 0, 0, 9])),
        DropReason::SourceMac => broken.ethernet().set_source(MacAddress([3, 0, 0, 0, 0, 1])),
        DropReason::IpHeader => broken.ipv4().set_version(5),
        DropReason::IpLength => broken.ipv4().set_total_length(45),
        DropReason::IpFragment => broken.ipv4().set_more_fragments(true),
        DropReason::OtherProtocol => broken.ipv4().set_protocol(6),
        DropReason::UdpHeader => broken.ipv4().set_total_length(27),
        DropReason::OtherPort => broken.udp().set_destination_port(4790),
        DropReason::BthVersion => broken.bth().set_version(1),
        DropReason::UnsupportedTransport => broken.bth().set_opcode(0x40),
        DropReason::HeaderLength => broken.bth().set_pad_count(1),
        DropReason::DestinationQp => broken.bth().set_destination_qp(0),
        _ => {}
    }
}

/// The rest of it, which would be undone by sealing or would prevent it.
fn break_frame(broken: &mut Broken, reason: DropReason) {
    match reason {
        DropReason::OtherEthertype => broken.ethernet().set_ethertype(0x0806),
        DropReason::IpChecksum => broken.ipv4().set_checksum(0),
        DropReason::UdpLength => broken.udp().set_length(23),
        DropReason::Icrc => broken.bth().set_reserved7(1),
        _ => {}
    }
}

#[test]
fn of_two_faults_the_first_in_order_counts() {
    let software: Vec<_> = DropReason::ALL.into_iter().filter(|reason| !reason.is_without_room()).collect();
    // No frame is both too long and too short; a length field has one value.
    let exclusive =
        [(DropReason::TooLong, DropReason::ShortEthernet), (DropReason::IpLength, DropReason::UdpHeader)];
    let mut pairs = 0;
    for &first in &software {
        for &second in software.iter().filter(|second| **second >= first) {
            if exclusive.contains(&(first, second)) {
                continue;
            }
            pairs += 1;
            let mut broken = Broken::new(&base(false, false));
            [first, second].into_iter().for_each(|reason| break_headers(&mut broken, reason));
            seal(&mut broken.frame);
            [first, second].into_iter().for_each(|reason| break_frame(&mut broken, reason));
            let has = |reason| first == reason || second == reason;
            if has(DropReason::TooLong) {
                broken.frame.resize(4225, 0);
            }
            if has(DropReason::ShortEthernet) {
                broken.frame.truncate(13);
            }
            let found = classify(&broken.frame, has(DropReason::MacError), &FILTER);
            assert_eq!(found, Err(first), "with {second}");
        }
    }
    assert_eq!(pairs, 19 * 20 / 2 - exclusive.len());
}
