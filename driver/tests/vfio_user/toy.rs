//! A toy device behind the server of the crate `vfio_user`, which shares no code with this driver.

use crate::forked::{beside_forked_process, in_forked_process};
use crate::{impatient, options};
use rnic_driver::function::{DOORBELL_BAR, REGISTER_BAR};
use rnic_driver::vfio_user::{ConnectOptions, VfioUserFunction};
use rnic_driver::{Device, Error, Function, FunctionError, Memory, Options, Purpose, ServerError};
use rnic_layout::pci::{COMMAND, CONFIG_BYTES, DOORBELL_BAR_BYTES, REGISTER_BAR_BYTES, config_image};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, Write, pipe};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vfio_bindings::bindings::vfio::{vfio_region_info, vfio_region_sparse_mmap_area};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion, SparseArea};

/// Register that the device copies a word from.
const FROM: u64 = 0x100;
/// Register that it copies the word to.
const TO: u64 = 0x108;
/// Register whose value is the vector that is raised after a copy.
const COPY: u64 = 0x110;
/// Vectors of the device: more than fit in one message.
const VECTORS: u32 = 40;

/// What is left of the device when its client has gone.
#[derive(Debug, Default)]
struct Left {
    resets: u32,
    mapped: usize,
    /// Device addresses in the order of their mapping.
    addresses: Vec<u64>,
    eventfds: usize,
}

struct Toy {
    registers: Vec<u8>,
    config: Vec<u8>,
    /// Address, size and file of mapped memory.
    mapped: Vec<(u64, u64, File)>,
    eventfds: Vec<File>,
    left: Left,
}

impl Toy {
    fn new() -> Self {
        Self {
            registers: vec![0; REGISTER_BAR_BYTES as usize],
            config: config_image(0).to_vec(),
            mapped: Vec::new(),
            eventfds: Vec::new(),
            left: Left::default(),
        }
    }

    fn word(&self, offset: u64) -> u64 {
        u64::from_le_bytes(self.registers[offset as usize..][..8].try_into().unwrap())
    }

    fn memory(&self, address: u64) -> (&File, u64) {
        let hit = self.mapped.iter().find(|&&(first, bytes, _)| (first..first + bytes).contains(&address));
        let (first, _, file) = hit.expect("the address is mapped");
        (file, address - first)
    }

    fn copy(&self) {
        let mut word = [0; 8];
        let (from, offset) = self.memory(self.word(FROM));
        from.read_exact_at(&mut word, offset).unwrap();
        let (to, offset) = self.memory(self.word(TO));
        to.write_all_at(&word, offset).unwrap();
        (&self.eventfds[self.word(COPY) as usize]).write_all(&1u64.to_ne_bytes()).unwrap();
    }

    fn region(&mut self, region: u32) -> &mut Vec<u8> {
        match region {
            0 => &mut self.registers,
            7 => &mut self.config,
            other => panic!("region {other} has no bytes"),
        }
    }
}

impl ServerBackend for Toy {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        data.copy_from_slice(&self.region(region)[offset as usize..][..data.len()]);
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        self.region(region)[offset as usize..][..data.len()].copy_from_slice(data);
        if (region, offset) == (0, COPY) {
            self.copy();
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        assert_eq!((flags, offset), (DmaMapFlags::READ_WRITE, 0));
        let file = fd.expect("memory comes with its file");
        assert_eq!(file.metadata()?.len(), size);
        self.left.addresses.push(address);
        self.mapped.push((address, size, file));
        Ok(())
    }

    fn dma_unmap(&mut self, _: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        let before = self.mapped.len();
        self.mapped.retain(|&(first, bytes, _)| (first, bytes) != (address, size));
        assert_eq!(self.mapped.len() + 1, before);
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.left.resets += 1;
        self.registers.fill(0);
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, _: u32, start: u32, count: u32, fds: Vec<File>) -> io::Result<()> {
        assert_eq!((index, start as usize, count as usize), (2, self.eventfds.len(), fds.len()));
        self.eventfds.extend(fds);
        Ok(())
    }
}

/// A server in a thread of its own. Its one client must have gone before it is joined.
struct Served {
    path: PathBuf,
    thread: JoinHandle<Left>,
    _folder: tempfile::TempDir,
}

fn serve(is_resettable: bool) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.sock");
    let sizes = [REGISTER_BAR_BYTES, 0, DOORBELL_BAR_BYTES, 0, 0x2000, 0, 0, CONFIG_BYTES as u64, 0];
    let region = |(index, size): (usize, u64)| {
        // The doorbells have an area that could be mapped, with which the answer about them is longer.
        let area = SparseArea { area: vfio_region_sparse_mmap_area { offset: 0x1000, size: 0x2000 } };
        let region_info =
            vfio_region_info { argsz: 32, flags: 3, index: index as u32, size, ..Default::default() };
        let sparse_areas = if index == 2 { vec![area] } else { Vec::new() };
        ServerRegion { region_info, sparse_areas, mmap_fd: None }
    };
    let regions = sizes.into_iter().enumerate().map(region).collect();
    let irqs = [1, 1, VECTORS, 1, 1].into_iter().enumerate();
    let irqs = irqs.map(|(index, count)| IrqInfo { index: index as u32, flags: 1, count }).collect();
    let server = Server::new(&path, is_resettable, irqs, regions).unwrap();
    let thread = std::thread::spawn(move || {
        let mut toy = Toy::new();
        server.run(&mut toy).unwrap();
        Left { mapped: toy.mapped.len(), eventfds: toy.eventfds.len(), ..toy.left }
    });
    Served { path, thread, _folder: folder }
}

fn word(memory: &Arc<Memory>, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    memory.device_view().read(offset, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn a_function_is_described_read_and_written() {
    let served = serve(true);
    let function = VfioUserFunction::connect(&served.path, options()).unwrap();
    assert_eq!(function.config_space().unwrap(), config_image(0));
    function.write_config(COMMAND, &[6, 0]).unwrap();
    assert_eq!(function.config_space().unwrap()[4..6], [6, 0]);
    assert!(matches!(function.bar(4), Err(FunctionError::NoBar { index: 4 })));
    assert_eq!(function.bar(DOORBELL_BAR).unwrap().bytes(), DOORBELL_BAR_BYTES);
    let registers = function.bar(REGISTER_BAR).unwrap();
    registers.write64(0x20, 0x1122_3344_5566_7788);
    registers.write32(0x24, 0xaabb_ccdd);
    assert_eq!((registers.read64(0x20), registers.read32(0x20)), (0xaabb_ccdd_5566_7788, 0x5566_7788));
    for offset in [REGISTER_BAR_BYTES - 4, REGISTER_BAR_BYTES, u64::MAX - 3] {
        registers.write64(offset, 7);
        assert_eq!(registers.read64(offset), u64::MAX, "outside of the BAR");
    }
    function.check().unwrap();
    drop(function);
    assert_eq!(served.thread.join().unwrap().eventfds, VECTORS as usize);
}

/// A process that is forked has the same socket, and says nothing on it.
#[test]
fn a_forked_process_leaves_the_connection_alone() {
    let served = serve(true);
    let mut function = Some(VfioUserFunction::connect(&served.path, options()).unwrap());
    let memory = function.as_ref().unwrap().allocate(4096, Purpose::Payload).unwrap();
    let address = function.as_ref().unwrap().map(&memory).unwrap();
    function.as_ref().unwrap().bar(REGISTER_BAR).unwrap().write64(0x20, 5);
    in_forked_process(|| {
        let copy = function.take().unwrap();
        let registers = copy.bar(REGISTER_BAR).unwrap();
        registers.write64(0x20, 6);
        assert_eq!(registers.read64(0x20), u64::MAX);
        for failed in [copy.unmap(address), copy.reset(), copy.check().and(copy.config_space().map(drop))] {
            let error = failed.unwrap_err().to_string();
            assert!(error.contains("the process that this one was forked from"), "{error}");
        }
        drop(copy);
    });
    let function = function.unwrap();
    assert_eq!(function.bar(REGISTER_BAR).unwrap().read64(0x20), 5);
    function.check().unwrap();
    function.unmap(address).unwrap();
    drop(function);
    let left = served.thread.join().unwrap();
    assert_eq!((left.resets, left.mapped), (0, 0));
}

/// Another process has the socket too, as one has that a thread of this process starts.
#[test]
fn a_driver_that_is_dropped_has_left_at_once() {
    let served = serve(true);
    let function = VfioUserFunction::connect(&served.path, options()).unwrap();
    let (hold, mut release) = pipe().unwrap();
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    beside_forked_process(
        || assert_eq!(poll(&mut [PollFd::new(&hold, PollFlags::IN)], Some(&limit)), Ok(1)),
        || {
            drop(function);
            served.thread.join().unwrap();
            release.write_all(&[0]).unwrap();
        },
    );
}

/// Reads come after all writes before them, however many writes one answer stands for.
#[test]
fn posted_writes_arrive_in_order_and_before_a_read() {
    for posted_max in [0, 1, 2, 7, u32::MAX] {
        let served = serve(true);
        let options = ConnectOptions { posted_max, ..options() };
        let function = VfioUserFunction::connect(&served.path, options).unwrap();
        let registers = function.bar(REGISTER_BAR).unwrap();
        for value in 0..200 {
            registers.write64(0x40, value);
            registers.write64(0x48 + value % 3 * 8, value);
            if value % 11 == 0 {
                assert_eq!(registers.read64(0x40), value, "{posted_max}");
            }
        }
        assert_eq!([0x40, 0x48, 0x50, 0x58].map(|offset| registers.read64(offset)), [199, 198, 199, 197]);
        function.check().unwrap();
        drop(function);
        served.thread.join().unwrap();
    }
}

#[test]
fn the_card_reaches_mapped_memory_and_interrupts_wait() {
    let served = serve(true);
    let function = VfioUserFunction::connect(&served.path, options()).unwrap();
    assert_eq!(function.interrupt_vectors(), VECTORS);
    let [from, to] =
        [Purpose::Payload, Purpose::Ring].map(|purpose| function.allocate(5000, purpose).unwrap());
    let addresses = [&from, &to].map(|memory| function.map(memory).unwrap());
    let registers = function.bar(REGISTER_BAR).unwrap();
    for vector in 0..VECTORS {
        let (value, place) = (0x1234_5678_0000_0000 | u64::from(vector), 8 * vector as usize);
        from.device_view().write(place, &value.to_le_bytes()).unwrap();
        assert!(!function.take_interrupt(vector).unwrap());
        registers.write64(FROM, addresses[0] + place as u64);
        registers.write64(TO, addresses[1] + 4096 + place as u64);
        registers.write64(COPY, vector.into());
        assert!(function.wait_interrupt(vector, function.now() + Duration::from_secs(5)).unwrap());
        assert!(!function.take_interrupt(vector).unwrap(), "it is taken once");
        assert_eq!(word(&to, 4096 + place), value);
    }
    let until = function.now() + Duration::from_millis(20);
    assert!(!function.wait_interrupt(0, until).unwrap() && function.now() >= until);
    assert!(matches!(function.take_interrupt(VECTORS), Err(FunctionError::NoVector { vector: 40 })));

    // An address is free when its mapping has ended, and used again.
    function.unmap(addresses[0]).unwrap();
    assert!(matches!(function.unmap(addresses[0]), Err(FunctionError::NotMapped { .. })));
    assert_eq!(function.map(&from).unwrap(), addresses[0]);
    let private = Arc::new(Memory::zeroed(1, Purpose::Ring));
    assert!(matches!(function.map(&private), Err(FunctionError::NotShared { bytes: 4096 })));
    drop(function);
    let left = served.thread.join().unwrap();
    assert_eq!((left.mapped, left.addresses), (2, vec![addresses[0], addresses[1], addresses[0]]));
}

#[test]
fn a_server_may_have_all_the_time_there_is() {
    for timeout in [Duration::from_secs(1 << 40), Duration::MAX] {
        let served = serve(true);
        let function =
            VfioUserFunction::connect(&served.path, ConnectOptions { timeout, ..options() }).unwrap();
        let registers = function.bar(REGISTER_BAR).unwrap();
        registers.write64(0x40, 5);
        assert_eq!(registers.read64(0x40), 5);
        assert!(!function.wait_interrupt(0, Duration::ZERO).unwrap());
        drop(function);
        served.thread.join().unwrap();
    }
}

#[test]
fn a_card_has_the_addresses_that_it_may_use() {
    let served = serve(true);
    let options = ConnectOptions { addresses: 0x1_0000..0x1_5000, ..options() };
    let function = VfioUserFunction::connect(&served.path, options).unwrap();
    let memory = function.allocate(4096, Purpose::Ring).unwrap();
    assert_eq!([0; 2].map(|_| function.map(&memory).unwrap()), [0x1_0000, 0x1_2000]);
    assert!(matches!(function.map(&memory), Err(FunctionError::OutOfAddresses { bytes: 4096 })));
    drop(function);
    served.thread.join().unwrap();
}

#[test]
fn a_function_is_reset_if_its_server_offers_it() {
    let served = serve(true);
    let function = VfioUserFunction::connect(&served.path, options()).unwrap();
    let registers = function.bar(REGISTER_BAR).unwrap();
    registers.write64(0x40, 5);
    function.reset().unwrap();
    assert_eq!(registers.read64(0x40), 0);
    drop(function);
    assert_eq!(served.thread.join().unwrap().resets, 1);

    let served = serve(false);
    let function = VfioUserFunction::connect(&served.path, options()).unwrap();
    assert!(matches!(function.reset(), Err(FunctionError::Unsupported { .. })));
    drop(function);
    assert_eq!(served.thread.join().unwrap().resets, 0);
}

/// The driver takes the toy for a card until it reads its registers, and leaves nothing mapped.
#[test]
fn a_device_that_is_no_card_is_refused_by_its_registers() {
    let served = serve(true);
    let function = VfioUserFunction::connect(&served.path, options()).unwrap();
    let error = Device::open(Arc::new(function), Options::new([2, 0, 0, 0, 0, 1])).unwrap_err();
    assert!(matches!(error, Error::NotThisCard { found: 0 }), "{error}");
    assert_eq!(served.thread.join().unwrap().mapped, 0);
}

fn unreachable(path: &std::path::Path) -> (String, Duration) {
    let began = Instant::now();
    let error = VfioUserFunction::connect(path, impatient()).unwrap_err();
    assert!(matches!(error, FunctionError::Server { .. }), "{error}");
    (error.to_string(), began.elapsed())
}

#[test]
fn a_path_without_a_server_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.sock");
    let (error, _) = unreachable(&path);
    let start = format!("the server at {} cannot be reached: No such file", path.display());
    assert!(error.starts_with(&start), "{error}");
    drop(UnixListener::bind(&path).unwrap());
    assert!(unreachable(&path).0.contains("Connection refused"), "nobody listens any more");
    let path = folder.path().join("n".repeat(200));
    let (error, _) = unreachable(&path);
    let bytes = path.as_os_str().len();
    let why = format!("its path has {bytes} bytes, and that of a socket has at most 107");
    assert!(error.contains(&format!("cannot be reached: {why}")), "{error}");
}

/// A server that serves somebody else leaves further clients in its queue.
#[test]
fn a_server_that_accepts_nobody_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let (error, took) = unreachable(&path);
    assert!(error.contains("took longer than 1s to answer the version"), "{error}");
    assert!((Duration::from_secs(1)..Duration::from_secs(10)).contains(&took), "{took:?}");
}

/// Its queue has an end.
#[test]
fn a_server_without_room_for_a_client_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.sock");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let (error, took) = unreachable(&path);
    assert!(error.contains("took longer than 1s to answer the connection"), "{error}");
    assert!((Duration::from_secs(1)..Duration::from_secs(10)).contains(&took), "{took:?}");
}

/// A wait for an interrupt ends when the server does.
#[test]
fn the_end_of_the_server_ends_a_wait() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let (ready, is_ready): (_, Receiver<()>) = channel();
    let server = std::thread::spawn(move || {
        crate::lies::serve(theirs, &mut |_, _| crate::lies::Act::Send, &mut |command| {
            if command == crate::lies::RESET {
                // The client waits by now, or will see the end when it begins to.
                is_ready.recv().unwrap();
                return false;
            }
            true
        });
    });
    let function = Arc::new(VfioUserFunction::over(ours, "pair".to_string(), options()).unwrap());
    let resetting = Arc::clone(&function);
    let waiter = std::thread::spawn(move || function.wait_interrupt(0, Duration::from_secs(60)));
    ready.send(()).unwrap();
    assert!(resetting.reset().is_err());
    let error = waiter.join().unwrap().unwrap_err();
    assert!(matches!(&error, FunctionError::Server { error: ServerError::Closed { .. }, .. }), "{error}");
    server.join().unwrap();
}
