//! The arithmetic of the ICRC in ordinary Rust: what goes into the matrices and tables of its hardware.
//!
//! The register is that of CRC-32 in reflected form, which starts from the seed that eight bytes of ones leave
//! (protocol 1.8). A register that starts from zero does the same work if the seed is added to the first four
//! bytes; then leading zero bytes, such as an Ethernet header wiped out, change nothing, and every step is linear.
use rnic_blocks::logic::gf2::Matrix;

/// The CRC-32 polynomial, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// The register after the eight bytes of ones in place of the local route header. It is also the value of the register after a
/// packet and its correct ICRC.
pub(crate) const SEED: u32 = 0xdebb_20e3;

/// Bytes up to the last one that can be masked: BTH byte 4 after a VLAN tag and IPv6.
const MASKED_BYTES: usize = 14 + 4 + 40 + 8 + 5;

/// Takes one byte into the register.
fn take_byte(register: u32, byte: u8) -> u32 {
    (0..8).fold(register ^ u32::from(byte), |register, _| {
        if register & 1 == 1 { (register >> 1) ^ POLYNOMIAL } else { register >> 1 }
    })
}

/// Takes bytes into the register.
pub(crate) fn take(register: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(register, |register, &byte| take_byte(register, byte))
}

/// The step of the register over `count` zero bytes.
pub(crate) fn advance(count: usize) -> Matrix {
    Matrix::from_columns(32, 32, |bit| vec![take(1 << bit, &vec![0; count]).into()])
}

/// The step back over `count` zero bytes.
pub(crate) fn rewind(count: usize) -> Matrix {
    advance(count).inverse().expect("the polynomial has a constant term, so each step has an inverse")
}

/// What a beat of `count` bytes leaves in a register that was zero.
pub(crate) fn contribution(count: usize) -> Matrix {
    Matrix::from_columns(32, 8 * count, |bit| {
        let mut beat = vec![0; count];
        beat[bit / 8] = 1 << (bit % 8);
        vec![take(0, &beat).into()]
    })
}

/// Beats of `count` bytes that hold masked bytes; those that follow are covered as they are.
pub(crate) fn masked_beats(count: usize) -> usize {
    MASKED_BYTES.div_ceil(count)
}

/// What becomes of the headers of one kind of frame before they are covered.
///
/// Each byte becomes `byte & keep ^ flip`.
pub(crate) struct HeaderMask {
    keep: Vec<u8>,
    flip: Vec<u8>,
}

impl HeaderMask {
    /// The mask for frames with or without a VLAN tag, with IPv4 or IPv6 (the table in protocol 1.8).
    pub(crate) fn new(vlan_present: bool, is_ipv6: bool) -> Self {
        let ip = if vlan_present { 18 } else { 14 };
        let udp = ip + if is_ipv6 { 40 } else { 20 };
        let bth = udp + 8;
        let mut ones = vec![0; MASKED_BYTES];
        if is_ipv6 {
            // Traffic class and flow label, hop limit.
            ones[ip] = 0x0f;
            ones[ip + 1..ip + 4].fill(0xff);
            ones[ip + 7] = 0xff;
        } else {
            // Type of service, time to live, header checksum.
            ones[ip + 1] = 0xff;
            ones[ip + 8] = 0xff;
            ones[ip + 10..ip + 12].fill(0xff);
        }
        // UDP checksum; FECN, BECN and the reserved bits beside them.
        ones[udp + 6..udp + 8].fill(0xff);
        ones[bth + 4] = 0xff;

        let mut keep: Vec<u8> = ones.iter().map(|ones| !ones).collect();
        keep[..ip].fill(0);
        let mut flip = ones;
        flip[ip..ip + 4].iter_mut().zip(SEED.to_le_bytes()).for_each(|(flip, seed)| *flip ^= seed);
        Self { keep, flip }
    }

    /// The bits to keep in beat `index` of `count` bytes.
    pub(crate) fn keep(&self, index: usize, count: usize) -> Vec<u8> {
        slice(&self.keep, index, count, 0xff)
    }

    /// The bits to flip in beat `index` of `count` bytes.
    pub(crate) fn flip(&self, index: usize, count: usize) -> Vec<u8> {
        slice(&self.flip, index, count, 0)
    }
}

/// Beat `index` of a header that is followed by `filler`.
fn slice(header: &[u8], index: usize, count: usize, filler: u8) -> Vec<u8> {
    (index * count..(index + 1) * count).map(|byte| header.get(byte).copied().unwrap_or(filler)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_register_computes_crc_32() {
        // The check value that every catalogue of CRCs gives for CRC-32.
        assert_eq!(!take(!0, b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn eight_bytes_of_ones_leave_the_seed() {
        assert_eq!(take(!0, &[0xff; 8]), SEED);
    }

    #[test]
    fn a_message_with_its_crc_leaves_the_seed() {
        let message = b"a remote write";
        let register = take(SEED, message);
        assert_eq!(take(register, &(!register).to_le_bytes()), SEED);
    }

    #[test]
    fn the_seed_moves_into_the_message() {
        let message = *b"0123456789";
        let mut flipped = message;
        flipped.iter_mut().zip(SEED.to_le_bytes()).for_each(|(byte, seed)| *byte ^= seed);
        assert_eq!(take(0, &flipped), take(SEED, &message));
    }

    #[test]
    fn rewinding_undoes_trailing_zeros() {
        let register = take(SEED, b"payload");
        let further = take(register, &[0; 6]);
        assert_eq!(rewind(6).apply(&[further.into()]), [u64::from(register)]);
        assert_eq!(advance(6).apply(&[register.into()]), [u64::from(further)]);
    }
}
