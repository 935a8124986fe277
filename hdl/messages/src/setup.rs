//! What commands say to the stages that keep records of queue pairs, and what stages say about their life.
//!
//! There is one writer for every field (design decision 6), so commands do not write records: they send an event to every
//! stage, and the stage writes its own. `control` offers an event to all stages and goes on when each has taken it; a
//! stage takes it between two tokens, in bounded time.
use crate::path::Path;
use crate::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, SOURCE_ADDRESS_BITS};
use rnic_kernel::prelude::*;

/// What happens to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum SetupKind {
    /// State and generation changed, nothing else. In ERR, what is posted is flushed; in RESET, what is under way is dropped.
    Life,
    /// It was created or reset: state and generation change, and every record starts anew, all indices at zero.
    Restart,
    /// The path changed; state and generation as they were.
    Path,
    /// The first PSN to send, which is also the oldest that is not acknowledged.
    SendPsn,
    /// The first PSN to expect.
    ReceivePsn,
    /// Not a queue pair but the shared receive queue of that number is made or ended, which RESET says; its ring begins anew. Its
    /// path has its ring, and `psn` its limit in 16 bits and the [`FailureEvent::generation`] of its event in the next 8. Only
    /// admission and receive entries are told.
    SharedReceive,
    /// The limit of that shared receive queue is set, and its event armed unless the limit is zero. Only admission is told.
    SharedLimit,
    /// Nothing: the stage shows on `probed` the PSN that it would use next, until the next event.
    Probe,
}

/// An event for all stages. Every field is right in every event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SetupEvent {
    /// What happens.
    pub kind: SetupKind,
    /// To which queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Its state from now on: a `rnic_layout::state::QpState`.
    pub state: Bits<3>,
    /// Its generation from now on.
    pub generation: Bits<GENERATION_BITS>,
    /// PSN, for the kinds that have one.
    pub psn: Bits<24>,
    /// Its path from now on.
    pub path: Path,
}

/// Why a queue pair must fail (`rnic_layout::state::Cause`).
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum FailureCause {
    /// A request of its own ended in error.
    Requester,
    /// A request of the peer ended in error.
    Responder,
    /// A completion queue overran.
    Queue,
    /// Nothing failed: a shared receive queue has fewer entries than its limit.
    SharedLimit,
    /// Nothing failed: a queue pair in SQD has done what it had begun.
    Drained,
}

/// A stage says that a queue pair has failed; `control` changes its life and tells all stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct FailureEvent {
    /// Which queue pair, or shared receive queue.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation, or setting of the limit; an event of an older one is dropped.
    pub generation: Bits<GENERATION_BITS>,
    /// Why.
    pub cause: FailureCause,
    /// An asynchronous event goes to event queue 0.
    pub has_event: Bit,
    /// Its code: a `rnic_layout::queue::event::AsyncEvent`.
    pub event_code: Bits<8>,
}

/// An entry of the table of source addresses changes (protocol 4.2); there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SourceAddressWrite {
    /// Which entry.
    pub index: Bits<SOURCE_ADDRESS_BITS>,
    /// The entry is in use from now on; packets from an unused one are not sent.
    pub valid: Bit,
    /// As a GID, first byte most significant.
    pub address: Bits<128>,
    /// Ethernet source address of frames from this address.
    pub mac: Bits<48>,
}

/// How far a section of the card is: tokens that ever entered and ever left it, modulo 2^16. What was in the section when
/// `entered` was n has left when `left` has reached n; that is how destroying waits (design decision 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct InFlight {
    /// Tokens that came in.
    pub entered: Bits<16>,
    /// Tokens that are gone.
    pub left: Bits<16>,
}

/// Counts the tokens that enter and leave a section in this cycle.
#[kernel]
pub fn in_flight_after(count: InFlight, enters: Bit, leaves: Bit) -> InFlight {
    InFlight {
        entered: if enters { count.entered + 1 } else { count.entered },
        left: if leaves { count.left + 1 } else { count.left },
    }
}
