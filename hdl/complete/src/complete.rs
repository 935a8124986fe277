//! What happens when work is done: entry, event, interrupt.
//!
//! ```text
//!  from_requester ─┐                  ┌───────────────────┐ step ┌──────────────┐
//!                  ├─> (one of two) ─>│ completion queues ├─────>│ event queues ├──> write
//!  from_responder ─┘                  └─────────┬─────────┘      └──────┬───────┘
//!  event ───────────────────────────────────────┼──────────────────────>│   ┌────────────┐
//!                                               └──> failure            └──>│ interrupts ├──> irq
//!                                                                           └────────────┘
//! ```
//!
//! A completion in 3 cycles; latency 6 cycles from a completion to its write. What each part promises stands in its own header.
use crate::completion_queues::{CompletionQueues, Step};
use crate::event_queues::EventQueues;
use crate::interrupts::Interrupts;
use rnic_blocks::stream::{Arbiter, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::complete::{CompletionQueueSetup, CqeToken, EqeToken, EventQueueSetup};
use rnic_messages::doorbell::{CompletionsRead, EventsRead};
use rnic_messages::host::SlotWrite;
use rnic_messages::setup::FailureEvent;
use rnic_messages::sizes::{VECTOR_BITS, WRITE_COUNT_BITS};

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct Complete {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,

    /// Completions of the send queues; `ready` is registered.
    pub from_requester: StreamRx<CqeToken>,
    /// Completions of the receive queues; `ready` is registered.
    pub from_responder: StreamRx<CqeToken>,
    /// Events for queue 0; `ready` is registered.
    pub event: StreamRx<EqeToken>,
    /// Commands make, change or end a completion queue.
    pub completion_queue_setup: Signal<In, CompletionQueueSetup>,
    /// There is one.
    pub completion_queue_setup_valid: Signal<In, Bit>,
    /// Commands make, change or end an event queue.
    pub event_queue_setup: Signal<In, EventQueueSetup>,
    /// There is one.
    pub event_queue_setup_valid: Signal<In, Bit>,
    /// A completion queue was read.
    pub completions_read: Signal<In, CompletionsRead>,
    /// There is one.
    pub completions_read_valid: Signal<In, Bit>,
    /// An event queue was read.
    pub events_read: Signal<In, EventsRead>,
    /// There is one.
    pub events_read_valid: Signal<In, Bit>,

    /// Entries and events; a function of registers.
    pub write: StreamTx<SlotWrite>,
    /// How many of these writes the host has reported done, modulo 2^16.
    pub write_done: Signal<In, Bits<WRITE_COUNT_BITS>>,
    /// Queue pairs whose completion found no room; registered.
    pub failure: StreamTx<FailureEvent>,

    /// Register `interrupt_mask`.
    pub interrupt_mask: Signal<In, Bits<64>>,
    /// Ones take pending vectors back.
    pub interrupt_pending_clear: Signal<In, Bits<64>>,
    /// Register `interrupt_moderation` is written.
    pub interrupt_moderation_write: Signal<In, Bit>,
    /// For this vector.
    pub interrupt_moderation_vector: Signal<In, Bits<VECTOR_BITS>>,
    /// With this period, in units of 256 cycles.
    pub interrupt_moderation_period: Signal<In, Bits<16>>,
    /// Register `interrupt_pending`.
    pub interrupt_pending: Signal<Out, Bits<64>>,
    /// To the shell; registered.
    pub irq: StreamTx<Bits<VECTOR_BITS>>,

    /// No entry, event or interrupt is under way behind the completion queues; registered.
    pub is_idle: Signal<Out, Bit>,
    /// Event queue 0 was full: the device has failed.
    pub overran_queue_0: Signal<Out, Bit>,
    /// An entry is written.
    pub counts_completions_written: Signal<Out, Bit>,
    /// An entry with a status other than success is written.
    pub counts_completions_in_error: Signal<Out, Bit>,
    /// A completion found its queue full.
    pub counts_completion_queue_overrun: Signal<Out, Bit>,
    /// An event is written.
    pub counts_events_written: Signal<Out, Bit>,
    /// An event found its queue full.
    pub counts_event_queue_overrun: Signal<Out, Bit>,
    /// A vector is raised.
    pub counts_interrupts_raised: Signal<Out, Bit>,

    slices: [RegisterSlice<CqeToken>; 2],
    event_slice: RegisterSlice<EqeToken>,
    merge: Arbiter<CqeToken, 2>,
    completion_queues: CompletionQueues,
    event_queues: EventQueues,
    interrupts: Interrupts,
}

impl Logic for Complete {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        StreamRx::<CqeToken>::link(&mut self.from_requester, &mut self.slices[0].rx);
        StreamRx::<CqeToken>::link(&mut self.from_responder, &mut self.slices[1].rx);
        for i in 0..2 {
            StreamTx::<CqeToken>::join(&mut self.slices[i].tx, &mut self.merge.rx[i]);
        }
        self.merge.last.next = !bits::<2>(0);
        StreamTx::<CqeToken>::join(&mut self.merge.tx, &mut self.completion_queues.token);
        self.completion_queues.setup.next = self.completion_queue_setup.val();
        self.completion_queues.setup_valid.next = self.completion_queue_setup_valid.val();
        self.completion_queues.read.next = self.completions_read.val();
        self.completion_queues.read_valid.next = self.completions_read_valid.val();
        StreamTx::<FailureEvent>::link(&mut self.failure, &mut self.completion_queues.failure);

        StreamTx::<Step>::join(&mut self.completion_queues.step, &mut self.event_queues.step);
        StreamRx::<EqeToken>::link(&mut self.event, &mut self.event_slice.rx);
        StreamTx::<EqeToken>::join(&mut self.event_slice.tx, &mut self.event_queues.event);
        self.event_queues.setup.next = self.event_queue_setup.val();
        self.event_queues.setup_valid.next = self.event_queue_setup_valid.val();
        self.event_queues.read.next = self.events_read.val();
        self.event_queues.read_valid.next = self.events_read_valid.val();
        StreamTx::<SlotWrite>::link(&mut self.write, &mut self.event_queues.write);
        self.event_queues.write_done.next = self.write_done.val();
        self.is_idle.next = self.event_queues.is_idle.val();
        self.overran_queue_0.next = self.event_queues.overran_queue_0.val();

        StreamTx::<Bits<VECTOR_BITS>>::join(&mut self.event_queues.interrupt, &mut self.interrupts.request);
        self.interrupts.mask.next = self.interrupt_mask.val();
        self.interrupts.pending_clear.next = self.interrupt_pending_clear.val();
        self.interrupts.moderation_write.next = self.interrupt_moderation_write.val();
        self.interrupts.moderation_vector.next = self.interrupt_moderation_vector.val();
        self.interrupts.moderation_period.next = self.interrupt_moderation_period.val();
        self.interrupt_pending.next = self.interrupts.pending.val();
        StreamTx::<Bits<VECTOR_BITS>>::link(&mut self.irq, &mut self.interrupts.irq);

        self.counts_completions_written.next = self.completion_queues.counts_completions_written.val();
        self.counts_completions_in_error.next = self.completion_queues.counts_completions_in_error.val();
        self.counts_completion_queue_overrun.next =
            self.completion_queues.counts_completion_queue_overrun.val();
        self.counts_events_written.next = self.event_queues.counts_events_written.val();
        self.counts_event_queue_overrun.next = self.event_queues.counts_event_queue_overrun.val();
        self.counts_interrupts_raised.next = self.interrupts.counts_interrupts_raised.val();
    }
}

#[cfg(test)]
mod tests;
