//! Turns: what one thread begins with one call of the program and ends with another, while others wait.

use rnic_stand_in::lock;
use std::sync::{Condvar, Mutex, PoisonError};

/// A lock whose holder is no guard, because it is held across calls.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    is_taken: Mutex<bool>,
    ended: Condvar,
}

impl Turn {
    /// Waits until no thread has the turn, and takes it.
    pub(crate) fn take(&self) {
        let wait = self.ended.wait_while(lock(&self.is_taken), |is_taken| *is_taken);
        *wait.unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Ends the turn of this thread.
    pub(crate) fn end(&self) {
        *lock(&self.is_taken) = false;
        self.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_turn_begins_after_the_end_of_the_one_before() {
        let (turn, has_ended) = (Turn::default(), AtomicBool::new(false));
        turn.take();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                turn.take();
                let was_ended = has_ended.load(Ordering::Relaxed);
                turn.end();
                was_ended
            });
            has_ended.store(true, Ordering::Relaxed);
            turn.end();
            assert!(second.join().unwrap());
        });
    }
}
