use super::*;
use crate::messages::{Issued, OutstandingMessage, WqeCompletion, WqeHeader, WqeKind};
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, random};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS};
use rnic_messages::sizes::EPOCH_BITS;
use rnic_messages::transmit::TransmitRequest;

/// Queue pair of which acknowledge has closed generation 1.
const CLOSED: u64 = 0x3ff;

fn is_closed(header: &WqeHeader) -> bool {
    header.queue_pair == CLOSED && header.generation == 1
}

fn random_packet(random: &mut Random) -> Packet {
    let starts = random.random_bool(0.6);
    let status = match random.random_range(0..20) {
        _ if !starts => CompletionStatus::Success as u64,
        0 => CompletionStatus::LocalQueuePairOperation as u64,
        1 => CompletionStatus::Flushed as u64,
        _ => CompletionStatus::Success as u64,
    };
    let is_read = starts && random.random_bool(0.2);
    let is_first = u64::from(starts && random.random_bool(0.1));
    let inline_count =
        if status == CompletionStatus::Success as u64 && starts && !is_read && random.random_bool(0.3) {
            random.random_range(1..3)
        } else {
            0
        };
    Packet {
        header: WqeHeader {
            queue_pair: bits(0x3fc + random.random_range(0..4)),
            generation: bits(random.random_range(0..2)),
            epoch: bits(random.random_range(0..10) / 9),
            is_replay: is_first < 1 && random.random_bool(0.2),
            is_empty: random.random_bool(0.1),
            is_first: is_first == 1,
            ends_burst: random.random(),
            is_open: is_read && random.random_bool(0.9),
            last_psn: Stimulus::sample(random),
            pool_slot: Stimulus::sample(random),
            message_count: Stimulus::sample(random),
            next_slot: Stimulus::sample(random),
        },
        completion: WqeCompletion {
            has_wr_id: random.random(),
            wr_id: Stimulus::sample(random),
            is_signalled: random.random(),
            status: bits(status),
            reason: Stimulus::sample(random),
        },
        kind: WqeKind {
            is_write: !is_read && random.random(),
            is_read,
            is_atomic: is_read && random.random_bool(0.4),
            is_compare: random.random(),
            is_local: starts && !is_read && inline_count == 0 && random.random_bool(0.25),
        },
        starts,
        ends_turn: random.random(),
        psn: Stimulus::sample(random),
        opcode: Stimulus::sample(random),
        solicited: random.random(),
        ack_request: random.random(),
        extended_or_key: Stimulus::sample(random),
        payload_bytes: Stimulus::sample(random),
        inline_count: bits(inline_count),
        request_count: bits(if inline_count == 0 { random.random_range(0..3) } else { 0 }),
        is_listed: false,
        first_length: Stimulus::sample(random),
        second_length: Stimulus::sample(random),
    }
}

#[test]
fn messages_are_written_into_the_pool_and_sent_in_order() {
    let mut random = random();
    // Commands that continue, READs issued, packets dropped, WQEs refused, access checks failed, commands,
    // invalidations.
    let mut seen = [0; 7];
    for stalls in Stalls::ALL {
        let mut packets: Vec<_> = (0..1000).map(|_| random_packet(&mut random)).collect();
        packets.last_mut().unwrap().header.ends_burst = true;
        let (mut unsent, mut next) = ([bits::<24>(0); 4], [bits::<24>(0); 4]);
        let (mut failed_psn, mut epochs) = ([bits::<24>(0); 4], [bits::<EPOCH_BITS>(0); 4]);
        let mut next_psns = vec![];
        let (mut reads, mut opened) = ([bits::<READ_COUNT_BITS>(0); 4], vec![]);
        let (mut answers, mut inline, mut commands, mut slots) = (vec![], vec![], vec![], vec![]);
        let mut ends = vec![];
        let (mut messages, mut says, mut kicks, mut failed) = (vec![], vec![], vec![], [false; 4]);
        // Packets that were counted in `issued` when each command leaves.
        let mut says_of = vec![];
        let mut parts = vec![];
        let mut repeated = 0;
        let (mut refused, mut protected, mut bursts, mut turns, mut vanished) = (0, 0, 0u64, 0u64, 0);
        for packet in &mut packets {
            if packet.header.is_empty {
                (packet.request_count, packet.inline_count, packet.header.ends_burst) =
                    (bits(0), bits(0), true);
            }
            if packet.kind.is_local {
                packet.request_count = bits(0);
            }
            bursts += u64::from(packet.header.ends_burst);
            turns += u64::from(packet.ends_turn);
            if packet.header.is_empty {
                continue;
            }
            let mut lengths = vec![packet.first_length, packet.second_length];
            packet.is_listed = packet.request_count == 1 && !packet.kind.is_read && random.random_bool(0.4);
            if packet.is_listed {
                lengths = (0..random.random_range(2..=6)).map(|_| Stimulus::sample(&mut random)).collect();
                lengths[0] = packet.first_length;
                let last = lengths.len() - 1;
                let part = |index: usize| SgePart { length: lengths[index], is_last: index == last };
                parts.extend((1..=last).map(part));
            }
            let keys = if packet.is_listed { lengths.len() as u64 } else { packet.request_count.to_u64() };
            let mine: Vec<_> = (0..keys)
                .map(|_| AccessAnswer {
                    ok: random.random_bool(if packet.is_listed { 0.97 } else { 0.9 }),
                    device_address: Stimulus::sample(&mut random),
                })
                .collect();
            let data: Vec<Bits<SLOT_BITS>> =
                (0..packet.inline_count.to_u64()).map(|_| Stimulus::sample(&mut random)).collect();
            let number = packet.header.queue_pair.to_u64() as usize & 3;
            let is_before = |psn: Bits<24>, other: Bits<24>| (psn - other).get_bit(23);
            let failed = &mut failed[number];
            *failed &= !packet.header.is_first;
            let is_replay = packet.header.is_replay;
            let is_new = packet.starts && !is_replay;
            // Nothing is acknowledged but the PSNs before zero.
            let last_psn = if packet.kind.is_read { packet.header.last_psn } else { packet.psn };
            let is_over = is_replay && is_before(last_psn, bits(0));
            let is_stale = packet.header.epoch != 0 || is_over || is_closed(&packet.header);
            let had_failed = *failed && !(is_replay && is_before(packet.psn, failed_psn[number]));
            let status = if had_failed || packet.completion.status == CompletionStatus::Flushed as u64 {
                CompletionStatus::Flushed as u64
            } else if packet.completion.status != CompletionStatus::Success as u64 && !(is_replay && is_stale)
            {
                refused += 1;
                packet.completion.status.to_u64()
            } else if is_stale || mine.iter().all(|answer| answer.ok) {
                CompletionStatus::Success as u64
            } else {
                protected += 1;
                CompletionStatus::LocalProtection as u64
            };
            let is_right = status == CompletionStatus::Success as u64;
            if !is_right && status != CompletionStatus::Flushed as u64 {
                (*failed, failed_psn[number]) = (true, packet.psn);
            }
            let message = OutstandingMessage {
                generation: packet.header.generation,
                last_psn: packet.header.last_psn,
                next_slot: packet.header.next_slot,
                is_open: packet.header.is_open,
                completion: WqeCompletion {
                    status: bits(status),
                    reason: if status == CompletionStatus::LocalQueuePairOperation as u64 {
                        packet.completion.reason
                    } else {
                        bits(0)
                    },
                    ..packet.completion
                },
                kind: WqeKind {
                    is_local: packet.kind.is_local && status == CompletionStatus::Success as u64,
                    ..packet.kind
                },
                length: if packet.kind.is_atomic {
                    bits(8)
                } else {
                    bits((packet.extended_or_key.get_bits::<32>(96).to_u64() as u32).swap_bytes().into())
                },
            };
            if packet.header.is_open {
                if is_right && !(is_stale && is_replay) {
                    let slot = reads[number].get_bits::<READ_SLOT_BITS>(0);
                    opened.push(IssuedRead {
                        queue_pair: packet.header.queue_pair,
                        generation: packet.header.generation,
                        slot,
                        is_replay,
                    });
                }
                reads[number] = reads[number] + u64::from(!is_replay);
            }
            let is_sent = is_right && !packet.kind.is_local && !is_stale;
            if packet.header.is_first {
                (unsent[number], next[number]) = (packet.psn, packet.psn);
            }
            let is_repeated = is_replay && is_before(packet.psn, unsent[number]);
            if is_sent {
                next[number] = if packet.kind.is_read { packet.header.last_psn + 1 } else { packet.psn + 1 };
                if is_before(unsent[number], next[number]) {
                    unsent[number] = next[number];
                }
                repeated += usize::from(is_repeated);
            }
            if is_sent || packet.header.is_first {
                epochs[number] = packet.header.epoch;
            }
            next_psns.push(next[number]);
            let issued = Issued {
                count: packet.header.message_count,
                reads: reads[number],
                unsent_psn: unsent[number],
                next_psn: next[number],
                epoch: epochs[number],
                generation: packet.header.generation,
            };
            messages.push(is_new.then_some((packet.header.pool_slot, message)));
            says.push((packet.header.queue_pair, issued));
            if is_right && packet.kind.is_local && !is_replay {
                ends.push(Invalidation {
                    queue_pair: packet.header.queue_pair,
                    generation: packet.header.generation,
                    key: packet.extended_or_key.get_bits::<32>(0),
                    domain: packet.extended_or_key.get_bits::<24>(32),
                });
            } else if is_sent {
                let span = |index: usize, length| match mine.get(index) {
                    Some(answer) => HostSpan { address: answer.device_address, length },
                    None => HostSpan::default(),
                };
                let command = GatherCommand {
                    is_mark: false,
                    headers: TransmitRequest {
                        queue_pair: packet.header.queue_pair,
                        generation: packet.header.generation,
                        opcode: packet.opcode,
                        solicited: packet.solicited,
                        ack_request: packet.ack_request,
                        asks_if_newest: true,
                        psn: packet.psn,
                        extended: packet.extended_or_key,
                        payload_bytes: packet.payload_bytes,
                        is_repeated,
                        is_response: false,
                        ends_response: false,
                        next_psn: next[number],
                        epoch: epochs[number],
                    },
                    is_inline: !data.is_empty(),
                    continues: packet.is_listed,
                    span_count: if packet.kind.is_read { bits(0) } else { packet.request_count },
                    first: span(0, lengths[0]),
                    second: span(1, packet.second_length),
                };
                commands.push(command);
                says_of.push(says.len());
                if packet.is_listed {
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
                let is_flushed = status == CompletionStatus::Flushed as u64;
                let fails = !is_right && !is_flushed && !is_new;
                let tells = !is_right && (is_new || fails);
                vanished += usize::from(!tells);
                if tells {
                    kicks.push((packet.header.queue_pair, packet.header.generation, fails, packet.psn));
                }
            }
            answers.extend(mine);
            inline.extend(data);
        }
        let mut bench = Bench::clocked(Issue::default(), |block| &mut block.clock).in_lock_step();
        bench.block.retired.next = RetiredWrite {
            queue_pair: bits(CLOSED),
            generation: bits(1),
            is_closed: true,
            valid: true,
            ..RetiredWrite::default()
        };
        bench.tick();
        bench.block.retired.next.valid = false;
        let marks: Vec<_> = (0..50)
            .map(|_| Mark {
                queue_pair: Stimulus::sample(&mut random),
                generation: Stimulus::sample(&mut random),
            })
            .collect();
        let mut mark_source = Source::of_tokens([], stalls);
        let (mut marks_given, mut marks_left, mut continues) = (0, 0, false);
        let mut item_source = Source::of_tokens(packets.clone(), stalls);
        let mut answer_source = Source::of_tokens(answers, stalls);
        let mut part_source = Source::of_tokens(parts, stalls);
        let mut inline_source = Source::new(inline, stalls);
        let (mut gather, mut inline_sink, mut kick) =
            (Sink::new(stalls), Sink::new(stalls), Sink::new(stalls));
        let mut opening = Sink::new(stalls);
        let mut ending = Sink::new(stalls);
        // PSN of the cycle before.
        let mut issued_psn = None;
        let (mut written, mut refusals, mut protections, mut retransmissions, mut cycles) = (0, 0, 0, 0, 0);
        while written < says.len() || bench.block.burst_count.val() != bursts || marks_left < marks.len() {
            cycles += 1;
            if marks_given < marks.len() && random.random_bool(0.02) {
                mark_source.push(marks[marks_given]);
                marks_given += 1;
            }
            mark_source.drive(&mut bench.block.mark, &mut random);
            assert!(cycles < 60_000, "{written} of {}", says.len());
            item_source.drive(&mut bench.block.packet, &mut random);
            answer_source.drive(&mut bench.block.access_answer, &mut random);
            part_source.drive(&mut bench.block.sge_parts, &mut random);
            inline_source.drive(&mut bench.block.inline_data, &mut random);
            gather.drive(&mut bench.block.gather, &mut random);
            inline_sink.drive(&mut bench.block.inline_slot, &mut random);
            kick.drive(&mut bench.block.local_completion, &mut random);
            opening.drive(&mut bench.block.issued_read, &mut random);
            ending.drive(&mut bench.block.invalidate, &mut random);
            bench.settle();
            item_source.sample(&bench.block.packet);
            mark_source.sample(&bench.block.mark);
            answer_source.sample(&bench.block.access_answer);
            part_source.sample(&bench.block.sge_parts);
            inline_source.sample(&bench.block.inline_data);
            inline_sink.sample(&bench.block.inline_slot);
            kick.sample(&bench.block.local_completion);
            opening.sample(&bench.block.issued_read);
            ending.sample(&bench.block.invalidate);
            let is_mark = bench.block.gather.beat.val().is_mark;
            if bench.block.gather.valid.val() && !is_mark {
                let number = gather.received.len() - marks_left;
                assert!(written >= says_of[number], "a packet is sent before its message is in the pool");
            }
            let command = gather.sample(&bench.block.gather);
            if let Some(command) = command
                && is_mark
            {
                let Mark { queue_pair, generation } = marks[marks_left];
                let headers = TransmitRequest { queue_pair, generation, ..TransmitRequest::default() };
                assert_eq!(command, GatherCommand { is_mark, headers, ..GatherCommand::default() });
                assert!(!continues, "a mark is behind all commands of a packet");
                marks_left += 1;
            } else if let Some(mut command) = command {
                continues = command.continues;
                let expected = commands[gather.received.len() - 1 - marks_left];
                if command.span_count < 2 || command.continues {
                    command.second = expected.second;
                }
                if command.span_count == 0 {
                    command.first = expected.first;
                }
                assert_eq!(command, expected);
            }
            let block = &bench.block;
            assert_eq!(block.issued_psn.valid.val().then(|| block.issued_psn.value.val()), issued_psn);
            let IssuedWrite { queue_pair, issued, valid } = block.issued.val();
            issued_psn = valid.then(|| IssuedPsn { queue_pair, psn: next_psns[written] });
            retransmissions += usize::from(block.counts.val().packets_retransmitted);
            refusals += usize::from(block.counts.val().work_refused);
            protections += usize::from(block.counts.val().local_protection);
            let message = block.message.val();
            if valid {
                assert_eq!(message.valid.then_some((message.pool_slot, message.message)), messages[written]);
                assert_eq!((queue_pair, issued), says[written]);
                written += 1;
            } else {
                assert!(!message.valid);
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
        assert_eq!(gather.received.len(), commands.len() + marks.len());
        assert_eq!((refusals, protections, retransmissions), (refused, protected, repeated));
        if stalls == Stalls::None {
            println!("{cycles} cycles for {} packets", packets.len());
        }
    }
    let least = [50, 40, 80, 12, 60, 800, 40];
    assert!(seen.iter().zip(least).all(|(&seen, least)| seen > least), "{seen:?} of {least:?}");
}
