//! Work queues of the fake card: executes WQEs, one message per step and queue pair.

use super::*;

impl Card {
    pub(super) fn step_queue_pair(&mut self, number: u32) {
        let qp = self.queue_pairs[&number].clone();
        if qp.state == QpState::Error {
            self.flush(number);
        } else if qp.state == QpState::ReadyToSend
            && qp.send_consumer != qp.send_producer
            && !self.faults.stuck
        {
            self.send(number, &qp);
        }
    }

    fn flush(&mut self, number: u32) {
        let qp = self.queue_pairs[&number].clone();
        if qp.send_consumer != qp.send_producer {
            let slots = self.send_slots(&qp);
            let work = SendWqe::parse(&slots).expect("posted work is legal");
            let opcode = opcode_of(work.opcode);
            self.advance_send(number, work.two_slots);
            self.complete_send(number, work.wr_id, opcode, CompletionStatus::Flushed);
        }
        if let Some(wr_id) = qp.held {
            self.queue_pairs.get_mut(&number).expect("it exists").held = None;
            let status = CompletionStatus::Flushed;
            self.complete_receive(number, wr_id, status, With::Nothing, false, 0, false);
            return;
        }
        if qp.create.shared_receive && !qp.last_wqe_reached {
            self.queue_pairs.get_mut(&number).expect("it exists").last_wqe_reached = true;
            self.raise(0, AsyncEvent::LastWqeReached, number);
        }
        if qp.receive_consumer != qp.receive_producer {
            let (work, _) = self.take_receive(number).expect("it was posted");
            if self.faults.unreadable_receives > 0 {
                self.faults.unreadable_receives -= 1;
            } else {
                self.complete_receive(
                    number,
                    work.wr_id,
                    CompletionStatus::Flushed,
                    With::Nothing,
                    false,
                    0,
                    false,
                );
            }
        }
    }

    fn send_slots(&self, qp: &QueuePair) -> [u8; 2 * WQE_SLOT_BYTES] {
        let mut slots = [0; 2 * WQE_SLOT_BYTES];
        for (place, slot) in slots.chunks_exact_mut(WQE_SLOT_BYTES).enumerate() {
            let index = qp.send_consumer.wrapping_add(place as u16);
            let index = index & ((1 << qp.create.send_slots_log2) - 1);
            let address = qp.create.send_base + u64::from(index) * WQE_SLOT_BYTES as u64;
            if place < usize::from(qp.send_producer.wrapping_sub(qp.send_consumer)) {
                self.read_posted(address, slot);
            }
        }
        slots
    }

    fn advance_send(&mut self, number: u32, two_slots: bool) {
        let qp = self.queue_pairs.get_mut(&number).expect("it exists");
        qp.send_consumer = qp.send_consumer.wrapping_add(1 + u16::from(two_slots));
    }

    /// Device address of memory, if key, domain, bounds and rights permit the access.
    fn resolve(
        &self,
        domain: u32,
        key: u32,
        address: u64,
        length: u64,
        right: fn(&CreateRegion) -> bool,
    ) -> Option<u64> {
        let holds = |region: &&CreateRegion| region.kind == RegionKind::Region && region.domain == domain;
        let region = self.regions.get(&key).filter(holds).filter(|region| right(region))?;
        let offset = address.checked_sub(region.first_address)?;
        let inside = region.length.checked_sub(offset).is_some_and(|rest| length <= rest);
        inside.then_some(region.translation_base + offset)
    }

    /// Invalidates a key if its region permits that. The index of the key stays in use.
    fn invalidate(&mut self, domain: u32, key: u32) -> bool {
        let ends = |region: &&mut CreateRegion| {
            region.kind == RegionKind::Region && region.domain == domain && region.invalidatable
        };
        let region = self.regions.get_mut(&key).filter(ends);
        region.map(|region| region.kind = RegionKind::Free).is_some()
    }

    fn gather(&self, qp: &QueuePair, work: &SendWqe, slots: &[u8]) -> Option<Vec<u8>> {
        if work.inline {
            return Some(slots[32..32 + work.length as usize].to_vec());
        }
        let mut payload = Vec::new();
        for sge in sges(slots, work.sge_count).filter(|sge| sge.length != 0) {
            let Sge { address, local_key, length } = sge;
            let address = self.resolve(qp.create.domain, local_key, address, length.into(), |_| true)?;
            let mut bytes = vec![0; length as usize];
            self.read_memory(address, &mut bytes);
            payload.extend(bytes);
        }
        Some(payload)
    }

    /// Executes one send WQE, up to the completions of both sides.
    fn send(&mut self, number: u32, qp: &QueuePair) {
        let slots = self.send_slots(qp);
        let parsed = Wqe::parse(qp.create.service, &slots).expect("the driver posts legal work");
        let peer_number = qp.attributes.destination_qp;
        use QpState::{ReadyToReceive, ReadyToSend, SendQueueDrain};
        let ready = |peer: &QueuePair| matches!(peer.state, ReadyToReceive | ReadyToSend | SendQueueDrain);
        let Some(peer) = self.queue_pairs.get(&peer_number).filter(|peer| ready(peer)).cloned() else {
            return;
        };
        let work = match parsed {
            Wqe::Message(work) => work,
            Wqe::Atomic(work) => return self.atomic(number, qp, &work, &peer),
            other => panic!("the driver posted {other:?}"),
        };
        if work.opcode == WqeOpcode::LocalInvalidate {
            self.advance_send(number, work.two_slots);
            let key = u32::from_le_bytes(work.immediate);
            let status = if self.invalidate(qp.create.domain, key) {
                CompletionStatus::Success
            } else {
                CompletionStatus::LocalQueuePairOperation
            };
            if work.signalled || qp.create.signal_all || status != CompletionStatus::Success {
                self.complete_send(number, work.wr_id, CompletionOpcode::LocalInvalidate, status);
            }
            if status != CompletionStatus::Success {
                self.fail(number);
            }
            return;
        }
        if work.opcode == WqeOpcode::Read {
            self.read(number, qp, &work, &slots, &peer);
            return;
        }
        // A local error is reported whether the peer has posted a receive or not.
        let opcode = opcode_of(work.opcode);
        let Some(payload) = self.gather(qp, &work, &slots) else {
            self.advance_send(number, work.two_slots);
            self.complete_send(number, work.wr_id, opcode, CompletionStatus::LocalProtection);
            self.fail(number);
            return;
        };
        let immediate = matches!(work.opcode, WqeOpcode::SendImmediate | WqeOpcode::WriteImmediate);
        let is_write = matches!(work.opcode, WqeOpcode::Write | WqeOpcode::WriteImmediate);
        let consumes = immediate || !is_write;
        let (producer, consumer) = match self.shared.get(&peer.create.shared_receive_queue) {
            Some(shared) if peer.create.shared_receive => (shared.producer, shared.consumer),
            _ => (peer.receive_producer, peer.receive_consumer),
        };
        if consumes && producer == consumer {
            // Receiver not ready: a later step tries again.
            return;
        }
        self.advance_send(number, work.two_slots);
        let length = payload.len() as u32;
        // The key of an empty message is not checked.
        if is_write && length != 0 {
            let right = |region: &CreateRegion| region.remote_write;
            let target = self
                .resolve(peer.create.domain, work.remote_key, work.remote_address, length.into(), right)
                .filter(|_| peer.attributes.remote_write);
            let Some(target) = target else {
                self.refuse(number, peer_number, work.wr_id, opcode);
                return;
            };
            self.write_memory(target, &payload);
        }
        if consumes {
            let (receive, wqe) = self.take_receive(peer_number).expect("checked above");
            if self.faults.half_messages > 0 {
                self.faults.half_messages -= 1;
                self.queue_pairs.get_mut(&peer_number).expect("it exists").held = Some(receive.wr_id);
                return;
            }
            if !is_write && !self.scatter(&peer, &receive, &wqe, &payload) {
                let status = CompletionStatus::LocalLength;
                self.complete_receive(peer_number, receive.wr_id, status, With::Nothing, false, 0, false);
                self.fail(peer_number);
                self.complete_send(number, work.wr_id, opcode, CompletionStatus::RemoteInvalidRequest);
                self.fail(number);
                return;
            }
            let invalidates = work.opcode == WqeOpcode::SendInvalidate;
            if invalidates && !self.invalidate(peer.create.domain, u32::from_le_bytes(work.immediate)) {
                let status = CompletionStatus::RemoteAccess;
                self.complete_receive(peer_number, receive.wr_id, status, With::Nothing, false, 0, false);
                self.fail(peer_number);
                self.complete_send(number, work.wr_id, opcode, status);
                self.fail(number);
                return;
            }
            let with = match work.opcode {
                WqeOpcode::SendInvalidate => With::Key(work.immediate),
                _ if immediate => With::Immediate(work.immediate),
                _ => With::Nothing,
            };
            self.complete_receive(
                peer_number,
                receive.wr_id,
                CompletionStatus::Success,
                with,
                is_write,
                length,
                work.solicited,
            );
        }
        if work.signalled || qp.create.signal_all {
            self.complete_send(number, work.wr_id, opcode, CompletionStatus::Success);
        }
    }

    /// Refuses a remote access: both queue pairs fail.
    fn refuse(&mut self, number: u32, peer_number: u32, wr_id: u64, opcode: CompletionOpcode) {
        self.raise(0, AsyncEvent::QueuePairAccessError, peer_number);
        self.fail(peer_number);
        self.complete_send(number, wr_id, opcode, CompletionStatus::RemoteAccess);
        self.fail(number);
    }

    /// Executes a READ.
    fn read(&mut self, number: u32, qp: &QueuePair, work: &SendWqe, slots: &[u8], peer: &QueuePair) {
        self.advance_send(number, work.two_slots);
        let filled = sges(slots, work.sge_count).filter(|sge| sge.length != 0);
        let targets: Option<Vec<(u64, usize)>> = filled
            .map(|Sge { address, local_key, length }| {
                let right = |region: &CreateRegion| region.local_write;
                let target = self.resolve(qp.create.domain, local_key, address, length.into(), right)?;
                Some((target, length as usize))
            })
            .collect();
        let Some(targets) = targets else {
            self.complete_send(number, work.wr_id, CompletionOpcode::Read, CompletionStatus::LocalProtection);
            self.fail(number);
            return;
        };
        let right = |region: &CreateRegion| region.remote_read;
        let (address, length) = (work.remote_address, work.length);
        let mut bytes = vec![0; length as usize];
        // The key of an empty message is not checked.
        if length != 0 {
            let source = self
                .resolve(peer.create.domain, work.remote_key, address, length.into(), right)
                .filter(|_| peer.attributes.remote_read);
            let Some(source) = source else {
                self.refuse(number, qp.attributes.destination_qp, work.wr_id, CompletionOpcode::Read);
                return;
            };
            self.read_memory(source, &mut bytes);
        }
        let mut rest = &bytes[..];
        for (target, length) in targets {
            let (part, later) = rest.split_at(length);
            self.write_memory(target, part);
            rest = later;
        }
        assert!(rest.is_empty(), "the SGEs of a READ hold all of it");
        if work.signalled || qp.create.signal_all {
            self.complete_send(number, work.wr_id, CompletionOpcode::Read, CompletionStatus::Success);
        }
    }

    /// Executes an atomic.
    fn atomic(&mut self, number: u32, qp: &QueuePair, work: &AtomicWqe, peer: &QueuePair) {
        self.advance_send(number, false);
        let is_swap = work.opcode == WqeOpcode::CompareSwap;
        let opcode = if is_swap { CompletionOpcode::CompareSwap } else { CompletionOpcode::FetchAdd };
        let right = |region: &CreateRegion| region.remote_atomic;
        let cell = self
            .resolve(peer.create.domain, work.remote_key, work.remote_address, 8, right)
            .filter(|_| peer.attributes.remote_atomic);
        let Some(cell) = cell else {
            self.refuse(number, qp.attributes.destination_qp, work.wr_id, opcode);
            return;
        };
        let mut bytes = [0; 8];
        self.read_memory(cell, &mut bytes);
        let original = u64::from_le_bytes(bytes);
        let value = match is_swap {
            true if original == work.compare => work.swap_or_add,
            true => original,
            false => original.wrapping_add(work.swap_or_add),
        };
        self.write_memory(cell, &value.to_le_bytes());
        let right = |region: &CreateRegion| region.local_write;
        let target = self.resolve(qp.create.domain, work.local_key, work.local_address, 8, right);
        self.write_memory(target.expect("the driver posts SGEs of regions"), &bytes);
        if work.signalled || qp.create.signal_all {
            self.complete_send(number, work.wr_id, opcode, CompletionStatus::Success);
        }
    }

    fn take_receive(&mut self, number: u32) -> Option<(ReceiveWqe, [u8; WQE_SLOT_BYTES])> {
        let qp = self.queue_pairs.get_mut(&number)?;
        let (base, log2, consumer, producer) = if qp.create.shared_receive {
            let shared = self.shared.get_mut(&qp.create.shared_receive_queue)?;
            let CreateSharedReceiveQueue { base, entries_log2, .. } = shared.create;
            (base, entries_log2, &mut shared.consumer, shared.producer)
        } else {
            let CreateQueuePair { receive_base, receive_wqes_log2, .. } = qp.create;
            (receive_base, receive_wqes_log2, &mut qp.receive_consumer, qp.receive_producer)
        };
        if *consumer == producer {
            return None;
        }
        let slot = *consumer & ((1 << log2) - 1);
        *consumer = consumer.wrapping_add(1);
        let address = base + u64::from(slot) * WQE_SLOT_BYTES as u64;
        if qp.create.shared_receive {
            let number = qp.create.shared_receive_queue;
            let shared = self.shared.get_mut(&number).expect("it was found");
            if shared.producer.wrapping_sub(shared.consumer) < shared.create.limit {
                shared.create.limit = 0;
                self.raise(0, AsyncEvent::SharedReceiveLimit, number);
            }
        }
        let mut wqe = [0; WQE_SLOT_BYTES];
        self.read_posted(address, &mut wqe);
        Some((ReceiveWqe::parse(&wqe).expect("the driver posts legal receives"), wqe))
    }

    fn scatter(&self, peer: &QueuePair, work: &ReceiveWqe, wqe: &[u8], payload: &[u8]) -> bool {
        let mut rest = payload;
        for bytes in wqe[16..].chunks_exact(Sge::BYTES).take(work.sge_count.into()) {
            let sge = Sge::parse(bytes).expect("any bits are an SGE");
            let Sge { address, local_key, length } = sge;
            let (part, later) = rest.split_at(rest.len().min(length as usize));
            let right = |region: &CreateRegion| region.local_write;
            let target = self.resolve(peer.create.domain, local_key, address, length.into(), right);
            self.write_memory(target.expect("the driver posts SGEs of regions"), part);
            rest = later;
        }
        rest.is_empty()
    }
}

fn opcode_of(opcode: WqeOpcode) -> CompletionOpcode {
    match opcode {
        WqeOpcode::Write | WqeOpcode::WriteImmediate => CompletionOpcode::Write,
        WqeOpcode::LocalInvalidate => CompletionOpcode::LocalInvalidate,
        _ => CompletionOpcode::Send,
    }
}
