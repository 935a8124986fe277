use super::*;
use num_bigint::BigUint;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, Waves, frames_of, random};
use rnic_host::testing::{Fault, generates, memory_bytes};
use std::collections::VecDeque;

type Narrow = Gather<64, 4, 10, 11>;
type Wide = Gather<512, 7, 7, 8>;

/// Reads that begin in pages whose number ends in 5 or 6 fail, one way or the other.
fn fault(address: u64) -> Fault {
    match address >> 12 & 7 {
        5 => Fault::Error,
        6 => Fault::Short,
        _ => Fault::None,
    }
}

/// A packet to be sent, and what should become of it.
#[derive(Clone)]
struct Order {
    command: GatherCommand,
    /// Further spans, each a command.
    more: Vec<HostSpan>,
    slots: Vec<Slot>,
    payload: Vec<u8>,
    reads: usize,
    /// It leaves as `failure`.
    fails: bool,
}

fn span(address: u64, length: u64) -> HostSpan {
    HostSpan { address: bits(address), length: bits(length) }
}

fn headers(psn: u64, payload_bytes: usize) -> TransmitRequest {
    TransmitRequest {
        queue_pair: bits(psn & 0x3ff),
        generation: bits(psn % 7),
        psn: bits(psn),
        payload_bytes: bits(payload_bytes as u64),
        is_response: psn.is_multiple_of(3),
        solicited: psn.is_multiple_of(2),
        ..Default::default()
    }
}

fn slot(bytes: &[u8], begin: usize, random: &mut Random) -> Slot {
    let mut lanes: Vec<u8> = (0..64).map(|_| random.random()).collect();
    lanes[begin..begin + bytes.len()].copy_from_slice(bytes);
    Slot { data: BigUint::from_bytes_le(&lanes).into(), last: random.random(), error: random.random() }
}

fn inline(psn: u64, payload_bytes: usize, random: &mut Random) -> Order {
    let payload: Vec<u8> = (0..payload_bytes).map(|_| random.random()).collect();
    let mut slots = Vec::new();
    if payload_bytes > 0 {
        slots.push(slot(&payload[..payload_bytes.min(32)], 32, random));
    }
    if payload_bytes > 32 {
        slots.push(slot(&payload[32..], 0, random));
    }
    let command = GatherCommand {
        is_mark: false,
        headers: headers(psn, payload_bytes),
        is_inline: true,
        continues: false,
        // What does not count may be anything.
        span_count: Stimulus::sample(random),
        first: span(random.random(), 77),
        second: span(random.random(), 88),
    };
    Order { command, more: Vec::new(), slots, payload, reads: 0, fails: false }
}

/// A packet of two spans, of which those without bytes are not counted, or are.
fn fetched<const DATA: usize>(psn: u64, spans: [HostSpan; 2], span_count: u64) -> Order {
    let counted = &spans[..span_count as usize];
    let counted: Vec<_> = counted.iter().filter(|span| span.length.any()).collect();
    let payload: Vec<u8> = counted
        .iter()
        .flat_map(|span| memory_bytes(span.address.to_u64(), span.length.to_u64() as usize))
        .collect();
    let fails = counted.iter().any(|span| match fault(span.address.to_u64()) {
        Fault::None => false,
        Fault::Error => true,
        // A single byte cannot be less.
        Fault::Short => span.length.to_u64() > 1,
    });
    let command = GatherCommand {
        is_mark: false,
        headers: headers(psn, payload.len()),
        is_inline: false,
        continues: false,
        span_count: bits(span_count),
        first: spans[0],
        second: spans[1],
    };
    Order { command, more: Vec::new(), slots: Vec::new(), reads: counted.len(), payload, fails }
}

/// No packet, but what passes behind those before it.
fn mark(psn: u64) -> Order {
    let headers = TransmitRequest { is_response: false, ..headers(psn, 0) };
    let command = GatherCommand { is_mark: true, headers, ..GatherCommand::default() };
    Order { command, more: Vec::new(), slots: Vec::new(), reads: 0, payload: Vec::new(), fails: true }
}

/// A packet of three to six spans with bytes.
fn listed<const DATA: usize>(psn: u64, random: &mut Random) -> Order {
    let count = random.random_range(3..=6);
    let longest = *[9, 100, 4096 / count].choose(random).unwrap();
    let spans: Vec<_> =
        (0..count).map(|_| span(any_address(random), random.random_range(1..=longest))).collect();
    let each = spans.iter().map(|&one| fetched::<DATA>(psn, [one, span(0, 0)], 1));
    let payload: Vec<u8> = each.clone().flat_map(|order| order.payload).collect();
    let fails = each.clone().any(|order| order.fails);
    let mut order = each.clone().next().expect("there are some");
    // The first command may have two.
    let with_second = random.random();
    order.command.headers = headers(psn, payload.len());
    order.command.continues = true;
    order.command.span_count = bits(if with_second { 2 } else { 1 });
    order.command.second = spans[1];
    let more = spans[if with_second { 2 } else { 1 }..].to_vec();
    Order { more, reads: spans.len(), payload, fails, ..order }
}

impl Order {
    fn commands(&self) -> Vec<GatherCommand> {
        let count = self.more.len();
        let mut commands = vec![self.command];
        commands.extend(self.more.iter().enumerate().map(|(index, &first)| GatherCommand {
            continues: index + 1 < count,
            span_count: bits(1),
            first,
            ..self.command
        }));
        commands
    }

    /// PSNs of the tokens and failures that it leaves as.
    fn psns(&self) -> Vec<u64> {
        let psn = self.command.headers.psn.to_u64();
        let next = (psn + 1) & 0xff_ffff;
        if self.is_asked() { vec![psn, next] } else { vec![psn] }
    }

    /// A packet follows its failure.
    fn is_asked(&self) -> bool {
        self.fails && !self.command.headers.is_response && !self.command.is_mark
    }

    /// Its token: after a failed request a WRITE of nothing, which asks.
    fn token(&self) -> Option<TransmitRequest> {
        let headers = self.command.headers;
        let asking = TransmitRequest {
            queue_pair: headers.queue_pair,
            generation: headers.generation,
            opcode: bits(0x0a),
            ack_request: true,
            psn: headers.psn + 1,
            ..Default::default()
        };
        if self.fails { self.is_asked().then_some(asking) } else { Some(headers) }
    }
}

fn any_order<const DATA: usize>(psn: u64, random: &mut Random) -> Order {
    let total =
        *[0, 1, 64, random.random_range(0..200), random.random_range(0..=4096), 4096].choose(random).unwrap();
    let first_length = *[0, total, random.random_range(0..=total)].choose(random).unwrap();
    let spans = [first_length, total - first_length].map(|length| span(any_address(random), length));
    match random.random_range(0..6) {
        5 if random.random() => mark(psn),
        4 => listed::<DATA>(psn, random),
        0 => inline(psn, random.random_range(0..=96), random),
        1 => fetched::<DATA>(psn, [span(any_address(random), total), spans[1]], 1),
        _ => fetched::<DATA>(psn, spans, 2),
    }
}

fn any_address(random: &mut Random) -> u64 {
    let address = random.random::<u64>() >> 8;
    if random.random_bool(0.3) { address & !63 } else { address }
}

/// Answers spans in their order, each some time after it was asked for.
struct Reader<const DATA: usize, const BYTES: usize> {
    latency: std::ops::RangeInclusive<u64>,
    stalls: bool,
    answers: VecDeque<(u64, VecDeque<Beat<DATA, BYTES>>)>,
    is_offering: bool,
    spans_done: usize,
    now: u64,
}

impl<const DATA: usize, const BYTES: usize> Reader<DATA, BYTES> {
    fn new(latency: std::ops::RangeInclusive<u64>, stalls: Stalls) -> Self {
        let answers = VecDeque::new();
        Reader { latency, stalls: stalls.source(), answers, is_offering: false, spans_done: 0, now: 0 }
    }

    fn accept(&mut self, span: HostSpan, random: &mut Random) {
        let (mut address, length) = (span.address.to_u64(), span.length.to_u64());
        assert!((1..=4096).contains(&length), "{span:?}");
        let (width, end, fault) = (DATA as u64 / 8, address + length, fault(address));
        let mut words = VecDeque::new();
        while address < end {
            let base = address / width * width;
            let next = (base + width).min(end);
            let lanes: Vec<u8> = (base..base + width)
                .map(|at| if at >= address && at < end { memory_bytes(at, 1)[0] } else { random.random() })
                .collect();
            let data = BigUint::from_bytes_le(&lanes).into();
            words.push_back(Beat { data, bytes: bits(next - address), last: next == end, error: false });
            address = next;
        }
        if fault == Fault::Error {
            words.truncate(random.random_range(1..=words.len()));
            words.back_mut().unwrap().error = true;
        } else if fault == Fault::Short && words.len() > 1 {
            words.truncate(random.random_range(1..words.len()));
        } else if fault == Fault::Short {
            let word = words.back_mut().unwrap();
            word.bytes = bits((word.bytes.to_u64() - 1).max(1));
        }
        words.back_mut().unwrap().last = true;
        self.answers.push_back((self.now + random.random_range(self.latency.clone()), words));
    }

    fn drive(&mut self, port: &mut StreamRx<Beat<DATA, BYTES>>, random: &mut Random) {
        self.now += 1;
        let is_due = self.answers.front().is_some_and(|(due, _)| *due <= self.now);
        self.is_offering = is_due && (self.is_offering || !self.stalls || random.random());
        port.valid.next = self.is_offering;
        port.beat.next = if self.is_offering { self.answers[0].1[0] } else { Stimulus::sample(random) };
    }

    fn sample(&mut self, port: &StreamRx<Beat<DATA, BYTES>>) {
        if self.is_offering && port.ready.val() {
            self.is_offering = false;
            self.answers[0].1.pop_front();
            if self.answers[0].1.is_empty() {
                self.answers.pop_front();
                self.spans_done += 1;
            }
        }
    }
}

/// What left the block, in order, and when.
#[derive(Default)]
struct Left {
    tokens: Vec<TransmitRequest>,
    failures: Vec<GatherFailure>,
    /// Of tokens and failures: the PSN.
    psns: Vec<u64>,
    payload: Vec<(Vec<u8>, bool)>,
    cycles: usize,
    first_token: usize,
}

fn run<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize>(
    bench: &mut Bench<Gather<DATA, BYTES, ADDRESS, COUNT>>,
    orders: &[Order],
    latency: std::ops::RangeInclusive<u64>,
    stalls: Stalls,
    random: &mut Random,
) -> Left {
    let mut commands = Source::showing_next(orders.iter().flat_map(Order::commands), stalls);
    let mut slots = Source::showing_next(orders.iter().flat_map(|order| order.slots.clone()), stalls);
    let mut reader = Reader::<DATA, BYTES>::new(latency, stalls);
    let (mut reads, mut tokens) = (Sink::new(stalls), Sink::new(stalls));
    let (mut failures, mut payload) = (Sink::new(stalls), Sink::new(stalls));
    let reads_before: Vec<_> = orders
        .iter()
        .scan(0, |sum, order| {
            *sum += order.reads;
            Some(*sum)
        })
        .collect();
    let place_of = |(place, order): (usize, &Order)| vec![place; order.psns().len()];
    let places: Vec<usize> = orders.iter().enumerate().flat_map(place_of).collect();
    let start = bench.block.in_flight.val();
    let (mut left, mut idle, mut beats) = (Left::default(), 0, Vec::new());
    while idle < 30 {
        assert!(left.cycles < 300_000, "gather is stuck with {} of {}", left.psns.len(), orders.len());
        let block = &mut bench.block;
        commands.drive(&mut block.command, random);
        slots.drive(&mut block.inline_slot, random);
        reads.drive(&mut block.read, random);
        reader.drive(&mut block.from_host, random);
        tokens.drive(&mut block.token, random);
        failures.drive(&mut block.failure, random);
        payload.drive(&mut block.payload, random);
        bench.settle();
        let block = &bench.block;
        commands.sample(&block.command);
        slots.sample(&block.inline_slot);
        reader.sample(&block.from_host);
        if let Some(span) = reads.sample(&block.read) {
            reader.accept(span, random);
        }
        assert!(!block.token.valid.val() || !block.failure.valid.val());
        let is_mark = block.failure.valid.val() && block.failure.beat.val().is_mark;
        if block.token.valid.val() || is_mark {
            let order = places[left.psns.len()];
            assert!(reader.spans_done >= reads_before[order], "a token before its payload, or a mark");
        }
        let token = tokens.sample(&block.token).map(|token| token.psn);
        let failure = failures.sample(&block.failure).map(|failure| failure.psn);
        left.psns.extend(token.or(failure).map(|psn| psn.to_u64()));
        if left.psns.len() == 1 && left.first_token == 0 {
            left.first_token = left.cycles;
        }
        let beat = payload.sample(&block.payload);
        beats.extend(beat);
        let is_quiet = left.psns.len() == places.len() && beat.is_none();
        idle = if is_quiet { idle + 1 } else { 0 };
        bench.tick();
        left.cycles += 1;
    }
    left.cycles -= idle;
    left.tokens = tokens.received;
    left.failures = failures.received;
    left.payload = frames_of(&beats);
    let (in_flight, count) = (bench.block.in_flight.val(), orders.len() as u64);
    assert_eq!(in_flight.entered, start.entered + count);
    assert_eq!(in_flight.left, start.left + count);
    left
}

fn check(orders: &[Order], left: &Left) {
    let of = |fails| orders.iter().filter(move |order| order.fails == fails);
    let all: Vec<_> = orders.iter().flat_map(Order::psns).collect();
    assert_eq!(left.psns, all, "tokens and failures in the order of the commands");
    let tokens: Vec<_> = orders.iter().filter_map(Order::token).collect();
    assert_eq!(left.tokens, tokens);
    let failed = |order: &Order| {
        let TransmitRequest { queue_pair, generation, psn, is_response, .. } = order.command.headers;
        GatherFailure { queue_pair, generation, psn, is_response, is_mark: order.command.is_mark }
    };
    assert_eq!(left.failures, of(true).map(failed).collect::<Vec<_>>());
    let payload = of(false).filter(|order| !order.payload.is_empty());
    let payload: Vec<_> = payload.map(|order| (order.payload.clone(), false)).collect();
    assert_eq!(left.payload.len(), payload.len());
    for (left, right) in left.payload.iter().zip(&payload) {
        assert_eq!(left, right);
    }
}

/// The peer has to answer packets before a failed one, whatever the failed one is.
#[test]
fn a_packet_that_asks_follows_a_failed_request_and_not_a_failed_response() {
    let mut random = random();
    for is_response in [false, true] {
        let mut bench = bench::<64, 4, 10, 11>().in_lock_step();
        let orders = [(0xff_fffe, 0), (0xff_ffff, 5 << 12)].map(|(psn, address)| {
            let mut order = fetched::<64>(psn, [span(address, 100), span(0, 0)], 1);
            order.command.headers.is_response = is_response;
            order
        });
        let left = run(&mut bench, &orders, 0..=5, Stalls::None, &mut random);
        let psns: Vec<_> = left.tokens.iter().map(|token| token.psn.to_u64()).collect();
        assert_eq!(psns, if is_response { vec![0xff_fffe] } else { vec![0xff_fffe, 0] });
        assert_eq!(left.failures.len(), 1);
        assert_eq!(left.payload.len(), 1, "that of the packet before");
        let asking = left.tokens.last().expect("there is one");
        assert_eq!(asking.ack_request, !is_response);
    }
}

fn bench<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize>()
-> Bench<Gather<DATA, BYTES, ADDRESS, COUNT>> {
    Bench::clocked(Gather::default(), |block| &mut block.clock)
}

fn packets_leave_whole<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize>(
    count: u64,
) {
    let mut random = random();
    for stalls in Stalls::ALL {
        let mut bench = bench::<DATA, BYTES, ADDRESS, COUNT>().in_lock_step();
        let orders: Vec<_> = (0..count).map(|psn| any_order::<DATA>(psn, &mut random)).collect();
        let left = run(&mut bench, &orders, 0..=60, stalls, &mut random);
        check(&orders, &left);
        assert!(left.failures.len() > 5 && left.tokens.len() > 20);
    }
}

#[test]
fn packets_leave_whole_and_in_order_at_64_bits() {
    packets_leave_whole::<64, 4, 10, 11>(60);
}

#[test]
fn packets_leave_whole_and_in_order_at_128_bits() {
    packets_leave_whole::<128, 5, 9, 10>(60);
}

#[test]
fn packets_leave_whole_and_in_order_at_512_bits() {
    packets_leave_whole::<512, 7, 7, 8>(200);
}

/// Every alignment of two spans to each other, without a host that fails.
#[test]
fn spans_of_every_alignment_are_joined() {
    let mut random = random();
    let mut bench = bench::<512, 7, 9, 10>();
    let lanes = (0..64).flat_map(|first| [0, 1, 31, 32, 63].map(|second| (first, second)));
    let orders = lanes.enumerate().map(|(psn, (first, second))| {
        let lengths = [random.random_range(1..200), random.random_range(1..200)];
        fetched::<512>(psn as u64, [span(first, lengths[0]), span(512 + second, lengths[1])], 2)
    });
    let orders: Vec<_> = orders.collect();
    let left = run(&mut bench, &orders, 0..=0, Stalls::None, &mut random);
    check(&orders, &left);
}

/// A wire that stalls must not hold back words of the host, for which other clients would wait.
#[test]
fn requested_words_have_room_while_the_wire_stalls() {
    let mut random = random();
    for payload_bytes in [64, 100, 4096] {
        let mut bench = bench::<512, 7, 7, 8>().in_lock_step();
        let command = |psn| fetched::<512>(psn, [span(psn << 15 | 3, payload_bytes), span(0, 0)], 1).command;
        let mut commands = Source::showing_next((0..200).map(command), Stalls::None);
        let mut reader = Reader::<512, 7>::new(0..=100, Stalls::None);
        let mut asked = 0;
        for _ in 0..2000 {
            commands.drive(&mut bench.block.command, &mut random);
            reader.drive(&mut bench.block.from_host, &mut random);
            bench.block.read.ready.next = true;
            bench.settle();
            commands.sample(&bench.block.command);
            reader.sample(&bench.block.from_host);
            if bench.block.read.valid.val() {
                reader.accept(bench.block.read.beat.val(), &mut random);
                asked += 1;
            }
            bench.tick();
        }
        assert_eq!(reader.spans_done, asked, "all that was asked for has come");
        assert_eq!(asked as u64, 128 / payload_bytes.div_ceil(64), "and as much as finds room");
    }
}

/// Packets of one size while a host answers after 250 cycles, 1 us: cycles for each.
fn cycles_per_packet(count: u64, address: u64, payload_bytes: u64) -> (f64, usize) {
    let mut random = random();
    let mut bench = bench::<512, 7, 9, 10>();
    let order = |psn| fetched::<512>(psn, [span((psn << 15) + address, payload_bytes), span(0, 0)], 1);
    let orders: Vec<_> = (0..count).map(order).collect();
    let left = run(&mut bench, &orders, 250..=250, Stalls::None, &mut random);
    check(&orders, &left);
    ((left.cycles - left.first_token) as f64 / count as f64, left.first_token)
}

#[test]
fn a_host_of_one_microsecond_is_hidden() {
    for (count, address, payload_bytes, most) in [
        (2000, 0, 64, 1.2),
        (2000, 5, 64, 2.1),
        (2000, 0, 1, 1.2),
        (200, 0, 4096, 66.0),
        (200, 9, 4096, 66.0),
    ] {
        let (cycles, first) = cycles_per_packet(count, address, payload_bytes);
        println!("{payload_bytes} bytes at {address}: {cycles:.2} cycles a packet, the first after {first}");
        assert!(cycles < most, "{payload_bytes} bytes at {address}: {cycles:.2} cycles a packet");
    }
}

/// Inputs that no connected block would give, and resets at any time.
#[test]
fn any_input_does_the_same_in_verilog() {
    let mut random = random();
    let mut bench = bench::<256, 6, 8, 9>().in_lock_step();
    for _ in 0..1500 {
        let block = &mut bench.block;
        block.reset.next = random.random_bool(0.01);
        block.command.valid.next = random.random();
        block.command.beat.next = any_order::<256>(random.random_range(0..1 << 24), &mut random).command;
        block.command.beat.next.span_count = Stimulus::sample(&mut random);
        block.inline_slot.valid.next = random.random();
        block.inline_slot.beat.next = slot(&[], 0, &mut random);
        block.read.ready.next = random.random_bool(0.8);
        block.from_host.valid.next = random.random_bool(0.8);
        block.from_host.beat.next = Stimulus::sample(&mut random);
        block.token.ready.next = random.random_bool(0.8);
        block.failure.ready.next = random.random_bool(0.8);
        block.payload.ready.next = random.random_bool(0.8);
        bench.tick();
    }
}

fn words(address: u64, length: u64) -> SpanWords {
    span_words::<4>(bits(address & 63), bits(length))
}

#[test]
fn a_span_is_its_first_word_and_the_rest() {
    // Of 8 lanes: lane and length; bytes of the first word, and those after it if there are any.
    for ((lane, length), (bytes, rest)) in [
        ((0, 1), (1, None)),
        ((0, 8), (8, None)),
        ((0, 9), (8, Some(1))),
        ((7, 1), (1, None)),
        ((7, 2), (1, Some(1))),
        ((5, 4096), (3, Some(4093))),
        ((13, 4), (3, Some(1))),
    ] {
        let found = words(lane, length);
        assert_eq!((found.lane, found.bytes), (bits(lane & 7), bits(bytes)), "{lane} {length}");
        assert_eq!((!found.is_single).then(|| found.rest.to_u64()), rest, "{lane} {length}");
    }
}

#[test]
fn spans_without_bytes_are_left_out_of_a_request() {
    let (none, some, other) = (span(0, 0), span(3, 1), span(9, 2));
    for (spans, span_count, expected) in [
        ([some, other], 2, (some, true, true)),
        ([some, none], 2, (some, true, false)),
        ([none, other], 2, (other, true, false)),
        ([none, none], 2, (none, false, false)),
        // A span beyond the count is ignored.
        ([some, other], 1, (some, true, false)),
        ([none, other], 1, (other, false, false)),
        ([some, other], 0, (other, false, false)),
    ] {
        let command = GatherCommand {
            span_count: bits(span_count),
            first: spans[0],
            second: spans[1],
            ..Default::default()
        };
        let found = request_of::<7, 10>(command);
        assert_eq!((found.command.first, found.has_first, found.has_second), expected, "{spans:?}");
        let inline = request_of::<7, 10>(GatherCommand { is_inline: true, ..command });
        assert!(!inline.has_first && !inline.has_second);
    }
}

#[test]
fn beats_and_inline_slots_are_rounded_up() {
    for (bytes, beats, slots) in
        [(0, 0, 0), (1, 1, 1), (32, 1, 1), (33, 1, 2), (64, 1, 2), (65, 2, 2), (96, 2, 2)]
    {
        let headers = TransmitRequest { payload_bytes: bits(bytes), ..Default::default() };
        let command = GatherCommand { headers, is_inline: true, ..Default::default() };
        let found = request_of::<7, 10>(command);
        assert_eq!((found.beats, found.slots), (bits(beats), bits(slots)), "{bytes} bytes");
        let fetched = request_of::<7, 10>(GatherCommand { is_inline: false, ..command });
        assert_eq!((fetched.beats, fetched.slots), (bits(beats), bits(0)));
    }
}

/// Words of 8 bytes: the span, whether it has begun, and its bytes that are left; bytes in the beat. Then bytes that are joined, turn,
/// whether the span ends, whether the beat is full, and what is in the next one.
#[test]
fn a_word_joins_after_the_bytes_that_are_there() {
    for ((address, length, left, fill), (count, turn, ends, is_full, next)) in [
        ((0, 8, None, 0), (8, 0, true, true, 0)),
        ((0, 7, None, 0), (7, 0, true, false, 7)),
        ((0, 9, None, 0), (8, 0, false, true, 0)),
        ((3, 9, None, 0), (5, 5, false, false, 5)),
        ((3, 9, Some(4), 5), (4, 5, true, true, 1)),
        ((3, 9, Some(3), 5), (3, 5, true, true, 0)),
        ((3, 9, Some(2), 5), (2, 5, true, false, 7)),
        ((0, 99, Some(8), 2), (8, 5, true, true, 2)),
        ((0, 99, Some(9), 2), (8, 5, false, true, 2)),
        ((2, 6, None, 7), (6, 5, true, true, 5)),
    ] {
        let fetch = Fetch::<11> { first: words(address, length), ..Default::default() };
        let progress = Progress { is_started: left.is_some(), fill: bits(fill), ..Default::default() };
        let span = SpanProgress { left: bits(left.unwrap_or(0)), turn: bits(5) };
        let join = join_of::<4, 11>(fetch, progress, span);
        let numbers = (join.count.to_u64(), join.turn.to_u64(), join.ends_span, join.is_full);
        assert_eq!(numbers, (count, turn, ends, is_full), "{address} {length} {left:?} {fill}");
        assert_eq!((join.fill.to_u64(), join.spills), (next, is_full && next > 0));
        let after = span_after::<4, 11>(fetch, progress, span, join.turn);
        assert_eq!(after.turn, join.turn);
        if !ends {
            let expected = left.unwrap_or(length) - count;
            assert_eq!(after.left.to_u64(), expected, "{address} {length} {left:?} {fill}");
        }
    }
}

#[test]
fn a_word_is_wrong_if_the_host_says_so_or_gives_another_count_of_bytes() {
    let fetched = Fetch::<11> { has_payload: true, ..Default::default() };
    let join = |ends_span| Join { count: bits(5), ends_span, ..Default::default() };
    for (expected_last, (bytes, last, error), fails) in [
        (true, (5, true, false), false),
        (true, (4, true, false), true),
        (true, (6, true, false), true),
        (true, (5, false, false), true),
        (false, (5, true, false), true),
        (true, (5, true, true), true),
        (false, (5, false, false), false),
        (false, (5, false, true), true),
    ] {
        let join = join(expected_last);
        let ending = |fetch, progress| ending_of::<4, 11>(fetch, progress, join, bits(bytes), last, error);
        let found = ending(fetched, Progress::default());
        assert_eq!((found.fails, found.ends_span), (fails, last), "{bytes} {last} {error}");
        assert!(ending(fetched, Progress { has_failed: true, ..Default::default() }).fails);
        let inline = ending(Fetch { is_inline: true, ..fetched }, Progress::default());
        assert_eq!((inline.fails, inline.ends_span), (false, expected_last));
    }
}

#[test]
fn a_command_ends_with_its_last_span_and_a_packet_with_its_last_command() {
    for (ends_span, has_second, is_second, continues, (command, packet)) in [
        (false, false, false, false, (false, false)),
        (true, false, false, false, (true, true)),
        (true, false, false, true, (true, false)),
        (true, true, false, false, (false, false)),
        (true, true, true, false, (true, true)),
        (true, true, true, true, (true, false)),
    ] {
        let fetch = Fetch::<11> { has_second, continues, ..Default::default() };
        let progress = Progress { is_second, ..Default::default() };
        let join = Join { count: bits(8), ends_span, fill: bits(3), ..Default::default() };
        let ending = ending_of::<4, 11>(fetch, progress, join, bits(8), ends_span, false);
        assert_eq!((ending.ends_command, ending.ends_packet), (command, packet));
        let after = progress_after(progress, join, ending);
        assert_eq!((after.is_started, after.is_tail, after.has_failed), (!ends_span, false, false));
        assert_eq!(after.is_second, (is_second || ends_span) && !command);
        assert_eq!(after.fill, bits(3));
    }
}

/// Of the last word of a packet: whether it fills its beat, spills, and fails; then whether a beat is written, is the last one, whether the
/// packet is committed or lost, and whether a tail follows.
#[test]
fn a_packet_is_committed_with_its_last_beat_or_lost() {
    for ((is_full, spills, fails), (last, commits, is_lost, is_tail)) in [
        ((false, false, false), (true, true, false, false)),
        ((true, false, false), (true, true, false, false)),
        ((true, true, false), (false, false, false, true)),
        ((true, true, true), (false, false, true, false)),
        ((false, false, true), (true, false, true, false)),
    ] {
        let join = Join { total: bits(5), is_full, spills, fill: bits(2), ..Default::default() };
        let ending = Ending { ends_span: true, ends_command: true, ends_packet: true, fails };
        let progress = Progress { fill: bits(1), ..Default::default() };
        let write = buffer_write::<4>(progress, join, ending, true, false);
        assert!(write.writes && write.is_full == is_full);
        assert_eq!(write.bytes, bits(if is_full { 8 } else { 5 }));
        assert_eq!((write.last, write.commits, write.fails), (last, commits, is_lost));
        let after = progress_after(progress, join, ending);
        assert_eq!((after.is_tail, after.has_failed), (is_tail, false));
        // Nothing is done while no word is there.
        let idle = buffer_write::<4>(progress, join, ending, false, false);
        assert!(!idle.writes && !idle.commits && !idle.fails);
    }
    let tail = Progress { is_tail: true, fill: bits(3), ..Default::default() };
    let write = buffer_write::<4>(tail, Join::default(), Ending::default(), false, false);
    assert!(write.writes && write.last && write.commits && !write.fails);
    assert_eq!(write.bytes, bits(3));
    let empty = buffer_write::<4>(Progress::default(), Join::default(), Ending::default(), false, true);
    assert!(empty.commits && !empty.writes && !empty.fails);
}

#[test]
fn a_word_takes_the_lanes_after_the_mask_or_all() {
    for (is_word, is_full, expected) in
        [(false, false, 0), (false, true, 0), (true, false, 0xff00), (true, true, 0xffff)]
    {
        assert_eq!(taken_lanes::<16>(is_word, is_full, bits(0x00ff)), bits(expected));
    }
}

#[test]
fn impossible_sizes_are_refused() {
    generates(Gather::<512, 7, 9, 10>::default());
    generates(Narrow::default());
    generates(Wide::default());
    assert!(Gather::<512, 7, 6, 7>::REFUSAL.is_some_and(|refusal| refusal.contains("ADDRESS")));
    assert!(Gather::<64, 4, 9, 10>::REFUSAL.is_some_and(|refusal| refusal.contains("ADDRESS")));
    assert!(Gather::<64, 5, 10, 11>::REFUSAL.is_some_and(|refusal| refusal.contains("BYTES")));
}

#[test]
fn waveform_is_as_documented() {
    let waves = Waves::new().signal("command_valid").signal("read_valid").signal("from_host_valid");
    let waves = waves.signal("from_host_beat.bytes").when("from_host_valid").signal("token_valid");
    let waves = waves.signal("payload_valid").signal("payload_beat.bytes").when("payload_valid");
    let mut bench = bench::<64, 4, 10, 11>().recording(waves);
    let mut random = random();
    let orders = [fetched::<64>(1, [span(6, 12), span(0, 0)], 1), inline(2, 0, &mut random)];
    let mut commands = Source::showing_next(orders.map(|order| order.command), Stalls::None);
    let mut reader = Reader::<64, 4>::new(2..=2, Stalls::None);
    bench.block.read.ready.next = true;
    bench.block.token.ready.next = true;
    bench.block.payload.ready.next = true;
    for cycle in 0..18 {
        if cycle >= 1 {
            commands.drive(&mut bench.block.command, &mut random);
        }
        reader.drive(&mut bench.block.from_host, &mut random);
        bench.settle();
        commands.sample(&bench.block.command);
        reader.sample(&bench.block.from_host);
        if bench.block.read.valid.val() {
            reader.accept(bench.block.read.beat.val(), &mut random);
        }
        bench.tick();
    }
    bench.waves().expect("waves/gather.txt");
}
