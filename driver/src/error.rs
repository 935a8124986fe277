//! What can go wrong, and what the caller can do about it.

use crate::function::FunctionError;
use crate::ring::IndexError;
use rnic_layout::admin::{BODIES, BODY_OFFSET, CommandHeader, CommandOpcode, CommandStatus};
use rnic_layout::field::{Field, FieldError};
use rnic_layout::registers::{FatalCode, LAYOUT_MAJOR, MAGIC};
use rnic_layout::state::{ATTRIBUTES, AttributeMask};
use std::fmt;
use std::time::Duration;

/// What opening a card, or making, changing or ending an object can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The back end failed.
    #[error("the way to the card failed: {0}")]
    Function(#[from] FunctionError),
    /// Registers read as all ones.
    #[error(
        "no card answers: registers read as all ones; check that it is powered, programmed and not removed"
    )]
    Absent,
    /// Something else stands behind the BAR.
    #[error(
        "this is not an rnic card: register magic is {found:#018x}, and would be {MAGIC:#018x}; open another device"
    )]
    NotThisCard {
        /// What the register holds.
        found: u64,
    },
    /// The card speaks another version of the layout.
    #[error(
        "the card's layout has version {found_major}.{found_minor}, and this driver speaks {LAYOUT_MAJOR}.x; use the \
         driver that was built with the card, or generate the card anew"
    )]
    LayoutVersion {
        /// Major version of the card.
        found_major: u16,
        /// Minor version of the card.
        found_minor: u16,
    },
    /// A BAR is too small.
    #[error(
        "BAR {bar} has {bytes} bytes, and {needed} are needed; the function is not configured for this card"
    )]
    BarTooSmall {
        /// Which BAR.
        bar: u8,
        /// Its size.
        bytes: u64,
        /// What the card needs.
        needed: u64,
    },
    /// A register or entry of the card holds something that cannot be.
    #[error("the card says something impossible: {0}; reset it, and report this")]
    Impossible(#[from] FieldError),
    /// The card did not do something in time.
    #[error("{what} took longer than {limit:?}; reset the card, or allow more time in `Options`")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
    },
    /// The card refused a command, and changed nothing.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The card has failed.
    #[error(
        "the card has failed: {}, detail {detail:#x}; drop every object and open it again, which resets it",
        code.name()
    )]
    DeviceFailed {
        /// Why.
        code: FatalCode,
        /// Which one.
        detail: u32,
    },
    /// The admin queue lost step: an answer did not come, or was not for our command.
    #[error("the admin queue has stopped: {why}; drop every object and open the card again, which resets it")]
    AdminStopped {
        /// What happened.
        why: &'static str,
    },
    /// All numbers of a kind of object are in use.
    #[error("all {limit} {what} of the card are in use; end some first")]
    Exhausted {
        /// Kind of object.
        what: &'static str,
        /// How many the card has.
        limit: u32,
    },
    /// The card was generated without something.
    #[error("the card was generated without {feature}; generate one with it")]
    NotSupported {
        /// Name of the bit in the register `features`.
        feature: &'static str,
    },
    /// A number in the options is outside what card and contract allow.
    #[error("{name} is {value}; this card allows {min} to {max}")]
    Option {
        /// Name of the option.
        name: &'static str,
        /// What was given.
        value: u64,
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// Objects of different cards or domains were put together.
    #[error("{what} belong to different {owner}; use objects of one")]
    Mixed {
        /// What was put together.
        what: &'static str,
        /// Kind of owner.
        owner: &'static str,
    },
    /// A completion queue cannot be trusted any more.
    #[error(transparent)]
    Completion(#[from] CompletionError),
}

/// Checks an option.
pub(crate) fn check_option(name: &'static str, value: u64, min: u64, max: u64) -> Result<(), Error> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(Error::Option { name, value, min, max }) }
}

/// A completion that belongs to no posted work: card or driver is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompletionError {
    /// The queue has overrun, and the card has given it up.
    #[error("completion queue {number} has failed; end its queue pairs and make another")]
    QueueFailed {
        /// Number of the queue.
        number: u32,
    },
    /// An entry holds something that cannot be.
    #[error("completion queue {number}: {error}; reset the card, and report this")]
    Impossible {
        /// Number of the queue.
        number: u32,
        /// What.
        error: FieldError,
    },
    /// An entry names a queue pair that does not complete here.
    #[error("completion queue {number} got an entry of queue pair {qp_number:#x}, which does not use it")]
    UnknownQueuePair {
        /// Number of the queue.
        number: u32,
        /// QPN of the entry.
        qp_number: u32,
    },
    /// An entry carries a tag that no posted work has.
    #[error("queue pair {qp_number:#x}: a completion carries wr_id {wr_id:#x}, which no posted work has")]
    UnknownWrId {
        /// QPN.
        qp_number: u32,
        /// `wr_id` of the CQE.
        wr_id: u64,
    },
    /// An entry frees slots that are not in use.
    #[error("queue pair {qp_number:#x}: {error}")]
    Index {
        /// QPN.
        qp_number: u32,
        /// Which index.
        error: IndexError,
    },
}

/// A command that the card refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// What was to be done.
    pub opcode: CommandOpcode,
    /// To which object: QPN, key or number.
    pub object_number: u32,
    /// Why not.
    pub status: CommandStatus,
    /// The answer's `detail`, as it came.
    pub detail: u32,
}

impl CommandError {
    /// Finds the field at fault, where the status is about a field.
    pub fn field(&self) -> Option<&'static Field> {
        use CommandStatus::*;
        match self.status {
            UnknownOpcode => return Some(CommandHeader::RECORD.field("opcode")),
            Success | AttributeMissing | AttributeNotAllowed | HostError | DeviceFailed | Busy
            | NoResources => {
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
            let entry = BODIES.iter().find(|entry| entry.0.contains(&self.opcode))?;
            (entry.1, self.detail - body)
        };
        record.fields.iter().find(|field| field.offset <= bit && bit < field.end())
    }

    /// Gives the attributes at fault, where the status is about attributes.
    pub fn attributes(&self) -> AttributeMask {
        match self.status {
            CommandStatus::AttributeMissing | CommandStatus::AttributeNotAllowed => {
                AttributeMask(self.detail)
            }
            _ => AttributeMask::NONE,
        }
    }

    /// Says what the caller can do.
    pub fn advice(&self) -> &'static str {
        use CommandStatus::*;
        match self.status {
            Success => "nothing is wrong",
            UnknownOpcode | ReservedNotZero => "card and driver disagree; report this",
            NotSupported => "generate the card with this feature",
            ValueNotAllowed => "give a number of the field's range",
            NumberOutOfRange => "the card's table is smaller; end objects of this kind",
            AlreadyExists => "end the object that has this index",
            DoesNotExist => "the object is gone; make it again",
            ReferenceDoesNotExist => "keep the object alive that this one refers to",
            DomainMismatch => "use objects of one protection domain",
            TransitionNotAllowed | StateMismatch => {
                "the card has moved the queue pair itself; query or reset it"
            }
            AttributeMissing | AttributeNotAllowed => {
                "card and driver disagree about the transition; report this"
            }
            Busy => "end the objects that use it first",
            NoResources => "end objects of this kind",
            Misaligned => "give a multiple of 4096",
            SizeNotAllowed => "give a size within the register `queue_limits`",
            RightsContradict => "remote write and remote atomic need local write",
            RangeNotAllowed => "give a range that does not wrap and fits its pages",
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
        assert_eq!(error.to_string(), "destroy_region 0x3: busy; end the objects that use it first");
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
