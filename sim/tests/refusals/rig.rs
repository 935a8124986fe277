//! A card with its driver, and the reference endpoint at the other end of the wire.
//!
//! The endpoint answers by itself. A test may send any frame in addition, and sees every frame that arrives. One pair of queue
//! pairs, the bystander's, is never attacked: it moves a message each way after every attack.
use crate::interpose::Interposer;
use crate::support::card_model;
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    AsynchronousEvent, Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, ConnectionInfo,
    Device, Function, Options, Path, ProtectionDomain, QueuePair, QueuePairOptions, ReceiveRequest, Region,
    RemoteRights, SendOptions, SendRequest, state,
};
use rnic_endpoint::Endpoint;
use rnic_endpoint::memory::{Region as PeerRegion, Rights, Sge};
use rnic_endpoint::packet;
use rnic_endpoint::qp::{self, Data, Operation, QueuePairSetup, ReceiveWqe, SendWqe};
use rnic_layout::path::{Gid, Pmtu};
use rnic_layout::psn::{PSN_COUNT, Psn};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::registers::COUNTERS;
use rnic_layout::wire::{ExtendedRepr, MacAddress, PacketRepr, VlanTag};
use rnic_machine::function::SharedWorld;
use rnic_machine::host::HostOptions;
use rnic_machine::wire::{Frame, Station, WireOptions};
use rnic_machine::world::{CardOptions, Port, World};
use rnic_stimulus::chance::{Delay, Seed};
use rnic_workloads::tamper::Tamper;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};

/// Ethernet addresses.
pub(crate) const CARD_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// QPN of the endpoint's side of the bystander, and a QPN that neither side has.
const BYSTANDER: u32 = 0x21;
/// Key of the endpoint's memory.
pub(crate) const PEER_KEY: u32 = 0x305;
/// Bytes of the endpoint's memory.
pub(crate) const PEER_BYTES: usize = 0x4_0000;
/// Address of the endpoint's memory in work requests of the card.
pub(crate) const PEER_FIRST: u64 = 0x5000_0000;
/// Length of each receive of the card.
pub(crate) const RECEIVE_BYTES: usize = 100;
/// Initial contents of receive memory.
pub(crate) const UNTOUCHED: u8 = 0xee;
/// Number of receives for which there is memory.
const RECEIVES: usize = 128;
/// First PSN that the endpoint sends on the bystander, close to the wrap-around.
const BYSTANDER_PSN: u32 = 0xff_fff0;
/// Maximum of calls of `idle`, of 100 ns each, in a wait.
const IDLE_MAX: usize = 2_000;

/// Delay code of RNR NAKs.
pub(crate) const MIN_RNR_TIMER: u8 = 12;

/// A packet between the card and the endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    /// The endpoint has sent it.
    pub(crate) is_from_endpoint: bool,
    pub(crate) opcode: u8,
    /// MSN of an answer.
    pub(crate) msn: Option<Psn>,
    /// QPN to which it goes.
    #[allow(dead_code, reason = "tests of hostile input read it, which include this file")]
    pub(crate) destination: u32,
    /// When the endpoint has received it, or has queued it at its port.
    #[allow(dead_code, reason = "tests of hostile input read it, which include this file")]
    pub(crate) time_ps: u64,
}

impl Passed {
    fn of(frame: &[u8], is_from_endpoint: bool, time_ps: u64) -> Option<Passed> {
        let packet = PacketRepr::parse(frame).ok()?;
        let msn = packet.extended_headers().find_map(|header| match header {
            ExtendedRepr::Aeth(aeth) => Some(aeth.msn),
            _ => None,
        });
        let (opcode, destination) = (packet.bth.opcode, packet.bth.destination_qp);
        Some(Passed { is_from_endpoint, opcode, msn, destination, time_ps })
    }
}

/// What happens to frames at the endpoint's port.
pub(crate) trait Faults: Send {
    /// The frames that take the place of one that the endpoint receives, or sends.
    fn pass(&mut self, frame: &[u8], is_received: bool) -> Vec<Vec<u8>>;
}

/// The endpoint on its port.
pub(crate) struct Peer {
    endpoint: Endpoint,
    faults: Option<Box<dyn Faults>>,
    waiting: VecDeque<Frame>,
    heard: Vec<Vec<u8>>,
    /// What the endpoint has sent and received, in order.
    passed: Vec<Passed>,
}

impl Peer {
    fn pass(&mut self, frame: Vec<u8>, is_received: bool) -> Vec<Vec<u8>> {
        match &mut self.faults {
            Some(faults) => faults.pass(&frame, is_received),
            None => vec![frame],
        }
    }

    fn refill(&mut self, now_ps: u64) {
        while let Some(frame) = self.endpoint.transmit() {
            for frame in self.pass(frame, false) {
                self.passed.extend(Passed::of(&frame, true, now_ps));
                self.waiting.push_back(Frame::new(frame));
            }
        }
    }
}

impl Station for Peer {
    fn receive(&mut self, now_ps: u64, frame: &Frame) {
        self.heard.push(frame.bytes.clone());
        self.passed.extend(Passed::of(&frame.bytes, false, now_ps));
        self.endpoint.advance(now_ps);
        for frame in self.pass(frame.bytes.clone(), true) {
            self.endpoint.receive(&frame);
        }
        self.refill(now_ps);
    }

    fn wakes_ps(&self) -> Option<u64> {
        // The endpoint does not depend on time: its queue pairs have no timeout.
        (!self.waiting.is_empty()).then_some(0)
    }

    fn transmit(&mut self, _now_ps: u64) -> Option<Frame> {
        self.waiting.pop_front()
    }
}

/// A version of IP, as the index of the addresses that belong to it.
pub(crate) type Version = usize;
pub(crate) const IPV4: Version = 0;
pub(crate) const IPV6: Version = 1;

/// Addresses of a side.
fn gids(mac: [u8; 6]) -> [Gid; 2] {
    [Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, mac[5])), Gid::from_mac(mac)]
}

/// Tag control information of all frames of a version of IP: IPv6 runs in a VLAN.
fn vlan(version: Version) -> Option<u16> {
    (version == IPV6).then_some(0x6064)
}

/// Path from the endpoint to the card. DSCP, flow label and hop limit are others than in the other direction.
pub(crate) fn path_to_card(version: Version) -> packet::Path {
    let [peer, card] = [PEER_MAC, CARD_MAC].map(|mac| (MacAddress(mac), gids(mac)[version]));
    let vlan = vlan(version).map(VlanTag::from_control);
    let path = packet::Path::new(peer.0, peer.1, card.0, card.1);
    packet::Path { vlan, traffic_class: 0x28, flow_label: 0x5_4321, hop_limit: 3, ..path }
}

/// Path from the card to the endpoint.
pub(crate) fn path_to_peer(version: Version) -> Path {
    let (source_index, vlan) = (version as u8, vlan(version));
    let path = Path::new(gids(PEER_MAC)[version], PEER_MAC);
    Path { source_index, vlan, traffic_class: 0x88, flow_label: 0x1_2345, hop_limit: 200, ..path }
}

/// Host of the card: ideal, standard or hostile. The seeds of the tests and both widths meet all three.
fn host(width_bits: u32, seed: u64) -> HostOptions {
    let host = match (seed + u64::from(width_bits == 64)) % 3 {
        0 => HostOptions::IDEAL,
        1 => HostOptions::STANDARD,
        _ => HostOptions::hostile(&mut Seed(seed).stream("host options")),
    };
    // The rig maps memory one range at a time.
    HostOptions { scatters: false, ..host }
}

/// Attributes with which the card sends: no retries, so the first failure is reported.
const SEND: SendOptions =
    SendOptions { timeout: 0, retry_count: 0, rnr_retry: 0, read_atomic: Some(READS_MAX) };
/// READs and atomics in flight, in both directions: as many as a queue pair can have.
pub(crate) const READS_MAX: u8 = 16;

/// Increments of all counters since the last snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved(BTreeMap<&'static str, u64>);

/// Counters that any traffic increments. A test must name the reason for increments of all others.
pub(crate) const FREE: [&str; 18] = [
    "frames_received",
    "bytes_received",
    "requests_received",
    "responses_received",
    "frames_sent",
    "bytes_sent",
    "acknowledgements_received",
    "acknowledgements_sent",
    "messages_completed",
    "completions_written",
    "completions_in_error",
    "events_written",
    "interrupts_raised",
    "commands_executed",
    "host_reads",
    "host_writes",
    "context_misses",
    "marked_received",
];

impl Moved {
    /// One counter.
    pub(crate) fn of(&self, name: &str) -> u64 {
        assert!(COUNTERS.iter().any(|counter| counter.name == name), "{name}");
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Increments of all counters that traffic does not always increment.
    pub(crate) fn named(&self) -> BTreeMap<&'static str, u64> {
        self.0.iter().filter(|(name, _)| !FREE.contains(name)).map(|(name, count)| (*name, *count)).collect()
    }
}

/// The machine.
pub(crate) struct Rig {
    pub(crate) world: SharedWorld,
    pub(crate) tamper: Arc<Tamper>,
    pub(crate) interposer: Arc<Interposer>,
    pub(crate) device: Device,
    pub(crate) domain: ProtectionDomain,
    pub(crate) sends: CompletionQueue,
    pub(crate) receives: CompletionQueue,
    /// Memory for receives.
    pub(crate) room: Vec<Region>,
    station: usize,
    pub(crate) bystander: Option<QueuePair<ReadyToSend>>,
    /// Queue pairs that were created.
    queue_pairs: Cell<u32>,
    counters: Vec<u64>,
    messages: u64,
}

impl Rig {
    /// Opens the card.
    pub(crate) fn new(width_bits: u32, seed: u64) -> Result<Rig> {
        Rig::with_events(width_bits, seed, Options::new(CARD_MAC).eqes_log2)
    }

    /// Opens the card with 2^`eqes_log2` EQEs of event queue 0.
    pub(crate) fn with_events(width_bits: u32, seed: u64, eqes_log2: u32) -> Result<Rig> {
        Rig::on_host(width_bits, seed, eqes_log2, host(width_bits, seed))
    }

    /// Opens the card on a host whose writes are visible late, after much more time than the card needs for an answer.
    pub(crate) fn with_late_writes(width_bits: u32, seed: u64) -> Result<Rig> {
        let write_visible = Delay::Uniform { min_ps: 2_000_000, max_ps: 3_000_000 };
        let host = HostOptions { write_visible, scatters: false, ..HostOptions::STANDARD };
        Rig::on_host(width_bits, seed, Options::new(CARD_MAC).eqes_log2, host)
    }

    /// Opens the card on a host, which must map memory one range at a time.
    pub(crate) fn on_host(width_bits: u32, seed: u64, eqes_log2: u32, host: HostOptions) -> Result<Rig> {
        let options = CardOptions { host, ..CardOptions::standard(width_bits) };
        let mut world = World::new(seed);
        world.add_card(&card_model(width_bits)?, options)?;
        let mut endpoint = Endpoint::new(MacAddress(PEER_MAC), PEER_BYTES);
        let region = PeerRegion {
            first_address: PEER_FIRST,
            length: PEER_BYTES as u64,
            offset: 0,
            domain: 0,
            rights: Rights::ALL,
            invalidatable: false,
        };
        endpoint.memory().register(PEER_KEY, region);
        let peer =
            Peer { endpoint, faults: None, waiting: VecDeque::new(), heard: Vec::new(), passed: Vec::new() };
        let station = world.add_station(peer);
        // A short wire, so that little time passes.
        let wire = WireOptions { delay: Delay::nanoseconds(20), ..options.wire() };
        world.connect(Port::Card(0), Port::Station(station), wire)?;
        world.leave_reset()?;
        let world = Arc::new(Mutex::new(world));
        let interposer = Arc::new(Interposer::new(Arc::clone(&world)));
        let tamper = Arc::new(Tamper::new(interposer.clone()));
        let addresses = gids(CARD_MAC).to_vec();
        let opening = Options { addresses, seed: Some(seed), eqes_log2, ..Options::new(CARD_MAC) };
        let device = Device::open(tamper.clone(), opening)?;
        let domain = device.create_protection_domain()?;
        let events = device.events();
        let queue = || device.create_completion_queue(&events, &CompletionQueueOptions::default());
        let (sends, receives) = (queue()?, queue()?);
        let mut rest = domain.allocate(RECEIVES * RECEIVE_BYTES)?;
        let mut room = Vec::new();
        for _ in 1..RECEIVES {
            let (piece, tail) = rest.split_at(RECEIVE_BYTES).expect("there is enough for all");
            room.push(piece);
            rest = tail;
        }
        let (counters, messages) = (Vec::new(), 0);
        let mut rig = Rig {
            world,
            tamper,
            interposer,
            device,
            domain,
            sends,
            receives,
            room,
            station,
            bystander: None,
            queue_pairs: Cell::new(0),
            counters,
            messages,
        };
        let bystander = rig.new_queue_pair(RemoteRights::WRITE)?;
        let bystander =
            rig.connect_to_endpoint(bystander, BYSTANDER, IPV4, Pmtu::Bytes1024, BYSTANDER_PSN)?;
        rig.bystander = Some(bystander);
        let counters = rig.world().counters(0)?;
        rig.counters = counters;
        Ok(rig)
    }

    /// Locks the world. Its time does not advance while the guard is held.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("nobody has panicked")
    }

    /// The endpoint; the frames that it then has are sent afterwards.
    pub(crate) fn endpoint<T>(&self, speak: impl FnOnce(&mut Endpoint) -> T) -> T {
        let mut world = self.world();
        let now_ps = world.now_ps();
        let peer: &mut Peer = world.station(self.station);
        peer.endpoint.advance(now_ps);
        let said = speak(&mut peer.endpoint);
        peer.refill(now_ps);
        said
    }

    /// Sets what happens to frames at the endpoint's port.
    pub(crate) fn set_faults(&self, faults: Option<Box<dyn Faults>>) {
        let mut world = self.world();
        let peer: &mut Peer = world.station(self.station);
        peer.faults = faults;
    }

    /// Sends frames from the endpoint's port, after all that are queued there.
    pub(crate) fn send(&self, frames: &[Vec<u8>]) {
        let mut world = self.world();
        let peer: &mut Peer = world.station(self.station);
        peer.waiting.extend(frames.iter().cloned().map(Frame::new));
    }

    /// The same with one frame, whose FCS is wrong.
    pub(crate) fn send_damaged(&self, frame: &[u8]) {
        let mut world = self.world();
        let peer: &mut Peer = world.station(self.station);
        peer.waiting.push_back(Frame { is_damaged: true, ..Frame::new(frame.to_vec()) });
    }

    /// The same with one frame that no MAC has padded, with a right FCS.
    #[allow(dead_code, reason = "tests of hostile input use it, which include this file")]
    pub(crate) fn send_runt(&self, frame: &[u8]) {
        let mut world = self.world();
        let peer: &mut Peer = world.station(self.station);
        peer.waiting.push_back(Frame { bytes: frame.to_vec(), is_damaged: false });
    }

    /// Frames that the endpoint's port received since the last call.
    pub(crate) fn heard(&self) -> Vec<Vec<u8>> {
        let mut world = self.world();
        let peer: &mut Peer = world.station(self.station);
        std::mem::take(&mut peer.heard)
    }

    /// Packets that the endpoint has sent or received since the last call, in order.
    pub(crate) fn passed(&self) -> Vec<Passed> {
        let mut world = self.world();
        let peer: &mut Peer = world.station(self.station);
        std::mem::take(&mut peer.passed)
    }

    /// Increments of the counters since the last call.
    pub(crate) fn moved(&mut self) -> Result<Moved> {
        let now = self.world().counters(0)?;
        let before = std::mem::replace(&mut self.counters, now);
        let moved = COUNTERS.iter().zip(self.counters.iter().zip(before));
        let moved = moved.map(|(counter, (now, before))| (counter.name, now.wrapping_sub(before)));
        Ok(Moved(moved.filter(|(_, count)| *count != 0).collect()))
    }

    /// Advances time until a function returns a value.
    pub(crate) fn wait<T>(
        &mut self,
        what: &str,
        mut is_there: impl FnMut(&mut Rig) -> Result<Option<T>>,
    ) -> Result<T> {
        for _ in 0..IDLE_MAX {
            if let Some(found) = is_there(self)? {
                return Ok(found);
            }
            self.tamper.idle();
        }
        self.world().check()?;
        let moved = self.moved()?;
        Err(self
            .world()
            .failure(&format!("{what} does not come; the counters moved by {:?}", moved.0))
            .into())
    }

    /// Adds the captures of the run to a failure, and the violation of a monitor from which it may follow.
    pub(crate) fn explained<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            let mut world = self.world();
            let cause = world.check().err().unwrap_or_else(|| world.failure("the test has failed"));
            error.context(cause)
        })
    }

    /// Discards completions, events and frames that a failed attack has left, so that they do not affect the next one.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.world().check()?;
        self.idle(50);
        self.completions()?;
        while self.event()?.is_some() {}
        self.heard();
        self.moved()?;
        Ok(())
    }

    /// Advances time by this many tenths of a microsecond.
    pub(crate) fn idle(&self, count: usize) {
        (0..count).for_each(|_| self.tamper.idle());
    }

    /// Advances time by nanoseconds, for what happens between two calls of `idle`.
    pub(crate) fn step_ns(&self, count: u64) -> Result<()> {
        Ok(self.world().run_for(1000 * count)?)
    }

    /// The oldest asynchronous event.
    pub(crate) fn event(&self) -> Result<Option<AsynchronousEvent>> {
        Ok(self.device.events().poll()?)
    }

    /// Advances time until there are so many completions, and takes them.
    #[allow(
        dead_code,
        reason = "tests of hostile input compare completions with the reference, and include this file"
    )]
    pub(crate) fn completed(&mut self, count: usize) -> Result<Vec<Done>> {
        let mut done = Vec::new();
        self.wait("the completions", |rig| {
            done.extend(rig.completions()?);
            Ok((done.len() >= count).then_some(()))
        })
        .with_context(|| format!("{done:?}"))?;
        Ok(done)
    }

    /// Takes all completions, and frees the memory of receives.
    pub(crate) fn completions(&mut self) -> Result<Vec<Done>> {
        let mut done = Vec::new();
        for queue in [&self.sends, &self.receives] {
            while let Some(completion) = queue.poll_one()? {
                let message = completion.message();
                let Completion { qp_number, status, opcode, wr_id, immediate, length, sg_list, .. } =
                    completion;
                let is_receive = wr_id & RECEIVE_TAG != 0;
                if is_receive {
                    self.room.extend(sg_list);
                }
                done.push(Done { qp_number, status, opcode, wr_id, is_receive, immediate, length, message });
            }
        }
        Ok(done)
    }

    /// A queue pair in INIT. Of every three, one begins at the last PSN, and one shortly before the PSNs wrap around.
    pub(crate) fn new_queue_pair(&self, rights: RemoteRights) -> Result<QueuePair<state::Init>> {
        let count = self.queue_pairs.get();
        self.queue_pairs.set(count + 1);
        let first_psn = [None, Some(PSN_COUNT - 1), Some(PSN_COUNT - 3)][count as usize % 3];
        let options = QueuePairOptions { first_psn, ..QueuePairOptions::default() };
        let queue_pair = self.domain.create_queue_pair(&self.sends, &self.receives, &options)?;
        Ok(queue_pair.initialize(rights).map_err(rnic_driver::Error::from)?)
    }

    /// Connects a queue pair to a peer with this QPN.
    pub(crate) fn connect(
        &self,
        queue_pair: QueuePair<state::Init>,
        peer: u32,
        version: Version,
        pmtu: Pmtu,
        first_psn: u32,
    ) -> Result<QueuePair<ReadyToSend>> {
        self.connect_with(queue_pair, peer, version, pmtu, first_psn, |_| ())
    }

    /// The same, with other options than the usual ones.
    pub(crate) fn connect_with(
        &self,
        queue_pair: QueuePair<state::Init>,
        peer: u32,
        version: Version,
        pmtu: Pmtu,
        first_psn: u32,
        change: impl FnOnce(&mut ConnectOptions),
    ) -> Result<QueuePair<ReadyToSend>> {
        let gid = gids(PEER_MAC)[version];
        let info = ConnectionInfo { qp_number: peer, first_psn, gid, mac: PEER_MAC, path_mtu: pmtu };
        let path = Some(path_to_peer(version));
        let mut options = ConnectOptions {
            path,
            min_rnr_timer: MIN_RNR_TIMER,
            destination_read_atomic: Some(READS_MAX),
            send: SEND,
        };
        change(&mut options);
        Ok(queue_pair.connect(&info, &options)?)
    }

    /// Connects a queue pair to one that the endpoint makes for it.
    pub(crate) fn connect_to_endpoint(
        &self,
        queue_pair: QueuePair<state::Init>,
        peer: u32,
        version: Version,
        pmtu: Pmtu,
        first_psn: u32,
    ) -> Result<QueuePair<ReadyToSend>> {
        self.connect_to_endpoint_with(queue_pair, peer, version, pmtu, first_psn, |_| ())
    }

    /// The same, with other options of the card than the usual ones.
    pub(crate) fn connect_to_endpoint_with(
        &self,
        queue_pair: QueuePair<state::Init>,
        peer: u32,
        version: Version,
        pmtu: Pmtu,
        first_psn: u32,
        change: impl FnOnce(&mut ConnectOptions),
    ) -> Result<QueuePair<ReadyToSend>> {
        let own = queue_pair.info(version)?;
        let setup = QueuePairSetup {
            pmtu,
            send_psn: Psn::wrapping(first_psn),
            receive_psn: Psn::wrapping(own.first_psn),
            min_rnr_timer: MIN_RNR_TIMER,
            send_completions: peer,
            receive_completions: peer,
            ..QueuePairSetup::new(peer, own.qp_number, path_to_card(version))
        };
        self.endpoint(|endpoint| endpoint.create(setup));
        self.connect_with(queue_pair, peer, version, pmtu, first_psn, change)
    }

    /// A receive of the card.
    pub(crate) fn receive_request(&mut self, wr_id: u64) -> ReceiveRequest {
        let mut piece = self.room.pop().expect("there is memory for all receives");
        piece.bytes_mut().fill(UNTOUCHED);
        ReceiveRequest::new(wr_id | RECEIVE_TAG).sge(piece)
    }

    /// Moves a message each way on the bystander, which must have no other completions. Returns the completions of other queue
    /// pairs.
    pub(crate) fn exchange(&mut self) -> Result<Vec<Done>> {
        self.messages += 1;
        let wr_id = self.messages;
        let payload: Vec<u8> = (0..29).map(|place| (wr_id * 31 + place) as u8).collect();
        let receive = self.receive_request(wr_id);
        // On a slow host, the card may send before the driver goes on.
        let sge = Sge { address: PEER_FIRST, key: PEER_KEY, length: 64 };
        self.endpoint(|endpoint| endpoint.post_receive(BYSTANDER, ReceiveWqe { wr_id, sges: vec![sge] }));
        let bystander = self.bystander.as_mut().context("the bystander is there")?;
        bystander.post_receive(receive)?;
        let request = SendRequest::send(wr_id).inline(&payload).signalled();
        bystander.post_send(request)?;
        let number = bystander.number();
        // The read returns after the doorbells.
        self.device.check()?;
        let work = SendWqe::new(wr_id, Operation::Send, Data::Inline(payload.clone()));
        self.endpoint(|endpoint| endpoint.post_send(BYSTANDER, work));
        let (mut others, mut mine, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        self.wait("a message of the bystander", |rig| {
            for done in rig.completions()? {
                let whose = if done.qp_number == number { &mut mine } else { &mut others };
                whose.push(done);
            }
            rig.endpoint(|endpoint| theirs.extend(std::iter::from_fn(|| endpoint.poll(BYSTANDER))));
            Ok((mine.len() >= 2 && theirs.len() >= 2).then_some(()))
        })?;
        mine.sort_by_key(|done| done.is_receive);
        let [sent, received] = &mine[..] else { anyhow::bail!("too much completes: {mine:?}") };
        ensure!(sent.status == CompletionStatus::Success && sent.wr_id == wr_id, "{sent:?}");
        let is_right = received.is_receive && received.message == payload;
        ensure!(received.status == CompletionStatus::Success && is_right, "{received:?}");
        let is_well = |done: &qp::Completion| done.wr_id == wr_id && done.status == CompletionStatus::Success;
        ensure!(theirs.len() == 2 && theirs.iter().all(is_well), "{theirs:?}");
        self.endpoint(|endpoint| ensure_same(&endpoint.memory().bytes[..payload.len()], &payload))?;
        Ok(others)
    }

    /// Ends the run: everything comes to rest, and the monitors are checked.
    pub(crate) fn finish(self) -> Result<()> {
        let Rig { world, tamper, interposer, device, domain, sends, receives, room, bystander, .. } = self;
        drop((bystander, room, sends, receives, domain, device, tamper, interposer));
        world.lock().expect("nobody has panicked").finish()?;
        Ok(())
    }
}

/// Fails if bytes differ.
pub(crate) fn ensure_same(found: &[u8], expected: &[u8]) -> Result<()> {
    let place = found.iter().zip(expected).position(|(found, expected)| found != expected);
    ensure!(found.len() == expected.len() && place.is_none(), "bytes differ from {place:?} on");
    Ok(())
}

/// Flag in the `wr_id` of receives, since a completion in error does not carry its operation.
pub(crate) const RECEIVE_TAG: u64 = 1 << 32;

/// A completion without its memory.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) qp_number: u32,
    pub(crate) status: CompletionStatus,
    pub(crate) opcode: rnic_layout::queue::completion::CompletionOpcode,
    pub(crate) wr_id: u64,
    pub(crate) is_receive: bool,
    pub(crate) immediate: Option<[u8; 4]>,
    pub(crate) length: u32,
    pub(crate) message: Vec<u8>,
}
