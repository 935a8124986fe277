//! The ICRC as a program would compute it, byte by byte, to test the hardware against; written from protocol 1.8 alone.
use rand::{Rng, RngCore};
use rnic_blocks::bench::Random;

/// Whether a frame has a VLAN tag, and whether it is IPv6.
pub(crate) fn kind(frame: &[u8]) -> (bool, bool) {
    let vlan_present = frame[12..14] == [0x81, 0x00];
    let ether_type = if vlan_present { &frame[16..18] } else { &frame[12..14] };
    (vlan_present, ether_type == [0x86, 0xdd])
}

/// The ICRC, in wire order, of a frame that ends before it.
pub(crate) fn icrc(frame: &[u8]) -> [u8; 4] {
    let (vlan_present, is_ipv6) = kind(frame);
    let mut packet = frame[if vlan_present { 18 } else { 14 }..].to_vec();
    let udp = if is_ipv6 {
        packet[0] |= 0x0f;
        for byte in [1, 2, 3, 7] {
            packet[byte] = 0xff;
        }
        40
    } else {
        for byte in [1, 8, 10, 11] {
            packet[byte] = 0xff;
        }
        20
    };
    for byte in [udp + 6, udp + 7, udp + 12] {
        packet[byte] = 0xff;
    }
    let mut crc = u32::MAX;
    for byte in [0xff; 8].into_iter().chain(packet) {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    (!crc).to_le_bytes()
}

/// Whether a frame that ends with its ICRC has the right one.
pub(crate) fn is_intact(frame: &[u8]) -> bool {
    let (covered, received) = frame.split_at(frame.len() - 4);
    icrc(covered) == received
}

/// A frame of random kind, length and content with the right ICRC. Only what the ICRC depends on is sensible.
pub(crate) fn random_frame(random: &mut Random) -> Vec<u8> {
    let is_ipv6: bool = random.random();
    let vlan_present: bool = random.random();
    let headers = if is_ipv6 { 40 } else { 20 } + 8 + 12;
    let dwords = if random.random() { random.random_range(0..20) } else { random.random_range(0..1000) };
    let mut packet = vec![0; headers + 4 * dwords];
    random.fill_bytes(&mut packet);
    let mut frame = vec![0; 12];
    random.fill_bytes(&mut frame);
    if vlan_present {
        frame.extend([0x81, 0x00, random.random(), random.random()]);
    }
    frame.extend(if is_ipv6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    frame.extend(packet);
    frame.extend(icrc(&frame));
    frame
}
