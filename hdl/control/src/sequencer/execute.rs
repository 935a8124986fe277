//! Execute: fetches an instruction, rotates its source, and lets the ALU decide.
//!
//! ```text
//!  opcode ─────> starts ───┐
//!  sweep_kind ─> routines ─┴> row ──> microcode ──> instruction ─┬──> source_address, target_address
//!                              ^                                 │
//!  advances ───────────────────┘   word ──> rotated ──> alu ─────┴──> verdict
//! ```
//!
//! One register a stage: the instruction in the cycle after `Fetch`, the rotated source after `Rotate`, the verdict after
//! `Execute`. Not reset.
use super::stage::{CYCLE_BITS, Routine, Stage};
use crate::alu::{Alu, MASK_BITS, Verdict, rotate_right};
use crate::instruction::{FIND_REFERENCE, Instruction, address_of};
use crate::microcode::{OPCODE_BITS, ROW_BITS, programs};
use crate::object_store::{INDEX_BITS, KIND_BITS, STORE_BITS, header_of, kind};
use rnic_blocks::logic::rom::ConstantRom;
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;
use rnic_layout::limits::SOURCE_ADDRESSES;

/// The entry of `routines` for event queue 0; those before it are for the kinds of objects.
const QUEUE_0_ROUTINE: u64 = kind::SHARED_RECEIVE + 1;

fn microcode() -> Memory<Instruction, ROW_BITS> {
    Memory::with_contents(Storage::Block, &programs().instructions)
}

fn starts() -> ConstantRom<OPCODE_BITS, ROW_BITS> {
    let programs = programs();
    ConstantRom::new(|opcode| (programs.starts[opcode] as u64).to_bits())
}

fn routines() -> ConstantRom<KIND_BITS, ROW_BITS> {
    let programs = programs();
    ConstantRom::new(|routine| {
        let row = programs.forgets.get(routine).copied().unwrap_or(programs.event_queue_0);
        (row as u64).to_bits()
    })
}

/// Executes instructions.
#[clocked]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Execute {
    /// Stage of the sequencer; registered.
    pub stage: Signal<In, Stage>,
    /// Cycles within the stage; registered.
    pub cycle: Signal<In, Bits<CYCLE_BITS>>,
    /// What the microcode runs for; registered.
    pub routine: Signal<In, Routine>,
    /// The routine of event queue 0 begins.
    pub begins_queue_0: Signal<In, Bit>,
    /// Opcode of the command, in stage `Copy`.
    pub opcode: Signal<In, Bits<OPCODE_BITS>>,
    /// Kind of the object that a reset forgets.
    pub sweep_kind: Signal<In, Bits<KIND_BITS>>,
    /// The next instruction follows.
    pub advances: Signal<In, Bit>,
    /// Word of the store, two cycles after its address.
    pub word: Signal<In, Bits<64>>,
    /// Address of the header that was looked up.
    pub lookup_address: Signal<In, Bits<STORE_BITS>>,
    /// Source addresses that are in use, one bit each.
    pub source_addresses: Signal<In, Bits<SOURCE_ADDRESSES>>,

    /// The instruction; from the cycle after stage `Fetch` on.
    pub instruction: Signal<Out, Instruction>,
    /// Its flag is not set.
    pub skips: Signal<Out, Bit>,
    /// Its source word, rotated; registered.
    pub rotated: Signal<Out, Bits<64>>,
    /// The result of the ALU; registered.
    pub verdict: Signal<Out, Verdict>,
    /// Header of the object that the routine is about; registered.
    pub subject: Signal<Out, Bits<STORE_BITS>>,
    /// Address of the source word; a function of registers.
    pub source_address: Signal<Out, Bits<STORE_BITS>>,
    /// Address of the target word; a function of registers.
    pub target_address: Signal<Out, Bits<STORE_BITS>>,

    #[init(microcode())]
    microcode: Memory<Instruction, ROW_BITS>,
    /// First instruction of a command, by opcode.
    #[init(starts())]
    starts: ConstantRom<OPCODE_BITS, ROW_BITS>,
    /// First instruction of what no command asks for: by kind, to forget an object; then of event queue 0.
    #[init(routines())]
    routines: ConstantRom<KIND_BITS, ROW_BITS>,
    alu: Alu,
    row: DFF<Bits<ROW_BITS>>,
    subject_held: DFF<Bits<STORE_BITS>>,
    reference: DFF<Bits<STORE_BITS>>,
    flags: DFF<Bits<MASK_BITS>>,
    rotated_held: DFF<Bits<64>>,
    verdict_held: DFF<Verdict>,
}

impl Logic for Execute {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let stage = self.stage.val();
        let instruction = self.microcode.read_data.val();
        let flags = self.flags.q.val();
        let rotated = self.rotated_held.q.val();
        let verdict = self.verdict_held.q.val();
        let (subject, reference) = (self.subject_held.q.val(), self.reference.q.val());

        // The instruction.
        self.routines.address.next =
            select(stage == Stage::Idle, bits::<KIND_BITS>(QUEUE_0_ROUTINE), self.sweep_kind.val());
        self.starts.address.next = self.opcode.val();
        let begins_command =
            stage == Stage::Copy && self.cycle.val() == 0 && self.routine.val() == Routine::Command;
        if stage == Stage::Idle || stage == Stage::Swept {
            self.row.d.next = self.routines.value.val();
        } else if begins_command {
            self.row.d.next = self.starts.value.val();
        } else if self.advances.val() {
            self.row.d.next = self.row.q.val() + 1;
        }
        self.microcode.read(stage == Stage::Fetch, self.row.q.val());
        self.microcode.write(false, bits(0), instruction);

        // The ALU.
        self.alu.instruction.next = instruction;
        self.alu.source.next = rotated;
        self.alu.target.next = self.word.val();
        self.alu.flags.next = flags;
        self.alu.source_addresses.next = self.source_addresses.val();
        match stage {
            Stage::Idle => {
                if self.begins_queue_0.val() {
                    self.subject_held.d.next =
                        header_of(bits::<KIND_BITS>(kind::EVENT_QUEUE), bits::<INDEX_BITS>(0));
                }
            }
            Stage::Rotate => self.rotated_held.d.next = rotate_right(self.word.val(), instruction.rotate),
            Stage::Execute => self.verdict_held.d.next = self.alu.verdict.val(),
            Stage::Apply => self.flags.d.next = verdict.flags,
            Stage::Found => {
                if instruction.constant.get_bit(FIND_REFERENCE) {
                    self.reference.d.next = self.lookup_address.val();
                } else {
                    self.subject_held.d.next = self.lookup_address.val();
                }
            }
            Stage::Swept => self.subject_held.d.next = self.lookup_address.val(),
            _ => {}
        }

        self.instruction.next = instruction;
        self.skips.next = instruction.is_conditional && !flags.get_bit(instruction.condition.index());
        self.rotated.next = rotated;
        self.verdict.next = verdict;
        self.subject.next = subject;
        self.source_address.next = address_of(instruction.source, subject, reference);
        self.target_address.next = address_of(instruction.target, subject, reference);
    }
}
