//! The cards that are checked, and two connected queue pairs of them.

use anyhow::{Context, Result, bail, ensure};
use rnic_driver::state::{Init, ReadyToSend};
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, Counters, Device, EventQueue,
    Function, FunctionError, Options, ProtectionDomain, QueuePair, QueuePairOptions, ReceiveRequest, Region,
    RemoteRights, SendOptions, SendRequest,
};
use rnic_layout::path::{Gid, Pmtu};
use rnic_layout::pci::REGISTER_BAR;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::registers::Register;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Connects to a card. It is called again for each time that the card is opened.
pub type Connector = Box<dyn Fn() -> Result<Arc<dyn Function>, FunctionError>>;

/// Bound of each wait for a card of hardware, on the clock of its function.
const PATIENCE: Duration = Duration::from_millis(50);
/// Most polls of a wait that no clock bounds.
const POLLS_MAX: usize = 10_000_000;

/// One card whose wire leads back to it, or two cards on one wire.
pub struct Cards {
    connectors: Vec<Connector>,
    wire: OnceLock<Result<(), String>>,
}

impl Cards {
    /// A card alone. Checks that need a wire are run if what it sends comes back to it.
    pub fn one(card: Connector) -> Self {
        Self { connectors: vec![card], wire: OnceLock::new() }
    }

    /// Two cards on one wire. Checks of a single card are run with the first.
    pub fn two(first: Connector, second: Connector) -> Self {
        Self { connectors: vec![first, second], wire: OnceLock::new() }
    }

    /// Opens a card.
    pub(crate) fn open(&self, index: usize) -> Result<Card> {
        let function = (self.connectors[index])()?;
        // Two addresses of different kinds, so that queue pairs can use each.
        let end = index as u8 + 1;
        let mac = [2, 0, 0, 0, 0, end];
        let addresses = vec![Gid::from_ipv4([10, 0, 0, end].into()), Gid::from_mac(mac)];
        let options = Options { addresses, seed: Some(end.into()), ..Options::new(mac) };
        let device = Device::open(Arc::clone(&function), options)?;
        Ok(Card { device, function })
    }

    /// Opens the cards of both ends of the wire, which may be one card.
    pub(crate) fn open_both(&self) -> Result<[Card; 2]> {
        let first = self.open(0).context("card 0")?;
        let second =
            if self.connectors.len() == 1 { first.clone() } else { self.open(1).context("card 1")? };
        Ok([first, second])
    }

    /// Finds out, once, whether a message of one end reaches the other.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub(crate) fn wire(&self) -> Result<(), String> {
        let missing = |error: anyhow::Error| {
            let advice = match self.connectors.len() {
                1 => "lead its wire back to it, or name a second card on the same wire",
                _ => "join the cards by a wire",
            };
            format!("no message crosses the wire: {error:#}; {advice}")
        };
        self.wire.get_or_init(|| self.probe().map_err(missing)).clone()
    }

    /// Sends one message, with two retries after some ten microseconds each.
    fn probe(&self) -> Result<()> {
        let send = SendOptions { timeout: 2, retry_count: 2, ..SendOptions::default() };
        let connect = ConnectOptions { send, ..ConnectOptions::default() };
        let mut pair = Pair::with(self, &PairOptions { connect, ..PairOptions::default() })?;
        for end in &pair.ends {
            ensure!(end.card.device.link_up()?, "the port of a card has no link");
        }
        pair.post(
            0,
            SendRequest::write(0, pair.ends[1].domain.share(8, RemoteRights::WRITE)?.remote()).signalled(),
        )?;
        let done = pair.next(0)?;
        // Any answer of the peer shows that there is a wire.
        ensure!(done.status != CompletionStatus::RetryExceeded, "nobody answers");
        Ok(())
    }
}

/// An open card.
#[derive(Clone)]
pub(crate) struct Card {
    pub(crate) device: Device,
    pub(crate) function: Arc<dyn Function>,
}

impl Card {
    /// Bound of a wait for this card.
    pub(crate) fn patience(&self) -> Duration {
        PATIENCE.saturating_mul(self.function.time_scale())
    }

    /// Reads a register.
    pub(crate) fn read(&self, register: &Register) -> Result<u64> {
        Ok(self.function.bar(REGISTER_BAR)?.read64(register.offset.into()))
    }

    /// Writes a register.
    pub(crate) fn write(&self, register: &Register, value: u64) -> Result<()> {
        self.function.bar(REGISTER_BAR)?.write64(register.offset.into(), value);
        Ok(())
    }

    /// Change of a counter between two snapshots.
    pub(crate) fn counted(&self, before: &Counters, name: &str) -> Result<u64> {
        Ok(self.device.counters()?.get(name).wrapping_sub(before.get(name)))
    }

    pub(crate) fn completion_queue(&self, events: &EventQueue) -> Result<CompletionQueue> {
        Ok(self.device.create_completion_queue(events, &CompletionQueueOptions::default())?)
    }

    /// Waits for the next asynchronous event, which must be this one.
    pub(crate) fn event(&self, code: AsyncEvent, number: u32) -> Result<()> {
        let event = self.device.events().wait(self.patience())?;
        let event =
            event.with_context(|| format!("the event {} of {number:#x} does not come", code.name()))?;
        ensure!(
            (event.code, event.object_number) == (code, number),
            "the event is {} of {:#x} instead of {} of {number:#x}",
            event.code.name(),
            event.object_number,
            code.name()
        );
        Ok(())
    }
}

/// Parameters of a pair.
pub(crate) struct PairOptions {
    pub(crate) queues: QueuePairOptions,
    pub(crate) connect: ConnectOptions,
    pub(crate) path_mtu: Pmtu,
    /// Source address of both ends.
    pub(crate) address: u8,
    /// Added to the number of the peer that end 0 connects to, which then is that of nobody.
    pub(crate) stray: u32,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self {
            queues: QueuePairOptions::default(),
            connect: ConnectOptions::default(),
            path_mtu: Pmtu::Bytes4096,
            address: 0,
            stray: 0,
        }
    }
}

/// One end of a connection. It has a completion queue of its own, on the event queue of the device.
pub(crate) struct End {
    pub(crate) queue_pair: QueuePair<ReadyToSend>,
    pub(crate) completions: CompletionQueue,
    pub(crate) domain: ProtectionDomain,
    pub(crate) card: Card,
}

/// Two connected queue pairs, of two cards or of one.
pub(crate) struct Pair {
    pub(crate) ends: [End; 2],
}

/// Connects two queue pairs in INIT to each other.
pub(crate) fn connect(
    queue_pairs: [QueuePair<Init>; 2],
    options: &PairOptions,
) -> Result<[QueuePair<ReadyToSend>; 2]> {
    let mut infos = Vec::new();
    for queue_pair in &queue_pairs {
        let mut info = queue_pair.info(options.address.into())?;
        info.path_mtu = options.path_mtu;
        infos.push(info);
    }
    infos[1].qp_number ^= options.stray;
    let [first, second] = queue_pairs;
    let connect = |queue_pair: QueuePair<Init>, peer: usize| {
        let mut path = rnic_driver::Path::new(infos[peer].gid, infos[peer].mac);
        path.source_index = options.address;
        let connect = ConnectOptions { path: Some(path), ..options.connect };
        queue_pair.connect(&infos[peer], &connect)
    };
    Ok([connect(first, 1)?, connect(second, 0)?])
}

impl Pair {
    /// Opens the cards, and connects a queue pair of each with the default options.
    pub(crate) fn open(cards: &Cards) -> Result<Self> {
        Self::with(cards, &PairOptions::default())
    }

    /// As [`Self::open`], with options.
    pub(crate) fn with(cards: &Cards, options: &PairOptions) -> Result<Self> {
        Self::of(cards.open_both()?, options)
    }

    /// Connects a queue pair of each of two cards.
    pub(crate) fn of(cards: [Card; 2], options: &PairOptions) -> Result<Self> {
        let mut parts = Vec::new();
        let mut queue_pairs = Vec::new();
        for card in cards {
            let domain = card.device.create_protection_domain()?;
            let completions = card.completion_queue(&card.device.events())?;
            let queue_pair = domain.create_queue_pair(&completions, &completions, &options.queues)?;
            queue_pairs.push(queue_pair.initialize(RemoteRights::ALL)?);
            parts.push((completions, domain, card));
        }
        let Ok(queue_pairs) = <[_; 2]>::try_from(queue_pairs) else { bail!("a pair has two ends") };
        let queue_pairs = connect(queue_pairs, options)?;
        let ends = queue_pairs.into_iter().zip(parts).map(|(queue_pair, (completions, domain, card))| End {
            queue_pair,
            completions,
            domain,
            card,
        });
        let Ok(ends) = <[_; 2]>::try_from(ends.collect::<Vec<_>>()) else { bail!("a pair has two ends") };
        Ok(Self { ends })
    }

    /// Posts a send request at an end.
    pub(crate) fn post(&mut self, end: usize, request: SendRequest) -> Result<()> {
        Ok(self.ends[end].queue_pair.post_send(request)?)
    }

    /// Posts a receive with room for some bytes at an end.
    pub(crate) fn receive(&mut self, end: usize, wr_id: u64, bytes: usize) -> Result<()> {
        let mut request = ReceiveRequest::new(wr_id);
        if bytes != 0 {
            request = request.sge(self.ends[end].domain.allocate(bytes)?);
        }
        Ok(self.ends[end].queue_pair.post_receive(request)?)
    }

    /// Memory of an end with these bytes.
    pub(crate) fn memory(&self, end: usize, bytes: &[u8]) -> Result<Region> {
        memory(&self.ends[end].domain, bytes)
    }

    /// The next completion of an end.
    pub(crate) fn next(&self, end: usize) -> Result<Completion> {
        let End { completions, card, .. } = &self.ends[end];
        next(completions, card).with_context(|| format!("end {end}"))
    }

    /// The next completion of an end, which must be a success.
    pub(crate) fn success(&self, end: usize) -> Result<Completion> {
        let done = self.next(end)?;
        done.check().with_context(|| format!("end {end}"))?;
        Ok(done)
    }

    /// The next completion of an end, which must have failed like this.
    pub(crate) fn failure(&self, end: usize, wr_id: u64, status: CompletionStatus) -> Result<()> {
        let done = self.next(end)?;
        ensure!(
            (done.wr_id, done.status) == (wr_id, status),
            "end {end}: request {} completes with {} instead of {wr_id} with {}",
            done.wr_id,
            done.status.name(),
            status.name()
        );
        Ok(())
    }
}

/// The next completion of a queue.
pub(crate) fn next(completions: &CompletionQueue, card: &Card) -> Result<Completion> {
    let patience = card.patience();
    completions.spin(patience)?.with_context(|| format!("no completion within {patience:?}"))
}

/// Memory of a domain with these bytes; at least one byte.
pub(crate) fn memory(domain: &ProtectionDomain, bytes: &[u8]) -> Result<Region> {
    let mut region = domain.allocate(bytes.len().max(1))?;
    region.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Ok(region)
}

/// Bytes that tell a place and a message from all others.
pub(crate) fn pattern(salt: usize, length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 + place / 251 + salt * 77 + 1) as u8).collect()
}

/// Fails with the first place in which two messages differ.
pub(crate) fn same(what: &str, found: &[u8], expected: &[u8]) -> Result<()> {
    ensure!(found.len() == expected.len(), "{what}: {} bytes instead of {}", found.len(), expected.len());
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(place) => bail!(
            "{what}: byte {place} of {} is {:#04x} instead of {:#04x}",
            found.len(),
            found[place],
            expected[place]
        ),
    }
}

/// Polls until something is there.
pub(crate) fn until<T>(card: &Card, what: &str, mut find: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = card.function.now() + card.patience();
    for _ in 0..POLLS_MAX {
        if let Some(found) = find()? {
            return Ok(found);
        }
        if card.function.now() >= end {
            break;
        }
        card.function.idle();
    }
    bail!("{what}: not within {:?}", card.patience())
}
