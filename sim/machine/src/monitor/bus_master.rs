//! Bus master: while the function may not reach its host, the card begins nothing.
//!
//! What was offered before stays until it is taken. A write of which the host has the request gets its words, and one of which it has
//! words gets its request.
use super::{Log, Rule};

/// Cycles after the end of the right in which something may still begin: the card has an input register.
const CYCLES_AFTER: u32 = 1;

/// What a stream showed at an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// A beat was offered that was not offered before.
    pub begins: bool,
    /// A beat was taken.
    pub is_taken: bool,
}

/// What the card showed its host at an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// A read request.
    pub read: Offer,
    /// A write request.
    pub write: Offer,
    /// A word of a write.
    pub word: Offer,
    /// The word is the last of its write.
    pub is_last: bool,
    /// An interrupt.
    pub interrupt: Offer,
}

/// Watches one card.
#[derive(Clone, Debug)]
pub struct BusMasterMonitor {
    is_master: bool,
    /// Edges since the right has ended.
    edges: u32,
    /// Requests of writes that were taken, less writes whose last word was.
    ahead: i64,
    /// The host has words of a write, and not the last.
    is_inside: bool,
}

impl BusMasterMonitor {
    /// Watches a card that may reach its host.
    pub fn new() -> BusMasterMonitor {
        BusMasterMonitor { is_master: true, edges: 0, ahead: 0, is_inside: false }
    }

    /// The function becomes bus master, or ends to be it.
    pub fn set(&mut self, is_master: bool) {
        if is_master != self.is_master {
            (self.is_master, self.edges) = (is_master, 0);
        }
    }

    /// The card was reset: what the host has of its last write will not be completed.
    pub fn forget(&mut self) {
        (self.ahead, self.is_inside) = (0, false);
    }

    /// Looks at an edge of the core clock.
    pub fn sample(&mut self, offers: &Offers, now_ps: u64, log: &mut Log) {
        let Offers { read, write, word, is_last, interrupt } = *offers;
        if !self.is_master {
            // A write begins with its request or with its first word, whichever comes first.
            let write_begins = write.begins && self.ahead >= 0 && !(self.ahead == 0 && self.is_inside);
            let word_begins = word.begins && self.ahead <= 0 && !self.is_inside;
            let what = [
                (read.begins, "a read"),
                (write_begins || word_begins, "a write"),
                (interrupt.begins, "an interrupt"),
            ];
            if self.edges > CYCLES_AFTER {
                for (_, what) in what.iter().filter(|(begins, _)| *begins) {
                    log.report(now_ps, Rule::BusMaster, || {
                        format!("{what} begins {} cycles after the end of the right to it", self.edges)
                    });
                }
            }
            self.edges = self.edges.saturating_add(1);
        }
        self.ahead += i64::from(write.is_taken) - i64::from(word.is_taken && is_last);
        if word.is_taken {
            self.is_inside = !is_last;
        }
    }
}

impl Default for BusMasterMonitor {
    fn default() -> Self {
        BusMasterMonitor::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGINS: Offer = Offer { begins: true, is_taken: false };
    const TAKEN: Offer = Offer { begins: true, is_taken: true };
    const LATER: Offer = Offer { begins: false, is_taken: true };
    const NONE: Offers = Offers {
        read: Offer { begins: false, is_taken: false },
        write: Offer { begins: false, is_taken: false },
        word: Offer { begins: false, is_taken: false },
        is_last: false,
        interrupt: Offer { begins: false, is_taken: false },
    };

    /// Violations of edges, the first of which follows the end of the right.
    fn violations(before: &[Offers], after: &[Offers]) -> usize {
        let (mut monitor, mut log) = (BusMasterMonitor::new(), Log::new("card0"));
        before.iter().for_each(|offers| monitor.sample(offers, 0, &mut log));
        assert!(log.violations().is_empty(), "a card that may reach its host does what it likes");
        monitor.set(false);
        after.iter().for_each(|offers| monitor.sample(offers, 0, &mut log));
        log.take().len()
    }

    #[test]
    fn nothing_begins_after_the_end_of_the_right() {
        let read = Offers { read: BEGINS, ..NONE };
        for begun in [
            read,
            Offers { write: BEGINS, ..NONE },
            Offers { word: BEGINS, ..NONE },
            Offers { interrupt: BEGINS, ..NONE },
        ] {
            assert_eq!(violations(&[], &[begun, NONE, NONE]), 0, "{begun:?}");
            assert_eq!(violations(&[], &[NONE, begun]), 0, "{begun:?}");
            assert_eq!(violations(&[], &[NONE, NONE, begun]), 1, "{begun:?}");
            assert_eq!(violations(&[begun], &[NONE, NONE, begun]), 1, "{begun:?}");
        }
        // What was offered before may be taken at any time.
        let late = Offers { read: LATER, write: LATER, interrupt: LATER, ..NONE };
        assert_eq!(violations(&[read], &[NONE, NONE, NONE, late]), 0);
    }

    #[test]
    fn a_write_that_has_begun_is_completed() {
        let request = Offers { write: TAKEN, ..NONE };
        let (word, last) = (Offers { word: TAKEN, ..NONE }, Offers { word: TAKEN, is_last: true, ..NONE });
        for (before, after, expected) in [
            (vec![request], vec![NONE, NONE, word, last], 0),
            (vec![word], vec![NONE, NONE, request, last], 0),
            (vec![last], vec![NONE, NONE, request], 0),
            (vec![request], vec![NONE, NONE, last, word], 1),
            (vec![request], vec![NONE, NONE, request], 1),
            (vec![last], vec![NONE, NONE, request, request], 1),
            (vec![word], vec![NONE, NONE, last, last], 1),
            (vec![request, request, last], vec![NONE, NONE, last, last], 1),
        ] {
            assert_eq!(violations(&before, &after), expected, "{before:?} {after:?}");
        }
    }
}
