//! Scatter: brings a packet and its receive entry together, and asks for the places that its payload goes to.
//!
//! ```text
//!  admitted ──┬─> Load ─> Measure ─> Ask ──┬──> scattered
//!  entry ─────┘    sums     parts          └──> access_request (none to three)
//! ```
//!
//! Three cycles a packet, one more for each place behind the first.
//!
//! 1. A WRITE with payload asks for one place with the remote key; a SEND for one for each element that takes bytes, with the
//!    local keys. Elements of no length, and those that the message does not reach, are not looked at (protocol 4.6).
//! 2. Lengths are added in 34 bits (DESIGN 3 decision 14).
//! 3. An entry that could not be read, has reserved bits set, or is too short for the SEND asks for nothing.
//! 4. Nothing is asked for packets that are not executed.
//!
//! Protocol 3.6, 3.7.
use crate::stages::{Admitted, Decision, EntryFault, ReceiveEntry, Scattered};
use rnic_blocks::memory::Storage;
use rnic_blocks::parameter::ParameterError;
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_token::protect::AccessRequest;
use rnic_token::sizes::SPAN_BITS;

/// Bits of the sum of three lengths.
const SUM_BITS: usize = 34;
/// Where the first element stands, and how far apart they are (`rnic_layout::queue::receive::ReceiveWork`).
const ELEMENTS: usize = 128;
const ELEMENT_BITS: usize = 128;

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Waits for a packet, and for its entry.
    Load,
    /// Cuts the payload into parts.
    Measure,
    /// Asks for their places.
    Ask,
}

/// The stage.
#[derive(LogicBlock, Registers)]
pub struct Scatter {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// Packets; `ready` is combinational.
    pub admitted: StreamRx<Admitted>,
    /// Receive entries, in the order of the packets that take one; `ready` is combinational.
    pub entry: StreamRx<ReceiveEntry>,
    /// To the table of regions; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// To conclude; registered.
    pub scattered: StreamTx<Scattered>,

    step: Reg<Step>,
    packet: DFF<Admitted>,
    elements: DFF<Bits<384>>,
    tag: DFF<Bits<64>>,
    fault: DFF<EntryFault>,
    sums: [DFF<Bits<SUM_BITS>>; 3],
    parts: [DFF<Bits<SPAN_BITS>>; 3],
    waiting: DFF<Bits<3>>,
    answers: DFF<Bits<2>>,
    requests: RegisterSlice<AccessRequest>,
    queue: Fifo<Scattered, 4, 5>,
}

impl Scatter {
    /// Makes an empty stage.
    ///
    /// # Errors
    /// None with the widths that are built in.
    pub fn new() -> Result<Self, ParameterError> {
        Ok(Scatter {
            clock: Signal::default(),
            reset: Signal::default(),
            admitted: StreamRx::default(),
            entry: StreamRx::default(),
            access_request: StreamTx::default(),
            scattered: StreamTx::default(),
            step: Reg::new(Step::Load),
            packet: DFF::default(),
            elements: DFF::default(),
            tag: DFF::default(),
            fault: DFF::default(),
            sums: Default::default(),
            parts: Default::default(),
            waiting: DFF::default(),
            answers: DFF::default(),
            requests: RegisterSlice::default(),
            queue: Fifo::new(Storage::Distributed)?,
        })
    }
}

/// The length of an element, zero if it is not in use.
#[kernel]
fn element_bytes(data: Bits<512>, index: usize, count: Bits<2>) -> Bits<SUM_BITS> {
    let length = data.get_bits::<32>(ELEMENTS + index * ELEMENT_BITS + 96);
    select(count > index as u64, bit_cast::<SUM_BITS, 32>(length), bits::<SUM_BITS>(0))
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
        clock!(self, clock, requests, queue);
        self.requests.reset.next = self.reset.val();
        self.queue.reset.next = self.reset.val();
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
        if loads {
            self.step.d.next = Step::Measure;
            self.packet.d.next = offered;
            self.elements.d.next = data.get_bits::<384>(ELEMENTS);
            self.tag.d.next = data.get_bits::<64>(0);
            self.fault.d.next = if !needs_entry {
                EntryFault::Good
            } else if self.entry.beat.val().is_stale {
                EntryFault::Stale
            } else if self.entry.beat.val().error {
                EntryFault::Unreadable
            } else if data.get_bits::<62>(66).any() {
                EntryFault::Malformed
            } else {
                EntryFault::Good
            };
            let first = element_bytes(data, 0, count);
            let second = element_bytes(data, 1, count);
            let third = element_bytes(data, 2, count);
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
        let is_good = self.fault.q.val() == EntryFault::Good;
        let is_short = executes && packet.is_send && is_good && ends[2] != payload;
        if step == Step::Measure {
            self.step.d.next = Step::Ask;
            if is_short {
                self.fault.d.next = EntryFault::TooShort;
            }
            let asks = executes && is_good && !is_short;
            let first = select(packet.is_send, ends[0], payload);
            let second = select(packet.is_send, ends[1] - ends[0], bits::<SPAN_BITS>(0));
            let third = select(packet.is_send, ends[2] - ends[1], bits::<SPAN_BITS>(0));
            self.parts[0].d.next = first;
            self.parts[1].d.next = second;
            self.parts[2].d.next = third;
            let wanted: Bits<3> = cat!(third.any(), second.any(), first.any());
            self.waiting.d.next = select(asks, wanted, bits::<3>(0));
            let number = bit_cast::<2, 1>(wanted.get_bits::<1>(0))
                + bit_cast::<2, 1>(wanted.get_bits::<1>(1))
                + bit_cast::<2, 1>(wanted.get_bits::<1>(2));
            self.answers.d.next = select(asks, number, bits::<2>(0));
        }

        // One place a cycle; the packet goes on with the last.
        let waiting = self.waiting.q.val();
        let later = waiting & (waiting - 1);
        let elements = self.elements.q.val();
        let element = if waiting.get_bit(0) {
            elements.get_bits::<96>(0)
        } else if waiting.get_bit(1) {
            elements.get_bits::<96>(ELEMENT_BITS)
        } else {
            elements.get_bits::<96>(2 * ELEMENT_BITS)
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
            key: select(packet.is_send, element.get_bits::<32>(64), packet.key),
            domain: packet.domain,
            address: select(packet.is_send, element.get_bits::<64>(0), packet.address),
            length: bit_cast::<32, SPAN_BITS>(part),
            local_write: packet.is_send,
            remote_write: !packet.is_send,
            remote_read: false,
            remote_atomic: false,
        };
        let is_asked = asks && self.requests.rx.ready.val();
        let ends_here = step == Step::Ask && may_end && is_last && (is_asked || !waiting.any());
        if is_asked {
            self.waiting.d.next = later;
        }
        if ends_here {
            self.step.d.next = Step::Load;
        }
        self.queue.rx.valid.next = ends_here;
        self.queue.rx.beat.next = Scattered {
            packet,
            fault: self.fault.q.val(),
            tag: self.tag.q.val(),
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
