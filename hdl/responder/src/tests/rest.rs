//! Receive entries while the card is to rest.
use crate::receive_entries::ReceiveEntries;
use crate::stages::{EntryRequest, ReceiveEntry};
use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_token::doorbell::WorkPosted;
use rnic_token::host::{HostSpan, Slot};
use rnic_token::path::Path;
use rnic_token::setup::{SetupEvent, SetupKind};

#[test]
fn entries_are_fetched_ahead_only_while_the_card_works() {
    let mut random = random();
    let mut bench = Bench::clocked(ReceiveEntries::new().unwrap(), |block| &mut block.clock).in_lock_step();
    let event = SetupEvent {
        kind: SetupKind::Restart,
        queue_pair: bits(5),
        state: bits(QpState::ReadyToSend as u64),
        generation: bits(9),
        path: Path { receive_entries_log2: bits(6), ..Path::default() },
        ..SetupEvent::default()
    };
    let mut setup = Source::of_tokens([event], Stalls::None);
    let mut requests = Source::of_tokens([], Stalls::None);
    let mut reads: Sink<HostSpan> = Sink::new(Stalls::None);
    let mut entries: Sink<ReceiveEntry> = Sink::new(Stalls::None);
    let mut slots = 0;
    // Behind the sweep the doorbell of 64 entries rings; at rest an entry is asked for; then the card works again.
    const RINGS: usize = 1_100;
    const ASKS: usize = 1_200;
    const WORKS: usize = 1_300;
    for cycle in 0..1_600 {
        let block = &mut bench.block;
        block.enable.next = cycle >= WORKS;
        block.receive_posted_valid.next = cycle == RINGS;
        block.receive_posted.next = WorkPosted { queue_pair: bits(5), producer_index: bits(64) };
        if cycle == ASKS || cycle == WORKS {
            let index = bits(u64::from(cycle == WORKS));
            requests.push(EntryRequest { queue_pair: bits(5), generation: bits(9), index });
        }
        setup.drive(&mut block.setup, &mut random);
        requests.drive(&mut block.request, &mut random);
        reads.drive(&mut block.receive_read, &mut random);
        entries.drive(&mut block.entry, &mut random);
        block.receive_slot_valid.next = slots > 0;
        block.receive_slot.next = Slot { last: slots % 8 == 1, ..Slot::default() };
        slots -= usize::from(slots > 0);
        bench.settle();
        let block = &bench.block;
        setup.sample(&block.setup);
        requests.sample(&block.request);
        entries.sample(&block.entry);
        if let Some(span) = reads.sample(&block.receive_read) {
            assert_eq!(span.length, 512u64, "a whole line");
            slots += 8;
        }
        match cycle {
            ASKS => assert_eq!(reads.received.len(), 0, "nobody has asked"),
            WORKS => assert_eq!((reads.received.len(), entries.received.len()), (1, 1)),
            _ => {}
        }
        bench.tick();
    }
    assert_eq!((reads.received.len(), entries.received.len()), (8, 2));
}
