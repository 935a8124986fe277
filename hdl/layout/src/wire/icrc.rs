//! ICRC, the invariant CRC over the fields that routers do not change (protocol 1.8).
//!
//! It is the CRC-32 of IEEE 802.3, reflected, over eight bytes of ones (in place of the LRH of InfiniBand) and the packet from the
//! first byte of its IP header to the last byte of its pad, with the fields that routers change set to ones. It is sent **least
//! significant byte first**, unlike every other field: the value 0x7C3EC76B is sent as `6B C7 3E 7C`.
//!
//! A register that starts with [`SEED`] has already processed the eight bytes of ones. If the register also processes the received
//! ICRC, it ends as [`RESIDUE`] if and only if the ICRC is correct, so that a receiver need not know the end of the packet in advance.

use super::header::Field;
use super::ip::{ipv4, ipv6};
use super::{bth, udp};

/// Size of the ICRC, in bytes.
pub const BYTES: usize = 4;

/// Polynomial 0x04C11DB7, reflected.
pub const POLYNOMIAL: u32 = 0xEDB8_8320;

/// Value of the register before the first byte.
pub const INITIAL: u32 = 0xFFFF_FFFF;

/// Value of the register after the eight bytes of ones.
pub const SEED: u32 = 0xDEBB_20E3;

/// Value of the register, before the final inversion, after a packet and its correct ICRC. It equals [`SEED`]: four bytes of ones
/// bring the initial register to zero, a correct ICRC brings any register to zero except for its inversion, and both are then
/// followed by four bytes of ones.
pub const RESIDUE: u32 = 0xDEBB_20E3;

/// Bytes that [`update`] processes at a time.
const SLICE_BYTES: usize = 8;

/// `TABLES[n][b]` is the contribution of byte `b` to the register after `n` more bytes.
const TABLES: [[u32; 256]; SLICE_BYTES] = {
    let mut tables = [[0; 256]; SLICE_BYTES];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            register = register >> 1 ^ if register & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = register;
        byte += 1;
    }
    let mut slice = 1;
    while slice < SLICE_BYTES {
        let mut byte = 0;
        while byte < 256 {
            let register = tables[slice - 1][byte];
            tables[slice][byte] = register >> 8 ^ tables[0][(register & 0xFF) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
};

/// Returns the register after `bytes`, processed eight at a time.
#[must_use]
pub const fn update(mut register: u32, bytes: &[u8]) -> u32 {
    const T: &[[u32; 256]; SLICE_BYTES] = &TABLES;
    let mut rest = bytes;
    while let [a, b, c, d, e, f, g, h, tail @ ..] = rest {
        let low = register ^ u32::from_le_bytes([*a, *b, *c, *d]);
        let [a, b, c, d] = low.to_le_bytes();
        register = T[7][a as usize]
            ^ T[6][b as usize]
            ^ T[5][c as usize]
            ^ T[4][d as usize]
            ^ T[3][*e as usize]
            ^ T[2][*f as usize]
            ^ T[1][*g as usize]
            ^ T[0][*h as usize];
        rest = tail;
    }
    while let [byte, tail @ ..] = rest {
        register = register >> 8 ^ T[0][(register as u8 ^ *byte) as usize];
        rest = tail;
    }
    register
}

const _: () = assert!(update(INITIAL, &[0xFF; 8]) == SEED);

/// Bytes from the IP header to the last masked field at most: IPv6, UDP and the BTH up to its masked byte.
const MASKED_BYTES_MAX: usize = ipv6::BYTES + udp::fields::BYTES + bth::fields::DESTINATION_QP.byte;

/// Sets the mask bits of fields of a header that starts at `start`.
const fn mask_fields(
    mut mask: [u8; MASKED_BYTES_MAX],
    start: usize,
    fields: &[Field],
) -> [u8; MASKED_BYTES_MAX] {
    let (_, header) = mask.split_at_mut(start);
    let mut index = 0;
    while index < fields.len() {
        fields[index].set(header, u128::MAX);
        index += 1;
    }
    mask
}

/// Sets the mask bits of UDP and BTH, which start at `start`.
const fn mask_transport(mask: [u8; MASKED_BYTES_MAX], start: usize) -> [u8; MASKED_BYTES_MAX] {
    use super::bth::fields::{BACKWARD_CONGESTION, FORWARD_CONGESTION, RESERVED6};
    let mask = mask_fields(mask, start, &[udp::fields::CHECKSUM]);
    mask_fields(mask, start + udp::fields::BYTES, &[FORWARD_CONGESTION, BACKWARD_CONGESTION, RESERVED6])
}

/// For each byte of an IPv4 packet from the IP header on, the bits that are replaced by ones. Later bytes are not masked.
pub const IPV4_MASK: [u8; MASKED_BYTES_MAX] = mask_transport(
    mask_fields([0; MASKED_BYTES_MAX], 0, &[ipv4::TRAFFIC_CLASS, ipv4::HOP_LIMIT, ipv4::CHECKSUM]),
    ipv4::BYTES,
);

/// For each byte of an IPv6 packet from the IP header on, the bits that are replaced by ones. Later bytes are not masked.
pub const IPV6_MASK: [u8; MASKED_BYTES_MAX] = mask_transport(
    mask_fields([0; MASKED_BYTES_MAX], 0, &[ipv6::TRAFFIC_CLASS, ipv6::FLOW_LABEL, ipv6::HOP_LIMIT]),
    ipv6::BYTES,
);

/// Returns the mask of a packet that starts with its IP header, by the version in its first nibble.
fn mask_of(packet: &[u8]) -> &'static [u8; MASKED_BYTES_MAX] {
    match packet.first() {
        Some(byte) if byte >> 4 == 6 => &IPV6_MASK,
        _ => &IPV4_MASK,
    }
}

/// Iterates over a packet that starts with its IP header, with the masked fields as ones, without a copy.
pub fn masked(packet: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mask = mask_of(packet).iter().copied().chain(core::iter::repeat(0));
    packet.iter().zip(mask).map(|(byte, mask)| byte | mask)
}

/// Returns the register after a packet that starts with its IP header, with the masked fields as ones.
fn register_after(packet: &[u8]) -> u32 {
    let (head, tail) = packet.split_at(packet.len().min(MASKED_BYTES_MAX));
    let mut covered = [0; MASKED_BYTES_MAX];
    for (covered, byte) in covered.iter_mut().zip(masked(head)) {
        *covered = byte;
    }
    update(update(SEED, &covered[..head.len()]), tail)
}

/// Returns the ICRC, in wire order, of a packet from the first byte of its IP header to the last byte of its pad. The length fields
/// of the packet must already include the four bytes of the ICRC.
pub fn compute(packet: &[u8]) -> [u8; BYTES] {
    (!register_after(packet)).to_le_bytes()
}

/// Returns whether the ICRC of a packet is correct; `packet` is from the first byte of its IP header to the last byte of its ICRC.
pub fn agrees(packet: &[u8]) -> bool {
    packet.split_last_chunk().is_some_and(|(covered, check)| compute(covered) == *check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One bit at a time, straight from the definition.
    fn update_bit_by_bit(mut register: u32, bytes: &[u8]) -> u32 {
        for byte in bytes {
            for bit in 0..8 {
                let feedback = (register ^ u32::from(byte >> bit)) & 1;
                register = register >> 1 ^ if feedback != 0 { POLYNOMIAL } else { 0 };
            }
        }
        register
    }

    #[test]
    fn the_crc_is_that_of_ieee_802_3() {
        // The check value that catalogues of CRCs give for CRC-32.
        assert_eq!(!update(INITIAL, b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn masks_are_those_of_protocol_1_8() {
        let ones = |mask: &[u8; MASKED_BYTES_MAX]| {
            let mut listed = [(0, 0); 16];
            let found = mask.iter().enumerate().filter(|(_, bits)| **bits != 0);
            found.zip(&mut listed).for_each(|((offset, bits), slot)| *slot = (offset, *bits));
            listed
        };
        let mut expected = [(0, 0); 16];
        expected[..7].copy_from_slice(&[
            (1, 255),
            (8, 255),
            (10, 255),
            (11, 255),
            (26, 255),
            (27, 255),
            (32, 255),
        ]);
        assert_eq!(ones(&IPV4_MASK), expected);
        expected[..8].copy_from_slice(&[
            (0, 0x0F),
            (1, 255),
            (2, 255),
            (3, 255),
            (7, 255),
            (46, 255),
            (47, 255),
            (52, 255),
        ]);
        assert_eq!(ones(&IPV6_MASK), expected);
    }

    #[test]
    fn step_by_step_as_in_vector_v1() {
        let packet: [u8; 48] = hex::FromHex::from_hex(
            "45000034123440004011a516c0a8010ac0a80114c00112b7002000000400ffff000000128000abcd52444d412d4e4943",
        )
        .unwrap();
        let masked_input: [u8; 48] = hex::FromHex::from_hex(
            "45ff003412344000ff11ffffc0a8010ac0a80114c00112b70020ffff0400ffffff0000128000abcd52444d412d4e4943",
        )
        .unwrap();
        // First the fields that routers change become ones ...
        assert!(masked(&packet).eq(masked_input));
        // ... then the CRC runs over eight bytes of ones and the packet ...
        let seeded = update(INITIAL, &[0xFF; 8]);
        assert_eq!(seeded, SEED);
        let crc = !update(seeded, &masked_input);
        assert_eq!(crc, 0x7C3E_C76B);
        // ... is sent least significant byte first ...
        assert_eq!(crc.to_le_bytes(), [0x6B, 0xC7, 0x3E, 0x7C]);
        assert_eq!(compute(&packet), [0x6B, 0xC7, 0x3E, 0x7C]);
        // ... and the register ends as the residue.
        assert_eq!(update(update(seeded, &masked_input), &crc.to_le_bytes()), RESIDUE);
    }

    #[test]
    fn nothing_is_too_short_to_be_checked() {
        assert!(!agrees(&[]));
        assert!(!agrees(&[0x45, 0, 0]));
        assert!(!agrees(&[0x60; 7]));
    }

    proptest! {
        #[test]
        fn eight_bytes_at_a_time_are_as_good_as_one_bit(
            register: u32, bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            prop_assert_eq!(update(register, &bytes), update_bit_by_bit(register, &bytes));
        }

        #[test]
        fn every_bit_outside_the_mask_counts_and_no_bit_inside_does(
            mut packet in proptest::collection::vec(any::<u8>(), 8..120), v6: bool, flip: prop::sample::Index,
        ) {
            packet[0] = packet[0] & 0x0F | if v6 { 0x60 } else { 0x40 };
            let icrc = compute(&packet);
            let bit = flip.index(packet.len() * 8 - 4) + 4;
            // Bits 0 to 3 here are the version nibble, which chooses the mask and stays.
            let (byte, bit) = (bit / 8, 0x80 >> (bit % 8));
            packet[byte] ^= bit;
            let mask = if v6 { IPV6_MASK } else { IPV4_MASK };
            let is_masked = mask.get(byte).is_some_and(|mask| mask & bit != 0);
            prop_assert_eq!(compute(&packet) == icrc, is_masked);
            packet[byte] ^= bit;
            packet.extend(icrc);
            prop_assert!(agrees(&packet));
        }
    }
}
