//! Order: payload, then CQE, then EQE, then interrupt, each visible before the next (design decision 11).
//!
//! The host reports each write when software and later reads can see it, and each interrupt when the card sends it. The owner
//! of rings and payload buffers registers them here.
//!
//! 1. CQEs and EQEs are written completely and once, in the slot and with the phase bit of their index.
//! 2. An entry that software has not consumed, according to its doorbells, is not overwritten.
//! 3. An EQE that announces CQEs up to an index becomes visible after them.
//! 4. An interrupt is sent only if an EQE of its vector is visible that no interrupt has announced, or that was not consumed
//!    when the queue was armed.
//! 5. The payload of a work request is not written after its CQE is visible. Memory that several requests have, as programs of the
//!    verbs do it, is written for those that have not completed.
use super::trail::{Moment, Trail};
use super::{Log, Rule};
use rnic_layout::admin::{ANSWER_BYTES, Answer};
use rnic_layout::doorbell::{self, CompletionDoorbell, EventDoorbell};
use rnic_layout::limits::DOORBELL_PAGE_BYTES;
use rnic_layout::queue::completion::Cqe;
use rnic_layout::queue::event::{Eqe, EventKind};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bits of the free-running index of a ring.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// Kind of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// Completion queue.
    Completion,
    /// Event queue, which raises an interrupt.
    Event {
        /// Interrupt vector.
        vector: u8,
    },
}

impl RingKind {
    fn entry_bytes(self) -> u64 {
        match self {
            RingKind::Completion => Cqe::BYTES as u64,
            RingKind::Event { .. } => Eqe::BYTES as u64,
        }
    }

    fn name(self) -> &'static str {
        match self {
            RingKind::Completion => "completion queue",
            RingKind::Event { .. } => "event queue",
        }
    }

    fn is_same(self, other: RingKind) -> bool {
        matches!(self, RingKind::Completion) == matches!(other, RingKind::Completion)
    }
}

/// A ring that the card writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Kind of the ring.
    pub kind: RingKind,
    /// Number of the queue.
    pub number: u32,
    /// Device address of the first entry.
    pub address: u64,
    /// log2 of the number of entries.
    pub entries_log2: u8,
    /// Doorbell page to which the queue belongs.
    pub doorbell_page: u16,
}

impl Ring {
    /// Returns whether a write of `length` bytes touches the ring.
    fn touches(&self, address: u64, length: u64) -> bool {
        overlaps(self.address, self.kind.entry_bytes() << self.entries_log2, address, length)
    }
}

/// A ring that a queue has had before it was resized, in which entries may still become visible.
#[derive(Clone, Copy, Debug)]
struct Former {
    ring: Ring,
    /// First index that has become visible in a later ring.
    later: Option<u32>,
}

/// State of a ring. Indices run freely modulo 2^24.
#[derive(Clone, Debug)]
struct Progress {
    ring: Ring,
    /// Rings that a queue has had before it was resized, oldest first.
    former: Vec<Former>,
    /// Number of visible entries, without a gap from the first one on.
    visible: u32,
    /// Indices of entries that are visible after a gap.
    ahead: BTreeSet<u32>,
    /// Number of entries that software has consumed, according to its doorbells.
    consumed: u32,
    /// Event queues: entries that were visible at the last interrupt.
    announced: u32,
    /// Event queues: consumer indices of the doorbells that armed the queue and have not had their interrupt, oldest first.
    armed_at: VecDeque<u32>,
}

/// Where an entry is written: to which of the watched queues, and to which of its rings, counted from the oldest.
#[derive(Clone, Copy, Debug)]
struct Place {
    queue: usize,
    ring: usize,
}

/// A work request whose payload the card places in memory.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// `None` for receives from a shared queue, which are identified by their `wr_id` alone.
    qp_number: Option<u32>,
    tag: u64,
    first: u64,
    length: u64,
    is_completed: bool,
}

/// Monitor of one card.
#[derive(Clone, Debug, Default)]
pub struct OrderMonitor {
    rings: Vec<Progress>,
    work: Vec<Work>,
    /// Low halves of doorbells that are written in two halves, by offset.
    low_halves: BTreeMap<u64, u64>,
    /// Address and length of the ring of answers to commands, and the answers that have become visible.
    answer_ring: (u64, u64),
    answers: Vec<Answer>,
    trail: Trail,
}

impl OrderMonitor {
    /// Watches a ring from its first entry on. Replaces a ring of the same kind and number.
    pub fn watch(&mut self, ring: Ring) {
        self.forget(ring.kind, ring.number);
        self.rings.push(Progress {
            ring,
            former: Vec::new(),
            visible: 0,
            ahead: BTreeSet::new(),
            consumed: 0,
            announced: 0,
            armed_at: VecDeque::new(),
        });
    }

    /// A completion queue moves to another ring. Entries that are written before may be visible later, in the former one.
    pub fn resize(&mut self, number: u32, address: u64, entries_log2: u8) {
        let mut rings = self.rings.iter_mut();
        let is_it = |at: &&mut Progress| at.ring.kind == RingKind::Completion && at.ring.number == number;
        if let Some(at) = rings.find(is_it) {
            let ring = Ring { address, entries_log2, ..at.ring };
            at.former.push(Former { ring: std::mem::replace(&mut at.ring, ring), later: None });
        }
    }

    /// Watches the ring of answers to commands.
    pub fn watch_answers(&mut self, address: u64, entries_log2: u8) {
        self.answer_ring = (address, (ANSWER_BYTES as u64) << entries_log2);
    }

    /// Takes the answers that have become visible since the last call, in order.
    #[inline]
    pub fn take_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    /// Stops watching a ring.
    pub fn forget(&mut self, kind: RingKind, number: u32) {
        self.rings.retain(|progress| !(progress.ring.kind.is_same(kind) && progress.ring.number == number));
    }

    /// Stops watching all rings, as the card was reset.
    pub fn forget_all(&mut self) {
        let trail = std::mem::take(&mut self.trail);
        *self = OrderMonitor { trail, ..OrderMonitor::default() };
    }

    /// Changes the interrupt vector of an event queue.
    pub fn change_vector(&mut self, number: u32, vector: u8) {
        let kind = RingKind::Event { vector };
        for progress in &mut self.rings {
            if progress.ring.kind.is_same(kind) && progress.ring.number == number {
                progress.ring.kind = kind;
            }
        }
    }

    /// Registers the destination of a work request's payload, in device addresses, until its completion.
    pub fn expect_payload(&mut self, qp_number: Option<u32>, tag: u64, first: u64, length: u64) {
        self.work.retain(|work| !(work.is_completed && overlaps(work.first, work.length, first, length)));
        self.work.push(Work { qp_number, tag, first, length, is_completed: false });
    }

    /// Forgets payload in memory that software takes back, and rings that queues have left. Returns the number of a queue that may still
    /// write to such a ring: not all entries up to the first one in a later ring are visible.
    #[must_use]
    pub fn release(&mut self, address: u64, length: u64) -> Option<u32> {
        self.work.retain(|work| !overlaps(work.first, work.length, address, length));
        let mut writer = None;
        for at in &mut self.rings {
            let visible = at.visible;
            at.former.retain(|former| {
                let is_released = former.ring.touches(address, length);
                let has_left = former.later.is_some_and(|later| is_before(later, visible));
                if is_released && !has_left {
                    writer = Some(former.ring.number);
                }
                !is_released
            });
        }
        writer
    }

    /// Visible entries of a ring since it was registered, modulo 2^24.
    pub fn entries(&self, kind: RingKind, number: u32) -> Option<u32> {
        let mut rings = self.rings.iter();
        rings.find(|at| at.ring.kind.is_same(kind) && at.ring.number == number).map(|at| at.visible)
    }

    /// Trail of events, for measurements.
    pub fn trail_mut(&mut self) -> &mut Trail {
        &mut self.trail
    }

    /// The card has delivered the last word of a write.
    pub fn handed(&mut self, time_ps: u64, address: u64, length: u64) {
        if !self.trail.is_running() {
            return;
        }
        let mut into = self.rings.iter().map(|at| at.ring).filter(|ring| ring.touches(address, length));
        match into.next().map(|ring| ring.kind) {
            None => self.trail.note(time_ps, Moment::PayloadHanded),
            Some(RingKind::Completion) => self.trail.note(time_ps, Moment::CompletionHanded),
            Some(RingKind::Event { .. }) => {}
        }
    }

    /// A write has become visible.
    pub fn visible(&mut self, time_ps: u64, address: u64, bytes: &[u8], log: &mut Log) {
        let length = bytes.len() as u64;
        for work in &self.work {
            if work.is_completed
                && overlaps(work.first, work.length, address, length)
                && !self.is_expected(address, length)
            {
                log.report(time_ps, Rule::Order, || {
                    let of = work.qp_number.map_or("any QP".into(), |number| format!("QP {number:#x}"));
                    let tag = work.tag;
                    format!("payload of {of}, tag {tag:#x} is written at {address:#x} after its completion")
                });
            }
        }
        if overlaps(self.answer_ring.0, self.answer_ring.1, address, length) {
            self.answers
                .extend(bytes.chunks_exact(ANSWER_BYTES).filter_map(|bytes| Answer::parse(bytes).ok()));
        }
        let mut moment = Moment::PayloadVisible;
        for index in 0..self.rings.len() {
            let at = &self.rings[index];
            let mut rings = at.former.iter().map(|former| former.ring).chain([at.ring]).enumerate();
            if let Some((place, ring)) = rings.find(|(_, ring)| ring.touches(address, length)) {
                self.entries_visible(Place { queue: index, ring: place }, ring, time_ps, address, bytes, log);
                moment = match ring.kind {
                    RingKind::Completion => Moment::CompletionVisible,
                    RingKind::Event { .. } => Moment::EventVisible,
                };
            }
        }
        self.trail.note(time_ps, moment);
    }

    /// Returns whether a request that has not completed has all of this memory.
    fn is_expected(&self, address: u64, length: u64) -> bool {
        let end = address.saturating_add(length);
        let mut open = self.work.iter().filter(|work| !work.is_completed);
        open.any(|work| work.first <= address && end <= work.first.saturating_add(work.length))
    }

    fn entries_visible(
        &mut self,
        into: Place,
        ring: Ring,
        time_ps: u64,
        address: u64,
        bytes: &[u8],
        log: &mut Log,
    ) {
        let size = ring.kind.entry_bytes();
        let offset = address.wrapping_sub(ring.address);
        let is_whole = address >= ring.address
            && offset.is_multiple_of(size)
            && (bytes.len() as u64).is_multiple_of(size)
            && offset + bytes.len() as u64 <= size << ring.entries_log2;
        if !is_whole {
            log.report(time_ps, Rule::Order, || {
                let (name, number) = (ring.kind.name(), ring.number);
                format!("{name} {number}: {} bytes at {address:#x} are not whole entries", bytes.len())
            });
            return;
        }
        for (position, entry) in bytes.chunks_exact(size as usize).enumerate() {
            let slot = (offset / size) as u32 + position as u32;
            match ring.kind {
                RingKind::Completion => self.completion_visible(into, time_ps, slot, entry, log),
                RingKind::Event { .. } => self.event_visible(into, time_ps, slot, entry, log),
            }
        }
    }

    fn completion_visible(&mut self, into: Place, time_ps: u64, slot: u32, entry: &[u8], log: &mut Log) {
        let number = self.rings[into.queue].ring.number;
        match Cqe::parse(entry) {
            Ok(completion) => {
                self.rings[into.queue].add(time_ps, into.ring, slot, completion.phase, log);
                for work in &mut self.work {
                    let is_of_it = work.qp_number.is_none_or(|number| number == completion.qp_number);
                    work.is_completed |= is_of_it && work.tag == completion.wr_id;
                }
            }
            Err(error) => log.report(time_ps, Rule::Order, || {
                format!("completion queue {number}, slot {slot}: {error:?}")
            }),
        }
    }

    fn event_visible(&mut self, into: Place, time_ps: u64, slot: u32, entry: &[u8], log: &mut Log) {
        let number = self.rings[into.queue].ring.number;
        let event = match Eqe::parse(entry) {
            Ok(event) => event,
            Err(error) => {
                log.report(time_ps, Rule::Order, || format!("event queue {number}, slot {slot}: {error:?}"));
                return;
            }
        };
        self.rings[into.queue].add(time_ps, into.ring, slot, event.phase, log);
        if event.kind != EventKind::Completion {
            return;
        }
        let visible = self.entries(RingKind::Completion, event.object_number);
        if let Some(visible) = visible.filter(|&visible| is_before(visible, event.detail & INDEX_MASK)) {
            log.report(time_ps, Rule::Order, || {
                let (queue, detail) = (event.object_number, event.detail);
                format!(
                    "an event announces {detail} completions of queue {queue}, of which {visible} are visible"
                )
            });
        }
    }

    /// The card sends an interrupt.
    pub fn interrupt(&mut self, time_ps: u64, vector: u8, log: &mut Log) {
        self.trail.note(time_ps, Moment::Interrupt);
        let (mut is_known, mut is_due) = (false, false);
        for at in &mut self.rings {
            if at.ring.kind != (RingKind::Event { vector }) {
                continue;
            }
            is_known = true;
            let was_unread = at.armed_at.pop_front_if(|armed_at| is_before(*armed_at, at.visible)).is_some();
            is_due |= at.visible != at.announced || was_unread;
            at.announced = at.visible;
        }
        if is_known && !is_due {
            log.report(time_ps, Rule::Order, || format!("interrupt {vector} comes without a visible event"));
        }
    }

    /// Software writes to a doorbell page; `offset` is the offset in the BAR. Two halves of one offset are joined. The card
    /// itself must refuse a doorbell for a ring of another page.
    pub fn doorbell(&mut self, offset: u64, value: u64, strobe: u8) {
        let offset = offset & !7;
        let value = match strobe {
            0xff => value,
            0x0f => {
                self.low_halves.insert(offset, value & 0xffff_ffff);
                return;
            }
            0xf0 => match self.low_halves.remove(&offset) {
                Some(low) => value & !0xffff_ffff | low,
                None => return,
            },
            _ => return,
        };
        let (page, in_page) = (offset / DOORBELL_PAGE_BYTES, (offset % DOORBELL_PAGE_BYTES) as u32);
        let hears = |ring: &Ring, number| ring.number == number && u64::from(ring.doorbell_page) == page;
        let bytes = value.to_le_bytes();
        if in_page == doorbell::COMPLETION.offset
            && let Ok(doorbell) = CompletionDoorbell::parse(&bytes)
        {
            let mut rings = self.rings.iter_mut();
            let ring = rings
                .find(|at| at.ring.kind == RingKind::Completion && hears(&at.ring, doorbell.object_number));
            if let Some(at) = ring {
                at.consumed = doorbell.consumer_index;
            }
        }
        if in_page == doorbell::EVENT.offset
            && let Ok(doorbell) = EventDoorbell::parse(&bytes)
        {
            let kind = RingKind::Event { vector: 0 };
            let mut rings = self.rings.iter_mut();
            let ring = rings.find(|at| at.ring.kind.is_same(kind) && hears(&at.ring, doorbell.object_number));
            if let Some(at) = ring {
                at.consumed = doorbell.consumer_index;
                if doorbell.arm {
                    at.arm(doorbell.consumer_index);
                }
            }
        }
    }
}

/// Doorbells that arm an event queue, of which the interrupts may still come: all of the newest consumer index, and of older ones.
const ARMS_MAX: usize = 64;
const OLD_ARMS_MAX: usize = 2;

impl Progress {
    /// Software arms an event queue. The queue is armed once however often that happens; but a doorbell that crosses an EQE on
    /// its way, or comes after it, finds it unread, and then makes an interrupt besides the one that the EQE has made. Over
    /// vfio-user, many doorbells that a driver has written before it saw the EQE may come at once.
    fn arm(&mut self, consumer_index: u32) {
        let is_newer = self.armed_at.back().is_some_and(|&newest| newest != consumer_index);
        let most = if is_newer { OLD_ARMS_MAX } else { ARMS_MAX - 1 };
        let old = self.armed_at.len().saturating_sub(most);
        self.armed_at.drain(..old);
        self.armed_at.push_back(consumer_index);
    }

    /// An entry has become visible in a slot of a former ring or of this one, counted from the oldest, with a phase bit.
    fn add(&mut self, time_ps: u64, place: usize, slot: u32, phase: bool, log: &mut Log) {
        let ring = self.former.get(place).map_or(self.ring, |former| former.ring);
        let entries = 1_u32 << ring.entries_log2;
        // First index with this slot from the gap on; a ring has less than half of all indices.
        let index = self.visible.wrapping_add(slot.wrapping_sub(self.visible) & (entries - 1)) & INDEX_MASK;
        let expected_phase = (index >> ring.entries_log2) & 1 == 0;
        let report = |log: &mut Log, what: &str| {
            log.report(time_ps, Rule::Order, || {
                format!("{} {}, index {index}, slot {slot}: {what}", ring.kind.name(), ring.number)
            });
        };
        if phase != expected_phase || self.ahead.contains(&index) {
            report(log, "the entry has the phase of another pass, or is written twice");
            return;
        }
        if index.wrapping_sub(self.consumed) & INDEX_MASK >= entries {
            report(log, "the entry overwrites one that software has not consumed");
        }
        if self.former.get(place).and_then(|former| former.later).is_some_and(|later| is_before(later, index))
        {
            report(log, "the queue has left this ring");
        }
        for former in self.former.iter_mut().take(place) {
            former.later =
                Some(former.later.map_or(index, |later| if is_before(index, later) { index } else { later }));
        }
        self.ahead.insert(index);
        while self.ahead.remove(&self.visible) {
            self.visible = (self.visible + 1) & INDEX_MASK;
        }
    }
}

/// Returns whether a free-running index comes before another.
fn is_before(index: u32, other: u32) -> bool {
    let distance = other.wrapping_sub(index) & INDEX_MASK;
    distance != 0 && distance < 1 << (INDEX_BITS - 1)
}

fn overlaps(first: u64, length: u64, other: u64, other_length: u64) -> bool {
    first < other.saturating_add(other_length) && other < first.saturating_add(length)
}

#[cfg(test)]
mod tests;
