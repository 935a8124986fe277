//! The back end over a kernel of the test's own, whose device is a file in memory.

use super::iommu::Answer;
use super::*;
use rnic_layout::pci::{BARS, COMMAND_BUS_MASTER, config_image};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const ENOTTY: i32 = 25;
/// Where regions begin in the file of the device.
const REGION_BYTES: u64 = 1 << 25;
const CONFIG: u64 = 7 * REGION_BYTES;

/// What the kernel does and says other than it should.
#[derive(Default)]
struct Faults {
    config_bytes: Option<u64>,
    /// Answer about the IOMMU.
    iommu: Option<Answer>,
    /// Vectors that the host has at most.
    vectors_max: Option<u32>,
    /// Errors of calls.
    map: Option<i32>,
    unmap: Option<i32>,
    reset: Option<i32>,
    is_unmappable: bool,
    is_read_only: bool,
}

/// A kernel that has one function, as a file.
struct Scripted {
    device: File,
    faults: Mutex<Faults>,
    mapped: Mutex<BTreeMap<u64, Arc<Memory>>>,
    eventfds: Mutex<Vec<OwnedFd>>,
    resets: Mutex<u32>,
}

impl Scripted {
    fn new(faults: Faults) -> Arc<Self> {
        let device = memfd_create("device", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&device, CONFIG + 4096).unwrap();
        let device = File::from(device);
        let mut config = config_image(7).to_vec();
        config[usize::from(COMMAND)] = COMMAND_MEMORY as u8;
        device.write_all_at(&config, CONFIG).unwrap();
        Arc::new(Self {
            device,
            faults: Mutex::new(faults),
            mapped: Mutex::default(),
            eventfds: Mutex::default(),
            resets: Mutex::default(),
        })
    }

    fn fail(&self, fault: impl Fn(&Faults) -> Option<i32>) -> io::Result<()> {
        fault(&lock(&self.faults)).map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }
}

/// An answer about an IOMMU with one range of addresses and a number of mappings.
fn iommu_answer(first: u64, last: u64, mappings: u32) -> Answer {
    let mut answer = vec![0; 80];
    let words: [(usize, u64); 10] = [
        (4, 3),
        (8, 4096),
        (16, 24),
        (24, 1 | 1 << 16 | 56 << 32),
        (32, 1),
        (40, first),
        (48, last),
        (56, 3 | 1 << 16),
        (64, mappings.into()),
        (72, 0),
    ];
    for (place, word) in words {
        answer[place..place + 8].copy_from_slice(&word.to_ne_bytes());
    }
    Answer::Container(answer)
}

impl Kernel for Scripted {
    fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    fn region(&self, index: u32) -> Region {
        let faults = lock(&self.faults);
        let bar = BARS.iter().find(|bar| u32::from(bar.index) == index);
        let config = (index == VFIO_PCI_CONFIG_REGION_INDEX).then(|| faults.config_bytes.unwrap_or(4096));
        let bytes = bar.map(|bar| bar.bytes).or(config).unwrap_or(0);
        Region {
            bytes,
            offset: REGION_BYTES * u64::from(index),
            is_usable: !faults.is_read_only,
            areas: None,
            is_mappable: bar.is_some() && !faults.is_unmappable,
        }
    }

    fn vectors(&self) -> u32 {
        100
    }

    fn enable_vectors(&self, eventfds: &[OwnedFd]) -> io::Result<()> {
        if lock(&self.faults).vectors_max.is_some_and(|most| eventfds.len() > most as usize) {
            return Err(io::Error::from_raw_os_error(EINVAL));
        }
        *lock(&self.eventfds) = eventfds.iter().map(|fd| fd.try_clone().unwrap()).collect();
        Ok(())
    }

    fn reset(&self) -> io::Result<()> {
        self.fail(|faults| faults.reset)?;
        *lock(&self.resets) += 1;
        Ok(())
    }

    fn iommu(&self) -> io::Result<Answer> {
        let answer = lock(&self.faults).iommu.clone();
        Ok(answer.unwrap_or_else(|| iommu_answer(0, (1 << 39) - 1, 1000)))
    }

    fn map(&self, address: u64, memory: Arc<Memory>) -> io::Result<()> {
        self.fail(|faults| faults.map)?;
        assert!(lock(&self.mapped).insert(address, memory).is_none(), "mapped twice");
        Ok(())
    }

    fn unmap(&self, address: u64) -> io::Result<()> {
        self.fail(|faults| faults.unmap)?;
        lock(&self.mapped).remove(&address).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }
}

fn open(kernel: &Arc<Scripted>) -> Result<VfioFunction, FunctionError> {
    let address = "0000:65:00.0".parse().unwrap();
    VfioFunction::over(address, Arc::clone(kernel) as _, OpenOptions::default())
}

fn opened(faults: Faults) -> (Arc<Scripted>, VfioFunction) {
    let kernel = Scripted::new(faults);
    let function = open(&kernel).unwrap();
    (kernel, function)
}

fn refusal(faults: Faults) -> String {
    open(&Scripted::new(faults)).unwrap_err().to_string()
}

fn long(device: &File, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    device.read_exact_at(&mut bytes, offset).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn bars_are_accessed_whether_mapped_or_not() {
    for is_unmappable in [false, true] {
        let (kernel, function) = opened(Faults { is_unmappable, ..Faults::default() });
        for (index, region) in [(REGISTER_BAR, 0), (DOORBELL_BAR, 2 * REGION_BYTES)] {
            let bar = function.bar(index).unwrap();
            let end = bar.bytes();
            assert_eq!(end, rnic_layout::pci::bar(index).unwrap().bytes);
            bar.write64(end - 8, 0x1122_3344_5566_7788);
            bar.write32(16, 0xaabb_ccdd);
            assert_eq!(long(&kernel.device, region + end - 8), 0x1122_3344_5566_7788);
            assert_eq!(long(&kernel.device, region + 16), 0xaabb_ccdd);
            assert_eq!((bar.read64(end - 8), bar.read32(end - 4)), (0x1122_3344_5566_7788, 0x1122_3344));
            assert_eq!((bar.read32(16), bar.read64(16)), (0xaabb_ccdd, 0xaabb_ccdd));
            // Behind the end there is nothing, though the file goes on.
            for offset in [end, u64::MAX - 3] {
                bar.write64(offset, 1);
                bar.write32(offset, 1);
                assert_eq!((bar.read64(offset), bar.read32(offset)), (u64::MAX, u32::MAX));
            }
            assert_eq!(long(&kernel.device, region + end), 0);
        }
        assert!(matches!(function.bar(4), Err(FunctionError::NoBar { index: 4 })), "it is the kernel's");
    }
}

#[test]
fn a_bar_that_is_switched_off_reads_as_all_ones() {
    let (kernel, function) = opened(Faults::default());
    let bar = function.bar(REGISTER_BAR).unwrap();
    bar.write64(0, 5);
    function.write_config(COMMAND, &COMMAND_BUS_MASTER.to_le_bytes()).unwrap();
    bar.write64(0, 6);
    assert_eq!((bar.read64(0), bar.read32(0)), (u64::MAX, u32::MAX));
    // The upper byte of the register, and another register, change nothing of that.
    function.write_config(COMMAND + 1, &[0]).unwrap();
    function.write_config(0x3c, &[COMMAND_MEMORY as u8]).unwrap();
    assert_eq!(bar.read64(0), u64::MAX);
    function.write_config(COMMAND, &[COMMAND_MEMORY as u8]).unwrap();
    assert_eq!(bar.read64(0), 5, "what was written in between is lost");
    assert_eq!(long(&kernel.device, CONFIG + u64::from(COMMAND)) as u16, COMMAND_MEMORY);
}

#[test]
fn the_configuration_space_is_read_whole_and_tells_a_card_that_is_gone() {
    let (kernel, function) = opened(Faults::default());
    let mut expected = config_image(7);
    expected[usize::from(COMMAND)] = COMMAND_MEMORY as u8;
    assert_eq!(function.config_space().unwrap(), expected);
    function.check().unwrap();
    kernel.device.write_all_at(&[0xff; 64], CONFIG).unwrap();
    let error = function.check().unwrap_err().to_string();
    assert!(error.starts_with("the PCI function 0000:65:00.0 does not answer"), "{error}");
    kernel.device.set_len(CONFIG).unwrap();
    let error = function.check().unwrap_err().to_string();
    assert!(error.contains("failed at a read of the configuration space"), "{error}");
    let error = function.write_config(COMMAND, &[2]).unwrap_err();
    // A file grows where a device would refuse; then the register that is read back is missing.
    assert!(matches!(error, FunctionError::Vfio { .. }), "{error}");
}

#[test]
fn memory_is_kept_while_it_is_mapped() {
    let (kernel, function) = opened(Faults::default());
    let memory = function.allocate(5000, Purpose::Ring).unwrap();
    assert!(memory.file().is_some(), "it can be given to another process");
    let first = function.map(&memory).unwrap();
    let second = function.map(&function.allocate(1, Purpose::Payload).unwrap()).unwrap();
    assert_eq!((first, second), (1 << 20, (1 << 20) + 3 * 4096), "a page lies between them");
    assert_eq!(lock(&kernel.mapped).len(), 2);
    function.unmap(first).unwrap();
    let again = function.unmap(first).unwrap_err();
    assert!(matches!(again, FunctionError::NotMapped { device_address } if device_address == first));
    assert_eq!(function.map(&memory).unwrap(), first, "addresses are used again");
}

#[test]
fn memory_of_the_application_is_mapped_in_whole_pages_however_often() {
    let (kernel, function) = opened(Faults::default());
    let vector = vec![0u8; 10_000];
    let (address, end) = (vector.as_ptr() as usize, vector.as_ptr() as usize + 10_000);
    let memory = Arc::new(Memory::of_user(vector.into()));
    let first = function.map(&memory).unwrap();
    // The kernel refuses a device address that is mapped, and takes the same memory at another one.
    let second = function.map(&memory).unwrap();
    assert_eq!(second, first + memory.bytes() as u64 + 4096);
    {
        let mapped = lock(&kernel.mapped);
        let mapped = &mapped[&second];
        assert_eq!((mapped.address() as usize, mapped.bytes() % 4096), (address / 4096 * 4096, 0));
        assert_eq!(mapped.address() as usize + mapped.bytes(), end.next_multiple_of(4096));
    }
    function.unmap(first).unwrap();
    function.unmap(second).unwrap();
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn a_refused_mapping_leaves_nothing_behind() {
    let (kernel, function) = opened(Faults { map: Some(ENOMEM), ..Faults::default() });
    let memory = function.allocate(8192, Purpose::Payload).unwrap();
    let error = function.map(&memory).unwrap_err().to_string();
    assert!(error.contains("cannot have 8192 bytes more, which are locked"), "{error}");
    assert_eq!((lock(&kernel.mapped).len(), Arc::strong_count(&memory)), (0, 1));
    lock(&kernel.faults).map = None;
    let address = function.map(&memory).unwrap();
    assert_eq!(address, 1 << 20, "its addresses were given back");
    lock(&kernel.faults).unmap = Some(EINVAL);
    let error = function.unmap(address).unwrap_err().to_string();
    assert!(error.contains("failed at the end of a mapping"), "{error}");
    assert_eq!(Arc::strong_count(&memory), 2, "the card may still access it");
    assert_ne!(function.map(&memory).unwrap(), address);
}

/// `iommufd` names no number of mappings, and other failures.
#[test]
fn an_address_space_of_iommufd_is_used_as_it_is() {
    let iommu = Some(Answer::Ranges { ranges: vec![(0x20_0000, 0x20_5fff)], alignment: 4096 });
    let (kernel, function) = opened(Faults { iommu, ..Faults::default() });
    let memory = function.allocate(4096, Purpose::Payload).unwrap();
    let addresses: Vec<u64> = (0..3).map(|_| function.map(&memory).unwrap()).collect();
    assert_eq!(addresses, [0x20_0000, 0x20_2000, 0x20_4000]);
    assert!(matches!(function.map(&memory), Err(FunctionError::OutOfAddresses { bytes: 4096 })));
    function.unmap(0x20_2000).unwrap();
    lock(&kernel.faults).map = Some(ENOMEM);
    let error = function.map(&memory).unwrap_err().to_string();
    assert!(error.contains("which are locked"), "{error}");
    let alignment = Some(Answer::Ranges { ranges: vec![(0, u64::MAX)], alignment: 65536 });
    let error = refusal(Faults { iommu: alignment, ..Faults::default() });
    assert!(error.contains("whose pages have the sizes 0x10000"), "{error}");
}

#[test]
fn limits_of_the_kernel_are_kept() {
    let iommu = Some(iommu_answer(0x20_0000, 0x20_4fff, 2));
    let (kernel, function) = opened(Faults { iommu, ..Faults::default() });
    let memory = function.allocate(4096, Purpose::Payload).unwrap();
    let large = function.allocate(4 * 4096 + 1, Purpose::Payload).unwrap();
    let refused = function.map(&large);
    assert!(matches!(refused, Err(FunctionError::OutOfAddresses { bytes: 20480 })), "{refused:?}");
    let first = function.map(&memory).unwrap();
    function.map(&memory).unwrap();
    let error = function.map(&memory).unwrap_err().to_string();
    assert!(error.contains("all the mappings that the kernel keeps for it, 2;"), "{error}");
    function.unmap(first).unwrap();
    assert_eq!(function.map(&memory).unwrap(), 0x20_0000);
    assert_eq!(lock(&kernel.mapped).len(), 2);
}

#[test]
fn what_the_kernel_says_wrongly_is_refused() {
    for (faults, expected) in [
        (Faults { config_bytes: Some(0), ..Faults::default() }, "the size of the configuration space is 0x0"),
        (
            Faults { config_bytes: Some(8192), ..Faults::default() },
            "the size of the configuration space is 0x2000",
        ),
        (
            Faults { iommu: Some(Answer::Container(vec![0; 7])), ..Faults::default() },
            "the length of the answer about the IOMMU is 0x7",
        ),
        (Faults { vectors_max: Some(0), ..Faults::default() }, "failed at the set-up of its interrupts"),
    ] {
        let error = refusal(faults);
        assert!(error.starts_with("the PCI function 0000:65:00.0 ") && error.contains(expected), "{error}");
    }
    let (_, function) = opened(Faults { is_read_only: true, ..Faults::default() });
    assert!(matches!(function.bar(REGISTER_BAR), Err(FunctionError::NoBar { .. })), "it cannot be written");
}

#[test]
fn interrupts_arrive_as_counts_of_eventfds() {
    let (kernel, function) = opened(Faults::default());
    assert_eq!(function.interrupt_vectors(), INTERRUPT_VECTORS_MAX);
    let raise =
        |vector: usize| rustix::io::write(&lock(&kernel.eventfds)[vector], &1u64.to_ne_bytes()).unwrap();
    raise(3);
    assert!(!function.take_interrupt(2).unwrap());
    assert!(function.wait_interrupt(3, Duration::from_secs(60)).unwrap());
    assert!(!function.take_interrupt(3).unwrap(), "it was taken");
    let until = function.now() + Duration::from_millis(3);
    assert!(!function.wait_interrupt(3, until).unwrap() && function.now() >= until);
    raise(0);
    let fd = function.interrupt_fd(0).unwrap().unwrap();
    assert_eq!(rustix::io::read(fd, &mut [0u8; 8]), Ok(8), "an event loop sees the same file descriptor");
    assert!(matches!(function.interrupt_fd(64), Err(FunctionError::NoVector { vector: 64 })));
}

#[test]
fn a_host_with_fewer_vectors_gives_those() {
    for (most, expected) in [(64, 64), (63, 32), (20, 16), (1, 1)] {
        let (kernel, function) = opened(Faults { vectors_max: Some(most), ..Faults::default() });
        assert_eq!(function.interrupt_vectors(), expected);
        assert_eq!(lock(&kernel.eventfds).len() as u32, expected);
    }
}

#[test]
fn a_reset_is_done_or_refused() {
    let (kernel, function) = opened(Faults::default());
    function.reset().unwrap();
    assert_eq!(*lock(&kernel.resets), 1);
    for (errno, expected) in [(ENOTTY, "the kernel knows no reset for it"), (EINVAL, "failed at a reset")] {
        lock(&kernel.faults).reset = Some(errno);
        let error = function.reset().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
