//! The program `rnic-sim serve`, whose cards the client of the crate `vfio_user` opens: it shares nothing with the server.
use anyhow::{Context, Result, ensure};
use rnic_layout::admin::{
    ANSWER_BYTES, Answer, Body, COMMAND_BYTES, Command, CommandHeader, CommandOpcode, CommandStatus,
};
use rnic_layout::doorbell::{EVENT, EventDoorbell, offset_in_bar};
use rnic_layout::pci::{
    COMMAND, COMMAND_BUS_MASTER, COMMAND_MEMORY, DEVICE, DEVICE_CONTROL, DEVICE_CONTROL_RESET, SERIAL_NUMBER,
    VENDOR,
};
use rnic_layout::queue::event::{Eqe, EventKind};
use rnic_layout::queue::phase;
use rnic_layout::registers::{
    AdminControl, COUNTERS, Control, EventQueueControl, LAYOUT_MAJOR, MAGIC, REG_ADMIN_ANSWER_BASE,
    REG_ADMIN_COMMAND_BASE, REG_ADMIN_CONTROL, REG_ADMIN_DOORBELL, REG_CONTROL, REG_COUNTER_LATCH,
    REG_EVENT_QUEUE_BASE, REG_EVENT_QUEUE_CONTROL, REG_LAYOUT_VERSION, REG_MAGIC, REG_OWN_MAC, REG_SCRATCH,
    REG_STATUS, Register, Status, counter_offset,
};
use rnic_sim::foreign::Process;
use rnic_stimulus::captures::{Capture, Trace};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{CWD, FileType, MemfdFlags, Mode, ftruncate, memfd_create, mknodat};
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, send,
    socket_with,
};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vfio_user::Client;

/// Bound of each wait, in wall-clock time. The first start verilates and compiles the card.
const PATIENCE: Duration = Duration::from_secs(300);
const BAR_0: u32 = 0;
const BAR_2: u32 = 2;
const CONFIG: u32 = 7;
const MSIX: u32 = 2;
/// Sets an eventfd for each vector.
const SIGNAL_EVENTFDS: u32 = 0x24;

/// A running server with its sockets.
struct Served {
    process: Process,
    sockets: Vec<PathBuf>,
    _folder: TempDir,
}

impl Served {
    /// Starts a server of some cards, and waits until clients can connect.
    fn start(cards: usize, arguments: &[&str]) -> Result<Served> {
        let mut command = process::Command::new(env!("CARGO_BIN_EXE_rnic-sim"));
        command.arg("serve").args(arguments);
        Served::start_by(command, cards)
    }

    /// Adds the sockets of some cards to the command of a server, and starts it.
    fn start_by(mut command: process::Command, cards: usize) -> Result<Served> {
        let folder = tempfile::tempdir()?;
        let sockets: Vec<PathBuf> =
            (0..cards).map(|card| folder.path().join(format!("card{card}"))).collect();
        command.args(sockets.iter().flat_map(|socket| [Path::new("--socket"), socket]));
        let (mut process, _) = Process::start(command, PATIENCE)?;
        for (card, socket) in sockets.iter().enumerate() {
            let said = process.line(&format!("serving card {card} at "))?;
            ensure!(said == socket.display().to_string(), "{said}");
        }
        Ok(Served { process, sockets, _folder: folder })
    }

    fn open(&self, card: usize) -> Result<Card> {
        Card::open(&self.sockets[card])
    }

    /// Ends the server by SIGINT. Returns what it says of a card.
    fn end(mut self, card: usize) -> Result<String> {
        self.process.signal(Signal::INT)?;
        // The summary, not what was remarked before.
        self.process.line(" us simulated in ")?;
        let said = self.process.line(&format!("card {card}: "))?;
        self.process.end()?;
        ensure!(self.sockets.iter().all(|socket| !socket.exists()), "the sockets are removed");
        Ok(said)
    }
}

/// A card that the client of the crate has opened, with its memory and interrupts on.
struct Card {
    client: Client,
}

impl Drop for Card {
    /// Until it runs its program, a process that another test starts has the socket too, so that the server would not see that it is
    /// closed.
    fn drop(&mut self) {
        let _ = self.client.shutdown();
    }
}

impl Card {
    fn open(socket: &Path) -> Result<Card> {
        let mut card = Card { client: Client::new(socket)? };
        let on = COMMAND_MEMORY | COMMAND_BUS_MASTER;
        card.client.region_write(CONFIG, COMMAND.into(), &on.to_le_bytes())?;
        Ok(card)
    }

    fn config<const N: usize>(&mut self, offset: u16) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.client.region_read(CONFIG, offset.into(), &mut bytes)?;
        Ok(bytes)
    }

    fn read(&mut self, register: &Register) -> Result<u64> {
        let mut bytes = [0; 8];
        self.client.region_read(BAR_0, register.offset.into(), &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn write(&mut self, register: &Register, bytes: [u8; 8]) -> Result<()> {
        Ok(self.client.region_write(BAR_0, register.offset.into(), &bytes)?)
    }

    /// A counter in a new snapshot of all.
    fn counter(&mut self, name: &str) -> Result<u64> {
        self.write(&REG_COUNTER_LATCH, 1_u64.to_le_bytes())?;
        until("a snapshot", || Ok((self.read(&REG_COUNTER_LATCH)? == 0).then_some(())))?;
        let index = COUNTERS.iter().position(|counter| counter.name == name).context("no such counter")?;
        let mut bytes = [0; 8];
        self.client.region_read(BAR_0, counter_offset(index).into(), &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn status(&mut self) -> Result<Status> {
        Ok(Status::parse(&self.read(&REG_STATUS)?.to_le_bytes())?)
    }
}

/// Evaluates something until it is there.
fn until<T>(what: &str, mut find: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find()? {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Memory of a client: a page of commands, one of answers, and one of events.
struct Rings {
    file: File,
    eventfd: OwnedFd,
    commands: u16,
}

const RINGS: u64 = 1 << 32;
const PAGE: u64 = 4096;
const ANSWERS: u64 = PAGE;
const EVENTS: u64 = 2 * PAGE;
const LOG2: u8 = 6;
const VECTOR: u8 = 5;

impl Rings {
    /// Maps memory, starts admin queue and event queue 0 of a card in it, and enables the card.
    fn new(card: &mut Card) -> Result<Rings> {
        let memory = memfd_create("rings", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, 3 * PAGE)?;
        card.client.dma_map(0, RINGS, 3 * PAGE, memory.as_raw_fd())?;
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC)?;
        card.client.set_irqs(MSIX, SIGNAL_EVENTFDS, VECTOR.into(), 1, &[eventfd.as_raw_fd()])?;
        card.write(&REG_ADMIN_COMMAND_BASE, RINGS.to_le_bytes())?;
        card.write(&REG_ADMIN_ANSWER_BASE, (RINGS + ANSWERS).to_le_bytes())?;
        let control = AdminControl { entries_log2: LOG2, enable: true, event_on_answer: true };
        card.write(&REG_ADMIN_CONTROL, control.to_bytes()?)?;
        card.write(&REG_EVENT_QUEUE_BASE, (RINGS + EVENTS).to_le_bytes())?;
        let control = EventQueueControl { entries_log2: LOG2, enable: true, vector: VECTOR };
        card.write(&REG_EVENT_QUEUE_CONTROL, control.to_bytes()?)?;
        card.write(&REG_CONTROL, Control { enable: true, ..Control::at_reset() }.to_bytes()?)?;
        until("the card is ready", || Ok(card.status()?.ready.then_some(())))?;
        Ok(Rings { file: File::from(memory), eventfd, commands: 0 })
    }

    /// Posts commands that do nothing.
    fn post(&mut self, card: &mut Card, count: u16) -> Result<()> {
        for _ in 0..count {
            let header =
                CommandHeader { opcode: CommandOpcode::Nothing, tag: self.commands, object_number: 0 };
            let command = Command { header, body: Body::Nothing }.to_bytes()?;
            let slot = u64::from(self.commands % (1 << LOG2));
            self.file.write_all_at(&command, slot * COMMAND_BYTES as u64)?;
            self.commands += 1;
        }
        card.write(&REG_ADMIN_DOORBELL, u64::from(self.commands).to_le_bytes())
    }

    fn entry<const N: usize>(&self, ring: u64, index: u64) -> Result<[u8; N]> {
        let mut entry = [0; N];
        self.file.read_exact_at(&mut entry, ring + index * N as u64)?;
        Ok(entry)
    }

    /// Waits for the first answer, which the card has written.
    fn first_answer(&self) -> Result<Answer> {
        until("an answer", || {
            let entry = self.entry::<ANSWER_BYTES>(ANSWERS, 0)?;
            Ok((entry[ANSWER_BYTES - 1] & 1 == u8::from(phase(0, LOG2.into()))).then_some(entry))
        })
        .and_then(|entry| Ok(Answer::parse(&entry)?))
    }

    /// Waits for an interrupt.
    fn interrupt(&self) -> Result<u64> {
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.eventfd, PollFlags::IN)], Some(&patience))?;
        ensure!(ready == 1, "no interrupt within {PATIENCE:?}");
        let mut count = [0; 8];
        rustix::io::read(&self.eventfd, &mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}

/// A client starts the card, and the card executes a command and raises an interrupt.
fn use_card(card: &mut Card) -> Result<Rings> {
    let mut rings = Rings::new(card)?;
    rings.post(card, 1)?;
    // The card takes doorbells of the event queue from its first answer on.
    rings.first_answer()?;
    let arm = EventDoorbell { object_number: 0, arm: true, consumer_index: 0 };
    card.client.region_write(BAR_2, offset_in_bar(0, &EVENT), &arm.to_bytes()?)?;
    ensure!(rings.interrupt()? == 1);
    // Events come after answers, and interrupts after events.
    let answer = rings.first_answer()?;
    ensure!((answer.status, answer.tag) == (CommandStatus::Success, 0), "{answer:?}");
    let event = Eqe::parse(&rings.entry::<{ Eqe::BYTES }>(EVENTS, 0)?)?;
    ensure!(event.kind == EventKind::AdminAnswer, "{event:?}");
    Ok(rings)
}

#[test]
fn a_client_identifies_the_card_and_uses_it() -> Result<()> {
    let served = Served::start(1, &[])?;
    let mut card = served.open(0)?;
    ensure!(card.config(0)? == VENDOR.to_le_bytes() && card.config(2)? == DEVICE.to_le_bytes());
    ensure!(card.read(&REG_MAGIC)? == MAGIC);
    ensure!(card.read(&REG_LAYOUT_VERSION)? >> 16 & 0xffff == LAYOUT_MAJOR, "layout version");
    let mut half = [0; 4];
    card.client.region_read(BAR_0, u64::from(REG_MAGIC.offset) + 4, &mut half)?;
    ensure!(half == MAGIC.to_le_bytes()[4..], "an access of four bytes");
    use_card(&mut card)?;
    // A function-level reset stops the card and turns it off.
    let reset = DEVICE_CONTROL_RESET.to_le_bytes();
    card.client.region_write(CONFIG, DEVICE_CONTROL.into(), &reset)?;
    ensure!(card.config(COMMAND)? == [0; 2] && card.read(&REG_MAGIC)? == u64::MAX, "memory is off");
    drop(card);
    let said = served.end(0)?;
    ensure!(said.starts_with("1 clients, 0 requests refused, 0 remarks; "), "{said}");
    Ok(())
}

/// The client goes while the card reads its commands and writes its answers.
#[test]
fn a_client_that_dies_leaves_a_card_that_opens_again() -> Result<()> {
    let served = Served::start(1, &["--host", "standard"])?;
    for _ in 0..3 {
        let mut card = served.open(0)?;
        ensure!(card.read(&REG_SCRATCH)? == 0 && !card.status()?.fatal, "as after power-up");
        card.write(&REG_SCRATCH, [0xff; 8])?;
        let mut rings = use_card(&mut card)?;
        rings.post(&mut card, 60)?;
        drop(card);
    }
    let said = served.end(0)?;
    ensure!(said.starts_with("3 clients, 0 requests refused, 0 remarks; "), "{said}");
    Ok(())
}

#[test]
fn a_card_has_one_client_at_a_time() -> Result<()> {
    let served = Served::start(1, &[])?;
    let mut first = served.open(0)?;
    ensure!(served.open(0).is_err(), "the card is in use");
    ensure!(first.read(&REG_MAGIC)? == MAGIC, "the first client has noticed nothing");
    drop(first);
    served.open(0)?;
    let said = served.end(0)?;
    ensure!(said.starts_with("2 clients, "), "{said}");
    Ok(())
}

/// Each client that has the card is cleaned up after, which takes a second where the simulation is slow.
#[test]
fn clients_that_come_and_go_hold_up_nobody() -> Result<()> {
    let served = Served::start(1, &[])?;
    for _ in 0..100 {
        UnixStream::connect(&served.sockets[0])?.shutdown(Shutdown::Both)?;
    }
    let start = Instant::now();
    ensure!(served.open(0)?.read(&REG_MAGIC)? == MAGIC);
    ensure!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let said = served.end(0)?;
    ensure!(said.starts_with("101 clients, "), "{said}");
    Ok(())
}

#[test]
fn two_cards_have_each_a_client() -> Result<()> {
    let served = Served::start(2, &["--loss", "0.1"])?;
    let mut cards = [served.open(0)?, served.open(1)?];
    let mut serials = Vec::new();
    for card in &mut cards {
        serials.push(u64::from_le_bytes(card.config(SERIAL_NUMBER)?));
        use_card(card)?;
    }
    ensure!(serials[0] != serials[1], "{serials:?}");
    let [first, mut second] = cards;
    drop(first);
    ensure!(second.read(&REG_MAGIC)? == MAGIC && served.open(0)?.read(&REG_MAGIC)? == MAGIC);
    let said = served.end(1)?;
    ensure!(said.starts_with("1 clients, "), "{said}");
    Ok(())
}

/// The capture is played when the client says that it is ready: a card that has nothing to send does not begin.
#[test]
fn a_capture_is_played_to_the_card() -> Result<()> {
    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 0x31];
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("some.pcap");
    let mut capture = Trace::create(&path)?;
    for (index, number) in [OWN[5], 0x32, OWN[5], OWN[5], 0x33].into_iter().enumerate() {
        let mut frame = vec![0; 60];
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, number]);
        // The longest distance is shortened.
        capture.write(1 << (8 * index), &frame)?;
    }
    drop(capture);
    // The beginning of one more frame, whose end was cut off, is left out.
    let cut = [1_u32, 0, 14, 60].map(u32::to_le_bytes).concat();
    std::fs::write(&path, [std::fs::read(&path)?, cut, vec![2; 14]].concat())?;
    let served = Served::start(1, &["--wire", &format!("pcap:{}", path.display())])?;
    let mut card = served.open(0)?;
    let mut address = [0; 8];
    OWN.iter().rev().zip(&mut address).for_each(|(byte, place)| *place = *byte);
    card.write(&REG_OWN_MAC, address)?;
    let _rings = use_card(&mut card)?;
    ensure!(card.counter("frames_received")? == 0, "it has not begun");
    served.process.signal(Signal::USR1)?;
    until("all frames", || Ok((card.counter("frames_received")? == 5).then_some(())))?;
    ensure!(card.counter("destination_mac")? == 2, "the others are for this card");
    drop(card);
    served.end(0)?;
    Ok(())
}

#[test]
fn an_option_that_is_wrong_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (first, second, file) = (path("first"), path("second"), path("file"));
    let (played, folder_name) = (format!("pcap:{file}"), folder.path().display().to_string());
    let pipe = path("pipe");
    let [wire_at_file, wire_at_second] = [&file, &second].map(|path| format!("seqpacket-listen:{path}"));
    std::fs::write(&file, "not a socket")?;
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0)?;
    for (code, arguments, expected) in [
        (2, &[][..], "--socket <PATH>"),
        (2, &["--socket", &first, "--wire", "tap"], "expected loop, none, seqpacket:PATH"),
        (2, &["--socket", &first, "--width", "65"], "allowed are 64, 128, 256 and 512"),
        (2, &["--socket", &first, "--loss", "1.5"], "a probability is from 0 to 1"),
        (2, &["--socket", &first, "--delay-ns", "1000000001"], "1000000001 is not in 0..=1000000000"),
        (2, &["--socket", &first, "--delay-ns", "18446744073709552"], "is not in 0..=1000000000"),
        (1, &["--socket", &first, "--pcap", &file, "--wire", &played], "are one file: name two"),
        (1, &["--socket", &first, "--pcap", &first], "are one file: name two"),
        (1, &["--socket", &first, "--pcap", &folder_name], "it is a folder"),
        (1, &["--socket", &first, "--pcap", &file, "--wire", "seqpacket:/none"], "nobody listens"),
        (1, &["--socket", &first, "--wave", &file, "--config", "none.toml"], "none.toml: cannot be read"),
        (1, &["--socket", &first, "--socket", &first], "two cards cannot share the socket"),
        (1, &["--socket", &first, "--socket", &second, "--socket", &file], "a wire joins at most 2 cards"),
        (1, &["--socket", &first, "--socket", &second, "--wire", "loop"], "--wire is for an only card"),
        (1, &["--socket", &first, "--config", "none.toml"], "none.toml: cannot be read"),
        (1, &["--socket", &first, "--wire", "seqpacket:/none"], "nobody listens at the other end"),
        (1, &["--socket", &first, "--wire", "pcap:/none"], "the other end of the wire: /none: No such file"),
        (1, &["--socket", &first, "--wire", &format!("pcap:{file}")], "neither pcap nor pcapng"),
        (1, &["--socket", &first, "--wire", "tap:lo"], "lo cannot be a TAP device"),
        (1, &["--socket", &first, "--wire", "tap:rnic%d"], "a name has 1 to 15 bytes without %"),
        (1, &["--socket", &first, "--wave", "/dev/null"], "it is no file, as a wave needs"),
        (1, &["--socket", &first, "--wave", &pipe], "it is no file, as a wave needs"),
        (1, &["--socket", &file], "there is another file, which is not replaced"),
        (1, &["--socket", &folder_name], "there is another file, which is not replaced"),
        (1, &["--socket", &path("none/first")], "there is no folder "),
        (1, &["--socket", &path(&"n".repeat(120))], "and that of a socket has at most 107"),
        (1, &["--socket", &first, "--wire", &wire_at_file], "cannot listen for a wire at "),
        // Before anybody is awaited at the wire.
        (1, &["--socket", &file, "--wire", &wire_at_second], "cannot listen at "),
        (1, &["--socket", &first, "--pcap", &pipe], "it is a pipe that nobody reads"),
    ] {
        let mut command = process::Command::new(env!("CARGO_BIN_EXE_rnic-sim"));
        let output = command.arg("serve").args(arguments).output().context("rnic-sim")?;
        let text = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(code) && text.contains(expected), "{arguments:?}: {text}");
        ensure!(std::fs::read(&file)? == b"not a socket" && !Path::new(&first).exists(), "{arguments:?}");
    }
    Ok(())
}

/// A frame that the card counts.
const FRAME: [u8; 60] = [0xff; 60];

/// The program under a limit of a shell's `ulimit`.
fn limited(limit: &str) -> process::Command {
    let mut command = process::Command::new("sh");
    let line = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_rnic-sim")]);
    command
}

/// A process at the end of a wire, at a path whose bytes are no text.
struct Wire {
    listener: OwnedFd,
    name: OsString,
    _folder: TempDir,
}

impl Wire {
    fn new() -> Result<Wire> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join(OsStr::from_bytes(b"wire\xff"));
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        bind(&listener, &SocketAddrUnix::new(&path)?)?;
        listen(&listener, 1)?;
        let mut name = OsString::from("seqpacket:");
        name.push(path);
        Ok(Wire { listener, name, _folder: folder })
    }

    fn accept(&self) -> Result<OwnedFd> {
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&patience))?;
        ensure!(ready == 1, "nobody connects to the wire");
        Ok(accept_with(&self.listener, SocketFlags::CLOEXEC)?)
    }
}

/// A process at the wire sends empty datagrams, leaves, and comes back.
#[test]
fn a_wire_survives_empty_datagrams_and_the_end_of_its_peer() -> Result<()> {
    let wire = Wire::new()?;
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_rnic-sim"));
    command.arg("serve").arg("--wire").arg(&wire.name);
    let served = Served::start_by(command, 1)?;
    let mut card = served.open(0)?;
    let mut count = 0;
    for _ in 0..2 {
        let peer = wire.accept()?;
        for bytes in [&FRAME[..], &[], &FRAME, &[], &[], &FRAME] {
            send(&peer, bytes, SendFlags::empty())?;
        }
        count += 3;
        until("all frames", || Ok((card.counter("frames_received")? == count).then_some(())))?;
    }
    drop(card);
    let Served { mut process, .. } = served;
    process.line("has left; frames to it are lost")?;
    process.line("is connected again")?;
    process.signal(Signal::INT)?;
    process.end()
}

/// Signals that end a process end this one with all that it has to leave. A server that waits for its wire ends, too.
#[test]
fn all_signals_end_a_server_alike() -> Result<()> {
    let wire = Wire::new()?;
    let folder = tempfile::tempdir()?;
    let pcap = folder.path().join("all.pcap");
    // A server leaves the signals alone that its parent ignores, as that of this test may do under nohup.
    let mut command = process::Command::new("env");
    command.arg("--default-signal").arg(env!("CARGO_BIN_EXE_rnic-sim"));
    command.arg("serve").arg("--wire").arg(&wire.name).arg("--pcap").arg(&pcap);
    let served = Served::start_by(command, 1)?;
    let id = socket_peercred(UnixStream::connect(&served.sockets[0])?)?.pid;
    let caught = std::fs::read_to_string(format!("/proc/{}/status", id.as_raw_nonzero()))?;
    let caught = caught.lines().find_map(|line| line.strip_prefix("SigCgt:")).context("SigCgt")?;
    let caught = u64::from_str_radix(caught.trim(), 16)?;
    // From signal(7): those whose default is to end a process, but for those of faults of the program, KILL, and PIPE, which Rust
    // ignores.
    let ending = [1, 2, 3, 10, 12, 14, 15, 16, 24, 25, 26, 27, 29, 30].into_iter().chain(35..=64);
    for signal in ending {
        ensure!(caught >> (signal - 1) & 1 == 1, "signal {signal} is not caught: {caught:#x}");
    }
    let mut card = served.open(0)?;
    let peer = wire.accept()?;
    for _ in 0..20 {
        send(&peer, &FRAME, SendFlags::empty())?;
    }
    until("all frames", || Ok((card.counter("frames_received")? == 20).then_some(())))?;
    let Served { mut process, sockets, .. } = served;
    process.signal(Signal::HUP)?;
    process.line("card 0: 2 clients, ")?;
    process.end()?;
    ensure!(!sockets[0].exists() && Capture::read(&pcap)?.frames.len() == 20);

    let path = folder.path().join("listen");
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_rnic-sim"));
    command.arg("serve").arg("--socket").arg(&sockets[0]);
    command.arg("--wire").arg(format!("seqpacket-listen:{}", path.display()));
    let (mut process, _) = Process::start(command, PATIENCE)?;
    process.line("waiting for the other end of the wire at ")?;
    ensure!(path.exists());
    process.signal(Signal::QUIT)?;
    process.line("card 0: 0 clients, ")?;
    process.end()?;
    ensure!(!path.exists() && !sockets[0].exists());
    Ok(())
}

/// A limit of the length of a file stands for a full disk.
#[test]
fn a_capture_that_cannot_be_written_is_said_and_counts() -> Result<()> {
    let wire = Wire::new()?;
    let folder = tempfile::tempdir()?;
    let pcap = folder.path().join("cut.pcap");
    let mut command = limited("-f 1");
    command.arg("serve").arg("--wire").arg(&wire.name).arg("--pcap").arg(&pcap);
    let served = Served::start_by(command, 1)?;
    let mut card = served.open(0)?;
    let peer = wire.accept()?;
    for _ in 0..20 {
        send(&peer, &FRAME, SendFlags::empty())?;
    }
    until("all frames", || Ok((card.counter("frames_received")? == 20).then_some(())))?;
    drop(card);
    let Served { mut process, .. } = served;
    process.signal(Signal::INT)?;
    let said = process.line("cut.pcap misses frames: ")?;
    ensure!(said.contains("File too large"), "{said}");
    ensure!(process.end().is_err(), "the exit code tells the loss");
    let frames = Capture::read(&pcap)?.frames.len();
    ensure!((1..20).contains(&frames), "{frames} whole frames");
    Ok(())
}

/// A client that maps without end gets its share of the open files, and the other card its client.
#[test]
fn a_client_leaves_files_to_the_others() -> Result<()> {
    let mut command = limited("-n 120");
    command.arg("serve");
    let served = Served::start_by(command, 2)?;
    let memory = memfd_create("page", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, PAGE)?;
    let mut cards = Vec::new();
    for card in 0..2 {
        let mut card = served.open(card)?;
        for page in 0..120 {
            // The client of the crate takes no notice of a refusal.
            card.client.dma_map(0, RINGS + page * PAGE, PAGE, memory.as_raw_fd())?;
        }
        cards.push(card);
    }
    ensure!(cards[0].read(&REG_MAGIC)? == MAGIC);
    drop(cards);
    let said = served.end(1)?;
    ensure!(said.starts_with("1 clients, 105 requests refused, 0 remarks; "), "{said}");
    Ok(())
}

/// Starts a server with outputs of the test's. Returns it when its socket is there.
fn start_silent(stdout: Stdio, stderr: Stdio, socket: &Path) -> Result<Child> {
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_rnic-sim"));
    command.arg("serve").arg("--socket").arg(socket).stdout(stdout).stderr(stderr);
    Ok(command.spawn()?)
}

/// Serves a card with this standard error while a client lies, which is remarked there, and until SIGINT. Returns what is printed.
fn remarks_to(stderr: Stdio) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("card");
    let mut child = start_silent(Stdio::piped(), stderr, &socket)?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let first = lines.next().context("a line")??;
    ensure!(first.starts_with("serving card 0 at "), "{first}");
    let mut liar = UnixStream::connect(&socket)?;
    liar.write_all(&[0; 16])?;
    ensure!(liar.read(&mut [0])? == 0, "it is given up, which is remarked");
    drop(liar);
    ensure!(Card::open(&socket)?.read(&REG_MAGIC)? == MAGIC);
    kill_process(Pid::from_child(&child), Signal::INT)?;
    let said = lines.collect::<std::io::Result<Vec<String>>>()?.join("\n");
    ensure!(said.contains("card 0: 2 clients, "), "{said}");
    ensure!(child.wait()?.code() == Some(1) && !socket.exists());
    Ok(said)
}

#[test]
fn a_server_outlives_its_standard_error() -> Result<()> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let said = remarks_to(writer.into())?;
    ensure!(said.contains("standard error: 1 lines are lost"), "{said}");
    Ok(())
}

/// Standard error is a pipe that is full, and nobody reads it.
#[test]
fn a_server_waits_for_no_reader_of_its_remarks() -> Result<()> {
    let (_reader, mut writer) = std::io::pipe()?;
    ioctl_fionbio(&writer, true)?;
    while writer.write(&[b'x'; 4096]).is_ok() {}
    ioctl_fionbio(&writer, false)?;
    let said = remarks_to(writer.into())?;
    ensure!(said.contains("standard error: 1 lines are lost: nobody reads it"), "{said}");
    Ok(())
}

#[test]
fn a_server_whose_start_nobody_can_hear_is_an_error() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("card");
    let full = File::options().write(true).open("/dev/full")?;
    let output = start_silent(full.into(), Stdio::piped(), &socket)?.wait_with_output()?;
    let text = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1) && !socket.exists(), "{}", output.status);
    ensure!(text.contains("No space left on device") && !text.contains("panicked"), "{text}");
    Ok(())
}
