//! Setup events from commands to the stages that keep records, and notices from the stages to commands.
//!
//! Every field of a record has one writer (design decision 6), so commands write no records: control sends an
//! event to all stages that keep a record of the object, and each stage writes its own. Control offers an event
//! to all of them and continues when each has taken it; a stage takes it between two packets, in bounded time.
use crate::path::Path;
use crate::read::ReadShare;
use crate::sizes::{
    GENERATION_BITS, QUEUE_PAIR_BITS, SHARED_RECEIVE_BITS, SOURCE_ADDRESS_BITS, WORK_INDEX_BITS,
};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;

/// What a command changes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum SetupKind {
    /// State and generation only. In ERR, posted WQEs are flushed; in RESET, work in flight is dropped.
    Life,
    /// The queue pair was created or reset: state and generation change, and all records start anew with
    /// indices of zero.
    Restart,
    /// The path and the shares of READ slots; state and generation are unchanged.
    Path,
    /// The first PSN to send, which is also the oldest unacknowledged PSN.
    SendPsn,
    /// The first PSN to expect.
    ReceivePsn,
    /// Nothing: the stage shows the PSN that it would use next on `probed`, until the next event.
    Probe,
}

/// Setup of a queue pair, sent to all stages. State, generation, path and shares are valid in events of every kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SetupEvent {
    /// What changes.
    pub kind: SetupKind,
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Its new state: a `rnic_layout::state::QpState`.
    pub state: Bits<3>,
    /// Its new generation.
    pub generation: Bits<GENERATION_BITS>,
    /// New PSN of [`SetupKind::SendPsn`] and [`SetupKind::ReceivePsn`]; undefined in other events.
    pub psn: Bits<24>,
    /// Its new path.
    pub path: Path,
    /// Its slots for READs and atomics that it requests.
    pub read_share: ReadShare,
    /// Its slots for READs and atomics of its peer.
    pub destination_read_share: ReadShare,
}

/// What a command changes of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum SrqSetupKind {
    /// The SRQ was created or destroyed: its ring starts anew with indices of zero, and its limit is set.
    Restart,
    /// The limit only; its event is armed unless the limit is zero.
    Limit,
}

/// Setup of a shared receive queue, sent to admission and, for [`SrqSetupKind::Restart`], to the prefetch of
/// receive WQEs. All fields are valid in events of both kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SrqSetup {
    /// What changes.
    pub kind: SrqSetupKind,
    /// Number of the SRQ.
    pub srq: Bits<SHARED_RECEIVE_BITS>,
    /// The SRQ exists; low when it was destroyed.
    pub is_alive: Bit,
    /// Device address of its ring, in pages of 4,096 bytes.
    pub base_page: Bits<52>,
    /// log2 of the WQEs of its ring.
    pub entries_log2: Bits<4>,
    /// Limit in WQEs; zero disarms its event.
    pub limit: Bits<WORK_INDEX_BITS>,
    /// Generation of the limit: [`SrqLimitNotice::limit_generation`] of its event.
    pub limit_generation: Bits<GENERATION_BITS>,
}

/// What a stage reports about a queue pair. The errors are `rnic_layout::state::Cause`s.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum NoticeKind {
    /// One of its own requests completed in error; the queue pair fails.
    RequesterError,
    /// A request of the peer completed in error; the queue pair fails.
    ResponderError,
    /// A CQE of it could not be written, because the completion queue has overrun or ended, or because the host
    /// refused; the queue pair fails.
    QueueError,
    /// The send queue of a queue pair in SQD has drained. This is no failure.
    Drained,
    /// A queue pair in RTR has executed a request for the first time. This is no failure.
    Established,
}

/// Notice of a stage to control about a queue pair. Control changes its state if `kind` is an error, and sends
/// the new state to all stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct QpNotice {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Its generation when the notice was sent; control drops notices of older generations.
    pub generation: Bits<GENERATION_BITS>,
    /// What happened.
    pub kind: NoticeKind,
    /// An asynchronous event is written to event queue 0.
    pub has_event: Bit,
    /// Code of that event: a `rnic_layout::queue::event::AsyncEvent`.
    pub event_code: Bits<8>,
}

/// Notice of admission to control: a shared receive queue holds fewer WQEs than its limit (protocol 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SrqLimitNotice {
    /// Number of the SRQ.
    pub srq: Bits<SHARED_RECEIVE_BITS>,
    /// [`SrqSetup::limit_generation`] of the limit that was reached; control drops notices of older limits.
    pub limit_generation: Bits<GENERATION_BITS>,
}

/// Write of an entry of the table of source addresses (protocol 4.2); there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SourceAddressWrite {
    /// Index of the entry.
    pub index: Bits<SOURCE_ADDRESS_BITS>,
    /// The entry is in use; packets with the index of an unused entry are not sent.
    pub valid: Bit,
    /// The address as a GID, first byte most significant.
    pub address: Bits<128>,
    /// Ethernet source address of frames from this address.
    pub mac: Bits<48>,
}

/// Progress of a section of the card: packets or WQEs that ever entered and ever left it, modulo 2^16. What was
/// in the section when `entered` was n has left when `left` has reached n; destroying an object waits for that
/// (design decision 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct InFlight {
    /// Count of what has entered.
    pub entered: Bits<16>,
    /// Count of what has left.
    pub left: Bits<16>,
}

/// Says whether a queue pair takes packets of its peer, requests and responses, in a state: in RTR, RTS, SQD and SQE
/// (protocol 4.1).
#[kernel]
pub fn receives(state: Bits<3>) -> Bit {
    state == QpState::ReadyToReceive as u64
        || state == QpState::ReadyToSend as u64
        || state == QpState::SendQueueDrain as u64
        || state == QpState::SendQueueError as u64
}

/// Counts the tokens that enter and leave a section in this cycle.
#[kernel]
pub fn in_flight_after(count: InFlight, enters: Bit, leaves: Bit) -> InFlight {
    InFlight {
        entered: if enters { count.entered + 1 } else { count.entered },
        left: if leaves { count.left + 1 } else { count.left },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::state::{PERMISSIONS, Traffic};

    #[test]
    fn packets_are_received_from_rtr_to_sqe() {
        for row in PERMISSIONS {
            assert_eq!(receives(bits(row.state as u64)), row.receive != Traffic::None, "{:?}", row.state);
        }
        assert!(!receives(bits(7)), "which is no state");
    }

    #[test]
    fn a_section_counts_what_enters_and_leaves() {
        for (enters, leaves, entered, left) in
            [(false, false, 8, 7), (true, false, 9, 7), (false, true, 8, 8), (true, true, 9, 8)]
        {
            let count = InFlight { entered: bits(8), left: bits(7) };
            let after = in_flight_after(count, enters, leaves);
            assert_eq!(after, InFlight { entered: bits(entered), left: bits(left) });
        }
    }
}
