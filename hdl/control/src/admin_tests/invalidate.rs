//! Keys that requester and responder invalidate.
use super::*;

impl Model {
    /// Invalidates a key; tells whether it could.
    pub(super) fn invalidate(&mut self, key: u32, domain: u64) -> bool {
        let record = &CreateRegion::RECORD;
        let Ok(mut region) = self.region(key) else { return false };
        let is = |name, value| get(record, &region.1, name) == value;
        let ends = is("kind", RegionKind::Region.number().into()) && is("invalidatable", 1);
        if !ends || !is("domain", domain) {
            return false;
        }
        put(record, &mut region.1, "kind", RegionKind::Free.number().into());
        self.regions.insert(key >> 8 & 1023, region);
        self.expect_region(&region, false);
        true
    }
}

#[test]
fn a_key_is_invalidated_once_and_its_index_stays_in_use() {
    use CommandOpcode as Op;
    let mut world = World::new(0.7);
    prepare(&mut world);
    make_region(&mut world, 0x1_0a01, true);
    make_region(&mut world, 0x1_0b02, false);
    // Of each source: another variant, another domain, a region that cannot be invalidated, no region; then the key, twice.
    for source in 0..2 {
        for (key, domain) in [(0x1_0a02, 5), (0x1_0a01, 4), (0x1_0b02, 5), (0x1_0c03, 5)] {
            world.invalidate_key(source, key, domain);
        }
    }
    world.compare();
    assert_eq!(world.answered_keys, (0, 8));
    world.invalidate_key(0, 0x1_0a01, 5);
    world.invalidate_key(0, 0x1_0a01, 5);
    world.compare();
    assert_eq!(world.answered_keys, (1, 9));
    let mut query = blank(Op::QueryRegion, 0x1_0a01, &mut world.random);
    put(&Query::RECORD, &mut query, "buffer_bytes", 64);
    assert_eq!(world.command(query).status, CommandStatus::Success);
    let mut modify = blank(Op::ModifyRegion, 0x1_0a01, &mut world.random);
    put(&ModifyRegion::RECORD, &mut modify, "change_rights", 1);
    assert_eq!(world.command(modify).status, CommandStatus::Success);
    let mut again = blank(Op::CreateRegion, 0x1_0a07, &mut world.random);
    put(&CreateRegion::RECORD, &mut again, "kind", RegionKind::Region.number().into());
    assert_eq!(world.command(again).status, CommandStatus::AlreadyExists);
    let destroy = blank(Op::DestroyRegion, 0x1_0a01, &mut world.random);
    assert_eq!(world.command(destroy).status, CommandStatus::Success);
    make_region(&mut world, 0x1_0a07, true);
    world.invalidate_key(1, 0x1_0a07, 5);
    world.compare();
    assert_eq!(world.answered_keys, (2, 9));
}

/// Keys are invalidated while a command waits for the card, and while the host takes nothing; a key that a command is changing
/// is refused.
#[test]
fn keys_are_invalidated_whatever_a_command_waits_for() {
    use CommandOpcode as Op;
    let mut world = World::new(0.9);
    prepare(&mut world);
    for index in 0..8 {
        make_region(&mut world, 0x2_0001 + (index << 8), true);
    }
    world.is_stuck = true;
    let mut modify = blank(Op::ModifyRegion, 0x2_0001, &mut world.random);
    put(&ModifyRegion::RECORD, &mut modify, "change_rights", 1);
    let written = world.written;
    world.post(modify);
    (0..1500).for_each(|_| world.cycle());
    // The interpreter has executed the whole command already.
    let changed = world.model.regions.remove(&0x200).expect("it exists");
    let last = world.model.messages.pop().expect("the region tables are written");
    for index in [1, 0, 2] {
        world.invalidate_key(1, 0x2_0001 + (index << 8), 5);
        (0..BUSY_CYCLES).for_each(|_| world.cycle());
    }
    // A request of the requester is not answered while something is in flight.
    world.invalidate_key(0, 0x2_0301, 5);
    (0..1500).for_each(|_| world.cycle());
    assert_eq!((world.answered_keys, world.taken_keys[0].len()), ((2, 1), 1));
    world.is_stuck = false;
    world.model.regions.insert(0x200, changed);
    world.model.messages.push(last);
    assert_eq!(world.answer(written).status, CommandStatus::Success);
    world.compare();
    assert_eq!(world.answered_keys, (3, 1));
    // The stages take no setup event.
    let life = goes_to(&mut world, QpState::Reset, QpState::Init);
    let written = world.written;
    world.post(life);
    while world.expected.is_empty() {
        world.cycle();
    }
    world.chance = 0.0;
    (0..1500).for_each(|_| world.cycle());
    assert!(world.sequencer.block.setup.valid.val());
    world.invalidate_key(1, 0x2_0401, 5);
    (0..BUSY_CYCLES).for_each(|_| world.cycle());
    assert_eq!(world.answered_keys, (4, 1));
    world.chance = 0.9;
    assert_eq!(world.answer(written).status, CommandStatus::Success);
    world.compare();
}

/// Keys are invalidated while pages are read, and no word of the list is lost, at whatever cycle it happens.
#[test]
fn keys_are_invalidated_while_pages_are_read() {
    let mut world = World::new(1.0);
    prepare(&mut world);
    for (round, begins) in (-60..=-60).chain(-12..14).enumerate() {
        let key = 0x2_0001 + ((round as u32) << 8);
        make_region(&mut world, key, true);
        let create = paged(&mut world, CommandOpcode::CreateRegion, key + 0x4000, (5, 12), 9, 2 << 12);
        let written = world.written;
        world.post(create);
        while !world.sequencer.block.list_read.valid.val() {
            world.cycle();
        }
        // The interpreter has executed the whole command already.
        let made = world.model.messages.pop().expect("the region tables are written");
        world.chance = 0.0;
        if begins < 0 {
            world.invalidate_key(1, key, 5);
            (begins..0).for_each(|_| world.cycle());
        }
        assert!(begins > -60 || world.answered_keys.0 == 1, "a peer does not wait for the host");
        world.chance = 1.0;
        if begins >= 0 {
            (0..begins).for_each(|_| world.cycle());
            world.invalidate_key(1, key, 5);
        }
        assert_eq!(world.answer(written).status, CommandStatus::Success);
        world.rest();
        let is_region = |messages: &&Message| matches!(messages, Message::Region(_));
        let place = world.messages.iter().filter(is_region).position(|messages| *messages == made);
        let at = if place == Some(0) {
            world.model.messages.iter().position(|messages| is_region(&messages))
        } else {
            None
        };
        world.model.messages.insert(at.unwrap_or(world.model.messages.len()), made);
        world.compare();
        assert_eq!(world.answered_keys, (round + 1, 0));
        let mut query = blank(CommandOpcode::QueryRegion, key, &mut world.random);
        put(&Query::RECORD, &mut query, "buffer_bytes", 64);
        assert_eq!(world.command(query).status, CommandStatus::Success);
    }
    assert!(world.slowest <= BUSY_CYCLES);
}
