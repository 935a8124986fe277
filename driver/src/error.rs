//! Errors of control operations: opening a card, and creating, changing and destroying objects.

use crate::failed_request::FailedRequest;
use crate::function::FunctionError;
use crate::post_error::{PostError, Refusal};
use crate::ring::IndexError;
use rnic_layout::admin::{BODIES, BODY_OFFSET, CommandHeader, CommandOpcode, CommandStatus};
use rnic_layout::field::{Field, FieldError};
use rnic_layout::queue::completion::CompletionOpcode;
use rnic_layout::registers::{FatalCode, LAYOUT_MAJOR, MAGIC};
use rnic_layout::state::{ATTRIBUTES, AttributeMask, TransitionError};
use std::fmt;
use std::time::Duration;

/// Failure to open a card, to create, change, query or destroy an object, or of a request that was posted to one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The back end failed.
    #[error("the back end failed: {0}")]
    Function(FunctionError),
    /// Registers read as all ones: no card answers.
    #[error(
        "no card answers: registers read as all ones; check that it is powered, programmed and not removed"
    )]
    Absent,
    /// The register `magic` does not hold the value of an rnic card.
    #[error(
        "this is not an rnic card: register magic is {found:#018x}, and would be {MAGIC:#018x}; open another device"
    )]
    NotThisCard {
        /// Value of the register.
        found: u64,
    },
    /// The card implements another major version of the layout.
    #[error(
        "the card's layout has version {found_major}.{found_minor}, and this driver speaks {LAYOUT_MAJOR}.x; use the \
         driver that was built with the card, or generate the card again"
    )]
    LayoutVersion {
        /// Major layout version of the card.
        found_major: u16,
        /// Minor layout version of the card.
        found_minor: u16,
    },
    /// The state of a queue pair without types has no such transition, or not with these attributes.
    #[error("{0}")]
    Transition(TransitionError),
    /// The configuration space is that of another function.
    #[error(
        "this function is not ours: its PCI {what} is {found:#06x}, and that of an rnic card of this layout is \
         {expected:#06x}; open another function"
    )]
    NotOurFunction {
        /// Field of the configuration space.
        what: &'static str,
        /// Its value.
        found: u32,
        /// Value of the layout.
        expected: u32,
    },
    /// A BAR has not the size that the layout gives it.
    #[error(
        "BAR {bar} has {bytes:#x} bytes, and that of an rnic card has {expected:#x}; open another function, or correct \
         its server"
    )]
    BarSize {
        /// Index of the BAR.
        bar: u8,
        /// Size of the BAR in bytes.
        bytes: u64,
        /// Size that the layout gives it, in bytes.
        expected: u64,
    },
    /// A BAR is smaller than the layout requires.
    #[error(
        "BAR {bar} has {bytes} bytes, and {needed} are needed; the function is not configured for this card"
    )]
    BarTooSmall {
        /// Index of the BAR.
        bar: u8,
        /// Size of the BAR in bytes.
        bytes: u64,
        /// Size that the layout requires, in bytes.
        needed: u64,
    },
    /// An option does not fit its field of a command, or the card reported an illegal value.
    #[error(
        "illegal value: {0}; correct the option that sets it, or, if the card reported it, reset the card and report this"
    )]
    Impossible(FieldError),
    /// The card did not finish an operation within its timeout.
    #[error(
        "{what} took longer than {limit:?}; drop every object and open the card again, which resets it, with a larger `Options::timeout` \
         if the card is slow, or `Options::host_limit` if the host is"
    )]
    TimedOut {
        /// The operation.
        what: &'static str,
        /// Timeout that has expired.
        limit: Duration,
    },
    /// The card refused a command; no object has changed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The card has reported a fatal failure.
    #[error(
        "the card has failed: {}, detail {detail:#x}; drop every object and open it again, which resets it",
        code.name()
    )]
    DeviceFailed {
        /// Reason, from the register `fatal`.
        code: FatalCode,
        /// Detail from the register `fatal`; its meaning depends on `code`.
        detail: u32,
    },
    /// The admin queue takes no more commands: an answer was missing, or belonged to another command.
    #[error("the admin queue has stopped: {why}; drop every object and open the card again, which resets it")]
    AdminStopped {
        /// What stopped it.
        why: &'static str,
    },
    /// This process was forked from the one that has opened the card, which still has it.
    #[error(
        "the card was opened by the process that this one was forked from; use it there, or open another one here"
    )]
    Forked,
    /// All numbers of a kind of object are in use.
    #[error("all {limit} {what} of the card are in use; destroy some first")]
    Exhausted {
        /// Kind of object.
        what: &'static str,
        /// Number of such objects that the card supports.
        limit: u32,
    },
    /// The card was generated without a feature.
    #[error("the card was generated without {feature}; generate one with it")]
    NotSupported {
        /// Name of the bit in the register `features`.
        feature: &'static str,
    },
    /// An option is outside the range that the card and the layout allow.
    #[error("{name} is {value}; this card allows {min} to {max}")]
    Option {
        /// Name of the option.
        name: &'static str,
        /// Value that was given.
        value: u64,
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// The source address of a path and its destination are not of one version of IP, so no packet can have both.
    #[error(
        "source address {source_index} is {source_family}, and the peer's address is {destination}; name a source address of the same \
         version of IP"
    )]
    Families {
        /// Index of the source address.
        source_index: u8,
        /// `IPv4` or `IPv6`: that of the source address.
        source_family: &'static str,
        /// That of the destination.
        destination: &'static str,
    },
    /// A completion queue cannot become so small: requests in flight have reserved more CQEs.
    #[error(
        "completion queue {number} cannot have {asked} CQEs: {reserved} are reserved by requests in flight; wait for completions, or \
         ask for at least as many"
    )]
    Reserved {
        /// Number of the queue.
        number: u32,
        /// CQEs that were asked for.
        asked: u32,
        /// CQEs that are reserved.
        reserved: u32,
    },
    /// A poller has the completion queue.
    #[error(
        "completion queue {number} is in the hands of a poller; resize it there, or drop the poller first"
    )]
    Polled {
        /// Number of the queue.
        number: u32,
    },
    /// Objects of different cards or protection domains were combined.
    #[error("{what} belong to different {owner}; use objects of one")]
    Mixed {
        /// The objects that were combined.
        what: &'static str,
        /// What they do not have in common: `cards` or `protection domains`.
        owner: &'static str,
    },
    /// The card wrote EQEs with illegal values. Their events are lost, all others are kept. Any completion queue may have been
    /// meant, so all of them are signalled.
    #[error(
        "event queue {number}: {count} EQEs were illegal and their events are lost, the first because {error}; poll the \
         completion queues, query the objects whose events matter, and report this"
    )]
    IllegalEvents {
        /// Number of the event queue.
        number: u32,
        /// Number of illegal EQEs since the last such error.
        count: u64,
        /// Field of the first of them, and its value.
        error: FieldError,
    },
    /// Asynchronous events found their event queue full, because nobody read it. No completion event is lost. All completion
    /// queues are signalled, because the failure of one of them may be among the lost events.
    #[error(
        "event queue {number}: {count} asynchronous events found no room and are lost; query the queue pairs, set the limits \
         of shared receive queues again, check the device, and poll events more often or use a longer event queue"
    )]
    EventsLost {
        /// Number of the event queue.
        number: u32,
        /// Number of events that were lost since the last such error. From 65,535 on there may have been more.
        count: u64,
    },
    /// A completion queue has failed.
    #[error(transparent)]
    Completion(#[from] CompletionError),
    /// A request was not posted.
    #[error("the request was not posted: {0}")]
    Refused(Refusal),
    /// A request was posted, and has failed.
    #[error(transparent)]
    Request(#[from] FailedRequest),
}

// The text has its cause already, so that the cause is not a source, which a chain of errors would print again.
impl From<Refusal> for Error {
    fn from(reason: Refusal) -> Self {
        Self::Refused(reason)
    }
}

/// Keeps the reason, and drops the request with its memory. Who wants to post the request again takes it out of the [`PostError`] first.
impl<R> From<PostError<R>> for Error {
    fn from(refused: PostError<R>) -> Self {
        refused.reason.into()
    }
}

// The text has its cause already, so that the cause is not a source, which a chain of errors would print again.
impl From<FieldError> for Error {
    fn from(error: FieldError) -> Self {
        Self::Impossible(error)
    }
}

/// Fails unless an option lies between `min` and `max`, both included.
pub(crate) fn check_option(name: &'static str, value: u64, min: u64, max: u64) -> Result<(), Error> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(Error::Option { name, value, min, max }) }
}

/// Failure of a completion queue: it has overrun, a CQE could not be written, or the card wrote a CQE that matches no posted
/// request. The queue yields no further completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompletionError {
    /// The card has reported that the queue has overrun, or that the host refused a CQE. It writes no more CQEs to it, and each
    /// queue pair that completes to it fails with its next completion.
    #[error("completion queue {number} has failed; drop its queue pairs and create another queue")]
    QueueFailed {
        /// Number of the completion queue.
        number: u32,
    },
    /// A CQE holds an illegal value.
    #[error("completion queue {number}: {error}; reset the card, and report this")]
    Impossible {
        /// Number of the completion queue.
        number: u32,
        /// Field of the CQE, and its value.
        error: FieldError,
    },
    /// A CQE carries the QPN of a queue pair that does not use this completion queue.
    #[error("completion queue {number} got a CQE of queue pair {qp_number:#x}, which does not use it")]
    UnknownQueuePair {
        /// Number of the completion queue.
        number: u32,
        /// QPN in the CQE.
        qp_number: u32,
    },
    /// A CQE carries a `wr_id` that no posted request has.
    #[error("queue pair {qp_number:#x}: a CQE carries wr_id {wr_id:#x}, which no posted request has")]
    UnknownWrId {
        /// QPN in the CQE.
        qp_number: u32,
        /// `wr_id` of the CQE: the driver's own number of the request, not that of the application.
        wr_id: u64,
    },
    /// A CQE reports the success of a send that is not signalled, so nobody has asked for it.
    #[error(
        "queue pair {qp_number:#x}: a CQE reports the success of wr_id {wr_id:#x}, which is not signalled"
    )]
    NotSignalled {
        /// QPN in the CQE.
        qp_number: u32,
        /// `wr_id` of the CQE: the driver's own number of the request, not that of the application.
        wr_id: u64,
    },
    /// A CQE reports the success of a send as that of another operation.
    #[error(
        "queue pair {qp_number:#x}: a CQE reports the success of wr_id {wr_id:#x} as {}, which was posted as {}",
        found.name(),
        expected.name()
    )]
    OtherOperation {
        /// QPN in the CQE.
        qp_number: u32,
        /// `wr_id` of the CQE: the driver's own number of the request, not that of the application.
        wr_id: u64,
        /// Operation in the CQE.
        found: CompletionOpcode,
        /// Operation that was posted.
        expected: CompletionOpcode,
    },
    /// The consumer index of a CQE frees slots of the work queue that are not in use.
    #[error("queue pair {qp_number:#x}: {error}")]
    Index {
        /// QPN in the CQE.
        qp_number: u32,
        /// The index, and the range that is legal.
        error: IndexError,
    },
}

/// Refusal of a command by the card. No object has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// Opcode of the command.
    pub opcode: CommandOpcode,
    /// Object of the command: QPN, key, or number of a queue or address handle.
    pub object_number: u32,
    /// Reason of the refusal.
    pub status: CommandStatus,
    /// Field `detail` of the answer; its meaning depends on `status`.
    pub detail: u32,
}

// The text has its cause already, so that the cause is not a source, which a chain of errors would print again.
impl From<FunctionError> for Error {
    fn from(error: FunctionError) -> Self {
        Self::Function(error)
    }
}

impl CommandError {
    /// Returns the illegal field of the command, if the status concerns a field.
    pub fn field(&self) -> Option<&'static Field> {
        use CommandStatus::*;
        match self.status {
            UnknownOpcode => return Some(CommandHeader::RECORD.field("opcode")),
            Success | AttributeMissing | AttributeNotAllowed | HostError | DeviceFailed | Busy => {
                return None;
            }
            _ => {}
        }
        if self.detail == 0 {
            return None;
        }
        let body = BODY_OFFSET as u32 * 8;
        let (record, bit) = if self.detail < body {
            (&CommandHeader::RECORD, self.detail)
        } else {
            let &(_, record) = BODIES.iter().find(|(opcodes, _)| opcodes.contains(&self.opcode))?;
            (record, self.detail - body)
        };
        record.fields.iter().find(|field| field.offset <= bit && bit < field.end())
    }

    /// Returns the missing or forbidden attributes, if the status concerns attributes; otherwise none.
    pub fn attributes(&self) -> AttributeMask {
        match self.status {
            CommandStatus::AttributeMissing | CommandStatus::AttributeNotAllowed => {
                AttributeMask(self.detail)
            }
            _ => AttributeMask::NONE,
        }
    }

    /// Describes what the caller can do about the refusal.
    pub fn advice(&self) -> &'static str {
        use CommandStatus::*;
        match self.status {
            Success => "the command has succeeded",
            UnknownOpcode | ReservedNotZero => "card and driver disagree; report this",
            NotSupported => "generate the card with this feature",
            ValueNotAllowed => "use a value in the range of the field",
            NumberOutOfRange => "the card's table is smaller; destroy objects of this kind",
            AlreadyExists => "destroy the object that has this index",
            DoesNotExist => "the object was destroyed; create it again",
            ReferenceDoesNotExist => "keep the object alive that this one refers to",
            DomainMismatch => "use objects of one protection domain",
            TransitionNotAllowed | StateMismatch => {
                "the card has changed the state of the queue pair itself; query or reset it"
            }
            AttributeMissing | AttributeNotAllowed => {
                "card and driver disagree about the transition; report this"
            }
            Busy => "destroy the objects that use it first",
            NoResources => "ask for fewer, or reset or destroy queue pairs that have some",
            Misaligned => "use a multiple of 4096",
            SizeNotAllowed => "use a size within the register `queue_limits`",
            RightsContradict => "remote write and remote atomic need local write",
            RangeNotAllowed => "use a range that does not wrap and fits its pages",
            HostError => "the memory of the command is not mapped; report this",
            DeviceFailed => "drop every object and open the card again, which resets it",
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#x}: {}", self.opcode.name(), self.object_number, self.status.name())?;
        if let Some(field) = self.field() {
            write!(f, " in {}.{}", field.record, field.name)?;
        } else if !self.attributes().is_empty() {
            let named = ATTRIBUTES.iter().filter(|attribute| self.attributes().contains(attribute.mask));
            for (place, attribute) in named.enumerate() {
                write!(f, "{} {}", if place == 0 { ":" } else { "," }, attribute.name)?;
            }
        } else if self.detail != 0 {
            write!(f, ", detail {:#x}", self.detail)?;
        }
        write!(f, "; {}", self.advice())
    }
}

impl std::error::Error for CommandError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(opcode: CommandOpcode, status: CommandStatus, detail: u32) -> CommandError {
        CommandError { opcode, object_number: 3, status, detail }
    }

    #[test]
    fn a_refusal_names_object_field_status_and_remedy() {
        let error = refused(CommandOpcode::CreateCompletionQueue, CommandStatus::ReferenceDoesNotExist, 72);
        assert_eq!(
            error.to_string(),
            "create_completion_queue 0x3: reference_does_not_exist in CreateCompletionQueue.event_queue; \
             keep the object alive that this one refers to"
        );
        let error = refused(CommandOpcode::CreateRegion, CommandStatus::NumberOutOfRange, 32);
        assert_eq!(error.field().unwrap().name, "object_number");
        let error = refused(CommandOpcode::DestroyRegion, CommandStatus::Busy, 0);
        assert_eq!(error.to_string(), "destroy_region 0x3: busy; destroy the objects that use it first");
    }

    #[test]
    fn a_field_is_found_from_any_of_its_bits() {
        for (detail, name) in
            [(64, Some("entries_log2")), (71, None), (72, Some("event_queue")), (79, Some("event_queue"))]
        {
            let error = refused(CommandOpcode::CreateCompletionQueue, CommandStatus::ValueNotAllowed, detail);
            assert_eq!(error.field().map(|field| field.name), name, "bit {detail}");
        }
        // A body without fields, and a bit beyond every body.
        let error = refused(CommandOpcode::DestroyRegion, CommandStatus::ValueNotAllowed, 64);
        assert_eq!(error.field(), None);
        let error = refused(CommandOpcode::CreateRegion, CommandStatus::ValueNotAllowed, u32::MAX);
        assert_eq!(error.field(), None);
    }

    #[test]
    fn missing_attributes_are_listed() {
        let mask = AttributeMask::PATH_MTU.and(AttributeMask::SEND_PSN);
        let error = refused(CommandOpcode::ModifyQueuePair, CommandStatus::AttributeMissing, mask.0);
        assert!(error.to_string().contains("attribute_missing: path_mtu, send_psn;"), "{error}");
    }

    #[test]
    fn every_status_has_advice() {
        for &status in CommandStatus::ALL {
            assert!(!refused(CommandOpcode::Nothing, status, 0).advice().is_empty());
        }
    }
}
