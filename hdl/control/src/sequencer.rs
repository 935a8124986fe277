//! Sequencer: executes the microcode of commands, applies notices to queue pairs and SRQs, and forgets all objects in a reset.
//!
//! Every command is a list of instructions over one memory, so one small machine with one adder executes all of them.
//!
//! ```text
//!  command ──> object_store (8 words) ──> ┌───────────┐   ┌────────┐   ┌────────┐   ┌─────┐
//!  event_queue_0 ───────────────────────> │ microcode ├──>│ source ├──>│ rotate ├──>│ alu ├──> object_store, or refusal ──> outcome
//!  forget ──> each object ──────────────> └───────────┘   │ target │   └────────┘   └──┬──┘
//!                                                         └────────┘                   ├─> load 10 words ──> setup, tables, write
//!  notice ──> state of the queue pair, limit of the SRQ ────────────────────────────────┘──> event
//! ```
//!
//! An instruction takes six cycles, or two if its flag is not set. One that publishes an object takes [`LOAD_CYCLES`] + 2 more,
//! and lasts until a stream takes what is offered; a list of pages lasts as long as [`page_list`](crate::page_list) says, and a
//! share of READ slots as [`read_slots`](crate::read_slots) does. A notice takes about 25 cycles. A reset looks at one object every four cycles.
//!
//! 1. A command that is refused has changed nothing.
//! 2. Notices are taken between two commands, before the next one, while a command waits for what is in flight, and between
//!    two slots of a list of pages. So a command sees each queue pair in one state, and what is in flight can fail.
//! 3. A failure of an older generation, or of a queue pair that does not exist, is dropped and counted. One that changes no
//!    state raises no event, so a peer cannot fill the event queue with one queue pair.
//! 4. When the limit of a shared receive queue is reached, the limit becomes zero and an event is raised; a notice of an older
//!    setting of the limit is dropped. A queue pair that has drained raises an event if it still is in SQD (protocol 3.10); the
//!    notice of an earlier stay in SQD is taken before the next command.
//! 5. When the device has failed, a command that waits ends, and one that reads pages stops reading.
//! 6. Between two instructions, and while a stream or a list of pages is waited for, the store is lent to `invalidate` for six
//!    cycles, at most once every fourteen.
//! 7. Reset ends everything but keeps the store. `forget` then tells all stages and tables that no object exists, the object
//!    whose command the reset cut off included.
//!
//! Design decision 8, design decision 12.
mod event_queue_0;
mod execute;
mod load;
mod machine;
mod notice;
mod objects;
mod publish;
mod stage;
mod store;

use crate::instruction::Action;
use crate::invalidate::Invalidate;
use crate::messages::{Outcome, SECTIONS, TablesTx};
use crate::microcode::OPCODE_BITS;
use crate::object_store::NUMBER;
use crate::object_view::paged_region_of;
use crate::page_list::PageList;
use crate::quiesce::Quiesce;
use crate::read_slots::{ReadSlots, SlotsLevels, request_of};
use event_queue_0::EventQueue0;
use execute::Execute;
use load::Loader;
use machine::StageMachine;
use publish::{Publisher, query_write, setup_offer};
use rnic_blocks::stream::{StreamRx, StreamTx, ValidRx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_layout::admin::COMMAND_BYTES;
use rnic_layout::limits::SOURCE_ADDRESSES;
use rnic_messages::complete::{EqeToken, EventQueueSetup};
use rnic_messages::host::{HostSpan, SlotWrite};
use rnic_messages::protect::{Invalidated, Invalidation, PageEntryWrite};
use rnic_messages::setup::{InFlight, QpNotice, SetupEvent, SrqLimitNotice, SrqSetup};
pub use stage::{LOAD_CYCLES, LoadReason, LookupReason, PROBE_CYCLES, Routine, Stage};
use stage::{may_ask_for_list, may_lend};
use store::{Loan, Store, probed_word};

/// Bits of a command.
pub const COMMAND_BITS: usize = 8 * COMMAND_BYTES;

/// Executes commands; this block only wires.
#[clocked(reset = "ends what runs, and keeps the store")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Sequencer {
    /// From the admin ring: a command; `ready` is combinational from all `valid`.
    pub command: StreamRx<Bits<COMMAND_BITS>>,
    /// To the admin ring: the outcome of the command; a function of registers.
    pub outcome: StreamTx<Outcome>,
    /// To the admin ring: writes of a query, before its outcome; a function of registers.
    pub write: StreamTx<SlotWrite>,

    /// To the admin ring: the next slot of a list of pages; a function of registers.
    pub list_read: StreamTx<HostSpan>,
    /// From the admin ring: `command` holds the slot that was read.
    pub list_valid: Signal<In, Bit>,
    /// From the admin ring: the host refused to read that slot.
    pub list_error: Signal<In, Bit>,

    /// From the registers: source addresses that are in use, one bit each.
    pub source_addresses: Signal<In, Bits<SOURCE_ADDRESSES>>,
    /// From the registers: settings of event queue 0, when they have changed.
    pub event_queue_0: ValidRx<EventQueueSetup>,
    /// From the reset: forget all objects; one cycle, after a reset and before the next command.
    pub forget: Signal<In, Bit>,
    /// The device has failed; only a reset clears that.
    pub device_failed: Signal<In, Bit>,
    /// Nothing runs or is asked for; registered.
    pub is_idle: Signal<Out, Bit>,

    /// To all stages of the card: taken when each of them has taken it; a function of registers.
    pub setup: StreamTx<SetupEvent>,
    /// To the stages that keep records of shared receive queues, as `setup`; never valid together with it.
    pub srq_setup: StreamTx<SrqSetup>,
    /// From the requester, after a probe: the next PSN to send.
    pub probed_send: Signal<In, Bits<24>>,
    /// From the requester, after a probe: messages of the queue pair are in flight.
    pub probed_busy: Signal<In, Bit>,
    /// From the responder, after a probe: the PSN that is expected.
    pub probed_receive: Signal<In, Bits<24>>,
    /// What has entered and left each section of the card, in the order in which work passes.
    pub in_flight: [Signal<In, InFlight>; SECTIONS],

    /// Queue pairs that have failed or drained; `ready` is combinational from the `valid` of `invalidate`.
    pub notice: StreamRx<QpNotice>,
    /// Shared receive queues whose limit is reached; `ready` is combinational from the `valid` of `notice` and `invalidate`.
    pub srq_limit: StreamRx<SrqLimitNotice>,
    /// Asynchronous events; registered.
    pub event: StreamTx<EqeToken>,

    /// From requester and responder: keys to invalidate; `ready` is combinational from the other's `valid`.
    pub invalidate: [StreamRx<Invalidation>; 2],
    /// To requester and responder: whether the key was invalidated; functions of registers.
    pub invalidated: [StreamTx<Invalidated>; 2],

    /// To the tables of the card; functions of registers.
    pub tables: TablesTx,
    /// To the tables of pages: an entry; registered.
    pub page_entry_write: ValidTx<PageEntryWrite>,

    /// A failure of an older generation was dropped.
    pub counts_stale_dropped: Signal<Out, Bit>,
    /// READ slots in use; a function of registers.
    pub slots_levels: Signal<Out, SlotsLevels>,

    machine: StageMachine,
    execute: Execute,
    loader: Loader,
    store: Store,
    publisher: Publisher,
    queue_0: EventQueue0,
    quiesce: Quiesce,
    page_list: PageList,
    read_slots: ReadSlots,
    key_invalidation: Invalidate,
    /// Host address of the next write of a query.
    host_address: DFF<Bits<64>>,
}

impl Logic for Sequencer {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let stage = self.machine.stage.val();
        let cycle = self.machine.cycle.val();
        let begins = self.machine.begins.val();
        let instruction = self.execute.instruction.val();
        let verdict = self.execute.verdict.val();
        let rotated = self.execute.rotated.val();
        let word = self.store.word.val();
        let loaded = self.loader.loaded.val();
        let is_lent = self.key_invalidation.holds.val();
        let argument = rotated.get_bits::<24>(0);
        let part = select(stage == Stage::Slots, self.read_slots.state.val(), self.page_list.state.val());
        let offer = setup_offer(stage, self.loader.reason.val(), instruction, loaded, argument);

        // The stage machine.
        self.machine.has_command.next = self.command.valid.val();
        self.command.ready.next = begins.takes_command;
        self.machine.has_queue_0.next = self.queue_0.pending.val();
        self.machine.new_queue_0.next = self.event_queue_0.valid.val();
        self.machine.forget.next = self.forget.val();
        self.machine.device_failed.next = self.device_failed.val();
        StreamRx::link(&mut self.notice, &mut self.machine.notice);
        StreamRx::link(&mut self.srq_limit, &mut self.machine.srq_limit);
        StreamTx::link(&mut self.outcome, &mut self.machine.outcome);
        StreamTx::link(&mut self.event, &mut self.machine.event);
        self.machine.instruction.next = instruction;
        self.machine.skips.next = self.execute.skips.val();
        self.machine.verdict.next = verdict;
        self.machine.rotated.next = rotated;
        self.machine.subject.next = self.execute.subject.val();
        self.machine.word.next = word;
        self.machine.load.next = self.loader.reason.val();
        self.machine.object_number.next = loaded.get_bits::<24>(NUMBER);
        self.machine.setup_ready.next =
            select(offer.is_srq, self.srq_setup.ready.val(), self.setup.ready.val());
        self.machine.write_ready.next = self.write.ready.val();
        self.machine.is_lent.next = is_lent;
        self.machine.keys_idle.next = self.key_invalidation.is_idle.val();
        self.machine.in_flight.next = self.quiesce.is_waiting[0].val();
        self.machine.is_asking.next = self.page_list.is_asking.val();
        self.machine.part.next = part;
        self.is_idle.next = self.machine.is_idle.val();
        self.counts_stale_dropped.next = self.machine.counts_stale_dropped.val();

        // Instructions.
        self.execute.stage.next = stage;
        self.execute.cycle.next = cycle;
        self.execute.routine.next = self.machine.routine.val();
        self.execute.begins_queue_0.next = begins.queue_0;
        self.execute.opcode.next = loaded.get_bits::<OPCODE_BITS>(0);
        self.execute.sweep_kind.next = self.machine.sweep_kind.val();
        self.execute.advances.next = self.machine.advances.val();
        self.execute.word.next = word;
        self.execute.lookup_address.next = self.machine.lookup_address.val();
        self.execute.source_addresses.next = self.source_addresses.val();

        // The words that are loaded.
        self.loader.stage.next = stage;
        self.loader.cycle.next = cycle;
        self.loader.begins.next = begins;
        self.loader.command.next = self.command.beat.val();
        self.loader.queue_0.next = self.queue_0.body.val();
        self.loader.list_valid.next = self.list_valid.val();
        self.loader.takes_word.next = self.page_list.takes_word.val();
        self.loader.action.next = instruction.action;
        self.loader.subject.next = self.execute.subject.val();
        self.loader.source_address.next = self.execute.source_address.val();
        self.loader.noticed_address.next = self.machine.lookup_address.val();
        self.loader.word.next = word;

        // The store, and its loan to invalidations.
        self.store.stage.next = stage;
        self.store.cycle.next = cycle;
        self.store.loan.next = Loan {
            is_lent,
            read_address: self.key_invalidation.read_address.val(),
            writes: self.key_invalidation.writes.val(),
            write_address: self.key_invalidation.write_address.val(),
            write_data: self.key_invalidation.write_data.val(),
        };
        self.store.source_address.next = self.execute.source_address.val();
        self.store.target_address.next = self.execute.target_address.val();
        self.store.lookup_address.next = self.machine.lookup_address.val();
        self.store.load_address.next = self.loader.address.val();
        self.store.writes.next = self.machine.writes.val();
        self.store.copied.next = loaded.get_bits::<64>(0);
        self.store.probed.next =
            probed_word(self.probed_send.val(), self.probed_busy.val(), self.probed_receive.val());
        self.store.part_result.next = part.result;
        self.store.noticed.next = self.machine.noticed.val();
        self.store.result.next = verdict.result;
        for i in 0..2 {
            StreamRx::link(&mut self.invalidate[i], &mut self.key_invalidation.requests[i]);
            StreamTx::link(&mut self.invalidated[i], &mut self.key_invalidation.answers[i]);
        }
        self.key_invalidation.may_begin.next = may_lend(stage);
        self.key_invalidation.word.next = word;
        self.key_invalidation.is_waiting.next = self.quiesce.is_waiting[1].val();

        // Work in flight.
        for i in 0..SECTIONS {
            self.quiesce.in_flight[i].next = self.in_flight[i].val();
        }
        self.quiesce.begins[0].next = self.machine.succeeds.val() && instruction.action == Action::Wait;
        self.quiesce.begins[1].next = self.key_invalidation.wait_begins.val();

        // Lists of pages.
        self.page_list.region.next = paged_region_of(loaded);
        self.page_list.begins.next = stage == Stage::Pages;
        self.page_list.may_ask.next =
            may_ask_for_list(stage, self.machine.has_notice.val(), self.device_failed.val());
        self.page_list.may_end.next = !is_lent;
        self.page_list.list_valid.next = self.list_valid.val();
        self.page_list.list_error.next = self.list_error.val();
        self.page_list.word.next = loaded.get_bits::<64>(0);
        StreamTx::link(&mut self.list_read, &mut self.page_list.list_read);
        ValidTx::link(&mut self.page_entry_write, &mut self.page_list.page_write);

        // READ slots.
        self.read_slots.begins.next = stage == Stage::Slots;
        self.read_slots.request.next = request_of(instruction, rotated, verdict.result);
        self.read_slots.may_end.next = !is_lent;
        self.slots_levels.next = self.read_slots.levels.val();

        // What is offered; it does not change before it is taken.
        self.setup.offer(offer.setup_valid, offer.setup);
        self.srq_setup.offer(offer.srq_setup_valid, offer.srq_setup);
        ValidRx::link(&mut self.event_queue_0, &mut self.queue_0.setup);
        self.queue_0.begins.next = begins.queue_0;
        self.publisher.publishes.next = stage == Stage::Publish;
        self.publisher.constant.next = instruction.constant;
        self.publisher.loaded.next = loaded;
        self.publisher.is_queue_0.next = self.machine.routine.val() == Routine::EventQueue0;
        self.publisher.queue_0_restarts.next = self.queue_0.restarts.val();
        self.publisher.queue_0_is_off.next = self.queue_0.is_off.val();
        self.publisher.invalidates.next = self.key_invalidation.clears_region.val();
        self.publisher.invalidated.next = self.key_invalidation.index.val();
        TablesTx::link(&mut self.tables, &mut self.publisher.tables);
        if stage == Stage::Apply {
            self.host_address.d.next = verdict.result;
        }
        self.write.offer(stage == Stage::Write, query_write(self.host_address.q.val(), loaded));
    }
}
