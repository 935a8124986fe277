//! The assembler in both languages against a program that writes the same frames byte by byte.
use super::*;
use crate::icrc::reference;
use crate::vectors;
use num_bigint::BigUint;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore};
use rnic_blocks::bench::{Bench, Random, Stalls, Stimulus, Waves, random};
use rnic_layout::wire::PacketRepr;
use rnic_messages::PacketToken;
use std::collections::VecDeque;
use verilator_sys::{AnyPort, Instance, Model, ModelOptions, Optimization, Port};

/// A packet to send, and the frame that must come of it.
#[derive(Clone, Debug)]
struct Packet {
    token: TransmitToken,
    payload: Vec<u8>,
}

/// Bytes of the extended headers by opcode, from the table in protocol 1.4.
fn extended_bytes(opcode: u8) -> usize {
    match opcode {
        0x03 | 0x05 | 0x09 | 0x0d | 0x0f..=0x11 | 0x16 | 0x17 | 0x23 | 0x25 | 0x29 => 4,
        0x64 => 8,
        0x12 | 0x65 => 12,
        0x06 | 0x0a | 0x0c | 0x26 | 0x2a | 0x81 => 16,
        0x0b | 0x2b => 20,
        0x13 | 0x14 => 28,
        _ => 0,
    }
}

fn big_endian<const N: usize>(value: Bits<N>) -> Vec<u8> {
    let bytes = BigUint::from(value).to_bytes_be();
    let mut padded = vec![0; N / 8 - bytes.len().min(N / 8)];
    padded.extend(&bytes[bytes.len().saturating_sub(N / 8)..]);
    padded
}

fn number<const N: usize>(bytes: &[u8]) -> Bits<N> {
    BigUint::from_bytes_be(bytes).into()
}

impl Packet {
    /// Writes the frame, as protocol 1.1 to 1.8 say.
    fn frame(&self) -> Vec<u8> {
        let packet = &self.token.packet;
        let opcode = packet.opcode.to_u64() as u8;
        let pad = self.payload.len().wrapping_neg() % 4;
        let udp_length = (8 + 12 + extended_bytes(opcode) + self.payload.len() + pad + 4) as u16;

        let mut frame = [big_endian(packet.destination_mac), big_endian(packet.source_mac)].concat();
        if packet.vlan_present {
            frame.extend([0x81, 0x00]);
            frame.extend(big_endian(packet.vlan_control));
        }
        let (source, destination) =
            (big_endian(packet.source_address), big_endian(packet.destination_address));
        let traffic_class = packet.traffic_class.to_u64() as u32;
        let hop_limit = packet.hop_limit.to_u64() as u8;
        if packet.is_ipv6 {
            frame.extend([0x86, 0xdd]);
            frame.extend((6 << 28 | traffic_class << 20 | packet.flow_label.to_u64() as u32).to_be_bytes());
            frame.extend(udp_length.to_be_bytes());
            frame.extend([17, hop_limit]);
            frame.extend([source, destination].concat());
        } else {
            frame.extend([0x08, 0x00]);
            let mut header = vec![0x45, traffic_class as u8];
            header.extend((udp_length + 20).to_be_bytes());
            header.extend(big_endian(packet.identification));
            header.extend([0x40, 0x00, hop_limit, 17, 0, 0]);
            header.extend([&source[12..], &destination[12..]].concat());
            let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend(header);
        }
        frame.extend(big_endian(packet.source_port));
        frame.extend(4791u16.to_be_bytes());
        frame.extend(udp_length.to_be_bytes());
        frame.extend([0, 0]);
        let bit = |bit: Bit, place: u8| u8::from(bit) << place;
        frame.extend([opcode, bit(packet.solicited, 7) | bit(packet.migrated, 6) | (pad as u8) << 4]);
        frame.extend(big_endian(packet.partition_key));
        frame.push(bit(packet.forward_congestion, 7) | bit(packet.backward_congestion, 6));
        frame.extend(big_endian(packet.destination_qp));
        frame.push(bit(packet.ack_request, 7));
        frame.extend(big_endian(packet.psn));
        let mut extended = BigUint::from(packet.extended).to_bytes_le();
        extended.resize(extended_bytes(opcode), 0);
        frame.extend(extended);
        frame.extend(&self.payload);
        frame.extend(&[0; 3][..pad]);
        frame.extend(reference::icrc(&frame));
        frame
    }

    /// Reads a frame of RoCEv2 back into what was to be sent.
    fn of_frame(frame: &[u8], payload_offset: u64) -> Self {
        let (vlan_present, is_ipv6) = reference::kind(frame);
        let ip = &frame[if vlan_present { 18 } else { 14 }..];
        let udp = &ip[if is_ipv6 { 40 } else { 20 }..];
        let bth = &udp[8..];
        let extended = 12 + extended_bytes(bth[0]);
        let end = u16::from_be_bytes([udp[4], udp[5]]) as usize - 8 - 4 - usize::from(bth[1] >> 4 & 3);
        let mapped = |address: &[u8]| number(&[&[0xff, 0xff], address].concat());
        let packet = PacketToken {
            destination_mac: number(&frame[..6]),
            source_mac: number(&frame[6..12]),
            vlan_present,
            vlan_control: if vlan_present { number(&frame[14..16]) } else { bits(0) },
            is_ipv6,
            traffic_class: if is_ipv6 { number(&[ip[0] << 4 | ip[1] >> 4]) } else { number(&ip[1..2]) },
            flow_label: if is_ipv6 { number(&[ip[1] & 15, ip[2], ip[3]]) } else { bits(0) },
            identification: if is_ipv6 { bits(0) } else { number(&ip[4..6]) },
            hop_limit: number(if is_ipv6 { &ip[7..8] } else { &ip[8..9] }),
            source_address: if is_ipv6 { number(&ip[8..24]) } else { mapped(&ip[12..16]) },
            destination_address: if is_ipv6 { number(&ip[24..40]) } else { mapped(&ip[16..20]) },
            source_port: number(&udp[..2]),
            opcode: number(&bth[..1]),
            solicited: bth[1] & 0x80 != 0,
            migrated: bth[1] & 0x40 != 0,
            partition_key: number(&bth[2..4]),
            forward_congestion: bth[4] & 0x80 != 0,
            backward_congestion: bth[4] & 0x40 != 0,
            destination_qp: number(&bth[5..8]),
            queue_pair: bits(0),
            ack_request: bth[8] & 0x80 != 0,
            psn: number(&bth[9..12]),
            extended: BigUint::from_bytes_le(&bth[12..extended]).into(),
            payload_bytes: bits((end - extended) as u64),
            pad_mismatch: false,
            first_cell: bits(0),
        };
        let token = TransmitToken { packet, payload_offset: bits(payload_offset) };
        Packet { token, payload: bth[extended..end].to_vec() }
    }

    fn random(random: &mut Random, lanes: usize, payload_bytes: usize) -> Self {
        let known: Vec<u8> =
            (0..=u8::MAX).filter(|opcode| rnic_layout::opcode::lookup(*opcode).is_some()).collect();
        let opcode =
            if random.random_ratio(1, 20) { random.random() } else { *known.choose(random).unwrap_or(&4) };
        let mut extended = vec![0; extended_bytes(opcode)];
        random.fill_bytes(&mut extended);
        let mut payload = vec![0; payload_bytes];
        random.fill_bytes(&mut payload);
        let is_ipv6: bool = random.random();
        let vlan_present: bool = random.random();
        let mut address = || {
            let address = Bits::<128>::sample(random);
            if is_ipv6 { address } else { bit_cast(address.get_bits::<32>(0)) | (Bits::from(0xffff) << 32) }
        };
        let (source_address, destination_address) = (address(), address());
        let packet = PacketToken {
            destination_mac: Bits::sample(random),
            source_mac: Bits::sample(random),
            vlan_present,
            vlan_control: if vlan_present { Bits::sample(random) } else { bits(0) },
            is_ipv6,
            traffic_class: Bits::sample(random),
            flow_label: if is_ipv6 { Bits::sample(random) } else { bits(0) },
            identification: if is_ipv6 { bits(0) } else { Bits::sample(random) },
            hop_limit: Bits::sample(random),
            source_address,
            destination_address,
            source_port: Bits::sample(random),
            opcode: bits(opcode.into()),
            solicited: random.random(),
            migrated: random.random(),
            partition_key: Bits::sample(random),
            forward_congestion: random.random(),
            backward_congestion: random.random(),
            destination_qp: Bits::sample(random),
            queue_pair: Bits::sample(random),
            ack_request: random.random(),
            psn: Bits::sample(random),
            extended: BigUint::from_bytes_le(&extended).into(),
            payload_bytes: bits(payload_bytes as u64),
            // A packet that is sent has the right pad, whatever this says.
            pad_mismatch: random.random(),
            first_cell: bits(0),
        };
        Packet {
            token: TransmitToken { packet, payload_offset: bits(random.random_range(0..lanes as u64)) },
            payload,
        }
    }

    /// The payload as it comes from host memory, with noise around it.
    fn payload_beats<const DATA: usize, const BYTES: usize>(
        &self,
        random: &mut Random,
    ) -> Vec<Beat<DATA, BYTES>> {
        if self.payload.is_empty() {
            return Vec::new();
        }
        let mut memory = vec![0; self.token.payload_offset.index()];
        random.fill_bytes(&mut memory);
        memory.extend(&self.payload);
        let count = memory.len().div_ceil(DATA / 8);
        memory.resize_with(count * DATA / 8, || random.random());
        let beat = |lanes: &[u8]| Beat {
            data: BigUint::from_bytes_le(lanes).into(),
            bytes: Bits::sample(random),
            last: random.random(),
            error: random.random(),
        };
        memory.chunks(DATA / 8).map(beat).collect()
    }
}

/// What the assembler shows in a cycle.
struct Answer<const DATA: usize, const BYTES: usize> {
    token_ready: bool,
    payload_ready: bool,
    beat: Option<Beat<DATA, BYTES>>,
}

/// The assembler in one of its two languages, a cycle at a time.
trait Device<const DATA: usize, const BYTES: usize> {
    fn cycle(
        &mut self,
        token: Option<TransmitToken>,
        payload: Option<Beat<DATA, BYTES>>,
        mac_ready: bool,
    ) -> Answer<DATA, BYTES>;
}

impl<const DATA: usize, const BYTES: usize> Device<DATA, BYTES> for Bench<Assembler<DATA, BYTES>> {
    fn cycle(
        &mut self,
        token: Option<TransmitToken>,
        payload: Option<Beat<DATA, BYTES>>,
        mac_ready: bool,
    ) -> Answer<DATA, BYTES> {
        let block = &mut self.block;
        block.from_token.valid.next = token.is_some();
        block.from_token.beat.next = token.unwrap_or_default();
        block.from_payload.valid.next = payload.is_some();
        block.from_payload.beat.next = payload.unwrap_or_default();
        block.to_mac.ready.next = mac_ready;
        self.settle();
        let block = &self.block;
        let answer = Answer {
            token_ready: block.from_token.ready.val(),
            payload_ready: block.from_payload.ready.val(),
            beat: block.to_mac.valid.val().then(|| block.to_mac.beat.val()),
        };
        self.tick();
        answer
    }
}

struct Verilog {
    model: Instance,
    clock: Port<u8>,
    token: AnyPort,
    token_valid: Port<u8>,
    token_ready: Port<u8>,
    payload: AnyPort,
    payload_valid: Port<u8>,
    payload_ready: Port<u8>,
    beat: AnyPort,
    beat_valid: Port<u8>,
    beat_ready: Port<u8>,
}

impl Verilog {
    fn new<const DATA: usize, const BYTES: usize>() -> Self {
        let mut block = Assembler::<DATA, BYTES>::default();
        let verilog =
            rnic_kernel::generate(&mut block, "assembler").expect("the assembler is valid hardware");
        let options = ModelOptions { optimization: Optimization::O0, ..ModelOptions::default() };
        let model = Model::build("assembler", &verilog, &options).expect("Verilator takes it");
        let port = |name| model.port(name).expect("the port is there");
        let any = |name| model.any_port(name).expect("the port is there");
        Self {
            clock: port("clock"),
            token: any("from_token_beat"),
            token_valid: port("from_token_valid"),
            token_ready: port("from_token_ready"),
            payload: any("from_payload_beat"),
            payload_valid: port("from_payload_valid"),
            payload_ready: port("from_payload_ready"),
            beat: any("to_mac_beat"),
            beat_valid: port("to_mac_valid"),
            beat_ready: port("to_mac_ready"),
            model: model.instance(),
        }
    }
}

/// The bits of a value as they are in a port.
fn words<T: Synth>(value: T) -> Vec<u32> {
    let text = format!("{:x}", value.verilog());
    let digits = text.split("'h").nth(1).expect("rust-hdl prints literals as <width>'h<digits>");
    BigUint::parse_bytes(digits.as_bytes(), 16).expect("the digits are hexadecimal").to_u32_digits()
}

impl<const DATA: usize, const BYTES: usize> Device<DATA, BYTES> for Verilog {
    fn cycle(
        &mut self,
        token: Option<TransmitToken>,
        payload: Option<Beat<DATA, BYTES>>,
        mac_ready: bool,
    ) -> Answer<DATA, BYTES> {
        self.model.set(self.token_valid, token.is_some().into());
        if let Some(token) = token {
            self.model.write_words(self.token, &words(token));
        }
        self.model.set(self.payload_valid, payload.is_some().into());
        if let Some(payload) = payload {
            self.model.write_words(self.payload, &words(payload));
        }
        self.model.set(self.beat_ready, mac_ready.into());
        self.model.eval();
        let beat = (self.model.get(self.beat_valid) == 1).then(|| {
            let mut words = vec![0; self.beat.words()];
            self.model.read_words(self.beat, &mut words);
            Beat::from_number(&BigUint::new(words))
        });
        let answer = Answer {
            token_ready: self.model.get(self.token_ready) == 1,
            payload_ready: self.model.get(self.payload_ready) == 1,
            beat,
        };
        self.model.step(self.clock);
        answer
    }
}

/// Sends packets; checks the frames, and returns in which cycle each beat left, counted from the first token's.
fn run<const DATA: usize, const BYTES: usize>(
    device: &mut impl Device<DATA, BYTES>,
    packets: &[Packet],
    stalls: Stalls,
    random: &mut Random,
) -> Vec<usize> {
    let mut tokens: VecDeque<_> = packets.iter().map(|packet| packet.token).collect();
    let mut payload: VecDeque<_> =
        packets.iter().flat_map(|packet| packet.payload_beats::<DATA, BYTES>(random)).collect();
    let mut expected: VecDeque<_> = packets.iter().map(Packet::frame).collect();
    let (mut offers_token, mut offers_payload) = (false, false);
    let mut offered: Option<Beat<DATA, BYTES>> = None;
    let mut frame = Vec::new();
    let mut cycles = Vec::new();
    let beats: usize = expected.iter().map(|frame| frame.len().div_ceil(DATA / 8)).sum();
    let limit = 200 + 10 * (beats + payload.len());
    for cycle in 0..limit {
        if expected.is_empty() && tokens.is_empty() && payload.is_empty() {
            break;
        }
        offers_token = !tokens.is_empty() && (offers_token || !stalls.source() || random.random());
        offers_payload = !payload.is_empty() && (offers_payload || !stalls.source() || random.random());
        let ready = !stalls.sink() || random.random();
        let token = tokens.front().copied().filter(|_| offers_token);
        let beat = payload.front().copied().filter(|_| offers_payload);
        let answer = device.cycle(token, beat, ready);
        if offers_token && answer.token_ready {
            tokens.pop_front();
            offers_token = false;
        }
        if offers_payload && answer.payload_ready {
            payload.pop_front();
            offers_payload = false;
        }
        if offered.is_some() {
            assert_eq!(answer.beat, offered, "an offer stays as it is until it is taken");
        }
        offered = answer.beat.filter(|_| !ready);
        if let Some(beat) = answer.beat.filter(|_| ready) {
            let count = beat.bytes.index();
            assert!(beat.last && count > 0 || count == DATA / 8, "only last beats are partial");
            assert!(!beat.error);
            let mut lanes = BigUint::from(beat.data).to_bytes_le();
            lanes.resize(DATA / 8, 0);
            assert!(lanes[count..].iter().all(|byte| *byte == 0), "lanes after the frame are zero");
            frame.extend(&lanes[..count]);
            cycles.push(cycle);
            if beat.last {
                let wanted = expected.pop_front().expect("no more frames than tokens");
                assert_eq!(
                    hex(&frame),
                    hex(&wanted),
                    "frame {} of {}",
                    packets.len() - expected.len(),
                    packets.len()
                );
                frame.clear();
            }
        }
    }
    assert!(expected.is_empty() && frame.is_empty(), "{} frames are missing", expected.len());
    assert!(tokens.is_empty() && payload.is_empty(), "all input is taken");
    cycles
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn rust<const DATA: usize, const BYTES: usize>() -> Bench<Assembler<DATA, BYTES>> {
    Bench::clocked(Assembler::default(), |block| &mut block.clock)
}

/// The frames of protocol 1.8, with their payload at every kind of place in memory.
fn vectors_come_out<const DATA: usize, const BYTES: usize>(
    device: &mut impl Device<DATA, BYTES>,
    offsets: &[usize],
) {
    let mut random = random();
    for offset in offsets {
        let packets: Vec<_> = vectors::frames()
            .iter()
            .map(|frame| Packet::of_frame(frame, (offset % (DATA / 8)) as u64))
            .collect();
        for (packet, frame) in packets.iter().zip(vectors::frames()) {
            assert_eq!(hex(&packet.frame()), hex(&frame), "the test itself writes the vectors");
        }
        run(device, &packets, Stalls::None, &mut random);
    }
}

/// Lengths around the edges of beats, and any.
fn random_packets(random: &mut Random, lanes: usize, count: usize, payload_bytes_max: usize) -> Vec<Packet> {
    let length = |random: &mut Random| match random.random_range(0..4) {
        0 => 0,
        1 => random.random_range(0..=8),
        2 => random.random_range(0..=(3 * lanes).min(payload_bytes_max)),
        _ => random.random_range(0..=payload_bytes_max),
    };
    (0..count)
        .map(|_| {
            let payload_bytes = length(random);
            Packet::random(random, lanes, payload_bytes)
        })
        .collect()
}

fn random_frames_come_out<const DATA: usize, const BYTES: usize>(
    device: &mut impl Device<DATA, BYTES>,
    count: usize,
    payload_bytes_max: usize,
) {
    let mut random = random();
    for stalls in Stalls::ALL {
        let packets = random_packets(&mut random, DATA / 8, count, payload_bytes_max);
        run(device, &packets, stalls, &mut random);
    }
}

#[test]
fn rust_writes_the_vectors_at_every_width() {
    vectors_come_out(&mut rust::<64, 4>(), &[0]);
    vectors_come_out(&mut rust::<128, 5>(), &[3]);
    vectors_come_out(&mut rust::<256, 6>(), &[30]);
    vectors_come_out(&mut rust::<512, 7>(), &[0, 61]);
}

#[test]
fn verilog_writes_vectors_and_random_frames_at_64_bits() {
    let mut device = Verilog::new::<64, 4>();
    vectors_come_out::<64, 4>(&mut device, &[0, 1, 2, 3, 4, 5, 6, 7]);
    random_frames_come_out::<64, 4>(&mut device, 200, 4096);
}

#[test]
fn verilog_writes_vectors_and_random_frames_at_128_bits() {
    let mut device = Verilog::new::<128, 5>();
    vectors_come_out::<128, 5>(&mut device, &[0, 1, 6, 7, 14, 15]);
    random_frames_come_out::<128, 5>(&mut device, 200, 4096);
}

#[test]
fn verilog_writes_vectors_and_random_frames_at_256_bits() {
    let mut device = Verilog::new::<256, 6>();
    vectors_come_out::<256, 6>(&mut device, &[0, 1, 22, 30, 31]);
    random_frames_come_out::<256, 6>(&mut device, 200, 4096);
}

#[test]
fn verilog_writes_vectors_and_random_frames_at_512_bits() {
    let mut device = Verilog::new::<512, 7>();
    vectors_come_out::<512, 7>(&mut device, &[0, 1, 53, 54, 55, 58, 62, 63]);
    random_frames_come_out::<512, 7>(&mut device, 400, 4096);
}

/// What the writer of this test calls right is what the software view of the wire format calls right.
#[test]
fn expected_frames_are_those_of_the_software_view() {
    let mut random = random();
    for packet in random_packets(&mut random, 64, 200, 4096) {
        let frame = packet.frame();
        let Ok(view) = PacketRepr::parse(&frame) else {
            let opcode = packet.token.packet.opcode.to_u64() as u8;
            assert!(rnic_layout::opcode::lookup(opcode).is_none(), "{opcode:02x} is refused");
            continue;
        };
        assert_eq!(view.payload, packet.payload);
        let mut again = [0; 4300];
        let count = view.canonical().emit(&mut again).expect("what was read can be written");
        assert_eq!(hex(&again[..count]), hex(&frame));
    }
}

#[test]
fn reset_in_the_middle_leaves_nothing_behind() {
    let mut device = rust::<512, 7>();
    let mut random = random();
    for _ in 0..5 {
        // Tokens with more payload than comes: the assembler is left in the middle of a frame.
        let packet = Packet::random(&mut random, 64, 500);
        let beats = packet.payload_beats::<512, 7>(&mut random);
        for cycle in 0..random.random_range(3..25) {
            device.cycle(Some(packet.token), beats.get(cycle).copied(), random.random());
        }
        device.block.reset.next = true;
        device.cycle(None, None, true);
        device.block.reset.next = false;
        let packets = random_packets(&mut random, 64, 3, 200);
        run(&mut device, &packets, Stalls::None, &mut random);
    }
}

#[test]
fn rust_and_verilog_agree_in_every_cycle() {
    fn agree<const DATA: usize, const BYTES: usize>(count: usize, payload_bytes_max: usize) {
        random_frames_come_out(&mut rust::<DATA, BYTES>().in_lock_step(), count, payload_bytes_max);
    }
    agree::<64, 4>(3, 40);
    agree::<128, 5>(3, 80);
    agree::<256, 6>(4, 150);
    agree::<512, 7>(6, 300);
}

/// A SEND without payload over IPv4: the shortest frame there is, 58 bytes.
fn shortest(random: &mut Random) -> Packet {
    let mut packet = Packet::random(random, 8, 0);
    packet.token.packet.opcode = bits(0x04);
    packet.token.packet.extended = bits(0);
    packet.token.packet.is_ipv6 = false;
    packet.token.packet.vlan_present = false;
    assert_eq!(packet.frame().len(), 58);
    packet
}

#[test]
fn shortest_frames_leave_in_every_cycle_at_512_bits() {
    let mut random = random();
    let packets: Vec<_> = (0..200).map(|_| shortest(&mut random)).collect();
    let cycles = run::<512, 7>(&mut Verilog::new::<512, 7>(), &packets, Stalls::None, &mut random);
    assert_eq!(cycles, (16..216).collect::<Vec<_>>());
}

/// Up to four bytes of payload fit into a frame of one beat, at any lane of their own beat.
#[test]
fn frames_of_one_beat_with_payload_leave_in_every_cycle_at_512_bits() {
    let mut random = random();
    let packet = |offset: u64| {
        let mut packet = shortest(&mut random);
        packet.payload = (0..4).map(|_| random.random()).collect();
        packet.token.packet.payload_bytes = bits(4);
        packet.token.payload_offset = bits(offset % 61);
        packet
    };
    let packets: Vec<_> = (0..200).map(packet).collect();
    let cycles = run::<512, 7>(&mut Verilog::new::<512, 7>(), &packets, Stalls::None, &mut random);
    assert_eq!(cycles, (16..216).collect::<Vec<_>>());
}

/// Frames follow each other without a gap: at 512 bits, if their payload starts at lane 0; below, wherever it starts.
#[test]
fn frames_leave_without_gaps() {
    fn gapless<const DATA: usize, const BYTES: usize>(latency: usize, offset: Option<u64>) {
        let mut random = random();
        let mut packets = random_packets(&mut random, DATA / 8, 100, 600);
        for packet in &mut packets {
            packet.token.payload_offset = offset.map_or(packet.token.payload_offset, bits);
        }
        let cycles =
            run::<DATA, BYTES>(&mut Verilog::new::<DATA, BYTES>(), &packets, Stalls::None, &mut random);
        assert_eq!(cycles, (latency..latency + cycles.len()).collect::<Vec<_>>());
    }
    gapless::<64, 4>(13, None);
    gapless::<128, 5>(14, None);
    gapless::<256, 6>(15, None);
    gapless::<512, 7>(16, Some(0));
}

/// At 512 bits a frame may wait one cycle for payload that its first beat needs from two payload beats, never longer.
#[test]
fn unaligned_payload_costs_at_most_one_cycle_a_frame_at_512_bits() {
    let mut random = random();
    let mut packets = random_packets(&mut random, 64, 300, 600);
    // Less payload than this may span more beats than the frame has.
    packets.retain(|packet| packet.payload.is_empty() || packet.payload.len() > 12);
    let cycles = run::<512, 7>(&mut Verilog::new::<512, 7>(), &packets, Stalls::None, &mut random);
    let mut wait_cycles = 0;
    let mut beat = 0;
    for (index, packet) in packets.iter().enumerate() {
        let start = if index == 0 { 15 } else { cycles[beat - 1] };
        let wait = cycles[beat] - start - 1;
        let headers = packet.frame().len() - 4 - packet.payload.len().next_multiple_of(4);
        let needs_two = headers < 64 && packet.token.payload_offset.index() > headers;
        assert!(wait <= usize::from(needs_two), "frame {index} waits {wait} cycles");
        wait_cycles += wait;
        let count = packet.frame().len().div_ceil(64);
        let last = beat + count - 1;
        assert_eq!(cycles[last] - cycles[beat], count - 1, "frame {index} has gaps");
        beat += count;
    }
    assert!(wait_cycles > 0, "the case was tried");
}

/// Frames of one stream of payload, all cut at the same offset, hide the beat taken ahead in each other.
#[test]
fn a_long_unaligned_message_leaves_without_gaps_at_512_bits() {
    let mut random = random();
    let packet = |_| {
        let mut packet = shortest(&mut random);
        packet.payload = (0..1024).map(|_| random.random()).collect();
        packet.token.packet.payload_bytes = bits(1024);
        packet.token.payload_offset = bits(61);
        packet
    };
    let packets: Vec<_> = (0..20).map(packet).collect();
    let cycles = run::<512, 7>(&mut Verilog::new::<512, 7>(), &packets, Stalls::None, &mut random);
    assert_eq!(cycles.len(), 20 * 17);
    assert_eq!(cycles, (17..17 + cycles.len()).collect::<Vec<_>>());
}

#[test]
fn other_widths_are_refused() {
    assert!(Assembler::<96, 4>::REFUSAL.is_some());
}

#[test]
fn waveform_is_as_documented() {
    let waves = Waves::new().signal("from_token_valid").signal("from_token_ready");
    let waves = waves.signal("from_payload_valid").signal("from_payload_ready");
    let waves = waves.signal("to_mac_valid").signal("to_mac_beat.bytes").when("to_mac_valid");
    let waves = waves.signal("to_mac_beat.last").when("to_mac_valid");
    let mut device = rust::<512, 7>().recording(waves);
    let mut random = random();
    let mut packets: Vec<_> = (0..4).map(|_| shortest(&mut random)).collect();
    packets[2].payload = (0..80).collect();
    packets[2].token.packet.payload_bytes = bits(80);
    run(&mut device, &packets, Stalls::None, &mut random);
    device.waves().expect("waves/assemble.txt");
}
