//! A whole frame: every header, payload, pad and ICRC, to and from bytes (protocol 1.1).
//!
//! ```text
//!  Ethernet  [802.1Q]  IPv4 | IPv6  UDP  BTH  extended  payload  pad   ICRC  [Ethernet's pad]
//!  14        4         20   | 40    8    12   0..28     0..4096  0..3  4     0..n
//!                      '-------------- covered by the ICRC ----------'
//! ```
//!
//! The ICRC stands where the lengths say, never at the end of the frame: an Ethernet MAC fills short frames
//! up behind it.

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

/// A RoCEv2 packet, complete: its frame can be written again byte for byte, up to and including the ICRC.
///
/// Lengths, IPv4 checksum and ICRC are not here, since [`emit`](Self::emit) computes them. One checksum has
/// two spellings: a header that sums to 0xFFFF without it may carry 0x0000 or 0xFFFF. Both are accepted,
/// 0x0000 is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRepr<'a> {
    /// Ethernet, and the VLAN tag if there is one.
    pub ethernet: EthernetRepr,
    /// IPv4 or IPv6.
    pub ip: IpRepr,
    /// UDP.
    pub udp: UdpRepr,
    /// Base transport header.
    pub bth: BthRepr,
    /// The extended headers that the opcode calls for.
    pub extended: Extended,
    /// What the packet carries, without pad.
    pub payload: &'a [u8],
    /// The pad; `bth.pad_count` says how many of these bytes count.
    pub pad: [u8; 3],
}

impl<'a> PacketRepr<'a> {
    /// Takes a frame apart, whoever it is for.
    ///
    /// It refuses what [`classify`](super::classify()) refuses, except that addresses, destination QP and
    /// ICRC may be anything: see [`icrc::agrees`].
    ///
    /// # Errors
    ///
    /// An [`Error`] that names header and field of the first thing that is wrong.
    pub fn parse(frame: &'a [u8]) -> Result<Self, Error> {
        dissect(frame, None).map_err(|refusal| refusal.error)
    }

    /// Returns the bytes of all headers, before the payload.
    pub fn header_bytes(&self) -> usize {
        self.ethernet.buffer_len()
            + self.ip.buffer_len()
            + self.udp.buffer_len()
            + self.bth.buffer_len()
            + self.extended.as_bytes().len()
    }

    /// Returns the bytes of the frame that [`emit`](Self::emit) writes, ICRC included and without FCS.
    pub fn buffer_len(&self) -> usize {
        self.header_bytes() + self.payload.len() + usize::from(self.bth.pad_count & 3) + icrc::BYTES
    }

    /// Takes the extended headers apart, in wire order.
    pub fn extended_headers(&self) -> impl Iterator<Item = ExtendedRepr> + '_ {
        self.extended.headers(self.bth.opcode)
    }

    /// Returns the packet as the card itself would send it: don't-fragment set, no UDP checksum, reserved
    /// bits zero, and the pad that the payload needs, zero as well. All else stays.
    ///
    /// These are the fields that a packet's token does not carry.
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

    /// Writes the frame to the start of `buffer`, with lengths, IPv4 checksum and ICRC, and returns its
    /// bytes. Bytes of `buffer` behind it stay as they are.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] when the extended headers are not those of the opcode, [`Error::Length`] when the
    /// frame is longer than [`FRAME_BYTES_MAX`], [`Error::Truncated`] when it is longer than `buffer`.
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
