//! The rules that frames must keep, and what is reported when a frame breaks one.
use rnic_layout::opcode;
use rnic_layout::wire::{ExtendedRepr, IpRepr, PacketRepr};
use std::fmt;

/// Rules for the frames of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Lengths of frame, IP and UDP agree, and nothing but the pad of Ethernet follows the ICRC (protocol 1.1).
    Length,
    /// The ICRC is that of the packet (protocol 1.8).
    Icrc,
    /// MAC addresses are those of path and port (protocol 1.2).
    MacAddress,
    /// The VLAN tag is present as the path says, with its tag control information (protocol 1.2).
    Vlan,
    /// IP version and addresses are those of the path (protocol 1.2).
    IpAddress,
    /// IPv4: DF, no fragment, no options, valid checksum; either version: UDP follows at once (protocol 1.2).
    IpHeader,
    /// DSCP and ECN are those of the path (protocol 1.2).
    TrafficClass,
    /// TTL or hop limit is that of the path (protocol 1.2).
    HopLimit,
    /// The IPv6 flow label is that of the path (protocol 1.2).
    FlowLabel,
    /// The UDP source port is that of the path and at least 0xC000; the destination port is 4791 (protocol 1.2).
    UdpPort,
    /// The UDP checksum is 0 (protocol 1.2).
    UdpChecksum,
    /// TVer is 0, and the opcode is assigned and of the service of the queue pair (protocol 1.3 and 1.4).
    Transport,
    /// MigReq is 1, but in a CNP (protocol 1.3 and 1.10).
    MigReq,
    /// FECN, BECN and the reserved bits of the BTH are 0 (protocol 1.3).
    Reserved,
    /// The P_Key is that of the queue pair (protocol 1.3).
    PartitionKey,
    /// The destination is the peer of one of the card's queue pairs (protocol 1.3).
    Destination,
    /// A queue pair sends only what its state permits, and no response after a NAK that ends it (protocol 4.1 and 3.2).
    State,
    /// SE is set only in the last packet of a SEND or of a WRITE with immediate (protocol 1.3).
    Solicited,
    /// The pad completes a word, and is zero (protocol 1.1 and 1.3).
    Pad,
    /// The payload is as long as opcode and PMTU require (protocol 1.4).
    PayloadLength,
    /// PSNs of requests are consecutive, a READ taking one for each of its responses; a PSN is used again only after a NAK, a
    /// fault of the wire, a timeout, or a frame that the card has dropped for lack of room, no more often without progress than the queue
    /// pair has retries, and after a NAK only if it is not acknowledged by it; it is left out only if payload could not be
    /// read; at most 2^23 are unacknowledged (protocol 2.1, 2.4 to 2.8).
    RequestPsn,
    /// FIRST, MIDDLE, LAST and ONLY form messages (protocol 2.2).
    OpcodeSequence,
    /// The payload of a WRITE adds up to the length in its RETH, which is at most 2^31, as that of a READ (protocol 2.2).
    MessageLength,
    /// No more READs and atomics are outstanding than `max_rd_atomic` allows (protocol 2.3).
    ReadDepth,
    /// AckReq is set in every 32nd packet of a message and in at least one of some messages, and never in a response
    /// (protocol 2.4).
    AckRequest,
    /// A response answers what was asked, in order, and an ACK names a SEND or WRITE and passes no unanswered READ or atomic; a NAK
    /// refuses what was not acknowledged, and NAK 0x60 a gap, once (protocol 3.2, 3.4 and 3.8).
    ResponsePsn,
    /// Opcode and length of a READ response follow from its place in the READ (protocol 3.7).
    ReadResponse,
    /// The syndrome is defined; an ACK has credit code 31, an RNR NAK the queue pair's timer code (protocol 1.6 and 2.9).
    Syndrome,
    /// A NAK that ends the queue pair, or an RNR NAK, refuses a request for which the port has seen a cause (protocol 3.6).
    Refusal,
    /// The MSN counts the messages that were completed (protocol 3.7).
    Msn,
    /// A CNP answers a packet that the network has marked, and its PSN and reserved bytes are 0 (protocol 1.10).
    Congestion,
}

impl Rule {
    /// All rules, in the order of declaration.
    pub const ALL: [Rule; 31] = [
        Rule::Length,
        Rule::Icrc,
        Rule::MacAddress,
        Rule::Vlan,
        Rule::IpAddress,
        Rule::IpHeader,
        Rule::TrafficClass,
        Rule::HopLimit,
        Rule::FlowLabel,
        Rule::UdpPort,
        Rule::UdpChecksum,
        Rule::Transport,
        Rule::MigReq,
        Rule::Reserved,
        Rule::PartitionKey,
        Rule::Destination,
        Rule::State,
        Rule::Solicited,
        Rule::Pad,
        Rule::PayloadLength,
        Rule::RequestPsn,
        Rule::OpcodeSequence,
        Rule::MessageLength,
        Rule::ReadDepth,
        Rule::AckRequest,
        Rule::ResponsePsn,
        Rule::ReadResponse,
        Rule::Syndrome,
        Rule::Refusal,
        Rule::Msn,
        Rule::Congestion,
    ];
}

/// A rule that a frame breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Rule that is broken.
    pub rule: Rule,
    /// QPN of the sender; `None` if the frame is of no known queue pair.
    pub qp_number: Option<u32>,
    /// What was found, and what is allowed.
    pub text: String,
    /// The headers of the frame in one line.
    pub frame: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.qp_number {
            Some(number) => write!(f, "QP {number:#08x}: ")?,
            None => write!(f, "no QP: ")?,
        }
        write!(f, "{:?}: {}\n    {}", self.rule, self.text, self.frame)
    }
}

/// Collects what a frame breaks.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Rules that are broken, each with what was found.
    pub(crate) broken: Vec<(Rule, String)>,
    /// What was found of a request that is sent again without a reason that the port has seen: it breaks [`Rule::RequestPsn`] unless the
    /// card has dropped a frame for lack of room (see [`crate::unexplained`]).
    pub(crate) doubtful: Option<String>,
}

impl Findings {
    /// Number of findings, doubtful ones included.
    pub(crate) fn count(&self) -> usize {
        self.broken.len() + usize::from(self.doubtful.is_some())
    }

    /// Adds what was found elsewhere.
    pub(crate) fn append(&mut self, mut other: Findings) {
        self.broken.append(&mut other.broken);
        self.doubtful = self.doubtful.take().or(other.doubtful);
    }

    /// Notes that a request is sent again without a reason that the port has seen.
    #[cold]
    pub(crate) fn doubt(&mut self, text: impl FnOnce() -> String) {
        self.doubtful = Some(text());
    }

    /// Adds a finding if a value is not the one that is allowed.
    pub(crate) fn compare<T: PartialEq + fmt::Debug>(
        &mut self,
        rule: Rule,
        what: &str,
        found: T,
        allowed: T,
    ) {
        if found != allowed {
            self.add(rule, || format!("{what} is {found:x?}, allowed is {allowed:x?}"));
        }
    }

    /// Adds a finding if a condition does not hold.
    pub(crate) fn ensure(&mut self, rule: Rule, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.add(rule, text);
        }
    }

    /// Adds a finding.
    #[cold]
    pub(crate) fn add(&mut self, rule: Rule, text: impl FnOnce() -> String) {
        self.broken.push((rule, text()));
    }
}

/// The headers of a packet in one line.
#[cold]
pub(crate) fn line(packet: &PacketRepr) -> String {
    let PacketRepr { ethernet, ip, udp, bth, payload, .. } = packet;
    let name = opcode::lookup(bth.opcode).map_or("unassigned", |row| row.name);
    let mac = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
    let vlan = ethernet.vlan.map_or("untagged".into(), |tag| format!("VLAN tag {:#06x}", tag.control()));
    let (source, destination) = match ip {
        IpRepr::V4(ip) => (ip.source.to_string(), ip.destination.to_string()),
        IpRepr::V6(ip) => (ip.source.to_string(), ip.destination.to_string()),
    };
    let flags = [(bth.solicited, " SE"), (bth.ack_request, " AckReq")];
    let flags: String = flags.into_iter().filter(|flag| flag.0).map(|flag| flag.1).collect();
    let mut text = format!(
        "{name} PSN {} to QP {:#08x}{flags}, {} B + {} pad; {} > {}, {vlan}, {source} port {} > {destination}, \
         class {:#04x}, hops {}, P_Key {:#06x}",
        bth.psn,
        bth.destination_qp,
        payload.len(),
        bth.pad_count,
        mac(ethernet.source.0),
        mac(ethernet.destination.0),
        udp.source_port,
        ip.traffic_class(),
        ip.hop_limit(),
        bth.partition_key,
    );
    for header in packet.extended_headers() {
        text += &match header {
            ExtendedRepr::Reth(reth) => {
                let (address, key, length) = (reth.virtual_address, reth.remote_key, reth.dma_length);
                format!("; RETH {address:#x} key {key:#x} length {length}")
            }
            ExtendedRepr::Aeth(aeth) => format!("; AETH {:#04x} MSN {}", aeth.syndrome, aeth.msn),
            other => format!("; {other:x?}"),
        };
    }
    text
}

/// The first bytes of a frame that is no packet, in one line.
#[cold]
pub(crate) fn hexadecimal(frame: &[u8]) -> String {
    let shown: String = frame.iter().take(80).map(|byte| format!("{byte:02x}")).collect();
    format!("{} B: {shown}{}", frame.len(), if frame.len() > 80 { "…" } else { "" })
}
