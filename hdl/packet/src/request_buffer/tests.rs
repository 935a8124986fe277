use super::*;
use num_bigint::BigUint;
use rand::Rng;
use rand::seq::SliceRandom;
use rnic_blocks::bench::{Bench, Sink, Source, Stalls, Stimulus, frames_of, random};
use rnic_messages::sizes::Sizes;
use std::collections::VecDeque;

type Small = RequestBuffer<64, 4, 10, 4, 5>;
type Wide = RequestBuffer<512, 7, 7, 4, 5>;

/// What goes in: payload, and whether it is good.
struct Packet {
    payload: Vec<u8>,
    is_good: bool,
}

/// More packets than the buffers of the tests have.
const TOKENS: usize = 5;
const TOKEN_COUNT: usize = TOKENS + 1;

/// A buffer of `2^receive_bytes` and 16 packets, whatever it could have. Sends packets, and asks for the payload of those that wait in a random order; a cycle is one call of `cycle`.
struct Rig<const DATA: usize, const BYTES: usize, const ADDRESS: usize> {
    bench: Bench<RequestBuffer<DATA, BYTES, ADDRESS, TOKENS, TOKEN_COUNT>>,
    tokens: Sink<PacketToken>,
    references: Source<PayloadReference>,
    payloads: Sink<Beat<DATA, BYTES>>,
    /// Payload of the packets that were accepted, in their order; how many of their tokens have come.
    accepted: Vec<Vec<u8>>,
    seen: usize,
    /// Packets that wait, and what must come of those that were asked for.
    waiting: Vec<(PayloadReference, Vec<u8>)>,
    asked: Vec<(Vec<u8>, bool)>,
    /// Packets that may wait before one is asked for.
    patience: usize,
}

impl<const DATA: usize, const BYTES: usize, const ADDRESS: usize> Rig<DATA, BYTES, ADDRESS> {
    fn new(receive_bytes: usize, stalls: Stalls, patience: usize) -> Self {
        let sizes = Sizes { receive_bytes, receive_packets: 4, ..Sizes::LARGEST };
        let block = sizes.make(RequestBuffer::<DATA, BYTES, ADDRESS, TOKENS, TOKEN_COUNT>::default);
        let mut rig = Rig {
            bench: Bench::clocked(block, |block| &mut block.clock).in_lock_step(),
            tokens: Sink::new(stalls),
            references: Source::showing_next([], stalls),
            payloads: Sink::new(stalls),
            accepted: vec![],
            seen: 0,
            waiting: vec![],
            asked: vec![],
            patience,
        };
        // All cells come in.
        for _ in 0..200 {
            rig.bench.tick();
        }
        rig
    }

    /// One cycle; a beat comes, and `end` says whether it ends its packet, which is good or not. Returns whether an end was
    /// accepted.
    fn cycle(
        &mut self,
        beat: Option<BigUint>,
        token: PacketToken,
        end: Option<bool>,
        random: &mut rnic_blocks::bench::Random,
    ) -> bool {
        let block = &mut self.bench.block;
        block.payload.valid.next = beat.is_some();
        block.payload.value.next = beat.unwrap_or_default().into();
        block.token.next = token;
        block.commit.next = false;
        block.rollback.next = false;
        self.tokens.drive(&mut block.token_tx, random);
        self.references.drive(&mut block.reference, random);
        self.payloads.drive(&mut block.payload_tx, random);
        self.bench.settle();
        let accepts = end == Some(true) && self.bench.block.fits.val();
        self.bench.block.commit.next = accepts;
        self.bench.block.rollback.next = end.is_some() && !accepts;
        self.bench.settle();
        self.tokens.sample(&self.bench.block.token_tx);
        self.references.sample(&self.bench.block.reference);
        self.payloads.sample(&self.bench.block.payload_tx);
        self.bench.tick();
        while let Some(token) = self.tokens.received.get(self.seen) {
            let payload = self.accepted[self.seen].clone();
            assert_eq!(token.psn, bits(self.seen as u64), "tokens are in order");
            assert_eq!(token.payload_bytes, bits(payload.len() as u64));
            if !payload.is_empty() {
                let reference = PayloadReference {
                    queue_pair: token.queue_pair,
                    first_cell: token.first_cell,
                    payload_bytes: token.payload_bytes,
                };
                self.waiting.push((reference, payload));
            }
            self.seen += 1;
        }
        if self.waiting.len() > self.patience {
            self.ask(random);
        }
        accepts
    }

    fn ask(&mut self, random: &mut rnic_blocks::bench::Random) {
        self.waiting.shuffle(random);
        let (reference, payload) = self.waiting.pop().expect("a packet waits");
        self.references.push(reference);
        self.asked.push((payload, false));
    }

    /// Sends a packet; returns whether it was accepted.
    fn send(&mut self, packet: &Packet, stalls: Stalls, random: &mut rnic_blocks::bench::Random) -> bool {
        let beat_bytes = DATA / 8;
        let mut beats: VecDeque<_> = packet.payload.chunks(beat_bytes).map(BigUint::from_bytes_le).collect();
        let token = PacketToken {
            psn: bits(self.accepted.len() as u64),
            payload_bytes: bits(packet.payload.len() as u64),
            first_cell: Stimulus::sample(random),
            ..Default::default()
        };
        loop {
            let pauses = stalls.source() && random.random();
            let beat = if pauses { None } else { beats.pop_front() };
            let ends = beats.is_empty() && !pauses;
            let is_accepted = self.cycle(beat, token, ends.then_some(packet.is_good), random);
            if is_accepted {
                self.accepted.push(packet.payload.clone());
            }
            if ends {
                // The packets that wait hold the room that a good one needs.
                if packet.is_good && !is_accepted && !self.waiting.is_empty() {
                    self.ask(random);
                }
                return is_accepted;
            }
        }
    }

    /// Asks for all that waits, and takes it.
    fn drain(&mut self, cycles: usize, random: &mut rnic_blocks::bench::Random) {
        for _ in 0..cycles {
            self.cycle(None, PacketToken::default(), None, random);
            if !self.waiting.is_empty() {
                self.ask(random);
            }
        }
        assert_eq!(self.seen, self.accepted.len());
        assert_eq!(frames_of(&self.payloads.received), self.asked);
    }
}

fn good_packets_leave_whole<const DATA: usize, const BYTES: usize, const ADDRESS: usize>(
    receive_bytes: usize,
    bytes_max: usize,
) {
    let mut random = random();
    for stalls in Stalls::ALL {
        let mut rig = Rig::<DATA, BYTES, ADDRESS>::new(receive_bytes, stalls, 5);
        let mut refused_count = 0;
        for _ in 0..80 {
            let payload_bytes = random.random_range(0..=bytes_max);
            let payload = (0..payload_bytes).map(|_| random.random()).collect();
            let packet = Packet { payload, is_good: random.random_bool(0.8) };
            let is_accepted = rig.send(&packet, stalls, &mut random);
            refused_count += usize::from(packet.is_good && !is_accepted);
        }
        rig.drain(4000, &mut random);
        assert!(rig.asked.len() > 20, "{} packets came", rig.asked.len());
        assert!(refused_count > 0 || bytes_max < 4096, "some find no room");
    }
}

#[test]
fn good_packets_leave_whole_whatever_the_order_in_which_they_are_asked_for() {
    good_packets_leave_whole::<64, 4, 10>(13, 40);
    good_packets_leave_whole::<64, 4, 10>(13, 1500);
    good_packets_leave_whole::<64, 4, 14>(16, 200);
    good_packets_leave_whole::<512, 7, 9>(13, 300);
    good_packets_leave_whole::<512, 7, 7>(13, 4096);
}

#[test]
fn payload_leaves_a_beat_a_cycle_across_cells_and_packets() {
    let mut random = random();
    for payload_bytes in [64, 65, 128, 200, 1024] {
        let mut rig = Rig::<512, 7, 7>::new(13, Stalls::None, 5);
        let count = 5;
        for _ in 0..count {
            let payload = (0..payload_bytes).map(|_| random.random()).collect();
            assert!(rig.send(&Packet { payload, is_good: true }, Stalls::None, &mut random));
        }
        for _ in 0..3 {
            rig.cycle(None, PacketToken::default(), None, &mut random);
        }
        for _ in 0..count {
            rig.ask(&mut random);
        }
        let beats = count * usize::div_ceil(payload_bytes, 64);
        // Four cycles to the first beat.
        let latency = 4;
        for cycle in 0..latency + beats {
            rig.cycle(None, PacketToken::default(), None, &mut random);
            assert_eq!(rig.payloads.received.len(), (cycle + 1).saturating_sub(latency), "cycle {cycle}");
        }
        rig.drain(10, &mut random);
    }
}

#[test]
fn a_buffer_is_filled_to_its_last_cell_but_one_and_all_cells_return() {
    let mut random = random();
    for round in 0..3 {
        let mut rig = Rig::<512, 7, 7>::new(13, Stalls::None, 99);
        for _ in 0..=round {
            // 64 cells: 63 of them hold a packet of 4,096 bytes and one of 31 cells, and then none finds room.
            for payload_bytes in [4096, 31 * 128] {
                let payload = vec![7; payload_bytes];
                assert!(!rig.send(
                    &Packet { payload: payload.clone(), is_good: false },
                    Stalls::None,
                    &mut random
                ));
                assert!(rig.send(&Packet { payload, is_good: true }, Stalls::None, &mut random));
            }
            assert!(!rig.send(&Packet { payload: vec![1], is_good: true }, Stalls::None, &mut random));
            assert!(rig.send(&Packet { payload: vec![], is_good: true }, Stalls::None, &mut random));
            rig.drain(200, &mut random);
        }
    }
}

#[test]
fn impossible_sizes_are_refused() {
    assert_eq!(Small::REFUSAL, None);
    assert_eq!(Wide::REFUSAL, None);
    assert_eq!(RequestBuffer::<512, 7, 11, 9, 10>::REFUSAL, None);
    assert!(RequestBuffer::<512, 7, 6, 2, 3>::REFUSAL.is_some_and(|refusal| refusal.contains("ADDRESS")));
    assert!(RequestBuffer::<512, 7, 12, 2, 3>::REFUSAL.is_some_and(|refusal| refusal.contains("ADDRESS")));
    assert!(RequestBuffer::<64, 4, 9, 2, 3>::REFUSAL.is_some_and(|refusal| refusal.contains("ADDRESS")));
    assert!(RequestBuffer::<64, 4, 10, 1, 2>::REFUSAL.is_some_and(|refusal| refusal.contains("TOKENS")));
    assert!(RequestBuffer::<64, 5, 10, 2, 3>::REFUSAL.is_some_and(|refusal| refusal.contains("BYTES")));
}
