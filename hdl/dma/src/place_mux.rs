//! Place mux: requests of the peer and responses to the card's own READs and atomics take turns at one place stage.
//!
//! Both move payload to host memory, for which there is one rotator and one order of writes.
//!
//! ```text
//!              ┌───────────────────────────────────────────────────────────┐
//!  request ───>│ ┌─────────┐                                               │
//!  response ──>│ │ Arbiter ├──┬────────────────────────────────────────────┼──> command
//!              │ └─────────┘  └─ sources (16) ─┐                           │
//!              │            └─────────────────│────────────────────────────┼──> reference
//!              │                               v                           │
//!  request_payload, response_payload ───────> select ──────────────────────┼──> payload
//!              │                                                           │
//!  ack <───────┼──────────────────────── kind? <───────────────────────────┼─── notice
//!  returned <──┼───────────────────────────┘                               │
//!              └───────────────────────────────────────────────────────────┘
//! ```
//!
//! No latency for commands, references and notices, 2 cycles from a command to its payload; a command and a beat a cycle.
//!
//! 1. Commands of one side keep their order; while both have some, they take turns. Payload follows in the order of the commands;
//!    that of requests is asked for by its reference, in the cycle of the command.
//! 2. A literal of a command is given as a beat of payload of its own.
//! 3. A notice goes to the side whose command it came with: acknowledgements to the responder, responses to the requester.
//! 4. A command stays until it is taken, except for what a response does not have (its CQE, its third span and the rest of its
//!    notice's body): that may hold anything and may change meanwhile, which saves as many multiplexers.
//!
//! Both sides wait for host memory alone, after place, so neither waits for the other (design decision 4). `returned` must be
//! taken without waiting for either.
use rnic_blocks::memory::Storage;
use rnic_blocks::stream::{Arbiter, Beat, Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::read::{ReadResponseCommand, ResponseNotice};
use rnic_messages::receive::{
    AckNotice, PayloadReference, PlaceCommand, PlaceNotice, PlaceNoticeKind, ack_of, response_notice,
    response_of,
};

/// log2 of the packets whose payload has not passed.
const SOURCES: usize = 4;
const SOURCE_COUNT: usize = SOURCES + 1;
/// Bytes of a literal.
const LITERAL_BYTES: u64 = 8;

/// Where the payload of a packet comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct PayloadSource {
    is_response: Bit,
    is_literal: Bit,
    literal: Bits<64>,
}

/// A response as place sees it. What responses do not have is that of `request`, so that no multiplexer is needed there.
#[kernel]
fn response_command(response: ReadResponseCommand, request: PlaceCommand) -> PlaceCommand {
    PlaceCommand {
        queue_pair: response.notice.queue_pair,
        generation: response.notice.generation,
        payload_bytes: response.payload_bytes,
        span_count: response.span_count,
        first: response.first,
        second: response.second,
        has_completion: false,
        has_notice: true,
        notice: response_notice(response.notice, request.notice),
        ..request
    }
}

/// Shares one place stage between requests and responses.
#[clocked(reset = "forgets the packets whose payload has not passed")]
#[derive(LogicBlock, Registers, Construct)]
pub struct PlaceMux<const DATA: usize, const BYTES: usize> {
    /// From the responder; `ready` of all inputs is combinational.
    pub request: StreamRx<PlaceCommand>,
    /// To the request buffer: the request whose payload is read next; combinational. `ready` falls only when one is taken.
    pub reference: StreamTx<PayloadReference>,
    /// From the request buffer.
    pub request_payload: StreamRx<Beat<DATA, BYTES>>,
    /// From the requester.
    pub response: StreamRx<ReadResponseCommand>,
    /// From the receive buffer of responses.
    pub response_payload: StreamRx<Beat<DATA, BYTES>>,

    /// To place; combinational, see rule 4.
    pub command: StreamTx<PlaceCommand>,
    /// To place; combinational.
    pub payload: StreamTx<Beat<DATA, BYTES>>,
    /// From place; `ready` is combinational.
    pub notice: StreamRx<PlaceNotice>,
    /// To the responder; combinational.
    pub ack: StreamTx<AckNotice>,
    /// To the requester; combinational.
    pub returned: StreamTx<ResponseNotice>,

    arbiter: Arbiter<Bit, 2>,
    #[init(Fifo::new(Storage::Distributed))]
    sources: Fifo<PayloadSource, SOURCES, SOURCE_COUNT>,
}

impl<const DATA: usize, const BYTES: usize> Logic for PlaceMux<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let request = self.request.beat.val();
        let response = self.response.beat.val();

        // The arbiter chooses a side; only what both sides have is multiplexed.
        self.arbiter.last.next = bits(3);
        self.arbiter.rx[0].offer(self.request.valid.val(), false);
        self.request.ready.next = self.arbiter.rx[0].ready.val();
        self.arbiter.rx[1].offer(self.response.valid.val(), true);
        self.response.ready.next = self.arbiter.rx[1].ready.val();
        let is_response = self.arbiter.tx.beat.val();
        let has_room = self.sources.rx.ready.val() && self.reference.ready.val();
        let is_offered = self.arbiter.tx.valid.val() && has_room;
        self.arbiter.tx.ready.next = self.command.ready.val() && has_room;
        let command = if is_response { response_command(response, request) } else { request };
        self.command.offer(is_offered, command);
        let takes_payload = is_offered && self.command.ready.val() && command.payload_bytes.any();
        self.reference.valid.next = takes_payload && !is_response;
        self.reference.beat.next = PayloadReference {
            queue_pair: request.queue_pair,
            first_cell: request.first_cell,
            payload_bytes: request.payload_bytes,
        };
        self.sources.rx.valid.next = takes_payload;
        self.sources.rx.beat.next = PayloadSource {
            is_response,
            is_literal: is_response && response.is_literal,
            literal: response.literal,
        };

        // Payload.
        let source = self.sources.tx.beat.val();
        let has_source = self.sources.tx.valid.val();
        let takes_request = has_source && !source.is_response;
        let takes_response = has_source && source.is_response && !source.is_literal;
        let takes_literal = has_source && source.is_literal;
        let beat = if source.is_response {
            self.response_payload.beat.val()
        } else {
            self.request_payload.beat.val()
        };
        self.payload.beat.next = beat;
        if source.is_literal {
            self.payload.beat.next.data = bit_cast::<DATA, 64>(source.literal);
            self.payload.beat.next.bytes = bits(LITERAL_BYTES);
            self.payload.beat.next.last = true;
        }
        let has_beat = (takes_request && self.request_payload.valid.val())
            || (takes_response && self.response_payload.valid.val())
            || takes_literal;
        let is_taken = self.payload.ready.val();
        self.payload.valid.next = has_beat;
        self.request_payload.ready.next = takes_request && is_taken;
        self.response_payload.ready.next = takes_response && is_taken;
        self.sources.tx.ready.next = has_beat && is_taken && (beat.last || source.is_literal);

        // Notices.
        let notice = self.notice.beat.val();
        let is_ack = notice.kind == PlaceNoticeKind::Ack;
        self.ack.offer(self.notice.valid.val() && is_ack, ack_of(notice));
        self.returned.offer(self.notice.valid.val() && !is_ack, response_of(notice));
        self.notice.ready.next = select(is_ack, self.ack.ready.val(), self.returned.ready.val());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, beats_of, random};
    use rnic_host::testing::generates;
    use rnic_messages::receive::ack_notice;
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
        command.first_cell = Stimulus::sample(random);
        command.span_count = Stimulus::sample(random);
        command.third.address = Stimulus::sample(random);
        command.has_completion = random.random();
        command.completion.wr_id = bits(number);
        command.has_notice = random.random();
        command.notice =
            ack_notice(AckNotice { psn: bits(number), msn: Stimulus::sample(random), ..Default::default() });
        Packet { command, payload }
    }

    fn random_response(number: u64, random: &mut Random) -> (ReadResponseCommand, Packet) {
        let is_literal = random.random_bool(0.2);
        let literal: u64 = random.random();
        let payload = if is_literal { literal.to_le_bytes().to_vec() } else { noise(random) };
        let kind = random.random_range(0..5);
        let notice = ResponseNotice {
            queue_pair: Stimulus::sample(random),
            generation: Stimulus::sample(random),
            psn: bits(number),
            is_placed: kind == 0,
            is_middle: kind == 0 && random.random(),
            is_acknowledge: kind == 1,
            is_read_error: kind == 2,
            is_unexpected: kind == 3,
            syndrome: Stimulus::sample(random),
            status: Stimulus::sample(random),
            write_failed: false,
            is_last: kind == 4,
        };
        let response = ReadResponseCommand {
            payload_bytes: bits(payload.len() as u64),
            span_count: bits(random.random_range(0..3)),
            first: rnic_messages::host::HostSpan { address: Stimulus::sample(random), length: bits(9) },
            second: rnic_messages::host::HostSpan { address: Stimulus::sample(random), length: bits(7) },
            is_literal,
            literal: bits(literal),
            notice,
        };
        let command = PlaceCommand {
            queue_pair: notice.queue_pair,
            generation: notice.generation,
            payload_bytes: response.payload_bytes,
            span_count: response.span_count,
            first: response.first,
            second: response.second,
            has_notice: true,
            ..Default::default()
        };
        (response, Packet { command, payload })
    }

    /// Both sides send; the test is place, and gives the notice of each packet in order.
    fn shares<const DATA: usize, const BYTES: usize>(count: usize) {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench =
                Bench::clocked(PlaceMux::<DATA, BYTES>::default(), |block| &mut block.clock).in_lock_step();
            let requests: Vec<_> =
                (0..count).map(|number| random_request(number as u64, &mut random)).collect();
            let (commands, responses): (Vec<_>, Vec<_>) =
                (0..count).map(|number| random_response(number as u64, &mut random)).unzip();
            let mut request = Source::showing_next(requests.iter().map(|packet| packet.command), stalls);
            let mut response = Source::showing_next(commands.iter().copied(), stalls);
            let with_payload = responses
                .iter()
                .zip(&commands)
                .filter(|(packet, command)| !packet.payload.is_empty() && !command.is_literal);
            let beats: Vec<_> = with_payload
                .flat_map(|(packet, _)| beats_of::<DATA, BYTES>(&packet.payload, &mut random))
                .collect();
            let mut response_payload = Source::showing_next(beats, stalls);
            // Payload of requests comes when it is asked for.
            let mut request_payload = Source::showing_next([], stalls);
            let mut has_room = true;
            let (mut command, mut payload): (Sink<PlaceCommand>, _) = (Sink::new(stalls), Sink::new(stalls));
            let (mut ack, mut returned) = (Sink::new(stalls), Sink::new(stalls));
            let mut notices = Source::showing_next([], stalls);
            let mut taken = [0, 0];
            // Payload of the commands that were taken, and the notices that each side must be given.
            let mut bytes: VecDeque<Vec<u8>> = VecDeque::new();
            let mut came = vec![];
            let mut acks = vec![];
            let mut returns = vec![];
            let mut last_was_response = None;
            let mut offered = None;
            let mut cycle = 0;
            while taken != [count; 2]
                || !bytes.is_empty()
                || ack.received.len() < acks.len()
                || returned.received.len() < count
            {
                let block = &mut bench.block;
                request.drive(&mut block.request, &mut random);
                response.drive(&mut block.response, &mut random);
                has_room |= !stalls.sink() || random.random();
                block.reference.ready.next = has_room;
                request_payload.drive(&mut block.request_payload, &mut random);
                response_payload.drive(&mut block.response_payload, &mut random);
                command.drive(&mut block.command, &mut random);
                payload.drive(&mut block.payload, &mut random);
                notices.drive(&mut block.notice, &mut random);
                ack.drive(&mut block.ack, &mut random);
                returned.drive(&mut block.returned, &mut random);
                bench.settle();
                let block = &bench.block;
                let both = block.request.valid.val() && block.response.valid.val();
                request.sample(&block.request);
                response.sample(&block.response);
                request_payload.sample(&block.request_payload);
                response_payload.sample(&block.response_payload);
                notices.sample(&block.notice);
                ack.sample(&block.ack);
                returned.sample(&block.returned);
                // What a response does not have may be anything.
                let mut seen = block.command.beat.val();
                if seen.notice.kind == PlaceNoticeKind::Response {
                    seen = PlaceCommand {
                        first_cell: Default::default(),
                        third: Default::default(),
                        completion: Default::default(),
                        ..seen
                    };
                    let response = ResponseNotice { write_failed: false, ..response_of(seen.notice) };
                    seen.notice = response_notice(response, PlaceNotice::default());
                }
                let is_offered = block.command.valid.val();
                assert!(offered.is_none_or(|offered| is_offered && seen == offered), "it stays");
                let is_taken = is_offered && block.command.ready.val();
                let reference = block.reference.valid.val().then(|| block.reference.beat.val());
                offered = (is_offered && !is_taken).then_some(seen);
                if is_taken {
                    let found = seen;
                    let side = usize::from(found.notice.kind == PlaceNoticeKind::Response);
                    let at = taken[side];
                    taken[side] += 1;
                    let mut notice = found.notice;
                    let write_failed = random.random_bool(0.2);
                    notice.write_failed = write_failed;
                    let packet = if side == 1 {
                        let expected = &responses[at];
                        let seen = PlaceCommand { notice: expected.command.notice, ..found };
                        assert_eq!(seen, expected.command);
                        returns.push(ResponseNotice { write_failed, ..commands[at].notice });
                        expected
                    } else {
                        assert_eq!(found, requests[at].command);
                        let payload = &requests[at].payload;
                        let expected = PayloadReference {
                            queue_pair: found.queue_pair,
                            first_cell: found.first_cell,
                            payload_bytes: found.payload_bytes,
                        };
                        assert_eq!(reference, (!payload.is_empty()).then_some(expected));
                        for beat in beats_of::<DATA, BYTES>(payload, &mut random) {
                            request_payload.push(beat);
                        }
                        has_room &= reference.is_none();
                        if found.has_notice {
                            acks.push(ack_of(notice));
                        }
                        &requests[at]
                    };
                    if found.has_notice {
                        notices.push(notice);
                    }
                    if !packet.payload.is_empty() {
                        bytes.push_back(packet.payload.clone());
                    }
                    if both && stalls == Stalls::None {
                        assert!(last_was_response != Some(side), "they take turns");
                        last_was_response = Some(side);
                    } else {
                        last_was_response = None;
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
            assert_eq!(ack.received, acks);
            assert_eq!(returned.received, returns);
        }
    }

    #[test]
    fn packets_of_both_sides_pass_whole_and_notices_return_to_their_side() {
        shares::<64, 4>(60);
        shares::<512, 7>(150);
    }

    #[test]
    fn every_width_of_the_card_is_generated() {
        generates(PlaceMux::<128, 5>::default());
        generates(PlaceMux::<256, 6>::default());
    }
}
