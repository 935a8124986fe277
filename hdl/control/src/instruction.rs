//! Instructions of the admin queue's microcode, and [`Program`], which assembles them.
//!
//! A command is executed as a list of instructions, from the first to the last: checks, then changes, then messages to the
//! stages and tables of the card. An instruction works on two words of the store and a constant: the *source*, rotated so that a
//! field has the position that is wanted, and the *target*. A check refuses the command and ends it; nothing else branches. An
//! instruction can depend on one bit of the flags, which an earlier one has copied from the command: the attribute mask of a
//! queue pair.
use crate::object_store::{KIND_BITS, Kind, STORE_BITS, command, scratch};
use rnic_kernel::prelude::*;
use rnic_layout::admin::CommandStatus;
use rnic_layout::field::{Field, Record, Span};
use rnic_messages::setup::{SetupKind, SrqSetupKind};

/// What an instruction does with source, target and constant.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Action {
    /// The command has succeeded.
    Finish,
    /// Refuses ones of the source where the constant has ones.
    RefuseOnes,
    /// Refuses the source if it has no one where the constant has ones.
    RefuseZeros,
    /// Refuses a number of up to five bits that the low half of the constant does not list; the high half masks it.
    RefuseUnlisted,
    /// Refuses a source less than the negative of the constant.
    RefuseBelow,
    /// Refuses a sum of source and target beyond 2^64.
    RefuseWrap,
    /// Refuses a source that is not the target where the constant has ones.
    RefuseUnequal,
    /// Refuses a source address, by the low bits of the source, that is not in use.
    RefuseSourceAddress,
    /// Looks up the object whose number is in the source.
    Find,
    /// Refuses a change of state or attributes that the queue pair does not allow.
    RefuseTransition,
    /// Copies the flags from the source.
    Flags,
    /// The target becomes the constant.
    Put,
    /// The target becomes the source where the constant has ones.
    Move,
    /// The constant is added to the target.
    Add,
    /// Sends a setup event of the subject to all stages; the source is the PSN.
    Setup,
    /// Writes the subject into the tables of the card.
    Publish,
    /// Waits until everything that was in flight has left the card.
    Wait,
    /// Writes the pages of the region in the scratch words into the tables of pages; the target becomes the device address of its
    /// first byte. Refuses a list that does not fit or that cannot be read.
    Pages,
    /// The target, the shares of READ slots of the subject, becomes what it is when one of them has as many slots as the source says,
    /// or is returned. Refuses a share that is too small, and one for which there is no room.
    Slots,
    /// The target becomes the next PSNs of the subject.
    Probe,
    /// Writes eight words, from the source on, to host memory at the target plus the constant.
    Write,
}

/// The first word of an object, or of another run of words.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Base {
    /// The command.
    Command,
    /// The object that the command is about.
    Subject,
    /// Another object, which the command refers to.
    Reference,
    /// Scratch words, in which an object or an answer is built.
    Scratch,
}

/// A word of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Place {
    /// What the word is counted from.
    pub base: Base,
    /// Index of the word.
    pub word: Bits<5>,
}

/// An instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Instruction {
    /// What the instruction does.
    pub action: Action,
    /// Word that is read and rotated.
    pub source: Place,
    /// Word that is read, or written.
    pub target: Place,
    /// Bits by which the source is rotated to the right.
    pub rotate: Bits<6>,
    /// Constant, whose meaning depends on the action.
    pub constant: Bits<64>,
    /// Status of a refusal, a [`CommandStatus`].
    pub status: Bits<5>,
    /// Detail of a refusal.
    pub detail: Bits<9>,
    /// The instruction is skipped unless a flag is set.
    pub is_conditional: Bit,
    /// Number of that flag.
    pub condition: Bits<5>,
}

/// [`Action::Find`], constant: the object must exist; else its index must be free.
pub const FIND_EXISTS: usize = KIND_BITS;
/// [`Action::Find`], constant: it becomes the reference; else the subject.
pub const FIND_REFERENCE: usize = KIND_BITS + 1;
/// [`Action::Publish`], constant: the queue restarts.
pub const PUBLISH_RESTARTS: usize = KIND_BITS;
/// [`Action::Slots`], constant: the share of the responder; else of the requester.
pub const SLOTS_DESTINATION: usize = 0;
/// [`Action::Slots`], constant: the share is returned.
pub const SLOTS_GIVES: usize = 1;
/// Width of the constant of [`Action::Setup`]: a [`SetupKind`], or [`SRQ_SETUP`] with an [`SrqSetupKind`].
pub const SETUP_KIND_BITS: usize = 3;
/// Number of the first [`SrqSetupKind`] in the constant of [`Action::Setup`].
pub const SRQ_SETUP: u64 = 6;

const _: () = assert!((SetupKind::Probe as u64) < SRQ_SETUP, "the numbers are of one or the other");
/// Flag that [`Action::RefuseTransition`] sets: the queue pair goes to RESET. The verbs' mask does not use this bit.
pub const TO_RESET: usize = 31;
/// Flag that it sets: the queue pair goes elsewhere.
pub const TO_OTHER: usize = 30;

/// Gives the address of a word.
#[kernel]
pub fn address_of(place: Place, subject: Bits<STORE_BITS>, reference: Bits<STORE_BITS>) -> Bits<STORE_BITS> {
    let base = match place.base {
        Base::Command => bits::<STORE_BITS>(command()),
        Base::Subject => subject,
        Base::Reference => reference,
        Base::Scratch => bits::<STORE_BITS>(scratch()),
    };
    base | bit_cast::<STORE_BITS, 5>(place.word)
}

/// A run of bits, counted from a base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// What the bits are counted from.
    pub base: Base,
    /// First bit.
    pub bit: usize,
    /// Number of bits.
    pub width: usize,
}

impl Run {
    /// Makes a run of bits.
    pub fn new(base: Base, bit: usize, width: usize) -> Self {
        Run { base, bit, width }
    }

    /// Gives the field of a record that begins at bit `from` of a base.
    pub fn field(base: Base, from: usize, field: &Field) -> Self {
        Run::new(base, from + field.offset as usize, field.width as usize)
    }

    /// Gives the low `width` bits of it.
    pub fn low(self, width: usize) -> Self {
        assert!(width <= self.width, "a part is not longer than the whole");
        Run { width, ..self }
    }

    /// Gives the bits above its low `width` bits.
    pub fn above(self, width: usize) -> Self {
        assert!(width < self.width, "a part is not longer than the whole");
        Run { bit: self.bit + width, width: self.width - width, ..self }
    }

    fn word(self) -> Place {
        assert!(self.bit % 64 + self.width <= 64, "an instruction sees one word: {self:?}");
        Place { base: self.base, word: bits((self.bit / 64) as u64) }
    }

    fn shift(self) -> u64 {
        (self.bit % 64) as u64
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.width)
    }
}

/// Gives a whole word.
pub fn word(base: Base, word: usize) -> Run {
    Run::new(base, 64 * word, 64)
}

/// A list of instructions, while it is assembled.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The instructions so far.
    pub instructions: Vec<Instruction>,
    condition: Option<usize>,
}

impl Program {
    fn push(&mut self, instruction: Instruction) {
        let instruction = match self.condition {
            Some(flag) => Instruction { is_conditional: true, condition: bits(flag as u64), ..instruction },
            None => instruction,
        };
        self.instructions.push(instruction);
    }

    /// Assembles instructions that are skipped unless a flag is set.
    pub fn only_if(&mut self, flag: usize, write: impl FnOnce(&mut Self)) {
        assert!(self.condition.is_none(), "an instruction has one condition");
        self.condition = Some(flag);
        write(self);
        self.condition = None;
    }

    fn check(&mut self, action: Action, run: Run, constant: u64, status: CommandStatus, detail: usize) {
        self.push(Instruction {
            action,
            source: run.word(),
            rotate: bits(run.shift()),
            constant: bits(constant),
            status: bits(u64::from(status.number())),
            detail: bits(detail as u64),
            ..Instruction::default()
        });
    }

    /// Refuses the command.
    pub fn refuse(&mut self, status: CommandStatus) {
        self.check(Action::RefuseZeros, word(Base::Command, 0), 0, status, 0);
    }

    /// Refuses a run that is not zero.
    pub fn nonzero(&mut self, run: Run, status: CommandStatus, detail: usize) {
        self.check(Action::RefuseOnes, run, run.mask(), status, detail);
    }

    /// Refuses a run that is zero.
    pub fn zero(&mut self, run: Run, status: CommandStatus, detail: usize) {
        self.check(Action::RefuseZeros, run, run.mask(), status, detail);
    }

    /// Refuses ones of a word under a mask.
    pub fn ones(&mut self, run: Run, mask: u64, status: CommandStatus, detail: usize) {
        self.check(Action::RefuseOnes, run, mask, status, detail);
    }

    /// Refuses a number of a few bits that is not `legal`.
    pub fn unlisted(&mut self, run: Run, legal: impl Fn(u64) -> bool, status: CommandStatus, detail: usize) {
        assert!(run.width <= 5, "a list has up to 32 entries: {run:?}");
        let list =
            (0..1u64 << run.width).filter(|&value| legal(value)).fold(0, |list, value| list | 1 << value);
        self.check(Action::RefuseUnlisted, run, run.mask() << 32 | list, status, detail);
    }

    /// Refuses a word that is less than `least`.
    pub fn below(&mut self, run: Run, least: u64, status: CommandStatus, detail: usize) {
        assert!(least > 0, "nothing is less than zero");
        self.check(Action::RefuseBelow, run, least.wrapping_neg(), status, detail);
    }

    /// Refuses two words whose sum is beyond 2^64.
    pub fn wraps(&mut self, left: Run, right: Run, status: CommandStatus, detail: usize) {
        self.check(Action::RefuseWrap, left, 0, status, detail);
        self.aim(right);
    }

    /// Refuses two runs of low bits of their words that differ.
    pub fn unequal(&mut self, left: Run, right: Run, status: CommandStatus, detail: usize) {
        assert!(left.shift() == 0 && right.shift() == 0, "compared are low bits");
        self.check(Action::RefuseUnequal, left, left.mask(), status, detail);
        self.aim(right);
    }

    /// Refuses a source address that is not in use.
    pub fn unused_source_address(&mut self, index: Run, status: CommandStatus, detail: usize) {
        self.check(Action::RefuseSourceAddress, index, 0, status, detail);
    }

    /// Makes an existing object the subject or the reference, or refuses the command.
    pub fn exists(&mut self, kind: Kind, number: Run, role: Base, status: CommandStatus, detail: usize) {
        let is_reference = u64::from(role == Base::Reference);
        let constant = kind as u64 | 1 << FIND_EXISTS | is_reference << FIND_REFERENCE;
        self.check(Action::Find, number, constant, status, detail);
        self.limit(number);
    }

    /// Makes a free index the subject, or refuses the command.
    pub fn is_free(&mut self, kind: Kind, number: Run) {
        self.check(Action::Find, number, kind as u64, CommandStatus::AlreadyExists, 0);
        self.limit(number);
    }

    /// Masks the source of [`Action::Find`]: object numbers are compared in full, and bits beyond them are ignored.
    fn limit(&mut self, number: Run) {
        let instruction = self.instructions.last_mut().expect("an instruction was assembled");
        instruction.constant = instruction.constant | bits::<64>(number.mask() << 32);
    }

    fn aim(&mut self, target: Run) {
        self.instructions.last_mut().expect("an instruction was assembled").target = target.word();
    }

    /// Checks the change of a queue pair; `states` are the next and the current state of the command.
    pub fn transition(&mut self, states: Run) {
        self.check(Action::RefuseTransition, states, 0, CommandStatus::Success, 0);
        self.aim(word(Base::Subject, 0));
    }

    /// Copies the flags.
    pub fn flags(&mut self, run: Run) {
        self.check(Action::Flags, run, 0, CommandStatus::Success, 0);
    }

    /// Sets a word.
    pub fn put(&mut self, target: Run, value: u64) {
        self.push(Instruction {
            action: Action::Put,
            target: target.word(),
            constant: bits(value),
            ..Instruction::default()
        });
    }

    /// Adds to a word.
    pub fn add(&mut self, target: Run, value: u64) {
        self.push(Instruction {
            action: Action::Add,
            target: target.word(),
            constant: bits(value),
            ..Instruction::default()
        });
    }

    /// Copies a run, in pieces where it crosses words.
    pub fn copy(&mut self, source: Run, target: Run) {
        assert_eq!(source.width, target.width, "a copy is as long as what is copied");
        let mut done = 0;
        while done < source.width {
            let (from, to) = (source.bit + done, target.bit + done);
            let width = (source.width - done).min(64 - from % 64).min(64 - to % 64);
            let (piece, place) = (Run::new(source.base, from, width), Run::new(target.base, to, width));
            self.push(Instruction {
                action: Action::Move,
                source: piece.word(),
                target: place.word(),
                rotate: bits((piece.shift() + 64 - place.shift()) % 64),
                constant: bits(place.mask() << place.shift()),
                ..Instruction::default()
            });
            done += width;
        }
    }

    /// Copies a run of bytes in reverse order: from wire order to a number, or back.
    pub fn copy_reversed(&mut self, source: Run, target: Run) {
        for byte in (0..source.width).step_by(8) {
            let from = Run::new(source.base, source.bit + byte, 8);
            self.copy(from, Run::new(target.base, target.bit + target.width - 8 - byte, 8));
        }
    }

    /// Sends a setup event of the subject.
    pub fn setup(&mut self, kind: SetupKind, psn: Run) {
        self.check(Action::Setup, psn, kind as u64, CommandStatus::Success, 0);
    }

    /// Sends a setup event of the subject, a shared receive queue; `limit` is as in
    /// [`srq_setup_of`](crate::object_view::srq_setup_of).
    pub fn setup_srq(&mut self, kind: SrqSetupKind, limit: Run) {
        self.check(Action::Setup, limit, SRQ_SETUP | kind as u64, CommandStatus::Success, 0);
    }

    /// Writes the subject into the tables of the card.
    pub fn publish(&mut self, kind: Kind, restarts: bool) {
        let constant = kind as u64 | u64::from(restarts) << PUBLISH_RESTARTS;
        self.push(Instruction {
            action: Action::Publish,
            constant: bits(constant),
            ..Instruction::default()
        });
    }

    /// Waits until everything has left the card that is in it.
    pub fn wait(&mut self) {
        self.push(Instruction { action: Action::Wait, ..Instruction::default() });
    }

    /// Lets a share of READ slots have at least `count` slots; `shares` is the word with both shares of a queue pair.
    pub fn take_slots(&mut self, is_destination: bool, count: Run, shares: Run, detail: usize) {
        let constant = u64::from(is_destination) << SLOTS_DESTINATION;
        self.check(Action::Slots, count, constant, CommandStatus::Success, detail);
        self.aim(shares);
    }

    /// Returns a share of READ slots.
    pub fn give_slots(&mut self, is_destination: bool, shares: Run) {
        self.push(Instruction {
            action: Action::Slots,
            target: shares.word(),
            constant: bits(u64::from(is_destination) << SLOTS_DESTINATION | 1 << SLOTS_GIVES),
            ..Instruction::default()
        });
    }

    /// Puts the next PSNs into a word: to send in bits 23:0, to expect in bits 55:32; bit 24 says that messages are in flight.
    pub fn probe(&mut self, target: Run) {
        self.push(Instruction { action: Action::Probe, target: target.word(), ..Instruction::default() });
    }

    /// Writes the pages of the region in the scratch words, and puts the device address of its first byte into a word.
    pub fn pages(&mut self, target: Run) {
        self.push(Instruction { action: Action::Pages, target: target.word(), ..Instruction::default() });
    }

    /// Writes eight words to the host, `offset` bytes after an address.
    pub fn write(&mut self, source: Run, address: Run, offset: u64) {
        self.push(Instruction {
            action: Action::Write,
            source: source.word(),
            target: address.word(),
            constant: bits(offset),
            ..Instruction::default()
        });
    }

    /// Ends the list.
    pub fn finish(mut self) -> Vec<Instruction> {
        self.push(Instruction::default());
        self.instructions
    }

    /// Refuses reserved bits and numbers that the record's table does not allow, in the order of the table.
    pub fn parse(&mut self, base: Base, from: usize, record: &Record) {
        let mut masks = vec![0u64; (from + record.bits as usize).div_ceil(64)];
        for span in record.spans() {
            if let Span::Reserved(first, end) = span {
                for bit in from + first as usize..from + end as usize {
                    masks[bit / 64] |= 1 << (bit % 64);
                }
            }
        }
        for (index, &mask) in masks.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            self.ones(word(base, index), mask, CommandStatus::ReservedNotZero, 0);
        }
        for field in record.fields.iter().filter(|field| field.range.is_some() || field.values.is_some()) {
            let detail = from + field.offset as usize;
            let run = Run::field(base, from, field);
            self.unlisted(run, |value| field.check(value).is_ok(), CommandStatus::ValueNotAllowed, detail);
        }
    }
}
