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
    bench.block.sweep.next.is_sweeping = true;
    for index in 0..1 << SHARED_BITS {
        bench.block.sweep.next.index = bits(index);
        bench.tick();
    }
    bench.block.sweep.next.is_sweeping = false;
    let (mut links, mut messages) = (HashMap::new(), HashMap::new());
    let (mut begun, mut issued, mut retired) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut taken: Vec<Bits<SHARED_BITS>> = Vec::new();
    let mut free: HashSet<u64> = (0..1 << SHARED_BITS).collect();
    for _ in 0..4000 {
        let block = &mut bench.block;
        let queue_pair = |random: &mut _| bits(0x3fe + Rng::random_range(random, 0..2));
        let place = |random: &mut _| bits(0x3fff - Rng::random_range(random, 0..16));
        block.link.value.next =
            Link { block: bits(0x7ff - random.random_range(0..3)), next: Stimulus::sample(&mut random) };
        block.link.valid.next = random.random();
        block.begun.next.queue_pair = queue_pair(&mut random);
        block.begun.next.begun = Begun { count: Stimulus::sample(&mut random), is_held: random.random() };
        block.begun.next.valid = random.random();
        block.retired_read.next = RetiredRead { queue_pair: queue_pair(&mut random), valid: true };
        block.message.next.message = OutstandingMessage {
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
        block.message.next.pool_slot = place(&mut random);
        block.issued.next.queue_pair = queue_pair(&mut random);
        block.issued.next.issued = Issued {
            count: Stimulus::sample(&mut random),
            reads: Stimulus::sample(&mut random),
            unsent_psn: Stimulus::sample(&mut random),
            next_psn: Stimulus::sample(&mut random),
            epoch: Stimulus::sample(&mut random),
            generation: Stimulus::sample(&mut random),
        };
        block.message.next.valid = random.random();
        block.issued.next.valid = random.random();
        block.pool_read.next = PoolRead {
            queue_pair: queue_pair(&mut random),
            reads_issued: true,
            reads_begun: true,
            pool_slot: place(&mut random),
        };
        block.retired_write.next.queue_pair = queue_pair(&mut random);
        block.retired_write.next.retired = Retired {
            oldest_slot: Stimulus::sample(&mut random),
            oldest_psn: Stimulus::sample(&mut random),
            epoch: Stimulus::sample(&mut random),
            waits: random.random(),
            has_failed: random.random(),
            count: Stimulus::sample(&mut random),
            reads: Stimulus::sample(&mut random),
            home_lap: random.random(),
            una_psn: Stimulus::sample(&mut random),
        };
        block.retired_write.next.valid = random.random();
        block.free.ready.next = random.random_bool(0.5);
        block.freed.valid.next = !taken.is_empty() && random.random_bool(0.4);
        if block.freed.valid.next {
            block.freed.value.next = taken.swap_remove(random.random_range(0..taken.len()));
        }
        bench.settle();
        let block = &bench.block;
        if block.free.valid.val() && block.free.ready.val() {
            let number = block.free.beat.val();
            assert!(free.remove(&number.to_u64()), "block {number:?} is free");
            taken.push(number);
        }
        if block.freed.valid.val() {
            free.insert(block.freed.value.val().to_u64());
        }
        let PoolRead { queue_pair: asked, pool_slot: place, .. } = block.pool_read.val();
        let expected = (
            messages.get(&place.to_u64()).copied(),
            links.get(&(place.to_u64() >> 3)).copied(),
            begun.get(&asked.to_u64()).copied().unwrap_or_default(),
            issued.get(&asked.to_u64()).copied(),
            retired.get(&block.retired_read.val().queue_pair.to_u64()).copied().unwrap_or_default(),
        );
        if block.link.valid.val() {
            links.insert(block.link.value.val().block.to_u64(), block.link.value.val().next);
        }
        let written = block.begun.val();
        if written.valid {
            begun.insert(written.queue_pair.to_u64(), written.begun);
        }
        let written = block.message.val();
        if written.valid {
            messages.insert(written.pool_slot.to_u64(), written.message);
        }
        let written = block.issued.val();
        if written.valid {
            issued.insert(written.queue_pair.to_u64(), written.issued);
        }
        let written = block.retired_write.val();
        if written.valid {
            retired.insert(written.queue_pair.to_u64(), written.retired);
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
