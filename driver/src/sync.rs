//! Locks and atomics: those of the standard library, or with `--cfg loom` those of the model checker, so that its tests run
//! the same posting and polling code. A lock ignores poisoning.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64},
};

use std::sync::PoisonError;

/// Locks a mutex, poisoned or not. The driver updates guarded state in steps that cannot panic half-way, so the panic of
/// another thread leaves it consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
