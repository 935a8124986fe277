//! Memory that CPU and card share. This module and its pages hold the `unsafe` code that the objects of the driver rest on.
//!
//! No reference to plain bytes exists while another party may write them. Three kinds of access keep this rule:
//!
//! | party | access | exclusion |
//! |---|---|---|
//! | driver, rings | atomic 64-bit words ([`Words`]) | phase bits and doorbells, see [`crate::ring`]; rings are never lent |
//! | application, payload | atomic copies, or slices while the bytes are on loan | [`Loan`], [`LoanMut`] |
//! | simulated card in this process | atomic copies through a [`DeviceView`] | refused while the bytes are on loan |
//!
//! The [`Purpose`] of memory never changes: only [`Purpose::Ring`] is accessed in words, and only [`Purpose::Payload`] is
//! lent. So a ring cannot write under a slice, even if a back end hands out the same memory twice: each use of memory checks
//! its purpose, and overlapping loans are refused.
//!
//! Memory of the application that it has registered is payload like any other: the application has moved it here, or, if it has
//! not, answers for its own accesses: see [`UserMemory`] and [`raw::Buffer`](crate::raw::Buffer).
//!
//! A card on a bus is outside Rust's memory model. It accesses payload only between the post of a request and its
//! completion, when no slice of that payload exists.

use crate::page::{FilePages, PAGE_WORDS, Page};
pub use crate::page::{PAGE_BYTES, PageSize};
use crate::ring::Words;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::user_memory::UserMemory;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD_BYTES: usize = 8;

/// Use of a block of memory. It decides how a part of a 64-bit word is accessed: in a ring as a read-modify-write of the
/// whole word, in payload byte by byte, so that neighbouring bytes are never touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Rings, and other memory that only driver and card access.
    Ring,
    /// Buffers that the application reads and writes.
    Payload,
}

/// Where the pages of memory are.
enum Pages {
    /// In this process alone.
    Own(Box<[Page]>),
    /// In a file that another process can map.
    File(FilePages),
    /// Those that hold memory of the application, and whatever else.
    User(UserMemory),
}

/// Part of a memory file.
#[derive(Clone, Copy, Debug)]
pub struct FilePart<'a> {
    /// The file, whose size is sealed.
    pub file: BorrowedFd<'a>,
    /// Offset of the part, in bytes: a multiple of [`PAGE_BYTES`].
    pub offset: u64,
}

/// Page-aligned memory that can be mapped for the card.
pub struct Memory {
    pages: Pages,
    /// Words of a ring as the model checker knows them, in place of `pages`.
    #[cfg(loom)]
    modelled: Vec<crate::sync::AtomicU64>,
    purpose: Purpose,
    /// Ranges of payload that the application holds as slices.
    loans: Mutex<Vec<Lent>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lent {
    range: Range<usize>,
    exclusive: bool,
}

/// Reason why an access of a simulated card is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The access reaches beyond the end of the memory, or outside of what the application has registered of its pages.
    #[error("{length} bytes at offset {offset} are not all in the memory that was mapped, of {bytes} bytes")]
    OutOfRange {
        /// Offset of the access, in bytes.
        offset: usize,
        /// Length of the access, in bytes.
        length: usize,
        /// Size of the memory, in bytes.
        bytes: usize,
    },
    /// The application holds these bytes as a slice, so no posted request covers them.
    #[error(
        "{length} bytes at offset {offset} are on loan to the application: no posted request covers them"
    )]
    Lent {
        /// Offset of the access, in bytes.
        offset: usize,
        /// Length of the access, in bytes.
        length: usize,
    },
}

impl Pages {
    fn bytes(&self) -> usize {
        match self {
            Self::Own(pages) => size_of_val(&**pages),
            Self::File(pages) => pages.bytes(),
            Self::User(memory) => memory.page_bytes(),
        }
    }
}

impl Memory {
    /// Allocates zeroed memory. The size is `bytes` rounded up to whole pages, at least one page.
    ///
    /// # Panics
    ///
    /// If the process cannot have so much; [`Self::try_zeroed`] returns an error then.
    pub fn zeroed(bytes: usize, purpose: Purpose) -> Self {
        Self::try_zeroed(bytes, purpose).expect("the process has so much memory")
    }

    /// As [`Self::zeroed`].
    ///
    /// # Errors
    ///
    /// If the process cannot have so much.
    pub fn try_zeroed(bytes: usize, purpose: Purpose) -> io::Result<Self> {
        let page = || Page([const { AtomicU64::new(0) }; PAGE_WORDS]);
        let count = bytes.div_ceil(PAGE_BYTES).max(1);
        let mut pages = Vec::new();
        pages.try_reserve_exact(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        pages.extend(std::iter::repeat_with(page).take(count));
        Ok(Self::new(Pages::Own(pages.into_boxed_slice()), purpose))
    }

    /// Allocates zeroed memory as [`Self::zeroed`] does, in a file that another process can map.
    ///
    /// # Errors
    ///
    /// If the operating system refuses it.
    pub fn in_file(bytes: usize, purpose: Purpose) -> io::Result<Self> {
        Self::in_file_of(bytes, purpose, PageSize::Base)
    }

    /// As [`Self::in_file`], in pages of a size, to whole numbers of which the size is rounded up.
    ///
    /// # Errors
    ///
    /// If the operating system refuses it, for example because it has no free pages of this size.
    pub fn in_file_of(bytes: usize, purpose: Purpose, page_size: PageSize) -> io::Result<Self> {
        Ok(Self::new(Pages::File(FilePages::zeroed(bytes, page_size)?), purpose))
    }

    /// Payload in memory of the application.
    pub(crate) fn of_user(memory: UserMemory) -> Self {
        Self::new(Pages::User(memory), Purpose::Payload)
    }

    /// Returns whether it is memory of the application.
    pub(crate) fn is_of_user(&self) -> bool {
        matches!(self.pages, Pages::User(_))
    }

    /// Gives the memory of the application back; `None` if it was not of the application.
    pub(crate) fn into_user(self) -> Option<UserMemory> {
        if let Pages::User(memory) = self.pages { Some(memory) } else { None }
    }

    fn new(pages: Pages, purpose: Purpose) -> Self {
        Self {
            #[cfg(loom)]
            modelled: match purpose {
                Purpose::Ring => {
                    (0..pages.bytes() / WORD_BYTES).map(|_| crate::sync::AtomicU64::new(0)).collect()
                }
                Purpose::Payload => Vec::new(),
            },
            pages,
            purpose,
            loans: Mutex::new(Vec::new()),
        }
    }

    /// Size in bytes, a multiple of [`PAGE_BYTES`].
    pub fn bytes(&self) -> usize {
        self.pages.bytes()
    }

    /// The bytes that may be accessed: all, unless it is memory of the application, which may begin and end inside a page.
    pub fn range(&self) -> Range<usize> {
        match &self.pages {
            Pages::User(memory) => memory.range(),
            pages => 0..pages.bytes(),
        }
    }

    /// The part of a file that the memory is, or `None` if it is in this process alone.
    pub fn file(&self) -> Option<FilePart<'_>> {
        match &self.pages {
            Pages::Own(_) => None,
            Pages::File(pages) => Some(FilePart { file: pages.file(), offset: 0 }),
            Pages::User(memory) => {
                memory.file().map(|(file, offset)| FilePart { file: file.file.as_fd(), offset })
            }
        }
    }

    /// Size of the pages that it is made of.
    pub fn page_size(&self) -> PageSize {
        match &self.pages {
            Pages::Own(_) => PageSize::Base,
            Pages::File(pages) => pages.page_size(),
            Pages::User(memory) => memory.page_size(),
        }
    }

    /// Virtual address of the first byte, a multiple of [`PAGE_BYTES`].
    pub fn address(&self) -> *const u8 {
        match &self.pages {
            Pages::Own(pages) => pages.as_ptr().cast(),
            Pages::File(pages) => pages.as_ptr().cast(),
            Pages::User(memory) => memory.page_address(),
        }
    }

    /// Returns the access of a simulated card in this process to the memory.
    pub fn device_view(self: &Arc<Self>) -> DeviceView {
        DeviceView { memory: Arc::clone(self) }
    }

    /// Purpose that the memory was allocated for.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Returns the words of a ring.
    ///
    /// # Panics
    ///
    /// If the memory is payload, which may be on loan.
    pub(crate) fn words(&self) -> RingWords<'_> {
        assert!(self.purpose == Purpose::Ring, "only rings are accessed in words");
        RingWords(self)
    }

    /// Copies bytes out of memory that the card may be writing at the same time.
    ///
    /// # Panics
    ///
    /// If the range reaches beyond the memory, or part of it is on exclusive loan.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let _loans = self.admit(offset, into.len(), false).expect("nothing of it is on loan");
        self.copy_out(offset, into);
    }

    /// Copies bytes into memory that the card may be accessing at the same time.
    ///
    /// # Panics
    ///
    /// If the range reaches beyond the memory, or part of it is on loan.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        let _loans = self.admit(offset, from.len(), true).expect("nothing of it is on loan");
        self.copy_in(offset, from);
    }

    /// Lends bytes as a slice for reading.
    ///
    /// # Panics
    ///
    /// If the range reaches beyond the memory, or overlaps an exclusive loan.
    pub(crate) fn lend(&self, range: Range<usize>) -> Loan<'_> {
        self.enter(&range, false);
        Loan { memory: self, range }
    }

    /// Lends bytes as a slice for reading and writing.
    ///
    /// # Panics
    ///
    /// If the range reaches beyond the memory, or overlaps another loan.
    pub(crate) fn lend_mut(&self, range: Range<usize>) -> LoanMut<'_> {
        self.enter(&range, true);
        LoanMut { memory: self, range }
    }

    /// Checks an access against the loans. No loan begins while the returned guard exists.
    fn admit(
        &self,
        offset: usize,
        length: usize,
        write: bool,
    ) -> Result<MutexGuard<'_, Vec<Lent>>, AccessError> {
        let (bytes, range) = (self.bytes(), self.range());
        let end = offset.checked_add(length).filter(|&end| range.start <= offset && end <= range.end);
        let end = end.ok_or(AccessError::OutOfRange { offset, length, bytes })?;
        let loans = self.lock();
        let held = |lent: &Lent| overlap(&lent.range, &(offset..end)) && (write || lent.exclusive);
        if loans.iter().any(held) { Err(AccessError::Lent { offset, length }) } else { Ok(loans) }
    }

    fn enter(&self, range: &Range<usize>, exclusive: bool) {
        let all = self.range();
        let is_inside = all.start <= range.start && range.start <= range.end && range.end <= all.end;
        assert!(is_inside, "a loan lies inside its memory");
        assert!(self.purpose == Purpose::Payload, "only payload is lent");
        let mut loans = self.lock();
        let clash = loans.iter().any(|lent| overlap(&lent.range, range) && (exclusive || lent.exclusive));
        assert!(!clash, "two loans of the same bytes");
        loans.push(Lent { range: range.clone(), exclusive });
    }

    fn leave(&self, range: &Range<usize>, exclusive: bool) {
        let mut loans = self.lock();
        let place = loans.iter().position(|lent| lent.range == *range && lent.exclusive == exclusive);
        if let Some(place) = place {
            loans.swap_remove(place);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Lent>> {
        lock(&self.loans)
    }

    #[cfg(loom)]
    fn modelled_word(&self, index: usize) -> Option<&crate::sync::AtomicU64> {
        self.modelled.get(index)
    }

    /// No word belongs to a model checker.
    #[cfg(not(loom))]
    fn modelled_word(&self, _: usize) -> Option<&AtomicU64> {
        None
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        let pages: &[Page] = match &self.pages {
            Pages::Own(pages) => pages,
            Pages::File(pages) => pages,
            Pages::User(memory) => return memory.word(index),
        };
        &pages[index / PAGE_WORDS].0[index % PAGE_WORDS]
    }

    fn load(&self, index: usize, order: Ordering) -> u64 {
        match self.modelled_word(index) {
            Some(word) => word.load(order),
            None => self.word(index).load(order),
        }
    }

    fn store(&self, index: usize, value: u64, order: Ordering) {
        match self.modelled_word(index) {
            Some(word) => word.store(value, order),
            None => self.word(index).store(value, order),
        }
    }

    /// Replaces a word by a function of it.
    fn update(&self, index: usize, order: Ordering, change: impl Fn(u64) -> u64) {
        let change = |old| Some(change(old));
        // The closure always returns `Some`, so the update never fails.
        let _ = match self.modelled_word(index) {
            Some(word) => word.fetch_update(order, Ordering::Relaxed, change),
            None => self.word(index).fetch_update(order, Ordering::Relaxed, change),
        };
    }

    /// One byte of payload as an atomic.
    #[expect(unsafe_code, reason = "payload that begins or ends inside a word is accessed byte by byte")]
    fn byte(&self, offset: usize) -> &AtomicU8 {
        if let Pages::User(memory) = &self.pages {
            return memory.byte(offset);
        }
        assert!(offset < self.bytes(), "a byte lies inside its memory");
        // SAFETY: The byte lies inside `pages`, which live as long as `self` and consist of `UnsafeCell`s only. All
        // accesses through shared references are atomic. A slice of the byte exists only while it is on loan, and this
        // function is not called for a byte on loan: the callers of `copy_out` and `copy_in` hold the guard of `admit`,
        // which refuses it.
        unsafe { AtomicU8::from_ptr(self.address().add(offset).cast_mut()) }
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        for (place, part) in word_parts(offset, into.len()) {
            let target = &mut into[place - offset..][..part];
            if part == WORD_BYTES {
                target.copy_from_slice(&self.load(place / WORD_BYTES, Ordering::Relaxed).to_ne_bytes());
            } else if self.purpose == Purpose::Ring {
                let word = self.load(place / WORD_BYTES, Ordering::Relaxed).to_ne_bytes();
                target.copy_from_slice(&word[place % WORD_BYTES..][..part]);
            } else {
                for (index, byte) in target.iter_mut().enumerate() {
                    *byte = self.byte(place + index).load(Ordering::Relaxed);
                }
            }
        }
    }

    /// Copies in ascending order. The last store is a release, so that a phase bit in the last byte publishes all bytes
    /// before it.
    fn copy_in(&self, offset: usize, from: &[u8]) {
        let end = offset + from.len();
        for (place, part) in word_parts(offset, from.len()) {
            let source = &from[place - offset..][..part];
            let order = if place + part == end { Ordering::Release } else { Ordering::Relaxed };
            if let Ok(word) = source.try_into() {
                self.store(place / WORD_BYTES, u64::from_ne_bytes(word), order);
            } else if self.purpose == Purpose::Ring {
                self.update(place / WORD_BYTES, order, |old| {
                    let mut word = old.to_ne_bytes();
                    word[place % WORD_BYTES..][..part].copy_from_slice(source);
                    u64::from_ne_bytes(word)
                });
            } else {
                for (index, byte) in source.iter().enumerate() {
                    self.byte(place + index).store(*byte, order);
                }
            }
        }
    }
}

/// Splits a range into whole words and the parts of words at its ends. Yields the offset and length of each part.
fn word_parts(offset: usize, length: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = offset + length;
    let mut place = offset;
    std::iter::from_fn(move || {
        let part = (WORD_BYTES - place % WORD_BYTES).min(end - place);
        let item = (place, part);
        place += part;
        (part != 0).then_some(item)
    })
}

fn overlap(left: &Range<usize>, right: &Range<usize>) -> bool {
    left.start < right.end && right.start < left.end
}

/// Words of a ring, which is never lent. [`Memory::words`] is the only constructor.
pub(crate) struct RingWords<'a>(&'a Memory);

impl Words for RingWords<'_> {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.0.load(word, order)
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.0.store(word, value, order);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes, {:?})", self.bytes(), self.purpose)
    }
}

/// Payload that the application reads as a slice. Dropping it ends the loan.
pub struct Loan<'a> {
    memory: &'a Memory,
    range: Range<usize>,
}

/// Payload that the application reads and writes as a slice. Dropping it ends the loan.
pub struct LoanMut<'a> {
    memory: &'a Memory,
    range: Range<usize>,
}

impl Deref for Loan<'_> {
    type Target = [u8];

    #[expect(unsafe_code, reason = "the application reads payload in place")]
    fn deref(&self) -> &[u8] {
        // SAFETY: `enter` has checked that the range lies inside the memory. During the loan `enter` refuses an
        // exclusive loan of the same bytes, and `admit` refuses a write.
        unsafe {
            std::slice::from_raw_parts(self.memory.address().wrapping_add(self.range.start), self.range.len())
        }
    }
}

impl Deref for LoanMut<'_> {
    type Target = [u8];

    #[expect(unsafe_code, reason = "the application reads payload in place")]
    fn deref(&self) -> &[u8] {
        // SAFETY: As for `deref_mut`, whose slice the borrow of `self` excludes.
        unsafe {
            std::slice::from_raw_parts(self.memory.address().wrapping_add(self.range.start), self.range.len())
        }
    }
}

impl DerefMut for LoanMut<'_> {
    #[expect(unsafe_code, reason = "the application writes payload in place")]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `enter` has checked that the range lies inside the memory. The memory consists of `UnsafeCell`s, so
        // writing through an address from a shared reference is allowed. During the exclusive loan `enter` refuses any
        // other loan of the same bytes, and `admit` refuses any access.
        unsafe {
            let start = self.memory.address().wrapping_add(self.range.start).cast_mut();
            std::slice::from_raw_parts_mut(start, self.range.len())
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.memory.leave(&self.range, false);
    }
}

impl Drop for LoanMut<'_> {
    fn drop(&mut self) {
        self.memory.leave(&self.range, true);
    }
}

impl fmt::Debug for Loan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

impl fmt::Debug for LoanMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

/// Access of a simulated card in this process to mapped memory, from any thread.
///
/// A posted request takes its memory away from the application. So an access to bytes that the application holds as a
/// slice is a fault of the card, and is refused.
#[derive(Clone, Debug)]
pub struct DeviceView {
    memory: Arc<Memory>,
}

impl DeviceView {
    /// Size of the memory in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Copies `into.len()` bytes out of the memory.
    ///
    /// # Errors
    ///
    /// [`AccessError`] if the range reaches beyond the memory, or the application holds part of it for writing.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), AccessError> {
        let _loans = self.memory.admit(offset, into.len(), false)?;
        self.memory.copy_out(offset, into);
        Ok(())
    }

    /// Copies `from` into the memory in ascending order: an observer of the last byte also sees all bytes before it.
    ///
    /// # Errors
    ///
    /// [`AccessError`] if the range reaches beyond the memory, or the application holds part of it.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), AccessError> {
        let _loans = self.memory.admit(offset, from.len(), true)?;
        self.memory.copy_in(offset, from);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_is_zeroed_whole_pages() {
        for (asked, given) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
            let memory = Memory::zeroed(asked, Purpose::Ring);
            assert_eq!(memory.bytes(), given);
            assert_eq!(memory.address() as usize % PAGE_BYTES, 0);
            assert!((0..given / 8).all(|word| memory.words().load(word, Ordering::Relaxed) == 0));
        }
    }

    #[test]
    fn a_card_may_not_touch_what_the_application_holds() {
        let memory = Arc::new(Memory::zeroed(64, Purpose::Payload));
        let view = memory.device_view();
        let refused = |offset, length| Err(AccessError::Lent { offset, length });
        {
            let mut mine = memory.lend_mut(8..13);
            mine.copy_from_slice(b"hello");
            assert_eq!(view.read(12, &mut [0; 4]), refused(12, 4));
            assert_eq!(view.write(0, &[0; 9]), refused(0, 9));
            // Neighbouring bytes of the same word belong to the card.
            assert_eq!(view.write(13, &[7; 3]), Ok(()));
        }
        {
            let mine = memory.lend(8..13);
            let mut seen = [0; 8];
            assert_eq!(view.read(8, &mut seen), Ok(()));
            assert_eq!(view.write(12, &[0]), refused(12, 1));
            assert_eq!((&mine[..], &seen), (&b"hello"[..], b"hello\x07\x07\x07"));
        }
        assert_eq!(view.write(8, b"world"), Ok(()));
        assert_eq!(&*memory.lend(8..16), b"world\x07\x07\x07");
    }

    #[test]
    fn an_access_beyond_the_end_is_refused() {
        let memory = Arc::new(Memory::zeroed(4096, Purpose::Ring));
        let view = memory.device_view();
        assert_eq!(view.write(4095, &[1]), Ok(()));
        let error = view.write(4095, &[1, 1]).unwrap_err();
        assert_eq!(error, AccessError::OutOfRange { offset: 4095, length: 2, bytes: 4096 });
        assert!(view.read(usize::MAX, &mut [0; 2]).is_err());
    }

    #[test]
    #[should_panic(expected = "only rings are accessed in words")]
    fn payload_is_not_accessed_in_words() {
        Memory::zeroed(64, Purpose::Payload).words();
    }

    #[test]
    #[should_panic(expected = "only payload is lent")]
    fn a_ring_is_not_lent() {
        Memory::zeroed(64, Purpose::Ring).lend(0..8);
    }

    #[test]
    #[should_panic(expected = "two loans")]
    fn bytes_are_lent_for_writing_once() {
        let memory = Memory::zeroed(64, Purpose::Payload);
        let _first = memory.lend(0..8);
        let _second = memory.lend_mut(7..9);
    }

    proptest! {
        #[test]
        fn copies_touch_exactly_their_range(
            offset in 0usize..64, data in proptest::collection::vec(any::<u8>(), 0..64), ring: bool, file: bool,
        ) {
            let purpose = if ring { Purpose::Ring } else { Purpose::Payload };
            let memory = if file { Memory::in_file(128, purpose).unwrap() } else { Memory::zeroed(128, purpose) };
            let memory = Arc::new(memory);
            let view = memory.device_view();
            view.write(0, &[0xa5; 128]).unwrap();
            view.write(offset, &data).unwrap();
            let mut expected = [0xa5; 128];
            expected[offset..offset + data.len()].copy_from_slice(&data);
            let mut whole = [0; 128];
            view.read(0, &mut whole).unwrap();
            prop_assert_eq!(whole, expected);
            let mut part = vec![0; data.len()];
            memory.read(offset, &mut part);
            prop_assert_eq!(part, data);
        }
    }
}
