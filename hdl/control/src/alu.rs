//! ALU: executes one instruction on two words: whether the command is refused, and what is written.
//!
//! ```text
//!  instruction, flags ─────────┐
//!  source (rotated), target ───┼─> verdict: refusal, result, flags      combinational
//!  source_addresses ───────────┘
//! ```
//!
//! Combinational. One adder serves [`Action::Add`] and all comparisons of size.
use crate::instruction::{Action, Instruction, TO_OTHER, TO_RESET};
use crate::microcode::transition;
use crate::object_store::{STATE, STATE_BITS};
use rnic_blocks::logic::rom::ConstantRom;
use rnic_kernel::prelude::*;
use rnic_layout::admin::CommandStatus;
use rnic_layout::limits::SOURCE_ADDRESSES;
use rnic_layout::state::AttributeMask;

/// Bits of a mask of attributes.
pub const MASK_BITS: usize = 32;
/// Legal transitions: required and optional attributes, and whether there is such a transition.
const ROW_BITS: usize = 2 * MASK_BITS + 1;

mod flag {
    use rnic_layout::state::AttributeMask;

    pub(super) const STATE: usize = AttributeMask::STATE.0.trailing_zeros() as usize;
    pub(super) const CURRENT_STATE: usize = AttributeMask::CURRENT_STATE.0.trailing_zeros() as usize;
}

/// First bit of the current state in the source of a transition; the next state is at bit 0.
const CURRENT: usize = 8;

const _: () = assert!(CommandStatus::Success as u64 == 0 && AttributeMask::STATE.0 == 1);

/// What an instruction does to its command and to its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Verdict {
    /// The command is refused, with this status and detail.
    pub refuses: Bit,
    /// A `rnic_layout::admin::CommandStatus`.
    pub status: Bits<5>,
    /// Detail of the answer (`rnic_layout::admin::Answer::detail`).
    pub detail: Bits<32>,
    /// The target is written.
    pub writes: Bit,
    /// What is written; otherwise target plus constant.
    pub result: Bits<64>,
    /// Flags of the command from now on.
    pub flags: Bits<MASK_BITS>,
}

/// The arithmetic of the admin queue's instructions.
#[derive(LogicBlock, Registers, Construct)]
pub struct Alu {
    /// The instruction.
    pub instruction: Signal<In, Instruction>,
    /// Its source word, rotated.
    pub source: Signal<In, Bits<64>>,
    /// Its target word.
    pub target: Signal<In, Bits<64>>,
    /// Flags that earlier instructions of the command have set.
    pub flags: Signal<In, Bits<MASK_BITS>>,
    /// Source addresses that are in use, one bit each.
    pub source_addresses: Signal<In, Bits<SOURCE_ADDRESSES>>,
    /// What the instruction does; combinational.
    pub verdict: Signal<Out, Verdict>,

    #[init(ConstantRom::new(transition_row))]
    transitions: ConstantRom<6, ROW_BITS>,
}

/// Gives a row of the table of legal transitions, by state before and after.
fn transition_row(index: usize) -> Bits<ROW_BITS> {
    match transition(index as u64 >> STATE_BITS, index as u64 % 8) {
        Some((required, optional)) => {
            (u128::from(required.0) << 1 | u128::from(optional.0) << (1 + MASK_BITS) | 1).to_bits()
        }
        None => bits(0),
    }
}

impl Logic for Alu {
    #[kernel]
    fn update(&mut self) {
        let instruction = self.instruction.val();
        let action = instruction.action;
        let (source, target) = (self.source.val(), self.target.val());
        let flags = self.flags.val();
        let constant = instruction.constant;

        // One adder: source or target, plus target or constant.
        let left = select(action == Action::RefuseBelow || action == Action::RefuseWrap, source, target);
        let right = select(action == Action::RefuseWrap, target, constant);
        let sum = bit_cast::<65, 64>(left) + bit_cast::<65, 64>(right);
        let total = sum.get_bits::<64>(0);

        // The transition that is asked for; without its attribute, the state stays.
        let state = target.get_bits::<STATE_BITS>(STATE);
        let has_state = flags.get_bit(flag::STATE);
        let next = select(has_state, source.get_bits::<STATE_BITS>(0), state);
        self.transitions.address.next = cat!(state, next);
        let row = self.transitions.value.val();
        let required = row.get_bits::<MASK_BITS>(1);
        let optional = row.get_bits::<MASK_BITS>(1 + MASK_BITS);
        let missing = required & !flags;
        let unexpected = flags & !required & !optional & !bits::<MASK_BITS>(1);
        let mismatches =
            flags.get_bit(flag::CURRENT_STATE) && source.get_bits::<STATE_BITS>(CURRENT) != state;

        let number = source.get_bits::<5>(0) & constant.get_bits::<5>(32);
        let list = constant.get_bits::<32>(0);
        let refuses = match action {
            Action::RefuseOnes => (source & constant).any(),
            Action::RefuseZeros => !(source & constant).any(),
            Action::RefuseUnlisted => !list.get_bit(number.index()),
            Action::RefuseBelow => !sum.get_bit(64),
            Action::RefuseWrap => sum.get_bit(64) && total.any(),
            Action::RefuseUnequal => ((source ^ target) & constant).any(),
            Action::RefuseSourceAddress => {
                !self.source_addresses.val().get_bit(source.get_bits::<4>(0).index())
            }
            Action::RefuseTransition => mismatches || !row.get_bit(0) || missing.any() || unexpected.any(),
            _ => false,
        };
        let (transition_status, transition_detail) = if mismatches {
            (bits::<5>(CommandStatus::StateMismatch as u64), bits::<32>(0))
        } else if !row.get_bit(0) {
            (bits::<5>(CommandStatus::TransitionNotAllowed as u64), bits::<32>(0))
        } else if missing.any() {
            (bits::<5>(CommandStatus::AttributeMissing as u64), missing)
        } else {
            (bits::<5>(CommandStatus::AttributeNotAllowed as u64), unexpected)
        };
        let checks_transition = action == Action::RefuseTransition;

        let result = match action {
            Action::Put => constant,
            Action::Move => (target & !constant) | (source & constant),
            Action::Slots => target,
            _ => total,
        };

        // RESET is zero.
        let to_reset = has_state && !next.any();
        let next_flags = match action {
            Action::Flags => source.get_bits::<MASK_BITS>(0),
            Action::RefuseTransition => {
                let to_other = has_state && !to_reset;
                flags.replace_bit(TO_RESET, to_reset).replace_bit(TO_OTHER, to_other)
            }
            _ => flags,
        };
        self.verdict.next = Verdict {
            refuses,
            status: select(checks_transition, transition_status, instruction.status),
            detail: select(checks_transition, transition_detail, bit_cast::<32, 9>(instruction.detail)),
            writes: action == Action::Put || action == Action::Move || action == Action::Add,
            result,
            flags: next_flags,
        };
    }
}

/// Rotates a word to the right.
#[kernel]
pub(crate) fn rotate_right(word: Bits<64>, distance: Bits<6>) -> Bits<64> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Random, Stimulus, random};
    use rnic_layout::state::{QpState, Service, TransitionError, check_transition};

    const ACTIONS: [Action; 13] = [
        Action::Finish,
        Action::RefuseOnes,
        Action::RefuseZeros,
        Action::RefuseUnlisted,
        Action::RefuseBelow,
        Action::RefuseWrap,
        Action::RefuseUnequal,
        Action::RefuseSourceAddress,
        Action::Flags,
        Action::Put,
        Action::Move,
        Action::Add,
        Action::Write,
    ];

    fn draw(random: &mut Random) -> u64 {
        let value: Bits<64> = Stimulus::sample(random);
        // Few bits, so that masks let nothing through now and then.
        if random.random() { value.to_u64() } else { 1 << random.random_range(0..64) }
    }

    #[test]
    fn every_action_does_what_its_name_says() {
        let mut random = random();
        let mut bench = Bench::combinational(Alu::default()).in_lock_step();
        for _ in 0..4000 {
            let action = ACTIONS[random.random_range(0..ACTIONS.len())];
            let (source, target) = (draw(&mut random), draw(&mut random));
            let target = if random.random_bool(0.2) { source.wrapping_neg() } else { target };
            let mut constant = draw(&mut random);
            if action == Action::RefuseBelow {
                // No list compares with zero.
                constant = if random.random() { source.wrapping_neg().max(1) } else { constant | 1 };
            }
            let addresses: u64 = random.random_range(0..1 << SOURCE_ADDRESSES);
            let flags: u64 = random.random_range(0..1 << MASK_BITS);
            let block = &mut bench.block;
            block.instruction.next =
                Instruction { action, constant: bits(constant), status: bits(7), ..Instruction::default() };
            block.source.next = bits(source);
            block.target.next = bits(target);
            block.flags.next = bits(flags);
            block.source_addresses.next = bits(addresses);
            bench.settle();
            let sum = u128::from(source) + u128::from(target);
            let refuses = match action {
                Action::RefuseOnes => source & constant != 0,
                Action::RefuseZeros => source & constant == 0,
                Action::RefuseUnlisted => constant >> (source & constant >> 32 & 31) & 1 == 0,
                Action::RefuseBelow => source < constant.wrapping_neg(),
                Action::RefuseWrap => sum > 1 << 64,
                Action::RefuseUnequal => source & constant != target & constant,
                Action::RefuseSourceAddress => addresses >> (source & 15) & 1 == 0,
                _ => false,
            };
            let changed = match action {
                Action::Put => Some(constant),
                Action::Move => Some(target & !constant | source & constant),
                Action::Add => Some(target.wrapping_add(constant)),
                _ => None,
            };
            let verdict = bench.block.verdict.val();
            assert_eq!(verdict.refuses, refuses, "{action:?} {source:x} {target:x} {constant:x}");
            assert_eq!(verdict.writes, changed.is_some());
            if let Some(changed) = changed {
                assert_eq!(verdict.result.to_u64(), changed, "{action:?}");
            }
            let next = if action == Action::Flags { source & 0xffff_ffff } else { flags };
            assert_eq!(verdict.flags.to_u64(), next);
        }
    }

    #[test]
    fn a_word_rotates_by_every_distance() {
        let mut random = random();
        for distance in 0..64 {
            let word: u64 = random.random();
            assert_eq!(rotate_right(bits(word), bits(distance)), bits(word.rotate_right(distance as u32)));
        }
    }

    #[test]
    fn every_transition_is_judged_as_the_contract_does() {
        let mut random = random();
        let mut bench = Bench::combinational(Alu::default()).in_lock_step();
        for &from in QpState::ALL {
            for &to in QpState::ALL {
                for trial in 0..20 {
                    let row = rnic_layout::state::transition(Service::ReliableConnected, from, to);
                    let base = row.map_or(0, |row| row.required.0) | 1;
                    let noise = if trial % 2 == 0 { 0 } else { 1 << random.random_range(0..26) };
                    let mask = AttributeMask(base ^ noise);
                    let current = if random.random() { from as u64 } else { random.random_range(0..7) };
                    let block = &mut bench.block;
                    block.instruction.next =
                        Instruction { action: Action::RefuseTransition, ..Instruction::default() };
                    block.source.next = bits(to as u64 | current << CURRENT);
                    block.target.next = bits((from as u64) << STATE);
                    block.flags.next = bits(mask.0.into());
                    bench.settle();
                    let goes = mask.contains(AttributeMask::STATE);
                    let next = if goes { to } else { from };
                    let expected = if mask.contains(AttributeMask::CURRENT_STATE) && current != from as u64 {
                        Some((CommandStatus::StateMismatch, 0))
                    } else {
                        match check_transition(Service::ReliableConnected, from, next, mask) {
                            Ok(()) => None,
                            Err(TransitionError::NotAllowed { .. }) => {
                                Some((CommandStatus::TransitionNotAllowed, 0))
                            }
                            Err(TransitionError::Missing(mask)) => {
                                Some((CommandStatus::AttributeMissing, mask.0))
                            }
                            Err(TransitionError::Unexpected(mask)) => {
                                Some((CommandStatus::AttributeNotAllowed, mask.0))
                            }
                        }
                    };
                    let verdict = bench.block.verdict.val();
                    assert_eq!(verdict.refuses, expected.is_some(), "{from:?} {to:?} {mask:?}");
                    if let Some((status, detail)) = expected {
                        assert_eq!(verdict.status, u64::from(status.number()));
                        assert_eq!(verdict.detail, u64::from(detail));
                    } else {
                        let flags = verdict.flags;
                        assert_eq!(flags.get_bit(TO_RESET), goes && to == QpState::Reset);
                        assert_eq!(flags.get_bit(TO_OTHER), goes && to != QpState::Reset);
                    }
                }
            }
        }
    }
}
