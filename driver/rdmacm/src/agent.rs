//! Threads that speak with peers: one for each listener, and one for each link. They change phases and raise events; queue pairs are
//! modified by the program's own threads.
#![allow(unsafe_code)]

use crate::cards;
use crate::channel::Happened;
use crate::endpoint::{Endpoint, Phase, event};
use crate::message::{Message, Terms, reason};
use crate::outcome::{Outcome, say};
use crate::transport::{Link, Listener, NoMessage, transport};
use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time in which a peer's host answers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in which a peer that has connected sends its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which the program of the peer accepts or rejects, and in which it takes the acceptance.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);
/// Time in which a peer confirms the end of a connection.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which a thread looks whether a time-out has passed.
const TICK: Duration = Duration::from_millis(500);
/// Stack of a thread.
const STACK_BYTES: usize = 256 << 10;

/// Starts a thread that takes no signals: they are for the threads of the program.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Outcome<()> {
    let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
    thread.spawn(move || {
        // SAFETY: A set of signals is valid once it is filled, and the mask is that of this thread.
        unsafe {
            let mut signals = std::mem::zeroed();
            libc::sigfillset(&raw mut signals);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const signals, null_mut());
        }
        run();
    })?;
    Ok(())
}

/// A negative errno, the status of events whose reason is none of the peer.
fn status_of(error: &io::Error) -> c_int {
    let errno = error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        _ => libc::EIO,
    });
    -errno
}

/// As [`status_of`], of a message that did not come.
fn status_without_message(cause: &NoMessage) -> c_int {
    match cause {
        NoMessage::Closed => -libc::ECONNRESET,
        NoMessage::TimedOut => -libc::ETIMEDOUT,
        NoMessage::Malformed(_) => -libc::EPROTO,
        NoMessage::Broken(error) => status_of(error),
    }
}

/// Takes the peers of a listener until it is closed.
pub(crate) fn serve(endpoint: &Arc<Endpoint>, listener: &Arc<dyn Listener>) {
    while let Ok(link) = listener.accept() {
        let listening = Arc::clone(endpoint);
        let started = spawn("rnic-cm-server", move || receive_request(&listening, link));
        if let Err(failure) = started {
            failure.report();
        }
    }
}

/// Waits for the request of a peer, and then for what follows.
fn receive_request(listening: &Arc<Endpoint>, link: Arc<dyn Link>) {
    match link.receive(REQUEST_TIMEOUT) {
        Ok(Message::Request { asked, source_port, terms }) => {
            let child = listening.child(Arc::clone(&link), terms);
            let state = listening.state();
            if state.phase != Phase::Listening {
                drop(state);
                return child.destroy(reason::NO_LISTENER);
            }
            let requested = Happened::Requested { child: Arc::clone(&child), asked, source_port };
            listening.post(&state, requested);
            drop(state);
            watch(&child, &link);
        }
        Err(NoMessage::Malformed(cause)) => {
            say(format_args!("a peer was refused: {cause}"));
            link.close();
        }
        _ => link.close(),
    }
}

/// Connects to a listener, and waits for its answer and then for what follows.
pub(crate) fn request(endpoint: &Arc<Endpoint>, to: SocketAddr, terms: Terms) {
    let is_card = matches!(cards::with_address(to), Ok(Some(_)));
    let link = match transport().connect(to, is_card, CONNECT_TIMEOUT) {
        Ok(link) => link,
        Err(error) => {
            let (kind, status) = match error.kind() {
                ErrorKind::ConnectionRefused => (event::REJECTED, reason::NO_LISTENER.into()),
                _ => (event::UNREACHABLE, status_of(&error)),
            };
            return endpoint.close(&mut endpoint.state(), kind, status, Vec::new());
        }
    };
    let asked = match to.ip() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        std::net::IpAddr::V6(ip) => ip,
    };
    let request = Message::Request { asked, source_port: link.port(), terms };
    let mut state = endpoint.state();
    if state.phase != Phase::Connecting {
        return link.close();
    }
    let sent = link.send(&request);
    state.link = Some(Arc::clone(&link));
    if let Err(error) = sent {
        return endpoint.close(&mut state, event::UNREACHABLE, status_of(&error), Vec::new());
    }
    drop(state);
    watch(endpoint, &link);
}

/// Time that an endpoint may spend in a phase.
fn patience(phase: Phase) -> Option<Duration> {
    match phase {
        Phase::Connecting | Phase::Accepting => Some(PROGRAM_TIMEOUT),
        Phase::Disconnecting => Some(DISCONNECT_TIMEOUT),
        _ => None,
    }
}

/// Follows the messages of a peer until the connection has ended.
fn watch(endpoint: &Arc<Endpoint>, link: &Arc<dyn Link>) {
    let mut last = (Phase::Idle, Instant::now());
    loop {
        let received = link.receive(TICK);
        let mut state = endpoint.state();
        if state.phase != last.0 {
            last = (state.phase, Instant::now());
        }
        if matches!(state.phase, Phase::Closed | Phase::Destroyed) {
            return link.close();
        }
        match received {
            Ok(message) => take(endpoint, &mut state, link, message),
            Err(NoMessage::TimedOut) => {
                if patience(state.phase).is_some_and(|patience| last.1.elapsed() >= patience) {
                    end(endpoint, &mut state, -libc::ETIMEDOUT);
                }
            }
            Err(cause) => {
                if let NoMessage::Malformed(malformed) = &cause {
                    say(format_args!("a connection has ended: {malformed}"));
                }
                end(endpoint, &mut state, status_without_message(&cause));
            }
        }
    }
}

type State<'a> = std::sync::MutexGuard<'a, crate::endpoint::State>;

/// Does what a message says, or ends a connection whose peer says what does not belong to its phase.
fn take(endpoint: &Arc<Endpoint>, state: &mut State<'_>, link: &Arc<dyn Link>, message: Message) {
    match (state.phase, message) {
        (Phase::Connecting, Message::Reply(terms)) => {
            state.remote = terms;
            state.phase = Phase::Replied;
            endpoint.post(state, Happened::Replied);
        }
        (Phase::Connecting | Phase::Accepting, Message::Reject { reason, private_data }) => {
            endpoint.close(state, event::REJECTED, reason.into(), private_data);
        }
        (Phase::Accepting, Message::Ready) => {
            state.phase = Phase::Connected;
            endpoint.post_plain(state, event::ESTABLISHED, 0);
        }
        // `rdma_notify` was faster.
        (Phase::Connected, Message::Ready) => {}
        (_, Message::Disconnect) => {
            // A peer that has closed the link needs no answer.
            let _ = link.send(&Message::Disconnected);
            end(endpoint, state, -libc::ECONNRESET);
        }
        (_, Message::Disconnected) => end(endpoint, state, -libc::ECONNRESET),
        (_, other) => {
            say(format_args!(
                "a connection has ended: the peer sends {other:?} in the phase {:?}",
                state.phase
            ));
            end(endpoint, state, -libc::EPROTO);
        }
    }
}

/// Ends a connection, with the event that belongs to the phase.
fn end(endpoint: &Arc<Endpoint>, state: &mut State<'_>, status: c_int) {
    match state.phase {
        Phase::Connected | Phase::Disconnecting => endpoint.close(state, event::DISCONNECTED, 0, Vec::new()),
        // The program has an event to take, which fails or whose successor does.
        Phase::Replied => endpoint.close_quietly(state),
        _ => endpoint.close(state, event::UNREACHABLE, status, Vec::new()),
    }
}
