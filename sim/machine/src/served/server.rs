//! The server: the sockets of all cards, and their world, in one thread.
//!
//! ```text
//!   ┌─> wait ──> clients: requests, replies ──> new clients ──> world: some events ──> interrupts, remarks ─┐
//!   └──────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! 1. A round ends in bounded time, whatever clients do: each client has a slice of time, and the world a number of events. A reset
//!    and the end of many mappings go on over several rounds, in which the client is not read. No call waits for a client.
//! 2. A client that has left is cleaned up before the next one is accepted. A second client of a card is refused with
//!    [`Refusal::Busy`].
//! 3. A client whose writes are faster than the simulation is not read until they have reached the card.
//! 4. Each client has a share of the files that this process may open, so that one that maps without end takes none from others. When
//!    there is none left for newcomers, they wait.
//! 5. What the monitors say of a card and of its client is a remark of the log. It ends nothing: a client may break every rule.
use super::connection::{Connection, ConnectionError};
use super::function::ServedFunction;
use super::message::{FDS_MAX, Refusal};
use super::session::{Device, Session};
use crate::host::Traffic;
use crate::wire::WireCounts;
use crate::world::World;
use rnic_layout::limits::INTERRUPT_VECTORS_MAX;
use rnic_layout::registers::COUNTERS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Requests of one client in a round.
const REQUESTS_MAX: usize = 32;
/// Time after which no further request of a client is read in a round. A request that waits for the card takes some of it.
const SLICE: Duration = Duration::from_millis(1);
/// Clients of one card that are accepted in a round.
const NEWCOMERS_MAX: usize = 16;
/// Time after which newcomers are accepted again when the operating system had no file for one.
const REFUGE: Duration = Duration::from_millis(100);
/// Events of the world in a round. A request waits for the end of a round, so there are few.
const EVENTS: usize = 8;
/// Time after the answer of a card for which the clock stands: a client that reads one register after the other asks again in it,
/// and is answered without waiting for the end of a round. Only answers for which the clock has run count, so that no client stops
/// the clock for others.
const DIALOGUE: Duration = Duration::from_micros(10);
/// Register writes of a client that have not reached the card.
const WRITES_MAX: usize = 256;
/// Clients of one card that are to be told that another has it.
const STRAYS_MAX: usize = 8;
/// Remarks of one card that are written out; the others are counted.
const REMARKS_MAX: u64 = 32;
/// Simulated time for which the clock runs at full speed after something was in flight.
const LINGER_PS: u64 = 100_000_000;
/// An idle world runs this long once in this time, for the timers of its cards.
const NAP: Duration = Duration::from_millis(25);
const NAP_RUN: Duration = Duration::from_micros(400);

/// Files of this process that no client may take: those of the program, of captures and waves.
const FILES_KEPT: usize = 64;
const UNFINISHED: &str = "the card has not finished its reset";

/// A client, and what was agreed with it.
struct Client {
    connection: Connection,
    session: Session,
}

/// Numbers of one card, from the start of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardSummary {
    /// Clients that had the card.
    pub clients: u64,
    /// Requests of clients that were refused.
    pub refused: u64,
    /// Remarks of the monitors.
    pub remarks: u64,
    /// Mappings that are left after the last client.
    pub mapped: usize,
    /// What has crossed the boundary of the card.
    pub traffic: Traffic,
    /// Counters of the card that are not zero, by name; none if the card does not answer.
    pub counters: Vec<(&'static str, u64)>,
}

/// Numbers of a server, from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Simulated time, in picoseconds.
    pub simulated_ps: u64,
    /// Frames of the wire in each direction; `None` without a wire.
    pub wire: Option<[WireCounts; 2]>,
    /// The cards.
    pub cards: Vec<CardSummary>,
}

/// A socket with its card.
struct Place {
    path: PathBuf,
    listener: UnixListener,
    function: ServedFunction,
    client: Option<Client>,
    strays: VecDeque<Connection>,
    summary: CardSummary,
}

impl Place {
    /// Returns whether the next client may come: it gets the card, or is told that another has it.
    fn accepts(&self) -> bool {
        self.client.is_some() || !self.function.is_working()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Cards of a world behind sockets.
pub struct Server {
    world: World,
    places: Vec<Place>,
    /// Sockets of stations: what comes there is work for the world.
    stations: Vec<OwnedFd>,
    /// Simulated time until which the clock runs at full speed.
    busy_until_ps: u64,
    /// Time of the last answer for which the clock has run.
    answered: Option<Instant>,
    /// Time before which nobody is accepted, as the operating system had no file for a newcomer.
    accepts_from: Option<Instant>,
    log: Box<dyn FnMut(&str) + Send>,
}

/// How the clock runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Run,
    Nap,
    Sleep,
}

/// What a round begins with.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    is_stopped: bool,
    has_newcomers: bool,
    has_requests: bool,
    has_frames: bool,
}

impl Server {
    /// Serves card `i` of a world at path `i`. Remarks go to `log`, a line each.
    ///
    /// # Errors
    /// If a socket cannot be made: the path is in use, or not writable.
    pub fn new(
        world: World,
        paths: &[PathBuf],
        log: impl FnMut(&str) + Send + 'static,
    ) -> io::Result<Server> {
        let files_max = files_max(paths.len());
        let places = paths.iter().enumerate().map(|(card, path)| {
            let listener = bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(Place {
                path: path.clone(),
                listener,
                function: ServedFunction::new(card, files_max),
                client: None,
                strays: VecDeque::new(),
                summary: CardSummary::default(),
            })
        });
        let places: Vec<Place> = places.collect::<io::Result<_>>()?;
        assert!(places.len() <= world.cards(), "each socket has a card");
        let log = Box::new(log);
        let mut server = Server {
            world,
            places,
            stations: Vec::new(),
            busy_until_ps: 0,
            answered: None,
            accepts_from: None,
            log,
        };
        for place in 0..server.places.len() {
            // A card clears its memories after power-up, and takes no settings before that is done.
            server.places[place].function.attach(&mut server.world).clean_up();
            server.finish(place);
        }
        Ok(server)
    }

    /// Wakes the world when there is something to read at the socket of a station.
    pub fn watch(&mut self, station: OwnedFd) {
        self.stations.push(station);
    }

    /// Serves until there is something to read at `stop`.
    ///
    /// # Errors
    /// If the operating system does not let it wait.
    pub fn run(mut self, stop: impl AsFd) -> io::Result<Summary> {
        loop {
            let ready = self.wait(stop.as_fd())?;
            if ready.is_stopped {
                return Ok(self.end());
            }
            if ready.has_requests || self.is_working() {
                (0..self.places.len()).for_each(|place| self.serve(place));
            }
            if ready.has_newcomers {
                (0..self.places.len()).for_each(|place| self.accept(place));
            }
            if ready.has_requests || ready.has_newcomers || ready.has_frames {
                self.linger();
            }
            self.advance();
            (0..self.places.len()).for_each(|place| self.deliver(place));
        }
    }

    /// Returns whether a card is being reset or cleaned up.
    fn is_working(&self) -> bool {
        self.places.iter().any(|place| place.function.is_working())
    }

    fn pace(&self) -> Pace {
        if self.world.now_ps() < self.busy_until_ps || self.is_working() {
            Pace::Run
        } else if self.places.iter().any(|place| place.client.is_some()) {
            Pace::Nap
        } else {
            Pace::Sleep
        }
    }

    fn linger(&mut self) {
        self.busy_until_ps = self.world.now_ps() + LINGER_PS;
    }

    /// Waits until there is something to do.
    fn wait(&mut self, stop: BorrowedFd<'_>) -> io::Result<Ready> {
        let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        fds.extend(self.stations.iter().map(|station| PollFd::new(station, PollFlags::IN)));
        let first_client = fds.len() + self.places.iter().map(|place| 1 + place.strays.len()).sum::<usize>();
        let now = Instant::now();
        let refuge = self.accepts_from.and_then(|time| time.checked_duration_since(now));
        for place in &self.places {
            let accepts = refuge.is_none() && place.accepts();
            fds.push(PollFd::new(&place.listener, if accepts { PollFlags::IN } else { PollFlags::empty() }));
            fds.extend(place.strays.iter().map(|stray| PollFd::new(stray, PollFlags::IN)));
        }
        for place in &self.places {
            if let Some(client) = &place.client {
                let behind = if client.connection.is_behind() { PollFlags::OUT } else { PollFlags::IN };
                let is_held = self.is_full(place) || client.session.is_waiting();
                let awaits = if is_held { PollFlags::empty() } else { behind };
                fds.push(PollFd::new(&client.connection, awaits));
            }
        }
        let timeout = match self.pace() {
            Pace::Run => Some(Duration::ZERO),
            Pace::Nap => Some(NAP),
            Pace::Sleep => None,
        };
        let timeout = [timeout, refuge].into_iter().flatten().min();
        let timeout = timeout.map(|time| Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fds: &[PollFd<'_>]| fds.iter().any(|fd| !fd.revents().is_empty());
        let (others, clients) = fds.split_at(first_client);
        let (first, others) = others.split_at(1);
        let (stations, newcomers) = others.split_at(self.stations.len());
        let ready = Ready {
            is_stopped: is_ready(first),
            has_newcomers: is_ready(newcomers),
            has_requests: is_ready(clients),
            has_frames: is_ready(stations),
        };
        // The socket of a process that has left stays ready for ever.
        let has_left = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let mut left = stations.iter().map(has_left).collect::<Vec<bool>>().into_iter();
        self.stations.retain(|_| left.next() == Some(false));
        Ok(ready)
    }

    /// Returns whether the writes of a client wait for the simulation.
    fn is_full(&self, place: &Place) -> bool {
        let card = place.function.card();
        self.world.host(card).registers_under_way() >= WRITES_MAX
    }

    /// Goes on with what the function of a card has to do, and answers requests of its client.
    fn serve(&mut self, place: usize) {
        let start = Instant::now();
        for _ in 0..REQUESTS_MAX {
            let is_full = self.is_full(&self.places[place]);
            let Place { function, client, .. } = &mut self.places[place];
            let Some(Client { connection, session }) = client else {
                if function.attach(&mut self.world).proceed().is_some_and(|outcome| outcome.is_err()) {
                    self.remark(place, UNFINISHED);
                }
                return;
            };
            let outcome = if is_full || connection.is_behind() || session.is_waiting() {
                let reply = session.resume(&mut function.attach(&mut self.world));
                match (connection.has_left(), reply) {
                    (true, _) => Err(ConnectionError::Closed),
                    (false, Some(reply)) => connection.send(&reply).map(|()| true),
                    (false, None) => connection.flush().map(|()| false),
                }
            } else {
                connection.receive().and_then(|message| {
                    let Some(message) = message else { return Ok(false) };
                    let before_ps = self.world.now_ps();
                    let reply = session.answer(message, &mut function.attach(&mut self.world));
                    if self.world.now_ps() != before_ps {
                        self.answered = Some(Instant::now());
                    }
                    reply.map_or(Ok(()), |reply| connection.send(&reply)).map(|()| true)
                })
            };
            match outcome {
                Ok(true) if start.elapsed() < SLICE => {}
                Ok(_) => return,
                Err(error) => return self.release(place, &error),
            }
        }
    }

    /// The client of a card has left, or is given up: begins to make the card as after power-up.
    fn release(&mut self, place: usize, why: &ConnectionError) {
        let Place { function, client, summary, .. } = &mut self.places[place];
        let Some(client) = client.take() else { return };
        summary.refused += client.session.refused();
        function.attach(&mut self.world).clean_up();
        self.deliver(place);
        if !matches!(why, ConnectionError::Closed) {
            self.remark(place, &why.to_string());
        }
    }

    /// Runs the world until the function of a card has nothing to do.
    fn finish(&mut self, place: usize) {
        if self.places[place].function.attach(&mut self.world).finish().is_err() {
            self.remark(place, UNFINISHED);
        }
    }

    /// Accepts clients of a card: the first gets it, others are told that it is in use.
    fn accept(&mut self, place: usize) {
        for _ in 0..NEWCOMERS_MAX {
            if self.places[place].client.as_ref().is_some_and(|client| client.connection.has_left()) {
                self.release(place, &ConnectionError::Closed);
            }
            // The next client of a card that is cleaned up waits.
            if !self.places[place].accepts() {
                break;
            }
            let connection = match self.places[place].listener.accept() {
                Ok((stream, _)) => Connection::new(stream),
                Err(error) => Err(error),
            };
            let connection = match connection {
                Ok(connection) => connection,
                Err(error) => {
                    self.hold_newcomers(&error);
                    break;
                }
            };
            self.accepts_from = None;
            let place = &mut self.places[place];
            if place.client.is_none() {
                place.client = Some(Client { connection, session: Session::default() });
                place.summary.clients += 1;
            } else {
                place.strays.push_back(connection);
                if place.strays.len() > STRAYS_MAX {
                    place.strays.pop_front();
                }
            }
        }
        // A refusal has the number of its request.
        self.places[place].strays.retain_mut(|stray| match stray.receive() {
            Ok(None) => true,
            Ok(Some(message)) => {
                let _ = stray.send(&message.header.refuse(Refusal::Busy));
                false
            }
            Err(_) => false,
        });
    }

    /// Nobody is accepted for a while if the operating system has no file for a newcomer, which would be tried in each round.
    fn hold_newcomers(&mut self, error: &io::Error) {
        if matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
        ) {
            return;
        }
        if self.accepts_from.is_none() {
            (self.log)(&format!("no client can be accepted, so that newcomers wait: {error}"));
        }
        self.accepts_from = Some(Instant::now() + REFUGE);
    }

    /// Lets time pass.
    fn advance(&mut self) {
        let pace = self.pace();
        let start = Instant::now();
        if self.answered.is_some_and(|time| start.duration_since(time) < DIALOGUE) {
            return;
        }
        loop {
            if pace == Pace::Sleep {
                return;
            }
            for _ in 0..EVENTS {
                self.world.step();
            }
            if !self.world.is_quiet() {
                self.linger();
            }
            if pace == Pace::Run || start.elapsed() >= NAP_RUN {
                return;
            }
        }
    }

    /// Passes on what a card has raised, and what was remarked on it.
    fn deliver(&mut self, place: usize) {
        let function = &mut self.places[place].function;
        function.attach(&mut self.world).deliver();
        let card = self.world.card_mut(function.card());
        let mut remarks: Vec<String> = Vec::new();
        for fault in card.host_mut().memory_mut().take_faults() {
            let (direction, address) = (fault.direction, fault.address);
            remarks.push(format!("the card may not {direction:?} at {address:#x}: {:?}", fault.refusal));
        }
        let failures = card.host_mut().registers_mut().take_failures();
        remarks.extend(failures.iter().map(ToString::to_string));
        if !card.log().violations().is_empty() {
            remarks.extend(card.log_mut().take().iter().map(ToString::to_string));
        }
        remarks.iter().for_each(|remark| self.remark(place, remark));
    }

    fn remark(&mut self, place: usize, text: &str) {
        let remarks = &mut self.places[place].summary.remarks;
        *remarks += 1;
        if *remarks <= REMARKS_MAX {
            (self.log)(&format!("card {place}: {text}"));
        }
        if *remarks == REMARKS_MAX {
            (self.log)(&format!("card {place}: further remarks are counted only"));
        }
    }

    /// Ends all clients, and says what has happened.
    fn end(mut self) -> Summary {
        let mut cards = Vec::new();
        for place in 0..self.places.len() {
            self.release(place, &ConnectionError::Closed);
            self.finish(place);
            let card = self.places[place].function.card();
            let counters = self.world.counters(card).unwrap_or_default();
            self.deliver(place);
            let names = COUNTERS.iter().map(|counter| counter.name);
            let summary = &self.places[place].summary;
            cards.push(CardSummary {
                mapped: self.world.host(card).memory().mappings().len(),
                traffic: self.world.host(card).traffic(),
                counters: names.zip(counters).filter(|(_, count)| *count != 0).collect(),
                ..summary.clone()
            });
        }
        let wire = (self.world.wires() != 0).then(|| self.world.wire_counts(0));
        // Ends the waveforms, and with the recorders the captures.
        for card in 0..self.world.cards() {
            self.world.card_mut(card).end_trace();
        }
        Summary { simulated_ps: self.world.now_ps(), wire, cards }
    }
}

/// Files that the client of one of some cards may let this process open.
fn files_max(cards: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    // Eventfds, the files of a message, and connections.
    let others = INTERRUPT_VECTORS_MAX as usize + FDS_MAX + STRAYS_MAX + 2;
    let limit = limit.unwrap_or(usize::MAX);
    // Under a very low limit not every client can have all of its eventfds.
    let left = limit.saturating_sub(FILES_KEPT + cards * others).max(limit / 4);
    left / cards.max(1)
}

/// Listens at a path, in the place of a socket that a server has left behind.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_left_behind(path) => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        outcome => outcome,
    }
}

fn is_left_behind(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}
