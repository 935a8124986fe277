//! The lines: WQEs are read from the host into them, and from them for the answers.
//!
//! ```text
//!  fetch, draft ──> address ──> read (host) ──> slot ──> entries ──> errors ──> given ──> wqe
//!       └──> fetch_queue ────────────────────────^ └──> arrival      ^
//!                                                       answer ──────┘
//! ```
//!
//! Latency 4 cycles from an answer to the queue before `wqe`, 2 from a fetch to `read`. A fetch is taken while
//! `may_fetch` is high; at most 64 are in flight.
//!
//! 1. Reads complete in their order, so an earlier owner of a line is done with it before the next.
//! 2. A read that failed marks the WQEs that it brought, whatever was in their places before.
use super::record::{Answer, Arrival, Draft, Fetch, LINE_BITS, PLACE_BITS};
use crate::messages::{ANSWER_COUNT_BITS, ReceiveWqe};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{HostSpan, Slot};
use rnic_messages::sizes::{SPAN_BITS, sizes};

/// log2 of the WQEs of all lines.
const WQE_BITS: usize = LINE_BITS + PLACE_BITS;

/// log2 of the WQEs that the lines of a card hold.
fn words_log2() -> usize {
    sizes().receive_rings() + 1 + PLACE_BITS
}

/// A WQE in its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Word {
    data: Bits<512>,
    /// Place of the last WQE of its read, at which `errors` says whether the read failed.
    end: Bits<PLACE_BITS>,
}

/// Gives the read of some WQEs: each has 64 bytes, and the ring begins at a page.
#[kernel]
fn span_of(draft: Draft) -> HostSpan {
    let page = draft.base_page + bit_cast::<52, 10>(draft.position.get_bits::<10>(6));
    HostSpan {
        address: cat!(page, draft.position.get_bits::<6>(0), bits::<6>(0)),
        length: bit_cast::<SPAN_BITS, 3>(draft.count) << 6,
    }
}

/// Bits of a number of reads in flight, 64 at most.
pub(crate) const READ_COUNT_BITS: usize = 7;

/// The lines; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct WqeLines {
    /// WQEs to read, and where they go; only if `may_fetch` is high.
    pub fetch: ValidRx<Fetch>,
    /// Where they are.
    pub draft: Signal<In, Draft>,
    /// There is room for a fetch; a function of registers.
    pub may_fetch: Signal<Out, Bit>,
    /// To the host, 64 to 256 bytes at a multiple of 64; registered.
    pub read: StreamTx<HostSpan>,
    /// From the host, in the order of the reads.
    pub slot: ValidRx<Slot>,
    /// A read completes; combinational from `slot`.
    pub arrival: Signal<Out, Arrival>,
    /// The answer to a request.
    pub answer: Signal<In, Answer>,
    /// There is room for one more answer besides three that may be on their way; a function of registers.
    pub has_room: Signal<Out, Bit>,
    /// One WQE for each answer; registered.
    pub wqe: StreamTx<ReceiveWqe>,
    /// Answers at `wqe`; registered.
    pub level: Signal<Out, Bits<ANSWER_COUNT_BITS>>,
    /// Reads that the host has not answered; registered.
    pub fetching: Signal<Out, Bits<READ_COUNT_BITS>>,
    /// A read was requested; registered.
    pub fetches: Signal<Out, Bit>,
    /// A read has completed; registered.
    pub fetched: Signal<Out, Bit>,

    #[init(Memory::new(Storage::Ultra).with_output_register().with_words_log2(words_log2()))]
    entries: Memory<Word, WQE_BITS>,
    /// For each place: the last read that ended there failed.
    #[init(Memory::new(Storage::Block).with_words_log2(words_log2()))]
    errors: Memory<Bit, WQE_BITS>,
    fetch_queue: Fifo<Fetch, 6, READ_COUNT_BITS>,
    reads: RegisterSlice<HostSpan>,
    given: Fifo<ReceiveWqe, 3, ANSWER_COUNT_BITS>,

    waiting: DFF<Draft>,
    is_waiting: Reg<Bit>,
    arrived_count: Reg<Bits<PLACE_BITS>>,
    fetches_now: Reg<Bit>,
    fetched_now: Reg<Bit>,
    output_valid: [Reg<Bit>; 4],
    output_stale: [DFF<Bit>; 4],
    output_absent: [DFF<Bit>; 4],
    output_line: [DFF<Bits<LINE_BITS>>; 3],
    output_place: DFF<Bits<PLACE_BITS>>,
}

impl Logic for WqeLines {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.read, &mut self.reads.tx);
        StreamTx::link(&mut self.wqe, &mut self.given.tx);

        self.fetching.next = self.fetch_queue.level.val();

        // The address is computed a cycle later.
        let fetch_valid = self.fetch.valid.val();
        let is_waiting = self.is_waiting.q.val();
        self.may_fetch.next = !is_waiting && self.fetch_queue.rx.ready.val();
        if fetch_valid {
            self.waiting.d.next = self.draft.val();
        }
        self.is_waiting.d.next = fetch_valid || (is_waiting && !self.reads.rx.ready.val());
        self.reads.rx.offer(is_waiting, span_of(self.waiting.q.val()));
        self.fetch_queue.rx.offer(fetch_valid, self.fetch.value.val());
        self.fetches_now.d.next = fetch_valid;
        self.fetches.next = self.fetches_now.q.val();

        // Slots from the host.
        let slot = self.slot.value.val();
        let arrives = self.slot.valid.val();
        let completes = arrives && slot.last;
        let fetch = self.fetch_queue.tx.beat.val();
        let arrived_count = self.arrived_count.q.val();
        self.fetch_queue.tx.ready.next = completes;
        self.arrival.next = Arrival { valid: completes, fetch };
        self.entries.write_enable.next = arrives;
        self.entries.write_address.next = cat!(fetch.line, fetch.place + arrived_count);
        self.entries.write_data.next = Word { data: slot.data, end: fetch.end.get_bits::<PLACE_BITS>(0) };
        if arrives {
            self.arrived_count.d.next = select(slot.last, bits::<PLACE_BITS>(0), arrived_count + 1);
        }
        self.errors.write(completes, cat!(fetch.line, fetch.end.get_bits::<PLACE_BITS>(0)), slot.error);
        self.fetched_now.d.next = completes;
        self.fetched.next = self.fetched_now.q.val();

        // The output pipeline: the WQE is read in two cycles, and then the error flag of its read.
        let answer = self.answer.val();
        self.level.next = self.given.level.val();
        self.has_room.next = !self.given.level.val().get_bits::<2>(2).any();
        self.output_valid[0].d.next = answer.valid;
        self.output_stale[0].d.next = answer.is_stale;
        self.output_absent[0].d.next = answer.is_absent;
        self.output_line[0].d.next = answer.line;
        self.output_place.d.next = answer.place;
        for place in 1..4 {
            self.output_valid[place].d.next = self.output_valid[place - 1].q.val();
            self.output_stale[place].d.next = self.output_stale[place - 1].q.val();
            self.output_absent[place].d.next = self.output_absent[place - 1].q.val();
        }
        for place in 1..3 {
            self.output_line[place].d.next = self.output_line[place - 1].q.val();
        }
        self.entries.read_enable.next = self.output_valid[0].q.val();
        self.entries.read_address.next = cat!(self.output_line[0].q.val(), self.output_place.q.val());
        let word = self.entries.read_data.val();
        self.errors.read(true, cat!(self.output_line[2].q.val(), word.end));
        self.given.rx.valid.next = self.output_valid[3].q.val();
        self.given.rx.beat.next = ReceiveWqe {
            data: word.data,
            error: self.errors.read_data.val(),
            is_stale: self.output_stale[3].q.val(),
            is_absent: self.output_absent[3].q.val(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wqes_of_64_bytes_follow_each_other_from_the_base_page_on() {
        for (base_page, position, count, address, length) in [
            (0x40, 0, 4, 0x4_0000, 256),
            (0x40, 1, 3, 0x4_0040, 192),
            (0x40, 63, 1, 0x4_0fc0, 64),
            (0x40, 64, 4, 0x4_1000, 256),
            (0x40, 0x7ffc, 4, 0x23_ff00, 256),
            (0xf_ffff_ffff_ffff, 0, 1, 0xffff_ffff_ffff_f000, 64),
        ] {
            let span =
                span_of(Draft { base_page: bits(base_page), position: bits(position), count: bits(count) });
            assert_eq!(span, HostSpan { address: bits(address), length: bits(length) }, "WQE {position}");
        }
    }
}
