//! Grant: waits for the access checks of a response, and sends its command.
//!
//! An access check takes some cycles, in which the next responses are compared; so a response waits here, not
//! in the stage before.
//!
//! ```text
//!                  ┌──────────────────────────────┐
//!  pending ───────>│ Begin ─> Answers ─> Send ────┼──> place
//!  access_answer ─>│─────────────┘                │
//!                  └──────────────────────────────┘
//! ```
//!
//! A response without data takes 2 cycles; each access check takes one more.
//!
//! 1. Each response makes one command, in order.
//! 2. The command places all of the data, or, if an access check has failed, nothing.
use super::rules::refused;
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::HostSpan;
use rnic_messages::protect::AccessAnswer;
use rnic_messages::read::{ReadResponseCommand, ResponseNotice};

/// A command that waits for the device addresses of its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Pending {
    /// What acknowledge gets, if the access checks succeed.
    pub notice: ResponseNotice,
    /// Bytes of payload, or of the literal.
    pub payload_bytes: Bits<13>,
    /// The data is `literal`.
    pub is_literal: Bit,
    /// Original value of an atomic, first byte in bits 7:0.
    pub literal: Bits<64>,
    /// Bytes that go to the first span.
    pub first_bytes: Bits<13>,
    /// Access checks, 0 to 2.
    pub request_count: Bits<2>,
}

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Begin,
    Answers,
    Send,
}

/// Waits for access checks, and sends commands; see the module.
#[clocked(reset = "drops the command")]
#[derive(Default, LogicBlock, Registers)]
pub(super) struct Grant {
    /// Responses, in order.
    pub pending: StreamRx<Pending>,
    /// From the region table: one answer for each access check, in order.
    pub access_answer: StreamRx<AccessAnswer>,
    /// To the place stage; registered.
    pub place: StreamTx<ReadResponseCommand>,
    /// A command is made whose access checks have failed; combinational.
    pub is_refused: Signal<Out, Bit>,
    step: Reg<Step>,
    /// Access checks that are missing.
    left: DFF<Bits<2>>,
    is_ok: DFF<Bit>,
    /// Device address of the first part of the data.
    first: DFF<Bits<64>>,
    /// Device address of the second part.
    second: DFF<Bits<64>>,
    command: DFF<ReadResponseCommand>,
    has_command: Reg<Bit>,
}

impl Logic for Grant {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let step = self.step.q.val();
        let pending = self.pending.beat.val();
        let granted = self.access_answer.beat.val();
        let left = self.left.q.val();
        self.access_answer.ready.next = step == Step::Answers;
        if step == Step::Begin {
            self.left.d.next = pending.request_count;
            self.is_ok.d.next = true;
            if self.pending.valid.val() {
                self.step.d.next = if pending.request_count.any() { Step::Answers } else { Step::Send };
            }
        }
        // The first device address keeps its place when the second one comes.
        if step == Step::Answers && self.access_answer.valid.val() {
            self.left.d.next = left - 1;
            self.is_ok.d.next = self.is_ok.q.val() && granted.ok;
            if left == pending.request_count {
                self.first.d.next = granted.device_address;
            }
            self.second.d.next = granted.device_address;
            if left == 1 {
                self.step.d.next = Step::Send;
            }
        }

        let sends = step == Step::Send && (!self.has_command.q.val() || self.place.ready.val());
        let is_refused = !self.is_ok.q.val();
        let command = ReadResponseCommand {
            payload_bytes: pending.payload_bytes,
            span_count: pending.request_count,
            first: HostSpan { address: self.first.q.val(), length: pending.first_bytes },
            second: HostSpan {
                address: self.second.q.val(),
                length: pending.payload_bytes - pending.first_bytes,
            },
            is_literal: pending.is_literal,
            literal: pending.literal,
            notice: pending.notice,
        };
        self.pending.ready.next = sends;
        if self.place.ready.val() {
            self.has_command.d.next = false;
        }
        if sends {
            self.step.d.next = Step::Begin;
            self.has_command.d.next = true;
            self.command.d.next = if is_refused { refused(command) } else { command };
        }
        self.place.offer(self.has_command.q.val(), self.command.q.val());
        self.is_refused.next = sends && is_refused;
    }
}
