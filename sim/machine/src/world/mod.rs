//! A world: cards with their hosts, stations, and the wires between them, under one seed.
//!
//! ```text
//!   host0 ── card0 ── wire ── card1 ── host1        software steps the world and waits for nothing else
//!   host2 ── card2 ── wire ── station
//! ```
//!
//! A call of [`World::step`] processes one event: a clock edge of one card, the arrival of a frame, or the wake-up of a
//! station. Time is counted in picoseconds. Simultaneous events are processed in a fixed order: arrivals, by wire; stations;
//! clocks, by card and [`Domain`]. All random choices come from the seed, so that a run can be repeated exactly.
//!
//! Monitors watch all the time. The first violation ends [`run_for`](World::run_for), [`run_until`](World::run_until) and the
//! register accesses with a [`Failure`]; [`finish`](World::finish) also checks that nothing is left. A test that expects a
//! violation takes it from the card's [`log_mut`](Card::log_mut) before the next check.
//!
//! | Variable | Meaning |
//! |---|---|
//! | `RNIC_FAILURES` | folder for the captures that a failing run leaves, by default `failures` in Cargo's target folder |
//! | `RNIC_TRACE` | folder for waves: if it is set, [`model_options`] builds models that write them |
pub mod card;
pub mod clock;
pub mod failure;
mod fst;

pub use card::{Card, CardOptions, Domain};
pub use clock::{Clock, ClockOptions};
pub use failure::Failure;

use crate::host::{AccessError, Bar, Host, Operation, RegisterAccess, Ticket};
use crate::monitor::counters::Seen;
use crate::monitor::pools::{self, Remains};
use crate::wire::record::Recorder;
use crate::wire::{Direction, Frame, Station, WireCounts, WireOptions};
use anyhow::{Context, Result, ensure};
use rnic_layout::registers::{
    COUNTERS, Control, POOLS, REG_CONTROL, REG_COUNTER_LATCH, REG_STATUS, Status, counter_offset, pool_offset,
};
use rnic_stimulus::chance::Seed;
use std::any::Any;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;
use thiserror::Error;
use verilator_sys::{Model, ModelOptions};

/// Simulated time after which software gives up an access, far longer than the slave may take.
const ACCESS_PS_MAX: u64 = 100_000_000;
/// Cycles of the slowest core clock within which a world must come to rest at its end.
const DRAIN_CYCLES_MAX: u64 = 250_000;
/// Cycles of the slowest core clock for which cards at rest must stay at rest.
const SETTLE_CYCLES: u64 = 500;
/// Cycles of the core clock within which a card at rest must have given back what its pools hold, if its last work was not seen at
/// its ports.
const GIVE_BACK_CYCLES_MAX: u64 = 5_000;

/// Simulated time within which a function-level reset must be done, as PCI Express has it.
const FUNCTION_RESET_PS_MAX: u64 = 100_000_000_000;
/// MAC address of the board of card 0, a locally administered one, as a number. The others count on.
pub const FIRST_MAC: u64 = 0x0200_0000_0000;

/// An end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The network port of a card, by index.
    Card(usize),
    /// A station, by index.
    Station(usize),
}

/// A wire. Direction 0 goes from the first port to the second, direction 1 back.
struct Wire {
    ports: [Port; 2],
    directions: [Direction; 2],
}

/// A station, and the time at which its end of the wire is free.
struct Peer {
    station: Box<dyn Station>,
    free_ps: u64,
    /// Frames on their way to the station, with the times at which they have arrived completely.
    arriving: std::collections::VecDeque<(u64, Frame)>,
    recorder: Recorder,
}

/// What a function-level reset waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResetPhase {
    /// The answers to register accesses that were made before.
    Accesses,
    /// The acknowledgement of the card.
    Asked,
    /// Its end.
    Answered { is_done: bool },
}

/// A function-level reset that is under way.
#[derive(Debug)]
pub struct FunctionReset {
    card: usize,
    phase: ResetPhase,
    /// Time at which the phase ends whatever the card does.
    end_ps: u64,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival { wire: usize, direction: usize },
    Whole { station: usize },
    Wake { station: usize },
    Edge { card: usize, domain: Domain },
}

/// Why a register access of software failed.
#[derive(Debug, Error)]
pub enum RegisterError {
    /// The slave refused the access, or did not answer.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A monitor saw a violation meanwhile.
    #[error(transparent)]
    Failure(#[from] Box<Failure>),
}

/// Cards, stations, wires, and simulated time.
pub struct World {
    seed: Seed,
    name: String,
    now_ps: u64,
    cards: Vec<Card>,
    card_recorders: Vec<Recorder>,
    stations: Vec<Peer>,
    wires: Vec<Wire>,
    /// Wire and end of it, for each card and each station.
    card_wires: Vec<Option<(usize, usize)>>,
    station_wires: Vec<Option<(usize, usize)>>,
    has_left_evidence: bool,
    /// Only one card runs at a time.
    takes_turns: bool,
    events: u64,
}

/// Adds tracing to the options of a model if `RNIC_TRACE` is set.
pub fn model_options(options: ModelOptions) -> ModelOptions {
    ModelOptions { trace: options.trace || failure::trace_folder().is_some(), ..options }
}

impl World {
    /// Makes an empty world.
    pub fn new(seed: u64) -> World {
        World {
            seed: Seed(seed),
            name: failure::run_name(),
            now_ps: 0,
            cards: Vec::new(),
            card_recorders: Vec::new(),
            stations: Vec::new(),
            wires: Vec::new(),
            card_wires: Vec::new(),
            station_wires: Vec::new(),
            has_left_evidence: false,
            takes_turns: false,
            events: 0,
        }
    }

    /// Seed of this run.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Simulated time, in picoseconds.
    pub fn now_ps(&self) -> u64 {
        self.now_ps
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Adds a card, which leaves reset as time advances, and returns its index.
    ///
    /// # Errors
    /// If the model is not a card, or its waveform cannot be written.
    pub fn add_card(&mut self, model: &Model, options: CardOptions) -> Result<usize> {
        let index = self.cards.len();
        let name = format!("card{index}");
        let mut card = Card::new(model, options, self.now_ps, self.seed, &name)?;
        card.set_permanent_mac(FIRST_MAC + index as u64);
        if let Some(folder) = failure::trace_folder() {
            std::fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
            card.trace(&folder.join(self.file_name(&name, "fst")))?;
        }
        self.cards.push(card);
        self.card_recorders.push(Recorder::default());
        self.card_wires.push(None);
        Ok(index)
    }

    /// Sets whether cards take turns. If they do, only the clocks of the card run for which software waits, which saves the
    /// evaluation of the others while software sets up one card after the other.
    pub fn take_turns(&mut self, takes_turns: bool) {
        self.takes_turns = takes_turns;
        let now_ps = self.now_ps;
        self.cards.iter_mut().for_each(|card| card.let_run(now_ps, !takes_turns));
    }

    /// Notes that software waits for a card.
    pub(crate) fn wait_for(&mut self, card: usize) {
        if self.takes_turns {
            let now_ps = self.now_ps;
            for (index, one) in self.cards.iter_mut().enumerate() {
                one.let_run(now_ps, index == card);
            }
        }
    }

    /// Adds a station and returns its index.
    pub fn add_station(&mut self, station: impl Station) -> usize {
        let peer = Peer {
            station: Box::new(station),
            free_ps: 0,
            arriving: Default::default(),
            recorder: Recorder::default(),
        };
        self.stations.push(peer);
        self.station_wires.push(None);
        self.stations.len() - 1
    }

    /// Connects two ports by a wire and returns its index; direction 0 goes from the first to the second.
    ///
    /// # Errors
    /// If a port does not exist or has a wire, or the wire's rate is not that of the card.
    pub fn connect(&mut self, first: Port, second: Port, options: WireOptions) -> Result<usize> {
        let index = self.wires.len();
        ensure!(first != second, "a wire has two ends");
        for (end, port) in [first, second].into_iter().enumerate() {
            let place = match port {
                Port::Card(card) => {
                    let rate = self.cards.get(card).map(|card| card.options().bits_per_second);
                    let is_equal = rate.is_none_or(|rate| rate == options.bits_per_second);
                    ensure!(is_equal, "{port:?} has another rate than the wire");
                    self.card_wires.get_mut(card)
                }
                Port::Station(station) => self.station_wires.get_mut(station),
            };
            let place = place.with_context(|| format!("{port:?} is not there"))?;
            ensure!(place.is_none(), "{port:?} has a wire");
            *place = Some((index, end));
        }
        let direction = |end: usize| Direction::new(options, self.seed, &format!("wire{index}/{end}"));
        self.wires.push(Wire { ports: [first, second], directions: [direction(0), direction(1)] });
        Ok(index)
    }

    /// Returns a card.
    ///
    /// # Panics
    /// If no card has this index, as with the other accessors.
    pub fn card(&self, card: usize) -> &Card {
        &self.cards[card]
    }

    /// Returns a card.
    pub fn card_mut(&mut self, card: usize) -> &mut Card {
        &mut self.cards[card]
    }

    /// Returns the host of a card.
    pub fn host(&self, card: usize) -> &Host {
        self.cards[card].host()
    }

    /// Returns the host of a card.
    pub fn host_mut(&mut self, card: usize) -> &mut Host {
        self.cards[card].host_mut()
    }

    /// Number of cards.
    pub fn cards(&self) -> usize {
        self.cards.len()
    }

    /// Number of wires.
    pub fn wires(&self) -> usize {
        self.wires.len()
    }

    /// Returns a station as its own type.
    ///
    /// # Panics
    /// If the station of this index is not a `T`.
    pub fn station<T: Station>(&mut self, station: usize) -> &mut T {
        let any: &mut dyn Any = &mut *self.stations[station].station;
        any.downcast_mut().expect("the station is of this type")
    }

    /// What stations wait for though simulated time does not advance.
    pub fn handles(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.stations.iter().filter_map(|peer| peer.station.handle())
    }

    /// Lets stations do what is due in wall-clock time. Returns the time of the next call, if one is needed before there is something
    /// to read at a [handle](Self::handles).
    pub fn attend_stations(&mut self, now: Instant) -> Option<Instant> {
        self.stations.iter_mut().filter_map(|peer| peer.station.attend(now)).min()
    }

    /// Takes remarks of stations, and losses of captures.
    pub fn take_remarks(&mut self) -> (Vec<String>, Vec<String>) {
        let recorders = self.card_recorders.iter_mut();
        let recorders = recorders.chain(self.stations.iter_mut().map(|peer| &mut peer.recorder));
        let losses = recorders.filter_map(Recorder::take_loss).collect();
        let remarks = self.stations.iter_mut().flat_map(|peer| std::iter::from_fn(|| peer.station.remark()));
        (remarks.collect(), losses)
    }

    /// Ends captures and waves. Returns what they miss.
    pub fn end_files(&mut self) -> Vec<String> {
        let recorders = self.card_recorders.iter_mut();
        let recorders = recorders.chain(self.stations.iter_mut().map(|peer| &mut peer.recorder));
        recorders.for_each(Recorder::end_capture);
        let mut losses: Vec<String> = self.cards.iter_mut().filter_map(Card::end_trace).collect();
        losses.extend(self.take_remarks().1);
        losses
    }

    /// Returns one direction of a wire, for example to change its faults or to set a script.
    pub fn direction_mut(&mut self, wire: usize, direction: usize) -> &mut Direction {
        &mut self.wires[wire].directions[direction]
    }

    /// Counts of the frames of a wire, by direction.
    pub fn wire_counts(&self, wire: usize) -> [WireCounts; 2] {
        self.wires[wire].directions.each_ref().map(Direction::counts)
    }

    /// Writes all frames that cross a port from now on to a pcap file with nanosecond timestamps.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn capture(&mut self, port: Port, path: &Path) -> Result<()> {
        match port {
            Port::Card(card) => self.card_recorders[card].capture(path),
            Port::Station(station) => self.stations[station].recorder.capture(path),
        }
    }

    /// The next event and its time.
    fn next(&self) -> Option<(u64, Event)> {
        let mut next: Option<(u64, Event)> = None;
        let mut offer = |time_ps: u64, event: Event| {
            if next.is_none_or(|(best_ps, _)| time_ps < best_ps) {
                next = Some((time_ps, event));
            }
        };
        for (wire, both) in self.wires.iter().enumerate() {
            for (direction, one) in both.directions.iter().enumerate() {
                if let Some(time_ps) = one.next_ps() {
                    offer(time_ps, Event::Arrival { wire, direction });
                }
            }
        }
        for (station, peer) in self.stations.iter().enumerate() {
            if let Some((time_ps, _)) = peer.arriving.front() {
                offer(*time_ps, Event::Whole { station });
            }
            if let Some(time_ps) = peer.station.wakes_ps() {
                offer(time_ps.max(peer.free_ps), Event::Wake { station });
            }
        }
        for (card, one) in self.cards.iter().enumerate().filter(|(_, one)| one.runs()) {
            let (time_ps, domain) = one.next_edge();
            offer(time_ps, Event::Edge { card, domain });
        }
        next
    }

    /// Processes one event. Returns false if there is none, as in a world without cards.
    pub fn step(&mut self) -> bool {
        let Some((time_ps, event)) = self.next() else { return false };
        self.now_ps = self.now_ps.max(time_ps);
        self.events += 1;
        let now_ps = self.now_ps;
        match event {
            Event::Edge { card, domain } => {
                if let Some(departure) = self.cards[card].edge(now_ps, domain) {
                    self.card_recorders[card].frame(now_ps, &departure.frame);
                    let place = self.card_wires[card];
                    self.cards[card].judge(now_ps, place, &departure.frame);
                    if let Some((wire, end)) = place {
                        self.send(wire, end, departure.start_ps, departure.frame);
                    }
                }
            }
            Event::Arrival { wire, direction } => self.arrive(wire, direction),
            Event::Whole { station } => {
                let peer = &mut self.stations[station];
                if let Some((_, frame)) = peer.arriving.pop_front() {
                    peer.recorder.frame(now_ps, &frame);
                    peer.station.receive(now_ps, &frame);
                }
            }
            Event::Wake { station } => self.wake(station),
        }
        true
    }

    fn arrive(&mut self, wire: usize, direction: usize) {
        let now_ps = self.now_ps;
        let both = &mut self.wires[wire];
        let rate = both.directions[direction].options().bits_per_second;
        let Some((start_ps, frame)) = both.directions[direction].arrive(now_ps) else { return };
        match both.ports[1 - direction] {
            Port::Card(card) => {
                self.card_recorders[card].frame(now_ps, &frame);
                self.cards[card].arrive(start_ps, frame);
            }
            Port::Station(station) => {
                let whole_ps = start_ps + frame.duration_ps(rate);
                self.stations[station].arriving.push_back((whole_ps, frame));
            }
        }
    }

    fn wake(&mut self, station: usize) {
        let now_ps = self.now_ps;
        let peer = &mut self.stations[station];
        let Some(frame) = peer.station.transmit(now_ps) else {
            // A station that stays due without sending would stop time.
            let still = peer.station.wakes_ps().is_some_and(|wakes_ps| wakes_ps <= now_ps);
            assert!(!still, "station {station} is due at {now_ps} ps and does nothing");
            return;
        };
        peer.recorder.frame(now_ps, &frame);
        if let Some((wire, end)) = self.station_wires[station] {
            let rate = self.wires[wire].directions[end].options().bits_per_second;
            peer.free_ps = now_ps + frame.duration_ps(rate);
            self.send(wire, end, now_ps, frame);
        }
    }

    /// Sends a frame on a wire. The cards at its ends may repeat requests if the wire does not deliver it as it was sent.
    fn send(&mut self, wire: usize, end: usize, start_ps: u64, frame: Frame) {
        let Wire { ports, directions } = &mut self.wires[wire];
        if directions[end].send(self.now_ps, start_ps, frame) {
            return;
        }
        for port in ports {
            if let Port::Card(card) = *port {
                self.cards[card].host_mut().port_mut().fault();
            }
        }
    }

    /// Returns whether a monitor has seen a violation, or the card an access that was refused.
    fn is_violated(&self) -> bool {
        self.cards.iter().any(|card| !card.log().violations().is_empty())
    }

    /// Fails if a monitor has seen a violation, or a station cannot go on.
    ///
    /// # Errors
    /// A [`Failure`] with all violations.
    pub fn check(&mut self) -> Result<(), Box<Failure>> {
        if self.is_violated() {
            return Err(self.failure("a rule is violated"));
        }
        let broken = self.stations.iter().enumerate();
        let broken = broken.filter_map(|(index, peer)| Some((index, peer.station.failure()?))).next();
        match broken {
            Some((index, text)) => Err(self.failure(&format!("station {index}: {text}"))),
            None => Ok(()),
        }
    }

    /// Advances time.
    ///
    /// # Errors
    /// If a monitor sees a violation.
    pub fn run_for(&mut self, time_ps: u64) -> Result<(), Box<Failure>> {
        let end_ps = self.now_ps + time_ps;
        while self.next().is_some_and(|(next_ps, _)| next_ps <= end_ps) {
            self.step();
            self.check()?;
        }
        self.now_ps = end_ps;
        Ok(())
    }

    /// Advances time until a condition holds, which is evaluated after each event.
    ///
    /// # Errors
    /// If it does not hold within `limit_ps`, or a monitor sees a violation.
    pub fn run_until(
        &mut self,
        what: &str,
        limit_ps: u64,
        mut is_true: impl FnMut(&mut World) -> bool,
    ) -> Result<(), Box<Failure>> {
        let end_ps = self.now_ps + limit_ps;
        while !is_true(self) {
            if self.now_ps >= end_ps || !self.step() {
                return Err(self.failure(&format!("{what}: not within {limit_ps} ps")));
            }
            self.check()?;
        }
        Ok(())
    }

    /// Advances time until all cards have left reset.
    ///
    /// # Errors
    /// If they do not, or a monitor sees a violation.
    pub fn leave_reset(&mut self) -> Result<(), Box<Failure>> {
        self.run_until("cards leave reset", self.cycles_ps(DRAIN_CYCLES_MAX), |world| {
            world.cards.iter().all(|card| !card.is_in_reset())
        })
    }

    /// Runs the world until the card has answered all register accesses, as far as it answers: no access of the configuration space
    /// passes a posted write.
    fn finish_accesses(&mut self, card: usize) {
        self.wait_for(card);
        let end_ps = self.now_ps + ACCESS_PS_MAX;
        while self.cards[card].host().registers_under_way() > 0 && self.now_ps < end_ps && self.step() {}
    }

    /// Gives a card the right to be bus master, or takes it, after all register writes that were made before.
    pub fn set_bus_master(&mut self, card: usize, is_master: bool) {
        self.finish_accesses(card);
        self.cards[card].set_bus_master(is_master);
    }

    /// Resets the function of a card: asks for it, and runs the world until the card says that it is done. Returns whether it has, within
    /// the time that PCI Express gives it.
    pub fn reset_function(&mut self, card: usize) -> bool {
        let mut reset = self.begin_reset(card);
        loop {
            if let Some(is_done) = self.continue_reset(&mut reset) {
                return is_done;
            }
            self.step();
        }
    }

    /// Begins to reset the function of a card, as [`reset_function`](Self::reset_function) does, without running the world.
    pub fn begin_reset(&mut self, card: usize) -> FunctionReset {
        self.wait_for(card);
        FunctionReset { card, phase: ResetPhase::Accesses, end_ps: self.now_ps + ACCESS_PS_MAX }
    }

    /// Goes on with a reset after the world has run. Returns whether the card has done it, when that is known.
    pub fn continue_reset(&mut self, reset: &mut FunctionReset) -> Option<bool> {
        let now_ps = self.now_ps;
        let card = &mut self.cards[reset.card];
        // The phases of a card that does not answer end in time, too.
        let is_over = now_ps >= reset.end_ps;
        if reset.phase == ResetPhase::Accesses && (is_over || card.host().registers_under_way() == 0) {
            card.request_reset(now_ps, true);
            reset.phase = ResetPhase::Asked;
            reset.end_ps = now_ps + FUNCTION_RESET_PS_MAX;
        } else if reset.phase == ResetPhase::Asked && (is_over || card.reset_is_done()) {
            reset.phase = ResetPhase::Answered { is_done: card.reset_is_done() };
            card.request_reset(now_ps, false);
        }
        match reset.phase {
            // The handshake is over when the card has seen the end of the request.
            ResetPhase::Answered { is_done } if is_over || !card.reset_is_done() => Some(is_done),
            _ => None,
        }
    }

    /// Starts a register access without waiting for it. A posted one has no answer.
    pub fn start_access(&mut self, card: usize, access: RegisterAccess, is_posted: bool) -> Ticket {
        let now_ps = self.now_ps;
        self.cards[card].host_mut().start(now_ps, access, is_posted)
    }

    /// Makes a register access and runs the world until it is answered.
    ///
    /// # Errors
    /// If the slave refuses or does not answer in time, or a monitor sees a violation.
    pub fn access(&mut self, card: usize, access: RegisterAccess) -> Result<u64, RegisterError> {
        self.wait_for(card);
        let ticket = self.start_access(card, access, false);
        let end_ps = self.now_ps + ACCESS_PS_MAX;
        loop {
            let now_ps = self.now_ps;
            if let Some(answer) = self.cards[card].host_mut().registers_mut().take_answer(now_ps, ticket) {
                return Ok(answer?);
            }
            if now_ps > end_ps {
                return Err(self.failure(&format!("{access:?}: no answer")).into());
            }
            self.step();
            self.check()?;
        }
    }

    /// Reads a register of eight bytes.
    ///
    /// # Errors
    /// As [`access`](Self::access).
    pub fn read_register(&mut self, card: usize, bar: Bar, offset: u64) -> Result<u64, RegisterError> {
        self.access(card, RegisterAccess { bar, offset, operation: Operation::Read })
    }

    /// Writes a register of eight bytes, and waits for the response.
    ///
    /// # Errors
    /// As [`access`](Self::access).
    pub fn write_register(
        &mut self,
        card: usize,
        bar: Bar,
        offset: u64,
        value: u64,
    ) -> Result<(), RegisterError> {
        let operation = Operation::Write { value, strobe: 0xff };
        self.access(card, RegisterAccess { bar, offset, operation }).map(drop)
    }

    /// Writes eight bytes without waiting, as a driver writes a doorbell.
    pub fn post_register(&mut self, card: usize, bar: Bar, offset: u64, value: u64) {
        let operation = Operation::Write { value, strobe: 0xff };
        self.start_access(card, RegisterAccess { bar, offset, operation }, true);
    }

    /// Takes a snapshot of all counters of a card and returns their values, in the order of [`COUNTERS`]. If they do not explain why
    /// the card has sent requests again, that is a violation, which ends the run at the next check.
    ///
    /// # Errors
    /// As [`access`](Self::access).
    pub fn counters(&mut self, card: usize) -> Result<Vec<u64>, RegisterError> {
        let latch = REG_COUNTER_LATCH.offset.into();
        let unexplained = self.cards[card].unexplained();
        self.write_register(card, Bar::Registers, latch, 1)?;
        let end_ps = self.now_ps + ACCESS_PS_MAX;
        while self.read_register(card, Bar::Registers, latch)? != 0 {
            if self.now_ps > end_ps {
                return Err(self.failure("the snapshot of the counters does not end").into());
            }
        }
        let mut read = |index| self.read_register(card, Bar::Registers, counter_offset(index).into());
        let values = (0..COUNTERS.len()).map(&mut read).collect::<Result<Vec<u64>, _>>()?;
        self.cards[card].check_unexplained(self.card_wires[card], unexplained, &values);
        Ok(values)
    }

    /// Reads the levels of all pools of a card, in the order of [`POOLS`].
    ///
    /// # Errors
    /// As [`access`](Self::access).
    pub fn pools(&mut self, card: usize) -> Result<Vec<u64>, RegisterError> {
        let mut read = |index| self.read_register(card, Bar::Registers, pool_offset(index).into());
        (0..POOLS.len()).map(&mut read).collect()
    }

    /// Checks that a card at rest has given back what work has taken from its pools. One that has failed is not asked: it keeps what
    /// it was at work on until it is reset.
    fn check_pools(&mut self, card: usize) -> Result<(), RegisterError> {
        let status = self.read_register(card, Bar::Registers, REG_STATUS.offset.into())?;
        if Status::parse(&status.to_le_bytes()).is_ok_and(|status| status.fatal) {
            return Ok(());
        }
        let control = self.read_register(card, Bar::Registers, REG_CONTROL.offset.into())?;
        let runs =
            Control::parse(&control.to_le_bytes()).is_ok_and(|control| control.enable && !control.quiesce);
        let remains = Remains { stopped: !runs, ..self.cards[card].host_mut().remains() };
        let end_ps = self.now_ps + self.cards[card].options().rates().cycles_ps(GIVE_BACK_CYCLES_MAX);
        loop {
            let levels = self.pools(card)?;
            if pools::occupied(&levels, remains).next().is_none() || self.now_ps > end_ps {
                let now_ps = self.now_ps;
                self.cards[card].check_pools(now_ps, &levels, remains);
                return Ok(());
            }
        }
    }

    /// Checks the pools of a card before software resets it, which gives back whatever is held: if no queue pair is left, and if
    /// the world comes to rest. A driver that closes its card does this; one that dies, or resets a card at work, is not judged.
    pub(crate) fn check_before_reset(&mut self, card: usize) {
        let end_ps = self.now_ps + self.cards[card].options().rates().cycles_ps(GIVE_BACK_CYCLES_MAX);
        while !self.cards[card].host_mut().remains().queues && self.now_ps < end_ps {
            if self.unrest().is_none() && self.cards[card].host().registers_under_way() == 0 {
                // What the registers refuse, the reset finds refused, too.
                let _ = self.check_pools(card);
                return;
            }
            if !self.step() {
                return;
            }
        }
    }

    /// Runs the world until it is at rest, and checks what must hold then: nothing is in flight, the pools of the cards are in their
    /// first state, the counters account for every frame and for requests that were sent again, and a test has taken each refused
    /// access.
    ///
    /// # Errors
    /// If the world does not come to rest, or a rule is violated.
    pub fn finish(&mut self) -> Result<(), RegisterError> {
        self.rest()?;
        for card in 0..self.cards.len() {
            self.check_pools(card)?;
            let snapshot = self.counters(card)?;
            let now_ps = self.now_ps;
            let card = &mut self.cards[card];
            card.check_counters(now_ps, &snapshot);
            card.check_end(now_ps);
        }
        Ok(self.check()?)
    }

    /// Runs the world until it is at rest, and excuses cards from counting what came while they were reset, since their ports had seen
    /// `since`, one for each card.
    ///
    /// # Errors
    /// As [`finish`](Self::finish), and if a reset does not explain what a card has not counted.
    pub fn excuse_resets(&mut self, since: &[Seen]) -> Result<(), RegisterError> {
        self.rest()?;
        for (card, since) in since.iter().enumerate() {
            let snapshot = self.counters(card)?;
            self.cards[card].excuse(self.now_ps, &snapshot, since);
        }
        Ok(self.check()?)
    }

    /// Time of so many cycles of the slowest core clock, in picoseconds.
    fn cycles_ps(&self, cycles: u64) -> u64 {
        let times = self.cards.iter().map(|card| card.options().rates().cycles_ps(cycles));
        times.max().unwrap_or(0)
    }

    /// Runs the world until it is at rest.
    fn rest(&mut self) -> Result<(), Box<Failure>> {
        let mut quiet_since_ps = self.now_ps;
        let end_ps = self.now_ps + self.cycles_ps(DRAIN_CYCLES_MAX);
        let settle_ps = self.cycles_ps(SETTLE_CYCLES);
        while self.now_ps < quiet_since_ps + settle_ps {
            if !self.step() {
                break;
            }
            self.check()?;
            if let Some(unrest) = self.unrest() {
                quiet_since_ps = self.now_ps;
                if self.now_ps >= end_ps {
                    // The log of each card says what stays in flight.
                    let now_ps = self.now_ps;
                    self.cards.iter_mut().for_each(|card| card.check_end(now_ps));
                    return Err(self.failure(&format!("the world does not come to rest: {unrest}")));
                }
            }
        }
        Ok(())
    }

    /// Returns whether nothing is in flight: no frame on a wire, no access of a card or to it. A card may still have work that
    /// needs neither, or wait for a timer.
    pub fn is_quiet(&self) -> bool {
        self.unrest().is_none()
    }

    /// Returns what is in flight at the ports of cards and stations; `None` if nothing is.
    fn unrest(&self) -> Option<String> {
        let mut directions = self.wires.iter().flat_map(|wire| &wire.directions);
        if directions.any(|direction| direction.in_flight() != 0) {
            return Some("frames are on a wire".into());
        }
        if let Some(station) = self.stations.iter().position(|peer| !peer.arriving.is_empty()) {
            return Some(format!("frames arrive at station {station}"));
        }
        let is_busy = |card: &&Card| !card.host().is_idle() || card.frames_waiting() != 0;
        self.cards.iter().find(is_busy).map(|card| {
            let (reads, writes) = card.host().in_flight();
            let frames = card.frames_waiting();
            format!("{} has {reads} reads, {writes} writes and {frames} frames in flight", card.name())
        })
    }

    fn file_name(&self, part: &str, extension: &str) -> String {
        format!("{}-seed{}-{part}.{extension}", self.name, self.seed.0)
    }

    /// Makes the failure of this run, and writes the captures that help to find its cause.
    #[cold]
    pub fn failure(&mut self, text: &str) -> Box<Failure> {
        for card in &mut self.cards {
            // The world may be leaked with what a card still uses, and then ends no file.
            card.end_trace();
            card.note_faults();
        }
        let violations = self.cards.iter().flat_map(|card| card.log().violations().to_vec()).collect();
        let files = self.leave_evidence();
        Box::new(Failure { seed: self.seed, time_ps: self.now_ps, text: text.to_string(), violations, files })
    }

    /// Writes the newest frames of every port that has seen one.
    fn leave_evidence(&mut self) -> Vec<PathBuf> {
        self.has_left_evidence = true;
        let folder = failure::folder();
        if std::fs::create_dir_all(&folder).is_err() {
            return Vec::new();
        }
        let cards = self.card_recorders.iter().enumerate().map(|(index, one)| (format!("card{index}"), one));
        let stations = self.stations.iter().enumerate();
        let stations = stations.map(|(index, peer)| (format!("station{index}"), &peer.recorder));
        let used = cards.chain(stations).filter(|(_, recorder)| recorder.frames() > 0);
        let written = used.filter_map(|(part, recorder)| {
            let path = folder.join(self.file_name(&part, "pcap"));
            recorder.leave(&path).is_ok().then_some(path)
        });
        written.collect()
    }
}

impl Drop for World {
    /// A test that panics leaves the same captures as a run that returns a failure.
    fn drop(&mut self) {
        if std::thread::panicking() && !self.has_left_evidence {
            let failure = self.failure("the test panicked");
            // A second panic would end the process.
            let _ = writeln!(std::io::stderr(), "{failure}");
        }
    }
}
