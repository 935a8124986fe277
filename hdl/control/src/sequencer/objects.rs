//! Which words of the store are read next: lookups, loads, and the sweep of a reset.
use super::stage::{LoadReason, LookupReason, Stage};
use crate::instruction::Action;
use crate::object_store::{
    INDEX_BITS, KIND_BITS, NUMBER_BITS, STORE_BITS, header_of, index_of, kind, last_index, scratch,
};
use rnic_kernel::prelude::*;

/// Words of a queue pair, or of a shared receive queue, as a power of two.
const OBJECT_BITS: usize = 4;
const ABOVE_OBJECT: usize = STORE_BITS - OBJECT_BITS;

/// A word that is read for a decision: a header, or a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Lookup {
    pub(super) reason: LookupReason,
    /// Number that the object must have, for [`LookupReason::Find`].
    pub(super) number: Bits<NUMBER_BITS>,
    pub(super) address: Bits<STORE_BITS>,
}

/// An object, or another run of words, that is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Load {
    pub(super) reason: LoadReason,
    /// Address of the word that is read in this cycle.
    pub(super) address: Bits<STORE_BITS>,
}

/// The object at which the sweep of a reset is.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Sweep {
    /// A [`Kind`](crate::object_store::Kind), as its number.
    pub(super) kind: Bits<KIND_BITS>,
    pub(super) index: Bits<INDEX_BITS>,
}

/// Gives the lookup of [`Action::Find`]: the constant has the kind, and a mask of the number that the source holds.
#[kernel]
pub(super) fn find(constant: Bits<64>, source: Bits<64>) -> Lookup {
    let kind = constant.get_bits::<KIND_BITS>(0);
    let number = source.get_bits::<NUMBER_BITS>(0) & constant.get_bits::<NUMBER_BITS>(NUMBER_BITS);
    Lookup { reason: LookupReason::Find, number, address: header_of(kind, index_of(kind, number)) }
}

/// Gives the lookup of the next cycle. `notice` is the address of the word that an offered notice is about.
#[kernel]
pub(super) fn next_lookup(
    stage: Stage,
    lookup: Lookup,
    find: Lookup,
    notice: Bits<STORE_BITS>,
    sweep: Sweep,
) -> Lookup {
    match stage {
        Stage::Idle | Stage::Wait | Stage::Pages => {
            Lookup { reason: LookupReason::Notice, address: notice, ..lookup }
        }
        Stage::Apply => find,
        Stage::Sweep => {
            Lookup { reason: LookupReason::Forget, address: header_of(sweep.kind, sweep.index), ..lookup }
        }
        _ => lookup,
    }
}

/// Gives the load of the next cycle. `source` is the address of the source of the instruction, `noticed` that of the word that
/// a notice is about.
#[kernel]
pub(super) fn next_load(
    stage: Stage,
    load: Load,
    action: Action,
    subject: Bits<STORE_BITS>,
    source: Bits<STORE_BITS>,
    noticed: Bits<STORE_BITS>,
) -> Load {
    match stage {
        Stage::Apply => match action {
            Action::Publish => Load { reason: LoadReason::Publish, address: subject },
            Action::Write => Load { reason: LoadReason::Write, address: source },
            Action::Pages => Load { reason: LoadReason::Pages, address: bits(scratch()) },
            _ => Load { reason: LoadReason::Setup, address: subject },
        },
        Stage::Load => Load { address: load.address + 1, ..load },
        Stage::Decide => Load {
            reason: LoadReason::Notice,
            address: cat!(noticed.get_bits::<ABOVE_OBJECT>(OBJECT_BITS), bits::<OBJECT_BITS>(0)),
        },
        _ => load,
    }
}

/// Tells whether an object of the sweep is the last of its kind.
#[kernel]
fn is_last_of_kind(sweep: Sweep) -> Bit {
    sweep.index == last_index(sweep.kind)
}

/// Tells whether an object of the sweep is the last of all.
#[kernel]
pub(super) fn is_last(sweep: Sweep) -> Bit {
    is_last_of_kind(sweep) && sweep.kind == kind::SHARED_RECEIVE
}

/// Gives the object after one of the sweep: the next index, or the first of the next kind.
#[kernel]
pub(super) fn next_object(sweep: Sweep) -> Sweep {
    let is_last = is_last_of_kind(sweep);
    Sweep {
        kind: select(is_last, sweep.kind + 1, sweep.kind),
        index: select(is_last, bits::<INDEX_BITS>(0), sweep.index + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_find_masks_the_number_and_goes_to_the_header_of_its_index() {
        let constant = |kind: u64, mask: u64| bits(kind | mask << NUMBER_BITS);
        for (kind, mask, source, number, address) in [
            (kind::QUEUE_PAIR, 0xff_ffff, 0xffff_ffff_ffab_c005u64, 0xab_c005, 5 << 4),
            (kind::REGION, 0xffff_ffff, 0x1_0003_07ff, 0x0003_07ff, 0x4000 | 0x307 << 3),
            (kind::COMPLETION_QUEUE, 0xffff, 0xdead_0003, 3, 0x6000 | 3 << 2),
            (kind::EVENT_QUEUE, 0x1f, 0xffff_ffff, 31, 0x7c00 | 31 << 2),
        ] {
            let found = find(constant(kind, mask), bits(source));
            let expected =
                Lookup { reason: LookupReason::Find, number: bits(number), address: bits(address) };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn each_stage_looks_up_its_own_word() {
        let held = Lookup { reason: LookupReason::Find, number: bits(1), address: bits(2) };
        let find = Lookup { reason: LookupReason::Find, number: bits(3), address: bits(4) };
        let notice = bits(0x77);
        let sweep = Sweep { kind: bits(kind::COMPLETION_QUEUE), index: bits(6) };
        let of_notice = Lookup { reason: LookupReason::Notice, address: notice, ..held };
        let of_sweep = Lookup { reason: LookupReason::Forget, address: bits(0x6000 | 6 << 2), ..held };
        for (stage, expected) in [
            (Stage::Idle, of_notice),
            (Stage::Wait, of_notice),
            (Stage::Pages, of_notice),
            (Stage::Apply, find),
            (Stage::Sweep, of_sweep),
            (Stage::Lookup, held),
            (Stage::LookupWait, held),
        ] {
            assert_eq!(next_lookup(stage, held, find, notice, sweep), expected, "{stage:?}");
        }
    }

    #[test]
    fn each_action_loads_what_it_needs() {
        let held = Load { reason: LoadReason::Write, address: bits(0x10) };
        let (subject, source, noticed) = (bits(0x20), bits(0x31), bits(0x4a));
        for (stage, action, reason, address) in [
            (Stage::Apply, Action::Setup, LoadReason::Setup, 0x20),
            (Stage::Apply, Action::Probe, LoadReason::Setup, 0x20),
            (Stage::Apply, Action::Publish, LoadReason::Publish, 0x20),
            (Stage::Apply, Action::Write, LoadReason::Write, 0x31),
            (Stage::Apply, Action::Pages, LoadReason::Pages, scratch()),
            (Stage::Load, Action::Setup, LoadReason::Write, 0x11),
            (Stage::Decide, Action::Setup, LoadReason::Notice, 0x40),
            (Stage::Write, Action::Setup, LoadReason::Write, 0x10),
        ] {
            let expected = Load { reason, address: bits(address) };
            assert_eq!(
                next_load(stage, held, action, subject, source, noticed),
                expected,
                "{stage:?} {action:?}"
            );
        }
    }

    #[test]
    fn a_sweep_visits_every_index_of_every_kind_once() {
        let mut counts = [0; 6];
        let mut sweep = Sweep::default();
        loop {
            let kind = sweep.kind.to_u64() as usize;
            assert_eq!(sweep.index.to_u64(), counts[kind]);
            counts[kind] += 1;
            if is_last(sweep) {
                break;
            }
            sweep = next_object(sweep);
        }
        assert_eq!(counts, [1024, 1024, 1024, 256, 32, 64]);
    }
}
