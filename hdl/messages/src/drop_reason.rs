//! Why frames are dropped, in the order in which the reasons are looked at (protocol 8.3).
//!
//! The first reason that holds is counted, and only that one, so that the counters add up to the frames. The numbers are
//! those of [`DropReason`], in the form in which kernels can name them.
use rnic_layout::wire::DropReason;

/// Bits of the number of a reason.
pub const REASON_BITS: usize = 5;
/// Nothing is wrong.
pub const NONE: u64 = 31;

/// The MAC marked the frame as broken.
pub const MAC_ERROR: u64 = DropReason::MacError as u64;
/// More than 4224 bytes.
pub const TOO_LONG: u64 = DropReason::TooLong as u64;
/// Shorter than its Ethernet header.
pub const SHORT_ETHERNET: u64 = DropReason::ShortEthernet as u64;
/// For another station.
pub const DESTINATION_MAC: u64 = DropReason::DestinationMac as u64;
/// From a group address.
pub const SOURCE_MAC: u64 = DropReason::SourceMac as u64;
/// Neither IPv4 nor IPv6.
pub const OTHER_ETHERTYPE: u64 = DropReason::OtherEthertype as u64;
/// The IP header is truncated, or has a wrong version or length.
pub const IP_HEADER: u64 = DropReason::IpHeader as u64;
/// The IP packet is longer than the frame.
pub const IP_LENGTH: u64 = DropReason::IpLength as u64;
/// The IPv4 header checksum is wrong.
pub const IP_CHECKSUM: u64 = DropReason::IpChecksum as u64;
/// A fragment.
pub const IP_FRAGMENT: u64 = DropReason::IpFragment as u64;
/// Not UDP.
pub const OTHER_PROTOCOL: u64 = DropReason::OtherProtocol as u64;
/// The IP packet is too short for a UDP header.
pub const UDP_HEADER: u64 = DropReason::UdpHeader as u64;
/// Not to port 4791.
pub const OTHER_PORT: u64 = DropReason::OtherPort as u64;
/// Too short for BTH and ICRC, or not the length of the IP payload.
pub const UDP_LENGTH: u64 = DropReason::UdpLength as u64;
/// The ICRC is wrong.
pub const ICRC: u64 = DropReason::Icrc as u64;
/// Another version of the transport header.
pub const BTH_VERSION: u64 = DropReason::BthVersion as u64;
/// A transport that the card does not speak.
pub const UNSUPPORTED_TRANSPORT: u64 = DropReason::UnsupportedTransport as u64;
/// Too short for the headers of its opcode.
pub const HEADER_LENGTH: u64 = DropReason::HeaderLength as u64;
/// For queue pair 0.
pub const DESTINATION_QP: u64 = DropReason::DestinationQp as u64;
/// No room left in the packet buffer.
pub const BUFFER_FULL: u64 = DropReason::BufferFull as u64;
