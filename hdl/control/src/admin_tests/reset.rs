//! Resets.
use super::*;

#[test]
fn a_reset_in_a_command_leaves_nothing_behind() {
    let mut world = World::new(0.9);
    prepare(&mut world);
    world.is_stuck = true;
    let destroy = blank(CommandOpcode::DestroyQueuePair, 1, &mut world.random);
    world.post(destroy);
    (0..3000).for_each(|_| world.cycle());
    assert!(world.ring.block.registers.busy.val(), "it waits");
    world.compare_messages();
    for is_reset in [true, false] {
        world.ring.block.reset.next = is_reset;
        world.sequencer.block.reset.next = is_reset;
        world.ring.block.registers.enable.next = !is_reset;
        world.cycle();
    }
    world.is_stuck = false;
    (world.written, world.done_count) = (0, 0);
    world.answers.clear();
    world.expected.clear();
    world.model.forget();
    // The queue pair is gone, but the stages get its setup event once more.
    let cut_off = world.model.messages.len();
    world.sequencer.block.forget.next = true;
    world.cycle();
    world.sequencer.block.forget.next = false;
    world.rest();
    let is_cut_off = |messages: &Message| {
        matches!(messages, Message::Setup(setup) if setup.kind == SetupKind::Restart && setup.queue_pair == 1)
            || matches!(messages, Message::Page(page) if page.kind == Kind::QueuePair && page.index == 1 && !page.valid)
    };
    assert_eq!(world.messages.iter().filter(|messages| is_cut_off(messages)).count(), 2);
    world.messages.retain(|messages| !is_cut_off(messages));
    assert_eq!(world.messages.len(), cut_off);
    world.compare();
    world.model.age(1);
    for (opcode, number) in [
        (CommandOpcode::DestroyQueuePair, 1),
        (CommandOpcode::DestroyRegion, 0x307),
        (CommandOpcode::DestroyCompletionQueue, 2),
        (CommandOpcode::DestroyAddressHandle, 5),
        (CommandOpcode::DestroyEventQueue, 0),
    ] {
        let destroy = blank(opcode, number, &mut world.random);
        assert_eq!(world.command(destroy).status, CommandStatus::DoesNotExist);
    }
    // The queues from before the reset have no users.
    prepare(&mut world);
    for (opcode, number) in [(CommandOpcode::DestroyQueuePair, 1), (CommandOpcode::DestroyCompletionQueue, 2)]
    {
        let destroy = blank(opcode, number, &mut world.random);
        assert_eq!(world.command(destroy).status, CommandStatus::Success);
    }
}
