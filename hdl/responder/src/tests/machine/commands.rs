//! Commands of control: setup events to all stages, one after the other.
use super::*;

/// Largest shares of READ slots in the pool.
const READ_BLOCKS: u64 = 1 << (READ_POOL_BITS - READ_SLOT_BITS);

impl Machine {
    /// Sends commands to all stages, one after the other.
    pub(in crate::tests) fn command(&mut self, kind: SetupKind, attributes: Attributes, psn: u32) {
        let event = SetupEvent {
            kind,
            queue_pair: bits(attributes.index().into()),
            state: bits(attributes.state as u64),
            generation: bits(attributes.generation.into()),
            psn: bits(psn.into()),
            path: path_of(&attributes),
            destination_read_share: ReadShare {
                unit: bits(u64::from(attributes.index()) % READ_BLOCKS * 4),
                size: bits(3),
            },
            ..SetupEvent::default()
        };
        self.commands.push_back(PendingCommand {
            event,
            srq_event: None,
            attributes,
            restarts: kind == SetupKind::Restart,
            shared: None,
            receive_psn: (kind == SetupKind::ReceivePsn).then_some(psn),
            is_offered: [false; 4],
            is_taken: [false; 4],
            waited: 0,
        });
        self.lives.insert(attributes.index(), attributes);
    }

    /// Creates a shared receive queue, or sets its limit.
    pub(in crate::tests) fn share(&mut self, kind: SrqSetupKind, number: u8, shared: &Shared) {
        let event = SrqSetup {
            kind,
            srq: bits(number.into()),
            is_alive: true,
            base_page: bits(shared.ring >> 12),
            entries_log2: bits(shared.entries_log2.into()),
            limit: bits(shared.limit.into()),
            limit_generation: bits(shared.setting.into()),
        };
        self.commands.push_back(PendingCommand {
            event: SetupEvent::default(),
            srq_event: Some(event),
            attributes: crate::tests::attributes(0),
            restarts: kind == SrqSetupKind::Restart,
            receive_psn: None,
            shared: Some((number, shared.clone())),
            is_offered: [false; 4],
            // The other stages get no event.
            is_taken: [false, kind == SrqSetupKind::Limit, true, true],
            waited: 0,
        });
    }

    pub(in crate::tests) fn is_commanding(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Creates a queue pair, or recreates it, and moves it to RTR.
    pub(in crate::tests) fn connect(&mut self, attributes: Attributes, psn: u32) {
        self.command(SetupKind::Restart, Attributes { state: QpState::Reset, ..attributes }, 0);
        self.command(SetupKind::ReceivePsn, attributes, psn);
    }

    /// From here on, packets in flight for a queue pair may succeed or fail.
    pub(in crate::tests) fn loosen(&mut self, index: u16) {
        self.is_loose = true;
        for (command, is_over) in &mut self.expected {
            *is_over |= command.queue_pair == index;
        }
    }

    /// Nothing of a queue pair is in flight except replies and flushed WQEs.
    pub(in crate::tests) fn is_still(&self, index: u16) -> bool {
        let generation = self.lives[&index].generation;
        self.expected.iter().all(|(command, _)| command.queue_pair != index || command.is_silent())
            && self.flushes.get(&(index, generation)).is_none_or(VecDeque::is_empty)
            && self.model.queues[&index].posted == self.model.queues[&index].written
            && self.failing.iter().all(|failing| failing.0 != index)
    }

    /// Control moves a failed queue pair to ERR.
    pub(super) fn control(&mut self) {
        let now = self.cycle;
        let due: Vec<_> = self.failing.extract_if(.., |failing| failing.2 <= now).collect();
        for (index, generation, _) in due {
            let life = self.lives[&index];
            if life.generation == generation && life.state != QpState::Reset {
                self.command(SetupKind::Life, Attributes { state: QpState::Error, ..life }, 0);
            }
        }
    }

    /// The stages take commands of control.
    pub(super) fn take_commands(&mut self, takes: [bool; 4]) {
        let Some(command) = self.commands.front_mut() else { return };
        command.waited += 1;
        assert!(command.waited < SETUP_CYCLES_MAX, "a setup event is taken in bounded time");
        let attributes = command.attributes;
        let index = attributes.index();
        for (taken, takes) in command.is_taken.iter_mut().zip(takes) {
            *taken |= takes;
        }
        if takes[0]
            && let Some((number, shared)) = &command.shared
        {
            let number = *number;
            let known = self.model.shared.remove(&number).unwrap_or_default();
            let again = if command.restarts { Shared::default() } else { known };
            let is_armed = shared.limit != 0;
            let Shared { ring, entries_log2, limit, setting, .. } = *shared;
            let next = Shared { ring, entries_log2, limit, setting, is_armed, ..again };
            self.model.shared.insert(number, next);
        } else if takes[0] {
            self.model.setup(attributes, command.restarts, command.receive_psn);
        }
        if takes[2] {
            self.reply_lives.insert(index, (attributes.state, attributes.generation));
            if let Some(psn) = command.receive_psn {
                let account = self.accounts.entry((index, attributes.generation)).or_default();
                account.open_psn = psn;
            }
        }
        if command.is_taken == [true; 4] {
            self.commands.pop_front();
        }
    }
}

pub(super) fn path_of(attributes: &Attributes) -> Path {
    Path {
        local_qp: bits(attributes.qpn.into()),
        path_mtu: bits(attributes.pmtu_code.into()),
        remote_write: attributes.remote_write,
        remote_atomic: attributes.remote_atomic,
        destination_read_atomic: bits(if attributes.remote_atomic { 16 } else { 0 }),
        destination_address: BigUint::from(attributes.peer).into(),
        source_address_index: bits(attributes.own_place.into()),
        partition_key: bits(attributes.partition_key.into()),
        domain: bits(attributes.domain.into()),
        min_rnr_timer: bits(attributes.timer_code.into()),
        receive_completion_queue: bits(attributes.completion_queue.into()),
        receive_base_page: bits(attributes.ring >> 12),
        receive_wqes_log2: bits(attributes.entries_log2.into()),
        shared_receive: attributes.shared.is_some(),
        shared_receive_queue: bits(attributes.shared.unwrap_or(0).into()),
        generation: bits(attributes.generation.into()),
        ..Path::default()
    }
}
