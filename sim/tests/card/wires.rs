//! All operations on wires with faults, in both directions at once: each message is executed and completed once and in order, and
//! every byte is right (protocol 2.5 to 2.8, 3.2 to 3.5).
//!
//! A seed chooses a cell of the matrix, and 1,260 seeds in a row have each of them. One seed in seven has READs of up to 1 MiB:
//!
//! | Operations | Faults | Queue pairs | PMTU | READs in flight |
//! |---|---|---|---|---|
//! | SEND, WRITE, WRITE with immediate, READ, atomics, or all mixed | loss, duplication, reordering, corruption, delay, or all | 1 or 64 on each host | random | random |
//! | long READs, alone or among SENDs, WRITEs and atomics | the same | 1 | each of the five | 1, 4 or 16 |
//!
//! The model tells the result, as if the wire had no faults. Hosts are hostile. When the messages are done, the wire becomes perfect
//! and all objects are destroyed: the cards answer that only when nothing in flight can use them any more, and the world must come to
//! rest with every frame counted, every tag answered and every write done.
use crate::under_test::{card_options, pairs_of};
use crate::{hostile, judged, lock, quick};
use anyhow::{Result, ensure};
use rnic_layout::path::Pmtu;
use rnic_layout::registers::{REG_TIMER_UNIT, counter};
use rnic_layout::wire::DropReason;
use rnic_machine::function::two_cards;
use rnic_machine::host::Bar;
use rnic_machine::wire::{WireCounts, WireOptions};
use rnic_machine::world::CardOptions;
use rnic_stimulus::chance::{Delay, Seed};
use rnic_workloads::plan::{Kind, Retries};
use rnic_workloads::{Cards, Plan, PlanOptions, run};
use std::collections::BTreeSet;
use verilator_sys::Model;

/// Cycles of the core clock in a unit of the timers.
const UNIT: u64 = 16;
/// Microseconds, in picoseconds.
const US: u64 = 1_000_000;

/// Which messages are sent.
const OPERATIONS: [(&str, &[Kind]); 6] = [
    ("SEND", &Kind::SENDS),
    ("WRITE", &[Kind::Write]),
    ("WRITE with immediate", &[Kind::WriteImmediate]),
    ("READ", &[Kind::Read]),
    ("atomics", &[Kind::CompareSwap, Kind::FetchAdd]),
    ("mixed", &Kind::ALL),
];

/// What is sent where READs are long.
const LONG_OPERATIONS: [(&str, &[Kind]); 2] = [
    ("long READ", &[Kind::Read]),
    ("long READ, mixed", &[Kind::Send, Kind::Write, Kind::Read, Kind::FetchAdd]),
];
/// Maximum of bytes of a long READ, and of most of them.
const LONG_BYTES_MAX: usize = 1 << 20;
const LONG_BYTES_USUAL: usize = 64 << 10;
const PMTUS: &[Pmtu] = &Pmtu::ALL;
/// How many READs are in flight where they are long.
const LONG_IN_FLIGHT: [u8; 3] = [1, 4, 16];

/// How many queue pairs a host has.
#[derive(Clone, Copy)]
struct Size {
    pairs: usize,
    /// Messages of each in each direction.
    messages: usize,
    /// Bytes that a host has in flight.
    in_flight_bytes: usize,
    /// Timeout: T is 33 us for one queue pair, less than a request may wait in the card before it leaves, and 262 us for many, which
    /// wait for each other.
    timeout: u8,
}

const SIZES: [Size; 2] = [
    Size { pairs: 1, messages: 60, in_flight_bytes: 48 << 10, timeout: 9 },
    Size { pairs: 64, messages: 4, in_flight_bytes: 64 << 10, timeout: 12 },
];
/// A READ that is asked for again for no reason holds up what is behind it for as long as all its responses take.
const LONG: Size = Size { pairs: 1, messages: 20, in_flight_bytes: 2 << 20, timeout: 12 };

/// What a wire does to frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Loss,
    Duplication,
    Reordering,
    Corruption,
    Delay,
    All,
}

impl Fault {
    const EACH: [Fault; 6] =
        [Fault::Loss, Fault::Duplication, Fault::Reordering, Fault::Corruption, Fault::Delay, Fault::All];

    /// `scale` is the part of the usual probabilities.
    fn apply(self, perfect: WireOptions, scale: f64) -> WireOptions {
        let has = |fault| self == fault || self == Fault::All;
        let scale = if self == Fault::All { 0.4 * scale } else { scale };
        let share = |fault, probability: f64| if has(fault) { scale * probability } else { 0.0 };
        let late = share(Fault::Delay, 0.03);
        WireOptions {
            loss: share(Fault::Loss, 0.05),
            duplicate: share(Fault::Duplication, 0.1),
            reorder: share(Fault::Reordering, 0.1),
            reorder_delay: Delay::Uniform { min_ps: US / 5, max_ps: 20 * US },
            flip: share(Fault::Corruption, 0.03),
            damage: share(Fault::Corruption, 0.02),
            // What is behind a late frame is as late, so this is more than a timeout at times.
            delay: Delay::Tail { usual_ps: US / 2, probability: late, max_ps: 100 * US },
            ..perfect
        }
    }

    /// How many frames it has met, as far as the wire counts that.
    fn met(self, counts: &WireCounts) -> Option<u64> {
        Some(match self {
            Fault::Loss => counts.lost,
            Fault::Duplication => counts.duplicated,
            Fault::Reordering => counts.reordered,
            Fault::Corruption => counts.flipped + counts.damaged,
            Fault::Delay => return None,
            Fault::All => counts.lost + counts.duplicated + counts.reordered + counts.flipped,
        })
    }
}

/// READs that are long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Long {
    pmtu: Pmtu,
    in_flight: u8,
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    operations: usize,
    fault: Fault,
    size: usize,
    long: Option<Long>,
}

impl Cell {
    /// Seven seeds in a row have each kind of operations once, 84 also each fault and size, and 1,260 each cell.
    fn new(seed: u64) -> Cell {
        let (row, turn) = (seed % 7, seed / 7);
        let fault = |number: u64| Fault::EACH[(number % 6) as usize];
        if row == 0 {
            // Five and six have no common divisor, so thirty turns have each fault at each PMTU.
            let pmtu = Pmtu::ALL[((turn + 2) % 5) as usize];
            let in_flight = LONG_IN_FLIGHT[(turn / 30 % 3) as usize];
            let long = Some(Long { pmtu, in_flight });
            return Cell { operations: (turn / 90 % 2) as usize, fault: fault(turn), size: 0, long };
        }
        let (low, middle, high) = (row - 1, turn % 6, turn / 6 % 2);
        let size = ((low + middle / 2 + high) % 2) as usize;
        Cell { operations: low as usize, fault: fault(low + middle), size, long: None }
    }

    /// Name and kinds of its operations.
    fn operations(&self) -> (String, &'static [Kind]) {
        let Some(Long { pmtu, in_flight }) = self.long else {
            let (name, kinds) = OPERATIONS[self.operations];
            return (name.into(), kinds);
        };
        let (name, kinds) = LONG_OPERATIONS[self.operations];
        (format!("{name}, {in_flight} in flight, {} B", pmtu.bytes()), kinds)
    }

    /// How many queue pairs it has, and what they send.
    fn plan(&self) -> (Size, PlanOptions) {
        let size = if self.long.is_some() { LONG } else { SIZES[self.size] };
        let Size { pairs, messages, in_flight_bytes, timeout } = size;
        let (_, kinds) = self.operations();
        let retries = Retries { timeout, retry_count: 7, rnr_retry: 7 };
        let usual =
            PlanOptions { kinds, in_flight_bytes, retries, ..PlanOptions::faultless(pairs, messages) };
        let options = self.long.map_or(usual, |Long { pmtu, in_flight }| PlanOptions {
            pmtus: &PMTUS[pmtu as usize - 1..pmtu as usize],
            message_bytes_max: LONG_BYTES_MAX,
            packets_usual: LONG_BYTES_USUAL / pmtu.bytes() as usize,
            window_bytes: LONG_BYTES_MAX + 1,
            reads: Some(in_flight),
            ..usual
        });
        (size, options)
    }

    /// Part of the usual probabilities of faults: where messages are long, about as many meet a byte at each PMTU.
    fn scale(&self) -> f64 {
        self.long.map_or(1.0, |long| f64::from(long.pmtu.bytes()) / f64::from(Pmtu::Bytes4096.bytes()))
    }
}

#[test]
fn the_seeds_of_a_soak_have_each_cell() {
    let cells: BTreeSet<Cell> = (0..1260).map(Cell::new).collect();
    let long = cells.iter().filter(|cell| cell.long.is_some()).count();
    assert_eq!((cells.len() - long, long), (72, 5 * 3 * 6 * 2));
    let operations = |seeds: std::ops::Range<u64>| -> BTreeSet<String> {
        seeds.map(|seed| Cell::new(seed).operations().0).collect()
    };
    assert_eq!(operations(0..7).len(), 7);
}

/// Runs the cell of a seed, and returns a line that says what has happened.
pub(crate) fn cell(model: &Model, width_bits: u32, seed: u64) -> Result<String> {
    let cell = Cell::new(seed);
    let (Size { pairs, .. }, options) = cell.plan();
    let pairs = pairs_of(width_bits, pairs)?;
    let options = PlanOptions { pairs, ..options };
    let plan = Plan::new(seed, &options);
    let hosts = hostile(Seed(seed));
    let standard = card_options(width_bits)?;
    let cards = hosts.map(|host| CardOptions { host: quick(host), ..standard });
    let perfect = cards[0].wire();
    let (world, functions) = two_cards(model, cards, perfect, seed)?;
    lock(&world).take_turns(true);
    let mut cards = Cards::open(&plan, functions)?;
    lock(&world).take_turns(false);
    for (card, host) in hosts.into_iter().enumerate() {
        let mut world = lock(&world);
        world.write_register(card, Bar::Registers, REG_TIMER_UNIT.offset.into(), UNIT)?;
        world.host_mut(card).set_options(host);
        world.direction_mut(0, card).set_options(cell.fault.apply(perfect, cell.scale()));
    }
    let begin_ps = lock(&world).now_ps();
    let outcome = judged(&world, run(&plan, &mut cards));
    let totals = outcome.map_err(|error| error.context(format!("{cell:?}")))?;
    let mut sent = 0;
    let mut met = cell.fault.met(&WireCounts::default()).map(|_| 0);
    let microseconds = (lock(&world).now_ps() - begin_ps) / US;
    for (card, host) in hosts.into_iter().enumerate() {
        let mut world = lock(&world);
        world.host_mut(card).set_options(quick(host));
        let counts = world.wire_counts(0)[card];
        sent += counts.sent;
        met = met.zip(cell.fault.met(&counts)).map(|(sum, more)| sum + more);
        world.direction_mut(0, card).set_options(perfect);
    }
    ensure!(met != Some(0), "{cell:?}: no frame has met the fault");
    ensure!(totals.messages == plan.messages() as u64, "{totals:?}");
    let [mut again, mut timeouts, mut full] = [0; 3];
    for card in 0..2 {
        let values = lock(&world).counters(card)?;
        again += values[counter("packets_retransmitted")];
        timeouts += values[counter("timeout")];
        full += DropReason::WITHOUT_ROOM.map(|reason| values[counter(reason.name())]).iter().sum::<u64>();
    }
    // Frames that are late, and acknowledgements that wait for host writes, must have arrived before a card is closed.
    lock(&world).run_for(200 * US)?;
    drop(cards);
    lock(&world).finish()?;
    let (name, _) = cell.operations();
    Ok(format!(
        "{name}, {:?}, {pairs} queue pairs: {} messages in {microseconds} us, {sent} frames, of which {} met the fault; {again} sent \
         again, {timeouts} timeouts, {full} without room",
        cell.fault,
        totals.messages,
        met.map_or("some".to_string(), |met| met.to_string())
    ))
}
