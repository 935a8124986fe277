//! Load generator: queue pairs on both ends of a wire, whose windows are kept full until the measurement is complete.
use super::{Case, Conditions, Row, lock, wire};
use anyhow::{Context, Result, bail, ensure};
use rnic_driver::state::{Init, ReadyToSend};
use rnic_driver::{
    AddressHandle, Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, ConnectionInfo,
    Device, Function, Path, ProtectionDomain, QueuePair, QueuePairOptions, ReceiveOptions, ReceiveRequest,
    Refusal, Region, RemoteMemory, RemoteRights, SendOptions, SendRequest, SharedRegion,
};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::registers::counter;
use rnic_layout::wire::DropReason;
use rnic_machine::function::SharedWorld;
use rnic_machine::host::HostOptions;
use rnic_machine::wire::{Fate, Frame};
use rnic_machine::world::{CardOptions, Domain};
use rnic_stimulus::chance::Seed;
use rnic_workloads::cards;
use rnic_workloads::plan::Kind;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A card as the driver sees it.
pub(super) type Card = Arc<dyn Function>;

/// One of this many requests of a queue pair is signalled, if its window is large enough.
const SIGNAL_EVERY: usize = 32;
/// Maximum of messages in flight of a queue pair, and minimum of all queue pairs together.
const WINDOW_MAX: usize = 64;
const WINDOW_MIN: usize = 512;
/// Maximum of messages in flight of all queue pairs, which is what the card can track.
const WINDOW_ALL_MAX: usize = 8192;
/// Below this many messages in flight, a loss is not caused by their number.
const UNDER_WAY_MIN: usize = 64;
/// Time that the bytes in flight of all queue pairs would take on the wire: ten times the time of a message on the wire, its
/// placement, and its acknowledgement.
const WINDOW_SECONDS: f64 = 60e-6;
/// log2 of the slots of the smallest ring.
const RING_LOG2_MIN: u32 = 6;
/// Gap between buffers, and offset of the first one, so that none is aligned.
const GAP_BYTES: usize = 41;
/// Distance between the cells of atomics.
const CELL_BYTES: usize = 64;
/// Minimum length of a measurement in core clock cycles, if the wire is saturated.
const CYCLES: usize = 40_000;
/// Share of these cycles before the measurement begins.
const WARM_UP: f64 = 0.25;
/// The same for large windows, where the first messages are sent faster than the later ones.
const WARM_UP_MAX: f64 = 0.75;
/// Time between the posting of receives and the first message: 100 us.
const SETTLING_PS: u64 = 100_000_000;
/// Calls of `idle` without a frame or a completion after which a run has stalled.
const IDLE_MAX: usize = 4_000;

/// Outcome of a run.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// A result.
    Measured(Box<Row>),
    /// The receive buffer overflowed, and nothing is sent again.
    Lost {
        /// Description of the loss.
        reason: String,
    },
    /// The cards have too few queue pairs.
    Impossible {
        /// How many they have.
        reason: String,
    },
}

/// Maximum of messages in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Per queue pair; a power of two.
    pub(super) each: usize,
    /// Of all queue pairs. If it is less than the sum of their windows, they take turns.
    pub(super) all: usize,
}

/// Window of the first attempt, at least two for each queue pair.
pub(super) fn window(case: &Case, options: &CardOptions) -> Window {
    let all = (WINDOW_MAX * case.queue_pairs).clamp(WINDOW_MIN, WINDOW_ALL_MAX);
    let bytes = WINDOW_SECONDS * (options.bits_per_second / 8) as f64;
    let by_bytes = bytes as usize / case.bytes.max(1);
    let each = all.min(by_bytes) / case.queue_pairs;
    let each = 1 << each.max(2).ilog2();
    Window { each, all: each * case.queue_pairs }
}

/// Window after a loss: half of the previous one.
pub(super) fn smaller(window: Window) -> Option<Window> {
    let all = window.all / 2;
    (all >= UNDER_WAY_MIN).then(|| Window { each: window.each.min(all), all })
}

/// One queue pair on each end, with buffers that are not posted.
struct Pair {
    sender: QueuePair<ReadyToSend>,
    receiver: QueuePair<ReadyToSend>,
    sources: Vec<Region>,
    sinks: Vec<Region>,
    /// Number of the pair, from 0.
    place: usize,
    /// Offset of its remote buffer in each of the targets.
    target: usize,
    /// Messages posted.
    posted: usize,
    /// Receives posted.
    receives: usize,
}

impl Pair {
    /// Number of the target, of so many, that a message uses. Atomics use one cell.
    fn target_of(&self, message: usize, targets: usize, kind: Kind) -> usize {
        if kind.is_atomic() { 0 } else { (self.place + message) % targets }
    }

    /// Posts receives up to number `end`, as far as there is room, in multiples of `batch`.
    fn post_receives(&mut self, end: usize, batch: usize) -> Result<()> {
        let room = (end - self.receives).min(self.sinks.len()) / batch * batch;
        let receives = self.sinks.drain(..room);
        let mut receives: Vec<_> = receives.map(|sink| ReceiveRequest::new(0).sge(sink)).collect();
        if receives.is_empty() {
            return Ok(());
        }
        let result = self.receiver.post_receives(&mut receives);
        self.receives += room - receives.len();
        let back = receives.into_iter().flat_map(|request| request.sg_list);
        self.sinks.splice(0..0, back.collect::<Vec<_>>());
        refused(result)
    }
}

/// Splits a buffer off the front of a region, after a gap.
fn buffer(rest: &mut Option<Region>, bytes: usize) -> Result<Region> {
    let cut = |region: Region, at: usize| region.split_at(at).ok().context("memory is short");
    let (_, behind) = cut(rest.take().context("memory is short")?, GAP_BYTES)?;
    let (buffer, behind) = cut(behind, bytes)?;
    *rest = Some(behind);
    Ok(buffer)
}

/// Some buffers of a length, which lie in turn in each of the regions that are made for them.
fn buffers(domain: &ProtectionDomain, bytes: usize, count: usize, regions: usize) -> Result<Vec<Region>> {
    let share = (bytes + GAP_BYTES) * count.div_ceil(regions) + 1;
    let mut rests: Vec<_> =
        (0..regions).map(|_| domain.allocate(share).map(Some)).collect::<Result<_, _>>()?;
    (0..count).map(|index| buffer(&mut rests[index % regions], bytes)).collect()
}

/// Remote rights of both sides.
const RIGHTS: RemoteRights = RemoteRights::ALL;

/// Counts at a point in time.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Frames sent by the card with the payload that carry messages.
    frames: u64,
    /// Frames sent by the other card that do not: responses, or requests of READs and atomics.
    frames_back: u64,
    /// Frames sent by the other card that do, if both directions are loaded.
    frames_against: u64,
    /// Time at which the last frame of the card with the payload began.
    time_ps: u64,
}

/// Length of a run.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Frames before the measurement, and until its end.
    from: u64,
    to: u64,
    /// Messages of each queue pair.
    messages: usize,
}

impl Extent {
    fn new(case: &Case, options: &CardOptions, window: Window, signal_every: usize) -> Extent {
        let frames = case.frames();
        let bytes_per_cycle = (options.bits_per_second / 8) as f64 / options.core.hertz as f64;
        let cycles_per_frame = frames.wire_bytes as f64 / frames.count as f64 / bytes_per_cycle;
        let frames_of = |cycles: f64| (cycles / cycles_per_frame).ceil() as usize;
        // Whole messages, at least one of each queue pair, so that all of them have the same weight.
        let round = frames.count * case.queue_pairs;
        let measured = frames_of(CYCLES as f64).next_multiple_of(round);
        let share = |of_all: f64| frames_of(CYCLES as f64 * of_all);
        let warm_up = window.all.clamp(share(WARM_UP), share(WARM_UP_MAX));
        // With a window of two long messages, one is enough to continue.
        let behind = if window.each <= 2 { 1 } else { window.each };
        let all = (warm_up + measured).div_ceil(round) + behind;
        let messages = all.next_multiple_of(signal_every);
        Extent { from: warm_up as u64, to: (warm_up + measured) as u64, messages }
    }
}

/// Runs one case with up to `window` messages of each queue pair in flight.
///
/// # Errors
/// If a message fails for another reason than a loss, the run stalls, or a monitor sees a violation.
pub(super) fn measure(
    world: &SharedWorld,
    functions: [Card; 2],
    options: &CardOptions,
    conditions: &Conditions,
    case: &Case,
    window: Window,
    seed: u64,
) -> Result<Outcome> {
    let clock = functions[0].clone();
    let open = |function: Card, side: usize| Device::open(function, cards::options(Seed(seed), side));
    let [first, second] = functions;
    let devices = [open(first, 0)?, open(second, 1)?];
    let host = |options: HostOptions| (0..2).for_each(|card| lock(world).host_mut(card).set_options(options));
    // The measurement begins after all queue pairs are connected, so the host need not be slow until then.
    host(HostOptions::IDEAL);
    let most = 1 << devices[0].limits().tables.queue_pairs_log2;
    let wanted = case.queue_pairs << usize::from(conditions.both_ways);
    if wanted > most {
        return Ok(Outcome::Impossible { reason: format!("a card has {most} queue pairs, not {wanted}") });
    }
    let regions = conditions.regions as usize;
    // What was sent again would count in the figures.
    let send = SendOptions { retry_count: 0, ..SendOptions::default() };
    let mut loads = vec![Load::new([&devices[0], &devices[1]], case, window, regions, send)?];
    if conditions.both_ways {
        loads.push(Load::new([&devices[1], &devices[0]], case, window, regions, send)?);
    }
    host(options.host);
    let signal_every = loads[0].signal_every;
    let extent = Extent::new(case, options, window, signal_every);
    // Receives are posted before the first message is.
    for pair in loads.iter_mut().flat_map(|load| &mut load.pairs) {
        pair.post_receives(extent.messages, signal_every)?;
    }
    lock(world).run_for(SETTLING_PS)?;
    let carrying = [0, 1].map(|direction| count_carrying(world, direction, case.kind));
    let seen = || {
        let directions = lock(world).wire_counts(0);
        let (there, back) = (case.source(), 1 - case.source());
        let carrying = [0, 1].map(|direction: usize| carrying[direction].load(Ordering::Relaxed));
        Seen {
            frames: carrying[there],
            frames_back: directions[back].sent - carrying[back],
            frames_against: carrying[back],
            time_ps: directions[there].last_sent_ps,
        }
    };
    let (mut from, mut to) = (None, None);
    let mut idle = 0;
    // Completions whose time has passed.
    let mut reported = 0;
    let lost = loop {
        let before = progress(&loads);
        loads.iter_mut().try_for_each(|load| load.post(extent.messages))?;
        let (posted, polled) = progress(&loads);
        let software_ps = conditions.software_ps(posted - before.0, polled - reported);
        reported = polled;
        if software_ps > 0 {
            lock(world).run_for(software_ps)?;
        }
        let now = seen();
        if now.frames >= extent.from && from.is_none() {
            from = Some(now);
        }
        if now.frames >= extent.to && to.is_none() {
            to = Some(now);
        }
        clock.idle();
        let found = loads.iter_mut().map(Load::poll).collect::<Result<Vec<_>>>()?;
        if found.contains(&Progress::Lost) {
            break true;
        }
        let is_idle = !found.contains(&Progress::Some) && seen().frames == now.frames;
        idle = if is_idle { idle + 1 } else { 0 };
        if idle == IDLE_MAX {
            // A lost frame is not noticed if no other frame of its queue pair follows.
            let dropped = |card| {
                let counters = lock(world).counters(card)?;
                Ok(DropReason::WITHOUT_ROOM
                    .map(|reason| counters[counter(reason.name())])
                    .iter()
                    .sum::<u64>())
            };
            let dropped: u64 = (0..2).map(dropped).sum::<Result<u64>>()?;
            ensure!(dropped > 0, "the run has stalled after {} messages", loads[0].sent);
            break true;
        }
        if loads.iter().all(|load| load.is_done(extent.messages)) {
            break false;
        }
    };
    lock(world).check()?;
    if lost {
        let reason = format!("the receive buffer overruns with {} messages under way", window.all);
        return Ok(Outcome::Lost { reason });
    }
    loads.iter().try_for_each(Load::verify)?;
    host(HostOptions::IDEAL);
    drop(loads);
    drop(devices);
    lock(world).finish()?;
    let (from, to) = from.zip(to).context("nothing was measured")?;
    let period_ps = lock(world).card(0).period_ps(Domain::Core);
    let measured = Seen {
        frames: to.frames - from.frames,
        frames_back: to.frames_back - from.frames_back,
        frames_against: to.frames_against - from.frames_against,
        time_ps: to.time_ps - from.time_ps,
    };
    let width_bits = lock(world).card(0).width_bits() as u32;
    let mut row = row(case, width_bits, options.bits_per_second, period_ps, measured);
    (row.window, row.signal_every) = (window.all, signal_every);
    Ok(Outcome::Measured(Box::new(row)))
}

/// Counts the frames of a direction that carry messages, from now on.
fn count_carrying(world: &SharedWorld, direction: usize, kind: Kind) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let script = move |_: u64, frame: &mut Frame| {
        let carries = u64::from(wire::carries_message(kind, &frame.bytes));
        counted.fetch_add(carries, Ordering::Relaxed);
        Fate::Leave
    };
    lock(world).direction_mut(0, direction).set_script(Some(Box::new(script)));
    count
}

fn row(case: &Case, width_bits: u32, wire: u64, period_ps: u64, measured: Seen) -> Row {
    let Seen { frames, frames_back, frames_against, time_ps } = measured;
    let seconds = time_ps as f64 * 1e-12;
    let cycles = time_ps as f64 / period_ps as f64;
    let of_message = case.frames();
    let messages = frames as f64 / of_message.count as f64;
    let rate = messages / seconds;
    Row {
        name: case.name(),
        op: case.operation(),
        bytes: case.bytes,
        pmtu: case.pmtu.bytes(),
        qps: case.queue_pairs,
        width_bits,
        clock_mhz: (1_000_000 / period_ps) as u32,
        line_gbps: wire as f64 / 1e9,
        window: 0,
        signal_every: 0,
        cycles: cycles.round() as u64,
        messages: messages.round() as u64,
        cycles_per_message: cycles / messages,
        payload_gbps: rate * case.bytes as f64 * 8.0 / 1e9,
        mmsg_per_s: rate / 1e6,
        wire_payload_gbps: of_message.payload_gbps(wire),
        percent_of_wire: rate / of_message.most_a_second(wire) * 100.0,
        percent_of_wire_against: frames_against as f64 / frames as f64 * rate
            / of_message.most_a_second(wire)
            * 100.0,
        frames_back_per_message: frames_back as f64 / messages,
    }
}

/// Progress of a call of `poll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    None,
    Some,
    /// A queue pair has failed.
    Lost,
}

pub(super) struct Load {
    case: Case,
    pairs: Vec<Pair>,
    queues: [CompletionQueue; 2],
    /// Pairs by side and QPN.
    places: BTreeMap<(usize, u32), usize>,
    targets: Vec<SharedRegion>,
    signal_every: usize,
    /// Maximum of messages in flight.
    all: usize,
    /// Pair that posts next.
    next: usize,
    /// Messages that have completed at their sender.
    pub(super) sent: usize,
    /// Receives that have completed.
    pub(super) received: usize,
    /// Receives are posted before the messages that consume them.
    pub(super) posts_receives: bool,
    /// That of the receivers.
    domain: ProtectionDomain,
    /// Memory whose keys SENDs invalidate, in this order; no other SEND is posted then.
    ending: Option<VecDeque<SharedRegion>>,
    /// Memory whose key a SEND names.
    ended: Vec<SharedRegion>,
}

/// Creates one end of a pair, before the other one is known.
fn begin(
    domain: &ProtectionDomain,
    queue: &CompletionQueue,
    options: &QueuePairOptions,
) -> Result<(QueuePair<Init>, ConnectionInfo)> {
    let queue_pair = domain.create_queue_pair(queue, queue, options)?;
    let queue_pair = queue_pair.initialize(RIGHTS).map_err(rnic_driver::Error::from)?;
    let info = queue_pair.info(0)?;
    Ok((queue_pair, info))
}

fn connect(
    queue_pair: QueuePair<Init>,
    peer: &ConnectionInfo,
    address: &AddressHandle,
    case: &Case,
    send: SendOptions,
    reads: Option<u8>,
) -> Result<QueuePair<ReadyToSend>> {
    let send = SendOptions { read_atomic: reads, ..send };
    let options = ConnectOptions { send, ..ConnectOptions::default() };
    let receive = ReceiveOptions {
        path_mtu: case.pmtu,
        destination_qp: peer.qp_number,
        receive_psn: peer.first_psn,
        min_rnr_timer: options.min_rnr_timer,
        destination_read_atomic: reads,
    };
    let queue_pair = queue_pair.ready_to_receive(address, &receive).map_err(rnic_driver::Error::from)?;
    Ok(queue_pair.ready_to_send(&options.send).map_err(rnic_driver::Error::from)?)
}

/// Number of requests posted by all loads, sends and receives, and of completions polled.
fn progress(loads: &[Load]) -> (usize, usize) {
    let add = |sum: (usize, usize), load: &Load| {
        let (posted, polled) = load.progress();
        (sum.0 + posted, sum.1 + polled)
    };
    loads.iter().fold((0, 0), add)
}

impl Load {
    /// Connects queue pairs of the first device to ones of the second, with buffers in so many regions.
    pub(super) fn new(
        devices: [&Device; 2],
        case: &Case,
        Window { each: window, all }: Window,
        regions: usize,
        send: SendOptions,
    ) -> Result<Load> {
        let Case { bytes, queue_pairs, .. } = *case;
        // A message may be sent before the receive that it consumes is posted again.
        let receives = if case.kind.consumes() { 2 * window } else { 0 };
        let slots_log2 = (2 * window).ilog2().max(RING_LOG2_MIN);
        let entries_log2 = (4 * window * queue_pairs).next_power_of_two().ilog2().max(RING_LOG2_MIN);
        let options = CompletionQueueOptions { entries_log2, ..CompletionQueueOptions::default() };
        let queue = |device: &Device| device.create_completion_queue(&device.events(), &options);
        let queues = [queue(devices[0])?, queue(devices[1])?];
        let domains = [devices[0].create_protection_domain()?, devices[1].create_protection_domain()?];
        let queue_options = QueuePairOptions {
            send_slots_log2: slots_log2,
            receive_wqes_log2: slots_log2,
            ..QueuePairOptions::default()
        };
        // Each queue pair has a cell of its own for atomics.
        let (gap_bytes, place_bytes) =
            if case.kind.is_atomic() { (0, CELL_BYTES) } else { (GAP_BYTES, bytes + GAP_BYTES) };
        let mut sources = buffers(&domains[0], bytes, window * queue_pairs, regions)?.into_iter();
        let mut sinks = buffers(&domains[1], bytes, receives * queue_pairs, regions)?.into_iter();
        let share = |_| domains[1].share(place_bytes * queue_pairs, RIGHTS);
        let targets = (0..regions).map(share).collect::<Result<Vec<_>, _>>()?;
        if case.kind == Kind::Read {
            let pattern = |region: usize, offset: usize| (offset * 13 + region * 29) as u8 ^ 0x55;
            for (region, target) in targets.iter().enumerate() {
                let bytes = (0..place_bytes * queue_pairs).map(|offset| pattern(region, offset));
                target.write(0, &bytes.collect::<Vec<u8>>())?;
            }
        }
        // As many READs as a queue pair can have, if all of them can, in both directions.
        let limits = devices[0].limits();
        let most = limits.queues.read_atomic.min(limits.queues.destination_read_atomic);
        let slots = 1usize << limits.memory.read_slots_log2;
        let reads = (2 * queue_pairs * usize::from(most) <= slots).then_some(most);
        let mut pairs = Vec::new();
        let mut places = BTreeMap::new();
        let mut addresses: Option<[AddressHandle; 2]> = None;
        for place in 0..queue_pairs {
            let (sender, from) = begin(&domains[0], &queues[0], &queue_options)?;
            let (receiver, to) = begin(&domains[1], &queues[1], &queue_options)?;
            let [to_receiver, to_sender] = match &addresses {
                Some(addresses) => addresses,
                None => addresses.insert([
                    domains[0].create_address_handle(&Path::new(to.gid, to.mac))?,
                    domains[1].create_address_handle(&Path::new(from.gid, from.mac))?,
                ]),
            };
            let sender = connect(sender, &to, to_receiver, case, send, reads)?;
            let receiver = connect(receiver, &from, to_sender, case, send, reads)?;
            places.insert((0, sender.number()), place);
            places.insert((1, receiver.number()), place);
            let mut own_sources: Vec<_> = sources.by_ref().take(window).collect();
            for (index, source) in own_sources.iter_mut().enumerate() {
                let pattern = |offset: usize| (offset * 31 + index * 7 + place) as u8;
                source.bytes_mut().iter_mut().enumerate().for_each(|(offset, byte)| *byte = pattern(offset));
            }
            let target = place * place_bytes + gap_bytes;
            let (sources, sinks) = (own_sources, sinks.by_ref().take(receives).collect());
            pairs.push(Pair { sender, receiver, sources, sinks, place, target, posted: 0, receives: 0 });
        }
        let signal_every = (window / 2).clamp(1, SIGNAL_EVERY);
        let (case, [_, domain]) = (*case, domains);
        Ok(Load {
            case,
            pairs,
            queues,
            places,
            targets,
            signal_every,
            all,
            next: 0,
            sent: 0,
            received: 0,
            posts_receives: true,
            domain,
            ending: None,
            ended: Vec::new(),
        })
    }

    /// Registers this much memory at the receivers, whose keys the SENDs invalidate.
    pub(super) fn end_keys(&mut self, count: usize) -> Result<()> {
        let share = |_| self.domain.share_invalidatable(1, RIGHTS);
        self.ending = Some((0..count).map(share).collect::<Result<_, _>>()?);
        Ok(())
    }

    /// Keys that no SEND has named yet.
    pub(super) fn keys_left(&self) -> usize {
        self.ending.as_ref().map_or(0, VecDeque::len)
    }

    /// QPN of the receiver of a pair.
    pub(super) fn receiver(&self, pair: usize) -> u32 {
        self.pairs[pair].receiver.number()
    }

    /// Posts receives up to number `end` of each pair, as far as there is room.
    pub(super) fn post_receives(&mut self, end: usize) -> Result<()> {
        self.pairs.iter_mut().try_for_each(|pair| pair.post_receives(end, self.signal_every))
    }

    /// Posts messages up to number `end` of each pair, as far as there is room, in batches that end with a signalled one.
    pub(super) fn post(&mut self, end: usize) -> Result<()> {
        let batch = self.signal_every;
        let remotes: Vec<_> = self.targets.iter().map(SharedRegion::remote).collect();
        let posted: usize = self.pairs.iter().map(|pair| pair.posted).sum();
        let mut free = self.all.saturating_sub(posted - self.sent);
        let (before, from) = self.pairs.split_at_mut(self.next);
        let turns = from.iter_mut().chain(before);
        // The first pair without room is the next to post.
        let mut stopped = None;
        for (turn, pair) in turns.enumerate() {
            if self.posts_receives {
                pair.post_receives(end, batch)?;
            }
            let wanted = (end - pair.posted).min(pair.sources.len()) / batch * batch;
            let keys = self.ending.as_ref().map_or(usize::MAX, VecDeque::len);
            let room = wanted.min(free.min(keys) / batch * batch);
            if room < wanted {
                stopped = stopped.or(Some(turn));
            }
            let mut requests = Vec::new();
            let own_sources: Vec<_> = pair.sources.drain(..room).collect();
            for (source, index) in own_sources.into_iter().zip(pair.posted..) {
                let remote = remotes[pair.target_of(index, remotes.len(), self.case.kind)];
                let address = remote.address + pair.target as u64;
                let remote = RemoteMemory { address, bytes: self.case.bytes as u64, ..remote };
                let request = match self.case.kind {
                    Kind::Send => match self.ending.as_mut().and_then(VecDeque::pop_front) {
                        Some(region) => {
                            let key = region.remote().key;
                            self.ended.push(region);
                            SendRequest::send_invalidate(index as u64, key)
                        }
                        None => SendRequest::send(index as u64),
                    },
                    Kind::Write => SendRequest::write(index as u64, remote),
                    Kind::Read => SendRequest::read(index as u64, remote),
                    Kind::FetchAdd => SendRequest::fetch_add(index as u64, remote, 1),
                    other => bail!("the bench has no {other:?}"),
                };
                let request = request.sge(source);
                let is_signalled = (index + 1).is_multiple_of(batch);
                requests.push(if is_signalled { request.signalled() } else { request });
            }
            if !requests.is_empty() {
                let result = pair.sender.post_sends(&mut requests);
                pair.posted += room - requests.len();
                free -= room - requests.len();
                let back = requests.into_iter().flat_map(|request| request.sg_list);
                pair.sources.splice(0..0, back.collect::<Vec<_>>());
                refused(result)?;
            }
        }
        self.next = (self.next + stopped.unwrap_or(0)) % self.pairs.len();
        Ok(())
    }

    /// Number of requests posted, sends and receives, and of completions polled.
    fn progress(&self) -> (usize, usize) {
        let posted = self.pairs.iter().map(|pair| pair.posted + pair.receives).sum();
        (posted, self.sent + self.received)
    }

    /// Returns whether all messages have completed, at both ends if both are notified.
    pub(super) fn is_done(&self, end: usize) -> bool {
        let all = end * self.pairs.len();
        self.sent == all && (self.received == all || !self.case.kind.consumes())
    }

    /// Polls all completion queues.
    pub(super) fn poll(&mut self) -> Result<Progress> {
        let before = (self.sent, self.received);
        for side in 0..2 {
            let mut completions: Vec<Completion> = Vec::new();
            self.queues[side].poll(&mut completions, usize::MAX)?;
            for completion in completions {
                if completion.status == CompletionStatus::RetryExceeded {
                    return Ok(Progress::Lost);
                }
                ensure!(completion.status == CompletionStatus::Success, "{completion:?}");
                let place =
                    self.places.get(&(side, completion.qp_number)).context("an unknown queue pair")?;
                let pair = &mut self.pairs[*place];
                let (count, list) = match side {
                    0 => (&mut self.sent, &mut pair.sources),
                    _ => (&mut self.received, &mut pair.sinks),
                };
                *count += 1;
                list.extend(completion.sg_list);
            }
        }
        Ok(if before == (self.sent, self.received) { Progress::None } else { Progress::Some })
    }

    /// Checks the contents of the last message.
    pub(super) fn verify(&self) -> Result<()> {
        for pair in &self.pairs {
            let last = pair.sources.last().context("no message has come back")?;
            let mut found = vec![0; self.case.bytes];
            let target = &self.targets[pair.target_of(pair.posted - 1, self.targets.len(), self.case.kind)];
            if self.case.kind.is_atomic() {
                // Each atomic has added one to a cell that was zero.
                target.read(pair.target, &mut found)?;
                ensure!(
                    found == (pair.posted as u64).to_le_bytes(),
                    "{found:?} after {} additions",
                    pair.posted
                );
                continue;
            }
            if self.case.kind != Kind::Send {
                target.read(pair.target, &mut found)?;
            } else {
                let sink = pair.sinks.last().context("no receive has come back")?;
                found.copy_from_slice(&sink.bytes());
            }
            ensure!(found == *last.bytes(), "the last message is not what was sent");
        }
        Ok(())
    }
}

/// A full queue has room later, so it is not an error.
fn refused(result: Result<(), Refusal>) -> Result<()> {
    match result {
        Err(Refusal::QueueFull { .. } | Refusal::CompletionQueueFull { .. }) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::path::Pmtu;

    fn case(bytes: usize, queue_pairs: usize) -> Case {
        Case { kind: Kind::Send, bytes, pmtu: Pmtu::Bytes4096, queue_pairs }
    }

    #[test]
    fn a_full_wire_is_reported_as_100_percent() {
        let measured = Seen { frames: 100, frames_back: 25, frames_against: 50, time_ps: 100 * 4178 * 80 };
        let row = row(&case(4096, 1), 512, 100_000_000_000, 4000, measured);
        assert!((row.percent_of_wire - 100.0).abs() < 1e-9 && row.cycles == 8356, "{row:?}");
        assert!((row.percent_of_wire_against - 50.0).abs() < 1e-9, "{row:?}");
        assert!((row.payload_gbps - 98.0).abs() < 0.1 && (row.wire_payload_gbps - 98.0).abs() < 0.1);
        assert_eq!((row.name.as_str(), row.messages), ("send_4096_pmtu4096_qp1", 100));
        assert!((row.frames_back_per_message - 0.25).abs() < 1e-9, "{row:?}");
    }

    #[test]
    fn the_windows_stay_full_until_the_measurement_ends() {
        let options = CardOptions::standard(512);
        for (bytes, queue_pairs) in [(2, 1), (64, 64), (64, 1000), (4096, 1), (1 << 20, 1)] {
            let case = case(bytes, queue_pairs);
            let window = window(&case, &options);
            let each = window.each;
            let extent = Extent::new(&case, &options, window, (each / 2).clamp(1, SIGNAL_EVERY));
            let frames = (extent.messages * queue_pairs * case.frames().count) as u64;
            let behind = (each / 2 * queue_pairs * case.frames().count) as u64;
            assert!(extent.from < extent.to && extent.to + behind <= frames, "{extent:?}");
        }
    }
}
