use super::*;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Source, Stalls, Stimulus, random};

/// Bursts of one source, their slots, and how these are shown.
#[derive(Default)]
struct Shown {
    bursts: Vec<WqeBurst>,
    slots: Vec<Slot>,
    expected: Vec<WqeSlot>,
}

impl Shown {
    fn new(is_kept: bool, random: &mut Random) -> Shown {
        let Shown { mut bursts, mut slots, mut expected } = Shown::default();
        for _ in 0..80 {
            let burst = WqeBurst {
                queue_pair: Stimulus::sample(random),
                generation: Stimulus::sample(random),
                first_index: Stimulus::sample(random),
                count: bits(random.random_range(1..=8)),
                lap: Stimulus::sample(random),
                ends_queue: random.random(),
                is_overrun: !is_kept && random.random_bool(0.1),
                is_single: random.random(),
                is_kept,
                weight: Stimulus::sample(random),
                charge: Stimulus::sample(random),
            };
            bursts.push(burst);
            let count = if burst.is_overrun { 1 } else { burst.count.to_u64() };
            let first = slots.len();
            let mut error = false;
            for position in 0..count {
                error |= random.random_bool(0.1);
                let slot = Slot { data: Stimulus::sample(random), last: position + 1 == count, error };
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
                    is_single: burst.is_single,
                    is_kept,
                    weight: burst.weight,
                    charge: burst.charge,
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
        Shown { bursts, slots, expected }
    }
}

/// Compares a slot with the expected one, as far as it is defined.
fn compare(mut shown: WqeSlot, expected: WqeSlot) {
    if !shown.has_second {
        shown.second = expected.second;
    }
    if shown.is_overrun {
        (shown.first, shown.is_unreadable) = (expected.first, expected.is_unreadable);
        shown.ends_queue = expected.ends_queue;
    }
    assert_eq!(shown, expected);
}

#[test]
fn every_slot_is_shown_once_with_its_successor() {
    let mut random = random();
    for stalls in Stalls::ALL {
        let sources = [false, true].map(|is_kept| Shown::new(is_kept, &mut random));
        let mut bench = Bench::clocked(WqePair::default(), |block| &mut block.clock).in_lock_step();
        let mut burst_source = Source::of_tokens(sources[0].bursts.clone(), stalls);
        let mut slot_source = Source::of_tokens(sources[0].slots.clone(), stalls);
        // Slots of a kept burst come when it is the first one, and not before those of the one before it have gone.
        let mut kept_bursts = sources[1].bursts.iter().copied().peekable();
        let mut kept_slots = sources[1].slots.iter().copied().peekable();
        let (mut kept_left, mut has_burst) = (0, false);
        let mut shown_counts = [0, 0];
        let (mut slot_returned, mut under_way, mut overtaken) = (0, None, 0);
        let mut offered: Option<WqeSlot> = None;
        for _ in 0..40_000 {
            burst_source.drive(&mut bench.block.bursts, &mut random);
            slot_source.drive(&mut bench.block.slots, &mut random);
            if !has_burst && random.random_bool(0.05) {
                has_burst = kept_bursts.peek().is_some();
                kept_left = kept_bursts.peek().map_or(0, |burst| burst.count.to_u64());
            }
            bench.block.kept_bursts.valid.next = has_burst;
            bench.block.kept_bursts.beat.next = kept_bursts.peek().copied().unwrap_or_default();
            bench.block.kept_slots.valid.next = kept_left > 0;
            bench.block.kept_slots.beat.next = kept_slots.peek().copied().unwrap_or_default();
            bench.block.wqe_slot.ready.next = !stalls.sink() || random.random();
            bench.settle();
            burst_source.sample(&bench.block.bursts);
            assert_eq!(slot_source.sample(&bench.block.slots), bench.block.slot_returned.val());
            slot_returned += usize::from(bench.block.slot_returned.val());
            if kept_left > 0 && bench.block.kept_slots.ready.val() {
                kept_slots.next();
                kept_left -= 1;
            }
            if has_burst && bench.block.kept_bursts.ready.val() {
                assert_eq!(kept_left, 0, "a burst ends after its last slot");
                kept_bursts.next();
                has_burst = false;
            }
            if bench.block.wqe_slot.valid.val() {
                let shown = bench.block.wqe_slot.beat.val();
                let source = usize::from(shown.is_kept);
                let identity = |slot: WqeSlot| (slot.is_kept, slot.index, slot.is_overrun);
                if let Some(offered) = offered {
                    assert_eq!(identity(shown), identity(offered), "an offer stays");
                }
                if let Some(under_way) = under_way {
                    assert_eq!(source, under_way, "bursts are shown whole");
                }
                compare(shown, sources[source].expected[shown_counts[source]]);
                let moves = bench.block.wqe_slot.ready.val();
                offered = (!moves).then_some(shown);
                if moves {
                    overtaken += usize::from(shown.is_kept && bench.block.bursts.valid.val());
                    shown_counts[source] += 1;
                    under_way = (!shown.ends_burst).then_some(source);
                }
            } else {
                assert!(offered.is_none(), "an offer stays");
            }
            bench.tick();
            if shown_counts == [0, 1].map(|source| sources[source].expected.len()) {
                break;
            }
        }
        assert_eq!(shown_counts, [0, 1].map(|source| sources[source].expected.len()));
        assert_eq!(slot_returned, sources[0].slots.len());
        assert!(burst_source.is_done() && slot_source.is_done() && overtaken > 0);
    }
}
