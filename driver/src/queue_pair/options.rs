//! Parameters of the creation and of the transitions of a queue pair.

use crate::path::Path;
use rnic_layout::limits::RING_LOG2_MIN;
use rnic_layout::path::Pmtu;

/// Parameters of a queue pair.
#[derive(Clone, Debug)]
pub struct QueuePairOptions {
    /// log2 of the number of slots of the send queue, from 6 to the card's limit. A send occupies one slot, or two if it has
    /// more than two SGEs or more than 32 inline bytes.
    pub send_slots_log2: u32,
    /// log2 of the number of WQEs of the receive queue, from 6 to the card's limit.
    pub receive_wqes_log2: u32,
    /// Every send is signalled, as with `sq_sig_all`.
    pub signal_all: bool,
    /// First PSN of this end, below 2^24; `None` draws it. [`QueuePair::reset`](super::QueuePair::reset) draws another one.
    pub first_psn: Option<u32>,
}

impl Default for QueuePairOptions {
    fn default() -> Self {
        Self {
            send_slots_log2: RING_LOG2_MIN,
            receive_wqes_log2: RING_LOG2_MIN,
            signal_all: false,
            first_psn: None,
        }
    }
}

/// Attributes of the transition from INIT to RTR (protocol 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// Path MTU: payload of a full packet. Both ends must use the same.
    pub path_mtu: Pmtu,
    /// QPN of the peer.
    pub destination_qp: u32,
    /// First PSN that the peer sends.
    pub receive_psn: u32,
    /// Delay that an RNR NAK requests from the peer if no receive is posted, as the 5-bit code of the AETH (protocol 1.6).
    pub min_rnr_timer: u8,
    /// Largest number of READs and atomics of the peer in flight (`max_dest_rd_atomic`), up to the card's limit. Their slots are taken
    /// from those that all queue pairs share, 4, 8 or 16 of them, and come back when the queue pair is reset or destroyed; `None` for
    /// as many as every queue pair can have.
    pub destination_read_atomic: Option<u8>,
}

/// Attributes of the transition from RTR to RTS (protocol 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOptions {
    /// Local ACK timeout of 4.096 us x 2^n; zero disables it.
    pub timeout: u8,
    /// Number of retries after a timeout or a sequence error, 0 to 7.
    pub retry_count: u8,
    /// Number of retries after an RNR NAK, 0 to 6; 7 retries without limit.
    pub rnr_retry: u8,
    /// Largest number of READs and atomics in flight (`max_rd_atomic`), with slots as for
    /// [`ReceiveOptions::destination_read_atomic`]; `None` for as many as every queue pair can have. It must not exceed the
    /// `destination_read_atomic` of the peer, which refuses excess requests.
    pub read_atomic: Option<u8>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self { timeout: 14, retry_count: 7, rnr_retry: 7, read_atomic: None }
    }
}

/// Parameters of [`QueuePair::connect`](super::QueuePair::connect), which executes both transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Path to the peer; `None` for the direct path from the first source address to the addresses in the peer's
    /// [`ConnectionInfo`](super::ConnectionInfo).
    pub path: Option<Path>,
    /// As in [`ReceiveOptions`].
    pub min_rnr_timer: u8,
    /// As in [`ReceiveOptions`].
    pub destination_read_atomic: Option<u8>,
    /// Attributes of the transition to RTS.
    pub send: SendOptions,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        // RNR timer code 12 is 640 us, the usual default of providers.
        Self { path: None, min_rnr_timer: 12, destination_read_atomic: None, send: SendOptions::default() }
    }
}
