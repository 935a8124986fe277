//! Regions, and the lists of their pages.
use super::*;

/// The write of a region that permits nothing: only its index is meant.
pub(super) fn no_region(key: u32) -> RegionWrite {
    RegionWrite { index: bits(u64::from(key >> 8 & 1023)), region: Region::default() }
}

impl Model {
    pub(super) fn region(&self, key: u32) -> Result<(u32, Bytes, u64), Refusal> {
        match self.regions.get(&(key >> 8 & 1023)) {
            Some(region) if region.0 == key => Ok(*region),
            _ => refuse(CommandStatus::DoesNotExist, 0),
        }
    }

    pub(super) fn expect_region(&mut self, &(key, ref create, first_byte): &(u32, Bytes, u64), valid: bool) {
        let record = &CreateRegion::RECORD;
        let flag = |name| get(record, create, name) == 1;
        if !valid || get(record, create, "kind") == u64::from(RegionKind::Free.number()) {
            self.messages.push(Message::Region(no_region(key)));
            return;
        }
        self.messages.push(Message::Region(RegionWrite {
            index: bits(u64::from(key >> 8 & 1023)),
            region: Region {
                key: bits(key.into()),
                valid: true,
                local_write: flag("local_write"),
                remote_write: flag("remote_write"),
                remote_read: flag("remote_read"),
                remote_atomic: flag("remote_atomic"),
                zero_based: flag("zero_based"),
                first_address: bits(get(record, create, "first_address")),
                length: bits(get(record, create, "length")),
                translation_base: bits(first_byte),
                domain: bits(get(record, create, "domain")),
            },
        }));
    }

    /// Gives eight entries of a list of pages.
    pub(super) fn list_slot(&self, address: u64) -> Bytes {
        let mut bytes = [0; COMMAND_BYTES];
        for (index, entry) in bytes.chunks_exact_mut(8).enumerate() {
            let page = self.lists.get(&(address + 8 * index as u64)).copied().unwrap_or(0);
            entry.copy_from_slice(&page.to_le_bytes());
        }
        bytes
    }

    pub(super) fn translatable(record: &Record, bytes: &Bytes) -> Result<(), Refusal> {
        if get(record, bytes, "translation") > 1 {
            return refuse(CommandStatus::NotSupported, at(record, "translation"));
        }
        Ok(())
    }

    pub(super) fn placed(create: &Bytes) -> Result<(), Refusal> {
        let record = &CreateRegion::RECORD;
        let value = |name| get(record, create, name);
        if value("translation") == 1 {
            let is_aligned = value("translation_base").is_multiple_of(4096);
            return if is_aligned {
                Ok(())
            } else {
                refuse(CommandStatus::Misaligned, at(record, "translation_base"))
            };
        }
        if u128::from(value("translation_base")) + u128::from(value("length")) > 1 << 63 {
            return refuse(CommandStatus::RangeNotAllowed, at(record, "translation_base"));
        }
        match ["first_offset", "first_entry"].iter().find(|name| value(name) != 0) {
            Some(name) => refuse(CommandStatus::ValueNotAllowed, at(record, name)),
            None => Ok(()),
        }
    }

    /// Gives the device address of the first byte, and expects the writes of the pages if there are any.
    pub(super) fn first_byte(&mut self, create: &Bytes) -> Result<u64, Refusal> {
        let record = &CreateRegion::RECORD;
        let value = |name| get(record, create, name);
        let (base, log2, first) = (value("translation_base"), value("page_log2"), value("first_entry"));
        if value("translation") == 0 {
            return Ok(base);
        }
        if value("first_offset") >= 1 << log2 {
            return refuse(CommandStatus::ValueNotAllowed, at(record, "first_offset"));
        }
        let count = (u128::from(value("first_offset")) + u128::from(value("length"))).div_ceil(1 << log2);
        if u128::from(first) + count > 16_384 {
            return refuse(CommandStatus::RangeNotAllowed, at(record, "length"));
        }
        for index in 0..count as u64 {
            let place = base.wrapping_add(8 * index);
            if self.bad_slots.contains(&(place & !63)) {
                return refuse(CommandStatus::HostError, 1 << 31 | index as u32);
            }
            let page = self.lists.get(&place).copied().unwrap_or(0);
            if !page.is_multiple_of(1 << log2) {
                return refuse(CommandStatus::Misaligned, 1 << 31 | index as u32);
            }
            let write = PageEntryWrite { entry: bits(first + index), page: bits(page >> 12) };
            self.messages.push(Message::PageEntry(write));
        }
        Ok(1 << 63 | (log2 - 12) << 58 | first << log2 | value("first_offset"))
    }

    pub(super) fn consistent(create: &Bytes) -> Result<(), Refusal> {
        let record = &CreateRegion::RECORD;
        let value = |name| get(record, create, name);
        if value("remote_write") + value("remote_atomic") > 0 && value("local_write") == 0 {
            return refuse(CommandStatus::RightsContradict, 0);
        }
        if value("zero_based") == 1 && value("first_address") != 0 {
            return refuse(CommandStatus::ValueNotAllowed, at(record, "first_address"));
        }
        if u128::from(value("first_address")) + u128::from(value("length")) > 1 << 64 {
            return refuse(CommandStatus::RangeNotAllowed, at(record, "first_address"));
        }
        Ok(())
    }

    pub(super) fn create_region(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        let record = &CreateRegion::RECORD;
        let kind = get(record, bytes, "kind");
        if kind == u64::from(RegionKind::Free.number()) {
            return refuse(CommandStatus::ValueNotAllowed, at(record, "kind"));
        }
        if kind != u64::from(RegionKind::Region.number()) {
            return refuse(CommandStatus::NotSupported, at(record, "kind"));
        }
        Self::translatable(record, bytes)?;
        Self::consistent(bytes)?;
        Self::placed(bytes)?;
        if self.regions.contains_key(&(number >> 8 & 1023)) {
            return refuse(CommandStatus::AlreadyExists, 0);
        }
        let region = (number, *bytes, self.first_byte(bytes)?);
        self.regions.insert(number >> 8 & 1023, region);
        self.expect_region(&region, true);
        Ok(0)
    }

    pub(super) fn modify_region(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        let record = &ModifyRegion::RECORD;
        Self::translatable(record, bytes)?;
        let before = self.region(number)?;
        let (_, mut create, mut first_byte) = before;
        for (change, names) in [
            (
                "change_rights",
                &[
                    "local_write",
                    "remote_write",
                    "remote_read",
                    "remote_atomic",
                    "window_bind",
                    "relaxed_order",
                ][..],
            ),
            ("change_domain", &["domain"]),
            (
                "change_translation",
                &[
                    "zero_based",
                    "translation",
                    "page_log2",
                    "first_address",
                    "length",
                    "translation_base",
                    "first_offset",
                    "first_entry",
                ],
            ),
        ] {
            if get(record, bytes, change) == 1 {
                for name in names {
                    put(&CreateRegion::RECORD, &mut create, name, get(record, bytes, name));
                }
            }
        }
        Self::consistent(&create)?;
        if get(record, bytes, "change_translation") == 1 {
            Self::placed(&create)?;
            first_byte = self.first_byte(&create)?;
        }
        self.expect_region(&before, false);
        let region = (number, create, first_byte);
        self.regions.insert(number >> 8 & 1023, region);
        self.expect_region(&region, true);
        Ok(0)
    }

    pub(super) fn query_region(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        Self::room(bytes, 64)?;
        let (_, create, _) = self.region(number)?;
        Ok(self.write(bytes, CommandOpcode::CreateRegion, number, &create))
    }

    pub(super) fn destroy_region(&mut self, number: u32) -> Result<u32, Refusal> {
        let region = self.region(number)?;
        self.regions.remove(&(number >> 8 & 1023));
        self.expect_region(&region, false);
        Ok(0)
    }
}

/// Makes region `key` of domain 5.
pub(super) fn make_region(world: &mut World, key: u32, invalidatable: bool) {
    let mut create = blank(CommandOpcode::CreateRegion, key, &mut random());
    let kind = u64::from(RegionKind::Region.number());
    for (name, value) in
        [("kind", kind), ("invalidatable", invalidatable.into()), ("domain", 5), ("local_write", 1)]
    {
        put(&CreateRegion::RECORD, &mut create, name, value);
    }
    assert_eq!(world.command(create).status, CommandStatus::Success);
}

/// Makes a command for a region of aligned pages: first entry, log2 of a page, first offset, length.
pub(super) fn paged(
    world: &mut World,
    opcode: CommandOpcode,
    key: u32,
    (entry, log2): (u64, u64),
    offset: u64,
    length: u64,
) -> Bytes {
    let record = record_of(opcode).expect("it has a body");
    let mut bytes = blank(opcode, key, &mut world.random);
    let list = 0x4_0000_0000 + (u64::from(key) << 20);
    if opcode == CommandOpcode::CreateRegion {
        put(record, &mut bytes, "kind", RegionKind::Region.number().into());
    } else {
        put(record, &mut bytes, "change_translation", 1);
    }
    for (name, value) in [
        ("translation", 1),
        ("page_log2", log2),
        ("length", length),
        ("translation_base", list),
        ("first_offset", offset),
        ("first_entry", entry),
    ] {
        put(record, &mut bytes, name, value);
    }
    for index in 0..(offset + length).div_ceil(1 << log2).min(2_000) {
        world.model.lists.insert(list + 8 * index, (index + 7) << log2);
    }
    bytes
}

#[test]
fn pages_fit_the_table_to_the_last_entry() {
    use CommandOpcode::{CreateRegion as Create, DestroyRegion, ModifyRegion as Modify, QueryRegion};
    use CommandStatus::{DoesNotExist, HostError, Misaligned, RangeNotAllowed, Success, ValueNotAllowed};
    let mut world = World::new(1.0);
    let size = 1u64 << 30;
    let cases = [
        // The first entry of all, the last one, and one too many.
        (Create, 0x100, (0, 12), 0, 9 << 12, Success),
        (Create, 0x201, (16_383, 30), size - 1, 1, Success),
        (Create, 0x302, (16_383, 30), size - 1, 2, RangeNotAllowed),
        (Create, 0x302, (16_382, 30), size - 1, 2, Success),
        (Create, 0x403, (16_384 - 9, 21), 1, 8 << 21, Success),
        (Create, 0x504, (16_384 - 8, 21), 1, 8 << 21, RangeNotAllowed),
        (Create, 0x504, (0, 12), 4096, 1, ValueNotAllowed),
        (Create, 0x504, (0, 16), 1 << 16, 1, ValueNotAllowed),
        (Create, 0x504, (0, 12), 0, u64::MAX, RangeNotAllowed),
        (Create, 0x504, (1, 30), 0, size << 14, RangeNotAllowed),
        (Create, 0x504, (0, 16), 4095, 0, Success),
        // A region stays as it was if its change is refused.
        (Modify, 0x100, (16_383, 12), 0, 4097, RangeNotAllowed),
        (Modify, 0x100, (9, 13), 5000, 9 << 12, Success),
        (Modify, 0x605, (9, 13), 5000, 9 << 12, DoesNotExist),
    ];
    for (opcode, key, (entry, log2), offset, length, status) in cases {
        let command = paged(&mut world, opcode, key, (entry, log2), offset, length);
        assert_eq!(world.command(command).status, status, "{opcode:?} {key:#x}");
    }
    for (bad, status) in [(8 * 17, Misaligned), (64 * 2, HostError)] {
        let command = paged(&mut world, Create, 0x706, (100, 16), 0, 20 << 16);
        let list = get(&CreateRegion::RECORD, &command, "translation_base");
        if status == Misaligned {
            world.model.lists.insert(list + bad, 0x8000);
        } else {
            world.model.bad_slots.insert(list + bad);
        }
        let answer = world.command(command);
        let page = bad as u32 / 8;
        assert_eq!((answer.status, answer.detail), (status, 1 << 31 | page));
    }
    for (opcode, key, status) in [
        (QueryRegion, 0x100, Success),
        (QueryRegion, 0x201, Success),
        (DestroyRegion, 0x201, Success),
        (DestroyRegion, 0x706, DoesNotExist),
    ] {
        let mut command = blank(opcode, key, &mut world.random);
        if opcode == QueryRegion {
            put(&Query::RECORD, &mut command, "buffer_bytes", 64);
        }
        assert_eq!(world.command(command).status, status, "{opcode:?} {key:#x}");
    }
}

#[test]
fn queue_pairs_fail_while_pages_are_read() {
    let mut world = World::new(0.9);
    prepare(&mut world);
    for step in [QpState::Reset, QpState::Init, QpState::ReadyToReceive].windows(2) {
        let command = goes_to(&mut world, step[0], step[1]);
        assert_eq!(world.command(command).status, CommandStatus::Success);
    }
    let index = world.written;
    let command = paged(&mut world, CommandOpcode::CreateRegion, 0x908, (50, 12), 7, 300 << 12);
    let entered = |world: &World| {
        world.messages.iter().filter(|messages| matches!(messages, Message::PageEntry(_))).count()
    };
    world.post(command);
    while entered(&world) < 80 {
        world.cycle();
        assert!(world.cycles < 40_000, "pages are read");
    }
    for has_event in [true, false] {
        let generation = bits(world.model.generation(1).into());
        let kind = NoticeKind::ResponderError;
        let code = AsyncEvent::QueuePairAccessError.number();
        world.notices.push_back(Notice::OfQueuePair(QpNotice {
            queue_pair: bits(1),
            generation,
            kind,
            has_event,
            event_code: bits(code.into()),
        }));
    }
    while !world.notices.is_empty() {
        world.cycle();
        assert!(entered(&world) < 300, "they are taken in the middle of the list");
    }
    assert_eq!(world.answer(index).status, CommandStatus::Success);
    world.compare();
}
