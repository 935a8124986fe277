//! The interpreter: all objects, and what each command does to them.
use super::*;

/// A queue pair of the interpreter.
#[derive(Clone)]
pub(super) struct QueuePair {
    pub(super) number: u32,
    pub(super) page: u64,
    pub(super) state: QpState,
    /// The create command, without what cannot be read back.
    pub(super) created: Bytes,
    /// A modify command with all attributes that are kept.
    pub(super) attributes: Bytes,
    /// The create command of its address handle.
    pub(super) handle: Bytes,
    /// READ slots as requester and as responder: first unit and number of units.
    pub(super) shares: [(usize, usize); 2],
}

/// The objects, and the messages that are expected of the card.
#[derive(Default)]
pub(super) struct Model {
    pub(super) pairs: BTreeMap<u32, QueuePair>,
    pub(super) generations: BTreeMap<u32, u8>,
    /// Key, create command, and device address of the first byte.
    pub(super) regions: BTreeMap<u32, (u32, Bytes, u64)>,
    /// Entries of lists of pages in host memory, and slots that the host refuses to read.
    pub(super) lists: BTreeMap<u64, u64>,
    pub(super) bad_slots: BTreeSet<u64>,
    pub(super) completion_queues: BTreeMap<u32, Bytes>,
    pub(super) event_queues: BTreeMap<u32, Bytes>,
    /// Create commands of shared receive queues, with the current limit.
    pub(super) shared: BTreeMap<u32, Bytes>,
    /// How often the limit of each shared receive queue was set, modulo 256.
    pub(super) limit_settings: BTreeMap<u32, u8>,
    pub(super) handles: BTreeMap<u32, Bytes>,
    /// Units of READ slots in use, of requesters and of responders.
    pub(super) read_units: [BTreeSet<usize>; 2],
    /// Source addresses in use, one bit each.
    pub(super) source_addresses: u64,
    pub(super) messages: Vec<Message>,
}

impl Model {
    pub(super) fn generation(&self, index: u32) -> u8 {
        self.generations.get(&index).copied().unwrap_or(0)
    }

    pub(super) fn age(&mut self, index: u32) {
        let generation = self.generations.entry(index).or_default();
        *generation = generation.wrapping_add(1);
    }

    /// Executes a command; gives the detail of its answer.
    pub(super) fn execute(&mut self, bytes: &Bytes, probed: (u64, u64, bool)) -> Result<u32, Refusal> {
        use CommandOpcode as Op;
        let command = Command::parse(bytes).map_err(|refusal| (refusal.status, refusal.detail))?;
        let number = command.header.object_number;
        match command.header.opcode {
            Op::Nothing => Ok(0),
            Op::CreateQueuePair => self.create_queue_pair(bytes, number).map(|()| 0),
            Op::ModifyQueuePair => self.modify_queue_pair(bytes, number).map(|()| 0),
            Op::QueryQueuePair => self.query_queue_pair(bytes, number, probed),
            Op::DestroyQueuePair => self.destroy_queue_pair(number),
            Op::CreateCompletionQueue => self.create_completion_queue(bytes, number),
            Op::ModifyCompletionQueue => self.modify_completion_queue(bytes, number),
            Op::ResizeCompletionQueue => self.resize_completion_queue(bytes, number),
            Op::QueryCompletionQueue => self.query_completion_queue(bytes, number),
            Op::DestroyCompletionQueue => self.destroy_completion_queue(number),
            Op::CreateEventQueue => self.create_event_queue(bytes, number),
            Op::ModifyEventQueue => self.modify_event_queue(bytes, number),
            Op::QueryEventQueue => self.query_event_queue(bytes, number),
            Op::DestroyEventQueue => self.destroy_event_queue(number),
            Op::CreateRegion => self.create_region(bytes, number),
            Op::ModifyRegion => self.modify_region(bytes, number),
            Op::QueryRegion => self.query_region(bytes, number),
            Op::DestroyRegion => self.destroy_region(number),
            Op::CreateAddressHandle => self.create_address_handle(bytes, number),
            Op::ModifyAddressHandle => self.modify_address_handle(bytes, number),
            Op::QueryAddressHandle => self.query_address_handle(bytes, number),
            Op::DestroyAddressHandle => self.destroy_address_handle(number),
            Op::CreateSharedReceiveQueue => self.create_shared_receive_queue(bytes, number),
            Op::ModifySharedReceiveQueue => self.modify_shared_receive_queue(bytes, number),
            Op::QuerySharedReceiveQueue => self.query_shared_receive_queue(bytes, number),
            Op::DestroySharedReceiveQueue => self.destroy_shared_receive_queue(number),
        }
    }

    pub(super) fn within(number: u32, bits: u32) -> Result<(), Refusal> {
        if number >> bits != 0 { refuse(CommandStatus::NumberOutOfRange, 32) } else { Ok(()) }
    }

    pub(super) fn found(table: &BTreeMap<u32, Bytes>, number: u32, bits: u32) -> Result<Bytes, Refusal> {
        Self::within(number, bits)?;
        table.get(&number).copied().ok_or((CommandStatus::DoesNotExist, 0))
    }

    pub(super) fn ring(&self, record: &Record, bytes: &Bytes, bases: &[&str]) -> Result<(), Refusal> {
        if get(record, bytes, "doorbell_page") > 255 {
            return refuse(CommandStatus::ValueNotAllowed, at(record, "doorbell_page"));
        }
        match bases.iter().find(|base| !get(record, bytes, base).is_multiple_of(4096)) {
            Some(base) => refuse(CommandStatus::Misaligned, at(record, base)),
            None => Ok(()),
        }
    }

    pub(super) fn room(bytes: &Bytes, least: u64) -> Result<(), Refusal> {
        let record = &Query::RECORD;
        if !get(record, bytes, "buffer").is_multiple_of(64) {
            return refuse(CommandStatus::Misaligned, at(record, "buffer"));
        }
        if get(record, bytes, "buffer_bytes") < least {
            return refuse(CommandStatus::SizeNotAllowed, at(record, "buffer_bytes"));
        }
        Ok(())
    }

    /// Expects the write of a create command, without the tag of the driver.
    pub(super) fn write(&mut self, query: &Bytes, opcode: CommandOpcode, number: u32, create: &Bytes) -> u32 {
        let mut bytes = *create;
        CommandHeader { opcode, tag: 0, object_number: number }.emit(&mut bytes[..8]).expect("it fits");
        self.messages.push(Message::Write(get(&Query::RECORD, query, "buffer"), bytes.to_vec()));
        64
    }

    pub(super) fn expect_page(&mut self, kind: Kind, number: u32, page: u64, valid: bool) {
        self.messages.push(Message::Page(PageWrite {
            kind,
            index: bits(u64::from(number % 1024)),
            valid,
            page: bits(page),
            number: bits(number.into()),
        }));
    }

    /// Forgets all objects.
    pub(super) fn forget(&mut self) {
        let sorted = |keys: Vec<u32>| {
            let mut keys = keys;
            keys.sort_unstable();
            keys
        };
        for index in sorted(self.pairs.keys().copied().collect()) {
            let mut pair = self.pairs.remove(&index).expect("it exists");
            pair.state = QpState::Reset;
            pair.shares = Default::default();
            self.age(index);
            self.expect_page(Kind::QueuePair, pair.number, pair.page, false);
            self.expect_setup(SetupKind::Restart, &pair, 0);
        }
        self.read_units = Default::default();
        for index in sorted(self.regions.keys().copied().collect()) {
            let region = self.regions.remove(&index).expect("it exists");
            self.expect_region(&region, false);
        }
        for number in sorted(self.completion_queues.keys().copied().collect()) {
            let create = self.completion_queues.remove(&number).expect("it exists");
            self.expect_completion_queue(number, &create, true, false);
        }
        self.handles.clear();
        for number in sorted(self.event_queues.keys().copied().collect()) {
            let create = self.event_queues.remove(&number).expect("it exists");
            self.expect_event_queue(number, &create, true, false);
        }
        sorted(self.shared.keys().copied().collect())
            .into_iter()
            .for_each(|number| self.end_shared_receive_queue(number));
    }
}
