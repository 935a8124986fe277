//! Messages of vfio-user 0.1, in the order and endianness of the host.
//!
//! ```text
//!   message = Header (16 bytes) + body of the command       fds travel beside the first byte
//! ```

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A request, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    DeviceInfo = 4,
    RegionInfo = 5,
    IrqInfo = 7,
    SetIrqs = 8,
    RegionRead = 9,
    RegionWrite = 10,
    Reset = 13,
}

impl Command {
    /// Name of the request in messages to people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Version => "the version",
            Self::DmaMap => "a mapping",
            Self::DmaUnmap => "the end of a mapping",
            Self::DeviceInfo => "a question about the device",
            Self::RegionInfo => "a question about a region",
            Self::IrqInfo => "a question about interrupts",
            Self::SetIrqs => "the setting of interrupts",
            Self::RegionRead => "a read",
            Self::RegionWrite => "a write",
            Self::Reset => "a reset",
        }
    }
}

/// Bits of [`Header::flags`] that hold the kind of the message.
pub(super) const KIND: u32 = 0xf;
/// Kind of a request.
pub(super) const REQUEST: u32 = 0;
/// Kind of an answer.
pub(super) const REPLY: u32 = 1;
/// The sender of a request wants no answer.
pub(super) const NO_REPLY: u32 = 1 << 4;
/// The answer is an error, with its number.
pub(super) const ERROR: u32 = 1 << 5;

/// First bytes of each message.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Header {
    pub(super) id: u16,
    pub(super) command: u16,
    /// Bytes of the message with this header.
    pub(super) bytes: u32,
    pub(super) flags: u32,
    pub(super) error: u32,
}

pub(super) const HEADER_BYTES: usize = size_of::<Header>();

/// Body of [`Command::Version`], ahead of a text in JSON that ends with a zero.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Version {
    pub(super) major: u16,
    pub(super) minor: u16,
}

/// Version that this client speaks.
pub(super) const VERSION: Version = Version { major: 0, minor: 1 };

/// Body of [`Command::DeviceInfo`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) regions: u32,
    pub(super) irqs: u32,
}

/// The device can be reset.
pub(super) const DEVICE_RESETS: u32 = 1 << 0;
/// The device is a PCI function.
pub(super) const DEVICE_IS_PCI: u32 = 1 << 1;

/// Body of [`Command::RegionInfo`], ahead of capabilities.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RegionInfo {
    /// Bytes of this body with all capabilities, whether or not they are all here.
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    /// Offset in this body of the first capability.
    pub(super) capabilities: u32,
    pub(super) bytes: u64,
    /// Offset of the region in the file that came with the answer.
    pub(super) file_offset: u64,
}

pub(super) const REGION_READS: u32 = 1 << 0;
pub(super) const REGION_WRITES: u32 = 1 << 1;
/// The region has capabilities.
pub(super) const REGION_CAPABILITIES: u32 = 1 << 3;

/// Begin of a capability of a region.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Capability {
    pub(super) id: u16,
    pub(super) version: u16,
    /// Offset of the next one, or zero.
    pub(super) next: u32,
}

/// Number of the capability that lists the areas that can be mapped.
pub(super) const SPARSE_AREAS: u16 = 1;

/// Begin of that capability, after [`Capability`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct SparseAreas {
    pub(super) count: u32,
    pub(super) reserved: u32,
}

/// An area that can be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Area {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Region of the configuration space. Regions 0 to 5 are the BARs.
pub(super) const CONFIG_REGION: u32 = 7;
/// Index of the interrupts of MSI-X.
pub(super) const MSIX_IRQS: u32 = 2;

/// Body of [`Command::RegionRead`] and [`Command::RegionWrite`], ahead of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RegionAccess {
    pub(super) offset: u64,
    pub(super) region: u32,
    pub(super) count: u32,
}

/// Body of [`Command::DmaMap`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct DmaMap {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    /// Offset in the file.
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// The device may read and write the memory.
pub(super) const DMA_READ_WRITE: u32 = 0b11;

/// Body of [`Command::DmaUnmap`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct DmaUnmap {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// Body of [`Command::IrqInfo`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct IrqInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) count: u32,
}

/// Body of [`Command::SetIrqs`]; the eventfds travel beside it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct SetIrqs {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) start: u32,
    pub(super) count: u32,
}

/// The interrupts are written to eventfds when the device raises them.
pub(super) const IRQS_TO_EVENTFDS: u32 = 1 << 2 | 1 << 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand from the specification, on a little-endian host.
    #[test]
    #[cfg(target_endian = "little")]
    fn messages_have_the_bytes_worked_by_hand() {
        let header = Header { id: 0x0201, command: 9, bytes: 0x20, flags: REPLY | ERROR, error: 22 };
        assert_eq!(header.as_bytes(), [1, 2, 9, 0, 0x20, 0, 0, 0, 0x21, 0, 0, 0, 22, 0, 0, 0]);
        let access = RegionAccess { offset: 0x1122, region: 2, count: 8 };
        assert_eq!(access.as_bytes(), [0x22, 0x11, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0]);
    }

    #[test]
    fn bodies_have_the_sizes_of_the_specification() {
        let sizes = [
            size_of::<Version>(),
            size_of::<DeviceInfo>(),
            size_of::<RegionInfo>(),
            size_of::<RegionAccess>(),
            size_of::<DmaMap>(),
            size_of::<DmaUnmap>(),
            size_of::<IrqInfo>(),
            size_of::<SetIrqs>(),
        ];
        assert_eq!(sizes, [4, 16, 32, 16, 32, 24, 16, 20]);
    }
}
