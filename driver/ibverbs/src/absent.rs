//! What the card, or this library, has not: the functions exist, since programs are linked against them, and refuse.
#![allow(unsafe_code)]

use crate::outcome::{Failure, object, set_errno, status};
use std::ffi::{c_int, c_void};

/// Functions that refuse, whatever their arguments are.
macro_rules! absent {
    ($( $refuse:ident -> $type:ty: $($name:ident)+; )+) => {
        $( $(
            #[doc = concat!("Refuses, as `", stringify!($name), "` of a card without it does.")]
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> $type {
                $refuse(stringify!($name))
            }
        )+ )+
    };
}

fn refusal(name: &str) -> Failure {
    let name = name.trim_start_matches("rnic_");
    let text = format!("{name} is not there for this card; docs/driver.md says what programs can use");
    Failure::new(libc::EOPNOTSUPP, text)
}

fn no_object(name: &str) -> *mut c_void {
    object(Err(refusal(name)))
}

fn errno(name: &str) -> c_int {
    status(Err(refusal(name)))
}

fn minus_one(name: &str) -> c_int {
    status(Err(refusal(name)));
    -1
}

/// A function without a result, which nobody calls.
fn unasked(name: &str) {
    status(Err(refusal(name)));
}

/// The end of an object that does not exist.
fn nothing(_: &str) {
    set_errno(libc::EOPNOTSUPP);
}

absent! {
    no_object -> *mut c_void:
        // Address handles serve datagrams.
        rnic_ibv_create_ah rnic_ibv_create_ah_from_wc
        // Objects of another process.
        rnic_ibv_import_device rnic_ibv_import_pd rnic_ibv_import_mr rnic_ibv_import_dm
        // Memory of another device.
        rnic_ibv_reg_dmabuf_mr;
    errno -> c_int:
        rnic_ibv_destroy_ah
        rnic_ibv_attach_mcast rnic_ibv_detach_mcast
        // Enhanced connection establishment.
        rnic_ibv_query_ece rnic_ibv_set_ece;
    minus_one -> c_int:
        rnic_ibv_init_ah_from_wc;
    unasked -> ():
        // Answers of a kernel to librdmacm, and none is asked here.
        rnic_ibv_copy_ah_attr_from_kern rnic_ibv_copy_path_rec_from_kern rnic_ibv_copy_path_rec_to_kern
        rnic_ibv_copy_qp_attr_from_kern;
    nothing -> ():
        rnic_ibv_unimport_pd rnic_ibv_unimport_mr rnic_ibv_unimport_dm;
}

/// `ibv_query_qp_data_in_order`: no, the card does not promise to write payload in order.
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_query_qp_data_in_order() -> c_int {
    0
}

/// `ibv_fork_init`: nothing has to be done. The card reaches the memory of the process that has registered it, also if a process
/// that was forked from it has a copy.
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_fork_init() -> c_int {
    0
}

/// `ibv_is_fork_initialized`.
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_is_fork_initialized() -> c_int {
    /// `IBV_FORK_UNNEEDED`.
    const UNNEEDED: c_int = 2;
    UNNEEDED
}

/// `ibv_dontfork_range`: see [`rnic_ibv_fork_init`].
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_dontfork_range() -> c_int {
    0
}

/// `ibv_dofork_range`: see [`rnic_ibv_fork_init`].
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_dofork_range() -> c_int {
    0
}
