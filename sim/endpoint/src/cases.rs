//! The error table and the fuzz table as frames: what to send to a queue pair, and the required reaction
//! (protocol 3.6 and 8.3).
//!
//! A case is self-contained: it specifies the setup of the queue pair, the frames, and the whole reaction:
//! packets on the wire, the state of the queue pair, and what its software sees. It needs no endpoint, and so applies to any
//! responder, the endpoint and the card. [`request_cases`] attack a responder, [`response_cases`] a requester with one WRITE in
//! flight.

use rnic_layout::limits::MESSAGE_BYTES_MAX;
use rnic_layout::path::{Gid, Pmtu};
use rnic_layout::psn::{HALF_WINDOW, Psn};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::wire::extended::{
    AethRepr, AtomicAckEthRepr, AtomicEthRepr, IethRepr, ImmediateRepr, RethRepr,
};
use rnic_layout::wire::{BthRepr, ExtendedRepr, MacAddress};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::fault::Fault;
use super::memory::Rights;
use super::packet::{Packet, Path};

/// The queue pair under attack, as the test has set it up.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Path from the attacker, which plays the peer, to the queue pair.
    pub path: Path,
    /// QPN of the queue pair.
    pub number: u32,
    /// A QPN that does not exist.
    pub unknown_number: u32,
    /// Path MTU.
    pub pmtu: Pmtu,
    /// PSN that the queue pair expects.
    pub expected_psn: Psn,
    /// Messages that the queue pair has executed.
    pub msn: Psn,
    /// R_Key, first address and length of a region in the same protection domain with all rights. It has room for at least
    /// three packets, and the keys next to its key are invalid.
    pub region: (u32, u64, u64),
    /// Key of a region in the same protection domain without remote rights, with the same first address.
    pub local_key: u32,
    /// Key of a region in another protection domain with all rights, with the same first address.
    pub foreign_key: u32,
    /// Length of each receive buffer that a case wants posted: less than a path MTU.
    pub receive_bytes: u32,
    /// Timer code of its RNR NAKs.
    pub min_rnr_timer: u8,
}

/// Receives that a case wants posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    /// No receive is posted.
    None,
    /// Two receives of [`Target::receive_bytes`].
    Two,
    /// One receive of that size whose only SGE has an invalid key.
    BadKey,
}

/// An expected ACK, RNR NAK or NAK, relative to the target's PSN and MSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Syndrome. Of an ACK only the class is compared, as credits are up to the responder.
    pub syndrome: u8,
    /// PSN minus the expected one.
    pub psn: i32,
    /// MSN minus the current one.
    pub msn: u32,
}

impl Answer {
    /// Compares with a packet from the wire.
    pub fn agrees(&self, target: &Target, syndrome: u8, psn: Psn, msn: Psn) -> bool {
        let positive = |syndrome: u8| syndrome >> 5 == 0;
        (self.syndrome == syndrome || positive(self.syndrome) && positive(syndrome))
            && psn == target.expected_psn.add(self.psn as u32)
            && msn == target.msn.add(self.msn)
    }
}

/// What the software of the queue pair sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing; the queue pair keeps working.
    GoesOn,
    /// The queue pair is in ERR and raises this event.
    Event(AsyncEvent),
    /// The queue pair is in ERR, and the receive that was consumed completes with this status.
    Receive(CompletionStatus),
}

/// An attack on a responder.
#[derive(Clone, Debug)]
pub struct RequestCase {
    /// The fault.
    pub name: String,
    /// Section of the protocol that specifies the reaction.
    pub section: &'static str,
    /// Remote rights of the queue pair.
    pub rights: Rights,
    /// READs and atomics that the responder must be able to hold.
    pub destination_read_atomic: u8,
    /// Receives that must be posted.
    pub receives: Receives,
    /// Frames to send, in order.
    pub frames: Vec<Vec<u8>>,
    /// Packets that must come back, in order, and no others.
    pub answers: Vec<Answer>,
    /// What becomes of the queue pair.
    pub ending: Ending,
    /// Number of messages that are executed nevertheless, and of the PSNs that they take.
    pub executed: (u32, u32),
    /// Receives that complete with success.
    pub received: u32,
}

/// What must become of the WRITE in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays in flight.
    InFlight,
    /// It completes with this status; unless that is success, the queue pair is in ERR.
    Completes(CompletionStatus),
    /// It is retransmitted after the time of the RNR NAK, in microseconds, if a retry is left.
    AgainAfter(u32),
    /// It is retransmitted at once, if a retry is left.
    AgainNow,
}

/// An attack on a requester with a WRITE of one packet in flight, whose PSN is [`Target::expected_psn`].
#[derive(Clone, Debug)]
pub struct ResponseCase {
    /// The fault.
    pub name: String,
    /// Section of the protocol that specifies the reaction.
    pub section: &'static str,
    /// Frames to send, in order.
    pub frames: Vec<Vec<u8>>,
    /// What becomes of the WRITE.
    pub fate: Fate,
}

mod op {
    //! Opcodes of RC, spelt out so that a case reads like the wire.
    pub(super) const SEND_FIRST: u8 = 0x00;
    pub(super) const SEND_MIDDLE: u8 = 0x01;
    pub(super) const SEND_LAST: u8 = 0x02;
    pub(super) const SEND_LAST_IMM: u8 = 0x03;
    pub(super) const SEND_ONLY: u8 = 0x04;
    pub(super) const WRITE_FIRST: u8 = 0x06;
    pub(super) const WRITE_MIDDLE: u8 = 0x07;
    pub(super) const WRITE_LAST: u8 = 0x08;
    pub(super) const WRITE_LAST_IMM: u8 = 0x09;
    pub(super) const WRITE_ONLY: u8 = 0x0a;
    pub(super) const WRITE_ONLY_IMM: u8 = 0x0b;
    pub(super) const READ_REQUEST: u8 = 0x0c;
    pub(super) const READ_RESPONSE_ONLY: u8 = 0x10;
    pub(super) const ACKNOWLEDGE: u8 = 0x11;
    pub(super) const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    pub(super) const COMPARE_SWAP: u8 = 0x13;
    pub(super) const FETCH_ADD: u8 = 0x14;
    pub(super) const SEND_LAST_INV: u8 = 0x16;
    pub(super) const SEND_ONLY_INV: u8 = 0x17;
}

/// Makes the packets of the target's peer.
struct Attacker<'a> {
    target: &'a Target,
    cases: Vec<RequestCase>,
}

impl Attacker<'_> {
    fn bth(&self, code: u8, psn: i32) -> BthRepr {
        let psn = self.target.expected_psn.add(psn as u32);
        BthRepr { ack_request: true, ..BthRepr::new(code, self.target.number, psn) }
    }

    fn frame(&self, bth: BthRepr, headers: Vec<ExtendedRepr>, bytes: usize) -> Vec<u8> {
        let payload = (0..bytes).map(|index| (index * 37) as u8).collect();
        Packet::new(bth, headers, payload).frame(&self.target.path, 1)
    }

    /// A request without extended headers: SEND, or MIDDLE or LAST of a WRITE.
    fn plain(&self, code: u8, psn: i32, bytes: usize) -> Vec<u8> {
        self.frame(self.bth(code, psn), Vec::new(), bytes)
    }

    fn with_immediate(&self, code: u8, psn: i32, bytes: usize) -> Vec<u8> {
        let header = ExtendedRepr::Immediate(ImmediateRepr { data: 0x0102_0304 });
        self.frame(self.bth(code, psn), vec![header], bytes)
    }

    fn with_key(&self, code: u8, psn: i32, remote_key: u32, bytes: usize) -> Vec<u8> {
        self.frame(self.bth(code, psn), vec![ExtendedRepr::Ieth(IethRepr { remote_key })], bytes)
    }

    fn with_reth(&self, code: u8, psn: i32, reth: RethRepr, bytes: usize) -> Vec<u8> {
        let mut headers = vec![ExtendedRepr::Reth(reth)];
        if code == op::WRITE_ONLY_IMM {
            headers.push(ExtendedRepr::Immediate(ImmediateRepr { data: 0x0506_0708 }));
        }
        self.frame(self.bth(code, psn), headers, bytes)
    }

    /// A RETH for the beginning of the region.
    fn reth(&self, bytes: usize) -> RethRepr {
        let (remote_key, virtual_address, _) = self.target.region;
        RethRepr { virtual_address, remote_key, dma_length: bytes as u32 }
    }

    fn atomic(&self, code: u8, psn: i32, change: impl FnOnce(&mut AtomicEthRepr)) -> Vec<u8> {
        let (remote_key, first, _) = self.target.region;
        let virtual_address = first.next_multiple_of(8);
        let mut header = AtomicEthRepr { virtual_address, remote_key, swap_add: 1, compare: 0 };
        change(&mut header);
        self.frame(self.bth(code, psn), vec![ExtendedRepr::AtomicEth(header)], 0)
    }

    /// A valid WRITE of one packet.
    fn write(&self, psn: i32, bytes: usize) -> Vec<u8> {
        self.with_reth(op::WRITE_ONLY, psn, self.reth(bytes), bytes)
    }

    fn spoiled_write(&self, faults: &[Fault]) -> Vec<u8> {
        let mut frame = self.write(0, 13);
        faults.iter().for_each(|fault| fault.apply(&mut frame));
        frame
    }

    /// Adds a case and returns it, to be changed.
    fn case(
        &mut self,
        name: impl Into<String>,
        section: &'static str,
        frames: Vec<Vec<u8>>,
    ) -> &mut RequestCase {
        self.cases.push(RequestCase {
            name: name.into(),
            section,
            rights: Rights::ALL,
            destination_read_atomic: 4,
            receives: Receives::Two,
            frames,
            answers: Vec::new(),
            ending: Ending::GoesOn,
            executed: (0, 0),
            received: 0,
        });
        self.cases.last_mut().expect("it was just added")
    }
}

impl RequestCase {
    fn answered(&mut self, syndrome: u8, psn: i32, msn: u32) -> &mut Self {
        self.answers.push(Answer { syndrome, psn, msn });
        self
    }

    /// The first packet is executed and acknowledged.
    fn accepted(&mut self) -> &mut Self {
        self.executed = (1, 1);
        self.answered(0x1f, 0, 1)
    }

    /// The packet with this PSN is refused, and the queue pair fails.
    fn refused(&mut self, syndrome: u8, psn: i32) -> &mut Self {
        let event = if syndrome == 0x62 {
            AsyncEvent::QueuePairAccessError
        } else {
            AsyncEvent::QueuePairRequestError
        };
        self.ending = Ending::Event(event);
        self.answered(syndrome, psn, 0)
    }

    /// The receive that was consumed completes with this status.
    fn with_receive(&mut self, status: CompletionStatus) -> &mut Self {
        self.ending = Ending::Receive(status);
        self
    }
}

/// All attacks on a responder.
pub fn request_cases(target: &Target) -> Vec<RequestCase> {
    let mut attacker = Attacker { target, cases: Vec::new() };
    silent_cases(&mut attacker);
    accepted_cases(&mut attacker);
    psn_cases(&mut attacker);
    opcode_cases(&mut attacker);
    message_cases(&mut attacker);
    length_cases(&mut attacker);
    key_cases(&mut attacker);
    receive_cases(&mut attacker);
    read_and_atomic_cases(&mut attacker);
    attacker.cases
}

/// Row 1: the packet is dropped silently, and nothing changes.
fn silent_cases(attacker: &mut Attacker) {
    let target = *attacker.target;
    let is_ipv4 = target.path.remote.to_ipv4().is_some();
    let other_gid = if is_ipv4 {
        Gid::from_ipv4(Ipv4Addr::new(198, 51, 100, 7))
    } else {
        Gid::from_ipv6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7))
    };
    let mut faults = vec![
        vec![Fault::DestinationMac(MacAddress([2, 0xff, 0, 0, 0, 0x55]))],
        vec![Fault::SourceMac(MacAddress([1, 0, 0x5e, 0, 0, 1]))],
        vec![Fault::Ethertype(0x8915)],
        vec![Fault::Ethertype(0x88b5)],
        vec![Fault::IpFirstByte(0x55)],
        vec![Fault::IpLength(1)],
        vec![Fault::IpLength(-4)],
        vec![Fault::Protocol(6)],
        vec![Fault::SourceAddress(other_gid)],
        vec![Fault::DestinationAddress(other_gid)],
        vec![Fault::DestinationPort(4790)],
        vec![Fault::UdpLength(4)],
        vec![Fault::UdpLength(-4)],
        vec![Fault::UdpLength(1)],
        vec![Fault::UdpLength(-1)],
        vec![Fault::IpLength(-1)],
        vec![Fault::Icrc(1)],
        vec![Fault::Icrc(0x8000_0000)],
        vec![Fault::Version(1)],
        vec![Fault::Version(8)],
        // UC, UD, RD, XRC, and a manufacturer's.
        vec![Fault::Opcode(0x2a)],
        vec![Fault::Opcode(0x64)],
        vec![Fault::Opcode(0x4a)],
        vec![Fault::Opcode(0xaa)],
        vec![Fault::Opcode(0xca)],
        vec![Fault::PartitionKey(0xfffe)],
        vec![Fault::PartitionKey(0x8000)],
        vec![Fault::PartitionKey(0)],
        vec![Fault::DestinationQp(0)],
        vec![Fault::DestinationQp(target.unknown_number)],
    ];
    // One bit of each header and of the payload, all covered by the ICRC.
    let headers_bytes = if is_ipv4 { 20 } else { 40 };
    for byte in [
        headers_bytes - 5,
        headers_bytes,
        headers_bytes + 8,
        headers_bytes + 16,
        headers_bytes + 19,
        headers_bytes + 22,
        headers_bytes + 40,
    ] {
        faults.push(vec![Fault::FlipBit(8 * byte + byte % 8)]);
    }
    if is_ipv4 {
        faults.extend([
            vec![Fault::IpFirstByte(0x44)],
            vec![Fault::IpFirstByte(0x46)],
            vec![Fault::IpChecksum(0x0100)],
            vec![Fault::MoreFragments],
            vec![Fault::FragmentOffset(1)],
        ]);
    } else {
        // A destination options header.
        faults.push(vec![Fault::Protocol(60)]);
    }
    for faults in faults {
        let frame = attacker.spoiled_write(&faults);
        attacker.case(format!("{faults:?}"), "protocol 3.6 row 1, 8.3", vec![frame]);
    }
}

/// Fields that the responder must ignore.
fn accepted_cases(attacker: &mut Attacker) {
    let mut faults = vec![
        Fault::EthernetPad(1),
        Fault::EthernetPad(18),
        Fault::SourcePort(0),
        Fault::SourcePort(4791),
        Fault::UdpChecksum(0xbad1),
        Fault::TrafficClass(0x69),
        Fault::HopLimit(1),
        Fault::CongestionByte(0xff),
        Fault::Reserved7(0x7f),
        Fault::Migrated(false),
        Fault::PadBytes(0xff),
        Fault::Solicited(true),
        // A limited member of the partition that the queue pair is a full member of.
        Fault::PartitionKey(0x7fff),
    ];
    if attacker.target.path.remote.to_ipv4().is_none() {
        faults.push(Fault::FlowLabel(0xf_ffff));
    }
    for fault in faults {
        let frame = attacker.spoiled_write(std::slice::from_ref(&fault));
        attacker.case(format!("{fault:?}"), "protocol 8.3", vec![frame]).accepted();
    }
    let nowhere = RethRepr { virtual_address: u64::MAX, remote_key: !0, dma_length: 0 };
    let frame = attacker.with_reth(op::WRITE_ONLY, 0, nowhere, 0);
    attacker.case("empty WRITE to nowhere", "protocol 3.6, 8.3", vec![frame]).accepted();
    let (key, first, bytes) = attacker.target.region;
    let pmtu_bytes = u64::from(attacker.target.pmtu.bytes());
    for at in [first, first + bytes - pmtu_bytes] {
        let length = pmtu_bytes as usize;
        let reth = RethRepr { virtual_address: at, remote_key: key, dma_length: length as u32 };
        let frame = attacker.with_reth(op::WRITE_ONLY, 0, reth, length);
        attacker.case(format!("WRITE of one PMTU to {at:#x}"), "protocol 3.6", vec![frame]).accepted();
    }
    let frame = attacker.spoiled_write(&[Fault::AckRequest(false)]);
    attacker.case("AckReq 0", "protocol 8.3", vec![frame]).executed = (1, 1);
}

fn psn_cases(attacker: &mut Attacker) {
    const SECTION: &str = "protocol 3.2";
    let (ahead, behind) = (HALF_WINDOW as i32 - 1, HALF_WINDOW as i32);
    for gap in [1, 2, ahead] {
        let frames = vec![attacker.write(gap, 8)];
        attacker.case(format!("gap of {gap}"), SECTION, frames).answered(0x60, 0, 0);
    }
    let frames = vec![attacker.write(1, 8), attacker.write(2, 8), attacker.write(1, 8)];
    attacker.case("three gaps, one NAK", SECTION, frames).answered(0x60, 0, 0);
    let frames = vec![attacker.write(1, 8), attacker.write(0, 8), attacker.write(3, 8)];
    let case = attacker.case("a gap, its filling, another gap", SECTION, frames);
    case.answered(0x60, 0, 0).accepted().answered(0x60, 1, 1);
    for back in [1, 2, behind] {
        // The key is wrong, but must not be checked.
        let reth = RethRepr { remote_key: !0, ..attacker.reth(8) };
        let frames = vec![attacker.with_reth(op::WRITE_ONLY, -back, reth, 8)];
        let case = attacker.case(format!("duplicate WRITE, {back} behind"), "protocol 3.4", frames);
        case.answered(0x1f, -1, 0);
    }
    let frames = vec![attacker.plain(op::SEND_ONLY, -1, 8)];
    attacker.case("duplicate SEND takes no receive", "protocol 3.4", frames).answered(0x1f, -1, 0);
    let frames = vec![attacker.write(1, 8), attacker.write(-1, 8)];
    let case = attacker.case("a duplicate is answered while a NAK is out", SECTION, frames);
    case.answered(0x60, 0, 0).answered(0x1f, -1, 0);
    let mut quiet = attacker.write(-1, 8);
    Fault::AckRequest(false).apply(&mut quiet);
    attacker.case("a duplicate that asks for nothing", "protocol 3.12, trace F", vec![quiet]);
}

fn opcode_cases(attacker: &mut Attacker) {
    let pmtu_bytes = attacker.target.pmtu.bytes() as usize;
    for code in [0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f] {
        let mut frame = attacker.plain(op::SEND_ONLY, 0, 8);
        Fault::Opcode(code).apply(&mut frame);
        let case = attacker.case(format!("opcode {code:#04x}"), "protocol 3.6 row 3", vec![frame]);
        case.refused(0x61, 0);
    }
    const ORDER: &str = "protocol 3.6 row 4";
    for (name, code, bytes) in [
        ("SEND_MIDDLE", op::SEND_MIDDLE, pmtu_bytes),
        ("SEND_LAST", op::SEND_LAST, 8),
        ("WRITE_MIDDLE", op::WRITE_MIDDLE, pmtu_bytes),
        ("WRITE_LAST", op::WRITE_LAST, 8),
    ] {
        let frames = vec![attacker.plain(code, 0, bytes)];
        attacker.case(format!("{name} without FIRST"), ORDER, frames).refused(0x61, 0);
    }
    for (name, code) in [("SEND_LAST_IMM", op::SEND_LAST_IMM), ("WRITE_LAST_IMM", op::WRITE_LAST_IMM)] {
        let frames = vec![attacker.with_immediate(code, 0, 8)];
        attacker.case(format!("{name} without FIRST"), ORDER, frames).refused(0x61, 0);
    }
    let frames = vec![attacker.with_key(op::SEND_LAST_INV, 0, attacker.target.region.0, 8)];
    attacker.case("SEND_LAST_INV without FIRST", ORDER, frames).refused(0x61, 0);
    // Inside a WRITE of two packets.
    let begin = || {
        let mut frame = attacker.with_reth(op::WRITE_FIRST, 0, attacker.reth(pmtu_bytes + 8), pmtu_bytes);
        Fault::AckRequest(false).apply(&mut frame);
        frame
    };
    let inside = [
        ("WRITE_ONLY", attacker.write(1, 8)),
        ("WRITE_FIRST", attacker.with_reth(op::WRITE_FIRST, 1, attacker.reth(2 * pmtu_bytes), pmtu_bytes)),
        ("SEND_ONLY", attacker.plain(op::SEND_ONLY, 1, 8)),
        ("SEND_MIDDLE", attacker.plain(op::SEND_MIDDLE, 1, pmtu_bytes)),
        ("SEND_LAST", attacker.plain(op::SEND_LAST, 1, 8)),
        ("READ_REQUEST", attacker.with_reth(op::READ_REQUEST, 1, attacker.reth(8), 0)),
        ("FETCH_ADD", attacker.atomic(op::FETCH_ADD, 1, |_| {})),
    ];
    let cases = inside.map(|(name, frame)| (format!("{name} inside a WRITE"), vec![begin(), frame]));
    for (name, frames) in cases {
        let case = attacker.case(name, ORDER, frames).refused(0x61, 1);
        case.executed = (0, 1);
    }
    const RIGHTS: &str = "protocol 3.6 row 5";
    let none = Rights { local_write: true, ..Rights::NONE };
    let disabled = [
        ("WRITE", attacker.write(0, 8)),
        ("empty WRITE", attacker.with_reth(op::WRITE_ONLY, 0, attacker.reth(0), 0)),
        ("WRITE_IMM", attacker.with_reth(op::WRITE_ONLY_IMM, 0, attacker.reth(8), 8)),
        ("READ", attacker.with_reth(op::READ_REQUEST, 0, attacker.reth(8), 0)),
        ("FETCH_ADD", attacker.atomic(op::FETCH_ADD, 0, |_| {})),
        ("COMPARE_SWAP", attacker.atomic(op::COMPARE_SWAP, 0, |_| {})),
    ];
    for (name, frame) in disabled {
        let case = attacker.case(format!("{name}, not allowed here"), RIGHTS, vec![frame]);
        case.refused(0x61, 0).rights = none;
    }
    let frame = attacker.plain(op::SEND_ONLY, 0, 8);
    let case = attacker.case("SEND needs no right", RIGHTS, vec![frame]).accepted();
    (case.rights, case.received) = (none, 1);
}

/// Messages of several packets in which nothing is wrong, or something that does not end them.
fn message_cases(attacker: &mut Attacker) {
    let pmtu_bytes = attacker.target.pmtu.bytes() as usize;
    let quiet = |mut frame: Vec<u8>| {
        Fault::AckRequest(false).apply(&mut frame);
        frame
    };
    let first = |total| attacker.with_reth(op::WRITE_FIRST, 0, attacker.reth(total), pmtu_bytes);
    let last = |psn, bytes| attacker.plain(op::WRITE_LAST, psn, bytes);
    let middle = quiet(attacker.plain(op::WRITE_MIDDLE, 1, pmtu_bytes));
    let immediate = attacker.with_immediate(op::WRITE_LAST_IMM, 1, pmtu_bytes);
    let two = pmtu_bytes + 8;
    let cases = [
        (
            "WRITE of three packets",
            "protocol 3.7",
            vec![quiet(first(2 * pmtu_bytes + 1)), middle, last(2, 1)],
        ),
        ("WRITE_IMM of two PMTUs", "protocol 3.7", vec![quiet(first(2 * pmtu_bytes)), immediate]),
        ("WRITE_FIRST asks for an answer", "protocol 3.8", vec![first(two), last(1, 8)]),
        ("WRITE_FIRST twice", "protocol 3.4", vec![quiet(first(two)), first(two), last(1, 8)]),
        ("a gap inside a WRITE", "protocol 3.2", vec![quiet(first(two)), last(2, 8), last(1, 8)]),
    ];
    for (place, (name, section, frames)) in cases.into_iter().enumerate() {
        let case = attacker.case(name, section, frames);
        case.executed = (1, if place == 0 { 3 } else { 2 });
        case.received = u32::from(place == 1);
        match place {
            0 => case.answered(0x1f, 2, 1),
            1 => case.answered(0x1f, 1, 1),
            2 | 3 => case.answered(0x1f, 0, 0).answered(0x1f, 1, 1),
            _ => case.answered(0x60, 1, 0).answered(0x1f, 1, 1),
        };
    }
}

fn length_cases(attacker: &mut Attacker) {
    const PACKET: &str = "protocol 3.6 row 8";
    const MESSAGE: &str = "protocol 3.6 row 9";
    let pmtu_bytes = attacker.target.pmtu.bytes() as usize;
    for bytes in [pmtu_bytes + 1, pmtu_bytes + 4] {
        let frame = attacker.with_reth(op::WRITE_ONLY, 0, attacker.reth(bytes), bytes);
        attacker.case(format!("WRITE_ONLY of {bytes}"), PACKET, vec![frame]).refused(0x61, 0);
    }
    let frame = attacker.plain(op::SEND_ONLY, 0, pmtu_bytes + 4);
    let case = attacker.case("SEND_ONLY longer than the PMTU", PACKET, vec![frame]).refused(0x61, 0);
    case.with_receive(CompletionStatus::RemoteInvalidRequest);
    for bytes in [0, pmtu_bytes - 4, pmtu_bytes + 4] {
        let frame = attacker.with_reth(op::WRITE_FIRST, 0, attacker.reth(2 * pmtu_bytes), bytes);
        attacker.case(format!("WRITE_FIRST of {bytes}"), PACKET, vec![frame]).refused(0x61, 0);
        let frame = attacker.plain(op::SEND_FIRST, 0, bytes);
        let case = attacker.case(format!("SEND_FIRST of {bytes}"), PACKET, vec![frame]).refused(0x61, 0);
        case.with_receive(CompletionStatus::RemoteInvalidRequest);
    }
    for count in [0, 1, 2] {
        // Thirteen bytes need a pad of three; the payload's length changes with the count.
        let frame = attacker.spoiled_write(&[Fault::PadCount(count)]);
        attacker.case(format!("pad of {count} for 3"), PACKET, vec![frame]).refused(0x61, 0);
    }
    pad_cases(attacker);
    for by in [-1, 1] {
        let reth = attacker.reth((13 + by) as usize);
        let frame = attacker.with_reth(op::WRITE_ONLY, 0, reth, 13);
        attacker.case(format!("RETH length off by {by}"), MESSAGE, vec![frame]).refused(0x61, 0);
    }
    for dma_length in [MESSAGE_BYTES_MAX + 1, u32::MAX] {
        let reth = RethRepr { dma_length, ..attacker.reth(0) };
        let frame = attacker.with_reth(op::WRITE_FIRST, 0, reth, pmtu_bytes);
        attacker.case(format!("WRITE of {dma_length:#x}"), PACKET, vec![frame]).refused(0x61, 0);
        let frame = attacker.with_reth(op::READ_REQUEST, 0, reth, 0);
        attacker.case(format!("READ of {dma_length:#x}"), PACKET, vec![frame]).refused(0x61, 0);
    }
    let first = |total: usize| {
        let mut frame = attacker.with_reth(op::WRITE_FIRST, 0, attacker.reth(total), pmtu_bytes);
        Fault::AckRequest(false).apply(&mut frame);
        frame
    };
    let continued = [
        ("WRITE_LAST of nothing", PACKET, first(pmtu_bytes + 8), attacker.plain(op::WRITE_LAST, 1, 0)),
        (
            "WRITE_LAST longer than the PMTU",
            PACKET,
            first(2 * pmtu_bytes + 4),
            attacker.plain(op::WRITE_LAST, 1, pmtu_bytes + 4),
        ),
        (
            "WRITE_MIDDLE shorter than the PMTU",
            PACKET,
            first(3 * pmtu_bytes),
            attacker.plain(op::WRITE_MIDDLE, 1, pmtu_bytes - 4),
        ),
        ("WRITE ends short", MESSAGE, first(pmtu_bytes + 8), attacker.plain(op::WRITE_LAST, 1, 7)),
        (
            "WRITE_LAST exceeds the DMA length",
            MESSAGE,
            first(pmtu_bytes + 8),
            attacker.plain(op::WRITE_LAST, 1, 9),
        ),
        (
            "WRITE_MIDDLE exceeds the DMA length",
            MESSAGE,
            first(2 * pmtu_bytes - 1),
            attacker.plain(op::WRITE_MIDDLE, 1, pmtu_bytes),
        ),
        ("WRITE was complete", MESSAGE, first(pmtu_bytes), attacker.plain(op::WRITE_LAST, 1, 1)),
    ];
    for (name, section, first, second) in continued {
        let case = attacker.case(name, section, vec![first, second]).refused(0x61, 1);
        case.executed = (0, 1);
    }
    let frame = attacker.with_reth(op::WRITE_FIRST, 0, attacker.reth(pmtu_bytes - 1), pmtu_bytes);
    attacker.case("WRITE_FIRST exceeds the DMA length", MESSAGE, vec![frame]).refused(0x61, 0);
    // The length is checked before the key.
    let reth = RethRepr { remote_key: !0, ..attacker.reth(12) };
    let frame = attacker.with_reth(op::WRITE_ONLY, 0, reth, 13);
    attacker.case("wrong length and wrong key", "protocol 3.1", vec![frame]).refused(0x61, 0);
}

/// Row 8: a pad that the payload does not need. All else is right, so the UDP length is no multiple of four.
fn pad_cases(attacker: &mut Attacker) {
    const SECTION: &str = "protocol 3.6 row 8";
    let pmtu_bytes = attacker.target.pmtu.bytes() as usize;
    for bytes in [0, 8, 13, 14, 15, pmtu_bytes] {
        for count in (0..4).filter(|count| usize::from(*count) != bytes.wrapping_neg() % 4) {
            let mut frame = attacker.write(0, bytes);
            Fault::Pad(count).apply(&mut frame);
            let name = format!("pad of {count} after {bytes} bytes of a WRITE");
            attacker.case(name, SECTION, vec![frame]).refused(0x61, 0);
        }
    }
    for (bytes, count) in [(8, 1), (8, 2), (8, 3), (9, 0), (10, 0), (11, 0)] {
        let mut frame = attacker.plain(op::SEND_ONLY, 0, bytes);
        Fault::Pad(count).apply(&mut frame);
        let name = format!("pad of {count} after {bytes} bytes of a SEND");
        let case = attacker.case(name, SECTION, vec![frame]).refused(0x61, 0);
        case.with_receive(CompletionStatus::RemoteInvalidRequest);
    }
    let headers = [
        ("WRITE_FIRST", attacker.with_reth(op::WRITE_FIRST, 0, attacker.reth(2 * pmtu_bytes), pmtu_bytes)),
        ("READ_REQUEST", attacker.with_reth(op::READ_REQUEST, 0, attacker.reth(8), 0)),
        ("FETCH_ADD", attacker.atomic(op::FETCH_ADD, 0, |_| {})),
    ];
    for (name, mut frame) in headers {
        Fault::Pad(2).apply(&mut frame);
        attacker.case(format!("{name} with a pad"), SECTION, vec![frame]).refused(0x61, 0);
    }
    // What is not executed is not refused.
    for (psn, name) in [(1, "a gap"), (-1, "a duplicate")] {
        let mut frame = attacker.write(psn, 8);
        Fault::Pad(1).apply(&mut frame);
        let case = attacker.case(format!("{name} with a wrong pad"), "protocol 3.1", vec![frame]);
        if psn > 0 {
            case.answered(0x60, 0, 0)
        } else {
            case.answered(0x1f, -1, 0)
        };
    }
}

/// Rows 11 and 15.
fn key_cases(attacker: &mut Attacker) {
    const SECTION: &str = "protocol 3.6 row 11";
    let target = *attacker.target;
    let (key, first, bytes) = target.region;
    let end = first + bytes;
    let places = [
        ("another variant", key ^ 1, first, 8),
        ("another variant, top bit", key ^ 0x80, first, 8),
        ("another index", key ^ 0x100, first, 8),
        ("another index, top bit", key ^ 0x8000_0000, first, 8),
        ("no right of the region", target.local_key, first, 8),
        ("another domain", target.foreign_key, first, 8),
        ("one byte before", key, first - 1, 8),
        ("one byte beyond the end", key, end - 7, 8),
        ("all beyond the end", key, end, 1),
        ("round the end of the address space", key, u64::MAX - 3, 8),
        ("from the end of the address space", key, u64::MAX, 1),
    ];
    for (name, remote_key, virtual_address, length) in places {
        let reth = RethRepr { virtual_address, remote_key, dma_length: length };
        let length = length as usize;
        let frame = attacker.with_reth(op::WRITE_ONLY, 0, reth, length);
        attacker.case(format!("WRITE, {name}"), SECTION, vec![frame]).refused(0x62, 0);
        let frame = attacker.with_reth(op::READ_REQUEST, 0, reth, 0);
        attacker.case(format!("READ, {name}"), SECTION, vec![frame]).refused(0x62, 0);
        let frame = attacker.with_reth(op::WRITE_ONLY_IMM, 0, reth, length);
        let case = attacker.case(format!("WRITE_IMM, {name}"), SECTION, vec![frame]).refused(0x62, 0);
        case.with_receive(CompletionStatus::RemoteAccess);
    }
    let pmtu_bytes = target.pmtu.bytes() as usize;
    let reth = RethRepr { dma_length: bytes as u32 + 1, ..attacker.reth(0) };
    let frame = attacker.with_reth(op::WRITE_FIRST, 0, reth, pmtu_bytes);
    attacker.case("WRITE, the whole message does not fit", SECTION, vec![frame]).refused(0x62, 0);
    let ended = [
        ("a key that may not be ended", key),
        ("another variant", key ^ 1),
        ("another domain", target.foreign_key),
    ];
    for (name, key) in ended {
        let frame = attacker.with_key(op::SEND_ONLY_INV, 0, key, 8);
        let case = attacker.case(format!("SEND_INV, {name}"), "protocol 3.6 row 15", vec![frame]);
        case.refused(0x62, 0).with_receive(CompletionStatus::RemoteAccess);
    }
}

/// Rows 10, 12 and 13.
fn receive_cases(attacker: &mut Attacker) {
    let target = *attacker.target;
    let room = target.receive_bytes as usize;
    let send = |psn, bytes| attacker.plain(op::SEND_ONLY, psn, bytes);
    let exact = vec![send(0, room)];
    let long = vec![send(0, room + 1)];
    let empty = vec![send(0, 0)];
    let both = vec![send(0, 8), send(1, 8), send(2, 8)];
    let case = attacker.case("SEND that fills its receive", "protocol 3.6 row 10", exact).accepted();
    case.received = 1;
    let case = attacker.case("SEND longer than its receive", "protocol 3.6 row 10", long).refused(0x61, 0);
    case.with_receive(CompletionStatus::LocalLength);
    attacker.case("empty SEND takes a receive", "protocol 3.6", empty).accepted().received = 1;
    let frames = vec![attacker.plain(op::SEND_FIRST, 0, target.pmtu.bytes() as usize)];
    let case = attacker.case("SEND_FIRST longer than its receive", "protocol 3.6 row 10", frames);
    case.refused(0x61, 0).with_receive(CompletionStatus::LocalLength);

    const NOT_READY: &str = "protocol 3.6 row 12";
    let wait = 0x20 | target.min_rnr_timer;
    let case = attacker.case("three SENDs, two receives", NOT_READY, both).accepted();
    case.answered(0x1f, 1, 2).answered(wait, 2, 2);
    (case.executed, case.received) = ((2, 2), 2);
    let frames = vec![attacker.plain(op::SEND_ONLY, 0, 8)];
    attacker.case("SEND, no receive", NOT_READY, frames).answered(wait, 0, 0).receives = Receives::None;
    let frames = vec![attacker.with_reth(op::WRITE_ONLY_IMM, 0, attacker.reth(8), 8)];
    let case = attacker.case("WRITE_IMM, no receive", NOT_READY, frames);
    case.answered(wait, 0, 0).receives = Receives::None;
    let frames = vec![attacker.write(0, 8)];
    attacker.case("WRITE needs no receive", NOT_READY, frames).accepted().receives = Receives::None;
    let frames = vec![
        attacker.plain(op::SEND_ONLY, 0, 8),
        attacker.write(1, 8),
        attacker.write(-1, 8),
        attacker.plain(op::SEND_ONLY, 0, 8),
    ];
    let case = attacker.case("what follows an RNR NAK is ignored but for duplicates", "protocol 3.2", frames);
    case.answered(wait, 0, 0).answered(0x1f, -1, 0).answered(wait, 0, 0).receives = Receives::None;
    let pmtu_bytes = target.pmtu.bytes() as usize;
    let mut first = attacker.with_reth(op::WRITE_FIRST, 0, attacker.reth(pmtu_bytes + 8), pmtu_bytes);
    Fault::AckRequest(false).apply(&mut first);
    let frames = vec![first, attacker.with_immediate(op::WRITE_LAST_IMM, 1, 8)];
    let case = attacker.case("WRITE_LAST_IMM, no receive", "protocol 2.7", frames).answered(wait, 1, 0);
    (case.receives, case.executed) = (Receives::None, (0, 1));

    let frames = vec![attacker.plain(op::SEND_ONLY, 0, 8)];
    let case = attacker.case("receive with a bad key", "protocol 3.6 row 13", frames).refused(0x63, 0);
    case.with_receive(CompletionStatus::LocalProtection).receives = Receives::BadKey;
    let frames = vec![attacker.plain(op::SEND_ONLY, 0, 0)];
    let case = attacker.case("empty SEND into a receive with a bad key", "protocol 4.6", frames).accepted();
    (case.receives, case.received) = (Receives::BadKey, 1);
}

/// Invalid READs and atomics; row 11 is with the keys.
fn read_and_atomic_cases(attacker: &mut Attacker) {
    let unaligned = attacker.atomic(op::FETCH_ADD, 0, |header| header.virtual_address += 4);
    attacker.case("atomic not aligned", "protocol 3.6 row 6", vec![unaligned]).refused(0x61, 0);
    let target = *attacker.target;
    for (name, key) in
        [("no right", target.local_key), ("another domain", target.foreign_key), ("no key", !0)]
    {
        let frame = attacker.atomic(op::COMPARE_SWAP, 0, |header| header.remote_key = key);
        attacker.case(format!("atomic, {name}"), "protocol 3.6 row 11", vec![frame]).refused(0x62, 0);
    }
    let (key, first, bytes) = target.region;
    let beyond = (first + bytes).next_multiple_of(8);
    let frame = attacker.atomic(op::FETCH_ADD, 0, |header| {
        (header.virtual_address, header.remote_key) = (beyond, key);
    });
    attacker.case("atomic beyond the region", "protocol 3.6 row 11", vec![frame]).refused(0x62, 0);
    let frames = [
        ("READ", attacker.with_reth(op::READ_REQUEST, 0, attacker.reth(8), 0)),
        ("FETCH_ADD", attacker.atomic(op::FETCH_ADD, 0, |_| {})),
    ];
    for (name, frame) in frames {
        let mut with_payload = frame.clone();
        Fault::PayloadBytes(4).apply(&mut with_payload);
        let case = attacker.case(format!("{name} with payload"), "protocol 8.3", vec![with_payload]);
        case.refused(0x61, 0);
        let case = attacker.case(format!("{name}, none are kept"), "protocol 3.6 row 7", vec![frame]);
        case.refused(0x61, 0).destination_read_atomic = 0;
    }
    let frame = attacker.with_reth(op::READ_REQUEST, -1, attacker.reth(8), 0);
    attacker.case("duplicate READ of which nothing is kept", "protocol 3.4", vec![frame]);
    let frame = attacker.atomic(op::FETCH_ADD, -1, |_| {});
    attacker.case("duplicate atomic of which nothing is kept", "protocol 3.4", vec![frame]);
}

/// All attacks on a requester.
pub fn response_cases(target: &Target) -> Vec<ResponseCase> {
    let attacker = Attacker { target, cases: Vec::new() };
    let aeth = |syndrome| ExtendedRepr::Aeth(AethRepr { syndrome, msn: target.msn.add(1) });
    let acknowledge = |psn, syndrome| {
        let bth = BthRepr { ack_request: false, ..attacker.bth(op::ACKNOWLEDGE, psn) };
        attacker.frame(bth, vec![aeth(syndrome)], 0)
    };
    let mut cases = Vec::new();
    let mut case = |name: String, section, frames, fate| {
        cases.push(ResponseCase { name, section, frames, fate });
    };
    let success = Fate::Completes(CompletionStatus::Success);

    for credits in [0, 1, 30, 31] {
        let frames = vec![acknowledge(0, credits)];
        case(format!("ACK with credit code {credits}"), "protocol 1.6", frames, success);
    }
    for psn in [1, 2, HALF_WINDOW as i32 - 1] {
        let frames = vec![acknowledge(psn, 0x1f), acknowledge(psn, 0x60), acknowledge(psn, 0x62)];
        case(format!("answers to what was never sent, {psn} ahead"), "protocol 2.5", frames, Fate::InFlight);
    }
    for psn in [-1, -2, -(HALF_WINDOW as i32)] {
        let frames = vec![acknowledge(psn, 0x1f), acknowledge(psn, 0x60), acknowledge(psn, 0x61)];
        case(format!("answers to what was long done, {psn}"), "protocol 2.5", frames, Fate::InFlight);
    }
    for syndrome in [0x40, 0x5f, 0x65, 0x7f, 0x80, 0x9f, 0xe0, 0xff] {
        let frames = vec![acknowledge(0, syndrome)];
        case(format!("reserved syndrome {syndrome:#04x}"), "protocol 1.6, 8.3", frames, Fate::InFlight);
    }
    for (syndrome, status) in [
        (0x61, CompletionStatus::RemoteInvalidRequest),
        (0x62, CompletionStatus::RemoteAccess),
        (0x63, CompletionStatus::RemoteOperation),
    ] {
        let frames = vec![acknowledge(0, syndrome)];
        case(format!("NAK {syndrome:#04x}"), "protocol 2.5", frames, Fate::Completes(status));
    }
    case("NAK 0x60".into(), "protocol 2.5", vec![acknowledge(0, 0x60)], Fate::AgainNow);
    for (code, delay_us) in [(0, 655_360), (1, 10), (14, 1280), (31, 491_520)] {
        let frames = vec![acknowledge(0, 0x20 | code)];
        case(format!("RNR NAK {code}"), "protocol 1.6, 2.7", frames, Fate::AgainAfter(delay_us));
    }
    let mut wrong_msn = acknowledge(0, 0x1f);
    Fault::Msn(target.msn.add(0x12_3456).value()).apply(&mut wrong_msn);
    case("wrong MSN".into(), "protocol 8.3", vec![wrong_msn], success);
    let frames = vec![acknowledge(0, 0x1f), acknowledge(0, 0x1f), acknowledge(0, 0x62)];
    case("ACK twice, then a NAK for the same".into(), "protocol 2.5", frames, success);

    let mut with_payload = acknowledge(0, 0x1f);
    Fault::PayloadBytes(4).apply(&mut with_payload);
    case("ACK with payload".into(), "protocol 8.3", vec![with_payload], Fate::InFlight);
    let mut with_pad = acknowledge(0, 0x1f);
    Fault::Pad(1).apply(&mut with_pad);
    case("ACK with pad".into(), "protocol 1.3, 8.3", vec![with_pad], Fate::InFlight);
    let bth = attacker.bth(op::READ_RESPONSE_ONLY, 0);
    let frames = vec![attacker.frame(bth, vec![aeth(0x1f)], 8)];
    let bad = Fate::Completes(CompletionStatus::BadResponse);
    case("READ response to a WRITE".into(), "protocol 8.3", frames, bad);
    let bth = attacker.bth(op::READ_RESPONSE_ONLY, -1);
    let frames = vec![attacker.frame(bth, vec![aeth(0x1f)], 8)];
    case("READ response, stale".into(), "protocol 8.3", frames, Fate::InFlight);
    let bth = attacker.bth(op::ATOMIC_ACKNOWLEDGE, 0);
    let answer = ExtendedRepr::AtomicAckEth(AtomicAckEthRepr { original: 5 });
    let frames = vec![attacker.frame(bth, vec![aeth(0x1f), answer], 0)];
    case("answer of an atomic to a WRITE".into(), "protocol 8.3", frames, Fate::InFlight);

    for fault in [
        Fault::Icrc(0x0100),
        Fault::Version(1),
        Fault::PartitionKey(0x1234),
        Fault::DestinationQp(target.unknown_number),
        Fault::DestinationPort(4792),
        // A bit of the source address, in both versions of IP.
        Fault::FlipBit(8 * 13),
    ] {
        let mut frame = acknowledge(0, 0x1f);
        fault.apply(&mut frame);
        case(format!("ACK, {fault:?}"), "protocol 3.6 row 1, 8.3", vec![frame], Fate::InFlight);
    }
    cases
}
