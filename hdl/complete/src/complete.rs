//! Completions: CQEs, EQEs and interrupts, in this order.
//!
//! ```text
//!  from_requester ─┐                  ┌───────────────────┐ delivery ┌──────────────┐
//!                  ├─> (one of two) ─>│ completion queues ├─────────>│ event queues ├──> write
//!  from_responder ─┘                  │                   │<─────────┤              │
//!  refused ──────────────────────────>│                   │ crowded  │              │
//!                                     └─────────┬─────────┘          └──────┬───────┘
//!  event ───────────────────────────────────────┼──────────────────────────>│   ┌────────────┐
//!                                               └──> failure                └──>│ interrupts ├──> irq
//!                                                                               └────────────┘
//! ```
//!
//! One CQE in 3 cycles; latency 6 cycles from a token to its write. The headers of the three parts list what
//! they guarantee.
use crate::completion_queues::{CompletionQueues, DELIVERY_COUNT, REFUSED_COUNT};
use crate::event_queues::EventQueues;
use crate::interrupts::Interrupts;
use rnic_blocks::stream::{Arbiter, RegisterSlice, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::complete::{CompletionQueueSetup, CqeToken, EqeToken, EventQueueSetup};
use rnic_messages::doorbell::{CompletionsRead, EventsRead};
use rnic_messages::host::{CqeOwner, SlotWrite};
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::setup::QpNotice;
use rnic_messages::sizes::{VECTOR_BITS, WRITE_COUNT_BITS};

/// Counters of the crate: each bit is high for one cycle for each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CompleteCounts {
    /// A CQE is written.
    pub completions_written: Bit,
    /// A CQE with a status other than success is written.
    pub completions_in_error: Bit,
    /// A CQE found its queue full, or ended by a CQE before it.
    pub completion_queue_overrun: Bit,
    /// An EQE is written.
    pub events_written: Bit,
    /// An EQE found its queue full.
    pub event_queue_overrun: Bit,
    /// A vector is raised.
    pub interrupts_raised: Bit,
}

/// Levels of the pools of the crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CompletePools {
    /// CQEs and EQEs between the completion queues and the event queues.
    pub deliveries: Bits<LEVEL_BITS>,
    /// Writes of CQEs and EQEs that the host has not done.
    pub writes: Bits<LEVEL_BITS>,
    /// EQEs and interrupts that wait for writes before them.
    pub events: Bits<LEVEL_BITS>,
    /// Refused CQEs whose queue has not been told.
    pub refusals: Bits<LEVEL_BITS>,
}

/// Completion queues, event queues and interrupts; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub struct Complete {
    /// From the requester: CQEs of send queues; `ready` is registered.
    pub from_requester: StreamRx<CqeToken>,
    /// From place: CQEs of receive queues; `ready` is registered.
    pub from_responder: StreamRx<CqeToken>,
    /// From control: EQEs for queue 0; `ready` is registered.
    pub event: StreamRx<EqeToken>,
    /// From control: a command makes, changes or destroys a completion queue.
    pub completion_queue_setup: ValidRx<CompletionQueueSetup>,
    /// From control: a command makes, changes or destroys an event queue.
    pub event_queue_setup: ValidRx<EventQueueSetup>,
    /// From the doorbells: software has read CQEs, and may arm the queue.
    pub completions_read: ValidRx<CompletionsRead>,
    /// From the doorbells: software has read EQEs, and may arm the queue.
    pub events_read: ValidRx<EventsRead>,

    /// To the host writer: CQEs and EQEs; a function of registers.
    pub write: StreamTx<SlotWrite>,
    /// From the host writer: writes of CQEs and EQEs that are done, modulo 2^16.
    pub write_done: Signal<In, Bits<WRITE_COUNT_BITS>>,
    /// From the write failures: the host refused to write this CQE. Such failures are as rare as faults of the host, but there is room
    /// for one of each write in flight.
    pub refused: ValidRx<CqeOwner>,
    /// To control: queue pairs with a CQE that found no room, or that the host refused; registered.
    pub failure: StreamTx<QpNotice>,

    /// Register `interrupt_mask`: vectors that must not be raised.
    pub interrupt_mask: Signal<In, Bits<64>>,
    /// Ones clear pending vectors.
    pub interrupt_pending_clear: Signal<In, Bits<64>>,
    /// Register `interrupt_moderation` is written in this cycle.
    pub interrupt_moderation_write: Signal<In, Bit>,
    /// Vector of that write.
    pub interrupt_moderation_vector: Signal<In, Bits<VECTOR_BITS>>,
    /// Period of that write, in units of 256 cycles.
    pub interrupt_moderation_period: Signal<In, Bits<16>>,
    /// Register `interrupt_pending`; registered.
    pub interrupt_pending: Signal<Out, Bits<64>>,
    /// To the shell: vectors to raise; registered.
    pub irq: StreamTx<Bits<VECTOR_BITS>>,

    /// No CQE, EQE or interrupt is in flight after the completion queues, and no refused CQE waits there; a function of
    /// registers.
    pub is_idle: Signal<Out, Bit>,
    /// Counters; registered.
    pub counts: Signal<Out, CompleteCounts>,
    /// Levels of pools; registered.
    pub pools: Signal<Out, CompletePools>,

    slices: [RegisterSlice<CqeToken>; 2],
    event_slice: RegisterSlice<EqeToken>,
    merge: Arbiter<CqeToken, 2>,
    completion_queues: CompletionQueues,
    event_queues: EventQueues,
    interrupts: Interrupts<8>,
    pools_held: DFF<CompletePools>,
}

impl Logic for Complete {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        StreamRx::link(&mut self.from_requester, &mut self.slices[0].rx);
        StreamRx::link(&mut self.from_responder, &mut self.slices[1].rx);
        for i in 0..2 {
            StreamTx::join(&mut self.slices[i].tx, &mut self.merge.rx[i]);
        }
        self.merge.last.next = !bits::<2>(0);
        StreamTx::join(&mut self.merge.tx, &mut self.completion_queues.token);
        ValidRx::link(&mut self.completion_queue_setup, &mut self.completion_queues.setup);
        ValidRx::link(&mut self.completions_read, &mut self.completion_queues.read);
        ValidRx::link(&mut self.refused, &mut self.completion_queues.refused);
        StreamTx::link(&mut self.failure, &mut self.completion_queues.failure);

        StreamTx::join(&mut self.completion_queues.delivery, &mut self.event_queues.delivery);
        self.completion_queues.crowded.next = self.event_queues.crowded.val();
        StreamRx::link(&mut self.event, &mut self.event_slice.rx);
        StreamTx::join(&mut self.event_slice.tx, &mut self.event_queues.event);
        ValidRx::link(&mut self.event_queue_setup, &mut self.event_queues.setup);
        ValidRx::link(&mut self.events_read, &mut self.event_queues.read);
        StreamTx::link(&mut self.write, &mut self.event_queues.write);
        self.event_queues.write_done.next = self.write_done.val();
        self.is_idle.next = self.event_queues.is_idle.val() && !self.completion_queues.has_refused.val();

        StreamTx::join(&mut self.event_queues.interrupt, &mut self.interrupts.request);
        self.interrupts.mask.next = self.interrupt_mask.val();
        self.interrupts.pending_clear.next = self.interrupt_pending_clear.val();
        self.interrupts.moderation_write.next = self.interrupt_moderation_write.val();
        self.interrupts.moderation_vector.next = self.interrupt_moderation_vector.val();
        self.interrupts.moderation_period.next = self.interrupt_moderation_period.val();
        self.interrupt_pending.next = self.interrupts.pending.val();
        StreamTx::link(&mut self.irq, &mut self.interrupts.irq);

        self.pools_held.d.next = CompletePools {
            deliveries: bit_cast::<LEVEL_BITS, DELIVERY_COUNT>(self.completion_queues.deliveries_used.val()),
            writes: self.event_queues.writes_used.val(),
            events: self.event_queues.events_used.val(),
            refusals: bit_cast::<LEVEL_BITS, REFUSED_COUNT>(self.completion_queues.refusals_used.val()),
        };
        self.pools.next = self.pools_held.q.val();

        let completions = self.completion_queues.counts.val();
        let events = self.event_queues.counts.val();
        self.counts.next = CompleteCounts {
            completions_written: completions.completions_written,
            completions_in_error: completions.completions_in_error,
            completion_queue_overrun: completions.completion_queue_overrun,
            events_written: events.events_written,
            event_queue_overrun: events.event_queue_overrun,
            interrupts_raised: self.interrupts.is_counted.val(),
        };
    }
}

#[cfg(test)]
mod tests;
