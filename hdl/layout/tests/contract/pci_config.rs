//! Reads the configuration space as `pci-driver` does, which knows nothing of the tables.

use pci_driver::config::PciConfig;
use pci_driver::config::caps::{
    Capability, MsiXCapability, PciExpressCapability, PciPowerManagementCapability,
};
use pci_driver::config::ext_caps::ExtendedCapability;
use pci_driver::regions::{AsPciSubregion, BackedByPciSubregion, PciMemoryRegion, PciRegion};
use rnic_layout::limits::{DOORBELL_PAGE_BYTES, INTERRUPT_VECTORS_MAX};
use rnic_layout::pci::{BARS, CONFIG_BYTES, CONFIG_REGISTERS, config_image, config_write_mask};
use rnic_layout::registers::LAYOUT_MAJOR;

const SERIAL: u64 = 0x0200_00ff_fe00_0001;

#[test]
fn another_reader_finds_the_identity() {
    let image = config_image(SERIAL);
    let region = PciMemoryRegion::new(&image);
    let config = PciConfig::backed_by(&region);
    let id = |register: pci_driver::regions::structured::PciRegisterRo<'_, u16>| register.read().unwrap();
    assert_eq!((id(config.vendor_id()), id(config.device_id())), (0x1af4, 0x10f0));
    assert_eq!((id(config.subsystem_vendor_id()), id(config.subsystem_id())), (0x1af4, 0x726e));
    assert_eq!(config.revision_id().read().unwrap(), LAYOUT_MAJOR as u8);
    // The specification has the programming interface first and the class last; this reader swaps the names of the two.
    assert_eq!([0x09, 0x0a, 0x0b].map(|offset| region.read_u8(offset).unwrap()), [0, 0, 2]);
    assert_eq!(config.header_type().header_layout().read().unwrap(), 0);
    assert!(!config.header_type().multi_function_device().read().unwrap());
    assert_eq!(config.interrupt_pin().read().unwrap(), 0, "there is no INTx");
    let command = config.command();
    assert!(!command.memory_space_enable().read().unwrap() && !command.bus_master_enable().read().unwrap());
}

#[test]
fn another_reader_finds_the_capabilities() {
    let image = config_image(SERIAL);
    let region = PciMemoryRegion::new(&image);
    let config = PciConfig::backed_by(&region);
    let capabilities = config.capabilities().unwrap();
    let number =
        |header: pci_driver::config::caps::CapabilityHeader<'_>| header.capability_id().read().unwrap();
    let found: Vec<u8> = capabilities.iter().map(|capability| number(capability.header())).collect();
    assert_eq!(found, [0x01, 0x11, 0x10], "power management, MSI-X, PCI Express");
    assert_eq!(capabilities.of_type::<PciPowerManagementCapability<'_>>().unwrap().count(), 1);

    let express: Vec<_> = capabilities.of_type::<PciExpressCapability<'_>>().unwrap().collect();
    let device = express[0].device_capabilities();
    assert!(device.function_level_reset_capability().read().unwrap());
    assert!(device.role_based_error_reporting().read().unwrap());
    assert_eq!(device.max_payload_size_supported().read().unwrap(), 2, "512 bytes");

    let msix: Vec<_> = capabilities.of_type::<MsiXCapability<'_>>().unwrap().collect();
    let msix = msix[0].as_subregion();
    // The specification: control at 2, with the number of vectors less one; then BAR and offset of table and pending bits.
    assert_eq!(u32::from(msix.read_le_u16(2).unwrap()) + 1, INTERRUPT_VECTORS_MAX);
    let places = [4, 8].map(|offset| msix.read_le_u32(offset).unwrap());
    let [table, pending] = places.map(|place| u64::from(place & !7));
    assert_eq!(places.map(|place| place & 7), [4, 4]);
    assert!(table / DOORBELL_PAGE_BYTES != pending / DOORBELL_PAGE_BYTES, "pages of their own");
    assert!(pending < BARS[2].bytes);
}

#[test]
fn another_reader_finds_the_serial_number() {
    let image = config_image(SERIAL);
    let region = PciMemoryRegion::new(&image);
    let extended = PciConfig::backed_by(&region).extended_capabilities().unwrap();
    let found: Vec<_> = extended.iter().collect();
    let header = found[0].header();
    assert_eq!((found.len(), header.capability_id().read().unwrap()), (1, 0x0003));
    let halves = [0x104, 0x108].map(|offset| u64::from(region.read_le_u32(offset).unwrap()));
    assert_eq!(halves[1] << 32 | halves[0], SERIAL);
}

/// As firmware finds the size of a BAR: it writes all ones and looks at which bits hold them.
#[test]
fn bars_tell_their_sizes() {
    let (image, mask) = (config_image(0), config_write_mask());
    let word = |bytes: &[u8; CONFIG_BYTES], offset: usize| {
        u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap())
    };
    let mut found = Vec::new();
    for bar in [0, 2, 4] {
        let offset = 0x10 + 4 * bar;
        assert_eq!(word(&image, offset) & 0xf, 0b0100, "64 bits, not prefetchable");
        let ones = u64::from(word(&mask, offset + 4)) << 32 | u64::from(word(&mask, offset));
        found.push((bar as u8, (!ones).wrapping_add(1)));
    }
    assert_eq!(found, [(0, 16 << 10), (2, 16 << 20), (4, 8 << 10)]);
    assert_eq!(found, BARS.map(|bar| (bar.index, bar.bytes)));
}

#[test]
fn read_only_bits_and_bits_that_act_hold_nothing() {
    let mask = config_write_mask();
    for register in CONFIG_REGISTERS {
        let held = (0..register.bytes)
            .map(|byte| u32::from(mask[usize::from(register.offset + u16::from(byte))]) << (8 * byte));
        assert_eq!(held.sum::<u32>(), register.writable, "{}", register.name);
    }
    let listed: usize = CONFIG_REGISTERS.iter().map(|register| usize::from(register.bytes)).sum();
    assert!(listed < 200 && mask.iter().filter(|&&byte| byte != 0).count() < 50);
}

/// The bytes that a card shows, and the bits that hold what is written: pinned, since others rely on them.
#[test]
fn the_image_is_the_one_that_was_reviewed() {
    let (image, mask) = (config_image(SERIAL), config_write_mask());
    let mut text = String::new();
    for (line, (bytes, mask)) in image.chunks(16).zip(mask.chunks(16)).enumerate() {
        if bytes.iter().chain(mask).any(|&byte| byte != 0) {
            text += &format!("{:03x}: {}  {}\n", line * 16, hex::encode(bytes), hex::encode(mask));
        }
    }
    insta::assert_snapshot!(text);
}
