//! The driver over vfio-user: two cards of `rnic-sim serve`, opened by two drivers in this process, exchange messages.
use anyhow::{Context, Result, ensure};
use rnic_driver::state::{Init, ReadyToSend, State};
use rnic_driver::vfio_user::{ConnectOptions as SocketOptions, VfioUserFunction};
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, Device, Function, Options, Path,
    ProtectionDomain, QueuePair, QueuePairOptions, ReceiveRequest, RemoteRights, SendRequest,
};
use rnic_layout::path::Gid;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_sim::foreign::Process;
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bound of each wait, in wall-clock time. The first start verilates and compiles the card.
const PATIENCE: Duration = Duration::from_secs(300);
/// Length of the memory that the peer writes to and reads from.
const WINDOW_BYTES: usize = 16 << 10;

/// Bytes that tell a place and a sender from all others.
fn pattern(salt: usize, count: usize) -> Vec<u8> {
    (0..count).map(|place| (place * 31 + place / 251 + salt * 77) as u8).collect()
}

/// An open card with a queue pair.
struct Side<S: State> {
    device: Device,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    queue_pair: QueuePair<S>,
}

impl Side<Init> {
    fn open(socket: &PathBuf, index: u8) -> Result<Side<Init>> {
        let function: Arc<dyn Function> =
            Arc::new(VfioUserFunction::connect(socket, SocketOptions::default())?);
        let addresses = vec![Gid::from_ipv4([10, 0, 0, index + 1].into())];
        let options =
            Options { addresses, seed: Some(index.into()), ..Options::new([2, 0, 0, 0, 0, index + 1]) };
        let device = Device::open(function, options)?;
        let domain = device.create_protection_domain()?;
        let completions =
            device.create_completion_queue(&device.events(), &CompletionQueueOptions::default())?;
        let options = QueuePairOptions::default();
        let queue_pair = domain.create_queue_pair(&completions, &completions, &options)?;
        let queue_pair = queue_pair.initialize(RemoteRights::ALL).map_err(rnic_driver::Error::from)?;
        Ok(Side { device, domain, completions, queue_pair })
    }

    fn connect(self, peer: &rnic_driver::ConnectionInfo) -> Result<Side<ReadyToSend>> {
        let Side { device, domain, completions, queue_pair } = self;
        let path = Some(Path::new(peer.gid, peer.mac));
        let queue_pair = queue_pair.connect(peer, &ConnectOptions { path, ..ConnectOptions::default() })?;
        Ok(Side { device, domain, completions, queue_pair })
    }
}

impl Side<ReadyToSend> {
    /// Waits for completions, all of which are successes. Returns them by `wr_id`.
    fn complete(&self, count: usize) -> Result<Vec<Completion>> {
        let deadline = Instant::now() + PATIENCE;
        let mut done = Vec::new();
        while done.len() < count {
            match self.completions.poll_one()? {
                Some(completion) => done.push(completion),
                None => {
                    ensure!(Instant::now() < deadline, "{} of {count} completions", done.len());
                    std::thread::yield_now();
                }
            }
        }
        ensure!(done.iter().all(|done| done.status == CompletionStatus::Success), "{done:?}");
        done.sort_by_key(|done| done.wr_id);
        Ok(done)
    }
}

#[test]
fn two_drivers_exchange_messages_over_served_cards() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sockets = [0, 1].map(|card| folder.path().join(format!("card{card}")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_rnic-sim"));
    command.arg("serve").arg("--socket").arg(&sockets[0]).arg("--socket").arg(&sockets[1]);
    let (mut process, _) = Process::start(command, PATIENCE)?;
    process.line("serving card 1 at ")?;

    let sides = [Side::open(&sockets[0], 0)?, Side::open(&sockets[1], 1)?];
    let infos = [sides[0].queue_pair.info(0)?, sides[1].queue_pair.info(0)?];
    let [first, second] = sides;
    let mut sides = [first.connect(&infos[1])?, second.connect(&infos[0])?];
    let windows = [
        sides[0].domain.share(WINDOW_BYTES, RemoteRights::ALL)?,
        sides[1].domain.share(WINDOW_BYTES, RemoteRights::ALL)?,
    ];

    // Each side sends, writes and reads; receives are posted on both before.
    let lengths = [0, 1, 100, 4096, 9001];
    for side in 0..2 {
        windows[side].write(0, &pattern(10 + side, WINDOW_BYTES))?;
        for (wr_id, &length) in (100..).zip(&lengths) {
            let receive = ReceiveRequest::new(wr_id).sge(sides[side].domain.allocate(length.max(1))?);
            sides[side].queue_pair.post_receive(receive)?;
        }
        sides[side].device.check()?;
    }
    for side in 0..2 {
        let domain = &sides[side].domain;
        let memory = |bytes: &[u8]| -> Result<_> {
            let mut region = domain.allocate(bytes.len().max(1))?;
            region.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            Ok(region)
        };
        let mut requests = Vec::new();
        for (wr_id, &length) in (0..).zip(&lengths) {
            let request = SendRequest::send(wr_id).signalled();
            requests.push(if length == 0 { request } else { request.sge(memory(&pattern(side, length))?) });
        }
        let mut remote = windows[1 - side].remote();
        remote.bytes = 5000;
        requests.push(SendRequest::write(50, remote).sge(memory(&pattern(20 + side, 5000))?).signalled());
        let mut remote = windows[1 - side].remote();
        (remote.address, remote.bytes) = (remote.address + 8192, 6000);
        requests.push(SendRequest::read(51, remote).sge(memory(&[0; 6000])?).signalled());
        sides[side].queue_pair.post_sends(&mut requests)?;
    }
    for side in 0..2 {
        let done = sides[side].complete(2 * lengths.len() + 2)?;
        let read = done.iter().find(|done| done.wr_id == 51).context("the READ")?;
        ensure!(read.message() == pattern(10 + 1 - side, WINDOW_BYTES)[8192..14192], "what was read");
        for (received, &length) in done.iter().filter(|done| done.wr_id >= 100).zip(&lengths) {
            ensure!(received.message() == pattern(1 - side, length), "a message of {length} bytes");
        }
        let mut written = vec![0; 5000];
        windows[side].read(0, &mut written)?;
        ensure!(written == pattern(20 + 1 - side, 5000), "what the peer has written");
    }
    drop((windows, sides));
    process.signal(Signal::INT)?;
    let said = process.line("card 0: ")?;
    ensure!(said.starts_with("1 clients, 0 requests refused, 0 remarks; "), "{said}");
    process.end()
}
