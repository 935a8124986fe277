//! The level of each pool of each part of the card is read at the register of that pool, and at no other.
use rnic_blocks::bench::Bench;
use rnic_hdl::pool_levels::PoolLevels;
use rnic_kernel::prelude::*;
use rnic_layout::registers::POOLS;

/// Sets the level of a pool as its part reports it.
type Set = fn(&mut PoolLevels);

/// The level that a pool has in its turn.
const IN_USE: u64 = 0xa5c3;

/// The pools, in the order of their registers.
const PARTS: &[(&str, Set)] = &[
    ("host_read_tags", |card| card.host_reader.next.tags = bits(IN_USE)),
    ("host_read_words", |card| card.host_reader.next.words = bits(IN_USE)),
    ("host_read_late_tags", |card| card.host_reader.next.late_tags = bits(IN_USE)),
    ("host_writes", |card| card.host_writer.next.writes = bits(IN_USE)),
    ("request_cells", |card| card.receive.next.request_cells = bits(IN_USE)),
    ("request_packets", |card| card.receive.next.request_packets = bits(IN_USE)),
    ("response_beats", |card| card.receive.next.response_beats = bits(IN_USE)),
    ("response_packets", |card| card.receive.next.response_packets = bits(IN_USE)),
    ("responder_packets", |card| card.responder.next.packets = bits(IN_USE)),
    ("parked_packets", |card| card.responder.next.parked = bits(IN_USE)),
    ("receive_lines", |card| card.responder.next.prefetch.lines = bits(IN_USE)),
    ("receive_reads", |card| card.responder.next.prefetch.reads = bits(IN_USE)),
    ("receive_demands", |card| card.responder.next.prefetch.demands = bits(IN_USE)),
    ("replies", |card| card.responder.next.replies = bits(IN_USE)),
    ("read_turns", |card| card.responder.next.reads.turns = bits(IN_USE)),
    ("read_responses", |card| card.responder.next.read_responses = bits(IN_USE)),
    ("read_duplicates", |card| card.responder.next.reads.duplicates = bits(IN_USE)),
    ("atomics", |card| card.responder.next.atomics = bits(IN_USE)),
    ("atomics_executing", |card| card.responder.next.atomics_executing = bits(IN_USE)),
    ("send_queues", |card| card.requester.next.send_queues = bits(IN_USE)),
    ("wqe_slots", |card| card.requester.next.wqe_slots = bits(IN_USE)),
    ("wqe_bursts", |card| card.requester.next.wqe_bursts = bits(IN_USE)),
    ("send_line", |card| card.requester.next.send_line = bits(IN_USE)),
    ("messages", |card| card.requester.next.messages = bits(IN_USE)),
    ("message_blocks", |card| card.requester.next.message_blocks = bits(IN_USE)),
    ("long_messages", |card| card.requester.next.long_messages = bits(IN_USE)),
    ("long_turns", |card| card.requester.next.long_turns = bits(IN_USE)),
    ("responses", |card| card.requester.next.responses = bits(IN_USE)),
    ("completing", |card| card.requester.next.completing = bits(IN_USE)),
    ("gather_packets", |card| card.gather.next.packets = bits(IN_USE)),
    ("gather_beats", |card| card.gather.next.beats = bits(IN_USE)),
    ("inline_slots", |card| card.gather.next.inline_slots = bits(IN_USE)),
    ("place_packets", |card| card.place.next.packets = bits(IN_USE)),
    ("place_writes", |card| card.place.next.writes = bits(IN_USE)),
    ("place_failures", |card| card.place.next.failures = bits(IN_USE)),
    ("completions", |card| card.complete.next.deliveries = bits(IN_USE)),
    ("completion_writes", |card| card.complete.next.writes = bits(IN_USE)),
    ("events", |card| card.complete.next.events = bits(IN_USE)),
    ("refused_completions", |card| card.complete.next.refusals = bits(IN_USE)),
    ("commands", |card| card.control.next.commands = bits(IN_USE)),
    ("read_slots", |card| card.control.next.slots.read_slots = bits(IN_USE)),
    ("destination_read_slots", |card| card.control.next.slots.destination_read_slots = bits(IN_USE)),
];

#[test]
fn each_level_is_read_at_its_pool() {
    assert!(PARTS.iter().map(|part| part.0).eq(POOLS.iter().map(|pool| pool.name)));
    let mut bench = Bench::clocked(PoolLevels::default(), |block| &mut block.clock).in_lock_step();
    for (index, (name, set)) in PARTS.iter().enumerate() {
        let block = &mut bench.block;
        block.host_reader.next = Default::default();
        block.host_writer.next = Default::default();
        block.receive.next = Default::default();
        block.responder.next = Default::default();
        block.requester.next = Default::default();
        block.gather.next = Default::default();
        block.place.next = Default::default();
        block.complete.next = Default::default();
        block.control.next = Default::default();
        set(block);
        for read in 0..64 {
            bench.block.index.next = bits(read);
            bench.tick();
            let expected = if read == index as u64 { IN_USE } else { 0 };
            assert_eq!(bench.block.value.val(), bits(expected), "{name}, read as pool {read}");
        }
    }
}
