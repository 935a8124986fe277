use super::*;
use crate::testing::{random_entry, slot_bits};
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, random};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::send::{SIGNALLED, SOLICITED, TWO_SLOTS, Work, elements};
use rnic_layout::state::{PathMtu, Service};

/// What becomes of one item.
pub(crate) struct Expected {
    pub(crate) checked: CheckedItem,
    pub(crate) requests: Vec<AccessRequest>,
    pub(crate) inline: Vec<Bits<SLOT_BITS>>,
}

fn random_item(random: &mut Random) -> (WorkItem, [[u8; 64]; 2]) {
    let entry = random_entry(random);
    let has_two = entry[0][1] & TWO_SLOTS != 0;
    let reason = match random.random_range(0..20) {
        0 => crate::numbers::REASON_UNREADABLE,
        1 if has_two => crate::numbers::REASON_HALF_ENTRY,
        2 => crate::numbers::REASON_OVERRUN,
        _ => 0,
    };
    let item = WorkItem {
        queue_pair: Stimulus::sample(random),
        generation: Stimulus::sample(random),
        is_empty: random.random_bool(0.05),
        is_first: random.random(),
        ends_burst: random.random(),
        psn: Stimulus::sample(random),
        place: Stimulus::sample(random),
        message_count: Stimulus::sample(random),
        next_slot: Stimulus::sample(random),
        asks: random.random(),
        two_slots: has_two && reason == 0,
        is_flushed: random.random_bool(0.05),
        reason: bits(reason),
        signal_all: random.random_bool(0.2),
        is_reliable: random.random_bool(0.95),
        path_mtu: bits(random.random_range(PMTU_256..=PathMtu::Bytes4096 as u64)),
        domain: Stimulus::sample(random),
        first: slot_bits(&entry[0]),
        second: slot_bits(&entry[1]),
    };
    (item, entry)
}

pub(crate) fn judge(item: &WorkItem, entry: &[[u8; 64]; 2]) -> Expected {
    let [first, second] = entry;
    let slots = [&first[..], &second[..]].concat();
    let is_readable = item.reason == 0 && !item.is_flushed && !item.is_empty;
    let is_known = first[0] < 4;
    let is_write = first[0] < 2;
    let parsed = Work::parse(Service::ReliableConnected, if item.two_slots { &slots } else { first });
    let length = u32::from_le_bytes(first[28..32].try_into().unwrap());
    let pmtu = 128u32 << item.path_mtu.to_u64();
    let filled: Vec<_> = elements(&slots, first[2] & 15).filter(|element| element.length != 0).collect();
    let operation = CompletionStatus::LocalQueuePairOperation;
    let inline = matches!(parsed, Ok(Work::Message(work)) if work.inline);
    let (status, reason) = if item.is_flushed {
        (CompletionStatus::Flushed, 0)
    } else if item.reason != 0 {
        (operation, item.reason.to_u64())
    } else if !is_known || !item.is_reliable {
        (operation, REASON_MALFORMED)
    } else {
        match parsed {
            Err(error) => (error.status(), REASON_MALFORMED),
            Ok(_) if length > pmtu => (operation, REASON_LONGER_THAN_PACKET),
            Ok(_) if filled.len() > 2 => (operation, REASON_ELEMENTS),
            Ok(_) => (CompletionStatus::Success, 0),
        }
    };
    // Keys are asked for as soon as nothing but lengths can be wrong.
    let room = if item.two_slots { 6 } else { 2 };
    let is_walked = is_readable
        && is_known
        && item.is_reliable
        && first[1] >> 5 == 0
        && first[2] >> 4 == 0
        && first[3] == 0
        && first[1] & rnic_layout::queue::send::INLINE == 0
        && first[2] <= room;
    let asked = filled.iter().take(if is_walked { 2 } else { 0 });
    let requests: Vec<_> = asked
        .map(|element| AccessRequest {
            key: bits(element.local_key.into()),
            domain: item.domain,
            address: bits(element.address),
            length: bits(element.length.into()),
            ..AccessRequest::default()
        })
        .collect();
    let is_sent = status == CompletionStatus::Success && !item.is_empty;
    let inline_count = if !is_sent || !inline || length == 0 { 0 } else { 1 + usize::from(length > 32) };
    let is_signalled = first[1] & SIGNALLED != 0 || item.signal_all;
    let has_immediate = first[0] % 2 == 1;
    let mut extended = Vec::new();
    if is_write {
        extended.extend(u64::from_le_bytes(first[16..24].try_into().unwrap()).to_be_bytes());
        extended.extend(u32::from_le_bytes(first[24..28].try_into().unwrap()).to_be_bytes());
        extended.extend(length.to_be_bytes());
    }
    if has_immediate {
        extended.extend(&first[4..8]);
    }
    let tag = u64::from_le_bytes(first[8..16].try_into().unwrap());
    let has_tag = [0, crate::numbers::REASON_HALF_ENTRY].contains(&item.reason.to_u64());
    let byte_count =
        |index: usize| bits(requests.get(index).map_or(0, |request| request.length.to_u64() & 0x1fff));
    let checked = CheckedItem {
        queue_pair: item.queue_pair,
        generation: item.generation,
        is_empty: item.is_empty,
        is_first: item.is_first,
        ends_burst: item.ends_burst,
        psn: item.psn,
        place: item.place,
        message_count: item.message_count,
        next_slot: item.next_slot,
        has_tag,
        tag: bits(if has_tag { tag } else { 0 }),
        status: bits(status as u64),
        reason: bits(reason),
        is_signalled,
        is_write,
        opcode: bits(match first[0] {
            0 => WRITE_ONLY,
            1 => WRITE_ONLY_IMMEDIATE,
            2 => SEND_ONLY,
            _ => SEND_ONLY_IMMEDIATE,
        }),
        solicited: first[1] & SOLICITED != 0 && first[0] != 0,
        ack_request: is_signalled || item.asks,
        extended: num_bigint::BigUint::from_bytes_le(&extended).into(),
        payload_bytes: bits((length & 0x1fff).into()),
        inline_count: bits(inline_count as u64),
        first_length: byte_count(0),
        second_length: byte_count(1),
        request_count: bits(requests.len() as u64),
    };
    let inline = [item.first, item.second][..inline_count].to_vec();
    Expected { checked, requests, inline }
}

#[test]
fn every_entry_gets_the_verdict_of_the_table() {
    let mut random = random();
    let mut statuses = std::collections::BTreeMap::new();
    for stalls in Stalls::ALL {
        let items: Vec<_> = (0..700).map(|_| random_item(&mut random)).collect();
        let expected: Vec<_> = items.iter().map(|(item, entry)| judge(item, entry)).collect();
        let mut bench = Bench::clocked(Authorize::default(), |block| &mut block.clock).in_lock_step();
        let mut source = Source::of_tokens(items.iter().map(|(item, _)| *item), stalls);
        let (mut checked, mut requests) = (Sink::new(stalls), Sink::new(stalls));
        let mut inline = Sink::new(stalls);
        for _ in 0..60_000 {
            source.drive(&mut bench.block.item, &mut random);
            checked.drive(&mut bench.block.checked, &mut random);
            requests.drive(&mut bench.block.access_request, &mut random);
            inline.drive(&mut bench.block.inline_data, &mut random);
            bench.settle();
            source.sample(&bench.block.item);
            requests.sample(&bench.block.access_request);
            inline.sample(&bench.block.inline_data);
            if let Some(mut seen) = checked.sample(&bench.block.checked) {
                let number = checked.received.len() - 1;
                let expected = &expected[number].checked;
                if seen.is_empty {
                    (seen.status, seen.reason) = (expected.status, expected.reason);
                }
                *statuses.entry((seen.status.to_u64(), seen.reason.to_u64())).or_insert(0) += 1;
                // Of what is not sent, only this counts.
                if seen.is_empty || seen.status != SUCCESS {
                    seen.opcode = expected.opcode;
                    seen.solicited = expected.solicited;
                    seen.extended = expected.extended;
                    seen.is_write = expected.is_write;
                }
                if seen.request_count < 2 {
                    seen.second_length = expected.second_length;
                }
                if seen.request_count == 0 {
                    seen.first_length = expected.first_length;
                }
                assert_eq!(seen, *expected, "item {number}: {:02x?}", items[number]);
            }
            bench.tick();
            if checked.received.len() == items.len() && source.is_done() {
                break;
            }
        }
        assert!(source.is_done());
        assert_eq!(
            requests.received,
            expected.iter().flat_map(|item| item.requests.clone()).collect::<Vec<_>>()
        );
        assert_eq!(inline.received, expected.iter().flat_map(|item| item.inline.clone()).collect::<Vec<_>>());
    }
    println!("{statuses:?}");
    assert!(statuses.len() >= 9 && statuses.values().all(|&count| count > 3), "{statuses:?}");
}
