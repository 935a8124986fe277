use super::*;
use crate::host::Access;
use rnic_layout::admin::{
    CommandHeader, CreateCompletionQueue, CreateQueuePair, CreateRegion, ModifyQueuePair, Query,
    ResizeCompletionQueue,
};
use rnic_layout::doorbell::Doorbell;

const COMMANDS: u64 = 0x1000;
const ANSWERS: u64 = 0x2000;
const SENDS: u64 = 0x4000;
const RECEIVES: u64 = 0x5000;
const PAYLOAD: u64 = 0x8000;
const LIST: u64 = 0xa000;
const QPN: u32 = 0x1234;
const PAGE: u16 = 3;
const LOG2: u8 = 6;

struct Bench {
    memory: Memory,
    posted: Posted,
    commands: u16,
}

impl Bench {
    /// A card with a queue pair.
    fn new() -> Bench {
        let mut memory = Memory::default();
        let buffer = memory.allocate(0x1_0000);
        memory.map(0, buffer, 0, 0x1_0000, Access::ReadWrite).unwrap();
        let mut bench = Bench { memory, posted: Posted::default(), commands: 0 };
        bench.register(REG_ADMIN_COMMAND_BASE.offset, COMMANDS);
        bench.register(REG_ADMIN_ANSWER_BASE.offset, ANSWERS);
        let control = AdminControl { entries_log2: LOG2, enable: true, ..AdminControl::at_reset() };
        bench.register(REG_ADMIN_CONTROL.offset, u64::from_le_bytes(control.to_bytes().unwrap()));
        bench.execute(CommandOpcode::CreateQueuePair, QPN, Body::CreateQueuePair(queue_pair()));
        bench
    }

    fn hear(&mut self, bar: Bar, offset: u64, value: u64, strobe: u8) {
        let operation = Operation::Write { value, strobe };
        self.posted.hear(&RegisterAccess { bar, offset, operation }, &mut self.memory);
    }

    fn register(&mut self, offset: u32, value: u64) {
        self.hear(Bar::Registers, offset.into(), value, 0xff);
    }

    /// Posts a command, and returns its index.
    fn command(&mut self, opcode: CommandOpcode, object_number: u32, body: Body) -> u16 {
        let index = self.commands;
        let header = CommandHeader { opcode, object_number, ..CommandHeader::at_reset() };
        let slot = u64::from(index) % 64;
        let bytes = Command { header, body }.to_bytes().unwrap();
        self.memory.write_bytes(COMMANDS + slot * 64, &bytes).unwrap();
        self.commands += 1;
        self.register(REG_ADMIN_DOORBELL.offset, self.commands.into());
        index
    }

    fn answer(&mut self, index: u16, status: CommandStatus) {
        let phase = phase(index.into(), LOG2.into());
        let answer = Answer { status, phase, ..Answer::at_reset() };
        let address = ANSWERS + u64::from(index) % 64 * 16;
        self.memory.write_bytes(address, &answer.to_bytes().unwrap()).unwrap();
    }

    fn execute(&mut self, opcode: CommandOpcode, object_number: u32, body: Body) {
        let index = self.command(opcode, object_number, body);
        self.answer(index, CommandStatus::Success);
    }

    fn write(&mut self, ring: u64, slot: u64, byte: u8) {
        self.memory.write_bytes(ring + slot * 64, &[byte; 64]).unwrap();
    }

    fn ring(&mut self, doorbell: Doorbell, number: u32, producer_index: u16) {
        self.ring_part(doorbell, bell(number, producer_index), 0xff);
    }

    /// Writes some bytes of a doorbell.
    fn ring_part(&mut self, doorbell: Doorbell, value: u64, strobe: u8) {
        let offset = u64::from(PAGE) * DOORBELL_PAGE_BYTES + u64::from(doorbell.offset);
        self.hear(Bar::Doorbells, offset, value, strobe);
    }

    /// The card reads, and the indices that have changed are returned.
    fn read(&mut self, address: u64, bytes: usize) -> Vec<u16> {
        self.memory.card_reads(0, address, &mut vec![0; bytes]).unwrap();
        self.memory.posted_mut().take_changed().iter().map(|slot| slot.index).collect()
    }

    fn user(&mut self, address: u64) -> Option<String> {
        self.posted.user(address, 64, &mut self.memory)
    }
}

/// Value of a doorbell.
fn bell(object_number: u32, producer_index: u16) -> u64 {
    u64::from_le_bytes(WorkDoorbell { object_number, producer_index }.to_bytes().unwrap())
}

fn queue_pair() -> CreateQueuePair {
    CreateQueuePair {
        send_base: SENDS,
        receive_base: RECEIVES,
        send_slots_log2: LOG2,
        receive_wqes_log2: LOG2,
        doorbell_page: PAGE,
        ..CreateQueuePair::at_reset()
    }
}

#[test]
fn a_wqe_before_its_doorbell_is_as_posted() {
    let mut bench = Bench::new();
    bench.write(SENDS, 0, 7);
    bench.write(SENDS, 1, 8);
    bench.ring(SEND, QPN, 2);
    assert!(bench.read(SENDS, 128).is_empty());
    assert!(bench.read(SENDS + 40, 30).is_empty(), "a part of two slots");
    bench.write(SENDS, 2, 9);
    assert!(bench.read(SENDS, 192).is_empty(), "what is not posted may change");
}

#[test]
fn a_wqe_after_its_doorbell_is_caught_in_every_ring() {
    let mut bench = Bench::new();
    for (doorbell, ring) in [(SEND, SENDS), (RECEIVE, RECEIVES)] {
        bench.ring(doorbell, QPN, 3);
        bench.write(ring, 1, 7);
        assert!(bench.read(ring, 64).is_empty());
        assert_eq!(bench.read(ring, 192), [1]);
        // The last byte of the slot alone.
        assert_eq!(bench.read(ring + 127, 1), [1]);
    }
    // The same slot in the next pass, at its own doorbell.
    bench.ring(SEND, QPN, 64);
    bench.write(SENDS, 0, 1);
    bench.ring(SEND, QPN, 65);
    assert!(bench.read(SENDS, 64).is_empty());
    bench.write(SENDS, 0, 2);
    assert_eq!(bench.read(SENDS, 64), [64]);
}

#[test]
fn a_command_after_its_doorbell_is_caught() {
    let mut bench = Bench::new();
    let index = bench.command(CommandOpcode::Nothing, 0, Body::Nothing);
    assert!(bench.read(COMMANDS, 128).is_empty());
    bench.write(COMMANDS, index.into(), 1);
    assert_eq!(bench.read(COMMANDS, 128), [index]);
}

#[test]
fn a_doorbell_in_halves_posts_as_a_whole_one() {
    let mut bench = Bench::new();
    let value = bell(QPN, 1);
    bench.ring_part(SEND, value, 0xf0);
    bench.write(SENDS, 0, 1);
    assert!(bench.read(SENDS, 64).is_empty(), "the high half alone is no doorbell");
    bench.ring_part(SEND, value, 0x0f);
    bench.ring_part(SEND, value, 0xf0);
    assert!(bench.read(SENDS, 64).is_empty());
    bench.write(SENDS, 0, 2);
    assert_eq!(bench.read(SENDS, 64), [0]);
}

/// As in the card, a doorbell has a latch of its own for its low half.
#[test]
fn halves_of_other_doorbells_may_come_in_between() {
    let mut bench = Bench::new();
    let value = bell(QPN, 1);
    bench.ring_part(SEND, value, 0x0f);
    bench.ring_part(RECEIVE, value, 0x0f);
    bench.ring(SHARED_RECEIVE, 1, 1);
    bench.ring_part(SEND, value, 0xf0);
    bench.ring_part(RECEIVE, value, 0xf0);
    for ring in [SENDS, RECEIVES] {
        bench.write(ring, 0, 1);
        assert_eq!(bench.read(ring, 64), [0], "{ring:#x} is posted");
    }
}

#[test]
fn doorbells_that_the_card_refuses_post_nothing() {
    let mut bench = Bench::new();
    bench.ring(SEND, QPN ^ 1, 1);
    bench.hear(Bar::Doorbells, SEND.offset.into(), bell(QPN, 1), 0xff);
    bench.write(SENDS, 0, 1);
    assert!(bench.read(SENDS, 64).is_empty(), "another page, another queue pair");
    bench.ring(SEND, QPN, 1);
    bench.ring(SEND, QPN, 100);
    bench.write(SENDS, 0, 2);
    assert!(bench.read(SENDS, 64).is_empty(), "the queue pair has failed");
}

#[test]
fn a_ring_is_empty_after_reset_and_destruction() {
    let mut bench = Bench::new();
    let reset = ModifyQueuePair {
        mask: AttributeMask::STATE.0,
        next_state: QpState::Reset,
        ..ModifyQueuePair::at_reset()
    };
    for (opcode, body) in [
        (CommandOpcode::ModifyQueuePair, Body::ModifyQueuePair(reset)),
        (CommandOpcode::DestroyQueuePair, Body::Destroy),
    ] {
        bench.ring(SEND, QPN, 5);
        bench.execute(opcode, QPN, body);
        bench.write(SENDS, 0, 3);
        bench.ring(SEND, QPN, 1);
        assert!(bench.read(SENDS, 64).is_empty(), "{opcode:?}");
    }
}

#[test]
fn memory_is_in_use_until_the_card_has_answered() {
    let mut bench = Bench::new();
    assert!(bench.user(0x3000).is_none());
    assert_eq!(bench.user(RECEIVES + 0xfff), Some("QueuePair 0x1234".into()));
    assert!(bench.user(RECEIVES + 0x1000).is_none(), "beyond the ring");
    let index = bench.command(CommandOpcode::DestroyQueuePair, QPN, Body::Destroy);
    assert!(bench.user(SENDS).is_some(), "nobody knows yet whether the card has done it");
    bench.answer(index, CommandStatus::Busy);
    assert!(bench.user(SENDS).is_some(), "the card has refused it");
    bench.execute(CommandOpcode::DestroyQueuePair, QPN, Body::Destroy);
    assert!(bench.user(SENDS).is_none());
    for ring in [COMMANDS, ANSWERS] {
        assert_eq!(bench.user(ring), Some("the admin queue".into()));
    }
    let reset = Control { reset: true, ..Control::at_reset() };
    bench.register(REG_CONTROL.offset, u64::from_le_bytes(reset.to_bytes().unwrap()));
    assert!(bench.user(COMMANDS).is_none());
}

#[test]
fn what_the_card_refuses_to_create_uses_nothing() {
    let mut bench = Bench::new();
    let body =
        CreateCompletionQueue { entries_log2: LOG2, base: PAYLOAD, ..CreateCompletionQueue::at_reset() };
    let index = bench.command(CommandOpcode::CreateCompletionQueue, 1, Body::CreateCompletionQueue(body));
    assert!(bench.user(PAYLOAD).is_some());
    bench.answer(index, CommandStatus::AlreadyExists);
    assert!(bench.user(PAYLOAD).is_none());
}

#[test]
fn the_pages_of_a_region_are_in_use_and_its_list_only_during_the_command() {
    let mut bench = Bench::new();
    for (place, page) in [(0, PAYLOAD), (8, 0xd000_u64)] {
        bench.memory.write_bytes(LIST + place, &page.to_le_bytes()).unwrap();
    }
    let body = CreateRegion {
        translation: Translation::PageList,
        translation_base: LIST,
        page_log2: 12,
        first_offset: 0x800,
        length: 0x1000,
        ..CreateRegion::at_reset()
    };
    let index = bench.command(CommandOpcode::CreateRegion, 0x55, Body::CreateRegion(body));
    assert!(bench.user(LIST).is_some());
    bench.answer(index, CommandStatus::Success);
    assert!(bench.user(LIST).is_none());
    let used = [PAYLOAD + 0x7c0, PAYLOAD + 0x800, 0xd000 + 0x7c0, 0xd000 + 0x800];
    assert_eq!(used.map(|address| bench.user(address).is_some()), [false, true, true, false]);
    bench.execute(CommandOpcode::DestroyRegion, 0x55, Body::Destroy);
    assert!(bench.user(PAYLOAD + 0x800).is_none());
    let query = Query { buffer: PAYLOAD, buffer_bytes: 64 };
    let index = bench.command(CommandOpcode::QueryQueuePair, QPN, Body::Query(query));
    assert!(bench.user(PAYLOAD).is_some());
    bench.answer(index, CommandStatus::Success);
    assert!(bench.user(PAYLOAD).is_none());
}

#[test]
fn a_queue_that_was_resized_uses_its_new_ring() {
    const OLD: u64 = 0xc000;
    const NEW: u64 = 0xd000;
    let mut bench = Bench::new();
    let body = CreateCompletionQueue { base: OLD, entries_log2: 6, ..CreateCompletionQueue::at_reset() };
    bench.execute(CommandOpcode::CreateCompletionQueue, 7, Body::CreateCompletionQueue(body));
    let resize = |base| Body::ResizeCompletionQueue(ResizeCompletionQueue { base, entries_log2: 7 });
    let index = bench.command(CommandOpcode::ResizeCompletionQueue, 7, resize(NEW));
    // Until the card has answered, it may use both.
    assert!(bench.user(NEW + 64 * 63).is_some_and(|user| user.contains("without an answer")));
    assert_eq!(bench.user(OLD).as_deref(), Some("CompletionQueue 0x7"));
    bench.answer(index, CommandStatus::Success);
    assert_eq!(bench.user(NEW + 64 * 63).as_deref(), Some("CompletionQueue 0x7"));
    assert_eq!(bench.user(OLD), None);
    // A refused command moves nothing.
    let index = bench.command(CommandOpcode::ResizeCompletionQueue, 7, resize(OLD));
    bench.answer(index, CommandStatus::Misaligned);
    assert_eq!(bench.user(OLD), None);
    assert_eq!(bench.user(NEW).as_deref(), Some("CompletionQueue 0x7"));
}
