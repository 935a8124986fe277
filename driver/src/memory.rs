//! Memory that CPU and card share, and the only unsafe code of the driver.
//!
//! Nobody holds a plain reference to memory while somebody else may write it. Three kinds of access keep that rule:
//!
//! | who | how | what keeps it apart |
//! |---|---|---|
//! | driver, rings | words of 64 bits, atomic ([`Words`]) | phase bits and doorbells, see [`crate::ring`] |
//! | application, payload | copies, atomic, or slices while a piece is on loan to it | the [`Loan`] |
//! | a card in this process | [`DeviceView`], copies, atomic | refuses what is on loan to the application |
//!
//! A card behind a bus is outside of Rust's memory model; it touches payload only between the post of a buffer and its
//! completion, when no slice of it exists.

use crate::function::{DmaSegment, Function, FunctionError};
use crate::ring::Words;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a page: the unit of allocation and alignment.
pub const PAGE_BYTES: usize = 4096;

const WORD_BYTES: usize = 8;
const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;

/// What memory is for. It decides how parts of a word are written: in a ring a word is always written whole, in payload
/// a neighbour's byte is never touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Rings and whatever else only driver and card know.
    Ring,
    /// Buffers of the application.
    Payload,
}

#[repr(C, align(4096))]
struct Page([AtomicU64; PAGE_WORDS]);

/// Whole pages that can be mapped for the card.
pub struct Memory {
    pages: Box<[Page]>,
    purpose: Purpose,
    /// Stretches of payload that the application holds as slices.
    loans: Mutex<Vec<Lent>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lent {
    range: Range<usize>,
    exclusive: bool,
}

/// Why a card in this process may not do what it tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The access leaves the memory.
    #[error("{length} bytes at {offset} leave a memory of {bytes} bytes")]
    OutOfRange {
        /// First byte.
        offset: usize,
        /// Bytes of the access.
        length: usize,
        /// Bytes of the memory.
        bytes: usize,
    },
    /// The application holds these bytes: they belong to no posted work.
    #[error("{length} bytes at {offset} are in the hands of the application: no posted work covers them")]
    Lent {
        /// First byte.
        offset: usize,
        /// Bytes of the access.
        length: usize,
    },
}

impl Memory {
    /// Makes zeroed memory of at least `bytes` bytes, in whole pages, and at least one.
    pub fn zeroed(bytes: usize, purpose: Purpose) -> Self {
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        let page = || Page([const { AtomicU64::new(0) }; PAGE_WORDS]);
        Self {
            pages: std::iter::repeat_with(page).take(pages).collect(),
            purpose,
            loans: Mutex::new(Vec::new()),
        }
    }

    /// Size, a multiple of [`PAGE_BYTES`].
    pub fn bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// Where the memory begins for the CPU; a multiple of [`PAGE_BYTES`].
    pub fn address(&self) -> *const u8 {
        self.pages.as_ptr().cast()
    }

    /// Gives a card that lives in this process its way to the memory.
    pub fn device_view(self: &Arc<Self>) -> DeviceView {
        DeviceView { memory: Arc::clone(self) }
    }

    /// Copies payload out of memory that the card may be writing at the same time.
    ///
    /// # Panics
    ///
    /// If the range leaves the memory, or part of it is on exclusive loan.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let _loans = self.admit(offset, into.len(), false).expect("nothing of it is on loan");
        self.copy_out(offset, into);
    }

    /// Copies payload into memory that the card may be accessing at the same time.
    ///
    /// # Panics
    ///
    /// If the range leaves the memory, or part of it is on loan.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        let _loans = self.admit(offset, from.len(), true).expect("nothing of it is on loan");
        self.copy_in(offset, from);
    }

    /// Takes bytes as a slice for reading.
    ///
    /// # Panics
    ///
    /// If the range leaves the memory, or is on exclusive loan.
    pub(crate) fn lend(&self, range: Range<usize>) -> Loan<'_> {
        self.enter(&range, false);
        Loan { memory: self, range }
    }

    /// Takes bytes as a slice for writing.
    ///
    /// # Panics
    ///
    /// If the range leaves the memory, or is on loan.
    pub(crate) fn lend_mut(&self, range: Range<usize>) -> LoanMut<'_> {
        self.enter(&range, true);
        LoanMut { memory: self, range }
    }

    /// Checks an access, and keeps loans from being made while it lasts.
    fn admit(
        &self,
        offset: usize,
        length: usize,
        write: bool,
    ) -> Result<MutexGuard<'_, Vec<Lent>>, AccessError> {
        let bytes = self.bytes();
        let end = offset.checked_add(length).filter(|&end| end <= bytes);
        let end = end.ok_or(AccessError::OutOfRange { offset, length, bytes })?;
        let loans = self.lock();
        let held = |lent: &Lent| overlap(&lent.range, &(offset..end)) && (write || lent.exclusive);
        if loans.iter().any(held) { Err(AccessError::Lent { offset, length }) } else { Ok(loans) }
    }

    fn enter(&self, range: &Range<usize>, exclusive: bool) {
        assert!(range.start <= range.end && range.end <= self.bytes(), "a loan leaves its memory");
        assert!(self.purpose == Purpose::Payload, "rings are not lent");
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
        // A panic elsewhere leaves the list of loans as it was, which is right.
        self.loans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.pages[index / PAGE_WORDS].0[index % PAGE_WORDS]
    }

    /// One byte of payload, atomic by itself.
    #[expect(
        unsafe_code,
        reason = "words are also accessed byte by byte where payload begins or ends inside one"
    )]
    fn byte(&self, offset: usize) -> &AtomicU8 {
        assert!(offset < self.bytes(), "a byte outside of its memory");
        // SAFETY: The byte lies inside `pages`, which live as long as `self` and consist of `UnsafeCell`s only. All
        // accesses through shared references are atomic; slices exist only while the byte is on loan, and then nobody
        // calls this for it: the application's copies and the device's view both take the lock and look.
        unsafe { AtomicU8::from_ptr(self.address().add(offset).cast_mut()) }
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        for (place, part) in word_parts(offset, into.len()) {
            let target = &mut into[place - offset..][..part];
            if part == WORD_BYTES {
                target.copy_from_slice(&self.word(place / WORD_BYTES).load(Ordering::Relaxed).to_ne_bytes());
            } else if self.purpose == Purpose::Ring {
                let word = self.word(place / WORD_BYTES).load(Ordering::Relaxed).to_ne_bytes();
                target.copy_from_slice(&word[place % WORD_BYTES..][..part]);
            } else {
                for (index, byte) in target.iter_mut().enumerate() {
                    *byte = self.byte(place + index).load(Ordering::Relaxed);
                }
            }
        }
    }

    /// Copies upwards; the last piece is a release, so that a phase in the last byte announces all that stands before it.
    fn copy_in(&self, offset: usize, from: &[u8]) {
        let end = offset + from.len();
        for (place, part) in word_parts(offset, from.len()) {
            let source = &from[place - offset..][..part];
            let order = if place + part == end { Ordering::Release } else { Ordering::Relaxed };
            if let Ok(word) = source.try_into() {
                self.word(place / WORD_BYTES).store(u64::from_ne_bytes(word), order);
            } else if self.purpose == Purpose::Ring {
                let merge = |old: u64| {
                    let mut word = old.to_ne_bytes();
                    word[place % WORD_BYTES..][..part].copy_from_slice(source);
                    Some(u64::from_ne_bytes(word))
                };
                // The closure never declines, so the update never fails.
                let _ = self.word(place / WORD_BYTES).fetch_update(order, Ordering::Relaxed, merge);
            } else {
                for (index, byte) in source.iter().enumerate() {
                    self.byte(place + index).store(*byte, order);
                }
            }
        }
    }
}

/// Cuts a range into whole words and the parts of words at its ends: offset and length of each piece.
fn word_parts(offset: usize, length: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = offset + length;
    let mut place = offset;
    std::iter::from_fn(move || {
        let part = (WORD_BYTES - place % WORD_BYTES).min(end - place);
        let piece = (place, part);
        place += part;
        (part != 0).then_some(piece)
    })
}

fn overlap(left: &Range<usize>, right: &Range<usize>) -> bool {
    left.start < right.end && right.start < left.end
}

impl Words for Memory {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.word(word).load(order)
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.word(word).store(value, order);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes, {:?})", self.bytes(), self.purpose)
    }
}

/// Bytes on loan to the application, for reading.
pub struct Loan<'a> {
    memory: &'a Memory,
    range: Range<usize>,
}

/// Bytes on loan to the application, for reading and writing.
pub struct LoanMut<'a> {
    memory: &'a Memory,
    range: Range<usize>,
}

impl Deref for Loan<'_> {
    type Target = [u8];

    #[expect(unsafe_code, reason = "the application reads payload in place")]
    fn deref(&self) -> &[u8] {
        // SAFETY: The range lies inside the memory, as `enter` has checked. While it is on loan, `enter` admits no
        // exclusive loan of the same bytes, and the device's view no write.
        unsafe { std::slice::from_raw_parts(self.memory.address().add(self.range.start), self.range.len()) }
    }
}

impl Deref for LoanMut<'_> {
    type Target = [u8];

    #[expect(unsafe_code, reason = "the application reads payload in place")]
    fn deref(&self) -> &[u8] {
        // SAFETY: As for `deref_mut`, and the borrow of `self` excludes that one.
        unsafe { std::slice::from_raw_parts(self.memory.address().add(self.range.start), self.range.len()) }
    }
}

impl DerefMut for LoanMut<'_> {
    #[expect(unsafe_code, reason = "the application writes payload in place")]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: The range lies inside the memory, as `enter` has checked, and the memory consists of `UnsafeCell`s, so
        // that writing through an address from a shared reference is allowed. While it is on exclusive loan, `enter`
        // admits no other loan of the same bytes, and the device's view no access.
        unsafe {
            let start = self.memory.address().add(self.range.start).cast_mut();
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

/// The way of a card that lives in this process to mapped memory. It may be used from any thread.
///
/// The driver moves every buffer away from the application while the card may use it. A card that reads or writes
/// something else is refused here if the application is just looking, which shows a fault of the card.
#[derive(Clone, Debug)]
pub struct DeviceView {
    memory: Arc<Memory>,
}

impl DeviceView {
    /// Size of the memory.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Reads what the host has written.
    ///
    /// # Errors
    ///
    /// If the range leaves the memory, or the application holds part of it for writing.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), AccessError> {
        let _loans = self.memory.admit(offset, into.len(), false)?;
        self.memory.copy_out(offset, into);
        Ok(())
    }

    /// Writes, upwards, the last byte no earlier than those before it.
    ///
    /// # Errors
    ///
    /// If the range leaves the memory, or the application holds part of it.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), AccessError> {
        let _loans = self.memory.admit(offset, from.len(), true)?;
        self.memory.copy_in(offset, from);
        Ok(())
    }
}

/// Memory together with its mapping, which ends before the memory does.
pub(crate) struct Mapping {
    function: Arc<dyn Function>,
    memory: Arc<Memory>,
    device_address: u64,
}

impl Mapping {
    /// Allocates and maps.
    pub(crate) fn new(
        function: &Arc<dyn Function>,
        bytes: usize,
        purpose: Purpose,
    ) -> Result<Self, FunctionError> {
        let memory = function.allocate(bytes, purpose)?;
        let device_address = function.map(&memory)?;
        Ok(Self { function: Arc::clone(function), memory, device_address })
    }

    /// Allocates and maps memory that need not be contiguous for the card, and gives what the card sees.
    pub(crate) fn scattered(
        function: &Arc<dyn Function>,
        bytes: usize,
        purpose: Purpose,
    ) -> Result<(Self, Vec<DmaSegment>), FunctionError> {
        let memory = function.allocate(bytes, purpose)?;
        let segments = function.map_scattered(&memory)?;
        let device_address = segments.first().map_or(0, |segment| segment.device_address);
        Ok((Self { function: Arc::clone(function), memory, device_address }, segments))
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn device_address(&self) -> u64 {
        self.device_address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.function.unmap(self.device_address).is_err() {
            // The card may still reach the memory, so nobody else gets it.
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:#x}", self.memory, self.device_address)
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
            assert!((0..given / 8).all(|word| memory.load(word, Ordering::Relaxed) == 0));
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
            // The neighbours inside the same word are the card's.
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
    #[should_panic(expected = "two loans")]
    fn bytes_are_lent_for_writing_once() {
        let memory = Memory::zeroed(64, Purpose::Payload);
        let _first = memory.lend(0..8);
        let _second = memory.lend_mut(7..9);
    }

    proptest! {
        #[test]
        fn copies_touch_exactly_their_range(
            offset in 0usize..64, data in proptest::collection::vec(any::<u8>(), 0..64), ring: bool,
        ) {
            let purpose = if ring { Purpose::Ring } else { Purpose::Payload };
            let memory = Arc::new(Memory::zeroed(128, purpose));
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
