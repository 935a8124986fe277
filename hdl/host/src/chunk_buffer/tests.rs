use super::*;
use rand::Rng;
use rnic_blocks::bench::{Bench, Stimulus, Waves, random};
use std::collections::VecDeque;

type Small = ChunkBuffer<512, 7, 3, 2, 3, 3, 4, 8>;

fn bench() -> Bench<Small> {
    Bench::clocked(Small::new(Storage::Block), |block| &mut block.clock)
}

/// Lets four cycles pass, in which the buffer clears the progress of its four tags.
fn cleared(mut bench: Bench<Small>) -> Bench<Small> {
    (0..4).for_each(|_| bench.tick());
    bench
}

fn reserve(bench: &mut Bench<Small>, last_index: u64, cookie: u64) {
    bench.block.reserve.next = true;
    bench.block.last_index.next = bits(last_index);
    bench.block.cookie.next = bits(cookie);
}

fn answer(bench: &mut Bench<Small>, tag: u64, data: u64, last: bool) {
    bench.block.arrival.valid.next = true;
    bench.block.arrival.value.next =
        ReadWord { data: bits(data), bytes: bits(64), last, error: false, tag: bits(tag) };
}

/// Lets cycles pass and returns data and marks of the beats that leave.
fn drain(bench: &mut Bench<Small>) -> Vec<(u64, bool, bool)> {
    bench.block.reserve.next = false;
    bench.block.arrival.valid.next = false;
    bench.block.tx.ready.next = true;
    let mut beats = Vec::new();
    for _ in 0..12 {
        bench.settle();
        if bench.block.tx.valid.val() {
            let beat = bench.block.tx.beat.val();
            beats.push((beat.data.get_bits::<32>(0).to_u64(), beat.last, beat.error));
        }
        bench.tick();
    }
    beats
}

#[test]
fn words_beyond_the_reservation_are_cut_off_and_reported() {
    let mut bench = cleared(bench().in_lock_step());
    for last_index in [1, 0] {
        reserve(&mut bench, last_index, 0);
        bench.tick();
    }
    bench.block.reserve.next = false;
    let mut reports = 0;
    for (tag, data, last) in [(0, 1, false), (0, 2, false), (0, 3, true), (1, 4, true), (2, 5, true)] {
        answer(&mut bench, tag, data, last);
        bench.tick();
        bench.settle();
        reports += usize::from(bench.block.is_unexpected.val());
    }
    bench.block.arrival.valid.next = false;
    for _ in 0..2 {
        bench.tick();
        bench.settle();
        reports += usize::from(bench.block.is_unexpected.val());
    }
    assert_eq!(reports, 2, "the third word of tag 0, and the word of tag 2, which is free");
    assert_eq!(drain(&mut bench), [(1, false, false), (2, true, true), (4, true, false)]);
    assert_eq!(bench.block.tags_used.val(), bits(0));
    assert_eq!(bench.block.chunks_used.val(), bits(0));
}

#[test]
fn an_early_end_is_an_end_and_gives_all_chunks_back() {
    let mut bench = cleared(bench().in_lock_step());
    // Each lap of the ring passes chunks that were never written.
    for lap in 0..10 {
        reserve(&mut bench, 4, 0);
        bench.tick();
        bench.block.reserve.next = false;
        bench.settle();
        assert_eq!(bench.block.chunks_used.val(), bits(5));
        answer(&mut bench, lap % 4, lap, true);
        bench.tick();
        assert_eq!(drain(&mut bench), [(lap, true, false)]);
        assert_eq!(bench.block.chunks_used.val(), bits(0));
    }
}

#[test]
fn reset_forgets_requests_and_their_late_answers() {
    let mut bench = cleared(bench().in_lock_step());
    reserve(&mut bench, 0, 0);
    bench.tick();
    bench.tick();
    bench.block.reserve.next = false;
    bench.block.reset.next = true;
    bench.tick();
    bench.block.reset.next = false;
    bench.settle();
    assert_eq!(bench.block.tags_used.val(), bits(0));
    assert_eq!(bench.block.chunks_used.val(), bits(0));
    for tag in [0, 1] {
        for cycle in 0..5 {
            bench.settle();
            assert_eq!(bench.block.fits.val(), tag == 1 || cycle >= 4, "clearing takes four cycles");
            answer(&mut bench, tag, 7, true);
            bench.tick();
        }
    }
    assert_eq!(drain(&mut bench), []);
    reserve(&mut bench, 0, 0);
    bench.tick();
    bench.block.reserve.next = false;
    answer(&mut bench, 0, 8, true);
    bench.tick();
    assert_eq!(drain(&mut bench), [(8, true, false)]);
}

#[test]
fn random_traffic_is_the_same_in_verilog() {
    let mut random = random();
    let mut bench = cleared(bench().in_lock_step());
    let mut open = VecDeque::new();
    let mut delivered = 0;
    for _ in 0..3000 {
        let last_index = if random.random() { 0 } else { random.random_range(0..8) };
        reserve(&mut bench, last_index, random.random_range(0..256));
        bench.block.reserve.next = random.random();
        // Mostly tags that wait, at times any tag; whole answers end by themselves.
        let tag = match open.is_empty() || random.random_bool(0.05) {
            true => random.random_range(0..4),
            false => open[random.random_range(0..open.len())],
        };
        answer(&mut bench, tag, random.random(), random.random_bool(0.3));
        bench.block.arrival.value.next.error = random.random_bool(0.05);
        bench.block.arrival.value.next.bytes = Stimulus::sample(&mut random);
        bench.block.arrival.valid.next = random.random_bool(0.7);
        bench.block.tx.ready.next = random.random_bool(0.8);
        bench.settle();
        if bench.block.reserve.val() && bench.block.fits.val() {
            open.push_back(bench.block.tag.val().to_u64());
        }
        let beat = bench.block.tx.beat.val();
        if bench.block.tx.valid.val() && bench.block.tx.ready.val() && beat.last {
            open.pop_front();
            delivered += 1;
        }
        bench.tick();
    }
    assert!(delivered > 200, "{delivered} answers");
}

#[test]
fn a_read_is_overdue_after_its_limit() {
    for (reserved_at, now, limit, expected) in [
        (5, 6, 1, false),
        (5, 7, 1, true),
        (5, 7, 0, false),
        (5, 0x1_0004, 0xffff, false),
        (5, 0x1_0005, 0xffff, true),
        (0x1_ffff, 1, 1, true),
        (0x1_ffff, 0, 1, false),
    ] {
        assert_eq!(is_overdue(bits(reserved_at), bits(now), bits(limit)), expected, "{reserved_at:x}");
    }
}

/// Reserves one word, answers it at once, and returns its tag when its beat has left.
fn exchange(bench: &mut Bench<Small>, data: u64) -> u64 {
    bench.block.tx.ready.next = true;
    let mut tag = None;
    for _ in 0..40 {
        reserve(bench, 0, data);
        bench.block.reserve.next = tag.is_none();
        bench.settle();
        let block = &bench.block;
        assert!(!block.is_unexpected.val());
        if block.tx.valid.val() {
            let beat = block.tx.beat.val();
            assert_eq!((beat.cookie, beat.last, beat.error), (bits(data), true, false));
            assert_eq!(beat.data.get_bits::<32>(0), bits(data));
            bench.block.reserve.next = false;
            bench.tick();
            return tag.expect("it was reserved");
        }
        let begins = tag.is_none() && block.fits.val();
        if begins {
            tag = Some(block.tag.val().to_u64());
        }
        bench.tick();
        bench.block.arrival.valid.next = false;
        if begins {
            answer(bench, tag.expect("it was reserved"), data, true);
        }
    }
    panic!("no answer leaves");
}

#[test]
fn a_read_that_is_never_answered_ends_with_an_error_and_its_tag_rests() {
    let mut bench = cleared(bench().in_lock_step());
    bench.block.limit.next = bits(1);
    bench.block.tx.ready.next = true;
    for (last_index, cookie) in [(1, 0xa), (0, 0xb), (0, 0xc)] {
        reserve(&mut bench, last_index, cookie);
        bench.tick();
    }
    bench.block.reserve.next = false;
    // Of tag 0 half of the answer comes; the others wait behind it.
    let answers = [(0, 0xa0, false), (1, 0xb0, true), (2, 0xc0, true)];
    let mut beats = Vec::new();
    for cycle in 0..3 * LIMIT_CYCLES + 40 {
        bench.block.arrival.valid.next = false;
        if let Some(&(tag, data, last)) = answers.get(cycle as usize) {
            answer(&mut bench, tag, data, last);
        }
        bench.settle();
        if bench.block.tx.valid.val() {
            let beat = bench.block.tx.beat.val();
            let data = beat.data.get_bits::<32>(0).to_u64();
            beats.push((cycle, beat.cookie.to_u64(), data, beat.last, beat.error));
        }
        bench.tick();
    }
    let [(_, 0xa, 0xa0, false, false), (lost_at, 0xa, _, true, true), others @ ..] = &beats[..] else {
        panic!("{beats:x?}")
    };
    assert!((LIMIT_CYCLES..3 * LIMIT_CYCLES + 8).contains(lost_at), "lost after {lost_at} cycles");
    let expected = [(lost_at + 1, 0xb, 0xb0, true, false), (lost_at + 2, 0xc, 0xc0, true, false)];
    assert_eq!(others, expected, "the others leave at once");
    bench.settle();
    let block = &bench.block;
    assert_eq!((block.tags_used.val(), block.chunks_used.val()), (bits(0), bits(0)));
    assert_eq!((block.quarantined.val(), block.has_lost_half.val()), (bits(1), false));

    // The tag rests while the ring goes round.
    for data in 0..12 {
        assert_ne!(exchange(&mut bench, 0x50 + data), 0);
    }
    // The rest of the answer comes, changes nothing, and frees the tag.
    bench.block.reserve.next = false;
    answer(&mut bench, 0, 0xa1, true);
    bench.tick();
    assert_eq!(drain(&mut bench), []);
    assert!(!bench.block.is_unexpected.val());
    assert_eq!(bench.block.quarantined.val(), bits(0));
    let tags: Vec<_> = (0..8).map(|data| exchange(&mut bench, 0x60 + data)).collect();
    assert_eq!(tags.iter().filter(|&&tag| tag == 0).count(), 2, "{tags:?}");
}

#[test]
fn without_a_limit_a_read_waits() {
    let mut bench = cleared(bench());
    bench.block.tx.ready.next = true;
    reserve(&mut bench, 0, 7);
    bench.tick();
    bench.block.reserve.next = false;
    for _ in 0..8 * LIMIT_CYCLES {
        bench.settle();
        assert!(!bench.block.tx.valid.val());
        bench.tick();
    }
    answer(&mut bench, 0, 9, true);
    bench.tick();
    assert_eq!(drain(&mut bench), [(9, true, false)]);
}

#[test]
fn a_read_is_not_given_up_in_a_pause() {
    let mut bench = cleared(bench().in_lock_step());
    bench.block.limit.next = bits(1);
    bench.block.tx.ready.next = true;
    bench.block.pauses.next = true;
    reserve(&mut bench, 0, 7);
    bench.tick();
    bench.block.reserve.next = false;
    for _ in 0..4 * LIMIT_CYCLES {
        bench.settle();
        assert!(!bench.block.tx.valid.val());
        bench.tick();
    }
    bench.block.pauses.next = false;
    let lost = (0..3 * LIMIT_CYCLES).find(|_| {
        bench.settle();
        let leaves = bench.block.tx.valid.val();
        bench.tick();
        leaves
    });
    assert!(lost.is_some_and(|cycles| cycles >= LIMIT_CYCLES), "given up after {lost:?} cycles");
}

#[test]
fn half_of_all_tags_lost_is_reported() {
    let mut bench = cleared(bench().in_lock_step());
    bench.block.limit.next = bits(1);
    for lost in 0..2 {
        bench.settle();
        assert!(!bench.block.has_lost_half.val(), "{lost} of 4");
        reserve(&mut bench, 0, 0);
        bench.tick();
        let beats: Vec<_> = (0..300).flat_map(|_| drain(&mut bench)).collect();
        assert!(matches!(beats[..], [(_, true, true)]), "{beats:?}");
    }
    assert!(bench.block.has_lost_half.val());
    // The tags that are left are used.
    assert_eq!([0, 1, 2].map(|data| exchange(&mut bench, data)), [2, 3, 2]);
}

#[test]
fn impossible_parameters_are_refused() {
    assert_eq!(Small::REFUSAL, None);
    assert_eq!(ChunkBuffer::<64, 4, 6, 1, 2, 13, 14, 8>::REFUSAL, None);
    assert!(
        ChunkBuffer::<512, 7, 3, 8, 9, 2, 3, 8>::REFUSAL
            .is_some_and(|refusal| refusal.contains("CHUNK is WORD"))
    );
    assert!(
        ChunkBuffer::<512, 7, 3, 8, 9, 11, 12, 8>::REFUSAL
            .is_some_and(|refusal| refusal.contains("CHUNK is WORD"))
    );
    assert!(
        ChunkBuffer::<512, 7, 3, 8, 9, 10, 10, 8>::REFUSAL.is_some_and(|refusal| refusal.contains("CHUNKS"))
    );
}

#[test]
fn waveform_is_as_documented() {
    let waves = Waves::new()
        .signal("reserve")
        .signal("tag")
        .when("reserve")
        .signal("arrival_valid")
        .signal("arrival_value.tag")
        .when("arrival_valid")
        .signal("arrival_value.data")
        .when("arrival_valid")
        .signal("tx_valid")
        .signal("tx_beat.data")
        .when("tx_valid")
        .signal("tx_beat.last")
        .when("tx_valid")
        .signal("tags_used")
        .signal("chunks_used");
    let mut bench = cleared(bench()).recording(waves);
    bench.block.tx.ready.next = true;
    let words = [(1, 0xb0, false), (0, 0xa0, false), (1, 0xb1, true), (0, 0xa1, true)];
    for cycle in 0..16 {
        reserve(&mut bench, 1, 0);
        bench.block.reserve.next = cycle == 1 || cycle == 2;
        bench.block.arrival.valid.next = false;
        if let Some(&(tag, data, last)) = words.get(usize::wrapping_sub(cycle, 4)) {
            answer(&mut bench, tag, data, last);
        }
        bench.tick();
    }
    bench.waves().expect("waves/chunk_buffer.txt");
}
