//! Symbols of rdma-core's library that only its providers may use, in the version `IBVERBS_PRIVATE_34`.
//!
//! Debian's perftest is linked against libmlx5 and libefa for the extensions of their vendors, and these libraries are also providers:
//! the loader looks for what they would ask of the library if a card of theirs were there. There is none, so a provider that registers
//! is not asked for a card, and nothing else here is called. If it is, it refuses.
#![allow(unsafe_code)]

use crate::outcome::{Failure, object, status};
use std::ffi::{c_int, c_void};

fn refusal(name: &str) -> Failure {
    let name = name.trim_start_matches("rnic_");
    let text = format!(
        "{name} is for providers of rdma-core, and this library has none; use rdma-core for other cards"
    );
    Failure::new(libc::EOPNOTSUPP, text)
}

fn no_object(name: &str) -> *mut c_void {
    object(Err(refusal(name)))
}

fn errno(name: &str) -> c_int {
    status(Err(refusal(name)))
}

fn nothing(name: &str) {
    status(Err(refusal(name)));
}

/// Functions that refuse, whatever their arguments are.
macro_rules! refused {
    ($( $refuse:ident -> $type:ty: $($name:ident)+; )+) => {
        $( $(
            #[doc = concat!("Refuses: `", stringify!($name), "` is for providers.")]
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> $type {
                $refuse(stringify!($name))
            }
        )+ )+
    };
}

refused! {
    no_object -> *mut c_void:
        rnic__verbs_init_and_alloc_context rnic_verbs_open_device;
    errno -> c_int:
        rnic_execute_ioctl rnic_ibv_cmd_advise_mr rnic_ibv_cmd_alloc_dm rnic_ibv_cmd_alloc_mw
        rnic_ibv_cmd_alloc_pd rnic_ibv_cmd_attach_mcast rnic_ibv_cmd_close_xrcd rnic_ibv_cmd_create_ah
        rnic_ibv_cmd_create_counters rnic_ibv_cmd_create_cq_ex rnic_ibv_cmd_create_flow
        rnic_ibv_cmd_create_flow_action_esp rnic_ibv_cmd_create_qp_ex rnic_ibv_cmd_create_qp_ex2
        rnic_ibv_cmd_create_rwq_ind_table rnic_ibv_cmd_create_srq rnic_ibv_cmd_create_srq_ex
        rnic_ibv_cmd_create_wq rnic_ibv_cmd_dealloc_mw rnic_ibv_cmd_dealloc_pd rnic_ibv_cmd_dereg_mr
        rnic_ibv_cmd_destroy_ah rnic_ibv_cmd_destroy_counters rnic_ibv_cmd_destroy_cq rnic_ibv_cmd_destroy_flow
        rnic_ibv_cmd_destroy_flow_action rnic_ibv_cmd_destroy_qp rnic_ibv_cmd_destroy_rwq_ind_table
        rnic_ibv_cmd_destroy_srq rnic_ibv_cmd_destroy_wq rnic_ibv_cmd_detach_mcast rnic_ibv_cmd_free_dm
        rnic_ibv_cmd_get_context rnic_ibv_cmd_modify_cq rnic_ibv_cmd_modify_flow_action_esp
        rnic_ibv_cmd_modify_qp rnic_ibv_cmd_modify_qp_ex rnic_ibv_cmd_modify_srq rnic_ibv_cmd_modify_wq
        rnic_ibv_cmd_open_qp rnic_ibv_cmd_open_xrcd rnic_ibv_cmd_query_context rnic_ibv_cmd_query_device_any
        rnic_ibv_cmd_query_mr rnic_ibv_cmd_query_port rnic_ibv_cmd_query_qp rnic_ibv_cmd_query_srq
        rnic_ibv_cmd_read_counters rnic_ibv_cmd_reg_dm_mr rnic_ibv_cmd_reg_dmabuf_mr rnic_ibv_cmd_reg_mr
        rnic_ibv_cmd_rereg_mr rnic_ibv_cmd_resize_cq;
    nothing -> ():
        rnic_verbs_init_cq rnic_verbs_set_ops rnic_verbs_uninit_context;
}

/// `verbs_register_driver_34`: ignores the provider, since its cards are none of `RNIC_DEVICE`.
#[unsafe(no_mangle)]
extern "C" fn rnic_verbs_register_driver_34(_provider: *const c_void) {}

/// `__verbs_log`: what a provider remarks. None is active.
#[unsafe(no_mangle)]
extern "C" fn rnic___verbs_log() {}

/// `verbs_allow_disassociate_destroy`: whether a provider destroys objects of a card that was removed.
#[unsafe(no_mangle)]
static rnic_verbs_allow_disassociate_destroy: bool = false;
