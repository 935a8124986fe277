//! Congestion marks: what a router does to the IP header when its queue is long (protocol 5.1).
//!
//! The ICRC does not cover the mark; the checksum of IPv4 does.

/// Value of the ECN bits: the low two bits of the second byte of IPv4, or of the traffic class of IPv6.
const CONGESTION_EXPERIENCED: u8 = 3;

/// Marks a frame. Returns false if it was not marked: it is no IP packet, its sender does not support ECN, or it was marked
/// already.
pub fn mark(frame: &mut [u8]) -> bool {
    let Some(start) = ip_start(frame) else { return false };
    let Some(header) = frame.get_mut(start..) else { return false };
    match header.first().map(|byte| byte >> 4) {
        Some(4) if header.len() >= 20 => mark_ipv4(header),
        Some(6) if header.len() >= 40 => mark_ipv6(header),
        _ => false,
    }
}

/// Offset of the IP header, after at most one VLAN tag.
fn ip_start(frame: &[u8]) -> Option<usize> {
    let ethertype = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    match ethertype(12)? {
        0x8100 if matches!(ethertype(16)?, 0x0800 | 0x86dd) => Some(18),
        0x0800 | 0x86dd => Some(14),
        _ => None,
    }
}

fn mark_ipv4(header: &mut [u8]) -> bool {
    let before = u16::from_be_bytes([header[0], header[1]]);
    if !can_be_marked(header[1]) {
        return false;
    }
    header[1] |= CONGESTION_EXPERIENCED;
    // RFC 1624: the checksum changes by the difference of the word, in ones' complement.
    let after = u16::from_be_bytes([header[0], header[1]]);
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    true
}

fn mark_ipv6(header: &mut [u8]) -> bool {
    // The traffic class spans two bytes; its low two bits are bits 5 and 4 of the second byte.
    if !can_be_marked(header[1] >> 4) {
        return false;
    }
    header[1] |= CONGESTION_EXPERIENCED << 4;
    true
}

fn can_be_marked(traffic_class: u8) -> bool {
    matches!(traffic_class & 3, 1 | 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::wire::{Filter, classify};
    use rnic_stimulus::chance::Seed;
    use rnic_stimulus::frames;

    #[test]
    fn a_marked_frame_is_still_a_good_frame() {
        let mut random = Seed(1).stream("frames");
        let mut payload = Vec::new();
        let (mut marked, mut refused) = (0, 0);
        for _ in 0..500 {
            let packet = frames::random_packet(&mut random, &mut payload);
            let mut frame = frames::frame_of(&packet);
            let before = frame.clone();
            if mark(&mut frame) {
                marked += 1;
                assert_ne!(frame, before);
                assert!(
                    classify(&frame, false, &Filter::PROMISCUOUS).is_ok(),
                    "checksum and ICRC still hold"
                );
                assert!(!mark(&mut frame), "a mark is set once");
            } else {
                refused += 1;
                assert_eq!(frame, before);
            }
        }
        assert!(marked > 100 && refused > 100, "{marked} marked, {refused} not");
    }

    #[test]
    fn what_is_not_ip_is_left_alone() {
        for frame in [vec![0; 5], vec![0; 60], vec![0x45; 60], {
            let mut short = vec![0; 20];
            short[12] = 8;
            short[14] = 0x45;
            short
        }] {
            let mut after = frame.clone();
            assert!(!mark(&mut after));
            assert_eq!(after, frame);
        }
    }
}
