//! Reasons for which frames are dropped, in the order of the checks (protocol 8.3).
//!
//! Only the first reason that applies is counted, so that the counters add up to the number of frames. The
//! numbers are those of [`DropReason`], as constants that kernels can use.
use rnic_layout::wire::DropReason;

/// Bits of the number of a drop reason.
pub const REASON_BITS: usize = 5;
/// No reason: the frame is accepted.
pub const NONE: u64 = 31;

/// The MAC marked the frame as bad.
pub const MAC_ERROR: u64 = DropReason::MacError as u64;
/// The frame is longer than 4224 bytes, or than `port_control.frame_bytes_max`.
pub const TOO_LONG: u64 = DropReason::TooLong as u64;
/// The frame is shorter than its Ethernet header.
pub const SHORT_ETHERNET: u64 = DropReason::ShortEthernet as u64;
/// The filter refuses the destination MAC address.
pub const DESTINATION_MAC: u64 = DropReason::DestinationMac as u64;
/// The source MAC address is a group address.
pub const SOURCE_MAC: u64 = DropReason::SourceMac as u64;
/// The EtherType is neither IPv4 nor IPv6.
pub const OTHER_ETHERTYPE: u64 = DropReason::OtherEthertype as u64;
/// The IP header is truncated, or has a wrong version or length.
pub const IP_HEADER: u64 = DropReason::IpHeader as u64;
/// The IP length exceeds the frame.
pub const IP_LENGTH: u64 = DropReason::IpLength as u64;
/// The IPv4 header checksum is wrong.
pub const IP_CHECKSUM: u64 = DropReason::IpChecksum as u64;
/// The IPv4 packet is a fragment.
pub const IP_FRAGMENT: u64 = DropReason::IpFragment as u64;
/// The IP protocol is not UDP.
pub const OTHER_PROTOCOL: u64 = DropReason::OtherProtocol as u64;
/// The IP payload is shorter than a UDP header.
pub const UDP_HEADER: u64 = DropReason::UdpHeader as u64;
/// The UDP destination port is not 4791.
pub const OTHER_PORT: u64 = DropReason::OtherPort as u64;
/// The UDP length is too short for BTH and ICRC, or is not the length of the IP payload.
pub const UDP_LENGTH: u64 = DropReason::UdpLength as u64;
/// The ICRC is wrong.
pub const ICRC: u64 = DropReason::Icrc as u64;
/// The version of the BTH is not 0.
pub const BTH_VERSION: u64 = DropReason::BthVersion as u64;
/// The transport of the opcode is not supported, or the opcode is unassigned.
pub const UNSUPPORTED_TRANSPORT: u64 = DropReason::UnsupportedTransport as u64;
/// The packet is too short for the headers of its opcode.
pub const HEADER_LENGTH: u64 = DropReason::HeaderLength as u64;
/// The destination QP is 0.
pub const DESTINATION_QP: u64 = DropReason::DestinationQp as u64;
/// The receive buffer has no room for the frame.
pub const BUFFER_FULL: u64 = DropReason::BufferFull as u64;
/// The queue pair of the packet has its share of the receive buffer.
pub const BUFFER_SHARE: u64 = DropReason::BufferShare as u64;
