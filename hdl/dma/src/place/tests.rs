use super::*;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, beats_of, random};
use rnic_host::testing::{bytes_of, generates};
use std::collections::VecDeque;

/// The host memory of the tests: `MEMORY_BYTES` from here on. A multiple of 2^36 lies in its middle.
const BASE: u64 = 0x0123_456f_ffff_c000;
const MEMORY_BYTES: usize = 1 << 15;

/// A packet, and how many writes there are up to its end.
struct Packet {
    command: PlaceCommand,
    payload: Vec<u8>,
    end: usize,
}

/// Packets in order, and what becomes of memory.
struct Traffic {
    packets: Vec<Packet>,
    /// Address and bytes of each write, and of which packet it is.
    writes: Vec<(u64, Vec<u8>, usize)>,
    memory: Vec<u8>,
}

impl Traffic {
    fn new() -> Self {
        Traffic { packets: Vec::new(), writes: Vec::new(), memory: vec![0; MEMORY_BYTES] }
    }

    /// Adds a packet that goes to these spans, each an address and a length.
    fn add(&mut self, payload: Vec<u8>, places: &[(u64, usize)], has_completion: bool, has_notice: bool) {
        let index = self.packets.len();
        let mut spans = [HostSpan::default(); 3];
        let mut rest = &payload[..];
        for (span, &(mut address, length)) in spans.iter_mut().zip(places) {
            *span = HostSpan { address: bits(address), length: bits(length as u64) };
            let (mut bytes, behind) = rest.split_at(length);
            rest = behind;
            let at = (address - BASE) as usize;
            self.memory[at..at + length].copy_from_slice(bytes);
            while !bytes.is_empty() {
                let (now, later) = bytes.split_at(bytes.len().min(512 - (address % 512) as usize));
                self.writes.push((address, now.to_vec(), index));
                address += now.len() as u64;
                bytes = later;
            }
        }
        let command = PlaceCommand {
            queue_pair: bits(index as u64 & 1023),
            generation: bits((index as u64 * 7) & 0xff),
            payload_bytes: bits(payload.len() as u64),
            first_cell: bits(0),
            span_count: bits(places.len() as u64),
            first: spans[0],
            second: spans[1],
            third: spans[2],
            has_completion,
            completion: CqeToken {
                wr_id: bits(index as u64),
                status: bits(if index % 5 == 4 { 5 } else { 0 }),
                ..Default::default()
            },
            has_notice,
            notice: PlaceNotice {
                psn: bits(index as u64),
                kind: if index % 3 == 1 { PlaceNoticeKind::Response } else { PlaceNoticeKind::Ack },
                ..Default::default()
            },
        };
        self.packets.push(Packet { command, payload, end: self.writes.len() });
    }

    fn random(count: usize, random: &mut Random) -> Self {
        let mut traffic = Traffic::new();
        for _ in 0..count {
            let span_count = random.random_range(0..=3);
            let length = |random: &mut Random| {
                let some = [1, 63, 64, 65, 512, random.random_range(1..=4096), random.random_range(1..200)];
                *some.choose(random).unwrap()
            };
            let mut places = Vec::new();
            let mut room: usize = 4096;
            for _ in 0..span_count {
                let length = length(random).min(room);
                room -= length;
                let last = MEMORY_BYTES - length;
                let near = (random.random_range(0..64) * 512 + 512 - length % 512).min(last);
                let offset = *[random.random_range(0..=last), near, near & !63].choose(random).unwrap();
                if length > 0 {
                    places.push((BASE + offset as u64, length));
                }
            }
            let bytes = match span_count {
                // Nothing came, or it is dropped.
                0 => *[0, 0, length(random)].choose(random).unwrap(),
                _ => 4096 - room,
            };
            let payload = (0..bytes).map(|_| random.random()).collect();
            traffic.add(payload, &places, random.random(), random.random());
        }
        traffic
    }
}

const SUCCESS: u64 = CompletionStatus::Success as u64;
const LOCAL_PROTECTION: u64 = CompletionStatus::LocalProtection as u64;

/// When a host reports writes.
#[derive(Clone, Copy)]
struct Host {
    latency_max: usize,
    failures: f64,
}

/// Sends packets through and compares every write, CQE and notice, and memory at the end; returns the cycles until
/// the last word was written.
fn place<const DATA: usize, const BYTES: usize>(
    bench: &mut Bench<Place<DATA, BYTES>>,
    traffic: &Traffic,
    host: Host,
    stalls: Stalls,
    random: &mut Random,
) -> usize {
    let Traffic { packets, writes: meant, .. } = traffic;
    let mut commands = Source::showing_next(packets.iter().map(|packet| packet.command), stalls);
    let beats: Vec<_> = packets
        .iter()
        .filter(|packet| !packet.payload.is_empty())
        .flat_map(|packet| beats_of::<DATA, BYTES>(&packet.payload, random))
        .collect();
    let beat_count = beats.len();
    let mut payload = Source::showing_next(beats, stalls);
    let (mut writes, mut cqes, mut notices) = (Sink::new(stalls), Sink::new(stalls), Sink::new(stalls));
    let mut memory = vec![0; MEMORY_BYTES];
    let mut words: Vec<u8> = Vec::new();
    // Writes that the host has, when it will report each, and what it has reported.
    let mut issued = 0;
    let mut dones: VecDeque<(usize, bool)> = VecDeque::new();
    let mut done = 0;
    let mut has_failed = vec![false; packets.len()];
    let (mut taken, mut cycle, mut last_word) = (0, 0, 0);
    let mut due_cqes = (0..packets.len()).filter(|&at| packets[at].command.has_completion);
    let mut due_notices = (0..packets.len()).filter(|&at| packets[at].command.has_notice);
    while bench.block.in_flight.val().left != packets.len() as u64 {
        assert!(cycle < 100_000, "place is stuck, stalls {stalls:?}");
        let block = &mut bench.block;
        commands.drive(&mut block.command, random);
        payload.drive(&mut block.payload, random);
        writes.drive(&mut block.write, random);
        cqes.drive(&mut block.cqe, random);
        notices.drive(&mut block.notice, random);
        let report = dones.pop_front_if(|report| report.0 <= cycle);
        if let Some((_, fails)) = report {
            has_failed[meant[done].2] |= fails;
            done += 1;
        }
        block.payload_done_count.next = bits(done as u64 & 0xffff);
        block.payload_failed.next = report.is_some_and(|report| report.1);
        bench.settle();
        let block = &bench.block;
        commands.sample(&block.command);
        taken += usize::from(payload.sample(&block.payload));
        if let Some(token) = cqes.sample(&block.cqe) {
            let at = due_cqes.next().expect("no more completions than were asked for");
            let mut expected = packets[at].command.completion;
            if has_failed[at] && expected.status == SUCCESS {
                expected.status = bits(LOCAL_PROTECTION);
            }
            assert_eq!(token, expected);
            assert!(done >= packets[at].end, "its writes are done");
        }
        if let Some(token) = notices.sample(&block.notice) {
            let at = due_notices.next().expect("no more notices than were asked for");
            let mut expected = packets[at].command.notice;
            expected.write_count = bits(packets[at].end as u64 & 0xffff);
            expected.write_failed = has_failed[at];
            assert_eq!(token, expected);
            assert!(done >= packets[at].end, "its writes are done");
        }
        if let Some(word) = writes.sample(&block.write) {
            words.extend(bytes_of(word.data));
            let (address, bytes, packet) = &meant[issued];
            assert_eq!((word.address.to_u64(), word.length.to_u64() as usize), (*address, bytes.len()));
            let command = &packets[*packet].command;
            assert_eq!((word.queue_pair, word.generation), (command.queue_pair, command.generation));
            assert_eq!(word.is_response, command.notice.kind == PlaceNoticeKind::Response);
            if word.last {
                let lane = *address as usize % (DATA / 8);
                assert_eq!(words.len(), (lane + bytes.len()).next_multiple_of(DATA / 8));
                assert_eq!(words[lane..lane + bytes.len()], bytes[..], "write {issued}");
                let at = (address - BASE) as usize;
                memory[at..at + bytes.len()].copy_from_slice(&words[lane..lane + bytes.len()]);
                words.clear();
                issued += 1;
                assert!(issued - done < 512, "the failures have room");
                let soonest = dones.back().map_or(0, |report| report.0 + 1);
                let due = cycle + random.random_range(1..=host.latency_max);
                dones.push_back((due.max(soonest), random.random_bool(host.failures)));
                last_word = cycle;
            }
        }
        bench.tick();
        cycle += 1;
    }
    assert_eq!((issued, taken), (meant.len(), beat_count));
    assert!(memory == traffic.memory && due_cqes.next().is_none() && due_notices.next().is_none());
    last_word
}

fn random_packets<const DATA: usize, const BYTES: usize>(count: usize) {
    let mut random = random();
    for stalls in Stalls::ALL {
        for host in [Host { latency_max: 5, failures: 0.3 }, Host { latency_max: 300, failures: 0.1 }] {
            let block = Place::<DATA, BYTES>::default();
            let mut bench = Bench::clocked(block, |block| &mut block.clock).in_lock_step();
            let traffic = Traffic::random(count, &mut random);
            place(&mut bench, &traffic, host, stalls, &mut random);
        }
    }
}

#[test]
fn packets_are_placed_at_64_bits() {
    random_packets::<64, 4>(20);
}

#[test]
fn packets_are_placed_at_128_bits() {
    random_packets::<128, 5>(30);
}

#[test]
fn packets_are_placed_at_256_bits() {
    random_packets::<256, 6>(40);
}

#[test]
fn packets_are_placed_at_512_bits() {
    random_packets::<512, 7>(80);
}

/// Two spans whose border lies in any lane of a beat, at any two alignments of host memory: every way in which a beat is
/// shared, kept or turned.
#[test]
fn a_beat_is_shared_by_two_spans_at_every_alignment() {
    let mut random = random();
    let mut traffic = Traffic::new();
    for border in 1..=16 {
        for (first, second) in (0..8).flat_map(|first| (0..8).map(move |second| (first, second))) {
            let second_length = random.random_range(1..=20);
            let payload = (0..border + second_length).map(|_| random.random()).collect();
            let mut near = |lane| BASE + random.random_range(1..8) * 512 - 8 + lane;
            let places = [(near(first), border), (near(second), second_length)];
            traffic.add(payload, &places, true, true);
        }
    }
    let block = Place::<64, 4>::default();
    let mut bench = Bench::clocked(block, |block| &mut block.clock);
    place(&mut bench, &traffic, Host { latency_max: 5, failures: 0.0 }, Stalls::None, &mut random);
}

#[test]
fn a_word_is_written_in_every_cycle() {
    let mut random = random();
    // Packets retire at one in two cycles; the host takes a microsecond.
    for (length, offset, cycles_each) in [(4096, 0, 64), (4096, 77, 65), (64, 0, 2), (64, 7, 2)] {
        let mut traffic = Traffic::new();
        let count = if length > 64 { 60 } else { 600 };
        for index in 0..count {
            traffic.add(vec![index as u8; length], &[(BASE + offset, length)], true, true);
        }
        let block = Place::<512, 7>::default();
        let mut bench = Bench::clocked(block, |block| &mut block.clock);
        let host = Host { latency_max: 250, failures: 0.0 };
        let cycles = place(&mut bench, &traffic, host, Stalls::None, &mut random);
        assert!(cycles <= count * cycles_each + 20, "{length} bytes: {cycles}");
    }
}

#[test]
fn latency_is_as_the_header_says() {
    let mut bench = Bench::clocked(Place::<512, 7>::default(), |block| &mut block.clock);
    let block = &mut bench.block;
    block.command.valid.next = true;
    block.command.beat.next = PlaceCommand {
        payload_bytes: bits(64),
        span_count: bits(1),
        first: HostSpan { address: bits(BASE), length: bits(64) },
        has_completion: true,
        has_notice: true,
        ..Default::default()
    };
    block.payload.valid.next = true;
    block.write.ready.next = true;
    let (mut write, mut retired) = (None, None);
    for cycle in 0..40 {
        bench.block.payload_done_count.next = bits(u64::from(cycle >= 20));
        bench.settle();
        let block = &mut bench.block;
        write = write.or(block.write.valid.val().then_some(cycle));
        let is_offered = block.cqe.valid.val() && block.notice.valid.val();
        retired = retired.or(is_offered.then_some(cycle));
        bench.tick();
        bench.block.command.valid.next = false;
    }
    assert_eq!((write, retired), (Some(10), Some(20 + 4)));
}

const TOP: u64 = 1 << 36;

fn span(address: u64, length: u64) -> HostSpan {
    HostSpan { address: bits(address), length: bits(length) }
}

/// The parts of a command, as address, length, lane of payload, bytes after it and whether the packet ends.
fn parts<const BYTES: usize>(spans: &[HostSpan]) -> Vec<(u64, u64, u64, u64, bool)> {
    let at = |index: usize| spans.get(index).copied().unwrap_or_default();
    let command = PlaceCommand {
        span_count: bits(spans.len() as u64),
        first: at(0),
        second: at(1),
        third: at(2),
        ..Default::default()
    };
    let (mut cursor, mut found) = (cursor_of(command.first), vec![]);
    loop {
        let part = part_of(command, cursor);
        let header = part.header;
        let numbers = [header.address, bit_cast(header.length), bit_cast(part.lane), bit_cast(part.rest)];
        let [address, length, lane, rest] = numbers.map(|number: Bits<64>| number.to_u64());
        assert_eq!(part.is_last, rest == 0, "the last part of a span leaves nothing");
        found.push((address, length, lane, rest, part.ends_packet));
        if part.ends_packet {
            return found;
        }
        cursor = cursor_after::<BYTES>(command, cursor, part);
    }
}

#[test]
fn spans_are_cut_at_multiples_of_512() {
    // Up to the boundary, one byte less and one more.
    assert_eq!(parts::<7>(&[span(500, 12)]), [(500, 12, 0, 0, true)]);
    assert_eq!(parts::<7>(&[span(500, 11)]), [(500, 11, 0, 0, true)]);
    assert_eq!(parts::<7>(&[span(500, 13)]), [(500, 12, 0, 1, false), (512, 1, 12, 0, true)]);
    assert_eq!(parts::<7>(&[span(512, 512)]), [(512, 512, 0, 0, true)]);
    // A carry into the high bits of the address.
    let carries = [(TOP - 8, 8, 0, 512, false), (TOP, 512, 8, 0, true)];
    assert_eq!(parts::<7>(&[span(TOP - 8, 520)]), carries);
    // Three spans; lanes of payload wrap at the width, here 8 bytes.
    let three = [(1, 5, 0, 0, false), (1023, 1, 5, 2, false), (1024, 2, 6, 0, false), (7, 9, 0, 0, true)];
    assert_eq!(parts::<4>(&[span(1, 5), span(1023, 3), span(7, 9)]), three);
}

#[test]
fn a_packet_without_spans_is_one_part() {
    let dropped = PlaceCommand { payload_bytes: bits(77), ..Default::default() };
    let part = part_of(dropped, cursor_of(span(0, 0)));
    assert!(part.ends_packet && !part.is_write);
    assert_eq!(part.dropped, bits(77));
}

#[test]
fn payload_of_responses_is_marked() {
    for (kind, expected) in [(PlaceNoticeKind::Ack, false), (PlaceNoticeKind::Response, true)] {
        let notice = PlaceNotice { kind, ..Default::default() };
        let command = PlaceCommand { notice, ..Default::default() };
        assert_eq!(part_of(command, cursor_of(span(0, 1))).header.is_response, expected);
    }
}

/// Beats and words of 8 bytes: host lane, lane of payload, length, rest of the span, whether the part is the first of its span,
/// whether its span is the packet's last; then turn, cycles, and whether the first cycle makes no word, the last takes no beat, and
/// the last beat stays.
#[test]
fn a_part_takes_as_many_cycles_as_it_touches_words_and_one_if_its_first_word_needs_two_beats() {
    let none = [false; 3];
    let (ahead, skips, keeps) = ([true, false, false], [false, true, false], [false, false, true]);
    for ((host, lane, length, rest, is_first, is_last_span), (turn, cycles, flags)) in [
        // Aligned: a word a beat.
        ((0, 0, 8, 0, true, true), (0, 1, none)),
        ((0, 0, 9, 0, true, true), (0, 2, none)),
        ((3, 3, 5, 0, true, true), (0, 1, none)),
        ((3, 3, 6, 0, true, true), (0, 2, none)),
        // Payload moves to higher lanes: the last word may need no beat of its own.
        ((3, 0, 5, 0, true, true), (3, 1, none)),
        ((3, 0, 6, 0, true, true), (3, 2, skips)),
        ((3, 0, 8, 0, true, true), (3, 2, skips)),
        ((3, 0, 9, 0, true, true), (3, 2, none)),
        // To lower lanes: the first word needs two beats.
        ((0, 3, 8, 0, true, true), (5, 2, ahead)),
        ((0, 3, 5, 0, true, true), (5, 2, [true, true, false])),
        ((0, 3, 6, 0, true, true), (5, 2, ahead)),
        // A later part of a span begins with the beat that is held.
        ((0, 3, 8, 0, false, true), (5, 1, none)),
        // The next span begins in the last beat, or at its end.
        ((0, 0, 5, 0, true, false), (0, 1, keeps)),
        ((0, 0, 8, 0, true, false), (0, 1, none)),
        // The rest of the span is in the beat that this part takes last.
        ((3, 0, 5, 2, true, false), (3, 1, keeps)),
        ((3, 0, 5, 3, true, false), (3, 1, none)),
        ((3, 0, 5, 4, true, false), (3, 1, none)),
    ] {
        let part = Part {
            header: WriteHeader { address: bits(host), length: bits(length), ..Default::default() },
            lane: bits(lane),
            is_first,
            is_last: rest == 0,
            rest: bits(rest),
            is_last_span,
            is_write: true,
            ..Default::default()
        };
        let plan = plan_of::<4>(part);
        let found = (plan.turn.to_u64(), plan.last_cycle.to_u64() + 1);
        assert_eq!(found, (turn, cycles), "{part:?}");
        assert_eq!([plan.is_ahead, plan.skips_last, plan.keeps_last], flags, "{part:?}");
        assert!(plan.is_write && plan.has_beats);
    }
}

#[test]
fn dropped_payload_takes_a_cycle_a_beat_and_a_packet_without_payload_takes_one() {
    for (dropped, cycles, has_beats) in
        [(0, 1, false), (1, 1, true), (64, 1, true), (65, 2, true), (4096, 64, true)]
    {
        let plan = plan_of::<7>(Part { dropped: bits(dropped), ..Default::default() });
        assert_eq!(plan.last_cycle, bits(cycles - 1), "{dropped} bytes");
        assert!(plan.has_beats == has_beats && !plan.is_write && !plan.skips_last && !plan.keeps_last);
    }
}

#[test]
fn cycles_of_a_plan_take_beats_and_make_words() {
    let plan = |flags: [bool; 3]| Plan {
        last_cycle: bits(2),
        is_ahead: flags[0],
        skips_last: flags[1],
        keeps_last: flags[2],
        has_beats: true,
        is_write: true,
        ..Default::default()
    };
    // For each cycle: takes a beat, keeps it, makes a word.
    let all = (true, false, true);
    for (flags, cycles) in [
        ([false, false, false], [all, all, all]),
        ([true, false, false], [(true, false, false), all, all]),
        ([false, true, false], [all, all, (false, false, true)]),
        ([false, false, true], [all, all, (true, true, true)]),
        ([false, true, true], [all, (true, true, true), (false, false, true)]),
    ] {
        for (number, expected) in cycles.into_iter().enumerate() {
            let cycle = cycle_of(plan(flags), bits(number as u64));
            assert_eq!((cycle.needs_beat, cycle.keeps_beat, cycle.makes_word), expected, "{flags:?}");
            assert_eq!(cycle.is_last, number == 2);
        }
    }
    let without = cycle_of(Plan::default(), bits(0));
    assert!(without.is_last && !without.needs_beat && !without.makes_word);
}

#[test]
fn packets_retire_when_their_writes_are_done_and_their_failures_collected() {
    use Retirement::{Collect, Retire, Wait};
    for (end, done, failure, expected) in [
        (10, 9, None, Wait),
        (10, 10, None, Retire),
        (10, 11, None, Retire),
        // A failure of a later packet is left to it.
        (10, 11, Some(11), Retire),
        (10, 11, Some(10), Collect),
        (10, 11, Some(9), Collect),
        (10, 9, Some(9), Wait),
        // Counts wrap.
        (2, 0xffff, None, Wait),
        (0xffff, 2, None, Retire),
        (2, 2, Some(0xffff), Collect),
        (0xffff, 2, Some(1), Retire),
    ] {
        let found = retirement(bits(end), bits(done), failure.is_some(), bits(failure.unwrap_or(end)));
        assert_eq!(found, expected, "{end} {done} {failure:?}");
    }
}

#[test]
fn only_success_is_replaced_by_the_status_of_a_failed_write() {
    for (status, write_failed, expected) in [
        (SUCCESS, false, SUCCESS),
        (SUCCESS, true, LOCAL_PROTECTION),
        (CompletionStatus::Flushed as u64, true, CompletionStatus::Flushed as u64),
    ] {
        let cqe = CqeToken { status: bits(status), wr_id: bits(7), ..Default::default() };
        assert_eq!(cqe_after(cqe, write_failed), CqeToken { status: bits(expected), ..cqe });
    }
}

#[test]
fn every_width_of_the_card_is_generated() {
    generates(Place::<128, 5>::default());
    generates(Place::<256, 6>::default());
    assert!(Place::<256, 7>::REFUSAL.is_some());
}
