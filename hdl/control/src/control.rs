//! Slow path: one register slave for registers and doorbells, the admin queue, and the state of queue pairs.
//!
//! ```text
//!  host ──> slave ─┬─> registers ──> admin ring <══> sequencer ──┬─> region_write, *_setup
//!                  │      ^   │          │             ^ │       └─> doorbells: page_write
//!                  │      │   v          v event       │ └─> setup_broadcast ──> setup[0..7]
//!                  │      └─ reset ──> core_reset      └─ notice[0..3], invalidate[0..2]
//!                  └─> doorbells ──> send_posted, receive_posted, completions_read, events_read
//! ```
//!
//! Latency of a doorbell: [`DOORBELL_CYCLES`](crate::doorbells::DOORBELL_CYCLES) + 2 cycles from the later of its address and data.
//! The headers of the parts have their own latencies.
//!
//! 1. Every access of the host is answered within the time of the slave, also during a reset: the slave waits for no other part.
//! 2. No part waits for transmit: doorbells, tables and setup events end in memories and registers.
//! 3. The card begins with a reset, which clears what its memories hold.
//!
//! Design decisions 5, 12 and 14.
use crate::admin_ring::AdminRing;
use crate::axi_lite::{AxiLite, AxiLiteSlave};
use crate::device_failure::DeviceFailure;
use crate::doorbells::{BAR2_BITS, Doorbells};
use crate::function_reset::FunctionReset;
use crate::messages::{
    AdminHost, AdminRegistersTx, CounterReads, DoorbellMessages, InterruptRegisters, PortFacts, SECTIONS,
};
use crate::read_slots::SlotsLevels;
use crate::registers::{CardRegisters, SPACE_BITS};
use crate::reset::{Reset, drain_cycles};
use crate::sequencer::Sequencer;
use crate::setup_broadcast::{SRQ_STAGES, SetupBroadcast};
use rnic_blocks::stream::{Arbiter, RegisterSlice, StreamRx, StreamTx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::complete::{CompletionQueueSetup, EqeToken, EventQueueSetup};
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::protect::{Invalidated, Invalidation, PageEntryWrite, RegionWrite};
use rnic_messages::setup::{InFlight, QpNotice, SetupEvent, SourceAddressWrite, SrqLimitNotice, SrqSetup};
use rnic_messages::sizes::{HOST_LIMIT_BITS, TIMER_UNIT_BITS};

/// Bits of a byte address of the slave.
pub const SLAVE_BITS: usize = 25;
/// Stages that take setup events: `wqe_fetch`, `wqe_parse`, `admit`, `rq_prefetch`, `ack`, `address_vector`, `read_responder`.
pub const STAGES: usize = 7;
/// Parts that send notices of queue pairs: requester, responder, completion stage.
pub const NOTICING: usize = 3;
/// The bit of an address that tells BAR 2 from BAR 0.
const BAR: usize = 24;
/// Sources of events: the admin ring, the sequencer, and the failure of the device.
const RAISING: usize = 3;

const _: () = assert!(BAR == SLAVE_BITS - 1 && SPACE_BITS == BAR && BAR2_BITS == BAR);

/// Events of the slow path that are counted, one bit a counter; registered, one cycle each.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ControlCounts {
    /// A doorbell for an object of another page.
    pub doorbell_foreign: Bit,
    /// A doorbell for an object that does not exist, or a write to BAR 2 where no doorbell is.
    pub doorbell_unknown: Bit,
    /// A half of a doorbell without its other half.
    pub doorbell_torn: Bit,
    /// An access to BAR 0 at an address without a register.
    pub register_unmapped: Bit,
    /// A command succeeded.
    pub commands_executed: Bit,
    /// A command was refused.
    pub commands_refused: Bit,
    /// A failure of an older generation of a queue pair was dropped.
    pub stale_dropped: Bit,
}

/// Levels of the pools of the slow path.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ControlPools {
    /// Commands that were posted and not answered.
    pub commands: Bits<LEVEL_BITS>,
    /// READ slots in use.
    pub slots: SlotsLevels,
}

/// The slow path of the card.
#[clocked(reset = "the reset of the whole card")]
#[derive(LogicBlock, Registers, Construct)]
#[domain(reset = reset_order.core_reset)]
#[new(
    /// Makes the slow path of a card of this width and core clock.
    datapath_bits: u16,
    clock_khz: u32,
)]
pub struct Control {
    /// From the master. Bit 24 of an address selects BAR 2 instead of BAR 0.
    pub axi: AxiLite<SLAVE_BITS>,

    /// To all other parts: reset; registered.
    pub core_reset: Signal<Out, Bit>,
    /// To all other parts: new work may begin; registered. While low, work that has begun is finished.
    pub enable: Signal<Out, Bit>,
    /// From the other parts: nothing is in flight to host or wire.
    pub drained: Signal<In, Bit>,
    /// From the host reader: no read is in flight.
    pub reads_drained: Signal<In, Bit>,
    /// From the bus master: the card may make requests to the host.
    pub may_request: Signal<In, Bit>,
    /// From the bus master: the host owes no answer, and nothing begins in the cycles in which a reset begins.
    pub is_cut_off: Signal<In, Bit>,
    /// From the assembler: a beat of a frame is offered to the MAC.
    pub sends: Signal<In, Bit>,
    /// From the shell: the function is to be reset; held until `flr_done`.
    pub flr_request: Signal<In, Bit>,
    /// To the shell: the function is reset, until `flr_request` falls; registered.
    pub flr_done: Signal<Out, Bit>,
    /// The network port.
    pub port: PortFacts,
    /// From the host reader: a completion came for a read that is not in flight.
    pub lost_read_tag: Signal<In, Bit>,
    /// From the host writer: a completion came for a write that is not in flight.
    pub lost_write: Signal<In, Bit>,
    /// From the host writer: the host refused a write of CQEs or EQEs.
    pub host_write_error: Signal<In, Bit>,

    /// To host reader and host writer: register `host_limit`; registered.
    pub host_limit: Signal<Out, Bits<HOST_LIMIT_BITS>>,
    /// To the requester: register `timer_unit`; registered.
    pub timer_unit: Signal<Out, Bits<TIMER_UNIT_BITS>>,
    /// To the packet path: Ethernet address of the card; registered.
    pub own_mac: Signal<Out, Bits<48>>,
    /// To the packet path: frames to any unicast address are taken; registered.
    pub promiscuous: Signal<Out, Bit>,
    /// To the packet path: frames to any group address are taken; registered.
    pub accept_multicast: Signal<Out, Bit>,
    /// To requester, responder and `address_vector`: an entry of the table of source addresses; registered.
    pub source_address_write: ValidTx<SourceAddressWrite>,

    /// To and from the counters.
    pub counters: CounterReads,

    /// To and from the host: the admin queue.
    pub admin: AdminHost,

    /// To the stages: what doorbells become; registered.
    pub messages: DoorbellMessages,

    /// To all stages that keep records of queue pairs; `valid` is registered.
    pub setup: [StreamTx<SetupEvent>; STAGES],
    /// To admission and to the prefetch of receive WQEs: setup of shared receive queues; `valid` is registered.
    pub srq_setup: [StreamTx<SrqSetup>; SRQ_STAGES],
    /// From the requester, after a probe: the next PSN to send.
    pub probed_send: Signal<In, Bits<24>>,
    /// From the responder, after a probe: the PSN that is expected.
    pub probed_receive: Signal<In, Bits<24>>,
    /// From the requester, after a probe: messages of the queue pair are in flight.
    pub probed_busy: Signal<In, Bit>,
    /// What has entered and left each section, in the order of [`SECTIONS`].
    pub in_flight: [Signal<In, InFlight>; SECTIONS],
    /// From requester, responder and completion stage: queue pairs that have failed or drained.
    pub notice: [StreamRx<QpNotice>; NOTICING],
    /// From the responder: shared receive queues whose limit is reached; `ready` is combinational.
    pub srq_limit: StreamRx<SrqLimitNotice>,

    /// From requester and responder: keys to invalidate; `ready` is combinational.
    pub invalidate: [StreamRx<Invalidation>; 2],
    /// To requester and responder: whether the key was invalidated; a function of registers.
    pub invalidated: [StreamTx<Invalidated>; 2],

    /// To both region tables: a region; a function of registers.
    pub region_write: ValidTx<RegionWrite>,
    /// To the tables of pages: an entry; registered.
    pub page_entry_write: ValidTx<PageEntryWrite>,
    /// To the completion stage: a completion queue; a function of registers.
    pub completion_queue_setup: ValidTx<CompletionQueueSetup>,
    /// To the completion stage: an event queue; a function of registers.
    pub event_queue_setup: ValidTx<EventQueueSetup>,
    /// To the completion stage: events for event queue 0; registered.
    pub event: StreamTx<EqeToken>,

    /// To and from the interrupts.
    pub interrupt: InterruptRegisters,

    /// To the event counters.
    pub counts: Signal<Out, ControlCounts>,
    /// Levels of pools; registered.
    pub pools: Signal<Out, ControlPools>,

    #[domain(reset = reset)]
    slave: AxiLiteSlave<SLAVE_BITS>,
    #[domain(reset = reset)]
    #[init(CardRegisters::new(datapath_bits, clock_khz))]
    registers: CardRegisters,
    #[domain(reset = reset)]
    reset_order: Reset,
    #[domain(reset = reset)]
    function_reset: FunctionReset,
    device_failure: DeviceFailure,
    doorbells: Doorbells,
    admin_ring: AdminRing,
    sequencer: Sequencer,
    setup_broadcast: SetupBroadcast<STAGES>,
    notices: Arbiter<QpNotice, NOTICING>,
    notice_slice: RegisterSlice<QpNotice>,
    events: Arbiter<EqeToken, RAISING>,
    event_slice: RegisterSlice<EqeToken>,
    /// Nothing is in flight, and no command runs.
    #[domain(reset = reset)]
    is_drained: Reg<Bit>,
}

impl Logic for Control {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let core_reset = self.reset_order.core_reset.val();
        self.core_reset.next = core_reset;

        AxiLite::link(&mut self.axi, &mut self.slave.axi);

        // BAR 0 and BAR 2; BAR 2 reads as zero.
        let write_address = self.slave.write_address.val();
        let read_address = self.slave.read_address.val();
        self.registers.write.next = self.slave.write.val() && !write_address.get_bit(BAR);
        self.registers.write_address.next = write_address.get_bits::<SPACE_BITS>(0);
        self.registers.write_data.next = self.slave.write_data.val();
        self.registers.write_strobe.next = self.slave.write_strobe.val();
        self.registers.read.next = self.slave.read.val() && !read_address.get_bit(BAR);
        self.registers.read_address.next = read_address.get_bits::<SPACE_BITS>(0);
        self.slave.read_data.next =
            select(read_address.get_bit(BAR), bits::<64>(0), self.registers.read_data.val());
        self.doorbells.write.next = self.slave.write.val() && write_address.get_bit(BAR);
        self.doorbells.write_address.next = write_address.get_bits::<BAR2_BITS>(0);
        self.doorbells.write_data.next = self.slave.write_data.val();
        self.doorbells.write_strobe.next = self.slave.write_strobe.val();

        // The order of a reset.
        let is_drained = self.is_drained.q.val();
        self.is_drained.d.next =
            self.drained.val() && !self.admin_ring.registers.busy.val() && self.sequencer.is_idle.val();
        self.function_reset.flr_request.next = self.flr_request.val();
        self.function_reset.is_resetting.next = self.reset_order.is_resetting.val();
        self.flr_done.next = self.function_reset.flr_done.val();
        self.reset_order.request.next =
            self.registers.reset_request.val() || self.function_reset.request.val();
        self.reset_order.may_request.next = self.may_request.val();
        self.reset_order.is_cut_off.next = self.is_cut_off.val();
        self.reset_order.sends.next = self.sends.val();
        self.reset_order.quiesces.next = self.registers.quiesces.val();
        self.reset_order.drain_cycles.next = drain_cycles(self.registers.host_limit.val());
        self.reset_order.drained.next = is_drained;
        self.reset_order.reads_drained.next = self.reads_drained.val();
        self.reset_order.is_forgetting.next = !self.sequencer.is_idle.val();
        self.registers.is_resetting.next = self.reset_order.is_resetting.val();
        self.registers.core_reset.next = core_reset;
        self.registers.sweep.next = self.reset_order.sweep.val();
        self.doorbells.sweep.next = self.reset_order.sweep.val();
        self.sequencer.forget.next = self.reset_order.forget.val();

        // The failure of the device.
        ValidTx::join(&mut self.admin_ring.fatal, &mut self.device_failure.report);
        self.device_failure.lost_read_tag.next = self.lost_read_tag.val() || self.reset_order.lost_read.val();
        self.device_failure.lost_write.next = self.lost_write.val() || self.reset_order.lost_write.val();
        self.device_failure.host_write_error.next = self.host_write_error.val();
        let device_failed = self.device_failure.device_failed.val();
        self.registers.device_failed.next = device_failed;
        self.registers.fatal_code.next = self.device_failure.code.val();
        self.registers.fatal_detail.next = self.device_failure.detail.val();
        self.admin_ring.device_failed.next = device_failed;
        self.sequencer.device_failed.next = device_failed;

        // Registers.
        self.registers.drained.next = is_drained;
        self.registers.may_request.next = self.may_request.val();
        PortFacts::link(&mut self.port, &mut self.registers.port);
        self.enable.next = self.registers.enable.val();
        self.host_limit.next = self.registers.host_limit.val();
        self.timer_unit.next = self.registers.timer_unit.val();
        self.own_mac.next = self.registers.own_mac.val();
        self.promiscuous.next = self.registers.promiscuous.val();
        self.accept_multicast.next = self.registers.accept_multicast.val();
        ValidTx::link(&mut self.source_address_write, &mut self.registers.source_address_write);
        CounterReads::link(&mut self.counters, &mut self.registers.counters);
        InterruptRegisters::link(&mut self.interrupt, &mut self.registers.interrupt);

        // Doorbells.
        self.doorbells.enable.next = self.registers.doorbell_enable.val();
        ValidTx::join(&mut self.sequencer.tables.page_write, &mut self.doorbells.page_write);
        DoorbellMessages::link(&mut self.messages, &mut self.doorbells.messages);

        // The admin ring.
        AdminRegistersTx::join(&mut self.registers.admin, &mut self.admin_ring.registers);
        AdminHost::link(&mut self.admin, &mut self.admin_ring.admin);
        StreamTx::join(&mut self.admin_ring.command, &mut self.sequencer.command);
        StreamTx::join(&mut self.sequencer.outcome, &mut self.admin_ring.outcome);
        StreamTx::join(&mut self.sequencer.write, &mut self.admin_ring.write);
        StreamTx::join(&mut self.sequencer.list_read, &mut self.admin_ring.list_read);
        self.sequencer.list_valid.next = self.admin_ring.list_valid.val();
        self.sequencer.list_error.next = self.admin_ring.list_error.val();

        // Commands.
        self.sequencer.source_addresses.next = self.registers.source_addresses.val();
        ValidTx::join(&mut self.registers.event_queue_0, &mut self.sequencer.event_queue_0);
        StreamTx::join(&mut self.sequencer.setup, &mut self.setup_broadcast.from);
        for i in 0..STAGES {
            StreamTx::link(&mut self.setup[i], &mut self.setup_broadcast.to[i]);
        }
        StreamTx::join(&mut self.sequencer.srq_setup, &mut self.setup_broadcast.from_srq);
        for i in 0..SRQ_STAGES {
            StreamTx::link(&mut self.srq_setup[i], &mut self.setup_broadcast.to_srq[i]);
        }
        self.sequencer.probed_send.next = self.probed_send.val();
        self.sequencer.probed_receive.next = self.probed_receive.val();
        self.sequencer.probed_busy.next = self.probed_busy.val();
        for i in 0..SECTIONS {
            self.sequencer.in_flight[i].next = self.in_flight[i].val();
        }
        for i in 0..NOTICING {
            StreamRx::link(&mut self.notice[i], &mut self.notices.rx[i]);
        }
        self.notices.last.next = !bits::<NOTICING>(0);
        StreamTx::join(&mut self.notices.tx, &mut self.notice_slice.rx);
        StreamTx::join(&mut self.notice_slice.tx, &mut self.sequencer.notice);
        StreamRx::link(&mut self.srq_limit, &mut self.sequencer.srq_limit);
        for i in 0..2 {
            StreamRx::link(&mut self.invalidate[i], &mut self.sequencer.invalidate[i]);
            StreamTx::link(&mut self.invalidated[i], &mut self.sequencer.invalidated[i]);
        }
        ValidTx::link(&mut self.region_write, &mut self.sequencer.tables.region_write);
        ValidTx::link(&mut self.page_entry_write, &mut self.sequencer.page_entry_write);
        ValidTx::link(&mut self.completion_queue_setup, &mut self.sequencer.tables.completion_queue_setup);
        ValidTx::link(&mut self.event_queue_setup, &mut self.sequencer.tables.event_queue_setup);

        // Counters and events.
        let doorbell_counts = self.doorbells.counts.val();
        let command_counts = self.admin_ring.counts.val();
        self.counts.next = ControlCounts {
            doorbell_foreign: doorbell_counts.foreign,
            doorbell_unknown: doorbell_counts.unknown,
            doorbell_torn: doorbell_counts.torn,
            register_unmapped: self.registers.counts_register_unmapped.val(),
            commands_executed: command_counts.executed,
            commands_refused: command_counts.refused,
            stale_dropped: self.sequencer.counts_stale_dropped.val(),
        };
        self.pools.next =
            ControlPools { commands: self.admin_ring.level.val(), slots: self.sequencer.slots_levels.val() };
        StreamTx::join(&mut self.admin_ring.event, &mut self.events.rx[0]);
        StreamTx::join(&mut self.sequencer.event, &mut self.events.rx[1]);
        StreamTx::join(&mut self.device_failure.event, &mut self.events.rx[2]);
        self.events.last.next = !bits::<RAISING>(0);
        StreamTx::join(&mut self.events.tx, &mut self.event_slice.rx);
        StreamTx::link(&mut self.event, &mut self.event_slice.tx);
    }
}

#[cfg(test)]
mod tests;
