//! Records and rules of [`Atomics`](super::Atomics): tickets of locks, when an atomic may begin, and what it
//! does to its word (protocol 3.5, 3.7).
use crate::messages::{AtomicOperands, AtomicRequest, AtomicResult};
use rnic_kernel::prelude::*;
use rnic_messages::host::{HostWord, WordWrite};
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS, ReadShare, share_slots};
use rnic_messages::setup::InFlight;
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS};

/// Bits of an address that choose a lock.
pub(super) const LOCK_BITS: usize = 9;
/// Bits of a ticket: each queue pair holds one at most.
pub(super) const TICKET_BITS: usize = QUEUE_PAIR_BITS + 1;

/// A lock. It is free when the next ticket to draw is the one that is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Lock {
    /// The next ticket to draw.
    pub next: Bits<TICKET_BITS>,
    /// The ticket whose atomic may begin.
    pub called: Bits<TICKET_BITS>,
}

/// Progress of a queue pair. Counts are free-running.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Progress {
    /// Requests taken.
    pub stored: Bits<READ_COUNT_BITS>,
    /// Requests released.
    pub released: Bits<READ_COUNT_BITS>,
    /// Requests begun.
    pub started: Bits<READ_COUNT_BITS>,
    /// The last that has begun is not done.
    pub is_in_flight: Bit,
    /// The queue pair is in the ready queue.
    pub is_queued: Bit,
    /// The oldest request has found its word locked, and holds `ticket`.
    pub has_ticket: Bit,
    /// Its ticket.
    pub ticket: Bits<TICKET_BITS>,
    /// READ slots of the queue pair, as of the last request.
    pub share: ReadShare,
}

/// A request in the ring of its queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Waiting {
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Slot of the request.
    pub slot: Bits<READ_SLOT_BITS>,
    /// Lowest bit of the number of the period that it belongs to.
    pub period: Bit,
    /// Device address of its word.
    pub address: Bits<64>,
    /// Operation and operands.
    pub operands: AtomicOperands,
}

/// An atomic whose word is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Reading {
    /// Queue pair of the request.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// The request.
    pub waiting: Waiting,
}

/// An atomic whose word was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Written {
    /// Queue pair of the request.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Slot of the request.
    pub slot: Bits<READ_SLOT_BITS>,
    /// As in [`Waiting`].
    pub period: Bit,
    /// Lock of the word.
    pub lock: Bits<LOCK_BITS>,
    /// Value of the word before the operation; zero if it could not be read.
    pub original: Bits<64>,
    /// Its write is outstanding.
    pub has_write: Bit,
    /// The word could not be read.
    pub has_failed: Bit,
}

/// What happens to the progress of a queue pair in a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Change {
    /// A request is taken.
    pub stores: Bit,
    /// A request is released.
    pub releases: Bit,
    /// The oldest request tries to begin.
    pub tries: Bit,
    /// It does.
    pub starts: Bit,
    /// The request that has begun is done.
    pub ends: Bit,
    /// READ slots of the queue pair, if `stores`.
    pub share: ReadShare,
}

/// Gives the lock of a word: its offset in a page, which is the same by whatever region and page list it is
/// reached.
#[kernel]
pub(crate) fn lock_of(address: Bits<64>) -> Bits<LOCK_BITS> {
    address.get_bits::<LOCK_BITS>(3)
}

/// Gives a lock after a ticket is drawn, or after its atomic is done.
#[kernel]
pub(super) fn lock_after(lock: Lock, draws: Bit, ends: Bit) -> Lock {
    Lock { next: select(draws, lock.next + 1, lock.next), called: select(ends, lock.called + 1, lock.called) }
}

/// Says whether a queue pair has room for a request among its READ slots.
#[kernel]
pub(super) fn has_room(progress: Progress, share: ReadShare) -> Bit {
    progress.stored - progress.started < share_slots(share)
}

/// Gives the ticket of the oldest request: the one that it holds, or the next of the lock.
#[kernel]
pub(super) fn ticket_of(progress: Progress, lock: Lock) -> Bits<TICKET_BITS> {
    select(progress.has_ticket, progress.ticket, lock.next)
}

/// Says whether the oldest request may begin, once it gets its lock.
#[kernel]
pub(super) fn may_begin(progress: Progress) -> Bit {
    progress.stored != progress.started && progress.released != progress.started && !progress.is_in_flight
}

/// Gives the progress after a change, and before the queue pair enters the ready queue; `ticket` is that of the
/// oldest request.
#[kernel]
pub(super) fn progress_after(progress: Progress, change: Change, ticket: Bits<TICKET_BITS>) -> Progress {
    Progress {
        stored: select(change.stores, progress.stored + 1, progress.stored),
        released: select(change.releases, progress.released + 1, progress.released),
        started: select(change.starts, progress.started + 1, progress.started),
        is_in_flight: change.starts || (progress.is_in_flight && !change.ends),
        is_queued: progress.is_queued && !change.tries,
        has_ticket: select(change.tries, !change.starts, progress.has_ticket),
        ticket,
        share: select(change.stores, change.share, progress.share),
    }
}

/// Gives a request as it waits in its ring.
#[kernel]
pub(super) fn waiting_of(request: AtomicRequest, period: Bit) -> Waiting {
    Waiting {
        generation: request.generation,
        slot: request.slot,
        period,
        address: request.address,
        operands: request.operands,
    }
}

/// Says whether an atomic writes its word: FETCH_ADD always, COMPARE_SWAP if the word compares equal; never if
/// it could not be read.
#[kernel]
pub(super) fn writes_word(operands: AtomicOperands, word: HostWord) -> Bit {
    (!operands.is_compare || word.data == operands.compare) && !word.error
}

/// Gives the write of an atomic.
#[kernel]
pub(super) fn write_of(waiting: Waiting, word: HostWord) -> WordWrite {
    WordWrite {
        address: waiting.address,
        data: select(
            waiting.operands.is_compare,
            waiting.operands.operand,
            word.data + waiting.operands.operand,
        ),
    }
}

/// Gives an atomic after its word was read.
#[kernel]
pub(super) fn written_of(reading: Reading, word: HostWord) -> Written {
    Written {
        queue_pair: reading.queue_pair,
        generation: reading.waiting.generation,
        slot: reading.waiting.slot,
        period: reading.waiting.period,
        lock: lock_of(reading.waiting.address),
        original: select(word.error, bits::<64>(0), word.data),
        has_write: writes_word(reading.waiting.operands, word),
        has_failed: word.error,
    }
}

/// Gives the result of an atomic that is done; `write_failed` counts if it has a write.
#[kernel]
pub(super) fn result_of(
    written: Written,
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    write_failed: Bit,
) -> AtomicResult {
    AtomicResult {
        queue_pair,
        generation: written.generation,
        slot: written.slot,
        original: written.original,
        has_failed: written.has_failed || (written.has_write && write_failed),
    }
}

/// Says whether a new period begins: the newer one has atomics, and the older one has none.
#[kernel]
pub(super) fn begins_period(has_newer: Bit, has_older: Bit) -> Bit {
    has_newer && !has_older
}

/// Gives the progress of the section: all periods up to the newer one have entered, and those before the oldest
/// with atomics have left. A newer period without atomics counts as left.
#[kernel]
pub(super) fn in_flight_of(period: Bits<16>, has_newer: Bit, has_older: Bit) -> InFlight {
    InFlight {
        entered: period + 1,
        left: if has_older {
            period - 1
        } else if has_newer {
            period
        } else {
            period + 1
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_same_offset_share_a_lock() {
        for (address, lock) in
            [(0, 0), (8, 1), (0xff8, 0x1ff), (0x1000, 0), (0x7000_1008, 1), (u64::MAX - 7, 0x1ff)]
        {
            assert_eq!(lock_of(bits(address)), bits(lock), "{address:#x}");
        }
    }

    #[test]
    fn tickets_are_called_in_the_order_in_which_they_were_drawn() {
        let lock = |next, called| Lock { next: bits(next), called: bits(called) };
        for (before, draws, ends, after) in [
            (lock(0, 0), true, false, lock(1, 0)),
            (lock(1, 0), true, false, lock(2, 0)),
            (lock(2, 0), false, true, lock(2, 1)),
            (lock(0x7ff, 0x7fe), true, false, lock(0, 0x7fe)),
            (lock(0, 0x7ff), false, true, lock(0, 0)),
        ] {
            assert_eq!(lock_after(before, draws, ends), after);
        }
        let holder = Progress { has_ticket: true, ticket: bits(3), ..Progress::default() };
        assert_eq!(ticket_of(holder, lock(9, 1)), bits(3));
        assert_eq!(ticket_of(Progress::default(), lock(9, 1)), bits(9));
    }

    #[test]
    fn a_request_begins_when_released_and_alone() {
        let progress = |stored, released, started, is_in_flight| Progress {
            stored: bits(stored),
            released: bits(released),
            started: bits(started),
            is_in_flight,
            ..Progress::default()
        };
        for (progress, expected) in [
            (progress(0, 0, 0, false), false),
            (progress(1, 0, 0, false), false),
            (progress(0, 1, 0, false), false),
            (progress(1, 1, 0, false), true),
            (progress(1, 1, 0, true), false),
            (progress(2, 1, 1, false), false),
            (progress(0, 0, 31, false), true),
        ] {
            assert_eq!(may_begin(progress), expected, "{progress:?}");
        }
        for (stored, started, size, expected) in [
            (15, 0, 3, true),
            (16, 0, 3, false),
            (15, 31, 3, false),
            (14, 31, 3, true),
            (7, 0, 2, true),
            (7, 31, 2, false),
            (3, 0, 1, true),
            (4, 0, 1, false),
            (0, 0, 0, false),
        ] {
            let share = ReadShare { size: bits(size), ..ReadShare::default() };
            assert_eq!(
                has_room(progress(stored, 0, started, false), share),
                expected,
                "{stored} {started} {size}"
            );
        }
    }

    #[test]
    fn progress_follows_its_events() {
        let none = Change::default();
        let share = ReadShare { unit: bits(12), size: bits(2) };
        let progress = Progress {
            stored: bits(5),
            released: bits(4),
            started: bits(3),
            is_queued: true,
            ..Progress::default()
        };
        let ticket = bits(7);
        let same = Progress { ticket, ..progress };
        let unqueued = Progress { is_queued: false, ..same };
        for (change, expected) in [
            (none, same),
            (Change { stores: true, share, ..none }, Progress { stored: bits(6), share, ..same }),
            (Change { releases: true, share, ..none }, Progress { released: bits(5), ..same }),
            (Change { tries: true, ..none }, Progress { has_ticket: true, ..unqueued }),
            (
                Change { tries: true, starts: true, ..none },
                Progress { started: bits(4), is_in_flight: true, ..unqueued },
            ),
        ] {
            assert_eq!(progress_after(progress, change, ticket), expected, "{change:?}");
        }
        let begun = Progress { is_in_flight: true, has_ticket: true, ..same };
        let ended = progress_after(begun, Change { ends: true, ..none }, ticket);
        assert_eq!(ended, Progress { has_ticket: true, ..same });
    }

    #[test]
    fn an_atomic_changes_its_word_as_its_operation_says() {
        let operands = |is_compare, operand, compare| AtomicOperands {
            is_compare,
            operand: bits(operand),
            compare: bits(compare),
        };
        let max = u64::MAX;
        for (operands, data, error, write) in [
            (operands(false, 5, 0), 10, false, Some(15)),
            (operands(false, 1, 0), max, false, Some(0)),
            (operands(false, 0, 0), 10, false, Some(10)),
            (operands(true, 5, 10), 10, false, Some(5)),
            (operands(true, 5, 10), 11, false, None),
            (operands(false, 5, 0), 10, true, None),
            (operands(true, 5, 10), 10, true, None),
        ] {
            let word = HostWord { data: bits(data), error };
            let waiting = Waiting { operands, address: bits(0x1008), ..Waiting::default() };
            let written = written_of(Reading { queue_pair: bits(3), waiting }, word);
            assert_eq!((written.has_write, written.has_failed), (write.is_some(), error));
            assert_eq!(written.original, bits(if error { 0 } else { data }));
            assert_eq!(written.lock, bits(1));
            if let Some(expected) = write {
                let write = write_of(waiting, word);
                assert_eq!((write.address, write.data), (bits(0x1008), bits(expected)));
            }
        }
    }

    #[test]
    fn a_result_has_failed_if_its_read_or_its_write_has() {
        for (has_failed, has_write, write_failed, expected) in [
            (false, false, false, false),
            (false, false, true, false),
            (false, true, false, false),
            (false, true, true, true),
            (true, false, false, true),
        ] {
            let written = Written { has_failed, has_write, original: bits(9), ..Written::default() };
            let result = result_of(written, bits(3), write_failed);
            assert_eq!((result.has_failed, result.original), (expected, bits(9)));
        }
    }

    #[test]
    fn a_period_has_left_with_its_last_atomic() {
        for (has_newer, has_older, begins, left) in [
            (false, false, false, 8),
            (true, false, true, 7),
            (false, true, false, 6),
            (true, true, false, 6),
        ] {
            assert_eq!(begins_period(has_newer, has_older), begins);
            let in_flight = in_flight_of(bits(7), has_newer, has_older);
            assert_eq!((in_flight.entered, in_flight.left), (bits(8), bits(left)));
        }
    }
}
