//! The admin ring: order, refusals of the host, and a failed device.
use super::*;

#[test]
fn a_query_that_the_host_refuses_is_answered_with_that() {
    let mut world = World::new(0.9);
    prepare(&mut world);
    world.refuses_queries = true;
    let mut refused = 0;
    for _ in 0..12 {
        probe(&mut world);
        let mut query = blank(CommandOpcode::QueryQueuePair, 1, &mut world.random);
        put(&Query::RECORD, &mut query, "buffer_bytes", 192);
        refused += usize::from(world.command(query).status == CommandStatus::HostError);
    }
    assert!((1..12).contains(&refused), "{refused} of 12 were refused");
    assert!(world.fatal.is_empty() && !world.ring.block.registers.failed.val());
}

/// Runs commands until the queue stops.
pub(super) fn until_it_stops(world: &mut World) -> u16 {
    for _ in 0..1000 {
        let index = world.written;
        let command = blank(CommandOpcode::Nothing, 0, &mut world.random);
        world.post(command);
        world.rest();
        if world.ring.block.registers.failed.val() {
            return index;
        }
        world.answer(index);
    }
    panic!("the queue does not stop");
}

#[test]
fn a_ring_that_the_host_refuses_stops_the_queue() {
    for (code, base, bytes) in
        [(FatalCode::HostReadError, COMMAND_BASE, 64), (FatalCode::HostWriteError, ANSWER_BASE, 16)]
    {
        let mut world = World::new(0.9);
        world.refuses_reads = code == FatalCode::HostReadError;
        world.refuses_answers = !world.refuses_reads;
        let index = until_it_stops(&mut world);
        let address = base + u64::from(index % 8) * bytes;
        assert_eq!(world.fatal, [(u64::from(code.number()), address & 0xffff_ffff)]);
        world.post([0; COMMAND_BYTES]);
        world.rest();
        assert_eq!(world.fatal.len(), 1, "it has stopped");
        // Enabling it again starts at index 0 with phase 1.
        (world.refuses_reads, world.refuses_answers) = (false, false);
        world.ring.block.registers.enable.next = false;
        world.cycle();
        world.ring.block.registers.enable.next = true;
        world.cycle();
        world.cycle();
        assert_eq!(world.ring.block.registers.consumer_index.val(), bits(0));
        world.answers.clear();
        world.expected.clear();
        world.written = 0;
        let command = blank(CommandOpcode::Nothing, 0, &mut world.random);
        assert_eq!(world.command(command).status, CommandStatus::Success);
    }
}

#[test]
fn many_commands_at_once_are_answered_in_order() {
    let mut world = World::new(0.9);
    for _ in 0..4 {
        let first = world.written;
        for _ in 0..8 {
            let command = blank(CommandOpcode::Nothing, 0, &mut world.random);
            world.post(command);
        }
        // A doorbell that claims more than the ring holds is ignored.
        world.cycle();
        world.written = world.written.wrapping_add(1);
        world.ringing = true;
        world.cycle();
        world.written = world.written.wrapping_sub(1);
        let expected: Vec<Bytes> = (0..8)
            .map(|place| world.commands[&(COMMAND_BASE + 64 * (u64::from(first + place) % 8))])
            .collect();
        world.rest();
        let executed: Vec<Bytes> = world.expected.iter().map(|(bytes, _)| *bytes).collect();
        assert_eq!(executed, expected);
        (0..8).for_each(|place| {
            world.answer(first + place);
        });
    }
}

#[test]
fn a_failed_device_executes_nothing() {
    let mut world = World::new(0.9);
    prepare(&mut world);
    // A command that waits for ever: nothing leaves the card.
    world.is_stuck = true;
    let index = world.written;
    let destroy = blank(CommandOpcode::DestroyQueuePair, 1, &mut world.random);
    world.post(destroy);
    (0..3000).for_each(|_| world.cycle());
    assert!(world.ring.block.registers.busy.val(), "it waits");
    world.ring.block.device_failed.next = true;
    world.sequencer.block.device_failed.next = true;
    world.cycle();
    world.expected[0].1 = Err((CommandStatus::DeviceFailed, 0));
    assert_eq!(world.answer(index).status, CommandStatus::DeviceFailed);
    world.compare();
    let index = world.written;
    let nothing = blank(CommandOpcode::Nothing, 0, &mut world.random);
    world.post(nothing);
    world.expected.push_back((nothing, Err((CommandStatus::DeviceFailed, 0))));
    world.answer(index);
}
