//! Resolve by itself: a queue pair from its first packet to the one that fails, and what follows it.
use super::*;
use crate::messages::{Admitted, Parts, ReceiveWqeFault, Responses};
use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_messages::receive::ack_of;

fn packet() -> Admitted {
    Admitted {
        decision: Decision::Execute,
        queue_pair: bits(5),
        generation: bits(3),
        starts: true,
        ends: true,
        payload_bytes: bits(30),
        has_reply: true,
        syndrome: bits(0x1f),
        ..Admitted::default()
    }
}

fn send() -> Admitted {
    Admitted { is_send: true, takes_wqe: true, ..packet() }
}

fn scattered(packet: Admitted, answers: u64, wr_id: u64) -> Scattered {
    Scattered {
        packet,
        fault: ReceiveWqeFault::Good,
        wr_id: bits(wr_id),
        message_bytes: bits(30),
        answer_count: bits(answers),
        parts: Parts { first: bits(10), second: bits(20), third: bits(20) },
    }
}

#[test]
fn a_queue_pair_fails_once_and_then_its_wqes_are_flushed() {
    let mut random = random();
    let read = Admitted {
        is_read: true,
        payload_bytes: bits(0),
        message_length: bits(100),
        psn: bits(8),
        responses: Responses { last_psn: bits(9), slot: bits(0), ..Responses::default() },
        ..packet()
    };
    let packets = [
        scattered(Admitted { starts_generation: true, ..send() }, 2, 1),
        scattered(read, 1, 0),
        scattered(send(), 2, 2),
        scattered(send(), 2, 3),
        scattered(packet(), 1, 0),
    ];
    let answer = |ok, address| AccessAnswer { ok, device_address: bits(address) };
    let answers = [
        answer(true, 0x1000),
        answer(true, 0x2000),
        answer(true, 0x3000),
        answer(true, 0x4000),
        answer(false, 0),
        answer(true, 0x5000),
        answer(true, 0x6000),
        answer(true, 0x7000),
    ];
    // Spans, status of the CQE if there is one, and whether there is a reply.
    use CompletionStatus::{Flushed, LocalProtection, Success};
    let expected = [
        (2, Some((1, Success)), true),
        (0, None, true),
        (0, Some((2, LocalProtection)), true),
        (0, Some((3, Flushed)), false),
        (0, None, false),
    ];
    for stalls in Stalls::ALL {
        let mut bench = Bench::clocked(Resolve::default(), |block| &mut block.clock).in_lock_step();
        let mut source = Source::of_tokens(packets, stalls);
        let mut answers = Source::of_tokens(answers, stalls);
        let mut place: Sink<PlaceCommand> = Sink::new(stalls);
        let mut reads: Sink<ReadRequest> = Sink::new(stalls);
        let mut stops = Vec::new();
        let mut counts = [0; 2];
        for _ in 0..600 {
            source.drive(&mut bench.block.scattered, &mut random);
            answers.drive(&mut bench.block.access_answer, &mut random);
            place.drive(&mut bench.block.place, &mut random);
            reads.drive(&mut bench.block.read_request, &mut random);
            bench.settle();
            source.sample(&bench.block.scattered);
            answers.sample(&bench.block.access_answer);
            place.sample(&bench.block.place);
            reads.sample(&bench.block.read_request);
            if bench.block.stop.valid.val() {
                stops.push(bench.block.stop.value.val());
            }
            counts[0] += u64::from(bench.block.counts.val().local_protection);
            counts[1] += u64::from(bench.block.counts.val().requests_after_failure);
            bench.tick();
        }
        assert_eq!(place.received.len(), expected.len());
        for (index, (command, (spans, completion, has_reply))) in
            place.received.iter().zip(expected).enumerate()
        {
            assert_eq!(command.span_count, bits(spans), "packet {index}");
            assert_eq!(command.has_completion, completion.is_some(), "packet {index}");
            if let Some((wr_id, status)) = completion {
                let cqe = command.completion;
                assert_eq!((cqe.wr_id, cqe.status), (bits(wr_id), bits(status as u64)), "packet {index}");
            }
            assert_eq!(command.has_notice, has_reply, "packet {index}");
        }
        let first = place.received[0];
        assert_eq!((first.first.address, first.second.address), (bits(0x1000), bits(0x2000)));
        let reply = ack_of(place.received[1].notice);
        assert_eq!((reply.is_read, reply.psn), (true, bits(9)));
        assert_eq!(reads.received.len(), 1);
        assert_eq!((reads.received[0].psn, reads.received[0].length), (bits(8), bits(100)));
        assert_eq!(stops, [Stop { queue_pair: bits(5), generation: bits(3) }]);
        assert_eq!(counts, [1, 2]);
    }
}
