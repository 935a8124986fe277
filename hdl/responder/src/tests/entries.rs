//! The receive entries alone: where the free-running index of a ring begins anew, since the whole responder takes too long to
//! get there, and where one read of a line fails and the next does not.
use crate::receive_entries::ReceiveEntries;
use crate::stages::{EntryRequest, ReceiveEntry};
use num_bigint::BigUint;
use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_token::doorbell::WorkPosted;
use rnic_token::host::{HostSpan, Slot};
use rnic_token::path::Path;
use rnic_token::setup::{SetupEvent, SetupKind};
use std::collections::VecDeque;

const QUEUE_PAIR: u64 = 0x155;
const RING: u64 = 0x40_0000;
const ENTRIES: usize = 64;

fn entries_alone() -> Bench<ReceiveEntries> {
    let mut bench = Bench::clocked(ReceiveEntries::new().unwrap(), |block| &mut block.clock).in_lock_step();
    bench.block.enable.next = true;
    bench
}

fn restart() -> SetupEvent {
    SetupEvent {
        kind: SetupKind::Restart,
        queue_pair: bits(QUEUE_PAIR),
        state: bits(QpState::ReadyToSend as u64),
        generation: bits(9),
        path: Path {
            receive_base_page: bits(RING >> 12),
            receive_entries_log2: bits(ENTRIES.ilog2().into()),
            ..Path::default()
        },
        ..SetupEvent::default()
    }
}

fn asks(index: u16) -> EntryRequest {
    EntryRequest { queue_pair: bits(QUEUE_PAIR), generation: bits(9), index: bits(index.into()) }
}

#[test]
fn entries_are_the_right_ones_where_their_index_wraps() {
    let mut random = random();
    let mut bench = entries_alone();
    let mut setup = Source::of_tokens([restart()], Stalls::None);
    let mut requests = Source::of_tokens([], Stalls::Both);
    let mut reads: Sink<HostSpan> = Sink::new(Stalls::Both);
    let mut entries: Sink<ReceiveEntry> = Sink::new(Stalls::Both);
    let mut slots = VecDeque::new();
    // Each entry holds its index. The index goes ahead in leaps, and slowly where it wraps.
    let mut memory = [0u16; ENTRIES];
    let indices: Vec<u16> = [0x3ff0u16, 0x7fe0, 0xbfd0, 0xff90]
        .into_iter()
        .flat_map(|from| (0..if from == 0xff90 { 200 } else { 4 }).map(move |ahead| from.wrapping_add(ahead)))
        .collect();
    let (mut posted, mut asked) = (0, 0);
    for cycle in 0..6_000 {
        let done = entries.received.len();
        if done == indices.len() {
            break;
        }
        // Entries are posted in their order, a few at a time, and asked for once they are.
        let leap = |at: usize| at > 0 && indices[at] != indices[at - 1].wrapping_add(1);
        let mut rings = None;
        if setup.is_done() && cycle % 9 == 0 && posted < indices.len() && posted < done + ENTRIES {
            let end = (posted + 1 + cycle % 11).min(indices.len()).min(done + ENTRIES);
            let end = (posted + 1..end).find(|&at| leap(at)).unwrap_or(end);
            if !leap(posted) || done == posted {
                (posted..end).for_each(|at| memory[usize::from(indices[at]) % ENTRIES] = indices[at]);
                posted = end;
                rings = Some(indices[end - 1].wrapping_add(1));
            }
        }
        while asked < posted && rings.is_none() {
            requests.push(asks(indices[asked]));
            asked += 1;
        }
        let block = &mut bench.block;
        setup.drive(&mut block.setup, &mut random);
        requests.drive(&mut block.request, &mut random);
        reads.drive(&mut block.receive_read, &mut random);
        entries.drive(&mut block.entry, &mut random);
        block.receive_posted_valid.next = rings.is_some();
        block.receive_posted.next =
            WorkPosted { queue_pair: bits(QUEUE_PAIR), producer_index: bits(rings.unwrap_or(0).into()) };
        let slot = slots.pop_front();
        block.receive_slot_valid.next = slot.is_some();
        block.receive_slot.next = slot.unwrap_or_default();
        bench.settle();
        let block = &bench.block;
        setup.sample(&block.setup);
        requests.sample(&block.request);
        entries.sample(&block.entry);
        if let Some(span) = reads.sample(&block.receive_read) {
            let (first, count) = ((span.address.to_u64() - RING) / 64, span.length.to_u64() / 64);
            slots.extend((0..count).map(|ahead| Slot {
                data: BigUint::from(memory[(first + ahead) as usize]).into(),
                last: ahead + 1 == count,
                error: false,
            }));
        }
        bench.tick();
    }
    let received: Vec<_> =
        entries.received.iter().map(|entry| entry.data.get_bits::<16>(0).to_u64()).collect();
    assert_eq!(received, indices.iter().map(|&index| index.into()).collect::<Vec<u64>>());
    assert!(entries.received.iter().all(|entry| !entry.error && !entry.is_stale));
}

/// The three entries that are posted first are read in vain; the five behind them, which end the line, are not.
#[test]
fn a_failed_read_is_not_hidden_by_the_one_behind_it() {
    let mut random = random();
    let mut bench = entries_alone();
    let mut setup = Source::of_tokens([restart()], Stalls::None);
    let mut requests = Source::of_tokens([], Stalls::None);
    let mut reads: Sink<HostSpan> = Sink::new(Stalls::None);
    let mut entries: Sink<ReceiveEntry> = Sink::new(Stalls::None);
    let mut slots = VecDeque::new();
    for cycle in 0..1_400 {
        if cycle == 1_200 {
            (0..8).for_each(|index| requests.push(asks(index)));
        }
        let rings = match cycle {
            1_100 => Some(3),
            1_150 => Some(8),
            _ => None,
        };
        let block = &mut bench.block;
        setup.drive(&mut block.setup, &mut random);
        requests.drive(&mut block.request, &mut random);
        reads.drive(&mut block.receive_read, &mut random);
        entries.drive(&mut block.entry, &mut random);
        block.receive_posted_valid.next = rings.is_some();
        block.receive_posted.next =
            WorkPosted { queue_pair: bits(QUEUE_PAIR), producer_index: bits(rings.unwrap_or(0)) };
        let slot = slots.pop_front();
        block.receive_slot_valid.next = slot.is_some();
        block.receive_slot.next = slot.unwrap_or_default();
        bench.settle();
        let block = &bench.block;
        setup.sample(&block.setup);
        requests.sample(&block.request);
        entries.sample(&block.entry);
        if let Some(span) = reads.sample(&block.receive_read) {
            let (first, count) = ((span.address.to_u64() - RING) / 64, span.length.to_u64() / 64);
            let error = reads.received.len() == 1;
            slots.extend((0..count).map(|ahead| Slot {
                data: bits(if error { 0xdead } else { first + ahead }),
                last: ahead + 1 == count,
                error,
            }));
        }
        bench.tick();
    }
    assert!(reads.received.len() > 1 && reads.received[0].length == bits(3 * 64));
    assert_eq!(entries.received.len(), 8);
    for (index, entry) in entries.received.iter().enumerate() {
        assert!(entry.error || entry.data == bits(index as u64), "entry {index} is not what the host has");
        assert!(index < 3 || !entry.error, "entry {index} was read well");
    }
}
