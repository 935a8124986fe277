//! Queue pairs.
use super::*;

pub(super) const PATH: Record = PathRecord::RECORD;
/// Units of READ slots in a pool.
const READ_UNITS: usize = 1 << READ_UNIT_BITS;

pub(super) const HANDLED: [&str; 9] = [
    "is_ipv6",
    "vlan_present",
    "source_address_index",
    "vlan_control",
    "source_port",
    "destination_mac",
    "traffic_class",
    "hop_limit",
    "flow_label",
];

/// Gives the attributes of a modify command that are kept, by flag.
pub(super) fn kept() -> Vec<(u32, Vec<&'static str>)> {
    let elsewhere = AttributeMask::STATE
        .and(AttributeMask::CURRENT_STATE)
        .and(AttributeMask::PORT)
        .and(AttributeMask::ADDRESS)
        .and(AttributeMask::RECEIVE_PSN)
        .and(AttributeMask::SEND_PSN);
    let kept = ATTRIBUTES.iter().filter(|one| !one.field.is_empty() && !elsewhere.contains(one.mask));
    kept.map(|one| {
        let rights = vec!["local_write", "remote_write", "remote_read", "remote_atomic"];
        (one.mask.0, if one.mask == AttributeMask::ACCESS { rights } else { vec![one.field] })
    })
    .collect()
}

/// Gives a share as in a setup event.
fn share_of((first, units): (usize, usize)) -> ReadShare {
    let size = [0, 1, 2, 0, 3][units];
    ReadShare { unit: bits(if size == 0 { 0 } else { first as u64 }), size: bits(size) }
}

impl Model {
    /// Lets queue pair `pair` have `count` READ slots in a pool, if it can.
    fn take_slots(
        &mut self,
        pair: &mut QueuePair,
        pool: usize,
        count: u64,
        detail: u32,
    ) -> Result<(), Refusal> {
        let units = (count as usize).div_ceil(4).next_power_of_two() * usize::from(count > 0);
        let own = pair.shares[pool].1;
        if units <= own {
            return Ok(());
        }
        if own > 0 {
            return refuse(CommandStatus::ValueNotAllowed, detail);
        }
        let used = &mut self.read_units[pool];
        let mut places = (0..READ_UNITS).step_by(units);
        let Some(first) = places.find(|&first| (first..first + units).all(|unit| !used.contains(&unit)))
        else {
            return refuse(CommandStatus::NoResources, detail);
        };
        used.extend(first..first + units);
        pair.shares[pool] = (first, units);
        Ok(())
    }

    fn give_slots(&mut self, pair: &mut QueuePair) {
        for (pool, (first, units)) in core::mem::take(&mut pair.shares).into_iter().enumerate() {
            (first..first + units).for_each(|unit| assert!(self.read_units[pool].remove(&unit)));
        }
    }

    pub(super) fn path(&self, pair: &QueuePair) -> Bits<576> {
        let create = &CreateQueuePair::RECORD;
        let mut bytes = [0; 72];
        let mut set = |name: &str, value: u64| PATH.field(name).set(&mut bytes, value).expect("it fits");
        for name in [
            "service",
            "shared_receive",
            "signal_all",
            "send_slots_log2",
            "receive_wqes_log2",
            "domain",
            "send_completion_queue",
            "receive_completion_queue",
            "shared_receive_queue",
        ] {
            set(name, get(create, &pair.created, name));
        }
        set("send_base_page", get(create, &pair.created, "send_base") >> 12);
        set("receive_base_page", get(create, &pair.created, "receive_base") >> 12);
        for (_, names) in kept() {
            for name in names {
                set(name, get(&ModifyQueuePair::RECORD, &pair.attributes, name));
            }
        }
        for name in HANDLED {
            set(name, get(&CreateAddressHandle::RECORD, &pair.handle, name));
        }
        set("local_qp", u64::from(pair.number));
        set("generation", u64::from(self.generation(pair.number % 1024)));
        let address = CreateAddressHandle::RECORD.field("destination_address").offset as usize / 8;
        let address: [u8; 16] = body(&pair.handle)[address..address + 16].try_into().expect("16 bytes");
        PATH.field("destination_address")
            .set_wide(&mut bytes, u128::from_be_bytes(address))
            .expect("it fits");
        BigUint::from_bytes_le(&bytes).into()
    }

    pub(super) fn expect_setup(&mut self, kind: SetupKind, pair: &QueuePair, psn: u64) {
        let path = self.path(pair);
        self.messages.push(Message::Setup(Box::new(SetupEvent {
            kind,
            queue_pair: bits(u64::from(pair.number % 1024)),
            state: bits(pair.state.number().into()),
            generation: bits(self.generation(pair.number % 1024).into()),
            psn: bits(psn),
            path: crate::path::path_of(path),
            read_share: share_of(pair.shares[0]),
            destination_read_share: share_of(pair.shares[1]),
        })));
    }

    /// A queue pair fails or has drained; tells whether the notice was of an older generation.
    pub(super) fn fail(&mut self, event: QpNotice) -> bool {
        let index = event.queue_pair.to_u64() as u32;
        let Some(pair) = self.pairs.get(&index).cloned() else { return true };
        if event.generation != u64::from(self.generation(index)) {
            return true;
        }
        let cause = match event.kind {
            NoticeKind::RequesterError => Cause::RequesterError,
            NoticeKind::ResponderError => Cause::ResponderError,
            NoticeKind::QueueError => Cause::QueueError,
            kind @ (NoticeKind::Drained | NoticeKind::Established) => {
                if kind == NoticeKind::Established || pair.state == QpState::SendQueueDrain {
                    let kind = u64::from(EventKind::Asynchronous.number());
                    self.messages.push(Message::Event(
                        pair.number.into(),
                        0,
                        kind,
                        event.event_code.to_u64(),
                    ));
                }
                return false;
            }
        };
        let state = after(Service::ReliableConnected, pair.state, cause);
        if state != pair.state {
            let pair = QueuePair { state, ..pair };
            self.expect_setup(SetupKind::Life, &pair, 0);
            if event.has_event {
                let kind = u64::from(EventKind::Asynchronous.number());
                self.messages.push(Message::Event(pair.number.into(), 0, kind, event.event_code.to_u64()));
            }
            self.pairs.insert(index, pair);
        }
        false
    }

    pub(super) fn pair(&self, number: u32) -> Result<QueuePair, Refusal> {
        if number >> 24 != 0 {
            return refuse(CommandStatus::NumberOutOfRange, 32);
        }
        match self.pairs.get(&(number % 1024)) {
            Some(pair) if pair.number == number => Ok(pair.clone()),
            _ => refuse(CommandStatus::DoesNotExist, 0),
        }
    }

    pub(super) fn create_queue_pair(&mut self, bytes: &Bytes, number: u32) -> Result<(), Refusal> {
        let record = &CreateQueuePair::RECORD;
        // Reliable connections have number zero.
        if get(record, bytes, "service") != 0 {
            return refuse(CommandStatus::NotSupported, at(record, "service"));
        }
        self.ring(record, bytes, &["send_base", "receive_base"])?;
        let shared = get(record, bytes, "shared_receive_queue");
        if shared > 63 {
            return refuse(CommandStatus::ReferenceDoesNotExist, at(record, "shared_receive_queue"));
        }
        Self::within(number, 24)?;
        if self.pairs.contains_key(&(number % 1024)) {
            return refuse(CommandStatus::AlreadyExists, 0);
        }
        for name in ["send_completion_queue", "receive_completion_queue"] {
            if !self.completion_queues.contains_key(&(get(record, bytes, name) as u32)) {
                return refuse(CommandStatus::ReferenceDoesNotExist, at(record, name));
            }
        }
        if get(record, bytes, "shared_receive") == 1 {
            let detail = at(record, "shared_receive_queue");
            let Some(queue) = self.shared.get(&(shared as u32)) else {
                return refuse(CommandStatus::ReferenceDoesNotExist, detail);
            };
            if get(&CreateSharedReceiveQueue::RECORD, queue, "domain") != get(record, bytes, "domain") {
                return refuse(CommandStatus::DomainMismatch, detail);
            }
        }
        self.age(number % 1024);
        let pair = QueuePair {
            number,
            page: get(record, bytes, "doorbell_page"),
            state: QpState::Reset,
            created: *bytes,
            attributes: [0; COMMAND_BYTES],
            handle: [0; COMMAND_BYTES],
            shares: Default::default(),
        };
        self.expect_setup(SetupKind::Restart, &pair, 0);
        self.expect_page(Kind::QueuePair, number, pair.page, true);
        self.pairs.insert(number % 1024, pair);
        Ok(())
    }

    pub(super) fn modify_queue_pair(&mut self, bytes: &Bytes, number: u32) -> Result<(), Refusal> {
        let record = &ModifyQueuePair::RECORD;
        let mask = AttributeMask(get(record, bytes, "mask") as u32);
        for attribute in ATTRIBUTES {
            if attribute.field.is_empty() && mask.contains(attribute.mask) {
                return refuse(CommandStatus::NotSupported, at(record, "mask"));
            }
        }
        for attribute in ATTRIBUTES.iter().filter(|attribute| !attribute.field.is_empty()) {
            if attribute.mask != AttributeMask::ACCESS && mask.contains(attribute.mask) {
                let value = get(record, bytes, attribute.field);
                if value < attribute.range.0 || value > attribute.range.1 {
                    return refuse(CommandStatus::ValueNotAllowed, at(record, attribute.field));
                }
            }
        }
        let mut pair = self.pair(number)?;
        let state = |name| QpState::from_number(get(record, bytes, name)).expect("the parser has checked it");
        if mask.contains(AttributeMask::CURRENT_STATE) && state("current_state") != pair.state {
            return refuse(CommandStatus::StateMismatch, 0);
        }
        let goes = mask.contains(AttributeMask::STATE);
        let next = if goes { state("next_state") } else { pair.state };
        match check_transition(Service::ReliableConnected, pair.state, next, mask) {
            Ok(()) => {}
            Err(TransitionError::NotAllowed { .. }) => return refuse(CommandStatus::TransitionNotAllowed, 0),
            Err(TransitionError::Missing(mask)) => return refuse(CommandStatus::AttributeMissing, mask.0),
            Err(TransitionError::Unexpected(mask)) => {
                return refuse(CommandStatus::AttributeNotAllowed, mask.0);
            }
        }
        if mask.contains(AttributeMask::ADDRESS) {
            let detail = at(record, "address_handle");
            let Some(handle) = self.handles.get(&(get(record, bytes, "address_handle") as u32)) else {
                return refuse(CommandStatus::ReferenceDoesNotExist, detail);
            };
            let of = |name| get(&CreateAddressHandle::RECORD, handle, name);
            if of("domain") != get(&CreateQueuePair::RECORD, &pair.created, "domain") {
                return refuse(CommandStatus::DomainMismatch, detail);
            }
            if self.source_addresses >> of("source_address_index") & 1 == 0 {
                return refuse(CommandStatus::ReferenceDoesNotExist, detail);
            }
            pair.handle = *handle;
        }
        for (pool, attribute, name) in [
            (0, AttributeMask::READ_ATOMIC, "read_atomic"),
            (1, AttributeMask::DESTINATION_READ_ATOMIC, "destination_read_atomic"),
        ] {
            if mask.contains(attribute) {
                let mut kept = self.pair(number)?;
                let taken = self.take_slots(&mut kept, pool, get(record, bytes, name), at(record, name));
                pair.shares = kept.shares;
                // What was taken stays, even if the command is refused.
                self.pairs.insert(number % 1024, kept);
                taken?;
            }
        }
        for (flag, names) in kept() {
            if mask.contains(AttributeMask(flag)) {
                for name in names {
                    put(record, &mut pair.attributes, name, get(record, bytes, name));
                }
            }
        }
        self.expect_setup(SetupKind::Path, &pair, 0);
        if mask.contains(AttributeMask::SEND_PSN) {
            self.expect_setup(SetupKind::SendPsn, &pair, get(record, bytes, "send_psn"));
        }
        if mask.contains(AttributeMask::RECEIVE_PSN) {
            self.expect_setup(SetupKind::ReceivePsn, &pair, get(record, bytes, "receive_psn"));
        }
        if goes {
            pair.state = next;
            if next == QpState::Reset {
                self.age(number % 1024);
                pair.attributes = [0; COMMAND_BYTES];
                pair.handle = [0; COMMAND_BYTES];
                self.expect_setup(SetupKind::Restart, &pair, 0);
                self.give_slots(&mut pair);
            } else {
                self.expect_setup(SetupKind::Life, &pair, 0);
            }
        }
        self.pairs.insert(number % 1024, pair);
        Ok(())
    }

    pub(super) fn query_queue_pair(
        &mut self,
        bytes: &Bytes,
        number: u32,
        probed: (u64, u64, bool),
    ) -> Result<u32, Refusal> {
        Self::room(bytes, 192)?;
        let pair = self.pair(number)?;
        self.expect_setup(SetupKind::Probe, &pair, 0);
        let buffer = get(&Query::RECORD, bytes, "buffer");
        let header = |opcode, bytes: &mut Bytes| {
            CommandHeader { opcode, tag: 0, object_number: number }.emit(&mut bytes[..8]).expect("it fits");
        };
        let mut create = pair.created;
        header(CommandOpcode::CreateQueuePair, &mut create);
        let record = &ModifyQueuePair::RECORD;
        let mut modify = pair.attributes;
        header(CommandOpcode::ModifyQueuePair, &mut modify);
        let mask = ATTRIBUTES.iter().filter(|attribute| !attribute.field.is_empty());
        put(record, &mut modify, "mask", mask.fold(0, |mask, attribute| mask | u64::from(attribute.mask.0)));
        put(record, &mut modify, "port", 1);
        put(record, &mut modify, "next_state", pair.state.number().into());
        put(record, &mut modify, "current_state", pair.state.number().into());
        put(record, &mut modify, "send_psn", probed.0);
        put(record, &mut modify, "receive_psn", probed.1);
        put(record, &mut modify, "requests_in_flight", probed.2.into());
        let mut handle = pair.handle;
        handle[..8].fill(0);
        handle[0] = CommandOpcode::CreateAddressHandle.number();
        let domain = get(&CreateQueuePair::RECORD, &pair.created, "domain");
        put(&CreateAddressHandle::RECORD, &mut handle, "domain", domain);
        for (index, part) in [create, modify, handle].into_iter().enumerate() {
            self.messages.push(Message::Write(buffer.wrapping_add(64 * index as u64), part.to_vec()));
        }
        Ok(192)
    }

    pub(super) fn destroy_queue_pair(&mut self, number: u32) -> Result<u32, Refusal> {
        let mut pair = self.pair(number)?;
        pair.state = QpState::Reset;
        self.pairs.remove(&(number % 1024));
        self.age(number % 1024);
        self.expect_page(Kind::QueuePair, number, pair.page, false);
        self.expect_setup(SetupKind::Life, &pair, 0);
        self.give_slots(&mut pair);
        Ok(0)
    }
}

/// Makes what a queue pair needs, and queue pair 1.
pub(super) fn prepare(world: &mut World) {
    use CommandOpcode as Op;
    world.model.source_addresses = 1;
    world.event_queue_0(true, true);
    let mut random = random();
    assert_eq!(
        world.command(blank(Op::CreateCompletionQueue, 2, &mut random)).status,
        CommandStatus::Success
    );
    let mut create = blank(Op::CreateQueuePair, 1, &mut random);
    for name in ["send_completion_queue", "receive_completion_queue"] {
        put(&CreateQueuePair::RECORD, &mut create, name, 2);
    }
    assert_eq!(world.command(create).status, CommandStatus::Success);
    assert_eq!(world.command(blank(Op::CreateAddressHandle, 5, &mut random)).status, CommandStatus::Success);
    assert_eq!(world.command(blank(Op::DestroyCompletionQueue, 2, &mut random)).status, CommandStatus::Busy);
    let mut region = blank(Op::CreateRegion, 0x307, &mut random);
    put(&CreateRegion::RECORD, &mut region, "kind", RegionKind::Region.number().into());
    put(&CreateRegion::RECORD, &mut region, "invalidatable", 1);
    assert_eq!(world.command(region).status, CommandStatus::Success);
}

/// Makes a modify command with all attributes that a transition requires.
pub(super) fn goes_to(world: &mut World, from: QpState, to: QpState) -> Bytes {
    let record = &ModifyQueuePair::RECORD;
    let mut bytes = blank(CommandOpcode::ModifyQueuePair, 1, &mut world.random);
    let row = transition(Service::ReliableConnected, from, to).expect("there is such a transition");
    put(record, &mut bytes, "mask", u64::from(row.required.0) | 1);
    put(record, &mut bytes, "next_state", to.number().into());
    for (name, value) in [("partition_key", 0xffff), ("port", 1), ("path_mtu", 5), ("address_handle", 5)] {
        put(record, &mut bytes, name, value);
    }
    bytes
}

#[test]
fn a_queue_pair_lives_through_all_states() {
    use CommandOpcode as Op;
    let mut world = World::new(0.7);
    prepare(&mut world);
    use QpState::*;
    let life = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrain, ReadyToSend, Error, Reset, Init];
    for step in life.windows(2) {
        let command = goes_to(&mut world, step[0], step[1]);
        assert_eq!(world.command(command).status, CommandStatus::Success, "{step:?}");
    }
    for (opcode, number) in [(Op::QueryQueuePair, 1), (Op::QueryRegion, 0x307), (Op::QueryEventQueue, 0)] {
        let mut query = blank(opcode, number, &mut world.random);
        put(&Query::RECORD, &mut query, "buffer_bytes", 192);
        assert_eq!(world.command(query).status, CommandStatus::Success);
    }
}
