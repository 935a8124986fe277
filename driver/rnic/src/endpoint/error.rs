//! Why endpoints fail.

use super::exchange::ExchangeError;
use rnic_driver::{CompletionError, Error, FailedRequest, PostError, Refusal, TransitionError, state::State};
use std::time::Duration;

/// Why an endpoint could not be connected, or an operation not be carried out. `?` makes it of all errors of the driver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The driver, the card, or the peer's card.
    #[error(transparent)]
    Driver(#[from] Error),
    /// The descriptors could not be exchanged.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// Nothing has completed in time. What was posted remains in flight.
    #[error(
        "{what} has not come within {limit:?}; check that the peer still runs and answers, or wait longer (`Endpoint::set_limit`)"
    )]
    NoCompletion {
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
    },
    /// The process of the peer has ended, or has dropped its endpoint.
    #[error("{what} does not come any more: the peer has closed its end of the connection; connect again")]
    PeerLeft {
        /// What was waited for.
        what: &'static str,
    },
}

/// Makes an [`EndpointError`] of an error that the [`Error`] of the driver takes.
macro_rules! through_the_driver {
    ($([$($generics:tt)*] $from:ty),+ $(,)?) => {$(
        impl<$($generics)*> From<$from> for EndpointError {
            fn from(error: $from) -> Self {
                Self::Driver(error.into())
            }
        }
    )+};
}

through_the_driver!(
    [] CompletionError,
    [] FailedRequest,
    [] Refusal,
    [R] PostError<R>,
    [S: State] TransitionError<S>,
);
