//! ReadSlots: hands out the slots for READs and atomics in flight, which all queue pairs share.
//!
//! A queue pair has a share of each of two pools: for what it requests, and for what its peer does. Most need few slots, so a
//! pool holds 8 for each queue pair, and a share has 4, 8 or 16.
//!
//! ```text
//!  share, count ──> need ─┬─ the share has them, or can have none ──────────────> outcome
//!                         └─ takes ──> block after block (16 slots) ──> fits? ──> outcome
//!  share ──────────────────── gives ─> its block ───────────────────────────────> outcome
//! ```
//!
//! A block is a word of four bits, one for each unit of four slots that is in use. The first block with room is taken, so small shares
//! fill up blocks that are begun. A share is found in at most 514 cycles, and returned in three.
//!
//! 1. No unit is in two shares.
//! 2. A share keeps its place and its size until it is returned: its slots hold requests, and answers for duplicates.
//! 3. `state.is_done` is high until `may_end`.
//!
//! Reset empties both pools, in 1,024 cycles. Design decision 7.
use crate::instruction::{Instruction, SLOTS_DESTINATION, SLOTS_GIVES};
use crate::messages::{Outcome, PartState};
use crate::object_view::{share_of, shares_after};
use rnic_blocks::memory::Memory;
use rnic_kernel::prelude::*;
use rnic_layout::admin::CommandStatus;
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::read::{
    READ_COUNT_BITS, READ_SLOT_BITS, READ_UNIT_BITS, READ_UNIT_LOG2, ReadShare, share_slots,
};
use rnic_messages::sizes::{READ_POOL_BITS, index_mask, sizes};

/// Units of a block.
const UNITS: usize = 1 << (READ_SLOT_BITS - READ_UNIT_LOG2);
/// Bits of the number of a unit in its block.
const UNIT_BITS: usize = READ_SLOT_BITS - READ_UNIT_LOG2;
/// Bits of the number of a block.
const BLOCK_BITS: usize = READ_POOL_BITS - READ_SLOT_BITS;
/// Number of the last block of a pool.
fn last_block() -> u64 {
    index_mask(sizes().read_slots - READ_SLOT_BITS)
}

/// Bits of the number of a block of either pool.
const BLOCKS_BITS: usize = BLOCK_BITS + 1;

/// What is to be done to a share.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SlotsRequest {
    /// The pool is that of the responder, for what peers request.
    pub is_destination: Bit,
    /// The share is returned; otherwise it must have `count` slots, and is taken if there is none.
    pub gives: Bit,
    /// Slots that are needed, 0 to 16.
    pub count: Bits<READ_COUNT_BITS>,
    /// The shares of the queue pair, a word of the object store.
    pub shares: Bits<64>,
    /// Detail of a refusal.
    pub detail: Bits<9>,
}

/// Gives what an instruction asks for, by its source and its target.
#[kernel]
pub fn request_of(instruction: Instruction, source: Bits<64>, target: Bits<64>) -> SlotsRequest {
    SlotsRequest {
        is_destination: instruction.constant.get_bit(SLOTS_DESTINATION),
        gives: instruction.constant.get_bit(SLOTS_GIVES),
        count: source.get_bits::<READ_COUNT_BITS>(0),
        shares: target,
        detail: instruction.detail,
    }
}

/// Shares in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SlotsLevels {
    /// Slots of requesters.
    pub read_slots: Bits<LEVEL_BITS>,
    /// Slots of responders.
    pub destination_read_slots: Bits<LEVEL_BITS>,
}

/// What the block does in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Clears a block after a reset.
    Clear,
    /// Waits for a request.
    Idle,
    /// Looks for room: reads a block, and looks at the one before.
    Seek,
    /// Reads the block of a share that is returned.
    Find,
    /// Returns it.
    Return,
    /// Shows the outcome.
    Done,
}

/// How a request begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Beginning {
    step: Step,
    /// Status of the outcome, unless a later step refuses.
    status: Bits<5>,
    /// Size of the share afterwards, unless one is taken.
    size: Bits<2>,
}

/// Decides how a request begins: with a share of size `own`, for one of size `wanted` or for its return.
#[kernel]
fn begin(gives: Bit, own: Bits<2>, wanted: Bits<2>) -> Beginning {
    let success = bits::<5>(CommandStatus::Success as u64);
    if gives {
        let step = if own.any() { Step::Find } else { Step::Done };
        Beginning { step, status: success, size: bits(0) }
    } else if wanted <= own {
        Beginning { step: Step::Done, status: success, size: own }
    } else if own.any() {
        Beginning { step: Step::Done, status: bits(CommandStatus::ValueNotAllowed as u64), size: own }
    } else {
        Beginning { step: Step::Seek, status: success, size: own }
    }
}

/// Gives the size of the smallest share with `count` slots.
#[kernel]
fn size_of(count: Bits<READ_COUNT_BITS>) -> Bits<2> {
    if !count.any() {
        bits::<2>(0)
    } else if count <= 4 {
        bits::<2>(1)
    } else if count <= 8 {
        bits::<2>(2)
    } else {
        bits::<2>(3)
    }
}

/// Gives the units of a block that a share of `size` has, if its first is `unit`.
#[kernel]
fn units_of(size: Bits<2>, unit: Bits<UNIT_BITS>) -> Bits<UNITS> {
    let first = match size.to_u64() {
        0 => bits::<UNITS>(0),
        1 => bits::<UNITS>(1),
        2 => bits::<UNITS>(3),
        _ => bits::<UNITS>(15),
    };
    first << unit
}

/// Gives the first unit of a block where a share of `size` fits; otherwise that of a place that is in use.
#[kernel]
fn place_in(used: Bits<UNITS>, size: Bits<2>) -> Bits<UNIT_BITS> {
    let low_is_full = used.get_bits::<2>(0).all();
    match size.to_u64() {
        1 => cat!(low_is_full, select(low_is_full, used.get_bit(2), used.get_bit(0))),
        2 => cat!(used.get_bits::<2>(0).any(), false),
        _ => bits::<UNIT_BITS>(0),
    }
}

/// Gives slots in use after a share is taken or returned.
#[kernel]
fn level_of(level: Bits<LEVEL_BITS>, share: ReadShare, takes: Bit, gives: Bit) -> Bits<LEVEL_BITS> {
    let slots = bit_cast::<LEVEL_BITS, READ_COUNT_BITS>(share_slots(share));
    if takes {
        level + slots
    } else if gives {
        level - slots
    } else {
        level
    }
}

/// Hands out READ slots; see the module.
#[clocked(reset = "no queue pair has a share any more")]
#[derive(LogicBlock, Registers, Construct)]
pub struct ReadSlots {
    /// `request` is to be done; held, with the request, until `state.is_done`.
    pub begins: Signal<In, Bit>,
    /// What is to be done.
    pub request: Signal<In, SlotsRequest>,
    /// The outcome is taken in this cycle, if there is one.
    pub may_end: Signal<In, Bit>,
    /// Whether the request is done, and how: with success, or there is no room, or the share is smaller and cannot grow. The result is
    /// the word with the shares afterwards. A function of registers and of `request`.
    pub state: Signal<Out, PartState>,
    /// Slots in use; a function of registers.
    pub levels: Signal<Out, SlotsLevels>,

    blocks: Memory<Bits<UNITS>, BLOCKS_BITS>,
    #[init(Reg::new(Step::Clear))]
    step: Reg<Step>,
    /// The block that is cleared or read.
    block: Reg<Bits<BLOCKS_BITS>>,
    /// The block that was read in the last cycle, and whether one was.
    looked_at: DFF<Bits<BLOCK_BITS>>,
    looks: Reg<Bit>,
    status_held: DFF<Bits<5>>,
    share_held: DFF<ReadShare>,
    read_slots: Reg<Bits<LEVEL_BITS>>,
    destination_read_slots: Reg<Bits<LEVEL_BITS>>,
}

impl Logic for ReadSlots {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let step = self.step.q.val();
        let block = self.block.q.val();
        let request = self.request.val();
        let is_destination = request.is_destination;
        let share = share_of(request.shares, is_destination);
        let own_block = share.unit.get_bits::<BLOCK_BITS>(UNIT_BITS);
        let size = size_of(request.count);

        // The block that was read: whether the share fits, and where.
        let used = self.blocks.read_data.val();
        let unit = place_in(used, size);
        let units = units_of(size, unit);
        let looked_at = self.looked_at.q.val();
        let is_seeking = step == Step::Seek && self.looks.q.val();
        let takes = is_seeking && !(used & units).any();
        let gives = step == Step::Return;
        let returned = units_of(share.size, share.unit.get_bits::<UNIT_BITS>(0));
        let taken = ReadShare { unit: cat!(looked_at, unit), size };

        self.blocks.read_enable.next = step == Step::Seek || step == Step::Find;
        self.blocks.read_address.next = select(
            step == Step::Find,
            cat!(is_destination, own_block),
            cat!(is_destination, block.get_bits::<BLOCK_BITS>(0)),
        );
        self.blocks.write_enable.next = step == Step::Clear || takes || gives;
        self.blocks.write_address.next = if step == Step::Clear {
            block
        } else {
            cat!(is_destination, select(gives, own_block, looked_at))
        };
        self.blocks.write_data.next = if step == Step::Clear {
            bits::<UNITS>(0)
        } else {
            select(gives, used & !returned, used | units)
        };
        self.looked_at.d.next = block.get_bits::<BLOCK_BITS>(0);
        self.looks.d.next = step == Step::Seek;

        match step {
            Step::Clear => {
                self.block.d.next = block + 1;
                if block.all() {
                    self.step.d.next = Step::Idle;
                }
            }
            Step::Idle => {
                let beginning = begin(request.gives, share.size, size);
                self.block.d.next = bits(0);
                self.status_held.d.next = beginning.status;
                self.share_held.d.next = ReadShare { size: beginning.size, ..share };
                if self.begins.val() {
                    self.step.d.next = beginning.step;
                }
            }
            Step::Seek => {
                self.block.d.next = block + 1;
                if takes {
                    self.share_held.d.next = taken;
                    self.step.d.next = Step::Done;
                } else if is_seeking && looked_at == last_block() {
                    self.status_held.d.next = bits(CommandStatus::NoResources as u64);
                    self.step.d.next = Step::Done;
                }
            }
            Step::Find => self.step.d.next = Step::Return,
            Step::Return => self.step.d.next = Step::Done,
            Step::Done => {
                if self.may_end.val() {
                    self.step.d.next = Step::Idle;
                }
            }
        }
        let moved = select(takes, taken, share);
        self.read_slots.d.next =
            level_of(self.read_slots.q.val(), moved, takes && !is_destination, gives && !is_destination);
        self.destination_read_slots.d.next = level_of(
            self.destination_read_slots.q.val(),
            moved,
            takes && is_destination,
            gives && is_destination,
        );
        self.state.next = PartState {
            is_done: step == Step::Done,
            outcome: Outcome { status: self.status_held.q.val(), detail: bit_cast::<32, 9>(request.detail) },
            result: shares_after(request.shares, is_destination, self.share_held.q.val()),
        };
        self.levels.next = SlotsLevels {
            read_slots: self.read_slots.q.val(),
            destination_read_slots: self.destination_read_slots.q.val(),
        };
    }
}

const _: () = assert!(READ_UNIT_BITS == BLOCK_BITS + UNIT_BITS, "a unit has a block and a place in it");

#[cfg(test)]
mod tests;
