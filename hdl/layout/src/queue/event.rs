//! Event queue entries: why an interrupt was raised.

use crate::field::{record, values};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

values! {
    /// What an event is about.
    pub enum EventKind, "protocol 4.4" {
        /// An armed completion queue has completions.
        Completion = 0, "completion";
        /// Something happened to an object or to the port: `code` says what.
        Asynchronous = 1, "asynchronous";
        /// The admin queue has written an answer.
        AdminAnswer = 2, "admin_answer";
    }
}

values! {
    /// What happened; the numbers are those of the verbs.
    pub enum AsyncEvent, "protocol 4.4" {
        /// A completion queue is full, and unusable.
        CompletionQueueError = 0, "completion_queue_error";
        /// A queue pair failed for an internal reason, or the host did not give the card its work: what is posted on it may
        /// complete only when it is reset or ended.
        QueuePairFatal = 1, "queue_pair_fatal";
        /// The peer sent an invalid request.
        QueuePairRequestError = 2, "queue_pair_request_error";
        /// The peer tried to access memory that it may not.
        QueuePairAccessError = 3, "queue_pair_access_error";
        /// The first packet arrived at a queue pair in RTR.
        CommunicationEstablished = 4, "communication_established";
        /// A queue pair in SQD has finished what it had begun.
        SendQueueDrained = 5, "send_queue_drained";
        /// Not raised by this card: path migration.
        PathMigrated = 6, "path_migrated";
        /// Not raised by this card: path migration.
        PathMigrationError = 7, "path_migration_error";
        /// The device has failed.
        DeviceFatal = 8, "device_fatal";
        /// The link came up.
        PortActive = 9, "port_active";
        /// The link went down.
        PortError = 10, "port_error";
        /// Not raised by this card: LIDs are InfiniBand's.
        LidChange = 11, "lid_change";
        /// The partition table changed.
        PartitionChange = 12, "partition_change";
        /// Not raised by this card: subnet managers are InfiniBand's.
        SubnetManagerChange = 13, "subnet_manager_change";
        /// A shared receive queue failed.
        SharedReceiveError = 14, "shared_receive_error";
        /// A shared receive queue has fewer entries than its limit.
        SharedReceiveLimit = 15, "shared_receive_limit";
        /// A queue pair in ERR has given back its last entry of a shared queue.
        LastWqeReached = 16, "last_wqe_reached";
        /// Not raised by this card: InfiniBand's.
        ClientReregister = 17, "client_reregister";
        /// The table of source addresses changed.
        AddressChange = 18, "address_change";
        /// A work queue failed.
        WorkQueueFatal = 19, "work_queue_fatal";
        /// The speed of the link changed.
        SpeedChange = 20, "speed_change";
    }
}

record! {
    /// An entry of an event queue. Software reads it when `phase` is that of its own index.
    pub struct Eqe: 128 bits by Event, "protocol 4.4" {
        /// Completion queue, queue pair, shared receive queue; zero for the port, the device and the admin queue.
        object_number: u32 = 0..24, "protocol 4.4";
        /// Completion: free-running index up to which completions are written. Admin answer: the same of the answers.
        /// Device failure: the detail of the register `fatal`.
        detail: u32 = 32..64, "protocol 4.4";
        /// What the event is about.
        kind: EventKind = 64..72, "protocol 4.4";
        /// Asynchronous: what happened; else zero.
        code: AsyncEvent = 72..80, "protocol 4.4";
        /// Turns with every pass of the ring; written last.
        phase: bool = 120..121, "design 3.2";
    }
    reserved { 24..32, 80..120, 121..128 }
}

/// An entry of an event queue in memory: [`Event`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawEqe {
    /// Which object.
    pub object_number: U32,
    /// More, by kind.
    pub detail: U32,
    /// An [`EventKind`].
    pub kind: u8,
    /// An [`AsyncEvent`].
    pub code: u8,
    /// Zero.
    pub zero: [u8; 5],
    /// Turns with every pass of the ring.
    pub phase: u8,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::pin;

    #[test]
    fn the_entry_in_memory_agrees_with_its_table() {
        pin!(RawEqe, Eqe::RECORD, [object_number, detail, kind, code, zero, phase]);
    }

    /// Worked by hand: access error of QP 0xabcdef, in an odd pass.
    #[test]
    fn an_event_stands_in_memory_as_worked_by_hand() {
        let bytes = [0xef, 0xcd, 0xab, 0, 0x04, 0x03, 0x02, 0x01, 0x01, 0x03, 0, 0, 0, 0, 0, 0x01];
        let event = Eqe {
            object_number: 0xab_cdef,
            detail: 0x0102_0304,
            kind: EventKind::Asynchronous,
            code: AsyncEvent::QueuePairAccessError,
            phase: true,
        };
        assert_eq!(event.to_bytes(), Ok(bytes));
        assert_eq!(Eqe::parse(&bytes), Ok(event));
        let entry = RawEqe::read_from_bytes(&bytes).unwrap();
        assert_eq!((entry.object_number.get(), entry.kind, entry.code, entry.phase), (0xab_cdef, 1, 3, 1));
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        let mut bytes = Eqe::at_reset().to_bytes().unwrap();
        bytes[8] = 2;
        assert!(Eqe::parse(&bytes).is_ok());
        bytes[8] = 3;
        assert_eq!(Eqe::parse(&bytes).unwrap_err().field, "kind");
    }
}
