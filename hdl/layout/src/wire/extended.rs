//! Extended headers between BTH and payload, and the chain of them that each opcode has (protocol 1.4 and 1.5).

use super::header::{Error, header};
use crate::limits::EXTENDED_BYTES_MAX;
use crate::opcode::{self, ExtendedHeader};
use crate::psn::Psn;
use crate::syndrome::Syndrome;

header! {
    /// DETH, the datagram header of UD.
    deth, DethPacket => DethRepr, "DETH", 8 bytes;
    /// Q_Key, which must be that of the receiving queue pair.
    QUEUE_KEY queue_key set_queue_key: u32 = 0, 7, 32, "key", "protocol 1.5";
    /// Zero when sent, ignored when received.
    RESERVED reserved set_reserved: u8 = 4, 7, 8, "bits", "protocol 1.5";
    /// QPN of the sender.
    SOURCE_QP source_qp set_source_qp: u32 = 5, 7, 24, "number", "protocol 1.5";
}

header! {
    /// FETH, the header of FLUSH, before the RETH.
    feth, FethPacket => FethRepr, "FETH", 4 bytes;
    /// Zero when sent, ignored when received.
    RESERVED reserved set_reserved: u32 = 0, 7, 26, "bits", "protocol 1.5";
    /// Selectivity: 0 flushes the range of the RETH, 1 the whole region.
    SELECTIVITY selectivity set_selectivity: u8 = 3, 5, 2, "code", "protocol 1.5";
    /// Placement: bit 0 global visibility, bit 1 persistence.
    PLACEMENT placement set_placement: u8 = 3, 3, 4, "flags", "protocol 1.5";
}

header! {
    /// RETH, the RDMA header: a range of the responder's memory.
    reth, RethPacket => RethRepr, "RETH", 16 bytes;
    /// Address of the first byte.
    VIRTUAL_ADDRESS virtual_address set_virtual_address: u64 = 0, 7, 64, "address", "protocol 1.5";
    /// R_Key of the region.
    REMOTE_KEY remote_key set_remote_key: u32 = 8, 7, 32, "key", "protocol 1.5";
    /// Length of the message, 0 to 2^31.
    DMA_LENGTH dma_length set_dma_length: u32 = 12, 7, 32, "bytes", "protocol 1.5";
}

header! {
    /// AtomicETH, the atomic header: address and operands. Operands are big-endian on the wire; memory is in host byte order.
    atomic_eth, AtomicEthPacket => AtomicEthRepr, "AtomicETH", 28 bytes;
    /// Address of the 8 bytes, a multiple of eight.
    VIRTUAL_ADDRESS virtual_address set_virtual_address: u64 = 0, 7, 64, "address", "protocol 1.5";
    /// R_Key of the region.
    REMOTE_KEY remote_key set_remote_key: u32 = 8, 7, 32, "key", "protocol 1.5";
    /// COMPARE_SWAP: swap operand. FETCH_ADD: add operand.
    SWAP_ADD swap_add set_swap_add: u64 = 12, 7, 64, "number", "protocol 1.5";
    /// COMPARE_SWAP: compare operand. FETCH_ADD: zero when sent, ignored when received.
    COMPARE compare set_compare: u64 = 20, 7, 64, "number", "protocol 1.5";
}

header! {
    /// AETH, the acknowledgement header.
    aeth, AethPacket => AethRepr, "AETH", 4 bytes;
    /// Syndrome: ACK with credits, RNR NAK with a delay, or NAK with a code.
    SYNDROME syndrome set_syndrome: u8 = 0, 7, 8, "code", "protocol 1.6";
    /// MSN: number of messages that the responder has completed.
    MSN msn set_msn: Psn = 1, 7, 24, "number", "protocol 1.5";
}

header! {
    /// AtomicAckETH, the response to an atomic request.
    atomic_ack_eth, AtomicAckEthPacket => AtomicAckEthRepr, "AtomicAckETH", 8 bytes;
    /// Original value of the memory.
    ORIGINAL original set_original: u64 = 0, 7, 64, "number", "protocol 1.5";
}

header! {
    /// ImmDt, immediate data.
    immediate, ImmediatePacket => ImmediateRepr, "ImmDt", 4 bytes;
    /// Immediate data, copied to the CQE of the receiver byte for byte.
    DATA data set_data: u32 = 0, 7, 32, "bytes", "protocol 1.5";
}

header! {
    /// IETH, the header of SEND with invalidate.
    ieth, IethPacket => IethRepr, "IETH", 4 bytes;
    /// R_Key to invalidate.
    REMOTE_KEY remote_key set_remote_key: u32 = 0, 7, 32, "key", "protocol 1.5";
}

header! {
    /// Reserved bytes after the BTH of a CNP.
    cnp, CnpPacket => CnpRepr, "CNP", 16 bytes;
    /// Zero when sent, ignored when received, covered by the ICRC.
    RESERVED reserved set_reserved: u128 = 0, 7, 128, "bits", "protocol 1.10";
}

impl AethRepr {
    /// Returns the header of a syndrome and an MSN.
    pub const fn new(syndrome: Syndrome, msn: Psn) -> Self {
        Self { syndrome: syndrome.emit(), msn }
    }

    /// Returns the parsed syndrome.
    pub const fn meaning(&self) -> Syndrome {
        Syndrome::parse(self.syndrome)
    }
}

macro_rules! extended {
    ($($(#[doc = $doc:literal])+ $variant:ident: $module:ident, $view:ident, $repr:ident, $kind:ident;)+) => {
        /// An extended header of any kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ExtendedRepr {
            $($(#[doc = $doc])+ $variant($repr),)+
        }

        impl ExtendedRepr {
            /// Returns the kind of the header.
            pub const fn kind(&self) -> ExtendedHeader {
                match self {
                    $(Self::$variant(_) => ExtendedHeader::$kind,)+
                }
            }

            /// Parses the header of this kind at the start of `bytes`.
            ///
            /// # Errors
            ///
            /// [`Error::Truncated`] if `bytes` ends before the header.
            pub fn parse(kind: ExtendedHeader, bytes: &[u8]) -> Result<Self, Error> {
                match kind {
                    $(ExtendedHeader::$kind => {
                        Ok(Self::$variant($repr::parse(&$view::new_checked(bytes)?)))
                    })+
                }
            }

            /// Writes the header to the start of `bytes`.
            ///
            /// # Panics
            ///
            /// If `bytes` is shorter than the header.
            pub fn emit(&self, bytes: &mut [u8]) {
                match self {
                    $(Self::$variant(repr) => repr.emit(&mut $view::new_unchecked(bytes)),)+
                }
            }
        }

        $(const _: () = assert!($module::BYTES == ExtendedHeader::$kind.bytes());)+
    };
}

extended! {
    /// Datagram: Q_Key and source QPN.
    Deth: deth, DethPacket, DethRepr, Deth;
    /// FLUSH: selectivity and placement.
    Feth: feth, FethPacket, FethRepr, Feth;
    /// RDMA: address, R_Key and length.
    Reth: reth, RethPacket, RethRepr, Reth;
    /// Atomic request: address, R_Key and operands.
    AtomicEth: atomic_eth, AtomicEthPacket, AtomicEthRepr, AtomicEth;
    /// Acknowledgement: syndrome and MSN.
    Aeth: aeth, AethPacket, AethRepr, Aeth;
    /// Atomic response: original value.
    AtomicAckEth: atomic_ack_eth, AtomicAckEthPacket, AtomicAckEthRepr, AtomicAckEth;
    /// Immediate data.
    Immediate: immediate, ImmediatePacket, ImmediateRepr, ImmDt;
    /// R_Key to invalidate.
    Ieth: ieth, IethPacket, IethRepr, Ieth;
    /// Congestion notification: 16 reserved bytes.
    Cnp: cnp, CnpPacket, CnpRepr, CnpReserved;
}

/// All extended headers of one packet, in wire order: 0 to 28 bytes, padded with zeros.
///
/// A packet's token carries them in this form; [`headers`](Self::headers) parses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    bytes: [u8; EXTENDED_BYTES_MAX],
    length: usize,
}

impl Extended {
    /// No extended headers.
    pub const EMPTY: Self = Self { bytes: [0; EXTENDED_BYTES_MAX], length: 0 };

    /// Copies the extended headers of an opcode from the start of `bytes`, which are the bytes after the BTH.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if `bytes` ends before the headers.
    pub fn parse(opcode: u8, bytes: &[u8]) -> Result<Self, Error> {
        let length = usize::from(opcode::EXTENDED_BYTES[usize::from(opcode)]);
        let Some(chain) = bytes.get(..length) else {
            let header = "extended headers";
            return Err(Error::Truncated { header, found_bytes: bytes.len(), needed_bytes: length });
        };
        let mut extended = Self { length, ..Self::EMPTY };
        extended.bytes[..length].copy_from_slice(chain);
        Ok(extended)
    }

    /// Concatenates headers.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if they are longer than the longest chain of any opcode.
    pub fn from_headers(headers: &[ExtendedRepr]) -> Result<Self, Error> {
        let found_bytes = headers.iter().map(|header| header.kind().bytes()).sum();
        if found_bytes > EXTENDED_BYTES_MAX {
            let (header, field) = ("extended headers", "chain");
            return Err(Error::Length {
                header,
                field,
                found_bytes,
                least_bytes: 0,
                most_bytes: EXTENDED_BYTES_MAX,
            });
        }
        let mut extended = Self::EMPTY;
        for header in headers {
            header.emit(&mut extended.bytes[extended.length..]);
            extended.length += header.kind().bytes();
        }
        Ok(extended)
    }

    /// Returns the bytes on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Returns the bytes on the wire, padded with zeros to the length of the longest chain.
    pub const fn padded(&self) -> &[u8; EXTENDED_BYTES_MAX] {
        &self.bytes
    }

    /// Iterates over the headers of `opcode`, which must be the opcode of the packet. Headers beyond the stored bytes are omitted.
    pub fn headers(&self, opcode: u8) -> impl Iterator<Item = ExtendedRepr> + '_ {
        let kinds = opcode::lookup(opcode).map_or(&[][..], |row| row.extended);
        let mut rest = self.as_bytes();
        kinds.iter().map_while(move |&kind| {
            let header = ExtendedRepr::parse(kind, rest).ok()?;
            rest = &rest[kind.bytes()..];
            Some(header)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opcode::OPCODES;
    use crate::syndrome::NakCode;
    use hex::FromHex;
    use proptest::prelude::*;

    #[test]
    fn a_reth_is_address_key_and_length() {
        // Of vector V2.
        let bytes = <[u8; 16]>::from_hex("00007f001122334400001a0500000005").unwrap();
        let header = ExtendedRepr::parse(ExtendedHeader::Reth, &bytes).unwrap();
        let expected = RethRepr { virtual_address: 0x7F00_1122_3344, remote_key: 0x1A05, dma_length: 5 };
        assert_eq!(header, ExtendedRepr::Reth(expected));
    }

    #[test]
    fn an_atomic_request_has_swap_before_compare() {
        // Of vector V7.
        let bytes = <[u8; 28]>::from_hex("0000000000002000000002030123456789abcdeffedcba9876543210").unwrap();
        let repr = AtomicEthRepr::parse(&AtomicEthPacket::new_checked(&bytes).unwrap());
        assert_eq!((repr.virtual_address, repr.remote_key), (0x2000, 0x203));
        assert_eq!((repr.swap_add, repr.compare), (0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210));
    }

    #[test]
    fn an_atomic_answer_is_aeth_and_original_value() {
        // Of vector V13.
        let bytes = <[u8; 12]>::from_hex("1f0000041122334455667788").unwrap();
        let extended = Extended::parse(0x12, &bytes).unwrap();
        let aeth = AethRepr::new(Syndrome::Ack { credit_code: 31 }, Psn::wrapping(4));
        let original = AtomicAckEthRepr { original: 0x1122_3344_5566_7788 };
        let expected = [ExtendedRepr::Aeth(aeth), ExtendedRepr::AtomicAckEth(original)];
        assert!(extended.headers(0x12).eq(expected));
        assert_eq!(Extended::from_headers(&expected), Ok(extended));
    }

    #[test]
    fn a_datagram_header_hides_a_reserved_byte_before_the_source() {
        // Of vector V5.
        let bytes = <[u8; 8]>::from_hex("1111111100000021").unwrap();
        let repr = DethRepr::parse(&DethPacket::new_checked(&bytes).unwrap());
        assert_eq!(repr, DethRepr { queue_key: 0x1111_1111, reserved: 0, source_qp: 0x21 });
    }

    #[test]
    fn a_nak_says_why() {
        // Of vector V16.
        let repr = AethRepr::parse(&AethPacket::new_checked(&[0x62, 0, 0, 5]).unwrap());
        assert_eq!(repr.meaning(), Syndrome::Nak(NakCode::RemoteAccessError));
        assert_eq!(repr.msn.value(), 5);
    }

    #[test]
    fn a_flush_header_has_its_codes_at_the_end() {
        let repr = FethRepr::parse(&FethPacket::new_checked(&[0, 0, 0, 0b01_0010]).unwrap());
        assert_eq!(repr, FethRepr { reserved: 0, selectivity: 1, placement: 2 });
    }

    #[test]
    fn a_chain_may_not_be_longer_than_the_longest() {
        let reth = ExtendedRepr::Reth(RethRepr { virtual_address: 0, remote_key: 0, dma_length: 0 });
        let deth = ExtendedRepr::Deth(DethRepr { queue_key: 0, reserved: 0, source_qp: 0 });
        let immediate = ExtendedRepr::Immediate(ImmediateRepr { data: 0 });
        assert_eq!(Extended::from_headers(&[reth, deth, immediate]).unwrap().as_bytes().len(), 28);
        assert!(Extended::from_headers(&[reth, deth, immediate, immediate]).is_err());
    }

    proptest! {
        #[test]
        fn every_kind_keeps_every_bit(bytes: [u8; 28]) {
            for kind in ExtendedHeader::ALL {
                let header = ExtendedRepr::parse(kind, &bytes).unwrap();
                prop_assert_eq!(header.kind(), kind);
                let mut emitted = [0; 28];
                header.emit(&mut emitted);
                prop_assert_eq!(&emitted[..kind.bytes()], &bytes[..kind.bytes()]);
                prop_assert!(ExtendedRepr::parse(kind, &bytes[..kind.bytes() - 1]).is_err());
            }
        }

        #[test]
        fn a_chain_taken_apart_is_the_chain(bytes: [u8; 28]) {
            for opcode in &OPCODES {
                let extended = Extended::parse(opcode.code, &bytes).unwrap();
                let mut headers = [ExtendedRepr::Cnp(CnpRepr { reserved: 0 }); 3];
                let mut count = 0;
                for header in extended.headers(opcode.code) {
                    headers[count] = header;
                    count += 1;
                }
                prop_assert_eq!(count, opcode.extended.len());
                prop_assert_eq!(Extended::from_headers(&headers[..count]), Ok(extended));
            }
        }
    }
}
