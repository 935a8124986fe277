//! The back end for served cards, against a server that others wrote, and against servers that lie.
#![cfg(not(loom))]

#[path = "../forked/mod.rs"]
mod forked;
mod lies;
mod toy;

use rnic_driver::vfio_user::ConnectOptions;
use std::time::Duration;

/// Options for a server that answers, however busy the machine is.
pub(crate) fn options() -> ConnectOptions {
    ConnectOptions { timeout: Duration::from_secs(30), ..ConnectOptions::default() }
}

/// Options for a server that does not answer at some point: it is given up soon.
pub(crate) fn impatient() -> ConnectOptions {
    ConnectOptions { timeout: Duration::from_secs(1), ..ConnectOptions::default() }
}
