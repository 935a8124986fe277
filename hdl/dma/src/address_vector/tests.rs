use super::*;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, Waves, beats_of, frames_of, random};
use rnic_host::testing::generates;
use rnic_messages::path::Path;
use std::collections::HashMap;

fn bench<const DATA: usize, const BYTES: usize>() -> Bench<AddressVector<DATA, BYTES>> {
    Bench::clocked(AddressVector::default(), |block| &mut block.clock)
}

fn token(queue_pair: u64, generation: u64, psn: u64, payload_bytes: u64) -> TransmitRequest {
    TransmitRequest {
        queue_pair: bits(queue_pair),
        generation: bits(generation),
        psn: bits(psn),
        payload_bytes: bits(payload_bytes),
        ..Default::default()
    }
}

fn any_token(psn: u64, payload_bytes: u64, random: &mut Random) -> TransmitRequest {
    TransmitRequest {
        opcode: Stimulus::sample(random),
        solicited: random.random(),
        ack_request: random.random(),
        asks_if_newest: random.random(),
        extended: Stimulus::sample(random),
        is_response: random.random(),
        ..token(random.random_range(0..4), random.random_range(0..2), psn, payload_bytes)
    }
}

fn any_event(random: &mut Random) -> SetupEvent {
    let kinds = [SetupKind::Life, SetupKind::Restart, SetupKind::Path, SetupKind::Probe];
    let path = Path {
        destination_qp: Stimulus::sample(random),
        is_ipv6: random.random(),
        vlan_present: random.random(),
        destination_address: Stimulus::sample(random),
        destination_mac: Stimulus::sample(random),
        vlan_control: Stimulus::sample(random),
        traffic_class: Stimulus::sample(random),
        hop_limit: Stimulus::sample(random),
        flow_label: Stimulus::sample(random),
        source_port: Stimulus::sample(random),
        source_address_index: bits(random.random_range(0..4)),
        partition_key: Stimulus::sample(random),
        ..Default::default()
    };
    let is_alive = random.random_bool(0.9);
    SetupEvent {
        kind: kinds[random.random_range(0..4)],
        queue_pair: bits(random.random_range(0..4)),
        state: bits(if is_alive { QpState::ReadyToSend as u64 } else { QpState::Reset as u64 }),
        generation: bits(random.random_range(0..2)),
        psn: Stimulus::sample(random),
        path,
        ..SetupEvent::default()
    }
}

fn any_source(random: &mut Random) -> SourceAddressWrite {
    SourceAddressWrite {
        index: bits(random.random_range(0..4)),
        valid: random.random_bool(0.9),
        address: Stimulus::sample(random),
        mac: Stimulus::sample(random),
    }
}

/// The tables as a program sees them, with every value that the source addresses ever had.
#[derive(Default)]
struct Model {
    queue_pairs: HashMap<u64, SetupEvent>,
    /// By queue pair.
    frontiers: HashMap<u64, u64>,
    /// Tokens that ask for an answer only because they are the newest.
    asked: usize,
    sources: HashMap<u64, Vec<(u64, SourceAddressWrite)>>,
    taken: Vec<Taken>,
}

/// A token that was taken, and the path it had then.
struct Taken {
    cycle: u64,
    token: TransmitRequest,
    event: Option<SetupEvent>,
}

impl Model {
    fn take(&mut self, cycle: u64, token: TransmitRequest) {
        let queue_pair = token.queue_pair.to_u64();
        let event = self.queue_pairs.get(&queue_pair).copied();
        let is_newest = self.frontiers.get(&queue_pair) == Some(&(token.psn.to_u64() + 1));
        let ack_request = token.ack_request || (token.asks_if_newest && is_newest);
        self.asked += usize::from(ack_request && !token.ack_request);
        let token = TransmitRequest { ack_request, ..token };
        self.taken.push(Taken { cycle, token, event });
    }

    /// The path, if the token is to be sent for all that its queue pair says.
    fn path(taken: &Taken) -> Option<Path> {
        let event = taken.event.filter(|event| event.state.to_u64() != QpState::Reset as u64)?;
        (event.generation == taken.token.generation).then_some(event.path)
    }

    /// The values of an entry of source addresses between two cycles.
    fn sources(&self, index: Bits<4>, from: u64, to: u64) -> Vec<SourceAddressWrite> {
        let versions = self.sources.get(&index.to_u64()).map_or(&[][..], |versions| versions);
        let mut seen = Vec::new();
        let mut last = SourceAddressWrite::default();
        for &(cycle, version) in versions {
            if cycle >= from {
                seen.push(last);
            }
            if cycle > to {
                return seen;
            }
            last = version;
        }
        seen.push(last);
        seen
    }

    /// Checks one packet against the tokens that were taken next; returns its index and how many were dropped before it.
    fn check(&self, next: usize, cycle: u64, sent: Option<&TransmitToken>) -> usize {
        for (index, taken) in self.taken.iter().enumerate().skip(next) {
            let path = Self::path(taken);
            let sources = path.map(|path| self.sources(path.source_address_index, taken.cycle, cycle));
            if sent.is_some_and(|sent| sent.packet.psn == taken.token.psn) {
                let (sent, path) = (sent.unwrap(), path.expect("it was not stale"));
                let fits = |source: &SourceAddressWrite| {
                    source.valid && sent.packet == packet(&taken.token, &path, source)
                };
                assert!(sources.unwrap().iter().any(fits), "{sent:?} for {:?}, {path:?}", taken.token);
                assert_eq!(sent.payload_offset, bits(0));
                return index;
            }
            let may_drop = sources.is_none_or(|sources| sources.iter().any(|source| !source.valid));
            assert!(may_drop, "{:?} was dropped", taken.token);
        }
        assert!(sent.is_none(), "a packet of no token: {sent:?}");
        self.taken.len()
    }
}

/// The packet of a token, as the protocol has it.
fn packet(token: &TransmitRequest, path: &Path, source: &SourceAddressWrite) -> PacketToken {
    let common = PacketToken {
        destination_mac: path.destination_mac,
        source_mac: source.mac,
        is_ipv6: path.is_ipv6,
        traffic_class: path.traffic_class & 0xfc,
        hop_limit: path.hop_limit,
        source_address: source.address,
        destination_address: path.destination_address,
        source_port: path.source_port,
        opcode: token.opcode,
        solicited: token.solicited,
        migrated: true,
        partition_key: path.partition_key,
        destination_qp: path.destination_qp,
        ack_request: token.ack_request,
        psn: token.psn,
        extended: token.extended,
        payload_bytes: token.payload_bytes,
        ..Default::default()
    };
    let tagged = if path.vlan_present {
        PacketToken { vlan_present: true, vlan_control: path.vlan_control, ..common }
    } else {
        common
    };
    if path.is_ipv6 {
        PacketToken { flow_label: path.flow_label, ..tagged }
    } else {
        PacketToken { identification: bits(token.psn.to_u64() & 0xffff), ..tagged }
    }
}

fn run<const DATA: usize, const BYTES: usize>(
    stalls: Stalls,
    changes: f64,
    random: &mut Random,
) -> [usize; 3] {
    let mut bench = bench::<DATA, BYTES>().in_lock_step();
    let count = 150;
    let mut psns = 0..;
    let replies: Vec<_> = (0..count).map(|_| any_token(psns.next().unwrap(), 0, random)).collect();
    let requests: Vec<_> = (0..count)
        .map(|_| {
            let payload_bytes = random.random_range(0..4) * random.random_range(0..50);
            any_token(psns.next().unwrap(), payload_bytes, random)
        })
        .collect();
    let coming = requests.clone();
    let mut payloads = HashMap::new();
    let mut beats = Vec::new();
    for token in requests.iter().filter(|token| token.payload_bytes.any()) {
        let payload: Vec<u8> = (0..token.payload_bytes.to_u64()).map(|_| random.random()).collect();
        beats.extend(beats_of::<DATA, BYTES>(&payload, random));
        payloads.insert(token.psn.to_u64(), payload);
    }
    let mut sources = (
        Source::showing_next(replies, stalls),
        Source::showing_next(requests, stalls),
        Source::new(beats, stalls),
    );
    let mut sinks = (Sink::new(stalls), Sink::new(stalls));
    let mut model = Model::default();
    let (mut next, mut sent, mut dropped, mut idle, mut cycle) = (0, Vec::new(), 0, 0, 0);
    let mut taken_requests = 0;
    while idle < 40 {
        assert!(cycle < 20_000, "headers is stuck; stalls: {stalls:?}");
        let block = &mut bench.block;
        sources.0.drive(&mut block.reply, random);
        sources.1.drive(&mut block.request, random);
        sources.2.drive(&mut block.payload, random);
        sinks.0.drive(&mut block.token, random);
        sinks.1.drive(&mut block.payload_out, random);
        let changes = if cycle < 30 { 0.5 } else { changes };
        // The frontier arrives before its packet; in half of the cases it is the packet itself.
        let soon = coming[(taken_requests + random.random_range(0..4)).min(coming.len() - 1)];
        let psn = soon.psn + random.random_range(1..3);
        block.frontier.valid.next = random.random();
        block.frontier.value.next = IssuedPsn { queue_pair: soon.queue_pair, psn };
        block.setup.valid.next = random.random_bool(changes);
        block.setup.beat.next = any_event(random);
        block.source_address_write.valid.next = random.random_bool(changes);
        block.source_address_write.value.next = any_source(random);
        bench.settle();
        let block = &bench.block;
        assert!(block.setup.ready.val(), "setup events never wait");
        let reply = sources.0.sample(&block.reply).then(|| block.reply.beat.val());
        let request = sources.1.sample(&block.request).then(|| block.request.beat.val());
        assert!(reply.is_none() || request.is_none());
        taken_requests += usize::from(request.is_some());
        idle += 1;
        if let Some(token) = reply.or(request) {
            model.take(cycle, token);
            idle = 0;
        }
        if let Some(token) = sinks.0.sample(&block.token) {
            let found = model.check(next, cycle, Some(&token));
            sent.push(token.packet.psn.to_u64());
            next = found + 1;
            idle = 0;
        }
        let has_gone = sources.2.sample(&block.payload);
        if sinks.1.sample(&block.payload_out).is_some() || has_gone {
            idle = 0;
        }
        dropped += usize::from(block.counts.val().stale_dropped);
        if block.frontier.valid.val() {
            let frontier = block.frontier.value.val();
            model.frontiers.insert(frontier.queue_pair.to_u64(), frontier.psn.to_u64());
        }
        if block.setup.valid.val() && block.setup.beat.val().kind != SetupKind::Probe {
            let event = block.setup.beat.val();
            model.queue_pairs.insert(event.queue_pair.to_u64(), event);
        }
        if block.source_address_write.valid.val() {
            let write = block.source_address_write.value.val();
            model.sources.entry(write.index.to_u64()).or_default().push((cycle, write));
        }
        bench.tick();
        cycle += 1;
    }
    model.check(next, cycle, None);
    assert_eq!(model.taken.len(), 2 * count);
    assert_eq!(sent.len() + dropped, 2 * count, "each is sent or counted");
    assert!(sources.2.is_done(), "payload of what was dropped is gone too");
    let expected: Vec<_> =
        sent.iter().filter_map(|psn| payloads.remove(psn)).map(|payload| (payload, false)).collect();
    assert_eq!(frames_of(&sinks.1.received), expected, "stalls: {stalls:?}");
    [sent.len(), dropped, model.asked]
}

fn packets_go_by_their_paths<const DATA: usize, const BYTES: usize>() {
    let mut random = random();
    let mut totals = [0; 3];
    for stalls in Stalls::ALL {
        for changes in [0.02, 0.5] {
            let counts = run::<DATA, BYTES>(stalls, changes, &mut random);
            (0..3).for_each(|kind| totals[kind] += counts[kind]);
        }
    }
    let is_plenty = totals[..2].iter().all(|&total| total > 400) && totals[2] > 30;
    assert!(is_plenty, "sent, dropped, and asking as the newest: {totals:?}");
}

#[test]
fn a_packet_is_current_in_the_generation_and_life_of_its_queue_pair() {
    for (state, generation, expected) in [
        (QpState::ReadyToSend, 3, true),
        (QpState::Error, 3, true),
        (QpState::Reset, 3, false),
        (QpState::ReadyToSend, 2, false),
        (QpState::ReadyToSend, 4, false),
    ] {
        let event =
            SetupEvent { state: bits(state as u64), generation: bits(generation), ..Default::default() };
        assert_eq!(is_current(token(0, 3, 0, 0), route_of(event)), expected, "{state:?} {generation}");
    }
}

#[test]
fn the_newest_packet_asks_for_an_acknowledgement() {
    for (psn, frontier, asks_if_newest, expected) in [
        (5, 6, true, true),
        (5, 5, true, false),
        (5, 7, true, false),
        (5, 6, false, false),
        (0xff_ffff, 0, true, true),
    ] {
        let packet = TransmitRequest { asks_if_newest, ..token(0, 0, psn, 0) };
        assert_eq!(asks_for_ack(packet, bits(frontier)), expected, "{psn} {frontier}");
        assert!(asks_for_ack(TransmitRequest { ack_request: true, ..packet }, bits(frontier)));
    }
}

#[test]
fn packets_go_by_their_paths_at_64_bits() {
    packets_go_by_their_paths::<64, 4>();
}

#[test]
fn packets_go_by_their_paths_at_512_bits() {
    packets_go_by_their_paths::<512, 7>();
}

/// Makes queue pair 0 known, with source address 0.
fn set_up<const DATA: usize, const BYTES: usize>(bench: &mut Bench<AddressVector<DATA, BYTES>>) {
    bench.block.setup.valid.next = true;
    bench.block.setup.beat.next =
        SetupEvent { state: bits(QpState::ReadyToSend as u64), generation: bits(1), ..Default::default() };
    bench.block.source_address_write.valid.next = true;
    bench.block.source_address_write.value.next = SourceAddressWrite { valid: true, ..Default::default() };
    bench.tick();
    bench.block.setup.valid.next = false;
    bench.block.source_address_write.valid.next = false;
}

#[test]
fn a_token_leaves_every_second_cycle_and_replies_take_turns_with_requests() {
    let mut random = random();
    let mut bench = bench::<512, 7>();
    set_up(&mut bench);
    let mut replies = Source::showing_next((0..100).map(|psn| token(0, 1, psn, 0)), Stalls::None);
    let mut requests = Source::showing_next((0..100).map(|psn| token(0, 1, 1000 + psn, 0)), Stalls::None);
    let mut sink = Sink::new(Stalls::None);
    for _ in 0..2 * 200 + 2 {
        replies.drive(&mut bench.block.reply, &mut random);
        requests.drive(&mut bench.block.request, &mut random);
        sink.drive(&mut bench.block.token, &mut random);
        bench.settle();
        replies.sample(&bench.block.reply);
        requests.sample(&bench.block.request);
        sink.sample(&bench.block.token);
        bench.tick();
    }
    let psns: Vec<_> = sink.received.iter().map(|token| token.packet.psn.to_u64()).collect();
    assert_eq!(psns, (0..100).flat_map(|psn| [psn, 1000 + psn]).collect::<Vec<_>>());
}

#[test]
fn a_response_is_due_when_the_replies_before_it_have_left() {
    for (is_response, has_reply, replies_gone, expected) in [
        (false, true, 0, true),
        (true, false, 0, true),
        (true, true, 0, false),
        (true, true, 1, false),
        (true, true, REPLIES_AHEAD, true),
    ] {
        let due = is_due(is_response, has_reply, bits(replies_gone));
        assert_eq!(due, expected, "{is_response} {has_reply} {replies_gone}");
    }
    for (replies_gone, waits, is_due, reply_goes, expected) in [
        (0, true, false, false, 0),
        (0, true, false, true, 1),
        (1, true, false, true, REPLIES_AHEAD),
        (0, true, true, false, REPLIES_AHEAD),
        (REPLIES_AHEAD, true, true, true, REPLIES_AHEAD),
        (REPLIES_AHEAD, false, true, false, 0),
    ] {
        let after = replies_gone_after(bits(replies_gone), waits, is_due, reply_goes);
        assert_eq!(after, bits(expected), "{replies_gone} {waits} {is_due} {reply_goes}");
    }
}

/// Replies fill the stage and the slice before it; then a response arrives, and one more reply.
#[test]
fn a_response_never_passes_the_replies_that_were_made_before_it() {
    let mut random = random();
    for turns in 0..2 {
        let mut bench = bench::<64, 4>().in_lock_step();
        set_up(&mut bench);
        let mut replies = Source::showing_next((0..9).map(|psn| token(0, 1, psn, 0)), Stalls::None);
        let before = (0..turns).map(|psn| token(0, 1, 1000 + psn, 0));
        let response = TransmitRequest { is_response: true, ..token(0, 1, 2000, 0) };
        let mut requests = Source::showing_next(before.chain([response]), Stalls::None);
        let mut sink = Sink::new(Stalls::None);
        for cycle in 0..60 {
            replies.drive(&mut bench.block.reply, &mut random);
            if cycle >= 4 {
                requests.drive(&mut bench.block.request, &mut random);
            }
            if cycle >= 20 {
                sink.drive(&mut bench.block.token, &mut random);
            }
            bench.settle();
            replies.sample(&bench.block.reply);
            requests.sample(&bench.block.request);
            sink.sample(&bench.block.token);
            bench.tick();
        }
        let psns: Vec<_> = sink.received.iter().map(|token| token.packet.psn.to_u64()).collect();
        let expected = match turns {
            0 => vec![0, 1, 2, 3, 4, 2000, 5, 6, 7, 8],
            _ => vec![0, 1, 2, 3, 1000, 4, 5, 2000, 6, 7, 8],
        };
        assert_eq!(psns, expected, "{turns} requests before the response");
    }
}

/// Packets of any size, of which most are stale: a frame that has begun never waits for payload.
#[test]
fn the_payload_of_a_token_has_no_gap() {
    let mut random = random();
    let mut bench = bench::<64, 4>().in_lock_step();
    set_up(&mut bench);
    let packets = (0..200).map(|psn| token(0, random.random_range(0..4), psn, random.random_range(0..400)));
    let packets: Vec<_> = packets.collect();
    let sizes = packets.iter().map(|packet| packet.payload_bytes.to_u64() as usize);
    let beats: Vec<_> = sizes.flat_map(|bytes| beats_of::<64, 4>(&vec![7; bytes], &mut random)).collect();
    let mut payload = Source::new(beats, Stalls::None);
    let mut requests = Source::showing_next(packets, Stalls::None);
    let mut sink = Sink::new(Stalls::None);
    // Beats of the tokens that have left, and for how long some are missing.
    let (mut missing, mut waiting, mut idle) = (0, 0, 0);
    while idle < 100 {
        let block = &mut bench.block;
        requests.drive(&mut block.request, &mut random);
        payload.drive(&mut block.payload, &mut random);
        sink.drive(&mut block.token, &mut random);
        block.payload_out.ready.next = true;
        bench.settle();
        let block = &bench.block;
        requests.sample(&block.request);
        let has_gone = payload.sample(&block.payload);
        let passes = block.payload_out.valid.val();
        waiting = if missing > 0 { waiting + 1 } else { 0 };
        // The verdict takes two cycles through its queue, and the token is composed in one of them.
        assert!(passes || waiting <= 1, "{missing} beats of a packet are missing");
        missing -= u64::from(passes);
        if let Some(token) = sink.sample(&block.token) {
            missing += token.packet.payload_bytes.to_u64().div_ceil(8);
        }
        idle = if has_gone || missing > 0 { 0 } else { idle + 1 };
        bench.tick();
    }
    assert!(payload.is_done() && missing == 0);
    assert!((20..100).contains(&sink.received.len()), "{} of 200", sink.received.len());
}

#[test]
fn setup_is_taken_while_the_wire_stalls() {
    let mut random = random();
    let mut bench = bench::<64, 4>().in_lock_step();
    set_up(&mut bench);
    bench.block.request.valid.next = true;
    bench.block.request.beat.next = token(0, 1, 7, 0);
    (0..20).for_each(|_| bench.tick());
    bench.settle();
    assert!(!bench.block.request.ready.val(), "three tokens wait");
    bench.block.setup.valid.next = true;
    bench.block.setup.beat.next = any_event(&mut random);
    bench.block.setup.beat.next.queue_pair = bits(0);
    bench.block.setup.beat.next.kind = SetupKind::Restart;
    bench.block.setup.beat.next.generation = bits(2);
    bench.settle();
    assert!(bench.block.setup.ready.val());
    bench.tick();
    bench.block.setup.valid.next = false;
    bench.block.token.ready.next = true;
    let (mut sent, mut dropped) = (0, 0);
    for _ in 0..40 {
        bench.settle();
        sent += usize::from(bench.block.token.valid.val());
        dropped += usize::from(bench.block.counts.val().stale_dropped);
        bench.tick();
    }
    assert_eq!(sent, 3, "packets that were taken before");
    assert!(dropped > 10, "all others are of an older generation");
}

/// Inputs that no connected block would give, and resets at any time.
#[test]
fn any_input_does_the_same_in_verilog() {
    let mut random = random();
    let mut bench = bench::<128, 5>().in_lock_step();
    for _ in 0..1500 {
        let block = &mut bench.block;
        block.reset.next = random.random_bool(0.01);
        block.reply.valid.next = random.random();
        block.reply.beat.next =
            any_token(random.random_range(0..1 << 24), random.random_range(0..99), &mut random);
        block.request.valid.next = random.random();
        block.request.beat.next =
            any_token(random.random_range(0..1 << 24), random.random_range(0..99), &mut random);
        block.payload.valid.next = random.random();
        block.payload.beat.next = Stimulus::sample(&mut random);
        block.frontier.valid.next = random.random();
        block.frontier.value.next =
            IssuedPsn { queue_pair: bits(random.random_range(0..4)), psn: Stimulus::sample(&mut random) };
        block.setup.valid.next = random.random_bool(0.1);
        block.setup.beat.next = any_event(&mut random);
        block.source_address_write.valid.next = random.random_bool(0.1);
        block.source_address_write.value.next = any_source(&mut random);
        block.token.ready.next = random.random();
        block.payload_out.ready.next = random.random();
        bench.tick();
    }
}

#[test]
fn every_width_of_the_card_is_generated() {
    generates(AddressVector::<256, 6>::default());
    assert!(AddressVector::<256, 7>::REFUSAL.is_some());
}

#[test]
fn waveform_is_as_documented() {
    let waves = Waves::new().signal("reply_valid").signal("reply_ready");
    let waves = waves.signal("request_valid").signal("request_ready");
    let waves = waves.signal("token_valid").signal("counts.stale_dropped");
    let mut bench = bench::<64, 4>();
    set_up(&mut bench);
    let mut bench = bench.recording(waves);
    let mut random = random();
    let mut replies = Source::showing_next([token(0, 1, 0xa, 0)], Stalls::None);
    let mut requests =
        Source::showing_next([token(0, 1, 0xb, 0), token(0, 0, 0xc, 0), token(0, 1, 0xd, 0)], Stalls::None);
    bench.block.token.ready.next = true;
    for cycle in 0..13 {
        if cycle >= 1 {
            replies.drive(&mut bench.block.reply, &mut random);
            requests.drive(&mut bench.block.request, &mut random);
        }
        bench.settle();
        replies.sample(&bench.block.reply);
        requests.sample(&bench.block.request);
        bench.tick();
    }
    bench.waves().expect("waves/address_vector.txt");
}
