//! Scatter: pairs a packet with its receive WQE, and requests the access checks for the memory that its payload
//! goes to.
//!
//! A payload may end in another SGE than it begins, and a SEND of several packets continues where the packet
//! before it ended.
//!
//! ```text
//!  admitted ──┬─> Load ──────────> Measure ─> Ask ──┬──> scattered
//!  wqe ───────┘   │ sums           ^ parts     │    └──> access_request (none to three)
//!                 └──> Recall ─────┘           │
//!                       ^ sums                 v
//!                       └────────────────── held WQEs (one word a queue pair)
//! ```
//!
//! Three cycles a packet, one more for each access request after the first, and one more for a packet that
//! belongs to a held WQE. A packet is finished before the next one is looked at, so the next one finds what is
//! left of the WQE; a SEND with Invalidate is finished when its key is invalidated.
//!
//! 1. A WRITE with payload makes one access request with the remote key; a SEND one for each SGE that takes
//!    bytes, with the local keys. SGEs of length zero and those that the message does not reach are not checked
//!    (protocol 4.6). A READ makes one for all that is to be read, with the remote key, and so does an atomic
//!    for its word; a READ of length zero none.
//! 2. The first packet of a WRITE checks the whole message, so nothing of one that is out of bounds is written;
//!    later packets check their own part again, since the region can be invalidated in between.
//! 3. The WQE of a SEND of several packets is held from the first to the last. The held word has what the next
//!    packet needs: address and remaining length of each SGE, and the bytes received. Only packets that are
//!    executed and do not end their message write it; [`Resolve`](crate::resolve::Resolve) decides whether it
//!    is still valid.
//! 4. Lengths are added in 34 bits (design decision 14). A SEND of more than 2 GiB is too long for any WQE.
//! 5. A WQE that could not be read, has reserved bits set, or is too short for the SEND makes no access
//!    request.
//! 6. Packets that are not executed make no access request.
//! 7. After a SEND with Invalidate no access request is made before the region tables are updated, so later
//!    packets find the key invalid.
//!
//! Protocol 3.6, 3.7.
use crate::messages::{Admitted, Decision, Parts, ReceiveWqe, ReceiveWqeFault, Scattered};
use parts::{
    HeldWqe, Sums, access_request_of, checks_of, count_ones, fault_of, is_too_short, packed, parts_of,
    sums_of, whole_wqe, wqe_after,
};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::protect::AccessRequest;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, sizes};

mod parts;
#[cfg(test)]
pub(crate) use parts::exceeds;
#[cfg(test)]
mod tests;

/// State of the machine.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Waits for a packet and its receive WQE.
    Load,
    /// Reads the held WQE.
    Recall,
    /// Splits the payload into parts.
    Measure,
    /// Makes their access requests.
    Ask,
    /// Waits until a SEND with Invalidate is finished.
    Hold,
}

/// Requests access checks; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub struct Scatter {
    /// Packets from admission; `ready` is combinational.
    pub admitted: StreamRx<Admitted>,
    /// Receive WQEs, in the order of the packets that take one; `ready` is combinational.
    pub wqe: StreamRx<ReceiveWqe>,
    /// To the region table; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// To resolve; registered.
    pub scattered: StreamTx<Scattered>,
    /// From resolve: a SEND with Invalidate is finished.
    pub ended: Signal<In, Bit>,

    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    held: Memory<HeldWqe, QUEUE_PAIR_BITS>,
    step: Reg<Step>,
    packet: DFF<Admitted>,
    wqe_left: DFF<HeldWqe>,
    fault: DFF<ReceiveWqeFault>,
    sums: DFF<Sums>,
    parts: DFF<Parts>,
    /// Parts whose access request is to be made.
    waiting: DFF<Bits<3>>,
    answer_count: DFF<Bits<2>>,
    requests: RegisterSlice<AccessRequest>,
    queue: Fifo<Scattered, 4, 5>,
}

impl Logic for Scatter {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.access_request, &mut self.requests.tx);
        StreamTx::link(&mut self.scattered, &mut self.queue.tx);

        // A packet and its WQE are taken together.
        let step = self.step.q.val();
        let offered = self.admitted.beat.val();
        let wqe = self.wqe.beat.val();
        let has_wqe = !offered.takes_wqe || self.wqe.valid.val();
        let loads = step == Step::Load && self.admitted.valid.val() && has_wqe;
        self.admitted.ready.next = step == Step::Load && has_wqe;
        self.wqe.ready.next = step == Step::Load && self.admitted.valid.val() && offered.takes_wqe;
        self.held.read(step == Step::Load, offered.queue_pair);
        if loads {
            self.step.d.next = select(offered.uses_held, Step::Recall, Step::Measure);
            self.packet.d.next = offered;
            self.fault.d.next = fault_of(offered.takes_wqe, wqe);
        }
        let recalls = step == Step::Recall;
        if recalls {
            self.step.d.next = Step::Measure;
        }
        let wqe_next = select(recalls, self.held.read_data.val(), whole_wqe(wqe.data));
        if loads || recalls {
            self.wqe_left.d.next = wqe_next;
            self.sums.d.next = sums_of(wqe_next.sges);
        }

        // The payload ends in one of the SGEs, or after all of them.
        let packet = self.packet.q.val();
        let payload = packet.payload_bytes;
        let wqe_left = self.wqe_left.q.val();
        let sums = self.sums.q.val();
        let executes = packet.decision == Decision::Execute;
        let is_good = self.fault.q.val() == ReceiveWqeFault::Good;
        let is_short = executes && packet.is_send && is_good && is_too_short(payload, sums, wqe_left.bytes);
        if step == Step::Measure {
            self.step.d.next = Step::Ask;
            if is_short {
                self.fault.d.next = ReceiveWqeFault::TooShort;
            }
            let may_ask = executes && is_good && !is_short;
            let parts_next = parts_of(packet.is_send, payload, sums);
            let checks = checks_of(packet, parts_next);
            self.parts.d.next = parts_next;
            self.waiting.d.next = select(may_ask, checks, bits::<3>(0));
            self.answer_count.d.next = select(may_ask, count_ones(checks), bits::<2>(0));
        }

        // One access request a cycle; the packet leaves with the last.
        let parts = self.parts.q.val();
        let waiting = self.waiting.q.val();
        let later = waiting & (waiting - 1);
        let may_end = self.queue.rx.ready.val();
        let is_last = !later.any();
        let asks = step == Step::Ask && waiting.any() && (may_end || !is_last);
        self.requests.rx.offer(asks, access_request_of(packet, waiting, wqe_left.sges, parts));
        let is_asked = asks && self.requests.rx.ready.val();
        let ends_here = step == Step::Ask && may_end && is_last && (is_asked || !waiting.any());
        if is_asked {
            self.waiting.d.next = later;
        }
        if ends_here {
            self.step.d.next = select(packet.with_invalidate, Step::Hold, Step::Load);
        }
        if step == Step::Hold && self.ended.val() {
            self.step.d.next = Step::Load;
        }
        let next_left = wqe_after(wqe_left, payload, parts);
        self.held.write_enable.next = ends_here && executes && packet.is_send && !packet.ends;
        self.held.write_address.next = packet.queue_pair;
        self.held.write_data.next = next_left;
        self.queue.rx.valid.next = ends_here;
        self.queue.rx.beat.next = Scattered {
            packet,
            fault: self.fault.q.val(),
            wr_id: wqe_left.wr_id,
            message_bytes: select(packet.is_send, next_left.bytes, packet.message_length),
            answer_count: self.answer_count.q.val(),
            parts: packed(parts),
        };
    }
}
