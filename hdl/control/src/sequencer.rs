//! Sequencer: walks the steps of a command, applies failures to the life of queue pairs, and forgets everything in a reset.
//!
//! All of the slow path is lists of steps over one memory, so one small machine with one adder does all commands.
//!
//! ```text
//!  command ──> store (8 words) ──> ┌───────┐   ┌────────┐   ┌──────┐   ┌───────┐
//!  event_queue_0 ────────────────> │ steps ├──>│ source ├──>│ turn ├──>│ judge ├──> store, or refuse ──> outcome
//!  forget ──> each object ───────> └───────┘   │ target │   └──────┘   └───┬───┘
//!                                              └────────┘                  ├─> load 10 words ──> setup, tables, write
//!  failure ──> life of the queue pair ─────────────────────────────────────┘──> event
//! ```
//!
//! Six cycles a step, two for one whose flag is not set; a step that tells somebody [`LOAD_CYCLES`] + 2 more, and until a
//! stream takes what it is told; a list of pages as long as [`page_list`](crate::page_list) says. A failure takes about 25 cycles.
//! Forgetting looks at an object every 4 cycles.
//!
//! 1. A command that is refused has changed nothing.
//! 2. Failures are taken between two commands, before the next, while a command waits for what is in flight, and between two slots
//!    of a list of pages. So a command sees each queue pair in one state, and what is in flight can fail.
//! 3. A failure of an older generation, or of a queue pair that does not exist, is dropped and counted; one that changes no state
//!    raises no event, so a peer cannot fill the event queue with one queue pair.
//! 4. A limit of a shared receive queue that is reached is zero from then on, and an event; one that has been set anew since is
//!    as if nothing had been said. That a queue pair has drained is an event, if it still is in SQD (protocol 3.10); what was
//!    said of an earlier stay there comes before the next command.
//! 5. When the device has failed, a command that waits ends, and one that reads pages reads no more.
//! 6. Between two steps, and while somebody or a list of pages is waited for, the store is lent to `invalidate` for six cycles, with
//!    eight cycles between two times.
//! 7. Reset ends everything but keeps the store; `forget` tells everybody that nothing exists any more, also of the object whose
//!    command the reset has cut off.
//!
//! Design decision 8, design decision 12.
use crate::alu::Alu;
use crate::instruction::{
    Action, FIND_EXISTS, FIND_REFERENCE, Instruction, PUBLISH_RESTARTS, SETUP_KIND_BITS, address_of,
};
use crate::invalidate::Invalidate;
use crate::messages::{Outcome, PageWrite, SECTIONS};
use crate::microcode::{OPCODE_BITS, ROW_BITS, programs};
use crate::object_store::{
    COMMAND, INDEX_BITS, KIND_BITS, LIMIT_BITS, LOADED_WORDS, NUMBER, NUMBER_BITS, SCRATCH, STATE,
    STATE_BITS, STORE_BITS, VALID, header_of, index_of, kind,
};
use crate::object_view::{
    LOADED_BITS, completion_queue_of, event_queue_body, event_queue_of, generation_of, number_of, page_of,
    paged_region_of, region_of, setup_of, srq_setup_of, state_of,
};
use crate::page_list::PageList;
use crate::quiesce::Quiesce;
use rnic_blocks::logic::rom::ConstantRom;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::admin::COMMAND_BYTES;
use rnic_layout::limits::SOURCE_ADDRESSES;
use rnic_layout::state::{Cause, QpState, Service, after};
use rnic_messages::complete::{CompletionQueueSetup, EqeToken, EventQueueSetup};
use rnic_messages::host::{HostSpan, SlotWrite};
use rnic_messages::protect::{Invalidated, Invalidation, PageEntryWrite, Region, RegionWrite};
use rnic_messages::setup::{
    InFlight, NoticeKind, QpNotice, SetupEvent, SetupKind, SrqLimitNotice, SrqSetup, SrqSetupKind,
};
use rnic_messages::sizes::{GENERATION_BITS, SHARED_RECEIVE_BITS};

/// Cycles in which an object is loaded.
pub const LOAD_CYCLES: u64 = 12;
/// Cycles from the taking of a probe to the reading of the PSNs.
pub const PROBE_CYCLES: u64 = 16;
/// Bits of a command.
pub const COMMAND_BITS: usize = 8 * COMMAND_BYTES;

const LAST_LOAD: u64 = LOAD_CYCLES - 1;
/// Cycles from the address of a word to the word, less one.
const FIRST_WORD: u64 = 2;
const LAST_WORD: u64 = COMMAND_BYTES as u64 / 8 - 1;
const LAST_PROBE: u64 = PROBE_CYCLES - 1;
/// Width of the count of cycles of one stage.
const CYCLE_BITS: usize = 4;

/// Numbers of the contract, in the form in which kernels can use them.
mod number {
    use crate::instruction::SRQ_SETUP;
    use rnic_layout::admin::{COMMAND_BYTES, CommandStatus};
    use rnic_layout::queue::event::{AsyncEvent, EventKind};
    use rnic_layout::state::QpState;
    use rnic_messages::setup::{SetupKind, SrqSetupKind};

    pub(super) const SEND_QUEUE_DRAIN: u64 = QpState::SendQueueDrain as u64;
    pub(super) const DEVICE_FAILED: u64 = CommandStatus::DeviceFailed as u64;
    pub(super) const ASYNCHRONOUS: u64 = EventKind::Asynchronous as u64;
    pub(super) const PIECE_BYTES: u64 = COMMAND_BYTES as u64;
    pub(super) const LIFE: u64 = SetupKind::Life as u64;
    pub(super) const RESTART: u64 = SetupKind::Restart as u64;
    pub(super) const PATH: u64 = SetupKind::Path as u64;
    pub(super) const SEND_PSN: u64 = SetupKind::SendPsn as u64;
    pub(super) const RECEIVE_PSN: u64 = SetupKind::ReceivePsn as u64;
    pub(super) const SRQ_FIRST: u64 = SRQ_SETUP;
    pub(super) const SRQ_LIMIT: u64 = SRQ_SETUP | SrqSetupKind::Limit as u64;
    pub(super) const SRQ_LIMIT_EVENT: u64 = AsyncEvent::SharedReceiveLimit as u64;
}

/// Bytes of a piece of a query, as a power of two.
const PIECE_LOG2: usize = COMMAND_BYTES.trailing_zeros() as usize;
/// Bits of a count of bytes that a query has written.
const WRITTEN_BITS: usize = 3 + PIECE_LOG2;
/// Where `errands` has event queue 0.
const QUEUE_0_ERRAND: u64 = kind::SHARED_RECEIVE + 1;
/// A header that says no more than that the object exists.
const EXISTS: u64 = 1 << VALID;
/// Bits behind the state in a header, behind one word, behind a command, and behind the body of event queue 0 in what is loaded.
const BEHIND_STATE: usize = 64 - STATE - STATE_BITS;
const BEHIND_WORD: usize = LOADED_BITS - 64;
const BEHIND_COMMAND: usize = LOADED_BITS - COMMAND_BITS;
const BEHIND_BODY: usize = LOADED_BITS - 192;
/// Bits behind the limit in its word.
const BEHIND_LIMIT: usize = 64 - LIMIT_BITS;
/// The word of the limit of a shared receive queue, and the words of an object that can fail, as a power of two.
const LIMIT_WORD: u64 = LOADED_WORDS as u64;
const OBJECT_BITS: usize = 4;
const BESIDE_WORD: usize = STORE_BITS - OBJECT_BITS;

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Stage {
    /// Chooses what to do.
    Idle,
    /// Writes what is to be executed into the store.
    Enter,
    /// Reads the step.
    Fetch,
    /// Reads its source, unless its flag is not set.
    Source,
    /// Reads its target.
    Target,
    /// Turns the source.
    Turn,
    /// Judges.
    Alu,
    /// Changes the target, or goes on to what more the step says.
    Apply,
    /// Reads the header of an object.
    Look,
    /// It is on the way.
    Looking,
    /// Compares it with what the command names.
    Found,
    /// Loads an object.
    Load,
    /// Tells the stages.
    Setup,
    /// Waits for the PSNs.
    Probe,
    /// Tells the tables.
    Publish,
    /// Writes a piece of a query.
    Write,
    /// Waits until what is in flight has gone.
    Wait,
    /// Enters pages.
    Pages,
    /// Gives the outcome away.
    Answer,
    /// Decides what becomes of a queue pair that has failed.
    Failed,
    /// Raises an event.
    Raise,
    /// Goes to the next object to forget.
    Sweep,
    /// Forgets it, if it exists.
    Swept,
}

/// Whose steps are walked.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Errand {
    /// Of a command.
    Command,
    /// Of event queue 0.
    EventQueue0,
    /// Of a reset.
    Forget,
}

/// Who looks at a header.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Seeker {
    /// [`Action::Find`].
    Find,
    /// A failure.
    Failure,
    /// A reset.
    Forget,
}

/// What an object is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Purpose {
    /// [`Action::Setup`] and [`Action::Probe`].
    Setup,
    /// [`Action::Publish`].
    Publish,
    /// [`Action::Write`].
    Write,
    /// [`Action::Pages`].
    Pages,
    /// A failure.
    Failure,
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct Sequencer {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; ends what is under way, and keeps the store.
    pub reset: Signal<In, Bit>,

    /// From the admin ring: a command; `ready` is combinational from all `valid`.
    pub command: StreamRx<Bits<COMMAND_BITS>>,
    /// To it: how the command ended; a function of registers.
    pub outcome: StreamTx<Outcome>,
    /// To it: what a query writes, before its outcome; a function of registers.
    pub write: StreamTx<SlotWrite>,

    /// To it: the next slot of a list of pages; a function of registers.
    pub list_read: StreamTx<HostSpan>,
    /// From it: the slot stands in `command`.
    pub list_valid: Signal<In, Bit>,
    /// The host did not give it.
    pub list_error: Signal<In, Bit>,

    /// Source addresses that are in use, one bit each.
    pub source_addresses: Signal<In, Bits<SOURCE_ADDRESSES>>,
    /// Event queue 0 as the registers have it.
    pub event_queue_0: Signal<In, EventQueueSetup>,
    /// It has changed, in this cycle.
    pub event_queue_0_valid: Signal<In, Bit>,
    /// Everything is forgotten; one cycle, after a reset and before the next command.
    pub forget: Signal<In, Bit>,
    /// Only a reset helps.
    pub device_failed: Signal<In, Bit>,
    /// Nothing is under way or asked for; registered.
    pub is_idle: Signal<Out, Bit>,

    /// To all stages: taken when each of them has taken it; a function of registers.
    pub setup: StreamTx<SetupEvent>,
    /// The same of shared receive queues; never valid together with `setup`.
    pub srq_setup: StreamTx<SrqSetup>,
    /// Next PSN of the requester, behind a probe.
    pub probed_send: Signal<In, Bits<24>>,
    /// Messages of the queue pair are in flight, behind a probe.
    pub probed_busy: Signal<In, Bit>,
    /// Next PSN of the responder, behind a probe.
    pub probed_receive: Signal<In, Bits<24>>,
    /// How far the sections are, in the order in which work passes.
    pub in_flight: [Signal<In, InFlight>; SECTIONS],

    /// Queue pairs that have failed or drained; `ready` is combinational from the `valid` of `invalidate`.
    pub notice: StreamRx<QpNotice>,
    /// Shared receive queues whose limit is reached; `ready` is combinational from the `valid` of `notice` and `invalidate`.
    pub srq_limit: StreamRx<SrqLimitNotice>,
    /// Asynchronous events; registered.
    pub event: StreamTx<EqeToken>,

    /// Keys to be ended, from the requester and from the responder; `ready` is combinational from the other's `valid`.
    pub invalidate: [StreamRx<Invalidation>; 2],
    /// What has become of them; functions of registers.
    pub invalidated: [StreamTx<Invalidated>; 2],

    /// A region has changed; a function of registers, as are those below.
    pub region_write: Signal<Out, RegionWrite>,
    /// In this cycle.
    pub region_write_valid: Signal<Out, Bit>,
    /// An entry of the table of pages has changed.
    pub page_entry_write: Signal<Out, PageEntryWrite>,
    /// In this cycle.
    pub page_entry_write_valid: Signal<Out, Bit>,
    /// A completion queue has changed.
    pub completion_queue_setup: Signal<Out, CompletionQueueSetup>,
    /// In this cycle.
    pub completion_queue_setup_valid: Signal<Out, Bit>,
    /// An event queue has changed.
    pub event_queue_setup: Signal<Out, EventQueueSetup>,
    /// In this cycle.
    pub event_queue_setup_valid: Signal<Out, Bit>,
    /// The owner of a queue pair, completion queue or event queue has changed.
    pub page_write: Signal<Out, PageWrite>,
    /// In this cycle.
    pub page_write_valid: Signal<Out, Bit>,

    /// A failure of an older generation was dropped.
    pub counts_stale_dropped: Signal<Out, Bit>,

    #[init(Memory::new(Storage::Ultra).with_output_register())]
    object_store: Memory<Bits<64>, STORE_BITS>,
    #[init(Memory::with_contents(Storage::Block, &programs().instructions))]
    instruction: Memory<Instruction, ROW_BITS>,
    #[init(starts())]
    starts: ConstantRom<OPCODE_BITS, ROW_BITS>,
    /// First steps of what no command asks for, by kind; behind the kinds, of event queue 0.
    #[init(errands())]
    errands: ConstantRom<KIND_BITS, ROW_BITS>,
    /// State after a failure, by state and cause.
    #[init(ConstantRom::new(state_after))]
    lives: ConstantRom<5, STATE_BITS>,
    alu: Alu,
    quiesce: Quiesce,
    page_list: PageList,
    ending: Invalidate,

    stage: Reg<Stage>,
    cycle: Reg<Bits<CYCLE_BITS>>,
    errand: DFF<Errand>,
    seeker: DFF<Seeker>,
    purpose: DFF<Purpose>,
    row: DFF<Bits<ROW_BITS>>,
    subject: DFF<Bits<STORE_BITS>>,
    reference: DFF<Bits<STORE_BITS>>,
    flags: DFF<Bits<32>>,
    /// Known without reset: steps are under way, so after a reset: were cut off.
    is_walking: DFF<Bit>,

    turned: DFF<Bits<64>>,
    refuses: DFF<Bit>,
    status: DFF<Bits<5>>,
    detail: DFF<Bits<32>>,
    changes: DFF<Bit>,
    result: DFF<Bits<64>>,
    next_flags: DFF<Bits<32>>,

    looked_for: DFF<Bits<NUMBER_BITS>>,
    looked_at: DFF<Bits<STORE_BITS>>,
    loaded: DFF<Bits<LOADED_BITS>>,
    load_address: DFF<Bits<STORE_BITS>>,
    write_address: DFF<Bits<64>>,
    pieces: DFF<Bits<3>>,
    outcome_held: DFF<Outcome>,

    notice_held: DFF<QpNotice>,
    /// The notice is of a shared receive queue, and not `notice_held`.
    is_srq_limit: DFF<Bit>,
    limit_generation: DFF<Bits<GENERATION_BITS>>,
    is_within_wait: Reg<Bit>,
    is_within_pages: Reg<Bit>,
    event_held: DFF<EqeToken>,
    event_valid: Reg<Bit>,

    queue_0: DFF<EventQueueSetup>,
    queue_0_restarts: Reg<Bit>,
    queue_0_pending: Reg<Bit>,
    queue_0_told_restarts: DFF<Bit>,
    queue_0_is_off: DFF<Bit>,
    forget_pending: Reg<Bit>,
    sweep_kind: DFF<Bits<KIND_BITS>>,
    sweep_index: DFF<Bits<INDEX_BITS>>,
    torn: DFF<Bits<STORE_BITS>>,
    has_torn: DFF<Bit>,

    tells_region: Reg<Bit>,
    tells_completion_queue: Reg<Bit>,
    tells_event_queue: Reg<Bit>,
    tells_page: Reg<Bit>,
    stale: Reg<Bit>,
    idle: Reg<Bit>,
}

/// The row at which the program of a command begins.
fn starts() -> ConstantRom<OPCODE_BITS, ROW_BITS> {
    let starts = programs().starts;
    ConstantRom::new(|opcode| (starts[opcode] as u64).to_bits())
}

/// The row at which the program of an errand begins.
fn errands() -> ConstantRom<KIND_BITS, ROW_BITS> {
    let programs = programs();
    ConstantRom::new(|errand| {
        let row = programs.forgets.get(errand).copied().unwrap_or(programs.event_queue_0);
        (row as u64).to_bits()
    })
}

/// The state of a queue pair after a cause: the address is the state before, above two bits of the cause.
fn state_after(index: usize) -> Bits<STATE_BITS> {
    let state = QpState::from_number(index as u64 >> 2);
    let cause = Cause::from_number(index as u64 % 4);
    match (state, cause) {
        // Only this service can be created.
        (Some(state), Some(cause)) => {
            u64::from(after(Service::ReliableConnected, state, cause).number()).to_bits()
        }
        _ => bits(index as u64 >> 2),
    }
}

/// Turns a word to the right.
#[kernel]
fn turn(word: Bits<64>, distance: Bits<6>) -> Bits<64> {
    let by_ones = match distance.get_bits::<2>(0).to_u64() {
        0 => word,
        1 => (word >> 1) | (word << 63),
        2 => (word >> 2) | (word << 62),
        _ => (word >> 3) | (word << 61),
    };
    let by_fours = match distance.get_bits::<2>(2).to_u64() {
        0 => by_ones,
        1 => (by_ones >> 4) | (by_ones << 60),
        2 => (by_ones >> 8) | (by_ones << 56),
        _ => (by_ones >> 12) | (by_ones << 52),
    };
    match distance.get_bits::<2>(4).to_u64() {
        0 => by_fours,
        1 => (by_fours >> 16) | (by_fours << 48),
        2 => (by_fours >> 32) | (by_fours << 32),
        _ => (by_fours >> 48) | (by_fours << 16),
    }
}

/// Gives what happens to a queue pair by its number.
#[kernel]
fn setup_kind(number: Bits<SETUP_KIND_BITS>) -> SetupKind {
    match number.to_u64() {
        number::LIFE => SetupKind::Life,
        number::RESTART => SetupKind::Restart,
        number::PATH => SetupKind::Path,
        number::SEND_PSN => SetupKind::SendPsn,
        number::RECEIVE_PSN => SetupKind::ReceivePsn,
        _ => SetupKind::Probe,
    }
}

/// Tells whether a number of [`setup_kind`] is of a shared receive queue.
#[kernel]
fn is_of_srq(number: Bits<SETUP_KIND_BITS>) -> Bit {
    number >= number::SRQ_FIRST
}

/// Gives what happens to a shared receive queue by its number.
#[kernel]
fn srq_setup_kind(number: Bits<SETUP_KIND_BITS>) -> SrqSetupKind {
    if number == number::SRQ_LIMIT { SrqSetupKind::Limit } else { SrqSetupKind::Restart }
}

/// Gives the number of the cause of a failure; that of a notice that is no failure changes no state.
#[kernel]
fn cause_number(kind: NoticeKind) -> Bits<2> {
    match kind {
        NoticeKind::RequesterError => bits::<2>(0),
        NoticeKind::ResponderError => bits::<2>(1),
        NoticeKind::QueueError => bits::<2>(2),
        NoticeKind::Drained => bits::<2>(3),
    }
}

/// Gives the word that a notice is about: the header of the queue pair, or the limit of the shared receive queue.
#[kernel]
fn place_of(has_notice: Bit, notice: QpNotice, limit: SrqLimitNotice) -> Bits<STORE_BITS> {
    if has_notice {
        header_of(bits::<KIND_BITS>(kind::QUEUE_PAIR), notice.queue_pair)
    } else {
        header_of(
            bits::<KIND_BITS>(kind::SHARED_RECEIVE),
            bit_cast::<INDEX_BITS, SHARED_RECEIVE_BITS>(limit.srq),
        ) | bits::<STORE_BITS>(LIMIT_WORD)
    }
}

/// Tells whether an index is the last of its table.
#[kernel]
fn is_last(kind: Bits<KIND_BITS>, index: Bits<INDEX_BITS>) -> Bit {
    match kind.to_u64() {
        kind::ADDRESS_HANDLE => index.get_bits::<8>(0).all(),
        kind::EVENT_QUEUE => index.get_bits::<5>(0).all(),
        kind::SHARED_RECEIVE => index.get_bits::<6>(0).all(),
        _ => index.all(),
    }
}

impl Logic for Sequencer {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        for i in 0..SECTIONS {
            self.quiesce.in_flight[i].next = self.in_flight[i].val();
        }

        let stage = self.stage.q.val();
        let cycle = self.cycle.q.val();
        let errand = self.errand.q.val();
        let step = self.instruction.read_data.val();
        let word = self.object_store.read_data.val();
        let loaded = self.loaded.q.val();
        let turned = self.turned.q.val();
        let flags = self.flags.q.val();
        let (subject, reference) = (self.subject.q.val(), self.reference.q.val());
        let source_address = address_of(step.source, subject, reference);
        let target_address = address_of(step.target, subject, reference);
        let constant = step.constant;
        let action = step.action;
        let kind_number = constant.get_bits::<KIND_BITS>(0);

        // Keys end between two steps, and while somebody else is waited for; nothing that needs the store begins then.
        for i in 0..2 {
            StreamRx::<Invalidation>::link(&mut self.invalidate[i], &mut self.ending.requests[i]);
            StreamTx::<Invalidated>::link(&mut self.invalidated[i], &mut self.ending.answers[i]);
        }
        self.ending.may_begin.next = stage == Stage::Idle
            || stage == Stage::Fetch
            || stage == Stage::Setup
            || stage == Stage::Write
            || stage == Stage::Wait
            || stage == Stage::Pages
            || stage == Stage::Answer
            || stage == Stage::Raise;
        let is_lent = self.ending.holds.val();
        self.ending.word.next = word;
        self.ending.is_waiting.next = self.quiesce.is_waiting[1].val();

        // What is done next: failures first.
        let is_idle = stage == Stage::Idle && !is_lent;
        let is_waiting = stage == Stage::Wait && !is_lent;
        let has_notice = self.notice.valid.val();
        let has_failure = has_notice || self.srq_limit.valid.val();
        let noticed_at = place_of(has_notice, self.notice.beat.val(), self.srq_limit.beat.val());
        let forgets = self.forget_pending.q.val();
        let enters_queue_0 = self.queue_0_pending.q.val();
        let is_paging = stage == Stage::Pages;
        let is_between_slots = is_paging && self.page_list.is_asking.val() && !is_lent;
        let takes_notice = is_idle || is_waiting || is_between_slots;
        self.notice.ready.next = takes_notice;
        self.srq_limit.ready.next = takes_notice && !has_notice;
        let may_command = is_idle && !has_failure && !forgets && !enters_queue_0;
        self.command.ready.next = may_command;
        let notice = self.notice_held.q.val();
        let sweep_kind = self.sweep_kind.q.val();
        let sweep_index = self.sweep_index.q.val();
        self.errands.address.next = if is_idle { bits::<KIND_BITS>(QUEUE_0_ERRAND) } else { sweep_kind };
        self.starts.address.next = loaded.get_bits::<OPCODE_BITS>(0);

        // The two ports of the store.
        let is_entering = stage == Stage::Enter;
        let is_applying = stage == Stage::Apply;
        let ends_probe = stage == Stage::Probe && cycle == LAST_PROBE;
        let is_deciding = stage == Stage::Failed;
        let state = state_of(word);
        self.lives.address.next = cat!(state, cause_number(notice.kind));
        let next_state = self.lives.value.val();
        let is_limit = self.is_srq_limit.q.val();
        let is_drain = !is_limit && notice.kind == NoticeKind::Drained;
        let is_notice = is_limit || is_drain;
        let is_stale = if is_limit {
            word.get_bits::<GENERATION_BITS>(LIMIT_BITS) != self.limit_generation.q.val()
        } else {
            !word.get_bit(VALID) || generation_of(word) != notice.generation
        };
        let has_left = is_drain && state != number::SEND_QUEUE_DRAIN;
        let fails = is_deciding && !is_stale && !has_left && (is_notice || next_state != state);
        let succeeds = is_applying && !self.refuses.q.val();
        self.object_store.read_enable.next = true;
        self.object_store.read_address.next = match stage {
            Stage::Source => source_address,
            Stage::Target => target_address,
            Stage::Load => self.load_address.q.val(),
            _ => select(is_lent, self.ending.read_address.val(), self.looked_at.q.val()),
        };
        let ends_pages = is_paging && self.page_list.is_done.val() && !is_lent;
        let pages = self.page_list.outcome.val();
        let has_pages = ends_pages && !pages.status.any();
        let ends_key = self.ending.writes.val();
        self.object_store.write_enable.next =
            ends_key || is_entering || (succeeds && self.changes.q.val()) || ends_probe || fails || has_pages;
        self.object_store.write_address.next = match stage {
            Stage::Enter => bits::<STORE_BITS>(COMMAND) | bit_cast::<STORE_BITS, 3>(cycle.get_bits::<3>(0)),
            Stage::Failed => self.looked_at.q.val(),
            _ => select(ends_key, self.ending.write_address.val(), target_address),
        };
        self.object_store.write_data.next = match stage {
            Stage::Enter => loaded.get_bits::<64>(0),
            Stage::Probe => {
                cat!(
                    bits::<8>(0),
                    self.probed_receive.val(),
                    bits::<7>(0),
                    self.probed_busy.val(),
                    self.probed_send.val()
                )
            }
            Stage::Pages => select(ends_key, self.ending.write_data.val(), self.page_list.address.val()),
            Stage::Failed => {
                let without_limit = cat!(word.get_bits::<BEHIND_LIMIT>(LIMIT_BITS), bits::<LIMIT_BITS>(0));
                let with_state = cat!(
                    word.get_bits::<BEHIND_STATE>(STATE + STATE_BITS),
                    next_state,
                    word.get_bits::<STATE>(0)
                );
                select(is_limit, without_limit, with_state)
            }
            _ => select(ends_key, self.ending.write_data.val(), self.result.q.val()),
        };
        self.instruction.read_enable.next = stage == Stage::Fetch;
        self.instruction.read_address.next = self.row.q.val();
        self.instruction.write_enable.next = false;
        self.instruction.write_address.next = bits(0);
        self.instruction.write_data.next = step;

        self.alu.step.next = step;
        self.alu.source.next = turned;
        self.alu.target.next = word;
        self.alu.flags.next = flags;
        self.alu.source_addresses.next = self.source_addresses.val();
        self.quiesce.begins[0].next = succeeds && action == Action::Wait;
        self.quiesce.begins[1].next = self.ending.wait_begins.val();

        // Between two slots a failure may use the place of the words.
        self.page_list.region.next = paged_region_of(loaded);
        self.page_list.begins.next = is_paging;
        self.page_list.may_ask.next = is_paging && !has_failure && !self.device_failed.val();
        self.page_list.may_end.next = !is_lent;
        self.page_list.list_valid.next = self.list_valid.val();
        self.page_list.list_error.next = self.list_error.val();
        self.page_list.word.next = loaded.get_bits::<64>(0);
        StreamTx::<HostSpan>::link(&mut self.list_read, &mut self.page_list.list_read);
        self.page_entry_write.next = self.page_list.page_write.val();
        self.page_entry_write_valid.next = self.page_list.page_write_valid.val();

        // Whom it tells; all of this stands still while it is offered.
        let restarts = constant.get_bit(PUBLISH_RESTARTS);
        let is_queue_0 = errand == Errand::EventQueue0;
        let is_off = is_queue_0 && self.queue_0_is_off.q.val();
        let purpose = self.purpose.q.val();
        let told = if purpose == Purpose::Failure {
            SetupKind::Life
        } else if action == Action::Probe {
            SetupKind::Probe
        } else {
            setup_kind(constant.get_bits::<SETUP_KIND_BITS>(0))
        };
        let setup_number = constant.get_bits::<SETUP_KIND_BITS>(0);
        let tells_srq = purpose == Purpose::Setup && action == Action::Setup && is_of_srq(setup_number);
        self.setup.valid.next = stage == Stage::Setup && !tells_srq;
        self.setup.beat.next = setup_of(loaded, told, turned.get_bits::<24>(0));
        self.srq_setup.valid.next = stage == Stage::Setup && tells_srq;
        self.srq_setup.beat.next =
            srq_setup_of(loaded, srq_setup_kind(setup_number), turned.get_bits::<24>(0));
        // Of an entry that permits nothing only the index counts.
        let ends_region = self.ending.tells.val();
        let changed = region_of(loaded);
        self.region_write.next = RegionWrite {
            index: select(ends_region, self.ending.index.val(), changed.index),
            region: Region {
                key: changed.region.key,
                valid: changed.region.valid && !ends_region,
                local_write: changed.region.local_write,
                remote_write: changed.region.remote_write,
                remote_read: changed.region.remote_read,
                remote_atomic: changed.region.remote_atomic,
                zero_based: changed.region.zero_based,
                first_address: changed.region.first_address,
                length: changed.region.length,
                translation_base: changed.region.translation_base,
                domain: changed.region.domain,
            },
        };
        self.region_write_valid.next = self.tells_region.q.val() || ends_region;
        self.completion_queue_setup.next = completion_queue_of(loaded, restarts);
        self.completion_queue_setup_valid.next = self.tells_completion_queue.q.val();
        self.event_queue_setup.next =
            event_queue_of(loaded, restarts && (!is_queue_0 || self.queue_0_told_restarts.q.val()), is_off);
        self.event_queue_setup_valid.next = self.tells_event_queue.q.val();
        self.page_write.next = page_of(loaded, kind_number, is_off);
        self.page_write_valid.next = self.tells_page.q.val();
        self.write.valid.next = stage == Stage::Write;
        self.write.beat.next = SlotWrite {
            address: self.write_address.q.val(),
            length: bits(number::PIECE_BYTES),
            data: loaded.get_bits::<COMMAND_BITS>(0),
        };
        self.outcome.valid.next = stage == Stage::Answer;
        self.outcome.beat.next = self.outcome_held.q.val();
        self.event.valid.next = self.event_valid.q.val();
        self.event.beat.next = self.event_held.q.val();
        self.counts_stale_dropped.next = self.stale.q.val();
        self.is_idle.next = self.idle.q.val();

        self.tells_region.d.next = false;
        self.tells_completion_queue.d.next = false;
        self.tells_event_queue.d.next = false;
        self.tells_page.d.next = false;
        self.stale.d.next = is_deciding && is_stale && !is_limit;
        self.idle.d.next = may_command
            && !self.command.valid.val()
            && !self.forget.val()
            && !self.event_queue_0_valid.val()
            && self.ending.is_idle.val()
            && !self.event_valid.q.val();
        if self.event.ready.val() {
            self.event_valid.d.next = false;
        }

        // A pulse is remembered until it is taken up.
        let begins_forget = is_idle && !has_failure && forgets;
        let begins_queue_0 = is_idle && !has_failure && !forgets && enters_queue_0;
        let begins_command = may_command && self.command.valid.val();
        self.forget_pending.d.next = self.forget.val() || (forgets && !begins_forget);
        self.queue_0_pending.d.next = self.event_queue_0_valid.val() || (enters_queue_0 && !begins_queue_0);
        let newly_restarts = self.event_queue_0_valid.val() && self.event_queue_0.val().restarts;
        self.queue_0_restarts.d.next = newly_restarts || (self.queue_0_restarts.q.val() && !begins_queue_0);
        if self.event_queue_0_valid.val() {
            self.queue_0.d.next = self.event_queue_0.val();
        }
        if begins_queue_0 {
            self.queue_0_told_restarts.d.next = self.queue_0_restarts.q.val();
            self.queue_0_is_off.d.next = !self.queue_0.q.val().valid;
        }

        // Objects.
        let exists = word.get_bit(VALID);
        let is_found = exists && number_of(word) == self.looked_for.q.val();
        let is_good = if constant.get_bit(FIND_EXISTS) { is_found } else { !exists };
        let is_torn = self.has_torn.q.val() && self.looked_at.q.val() == self.torn.q.val();
        let is_swept = stage == Stage::Swept && !exists && !is_torn;
        let finishes = succeeds && action == Action::Finish;
        let moves_on = is_swept || (finishes && errand == Errand::Forget);
        let sweeps_last = is_last(sweep_kind, sweep_index);
        let named = turned.get_bits::<NUMBER_BITS>(0) & constant.get_bits::<NUMBER_BITS>(NUMBER_BITS);
        let refusal = Outcome { status: step.status, detail: bit_cast::<32, 9>(step.detail) };

        // Where the next step follows.
        let skips = stage == Stage::Source && step.is_conditional && !flags.get_bit(step.condition.index());
        let is_told =
            stage == Stage::Setup && select(tells_srq, self.srq_setup.ready.val(), self.setup.ready.val());
        let is_written = stage == Stage::Write && self.write.ready.val();
        let has_passed =
            is_waiting && !has_failure && !self.device_failed.val() && !self.quiesce.is_waiting[0].val();
        let is_done = match action {
            Action::Finish
            | Action::Find
            | Action::Setup
            | Action::Publish
            | Action::Wait
            | Action::Pages
            | Action::Probe
            | Action::Write => false,
            _ => succeeds,
        };
        let goes_on = is_done
            || skips
            || ends_probe
            || is_written
            || has_passed
            || has_pages
            || stage == Stage::Publish
            || (is_told && purpose == Purpose::Setup && action != Action::Probe)
            || (stage == Stage::Found && is_good);
        let returns_to = if self.is_within_wait.q.val() {
            Stage::Wait
        } else if self.is_within_pages.q.val() {
            Stage::Pages
        } else {
            Stage::Idle
        };

        self.cycle.d.next = bits(0);
        match stage {
            Stage::Idle => {
                self.looked_at.d.next = noticed_at;
                self.notice_held.d.next = self.notice.beat.val();
                self.is_srq_limit.d.next = !has_notice;
                self.limit_generation.d.next = self.srq_limit.beat.val().limit_generation;
                self.is_within_wait.d.next = false;
                self.is_within_pages.d.next = false;
                self.seeker.d.next = Seeker::Failure;
                self.pieces.d.next = bits(0);
                self.sweep_kind.d.next = bits(0);
                self.sweep_index.d.next = bits(0);
                self.row.d.next = self.errands.value.val();
                if has_failure && !is_lent {
                    self.stage.d.next = Stage::Look;
                }
                if begins_forget {
                    self.stage.d.next = Stage::Sweep;
                    self.errand.d.next = Errand::Forget;
                    self.torn.d.next = subject;
                    self.has_torn.d.next = self.is_walking.q.val();
                }
                if begins_queue_0 {
                    self.stage.d.next = Stage::Enter;
                    self.errand.d.next = Errand::EventQueue0;
                    self.subject.d.next =
                        header_of(bits::<KIND_BITS>(kind::EVENT_QUEUE), bits::<INDEX_BITS>(0));
                    self.loaded.d.next = cat!(
                        bits::<BEHIND_BODY>(0),
                        event_queue_body(self.queue_0.q.val()),
                        bits::<64>(EXISTS)
                    );
                }
                if begins_command {
                    self.stage.d.next = Stage::Enter;
                    self.errand.d.next = Errand::Command;
                    self.loaded.d.next = cat!(bits::<BEHIND_COMMAND>(0), self.command.beat.val());
                }
                if begins_queue_0 || begins_command {
                    self.is_walking.d.next = true;
                }
            }
            Stage::Enter => {
                self.cycle.d.next = cycle + 1;
                self.loaded.d.next = cat!(bits::<64>(0), loaded.get_bits::<BEHIND_WORD>(64));
                if cycle == 0 && errand == Errand::Command {
                    self.row.d.next = self.starts.value.val();
                }
                if cycle == LAST_WORD {
                    self.stage.d.next = Stage::Fetch;
                }
            }
            Stage::Fetch => {
                if !is_lent {
                    self.stage.d.next = Stage::Source;
                }
            }
            Stage::Source => self.stage.d.next = Stage::Target,
            Stage::Target => self.stage.d.next = Stage::Turn,
            Stage::Turn => {
                self.turned.d.next = turn(word, step.rotate);
                self.stage.d.next = Stage::Alu;
            }
            Stage::Alu => {
                self.refuses.d.next = self.alu.refuses.val();
                self.status.d.next = self.alu.status.val();
                self.detail.d.next = self.alu.detail.val();
                self.changes.d.next = self.alu.changes.val();
                self.result.d.next = self.alu.result.val();
                self.next_flags.d.next = self.alu.next_flags.val();
                self.stage.d.next = Stage::Apply;
            }
            Stage::Apply => {
                self.flags.d.next = self.next_flags.q.val();
                self.looked_for.d.next = named;
                self.looked_at.d.next = header_of(kind_number, index_of(kind_number, named));
                self.seeker.d.next = Seeker::Find;
                self.load_address.d.next = subject;
                self.purpose.d.next = Purpose::Setup;
                self.write_address.d.next = self.result.q.val();
                self.outcome_held.d.next =
                    Outcome { status: self.status.q.val(), detail: self.detail.q.val() };
                match action {
                    Action::Find => self.stage.d.next = Stage::Look,
                    Action::Setup | Action::Probe => self.stage.d.next = Stage::Load,
                    Action::Publish => {
                        self.stage.d.next = Stage::Load;
                        self.purpose.d.next = Purpose::Publish;
                    }
                    Action::Write => {
                        self.stage.d.next = Stage::Load;
                        self.purpose.d.next = Purpose::Write;
                        self.load_address.d.next = source_address;
                    }
                    Action::Pages => {
                        self.stage.d.next = Stage::Load;
                        self.purpose.d.next = Purpose::Pages;
                        self.load_address.d.next = bits(SCRATCH);
                    }
                    Action::Wait => self.stage.d.next = Stage::Wait,
                    Action::Finish => {
                        self.stage.d.next =
                            if errand == Errand::Command { Stage::Answer } else { Stage::Idle };
                        self.is_walking.d.next = false;
                        self.outcome_held.d.next = Outcome {
                            status: bits(0),
                            detail: bit_cast::<32, WRITTEN_BITS>(cat!(
                                self.pieces.q.val(),
                                bits::<PIECE_LOG2>(0)
                            )),
                        };
                    }
                    _ => self.stage.d.next = Stage::Fetch,
                }
                if self.refuses.q.val() {
                    self.stage.d.next = Stage::Answer;
                }
            }
            Stage::Look => self.stage.d.next = Stage::Looking,
            Stage::Looking => {
                self.stage.d.next = match self.seeker.q.val() {
                    Seeker::Find => Stage::Found,
                    Seeker::Failure => Stage::Failed,
                    Seeker::Forget => Stage::Swept,
                };
            }
            Stage::Found => {
                self.outcome_held.d.next = refusal;
                self.stage.d.next = Stage::Answer;
                if constant.get_bit(FIND_REFERENCE) {
                    self.reference.d.next = self.looked_at.q.val();
                } else {
                    self.subject.d.next = self.looked_at.q.val();
                }
            }
            Stage::Load => {
                self.cycle.d.next = cycle + 1;
                self.load_address.d.next = self.load_address.q.val() + 1;
                if cycle >= FIRST_WORD {
                    self.loaded.d.next = cat!(word, loaded.get_bits::<BEHIND_WORD>(64));
                }
                if cycle == LAST_LOAD {
                    self.cycle.d.next = bits(0);
                    self.stage.d.next = match purpose {
                        Purpose::Publish => Stage::Publish,
                        Purpose::Write => Stage::Write,
                        Purpose::Failure => {
                            if is_notice {
                                Stage::Raise
                            } else {
                                Stage::Setup
                            }
                        }
                        Purpose::Pages => Stage::Pages,
                        _ => Stage::Setup,
                    };
                }
            }
            Stage::Setup => {
                if is_told && purpose == Purpose::Failure {
                    self.stage.d.next = if notice.has_event { Stage::Raise } else { returns_to };
                }
                if is_told && purpose == Purpose::Setup {
                    self.stage.d.next = Stage::Probe;
                }
            }
            Stage::Probe => self.cycle.d.next = cycle + 1,
            Stage::Publish => match kind_number.to_u64() {
                kind::REGION => self.tells_region.d.next = true,
                kind::COMPLETION_QUEUE => {
                    self.tells_completion_queue.d.next = true;
                    self.tells_page.d.next = true;
                }
                kind::EVENT_QUEUE => {
                    self.tells_event_queue.d.next = true;
                    self.tells_page.d.next = true;
                }
                _ => self.tells_page.d.next = true,
            },
            Stage::Write => {
                if is_written {
                    self.pieces.d.next = self.pieces.q.val() + 1;
                }
            }
            Stage::Wait => {
                self.looked_at.d.next = noticed_at;
                self.notice_held.d.next = self.notice.beat.val();
                self.is_srq_limit.d.next = !has_notice;
                self.limit_generation.d.next = self.srq_limit.beat.val().limit_generation;
                self.is_within_wait.d.next = true;
                self.seeker.d.next = Seeker::Failure;
                self.outcome_held.d.next = Outcome { status: bits(number::DEVICE_FAILED), detail: bits(0) };
                if has_failure && !is_lent {
                    self.stage.d.next = Stage::Look;
                } else if self.device_failed.val() && !is_lent {
                    self.stage.d.next = Stage::Answer;
                }
            }
            Stage::Pages => {
                self.looked_at.d.next = noticed_at;
                self.notice_held.d.next = self.notice.beat.val();
                self.is_srq_limit.d.next = !has_notice;
                self.limit_generation.d.next = self.srq_limit.beat.val().limit_generation;
                self.is_within_pages.d.next = true;
                self.seeker.d.next = Seeker::Failure;
                self.outcome_held.d.next = pages;
                if self.list_valid.val() {
                    self.loaded.d.next = cat!(bits::<BEHIND_COMMAND>(0), self.command.beat.val());
                } else if self.page_list.takes_word.val() {
                    self.loaded.d.next = cat!(bits::<64>(0), loaded.get_bits::<BEHIND_WORD>(64));
                }
                if ends_pages && pages.status.any() {
                    self.stage.d.next = Stage::Answer;
                }
                if is_between_slots && has_failure {
                    self.stage.d.next = Stage::Look;
                } else if is_between_slots && self.device_failed.val() {
                    self.outcome_held.d.next =
                        Outcome { status: bits(number::DEVICE_FAILED), detail: bits(0) };
                    self.stage.d.next = Stage::Answer;
                }
            }
            Stage::Answer => {
                if self.outcome.ready.val() {
                    self.stage.d.next = Stage::Idle;
                    self.is_walking.d.next = false;
                }
            }
            Stage::Failed => {
                self.load_address.d.next =
                    cat!(self.looked_at.q.val().get_bits::<BESIDE_WORD>(OBJECT_BITS), bits::<OBJECT_BITS>(0));
                self.purpose.d.next = Purpose::Failure;
                self.stage.d.next = if fails { Stage::Load } else { returns_to };
            }
            Stage::Raise => {
                if !self.event_valid.q.val() || self.event.ready.val() {
                    self.event_valid.d.next = true;
                    self.event_held.d.next = EqeToken {
                        object_number: loaded.get_bits::<24>(NUMBER),
                        detail: bits(0),
                        kind: bits(number::ASYNCHRONOUS),
                        code: select(is_limit, bits::<8>(number::SRQ_LIMIT_EVENT), notice.event_code),
                    };
                    self.stage.d.next = returns_to;
                }
            }
            Stage::Sweep => {
                self.looked_at.d.next = header_of(sweep_kind, sweep_index);
                self.seeker.d.next = Seeker::Forget;
                self.stage.d.next = Stage::Look;
            }
            Stage::Swept => {
                self.subject.d.next = self.looked_at.q.val();
                self.row.d.next = self.errands.value.val();
                self.stage.d.next = Stage::Fetch;
            }
        }
        if moves_on {
            self.stage.d.next = Stage::Sweep;
            self.sweep_index.d.next = select(sweeps_last, bits::<INDEX_BITS>(0), sweep_index + 1);
            if sweeps_last {
                self.sweep_kind.d.next = sweep_kind + 1;
            }
            if sweeps_last && sweep_kind == kind::SHARED_RECEIVE {
                self.stage.d.next = Stage::Idle;
                self.is_walking.d.next = false;
            }
        }
        if goes_on {
            self.row.d.next = self.row.q.val() + 1;
            self.stage.d.next = Stage::Fetch;
        }
    }
}
