//! Publisher: writes an object that is loaded into the tables that the rest of the card keeps of such objects.
//!
//! ```text
//!  publishes, instruction ──> tables_of ──> valid ─┐
//!  loaded ──────────────────> *_of ────────────────┴─> tables
//!  invalidates, index ──────> region_write ─────────┘
//! ```
//!
//! Latency 1 cycle; `loaded` and the instruction do not change in that cycle.
use super::COMMAND_BITS;
use super::stage::{LoadReason, Stage};
use crate::instruction::{Action, Instruction, PUBLISH_RESTARTS, SETUP_KIND_BITS};
use crate::messages::TablesTx;
use crate::object_store::{KIND_BITS, kind};
use crate::object_view::{
    LOADED_BITS, completion_queue_of, event_queue_of, page_of, region_of, setup_of, srq_setup_of,
};
use rnic_kernel::prelude::*;
use rnic_layout::admin::COMMAND_BYTES;
use rnic_messages::host::SlotWrite;
use rnic_messages::protect::{Region, RegionWrite};
use rnic_messages::setup::{SetupEvent, SetupKind, SrqSetup, SrqSetupKind};
use rnic_messages::sizes::REGION_BITS;

/// Numbers of [`SetupKind`] and [`SrqSetupKind`], in the form in which kernels can match them.
mod number {
    use crate::instruction::SRQ_SETUP;
    use rnic_messages::setup::{SetupKind, SrqSetupKind};

    pub(super) const LIFE: u64 = SetupKind::Life as u64;
    pub(super) const RESTART: u64 = SetupKind::Restart as u64;
    pub(super) const PATH: u64 = SetupKind::Path as u64;
    pub(super) const SEND_PSN: u64 = SetupKind::SendPsn as u64;
    pub(super) const RECEIVE_PSN: u64 = SetupKind::ReceivePsn as u64;
    pub(super) const SRQ_FIRST: u64 = SRQ_SETUP;
    pub(super) const SRQ_LIMIT: u64 = SRQ_SETUP | SrqSetupKind::Limit as u64;
}

/// Tables that an instruction writes, one cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Publishes {
    region: Bit,
    completion_queue: Bit,
    event_queue: Bit,
    /// Owner of a doorbell page.
    page: Bit,
}

/// Gives the tables that hold objects of a kind.
#[kernel]
fn tables_of(kind: Bits<KIND_BITS>) -> Publishes {
    match kind.to_u64() {
        kind::REGION => Publishes { region: true, ..Default::default() },
        kind::COMPLETION_QUEUE => Publishes { completion_queue: true, page: true, ..Default::default() },
        kind::EVENT_QUEUE => Publishes { event_queue: true, page: true, ..Default::default() },
        _ => Publishes { page: true, ..Default::default() },
    }
}

/// Writes the tables of the card.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub(super) struct Publisher {
    /// [`Action::Publish`]: the tables are written in the next cycle.
    pub publishes: Signal<In, Bit>,
    /// Constant of the instruction.
    pub constant: Signal<In, Bits<64>>,
    /// The object.
    pub loaded: Signal<In, Bits<LOADED_BITS>>,
    /// The object is event queue 0.
    pub is_queue_0: Signal<In, Bit>,
    /// Event queue 0 restarts.
    pub queue_0_restarts: Signal<In, Bit>,
    /// Event queue 0 takes no events.
    pub queue_0_is_off: Signal<In, Bit>,
    /// A key was invalidated: the region tables are written in this cycle.
    pub invalidates: Signal<In, Bit>,
    /// Index of its region.
    pub invalidated: Signal<In, Bits<REGION_BITS>>,
    /// To the tables; functions of registers of this block and of those that drive it.
    pub tables: TablesTx,

    written: Reg<Publishes>,
}

impl Logic for Publisher {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let loaded = self.loaded.val();
        let constant = self.constant.val();
        let kind = constant.get_bits::<KIND_BITS>(0);
        let restarts = constant.get_bit(PUBLISH_RESTARTS);
        let is_queue_0 = self.is_queue_0.val();
        let is_off = is_queue_0 && self.queue_0_is_off.val();
        let invalidates = self.invalidates.val();
        let written = self.written.q.val();
        self.written.d.next = select(self.publishes.val(), tables_of(kind), Publishes::default());
        self.tables.region_write.value.next = region_write(loaded, invalidates, self.invalidated.val());
        self.tables.region_write.valid.next = written.region || invalidates;
        self.tables.completion_queue_setup.value.next = completion_queue_of(loaded, restarts);
        self.tables.completion_queue_setup.valid.next = written.completion_queue;
        let restarts_events = restarts && (!is_queue_0 || self.queue_0_restarts.val());
        self.tables.event_queue_setup.value.next = event_queue_of(loaded, restarts_events, is_off);
        self.tables.event_queue_setup.valid.next = written.event_queue;
        self.tables.page_write.offer(written.page, page_of(loaded, kind, is_off));
    }
}

/// What [`Stage::Setup`] offers to the stages of the card: one of the two events.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct SetupOffer {
    /// The event is of a shared receive queue, also while none is offered.
    pub(super) is_srq: Bit,
    /// `setup` is offered.
    pub(super) setup_valid: Bit,
    /// Event of the queue pair that is loaded.
    pub(super) setup: SetupEvent,
    /// `srq_setup` is offered.
    pub(super) srq_setup_valid: Bit,
    /// Event of the shared receive queue that is loaded.
    pub(super) srq_setup: SrqSetup,
}

/// Decides what is offered for the object that is loaded; `argument` is a PSN, or a limit as in [`srq_setup_of`]. It does not
/// change before it is taken.
#[kernel]
pub(super) fn setup_offer(
    stage: Stage,
    load: LoadReason,
    instruction: Instruction,
    loaded: Bits<LOADED_BITS>,
    argument: Bits<24>,
) -> SetupOffer {
    let is_srq = is_srq_setup(load, instruction.action, instruction.constant);
    let offers = stage == Stage::Setup;
    SetupOffer {
        is_srq,
        setup_valid: offers && !is_srq,
        setup: setup_of(loaded, setup_kind(load, instruction.action, instruction.constant), argument),
        srq_setup_valid: offers && is_srq,
        srq_setup: srq_setup_of(loaded, srq_setup_kind(instruction.constant), argument),
    }
}

/// Gives the next write of a query: a command's worth of the words that are loaded.
#[kernel]
pub(super) fn query_write(address: Bits<64>, loaded: Bits<LOADED_BITS>) -> SlotWrite {
    SlotWrite {
        address,
        length: bits(COMMAND_BYTES as u64),
        data: loaded.get_bits::<COMMAND_BITS>(0),
        ..Default::default()
    }
}

/// Gives the kind of a setup event: that of the instruction, or a change of state after a failure.
#[kernel]
fn setup_kind(load: LoadReason, action: Action, constant: Bits<64>) -> SetupKind {
    if load == LoadReason::Notice {
        SetupKind::Life
    } else if action == Action::Probe {
        SetupKind::Probe
    } else {
        match constant.get_bits::<SETUP_KIND_BITS>(0).to_u64() {
            number::LIFE => SetupKind::Life,
            number::RESTART => SetupKind::Restart,
            number::PATH => SetupKind::Path,
            number::SEND_PSN => SetupKind::SendPsn,
            number::RECEIVE_PSN => SetupKind::ReceivePsn,
            _ => SetupKind::Probe,
        }
    }
}

/// Tells whether the setup event is of a shared receive queue.
#[kernel]
fn is_srq_setup(load: LoadReason, action: Action, constant: Bits<64>) -> Bit {
    load == LoadReason::Setup
        && action == Action::Setup
        && constant.get_bits::<SETUP_KIND_BITS>(0) >= number::SRQ_FIRST
}

/// Gives the kind of a setup event of a shared receive queue.
#[kernel]
fn srq_setup_kind(constant: Bits<64>) -> SrqSetupKind {
    if constant.get_bits::<SETUP_KIND_BITS>(0) == number::SRQ_LIMIT {
        SrqSetupKind::Limit
    } else {
        SrqSetupKind::Restart
    }
}

/// Gives the write of the region tables: the region that is loaded, or one whose key was invalidated, of which only the index
/// is meant.
#[kernel]
fn region_write(loaded: Bits<LOADED_BITS>, invalidates: Bit, invalidated: Bits<REGION_BITS>) -> RegionWrite {
    let changed = region_of(loaded);
    RegionWrite {
        index: select(invalidates, invalidated, changed.index),
        region: Region { valid: changed.region.valid && !invalidates, ..changed.region },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_store::{NUMBER, VALID};
    use num_bigint::BigUint;

    #[test]
    fn queues_have_an_owner_and_only_address_handles_have_no_table() {
        let none = Publishes::default();
        for (kind, expected) in [
            (kind::QUEUE_PAIR, Publishes { page: true, ..none }),
            (kind::REGION, Publishes { region: true, ..none }),
            (kind::COMPLETION_QUEUE, Publishes { completion_queue: true, page: true, ..none }),
            (kind::EVENT_QUEUE, Publishes { event_queue: true, page: true, ..none }),
            (kind::SHARED_RECEIVE, Publishes { page: true, ..none }),
        ] {
            assert_eq!(tables_of(bits(kind)), expected, "{kind}");
        }
    }

    #[test]
    fn a_failure_is_a_change_of_state_and_a_probe_needs_no_constant() {
        use SetupKind::*;
        for kind in [Life, Restart, Path, SendPsn, ReceivePsn, Probe] {
            let constant = bits(kind as u64);
            assert_eq!(setup_kind(LoadReason::Setup, Action::Setup, constant), kind);
            assert_eq!(setup_kind(LoadReason::Setup, Action::Probe, constant), Probe);
            assert_eq!(setup_kind(LoadReason::Notice, Action::Setup, constant), Life);
            assert_eq!(setup_kind(LoadReason::Notice, Action::Probe, constant), Life);
        }
    }

    #[test]
    fn the_constant_tells_setup_events_of_srqs_apart() {
        use crate::instruction::SRQ_SETUP;
        for (load, action, constant, expected) in [
            (LoadReason::Setup, Action::Setup, SetupKind::Probe as u64, false),
            (LoadReason::Setup, Action::Setup, SRQ_SETUP, true),
            (LoadReason::Setup, Action::Setup, SRQ_SETUP | 1, true),
            (LoadReason::Setup, Action::Probe, SRQ_SETUP, false),
            (LoadReason::Notice, Action::Setup, SRQ_SETUP, false),
        ] {
            assert_eq!(
                is_srq_setup(load, action, bits(constant)),
                expected,
                "{load:?} {action:?} {constant}"
            );
        }
        for kind in [SrqSetupKind::Restart, SrqSetupKind::Limit] {
            assert_eq!(srq_setup_kind(bits(SRQ_SETUP | kind as u64)), kind);
        }
    }

    /// Stage, load, action, constant; offered to queue pairs, to SRQs.
    #[test]
    fn a_setup_event_is_offered_to_queue_pairs_or_to_srqs() {
        use crate::instruction::SRQ_SETUP;
        let limit = SRQ_SETUP | SrqSetupKind::Limit as u64;
        let path = SetupKind::Path as u64;
        for (stage, load, action, constant, expected) in [
            (Stage::Setup, LoadReason::Setup, Action::Setup, path, [true, false]),
            (Stage::Setup, LoadReason::Setup, Action::Setup, limit, [false, true]),
            (Stage::Setup, LoadReason::Setup, Action::Probe, limit, [true, false]),
            (Stage::Setup, LoadReason::Notice, Action::Setup, limit, [true, false]),
            (Stage::Load, LoadReason::Setup, Action::Setup, path, [false, false]),
            (Stage::Load, LoadReason::Setup, Action::Setup, limit, [false, false]),
            (Stage::Apply, LoadReason::Setup, Action::Setup, limit, [false, false]),
        ] {
            let instruction = Instruction { action, constant: bits(constant), ..Instruction::default() };
            let loaded = bits(0x123 << NUMBER);
            let offer = setup_offer(stage, load, instruction, loaded, bits(0x9_0007));
            let row = format!("{stage:?} {load:?} {action:?} {constant:#x}");
            assert_eq!([offer.setup_valid, offer.srq_setup_valid], expected, "{row}");
            let is_srq = is_srq_setup(load, action, bits(constant));
            assert_eq!(offer.is_srq, is_srq, "{row}");
            let kind = setup_kind(load, action, bits(constant));
            assert_eq!((offer.setup.kind, offer.setup.psn), (kind, bits(0x9_0007)), "{row}");
            assert_eq!(offer.setup.queue_pair, bits(0x123), "{row}");
            let srq = offer.srq_setup;
            assert_eq!((srq.kind, srq.limit), (srq_setup_kind(bits(constant)), bits(7)), "{row}");
            assert_eq!((srq.srq, srq.limit_generation), (bits(0x23), bits(9)), "{row}");
        }
    }

    #[test]
    fn an_invalidated_region_permits_nothing() {
        let header = 1u64 << VALID | 0x1_2307 << NUMBER;
        let kind = u64::from(rnic_layout::admin::RegionKind::Region.number());
        let loaded: Bits<LOADED_BITS> = (BigUint::from(kind) << 64u32 | BigUint::from(header)).into();
        let write = region_write(loaded, false, bits(9));
        assert_eq!((write.index, write.region.valid), (bits(0x123), true));
        let write = region_write(loaded, true, bits(9));
        assert_eq!((write.index, write.region.valid), (bits(9), false));
    }
}
