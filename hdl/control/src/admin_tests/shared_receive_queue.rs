//! Shared receive queues.
use super::*;

impl Model {
    /// Expects the setup event of a shared receive queue; that of one that is destroyed has no limit.
    pub(super) fn expect_shared_receive_queue(&mut self, kind: SrqSetupKind, number: u32, exists: bool) {
        let create = self.shared[&number];
        let record = &CreateSharedReceiveQueue::RECORD;
        let if_exists = |value: u64| if exists { value } else { 0 };
        self.messages.push(Message::SrqSetup(SrqSetup {
            kind,
            srq: bits(number.into()),
            is_alive: exists,
            base_page: bits(get(record, &create, "base") >> 12),
            entries_log2: bits(get(record, &create, "entries_log2")),
            limit: bits(if_exists(get(record, &create, "limit"))),
            limit_generation: bits(if_exists(self.limit_settings[&number].into())),
        }));
    }

    pub(super) fn set_limit(&mut self, number: u32, limit: u64) {
        let setting = self.limit_settings.entry(number).or_default();
        *setting = setting.wrapping_add(1);
        let create = self.shared.get_mut(&number).expect("it exists");
        put(&CreateSharedReceiveQueue::RECORD, create, "limit", limit);
    }

    /// A limit is reached; a notice of an older setting is dropped.
    pub(super) fn reach_limit(&mut self, notice: SrqLimitNotice) {
        let number = notice.srq.to_u64() as u32;
        let setting = self.limit_settings.get(&number).copied().unwrap_or(0);
        if !self.shared.contains_key(&number) || notice.limit_generation != u64::from(setting) {
            return;
        }
        put(&CreateSharedReceiveQueue::RECORD, self.shared.get_mut(&number).expect("it exists"), "limit", 0);
        let kind = u64::from(EventKind::Asynchronous.number());
        let code = AsyncEvent::SharedReceiveLimit.number();
        self.messages.push(Message::Event(number.into(), 0, kind, code.into()));
    }

    pub(super) fn end_shared_receive_queue(&mut self, number: u32) {
        let page = get(&CreateSharedReceiveQueue::RECORD, &self.shared[&number], "doorbell_page");
        self.expect_page(Kind::SharedReceive, number, page, false);
        self.expect_shared_receive_queue(SrqSetupKind::Restart, number, false);
        let setting = self.limit_settings.get_mut(&number).expect("it exists");
        *setting = setting.wrapping_add(1);
        self.shared.remove(&number);
    }

    pub(super) fn create_shared_receive_queue(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        let record = &CreateSharedReceiveQueue::RECORD;
        self.ring(record, bytes, &["base"])?;
        Self::within(number, 6)?;
        if self.shared.contains_key(&number) {
            return refuse(CommandStatus::AlreadyExists, 0);
        }
        self.shared.insert(number, *bytes);
        self.set_limit(number, get(record, bytes, "limit"));
        self.expect_shared_receive_queue(SrqSetupKind::Restart, number, true);
        self.expect_page(Kind::SharedReceive, number, get(record, bytes, "doorbell_page"), true);
        Ok(0)
    }

    pub(super) fn modify_shared_receive_queue(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        Self::found(&self.shared, number, 6)?;
        self.set_limit(number, get(&ModifySharedReceiveQueue::RECORD, bytes, "limit"));
        self.expect_shared_receive_queue(SrqSetupKind::Limit, number, true);
        Ok(0)
    }

    pub(super) fn query_shared_receive_queue(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        Self::room(bytes, 64)?;
        let create = Self::found(&self.shared, number, 6)?;
        Ok(self.write(bytes, CommandOpcode::CreateSharedReceiveQueue, number, &create))
    }

    pub(super) fn destroy_shared_receive_queue(&mut self, number: u32) -> Result<u32, Refusal> {
        Self::found(&self.shared, number, 6)?;
        let of = |pair: &QueuePair, name| get(&CreateQueuePair::RECORD, &pair.created, name);
        let uses = |pair: &QueuePair| {
            of(pair, "shared_receive") == 1 && of(pair, "shared_receive_queue") == u64::from(number)
        };
        if self.pairs.values().any(uses) {
            return refuse(CommandStatus::Busy, 0);
        }
        self.end_shared_receive_queue(number);
        Ok(0)
    }
}

#[test]
fn a_shared_receive_queue_outlives_its_queue_pairs() {
    use CommandOpcode as Op;
    let mut world = World::new(0.7);
    prepare(&mut world);
    let mut random = random();
    let good = CommandStatus::Success;
    let record = &CreateSharedReceiveQueue::RECORD;
    let mut create = blank(Op::CreateSharedReceiveQueue, 63, &mut random);
    for (name, value) in [("domain", 0x12_3456), ("base", 0x7654_3210_f000), ("limit", 0x8001)] {
        put(record, &mut create, name, value);
    }
    assert_eq!(world.command(create).status, good);
    let mut pair = blank(Op::CreateQueuePair, 2, &mut random);
    for (name, value) in [
        ("send_completion_queue", 2),
        ("receive_completion_queue", 2),
        ("shared_receive", 1),
        ("shared_receive_queue", 63),
    ] {
        put(&CreateQueuePair::RECORD, &mut pair, name, value);
    }
    assert_eq!(world.command(pair).status, CommandStatus::DomainMismatch);
    put(&CreateQueuePair::RECORD, &mut pair, "domain", 0x12_3456);
    assert_eq!(world.command(pair).status, good);
    assert_eq!(
        world.command(blank(Op::DestroySharedReceiveQueue, 63, &mut random)).status,
        CommandStatus::Busy
    );
    // The event of a limit is raised once, and not for a setting that was replaced.
    let reached = |world: &mut World, setting: u8| {
        world.notices.push_back(Notice::OfLimit(SrqLimitNotice {
            srq: bits(63),
            limit_generation: bits(setting.into()),
        }));
        world.rest();
        let events = world.messages.iter().filter(|messages| matches!(messages, Message::Event(..))).count();
        world.compare_messages();
        events
    };
    let limit = |world: &mut World| {
        let mut query = blank(Op::QuerySharedReceiveQueue, 63, &mut world.random);
        put(&Query::RECORD, &mut query, "buffer_bytes", 64);
        assert_eq!(world.command(query).status, CommandStatus::Success);
        get(record, &world.model.shared[&63], "limit")
    };
    assert_eq!(limit(&mut world), 0x8001);
    assert_eq!(reached(&mut world, 0), 0);
    assert_eq!(reached(&mut world, 1), 1);
    assert_eq!(limit(&mut world), 0);
    let mut modify = blank(Op::ModifySharedReceiveQueue, 63, &mut random);
    put(&ModifySharedReceiveQueue::RECORD, &mut modify, "limit", 7);
    assert_eq!(world.command(modify).status, good);
    assert_eq!(reached(&mut world, 1), 0);
    assert_eq!(limit(&mut world), 7);
    for (opcode, number) in [(Op::DestroyQueuePair, 2), (Op::DestroySharedReceiveQueue, 63)] {
        assert_eq!(world.command(blank(opcode, number, &mut random)).status, good);
    }
    assert_eq!(reached(&mut world, 2), 0);
}
