//! Waits of several threads for one interrupt vector.
//!
//! The interrupt of a vector ends the wait of one thread only, while the event queues of the vector may have events for
//! several. So one thread waits for the interrupt, and the others wait for that thread:
//!
//! ```text
//!   first thread:  arms its event queue ── wait_interrupt ──> wakes the others ── reads its event queue
//!   others:        arm their event queues ── sleep ─────────> read their event queues
//! ```

use crate::function::{Function, FunctionError};
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest sleep of a thread that waits for another one, in real time. It bounds the delay after a wake-up for a reason
/// that raises no interrupt, such as a completion that another thread has read.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Threads that wait for interrupts, by vector.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    vectors: Mutex<HashMap<u32, Vector>>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    /// A thread waits for the interrupt.
    is_awaited: bool,
    /// Number of waits for the interrupt that have ended.
    ended: u64,
}

impl Interrupts {
    /// Locks the waits. The model checker has no clock, so they use the standard library in its tests too.
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Vector>> {
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of waits for the interrupt of a vector that have ended. A thread reads it before it arms its event queue.
    pub(crate) fn ended(&self, vector: u32) -> u64 {
        self.lock().entry(vector).or_default().ended
    }

    /// Waits for the interrupt of a vector until `until`, or until another thread's wait for it has ended since
    /// [`Self::ended`] returned `ended`, or until [`Self::wake`] is called while `is_stale` returns true.
    pub(crate) fn wait(
        &self,
        function: &dyn Function,
        vector: u32,
        ended: u64,
        until: Duration,
        is_stale: impl Fn() -> bool,
    ) -> Result<(), FunctionError> {
        let mut vectors = self.lock();
        let state = vectors.entry(vector).or_default();
        if state.ended != ended || is_stale() {
            return Ok(());
        }
        if !state.is_awaited {
            state.is_awaited = true;
            drop(vectors);
            let _awaiting = Awaiting { interrupts: self, vector };
            return function.wait_interrupt(vector, until).map(drop);
        }
        let waits = |vectors: &mut HashMap<u32, Vector>| {
            let state = vectors.entry(vector).or_default();
            state.is_awaited && state.ended == ended && !is_stale()
        };
        drop(
            self.changed
                .wait_timeout_while(vectors, SLEEP_MAX, waits)
                .unwrap_or_else(PoisonError::into_inner),
        );
        Ok(())
    }

    /// Wakes the threads whose `is_stale` has become true.
    pub(crate) fn wake(&self) {
        // With the lock, a thread has either not looked at `is_stale` yet, or sleeps.
        let _vectors = self.lock();
        self.changed.notify_all();
    }
}

/// The wait of one thread for the interrupt of a vector. Its end wakes the others, also after a panic of the back end.
struct Awaiting<'a> {
    interrupts: &'a Interrupts,
    vector: u32,
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        let mut vectors = self.interrupts.lock();
        let state = vectors.entry(self.vector).or_default();
        state.is_awaited = false;
        state.ended += 1;
        self.interrupts.changed.notify_all();
    }
}
