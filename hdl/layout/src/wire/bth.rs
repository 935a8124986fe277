//! BTH, the base transport header, the first header after UDP (protocol 1.3).

use super::header::{Error, header};
use crate::opcode::BTH_BYTES;
use crate::psn::Psn;

/// P_Key of the default partition, with full membership.
pub const PARTITION_KEY_DEFAULT: u16 = 0xFFFF;

/// QPN of the general services interface, which connection management uses.
pub const QP_GENERAL_SERVICES: u32 = 1;

/// Destination QPN of multicast datagrams.
pub const QP_MULTICAST: u32 = 0xFF_FFFF;

header! {
    /// The base transport header.
    fields, BthPacket => BthRepr, "BTH", 12 bytes;
    /// Transport in bits 7:5, operation in bits 4:0.
    OPCODE opcode set_opcode: u8 = 0, 7, 8, "code", "protocol 1.4";
    /// SE: the CQE of the receiver is solicited.
    SOLICITED solicited set_solicited: bool = 1, 7, 1, "flag", "protocol 1.3";
    /// MigReq: set when sent, since there is no alternate path; ignored when received.
    MIGRATED migrated set_migrated: bool = 1, 6, 1, "flag", "protocol 1.3";
    /// PadCnt: bytes of pad between payload and ICRC, which make the payload a multiple of four.
    PAD_COUNT pad_count set_pad_count: u8 = 1, 5, 2, "bytes", "protocol 1.3";
    /// TVer: version of the header; always 0.
    VERSION version set_version: u8 = 1, 3, 4, "number", "protocol 1.3";
    /// P_Key of the partition.
    PARTITION_KEY partition_key set_partition_key: u16 = 2, 7, 16, "key", "protocol 1.3";
    /// FECN: the packet met congestion. Not covered by the ICRC.
    FORWARD_CONGESTION forward_congestion set_forward_congestion: bool = 4, 7, 1, "flag", "protocol 1.3";
    /// BECN: the sender must slow down; set in CNPs. Not covered by the ICRC.
    BACKWARD_CONGESTION backward_congestion set_backward_congestion: bool = 4, 6, 1, "flag", "protocol 1.3";
    /// Zero when sent, ignored when received. Not covered by the ICRC.
    RESERVED6 reserved6 set_reserved6: u8 = 4, 5, 6, "bits", "protocol 1.3";
    /// QPN of the destination; 0 is refused.
    DESTINATION_QP destination_qp set_destination_qp: u32 = 5, 7, 24, "number", "protocol 1.3";
    /// AckReq: the responder must send an acknowledgement.
    ACK_REQUEST ack_request set_ack_request: bool = 8, 7, 1, "flag", "protocol 1.3";
    /// Zero when sent, ignored when received, covered by the ICRC.
    RESERVED7 reserved7 set_reserved7: u8 = 8, 6, 7, "bits", "protocol 1.3";
    /// Packet sequence number.
    PSN psn set_psn: Psn = 9, 7, 24, "number", "protocol 1.3";
}

const _: () = assert!(fields::BYTES == BTH_BYTES);

impl BthRepr {
    /// Returns a header with this opcode, destination and PSN, and the other fields as the card sends them: MigReq set, the default
    /// partition, all else zero.
    pub const fn new(opcode: u8, destination_qp: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad_count: 0,
            version: 0,
            partition_key: PARTITION_KEY_DEFAULT,
            forward_congestion: false,
            backward_congestion: false,
            reserved6: 0,
            destination_qp,
            ack_request: false,
            reserved7: 0,
            psn,
        }
    }
}

/// Returns the pad in bytes, 0 to 3, that makes `payload_bytes` a multiple of four.
pub const fn pad_count(payload_bytes: usize) -> u8 {
    (payload_bytes.wrapping_neg() & 3) as u8
}

impl<T: AsRef<[u8]>> BthPacket<T> {
    /// Checks the version of the header.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] if it is not 0.
    pub fn check_version(&self) -> Result<(), Error> {
        if self.version() != 0 {
            let found = self.version().into();
            return Err(Error::Field { header: "BTH", field: "version", found, allowed: "0" });
        }
        Ok(())
    }

    /// Checks the destination QPN.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] for QP 0, which belongs to the subnet manager and does not exist in RoCE.
    pub fn check_destination(&self) -> Result<(), Error> {
        if self.destination_qp() == 0 {
            let allowed = "1 to 0xffffff";
            return Err(Error::Field { header: "BTH", field: "destination_qp", found: 0, allowed });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    /// The BTH of vector V10b: SEND event, pad 3, AckReq.
    const BYTES: [u8; 12] = [0x09, 0xB0, 0xFF, 0xFF, 0x00, 0x00, 0x00, 0x12, 0x80, 0x00, 0x00, 0x00];

    #[test]
    fn deconstruct_and_construct() {
        let repr = BthRepr::parse(&BthPacket::new_checked(&BYTES).unwrap());
        let expected = BthRepr {
            solicited: true,
            migrated: false,
            pad_count: 3,
            ack_request: true,
            ..BthRepr::new(0x09, 0x12, Psn::ZERO)
        };
        assert_eq!(repr, expected);
        let mut emitted = [0xA5; 12];
        repr.emit(&mut BthPacket::new_unchecked(&mut emitted));
        assert_eq!(emitted, BYTES);
    }

    #[test]
    fn every_bit_of_the_header_is_kept() {
        for bit in 0..96 {
            let mut bytes = [0; 12];
            bytes[bit / 8] = 0x80 >> (bit % 8);
            let repr = BthRepr::parse(&BthPacket::new_checked(&bytes).unwrap());
            let mut emitted = [0xA5; 12];
            repr.emit(&mut BthPacket::new_unchecked(&mut emitted));
            assert_eq!(emitted, bytes, "bit {bit}");
        }
    }

    #[test]
    fn the_pad_completes_a_word() {
        assert_eq!([0, 1, 2, 3, 4, 5, 4095].map(pad_count), [0, 3, 2, 1, 0, 3, 1]);
    }

    #[test]
    fn a_short_buffer_is_refused() {
        assert!(BthPacket::new_checked(&BYTES[..12]).is_ok());
        let error = BthPacket::new_checked(&BYTES[..11]).unwrap_err();
        assert_eq!(error.to_string(), "BTH: 11 bytes are there, at least 12 are needed");
    }
}
