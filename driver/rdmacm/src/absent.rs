//! What the card, or this library, has not: the functions exist, since programs are linked against them, and refuse.
#![allow(unsafe_code)]

use crate::outcome::{Failure, status};
use std::ffi::c_int;

/// Functions that refuse, whatever their arguments are.
macro_rules! absent {
    ($($name:ident)+) => {
        $(
            #[doc = concat!("Refuses, as `", stringify!($name), "` of a card without it does.")]
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> c_int {
                let name = stringify!($name).trim_start_matches("rnic_");
                let text = "is not there for this card; docs/driver.md says what programs can use";
                status(Err(Failure::new(libc::EOPNOTSUPP, format_args!("{name} {text}"))))
            }
        )+
    };
}

absent! {
    // Multicast is of datagrams.
    rnic_rdma_join_multicast rnic_rdma_join_multicast_ex rnic_rdma_leave_multicast
    // Enhanced connection establishment.
    rnic_rdma_set_local_ece rnic_rdma_get_remote_ece rnic_rdma_reject_ece
}

/// `rpoll`: `poll`, since no descriptor is a socket of this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rpoll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout_ms: c_int) -> c_int {
    // SAFETY: The program passes what it would pass to `poll`.
    unsafe { libc::poll(fds, count, timeout_ms) }
}
