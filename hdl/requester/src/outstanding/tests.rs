use super::*;
use crate::messages::{WqeCompletion, WqeKind};
use rand::Rng;
use rnic_blocks::bench::{Bench, Stimulus, random};
use std::collections::{HashMap, HashSet};

/// Random writes and reads of few words, so that they meet: each read sees what was written before its cycle.
#[test]
fn reads_see_the_writes_of_earlier_cycles() {
    let mut random = random();
    let mut bench = Bench::clocked(Outstanding::default(), |block| &mut block.clock).in_lock_step();
    bench.block.is_sweeping.next = true;
    for index in 0..1 << SHARED_BITS {
        bench.block.sweep_index.next = bits(index);
        bench.tick();
    }
    bench.block.is_sweeping.next = false;
    let (mut links, mut messages) = (HashMap::new(), HashMap::new());
    let (mut begun, mut issued, mut retired) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut taken: Vec<Bits<SHARED_BITS>> = Vec::new();
    let mut free: HashSet<u64> = (0..1 << SHARED_BITS).collect();
    for _ in 0..4000 {
        let block = &mut bench.block;
        let queue_pair = |random: &mut _| bits(0x3fe + Rng::random_range(random, 0..2));
        let place = |random: &mut _| bits(0x3fff - Rng::random_range(random, 0..16));
        block.link.next =
            Link { block: bits(0x7ff - random.random_range(0..3)), next: Stimulus::sample(&mut random) };
        block.link_valid.next = random.random();
        block.begun_queue_pair.next = queue_pair(&mut random);
        block.begun.next = Begun { count: Stimulus::sample(&mut random), is_held: random.random() };
        block.begun_valid.next = random.random();
        block.retired_queue_pair.next = queue_pair(&mut random);
        block.retired_read.next = true;
        block.message.next = OutstandingMessage {
            generation: Stimulus::sample(&mut random),
            last_psn: Stimulus::sample(&mut random),
            next_slot: Stimulus::sample(&mut random),
            is_open: random.random(),
            completion: WqeCompletion {
                has_wr_id: random.random(),
                wr_id: Stimulus::sample(&mut random),
                is_signalled: random.random(),
                status: Stimulus::sample(&mut random),
                reason: Stimulus::sample(&mut random),
            },
            kind: WqeKind {
                is_write: random.random(),
                is_read: random.random(),
                is_atomic: random.random(),
                is_compare: random.random(),
                is_local: random.random(),
            },
            length: Stimulus::sample(&mut random),
        };
        block.message_slot.next = place(&mut random);
        block.issued_queue_pair.next = queue_pair(&mut random);
        block.issued.next = Issued {
            count: Stimulus::sample(&mut random),
            reads: Stimulus::sample(&mut random),
            unsent_psn: Stimulus::sample(&mut random),
            next_psn: Stimulus::sample(&mut random),
            epoch: Stimulus::sample(&mut random),
            generation: Stimulus::sample(&mut random),
        };
        block.message_valid.next = random.random();
        block.issued_valid.next = random.random();
        block.queue_pair.next = queue_pair(&mut random);
        block.issued_read.next = true;
        block.begun_read.next = true;
        block.pool_slot.next = place(&mut random);
        block.retired_write_queue_pair.next = queue_pair(&mut random);
        block.retired_write.next = Retired {
            oldest_slot: Stimulus::sample(&mut random),
            oldest_psn: Stimulus::sample(&mut random),
            epoch: Stimulus::sample(&mut random),
            waits: random.random(),
            count: Stimulus::sample(&mut random),
            reads: Stimulus::sample(&mut random),
            home_lap: random.random(),
            una_psn: Stimulus::sample(&mut random),
        };
        block.retired_write_valid.next = random.random();
        block.free.ready.next = random.random_bool(0.5);
        block.freed_valid.next = !taken.is_empty() && random.random_bool(0.4);
        if block.freed_valid.next {
            block.freed.next = taken.swap_remove(random.random_range(0..taken.len()));
        }
        bench.settle();
        let block = &bench.block;
        if block.free.valid.val() && block.free.ready.val() {
            let number = block.free.beat.val();
            assert!(free.remove(&number.to_u64()), "block {number:?} is free");
            taken.push(number);
        }
        if block.freed_valid.val() {
            free.insert(block.freed.val().to_u64());
        }
        let place = block.pool_slot.val();
        let expected = (
            messages.get(&place.to_u64()).copied(),
            links.get(&(place.to_u64() >> 3)).copied(),
            begun.get(&block.queue_pair.val().to_u64()).copied().unwrap_or_default(),
            issued.get(&block.queue_pair.val().to_u64()).copied(),
            retired.get(&block.retired_queue_pair.val().to_u64()).copied().unwrap_or_default(),
        );
        if block.link_valid.val() {
            links.insert(block.link.val().block.to_u64(), block.link.val().next);
        }
        if block.begun_valid.val() {
            begun.insert(block.begun_queue_pair.val().to_u64(), block.begun.val());
        }
        if block.message_valid.val() {
            messages.insert(block.message_slot.val().to_u64(), block.message.val());
        }
        if block.issued_valid.val() {
            issued.insert(block.issued_queue_pair.val().to_u64(), block.issued.val());
        }
        if block.retired_write_valid.val() {
            retired.insert(block.retired_write_queue_pair.val().to_u64(), block.retired_write.val());
        }
        bench.tick();
        let block = &bench.block;
        if let Some(message) = expected.0 {
            assert_eq!(block.message_seen.val(), message);
        }
        if let Some(next) = expected.1 {
            assert_eq!(block.next_block.val(), next);
        }
        assert_eq!(block.begun_seen.val(), expected.2);
        match expected.3 {
            Some(issued) => assert_eq!(block.issued_seen.val(), issued),
            None => assert_eq!(block.issued_seen.val().count, 0),
        }
        assert_eq!(block.retired.val(), expected.4);
    }
    assert!(messages.len() == 16);
}
