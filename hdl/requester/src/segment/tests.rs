//! The block against a list: every packet of every message follows here from its length alone; what the block
//! decides is when each one is made, and that is held to its rules.
use super::*;
use crate::messages::{
    AtomicOperands, Retired, SegmentPlan, WqeCompletion, WqeHeader, WqeKind, atomic_operands, second_sge,
};
use crate::opcode::{COMPARE_SWAP, FETCH_ADD, READ_REQUEST};
use crate::testing::event;
use crate::wqe_check::tests::tail;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, random};
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::state::{PathMtu, QpState};
use rnic_messages::setup::SetupKind;
use std::collections::VecDeque;

/// Indices of the queue pairs.
const INDICES: [usize; 4] = [0, 7, 0x200, 0x3ff];

/// A packet, and the SGEs that it is gathered from.
pub(crate) struct Expected {
    pub(crate) packet: Packet,
    pub(crate) requests: Vec<AccessRequest>,
}

/// A message that was given to the block.
struct Message {
    item: CheckedWqe,
    packets: Vec<Expected>,
    /// Number of its first packet among all, and packets so far.
    began: usize,
    made: usize,
}

/// All packets of a WQE, if it is sent.
pub(crate) fn packets(item: &CheckedWqe, listed: &[Sge]) -> Vec<Expected> {
    // A READ is one packet without payload.
    let length = if item.kind.is_read { 0 } else { item.length.to_u64() };
    let pmtu = 128 << item.plan.path_mtu.to_u64();
    let second = second_sge(item.tail);
    let others = if listed.is_empty() { std::slice::from_ref(&second) } else { listed };
    let mut sges: VecDeque<_> = [&[item.first], others].concat().into();
    let count = length.div_ceil(pmtu).max(1);
    let expected = (0..count).map(|number| {
        let (is_first, is_last) = (number == 0, number + 1 == count);
        let payload = (length - number * pmtu).min(pmtu);
        let mut left = if item.inline_count == 0 { payload } else { 0 };
        let mut requests = vec![];
        while left > 0 {
            let sge = sges.front_mut().expect("sges add up to the message");
            let part = sge.length.to_u64().min(left);
            if part > 0 {
                requests.push(AccessRequest {
                    key: sge.key,
                    domain: item.plan.domain,
                    address: sge.address,
                    length: bits(part),
                    ..AccessRequest::default()
                });
            }
            left -= part;
            sge.address = sge.address + part;
            sge.length = sge.length - part;
            if sge.length == 0 {
                sges.pop_front();
            }
        }
        if item.kind.is_read {
            let sges = if item.kind.is_atomic { &[item.first][..] } else { &[item.first, second] };
            requests.extend(sges.iter().filter(|sge| sge.length != 0).map(|sge| AccessRequest {
                key: sge.key,
                domain: item.plan.domain,
                address: sge.address,
                length: sge.length,
                local_write: true,
                ..AccessRequest::default()
            }));
        }
        let name = match (is_first, is_last) {
            (true, true) => 4,
            (true, false) => 0,
            (false, false) => 1,
            (false, true) => 2,
        };
        let mut extended = vec![];
        if item.kind.is_atomic {
            // AtomicETH: address, key, what is swapped or added, what is compared.
            let AtomicOperands { compare, swap_add } = atomic_operands(item.tail);
            extended.extend(&item.reth.to_bytes()[..12]);
            extended.extend(swap_add.to_u64().to_be_bytes());
            extended.extend(compare.to_u64().to_be_bytes());
        } else if (item.kind.is_write || item.kind.is_read) && is_first {
            extended.extend(item.reth.to_bytes());
        }
        if (item.has_immediate || item.with_invalidate || item.kind.is_local) && is_last {
            extended.extend(&item.immediate_or_key.to_u64().to_le_bytes()[..4]);
        }
        if item.kind.is_local {
            extended.extend(&item.plan.domain.to_u64().to_le_bytes()[..3]);
        }
        let request_bytes = |index: usize| match requests.get(index) {
            Some(request) if !item.kind.is_read => bits(request.length.to_u64()),
            _ => bits(0),
        };
        let is_listed = !listed.is_empty() && requests.len() > 1;
        let packet = Packet {
            header: WqeHeader {
                is_empty: false,
                is_first: item.header.is_first && is_first,
                ends_burst: false,
                ..item.header
            },
            completion: WqeCompletion { status: bits(CompletionStatus::Success as u64), ..item.completion },
            kind: item.kind,
            starts: is_first,
            ends_turn: false,
            opcode: bits(if item.with_invalidate && is_last {
                if is_first { 0x17 } else { 0x16 }
            } else if item.kind.is_atomic {
                if item.kind.is_compare { COMPARE_SWAP } else { FETCH_ADD }
            } else if item.kind.is_read {
                READ_REQUEST
            } else {
                name + 6 * u64::from(item.kind.is_write) + u64::from(item.has_immediate && is_last)
            }),
            solicited: item.solicited && is_last,
            ack_request: (item.ack_request && is_last) || number % 32 == 31,
            psn: bits(Psn::wrapping(item.plan.first_psn.to_u64() as u32).add(number as u32).value().into()),
            extended_or_key: num_bigint::BigUint::from_bytes_le(&extended).into(),
            payload_bytes: bits(payload),
            inline_count: if is_first { item.inline_count } else { bits(0) },
            request_count: bits(if is_listed { 1 } else { requests.len() as u64 }),
            is_listed,
            first_length: request_bytes(0),
            second_length: if is_listed { bits(0) } else { request_bytes(1) },
        };
        Expected { packet, requests }
    });
    expected.collect()
}

trait ToBytes {
    fn to_bytes(&self) -> Vec<u8>;
}

impl ToBytes for Bits<128> {
    fn to_bytes(&self) -> Vec<u8> {
        (0..16).map(|byte| self.get_bits::<8>(8 * byte).to_u64() as u8).collect()
    }
}

/// Model of a queue pair.
struct Pair {
    index: usize,
    generation: u8,
    state: QpState,
    next_psn: u32,
    path_mtu: u64,
    una: u32,
    una_before: u32,
    /// State, generation, and how many packets had been made when the event was taken; whether it drops.
    lives: Vec<(u64, u8, usize, bool)>,
    message: Option<Message>,
    /// WqeParse waits for a wake.
    waits: bool,
    wakes_due: usize,
}

/// Packets in a row: a message's first quantum, or a quantum of the rest of one.
struct Go {
    pair: usize,
    is_rest: bool,
    packets: u64,
    /// `ends_burst` of the WQE.
    ends_burst: bool,
}

struct World {
    bench: Bench<Segment>,
    random: Random,
    pairs: Vec<Pair>,
    setup: Source<SetupEvent>,
    item: Source<CheckedWqe>,
    listed: Source<Sge>,
    packet: Sink<Packet>,
    request: Sink<AccessRequest>,
    part: Sink<SgePart>,
    wake: Sink<Bits<QUEUE_PAIR_BITS>>,
    rest: Sink<Bits<QUEUE_PAIR_BITS>>,
    turn: Source<Bits<QUEUE_PAIR_BITS>>,
    /// How likely a rest gets its turn in a cycle.
    gives_turns: f64,
    /// Rests that wait for it.
    rests: VecDeque<Bits<QUEUE_PAIR_BITS>>,
    /// Turns that were taken and whose end has not been seen; with what had been acknowledged then and before.
    taken: VecDeque<(usize, [u32; 2])>,
    /// The quantum of a rest was no turn: the next WQE must be of this queue pair.
    forced: Option<usize>,
    forces: u64,
    /// Queue pair, WQE and list of each message, in order.
    order: VecDeque<(usize, CheckedWqe, Vec<Sge>)>,
    events: VecDeque<SetupEvent>,
    go: Option<Go>,
    requests: Vec<AccessRequest>,
    parts: Vec<SgePart>,
    turns: u64,
    dropped: usize,
    flushed: usize,
    /// READs that were written to read_response, and those that left.
    reads: [usize; 2],
    /// Units that are to return in this cycle.
    charge: Bits<CHARGE_BITS>,
    /// Turns that were taken.
    looks: u64,
    cycle: u64,
    /// Queue pair of each quantum, and whether it was of a rest.
    goes: Vec<(usize, bool)>,
    /// No WQE has a fault, and each has this many SGEs.
    sges: Option<u32>,
}

impl World {
    fn new(stalls: Stalls) -> Self {
        let mut random = random();
        let mut bench = Bench::clocked(Segment::default(), |block| &mut block.clock).in_lock_step();
        bench.block.sweep.next.is_sweeping = true;
        for index in 0..1024 {
            bench.block.sweep.next.index = bits(index);
            bench.tick();
        }
        bench.block.sweep.next.is_sweeping = false;
        let pairs = INDICES.map(|index| Pair {
            index,
            generation: random.random(),
            state: QpState::Reset,
            next_psn: random.random::<u32>() & 0xff_ffff | 0xff_ff00,
            path_mtu: random.random_range(PathMtu::Bytes256 as u64..=PathMtu::Bytes4096 as u64),
            una: 0,
            una_before: 0,
            lives: vec![],
            message: None,
            waits: false,
            wakes_due: 0,
        });
        let mut world = World {
            bench,
            random,
            pairs: pairs.into(),
            setup: Source::of_tokens([], Stalls::None),
            item: Source::of_tokens([], stalls),
            listed: Source::of_tokens([], Stalls::None),
            packet: Sink::new(stalls),
            request: Sink::new(stalls),
            part: Sink::new(stalls),
            wake: Sink::new(stalls),
            rest: Sink::new(stalls),
            turn: Source::of_tokens([], stalls),
            gives_turns: 1.0,
            rests: VecDeque::new(),
            taken: VecDeque::new(),
            forced: None,
            forces: 0,
            order: VecDeque::new(),
            events: VecDeque::new(),
            go: None,
            requests: vec![],
            parts: vec![],
            turns: 0,
            dropped: 0,
            flushed: 0,
            reads: [0; 2],
            charge: bits(0),
            looks: 0,
            cycle: 0,
            goes: vec![],
            sges: None,
        };
        for pair in 0..INDICES.len() {
            world.says(SetupKind::Restart, pair, QpState::ReadyToSend);
            let una = world.pairs[pair].una;
            world.acknowledges(pair, una);
            world.step();
        }
        world
    }

    fn says(&mut self, kind: SetupKind, number: usize, state: QpState) {
        let pair = &mut self.pairs[number];
        pair.state = state;
        if kind == SetupKind::Restart {
            pair.generation = pair.generation.wrapping_add(1);
            (pair.una, pair.una_before) = (pair.next_psn, pair.next_psn);
            pair.waits = false;
        }
        pair.waits &= state == QpState::ReadyToSend || state == QpState::SendQueueDrain;
        let event = event(kind, pair.index, state, pair.generation);
        self.events.push_back(event);
        self.setup.push(event);
        // Nothing is begun before the block has taken it.
        let said_at = self.cycle;
        while !self.setup.is_done() {
            self.step();
        }
        assert!(self.cycle <= said_at + 11, "{} cycles for an event", self.cycle - said_at);
    }

    /// Acknowledges up to a PSN, from the next cycle on.
    fn acknowledges(&mut self, number: usize, una: u32) {
        let pair = &mut self.pairs[number];
        if pair.una != una & 0xff_ffff {
            pair.una_before = pair.una;
        }
        pair.una = una & 0xff_ffff;
        self.bench.block.retired.next.queue_pair = bits(pair.index as u64);
        self.bench.block.retired.next.retired =
            Retired { una_psn: bits(pair.una.into()), ..Retired::default() };
        self.bench.block.retired.next.valid = true;
    }

    /// Gives the block a WQE of `length` bytes.
    fn posts(&mut self, number: usize, length: u32) {
        let random = &mut self.random;
        let pair = &mut self.pairs[number];
        let pmtu = 128 << pair.path_mtu;
        let is_read = self.sges.is_none() && random.random_bool(0.2);
        let is_atomic = is_read && random.random_bool(0.4);
        let length = if is_atomic { 8 } else { length };
        let behind = (length.div_ceil(pmtu)).max(1) - 1;
        let is_inline = self.sges.is_none() && !is_read && length <= 96 && random.random_bool(0.3);
        let is_well = self.sges.is_some();
        let cut = match self.sges {
            None if is_atomic => length,
            Some(1) => length,
            Some(2) => length / 2,
            // The last five of six.
            Some(_) => length - length / 6,
            None if random.random() => length,
            None => random.random_range(0..=length),
        };
        // The first one that has bytes comes first.
        let (first, second) = if is_inline { (0, 0) } else { (length - cut, cut) };
        let (first, second) = if first == 0 { (second, 0) } else { (first, second) };
        let (lists, list_count): (bool, u32) = (random.random(), random.random_range(2..=5));
        let pieces: [u32; 5] = random.random();
        let mut stretch = |length: u32| Sge {
            key: Stimulus::sample(random),
            address: Stimulus::sample(random),
            length: bits(length.into()),
        };
        // Bytes that are not in the first SGE may be in a list of two to five others.
        let mut listed = vec![];
        let lists = if is_well { self.sges > Some(2) } else { !is_read && lists };
        let list_count = if is_well { 5 } else { list_count };
        if lists && second >= list_count {
            let mut left = second;
            for others in (0..list_count).rev() {
                let most = left - others;
                let share = if is_well { left / (others + 1) } else { 1 + (pieces[others as usize] % most) };
                let share = if others == 0 { left } else { share };
                listed.push(stretch(share));
                left -= share;
            }
        }
        let (first, mut second) = (stretch(first), stretch(second));
        if is_atomic {
            // Its operands.
            second.length = Stimulus::sample(random);
        }
        let status = if !is_well && random.random_bool(0.03) {
            CompletionStatus::LocalLength as u64
        } else {
            CompletionStatus::Success as u64
        };
        let is_empty = !is_well && random.random_bool(0.03);
        let has_immediate = !is_read && random.random();
        let is_write = !is_read && random.random();
        let with_invalidate = !is_read && !is_write && !has_immediate && random.random();
        let item = CheckedWqe {
            header: WqeHeader {
                queue_pair: bits(pair.index as u64),
                generation: bits(pair.generation.into()),
                is_empty,
                epoch: bits(0),
                is_replay: false,
                is_first: random.random(),
                ends_burst: is_empty || random.random(),
                is_open: is_read && random.random_bool(0.9),
                last_psn: bits(((pair.next_psn + behind) & 0xff_ffff).into()),
                pool_slot: Stimulus::sample(random),
                message_count: Stimulus::sample(random),
                next_slot: Stimulus::sample(random),
            },
            plan: SegmentPlan {
                first_psn: bits(pair.next_psn.into()),
                is_continued: false,
                is_long: !is_read && (length > 1 << 14 || (!is_well && random.random_bool(0.1))),
                charge: Stimulus::sample(random),
                read_place: Stimulus::sample(random),
                path_mtu: bits(pair.path_mtu),
                domain: Stimulus::sample(random),
            },
            completion: WqeCompletion {
                has_wr_id: random.random(),
                wr_id: Stimulus::sample(random),
                is_signalled: random.random(),
                status: bits(status),
                reason: Stimulus::sample(random),
            },
            kind: WqeKind {
                is_write,
                is_read,
                is_atomic,
                is_compare: is_atomic && random.random(),
                is_local: false,
            },
            has_immediate,
            with_invalidate,
            solicited: !is_read && random.random(),
            ack_request: random.random(),
            immediate_or_key: if has_immediate || with_invalidate {
                Stimulus::sample(random)
            } else {
                bits(0)
            },
            reth: if is_write || is_read { Stimulus::sample(random) } else { bits(0) },
            length: bits(length.into()),
            inline_count: bits(if is_inline { u64::from(length > 0) + u64::from(length > 32) } else { 0 }),
            first,
            tail: tail(second),
            listed_count: bits(listed.len() as u64),
        };
        listed.iter().for_each(|&stretch| self.listed.push(stretch));
        if !is_empty {
            pair.next_psn = (pair.next_psn + behind + 1) & 0xff_ffff;
            pair.waits = item.plan.is_long;
            pair.wakes_due += usize::from(item.plan.is_long);
        }
        self.item.push(item);
        self.order.push_back((number, item, listed));
    }

    /// Whether the state of a queue pair permits packet `number` of all; and whether an event has dropped it
    /// since packet `began`.
    fn life(&self, pair: usize, number: usize, began: usize) -> (Option<u8>, bool) {
        let lives = &self.pairs[pair].lives;
        let life = lives.iter().rfind(|life| life.2 < number);
        let serves = life
            .filter(|life| life.0 == QpState::ReadyToSend as u64 || life.0 == QpState::SendQueueDrain as u64);
        let drops = lives.iter().any(|life| life.3 && (began..number).contains(&life.2));
        (serves.map(|life| life.1), drops)
    }

    /// A packet has come.
    fn takes(&mut self, mut packet: Packet) {
        let number = self.packet.received.len();
        if packet.starts {
            assert!(self.go.is_none(), "a message begins in the middle of another");
            let (pair, item, listed) = self.order.pop_front().expect("an item is under way");
            assert_eq!(packet.header.is_empty, item.header.is_empty);
            let forced = self.forced.take();
            assert!(
                forced.is_none_or(|forced| forced == pair),
                "a rest goes before a WQE of another queue pair"
            );
            let (serves, _) = self.life(pair, number, number);
            let is_served = serves.is_some_and(|generation| item.header.generation == u64::from(generation));
            if !item.header.is_empty
                && let Some(message) = self.pairs[pair].message.take()
                && message.made < message.packets.len()
            {
                let (_, drops) = self.life(pair, number, message.began);
                assert!(drops, "a message begins before the one before it has ended");
                self.dropped += 1;
            }
            if item.header.is_empty
                || item.completion.status != CompletionStatus::Success as u64
                || !is_served
            {
                assert_eq!(packet.header.ends_burst, item.header.ends_burst);
                assert!(!packet.ends_turn && packet.request_count == 0);
                if !item.header.is_empty {
                    let flushed = if item.completion.status == CompletionStatus::Success as u64 {
                        bits(CompletionStatus::Flushed as u64)
                    } else {
                        item.completion.status
                    };
                    assert_eq!(
                        (packet.completion.status, packet.header.pool_slot, packet.completion.wr_id),
                        (flushed, item.header.pool_slot, item.completion.wr_id)
                    );
                    assert_eq!(
                        (packet.psn, packet.header.message_count),
                        (item.plan.first_psn, item.header.message_count)
                    );
                    assert_eq!(packet.inline_count, item.inline_count);
                    self.flushed += usize::from(item.completion.status == CompletionStatus::Success as u64);
                }
                return;
            }
            let message = Message { packets: packets(&item, &listed), item, began: number, made: 0 };
            self.pairs[pair].message = Some(message);
            self.go = Some(Go { pair, is_rest: false, packets: 0, ends_burst: item.header.ends_burst });
        }
        let pair = INDICES.iter().position(|&index| packet.header.queue_pair == index as u64).unwrap();
        if self.go.is_none() {
            if packet.header.is_empty && self.is_needless(pair, number, packet.psn) {
                assert!(packet.ends_turn && !packet.header.ends_burst && packet.request_count == 0);
                assert_eq!(self.taken.pop_front().map(|turn| turn.0), Some(pair));
                return;
            }
            self.turns += 1;
            self.go = Some(Go { pair, is_rest: true, packets: 0, ends_burst: false });
        }
        let go = self.go.as_mut().unwrap();
        assert_eq!(go.pair, pair, "a quantum is segmented without interruption");
        go.packets += 1;
        let (is_rest, count, ends_burst) = (go.is_rest, go.packets, go.ends_burst);
        let began = self.pairs[pair].message.as_ref().expect("its message has begun").began;
        let (_, drops) = self.life(pair, number, began);
        assert_eq!(packet.header.is_empty, drops, "a message is dropped with its event, not before");
        let una = self.pairs[pair].una;
        let message = self.pairs[pair].message.as_mut().unwrap();
        let quantum = (1 << 14) / (128 << message.item.plan.path_mtu.to_u64());
        let is_last = message.made + 1 == message.packets.len();
        let ends = drops || is_last || count == quantum;
        assert_eq!(packet.header.ends_burst, ends && !is_rest && ends_burst);
        assert!(!packet.ends_turn || (ends && is_rest), "a turn ends with its last packet");
        if packet.ends_turn {
            assert_eq!(self.taken.pop_front().map(|turn| turn.0), Some(pair), "a turn is taken before");
        } else if ends && is_rest {
            self.forced = Some(pair);
            self.forces += 1;
        }
        if is_rest && count == 1 && !drops {
            let in_flight = packet.psn.to_u64().wrapping_sub(una.into()) & 0xff_ffff;
            assert!(in_flight < 1 << 15, "{in_flight:#x} packets are in flight");
        }
        if packet.kind.is_read {
            self.reads[1] += usize::from(!drops);
            (packet.first_length, packet.second_length) = (bits(0), bits(0));
        }
        if !drops {
            let expected = &message.packets[message.made];
            (packet.header.ends_burst, packet.ends_turn) = (false, false);
            if !packet.starts {
                // What belongs to the WQE is in its first packet.
                let theirs = expected.packet;
                (packet.header.last_psn, packet.header.pool_slot, packet.header.next_slot) =
                    (theirs.header.last_psn, theirs.header.pool_slot, theirs.header.next_slot);
                (packet.completion.wr_id, packet.completion.has_wr_id, packet.completion.reason) =
                    (theirs.completion.wr_id, theirs.completion.has_wr_id, theirs.completion.reason);
                packet.completion.is_signalled = theirs.completion.is_signalled;
            }
            if expected.requests.len() < 2 || packet.is_listed {
                packet.second_length = bits(0);
            }
            if expected.requests.is_empty() {
                packet.first_length = bits(0);
            }
            assert_eq!(packet, expected.packet);
            if packet.is_listed {
                let last = expected.requests.len() - 1;
                let part = |index: usize| SgePart {
                    length: expected.requests[index].length.get_bits::<13>(0),
                    is_last: index == last,
                };
                self.parts.extend((1..=last).map(part));
            }
            self.requests.extend(expected.requests.iter().copied());
            message.made += 1;
        }
        if ends {
            self.goes.push((pair, is_rest));
            self.go = None;
        }
        if drops {
            self.dropped += 1;
            self.pairs[pair].message = None;
        }
    }

    /// Whether a turn may send nothing: nothing is left of a message, or the window was closed.
    fn is_needless(&self, pair: usize, number: usize, psn: Bits<24>) -> bool {
        let Some(message) = &self.pairs[pair].message else { return true };
        let is_closed = self.taken.front().expect("a turn was taken").1.iter().any(|&una| {
            let in_flight = psn.to_u64().wrapping_sub(una.into()) & 0xff_ffff;
            (1 << 15..1 << 23).contains(&in_flight)
        });
        message.made == message.packets.len() || self.life(pair, number, message.began).1 || is_closed
    }

    fn step(&mut self) {
        let (block, random) = (&mut self.bench.block, &mut self.random);
        self.setup.drive(&mut block.setup, random);
        self.item.drive(&mut block.checked, random);
        self.listed.drive(&mut block.listed_sges, random);
        self.part.drive(&mut block.sge_parts, random);
        self.packet.drive(&mut block.packet, random);
        self.request.drive(&mut block.access_request, random);
        self.wake.drive(&mut block.wake, random);
        self.rest.drive(&mut block.rest, random);
        self.turn.drive(&mut block.turn, random);
        self.bench.settle();
        let block = &self.bench.block;
        let made = self.packet.received.len() + block.packets.level.val().to_u64() as usize;
        if self.setup.sample(&block.setup) {
            let event = self.events.pop_front().unwrap();
            let pair = self.pairs.iter_mut().find(|pair| event.queue_pair == pair.index as u64).unwrap();
            let state = event.state.to_u64();
            let drops = event.kind == SetupKind::Restart
                || ![QpState::ReadyToSend as u64, QpState::SendQueueDrain as u64].contains(&state);
            pair.lives.push((state, event.generation.to_u64() as u8, made, drops));
        }
        // What a burst is counted as leaves with its last WQE, a cycle later.
        assert_eq!(block.charge_returned.val(), std::mem::take(&mut self.charge));
        let takes = self.item.sample(&block.checked);
        if takes && block.checked.beat.val().header.ends_burst {
            self.charge = block.checked.beat.val().plan.charge;
        }
        if takes && block.read.valid.val() {
            let item = block.checked.beat.val();
            assert!(item.kind.is_read && block.read_place.val() == item.plan.read_place);
            let record = ReadRecord {
                psn: item.plan.first_psn,
                length: item.length,
                path_mtu: item.plan.path_mtu,
                domain: item.plan.domain,
                is_atomic: item.kind.is_atomic,
                first: item.first,
                second: second_sge(item.tail),
            };
            assert_eq!(block.read.value.val(), record);
            self.reads[0] += 1;
        } else {
            assert!(!block.read.valid.val());
        }
        let pair_of = |pairs: &[Pair], index: Bits<QUEUE_PAIR_BITS>| {
            pairs.iter().position(|pair| index == pair.index as u64).unwrap()
        };
        if self.turn.sample(&block.turn) {
            let pair = pair_of(&self.pairs, block.turn.beat.val());
            self.taken.push_back((pair, [self.pairs[pair].una, self.pairs[pair].una_before]));
            self.looks += 1;
        }
        self.rests.extend(self.rest.sample(&block.rest));
        if self.random.random_bool(self.gives_turns) {
            self.rests.drain(..).for_each(|index| self.turn.push(index));
        }
        self.request.sample(&block.access_request);
        self.listed.sample(&block.listed_sges);
        self.part.sample(&block.sge_parts);
        if let Some(index) = self.wake.sample(&block.wake) {
            let pair = self.pairs.iter_mut().find(|pair| index == pair.index as u64).unwrap();
            pair.waits = false;
            assert!(pair.wakes_due > 0, "a long item wakes once");
            pair.wakes_due -= 1;
        }
        let packet = self.packet.sample(&block.packet);
        if let Some(packet) = packet {
            self.takes(packet);
        }
        self.bench.tick();
        self.bench.block.retired.next.valid = false;
        self.cycle += 1;
    }

    /// The PSN after the last packet of a queue pair.
    fn sent(&self, pair: usize) -> u32 {
        let pair = &self.pairs[pair];
        match &pair.message {
            Some(message) if message.item.kind.is_read => {
                (message.item.header.last_psn.to_u64() as u32 + 1) & 0xff_ffff
            }
            Some(message) => (message.item.plan.first_psn.to_u64() as u32 + message.made as u32) & 0xff_ffff,
            None => pair.una,
        }
    }

    /// Runs until everything has left, and checks the rest.
    fn ends(&mut self) {
        self.gives_turns = 1.0;
        let mut idle = 0;
        for _ in 0..60_000 {
            let pair = self.random.random_range(0..INDICES.len());
            let sent = self.sent(pair);
            self.acknowledges(pair, sent);
            self.step();
            let is_over = |pair: usize| match &self.pairs[pair].message {
                Some(message) => {
                    message.made == message.packets.len() || self.life(pair, usize::MAX, message.began).1
                }
                None => true,
            };
            let is_over = self.order.is_empty() && self.item.is_done() && (0..INDICES.len()).all(is_over);
            idle = if is_over { idle + 1 } else { 0 };
            if idle == 200 {
                break;
            }
        }
        assert_eq!(idle, 200, "everything ends");
        assert!(self.go.is_none());
        assert!(self.request.received == self.requests, "access requests are in the order of packets");
        assert!(
            self.part.received == self.parts && self.listed.is_done(),
            "and parts are those of their packets"
        );
        assert!(self.taken.is_empty() && self.forced.is_none());
        assert_eq!(self.bench.block.waiting.val(), 0, "each rest had its turns");
        assert!(self.pairs.iter().all(|pair| !pair.waits), "a queue pair that waits is woken");
        assert_eq!(self.reads[0], self.reads[1], "the record of a READ is written once, if it is issued");
    }
}

#[test]
fn packets_are_those_of_their_messages_with_all_stalls_and_events() {
    let rounds = std::env::var("RNIC_SEEDS").map_or(1, |text| text.parse().expect("RNIC_SEEDS is a number"));
    // Quanta of rests, of which were forced, turns that sent nothing, messages dropped and flushed.
    let (mut all, mut reads, mut parts) = ([0; 5], 0, 0);
    for round in 0..4 * rounds {
        let mut world = World::new(Stalls::ALL[round % 4]);
        world.gives_turns = if round / 4 % 2 == round % 2 { 1.0 } else { 0.02 };
        for number in 0..INDICES.len() {
            let una = world.pairs[number].next_psn.wrapping_sub((1 << 15) - 20);
            world.acknowledges(number, una);
            world.step();
        }
        for _ in 0..6000 {
            let number = world.random.random_range(0..INDICES.len());
            let pair = &world.pairs[number];
            let (state, sent) = (pair.state, world.sent(number));
            if world.order.len() < 8 && !pair.waits && world.random.random_bool(0.2) {
                let random = &mut world.random;
                let length = match random.random_range(0..12) {
                    0 => 0,
                    1 => 1 << 14,
                    2 => (1 << 14) + 1,
                    3 => random.random_range(1 << 14..1 << 15),
                    4..6 => random.random_range(0..300),
                    6..9 => random.random_range(0..9000),
                    9 => random.random_range(0..24) * 4096,
                    _ => random.random_range(0..100 << 10),
                };
                world.posts(number, length);
            }
            if world.random.random_bool(0.002) {
                world.acknowledges(number, sent);
            }
            if world.random.random_bool(0.002) {
                let pick = world.random.random_range(0..8);
                match (state, pick) {
                    (QpState::Error | QpState::Reset, _) | (_, 0) => {
                        world.says(SetupKind::Restart, number, QpState::ReadyToSend);
                        // Some begin with a window that is full, or almost full.
                        let behind = [0, (1 << 15) - 40, (1 << 15) + 5][world.random.random_range(0..3)];
                        let una = world.pairs[number].next_psn.wrapping_sub(behind);
                        world.acknowledges(number, una);
                    }
                    (_, 1..3) => world.says(SetupKind::Life, number, QpState::Error),
                    (_, 3) => world.says(SetupKind::Life, number, QpState::SendQueueDrain),
                    (_, 4) => world.says(SetupKind::Life, number, QpState::ReadyToSend),
                    (_, 5) => world.says(SetupKind::Path, number, state),
                    _ => world.says(SetupKind::Probe, number, state),
                }
            }
            world.step();
        }
        world.ends();
        println!(
            "{} packets, {} keys, {} rests, {} forced, {} turns, {} dropped, {} flushed",
            world.packet.received.len(),
            world.requests.len(),
            world.turns,
            world.forces,
            world.looks,
            world.dropped,
            world.flushed
        );
        reads += world.reads[0];
        parts += world.parts.len();
        let needless = world.looks - (world.turns - world.forces);
        let seen = [world.turns, world.forces, needless, world.dropped as u64, world.flushed as u64];
        (0..5).for_each(|kind| all[kind] += seen[kind]);
    }
    assert!(reads > 30 && parts > 100, "{reads}, {parts}");
    assert!(all[0] > 40 && all[1] > 0 && all[2] > 20 && all[3] > 0 && all[4] > 0, "{all:?}");
}

/// Cycles for all packets of the messages of one queue pair, from the first to the last.
fn cycles(path_mtu: PathMtu, sges: u32, messages: u32, length: u32) -> f64 {
    let mut world = World::new(Stalls::None);
    world.sges = Some(sges);
    world.pairs[1].path_mtu = path_mtu as u64;
    let (mut begun, mut first) = (0, None);
    loop {
        if begun < messages && world.order.len() < 4 && !world.pairs[1].waits {
            world.posts(1, length);
            begun += 1;
        }
        let sent = world.sent(1);
        world.acknowledges(1, sent);
        world.step();
        first = first.or((!world.packet.received.is_empty()).then_some(world.cycle));
        if begun == messages
            && world.order.is_empty()
            && world.go.is_none()
            && world.sent(1) == world.pairs[1].next_psn
        {
            return (world.cycle - first.unwrap()) as f64 / (world.packet.received.len() - 1) as f64;
        }
        assert!(world.cycle < 40_000);
    }
}

#[test]
fn a_packet_takes_three_cycles_and_fewer_after_another_of_its_message() {
    let alone = cycles(PathMtu::Bytes1024, 1, 300, 64);
    let alone_of_two = cycles(PathMtu::Bytes1024, 2, 300, 64);
    let few = cycles(PathMtu::Bytes1024, 1, 100, 4096);
    let quantum = cycles(PathMtu::Bytes1024, 1, 40, 1 << 14);
    let long = cycles(PathMtu::Bytes1024, 1, 2, 1 << 19);
    let long_of_two = cycles(PathMtu::Bytes256, 2, 1, 1 << 17);
    let alone_of_six = cycles(PathMtu::Bytes1024, 6, 300, 72);
    let long_of_six = cycles(PathMtu::Bytes256, 6, 1, 1 << 17);
    println!("{alone} {alone_of_two} {alone_of_six} {few} {quantum} {long} {long_of_two} {long_of_six}");
    assert!(alone_of_six <= 14.0 && long_of_six <= 2.4, "{alone_of_six} {long_of_six}");
    assert!(alone <= 3.0 && alone_of_two <= 4.0 && few <= 2.6, "{alone} {alone_of_two} {few}");
    assert!(quantum <= 2.2 && long <= 2.35 && long_of_two <= 2.3, "{quantum} {long} {long_of_two}");
}

#[test]
fn long_messages_and_short_ones_share_the_wire() {
    let mut world = World::new(Stalls::None);
    world.sges = Some(1);
    world.pairs.iter_mut().for_each(|pair| pair.path_mtu = PathMtu::Bytes1024 as u64);
    (1..4).for_each(|number| world.posts(number, 256 << 10));
    while world.sent(3) != world.pairs[3].next_psn {
        if world.order.len() < 6 {
            world.posts(0, 64);
        }
        world.step();
        assert!(world.cycle < 40_000);
    }
    // A quantum each at once, then by turns, with a quantum of the short ones in between: 103 packets of 64
    // bytes and 96 more.
    let turns: Vec<_> = world.goes.iter().filter(|go| go.1).map(|go| go.0).collect();
    assert_eq!(turns.len(), 45);
    assert!(turns[4..43].windows(3).all(|turns| turns.iter().sum::<usize>() == 6), "{turns:?}");
    let between: Vec<_> = world.goes.split(|go| go.1).map(<[_]>::len).collect();
    assert!(between[4..43].iter().all(|count| (101..=103).contains(count)), "{between:?}");
}

#[test]
fn a_rest_waits_for_its_turn_unless_a_wqe_is_behind_it() {
    let mut world = World::new(Stalls::None);
    (world.sges, world.gives_turns) = (Some(1), 0.0);
    world.posts(1, 100 << 10);
    (0..400).for_each(|_| world.step());
    assert_eq!(world.goes, [(1, false)]);
    assert!(world.pairs[1].message.as_ref().is_some_and(|message| message.made < message.packets.len()));
    world.posts(2, 100);
    (0..400).for_each(|_| world.step());
    assert_eq!(world.goes, [(1, false), (2, false)], "others go on");
    // One that wqe_parse would have held.
    world.posts(1, 100);
    (0..800).for_each(|_| world.step());
    assert_eq!((world.goes.len(), world.forces), (9, 6), "six quanta, and the WQE");
    assert_eq!(world.goes.last(), Some(&(1, false)));
    // The turn of the rest comes after all; another long message meanwhile needs no second one.
    world.posts(1, 20 << 10);
    (0..400).for_each(|_| world.step());
    assert_eq!((world.goes.len(), world.rest.received.len()), (10, 1));
    world.gives_turns = 1.0;
    (0..400).for_each(|_| world.step());
    assert_eq!((world.goes.len(), world.forces), (11, 6));
    assert_eq!(world.bench.block.waiting.val(), 0);
}
