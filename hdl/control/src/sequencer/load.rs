//! Loader: holds the words that come from a command, from the store, or from a list of pages, and shifts them a word at a time.
//!
//! ```text
//!  command, list slot, event queue 0 ──> ┌────────┐ loaded
//!  word of the store ──────────────────> │ 11     ├────────> store, setup, tables, host
//!                                        │ words  │
//!  stage ──> load ──> address            └────────┘
//! ```
//!
//! An object is loaded in [`LOAD_CYCLES`](super::LOAD_CYCLES) cycles. Not reset.
use super::COMMAND_BITS;
use super::objects::{Load, next_load};
use super::stage::{Begins, CYCLE_BITS, LoadReason, Stage};
use crate::instruction::Action;
use crate::object_store::{STORE_BITS, VALID};
use crate::object_view::LOADED_BITS;
use rnic_kernel::prelude::*;

/// A header that says no more than that the object exists.
const EXISTS: u64 = 1 << VALID;
/// Bits of what is loaded, beyond a word, a command, and the body of event queue 0 with its header.
const BEYOND_WORD: usize = LOADED_BITS - 64;
const BEYOND_COMMAND: usize = LOADED_BITS - COMMAND_BITS;
const BEYOND_BODY: usize = LOADED_BITS - 192;
/// Cycles from the address of a word to the word, less one.
const FIRST_WORD: u64 = 2;

/// Loads objects.
#[clocked]
#[derive(Default, LogicBlock, Registers)]
pub(super) struct Loader {
    /// Stage of the sequencer; registered.
    pub stage: Signal<In, Stage>,
    /// Cycles within the stage; registered.
    pub cycle: Signal<In, Bits<CYCLE_BITS>>,
    /// What the sequencer begins in this cycle.
    pub begins: Signal<In, Begins>,
    /// A command, or the slot of a list of pages.
    pub command: Signal<In, Bits<COMMAND_BITS>>,
    /// Body of event queue 0.
    pub queue_0: Signal<In, Bits<128>>,
    /// `command` is the slot of a list of pages.
    pub list_valid: Signal<In, Bit>,
    /// The first word has been used.
    pub takes_word: Signal<In, Bit>,
    /// Action of the instruction.
    pub action: Signal<In, Action>,
    /// Header of the object that the routine is about.
    pub subject: Signal<In, Bits<STORE_BITS>>,
    /// Address of the source of the instruction.
    pub source_address: Signal<In, Bits<STORE_BITS>>,
    /// Address of the word that a notice is about.
    pub noticed_address: Signal<In, Bits<STORE_BITS>>,
    /// Word of the store, two cycles after its address.
    pub word: Signal<In, Bits<64>>,

    /// Address of the word that is read in stage `Load`; registered.
    pub address: Signal<Out, Bits<STORE_BITS>>,
    /// What the object is loaded for; registered.
    pub reason: Signal<Out, LoadReason>,
    /// The words, the first one in the low bits; registered.
    pub loaded: Signal<Out, Bits<LOADED_BITS>>,

    load: DFF<Load>,
    words: DFF<Bits<LOADED_BITS>>,
}

impl Logic for Loader {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let stage = self.stage.val();
        let words = self.words.q.val();
        let load = self.load.q.val();
        let begins = self.begins.val();
        let is_paging = stage == Stage::Pages;
        let later_words = words.get_bits::<BEYOND_WORD>(64);
        if begins.queue_0 {
            self.words.d.next = cat!(bits::<BEYOND_BODY>(0), self.queue_0.val(), bits::<64>(EXISTS));
        } else if begins.command || (is_paging && self.list_valid.val()) {
            self.words.d.next = cat!(bits::<BEYOND_COMMAND>(0), self.command.val());
        } else if stage == Stage::Copy || (is_paging && self.takes_word.val()) {
            self.words.d.next = cat!(bits::<64>(0), later_words);
        } else if stage == Stage::Load && self.cycle.val() >= FIRST_WORD {
            self.words.d.next = cat!(self.word.val(), later_words);
        }
        self.load.d.next = next_load(
            stage,
            load,
            self.action.val(),
            self.subject.val(),
            self.source_address.val(),
            self.noticed_address.val(),
        );
        self.address.next = load.address;
        self.reason.next = load.reason;
        self.loaded.next = words;
    }
}
