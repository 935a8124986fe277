//! Two cards, each with its driver. They are accessed through [`Function`] only.
//!
//! Time advances only in [`Function::idle`] and in register accesses. A completion queue is armed at random, and must then
//! raise its event when it has a completion, and not before.
use super::arena::Arena;
use super::model::shared_index;
use super::plan::{
    Kind, Message, Mistake, Plan, Receive, Retries, Source, TargetMemory, WINDOW_BYTES, Wrapping, background,
    window_background,
};
use super::run::{Machine, Outcome, Post};
use super::tamper::Tamper;
use anyhow::{Context, Result, bail, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::{Error as Failed, ReadyToSend};
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, ConnectionInfo, Device, Function,
    Options, Path, ProtectionDomain, QueuePair, QueuePairOptions, ReceiveRequest, Refusal, Region,
    RemoteMemory, RemoteRights, SendOptions, SendRequest, SharedReceiveQueue, SharedReceiveQueueOptions,
    SharedRegion,
};
use rnic_layout::doorbell::Arm;
use rnic_layout::path::Gid;
use rnic_layout::queue::completion::CompletionOpcode;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::queue::send::Sge;
use rnic_stimulus::chance::Seed;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Completion queues of each kind on each host, which queue pairs share.
const COMPLETION_QUEUES: usize = 2;
/// Calls of `idle` within which an event must follow its completion.
const EVENT_IDLE_MAX: u32 = 2_000;
/// Probability that a completion queue is armed when it is polled.
const ARM_SHARE: f64 = 0.05;
/// Remote rights to a window.
const OPEN: RemoteRights = RemoteRights::ALL;
/// log2 of the WQEs of send and receive queues.
const QUEUE_LOG2: u32 = 6;
/// Memory for receives of a shared queue, in bytes.
const SHARED_BYTES: usize = 160_000;
/// Messages of the length of a window for which each queue has memory.
const LONG_MESSAGES: usize = 2;
/// An unassigned opcode of send WQEs.
const NO_OPCODE: u8 = 0x7e;
/// Offset of the last byte of the length in the first slot of a send WQE.
const SEND_LENGTH_END: usize = 31;

/// A completion queue, and whether an event is due.
struct Watched {
    queue: CompletionQueue,
    is_armed: bool,
    /// Completions since it was armed.
    completions: u64,
    /// Calls of `idle` since the first of them.
    idle: u32,
}

impl Watched {
    /// Polls all completions.
    fn poll(&mut self, random: &mut ChaCha8Rng, completions: &mut Vec<Completion>) -> Result<()> {
        let number = self.queue.number();
        // The event is read first, because its completion must be visible by then.
        let is_signalled = self.is_armed && self.queue.is_signalled()?;
        let count = self.queue.poll(completions, usize::MAX)?;
        self.completions += count as u64;
        if is_signalled {
            ensure!(self.completions > 0, "completion queue {number} has an event and no completion");
            self.is_armed = false;
        } else if self.is_armed && self.completions > 0 {
            self.idle += 1;
            ensure!(self.idle <= EVENT_IDLE_MAX, "completion queue {number} has completions and no event");
        }
        if !self.is_armed && random.random_bool(ARM_SHARE) {
            self.queue.arm(Arm::Next);
            (self.is_armed, self.completions, self.idle) = (true, 0, 0);
        }
        Ok(())
    }
}

/// One end of a pair.
struct End {
    queue_pair: Option<QueuePair<ReadyToSend>>,
    /// Kept, so that its QPN is not reused and outstanding work completes.
    failed: Option<QueuePair<Failed>>,
    pmtu: usize,
    sends: Arena,
    receives: Arena,
    window: SharedRegion,
    /// Memory whose keys will be invalidated, if the plan does so: by the peer, and by its owner.
    ending: [Option<SharedRegion>; 2],
}

impl End {
    /// Memory whose key the peer or the owner invalidates; the window if the plan invalidates none, as such requests are
    /// flushed.
    fn ending(&self, by_owner: bool) -> RemoteMemory {
        self.ending[usize::from(by_owner)].as_ref().unwrap_or(&self.window).remote()
    }
}

struct Host {
    tamper: Arc<Tamper>,
    device: Device,
    queues: Vec<Watched>,
    ends: Vec<End>,
    shared: SharedReceiveQueue,
    shared_room: Arena,
    /// Pairs by QPN.
    pairs: BTreeMap<u32, usize>,
    no_right: SharedRegion,
    other_domain: SharedRegion,
    events: VecDeque<(usize, AsyncEvent)>,
    _domains: [ProtectionDomain; 2],
}

/// Two cards with connected queue pairs.
pub struct Cards {
    hosts: [Host; 2],
    random: ChaCha8Rng,
}

/// Ethernet address of a host's port.
pub fn mac(side: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, side as u8 + 1]
}

/// Options with which a host opens its card: one IPv4 and one IPv6 address.
pub fn options(seed: Seed, side: usize) -> Options {
    let ipv4 = Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, side as u8 + 1));
    let addresses = vec![ipv4, Gid::from_mac(mac(side))];
    let seed = seed.stream(&format!("cards/host{side}")).random();
    Options { addresses, seed: Some(seed), ..Options::new(mac(side)) }
}

impl Cards {
    /// Opens both cards and connects their queue pairs as the plan says.
    ///
    /// # Errors
    /// If a card cannot be opened, or refuses a command.
    pub fn open(plan: &Plan, functions: [Arc<dyn Function>; 2]) -> Result<Cards> {
        let tampers = functions.map(|function| Arc::new(Tamper::new(function)));
        let open = |side: usize| {
            let function: Arc<dyn Function> = tampers[side].clone();
            Device::open(function, options(plan.seed, side)).with_context(|| format!("card {side}"))
        };
        let devices = [open(0)?, open(1)?];
        Cards::connect(plan, devices, tampers)
    }

    /// Connects queue pairs of cards that are open.
    ///
    /// # Errors
    /// If a card refuses a command.
    pub fn connect(plan: &Plan, devices: [Device; 2], tampers: [Arc<Tamper>; 2]) -> Result<Cards> {
        let random = plan.seed.stream("cards");
        let [first, second] = devices;
        let [first_tamper, second_tamper] = tampers;
        let mut hosts = [Host::new(first, first_tamper)?, Host::new(second, second_tamper)?];
        for (index, pair) in plan.pairs.iter().enumerate() {
            let mut made = Vec::new();
            for (side, host) in hosts.iter_mut().enumerate() {
                let rights = if pair.lets_write[side] { OPEN } else { RemoteRights::NONE };
                let domain = &host._domains[0];
                let queues = &host.queues;
                let queue = |kind: usize| &queues[kind * COMPLETION_QUEUES + index % COMPLETION_QUEUES].queue;
                let options = QueuePairOptions {
                    send_slots_log2: QUEUE_LOG2,
                    receive_wqes_log2: QUEUE_LOG2,
                    signal_all: false,
                    first_psn: pair.first_psns[side],
                };
                let queue_pair = if pair.shares[side] {
                    let shared = &host.shared;
                    domain.create_queue_pair_with_srq(queue(0), queue(1), shared, &options)?
                } else {
                    domain.create_queue_pair(queue(0), queue(1), &options)?
                };
                let queue_pair = queue_pair.initialize(rights);
                let queue_pair = queue_pair.map_err(rnic_driver::Error::from)?;
                let source = usize::from(!pair.wrapping.is_ipv4);
                let info = ConnectionInfo { path_mtu: pair.pmtu, ..queue_pair.info(source)? };
                made.push((queue_pair, info));
            }
            let infos = [made[0].1, made[1].1];
            for (side, (queue_pair, _)) in made.into_iter().enumerate() {
                let host = &mut hosts[side];
                let peer = infos[1 - side];
                let reads = [pair.reads[side], pair.reads[1 - side]];
                let options = connect_options(&pair.wrapping, plan.retries, &peer, reads);
                host.pairs.insert(queue_pair.number(), index);
                let queue_pair = queue_pair.connect(&peer, &options)?;
                let ends = |side: usize, kind| pair.lanes[side].sends.iter().any(|send| send.kind == kind);
                let ending = [ends(1 - side, Kind::SendInvalidate), ends(side, Kind::LocalInvalidate)];
                let end = host.end(queue_pair, pair.pmtu.bytes() as usize, plan.window_bytes, ending)?;
                host.ends.push(end);
            }
        }
        Ok(Cards { hosts, random })
    }

    /// Drops the software of both hosts as if the cards were pulled out: no object is destroyed on the card, and no call may
    /// hang.
    pub fn pull_out(self) {
        self.hosts.iter().for_each(|host| host.tamper.pull_out());
    }

    /// Returns the device of a host.
    pub fn device(&self, side: usize) -> &Device {
        &self.hosts[side].device
    }
}

/// Gives the options of one end; `reads` are the READs and atomics of its own in flight, and of the peer.
fn connect_options(
    wrapping: &Wrapping,
    retries: Retries,
    peer: &ConnectionInfo,
    reads: [u8; 2],
) -> ConnectOptions {
    let path = Path {
        source_index: u8::from(!wrapping.is_ipv4),
        vlan: wrapping.vlan,
        traffic_class: wrapping.traffic_class,
        hop_limit: wrapping.hop_limit,
        flow_label: wrapping.flow_label,
        ..Path::new(peer.gid, peer.mac)
    };
    let Retries { timeout, retry_count, rnr_retry } = retries;
    let send = SendOptions { timeout, retry_count, rnr_retry, read_atomic: Some(reads[0]) };
    let destination_read_atomic = Some(reads[1]);
    ConnectOptions { path: Some(path), send, destination_read_atomic, ..ConnectOptions::default() }
}

impl Host {
    fn new(device: Device, tamper: Arc<Tamper>) -> Result<Host> {
        let options = CompletionQueueOptions { entries_log2: 9, ..CompletionQueueOptions::default() };
        let events = device.events();
        let queue = |_| -> Result<Watched> {
            let queue = device.create_completion_queue(&events, &options)?;
            Ok(Watched { queue, is_armed: false, completions: 0, idle: 0 })
        };
        let queues = (0..2 * COMPLETION_QUEUES).map(queue).collect::<Result<_>>()?;
        let domains = [device.create_protection_domain()?, device.create_protection_domain()?];
        Ok(Host {
            tamper,
            queues,
            ends: Vec::new(),
            shared: domains[0].create_shared_receive_queue(&SharedReceiveQueueOptions::default())?,
            shared_room: Arena::new(domains[0].allocate(SHARED_BYTES)?),
            pairs: BTreeMap::new(),
            no_right: domains[0].share(WINDOW_BYTES, RemoteRights::NONE)?,
            other_domain: domains[1].share(WINDOW_BYTES, OPEN)?,
            events: VecDeque::new(),
            _domains: domains,
            device,
        })
    }

    /// Allocates the memory of a queue pair: enough for full queues of messages of one packet, and for some long messages.
    fn end(
        &self,
        queue_pair: QueuePair<ReadyToSend>,
        pmtu: usize,
        window_bytes: usize,
        ending: [bool; 2],
    ) -> Result<End> {
        let domain = &self._domains[0];
        let bytes = ((pmtu + 4 * super::plan::LANES) << QUEUE_LOG2) + LONG_MESSAGES * window_bytes;
        let window = domain.share(window_bytes, OPEN)?;
        let background: Vec<u8> = (0..window_bytes).map(window_background).collect();
        window.write(0, &background)?;
        let [by_peer, by_owner] =
            ending.map(|ends| ends.then(|| domain.share_invalidatable(WINDOW_BYTES, OPEN)).transpose());
        // Memory to send from comes last, so that an access beyond it is also beyond the region.
        let (receives, sends) = domain.allocate(2 * bytes)?.split_at(bytes).expect("it is longer than that");
        Ok(End {
            queue_pair: Some(queue_pair),
            failed: None,
            pmtu,
            sends: Arena::new(sends),
            receives: Arena::new(receives),
            window,
            ending: [by_peer?, by_owner?],
        })
    }

    /// Converts a completion of the driver, and frees the memory of its request.
    fn outcome(&mut self, completion: Completion) -> Result<Outcome> {
        let pair = *self.pairs.get(&completion.qp_number).context("a completion of an unknown queue pair")?;
        let is_receive = completion.is_receive();
        let end = &mut self.ends[pair];
        let mut contents = Vec::new();
        let Completion { wr_id, status, opcode, length, immediate, solicited, signalled, sg_list, .. } =
            completion;
        if let Some(key) = completion.invalidated {
            ensure!(key == end.ending(false).key, "pair {pair}: key {key:#x} is reported as invalidated");
        }
        for piece in sg_list {
            use CompletionOpcode::{CompareSwap, FetchAdd, Read};
            if is_receive || matches!(opcode, Read | CompareSwap | FetchAdd) {
                contents.push(piece.bytes().to_vec());
            }
            let arena = match is_receive {
                true if shared_index(wr_id).is_some() => &mut self.shared_room,
                true => &mut end.receives,
                false => &mut end.sends,
            };
            arena.give(piece);
        }
        Ok(Outcome {
            pair,
            is_receive,
            wr_id,
            status,
            opcode,
            length,
            immediate,
            is_solicited: solicited,
            ends_key: completion.invalidated.is_some(),
            is_signalled: signalled,
            contents,
        })
    }

    /// Corrupts the request that holds an SGE before its doorbell. Its memory is in a region that ends at `end`.
    fn spoil(&self, sge: Sge, mistake: Mistake, end: u64, pmtu: usize) {
        self.tamper.spoil(sge, move |slot, place| match mistake {
            Mistake::LocalKey | Mistake::LastKey | Mistake::ReceiveKey => slot[place + 8] ^= 0x40,
            Mistake::LocalRange => slot[place + 7] ^= 0x40,
            // Long enough for a packet, and one byte too short for the message.
            Mistake::LocalEnd => {
                let inside = u64::from(sge.length - 1).min(pmtu as u64 + u64::from(sge.length) % 3);
                slot[place..place + 8].copy_from_slice(&(end - inside).to_le_bytes());
            }
            // Lengths of the SGE and of the message.
            Mistake::TooLong => {
                slot[place + 15] |= 0x80;
                slot[SEND_LENGTH_END] |= 0x80;
            }
            _ => slot[0] = NO_OPCODE,
        });
    }

    /// Checks that the first `count` corruptions have met a request.
    fn check_spoiled(&self, count: usize) -> Result<()> {
        let spoiled = self.tamper.spoiled();
        ensure!(spoiled.iter().take(count).all(|&slots| slots > 0), "a request to corrupt is in no ring");
        Ok(())
    }
}

fn sge(region: &Region) -> Sge {
    Sge { address: region.address(), local_key: region.key(), length: region.len() as u32 }
}

/// Makes the request of a message in memory.
fn request(
    wr_id: u64,
    message: &Message,
    payload: &[u8],
    pieces: Vec<Region>,
    remote: RemoteMemory,
    compare: u64,
) -> SendRequest {
    let mut request = match message.kind {
        Kind::Send => SendRequest::send(wr_id),
        Kind::SendImmediate => SendRequest::send_immediate(wr_id, message.immediate),
        Kind::Write => SendRequest::write(wr_id, remote),
        Kind::WriteImmediate => SendRequest::write_immediate(wr_id, remote, message.immediate),
        Kind::Read => SendRequest::read(wr_id, remote),
        Kind::CompareSwap => SendRequest::compare_swap(wr_id, remote, compare, message.operand),
        Kind::FetchAdd => SendRequest::fetch_add(wr_id, remote, message.operand),
        Kind::SendInvalidate => SendRequest::send_invalidate(wr_id, remote.key),
        Kind::LocalInvalidate => SendRequest::local_invalidate(wr_id, remote.key),
    };
    if let Source::Inline(_) = message.source {
        request = request.inline(payload);
    }
    let mut rest = payload;
    for mut piece in pieces {
        let (here, tail) = rest.split_at(piece.len());
        piece.bytes_mut().copy_from_slice(here);
        request = request.sge(piece);
        rest = tail;
    }
    if message.signalled {
        request = request.signalled();
    }
    if message.solicited {
        request = request.solicited();
    }
    if message.fence {
        request = request.fence();
    }
    request
}

/// Makes a receive, and fills its memory with the background pattern.
fn receive_request(wr_id: u64, pieces: Vec<Region>) -> ReceiveRequest {
    let mut request = ReceiveRequest::new(wr_id);
    for mut piece in pieces {
        for (index, byte) in piece.bytes_mut().iter_mut().enumerate() {
            *byte = background(wr_id, index);
        }
        request.sg_list.push(piece);
    }
    request
}

/// Returns whether there will be room later.
fn is_full(reason: Refusal) -> bool {
    matches!(reason, Refusal::QueueFull { .. } | Refusal::CompletionQueueFull { .. })
}

impl Machine for Cards {
    fn post_sends(&mut self, side: usize, pair: usize, posts: &[Post]) -> Result<usize> {
        let memories = [false, true].map(|by_owner| {
            let host = &self.hosts[if by_owner { side } else { 1 - side }];
            let end = &host.ends[pair];
            (end.window.remote(), host.no_right.remote(), host.other_domain.remote(), end.ending(by_owner))
        });
        let host = &mut self.hosts[side];
        let end = &mut host.ends[pair];
        let mut requests = Vec::new();
        let mut spoiled = Vec::new();
        for Post { wr_id, message, payload, compare } in posts {
            let taken = match &message.source {
                Source::Inline(_) => Some(Vec::new()),
                Source::Pieces(pieces) => end.sends.take(pieces),
            };
            let Some(pieces) = taken else { break };
            let (window, no_right, other, ending) =
                memories[usize::from(message.kind == Kind::LocalInvalidate)];
            let memory = match message.target.memory {
                TargetMemory::Window => window,
                TargetMemory::NoRight => no_right,
                TargetMemory::OtherDomain => other,
                TargetMemory::Ending => ending,
            };
            let length = payload.len();
            let remote = RemoteMemory {
                address: message.target.address(memory.address, length),
                key: memory.key ^ message.target.key_change,
                bytes: length as u64,
            };
            use Mistake::{LastKey, LocalEnd, LocalKey, LocalRange, Opcode, TooLong};
            let spoiling = [LocalKey, LastKey, LocalRange, LocalEnd, TooLong, Opcode];
            if let Some(mistake) = message.mistake.filter(|mistake| spoiling.contains(mistake)) {
                let place = if mistake == LastKey { pieces.len() - 1 } else { 0 };
                spoiled.push((requests.len(), sge(&pieces[place]), mistake));
            }
            requests.push(request(*wr_id, message, payload, pieces, remote, *compare));
        }
        let count = requests.len();
        let (region_end, pmtu) = (end.sends.end(), end.pmtu);
        let mut places = Vec::new();
        for (place, sge, mistake) in spoiled {
            host.spoil(sge, mistake, region_end, pmtu);
            places.push(place);
        }
        let end = &mut host.ends[pair];
        let queue_pair = end.queue_pair.as_mut().context("the queue pair was failed")?;
        let result = queue_pair.post_sends(&mut requests);
        let posted = count - requests.len();
        for piece in requests.into_iter().flat_map(|request| request.sg_list) {
            end.sends.give(piece);
        }
        match result {
            Err(reason) if !is_full(reason) => bail!("message {posted} of {count}: {reason}"),
            _ => {}
        }
        host.check_spoiled(places.into_iter().filter(|&place| place < posted).count())?;
        Ok(posted)
    }

    fn post_receive(&mut self, side: usize, pair: usize, wr_id: u64, receive: &Receive) -> Result<bool> {
        let host = &mut self.hosts[side];
        let end = &mut host.ends[pair];
        let Some(pieces) = end.receives.take(&receive.pieces) else { return Ok(false) };
        let spoiled = receive.is_mistaken.then(|| (sge(&pieces[0]), end.receives.end(), end.pmtu));
        let request = receive_request(wr_id, pieces);
        if let Some((sge, region_end, pmtu)) = spoiled {
            host.spoil(sge, Mistake::ReceiveKey, region_end, pmtu);
        }
        let end = &mut host.ends[pair];
        let queue_pair = end.queue_pair.as_mut().context("the queue pair was failed")?;
        if let Err(refused) = queue_pair.post_receive(request) {
            ensure!(is_full(refused.reason), "a receive: {}", refused.reason);
            refused.request.sg_list.into_iter().for_each(|piece| end.receives.give(piece));
            host.check_spoiled(0)?;
            return Ok(false);
        }
        host.check_spoiled(usize::from(spoiled.is_some()))?;
        Ok(true)
    }

    fn post_shared_receive(&mut self, side: usize, wr_id: u64, receive: &Receive) -> Result<bool> {
        let host = &mut self.hosts[side];
        let Some(pieces) = host.shared_room.take(&receive.pieces) else { return Ok(false) };
        if let Err(refused) = host.shared.post_receive(receive_request(wr_id, pieces)) {
            ensure!(is_full(refused.reason), "a shared receive: {}", refused.reason);
            refused.request.sg_list.into_iter().for_each(|piece| host.shared_room.give(piece));
            return Ok(false);
        }
        Ok(true)
    }

    fn confirm(&mut self, side: usize) -> Result<()> {
        // The read returns after all doorbells that were written before it.
        Ok(self.hosts[side].device.check()?)
    }

    fn idle(&mut self) -> Result<()> {
        let [first, second] = self.hosts.each_ref().map(|host| &host.tamper);
        first.idle();
        // Both functions may share one world, in which time has passed for both.
        if second.now() < first.now() {
            second.idle();
        }
        Ok(())
    }

    fn poll(&mut self, side: usize, outcomes: &mut Vec<Outcome>) -> Result<()> {
        let host = &mut self.hosts[side];
        let mut completions = Vec::new();
        for watched in &mut host.queues {
            watched.poll(&mut self.random, &mut completions)?;
        }
        for completion in completions {
            outcomes.push(host.outcome(completion)?);
        }
        Ok(())
    }

    fn fail(&mut self, side: usize, pair: usize) -> Result<()> {
        let end = &mut self.hosts[side].ends[pair];
        let queue_pair = end.queue_pair.take().context("the queue pair was failed before")?;
        end.failed = Some(queue_pair.fail().map_err(rnic_driver::Error::from)?);
        Ok(())
    }

    fn window(&mut self, side: usize, pair: usize) -> Result<Vec<u8>> {
        let window = &self.hosts[side].ends[pair].window;
        let mut bytes = vec![0; window.len()];
        window.read(0, &mut bytes)?;
        Ok(bytes)
    }

    fn event(&mut self, side: usize) -> Result<Option<(usize, AsyncEvent)>> {
        while let Some(event) = self.hosts[side].device.events().poll()? {
            // Two hosts may share a card, and thereby its events.
            let owner = self.hosts.iter_mut().find(|host| host.pairs.contains_key(&event.object_number));
            let owner = owner.with_context(|| format!("{event:?} is of no queue pair"))?;
            let pair = owner.pairs[&event.object_number];
            owner.events.push_back((pair, event.code));
        }
        Ok(self.hosts[side].events.pop_front())
    }

    fn check_untouched(&mut self) -> Result<()> {
        for (side, host) in self.hosts.iter().enumerate() {
            for (pair, end) in host.ends.iter().enumerate() {
                ensure!(
                    end.sends.is_untouched(),
                    "host {side}, pair {pair}: free memory for messages was written"
                );
                ensure!(
                    end.receives.is_untouched(),
                    "host {side}, pair {pair}: free memory for receives was written"
                );
            }
            ensure!(
                host.shared_room.is_untouched(),
                "host {side}: free memory for shared receives was written"
            );
            let ending = host.ends.iter().flat_map(|end| end.ending.iter().flatten());
            for region in [&host.no_right, &host.other_domain].into_iter().chain(ending) {
                let mut bytes = vec![0; WINDOW_BYTES];
                region.read(0, &mut bytes)?;
                ensure!(bytes.iter().all(|&byte| byte == 0), "host {side}: {region:?} was written");
            }
        }
        Ok(())
    }
}
