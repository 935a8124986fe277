//! ReadResponder: answers READs, packet by packet, and atomics.
//!
//! A READ of 2 GiB is one request, and its responses would keep every other queue pair waiting. So queue pairs with READs to be
//! served stand in a line, and each turn makes the responses of 16 KiB at most. A READ waits in a slot that its queue pair owns, so
//! admission never waits for the wire (design decision 4). Atomics stand between them, in the order of their requests; what they
//! found comes from `exchange`, and waits in a slot too.
//!
//! ```text
//!             ┌──────────────────────────────────────────────────────────────────┐
//!  setup ────>│ life                                                             │
//!  job ──────>│ slots (16 a queue pair), how many there are                      │
//!  release ──>│ how many may be served ──> line                                  │
//!  result ───>│ values (16 a queue pair), how many have come                     │
//!             │                              v                                   │
//!             │                 oldest job ──> response ──> packets (128) ──┐    │
//!             │ served <── how far it is <──┘      └────────────────────────┼────┼──> access_request
//!             │                                                             v    │
//!  answer ────┼───────────────────────────────────────────────────────> verdict ─┼──> gather
//!  lost ──────┼─────────────────────────────────────────────────────────────┘ └──┼──> failure
//!             └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A response takes 2 cycles, a turn 5 more. Latency 13 cycles from `release` to `gather`, with a table of regions that answers in
//! one.
//!
//! 1. READs of a queue pair are served in the order of their jobs, each once and only when released, and so are their responses:
//!    FIRST, MIDDLE, LAST, or ONLY, with the bytes of the region as they are when they are read (protocol 2.2, 3.7).
//! 2. Each response asks for its own bytes: a region that has ended meanwhile ends the READ with NAK 0x62 in place of the
//!    response, one that the host does not give with NAK 0x63 at its PSN. Then the queue pair fails, and nothing more of it is served.
//! 3. READs without bytes ask for nothing (protocol 3.6).
//! 4. An atomic is answered when its result is there, and what is behind it not before: so a READ sees what an atomic
//!    before it has written. While it waits its queue pair is out of the line. One that has failed at the host ends in NAK 0x63. The
//!    original value stays in the slot of the atomic.
//! 5. In ERR, INIT and RESET, and behind a restart, what is left is dropped with the event.
//! 6. Setup events, jobs, releases and results are taken within 4 cycles, whatever the outputs do.
//! 7. `served` says how many READs and atomics have been answered or dropped, for who counts those under way.
//! 8. `passage` counts responses between the line and gather.
//!
//! Reset forgets all jobs, in 1,024 cycles.
use crate::messages::AtomicResult;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::opcode::{Operation, Transport};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::QpState;
use rnic_layout::syndrome::{CREDITS_UNLIMITED, NakCode, Syndrome};
use rnic_messages::host::HostSpan;
use rnic_messages::packet::EXTENDED_BITS;
use rnic_messages::protect::{AccessAnswer, AccessRequest};
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS, ReadJob, ReadRelease, ReadsServed};
use rnic_messages::setup::{InFlight, NoticeKind, QpNotice, SetupEvent, SetupKind};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS};
use rnic_messages::transmit::{GatherCommand, GatherFailure, TransmitRequest};

const READY_TO_RECEIVE: u64 = QpState::ReadyToReceive as u64;
const READY_TO_SEND: u64 = QpState::ReadyToSend as u64;
const SEND_QUEUE_DRAIN: u64 = QpState::SendQueueDrain as u64;
const SEND_QUEUE_ERROR: u64 = QpState::SendQueueError as u64;
const RESPONSE_FIRST: u64 = reliable(Operation::ReadResponseFirst);
const RESPONSE_MIDDLE: u64 = reliable(Operation::ReadResponseMiddle);
const RESPONSE_LAST: u64 = reliable(Operation::ReadResponseLast);
const RESPONSE_ONLY: u64 = reliable(Operation::ReadResponseOnly);
const ACKNOWLEDGE: u64 = reliable(Operation::Acknowledge);
const ATOMIC_ACKNOWLEDGE: u64 = reliable(Operation::AtomicAcknowledge);
const ACKNOWLEDGED: u64 = Syndrome::Ack { credit_code: CREDITS_UNLIMITED }.emit() as u64;
const NAK_ACCESS: u64 = Syndrome::Nak(NakCode::RemoteAccessError).emit() as u64;
const NAK_OPERATIONAL: u64 = Syndrome::Nak(NakCode::RemoteOperationalError).emit() as u64;
const ACCESS_EVENT: u64 = AsyncEvent::QueuePairAccessError as u64;
const FATAL_EVENT: u64 = AsyncEvent::QueuePairFatal as u64;

/// The opcode of an operation of the reliable service.
const fn reliable(operation: Operation) -> u64 {
    (Transport::Rc.base() | operation.code()) as u64
}

/// Bytes of a turn, as a power of two.
const QUANTUM_BITS: usize = 14;
/// Responses of a turn at the smallest PMTU.
const TURN_BITS: usize = QUANTUM_BITS - 8;
/// The shortest PMTU code would be this many bytes, and each code doubles it.
const PMTU_BASE_BITS: usize = 7;
/// Responses that wait for their answers, as a power of two.
const PACKETS: usize = 7;
const PACKET_COUNT: usize = PACKETS + 1;
/// A turn begins with room for all that it makes.
const PACKETS_MAX: u64 = 1 << TURN_BITS;
const SLOT_BITS: usize = QUEUE_PAIR_BITS + READ_SLOT_BITS;
const LINE_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;
/// Bits of the headers of an answer: AETH, and AtomicAckETH or nothing.
const HEADER_BITS: usize = 32 + 64;

/// What commands say.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Life {
    /// READs are answered.
    serves: Bit,
    generation: Bits<GENERATION_BITS>,
    path_mtu: Bits<3>,
    domain: Bits<24>,
}

/// How far a queue pair is.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Progress {
    /// Jobs that are done with.
    served: Bits<READ_COUNT_BITS>,
    /// Bytes of the oldest one that have been answered.
    bytes: Bits<32>,
    /// Responses that have been made of it.
    packets: Bits<24>,
    /// Atomics that have been answered.
    atomics: Bits<READ_COUNT_BITS>,
    /// A response was made since the queue pair was made or reset.
    has_begun: Bit,
}

/// How many jobs of a queue pair may be served, and whether it stands in line.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Released {
    count: Bits<READ_COUNT_BITS>,
    is_in_line: Bit,
}

/// What a slot holds; the fields of [`ReadJob`] that are its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Job {
    psn: Bits<24>,
    msn: Bits<24>,
    key: Bits<32>,
    address: Bits<64>,
    length: Bits<32>,
    is_atomic: Bit,
}

/// What an atomic has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Value {
    original: Bits<64>,
    has_failed: Bit,
}

/// A response whose bytes have been asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Response {
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    generation: Bits<GENERATION_BITS>,
    /// The first since the queue pair was made or reset.
    is_first: Bit,
    opcode: Bits<8>,
    psn: Bits<24>,
    msn: Bits<24>,
    payload_bytes: Bits<13>,
    ends: Bit,
    /// What an atomic has found, else zero.
    original: Bits<64>,
    /// The host failed it.
    has_failed: Bit,
}

/// What has become of the responses of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Verdict {
    has_failed: Bit,
    generation: Bits<GENERATION_BITS>,
    /// MSN of the last response.
    msn: Bits<24>,
}

/// What the block does with its records.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Clears them behind a reset.
    Clear,
    /// Chooses.
    Idle,
    /// A command; a job; a release; a result.
    Setup,
    Store,
    Release,
    Result,
    /// A turn: the records, the job, response by response, the records back.
    Load,
    Fetch,
    /// The result of an atomic is not there.
    Park,
    Plan,
    Make,
    Look,
    Keep,
}

/// What it does with responses.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Sending {
    /// Chooses.
    Look,
    /// A response has its answer.
    Send,
    /// The host did not give the bytes of one.
    Lose,
}

/// The stage.
#[derive(LogicBlock, Registers, Construct)]
pub struct ReadResponder {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all queue pairs.
    pub reset: Signal<In, Bit>,
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From conclude: READs and atomics in order, before they are released.
    pub job: StreamRx<ReadJob>,
    /// From reply.
    pub release: StreamRx<ReadRelease>,
    /// From exchange: what atomics have found, those of a queue pair in order; `ready` is a function of registers.
    pub result: StreamRx<AtomicResult>,
    /// To the table of regions; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// Its answers, in order; `ready` is a function of registers.
    pub access_answer: StreamRx<AccessAnswer>,
    /// To gather; registered.
    pub gather: StreamTx<GatherCommand>,
    /// From gather: a response that could not be sent; `ready` is a function of registers.
    pub lost: StreamRx<GatherFailure>,
    /// To control; registered.
    pub failure: StreamTx<QpNotice>,
    /// To admission; a function of registers.
    pub served: Signal<Out, ReadsServed>,
    /// It has changed.
    pub served_valid: Signal<Out, Bit>,
    /// To control; registered.
    pub in_flight: Signal<Out, InFlight>,

    /// Counter.
    pub counts_nak_access_sent: Signal<Out, Bit>,
    /// Counter.
    pub counts_nak_operational_sent: Signal<Out, Bit>,
    /// Counter.
    pub counts_remote_protection: Signal<Out, Bit>,

    lives: Memory<Life, QUEUE_PAIR_BITS>,
    /// Jobs that ever came.
    stored: Memory<Bits<READ_COUNT_BITS>, QUEUE_PAIR_BITS>,
    released: Memory<Released, QUEUE_PAIR_BITS>,
    progresses: Memory<Progress, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Ultra))]
    slots: Memory<Job, SLOT_BITS>,
    /// Results that ever came.
    arrived: Memory<Bits<READ_COUNT_BITS>, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Ultra))]
    values: Memory<Value, SLOT_BITS>,
    line: Fifo<Bits<QUEUE_PAIR_BITS>, QUEUE_PAIR_BITS, LINE_COUNT_BITS>,
    packets: Fifo<Response, PACKETS, PACKET_COUNT>,
    requests: Fifo<AccessRequest, 3, 4>,
    step: Reg<Step>,
    sweep: Reg<Bits<QUEUE_PAIR_BITS>>,
    /// Events were taken since the last packet, so the turn goes on first.
    turn_is_next: Reg<Bit>,
    /// A turn is under way.
    has_turn: Reg<Bit>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    turn_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    life: DFF<Life>,
    current: DFF<Progress>,
    job_held: DFF<Job>,
    left: DFF<Bits<32>>,
    packets_left: DFF<Bits<7>>,
    is_last: DFF<Bit>,
    /// Of the atomic that is answered, else zero.
    value: DFF<Value>,
    payload_bytes: DFF<Bits<13>>,
    told: DFF<ReadsServed>,
    has_told: Reg<Bit>,

    sending: Reg<Sending>,
    verdicts: Memory<Verdict, QUEUE_PAIR_BITS>,
    commands: RegisterSlice<GatherCommand>,
    failures: Fifo<QpNotice, 2, 3>,
    passed: Reg<InFlight>,
    counts: Reg<Bits<2>>,
}

/// A bit as a number to be added.
#[kernel]
fn one(bit: Bit) -> Bits<16> {
    select(bit, bits::<16>(1), bits::<16>(0))
}

/// Bytes of a code.
#[kernel]
fn pmtu(code: Bits<3>) -> Bits<13> {
    bits::<13>(1 << PMTU_BASE_BITS) << code
}

impl Logic for ReadResponder {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<AccessRequest>::link(&mut self.access_request, &mut self.requests.tx);
        StreamTx::<GatherCommand>::link(&mut self.gather, &mut self.commands.tx);
        StreamTx::<QpNotice>::link(&mut self.failure, &mut self.failures.tx);
        let clears = self.step.q.val() == Step::Clear;
        let sweep = self.sweep.q.val();
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let turn_pair = self.turn_pair.q.val();
        let has_turn = self.has_turn.q.val();
        let event = self.setup.beat.val();
        let job = self.job.beat.val();
        let release = self.release.beat.val();
        let result = self.result.beat.val();
        let current = self.current.q.val();
        let held = self.job_held.q.val();

        // Who is next: events go first, but between two of them a turn that is under way makes a response.
        let has_setup = self.setup.valid.val();
        let has_event =
            has_setup || self.job.valid.val() || self.release.valid.val() || self.result.valid.val();
        let may_make = self.requests.rx.ready.val() && self.packets.rx.ready.val();
        let is_making = step == Step::Make;
        let takes_event =
            has_event && (step == Step::Idle || (is_making && !(self.turn_is_next.q.val() && may_make)));
        let makes = is_making && may_make && !takes_event;
        let may_turn = self.line.tx.valid.val() && self.packets.level.val() <= PACKETS_MAX;
        let takes_turn = step == Step::Idle && !has_event && may_turn;
        let chosen = if has_setup {
            event.queue_pair
        } else if self.job.valid.val() {
            job.queue_pair
        } else if self.release.valid.val() {
            release.queue_pair
        } else if self.result.valid.val() {
            result.queue_pair
        } else {
            self.line.tx.beat.val()
        };
        self.line.tx.ready.next = takes_turn;
        if takes_event || takes_turn {
            self.queue_pair.d.next = chosen;
        }
        if takes_event {
            self.turn_is_next.d.next = true;
            self.step.d.next = if has_setup {
                Step::Setup
            } else if self.job.valid.val() {
                Step::Store
            } else if self.release.valid.val() {
                Step::Release
            } else {
                Step::Result
            };
        }
        if takes_turn {
            self.step.d.next = Step::Load;
        }
        let looks = step == Step::Look;
        let reads = takes_event || takes_turn;
        self.lives.read_enable.next = reads;
        self.lives.read_address.next = chosen;
        self.stored.read_enable.next = reads;
        self.stored.read_address.next = chosen;
        self.released.read_enable.next = reads || looks;
        self.released.read_address.next = select(looks, turn_pair, chosen);
        self.progresses.read_enable.next = reads;
        self.progresses.read_address.next = chosen;
        self.arrived.read_enable.next = reads;
        self.arrived.read_address.next = chosen;
        let arrived = self.arrived.read_data.val();
        let life = self.lives.read_data.val();
        let stored = self.stored.read_data.val();
        let released = self.released.read_data.val();
        let progress = self.progresses.read_data.val();
        if clears {
            self.sweep.d.next = sweep + 1;
            if sweep.all() {
                self.step.d.next = Step::Idle;
            }
        }

        // A command. What a turn holds of its queue pair ends with it.
        let sets = step == Step::Setup;
        let serves = event.state == READY_TO_RECEIVE
            || event.state == READY_TO_SEND
            || event.state == SEND_QUEUE_DRAIN
            || event.state == SEND_QUEUE_ERROR;
        let restarts = event.kind == SetupKind::Restart;
        let drops = sets && (!serves || restarts);
        let is_turns = has_turn && queue_pair == turn_pair;
        let had_begun = select(is_turns, current.has_begun, progress.has_begun);
        self.setup.ready.next = sets;
        self.lives.write_enable.next = clears || sets;
        self.lives.write_address.next = select(clears, sweep, queue_pair);
        self.lives.write_data.next = Life {
            serves: serves && !clears,
            generation: event.generation,
            path_mtu: event.path.path_mtu,
            domain: event.path.domain,
        };

        // A job, and the word that the oldest one that waits may be served.
        let stores = step == Step::Store && life.serves && life.generation == job.generation;
        self.job.ready.next = step == Step::Store;
        self.slots.write_enable.next = stores;
        self.slots.write_address.next = cat!(queue_pair, stored.get_bits::<READ_SLOT_BITS>(0));
        self.slots.write_data.next = Job {
            psn: job.psn,
            msn: job.msn,
            key: job.key,
            address: job.address,
            length: job.length,
            is_atomic: job.is_atomic,
        };
        self.stored.write_enable.next = clears || drops || stores;
        self.stored.write_address.next = select(clears, sweep, queue_pair);
        self.stored.write_data.next = select(stores, stored + 1, bits::<READ_COUNT_BITS>(0));
        let releases = step == Step::Release
            && life.serves
            && life.generation == release.generation
            && released.count != stored;
        self.release.ready.next = step == Step::Release;
        let is_result = step == Step::Result;
        let keeps_value = is_result && life.serves && life.generation == result.generation;
        // It may be what its queue pair waits for.
        let returns = keeps_value && !released.is_in_line && progress.served != released.count;
        self.result.ready.next = is_result;
        self.values.write_enable.next = keeps_value;
        self.values.write_address.next = cat!(queue_pair, result.slot);
        self.values.write_data.next = Value { original: result.original, has_failed: result.has_failed };
        self.arrived.write_enable.next = clears || drops || keeps_value;
        self.arrived.write_address.next = select(clears, sweep, queue_pair);
        self.arrived.write_data.next = select(keeps_value, arrived + 1, bits::<READ_COUNT_BITS>(0));
        if sets || step == Step::Store || step == Step::Release || is_result {
            self.step.d.next = if has_turn && !(drops && is_turns) { Step::Make } else { Step::Idle };
        }
        if drops && is_turns {
            self.has_turn.d.next = false;
        }

        // A turn: the oldest job, from the byte where it was left.
        let loads = step == Step::Load;
        let has_work = life.serves && progress.served != released.count;
        self.slots.read_enable.next = loads;
        let slot: Bits<SLOT_BITS> = cat!(queue_pair, progress.served.get_bits::<READ_SLOT_BITS>(0));
        self.slots.read_address.next = slot;
        self.values.read_enable.next = loads;
        self.values.read_address.next = slot;
        if loads {
            self.turn_pair.d.next = queue_pair;
            self.life.d.next = life;
            self.current.d.next = progress;
            self.packets_left.d.next = bits::<7>(PACKETS_MAX) >> (life.path_mtu - 1);
            self.has_turn.d.next = has_work;
            self.turn_is_next.d.next = false;
            self.step.d.next = if has_work { Step::Fetch } else { Step::Idle };
        }
        if step == Step::Fetch {
            let found = self.slots.read_data.val();
            self.job_held.d.next = found;
            self.left.d.next = found.length - current.bytes;
            let value = self.values.read_data.val();
            self.value.d.next = Value {
                original: select(found.is_atomic, value.original, bits::<64>(0)),
                has_failed: found.is_atomic && value.has_failed,
            };
            let is_waiting = found.is_atomic && arrived == current.atomics;
            self.step.d.next = if is_waiting { Step::Park } else { Step::Plan };
        }
        let parks = step == Step::Park;
        if parks {
            self.has_turn.d.next = false;
            self.step.d.next = Step::Idle;
        }
        let turn_life = self.life.q.val();
        let left = self.left.q.val();
        let packet_bytes = pmtu(turn_life.path_mtu);
        let fits = left <= bit_cast::<32, 13>(packet_bytes);
        if step == Step::Plan {
            self.is_last.d.next = fits;
            self.payload_bytes.d.next = select(fits, left.get_bits::<13>(0), packet_bytes);
            self.step.d.next = Step::Make;
        }
        let is_last = self.is_last.q.val();
        let payload_bytes = self.payload_bytes.q.val();
        let ends_turn = is_last || self.packets_left.q.val() == 1;
        self.packets.rx.valid.next = makes;
        self.packets.rx.beat.next = Response {
            queue_pair: turn_pair,
            generation: turn_life.generation,
            is_first: !current.has_begun,
            opcode: if held.is_atomic {
                bits::<8>(ATOMIC_ACKNOWLEDGE)
            } else {
                match (current.packets.any(), is_last) {
                    (false, true) => bits::<8>(RESPONSE_ONLY),
                    (false, false) => bits::<8>(RESPONSE_FIRST),
                    (true, false) => bits::<8>(RESPONSE_MIDDLE),
                    (true, true) => bits::<8>(RESPONSE_LAST),
                }
            },
            psn: held.psn + current.packets,
            msn: held.msn,
            payload_bytes,
            ends: is_last,
            original: self.value.q.val().original,
            has_failed: self.value.q.val().has_failed,
        };
        self.requests.rx.valid.next = makes && payload_bytes.any();
        self.requests.rx.beat.next = AccessRequest {
            key: held.key,
            domain: turn_life.domain,
            address: held.address + bit_cast::<64, 32>(current.bytes),
            length: bit_cast::<32, 13>(payload_bytes),
            local_write: false,
            remote_write: false,
            remote_read: true,
            remote_atomic: false,
        };
        if makes {
            self.current.d.next.bytes = current.bytes + bit_cast::<32, 13>(payload_bytes);
            self.current.d.next.packets = current.packets + 1;
            self.current.d.next.has_begun = true;
            self.left.d.next = left - bit_cast::<32, 13>(payload_bytes);
            self.packets_left.d.next = self.packets_left.q.val() - 1;
            self.turn_is_next.d.next = false;
            self.step.d.next = if ends_turn { Step::Look } else { Step::Plan };
        }
        if looks {
            self.step.d.next = Step::Keep;
        }
        let keeps = step == Step::Keep;
        let served = select(is_last, current.served + 1, current.served);
        let goes_on = keeps && served != released.count;
        if keeps {
            self.has_turn.d.next = false;
            self.step.d.next = Step::Idle;
        }
        self.progresses.write_enable.next = clears || drops || keeps;
        self.progresses.write_address.next = if clears {
            sweep
        } else if keeps {
            turn_pair
        } else {
            queue_pair
        };
        self.progresses.write_data.next = Progress {
            served: select(keeps, served, bits::<READ_COUNT_BITS>(0)),
            bytes: select(keeps && !is_last, current.bytes, bits::<32>(0)),
            packets: select(keeps && !is_last, current.packets, bits::<24>(0)),
            atomics: if !keeps {
                bits::<READ_COUNT_BITS>(0)
            } else if held.is_atomic {
                current.atomics + 1
            } else {
                current.atomics
            },
            has_begun: !clears && select(keeps, current.has_begun, had_begun && !restarts),
        };
        self.released.write_enable.next =
            clears || drops || releases || returns || keeps || parks || (loads && !has_work);
        self.released.write_address.next = if clears {
            sweep
        } else if keeps {
            turn_pair
        } else {
            queue_pair
        };
        self.released.write_data.next = Released {
            count: if clears || drops {
                bits::<READ_COUNT_BITS>(0)
            } else if releases {
                released.count + 1
            } else {
                released.count
            },
            is_in_line: releases || returns || goes_on || (drops && released.is_in_line && !is_turns),
        };
        self.line.rx.valid.next = goes_on || returns || (releases && !released.is_in_line);
        self.line.rx.beat.next = select(keeps, turn_pair, queue_pair);
        self.has_told.d.next = drops || (keeps && is_last);
        self.told.d.next = ReadsServed {
            queue_pair: select(keeps, turn_pair, queue_pair),
            count: select(keeps, served, bits::<READ_COUNT_BITS>(0)),
        };
        self.served.next = self.told.q.val();
        self.served_valid.next = self.has_told.q.val();

        // A response leaves when its bytes are granted; what cannot be answered ends in a NAK, and what is behind it in nothing.
        let sending = self.sending.q.val();
        let response = self.packets.tx.beat.val();
        let has_bytes = response.payload_bytes.any();
        let answer = self.access_answer.beat.val();
        let lost = self.lost.beat.val();
        let is_looking = sending == Sending::Look;
        let has_response = self.packets.tx.valid.val() && (!has_bytes || self.access_answer.valid.val());
        if is_looking {
            self.sending.d.next = if self.lost.valid.val() {
                Sending::Lose
            } else if has_response {
                Sending::Send
            } else {
                Sending::Look
            };
        }
        self.verdicts.read_enable.next = is_looking;
        self.verdicts.read_address.next = select(self.lost.valid.val(), lost.queue_pair, response.queue_pair);
        let verdict = self.verdicts.read_data.val();
        let may_say = self.commands.rx.ready.val() && self.failures.rx.ready.val();
        let sends = sending == Sending::Send && may_say;
        let loses = sending == Sending::Lose && may_say;
        let had_failed = verdict.has_failed && !response.is_first;
        let is_granted = !has_bytes || answer.ok;
        let is_refused = sends && !had_failed && !is_granted;
        let is_undone = sends && !had_failed && response.has_failed;
        let is_lost = loses && !verdict.has_failed && verdict.generation == lost.generation;
        if sends || loses {
            self.sending.d.next = Sending::Look;
        }
        self.lost.ready.next = loses;
        self.packets.tx.ready.next = sends;
        self.access_answer.ready.next = sends && has_bytes;
        let is_broken = loses || response.has_failed;
        let is_nak = is_broken || !is_granted;
        let syndrome = if is_broken {
            bits::<8>(NAK_OPERATIONAL)
        } else if !is_granted {
            bits::<8>(NAK_ACCESS)
        } else {
            bits::<8>(ACKNOWLEDGED)
        };
        let msn = select(loses, verdict.msn, response.msn);
        let aeth: Bits<32> = cat!(swap_bytes(msn), syndrome);
        let is_middle = !is_nak && response.opcode == RESPONSE_MIDDLE;
        let original = select(is_nak, bits::<64>(0), response.original);
        let headers: Bits<HEADER_BITS> = cat!(swap_bytes(original), select(is_middle, bits::<32>(0), aeth));
        let says = (sends && !had_failed) || is_lost;
        self.commands.rx.valid.next = says;
        self.commands.rx.beat.next = GatherCommand {
            headers: TransmitRequest {
                queue_pair: select(loses, lost.queue_pair, response.queue_pair),
                generation: select(loses, lost.generation, response.generation),
                opcode: select(is_nak, bits::<8>(ACKNOWLEDGE), response.opcode),
                solicited: false,
                ack_request: false,
                asks_if_newest: false,
                psn: select(loses, lost.psn, response.psn),
                extended: bit_cast::<EXTENDED_BITS, HEADER_BITS>(headers),
                payload_bytes: select(is_nak, bits::<13>(0), response.payload_bytes),
                is_response: true,
                ends_response: is_nak || response.ends,
            },
            is_inline: false,
            continues: false,
            span_count: select(is_nak || !has_bytes, bits::<2>(0), bits::<2>(1)),
            first: HostSpan { address: answer.device_address, length: response.payload_bytes },
            second: HostSpan { address: bits::<64>(0), length: bits::<13>(0) },
        };
        self.failures.rx.valid.next = is_refused || is_undone || is_lost;
        self.failures.rx.beat.next = QpNotice {
            queue_pair: select(loses, lost.queue_pair, response.queue_pair),
            generation: select(loses, lost.generation, response.generation),
            kind: NoticeKind::ResponderError,
            has_event: true,
            event_code: select(is_broken, bits::<8>(FATAL_EVENT), bits::<8>(ACCESS_EVENT)),
        };
        self.verdicts.write_enable.next = clears || sends || is_lost;
        self.verdicts.write_address.next = if clears {
            sweep
        } else if loses {
            lost.queue_pair
        } else {
            response.queue_pair
        };
        self.verdicts.write_data.next = Verdict {
            has_failed: !clears && (is_broken || had_failed || !is_granted),
            generation: select(loses, lost.generation, response.generation),
            msn,
        };

        // What has begun, and what has left or ends here.
        let has_left = self.commands.tx.valid.val() && self.gather.ready.val();
        let vanishes = sends && had_failed;
        let passed = self.passed.q.val();
        self.passed.d.next = InFlight {
            entered: passed.entered + one(makes) + one(is_lost),
            left: passed.left + one(has_left) + one(vanishes),
        };
        self.in_flight.next = passed;
        self.counts.d.next = cat!(is_lost || is_undone, is_refused);
        self.counts_nak_access_sent.next = self.counts.q.val().get_bit(0);
        self.counts_remote_protection.next = self.counts.q.val().get_bit(0);
        self.counts_nak_operational_sent.next = self.counts.q.val().get_bit(1);
    }
}
