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
//!    [`Refusal::Busy`](super::message::Refusal::Busy), and is told since when that one has said nothing.
//! 3. A client whose writes are faster than the simulation is not read until they have reached the card.
//! 4. A station whose other end has left is attended until that is back, also while the clock stands.
//! 5. Each client has a share of the files that this process may open, so that one that maps without end takes none from others. When
//!    there is none left for newcomers, they wait.
//! 6. What the monitors say of a card and of its client is a remark of the log. It ends nothing: a client may break every rule.
use super::connection::{Connection, ConnectionError};
use super::function::ServedFunction;
use super::message::FDS_MAX;
use super::session::{Device, Session};
use crate::host::Traffic;
use crate::socket_file::Listening;
use crate::wire::WireCounts;
use crate::world::World;
use rnic_layout::limits::INTERRUPT_VECTORS_MAX;
use rnic_layout::registers::COUNTERS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, SocketType, accept_with};
use rustix::process::{Pid, Resource, getrlimit};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
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
/// Clients of one card that are kept until they ask for it, to be told that another has it.
const NEWCOMERS_KEPT: usize = 8;
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
    /// Number of its process, if the operating system tells it.
    process: Option<Pid>,
    came: Instant,
    /// Time of its last request.
    heard: Instant,
    /// The log says that others ask for the card.
    has_rivals: bool,
}

impl Client {
    fn new(connection: Connection) -> Client {
        let process = socket_peercred(&connection).ok().map(|credentials| credentials.pid);
        let now = Instant::now();
        Client { connection, session: Session::default(), process, came: now, heard: now, has_rivals: false }
    }

    /// Tells who has the card, for those who ask for it too.
    fn describe(&self) -> String {
        let process =
            self.process.map_or("a process".into(), |id| format!("process {}", id.as_raw_nonzero()));
        let [has, says] = [self.came, self.heard].map(|time| time.elapsed().as_secs_f64());
        format!("{process} has the card for {has:.1} s and has said nothing for {says:.1} s")
    }
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
    /// What captures and waves miss. Each was said when it was noticed.
    pub losses: Vec<String>,
}

/// A socket with its card.
struct Place {
    listener: Listening,
    function: ServedFunction,
    client: Option<Client>,
    /// Clients that are accepted and do not have the card.
    newcomers: VecDeque<Connection>,
    summary: CardSummary,
}

impl Place {
    /// Returns whether the next client may come: it gets the card, or is told that another has it.
    fn accepts(&self) -> bool {
        self.client.is_some() || !self.function.is_working()
    }
}

/// Cards of a world behind sockets.
pub struct Server {
    world: World,
    places: Vec<Place>,
    /// Time at which stations have something to do.
    attends_at: Option<Instant>,
    /// Simulated time until which the clock runs at full speed.
    busy_until_ps: u64,
    /// Time of the last answer for which the clock has run.
    answered: Option<Instant>,
    /// Time before which nobody is accepted, as the operating system had no file for a newcomer.
    accepts_from: Option<Instant>,
    losses: Vec<String>,
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
        let sockets = paths.iter().map(|path| Listening::at(path, SocketType::STREAM));
        Ok(Server::at(world, sockets.collect::<io::Result<_>>()?, log))
    }

    /// Serves card `i` of a world at socket `i`. Remarks go to `log`, a line each.
    ///
    /// # Panics
    /// If there are more sockets than cards.
    pub fn at(world: World, sockets: Vec<Listening>, log: impl FnMut(&str) + Send + 'static) -> Server {
        assert!(sockets.len() <= world.cards(), "each socket has a card");
        let files_max = files_max(sockets.len());
        let places = sockets.into_iter().enumerate().map(|(card, listener)| Place {
            listener,
            function: ServedFunction::new(card, files_max),
            client: None,
            newcomers: VecDeque::new(),
            summary: CardSummary::default(),
        });
        let mut server = Server {
            places: places.collect(),
            world,
            attends_at: Some(Instant::now()),
            busy_until_ps: 0,
            answered: None,
            accepts_from: None,
            losses: Vec::new(),
            log: Box::new(log),
        };
        for place in 0..server.places.len() {
            // A card clears its memories after power-up, and takes no settings before that is done.
            server.places[place].function.attach(&mut server.world).clean_up();
            server.finish(place);
        }
        server
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
            if ready.has_frames || self.attends_at.is_some_and(|time| time <= Instant::now()) {
                self.attends_at = self.world.attend_stations(Instant::now());
            }
            self.advance();
            (0..self.places.len()).for_each(|place| self.deliver(place));
            self.pass_on();
        }
    }

    /// Passes on what stations remark, and what captures miss.
    fn pass_on(&mut self) {
        let (remarks, losses) = self.world.take_remarks();
        remarks.iter().chain(&losses).for_each(|line| (self.log)(line));
        self.losses.extend(losses);
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
    fn wait(&self, stop: BorrowedFd<'_>) -> io::Result<Ready> {
        let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        fds.extend(self.world.handles().map(|station| PollFd::from_borrowed_fd(station, PollFlags::IN)));
        let first_newcomer = fds.len();
        let first_client =
            fds.len() + self.places.iter().map(|place| 1 + place.newcomers.len()).sum::<usize>();
        let now = Instant::now();
        let refuge = self.accepts_from.and_then(|time| time.checked_duration_since(now));
        for place in &self.places {
            let accepts = refuge.is_none() && place.accepts();
            fds.push(PollFd::new(&place.listener, if accepts { PollFlags::IN } else { PollFlags::empty() }));
            fds.extend(place.newcomers.iter().map(|newcomer| PollFd::new(newcomer, PollFlags::IN)));
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
        let attends = self.attends_at.map(|time| time.saturating_duration_since(now));
        let timeout = [timeout, refuge, attends].into_iter().flatten().min();
        let timeout = timeout.map(|time| Timespec::try_from(time).expect("a timeout fits"));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fds: &[PollFd<'_>]| fds.iter().any(|fd| !fd.revents().is_empty());
        let (others, clients) = fds.split_at(first_client);
        let (others, newcomers) = others.split_at(first_newcomer);
        let (first, stations) = others.split_at(1);
        Ok(Ready {
            is_stopped: is_ready(first),
            has_newcomers: is_ready(newcomers),
            has_requests: is_ready(clients),
            has_frames: is_ready(stations),
        })
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
            let Some(Client { connection, session, heard, .. }) = client else {
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
                    *heard = Instant::now();
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

    /// Accepts newcomers of a card: the first gets it, others are told that it is in use.
    fn accept(&mut self, place: usize) {
        self.admit(place);
        for _ in 0..NEWCOMERS_MAX {
            if !self.places[place].accepts() {
                break;
            }
            let accepted = accept_with(&self.places[place].listener, SocketFlags::CLOEXEC);
            match accepted.map_err(Into::into).and_then(|one| Connection::new(one.into())) {
                Ok(connection) => self.places[place].newcomers.push_back(connection),
                Err(error) => {
                    self.hold_newcomers(&error);
                    break;
                }
            }
            self.accepts_from = None;
            self.admit(place);
        }
        self.turn_away(place);
    }

    /// Gives a card that nobody has to the first newcomer. Whether its client has left is asked here, behind each newcomer that is
    /// accepted: one that came after the client had left is never told that the card is in use.
    fn admit(&mut self, place: usize) {
        if self.places[place].client.as_ref().is_some_and(|client| client.connection.has_left()) {
            self.release(place, &ConnectionError::Closed);
        }
        let Place { function, client, newcomers, summary, .. } = &mut self.places[place];
        while client.is_none() && !function.is_working() {
            let Some(newcomer) = newcomers.pop_front() else { return };
            summary.clients += 1;
            // The card is not cleaned up after one that has left again, which would hold up those behind it.
            *client = (!newcomer.has_left()).then(|| Client::new(newcomer));
        }
        if newcomers.len() > NEWCOMERS_KEPT {
            newcomers.pop_front();
        }
    }

    /// Tells newcomers of a card that another has it, and the log that they were told. While nobody has it, they wait.
    fn turn_away(&mut self, place: usize) {
        let Place { newcomers, client: Some(client), .. } = &mut self.places[place] else { return };
        let owner = client.describe();
        for _ in 0..newcomers.len() {
            let Some(mut newcomer) = newcomers.pop_front() else { return };
            match newcomer.receive() {
                Ok(None) => newcomers.push_back(newcomer),
                Ok(Some(message)) => {
                    // Those that try again and again are not worth a line each.
                    if !std::mem::replace(&mut client.has_rivals, true) {
                        (self.log)(&format!("card {place}: another client is refused: {owner}"));
                    }
                    // A refusal has the number of its request.
                    let _ = newcomer.send(&message.header.refuse_busy(&owner));
                }
                Err(_) => {}
            }
        }
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
        self.pass_on();
        let losses = self.world.end_files();
        losses.iter().for_each(|loss| (self.log)(loss));
        self.losses.extend(losses);
        Summary { simulated_ps: self.world.now_ps(), wire, cards, losses: self.losses }
    }
}

/// Files that the client of one of some cards may let this process open.
fn files_max(cards: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    // Eventfds, the files of a message, and connections.
    let others = INTERRUPT_VECTORS_MAX as usize + FDS_MAX + NEWCOMERS_KEPT + 2;
    let limit = limit.unwrap_or(usize::MAX);
    // Under a very low limit not every client can have all of its eventfds.
    let left = limit.saturating_sub(FILES_KEPT + cards * others).max(limit / 4);
    left / cards.max(1)
}
