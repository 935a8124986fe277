//! Frames of the model as packets.
//!
//! A PSN of the model has few bits; the packet at position `p` of a run has PSN `p - 2^bits` modulo 2^24, so that PSNs wrap around
//! where those of the model do. Message `m` has memory of its own at both ends; its last packet is not full.
use rnic_endpoint::packet::Packet;
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::wire::extended::{AethRepr, AtomicAckEthRepr, AtomicEthRepr, ImmediateRepr, RethRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr};
use rnic_protocol::trace::Frame;
use rnic_protocol::{Body, Kind, Message, Nak, Place, Request, Response, Status, Trace};

pub(crate) const PMTU: Pmtu = Pmtu::Bytes256;
const PMTU_BYTES: usize = 256;
/// Bytes of memory for each message, in the requester and in the responder.
pub(crate) const MESSAGE_BYTES: usize = 8 * PMTU_BYTES;
/// Place of the word of the atomics in the responder's memory, and its size.
pub(crate) const WORD: usize = 8 * MESSAGE_BYTES;
pub(crate) const MEMORY_BYTES: usize = WORD + 8;
/// Value of the word before the run.
pub(crate) const VALUE: u64 = 0x0123_4567_89ab_cdef;
/// What each atomic adds.
pub(crate) const ADDEND: u64 = 1 << 40;
/// Immediate data of each WRITE.
pub(crate) const IMMEDIATE: [u8; 4] = [0xd1, 0xd2, 0xd3, 0xd4];
/// Bytes of the last packet, by message.
const LAST_BYTES: [usize; 4] = [100, 256, 1, 37];
const SYNDROME_ACK: u8 = 0x1f;
const SYNDROME_RNR: u8 = 0x20;

/// The memory of the responder, as the requester names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) address: u64,
    pub(crate) key: u32,
}

impl Remote {
    /// Address of a message's memory, and the key with which it is asked for: a wrong one, if the responder shall refuse.
    pub(crate) fn of(self, number: usize, message: &Message) -> Remote {
        let at = if message.kind == Kind::Atomic { WORD } else { number * MESSAGE_BYTES };
        let is_refused = message.refused_from == Some(0);
        Remote { address: self.address + at as u64, key: self.key ^ u32::from(is_refused) }
    }
}

/// Bytes of a message.
pub(crate) fn length(number: usize, message: &Message) -> usize {
    match message.kind {
        Kind::Atomic => 8,
        _ => (usize::from(message.packets) - 1) * PMTU_BYTES + LAST_BYTES[number % LAST_BYTES.len()],
    }
}

/// Contents of a message.
pub(crate) fn contents(number: usize, message: &Message) -> Vec<u8> {
    (0..length(number, message)).map(|at| (number * 37 + at * 7 + at / 256 * 5 + 11) as u8).collect()
}

/// The status in a CQE.
pub(crate) fn status(status: Status) -> CompletionStatus {
    match status {
        Status::Success => CompletionStatus::Success,
        Status::RetryExceeded => CompletionStatus::RetryExceeded,
        Status::RnrRetryExceeded => CompletionStatus::RnrRetryExceeded,
        Status::RemoteInvalidRequest => CompletionStatus::RemoteInvalidRequest,
        Status::RemoteAccess => CompletionStatus::RemoteAccess,
        Status::BadResponse => CompletionStatus::BadResponse,
        Status::Flushed => CompletionStatus::Flushed,
    }
}

/// Packets of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) remote: Remote,
    /// QPNs of the requester and of the responder.
    pub(crate) requester: u32,
    pub(crate) responder: u32,
    /// Timer code of RNR NAKs.
    pub(crate) rnr_timer: u8,
}

/// PSN of the first packet of a run.
pub(crate) fn first_psn(trace: &Trace) -> Psn {
    psn(trace, trace.first_psn)
}

fn psn(trace: &Trace, position: u8) -> Psn {
    Psn::wrapping(u32::from(position)).sub(1 << trace.psn_bits)
}

impl Mapping<'_> {
    fn message(&self, number: u8) -> (usize, Message) {
        (usize::from(number), self.trace.messages[usize::from(number)])
    }

    /// The packet of a frame.
    pub(crate) fn packet(&self, frame: &Frame) -> Packet {
        match frame {
            Frame::Request(request) => self.request(request),
            Frame::Response(response) => self.response(response),
        }
    }

    fn request(&self, request: &Request) -> Packet {
        let (number, message) = self.message(request.data.message);
        let Remote { address, key } = self.remote.of(number, &message);
        let at = usize::from(request.data.packet) * PMTU_BYTES;
        let contents = contents(number, &message);
        let mut extended = Vec::new();
        let is_read = request.kind == Kind::Read;
        let is_write = matches!(request.kind, Kind::Write | Kind::WriteImm);
        if is_read || (is_write && request.place.begins()) {
            let from = if is_read { at } else { 0 };
            extended.push(ExtendedRepr::Reth(RethRepr {
                virtual_address: address + from as u64,
                remote_key: key,
                dma_length: (contents.len() - from) as u32,
            }));
        }
        if request.kind == Kind::WriteImm && request.place.ends() {
            extended.push(ExtendedRepr::Immediate(ImmediateRepr { data: u32::from_be_bytes(IMMEDIATE) }));
        }
        if request.kind == Kind::Atomic {
            let (virtual_address, remote_key, swap_add) = (address, key, ADDEND);
            let atomic = AtomicEthRepr { virtual_address, remote_key, swap_add, compare: 0 };
            extended.push(ExtendedRepr::AtomicEth(atomic));
        }
        let payload = if request.kind.returns_data() { &[][..] } else { piece(&contents, at) };
        let operation = request_operation(request.kind, request.place);
        let bth = BthRepr::new(operation.code(), self.responder, psn(self.trace, request.position));
        Packet::new(BthRepr { ack_request: request.ack_request, ..bth }, extended, payload.to_vec())
    }

    fn response(&self, response: &Response) -> Packet {
        let msn = Psn::wrapping(response.msn.into());
        let aeth = |syndrome| vec![ExtendedRepr::Aeth(AethRepr { syndrome, msn })];
        let (operation, extended, payload) = match response.body {
            Body::Ack => (Op::Acknowledge, aeth(SYNDROME_ACK), vec![]),
            Body::Nak(nak) => {
                let syndrome = match nak {
                    Nak::Sequence => 0x60,
                    Nak::Invalid => 0x61,
                    Nak::Access => 0x62,
                    Nak::NotReady => SYNDROME_RNR | self.rnr_timer,
                };
                (Op::Acknowledge, aeth(syndrome), vec![])
            }
            Body::Read(place, data) => {
                let (number, message) = self.message(data.message);
                let payload =
                    piece(&contents(number, &message), usize::from(data.packet) * PMTU_BYTES).to_vec();
                let (operation, has_aeth) = match place {
                    Place::First => (Op::ReadResponseFirst, true),
                    Place::Middle => (Op::ReadResponseMiddle, false),
                    Place::Last => (Op::ReadResponseLast, true),
                    Place::Only => (Op::ReadResponseOnly, true),
                };
                (operation, if has_aeth { aeth(SYNDROME_ACK) } else { vec![] }, payload)
            }
            Body::Atomic(original) => {
                let original = VALUE.wrapping_add(ADDEND * u64::from(original));
                let mut extended = aeth(SYNDROME_ACK);
                extended.push(ExtendedRepr::AtomicAckEth(AtomicAckEthRepr { original }));
                (Op::AtomicAcknowledge, extended, vec![])
            }
        };
        let bth = BthRepr::new(operation.code(), self.requester, psn(self.trace, response.position));
        Packet::new(bth, extended, payload)
    }

    /// Is this frame the packet of the model? AckReq is free where the model does not ask: any request may have it (protocol 2.4).
    pub(crate) fn is(&self, found: &[u8], frame: &Frame) -> bool {
        let Ok(found) = PacketRepr::parse(found) else { return false };
        let Packet { bth, extended, payload } = self.packet(frame);
        let is_request = matches!(frame, Frame::Request(_));
        let ack_request = bth.ack_request || (is_request && found.bth.ack_request);
        let bth = BthRepr { ack_request, pad_count: found.bth.pad_count, ..bth };
        found.bth == bth && found.extended_headers().eq(extended) && found.payload == payload
    }
}

fn piece(contents: &[u8], at: usize) -> &[u8] {
    &contents[at..contents.len().min(at + PMTU_BYTES)]
}

fn request_operation(kind: Kind, place: Place) -> Op {
    match (kind, place) {
        (Kind::Send, Place::First) => Op::SendFirst,
        (Kind::Send, Place::Middle) => Op::SendMiddle,
        (Kind::Send, Place::Last) => Op::SendLast,
        (Kind::Send, Place::Only) => Op::SendOnly,
        (Kind::Write | Kind::WriteImm, Place::First) => Op::WriteFirst,
        (Kind::Write | Kind::WriteImm, Place::Middle) => Op::WriteMiddle,
        (Kind::Write, Place::Last) => Op::WriteLast,
        (Kind::Write, Place::Only) => Op::WriteOnly,
        (Kind::WriteImm, Place::Last) => Op::WriteLastImmediate,
        (Kind::WriteImm, Place::Only) => Op::WriteOnlyImmediate,
        (Kind::Read, _) => Op::ReadRequest,
        (Kind::Atomic, _) => Op::FetchAdd,
    }
}
