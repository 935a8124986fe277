//! Messages of several packets: placement, completion and failures.
use super::machine::Machine;
use super::model::{Command, Completion, Owed, Request, Work};
use super::{FIRST_PSN, attributes, connected, message, post, request, send, steps, work};
use crate::scatter::exceeds;
use rnic_blocks::bench::Stalls;
use rnic_kernel::prelude::*;
use rnic_layout::opcode::Operation;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::state::QpState;
use rnic_messages::setup::SetupKind;

const DEVICE: u64 = 1 << 40;

fn commands(machine: &Machine) -> Vec<Command> {
    machine.placed.iter().map(|placed| placed.1.clone()).collect()
}

fn completions(machine: &Machine) -> Vec<Completion> {
    commands(machine).into_iter().filter_map(|command| command.completion).collect()
}

/// `wr_id` and status of each CQE, in the order of completion.
fn outcomes(machine: &Machine) -> Vec<(u64, Option<CompletionStatus>)> {
    let outcome = |told: Completion| (told.wr_id, told.outcome.err().map(|(status, _)| status));
    completions(machine).into_iter().map(outcome).collect()
}

/// A receive WQE of three SGEs: 100 bytes, none, and the rest.
fn roomy(wr_id: u64) -> Work {
    let mut work = work(wr_id);
    work.fields.sge2_length = 0x4000;
    work
}

#[test]
fn a_message_is_placed_in_its_buffer_and_completes_once() {
    use Operation::{SendFirst, SendOnly, WriteFirst, WriteOnly};
    let mut machine = connected(Stalls::None);
    post(&mut machine, 0, &[roomy(0x11), roomy(0x22), roomy(0x33)]);
    machine.run(60);
    message(&mut machine, 0, SendFirst, 2500, true);
    message(&mut machine, 0, WriteFirst, 2048, false);
    message(&mut machine, 0, WriteFirst, 2049, true);
    machine.settle();
    let spans: Vec<_> = commands(&machine).into_iter().map(|command| command.spans).collect();
    let (low, high) = (0x2_1000 | DEVICE, 0x8_0001 | DEVICE);
    assert_eq!(spans[0], [(low, 100), (high, 924)]);
    assert_eq!(spans[1..3], [vec![(high + 924, 1024)], vec![(high + 1948, 452)]]);
    let at = 0x7001 | DEVICE;
    assert_eq!(spans[3..5], [vec![(at, 1024)], vec![(at + 1024, 1024)]]);
    assert_eq!(spans[5..], [vec![(at, 1024)], vec![(at + 1024, 1024)], vec![(at + 2048, 1)]]);
    let told: Vec<_> = completions(&machine)
        .into_iter()
        .map(|told| {
            let received = told.outcome.unwrap();
            (told.wr_id, told.consumer_index, received.opcode, received.length, received.immediate)
        })
        .collect();
    let immediate = Some(0x0102_0304);
    assert_eq!(
        told,
        [
            (0x11, 1, CompletionOpcode::Receive, 2500, immediate),
            (0x22, 2, CompletionOpcode::ReceiveWrite, 2049, immediate)
        ]
    );
    // Three messages of eight packets in all, with PSNs that wrap.
    assert_eq!(machine.replied.last().unwrap().2, Owed { syndrome: 0x1f, psn: 5, msn: 3 });

    // Packets of one message follow each other as fast as messages do.
    for (first, cycles) in [(WriteFirst, 3), (SendFirst, 4)] {
        let from = machine.placed.len();
        message(&mut machine, 0, first, 14 * 1024, false);
        machine.settle();
        let steps = steps(&machine, from);
        println!("packets of one message in {steps:?} cycles");
        // The first of a SEND fills two SGEs, and the sweep over the queue pairs takes three cycles.
        assert!(steps.iter().sum::<u64>() <= cycles * 13 + 4, "{steps:?}");
    }
    // Packets of two queue pairs alternate; the message of each continues where it was.
    post(&mut machine, 1, &[roomy(0x55)]);
    post(&mut machine, 2, &[roomy(0x66)]);
    for place in [1, 2] {
        let pmtu = attributes(place).pmtu_bytes();
        send(&mut machine, |machine| request(machine, place, SendFirst, pmtu));
        send(&mut machine, |machine| request(machine, 0, WriteOnly, 64));
    }
    for place in [1, 2] {
        let pmtu = attributes(place).pmtu_bytes();
        send(&mut machine, |machine| request(machine, place, Operation::SendMiddle, pmtu));
    }
    machine.settle();
    for place in [2, 1] {
        let offered = machine.cycle;
        send(&mut machine, |machine| request(machine, place, Operation::SendLast, 1));
        machine.settle();
        let latency = machine.placed.last().unwrap().0 - offered;
        println!("{latency} cycles from the last of a SEND to its command");
        assert!(latency <= 18, "{latency} cycles");
    }
    let told = completions(&machine);
    let lengths: Vec<_> = told[told.len() - 2..].iter().map(|told| told.outcome.unwrap().length).collect();
    assert_eq!(lengths, [4097, 1025]);
    // No state of the messages is left.
    send(&mut machine, |machine| request(machine, 1, WriteOnly, 64));
    send(&mut machine, |machine| request(machine, 2, SendOnly, 64));
    machine.settle();
    assert_eq!(machine.replied.last().unwrap().2.syndrome >> 5, 1, "no receive WQE is posted for it");
}

#[test]
fn gaps_duplicates_and_missing_receives_leave_the_message_as_it_is() {
    use Operation::{SendFirst, SendLast, SendMiddle, WriteFirst, WriteLastImmediate};
    let mut machine = connected(Stalls::None);
    let shifted = |machine: &Machine, operation, bytes, distance: u32| {
        let packet = request(machine, 0, operation, bytes);
        Request { psn: packet.psn.wrapping_add(distance) & 0xff_ffff, ..packet }
    };
    let last = |machine: &Machine| machine.replied.last().unwrap().2;
    send(&mut machine, |machine| request(machine, 0, SendFirst, 1024));
    machine.settle();
    assert_eq!(last(&machine), Owed { syndrome: 0x20 | 12, psn: FIRST_PSN, msn: 0 });
    post(&mut machine, 0, &[roomy(0x11)]);
    send(&mut machine, |machine| request(machine, 0, SendFirst, 1024));
    machine.settle();
    assert_eq!(last(&machine), Owed { syndrome: 0x1f, psn: FIRST_PSN, msn: 0 });
    // The first packet again, then the last one too early, then the expected one.
    send(&mut machine, |machine| shifted(machine, SendFirst, 1024, u32::MAX));
    send(&mut machine, |machine| shifted(machine, SendLast, 9, 1));
    machine.settle();
    assert_eq!(last(&machine), Owed { syndrome: 0x60, psn: FIRST_PSN + 1, msn: 0 });
    send(&mut machine, |machine| request(machine, 0, SendMiddle, 1024));
    send(&mut machine, |machine| request(machine, 0, SendLast, 9));
    machine.settle();
    assert_eq!(last(&machine), Owed { syndrome: 0x1f, psn: 0, msn: 1 });
    assert_eq!(completions(&machine)[0].outcome.unwrap().length, 2057);

    let reth = |machine: &Machine, operation, bytes| Request {
        length: 1100,
        ..request(machine, 0, operation, bytes)
    };
    send(&mut machine, |machine| reth(machine, WriteFirst, 1024));
    send(&mut machine, |machine| reth(machine, WriteLastImmediate, 76));
    machine.settle();
    assert_eq!(last(&machine), Owed { syndrome: 0x20 | 12, psn: 2, msn: 1 });
    assert!(commands(&machine).last().unwrap().spans.is_empty(), "nothing is written without a receive WQE");
    post(&mut machine, 0, &[roomy(0x22)]);
    send(&mut machine, |machine| reth(machine, WriteLastImmediate, 76));
    machine.settle();
    assert_eq!(last(&machine), Owed { syndrome: 0x1f, psn: 2, msn: 2 });
    assert_eq!(completions(&machine)[1].outcome.unwrap().length, 1100);
    assert_eq!(commands(&machine).last().unwrap().spans, [(0x7401 | DEVICE, 76)]);
}

#[test]
fn a_failed_message_completes_its_receive_wqe_once_and_first() {
    use CompletionStatus::{Flushed, LocalLength, LocalProtection, RemoteInvalidRequest};
    use Operation::{SendFirst, SendLast, SendMiddle, SendOnly, WriteFirst, WriteMiddle};
    // A command, an opcode out of order, a message that is too long, a bad SGE; later packets are in flight
    // when the fault is found.
    for (cause, status) in
        [Flushed, RemoteInvalidRequest, LocalLength, LocalProtection].into_iter().enumerate()
    {
        let mut machine = connected(Stalls::None);
        let mut first = roomy(0x11);
        match status {
            LocalLength => first.fields.sge2_length = 3000,
            LocalProtection => {
                first.fields.sge1_length = 3000;
                first.fields.sge1_key = 0x207;
                first.fields.sge2_key = 0x307;
            }
            _ => {}
        }
        first.fields.sge1_address = 0x3000;
        post(&mut machine, 0, &[first, roomy(0x22), roomy(0x33)]);
        machine.run(60);
        for operation in [SendFirst, SendMiddle] {
            send(&mut machine, |machine| request(machine, 0, operation, 1024));
        }
        if cause == 0 {
            let life = attributes(0);
            machine.command(SetupKind::Life, super::Attributes { state: QpState::Error, ..life }, 0);
        } else {
            let third = if cause == 1 { SendOnly } else { SendMiddle };
            send(&mut machine, |machine| request(machine, 0, third, 1024));
            for operation in [SendMiddle, SendLast, SendFirst] {
                send(&mut machine, |machine| request(machine, 0, operation, 1024));
            }
        }
        machine.settle();
        let flushed = Some(Flushed);
        assert_eq!(
            outcomes(&machine),
            [(0x11, Some(status)), (0x22, flushed), (0x33, flushed)],
            "{status:?}"
        );
        let syndrome = machine.replied.last().unwrap().2.syndrome;
        assert_eq!(syndrome, [0x1f, 0x61, 0x61, 0x63][cause]);
    }

    // The region is invalidated while the WRITE arrives: later packets are not written.
    let mut machine = connected(Stalls::None);
    let reth =
        |machine: &Machine, operation| Request { length: 4096, ..request(machine, 0, operation, 1024) };
    send(&mut machine, |machine| reth(machine, WriteFirst));
    send(&mut machine, |machine| reth(machine, WriteMiddle));
    machine.settle();
    machine.model.regions.clear();
    send(&mut machine, |machine| reth(machine, WriteMiddle));
    machine.settle();
    let spans: Vec<_> = commands(&machine).iter().map(|command| command.spans.len()).collect();
    assert_eq!(spans, [1, 1, 0]);
    assert_eq!(machine.replied.last().unwrap().2, Owed { syndrome: 0x62, psn: 0, msn: 0 });
}

#[test]
fn no_send_is_longer_than_a_message_may_be() {
    let limit = 1 << 31;
    assert!(!exceeds(bits(limit - 4096), bits(4096)));
    assert!(exceeds(bits(limit - 4095), bits(4096)));
    assert!(!exceeds(bits(limit), bits(0)) && exceeds(bits(limit), bits(1)));
}
