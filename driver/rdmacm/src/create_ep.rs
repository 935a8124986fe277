//! `rdma_create_ep` and its opposite: identifiers with all that belongs to them, made in one call.
#![allow(unsafe_code)]

use crate::abi;
use crate::addresses::read;
use crate::id::{Id, rnic_rdma_create_id};
use crate::info::PASSIVE;
use crate::outcome::{Failure, Outcome, status};
use crate::queue_pair::{create, rnic_rdma_destroy_qp, rnic_rdma_destroy_srq};
use crate::resolve::{bind, resolve, resolve_route};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// `rdma_create_ep`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_create_ep(
    into: *mut *mut abi::Id,
    info: *const abi::AddressInfo,
    domain: *mut c_void,
    asked: *mut abi::QueuePairInit,
) -> c_int {
    let mut id = null_mut();
    // SAFETY: The program passes the address of a pointer, information, null or a domain, and null or attributes.
    status(unsafe {
        if rnic_rdma_create_id(null_mut(), &raw mut id, null_mut(), (*info).ai_port_space) != 0 {
            Err(Failure::last())
        } else {
            prepare(id, &*info, domain, asked).map(|()| *into = id).inspect_err(|_| Id::destroy(id))
        }
    })
}

/// Binds an identifier, or resolves its peer, and gives it a queue pair.
///
/// # Safety
///
/// The identifier exists, and no other thread uses it; the rest as for [`rnic_rdma_create_ep`].
unsafe fn prepare(
    id: *mut abi::Id,
    info: &abi::AddressInfo,
    domain: *mut c_void,
    asked: *mut abi::QueuePairInit,
) -> Outcome<()> {
    // SAFETY: The caller answers for the pointers.
    unsafe {
        if let Some(asked) = asked.as_mut() {
            asked.qp_type = info.ai_qp_type;
        }
        if info.ai_flags & PASSIVE != 0 {
            bind(id, read(info.ai_src_addr)?)?;
            if !asked.is_null() {
                Id::set_template(id, (domain, *asked));
            }
            return Ok(());
        }
        let source = if info.ai_src_addr.is_null() { None } else { Some(read(info.ai_src_addr)?) };
        resolve(id, source, read(info.ai_dst_addr)?)?;
        Id::complete(id)?;
        resolve_route(id)?;
        if !asked.is_null() {
            create(id, domain, &mut *asked)?;
        }
        Ok(())
    }
}

/// `rdma_destroy_ep`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_destroy_ep(id: *mut abi::Id) {
    // SAFETY: The program passes an identifier, and uses it and what belongs to it no more.
    unsafe {
        if !(*id).qp.is_null() {
            rnic_rdma_destroy_qp(id);
        }
        if !(*id).srq.is_null() {
            rnic_rdma_destroy_srq(id);
        }
        Id::destroy(id);
    }
}
