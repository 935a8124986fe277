//! Resolve: decides the outcome of a packet, once the access answers for the memory that it names are there.
//!
//! This is the first stage that knows all that decides whether a packet is executed: the decision of admission,
//! its receive WQE, and its access rights.
//!
//! ```text
//!  scattered ─────> Load ─> Gather ──────────> Emit ──┬──> place (payload, completion, reply)
//!  access_answer ────────────^ └─> Ask ─> Wait ─^     ├──> read_request, atomic_request
//!                                   │      ^          └──> stop (to admission: the queue pair fails)
//!                                   │      invalidated
//!                                   └──> invalidate (to control)
//!                  verdicts (two bits a queue pair: failed, holds a receive WQE)
//! ```
//!
//! Three cycles a packet, one more for each access answer after the first; for a SEND with Invalidate two more
//! and those that control takes. What does not need the answers is judged in Gather, from the verdict that was read, so Emit
//! begins at registers. A packet is finished before the next one is looked at, so the next one finds
//! the verdict on it.
//!
//! 1. Every packet that has payload, a completion or a reply becomes one command to place, in the order of the
//!    packets.
//! 2. A queue pair fails once: packets that were admitted after the one that failed are dropped, and the
//!    receive WQEs that they consumed are flushed. Control gets the notice from [`Ack`](crate::ack::Ack) when
//!    the NAK leaves, so responses to earlier requests are still sent.
//! 3. Statuses, NAKs and events are those of protocol 3.6: a packet that holds a receive WQE completes it in
//!    error, one that holds none raises an event. The WQE of a SEND of several packets is held from its first
//!    executed packet to its last, and completes once: with the last packet, with the packet that fails, or
//!    flushed in ERR.
//! 4. No CQE is written for a receive WQE that could not be read, since its `wr_id` is not known.
//! 5. A packet whose queue pair was restarted before its receive WQE arrived is dropped, and so is the rest of
//!    its message.
//! 6. A message counts in the MSN with its last packet (protocol 3.7).
//! 7. A READ whose range is accessible becomes a request to the READ responder, in the cycle of its command to
//!    place; the reply of that command releases it. An atomic becomes two requests: one to be executed and one
//!    to be answered. The device address of its word must be aligned too. A duplicate of either becomes a request to
//!    the READ responder without an access check, and its reply a release, always both.
//! 8. Each atomic that admission executes takes its operands, whatever its outcome.
//! 9. A SEND with Invalidate whose data may be placed invalidates its key before its command leaves, so the key
//!    is invalid before the CQE is written (protocol 3.7). A key that must not be invalidated fails the queue
//!    pair as a remote access error, with NAK 0x62 and the receive WQE in error, and nothing of the last packet
//!    is placed: implementations disagree on row 15 of protocol 3.6, and a peer that gets a NAK does not wait
//!    for a time-out.
use crate::messages::{AtomicOperands, AtomicRequest, Decision, ResolveCounts, Scattered, Stop};
use command::{addresses_of, place_command_of, read_request_of};
use outcome::{
    Judgement, Verdict, asks_again, counts_of, has_completion, has_reply, judgement_of, outcome_of,
    verdict_after, verdict_before,
};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::protect::{AccessAnswer, Invalidated, Invalidation};
use rnic_messages::read::ReadRequest;
use rnic_messages::receive::PlaceCommand;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, sizes};

mod command;
mod outcome;
#[cfg(test)]
mod tests;

/// State of the machine.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Waits for a packet.
    Load,
    /// Reads the verdict on its queue pair, and takes its access answers, if it has any.
    Gather,
    /// Asks control to invalidate a key, if the packet can be executed.
    Ask,
    /// Waits for control.
    Wait,
    /// Sends the commands.
    Emit,
}

/// Resolves packets; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub struct Resolve {
    /// Packets from scatter; `ready` is a function of registers.
    pub scattered: StreamRx<Scattered>,
    /// Answers to the access requests of scatter, in their order; `ready` is a function of registers.
    pub access_answer: StreamRx<AccessAnswer>,
    /// To place; registered.
    pub place: StreamTx<PlaceCommand>,
    /// To admission: a packet has failed, the first of its queue pair; registered.
    pub stop: ValidTx<Stop>,
    /// To control: keys to invalidate; registered.
    pub invalidate: StreamTx<Invalidation>,
    /// From control: the result for each; `ready` is a function of registers.
    pub invalidated: StreamRx<Invalidated>,
    /// To scatter: a SEND with Invalidate is finished; registered.
    pub ended: Signal<Out, Bit>,
    /// From admission: operands of atomics; `ready` is combinational from `atomic_request.ready`.
    pub operands: StreamRx<AtomicOperands>,
    /// To the READ responder: READs and atomics to be answered; registered.
    pub read_request: StreamTx<ReadRequest>,
    /// To atomics: atomics to be executed; a function of registers.
    pub atomic_request: StreamTx<AtomicRequest>,
    /// A command was taken by place; registered.
    pub leaves: Signal<Out, Bit>,
    /// A packet ended without a command; registered.
    pub vanishes: Signal<Out, Bit>,
    /// Counters; registered.
    pub counts: Signal<Out, ResolveCounts>,

    step: Reg<Step>,
    packet: DFF<Scattered>,
    /// Access answers that are outstanding.
    left: DFF<Bits<2>>,
    /// Of the packet, from the cycle after the verdict was read on.
    judged: DFF<Judgement>,
    /// An access was refused.
    refused: DFF<Bit>,
    /// The key must not be invalidated.
    denied: DFF<Bit>,
    ended_now: Reg<Bit>,
    keys: RegisterSlice<Invalidation>,
    /// Device addresses of the access answers, the newest last.
    addresses: [DFF<Bits<64>>; 3],
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    verdicts: Memory<Verdict, QUEUE_PAIR_BITS>,
    commands: RegisterSlice<PlaceCommand>,
    read_requests: Fifo<ReadRequest, 2, 3>,
    stopped: DFF<Stop>,
    has_stopped: Reg<Bit>,
    left_now: Reg<Bit>,
    vanished: Reg<Bit>,
    counted: Reg<ResolveCounts>,
}

impl Logic for Resolve {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.invalidate, &mut self.keys.tx);
        StreamTx::link(&mut self.read_request, &mut self.read_requests.tx);
        StreamTx::link(&mut self.place, &mut self.commands.tx);

        let step = self.step.q.val();
        let offered = self.scattered.beat.val();
        self.scattered.ready.next = step == Step::Load;
        self.verdicts.read(step == Step::Load, offered.packet.queue_pair);
        if step == Step::Load && self.scattered.valid.val() {
            self.packet.d.next = offered;
            self.left.d.next = offered.answer_count;
            self.refused.d.next = false;
            self.denied.d.next = false;
            self.step.d.next = Step::Gather;
        }

        // The newest address enters at the end: one answer is in the last register, two are in the last two.
        let gathers = step == Step::Gather;
        let left = self.left.q.val();
        let takes_answer = gathers && left.any() && self.access_answer.valid.val();
        let answer = self.access_answer.beat.val();
        self.access_answer.ready.next = gathers && left.any();
        if takes_answer {
            self.addresses[2].d.next = answer.device_address;
            self.addresses[1].d.next = self.addresses[2].q.val();
            self.addresses[0].d.next = self.addresses[1].q.val();
            self.refused.d.next = self.refused.q.val() || !answer.ok;
            self.left.d.next = left - 1;
        }
        let scattered = self.packet.q.val();
        let packet = scattered.packet;
        let fault = scattered.fault;
        if gathers && (!left.any() || (takes_answer && left == 1)) {
            self.step.d.next = select(packet.with_invalidate, Step::Ask, Step::Emit);
        }
        if gathers {
            let before = verdict_before(packet, self.verdicts.read_data.val());
            self.judged.d.next = judgement_of(packet, fault, before);
        }

        // The outcome.
        let judged = self.judged.q.val();
        let before = judged.before;
        let last_address = self.addresses[2].q.val();
        let is_misaligned = packet.is_atomic && last_address.get_bits::<3>(0).any();
        let outcome = outcome_of(packet, judged, self.refused.q.val() || is_misaligned, self.denied.q.val());
        let completes = has_completion(packet, fault, before, outcome);
        let replies = has_reply(packet, before, outcome);

        // A key is invalidated when nothing else can fail the packet.
        let asks = step == Step::Ask;
        self.keys.rx.valid.next = asks && outcome.may_be_done;
        self.keys.rx.beat.next = Invalidation {
            queue_pair: packet.queue_pair,
            generation: packet.generation,
            key: packet.immediate,
            domain: packet.domain,
        };
        if asks {
            if !outcome.may_be_done {
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

        // The operands were there before the packet.
        let has_command = packet.payload_bytes.any() || completes || replies;
        let may_emit = self.commands.rx.ready.val() && self.read_requests.rx.ready.val();
        let hands_on = step == Step::Emit && may_emit && outcome.is_done && packet.is_atomic;
        let emits = step == Step::Emit && may_emit && (!hands_on || self.atomic_request.ready.val());
        self.operands.ready.next = emits && packet.is_atomic;
        self.atomic_request.valid.next = hands_on;
        self.atomic_request.beat.next = AtomicRequest {
            queue_pair: packet.queue_pair,
            generation: packet.generation,
            slot: packet.responses.slot,
            share: packet.responses.share,
            address: last_address,
            operands: self.operands.beat.val(),
        };
        let addresses = addresses_of(
            scattered.answer_count,
            self.addresses[0].q.val(),
            self.addresses[1].q.val(),
            last_address,
        );
        self.commands.rx.valid.next = emits && has_command;
        self.commands.rx.beat.next = place_command_of(scattered, outcome, addresses, completes, replies);
        let asks_again = asks_again(packet, before);
        self.read_requests.rx.valid.next = emits && ((outcome.is_done && packet.is_read) || asks_again);
        self.read_requests.rx.beat.next = read_request_of(packet);

        // The records.
        if emits {
            self.step.d.next = Step::Load;
        }
        self.verdicts.write_enable.next = emits && packet.decision != Decision::Drop;
        self.verdicts.write_address.next = packet.queue_pair;
        self.verdicts.write_data.next = verdict_after(packet, before, outcome);
        self.has_stopped.d.next = emits && outcome.fails;
        self.stopped.d.next = Stop { queue_pair: packet.queue_pair, generation: packet.generation };
        self.stop.offer(self.has_stopped.q.val(), self.stopped.q.val());
        self.ended_now.d.next = emits && packet.with_invalidate;
        self.ended.next = self.ended_now.q.val();
        self.left_now.d.next = self.commands.tx.valid.val() && self.place.ready.val();
        self.leaves.next = self.left_now.q.val();
        self.vanished.d.next = emits && !has_command;
        self.vanishes.next = self.vanished.q.val();
        self.counted.d.next = counts_of(emits, fault, outcome);
        self.counts.next = self.counted.q.val();
    }
}
