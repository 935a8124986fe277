//! A whole frame: all headers, payload, pad and ICRC, parsed and emitted (protocol 1.1).
//!
//! ```text
//!  Ethernet  [802.1Q]  IPv4 | IPv6  UDP  BTH  extended  payload  pad   ICRC  [Ethernet pad]
//!  14        4         20   | 40    8    12   0..28     0..4096  0..3  4     0..n
//!                      '-------------- covered by the ICRC ----------'
//! ```
//!
//! The length fields give the position of the ICRC, not the end of the frame: an Ethernet MAC pads short frames after it.

use super::bth::{self, BthPacket, BthRepr};
use super::classify::dissect;
use super::ethernet::EthernetRepr;
use super::extended::{Extended, ExtendedRepr};
use super::header::Error;
use super::icrc;
use super::ip::IpRepr;
use super::udp::{self, UdpPacket, UdpRepr};
use crate::limits::FRAME_BYTES_MAX;
use crate::opcode;

/// A complete RoCEv2 packet, whose frame can be emitted byte for byte, up to and including the ICRC.
///
/// Lengths, IPv4 checksum and ICRC are not stored, since [`emit`](Self::emit) computes them. A header that sums to 0xFFFF without
/// its checksum may carry 0x0000 or 0xFFFF as checksum: both are accepted, 0x0000 is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRepr<'a> {
    /// Ethernet header and 802.1Q tag.
    pub ethernet: EthernetRepr,
    /// IPv4 or IPv6 header.
    pub ip: IpRepr,
    /// UDP header.
    pub udp: UdpRepr,
    /// Base transport header.
    pub bth: BthRepr,
    /// Extended headers of the opcode.
    pub extended: Extended,
    /// Payload, without pad.
    pub payload: &'a [u8],
    /// Pad, of which the first `bth.pad_count` bytes are used.
    pub pad: [u8; 3],
}

impl<'a> PacketRepr<'a> {
    /// Parses a frame to any destination.
    ///
    /// The checks are those of [`classify`](super::classify()), except that addresses, destination QP and ICRC are not checked; see
    /// [`icrc::agrees`].
    ///
    /// # Errors
    ///
    /// An [`Error`] that names header and field of the first check that fails.
    pub fn parse(frame: &'a [u8]) -> Result<Self, Error> {
        dissect(frame, None).map_err(|refusal| refusal.error)
    }

    /// Returns the size of all headers before the payload, in bytes.
    pub fn header_bytes(&self) -> usize {
        self.ethernet.buffer_len()
            + self.ip.buffer_len()
            + self.udp.buffer_len()
            + self.bth.buffer_len()
            + self.extended.as_bytes().len()
    }

    /// Returns the size in bytes of the frame that [`emit`](Self::emit) writes, with ICRC and without FCS.
    pub fn buffer_len(&self) -> usize {
        self.header_bytes() + self.payload.len() + usize::from(self.bth.pad_count & 3) + icrc::BYTES
    }

    /// Iterates over the extended headers in wire order.
    pub fn extended_headers(&self) -> impl Iterator<Item = ExtendedRepr> + '_ {
        self.extended.headers(self.bth.opcode)
    }

    /// Returns the packet as the card would send it: DF set, no UDP checksum, reserved bits zero, and the pad that the payload needs,
    /// of zeros. Other fields are kept.
    ///
    /// The fields that change are those that a packet's token does not carry.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        if let IpRepr::V4(ip) = &mut self.ip {
            ip.reserved_flag = false;
            ip.dont_fragment = true;
        }
        self.udp.checksum = 0;
        self.bth.version = 0;
        self.bth.reserved6 = 0;
        self.bth.reserved7 = 0;
        self.bth.pad_count = bth::pad_count(self.payload.len());
        self.pad = [0; 3];
        self
    }

    /// Writes the frame to the start of `buffer`, with lengths, IPv4 checksum and ICRC, and returns its size in bytes. The rest of
    /// `buffer` is not changed.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] if the extended headers are not those of the opcode, [`Error::Length`] if the frame is longer than
    /// [`FRAME_BYTES_MAX`], [`Error::Truncated`] if it is longer than `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let frame_bytes = self.buffer_len();
        let extended = self.extended.as_bytes();
        if extended.len() != usize::from(opcode::EXTENDED_BYTES[usize::from(self.bth.opcode)]) {
            let (found, allowed) = (self.bth.opcode.into(), "the opcode of the extended headers");
            return Err(Error::Field { header: "BTH", field: "opcode", found, allowed });
        }
        if frame_bytes > FRAME_BYTES_MAX {
            return Err(Error::Length {
                header: "frame",
                field: "length",
                found_bytes: frame_bytes,
                least_bytes: 0,
                most_bytes: FRAME_BYTES_MAX,
            });
        }
        let found_bytes = buffer.len();
        let Some(frame) = buffer.get_mut(..frame_bytes) else {
            return Err(Error::Truncated { header: "frame", found_bytes, needed_bytes: frame_bytes });
        };

        let (header, packet) = frame.split_at_mut(self.ethernet.buffer_len());
        self.ethernet.emit(header);

        let udp_bytes = (packet.len() - self.ip.buffer_len()) as u16;
        let (header, datagram) = packet.split_at_mut(self.ip.buffer_len());
        self.ip.emit(header, udp_bytes);

        let (header, rest) = datagram.split_at_mut(udp::fields::BYTES);
        self.udp.emit(&mut UdpPacket::new_unchecked(header), udp_bytes);

        let (header, rest) = rest.split_at_mut(bth::fields::BYTES);
        self.bth.emit(&mut BthPacket::new_unchecked(header));

        let (headers, rest) = rest.split_at_mut(extended.len());
        headers.copy_from_slice(extended);
        let (payload, rest) = rest.split_at_mut(self.payload.len());
        payload.copy_from_slice(self.payload);
        let (pad, _) = rest.split_at_mut(rest.len() - icrc::BYTES);
        pad.copy_from_slice(&self.pad[..pad.len()]);

        let (covered, check) = packet.split_at_mut(packet.len() - icrc::BYTES);
        check.copy_from_slice(&icrc::compute(covered));
        Ok(frame_bytes)
    }
}

const _: () = assert!(FRAME_BYTES_MAX < u16::MAX as usize, "a frame's length fits every length field");
