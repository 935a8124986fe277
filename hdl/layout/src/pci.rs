#![doc = include_str!("manual/pci.md")]

use crate::doorbell::{PUSH_PAGE_BYTES, PUSH_PAGES_OFFSET};
use crate::limits::{
    DOORBELL_PAGE_BYTES, DOORBELL_PAGES_LOG2_MAX, HOST_REQUEST_BYTES_MAX, INTERRUPT_VECTORS_MAX,
};
use crate::registers::{BAR0_BYTES, LAYOUT_MAJOR};

/// Vendor: the one that lends its numbers to experiments.
pub const VENDOR: u16 = 0x1af4;
/// Device, of the range for experiments.
pub const DEVICE: u16 = 0x10f0;
/// Revision: the major version of the layout.
pub const REVISION: u8 = LAYOUT_MAJOR as u8;
/// Class: network controller, Ethernet controller, no programming interface.
pub const CLASS: u32 = 0x02_00_00;
/// Vendor of the subsystem.
pub const SUBSYSTEM_VENDOR: u16 = VENDOR;
/// Subsystem: the letters `rn`. Tells the card from other experiments with this device number.
pub const SUBSYSTEM: u16 = u16::from_be_bytes(*b"rn");

/// Bytes of the whole configuration space.
pub const CONFIG_BYTES: usize = 4096;

/// A BAR of the function: 64 bits, not prefetchable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Index of its lower half among the six BAR registers.
    pub index: u8,
    /// Size in bytes, a power of two.
    pub bytes: u64,
    /// Name in `snake_case`.
    pub name: &'static str,
    /// What is in it.
    pub meaning: &'static str,
}

/// The BAR of the registers.
pub const REGISTER_BAR: u8 = 0;
/// The BAR of the doorbell pages.
pub const DOORBELL_BAR: u8 = 2;
/// The BAR of MSI-X.
pub const MSIX_BAR: u8 = 4;

/// Size of the BAR of the registers, in bytes.
pub const REGISTER_BAR_BYTES: u64 = BAR0_BYTES as u64;
/// Size of the BAR of the doorbell pages and the push pages, in bytes. A card with fewer pages ignores and counts doorbells behind
/// them.
pub const DOORBELL_BAR_BYTES: u64 = PUSH_PAGES_OFFSET + (PUSH_PAGE_BYTES << DOORBELL_PAGES_LOG2_MAX);
/// Size of the BAR of MSI-X, in bytes: a page for the table and one for the pending bits.
pub const MSIX_BAR_BYTES: u64 = 0x2000;

/// Offset of the table of MSI-X in its BAR.
pub const MSIX_TABLE_OFFSET: u32 = 0;
/// Offset of the pending bits of MSI-X in its BAR, on a page of their own.
pub const MSIX_PENDING_OFFSET: u32 = 0x1000;
/// Bytes of an entry of the table of MSI-X: address, data, and a word whose bit 0 masks the vector.
pub const MSIX_ENTRY_BYTES: u32 = 16;

/// The BARs, in ascending order.
pub const BARS: [Bar; 3] = [
    Bar {
        index: REGISTER_BAR,
        bytes: REGISTER_BAR_BYTES,
        name: "registers",
        meaning: "Registers and counters.",
    },
    Bar {
        index: DOORBELL_BAR,
        bytes: DOORBELL_BAR_BYTES,
        name: "doorbells",
        meaning: "Doorbell pages, one for each process, and behind them the push pages.",
    },
    Bar {
        index: MSIX_BAR,
        bytes: MSIX_BAR_BYTES,
        name: "msix",
        meaning: "Table and pending bits of MSI-X, each on a page of its own.",
    },
];

/// Returns a BAR by its index, or `None` if the function has no such BAR.
pub const fn bar(index: u8) -> Option<&'static Bar> {
    let mut place = 0;
    while place < BARS.len() {
        if BARS[place].index == index {
            return Some(&BARS[place]);
        }
        place += 1;
    }
    None
}

/// Offset of the capability of power management.
const POWER: u16 = 0x40;
/// Offset of the capability of MSI-X.
const MSIX: u16 = 0x50;
/// Offset of the capability of PCI Express.
const EXPRESS: u16 = 0x60;
/// Offset of the extended capability with the serial number.
const SERIAL: u16 = 0x100;

/// Offset of the command register.
pub const COMMAND: u16 = 0x04;
/// Bit of the command register: the BARs answer.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Bit of the command register: the card may reach memory and raise interrupts.
pub const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// Offset of the first of the six BAR registers.
pub const BAR_REGISTERS: u16 = 0x10;
/// Offset of the control and status register of power management.
pub const POWER_CONTROL: u16 = POWER + 4;
/// Bits of the register of power management that hold the state: 0 is D0, 3 is D3hot, and no other is implemented.
pub const POWER_STATE: u16 = 0b11;
/// Offset of the control register of MSI-X.
pub const MSIX_CONTROL: u16 = MSIX + 2;
/// Bit of the control register of MSI-X: all vectors are masked.
pub const MSIX_MASK_ALL: u16 = 1 << 14;
/// Bit of the control register of MSI-X: MSI-X is enabled.
pub const MSIX_ENABLE: u16 = 1 << 15;
/// Offset of the capabilities of the device.
pub const DEVICE_CAPABILITIES: u16 = EXPRESS + 4;
/// Bit of the capabilities of the device: the function can be reset alone.
pub const FUNCTION_LEVEL_RESET: u32 = 1 << 28;
/// Offset of the control register of the device.
pub const DEVICE_CONTROL: u16 = EXPRESS + 8;
/// Bit of the control register of the device: writing one resets the function.
pub const DEVICE_CONTROL_RESET: u16 = 1 << 15;
/// Offset of the lower half of the serial number; the upper half follows.
pub const SERIAL_NUMBER: u16 = SERIAL + 4;

/// A register of the configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigRegister {
    /// Offset in the configuration space.
    pub offset: u16,
    /// Size in bytes: 1, 2, 3 or 4.
    pub bytes: u8,
    /// Name in `snake_case`.
    pub name: &'static str,
    /// Value after a reset of the function.
    pub value: u32,
    /// Bits that hold what software writes.
    pub writable: u32,
    /// Bits that act when software writes one, and read as zero.
    pub acting: u32,
    /// Meaning, as full sentences.
    pub meaning: &'static str,
}

impl ConfigRegister {
    const fn fixed(offset: u16, bytes: u8, name: &'static str, value: u32, meaning: &'static str) -> Self {
        Self { offset, bytes, name, value, writable: 0, acting: 0, meaning }
    }

    const fn writable(self, writable: u32) -> Self {
        Self { writable, ..self }
    }
}

const fn fixed(
    offset: u16,
    bytes: u8,
    name: &'static str,
    value: u32,
    meaning: &'static str,
) -> ConfigRegister {
    ConfigRegister::fixed(offset, bytes, name, value, meaning)
}

/// Lower half of a BAR: 64 bits wide, not prefetchable. Address bits inside the BAR are read-only, which tells its size.
const fn low_half(index: u8, name: &'static str, meaning: &'static str) -> ConfigRegister {
    let bytes = match bar(index) {
        Some(bar) => bar.bytes,
        None => panic!("the function has no such BAR"),
    };
    let offset = BAR_REGISTERS + 4 * index as u16;
    fixed(offset, 4, name, 0b100, meaning).writable(!(bytes - 1) as u32)
}

/// Upper half of a BAR.
const fn high_half(index: u8, name: &'static str) -> ConfigRegister {
    let offset = BAR_REGISTERS + 4 * index as u16 + 4;
    fixed(offset, 4, name, 0, "Upper half of the address.").writable(u32::MAX)
}

/// Header of a capability: its number, and the offset of the next.
const fn header(number: u16, next: u16) -> u32 {
    (number | next << 8) as u32
}

/// Speed of 8 GT/s, as link registers encode it.
const SPEED_8_GT: u32 = 3;
/// Sixteen lanes, as link registers encode them.
const LANES_16: u32 = 16 << 4;
/// Sizes of payloads and requests, as log2 of multiples of 128 bytes.
const REQUEST_CODE: u32 = HOST_REQUEST_BYTES_MAX.ilog2() - 7;

/// Registers of the configuration space, in ascending order.
pub const CONFIG_REGISTERS: &[ConfigRegister] = &[
    fixed(0x00, 2, "vendor", VENDOR as u32, "Vendor."),
    fixed(0x02, 2, "device", DEVICE as u32, "Device."),
    fixed(COMMAND, 2, "command", 0, "Bit 1: the BARs answer. Bit 2: bus master. Bits 6 and 8: reports of errors. Bit 10: no effect.")
        .writable((COMMAND_MEMORY | COMMAND_BUS_MASTER) as u32 | 1 << 6 | 1 << 8 | 1 << 10),
    fixed(0x06, 2, "status", 1 << 4, "Bit 4: there is a list of capabilities."),
    fixed(0x08, 1, "revision", REVISION as u32, "Major version of the layout."),
    fixed(0x09, 3, "class", CLASS, "Ethernet controller."),
    fixed(0x0c, 1, "cache_line", 0, "No effect.").writable(0xff),
    low_half(REGISTER_BAR, "bar_0", "Lower half of the address of the registers."),
    high_half(REGISTER_BAR, "bar_1"),
    low_half(DOORBELL_BAR, "bar_2", "Lower half of the address of the doorbell pages."),
    high_half(DOORBELL_BAR, "bar_3"),
    low_half(MSIX_BAR, "bar_4", "Lower half of the address of table and pending bits of MSI-X."),
    high_half(MSIX_BAR, "bar_5"),
    fixed(0x2c, 2, "subsystem_vendor", SUBSYSTEM_VENDOR as u32, "Vendor of the subsystem."),
    fixed(0x2e, 2, "subsystem", SUBSYSTEM as u32, "Subsystem: the letters `rn`."),
    fixed(0x34, 1, "capabilities", POWER as u32, "Offset of the first capability."),
    fixed(0x3c, 1, "interrupt_line", 0, "No effect: there is no INTx.").writable(0xff),
    fixed(POWER, 2, "power_header", header(0x01, MSIX), "Capability of power management, which every function has."),
    fixed(POWER + 2, 2, "power_capabilities", 3, "Version 3; D0 and D3hot, no PME."),
    fixed(POWER_CONTROL, 2, "power_control", 1 << 3, "Bits 1:0: state, D0 or D3hot. Bit 3: leaving D3hot resets nothing.")
        .writable(POWER_STATE as u32),
    fixed(MSIX, 2, "msix_header", header(0x11, EXPRESS), "Capability of MSI-X."),
    fixed(MSIX_CONTROL, 2, "msix_control", INTERRUPT_VECTORS_MAX - 1, "Bits 10:0: vectors less one. Bit 14: all are masked. Bit 15: enabled.")
        .writable((MSIX_MASK_ALL | MSIX_ENABLE) as u32),
    fixed(MSIX + 4, 4, "msix_table", MSIX_TABLE_OFFSET | MSIX_BAR as u32, "Place of the table: bits 2:0 the BAR, the others the offset."),
    fixed(MSIX + 8, 4, "msix_pending", MSIX_PENDING_OFFSET | MSIX_BAR as u32, "Place of the pending bits."),
    fixed(EXPRESS, 2, "express_header", header(0x10, 0), "Capability of PCI Express, the last."),
    fixed(EXPRESS + 2, 2, "express_capabilities", 2, "Version 2; an endpoint."),
    fixed(
        DEVICE_CAPABILITIES,
        4,
        "device_capabilities",
        FUNCTION_LEVEL_RESET | 1 << 15 | 1 << 5 | REQUEST_CODE,
        "Payloads of up to 512 bytes, tags of 8 bits, error reporting by role, function-level reset.",
    ),
    ConfigRegister {
        acting: DEVICE_CONTROL_RESET as u32,
        ..fixed(
            DEVICE_CONTROL,
            2,
            "device_control",
            REQUEST_CODE << 12,
            "Bits 3:0: reports of errors. Bits 7:5: largest payload. Bit 8: tags of 8 bits. Bits 14:12: largest read request. Bit 15: function-level reset. The card asks for neither relaxed order nor no snoop.",
        )
        .writable(0x71ef)
    },
    fixed(EXPRESS + 0x0c, 4, "link_capabilities", 1 << 22 | LANES_16 | SPEED_8_GT, "8 GT/s, 16 lanes, no power states."),
    fixed(EXPRESS + 0x10, 2, "link_control", 0, "Bit 3: completion boundary. Bit 6: common clock. Bit 7: long training. No effect.")
        .writable(1 << 3 | 1 << 6 | 1 << 7),
    fixed(EXPRESS + 0x12, 2, "link_status", LANES_16 | SPEED_8_GT, "8 GT/s, 16 lanes. A board reports what was negotiated."),
    fixed(EXPRESS + 0x24, 4, "device_capabilities_2", 1 << 4, "Time-outs of completions can be disabled."),
    fixed(EXPRESS + 0x28, 2, "device_control_2", 0, "Bit 4: no time-out of completions by the endpoint block; the register `host_limit` is not concerned.")
        .writable(1 << 4),
    fixed(EXPRESS + 0x2c, 4, "link_capabilities_2", 0b1110, "2.5, 5 and 8 GT/s."),
    fixed(EXPRESS + 0x30, 2, "link_control_2", SPEED_8_GT, "Bits 3:0: target speed.").writable(0xf),
    fixed(SERIAL, 4, "serial_header", 1 << 16 | 0x0003, "Extended capability of the serial number, the only one."),
    fixed(SERIAL_NUMBER, 4, "serial_low", 0, "Lower half of the serial number, an EUI-64. Each card has its own."),
    fixed(SERIAL_NUMBER + 4, 4, "serial_high", 0, "Upper half of the serial number."),
];

/// Puts the lowest bytes of a number at an offset, little-endian.
const fn put(image: &mut [u8; CONFIG_BYTES], offset: u16, bytes: u8, value: u32) {
    let mut index = 0;
    while index < bytes {
        image[(offset + index as u16) as usize] = (value >> (8 * index)) as u8;
        index += 1;
    }
}

/// Returns the configuration space after a reset of a card with this serial number.
pub const fn config_image(serial: u64) -> [u8; CONFIG_BYTES] {
    let mut image = [0; CONFIG_BYTES];
    let mut index = 0;
    while index < CONFIG_REGISTERS.len() {
        let register = &CONFIG_REGISTERS[index];
        put(&mut image, register.offset, register.bytes, register.value);
        index += 1;
    }
    put(&mut image, SERIAL_NUMBER, 4, serial as u32);
    put(&mut image, SERIAL_NUMBER + 4, 4, (serial >> 32) as u32);
    image
}

/// Returns for each byte of the configuration space the bits that hold what software writes.
pub const fn config_write_mask() -> [u8; CONFIG_BYTES] {
    let mut mask = [0; CONFIG_BYTES];
    let mut index = 0;
    while index < CONFIG_REGISTERS.len() {
        let register = &CONFIG_REGISTERS[index];
        put(&mut mask, register.offset, register.bytes, register.writable);
        index += 1;
    }
    mask
}

// Registers are in ascending order, apart from each other, inside the space, and wide enough for their bits. A bit has one use.
const _: () = {
    let mut index = 0;
    let mut end = 0;
    while index < CONFIG_REGISTERS.len() {
        let ConfigRegister { offset, bytes, value, writable, acting, .. } = CONFIG_REGISTERS[index];
        assert!(offset >= end && bytes >= 1 && bytes <= 4, "registers lie apart");
        end = offset + bytes as u16;
        assert!(bytes == 4 || (value | writable | acting) >> (8 * bytes) == 0, "the bits fit the register");
        assert!(writable & acting == 0 && value & acting == 0, "a bit has one use");
        index += 1;
    }
    assert!(end as usize <= CONFIG_BYTES);
    let mut index = 0;
    while index < BARS.len() {
        assert!(
            BARS[index].bytes.is_power_of_two() && BARS[index].bytes >= 4096 && BARS[index].bytes < 1 << 32
        );
        index += 1;
    }
    assert!(HOST_REQUEST_BYTES_MAX == 128 << REQUEST_CODE);
    assert!(
        (INTERRUPT_VECTORS_MAX * MSIX_ENTRY_BYTES) as u64 <= DOORBELL_PAGE_BYTES,
        "the table fits its page"
    );
    assert!((INTERRUPT_VECTORS_MAX.div_ceil(8) + MSIX_PENDING_OFFSET) as u64 <= MSIX_BAR_BYTES);
};
