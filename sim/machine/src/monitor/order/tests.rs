use super::*;
use rnic_layout::doorbell::Arm;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;

const COMPLETIONS: Ring =
    Ring { kind: RingKind::Completion, number: 5, address: 0x10000, entries_log2: 6, doorbell_page: 0 };
const EVENTS: Ring = Ring {
    kind: RingKind::Event { vector: 3 },
    number: 1,
    address: 0x20000,
    entries_log2: 6,
    doorbell_page: 1,
};

struct Bench {
    monitor: OrderMonitor,
    log: Log,
}

impl Bench {
    fn new() -> Bench {
        let mut monitor = OrderMonitor::default();
        monitor.watch(COMPLETIONS);
        monitor.watch(EVENTS);
        Bench { monitor, log: Log::new("card0") }
    }

    fn completion(&mut self, index: u32) {
        self.completion_as(index, (index >> 6) & 1 == 0, 0);
    }

    fn completion_as(&mut self, index: u32, phase: bool, tag: u64) {
        self.completion_at(COMPLETIONS.address + u64::from(index % 64) * 32, phase, tag);
    }

    /// A CQE in a ring of another size.
    fn completion_in(&mut self, ring: Ring, index: u32) {
        let slot = index & ((1 << ring.entries_log2) - 1);
        let phase = index >> ring.entries_log2 & 1 == 0;
        self.completion_at(ring.address + u64::from(slot) * 32, phase, 0);
    }

    fn completion_at(&mut self, address: u64, phase: bool, tag: u64) {
        let completion = Cqe {
            wr_id: tag,
            length: 0,
            immediate: [0; 4],
            source_qp: 0,
            qp_number: 9,
            consumer_index: 0,
            opcode: CompletionOpcode::Send,
            status: CompletionStatus::Success,
            vendor_error: 0,
            with_immediate: false,
            with_invalidate: false,
            with_grh: false,
            solicited: false,
            phase,
        };
        self.monitor.visible(1, address, &completion.to_bytes().unwrap(), &mut self.log);
    }

    fn event(&mut self, index: u32, detail: u32) {
        let event = Eqe {
            object_number: 5,
            detail,
            kind: EventKind::Completion,
            code: AsyncEvent::CompletionQueueError,
            phase: (index >> 6) & 1 == 0,
        };
        let address = EVENTS.address + u64::from(index % 64) * 16;
        self.monitor.visible(1, address, &event.to_bytes().unwrap(), &mut self.log);
    }

    fn interrupt(&mut self) {
        self.monitor.interrupt(1, 3, &mut self.log);
    }

    fn arm(&mut self, consumer_index: u32) {
        let doorbell = EventDoorbell { object_number: 1, arm: true, consumer_index };
        let value = u64::from_le_bytes(doorbell.to_bytes().unwrap());
        self.monitor.doorbell(4096 + u64::from(doorbell::EVENT.offset), value, 0xff);
    }

    fn free(&mut self, page: u64, consumer_index: u32) {
        let doorbell = CompletionDoorbell { object_number: 5, arm: Arm::Keep, consumer_index };
        let value = u64::from_le_bytes(doorbell.to_bytes().unwrap());
        let offset = page * DOORBELL_PAGE_BYTES + u64::from(doorbell::COMPLETION.offset);
        self.monitor.doorbell(offset, value, 0x0f);
        self.monitor.doorbell(offset + 4, value, 0xf0);
    }

    fn resize(&mut self, ring: Ring) {
        self.monitor.resize(ring.number, ring.address, ring.entries_log2);
    }

    /// Queues that may not have left the memory of a ring when software takes it back.
    fn release(&mut self, ring: Ring) -> Option<u32> {
        self.monitor.release(ring.address, 32 << ring.entries_log2)
    }

    #[track_caller]
    fn is_good(&self) {
        assert_eq!(self.log.violations(), []);
    }

    #[track_caller]
    fn is_violated(&mut self, text: &str) {
        let violations = self.log.take();
        assert!(violations.len() == 1 && violations[0].rule == Rule::Order, "{violations:?}");
        assert!(violations[0].text.contains(text), "{}", violations[0].text);
    }
}

#[test]
fn an_event_comes_after_its_completions_and_before_its_interrupt() {
    let mut bench = Bench::new();
    bench.completion(0);
    bench.completion(1);
    bench.event(0, 2);
    bench.interrupt();
    bench.is_good();
    bench.event(1, 3);
    bench.is_violated("announces 3 completions of queue 5, of which 2 are visible");
    bench.interrupt();
    bench.is_good();
    bench.interrupt();
    bench.is_violated("interrupt 3 comes without a visible event");
}

#[test]
fn arming_with_unread_events_is_worth_one_interrupt() {
    let mut bench = Bench::new();
    bench.event(0, 0);
    bench.interrupt();
    bench.arm(0);
    bench.interrupt();
    bench.is_good();
    bench.interrupt();
    bench.is_violated("without");
    bench.arm(1);
    bench.interrupt();
    bench.is_violated("without");
}

/// The second doorbell crosses the EQE on its way.
#[test]
fn each_of_two_doorbells_may_have_its_interrupt() {
    let mut bench = Bench::new();
    bench.arm(0);
    bench.arm(0);
    bench.event(0, 0);
    bench.interrupt();
    bench.interrupt();
    bench.is_good();
    bench.interrupt();
    bench.is_violated("without");
    // Of older doorbells, two are left when there is a newer one.
    (0..9).for_each(|_| bench.arm(1));
    bench.event(1, 0);
    bench.arm(2);
    bench.interrupt();
    bench.interrupt();
    bench.is_good();
    bench.interrupt();
    bench.is_violated("without");
}

/// A driver arms several times before it sees the EQE, and its doorbells come after the EQE.
#[test]
fn each_doorbell_that_finds_an_unread_event_has_its_interrupt() {
    let mut bench = Bench::new();
    bench.arm(0);
    bench.event(0, 0);
    bench.interrupt();
    for _ in 0..3 {
        bench.arm(0);
    }
    (0..3).for_each(|_| bench.interrupt());
    bench.is_good();
    bench.interrupt();
    bench.is_violated("without");
}

#[test]
fn completions_that_become_visible_out_of_order_leave_a_gap() {
    let mut bench = Bench::new();
    bench.completion(1);
    bench.event(0, 1);
    bench.is_violated("of which 0 are visible");
    bench.completion(0);
    bench.event(1, 2);
    bench.is_good();
    assert_eq!(bench.monitor.entries(RingKind::Completion, 5), Some(2));
}

#[test]
fn phases_turn_with_the_passes_and_entries_are_given_back_first() {
    let mut bench = Bench::new();
    (0..64).for_each(|index| bench.completion(index));
    bench.is_good();
    bench.completion(64);
    bench.is_violated("has not consumed");
    bench.free(0, 60);
    (65..124).for_each(|index| bench.completion(index));
    bench.is_good();
    // No other part consumes them.
    bench.free(1, 64);
    bench.completion(124);
    bench.is_violated("has not consumed");
    bench.completion_as(125, true, 0);
    bench.is_violated("phase of another pass");
}

#[test]
fn entries_are_written_whole_and_once() {
    let mut bench = Bench::new();
    bench.monitor.visible(1, COMPLETIONS.address, &[0; 31], &mut bench.log);
    bench.is_violated("whole");
    bench.monitor.visible(1, COMPLETIONS.address - 16, &[0; 32], &mut bench.log);
    bench.is_violated("whole");
    bench.completion(1);
    bench.completion(1);
    bench.is_violated("twice");
    bench.monitor.forget(RingKind::Completion, 5);
    bench.completion(1);
    bench.is_good();
}

#[test]
fn memory_of_several_requests_is_written_until_the_last_has_completed() {
    let mut bench = Bench::new();
    bench.monitor.expect_payload(Some(9), 77, 0x5000, 100);
    bench.monitor.expect_payload(Some(9), 78, 0x5000, 50);
    bench.completion_as(0, true, 77);
    bench.monitor.visible(0, 0x5000, &[0; 50], &mut bench.log);
    bench.is_good();
    bench.monitor.visible(0, 0x5000, &[0; 51], &mut bench.log);
    bench.is_violated("payload of QP 0x9, tag 0x4d");
}

#[test]
fn payload_comes_before_the_completion_of_its_work() {
    let mut bench = Bench::new();
    bench.monitor.expect_payload(Some(9), 77, 0x5000, 100);
    bench.monitor.visible(1, 0x5000, &[1; 64], &mut bench.log);
    bench.completion_as(0, true, 77);
    bench.is_good();
    bench.monitor.visible(2, 0x5063, &[1; 64], &mut bench.log);
    bench.is_violated("payload of QP 0x9, tag 0x4d");
    bench.monitor.visible(2, 0x5064, &[1; 64], &mut bench.log);
    bench.monitor.expect_payload(Some(9), 78, 0x5000, 100);
    bench.monitor.visible(2, 0x5000, &[1; 64], &mut bench.log);
    bench.is_good();
}

/// Another ring of the same queue.
const LARGER: Ring = Ring { address: 0x30000, entries_log2: 8, ..COMPLETIONS };

#[test]
fn a_queue_goes_on_in_another_ring() {
    let mut bench = Bench::new();
    (0..60).for_each(|index| bench.completion(index));
    bench.free(0, 60);
    bench.resize(LARGER);
    // The card takes the command two CQEs later, and one of those before becomes visible last.
    bench.completion(61);
    bench.completion_in(LARGER, 62);
    bench.completion(60);
    bench.event(0, 63);
    bench.is_good();
    (63..400).for_each(|index| {
        bench.completion_in(LARGER, index);
        bench.free(0, index);
    });
    bench.is_good();
    bench.completion(400);
    bench.is_violated("left this ring");
}

#[test]
fn each_ring_has_the_room_of_its_own_size() {
    let mut bench = Bench::new();
    bench.resize(LARGER);
    (0..256).for_each(|index| bench.completion_in(LARGER, index));
    bench.is_good();
    assert_eq!(bench.release(COMPLETIONS), None);
    bench.resize(COMPLETIONS);
    bench.free(0, 200);
    (256..264).for_each(|index| bench.completion(index));
    bench.is_good();
    bench.completion(264);
    bench.is_violated("overwrites");
}

#[test]
fn a_ring_can_go_when_all_before_the_first_entry_of_a_later_one_is_visible() {
    let mut bench = Bench::new();
    bench.completion(0);
    bench.resize(LARGER);
    let smaller = Ring { address: 0x40000, ..COMPLETIONS };
    bench.resize(smaller);
    assert_eq!(bench.monitor.clone().release(COMPLETIONS.address, 32), Some(5));
    bench.completion_in(smaller, 2);
    // Entry 1 may be in either of the rings before.
    assert_eq!(bench.monitor.clone().release(LARGER.address, 32), Some(5));
    bench.completion(1);
    assert_eq!(bench.release(COMPLETIONS), None);
    assert_eq!(bench.release(LARGER), None);
    bench.is_good();
}
