#![doc = include_str!("manual/states.md")]

use crate::field::values;
use crate::path::Pmtu;

values! {
    /// PMTU of a path; the numbers are those of the verbs.
    pub enum PathMtu, "protocol 4.1" {
        /// Not set. A connected queue pair cannot leave INIT with it.
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
    /// Returns the PMTU, or `None` if it is not set.
    pub const fn size(self) -> Option<Pmtu> {
        Pmtu::from_code(self.number())
    }
}

values! {
    /// Transport service of a queue pair; the number is bits 7:5 of its BTH opcodes.
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
    /// State of a queue pair; the numbers are those of the verbs.
    pub enum QpState, "protocol 4.1" {
        /// RESET: no attribute is set; posted WQEs are discarded without a CQE.
        Reset = 0, "reset";
        /// INIT: receive WQEs can be posted; packets are dropped.
        Init = 1, "init";
        /// RTR, ready to receive: requests are executed and answered.
        ReadyToReceive = 2, "ready_to_receive";
        /// RTS, ready to send: fully operational.
        ReadyToSend = 3, "ready_to_send";
        /// SQD, send queue drain: WQEs that were begun complete; no new ones begin.
        SendQueueDrain = 4, "send_queue_drain";
        /// SQE, send queue error (UC, UD): send WQEs are flushed, the responder keeps working.
        SendQueueError = 5, "send_queue_error";
        /// ERR: all posted WQEs are flushed; packets are dropped.
        Error = 6, "error";
    }
}

values! {
    /// Treatment of a WQE that is posted in a state.
    pub enum Posting, "protocol 4.1" {
        /// The driver refuses the WQE.
        Refused = 0, "refused";
        /// The WQE waits in its ring.
        Waits = 1, "waits";
        /// The WQE is executed.
        Done = 2, "done";
        /// The WQE completes with the status `flushed`.
        Flushed = 3, "flushed";
    }
}

values! {
    /// Packets that a queue pair accepts or sends in a state.
    pub enum Traffic, "protocol 4.1" {
        /// None: arriving packets are dropped and counted as `qp_not_ready`.
        None = 0, "none";
        /// Receive: requests. Transmit: responses.
        Responder = 1, "responder";
        /// Receive: all. Transmit: responses, and requests of send WQEs that were begun.
        ResponderAndBegun = 2, "responder_and_begun";
        /// All packets.
        All = 3, "all";
    }
}

/// Permissions of a queue pair in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// State of the queue pair.
    pub state: QpState,
    /// Treatment of posted receive WQEs.
    pub post_receive: Posting,
    /// Treatment of posted send WQEs.
    pub post_send: Posting,
    /// Arriving packets that are accepted.
    pub receive: Traffic,
    /// Packets that are sent.
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

/// Permissions in each state, in the order of the states (protocol 4.1).
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
    /// Returns the permissions of a queue pair in this state.
    pub const fn permissions(self) -> Permissions {
        PERMISSIONS[self as usize]
    }
}

/// A set of attributes of a queue pair, in the bits of the verbs' mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeMask(pub u32);

impl AttributeMask {
    /// No attribute.
    pub const NONE: Self = Self(0);
    /// STATE: state to change to.
    pub const STATE: Self = Self(1 << 0);
    /// CUR_STATE: state that the queue pair must be in, else the command is refused.
    pub const CURRENT_STATE: Self = Self(1 << 1);
    /// EN_SQD_ASYNC_NOTIFY: whether SQD raises an event once the send queue has drained.
    pub const DRAIN_NOTIFY: Self = Self(1 << 2);
    /// ACCESS_FLAGS: local write and remote rights.
    pub const ACCESS: Self = Self(1 << 3);
    /// PKEY_INDEX: P_Key.
    pub const PARTITION: Self = Self(1 << 4);
    /// PORT: port number.
    pub const PORT: Self = Self(1 << 5);
    /// QKEY: Q_Key.
    pub const QUEUE_KEY: Self = Self(1 << 6);
    /// AV: address vector of the peer.
    pub const ADDRESS: Self = Self(1 << 7);
    /// PATH_MTU: PMTU.
    pub const PATH_MTU: Self = Self(1 << 8);
    /// TIMEOUT: acknowledgement timeout.
    pub const TIMEOUT: Self = Self(1 << 9);
    /// RETRY_CNT: retries after a timeout or NAK 0x60.
    pub const RETRY_COUNT: Self = Self(1 << 10);
    /// RNR_RETRY: retries after an RNR NAK.
    pub const RNR_RETRY: Self = Self(1 << 11);
    /// RQ_PSN: PSN that the responder expects first.
    pub const RECEIVE_PSN: Self = Self(1 << 12);
    /// MAX_QP_RD_ATOMIC: READs and atomics outstanding as requester.
    pub const READ_ATOMIC: Self = Self(1 << 13);
    /// ALT_PATH: alternate path.
    pub const ALTERNATE_PATH: Self = Self(1 << 14);
    /// MIN_RNR_TIMER: timer code of the RNR NAKs that are sent.
    pub const MIN_RNR_TIMER: Self = Self(1 << 15);
    /// SQ_PSN: PSN of the first request.
    pub const SEND_PSN: Self = Self(1 << 16);
    /// MAX_DEST_RD_ATOMIC: READs and atomics accepted and not answered as responder.
    pub const DESTINATION_READ_ATOMIC: Self = Self(1 << 17);
    /// PATH_MIG_STATE: state of path migration.
    pub const PATH_MIGRATION: Self = Self(1 << 18);
    /// CAP: sizes of the queues.
    pub const CAPABILITIES: Self = Self(1 << 19);
    /// DEST_QPN: QPN of the peer.
    pub const DESTINATION_QP: Self = Self(1 << 20);
    /// RATE_LIMIT: rate limit.
    pub const RATE_LIMIT: Self = Self(1 << 25);

    /// Returns the union of two sets.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns this set without the attributes of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether all attributes of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// An attribute of a queue pair that a modify command can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Bit of the attribute in the mask.
    pub mask: AttributeMask,
    /// Name in `snake_case`.
    pub name: &'static str,
    /// Field of [`crate::admin::ModifyQueuePair`] that carries it, the first of four for the rights. Empty if the card does not
    /// support the attribute and refuses it with `not_supported`.
    pub field: &'static str,
    /// Smallest and largest allowed value.
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

/// All attributes with their allowed values (protocol 4.1), in the order of their bits. The register `queue_limits` may lower
/// the upper bounds.
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

/// A transition that software may request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Service of the queue pair.
    pub service: Service,
    /// State before.
    pub from: QpState,
    /// State after.
    pub to: QpState,
    /// Attributes that the command must carry.
    pub required: AttributeMask,
    /// Attributes that the command may carry; [`AttributeMask::STATE`] is always allowed.
    pub optional: AttributeMask,
}

/// Drawing of [`TRANSITIONS`] and [`HARDWARE_TRANSITIONS`].
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
        /// All transitions that software may request (protocol 4.1), except those to RESET and ERR, which are allowed from every
        /// state and take no attribute. Each row: from, to, required attributes, optional attributes.
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

/// Why a transition is refused. A refused transition changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionError {
    /// The service has no transition between these states.
    NotAllowed {
        /// Service of the queue pair.
        service: Service,
        /// State that the queue pair is in.
        from: QpState,
        /// State that was requested.
        to: QpState,
    },
    /// Required attributes that are missing from the mask.
    Missing(AttributeMask),
    /// Attributes in the mask that are neither required nor optional.
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

/// Returns the transition between two states of a service, or `None` if it is not allowed.
pub fn transition(service: Service, from: QpState, to: QpState) -> Option<Transition> {
    if matches!(to, QpState::Reset | QpState::Error) {
        let none = AttributeMask::NONE;
        return Some(Transition { service, from, to, required: none, optional: none });
    }
    TRANSITIONS.iter().copied().find(|row| row.service == service && row.from == from && row.to == to)
}

/// Checks a transition with the attributes of its command.
///
/// # Errors
///
/// A [`TransitionError`]: the transition is not allowed, attributes are missing, or attributes are not allowed.
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
    /// Cause of a transition that the card makes by itself.
    pub enum Cause, "protocol 4.1" {
        /// A send WQE completed in error.
        RequesterError = 0, "requester_error";
        /// A request of the peer failed: RC has sent a fatal NAK, or the receive queue of UC or UD failed.
        ResponderError = 1, "responder_error";
        /// A CQE could not be written: its completion queue has overrun or failed.
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
    /// Event that causes the transition.
    pub cause: Cause,
    /// State after.
    pub to: QpState,
}

macro_rules! hardware {
    ($( $service:ident { $( $from:ident + $cause:ident -> $to:ident; )+ } )+) => {
        /// Transitions that the card makes by itself (protocol 4.1). In states and for causes that are not listed the state does
        /// not change: nothing is in flight there that could fail.
        ///
        /// Protocol 4.1 names SQE only after RTS. Send WQEs that were begun before a drain can fail in SQD as well, and stop the
        /// send queue in the same way.
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

/// Returns the state of a queue pair after an event in the card.
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

    /// Written from the table of protocol 4.1, independently of the code: rows are the state before, columns the state after, in
    /// the order RESET INIT RTR RTS SQD SQE ERR.
    const CONNECTED: [&str; 7] =
        ["xx....x", "xxx...x", "x..x..x", "x..xx.x", "x..xx.x", "x.....x", "x.....x"];

    #[test]
    fn every_pair_of_states_is_allowed_or_refused_as_the_protocol_says() {
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
        let known = ATTRIBUTES.iter().fold(AttributeMask::NONE, |mask, attribute| mask.and(attribute.mask));
        for row in TRANSITIONS {
            assert!(known.contains(row.required.and(row.optional)));
        }
        assert!(ATTRIBUTES.windows(2).all(|pair| pair[0].mask.0 < pair[1].mask.0));
    }

    /// Every state with every cause: RC ends in ERR wherever it can fail; UC and UD stop their send queue first.
    #[test]
    fn every_cause_in_every_state_leads_where_the_protocol_says() {
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
    fn permissions_are_in_the_order_of_the_states() {
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
