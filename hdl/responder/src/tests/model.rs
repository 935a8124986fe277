//! Model of a responder of SEND, WRITE and atomics after protocol chapter 3, in plain Rust: without stages or
//! records, one packet after the other.
use rnic_layout::opcode::Operation;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::queue::receive::ReceiveWqe;
use rnic_layout::state::QpState;
use rnic_layout::syndrome::{CREDITS_UNLIMITED, NakCode, Syndrome};
use std::collections::HashMap;

/// Number of queue pairs of the card.
const INDEX_MASK: u32 = 0x3ff;
const PSN_MASK: u32 = 0xff_ffff;

/// The source address of the card at an index of its table; the last index is not in use.
pub(super) fn own_address(place: u8) -> u128 {
    0xfe80 << 112 | 0x0200_00ff_fe00_0000 | u128::from(place)
}

/// Configuration of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    pub(super) qpn: u32,
    pub(super) generation: u8,
    pub(super) state: QpState,
    pub(super) peer: u128,
    /// Index of its source address.
    pub(super) own_place: u8,
    pub(super) partition_key: u16,
    pub(super) domain: u32,
    pub(super) pmtu_code: u32,
    pub(super) remote_write: bool,
    pub(super) remote_atomic: bool,
    pub(super) timer_code: u8,
    pub(super) completion_queue: u16,
    pub(super) ring: u64,
    pub(super) entries_log2: u32,
    /// Receive WQEs come from this shared receive queue; the ring is unused.
    pub(super) shared: Option<u8>,
}

/// A shared receive queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    pub(super) ring: u64,
    pub(super) entries_log2: u32,
    pub(super) limit: u16,
    /// Number of settings of the limit.
    pub(super) setting: u8,
    pub(super) is_armed: bool,
    pub(super) consumed: u16,
    /// As the doorbell said.
    pub(super) posted: u16,
    /// WQEs that software has written.
    pub(super) written: u16,
    /// WQEs that software knows to be consumed.
    pub(super) done: u16,
    pub(super) works: HashMap<u16, Work>,
    pub(super) indices: HashMap<u64, u16>,
}

impl Shared {
    /// WQEs that are posted, if the claim can be true.
    fn available(&self) -> u16 {
        let count = self.posted.wrapping_sub(self.consumed);
        if u32::from(count) <= 1 << self.entries_log2 { count } else { 0 }
    }
}

impl Attributes {
    pub(super) fn index(&self) -> u16 {
        (self.qpn & INDEX_MASK) as u16
    }

    pub(super) fn pmtu_bytes(&self) -> u32 {
        128 << self.pmtu_code
    }
}

/// A packet that comes in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) opcode: u8,
    pub(super) qpn: u32,
    pub(super) psn: u32,
    pub(super) ack_request: bool,
    pub(super) solicited: bool,
    pub(super) partition_key: u16,
    pub(super) peer: u128,
    /// Destination QPN.
    pub(super) own: u128,
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) length: u32,
    pub(super) immediate: u32,
    pub(super) payload_bytes: u32,
    /// The pad is not the one that the payload needs.
    pub(super) pad_mismatch: bool,
    /// Operands of an atomic.
    pub(super) operand: u64,
    pub(super) compare: u64,
}

/// A receive WQE in host memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) fields: ReceiveWqe,
    /// A reserved bit is set.
    pub(super) is_malformed: bool,
    /// The host fails to return it.
    pub(super) is_unreadable: bool,
}

/// A memory region. Its device addresses are its addresses above [`Region::DEVICE`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) key: u32,
    pub(super) domain: u32,
    pub(super) local_write: bool,
    pub(super) remote_write: bool,
    /// Peers may invalidate its key.
    pub(super) invalidatable: bool,
    pub(super) first_address: u64,
    pub(super) length: u64,
}

impl Region {
    pub(super) const DEVICE: u64 = 1 << 40;

    /// The device address of an access, if it is allowed (protocol 4.6).
    pub(super) fn find(
        regions: &[Region],
        key: u32,
        domain: u32,
        is_remote: bool,
        at: u64,
        bytes: u32,
    ) -> Option<u64> {
        let region = regions.iter().find(|region| region.key == key)?;
        let may = if is_remote { region.remote_write } else { region.local_write };
        let (first, end) =
            (u128::from(region.first_address), u128::from(region.first_address) + u128::from(region.length));
        let (start, stop) = (u128::from(at), u128::from(at) + u128::from(bytes));
        (may && region.domain == domain && first <= start && stop <= end).then_some(at | Self::DEVICE)
    }
}

/// The reply to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owed {
    pub(super) syndrome: u8,
    pub(super) psn: u32,
    pub(super) msn: u32,
}

/// Fields of a CQE with status success.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Received {
    pub(super) opcode: CompletionOpcode,
    pub(super) length: u32,
    pub(super) immediate: Option<u32>,
    /// The key that was invalidated.
    pub(super) invalidated: Option<u32>,
    pub(super) solicited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Completion {
    pub(super) queue: u16,
    pub(super) wr_id: u64,
    pub(super) qpn: u32,
    pub(super) consumer_index: u16,
    /// No CQE: the report that no WQE of a shared receive queue is left (last WQE reached).
    pub(super) is_last: bool,
    /// Fields of a CQE in error, with the syndrome of the reply.
    pub(super) outcome: Result<Received, (CompletionStatus, u8)>,
}

/// Outcome of a packet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Command {
    pub(super) queue_pair: u16,
    pub(super) generation: u8,
    pub(super) payload_bytes: u32,
    pub(super) spans: Vec<(u64, u32)>,
    pub(super) completion: Option<Completion>,
    pub(super) reply: Option<Owed>,
}

impl Command {
    /// Its payload is dropped without a reply or a CQE.
    pub(super) fn is_silent(&self) -> bool {
        self.spans.is_empty() && self.completion.is_none() && self.reply.is_none()
    }

    /// A WQE is flushed; no packet is involved.
    pub(super) fn is_flush(&self) -> bool {
        let is_flushed =
            |completion: &Completion| matches!(completion.outcome, Err((CompletionStatus::Flushed, _)));
        self.payload_bytes == 0 && self.reply.is_none() && self.completion.as_ref().is_some_and(is_flushed)
    }
}

/// Packets of SEND and WRITE (protocol 1.4).
#[derive(Clone, Copy, PartialEq)]
enum Part {
    First,
    Middle,
    Last,
    Only,
}

/// A packet of a SEND or of a WRITE, and whether it has immediate data or invalidates a key.
#[derive(Clone, Copy)]
struct Kind {
    is_send: bool,
    part: Part,
    with_immediate: bool,
    with_invalidate: bool,
}

impl Kind {
    fn of(opcode: u8) -> Option<Kind> {
        use Operation as Op;
        use Part::{First, Last, Middle, Only};
        let kinds = [
            (Op::SendFirst, true, First, false),
            (Op::SendMiddle, true, Middle, false),
            (Op::SendLast, true, Last, false),
            (Op::SendLastImmediate, true, Last, true),
            (Op::SendOnly, true, Only, false),
            (Op::SendOnlyImmediate, true, Only, true),
            (Op::SendLastInvalidate, true, Last, false),
            (Op::SendOnlyInvalidate, true, Only, false),
            (Op::WriteFirst, false, First, false),
            (Op::WriteMiddle, false, Middle, false),
            (Op::WriteLast, false, Last, false),
            (Op::WriteLastImmediate, false, Last, true),
            (Op::WriteOnly, false, Only, false),
            (Op::WriteOnlyImmediate, false, Only, true),
        ];
        let (_, is_send, part, with_immediate) = kinds.into_iter().find(|kind| kind.0 as u8 == opcode)?;
        let with_invalidate = [Op::SendLastInvalidate as u8, Op::SendOnlyInvalidate as u8].contains(&opcode);
        Some(Kind { is_send, part, with_immediate, with_invalidate })
    }

    fn starts(self) -> bool {
        matches!(self.part, Part::First | Part::Only)
    }

    fn ends(self) -> bool {
        matches!(self.part, Part::Last | Part::Only)
    }

    /// Whether it may follow the packets of the message so far (protocol 3.3).
    fn follows(self, arriving: Option<Arriving>) -> bool {
        match arriving {
            None => self.starts(),
            Some(Arriving::Send { .. }) => self.is_send && !self.starts(),
            Some(Arriving::Write { .. }) => !self.is_send && !self.starts(),
        }
    }
}

/// What has arrived of the current message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arriving {
    Send { bytes: u32 },
    Write { address: u64, key: u32, length: u32, bytes: u32 },
}

/// A queue pair that must fail, and the event that reports it; or one whose communication is established.
pub(super) type Failure = (u16, u8, Option<AsyncEvent>);

/// One queue pair.
pub(super) struct Queue {
    pub(super) attributes: Attributes,
    pub(super) expected: u32,
    /// PSN of the last packet of a SEND or WRITE, or the one before the first PSN.
    last_message: u32,
    msn: u32,
    nak_sent: bool,
    /// A packet was invalid.
    has_refused: bool,
    /// A packet has failed.
    pub(super) has_failed: bool,
    /// Admission knows that a packet has failed.
    is_stopped: bool,
    pub(super) arriving: Option<Arriving>,
    /// The WQE of a SEND that has not ended and not failed.
    held: Option<Work>,
    /// A packet was executed in RTR.
    is_established: bool,
    /// It has reported that it holds no WQE of its shared receive queue (last WQE reached).
    is_last_said: bool,
    /// PSNs of the atomics that were executed.
    atomics: Vec<u32>,
    pub(super) consumed: u16,
    /// As the doorbell said.
    pub(super) posted: u16,
    /// WQEs that software has written.
    pub(super) written: u16,
    pub(super) works: HashMap<u16, Work>,
}

impl Queue {
    /// WQEs that are posted, if the claim can be true.
    pub(super) fn available(&self) -> u16 {
        let count = self.posted.wrapping_sub(self.consumed);
        if u32::from(count) <= 1 << self.attributes.entries_log2 { count } else { 0 }
    }

    /// A packet is executed, as far as admission knows.
    fn executes(&mut self, index: u16, failures: &mut Vec<Failure>) {
        self.expected = (self.expected + 1) & PSN_MASK;
        self.nak_sent = false;
        if self.attributes.state == QpState::ReadyToReceive && !self.is_established {
            self.is_established = true;
            failures.push((index, self.attributes.generation, Some(AsyncEvent::CommunicationEstablished)));
        }
    }

    /// WQEs that complete as flushed in ERR.
    pub(super) fn left_to_flush(&self) -> usize {
        let left = (0..self.available()).map(|ahead| self.works[&self.consumed.wrapping_add(ahead)]);
        let owes_last = self.attributes.shared.is_some() && !self.is_last_said;
        left.chain(self.held).filter(|work| !work.is_unreadable).count() + usize::from(owes_last)
    }

    fn completion(
        &self,
        work: &Work,
        outcome: Result<Received, (CompletionStatus, u8)>,
    ) -> Option<Completion> {
        (!work.is_unreadable).then_some(Completion {
            queue: self.attributes.completion_queue,
            wr_id: work.fields.wr_id,
            qpn: self.attributes.qpn,
            consumer_index: self.consumed,
            is_last: false,
            outcome,
        })
    }
}

/// All queue pairs and their state.
#[derive(Default)]
pub(super) struct Model {
    pub(super) regions: Vec<Region>,
    /// Regions whose keys are invalidated, until the table is updated.
    pub(super) lingering: Vec<Region>,
    pub(super) queues: HashMap<u16, Queue>,
    pub(super) failures: Vec<Failure>,
    pub(super) shared: HashMap<u8, Shared>,
    /// Limits that are reached: the queue, and the number of settings of its limit.
    pub(super) limits: Vec<(u8, u8)>,
    pub(super) counts: HashMap<&'static str, u64>,
    /// Cases that a test should cover, with the number of times they occurred.
    pub(super) seen: HashMap<&'static str, u64>,
    /// WQEs that were posted at a restart: some may be in flight as flushed.
    pub(super) overtaken: u64,
}

const ACK: u8 = Syndrome::Ack { credit_code: CREDITS_UNLIMITED }.emit();
const NAK_SEQUENCE: u8 = Syndrome::Nak(NakCode::PsnSequenceError).emit();
const NAK_INVALID: u8 = Syndrome::Nak(NakCode::InvalidRequest).emit();
const NAK_ACCESS: u8 = Syndrome::Nak(NakCode::RemoteAccessError).emit();
const NAK_OPERATIONAL: u8 = Syndrome::Nak(NakCode::RemoteOperationalError).emit();

/// A fault: the NAK, the status of a held receive WQE, and the event if no WQE is held or known.
type Fault = (u8, CompletionStatus, AsyncEvent);
const INVALID: Fault =
    (NAK_INVALID, CompletionStatus::RemoteInvalidRequest, AsyncEvent::QueuePairRequestError);
const TOO_LONG: Fault = (NAK_INVALID, CompletionStatus::LocalLength, AsyncEvent::QueuePairFatal);
const NO_ACCESS: Fault = (NAK_ACCESS, CompletionStatus::RemoteAccess, AsyncEvent::QueuePairAccessError);
const BAD_ELEMENT: Fault =
    (NAK_OPERATIONAL, CompletionStatus::LocalProtection, AsyncEvent::QueuePairAccessError);
const UNUSABLE_WQE: Fault =
    (NAK_OPERATIONAL, CompletionStatus::LocalQueuePairOperation, AsyncEvent::QueuePairFatal);

impl Model {
    fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// A setup event.
    pub(super) fn setup(&mut self, attributes: Attributes, restarts: bool, receive_psn: Option<u32>) {
        let queue = self.queues.entry(attributes.index()).or_insert_with(|| Queue {
            attributes,
            expected: 0,
            last_message: 0,
            msn: 0,
            nak_sent: false,
            has_refused: false,
            has_failed: false,
            is_stopped: false,
            arriving: None,
            held: None,
            is_last_said: false,
            is_established: false,
            atomics: Vec::new(),
            consumed: 0,
            posted: 0,
            written: 0,
            works: HashMap::new(),
        });
        queue.attributes = attributes;
        if restarts {
            self.overtaken += u64::from(queue.available());
            (queue.expected, queue.msn) = (0, 0);
            (queue.consumed, queue.posted, queue.written) = (0, 0, 0);
            (queue.nak_sent, queue.has_refused) = (false, false);
            (queue.has_failed, queue.is_stopped) = (false, false);
            (queue.arriving, queue.held, queue.is_last_said) = (None, None, false);
            queue.is_established = false;
            queue.works.clear();
            queue.atomics.clear();
        }
        if let Some(psn) = receive_psn {
            (queue.expected, queue.msn, queue.nak_sent) = (psn, 0, false);
            queue.last_message = psn.wrapping_sub(1) & PSN_MASK;
        }
    }

    /// Admission learns that a packet has failed in a later stage.
    pub(super) fn stop(&mut self, index: u16, generation: u8) {
        if let Some(queue) = self.queues.get_mut(&index)
            && queue.attributes.generation == generation
        {
            queue.is_stopped = true;
        }
    }

    /// Processes a packet; returns its outcome, if it has any.
    pub(super) fn request(&mut self, request: &Request) -> Option<Command> {
        let index = (request.qpn & INDEX_MASK) as u16;
        let command = self.decide(index, request);
        let silent = Command {
            queue_pair: index,
            generation: 0,
            payload_bytes: request.payload_bytes,
            spans: Vec::new(),
            completion: None,
            reply: None,
        };
        let command = command.unwrap_or(silent);
        (!command.is_silent() || command.payload_bytes > 0).then_some(command)
    }

    fn decide(&mut self, index: u16, request: &Request) -> Option<Command> {
        // Step 1 of protocol 3.1: a packet that fails here is dropped without a reply.
        let queue = self.queues.get_mut(&index).filter(|queue| queue.attributes.qpn == request.qpn);
        let Some(queue) = queue else {
            self.count("unknown_qp");
            return None;
        };
        let attributes = queue.attributes;
        let (low, mine) = (request.partition_key & 0x7fff, attributes.partition_key);
        let keys_meet = low != 0 && low == mine & 0x7fff && (request.partition_key | mine) & 0x8000 != 0;
        use QpState::{ReadyToReceive, ReadyToSend, SendQueueDrain, SendQueueError};
        let refusal =
            if !matches!(attributes.state, ReadyToReceive | ReadyToSend | SendQueueDrain | SendQueueError) {
                Some("qp_not_ready")
            } else if request.opcode >> 5 != 0 {
                Some("transport_mismatch")
            } else if !keys_meet {
                Some("partition_key")
            } else if request.peer != attributes.peer || request.own != own_address(attributes.own_place) {
                Some("source_address")
            } else if queue.has_refused || queue.is_stopped {
                Some("requests_after_failure")
            } else {
                None
            };
        if let Some(name) = refusal {
            self.count(name);
            return None;
        }

        let is_atomic = [Operation::CompareSwap as u8, Operation::FetchAdd as u8].contains(&request.opcode);
        let may_repeat = attributes.remote_atomic && request.payload_bytes == 0 && !request.pad_mismatch;

        // Step 2: the PSN.
        let distance = request.psn.wrapping_sub(queue.expected) & PSN_MASK;
        if distance >= 1 << 23 {
            use Operation::{SendLastInvalidate, SendOnlyInvalidate, WriteOnlyImmediate};
            let is_repeated = request.opcode <= WriteOnlyImmediate as u8
                || [SendLastInvalidate as u8, SendOnlyInvalidate as u8].contains(&request.opcode);
            let answer = Owed { syndrome: ACK, psn: queue.last_message, msn: queue.msn };
            if is_atomic && may_repeat {
                // The READ responder looks for it among the last sixteen.
                let is_noted = queue.atomics.iter().rev().take(16).any(|psn| *psn == request.psn);
                self.count(if is_noted { "duplicate_request" } else { "duplicate_dropped" });
                return self.answer(index, request, Owed { psn: request.psn, ..answer });
            }
            self.count(if is_repeated { "duplicate_request" } else { "duplicate_dropped" });
            return (is_repeated && request.ack_request)
                .then(|| self.answer(index, request, answer))
                .flatten();
        }
        if distance > 0 {
            let was_told = std::mem::replace(&mut queue.nak_sent, true);
            let answer = Owed { syndrome: NAK_SEQUENCE, psn: queue.expected, msn: queue.msn };
            self.count("request_gap");
            return if was_told { None } else { self.answer(index, request, answer) };
        }

        // Steps 3 to 6: opcode and its order, right, receive WQE, length.
        let arriving = queue.arriving;
        if is_atomic && may_repeat && request.address.is_multiple_of(8) && arriving.is_none() {
            queue.executes(index, &mut self.failures);
            let has_right =
                Region::find(&self.regions, request.key, attributes.domain, true, request.address, 8);
            if has_right.is_none() {
                return Some(self.fail(index, request, None, NO_ACCESS));
            }
            queue.msn = (queue.msn + 1) & PSN_MASK;
            queue.atomics.push(request.psn);
            return Some(Command {
                queue_pair: index,
                generation: attributes.generation,
                payload_bytes: 0,
                spans: Vec::new(),
                completion: None,
                reply: Some(Owed { syndrome: ACK, psn: request.psn, msn: queue.msn }),
            });
        }
        let kind = Kind::of(request.opcode).filter(|kind| kind.follows(arriving));
        let permitted = kind.filter(|kind| kind.is_send || attributes.remote_write);
        let mut taken = None;
        if let Some(Kind { is_send, with_immediate, .. }) = permitted
            && if is_send { arriving.is_none() } else { with_immediate }
        {
            let shared = attributes.shared.map(|number| (number, self.shared.get_mut(&number)));
            let mut shared = shared.map(|(number, shared)| (number, shared.expect("it was made")));
            if let Some((number, shared)) = &mut shared {
                // Includes the next WQE, which is about to be taken.
                if shared.is_armed && shared.available() <= shared.limit {
                    shared.is_armed = false;
                    self.limits.push((*number, shared.setting));
                    *self.seen.entry("a limit is reached").or_default() += 1;
                }
            }
            if shared.as_ref().map_or(queue.available(), |(_, shared)| shared.available()) == 0 {
                queue.nak_sent = true;
                if arriving.is_some() {
                    *self.seen.entry("a message waits for a receive WQE").or_default() += 1;
                }
                let syndrome = Syndrome::RnrNak { timer_code: attributes.timer_code }.emit();
                let answer = Owed { syndrome, psn: request.psn, msn: queue.msn };
                return self.answer(index, request, answer);
            }
            let (works, consumed) = match shared {
                Some((_, shared)) => (&shared.works, &mut shared.consumed),
                None => (&queue.works, &mut queue.consumed),
            };
            taken = Some(works[consumed]);
            *consumed = consumed.wrapping_add(1);
        }
        let begun = arriving.unwrap_or(Arriving::Write {
            address: request.address,
            key: request.key,
            length: request.length,
            bytes: 0,
        });
        let came = request.payload_bytes;
        let Some(kind) = permitted.filter(|kind| {
            let pmtu = attributes.pmtu_bytes();
            let is_right_size = match kind.part {
                Part::First | Part::Middle => came == pmtu,
                Part::Last => (1..=pmtu).contains(&came),
                Part::Only => came <= pmtu,
            };
            let adds_up = match begun {
                Arriving::Write { length, bytes, .. } if !kind.is_send => {
                    let after = bytes + came;
                    length <= 1 << 31 && if kind.ends() { after == length } else { after <= length }
                }
                _ => true,
            };
            is_right_size && !request.pad_mismatch && adds_up
        }) else {
            queue.has_refused = true;
            queue.arriving = None;
            if queue.held.is_some() {
                *self.seen.entry("a packet is refused inside a SEND").or_default() += 1;
            }
            let held = taken.or(queue.held.take());
            return Some(self.fail(index, request, held, INVALID));
        };
        queue.executes(index, &mut self.failures);
        queue.last_message = request.psn;

        // The WQE, and step 7: keys.
        let entry = if kind.is_send { taken.or(queue.held.take()) } else { taken };
        let (spans, total) = match (begun, entry) {
            (_, Some(work)) if work.is_unreadable || work.is_malformed => (Err(UNUSABLE_WQE), 0),
            (_, None) if kind.is_send => {
                assert!(queue.has_failed, "a SEND without a WQE");
                (Err(UNUSABLE_WQE), 0)
            }
            (begun, Some(work)) if kind.is_send => {
                let before = if let Arriving::Send { bytes } = begun { bytes } else { 0 };
                (Self::scatter(&self.regions, &attributes, &work, before, came), before + came)
            }
            (Arriving::Write { length: 0, .. }, _) => (Ok(Vec::new()), 0),
            (Arriving::Write { address, key, length, bytes }, _) => {
                let find = |at, bytes| Region::find(&self.regions, key, attributes.domain, true, at, bytes);
                // The whole message is checked before the first byte is written, and each packet when it
                // arrives.
                let is_in_bounds = bytes > 0 || find(address, length).is_some();
                let device = find(address.wrapping_add(bytes.into()), came).filter(|_| is_in_bounds);
                (device.map_or(Err(NO_ACCESS), |device| Ok(vec![(device, came)])), length)
            }
            (Arriving::Send { .. }, _) => unreachable!("a WRITE inside a SEND"),
        };
        queue.arriving = (!kind.ends()).then_some(match begun {
            Arriving::Write { address, key, length, bytes } if !kind.is_send => {
                Arriving::Write { address, key, length, bytes: bytes + came }
            }
            Arriving::Write { .. } => Arriving::Send { bytes: came },
            Arriving::Send { bytes } => Arriving::Send { bytes: bytes + came },
        });
        let spans = match spans {
            Ok(spans) if !queue.has_failed => spans,
            Ok(_) => return Some(self.fail(index, request, entry, INVALID)),
            Err(fault) => {
                let name = match fault {
                    TOO_LONG if arriving.is_some() => Some("a SEND grows too long"),
                    BAD_ELEMENT if arriving.is_some() => Some("a SEND comes to a bad sge"),
                    _ => None,
                };
                name.into_iter().for_each(|name| *self.seen.entry(name).or_default() += 1);
                return Some(self.fail(index, request, entry, fault));
            }
        };

        // The key of a SEND with Invalidate, if there is no other fault.
        if kind.with_invalidate {
            let is_it = |region: &Region| {
                region.key == request.immediate && region.domain == attributes.domain && region.invalidatable
            };
            let Some(place) = self.regions.iter().position(is_it) else {
                *self.seen.entry("a key must not be invalidated").or_default() += 1;
                return Some(self.fail(index, request, entry, NO_ACCESS));
            };
            self.lingering.push(self.regions.remove(place));
            *self.seen.entry("a key is invalidated").or_default() += 1;
        }

        // Step 8. A message counts and completes with its last packet.
        if kind.ends() {
            queue.msn = (queue.msn + 1) & PSN_MASK;
            if arriving.is_some() {
                let name =
                    if kind.is_send { "a SEND of several packets" } else { "a WRITE of several packets" };
                *self.seen.entry(name).or_default() += 1;
            }
        }
        let received = Received {
            opcode: if kind.is_send { CompletionOpcode::Receive } else { CompletionOpcode::ReceiveWrite },
            length: total,
            immediate: kind.with_immediate.then_some(request.immediate),
            invalidated: kind.with_invalidate.then_some(request.immediate),
            solicited: request.solicited,
        };
        let completes = entry.filter(|_| kind.ends());
        if !kind.ends() {
            queue.held = entry;
        }
        Some(Command {
            queue_pair: index,
            generation: attributes.generation,
            payload_bytes: came,
            spans,
            completion: completes.and_then(|work| queue.completion(&work, Ok(received))),
            reply: request.ack_request.then_some(Owed { syndrome: ACK, psn: request.psn, msn: queue.msn }),
        })
    }

    /// Splits a part of a message among the SGEs of a WQE.
    fn scatter(
        regions: &[Region],
        attributes: &Attributes,
        work: &Work,
        bytes_before: u32,
        payload_bytes: u32,
    ) -> Result<Vec<(u64, u32)>, Fault> {
        let fields = work.fields;
        let sges = [
            (fields.sge0_address, fields.sge0_key, fields.sge0_length),
            (fields.sge1_address, fields.sge1_key, fields.sge1_length),
            (fields.sge2_address, fields.sge2_key, fields.sge2_length),
        ];
        let (mut before, mut left, mut spans) = (bytes_before, payload_bytes, Vec::new());
        for &(address, key, length) in &sges[..fields.sge_count.into()] {
            let skipped = before.min(length);
            let bytes = left.min(length - skipped);
            if bytes > 0 {
                spans.push((address + u64::from(skipped), key, bytes));
            }
            before -= skipped;
            left -= bytes;
        }
        if left > 0 {
            return Err(TOO_LONG);
        }
        let device = |(address, key, bytes)| {
            let device = Region::find(regions, key, attributes.domain, false, address, bytes);
            device.map(|device| (device, bytes)).ok_or(BAD_ELEMENT)
        };
        spans.into_iter().map(device).collect()
    }

    /// A packet that gets a reply and is not executed; after a failure it gets none.
    fn answer(&mut self, index: u16, request: &Request, answer: Owed) -> Option<Command> {
        let queue = &self.queues[&index];
        if queue.has_failed {
            self.count("requests_after_failure");
            return None;
        }
        Some(Command {
            queue_pair: index,
            generation: queue.attributes.generation,
            payload_bytes: request.payload_bytes,
            spans: Vec::new(),
            completion: None,
            reply: Some(answer),
        })
    }

    /// A packet that fails the queue pair, or follows one that did.
    fn fail(&mut self, index: u16, request: &Request, held: Option<Work>, fault: Fault) -> Command {
        let queue = self.queues.get_mut(&index).expect("it was found");
        let (syndrome, status, event) = fault;
        let is_late = std::mem::replace(&mut queue.has_failed, true);
        let generation = queue.attributes.generation;
        let outcome = if is_late { (CompletionStatus::Flushed, 0) } else { (status, syndrome) };
        let completion = held.and_then(|work| queue.completion(&work, Err(outcome)));
        let reply = (!is_late).then_some(Owed { syndrome, psn: request.psn, msn: queue.msn });
        if is_late {
            self.count("requests_after_failure");
        } else {
            let is_broken = held.is_some_and(|work| work.is_malformed && !work.is_unreadable);
            match fault {
                NO_ACCESS => self.count("remote_protection"),
                BAD_ELEMENT => self.count("local_protection"),
                UNUSABLE_WQE if is_broken => self.count("work_refused"),
                _ => {}
            }
            self.failures.push((index, generation, completion.is_none().then_some(event)));
        }
        Command {
            queue_pair: index,
            generation,
            payload_bytes: request.payload_bytes,
            spans: Vec::new(),
            completion,
            reply,
        }
    }

    /// The next WQE that a queue pair in ERR flushes.
    pub(super) fn flush(&mut self, index: u16, generation: u8) -> Option<Command> {
        let queue = self.queues.get_mut(&index)?;
        let attributes = queue.attributes;
        while attributes.state == QpState::Error
            && attributes.generation == generation
            && queue.held.is_some()
                | (queue.available() > 0)
                | (attributes.shared.is_some() && !queue.is_last_said)
        {
            // The WQE of a SEND that has not ended is the oldest.
            let work = if let Some(held) = queue.held.take() {
                *self.seen.entry("a SEND is flushed").or_default() += 1;
                held
            } else if attributes.shared.is_some() {
                queue.is_last_said = true;
                *self.seen.entry("the last WQE is reported").or_default() += 1;
                return Some(Command {
                    queue_pair: index,
                    generation,
                    payload_bytes: 0,
                    spans: Vec::new(),
                    completion: Some(Completion {
                        queue: attributes.completion_queue,
                        wr_id: 0,
                        qpn: attributes.qpn,
                        consumer_index: 0,
                        is_last: true,
                        outcome: Err((CompletionStatus::Flushed, 0)),
                    }),
                    reply: None,
                });
            } else {
                queue.consumed = queue.consumed.wrapping_add(1);
                queue.works[&queue.consumed.wrapping_sub(1)]
            };
            let completion = queue.completion(&work, Err((CompletionStatus::Flushed, 0)));
            if completion.is_some() {
                return Some(Command {
                    queue_pair: index,
                    generation,
                    payload_bytes: 0,
                    spans: Vec::new(),
                    completion,
                    reply: None,
                });
            }
        }
        None
    }
}
