//! Memory regions: any memory of the process, at its place.
#![allow(unsafe_code)]

use crate::abi::{self, access};
use crate::outcome::{Failure, Outcome, object, set_errno, status};
use crate::protection_domain::ProtectionDomain;
use rnic_driver::{RemoteRights, raw};
use std::ffi::{c_int, c_void};
use std::fs;
use std::sync::atomic::Ordering;

/// `ibv_mr`, and the region of the driver.
#[repr(C)]
struct Region {
    abi: abi::Region,
    region: raw::Region,
}

/// Access flags that a card can grant.
const GRANTED: u32 = access::LOCAL_WRITE
    | access::REMOTE_WRITE
    | access::REMOTE_READ
    | access::REMOTE_ATOMIC
    | access::ZERO_BASED
    | access::HUGETLB
    | access::OPTIONAL;

/// A registration that was asked for.
struct Registration {
    address: *mut c_void,
    bytes: usize,
    first_address: u64,
    flags: u32,
}

impl Registration {
    /// Rights of the flags.
    fn access(&self) -> Outcome<raw::Access> {
        let flag = |flag| self.flags & flag != 0;
        if self.flags & !GRANTED != 0 {
            let text =
                format!("the card grants no rights {:#x}; register without them", self.flags & !GRANTED);
            return Err(Failure::new(libc::EOPNOTSUPP, text));
        }
        if flag(access::REMOTE_WRITE | access::REMOTE_ATOMIC) && !flag(access::LOCAL_WRITE) {
            let text = "the rights of peers to write need IBV_ACCESS_LOCAL_WRITE; add it";
            return Err(Failure::new(libc::EINVAL, text));
        }
        let rights = RemoteRights {
            write: flag(access::REMOTE_WRITE),
            read: flag(access::REMOTE_READ),
            atomic: flag(access::REMOTE_ATOMIC),
        };
        let first_address = if flag(access::ZERO_BASED) { 0 } else { self.first_address };
        let local_write = flag(access::LOCAL_WRITE);
        Ok(raw::Access { local_write, rights, invalidatable: false, first_address: Some(first_address) })
    }

    /// Fails unless the process may access all bytes itself as the card shall.
    fn check(&self, needs_write: bool) -> Outcome<()> {
        let (first, bytes) = (self.address as usize, self.bytes);
        let end = first.checked_add(bytes).filter(|_| first != 0 && bytes != 0);
        let end = end.ok_or_else(|| {
            let text =
                format!("{bytes} bytes at {first:#x} are no memory; register at least one byte that exists");
            Failure::new(libc::EINVAL, text)
        })?;
        let maps = fs::read_to_string("/proc/self/maps");
        let maps = maps.map_err(|error| Failure::new(libc::EIO, format!("/proc/self/maps: {error}")))?;
        match first_gap(&maps, first, end, needs_write) {
            None => Ok(()),
            Some(gap) => {
                let what = if needs_write { "readable and writable" } else { "readable" };
                let text = format!(
                    "of {bytes} bytes at {first:#x}, those at {gap:#x} are not mapped {what}; map them first"
                );
                Err(Failure::new(libc::EFAULT, text))
            }
        }
    }
}

/// First address from `first` to `end` that is not mapped with the rights that are needed, in a list as `/proc/self/maps` has it.
fn first_gap(maps: &str, first: usize, end: usize, needs_write: bool) -> Option<usize> {
    let mut covered = first;
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
        let rights = rest.as_bytes();
        let is_allowed = rights.first() == Some(&b'r') && (!needs_write || rights.get(1) == Some(&b'w'));
        if from <= covered && covered < to && is_allowed {
            covered = to;
        }
        if covered >= end {
            return None;
        }
    }
    Some(covered)
}

fn register(
    pointer: *mut abi::ProtectionDomain,
    domain: &ProtectionDomain,
    context: *mut abi::Context,
    asked: &Registration,
) -> Outcome<*mut abi::Region> {
    let access = asked.access()?;
    asked.check(access.local_write)?;
    // SAFETY: The bytes are mapped. The program keeps them until it has deregistered them, and expects card and peers to access
    // them, which is the contract of `ibv_reg_mr`.
    let buffer = unsafe { raw::Buffer::new(asked.address.cast(), asked.bytes) };
    let region = raw::Region::register(&domain.domain, buffer, &access)?;
    let key = region.key();
    let (addr, length) = (asked.address, asked.bytes);
    let abi = abi::Region { context, pd: pointer, addr, length, handle: key, lkey: key, rkey: key };
    domain.users.fetch_add(1, Ordering::AcqRel);
    Ok(Box::into_raw(Box::new(Region { abi, region })).cast())
}

/// Registers for all functions that do.
///
/// # Safety
///
/// The domain exists.
unsafe fn registered(domain: *mut abi::ProtectionDomain, asked: &Registration) -> *mut abi::Region {
    // SAFETY: The caller answers for the domain.
    let (this, context) = unsafe { (ProtectionDomain::of(domain), (*domain).context) };
    object(register(domain, this, context, asked))
}

/// `ibv_reg_mr`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_reg_mr(
    domain: *mut abi::ProtectionDomain,
    address: *mut c_void,
    bytes: usize,
    flags: c_int,
) -> *mut abi::Region {
    let asked = Registration { address, bytes, first_address: address as u64, flags: flags as u32 };
    // SAFETY: The program passes a domain that exists.
    unsafe { registered(domain, &asked) }
}

/// `ibv_reg_mr_iova`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_reg_mr_iova(
    domain: *mut abi::ProtectionDomain,
    address: *mut c_void,
    bytes: usize,
    first_address: u64,
    flags: c_int,
) -> *mut abi::Region {
    let asked = Registration { address, bytes, first_address, flags: flags as u32 };
    // SAFETY: The program passes a domain that exists.
    unsafe { registered(domain, &asked) }
}

/// `ibv_reg_mr_iova2`, which inline functions call.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_reg_mr_iova2(
    domain: *mut abi::ProtectionDomain,
    address: *mut c_void,
    bytes: usize,
    first_address: u64,
    flags: u32,
) -> *mut abi::Region {
    let asked = Registration { address, bytes, first_address, flags };
    // SAFETY: The program passes a domain that exists.
    unsafe { registered(domain, &asked) }
}

/// `ibv_dereg_mr`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_dereg_mr(region: *mut abi::Region) -> c_int {
    // SAFETY: The program passes a region that exists, and uses it no more. `register` has taken it out of its box.
    let Region { abi, region } = *unsafe { Box::from_raw(region.cast::<Region>()) };
    // SAFETY: A domain exists as long as its regions.
    unsafe { ProtectionDomain::of(abi.pd) }.users.fetch_sub(1, Ordering::AcqRel);
    status(region.deregister().map_err(|error| Failure::new(libc::EIO, error)))
}

/// `ibv_rereg_mr`: the region stays as it is, because the card changes none.
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_rereg_mr() -> c_int {
    /// `IBV_REREG_MR_ERR_INPUT`: the old region is valid.
    const STILL_VALID: c_int = -1;
    set_errno(libc::EOPNOTSUPP);
    STILL_VALID
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0 [heap]
3000-4000 r--p 00000000 00:00 0
5000-6000 rw-p 00000000 00:00 0
6000-7000 ---p 00000000 00:00 0
";

    #[test]
    fn a_gap_in_memory_is_found() {
        for (first, end, needs_write, expected) in [
            (0x1000, 0x3000, true, None),
            (0x1fff, 0x3001, true, Some(0x3000)),
            (0x1fff, 0x4000, false, None),
            (0x1fff, 0x4001, false, Some(0x4000)),
            (0x0fff, 0x2000, false, Some(0x0fff)),
            (0x5000, 0x6001, false, Some(0x6000)),
            (0x9000, 0x9001, false, Some(0x9000)),
        ] {
            assert_eq!(first_gap(MAPS, first, end, needs_write), expected, "{first:#x} to {end:#x}");
        }
    }

    #[test]
    fn rights_that_the_card_has_not_are_refused() {
        let asked = |flags| Registration { address: std::ptr::null_mut(), bytes: 0, first_address: 7, flags };
        let errno = |flags| asked(flags).access().err().map(|failure| failure.errno());
        assert_eq!(asked(access::LOCAL_WRITE).access().unwrap().first_address, Some(7));
        assert_eq!(asked(access::ZERO_BASED | 1 << 20).access().unwrap().first_address, Some(0));
        assert_eq!(errno(access::REMOTE_WRITE), Some(libc::EINVAL));
        // Memory windows, and memory that is paged in on demand.
        assert_eq!([errno(1 << 4), errno(1 << 6)], [Some(libc::EOPNOTSUPP); 2]);
        assert_eq!(asked(0).check(false).err().map(|failure| failure.errno()), Some(libc::EINVAL));
    }

    #[test]
    fn memory_of_the_process_is_found() {
        static CONSTANT: [u8; 64] = [7; 64];
        let mut own = [0u8; 64];
        let at = |address, bytes| Registration { address, bytes, first_address: 0, flags: 0 };
        assert!(at(own.as_mut_ptr().cast(), 64).check(true).is_ok());
        let constant = CONSTANT.as_ptr().cast_mut().cast();
        assert!(at(constant, 64).check(false).is_ok() && at(constant, 64).check(true).is_err());
        assert_eq!(
            at(16 as *mut c_void, 1).check(false).err().map(|failure| failure.errno()),
            Some(libc::EFAULT)
        );
    }
}
