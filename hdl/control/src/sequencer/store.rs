//! Store: the memory of all objects, and the use of its two ports in each stage.
//!
//! ```text
//!  stage ──> select ─┬─> read_address ──> ┌──────────────┐
//!  invalidation ─────┤                    │ object store ├──> word
//!  results ──────────┴─> write ─────────> └──────────────┘
//! ```
//!
//! Latency two cycles from the address of a word to the word.
//!
//! An invalidation uses the ports in stages that do not.
use super::stage::{CYCLE_BITS, Stage};
use crate::object_store::{STORE_BITS, command, words_log2};
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;

/// Use of the store by an invalidation.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Loan {
    /// The sequencer does not use the store in this cycle.
    pub is_lent: Bit,
    /// Word to be read.
    pub read_address: Bits<STORE_BITS>,
    /// A word is written in this cycle.
    pub writes: Bit,
    /// Address of the word that is written.
    pub write_address: Bits<STORE_BITS>,
    /// The word that is written.
    pub write_data: Bits<64>,
}

/// Gives the word that a probe puts into the store: see [`Program::probe`](crate::instruction::Program::probe).
#[kernel]
pub(super) fn probed_word(send_psn: Bits<24>, is_busy: Bit, receive_psn: Bits<24>) -> Bits<64> {
    cat!(bits::<8>(0), receive_psn, bits::<7>(0), is_busy, send_psn)
}

/// Keeps all objects.
#[clocked]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Store {
    /// Stage of the sequencer; registered.
    pub stage: Signal<In, Stage>,
    /// Cycles within the stage; registered.
    pub cycle: Signal<In, Bits<CYCLE_BITS>>,
    /// From `invalidate`.
    pub loan: Signal<In, Loan>,
    /// Address of the source of the instruction.
    pub source_address: Signal<In, Bits<STORE_BITS>>,
    /// Address of the target of the instruction.
    pub target_address: Signal<In, Bits<STORE_BITS>>,
    /// Address of the word that is looked up.
    pub lookup_address: Signal<In, Bits<STORE_BITS>>,
    /// Address of the word that is loaded.
    pub load_address: Signal<In, Bits<STORE_BITS>>,
    /// The stage writes a word in this cycle.
    pub writes: Signal<In, Bit>,
    /// Stage `Copy`: the word to be written.
    pub copied: Signal<In, Bits<64>>,
    /// Stage `Probe`: the PSNs.
    pub probed: Signal<In, Bits<64>>,
    /// Stages `Pages` and `Slots`: the result of the block that executes the instruction.
    pub part_result: Signal<In, Bits<64>>,
    /// Stage `Decide`: the word after the notice.
    pub noticed: Signal<In, Bits<64>>,
    /// Stage `Apply`: the result of the instruction.
    pub result: Signal<In, Bits<64>>,
    /// The word that was read, two cycles after its address.
    pub word: Signal<Out, Bits<64>>,

    #[init(Memory::new(Storage::Ultra).with_output_register().with_words_log2(words_log2()))]
    object_store: Memory<Bits<64>, STORE_BITS>,
}

impl Logic for Store {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let stage = self.stage.val();
        let loan = self.loan.val();
        self.object_store.read_enable.next = true;
        self.object_store.read_address.next = match stage {
            Stage::Source => self.source_address.val(),
            Stage::Target => self.target_address.val(),
            Stage::Load => self.load_address.val(),
            _ => select(loan.is_lent, loan.read_address, self.lookup_address.val()),
        };
        self.object_store.write_enable.next = loan.writes || self.writes.val();
        self.object_store.write_address.next = match stage {
            Stage::Copy => {
                bits::<STORE_BITS>(command()) | bit_cast::<STORE_BITS, 3>(self.cycle.val().get_bits::<3>(0))
            }
            Stage::Decide => self.lookup_address.val(),
            _ => select(loan.writes, loan.write_address, self.target_address.val()),
        };
        self.object_store.write_data.next = match stage {
            Stage::Copy => self.copied.val(),
            Stage::Probe => self.probed.val(),
            Stage::Pages | Stage::Slots => select(loan.writes, loan.write_data, self.part_result.val()),
            Stage::Decide => self.noticed.val(),
            _ => select(loan.writes, loan.write_data, self.result.val()),
        };
        self.word.next = self.object_store.read_data.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_microcode_finds_each_part_of_a_probe() {
        for (send_psn, is_busy, receive_psn, expected) in [
            (0xff_ffff, false, 0, 0x00ff_ffff),
            (0, true, 0, 0x0100_0000),
            (0, false, 0xff_ffff, 0x00ff_ffff_0000_0000),
            (0x12_3456, true, 0x65_4321, 0x0065_4321_0112_3456),
        ] {
            assert_eq!(probed_word(bits(send_psn), is_busy, bits(receive_psn)), bits(expected));
        }
    }
}
