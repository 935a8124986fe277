#![doc = include_str!("../manual/receive.md")]

use crate::field::record;
use crate::queue::send::RawSge;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

record! {
    /// Receive WQE: a work queue entry of a receive queue or SRQ.
    pub struct ReceiveWqe: 512 bits by Driver, "design 3.2" {
        /// The application's name for the work request, returned in its CQE. WQEs of an SRQ complete out of order, so the `wr_id`
        /// is the only way to find the buffer.
        wr_id: u64 = 0..64, "design decision 9";
        /// SGEs in use. Zero is allowed, for messages without payload and for WRITEs with immediate.
        sge_count: u8 = 64..66, "design 3.2", allowed 0..=3;
        /// SGE 0: address in the address space of its region.
        sge0_address: u64 = 128..192, "protocol 4.6";
        /// SGE 0: L_Key.
        sge0_key: u32 = 192..224, "protocol 4.6";
        /// SGE 0: length; zero skips the SGE.
        sge0_length: u32 = 224..256, "protocol 4.6", unit "bytes";
        /// SGE 1: address in the address space of its region.
        sge1_address: u64 = 256..320, "protocol 4.6";
        /// SGE 1: L_Key.
        sge1_key: u32 = 320..352, "protocol 4.6";
        /// SGE 1: length; zero skips the SGE.
        sge1_length: u32 = 352..384, "protocol 4.6", unit "bytes";
        /// SGE 2: address in the address space of its region.
        sge2_address: u64 = 384..448, "protocol 4.6";
        /// SGE 2: L_Key.
        sge2_key: u32 = 448..480, "protocol 4.6";
        /// SGE 2: length; zero skips the SGE.
        sge2_length: u32 = 480..512, "protocol 4.6", unit "bytes";
    }
    reserved { 66..128 }
}

/// Memory image of a receive WQE: [`ReceiveWqe`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawReceiveWqe {
    /// The application's name for the work request, returned in its CQE.
    pub wr_id: U64,
    /// SGEs in use, 0 to 3.
    pub sge_count: u8,
    /// Reserved: zero.
    pub zero: [u8; 7],
    /// The SGEs; those not in use are ignored.
    pub sges: [RawSge; 3],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::pin;

    #[test]
    fn the_image_agrees_with_its_table() {
        pin!(RawReceiveWqe, ReceiveWqe::RECORD, [wr_id, sge_count, zero, sges]);
    }

    /// Worked by hand: two SGEs.
    #[test]
    fn a_receive_wqe_has_the_bytes_worked_by_hand() {
        #[rustfmt::skip]
        let bytes = [
            0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, // wr_id 0x8000000000000007
            0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // two SGEs
            0x00, 0x10, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, // 0x100001000
            0x05, 0x01, 0x00, 0x00, 0x28, 0x00, 0x00, 0x00, // key 0x105, 40 bytes
            0x03, 0x20, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // 0x2003
            0x06, 0x01, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, // key 0x106, 4096 bytes
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let wqe = ReceiveWqe {
            wr_id: 0x8000_0000_0000_0007,
            sge_count: 2,
            sge0_address: 0x1_0000_1000,
            sge0_key: 0x105,
            sge0_length: 40,
            sge1_address: 0x2003,
            sge1_key: 0x106,
            sge1_length: 4096,
            ..ReceiveWqe::at_reset()
        };
        assert_eq!(wqe.to_bytes(), Ok(bytes));
        assert_eq!(ReceiveWqe::parse(&bytes), Ok(wqe));
        let image = RawReceiveWqe {
            wr_id: 0x8000_0000_0000_0007.into(),
            sge_count: 2,
            zero: [0; 7],
            sges: [
                RawSge { address: 0x1_0000_1000.into(), local_key: 0x105.into(), length: 40.into() },
                RawSge { address: 0x2003.into(), local_key: 0x106.into(), length: 4096.into() },
                RawSge::default(),
            ],
        };
        assert_eq!(image.as_bytes(), bytes);
    }

    #[test]
    fn a_fourth_sge_is_refused() {
        let mut bytes = ReceiveWqe::at_reset().to_bytes().unwrap();
        bytes[8] = 3;
        assert!(ReceiveWqe::parse(&bytes).is_ok());
        bytes[8] = 4;
        assert_eq!(ReceiveWqe::parse(&bytes).unwrap_err().field, "reserved");
    }
}
