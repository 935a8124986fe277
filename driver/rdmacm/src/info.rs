//! `rdma_getaddrinfo`: names of hosts and services, which the C library resolves.
#![allow(unsafe_code)]

use crate::abi;
use crate::outcome::Failure;
use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};

/// `RAI_*`.
pub(crate) const PASSIVE: c_int = 1;
const NUMERIC_HOST: c_int = 2;
const FAMILY: c_int = 8;

/// A copy of an address in memory of the C library.
///
/// # Safety
///
/// The pointer is null or that of `bytes` bytes.
unsafe fn copy(address: *const libc::sockaddr, bytes: u32) -> *mut libc::sockaddr {
    if address.is_null() || bytes == 0 {
        return null_mut();
    }
    // SAFETY: The caller answers for the address, and the C library gives memory of so many bytes, or null.
    unsafe {
        let copy = libc::malloc(bytes as usize);
        if !copy.is_null() {
            copy.cast::<u8>().copy_from_nonoverlapping(address.cast(), bytes as usize);
        }
        copy.cast()
    }
}

/// A copy of a name in memory of the C library.
///
/// # Safety
///
/// The pointer is null or that of a C string.
unsafe fn copy_name(name: *const c_char) -> *mut c_char {
    // SAFETY: The caller answers for the name.
    if name.is_null() { null_mut() } else { unsafe { libc::strdup(CStr::from_ptr(name).as_ptr()) } }
}

/// What the program asks the C library for.
fn hints_of(hints: Option<&abi::AddressInfo>) -> libc::addrinfo {
    // SAFETY: Zeros and nulls are hints for everything.
    let mut asked: libc::addrinfo = unsafe { std::mem::zeroed() };
    asked.ai_socktype = libc::SOCK_STREAM;
    if let Some(hints) = hints {
        if hints.ai_flags & PASSIVE != 0 {
            asked.ai_flags |= libc::AI_PASSIVE;
        }
        if hints.ai_flags & NUMERIC_HOST != 0 {
            asked.ai_flags |= libc::AI_NUMERICHOST;
        }
        if hints.ai_flags & FAMILY != 0 || hints.ai_family != 0 {
            asked.ai_family = hints.ai_family;
        }
    }
    asked
}

/// The first address that the C library has found, or the addresses of the hints alone.
///
/// # Safety
///
/// The address is null or one that the C library has found; the hints are those of the program.
unsafe fn entry(found: *const libc::addrinfo, hints: Option<&abi::AddressInfo>) -> Option<abi::AddressInfo> {
    let flags = hints.map_or(0, |hints| hints.ai_flags);
    let other = |value: fn(&abi::AddressInfo) -> c_int, default| match hints.map_or(0, value) {
        0 => default,
        value => value,
    };
    // SAFETY: The caller answers for the pointers.
    unsafe {
        let (mut source, mut destination) = match hints {
            Some(hints) => (
                (hints.ai_src_addr.cast_const(), hints.ai_src_len),
                (hints.ai_dst_addr.cast_const(), hints.ai_dst_len),
            ),
            None => ((null(), 0), (null(), 0)),
        };
        let (mut source_name, mut destination_name) = (null(), null());
        if let Some(found) = found.as_ref() {
            let (address, name) = ((found.ai_addr.cast_const(), found.ai_addrlen), found.ai_canonname);
            if flags & PASSIVE != 0 {
                (source, source_name) = (address, name);
            } else {
                (destination, destination_name) = (address, name);
            }
        }
        let named = if source.0.is_null() { destination.0 } else { source.0 };
        if named.is_null() {
            return None;
        }
        Some(abi::AddressInfo {
            ai_flags: flags,
            ai_family: c_int::from((*named).sa_family),
            ai_qp_type: other(|hints| hints.ai_qp_type, abi::RELIABLE_CONNECTED),
            ai_port_space: other(|hints| hints.ai_port_space, abi::PORT_SPACE_TCP),
            ai_src_len: source.1,
            ai_dst_len: destination.1,
            ai_src_addr: copy(source.0, source.1),
            ai_dst_addr: copy(destination.0, destination.1),
            ai_src_canonname: copy_name(source_name),
            ai_dst_canonname: copy_name(destination_name),
            ai_route_len: 0,
            ai_route: null_mut(),
            ai_connect_len: 0,
            ai_connect: null_mut(),
            ai_next: null_mut(),
        })
    }
}

/// `rdma_getaddrinfo`: zero, a code of `getaddrinfo`, or -1 and `errno`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const abi::AddressInfo,
    into: *mut *mut abi::AddressInfo,
) -> c_int {
    // SAFETY: The program passes null or names, null or hints, and the address of a pointer.
    unsafe {
        let hints = hints.as_ref();
        let mut found = null_mut();
        if !node.is_null() || !service.is_null() {
            match libc::getaddrinfo(node, service, &hints_of(hints), &raw mut found) {
                0 => {}
                code => return code,
            }
        }
        let entry = entry(found, hints);
        if !found.is_null() {
            libc::freeaddrinfo(found);
        }
        match entry {
            Some(entry) => {
                *into = Box::into_raw(Box::new(entry));
                0
            }
            None => {
                let text =
                    "rdma_getaddrinfo: there is neither a node nor a service nor an address in the hints";
                crate::outcome::status(Err(Failure::new(libc::EINVAL, text)))
            }
        }
    }
}

/// `rdma_freeaddrinfo`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_freeaddrinfo(mut info: *mut abi::AddressInfo) {
    while !info.is_null() {
        // SAFETY: The program passes information of `rdma_getaddrinfo`, once; its parts are of the C library.
        unsafe {
            let entry = Box::from_raw(info);
            libc::free(entry.ai_src_addr.cast());
            libc::free(entry.ai_dst_addr.cast());
            libc::free(entry.ai_src_canonname.cast());
            libc::free(entry.ai_dst_canonname.cast());
            info = entry.ai_next;
        }
    }
}
