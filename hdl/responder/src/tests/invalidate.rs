//! SENDs with Invalidate: their completion, and later accesses with the invalid key.
use super::machine::Machine;
use super::model::{Completion, Owed, Region, Request};
use super::{connected, message, post, request, send, steps, work};
use rnic_blocks::bench::Stalls;
use rnic_layout::opcode::Operation;
use rnic_layout::queue::completion::CompletionStatus;

const KEY: u32 = 0x1_2305;

/// Three queue pairs with receive WQEs, and a region whose key peers may invalidate.
fn machine(stalls: Stalls) -> Machine {
    let mut machine = connected(stalls);
    for place in 0..3 {
        post(&mut machine, place, &[work(0x11), work(0x22), work(0x33)]);
    }
    let region = Region { key: KEY, invalidatable: true, ..machine.model.regions[0] };
    machine.model.regions.push(region);
    machine.run(100);
    machine
}

fn ending(machine: &Machine, place: usize, key: u32) -> Request {
    Request { immediate: key, ..request(machine, place, Operation::SendOnlyInvalidate, 100) }
}

fn completions(machine: &Machine) -> Vec<Completion> {
    machine.placed.iter().filter_map(|(_, command)| command.completion).collect()
}

#[test]
fn requests_after_an_invalidation_find_the_key_invalid() {
    use Operation::WriteOnly;
    // From the same queue pair, and from another one.
    for (stalls, place) in [(Stalls::None, 0), (Stalls::Both, 1)] {
        let mut machine = machine(stalls);
        let write = |machine: &Machine, place| Request { key: KEY, ..request(machine, place, WriteOnly, 64) };
        send(&mut machine, |machine| write(machine, place));
        send(&mut machine, |machine| ending(machine, 0, KEY));
        send(&mut machine, |machine| write(machine, place));
        machine.settle();
        let told = completions(&machine);
        let received = told[0].outcome.unwrap();
        assert_eq!((received.length, received.invalidated, received.immediate), (100, Some(KEY), None));
        let index = super::attributes(place).index();
        let (_, _, owed) = machine.replied.iter().rfind(|replied| replied.1 == index).unwrap();
        assert_eq!(owed.syndrome, 0x62, "{place}");
        assert_eq!(machine.count("remote_protection"), 1);
    }
}

#[test]
fn the_buffer_of_the_send_may_be_in_the_region_that_it_invalidates() {
    let mut machine = machine(Stalls::None);
    let mut entry = work(0x44);
    for key in [&mut entry.fields.sge0_key, &mut entry.fields.sge2_key] {
        *key = KEY;
    }
    // It is the fourth WQE: the three before it are for SENDs without Invalidate.
    post(&mut machine, 0, &[entry, entry]);
    for _ in 0..3 {
        send(&mut machine, |machine| request(machine, 0, Operation::SendOnly, 64));
    }
    message(&mut machine, 0, Operation::SendFirst, 1024 + 50, false);
    machine.settle();
    assert_eq!(completions(&machine).len(), 4);
    let from = machine.placed.len();
    send(&mut machine, |machine| ending(machine, 0, KEY));
    machine.settle();
    assert_eq!(machine.placed[from].1.spans.len(), 1);
    assert!(completions(&machine)[4].outcome.is_ok());
}

#[test]
fn a_key_that_must_not_be_invalidated_fails_the_queue_pair() {
    let mut machine = machine(Stalls::None);
    post(&mut machine, 3, &[work(0x11), work(0x22)]);
    let foreign = Region { key: 0x1_4505, domain: 8, ..machine.model.regions.last().copied().unwrap() };
    machine.model.regions.push(foreign);
    // A region that does not permit it, one of another domain, another variant, and a key that is invalid
    // already.
    for (place, key) in [0x142, 0x1_4505, KEY + 1, KEY].into_iter().enumerate() {
        let psn = request(&machine, place, Operation::SendOnly, 0).psn;
        if place == 3 {
            send(&mut machine, |machine| ending(machine, 3, KEY));
            machine.settle();
        }
        let from = machine.placed.len();
        send(&mut machine, |machine| ending(machine, place, key));
        send(&mut machine, |machine| request(machine, place, Operation::SendOnly, 9));
        machine.settle();
        let command = &machine.placed[from].1;
        assert!(command.spans.is_empty(), "nothing is placed");
        let outcome = command.completion.unwrap().outcome;
        assert_eq!(outcome, Err((CompletionStatus::RemoteAccess, 0x62)));
        let ended = u32::from(place == 3);
        assert_eq!(command.reply, Some(Owed { syndrome: 0x62, psn: psn + ended, msn: ended }));
        assert_eq!(machine.count("remote_protection"), place as u64 + 1);
        assert_eq!(machine.count("local_protection"), 0);
    }
}

/// A peer ends three keys, one behind the other, and a packet of another peer comes after them: it waits for the first only.
#[test]
fn a_key_ends_every_65_to_80_cycles_and_others_wait_for_one() {
    let mut machine = machine(Stalls::None);
    for index in 1..3 {
        let region = Region { key: KEY + 0x100 * index, ..machine.model.regions.last().copied().unwrap() };
        machine.model.regions.push(region);
    }
    let from = machine.placed.len();
    for index in 0..3 {
        send(&mut machine, |machine| ending(machine, 0, KEY + 0x100 * index));
    }
    send(&mut machine, |machine| request(machine, 1, Operation::WriteOnly, 9));
    machine.settle();
    let [write, second, third] = steps(&machine, from)[..] else { panic!("four commands are placed") };
    println!("with a control that answers after six cycles: {write}, {second} and {third} cycles");
    assert_eq!(machine.placed[from + 1].1.queue_pair, super::attributes(1).index());
    assert!(write <= 22, "{write}");
    assert!((61..=84).contains(&(write + second)) && (61..=84).contains(&third), "{second}, {third}");
}
