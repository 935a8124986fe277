//! The back end for served cards, against a server that others wrote, and against servers that lie.
#![cfg(not(loom))]

mod lies;
mod toy;

use rnic_driver::vfio_user::ConnectOptions;
use std::time::Duration;

/// Options of tests: a server that does not answer is given up soon.
pub(crate) fn options() -> ConnectOptions {
    ConnectOptions { timeout: Duration::from_millis(300), ..ConnectOptions::default() }
}
