//! Fields of wide ports: numbers at any bit offset in a slice of 32-bit words, lowest word first.

/// Reads `width` bits, at most 128, from bit `offset` on.
///
/// # Panics
/// If the words end before the field does.
pub(crate) fn get(words: &[u32], offset: usize, width: usize) -> u128 {
    assert!(width <= 128, "a number has at most 128 bits");
    (0..width).fold(0, |number, bit| {
        let position = offset + bit;
        number | u128::from(words[position / 32] >> (position % 32) & 1) << bit
    })
}

/// Writes `width` bits, at most 128, from bit `offset` on.
///
/// # Panics
/// If the words end before the field does, or the number has bits beyond it.
pub(crate) fn set(words: &mut [u32], offset: usize, width: usize, number: u128) {
    assert!(width >= 128 || number >> width == 0, "{number:#x} does not fit {width} bits");
    for bit in 0..width {
        let position = offset + bit;
        let mask = 1 << (position % 32);
        if number >> bit & 1 == 1 {
            words[position / 32] |= mask;
        } else {
            words[position / 32] &= !mask;
        }
    }
}

/// Reads whole bytes, lowest first, from bit `offset` on.
///
/// # Panics
/// If the words end before the bytes do.
pub(crate) fn get_bytes(words: &[u32], offset: usize, bytes: &mut [u8]) {
    if offset.is_multiple_of(8) {
        for (index, byte) in bytes.iter_mut().enumerate() {
            let position = offset / 8 + index;
            *byte = (words[position / 4] >> (position % 4 * 8)) as u8;
        }
    } else {
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = get(words, offset + index * 8, 8) as u8;
        }
    }
}

/// Writes whole bytes, lowest first, from bit `offset` on.
///
/// # Panics
/// If the words end before the bytes do.
pub(crate) fn set_bytes(words: &mut [u32], offset: usize, bytes: &[u8]) {
    if offset.is_multiple_of(8) {
        for (index, &byte) in bytes.iter().enumerate() {
            let position = offset / 8 + index;
            let shift = position % 4 * 8;
            words[position / 4] = words[position / 4] & !(0xff << shift) | u32::from(byte) << shift;
        }
    } else {
        for (index, &byte) in bytes.iter().enumerate() {
            set(words, offset + index * 8, 8, u128::from(byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read_back_and_nothing_else_changes() {
        for (offset, width, number) in
            [(0, 1, 1), (31, 2, 0b11), (5, 48, 0xabcd_ef01_2345), (60, 128, u128::MAX / 3)]
        {
            let mut words = [0xffff_ffff_u32; 7];
            set(&mut words, offset, width, number);
            assert_eq!(get(&words, offset, width), number);
            let outside: u32 = words.iter().map(|word| word.count_zeros()).sum();
            assert_eq!(outside, width as u32 - number.count_ones(), "bits outside the field stay");
        }
    }

    #[test]
    fn bytes_go_in_and_out_at_any_bit() {
        let bytes = [1, 2, 0x83, 0xff, 5];
        for offset in [0, 8, 24, 3, 61] {
            let mut words = [0u32; 4];
            set_bytes(&mut words, offset, &bytes);
            let mut back = [0; 5];
            get_bytes(&words, offset, &mut back);
            assert_eq!(back, bytes, "offset {offset}");
        }
    }
}
