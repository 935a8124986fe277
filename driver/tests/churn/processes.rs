//! Clients that are processes, on a served card. The server and the peer of the clients, which has the other card, are in the
//! process of the test.
//!
//! ```text
//!   client (the test again, with RNIC_CHURN_CLIENT)          peer
//!     client <invitation>  ── standard output ─────────────>
//!                          <───────── standard input ──  peer <invitation>
//!     connected            ───────────────────────────────>
//!     transferring         ───────────────────────────────>
//!                          <──────────────────────────────  forget, drop, or SIGKILL
//! ```

use crate::side::{Invitation, Side};
use anyhow::{Context, Result, bail, ensure};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rnic_driver::vfio_user::{ConnectOptions, VfioUserFunction};
use rnic_driver::{Device, Function, Options};
use rnic_machine::served::server::{CardSummary, Server};
use rnic_machine::world::World;
use rnic_stimulus::chance::Seed;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Variable of a client: its number and the socket of its card.
pub(crate) const CLIENT: &str = "RNIC_CHURN_CLIENT";
/// Name of the test that a client runs.
const TEST: &str = "clients_of_other_processes";
/// What the lines of a client begin with, behind what the test harness prints.
const MARK: &str = "churn: ";
/// Bound of each wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest time from the post of the transfers to the end of a client: some of them are done by then.
const TRANSFER_MAX: Duration = Duration::from_millis(3);
/// Longest time from the start of a client that is killed before it has a peer. It opens its card then, or makes objects.
const START_MAX: Duration = Duration::from_millis(100);

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// By SIGKILL while it transfers.
    Killed,
    /// By SIGKILL while it starts.
    KilledAtStart,
    /// It exits, and drops nothing.
    Forgotten,
    /// It drops everything and exits.
    Dropped,
}

const DEATHS: [(Death, u32); 4] =
    [(Death::Killed, 5), (Death::KilledAtStart, 2), (Death::Forgotten, 2), (Death::Dropped, 1)];

fn open(socket: &Path, card: u8) -> Result<Device> {
    let function: Arc<dyn Function> = Arc::new(VfioUserFunction::connect(socket, ConnectOptions::default())?);
    let end = card + 1;
    Ok(Device::open(function, Options { seed: Some(end.into()), ..Options::new([2, 0, 0, 0, 0, end]) })?)
}

/// Lines of a stream, as they come.
fn lines(stream: impl BufRead + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || stream.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    lines
}

/// The client: runs until it is told to end, or is killed.
pub(crate) fn client(number_and_socket: &str) -> Result<()> {
    let (salt, socket) = number_and_socket.split_once(' ').context("number and socket")?;
    let salt: u64 = salt.parse()?;
    let orders = lines(BufReader::new(std::io::stdin()));
    let device = open(Path::new(socket), 0)?;
    let side = Side::new(&device, salt.is_multiple_of(4), PATIENCE)?;
    let queue_pair = side.queue_pair()?;
    println!("{MARK}client {}", side.invitation(&queue_pair)?.to_line());
    let peer = orders.recv_timeout(PATIENCE)?;
    let peer = Invitation::from_line(peer.strip_prefix("peer ").context("the peer's invitation")?)?;
    let mut queue_pair = side.connect(queue_pair, &peer)?;
    println!("{MARK}connected");
    side.greet(&mut queue_pair, &peer, salt)?;
    side.expect_greeting(salt, salt + 1)?;
    side.transfer(&mut queue_pair, &peer, &mut Seed(salt).stream("transfers"))?;
    println!("{MARK}transferring");
    let mut completions = Vec::new();
    loop {
        completions.extend(side.poll()?);
        match orders.try_recv() {
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => bail!("the peer has left"),
            Ok(order) if order == "forget" => {
                std::mem::forget((device, side, queue_pair, completions));
                std::process::exit(0);
            }
            Ok(_) => return Ok(()),
        }
    }
}

/// A client, as its peer sees it. Dropping it kills the process.
struct Client {
    process: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
}

impl Client {
    fn start(socket: &Path, salt: u64) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--exact", TEST, "--nocapture"])
            .env(CLIENT, format!("{salt} {}", socket.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = process.stdin.take().context("its standard input is piped")?;
        let lines = lines(BufReader::new(process.stdout.take().context("its standard output is piped")?));
        Ok(Self { process, orders, lines })
    }

    /// Waits for a line of the client. Returns its rest.
    fn line(&self, start: &str) -> Result<String> {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).with_context(|| format!("no line {start:?}"))?;
            if let Some(rest) = line.split_once(MARK).and_then(|(_, text)| text.strip_prefix(start)) {
                return Ok(rest.to_string());
            }
        }
    }

    fn order(&mut self, order: &str) -> Result<()> {
        Ok(writeln!(self.orders, "{order}")?)
    }

    /// Waits until the process has ended by itself.
    fn wait(&mut self) -> Result<()> {
        let end = until("the end of a client", || self.process.try_wait().map_err(Into::into))?;
        ensure!(end.success(), "a client has failed: {end}");
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Evaluates something until it is there.
fn until<T>(what: &str, mut find: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = find()? {
            return Ok(found);
        }
        ensure!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// File descriptors of this process that are memory of a driver or its eventfds, of the peer and in the server.
fn shared_files() -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        // Another thread may have closed it by now.
        let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
        let target = target.to_string_lossy();
        count += usize::from(target.starts_with("/memfd:") || target == "anon_inode:[eventfd]");
    }
    Ok(count)
}

/// The peer of the clients.
struct Peer<'a> {
    socket: &'a Path,
    side: Side,
    random: ChaCha8Rng,
}

impl Peer<'_> {
    /// One client from its start to its end.
    fn meet(&mut self, salt: u64, death: Death) -> Result<()> {
        let mut client = Client::start(self.socket, salt)?;
        if death == Death::KilledAtStart {
            std::thread::sleep(self.random.random_range(Duration::ZERO..START_MAX));
            return Ok(());
        }
        let invitation = Invitation::from_line(&client.line("client ")?)?;
        let queue_pair = self.side.queue_pair()?;
        let peer = self.side.invitation(&queue_pair)?;
        // Each side greets only when the other one can receive: a frame that is lost is sent again after seconds of wall time.
        let mut queue_pair = self.side.connect(queue_pair, &invitation)?;
        client.order(&format!("peer {}", peer.to_line()))?;
        client.line("connected")?;
        self.side.greet(&mut queue_pair, &invitation, salt + 1)?;
        self.side.expect_greeting(salt + 1, salt)?;
        client.line("transferring")?;
        self.side.transfer(&mut queue_pair, &invitation, &mut self.random)?;
        std::thread::sleep(self.random.random_range(Duration::ZERO..TRANSFER_MAX));
        match death {
            Death::Forgotten => client.order("forget").and_then(|()| client.wait()),
            Death::Dropped => client.order("drop").and_then(|()| client.wait()),
            Death::Killed | Death::KilledAtStart => {
                drop(client);
                Ok(())
            }
        }
    }
}

/// Runs this many clients on the first of two cards, whose sockets are in a folder. Returns how many have ended in each way.
pub(crate) fn run(world: World, folder: &Path, random: ChaCha8Rng, clients: usize) -> Result<[usize; 4]> {
    let sockets: Vec<PathBuf> = (0..2).map(|card| folder.join(format!("card{card}"))).collect();
    let server = Server::new(world, &sockets, |remark| eprintln!("{remark}"))?.spawn()?;
    let device = open(&sockets[1], 1)?;
    let mut peer = Peer { socket: &sockets[0], side: Side::new(&device, true, PATIENCE)?, random };
    let (objects, files) = (device.objects(), shared_files()?);
    let mut deaths = [0; 4];
    let mut run = || -> Result<()> {
        for index in 0..clients {
            let death = DEATHS.choose_weighted(&mut peer.random, |(_, weight)| *weight)?.0;
            let context = || format!("client {index}, {death:?}");
            peer.meet(2 * index as u64, death).with_context(context)?;
            deaths[DEATHS.iter().position(|(kind, _)| *kind == death).context("it has a place")?] += 1;
            peer.side.settle().with_context(context)?;
            ensure!(device.objects() == objects, "{:?} instead of {objects:?}", device.objects());
            let are_closed = || Ok((shared_files()? == files).then_some(()));
            until("the server closes the files of a client", are_closed).with_context(context)?;
        }
        Ok(())
    };
    let outcome = run();
    drop((peer, device));
    let summary = server.end()?;
    outcome.with_context(|| format!("{summary:#?}"))?;
    for (index, card) in summary.cards.iter().enumerate() {
        let CardSummary { remarks, mapped, refused, .. } = card;
        ensure!((*remarks, *mapped, *refused) == (0, 0, 0), "card {index}: {card:?}");
    }
    Ok(deaths)
}
