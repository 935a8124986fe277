//! The responder: checks of PSN, opcode order, rights, resources, length and key, in this order (protocol 3.1).

use std::collections::VecDeque;

use rnic_layout::limits::MESSAGE_BYTES_MAX;
use rnic_layout::opcode::{self, Operation as Op};
use rnic_layout::psn::{HALF_WINDOW, Psn, PsnCheck, psn_count};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::QpState;
use rnic_layout::syndrome::{CREDITS_UNLIMITED, NakCode, Syndrome, credit_code};
use rnic_layout::wire::extended::{AethRepr, AtomicAckEthRepr, AtomicEthRepr, RethRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr, bth};

use super::memory::Access;
use super::packet::Packet;
use super::qp::{Completion, Host, Outcome, Queue, QueuePair, ReceiveWqe};

/// The message that is being received (protocol 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arriving {
    Nothing,
    Send { bytes: u64 },
    Write { address: u64, key: u32, length: u32, bytes: u32 },
}

/// A READ or atomic that the peer may repeat (protocol 3.5).
#[derive(Clone, Copy, Debug)]
struct Resource {
    first_psn: Psn,
    psn_count: u32,
    kind: ResourceKind,
    /// Its last response was sent, as the answer to any of its requests.
    is_served: bool,
}

#[derive(Clone, Copy, Debug)]
enum ResourceKind {
    Read { address: u64, key: u32, length: u32 },
    Atomic { original: u64 },
}

/// Pending responses. They are sent in this order, which is that of their PSNs except for duplicates.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Acknowledge { psn: Psn, msn: Psn, syndrome: Syndrome },
    Read { first_psn: Psn, address: u64, key: u32, length: u32, sent_bytes: u32, msn: Psn, original_psn: Psn },
    Atomic { psn: Psn, original: u64, msn: Psn },
}

/// State of the responder.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) expected: Psn,
    pub(super) msn: Psn,
    /// PSNs of the READs and atomics since the last packet of a SEND or WRITE.
    read_psns: u32,
    /// A NAK for `expected` was sent; no other follows until this PSN arrives (protocol 3.2).
    nak_sent: bool,
    established: bool,
    arriving: Arriving,
    /// Receive that the current message has consumed.
    pub(super) held: Option<ReceiveWqe>,
    resources: VecDeque<Resource>,
    pub(super) replies: VecDeque<Reply>,
}

/// Why a request is not executed.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    syndrome: Syndrome,
    /// Status of the receive that was consumed.
    status: CompletionStatus,
    /// Event that is raised if none was consumed.
    event: AsyncEvent,
}

/// Rows 3 to 9 of the error table.
const INVALID: Refusal = Refusal {
    syndrome: Syndrome::Nak(NakCode::InvalidRequest),
    status: CompletionStatus::RemoteInvalidRequest,
    event: AsyncEvent::QueuePairRequestError,
};
/// Row 10.
const TOO_LONG: Refusal = Refusal { status: CompletionStatus::LocalLength, ..INVALID };
/// Rows 11 and 15.
const NO_ACCESS: Refusal = Refusal {
    syndrome: Syndrome::Nak(NakCode::RemoteAccessError),
    status: CompletionStatus::RemoteAccess,
    event: AsyncEvent::QueuePairAccessError,
};
/// Row 13.
const BAD_RECEIVE: Refusal = Refusal {
    syndrome: Syndrome::Nak(NakCode::RemoteOperationalError),
    status: CompletionStatus::LocalProtection,
    event: AsyncEvent::QueuePairFatal,
};

impl Responder {
    pub(super) fn new(expected: Psn) -> Self {
        Self {
            expected,
            msn: Psn::ZERO,
            read_psns: 0,
            nak_sent: false,
            established: false,
            arriving: Arriving::Nothing,
            held: None,
            resources: VecDeque::new(),
            replies: VecDeque::new(),
        }
    }

    /// Notes that a response of the kept READ or atomic with this first PSN is sent.
    fn note_sent(&mut self, first_psn: Psn, psn: Psn) {
        let is_last =
            |one: &&mut Resource| one.first_psn == first_psn && psn == first_psn.add(one.psn_count - 1);
        if let Some(resource) = self.resources.iter_mut().find(is_last) {
            resource.is_served = true;
        }
    }

    /// Returns the PSN of the last packet of a SEND or WRITE, or the one before the first PSN of the connection; nothing if that is too
    /// long ago for a duplicate (protocol 3.4).
    fn last_message_psn(&self) -> Option<Psn> {
        (self.read_psns < HALF_WINDOW).then(|| self.expected.sub(1 + self.read_psns))
    }

    /// Keeps a READ or atomic that is accepted, in place of the oldest one.
    fn keep(&mut self, resource: Resource, capacity: u8) {
        if self.resources.len() >= usize::from(capacity) {
            self.resources.pop_front();
        }
        self.resources.push_back(resource);
        self.expected = resource.first_psn.add(resource.psn_count);
        self.read_psns = self.read_psns.saturating_add(resource.psn_count);
    }
}

impl QueuePair {
    /// Executes a request that has passed the checks of row 1.
    pub(super) fn respond(&mut self, host: &mut Host, packet: &PacketRepr) -> Outcome {
        let responder = &mut self.responder;
        let psn = packet.bth.psn;
        match psn.check(responder.expected) {
            PsnCheck::Expected => responder.nak_sent = false,
            PsnCheck::Duplicate(_) => return self.respond_again(host, packet),
            PsnCheck::Gap(_) if responder.nak_sent => return Outcome::Dropped("request_gap"),
            PsnCheck::Gap(_) => {
                responder.nak_sent = true;
                host.count("request_gap");
                let expected = responder.expected;
                self.owe_nak(expected, Syndrome::Nak(NakCode::PsnSequenceError));
                return Outcome::Refused;
            }
        }
        match self.execute(host, packet) {
            Ok(()) => Outcome::Executed,
            Err(refusal) => {
                self.refuse(host, psn, refusal);
                Outcome::Refused
            }
        }
    }

    /// Refuses a request. All refusals but RNR fail the queue pair (protocol 3.6).
    fn refuse(&mut self, host: &mut Host, psn: Psn, refusal: Refusal) {
        self.owe_nak(psn, refusal.syndrome);
        if matches!(refusal.syndrome, Syndrome::RnrNak { .. }) {
            // Later requests are not answered until this packet is repeated (protocol 3.2).
            self.responder.nak_sent = true;
            return;
        }
        self.end(host, refusal);
    }

    /// Reports the reason to local software, and fails the queue pair.
    fn end(&mut self, host: &mut Host, refusal: Refusal) {
        let number = self.setup.number;
        match self.responder.held.take() {
            Some(work) => {
                let (status, opcode) = (refusal.status, CompletionOpcode::Receive);
                let completion = Completion::error(number, Queue::Receive, work.wr_id, status, opcode);
                host.complete(self.setup.receive_completions, completion);
            }
            None => host.raise(number, refusal.event),
        }
        self.fail(host);
    }

    fn execute(&mut self, host: &mut Host, packet: &PacketRepr) -> Result<(), Refusal> {
        // Rows 3 and 4: the opcode itself, and the opcode order.
        let operation = opcode::lookup(packet.bth.opcode).ok_or(INVALID)?.operation;
        let continues = match operation {
            Op::SendMiddle | Op::SendLast | Op::SendLastImmediate | Op::SendLastInvalidate => {
                matches!(self.responder.arriving, Arriving::Send { .. })
            }
            Op::WriteMiddle | Op::WriteLast | Op::WriteLastImmediate => {
                matches!(self.responder.arriving, Arriving::Write { .. })
            }
            _ => self.responder.arriving == Arriving::Nothing,
        };
        if !continues {
            return Err(INVALID);
        }
        if self.state == QpState::ReadyToReceive && !self.responder.established {
            self.responder.established = true;
            host.raise(self.setup.number, AsyncEvent::CommunicationEstablished);
        }
        match operation {
            Op::ReadRequest => self.execute_read(host, packet),
            Op::CompareSwap | Op::FetchAdd => self.execute_atomic(host, packet, operation),
            Op::WriteFirst
            | Op::WriteMiddle
            | Op::WriteLast
            | Op::WriteLastImmediate
            | Op::WriteOnly
            | Op::WriteOnlyImmediate => self.execute_write(host, packet, operation),
            _ => self.execute_send(host, packet, operation),
        }
    }

    fn execute_send(&mut self, host: &mut Host, packet: &PacketRepr, operation: Op) -> Result<(), Refusal> {
        if operation.starts_message() {
            self.take_receive(host)?;
            self.responder.arriving = Arriving::Send { bytes: 0 };
        }
        let Arriving::Send { bytes } = self.responder.arriving else { return Err(INVALID) };
        self.check_payload(packet)?;
        let held = self.responder.held.as_ref().ok_or(INVALID)?;
        let after = bytes + packet.payload.len() as u64;
        if after > held.length() {
            return Err(TOO_LONG);
        }
        // Row 15, after all checks of the receive; nothing is placed then.
        let domain = self.setup.domain;
        let places = host.memory.pieces(Access::LocalWrite, domain, &held.sges, bytes, packet.payload.len());
        places.map_err(|_| BAD_RECEIVE)?;
        let ended = invalidated_key(packet);
        if ended.is_some_and(|key| !host.memory.may_invalidate(key, domain)) {
            return Err(NO_ACCESS);
        }
        let placed = host.memory.scatter(domain, &held.sges, bytes, packet.payload);
        placed.map_err(|_| BAD_RECEIVE)?;

        self.responder.arriving = Arriving::Send { bytes: after };
        if operation.ends_message() {
            let invalid = if mutant!("endpoint-keeps-invalidated-key") { None } else { ended };
            if let Some(key) = invalid {
                host.memory.invalidate(key, domain);
            }
            self.complete_receive(host, packet, CompletionOpcode::Receive, after as u32, ended);
        }
        self.finish(packet, operation);
        Ok(())
    }

    fn execute_write(&mut self, host: &mut Host, packet: &PacketRepr, operation: Op) -> Result<(), Refusal> {
        // Row 5.
        if !self.setup.rights.remote_write {
            return Err(INVALID);
        }
        let with_immediate = matches!(operation, Op::WriteLastImmediate | Op::WriteOnlyImmediate);
        if with_immediate {
            self.take_receive(host)?;
        }
        // Rows 8 and 9.
        self.check_payload(packet)?;
        if let Some(reth) = reth(packet) {
            if reth.dma_length > MESSAGE_BYTES_MAX {
                return Err(INVALID);
            }
            self.responder.arriving = Arriving::Write {
                address: reth.virtual_address,
                key: reth.remote_key,
                length: reth.dma_length,
                bytes: 0,
            };
        }
        let Arriving::Write { address, key, length, bytes } = self.responder.arriving else {
            return Err(INVALID);
        };
        let after = u64::from(bytes) + packet.payload.len() as u64;
        if after > u64::from(length) || operation.ends_message() && after != u64::from(length) {
            return Err(INVALID);
        }
        // Row 11. A message of length zero accesses nothing, and its key and address are not checked. The region is looked up
        // for each packet, since it may be deregistered in between.
        if length != 0 {
            let check = |address, bytes| {
                host.memory.check(Access::RemoteWrite, key, self.setup.domain, address, bytes)
            };
            check(address, length.into()).map_err(|_| NO_ACCESS)?;
            let place = check(address + u64::from(bytes), packet.payload.len() as u64);
            let place = place.map_err(|_| NO_ACCESS)?;
            host.memory.bytes[place].copy_from_slice(packet.payload);
        }
        self.responder.arriving = Arriving::Write { address, key, length, bytes: after as u32 };
        if with_immediate {
            self.complete_receive(host, packet, CompletionOpcode::ReceiveWrite, length, None);
        }
        self.finish(packet, operation);
        Ok(())
    }

    fn execute_read(&mut self, host: &mut Host, packet: &PacketRepr) -> Result<(), Refusal> {
        if !self.setup.rights.remote_read {
            return Err(INVALID);
        }
        self.check_resources()?;
        self.check_payload(packet)?;
        let reth = reth(packet).ok_or(INVALID)?;
        let (address, key, length) = (reth.virtual_address, reth.remote_key, reth.dma_length);
        if length > MESSAGE_BYTES_MAX {
            return Err(INVALID);
        }
        if length != 0 {
            let domain = self.setup.domain;
            let access =
                if mutant!("endpoint-read-needs-write") { Access::RemoteWrite } else { Access::RemoteRead };
            let range = host.memory.check(access, key, domain, address, length.into());
            range.map_err(|_| NO_ACCESS)?;
        }
        let first_psn = packet.bth.psn;
        let psn_count = psn_count(length, self.setup.pmtu.bytes());
        let kind = ResourceKind::Read { address, key, length };
        let resource = Resource { first_psn, psn_count, kind, is_served: false };
        self.responder.keep(resource, self.setup.destination_read_atomic);
        // A READ counts as executed when it is accepted (protocol 3.7).
        if !mutant!("endpoint-read-not-counted") {
            self.responder.msn = self.responder.msn.add(1);
        }
        let msn = self.responder.msn;
        let (sent_bytes, original_psn) = (0, first_psn);
        let reply = Reply::Read { first_psn, address, key, length, sent_bytes, msn, original_psn };
        self.responder.replies.push_back(reply);
        Ok(())
    }

    fn execute_atomic(&mut self, host: &mut Host, packet: &PacketRepr, operation: Op) -> Result<(), Refusal> {
        let request = atomic(packet).ok_or(INVALID)?;
        if !self.setup.rights.remote_atomic || !request.virtual_address.is_multiple_of(8) {
            return Err(INVALID);
        }
        self.check_resources()?;
        self.check_payload(packet)?;
        let (key, domain) = (request.remote_key, self.setup.domain);
        let cell = host.memory.check(Access::RemoteAtomic, key, domain, request.virtual_address, 8);
        let cell = &mut host.memory.bytes[cell.map_err(|_| NO_ACCESS)?];
        let original = u64::from_le_bytes(cell.try_into().expect("eight bytes were checked"));
        let new = match operation {
            Op::FetchAdd if mutant!("endpoint-add-of-32-bits") => {
                u64::from((original as u32).wrapping_add(request.swap_add as u32))
            }
            Op::FetchAdd => original.wrapping_add(request.swap_add),
            _ if original == request.compare => request.swap_add,
            _ => original,
        };
        cell.copy_from_slice(&new.to_le_bytes());

        let psn = packet.bth.psn;
        let kind = ResourceKind::Atomic { original };
        let resource = Resource { first_psn: psn, psn_count: 1, kind, is_served: false };
        self.responder.keep(resource, self.setup.destination_read_atomic);
        self.responder.msn = self.responder.msn.add(1);
        let reply = Reply::Atomic { psn, original, msn: self.responder.msn };
        self.responder.replies.push_back(reply);
        Ok(())
    }

    /// Row 12: consumes a receive, or reports that there is none.
    fn take_receive(&mut self, host: &mut Host) -> Result<(), Refusal> {
        let timer_code = self.setup.min_rnr_timer;
        let not_ready = Refusal { syndrome: Syndrome::RnrNak { timer_code }, ..INVALID };
        self.responder.held = Some(self.next_receive(host).ok_or(not_ready)?);
        Ok(())
    }

    /// Row 7.
    fn check_resources(&self) -> Result<(), Refusal> {
        let (responder, capacity) = (&self.responder, usize::from(self.setup.destination_read_atomic));
        let full = responder.resources.len() >= capacity;
        let oldest_is_busy = responder.resources.front().is_none_or(|oldest| !oldest.is_served);
        if full && oldest_is_busy { Err(INVALID) } else { Ok(()) }
    }

    /// Row 8: the payload length that the opcode allows, and the pad that it needs.
    fn check_payload(&self, packet: &PacketRepr) -> Result<(), Refusal> {
        let rule = opcode::lookup(packet.bth.opcode).ok_or(INVALID)?.payload;
        let length = packet.payload.len();
        let pad_count =
            if mutant!("endpoint-pad-not-checked") { packet.bth.pad_count } else { bth::pad_count(length) };
        let right =
            rule.admits(length, self.setup.pmtu.bytes() as usize) && packet.bth.pad_count == pad_count;
        if right { Ok(()) } else { Err(INVALID) }
    }

    fn complete_receive(
        &mut self,
        host: &mut Host,
        packet: &PacketRepr,
        opcode: CompletionOpcode,
        length: u32,
        invalidated: Option<u32>,
    ) {
        let work = self.responder.held.take().expect("a message that completes has taken its receive");
        let completion = Completion {
            qp_number: self.setup.number,
            queue: Queue::Receive,
            wr_id: work.wr_id,
            status: CompletionStatus::Success,
            opcode,
            length,
            immediate: immediate(packet),
            invalidated,
            solicited: packet.bth.solicited,
        };
        host.complete(self.setup.receive_completions, completion);
    }

    /// Advances the PSN after a packet of a SEND or WRITE, and acknowledges it if requested.
    fn finish(&mut self, packet: &PacketRepr, operation: Op) {
        let responder = &mut self.responder;
        responder.expected = packet.bth.psn.add(1);
        responder.read_psns = 0;
        if operation.ends_message() {
            responder.arriving = Arriving::Nothing;
            responder.msn = responder.msn.add(1);
        }
        if packet.bth.ack_request {
            let ahead = if mutant!("endpoint-acknowledges-one-ahead") { 1 } else { 0 };
            self.owe_acknowledgement(packet.bth.psn.add(ahead));
        }
    }

    fn owe_acknowledgement(&mut self, psn: Psn) {
        let ready = self.receives.len() as u32;
        let credit_code = if self.setup.credits { credit_code(ready) } else { CREDITS_UNLIMITED };
        let msn = self.responder.msn;
        let replies = &mut self.responder.replies;
        let newer = Reply::Acknowledge { psn, msn, syndrome: Syndrome::Ack { credit_code } };
        match replies.back_mut() {
            Some(Reply::Acknowledge { psn: old, syndrome: Syndrome::Ack { .. }, .. })
                if self.setup.coalesce && !psn.is_before(*old) =>
            {
                *replies.back_mut().expect("it was just looked at") = newer;
            }
            _ => replies.push_back(newer),
        }
    }

    fn owe_nak(&mut self, psn: Psn, syndrome: Syndrome) {
        let msn = self.responder.msn;
        self.responder.replies.push_back(Reply::Acknowledge { psn, msn, syndrome });
    }

    /// Answers a duplicate request without executing it (protocol 3.4).
    fn respond_again(&mut self, host: &mut Host, packet: &PacketRepr) -> Outcome {
        const NOTHING_KEPT: Outcome = Outcome::Dropped("duplicate_dropped");
        let Some(row) = opcode::lookup(packet.bth.opcode) else { return NOTHING_KEPT };
        let (psn, msn) = (packet.bth.psn, self.responder.msn);
        let is_read = matches!(row.operation, Op::ReadRequest | Op::CompareSwap | Op::FetchAdd);
        if is_read && (!packet.payload.is_empty() || packet.bth.pad_count != 0) {
            return NOTHING_KEPT;
        }
        let kept = self
            .responder
            .resources
            .iter()
            .find(|resource| psn.is_within(resource.first_psn, resource.psn_count))
            .copied();
        let reply = match (row.operation, kept) {
            (
                Op::ReadRequest,
                Some(Resource {
                    kind: ResourceKind::Read { address, key, length },
                    first_psn: original_psn,
                    psn_count: count,
                    ..
                }),
            ) => {
                let Some(reth) = reth(packet) else { return NOTHING_KEPT };
                // The requested range must be within the original one, under the same key, and so must the PSNs of its responses.
                let offset = reth.virtual_address.checked_sub(address);
                let end = offset.and_then(|offset| offset.checked_add(reth.dma_length.into()));
                let last = psn.add(psn_count(reth.dma_length, self.setup.pmtu.bytes()) - 1);
                let has_psns = !last.is_before(psn) && last.is_within(original_psn, count);
                let has_bytes = end.is_some_and(|end| end <= u64::from(length));
                let granted = reth.remote_key == key && has_psns && has_bytes;
                if !granted {
                    return NOTHING_KEPT;
                }
                Reply::Read {
                    first_psn: psn,
                    address: reth.virtual_address,
                    key,
                    length: reth.dma_length,
                    sent_bytes: 0,
                    msn,
                    original_psn,
                }
            }
            (
                Op::CompareSwap | Op::FetchAdd,
                Some(Resource { kind: ResourceKind::Atomic { original }, .. }),
            ) => Reply::Atomic { psn, original, msn },
            (Op::ReadRequest | Op::CompareSwap | Op::FetchAdd, _) => return NOTHING_KEPT,
            _ => {
                // Not of a READ or atomic behind it, of which the peer may have no response (protocol 3.4).
                let Some(psn) = self.responder.last_message_psn() else { return NOTHING_KEPT };
                host.count("duplicate_request");
                if packet.bth.ack_request {
                    // After pending responses, so that it does not overtake them.
                    self.owe_acknowledgement(psn);
                }
                return Outcome::Duplicate;
            }
        };
        host.count("duplicate_request");
        self.responder.replies.push_back(reply);
        Outcome::Duplicate
    }

    /// Makes the next pending response.
    pub(super) fn next_reply(&mut self, host: &mut Host) -> Option<Packet> {
        // In ERR pending responses are still sent, followed by the NAK. All other states without traffic have no responses.
        match self.responder.replies.pop_front()? {
            Reply::Acknowledge { psn, msn, syndrome } => {
                count_reply(host, syndrome);
                Some(self.reply(Op::Acknowledge, psn, vec![aeth(syndrome, msn)], Vec::new()))
            }
            Reply::Atomic { psn, original, msn } => {
                self.responder.note_sent(psn, psn);
                let headers = vec![
                    aeth(self.positive(), msn),
                    ExtendedRepr::AtomicAckEth(AtomicAckEthRepr { original }),
                ];
                Some(self.reply(Op::AtomicAcknowledge, psn, headers, Vec::new()))
            }
            Reply::Read { first_psn, address, key, length, sent_bytes, msn, original_psn } => {
                self.next_read_response(host, first_psn, address, key, length, sent_bytes, msn, original_psn)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "these are the fields of one reply")]
    fn next_read_response(
        &mut self,
        host: &mut Host,
        first_psn: Psn,
        address: u64,
        key: u32,
        length: u32,
        sent_bytes: u32,
        msn: Psn,
        original_psn: Psn,
    ) -> Option<Packet> {
        let pmtu_bytes = self.setup.pmtu.bytes();
        let psn = first_psn.add(sent_bytes / pmtu_bytes);
        let bytes = (length - sent_bytes).min(pmtu_bytes);
        let mut payload = Vec::new();
        if length != 0 {
            let address = address + u64::from(sent_bytes);
            let domain = self.setup.domain;
            match host.memory.check(Access::RemoteRead, key, domain, address, bytes.into()) {
                Ok(range) => payload.extend_from_slice(&host.memory.bytes[range]),
                Err(_) => {
                    // The region is no longer valid: the NAK takes the place of the response (protocol 3.7).
                    self.responder.replies.clear();
                    if self.state != QpState::Error {
                        self.end(host, NO_ACCESS);
                    }
                    count_reply(host, NO_ACCESS.syndrome);
                    let headers = vec![aeth(NO_ACCESS.syndrome, msn)];
                    return Some(self.reply(Op::Acknowledge, psn, headers, Vec::new()));
                }
            }
        }
        let (first, last) = (sent_bytes == 0, sent_bytes + bytes == length);
        let operation = match (first, last) {
            (true, true) => Op::ReadResponseOnly,
            (true, false) => Op::ReadResponseFirst,
            (false, false) => Op::ReadResponseMiddle,
            (false, true) => Op::ReadResponseLast,
        };
        let headers = if first || last { vec![aeth(self.positive(), msn)] } else { Vec::new() };
        self.responder.note_sent(original_psn, psn);
        if !last {
            let sent_bytes = sent_bytes + bytes;
            let rest = Reply::Read { first_psn, address, key, length, sent_bytes, msn, original_psn };
            self.responder.replies.push_front(rest);
        }
        Some(self.reply(operation, psn, headers, payload))
    }

    /// Syndrome of an acknowledgement.
    fn positive(&self) -> Syndrome {
        Syndrome::Ack { credit_code: CREDITS_UNLIMITED }
    }

    fn reply(&self, operation: Op, psn: Psn, headers: Vec<ExtendedRepr>, payload: Vec<u8>) -> Packet {
        let partition_key = self.setup.partition_key;
        let bth = BthRepr { partition_key, ..BthRepr::new(operation.code(), self.setup.peer, psn) };
        Packet::new(bth, headers, payload)
    }
}

fn count_reply(host: &mut Host, syndrome: Syndrome) {
    host.count(match syndrome {
        Syndrome::Ack { .. } | Syndrome::Reserved(_) => "acknowledgements_sent",
        Syndrome::RnrNak { .. } => "nak_rnr_sent",
        Syndrome::Nak(NakCode::PsnSequenceError) => "nak_sequence_sent",
        Syndrome::Nak(NakCode::RemoteAccessError) => "nak_access_sent",
        Syndrome::Nak(NakCode::RemoteOperationalError) => "nak_operational_sent",
        Syndrome::Nak(NakCode::InvalidRequest | NakCode::InvalidRdRequest) => "nak_invalid_request_sent",
    });
}

fn aeth(syndrome: Syndrome, msn: Psn) -> ExtendedRepr {
    ExtendedRepr::Aeth(AethRepr::new(syndrome, msn))
}

fn reth(packet: &PacketRepr) -> Option<RethRepr> {
    packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::Reth(reth) => Some(reth),
        _ => None,
    })
}

fn atomic(packet: &PacketRepr) -> Option<AtomicEthRepr> {
    packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::AtomicEth(atomic) => Some(atomic),
        _ => None,
    })
}

fn immediate(packet: &PacketRepr) -> Option<[u8; 4]> {
    packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::Immediate(immediate) if mutant!("endpoint-immediate-swapped") => {
            Some(immediate.data.to_le_bytes())
        }
        ExtendedRepr::Immediate(immediate) => Some(immediate.data.to_be_bytes()),
        _ => None,
    })
}

fn invalidated_key(packet: &PacketRepr) -> Option<u32> {
    packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::Ieth(ieth) => Some(ieth.remote_key),
        _ => None,
    })
}
