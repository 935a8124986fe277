//! The block against a model of its line: work, gates and debts in plain numbers, random events.
use super::*;
use crate::messages::slots_of_turn;
use rand::Rng;
use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};
use std::collections::VecDeque;

fn swept() -> Bench<ReadyLine> {
    let mut bench = Bench::clocked(ReadyLine::default(), |block| &mut block.clock).in_lock_step();
    bench.block.is_sweeping.next = true;
    for index in 0..1024 {
        bench.block.sweep_index.next = bits(index);
        bench.tick();
    }
    bench.block.is_sweeping.next = false;
    bench
}

fn more(queue_pair: u64) -> FetchReport {
    FetchReport { queue_pair: bits(queue_pair), has_more: true, ..FetchReport::default() }
}

/// Doorbells and reports at random, over few queue pairs so that they meet: a queue pair whose doorbell rang has
/// a turn after it, and each rest has one.
#[test]
fn every_queue_pair_has_a_turn_after_each_doorbell_and_one_for_each_rest() {
    const FIRST: u64 = 0x3fc;
    let mut random = random();
    for stalls in Stalls::ALL {
        let mut bench = swept();
        let (mut fetches, mut sends) = (Sink::new(stalls), Sink::new(stalls));
        let (mut fetch, mut segment) = (Source::of_tokens([], stalls), Source::of_tokens([], stalls));
        // Last value written for each queue pair, and last value that was read.
        let (mut written, mut seen) = ([0u32; 4], [0u32; 4]);
        let (mut stopped, mut bursts) = ([false; 4], [0usize; 4]);
        let (mut rests, mut rest_turns) = ([false; 4], 0);
        let mut due: VecDeque<usize> = VecDeque::new();
        let mut turns = 0;
        for cycle in 0..12_000 {
            let is_end = cycle >= 9_000;
            let rings = !is_end && random.random_bool(0.3);
            let number = random.random_range(0..4usize);
            bench.block.posted_valid.next = rings;
            bench.block.posted.next = bits(FIRST + number as u64);
            if rings {
                written[number] += 1;
            }
            // At the end every gate opens, and every burst ends.
            let other = random.random_range(0..4usize);
            if fetch.is_done() && random.random_bool(0.02) {
                stopped[other] = !is_end && random.random_bool(0.4);
                fetch.push(FetchReport { is_stopped: stopped[other], ..more(FIRST + other as u64) });
            }
            let other = random.random_range(0..4usize);
            if segment.is_done() && random.random_bool(0.05) {
                let ends_burst = bursts[other] > 0;
                bursts[other] -= usize::from(ends_burst);
                let has_rest = !is_end && !rests[other] && random.random();
                rests[other] |= has_rest;
                segment.push(SegmentReport {
                    queue_pair: bits(FIRST + other as u64),
                    has_rest,
                    ends_burst,
                    kibibytes: bits(if is_end { 0 } else { random.random_range(0..4) }),
                });
            }
            fetch.drive(&mut bench.block.from_fetch, &mut random);
            segment.drive(&mut bench.block.from_segment, &mut random);
            fetches.drive(&mut bench.block.to_fetch, &mut random);
            sends.drive(&mut bench.block.to_segment, &mut random);
            bench.settle();
            assert!(!(bench.block.to_fetch.valid.val() && bench.block.to_segment.valid.val()));
            // A reader looks one cycle after its turn.
            if let Some(number) = due.pop_front() {
                seen[number] = written[number];
            }
            fetch.sample(&bench.block.from_fetch);
            segment.sample(&bench.block.from_segment);
            if let Some(turn) = fetches.sample(&bench.block.to_fetch) {
                let number = (turn.queue_pair.to_u64() - FIRST) as usize;
                due.push_back(number);
                turns += 1;
                // Each turn has a burst, if a report of it can be given at once.
                if fetch.is_done() && !stopped[number] {
                    bursts[number] += 1;
                    fetch.push(FetchReport {
                        has_more: random.random(),
                        begins_burst: true,
                        ..more(FIRST + number as u64)
                    });
                }
            }
            if let Some(queue_pair) = sends.sample(&bench.block.to_segment) {
                let number = (queue_pair.to_u64() - FIRST) as usize;
                assert!(std::mem::take(&mut rests[number]), "a turn for each rest");
                rest_turns += 1;
            }
            bench.tick();
        }
        assert_eq!(written, seen, "no doorbell is lost");
        assert_eq!(rests, [false; 4], "and no rest");
        assert!(written[0] > 100 && rest_turns > 20, "{written:?}, {rest_turns}");
        assert!((100..4000).contains(&turns), "{turns} turns");
    }
}

/// What each queue pair sends while all have more, in bytes with 64 for each packet, and the longest time between
/// two turns; `lengths` are those of their messages. A stage after the line takes 20 cycles for 1,024 bytes, as the
/// wire does, and what it does is known 300 cycles after the turn.
fn shares(lengths: &[u64]) -> (Vec<u64>, Vec<u64>) {
    const WAY: u64 = 300;
    let mut random = random();
    let mut bench = swept();
    let (mut fetch, mut segment) = (Source::of_tokens([], Stalls::None), Source::of_tokens([], Stalls::None));
    let mut sent = vec![0; lengths.len()];
    let (mut last, mut longest) = (vec![0; lengths.len()], vec![0; lengths.len()]);
    // Turns at work: when they are known at the earliest, queue pair, bytes, whether it is a rest.
    let mut work: VecDeque<(u64, usize, u64, bool)> = VecDeque::new();
    let mut free_at = 0;
    let (mut queued, mut looks_at) = (0, 0);
    for cycle in 0..120_000u64 {
        bench.block.posted_valid.next = cycle < lengths.len() as u64;
        bench.block.posted.next = bits(cycle % 1024);
        if cycle >= free_at
            && let Some(&(known_at, number, bytes, is_rest)) = work.front()
            && known_at <= cycle
        {
            work.pop_front();
            queued -= bytes;
            free_at = cycle + bytes * 20 / 1024;
            if cycle > 20_000 {
                sent[number] += bytes;
                longest[number] = longest[number].max(cycle - last[number]);
            }
            last[number] = cycle;
            segment.push(SegmentReport {
                queue_pair: bits(number as u64),
                has_rest: is_rest || lengths[number] > 1 << 14,
                ends_burst: !is_rest,
                kibibytes: bits((bytes / 1024).min(63)),
            });
        }
        fetch.drive(&mut bench.block.from_fetch, &mut random);
        segment.drive(&mut bench.block.from_segment, &mut random);
        // A turn needs room, and a burst takes four cycles.
        let has_room = queued < 64 << 10;
        bench.block.to_fetch.ready.next = has_room && cycle >= looks_at;
        bench.block.to_segment.ready.next = has_room;
        bench.settle();
        fetch.sample(&bench.block.from_fetch);
        segment.sample(&bench.block.from_segment);
        if bench.block.to_fetch.valid.val() && bench.block.to_fetch.ready.val() {
            let turn = bench.block.to_fetch.beat.val();
            let number = turn.queue_pair.to_u64() as usize;
            let length = lengths[number].min(1 << 14);
            let messages = if lengths[number] > 1 << 14 { 1 } else { slots_of_turn(turn.size).to_u64() - 1 };
            let bytes = messages * (length + 64 * length.div_ceil(4096));
            work.push_back((cycle + WAY, number, bytes, false));
            queued += bytes;
            looks_at = cycle + 4;
            fetch.push(FetchReport {
                has_more: lengths[number] <= 1 << 14,
                is_stopped: lengths[number] > 1 << 14,
                begins_burst: true,
                ..more(turn.queue_pair.to_u64())
            });
        }
        if bench.block.to_segment.valid.val() && bench.block.to_segment.ready.val() {
            let number = bench.block.to_segment.beat.val().to_u64() as usize;
            let bytes = (1 << 14) + 256;
            work.push_back((cycle, number, bytes, true));
            queued += bytes;
        }
        bench.tick();
    }
    (sent, longest)
}

#[test]
fn shares_are_equal_in_bytes_whatever_the_lengths_of_messages_are() {
    for lengths in [&[64, 4096, 1 << 14][..], &[64, 4096, 1 << 20], &[64, 64, 512, 1 << 14, 1 << 20, 1 << 20]]
    {
        let (sent, longest) = shares(lengths);
        let total: u64 = sent.iter().sum();
        println!("{lengths:?}: {sent:?} of {total}, {longest:?} cycles between turns");
        for (number, bytes) in sent.iter().enumerate() {
            let share = bytes * lengths.len() as u64 * 100 / total;
            assert!((70..=140).contains(&share), "{lengths:?}: {share} % of a fair share for {number}");
        }
        assert!(total > 100_000 * 1024 / 20 * 95 / 100, "{lengths:?}: the wire is full, {total}");
    }
}

#[test]
fn who_is_alone_does_not_wait() {
    for length in [64, 4096, 1 << 14, 1 << 20] {
        let (sent, _) = shares(&[length]);
        let most = 100_000 * 1024 / 20;
        assert!(sent[0] > most * 90 / 100, "{length}: {} of {most}", sent[0]);
    }
}

#[test]
fn a_doorbell_passes_in_three_cycles() {
    let mut bench = swept();
    bench.block.to_fetch.ready.next = true;
    bench.block.posted.next = bits(5);
    bench.block.posted_valid.next = true;
    let mut cycles = 0;
    loop {
        bench.settle();
        if bench.block.to_fetch.valid.val() {
            break;
        }
        bench.tick();
        bench.block.posted_valid.next = false;
        cycles += 1;
        assert!(cycles < 20);
    }
    assert_eq!(cycles, 3);
    assert_eq!(bench.block.to_fetch.beat.val(), FetchTurn { queue_pair: bits(5), size: bits(0) });
}
