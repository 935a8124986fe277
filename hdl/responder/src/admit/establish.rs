//! Establish: tells control of queue pairs whose communication is established.
//!
//! ```text
//!  first (Decide) ──> queue (1,024) ──> notice
//! ```
//!
//! Latency 2 cycles. A queue pair is told of once in its life, so the queue has room for all of them; where lives follow each
//! other faster than control takes notices, `has_room` falls, and a later packet of the queue pair is the first one.
//!
//! Protocol 3.9.
use super::record::AdmitPath;
use rnic_blocks::memory::Storage;
use rnic_blocks::stream::{Fifo, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::event::AsyncEvent;
use rnic_messages::packet::PacketToken;
use rnic_messages::setup::{NoticeKind, QpNotice};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, sizes};

/// The first packet of a queue pair that is executed in RTR.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct First {
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    pub generation: Bits<GENERATION_BITS>,
    /// It is executed in this cycle.
    pub valid: Bit,
}

/// Gives the queue pair of a packet which is the first one that is executed, as `valid` says.
#[kernel]
pub(super) fn first_of(token: PacketToken, path: AdmitPath, valid: Bit) -> First {
    First { queue_pair: token.queue_pair, generation: path.generation, valid }
}

/// Gives the notice to control.
#[kernel]
fn notice_of(first: First) -> QpNotice {
    QpNotice {
        queue_pair: first.queue_pair,
        generation: first.generation,
        kind: NoticeKind::Established,
        has_event: true,
        event_code: bits::<8>(AsyncEvent::CommunicationEstablished as u64),
    }
}

/// The queue; see the module.
#[clocked(reset = "forgets all notices")]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Establish {
    /// A first packet, taken while `has_room`.
    pub first: Signal<In, First>,
    /// A first packet can be taken; registered.
    pub has_room: Signal<Out, Bit>,
    /// To control; a function of registers.
    pub notice: StreamTx<QpNotice>,

    #[init(Fifo::new(Storage::Block).with_beats_log2(sizes().queue_pairs))]
    queue: Fifo<First, QUEUE_PAIR_BITS, 11>,
}

impl Logic for Establish {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.queue.rx.offer(self.first.val().valid, self.first.val());
        self.has_room.next = self.queue.rx.ready.val();
        self.notice.offer(self.queue.tx.valid.val(), notice_of(self.queue.tx.beat.val()));
        self.queue.tx.ready.next = self.notice.ready.val();
    }
}
