//! What a server says about its device: regions and interrupts, none of which is believed unseen.

use super::client::Client;
use super::wire::{
    Area, CONFIG_REGION, Capability, Command, DEVICE_IS_PCI, DEVICE_RESETS, DeviceInfo, IrqInfo, MSIX_IRQS,
    REGION_CAPABILITIES, REGION_READS, REGION_WRITES, RegionInfo, SPARSE_AREAS, SparseAreas,
};
use crate::server_error::ServerError;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the answer about a region without capabilities.
const INFO_BYTES: usize = size_of::<RegionInfo>();
/// Longest answer about a region: room for 250 areas.
const INFO_BYTES_MAX: usize = 4096;
/// Largest region, in bytes.
const REGION_BYTES_MAX: u64 = 1 << 40;
/// Regions and interrupts that a PCI function has by the specification, and room for what later ones add.
const COUNT_MAX: u32 = 64;
/// Most vectors of MSI-X.
const VECTORS_MAX: u32 = 2048;
/// Largest configuration space, which is that of PCI Express.
const CONFIG_BYTES_MAX: u64 = 4096;
/// Smallest configuration space.
const CONFIG_BYTES_MIN: u64 = 256;

/// A region of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Region {
    /// Size in bytes; zero if the device has no such region.
    pub(super) bytes: u64,
    /// Areas that the server could map into this process: offset and end. This driver does not need them.
    pub(super) areas: Vec<(u64, u64)>,
}

/// A device, as its server describes it.
pub(super) struct Described {
    pub(super) is_resettable: bool,
    /// Regions of the BARs 0 to 5.
    pub(super) bars: [Region; 6],
    /// Bytes of the configuration space.
    pub(super) config_bytes: usize,
    /// Number of interrupts of MSI-X.
    pub(super) vectors: u32,
}

/// Asks for everything that the driver needs to know about a device.
pub(super) fn describe(client: &mut Client) -> Result<Described, ServerError> {
    let ask = DeviceInfo { argsz: size_of::<DeviceInfo>() as u32, ..DeviceInfo::default() };
    let info: DeviceInfo = client.ask(Command::DeviceInfo, ask.as_bytes(), &[])?;
    let kind = Command::DeviceInfo;
    if info.flags & DEVICE_IS_PCI == 0 {
        return Err(client.malformed(kind, "the flags", info.flags.into(), "those of a PCI function"));
    }
    for (field, found, least) in [
        ("the number of regions", info.regions, CONFIG_REGION + 1),
        ("the number of interrupt indices", info.irqs, MSIX_IRQS + 1),
    ] {
        if !(least..=COUNT_MAX).contains(&found) {
            return Err(client.malformed(
                kind,
                field,
                found.into(),
                "that of a PCI function, and 64 at most",
            ));
        }
    }
    let mut bars: [Region; 6] = Default::default();
    for (index, bar) in (0..).zip(&mut bars) {
        *bar = region(client, index)?;
        if bar.bytes != 0 && !bar.bytes.is_power_of_two() {
            return Err(client.malformed(
                Command::RegionInfo,
                "the size of a BAR",
                bar.bytes,
                "a power of two",
            ));
        }
    }
    let config = region(client, CONFIG_REGION)?;
    if ![CONFIG_BYTES_MIN, CONFIG_BYTES_MAX].contains(&config.bytes) {
        let field = "the size of the configuration space";
        return Err(client.malformed(Command::RegionInfo, field, config.bytes, "0x100 or 0x1000"));
    }
    let ask = IrqInfo { argsz: size_of::<IrqInfo>() as u32, index: MSIX_IRQS, ..IrqInfo::default() };
    let irqs: IrqInfo = client.ask(Command::IrqInfo, ask.as_bytes(), &[])?;
    if irqs.index != MSIX_IRQS {
        return Err(client.malformed(
            Command::IrqInfo,
            "the index",
            irqs.index.into(),
            "that of the request",
        ));
    }
    if irqs.count > VECTORS_MAX {
        return Err(client.malformed(
            Command::IrqInfo,
            "the number of vectors",
            irqs.count.into(),
            "0x800 at most",
        ));
    }
    let is_resettable = info.flags & DEVICE_RESETS != 0;
    Ok(Described { is_resettable, bars, config_bytes: config.bytes as usize, vectors: irqs.count })
}

/// Asks for a region, and a second time if its capabilities need more room.
fn region(client: &mut Client, index: u32) -> Result<Region, ServerError> {
    let kind = Command::RegionInfo;
    let mut room = INFO_BYTES;
    loop {
        let ask = RegionInfo { argsz: room as u32, index, ..RegionInfo::default() };
        let answer = client.request(kind, &[ask.as_bytes()], &[], INFO_BYTES..=room)?.to_vec();
        let (info, _) = RegionInfo::read_from_prefix(&answer).expect("the length was checked");
        if info.index != index {
            return Err(client.malformed(kind, "the index", info.index.into(), "that of the request"));
        }
        if info.bytes > REGION_BYTES_MAX {
            return Err(client.malformed(kind, "the size of a region", info.bytes, "0x10000000000 at most"));
        }
        let is_usable = info.flags & (REGION_READS | REGION_WRITES) == REGION_READS | REGION_WRITES;
        if info.bytes != 0 && !is_usable {
            let (field, found) = ("the flags of a region", info.flags.into());
            return Err(client.malformed(kind, field, found, "readable and writable"));
        }
        let needed = info.argsz as usize;
        if info.flags & REGION_CAPABILITIES == 0 || needed <= INFO_BYTES {
            return Ok(Region { bytes: info.bytes, areas: Vec::new() });
        }
        if needed > INFO_BYTES_MAX || room != INFO_BYTES && answer.len() != needed {
            let (field, expected) = ("the size of the capabilities", "0x1000 at most, and the same twice");
            return Err(client.malformed(kind, field, info.argsz.into(), expected));
        }
        if room == INFO_BYTES {
            room = needed;
            continue;
        }
        return match areas(&answer, info.capabilities, info.bytes) {
            Ok(areas) => Ok(Region { bytes: info.bytes, areas }),
            Err((field, found, expected)) => Err(client.malformed(kind, field, found, expected)),
        };
    }
}

/// What is wrong in a list of capabilities: the field, its value, and what it should be.
type Wrong = (&'static str, u64, &'static str);

/// Areas that can be mapped, from a list of capabilities. `answer` is the whole body, which offsets count from.
fn areas(answer: &[u8], first: u32, region_bytes: u64) -> Result<Vec<(u64, u64)>, Wrong> {
    let mut areas = Vec::new();
    let (mut place, mut next) = (0, first as usize);
    while next != 0 {
        if next <= place || next < INFO_BYTES {
            return Err(("the offset of a capability", next as u64, "behind the one before"));
        }
        place = next;
        let wrong = ("the offset of a capability", place as u64, "inside the answer");
        let bytes = answer.get(place..).ok_or(wrong)?;
        let (capability, bytes) = Capability::read_from_prefix(bytes).map_err(|_| wrong)?;
        next = capability.next as usize;
        if capability.id != SPARSE_AREAS {
            continue;
        }
        let (list, mut bytes) = SparseAreas::read_from_prefix(bytes).map_err(|_| wrong)?;
        for _ in 0..list.count {
            let wrong = ("the number of areas", list.count.into(), "that of the areas that follow");
            let (area, rest) = Area::read_from_prefix(bytes).map_err(|_| wrong)?;
            bytes = rest;
            let end = area.offset.checked_add(area.bytes).filter(|&end| end <= region_bytes);
            let end = end.ok_or(("the offset of an area", area.offset, "inside its region"))?;
            areas.push((area.offset, end));
        }
    }
    Ok(areas)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with one capability of areas at an offset, and what follows.
    fn answer(id: u16, next: u32, count: u32, listed: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; INFO_BYTES];
        bytes.extend_from_slice(Capability { id, version: 1, next }.as_bytes());
        bytes.extend_from_slice(SparseAreas { count, reserved: 0 }.as_bytes());
        listed.iter().for_each(|&(offset, bytes_)| {
            bytes.extend_from_slice(Area { offset, bytes: bytes_ }.as_bytes());
        });
        bytes
    }

    #[test]
    fn areas_of_a_region_are_read() {
        let bytes = answer(1, 0, 2, &[(0, 0x1000), (0x2000, 0x1000)]);
        assert_eq!(areas(&bytes, 32, 0x3000), Ok(vec![(0, 0x1000), (0x2000, 0x3000)]));
        assert_eq!(areas(&bytes, 0, 0x3000), Ok(vec![]), "there is no list");
        let other = answer(9, 0, 2, &[(0, 0x1000), (0x2000, 0x1000)]);
        assert_eq!(areas(&other, 32, 0x3000), Ok(vec![]), "another capability is skipped");
    }

    #[test]
    fn a_list_that_lies_is_refused() {
        let one = [(0x1000, 0x1000)];
        for (bytes, first, field) in [
            (answer(1, 0, 1, &one), 31, "the offset of a capability"),
            (answer(1, 0, 1, &one), 64, "the offset of a capability"),
            (answer(1, 0, 1, &one), u32::MAX, "the offset of a capability"),
            (answer(1, 32, 1, &one), 32, "the offset of a capability"),
            (answer(1, 0, 2, &one), 32, "the number of areas"),
            (answer(1, 0, u32::MAX, &one), 32, "the number of areas"),
            (answer(1, 0, 1, &[(0x1000, 0x1001)]), 32, "the offset of an area"),
            (answer(1, 0, 1, &[(u64::MAX, 2)]), 32, "the offset of an area"),
        ] {
            assert_eq!(areas(&bytes, first, 0x2000).unwrap_err().0, field);
        }
        assert!(areas(&answer(1, 0, 1, &one), 32, 0x2000).is_ok());
    }
}
