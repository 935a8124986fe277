//! A rig of one card with its driver, and a foreign peer: a process of its own that speaks RoCEv2 over a Unix socket.
//!
//! ```text
//!   test ── driver ── card ── wire, with faults ── station ══ Unix socket ══ process
//! ```
//!
//! A test opens the card with [`Rig::new`], makes a queue pair and memory, starts the process with what it must know of the card
//! ([`Process::start`]), plugs a station in ([`Rig::attach`]), and connects the queue pair to what the process says of itself.
//! The socket is the standard input of the process.
//!
//! | Station | Socket | Peer |
//! |---|---|---|
//! | [`Socket`](rnic_machine::wire::socket) with `Pace::Turns` | stream | a process that sends in the turns that it is given, as `rnic-sim peer` does: its runs can be repeated |
//! | the same with `Pace::Free` | stream, a frame after its length in four bytes | QEMU's `-netdev socket`, without a bridge; `rnic-sim peer --free` |
//! | [`Datagrams`](rnic_machine::wire::datagram::Datagrams) | `SOCK_SEQPACKET` or `SOCK_DGRAM`, a frame a datagram | QEMU's `-netdev dgram`, tools; `rnic-sim peer`, on `SOCK_SEQPACKET` |
//! | any other [`Station`] | | |
//!
//! Timers of a peer that takes no turns run in wall-clock time. [`Paced`](rnic_machine::wire::paced::Paced) around its station
//! keeps simulated time at a fixed ratio of it. `rnic-sim peer --slowdown` divides its clock by the same number, so that its timers
//! are those of the simulated time; a kernel is given a timeout of
//! [`timeout_code`](rnic_machine::wire::paced::timeout_code).
//!
//! Each wait for the process ends after the rig's patience in wall-clock time, with an error that says what was waited for.
//!
//! # A kernel's soft-RoCE
//!
//! The guest's `init` loads `rdma_rxe`, sets up its port and a queue pair with the numbers of its command line: the card's QPN and
//! first PSN, and the code of its timeout. The card answers no ARP request, so the guest makes its address a permanent neighbour.
//! `init` posts a receive and prints `peer <QPN> <first PSN>` on its console; when a message has arrived, it prints `received <text>`.
//!
//! ```no_run
//! use anyhow::{Context, Result};
//! use rnic_driver::{ConnectionInfo, RemoteRights, SendRequest};
//! use rnic_hdl::{config::Config, generator};
//! use rnic_layout::path::{Gid, Pmtu};
//! use rnic_machine::wire::paced::{Paced, timeout_code};
//! use rnic_machine::wire::socket::{Pace, Socket};
//! use rnic_machine::world::{Port, model_options};
//! use rnic_sim::foreign::{Process, Rig, RigOptions};
//! use std::{path::Path, process::Command, time::Duration};
//! use verilator_sys::{Model, ModelOptions};
//!
//! fn main() -> Result<()> {
//!     let config = Config::parse(&std::fs::read_to_string("configs/w64.toml")?)?;
//!     let verilog = generator::generate(&config)?.verilog;
//!     let model = Model::build(generator::TOP, &verilog, &model_options(ModelOptions::default()))?;
//!     let patience = Duration::from_secs(300);
//!     let options = RigOptions { patience, ..RigOptions::standard(64) };
//!     // A microsecond of the card takes 10 ms, and so do the guest's timers.
//!     let slowdown = 10_000;
//!     let timeout = timeout_code(options.timeout, slowdown);
//!     let mut rig = Rig::new(&model, options)?;
//!     rig.world().capture(Port::Card(0), Path::new("soft-roce.pcap"))?;
//!     let queue_pair = rig.queue_pair(RemoteRights::ALL)?;
//!     let own = queue_pair.info(0)?;
//!
//!     let mut guest = Command::new("qemu-system-x86_64");
//!     guest.args("-enable-kvm -m 512 -display none -monitor none -chardev file,id=console,path=/dev/stdout".split(' '));
//!     guest.args("-serial chardev:console -kernel vmlinuz -initrd initrd".split(' '));
//!     guest.args("-netdev socket,id=port,fd=0 -device virtio-net-pci,netdev=port,mac=02:00:00:00:00:02".split(' '));
//!     guest.args(["-append", &format!("console=ttyS0 -- {} {} {timeout}", own.qp_number, own.first_psn)]);
//!     let (mut guest, socket) = Process::start(guest, patience)?;
//!     let port = Socket::new(socket, Pace::Free { every_ps: 1_000_000 }, patience)?;
//!     rig.attach(Paced::new(port, slowdown))?;
//!
//!     let numbers = guest.line("peer ")?;
//!     let (qp_number, first_psn) = numbers.trim().split_once(' ').context("two numbers")?;
//!     let peer = ConnectionInfo {
//!         qp_number: qp_number.parse()?,
//!         first_psn: first_psn.parse()?,
//!         gid: Gid::from_ipv4([10, 0, 0, 2].into()),
//!         mac: [2, 0, 0, 0, 0, 2],
//!         path_mtu: Pmtu::Bytes1024,
//!     };
//!     let mut queue_pair = rig.connect(queue_pair, &peer, 0)?;
//!     let request = SendRequest::send(1).inline(b"hello").signalled();
//!     queue_pair.post_send(request)?;
//!     let done = rig.wait("the completion of a SEND", |rig| Ok(rig.completions()?.pop()))?;
//!     println!("{:?}", done.status);
//!     let received = rig.wait("the message at the peer", |_| guest.heard("received "))?;
//!     println!("the peer has received {received}");
//!     drop(queue_pair);
//!     rig.finish()
//! }
//! ```
use anyhow::{Context, Result, bail, ensure};
use rnic_driver::state::{Init, ReadyToSend};
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, ConnectionInfo, Device, Function,
    Options, Path, ProtectionDomain, QueuePair, QueuePairOptions, RemoteRights, SendOptions,
};
use rnic_layout::path::Gid;
use rnic_layout::registers::COUNTERS;
use rnic_machine::function::{SharedWorld, SimulatedFunction, lock};
use rnic_machine::host::HostOptions;
use rnic_machine::wire::fault::{Fault, Hits};
use rnic_machine::wire::{Direction, Script, Station, WireOptions};
use rnic_machine::world::{CardOptions, Port, World};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use verilator_sys::Model;

/// How often a process that has closed its outputs is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// Direction of a wire between the card and its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Frames that the card sends.
    FromCard,
    /// Frames that the peer sends.
    ToCard,
}

/// The card of a rig, and how the rig waits.
#[derive(Clone, Debug)]
pub struct RigOptions {
    /// Width of the datapath; that of the model.
    pub width_bits: u32,
    /// Seed of the world and of the driver's numbers.
    pub seed: u64,
    /// Behaviour of the card's host.
    pub host: HostOptions,
    /// Ethernet address of the card.
    pub mac: [u8; 6],
    /// Addresses of the card.
    pub addresses: Vec<Gid>,
    /// Code of the acknowledgement timeout of the card's queue pairs, 4.096 us x 2^code of simulated time; 0 for none.
    pub timeout: u8,
    /// Bound of each wait for the process, in wall-clock time.
    pub patience: Duration,
}

impl RigOptions {
    /// A card with the addresses 02:00:00:00:00:01 and 10.0.0.1 on a usual host, under seed 1. A process on a busy machine may
    /// take long, and is not mistaken for one that hangs: the rig waits for two minutes. A frame that the card has sent and that is
    /// lost is sent again after a millisecond.
    pub fn standard(width_bits: u32) -> RigOptions {
        RigOptions {
            width_bits,
            seed: 1,
            host: HostOptions::STANDARD,
            mac: [2, 0, 0, 0, 0, 1],
            addresses: vec![Gid::from_ipv4([10, 0, 0, 1].into())],
            timeout: 8,
            patience: Duration::from_secs(120),
        }
    }
}

/// One card, and a wire to a foreign peer.
pub struct Rig {
    wire_options: WireOptions,
    timeout: u8,
    patience: Duration,
    world: SharedWorld,
    function: Arc<SimulatedFunction>,
    device: Device,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    wire: Option<usize>,
    counters: Vec<u64>,
}

impl Rig {
    /// Builds a world of one card, without a peer, and opens the card.
    ///
    /// # Errors
    /// If the model is not a card, the driver cannot open it, or a monitor sees a violation.
    pub fn new(model: &Model, options: RigOptions) -> Result<Rig> {
        let card = CardOptions { host: options.host, ..CardOptions::standard(options.width_bits) };
        let mut world = World::new(options.seed);
        world.add_card(model, card)?;
        world.leave_reset()?;
        let world = Arc::new(Mutex::new(world));
        let function = Arc::new(SimulatedFunction::new(Arc::clone(&world), 0));
        let opening =
            Options { addresses: options.addresses, seed: Some(options.seed), ..Options::new(options.mac) };
        let device = Device::open(function.clone(), opening)?;
        let domain = device.create_protection_domain()?;
        let completions =
            device.create_completion_queue(&device.events(), &CompletionQueueOptions::default())?;
        let counters = lock(&world).counters(0)?;
        Ok(Rig {
            wire_options: card.wire(),
            timeout: options.timeout,
            patience: options.patience,
            world,
            function,
            device,
            domain,
            completions,
            wire: None,
            counters,
        })
    }

    /// Connects the card's wire to a station: a [`Socket`](rnic_machine::wire::socket::Socket) of a process, or any other. Returns
    /// its index in the [world](Self::world). Simulated time does not advance, so that faults that are set next meet the first
    /// frame.
    ///
    /// # Errors
    /// If there is a peer already.
    pub fn attach(&mut self, station: impl Station) -> Result<usize> {
        let mut world = lock(&self.world);
        let station = world.add_station(station);
        self.wire = Some(world.connect(Port::Card(0), Port::Station(station), self.wire_options)?);
        Ok(station)
    }

    /// Locks the world. Its time does not advance while the guard is held.
    pub fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// The opened card.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The protection domain of the queue pairs, for memory.
    pub fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// Creates a queue pair that completes to the queue of [`Self::completions`].
    ///
    /// # Errors
    /// If the card refuses.
    pub fn queue_pair(&self, rights: RemoteRights) -> Result<QueuePair<Init>> {
        let options = QueuePairOptions::default();
        let queue_pair = self.domain.create_queue_pair(&self.completions, &self.completions, &options)?;
        Ok(queue_pair.initialize(rights).map_err(rnic_driver::Error::from)?)
    }

    /// Connects a queue pair to the peer, from the card's address of this index.
    ///
    /// # Errors
    /// If the card refuses.
    pub fn connect(
        &self,
        queue_pair: QueuePair<Init>,
        peer: &ConnectionInfo,
        source_index: u8,
    ) -> Result<QueuePair<ReadyToSend>> {
        let path = Some(Path { source_index, ..Path::new(peer.gid, peer.mac) });
        // The peer may have as many READs in flight as a card takes.
        let limits = self.device.limits().queues;
        let timeout = self.timeout;
        let send = SendOptions { read_atomic: Some(limits.read_atomic), timeout, ..SendOptions::default() };
        let destination_read_atomic = Some(limits.destination_read_atomic);
        let options = ConnectOptions { path, send, destination_read_atomic, ..ConnectOptions::default() };
        Ok(queue_pair.connect(peer, &options)?)
    }

    /// Sets faults of one direction of the wire, in place of those that were set before. They meet what a
    /// [script](Self::set_script) leaves.
    ///
    /// # Errors
    /// If there is no peer yet.
    pub fn set_faults(&self, way: Way, faults: Vec<Fault>) -> Result<Hits> {
        self.on_wire(way, |direction| direction.set_faults(faults))
    }

    /// Sets or removes the script of one direction of the wire.
    ///
    /// # Errors
    /// If there is no peer yet.
    pub fn set_script(&self, way: Way, script: Option<Script>) -> Result<()> {
        self.on_wire(way, |direction| direction.set_script(script))
    }

    fn on_wire<T>(&self, way: Way, change: impl FnOnce(&mut Direction) -> T) -> Result<T> {
        let wire = self.wire.context("no peer is attached")?;
        let direction = match way {
            Way::FromCard => 0,
            Way::ToCard => 1,
        };
        Ok(change(self.world().direction_mut(wire, direction)))
    }

    /// Takes all completions.
    ///
    /// # Errors
    /// If the completion queue has failed.
    pub fn completions(&self) -> Result<Vec<Completion>> {
        let mut done = Vec::new();
        while let Some(completion) = self.completions.poll_one()? {
            done.push(completion);
        }
        Ok(done)
    }

    /// Increments of the card's counters since the last call, of those that moved.
    ///
    /// # Errors
    /// If the card does not answer.
    pub fn moved(&mut self) -> Result<BTreeMap<&'static str, u64>> {
        let now = self.world().counters(0)?;
        let before = std::mem::replace(&mut self.counters, now);
        let moved = COUNTERS.iter().zip(self.counters.iter().zip(before));
        let moved = moved.map(|(counter, (now, before))| (counter.name, now.wrapping_sub(before)));
        Ok(moved.filter(|(_, count)| *count != 0).collect())
    }

    /// Advances simulated time until a function returns a value.
    ///
    /// # Errors
    /// If it returns none within the rig's patience, the process is gone, or a monitor sees a violation; each error says `what`
    /// was waited for.
    pub fn wait<T>(
        &mut self,
        what: &str,
        mut is_there: impl FnMut(&mut Rig) -> Result<Option<T>>,
    ) -> Result<T> {
        let end = Instant::now() + self.patience;
        loop {
            self.world().check().with_context(|| format!("waiting for {what}"))?;
            if let Some(found) = is_there(self).with_context(|| format!("waiting for {what}"))? {
                return Ok(found);
            }
            if Instant::now() >= end {
                let moved = self.moved().with_context(|| format!("waiting for {what}"))?;
                let patience = self.patience;
                bail!("{what}: not within {patience:?} of wall-clock time; the counters moved by {moved:?}");
            }
            self.function.idle();
        }
    }

    /// Ends the run: everything comes to rest, and the monitors are checked. Then the socket is closed, which tells the process.
    /// Queue pairs and memory must have been dropped.
    ///
    /// # Errors
    /// If an event was not taken, the world does not come to rest, the process is gone, a monitor has seen a violation, or a queue
    /// pair or memory is still there.
    pub fn finish(self) -> Result<()> {
        let event = self.device.events().poll()?;
        ensure!(event.is_none(), "{event:?}");
        let Rig { world, function, device, domain, completions, .. } = self;
        drop((completions, domain, device, function));
        lock(&world).finish()?;
        let world =
            Arc::into_inner(world).context("a queue pair or memory was not dropped before the rig")?;
        drop(world.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

/// The process behind the socket. It is killed when this is dropped.
pub struct Process {
    name: String,
    child: Child,
    patience: Duration,
    /// Lines of both outputs, until both are closed.
    lines: Receiver<String>,
    said: Vec<String>,
    /// Lines of `said` that [`Self::heard`] has passed.
    passed: usize,
    is_silent: bool,
}

impl Process {
    /// Starts a command that has one end of a stream socket as its standard input. Returns the other end.
    /// `patience` bounds each wait for the process, in wall-clock time.
    ///
    /// # Errors
    /// If the command cannot be started.
    pub fn start(command: Command, patience: Duration) -> Result<(Process, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Process::start_with(command, theirs.into(), patience)?, ours))
    }

    /// As [`Self::start`], with any socket as its standard input.
    ///
    /// # Errors
    /// If the command cannot be started.
    pub fn start_with(mut command: Command, input: OwnedFd, patience: Duration) -> Result<Process> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        // The command holds the other end of the socket too, which must close when the process ends.
        drop(command);
        let (sender, lines) = channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|output| Box::new(output) as _),
            child.stderr.take().map(|output| Box::new(output) as _),
        ];
        for output in outputs.into_iter().flatten() {
            let sender = sender.clone();
            thread::Builder::new().name("foreign output".into()).spawn(move || pass_on(output, &sender))?;
        }
        let said = Vec::new();
        Ok(Process { name, child, patience, lines, said, passed: 0, is_silent: false })
    }

    /// Looks for the next line of its outputs that contains a marker, and returns what follows the marker.
    ///
    /// # Errors
    /// If it has closed its outputs without saying so.
    pub fn heard(&mut self, marker: &str) -> Result<Option<String>> {
        while !self.is_silent {
            match self.lines.try_recv() {
                Ok(line) => self.said.push(line),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.is_silent = true,
            }
        }
        while let Some(line) = self.said.get(self.passed) {
            self.passed += 1;
            if let Some((_, rest)) = line.split_once(marker) {
                return Ok(Some(rest.to_string()));
            }
        }
        ensure!(!self.is_silent, "{} has not said {marker:?}:\n{}", self.name, self.said.join("\n"));
        Ok(None)
    }

    /// Waits for the next line of its outputs that contains a marker, and returns what follows the marker. Simulated time does not
    /// advance; [`Rig::wait`] with [`Self::heard`] is for what the process says after it has heard the card.
    ///
    /// # Errors
    /// If the line does not come within its patience, or it closes its outputs before.
    pub fn line(&mut self, marker: &str) -> Result<String> {
        let end = Instant::now() + self.patience;
        loop {
            if let Some(rest) = self.heard(marker)? {
                return Ok(rest);
            }
            self.listen(end, &format!("has not said {marker:?}"))?;
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// If the process is not there any more.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Waits until the process has ended, which it must with success.
    ///
    /// # Errors
    /// If it fails, or does not end within its patience.
    pub fn end(mut self) -> Result<()> {
        let end = Instant::now() + self.patience;
        while !self.is_silent {
            self.listen(end, "has not ended")?;
        }
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(Instant::now() < end, "{} has not ended within {:?}", self.name, self.patience);
            thread::sleep(POLL);
        };
        ensure!(status.success(), "{}: {status}:\n{}", self.name, self.said.join("\n"));
        Ok(())
    }

    /// Waits for one more line, or for the end of the outputs.
    fn listen(&mut self, end: Instant, missing: &str) -> Result<()> {
        match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => self.said.push(line),
            Err(RecvTimeoutError::Disconnected) => self.is_silent = true,
            Err(RecvTimeoutError::Timeout) => {
                let (name, patience) = (&self.name, self.patience);
                bail!("{name} {missing} within {patience:?} of wall-clock time:\n{}", self.said.join("\n"));
            }
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already unless the test has failed, or leaves it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes the lines of an output on until it is closed.
fn pass_on(output: impl Read, to: &Sender<String>) {
    for line in BufReader::new(output).split(b'\n') {
        let Ok(line) = line else { return };
        if to.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
            return;
        }
    }
}
