#![doc = include_str!("manual/doorbells.md")]

use crate::field::{Record, record, values};
use crate::limits;

record! {
    /// Doorbell of a send queue, receive queue or SRQ: conveys the producer index.
    pub struct WorkDoorbell: 64 bits by Driver, "design 3.1" {
        /// QPN of the send or receive queue, all bits; or number of the SRQ.
        object_number: u32 = 0..24, "design decision 14";
        /// Producer index: slots of a send queue, or WQEs of a receive queue, that were ever posted, modulo 65536.
        producer_index: u16 = 32..48, "design decision 5", unit "slots";
    }
    reserved { 24..32, 48..64 }
}

values! {
    /// The CQE that raises the event of a completion queue.
    pub enum Arm, "protocol 4.4" {
        /// Only the consumer index is updated; an armed queue stays armed.
        Keep = 0, "keep";
        /// The next CQE of any kind.
        Next = 1, "next";
        /// The next CQE that is solicited or in error. Does not downgrade a queue armed for `next`.
        Solicited = 2, "solicited";
    }
}

record! {
    /// Doorbell of a completion queue: conveys the consumer index and arms the queue.
    ///
    /// If a CQE at or after `consumer_index` already matches `arm`, the event is raised at once, so that no event is lost
    /// between the last poll and the arming.
    pub struct CompletionDoorbell: 64 bits by Driver, "protocol 4.4" {
        /// Number of the completion queue, all bits.
        object_number: u32 = 0..24, "design decision 14";
        /// The CQE that the queue is armed for.
        arm: Arm = 24..26, "protocol 4.4";
        /// Consumer index: CQEs ever polled, modulo 2^24.
        consumer_index: u32 = 32..56, "protocol 4.4", unit "CQEs";
    }
    reserved { 26..32, 56..64 }
}

record! {
    /// Doorbell of an event queue: conveys the consumer index and arms the interrupt.
    pub struct EventDoorbell: 64 bits by Driver, "protocol 4.4" {
        /// Number of the event queue, all bits.
        object_number: u32 = 0..24, "design decision 14";
        /// Arms one interrupt, for the next EQE, or at once if an EQE at or after `consumer_index` exists.
        arm: bool = 24..25, "protocol 4.4";
        /// Consumer index: EQEs ever read, modulo 2^24.
        consumer_index: u32 = 32..56, "protocol 4.4", unit "EQEs";
    }
    reserved { 25..32, 56..64 }
}

/// A doorbell of a doorbell page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// Name in `snake_case`.
    pub name: &'static str,
    /// Byte offset in the page.
    pub offset: u32,
    /// Format of its 64 bits.
    pub record: &'static Record,
}

/// Send WQEs were posted.
pub const SEND: Doorbell = Doorbell { name: "send_queue", offset: 0x000, record: &WorkDoorbell::RECORD };
/// Receive WQEs were posted to the receive queue of a queue pair.
pub const RECEIVE: Doorbell =
    Doorbell { name: "receive_queue", offset: 0x008, record: &WorkDoorbell::RECORD };
/// Receive WQEs were posted to an SRQ.
pub const SHARED_RECEIVE: Doorbell =
    Doorbell { name: "shared_receive_queue", offset: 0x010, record: &WorkDoorbell::RECORD };
/// CQEs were polled, and the queue may be armed.
pub const COMPLETION: Doorbell =
    Doorbell { name: "completion_queue", offset: 0x018, record: &CompletionDoorbell::RECORD };
/// EQEs were read, and the queue may be armed.
pub const EVENT: Doorbell = Doorbell { name: "event_queue", offset: 0x020, record: &EventDoorbell::RECORD };

/// The doorbells of a page, in ascending order of offsets.
pub const DOORBELLS: &[Doorbell] = &[SEND, RECEIVE, SHARED_RECEIVE, COMPLETION, EVENT];

/// Byte offset in BAR 2 of the first push page, which is reserved as all of them are: they follow the doorbell pages, so that
/// software can map them write-combining, and the doorbells not.
pub const PUSH_PAGES_OFFSET: u64 = limits::DOORBELL_PAGE_BYTES << limits::DOORBELL_PAGES_LOG2_MAX;
/// Size of a push page in bytes: room for 64 slots of 64 bytes.
pub const PUSH_PAGE_BYTES: u64 = limits::DOORBELL_PAGE_BYTES;

/// Returns the byte offset in BAR 2 of the push page that belongs to doorbell page `page`.
///
/// # Panics
///
/// If `page` is not below 2^[`limits::DOORBELL_PAGES_LOG2_MAX`].
pub const fn push_page_in_bar(page: u32) -> u64 {
    assert!(page < 1 << limits::DOORBELL_PAGES_LOG2_MAX, "there are fewer doorbell pages");
    PUSH_PAGES_OFFSET + page as u64 * PUSH_PAGE_BYTES
}

/// Returns the byte offset in BAR 2 of a doorbell of page `page`.
///
/// # Panics
///
/// If `page` is not below 2^[`limits::DOORBELL_PAGES_LOG2_MAX`].
pub const fn offset_in_bar(page: u32, doorbell: &Doorbell) -> u64 {
    assert!(page < 1 << limits::DOORBELL_PAGES_LOG2_MAX, "there are fewer doorbell pages");
    page as u64 * limits::DOORBELL_PAGE_BYTES + doorbell.offset as u64
}

const _: () = {
    let mut index = 0;
    while index < DOORBELLS.len() {
        assert!(DOORBELLS[index].offset == index as u32 * 8 && DOORBELLS[index].record.bits == 64);
        index += 1;
    }
    assert!(PUSH_PAGE_BYTES.is_multiple_of(limits::WQE_SLOT_BYTES as u64));
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Indices of a ring must tell full from empty.
    #[test]
    fn indices_are_wider_than_the_longest_ring() {
        let counts = |record: &Record, name| 1u64 << record.field(name).width;
        let producers = counts(&WorkDoorbell::RECORD, "producer_index");
        for slots_log2 in [limits::SEND_SLOTS_LOG2_MAX, limits::RECEIVE_WQES_LOG2_MAX] {
            assert!(1 << slots_log2 < producers);
        }
        assert!(1 << limits::CQES_LOG2_MAX < counts(&CompletionDoorbell::RECORD, "consumer_index"));
        assert!(1 << limits::EQES_LOG2_MAX < counts(&EventDoorbell::RECORD, "consumer_index"));
    }

    /// Worked by hand: QPN 0x12ab34 in bytes 0 to 2, producer index 0x8001 in bytes 4 and 5.
    #[test]
    fn a_work_doorbell_has_the_bytes_worked_by_hand() {
        let bytes = [0x34, 0xab, 0x12, 0x00, 0x01, 0x80, 0x00, 0x00];
        let doorbell = WorkDoorbell { object_number: 0x12_ab34, producer_index: 0x8001 };
        assert_eq!(doorbell.to_bytes(), Ok(bytes));
        assert_eq!(WorkDoorbell::parse(&bytes), Ok(doorbell));
    }

    /// Worked by hand: CQ 5, armed for solicited (2 << 24 = byte 3), consumer index 0xfffffe.
    #[test]
    fn a_completion_doorbell_has_the_bytes_worked_by_hand() {
        let bytes = [0x05, 0x00, 0x00, 0x02, 0xfe, 0xff, 0xff, 0x00];
        let doorbell =
            CompletionDoorbell { object_number: 5, arm: Arm::Solicited, consumer_index: 0xff_fffe };
        assert_eq!(doorbell.to_bytes(), Ok(bytes));
        assert_eq!(CompletionDoorbell::parse(&bytes), Ok(doorbell));
    }

    /// Worked by hand: EQ 3, armed (bit 24), consumer index 0x10203.
    #[test]
    fn an_event_doorbell_has_the_bytes_worked_by_hand() {
        let bytes = [0x03, 0x00, 0x00, 0x01, 0x03, 0x02, 0x01, 0x00];
        let doorbell = EventDoorbell { object_number: 3, arm: true, consumer_index: 0x1_0203 };
        assert_eq!(doorbell.to_bytes(), Ok(bytes));
        assert_eq!(EventDoorbell::parse(&bytes), Ok(doorbell));
    }

    #[test]
    fn push_pages_fill_the_bar_behind_the_doorbell_pages() {
        assert_eq!(offset_in_bar(2047, &EVENT), 2047 * 4096 + 0x20);
        assert_eq!((push_page_in_bar(0), push_page_in_bar(2047)), (2048 * 4096, 4095 * 4096));
        assert_eq!(push_page_in_bar(2047) + PUSH_PAGE_BYTES, crate::pci::DOORBELL_BAR_BYTES);
    }

    #[test]
    #[should_panic(expected = "fewer doorbell pages")]
    fn a_page_beyond_the_bar_is_refused() {
        offset_in_bar(2048, &SEND);
    }
}
