//! Learns of rings, payload buffers and queue pairs from what software writes to the card: registers, commands of the admin
//! queue, and doorbells. The monitors therefore need no help of a test.
//!
//! Commands count from the moment at which their doorbell begins, which is before the card can execute them. Doorbells in two
//! halves are not evaluated; a test that uses them informs [`OrderMonitor`] itself.
use super::order::{OrderMonitor, Ring, RingKind};
use crate::host::{Bar, Memory, Operation, RegisterAccess};
use rnic_layout::admin::{Body, Command, CommandOpcode, CreateRegion, Translation};
use rnic_layout::doorbell::{RECEIVE, SHARED_RECEIVE, WorkDoorbell};
use rnic_layout::limits::{DOORBELL_PAGE_BYTES, PAGE_ENTRIES_LOG2, WQE_SLOT_BYTES};
use rnic_layout::queue::receive::ReceiveWqe;
use rnic_layout::registers::{
    AdminControl, Control, EventQueueControl, REG_ADMIN_ANSWER_BASE, REG_ADMIN_COMMAND_BASE,
    REG_ADMIN_CONTROL, REG_ADMIN_DOORBELL, REG_CONTROL, REG_EVENT_QUEUE_BASE, REG_EVENT_QUEUE_CONTROL,
    REG_STATUS, Status,
};
use rnic_layout::state::{AttributeMask, QpState};
use rnic_monitor::{Monitor, Rates};
use std::collections::BTreeMap;

/// Length of a command, in bytes.
const COMMAND_BYTES: usize = 64;

/// A memory region, as far as payload depends on it.
#[derive(Clone, Debug)]
pub(super) struct Region {
    first_address: u64,
    length: u64,
    /// Device addresses of its pages, or of its beginning if it is contiguous.
    pages: Vec<u64>,
    /// Offset of the first byte in the first page, and page size in bytes; zero and everything if it is contiguous.
    first_offset: u64,
    page_bytes: u64,
}

impl Region {
    pub(super) fn new(body: &CreateRegion, memory: &Memory) -> Region {
        let CreateRegion { first_address, length, translation_base, .. } = *body;
        if body.translation != Translation::PageList {
            let pages = vec![translation_base];
            return Region { first_address, length, pages, first_offset: 0, page_bytes: u64::MAX };
        }
        let page_bytes = 1 << body.page_log2;
        let first_offset = u64::from(body.first_offset);
        // The card has room for this many pages. A list that cannot be read is the card's to refuse.
        let count = first_offset.saturating_add(length).div_ceil(page_bytes).min(1 << PAGE_ENTRIES_LOG2);
        let page = |index: u64| {
            let mut bytes = [0; 8];
            let is_there = memory.read_bytes(translation_base.wrapping_add(8 * index), &mut bytes).is_ok();
            is_there.then_some(u64::from_le_bytes(bytes))
        };
        let pages = (0..count).map_while(page).collect();
        Region { first_address, length, pages, first_offset, page_bytes }
    }

    /// Device addresses and lengths of a part of it, which may span several pages.
    pub(super) fn parts(&self, offset: u64, length: u64) -> impl Iterator<Item = (u64, u64)> {
        // Software may state any length, which the card is to refuse.
        let mut next = self.first_offset.saturating_add(offset);
        let end = next.saturating_add(length);
        std::iter::from_fn(move || {
            let page = self.pages.get((next / self.page_bytes) as usize).filter(|_| next < end)?;
            let inside = next % self.page_bytes;
            let part = (page.wrapping_add(inside), (self.page_bytes - inside).min(end - next));
            next += part.1;
            Some(part)
        })
    }
}

/// A receive queue, with the producer index of its doorbells.
#[derive(Clone, Copy, Debug)]
struct ReceiveQueue {
    base: u64,
    entries_log2: u8,
    posted: u16,
}

/// State of one card, as software has set it up.
#[derive(Clone, Debug)]
pub struct Overheard {
    command_base: u64,
    commands_log2: u8,
    commands: u16,
    answer_base: u64,
    event_base: u64,
    regions: BTreeMap<u32, Region>,
    receive_queues: BTreeMap<u32, ReceiveQueue>,
    shared_receive_queues: BTreeMap<u32, ReceiveQueue>,
    port: Monitor,
    has_reset: bool,
}

impl Overheard {
    /// A card of these rates, of which nothing is set up.
    pub fn new(rates: Rates) -> Overheard {
        Overheard::at(Monitor::new(rates))
    }

    /// A card of which nothing is set up, with the monitor of its port.
    fn at(port: Monitor) -> Overheard {
        Overheard {
            command_base: 0,
            commands_log2: 0,
            commands: 0,
            answer_base: 0,
            event_base: 0,
            regions: BTreeMap::new(),
            receive_queues: BTreeMap::new(),
            shared_receive_queues: BTreeMap::new(),
            port,
            has_reset: false,
        }
    }

    /// Returns whether software has begun a reset since the last call.
    pub fn take_reset(&mut self) -> bool {
        std::mem::take(&mut self.has_reset)
    }

    /// Monitor of the frames of the card's port.
    pub fn port_mut(&mut self) -> &mut Monitor {
        &mut self.port
    }

    /// Software reads a register, and learns from it when a reset has ended.
    pub fn answer(&mut self, now_ps: u64, access: &RegisterAccess, value: u64) {
        let is_status = access.bar == Bar::Registers
            && access.offset == u64::from(REG_STATUS.offset)
            && access.operation == Operation::Read;
        if is_status && Status::parse(&value.to_le_bytes()).is_ok_and(|status| !status.resetting) {
            self.end_reset(now_ps);
        }
    }

    /// A reset has ended, if one was running.
    pub fn end_reset(&mut self, now_ps: u64) {
        self.port.end_reset(now_ps);
    }

    /// Software writes a register of eight bytes in BAR 0.
    pub fn register(&mut self, offset: u64, value: u64, memory: &Memory, order: &mut OrderMonitor) {
        let bytes = value.to_le_bytes();
        self.port.register(offset, value);
        let is = |register: rnic_layout::registers::Register| u64::from(register.offset) == offset;
        if is(REG_CONTROL) {
            if Control::parse(&bytes).is_ok_and(|control| control.reset) {
                self.port.reset();
                *self = Overheard { has_reset: true, ..Overheard::at(self.port.clone()) };
                order.forget_all();
            }
        } else if is(REG_ADMIN_COMMAND_BASE) {
            self.command_base = value;
        } else if is(REG_ADMIN_ANSWER_BASE) {
            self.answer_base = value;
        } else if is(REG_ADMIN_CONTROL) {
            if let Ok(control) = AdminControl::parse(&bytes) {
                (self.commands_log2, self.commands) = (control.entries_log2, 0);
                order.watch_answers(self.answer_base, control.entries_log2);
            }
        } else if is(REG_ADMIN_DOORBELL) {
            self.commands(value as u16, memory, order);
        } else if is(REG_EVENT_QUEUE_BASE) {
            self.event_base = value;
        } else if is(REG_EVENT_QUEUE_CONTROL)
            && let Ok(control) = EventQueueControl::parse(&bytes)
            && control.enable
        {
            let (vector, entries_log2) = (control.vector, control.entries_log2);
            let kind = RingKind::Event { vector };
            // Event queue 0 belongs to the first doorbell page.
            let address = self.event_base;
            order.watch(Ring { kind, number: 0, address, entries_log2, doorbell_page: 0 });
        }
    }

    /// Commands are posted up to an index. A ring that cannot be read is the card's to refuse.
    fn commands(&mut self, producer: u16, memory: &Memory, order: &mut OrderMonitor) {
        while self.commands != producer {
            let slot = u64::from(self.commands) & ((1 << self.commands_log2) - 1);
            self.commands = self.commands.wrapping_add(1);
            let mut bytes = [0; COMMAND_BYTES];
            let address = self.command_base.wrapping_add(slot * COMMAND_BYTES as u64);
            if memory.read_bytes(address, &mut bytes).is_ok()
                && let Ok(command) = Command::parse(&bytes)
            {
                self.command(&command, memory, order);
            }
        }
    }

    fn command(&mut self, command: &Command, memory: &Memory, order: &mut OrderMonitor) {
        let number = command.header.object_number;
        self.port.command(command);
        match command.body {
            Body::CreateCompletionQueue(body) => order.watch(Ring {
                kind: RingKind::Completion,
                number,
                address: body.base,
                entries_log2: body.entries_log2,
                doorbell_page: body.doorbell_page,
            }),
            Body::ResizeCompletionQueue(body) => order.resize(number, body.base, body.entries_log2),
            Body::CreateEventQueue(body) => order.watch(Ring {
                kind: RingKind::Event { vector: body.vector },
                number,
                address: body.base,
                entries_log2: body.entries_log2,
                doorbell_page: body.doorbell_page,
            }),
            Body::CreateRegion(body) => drop(self.regions.insert(number, Region::new(&body, memory))),
            Body::CreateQueuePair(body) => {
                let queue =
                    ReceiveQueue { base: body.receive_base, entries_log2: body.receive_wqes_log2, posted: 0 };
                self.receive_queues.insert(number, queue);
            }
            Body::CreateSharedReceiveQueue(body) => {
                let queue = ReceiveQueue { base: body.base, entries_log2: body.entries_log2, posted: 0 };
                self.shared_receive_queues.insert(number, queue);
            }
            Body::ModifyQueuePair(body)
                if body.next_state == QpState::Reset
                    && AttributeMask(body.mask).contains(AttributeMask::STATE) =>
            {
                if let Some(queue) = self.receive_queues.get_mut(&number) {
                    queue.posted = 0;
                }
            }
            Body::Destroy => match command.header.opcode {
                CommandOpcode::DestroyCompletionQueue => order.forget(RingKind::Completion, number),
                CommandOpcode::DestroyEventQueue => order.forget(RingKind::Event { vector: 0 }, number),
                CommandOpcode::DestroyRegion => drop(self.regions.remove(&number)),
                CommandOpcode::DestroySharedReceiveQueue => drop(self.shared_receive_queues.remove(&number)),
                CommandOpcode::DestroyQueuePair => drop(self.receive_queues.remove(&number)),
                _ => {}
            },
            _ => {}
        }
    }

    /// Software writes a doorbell of eight bytes; `offset` is the offset in the BAR.
    pub fn doorbell(&mut self, offset: u64, value: u64, memory: &Memory, order: &mut OrderMonitor) {
        let is_shared = offset % DOORBELL_PAGE_BYTES == u64::from(SHARED_RECEIVE.offset);
        if !is_shared && offset % DOORBELL_PAGE_BYTES != u64::from(RECEIVE.offset) {
            return;
        }
        let Ok(WorkDoorbell { object_number, producer_index }) = WorkDoorbell::parse(&value.to_le_bytes())
        else {
            return;
        };
        let queues = if is_shared { &mut self.shared_receive_queues } else { &mut self.receive_queues };
        let Some(queue) = queues.get_mut(&object_number) else { return };
        let entries = 1_u16 << queue.entries_log2;
        if producer_index.wrapping_sub(queue.posted) > entries {
            // More than the ring holds: no completion of it will be waited for.
            queue.posted = producer_index;
        }
        while queue.posted != producer_index {
            let slot = u64::from(queue.posted & (entries - 1));
            queue.posted = queue.posted.wrapping_add(1);
            let mut bytes = [0; WQE_SLOT_BYTES];
            let address = queue.base.wrapping_add(slot * WQE_SLOT_BYTES as u64);
            if memory.read_bytes(address, &mut bytes).is_err() {
                continue;
            }
            let Ok(work) = ReceiveWqe::parse(&bytes) else { continue };
            let sges = [
                (work.sge0_address, work.sge0_key, work.sge0_length),
                (work.sge1_address, work.sge1_key, work.sge1_length),
                (work.sge2_address, work.sge2_key, work.sge2_length),
            ];
            for (address, key, length) in sges.into_iter().take(work.sge_count.into()) {
                let region = self.regions.get(&key).filter(|region| {
                    let offset = address.wrapping_sub(region.first_address);
                    length > 0 && offset <= region.length && u64::from(length) <= region.length - offset
                });
                if let Some(region) = region {
                    let qp_number = (!is_shared).then_some(object_number);
                    for (first, length) in region.parts(address - region.first_address, length.into()) {
                        order.expect_payload(qp_number, work.wr_id, first, length);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Access;
    use crate::monitor::{Log, Rule};
    use crate::world::CardOptions;
    use rnic_layout::admin::{CommandHeader, CreateCompletionQueue, CreateQueuePair};
    use rnic_layout::queue::completion::Cqe;

    const COMMANDS: u64 = 0x10_000;
    const RECEIVES: u64 = 0x20_000;
    const COMPLETIONS: u64 = 0x30_000;
    const PAYLOAD: u64 = 0x40_000;

    struct Bench {
        memory: Memory,
        order: OrderMonitor,
        overheard: Overheard,
        commands: u16,
        log: Log,
    }

    impl Bench {
        fn new() -> Bench {
            let mut memory = Memory::default();
            let buffer = memory.allocate(0x10_0000);
            memory.map(0, buffer, 0, 0x10_0000, Access::ReadWrite).unwrap();
            let mut bench = Bench {
                memory,
                order: OrderMonitor::default(),
                overheard: Overheard::new(CardOptions::standard(64).rates()),
                commands: 0,
                log: Log::new("card0"),
            };
            bench.register(REG_ADMIN_COMMAND_BASE.offset, COMMANDS);
            let control = AdminControl { entries_log2: 2, enable: true, ..AdminControl::at_reset() };
            bench.register(REG_ADMIN_CONTROL.offset, u64::from_le_bytes(control.to_bytes().unwrap()));
            bench
        }

        fn register(&mut self, offset: u32, value: u64) {
            self.overheard.register(offset.into(), value, &self.memory, &mut self.order);
        }

        fn command(&mut self, opcode: CommandOpcode, object_number: u32, body: Body) {
            let header = CommandHeader { opcode, object_number, ..CommandHeader::at_reset() };
            let bytes = Command { header, body }.to_bytes().unwrap();
            let slot = u64::from(self.commands % 4);
            self.memory.write_bytes(COMMANDS + slot * 64, &bytes).unwrap();
            self.commands += 1;
            self.register(REG_ADMIN_DOORBELL.offset, self.commands.into());
        }
    }

    #[test]
    fn payload_after_its_completion_is_seen_without_registration() {
        let mut bench = Bench::new();
        let region = CreateRegion {
            first_address: 0x7000,
            length: 500,
            translation_base: PAYLOAD,
            ..CreateRegion::at_reset()
        };
        bench.command(CommandOpcode::CreateRegion, 0x55, Body::CreateRegion(region));
        let queue =
            CreateCompletionQueue { entries_log2: 6, base: COMPLETIONS, ..CreateCompletionQueue::at_reset() };
        bench.command(CommandOpcode::CreateCompletionQueue, 3, Body::CreateCompletionQueue(queue));
        let queue_pair = CreateQueuePair { receive_base: RECEIVES, ..CreateQueuePair::at_reset() };
        bench.command(CommandOpcode::CreateQueuePair, 0x1234, Body::CreateQueuePair(queue_pair));
        let work = ReceiveWqe {
            wr_id: 9,
            sge_count: 1,
            sge0_address: 0x7010,
            sge0_key: 0x55,
            sge0_length: 100,
            ..ReceiveWqe::at_reset()
        };
        bench.memory.write_bytes(RECEIVES, &work.to_bytes().unwrap()).unwrap();
        let bell = WorkDoorbell { object_number: 0x1234, producer_index: 1 }.to_bytes().unwrap();
        let offset = DOORBELL_PAGE_BYTES * 5 + u64::from(RECEIVE.offset);
        bench.overheard.doorbell(offset, u64::from_le_bytes(bell), &bench.memory, &mut bench.order);

        let completion = Cqe { wr_id: 9, qp_number: 0x1234, phase: true, ..Cqe::at_reset() };
        bench.order.visible(1, PAYLOAD + 0x10, &[0; 100], &mut bench.log);
        bench.order.visible(2, COMPLETIONS, &completion.to_bytes().unwrap(), &mut bench.log);
        assert_eq!(bench.log.violations(), []);
        assert_eq!(bench.order.entries(RingKind::Completion, 3), Some(1));
        bench.order.visible(3, PAYLOAD + 0x10 + 99, &[0], &mut bench.log);
        assert_eq!(bench.log.take()[0].rule, Rule::Order);
        bench.order.visible(4, PAYLOAD + 0x10 + 100, &[0], &mut bench.log);
        assert_eq!(bench.log.violations(), [], "the byte after it is free");
    }

    #[test]
    fn rings_come_and_go_with_their_commands_and_the_ring_of_commands_wraps() {
        let mut bench = Bench::new();
        let queue =
            CreateCompletionQueue { entries_log2: 6, base: COMPLETIONS, ..CreateCompletionQueue::at_reset() };
        for _ in 0..5 {
            bench.command(CommandOpcode::CreateCompletionQueue, 3, Body::CreateCompletionQueue(queue));
            assert_eq!(bench.order.entries(RingKind::Completion, 3), Some(0));
            bench.command(CommandOpcode::DestroyCompletionQueue, 3, Body::Destroy);
            assert_eq!(bench.order.entries(RingKind::Completion, 3), None);
        }
        bench.register(REG_EVENT_QUEUE_BASE.offset, PAYLOAD);
        let control = EventQueueControl { entries_log2: 6, enable: true, vector: 2 };
        bench.register(REG_EVENT_QUEUE_CONTROL.offset, u64::from_le_bytes(control.to_bytes().unwrap()));
        assert_eq!(bench.order.entries(RingKind::Event { vector: 2 }, 0), Some(0));
        let reset = Control { reset: true, ..Control::at_reset() };
        bench.register(REG_CONTROL.offset, u64::from_le_bytes(reset.to_bytes().unwrap()));
        assert_eq!(bench.order.entries(RingKind::Event { vector: 2 }, 0), None);
    }
}
