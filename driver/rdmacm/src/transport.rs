//! What carries messages between two connection managers.
//!
//! Today that is a [side channel](crate::side_channel) of sockets. Datagrams on QP 1 would be a second implementation of these three
//! traits: a link is a pair of communication identifiers then, a listener a service identifier, and nothing else here changes.

use crate::message::{Malformed, Message};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why no message came.
#[derive(Debug, Error)]
pub(crate) enum NoMessage {
    /// The other side, or this one, has closed the link.
    #[error("the link is closed")]
    Closed,
    /// The time is up.
    #[error("no message came in time")]
    TimedOut,
    /// What came is no message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Broken(#[from] io::Error),
}

/// A way to one peer, which keeps the order of messages.
pub(crate) trait Link: Send + Sync {
    /// Sends a message.
    ///
    /// # Errors
    ///
    /// Fails if the link is closed.
    fn send(&self, message: &Message) -> io::Result<()>;

    /// Waits for a message. Only one thread does.
    ///
    /// # Errors
    ///
    /// Fails if there is none after the time `patience`, and if there will be none.
    fn receive(&self, patience: Duration) -> Result<Message, NoMessage>;

    /// Closes the link, which wakes who waits for a message on either side.
    fn close(&self);

    /// Port of this side.
    fn port(&self) -> u16;
}

/// A port that peers can ask for.
pub(crate) trait Listener: Send + Sync {
    /// The number of the port.
    fn port(&self) -> u16;

    /// Begins to take peers. Before that they are refused.
    ///
    /// # Errors
    ///
    /// Fails if another listener has the port.
    fn listen(&self, backlog: u32) -> io::Result<()>;

    /// Waits for the next peer.
    ///
    /// # Errors
    ///
    /// Fails once the listener is closed.
    fn accept(&self) -> io::Result<Arc<dyn Link>>;

    /// Closes the port, which wakes who waits for a peer.
    fn close(&self);
}

/// A means of transport.
pub(crate) trait Transport: Send + Sync {
    /// Reserves a port at an address; port zero stands for any. `cards` are the addresses of the cards that are asked for there.
    ///
    /// # Errors
    ///
    /// Fails if the address is not one of this host, or the port is in use.
    fn bind(&self, address: SocketAddr, cards: &[Ipv4Addr]) -> io::Result<Arc<dyn Listener>>;

    /// Reaches the listener at an address, of which `is_card` says that it is known to be one of a card, and of no host.
    ///
    /// # Errors
    ///
    /// Fails with `ConnectionRefused` if nobody listens there, and with `TimedOut` after the time `patience`.
    fn connect(&self, to: SocketAddr, is_card: bool, patience: Duration) -> io::Result<Arc<dyn Link>>;
}

/// The transport of this process.
pub(crate) fn transport() -> &'static dyn Transport {
    &crate::side_channel::SideChannel
}
