use super::*;
use crate::messages::{BURST_SLOTS, SLOT_BITS, SegmentPlan, WINDOW, WqeHeader};
use crate::testing::event;
use crate::vendor_error;
use crate::wqe::TWO_SLOTS;
use num_bigint::BigUint;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};
use rnic_layout::queue::send::WqeOpcode;
use rnic_layout::state::{PathMtu, QpState};
use rnic_messages::read::read_place;
use std::collections::{HashMap, VecDeque};

const QUEUES: usize = 3;
/// Index of the first queue pair; the others follow.
const FIRST: usize = 1024 - QUEUES;

/// Model of the block for a queue pair.
#[derive(Clone, Copy, Default)]
struct Model {
    event: SetupEvent,
    slot_index: u16,
    psn: u32,
    count: u16,
    reads: u64,
    tail: u64,
    tail_count: u64,
    home_lap: bool,
    is_reused: bool,
    is_held: bool,
    careful: u8,
    waits_for_long: bool,
    follows_local: bool,
    has_ended: bool,
    has_begun: bool,
    /// Units of a message as estimated, log2, and by how many messages were longer.
    weight: u8,
    balance: i32,
}

/// Model of wqe_fetch and the host for a queue pair.
#[derive(Clone, Default)]
struct Ring {
    generation: u8,
    is_active: bool,
    slots: Vec<Bits<SLOT_BITS>>,
    fetched: usize,
    is_stopped: bool,
    /// It stops after one burst.
    is_single: bool,
    is_overrun: bool,
}

/// Model of acknowledge for a queue pair.
#[derive(Clone, Default)]
struct Chain {
    issued: VecDeque<u64>,
    /// The last PSN of each, and whether it is an outstanding READ.
    last: VecDeque<(u64, bool)>,
    issued_count: u16,
    retired: Retired,
    head: u64,
    head_count: u64,
}

fn is_active(state: QpState) -> bool {
    matches!(state, QpState::ReadyToSend | QpState::Error | QpState::SendQueueError)
}

/// Requests slots as wqe_fetch does: the last one overlaps, if there are more.
fn burst(number: usize, ring: &mut Ring, weight: u64, unreadable: f64, random: &mut Random) -> Vec<WqeSlot> {
    let has_more = ring.slots.len() > ring.fetched + BURST_SLOTS as usize;
    let is_single = std::mem::take(&mut ring.is_single) && !ring.is_overrun && has_more;
    ring.is_stopped |= is_single;
    let first = WqeSlot {
        queue_pair: bits((FIRST + number) as u64),
        generation: bits(ring.generation.into()),
        index: bits(ring.fetched as u64 & 0xffff),
        is_single,
        weight: bits(weight),
        charge: bits(random.random_range(0..=128)),
        ..WqeSlot::default()
    };
    if ring.is_overrun {
        ring.is_stopped = true;
        return vec![WqeSlot { is_overrun: true, ends_burst: true, ..first }];
    }
    let available = ring.slots.len() - ring.fetched;
    let count = available.min(BURST_SLOTS as usize);
    let mut slots = Vec::new();
    for position in 0..count {
        let is_last = position + 1 == count;
        let index = ring.fetched + position;
        let mut slot = first;
        slot.index = bits(index as u64 & 0xffff);
        slot.has_second = !is_last;
        slot.ends_burst = is_last;
        slot.ends_queue = is_last && available <= 8;
        slot.is_unreadable = random.random_bool(unreadable);
        slot.first = ring.slots[index];
        slot.second = if is_last { bits(0) } else { ring.slots[index + 1] };
        slots.push(slot);
    }
    ring.fetched += if available > 8 { count - 1 } else { count };
    slots
}

/// Expected outputs.
#[derive(Default)]
struct Expected {
    items: VecDeque<ParsedWqe>,
    turns: VecDeque<FetchResume>,
    begun: VecDeque<(usize, Begun)>,
    link: Option<Link>,
    takes_free: bool,
    stale: usize,
    held: usize,
    full_windows: usize,
    full_spans: usize,
    full_reads: usize,
    fenced: usize,
    /// Held as a message in error had left.
    failed: usize,
    /// Held before a LOCAL_INVALIDATE, and after it.
    local: [usize; 2],
    long: usize,
    /// Messages whose burst was counted as much lighter.
    heavy: usize,
    /// Bursts of kept_slots, and how often it has asked for more.
    served: usize,
    refilled: usize,
}

impl Model {
    /// What wqe_fetch is told when the queue pair goes on and kept_slots has answered.
    fn goes_on(&mut self, number: usize, is_asked: bool, answer: KeptAnswer, expected: &mut Expected) {
        if answer.refills {
            let turn = FetchResume { slot_index: answer.last, is_single: true, ..self.turn(number, true) };
            expected.turns.push_back(turn);
        } else if !answer.serves {
            let is_single = is_asked && self.careful > 0;
            self.careful = self.careful.saturating_sub(1);
            expected.turns.push_back(FetchResume { is_single, ..self.turn(number, true) });
        }
    }

    fn turn(&self, number: usize, resumes: bool) -> FetchResume {
        FetchResume {
            queue_pair: bits((FIRST + number) as u64),
            generation: self.event.generation,
            slot_index: bits(self.slot_index.into()),
            resumes,
            is_single: false,
            replays: false,
            lap: bits(0),
        }
    }

    fn begun(&self) -> Begun {
        Begun { count: bits(self.count.into()), is_held: self.is_held }
    }

    fn setup(&mut self, number: usize, event: SetupEvent, expected: &mut Expected) {
        self.event = event;
        match event.kind {
            SetupKind::Restart => {
                (self.slot_index, self.is_held, self.has_ended, self.has_begun) = (0, false, false, false);
                (self.waits_for_long, self.follows_local) = (false, false);
                (self.weight, self.balance) = (0, 0);
            }
            SetupKind::SendPsn => self.psn = event.psn.to_u64() as u32,
            SetupKind::Life => {
                self.is_held = false;
                let state = event.state.to_u64();
                self.waits_for_long &=
                    state == QpState::ReadyToSend as u64 || state == QpState::SendQueueDrain as u64;
                if [QpState::ReadyToSend as u64, QpState::Error as u64, QpState::SendQueueError as u64]
                    .contains(&state)
                    && !self.waits_for_long
                {
                    expected.turns.push_back(self.turn(number, true));
                }
            }
            _ => {}
        }
        expected.begun.push_back((number, self.begun()));
    }

    /// Takes a slot; `seen` was read when it was decided, `now` when it is taken. Says whether it is held.
    fn slot(
        &mut self,
        number: usize,
        slot: WqeSlot,
        seen: Retired,
        now: Retired,
        free: Option<u64>,
        expected: &mut Expected,
    ) -> bool {
        let is_current = slot.generation == self.event.generation;
        expected.stale += usize::from(!is_current);
        let state = self.event.state.to_u64();
        let flushes = state == QpState::Error as u64 || state == QpState::SendQueueError as u64;
        let is_double = slot.first.get_bit(TWO_SLOTS) && !slot.is_overrun && !slot.is_unreadable;
        let takes = is_current
            && (slot.is_overrun || slot.index == u64::from(self.slot_index))
            && !self.is_held
            && !self.waits_for_long
            && !self.has_ended
            && (state == QpState::ReadyToSend as u64 || flushes)
            && (slot.has_second || slot.ends_queue || slot.is_overrun);
        let empty = ParsedWqe {
            header: WqeHeader {
                queue_pair: slot.queue_pair,
                is_empty: true,
                ends_burst: true,
                ..WqeHeader::default()
            },
            plan: SegmentPlan { charge: slot.charge, ..SegmentPlan::default() },
            ..ParsedWqe::default()
        };
        let in_flight = (u64::from(self.count) - seen.count.to_u64()) & 0xffff;
        let home = (FIRST + number) as u64;
        let has_home = self.home_lap != seen.home_lap;
        let waits_for_long = self.is_reused && in_flight >= 8;
        let (block, is_home) = match (self.tail_count, has_home, free) {
            (0..8, ..) => (Some(self.tail), false),
            (_, true, _) => (Some(home).filter(|_| !waits_for_long), true),
            (_, _, Some(free)) => {
                expected.takes_free = true;
                (Some(1024 | free).filter(|_| !waits_for_long), false)
            }
            _ => (Some(self.tail).filter(|_| in_flight == 0), false),
        };
        // Its packets.
        let length = slot.first.get_bits::<32>(224).to_u64();
        let is_inline = slot.first.get_bit(8 + 3);
        let is_plain = !flushes && !slot.is_overrun && !slot.is_unreadable && !is_inline && length <= 1 << 31;
        let pmtu = 128 << self.event.path.path_mtu.to_u64();
        let opcode = slot.first.get_bits::<8>(0);
        let counts = !flushes && !slot.is_overrun && !slot.is_unreadable;
        let is_local = counts && opcode == WqeOpcode::LocalInvalidate as u64;
        let packets = if is_local {
            0
        } else if is_plain {
            length.div_ceil(pmtu).max(1)
        } else {
            1
        };
        let ahead = u64::from(self.psn).wrapping_sub(seen.una_psn.to_u64()) & 0xff_ffff;
        let is_span_full = !flushes && in_flight > 0 && (ahead >= 1 << 15 || ahead + packets > 1 << 23);
        let is_window_full = in_flight >= WINDOW;
        let is_read = counts && opcode == WqeOpcode::Read as u64;
        let read_atomic = self.event.path.read_atomic.to_u64();
        let is_open = is_read && read_atomic > 0;
        let open = self.reads.wrapping_sub(seen.reads.to_u64()) & 31;
        assert!(open <= 16, "{open} READs are open");
        let is_read_full = is_open && open >= read_atomic;
        let is_fenced = counts && slot.first.get_bit(8 + 2) && open > 0;
        let waits_for_all = counts && (is_local || self.follows_local) && in_flight > 0;
        let has_failed = counts && seen.has_failed;
        let waits =
            is_window_full || is_span_full || is_read_full || is_fenced || waits_for_all || has_failed;
        let Some(block) = block.filter(|_| takes && !waits) else {
            expected.takes_free = false;
            if slot.ends_burst {
                expected.items.push_back(empty);
            }
            if takes {
                expected.held += 1;
                expected.full_windows += usize::from(is_window_full);
                expected.full_spans += usize::from(is_span_full);
                expected.full_reads += usize::from(is_read_full);
                expected.fenced += usize::from(is_fenced);
                expected.failed += usize::from(has_failed);
                expected.local[0] += usize::from(is_local);
                expected.local[1] += usize::from(!is_local && waits_for_all);
                self.is_held = true;
                let awaits_reads = is_read_full || is_fenced;
                self.careful = if awaits_reads { 3 } else { 0 };
                expected.begun.push_back((number, self.begun()));
                let has_moved = now != seen;
                if !slot.is_kept {
                    let turn = self.turn(number, has_moved);
                    expected.turns.push_back(FetchResume { is_single: awaits_reads, ..turn });
                }
                self.is_held = !has_moved;
                self.careful = self.careful.saturating_sub(has_moved.into());
                if has_moved {
                    expected.begun.push_back((number, self.begun()));
                }
            }
            return takes;
        };
        if self.tail_count == 8 {
            expected.link = Some(Link { block: bits(self.tail), next: bits(block) });
            self.is_reused = block == self.tail;
            (self.tail, self.tail_count) = (block, 0);
            self.home_lap ^= is_home;
        }
        self.count = self.count.wrapping_add(1);
        let is_whole = is_double && slot.has_second;
        // Its length in units, rounded up to a power of two.
        let has_payload = is_plain && !is_read && !is_local;
        let units = if has_payload { length.div_ceil(128).next_power_of_two().clamp(1, 128) } else { 1 };
        let before = self.weight;
        self.balance += units as i32 - (1 << self.weight);
        if !(-64..64).contains(&self.balance) {
            let is_longer = self.balance > 0;
            self.weight = if is_longer { (self.weight + 1).min(7) } else { self.weight.saturating_sub(1) };
            self.balance = 0;
        }
        let is_heavy = units > 1 && u64::from(before.max(self.weight)) > slot.weight.to_u64() + 1;
        expected.heavy += usize::from(is_heavy);
        let is_long = is_heavy || (has_payload && length > 1 << 14);
        let item = ParsedWqe {
            header: WqeHeader {
                queue_pair: slot.queue_pair,
                generation: self.event.generation,
                is_empty: false,
                epoch: bits(0),
                is_replay: false,
                is_first: !self.has_begun,
                ends_burst: slot.ends_burst,
                is_open,
                last_psn: bits((u64::from(self.psn) + packets).wrapping_sub(1) & 0xff_ffff),
                pool_slot: bits(block << 3 | self.tail_count),
                message_count: bits(self.count.into()),
                next_slot: bits(
                    self.slot_index
                        .wrapping_add(if slot.is_overrun { 0 } else { 1 + u16::from(is_whole) })
                        .into(),
                ),
            },
            plan: SegmentPlan {
                first_psn: bits(self.psn.into()),
                is_continued: false,
                is_long,
                charge: slot.charge,
                read_place: read_place(self.event.read_share, bits(self.reads & 15)),
                path_mtu: self.event.path.path_mtu,
                domain: self.event.path.domain,
            },
            skipped_packets: bits(0),
            needs_ack: self.tail_count == 7
                || is_double
                || !slot.has_second
                || slot.second.get_bits::<8>(0) == WqeOpcode::LocalInvalidate as u64,
            two_slots: is_whole,
            is_flushed: flushes,
            reason: bits(match () {
                () if slot.is_overrun => vendor_error::OVERRUN,
                () if slot.is_unreadable => vendor_error::UNREADABLE,
                () if is_double && !is_whole => vendor_error::HALF_WQE,
                () => 0,
            }),
            signal_all: self.event.path.signal_all,
            is_reliable: true,
            first: slot.first,
            second: slot.second,
        };
        expected.items.push_back(item);
        self.slot_index = item.header.next_slot.to_u64() as u16;
        if !flushes {
            self.psn = (item.header.last_psn.to_u64() as u32 + 1) & 0xff_ffff;
        }
        self.reads = (self.reads + u64::from(is_open)) & 31;
        self.waits_for_long = item.plan.is_long;
        self.follows_local = is_local;
        if item.plan.is_long {
            expected.long += 1;
            // The slot index does not count when fetch is to stop.
            expected.turns.push_back(self.turn(number, false));
        }
        self.tail_count += 1;
        self.has_begun = true;
        self.has_ended = slot.is_overrun || slot.is_unreadable;
        expected.begun.push_back((number, self.begun()));
        false
    }

    fn is_active(&self) -> bool {
        let state = self.event.state.to_u64();
        [QpState::ReadyToSend, QpState::Error, QpState::SendQueueError]
            .map(|state| state as u64)
            .contains(&state)
    }
}

/// Model of kept_slots: the bursts that are to be shown.
#[derive(Default)]
struct Kept {
    bursts: VecDeque<Vec<WqeSlot>>,
    /// A burst of the queue pair is under way, of this generation.
    shown: [Option<u8>; QUEUES],
    served: usize,
    refilled: usize,
}

impl Kept {
    /// Answers a question, and makes a burst of the slots of the ring. Whether it has the slots is by chance.
    fn answer(&mut self, ring: &Ring, event: KeptEvent, random: &mut Random) -> KeptAnswer {
        let number = event.queue_pair.to_u64() as usize - FIRST;
        let generation = event.generation.to_u64() as u8;
        if event.wakes && self.shown[number] == Some(generation) {
            return KeptAnswer { serves: true, ..KeptAnswer::default() };
        }
        let cursor = event.cursor.to_u64() as usize;
        let left = ring.slots.len().saturating_sub(cursor).min(random.random_range(0..16));
        let is_own = ring.generation == generation && !ring.is_overrun;
        if left < 2 || !is_own || (event.wakes && self.shown[number].is_some()) {
            return KeptAnswer::default();
        }
        let count = left.min(4);
        let slots = (0..count).map(|position| WqeSlot {
            queue_pair: event.queue_pair,
            generation: event.generation,
            index: bits((cursor + position) as u64),
            lap: event.lap,
            has_second: position + 1 < count,
            ends_burst: position + 1 == count,
            is_kept: true,
            first: ring.slots[cursor + position],
            second: if position + 1 < count { ring.slots[cursor + position + 1] } else { bits(0) },
            ..WqeSlot::default()
        });
        self.bursts.push_back(slots.collect());
        self.shown[number] = Some(generation);
        self.served += 1;
        let refills = random.random();
        self.refilled += usize::from(refills);
        KeptAnswer { serves: true, refills, last: bits((cursor + left - 1) as u64) }
    }
}

/// Runs the block between models of its neighbours, and compares it with its own model event by event. Only the
/// first `busy` queue pairs have WQEs; without changes of their state, no ring is overrun either, all slots can
/// be read, and no message is long.
fn runs(busy: usize, shared: u64, retires: f64, cycles: usize, changes: f64, stalls: Stalls) -> Expected {
    let mut random = random();
    let mut bench = Bench::clocked(WqeParse::default(), |block| &mut block.clock).in_lock_step();
    bench.block.sweep.next.is_sweeping = true;
    for index in 0..1024 {
        bench.block.sweep.next.index = bits(index);
        bench.tick();
    }
    bench.block.sweep.next.is_sweeping = false;
    let mut models: Vec<_> =
        (0..QUEUES).map(|number| Model { tail: (FIRST + number) as u64, ..Model::default() }).collect();
    let mut rings = vec![Ring::default(); QUEUES];
    let mut chains: Vec<_> =
        (0..QUEUES).map(|number| Chain { head: (FIRST + number) as u64, ..Chain::default() }).collect();
    let mut free: VecDeque<u64> = (0..shared).collect();
    let (mut offers_free, mut free_was) = (false, None);
    let mut links = HashMap::new();
    let mut begun = [Begun::default(); QUEUES];
    let mut wakes = Source::of_tokens([], stalls);
    let mut wakes_long = Source::of_tokens([], stalls);
    // Long messages that segment has: queue pair and generation.
    let mut cut: VecDeque<(usize, u8)> = VecDeque::new();
    let (mut setup, mut slots) = (Source::of_tokens([], stalls), Source::of_tokens([], stalls));
    let (mut items, mut turns) = (Sink::new(stalls), Sink::new(stalls));
    let mut expected = Expected::default();
    let mut may_wake: Option<usize> = None;
    let (mut shown, mut probed, mut stale) = (Retired::default(), (bits::<24>(0), false), 0);
    let mut late: Option<SetupEvent> = None;
    let (mut kept, mut kept_look, mut kept_end) = (Kept::default(), None::<usize>, None);
    let apply = |rings: &mut Vec<Ring>, event: &SetupEvent| {
        let ring = &mut rings[event.queue_pair.to_u64() as usize - FIRST];
        let state = event.state.to_u64();
        ring.is_active = state == QpState::ReadyToSend as u64
            || state == QpState::Error as u64
            || state == QpState::SendQueueError as u64;
        if event.kind == SetupKind::Restart {
            let (generation, is_active) = (event.generation.to_u64() as u8, ring.is_active);
            *ring = Ring { generation, is_active, ..Ring::default() };
        }
    };
    let mut states = [QpState::Reset; QUEUES];
    for cycle in 0..cycles + 100_000 {
        let is_end = cycle >= cycles;
        let number = random.random_range(0..busy);
        if is_end
            && cycle > cycles + 100
            && (0..QUEUES).all(|number| {
                let model = &models[number];
                model.count == chains[number].retired.count.to_u64() as u16
                    && (model.has_ended || usize::from(model.slot_index) == rings[number].slots.len())
                    && !model.waits_for_long
            })
        {
            break;
        }
        assert!(cycle + 1 < cycles + 100_000, "every posted WQE begins in the end");
        let starts = states.contains(&QpState::Reset);
        if setup.is_done() && late.is_none() && !is_end && (starts || random.random_bool(changes)) {
            let number = states.iter().position(|&state| state == QpState::Reset).unwrap_or(number);
            let (kind, state) = match (starts, random.random_range(0..12)) {
                (true, _) => (SetupKind::Restart, QpState::ReadyToSend),
                (_, 0..2) => (SetupKind::Restart, QpState::ReadyToSend),
                (_, 2) => (SetupKind::Life, QpState::Error),
                (_, 3..5) => (SetupKind::Life, QpState::SendQueueDrain),
                (_, 5..9) => (SetupKind::Life, QpState::ReadyToSend),
                (_, 9) => (SetupKind::SendPsn, states[number]),
                (_, 10) => (SetupKind::Path, states[number]),
                _ => (SetupKind::Probe, states[number]),
            };
            states[number] = state;
            let generation = rings[number].generation.wrapping_add((kind == SetupKind::Restart).into());
            let mut event = event(kind, FIRST + number, state, generation);
            event.psn = bits(0xff_fff0 | random.random::<u64>() & 15);
            event.path.domain = bits(number as u64);
            event.path.read_atomic = bits([2, 16, 0][number]);
            event.read_share.size = bits([1, 3, 0][number]);
            event.path.signal_all = number == 0;
            event.path.path_mtu =
                bits([PathMtu::Bytes256, PathMtu::Bytes1024, PathMtu::Bytes4096][number] as u64);
            // WqeFetch may act on it before or after wqe_parse.
            if random.random() {
                apply(&mut rings, &event);
            } else {
                late = Some(event);
            }
            setup.push(event);
        }
        if is_end
            && setup.is_done()
            && late.is_none()
            && let Some(number) = states.iter().position(|&state| !is_active(state))
        {
            states[number] = QpState::ReadyToSend;
            let generation = rings[number].generation;
            let mut event = event(SetupKind::Life, FIRST + number, QpState::ReadyToSend, generation);
            event.path.read_atomic = bits([2, 16, 0][number]);
            event.read_share.size = bits([1, 3, 0][number]);
            apply(&mut rings, &event);
            setup.push(event);
        }
        let ring = &mut rings[number];
        if !is_end && ring.slots.len() < 60_000 && random.random_bool(0.1) {
            for _ in 0..random.random_range(1..12) {
                let bytes: Vec<u8> = (0..64).map(|_| random.random()).collect();
                let slot: Bits<SLOT_BITS> = BigUint::from_bytes_le(&bytes).into();
                let length = match random.random_range(0..30) {
                    _ if changes == 0.0 => random.random_range(0..5000),
                    0 => random.random_range(0..=1u64 << 32) & 0xffff_ffff,
                    1 => (1 << 31) + random.random_range(0..2),
                    2..5 => random.random_range(0..300 << 10),
                    _ => random.random_range(0..5000),
                };
                let slot =
                    slot & !(bits::<SLOT_BITS>(0xffff_ffff) << 224u64) | bits::<SLOT_BITS>(length) << 224u64;
                // READs and fences, where the pool is not to be full.
                let opcode = match random.random_range(0..20) {
                    _ if changes == 0.0 => 0,
                    0..6 => WqeOpcode::Read as u64,
                    6 => WqeOpcode::LocalInvalidate as u64,
                    _ => 0,
                };
                let slot = slot & !bits::<SLOT_BITS>(0xff) | bits::<SLOT_BITS>(opcode);
                let slot = slot.replace_bit(8 + 2, changes > 0.0 && random.random_bool(0.1));
                ring.slots.push(slot.replace_bit(TWO_SLOTS, random.random_bool(0.3)));
            }
            ring.is_overrun |= changes > 0.0 && random.random_bool(0.001);
        }
        let has_work = ring.is_overrun || ring.fetched < ring.slots.len();
        if slots.is_done()
            && random.random_bool(0.1)
            && let Some(burst) = kept.bursts.pop_front()
        {
            burst.into_iter().for_each(|slot| slots.push(slot));
        }
        if has_work && !ring.is_stopped && ring.is_active && slots.is_done() {
            let unreadable = if changes > 0.0 { 0.001 } else { 0.0 };
            // Of the weight that the queue pair has, or had.
            let weight = if changes > 0.0 { random.random_range(0..8) } else { 7 };
            burst(number, ring, weight, unreadable, &mut random)
                .into_iter()
                .for_each(|slot| slots.push(slot));
        }

        setup.drive(&mut bench.block.setup, &mut random);
        slots.drive(&mut bench.block.wqe_slot, &mut random);
        wakes.drive(&mut bench.block.wake_held, &mut random);
        wakes_long.drive(&mut bench.block.wake_long, &mut random);
        items.drive(&mut bench.block.parsed, &mut random);
        turns.drive(&mut bench.block.resume, &mut random);
        offers_free = !free.is_empty() && (offers_free || random.random());
        bench.block.free.valid.next = offers_free;
        bench.block.free.beat.next = bits(free.front().copied().unwrap_or(0));
        bench.block.retired.next = shown;
        bench.block.kept_answer.next = KeptAnswer::default();
        bench.settle();
        let asked = bench.block.kept_event.val();
        let mut answer = KeptAnswer::default();
        if asked.wakes || asked.ends {
            let number = asked.queue_pair.to_u64() as usize - FIRST;
            answer = kept.answer(&rings[number], asked, &mut random);
            bench.block.kept_answer.next = answer;
            bench.settle();
        }

        let block = &bench.block;
        // Two cycles after the last slot of a burst.
        let ends_now = std::mem::replace(&mut kept_end, kept_look.take());
        if let Some(number) = ends_now {
            let model = &mut models[number];
            assert_eq!(asked.ends, model.is_active());
            assert_eq!(
                (asked.cursor, asked.generation),
                (bits(model.slot_index.into()), model.event.generation)
            );
            model.goes_on(number, asked.ends, answer, &mut expected);
            if !answer.serves {
                expected.begun.push_back((number, model.begun()));
            }
        } else {
            assert!(!asked.ends);
        }
        assert_eq!((block.probed.val(), block.probed_busy.val()), probed);
        stale += usize::from(block.counts_stale_dropped.val());
        let seen = shown;
        if block.retired_read.val().valid {
            let number = (block.retired_read.val().queue_pair.to_u64() as usize).wrapping_sub(FIRST);
            shown = chains.get(number).map_or(Retired::default(), |chain| chain.retired);
        }
        (expected.link, expected.takes_free) = (None, false);
        if setup.sample(&block.setup) {
            let event = block.setup.beat.val();
            let number = event.queue_pair.to_u64() as usize - FIRST;
            if let Some(event) = late.take() {
                apply(&mut rings, &event);
            }
            models[number].setup(number, event, &mut expected);
            if event.kind == SetupKind::Probe {
                let is_busy = seen.count != u64::from(models[number].count);
                probed = (bits(models[number].psn.into()), is_busy);
            }
        }
        if wakes.sample(&block.wake_held) {
            let number = block.wake_held.beat.val().to_u64() as usize - FIRST;
            let model = &mut models[number];
            assert_eq!(asked.wakes, model.is_held);
            if model.is_held {
                model.is_held = false;
                expected.begun.push_back((number, model.begun()));
                model.goes_on(number, true, answer, &mut expected);
            }
        }
        if wakes_long.sample(&block.wake_long) {
            let number = block.wake_long.beat.val().to_u64() as usize - FIRST;
            let model = &mut models[number];
            if model.waits_for_long {
                model.waits_for_long = false;
                model.careful = model.careful.saturating_sub(1);
                expected.begun.push_back((number, model.begun()));
                expected.turns.push_back(model.turn(number, true));
            }
        }
        if !cut.is_empty() && random.random_bool(0.03) {
            let (number, generation) = cut.pop_front().unwrap();
            if generation == rings[number].generation {
                wakes_long.push(bits((FIRST + number) as u64));
            }
        }
        if slots.sample(&block.wqe_slot) {
            let slot = block.wqe_slot.beat.val();
            let number = slot.queue_pair.to_u64() as usize - FIRST;
            let generation = models[number].event.generation;
            let holds = models[number].slot(number, slot, seen, shown, free_was, &mut expected);
            assert!(asked.acts && asked.holds == holds && asked.queue_pair == slot.queue_pair);
            kept.shown[number] = kept.shown[number].filter(|_| !(slot.is_kept && slot.ends_burst));
            if (slot.is_kept || slot.is_single) && slot.ends_burst {
                let model = &models[number];
                let goes_on = !model.is_held && !model.waits_for_long && !model.has_ended;
                kept_look = (goes_on && slot.generation == generation).then_some(number);
            }
        }
        // A queue pair that was held until the cycle before is woken.
        if let Some(number) = may_wake.take()
            && begun[number].is_held
        {
            wakes.push(bits((FIRST + number) as u64));
        }
        assert_eq!(block.link.valid.val().then(|| block.link.value.val()), expected.link);
        assert_eq!(block.free.ready.val(), expected.takes_free);
        if let Some(link) = expected.link {
            links.insert(link.block.to_u64(), link.next.to_u64());
        }
        free_was = if offers_free { free.front().copied() } else { None };
        if expected.takes_free {
            free.pop_front();
            offers_free = false;
        }
        if block.begun.val().valid {
            let number = block.begun.val().queue_pair.to_u64() as usize - FIRST;
            assert_eq!(Some((number, block.begun.val().begun)), expected.begun.pop_front());
            begun[number] = block.begun.val().begun;
            let weight = WeightWrite {
                queue_pair: bits((FIRST + number) as u64),
                weight: bits(models[number].weight.into()),
                valid: true,
            };
            assert_eq!(block.weight.val(), weight);
        }
        if let Some(turn) = turns.sample(&block.resume) {
            assert_eq!(Some(turn), expected.turns.pop_front());
            let ring = &mut rings[turn.queue_pair.to_u64() as usize - FIRST];
            if turn.generation == u64::from(ring.generation) {
                ring.is_stopped = !turn.resumes;
                ring.is_single = turn.is_single;
                if turn.resumes {
                    ring.fetched = turn.slot_index.to_u64() as usize;
                }
            }
        }
        if let Some(mut item) = items.sample(&block.parsed) {
            let expected = expected.items.pop_front().expect("an item is expected");
            let number = item.header.queue_pair.to_u64() as usize - FIRST;
            if item.header.is_empty {
                item = ParsedWqe {
                    header: WqeHeader {
                        queue_pair: item.header.queue_pair,
                        is_empty: true,
                        ends_burst: item.header.ends_burst,
                        ..WqeHeader::default()
                    },
                    plan: SegmentPlan { charge: item.plan.charge, ..SegmentPlan::default() },
                    ..ParsedWqe::default()
                };
            } else {
                if item.plan.is_long {
                    cut.push_back((number, item.header.generation.to_u64() as u8));
                }
                chains[number].issued.push_back(item.header.pool_slot.to_u64());
                chains[number].last.push_back((item.header.last_psn.to_u64(), item.header.is_open));
                chains[number].issued_count = item.header.message_count.to_u64() as u16;
            }
            assert_eq!(item, expected);
        }
        // A turn of acknowledge.
        let chain = &mut chains[number];
        if !chain.issued.is_empty() && random.random_bool(if is_end { 0.2 } else { retires }) {
            let mut has_freed = false;
            for _ in 0..random.random_range(1..=8) {
                let Some(place) = chain.issued.pop_front() else { break };
                let (last_psn, is_open) = chain.last.pop_front().unwrap();
                chain.retired.reads = chain.retired.reads + u64::from(is_open);
                has_freed |= is_open;
                chain.retired.una_psn = bits((last_psn + 1) & 0xff_ffff);
                if chain.head_count == 8 {
                    let next = links[&chain.head];
                    if next != chain.head {
                        has_freed = true;
                        if chain.head >= 1024 {
                            free.push_back(chain.head - 1024);
                        } else {
                            chain.retired.home_lap ^= true;
                        }
                    }
                    (chain.head, chain.head_count) = (next, 0);
                }
                assert_eq!(place, chain.head << 3 | chain.head_count, "the slots make one chain");
                chain.head_count += 1;
                chain.retired.count = chain.retired.count + 1;
            }
            chain.retired.has_failed |= changes > 0.0 && random.random_bool(0.05);
            if has_freed || chain.retired.count == u64::from(chain.issued_count) {
                may_wake = Some(number);
            }
        }
        // After a message in error, the state changes.
        if chain.retired.has_failed && random.random_bool(0.02) {
            chain.retired.has_failed = false;
            may_wake = Some(number);
        }
        bench.tick();
    }
    assert_eq!(stale, expected.stale);
    (expected.served, expected.refilled) = (kept.served, kept.refilled);
    assert_eq!(free.len() as u64 + models.iter().filter(|model| model.tail >= 1024).count() as u64, shared);
    expected
}

#[test]
fn wqes_leave_once_and_in_order_with_few_blocks() {
    let (mut stale, mut full_spans, mut full_reads, mut fenced) = (0, 0, 0, 0);
    let (mut local, mut failed, mut heavy) = ([0, 0], 0, 0);
    for stalls in Stalls::ALL {
        let expected = runs(QUEUES, 2, 0.05, 4000, 0.01, stalls);
        assert!(expected.held > 5 && expected.long > 5, "{} {}", expected.held, expected.long);
        (stale, full_spans) = (stale + expected.stale, full_spans + expected.full_spans);
        (full_reads, fenced) = (full_reads + expected.full_reads, fenced + expected.fenced);
        failed += expected.failed;
        heavy += expected.heavy;
        local = [local[0] + expected.local[0], local[1] + expected.local[1]];
        assert!(expected.served > 5 && expected.refilled > 2, "{} {}", expected.served, expected.refilled);
    }
    assert!(stale > 0 && full_spans > 3, "{stale} {full_spans}");
    assert!(heavy > 10, "{heavy} messages were counted as lighter ones");
    assert!(full_reads > 10 && fenced > 10 && failed > 10, "{full_reads} {fenced} {failed}");
    assert!(local.iter().all(|&count| count > 10), "{local:?}");
}

#[test]
fn the_window_holds_a_queue_pair() {
    let expected = runs(1, 400, 0.004, 8000, 0.0, Stalls::None);
    assert!(expected.full_windows > 1, "{}", expected.full_windows);
}
