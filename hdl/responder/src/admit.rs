//! Admission: checks every request against the state of its queue pair (PSN order, opcode, rights, length).
//!
//! All state of a queue pair that a packet can change is changed here, one packet at a time, so later stages do
//! not depend on the order. What needs memory, keys or receive WQEs is only requested here: if it fails,
//! [`Resolve`](crate::resolve::Resolve) drops the packets that were admitted after it, and stops the queue pair
//! here.
//!
//! ```text
//!  setup ────────┐   ┌───────┐                      ┌──────────> admitted (the decision about the packet)
//!  srq_setup ────┼──>│ Idle  ├─> Compare ─> Decide ─┤
//!  requests ─────┤   └───┬───┘      ^  (Share)  │   └──────────> srq_limit
//!  sweep (ERR) ──┘       v          │          v
//!                paths, records, producers (one word a queue pair)
//! ```
//!
//! Three cycles a packet, four for one that needs a WQE of an SRQ, from the records of the queue pair to their
//! new values, so the next packet finds them. Latency 2 cycles to `admitted`. A setup event is taken between
//! two packets, whatever the outputs do, in two cycles.
//!
//! | Word of a queue pair | Holds | Written in |
//! |---|---|---|
//! | path | what commands set | Setup |
//! | producer | WQEs posted | any cycle, by the doorbell; Setup |
//! | record | expected PSN, MSN, PSNs of READs since the last SEND or WRITE, NAK sent, failed, established, WQEs consumed; kind of the message that is arriving; of a WRITE its key, its length, the bytes received, and the address of the next | Setup, Decide, Flush |
//!
//! 1. Checks are made in the order of protocol 3.1: a packet that fails the first step is dropped and moves one
//!    counter; then PSN, opcode, rights, receive WQE, length.
//! 2. A gap gets one NAK for each expected PSN (protocol 3.2), a duplicate SEND or WRITE a reply when its
//!    sender asks for it, with the PSN of the last SEND or WRITE, not of a READ or atomic behind that (protocol 3.4); nothing is
//!    executed twice.
//! 3. After a packet that is refused, here or by resolve, no packet of the queue pair is admitted until it is
//!    restarted.
//! 4. Receive WQEs are consumed in order, each by one packet: the first of a SEND, the last of a WRITE with
//!    immediate data. In ERR the WQE of a SEND that has not ended is flushed, and then the remaining ones, one
//!    after the other: a sweep over the queue pairs proceeds when the stage is idle, and after sixteen packets
//!    in any case; it moves to a queue pair at once when that enters ERR. An SRQ keeps its WQEs; last of all
//!    the queue pair reports that it holds none of them any more (last WQE reached, protocol 4.3).
//! 5. A producer index that claims more WQEs than the ring has is ignored: nothing is posted.
//! 6. Packets of a message arrive in the order of protocol 3.3, with the lengths of protocol 3.6 rows 8 and 9:
//!    FIRST and MIDDLE have the length of the path MTU, LAST is not empty, the pad is the one that the payload
//!    needs, and those of a WRITE add up to the length in its RETH.
//! 7. A packet that is not executed, as a gap, a duplicate or a LAST without a receive WQE, leaves its message
//!    as it is.
//! 8. A READ takes as many PSNs as it has responses, an atomic one (protocol 2.1), and at most
//!    `destination_read_atomic` of them are in flight for a queue pair: those that were admitted and not served
//!    yet. One more is refused.
//! 9. An atomic is executed as a READ of its eight bytes, which must be aligned; its operands leave beside it.
//! 10. WQEs of an SRQ are given to its queue pairs in the order in which their packets arrive. When one needs a
//!     WQE and fewer than the limit are left before or after it, even if none is, the event of the limit is
//!     raised, once for each setting of the limit (protocol 4.5).
//!
//! 11. A duplicate READ or atomic is forwarded if the queue pair has the right, and changes nothing here; the READ
//!     responder looks for what it asks for again. It is not counted among those in flight (protocol 3.4, 3.5).
//!
//! 12. The first packet that is executed in RTR tells control so, once in the life of the queue pair (protocol 3.9).
//!
//! SEND, WRITE, READ and atomics are served. Reset sweeps all records, which takes a cycle for each queue pair, 1,024 at most.
//! Protocol 3.1 to 3.8; design decisions 6 and 8.
use crate::messages::{Admission, AdmitCounts, Stop};
use check::{Findings, findings_of, needs_wqe};
use establish::{Establish, first_of};
use forward::{admitted_of, is_forwarded, operands_of, ring_of};
use outcome::{counts_of, outcome_of, within_share};
use posted_wqes::PostedWqes;
use record::{AdmitPath, AdmitRecord, QueuePairs, Stopped};
use record::{forwarded_of, path_of, record_after, record_set, record_write_of, stopped_write_of};
use rnic_blocks::logic::match_table::MatchTable;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::doorbell::ReceivesPosted;
use rnic_messages::packet::PacketToken;
use rnic_messages::read::{READ_COUNT_BITS, ReadsServed};
use rnic_messages::setup::{QpNotice, SetupEvent, SetupKind, SourceAddressWrite, SrqLimitNotice, SrqSetup};
use rnic_messages::sizes::{
    QUEUE_PAIR_BITS, RECEIVE_RING_BITS, SOURCE_ADDRESS_BITS, SOURCE_ADDRESSES, queue_pair_mask, sizes,
};
use step::{Step, asked_of, choice_of, setting_of, step_after, sweep_after};

mod check;
mod establish;
mod forward;
mod outcome;
mod posted_wqes;
mod record;
mod step;

/// Admits requests; see the module.
#[clocked(reset = "forgets all queue pairs")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Admit {
    /// From control: write of the table of source addresses.
    pub source_address_write: ValidRx<SourceAddressWrite>,
    /// From control: setup of queue pairs.
    pub setup: StreamRx<SetupEvent>,
    /// From control: setup of SRQs. Taken when `setup` is not valid.
    pub srq_setup: StreamRx<SrqSetup>,
    /// PSN that the queue pair of the last setup event expects; registered.
    pub probed: Signal<Out, Bits<24>>,
    /// From the doorbells.
    pub receive_posted: ValidRx<ReceivesPosted>,

    /// From resolve: a packet has failed.
    pub stop: ValidRx<Stop>,

    /// From the READ responder: READs and atomics that were answered or dropped.
    pub reads_served: ValidRx<ReadsServed>,

    /// Requests from the wire; `ready` is combinational from `setup.valid` and `srq_setup.valid`.
    pub requests: StreamRx<PacketToken>,
    /// Packets with the decision on them, with their receive ring and the operands of atomics; a function of registers. `ready`
    /// is looked at when a packet is taken, which says that there is room for it; when it is forwarded it is not.
    pub admitted: StreamTx<Admission>,
    /// Ring of the packet that may be forwarded in the next cycle; a function of registers.
    pub next_ring: Signal<Out, Bits<RECEIVE_RING_BITS>>,
    /// From park: the ring has its share of what is parked; of the ring that `next_ring` was a cycle ago.
    pub exceeds_share: Signal<In, Bit>,
    /// To control: SRQs that hold fewer WQEs than their limit; registered.
    pub srq_limit: StreamTx<SrqLimitNotice>,
    /// To control: communication of a queue pair is established; registered.
    pub established: StreamTx<QpNotice>,
    /// A packet was forwarded to `admitted`; registered.
    pub enters: Signal<Out, Bit>,

    /// Counters; registered.
    pub counts: Signal<Out, AdmitCounts>,

    own_addresses: MatchTable<128, SOURCE_ADDRESSES, SOURCE_ADDRESS_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    paths: Memory<AdmitPath, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    records: Memory<AdmitRecord, QUEUE_PAIR_BITS>,
    /// Free-running count of READs and atomics that were served.
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    served: Memory<Bits<READ_COUNT_BITS>, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    stopped: Memory<Stopped, QUEUE_PAIR_BITS>,
    posted_wqes: PostedWqes,
    establish: Establish,

    #[init(Reg::new(Step::Clear))]
    step: Reg<Step>,
    /// In `Clear`: the next record. Else: the queue pair whose WQEs are flushed next, if it is in ERR.
    sweep: Reg<Bits<QUEUE_PAIR_BITS>>,
    /// Packets since the last step of the sweep.
    packets_since_sweep: Reg<Bits<4>>,
    token: DFF<PacketToken>,
    findings: DFF<Findings>,
    probed_psn: Reg<Bits<24>>,
    entered: Reg<Bit>,
    counted: Reg<AdmitCounts>,
}

impl Logic for Admit {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.srq_limit, &mut self.posted_wqes.srq_limit);
        StreamTx::link(&mut self.established, &mut self.establish.notice);

        // What is done next.
        let step = self.step.q.val();
        let swept = self.sweep.q.val();
        let event = self.setup.beat.val();
        let is_of_pair = self.setup.valid.val();
        let offered = self.requests.beat.val();
        let is_idle = step == Step::Idle;
        let may_forward = self.admitted.ready.val();
        let has_event = is_of_pair || self.srq_setup.valid.val();
        let is_sweep_due = self.packets_since_sweep.q.val().all();
        let choice = choice_of(is_idle, has_event, self.requests.valid.val(), is_sweep_due, may_forward);
        self.requests.ready.next = choice.may_take_packet;
        if choice.takes_packet {
            self.token.d.next = offered;
            self.packets_since_sweep.d.next = self.packets_since_sweep.q.val() + 1;
        }
        if choice.sweeps {
            self.packets_since_sweep.d.next = bits::<4>(0);
        }

        // The records of the queue pair.
        let asked = asked_of(choice, event.queue_pair, offered.queue_pair, swept);
        self.paths.read(is_idle, asked);
        self.records.read(is_idle, asked);
        self.served.read(is_idle, asked);
        self.stopped.read(is_idle, asked);
        let path = self.paths.read_data.val();
        let record = self.records.read_data.val();
        let token = self.token.q.val();

        // Its receive WQEs, or a cycle later those of its SRQ.
        let compares = step == Step::Compare;
        self.posted_wqes.asks.next = is_idle;
        self.posted_wqes.queue_pair.next = asked;
        self.posted_wqes.asks_srq.next = compares;
        self.posted_wqes.srq.next = path.shared;
        self.posted_wqes.is_of_srq.next = step == Step::Share;
        self.posted_wqes.receive_index.next = record.receive_index;
        self.posted_wqes.entries_log2.next = path.receive_wqes_log2;
        let has_posted = self.posted_wqes.has_posted.val();

        // The destination address of a packet is the source address of its queue pair (protocol 1.2).
        self.own_addresses.write_enable.next = self.source_address_write.valid.val();
        self.own_addresses.write_index.next = self.source_address_write.value.val().index;
        self.own_addresses.write_used.next = self.source_address_write.value.val().valid;
        self.own_addresses.write_word.next = self.source_address_write.value.val().address;
        self.own_addresses.word.next = offered.destination_address;
        self.own_addresses.index.next = path.source_address_index;

        // Comparisons, for the packet or for the queue pair of the sweep.
        let compared = findings_of(
            token,
            path,
            record,
            self.stopped.read_data.val(),
            self.served.read_data.val(),
            has_posted,
            self.own_addresses.agrees.val(),
        );
        if compares || step == Step::Look {
            self.findings.d.next = compared;
            self.findings.d.next.may_establish = compared.may_establish && self.establish.has_room.val();
        }
        if step == Step::Share {
            self.findings.d.next.has_wqe = has_posted;
            self.findings.d.next.is_low = self.posted_wqes.is_low.val();
        }

        // Decisions.
        let found = self.findings.q.val();
        let decides = step == Step::Decide;
        let deserved = outcome_of(step == Step::Flush, token, path, record, found);
        let outcome = within_share(deserved, self.exceeds_share.val());
        let after = record_after(record, token, found, outcome);
        let forwards = is_forwarded(decides, outcome, token.payload_bytes);
        let queue_pairs = QueuePairs { swept, set: event.queue_pair, decided: token.queue_pair };
        let queue_pair = forwarded_of(step, queue_pairs);
        let ring = ring_of(queue_pair, path);
        self.next_ring.next = ring;
        self.admitted.valid.next = forwards;
        self.admitted.beat.next = Admission {
            packet: admitted_of(queue_pair, token, path, record, after, found, outcome),
            ring,
            operands: operands_of(token),
        };
        self.entered.d.next = forwards;
        self.enters.next = self.entered.q.val();
        self.posted_wqes.takes_srq_wqe.next = decides && outcome.takes_wqe && path.is_shared;
        self.posted_wqes.reaches_limit.next = decides && outcome.wants_wqe && found.is_low;
        self.establish.first.next = first_of(token, path, decides && outcome.establishes);
        self.counted.d.next = counts_of(decides, found, outcome);
        self.counts.next = self.counted.q.val();

        // Setup events, and the next step. The sweep stays at a queue pair until nothing is left to flush.
        let stops = self.stop.valid.val();
        let restarts = is_of_pair && event.kind == SetupKind::Restart;
        let setting = setting_of(step, is_of_pair, self.receive_posted.valid.val(), stops);
        let set = record_set(record, event, restarts);
        self.setup.ready.next = setting.sets;
        self.srq_setup.ready.next = setting.sets_srq;
        self.probed.next = self.probed_psn.q.val();
        if setting.applies {
            self.probed_psn.d.next = set.expected_psn;
        }
        let proceeds = setting.clears || (step == Step::Flush && !outcome.flush.flushes);
        let enters_error = setting.sets && event.state == QpState::Error as u64;
        self.sweep.d.next = sweep_after(swept, proceeds, enters_error, event.queue_pair);
        let asks_srq = path.is_shared && needs_wqe(compared.class);
        self.step.d.next =
            step_after(step, choice, asks_srq, setting.applies, setting.clears && swept == queue_pair_mask());

        // The records are written.
        let record_write = record_write_of(setting, decides, outcome, queue_pairs, set, after);
        self.records.write(record_write.enable, record_write.queue_pair, record_write.data);
        self.paths.write_enable.next = setting.clears || setting.sets;
        self.paths.write_address.next = select(setting.clears, swept, event.queue_pair);
        self.paths.write_data.next = path_of(event, !setting.clears);
        let stopped_write = stopped_write_of(setting, self.stop.value.val(), stops, restarts, queue_pairs);
        self.stopped.write(stopped_write.enable, stopped_write.queue_pair, stopped_write.data);
        self.served.write_enable.next = self.reads_served.valid.val();
        self.served.write_address.next = self.reads_served.value.val().queue_pair;
        self.served.write_data.next = self.reads_served.value.val().count;
        ValidRx::link(&mut self.receive_posted, &mut self.posted_wqes.receive_posted);
        self.posted_wqes.empties.next = setting.clears || (setting.applies && restarts);
        self.posted_wqes.emptied.next = select(setting.clears, swept, event.queue_pair);
        self.posted_wqes.sets_srq.next = setting.sets_srq;
        self.posted_wqes.srq_setup.next = self.srq_setup.beat.val();
    }
}
