//! The blocks and everything around them: host, stages and sections of the card.
use super::*;

/// Cycles from the request of an invalidation to the write of the region tables.
pub(super) const INVALIDATED_AFTER: u64 = 6;

/// A key to be invalidated, and what became of it.
#[derive(Clone, Copy)]
pub(super) struct KeyRequest {
    pub(super) asked: Invalidation,
    /// Cycles in which it was offered and taken.
    pub(super) offered: u64,
    pub(super) taken: u64,
    pub(super) ok: bool,
    /// What had entered the sections when the region tables were written.
    pub(super) mark: Option<[u64; SECTIONS]>,
}

/// A write that is in flight to the host.
pub(super) struct Pending {
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) fails: bool,
}

/// Both blocks, and everything around them.
pub(super) struct World {
    pub(super) ring: Bench<AdminRing>,
    pub(super) sequencer: Bench<Sequencer>,
    pub(super) random: Random,
    pub(super) model: Model,
    /// Commands and answers in host memory.
    pub(super) commands: BTreeMap<u64, Bytes>,
    pub(super) answers: BTreeMap<u64, Vec<u8>>,
    entries_log2: u32,
    pub(super) written: u16,
    /// Answers that the host has not yet seen, of commands that have begun.
    pub(super) expected: VecDeque<(Bytes, Result<u32, Refusal>)>,
    pub(super) reads: VecDeque<(u64, bool)>,
    pub(super) writes: VecDeque<Pending>,
    pub(super) done_count: u16,
    pub(super) notices: VecDeque<Notice>,
    /// Messages of the blocks.
    pub(super) messages: Vec<Message>,
    pub(super) admin_events: Vec<u64>,
    pub(super) stale: (usize, usize),
    pub(super) counted: (usize, usize),
    pub(super) fatal: Vec<(u64, u64)>,
    /// Work in the sections, and how much ever entered each.
    pub(super) inside: [u64; SECTIONS],
    pub(super) entered: [u64; SECTIONS],
    /// What had entered when the last object ended.
    pub(super) mark: Option<[u64; SECTIONS]>,
    pub(super) ringing: bool,
    /// Requests of requester and responder that are offered, and those that were taken and have no answer yet.
    pub(super) keys: [VecDeque<KeyRequest>; 2],
    pub(super) taken_keys: [VecDeque<KeyRequest>; 2],
    /// Answers so far, good and bad, and the longest time that a peer has waited, in cycles.
    pub(super) answered_keys: (usize, usize),
    pub(super) slowest: u64,
    /// Probability that a stream moves in a cycle.
    pub(super) chance: f64,
    pub(super) refuses_queries: bool,
    pub(super) refuses_answers: bool,
    pub(super) refuses_reads: bool,
    /// Nothing leaves the card.
    pub(super) is_stuck: bool,
    pub(super) cycles: u64,
}

impl World {
    pub(super) fn new(chance: f64) -> Self {
        let mut ring = Bench::clocked(AdminRing::default(), |block| &mut block.clock).in_lock_step();
        let sequencer = Bench::clocked(Sequencer::default(), |block| &mut block.clock).in_lock_step();
        let entries_log2 = 3;
        ring.block.registers.command_base.next = bits(COMMAND_BASE);
        ring.block.registers.answer_base.next = bits(ANSWER_BASE);
        ring.block.registers.entries_log2.next = bits(entries_log2);
        ring.block.registers.may_begin.next = true;
        ring.block.registers.event_on_answer.next = true;
        let mut world = World {
            ring,
            sequencer,
            random: random(),
            model: Model::default(),
            commands: BTreeMap::new(),
            answers: BTreeMap::new(),
            entries_log2: entries_log2 as u32,
            written: 0,
            expected: VecDeque::new(),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            done_count: 0,
            notices: VecDeque::new(),
            messages: Vec::new(),
            admin_events: Vec::new(),
            stale: (0, 0),
            counted: (0, 0),
            fatal: Vec::new(),
            inside: [0; SECTIONS],
            entered: [0; SECTIONS],
            mark: None,
            ringing: false,
            keys: Default::default(),
            taken_keys: Default::default(),
            answered_keys: (0, 0),
            slowest: 0,
            chance,
            refuses_queries: false,
            refuses_answers: false,
            refuses_reads: false,
            is_stuck: false,
            cycles: 0,
        };
        world.cycle();
        world.ring.block.registers.enable.next = true;
        world.cycle();
        world
    }

    pub(super) fn happens(&mut self) -> bool {
        let chance = self.chance;
        self.random.random_bool(chance)
    }

    /// Moves work through the sections; nothing leaves the second one while a failure waits to be taken.
    pub(super) fn move_work(&mut self) {
        if self.random.random_bool(0.1) {
            self.inside[0] += 1;
            self.entered[0] += 1;
        }
        for section in (0..SECTIONS).rev() {
            let is_blocked = self.is_stuck || (section == 1 && !self.notices.is_empty());
            if self.inside[section] > 0 && !is_blocked && self.random.random_bool(0.3) {
                self.inside[section] -= 1;
                if section + 1 < SECTIONS {
                    self.inside[section + 1] += 1;
                    self.entered[section + 1] += 1;
                }
            }
        }
        for section in 0..SECTIONS {
            let (entered, inside) = (self.entered[section], self.inside[section]);
            self.sequencer.block.in_flight[section].next =
                InFlight { entered: bits(entered & 0xffff), left: bits((entered - inside) & 0xffff) };
        }
    }

    /// Connects the blocks: all signals between them are registered, but for three `ready`.
    pub(super) fn join(&mut self) {
        let (ring, sequencer) = (&mut self.ring.block, &mut self.sequencer.block);
        ring.outcome.beat.next = sequencer.outcome.beat.val();
        ring.outcome.valid.next = sequencer.outcome.valid.val();
        ring.write.beat.next = sequencer.write.beat.val();
        ring.write.valid.next = sequencer.write.valid.val();
        sequencer.command.beat.next = ring.command.beat.val();
        sequencer.command.valid.next = ring.command.valid.val();
        ring.list_read.beat.next = sequencer.list_read.beat.val();
        ring.list_read.valid.next = sequencer.list_read.valid.val();
        sequencer.list_valid.next = ring.list_valid.val();
        sequencer.list_error.next = ring.list_error.val();
        sequencer.outcome.ready.next = ring.outcome.ready.val();
    }

    pub(super) fn cycle(&mut self) {
        self.cycles += 1;
        self.join();
        let (read_ready, write_ready, event_ready, admin_event_ready) =
            (self.happens(), self.happens(), self.happens(), self.happens());
        let setup_ready = self.happens();
        let own_ready = self.happens();
        self.move_work();
        let (delivers, completes) = (self.happens(), self.happens());
        let block = &mut self.ring.block;
        block.admin.read.ready.next = read_ready;
        block.admin.write.ready.next = write_ready;
        block.event.ready.next = admin_event_ready;
        block.registers.doorbell.value.next = bits(self.written.into());
        block.registers.doorbell.valid.next = self.ringing;
        self.ringing = false;
        block.admin.slot.valid.next = false;
        if delivers && let Some((address, error)) = self.reads.pop_front() {
            let bytes = self.commands.get(&address).copied();
            let bytes = bytes.unwrap_or_else(|| self.model.list_slot(address));
            block.admin.slot.valid.next = true;
            block.admin.slot.value.next =
                Slot { data: BigUint::from_bytes_le(&bytes).into(), last: true, error };
        }
        block.admin.write_failed.next = false;
        if completes && let Some(write) = self.writes.pop_front() {
            self.done_count = self.done_count.wrapping_add(1);
            block.admin.write_failed.next = write.fails;
            if !write.fails {
                if write.bytes.len() == 16 {
                    self.answers.insert(write.address, write.bytes);
                } else {
                    self.messages.push(Message::Write(write.address, write.bytes));
                }
            }
        }
        block.admin.done_count.next = bits(self.done_count.into());
        let block = &mut self.sequencer.block;
        block.event.ready.next = event_ready;
        block.setup.ready.next = setup_ready;
        block.srq_setup.ready.next = setup_ready;
        for (source, keys) in self.keys.iter_mut().enumerate() {
            block.invalidate[source].valid.next = !keys.is_empty();
            if let Some(request) = keys.front_mut() {
                request.offered = if request.offered == 0 { self.cycles } else { request.offered };
                block.invalidate[source].beat.next = request.asked;
            }
        }
        block.invalidated[0].ready.next = own_ready;
        block.invalidated[1].ready.next = true;
        block.notice.valid.next = false;
        block.srq_limit.valid.next = false;
        block.source_addresses.next = bits(self.model.source_addresses);
        match self.notices.front() {
            Some(&Notice::OfQueuePair(notice)) => {
                block.notice.valid.next = true;
                block.notice.beat.next = notice;
            }
            Some(&Notice::OfLimit(notice)) => {
                block.srq_limit.valid.next = true;
                block.srq_limit.beat.next = notice;
            }
            None => {}
        }
        self.ring.settle();
        self.sequencer.block.write.ready.next = self.ring.block.write.ready.val();
        self.sequencer.block.list_read.ready.next = self.ring.block.list_read.ready.val();
        self.sequencer.settle();
        self.ring.block.command.ready.next = self.sequencer.block.command.ready.val();
        self.observe();
        self.ring.tick();
        self.sequencer.tick();
    }

    /// Takes up what moves in this cycle.
    pub(super) fn observe(&mut self) {
        let block = &self.sequencer.block;
        let psns = (block.probed_send.val().to_u64(), block.probed_receive.val().to_u64());
        let probed = (psns.0, psns.1, block.probed_busy.val());
        let takes_notice = block.notice.valid.val() && block.notice.ready.val();
        if takes_notice || (block.srq_limit.valid.val() && block.srq_limit.ready.val()) {
            match self.notices.pop_front().expect("it was offered") {
                Notice::OfQueuePair(notice) => self.stale.1 += usize::from(self.model.fail(notice)),
                Notice::OfLimit(notice) => self.model.reach_limit(notice),
            }
        }
        if block.command.valid.val() && block.command.ready.val() {
            let mut bytes = BigUint::from(block.command.beat.val()).to_bytes_le();
            bytes.resize(COMMAND_BYTES, 0);
            let bytes: Bytes = bytes.try_into().expect("64 bytes");
            let outcome = self.model.execute(&bytes, probed);
            self.expected.push_back((bytes, outcome));
            self.mark = None;
        }
        self.stale.0 += usize::from(block.counts_stale_dropped.val());
        if block.setup.valid.val() && block.setup.ready.val() {
            let setup = block.setup.beat.val();
            if matches!(setup.kind, SetupKind::Life | SetupKind::Restart) {
                self.mark = Some(self.entered);
            }
            let has_psn = matches!(setup.kind, SetupKind::SendPsn | SetupKind::ReceivePsn);
            let psn = if has_psn { setup.psn } else { bits(0) };
            self.messages.push(Message::Setup(Box::new(SetupEvent { psn, ..setup })));
        }
        if block.srq_setup.valid.val() && block.srq_setup.ready.val() {
            let setup = block.srq_setup.beat.val();
            if setup.kind == SrqSetupKind::Restart {
                self.mark = Some(self.entered);
            }
            self.messages.push(Message::SrqSetup(setup));
        }
        assert!(!block.setup.valid.val() || !block.srq_setup.valid.val(), "one event at a time");
        if block.tables.region_write.valid.val() {
            let write = block.tables.region_write.value.val();
            let is_valid = write.region.valid;
            self.messages.push(Message::Region(if is_valid {
                write
            } else {
                RegionWrite { region: Region::default(), ..write }
            }));
            let messages = self.cycles - INVALIDATED_AFTER;
            if let Some(request) =
                self.taken_keys.iter_mut().flatten().find(|request| request.ok && request.taken == messages)
            {
                request.mark = Some(self.entered);
            } else if !is_valid {
                // A region that is changed permits nothing from now on; a region whose key was invalidated is written twice.
                self.mark = self.mark.or(Some(self.entered));
            }
        }
        if block.page_entry_write.valid.val() {
            self.messages.push(Message::PageEntry(block.page_entry_write.value.val()));
        }
        self.observe_keys();
        let block = &self.sequencer.block;
        if block.tables.completion_queue_setup.valid.val() {
            self.messages.push(Message::CompletionQueue(block.tables.completion_queue_setup.value.val()));
        }
        if block.tables.event_queue_setup.valid.val() {
            self.messages.push(Message::EventQueue(block.tables.event_queue_setup.value.val()));
        }
        if block.tables.page_write.valid.val() {
            self.messages.push(Message::Page(block.tables.page_write.value.val()));
        }
        if block.event.valid.val() && block.event.ready.val() {
            let event = block.event.beat.val();
            self.messages.push(Message::Event(
                event.object_number.to_u64(),
                event.detail.to_u64(),
                event.kind.to_u64(),
                event.code.to_u64(),
            ));
        }
        if block.outcome.valid.val() && block.outcome.ready.val() {
            self.check_quiesced();
        }
        let block = &self.ring.block;
        if block.admin.read.valid.val() && block.admin.read.ready.val() {
            let span = block.admin.read.beat.val();
            assert_eq!(span.length, bits(64));
            let fails = self.refuses_reads && self.random.random_bool(0.05);
            let fails = fails || self.model.bad_slots.contains(&span.address.to_u64());
            self.reads.push_back((span.address.to_u64(), fails));
        }
        if block.admin.write.valid.val() && block.admin.write.ready.val() {
            let write = block.admin.write.beat.val();
            let length = write.length.to_u64() as usize;
            let mut bytes = BigUint::from(write.data).to_bytes_le();
            bytes.resize(64, 0);
            bytes.truncate(length);
            assert_eq!(write.address.to_u64() % length as u64, 0);
            let refuses = if length == 16 { self.refuses_answers } else { self.refuses_queries };
            let fails = refuses && self.random.random_bool(0.1);
            if fails && length == 64 {
                let (_, outcome) = self.expected.back_mut().expect("a command writes");
                *outcome = Err((CommandStatus::HostError, 0));
            }
            self.writes.push_back(Pending { address: write.address.to_u64(), bytes, fails });
        }
        if block.event.valid.val() && block.event.ready.val() {
            let event = block.event.beat.val();
            assert_eq!(event.kind, bits(EventKind::AdminAnswer.number().into()));
            assert_eq!((event.object_number, event.code), (bits(0), bits(0)));
            self.admin_events.push(event.detail.to_u64());
        }
        let counts = block.counts.val();
        self.counted.0 += usize::from(counts.executed);
        self.counted.1 += usize::from(counts.refused);
        if block.fatal.valid.val() {
            let report = block.fatal.value.val();
            self.fatal.push((report.code.to_u64(), report.detail.to_u64()));
        }
    }

    /// A key is invalidated when its request is taken, and the answer follows when it can no longer be used.
    pub(super) fn observe_keys(&mut self) {
        let block = &self.sequencer.block;
        for source in 0..2 {
            if block.invalidate[source].valid.val() && block.invalidate[source].ready.val() {
                let mut request = self.keys[source].pop_front().expect("it was offered");
                request.taken = self.cycles;
                request.ok =
                    self.model.invalidate(request.asked.key.to_u64() as u32, request.asked.domain.to_u64());
                self.taken_keys[source].push_back(request);
            }
            let answer = &block.invalidated[source];
            if answer.valid.val() && answer.ready.val() {
                let request = self.taken_keys[source].pop_front().expect("it was asked for");
                let Invalidation { queue_pair, generation, .. } = request.asked;
                let expected = Invalidated { queue_pair, generation, ok: request.ok };
                assert_eq!(answer.beat.val(), expected, "{:?}", request.asked);
                assert_eq!(request.ok, request.mark.is_some(), "the region tables were written");
                let count = if request.ok { &mut self.answered_keys.0 } else { &mut self.answered_keys.1 };
                *count += 1;
                if source == 1 {
                    self.slowest = self.slowest.max(self.cycles - request.offered);
                    continue;
                }
                for (section, marked) in request.mark.into_iter().flatten().enumerate() {
                    let left = self.entered[section] - self.inside[section];
                    assert!(left >= marked, "section {section} holds what was there");
                }
            }
        }
    }

    /// Requests the invalidation of a key.
    pub(super) fn invalidate_key(&mut self, source: usize, key: u32, domain: u64) {
        let asked = Invalidation {
            queue_pair: bits(self.random.random_range(0..1024)),
            generation: bits(self.random.random_range(0..256)),
            key: bits(key.into()),
            domain: bits(domain),
        };
        self.keys[source].push_back(KeyRequest { asked, offered: 0, taken: 0, ok: false, mark: None });
    }

    /// A command that ends an object has waited for everything that could still use it.
    pub(super) fn check_quiesced(&mut self) {
        let Some((bytes, outcome)) = self.expected.back() else { return };
        use CommandOpcode as Op;
        let goes_to_reset = bytes[0] == Op::ModifyQueuePair.number()
            && get(&ModifyQueuePair::RECORD, bytes, "mask") & 1 == 1
            && get(&ModifyQueuePair::RECORD, bytes, "next_state") == 0;
        let waits =
            [Op::DestroyQueuePair, Op::DestroyRegion, Op::ModifyRegion, Op::DestroySharedReceiveQueue];
        let waits = goes_to_reset || waits.iter().any(|opcode| opcode.number() == bytes[0]);
        if waits && outcome.is_ok() && self.sequencer.block.outcome.beat.val().status == 0 {
            let mark = self.mark.expect("an object ended");
            for (section, marked) in mark.into_iter().enumerate() {
                let left = self.entered[section] - self.inside[section];
                assert!(left >= marked, "section {section} holds what was there");
            }
        }
    }

    /// Writes a command into the ring and rings the doorbell.
    pub(super) fn post(&mut self, command: Bytes) {
        let place = u64::from(self.written) & ((1 << self.entries_log2) - 1);
        self.commands.insert(COMMAND_BASE + 64 * place, command);
        self.written = self.written.wrapping_add(1);
        self.ringing = true;
    }

    /// Runs until the oldest answer is in host memory, and compares it.
    pub(super) fn answer(&mut self, index: u16) -> Answer {
        let place = u64::from(index) & ((1 << self.entries_log2) - 1);
        let address = ANSWER_BASE + 16 * place;
        let phase = index >> self.entries_log2 & 1 == 0;
        for _ in 0..100_000 {
            if let Some(bytes) = self.answers.get(&address)
                && (bytes[15] == 1) == phase
            {
                let answer = Answer::parse(bytes).expect("an answer can be read");
                let (command, outcome) = self.expected.pop_front().expect("a command was begun");
                let (status, detail) = match outcome {
                    Ok(detail) => (CommandStatus::Success, detail),
                    Err(refusal) => refusal,
                };
                let tag = u16::from_le_bytes([command[2], command[3]]);
                let number = u32::from_le_bytes(command[4..8].try_into().expect("four bytes"));
                let expected =
                    Answer { tag, opcode: command[0], status, object_number: number, detail, phase };
                assert_eq!(
                    answer,
                    expected,
                    "{:?} {command:x?}",
                    CommandOpcode::from_number(command[0].into())
                );
                return answer;
            }
            self.cycle();
        }
        panic!("no answer to {:x?}", self.expected);
    }

    /// Executes one command and compares all messages.
    pub(super) fn command(&mut self, command: Bytes) -> Answer {
        let index = self.written;
        self.post(command);
        let answer = self.answer(index);
        self.compare();
        answer
    }

    pub(super) fn answer_and_compare(
        &mut self,
        index: u16,
        command: &Bytes,
        outcomes: &mut BTreeMap<(u8, CommandStatus), usize>,
    ) {
        let answer = self.answer(index);
        self.compare();
        *outcomes.entry((command[0], answer.status)).or_default() += 1;
        assert_eq!(self.admin_events.pop(), Some(index.wrapping_add(1).into()));
    }

    /// Runs until nothing is in flight.
    pub(super) fn rest(&mut self) {
        let mut quiet = 0;
        for _ in 0..60_000 {
            self.cycle();
            let is_quiet = self.sequencer.block.is_idle.val()
                && !self.ring.block.registers.busy.val()
                && self.notices.is_empty()
                && self.keys.iter().all(VecDeque::is_empty)
                && self.taken_keys.iter().all(VecDeque::is_empty)
                && self.writes.is_empty();
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet > 3 {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Compares all messages with those that the interpreter expects, each kind in its order.
    pub(super) fn compare(&mut self) {
        self.rest();
        self.compare_messages();
    }

    pub(super) fn compare_messages(&mut self) {
        let mut found = core::mem::take(&mut self.messages);
        let mut expected = core::mem::take(&mut self.model.messages);
        if self.refuses_queries {
            found.retain(|messages| !matches!(messages, Message::Write(..)));
            expected.retain(|messages| !matches!(messages, Message::Write(..)));
        }
        let kind = |messages: &Message| match messages {
            Message::Setup(_) => 0,
            Message::Region(_) => 1,
            Message::CompletionQueue(_) => 2,
            Message::EventQueue(_) => 3,
            Message::Page(_) => 4,
            Message::Write(..) => 5,
            Message::Event(..) => 6,
            Message::PageEntry(_) => 7,
            Message::SrqSetup(_) => 8,
        };
        found.sort_by_key(kind);
        expected.sort_by_key(kind);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected);
        }
        assert_eq!(found.len(), expected.len());
        assert_eq!(self.stale.0, self.stale.1);
    }

    /// Gives settings of event queue 0 to the card.
    pub(super) fn event_queue_0(&mut self, valid: bool, restarts: bool) {
        let setup = EventQueueSetup {
            event_queue: bits(0),
            restarts,
            valid,
            entries_log2: bits(self.random.random_range(0..17)),
            vector: bits(self.random.random_range(0..64)),
            base_page: bits(self.random.random::<u64>() >> 12),
        };
        self.sequencer.block.event_queue_0.value.next = setup;
        self.sequencer.block.event_queue_0.valid.next = true;
        self.cycle();
        self.sequencer.block.event_queue_0.valid.next = false;
        self.sequencer.block.event_queue_0.value.next = EventQueueSetup::default();
        self.model.set_event_queue_0(setup);
        self.compare();
    }
}
