//! What tells a card of this driver from other PCI functions, by its configuration space.

use rnic_layout::pci::{CLASS, DEVICE, REVISION, SUBSYSTEM, SUBSYSTEM_VENDOR, VENDOR};

/// Bytes of the header, which every configuration space has.
pub(crate) const HEADER_BYTES: usize = 64;
/// What a configuration space reads as where no function is.
const NO_VENDOR: u32 = 0xffff;

/// What the header of a configuration space belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A card of this layout.
    Ours,
    /// Nothing: all bits are one.
    Absent,
    /// Another function.
    Other {
        /// The first number that differs.
        what: &'static str,
        /// Its value.
        found: u32,
        /// Its value in a card of this layout.
        expected: u32,
    },
}

/// A number of `bytes` bytes in a configuration space that has a header.
fn number(config: &[u8], offset: usize, bytes: usize) -> u32 {
    config[offset..offset + bytes].iter().rfold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// Says what a configuration space belongs to, which has a header.
pub(crate) fn identity(config: &[u8]) -> Identity {
    if number(config, 0, 2) == NO_VENDOR {
        return Identity::Absent;
    }
    for (what, offset, bytes, expected) in [
        ("vendor", 0x00, 2, VENDOR.into()),
        ("device", 0x02, 2, DEVICE.into()),
        ("class", 0x09, 3, CLASS),
        ("subsystem vendor", 0x2c, 2, SUBSYSTEM_VENDOR.into()),
        ("subsystem", 0x2e, 2, SUBSYSTEM.into()),
        ("revision", 0x08, 1, REVISION.into()),
    ] {
        let found = number(config, offset, bytes);
        if found != expected {
            return Identity::Other { what, found, expected };
        }
    }
    Identity::Ours
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::pci::config_image;

    #[test]
    fn each_number_tells_a_card_from_another_function() {
        assert_eq!(identity(&config_image(0)), Identity::Ours);
        assert_eq!(identity(&[0xff; HEADER_BYTES]), Identity::Absent);
        for (place, value, what, found) in [
            (0x01, 0x80, "vendor", 0x80f4),
            (0x02, 0xf1, "device", 0x10f1),
            (0x0a, 0x80, "class", 0x02_80_00),
            (0x0b, 0x01, "class", 0x01_00_00),
            (0x2c, 0x00, "subsystem vendor", 0x1a00),
            (0x2f, 0x00, "subsystem", 0x006e),
            (0x08, 0x7f, "revision", 0x7f),
        ] {
            let mut config = config_image(0);
            config[place] = value;
            let Identity::Other { what: named, found: told, expected } = identity(&config) else {
                panic!("{what} is not compared")
            };
            assert_eq!((named, told), (what, found));
            assert_ne!(told, expected);
        }
    }
}
