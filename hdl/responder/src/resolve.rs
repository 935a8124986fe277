//! Resolve: what becomes of a packet, once it is known whether it may touch the memory that it names.
//!
//! ```text
//!  scattered ─────> Load ─> Gather ──────────> Emit ──┬──> place (payload, completion, reply)
//!  access_answer ────────────^ └─> Ask ─> Wait ─^     └──> stop (to admission: the queue pair fails)
//!                                   │      ^ invalidated
//!                                   └──> invalidate (control)
//!                  verdicts (two bits a queue pair: failed, holds an entry)
//! ```
//!
//! Three cycles a packet, one more for each place behind the first; for one that ends a key two more, and those that control
//! takes. A packet is through before the next one is looked at, so
//! that one finds the verdict on it.
//!
//! 1. One command for every packet that has payload, a completion or a reply, in the order of the packets.
//! 2. A queue pair fails once: what was admitted behind the packet that failed is dropped, and the receive entries that it
//!    had consumed are given back as flushed. Control hears of it from `reply`, when the NAK leaves: responses before that
//!    are still sent.
//! 3. Statuses, NAKs and events are those of protocol 3.6: a packet that holds a receive entry completes it in error, one
//!    that holds none raises an event. The entry of a SEND of several packets is held from its first packet that was executed to
//!    its last, and completes once: with the last, with the packet that fails, or flushed in ERR.
//! 4. No completion is written for an entry that could not be read, since its tag is not known.
//! 5. A packet whose queue pair ended before its entry was there is dropped, and so is what is left of its message.
//! 6. A message counts with its last packet (protocol 3.7).
//! 7. A READ whose range is good becomes a job, in the cycle of its command; the reply of that command will release it. An atomic
//!    becomes two: one to be done, and one to be answered. Its word must be aligned in host memory too.
//! 8. Each atomic that is executed takes its operands, whatever becomes of it.
//! 9. A SEND with Invalidate whose data may be placed ends its key before its command leaves, so that the completion, which stands
//!    behind the data, finds it ended (protocol 3.7). A key that may not be ended fails the queue pair as a forbidden access, with
//!    NAK 0x62 and the receive in error, and nothing of its last packet is placed: protocol 3.6 row 15 knows no consensus, and a
//!    peer that is told does not wait in vain.
use crate::messages::{AtomicJob, AtomicOperands, Decision, ReceiveWqeFault, Scattered, Stop};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::syndrome::{NakCode, Syndrome};
use rnic_messages::complete::CqeToken;
use rnic_messages::host::HostSpan;
use rnic_messages::protect::{AccessAnswer, Invalidated, Invalidation};
use rnic_messages::read::ReadJob;
use rnic_messages::receive::{AckNotice, PlaceCommand, ack_notice};
use rnic_messages::sizes::QUEUE_PAIR_BITS;

const RECEIVE: u64 = CompletionOpcode::Receive as u64;
const RECEIVE_WRITE: u64 = CompletionOpcode::ReceiveWrite as u64;
const SUCCESS: u64 = CompletionStatus::Success as u64;
const LOCAL_LENGTH: u64 = CompletionStatus::LocalLength as u64;
const LOCAL_OPERATION: u64 = CompletionStatus::LocalQueuePairOperation as u64;
const LOCAL_PROTECTION: u64 = CompletionStatus::LocalProtection as u64;
const REMOTE_INVALID: u64 = CompletionStatus::RemoteInvalidRequest as u64;
const REMOTE_ACCESS: u64 = CompletionStatus::RemoteAccess as u64;
const FLUSHED: u64 = CompletionStatus::Flushed as u64;
const NAK_INVALID: u64 = Syndrome::Nak(NakCode::InvalidRequest).emit() as u64;
const NAK_ACCESS: u64 = Syndrome::Nak(NakCode::RemoteAccessError).emit() as u64;
const NAK_OPERATIONAL: u64 = Syndrome::Nak(NakCode::RemoteOperationalError).emit() as u64;

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Waits for a packet.
    Load,
    /// Takes the answers.
    Gather,
    /// Asks for the end of a key, if all is well so far.
    Ask,
    /// Waits for it.
    Wait,
    /// Says what becomes of it.
    Emit,
}

/// What became of the packets of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Verdict {
    /// One has failed.
    failed: Bit,
    /// A SEND has not ended, and all of it that came was executed.
    holds: Bit,
}

/// The stage.
#[derive(LogicBlock, Registers, Construct)]
pub struct Resolve {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// Packets; `ready` is a function of registers.
    pub scattered: StreamRx<Scattered>,
    /// Answers to what they asked for, in order; `ready` is a function of registers.
    pub access_answer: StreamRx<AccessAnswer>,
    /// To place; registered.
    pub place: StreamTx<PlaceCommand>,
    /// To admission: a packet has failed, the first of its queue pair; registered.
    pub stop: Signal<Out, Stop>,
    /// One has; registered.
    pub stop_valid: Signal<Out, Bit>,
    /// To control: keys to be ended; registered.
    pub invalidate: StreamTx<Invalidation>,
    /// From it: what has become of each; `ready` is a function of registers.
    pub invalidated: StreamRx<Invalidated>,
    /// To scatter: the packet that was to end a key is done with; registered.
    pub ended: Signal<Out, Bit>,
    /// From admission: operands of atomics; `ready` is combinational from `atomic.ready`.
    pub operands: StreamRx<AtomicOperands>,
    /// To serve: READs and atomics; registered.
    pub job: StreamTx<ReadJob>,
    /// To exchange: atomics; a function of registers.
    pub atomic: StreamTx<AtomicJob>,
    /// A command has left; registered.
    pub leaves: Signal<Out, Bit>,
    /// A packet is gone without a command; registered.
    pub vanishes: Signal<Out, Bit>,

    /// Counter.
    pub counts_requests_after_failure: Signal<Out, Bit>,
    /// Counter.
    pub counts_remote_protection: Signal<Out, Bit>,
    /// Counter.
    pub counts_local_protection: Signal<Out, Bit>,
    /// Counter.
    pub counts_work_refused: Signal<Out, Bit>,
    /// Counter.
    pub counts_stale_dropped: Signal<Out, Bit>,

    step: Reg<Step>,
    packet: DFF<Scattered>,
    left: DFF<Bits<2>>,
    refused: DFF<Bit>,
    /// The key may not be ended.
    denied: DFF<Bit>,
    ended_now: Reg<Bit>,
    keys: RegisterSlice<Invalidation>,
    /// The newest answer in the last place.
    addresses: [DFF<Bits<64>>; 3],
    verdicts: Memory<Verdict, QUEUE_PAIR_BITS>,
    commands: RegisterSlice<PlaceCommand>,
    #[init(Fifo::new(Storage::Block))]
    jobs: Fifo<ReadJob, 2, 3>,
    stopped: DFF<Stop>,
    has_stopped: Reg<Bit>,
    left_now: Reg<Bit>,
    vanished: Reg<Bit>,
    counts: Reg<Bits<5>>,
}

impl Logic for Resolve {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<Invalidation>::link(&mut self.invalidate, &mut self.keys.tx);
        StreamTx::<ReadJob>::link(&mut self.job, &mut self.jobs.tx);
        StreamTx::<PlaceCommand>::link(&mut self.place, &mut self.commands.tx);

        let step = self.step.q.val();
        let offered = self.scattered.beat.val();
        self.scattered.ready.next = step == Step::Load;
        self.verdicts.read_enable.next = step == Step::Load;
        self.verdicts.read_address.next = offered.packet.queue_pair;
        if step == Step::Load && self.scattered.valid.val() {
            self.packet.d.next = offered;
            self.left.d.next = offered.answers;
            self.refused.d.next = false;
            self.denied.d.next = false;
            self.step.d.next = if offered.answers.any() {
                Step::Gather
            } else if offered.packet.with_invalidate {
                Step::Ask
            } else {
                Step::Emit
            };
        }

        // Answers move up, so that the first of them ends in front.
        let answer = self.access_answer.beat.val();
        let gathers = step == Step::Gather && self.access_answer.valid.val();
        self.access_answer.ready.next = step == Step::Gather;
        if gathers {
            self.addresses[2].d.next = answer.device_address;
            self.addresses[1].d.next = self.addresses[2].q.val();
            self.addresses[0].d.next = self.addresses[1].q.val();
            self.refused.d.next = self.refused.q.val() || !answer.ok;
            self.left.d.next = self.left.q.val() - 1;
            if self.left.q.val() == 1 {
                self.step.d.next = select(self.packet.q.val().packet.with_invalidate, Step::Ask, Step::Emit);
            }
        }

        // The verdict.
        let scattered = self.packet.q.val();
        let packet = scattered.packet;
        let fault = scattered.fault;
        let is_off = packet.is_atomic && self.addresses[2].q.val().get_bits::<3>(0).any();
        let refused = self.refused.q.val() || is_off;
        let had_failed = self.verdicts.read_data.val().failed && !packet.is_first;
        let holds = self.verdicts.read_data.val().holds && !packet.is_first;
        let is_flush = packet.decision == Decision::Flush;
        // Its entry did not come any more.
        let is_orphan = packet.uses_held && !holds && !had_failed && !is_flush;
        let is_stale = fault == ReceiveWqeFault::Stale || is_orphan;
        let is_packet = (packet.decision == Decision::Execute
            || packet.decision == Decision::Answer
            || packet.decision == Decision::Refuse)
            && !is_stale;
        let is_late = is_packet && had_failed;
        let is_tried = packet.decision == Decision::Execute && !had_failed && !is_stale;
        let is_invalid = packet.decision == Decision::Refuse && !had_failed && !is_stale;
        let is_broken = is_tried && fault != ReceiveWqeFault::Good;
        let may_be_done = is_tried && fault == ReceiveWqeFault::Good && !refused;
        let denied = self.denied.q.val();
        let is_kept_out = is_tried && fault == ReceiveWqeFault::Good && (refused || denied);
        let is_done = may_be_done && !denied;
        // Kept out by a key of this host.
        let is_local = packet.is_send && !denied;
        let fails = is_invalid || is_broken || is_kept_out;
        let syndrome = if is_broken {
            select(fault == ReceiveWqeFault::TooShort, bits::<8>(NAK_INVALID), bits::<8>(NAK_OPERATIONAL))
        } else if is_kept_out {
            select(is_local, bits::<8>(NAK_OPERATIONAL), bits::<8>(NAK_ACCESS))
        } else {
            packet.syndrome
        };
        let status = if is_late || is_flush {
            bits::<8>(FLUSHED)
        } else if is_invalid {
            bits::<8>(REMOTE_INVALID)
        } else if fault == ReceiveWqeFault::TooShort {
            bits::<8>(LOCAL_LENGTH)
        } else if fault == ReceiveWqeFault::Malformed {
            bits::<8>(LOCAL_OPERATION)
        } else if is_kept_out {
            select(is_local, bits::<8>(LOCAL_PROTECTION), bits::<8>(REMOTE_ACCESS))
        } else {
            bits::<8>(SUCCESS)
        };

        // A key is ended when nothing else can go wrong.
        let asks = step == Step::Ask;
        self.keys.rx.valid.next = asks && may_be_done;
        self.keys.rx.beat.next = Invalidation {
            queue_pair: packet.queue_pair,
            generation: packet.generation,
            key: packet.immediate,
            domain: packet.domain,
        };
        if asks {
            if !may_be_done {
                self.step.d.next = Step::Emit;
            } else if self.keys.rx.ready.val() {
                self.step.d.next = Step::Wait;
            }
        }
        self.invalidated.ready.next = step == Step::Wait;
        if step == Step::Wait && self.invalidated.valid.val() {
            self.denied.d.next = !self.invalidated.beat.val().ok;
            self.step.d.next = Step::Emit;
        }

        let has_entry =
            (packet.takes_entry && fault != ReceiveWqeFault::Unreadable) || (packet.uses_held && holds);
        let has_completion = packet.is_last || (has_entry && !is_stale && (packet.ends || !is_done));
        let is_answer = packet.decision == Decision::Answer && !had_failed;
        let has_reply = fails || ((is_done || is_answer) && packet.has_reply);
        // With one answer its address is in the last place, with two in the last two.
        let many = scattered.answers;
        let first = if many == 3 {
            self.addresses[0].q.val()
        } else if many == 2 {
            self.addresses[1].q.val()
        } else {
            self.addresses[2].q.val()
        };
        let second = select(many == 3, self.addresses[1].q.val(), self.addresses[2].q.val());
        // A message that was admitted as executed and was not counts no more.
        let was_counted = packet.decision == Decision::Execute && packet.ends && fails;
        let says_something = packet.payload_bytes.any() || has_completion || has_reply;
        let may_emit = self.commands.rx.ready.val() && self.jobs.rx.ready.val();
        // The operands were there before the packet.
        let hands_on = step == Step::Emit && may_emit && is_done && packet.is_atomic;
        let emits = step == Step::Emit && may_emit && (!hands_on || self.atomic.ready.val());
        self.operands.ready.next = emits && packet.is_atomic;
        self.atomic.valid.next = hands_on;
        self.atomic.beat.next = AtomicJob {
            queue_pair: packet.queue_pair,
            generation: packet.generation,
            slot: packet.slot,
            address: self.addresses[2].q.val(),
            operands: self.operands.beat.val(),
        };
        self.commands.rx.valid.next = emits && says_something;
        self.commands.rx.beat.next = PlaceCommand {
            queue_pair: packet.queue_pair,
            generation: packet.generation,
            payload_bytes: packet.payload_bytes,
            span_count: select(is_done && !packet.is_read, many, bits::<2>(0)),
            first: HostSpan { address: first, length: scattered.first_bytes },
            second: HostSpan { address: second, length: scattered.second_bytes },
            third: HostSpan { address: self.addresses[2].q.val(), length: scattered.third_bytes },
            has_completion,
            completion: CqeToken {
                completion_queue: packet.completion_queue,
                wr_id: scattered.wr_id,
                length: scattered.message_bytes,
                immediate: packet.immediate,
                qp_number: packet.qp_number,
                generation: packet.generation,
                consumer_index: packet.consumer_index,
                opcode: select(packet.is_send, bits::<8>(RECEIVE), bits::<8>(RECEIVE_WRITE)),
                status,
                vendor_error: select(fails, syndrome, bits::<8>(0)),
                with_immediate: packet.with_immediate && is_done,
                with_invalidate: packet.with_invalidate && is_done,
                solicited: packet.solicited && is_done,
                is_last: packet.is_last,
            },
            has_notice: has_reply,
            notice: ack_notice(AckNotice {
                queue_pair: packet.queue_pair,
                generation: packet.generation,
                syndrome,
                psn: select(packet.is_read && is_done, packet.last_psn, packet.psn),
                msn: select(was_counted, packet.msn - 1, packet.msn),
                is_read: is_done && packet.is_read,
                is_atomic: is_done && packet.is_atomic,
                write_count: bits::<16>(0),
                has_event: fails && !has_completion,
            }),
        };
        self.jobs.rx.valid.next = emits && is_done && packet.is_read;
        self.jobs.rx.beat.next = ReadJob {
            queue_pair: packet.queue_pair,
            generation: packet.generation,
            psn: packet.psn,
            msn: packet.msn,
            key: packet.key,
            address: packet.address,
            length: select(packet.is_atomic, bits::<32>(0), packet.message_length),
            is_atomic: packet.is_atomic,
        };
        self.has_stopped.d.next = emits && fails;
        self.stopped.d.next = Stop { queue_pair: packet.queue_pair, generation: packet.generation };
        self.stop.next = self.stopped.q.val();
        self.stop_valid.next = self.has_stopped.q.val();
        // An answer leaves the message as it is.
        let holds_next = if packet.decision == Decision::Answer {
            holds
        } else {
            is_done && packet.is_send && !packet.ends
        };
        self.verdicts.write_enable.next = emits && packet.decision != Decision::Drop;
        self.verdicts.write_address.next = packet.queue_pair;
        self.verdicts.write_data.next = Verdict { failed: had_failed || fails, holds: holds_next };
        if emits {
            self.step.d.next = Step::Load;
        }
        self.ended_now.d.next = emits && packet.with_invalidate;
        self.ended.next = self.ended_now.q.val();
        self.left_now.d.next = self.commands.tx.valid.val() && self.place.ready.val();
        self.leaves.next = self.left_now.q.val();
        self.vanished.d.next = emits && !says_something;
        self.vanishes.next = self.vanished.q.val();

        let counts: Bits<5> = cat!(
            is_stale,
            (is_broken && fault == ReceiveWqeFault::Malformed),
            is_kept_out && is_local,
            is_kept_out && !is_local,
            is_late
        );
        self.counts.d.next = select(emits, counts, bits::<5>(0));
        self.counts_requests_after_failure.next = self.counts.q.val().get_bit(0);
        self.counts_remote_protection.next = self.counts.q.val().get_bit(1);
        self.counts_local_protection.next = self.counts.q.val().get_bit(2);
        self.counts_work_refused.next = self.counts.q.val().get_bit(3);
        self.counts_stale_dropped.next = self.counts.q.val().get_bit(4);
    }
}
