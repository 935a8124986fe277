//! Order: payload, then completion, then event, then interrupt, each visible before the next (design decision 11).
//!
//! The host tells every write here when software and later reads can see it, and every interrupt when the card hands it
//! over. Rings and payload are told by whoever made them.
//!
//! 1. Ring entries are written whole, each once, in the place and with the phase of its index.
//! 2. No entry is written over one that software has not given back, as far as its doorbells tell.
//! 3. An event that announces completions up to an index is visible after them.
//! 4. An interrupt comes when an event of its vector is visible that no interrupt has announced, or that was unread when the
//!    queue was armed.
//! 5. Payload of work that was told is not written after the completion of that work is visible.
use super::trail::{Moment, Trail};
use super::{Log, Rule};
use rnic_layout::doorbell::{self, CompletionDoorbell, EventDoorbell};
use rnic_layout::limits::DOORBELL_PAGE_BYTES;
use rnic_layout::queue::completion::Cqe;
use rnic_layout::queue::event::{Eqe, EventKind};
use std::collections::BTreeSet;

/// Indices of rings run free in so many bits.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// What a ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// Completions.
    Completion,
    /// Events, announced by an interrupt vector.
    Event {
        /// The vector.
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
    /// What it holds.
    pub kind: RingKind,
    /// Number of the queue.
    pub number: u32,
    /// Device address.
    pub address: u64,
    /// Entries, as a power of two.
    pub entries_log2: u8,
    /// The page whose doorbells it hears.
    pub doorbell_page: u16,
}

impl Ring {
    /// Whether a write of `length` bytes goes to it.
    fn touches(&self, address: u64, length: u64) -> bool {
        overlaps(self.address, self.kind.entry_bytes() << self.entries_log2, address, length)
    }
}

/// A ring and how far it has come. Indices run free modulo 2^24.
#[derive(Clone, Debug)]
struct Progress {
    ring: Ring,
    /// Entries that are visible, without a gap from the first on.
    visible: u32,
    /// Indices that are visible beyond a gap.
    ahead: BTreeSet<u32>,
    /// Entries that software has given back, as far as it told.
    consumed: u32,
    /// Event queues: entries that were visible at the last interrupt.
    announced: u32,
    /// Event queues: where software stood when it armed the queue last.
    armed_at: Option<u32>,
}

/// Work whose payload the card places.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// None if receives are shared: a tag is enough to know them by.
    qp_number: Option<u32>,
    tag: u64,
    first: u64,
    length: u64,
    is_completed: bool,
}

/// The monitor of one card.
#[derive(Clone, Debug, Default)]
pub struct OrderMonitor {
    rings: Vec<Progress>,
    work: Vec<Work>,
    /// The low half of a doorbell that is written in two, and where.
    low_half: Option<(u64, u64)>,
    trail: Trail,
}

impl OrderMonitor {
    /// Watches a ring from its first entry on, in place of one of the same kind and number.
    pub fn watch(&mut self, ring: Ring) {
        self.forget(ring.kind, ring.number);
        self.rings.push(Progress {
            ring,
            visible: 0,
            ahead: BTreeSet::new(),
            consumed: 0,
            announced: 0,
            armed_at: None,
        });
    }

    /// Stops watching a ring.
    pub fn forget(&mut self, kind: RingKind, number: u32) {
        self.rings.retain(|progress| !(progress.ring.kind.is_same(kind) && progress.ring.number == number));
    }

    /// Stops watching everything: the card was reset.
    pub fn forget_all(&mut self) {
        let trail = std::mem::take(&mut self.trail);
        *self = OrderMonitor { trail, ..OrderMonitor::default() };
    }

    /// Changes the vector of an event queue.
    pub fn change_vector(&mut self, number: u32, vector: u8) {
        let kind = RingKind::Event { vector };
        for progress in &mut self.rings {
            if progress.ring.kind.is_same(kind) && progress.ring.number == number {
                progress.ring.kind = kind;
            }
        }
    }

    /// Tells where the payload of some work goes, in device addresses, until its completion.
    pub fn expect_payload(&mut self, qp_number: Option<u32>, tag: u64, first: u64, length: u64) {
        self.work.retain(|work| !(work.is_completed && overlaps(work.first, work.length, first, length)));
        self.work.push(Work { qp_number, tag, first, length, is_completed: false });
    }

    /// Entries of a ring that are visible, counted from when it was watched, modulo 2^24.
    pub fn entries(&self, kind: RingKind, number: u32) -> Option<u32> {
        let mut rings = self.rings.iter();
        rings.find(|at| at.ring.kind.is_same(kind) && at.ring.number == number).map(|at| at.visible)
    }

    /// What whoever measures wants to know.
    pub fn trail_mut(&mut self) -> &mut Trail {
        &mut self.trail
    }

    /// The last word of a write was taken from the card.
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

    /// A write is visible from now on.
    pub fn visible(&mut self, time_ps: u64, address: u64, bytes: &[u8], log: &mut Log) {
        let length = bytes.len() as u64;
        for work in &self.work {
            if work.is_completed && overlaps(work.first, work.length, address, length) {
                log.report(time_ps, Rule::Order, || {
                    let of = work.qp_number.map_or("any QP".into(), |number| format!("QP {number:#x}"));
                    let tag = work.tag;
                    format!("payload of {of}, tag {tag:#x} is written at {address:#x} after its completion")
                });
            }
        }
        let mut moment = Moment::PayloadVisible;
        for index in 0..self.rings.len() {
            let ring = self.rings[index].ring;
            if ring.touches(address, length) {
                self.entries_visible(index, time_ps, address, bytes, log);
                moment = match ring.kind {
                    RingKind::Completion => Moment::CompletionVisible,
                    RingKind::Event { .. } => Moment::EventVisible,
                };
            }
        }
        self.trail.note(time_ps, moment);
    }

    fn entries_visible(&mut self, index: usize, time_ps: u64, address: u64, bytes: &[u8], log: &mut Log) {
        let ring = self.rings[index].ring;
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
                RingKind::Completion => self.completion_visible(index, time_ps, slot, entry, log),
                RingKind::Event { .. } => self.event_visible(index, time_ps, slot, entry, log),
            }
        }
    }

    fn completion_visible(&mut self, index: usize, time_ps: u64, slot: u32, entry: &[u8], log: &mut Log) {
        let number = self.rings[index].ring.number;
        match Cqe::parse(entry) {
            Ok(completion) => {
                self.rings[index].add(time_ps, slot, completion.phase, log);
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

    fn event_visible(&mut self, index: usize, time_ps: u64, slot: u32, entry: &[u8], log: &mut Log) {
        let number = self.rings[index].ring.number;
        let event = match Eqe::parse(entry) {
            Ok(event) => event,
            Err(error) => {
                log.report(time_ps, Rule::Order, || format!("event queue {number}, slot {slot}: {error:?}"));
                return;
            }
        };
        self.rings[index].add(time_ps, slot, event.phase, log);
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

    /// The card hands an interrupt over.
    pub fn interrupt(&mut self, time_ps: u64, vector: u8, log: &mut Log) {
        self.trail.note(time_ps, Moment::Interrupt);
        let (mut is_known, mut is_due) = (false, false);
        for at in &mut self.rings {
            if at.ring.kind != (RingKind::Event { vector }) {
                continue;
            }
            is_known = true;
            let was_unread = at.armed_at.take_if(|armed_at| is_before(*armed_at, at.visible)).is_some();
            is_due |= at.visible != at.announced || was_unread;
            at.announced = at.visible;
        }
        if is_known && !is_due {
            log.report(time_ps, Rule::Order, || format!("interrupt {vector} comes without a visible event"));
        }
    }

    /// Software writes to a doorbell page: `offset` counts from the beginning of the BAR. Two halves are joined. What is for a
    /// ring of another page is the card's to refuse.
    pub fn doorbell(&mut self, offset: u64, value: u64, strobe: u8) {
        let value = match (strobe, self.low_half.take()) {
            (0xff, _) => value,
            (0x0f, _) => {
                self.low_half = Some((offset & !7, value & 0xffff_ffff));
                return;
            }
            (0xf0, Some((place, low))) if place == offset & !7 => value & !0xffff_ffff | low,
            _ => return,
        };
        let offset = offset & !7;
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
                    at.armed_at = Some(doorbell.consumer_index);
                }
            }
        }
    }
}

impl Progress {
    /// An entry is visible in a slot, with a phase.
    fn add(&mut self, time_ps: u64, slot: u32, phase: bool, log: &mut Log) {
        let entries = 1_u32 << self.ring.entries_log2;
        // The first index from the gap on that has this slot; a ring is shorter than half of all indices.
        let index = self.visible.wrapping_add(slot.wrapping_sub(self.visible) & (entries - 1)) & INDEX_MASK;
        let expected_phase = (index >> self.ring.entries_log2) & 1 == 0;
        let ring = self.ring;
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
            report(log, "the entry is written over one that was not given back");
        }
        self.ahead.insert(index);
        while self.ahead.remove(&self.visible) {
            self.visible = (self.visible + 1) & INDEX_MASK;
        }
    }
}

/// Whether a free-running index stands before another.
fn is_before(index: u32, other: u32) -> bool {
    let distance = other.wrapping_sub(index) & INDEX_MASK;
    distance != 0 && distance < 1 << (INDEX_BITS - 1)
}

fn overlaps(first: u64, length: u64, other: u64, other_length: u64) -> bool {
    first < other.saturating_add(other_length) && other < first.saturating_add(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::doorbell::Arm;
    use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
    use rnic_layout::queue::event::AsyncEvent;

    const COMPLETIONS: Ring =
        Ring { kind: RingKind::Completion, number: 5, address: 0x10000, entries_log2: 6, doorbell_page: 0 };
    const EVENTS: Ring = Ring {
        kind: RingKind::Event { vector: 3 },
        number: 1,
        address: 0x20000,
        entries_log2: 6,
        doorbell_page: 1,
    };

    struct Bench {
        monitor: OrderMonitor,
        log: Log,
    }

    impl Bench {
        fn new() -> Bench {
            let mut monitor = OrderMonitor::default();
            monitor.watch(COMPLETIONS);
            monitor.watch(EVENTS);
            Bench { monitor, log: Log::new("card0") }
        }

        fn completion(&mut self, index: u32) {
            self.completion_as(index, (index >> 6) & 1 == 0, 0);
        }

        fn completion_as(&mut self, index: u32, phase: bool, tag: u64) {
            let completion = Cqe {
                wr_id: tag,
                length: 0,
                immediate: [0; 4],
                source_qp: 0,
                qp_number: 9,
                consumer_index: 0,
                opcode: CompletionOpcode::Send,
                status: CompletionStatus::Success,
                vendor_error: 0,
                with_immediate: false,
                with_invalidate: false,
                with_grh: false,
                solicited: false,
                phase,
            };
            let address = COMPLETIONS.address + u64::from(index % 64) * 32;
            self.monitor.visible(1, address, &completion.to_bytes().unwrap(), &mut self.log);
        }

        fn event(&mut self, index: u32, detail: u32) {
            let event = Eqe {
                object_number: 5,
                detail,
                kind: EventKind::Completion,
                code: AsyncEvent::CompletionQueueError,
                phase: (index >> 6) & 1 == 0,
            };
            let address = EVENTS.address + u64::from(index % 64) * 16;
            self.monitor.visible(1, address, &event.to_bytes().unwrap(), &mut self.log);
        }

        fn interrupt(&mut self) {
            self.monitor.interrupt(1, 3, &mut self.log);
        }

        fn arm(&mut self, consumer_index: u32) {
            let doorbell = EventDoorbell { object_number: 1, arm: true, consumer_index };
            let value = u64::from_le_bytes(doorbell.to_bytes().unwrap());
            self.monitor.doorbell(4096 + u64::from(doorbell::EVENT.offset), value, 0xff);
        }

        fn free(&mut self, page: u64, consumer_index: u32) {
            let doorbell = CompletionDoorbell { object_number: 5, arm: Arm::Keep, consumer_index };
            let value = u64::from_le_bytes(doorbell.to_bytes().unwrap());
            let offset = page * DOORBELL_PAGE_BYTES + u64::from(doorbell::COMPLETION.offset);
            self.monitor.doorbell(offset, value, 0x0f);
            self.monitor.doorbell(offset + 4, value, 0xf0);
        }

        #[track_caller]
        fn is_good(&self) {
            assert_eq!(self.log.violations(), []);
        }

        #[track_caller]
        fn is_violated(&mut self, text: &str) {
            let violations = self.log.take();
            assert!(violations.len() == 1 && violations[0].rule == Rule::Order, "{violations:?}");
            assert!(violations[0].text.contains(text), "{}", violations[0].text);
        }
    }

    #[test]
    fn an_event_comes_after_its_completions_and_before_its_interrupt() {
        let mut bench = Bench::new();
        bench.completion(0);
        bench.completion(1);
        bench.event(0, 2);
        bench.interrupt();
        bench.is_good();
        bench.event(1, 3);
        bench.is_violated("announces 3 completions of queue 5, of which 2 are visible");
        bench.interrupt();
        bench.is_good();
        bench.interrupt();
        bench.is_violated("interrupt 3 comes without a visible event");
    }

    #[test]
    fn arming_with_unread_events_is_worth_one_interrupt() {
        let mut bench = Bench::new();
        bench.event(0, 0);
        bench.interrupt();
        bench.arm(0);
        bench.interrupt();
        bench.is_good();
        bench.interrupt();
        bench.is_violated("without");
        bench.arm(1);
        bench.interrupt();
        bench.is_violated("without");
    }

    #[test]
    fn completions_that_become_visible_out_of_order_leave_a_gap() {
        let mut bench = Bench::new();
        bench.completion(1);
        bench.event(0, 1);
        bench.is_violated("of which 0 are visible");
        bench.completion(0);
        bench.event(1, 2);
        bench.is_good();
        assert_eq!(bench.monitor.entries(RingKind::Completion, 5), Some(2));
    }

    #[test]
    fn phases_turn_with_the_passes_and_entries_are_given_back_first() {
        let mut bench = Bench::new();
        (0..64).for_each(|index| bench.completion(index));
        bench.is_good();
        bench.completion(64);
        bench.is_violated("not given back");
        bench.free(0, 60);
        (65..124).for_each(|index| bench.completion(index));
        bench.is_good();
        // Nobody else gives them back.
        bench.free(1, 64);
        bench.completion(124);
        bench.is_violated("not given back");
        bench.completion_as(125, true, 0);
        bench.is_violated("phase of another pass");
    }

    #[test]
    fn entries_are_written_whole_and_once() {
        let mut bench = Bench::new();
        bench.monitor.visible(1, COMPLETIONS.address, &[0; 31], &mut bench.log);
        bench.is_violated("whole");
        bench.monitor.visible(1, COMPLETIONS.address - 16, &[0; 32], &mut bench.log);
        bench.is_violated("whole");
        bench.completion(1);
        bench.completion(1);
        bench.is_violated("twice");
        bench.monitor.forget(RingKind::Completion, 5);
        bench.completion(1);
        bench.is_good();
    }

    #[test]
    fn payload_comes_before_the_completion_of_its_work() {
        let mut bench = Bench::new();
        bench.monitor.expect_payload(Some(9), 77, 0x5000, 100);
        bench.monitor.visible(1, 0x5000, &[1; 64], &mut bench.log);
        bench.completion_as(0, true, 77);
        bench.is_good();
        bench.monitor.visible(2, 0x5063, &[1; 64], &mut bench.log);
        bench.is_violated("payload of QP 0x9, tag 0x4d");
        bench.monitor.visible(2, 0x5064, &[1; 64], &mut bench.log);
        bench.monitor.expect_payload(Some(9), 78, 0x5000, 100);
        bench.monitor.visible(2, 0x5000, &[1; 64], &mut bench.log);
        bench.is_good();
    }
}
