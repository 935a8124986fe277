use super::*;
use crate::constants::LOCAL_OPERATION;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, random};

fn random_item(random: &mut Random) -> Packet {
    let starts = random.random_bool(0.6);
    let status = match random.random_range(0..20) {
        _ if !starts => SUCCESS,
        0 => LOCAL_OPERATION,
        1 => FLUSHED,
        _ => SUCCESS,
    };
    let is_read = starts && random.random_bool(0.2);
    let inline_count = if status == SUCCESS && starts && !is_read && random.random_bool(0.3) {
        random.random_range(1..3)
    } else {
        0
    };
    Packet {
        queue_pair: bits(0x3fc + random.random_range(0..4)),
        generation: bits(random.random_range(0..2)),
        is_empty: random.random_bool(0.1),
        is_first: starts && random.random_bool(0.1),
        starts,
        ends_burst: random.random(),
        ends_turn: random.random(),
        last_psn: Stimulus::sample(random),
        psn: Stimulus::sample(random),
        place: Stimulus::sample(random),
        message_count: Stimulus::sample(random),
        next_slot: Stimulus::sample(random),
        has_wr_id: random.random(),
        wr_id: Stimulus::sample(random),
        status: bits(status),
        reason: Stimulus::sample(random),
        is_signalled: random.random(),
        is_write: !is_read && random.random(),
        is_read,
        is_atomic: is_read && random.random_bool(0.4),
        is_compare: random.random(),
        is_open: is_read && random.random_bool(0.9),
        is_local: starts && !is_read && inline_count == 0 && random.random_bool(0.25),
        opcode: Stimulus::sample(random),
        solicited: random.random(),
        ack_request: random.random(),
        extended: Stimulus::sample(random),
        payload_bytes: Stimulus::sample(random),
        inline_count: bits(inline_count),
        request_count: bits(if inline_count == 0 { random.random_range(0..3) } else { 0 }),
        is_listed: false,
        first_length: Stimulus::sample(random),
        second_length: Stimulus::sample(random),
    }
}

#[test]
fn messages_are_written_down_and_sent_in_order() {
    let mut random = random();
    // Commands that go on, READs opened, packets that vanish, entries refused and protected, commands,
    // keys that are to end.
    let mut seen = [0; 7];
    for stalls in Stalls::ALL {
        let mut items: Vec<_> = (0..1000).map(|_| random_item(&mut random)).collect();
        items.last_mut().unwrap().ends_burst = true;
        let mut unsent = [bits::<24>(0); 4];
        let (mut reads, mut opened) = ([bits::<READ_COUNT_BITS>(0); 4], vec![]);
        let (mut answers, mut inline, mut commands, mut slots) = (vec![], vec![], vec![], vec![]);
        let mut ends = vec![];
        let (mut messages, mut says, mut kicks, mut failed) = (vec![], vec![], vec![], [false; 4]);
        // How many packets have been said something of when a command comes.
        let mut says_of = vec![];
        let mut parts = vec![];
        let (mut refused, mut protected, mut bursts, mut turns, mut vanished) = (0, 0, 0u64, 0u64, 0);
        for item in &mut items {
            if item.is_empty {
                (item.request_count, item.inline_count, item.ends_burst) = (bits(0), bits(0), true);
            }
            if item.is_local {
                item.request_count = bits(0);
            }
            bursts += u64::from(item.ends_burst);
            turns += u64::from(item.ends_turn);
            if item.is_empty {
                continue;
            }
            let mut lengths = vec![item.first_length, item.second_length];
            item.is_listed = item.request_count == 1 && !item.is_read && random.random_bool(0.4);
            if item.is_listed {
                lengths = (0..random.random_range(2..=6)).map(|_| Stimulus::sample(&mut random)).collect();
                lengths[0] = item.first_length;
                let last = lengths.len() - 1;
                let part = |index: usize| SgePart { length: lengths[index], is_last: index == last };
                parts.extend((1..=last).map(part));
            }
            let keys = if item.is_listed { lengths.len() as u64 } else { item.request_count.to_u64() };
            let mine: Vec<_> = (0..keys)
                .map(|_| AccessAnswer {
                    ok: random.random_bool(if item.is_listed { 0.97 } else { 0.9 }),
                    device_address: Stimulus::sample(&mut random),
                })
                .collect();
            let data: Vec<Bits<SLOT_BITS>> =
                (0..item.inline_count.to_u64()).map(|_| Stimulus::sample(&mut random)).collect();
            let number = item.queue_pair.to_u64() as usize & 3;
            let failed = &mut failed[number];
            *failed &= !item.is_first;
            let had_failed = *failed;
            let status = if *failed || item.status == FLUSHED {
                FLUSHED
            } else if item.status != SUCCESS {
                refused += 1;
                item.status.to_u64()
            } else if mine.iter().all(|answer| answer.ok) {
                SUCCESS
            } else {
                protected += 1;
                LOCAL_PROTECTION
            };
            *failed |= status != SUCCESS && status != FLUSHED;
            let message = OutstandingMessage {
                generation: item.generation,
                last_psn: item.last_psn,
                next_slot: item.next_slot,
                has_wr_id: item.has_wr_id,
                wr_id: item.wr_id,
                is_signalled: item.is_signalled,
                is_write: item.is_write,
                is_read: item.is_read,
                is_atomic: item.is_atomic,
                is_compare: item.is_compare,
                is_open: item.is_open,
                is_local: item.is_local && status == SUCCESS,
                length: if item.is_atomic {
                    bits(8)
                } else {
                    bits((item.extended.get_bits::<32>(96).to_u64() as u32).swap_bytes().into())
                },
                status: bits(status),
                reason: if status == LOCAL_OPERATION { item.reason } else { bits(0) },
            };
            if item.is_open {
                if status == SUCCESS {
                    let slot = reads[number].get_bits::<READ_SLOT_BITS>(0);
                    opened.push(IssuedRead {
                        queue_pair: item.queue_pair,
                        generation: item.generation,
                        slot,
                    });
                }
                reads[number] = reads[number] + 1;
            }
            let is_sent = status == SUCCESS && !item.is_local;
            if is_sent {
                unsent[number] = if item.is_read { item.last_psn + 1 } else { item.psn + 1 };
            } else if !had_failed {
                unsent[number] = item.psn;
            }
            let issued = Issued {
                count: item.message_count,
                reads: reads[number],
                unsent_psn: unsent[number],
                generation: item.generation,
            };
            messages.push(item.starts.then_some((item.place, message)));
            says.push((item.queue_pair, issued));
            if status == SUCCESS && item.is_local {
                ends.push(Invalidation {
                    queue_pair: item.queue_pair,
                    generation: item.generation,
                    key: item.extended.get_bits::<32>(0),
                    domain: item.extended.get_bits::<24>(32),
                });
            } else if is_sent {
                let span = |index: usize, length| match mine.get(index) {
                    Some(answer) => HostSpan { address: answer.device_address, length },
                    None => HostSpan::default(),
                };
                let command = GatherCommand {
                    headers: TransmitRequest {
                        queue_pair: item.queue_pair,
                        generation: item.generation,
                        opcode: item.opcode,
                        solicited: item.solicited,
                        ack_request: item.ack_request,
                        asks_if_newest: true,
                        psn: item.psn,
                        extended: item.extended,
                        payload_bytes: item.payload_bytes,
                        is_response: false,
                        ends_response: false,
                    },
                    is_inline: !data.is_empty(),
                    continues: item.is_listed,
                    span_count: if item.is_read { bits(0) } else { item.request_count },
                    first: span(0, lengths[0]),
                    second: span(1, item.second_length),
                };
                commands.push(command);
                says_of.push(says.len());
                if item.is_listed {
                    commands.extend((1..lengths.len()).map(|index| GatherCommand {
                        first: span(index, lengths[index]),
                        continues: index + 1 < lengths.len(),
                        ..command
                    }));
                    says_of.resize(commands.len(), says.len());
                }
                let last = data.len();
                slots.extend(data.iter().enumerate().map(|(index, &data)| Slot {
                    data,
                    last: index + 1 == last,
                    error: false,
                }));
            } else {
                let fails = status == LOCAL_PROTECTION && !item.starts;
                vanished += usize::from(!item.starts && !fails);
                if item.starts || fails {
                    kicks.push((item.queue_pair, item.generation, fails, item.psn));
                }
            }
            answers.extend(mine);
            inline.extend(data);
        }
        let mut bench = Bench::clocked(Issue::default(), |block| &mut block.clock).in_lock_step();
        let mut item_source = Source::of_tokens(items.clone(), stalls);
        let mut answer_source = Source::of_tokens(answers, stalls);
        let mut part_source = Source::of_tokens(parts, stalls);
        let mut inline_source = Source::new(inline, stalls);
        let (mut gather, mut inline_sink, mut kick) =
            (Sink::new(stalls), Sink::new(stalls), Sink::new(stalls));
        let mut opening = Sink::new(stalls);
        let mut ending = Sink::new(stalls);
        // What the cycle before has said of a queue pair.
        let mut frontier = None;
        let (mut written, mut refusals, mut protections, mut cycles) = (0, 0, 0, 0);
        while written < says.len() || bench.block.burst_count.val() != bursts {
            cycles += 1;
            assert!(cycles < 60_000, "{written} of {}", says.len());
            item_source.drive(&mut bench.block.packet, &mut random);
            answer_source.drive(&mut bench.block.answers, &mut random);
            part_source.drive(&mut bench.block.parts, &mut random);
            inline_source.drive(&mut bench.block.inline_data, &mut random);
            gather.drive(&mut bench.block.gather, &mut random);
            inline_sink.drive(&mut bench.block.inline_slot, &mut random);
            kick.drive(&mut bench.block.kick, &mut random);
            opening.drive(&mut bench.block.opened, &mut random);
            ending.drive(&mut bench.block.invalidate, &mut random);
            bench.settle();
            item_source.sample(&bench.block.packet);
            answer_source.sample(&bench.block.answers);
            part_source.sample(&bench.block.parts);
            inline_source.sample(&bench.block.inline_data);
            inline_sink.sample(&bench.block.inline_slot);
            kick.sample(&bench.block.kick);
            opening.sample(&bench.block.opened);
            ending.sample(&bench.block.invalidate);
            if bench.block.gather.valid.val() {
                let number = gather.received.len();
                assert!(written >= says_of[number], "a packet is seen before it is written down");
            }
            if let Some(mut command) = gather.sample(&bench.block.gather) {
                let expected = commands[gather.received.len() - 1];
                if command.span_count < 2 || command.continues {
                    command.second = expected.second;
                }
                if command.span_count == 0 {
                    command.first = expected.first;
                }
                assert_eq!(command, expected);
            }
            let block = &bench.block;
            assert_eq!(block.frontier_valid.val().then(|| block.frontier.val()), frontier);
            frontier = block.issued_valid.val().then(|| IssuedPsn {
                queue_pair: block.issued_queue_pair.val(),
                psn: block.issued.val().unsent_psn,
            });
            refusals += usize::from(block.counts_work_refused.val());
            protections += usize::from(block.counts_local_protection.val());
            if block.issued_valid.val() {
                let message =
                    block.message_valid.val().then(|| (block.message_place.val(), block.message.val()));
                assert_eq!(message, messages[written]);
                let (queue_pair, issued) = says[written];
                assert_eq!((block.issued_queue_pair.val(), block.issued.val()), (queue_pair, issued));
                written += 1;
            } else {
                assert!(!block.message_valid.val());
            }
            bench.tick();
        }
        assert_eq!(bench.block.turn_count.val(), turns);
        for _ in 0..20 {
            inline_source.drive(&mut bench.block.inline_data, &mut random);
            inline_sink.drive(&mut bench.block.inline_slot, &mut random);
            bench.settle();
            inline_source.sample(&bench.block.inline_data);
            inline_sink.sample(&bench.block.inline_slot);
            bench.tick();
        }
        assert_eq!(inline_sink.received, slots);
        assert!(part_source.is_done(), "every part is taken");
        let continued = commands.iter().filter(|command| command.continues).count();
        let counts = [continued, opened.len(), vanished, refused, protected, commands.len(), ends.len()];
        (0..7).for_each(|kind| seen[kind] += counts[kind]);
        assert_eq!(opening.received, opened);
        assert_eq!(ending.received, ends);
        let said: Vec<_> = kick
            .received
            .iter()
            .map(|kick: &LocalCompletion| (kick.queue_pair, kick.generation, kick.has_failed, kick.psn))
            .collect();
        assert_eq!(said, kicks);
        assert_eq!(gather.received.len(), commands.len());
        assert_eq!((refusals, protections), (refused, protected));
        if stalls == Stalls::None {
            println!("{cycles} cycles for {} items", items.len());
        }
    }
    let least = [50, 40, 80, 12, 60, 800, 40];
    assert!(seen.iter().zip(least).all(|(&seen, least)| seen > least), "{seen:?} of {least:?}");
}
