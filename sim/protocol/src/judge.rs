//! What must hold in every run, said without the protocol: from what each side did, in the order in which it did it.
use crate::frame::Data;
use crate::plan::{Kind, RNR_RETRY_ENDLESS, Settings};
use serde::{Deserialize, Serialize};

/// Status of a completion (protocol 2.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Status {
    /// SUCCESS (0).
    Success,
    /// RETRY_EXC_ERR (12).
    RetryExceeded,
    /// RNR_RETRY_EXC_ERR (13).
    RnrRetryExceeded,
    /// REM_INV_REQ_ERR (9).
    RemoteInvalidRequest,
    /// REM_ACCESS_ERR (10).
    RemoteAccess,
    /// BAD_RESP_ERR (7).
    BadResponse,
    /// WR_FLUSH_ERR (5).
    Flushed,
}

/// What a side did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The requester sent a request, after which so many PSNs are unacknowledged.
    Sent {
        /// PSNs from the oldest unacknowledged one to the newest sent.
        unacknowledged: u8,
    },
    /// The requester learned that more was executed.
    Advanced,
    /// The requester's timer fired.
    TimerFired,
    /// The requester went back, at the cost of a retry.
    Retried,
    /// The requester begins to wait after an RNR NAK, at the cost of an RNR retry.
    RnrRetried,
    /// The wait after an RNR NAK ends.
    RnrWaitEnds,
    /// The requester wrote data of a READ to memory.
    Placed {
        /// Where it was written.
        to: Data,
        /// What was written.
        data: Data,
    },
    /// The requester wrote the result of an atomic to memory.
    Returned {
        /// The atomic.
        message: u8,
        /// Original value of the word.
        original: u8,
    },
    /// The requester completed a message.
    Completed {
        /// The message.
        message: u8,
        /// Status of the CQE.
        status: Status,
    },
    /// The responder received the packet that it expected.
    ExpectedArrived,
    /// The responder sent a NAK 0x60.
    SequenceNak,
    /// The responder executed a packet. A READ that is replayed is not executed again.
    Executed(Kind, Data),
}

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// A packet was executed twice, out of order, or never while a later one was.
    Delivery,
    /// An atomic was applied twice, or returned another value than the word had.
    Atomic,
    /// Data of a READ was written to the wrong place, twice, or out of order.
    Data,
    /// A message completed twice, out of order, or before it was executed and its data was there.
    Completion,
    /// A message failed with retries left or for no reason, or was retried more often than allowed.
    Error,
    /// More than one NAK 0x60 was sent for a gap.
    Nak,
    /// More than half of the PSN space was unacknowledged.
    Window,
    /// A request was sent, or the timer fired, during the wait after an RNR NAK.
    RnrWait,
}

/// What a run has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Judge {
    /// Packet that must be executed next. A READ and an atomic have one.
    pub executed: Data,
    /// Data that must be written next, of the READ or atomic whose data was written last.
    pub placed: Data,
    /// Messages completed.
    pub completed: u8,
    /// Messages completed with success.
    pub succeeded: u8,
    /// Retries since progress.
    pub retries: u8,
    /// RNR retries since progress.
    pub rnr_retries: u8,
    /// Most retries that were ever taken without progress.
    pub retries_max: u8,
    /// NAKs since the expected packet last arrived.
    pub naks: u8,
    /// The requester waits after an RNR NAK.
    pub waits: bool,
    /// Status of the message that failed.
    pub failed: Option<Status>,
    /// First rule that was broken.
    pub violation: Option<Violation>,
}

impl Judge {
    /// The judge before the run.
    pub fn new() -> Judge {
        let begin = Data { message: 0, packet: 0 };
        Judge {
            executed: begin,
            placed: begin,
            completed: 0,
            succeeded: 0,
            retries: 0,
            rnr_retries: 0,
            retries_max: 0,
            naks: 0,
            waits: false,
            failed: None,
            violation: None,
        }
    }

    /// The judge after an event.
    pub fn after(mut self, settings: &Settings, event: Event) -> Judge {
        let broken = match event {
            Event::Sent { unacknowledged } => self.sent(settings, unacknowledged),
            Event::Advanced => {
                self.retries = 0;
                self.rnr_retries = 0;
                None
            }
            Event::TimerFired => self.waits.then_some(Violation::RnrWait),
            Event::Retried => {
                self.retries += 1;
                self.retries_max = self.retries_max.max(self.retries);
                (self.retries > settings.retries).then_some(Violation::Error)
            }
            Event::RnrRetried => {
                self.waits = true;
                self.rnr_retries += u8::from(settings.rnr_retries != RNR_RETRY_ENDLESS);
                (self.rnr_retries > settings.rnr_retries).then_some(Violation::Error)
            }
            Event::RnrWaitEnds => {
                self.waits = false;
                None
            }
            Event::Placed { to, data } => self.placed(settings, to, data),
            Event::Returned { message, original } => self.returned(settings, message, original),
            Event::Completed { message, status } => self.completed(settings, message, status),
            Event::ExpectedArrived => {
                self.naks = 0;
                None
            }
            Event::SequenceNak => {
                self.naks += 1;
                (self.naks > 1).then_some(Violation::Nak)
            }
            Event::Executed(kind, data) => self.executed(settings, kind, data),
        };
        self.violation = self.violation.or(broken);
        self
    }

    fn sent(&self, settings: &Settings, unacknowledged: u8) -> Option<Violation> {
        let too_many = unacknowledged > settings.space.half();
        too_many.then_some(Violation::Window).or(self.waits.then_some(Violation::RnrWait))
    }

    fn executed(&mut self, settings: &Settings, kind: Kind, data: Data) -> Option<Violation> {
        if data != self.executed {
            let is_atomic = kind == Kind::Atomic;
            return Some(if is_atomic { Violation::Atomic } else { Violation::Delivery });
        }
        let message = settings.plan.messages[usize::from(data.message)];
        let requests = if kind == Kind::Read { 1 } else { message.packets };
        self.executed = if data.packet + 1 < requests {
            Data { packet: data.packet + 1, ..data }
        } else {
            Data { message: data.message + 1, packet: 0 }
        };
        None
    }

    fn placed(&mut self, settings: &Settings, to: Data, data: Data) -> Option<Violation> {
        let is_next = to == self.placed || (to.message > self.placed.message && to.packet == 0);
        let is_of_read = settings.plan.kind(to.message) == Kind::Read;
        self.placed = Data { packet: to.packet + 1, ..to };
        (to != data || !is_next || !is_of_read).then_some(Violation::Data)
    }

    fn returned(&mut self, settings: &Settings, message: u8, original: u8) -> Option<Violation> {
        let is_right = original == settings.plan.atomics_before(message);
        let is_once = self.placed.message < message || self.placed.packet == 0;
        self.placed = Data { message, packet: 1 };
        (!is_right || !is_once).then_some(Violation::Atomic)
    }

    fn completed(&mut self, settings: &Settings, message: u8, status: Status) -> Option<Violation> {
        let is_next = message == self.completed;
        self.completed += 1;
        if !is_next {
            return Some(Violation::Completion);
        }
        let asked = settings.plan.messages[usize::from(message)];
        let is_done = self.executed.message > message
            && (!asked.kind.returns_data() || self.placed == Data { message, packet: asked.packets });
        let is_first_error = self.failed.is_none();
        match status {
            Status::Success => self.succeeded += 1,
            _ => self.failed = self.failed.or(Some(status)),
        }
        let is_right = match status {
            Status::Success if !is_done || !is_first_error => return Some(Violation::Completion),
            Status::Success => asked.refused_from.is_none(),
            Status::RetryExceeded => is_first_error && self.retries == settings.retries,
            Status::RnrRetryExceeded => is_first_error && self.rnr_retries == settings.rnr_retries,
            Status::RemoteAccess => is_first_error && asked.refused_from.is_some(),
            Status::Flushed => !is_first_error,
            Status::RemoteInvalidRequest | Status::BadResponse => false,
        };
        (!is_right).then_some(Violation::Error)
    }
}

impl Default for Judge {
    fn default() -> Judge {
        Judge::new()
    }
}
