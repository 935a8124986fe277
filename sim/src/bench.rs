//! The standard bench (DESIGN 8): how fast two cards on a wire move messages of one kind and length from one host to the
//! other. It measures, and never asserts a rate.
//!
//! Each queue pair keeps its window full; buffers are unaligned, and every 32nd request is signalled. Counted are the
//! messages that leave on the wire from the end of the warm-up until the last one is posted; all of them must complete.
use crate::host::HostOptions;
use crate::operations::cards;
use crate::operations::plan::Kind;
use crate::scenario::two_cards;
use crate::world::{CardOptions, Domain, model_options};
use anyhow::{Context, Result, bail, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, ConnectionInfo, Device, QueuePair,
    QueuePairOptions, ReceiveRequest, Refusal, Region, RemoteMemory, RemoteRights, SendRequest, SharedRegion,
};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_layout::opcode::BTH_BYTES;
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use verilator_sys::{Model, ModelOptions, Optimization};

/// Every so many requests one is signalled.
const SIGNAL_EVERY: u64 = 32;
/// Messages under way, of all queue pairs together, as a power of two: not more than a receive buffer holds, since nothing
/// is sent again yet.
const WINDOW_LOG2: u32 = 9;
/// Slots of the smallest ring, as a power of two.
const RING_LOG2_MIN: u32 = 6;
/// How far apart buffers stand beside their length, and where the first one begins: none is aligned.
const GAP_BYTES: usize = 41;
/// Share of the messages that come before the measurement.
const WARM_UP: f64 = 0.25;
/// Calls of `idle` without a completion after which a run has come to a stand.
const IDLE_MAX: usize = 20_000;
/// Bytes of a frame that are neither BTH nor behind it: preamble, Ethernet, IPv4, UDP, FCS and the gap between frames; and
/// the ICRC.
const FRAME_BYTES: usize = 8 + 14 + 20 + 8 + 4 + 12 + 4;
/// Bytes of a RETH.
const RETH_BYTES: usize = 16;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Operation.
    pub kind: Kind,
    /// Bytes of a message, at most the PMTU.
    pub bytes: usize,
    /// Of all queue pairs.
    pub pmtu: Pmtu,
    /// Queue pairs that send.
    pub queue_pairs: usize,
    /// Messages of all of them, at least.
    pub messages: u64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Operation, length and queue pairs.
    pub name: String,
    /// Operation.
    pub op: String,
    /// Bytes of a message.
    pub bytes: usize,
    /// Payload of a packet.
    pub pmtu: u32,
    /// Queue pairs.
    pub qps: usize,
    /// Width of the datapath.
    pub width_bits: u32,
    /// Core clock.
    pub clock_mhz: u32,
    /// Cycles of the core clock that were measured.
    pub cycles: u64,
    /// Messages that left in them.
    pub messages: u64,
    /// Payload.
    pub payload_gbps: f64,
    /// Million messages a second.
    pub mmsg_per_s: f64,
    /// Of the payload that a wire filled with such frames would carry.
    pub percent_of_wire: f64,
}

/// The cases of the whole bench, or of a quick one.
pub fn cases(is_quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [Kind::Write, Kind::Send] {
        // SENDs of several queue pairs wait for their receive entries, and the frames behind them overrun the buffer; nothing
        // is sent again yet.
        let queue_pairs: &[usize] = if kind.is_write() { &[1, 16] } else { &[1] };
        for &queue_pairs in queue_pairs {
            let lengths: &[usize] = if is_quick { &[64, 4096] } else { &[0, 2, 64, 256, 1024, 2048, 4096] };
            for &bytes in lengths {
                let messages = if is_quick { 4_096 } else { 16_384 };
                cases.push(Case { kind, bytes, pmtu: Pmtu::Bytes4096, queue_pairs, messages });
            }
        }
    }
    cases
}

/// One queue pair at each end, with buffers that wait to be posted.
struct Pair {
    sender: QueuePair<ReadyToSend>,
    receiver: QueuePair<ReadyToSend>,
    sources: Vec<Region>,
    sinks: Vec<Region>,
    window: SharedRegion,
    /// Messages that were posted.
    posted: u64,
    /// Receives that were posted.
    receives: u64,
}

/// Cuts memory into buffers of equal length, none of them aligned.
fn buffers(mut rest: Region, bytes: usize, count: usize) -> Result<Vec<Region>> {
    let cut = |region: Region, at: usize| region.split_at(at).map_err(|_| anyhow::anyhow!("memory is short"));
    let mut buffers = Vec::with_capacity(count);
    for _ in 0..count {
        let (_, behind) = cut(rest, GAP_BYTES)?;
        let (buffer, behind) = cut(behind, bytes)?;
        buffers.push(buffer);
        rest = behind;
    }
    Ok(buffers)
}

/// Runs one case.
///
/// # Errors
/// If a message fails, nothing moves any more, or a monitor sees a violation.
pub fn measure(model: &Model, width_bits: u32, case: &Case, seed: u64) -> Result<Row> {
    let options = CardOptions { host: HostOptions::STANDARD, ..CardOptions::standard(width_bits) };
    let (world, functions) = two_cards(model, [options; 2], options.wire(), seed)?;
    let lock = || world.lock().expect("nobody has panicked");
    let [first, second] = functions.clone();
    let devices = [
        Device::open(first, cards::options(crate::chance::Seed(seed), 0))?,
        Device::open(second, cards::options(crate::chance::Seed(seed), 1))?,
    ];
    let mut bench = Bench::new(&devices, case)?;
    let end = case.messages.next_multiple_of(SIGNAL_EVERY * case.queue_pairs as u64);
    let warm_up = (end as f64 * WARM_UP) as u64;
    let seen = || {
        let world = lock();
        Seen { cycles: world.card(0).cycles(Domain::Core), frames: world.wire_counts(0)[0].sent }
    };
    let (mut from, mut to) = (None, None);
    let mut idle = 0;
    while !bench.is_done(end) {
        bench.post(end)?;
        if bench.sent >= warm_up && from.is_none() {
            from = Some(seen());
        }
        if bench.posted() == end && to.is_none() {
            to = Some(seen());
        }
        functions[0].idle();
        idle = if bench.poll()? { 0 } else { idle + 1 };
        ensure!(idle < IDLE_MAX, "nothing happens any more behind {} messages", bench.sent);
    }
    lock().check()?;
    bench.verify()?;
    drop(bench);
    drop(devices);
    lock().finish()?;
    let (from, to) = from.zip(to).context("nothing was measured")?;
    ensure!(to.cycles > from.cycles, "{end} messages are too few to be measured");
    let period_ps = lock().card(0).period_ps(Domain::Core);
    let measured = Seen { cycles: to.cycles - from.cycles, frames: to.frames - from.frames };
    Ok(row(case, width_bits, options.bits_per_second, period_ps, measured))
}

/// What has been at a time.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Cycles of the core clock.
    cycles: u64,
    /// Frames that the sending card has put on the wire, each a message.
    frames: u64,
}

fn row(case: &Case, width_bits: u32, wire: u64, period_ps: u64, measured: Seen) -> Row {
    let Seen { cycles, frames: messages } = measured;
    let seconds = cycles as f64 * period_ps as f64 * 1e-12;
    let extension = if case.kind.is_write() { RETH_BYTES } else { 0 };
    let frame = FRAME_BYTES + BTH_BYTES + extension + case.bytes.next_multiple_of(4);
    let rate = messages as f64 / seconds;
    // The shortest frame of Ethernet has 64 bytes, with 20 around it.
    let most = wire as f64 / (frame.max(84) * 8) as f64;
    let op = format!("{:?}", case.kind).to_lowercase();
    Row {
        name: format!("{op}_{}_qp{}", case.bytes, case.queue_pairs),
        op,
        bytes: case.bytes,
        pmtu: case.pmtu.bytes(),
        qps: case.queue_pairs,
        width_bits,
        clock_mhz: (1_000_000 / period_ps) as u32,
        cycles,
        messages,
        payload_gbps: rate * case.bytes as f64 * 8.0 / 1e9,
        mmsg_per_s: rate / 1e6,
        percent_of_wire: rate / most * 100.0,
    }
}

struct Bench {
    case: Case,
    pairs: Vec<Pair>,
    queues: [CompletionQueue; 2],
    /// By QPN of the sender or of the receiver.
    places: BTreeMap<(usize, u32), usize>,
    /// Messages that have completed at their sender.
    sent: u64,
    /// Receives that have completed.
    received: u64,
}

impl Bench {
    fn new(devices: &[Device; 2], case: &Case) -> Result<Bench> {
        let pairs_log2 = case.queue_pairs.next_power_of_two().ilog2();
        let window_log2 = WINDOW_LOG2.saturating_sub(pairs_log2);
        // A message may leave before the receive that it takes is posted again.
        let receive_log2 = (window_log2 + 1).max(RING_LOG2_MIN);
        let log2 = receive_log2 + 1 + pairs_log2;
        let options = CompletionQueueOptions { entries_log2: log2, ..CompletionQueueOptions::default() };
        let queue = |device: &Device| device.create_completion_queue(&device.events(), &options);
        let queues = [queue(&devices[0])?, queue(&devices[1])?];
        let domains = [devices[0].create_domain()?, devices[1].create_domain()?];
        let queue_options = QueuePairOptions {
            send_slots_log2: window_log2.max(RING_LOG2_MIN),
            receive_entries_log2: receive_log2,
            signal_all: false,
        };
        let bytes = |log2: u32| (case.bytes + GAP_BYTES) << log2;
        let mut pairs = Vec::new();
        let mut places = BTreeMap::new();
        for place in 0..case.queue_pairs {
            let make = |side: usize| -> Result<_> {
                let queue = &queues[side];
                let queue_pair = domains[side].create_queue_pair(queue, queue, &queue_options)?;
                let queue_pair =
                    queue_pair.initialize(RemoteRights::WRITE).map_err(rnic_driver::Error::from)?;
                let info = ConnectionInfo { path_mtu: case.pmtu, ..queue_pair.info(0)? };
                Ok((queue_pair, info))
            };
            let ((sender, from), (receiver, to)) = (make(0)?, make(1)?);
            let connect = ConnectOptions::default();
            let (sender, receiver) = (sender.connect(&to, &connect)?, receiver.connect(&from, &connect)?);
            places.insert((0, sender.number()), place);
            places.insert((1, receiver.number()), place);
            let mut sources =
                buffers(domains[0].allocate(bytes(window_log2))?, case.bytes, 1 << window_log2)?;
            for (index, source) in sources.iter_mut().enumerate() {
                let pattern = |offset: usize| (offset * 31 + index * 7 + place) as u8;
                source.bytes_mut().iter_mut().enumerate().for_each(|(offset, byte)| *byte = pattern(offset));
            }
            let sinks = match case.kind.consumes() {
                true => buffers(domains[1].allocate(bytes(receive_log2))?, case.bytes, 1 << receive_log2)?,
                false => Vec::new(),
            };
            let window = domains[1].share(case.bytes + GAP_BYTES, RemoteRights::WRITE)?;
            pairs.push(Pair { sender, receiver, sources, sinks, window, posted: 0, receives: 0 });
        }
        Ok(Bench { case: *case, pairs, queues, places, sent: 0, received: 0 })
    }

    /// Posts what there is room for, up to `end` messages of all pairs.
    fn post(&mut self, end: u64) -> Result<()> {
        let end = end / self.pairs.len() as u64;
        for pair in &mut self.pairs {
            let room = (end - pair.receives).min(pair.sinks.len() as u64) as usize;
            let mut receives: Vec<ReceiveRequest> =
                pair.sinks.drain(..room).map(|sink| ReceiveRequest::new(0).piece(sink)).collect();
            let result = pair.receiver.post_receives(&mut receives);
            pair.receives += (room - receives.len()) as u64;
            let back: Vec<Region> = receives.into_iter().flat_map(|request| request.pieces).collect();
            pair.sinks.splice(0..0, back);
            refused(result)?;
            let room = (end - pair.posted).min(pair.sources.len() as u64);
            let remote = pair.window.remote();
            let address = remote.address + GAP_BYTES as u64;
            let remote = RemoteMemory { address, bytes: self.case.bytes as u64, ..remote };
            let mut requests = Vec::new();
            for (source, place) in pair.sources.drain(..room as usize).zip(pair.posted..) {
                let request = match self.case.kind {
                    Kind::Send => SendRequest::send(place),
                    Kind::Write => SendRequest::write(place, remote),
                    other => bail!("the bench has no {other:?}"),
                };
                let request = request.piece(source);
                requests.push(match (place + 1) % SIGNAL_EVERY {
                    0 => request.signalled(),
                    _ => request,
                });
            }
            let wanted = requests.len();
            let result = pair.sender.post_sends(&mut requests);
            pair.posted += (wanted - requests.len()) as u64;
            let back: Vec<Region> = requests.into_iter().flat_map(|request| request.pieces).collect();
            pair.sources.splice(0..0, back);
            refused(result)?;
        }
        Ok(())
    }

    fn posted(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.posted).sum()
    }

    /// Whether all messages have completed, at both ends where both know of them.
    fn is_done(&self, end: u64) -> bool {
        self.sent == end && (self.received == end || !self.case.kind.consumes())
    }

    /// Takes what has completed; returns whether there was something.
    fn poll(&mut self) -> Result<bool> {
        let before = (self.sent, self.received);
        for side in 0..2 {
            let mut completions: Vec<Completion> = Vec::new();
            self.queues[side].poll(&mut completions, usize::MAX)?;
            for completion in completions {
                ensure!(completion.status == CompletionStatus::Success, "{completion:?}");
                let place =
                    self.places.get(&(side, completion.qp_number)).context("an unknown queue pair")?;
                let pair = &mut self.pairs[*place];
                let (count, list) = match side {
                    0 => (&mut self.sent, &mut pair.sources),
                    _ => (&mut self.received, &mut pair.sinks),
                };
                *count += 1;
                list.extend(completion.pieces);
            }
        }
        Ok(before != (self.sent, self.received))
    }

    /// What arrived last is what was sent last.
    fn verify(&self) -> Result<()> {
        for pair in &self.pairs {
            let Some(last) = pair.sources.last() else { continue };
            let mut found = vec![0; self.case.bytes];
            if self.case.kind.is_write() {
                pair.window.read(GAP_BYTES, &mut found)?;
            } else if let Some(sink) = pair.sinks.last() {
                found.copy_from_slice(&sink.bytes());
            }
            ensure!(found == *last.bytes(), "the last message is not what was sent");
        }
        Ok(())
    }
}

/// A queue that is full has room later.
fn refused(result: Result<(), Refusal>) -> Result<()> {
    match result {
        Err(Refusal::QueueFull { .. } | Refusal::CompletionQueueFull { .. }) => Ok(()),
        other => Ok(other?),
    }
}

/// Builds a card, runs cases on two of them and prints a table.
///
/// # Errors
/// As [`measure`], or if a tool is missing.
pub fn run(config: &Config, cases: &[Case], seed: u64) -> Result<Vec<Row>> {
    let width_bits = config.datapath.width_bits;
    let product = generator::generate(config)?;
    let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let model = Model::build(TOP, &product.verilog, &model_options(options))?;
    println!(
        "{:<16} {:>5} {:>6} {:>4} {:>9} {:>9} {:>7} {:>8} {:>7}",
        "case", "bits", "bytes", "QPs", "messages", "cycles", "Gb/s", "Mmsg/s", "% wire"
    );
    let mut rows = Vec::new();
    for case in cases {
        let row = measure(&model, width_bits, case, seed).with_context(|| {
            format!("{:?} of {} bytes, {} queue pairs", case.kind, case.bytes, case.queue_pairs)
        })?;
        println!(
            "{:<16} {:>5} {:>6} {:>4} {:>9} {:>9} {:>7.1} {:>8.2} {:>7.1}",
            row.name,
            row.width_bits,
            row.bytes,
            row.qps,
            row.messages,
            row.cycles,
            row.payload_gbps,
            row.mmsg_per_s,
            row.percent_of_wire
        );
        rows.push(row);
    }
    Ok(rows)
}

/// Writes rows as JSON.
///
/// # Errors
/// If the file cannot be written.
pub fn write_json(rows: &[Row], path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(rows)? + "\n";
    std::fs::write(path, text).with_context(|| format!("{}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_that_is_full_is_full() {
        // 98.0 Gb/s of payload in packets of 4 KiB (DESIGN 8), of which SEND has no more headers than a middle of a WRITE.
        let case = Case { kind: Kind::Send, bytes: 4096, pmtu: Pmtu::Bytes4096, queue_pairs: 1, messages: 1 };
        let cycles = 4178 * 8 * 100 / 400;
        let row = row(&case, 512, 100_000_000_000, 4000, Seen { cycles, frames: 100 });
        assert!(
            (row.percent_of_wire - 100.0).abs() < 0.1 && (row.payload_gbps - 98.0).abs() < 0.1,
            "{row:?}"
        );
        assert_eq!(row.name, "send_4096_qp1");
    }
}
