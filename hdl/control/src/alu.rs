//! Alu: what one step says about two words.
//!
//! ```text
//!  step, flags ──────────────┐
//!  source (turned), target ──┼─> refuses, detail      combinational
//!  source_addresses ─────────┘   result, next_flags
//! ```
//!
//! Combinational; one adder serves all comparisons of size.
use crate::instruction::{Action, Instruction, TO_OTHER, TO_RESET};
use crate::microcode::transition;
use crate::object_store::{STATE, STATE_BITS};
use rnic_blocks::logic::rom::ConstantRom;
use rnic_kernel::prelude::*;
use rnic_layout::admin::CommandStatus;
use rnic_layout::limits::SOURCE_ADDRESSES;
use rnic_layout::state::AttributeMask;

/// Bits of a mask of attributes.
const MASK_BITS: usize = 32;
/// Legal transitions: required and optional attributes, and whether there is such a transition.
const ROW_BITS: usize = 2 * MASK_BITS + 1;

mod flag {
    use rnic_layout::state::AttributeMask;

    pub(super) const STATE: usize = AttributeMask::STATE.0.trailing_zeros() as usize;
    pub(super) const CURRENT_STATE: usize = AttributeMask::CURRENT_STATE.0.trailing_zeros() as usize;
}

mod status {
    use rnic_layout::admin::CommandStatus;

    pub(super) const STATE_MISMATCH: u64 = CommandStatus::StateMismatch as u64;
    pub(super) const TRANSITION_NOT_ALLOWED: u64 = CommandStatus::TransitionNotAllowed as u64;
    pub(super) const ATTRIBUTE_MISSING: u64 = CommandStatus::AttributeMissing as u64;
    pub(super) const ATTRIBUTE_NOT_ALLOWED: u64 = CommandStatus::AttributeNotAllowed as u64;
}

/// First bit of the current state in the source of a transition; the next state stands at bit 0.
const CURRENT: usize = 8;

const _: () = assert!(CommandStatus::Success as u64 == 0 && AttributeMask::STATE.0 == 1);

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct Alu {
    /// The step.
    pub step: Signal<In, Instruction>,
    /// Its source, turned.
    pub source: Signal<In, Bits<64>>,
    /// Its target.
    pub target: Signal<In, Bits<64>>,
    /// Flags of the command.
    pub flags: Signal<In, Bits<MASK_BITS>>,
    /// Source addresses that are in use, one bit each.
    pub source_addresses: Signal<In, Bits<SOURCE_ADDRESSES>>,
    /// The command ends here.
    pub refuses: Signal<Out, Bit>,
    /// With this status.
    pub status: Signal<Out, Bits<5>>,
    /// And this detail.
    pub detail: Signal<Out, Bits<32>>,
    /// The target is changed.
    pub changes: Signal<Out, Bit>,
    /// To this; also target plus constant.
    pub result: Signal<Out, Bits<64>>,
    /// The flags are from now on.
    pub next_flags: Signal<Out, Bits<MASK_BITS>>,

    #[init(ConstantRom::new(transition_row))]
    transitions: ConstantRom<6, ROW_BITS>,
}

/// The transition between the states of an index: the attributes that it requires and allows, and whether it exists.
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
        let step = self.step.val();
        let action = step.action;
        let (source, target) = (self.source.val(), self.target.val());
        let flags = self.flags.val();
        let constant = step.constant;

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
        self.refuses.next = match action {
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
        self.status.next = step.status;
        self.detail.next = bit_cast::<32, 9>(step.detail);
        if action == Action::RefuseTransition {
            if mismatches {
                self.status.next = bits(status::STATE_MISMATCH);
                self.detail.next = bits(0);
            } else if !row.get_bit(0) {
                self.status.next = bits(status::TRANSITION_NOT_ALLOWED);
                self.detail.next = bits(0);
            } else if missing.any() {
                self.status.next = bits(status::ATTRIBUTE_MISSING);
                self.detail.next = missing;
            } else {
                self.status.next = bits(status::ATTRIBUTE_NOT_ALLOWED);
                self.detail.next = unexpected;
            }
        }

        self.changes.next = action == Action::Put || action == Action::Move || action == Action::Add;
        self.result.next = match action {
            Action::Put => constant,
            Action::Move => (target & !constant) | (source & constant),
            _ => total,
        };

        // RESET is zero.
        let to_reset = has_state && !next.any();
        self.next_flags.next = match action {
            Action::Flags => source.get_bits::<MASK_BITS>(0),
            Action::RefuseTransition => {
                let to_other = has_state && !to_reset;
                flags.replace_bit(TO_RESET, to_reset).replace_bit(TO_OTHER, to_other)
            }
            _ => flags,
        };
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
            block.step.next =
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
            let block = &bench.block;
            assert_eq!(block.refuses.val(), refuses, "{action:?} {source:x} {target:x} {constant:x}");
            assert_eq!(block.changes.val(), changed.is_some());
            if let Some(changed) = changed {
                assert_eq!(block.result.val().to_u64(), changed, "{action:?}");
            }
            let next = if action == Action::Flags { source & 0xffff_ffff } else { flags };
            assert_eq!(block.next_flags.val().to_u64(), next);
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
                    block.step.next =
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
                    let block = &bench.block;
                    assert_eq!(block.refuses.val(), expected.is_some(), "{from:?} {to:?} {mask:?}");
                    if let Some((status, detail)) = expected {
                        assert_eq!(block.status.val(), u64::from(status.number()));
                        assert_eq!(block.detail.val(), u64::from(detail));
                    } else {
                        let flags = block.next_flags.val();
                        assert_eq!(flags.get_bit(TO_RESET), goes && to == QpState::Reset);
                        assert_eq!(flags.get_bit(TO_OTHER), goes && to != QpState::Reset);
                    }
                }
            }
        }
    }
}
