//! Event and completion queues of the fake card: writes EQEs and CQEs, and raises interrupts.

use super::*;

impl Card {
    pub(super) fn create_events(&mut self, number: u32, base: u64, log2: u32, vector: u32) {
        let ring = EventRing { base, log2, vector, producer: 0, consumer: 0, armed: false };
        self.events.insert(number, ring);
    }

    pub(super) fn interrupt(&mut self, queue: u32) {
        let ring = self.events.get_mut(&queue).expect("the queue exists");
        if ring.armed && ring.producer != ring.consumer {
            ring.armed = false;
            self.pending_interrupts |= 1 << ring.vector;
        }
    }

    pub(super) fn event(
        &mut self,
        queue: u32,
        kind: EventKind,
        code: AsyncEvent,
        object_number: u32,
        detail: u32,
    ) {
        self.eqe(queue, |phase| Eqe { object_number, detail, kind, code, phase }.to_bytes().expect("legal"));
    }

    /// Writes the EQE that `encode` returns for a phase bit.
    pub(super) fn eqe(&mut self, queue: u32, encode: impl FnOnce(bool) -> [u8; Eqe::BYTES]) {
        let ring = self.events.get_mut(&queue).expect("the queue exists");
        assert!((ring.producer - ring.consumer) >> ring.log2 == 0, "an event queue overran");
        let phase = phase(ring.producer, ring.log2);
        let slot = ring.producer & ((1 << ring.log2) - 1);
        let address = ring.base + u64::from(slot) * Eqe::BYTES as u64;
        ring.producer += 1;
        self.write_memory(address, &encode(phase));
        self.interrupt(queue);
    }

    pub(super) fn raise_completion_event(&mut self, number: u32) {
        let ring = self.completions.get_mut(&number).expect("the queue exists");
        ring.arm = Arm::Keep;
        let (queue, producer) = (ring.create.event_queue.into(), ring.producer);
        self.event(queue, EventKind::Completion, AsyncEvent::CompletionQueueError, number, producer);
    }

    pub(super) fn complete_send(
        &mut self,
        number: u32,
        wr_id: u64,
        opcode: CompletionOpcode,
        status: CompletionStatus,
    ) {
        let qp = &self.queue_pairs[&number];
        let completion = Cqe {
            wr_id,
            qp_number: number,
            consumer_index: qp.send_consumer,
            opcode,
            status,
            ..Cqe::at_reset()
        };
        self.complete(qp.create.send_completion_queue, completion);
    }

    #[expect(clippy::too_many_arguments, reason = "a CQE has as many fields")]
    pub(super) fn complete_receive(
        &mut self,
        number: u32,
        wr_id: u64,
        status: CompletionStatus,
        with: With,
        is_write: bool,
        length: u32,
        solicited: bool,
    ) {
        let qp = &self.queue_pairs[&number];
        let immediate = match with {
            With::Nothing => [0; 4],
            With::Immediate(bytes) | With::Key(bytes) => bytes,
        };
        let completion = Cqe {
            wr_id,
            length,
            immediate,
            qp_number: number,
            consumer_index: qp.receive_consumer,
            opcode: if is_write { CompletionOpcode::ReceiveWrite } else { CompletionOpcode::Receive },
            status,
            with_immediate: matches!(with, With::Immediate(_)),
            with_invalidate: matches!(with, With::Key(_)),
            solicited,
            ..Cqe::at_reset()
        };
        self.complete(qp.create.receive_completion_queue, completion);
    }

    /// A CQE of a queue pair cannot be written to a completion queue, for the first time or again.
    fn lose(&mut self, queue: u32, number: u32, is_first: bool) {
        if is_first {
            self.raise(0, AsyncEvent::CompletionQueueError, queue);
        }
        let state = &mut self.queue_pairs.get_mut(&number).expect("it has a CQE").state;
        if std::mem::replace(state, QpState::Error) != QpState::Error {
            self.raise(0, AsyncEvent::QueuePairFatal, number);
        }
    }

    fn complete(&mut self, queue: u32, mut completion: Cqe) {
        if let Some(wr_id) = self.faults.completion_wr_id.take() {
            completion.wr_id = wr_id;
        }
        if let Some(opcode) = self.faults.completion_opcode.take() {
            completion.opcode = opcode;
        }
        let refused = std::mem::take(&mut self.faults.refuse_completion);
        let ring = self.completions.get_mut(&queue).expect("queue pairs keep their queues");
        let log2 = u32::from(ring.create.entries_log2);
        assert!((ring.producer - ring.consumer) >> log2 == 0, "a completion queue overran");
        if refused || ring.failed {
            let is_first = !std::mem::replace(&mut ring.failed, true);
            self.lose(queue, completion.qp_number, is_first);
            return;
        }
        completion.phase = phase(ring.producer, log2);
        let slot = ring.producer & ((1 << log2) - 1);
        let address = ring.create.base + u64::from(slot) * Cqe::BYTES as u64;
        ring.producer += 1;
        let arm = ring.arm;
        let special = completion.solicited || completion.status != CompletionStatus::Success;
        self.write_memory(address, &completion.to_bytes().expect("legal"));
        if arm == Arm::Next || arm == Arm::Solicited && special {
            self.raise_completion_event(queue);
        }
    }
}
