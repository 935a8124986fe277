//! Admin queue of the fake card: reads commands, checks what they refer to, and answers.

use super::*;

impl Card {
    pub(super) fn step_admin(&mut self) {
        let control =
            AdminControl::parse(&self.register(REG_ADMIN_CONTROL.offset).to_le_bytes()).expect("legal");
        let producer = self.register(REG_ADMIN_DOORBELL.offset) as u16;
        if !control.enable || producer == self.admin_consumer || self.faults.mute {
            return;
        }
        self.admin_waited += 1;
        if self.admin_waited <= self.faults.slow_commands {
            return;
        }
        self.admin_waited = 0;
        let log2 = u32::from(control.entries_log2);
        let index = u32::from(self.admin_consumer);
        let slot = u64::from(index & ((1 << log2) - 1));
        self.admin_consumer = self.admin_consumer.wrapping_add(1);
        let mut bytes = [0; 64];
        self.read_posted(self.register(REG_ADMIN_COMMAND_BASE.offset) + slot * 64, &mut bytes);
        let (status, detail) = match Command::parse(&bytes) {
            Ok(command) => {
                self.commands.push(command.header.opcode);
                match self.faults.refuse {
                    Some((opcode, status, detail)) if opcode == command.header.opcode => {
                        self.faults.refuse = None;
                        (status, detail)
                    }
                    _ => self.execute(&command).err().unwrap_or((CommandStatus::Success, 0)),
                }
            }
            Err(refusal) => (refusal.status, refusal.detail),
        };
        let answer = Answer {
            tag: u16::from_le_bytes([bytes[2], bytes[3]]) ^ u16::from(self.faults.wrong_tag),
            opcode: bytes[0],
            status,
            object_number: u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")),
            detail,
            phase: phase(index, log2),
        };
        let address = self.register(REG_ADMIN_ANSWER_BASE.offset) + slot * 16;
        self.write_memory(address, &answer.to_bytes().expect("legal"));
    }

    fn execute(&mut self, command: &Command) -> Result<(), Refusal> {
        use CommandStatus::*;
        let number = command.header.object_number;
        let index_of = |number: u32, log2: u32| number & ((1 << log2) - 1);
        let missing = |found: bool| if found { Ok(()) } else { Err((DoesNotExist, 32)) };
        match (command.header.opcode, command.body) {
            (Op::Nothing, _) => Ok(()),
            (Op::CreateEventQueue, Body::CreateEventQueue(body)) => {
                if self.events.contains_key(&number) {
                    return Err((AlreadyExists, 32));
                }
                self.create_events(number, body.base, body.entries_log2.into(), body.vector.into());
                Ok(())
            }
            (Op::DestroyEventQueue, _) => {
                if self.completions.values().any(|ring| u32::from(ring.create.event_queue) == number) {
                    return Err((Busy, 0));
                }
                missing(self.events.remove(&number).is_some())
            }
            (Op::CreateCompletionQueue, Body::CreateCompletionQueue(create)) => {
                if !self.events.contains_key(&create.event_queue.into()) {
                    return Err((ReferenceDoesNotExist, 72));
                }
                if self.completions.contains_key(&number) {
                    return Err((AlreadyExists, 32));
                }
                let ring = CompletionRing { create, producer: 0, consumer: 0, arm: Arm::Keep, failed: false };
                self.completions.insert(number, ring);
                Ok(())
            }
            (Op::ResizeCompletionQueue, Body::ResizeCompletionQueue(body)) => {
                let ring = self.completions.get_mut(&number).ok_or((DoesNotExist, 32))?;
                (ring.create.base, ring.create.entries_log2) = (body.base, body.entries_log2);
                Ok(())
            }
            (Op::DestroyCompletionQueue, _) => {
                let uses = |qp: &QueuePair| {
                    qp.create.send_completion_queue == number || qp.create.receive_completion_queue == number
                };
                if self.queue_pairs.values().any(uses) {
                    return Err((Busy, 0));
                }
                missing(self.completions.remove(&number).is_some())
            }
            (Op::CreateRegion, Body::CreateRegion(body)) => {
                let index = index_of(number >> 8, 7);
                if self.regions.keys().any(|key| index_of(key >> 8, 7) == index) {
                    return Err((AlreadyExists, 32));
                }
                self.dma(body.translation_base, body.length as usize).expect("the region is mapped");
                self.regions.insert(number, body);
                Ok(())
            }
            (Op::DestroyRegion, _) => missing(self.regions.remove(&number).is_some()),
            (Op::CreateAddressHandle, Body::AddressHandle(body)) => {
                if number >= 4 {
                    return Err((NumberOutOfRange, 32));
                }
                self.addresses.insert(number, body);
                Ok(())
            }
            (Op::DestroyAddressHandle, _) => missing(self.addresses.remove(&number).is_some()),
            (Op::CreateSharedReceiveQueue, Body::CreateSharedReceiveQueue(create)) => {
                let ring = SharedRing { create, producer: 0, consumer: 0 };
                if self.shared.insert(number, ring).is_some() { Err((AlreadyExists, 32)) } else { Ok(()) }
            }
            (Op::ModifySharedReceiveQueue, Body::ModifySharedReceiveQueue(body)) => self
                .shared
                .get_mut(&number)
                .map(|ring| ring.create.limit = body.limit)
                .ok_or((DoesNotExist, 32)),
            (Op::DestroySharedReceiveQueue, _) => {
                let uses =
                    |qp: &QueuePair| qp.create.shared_receive && qp.create.shared_receive_queue == number;
                if self.queue_pairs.values().any(uses) {
                    return Err((Busy, 0));
                }
                missing(self.shared.remove(&number).is_some())
            }
            (Op::CreateQueuePair, Body::CreateQueuePair(create)) => {
                let index = index_of(number, 4);
                if self.queue_pairs.keys().any(|&other| index_of(other, 4) == index) {
                    return Err((AlreadyExists, 32));
                }
                for (queue, detail) in
                    [(create.send_completion_queue, 160), (create.receive_completion_queue, 192)]
                {
                    if !self.completions.contains_key(&queue) {
                        return Err((ReferenceDoesNotExist, detail));
                    }
                }
                let shared = self.shared.get(&create.shared_receive_queue);
                if create.shared_receive && shared.is_none_or(|ring| ring.create.domain != create.domain) {
                    return Err((DomainMismatch, 224));
                }
                let qp = QueuePair {
                    create,
                    state: QpState::Reset,
                    attributes: ModifyQueuePair::at_reset(),
                    source_port: 0,
                    send_producer: 0,
                    send_consumer: 0,
                    receive_producer: 0,
                    receive_consumer: 0,
                    held: None,
                    last_wqe_reached: false,
                };
                self.queue_pairs.insert(number, qp);
                Ok(())
            }
            (Op::ModifyQueuePair, Body::ModifyQueuePair(body)) => self.modify(number, body),
            (Op::QueryQueuePair, Body::Query(query)) => self.query(number, query),
            (Op::DestroyQueuePair, _) => missing(self.queue_pairs.remove(&number).is_some()),
            _ => Err((NotSupported, 0)),
        }
    }

    fn modify(&mut self, number: u32, body: ModifyQueuePair) -> Result<(), Refusal> {
        let mask = AttributeMask(body.mask);
        let address = self.addresses.get(&body.address_handle).copied();
        let qp = self.queue_pairs.get_mut(&number).ok_or((CommandStatus::DoesNotExist, 32))?;
        check_transition(qp.create.service, qp.state, body.next_state, mask).map_err(|error| {
            use rnic_layout::state::TransitionError::*;
            match error {
                NotAllowed { .. } => (CommandStatus::TransitionNotAllowed, 96),
                Missing(mask) => (CommandStatus::AttributeMissing, mask.0),
                Unexpected(mask) => (CommandStatus::AttributeNotAllowed, mask.0),
            }
        })?;
        if mask.contains(AttributeMask::ADDRESS) {
            let address = address.filter(|address| address.domain == qp.create.domain);
            qp.source_port = address.ok_or((CommandStatus::DomainMismatch, 352))?.source_port;
        }
        let drains = qp.state == QpState::ReadyToSend && body.next_state == QpState::SendQueueDrain;
        qp.state = body.next_state;
        if mask.contains(AttributeMask::DRAIN_NOTIFY) {
            qp.attributes.drain_notify = body.drain_notify;
        }
        let notifies = drains && qp.attributes.drain_notify;
        match body.next_state {
            QpState::Reset => {
                (qp.send_producer, qp.send_consumer) = (0, 0);
                (qp.receive_producer, qp.receive_consumer) = (0, 0);
                (qp.held, qp.last_wqe_reached) = (None, false);
            }
            // The fake card needs the rights from INIT and the QPN of the peer from RTR.
            QpState::Init => qp.attributes = body,
            QpState::ReadyToReceive => qp.attributes.destination_qp = body.destination_qp,
            _ => {}
        }
        // The fake card executes a message in one step, so no send is ever in flight.
        if notifies {
            self.raise(0, AsyncEvent::SendQueueDrained, number);
        }
        Ok(())
    }

    /// Writes the attributes of a queue pair as a modify command. The driver reads no other part of the answer.
    fn query(&mut self, number: u32, query: Query) -> Result<(), Refusal> {
        let qp = self.queue_pairs.get(&number).ok_or((CommandStatus::DoesNotExist, 32))?;
        let attributes = ModifyQueuePair { next_state: qp.state, current_state: qp.state, ..qp.attributes };
        let header = CommandHeader { opcode: Op::ModifyQueuePair, tag: 0, object_number: number };
        let command = Command { header, body: Body::ModifyQueuePair(attributes) };
        self.write_memory(query.buffer + 64, &command.to_bytes().expect("legal"));
        Ok(())
    }
}
