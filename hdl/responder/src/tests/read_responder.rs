//! ReadResponder by itself: random requests, releases, results, commands and failures, against the responses
//! that each queue pair is owed.
use crate::messages::AtomicResult;
use crate::read_responder::ReadResponder;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};
use rnic_kernel::prelude::*;
use rnic_layout::opcode::Operation;
use rnic_layout::psn::psn_count;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::{PathMtu, QpState};
use rnic_messages::host::HostSpan;
use rnic_messages::protect::{AccessAnswer, AccessRequest};
use rnic_messages::read::{
    READ_SLOT_BITS, ReadRelease, ReadRequest, ReadShare, ReadsServed, ReadsWithdrawn, share_slots,
};
use rnic_messages::setup::{NoticeKind, QpNotice, SetupEvent, SetupKind};
use rnic_messages::transmit::{GatherCommand, GatherFailure};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

const ACK: u8 = 0x1f;
const NAK_ACCESS: u8 = 0x62;
const NAK_OPERATIONAL: u8 = 0x63;
const QUEUE_PAIRS: [u16; 4] = [0, 3, 514, 1023];

/// READ slots of a queue pair: shares of all sizes.
fn share_of(number: u16) -> ReadShare {
    let (unit, size) = match number {
        0 => (0, 3),
        3 => (5, 1),
        514 => (6, 2),
        _ => (0x7fc, 3),
    };
    ReadShare { unit: bits(unit), size: bits(size) }
}

/// A packet that a queue pair is owed.
#[derive(Clone, Debug)]
struct Owed {
    operation: Operation,
    psn: u32,
    msn: u32,
    address: u64,
    key: u32,
    bytes: u32,
    ends: bool,
    /// Its request, by its place in the history.
    request: usize,
    /// Index of an atomic among those of its queue pair.
    atomic: Option<usize>,
}

/// Result of an atomic.
#[derive(Clone, Copy, Debug)]
struct Found {
    original: u64,
    has_failed: bool,
    slot: u32,
    is_told: bool,
}

/// A request that was stored.
#[derive(Clone, Debug)]
struct Stored {
    request: ReadRequest,
    packets: Vec<Owed>,
}

/// A duplicate that was released.
#[derive(Clone, Debug)]
struct Again {
    /// Order of its release among those of its queue pair.
    order: u32,
    /// Responses that are owed, if it is noted, and how many of them were sent.
    packets: Vec<Owed>,
    sent: usize,
    /// The last of them is the last one to the request.
    reaches_end: bool,
}

/// A duplicate that is not released: whose it is, and what it asks for.
struct AgainDue {
    number: u16,
    generation: u8,
    packets: Vec<Owed>,
    reaches_end: bool,
}

/// A queue pair from one restart to the next.
#[derive(Default)]
struct Life {
    state: Option<QpState>,
    path_mtu: u32,
    psn: u32,
    msn: u32,
    stored: u32,
    released: u32,
    released_owed: usize,
    served: u32,
    /// Packets of each request that waits for its release.
    waiting: VecDeque<Vec<Owed>>,
    owed: VecDeque<Owed>,
    atomics: Vec<Found>,
    /// All requests, and duplicates that were released and are neither answered nor known to be withdrawn.
    history: Vec<Stored>,
    again: Vec<Again>,
    /// Duplicates that were released, that were answered, and that were withdrawn; order of the one whose responses are sent.
    released_again: u32,
    answered_again: u32,
    withdrawn: u32,
    current_again: u32,
    /// Requests whose last response was sent, by their answer or by a replay.
    finished: u32,
    /// Answers that a replay has ended, and their responses that were not sent.
    cut: u32,
    skipped: usize,
    /// Access requests of responses that were not sent yet.
    asked: VecDeque<AccessRequest>,
    answers: VecDeque<AccessAnswer>,
    /// PSNs of packets whose payload the host failed to return.
    lost: Vec<u32>,
    /// The host has refused a write behind the released requests.
    write_failed: bool,
    has_failed: bool,
    told_failures: Vec<u64>,
    sent: usize,
}

/// The responses to a request, or to a part of one.
fn responses(
    request: usize,
    psn: u32,
    msn: u32,
    key: u32,
    address: u64,
    length: u32,
    pmtu: u32,
) -> Vec<Owed> {
    let count = psn_count(length, pmtu);
    let packets = (0..count).map(|index| Owed {
        operation: match (index, index + 1 == count) {
            (0, true) => Operation::ReadResponseOnly,
            (0, false) => Operation::ReadResponseFirst,
            (_, false) => Operation::ReadResponseMiddle,
            (_, true) => Operation::ReadResponseLast,
        },
        psn: (psn + index) & 0xff_ffff,
        msn,
        address: address + u64::from(index * pmtu),
        key,
        bytes: pmtu.min(length - index * pmtu),
        ends: index + 1 == count,
        request,
        atomic: None,
    });
    packets.collect()
}

impl Life {
    /// The response that a packet is, and whether it answers a duplicate: the next of the duplicate that is being answered, the next
    /// of the requests, or the first of the newest duplicate that it can belong to. Responses to a duplicate follow each other.
    fn next(&mut self, opcode: u64, psn: u32) -> (Owed, bool) {
        let asked = self.asked.front().map(|asked| (asked.key.to_u64() as u32, asked.address.to_u64()));
        let is_it = |owed: &Owed| {
            let is_nak = opcode == Operation::Acknowledge as u64;
            let is_asked = owed.bytes == 0 || asked == Some((owed.key, owed.address));
            owed.psn == psn && (is_nak || owed.operation as u64 == opcode) && is_asked
        };
        let current = self.current_again;
        let is_next = |again: &Again| again.packets.get(again.sent).is_some_and(is_it);
        let goes_on = |again: &Again| again.order == current && again.sent > 0 && is_next(again);
        // Of two duplicates with the same first response, it shows only later which one is answered.
        let under_way = self.again.iter().position(|again| again.order == current && again.sent > 0);
        if let Some(place) = under_way.filter(|&place| !goes_on(&self.again[place])) {
            let (first, sent) = (self.again[place].packets[0].psn, self.again[place].sent);
            let is_other = |again: &Again| {
                let begins = again.packets.first().is_some_and(|owed| owed.psn == first);
                again.order != current && begins && again.packets.get(sent).is_some_and(is_it)
            };
            if let Some(other) = self.again.iter().rposition(is_other) {
                self.again[place].sent = 0;
                self.again[other].sent = sent;
                self.current_again = self.again[other].order;
            }
        }
        let current = self.current_again;
        let goes_on = |again: &Again| again.order == current && again.sent > 0 && is_next(again);
        if self.owed.front().is_some_and(is_it) && !self.again.iter().any(goes_on) {
            self.sent += 1;
            let owed = self.owed.pop_front().expect("it is there");
            self.finished += u32::from(owed.ends);
            return (owed, false);
        }
        let goes_on = self.again.iter().position(goes_on);
        let begins = |again: &Again| again.sent == 0 && is_next(again);
        let place = goes_on.or_else(|| self.again.iter().rposition(begins));
        let place =
            place.unwrap_or_else(|| panic!("{opcode:#x} of {psn:#x} is not owed: {:?}", self.owed.front()));
        let again = &mut self.again[place];
        self.current_again = again.order;
        let owed = again.packets[again.sent].clone();
        again.sent += 1;
        if owed.ends {
            self.answered_again += 1;
            if self.again.remove(place).reaches_end {
                self.end_answer(owed.request);
            }
        }
        (owed, true)
    }

    /// The last response to a request was sent. If its answer is under way, the rest of that is not sent (protocol 3.5).
    fn end_answer(&mut self, request: usize) {
        let rest = self.owed.iter().take_while(|owed| owed.request == request).count();
        if rest > 0 {
            self.owed.drain(..rest);
            self.skipped += rest;
            self.cut += 1;
            self.finished += 1;
        }
    }
}

struct World {
    bench: Bench<ReadResponder>,
    random: Random,
    /// The newest generation of each queue pair is the current one.
    lives: BTreeMap<(u16, u8), Life>,
    generations: BTreeMap<u16, u8>,
    setup: Source<SetupEvent>,
    /// Queue pairs of the setup events that were not taken.
    commanded: VecDeque<u16>,
    jobs: Source<ReadRequest>,
    releases: Source<ReadRelease>,
    withdrawn: Sink<ReadsWithdrawn>,
    /// Duplicates that are not released, in their order.
    again_due: VecDeque<AgainDue>,
    results: Source<AtomicResult>,
    /// Queue pairs whose results are in the source, and results that are still due.
    results_offered: VecDeque<(u16, u8, usize)>,
    results_due: VecDeque<(u64, (u16, u8, usize))>,
    answers: Source<AccessAnswer>,
    lost: Source<GatherFailure>,
    requests: Sink<AccessRequest>,
    gather: Sink<GatherCommand>,
    /// Gather takes nothing.
    holds_gather: bool,
    failures: Sink<QpNotice>,
    due: VecDeque<(u64, AccessAnswer)>,
    cycle: u64,
    refuses: f64,
    loses: f64,
    naks: [u64; 2],
    /// Atomics.
    answered: usize,
    /// NAKs of failed writes.
    ended: usize,
    /// Answers that a replay has ended.
    cut: u32,
    /// Responses to duplicates, and duplicates that were counted as answered and as not noted.
    sent_again: usize,
    duplicates: [u64; 2],
}

impl World {
    fn new(stalls: Stalls) -> World {
        let mut world = World {
            bench: Bench::clocked(ReadResponder::default(), |block| &mut block.clock).in_lock_step(),
            random: random(),
            lives: BTreeMap::new(),
            generations: QUEUE_PAIRS.map(|number| (number, 250)).into(),
            setup: Source::of_tokens([], stalls),
            commanded: VecDeque::new(),
            jobs: Source::of_tokens([], stalls),
            releases: Source::of_tokens([], stalls),
            withdrawn: Sink::new(stalls),
            again_due: VecDeque::new(),
            results: Source::of_tokens([], stalls),
            results_offered: VecDeque::new(),
            results_due: VecDeque::new(),
            answers: Source::of_tokens([], stalls),
            lost: Source::of_tokens([], stalls),
            requests: Sink::new(stalls),
            gather: Sink::new(stalls),
            holds_gather: false,
            failures: Sink::new(stalls),
            due: VecDeque::new(),
            cycle: 0,
            refuses: 0.0,
            loses: 0.0,
            naks: [0; 2],
            answered: 0,
            ended: 0,
            cut: 0,
            sent_again: 0,
            duplicates: [0; 2],
        };
        QUEUE_PAIRS.iter().for_each(|&number| world.restart(number));
        (0..1200).for_each(|_| world.step());
        world
    }

    fn event(&mut self, kind: SetupKind, number: u16, state: QpState) {
        let generation = self.generations[&number];
        let life = self.lives.get_mut(&(number, generation)).expect("it lives");
        life.state = Some(state);
        let mut event = SetupEvent { kind, ..SetupEvent::default() };
        event.queue_pair = bits(number.into());
        event.state = bits(state as u64);
        event.generation = bits(generation.into());
        event.path.path_mtu = bits(life.path_mtu.into());
        event.destination_read_share = share_of(number);
        // The domain identifies the queue pair in access requests.
        event.path.domain = bits(u64::from(number) << 8 | u64::from(generation));
        self.setup.push(event);
        self.commanded.push_back(number);
    }

    /// A queue pair is reset, and made ready.
    fn restart(&mut self, number: u16) {
        let generation = self.generations[&number].wrapping_add(1);
        self.generations.insert(number, generation);
        let life = Life {
            path_mtu: self.random.random_range(PathMtu::Bytes256 as u32..=PathMtu::Bytes4096 as u32),
            psn: 0xff_fff0 | self.random.random_range(0..16),
            ..Life::default()
        };
        self.lives.insert((number, generation), life);
        self.event(SetupKind::Restart, number, QpState::Reset);
        let state = if self.random.random() { QpState::ReadyToReceive } else { QpState::ReadyToSend };
        self.event(SetupKind::Life, number, state);
    }

    fn life(&mut self, number: u16) -> &mut Life {
        let generation = self.generations[&number];
        self.lives.get_mut(&(number, generation)).expect("it lives")
    }

    /// Whether resolve would pass on a READ of this queue pair.
    fn may_store(&mut self, number: u16) -> bool {
        let is_set = self.setup.is_done();
        let life = self.life(number);
        is_set
            && life.state != Some(QpState::Error)
            && !life.has_failed
            && !life.write_failed
            && u64::from(life.stored - life.served) < share_slots(share_of(number)).to_u64()
    }

    /// An atomic; its result is chosen here.
    fn store_atomic(&mut self, number: u16) {
        let generation = self.generations[&number];
        let (original, has_failed) = (self.random.random(), self.random.random_bool(2.0 * self.loses));
        let life = self.life(number);
        life.msn = (life.msn + 1) & 0xff_ffff;
        let (psn, msn) = (life.psn, life.msn);
        let packets = vec![Owed {
            operation: Operation::AtomicAcknowledge,
            psn,
            msn,
            address: 0,
            key: 0,
            bytes: 0,
            ends: true,
            request: life.history.len(),
            atomic: Some(life.atomics.len()),
        }];
        life.atomics.push(Found {
            original,
            has_failed,
            slot: life.stored % (1 << READ_SLOT_BITS),
            is_told: false,
        });
        life.psn = (psn + 1) & 0xff_ffff;
        life.stored += 1;
        let request = ReadRequest {
            queue_pair: bits(number.into()),
            generation: bits(generation.into()),
            psn: bits(psn.into()),
            last_psn: bits(psn.into()),
            msn: bits(msn.into()),
            is_atomic: true,
            ..ReadRequest::default()
        };
        life.waiting.push_back(packets.clone());
        life.history.push(Stored { request, packets });
        self.jobs.push(request);
    }

    fn store(&mut self, number: u16, length: u32) {
        let generation = self.generations[&number];
        let (address, key) = (self.random.random::<u64>() >> 1, self.random.random());
        let life = self.life(number);
        let pmtu = 128 << life.path_mtu;
        let count = psn_count(length, pmtu);
        life.msn = (life.msn + 1) & 0xff_ffff;
        let (psn, msn) = (life.psn, life.msn);
        let packets = responses(life.history.len(), psn, msn, key, address, length, pmtu);
        life.psn = (psn + count) & 0xff_ffff;
        life.stored += 1;
        let request = ReadRequest {
            queue_pair: bits(number.into()),
            generation: bits(generation.into()),
            psn: bits(psn.into()),
            last_psn: bits(((psn + count - 1) & 0xff_ffff).into()),
            msn: bits(msn.into()),
            key: bits(u64::from(key)),
            address: bits(address),
            length: bits(length.into()),
            is_atomic: false,
            is_again: false,
        };
        life.waiting.push_back(packets.clone());
        life.history.push(Stored { request, packets });
        self.jobs.push(request);
    }

    /// The peer asks again for these responses to request `index` of a queue pair; or, with `is_wrong`, with another key or PSN.
    fn store_again(&mut self, number: u16, index: usize, asked: Range<u32>, is_wrong: bool) {
        let generation = self.generations[&number];
        let life = self.life(number);
        let pmtu = 128 << life.path_mtu;
        let Stored { mut request, mut packets } = life.history[index].clone();
        let reaches_end = asked.end as usize == packets.len();
        (request.is_again, request.msn) = (true, bits(life.msn.into()));
        if request.is_atomic {
            if is_wrong {
                (request.psn, request.last_psn) = (request.psn - 64, request.last_psn - 64);
                packets.clear();
            }
        } else {
            let (psn, key) = (request.psn.to_u64() as u32, request.key.to_u64() as u32);
            let skipped = asked.start * pmtu;
            let length = (asked.end * pmtu).min(request.length.to_u64() as u32) - skipped;
            let first = (psn + asked.start) & 0xff_ffff;
            request.psn = bits(first.into());
            request.last_psn = bits(((psn + asked.end - 1) & 0xff_ffff).into());
            request.address = request.address + u64::from(skipped);
            request.length = bits(length.into());
            let address = request.address.to_u64();
            packets = responses(index, first, packets[0].msn, key, address, length, pmtu);
            if is_wrong {
                request.key = request.key ^ 1;
                packets.clear();
            }
        }
        self.jobs.push(request);
        self.again_due.push_back(AgainDue { number, generation, packets, reaches_end });
    }

    /// Ack releases the oldest duplicate, and drops it if its queue pair was restarted or has failed.
    fn release_again(&mut self) {
        if !self.jobs.is_done() || !self.setup.is_done() {
            return;
        }
        let Some(due) = self.again_due.pop_front() else { return };
        let AgainDue { number, generation, packets, reaches_end } = due;
        let is_dropped = self.generations[&number] != generation || self.life(number).write_failed;
        if !is_dropped {
            let life = self.life(number);
            life.released_again += 1;
            let order = life.released_again;
            life.again.push(Again { order, packets, sent: 0, reaches_end });
        }
        self.releases.push(ReadRelease {
            queue_pair: bits(number.into()),
            generation: bits(self.generations[&number].into()),
            is_again: true,
            is_dropped,
            ..ReadRelease::default()
        });
    }

    fn release(&mut self, number: u16) {
        let generation = self.generations[&number];
        let are_stored = self.jobs.is_done();
        let life = self.life(number);
        if are_stored
            && !life.write_failed
            && let Some(packets) = life.waiting.pop_front()
        {
            life.released += 1;
            life.released_owed += packets.len();
            let atomic = packets[0].atomic;
            life.owed.extend(packets);
            self.releases.push(ReadRelease {
                queue_pair: bits(number.into()),
                generation: bits(generation.into()),
                ..ReadRelease::default()
            });
            if let Some(atomic) = atomic {
                // Results arrive in order, and only after their release.
                let due = self.cycle + 20 + self.random.random_range(0..150);
                self.results_due.push_back((due, (number, generation, atomic)));
            }
        }
    }

    /// The host refuses a write behind the released requests. Ack says so once.
    fn fail_write(&mut self, number: u16) {
        let generation = self.generations[&number];
        self.life(number).write_failed = true;
        self.releases.push(ReadRelease {
            queue_pair: bits(number.into()),
            generation: bits(generation.into()),
            write_failed: true,
            ..ReadRelease::default()
        });
    }

    fn step(&mut self) {
        while self.due.front().is_some_and(|due| due.0 <= self.cycle) {
            self.answers.push(self.due.pop_front().expect("it is there").1);
        }
        while self.results_due.front().is_some_and(|due| due.0 <= self.cycle) && self.releases.is_done() {
            let (_, whose) = self.results_due.pop_front().expect("it is there");
            let found = self.lives[&(whose.0, whose.1)].atomics[whose.2];
            self.results_offered.push_back(whose);
            self.results.push(AtomicResult {
                queue_pair: bits(whose.0.into()),
                generation: bits(whose.1.into()),
                slot: bits(found.slot.into()),
                original: bits(found.original),
                has_failed: found.has_failed,
            });
        }
        let (block, random) = (&mut self.bench.block, &mut self.random);
        self.setup.drive(&mut block.setup, random);
        self.jobs.drive(&mut block.request, random);
        self.releases.drive(&mut block.release, random);
        self.results.drive(&mut block.result, random);
        self.answers.drive(&mut block.access_answer, random);
        self.lost.drive(&mut block.lost, random);
        self.requests.drive(&mut block.access_request, random);
        self.gather.drive(&mut block.gather, random);
        if self.holds_gather {
            block.gather.ready.next = false;
        }
        self.failures.drive(&mut block.failure, random);
        self.withdrawn.drive(&mut block.withdrawn, random);
        self.bench.settle();
        let block = &self.bench.block;
        if self.setup.sample(&block.setup) {
            self.commanded.pop_front();
        }
        self.jobs.sample(&block.request);
        self.releases.sample(&block.release);
        if self.results.sample(&block.result) {
            let (number, generation, atomic) = self.results_offered.pop_front().expect("it was offered");
            let life = self.lives.get_mut(&(number, generation)).expect("it lived");
            life.atomics[atomic].is_told = true;
        }
        self.answers.sample(&block.access_answer);
        self.lost.sample(&block.lost);
        self.naks[0] += u64::from(block.counts.val().nak_access_sent);
        self.naks[1] += u64::from(block.counts.val().nak_operational_sent);
        let request = self.requests.sample(&block.access_request);
        let command = self.gather.sample(&block.gather);
        let failure = self.failures.sample(&block.failure);
        let withdrawn = self.withdrawn.sample(&block.withdrawn);
        self.duplicates[0] += u64::from(block.counts.val().duplicate_request);
        self.duplicates[1] += u64::from(block.counts.val().duplicate_dropped);
        let served = block.served.valid.val().then(|| block.served.value.val());
        // While an event is on its way, they are those of the life before it.
        let is_told = |served: &ReadsServed| !self.commanded.contains(&(served.queue_pair.to_u64() as u16));
        if let Some(served) = served.filter(is_told) {
            let number = served.queue_pair.to_u64() as u16;
            let life = self.life(number);
            let news = (served.count.to_u64() as u32).wrapping_sub(life.served) & 0x1f;
            // A queue pair whose requests are dropped starts from zero.
            if served.count.to_u64() != 0 || life.state != Some(QpState::Error) {
                assert!(
                    life.served + news <= life.released || news == 0,
                    "more are served than were released"
                );
                life.served += news;
            }
        }
        if let Some(request) = request {
            self.take_request(request);
        }
        if let Some(command) = command {
            self.take_command(command);
        }
        if let Some(failure) = failure {
            self.take_failure(failure);
        }
        if let Some(withdrawn) = withdrawn {
            let whose = (withdrawn.queue_pair.to_u64() as u16, withdrawn.generation.to_u64() as u8);
            let life = self.lives.get_mut(&whose).expect("it lived");
            life.withdrawn += withdrawn.count.to_u64() as u32;
            let most = life.released_again + life.released;
            assert!(life.withdrawn + life.answered_again <= most && withdrawn.count.any());
        }
        self.bench.tick();
        self.cycle += 1;
    }

    fn take_request(&mut self, request: AccessRequest) {
        let domain = request.domain.to_u64();
        let life = self.lives.get_mut(&((domain >> 8) as u16, domain as u8)).expect("it lived");
        life.asked.push_back(request);
        let is_it =
            |owed: &Owed| (bits(owed.key.into()), bits(owed.address)) == (request.key, request.address);
        let place = life.owed.iter().position(is_it).unwrap_or(0);
        assert!(
            life.owed
                .iter()
                .take(place)
                .all(|owed| owed.atomic.is_none_or(|atomic| life.atomics[atomic].is_told)),
            "no request after an atomic is read before its result is there"
        );
        assert!(
            request.remote_read && !request.remote_write && !request.local_write && !request.remote_atomic
        );
        let ok = !self.random.random_bool(self.refuses);
        let answer = AccessAnswer { ok, device_address: bits(self.random.random::<u64>()) };
        life.answers.push_back(answer);
        self.due.push_back((self.cycle + self.random.random_range(1..30), answer));
    }

    fn take_command(&mut self, command: GatherCommand) {
        let GatherCommand { headers, .. } = command;
        let (number, generation) = (headers.queue_pair.to_u64() as u16, headers.generation.to_u64() as u8);
        let life = self.lives.get_mut(&(number, generation)).expect("it lived");
        assert!(!life.has_failed, "nothing is sent after a NAK");
        assert!(headers.is_response && !headers.solicited && !headers.ack_request && !command.is_inline);
        let aeth = headers.extended.get_bits::<32>(0).to_u64() as u32;
        let (syndrome, msn) = (aeth as u8, aeth.swap_bytes() & 0xff_ffff);
        let psn = headers.psn.to_u64() as u32;
        let is_lost = life.lost.contains(&psn);
        if headers.opcode == Operation::Acknowledge as u64 && syndrome == NAK_OPERATIONAL && is_lost {
            assert!(!headers.ends_response && command.span_count == 0 && headers.payload_bytes == 0);
            life.has_failed = true;
            return;
        }
        let is_end = headers.opcode == Operation::Acknowledge as u64 && syndrome == NAK_OPERATIONAL;
        if is_end && life.write_failed && life.asked.is_empty() {
            let next = life.again.iter().filter_map(|again| again.packets.get(again.sent));
            let mut next = life.owed.front().into_iter().chain(next);
            assert!(next.any(|owed| psn == owed.psn), "the NAK takes the place of a next response");
            assert!(!headers.ends_response && command.span_count == 0 && headers.payload_bytes == 0);
            self.ended += 1;
            life.owed.clear();
            life.has_failed = true;
            return;
        }
        let cut_before = life.cut;
        let (owed, is_again) = life.next(headers.opcode.to_u64(), psn);
        self.sent_again += usize::from(is_again);
        self.cut += life.cut - cut_before;
        // A peer that has the last response may send its next READ (protocol 2.3).
        let is_counted = self.commanded.contains(&number) || life.served >= life.finished;
        assert!(
            is_counted,
            "{} are served when the last response of {} has left",
            life.served, life.finished
        );
        // The MSN of an answer to a duplicate is that of the card when the newest one came.
        let msn_fits = msn == owed.msn || (is_again && (owed.msn..=life.msn).contains(&msn));
        let found = owed.atomic.map(|atomic| life.atomics[atomic]);
        assert!(found.is_none_or(|found| found.is_told), "an atomic is answered when its result is there");
        if found.is_some_and(|found| found.has_failed) {
            assert_eq!((headers.opcode.to_u64(), syndrome), (Operation::Acknowledge as u64, NAK_OPERATIONAL));
            assert!(psn == owed.psn && msn == owed.msn && !headers.ends_response && command.span_count == 0);
            life.has_failed = true;
            return;
        }
        let answer = if owed.bytes > 0 {
            let request = life.asked.pop_front().expect("it was asked for");
            let found = (request.key, request.address, request.length);
            assert_eq!(found, (bits(owed.key.into()), bits(owed.address), bits(owed.bytes.into())));
            life.answers.pop_front().expect("it was asked for")
        } else {
            AccessAnswer { ok: true, ..AccessAnswer::default() }
        };
        assert_eq!(
            (psn, headers.payload_bytes.to_u64() as u32),
            (owed.psn, if answer.ok { owed.bytes } else { 0 })
        );
        if !answer.ok {
            assert_eq!((headers.opcode.to_u64(), syndrome), (Operation::Acknowledge as u64, NAK_ACCESS));
            assert!(msn_fits && !headers.ends_response && command.span_count == 0);
            life.has_failed = true;
            return;
        }
        assert_eq!((headers.opcode.to_u64(), headers.ends_response), (owed.operation as u64, owed.ends));
        let original = headers.extended.get_bits::<64>(32).to_u64().swap_bytes();
        assert_eq!(original, found.map_or(0, |found| found.original));
        self.answered += usize::from(found.is_some());
        if owed.operation == Operation::ReadResponseMiddle {
            assert_eq!(headers.extended, 0);
        } else {
            assert!(syndrome == ACK && msn_fits, "MSN {msn}, {owed:?}");
        }
        assert_eq!(command.span_count, u64::from(owed.bytes > 0));
        if owed.bytes > 0 {
            let first = HostSpan { address: answer.device_address, length: bits(owed.bytes.into()) };
            assert_eq!(command.first, first);
            if self.random.random_bool(self.loses) {
                life.lost.push(psn);
                self.lost.push(GatherFailure {
                    queue_pair: headers.queue_pair,
                    generation: headers.generation,
                    psn: headers.psn,
                    is_response: true,
                    is_mark: false,
                });
            }
        }
    }

    fn take_failure(&mut self, failure: QpNotice) {
        let (number, generation) = (failure.queue_pair.to_u64() as u16, failure.generation.to_u64() as u8);
        assert!(failure.kind == NoticeKind::ResponderError && failure.has_event);
        let life = self.lives.get_mut(&(number, generation)).expect("it lived");
        life.told_failures.push(failure.event_code.to_u64());
        if self.generations[&number] == generation {
            self.event(SetupKind::Life, number, QpState::Error);
        }
    }

    /// Everything that was released and not dropped has been sent.
    fn is_at_rest(&self) -> bool {
        let is_served = |life: &Life| {
            // ERR keeps the NAK of a failed write.
            let lives = (life.state != Some(QpState::Error) || life.write_failed) && !life.has_failed;
            let is_answered = life.answered_again + life.withdrawn == life.released_again + life.cut;
            !lives || (life.owed.is_empty() && life.asked.is_empty() && (is_answered || life.write_failed))
        };
        let mut current =
            self.generations.iter().map(|(&number, &generation)| &self.lives[&(number, generation)]);
        let in_flight = self.bench.block.in_flight.val();
        self.setup.is_done()
            && self.jobs.is_done()
            && self.releases.is_done()
            && self.again_due.is_empty()
            && self.results.is_done()
            && self.results_due.is_empty()
            && self.answers.is_done()
            && self.lost.is_done()
            && self.due.is_empty()
            && in_flight.entered == in_flight.left
            && current.all(is_served)
    }

    fn comes_to_rest(&mut self) {
        let end = self.cycle + 60_000;
        while !self.is_at_rest() {
            self.release_again();
            self.step();
            assert!(self.cycle < end, "all requests are answered");
        }
        (0..20).for_each(|_| self.step());
        assert!(self.is_at_rest());
        let mut expected = [0; 2];
        for life in self.lives.values() {
            assert_eq!(life.told_failures.len(), usize::from(life.has_failed), "a queue pair fails once");
            for &code in &life.told_failures {
                expected[usize::from(code == AsyncEvent::QueuePairFatal as u64)] += 1;
            }
        }
        assert_eq!(self.naks, expected);
        for &number in &QUEUE_PAIRS {
            let life = self.life(number);
            if life.state != Some(QpState::Error) && !life.has_failed {
                assert_eq!((life.served, life.finished), (life.released, life.released));
                assert_eq!(life.sent + life.skipped, life.released_owed);
            }
        }
    }
}

#[test]
fn every_read_is_answered_once_and_in_order() {
    let (mut naks, mut sent, mut answered, mut ended, mut cut, mut again) = ([0; 2], 0, 0, 0, 0, [0; 3]);
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        for round in 0..3 {
            (world.refuses, world.loses) = if round == 0 { (0.0, 0.0) } else { (0.01, 0.01) };
            let changes = if round == 2 { 0.002 } else { 0.0 };
            for _ in 0..3_000 {
                let number = QUEUE_PAIRS[world.random.random_range(0..QUEUE_PAIRS.len())];
                let is_failed = world.life(number).state == Some(QpState::Error);
                if world.random.random_bool(changes) || (is_failed && world.random.random_bool(0.02)) {
                    let is_known = !world.life(number).write_failed || world.releases.is_done();
                    if world.random.random_bool(0.3) && !is_failed && is_known {
                        world.event(SetupKind::Life, number, QpState::Error);
                    } else {
                        world.restart(number);
                    }
                }
                let life = world.life(number);
                let lives = life.state != Some(QpState::Error);
                let (write_failed, has_open) = (life.write_failed, !life.owed.is_empty());
                if lives && write_failed && world.releases.is_done() && world.random.random_bool(0.05) {
                    world.event(SetupKind::Life, number, QpState::Error);
                } else if lives && !write_failed && has_open && world.random.random_bool(5.0 * changes) {
                    world.fail_write(number);
                }
                if world.random.random_bool(0.05) && world.may_store(number) {
                    let pmtu = 128 << world.life(number).path_mtu;
                    let length = match world.random.random_range(0..6) {
                        0 => 0,
                        1 => pmtu * world.random.random_range(1..=6),
                        2 => world.random.random_range(0..40_000),
                        _ => world.random.random_range(0..2 * pmtu),
                    };
                    if world.random.random_bool(0.4) {
                        world.store_atomic(number);
                    } else {
                        world.store(number, length);
                    }
                }
                if world.random.random_bool(0.1) {
                    world.release(number);
                }
                let released = world.life(number).released as usize;
                if world.random.random_bool(0.03) && released > 0 && world.may_store(number) {
                    // The one that is answered, or mostly one of the last, from its beginning or not.
                    let back = if world.random.random() { 3 } else { 24 };
                    let last = released - world.random.random_range(1..=released.min(back));
                    let is_early = world.random.random_bool(0.5);
                    let answered = world.life(number).owed.front().map(|owed| owed.request);
                    let index = answered.filter(|_| is_early).unwrap_or(last);
                    let count = world.life(number).history[index].packets.len() as u32;
                    let from = if world.random.random() { 0 } else { world.random.random_range(0..count) };
                    let is_part = world.random.random_bool(0.2);
                    let end = if is_part { world.random.random_range(from + 1..=count) } else { count };
                    let is_wrong = world.random.random_bool(0.1);
                    world.store_again(number, index, from..end, is_wrong);
                }
                if world.random.random_bool(0.1) {
                    world.release_again();
                }
                world.step();
            }
            world.comes_to_rest();
        }
        naks = [naks[0] + world.naks[0], naks[1] + world.naks[1]];
        sent += world.gather.received.len();
        answered += world.answered;
        ended += world.ended;
        cut += world.cut;
        again = [
            again[0] + world.sent_again as u64,
            again[1] + world.duplicates[0],
            again[2] + world.duplicates[1],
        ];
    }
    println!(
        "{sent} packets, {answered} of atomics, {naks:?} NAKs, {ended} of failed writes, {again:?} again, {cut} ended by it"
    );
    assert!(again.iter().all(|&count| count > 50), "duplicates were answered and dropped: {again:?}");
    assert!(sent > 2_000 && answered > 300 && naks.iter().all(|&count| count > 3), "{sent}, {naks:?}");
    assert!(ended > 0 && cut > 3, "{ended} writes failed, {cut} answers were ended by a replay");
}

/// Protocol 3.5: a replay to the last response ends the answer that is under way, and the next READ may come before that response
/// leaves. One that ends before it, by a packet or by many, leaves the answer as it was.
#[test]
fn a_replay_ends_the_answer_that_it_overtakes() {
    for (stalls, number) in Stalls::ALL.into_iter().zip(QUEUE_PAIRS) {
        for (length, asked, is_cut) in [
            (16_384, 3..16, false),
            (40_000, 3..40, true),
            (40_000, 0..40, true),
            (200_000, 10..196, true),
            (200_000, 195..196, true),
            (200_000, 3..195, false),
            (200_000, 3..40, false),
        ] {
            let mut world = World::new(stalls);
            while world.life(number).path_mtu != PathMtu::Bytes1024 as u32 {
                world.restart(number);
            }
            while !world.setup.is_done() {
                world.step();
            }
            for length in [length, 2_000] {
                world.store(number, length);
            }
            world.store_atomic(number);
            while !world.jobs.is_done() {
                world.step();
            }
            // The answer stops after two turns of 16 KiB, until the responses leave.
            world.holds_gather = true;
            world.release(number);
            (0..300).for_each(|_| world.step());
            world.store_again(number, 0, asked.clone(), false);
            while !world.jobs.is_done() {
                world.step();
            }
            world.release_again();
            world.release(number);
            world.release(number);
            (0..300).for_each(|_| world.step());
            world.holds_gather = false;
            world.comes_to_rest();
            assert_eq!(world.cut, u32::from(is_cut), "{asked:?} of {length} bytes");
            let life = world.life(number);
            let (withdrawn, sent_again) = (life.withdrawn, world.sent_again);
            assert_eq!((withdrawn, sent_again), (u32::from(is_cut), asked.len()), "{asked:?}");
        }
    }
}

/// A write fails behind two READs of which one is answered: responses that are made leave, and the NAK takes the place of the
/// next one. ERR comes at once, and neither loses the NAK nor lets anything follow it.
#[test]
fn a_failed_write_ends_a_read_with_a_nak_in_place_of_its_next_response() {
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        let number = QUEUE_PAIRS[1];
        for length in [10, 800_000] {
            world.store(number, length);
        }
        while !world.jobs.is_done() {
            world.step();
        }
        let first_psn = world.life(number).waiting[0][0].psn;
        world.release(number);
        world.release(number);
        while world.gather.received.len() < 5 {
            world.step();
        }
        world.fail_write(number);
        while !world.releases.is_done() {
            world.step();
        }
        world.event(SetupKind::Life, number, QpState::Error);
        world.comes_to_rest();
        assert_eq!(world.ended, 1);
        let sent = world.gather.received.iter().map(|command| command.headers);
        let psns: Vec<_> = sent.clone().map(|headers| headers.psn.to_u64() as u32).collect();
        let expected: Vec<_> = (0..psns.len() as u32).map(|index| (first_psn + index) & 0xff_ffff).collect();
        assert_eq!(psns, expected, "each response leaves once, and the NAK is next");
        let naks = sent.map(|headers| headers.opcode == Operation::Acknowledge as u64);
        assert!(naks.enumerate().all(|(at, is_nak)| is_nak == (at + 1 == psns.len())), "the NAK is the last");
    }
}

/// All responses are made when the write fails: they leave, and the NAK is another's.
#[test]
fn a_failed_write_behind_made_responses_changes_none() {
    let mut world = World::new(Stalls::None);
    let number = QUEUE_PAIRS[1];
    world.store(number, 10);
    (0..40).for_each(|_| world.step());
    world.release(number);
    (0..60).for_each(|_| world.step());
    world.fail_write(number);
    (0..20).for_each(|_| world.step());
    world.event(SetupKind::Life, number, QpState::Error);
    (0..200).for_each(|_| world.step());
    assert_eq!((world.gather.received.len(), world.ended), (1, 0));
    assert!(world.gather.received[0].headers.ends_response);
    // ERR keeps nothing for the next life.
    world.restart(number);
    (0..20).for_each(|_| world.step());
    world.store(number, 3_000);
    (0..40).for_each(|_| world.step());
    world.release(number);
    world.comes_to_rest();
    assert_eq!(world.ended, 0);
}

/// A long READ does not delay a short one of another queue pair.
#[test]
fn queue_pairs_take_turns() {
    let mut world = World::new(Stalls::None);
    let (long, short) = (QUEUE_PAIRS[0], QUEUE_PAIRS[1]);
    world.store(long, 300_000);
    (0..50).for_each(|_| world.step());
    world.release(long);
    (0..100).for_each(|_| world.step());
    world.store(short, 10);
    (0..10).for_each(|_| world.step());
    world.release(short);
    world.comes_to_rest();
    let received = &world.gather.received;
    let at = received
        .iter()
        .position(|command| command.headers.queue_pair == u64::from(short))
        .expect("it was sent");
    let behind: u64 = received[at..].iter().map(|command| command.headers.payload_bytes.to_u64()).sum();
    assert!(behind > 200_000, "{behind} bytes follow");
}

/// READs of two queue pairs have equal shares of the wire, however long they are: of one that is answered in many turns, a quantum
/// or two come between twelve short ones, and READs of 4 KiB come by fours.
#[test]
fn short_reads_have_a_quantum_together() {
    for (length, other_length, count, most) in [(64, 1 << 20, 12, 40 << 10), (4096, 4096, 12, 60 << 10)] {
        let mut world = World::new(Stalls::None);
        let (short, other) = (QUEUE_PAIRS[3], QUEUE_PAIRS[0]);
        for _ in 0..if length == other_length { count } else { 1 } {
            world.store(other, other_length);
        }
        (0..count).for_each(|_| world.store(short, length));
        (0..300).for_each(|_| world.step());
        for _ in 0..count {
            world.release(other);
            world.release(short);
        }
        world.comes_to_rest();
        let received = &world.gather.received;
        let is_short = |command: &&GatherCommand| command.headers.queue_pair == u64::from(short);
        let first = received.iter().position(|command| is_short(&command)).expect("they were sent");
        let last = received.iter().rposition(|command| is_short(&command)).expect("they were sent");
        let between = received[first..last].iter().filter(|command| !is_short(command));
        let between: u64 = between.map(|command| command.headers.payload_bytes.to_u64()).sum();
        assert!(between <= most, "{between} bytes between {count} READs of {length}");
        let changes =
            received[first..last].windows(2).filter(|two| is_short(&&two[0]) != is_short(&&two[1])).count();
        assert!(changes <= 8, "{changes} changes between {count} READs of {length}");
    }
}

/// Throughput in the header of the block.
#[test]
fn a_response_takes_two_cycles() {
    let mut world = World::new(Stalls::None);
    let number = QUEUE_PAIRS[2];
    let pmtu = 128 << world.life(number).path_mtu;
    let count = 4 * (16_384 / pmtu);
    world.store(number, count * pmtu);
    (0..10).for_each(|_| world.step());
    world.release(number);
    let begin = world.cycle;
    while world.gather.received.is_empty() {
        world.step();
    }
    println!("latency {}", world.cycle - begin);
    let first = world.cycle;
    while world.gather.received.len() < count as usize {
        world.step();
    }
    let cycles = world.cycle - first;
    println!("{cycles} cycles for {count} packets");
    assert!(cycles <= u64::from(2 * count + 4 * 8 + 40), "{cycles} cycles for {count} packets");
}
