//! Checks that several blocks make of their parameters.

/// Whether `data` is a width of the datapath in bits, 64, 128, 256 or 512, and `bytes` the width of a count of its bytes.
pub const fn is_datapath(data: usize, bytes: usize) -> bool {
    matches!((data, bytes), (64, 4) | (128, 5) | (256, 6) | (512, 7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_bytes_is_as_wide_as_all_lanes_need() {
        for data in [64, 128, 256, 512] {
            let bytes = (data / 8_usize).ilog2() as usize + 1;
            assert!(is_datapath(data, bytes));
            assert!(!is_datapath(data, bytes + 1) && !is_datapath(data, bytes - 1));
        }
        assert!(!is_datapath(32, 3) && !is_datapath(1024, 8));
    }
}
