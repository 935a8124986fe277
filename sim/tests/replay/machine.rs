//! One card with its driver, and a station that replays captured frames.
use crate::support::card_model;
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, ConnectionInfo, Device, Function,
    Options, Path, ProtectionDomain, QueuePair, QueuePairOptions, RemoteRights, SendOptions,
};
use rnic_layout::limits::FRAME_BYTES_MAX;
use rnic_layout::opcode::{self, Operation};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::wire::{Extended, ExtendedRepr, PacketRepr, VlanTag};
use rnic_machine::function::{SharedWorld, SimulatedFunction};
use rnic_machine::host::HostOptions;
use rnic_machine::wire::{Frame, Station, WireOptions};
use rnic_machine::world::{CardOptions, Port, World};
use rnic_stimulus::captures::flow::Flow;
use rnic_stimulus::chance::{Delay, Seed};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// Calls of `idle`, of 100 ns each, without a frame after which the card counts as silent.
const QUIET: usize = 80;
/// Maximum of calls of `idle`.
const IDLE_MAX: usize = 4_000;

/// The station: sends given frames, and keeps what it receives.
#[derive(Default)]
struct Tape {
    waiting: VecDeque<Frame>,
    heard: Vec<Vec<u8>>,
}

impl Station for Tape {
    fn receive(&mut self, _now_ps: u64, frame: &Frame) {
        self.heard.push(frame.bytes.clone());
    }

    fn wakes_ps(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(0)
    }

    fn transmit(&mut self, _now_ps: u64) -> Option<Frame> {
        self.waiting.pop_front()
    }
}

/// The card in the place of one host of a flow, with one queue pair that is connected to the other host.
pub(crate) struct Machine {
    world: SharedWorld,
    function: Arc<SimulatedFunction>,
    station: usize,
    pub(crate) domain: ProtectionDomain,
    pub(crate) queue_pair: QueuePair<ReadyToSend>,
    completions: CompletionQueue,
    device: Device,
    /// First PSN that the card sends.
    pub(crate) first_psn: Psn,
    /// Number that is added to the PSNs of captured requests.
    pub(crate) psn_shift: u32,
    /// Tag of all frames; the captured ones have none.
    pub(crate) vlan: Option<VlanTag>,
    /// Smallest path MTU with which the captured packets are possible.
    pub(crate) pmtu: Pmtu,
}

/// Role of the card in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Requester.
    Requester,
    /// Responder.
    Responder,
}

/// Host of the card: ideal, standard or hostile, by the number of the flow's queue pair.
fn host(flow: &Flow) -> HostOptions {
    match flow.number % 3 {
        0 => HostOptions::IDEAL,
        1 => HostOptions::STANDARD,
        _ => HostOptions::hostile(&mut Seed(flow.number.into()).stream("host options")),
    }
}

impl Machine {
    pub(crate) fn new(width_bits: u32, flow: &Flow, role: Role, send: SendOptions) -> Result<Machine> {
        let first = &flow.crossings[0].packet;
        let asking = (first.ethernet.source, first.ip.source(), flow.peer.unwrap_or(flow.number));
        let answering = (first.ethernet.destination, first.ip.destination(), flow.number);
        let (own, peer) = match role {
            Role::Requester => (asking, answering),
            Role::Responder => (answering, asking),
        };
        let options = CardOptions { host: host(flow), ..CardOptions::standard(width_bits) };
        let mut world = World::new(flow.number.into());
        world.add_card(&card_model(width_bits)?, options)?;
        let station = world.add_station(Tape::default());
        let wire = WireOptions { delay: Delay::nanoseconds(20), ..options.wire() };
        world.connect(Port::Card(0), Port::Station(station), wire)?;
        world.leave_reset()?;
        let world = Arc::new(Mutex::new(world));
        let function = Arc::new(SimulatedFunction::new(Arc::clone(&world), 0));
        let opening = Options { addresses: vec![own.1], seed: Some(1), ..Options::new(own.0.0) };
        let device = Device::open(function.clone(), opening)?;
        let domain = device.create_protection_domain()?;
        let events = device.events();
        let completions = device.create_completion_queue(&events, &CompletionQueueOptions::default())?;
        // In half of the flows, the PSNs of both sides wrap around after the first request.
        let is_last = flow.number % 2 == 1;
        let last = Psn::ZERO.sub(1);
        let pair_options =
            QueuePairOptions { first_psn: is_last.then_some(last.value()), ..QueuePairOptions::default() };
        let queue_pair = domain.create_queue_pair(&completions, &completions, &pair_options)?;
        let queue_pair = queue_pair.initialize(RemoteRights::ALL).map_err(rnic_driver::Error::from)?;
        let first_psn = Psn::wrapping(queue_pair.info(0)?.first_psn);
        let most = flow.crossings.iter().map(|crossing| crossing.packet.payload.len()).max().unwrap_or(0);
        let pmtus = [Pmtu::Bytes256, Pmtu::Bytes512, Pmtu::Bytes1024, Pmtu::Bytes2048, Pmtu::Bytes4096];
        let pmtu = pmtus.into_iter().find(|pmtu| pmtu.bytes() as usize >= most).context("no such PMTU")?;
        let psn_shift = if is_last { last.distance(first.bth.psn) as u32 } else { 0 };
        let info = ConnectionInfo {
            qp_number: peer.2,
            first_psn: first.bth.psn.add(psn_shift).value(),
            gid: peer.1,
            mac: peer.0.0,
            path_mtu: pmtu,
        };
        let is_tagged = flow.number / 2 % 2 == 1;
        let (vlan, traffic_class) =
            if is_tagged { (Some(VlanTag::from_control(0x2005)), 0x48) } else { (None, 0) };
        let path = Path { vlan: vlan.map(VlanTag::control), traffic_class, ..Path::new(peer.1, peer.0.0) };
        let path = Some(path);
        let destination_read_atomic = Some(device.limits().queues.destination_read_atomic);
        let queue_pair = queue_pair.connect(
            &info,
            &ConnectOptions { path, send, destination_read_atomic, ..ConnectOptions::default() },
        )?;
        Ok(Machine {
            world,
            function,
            station,
            domain,
            queue_pair,
            completions,
            device,
            first_psn,
            psn_shift,
            vlan,
            pmtu,
        })
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("nobody has panicked")
    }

    /// Waits until the doorbells that were written have reached the card.
    pub(crate) fn confirm(&self) -> Result<()> {
        Ok(self.device.check()?)
    }

    /// Sends a frame to the card.
    pub(crate) fn send(&self, frame: Vec<u8>) {
        let mut world = self.world();
        let tape: &mut Tape = world.station(self.station);
        tape.waiting.push_back(Frame::new(frame));
    }

    /// Frames that the card has sent since the last call.
    fn heard(&self) -> Vec<Vec<u8>> {
        let mut world = self.world();
        let tape: &mut Tape = world.station(self.station);
        std::mem::take(&mut tape.heard)
    }

    /// Frames that the card sends until it is silent, `least` of them at least.
    pub(crate) fn listen(&self, least: usize) -> Result<Vec<Vec<u8>>> {
        // Doorbells are posted; the read returns after them.
        self.device.check()?;
        let (mut heard, mut quiet) = (Vec::new(), 0);
        for _ in 0..IDLE_MAX {
            self.function.idle();
            let news = self.heard();
            let is_quiet = news.is_empty() && heard.len() >= least;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            heard.extend(news);
            if quiet == QUIET {
                self.world().check()?;
                return Ok(heard);
            }
        }
        anyhow::bail!("the card sends {} frames, of {least} at least, and does not come to rest", heard.len())
    }

    /// Waits for `least` completions, and polls all that there are when the card has been silent.
    pub(crate) fn completions(&self, least: usize) -> Result<Vec<Completion>> {
        let mut done = Vec::new();
        for _ in 0..IDLE_MAX {
            done.extend(self.completions.poll_one()?);
            if done.len() >= least {
                break;
            }
            self.function.idle();
        }
        let heard = self.listen(0)?;
        ensure!(heard.is_empty(), "with the last completion the card says {heard:x?}");
        while let Some(completion) = self.completions.poll_one()? {
            done.push(completion);
        }
        Ok(done)
    }

    /// Ends the run: checks for unexpected events and violations.
    pub(crate) fn finish(self) -> Result<()> {
        let event = self.device.events().poll()?;
        ensure!(event.is_none(), "{event:?}");
        let Machine { world, function, domain, queue_pair, completions, device, .. } = self;
        drop((queue_pair, completions, domain, device, function));
        world.lock().expect("nobody has panicked").finish()?;
        Ok(())
    }
}

/// A frame with the QPN, key, address and PSN of the card.
pub(crate) fn retarget(
    packet: &PacketRepr,
    destination_qp: u32,
    psn: Psn,
    change: impl FnMut(ExtendedRepr) -> ExtendedRepr,
) -> Result<Vec<u8>> {
    let mut packet = *packet;
    packet.bth.destination_qp = destination_qp;
    packet.bth.psn = psn;
    let headers: Vec<ExtendedRepr> = packet.extended_headers().map(change).collect();
    packet.extended = Extended::from_headers(&headers)?;
    let mut frame = vec![0; FRAME_BYTES_MAX];
    let length = packet.emit(&mut frame)?;
    frame.truncate(length);
    Ok(frame)
}

/// Operation of a packet.
pub(crate) fn operation(packet: &PacketRepr) -> Result<Operation> {
    Ok(opcode::lookup(packet.bth.opcode).context("no packet of the reliable service")?.operation)
}
