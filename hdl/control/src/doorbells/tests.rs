use super::*;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, Waves, random};
use rnic_layout::doorbell::{
    Arm, COMPLETION, CompletionDoorbell, Doorbell, EVENT, EventDoorbell, RECEIVE, SEND, SHARED_RECEIVE,
    WorkDoorbell, offset_in_bar,
};
use std::collections::HashMap;

fn bench() -> Bench<Doorbells> {
    let mut bench = Bench::clocked(Doorbells::default(), |block| &mut block.clock);
    bench.block.enable.next = true;
    bench
}

fn index_mask(kind: Kind) -> u64 {
    match kind {
        Kind::EventQueue => 0x1f,
        Kind::SharedReceive => 0x3f,
        _ => 0x3ff,
    }
}

/// What software notices.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Message {
    Send(SendsPosted),
    Receive(ReceivesPosted),
    Completions(CompletionsRead),
    Events(EventsRead),
}

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    messages: Vec<Message>,
    foreign: u32,
    unknown: u32,
    torn: u32,
}

impl Outcome {
    fn sample(&mut self, block: &Doorbells) {
        let offers = [
            (block.messages.send_posted.valid.val(), Message::Send(block.messages.send_posted.value.val())),
            (
                block.messages.receive_posted.valid.val(),
                Message::Receive(block.messages.receive_posted.value.val()),
            ),
            (
                block.messages.completions_read.valid.val(),
                Message::Completions(block.messages.completions_read.value.val()),
            ),
            (block.messages.events_read.valid.val(), Message::Events(block.messages.events_read.value.val())),
        ];
        self.messages.extend(offers.iter().filter(|offer| offer.0).map(|offer| offer.1));
        let counts = block.counts.val();
        self.foreign += u32::from(counts.foreign);
        self.unknown += u32::from(counts.unknown);
        self.torn += u32::from(counts.torn);
    }

    /// Follows the block for some cycles, of which the first one has the write.
    fn follow(&mut self, bench: &mut Bench<Doorbells>, cycles: usize) {
        for _ in 0..cycles {
            bench.settle();
            self.sample(&bench.block);
            bench.tick();
            bench.block.write.next = false;
        }
    }
}

/// The checks of doorbells in plain Rust, from the register manual.
#[derive(Default)]
struct Model {
    owners: HashMap<(u64, u64), (u64, u64)>,
    /// Low halves by page and offset.
    halves: HashMap<(u64, u64), u64>,
    outcome: Outcome,
}

impl Model {
    fn write(&mut self, address: u64, data: u64, strobe: u64) {
        let (page, offset) = (address >> 12, address & 0xfff & !7);
        if strobe == 0 {
            return;
        }
        let known =
            [SEND, RECEIVE, SHARED_RECEIVE, COMPLETION, EVENT].map(|doorbell| u64::from(doorbell.offset));
        if page >= 256 || !known.contains(&offset) {
            self.outcome.unknown += 1;
            return;
        }
        let whole = match strobe {
            0xff => Some(data),
            0x0f => {
                self.halves.insert((page, offset), data & 0xffff_ffff);
                return;
            }
            0xf0 => self.halves.remove(&(page, offset)).map(|low| data >> 32 << 32 | low),
            _ => None,
        };
        match whole {
            Some(whole) => self.ring(page, offset, whole),
            None => self.outcome.torn += 1,
        }
    }

    fn ring(&mut self, page: u64, offset: u64, data: u64) {
        let is = |doorbell: &Doorbell| u64::from(doorbell.offset) == offset;
        let kind = if is(&COMPLETION) {
            Kind::CompletionQueue
        } else if is(&EVENT) {
            Kind::EventQueue
        } else if is(&SHARED_RECEIVE) {
            Kind::SharedReceive
        } else {
            Kind::QueuePair
        };
        let number = data & 0xff_ffff;
        let index = number & index_mask(kind);
        match self.owners.get(&(kind as u64, index)) {
            Some(&(owned, own_page)) if owned == number && own_page == page => {}
            Some(&(owned, _)) if owned == number => return self.outcome.foreign += 1,
            _ => return self.outcome.unknown += 1,
        }
        let posted = SendsPosted { queue_pair: bits(index), producer_index: bits(data >> 32 & 0xffff) };
        let consumer_index = bits(data >> 32 & 0xff_ffff);
        self.outcome.messages.push(if is(&SEND) {
            Message::Send(posted)
        } else if is(&RECEIVE) || is(&SHARED_RECEIVE) {
            let first = if is(&SHARED_RECEIVE) { 1024 } else { 0 };
            let producer_index = posted.producer_index;
            Message::Receive(ReceivesPosted { ring: bits(first + index), producer_index })
        } else if is(&COMPLETION) {
            let arm = data >> 24 & 3;
            let arm = bits(if arm == 3 { 0 } else { arm });
            Message::Completions(CompletionsRead { completion_queue: bits(index), consumer_index, arm })
        } else {
            let arm = data >> 24 & 1 == 1;
            Message::Events(EventsRead { event_queue: bits(index), consumer_index, arm })
        });
    }
}

fn write(bench: &mut Bench<Doorbells>, address: u64, data: u64, strobe: u64) {
    bench.block.write.next = true;
    bench.block.write_address.next = bits(address);
    bench.block.write_data.next = bits(data);
    bench.block.write_strobe.next = bits(strobe);
}

fn own(bench: &mut Bench<Doorbells>, kind: Kind, number: u64, page: u64, valid: bool) {
    let index = number & index_mask(kind);
    let (index, page, number) = (bits(index), bits(page), bits(number));
    bench.block.page_write.value.next = PageWrite { kind, index, valid, page, number };
    bench.block.page_write.valid.next = true;
}

/// Few objects, so that doorbells meet one now and then, and indices that several numbers share.
fn object(random: &mut Random) -> (Kind, u64) {
    let kinds = [Kind::QueuePair, Kind::CompletionQueue, Kind::EventQueue, Kind::SharedReceive];
    let kind = *kinds.choose(random).unwrap();
    let index = random.random_range(0..4) * 7;
    (kind, if kind == Kind::QueuePair { index | random.random_range(0..3) << 10 } else { index })
}

#[test]
fn doorbells_reach_what_their_page_owns_and_nothing_else() {
    let mut random = random();
    let mut bench = bench().in_lock_step();
    let (mut model, mut outcome) = (Model::default(), Outcome::default());
    for _ in 0..6000 {
        // A doorbell meets an object as it is one or three cycles later, so objects change while nothing is on its way.
        if random.random_bool(0.05) {
            outcome.follow(&mut bench, DOORBELL_CYCLES);
            let (kind, number) = object(&mut random);
            let page = random.random_range(0..4);
            let valid = random.random_bool(0.8);
            let index = number & index_mask(kind);
            own(&mut bench, kind, number, page, valid);
            match valid {
                true => model.owners.insert((kind as u64, index), (number, page)),
                false => model.owners.remove(&(kind as u64, index)),
            };
            bench.tick();
            bench.block.page_write.valid.next = false;
        }
        let enable = random.random_bool(0.97);
        bench.block.enable.next = enable;
        let doorbell = [SEND, RECEIVE, SHARED_RECEIVE, COMPLETION, EVENT].choose(&mut random).unwrap();
        let page = if random.random_bool(0.02) { 256 } else { random.random_range(0..4) };
        let noise = if random.random_bool(0.05) { 8 << random.random_range(0..6) } else { 0 };
        // Every other doorbell is one for an object that is there.
        let owners: Vec<_> = model.owners.iter().collect();
        let owner = owners.choose(&mut random).filter(|_| random.random());
        let (doorbell, page, number) = match owner {
            Some(((kind, _), (number, page))) if *kind == Kind::CompletionQueue as u64 => {
                (&COMPLETION, *page, *number)
            }
            Some(((kind, _), (number, page))) if *kind == Kind::EventQueue as u64 => (&EVENT, *page, *number),
            Some(((kind, _), (number, page))) if *kind == Kind::SharedReceive as u64 => {
                (&SHARED_RECEIVE, *page, *number)
            }
            Some((_, (number, page))) => (&SEND, *page, *number),
            None => (doorbell, page, object(&mut random).1),
        };
        let address = offset_in_bar(page as u32, doorbell) ^ noise;
        let data = number | random.random::<u64>() << 24;
        let strobe = *[0xff, 0xff, 0x0f, 0x0f, 0xf0, 0xf0, 0x3c, 0].choose(&mut random).unwrap();
        write(&mut bench, address, data, strobe);
        if enable {
            model.write(address, data, strobe);
        }
        outcome.follow(&mut bench, random.random_range(2..5));
    }
    outcome.follow(&mut bench, DOORBELL_CYCLES);
    assert_eq!(outcome, model.outcome);
    assert!(outcome.messages.len() > 500, "{} messages", outcome.messages.len());
    assert!(outcome.foreign > 100 && outcome.unknown > 100 && outcome.torn > 100);
}

/// Threads of four processes, each with a doorbell of its own, write halves in any order.
#[test]
fn pairs_of_halves_come_out_right_however_threads_interleave() {
    struct Thread {
        page: u64,
        doorbell: &'static Doorbell,
        number: u64,
        /// The doorbell whose low half is written.
        half: Option<u64>,
    }
    let mut random = random();
    let mut bench = bench().in_lock_step();
    let (mut model, mut outcome) = (Model::default(), Outcome::default());
    let mut threads = Vec::new();
    for page in 0..4 {
        for (doorbell, kind) in [
            (&SEND, Kind::QueuePair),
            (&RECEIVE, Kind::QueuePair),
            (&SHARED_RECEIVE, Kind::SharedReceive),
            (&COMPLETION, Kind::CompletionQueue),
            (&EVENT, Kind::EventQueue),
        ] {
            let number = page * 5 + u64::from(doorbell.offset) / 8;
            own(&mut bench, kind, number, page, true);
            bench.tick();
            model.owners.insert((kind as u64, number), (number, page));
            threads.push(Thread { page, doorbell, number, half: None });
        }
    }
    bench.block.page_write.valid.next = false;
    let mut pairs = 0;
    for _ in 0..4000 {
        let place = random.random_range(0..threads.len());
        let Thread { page, doorbell, number, half } = &mut threads[place];
        let address = offset_in_bar(*page as u32, doorbell);
        match half.take() {
            Some(data) => {
                write(&mut bench, address, data & !0xffff_ffff, 0xf0);
                model.ring(*page, doorbell.offset.into(), data);
                pairs += 1;
            }
            None => {
                let data = *number | random.random::<u64>() << 24;
                if random.random_bool(0.2) {
                    write(&mut bench, address, data, 0xff);
                    model.ring(*page, doorbell.offset.into(), data);
                } else {
                    write(&mut bench, address, data & 0xffff_ffff, 0x0f);
                    *half = Some(data);
                }
            }
        }
        outcome.follow(&mut bench, random.random_range(2..5));
    }
    outcome.follow(&mut bench, DOORBELL_CYCLES);
    assert_eq!(outcome, model.outcome);
    assert_eq!((outcome.torn, outcome.foreign, outcome.unknown), (0, 0, 0));
    assert!(pairs > 1000, "{pairs} pairs");
}

#[test]
fn a_write_rings_is_kept_tears_or_misses() {
    let none = Access::default();
    let rings = Access { rings: true, ..none };
    let keeps = Access { keeps: true, ..none };
    let tears = Access { tears: true, ..none };
    let misses = Access { misses: true, ..none };
    let last_page = 1 << (PAGE + DOORBELL_PAGE_BITS);
    for (address, strobe, expected) in [
        (offset_in_bar(3, &SEND), 0xff, rings),
        (offset_in_bar(3, &SEND), 0xf0, rings),
        (offset_in_bar(3, &SEND), 0x0f, keeps),
        (offset_in_bar(3, &SEND), 0x1f, tears),
        (offset_in_bar(3, &SEND), 0xf8, tears),
        (offset_in_bar(3, &SEND), 0, none),
        (offset_in_bar(3, &RECEIVE), 0xff, rings),
        (offset_in_bar(3, &SHARED_RECEIVE), 0xff, rings),
        (offset_in_bar(3, &COMPLETION), 0xff, rings),
        (offset_in_bar(3, &EVENT), 0xff, rings),
        (last_page - 0x1000 + u64::from(SEND.offset), 0xff, rings),
        (last_page + u64::from(SEND.offset), 0xff, misses),
        (last_page + u64::from(SEND.offset), 0, none),
        (u64::from(SEND.offset) | 1 << BETWEEN, 0x0f, misses),
    ] {
        assert_eq!(classify(bits(address), bits(strobe)), expected, "{address:x} {strobe:x}");
    }
}

#[test]
fn a_high_half_needs_a_low_half() {
    let taken = |is_high| Written {
        data: bits(0x1111_1111_2222_2222),
        doorbell: bits(at::SEND),
        is_high,
        ..Written::default()
    };
    for (is_high, valid, complete, data) in [
        (false, false, true, 0x1111_1111_2222_2222u64),
        (false, true, true, 0x1111_1111_2222_2222),
        (true, true, true, 0x1111_1111_3333_3333),
        (true, false, false, 0x1111_1111_3333_3333),
    ] {
        let half = Half { data: bits(0x3333_3333), valid };
        assert_eq!(is_complete(taken(is_high), half), complete);
        assert_eq!(join(taken(is_high), half).data, bits(data));
    }
}

#[test]
fn a_doorbell_acts_if_number_and_page_are_those_of_the_owner() {
    let owner = |number: u64, page: u64, valid| Owner { number: bits(number), page: bits(page), valid };
    let none = Verdict::default();
    let unknown = Verdict { is_unknown: true, ..none };
    for (doorbell, owner, expected) in [
        (at::SEND, owner(0x40_0005, 7, true), Verdict { sends: true, ..none }),
        (at::RECEIVE, owner(0x40_0005, 7, true), Verdict { receives: true, ..none }),
        (at::SHARED_RECEIVE, owner(0x40_0005, 7, true), Verdict { receives: true, ..none }),
        (at::COMPLETION, owner(0x40_0005, 7, true), Verdict { completes: true, ..none }),
        (at::EVENT, owner(0x40_0005, 7, true), Verdict { reads_events: true, ..none }),
        (at::SEND, owner(0x40_0005, 6, true), Verdict { is_foreign: true, ..none }),
        (at::SEND, owner(0x41_0005, 7, true), unknown),
        (at::SEND, owner(0x41_0005, 6, true), unknown),
        (at::SEND, owner(0x40_0005, 7, false), unknown),
    ] {
        let written = Written {
            data: bits(9 << 32 | 0x40_0005),
            doorbell: bits(doorbell),
            page: bits(7),
            is_high: false,
        };
        assert_eq!(check(written, owner), expected, "{doorbell} {owner:?}");
    }
}

#[test]
fn layout_and_hardware_agree_on_every_doorbell() {
    let mut bench = bench();
    for (kind, number) in [
        (Kind::QueuePair, 0xab_cd05),
        (Kind::CompletionQueue, 0x3ff),
        (Kind::EventQueue, 31),
        (Kind::SharedReceive, 63),
    ] {
        own(&mut bench, kind, number, 0xfe, true);
        bench.tick();
    }
    bench.block.page_write.valid.next = false;
    let word = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
    let work = WorkDoorbell { object_number: 0xab_cd05, producer_index: 0x8001 };
    let completion =
        CompletionDoorbell { object_number: 0x3ff, arm: Arm::Solicited, consumer_index: 0xff_fffe };
    let event = EventDoorbell { object_number: 31, arm: true, consumer_index: 0x12_3456 };
    let posted = SendsPosted { queue_pair: bits(0x105), producer_index: bits(0x8001) };
    let shared = WorkDoorbell { object_number: 63, producer_index: 0x8001 };
    let received = |ring| Message::Receive(ReceivesPosted { ring: bits(ring), producer_index: bits(0x8001) });
    let cases = [
        (SEND, word(work.to_bytes().unwrap()), Message::Send(posted)),
        (RECEIVE, word(work.to_bytes().unwrap()), received(0x105)),
        (SHARED_RECEIVE, word(shared.to_bytes().unwrap()), received(1024 + 63)),
        (
            COMPLETION,
            word(completion.to_bytes().unwrap()),
            Message::Completions(CompletionsRead {
                completion_queue: bits(0x3ff),
                consumer_index: bits(0xff_fffe),
                arm: bits(2),
            }),
        ),
        (
            EVENT,
            word(event.to_bytes().unwrap()),
            Message::Events(EventsRead { event_queue: bits(31), consumer_index: bits(0x12_3456), arm: true }),
        ),
    ];
    for (doorbell, data, message) in cases {
        let mut outcome = Outcome::default();
        write(&mut bench, offset_in_bar(0xfe, &doorbell), data, 0xff);
        for cycle in 0..=DOORBELL_CYCLES {
            bench.settle();
            assert_eq!(outcome.messages.len(), 0, "cycle {cycle}");
            outcome.sample(&bench.block);
            bench.tick();
            bench.block.write.next = false;
        }
        assert_eq!(outcome, Outcome { messages: vec![message], ..Outcome::default() });
    }
}

#[test]
fn what_is_cleared_is_unknown_and_torn() {
    let mut bench = bench().in_lock_step();
    let send = offset_in_bar(2, &SEND);
    let all = [SEND, RECEIVE, SHARED_RECEIVE, COMPLETION, EVENT].map(|it| offset_in_bar(2, &it));
    own(&mut bench, Kind::QueuePair, 2, 2, true);
    for address in all {
        write(&mut bench, address, 2, 0x0f);
        bench.tick();
        bench.block.page_write.valid.next = false;
        bench.block.write.next = false;
        bench.tick();
    }
    bench.block.sweep.next.is_sweeping = true;
    bench.block.sweep.next.index = bits(2);
    bench.tick();
    bench.block.sweep.next.is_sweeping = false;
    let mut outcome = Outcome::default();
    for (address, strobe) in all.map(|address| (address, 0xf0)).into_iter().chain([(send, 0xff)]) {
        write(&mut bench, address, 2, strobe);
        outcome.follow(&mut bench, DOORBELL_CYCLES + 1);
    }
    assert_eq!(outcome, Outcome { torn: 5, unknown: 1, ..Outcome::default() });
}

#[test]
fn waveform_is_as_documented() {
    let waves = Waves::new().signal("write").signal("write_data").when("write");
    let waves = waves.signal("write_strobe").when("write").signal("messages_send_posted_valid");
    let waves = waves.signal("counts.torn");
    let mut bench = bench();
    own(&mut bench, Kind::QueuePair, 5, 1, true);
    bench.tick();
    bench.block.page_write.valid.next = false;
    let mut bench = bench.recording(waves);
    for cycle in 0..15 {
        bench.block.write.next = false;
        match cycle {
            1 => write(&mut bench, offset_in_bar(1, &SEND), 0x5, 0xff),
            4 => write(&mut bench, offset_in_bar(1, &SEND), 0x5, 0x0f),
            7 => write(&mut bench, offset_in_bar(1, &SEND), 0x1_0000_0000, 0xf0),
            10 => write(&mut bench, offset_in_bar(1, &SEND), 0x2_0000_0000, 0xf0),
            _ => {}
        }
        bench.tick();
    }
    bench.waves().expect("waves/doorbells.txt");
}
