//! Configuration space of a simulated PCI function: what software reads, and what its writes change.
//!
//! ```text
//!   software ── read, write ──> ConfigSpace ── memory_enabled, bus_master, msix, bar_address ──> who serves the function
//!                                    └─────── Effect::Reset: the function is to be reset
//! ```
//!
//! The model is pure: it holds the 4096 bytes of the function and applies the write mask of the layout to them. Who serves the
//! function asks it what software has enabled, and resets the card when a write says so.
//!
//! 1. A bit holds what software writes if the layout says that it is writable, else its value at reset.
//! 2. A write of all ones to a BAR register reads back as the mask of its size.
//! 3. A function-level reset restores every bit; the bit that starts it reads as zero.
//! 4. A power state that the function lacks is not entered, and the old one is kept.
//! 5. An access that reaches beyond the space reads ones there and writes nothing there.
use rnic_layout::pci::{
    BAR_REGISTERS, COMMAND, COMMAND_BUS_MASTER, COMMAND_MEMORY, CONFIG_BYTES, DEVICE_CONTROL,
    DEVICE_CONTROL_RESET, MSIX_CONTROL, MSIX_ENABLE, MSIX_MASK_ALL, POWER_CONTROL, POWER_STATE, bar,
    config_image, config_write_mask,
};

/// The power state D3hot.
const D3_HOT: u16 = 3;
const WRITE_MASK: [u8; CONFIG_BYTES] = config_write_mask();

/// What a write asks of the function.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing beyond the bits that it has changed.
    Stored,
    /// A function-level reset. The configuration space is reset already; the card is to be.
    Reset,
}

/// State of MSI-X.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msix {
    /// Interrupts are messages.
    pub is_enabled: bool,
    /// All vectors are masked, whatever their entries say.
    pub is_masked: bool,
}

/// Configuration space of one function.
pub struct ConfigSpace {
    serial: u64,
    bytes: Box<[u8; CONFIG_BYTES]>,
}

impl ConfigSpace {
    /// Makes the configuration space of a function with a serial number, as it is after a reset.
    pub fn new(serial: u64) -> ConfigSpace {
        ConfigSpace { serial, bytes: Box::new(config_image(serial)) }
    }

    /// Restores every bit.
    pub fn reset(&mut self) {
        *self.bytes = config_image(self.serial);
    }

    /// The whole space, as software reads it.
    pub fn bytes(&self) -> &[u8; CONFIG_BYTES] {
        &self.bytes
    }

    /// Reads bytes from an offset on.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = place(offset, index).map_or(0xff, |place| self.bytes[place]);
        }
    }

    /// Writes bytes from an offset on, usually 1, 2 or 4.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Effect {
        let power = self.power_state();
        let mut asked = 0;
        for (index, byte) in from.iter().enumerate() {
            let Some(place) = place(offset, index) else { continue };
            let mask = WRITE_MASK[place];
            self.bytes[place] = self.bytes[place] & !mask | byte & mask;
            if let Some(half @ 0..2) = place.checked_sub(DEVICE_CONTROL.into()) {
                asked |= u16::from(*byte) << (8 * half);
            }
        }
        if ![0, D3_HOT].contains(&self.power_state()) {
            let kept = self.word(POWER_CONTROL) & !POWER_STATE | power;
            self.bytes[usize::from(POWER_CONTROL)..][..2].copy_from_slice(&kept.to_le_bytes());
        }
        if asked & DEVICE_CONTROL_RESET == 0 {
            return Effect::Stored;
        }
        self.reset();
        Effect::Reset
    }

    /// Returns whether the BARs answer.
    pub fn memory_enabled(&self) -> bool {
        self.word(COMMAND) & COMMAND_MEMORY != 0 && self.power_state() == 0
    }

    /// Returns whether the card may reach memory and raise interrupts.
    pub fn bus_master(&self) -> bool {
        self.word(COMMAND) & COMMAND_BUS_MASTER != 0 && self.power_state() == 0
    }

    /// State of MSI-X.
    pub fn msix(&self) -> Msix {
        let control = self.word(MSIX_CONTROL);
        Msix { is_enabled: control & MSIX_ENABLE != 0, is_masked: control & MSIX_MASK_ALL != 0 }
    }

    /// Address that software gave a BAR, by the index of its lower half, or `None` if there is no such BAR.
    pub fn bar_address(&self, index: u8) -> Option<u64> {
        bar(index)?;
        let offset = usize::from(BAR_REGISTERS) + 4 * usize::from(index);
        let mut halves = [0; 8];
        halves.copy_from_slice(&self.bytes[offset..offset + 8]);
        Some(u64::from_le_bytes(halves) & !0xf)
    }

    fn power_state(&self) -> u16 {
        self.word(POWER_CONTROL) & POWER_STATE
    }

    fn word(&self, offset: u16) -> u16 {
        let offset = usize::from(offset);
        u16::from_le_bytes([self.bytes[offset], self.bytes[offset + 1]])
    }
}

/// Place of a byte of an access in the space.
fn place(offset: u64, index: usize) -> Option<usize> {
    let place = usize::try_from(offset).ok()?.checked_add(index)?;
    (place < CONFIG_BYTES).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::pci::{BARS, SERIAL_NUMBER, VENDOR};

    const SERIAL: u64 = 0x0123_4567_89ab_cdef;

    fn read<const N: usize>(space: &ConfigSpace, offset: u16) -> [u8; N] {
        let mut bytes = [0; N];
        space.read(offset.into(), &mut bytes);
        bytes
    }

    fn write(space: &mut ConfigSpace, offset: u16, bytes: &[u8]) {
        assert_eq!(space.write(offset.into(), bytes), Effect::Stored);
    }

    #[test]
    fn identity_is_read_and_never_written() {
        let mut space = ConfigSpace::new(SERIAL);
        write(&mut space, 0, &[0; 4]);
        assert_eq!(read(&space, 0), VENDOR.to_le_bytes());
        write(&mut space, SERIAL_NUMBER, &[0; 8]);
        assert_eq!(read(&space, SERIAL_NUMBER), SERIAL.to_le_bytes());
    }

    #[test]
    fn accesses_of_every_size_change_only_their_bytes() {
        for (size, expected) in [(1, 0x46), (2, 0x0546), (4, 0x0546)] {
            let mut space = ConfigSpace::new(SERIAL);
            write(&mut space, COMMAND, &[0xff; 4][..size]);
            assert_eq!(read(&space, COMMAND), u16::to_le_bytes(expected), "{size}");
            assert_eq!(read::<2>(&space, COMMAND + 2), [0x10, 0], "the status is read-only");
        }
    }

    #[test]
    fn firmware_finds_sizes_and_sets_addresses_of_bars() {
        let mut space = ConfigSpace::new(SERIAL);
        for (number, bar) in BARS.iter().enumerate() {
            let offset = BAR_REGISTERS + 4 * u16::from(bar.index);
            write(&mut space, offset, &[0xff; 4]);
            write(&mut space, offset + 4, &[0xff; 4]);
            let ones = u64::from_le_bytes(read(&space, offset));
            assert_eq!((!(ones & !0xf)).wrapping_add(1), bar.bytes);
            assert_eq!(ones & 0xf, 0b0100, "the kind stays");
            let address = 0x8_0000_0000 + ((number as u64) << 24);
            write(&mut space, offset, &address.to_le_bytes()[..4]);
            write(&mut space, offset + 4, &address.to_le_bytes()[4..]);
            assert_eq!(space.bar_address(bar.index), Some(address));
        }
        assert_eq!(space.bar_address(1), None, "an upper half is no BAR");
    }

    #[test]
    fn memory_and_bus_master_are_separate_and_need_d0() {
        let mut space = ConfigSpace::new(SERIAL);
        for (command, expected) in [(0, [false; 2]), (2, [true, false]), (4, [false, true]), (6, [true; 2])] {
            write(&mut space, COMMAND, &[command]);
            assert_eq!([space.memory_enabled(), space.bus_master()], expected, "{command}");
        }
        // D1 and D2 are not implemented: writing them leaves the state.
        for (state, awake) in [(1, true), (2, true), (3, false), (1, false), (0, true)] {
            write(&mut space, POWER_CONTROL, &[state]);
            assert_eq!([space.memory_enabled(), space.bus_master()], [awake; 2], "D{state}");
        }
    }

    #[test]
    fn msix_is_enabled_and_masked_by_its_control_register() {
        let mut space = ConfigSpace::new(SERIAL);
        for (high, is_enabled, is_masked) in
            [(0x00, false, false), (0x40, false, true), (0x80, true, false), (0xc0, true, true)]
        {
            write(&mut space, MSIX_CONTROL, &[0xff, high]);
            assert_eq!(space.msix(), Msix { is_enabled, is_masked });
            assert_eq!(read(&space, MSIX_CONTROL), [63, high], "the number of vectors is read-only");
        }
    }

    #[test]
    fn a_function_level_reset_restores_everything_and_reads_as_zero() {
        let fresh = *ConfigSpace::new(SERIAL).bytes();
        let control = u64::from(DEVICE_CONTROL);
        for (offset, bytes) in
            [(control, &[0x10, 0x80][..]), (control + 1, &[0x80]), (control - 2, &[0, 0, 0, 0xa0])]
        {
            let mut space = ConfigSpace::new(SERIAL);
            write(&mut space, COMMAND, &[6]);
            write(&mut space, BAR_REGISTERS, &[0xff; 4]);
            assert_eq!(space.write(offset, bytes), Effect::Reset);
            assert_eq!(space.bytes(), &fresh);
        }
        let mut space = ConfigSpace::new(SERIAL);
        assert_eq!(space.write(control, &[0x0f, 0x70]), Effect::Stored);
        assert_eq!(read(&space, DEVICE_CONTROL), [0x0f, 0x70]);
    }

    #[test]
    fn an_access_beyond_the_space_finds_nothing() {
        let mut space = ConfigSpace::new(SERIAL);
        for offset in [4095, 4096, u64::MAX] {
            assert_eq!(space.write(offset, &[0; 4]), Effect::Stored);
            let mut bytes = [0x5a; 4];
            space.read(offset, &mut bytes);
            assert_eq!(bytes, if offset == 4095 { [0, 0xff, 0xff, 0xff] } else { [0xff; 4] });
        }
    }
}
