//! Event queues.
use super::*;

impl Model {
    pub(super) fn expect_event_queue(&mut self, number: u32, create: &Bytes, restarts: bool, valid: bool) {
        let record = &CreateEventQueue::RECORD;
        self.messages.push(Message::EventQueue(EventQueueSetup {
            event_queue: bits(number.into()),
            restarts,
            valid,
            entries_log2: bits(get(record, create, "entries_log2")),
            vector: bits(get(record, create, "vector")),
            base_page: bits(get(record, create, "base") >> 12),
        }));
        self.expect_page(Kind::EventQueue, number, get(record, create, "doorbell_page"), valid);
    }

    pub(super) fn set_event_queue_0(&mut self, setup: EventQueueSetup) {
        let record = &CreateEventQueue::RECORD;
        let mut bytes = [0; COMMAND_BYTES];
        // The registers allow smaller rings than commands do.
        bytes[BODY_OFFSET] = setup.entries_log2.to_u64() as u8;
        put(record, &mut bytes, "vector", setup.vector.to_u64());
        put(record, &mut bytes, "base", setup.base_page.to_u64() << 12);
        self.event_queues.insert(0, bytes);
        self.expect_event_queue(0, &bytes, setup.restarts, setup.valid);
    }

    pub(super) fn create_event_queue(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        self.ring(&CreateEventQueue::RECORD, bytes, &["base"])?;
        Self::within(number, 5)?;
        if number == 0 || self.event_queues.contains_key(&number) {
            return refuse(CommandStatus::AlreadyExists, 0);
        }
        self.event_queues.insert(number, *bytes);
        self.expect_event_queue(number, bytes, true, true);
        Ok(0)
    }

    pub(super) fn modify_event_queue(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        let mut create = Self::found(&self.event_queues, number, 5)?;
        if number == 0 {
            return refuse(CommandStatus::Busy, 0);
        }
        let record = &CreateEventQueue::RECORD;
        put(record, &mut create, "vector", get(record, bytes, "vector"));
        self.event_queues.insert(number, create);
        self.expect_event_queue(number, &create, false, true);
        Ok(0)
    }

    pub(super) fn query_event_queue(&mut self, bytes: &Bytes, number: u32) -> Result<u32, Refusal> {
        Self::room(bytes, 64)?;
        let create = Self::found(&self.event_queues, number, 5)?;
        Ok(self.write(bytes, CommandOpcode::CreateEventQueue, number, &create))
    }

    pub(super) fn destroy_event_queue(&mut self, number: u32) -> Result<u32, Refusal> {
        let create = Self::found(&self.event_queues, number, 5)?;
        let record = &CreateCompletionQueue::RECORD;
        let uses = |queue: &Bytes| get(record, queue, "event_queue") == u64::from(number);
        if number == 0 || self.completion_queues.values().any(uses) {
            return refuse(CommandStatus::Busy, 0);
        }
        self.event_queues.remove(&number);
        self.expect_event_queue(number, &create, true, false);
        Ok(0)
    }
}
