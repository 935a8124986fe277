//! The whole receive path, as Verilog, against the layout's view of a frame.
use super::entry_share::SHARE_SWEEP_CYCLES;
use super::receive::Receive;
use super::samples::{OWN_MAC, Recipe};
use super::vectors;
use num_bigint::BigUint;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, beats_of, random};
use rnic_kernel::prelude::{Synth, bits};
use rnic_layout::opcode::{self, Class, EXTENDED_BYTES};
use rnic_layout::wire::{DropReason, Filter, IpRepr, MacAddress, PacketRepr, classify};
use rnic_messages::drop_reason as reason;
use rnic_messages::frame::{ACCEPTED_CONGESTION, ACCEPTED_REQUEST, ACCEPTED_RESPONSE, OUTCOME_COUNT};
use rnic_messages::receive::PayloadReference;
use rnic_messages::sizes::{CELL_BITS, QUEUE_PAIR_BITS, queue_pair_of};
use rnic_messages::{EXTENDED_BITS, PacketToken};
use std::collections::VecDeque;
use verilator_sys::{AnyPort, Instance, Model, ModelOptions, Port};

/// A receive path of each width, with buffers of 64 KiB and 512 tokens.
type Card512 = Receive<512, 7, 10, 11, 9, 10>;
type Card256 = Receive<256, 6, 11, 12, 9, 10>;
type Card128 = Receive<128, 5, 12, 13, 9, 10>;
type Card64 = Receive<64, 4, 13, 14, 9, 10>;
/// Buffers of 8 KiB and 16 tokens.
type Small512 = Receive<512, 7, 7, 8, 4, 5>;
/// Bits of a token before the number of its first cell.
const HEADER_BITS: usize = PacketToken::BITS - CELL_BITS;
/// Offset of the slot: before AckReq, PSN, extended headers, length and pad.
const QUEUE_PAIR_AT: usize = HEADER_BITS - 1 - 13 - EXTENDED_BITS - 24 - 1 - QUEUE_PAIR_BITS;

/// A frame, and the MAC's mark on it.
#[derive(Clone, Debug)]
struct Sent {
    bytes: Vec<u8>,
    mac_error: bool,
}

fn good(bytes: Vec<u8>) -> Sent {
    Sent { bytes, mac_error: false }
}

/// What one of the two roles gets.
#[derive(Default)]
struct Role {
    tokens: Vec<BigUint>,
    payloads: Vec<Vec<u8>>,
    payload: Vec<u8>,
}

struct RolePorts {
    token: AnyPort,
    token_valid: Port<u8>,
    token_ready: Port<u8>,
    payload: AnyPort,
    payload_valid: Port<u8>,
    payload_ready: Port<u8>,
}

/// Share of cycles in which source and sinks stall, in percent.
#[derive(Clone, Copy, Default)]
struct Pauses {
    mac: u32,
    tokens: u32,
    payload: u32,
}

/// A verilated receive path.
struct Card {
    instance: Instance,
    data: usize,
    bytes: usize,
    clock: Port<u8>,
    from_mac: AnyPort,
    from_mac_valid: Port<u8>,
    outcome: Port<u32>,
    outcome_valid: Port<u8>,
    roles: [RolePorts; 2],
    reference: Port<u64>,
    reference_valid: Port<u8>,
    reference_ready: Port<u8>,
    /// References of the requests that have come, whose payload was not asked for yet.
    references: VecDeque<u64>,
    /// What came out so far.
    requests: Role,
    responses: Role,
    /// Numbers and lengths of the events, with the cycle of each.
    outcomes: Vec<(u64, u64, u64)>,
    cycle: u64,
    /// The cycle in which the first request left.
    first_token: Option<u64>,
    random: Random,
}

impl Card {
    fn new<B: rnic_kernel::prelude::Block>(mut block: B, data: usize) -> Self {
        let verilog = rnic_kernel::generate(&mut block, "receive").unwrap_or_else(|error| panic!("{error}"));
        let model = Model::build("receive", &verilog, &ModelOptions::default());
        let instance = model.unwrap_or_else(|error| panic!("{error}")).instance();
        let any = |name: &str| instance.any_port(name).unwrap_or_else(|error| panic!("{error}"));
        let bit = |name: &str| instance.port::<u8>(name).unwrap_or_else(|error| panic!("{error}"));
        let role = |name: &str| RolePorts {
            token: any(&format!("{name}_token_beat")),
            token_valid: bit(&format!("{name}_token_valid")),
            token_ready: bit(&format!("{name}_token_ready")),
            payload: any(&format!("{name}_payload_beat")),
            payload_valid: bit(&format!("{name}_payload_valid")),
            payload_ready: bit(&format!("{name}_payload_ready")),
        };
        let mut card = Card {
            data,
            bytes: (data / 8).ilog2() as usize + 1,
            clock: bit("clock"),
            from_mac: any("from_mac_value"),
            from_mac_valid: bit("from_mac_valid"),
            outcome: instance.port("outcome_value").unwrap_or_else(|error| panic!("{error}")),
            outcome_valid: bit("outcome_valid"),
            roles: [role("request"), role("response")],
            reference: instance.port("reference_beat").unwrap_or_else(|error| panic!("{error}")),
            reference_valid: bit("reference_valid"),
            reference_ready: bit("reference_ready"),
            references: VecDeque::new(),
            requests: Role::default(),
            responses: Role::default(),
            outcomes: Vec::new(),
            cycle: 0,
            first_token: None,
            random: random(),
            instance,
        };
        let own_mac = card.instance.port::<u64>("own_mac").unwrap_or_else(|error| panic!("{error}"));
        card.instance.set(own_mac, OWN_MAC);
        card.set_bit("enable", true);
        card.set_bit("reset", true);
        card.instance.eval();
        card.instance.steps(card.clock, 2);
        card.set_bit("reset", false);
        card.instance.steps(card.clock, u64::from(SHARE_SWEEP_CYCLES) + 8);
        card
    }

    fn set_bit(&mut self, name: &str, value: bool) {
        let port = self.instance.port::<u8>(name).unwrap_or_else(|error| panic!("{error}"));
        self.instance.set(port, value.into());
    }

    /// The beats of a frame, as the port has them; lanes after its end hold noise.
    fn beats(&mut self, frame: &Sent) -> Vec<Vec<u32>> {
        let lanes = self.data / 8;
        let count = frame.bytes.len().div_ceil(lanes);
        let mut beats = Vec::new();
        for (index, chunk) in frame.bytes.chunks(lanes).enumerate() {
            let mut beat: Vec<u8> = (0..lanes).map(|_| self.random.random()).collect();
            beat[..chunk.len()].copy_from_slice(chunk);
            let last = u32::from(index + 1 == count);
            let flags = chunk.len() as u32
                | last << self.bytes
                | (last * u32::from(frame.mac_error)) << (self.bytes + 1);
            let mut words: Vec<u32> =
                beat.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect();
            words.push(flags);
            beats.push(words);
        }
        beats
    }

    /// One cycle with or without a beat.
    fn cycle(&mut self, beat: Option<&[u32]>, pauses: Pauses) {
        self.instance.set(self.from_mac_valid, beat.is_some().into());
        if let Some(beat) = beat {
            self.instance.write_words(self.from_mac, beat);
        }
        let ready = |random: &mut Random, percent: u32| u8::from(random.random_range(0..100) >= percent);
        for role in &self.roles {
            let token_ready = ready(&mut self.random, pauses.tokens);
            let payload_ready = ready(&mut self.random, pauses.payload);
            self.instance.set(role.token_ready, token_ready);
            self.instance.set(role.payload_ready, payload_ready);
        }
        let reference = self.references.front().copied();
        self.instance.set(self.reference_valid, reference.is_some().into());
        self.instance.set(self.reference, reference.unwrap_or_default());
        self.instance.eval();
        if reference.is_some() && self.instance.get(self.reference_ready) == 1 {
            self.references.pop_front();
        }
        let seen = self.requests.tokens.len();
        for (ports, role) in self.roles.iter().zip([&mut self.requests, &mut self.responses]) {
            take(&self.instance, ports, role, self.data, self.bytes);
        }
        for token in &mut self.requests.tokens[seen..] {
            self.references.extend(reference_of(token));
        }
        if self.first_token.is_none() && !self.requests.tokens.is_empty() {
            self.first_token = Some(self.cycle);
        }
        if self.instance.get(self.outcome_valid) == 1 {
            let outcome = u64::from(self.instance.get(self.outcome));
            self.outcomes.push((outcome & 31, outcome >> 5, self.cycle));
        }
        self.instance.step(self.clock);
        self.cycle += 1;
    }

    /// Sends frames, and waits until nothing moves any more.
    fn send(&mut self, frames: &[Sent], pauses: Pauses) {
        for frame in frames {
            let mut beats = VecDeque::from(self.beats(frame));
            while let Some(beat) = beats.front() {
                let pause = self.random.random_range(0..100) < pauses.mac;
                let beat = beat.clone();
                self.cycle((!pause).then_some(&beat), pauses);
                if !pause {
                    beats.pop_front();
                }
            }
        }
        for _ in 0..100 {
            self.cycle(None, pauses);
        }
    }

    /// Lets all that is buffered out.
    fn drain(&mut self) {
        for _ in 0..30_000 {
            self.cycle(None, Pauses::default());
        }
    }

    fn numbers(&self) -> Vec<u64> {
        self.outcomes.iter().map(|outcome| outcome.0).collect()
    }
}

/// Takes what a role is offered in this cycle.
fn take(instance: &Instance, ports: &RolePorts, role: &mut Role, data: usize, bytes: usize) {
    let read = |port: AnyPort| {
        let mut words = vec![0; port.words()];
        instance.read_words(port, &mut words);
        words
    };
    if instance.get(ports.token_valid) == 1 && instance.get(ports.token_ready) == 1 {
        role.tokens.push(BigUint::new(read(ports.token)));
    }
    if instance.get(ports.payload_valid) == 1 && instance.get(ports.payload_ready) == 1 {
        let beat = read(ports.payload);
        let flags = beat[data / 32];
        let count = (flags & ((1 << bytes) - 1)) as usize;
        let (last, error) = (flags >> bytes & 1, flags >> (bytes + 1) & 1);
        assert_eq!(error, 0);
        assert!(count > 0 && count <= data / 8 && (last == 1 || count == data / 8));
        let lanes: Vec<u8> = beat[..data / 32].iter().flat_map(|word| word.to_le_bytes()).collect();
        role.payload.extend(&lanes[..count]);
        if last == 1 {
            role.payloads.push(std::mem::take(&mut role.payload));
        }
    }
}

/// Takes the number of the first cell off a token, and makes the reference to its payload if it has any.
fn reference_of(token: &mut BigUint) -> Option<u64> {
    let first_cell = &*token >> HEADER_BITS;
    *token -= &first_cell << HEADER_BITS;
    // The length is followed by one bit more, which says whether the pad is right.
    let payload_bytes = (&*token >> (HEADER_BITS - 14)) % (1u32 << 13);
    let queue_pair = (&*token >> QUEUE_PAIR_AT) % (1u32 << QUEUE_PAIR_BITS);
    let reference =
        queue_pair | first_cell << QUEUE_PAIR_BITS | &payload_bytes << (QUEUE_PAIR_BITS + CELL_BITS);
    (payload_bytes != BigUint::ZERO).then(|| reference.try_into().expect("33 bits"))
}

/// The token of a good packet, its fields concatenated from bit 0 up.
fn token_of(packet: &PacketRepr) -> BigUint {
    let (identification, flow_label, traffic_class, hop_limit) = match packet.ip {
        IpRepr::V4(ip) => (ip.identification, 0, ip.traffic_class, ip.hop_limit),
        IpRepr::V6(ip) => (0, ip.flow_label, ip.traffic_class, ip.hop_limit),
    };
    let mac = |address: MacAddress| BigUint::from_bytes_be(&address.0);
    let bth = &packet.bth;
    let fields: Vec<(BigUint, usize)> = vec![
        (mac(packet.ethernet.destination), 48),
        (mac(packet.ethernet.source), 48),
        (u8::from(packet.ethernet.vlan.is_some()).into(), 1),
        (packet.ethernet.vlan.map_or(0, |tag| tag.control()).into(), 16),
        (u8::from(matches!(packet.ip, IpRepr::V6(_))).into(), 1),
        (traffic_class.into(), 8),
        (flow_label.into(), 20),
        (identification.into(), 16),
        (hop_limit.into(), 8),
        (BigUint::from_bytes_be(&packet.ip.source().0), 128),
        (BigUint::from_bytes_be(&packet.ip.destination().0), 128),
        (packet.udp.source_port.into(), 16),
        (bth.opcode.into(), 8),
        (u8::from(bth.solicited).into(), 1),
        (u8::from(bth.migrated).into(), 1),
        (bth.partition_key.into(), 16),
        (u8::from(bth.forward_congestion).into(), 1),
        (u8::from(bth.backward_congestion).into(), 1),
        (bth.destination_qp.into(), 24),
        (queue_pair_of(bits(bth.destination_qp.into())).to_u64().into(), QUEUE_PAIR_BITS),
        (u8::from(bth.ack_request).into(), 1),
        (bth.psn.value().into(), 24),
        (BigUint::from_bytes_le(packet.extended.as_bytes()), 28 * 8),
        (packet.payload.len().into(), 13),
    ];
    let mut offset = 0;
    let mut token = BigUint::ZERO;
    for (value, width) in fields {
        token |= value << offset;
        offset += width;
    }
    token
}

/// What must come of some frames when no buffer is ever full.
#[derive(Default)]
struct Expected {
    outcomes: Vec<(u64, u64)>,
    tokens: [Vec<BigUint>; 2],
    payloads: [Vec<Vec<u8>>; 2],
}

fn filter() -> Filter {
    let bytes = OWN_MAC.to_be_bytes();
    let own_mac = MacAddress(bytes[2..].try_into().expect("six bytes"));
    Filter { own_mac, promiscuous: false, accept_multicast: false }
}

fn expect(frames: &[Sent], filter: &Filter) -> Expected {
    let mut expected = Expected::default();
    for frame in frames {
        let length = frame.bytes.len() as u64;
        match classify(&frame.bytes, frame.mac_error, filter) {
            Err(reason) => expected.outcomes.push((reason.index() as u64, length)),
            Ok(packet) => {
                let class = opcode::class(packet.bth.opcode).expect("the packet is accepted");
                let is_request = class == Class::Request;
                let number = match class {
                    Class::Request => ACCEPTED_REQUEST,
                    Class::Response => ACCEPTED_RESPONSE,
                    Class::Congestion => ACCEPTED_CONGESTION,
                };
                expected.outcomes.push((number, length));
                expected.tokens[usize::from(!is_request)].push(token_of(&packet));
                if !packet.payload.is_empty() {
                    expected.payloads[usize::from(!is_request)].push(packet.payload.to_vec());
                }
            }
        }
    }
    expected
}

fn compare(card: &Card, frames: &[Sent], expected: &Expected) {
    for (index, (outcome, expected)) in card.outcomes.iter().zip(&expected.outcomes).enumerate() {
        assert_eq!((outcome.0, outcome.1), *expected, "frame {index}: {:02x?}", frames[index]);
    }
    assert_eq!(card.outcomes.len(), frames.len());
    for (role, index) in [(&card.requests, 0), (&card.responses, 1)] {
        assert_eq!(role.tokens, expected.tokens[index]);
        assert_eq!(role.payloads, expected.payloads[index]);
        assert!(role.payload.is_empty());
    }
}

/// A random frame: mostly good, else with something wrong with it.
fn random_frame(random: &mut Random) -> Sent {
    let opcode = if random.random_bool(0.9) {
        opcode::OPCODES.choose(random).expect("there are opcodes").code
    } else {
        random.random()
    };
    let payload_bytes = match random.random_range(0..10) {
        0..=2 => 0,
        3..=6 => random.random_range(0..100),
        7..=8 => random.random_range(0..600),
        _ => random.random_range(0..=4096),
    };
    let mut recipe =
        Recipe::send(payload_bytes).with_opcode(opcode, EXTENDED_BYTES[usize::from(opcode)].into());
    recipe.vlan = random.random_bool(0.3).then(|| random.random());
    recipe.is_ipv6 = random.random();
    random.fill(&mut recipe.payload[..]);
    random.fill(&mut recipe.extended[..]);
    let mut bytes = recipe.build();
    let header = recipe.header_bytes().min(bytes.len());
    match random.random_range(0..20) {
        0 => bytes[random.random_range(0..header)] ^= 1 << random.random_range(0..8),
        1 => {
            let at = random.random_range(0..bytes.len());
            bytes[at] ^= 1 << random.random_range(0..8);
        }
        2 => bytes.truncate(random.random_range(1..=bytes.len())),
        3 => {
            bytes[random.random_range(12..header)] = random.random();
            recipe.seal(&mut bytes);
        }
        4 => {
            let at = recipe.bth() + random.random_range(0..2);
            bytes[at] = random.random();
            recipe.seal(&mut bytes);
        }
        5 => {
            let at = recipe.udp() + 4;
            let udp_bytes = (bytes.len() - recipe.udp() + random.random_range(0..40)).wrapping_sub(20) as u16;
            bytes[at..at + 2].copy_from_slice(&udp_bytes.to_be_bytes());
            recipe.seal(&mut bytes);
        }
        6 => bytes.resize(random.random_range(4200..4300), 0),
        _ => {}
    }
    if random.random_bool(0.3) {
        let pad = random.random_range(0..140);
        bytes.extend((0..pad).map(|_| random.random::<u8>()));
    }
    Sent { bytes, mac_error: random.random_bool(0.02) }
}

fn random_frames_are_judged_as_the_layout_does(card: &mut Card, frame_count: usize) {
    let mut random = random();
    for pauses in [
        Pauses::default(),
        Pauses { mac: 50, ..Pauses::default() },
        Pauses { tokens: 30, payload: 20, mac: 60 },
    ] {
        let frames: Vec<_> = (0..frame_count).map(|_| random_frame(&mut random)).collect();
        let expected = expect(&frames, &filter());
        (card.requests, card.responses, card.outcomes) = Default::default();
        card.send(&frames, pauses);
        card.drain();
        compare(card, &frames, &expected);
    }
}

#[test]
fn random_frames_at_512_bits() {
    random_frames_are_judged_as_the_layout_does(&mut Card::new(Card512::default(), 512), 400);
}

#[test]
fn random_frames_at_256_bits() {
    random_frames_are_judged_as_the_layout_does(&mut Card::new(Card256::default(), 256), 400);
}

#[test]
fn random_frames_at_128_bits() {
    random_frames_are_judged_as_the_layout_does(&mut Card::new(Card128::default(), 128), 400);
}

#[test]
fn random_frames_at_64_bits() {
    random_frames_are_judged_as_the_layout_does(&mut Card::new(Card64::default(), 64), 400);
}

#[test]
fn vectors_pass_and_a_corrupted_one_does_not() {
    let mut card = Card::new(Card512::default(), 512);
    card.set_bit("promiscuous", true);
    let mut frames: Vec<_> = vectors::frames().into_iter().map(good).collect();
    let mut spoilt = frames[0].clone();
    *spoilt.bytes.last_mut().expect("a frame has bytes") ^= 0x10;
    frames.insert(3, spoilt);
    let expected = expect(&frames, &Filter { promiscuous: true, ..filter() });
    card.send(&frames, Pauses::default());
    card.drain();
    compare(&card, &frames, &expected);
    let refused: Vec<_> =
        card.numbers().into_iter().filter(|number| *number <= reason::BUFFER_FULL).collect();
    assert_eq!(refused, [reason::ICRC]);
}

#[test]
fn frames_of_58_bytes_pass_back_to_back_without_a_bubble() {
    let mut card = Card::new(Card512::default(), 512);
    let recipe = Recipe::send(0);
    let frames = vec![good(recipe.build()); 100];
    assert_eq!(frames[0].bytes.len(), 58);
    let start = card.cycle;
    card.send(&frames, Pauses::default());
    let cycles: Vec<_> = card.outcomes.iter().map(|outcome| outcome.2 - start).collect();
    // The window, the parser, dispatch, and the register of the event.
    let first = 1024 / 512 + 4 + 4 + 1;
    assert_eq!(cycles, (first..first + 100).collect::<Vec<_>>());
    // A token is at the output two cycles after its commit, which is one before the outcome.
    assert_eq!(card.first_token, Some(start + first + 1));
    assert_eq!(card.requests.tokens.len(), 100);
}

#[test]
fn frames_of_62_bytes_with_payload_leave_as_fast_as_they_come() {
    let mut card = Card::new(Card512::default(), 512);
    let frames = vec![good(Recipe::send(4).build()); 100];
    assert_eq!(frames[0].bytes.len(), 62);
    let mut busy = 0;
    for frame in &frames {
        for beat in card.beats(frame) {
            card.cycle(Some(&beat), Pauses::default());
        }
    }
    while card.requests.payloads.len() < frames.len() {
        card.cycle(None, Pauses::default());
        busy += 1;
        // The reference comes a cycle after the token, and the payload 4 cycles later.
        assert!(busy <= 1024 / 512 + 10 + 5, "the last payload is late");
    }
    assert!(card.requests.payloads.iter().all(|payload| *payload == Recipe::send(4).payload));
}

/// Sends a frame between two good ones, back to back, and returns what was counted for it.
fn judge(card: &mut Card, frame: Sent) -> u64 {
    let neighbour = good(Recipe::send(33).build());
    card.outcomes.clear();
    card.send(&[neighbour.clone(), frame, neighbour], Pauses::default());
    let numbers = card.numbers();
    assert_eq!(numbers.len(), 3);
    assert_eq!((numbers[0], numbers[2]), (ACCEPTED_REQUEST, ACCEPTED_REQUEST), "another frame was lost");
    numbers[1]
}

/// A tag whose VID is 0 gives the priority alone.
#[test]
fn priority_tagged_frames_are_accepted() {
    let mut card = Card::new(Card64::default(), 64);
    for control in [0x0000, 0x6000, 0xf000, 0x6001] {
        let recipe = Recipe { vlan: Some(control), ..Recipe::send(9) };
        assert_eq!(judge(&mut card, good(recipe.build())), ACCEPTED_REQUEST, "{control:#06x}");
    }
}

fn faults_at_the_end_of_a_frame_are_found(card: &mut Card) {
    let recipe = Recipe::send(300);
    let frame = recipe.build();
    assert_eq!(judge(card, good(frame.clone())), ACCEPTED_REQUEST);
    assert_eq!(judge(card, Sent { bytes: frame.clone(), mac_error: true }), reason::MAC_ERROR);

    let padded = |length: usize| {
        let mut padded = frame.clone();
        padded.resize(length, 0xaa);
        good(padded)
    };
    assert_eq!(judge(card, padded(4224)), ACCEPTED_REQUEST, "bytes after the ICRC are ignored");
    for length in [4225, 4288, 9000, 70_000] {
        assert_eq!(judge(card, padded(length)), reason::TOO_LONG, "{length} bytes");
    }
    for length in [frame.len() - 1, frame.len() - 64, 100, 54, 34] {
        assert_eq!(judge(card, padded(length)), reason::IP_LENGTH, "{length} bytes");
    }

    for at in [recipe.ip() + 4, recipe.bth() + 1, recipe.header_bytes(), frame.len() - 1] {
        let mut spoilt = frame.clone();
        spoilt[at] ^= 0x80;
        let expected = if at == recipe.ip() + 4 { reason::IP_CHECKSUM } else { reason::ICRC };
        assert_eq!(judge(card, good(spoilt)), expected, "byte {at}");
    }
    for at in [recipe.udp() + 7, recipe.bth() + 4] {
        let mut masked = frame.clone();
        masked[at] ^= 0xff;
        assert_eq!(judge(card, good(masked)), ACCEPTED_REQUEST, "byte {at} is not covered");
    }

    // Reasons after the ICRC are counted only if the ICRC is correct.
    let mut version = frame.clone();
    version[recipe.bth() + 1] |= 0x01;
    assert_eq!(judge(card, good(version.clone())), reason::ICRC);
    recipe.seal(&mut version);
    assert_eq!(judge(card, good(version)), reason::BTH_VERSION);
}

#[test]
fn faults_at_the_end_of_a_frame_are_found_at_512_bits() {
    faults_at_the_end_of_a_frame_are_found(&mut Card::new(Card512::default(), 512));
}

#[test]
fn faults_at_the_end_of_a_frame_are_found_at_64_bits() {
    faults_at_the_end_of_a_frame_are_found(&mut Card::new(Card64::default(), 64));
}

#[test]
fn each_role_has_room_of_its_own_and_what_does_not_fit_is_dropped_whole() {
    let mut card = Card::new(Small512::default(), 512);
    let halted = Pauses { tokens: 100, payload: 100, mac: 0 };
    let request = good(Recipe::send(1000).with_opcode(0x0a, 16).build());
    let response = good(Recipe::send(1000).with_opcode(0x10, 4).build());

    // 63 cells hold seven packets of 8; one more finds no room, but those without payload do.
    let of = |queue_pair| good(Recipe { queue_pair, ..Recipe::send(1000).with_opcode(0x0a, 16) }.build());
    card.send(&(1..=9).map(of).collect::<Vec<_>>(), halted);
    let full = [[ACCEPTED_REQUEST; 7].as_slice(), &[reason::BUFFER_FULL; 2]].concat();
    assert_eq!(card.numbers(), full);
    card.outcomes.clear();
    card.send(&[good(Recipe::send(0).build()), response.clone()], halted);
    assert_eq!(card.numbers(), [ACCEPTED_REQUEST, ACCEPTED_RESPONSE]);

    // 16 tokens: one response is there already.
    card.outcomes.clear();
    let of = |queue_pair| good(Recipe { queue_pair, ..Recipe::send(0).with_opcode(0x11, 4) }.build());
    card.send(&(1..=17).map(of).collect::<Vec<_>>(), halted);
    let full = [[ACCEPTED_RESPONSE; 15].as_slice(), &[reason::BUFFER_FULL; 2]].concat();
    assert_eq!(card.numbers(), full);

    card.drain();
    assert_eq!(card.requests.payloads, vec![Recipe::send(1000).payload; 7]);
    assert_eq!((card.requests.tokens.len(), card.responses.tokens.len()), (8, 16));
    card.outcomes.clear();
    card.send(&[request.clone(), response.clone()], Pauses::default());
    assert_eq!(card.numbers(), [ACCEPTED_REQUEST, ACCEPTED_RESPONSE]);

    // A card that is not enabled has no room at all.
    card.set_bit("enable", false);
    card.outcomes.clear();
    card.send(&[request, response], Pauses::default());
    assert_eq!(card.numbers(), [reason::BUFFER_FULL; 2]);
}

/// What a queue pair has waiting in a buffer is at most what is free, in packets and in room, and others find that.
fn what_exceeds_the_share_of_its_queue_pair_is_dropped(packet: fn(usize) -> Recipe, accepted: u64) {
    let mut card = Card::new(Small512::default(), 512);
    let halted = Pauses { tokens: 100, payload: 100, mac: 0 };
    let mut kept = |payload_bytes, queue_pairs: &[u32], count: usize| {
        let frame = |queue_pair| good(Recipe { queue_pair, ..packet(payload_bytes) }.build());
        let kept = queue_pairs.iter().map(|queue_pair| {
            card.outcomes.clear();
            // One at a time: what is between the look and its commit is not counted yet.
            (0..count).for_each(|_| card.send(&[frame(*queue_pair)], halted));
            let numbers = card.numbers();
            let kept = numbers.iter().take_while(|number| **number == accepted).count();
            assert!(numbers[kept..].iter().all(|number| *number == reason::BUFFER_SHARE), "{numbers:?}");
            kept
        });
        let kept: Vec<_> = kept.collect();
        card.drain();
        kept
    };
    // 16 tokens. The low ten bits of the QPN are the slot.
    assert_eq!(kept(0, &[0x12, 0x13, 0x12, 0x8012, 0x14], 10), [8, 4, 0, 0, 2]);
    // Now nothing waits. Room of 63 or 64 times 128 bytes: packets of eight.
    assert_eq!(kept(1000, &[0x12, 0x13], 6), [4, 2]);
    // What was read does not count any more.
    assert_eq!(kept(1000, &[0x12, 0x13], 6), [4, 2]);

    // A burst in which each frame is one beat: those are kept, too, that pass before the first ones count.
    card.outcomes.clear();
    card.send(&vec![good(packet(0).build()); 40], halted);
    let numbers = card.numbers();
    let kept = numbers.iter().filter(|number| **number == accepted).count();
    assert!((9..16).contains(&kept), "{kept} are kept");
    assert_eq!(numbers.iter().filter(|number| **number == reason::BUFFER_SHARE).count(), 40 - kept);
    card.drain();
    assert_eq!(card.requests.payloads.len() + card.responses.payloads.len(), 12);
}

#[test]
fn requests_that_exceed_the_share_of_their_queue_pair_are_dropped() {
    what_exceeds_the_share_of_its_queue_pair_is_dropped(Recipe::send, ACCEPTED_REQUEST);
}

#[test]
fn responses_that_exceed_the_share_of_their_queue_pair_are_dropped() {
    let response = |payload_bytes| match payload_bytes {
        0 => Recipe::send(0).with_opcode(0x11, 4),
        _ => Recipe::send(payload_bytes).with_opcode(0x10, 4),
    };
    what_exceeds_the_share_of_its_queue_pair_is_dropped(response, ACCEPTED_RESPONSE);
}

#[test]
fn the_counters_add_up_to_the_frames() {
    let mut card = Card::new(Card512::default(), 512);
    let mut random = random();
    let frames: Vec<_> = (0..200).map(|_| random_frame(&mut random)).collect();
    card.send(&frames, Pauses::default());
    card.drain();
    card.set_bit("counter_latch", true);
    card.cycle(None, Pauses::default());
    card.set_bit("counter_latch", false);
    // These come too late for the latch.
    card.send(&frames[..20], Pauses::default());
    let expected = expect(&frames, &filter());
    let index = card.instance.port::<u8>("counter_index").unwrap();
    let counter = card.instance.any_port("counter").unwrap();
    for number in 0..OUTCOME_COUNT as u64 {
        card.instance.set(index, number as u8);
        card.cycle(None, Pauses::default());
        card.cycle(None, Pauses::default());
        let mut words = [0; 4];
        card.instance.read_words(counter, &mut words);
        let lengths = expected.outcomes.iter().filter(|outcome| outcome.0 == number).map(|outcome| outcome.1);
        assert_eq!(u64::from(words[0]), lengths.clone().count() as u64, "frames of {number}");
        assert_eq!(u64::from(words[2]), lengths.sum::<u64>(), "bytes of {number}");
        assert_eq!((words[1], words[3]), (0, 0));
    }
    let reasons = DropReason::ALL.len() as u64;
    assert_eq!(reasons, ACCEPTED_REQUEST, "every reason has a counter");
}

/// Runs the Rust of the receive path beside its Verilog, with random stalls on all sides.
fn rust_and_verilog_agree<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize>() {
    let mut random = random();
    let block = Receive::<DATA, BYTES, ADDRESS, COUNT, 2, 3>::default();
    let mut bench = Bench::clocked(block, |block| &mut block.clock).in_lock_step();
    bench.block.enable.next = true;
    bench.block.own_mac.next = bits(OWN_MAC);
    (0..SHARE_SWEEP_CYCLES + 8).for_each(|_| bench.tick());
    let (mut requests, mut responses) = (Sink::new(Stalls::Both), Sink::new(Stalls::Both));
    let mut references = Source::showing_next([], Stalls::Both);
    let (mut request_beats, mut response_beats) = (Sink::new(Stalls::Both), Sink::new(Stalls::Both));
    let opcodes = [0x04, 0x0a, 0x0d, 0x11, 0x13, 0x65, 0x81, 0x44];
    let frames = opcodes.iter().cycle().take(24).map(|&opcode| {
        let recipe = Recipe::send(random.random_range(0..40));
        let mut frame = recipe.with_opcode(opcode, EXTENDED_BYTES[usize::from(opcode)].into()).build();
        if random.random_bool(0.2) {
            let at = random.random_range(0..frame.len());
            frame[at] ^= 0x10;
        }
        frame
    });
    let frames: Vec<_> = frames.collect();
    let mut beats: VecDeque<_> =
        frames.iter().flat_map(|frame| beats_of::<DATA, BYTES>(frame, &mut random)).collect();
    let mut outcome_count = 0;
    for cycle in 0.. {
        let beat = if random.random_bool(0.3) { None } else { beats.pop_front() };
        let block = &mut bench.block;
        block.from_mac.valid.next = beat.is_some();
        block.from_mac.value.next = beat.unwrap_or_default();
        block.counter_latch.next = random.random_bool(0.05);
        block.counter_index.next = bits(random.random_range(reason::OTHER_PORT..=ACCEPTED_RESPONSE));
        requests.drive(&mut block.request_token, &mut random);
        responses.drive(&mut block.response_token, &mut random);
        references.drive(&mut block.reference, &mut random);
        request_beats.drive(&mut block.request_payload, &mut random);
        response_beats.drive(&mut block.response_payload, &mut random);
        bench.settle();
        let block = &bench.block;
        references.sample(&block.reference);
        if let Some(token) = requests.sample(&block.request_token)
            && token.payload_bytes.any()
        {
            references.push(PayloadReference {
                queue_pair: token.queue_pair,
                first_cell: token.first_cell,
                payload_bytes: token.payload_bytes,
            });
        }
        responses.sample(&block.response_token);
        request_beats.sample(&block.request_payload);
        response_beats.sample(&block.response_payload);
        outcome_count += usize::from(block.outcome.valid.val());
        bench.tick();
        if outcome_count == frames.len() {
            break;
        }
        assert!(cycle < 2000, "{outcome_count} frames were judged");
    }
    assert!(!requests.received.is_empty() && !responses.received.is_empty());
    assert!(!request_beats.received.is_empty());
}

#[test]
fn rust_and_verilog_agree_in_every_cycle_at_512_bits() {
    rust_and_verilog_agree::<512, 7, 7, 8>();
}

#[test]
fn rust_and_verilog_agree_in_every_cycle_at_64_bits() {
    rust_and_verilog_agree::<64, 4, 10, 11>();
}
