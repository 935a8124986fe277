//! Scatter: brings a packet and its receive entry together, and asks for the places that its payload goes to.
//!
//! ```text
//!  admitted ──┬─> Load ──────────> Measure ─> Ask ──┬──> scattered
//!  entry ─────┘   │ sums           ^ parts     │    └──> access_request (none to three)
//!                 └──> Recall ─────┘           │
//!                       ^ sums                 v
//!                       └────────────────── held entries (one word a queue pair)
//! ```
//!
//! Three cycles a packet, one more for each place behind the first, and one more for a packet that belongs to an entry that is
//! held. A packet is through before the next one is looked at, so that one finds what is left of the entry; one that ends a key is
//! through when the key is ended.
//!
//! 1. A WRITE with payload asks for one place with the remote key; a SEND for one for each element that takes bytes, with the
//!    local keys. Elements of no length, and those that the message does not reach, are not looked at (protocol 4.6).
//!    A READ asks for all that is to be read, with the remote key, and so does an atomic for its word; a READ of nothing for nothing.
//! 2. The first packet of a WRITE asks for the whole message, so that nothing is written of one that is out of bounds; those behind
//!    ask again for their own part, since the region can end in between.
//! 3. The entry of a SEND of several packets is held from the first to the last. What is kept of it is what the next packet needs:
//!    of each element the address and the bytes that are left, and the bytes that came. The word is written by a packet that is
//!    executed and does not end its message, and by nothing else; whether it still counts `conclude` knows.
//! 4. Lengths are added in 34 bits (design decision 14). A SEND of more than 2 GiB is too long for any entry.
//! 5. An entry that could not be read, has reserved bits set, or is too short for the SEND asks for nothing.
//! 6. Nothing is asked for packets that are not executed.
//! 7. Behind a packet that ends a key nothing is asked for before the tables say so: what comes behind it meets the dead key.
//!
//! Protocol 3.6, 3.7.
use crate::messages::{Admitted, Decision, ReceiveWqe, ReceiveWqeFault, Scattered};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::limits::MESSAGE_BYTES_MAX;
use rnic_messages::protect::AccessRequest;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, SPAN_BITS};

/// Bits of the sum of three lengths.
const SUM_BITS: usize = 34;
/// Where the first element stands, and how far apart they are (`rnic_layout::queue::receive::ReceiveWqe`).
const ELEMENTS: usize = 128;
const SGE_BITS: usize = 128;
/// Where the length stands in an element.
const LENGTH: usize = 96;
/// The longest message.
const LENGTH_MAX: u64 = MESSAGE_BYTES_MAX as u64;

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Waits for a packet, and for its entry.
    Load,
    /// Takes the entry that is held.
    Recall,
    /// Cuts the payload into parts.
    Measure,
    /// Asks for their places.
    Ask,
    /// Waits until a key is ended, or will not be.
    Hold,
}

/// What is left of a receive entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Held {
    wr_id: Bits<64>,
    /// Bytes that came.
    bytes: Bits<32>,
    /// As in the entry; those that are not in use have no length.
    sges: Bits<384>,
}

/// The stage.
#[derive(LogicBlock, Registers, Construct)]
pub struct Scatter {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// Packets; `ready` is combinational.
    pub admitted: StreamRx<Admitted>,
    /// Receive entries, in the order of the packets that take one; `ready` is combinational.
    pub entry: StreamRx<ReceiveWqe>,
    /// To the table of regions; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// To conclude; registered.
    pub scattered: StreamTx<Scattered>,
    /// From it: the packet that is to end a key is done with.
    pub ended: Signal<In, Bit>,

    held: Memory<Held, QUEUE_PAIR_BITS>,
    step: Reg<Step>,
    packet: DFF<Admitted>,
    entry_left: DFF<Held>,
    fault: DFF<ReceiveWqeFault>,
    sums: [DFF<Bits<SUM_BITS>>; 3],
    parts: [DFF<Bits<SPAN_BITS>>; 3],
    waiting: DFF<Bits<3>>,
    answers: DFF<Bits<2>>,
    requests: RegisterSlice<AccessRequest>,
    #[init(Fifo::new(Storage::Block))]
    queue: Fifo<Scattered, 4, 5>,
}

/// An element as far as it is in use: one of a higher place than there are has no length.
#[kernel]
fn used(data: Bits<512>, index: usize, count: Bits<2>) -> Bits<SGE_BITS> {
    let sge = data.get_bits::<SGE_BITS>(ELEMENTS + index * SGE_BITS);
    let length = select(count > index as u64, sge.get_bits::<32>(LENGTH), bits::<32>(0));
    cat!(length, sge.get_bits::<LENGTH>(0))
}

/// The length of an element.
#[kernel]
fn sge_bytes(sges: Bits<384>, index: usize) -> Bits<SUM_BITS> {
    bit_cast::<SUM_BITS, 32>(sges.get_bits::<32>(index * SGE_BITS + LENGTH))
}

/// What is left of an element when the first bytes of it are taken.
#[kernel]
fn left_of(sges: Bits<384>, index: usize, taken: Bits<SPAN_BITS>) -> Bits<SGE_BITS> {
    let sge = sges.get_bits::<SGE_BITS>(index * SGE_BITS);
    let address = sge.get_bits::<64>(0) + bit_cast::<64, SPAN_BITS>(taken);
    let length = sge.get_bits::<32>(LENGTH) - bit_cast::<32, SPAN_BITS>(taken);
    cat!(length, sge.get_bits::<32>(64), address)
}

/// Says whether a SEND is longer than messages may be; the bytes before the payload are no more than that.
#[kernel]
pub(crate) fn exceeds(before: Bits<32>, payload: Bits<SPAN_BITS>) -> Bit {
    before + bit_cast::<32, SPAN_BITS>(payload) > LENGTH_MAX
}

/// As much of a payload as ends before a sum.
#[kernel]
fn ended(payload: Bits<SPAN_BITS>, sum: Bits<SUM_BITS>) -> Bits<SPAN_BITS> {
    select(sum >= bit_cast::<SUM_BITS, SPAN_BITS>(payload), payload, sum.get_bits::<SPAN_BITS>(0))
}

impl Logic for Scatter {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<AccessRequest>::link(&mut self.access_request, &mut self.requests.tx);
        StreamTx::<Scattered>::link(&mut self.scattered, &mut self.queue.tx);

        // The packet and its entry come in together.
        let step = self.step.q.val();
        let offered = self.admitted.beat.val();
        let needs_entry = offered.takes_entry;
        let loads =
            step == Step::Load && self.admitted.valid.val() && (!needs_entry || self.entry.valid.val());
        self.admitted.ready.next = step == Step::Load && (!needs_entry || self.entry.valid.val());
        self.entry.ready.next = step == Step::Load && self.admitted.valid.val() && needs_entry;
        let data = self.entry.beat.val().data;
        let count = data.get_bits::<2>(64);
        let sges_used: Bits<384> = cat!(used(data, 2, count), used(data, 1, count), used(data, 0, count));
        self.held.read_enable.next = step == Step::Load;
        self.held.read_address.next = offered.queue_pair;
        let recalled = self.held.read_data.val();
        let recalls = step == Step::Recall;
        if loads {
            self.step.d.next = select(offered.uses_held, Step::Recall, Step::Measure);
            self.packet.d.next = offered;
            self.fault.d.next = if !needs_entry {
                ReceiveWqeFault::Good
            } else if self.entry.beat.val().is_stale {
                ReceiveWqeFault::Stale
            } else if self.entry.beat.val().error {
                ReceiveWqeFault::Unreadable
            } else if data.get_bits::<62>(66).any() {
                ReceiveWqeFault::Malformed
            } else {
                ReceiveWqeFault::Good
            };
        }
        if recalls {
            self.step.d.next = Step::Measure;
        }
        let sges_next = select(recalls, recalled.sges, sges_used);
        if loads || recalls {
            self.entry_left.d.next = Held {
                wr_id: select(recalls, recalled.wr_id, data.get_bits::<64>(0)),
                bytes: select(recalls, recalled.bytes, bits::<32>(0)),
                sges: sges_next,
            };
            let first = sge_bytes(sges_next, 0);
            let second = sge_bytes(sges_next, 1);
            let third = sge_bytes(sges_next, 2);
            self.sums[0].d.next = first;
            self.sums[1].d.next = first + second;
            self.sums[2].d.next = first + second + third;
        }

        // The payload ends in one of the elements, or behind all of them.
        let packet = self.packet.q.val();
        let executes = packet.decision == Decision::Execute;
        let payload = packet.payload_bytes;
        let ends = [
            ended(payload, self.sums[0].q.val()),
            ended(payload, self.sums[1].q.val()),
            ended(payload, self.sums[2].q.val()),
        ];
        let is_good = self.fault.q.val() == ReceiveWqeFault::Good;
        let entry_left = self.entry_left.q.val();
        let reaches_beyond = ends[2] != payload || exceeds(entry_left.bytes, payload);
        let is_short = executes && packet.is_send && is_good && reaches_beyond;
        if step == Step::Measure {
            self.step.d.next = Step::Ask;
            if is_short {
                self.fault.d.next = ReceiveWqeFault::TooShort;
            }
            let asks = executes && is_good && !is_short;
            let first = select(packet.is_send, ends[0], payload);
            let second = select(packet.is_send, ends[1] - ends[0], bits::<SPAN_BITS>(0));
            let third = select(packet.is_send, ends[2] - ends[1], bits::<SPAN_BITS>(0));
            self.parts[0].d.next = first;
            self.parts[1].d.next = second;
            self.parts[2].d.next = third;
            let wants_first = select(packet.is_read, packet.message_length.any(), first.any());
            let wanted: Bits<3> = cat!(third.any(), second.any(), wants_first);
            self.waiting.d.next = select(asks, wanted, bits::<3>(0));
            let number = bit_cast::<2, 1>(wanted.get_bits::<1>(0))
                + bit_cast::<2, 1>(wanted.get_bits::<1>(1))
                + bit_cast::<2, 1>(wanted.get_bits::<1>(2));
            self.answers.d.next = select(asks, number, bits::<2>(0));
        }

        // One place a cycle; the packet goes on with the last.
        let waiting = self.waiting.q.val();
        let later = waiting & (waiting - 1);
        let sges = entry_left.sges;
        let sge = if waiting.get_bit(0) {
            sges.get_bits::<96>(0)
        } else if waiting.get_bit(1) {
            sges.get_bits::<96>(SGE_BITS)
        } else {
            sges.get_bits::<96>(2 * SGE_BITS)
        };
        let part = if waiting.get_bit(0) {
            self.parts[0].q.val()
        } else if waiting.get_bit(1) {
            self.parts[1].q.val()
        } else {
            self.parts[2].q.val()
        };
        let may_end = self.queue.rx.ready.val();
        let is_last = !later.any();
        let asks = step == Step::Ask && waiting.any() && (may_end || !is_last);
        self.requests.rx.valid.next = asks;
        self.requests.rx.beat.next = AccessRequest {
            key: select(packet.is_send, sge.get_bits::<32>(64), packet.key),
            domain: packet.domain,
            address: select(packet.is_send, sge.get_bits::<64>(0), packet.address),
            length: select(
                packet.starts && !packet.is_send,
                packet.message_length,
                bit_cast::<32, SPAN_BITS>(part),
            ),
            local_write: packet.is_send,
            remote_write: !packet.is_send && !packet.is_read,
            remote_read: packet.is_read && !packet.is_atomic,
            remote_atomic: packet.is_atomic,
        };
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
        let message_bytes = entry_left.bytes + bit_cast::<32, SPAN_BITS>(payload);
        let taken = [self.parts[0].q.val(), self.parts[1].q.val(), self.parts[2].q.val()];
        self.held.write_enable.next = ends_here && executes && packet.is_send && !packet.ends;
        self.held.write_address.next = packet.queue_pair;
        self.held.write_data.next = Held {
            wr_id: entry_left.wr_id,
            bytes: message_bytes,
            sges: cat!(left_of(sges, 2, taken[2]), left_of(sges, 1, taken[1]), left_of(sges, 0, taken[0])),
        };
        self.queue.rx.valid.next = ends_here;
        self.queue.rx.beat.next = Scattered {
            packet,
            fault: self.fault.q.val(),
            wr_id: entry_left.wr_id,
            message_bytes: select(packet.is_send, message_bytes, packet.message_length),
            answers: self.answers.q.val(),
            // Parts of no length have no answer; those behind them move up.
            first_bytes: if self.parts[0].q.val().any() {
                self.parts[0].q.val()
            } else if self.parts[1].q.val().any() {
                self.parts[1].q.val()
            } else {
                self.parts[2].q.val()
            },
            second_bytes: if self.parts[0].q.val().any() && self.parts[1].q.val().any() {
                self.parts[1].q.val()
            } else {
                self.parts[2].q.val()
            },
            third_bytes: self.parts[2].q.val(),
        };
    }
}
