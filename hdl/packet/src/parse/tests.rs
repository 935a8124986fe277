use super::*;
use crate::samples::{OWN_MAC, Recipe};
use crate::vectors::frames;
use num_bigint::BigUint;
use rand::Rng;
use rnic_blocks::bench::{Bench, random};
use rnic_layout::wire::{Filter, explain};

fn bench() -> Bench<Parse> {
    let mut bench = Bench::clocked(Parse::default(), |block| &mut block.clock);
    bench.block.own_mac.next = bits(OWN_MAC);
    bench
}

fn offer(bench: &mut Bench<Parse>, frame: &[u8]) {
    let seen = &frame[..frame.len().min(128)];
    bench.block.header.value.next = BigUint::from_bytes_le(seen).into();
    bench.block.header_bytes.next = bits(seen.len() as u64);
    bench.block.header.valid.next = true;
}

/// Shows one frame to the parser, and waits for what it says.
fn parse(bench: &mut Bench<Parse>, frame: &[u8]) -> (PacketToken, ParsedHeaders, Coverage) {
    offer(bench, frame);
    bench.tick();
    bench.block.header.valid.next = false;
    (1..COVERAGE_LATENCY).for_each(|_| bench.tick());
    bench.settle();
    let coverage = bench.block.coverage.val();
    (COVERAGE_LATENCY..PARSE_LATENCY).for_each(|_| bench.tick());
    bench.settle();
    assert!(bench.block.headers.valid.val());
    (bench.block.token.val(), bench.block.headers.value.val(), coverage)
}

fn fault(bench: &mut Bench<Parse>, frame: &[u8]) -> u64 {
    parse(bench, frame).1.fault.to_u64()
}

fn number<const N: usize>(value: Bits<N>) -> BigUint {
    value.into()
}

#[test]
fn vectors_become_tokens() {
    let mut bench = bench();
    bench.block.promiscuous.next = true;
    for frame in frames() {
        let expected = explain(&frame, false, &Filter::PROMISCUOUS).expect("a vector is a good frame");
        let (token, headers, coverage) = parse(&mut bench, &frame);
        assert_eq!(headers.fault.to_u64(), reason::NONE);
        assert_eq!(token.payload_bytes.to_u64() as usize, expected.payload.len());
        assert!(!token.pad_mismatch);
        let payload = headers.header_bytes.to_u64() as usize..frame.len();
        assert!(frame[payload].starts_with(expected.payload));
        assert_eq!(number(token.extended), BigUint::from_bytes_le(expected.extended.as_bytes()));
        assert_eq!(token.opcode.to_u64(), u64::from(expected.bth.opcode));
        assert_eq!(coverage.last_byte.to_u64() as usize, frame.len() - 1);
        assert_eq!(number(token.destination_mac), BigUint::from_bytes_be(&frame[..6]));
        assert_eq!(number(token.source_mac), BigUint::from_bytes_be(&frame[6..12]));
    }
}

#[test]
fn every_field_of_a_tagged_ipv4_frame_finds_its_place() {
    let recipe = Recipe { vlan: Some(0x6064), ..Recipe::send(5).with_opcode(0x0b, 20) };
    let (token, headers, coverage) = parse(&mut bench(), &recipe.build());
    assert!(token.vlan_present && coverage.vlan_present);
    assert!(!token.is_ipv6 && !coverage.is_ipv6);
    assert_eq!(token.vlan_control.to_u64(), 0x6064);
    assert_eq!(token.traffic_class.to_u64(), 0x68);
    assert_eq!(token.flow_label.to_u64(), 0);
    assert_eq!(token.identification.to_u64(), 0x1234);
    assert_eq!(token.hop_limit.to_u64(), 0x40);
    assert_eq!(number(token.source_address), BigUint::from(0xffff_c0a8_010au64));
    assert_eq!(number(token.destination_address), BigUint::from(0xffff_c0a8_0114u64));
    assert_eq!(token.source_port.to_u64(), 0xc001);
    assert_eq!(token.opcode.to_u64(), 0x0b);
    assert!(!token.solicited && !token.migrated && token.ack_request);
    assert!(!token.forward_congestion && !token.backward_congestion);
    assert_eq!(token.partition_key.to_u64(), 0xffff);
    assert_eq!(token.destination_qp.to_u64(), 0x12);
    assert_eq!(token.psn.to_u64(), 0xabcdef);
    assert_eq!(token.payload_bytes.to_u64(), 5);
    assert_eq!(headers.header_bytes.to_u64(), 18 + 20 + 20 + 20);
}

#[test]
fn every_field_of_an_ipv6_frame_finds_its_place() {
    let recipe = Recipe { is_ipv6: true, ..Recipe::send(0).with_opcode(0x81, 16) };
    let mut frame = recipe.build();
    frame[recipe.bth() + 1] |= 0xc0;
    frame[recipe.bth() + 4] = 0xc0;
    let (token, headers, _) = parse(&mut bench(), &frame);
    assert!(token.is_ipv6 && !token.vlan_present);
    assert_eq!(token.vlan_control.to_u64(), 0);
    assert_eq!(token.traffic_class.to_u64(), 0xa5);
    assert_eq!(token.flow_label.to_u64(), 0x12345);
    assert_eq!(token.identification.to_u64(), 0);
    assert_eq!(token.hop_limit.to_u64(), 0x3f);
    assert_eq!(number(token.source_address), (BigUint::from(0xfd00u32) << 112) + 0xc1u8);
    assert_eq!(number(token.destination_address), (BigUint::from(0xfd00u32) << 112) + 0xc2u8);
    assert!(token.solicited && token.migrated);
    assert!(token.forward_congestion && token.backward_congestion);
    assert_eq!(headers.packet_class, PacketClass::Congestion);
    assert_eq!(headers.header_bytes.to_u64(), 14 + 40 + 20 + 16);
}

/// A change to the bytes of a good frame, and the fault that it makes.
struct Spoilt {
    recipe: Recipe,
    at: usize,
    good: u8,
    bad: u8,
    reason: u64,
}

fn spoilt(recipe: &Recipe, at: usize, good: u8, bad: u8, reason: u64) -> Spoilt {
    Spoilt { recipe: recipe.clone(), at, good, bad, reason }
}

fn all_spoilt() -> Vec<Spoilt> {
    let four = Recipe::send(8);
    let six = Recipe { is_ipv6: true, ..Recipe::send(8) };
    let tagged = Recipe { vlan: Some(1), ..Recipe::send(8) };
    let (ip4, ip6) = (four.ip(), six.ip());
    vec![
        spoilt(&four, 5, 0x02, 0x03, reason::DESTINATION_MAC),
        spoilt(&four, 0, 0x02, 0x03, reason::DESTINATION_MAC),
        spoilt(&four, 6, 0x02, 0x03, reason::SOURCE_MAC),
        spoilt(&four, 13, 0x00, 0x01, reason::OTHER_ETHERTYPE),
        spoilt(&tagged, 16, 0x08, 0x81, reason::OTHER_ETHERTYPE),
        spoilt(&four, ip4, 0x45, 0x55, reason::IP_HEADER),
        spoilt(&four, ip4, 0x45, 0x46, reason::IP_HEADER),
        spoilt(&four, ip4, 0x45, 0x44, reason::IP_HEADER),
        spoilt(&six, ip6, 0x6a, 0x4a, reason::IP_HEADER),
        spoilt(&four, ip4 + 6, 0xc0, 0x60, reason::IP_FRAGMENT),
        spoilt(&four, ip4 + 7, 0x00, 0x01, reason::IP_FRAGMENT),
        spoilt(&tagged, tagged.ip() + 6, 0x40, 0x50, reason::IP_FRAGMENT),
        spoilt(&four, ip4 + 9, 17, 6, reason::OTHER_PROTOCOL),
        spoilt(&six, ip6 + 6, 17, 0, reason::OTHER_PROTOCOL),
        spoilt(&four, four.udp() + 2, 0x12, 0x13, reason::OTHER_PORT),
        spoilt(&six, six.udp() + 3, 0xb7, 0xb6, reason::OTHER_PORT),
        spoilt(&four, four.udp() + 5, 32, 28, reason::UDP_LENGTH),
        spoilt(&six, six.udp() + 5, 32, 36, reason::UDP_LENGTH),
        spoilt(&four, four.bth() + 1, 0x40, 0x41, reason::BTH_VERSION),
        spoilt(&six, six.bth() + 1, 0x00, 0x08, reason::BTH_VERSION),
        spoilt(&four, four.bth(), 0x1f, 0x44, reason::UNSUPPORTED_TRANSPORT),
        spoilt(&four, four.bth(), 0x21, 0xc4, reason::UNSUPPORTED_TRANSPORT),
        spoilt(&four, four.bth(), 0x2b - 2, 0x2c, reason::UNSUPPORTED_TRANSPORT),
        spoilt(&four, four.bth(), 0x64, 0x66, reason::UNSUPPORTED_TRANSPORT),
        spoilt(&four, four.bth(), 0x05, 0x0a, reason::HEADER_LENGTH),
        spoilt(&six, six.bth(), 0x12 - 1, 0x12, reason::HEADER_LENGTH),
        spoilt(&four, four.bth() + 7, 0x01, 0x00, reason::DESTINATION_QP),
        spoilt(&four, four.udp(), 0x00, 0x00, reason::NONE),
        spoilt(&four, four.udp() + 6, 0x12, 0x34, reason::NONE),
        spoilt(&four, four.bth() + 8, 0x7f, 0xff, reason::NONE),
    ]
}

#[test]
fn each_fault_is_named_and_its_neighbour_is_not_one() {
    let mut bench = bench();
    for Spoilt { recipe, at, good, bad, reason } in all_spoilt() {
        let mut frame = recipe.build();
        frame[at] = good;
        recipe.seal(&mut frame);
        assert_eq!(fault(&mut bench, &frame), reason::NONE, "byte {at} is {good:02x}");
        frame[at] = bad;
        recipe.seal(&mut frame);
        assert_eq!(fault(&mut bench, &frame), reason, "byte {at} is {bad:02x}");
    }
}

#[test]
fn headers_that_the_frame_cuts_short_are_refused() {
    let mut bench = bench();
    let four = Recipe::send(0);
    let tagged = Recipe { vlan: Some(1), ..Recipe::send(0) };
    let six = Recipe { is_ipv6: true, ..tagged.clone() };
    for (recipe, ethernet, ip) in [(&four, 14, 34), (&tagged, 18, 38), (&six, 18, 58)] {
        let frame = recipe.build();
        assert_eq!(fault(&mut bench, &frame[..1]), reason::SHORT_ETHERNET);
        assert_eq!(fault(&mut bench, &frame[..ethernet - 1]), reason::SHORT_ETHERNET);
        assert_eq!(fault(&mut bench, &frame[..ethernet]), reason::IP_HEADER);
        assert_eq!(fault(&mut bench, &frame[..ip - 1]), reason::IP_HEADER);
        assert!(fault(&mut bench, &frame[..ip]) > reason::IP_LENGTH, "the end of the frame will tell");
    }
}

#[test]
fn lengths_are_tried_on_both_sides_of_their_bounds() {
    let mut bench = bench();
    let recipe = Recipe::send(0);
    let ipv4 = |total: u16, udp: u16| {
        let mut frame = recipe.build();
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        frame[38..40].copy_from_slice(&udp.to_be_bytes());
        recipe.seal(&mut frame);
        frame
    };
    assert_eq!(fault(&mut bench, &ipv4(19, 24)), reason::IP_HEADER);
    assert_eq!(fault(&mut bench, &ipv4(20, 24)), reason::UDP_HEADER);
    assert_eq!(fault(&mut bench, &ipv4(27, 24)), reason::UDP_HEADER);
    assert_eq!(fault(&mut bench, &ipv4(28, 8)), reason::UDP_LENGTH);
    assert_eq!(fault(&mut bench, &ipv4(43, 23)), reason::UDP_LENGTH);
    assert_eq!(fault(&mut bench, &ipv4(44, 24)), reason::NONE);
    assert_eq!(fault(&mut bench, &ipv4(45, 24)), reason::UDP_LENGTH);

    let six = Recipe { is_ipv6: true, ..Recipe::send(0) };
    let mut frame = six.build();
    frame[18..20].copy_from_slice(&[0, 7]);
    assert_eq!(fault(&mut bench, &frame), reason::UDP_HEADER);
    frame[18..20].copy_from_slice(&[0xff, 0xff]);
    frame[58..60].copy_from_slice(&[0xff, 0xff]);
    let (_, headers, coverage) = parse(&mut bench, &frame);
    assert_eq!(headers.fault.to_u64(), reason::NONE, "the end of the frame will tell");
    assert_eq!(coverage.last_byte.to_u64(), 0x1fff);
}

#[test]
fn a_pad_without_payload_is_a_length_fault() {
    let mut bench = bench();
    let recipe = Recipe::send(0).with_opcode(0x13, 28);
    let mut frame = recipe.build();
    assert_eq!(fault(&mut bench, &frame), reason::NONE);
    frame[recipe.bth() + 1] = 0x10;
    assert_eq!(fault(&mut bench, &frame), reason::HEADER_LENGTH);
}

/// Payloads of up to five bytes with pads of up to three, of which one in four is right, at every header length.
#[test]
fn a_pad_that_the_payload_does_not_need_is_seen() {
    let mut bench = bench();
    for (opcode, extended_bytes, is_ipv6) in
        [(0x04, 0, false), (0x05, 4, true), (0x0a, 16, false), (0x0b, 20, true), (0x13, 28, false)]
    {
        for payload_bytes in 0..6 {
            for pad in 0..4 {
                let plain = Recipe::send(payload_bytes + pad).with_opcode(opcode, extended_bytes);
                let recipe = Recipe { is_ipv6, ..plain };
                let mut frame = recipe.build();
                let surplus = (payload_bytes + pad).wrapping_neg() % 4;
                frame.truncate(frame.len() - surplus);
                let place = if is_ipv6 { recipe.ip() + 4 } else { recipe.ip() + 2 };
                for place in [place + 1, recipe.udp() + 5] {
                    frame[place] -= surplus as u8;
                }
                frame[recipe.bth() + 1] = (pad as u8) << 4;
                recipe.seal(&mut frame);
                let (token, headers, _) = parse(&mut bench, &frame);
                assert_eq!(headers.fault.to_u64(), reason::NONE);
                assert_eq!(token.payload_bytes.to_u64(), payload_bytes as u64);
                let is_right = pad == payload_bytes.wrapping_neg() % 4;
                assert_eq!(token.pad_mismatch, !is_right, "pad of {pad} for {payload_bytes} bytes");
            }
        }
    }
}

#[test]
fn any_single_bit_error_in_an_ipv4_header_is_seen() {
    let mut bench = bench();
    let recipe = Recipe::send(8);
    for bit in 0..160 {
        let mut frame = recipe.build();
        frame[recipe.ip() + bit / 8] ^= 1 << (bit % 8);
        assert_ne!(fault(&mut bench, &frame), reason::NONE, "bit {bit}");
    }
}

#[test]
fn a_checksum_with_any_number_of_carries_is_accepted() {
    let mut bench = bench();
    for (high, low) in [(0xff, 0xff), (0x00, 0x00), (0x80, 0x7f)] {
        let recipe = Recipe::send(0);
        let mut frame = recipe.build();
        frame[18..20].copy_from_slice(&[high, low]);
        frame[26..30].copy_from_slice(&[high, low, high, low]);
        frame[30..34].copy_from_slice(&[high, low, high, low]);
        recipe.seal(&mut frame);
        assert_eq!(fault(&mut bench, &frame), reason::NONE);
        frame[25] ^= 1;
        assert_eq!(fault(&mut bench, &frame), reason::IP_CHECKSUM);
    }
}

#[test]
fn the_filter_accepts_groups_and_other_addresses_when_it_is_set_to() {
    let mut bench = bench();
    let mut group = Recipe::send(0).build();
    group[..3].copy_from_slice(&[0x01, 0x00, 0x5e]);
    let mut stranger = Recipe::send(0).build();
    stranger[3] = 0x77;
    for (promiscuous, accept_multicast, group_fault, stranger_fault) in [
        (false, false, reason::DESTINATION_MAC, reason::DESTINATION_MAC),
        (false, true, reason::NONE, reason::DESTINATION_MAC),
        (true, false, reason::NONE, reason::NONE),
    ] {
        bench.block.promiscuous.next = promiscuous;
        bench.block.accept_multicast.next = accept_multicast;
        assert_eq!(fault(&mut bench, &group), group_fault);
        assert_eq!(fault(&mut bench, &stranger), stranger_fault);
    }
}

#[test]
fn one_header_a_cycle_gives_the_same_in_verilog() {
    let mut random = random();
    let mut bench = bench().in_lock_step();
    bench.block.promiscuous.next = true;
    let frames = frames();
    for index in 0..400 {
        let mut frame = frames[index % frames.len()].clone();
        frame.truncate(128);
        for _ in 0..random.random_range(0..3) {
            let at = random.random_range(12..frame.len());
            frame[at] ^= 1 << random.random_range(0..8);
        }
        offer(&mut bench, &frame);
        bench.block.header.valid.next = random.random();
        bench.tick();
    }
}
