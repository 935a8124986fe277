//! Place share: requests of peers, and answers to the card's own requests, on their way through one place.
//!
//! ```text
//!  request, request_payload ──┐                                      ┌──> reply
//!                             ├─ turns ──> command, payload ...... told ─ whose? ─┤
//!  answer, answer_payload ────┘     └──> whose payload is next ──┘   └──> returned
//! ```
//!
//! No latency for commands, 2 cycles from a command to its payload; a command and a beat a cycle.
//!
//! 1. Commands of one side keep their order; while both have some, they take turns. Payload comes in the order of the commands.
//! 2. What stands in a command itself comes as a beat of its own.
//! 3. What place tells goes to whose command it was, with what was in it.
//! 4. A command stays until it is taken, but for what an answer does not have: its completion and its third span may be anything
//!    and may change meanwhile, which saves as many multiplexers.
//!
//! Both wait for host memory alone, behind place, so neither waits for the other (design decision 4). `returned` must be
//! taken without waiting for either.
use rnic_blocks::stream::{Arbiter, Beat, Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::read::{ReadResponseCommand, ReturnedAnswer};
use rnic_messages::receive::{PlaceCommand, ReplyEvent};

/// Packets whose payload has not passed, as a power of two.
const SOURCES: usize = 4;
const SOURCE_COUNT: usize = SOURCES + 1;
/// Bytes of a literal.
const LITERAL_BYTES: u64 = 8;

/// Where the payload of a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Source {
    is_answer: Bit,
    is_literal: Bit,
    literal: Bits<64>,
}

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct PlaceMux<const DATA: usize, const BYTES: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets whose payload comes.
    pub reset: Signal<In, Bit>,

    /// From the responder; `ready` of all four is combinational.
    pub request: StreamRx<PlaceCommand>,
    /// From the receive buffer of requests.
    pub request_payload: StreamRx<Beat<DATA, BYTES>>,
    /// From the requester.
    pub answer: StreamRx<ReadResponseCommand>,
    /// From the receive buffer of answers.
    pub answer_payload: StreamRx<Beat<DATA, BYTES>>,

    /// To place; combinational, see rule 4.
    pub command: StreamTx<PlaceCommand>,
    /// To place; combinational.
    pub payload: StreamTx<Beat<DATA, BYTES>>,
    /// From place.
    pub told: StreamRx<ReplyEvent>,
    /// To the responder; combinational.
    pub reply: StreamTx<ReplyEvent>,
    /// To the requester; combinational.
    pub returned: StreamTx<ReturnedAnswer>,

    arbiter: Arbiter<Bit, 2>,
    sources: Fifo<Source, SOURCES, SOURCE_COUNT>,
}

impl<const DATA: usize, const BYTES: usize> Logic for PlaceMux<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let request = self.request.beat.val();
        let answer = self.answer.beat.val();

        // Only what both have is chosen from.
        self.arbiter.last.next = bits(3);
        self.arbiter.rx[0].beat.next = false;
        self.arbiter.rx[0].valid.next = self.request.valid.val();
        self.request.ready.next = self.arbiter.rx[0].ready.val();
        self.arbiter.rx[1].beat.next = true;
        self.arbiter.rx[1].valid.next = self.answer.valid.val();
        self.answer.ready.next = self.arbiter.rx[1].ready.val();
        let is_answer = self.arbiter.tx.beat.val();
        let has_room = self.sources.rx.ready.val();
        let is_offered = self.arbiter.tx.valid.val() && has_room;
        self.arbiter.tx.ready.next = self.command.ready.val() && has_room;
        self.command.valid.next = is_offered;
        self.command.beat.next = request;
        let told = answer.answer;
        let kinds: Bits<5> =
            cat!(told.is_middle, told.is_unasked, told.is_failure, told.is_said, told.is_placed);
        if is_answer {
            self.command.beat.next.queue_pair = told.queue_pair;
            self.command.beat.next.generation = told.generation;
            self.command.beat.next.payload_bytes = answer.payload_bytes;
            self.command.beat.next.span_count = answer.span_count;
            self.command.beat.next.first = answer.first;
            self.command.beat.next.second = answer.second;
            self.command.beat.next.has_completion = false;
            self.command.beat.next.has_reply = true;
            self.command.beat.next.reply.queue_pair = told.queue_pair;
            self.command.beat.next.reply.generation = told.generation;
            self.command.beat.next.reply.syndrome = told.syndrome;
            self.command.beat.next.reply.psn = told.psn;
            self.command.beat.next.reply.msn = cat!(bits::<11>(0), kinds, told.status);
            self.command.beat.next.reply.is_answer = true;
        }
        let bytes = select(is_answer, answer.payload_bytes, request.payload_bytes);
        self.sources.rx.valid.next = is_offered && self.command.ready.val() && bytes.any();
        self.sources.rx.beat.next =
            Source { is_answer, is_literal: is_answer && answer.is_literal, literal: answer.literal };

        // Payload.
        let source = self.sources.tx.beat.val();
        let has_source = self.sources.tx.valid.val();
        let takes_request = has_source && !source.is_answer;
        let takes_answer = has_source && source.is_answer && !source.is_literal;
        let takes_literal = has_source && source.is_literal;
        let beat =
            if source.is_answer { self.answer_payload.beat.val() } else { self.request_payload.beat.val() };
        self.payload.beat.next = beat;
        if source.is_literal {
            self.payload.beat.next.data = bit_cast::<DATA, 64>(source.literal);
            self.payload.beat.next.bytes = bits(LITERAL_BYTES);
            self.payload.beat.next.last = true;
        }
        let comes = (takes_request && self.request_payload.valid.val())
            || (takes_answer && self.answer_payload.valid.val())
            || takes_literal;
        let is_taken = self.payload.ready.val();
        self.payload.valid.next = comes;
        self.request_payload.ready.next = takes_request && is_taken;
        self.answer_payload.ready.next = takes_answer && is_taken;
        self.sources.tx.ready.next = comes && is_taken && (beat.last || source.is_literal);

        // What place tells.
        let event = self.told.beat.val();
        let has_told = self.told.valid.val();
        self.reply.beat.next = event;
        self.reply.valid.next = has_told && !event.is_answer;
        self.returned.beat.next = ReturnedAnswer {
            queue_pair: event.queue_pair,
            generation: event.generation,
            psn: event.psn,
            is_placed: event.msn.get_bit(8),
            is_said: event.msn.get_bit(9),
            is_failure: event.msn.get_bit(10),
            is_unasked: event.msn.get_bit(11),
            is_middle: event.msn.get_bit(12),
            syndrome: event.syndrome,
            status: event.msn.get_bits::<8>(0),
            has_failed: event.has_failed,
        };
        self.returned.valid.next = has_told && event.is_answer;
        self.told.ready.next = select(event.is_answer, self.returned.ready.val(), self.reply.ready.val());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Random, Sink, Stalls, Stimulus, beats_of, random};
    use rnic_host::testing::{Offers, generates};
    use std::collections::VecDeque;

    /// A packet: its command as place is to see it, and its bytes.
    struct Packet {
        command: PlaceCommand,
        payload: Vec<u8>,
    }

    fn noise(random: &mut Random) -> Vec<u8> {
        let count = if random.random_bool(0.3) { 0 } else { random.random_range(1..300) };
        (0..count).map(|_| random.random()).collect()
    }

    fn random_request(number: u64, random: &mut Random) -> Packet {
        let payload = noise(random);
        let mut command = PlaceCommand { payload_bytes: bits(payload.len() as u64), ..Default::default() };
        command.queue_pair = Stimulus::sample(random);
        command.span_count = Stimulus::sample(random);
        command.third.address = Stimulus::sample(random);
        command.has_completion = random.random();
        command.completion.wr_id = bits(number);
        command.has_reply = random.random();
        command.reply = ReplyEvent { psn: bits(number), msn: Stimulus::sample(random), ..Default::default() };
        Packet { command, payload }
    }

    fn random_answer(number: u64, random: &mut Random) -> (ReadResponseCommand, Packet) {
        let is_literal = random.random_bool(0.2);
        let literal: u64 = random.random();
        let payload = if is_literal { literal.to_le_bytes().to_vec() } else { noise(random) };
        let kind = random.random_range(0..5);
        let answer = ReturnedAnswer {
            queue_pair: Stimulus::sample(random),
            generation: Stimulus::sample(random),
            psn: bits(number),
            is_placed: kind == 0,
            is_middle: kind == 0 && random.random(),
            is_said: kind == 1,
            is_failure: kind == 2,
            is_unasked: kind == 3,
            syndrome: Stimulus::sample(random),
            status: Stimulus::sample(random),
            has_failed: false,
        };
        let deposit = ReadResponseCommand {
            payload_bytes: bits(payload.len() as u64),
            span_count: bits(random.random_range(0..3)),
            first: rnic_messages::host::HostSpan { address: Stimulus::sample(random), length: bits(9) },
            second: rnic_messages::host::HostSpan { address: Stimulus::sample(random), length: bits(7) },
            is_literal,
            literal: bits(literal),
            answer,
        };
        let command = PlaceCommand {
            queue_pair: answer.queue_pair,
            generation: answer.generation,
            payload_bytes: deposit.payload_bytes,
            span_count: deposit.span_count,
            first: deposit.first,
            second: deposit.second,
            has_reply: true,
            ..Default::default()
        };
        (deposit, Packet { command, payload })
    }

    /// Both sides send; place is played here, and tells of each packet in order after a while.
    fn shares<const DATA: usize, const BYTES: usize>(count: usize) {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench =
                Bench::clocked(PlaceMux::<DATA, BYTES>::default(), |block| &mut block.clock).in_lock_step();
            let requests: Vec<_> =
                (0..count).map(|number| random_request(number as u64, &mut random)).collect();
            let (deposits, answers): (Vec<_>, Vec<_>) =
                (0..count).map(|number| random_answer(number as u64, &mut random)).unzip();
            let mut request = Offers::new(requests.iter().map(|packet| packet.command), stalls);
            let mut answer = Offers::new(deposits.iter().copied(), stalls);
            let mut beats = |packets: &[Packet], skips: &dyn Fn(usize) -> bool| {
                let packets = packets
                    .iter()
                    .enumerate()
                    .filter(|(at, packet)| !packet.payload.is_empty() && !skips(*at));
                let beats: Vec<_> = packets
                    .flat_map(|(_, packet)| beats_of::<DATA, BYTES>(&packet.payload, &mut random))
                    .collect();
                Offers::new(beats, stalls)
            };
            let mut request_payload = beats(&requests, &|_| false);
            let mut answer_payload = beats(&answers, &|at| deposits[at].is_literal);
            let (mut command, mut payload): (Sink<PlaceCommand>, _) = (Sink::new(stalls), Sink::new(stalls));
            let (mut reply, mut returned) = (Sink::new(stalls), Sink::new(stalls));
            let mut told = Offers::new([], stalls);
            let mut taken = [0, 0];
            // Bytes that are to come, and what is to be told of whom.
            let mut bytes: VecDeque<Vec<u8>> = VecDeque::new();
            let mut came = vec![];
            let mut replies = vec![];
            let mut returns = vec![];
            let mut last_was_answer = None;
            let mut offered = None;
            let mut cycle = 0;
            while taken != [count; 2]
                || !bytes.is_empty()
                || reply.received.len() < replies.len()
                || returned.received.len() < count
            {
                let block = &mut bench.block;
                request.drive(&mut block.request, &mut random);
                answer.drive(&mut block.answer, &mut random);
                request_payload.drive(&mut block.request_payload, &mut random);
                answer_payload.drive(&mut block.answer_payload, &mut random);
                command.drive(&mut block.command, &mut random);
                payload.drive(&mut block.payload, &mut random);
                told.drive(&mut block.told, &mut random);
                reply.drive(&mut block.reply, &mut random);
                returned.drive(&mut block.returned, &mut random);
                bench.settle();
                let block = &bench.block;
                let both = block.request.valid.val() && block.answer.valid.val();
                request.sample(&block.request);
                answer.sample(&block.answer);
                request_payload.sample(&block.request_payload);
                answer_payload.sample(&block.answer_payload);
                told.sample(&block.told);
                reply.sample(&block.reply);
                returned.sample(&block.returned);
                // What an answer does not have may be anything.
                let mut seen = block.command.beat.val();
                if seen.reply.is_answer {
                    seen = PlaceCommand { third: Default::default(), completion: Default::default(), ..seen };
                    seen.reply.is_read = false;
                    seen.reply.write_count = bits(0);
                    seen.reply.has_failed = false;
                }
                let is_offered = block.command.valid.val();
                assert!(offered.is_none_or(|offered| is_offered && seen == offered), "it stays");
                let is_taken = is_offered && block.command.ready.val();
                offered = (is_offered && !is_taken).then_some(seen);
                if is_taken {
                    let found = seen;
                    let side = usize::from(found.reply.is_answer);
                    let at = taken[side];
                    taken[side] += 1;
                    let mut event = found.reply;
                    let has_failed = random.random_bool(0.2);
                    event.has_failed = has_failed;
                    let packet = if side == 1 {
                        let expected = &answers[at];
                        let seen = PlaceCommand { reply: expected.command.reply, ..found };
                        assert_eq!(seen, expected.command);
                        returns.push(ReturnedAnswer { has_failed, ..deposits[at].answer });
                        expected
                    } else {
                        assert_eq!(found, requests[at].command);
                        if found.has_reply {
                            replies.push(event);
                        }
                        &requests[at]
                    };
                    if found.has_reply {
                        told.push(event);
                    }
                    if !packet.payload.is_empty() {
                        bytes.push_back(packet.payload.clone());
                    }
                    if both && stalls == Stalls::None {
                        assert!(last_was_answer != Some(side), "they take turns");
                        last_was_answer = Some(side);
                    } else {
                        last_was_answer = None;
                    }
                }
                if let Some(beat) = payload.sample(&block.payload) {
                    let mut part = rnic_host::testing::bytes_of(beat.data);
                    part.truncate(beat.bytes.to_u64() as usize);
                    came.extend(part);
                    if beat.last {
                        assert_eq!(bytes.pop_front(), Some(std::mem::take(&mut came)));
                    }
                }
                bench.tick();
                cycle += 1;
                assert!(cycle < 20_000, "everything passes");
            }
            assert_eq!(reply.received, replies);
            assert_eq!(returned.received, returns);
        }
    }

    #[test]
    fn packets_of_both_sides_pass_whole_and_are_told_to_whom_they_belong() {
        shares::<64, 4>(60);
        shares::<512, 7>(150);
    }

    #[test]
    fn every_width_of_the_card_is_generated() {
        generates(PlaceMux::<128, 5>::default());
        generates(PlaceMux::<256, 6>::default());
    }
}
