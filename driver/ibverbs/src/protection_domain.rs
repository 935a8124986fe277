//! Protection domains.
#![allow(unsafe_code)]

use crate::abi;
use crate::context::Context;
use crate::outcome::{Outcome, object};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `ibv_pd`, and the domain of the driver.
#[repr(C)]
pub(crate) struct ProtectionDomain {
    abi: abi::ProtectionDomain,
    pub(crate) domain: rnic_driver::ProtectionDomain,
    /// Objects in the domain.
    pub(crate) users: AtomicUsize,
}

impl ProtectionDomain {
    /// # Safety
    ///
    /// The pointer is that of a domain that exists.
    pub(crate) unsafe fn of<'a>(domain: *mut abi::ProtectionDomain) -> &'a Self {
        // SAFETY: The program has the pointer from `create`.
        unsafe { &*domain.cast::<Self>() }
    }

    fn create(pointer: *mut abi::Context, context: &Context) -> Outcome<*mut abi::ProtectionDomain> {
        let domain = context.card.create_protection_domain()?;
        let abi = abi::ProtectionDomain { context: pointer, handle: domain.number() };
        context.users.fetch_add(1, Ordering::AcqRel);
        Ok(Box::into_raw(Box::new(Self { abi, domain, users: AtomicUsize::new(0) })).cast())
    }
}

/// `ibv_alloc_pd`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_alloc_pd(context: *mut abi::Context) -> *mut abi::ProtectionDomain {
    // SAFETY: The program passes a context that is open.
    object(ProtectionDomain::create(context, unsafe { Context::of(context) }))
}

/// `ibv_dealloc_pd`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_dealloc_pd(domain: *mut abi::ProtectionDomain) -> c_int {
    // SAFETY: The program passes a domain that exists.
    let this = unsafe { ProtectionDomain::of(domain) };
    if this.users.load(Ordering::Acquire) != 0 {
        return libc::EBUSY;
    }
    // SAFETY: The context exists as long as its objects.
    unsafe { Context::of(this.abi.context) }.users.fetch_sub(1, Ordering::AcqRel);
    // SAFETY: Nothing uses the domain, which `create` has taken out of its box.
    drop(unsafe { Box::from_raw(domain.cast::<ProtectionDomain>()) });
    0
}
