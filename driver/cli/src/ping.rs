//! `rnic ping`: the time of one operation after the other, on the clock of the card and on that of the machine.

use crate::output::print_json;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use rnic::state::ReadyToSend;
use rnic::{
    Card, Completion, CompletionQueue, Endpoint, EndpointOptions, Function, Named, ProtectionDomain,
    QueuePair, ReceiveRequest, Region, RemoteRights, SendRequest, SharedRegion,
};
use serde::Serialize;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for a completion, on the clock of the machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Longest sleep for an event, on the clock of the back end.
const SLEEP: Duration = Duration::from_millis(10);
/// Largest payload, in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Most operations.
const COUNT_MAX: u64 = 1_000_000;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    /// A WRITE, until its acknowledgement is back.
    Write,
    /// A READ, until its data are there.
    Read,
    /// A SEND to the peer, and one of the peer back.
    Send,
}

#[derive(Args)]
pub(crate) struct Options {
    /// The card: vfu:PATH, pci:ADDRESS or sim:. Without it, two simulated cards on one wire.
    device: Option<OsString>,
    /// The card of the peer, on the same wire. Without it the wire of the card must be in loopback.
    peer: Option<OsString>,
    /// The operation.
    #[arg(long, value_enum, default_value_t = Operation::Write)]
    op: Operation,
    /// Payload, in bytes.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=BYTES_MAX), value_name = "BYTES")]
    size: u64,
    /// Number of operations, one after the other.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    count: u64,
    /// Sleep until the event of a completion, instead of polling.
    #[arg(long)]
    events: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Distribution of a time, in microseconds.
#[derive(Serialize)]
struct Spread {
    min: f64,
    median: f64,
    p99: f64,
}

#[derive(Serialize)]
struct Report {
    devices: Vec<String>,
    op: Operation,
    bytes: u64,
    count: u64,
    events: bool,
    /// On the clock of the card, if the back end has it: that of a simulation in this process, in steps of 25 cycles of the core.
    card_us: Option<Spread>,
    /// On the clock of the machine.
    wall_us: Spread,
}

impl Spread {
    /// Of at least one time.
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let microseconds = |time: Duration| time.as_nanos() as f64 / 1e3;
        let at = |percent: usize| microseconds(times[(times.len() * percent / 100).min(times.len() - 1)]);
        Self { min: at(0), median: at(50), p99: at(99) }
    }
}

/// One end: its queues, and memory of which a request has one region at a time.
struct End {
    queue_pair: QueuePair<ReadyToSend>,
    completions: CompletionQueue,
    _domain: ProtectionDomain,
    region: Option<Region>,
    events: bool,
}

impl End {
    fn new(end: Endpoint, bytes: usize, events: bool) -> Result<Self> {
        let (queue_pair, completions, domain) = end.into_parts();
        let region = Some(domain.allocate(bytes)?);
        Ok(Self { queue_pair, completions, _domain: domain, region, events })
    }

    /// Fills the memory of the next request.
    fn fill(&mut self, byte: u8) -> Result<()> {
        self.region.as_mut().context("the region is in flight")?.bytes_mut().fill(byte);
        Ok(())
    }

    fn post(&mut self, request: SendRequest) -> Result<()> {
        let region = self.region.take().context("the region is in flight")?;
        Ok(self.queue_pair.post_send(request.sge(region).signalled())?)
    }

    /// Waits for a completion, which must be a success.
    fn next(&self) -> Result<Completion> {
        let began = Instant::now();
        loop {
            if let Some(completion) = self.completions.poll_one()? {
                completion.check()?;
                return Ok(completion);
            }
            if began.elapsed() > LIMIT {
                bail!(
                    "no completion within {LIMIT:?}; check that the wire leads to the peer, or back to the card"
                );
            }
            if self.events {
                self.completions.wait(SLEEP)?;
            }
        }
    }

    /// Waits until the request that is in flight is done, and keeps its memory. With `message`, waits for a message of the peer too, which
    /// must consist of this byte.
    fn complete(&mut self, message: Option<u8>) -> Result<()> {
        let mut awaits_message = message.is_some();
        while self.region.is_none() || awaits_message {
            let mut completion = self.next()?;
            if !completion.is_receive() {
                self.region = completion.sg_list.pop();
                continue;
            }
            awaits_message = false;
            ensure!(
                completion.message().iter().all(|byte| Some(*byte) == message),
                "the message is another one"
            );
            let receive = ReceiveRequest { wr_id: completion.wr_id, sg_list: completion.sg_list };
            self.queue_pair.post_receive(receive)?;
        }
        Ok(())
    }
}

/// Two ends, and memory of the second one.
struct Pair {
    here: End,
    there: End,
    window: SharedRegion,
    function: Arc<dyn Function>,
}

impl Pair {
    fn connect(cards: [&Card; 2], bytes: usize, events: bool) -> Result<Self> {
        let options = EndpointOptions { receives: 2, receive_bytes: bytes, ..EndpointOptions::default() };
        let end = |card: &Card| card.endpoint_with(options.clone());
        let [here, there] = Endpoint::pair_of(end(cards[0])?, end(cards[1])?)?;
        let window = there.share(bytes, RemoteRights::ALL)?;
        let function = Arc::clone(&cards[0].function);
        let (here, there) = (End::new(here, bytes, events)?, End::new(there, bytes, events)?);
        Ok(Self { here, there, window, function })
    }

    /// Carries out one operation with this byte, and checks what has moved. Returns the times of the back end and of the machine.
    fn ping(&mut self, operation: Operation, byte: u8) -> Result<[Duration; 2]> {
        let bytes = vec![byte; self.window.len()];
        match operation {
            Operation::Write | Operation::Send => self.here.fill(byte)?,
            Operation::Read => self.window.write(0, &bytes)?,
        }
        self.there.fill(!byte)?;
        let (card, wall) = (self.function.now(), Instant::now());
        match operation {
            Operation::Write => self.here.post(SendRequest::write(0, self.window.remote()))?,
            Operation::Read => self.here.post(SendRequest::read(0, self.window.remote()))?,
            Operation::Send => {
                self.here.post(SendRequest::send(0))?;
                self.there.complete(Some(byte))?;
                self.there.post(SendRequest::send(0))?;
            }
        }
        self.here.complete((operation == Operation::Send).then_some(!byte))?;
        let times = [self.function.now().saturating_sub(card), wall.elapsed()];
        self.there.complete(None)?;
        match operation {
            Operation::Write => ensure!(self.window.to_vec() == bytes, "the peer's memory is another one"),
            Operation::Read => {
                let region = self.here.region.as_ref().context("the region is in flight")?;
                ensure!(region.bytes()[..] == bytes[..], "what was read is something else");
            }
            Operation::Send => {}
        }
        Ok(times)
    }
}

/// The cards that the command line names: one, or two.
fn cards(options: &Options) -> Result<Vec<Named>> {
    match (&options.device, &options.peer) {
        (None, _) => simulated_pair(),
        (Some(device), None) => Ok(vec![Named::new(device)?]),
        (Some(device), Some(peer)) => {
            ensure!(peer != device, "{} cannot be its own peer; name one card, or two", peer.display());
            let named = vec![Named::new(device)?, Named::new(peer)?];
            let is_alone = named.iter().any(Named::is_alone);
            ensure!(
                !is_alone,
                "the wire of a simulated card leads back to it; name no peer, or no card for two of them"
            );
            Ok(named)
        }
    }
}

#[cfg(feature = "sim")]
fn simulated_pair() -> Result<Vec<Named>> {
    Ok(rnic::simulated_pair("")?.into())
}

#[cfg(not(feature = "sim"))]
fn simulated_pair() -> Result<Vec<Named>> {
    bail!("this program was built without the simulator; name a card, vfu:PATH or pci:ADDRESS")
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let named = cards(options)?;
    let opened = named.iter().map(Named::open).collect::<Result<Vec<Card>, _>>()?;
    let ends = [&opened[0], &opened[opened.len() - 1]];
    let mut pair = Pair::connect(ends, options.size as usize, options.events)?;
    let mut times = [Vec::new(), Vec::new()];
    for number in 0..options.count {
        let spent = pair.ping(options.op, number as u8).with_context(|| format!("operation {number}"))?;
        times.iter_mut().zip(spent).for_each(|(times, spent)| times.push(spent));
    }
    drop((pair, opened));
    named.iter().try_for_each(Named::check)?;
    let [card, wall] = times;
    report(
        &Report {
            devices: named.iter().map(|card| card.text().to_string()).collect(),
            op: options.op,
            bytes: options.size,
            count: options.count,
            events: options.events,
            card_us: named[0].is_simulated().then(|| Spread::of(card)),
            wall_us: Spread::of(wall),
        },
        options.json,
    )
}

/// Prints the report as a table, or as JSON.
fn report(report: &Report, is_json: bool) -> Result<()> {
    if is_json {
        return print_json(report);
    }
    let name = report.op.to_possible_value().map_or(String::new(), |value| value.get_name().to_string());
    let waits = if report.events { "asleep between events" } else { "polling" };
    print_line!(
        "{}: {} of {} B, {} times, {waits}",
        report.devices.join(" to "),
        name,
        report.bytes,
        report.count
    );
    print_line!("{:<16} {:>12} {:>12} {:>12}", "round trip, us", "min", "median", "99 %");
    let line = |clock: &str, times: &Spread| {
        format!("{clock:<16} {:>12.3} {:>12.3} {:>12.3}", times.min, times.median, times.p99)
    };
    if let Some(times) = &report.card_us {
        print_line!("{}", line("card's clock", times));
    }
    print_line!("{}", line("this machine's", &report.wall_us));
    Ok(())
}
