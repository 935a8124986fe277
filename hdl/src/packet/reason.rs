//! Why frames are dropped, in the order in which the reasons are looked at (protocol 8.3).
//!
//! The first reason that holds is counted, and only that one, so that the counters add up to the frames.

/// Bits of the number of a reason.
pub const REASON_BITS: usize = 5;
/// Nothing is wrong.
pub const NONE: u64 = 31;

/// The MAC marked the frame as broken.
pub const MAC_ERROR: u64 = 0;
/// More than 4224 bytes.
pub const TOO_LONG: u64 = 1;
/// Shorter than its Ethernet header.
pub const SHORT_ETHERNET: u64 = 2;
/// For another station.
pub const DESTINATION_MAC: u64 = 3;
/// From a group address.
pub const SOURCE_MAC: u64 = 4;
/// Neither IPv4 nor IPv6.
pub const OTHER_ETHERTYPE: u64 = 5;
/// The IP header is truncated, or has a wrong version or length.
pub const IP_HEADER: u64 = 6;
/// The IP packet is longer than the frame.
pub const IP_LENGTH: u64 = 7;
/// The IPv4 header checksum is wrong.
pub const IP_CHECKSUM: u64 = 8;
/// A fragment.
pub const IP_FRAGMENT: u64 = 9;
/// Not UDP.
pub const OTHER_PROTOCOL: u64 = 10;
/// The IP packet is too short for a UDP header.
pub const UDP_HEADER: u64 = 11;
/// Not to port 4791.
pub const OTHER_PORT: u64 = 12;
/// Too short for BTH and ICRC, or not the length of the IP payload.
pub const UDP_LENGTH: u64 = 13;
/// The ICRC is wrong.
pub const ICRC: u64 = 14;
/// Another version of the transport header.
pub const BTH_VERSION: u64 = 15;
/// A transport that the card does not speak.
pub const UNSUPPORTED_TRANSPORT: u64 = 16;
/// Too short for the headers of its opcode.
pub const HEADER_LENGTH: u64 = 17;
/// For queue pair 0.
pub const DESTINATION_QP: u64 = 18;
/// No room left in the packet buffer.
pub const BUFFER_FULL: u64 = 19;
