//! Completion queues.
use super::*;

impl Model {
    pub(super) fn expect_completion_queue(
        &mut self,
        number: u32,
        create: &Bytes,
        restarts: bool,
        valid: bool,
    ) {
        let record = &CreateCompletionQueue::RECORD;
        self.messages.push(Message::CompletionQueue(CompletionQueueSetup {
            completion_queue: bits(number.into()),
            restarts,
            valid,
            entries_log2: bits(get(record, create, "entries_log2")),
            event_queue: bits(get(record, create, "event_queue")),
            moderation_count: bits(get(record, create, "moderation_count")),
            moderation_period: bits(get(record, create, "moderation_period")),
            base_page: bits(get(record, create, "base") >> 12),
        }));
        self.expect_page(Kind::CompletionQueue, number, get(record, create, "doorbell_page"), valid);
    }

    pub(super) fn create_completion_queue(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        let record = &CreateCompletionQueue::RECORD;
        self.ring(record, bytes, &["base"])?;
        Self::within(number, 10)?;
        if self.completion_queues.contains_key(&number) {
            return refuse(CommandStatus::AlreadyExists, 0);
        }
        let queue = get(record, bytes, "event_queue") as u32;
        if !self.event_queues.contains_key(&queue) {
            return refuse(CommandStatus::ReferenceDoesNotExist, at(record, "event_queue"));
        }
        self.completion_queues.insert(number, *bytes);
        self.expect_completion_queue(number, bytes, true, true);
        Ok(0)
    }

    pub(super) fn modify_completion_queue(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        let mut create = Self::found(&self.completion_queues, number, 10)?;
        let record = &CreateCompletionQueue::RECORD;
        for name in ["moderation_count", "moderation_period"] {
            put(record, &mut create, name, get(record, bytes, name));
        }
        self.completion_queues.insert(number, create);
        self.expect_completion_queue(number, &create, false, true);
        Ok(0)
    }

    pub(super) fn resize_completion_queue(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        let resize = &ResizeCompletionQueue::RECORD;
        if !get(resize, bytes, "base").is_multiple_of(4096) {
            return refuse(CommandStatus::Misaligned, at(resize, "base"));
        }
        let mut create = Self::found(&self.completion_queues, number, 10)?;
        for name in ["entries_log2", "base"] {
            put(&CreateCompletionQueue::RECORD, &mut create, name, get(resize, bytes, name));
        }
        self.completion_queues.insert(number, create);
        self.expect_completion_queue(number, &create, false, true);
        Ok(0)
    }

    pub(super) fn query_completion_queue(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        Self::room(bytes, 64)?;
        let create = Self::found(&self.completion_queues, number, 10)?;
        Ok(self.write(bytes, CommandOpcode::CreateCompletionQueue, number, &create))
    }

    pub(super) fn destroy_completion_queue(&mut self, number: u32) -> Result<u32, Refusal> {
        let create = Self::found(&self.completion_queues, number, 10)?;
        let record = &CreateQueuePair::RECORD;
        let uses = |pair: &QueuePair| {
            ["send_completion_queue", "receive_completion_queue"]
                .iter()
                .any(|name| get(record, &pair.created, name) == u64::from(number))
        };
        if self.pairs.values().any(uses) {
            return refuse(CommandStatus::Busy, 0);
        }
        self.completion_queues.remove(&number);
        self.expect_completion_queue(number, &create, true, false);
        Ok(0)
    }
}
