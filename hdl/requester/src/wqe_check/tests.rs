use super::*;
use crate::messages::{SegmentPlan, WqeHeader, WqeKind};
use crate::testing::{random_atomic, random_wqe, slot_bits};
use crate::vendor_error;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, random};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::send::{SIGNALLED, SOLICITED, TWO_SLOTS, Wqe, sges};
use rnic_layout::state::Service;

/// The tail of a WQE whose second SGE is this one.
pub(crate) fn tail(sge: Sge) -> WqeTail {
    WqeTail { bytes: cat!(sge.length, sge.key, sge.address) }
}

/// What becomes of one WQE.
pub(crate) struct Expected {
    pub(crate) checked: CheckedWqe,
    pub(crate) inline: Vec<Bits<SLOT_BITS>>,
    /// SGEs after the first, if there are more than two.
    pub(crate) listed: Vec<Sge>,
}

fn random_item(random: &mut Random) -> (ParsedWqe, [[u8; 64]; 2]) {
    let wqe = if random.random_bool(0.2) { random_atomic(random) } else { random_wqe(random) };
    let has_two = wqe[0][1] & TWO_SLOTS != 0;
    let reason = match random.random_range(0..20) {
        0 => vendor_error::UNREADABLE,
        1 if has_two => vendor_error::HALF_WQE,
        2 => vendor_error::OVERRUN,
        _ => 0,
    };
    let item = ParsedWqe {
        skipped_packets: bits(0),
        header: WqeHeader {
            epoch: bits(5),
            is_replay: false,
            queue_pair: Stimulus::sample(random),
            generation: Stimulus::sample(random),
            is_empty: random.random_bool(0.05),
            is_first: random.random(),
            ends_burst: random.random(),
            is_open: wqe[0][0] == 4 && random.random_bool(0.9),
            last_psn: Stimulus::sample(random),
            pool_slot: Stimulus::sample(random),
            message_count: Stimulus::sample(random),
            next_slot: Stimulus::sample(random),
        },
        plan: SegmentPlan {
            is_continued: true,
            first_psn: Stimulus::sample(random),
            is_long: random.random(),
            charge: Stimulus::sample(random),
            read_place: Stimulus::sample(random),
            path_mtu: Stimulus::sample(random),
            domain: Stimulus::sample(random),
        },
        needs_ack: random.random(),
        two_slots: has_two && reason == 0,
        is_flushed: random.random_bool(0.05),
        reason: bits(reason),
        signal_all: random.random_bool(0.2),
        is_reliable: random.random_bool(0.95),
        first: slot_bits(&wqe[0]),
        second: slot_bits(&wqe[1]),
    };
    (item, wqe)
}

pub(crate) fn judge(item: &ParsedWqe, wqe: &[[u8; 64]; 2]) -> Expected {
    let [first, second] = wqe;
    let slots = [&first[..], &second[..]].concat();
    let is_known = first[0] < 8 || first[0] == 9;
    let is_write = first[0] < 2;
    let is_atomic = (5..7).contains(&first[0]);
    let is_read = first[0] == 4 || is_atomic;
    let parsed = Wqe::parse(Service::ReliableConnected, if item.two_slots { &slots } else { first });
    let length = u32::from_le_bytes(first[28..32].try_into().unwrap());
    let filled: Vec<_> = sges(&slots, first[2] & 15).filter(|sge| sge.length != 0).collect();
    let operation = CompletionStatus::LocalQueuePairOperation;
    let inline = matches!(parsed, Ok(Wqe::Message(work)) if work.inline);
    let (status, reason) = if item.is_flushed {
        (CompletionStatus::Flushed, 0)
    } else if item.reason != 0 {
        (operation, item.reason.to_u64())
    } else if !is_known || !item.is_reliable || (is_read && !item.header.is_open) {
        (operation, vendor_error::MALFORMED)
    } else {
        match parsed {
            Err(error) => (error.status(), vendor_error::MALFORMED),
            Ok(_) => (CompletionStatus::Success, 0),
        }
    };
    let is_sent = status == CompletionStatus::Success && !item.header.is_empty;
    let inline_count = if !is_sent || !inline || length == 0 { 0 } else { 1 + usize::from(length > 32) };
    let is_signalled = first[1] & SIGNALLED != 0 || item.signal_all;
    let has_immediate = first[0] < 4 && first[0] % 2 == 1;
    let mut remote = Vec::new();
    if is_write || is_read {
        remote.extend(u64::from_le_bytes(first[16..24].try_into().unwrap()).to_be_bytes());
        remote.extend(u32::from_le_bytes(first[24..28].try_into().unwrap()).to_be_bytes());
        remote.extend(length.to_be_bytes());
    }
    let immediate = u32::from_le_bytes(first[4..8].try_into().unwrap());
    let wr_id = u64::from_le_bytes(first[8..16].try_into().unwrap());
    let has_wr_id = [0, vendor_error::HALF_WQE].contains(&item.reason.to_u64());
    let sge = |index: usize| match filled.get(index) {
        Some(sge) if is_sent && !inline => Sge {
            key: bits(sge.local_key.into()),
            address: bits(sge.address),
            length: bits(sge.length.into()),
        },
        _ => Sge::default(),
    };
    // Operands are where a second SGE would be.
    let operands = WqeTail { bytes: num_bigint::BigUint::from_bytes_le(&first[48..]).into() };
    let checked = CheckedWqe {
        header: item.header,
        plan: item.plan,
        completion: WqeCompletion {
            has_wr_id,
            wr_id: bits(if has_wr_id { wr_id } else { 0 }),
            is_signalled,
            status: bits(status as u64),
            reason: bits(reason),
        },
        kind: WqeKind { is_write, is_read, is_atomic, is_compare: first[0] == 5, is_local: first[0] == 7 },
        has_immediate,
        with_invalidate: first[0] == 9,
        solicited: first[1] & SOLICITED != 0 && first[0] != 0 && !is_read,
        ack_request: is_signalled || item.needs_ack || is_read,
        immediate_or_key: bits(match first[0] {
            // A key: as a number, or as on the wire.
            7 => immediate.into(),
            9 => immediate.swap_bytes().into(),
            _ if has_immediate => immediate.into(),
            _ => 0,
        }),
        reth: num_bigint::BigUint::from_bytes_le(&remote).into(),
        length: bits(length.into()),
        inline_count: bits(inline_count as u64),
        first: sge(0),
        tail: if is_atomic && is_sent { operands } else { tail(sge(1)) },
        listed_count: bits(if is_sent && filled.len() > 2 { filled.len() as u64 - 1 } else { 0 }),
    };
    let listed = (0..checked.listed_count.to_u64()).map(|index| sge(1 + index as usize)).collect();
    let inline = [item.first, item.second][..inline_count].to_vec();
    Expected { checked, inline, listed }
}

#[test]
fn every_wqe_gets_the_status_of_the_model() {
    let mut random = random();
    let mut statuses = std::collections::BTreeMap::new();
    let mut lists = [0; 6];
    for stalls in Stalls::ALL {
        let items: Vec<_> = (0..700).map(|_| random_item(&mut random)).collect();
        let expected: Vec<_> = items.iter().map(|(item, wqe)| judge(item, wqe)).collect();
        let mut bench = Bench::clocked(WqeCheck::default(), |block| &mut block.clock).in_lock_step();
        let mut source = Source::of_tokens(items.iter().map(|(item, _)| *item), stalls);
        let (mut checked, mut inline) = (Sink::new(stalls), Sink::new(stalls));
        let (mut listed, mut claimed) = (Sink::new(stalls), 0);
        for _ in 0..60_000 {
            source.drive(&mut bench.block.parsed, &mut random);
            checked.drive(&mut bench.block.checked, &mut random);
            inline.drive(&mut bench.block.inline_data, &mut random);
            listed.drive(&mut bench.block.listed_sges, &mut random);
            bench.settle();
            source.sample(&bench.block.parsed);
            inline.sample(&bench.block.inline_data);
            listed.sample(&bench.block.listed_sges);
            if let Some(mut seen) = checked.sample(&bench.block.checked) {
                let number = checked.received.len() - 1;
                let list = &expected[number].listed;
                let expected = &expected[number].checked;
                if seen.header.is_empty {
                    (seen.completion.status, seen.completion.reason) =
                        (expected.completion.status, expected.completion.reason);
                }
                *statuses
                    .entry((seen.completion.status.to_u64(), seen.completion.reason.to_u64()))
                    .or_insert(0) += 1;
                // Of a WQE that is not sent, only this counts; but its list leaves all the same, before it.
                let given = listed.received.len() - claimed;
                assert_eq!(given as u64, seen.listed_count.to_u64(), "item {number}");
                claimed += given;
                if seen.header.is_empty || seen.completion.status != CompletionStatus::Success as u64 {
                    seen.listed_count = expected.listed_count;
                    seen.solicited = expected.solicited;
                    (seen.immediate_or_key, seen.reth) = (expected.immediate_or_key, expected.reth);
                    (seen.kind.is_write, seen.has_immediate) =
                        (expected.kind.is_write, expected.has_immediate);
                    (seen.first, seen.tail) = (expected.first, expected.tail);
                } else {
                    assert_eq!(listed.received[claimed - given..], list[..], "item {number}");
                    lists[given] += 1;
                    if given > 0 {
                        seen.tail = expected.tail;
                    }
                }
                // Key and address of an SGE without bytes do not count.
                if seen.first.length == 0 {
                    (seen.first.key, seen.first.address) = (expected.first.key, expected.first.address);
                }
                let second = second_sge(seen.tail);
                if second.length == 0 {
                    let Sge { key, address, .. } = second_sge(expected.tail);
                    seen.tail = tail(Sge { key, address, ..second });
                }
                assert_eq!(seen, *expected, "item {number}: {:02x?}", items[number]);
            }
            bench.tick();
            if checked.received.len() == items.len() && source.is_done() {
                break;
            }
        }
        assert!(source.is_done());
        assert_eq!(inline.received, expected.iter().flat_map(|item| item.inline.clone()).collect::<Vec<_>>());
    }
    println!("{statuses:?}, lists {lists:?}");
    assert!(lists[1] == 0 && lists[2..].iter().all(|&count| count > 3), "{lists:?}");
    assert!(statuses.len() >= 7 && statuses.values().all(|&count| count > 3), "{statuses:?}");
}
