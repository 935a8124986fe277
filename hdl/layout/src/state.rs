#![doc = include_str!("manual/states.md")]

use crate::field::values;
use crate::path::Pmtu;

values! {
    /// A path's PMTU, in the code of the verbs.
    pub enum PathMtu, "protocol 4.1" {
        /// Not set yet; no connected queue pair leaves INIT with it.
        Unset = 0, "unset";
        /// 256 bytes.
        Bytes256 = 1, "256";
        /// 512 bytes.
        Bytes512 = 2, "512";
        /// 1024 bytes.
        Bytes1024 = 3, "1024";
        /// 2048 bytes.
        Bytes2048 = 4, "2048";
        /// 4096 bytes.
        Bytes4096 = 5, "4096";
    }
}

impl PathMtu {
    /// Gives the size of packets, once it is set.
    pub const fn size(self) -> Option<Pmtu> {
        Pmtu::from_code(self.number())
    }
}

values! {
    /// Transport service of a queue pair; the number is the transport's prefix in the BTH opcode.
    pub enum Service, "protocol 1.4" {
        /// Reliable connection.
        ReliableConnected = 0, "reliable_connected";
        /// Unreliable connection.
        UnreliableConnected = 1, "unreliable_connected";
        /// Unreliable datagram.
        UnreliableDatagram = 3, "unreliable_datagram";
    }
}

values! {
    /// Life state of a queue pair; the numbers are those of the verbs.
    pub enum QpState, "protocol 4.1" {
        /// Nothing is set, nothing moves, what was posted is forgotten.
        Reset = 0, "reset";
        /// Receives can be posted; packets are dropped.
        Init = 1, "init";
        /// Ready to receive: requests are answered.
        ReadyToReceive = 2, "ready_to_receive";
        /// Ready to send: everything works.
        ReadyToSend = 3, "ready_to_send";
        /// Send queue drained, or draining: what was begun is finished, nothing new begins.
        SendQueueDrain = 4, "send_queue_drain";
        /// Send queue in error (UC, UD): sends are flushed, receives go on.
        SendQueueError = 5, "send_queue_error";
        /// Failed: everything is flushed.
        Error = 6, "error";
    }
}

values! {
    /// What becomes of work that is posted.
    pub enum Posting, "protocol 4.1" {
        /// The driver refuses it; the card never sees it.
        Refused = 0, "refused";
        /// It waits in its ring.
        Waits = 1, "waits";
        /// It is done.
        Done = 2, "done";
        /// It completes with `flushed`.
        Flushed = 3, "flushed";
    }
}

values! {
    /// Which packets a queue pair takes or sends.
    pub enum Traffic, "protocol 4.1" {
        /// None: arriving ones are dropped and counted as `qp_not_ready`.
        None = 0, "none";
        /// Arriving: requests. Leaving: replies.
        Responder = 1, "responder";
        /// Arriving: all. Leaving: replies, and requests of work that was begun.
        ResponderAndBegun = 2, "responder_and_begun";
        /// All.
        All = 3, "all";
    }
}

/// What a queue pair may do in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// The state.
    pub state: QpState,
    /// Receives that are posted.
    pub post_receive: Posting,
    /// Sends that are posted.
    pub post_send: Posting,
    /// Packets that arrive.
    pub receive: Traffic,
    /// Packets that leave.
    pub transmit: Traffic,
}

const fn permit(
    state: QpState,
    post_receive: Posting,
    post_send: Posting,
    receive: Traffic,
    transmit: Traffic,
) -> Permissions {
    Permissions { state, post_receive, post_send, receive, transmit }
}

/// One row a state, in the order of the states (protocol 4.1).
pub const PERMISSIONS: [Permissions; 7] = {
    use Posting::{Done, Flushed, Refused, Waits};
    use QpState::*;
    use Traffic::{All, None, Responder, ResponderAndBegun};
    [
        permit(Reset, Refused, Refused, None, None),
        permit(Init, Waits, Refused, None, None),
        permit(ReadyToReceive, Done, Refused, Responder, Responder),
        permit(ReadyToSend, Done, Done, All, All),
        permit(SendQueueDrain, Done, Waits, All, ResponderAndBegun),
        permit(SendQueueError, Done, Flushed, Responder, Responder),
        permit(Error, Flushed, Flushed, None, None),
    ]
};

impl QpState {
    /// Gives what a queue pair may do in this state.
    pub const fn permissions(self) -> Permissions {
        PERMISSIONS[self as usize]
    }
}

/// A set of attributes, in the bits of the verbs' mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeMask(pub u32);

impl AttributeMask {
    /// No attribute.
    pub const NONE: Self = Self(0);
    /// Next state.
    pub const STATE: Self = Self(1 << 0);
    /// State that software believes the queue pair to be in; another one refuses the command.
    pub const CURRENT_STATE: Self = Self(1 << 1);
    /// Whether the end of draining raises an event.
    pub const DRAIN_NOTIFY: Self = Self(1 << 2);
    /// Remote rights.
    pub const ACCESS: Self = Self(1 << 3);
    /// Partition.
    pub const PARTITION: Self = Self(1 << 4);
    /// Port.
    pub const PORT: Self = Self(1 << 5);
    /// Q_Key.
    pub const QUEUE_KEY: Self = Self(1 << 6);
    /// Address of the peer.
    pub const ADDRESS: Self = Self(1 << 7);
    /// PMTU.
    pub const PATH_MTU: Self = Self(1 << 8);
    /// Acknowledgement time-out.
    pub const TIMEOUT: Self = Self(1 << 9);
    /// Retries.
    pub const RETRY_COUNT: Self = Self(1 << 10);
    /// Retries after RNR.
    pub const RNR_RETRY: Self = Self(1 << 11);
    /// First PSN to expect.
    pub const RECEIVE_PSN: Self = Self(1 << 12);
    /// READs and atomics in flight as requester.
    pub const READ_ATOMIC: Self = Self(1 << 13);
    /// Alternate path.
    pub const ALTERNATE_PATH: Self = Self(1 << 14);
    /// RNR delay that this side asks for.
    pub const MIN_RNR_TIMER: Self = Self(1 << 15);
    /// First PSN to send.
    pub const SEND_PSN: Self = Self(1 << 16);
    /// READs and atomics in flight as responder.
    pub const DESTINATION_READ_ATOMIC: Self = Self(1 << 17);
    /// State of path migration.
    pub const PATH_MIGRATION: Self = Self(1 << 18);
    /// Sizes of the queues.
    pub const CAPABILITIES: Self = Self(1 << 19);
    /// QPN of the peer.
    pub const DESTINATION_QP: Self = Self(1 << 20);
    /// Rate limit.
    pub const RATE_LIMIT: Self = Self(1 << 25);

    /// Joins two sets.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Takes the attributes of another set away.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Tells whether all attributes of another set are in this one.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Tells whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// An attribute that a modify command can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its bit in the mask.
    pub mask: AttributeMask,
    /// Name in `snake_case`.
    pub name: &'static str,
    /// Field of [`crate::admin::ModifyQueuePair`] that carries it, the first of four for the rights; empty if this card does not have the attribute,
    /// and refuses it with `not_supported`.
    pub field: &'static str,
    /// Smallest and largest legal value.
    pub range: (u64, u64),
}

const fn attribute(
    mask: AttributeMask,
    name: &'static str,
    field: &'static str,
    min: u64,
    max: u64,
) -> Attribute {
    Attribute { mask, name, field, range: (min, max) }
}

/// All attributes with their legal values (protocol 4.1), in the order of their bits. Upper bounds that the card's
/// configuration lowers further are those of the register `queue_limits`.
pub const ATTRIBUTES: &[Attribute] = &[
    attribute(AttributeMask::STATE, "state", "next_state", 0, 6),
    attribute(AttributeMask::CURRENT_STATE, "current_state", "current_state", 0, 6),
    attribute(AttributeMask::DRAIN_NOTIFY, "drain_notify", "drain_notify", 0, 1),
    attribute(AttributeMask::ACCESS, "access", "local_write", 0, 0xf),
    attribute(AttributeMask::PARTITION, "partition", "partition_key", 1, 0xffff),
    attribute(AttributeMask::PORT, "port", "port", 1, 1),
    attribute(AttributeMask::QUEUE_KEY, "queue_key", "queue_key", 0, 0xffff_ffff),
    attribute(AttributeMask::ADDRESS, "address", "address_handle", 0, 0xff_ffff),
    attribute(AttributeMask::PATH_MTU, "path_mtu", "path_mtu", 1, 5),
    attribute(AttributeMask::TIMEOUT, "timeout", "timeout", 0, 31),
    attribute(AttributeMask::RETRY_COUNT, "retry_count", "retry_count", 0, 7),
    attribute(AttributeMask::RNR_RETRY, "rnr_retry", "rnr_retry", 0, 7),
    attribute(AttributeMask::RECEIVE_PSN, "receive_psn", "receive_psn", 0, 0xff_ffff),
    attribute(AttributeMask::READ_ATOMIC, "read_atomic", "read_atomic", 0, 16),
    attribute(AttributeMask::ALTERNATE_PATH, "alternate_path", "", 0, 0),
    attribute(AttributeMask::MIN_RNR_TIMER, "min_rnr_timer", "min_rnr_timer", 0, 31),
    attribute(AttributeMask::SEND_PSN, "send_psn", "send_psn", 0, 0xff_ffff),
    attribute(
        AttributeMask::DESTINATION_READ_ATOMIC,
        "destination_read_atomic",
        "destination_read_atomic",
        0,
        16,
    ),
    attribute(AttributeMask::PATH_MIGRATION, "path_migration", "", 0, 0),
    attribute(AttributeMask::CAPABILITIES, "capabilities", "", 0, 0),
    attribute(AttributeMask::DESTINATION_QP, "destination_qp", "destination_qp", 0, 0xff_ffff),
    attribute(AttributeMask::RATE_LIMIT, "rate_limit", "", 0, 0),
];

/// A transition that software may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Service of the queue pair.
    pub service: Service,
    /// State before.
    pub from: QpState,
    /// State after.
    pub to: QpState,
    /// Attributes that must come with it.
    pub required: AttributeMask,
    /// Attributes that may come with it; [`AttributeMask::STATE`] always may.
    pub optional: AttributeMask,
}

/// The picture of [`TRANSITIONS`] and [`HARDWARE_TRANSITIONS`].
pub const DRAWING: &str = r"           modify             modify            modify
 ┌───────┐  ───>   ┌──────┐    ───>   ┌─────┐    ───>   ┌─────┐  modify   ┌─────┐
 │ RESET │         │ INIT │           │ RTR │           │ RTS │ <───────> │ SQD │
 └───────┘         └──────┘           └─────┘           └─────┘           └─────┘
     ▲                                                   │   ▲               │
     │ modify, from anywhere           requester error   ▼   │ modify        │ requester error
     │                                 (UC, UD)        ┌───────┐             │ (UC, UD)
 any state                                             │  SQE  │ <───────────┘
     │                                                 └───────┘
     │ modify, from anywhere; requester error (RC); responder error; queue error
     ▼
 ┌───────┐
 │  ERR  │  every posted work request is flushed, in order, before and after
 └───────┘
";

macro_rules! mask {
    ($($name:ident)*) => { AttributeMask::NONE$(.and(AttributeMask::$name))* };
}

macro_rules! transitions {
    ($( $service:ident { $( $from:ident -> $to:ident: [$($required:ident)*] [$($optional:ident)*]; )+ } )+) => {
        /// All transitions that software may ask for, but those to RESET and ERR, which are legal from every state
        /// with no attribute. Each row: from, to, required attributes, optional attributes (protocol 4.1).
        pub const TRANSITIONS: &[Transition] = &[ $($( Transition {
            service: Service::$service,
            from: QpState::$from,
            to: QpState::$to,
            required: mask!($($required)*),
            optional: mask!($($optional)*),
        } ),+),+ ];
    };
}

transitions! {
    ReliableConnected {
        Reset -> Init: [PARTITION PORT ACCESS] [];
        Init -> Init: [] [PARTITION PORT ACCESS];
        Init -> ReadyToReceive:
            [ADDRESS PATH_MTU DESTINATION_QP RECEIVE_PSN DESTINATION_READ_ATOMIC MIN_RNR_TIMER]
            [ALTERNATE_PATH ACCESS PARTITION];
        ReadyToReceive -> ReadyToSend:
            [TIMEOUT RETRY_COUNT RNR_RETRY SEND_PSN READ_ATOMIC]
            [CURRENT_STATE ALTERNATE_PATH ACCESS MIN_RNR_TIMER PATH_MIGRATION];
        ReadyToSend -> ReadyToSend: [] [CURRENT_STATE ACCESS ALTERNATE_PATH PATH_MIGRATION MIN_RNR_TIMER];
        ReadyToSend -> SendQueueDrain: [] [DRAIN_NOTIFY];
        SendQueueDrain -> SendQueueDrain:
            []
            [PORT ADDRESS TIMEOUT RETRY_COUNT RNR_RETRY READ_ATOMIC DESTINATION_READ_ATOMIC ALTERNATE_PATH ACCESS
             PARTITION MIN_RNR_TIMER PATH_MIGRATION];
        SendQueueDrain -> ReadyToSend: [] [CURRENT_STATE ALTERNATE_PATH ACCESS MIN_RNR_TIMER PATH_MIGRATION];
    }
    UnreliableConnected {
        Reset -> Init: [PARTITION PORT ACCESS] [];
        Init -> Init: [] [PARTITION PORT ACCESS];
        Init -> ReadyToReceive:
            [ADDRESS PATH_MTU DESTINATION_QP RECEIVE_PSN]
            [ALTERNATE_PATH ACCESS PARTITION];
        ReadyToReceive -> ReadyToSend: [SEND_PSN] [CURRENT_STATE ALTERNATE_PATH ACCESS PATH_MIGRATION];
        ReadyToSend -> ReadyToSend: [] [CURRENT_STATE ACCESS ALTERNATE_PATH PATH_MIGRATION];
        ReadyToSend -> SendQueueDrain: [] [DRAIN_NOTIFY];
        SendQueueDrain -> SendQueueDrain: [] [ADDRESS ALTERNATE_PATH ACCESS PARTITION PATH_MIGRATION];
        SendQueueDrain -> ReadyToSend: [] [CURRENT_STATE ALTERNATE_PATH ACCESS PATH_MIGRATION];
        SendQueueError -> ReadyToSend: [] [CURRENT_STATE ACCESS];
    }
    UnreliableDatagram {
        Reset -> Init: [PARTITION PORT QUEUE_KEY] [];
        Init -> Init: [] [PARTITION PORT QUEUE_KEY];
        Init -> ReadyToReceive: [] [PARTITION QUEUE_KEY];
        ReadyToReceive -> ReadyToSend: [SEND_PSN] [CURRENT_STATE QUEUE_KEY];
        ReadyToSend -> ReadyToSend: [] [CURRENT_STATE QUEUE_KEY];
        ReadyToSend -> SendQueueDrain: [] [DRAIN_NOTIFY];
        SendQueueDrain -> SendQueueDrain: [] [PARTITION QUEUE_KEY];
        SendQueueDrain -> ReadyToSend: [] [CURRENT_STATE QUEUE_KEY];
        SendQueueError -> ReadyToSend: [] [CURRENT_STATE QUEUE_KEY];
    }
}

/// Why a transition is refused. Nothing is changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionError {
    /// There is no such transition for this service.
    NotAllowed {
        /// Service of the queue pair.
        service: Service,
        /// State it is in.
        from: QpState,
        /// State that was asked for.
        to: QpState,
    },
    /// These attributes are required, and did not come.
    Missing(AttributeMask),
    /// These attributes came, and are neither required nor optional.
    Unexpected(AttributeMask),
}

impl core::fmt::Display for TransitionError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let list = |f: &mut core::fmt::Formatter<'_>, mask: AttributeMask| {
            for attribute in ATTRIBUTES.iter().filter(|attribute| mask.contains(attribute.mask)) {
                write!(f, " {}", attribute.name)?;
            }
            Ok(())
        };
        match *self {
            Self::NotAllowed { service, from, to } => {
                write!(f, "a {} queue pair does not go from {} to {}", service.name(), from.name(), to.name())
            }
            Self::Missing(mask) => {
                f.write_str("required attributes are missing:")?;
                list(f, mask)
            }
            Self::Unexpected(mask) => {
                f.write_str("attributes that this transition does not take:")?;
                list(f, mask)
            }
        }
    }
}

impl core::error::Error for TransitionError {}

/// Finds the transition, or says that there is none.
pub fn transition(service: Service, from: QpState, to: QpState) -> Option<Transition> {
    if matches!(to, QpState::Reset | QpState::Error) {
        let none = AttributeMask::NONE;
        return Some(Transition { service, from, to, required: none, optional: none });
    }
    TRANSITIONS.iter().copied().find(|row| row.service == service && row.from == from && row.to == to)
}

/// Checks a transition with the attributes that come with it.
///
/// # Errors
///
/// Says whether the transition or which attributes are at fault.
pub fn check_transition(
    service: Service,
    from: QpState,
    to: QpState,
    mask: AttributeMask,
) -> Result<(), TransitionError> {
    let row = transition(service, from, to).ok_or(TransitionError::NotAllowed { service, from, to })?;
    let missing = row.required.without(mask);
    if !missing.is_empty() {
        return Err(TransitionError::Missing(missing));
    }
    let unexpected = mask.without(row.required).without(row.optional).without(AttributeMask::STATE);
    if !unexpected.is_empty() {
        return Err(TransitionError::Unexpected(unexpected));
    }
    Ok(())
}

values! {
    /// Why the card itself changes a state.
    pub enum Cause, "protocol 4.1" {
        /// A work request of the send queue ended in error.
        RequesterError = 0, "requester_error";
        /// A request of the peer ended in error: a fatal NAK was sent, or for UC and UD the receive queue failed.
        ResponderError = 1, "responder_error";
        /// A queue that the queue pair completes into has overrun.
        QueueError = 2, "queue_error";
    }
}

/// A transition that the card makes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareTransition {
    /// Service of the queue pair.
    pub service: Service,
    /// State before.
    pub from: QpState,
    /// Why.
    pub cause: Cause,
    /// State after.
    pub to: QpState,
}

macro_rules! hardware {
    ($( $service:ident { $( $from:ident + $cause:ident -> $to:ident; )+ } )+) => {
        /// What the card does by itself (protocol 4.1). In states and for causes that are not listed the state stays:
        /// nothing is in flight there that could fail.
        ///
        /// The notes name SQE only after RTS. Work that was begun before a drain can fail in SQD just the same, and
        /// must stop the queue just the same.
        pub const HARDWARE_TRANSITIONS: &[HardwareTransition] = &[ $($( HardwareTransition {
            service: Service::$service,
            from: QpState::$from,
            cause: Cause::$cause,
            to: QpState::$to,
        } ),+),+ ];
    };
}

hardware! {
    ReliableConnected {
        ReadyToReceive + ResponderError -> Error;
        ReadyToReceive + QueueError -> Error;
        ReadyToSend + RequesterError -> Error;
        ReadyToSend + ResponderError -> Error;
        ReadyToSend + QueueError -> Error;
        SendQueueDrain + RequesterError -> Error;
        SendQueueDrain + ResponderError -> Error;
        SendQueueDrain + QueueError -> Error;
    }
    UnreliableConnected {
        ReadyToReceive + ResponderError -> Error;
        ReadyToReceive + QueueError -> Error;
        ReadyToSend + RequesterError -> SendQueueError;
        ReadyToSend + ResponderError -> Error;
        ReadyToSend + QueueError -> Error;
        SendQueueDrain + RequesterError -> SendQueueError;
        SendQueueDrain + ResponderError -> Error;
        SendQueueDrain + QueueError -> Error;
        SendQueueError + ResponderError -> Error;
        SendQueueError + QueueError -> Error;
    }
    UnreliableDatagram {
        ReadyToReceive + ResponderError -> Error;
        ReadyToReceive + QueueError -> Error;
        ReadyToSend + RequesterError -> SendQueueError;
        ReadyToSend + ResponderError -> Error;
        ReadyToSend + QueueError -> Error;
        SendQueueDrain + RequesterError -> SendQueueError;
        SendQueueDrain + ResponderError -> Error;
        SendQueueDrain + QueueError -> Error;
        SendQueueError + ResponderError -> Error;
        SendQueueError + QueueError -> Error;
    }
}

/// Gives the state after something happened in the card.
pub fn after(service: Service, state: QpState, cause: Cause) -> QpState {
    HARDWARE_TRANSITIONS
        .iter()
        .find(|row| row.service == service && row.from == state && row.cause == cause)
        .map_or(state, |row| row.to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    /// Written from the table of protocol 4.1, apart from the code: rows are the state before, columns the state
    /// after, in the order RESET INIT RTR RTS SQD SQE ERR.
    const CONNECTED: [&str; 7] =
        ["xx....x", "xxx...x", "x..x..x", "x..xx.x", "x..xx.x", "x.....x", "x.....x"];

    #[test]
    fn every_pair_of_states_is_allowed_or_refused_as_the_notes_say() {
        for &service in Service::ALL {
            for (from, row) in QpState::ALL.iter().zip(CONNECTED) {
                for (to, expected) in QpState::ALL.iter().zip(row.chars()) {
                    // Only UC and UD have a send queue that can be in error, and a way back from there.
                    let back = *from == QpState::SendQueueError && *to == QpState::ReadyToSend;
                    let expected = expected == 'x' || back && service != Service::ReliableConnected;
                    let found = transition(service, *from, *to).is_some();
                    assert_eq!(found, expected, "{} {} {}", service.name(), from.name(), to.name());
                    if !found {
                        let error = check_transition(service, *from, *to, AttributeMask::STATE);
                        assert_eq!(error, Err(TransitionError::NotAllowed { service, from: *from, to: *to }));
                    }
                }
            }
        }
    }

    #[test]
    fn every_transition_takes_its_attributes_and_no_others() {
        for &service in Service::ALL {
            for &from in QpState::ALL {
                for &to in QpState::ALL {
                    let Some(row) = transition(service, from, to) else { continue };
                    let check = |mask| check_transition(service, from, to, mask);
                    assert_eq!(check(row.required), Ok(()));
                    assert_eq!(check(row.required.and(row.optional).and(AttributeMask::STATE)), Ok(()));
                    assert!(row.required.0 & row.optional.0 == 0, "required and optional exclude each other");
                    for bit in (0..32).map(|bit| AttributeMask(1 << bit)) {
                        if row.required.contains(bit) {
                            assert_eq!(check(row.required.without(bit)), Err(TransitionError::Missing(bit)));
                        } else if row.optional.contains(bit) || bit == AttributeMask::STATE {
                            assert_eq!(check(row.required.and(bit)), Ok(()));
                        } else {
                            assert_eq!(check(row.required.and(bit)), Err(TransitionError::Unexpected(bit)));
                        }
                    }
                }
            }
        }
    }

    /// Masks worked by hand from the bit numbers of protocol 4.1.
    #[test]
    fn masks_have_the_numbers_of_the_verbs() {
        let required = |service, from, to| transition(service, from, to).unwrap().required.0;
        use QpState::*;
        use Service::*;
        assert_eq!(required(ReliableConnected, Reset, Init), 0x38);
        assert_eq!(required(ReliableConnected, Init, ReadyToReceive), 0x12_9180);
        assert_eq!(required(ReliableConnected, ReadyToReceive, ReadyToSend), 0x1_2e00);
        assert_eq!(required(UnreliableConnected, Init, ReadyToReceive), 0x10_1180);
        assert_eq!(required(UnreliableConnected, ReadyToReceive, ReadyToSend), 0x1_0000);
        assert_eq!(required(UnreliableDatagram, Reset, Init), 0x70);
        let optional = |service, from, to| transition(service, from, to).unwrap().optional.0;
        assert_eq!(optional(ReliableConnected, SendQueueDrain, SendQueueDrain), 0x6_eeb8);
        assert_eq!(optional(ReliableConnected, ReadyToReceive, ReadyToSend), 0x4_c00a);
        assert_eq!(optional(UnreliableDatagram, SendQueueError, ReadyToSend), 0x42);
    }

    #[test]
    fn every_attribute_of_a_transition_is_described() {
        let known = ATTRIBUTES.iter().fold(AttributeMask::NONE, |mask, entry| mask.and(entry.mask));
        for row in TRANSITIONS {
            assert!(known.contains(row.required.and(row.optional)));
        }
        assert!(ATTRIBUTES.windows(2).all(|pair| pair[0].mask.0 < pair[1].mask.0));
    }

    /// Every state with every cause: RC ends in ERR wherever it can fail; UC and UD stop their send queue first.
    #[test]
    fn every_cause_in_every_state_leads_where_the_notes_say() {
        for &service in Service::ALL {
            for &state in QpState::ALL {
                for &cause in Cause::ALL {
                    let sends = matches!(state, QpState::ReadyToSend | QpState::SendQueueDrain);
                    let receives = sends
                        || state == QpState::ReadyToReceive
                        || state == QpState::SendQueueError && service != Service::ReliableConnected;
                    let expected = match cause {
                        Cause::RequesterError if sends && service == Service::ReliableConnected => {
                            QpState::Error
                        }
                        Cause::RequesterError if sends => QpState::SendQueueError,
                        Cause::ResponderError | Cause::QueueError if receives => QpState::Error,
                        _ => state,
                    };
                    assert_eq!(after(service, state, cause), expected, "{service:?} {state:?} {cause:?}");
                }
            }
        }
    }

    #[test]
    fn permissions_stand_in_the_order_of_the_states() {
        for &state in QpState::ALL {
            assert_eq!(state.permissions().state, state);
        }
    }

    #[test]
    fn a_refusal_names_what_is_missing() {
        let error = check_transition(
            Service::UnreliableConnected,
            QpState::ReadyToReceive,
            QpState::ReadyToSend,
            AttributeMask::STATE,
        );
        assert_eq!(error.unwrap_err().to_string(), "required attributes are missing: send_psn");
    }
}
