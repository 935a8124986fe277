//! Memory of a client: a file in memory (`memfd`) that it has passed to the server, or the memory of a process
//! (`/proc/<pid>/mem`), in which an offset is an address.
//!
//! The card reads and writes it with calls of the operating system. It is not mapped: a client that cuts its file off would end
//! a server that has it mapped (SIGBUS), and here only the card's access fails, as on a bus. A call takes less time than the
//! simulation of the cycles in which the card moves the data. Other files are refused, since access to them may wait for
//! somebody: a pipe, a file on a network. What a client maps without a file it keeps to itself. The memory of a process ends with
//! the process, and pages that it unmaps fail the card's access; a client that maps a file on a network there waits with the server.
//!
//! Software sees the last byte of a write after all others. So it sees an entry of a ring whole when it sees the phase, which is
//! in its last byte.
use super::message::{Map, Refusal};
use crate::host::{Access, Backing};
use rustix::fs::{OFlags, fcntl_get_seals, fcntl_getfl, fstat, fstatfs};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering, fence};

/// Unit of mappings, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Type of the file system of huge pages, whose files cannot be written with calls.
const HUGETLBFS: u64 = 0x9584_58f6;
/// Type of the file system of processes.
const PROC: u64 = 0x9fa0;

/// A part of a file in memory.
#[derive(Debug)]
pub struct ClientMemory {
    file: File,
    offset: u64,
    bytes: usize,
}

impl ClientMemory {
    /// Takes a file descriptor for a mapping. Also returns the directions that the mapping allows.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] for a mapping that is not in whole pages, or that the file has not, [`Refusal::Unsupported`] for a
    /// file that is not in memory, or in huge pages, and [`Refusal::Denied`] for one that is not open for this.
    pub fn new(fd: OwnedFd, map: &Map) -> Result<(ClientMemory, Access), Refusal> {
        let is_whole = [map.offset, map.address, map.bytes].iter().all(|number| number % PAGE_BYTES == 0);
        let end = map.offset.checked_add(map.bytes).ok_or(Refusal::Invalid)?;
        if !is_whole || map.bytes == 0 {
            return Err(Refusal::Invalid);
        }
        if end > file_bytes(&fd)? {
            return Err(Refusal::Invalid);
        }
        let mode = fcntl_getfl(&fd).map_err(|_| Refusal::Denied)? & OFlags::RWMODE;
        let access = match (map.readable, map.writable) {
            (true, true) if mode == OFlags::RDWR => Access::ReadWrite,
            (true, false) if mode != OFlags::WRONLY => Access::Read,
            (false, true) if mode != OFlags::RDONLY => Access::Write,
            (false, false) => return Err(Refusal::Invalid),
            _ => return Err(Refusal::Denied),
        };
        let bytes = usize::try_from(map.bytes).map_err(|_| Refusal::Invalid)?;
        let file = File::from(fd);
        Ok((ClientMemory { file, offset: map.offset, bytes }, access))
    }
}

/// Size of a file that the card can access, in bytes.
fn file_bytes(fd: &OwnedFd) -> Result<u64, Refusal> {
    let file_system = fstatfs(fd).map_err(|_| Refusal::Unsupported)?.f_type as u64;
    if file_system == PROC && is_process_memory(fd) {
        return Ok(i64::MAX as u64);
    }
    // Only files in memory can be sealed, whether they are or not.
    fcntl_get_seals(fd).map_err(|_| Refusal::Unsupported)?;
    if file_system == HUGETLBFS {
        return Err(Refusal::Unsupported);
    }
    let bytes = fstat(fd).map_err(|_| Refusal::Invalid)?.st_size;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Returns whether a file of the file system of processes is the memory of one.
fn is_process_memory(fd: &OwnedFd) -> bool {
    let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    name.is_ok_and(|name| name.file_name().is_some_and(|name| name == "mem"))
}

/// Memory that a client keeps to itself. Accesses of the card fail.
#[derive(Debug)]
pub struct Withheld {
    bytes: usize,
}

impl Withheld {
    /// Takes note of a mapping.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] for a mapping that is not in whole pages.
    pub fn new(map: &Map) -> Result<Withheld, Refusal> {
        let is_whole = [map.address, map.bytes].iter().all(|number| number % PAGE_BYTES == 0);
        let bytes = usize::try_from(map.bytes).ok().filter(|&bytes| is_whole && bytes != 0);
        bytes.map(|bytes| Withheld { bytes }).ok_or(Refusal::Invalid)
    }
}

impl Backing for Withheld {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn read(&self, _offset: usize, _bytes: &mut [u8]) -> bool {
        false
    }

    fn write(&mut self, _offset: usize, _bytes: &[u8]) -> bool {
        false
    }
}

impl Backing for ClientMemory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        self.file.read_exact_at(bytes, self.offset + offset as u64).is_ok()
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let Some((last, before)) = bytes.split_last() else { return true };
        let first = self.offset + offset as u64;
        if self.file.write_all_at(before, first).is_err() {
            return false;
        }
        fence(Ordering::Release);
        self.file.write_all_at(&[*last], first + before.len() as u64).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    const WHOLE: Map = Map { readable: true, writable: true, offset: 0, address: 0x10_0000, bytes: 8192 };

    fn memfd() -> OwnedFd {
        let fd = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, 8192).unwrap();
        fd
    }

    fn take(fd: OwnedFd, map: Map) -> Result<(ClientMemory, Access), Refusal> {
        ClientMemory::new(fd, &map)
    }

    fn refusal(fd: OwnedFd, map: Map) -> Option<Refusal> {
        take(fd, map).err()
    }

    #[test]
    fn the_card_reaches_the_part_of_the_file() {
        let fd = memfd();
        let file = File::from(fd.try_clone().unwrap());
        let (mut memory, access) = take(fd, Map { offset: 4096, bytes: 4096, ..WHOLE }).unwrap();
        assert_eq!((memory.bytes(), access), (4096, Access::ReadWrite));
        assert!(memory.write(4094, &[7, 8]) && memory.write(0, &[1]) && memory.write(9, &[]));
        let mut bytes = [0; 4098];
        file.read_exact_at(&mut bytes, 4094).unwrap();
        assert_eq!((&bytes[..4], &bytes[4096..]), (&[0, 0, 1, 0][..], &[7, 8][..]));
        file.write_all_at(&[5], 4097).unwrap();
        let mut read = [0; 2];
        assert!(memory.read(0, &mut read));
        assert_eq!(read, [1, 5]);
    }

    #[test]
    fn a_mapping_is_in_whole_pages_of_the_file() {
        for (map, expected) in [
            (WHOLE, None),
            (Map { offset: 4096, bytes: 4096, ..WHOLE }, None),
            (Map { offset: 4096, ..WHOLE }, Some(Refusal::Invalid)),
            (Map { bytes: 12288, ..WHOLE }, Some(Refusal::Invalid)),
            (Map { bytes: 0, ..WHOLE }, Some(Refusal::Invalid)),
            (Map { bytes: 4095, ..WHOLE }, Some(Refusal::Invalid)),
            (Map { offset: 1, bytes: 4096, ..WHOLE }, Some(Refusal::Invalid)),
            (Map { address: 8, ..WHOLE }, Some(Refusal::Invalid)),
            (Map { offset: u64::MAX - 4095, ..WHOLE }, Some(Refusal::Invalid)),
            (Map { readable: false, writable: false, ..WHOLE }, Some(Refusal::Invalid)),
        ] {
            assert_eq!(refusal(memfd(), map), expected, "{map:?}");
        }
    }

    #[test]
    fn only_files_in_memory_that_are_open_for_it_are_taken() {
        let (pipe, _writer) = std::io::pipe().unwrap();
        let name = File::options().read(true).write(true).open("/proc/self/comm").unwrap();
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        for fd in [pipe.into(), name.into(), null.into()] {
            assert_eq!(refusal(fd, WHOLE), Some(Refusal::Unsupported));
        }
        let fd = memfd();
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let reader = || OwnedFd::from(File::open(&name).unwrap());
        assert_eq!(refusal(reader(), WHOLE), Some(Refusal::Denied));
        assert_eq!(refusal(reader(), Map { writable: false, ..WHOLE }), None);
        assert_eq!(refusal(reader(), Map { readable: false, ..WHOLE }), Some(Refusal::Denied));
    }

    #[test]
    fn the_card_reaches_memory_of_a_process_as_long_as_it_is_mapped() {
        let own = || OwnedFd::from(File::options().read(true).write(true).open("/proc/self/mem").unwrap());
        let block = vec![7u8; 3 * 4096];
        let first = (block.as_ptr() as u64).next_multiple_of(4096);
        let (mut memory, access) = take(own(), Map { offset: first, ..WHOLE }).unwrap();
        assert_eq!((memory.bytes(), access), (8192, Access::ReadWrite));
        assert!(memory.write(4095, &[1, 2]));
        let mut bytes = [0; 3];
        assert!(memory.read(4094, &mut bytes));
        assert_eq!(bytes, [7, 1, 2]);
        // Nothing is mapped at the first pages of a process.
        let (mut nothing, _) = take(own(), Map { offset: 0, ..WHOLE }).unwrap();
        assert!(!nothing.read(0, &mut bytes) && !nothing.write(0, &bytes));
        assert_eq!(refusal(own(), Map { offset: 1 << 63, ..WHOLE }), Some(Refusal::Invalid));
    }

    #[test]
    fn what_a_client_keeps_to_itself_is_not_reached() {
        let mut memory = Withheld::new(&WHOLE).unwrap();
        assert_eq!(memory.bytes(), 8192);
        assert!(!memory.read(0, &mut [0]) && !memory.write(8191, &[1]));
        for map in
            [Map { bytes: 0, ..WHOLE }, Map { bytes: 4095, ..WHOLE }, Map { address: 0x10_0001, ..WHOLE }]
        {
            assert_eq!(Withheld::new(&map).err(), Some(Refusal::Invalid), "{map:?}");
        }
    }

    #[test]
    fn a_file_that_is_cut_off_fails_the_access_and_nothing_else() {
        let fd = memfd();
        let file = File::from(fd.try_clone().unwrap());
        let (memory, _) = take(fd, WHOLE).unwrap();
        file.set_len(4096).unwrap();
        let mut byte = [0];
        assert!(memory.read(4095, &mut byte) && !memory.read(4096, &mut byte));
    }
}
