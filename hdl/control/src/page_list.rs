//! Page list: reads the pages of a region from the host, and writes them into the tables of pages.
//!
//! The region is not published yet, so no access uses these entries: nothing has to be undone when a page is refused.
//!
//! ```text
//!  region ──> size, check ──> ask ──> read ──────────────────────> list_read
//!                              ^       slot (eight pages) <──────── list_valid
//!                              └────── word by word ──────────────> page_write
//! ```
//!
//! At most 35 cycles for the region, and for eight pages about 10 and the latency of the host. So a list of 16,384 pages takes some
//! 2 ms with a host latency of 1 us; lists are read rarely, and one slot at a time needs no buffer.
//!
//! 1. No entry is written beyond the table, nor one that is not of this region: a list that does not fit is refused before its
//!    first page.
//! 2. `is_asking` is high between two slots; then the owner of the words may use their registers for something else. A slot is
//!    asked for when `may_ask` is high, and comes alone.
//! 3. A page that is not a multiple of its size is refused, as is one that the host refuses to read; the detail is its index.
//! 4. Each page is read once.
//!
//! Refuses a first byte that is not in the first page. Design section 3.2.
use crate::messages::{Outcome, PartState};
use rnic_blocks::stream::{StreamTx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_layout::admin::{BODY_OFFSET, CommandStatus, CreateRegion};
use rnic_layout::limits::{DETAIL_IS_PAGE, PAGE_LOG2_MIN};
use rnic_messages::host::HostSpan;
use rnic_messages::protect::{PAGE_SIZE_BITS, PAGED_BITS, PageEntryWrite};
use rnic_messages::sizes::{PAGE_ENTRY_BITS, PAGE_NUMBER_BITS, sizes};

/// Bits of an offset in the largest page.
pub const PAGE_OFFSET_BITS: usize = PAGED_BITS - PAGE_ENTRY_BITS;
/// Bits of the size of a page, as a power of two.
pub const LOG2_BITS: usize = 5;
/// Bits of a count of pages.
const COUNT_BITS: usize = PAGE_ENTRY_BITS + 1;
/// Bits of the entry behind the last one of a region.
const END_ENTRY_BITS: usize = COUNT_BITS + 1;
/// Bits of the end of a region, counted from its first page.
const END_BITS: usize = 65;
const ABOVE_COUNT: usize = END_BITS - COUNT_BITS;
/// Bits of an offset in the smallest page.
const SMALLEST: usize = 64 - PAGE_NUMBER_BITS;
/// Pages of a slot, as a power of two.
const SLOT_PAGES: usize = 3;

/// Bytes of a slot.
const SLOT_BYTES: u64 = 8 << SLOT_PAGES;
const SMALLEST_LOG2: u64 = PAGE_LOG2_MIN as u64;
/// Details of refusals: bits of fields of the command, and the flag of a page's index.
const AT_OFFSET: u64 = detail("first_offset");
const AT_LENGTH: u64 = detail("length");
const AT_PAGE: u64 = DETAIL_IS_PAGE as u64;

const fn detail(name: &str) -> u64 {
    BODY_OFFSET as u64 * 8 + CreateRegion::RECORD.field(name).offset as u64
}

/// What a list of pages needs of its region.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PagedRegion {
    /// Length of the region in bytes.
    pub length: Bits<64>,
    /// Device address of the list, a multiple of 4,096.
    pub list: Bits<64>,
    /// Offset of the first byte in the first page.
    pub first_offset: Bits<PAGE_OFFSET_BITS>,
    /// Size of the pages, as a power of two.
    pub page_log2: Bits<LOG2_BITS>,
    /// First entry of the region in the tables of pages.
    pub first_entry: Bits<PAGE_ENTRY_BITS>,
}

/// What the block does in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Stage {
    /// Waits for a region.
    Idle,
    /// Counts its pages, and finds its first byte: one bit of the size of a page a cycle.
    Size,
    /// Checks that they fit.
    Check,
    /// Waits between two slots.
    Ask,
    /// Asks the host for one.
    Read,
    /// Waits for it.
    Slot,
    /// Writes its pages, one a cycle.
    Words,
    /// Shows the outcome.
    Done,
}

/// Conditions of this cycle that decide which stage follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Conditions {
    begins: Bit,
    /// The last bit of the size of a page.
    sizes_last: Bit,
    /// Bytes of a last page are still to be counted as a page.
    has_rest: Bit,
    /// The region has no pages, or they do not fit.
    ends_in_check: Bit,
    may_ask: Bit,
    read_taken: Bit,
    slot_valid: Bit,
    slot_error: Bit,
    misaligned: Bit,
    /// The page is the last one of the region.
    is_last_page: Bit,
    /// The page is the last one of its slot.
    is_last_word: Bit,
    may_end: Bit,
}

/// Reads lists of pages.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct PageList {
    /// A region; meaningful in the cycle of `begins`.
    pub region: Signal<In, PagedRegion>,
    /// The list of `region` is to be read; ignored until the one before is done.
    pub begins: Signal<In, Bit>,
    /// The next slot may be asked for.
    pub may_ask: Signal<In, Bit>,
    /// Waits for `may_ask`; a function of registers, as are the outputs below.
    pub is_asking: Signal<Out, Bit>,
    /// To the host: the next slot of the list.
    pub list_read: StreamTx<HostSpan>,
    /// The slot has arrived; from the next cycle on `word` holds its first word.
    pub list_valid: Signal<In, Bit>,
    /// The host refused to read it.
    pub list_error: Signal<In, Bit>,
    /// The next word of the slot.
    pub word: Signal<In, Bits<64>>,
    /// `word` has been used: the next one follows in the next cycle.
    pub takes_word: Signal<Out, Bit>,
    /// To the tables of pages; registered.
    pub page_write: ValidTx<PageEntryWrite>,
    /// The outcome is taken in this cycle, if there is one.
    pub may_end: Signal<In, Bit>,
    /// Whether the region is done, and how; the result is the device address of its first byte, in the form of the page tables.
    pub state: Signal<Out, PartState>,

    stage: Reg<Stage>,
    /// End of the region in bytes, then in pages; then the pages that are left.
    end: DFF<Bits<END_BITS>>,
    /// Bits that were shifted out are not all zero.
    has_rest: DFF<Bit>,
    first: DFF<Bits<PAGED_BITS>>,
    /// Ones in the bits of an offset in a page.
    mask: DFF<Bits<PAGE_OFFSET_BITS>>,
    page_log2: DFF<Bits<LOG2_BITS>>,
    /// Bits of the size of a page that are still to be counted.
    bits_left: DFF<Bits<LOG2_BITS>>,
    first_offset: DFF<Bits<PAGE_OFFSET_BITS>>,
    list: DFF<Bits<64>>,
    entry: DFF<Bits<PAGE_ENTRY_BITS>>,
    index: DFF<Bits<PAGE_ENTRY_BITS>>,
    ended: DFF<Outcome>,
    write: DFF<PageEntryWrite>,
    has_write: Reg<Bit>,
}

/// Gives the next stage.
#[kernel]
fn next_stage(stage: Stage, is: Conditions) -> Stage {
    match stage {
        Stage::Idle => {
            if is.begins {
                Stage::Size
            } else {
                Stage::Idle
            }
        }
        Stage::Size => {
            if is.sizes_last {
                Stage::Check
            } else {
                Stage::Size
            }
        }
        Stage::Check => {
            if is.has_rest {
                Stage::Check
            } else if is.ends_in_check {
                Stage::Done
            } else {
                Stage::Ask
            }
        }
        Stage::Ask => {
            if is.may_ask {
                Stage::Read
            } else {
                Stage::Ask
            }
        }
        Stage::Read => {
            if is.read_taken {
                Stage::Slot
            } else {
                Stage::Read
            }
        }
        Stage::Slot => {
            if !is.slot_valid {
                Stage::Slot
            } else if is.slot_error {
                Stage::Done
            } else {
                Stage::Words
            }
        }
        Stage::Words => {
            if is.misaligned || is.is_last_page {
                Stage::Done
            } else if is.is_last_word {
                Stage::Ask
            } else {
                Stage::Words
            }
        }
        Stage::Done => {
            if is.may_end {
                Stage::Idle
            } else {
                Stage::Done
            }
        }
    }
}

/// Number of entries of the table.
fn page_entries() -> u64 {
    1 << sizes().page_entries
}

/// Checks that the pages of a region fit the table, and that its first byte is in its first page. `end` counts pages.
#[kernel]
fn check(
    end: Bits<END_BITS>,
    first_entry: Bits<PAGE_ENTRY_BITS>,
    first_offset: Bits<PAGE_OFFSET_BITS>,
    mask: Bits<PAGE_OFFSET_BITS>,
) -> Outcome {
    let end_entry = bit_cast::<END_ENTRY_BITS, COUNT_BITS>(end.get_bits::<COUNT_BITS>(0))
        + bit_cast::<END_ENTRY_BITS, PAGE_ENTRY_BITS>(first_entry);
    let is_far = end.get_bits::<ABOVE_COUNT>(COUNT_BITS).any();
    if (first_offset & !mask).any() {
        Outcome { status: bits(CommandStatus::ValueNotAllowed as u64), detail: bits(AT_OFFSET) }
    } else if is_far || end_entry > page_entries() {
        Outcome { status: bits(CommandStatus::RangeNotAllowed as u64), detail: bits(AT_LENGTH) }
    } else {
        Outcome { status: bits(CommandStatus::Success as u64), detail: bits(0) }
    }
}

/// Gives the device address of the first byte of a region: bit 63 says that it counts in the tables of pages.
#[kernel]
fn first_byte(
    first: Bits<PAGED_BITS>,
    first_offset: Bits<PAGE_OFFSET_BITS>,
    page_log2: Bits<LOG2_BITS>,
) -> Bits<64> {
    cat!(
        true,
        (page_log2 - SMALLEST_LOG2).get_bits::<PAGE_SIZE_BITS>(0),
        bits::<14>(0),
        first.get_bits::<PAGE_ENTRY_BITS>(PAGE_OFFSET_BITS),
        first.get_bits::<PAGE_OFFSET_BITS>(0) | first_offset
    )
}

/// Gives a refusal of a page.
#[kernel]
fn refuse_page(status: Bits<5>, index: Bits<PAGE_ENTRY_BITS>) -> Outcome {
    Outcome { status, detail: bit_cast::<32, PAGE_ENTRY_BITS>(index) | bits::<32>(AT_PAGE) }
}

impl Logic for PageList {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let stage = self.stage.q.val();
        let region = self.region.val();
        let end = self.end.q.val();
        let entry = self.entry.q.val();
        let index = self.index.q.val();
        let mask = self.mask.q.val();
        let first_offset = self.first_offset.q.val();
        let word = self.word.val();
        let checked = check(end, entry, first_offset, mask);
        let misaligned = (word.get_bits::<PAGE_OFFSET_BITS>(0) & mask).any();
        let count = end.get_bits::<COUNT_BITS>(0);
        let is = Conditions {
            begins: self.begins.val(),
            sizes_last: self.bits_left.q.val() == 1,
            has_rest: self.has_rest.q.val(),
            ends_in_check: checked.status.any() || !count.any(),
            may_ask: self.may_ask.val(),
            read_taken: self.list_read.ready.val(),
            slot_valid: self.list_valid.val(),
            slot_error: self.list_error.val(),
            misaligned,
            is_last_page: count == 1,
            is_last_word: index.get_bits::<SLOT_PAGES>(0).all(),
            may_end: self.may_end.val(),
        };
        self.stage.d.next = next_stage(stage, is);

        self.is_asking.next = stage == Stage::Ask;
        self.list_read.valid.next = stage == Stage::Read;
        self.list_read.beat.next = HostSpan { address: self.list.q.val(), length: bits(SLOT_BYTES) };
        self.page_write.offer(self.has_write.q.val(), self.write.q.val());
        self.takes_word.next = stage == Stage::Words;
        self.state.next = PartState {
            is_done: stage == Stage::Done,
            outcome: self.ended.q.val(),
            result: first_byte(self.first.q.val(), first_offset, self.page_log2.q.val()),
        };

        self.has_write.d.next = stage == Stage::Words && !misaligned;
        self.write.d.next = PageEntryWrite { entry, page: word.get_bits::<PAGE_NUMBER_BITS>(SMALLEST) };
        match stage {
            Stage::Idle => {
                self.end.d.next = bit_cast::<END_BITS, 64>(region.length)
                    + bit_cast::<END_BITS, PAGE_OFFSET_BITS>(region.first_offset);
                self.has_rest.d.next = false;
                self.first.d.next = bit_cast::<PAGED_BITS, PAGE_ENTRY_BITS>(region.first_entry);
                self.mask.d.next = bits(0);
                self.page_log2.d.next = region.page_log2;
                self.bits_left.d.next = region.page_log2;
                self.first_offset.d.next = region.first_offset;
                self.list.d.next = region.list;
                self.entry.d.next = region.first_entry;
                self.index.d.next = bits(0);
            }
            Stage::Size => {
                self.bits_left.d.next = self.bits_left.q.val() - 1;
                self.end.d.next = end >> 1;
                self.has_rest.d.next = is.has_rest || end.get_bit(0);
                self.first.d.next = self.first.q.val() << 1;
                self.mask.d.next = (mask << 1) | 1;
            }
            Stage::Check => {
                // A page of which only some bytes are used counts.
                self.has_rest.d.next = false;
                if is.has_rest {
                    self.end.d.next = end + 1;
                } else {
                    self.ended.d.next = checked;
                }
            }
            Stage::Read => {
                if is.read_taken {
                    self.list.d.next = self.list.q.val() + SLOT_BYTES;
                }
            }
            Stage::Slot => {
                if is.slot_valid && is.slot_error {
                    self.ended.d.next = refuse_page(bits::<5>(CommandStatus::HostError as u64), index);
                }
            }
            Stage::Words => {
                self.end.d.next = end - 1;
                self.entry.d.next = entry + 1;
                self.index.d.next = index + 1;
                if misaligned {
                    self.ended.d.next = refuse_page(bits::<5>(CommandStatus::Misaligned as u64), index);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_messages::sizes::Sizes;

    /// The pages of a region end in the table, and a region without pages begins there.
    #[test]
    fn pages_fit_the_table_of_the_card() {
        let is_good = |first_entry: u64, pages: u64| {
            !check(bits(pages), bits(first_entry), bits(0), bits(0)).status.any()
        };
        for entries_log2 in [4, Sizes::LARGEST.page_entries] {
            let entries = 1 << entries_log2;
            Sizes { page_entries: entries_log2, ..Sizes::LARGEST }.make(|| {
                for (first_entry, pages) in [(0, 1), (0, entries), (entries - 1, 1), (entries - 1, 0)] {
                    assert!(is_good(first_entry, pages), "{pages} from {first_entry} of {entries}");
                }
                for (first_entry, pages) in [(0, entries + 1), (1, entries), (entries - 1, 2), (0, 1 << 20)] {
                    assert!(!is_good(first_entry, pages), "{pages} from {first_entry} of {entries}");
                }
            });
        }
        Sizes { page_entries: 4, ..Sizes::LARGEST }.make(|| assert!(!is_good(17, 0) && !is_good(16, 1)));
    }

    #[test]
    fn every_stage_waits_for_its_condition() {
        let none = Conditions::default();
        let slot = Conditions { slot_valid: true, ..none };
        let last_word = Conditions { is_last_word: true, ..none };
        for (stage, is, next) in [
            (Stage::Idle, none, Stage::Idle),
            (Stage::Idle, Conditions { begins: true, ..none }, Stage::Size),
            (Stage::Size, none, Stage::Size),
            (Stage::Size, Conditions { sizes_last: true, ..none }, Stage::Check),
            (Stage::Check, Conditions { has_rest: true, ends_in_check: true, ..none }, Stage::Check),
            (Stage::Check, Conditions { ends_in_check: true, ..none }, Stage::Done),
            (Stage::Check, none, Stage::Ask),
            (Stage::Ask, none, Stage::Ask),
            (Stage::Ask, Conditions { may_ask: true, ..none }, Stage::Read),
            (Stage::Read, none, Stage::Read),
            (Stage::Read, Conditions { read_taken: true, ..none }, Stage::Slot),
            (Stage::Slot, Conditions { slot_error: true, ..none }, Stage::Slot),
            (Stage::Slot, slot, Stage::Words),
            (Stage::Slot, Conditions { slot_error: true, ..slot }, Stage::Done),
            (Stage::Words, none, Stage::Words),
            (Stage::Words, last_word, Stage::Ask),
            (Stage::Words, Conditions { is_last_page: true, ..last_word }, Stage::Done),
            (Stage::Words, Conditions { misaligned: true, ..last_word }, Stage::Done),
            (Stage::Done, none, Stage::Done),
            (Stage::Done, Conditions { may_end: true, ..none }, Stage::Idle),
        ] {
            assert_eq!(next_stage(stage, is), next, "{stage:?} {is:?}");
        }
    }

    #[test]
    fn pages_fit_up_to_the_last_entry_and_the_first_byte_is_in_the_first_page() {
        let mask = 0xffff;
        for (count, entry, offset, status, detail) in [
            (0, 0, 0, CommandStatus::Success, 0),
            (1, 16_383, 0xffff, CommandStatus::Success, 0),
            (2, 16_383, 0, CommandStatus::RangeNotAllowed, AT_LENGTH),
            (16_384, 0, 0, CommandStatus::Success, 0),
            (16_385, 0, 0, CommandStatus::RangeNotAllowed, AT_LENGTH),
            (1 << COUNT_BITS, 0, 0, CommandStatus::RangeNotAllowed, AT_LENGTH),
            (1, 0, 0x1_0000, CommandStatus::ValueNotAllowed, AT_OFFSET),
            (2, 16_383, 0x1_0000, CommandStatus::ValueNotAllowed, AT_OFFSET),
        ] {
            let found = check(bits(count), bits(entry), bits(offset), bits(mask));
            let expected = Outcome { status: bits(status as u64), detail: bits(detail) };
            assert_eq!(found, expected, "{count} {entry} {offset:x}");
        }
    }

    #[test]
    fn a_region_begins_with_its_size_its_entry_and_its_offset() {
        let (entry, log2, offset) = (5u64, 13u64, 0x123u64);
        let address = first_byte(bits(entry << log2), bits(offset), bits(log2));
        assert_eq!(address, bits(1 << 63 | 1 << 58 | entry << log2 | offset));
    }
}
