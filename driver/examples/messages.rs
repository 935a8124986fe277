//! Opens one card or two by their names, shows what they are, and sends messages between two queue pairs of them. An only card
//! must have a wire that leads back to it, as a cable between its own lanes does, or the wire of one served card.
//!
//! ```sh
//! cargo run -p rnic-driver --example messages -- pci:0000:65:00.0 pci:0000:66:00.0
//! ```

use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, Device, DeviceName,
    EventQueueOptions, Function, Options, ProtectionDomain, QueuePair, QueuePairOptions, ReceiveRequest,
    RemoteRights, SendRequest,
};
use rnic_layout::doorbell::Arm;
use std::env::args;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bound of each wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lengths of the messages: none, less than a packet, several packets.
const LENGTHS: [usize; 4] = [0, 100, 4096, 9001];
/// Bytes that the peer writes to and reads from.
const WINDOW_BYTES: usize = 16 << 10;

/// One end: a queue pair whose completions raise interrupts of a vector of its own.
struct End {
    domain: ProtectionDomain,
    completions: CompletionQueue,
}

impl End {
    fn new(device: &Device, vector: u32) -> Outcome<Self> {
        let events =
            device.create_event_queue(&EventQueueOptions { vector, ..EventQueueOptions::default() })?;
        let completions = device.create_completion_queue(&events, &CompletionQueueOptions::default())?;
        Ok(Self { domain: device.create_protection_domain()?, completions })
    }

    /// Waits for completions, asleep between interrupts. Returns them by `wr_id`.
    fn complete(&self, count: usize) -> Outcome<Vec<Completion>> {
        let mut done = Vec::new();
        while done.len() < count {
            if self.completions.poll(&mut done, count)? == 0 && !self.completions.wait(PATIENCE)? {
                return Err(format!("{} of {count} completions after {PATIENCE:?}", done.len()).into());
            }
        }
        done.iter().try_for_each(Completion::check)?;
        done.sort_by_key(|done| done.wr_id);
        Ok(done)
    }
}

/// Bytes that tell a place and a sender from all others.
fn pattern(salt: usize, count: usize) -> Vec<u8> {
    (0..count).map(|place| (place * 31 + place / 251 + salt * 77) as u8).collect()
}

fn check(is_right: bool, what: &str) -> Outcome<()> {
    if is_right { Ok(()) } else { Err(format!("wrong: {what}").into()) }
}

/// Opens a card, and shows what it is.
fn open(name: &str, index: u8) -> Outcome<(Arc<dyn Function>, Device)> {
    let function = name.parse::<DeviceName>()?.connect()?;
    let device = Device::open(Arc::clone(&function), Options::new([2, 0, 0, 0, 0, index + 1]))?;
    let limits = device.limits();
    println!(
        "{name}: {} bits, 2^{} queue pairs, 2^{} regions, {} interrupt vectors, link {}",
        limits.geometry.datapath_bits,
        limits.tables.queue_pairs_log2,
        limits.tables.regions_log2,
        function.interrupt_vectors(),
        if device.link_up()? { "up" } else { "down" },
    );
    Ok((function, device))
}

/// Connects a queue pair of each end.
fn connect(devices: [&Device; 2]) -> Outcome<[(End, QueuePair<ReadyToSend>); 2]> {
    let ends = [End::new(devices[0], 1)?, End::new(devices[1], 2)?];
    let mut pairs = Vec::new();
    for end in &ends {
        let queues = &end.completions;
        let pair = end.domain.create_queue_pair(queues, queues, &QueuePairOptions::default())?;
        pairs.push(pair.initialize(RemoteRights::ALL)?);
    }
    let infos = [pairs[0].info(0)?, pairs[1].info(0)?];
    let mut connected = Vec::new();
    for (pair, peer) in pairs.into_iter().zip([infos[1], infos[0]]) {
        connected.push(pair.connect(&peer, &ConnectOptions::default())?);
    }
    let [first, second] = ends;
    let pair = connected.remove(0);
    Ok([(first, pair), (second, connected.remove(0))])
}

/// Sends, writes and reads from the first end to the second.
fn exchange([first, second]: &mut [(End, QueuePair<ReadyToSend>); 2], salt: usize) -> Outcome<()> {
    let (end, pair) = first;
    let (peer, peer_pair) = second;
    let window = peer.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    window.write(0, &pattern(salt, WINDOW_BYTES))?;
    for (wr_id, length) in (100..).zip(LENGTHS) {
        let receive = ReceiveRequest::new(wr_id).sge(peer.domain.allocate(length.max(1))?);
        peer_pair.post_receive(receive)?;
    }
    let memory = |bytes: &[u8]| -> Outcome<_> {
        let mut region = end.domain.allocate(bytes.len())?;
        region.bytes_mut().copy_from_slice(bytes);
        Ok(region)
    };
    for (wr_id, length) in (0..).zip(LENGTHS) {
        let send = SendRequest::send(wr_id).signalled();
        let send = if length == 0 { send } else { send.sge(memory(&pattern(salt + 1, length))?) };
        pair.post_send(send)?;
    }
    let mut target = window.remote();
    target.bytes = 5000;
    let write = SendRequest::write(50, target).sge(memory(&pattern(salt + 2, 5000))?).signalled();
    pair.post_send(write)?;
    let mut source = window.remote();
    (source.address, source.bytes) = (source.address + 8192, 6000);
    let read = SendRequest::read(51, source).sge(memory(&[0; 6000])?).signalled();
    pair.post_send(read)?;

    let done = end.complete(LENGTHS.len() + 2)?;
    let read = done.last().ok_or("no completion")?;
    check(*read.message() == pattern(salt, WINDOW_BYTES)[8192..14192], "what was read")?;
    for (received, length) in peer.complete(LENGTHS.len())?.iter().zip(LENGTHS) {
        check(received.message() == pattern(salt + 1, length), "a message")?;
    }
    let mut written = vec![0; 5000];
    window.read(0, &mut written)?;
    check(written == pattern(salt + 2, 5000), "what was written")
}

/// Shows that a completion raises an interrupt, which an event loop of the application could wait for.
fn interrupt([first, second]: &mut [(End, QueuePair<ReadyToSend>); 2]) -> Outcome<Duration> {
    let (_, pair) = first;
    let (peer, peer_pair) = second;
    let events = peer.completions.events();
    while events.take_interrupt()? {}
    check(events.interrupt_fd()?.is_some(), "a back end without file descriptors")?;
    peer.completions.arm(Arm::Next);
    events.arm();
    peer_pair.post_receive(ReceiveRequest::new(1))?;
    let began = Instant::now();
    pair.post_send(SendRequest::send(2))?;
    while !events.take_interrupt()? {
        check(began.elapsed() < PATIENCE, "no interrupt")?;
        std::thread::yield_now();
    }
    let taken = began.elapsed();
    check(peer.completions.is_signalled()?, "an interrupt without an event")?;
    peer.complete(1)?;
    Ok(taken)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let names: Vec<String> = args().skip(1).collect();
    if !(1..=2).contains(&names.len()) {
        return Err("usage: messages <card> [<card>], as in pci:0000:65:00.0 or vfu:/run/card.sock".into());
    }
    let cards = (0..).zip(&names).map(|(index, name)| open(name, index)).collect::<Outcome<Vec<_>>>()?;
    let mut ends = connect([&cards[0].1, &cards[cards.len() - 1].1])?;
    exchange(&mut ends, 1)?;
    ends.reverse();
    exchange(&mut ends, 11)?;
    println!("SEND, WRITE and READ of up to {WINDOW_BYTES} bytes in both directions: ok");
    let taken = interrupt(&mut ends)?;
    println!("interrupt: ok, {taken:?} after the post");
    for (function, device) in &cards {
        device.check()?;
        let again = Device::open(Arc::clone(function), Options::new([2, 0, 0, 0, 0, 9]));
        check(again.is_err(), "a card was opened twice")?;
    }
    drop((ends, cards));
    for (index, name) in (0..).zip(&names) {
        let (function, device) = open(name, index)?;
        device.check()?;
        drop(device);
        function.reset()?;
        drop(Device::open(function, Options::new([2, 0, 0, 0, 0, index + 1]))?);
    }
    println!("closed, opened again, reset, and opened again: ok");
    Ok(())
}
