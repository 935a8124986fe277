//! Unread: event queues of which software has not read half.
//!
//! Completion events take the first half of an event queue only; so asynchronous events find room, however many
//! completion queues software arms without reading events.
//!
//! ```text
//!  indices ──> unread ──> half of the entries? ──> crowded, one bit a queue
//! ```
//!
//! Latency 2 cycles.
//!
//! 1. The bit of a queue is that of the indices that came last for it; after a reset it is zero.
//!
//! Design decision 14.
use crate::event_queues::EVENT_QUEUES;
use crate::ring::{INDEX_BITS, is_half_unread};
use rnic_blocks::stream::ValidRx;
use rnic_kernel::prelude::*;
use rnic_messages::sizes::EVENT_QUEUE_BITS;

/// Indices of an event queue that have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(crate) struct Indices {
    /// Number of the event queue.
    pub(crate) event_queue: Bits<EVENT_QUEUE_BITS>,
    /// EQEs written since the queue was made.
    pub(crate) producer_index: Bits<INDEX_BITS>,
    /// EQEs read by software.
    pub(crate) consumer_index: Bits<INDEX_BITS>,
    /// log2 of the EQEs of the ring.
    pub(crate) entries_log2: Bits<5>,
}

/// Marks the event queues that are half unread.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(crate) struct Unread {
    /// Indices of a queue.
    pub indices: ValidRx<Indices>,
    /// Queues that are half unread, one bit each; registered.
    pub crowded: Signal<Out, Bits<EVENT_QUEUES>>,

    latest: DFF<Indices>,
    has_latest: Reg<Bit>,
    marks: Reg<Bits<EVENT_QUEUES>>,
}

/// The marks of all queues after the indices of one have changed.
#[kernel]
fn marks_after(marks: Bits<EVENT_QUEUES>, indices: Indices) -> Bits<EVENT_QUEUES> {
    let mark = bits::<EVENT_QUEUES>(1) << indices.event_queue;
    let is_crowded = is_half_unread(indices.producer_index, indices.consumer_index, indices.entries_log2);
    select(is_crowded, marks | mark, marks & !mark)
}

impl Logic for Unread {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.latest.d.next = self.indices.value.val();
        self.has_latest.d.next = self.indices.valid.val();
        let marks = self.marks.q.val();
        if self.has_latest.q.val() {
            self.marks.d.next = marks_after(marks, self.latest.q.val());
        }
        self.crowded.next = marks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_crowded_while_half_of_it_is_unread() {
        for (before, event_queue, consumer_index, after) in [
            (0, 3, 37, 8),
            (8, 3, 37, 8),
            (8, 3, 38, 0),
            (9, 3, 38, 1),
            (8, 31, 0, 0x8000_0008),
            (8, 0, 69, 8),
        ] {
            let indices = Indices {
                event_queue: bits(event_queue),
                producer_index: bits(69),
                consumer_index: bits(consumer_index),
                entries_log2: bits(6),
            };
            assert_eq!(marks_after(bits(before), indices), bits(after), "queue {event_queue}");
        }
    }
}
