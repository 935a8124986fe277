//! PSNs of a few bits (protocol 0, protocol 2.1).

/// PSNs of `bits` bits. The protocol has 24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsnSpace {
    /// Bits of a PSN, 2 to 7.
    pub bits: u32,
}

impl PsnSpace {
    /// Returns the PSN of a packet, by the packet's position in the run.
    pub fn psn(self, position: u8) -> u8 {
        position & ((1 << self.bits) - 1)
    }

    /// Returns half of the number of PSNs: the largest window.
    pub fn half(self) -> u8 {
        1 << (self.bits - 1)
    }

    /// Returns the signed distance of the PSN `a` from the PSN `b`. `a` is before `b` when it is negative; a distance of
    /// exactly half of the space reads as negative.
    pub fn distance(self, a: u8, b: u8) -> i16 {
        let distance = i16::from(self.psn(a.wrapping_sub(b)));
        let half = i16::from(self.half());
        if distance < half { distance } else { distance - 2 * half }
    }

    /// Returns the position of the packet with this PSN that is nearest to `near`.
    pub fn position(self, psn: u8, near: u8) -> u8 {
        near.wrapping_add_signed(self.distance(psn, self.psn(near)) as i8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_of_half_of_the_space_is_negative() {
        let space = PsnSpace { bits: 3 };
        let table =
            [(0, 0, 0), (1, 0, 1), (3, 0, 3), (4, 0, -4), (5, 0, -3), (7, 0, -1), (0, 7, 1), (2, 7, 3)];
        for (a, b, distance) in table {
            assert_eq!(space.distance(a, b), distance, "{a} from {b}");
        }
    }

    #[test]
    fn a_position_is_found_again_within_half_of_the_space() {
        let space = PsnSpace { bits: 4 };
        for near in 8..40 {
            for position in near - 8..near + 8 {
                assert_eq!(space.position(space.psn(position), near), position, "near {near}");
            }
        }
    }
}
