//! Random commands, failures and keys.
use super::*;

/// Draws the number of an object: one of a few, and sometimes one out of range.
pub(super) fn draw_number(kind: u8, random: &mut Random) -> u32 {
    let edge = random.random_bool(0.1);
    match kind {
        1 if edge => 1 << 24 | 1,
        1 => random.random_range(0..3) | *[0, 0, 0, 0x40_0400].choose(random).expect("there are some"),
        2 if edge => *[1023, 1024].choose(random).expect("there are some"),
        4 if edge => *[63, 64].choose(random).expect("there are some"),
        3 if edge => *[31, 32].choose(random).expect("there are some"),
        5 => random.random_range(0..3) << 8 | *[7, 7, 7, 0x0400_0007].choose(random).expect("there are some"),
        6 if edge => *[255, 256].choose(random).expect("there are some"),
        _ => random.random_range(0..3),
    }
}

/// Draws the number of an object that exists.
pub(super) fn draw_existing(model: &Model, kind: u8, random: &mut Random) -> Option<u32> {
    let numbers: Vec<u32> = match kind {
        1 => model.pairs.values().map(|pair| pair.number).collect(),
        2 => model.completion_queues.keys().copied().collect(),
        3 => model.event_queues.keys().copied().collect(),
        4 => model.shared.keys().copied().collect(),
        5 => model.regions.values().map(|region| region.0).collect(),
        6 => model.handles.keys().copied().collect(),
        _ => Vec::new(),
    };
    numbers.choose(random).copied()
}

/// Draws a command that is likely to succeed, or wrong in one place.
pub(super) fn draw(world: &mut World) -> Bytes {
    use CommandOpcode as Op;
    let random = &mut world.random;
    let modifies = random.random_bool(0.4);
    let opcode =
        if modifies { Op::ModifyQueuePair } else { *Op::ALL.choose(random).expect("there are some") };
    let kind = opcode.number() >> 4;
    let is_create = opcode.number() & 15 == 1;
    let existing = draw_existing(&world.model, kind, random);
    let number = match existing {
        Some(existing) if !is_create && random.random_bool(0.9) => existing,
        _ => draw_number(kind, random),
    };
    let queue = draw_existing(&world.model, 2, random).unwrap_or(0);
    let handle = draw_existing(&world.model, 6, random).unwrap_or(0);
    let events = draw_existing(&world.model, 3, random).unwrap_or(0);
    let shared = draw_existing(&world.model, 4, random);
    let mut bytes = blank(opcode, number, random);
    let Some(record) = record_of(opcode) else { return spoil(bytes, random) };
    for field in record.fields.iter().filter(|field| field.width <= 64) {
        let value = random.random::<u64>() & field.max();
        let value = match field.name {
            "domain" => u64::from(random.random_bool(0.1)),
            "service" | "first_offset" | "first_entry" => 0,
            "shared_receive" => value & u64::from(shared.is_some()),
            "shared_receive_queue" => shared.unwrap_or(0).into(),
            "translation" => random.random_range(0..2),
            "page_log2" => random.random_range(12..31),
            "kind" => 1,
            "doorbell_page" => value & 255,
            "base" | "send_base" | "receive_base" => value & !0xfff,
            "buffer" => value & !0x3f,
            "buffer_bytes" => *[64, 192, 192, 4096].choose(random).expect("there are some"),
            "event_queue" => events.into(),
            "send_completion_queue" | "receive_completion_queue" => queue.into(),
            "address_handle" => handle.into(),
            "local_write" => u64::from(random.random_bool(0.8)),
            "zero_based" => 0,
            "first_address" | "length" | "translation_base" => value >> 2,
            "source_address_index" => random.random_range(0..7),
            "partition_key" => value | 1,
            "path_mtu" => random.random_range(1..6),
            "port" => 1,
            _ => value,
        };
        let _ = field.set(&mut bytes[BODY_OFFSET..], value);
    }
    if opcode == Op::ModifyQueuePair {
        let state = world.model.pairs.get(&(number % 1024)).map_or(QpState::Reset, |pair| pair.state);
        let goals: Vec<QpState> = QpState::ALL
            .iter()
            .copied()
            .filter(|to| transition(Service::ReliableConnected, state, *to).is_some())
            .collect();
        // Towards RTS more often than to an error or RESET.
        let to = *goals.choose(random).expect("RESET can be reached");
        let to =
            if random.random_bool(0.6) { *goals.iter().find(|to| **to > state).unwrap_or(&to) } else { to };
        let row = transition(Service::ReliableConnected, state, to).expect("it was found above");
        let not_here = ATTRIBUTES.iter().filter(|attribute| attribute.field.is_empty());
        let not_here = not_here.fold(0, |mask, attribute| mask | attribute.mask.0);
        let optional = row.optional.0 & random.random::<u32>() & !not_here;
        let mut mask = row.required.0 | optional | 1;
        if random.random_bool(0.1) {
            mask ^= 1 << random.random_range(0..26);
        }
        put(record, &mut bytes, "mask", mask.into());
        put(record, &mut bytes, "next_state", to.number().into());
        let current = if random.random_bool(0.9) { state } else { QpState::Error };
        put(record, &mut bytes, "current_state", current.number().into());
    }
    if matches!(opcode, Op::CreateRegion | Op::ModifyRegion) {
        let is_paged = get(record, &bytes, "translation") == 1;
        if is_paged {
            draw_pages(record, &mut bytes, random);
        }
        bytes = spoil(bytes, random);
        draw_list(&mut world.model, record, &bytes, random);
        return bytes;
    }
    spoil(bytes, random)
}

/// Gives a command a region of some pages, whose first and last bytes are anywhere in their pages.
pub(super) fn draw_pages(record: &Record, bytes: &mut Bytes, random: &mut Random) {
    let log2 = get(record, bytes, "page_log2");
    let size = 1u64 << log2;
    let pages = random.random_range(1..40);
    let offset = *[0, size - 1, random.random_range(0..size)].choose(random).expect("there are some");
    let end = *[1, size, random.random_range(1..=size)].choose(random).expect("there are some");
    let length = ((pages - 1) * size + end).saturating_sub(offset);
    let last = *[16_384, 16_384 - random.random_range(0..3), 5_000].choose(random).expect("there are some");
    let beyond = u64::from(random.random_bool(0.1));
    put(record, bytes, "first_offset", offset);
    put(record, bytes, "first_entry", last - pages + beyond);
    put(record, bytes, "length", length);
    let base = get(record, bytes, "translation_base");
    put(record, bytes, "translation_base", if random.random_bool(0.95) { base & !0xfff } else { base });
}

/// Fills the list of a region in host memory with pages of its size, rarely with one that is misaligned.
pub(super) fn draw_list(model: &mut Model, record: &Record, bytes: &Bytes, random: &mut Random) {
    let (base, log2) = (get(record, bytes, "translation_base"), get(record, bytes, "page_log2").max(12));
    let bad = random.random_range(0..160);
    for index in 0..40 {
        let page = random.random::<u64>() >> log2 << log2;
        let page = if index == bad { page | 1 << random.random_range(0..log2) } else { page };
        model.lists.insert(base.wrapping_add(8 * index), page);
    }
    let slot = base.wrapping_add(64 * random.random_range(0..5)) & !63;
    if random.random_bool(0.1) {
        model.bad_slots.insert(slot);
    }
}

/// Makes one command in about seven wrong in one place.
pub(super) fn spoil(mut bytes: Bytes, random: &mut Random) -> Bytes {
    let opcode = CommandOpcode::from_number(bytes[0].into()).expect("it was drawn");
    match random.random_range(0..20) {
        0 => {
            let bit = random.random_range(0..8 * COMMAND_BYTES);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        1 | 2 => {
            if let Some(field) = record_of(opcode).and_then(|record| record.fields.choose(random))
                && field.width <= 64
            {
                let value = random.random::<u64>() & field.max();
                let _ = field.set(&mut bytes[BODY_OFFSET..], value);
            }
        }
        _ => {}
    }
    bytes
}

/// Draws a notice of an object that may exist, in a generation that may be current.
pub(super) fn draw_notice(world: &mut World) -> Notice {
    let index = world.random.random_range(0..3);
    let is_limit = world.random.random_bool(0.25);
    let setting = world.model.limit_settings.get(&index).copied().unwrap_or(0);
    let generation = if is_limit { setting } else { world.model.generation(index) };
    // A notice never names a setting of the future.
    let may_be_current = !is_limit || world.model.shared.contains_key(&index);
    let is_current = world.random.random_bool(0.8) && may_be_current;
    let generation = if is_current { generation } else { generation.wrapping_sub(1) };
    if is_limit {
        return Notice::OfLimit(SrqLimitNotice {
            srq: bits(index.into()),
            limit_generation: bits(generation.into()),
        });
    }
    use NoticeKind::{Drained, Established, QueueError, RequesterError, ResponderError};
    // A queue pair in SQD usually drains.
    let pair = world.model.pairs.get(&index);
    let drains = pair.is_some_and(|pair| pair.state == QpState::SendQueueDrain);
    let kinds = if drains {
        [Drained, Drained, Established, RequesterError, QueueError]
    } else {
        [RequesterError, ResponderError, QueueError, Established, Drained]
    };
    let kind = kinds[world.random.random_range(0..kinds.len())];
    Notice::OfQueuePair(QpNotice {
        queue_pair: bits(index.into()),
        generation: bits(generation.into()),
        kind,
        has_event: matches!(kind, Drained | Established) || world.random.random(),
        event_code: bits(AsyncEvent::QueuePairAccessError.number().into()),
    })
}

pub(super) fn probe(world: &mut World) {
    world.sequencer.block.probed_send.next = bits(world.random.random::<u64>() & 0xff_ffff);
    world.sequencer.block.probed_receive.next = bits(world.random.random::<u64>() & 0xff_ffff);
    world.sequencer.block.probed_busy.next = world.random.random();
}

/// Requests the invalidation of a key: of a region that exists, or of a wrong one.
pub(super) fn draw_key(world: &mut World) {
    let regions: Vec<_> = world.model.regions.values().copied().collect();
    let Some(&(key, create, _)) = regions.choose(&mut world.random) else { return };
    let domain = get(&CreateRegion::RECORD, &create, "domain");
    let source = world.random.random_range(0..2);
    match world.random.random_range(0..6) {
        0 => world.invalidate_key(source, key ^ 1, domain),
        1 => {
            let bit = world.random.random_range(0..24);
            world.invalidate_key(source, key, domain ^ 1 << bit);
        }
        2 => world.invalidate_key(source, key ^ 1 << 31, domain),
        _ => world.invalidate_key(source, key, domain),
    }
}

/// Runs random commands, right and wrong, with failures of queue pairs at any time.
pub(super) fn run(world: &mut World, commands: usize, failing: f64) -> BTreeMap<(u8, CommandStatus), usize> {
    world.model.source_addresses = 0x3f;
    (world.counted, world.admin_events) = ((0, 0), Vec::new());
    let mut outcomes: BTreeMap<(u8, CommandStatus), usize> = BTreeMap::new();
    for _ in 0..commands {
        probe(world);
        let command = draw(world);
        let index = world.written;
        world.post(command);
        if world.random.random_bool(failing) {
            for _ in 0..world.random.random_range(0..600) {
                world.cycle();
            }
            for _ in 0..world.random.random_range(1..4) {
                let failure = draw_notice(world);
                world.notices.push_back(failure);
            }
        }
        // Keys are not invalidated during a command about regions: the interpreter knows only the states before and after it.
        let is_region = (0x51..0x55).contains(&command[0]);
        if is_region {
            world.answer_and_compare(index, &command, &mut outcomes);
        }
        for _ in 0..world.random.random_range(0..4) {
            draw_key(world);
            for _ in 0..world.random.random_range(0..100) {
                world.cycle();
            }
        }
        if is_region {
            world.compare();
            continue;
        }
        world.answer_and_compare(index, &command, &mut outcomes);
    }
    let good = |(_, status): &(u8, CommandStatus)| *status == CommandStatus::Success;
    let executed: usize = outcomes.iter().filter(|(key, _)| good(key)).map(|(_, count)| count).sum();
    assert_eq!(core::mem::take(&mut world.counted), (executed, commands - executed));
    let mut shown: Vec<_> = outcomes.iter().map(|(key, count)| (key.0, key.1 as u8, count)).collect();
    shown.sort_unstable();
    println!("{} cycles; opcode, status, count: {shown:?}", world.cycles);
    println!(
        "keys answered {:?}; a peer has waited for {} cycles at most",
        world.answered_keys, world.slowest
    );
    assert!(world.slowest <= BUSY_CYCLES);
    outcomes
}

#[test]
fn random_commands_end_as_the_contract_says() {
    let mut world = World::new(0.9);
    prepare(&mut world);
    let outcomes = run(&mut world, 100, 0.0);
    let successes = outcomes.iter().filter(|(key, _)| key.1 == CommandStatus::Success).count();
    assert!(successes > 10, "{successes} kinds of commands succeeded");
}

#[test]
fn queue_pairs_fail_at_any_time() {
    let mut world = World::new(0.5);
    prepare(&mut world);
    for step in [QpState::Reset, QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend].windows(2) {
        let command = goes_to(&mut world, step[0], step[1]);
        assert_eq!(world.command(command).status, CommandStatus::Success);
    }
    run(&mut world, 60, 0.5);
}
