//! Atomics through the whole responder: refusals, the order with other requests, and responses.
use super::machine::Machine;
use super::model::{Attributes, Owed, Request};
use super::{FIRST_PSN, attributes, connected, request, send};
use rnic_blocks::bench::Stalls;
use rnic_layout::opcode::Operation;

const DEVICE: u64 = 1 << 40;
const WORD: u64 = 0x7008;

/// A machine whose first queue pair accepts atomics.
fn machine() -> Machine {
    let mut machine = connected(Stalls::None);
    machine.connect(Attributes { generation: 4, remote_atomic: true, ..attributes(0) }, FIRST_PSN);
    while machine.is_commanding() {
        machine.step();
    }
    machine
}

/// PSN, AETH and original value of each answer.
fn told(machine: &Machine) -> Vec<(u32, u32, u64)> {
    let told = machine.answered.iter().map(|(command, _)| {
        let headers = command.headers;
        assert_eq!(headers.opcode, Operation::AtomicAcknowledge as u64);
        let aeth = headers.extended.get_bits::<32>(0).to_u64() as u32;
        let original = headers.extended.get_bits::<64>(32).to_u64().swap_bytes();
        (headers.psn.to_u64() as u32, aeth.swap_bytes(), original)
    });
    told.collect()
}

fn atomic(machine: &Machine, operation: Operation, operand: u64, compare: u64) -> Request {
    Request { address: WORD, operand, compare, ..request(machine, 0, operation, 0) }
}

#[test]
fn an_atomic_waits_for_the_writes_before_it_and_is_answered_in_its_turn() {
    use Operation::{CompareSwap, FetchAdd, WriteOnly};
    let mut machine = machine();
    machine.words.insert(WORD | DEVICE, 0x1122_3344_5566_7788);
    machine.holds_writes = true;
    send(&mut machine, |machine| request(machine, 0, WriteOnly, 64));
    // FETCH_ADD ignores what COMPARE_SWAP compares with.
    send(&mut machine, |machine| atomic(machine, FetchAdd, 0x1_0000_0001, 0x55));
    send(&mut machine, |machine| atomic(machine, CompareSwap, 7, 0x1122_3345_5566_7789));
    send(&mut machine, |machine| atomic(machine, CompareSwap, 8, 0x1122_3345_5566_7789));
    send(&mut machine, |machine| request(machine, 0, WriteOnly, 64));
    machine.run(200);
    assert!(machine.word_asked.is_empty(), "the write before it is not done");
    machine.holds_writes = false;
    machine.settle();
    assert_eq!(machine.word_asked.len(), 3);
    assert!(machine.word_asked.iter().all(|&(address, done)| address == WORD | DEVICE && done >= 1));
    assert_eq!(machine.words[&(WORD | DEVICE)], 7);
    let told = told(&machine);
    let sum = 0x1122_3345_5566_7789;
    assert_eq!(
        told,
        [(FIRST_PSN + 1, 0x1f00_0002, 0x1122_3344_5566_7788), (0, 0x1f00_0003, sum), (1, 0x1f00_0004, 7),]
    );
    // The last WRITE is acknowledged after them.
    let &(_, _, last) = machine.replied.last().unwrap();
    assert_eq!(last, Owed { syndrome: 0x1f, psn: 2, msn: 5 });
    assert_eq!(
        machine.bench.block.atomics_in_flight.val().entered,
        machine.bench.block.atomics_in_flight.val().left
    );
}

#[test]
fn an_atomic_that_is_not_permitted_is_refused() {
    use Operation::{FetchAdd, WriteOnly};
    type Fault = fn(Request) -> Request;
    let faults: [(Fault, u8); 5] = [
        (|request| Request { address: WORD + 4, ..request }, 0x61),
        (|request| Request { payload_bytes: 4, ..request }, 0x61),
        (|request| Request { pad_mismatch: true, ..request }, 0x61),
        (|request| Request { key: 0x207, ..request }, 0x62),
        (|request| Request { address: 0x10_1000, ..request }, 0x62),
    ];
    for (spoil, syndrome) in faults {
        let mut machine = machine();
        send(&mut machine, |machine| spoil(atomic(machine, FetchAdd, 1, 0)));
        send(&mut machine, |machine| request(machine, 0, WriteOnly, 64));
        machine.settle();
        assert!(machine.word_asked.is_empty() && machine.answered.is_empty());
        let &(_, _, last) = machine.replied.last().unwrap();
        assert_eq!((last.syndrome, last.psn, last.msn), (syndrome, FIRST_PSN, 0));
    }
}

#[test]
fn a_refusal_fails_the_queue_pair_when_its_nak_leaves_after_the_responses() {
    use Operation::{FetchAdd, WriteMiddle, WriteOnly};
    type Fault = fn(&Machine) -> Request;
    // Admission refuses the first packet, the access check the second.
    let faults: [(Fault, u8); 2] = [
        (|machine| request(machine, 0, WriteMiddle, 64), 0x61),
        (|machine| Request { key: 0x207, ..request(machine, 0, WriteOnly, 64) }, 0x62),
    ];
    for (fault, syndrome) in faults {
        let mut machine = machine();
        machine.holds_gather = true;
        for _ in 0..2 {
            send(&mut machine, |machine| atomic(machine, FetchAdd, 1, 0));
        }
        send(&mut machine, fault);
        machine.run(200);
        let late = machine.placed.len();
        for _ in 0..3 {
            send(&mut machine, |machine| request(machine, 0, WriteOnly, 64));
        }
        machine.run(200);
        assert!(machine.replied.is_empty() && machine.failed.is_empty(), "the responses leave first");
        assert!(machine.placed[late..].iter().all(|(_, command)| command.is_silent()));
        assert_eq!(machine.count("requests_after_failure"), 3);
        machine.holds_gather = false;
        machine.settle();
        assert_eq!(machine.answered.len(), 2);
        let (replied, _, last) = machine.replied[0];
        assert_eq!((last.syndrome, last.psn, last.msn), (syndrome, 0, 2));
        assert_eq!((machine.replied.len(), machine.failed.len()), (1, 1));
        assert!(machine.failed[0].0 >= replied - 2, "it fails when the NAK leaves");
    }
}

/// Protocol 3.4: the saved value is sent again, the word is not touched again, and no acknowledgement passes the answer.
#[test]
fn a_duplicate_atomic_is_answered_from_its_slot() {
    use Operation::{CompareSwap, FetchAdd, WriteOnly};
    let mut machine = machine();
    machine.words.insert(WORD | DEVICE, 100);
    // Two more than there are slots: the first two are forgotten.
    for _ in 0..18 {
        send(&mut machine, |machine| atomic(machine, FetchAdd, 1, 0));
        machine.settle();
    }
    send(&mut machine, |machine| request(machine, 0, WriteOnly, 64));
    machine.settle();
    let first = told(&machine);
    assert_eq!((first.len(), machine.words[&(WORD | DEVICE)], machine.replied.len()), (18, 118, 1));
    let last_psn = machine.replied[0].2.psn;
    let again = |psn: u32| {
        move |machine: &Machine| Request {
            psn: (FIRST_PSN + psn) & 0xff_ffff,
            // What it asks for does not matter: only its PSN is looked up.
            ..atomic(machine, CompareSwap, 9, 118)
        }
    };
    machine.holds_gather = true;
    send(&mut machine, again(2));
    send(&mut machine, again(17));
    send(&mut machine, |machine| Request { psn: last_psn, ..request(machine, 0, WriteOnly, 64) });
    machine.run(300);
    assert_eq!((machine.answered.len(), machine.replied.len()), (18, 1), "no acknowledgement passes");
    machine.holds_gather = false;
    machine.settle();
    // The MSN is the current one.
    let expected = [2, 17].map(|at: usize| (first[at].0, 0x1f00_0013, first[at].2));
    assert_eq!(told(&machine)[18..], expected);
    assert_eq!(machine.replied[1].2, Owed { syndrome: 0x1f, psn: last_psn, msn: 19 });

    // Not noted any more, never an atomic, or of an earlier life: no answer, and nothing is left open.
    for psn in [0, 1, 18, 0xff_fff0] {
        send(&mut machine, again(psn));
    }
    send(&mut machine, |machine| Request { psn: last_psn, ..request(machine, 0, WriteOnly, 64) });
    machine.run(200);
    machine.settle();
    assert_eq!((machine.answered.len(), machine.replied.len()), (20, 3));
    assert_eq!((machine.count("duplicate_request"), machine.count("duplicate_dropped")), (4, 4));
    machine.connect(Attributes { generation: 5, remote_atomic: true, ..attributes(0) }, last_psn);
    while machine.is_commanding() {
        machine.step();
    }
    send(&mut machine, again(17));
    machine.settle();
    assert_eq!((machine.answered.len(), machine.count("duplicate_dropped")), (20, 5));
    assert_eq!((machine.word_asked.len(), machine.words[&(WORD | DEVICE)]), (18, 118));
}
