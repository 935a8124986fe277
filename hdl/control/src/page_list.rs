//! Page list: reads the pages of a region from the host, and enters them into the table of pages.
//!
//! The region is not published yet, so nobody looks at these entries: nothing has to be undone when a page is refused.
//!
//! ```text
//!  region ──> how many pages, fits? ──> ask ──> read ──────────────────────> list_read
//!                                        ^       list (eight pages) <──────── list_valid
//!                                        └───────── word by word ────────────> page_write
//! ```
//!
//! At most 35 cycles for the region; for eight pages about 10 and what the host takes. So a list of 16,384 pages takes some 2 ms of
//! a host of 1 us: it is read rarely, and one slot at a time needs no room.
//!
//! 1. No entry is written beyond the table, nor one that is not of this region: what does not fit is refused before the first.
//! 2. `is_asking` is up between two slots: then whoever holds the words may use their place for something else. A slot is asked for
//!    when `may_ask` is up, and comes alone.
//! 3. A page that is no multiple of its size is refused, one that the host does not give too, both by their index.
//! 4. The list counts as it is when it is read. It is not read again.
//!
//! Refuses a first byte that is not in the first page. Design 3.2.
use crate::messages::Outcome;
use rnic_blocks::stream::StreamTx;
use rnic_kernel::prelude::*;
use rnic_messages::host::HostSpan;
use rnic_messages::protect::{PAGE_SIZE_BITS, PAGED_BITS, PageEntryWrite};
use rnic_messages::sizes::{PAGE_ENTRY_BITS, PAGE_NUMBER_BITS};

/// Bits of a place in the largest page.
pub const PLACE_BITS: usize = PAGED_BITS - PAGE_ENTRY_BITS;
/// Bits of the size of a page, as a power of two.
pub const LOG2_BITS: usize = 5;
/// Bits of a count of pages.
const COUNT_BITS: usize = PAGE_ENTRY_BITS + 1;
/// Bits of where a region ends, counted from its first page.
const END_BITS: usize = 65;
const ABOVE_COUNT: usize = END_BITS - COUNT_BITS;
/// Bits of a place in the smallest page.
const SMALLEST: usize = 64 - PAGE_NUMBER_BITS;
/// Pages of a slot, as a power of two.
const SLOT_PAGES: usize = 3;

/// Numbers of the contract, in the form in which kernels can use them.
mod number {
    use rnic_layout::admin::{BODY_OFFSET, CommandStatus, CreateRegion};
    use rnic_layout::limits::{DETAIL_IS_PAGE, PAGE_LOG2_MIN};

    const fn detail(name: &str) -> u64 {
        BODY_OFFSET as u64 * 8 + CreateRegion::RECORD.field(name).offset as u64
    }

    pub(super) const SUCCESS: u64 = CommandStatus::Success as u64;
    pub(super) const VALUE_NOT_ALLOWED: u64 = CommandStatus::ValueNotAllowed as u64;
    pub(super) const RANGE_NOT_ALLOWED: u64 = CommandStatus::RangeNotAllowed as u64;
    pub(super) const MISALIGNED: u64 = CommandStatus::Misaligned as u64;
    pub(super) const HOST_ERROR: u64 = CommandStatus::HostError as u64;
    pub(super) const AT_OFFSET: u64 = detail("first_offset");
    pub(super) const AT_LENGTH: u64 = detail("length");
    pub(super) const AT_PAGE: u64 = DETAIL_IS_PAGE as u64;
    pub(super) const SLOT_BYTES: u64 = 64;
    pub(super) const SMALLEST: u64 = PAGE_LOG2_MIN as u64;
}

/// A region that is made of pages, as far as its list is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PagedRegion {
    /// In bytes.
    pub length: Bits<64>,
    /// Device address of the list, a multiple of 4,096.
    pub list: Bits<64>,
    /// Place of the first byte in the first page.
    pub first_offset: Bits<PLACE_BITS>,
    /// Size of the pages, as a power of two.
    pub page_log2: Bits<LOG2_BITS>,
    /// Its first entry of the table.
    pub first_entry: Bits<PAGE_ENTRY_BITS>,
}

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Stage {
    /// Waits for a region.
    Idle,
    /// Counts its pages, and finds its first byte: one bit of the size of a page a cycle.
    Size,
    /// Judges what came out.
    Judge,
    /// Between two slots.
    Ask,
    /// Asks for one.
    Read,
    /// Waits for it.
    Slot,
    /// Enters its pages.
    Words,
    /// Says how it ended.
    Done,
}

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct PageList {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// A region; it counts in the cycle of `begins`.
    pub region: Signal<In, PagedRegion>,
    /// It is to be read. Has no effect until the one before is done.
    pub begins: Signal<In, Bit>,
    /// The next slot may be asked for.
    pub may_ask: Signal<In, Bit>,
    /// Waits for that; a function of registers, as are those below but for `takes_word`.
    pub is_asking: Signal<Out, Bit>,
    /// To the host: the next slot.
    pub list_read: StreamTx<HostSpan>,
    /// It has come; from the next cycle on `word` holds its first word.
    pub list_valid: Signal<In, Bit>,
    /// The host did not give it.
    pub list_error: Signal<In, Bit>,
    /// The next word of the slot.
    pub word: Signal<In, Bits<64>>,
    /// In the next cycle the one behind it.
    pub takes_word: Signal<Out, Bit>,
    /// To the tables of pages; registered.
    pub page_write: Signal<Out, PageEntryWrite>,
    /// There is one.
    pub page_write_valid: Signal<Out, Bit>,
    /// The region may be done in this cycle.
    pub may_end: Signal<In, Bit>,
    /// It is, if it may.
    pub is_done: Signal<Out, Bit>,
    /// How.
    pub outcome: Signal<Out, Outcome>,
    /// Its first byte, as stages take it for a device address.
    pub address: Signal<Out, Bits<64>>,

    stage: Reg<Stage>,
    /// Where the region ends, in bytes, then in pages; then the pages that are left.
    end: DFF<Bits<END_BITS>>,
    /// Bits that were shifted out are not all zero.
    has_rest: DFF<Bit>,
    first: DFF<Bits<PAGED_BITS>>,
    /// Ones where a place in a page has bits.
    mask: DFF<Bits<PLACE_BITS>>,
    page_log2: DFF<Bits<LOG2_BITS>>,
    steps: DFF<Bits<LOG2_BITS>>,
    first_offset: DFF<Bits<PLACE_BITS>>,
    list: DFF<Bits<64>>,
    entry: DFF<Bits<PAGE_ENTRY_BITS>>,
    index: DFF<Bits<PAGE_ENTRY_BITS>>,
    ended: DFF<Outcome>,
    write: DFF<PageEntryWrite>,
    has_write: Reg<Bit>,
}

impl Logic for PageList {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let stage = self.stage.q.val();
        let region = self.region.val();
        let end = self.end.q.val();
        let index = self.index.q.val();
        let word = self.word.val();
        let mask = self.mask.q.val();
        let first_offset = self.first_offset.q.val();

        self.is_asking.next = stage == Stage::Ask;
        self.list_read.valid.next = stage == Stage::Read;
        self.list_read.beat.next = HostSpan { address: self.list.q.val(), length: bits(number::SLOT_BYTES) };
        self.page_write.next = self.write.q.val();
        self.page_write_valid.next = self.has_write.q.val();
        self.is_done.next = stage == Stage::Done;
        self.outcome.next = self.ended.q.val();
        let size = (self.page_log2.q.val() - number::SMALLEST).get_bits::<PAGE_SIZE_BITS>(0);
        self.address.next = cat!(
            true,
            size,
            bits::<14>(0),
            self.first.q.val().get_bits::<PAGE_ENTRY_BITS>(PLACE_BITS),
            self.first.q.val().get_bits::<PLACE_BITS>(0) | first_offset
        );

        let count = end.get_bits::<COUNT_BITS>(0);
        let room = bits::<COUNT_BITS>(1 << PAGE_ENTRY_BITS)
            - bit_cast::<COUNT_BITS, PAGE_ENTRY_BITS>(self.entry.q.val());
        let is_far = end.get_bits::<ABOVE_COUNT>(COUNT_BITS).any();
        let at_page: Bits<32> = bit_cast::<32, PAGE_ENTRY_BITS>(index) | bits::<32>(number::AT_PAGE);
        let misaligned = (word.get_bits::<PLACE_BITS>(0) & mask).any();
        let enters = stage == Stage::Words && !misaligned;
        let is_last = count == 1;
        self.takes_word.next = stage == Stage::Words;
        self.has_write.d.next = enters;
        self.write.d.next =
            PageEntryWrite { entry: self.entry.q.val(), page: word.get_bits::<PAGE_NUMBER_BITS>(SMALLEST) };
        match stage {
            Stage::Idle => {
                self.end.d.next = bit_cast::<END_BITS, 64>(region.length)
                    + bit_cast::<END_BITS, PLACE_BITS>(region.first_offset);
                self.has_rest.d.next = false;
                self.first.d.next = bit_cast::<PAGED_BITS, PAGE_ENTRY_BITS>(region.first_entry);
                self.mask.d.next = bits(0);
                self.page_log2.d.next = region.page_log2;
                self.steps.d.next = region.page_log2;
                self.first_offset.d.next = region.first_offset;
                self.list.d.next = region.list;
                self.entry.d.next = region.first_entry;
                self.index.d.next = bits(0);
                if self.begins.val() {
                    self.stage.d.next = Stage::Size;
                }
            }
            Stage::Size => {
                self.steps.d.next = self.steps.q.val() - 1;
                self.end.d.next = end >> 1;
                self.has_rest.d.next = self.has_rest.q.val() || end.get_bit(0);
                self.first.d.next = self.first.q.val() << 1;
                self.mask.d.next = (mask << 1) | 1;
                if self.steps.q.val() == 1 {
                    self.stage.d.next = Stage::Judge;
                }
            }
            Stage::Judge => {
                // A page that is begun counts.
                self.has_rest.d.next = false;
                if self.has_rest.q.val() {
                    self.end.d.next = end + 1;
                } else {
                    self.stage.d.next = if count.any() { Stage::Ask } else { Stage::Done };
                    self.ended.d.next = Outcome { status: bits(number::SUCCESS), detail: bits(0) };
                    if is_far || count > room {
                        self.stage.d.next = Stage::Done;
                        self.ended.d.next = Outcome {
                            status: bits(number::RANGE_NOT_ALLOWED),
                            detail: bits(number::AT_LENGTH),
                        };
                    }
                    if (first_offset & !mask).any() {
                        self.stage.d.next = Stage::Done;
                        self.ended.d.next = Outcome {
                            status: bits(number::VALUE_NOT_ALLOWED),
                            detail: bits(number::AT_OFFSET),
                        };
                    }
                }
            }
            Stage::Ask => {
                if self.may_ask.val() {
                    self.stage.d.next = Stage::Read;
                }
            }
            Stage::Read => {
                if self.list_read.ready.val() {
                    self.stage.d.next = Stage::Slot;
                    self.list.d.next = self.list.q.val() + number::SLOT_BYTES;
                }
            }
            Stage::Slot => {
                if self.list_valid.val() {
                    self.stage.d.next = Stage::Words;
                    if self.list_error.val() {
                        self.stage.d.next = Stage::Done;
                        self.ended.d.next = Outcome { status: bits(number::HOST_ERROR), detail: at_page };
                    }
                }
            }
            Stage::Words => {
                self.end.d.next = end - 1;
                self.entry.d.next = self.entry.q.val() + 1;
                self.index.d.next = index + 1;
                if index.get_bits::<SLOT_PAGES>(0).all() {
                    self.stage.d.next = Stage::Ask;
                }
                if is_last {
                    self.stage.d.next = Stage::Done;
                }
                if misaligned {
                    self.stage.d.next = Stage::Done;
                    self.ended.d.next = Outcome { status: bits(number::MISALIGNED), detail: at_page };
                }
            }
            Stage::Done => {
                if self.may_end.val() {
                    self.stage.d.next = Stage::Idle;
                }
            }
        }
    }
}
