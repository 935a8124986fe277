//! Failures of a card that is served by another process.

use std::io;
use std::time::Duration;

/// What a vfio-user server did wrong, or what kept it from answering. After each of these but [`Self::Refused`], [`Self::HugePages`] and [`Self::Forked`] the connection
/// is not used any more, because nobody knows what the next bytes of the server would belong to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// There is no server at this socket.
    #[error("cannot be reached: {why}; start the server, and check the path and its permissions")]
    Unreachable {
        /// Error of the operating system.
        why: String,
    },
    /// The server did not answer, or did not take the request, in time.
    #[error(
        "took longer than {limit:?} to answer {what}; it stalls, or serves another client: end that one, or restart the \
         server, and open the card again"
    )]
    Stalled {
        /// The request.
        what: &'static str,
        /// The time that it had.
        limit: Duration,
    },
    /// The server has closed the connection.
    #[error("closed the connection at {what}: it has ended or given up; restart it, and open the card again")]
    Closed {
        /// The request.
        what: &'static str,
    },
    /// The server answered with an error.
    #[error("refused {what}: {}; see its messages", reason(*.errno))]
    Refused {
        /// The request.
        what: &'static str,
        /// Error number of the answer; zero if it names none.
        errno: i32,
    },
    /// Another client has the card.
    #[error("serves another client{}; end that one, and open the card again", told(.owner))]
    InUse {
        /// What the server says of that client; empty if it says nothing.
        owner: String,
    },
    /// The server speaks another version of the protocol.
    #[error("speaks version {major}.{minor} of vfio-user, and this driver 0.1; use a server of that version")]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The answer contradicts the protocol, the request, or itself.
    #[error("answered {what} wrongly: {field} is {found:#x}, and should be {expected}; correct the server")]
    Malformed {
        /// The request.
        what: &'static str,
        /// What is wrong in the answer.
        field: &'static str,
        /// Its value.
        found: u64,
        /// What would be right.
        expected: &'static str,
    },
    /// The server has refused memory in huge pages.
    #[error(
        "takes no memory in huge pages, whose files it cannot read and write by calls; allocate it in pages of 4 KiB"
    )]
    HugePages,
    /// This process was forked from the one that has connected, which still uses the connection.
    #[error(
        "is connected to the process that this one was forked from; open another card here, or use this one there"
    )]
    Forked,
    /// The connection failed in another way.
    #[error("lost the connection at {what}: {why}; open the card again")]
    Lost {
        /// The request.
        what: &'static str,
        /// Error of the operating system.
        why: String,
    },
}

/// What a server says, behind a colon.
fn told(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Text of an error number, which a server need not give.
fn reason(errno: i32) -> String {
    if errno == 0 {
        "it gives no reason".to_string()
    } else {
        io::Error::from_raw_os_error(errno).to_string()
    }
}
