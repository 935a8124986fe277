//! The states of a queue pair, as types (protocol 4.1).

use rnic_layout::state::QpState;

/// State of a queue pair.
pub trait State: sealed::Sealed {
    /// The state in commands.
    const STATE: QpState;
}

/// State in which receives can be posted.
pub trait PostReceive: State {}

/// State in which sends can be posted.
pub trait PostSend: State {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! states {
    ($( $(#[doc = $doc:literal])+ $name:ident: $state:ident; )+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug)]
        pub enum $name {}

        impl sealed::Sealed for $name {}

        impl State for $name {
            const STATE: QpState = QpState::$state;
        }
    )+};
}

states! {
    /// RESET: as created.
    Reset: Reset;
    /// INIT: receives can be posted; incoming packets are dropped.
    Init: Init;
    /// RTR, ready to receive: requests of the peer are executed.
    ReadyToReceive: ReadyToReceive;
    /// RTS, ready to send: requests can be posted in both directions.
    ReadyToSend: ReadyToSend;
    /// SQD, send queue drain: sends in flight finish, posted sends wait; requests of the peer are executed.
    SendQueueDrain: SendQueueDrain;
    /// ERR: the queue pair has failed; all posted requests complete as flushed.
    Error: Error;
}

impl PostReceive for Init {}
impl PostReceive for ReadyToReceive {}
impl PostReceive for ReadyToSend {}
impl PostReceive for SendQueueDrain {}
impl PostSend for ReadyToSend {}
impl PostSend for SendQueueDrain {}
