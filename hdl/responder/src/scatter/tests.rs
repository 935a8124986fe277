//! Scatter by itself: a few packets, with and without stalls, against the access requests and parts that they
//! must make.
use super::*;
use num_bigint::BigUint;
use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};

const QUEUE_PAIR: u64 = 5;

fn wqe(wr_id: u64, lengths: [u32; 3]) -> ReceiveWqe {
    let mut data = BigUint::from(wr_id) | BigUint::from(3u8) << 64u32;
    for (index, length) in lengths.into_iter().enumerate() {
        let address = BigUint::from(0x1000 * (index as u64 + 1));
        let key = BigUint::from(0x10 + index as u64);
        data |= (address | key << 64u32 | BigUint::from(length) << 96u32) << (128 + 128 * index);
    }
    ReceiveWqe { data: data.into(), error: false, is_stale: false, is_absent: false }
}

fn executed() -> Admitted {
    Admitted {
        decision: Decision::Execute,
        queue_pair: bits(QUEUE_PAIR),
        domain: bits(7),
        starts: true,
        ends: true,
        ..Admitted::default()
    }
}

fn send(starts: bool, ends: bool, payload: u64) -> Admitted {
    Admitted {
        is_send: true,
        starts,
        ends,
        takes_wqe: starts,
        uses_held: !starts,
        payload_bytes: bits(payload),
        ..executed()
    }
}

fn write(payload: u64, length: u64) -> Admitted {
    Admitted {
        payload_bytes: bits(payload),
        message_length: bits(length),
        key: bits(0x99),
        address: bits(0x5000),
        ends: payload == length,
        ..executed()
    }
}

fn local(key: u64, address: u64, length: u64) -> AccessRequest {
    AccessRequest {
        key: bits(key),
        domain: bits(7),
        address: bits(address),
        length: bits(length),
        local_write: true,
        ..AccessRequest::default()
    }
}

fn parts(bytes: [u64; 3]) -> Parts {
    let [first, second, third] = bytes.map(bits);
    Parts { first, second, third }
}

#[test]
fn packets_and_wqes_become_access_requests() {
    let mut random = random();
    let duplicate = Admitted { decision: Decision::Reply, ..write(64, 64) };
    let packets =
        [send(true, false, 12), write(64, 100), send(false, true, 8), duplicate, send(true, true, 90)];
    let remote =
        AccessRequest { key: bits(0x99), address: bits(0x5000), length: bits(100), ..local(0, 0, 0) };
    let asked = [
        local(0x10, 0x1000, 10),
        local(0x11, 0x2000, 2),
        AccessRequest { local_write: false, remote_write: true, ..remote },
        local(0x11, 0x2002, 5),
        local(0x12, 0x3000, 3),
    ];
    use ReceiveWqeFault::{Good, TooShort};
    // Fault, wr_id, bytes of the message, access answers, parts.
    let expected = [
        (Good, 1, 12, 2, parts([10, 2, 0])),
        (Good, 0, 100, 1, parts([64, 0, 0])),
        (Good, 1, 20, 2, parts([5, 3, 3])),
        (Good, 0, 64, 0, parts([64, 0, 0])),
        (TooShort, 2, 90, 0, parts([90, 0, 0])),
    ];
    for stalls in Stalls::ALL {
        let mut bench = Bench::clocked(Scatter::default(), |block| &mut block.clock).in_lock_step();
        let mut admitted = Source::of_tokens(packets, stalls);
        let mut wqes = Source::of_tokens([wqe(1, [10, 7, 30]), wqe(2, [89, 0, 0])], stalls);
        let mut requests = Sink::new(stalls);
        let mut scattered: Sink<Scattered> = Sink::new(stalls);
        for _ in 0..400 {
            admitted.drive(&mut bench.block.admitted, &mut random);
            wqes.drive(&mut bench.block.wqe, &mut random);
            requests.drive(&mut bench.block.access_request, &mut random);
            scattered.drive(&mut bench.block.scattered, &mut random);
            bench.settle();
            admitted.sample(&bench.block.admitted);
            wqes.sample(&bench.block.wqe);
            requests.sample(&bench.block.access_request);
            scattered.sample(&bench.block.scattered);
            bench.tick();
        }
        assert_eq!(requests.received, asked);
        assert_eq!(scattered.received.len(), packets.len());
        for (index, (found, (fault, wr_id, message_bytes, answer_count, parts))) in
            scattered.received.iter().zip(expected).enumerate()
        {
            assert_eq!((found.packet, found.fault), (packets[index], fault), "packet {index}");
            assert_eq!(found.message_bytes, bits(message_bytes), "packet {index}");
            assert_eq!(found.answer_count, bits(answer_count), "packet {index}");
            if found.packet.is_send {
                assert_eq!(found.wr_id, bits(wr_id), "packet {index}");
            }
            let used = usize::try_from(answer_count).expect("it is small");
            let [found, parts] = [found.parts, parts].map(|parts| [parts.first, parts.second, parts.third]);
            assert_eq!(found[..used], parts[..used], "packet {index}");
        }
    }
}

#[test]
fn no_access_request_follows_an_invalidate_until_it_has_ended() {
    let mut random = random();
    let mut bench = Bench::clocked(Scatter::default(), |block| &mut block.clock).in_lock_step();
    let invalidate = Admitted { with_invalidate: true, ..send(true, true, 1) };
    let mut admitted = Source::of_tokens([invalidate, write(64, 64)], Stalls::None);
    let mut wqes = Source::of_tokens([wqe(1, [10, 0, 0])], Stalls::None);
    let mut requests = Sink::<AccessRequest>::new(Stalls::None);
    let mut scattered = Sink::<Scattered>::new(Stalls::None);
    for cycle in 0..60 {
        admitted.drive(&mut bench.block.admitted, &mut random);
        wqes.drive(&mut bench.block.wqe, &mut random);
        requests.drive(&mut bench.block.access_request, &mut random);
        scattered.drive(&mut bench.block.scattered, &mut random);
        bench.block.ended.next = cycle == 40;
        bench.settle();
        admitted.sample(&bench.block.admitted);
        wqes.sample(&bench.block.wqe);
        requests.sample(&bench.block.access_request);
        scattered.sample(&bench.block.scattered);
        assert!(cycle > 40 || requests.received.len() <= 1, "cycle {cycle}");
        bench.tick();
    }
    assert_eq!((requests.received.len(), scattered.received.len()), (2, 2));
}
