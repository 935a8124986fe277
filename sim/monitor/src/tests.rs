//! Planted faults: each rule is broken in each way that it names, and good traffic breaks none.
mod dropped;
mod rates;
mod refused;
mod repeats;

use super::*;
use rnic_layout::admin::{CommandHeader, CreateQueuePair, ModifyQueuePair};
use rnic_layout::opcode::Operation;
use rnic_layout::path::Gid;
use rnic_layout::psn::Psn;
use rnic_layout::registers::{
    OwnMac, REG_OWN_MAC, REG_SOURCE_ADDRESS_HIGH, REG_SOURCE_ADDRESS_LOW, REG_SOURCE_ADDRESS_PORT,
    REG_TIMER_UNIT, SourceAddressPort,
};
use rnic_layout::state::{AttributeMask, PathMtu, QpState, Service};
use rnic_layout::syndrome::{NakCode, Syndrome};
use rnic_layout::wire::extended::{
    AethRepr, AtomicAckEthRepr, AtomicEthRepr, CnpRepr, ImmediateRepr, RethRepr,
};
use rnic_layout::wire::{
    BthRepr, EthernetRepr, Extended, ExtendedRepr, IpRepr, Ipv4Repr, Ipv6Repr, MacAddress, UdpRepr, VlanTag,
    bth, ethernet, icrc,
};
use std::ops::Range;

/// Rates of a card of 64 bits, and the time for which its frames may follow a command.
const FAST: Rates = Rates { core_hertz: 250_000_000, bits_per_second: 10_000_000_000 };
const LINGER_PS: u64 = FAST.linger_ps();
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// A queue pair over tagged IPv4, one over IPv6, and their peers.
const NUMBER: u32 = 0x12;
const PEER: u32 = 0x34;
const NUMBER_V6: u32 = 0x13;
const PEER_V6: u32 = 0x35;
const PMTU: usize = 256;
const TAG: u16 = 0x6064;
const CLASS: u8 = 0x68;
const HOPS: u8 = 63;
const SOURCE_PORT: u16 = 0xd123;
const FLOW: u32 = 0x1_2345;
const PARTITION: u16 = 0x8007;
const RNR_TIMER: u8 = 12;
/// Two before the wrap-around, so that all that follows crosses it.
const SEND_PSN: Psn = Psn::wrapping(0xff_fffe);
const RECEIVE_PSN: Psn = Psn::wrapping(0xff_fffd);
const ACK: u8 = 0x1f;

fn own(is_ipv6: bool) -> Gid {
    if is_ipv6 { Gid::from_mac(OWN_MAC) } else { Gid::from_ipv4([10, 0, 0, 1].into()) }
}

fn peer(is_ipv6: bool) -> Gid {
    if is_ipv6 { Gid::from_mac(PEER_MAC) } else { Gid::from_ipv4([10, 0, 0, 2].into()) }
}

fn number_of(mac: [u8; 6]) -> u64 {
    mac.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn register(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

/// A frame from the card to its peer, or back, before it is emitted.
struct Draft {
    packet: PacketRepr<'static>,
}

impl Draft {
    /// As the card sends it on the queue pair over IPv4, or the one over IPv6.
    fn new(is_ipv6: bool, operation: Operation, psn: Psn, headers: &[ExtendedRepr], bytes: usize) -> Draft {
        static PAYLOAD: [u8; 4096] = [0x5a; 4096];
        let ip = match (own(is_ipv6).to_ipv4(), peer(is_ipv6).to_ipv4()) {
            (Some(source), Some(destination)) => IpRepr::V4(Ipv4Repr {
                traffic_class: CLASS,
                identification: 77,
                reserved_flag: false,
                dont_fragment: true,
                hop_limit: HOPS,
                source,
                destination,
            }),
            _ => IpRepr::V6(Ipv6Repr {
                traffic_class: CLASS,
                flow_label: FLOW,
                hop_limit: HOPS,
                source: own(true).to_ipv6(),
                destination: peer(true).to_ipv6(),
            }),
        };
        let destination = if is_ipv6 { PEER_V6 } else { PEER };
        let packet = PacketRepr {
            ethernet: EthernetRepr {
                destination: MacAddress(PEER_MAC),
                source: MacAddress(OWN_MAC),
                vlan: (!is_ipv6).then(|| VlanTag::from_control(TAG)),
                ethertype: if is_ipv6 { ethernet::ETHERTYPE_IPV6 } else { ethernet::ETHERTYPE_IPV4 },
            },
            ip,
            udp: UdpRepr { source_port: SOURCE_PORT, checksum: 0 },
            bth: BthRepr {
                partition_key: PARTITION,
                pad_count: bth::pad_count(bytes),
                ..BthRepr::new(operation.code(), destination, psn)
            },
            extended: Extended::from_headers(headers).unwrap(),
            payload: &PAYLOAD[..bytes],
            pad: [0; 3],
        };
        Draft { packet }
    }

    fn with(mut self, change: impl FnOnce(&mut PacketRepr<'static>)) -> Draft {
        change(&mut self.packet);
        self
    }

    fn asking(self) -> Draft {
        self.with(|packet| packet.bth.ack_request = true)
    }

    /// The same packet as the peer would send it to the card.
    fn back(self) -> Draft {
        self.with(|packet| {
            std::mem::swap(&mut packet.ethernet.source, &mut packet.ethernet.destination);
            match &mut packet.ip {
                IpRepr::V4(ip) => std::mem::swap(&mut ip.source, &mut ip.destination),
                IpRepr::V6(ip) => std::mem::swap(&mut ip.source, &mut ip.destination),
            }
            let number = if packet.bth.destination_qp == PEER_V6 { NUMBER_V6 } else { NUMBER };
            packet.bth.destination_qp = number;
        })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.packet.buffer_len()];
        self.packet.emit(&mut bytes).unwrap();
        bytes.resize(bytes.len().max(60), 0);
        bytes
    }
}

fn draft(operation: Operation, psn: Psn, headers: &[ExtendedRepr], bytes: usize) -> Draft {
    Draft::new(false, operation, psn, headers, bytes)
}

fn send_only(psn: Psn, bytes: usize) -> Draft {
    draft(Operation::SendOnly, psn, &[], bytes).asking()
}

fn reth(length: usize) -> ExtendedRepr {
    ExtendedRepr::Reth(RethRepr { virtual_address: 0x7000, remote_key: 0x1a05, dma_length: length as u32 })
}

/// The packet that takes the place of one whose payload could not be read (protocol 2.4).
fn stand_in(psn: Psn) -> Draft {
    let reth = ExtendedRepr::Reth(RethRepr { virtual_address: 0, remote_key: 0, dma_length: 0 });
    draft(Operation::WriteOnly, psn, &[reth], 0).asking()
}

fn atomic() -> ExtendedRepr {
    let (virtual_address, remote_key) = (0x7000, 0x1a05);
    ExtendedRepr::AtomicEth(AtomicEthRepr { virtual_address, remote_key, swap_add: 1, compare: 0 })
}

fn aeth(syndrome: u8, msn: u32) -> ExtendedRepr {
    ExtendedRepr::Aeth(AethRepr { syndrome, msn: Psn::wrapping(msn) })
}

fn ack(psn: Psn, syndrome: u8, msn: u32) -> Draft {
    draft(Operation::Acknowledge, psn, &[aeth(syndrome, msn)], 0)
}

fn atomic_ack(psn: Psn, msn: u32) -> Draft {
    let original = ExtendedRepr::AtomicAckEth(AtomicAckEthRepr { original: 5 });
    draft(Operation::AtomicAcknowledge, psn, &[aeth(ACK, msn), original], 0)
}

/// A CNP, whose reserved bytes have this value.
fn cnp(reserved: u128) -> Draft {
    draft(Operation::SendOnly, Psn::ZERO, &[ExtendedRepr::Cnp(CnpRepr { reserved })], 0).with(|packet| {
        packet.bth.opcode = 0x81;
        packet.bth.migrated = false;
        packet.bth.backward_congestion = true;
    })
}

/// A request to which the network has set the mark of congestion.
fn marked(psn: Psn) -> Draft {
    send_only(psn, 5).with(|packet| change_ipv4(packet, |ip| ip.traffic_class |= 3))
}

fn nak(code: NakCode) -> u8 {
    Syndrome::Nak(code).emit()
}

/// A monitor and what it has found.
struct Bench {
    monitor: Monitor,
    now_ps: u64,
    tag: u16,
    /// Frames that the card has dropped for lack of room.
    dropped: u64,
    found: Vec<Finding>,
}

impl Bench {
    /// Two queue pairs in RTS.
    fn new() -> Bench {
        Bench::of(FAST)
    }

    /// Two queue pairs in RTS, on a card of these rates.
    fn of(rates: Rates) -> Bench {
        let monitor = Monitor::new(rates);
        let mut bench = Bench { monitor, now_ps: 1000, tag: 0, dropped: 0, found: Vec::new() };
        let own_mac = OwnMac { mac: number_of(OWN_MAC) };
        bench.monitor.register(REG_OWN_MAC.offset.into(), register(own_mac.to_bytes().unwrap()));
        for (index, is_ipv6) in [(0, false), (1, true)] {
            let gid = own(is_ipv6).0;
            // The first byte on the wire is the most significant.
            let halves = [&gid[..8], &gid[8..]].map(|half| u64::from_be_bytes(half.try_into().unwrap()));
            let port = SourceAddressPort { mac: number_of(OWN_MAC), valid: true };
            bench.monitor.register(REG_SOURCE_ADDRESS_HIGH.at(index).into(), halves[0]);
            bench.monitor.register(REG_SOURCE_ADDRESS_LOW.at(index).into(), halves[1]);
            let port = register(port.to_bytes().unwrap());
            bench.monitor.register(REG_SOURCE_ADDRESS_PORT.at(index).into(), port);
            let handle = CreateAddressHandle {
                is_ipv6,
                vlan_present: !is_ipv6,
                source_address_index: index as u8,
                vlan_control: TAG,
                source_port: SOURCE_PORT,
                destination_mac: number_of(PEER_MAC),
                // The card ignores the ECN bits of the path.
                traffic_class: CLASS | 2,
                hop_limit: HOPS,
                destination_address: peer(is_ipv6).0,
                flow_label: FLOW,
                ..CreateAddressHandle::at_reset()
            };
            bench.command(CommandOpcode::CreateAddressHandle, 7 + index, Body::AddressHandle(handle));
            let number = if is_ipv6 { NUMBER_V6 } else { NUMBER };
            let create =
                CreateQueuePair { service: Service::ReliableConnected, ..CreateQueuePair::at_reset() };
            bench.command(CommandOpcode::CreateQueuePair, number, Body::CreateQueuePair(create));
            bench.connect(number, if is_ipv6 { PEER_V6 } else { PEER }, 7 + index);
        }
        bench.now_ps += 10 * rates.linger_ps();
        bench
    }

    fn connect(&mut self, number: u32, peer: u32, handle: u32) {
        let ready = ModifyQueuePair {
            mask: Self::mask(&[
                AttributeMask::PARTITION,
                AttributeMask::ADDRESS,
                AttributeMask::PATH_MTU,
                AttributeMask::DESTINATION_QP,
                AttributeMask::RECEIVE_PSN,
                AttributeMask::MIN_RNR_TIMER,
                AttributeMask::DESTINATION_READ_ATOMIC,
                AttributeMask::ACCESS,
            ]),
            next_state: QpState::ReadyToReceive,
            remote_write: true,
            remote_read: true,
            remote_atomic: true,
            destination_read_atomic: 2,
            partition_key: PARTITION,
            address_handle: handle,
            path_mtu: PathMtu::Bytes256,
            destination_qp: peer,
            receive_psn: RECEIVE_PSN.value(),
            min_rnr_timer: RNR_TIMER,
            ..ModifyQueuePair::at_reset()
        };
        self.command(CommandOpcode::ModifyQueuePair, number, Body::ModifyQueuePair(ready));
        let ready = ModifyQueuePair {
            mask: Self::mask(&[
                AttributeMask::SEND_PSN,
                AttributeMask::READ_ATOMIC,
                AttributeMask::TIMEOUT,
                AttributeMask::RETRY_COUNT,
                AttributeMask::RNR_RETRY,
            ]),
            next_state: QpState::ReadyToSend,
            send_psn: SEND_PSN.value(),
            read_atomic: 2,
            timeout: 1,
            retry_count: 7,
            rnr_retry: 7,
            ..ModifyQueuePair::at_reset()
        };
        self.command(CommandOpcode::ModifyQueuePair, number, Body::ModifyQueuePair(ready));
    }

    fn mask(attributes: &[AttributeMask]) -> u32 {
        attributes.iter().fold(AttributeMask::STATE, |sum, &one| sum.and(one)).0
    }

    fn post(&mut self, opcode: CommandOpcode, object_number: u32, body: Body) {
        self.tag += 1;
        let header = CommandHeader { opcode, tag: self.tag, object_number };
        self.monitor.command(&Command { header, body });
    }

    fn answer(&mut self, status: CommandStatus) {
        let answer = Answer { tag: self.tag, status, ..Answer::at_reset() };
        self.monitor.answer(self.now_ps, &answer);
    }

    fn command(&mut self, opcode: CommandOpcode, object_number: u32, body: Body) {
        self.post(opcode, object_number, body);
        self.answer(CommandStatus::Success);
    }

    fn enter(&mut self, state: QpState) {
        let body = ModifyQueuePair {
            mask: AttributeMask::STATE.0,
            next_state: state,
            ..ModifyQueuePair::at_reset()
        };
        self.post(CommandOpcode::ModifyQueuePair, NUMBER, Body::ModifyQueuePair(body));
    }

    /// Sets the RNR timer again, which changes nothing.
    fn set_timer(&mut self) {
        let mask = AttributeMask::MIN_RNR_TIMER.0;
        let body = ModifyQueuePair { mask, min_rnr_timer: RNR_TIMER, ..ModifyQueuePair::at_reset() };
        self.command(CommandOpcode::ModifyQueuePair, NUMBER, Body::ModifyQueuePair(body));
    }

    /// The card sends a frame.
    fn sends(&mut self, frame: &Draft) {
        self.sends_bytes(&frame.bytes());
    }

    fn sends_bytes(&mut self, frame: &[u8]) {
        self.now_ps += 1000;
        self.found.extend(self.monitor.sent(self.now_ps, frame));
        let unexplained = self.monitor.explain(self.monitor.unexplained(), self.dropped);
        self.found.extend(unexplained.into_iter().map(|(_, finding)| finding));
    }

    /// The peer sends a packet, which is written as if the card sent it.
    fn arrives(&mut self, frame: Draft) {
        self.now_ps += 1000;
        self.monitor.received(self.now_ps, &frame.back().bytes(), false);
    }

    fn rules(&self) -> Vec<Rule> {
        self.found.iter().map(|finding| finding.rule).collect()
    }
}

/// A change of a good frame that breaks one rule.
type Change = fn(&mut PacketRepr<'static>);

/// Faults of a SEND_ONLY of 5 bytes alone. The flag says that it is sent over IPv6.
const IN_A_FRAME: &[(Rule, bool, Change)] = &[
    (Rule::MacAddress, false, |packet| packet.ethernet.destination.0[5] ^= 4),
    (Rule::MacAddress, false, |packet| packet.ethernet.source.0[5] ^= 4),
    (Rule::MacAddress, false, |packet| packet.ethernet.source.0[0] |= 1),
    (Rule::Vlan, false, |packet| packet.ethernet.vlan = None),
    (Rule::Vlan, false, |packet| packet.ethernet.vlan = Some(VlanTag::from_control(0))),
    (Rule::Vlan, false, |packet| packet.ethernet.vlan = Some(VlanTag::from_control(TAG ^ 0x2000))),
    (Rule::Vlan, true, |packet| packet.ethernet.vlan = Some(VlanTag::from_control(TAG))),
    (Rule::IpAddress, false, |packet| change_ipv4(packet, |ip| ip.source = [10, 0, 0, 9].into())),
    (Rule::IpAddress, false, |packet| change_ipv4(packet, |ip| ip.destination = [10, 0, 0, 9].into())),
    (Rule::IpAddress, true, |packet| change_ipv6(packet, |ip| ip.destination = peer(false).to_ipv6())),
    (Rule::IpHeader, false, |packet| change_ipv4(packet, |ip| ip.dont_fragment = false)),
    (Rule::IpHeader, false, |packet| change_ipv4(packet, |ip| ip.reserved_flag = true)),
    (Rule::TrafficClass, false, |packet| change_ipv4(packet, |ip| ip.traffic_class = 0)),
    (Rule::TrafficClass, false, |packet| change_ipv4(packet, |ip| ip.traffic_class ^= 1)),
    (Rule::TrafficClass, false, |packet| change_ipv4(packet, |ip| ip.traffic_class |= 2)),
    (Rule::TrafficClass, true, |packet| change_ipv6(packet, |ip| ip.traffic_class = 0)),
    (Rule::HopLimit, false, |packet| change_ipv4(packet, |ip| ip.hop_limit = 0)),
    (Rule::HopLimit, true, |packet| change_ipv6(packet, |ip| ip.hop_limit += 1)),
    (Rule::FlowLabel, true, |packet| change_ipv6(packet, |ip| ip.flow_label = 0)),
    (Rule::UdpPort, false, |packet| packet.udp.source_port += 1),
    (Rule::UdpPort, true, |packet| packet.udp.source_port = 0x1000),
    (Rule::UdpChecksum, false, |packet| packet.udp.checksum = 1),
    (Rule::Transport, false, |packet| packet.bth.version = 1),
    (Rule::Transport, false, |packet| packet.bth.opcode = 0x18),
    (Rule::Transport, false, |packet| packet.bth.opcode = 0x24),
    (Rule::MigReq, false, |packet| packet.bth.migrated = false),
    (Rule::Reserved, false, |packet| packet.bth.forward_congestion = true),
    (Rule::Reserved, false, |packet| packet.bth.backward_congestion = true),
    (Rule::Reserved, false, |packet| packet.bth.reserved6 = 1),
    (Rule::Reserved, false, |packet| packet.bth.reserved7 = 0x40),
    (Rule::PartitionKey, false, |packet| packet.bth.partition_key = 0xffff),
    (Rule::Destination, false, |packet| packet.bth.destination_qp = 0x36),
    (Rule::Destination, false, |packet| packet.bth.destination_qp = 0),
    (Rule::Pad, false, |packet| packet.pad[1] = 1),
    (Rule::Pad, false, |packet| packet.bth.pad_count = 0),
    (Rule::Pad, false, |packet| packet.bth.pad_count = 2),
    (Rule::RequestPsn, false, |packet| packet.bth.psn = SEND_PSN.add(1)),
    (Rule::RequestPsn, false, |packet| packet.bth.psn = SEND_PSN.sub(1)),
];

fn change_ipv4(packet: &mut PacketRepr, change: impl FnOnce(&mut Ipv4Repr)) {
    let IpRepr::V4(ip) = &mut packet.ip else { panic!("it is IPv4") };
    change(ip);
}

fn change_ipv6(packet: &mut PacketRepr, change: impl FnOnce(&mut Ipv6Repr)) {
    let IpRepr::V6(ip) = &mut packet.ip else { panic!("it is IPv6") };
    change(ip);
}

/// Faults in the bytes of that frame, which begins with 18 bytes of Ethernet and tag, 20 of IPv4 and 8 of UDP.
const IN_BYTES: &[(Rule, fn(&mut Vec<u8>))] = &[
    (Rule::Length, |frame| frame.push(0)),
    (Rule::Length, |frame| frame.truncate(frame.len() - 1)),
    (Rule::Length, |frame| frame[18 + 20 + 5] -= 1),
    (Rule::Icrc, |frame| *frame.last_mut().unwrap() ^= 1),
    (Rule::Icrc, |frame| frame[60] ^= 0x80),
    (Rule::IpHeader, |frame| frame[18 + 11] ^= 1),
    (Rule::IpHeader, |frame| frame[18] = 0x46),
    (Rule::IpHeader, |frame| frame[17] = 0x06),
    (Rule::UdpPort, |frame| frame[18 + 20 + 3] ^= 1),
];

/// A rule, what breaks it, and how.
type InSequence = (Rule, &'static str, fn(&mut Bench));

/// Faults that show in a sequence of frames only; all frames but the last are good.
const IN_SEQUENCE: &[InSequence] = &[
    (Rule::State, "a request in RTR", |bench| {
        bench.enter(QpState::ReadyToReceive);
        bench.answer(CommandStatus::Success);
        bench.now_ps += 2 * LINGER_PS;
        bench.sends(&send_only(SEND_PSN, 5));
    }),
    (Rule::State, "a frame long after ERR", |bench| {
        bench.enter(QpState::Error);
        bench.sends(&send_only(SEND_PSN, 5));
        bench.answer(CommandStatus::Success);
        bench.sends(&send_only(SEND_PSN.add(1), 5));
        assert_eq!(bench.rules(), [], "frames that were on their way may leave");
        bench.now_ps += 2 * LINGER_PS;
        bench.sends(&send_only(SEND_PSN.add(2), 5));
    }),
    (Rule::State, "an ACK after a NAK that ends all", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, nak(NakCode::RemoteOperationalError), 0));
        assert_eq!(bench.rules(), []);
        bench.sends(&ack(RECEIVE_PSN, ACK, 1));
    }),
    (Rule::State, "an ACK after a NAK that ends all, just after a command", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.set_timer();
        bench.sends(&ack(RECEIVE_PSN, nak(NakCode::RemoteOperationalError), 0));
        assert_eq!(bench.rules(), []);
        bench.sends(&ack(RECEIVE_PSN, ACK, 1));
    }),
    (Rule::RequestPsn, "a request is repeated just after a command", |bench| {
        bench.set_timer();
        bench.sends(&send_only(SEND_PSN, 5));
        bench.sends(&send_only(SEND_PSN, 5));
    }),
    (Rule::State, "a command that is refused in ERR brings RTS back", |bench| {
        bench.enter(QpState::Error);
        bench.answer(CommandStatus::Success);
        bench.enter(QpState::ReadyToReceive);
        bench.answer(CommandStatus::TransitionNotAllowed);
        bench.now_ps += 2 * LINGER_PS;
        bench.sends(&send_only(SEND_PSN, 5));
    }),
    (Rule::Destination, "a frame long after a destroy", |bench| {
        bench.command(CommandOpcode::DestroyQueuePair, NUMBER, Body::Destroy);
        bench.sends(&send_only(SEND_PSN, 5));
        assert_eq!(bench.rules(), []);
        bench.now_ps += 2 * LINGER_PS;
        bench.sends(&send_only(SEND_PSN.add(1), 5));
    }),
    (Rule::Destination, "a frame long after a reset", |bench| {
        bench.monitor.reset();
        bench.now_ps += 200 * LINGER_PS;
        bench.sends(&send_only(SEND_PSN, 5));
        assert_eq!(bench.rules(), [], "it ends what it has begun");
        bench.monitor.end_reset(bench.now_ps);
        bench.now_ps += LINGER_PS / 2;
        bench.sends(&send_only(SEND_PSN.add(1), 5));
        assert_eq!(bench.rules(), []);
        bench.monitor.end_reset(bench.now_ps);
        bench.now_ps += LINGER_PS;
        bench.sends(&send_only(SEND_PSN.add(2), 5));
    }),
    (Rule::Solicited, "SE in a WRITE", |bench| {
        let write = draft(Operation::WriteOnly, SEND_PSN, &[reth(5)], 5).asking();
        bench.sends(&write.with(|packet| packet.bth.solicited = true));
    }),
    (Rule::PayloadLength, "a FIRST below the PMTU", |bench| {
        bench.sends(&draft(Operation::SendFirst, SEND_PSN, &[], PMTU - 4));
    }),
    (Rule::PayloadLength, "an ONLY above the PMTU", |bench| {
        bench.sends(&send_only(SEND_PSN, PMTU + 4));
    }),
    (Rule::PayloadLength, "a LAST without payload", |bench| {
        bench.sends(&draft(Operation::SendFirst, SEND_PSN, &[], PMTU));
        bench.sends(&draft(Operation::SendLast, SEND_PSN.add(1), &[], 0).asking());
    }),
    (Rule::PayloadLength, "an ACK with payload", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&draft(Operation::Acknowledge, RECEIVE_PSN, &[aeth(ACK, 1)], 4));
    }),
    (Rule::RequestPsn, "a READ of three responses takes one PSN", |bench| {
        bench.sends(&draft(Operation::ReadRequest, SEND_PSN, &[reth(2 * PMTU + 1)], 0).asking());
        bench.sends(&send_only(SEND_PSN.add(1), 5));
    }),
    (Rule::RequestPsn, "a request is repeated without a reason", |bench| {
        bench.sends(&send_only(SEND_PSN, 5));
        bench.sends(&send_only(SEND_PSN.add(1), 5));
        bench.sends(&send_only(SEND_PSN, 5));
    }),
    (Rule::RequestPsn, "an ACK is no reason to repeat", |bench| {
        bench.sends(&send_only(SEND_PSN, 5));
        bench.sends(&send_only(SEND_PSN.add(1), 5));
        bench.arrives(ack(SEND_PSN, ACK, 1));
        bench.sends(&send_only(SEND_PSN.add(1), 5));
    }),
    (Rule::RequestPsn, "one NAK lets requests be repeated once", |bench| {
        bench.sends(&send_only(SEND_PSN, 5));
        bench.arrives(ack(SEND_PSN, nak(NakCode::PsnSequenceError), 0));
        bench.sends(&send_only(SEND_PSN, 5));
        assert_eq!(bench.rules(), []);
        bench.sends(&send_only(SEND_PSN, 5));
    }),
    (Rule::RequestPsn, "a NAK 0x62 behind a READ that is not answered lets it be repeated once", |bench| {
        let read = draft(Operation::ReadRequest, SEND_PSN, &[reth(PMTU)], 0).asking();
        bench.sends(&read);
        bench.sends(&send_only(SEND_PSN.add(1), 5));
        bench.arrives(ack(SEND_PSN.add(1), nak(NakCode::RemoteAccessError), 0));
        bench.sends(&read);
        assert_eq!(bench.rules(), []);
        bench.sends(&read);
    }),
    (Rule::RequestPsn, "a NAK 0x62 that passes nothing is no reason to repeat", |bench| {
        bench.sends(&send_only(SEND_PSN, 5));
        bench.sends(&send_only(SEND_PSN.add(1), 5));
        bench.arrives(ack(SEND_PSN.add(1), nak(NakCode::RemoteAccessError), 1));
        bench.sends(&send_only(SEND_PSN.add(1), 5));
    }),
    (Rule::RequestPsn, "one timeout lets requests be repeated once", |bench| {
        bench.sends(&send_only(SEND_PSN, 5));
        bench.now_ps += 2 * 4_096_000;
        bench.sends(&send_only(SEND_PSN, 5));
        assert_eq!(bench.rules(), []);
        bench.sends(&send_only(SEND_PSN, 5));
    }),
    (
        Rule::RequestPsn,
        "a timer runs from the departure of a packet, and again from that of its repetition",
        |bench| {
            // T is 80 us.
            bench.monitor.register(REG_TIMER_UNIT.offset.into(), 10_000);
            bench.sends(&send_only(SEND_PSN, 5));
            bench.now_ps += 80_000_000;
            bench.sends(&send_only(SEND_PSN, 5));
            assert_eq!(bench.rules(), []);
            bench.now_ps += 70_000_000;
            bench.sends(&send_only(SEND_PSN, 5));
        },
    ),
    (Rule::RequestPsn, "a card that has gone on does not go back for a timer that had run out", |bench| {
        bench.sends(&send_only(SEND_PSN, 5));
        bench.now_ps += 2 * 4_096_000 + 1_000_000;
        bench.arrives(ack(SEND_PSN, ACK, 1));
        bench.now_ps += 50_000_000;
        bench.sends(&send_only(SEND_PSN, 5));
        assert_eq!(bench.rules(), [], "it had gone back, and others were before it");
        bench.sends(&send_only(SEND_PSN.add(1), 5));
        bench.now_ps += 2 * 4_096_000 + 1_000_000;
        bench.arrives(ack(SEND_PSN.add(1), ACK, 2));
        bench.now_ps += 30_000_000;
        bench.sends(&send_only(SEND_PSN.add(2), 5));
        bench.sends(&send_only(SEND_PSN.add(1), 5));
        assert_eq!(bench.rules(), [], "a slow host gave what it had begun before it went back");
        bench.sends(&send_only(SEND_PSN.add(2), 5));
        bench.arrives(ack(SEND_PSN.add(2), ACK, 3));
        bench.sends(&send_only(SEND_PSN.add(3), 5));
        bench.now_ps += 2 * 4_096_000 + 1_000_000;
        bench.arrives(ack(SEND_PSN.add(3), ACK, 4));
        bench.now_ps += 70_000_000;
        bench.sends(&send_only(SEND_PSN.add(4), 5));
        assert_eq!(bench.rules(), []);
        bench.sends(&send_only(SEND_PSN.add(3), 5));
    }),
    (Rule::RequestPsn, "an ACK that came before the timer had run out", |bench| {
        bench.sends(&send_only(SEND_PSN, 5));
        bench.now_ps += 2 * 4_096_000 - 1_000_000;
        bench.arrives(ack(SEND_PSN, ACK, 1));
        bench.now_ps += 50_000_000;
        bench.sends(&send_only(SEND_PSN, 5));
    }),
    (Rule::RequestPsn, "an ACK that the card has read starts the timer again", |bench| {
        // T is 80 us.
        bench.monitor.register(REG_TIMER_UNIT.offset.into(), 10_000);
        bench.sends(&send_only(SEND_PSN, 5));
        bench.sends(&send_only(SEND_PSN.add(1), 5));
        bench.now_ps += 79_000_000;
        bench.arrives(ack(SEND_PSN, ACK, 1));
        bench.now_ps += 2_000_000;
        bench.sends(&send_only(SEND_PSN, 5));
        bench.sends(&send_only(SEND_PSN.add(1), 5));
        assert_eq!(bench.rules(), [], "it may not have read it");
        bench.arrives(ack(SEND_PSN.add(1), ACK, 2));
        bench.now_ps += 30_000_000;
        bench.sends(&send_only(SEND_PSN.add(2), 5));
        bench.sends(&send_only(SEND_PSN.add(3), 5));
        bench.now_ps += 79_000_000;
        bench.arrives(ack(SEND_PSN.add(2), ACK, 3));
        bench.now_ps += 30_000_000;
        bench.sends(&send_only(SEND_PSN.add(3), 5));
    }),
    (Rule::RequestPsn, "more than half of the PSNs are unacknowledged", |bench| {
        bench.sends(&draft(Operation::ReadRequest, SEND_PSN, &[reth(1 << 31)], 0).asking());
        assert_eq!(bench.rules(), []);
        bench.sends(&send_only(SEND_PSN.add(1 << 23), 5));
    }),
    (Rule::OpcodeSequence, "a MIDDLE without a FIRST", |bench| {
        bench.sends(&draft(Operation::SendMiddle, SEND_PSN, &[], PMTU));
    }),
    (Rule::OpcodeSequence, "an ONLY inside a message", |bench| {
        bench.sends(&draft(Operation::SendFirst, SEND_PSN, &[], PMTU));
        bench.sends(&send_only(SEND_PSN.add(1), 5));
    }),
    (Rule::OpcodeSequence, "a READ inside a message", |bench| {
        bench.sends(&draft(Operation::SendFirst, SEND_PSN, &[], PMTU));
        bench.sends(&draft(Operation::ReadRequest, SEND_PSN.add(1), &[reth(5)], 0).asking());
    }),
    (Rule::OpcodeSequence, "a SEND ends as a WRITE", |bench| {
        bench.sends(&draft(Operation::SendFirst, SEND_PSN, &[], PMTU));
        bench.sends(&draft(Operation::WriteLast, SEND_PSN.add(1), &[], 5).asking());
    }),
    (Rule::MessageLength, "a WRITE ends short", |bench| {
        bench.sends(&draft(Operation::WriteFirst, SEND_PSN, &[reth(PMTU + 6)], PMTU));
        bench.sends(&draft(Operation::WriteLast, SEND_PSN.add(1), &[], 5).asking());
    }),
    (Rule::MessageLength, "a WRITE goes on after its end", |bench| {
        bench.sends(&draft(Operation::WriteFirst, SEND_PSN, &[reth(2 * PMTU)], PMTU));
        bench.sends(&draft(Operation::WriteMiddle, SEND_PSN.add(1), &[], PMTU));
    }),
    (Rule::MessageLength, "a WRITE_ONLY of another length", |bench| {
        let immediate = ExtendedRepr::Immediate(ImmediateRepr { data: 1 });
        bench.sends(&draft(Operation::WriteOnlyImmediate, SEND_PSN, &[reth(6), immediate], 5).asking());
    }),
    (Rule::MessageLength, "a READ above 2^31", |bench| {
        bench.sends(&draft(Operation::ReadRequest, SEND_PSN, &[reth((1 << 31) + 1)], 0).asking());
    }),
    (Rule::RequestPsn, "a packet is left out, and the host gave all", |bench| {
        bench.sends(&send_only(SEND_PSN, 5));
        bench.sends(&stand_in(SEND_PSN.add(2)));
    }),
    (Rule::RequestPsn, "two packets are left out at once", |bench| {
        (0..2).for_each(|_| bench.monitor.read_failed());
        bench.sends(&stand_in(SEND_PSN.add(2)));
    }),
    (Rule::RequestPsn, "two packets are left out, and one could not be read", |bench| {
        bench.monitor.read_failed();
        bench.sends(&stand_in(SEND_PSN.add(1)));
        assert_eq!(bench.rules(), []);
        bench.sends(&stand_in(SEND_PSN.add(2)));
    }),
    (Rule::RequestPsn, "two queue pairs leave out a packet, and one could not be read", |bench| {
        bench.monitor.read_failed();
        bench.sends(&stand_in(SEND_PSN.add(1)));
        assert_eq!(bench.rules(), []);
        let reth = ExtendedRepr::Reth(RethRepr { virtual_address: 0, remote_key: 0, dma_length: 0 });
        bench.sends(&Draft::new(true, Operation::WriteOnly, SEND_PSN.add(1), &[reth], 0).asking());
    }),
    (Rule::RequestPsn, "what follows a packet that is left out does not ask", |bench| {
        bench.monitor.read_failed();
        bench.sends(&stand_in(SEND_PSN.add(1)).with(|packet| packet.bth.ack_request = false));
    }),
    (Rule::RequestPsn, "what follows a packet that is left out has payload", |bench| {
        bench.monitor.read_failed();
        bench.sends(&draft(Operation::WriteOnly, SEND_PSN.add(1), &[reth(5)], 5).asking());
    }),
    (Rule::RequestPsn, "a SEND follows a packet that is left out", |bench| {
        bench.monitor.read_failed();
        bench.sends(&send_only(SEND_PSN.add(1), 0));
    }),
    (Rule::ReadDepth, "a third READ of two", |bench| {
        bench.sends(&draft(Operation::ReadRequest, SEND_PSN, &[reth(5)], 0).asking());
        bench.sends(&draft(Operation::FetchAdd, SEND_PSN.add(1), &[atomic()], 0).asking());
        assert_eq!(bench.rules(), []);
        bench.sends(&draft(Operation::ReadRequest, SEND_PSN.add(2), &[reth(5)], 0).asking());
    }),
    (Rule::AckRequest, "32 packets of a message without AckReq", |bench| {
        let write = draft(Operation::WriteFirst, SEND_PSN, &[reth(100 * PMTU)], PMTU);
        bench.sends(&write);
        for index in 1..32 {
            assert_eq!(bench.rules(), []);
            bench.sends(&draft(Operation::WriteMiddle, SEND_PSN.add(index), &[], PMTU));
        }
    }),
    (Rule::AckRequest, "24 messages without AckReq", |bench| {
        for index in 0..24 {
            assert_eq!(bench.rules(), []);
            bench.sends(&draft(Operation::SendOnly, SEND_PSN.add(index), &[], 5));
        }
    }),
    (Rule::AckRequest, "AckReq in an ACK", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, ACK, 1).asking());
    }),
    (Rule::ResponsePsn, "an ACK of what was not asked", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 1));
    }),
    (Rule::ResponsePsn, "an ACK behind a gap", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.arrives(send_only(RECEIVE_PSN.add(2), 5));
        bench.sends(&ack(RECEIVE_PSN.add(2), ACK, 1));
    }),
    (Rule::ResponsePsn, "an ACK of a request of another partition", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5).with(|packet| packet.bth.partition_key = 0x8008));
        bench.sends(&ack(RECEIVE_PSN, ACK, 0));
    }),
    (Rule::ResponsePsn, "an ACK of a request of UC", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5).with(|packet| packet.bth.opcode |= 0x20));
        bench.sends(&ack(RECEIVE_PSN, ACK, 0));
    }),
    (Rule::ResponsePsn, "an ACK of a request with a wrong ICRC", |bench| {
        let mut frame = send_only(RECEIVE_PSN, 5).back().bytes();
        *frame.last_mut().unwrap() ^= 1;
        bench.monitor.received(bench.now_ps, &frame, false);
        bench.sends(&ack(RECEIVE_PSN, ACK, 0));
    }),
    (Rule::ResponsePsn, "an ACK passes a READ", |bench| {
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(5)], 0));
        bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
        bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 2));
    }),
    (Rule::ResponsePsn, "the ACK of a duplicate names the READ behind it", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN.add(1), &[reth(5)], 0));
        bench.sends(&draft(Operation::ReadResponseOnly, RECEIVE_PSN.add(1), &[aeth(ACK, 2)], 5));
        bench.arrives(send_only(RECEIVE_PSN, 5));
        assert_eq!(bench.rules(), []);
        bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 2));
    }),
    (Rule::ResponsePsn, "an ACK names a response in the middle of a READ", |bench| {
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(2 * PMTU + 5)], 0));
        bench.sends(&draft(Operation::ReadResponseFirst, RECEIVE_PSN, &[aeth(ACK, 1)], PMTU));
        bench.sends(&draft(Operation::ReadResponseMiddle, RECEIVE_PSN.add(1), &[], PMTU));
        bench.sends(&draft(Operation::ReadResponseLast, RECEIVE_PSN.add(2), &[aeth(ACK, 1)], 5));
        bench.arrives(send_only(RECEIVE_PSN.add(3), 5));
        assert_eq!(bench.rules(), []);
        bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 2));
    }),
    (Rule::ResponsePsn, "an ACK names an atomic, and another one behind it", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        for number in 1..3 {
            bench.arrives(draft(Operation::FetchAdd, RECEIVE_PSN.add(number), &[atomic()], 0));
            bench.sends(&atomic_ack(RECEIVE_PSN.add(number), number + 1));
        }
        assert_eq!(bench.rules(), []);
        bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 3));
        bench.sends(&ack(RECEIVE_PSN.add(2), ACK, 3));
        assert_eq!(bench.rules().len(), 2);
    }),
    (Rule::ResponsePsn, "an ACK goes back", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
        bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 2));
        assert_eq!(bench.rules(), []);
        bench.sends(&ack(RECEIVE_PSN, ACK, 2));
    }),
    (Rule::ResponsePsn, "a NAK passes a READ", |bench| {
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(PMTU + 5)], 0));
        bench.sends(&draft(Operation::ReadResponseFirst, RECEIVE_PSN, &[aeth(ACK, 1)], PMTU));
        assert_eq!(bench.rules(), []);
        bench.sends(&ack(RECEIVE_PSN.add(2), nak(NakCode::PsnSequenceError), 1));
    }),
    (Rule::ResponsePsn, "a NAK of what was not asked", |bench| {
        bench.sends(&ack(RECEIVE_PSN, nak(NakCode::InvalidRequest), 0));
    }),
    (Rule::ResponsePsn, "NAK 0x60 without a gap", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN.add(1), nak(NakCode::PsnSequenceError), 1));
    }),
    (Rule::ResponsePsn, "NAK 0x60 of the newest request", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, nak(NakCode::PsnSequenceError), 0));
    }),
    (Rule::ResponsePsn, "a gap is refused twice", |bench| {
        for psn in [1, 2] {
            assert_eq!(bench.rules(), []);
            bench.arrives(send_only(RECEIVE_PSN.add(psn), 5));
            bench.sends(&ack(RECEIVE_PSN, nak(NakCode::PsnSequenceError), 0));
        }
    }),
    (Rule::ResponsePsn, "an ACK of what an RNR NAK has refused", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, 0x20 | RNR_TIMER, 0));
        assert_eq!(bench.rules(), []);
        bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
        bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 0));
    }),
    (Rule::ResponsePsn, "an RNR NAK of what was acknowledged", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, ACK, 1));
        assert_eq!(bench.rules(), []);
        bench.sends(&ack(RECEIVE_PSN, 0x20 | RNR_TIMER, 1));
    }),
    (Rule::ResponsePsn, "a NAK of what was acknowledged", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, ACK, 1));
        assert_eq!(bench.rules(), []);
        bench.sends(&ack(RECEIVE_PSN, nak(NakCode::RemoteOperationalError), 1));
    }),
    (Rule::ResponsePsn, "a READ in the place of a WRITE is answered", |bench| {
        bench.arrives(draft(Operation::WriteOnly, RECEIVE_PSN, &[reth(5)], 5));
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(5)], 0));
        bench.sends(&draft(Operation::ReadResponseOnly, RECEIVE_PSN, &[aeth(ACK, 1)], 5));
    }),
    (Rule::ResponsePsn, "a READ that is repeated beyond its end is answered", |bench| {
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(5)], 0));
        bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
        bench.sends(&draft(Operation::ReadResponseOnly, RECEIVE_PSN, &[aeth(ACK, 1)], 5));
        assert_eq!(bench.rules(), []);
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(PMTU + 5)], 0));
        bench.sends(&draft(Operation::ReadResponseFirst, RECEIVE_PSN, &[aeth(ACK, 2)], PMTU));
    }),
    (Rule::ResponsePsn, "a READ is answered from its second response on", |bench| {
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(PMTU + 5)], 0));
        bench.sends(&draft(Operation::ReadResponseLast, RECEIVE_PSN.add(1), &[aeth(ACK, 1)], 5));
    }),
    (Rule::ResponsePsn, "a READ is answered twice", |bench| {
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(5)], 0));
        bench.sends(&draft(Operation::ReadResponseOnly, RECEIVE_PSN, &[aeth(ACK, 1)], 5));
        assert_eq!(bench.rules(), []);
        bench.sends(&draft(Operation::ReadResponseOnly, RECEIVE_PSN, &[aeth(ACK, 1)], 5));
    }),
    (Rule::ResponsePsn, "an atomic is answered as a READ", |bench| {
        bench.arrives(draft(Operation::FetchAdd, RECEIVE_PSN, &[atomic()], 0));
        bench.sends(&draft(Operation::ReadResponseOnly, RECEIVE_PSN, &[aeth(ACK, 1)], 8));
    }),
    (Rule::ReadResponse, "FIRST in place of ONLY", |bench| {
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(PMTU)], 0));
        bench.sends(&draft(Operation::ReadResponseFirst, RECEIVE_PSN, &[aeth(ACK, 1)], PMTU));
    }),
    (Rule::ReadResponse, "a byte too much", |bench| {
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(5)], 0));
        bench.sends(&draft(Operation::ReadResponseOnly, RECEIVE_PSN, &[aeth(ACK, 1)], 6));
    }),
    (Rule::Syndrome, "a credit count", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, 0x05, 1));
    }),
    (Rule::Syndrome, "another RNR timer", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, 0x20 | (RNR_TIMER + 1), 0));
    }),
    (Rule::Syndrome, "a reserved NAK", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, 0x65, 0));
    }),
    (Rule::Syndrome, "a NAK of RD", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, 0x64, 0));
    }),
    (Rule::Syndrome, "a READ response with credits", |bench| {
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(5)], 0));
        bench.sends(&draft(Operation::ReadResponseOnly, RECEIVE_PSN, &[aeth(0, 1)], 5));
    }),
    (Rule::Msn, "an ACK counts a message too few", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, ACK, 0));
    }),
    (Rule::Msn, "an ACK counts a message too many", |bench| {
        bench.arrives(draft(Operation::SendFirst, RECEIVE_PSN, &[], PMTU).asking());
        bench.sends(&ack(RECEIVE_PSN, ACK, 1));
    }),
    (Rule::Msn, "a READ response does not count the READ", |bench| {
        bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(5)], 0));
        bench.sends(&draft(Operation::ReadResponseOnly, RECEIVE_PSN, &[aeth(ACK, 0)], 5));
    }),
    (Rule::Msn, "a NAK counts more than arrived", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&ack(RECEIVE_PSN, nak(NakCode::RemoteOperationalError), 2));
    }),
    (Rule::Msn, "an ACK counts a message that an RNR NAK has refused", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
        bench.sends(&ack(RECEIVE_PSN.add(1), 0x20 | RNR_TIMER, 1));
        assert_eq!(bench.rules(), []);
        bench.sends(&ack(RECEIVE_PSN, ACK, 2));
    }),
    (Rule::Congestion, "a CNP without a marked packet", |bench| {
        bench.arrives(send_only(RECEIVE_PSN, 5));
        bench.sends(&cnp(0));
    }),
    (Rule::Congestion, "two CNPs for one marked packet", |bench| {
        bench.arrives(marked(RECEIVE_PSN));
        bench.sends(&cnp(0));
        assert_eq!(bench.rules(), []);
        bench.sends(&cnp(0));
    }),
    (Rule::Congestion, "a CNP with reserved bytes", |bench| {
        bench.arrives(marked(RECEIVE_PSN));
        bench.sends(&cnp(1));
    }),
    (Rule::Congestion, "a CNP with a PSN", |bench| {
        bench.arrives(marked(RECEIVE_PSN));
        bench.sends(&cnp(0).with(|packet| packet.bth.psn = SEND_PSN));
    }),
    (Rule::MigReq, "MigReq in a CNP", |bench| {
        bench.arrives(marked(RECEIVE_PSN));
        bench.sends(&cnp(0).with(|packet| packet.bth.migrated = true));
    }),
    (Rule::Reserved, "a CNP without BECN", |bench| {
        bench.arrives(marked(RECEIVE_PSN));
        bench.sends(&cnp(0).with(|packet| packet.bth.backward_congestion = false));
    }),
];

/// The rules that a case breaks are the one that it is for.
fn expect(bench: &Bench, rule: Rule, what: &str) {
    let found = bench.rules();
    assert!(!found.is_empty(), "{what}: {rule:?} is not found");
    assert!(found.iter().all(|one| *one == rule), "{what}: {rule:?} is broken, found are {:?}", bench.found);
    for finding in &bench.found {
        let text = finding.to_string();
        assert!(text.contains(&format!("{rule:?}")) && text.contains('\n'), "{text}");
    }
}

#[test]
fn each_planted_fault_is_found_and_each_rule_has_one() {
    let mut planted = BTreeSet::new();
    for (place, (rule, is_ipv6, change)) in IN_A_FRAME.iter().enumerate() {
        let mut bench = Bench::new();
        bench.sends(&Draft::new(*is_ipv6, Operation::SendOnly, SEND_PSN, &[], 5).asking().with(change));
        expect(&bench, *rule, &format!("fault {place} in a frame"));
        planted.insert(*rule);
    }
    for (place, (rule, change)) in IN_BYTES.iter().enumerate() {
        let mut bench = Bench::new();
        let mut frame = send_only(SEND_PSN, 5).bytes();
        change(&mut frame);
        bench.sends_bytes(&frame);
        expect(&bench, *rule, &format!("fault {place} in bytes"));
        planted.insert(*rule);
    }
    for (rule, what, run) in IN_SEQUENCE.iter().chain(refused::FAULTS) {
        let mut bench = Bench::new();
        run(&mut bench);
        expect(&bench, *rule, what);
        planted.insert(*rule);
    }
    let without: Vec<&Rule> = Rule::ALL.iter().filter(|rule| !planted.contains(rule)).collect();
    assert!(without.is_empty(), "no fault is planted for {without:?}");
}

/// Trace A of protocol 3.12 at PMTU 256, as the card's own requests, on both queue pairs.
#[test]
fn a_requester_without_loss_breaks_no_rule() {
    for is_ipv6 in [false, true] {
        let mut bench = Bench::new();
        let psn = |count| SEND_PSN.add(count);
        let draft = |operation, psn, headers: &[ExtendedRepr], bytes| {
            Draft::new(is_ipv6, operation, psn, headers, bytes)
        };
        let frames = [
            draft(Operation::WriteFirst, psn(0), &[reth(2 * PMTU + 7)], PMTU),
            draft(Operation::WriteMiddle, psn(1), &[], PMTU),
            draft(Operation::WriteLast, psn(2), &[], 7).asking(),
            draft(Operation::ReadRequest, psn(3), &[reth(2 * PMTU + 1)], 0),
            draft(Operation::SendOnly, psn(6), &[], 0).with(|packet| packet.bth.solicited = true),
            draft(Operation::FetchAdd, psn(7), &[atomic()], 0),
            draft(Operation::SendFirst, psn(8), &[], PMTU),
            draft(
                Operation::SendLastImmediate,
                psn(9),
                &[ExtendedRepr::Immediate(ImmediateRepr { data: 1 })],
                2,
            ),
        ];
        frames.iter().for_each(|frame| bench.sends(frame));
        assert_eq!(bench.found, []);
    }
}

/// The same trace as requests of the peer.
#[test]
fn a_responder_without_loss_breaks_no_rule() {
    let mut bench = Bench::new();
    let psn = |count| RECEIVE_PSN.add(count);
    bench.arrives(draft(Operation::WriteFirst, psn(0), &[reth(PMTU + 7)], PMTU));
    bench.arrives(draft(Operation::WriteLast, psn(1), &[], 7).asking());
    bench.sends(&ack(psn(1), ACK, 1));
    bench.arrives(draft(Operation::ReadRequest, psn(2), &[reth(2 * PMTU + 1)], 0));
    bench.arrives(send_only(psn(5), 3));
    bench.arrives(draft(Operation::FetchAdd, psn(6), &[atomic()], 0));
    bench.sends(&draft(Operation::ReadResponseFirst, psn(2), &[aeth(ACK, 2)], PMTU));
    // The MSN may count what was executed since (protocol 3.7).
    bench.sends(&draft(Operation::ReadResponseMiddle, psn(3), &[], PMTU));
    bench.sends(&draft(Operation::ReadResponseLast, psn(4), &[aeth(ACK, 4)], 1));
    bench.sends(&ack(psn(5), ACK, 3));
    bench.sends(&atomic_ack(psn(6), 4));
    assert_eq!(bench.found, []);
    // A gap, an RNR NAK, and the READ and the atomic once more.
    bench.arrives(send_only(psn(8), 3));
    bench.sends(&ack(psn(7), nak(NakCode::PsnSequenceError), 4));
    bench.arrives(send_only(psn(7), 3));
    bench.sends(&ack(psn(7), 0x20 | RNR_TIMER, 4));
    bench.arrives(draft(Operation::ReadRequest, psn(3), &[reth(PMTU + 1)], 0));
    bench.arrives(draft(Operation::FetchAdd, psn(6), &[atomic()], 0));
    bench.sends(&draft(Operation::ReadResponseFirst, psn(3), &[aeth(ACK, 4)], PMTU));
    bench.sends(&draft(Operation::ReadResponseLast, psn(4), &[aeth(ACK, 4)], 1));
    bench.sends(&atomic_ack(psn(6), 4));
    bench.arrives(send_only(psn(7), 3));
    bench.sends(&ack(psn(7), ACK, 5));
    assert_eq!(bench.found, []);
}

/// A way to learn that requests were lost.
type Reason = fn(&mut Bench);

#[test]
fn requests_are_repeated_after_a_nak_a_fault_a_lost_response_or_a_timeout() {
    let reasons: [(&str, Reason); 6] = [
        ("NAK 0x60", |bench| bench.arrives(ack(SEND_PSN, nak(NakCode::PsnSequenceError), 0))),
        ("RNR NAK", |bench| bench.arrives(ack(SEND_PSN, 0x2c, 0))),
        ("a fault of the wire", |bench| bench.monitor.fault()),
        ("an ACK that passes a READ", |bench| bench.arrives(ack(SEND_PSN.add(1), ACK, 2))),
        ("a READ response too late", |bench| {
            bench.arrives(draft(Operation::ReadResponseLast, SEND_PSN.add(2), &[aeth(ACK, 2)], 5));
        }),
        ("timeout", |bench| bench.now_ps += 2 * 4_096_000),
    ];
    for (what, reason) in reasons {
        let mut bench = Bench::new();
        let read = || draft(Operation::ReadRequest, SEND_PSN.add(1), &[reth(PMTU + 5)], 0).asking();
        bench.sends(&send_only(SEND_PSN, 5));
        bench.sends(&read());
        bench.sends(&draft(Operation::SendFirst, SEND_PSN.add(3), &[], PMTU));
        bench.sends(&draft(Operation::SendLast, SEND_PSN.add(4), &[], 5).asking());
        reason(&mut bench);
        bench.sends(&read());
        bench.sends(&draft(Operation::SendFirst, SEND_PSN.add(3), &[], PMTU));
        bench.sends(&draft(Operation::SendLast, SEND_PSN.add(4), &[], 5).asking());
        bench.sends(&send_only(SEND_PSN.add(5), 5));
        assert_eq!(bench.found, [], "{what}");
    }
}

/// A card that goes back twice leaves out what is acknowledged by then. So it may go on with the next PSN, and count the packets
/// of the message from another one.
#[test]
fn the_second_going_back_may_not_show_in_the_psns() {
    let mut bench = Bench::new();
    let send = |bench: &mut Bench, indices: Range<u32>, asking: u32| {
        for index in indices {
            let packet = match index {
                0 => draft(Operation::WriteFirst, SEND_PSN, &[reth(64 * PMTU)], PMTU),
                63 => draft(Operation::WriteLast, SEND_PSN.add(63), &[], PMTU),
                _ => draft(Operation::WriteMiddle, SEND_PSN.add(index), &[], PMTU),
            };
            bench.sends(&if index % 32 == asking || index == 63 { packet.asking() } else { packet });
        }
    };
    send(&mut bench, 0..64, 31);
    bench.now_ps += 2 * 4_096_000;
    send(&mut bench, 0..20, 31);
    bench.arrives(ack(SEND_PSN.add(19), ACK, 0));
    send(&mut bench, 20..64, 3);
    assert_eq!(bench.found, []);
    // The next message is counted from its first packet.
    for index in 64..96 {
        let (operation, headers) = match index {
            64 => (Operation::WriteFirst, vec![reth(64 * PMTU)]),
            _ => (Operation::WriteMiddle, vec![]),
        };
        assert_eq!(bench.rules(), []);
        bench.sends(&draft(operation, SEND_PSN.add(index), &headers, PMTU));
    }
    assert_eq!(bench.rules(), [Rule::AckRequest]);
}

/// Payload that could not be read: what was issued behind it may follow, and its own payload may be missing as well.
#[test]
fn a_packet_is_left_out_when_its_payload_could_not_be_read() {
    let mut bench = Bench::new();
    bench.sends(&send_only(SEND_PSN, 5));
    bench.sends(&draft(Operation::SendFirst, SEND_PSN.add(1), &[], PMTU));
    (0..2).for_each(|_| bench.monitor.read_failed());
    bench.sends(&stand_in(SEND_PSN.add(3)));
    bench.sends(&stand_in(SEND_PSN.add(4)));
    bench.sends(&draft(Operation::SendLast, SEND_PSN.add(4), &[], 5).asking());
    bench.arrives(ack(SEND_PSN.add(2), nak(NakCode::PsnSequenceError), 1));
    assert_eq!(bench.found, []);
    // A READ behind it may follow, too; it is outstanding.
    bench.sends(&draft(Operation::ReadRequest, SEND_PSN.add(5), &[reth(PMTU + 5)], 0).asking());
    bench.sends(&send_only(SEND_PSN.add(7), 5));
    assert_eq!(bench.found, []);
}

#[test]
fn a_refused_command_changes_nothing_and_a_posted_one_counts_at_once() {
    let mut bench = Bench::new();
    bench.enter(QpState::Error);
    bench.answer(CommandStatus::TransitionNotAllowed);
    bench.now_ps += 2 * LINGER_PS;
    bench.sends(&send_only(SEND_PSN, 5));
    assert_eq!(bench.found, [], "the queue pair is still in RTS");
    // Connected anew: the first response may leave before the answer is there.
    bench.enter(QpState::Reset);
    bench.answer(CommandStatus::Success);
    bench.now_ps += 2 * LINGER_PS;
    bench.connect(NUMBER, PEER, 7);
    bench.post(CommandOpcode::CreateQueuePair, 0x55, Body::CreateQueuePair(CreateQueuePair::at_reset()));
    bench.answer(CommandStatus::NumberOutOfRange);
    bench.sends(&send_only(SEND_PSN, 5));
    assert_eq!(bench.found, [], "PSNs begin anew");
}

/// The card goes on sending while a command for the queue pair is being refused.
#[test]
fn a_refused_command_keeps_what_has_crossed_the_port_since() {
    let mut bench = Bench::new();
    bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(5)], 0));
    let body = ModifyQueuePair { mask: AttributeMask::MIN_RNR_TIMER.0, ..ModifyQueuePair::at_reset() };
    bench.post(CommandOpcode::ModifyQueuePair, NUMBER, Body::ModifyQueuePair(body));
    bench.sends(&send_only(SEND_PSN, 5));
    bench.sends(&draft(Operation::ReadResponseOnly, RECEIVE_PSN, &[aeth(ACK, 1)], 5));
    bench.answer(CommandStatus::TransitionNotAllowed);
    bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
    bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 2));
    bench.sends(&send_only(SEND_PSN.add(1), 5));
    bench.arrives(send_only(RECEIVE_PSN.add(2), 5));
    bench.sends(&ack(RECEIVE_PSN.add(2), 0x20 | RNR_TIMER, 2));
    assert_eq!(bench.found, []);
}

/// A request that arrives again before the NAK of the first attempt leaves may be executed.
#[test]
fn a_nak_may_leave_after_its_request_has_arrived_again() {
    let mut bench = Bench::new();
    (0..2).for_each(|_| bench.arrives(send_only(RECEIVE_PSN, 5)));
    bench.sends(&ack(RECEIVE_PSN, 0x20 | RNR_TIMER, 0));
    bench.sends(&ack(RECEIVE_PSN, ACK, 1));
    bench.arrives(send_only(RECEIVE_PSN.add(2), 5));
    bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
    bench.sends(&ack(RECEIVE_PSN.add(1), nak(NakCode::PsnSequenceError), 1));
    bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 2));
    assert_eq!(bench.found, []);
}

/// What arrives in the place of the refused request may be another one, and what follows it may be executed as well.
#[test]
fn another_request_may_be_executed_in_the_place_of_a_refused_one() {
    let mut bench = Bench::new();
    bench.arrives(send_only(RECEIVE_PSN, 5));
    bench.arrives(draft(Operation::FetchAdd, RECEIVE_PSN, &[atomic()], 0));
    bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
    bench.sends(&ack(RECEIVE_PSN, 0x20 | RNR_TIMER, 0));
    bench.sends(&atomic_ack(RECEIVE_PSN, 1));
    bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 2));
    assert_eq!(bench.found, []);
    // A request of the same PSN that had arrived behind a gap is not the one that was refused.
    let mut bench = Bench::new();
    bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
    bench.arrives(send_only(RECEIVE_PSN, 5));
    bench.sends(&ack(RECEIVE_PSN, ACK, 1));
    bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
    bench.arrives(draft(Operation::FetchAdd, RECEIVE_PSN.add(1), &[atomic()], 0));
    bench.sends(&ack(RECEIVE_PSN.add(1), 0x20 | RNR_TIMER, 1));
    bench.sends(&atomic_ack(RECEIVE_PSN.add(1), 2));
    assert_eq!(bench.found, []);
    // But not what arrived before it.
    let mut bench = Bench::new();
    bench.arrives(draft(Operation::FetchAdd, RECEIVE_PSN, &[atomic()], 0));
    bench.arrives(send_only(RECEIVE_PSN, 5));
    bench.sends(&ack(RECEIVE_PSN, 0x20 | RNR_TIMER, 0));
    bench.sends(&atomic_ack(RECEIVE_PSN, 1));
    assert_eq!(bench.rules(), [Rule::ResponsePsn]);
}

/// The RNR NAK of a refused request need not leave: the ACK of what has arrived in its place is newer.
#[test]
fn a_nak_may_be_overtaken_by_the_ack_of_what_arrives_in_the_place_of_the_refused_request() {
    let first = || draft(Operation::SendFirst, RECEIVE_PSN, &[], PMTU);
    let fetch_add = |psn| draft(Operation::FetchAdd, psn, &[atomic()], 0);
    let mut bench = Bench::new();
    bench.arrives(first());
    bench.arrives(draft(Operation::WriteOnly, RECEIVE_PSN, &[reth(5)], 5).asking());
    bench.arrives(fetch_add(RECEIVE_PSN.add(1)));
    bench.sends(&ack(RECEIVE_PSN, ACK, 1));
    bench.sends(&atomic_ack(RECEIVE_PSN.add(1), 2));
    assert_eq!(bench.found, []);
    // The other way: what was executed does not end a message, or has more responses. What follows a refused one was not executed.
    let mut bench = Bench::new();
    bench.arrives(send_only(RECEIVE_PSN, 5));
    bench.arrives(fetch_add(RECEIVE_PSN.add(1)));
    bench.arrives(first().asking());
    bench.arrives(draft(Operation::SendLast, RECEIVE_PSN.add(1), &[], 5).asking());
    bench.sends(&ack(RECEIVE_PSN, ACK, 0));
    bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 1));
    assert_eq!(bench.found, []);
    let mut bench = Bench::new();
    bench.arrives(send_only(RECEIVE_PSN, 5));
    bench.arrives(draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(PMTU + 5)], 0));
    bench.arrives(fetch_add(RECEIVE_PSN.add(2)));
    bench.sends(&draft(Operation::ReadResponseFirst, RECEIVE_PSN, &[aeth(ACK, 1)], PMTU));
    bench.sends(&draft(Operation::ReadResponseLast, RECEIVE_PSN.add(1), &[aeth(ACK, 1)], 5));
    bench.sends(&atomic_ack(RECEIVE_PSN.add(2), 2));
    assert_eq!(bench.found, []);
    // Once all is acknowledged, the MSN is known again.
    for (msn, rules) in [(1, vec![Rule::Msn]), (2, vec![]), (3, vec![Rule::Msn])] {
        let mut bench = Bench::new();
        bench.arrives(first());
        bench.arrives(draft(Operation::WriteOnly, RECEIVE_PSN, &[reth(5)], 5).asking());
        bench.sends(&ack(RECEIVE_PSN, ACK, 1));
        bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
        bench.sends(&ack(RECEIVE_PSN.add(1), ACK, msn));
        assert_eq!(bench.rules(), rules, "MSN {msn}: {:?}", bench.found);
    }
    // What was acknowledged was executed.
    let mut bench = Bench::new();
    bench.arrives(send_only(RECEIVE_PSN, 5));
    bench.sends(&ack(RECEIVE_PSN, ACK, 1));
    bench.arrives(fetch_add(RECEIVE_PSN));
    assert_eq!(bench.rules(), []);
    bench.sends(&atomic_ack(RECEIVE_PSN, 2));
    assert!(bench.rules().contains(&Rule::ResponsePsn), "{:?}", bench.found);
}

/// Protocol 3.4: answers to duplicates begin anew with a FIRST, where the answer to the READ itself goes on with a MIDDLE, or where
/// that to an earlier duplicate was left.
#[test]
fn a_read_that_is_asked_again_is_answered_again_from_there() {
    let read =
        |psn, packets| draft(Operation::ReadRequest, RECEIVE_PSN.add(psn), &[reth(packets * PMTU + 5)], 0);
    let response = |operation, psn, bytes| {
        let headers = [aeth(ACK, 1)];
        let count = usize::from(operation != Operation::ReadResponseMiddle);
        draft(operation, RECEIVE_PSN.add(psn), &headers[..count], bytes)
    };
    let (first, middle, last) =
        (Operation::ReadResponseFirst, Operation::ReadResponseMiddle, Operation::ReadResponseLast);
    let mut bench = Bench::new();
    bench.arrives(read(0, 3));
    bench.sends(&response(first, 0, PMTU));
    // The peer goes back to 1, where the answer has come to, and then to 2.
    bench.arrives(read(1, 2));
    bench.sends(&response(first, 1, PMTU));
    bench.arrives(read(2, 1));
    bench.sends(&response(first, 2, PMTU));
    bench.sends(&response(last, 3, 5));
    bench.sends(&response(middle, 1, PMTU));
    bench.sends(&response(middle, 2, PMTU));
    bench.sends(&response(last, 3, 5));
    assert_eq!(bench.found, []);
    bench.sends(&response(middle, 1, PMTU));
    assert_eq!(bench.rules(), [Rule::ResponsePsn]);
}

/// The end of a READ of 2 GiB at a PMTU of 256 is so far away that what precedes the READ seems to come after it.
#[test]
fn what_precedes_a_read_of_half_of_all_psns_is_answered() {
    let read = || draft(Operation::ReadRequest, RECEIVE_PSN.add(2), &[reth(1 << 31)], 0).asking();
    let refusal = || ack(RECEIVE_PSN.add(2), nak(NakCode::RemoteAccessError), 2);
    let mut bench = Bench::new();
    bench.arrives(send_only(RECEIVE_PSN, 5));
    bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
    bench.arrives(read());
    // The second SEND comes again, since its ACK takes long.
    bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
    bench.sends(&ack(RECEIVE_PSN, ACK, 1));
    bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 2));
    bench.sends(&refusal());
    assert_eq!(bench.found, []);
    // Or it is refused, and comes again with the READ.
    let mut bench = Bench::new();
    bench.arrives(send_only(RECEIVE_PSN, 5));
    bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
    bench.arrives(read());
    bench.sends(&ack(RECEIVE_PSN.add(1), 0x20 | RNR_TIMER, 1));
    bench.arrives(send_only(RECEIVE_PSN.add(1), 5));
    bench.arrives(read());
    bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 2));
    bench.sends(&refusal());
    assert_eq!(bench.found, []);
    // What has not come is not answered all the same.
    let mut bench = Bench::new();
    bench.arrives(send_only(RECEIVE_PSN, 5));
    bench.sends(&ack(RECEIVE_PSN.add(1), ACK, 2));
    assert_eq!(bench.rules()[0], Rule::ResponsePsn);
}

/// What is as far ahead as a PSN can be, or was never sent, is not taken for what precedes a READ that waits for its response.
#[test]
fn what_is_far_ahead_does_not_precede_an_open_read() {
    let far = RECEIVE_PSN.add(1).add((1 << 23) - 1);
    let read = || draft(Operation::ReadRequest, RECEIVE_PSN, &[reth(5)], 0).asking();
    let mut bench = Bench::new();
    bench.arrives(read());
    bench.arrives(send_only(far, 5));
    bench.sends(&draft(Operation::ReadResponseOnly, RECEIVE_PSN, &[aeth(ACK, 1)], 5));
    bench.sends(&ack(RECEIVE_PSN.add(1), nak(NakCode::PsnSequenceError), 1));
    assert_eq!(bench.found, []);
    let mut bench = Bench::new();
    bench.arrives(read());
    bench.sends(&ack(far, ACK, 1));
    assert_eq!(bench.rules(), [Rule::ResponsePsn]);
}

/// A wire that holds answers up lets a peer ask again many times: the answer that is on its way goes on all the same.
#[test]
fn an_answer_goes_on_however_often_its_read_is_asked_again() {
    let read =
        |psn, packets| draft(Operation::ReadRequest, RECEIVE_PSN.add(psn), &[reth(packets * PMTU + 5)], 0);
    let mut bench = Bench::new();
    bench.arrives(read(0, 2));
    let answer = |bench: &mut Bench| {
        bench.sends(&draft(Operation::ReadResponseFirst, RECEIVE_PSN, &[aeth(ACK, 1)], PMTU));
        for number in 0..320 {
            bench.arrives(read(number % 3, 2 - number as usize % 3));
        }
        bench.sends(&draft(Operation::ReadResponseMiddle, RECEIVE_PSN.add(1), &[], PMTU));
        bench.sends(&draft(Operation::ReadResponseLast, RECEIVE_PSN.add(2), &[aeth(ACK, 1)], 5));
    };
    answer(&mut bench);
    answer(&mut bench);
    assert_eq!(bench.found, []);
}

/// Two queue pairs with the same peer: each packet is of the one whose PSNs it continues.
#[test]
fn queue_pairs_with_one_peer_are_told_apart_by_their_packets() {
    let mut bench = Bench::new();
    let create = CreateQueuePair { service: Service::ReliableConnected, ..CreateQueuePair::at_reset() };
    bench.command(CommandOpcode::CreateQueuePair, 0x14, Body::CreateQueuePair(create));
    bench.connect(0x14, PEER, 7);
    bench.now_ps += 2 * LINGER_PS;
    for psn in [0, 1, 0, 2, 1, 3] {
        bench.sends(&send_only(SEND_PSN.add(psn), 5));
    }
    assert_eq!(bench.found, []);
    bench.sends(&send_only(SEND_PSN.add(1), 5));
    assert_eq!(bench.rules(), [Rule::RequestPsn]);
}

#[test]
fn the_builder_of_these_tests_makes_frames_that_a_card_accepts() {
    let filter = Filter { own_mac: MacAddress(OWN_MAC), promiscuous: false, accept_multicast: false };
    for is_ipv6 in [false, true] {
        let frame = Draft::new(is_ipv6, Operation::SendOnly, SEND_PSN, &[], 5).back().bytes();
        let packet = classify(&frame, false, &filter).unwrap();
        assert_eq!(packet.payload.len(), 5);
        assert_eq!(frame.len(), packet.buffer_len().max(60));
        assert!(icrc::agrees(&frame[packet.ethernet.buffer_len()..packet.buffer_len()]));
    }
}
