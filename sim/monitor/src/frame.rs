//! Rules for a frame alone: those of any packet, and those of the path of its queue pair.
use crate::rule::{Findings, Rule};
use crate::set_up::{Port, SetUp};
use rnic_layout::opcode::{Class, Opcode, Operation, Transport};
use rnic_layout::path::SOURCE_PORT_BASE;
use rnic_layout::psn::Psn;
use rnic_layout::state::Traffic;
use rnic_layout::wire::bth::pad_count;
use rnic_layout::wire::ip::Ecn;
use rnic_layout::wire::{DropReason, ExtendedRepr, IpRepr, PacketRepr};

/// Length of the shortest frame, to which Ethernet pads.
const FRAME_BYTES_MIN: usize = 60;

/// Returns the rule that a frame breaks if a receiver would drop it for this reason.
pub(crate) fn rule_of(reason: DropReason) -> Rule {
    match reason {
        DropReason::Icrc => Rule::Icrc,
        DropReason::DestinationMac | DropReason::SourceMac => Rule::MacAddress,
        DropReason::OtherEthertype | DropReason::IpHeader | DropReason::IpChecksum => Rule::IpHeader,
        DropReason::IpFragment | DropReason::OtherProtocol => Rule::IpHeader,
        DropReason::OtherPort => Rule::UdpPort,
        DropReason::BthVersion | DropReason::UnsupportedTransport => Rule::Transport,
        DropReason::DestinationQp => Rule::Destination,
        _ => Rule::Length,
    }
}

/// Returns whether SE may be set in a packet: in the last one of a message that takes a receive.
fn may_be_solicited(operation: Operation) -> bool {
    use Operation::*;
    matches!(
        operation,
        SendLast
            | SendLastImmediate
            | SendLastInvalidate
            | SendOnly
            | SendOnlyImmediate
            | SendOnlyInvalidate
            | WriteLastImmediate
            | WriteOnlyImmediate
    )
}

/// Checks what every packet of the card must keep, whatever its queue pair.
pub(crate) fn check(frame: &[u8], packet: &PacketRepr, row: &Opcode, findings: &mut Findings) {
    let bth = &packet.bth;
    findings.compare(
        Rule::Length,
        "the length of the frame",
        frame.len(),
        packet.buffer_len().max(FRAME_BYTES_MIN),
    );
    if let IpRepr::V4(ip) = &packet.ip {
        findings.compare(Rule::IpHeader, "DF", ip.dont_fragment, true);
        findings.compare(Rule::IpHeader, "the reserved flag", ip.reserved_flag, false);
    }
    findings.compare(Rule::UdpChecksum, "the UDP checksum", packet.udp.checksum, 0);
    findings.ensure(Rule::UdpPort, packet.udp.source_port >= SOURCE_PORT_BASE, || {
        format!("the source port is {:#06x}, allowed is 0xc000 to 0xffff", packet.udp.source_port)
    });
    let is_notification = row.class == Class::Congestion;
    findings.compare(Rule::MigReq, "MigReq", bth.migrated, !is_notification);
    findings.compare(Rule::Reserved, "FECN", bth.forward_congestion, false);
    findings.compare(Rule::Reserved, "BECN", bth.backward_congestion, is_notification);
    findings.compare(Rule::Reserved, "the rest of byte 4 of the BTH", bth.reserved6, 0);
    findings.compare(Rule::Reserved, "the rest of byte 8 of the BTH", bth.reserved7, 0);
    findings.ensure(Rule::Solicited, !bth.solicited || may_be_solicited(row.operation), || {
        format!("SE is set, which {} may not have", row.name)
    });
    findings.compare(Rule::Pad, "the pad", bth.pad_count, pad_count(packet.payload.len()));
    findings.compare(Rule::Pad, "the pad's contents", packet.pad, [0; 3]);
    if row.class != Class::Request {
        findings.compare(Rule::AckRequest, "AckReq of what is no request", bth.ack_request, false);
    }
    if is_notification {
        findings.compare(Rule::Congestion, "the PSN", bth.psn, Psn::ZERO);
        let is_zero = |header| matches!(header, ExtendedRepr::Cnp(cnp) if cnp.reserved == 0);
        findings.ensure(Rule::Congestion, packet.extended_headers().all(is_zero), || {
            "a reserved byte after the BTH differs from 0".into()
        });
    }
}

/// Checks what follows from the set-up of a queue pair: addresses, path, service, state, P_Key and PMTU.
pub(crate) fn check_path(
    set_up: &SetUp,
    port: &Port,
    packet: &PacketRepr,
    row: &Opcode,
    findings: &mut Findings,
) {
    let permitted = match set_up.state.permissions().transmit {
        Traffic::None => false,
        Traffic::Responder => row.class == Class::Response,
        Traffic::ResponderAndBegun | Traffic::All => true,
    };
    findings.ensure(Rule::State, permitted, || format!("{} is sent in {:?}", row.name, set_up.state));
    let is_of_service = row.transport as u8 == set_up.service.number() || row.transport == Transport::Cnp;
    findings.ensure(Rule::Transport, is_of_service, || {
        format!("{} is sent by a queue pair of {:?}", row.name, set_up.service)
    });
    findings.compare(Rule::PartitionKey, "the P_Key", packet.bth.partition_key, set_up.partition_key);
    let pmtu_bytes = set_up.pmtu_bytes as usize;
    findings.ensure(Rule::PayloadLength, row.payload.admits(packet.payload.len(), pmtu_bytes), || {
        format!("the payload has {} bytes at a PMTU of {pmtu_bytes}", packet.payload.len())
    });
    let Some(path) = &set_up.path else {
        findings.add(Rule::State, || "the queue pair has no path".into());
        return;
    };
    let source = port.sources[usize::from(path.source_address_index)];
    let ethernet = &packet.ethernet;
    let destination_mac = crate::set_up::mac(path.destination_mac);
    findings.compare(Rule::MacAddress, "the destination", ethernet.destination.0, destination_mac);
    findings.compare(Rule::MacAddress, "the source", ethernet.source.0, source.mac);
    let tag = path.vlan_present.then_some(path.vlan_control);
    findings.compare(Rule::Vlan, "the VLAN tag", ethernet.vlan.map(|tag| tag.control()), tag);
    let is_ipv6 = matches!(packet.ip, IpRepr::V6(_));
    findings.compare(Rule::IpAddress, "IPv6", is_ipv6, path.is_ipv6);
    findings.compare(Rule::IpAddress, "the source", packet.ip.source().0, source.gid.0);
    findings.compare(Rule::IpAddress, "the destination", packet.ip.destination().0, path.destination_address);
    // The DSCP is that of the path. The ECN bits are the card's own, and it has no congestion control (protocol 1.2).
    let class = path.traffic_class & !Ecn::MASK | Ecn::NotCapable as u8;
    findings.compare(Rule::TrafficClass, "the class", packet.ip.traffic_class(), class);
    findings.compare(Rule::HopLimit, "the hop limit", packet.ip.hop_limit(), path.hop_limit);
    if let IpRepr::V6(ip) = &packet.ip {
        findings.compare(Rule::FlowLabel, "the flow label", ip.flow_label, path.flow_label);
    }
    findings.compare(Rule::UdpPort, "the source port", packet.udp.source_port, path.source_port);
}

/// Returns whether a packet that arrives passes the checks without which it must be dropped in silence (protocol 3.1, step 1).
pub(crate) fn is_for(set_up: &SetUp, port: &Port, packet: &PacketRepr, row_class: Class) -> bool {
    let Some(path) = &set_up.path else { return false };
    let permitted = match set_up.state.permissions().receive {
        Traffic::None => false,
        Traffic::Responder => row_class == Class::Request,
        Traffic::ResponderAndBegun | Traffic::All => true,
    };
    let (own, found) = (set_up.partition_key, packet.bth.partition_key);
    let is_partition = own & 0x7fff == found & 0x7fff && own & 0x7fff != 0 && (own | found) & 0x8000 != 0;
    let transport = Transport::of(packet.bth.opcode).map(|transport| transport as u8);
    permitted
        && is_partition
        && transport == Some(set_up.service.number())
        && packet.ip.source().0 == path.destination_address
        && packet.ip.destination() == port.sources[usize::from(path.source_address_index)].gid
}
