//! Memory in huge pages: the error where the kernel has none, and the memory where it has. One test, because the number of pages is
//! that of the machine.
#![cfg(not(loom))]

#[allow(dead_code, reason = "other tests count doorbells")]
#[path = "null_card/mod.rs"]
mod null_card;

use null_card::NullCard;
use rnic_driver::{Device, Error, Function, FunctionError, Options, PageSize, Region, RemoteRights};
use std::fs::{read_to_string, write};
use std::sync::Arc;

const SIZE: PageSize = PageSize::Huge2MiB;
/// Huge pages that the test uses at once.
const PAGES: usize = 2;

/// A number of `/proc/meminfo`.
fn meminfo(name: &str) -> usize {
    let text = read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Huge pages that nobody has or has reserved.
fn free() -> usize {
    meminfo("HugePages_Free") - meminfo("HugePages_Rsvd")
}

/// Has the kernel keep more huge pages as long as this exists.
struct Reserved {
    before: usize,
}

impl Reserved {
    /// `None` if this user may not, or the machine has no room for them.
    fn new(pages: usize) -> Option<Self> {
        let before = meminfo("HugePages_Total");
        let reserved = Self { before };
        write(SIZE.reserve().unwrap(), (before + pages).to_string()).ok()?;
        (free() >= pages).then_some(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = write(SIZE.reserve().unwrap(), self.before.to_string());
    }
}

#[test]
fn memory_in_huge_pages_is_had_or_its_error_says_how() {
    let card = NullCard::new();
    let options = Options { seed: Some(1), ..Options::new([2, 0, 0, 0, 0, 1]) };
    let device = Device::open(Arc::clone(&card) as Arc<dyn Function>, options).unwrap();
    let domain = device.create_protection_domain().unwrap();

    // More than any machine has.
    let bytes = 1 << 45;
    for (page_size, count, file) in [
        (PageSize::Huge2MiB, "16777216 huge pages of 2097152 bytes", "/proc/sys/vm/nr_hugepages"),
        (PageSize::Huge1GiB, "32768 huge pages of 1073741824 bytes", "hugepages-1048576kB/nr_hugepages"),
    ] {
        let error = domain.allocate_in(bytes, page_size).unwrap_err();
        assert!(matches!(error, Error::Function(FunctionError::NoHugePages { .. })), "{error}");
        let error = error.to_string();
        assert!(error.contains(count) && error.contains(file), "{error}");
    }

    let allocate = || -> Result<Region, Error> { domain.allocate_in(SIZE.bytes() + 1, SIZE) };
    let reserved = if free() < PAGES { Reserved::new(PAGES) } else { None };
    if free() < PAGES {
        assert!(matches!(allocate(), Err(Error::Function(FunctionError::NoHugePages { .. }))));
        eprintln!("this machine gives no huge pages to this user: the error was checked, the memory was not");
        return;
    }
    let mut region = allocate().unwrap();
    assert_eq!(region.len(), SIZE.bytes() + 1, "a region has the bytes that were asked for");
    region.bytes_mut().fill(7);
    assert!(region.bytes().iter().all(|&byte| byte == 7));
    let maps = read_to_string("/proc/self/smaps").unwrap();
    let (_, mapping) = maps.split_once("/memfd:rnic").expect("it is memory of a file");
    assert!(maps.contains("KernelPageSize:     2048 kB"), "{mapping:.400}");
    drop(region);
    let shared = domain.share_in(1, RemoteRights::ALL, SIZE).unwrap();
    shared.write(0, &[1]).unwrap();
    drop(shared);
    drop(reserved);
}
