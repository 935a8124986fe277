//! Host memory, and the IOMMU through which the card sees it.
//!
//! ```text
//!  software ── buffer, offset ─────────────────────┐
//!                                                  v
//!  card ── device address ──> map ──> buffer, offset ──> bytes
//!                              └─> fault: nothing is there, or not for this direction
//! ```
//!
//! Buffers are the memory; mappings make ranges of them visible to the card. A request may cover several mappings if they are
//! adjacent in device addresses, as with the pages of an IOMMU. A buffer is owned by the host model, or by other software in
//! this process, such as a driver: a [`Backing`].
use crate::monitor::posted::PostedSlots;
use std::collections::BTreeMap;
use thiserror::Error;

/// Directions that a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The card may read.
    Read,
    /// The card may write.
    Write,
    /// The card may read and write.
    ReadWrite,
}

/// Direction of an access of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The card reads.
    Read,
    /// The card writes.
    Write,
}

impl Access {
    fn allows(self, direction: Direction) -> bool {
        !matches!((self, direction), (Access::Read, Direction::Write) | (Access::Write, Direction::Read))
    }
}

/// Memory owned by other software, which lends it to the card.
pub trait Backing: Send {
    /// Length, in bytes.
    fn bytes(&self) -> usize;
    /// Reads from an offset on. Returns false if the owner refuses.
    fn read(&self, offset: usize, bytes: &mut [u8]) -> bool;
    /// Writes from an offset on, in ascending order. Returns false if the owner refuses.
    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool;
}

/// Handle of a buffer: its slot, and which of the buffers that were in this slot it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId {
    slot: usize,
    life: u64,
}

/// Why an access of the card was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No mapping at this address.
    Unmapped,
    /// The mapping does not allow this direction.
    Direction,
    /// The owner refused: other software holds these bytes and has not lent them to the card.
    Held,
}

/// A refused access of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Time of the access.
    pub time_ps: u64,
    /// First address that could not be accessed; if the owner refused a part of the range, the first address of that part.
    pub address: u64,
    /// Direction of the access.
    pub direction: Direction,
    /// Reason of the refusal.
    pub refusal: Refusal,
}

/// Why memory cannot be allocated, mapped or accessed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum MemoryError {
    /// The buffer was freed, or never allocated.
    #[error("there is no such buffer")]
    NoBuffer,
    /// Other software owns the bytes of the buffer.
    #[error("other software owns the bytes of the buffer")]
    Elsewhere,
    /// The owner of the memory refused.
    #[error("the owner of device address {address:#x} refuses the access")]
    Held {
        /// First address of the part that was refused.
        address: u64,
    },
    /// The range exceeds its buffer.
    #[error("{length} bytes from {offset:#x} on reach beyond the {buffer_bytes} bytes of the buffer")]
    Bounds {
        /// Offset of the range in the buffer.
        offset: usize,
        /// Length of the range, in bytes.
        length: usize,
        /// Length of the buffer, in bytes.
        buffer_bytes: usize,
    },
    /// Some of the device addresses are in use.
    #[error("of the {length} bytes from device address {address:#x} on, some are mapped already")]
    Occupied {
        /// First device address.
        address: u64,
        /// Length, in bytes.
        length: u64,
    },
    /// The range is empty, or reaches beyond the last device address.
    #[error("{length} bytes from device address {address:#x} on are no range of 64-bit addresses")]
    NoRange {
        /// First device address.
        address: u64,
        /// Length, in bytes.
        length: u64,
    },
    /// No mapping begins at this address, or part of the range is not mapped.
    #[error("device address {address:#x} is not mapped")]
    NotMapped {
        /// First address that is not mapped.
        address: u64,
    },
    /// A mapping still uses the buffer.
    #[error("the buffer is mapped at {address:#x}")]
    StillMapped {
        /// First device address of that mapping.
        address: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    length: u64,
    buffer: BufferId,
    offset: usize,
    access: Access,
}

/// Owner of the bytes of a buffer.
enum Store {
    Own(Box<[u8]>),
    Elsewhere(Box<dyn Backing>),
}

impl Store {
    fn bytes(&self) -> usize {
        match self {
            Store::Own(bytes) => bytes.len(),
            Store::Elsewhere(backing) => backing.bytes(),
        }
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        match self {
            Store::Own(own) => {
                bytes.copy_from_slice(&own[offset..offset + bytes.len()]);
                true
            }
            Store::Elsewhere(backing) => backing.read(offset, bytes),
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        match self {
            Store::Own(own) => {
                own[offset..offset + bytes.len()].copy_from_slice(bytes);
                true
            }
            Store::Elsewhere(backing) => backing.write(offset, bytes),
        }
    }
}

/// Place of a buffer. It is used again when the buffer is freed.
struct Slot {
    /// Buffers that were in this slot before.
    life: u64,
    /// Mappings of the buffer.
    mappings: usize,
    store: Option<Store>,
}

/// Part of a range that is in one buffer.
struct Part {
    buffer: BufferId,
    offset: usize,
    bytes: usize,
}

/// Memory of one host.
#[derive(Default)]
pub struct Memory {
    slots: Vec<Slot>,
    /// Slots without a buffer.
    free: Vec<usize>,
    /// By first device address. Ranges do not overlap.
    map: BTreeMap<u64, Mapping>,
    faults: Vec<Fault>,
    posted: PostedSlots,
}

impl Memory {
    /// Allocates a buffer of zeros. The card cannot access it until it is mapped.
    pub fn allocate(&mut self, bytes: usize) -> BufferId {
        self.add(Store::Own(vec![0; bytes].into_boxed_slice()))
    }

    /// Adds a buffer that other software owns. The card cannot access it until it is mapped.
    pub fn adopt(&mut self, backing: Box<dyn Backing>) -> BufferId {
        self.add(Store::Elsewhere(backing))
    }

    fn add(&mut self, store: Store) -> BufferId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { life: 0, mappings: 0, store: None });
            self.slots.len() - 1
        });
        self.slots[slot].store = Some(store);
        BufferId { slot, life: self.slots[slot].life }
    }

    /// Frees a buffer.
    ///
    /// # Errors
    /// If it was freed before, or is still mapped.
    pub fn free(&mut self, buffer: BufferId) -> Result<(), MemoryError> {
        let slot = self.slot_mut(buffer)?;
        if slot.mappings != 0 {
            let mut mappings = self.map.iter().filter(|(_, mapping)| mapping.buffer == buffer);
            let address = mappings.next().map_or(0, |(&address, _)| address);
            return Err(MemoryError::StillMapped { address });
        }
        slot.store = None;
        slot.life += 1;
        self.free.push(buffer.slot);
        Ok(())
    }

    /// Returns the bytes of a buffer that the host model owns.
    ///
    /// # Errors
    /// If it was freed, or other software owns it.
    pub fn buffer(&self, buffer: BufferId) -> Result<&[u8], MemoryError> {
        match self.store(buffer)? {
            Store::Own(bytes) => Ok(bytes),
            Store::Elsewhere(_) => Err(MemoryError::Elsewhere),
        }
    }

    /// Returns the bytes of a buffer that the host model owns, to change them.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    pub fn buffer_mut(&mut self, buffer: BufferId) -> Result<&mut [u8], MemoryError> {
        match &mut self.slot_mut(buffer)?.store {
            Some(Store::Own(bytes)) => Ok(bytes),
            Some(Store::Elsewhere(_)) => Err(MemoryError::Elsewhere),
            None => Err(MemoryError::NoBuffer),
        }
    }

    fn store(&self, buffer: BufferId) -> Result<&Store, MemoryError> {
        let slot = self.slots.get(buffer.slot).filter(|slot| slot.life == buffer.life);
        slot.and_then(|slot| slot.store.as_ref()).ok_or(MemoryError::NoBuffer)
    }

    /// The slot of a buffer that was not freed.
    fn slot_mut(&mut self, buffer: BufferId) -> Result<&mut Slot, MemoryError> {
        let slot = self.slots.get_mut(buffer.slot).filter(|slot| slot.life == buffer.life);
        slot.filter(|slot| slot.store.is_some()).ok_or(MemoryError::NoBuffer)
    }

    /// Maps a range of a buffer.
    ///
    /// # Errors
    /// If the range exceeds the buffer, is empty or none of device addresses, or some of these are in use.
    pub fn map(
        &mut self,
        address: u64,
        buffer: BufferId,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<(), MemoryError> {
        let buffer_bytes = self.store(buffer)?.bytes();
        if offset > buffer_bytes || length > buffer_bytes - offset {
            return Err(MemoryError::Bounds { offset, length, buffer_bytes });
        }
        let length = length as u64;
        // A range may reach to the very last address.
        let last = length.checked_sub(1).and_then(|rest| address.checked_add(rest));
        let last = last.ok_or(MemoryError::NoRange { address, length })?;
        let before = self.map.range(..=last).next_back();
        if before.is_some_and(|(&first, mapping)| first + (mapping.length - 1) >= address) {
            return Err(MemoryError::Occupied { address, length });
        }
        self.map.insert(address, Mapping { length, buffer, offset, access });
        self.slot_mut(buffer)?.mappings += 1;
        Ok(())
    }

    /// Removes a mapping and returns its buffer. Accesses of the card to it are refused from now on.
    ///
    /// # Errors
    /// If no mapping begins at this address.
    pub fn unmap(&mut self, address: u64) -> Result<BufferId, MemoryError> {
        let mapping = self.map.remove(&address).ok_or(MemoryError::NotMapped { address })?;
        self.posted.forget(address..=address + (mapping.length - 1));
        self.slot_mut(mapping.buffer)?.mappings -= 1;
        Ok(mapping.buffer)
    }

    /// Length of the mapping that begins at this address, in bytes; `None` if there is none.
    pub fn mapped_bytes(&self, address: u64) -> Option<u64> {
        self.map.get(&address).map(|mapping| mapping.length)
    }

    /// Mappings: first device address and length of each, in the order of the addresses.
    pub fn mappings(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.map.iter().map(|(&address, mapping)| (address, mapping.length))
    }

    /// Work that software has posted, with which reads of the card are compared.
    pub fn posted_mut(&mut self) -> &mut PostedSlots {
        &mut self.posted
    }

    /// Takes the refusals since the last call. A run that ends with refusals that were not taken has failed.
    pub fn take_faults(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.faults)
    }

    /// Refusals that were not taken.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Checks that the card may access all bytes of a range; otherwise returns the first address that it may not, and why.
    /// `None` for the direction only checks that all of them are mapped.
    fn check(&self, address: u64, length: u64, direction: Option<Direction>) -> Result<(), (u64, Refusal)> {
        let mut done = 0;
        while done < length {
            let next = address.checked_add(done).ok_or((u64::MAX, Refusal::Unmapped))?;
            let (first, mapping) = self.mapping(next).ok_or((next, Refusal::Unmapped))?;
            if direction.is_some_and(|direction| !mapping.access.allows(direction)) {
                return Err((next, Refusal::Direction));
            }
            done += mapping.length - (next - first);
        }
        Ok(())
    }

    /// First address and mapping of the range that contains an address.
    fn mapping(&self, address: u64) -> Option<(u64, Mapping)> {
        let (&first, &mapping) = self.map.range(..=address).next_back()?;
        (address - first < mapping.length).then_some((first, mapping))
    }

    /// The part of a mapped range that begins at an address, at most `bytes` long.
    fn part(&self, address: u64, bytes: usize) -> Part {
        let (first, mapping) = self.mapping(address).expect("the span was checked");
        let inside = address - first;
        let offset = mapping.offset + inside as usize;
        Part { buffer: mapping.buffer, offset, bytes: bytes.min((mapping.length - inside) as usize) }
    }

    fn copy_out(&self, address: u64, bytes: &mut [u8]) -> Result<(), u64> {
        let mut done = 0;
        while done < bytes.len() {
            let next = address + done as u64;
            let part = self.part(next, bytes.len() - done);
            let store = self.slots[part.buffer.slot].store.as_ref().expect("what is mapped is not freed");
            if !store.read(part.offset, &mut bytes[done..done + part.bytes]) {
                return Err(next);
            }
            done += part.bytes;
        }
        Ok(())
    }

    fn copy_in(&mut self, address: u64, bytes: &[u8]) -> Result<(), u64> {
        let mut done = 0;
        while done < bytes.len() {
            let next = address + done as u64;
            let part = self.part(next, bytes.len() - done);
            let store = self.slots[part.buffer.slot].store.as_mut().expect("what is mapped is not freed");
            if !store.write(part.offset, &bytes[done..done + part.bytes]) {
                return Err(next);
            }
            done += part.bytes;
        }
        Ok(())
    }

    /// Reads for the card. A refused access is recorded as a fault.
    ///
    /// # Errors
    /// If a byte of the range cannot be accessed; the contents of `bytes` are then undefined.
    pub fn card_reads(&mut self, time_ps: u64, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let direction = Direction::Read;
        let result = self
            .check(address, bytes.len() as u64, Some(direction))
            .and_then(|()| self.copy_out(address, bytes).map_err(|address| (address, Refusal::Held)));
        if result.is_ok() {
            self.posted.compare(address, bytes);
        }
        self.record(time_ps, direction, result)
    }

    /// Writes for the card. A refused access is recorded as a fault. It changes nothing if part of the range is not mapped; if
    /// an owner refuses a part, the parts before it are written.
    ///
    /// # Errors
    /// If a byte of the range cannot be accessed.
    pub fn card_writes(&mut self, time_ps: u64, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let direction = Direction::Write;
        let result = self
            .check(address, bytes.len() as u64, Some(direction))
            .and_then(|()| self.copy_in(address, bytes).map_err(|address| (address, Refusal::Held)));
        self.record(time_ps, direction, result)
    }

    fn record(
        &mut self,
        time_ps: u64,
        direction: Direction,
        result: Result<(), (u64, Refusal)>,
    ) -> Result<(), Fault> {
        result.map_err(|(address, refusal)| {
            let fault = Fault { time_ps, address, direction, refusal };
            self.faults.push(fault);
            fault
        })
    }

    /// Reads by device address for software, whatever the mapping allows the card.
    ///
    /// # Errors
    /// If part of the range is not mapped, or its owner refuses.
    pub fn read_bytes(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        let mapped = self.check(address, bytes.len() as u64, None);
        mapped.map_err(|(address, _)| MemoryError::NotMapped { address })?;
        self.copy_out(address, bytes).map_err(|address| MemoryError::Held { address })
    }

    /// Writes by device address for software, whatever the mapping allows the card.
    ///
    /// # Errors
    /// If part of the range is not mapped, or its owner refuses.
    pub fn write_bytes(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let mapped = self.check(address, bytes.len() as u64, None);
        mapped.map_err(|(address, _)| MemoryError::NotMapped { address })?;
        self.copy_in(address, bytes).map_err(|address| MemoryError::Held { address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped() -> (Memory, BufferId) {
        let mut memory = Memory::default();
        let buffer = memory.allocate(8192);
        memory.map(0x1_0000, buffer, 4096, 4096, Access::ReadWrite).unwrap();
        (memory, buffer)
    }

    #[test]
    fn the_card_sees_what_is_mapped_and_nothing_else() {
        let (mut memory, buffer) = mapped();
        memory.card_writes(1, 0x1_0ffe, &[1, 2]).unwrap();
        assert_eq!(memory.buffer(buffer).unwrap()[8190..], [1, 2]);
        let mut bytes = [0; 3];
        let fault =
            Fault { time_ps: 2, address: 0x1_1000, direction: Direction::Read, refusal: Refusal::Unmapped };
        assert_eq!(memory.card_reads(2, 0x1_0ffe, &mut bytes), Err(fault));
        let fault =
            Fault { time_ps: 3, address: 0xffff, direction: Direction::Write, refusal: Refusal::Unmapped };
        assert_eq!(memory.card_writes(3, 0xffff, &[7, 7]), Err(fault));
        assert_eq!(memory.buffer(buffer).unwrap()[4096], 0, "a write that fails changes nothing");
        assert_eq!(memory.take_faults().len(), 2);
        assert!(memory.faults().is_empty());
    }

    #[test]
    fn spans_that_follow_each_other_serve_one_request() {
        let (mut memory, first) = mapped();
        let second = memory.allocate(16);
        memory.map(0x1_1000, second, 8, 8, Access::ReadWrite).unwrap();
        memory.card_writes(0, 0x1_0ffc, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert_eq!(memory.buffer(first).unwrap()[8188..], [1, 2, 3, 4]);
        assert_eq!(memory.buffer(second).unwrap()[8..12], [5, 6, 7, 8]);
        let mut bytes = [0; 8];
        memory.card_reads(0, 0x1_0ffc, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
        memory.read_bytes(0x1_0ffc, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn directions_are_kept_from_the_card_and_not_from_software() {
        let mut memory = Memory::default();
        let buffer = memory.allocate(128);
        memory.map(0, buffer, 0, 64, Access::Read).unwrap();
        memory.map(64, buffer, 64, 64, Access::Write).unwrap();
        assert!(memory.card_writes(0, 0, &[1]).is_err_and(|fault| fault.refusal == Refusal::Direction));
        assert!(memory.card_reads(0, 63, &mut [0, 0]).is_err_and(|fault| fault.address == 64));
        assert!(memory.card_reads(0, 60, &mut [0; 4]).is_ok() && memory.card_writes(0, 64, &[1]).is_ok());
        memory.write_bytes(60, &[5; 8]).unwrap();
        assert_eq!(memory.write_bytes(120, &[0; 9]), Err(MemoryError::NotMapped { address: 128 }));
    }

    #[test]
    fn addresses_are_mapped_once_and_not_round_the_end() {
        let (mut memory, buffer) = mapped();
        for (address, length) in [(0x1_0000, 1), (0x1_0fff, 1), (0xffff, 2), (0xf000, 8192)] {
            let refused = memory.map(address, buffer, 0, length as usize, Access::Read);
            assert_eq!(refused, Err(MemoryError::Occupied { address, length }), "{address:#x}");
        }
        for (address, length) in [(5, 0), (u64::MAX, 2), (u64::MAX - 4094, 4096)] {
            let refused = memory.map(address, buffer, 0, length as usize, Access::Read);
            assert_eq!(refused, Err(MemoryError::NoRange { address, length }), "{address:#x}");
        }
        assert!(memory.map(0xffff, buffer, 0, 1, Access::Read).is_ok());
        assert!(memory.map(0x1_1000, buffer, 0, 1, Access::Read).is_ok());
        assert!(matches!(memory.map(0, buffer, 8000, 193, Access::Read), Err(MemoryError::Bounds { .. })));
        assert!(memory.card_reads(0, u64::MAX, &mut [0, 0]).is_err(), "no request wraps");
    }

    #[test]
    fn the_last_page_is_mapped_as_others_are() {
        const LAST: u64 = u64::MAX - 4095;
        let mut memory = Memory::default();
        let buffer = memory.allocate(4096);
        memory.map(LAST, buffer, 0, 4096, Access::ReadWrite).unwrap();
        memory.card_writes(0, u64::MAX - 1, &[7, 8]).unwrap();
        let mut bytes = [0; 2];
        memory.card_reads(0, u64::MAX - 1, &mut bytes).unwrap();
        assert_eq!(bytes, [7, 8]);
        let fault = memory.card_reads(0, u64::MAX, &mut bytes).unwrap_err();
        assert_eq!((fault.address, fault.refusal), (u64::MAX, Refusal::Unmapped), "no request wraps");
        let again = memory.map(u64::MAX, buffer, 0, 1, Access::Read);
        assert_eq!(again, Err(MemoryError::Occupied { address: u64::MAX, length: 1 }));
        assert_eq!(memory.unmap(LAST), Ok(buffer));
        assert_eq!(memory.free(buffer), Ok(()));
    }

    /// A client may map and unmap for ever.
    #[test]
    fn slots_of_freed_buffers_are_used_again_under_other_handles() {
        let (mut memory, kept) = mapped();
        let mut old = Vec::new();
        for round in 0..100 {
            let buffer = memory.allocate(16);
            assert!(!old.contains(&buffer));
            memory.map(0, buffer, 0, 16, Access::Read).unwrap();
            assert!(memory.unmap(0) == Ok(buffer) && memory.free(buffer) == Ok(()), "{round}");
            old.push(buffer);
        }
        let newest = memory.allocate(16);
        assert!(old.iter().all(|&old| memory.free(old) == Err(MemoryError::NoBuffer)));
        assert!(memory.buffer(newest).is_ok() && memory.buffer(kept).is_ok());
        assert_eq!(memory.slots.len(), 2);
    }

    #[test]
    fn memory_is_freed_only_when_it_is_not_mapped() {
        let (mut memory, buffer) = mapped();
        assert_eq!(memory.free(buffer), Err(MemoryError::StillMapped { address: 0x1_0000 }));
        assert_eq!(memory.unmap(0x1_0001), Err(MemoryError::NotMapped { address: 0x1_0001 }));
        assert_eq!(memory.unmap(0x1_0000), Ok(buffer));
        assert!(memory.card_reads(0, 0x1_0000, &mut [0]).is_err());
        assert_eq!(memory.free(buffer), Ok(()));
        assert_eq!(memory.free(buffer), Err(MemoryError::NoBuffer));
        assert!(memory.buffer(buffer).is_err());
    }

    /// Memory whose owner holds back its first byte.
    struct Kept(Vec<u8>);

    impl Backing for Kept {
        fn bytes(&self) -> usize {
            self.0.len()
        }
        fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
            bytes.copy_from_slice(&self.0[offset..offset + bytes.len()]);
            offset > 0
        }
        fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
            self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
            offset > 0
        }
    }

    #[test]
    fn memory_of_other_software_is_accessed_as_far_as_its_owner_allows() {
        let mut memory = Memory::default();
        let kept = memory.adopt(Box::new(Kept(vec![0; 64])));
        memory.map(0x1000, kept, 0, 64, Access::ReadWrite).unwrap();
        memory.card_writes(0, 0x1004, &[1, 2, 3]).unwrap();
        let mut bytes = [0; 4];
        memory.read_bytes(0x1003, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 1, 2, 3]);
        let fault = memory.card_reads(9, 0x1000, &mut bytes).unwrap_err();
        assert_eq!((fault.address, fault.refusal), (0x1000, Refusal::Held));
        assert_eq!(memory.read_bytes(0x1000, &mut bytes), Err(MemoryError::Held { address: 0x1000 }));
        assert_eq!(memory.buffer(kept), Err(MemoryError::Elsewhere));
        assert!(matches!(memory.map(0, kept, 1, 64, Access::Read), Err(MemoryError::Bounds { .. })));
    }
}
