//! Cards behind sockets: the server with a card in Verilog that copies memory, opened by the client of the crate `vfio_user`.
use anyhow::{Context, Result, ensure};
use rnic_layout::pci::{
    COMMAND, COMMAND_BUS_MASTER, COMMAND_MEMORY, DEVICE, DEVICE_CONTROL, DEVICE_CONTROL_RESET,
    MSIX_PENDING_OFFSET, VENDOR,
};
use rnic_layout::registers::counter;
use rnic_machine::host::HostOptions;
use rnic_machine::served::background::Background;
use rnic_machine::served::server::{Server, Summary};
use rnic_machine::world::{CardOptions, Port, World, model_options};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use verilator_sys::{Model, ModelOptions, Optimization};
use vfio_user::Client;

const PATIENCE: Duration = Duration::from_secs(60);
const CONFIG: u32 = 7;
const MSIX_BAR: u32 = 4;
const MSIX: u32 = 2;
/// Sets an eventfd for each vector.
const SIGNAL_EVENTFDS: u32 = 0x24;
/// Raises vectors.
const RAISE: u32 = 0x21;
/// The vector that the card raises at the end of a copy.
const VECTOR: u32 = 5;
const SOURCE: u64 = 0x10_0000;
const TARGET: u64 = 0x20_0000;
const HALF: u64 = 0x1_0000;
/// Registers of the card.
const GO: u64 = 0x2018;
const SCRATCH: u64 = 0x2028;

/// A card whose function-level reset takes some cycles.
fn model(reset_cycles: usize) -> Result<Model> {
    let parameters = [
        ("RESET_CYCLES", reset_cycles),
        ("W", 64),
        ("HOST_READS", counter("host_reads")),
        ("HOST_WRITES", counter("host_writes")),
        ("INTERRUPTS", counter("interrupts_raised")),
    ];
    let verilator_arguments = parameters.map(|(name, value)| format!("-G{name}={value}")).to_vec();
    let options =
        ModelOptions { optimization: Optimization::O1, verilator_arguments, ..ModelOptions::default() };
    Ok(Model::build("echo_card", include_str!("fixtures/echo_card.v"), &model_options(options))?)
}

/// A server in a thread of its own.
struct Served {
    sockets: Vec<PathBuf>,
    server: Background,
    remarks: Arc<Mutex<Vec<String>>>,
    _folder: TempDir,
}

impl Served {
    fn start(cards: usize, host: HostOptions) -> Result<Served> {
        Served::start_of(&model(0)?, cards, host)
    }

    fn start_of(model: &Model, cards: usize, host: HostOptions) -> Result<Served> {
        let folder = tempfile::tempdir()?;
        let sockets: Vec<PathBuf> =
            (0..cards).map(|card| folder.path().join(format!("card{card}"))).collect();
        let options = CardOptions { host, is_judged: false, ..CardOptions::standard(64) };
        let mut world = World::new(1);
        for _ in 0..cards {
            world.add_card(model, options)?;
        }
        if cards == 2 {
            world.connect(Port::Card(0), Port::Card(1), options.wire())?;
        }
        world.leave_reset()?;
        let remarks = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&remarks);
        let server = Server::new(world, &sockets, move |line| log.lock().unwrap().push(line.to_string()))?;
        Ok(Served { sockets, server: server.spawn()?, remarks, _folder: folder })
    }

    fn open(&self, card: usize) -> Result<Opened> {
        let mut opened = Opened { client: Client::new(&self.sockets[card])? };
        opened.command(COMMAND_MEMORY | COMMAND_BUS_MASTER)?;
        Ok(opened)
    }

    fn end(self) -> Result<Summary> {
        let summary = self.server.end()?;
        ensure!(self.sockets.iter().all(|socket| !socket.exists()), "the sockets are removed");
        Ok(summary)
    }
}

struct Opened {
    client: Client,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let _ = self.client.shutdown();
    }
}

/// Ends a connection at once. Until it runs its program, a process that another test starts has the socket too, so that the server
/// would not see that it is closed.
fn leave(stream: UnixStream) -> Result<()> {
    Ok(stream.shutdown(Shutdown::Both)?)
}

impl Opened {
    fn command(&mut self, value: u16) -> Result<()> {
        Ok(self.client.region_write(CONFIG, COMMAND.into(), &value.to_le_bytes())?)
    }

    fn read(&mut self, offset: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.client.region_read(0, offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn write(&mut self, offset: u64, value: u64) -> Result<()> {
        Ok(self.client.region_write(0, offset, &value.to_le_bytes())?)
    }

    fn start_copy(&mut self, length: u64, count: u64) -> Result<()> {
        for (offset, value) in [(0x2000, SOURCE), (0x2008, TARGET), (0x2010, count << 16 | length), (GO, 1)] {
            self.write(offset, value)?;
        }
        Ok(())
    }

    /// Maps a source of known bytes and a target. Returns both as one file.
    fn map(&mut self) -> Result<File> {
        let memory = memfd_create("memory", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, 2 * HALF)?;
        let file = File::from(memory);
        file.write_all_at(&pattern(), 0)?;
        self.client.dma_map(0, SOURCE, HALF, file.as_raw_fd())?;
        self.client.dma_map(HALF, TARGET, HALF, file.as_raw_fd())?;
        Ok(file)
    }

    fn signal(&mut self, vector: u32) -> Result<OwnedFd> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC)?;
        self.client.set_irqs(MSIX, SIGNAL_EVENTFDS, vector, 1, &[eventfd.as_raw_fd()])?;
        Ok(eventfd)
    }

    /// Waits until the card has written pieces: another number than those of its last copy, which the register shows until it
    /// begins the next.
    fn finish_copy(&mut self, count: u64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.read(GO)? as u16 != count as u16 {
            ensure!(Instant::now() < deadline, "the copy does not end");
        }
        Ok(())
    }

    /// Copies pieces, and compares them.
    fn copy(&mut self, length: u64, count: u64) -> Result<()> {
        let memory = self.map()?;
        self.start_copy(length, count)?;
        self.finish_copy(count)?;
        let mut target = vec![0; HALF as usize];
        memory.read_exact_at(&mut target, HALF)?;
        for (piece, (copied, source)) in target.chunks(512).zip(pattern().chunks(512)).enumerate() {
            let (copied, rest) = copied.split_at(length as usize);
            let is_there = (piece as u64) < count;
            ensure!(copied == if is_there { &source[..copied.len()] } else { &[0; 512][..copied.len()] });
            ensure!(rest.iter().all(|&byte| byte == 0), "nothing else is written");
        }
        Ok(())
    }
}

fn pattern() -> Vec<u8> {
    (0..HALF as usize).map(|place| (place * 31 + place / 251 + 1) as u8 | 1).collect()
}

/// Error numbers of refusals.
const EXISTS: u32 = 17;
const INVALID: u32 = 22;
/// The client wants no reply.
const POSTED: u32 = 0x10;

/// Bytes of a request.
fn request(command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let head = [[0, 0], command.to_ne_bytes()].concat();
    let bytes = (16 + body.len()) as u32;
    [&head[..], &bytes.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 4], body].concat()
}

/// Body of a read or write in a region.
fn access(region: u32, offset: u64, count: u32, data: &[u8]) -> Vec<u8> {
    [&offset.to_ne_bytes()[..], &region.to_ne_bytes(), &count.to_ne_bytes(), data].concat()
}

/// Body of a mapping of pages without a file, or of its end.
fn mapping(is_end: bool, address: u64, bytes: u64) -> Vec<u8> {
    let offset = if is_end { &[][..] } else { &[0; 8] };
    [&[0; 8], offset, &address.to_ne_bytes(), &bytes.to_ne_bytes()].concat()
}

/// Body of the end of all mappings.
fn end_of_all() -> Vec<u8> {
    [0_u32, 1 << 2, 0, 0, 0, 0].map(u32::to_ne_bytes).concat()
}

/// Receives a reply of this many bytes, which is no refusal.
fn hear(stream: &mut UnixStream, bytes: usize) -> Result<Vec<u8>> {
    let mut reply = vec![0; bytes];
    std::io::Read::read_exact(stream, &mut reply)?;
    ensure!(reply[8..16] == [1, 0, 0, 0, 0, 0, 0, 0], "{reply:?}");
    Ok(reply)
}

/// A client whose messages are written by hand.
fn raw(socket: &Path) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&request(1, 0, &[0, 0, 1, 0, b'{', b'}', 0]))?;
    let version = r#"{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":4096}}"#;
    hear(&mut stream, 16 + 4 + version.len() + 1)?;
    Ok(stream)
}

/// Returns whether there is something to read.
fn is_ready(stream: &UnixStream) -> Result<bool> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&at_once))? == 1)
}

/// Waits until an eventfd is signalled. Returns how often it was.
fn wait(eventfd: &OwnedFd) -> Result<u64> {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    ensure!(poll(&mut [PollFd::new(eventfd, PollFlags::IN)], Some(&patience))? == 1, "no interrupt");
    let mut count = [0; 8];
    rustix::io::read(eventfd, &mut count)?;
    Ok(u64::from_ne_bytes(count))
}

#[test]
fn a_card_copies_the_memory_of_its_client_and_interrupts_it() -> Result<()> {
    for host in [HostOptions::IDEAL, HostOptions::STANDARD] {
        let served = Served::start(1, host)?;
        let mut card = served.open(0)?;
        let mut identity = [0; 4];
        card.client.region_read(CONFIG, 0, &mut identity)?;
        ensure!(identity == [VENDOR.to_le_bytes(), DEVICE.to_le_bytes()].concat()[..]);
        let eventfd = card.signal(VECTOR)?;
        card.copy(300, 100)?;
        ensure!(wait(&eventfd)? == 1 && card.read(GO)? == 100);
        card.client.dma_unmap(SOURCE, HALF)?;
        drop(card);
        let remarks = Arc::clone(&served.remarks);
        let card = &served.end()?.cards[0];
        ensure!((card.clients, card.refused, card.remarks) == (1, 0, 0), "{card:?} {remarks:?}");
        ensure!((card.traffic.reads, card.traffic.interrupts) == (100, 1), "{card:?}");
    }
    Ok(())
}

#[test]
fn registers_are_accessed_in_all_sizes_of_the_bus() -> Result<()> {
    let served = Served::start(1, HostOptions::IDEAL)?;
    let mut card = served.open(0)?;
    card.write(SCRATCH, 0x0807_0605_0403_0201)?;
    for size in [1, 2, 4, 8] {
        for offset in (0..8).step_by(size) {
            let mut bytes = vec![0; size];
            card.client.region_read(0, SCRATCH + offset as u64, &mut bytes)?;
            ensure!(bytes[0] == offset as u8 + 1 && bytes[size - 1] == (offset + size) as u8, "{bytes:?}");
        }
    }
    card.command(COMMAND_BUS_MASTER)?;
    card.write(SCRATCH, 7)?;
    ensure!(card.read(SCRATCH)? == u64::MAX, "memory is off");
    card.command(COMMAND_MEMORY)?;
    ensure!(card.read(SCRATCH)? == 0x0807_0605_0403_0201, "the write was lost");
    Ok(())
}

#[test]
fn a_card_that_is_not_bus_master_reaches_nothing_and_interrupts_nobody() -> Result<()> {
    let served = Served::start(1, HostOptions::IDEAL)?;
    let mut card = served.open(0)?;
    let memory = card.map()?;
    let early = card.signal(VECTOR)?;
    card.command(COMMAND_MEMORY)?;
    card.start_copy(300, 1)?;
    let counter = |name| 0x1000 + 8 * counter(name) as u64;
    for _ in 0..100 {
        ensure!(card.read(counter("host_reads"))? == 0 && card.read(counter("interrupts_raised"))? == 0);
    }
    let mut target = vec![0; HALF as usize];
    memory.read_exact_at(&mut target, HALF)?;
    ensure!(target.iter().all(|&byte| byte == 0), "nothing is written");
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    ensure!(poll(&mut [PollFd::new(&early, PollFlags::IN)], Some(&at_once))? == 0, "the copy has begun");
    card.command(COMMAND_MEMORY | COMMAND_BUS_MASTER)?;
    ensure!(wait(&early)? == 1, "the copy goes on");
    card.finish_copy(1)?;
    memory.read_exact_at(&mut target, HALF)?;
    ensure!(target[..300] == pattern()[..300]);
    let remarks = served.end()?.cards[0].remarks;
    ensure!(remarks == 0, "{remarks} remarks");
    Ok(())
}

#[test]
fn a_vector_without_an_eventfd_is_pending() -> Result<()> {
    let served = Served::start(1, HostOptions::IDEAL)?;
    let mut card = served.open(0)?;
    for vector in [3, 63] {
        card.client.set_irqs(MSIX, RAISE, vector, 1, &[])?;
    }
    let mut pending = [0; 8];
    card.client.region_read(MSIX_BAR, MSIX_PENDING_OFFSET.into(), &mut pending)?;
    ensure!(u64::from_le_bytes(pending) == 1 << 3 | 1 << 63, "{pending:?}");
    let eventfd = card.signal(63)?;
    ensure!(wait(&eventfd)? == 1);
    card.client.set_irqs(MSIX, RAISE, 63, 1, &[])?;
    ensure!(wait(&eventfd)? == 1);
    card.client.region_read(MSIX_BAR, MSIX_PENDING_OFFSET.into(), &mut pending)?;
    ensure!(u64::from_le_bytes(pending) == 1 << 3, "{pending:?}");
    // The table holds what is written; the pending bits do not.
    card.client.region_write(MSIX_BAR, 16, &[1, 2, 3, 4])?;
    card.client.region_write(MSIX_BAR, MSIX_PENDING_OFFSET.into(), &[0xff])?;
    let mut entry = [0; 4];
    card.client.region_read(MSIX_BAR, 16, &mut entry)?;
    card.client.region_read(MSIX_BAR, MSIX_PENDING_OFFSET.into(), &mut pending)?;
    ensure!(entry == [1, 2, 3, 4] && u64::from_le_bytes(pending) == 1 << 3);
    Ok(())
}

/// A full counter, and file descriptors that are no eventfds: writing to them would wait for the client.
#[test]
fn an_eventfd_that_would_wait_stops_nobody() -> Result<()> {
    let served = Served::start(1, HostOptions::IDEAL)?;
    let mut card = served.open(0)?;
    let full = card.signal(9)?;
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes())?;
    card.client.set_irqs(MSIX, RAISE, 9, 1, &[])?;
    ensure!(wait(&full)? == u64::MAX - 1);
    let (reader, writer) = std::io::pipe()?;
    card.client.set_irqs(MSIX, SIGNAL_EVENTFDS, 9, 1, &[writer.as_raw_fd()])?;
    card.client.set_irqs(MSIX, RAISE, 9, 1, &[])?;
    ensure!(wait(&full)? == 1, "the eventfd stays");
    drop((reader, card));
    let refused = served.end()?.cards[0].refused;
    ensure!(refused == 1, "{refused} requests refused");
    Ok(())
}

/// A reset ends the copy of a client that has gone; the next client finds the card.
#[test]
fn a_client_that_dies_in_mid_transfer_leaves_the_card_to_the_next() -> Result<()> {
    let served = Served::start(1, HostOptions::STANDARD)?;
    for _ in 0..3 {
        let mut card = served.open(0)?;
        card.copy(512, 10)?;
        card.client.dma_unmap(SOURCE, HALF)?;
        card.client.dma_unmap(TARGET, HALF)?;
        let memory = card.map()?;
        card.start_copy(512, 120)?;
        drop((card, memory));
    }
    let card = &served.end()?.cards[0];
    ensure!((card.clients, card.refused) == (3, 0), "{card:?}");
    Ok(())
}

#[test]
fn a_second_client_is_told_that_the_card_is_in_use() -> Result<()> {
    let served = Served::start(1, HostOptions::IDEAL)?;
    let mut first = served.open(0)?;
    ensure!(served.open(0).is_err(), "the card is in use");
    let mut second = UnixStream::connect(&served.sockets[0])?;
    second.write_all(&request(1, 0, &[0, 0, 1, 0, b'{', b'}', 0]))?;
    let mut refusal = Vec::new();
    std::io::Read::read_to_end(&mut second, &mut refusal)?;
    let owner = format!("process {} has the card for ", std::process::id());
    for text in [String::from_utf8_lossy(&refusal[16..]).as_ref(), &served.remarks.lock().unwrap()[0]] {
        ensure!(text.contains(&owner) && text.contains(" s and has said nothing for 0."), "{text}");
    }
    first.copy(64, 2)?;
    drop(first);
    served.open(0)?.copy(64, 3)?;
    let card = &served.end()?.cards[0];
    ensure!((card.clients, card.remarks) == (2, 0), "{card:?}");
    Ok(())
}

/// A client comes as soon as the one before it has left, while the server accepts others, and while processes are started.
#[test]
fn a_client_that_comes_when_another_has_left_gets_the_card() -> Result<()> {
    let served = Served::start(1, HostOptions::IDEAL)?;
    let starting = std::thread::spawn(|| (0..200).try_for_each(|_| Command::new("true").status().map(drop)));
    let mut owner = served.open(0)?;
    for turn in 0.. {
        for _ in 0..turn % 8 {
            leave(UnixStream::connect(&served.sockets[0])?)?;
        }
        drop(owner);
        owner = served.open(0).with_context(|| format!("turn {turn}"))?;
        if turn >= 200 && starting.is_finished() {
            break;
        }
    }
    starting.join().expect("no panic")?;
    let card = &served.end()?.cards[0];
    ensure!(card.clients > 200 && card.refused + card.remarks == 0, "{card:?}");
    Ok(())
}

/// A client that stops in the middle of a message, and one that says nothing.
#[test]
fn a_client_that_stalls_costs_its_own_card_only() -> Result<()> {
    let served = Served::start(2, HostOptions::IDEAL)?;
    let mut stalled = UnixStream::connect(&served.sockets[0])?;
    stalled.write_all(&[0; 7])?;
    let mut card = served.open(1)?;
    let silent = (0..20).map(|_| UnixStream::connect(&served.sockets[1]));
    let silent = silent.collect::<std::io::Result<Vec<UnixStream>>>().context("clients that say nothing")?;
    card.copy(200, 9)?;
    drop(silent);
    leave(stalled)?;
    served.open(0)?.copy(200, 9)?;
    Ok(())
}

/// More writes without an answer than the server keeps: none is lost, and the read after them sees the last.
#[test]
fn posted_writes_arrive_in_order_however_many() -> Result<()> {
    let served = Served::start(1, HostOptions::IDEAL)?;
    let mut stream = raw(&served.sockets[0])?;
    let on = access(CONFIG, COMMAND.into(), 2, &COMMAND_MEMORY.to_le_bytes());
    stream.write_all(&request(10, POSTED, &on))?;
    const COUNT: u64 = 3000;
    for value in 1..=COUNT {
        stream.write_all(&request(10, POSTED, &access(0, SCRATCH, 8, &value.to_le_bytes())))?;
    }
    stream.write_all(&request(9, 0, &access(0, SCRATCH, 8, &[])))?;
    let reply = hear(&mut stream, 16 + 16 + 8)?;
    ensure!(reply[32..] == COUNT.to_le_bytes(), "{reply:?}");
    drop(stream);
    let accesses = served.end()?.cards[0].traffic.register_accesses;
    ensure!(accesses > COUNT, "{accesses} accesses");
    Ok(())
}

/// Resets of one card, by request and by its configuration space, and one after its client has left: the client of the other card is
/// answered meanwhile.
#[test]
fn a_card_that_is_reset_holds_up_no_other() -> Result<()> {
    let served = Served::start_of(&model(100_000)?, 2, HostOptions::IDEAL)?;
    let (mut first, mut second) = (raw(&served.sockets[0])?, served.open(1)?);
    let by_config = access(CONFIG, DEVICE_CONTROL.into(), 2, &DEVICE_CONTROL_RESET.to_le_bytes());
    for _ in 0..5 {
        first.write_all(&request(13, POSTED, &[]))?;
        first.write_all(&request(10, POSTED, &by_config))?;
    }
    first.write_all(&request(9, 0, &access(CONFIG, 0, 4, &[])))?;
    second.copy(64, 2)?;
    ensure!(!is_ready(&first)?, "ten resets take longer than the work of the other client");
    // The next client of the card waits until it is clean.
    leave(first)?;
    let next = UnixStream::connect(&served.sockets[0])?;
    (&next).write_all(&request(1, 0, &[0, 0, 1, 0, b'{', b'}', 0]))?;
    ensure!(second.read(SCRATCH)? == 0 && !is_ready(&next)?, "the card is reset for the next client");
    leave(next)?;
    let mut first = raw(&served.sockets[0])?;
    first.write_all(&request(13, 0, &[]))?;
    hear(&mut first, 16)?;
    drop((first, second));
    let summary = served.end()?;
    ensure!(summary.cards.iter().all(|card| card.refused + card.remarks == 0), "{:?}", summary.cards);
    Ok(())
}

#[test]
fn mappings_end_all_at_once_or_one_by_one() -> Result<()> {
    const PAGE: u64 = 4096;
    const COUNT: u64 = 1000;
    const LAST: u64 = u64::MAX - 4095;
    let served = Served::start(1, HostOptions::IDEAL)?;
    let mut client = raw(&served.sockets[0])?;
    for is_one_by_one in [true, false] {
        for page in 1..=COUNT {
            client.write_all(&request(2, POSTED, &mapping(false, page * PAGE, PAGE)))?;
        }
        for page in (1..=COUNT).filter(|_| is_one_by_one) {
            client.write_all(&request(3, POSTED, &mapping(true, page * PAGE, PAGE)))?;
        }
        if !is_one_by_one {
            client.write_all(&request(3, 0, &end_of_all()))?;
            hear(&mut client, 16 + 24)?;
        }
    }
    // The last page is one like others, and a mapping that wraps is invalid.
    for (address, bytes, error) in [(LAST, PAGE, 0), (LAST, PAGE, EXISTS), (LAST, 2 * PAGE, INVALID)] {
        client.write_all(&request(2, 0, &mapping(false, address, bytes)))?;
        let mut reply = [0; 16];
        std::io::Read::read_exact(&mut client, &mut reply)?;
        ensure!(reply[12..] == u32::to_ne_bytes(error), "{address:#x} {bytes:#x}: {reply:?}");
    }
    client.write_all(&request(3, 0, &mapping(true, LAST, PAGE)))?;
    hear(&mut client, 16 + 24)?;
    drop(client);
    let card = &served.end()?.cards[0];
    ensure!((card.refused, card.mapped) == (2, 0), "{card:?}");
    Ok(())
}
