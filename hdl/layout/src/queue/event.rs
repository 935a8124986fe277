//! EQEs: entries of event queues, which say why an interrupt was raised (protocol 4.4).

use crate::field::{record, values};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

values! {
    /// Kind of an event.
    pub enum EventKind, "protocol 4.4" {
        /// An armed completion queue has new CQEs.
        Completion = 0, "completion";
        /// Asynchronous event of an object or of the port; `code` says which.
        Asynchronous = 1, "asynchronous";
        /// The admin queue has written an answer.
        AdminAnswer = 2, "admin_answer";
        /// Asynchronous events, or events of answers, found the queue full and were not written.
        EventsLost = 3, "events_lost";
    }
}

values! {
    /// Asynchronous event; the numbers are those of the verbs.
    pub enum AsyncEvent, "protocol 4.4" {
        /// A completion queue has overrun, or the host refused a CQE of it. It is unusable; each queue pair that completes to it fails
        /// with its next CQE.
        CompletionQueueError = 0, "completion_queue_error";
        /// A queue pair failed for an internal reason, a WQE could not be read from the host, or a CQE could not be written to its
        /// completion queue. WQEs posted on it may not complete
        /// until the queue pair is reset or destroyed.
        QueuePairFatal = 1, "queue_pair_fatal";
        /// The peer sent an invalid request.
        QueuePairRequestError = 2, "queue_pair_request_error";
        /// The peer tried to access memory without permission.
        QueuePairAccessError = 3, "queue_pair_access_error";
        /// The first packet arrived for a queue pair in RTR.
        CommunicationEstablished = 4, "communication_established";
        /// The send queue of a queue pair in SQD has drained.
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
        /// An SRQ failed.
        SharedReceiveError = 14, "shared_receive_error";
        /// An SRQ has fewer posted WQEs than its limit.
        SharedReceiveLimit = 15, "shared_receive_limit";
        /// A queue pair in ERR has completed its last WQE of an SRQ.
        LastWqeReached = 16, "last_wqe_reached";
        /// Not raised by this card: client reregistration is InfiniBand's.
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
    /// EQE: an entry of an event queue. It is valid if `phase` is the phase of the consumer index.
    pub struct Eqe: 128 bits by Complete, "protocol 4.4" {
        /// QPN, or number of the completion queue or SRQ; zero for the port, the device and the admin queue.
        object_number: u32 = 0..24, "protocol 4.4";
        /// Completion: producer index of the completion queue. Admin answer: producer index of the ring of answers. Device
        /// failure: `detail` of the register `fatal`. Events lost: their number, 65535 if there were more. Else zero.
        detail: u32 = 32..64, "protocol 4.4";
        /// Kind of the event.
        kind: EventKind = 64..72, "protocol 4.4";
        /// The asynchronous event, if `kind` is `asynchronous`; else zero.
        code: AsyncEvent = 72..80, "protocol 4.4";
        /// Phase bit: inverts at each pass of the ring; written last.
        phase: bool = 120..121, "design 3.2";
    }
    reserved { 24..32, 80..120, 121..128 }
}

/// Memory image of an EQE: [`Eqe`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawEqe {
    /// QPN, or number of the completion queue or SRQ.
    pub object_number: U32,
    /// Index or detail, by kind.
    pub detail: U32,
    /// An [`EventKind`].
    pub kind: u8,
    /// An [`AsyncEvent`].
    pub code: u8,
    /// Reserved: zero.
    pub zero: [u8; 5],
    /// Phase bit, in bit 0.
    pub phase: u8,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::pin;

    #[test]
    fn the_image_agrees_with_its_table() {
        pin!(RawEqe, Eqe::RECORD, [object_number, detail, kind, code, zero, phase]);
    }

    /// Worked by hand: access error of QP 0xabcdef, in an odd pass.
    #[test]
    fn an_eqe_has_the_bytes_worked_by_hand() {
        let bytes = [0xef, 0xcd, 0xab, 0, 0x04, 0x03, 0x02, 0x01, 0x01, 0x03, 0, 0, 0, 0, 0, 0x01];
        let eqe = Eqe {
            object_number: 0xab_cdef,
            detail: 0x0102_0304,
            kind: EventKind::Asynchronous,
            code: AsyncEvent::QueuePairAccessError,
            phase: true,
        };
        assert_eq!(eqe.to_bytes(), Ok(bytes));
        assert_eq!(Eqe::parse(&bytes), Ok(eqe));
        let image = RawEqe::read_from_bytes(&bytes).unwrap();
        assert_eq!((image.object_number.get(), image.kind, image.code, image.phase), (0xab_cdef, 1, 3, 1));
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        let mut bytes = Eqe::at_reset().to_bytes().unwrap();
        bytes[8] = 3;
        assert!(Eqe::parse(&bytes).is_ok());
        bytes[8] = 4;
        assert_eq!(Eqe::parse(&bytes).unwrap_err().field, "kind");
    }
}
