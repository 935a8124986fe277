use super::*;
use rand::Rng;
use rnic_blocks::bench::{Bench, Source, Stalls, Stimulus, random};

#[test]
fn every_slot_is_shown_once_with_its_successor() {
    let mut random = random();
    for stalls in Stalls::ALL {
        let (mut bursts, mut slots, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..80 {
            let burst = WqeBurst {
                queue_pair: Stimulus::sample(&mut random),
                generation: Stimulus::sample(&mut random),
                first_index: Stimulus::sample(&mut random),
                count: bits(random.random_range(1..=8)),
                lap: Stimulus::sample(&mut random),
                ends_queue: random.random(),
                is_overrun: random.random_bool(0.1),
            };
            bursts.push(burst);
            let count = if burst.is_overrun { 1 } else { burst.count.to_u64() };
            let first = slots.len();
            let mut error = false;
            for position in 0..count {
                error |= random.random_bool(0.1);
                let slot = Slot { data: Stimulus::sample(&mut random), last: position + 1 == count, error };
                if !burst.is_overrun {
                    slots.push(slot);
                }
                expected.push(WqeSlot {
                    queue_pair: burst.queue_pair,
                    generation: burst.generation,
                    index: burst.first_index + position,
                    lap: burst.lap,
                    has_second: position + 1 < count,
                    ends_queue: burst.ends_queue && position + 1 == count,
                    ends_burst: position + 1 == count,
                    is_overrun: burst.is_overrun,
                    is_unreadable: false,
                    first: slot.data,
                    second: bits(0),
                });
            }
            let shown = expected.len() - count as usize;
            for position in 0..slots.len() - first {
                let slot = slots[first + position];
                let expected = &mut expected[shown + position];
                expected.is_unreadable = slot.error;
                if let Some(second) = slots.get(first + position + 1) {
                    expected.second = second.data;
                    expected.is_unreadable |= second.error && slot.data.get_bit(TWO_SLOTS);
                }
            }
        }
        let mut bench = Bench::clocked(WqePair::default(), |block| &mut block.clock).in_lock_step();
        let mut burst_source = Source::of_tokens(bursts, stalls);
        let mut slot_source = Source::of_tokens(slots.clone(), stalls);
        let (mut shown_count, mut slot_returned) = (0, 0);
        for _ in 0..20_000 {
            burst_source.drive(&mut bench.block.bursts, &mut random);
            slot_source.drive(&mut bench.block.slots, &mut random);
            bench.block.wqe_slot.ready.next = !stalls.sink() || random.random();
            bench.settle();
            burst_source.sample(&bench.block.bursts);
            assert_eq!(slot_source.sample(&bench.block.slots), bench.block.slot_returned.val());
            slot_returned += usize::from(bench.block.slot_returned.val());
            if bench.block.wqe_slot.valid.val() {
                let mut shown = bench.block.wqe_slot.beat.val();
                let expected = expected[shown_count];
                shown_count += usize::from(bench.block.wqe_slot.ready.val());
                if !shown.has_second {
                    shown.second = expected.second;
                }
                if shown.is_overrun {
                    (shown.first, shown.is_unreadable) = (expected.first, expected.is_unreadable);
                    shown.ends_queue = expected.ends_queue;
                }
                assert_eq!(shown, expected);
            }
            bench.tick();
            if shown_count == expected.len() {
                break;
            }
        }
        assert_eq!((shown_count, slot_returned), (expected.len(), slots.len()));
        assert!(burst_source.is_done() && slot_source.is_done());
    }
}
