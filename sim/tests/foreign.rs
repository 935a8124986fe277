//! A card against a foreign peer: the reference endpoint in another process, behind a Unix socket.
//!
//! Each exchange has faults of the wire, from which both sides recover, where it says so.
//!
//! The process is `rnic-sim peer`. It shares nothing with the card but the wire: its frames are those of the reference endpoint,
//! which is written from the protocol.
#[path = "support/mod.rs"]
mod support;

use anyhow::{Context, Result, ensure};
use rnic_driver::state::Init;
use rnic_driver::{
    ConnectionInfo, QueuePair, ReceiveRequest, RemoteMemory, RemoteRights, SendRequest, SharedRegion,
};
use rnic_layout::opcode;
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::wire::PacketRepr;
use rnic_machine::host::HostOptions;
use rnic_machine::wire::datagram::Datagrams;
use rnic_machine::wire::fault::{Effect, Fault, Place};
use rnic_machine::wire::paced::Paced;
use rnic_machine::wire::socket::{Pace, Socket, take_turns};
use rnic_machine::wire::{Fate, Hold};
use rnic_machine::world::Port;
use rnic_sim::foreign::{Process, Rig, RigOptions, Way};
use rnic_sim::peer::{self, PEER_MARKER};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use support::{at_both_widths, card_model};
use tempfile::TempDir;

/// QPN and first PSN of the peer; the PSN wraps in the run.
const PEER: u32 = 0x51;
const PEER_PSN: u32 = 0xff_fffd;
/// The peer's memory: what the card reads, what it receives, what the card writes, what the peer reads, and what it writes and
/// sends.
const PEER_KEY: u32 = 0x305;
const PEER_FIRST: u64 = 0x5000_0000;
const ROOM: usize = 0x4000;
const READ_BY_CARD: usize = 0;
const RECEIVED: usize = ROOM;
const WRITTEN: usize = 2 * ROOM;
const READ: usize = 3 * ROOM;
const WRITE_SOURCE: usize = 4 * ROOM;
const SEND_SOURCE: usize = 5 * ROOM;
const PEER_BYTES: usize = 6 * ROOM;
/// Lengths of the messages: several packets for WRITE and READ.
const SEND_BYTES: usize = 100;
const WRITE_BYTES: usize = 3001;
const READ_BYTES: usize = 5003;
/// The card's memory: what the peer writes, and what it reads.
const WINDOW_BYTES: usize = 2 * ROOM;
const EVERY_PS: u64 = 1_000_000;
const TURNS: Pace = Pace::Turns { every_ps: EVERY_PS };
const FREE: Pace = Pace::Free { every_ps: EVERY_PS };
/// Code of the timeout of both sides: 0.5 ms of simulated time.
const TIMEOUT: u8 = 7;
/// How many times slower simulated time is than the clock of a peer that is paced.
const SLOWDOWN: u32 = 2000;

/// How the process is plugged in.
#[derive(Clone, Copy, Debug)]
enum Plug {
    /// A stream whose frames keep to a pace.
    Stream(Pace),
    /// Datagrams.
    Datagrams,
    /// A stream, and simulated time that keeps to the clock.
    Paced,
}

/// The rig's end of the socket.
enum End {
    Stream(UnixStream),
    Datagrams(OwnedFd),
}

impl Plug {
    fn arguments(self) -> Vec<String> {
        match self {
            Plug::Stream(Pace::Turns { .. }) | Plug::Datagrams => Vec::new(),
            Plug::Stream(Pace::Free { .. }) => vec!["--free".into()],
            Plug::Paced => vec!["--free".into(), "--slowdown".into(), SLOWDOWN.to_string()],
        }
    }

    fn start(self, command: Command) -> Result<(Process, End)> {
        let patience = RigOptions::standard(64).patience;
        if !matches!(self, Plug::Datagrams) {
            let (process, stream) = Process::start(command, patience)?;
            return Ok((process, End::Stream(stream)));
        }
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Process::start_with(command, theirs, patience)?, End::Datagrams(ours)))
    }

    fn attach(self, rig: &mut Rig, end: End) -> Result<usize> {
        let patience = RigOptions::standard(64).patience;
        match (self, end) {
            (Plug::Stream(pace), End::Stream(stream)) => rig.attach(Socket::new(stream, pace, patience)?),
            (_, End::Stream(stream)) => {
                rig.attach(Paced::new(Socket::new(stream, FREE, patience)?, SLOWDOWN))
            }
            (_, End::Datagrams(socket)) => rig.attach(Datagrams::new(socket)?),
        }
    }
}

/// Bytes that tell a place and a sender from all others.
fn pattern(salt: usize, count: usize) -> Vec<u8> {
    (0..count).map(|place| (place * 31 + place / 251 + salt * 77) as u8).collect()
}

/// What the process must know: how it is plugged in, and of the card.
#[derive(Clone, Copy, Debug)]
struct Card {
    plug: Plug,
    qp_number: u32,
    first_psn: u32,
    address: u64,
    key: u32,
}

/// The process, and the file of its memory.
struct Peer {
    process: Process,
    memory: PathBuf,
    /// Completions that it has told of, in their order.
    done: Vec<String>,
    _folder: TempDir,
}

impl Peer {
    /// Starts `rnic-sim peer` with work requests, and waits until it has said what the card must know of it.
    fn start(card: Card, work: &[String]) -> Result<(Peer, End, ConnectionInfo)> {
        let folder = tempfile::tempdir()?;
        let memory = folder.path().join("memory");
        let mut bytes = vec![0; PEER_BYTES];
        for (offset, salt, count) in
            [(READ_BY_CARD, 1, READ_BYTES), (WRITE_SOURCE, 2, WRITE_BYTES), (SEND_SOURCE, 3, SEND_BYTES)]
        {
            bytes[offset..][..count].copy_from_slice(&pattern(salt, count));
        }
        std::fs::write(&memory, bytes)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_rnic-sim"));
        command.arg("peer").arg("--memory").arg(&memory);
        for (option, value) in [
            ("--card-qpn", u64::from(card.qp_number)),
            ("--card-psn", u64::from(card.first_psn)),
            ("--qpn", u64::from(PEER)),
            ("--psn", u64::from(PEER_PSN)),
            ("--address", PEER_FIRST),
            ("--key", u64::from(PEER_KEY)),
            ("--timeout", u64::from(TIMEOUT)),
        ] {
            command.args([option, &format!("{value:#x}")]);
        }
        command.args(card.plug.arguments()).args(work);
        let (mut process, socket) = card.plug.start(command)?;
        let numbers = process.line(PEER_MARKER)?;
        let (qp_number, first_psn) = numbers.split_once(' ').context("two numbers")?;
        let (qp_number, first_psn) = (qp_number.parse()?, first_psn.parse()?);
        let (gid, path_mtu) = (peer::gid(), Pmtu::Bytes1024);
        let info = ConnectionInfo { qp_number, first_psn, gid, mac: peer::MAC, path_mtu };
        Ok((Peer { process, memory, done: Vec::new(), _folder: folder }, socket, info))
    }

    /// Number of completions so far.
    fn completed(&mut self) -> Result<usize> {
        while let Some(done) = self.process.heard("completion ")? {
            self.done.push(done);
        }
        Ok(self.done.len())
    }

    /// Waits until the process has ended. Returns its completions, in their order, and its memory.
    fn end(mut self) -> Result<(Vec<String>, Vec<u8>)> {
        let mut done = std::mem::take(&mut self.done);
        let count: usize = loop {
            let rest = self.process.line("completion")?;
            match rest.strip_prefix("s ") {
                Some(count) => break count.parse()?,
                None => done.push(rest.trim_start().to_string()),
            }
        };
        ensure!(done.len() == count, "{count} completions: {done:?}");
        self.process.end()?;
        Ok((done, std::fs::read(&self.memory)?))
    }
}

/// A rig with a queue pair that waits for its peer, memory, and what the peer must know of both.
fn rig(width_bits: u32, host: HostOptions, plug: Plug) -> Result<(Rig, QueuePair<Init>, SharedRegion, Card)> {
    let options = RigOptions { host, timeout: TIMEOUT, ..RigOptions::standard(width_bits) };
    let rig = Rig::new(&card_model(width_bits)?, options)?;
    let window = rig.domain().share(WINDOW_BYTES, RemoteRights::ALL)?;
    window.write(ROOM, &pattern(6, READ_BYTES))?;
    let queue_pair = rig.queue_pair(RemoteRights::ALL)?;
    let ConnectionInfo { qp_number, first_psn, .. } = queue_pair.info(0)?;
    let RemoteMemory { address, key, .. } = window.remote();
    Ok((rig, queue_pair, window, Card { plug, qp_number, first_psn, address, key }))
}

/// SEND, WRITE and READ in both directions between the card and another process, with faults of each direction, each of which must
/// happen. Returns the frames at the card's port, with the times at which they crossed it, as a capture.
fn exchange(width_bits: u32, host: HostOptions, plug: Plug, faults: &[Fault]) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("card.pcap");
    let (mut rig, queue_pair, window, card) = rig(width_bits, host, plug)?;
    rig.world().capture(Port::Card(0), &capture)?;
    let Card { address, key, .. } = card;
    let work = [
        format!("receive:{RECEIVED}:{ROOM}"),
        format!("write:{WRITE_SOURCE}:{WRITE_BYTES}:{address}:{key}"),
        format!("read:{READ}:{READ_BYTES}:{}:{key}", address + ROOM as u64),
        format!("send:{SEND_SOURCE}:{SEND_BYTES}"),
    ];
    let (mut process, socket, peer) = Peer::start(card, &work)?;
    let mut queue_pair = rig.connect(queue_pair, &peer, 0)?;
    let receive = ReceiveRequest::new(10).sge(rig.domain().allocate(SEND_BYTES)?);
    queue_pair.post_receive(receive)?;
    let remote = |offset: usize, bytes: usize| RemoteMemory {
        address: PEER_FIRST + offset as u64,
        key: PEER_KEY,
        bytes: bytes as u64,
    };
    let memory = |bytes: &[u8]| -> Result<_> {
        let mut region = rig.domain().allocate(bytes.len())?;
        region.bytes_mut().copy_from_slice(bytes);
        Ok(region)
    };
    let mut requests = vec![
        SendRequest::write(1, remote(WRITTEN, WRITE_BYTES))
            .sge(memory(&pattern(5, WRITE_BYTES))?)
            .signalled(),
        SendRequest::read(2, remote(READ_BY_CARD, READ_BYTES)).sge(memory(&[0; READ_BYTES])?).signalled(),
        SendRequest::send(3).sge(memory(&pattern(4, SEND_BYTES))?).signalled(),
    ];
    // The receive is there before the process speaks; the read returns after its doorbell.
    rig.device().check()?;
    plug.attach(&mut rig, socket)?;
    let hits = [Way::FromCard, Way::ToCard].map(|way| rig.set_faults(way, faults.to_vec()));
    queue_pair.post_sends(&mut requests)?;
    let mut done = Vec::new();
    rig.wait("three sends and a receive", |rig| {
        done.extend(rig.completions()?);
        Ok((done.len() >= 4).then_some(()))
    })?;
    done.sort_by_key(|done| done.wr_id);
    ensure!(done.iter().map(|done| done.wr_id).eq([1, 2, 3, 10]), "{done:?}");
    ensure!(done.iter().all(|done| done.status == CompletionStatus::Success), "{done:?}");
    ensure!(done[1].message() == pattern(1, READ_BYTES), "what the card has read");
    ensure!(done[3].message() == pattern(3, SEND_BYTES), "what the process has sent");
    let mut written = vec![0; WRITE_BYTES];
    window.read(0, &mut written)?;
    ensure!(written == pattern(2, WRITE_BYTES), "what the process has written");
    rig.wait("the completions of the peer", |_| Ok((process.completed()? == work.len()).then_some(())))?;
    for hits in hits {
        let hits = hits?;
        ensure!(
            (0..faults.len()).all(|fault| hits.of(fault) == faults[fault].times),
            "{hits:?} of {faults:?}"
        );
    }
    drop((done, queue_pair, window));
    rig.finish()?;
    let (mut done, memory) = process.end()?;
    done.sort();
    ensure!(done == [1, 2, 3, 4].map(|wr_id| format!("{wr_id} success")), "{done:?}");
    let bytes = |offset: usize, count: usize| &memory[offset..][..count];
    ensure!(bytes(RECEIVED, SEND_BYTES) == pattern(4, SEND_BYTES), "what the card has sent");
    ensure!(bytes(WRITTEN, WRITE_BYTES) == pattern(5, WRITE_BYTES), "what the card has written");
    ensure!(bytes(READ, READ_BYTES) == pattern(6, READ_BYTES), "what was read of the card");
    Ok(std::fs::read(&capture)?)
}

fn another_process_exchanges_messages_with_the_card(width_bits: u32) -> Result<()> {
    exchange(width_bits, HostOptions::STANDARD, Plug::Stream(TURNS), &[]).map(drop)
}

/// As a kernel would, which knows nothing of turns.
#[test]
fn a_process_at_a_free_pace_exchanges_messages_with_the_card() -> Result<()> {
    exchange(64, HostOptions::STANDARD, Plug::Stream(FREE), &[]).map(drop)
}

#[test]
fn a_process_behind_datagrams_exchanges_messages_with_the_card() -> Result<()> {
    exchange(64, HostOptions::STANDARD, Plug::Datagrams, &[]).map(drop)
}

/// Three of the first packets of each side are lost, one is overtaken and one comes once more: requests, responses and
/// acknowledgements of both.
fn faults() -> Vec<Fault> {
    let fault = |fate, after| Fault::any(Effect::Fate(fate)).after(after);
    vec![
        fault(Fate::Lose, 0).times(2),
        fault(Fate::HoldBack(Hold::frames(2)), 3),
        fault(Fate::CopyLate(Hold::frames(3)), 5),
        fault(Fate::Lose, 7),
    ]
}

#[test]
fn the_card_and_another_process_recover_from_what_the_wire_does() -> Result<()> {
    exchange(64, HostOptions::STANDARD, Plug::Stream(TURNS), &faults()).map(drop)
}

/// The timers of the process are those of simulated time, though it looks at another clock.
#[test]
fn a_process_that_is_paced_recovers_by_its_own_clock() -> Result<()> {
    exchange(64, HostOptions::STANDARD, Plug::Paced, &faults()).map(drop)
}

/// A datagram socket without connections between its ends.
#[test]
fn a_datagram_is_a_frame_of_the_card() -> Result<()> {
    let (mut rig, queue_pair, window, _) = rig(64, HostOptions::IDEAL, Plug::Datagrams)?;
    let (ours, theirs) = UnixDatagram::pair()?;
    rig.attach(Datagrams::new(ours.into())?)?;
    let peer = ConnectionInfo {
        qp_number: PEER,
        first_psn: PEER_PSN,
        gid: peer::gid(),
        mac: peer::MAC,
        path_mtu: Pmtu::Bytes1024,
    };
    let mut queue_pair = rig.connect(queue_pair, &peer, 0)?;
    queue_pair.post_send(SendRequest::send(1).inline(b"hello"))?;
    theirs.set_nonblocking(true)?;
    let mut bytes = [0; 200];
    let count = rig.wait("a frame of the card", |_| Ok(theirs.recv(&mut bytes).ok()))?;
    let packet = PacketRepr::parse(&bytes[..count])?;
    ensure!((packet.bth.destination_qp, packet.payload) == (PEER, &b"hello"[..]), "{packet:?}");
    drop((queue_pair, window));
    rig.finish()
}

/// The card's side depends on the seed alone, as long as the process takes turns.
#[test]
fn a_run_with_another_process_repeats_to_the_nanosecond() -> Result<()> {
    let run = || exchange(64, HostOptions::STANDARD, Plug::Stream(TURNS), &[]);
    let runs = [run()?, run()?];
    ensure!(runs[0].len() > 10_000, "a capture of {} bytes", runs[0].len());
    ensure!(runs[0] == runs[1], "the captures differ");
    Ok(())
}

/// What becomes of one WRITE of the peer under a fault: the event of the card, whether it has written the payload, the packets
/// that it has dropped for their ICRC, and the completions of the peer.
#[derive(Debug)]
struct Told {
    event: Option<AsyncEvent>,
    is_written: bool,
    icrc_errors: u64,
    completions: Vec<String>,
}

fn write_under(fault: Fault) -> Result<Told> {
    let plug = Plug::Stream(TURNS);
    let (mut rig, queue_pair, window, card) = rig(64, HostOptions::IDEAL, plug)?;
    let work = format!("write:{WRITE_SOURCE}:{SEND_BYTES}:{}:{}", card.address, card.key);
    let (process, socket, peer) = Peer::start(card, &[work])?;
    let queue_pair = rig.connect(queue_pair, &peer, 0)?;
    rig.moved()?;
    plug.attach(&mut rig, socket)?;
    let hits = rig.set_faults(Way::ToCard, vec![fault.clone()])?;
    // The card sends no such packet.
    let others = rig.set_faults(Way::FromCard, vec![fault])?;
    rig.wait("the WRITE on the wire", |_| Ok((hits.of(0) > 0).then_some(())))?;
    // It has passed the card, and its answer the wire, within 20 us.
    rig.world().run_for(20_000_000)?;
    ensure!((hits.of(0), others.of(0)) == (1, 0), "{hits:?} {others:?}");
    let event = rig.device().events().poll()?.map(|event| event.code);
    let mut written = vec![0; SEND_BYTES];
    window.read(0, &mut written)?;
    let icrc_errors = rig.moved()?.get("icrc").copied().unwrap_or_default();
    drop((queue_pair, window));
    rig.finish()?;
    let (completions, _) = process.end()?;
    Ok(Told { event, is_written: written == pattern(2, SEND_BYTES), icrc_errors, completions })
}

const WRITE_ONLY: u8 = opcode::Operation::WriteOnly.code();
/// The lowest byte of the R_Key: after 12 bytes of BTH and 8 of address.
const KEY: Place = Place::Bth(12 + 8 + 3);

#[test]
fn a_forged_key_is_refused() -> Result<()> {
    let told = write_under(Fault::forge(WRITE_ONLY, KEY, 1))?;
    ensure!(!told.is_written && told.icrc_errors == 0, "{told:?}");
    ensure!(told.event == Some(AsyncEvent::QueuePairAccessError), "{told:?}");
    ensure!(told.completions == ["1 remote_access"], "{told:?}");
    Ok(())
}

#[test]
fn a_changed_key_without_its_icrc_is_dropped() -> Result<()> {
    let effect = Effect::Flip { bits: vec![(KEY, 1)], is_signed: false };
    let told = write_under(Fault::new(WRITE_ONLY, effect))?;
    ensure!(!told.is_written && told.icrc_errors == 1, "{told:?}");
    ensure!(told.event.is_none() && told.completions.is_empty(), "nobody answers: {told:?}");
    Ok(())
}

#[test]
fn a_repeated_write_is_answered_once_more_and_written() -> Result<()> {
    let told = write_under(Fault::new(WRITE_ONLY, Effect::Fate(Fate::Duplicate)))?;
    ensure!(told.is_written && told.icrc_errors == 0 && told.event.is_none(), "{told:?}");
    ensure!(told.completions == ["1 success"], "{told:?}");
    Ok(())
}

/// A process that is there and says nothing, and one that has ended.
#[test]
fn a_process_that_does_not_answer_ends_the_run_with_its_name() -> Result<()> {
    let said = |is_open: bool| -> Result<String> {
        let patience = Duration::from_millis(200);
        let options = RigOptions { host: HostOptions::IDEAL, patience, ..RigOptions::standard(64) };
        let mut rig = Rig::new(&card_model(64)?, options)?;
        let (socket, theirs) = UnixStream::pair()?;
        let _kept = is_open.then_some(theirs);
        rig.attach(Socket::new(socket, TURNS, patience)?)?;
        let error = rig.wait("an answer", |_| Ok(None::<()>)).expect_err("there is no peer");
        Ok(format!("{error:#}"))
    };
    let silent = said(true)?;
    let expected = "station 0: the foreign peer has not answered within 200ms of wall-clock time";
    ensure!(silent.starts_with("waiting for an answer: ") && silent.contains(expected), "{silent}");
    let closed = said(false)?;
    let expected = "station 0: the foreign peer has closed its socket";
    ensure!(closed.starts_with("waiting for an answer: ") && closed.contains(expected), "{closed}");
    Ok(())
}

/// A process that takes its turns and never does what is waited for.
#[test]
fn a_wait_ends_by_the_clock_on_the_wall() -> Result<()> {
    let patience = Duration::from_secs(1);
    let options = RigOptions { host: HostOptions::IDEAL, patience, ..RigOptions::standard(64) };
    let mut rig = Rig::new(&card_model(64)?, options)?;
    let (socket, mut theirs) = UnixStream::pair()?;
    let idler = std::thread::spawn(move || take_turns(&mut theirs, &mut (), |_, _| {}, |_, _| Vec::new()));
    rig.attach(Socket::new(socket, TURNS, patience)?)?;
    let error = rig.wait("a frame of the peer", |_| Ok(None::<()>)).expect_err("it sends none");
    let text = format!("{error:#}");
    ensure!(text.starts_with("a frame of the peer: not within 1s of wall-clock time"), "{text}");
    rig.finish()?;
    idler.join().expect("it has not panicked")?;
    Ok(())
}

fn shell(script: &str, patience: Duration) -> Result<(Process, UnixStream)> {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Process::start(command, patience)
}

#[test]
fn a_process_has_the_socket_as_its_input_and_is_heard() -> Result<()> {
    let script = "read line; echo \"[1] peer $line\"; echo more >&2";
    let (mut process, mut socket) = shell(script, RigOptions::standard(64).patience)?;
    ensure!(process.heard(PEER_MARKER)?.is_none(), "it has read nothing yet");
    socket.write_all(b"7 9\n")?;
    ensure!(process.line(PEER_MARKER)? == "7 9");
    let error = process.line(PEER_MARKER).expect_err("it says so once").to_string();
    ensure!(error.starts_with("sh has not said \"peer \":\n"), "{error}");
    ensure!(error.contains("\n[1] peer 7 9") && error.contains("\nmore"), "both outputs: {error}");
    process.end()?;
    let mut rest = Vec::new();
    ensure!(socket.read_to_end(&mut rest)? == 0, "nobody holds the other end");
    Ok(())
}

#[test]
fn a_process_that_hangs_or_fails_is_named() -> Result<()> {
    let short = Duration::from_millis(100);
    let (mut process, _socket) = shell("read line", short)?;
    let error = process.line(PEER_MARKER).expect_err("it waits").to_string();
    ensure!(error == "sh has not said \"peer \" within 100ms of wall-clock time:\n", "{error}");
    let error = process.end().expect_err("it waits").to_string();
    ensure!(error == "sh has not ended within 100ms of wall-clock time:\n", "{error}");
    let (process, _socket) = shell("echo broken >&2; exit 3", RigOptions::standard(64).patience)?;
    let error = process.end().expect_err("it fails").to_string();
    ensure!(error == "sh: exit status: 3:\nbroken", "{error}");
    Ok(())
}

#[test]
fn a_process_that_says_much_ends() -> Result<()> {
    let (process, _socket) = shell("yes | head -c 1000000", RigOptions::standard(64).patience)?;
    process.end()
}

at_both_widths! {
    another_process_exchanges_messages_with_the_card: another_process_exchanges_messages_with_the_card_at_64_bits, another_process_exchanges_messages_with_the_card_at_512_bits;
}
