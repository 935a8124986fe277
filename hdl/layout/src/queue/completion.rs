//! CQEs: entries of completion queues, which report how work requests ended (protocol 2.11).

use crate::field::{record, values};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

values! {
    /// Status of a completion; the numbers are those of the verbs.
    pub enum CompletionStatus, "protocol 2.11" {
        /// The work request completed.
        Success = 0, "success";
        /// LOC_LEN: the message is longer than allowed, or than the posted receive buffer.
        LocalLength = 1, "local_length";
        /// LOC_QP_OP: the WQE is malformed, or its opcode is not allowed for the service of the queue pair.
        LocalQueuePairOperation = 2, "local_queue_pair_operation";
        /// Not raised by this card: end-to-end contexts belong to RD.
        LocalEndToEndContext = 3, "local_end_to_end_context";
        /// LOC_PROT: an SGE was refused for its key, bounds or rights.
        LocalProtection = 4, "local_protection";
        /// WR_FLUSH: the queue pair was in ERR, or its send queue in SQE, before the work request was executed.
        Flushed = 5, "flushed";
        /// MW_BIND: a memory window could not be bound.
        WindowBind = 6, "window_bind";
        /// BAD_RESP: the peer sent an unexpected response.
        BadResponse = 7, "bad_response";
        /// LOC_ACCESS: local access was refused while a message without a receive WQE was placed.
        LocalAccess = 8, "local_access";
        /// REM_INV_REQ: the peer found the request invalid (NAK 0x61).
        RemoteInvalidRequest = 9, "remote_invalid_request";
        /// REM_ACCESS: the peer refused access to its memory (NAK 0x62).
        RemoteAccess = 10, "remote_access";
        /// REM_OP: the peer could not complete the request (NAK 0x63).
        RemoteOperation = 11, "remote_operation";
        /// RETRY_EXC: no response after all retries.
        RetryExceeded = 12, "retry_exceeded";
        /// RNR_RETRY_EXC: the peer had no receive WQE posted after all RNR retries.
        RnrRetryExceeded = 13, "rnr_retry_exceeded";
        /// Not raised by this card: belongs to RD.
        LocalDomainViolation = 14, "local_domain_violation";
        /// Not raised by this card: belongs to RD.
        RemoteInvalidReadRequest = 15, "remote_invalid_read_request";
        /// REM_ABORT: the operation was aborted.
        RemoteAborted = 16, "remote_aborted";
        /// Not raised by this card: belongs to RD.
        InvalidEndToEndNumber = 17, "invalid_end_to_end_number";
        /// Not raised by this card: belongs to RD.
        InvalidEndToEndState = 18, "invalid_end_to_end_state";
        /// FATAL: the device has failed.
        Fatal = 19, "fatal";
        /// Not raised by this card.
        ResponseTimeout = 20, "response_timeout";
        /// GENERAL: any other error.
        General = 21, "general";
        /// Not raised by this card: tag matching.
        TagMatching = 22, "tag_matching";
        /// Not raised by this card: tag matching.
        TagMatchingIncomplete = 23, "tag_matching_incomplete";
    }
}

values! {
    /// Operation that a CQE completes; the numbers are those of the verbs.
    pub enum CompletionOpcode, "protocol 2.11" {
        /// Any SEND.
        Send = 0, "send";
        /// Any RDMA WRITE.
        Write = 1, "write";
        /// RDMA READ.
        Read = 2, "read";
        /// Compare and swap.
        CompareSwap = 3, "compare_swap";
        /// Fetch and add.
        FetchAdd = 4, "fetch_add";
        /// Bind of a memory window.
        BindWindow = 5, "bind_window";
        /// Local invalidate.
        LocalInvalidate = 6, "local_invalidate";
        /// Flush to persistence.
        Flush = 8, "flush";
        /// Atomic write.
        AtomicWrite = 9, "atomic_write";
        /// A SEND was received.
        Receive = 128, "receive";
        /// A WRITE with immediate data was received.
        ReceiveWrite = 129, "receive_write";
    }
}

/// `flags`: `immediate` holds immediate data.
pub const WITH_IMMEDIATE: u8 = 1 << 0;
/// `flags`: `immediate` holds the key that the peer invalidated.
pub const WITH_INVALIDATE: u8 = 1 << 1;
/// `flags`: the first 40 bytes of the buffer are the GRH area.
pub const WITH_GRH: u8 = 1 << 2;
/// `flags`: the sender requested a solicited event.
pub const WAS_SOLICITED: u8 = 1 << 3;

record! {
    /// CQE: an entry of a completion queue. It is valid if `phase` is the phase of the consumer index.
    pub struct Cqe: 256 bits by Complete, "protocol 2.11" {
        /// `wr_id` of the WQE.
        wr_id: u64 = 0..64, "design 3.2";
        /// Bytes received, the GRH area included, or read. Undefined if the status is an error.
        length: u32 = 64..96, "protocol 2.11", unit "bytes";
        /// Immediate data, byte for byte as on the wire; or the invalidated key, as a little-endian number.
        immediate: [u8; 4] = 96..128, "protocol 3.7";
        /// UD: QPN of the sender.
        source_qp: u32 = 128..152, "protocol 1.5";
        /// QPN of the queue pair.
        qp_number: u32 = 160..184, "protocol 2.11";
        /// Consumer index of the send queue: free-running index of the first slot still in use, so that one CQE retires all slots
        /// before it. For a receive, consumer index of the receive queue, in WQEs; zero for an SRQ.
        consumer_index: u16 = 192..208, "design 3.2", unit "slots";
        /// Operation that completed.
        opcode: CompletionOpcode = 208..216, "protocol 2.11";
        /// Status of the completion.
        status: CompletionStatus = 216..224, "protocol 2.11";
        /// Detail of an error, for logs: the syndrome of the peer's NAK, or the card's own code.
        vendor_error: u8 = 224..232, "protocol 2.11";
        /// `immediate` holds immediate data.
        with_immediate: bool = 232..233, "protocol 3.7";
        /// `immediate` holds the key that the peer invalidated.
        with_invalidate: bool = 233..234, "protocol 3.7";
        /// The first 40 bytes of the buffer are the GRH area.
        with_grh: bool = 234..235, "protocol 1.9";
        /// The sender requested a solicited event.
        solicited: bool = 235..236, "protocol 3.9";
        /// Phase bit: inverts at each pass of the ring; written last.
        phase: bool = 248..249, "design 3.2";
    }
    reserved { 152..160, 184..192, 236..248, 249..256 }
}

/// Memory image of a CQE: [`Cqe`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawCqe {
    /// `wr_id` of the WQE.
    pub wr_id: U64,
    /// Bytes received or read.
    pub length: U32,
    /// Immediate data in wire order, or a key in little-endian order.
    pub immediate: [u8; 4],
    /// UD: QPN of the sender.
    pub source_qp: U32,
    /// QPN of the queue pair.
    pub qp_number: U32,
    /// Consumer index of the send or receive queue.
    pub consumer_index: U16,
    /// A [`CompletionOpcode`].
    pub opcode: u8,
    /// A [`CompletionStatus`].
    pub status: u8,
    /// Detail of an error.
    pub vendor_error: u8,
    /// Sum of [`WITH_IMMEDIATE`], [`WITH_INVALIDATE`], [`WITH_GRH`] and [`WAS_SOLICITED`].
    pub flags: u8,
    /// Reserved: zero.
    pub zero: u8,
    /// Phase bit, in bit 0.
    pub phase: u8,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::pin;

    #[test]
    fn the_image_agrees_with_its_table() {
        pin!(
            RawCqe,
            Cqe::RECORD,
            [
                wr_id,
                length,
                immediate,
                source_qp,
                qp_number,
                consumer_index,
                opcode,
                status,
                vendor_error,
                flags,
                zero,
                phase
            ]
        );
        for (name, flag) in [
            ("with_immediate", WITH_IMMEDIATE),
            ("with_invalidate", WITH_INVALIDATE),
            ("with_grh", WITH_GRH),
            ("solicited", WAS_SOLICITED),
        ] {
            assert_eq!(1 << (Cqe::RECORD.field(name).offset - 232), u32::from(flag), "{name}");
        }
    }

    /// Worked by hand: a UD receive of 40 + 5 bytes with immediate, in the first pass.
    #[test]
    fn a_cqe_has_the_bytes_worked_by_hand() {
        #[rustfmt::skip]
        let bytes = [
            0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, // wr_id 0x0102030405060708
            0x2d, 0x00, 0x00, 0x00, 0xca, 0xfe, 0xba, 0xbe, // 45 bytes; immediate
            0x33, 0x22, 0x11, 0x00, 0x66, 0x55, 0x44, 0x00, // from QP 0x112233, at QP 0x445566
            0xff, 0x7f, 0x80, 0x00, 0x00, 0x0d, 0x00, 0x01, // index 0x7fff, receive, success; flags 1 | 4 | 8; phase
        ];
        let cqe = Cqe {
            wr_id: 0x0102_0304_0506_0708,
            length: 45,
            immediate: [0xca, 0xfe, 0xba, 0xbe],
            source_qp: 0x11_2233,
            qp_number: 0x44_5566,
            consumer_index: 0x7fff,
            opcode: CompletionOpcode::Receive,
            status: CompletionStatus::Success,
            vendor_error: 0,
            with_immediate: true,
            with_invalidate: false,
            with_grh: true,
            solicited: true,
            phase: true,
        };
        assert_eq!(cqe.to_bytes(), Ok(bytes));
        assert_eq!(Cqe::parse(&bytes), Ok(cqe));
        let image = RawCqe::read_from_bytes(&bytes).unwrap();
        assert_eq!(
            (image.qp_number.get(), image.flags),
            (0x44_5566, WITH_IMMEDIATE | WITH_GRH | WAS_SOLICITED)
        );
        assert_eq!((image.phase, image.consumer_index.get(), image.length.get()), (1, 0x7fff, 45));
    }

    #[test]
    fn the_phase_is_in_the_last_byte() {
        assert_eq!(Cqe::RECORD.field("phase").offset / 8, 31);
    }

    #[test]
    fn an_unknown_status_is_refused() {
        let mut bytes = Cqe::at_reset().to_bytes().unwrap();
        bytes[27] = 23;
        assert!(Cqe::parse(&bytes).is_ok());
        bytes[27] = 24;
        assert_eq!(Cqe::parse(&bytes).unwrap_err().field, "status");
    }
}
