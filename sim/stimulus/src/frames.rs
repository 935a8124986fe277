//! Random frames: valid ones, and ones with each fault that the packet path must detect (protocol 8.3).
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_layout::limits::FRAME_BYTES_MAX;
use rnic_layout::opcode::{self, OPCODES};
use rnic_layout::psn::Psn;
use rnic_layout::wire::{
    BthRepr, EthernetRepr, Extended, IpRepr, Ipv4Repr, Ipv6Repr, MacAddress, PacketRepr, UdpRepr, VlanTag,
    ethernet, icrc,
};

/// MAC address of the card under test.
pub const OWN_MAC: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 0x01]);
/// Longest payload that a packet may carry.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// Draws a packet that the card accepts: any opcode that it passes on, IPv4 or IPv6, with a VLAN tag or without, and
/// 0 to 4096 bytes of payload, which is put into `payload`.
pub fn random_packet<'a>(random: &mut impl Rng, payload: &'a mut Vec<u8>) -> PacketRepr<'a> {
    let code = random_opcode(random);
    payload.resize(random_length(random), 0);
    random.fill(payload.as_mut_slice());
    let extended_bytes = usize::from(opcode::EXTENDED_BYTES[usize::from(code)]);
    let mut chain = [0; 28];
    random.fill(&mut chain[..extended_bytes]);
    let bth = BthRepr {
        solicited: random.random(),
        migrated: random.random(),
        partition_key: random.random(),
        forward_congestion: random.random(),
        backward_congestion: random.random(),
        ack_request: random.random(),
        ..BthRepr::new(code, random.random_range(1..1 << 24), random_psn(random))
    };
    let is_ipv6 = random.random();
    let packet = PacketRepr {
        ethernet: EthernetRepr {
            destination: OWN_MAC,
            source: random_unicast_mac(random),
            vlan: random.random_bool(0.3).then(|| VlanTag::from_control(random.random())),
            ethertype: if is_ipv6 { ethernet::ETHERTYPE_IPV6 } else { ethernet::ETHERTYPE_IPV4 },
        },
        ip: if is_ipv6 { IpRepr::V6(random_ipv6(random)) } else { IpRepr::V4(random_ipv4(random)) },
        udp: UdpRepr { source_port: random.random(), checksum: 0 },
        bth,
        extended: Extended::parse(code, &chain).expect("the chain is as long as the opcode's"),
        payload,
        pad: [0; 3],
    };
    packet.canonical()
}

fn random_psn(random: &mut impl Rng) -> Psn {
    Psn::wrapping(random.random())
}

/// Draws an opcode that the card passes on, including RC opcodes that are unassigned.
fn random_opcode(random: &mut impl Rng) -> u8 {
    if random.random_bool(0.02) {
        return *[0x15, 0x18, 0x1b, 0x1f].choose(random).expect("the list is not empty");
    }
    OPCODES.choose(random).expect("the table is not empty").code
}

/// Draws a length: short, near a datapath width, or any.
fn random_length(random: &mut impl Rng) -> usize {
    match random.random_range(0..10) {
        0 | 1 => random.random_range(0..16),
        2..=5 => random.random_range(0..200),
        6 => [64, 128, 256, 512, 1024, 2048][random.random_range(0..6)] + random.random_range(0..3) - 1,
        7 => PAYLOAD_BYTES_MAX - random.random_range(0..4),
        _ => random.random_range(0..=PAYLOAD_BYTES_MAX),
    }
}

fn random_unicast_mac(random: &mut impl Rng) -> MacAddress {
    let mut mac: [u8; 6] = random.random();
    mac[0] &= !1;
    MacAddress(mac)
}

fn random_ipv4(random: &mut impl Rng) -> Ipv4Repr {
    Ipv4Repr {
        traffic_class: random.random(),
        identification: random.random(),
        reserved_flag: false,
        dont_fragment: true,
        hop_limit: random.random(),
        source: random.random::<u32>().into(),
        destination: random.random::<u32>().into(),
    }
}

fn random_ipv6(random: &mut impl Rng) -> Ipv6Repr {
    Ipv6Repr {
        traffic_class: random.random(),
        flow_label: random.random_range(0..1 << 20),
        hop_limit: random.random(),
        source: random.random::<u128>().into(),
        destination: random.random::<u128>().into(),
    }
}

/// Returns the bytes of a packet's frame, without FCS.
pub fn frame_of(packet: &PacketRepr) -> Vec<u8> {
    let mut frame = vec![0; packet.buffer_len()];
    let length = packet.emit(&mut frame).expect("a drawn packet can be written");
    frame.truncate(length);
    frame
}

/// A frame with the MAC's error flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnFrame {
    /// From the destination address on, without FCS.
    pub bytes: Vec<u8>,
    /// The MAC marks the frame as bad (`tuser`).
    pub mac_error: bool,
}

/// Draws a frame. Three in four are valid; the others were changed in one place, which leaves some of them valid.
pub fn random_frame(random: &mut impl Rng) -> DrawnFrame {
    let mut payload = Vec::new();
    let packet = random_packet(random, &mut payload);
    let mut frame = DrawnFrame { bytes: frame_of(&packet), mac_error: false };
    if random.random_bool(0.25) {
        break_somehow(random, &mut frame);
    }
    frame
}

/// Offsets of the headers of a valid frame.
struct Places {
    ip: usize,
    is_ipv6: bool,
    udp: usize,
    bth: usize,
}

fn places(frame: &[u8]) -> Places {
    let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let is_ipv6 = frame[ip] >> 4 == 6;
    let udp = ip + if is_ipv6 { 40 } else { 20 };
    Places { ip, is_ipv6, udp, bth: udp + 8 }
}

/// Changes one thing in a frame. The IPv4 checksum and the ICRC, which are checked earlier than most faults, are corrected most
/// of the time, so that the change itself is what the card must detect.
fn break_somehow(random: &mut impl Rng, frame: &mut DrawnFrame) {
    let bytes = &mut frame.bytes;
    let places = places(bytes);
    let (ip, udp, bth) = (places.ip, places.udp, places.bth);
    match random.random_range(0..27) {
        0 => frame.mac_error = true,
        1 => bytes.resize(FRAME_BYTES_MAX + random.random_range(0..3), 0x55),
        2 => bytes.resize(FRAME_BYTES_MAX + random.random_range(1..3000), 0x55),
        3 => bytes.truncate(random.random_range(1..=20)),
        4 => bytes.truncate(random.random_range(1..=bytes.len())),
        5 => bytes[..6].copy_from_slice(&random.random::<[u8; 6]>()),
        6 => bytes[..6].copy_from_slice(
            [[0x01, 0, 0x5e, 1, 2, 3], [0x33, 0x33, 1, 2, 3, 4], [0xff; 6]]
                .choose(random)
                .expect("not empty"),
        ),
        7 => bytes[6] |= 1,
        8 => {
            let ethertype =
                *[0x8915u16, 0x88a8, 0x0806, 0x0800, 0x86dd, 0x8100].choose(random).expect("not empty");
            bytes[ip - 2..ip].copy_from_slice(&ethertype.to_be_bytes());
        }
        9 => bytes[ip] = random.random(),
        10 => change_length(random, bytes, if places.is_ipv6 { ip + 4 } else { ip + 2 }),
        11 if !places.is_ipv6 => bytes[ip + 10 + random.random_range(0..2)] ^= random.random_range(1..=255u8),
        12 if !places.is_ipv6 => bytes[ip + 6] = *[0x20, 0x00, 0x1f, 0x80].choose(random).expect("not empty"),
        13 if !places.is_ipv6 => bytes[ip + 7] = random.random(),
        14 => {
            bytes[if places.is_ipv6 { ip + 6 } else { ip + 9 }] =
                *[6, 1, 44, 0, 17].choose(random).expect("not empty")
        }
        15 => bytes[udp + 2 + random.random_range(0..2)] ^= 1 << random.random_range(0..8),
        16 => change_length(random, bytes, udp + 4),
        17 => {
            // Both lengths, so that the card must detect the fault further inside the frame.
            let shorter = random.random_range(1..=40);
            for place in [udp + 4, if places.is_ipv6 { ip + 4 } else { ip + 2 }] {
                let length = u16::from_be_bytes([bytes[place], bytes[place + 1]]).saturating_sub(shorter);
                bytes[place..place + 2].copy_from_slice(&length.to_be_bytes());
            }
        }
        18 => {
            let end = bytes.len();
            bytes[end - random.random_range(1..=4)] ^= 1 << random.random_range(0..8);
            return;
        }
        19 => {
            let position = random.random_range(0..bytes.len());
            bytes[position] ^= 1 << random.random_range(0..8);
            return;
        }
        20 => bytes[bth + 1] = random.random(),
        21 => bytes[bth] = random.random(),
        22 => bytes[bth + 5..bth + 8].fill(0),
        23 => bytes.extend(std::iter::repeat_n(0xaa, random.random_range(1..80))),
        24 => {
            let masked = [ip + 1, udp + 6, udp + 7, bth + 4, bth + 8];
            bytes[*masked.choose(random).expect("not empty")] ^= random.random::<u8>();
        }
        25 => {
            // A byte more or less than the pad count says.
            let by = *[-1_i16, 1, 2, 3].choose(random).expect("not empty");
            bytes.resize(bytes.len().saturating_add_signed(by.into()), 0x55);
            for place in [udp + 4, if places.is_ipv6 { ip + 4 } else { ip + 2 }] {
                let length = u16::from_be_bytes([bytes[place], bytes[place + 1]]).wrapping_add_signed(by);
                bytes[place..place + 2].copy_from_slice(&length.to_be_bytes());
            }
        }
        _ => {
            let end = bytes.len().min(bth + 40);
            let position = random.random_range(ip..end);
            bytes[position] = random.random();
        }
    }
    if random.random_bool(0.9) {
        mend_checksum(&mut frame.bytes);
    }
    if random.random_bool(0.9) {
        mend_icrc(&mut frame.bytes);
    }
}

/// Changes a length field by a few bytes, or to any value.
fn change_length(random: &mut impl Rng, bytes: &mut [u8], place: usize) {
    let length = u16::from_be_bytes([bytes[place], bytes[place + 1]]);
    let length = if random.random() {
        length.wrapping_add_signed(*[-4, -1, 1, 4, 60].choose(random).expect("not empty"))
    } else {
        random.random_range(0..64)
    };
    bytes[place..place + 2].copy_from_slice(&length.to_be_bytes());
}

/// Corrects the checksum of the IPv4 header, if the frame has one at the usual offset.
fn mend_checksum(bytes: &mut [u8]) {
    let Some(ip) = ip_start(bytes) else { return };
    if bytes.len() < ip + 20 || bytes[ip - 2..ip] != [0x08, 0x00] {
        return;
    }
    bytes[ip + 10..ip + 12].fill(0);
    let sum = bytes[ip..ip + 20]
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    bytes[ip + 10..ip + 12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

/// Corrects the ICRC at the offset that the IP length gives, if the frame reaches that far.
fn mend_icrc(bytes: &mut [u8]) {
    let Some(ip) = ip_start(bytes) else { return };
    if bytes.len() < ip + 40 {
        return;
    }
    let length = match bytes[ip - 2..ip] {
        [0x08, 0x00] => usize::from(u16::from_be_bytes([bytes[ip + 2], bytes[ip + 3]])),
        [0x86, 0xdd] => 40 + usize::from(u16::from_be_bytes([bytes[ip + 4], bytes[ip + 5]])),
        _ => return,
    };
    if length < 44 || ip + length > bytes.len() {
        return;
    }
    let check = icrc::compute(&bytes[ip..ip + length - icrc::BYTES]);
    bytes[ip + length - icrc::BYTES..ip + length].copy_from_slice(&check);
}

fn ip_start(bytes: &[u8]) -> Option<usize> {
    let ip = if bytes.get(12..14)? == [0x81, 0] { 18 } else { 14 };
    (bytes.len() > ip).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rnic_layout::wire::{DropReason, Filter, classify};
    use std::collections::BTreeSet;

    const FILTER: Filter = Filter { own_mac: OWN_MAC, promiscuous: false, accept_multicast: true };

    #[test]
    fn drawn_packets_are_accepted_as_they_are() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut payload = Vec::new();
        for _ in 0..500 {
            let packet = random_packet(&mut random, &mut payload);
            assert_eq!(classify(&frame_of(&packet), false, &FILTER), Ok(packet));
        }
    }

    #[test]
    fn every_reason_for_a_drop_is_drawn() {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let drawn: BTreeSet<DropReason> = (0..20_000)
            .map(|_| random_frame(&mut random))
            .filter_map(|frame| classify(&frame.bytes, frame.mac_error, &FILTER).err())
            .collect();
        // A frame alone cannot fill the buffer.
        let expected = DropReason::ALL.into_iter().filter(|reason| !reason.is_without_room());
        assert_eq!(drawn, expected.collect());
    }

    #[test]
    fn udp_lengths_that_are_no_multiple_of_four_are_drawn() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut drawn = BTreeSet::new();
        for _ in 0..5_000 {
            let frame = random_frame(&mut random);
            if let Ok(packet) = classify(&frame.bytes, frame.mac_error, &FILTER) {
                let pad = usize::from(packet.bth.pad_count);
                drawn.insert(((packet.payload.len() + pad) % 4, packet.payload.len() % 4));
            }
        }
        assert_eq!(drawn.len(), 16, "every remainder of length and payload: {drawn:?}");
    }
}
