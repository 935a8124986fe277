//! Functions of the verbs library that the connection manager calls. They are looked up in the library that the program uses, so that
//! this one is built without it.
#![allow(unsafe_code)]

use crate::abi::{
    Context, DeviceAttributes, PortAttributes, QueuePair, QueuePairAttributes, QueuePairInit,
    SharedReceiveQueue, SharedReceiveQueueInit,
};
use crate::outcome::{Failure, Outcome};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// Name of the library.
const NAME: &str = "libibverbs.so.1";

macro_rules! functions {
    ($( $name:ident: fn($($argument:ty),*) $(-> $result:ty)?; )+) => {
        /// The functions, with the names and signatures of the manual.
        #[derive(Clone, Copy)]
        pub(crate) struct Verbs { $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+ }

        impl Verbs {
            fn load() -> Result<Self, libloading::Error> {
                // SAFETY: The initialisers of the library are those that the program runs anyhow, since it is linked against it.
                let library = unsafe { Library::new(NAME)? };
                // SAFETY: Functions with these names have these signatures in every version of the library.
                let verbs = unsafe { Self { $($name: *library.get(stringify!($name).as_bytes())?,)+ } };
                // The functions are there as long as the process.
                std::mem::forget(library);
                Ok(verbs)
            }
        }
    };
}

functions! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut c_void;
    ibv_get_device_guid: fn(*mut c_void) -> u64;
    ibv_open_device: fn(*mut c_void) -> *mut Context;
    ibv_query_device: fn(*mut Context, *mut DeviceAttributes) -> c_int;
    ibv_query_port: fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    ibv_query_gid: fn(*mut Context, u8, c_int, *mut [u8; 16]) -> c_int;
    ibv_alloc_pd: fn(*mut Context) -> *mut c_void;
    ibv_create_comp_channel: fn(*mut Context) -> *mut c_void;
    ibv_destroy_comp_channel: fn(*mut c_void) -> c_int;
    ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut c_void, c_int) -> *mut c_void;
    ibv_destroy_cq: fn(*mut c_void) -> c_int;
    ibv_create_srq: fn(*mut c_void, *mut SharedReceiveQueueInit) -> *mut SharedReceiveQueue;
    ibv_destroy_srq: fn(*mut SharedReceiveQueue) -> c_int;
    ibv_create_qp: fn(*mut c_void, *mut QueuePairInit) -> *mut QueuePair;
    ibv_modify_qp: fn(*mut QueuePair, *mut QueuePairAttributes, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut QueuePair) -> c_int;
}

/// The functions of the library, which is loaded once.
///
/// # Errors
///
/// Fails if there is no such library, or if it lacks one of them.
pub(crate) fn verbs() -> Outcome<&'static Verbs> {
    static VERBS: OnceLock<Result<Verbs, String>> = OnceLock::new();
    let loaded = VERBS.get_or_init(|| Verbs::load().map_err(|error| error.to_string()));
    loaded.as_ref().map_err(|error| {
        let text = format!("{error}; LD_LIBRARY_PATH names a folder with {NAME}, see docs/driver.md");
        Failure::new(libc::ENODEV, text)
    })
}
