//! Ack: sends acknowledgements and NAKs, each when the host writes that it promises are done.
//!
//! What is owed to a peer is state of its queue pair, not an entry of a queue, so a transmit path that stands still never
//! reaches back to what is received (design decision 4).
//!
//! ```text
//!  setup ─────────┐    ┌──────┐     ┌──────┐
//!  write_failure ─┼───>│ Idle ├────>│ Work ├──> tx (AETH)
//!  place_reply ───┤    └──┬───┘     └──┬───┘
//!                 │       v records    v
//!  done_count ──> line of queue pairs that owe something, each once
//! ```
//!
//! Two cycles for an event and two for a packet that leaves. Latency 4 cycles from an event whose writes are done to its packet.
//!
//! 1. A queue pair holds two replies: the one that leaves next, and the newest. An acknowledgement takes the place of the newest,
//!    but not of a NAK that it does not cover; so while packets keep coming, the older one leaves all the same.
//! 2. A reply leaves when `write_count` writes are reported done (decision 11). Counts are kept in 32 bits here, so a transmit path
//!    that stands still does not make them look new again.
//! 3. A payload write that the host refused turns into NAK 0x63 for the first PSN that is not yet acknowledged, and ends
//!    the queue pair at once; nothing leaves behind it.
//! 4. Replies of another generation, and those of a queue pair in RESET, are dropped.
//! 5. A READ or an atomic whose time has come is released, and is open until its last response is on its way to the wire. Replies
//!    of a queue pair wait while one is open, so none overtakes a response; in ERR there are no more responses (protocol 3.5, 3.8).
//! 6. An atomic may be done then, whatever has become of its queue pair: as often as it was admitted.
//!
//! 7. A NAK that ends the queue pair ends it when it leaves (protocol 3.6), so what the peer was owed before has left.
//!
//! Reset sweeps all records in 1024 cycles. Protocol 1.6, 3.8; design decisions 4 and 11.
use crate::messages::AtomicRelease;
use rnic_blocks::logic::psn;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::opcode::Operation;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::QpState;
use rnic_layout::syndrome::{NakCode, Syndrome};
use rnic_messages::EXTENDED_BITS;
use rnic_messages::host::{WriteFailure, WriteOwner};
use rnic_messages::read::{READ_COUNT_BITS, ReadClosed, ReadRelease};
use rnic_messages::receive::AckNotice;
use rnic_messages::setup::{NoticeKind, QpNotice, SetupEvent, SetupKind};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, WRITE_COUNT_BITS};
use rnic_messages::transmit::TransmitRequest;

const RESET: u64 = QpState::Reset as u64;
const ERROR: u64 = QpState::Error as u64;
const ACKNOWLEDGE: u64 = Operation::Acknowledge as u64;
const FATAL_EVENT: u64 = AsyncEvent::QueuePairFatal as u64;
const REQUEST_EVENT: u64 = AsyncEvent::QueuePairRequestError as u64;
const ACCESS_EVENT: u64 = AsyncEvent::QueuePairAccessError as u64;
const NAK_SEQUENCE: u64 = Syndrome::Nak(NakCode::PsnSequenceError).emit() as u64;
const NAK_INVALID: u64 = Syndrome::Nak(NakCode::InvalidRequest).emit() as u64;
const NAK_ACCESS: u64 = Syndrome::Nak(NakCode::RemoteAccessError).emit() as u64;
const NAK_OPERATIONAL: u64 = Syndrome::Nak(NakCode::RemoteOperationalError).emit() as u64;
/// Bits of a count of writes as it is kept here.
const COUNT_BITS: usize = 32;

/// A reply that is owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Pending {
    is_owed: Bit,
    syndrome: Bits<8>,
    psn: Bits<24>,
    msn: Bits<24>,
    write_count: Bits<COUNT_BITS>,
    /// An event says that the queue pair fails with it.
    has_event: Bit,
}

/// What is owed to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct ReplyRecord {
    is_alive: Bit,
    generation: Bits<GENERATION_BITS>,
    /// It stands in the line.
    in_line: Bit,
    /// A write failed; nothing more is said.
    failed: Bit,
    /// READs and atomics that are released and not closed.
    reads_open: Bits<READ_COUNT_BITS>,
    /// First PSN that no reply has covered.
    open_psn: Bits<24>,
    /// MSN of the last reply.
    last_msn: Bits<24>,
    first: Pending,
    newest: Pending,
}

/// A place in the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Turn {
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// It makes no sense to look before so many writes are done.
    write_count: Bits<COUNT_BITS>,
}

/// What is done with a record.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Clears the records behind a reset.
    Clear,
    /// Chooses.
    Idle,
    /// A setup event.
    Setup,
    /// A host write failed.
    Fail,
    /// A READ is closed.
    Close,
    /// A reply is owed.
    Owe,
    /// The head of the line may send.
    Send,
}

/// The stage.
#[derive(Default, LogicBlock, Registers)]
pub struct Ack {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all queue pairs.
    pub reset: Signal<In, Bit>,
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From place: replies with the writes that they wait for; taken in bounded time, whatever `tx` does.
    pub place_reply: StreamRx<AckNotice>,
    /// From the writer: a write that the host refused; the same.
    pub write_failure: StreamRx<WriteFailure>,
    /// Writes that are done.
    pub done_count: Signal<In, Bits<WRITE_COUNT_BITS>>,
    /// To serve: READs and atomics whose time has come; registered.
    pub release: StreamTx<ReadRelease>,
    /// To exchange: atomics whose time has come; registered.
    pub atomic_release: StreamTx<AtomicRelease>,
    /// The last response of a READ is on its way; not in two cycles running.
    pub read_closed: Signal<In, ReadClosed>,
    /// It is; it is taken in any case.
    pub read_closed_valid: Signal<In, Bit>,
    /// To launch; registered.
    pub tx: StreamTx<TransmitRequest>,
    /// Queue pairs that must fail; registered.
    pub failure: StreamTx<QpNotice>,

    /// Counter.
    pub counts_acknowledgements_sent: Signal<Out, Bit>,
    /// Counter.
    pub counts_nak_sequence_sent: Signal<Out, Bit>,
    /// Counter.
    pub counts_nak_invalid_request_sent: Signal<Out, Bit>,
    /// Counter.
    pub counts_nak_access_sent: Signal<Out, Bit>,
    /// Counter.
    pub counts_nak_operational_sent: Signal<Out, Bit>,
    /// Counter.
    pub counts_nak_not_ready_sent: Signal<Out, Bit>,
    /// Counter.
    pub counts_stale_dropped: Signal<Out, Bit>,

    records: Memory<ReplyRecord, QUEUE_PAIR_BITS>,
    line: Fifo<Turn, QUEUE_PAIR_BITS, 11>,
    packets: RegisterSlice<TransmitRequest>,
    releases: Fifo<ReadRelease, 2, 3>,
    atomic_releases: Fifo<AtomicRelease, 2, 3>,
    /// They wait for commands and failures only.
    closings: Fifo<ReadClosed, 4, 5>,
    /// Room for all queue pairs.
    failures: Fifo<QpNotice, QUEUE_PAIR_BITS, 11>,
    step: Reg<Step>,
    sweep: Reg<Bits<QUEUE_PAIR_BITS>>,
    /// The line has its turn before the next event.
    line_is_next: Reg<Bit>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    event: DFF<AckNotice>,
    event_count: DFF<Bits<COUNT_BITS>>,
    write: DFF<WriteFailure>,
    done: Reg<Bits<COUNT_BITS>>,
    counts: Reg<Bits<7>>,
}

/// Nothing is owed.
#[kernel]
fn nothing() -> Pending {
    Pending {
        is_owed: false,
        syndrome: bits::<8>(0),
        psn: bits::<24>(0),
        msn: bits::<24>(0),
        write_count: bits::<COUNT_BITS>(0),
        has_event: false,
    }
}

/// Says whether so many writes are done.
#[kernel]
fn is_reached(done: Bits<COUNT_BITS>, count: Bits<COUNT_BITS>) -> Bit {
    !(done - count).get_bit(COUNT_BITS - 1)
}

/// A signed distance of two short counts, in the width of the long ones.
#[kernel]
fn extended(distance: Bits<WRITE_COUNT_BITS>) -> Bits<COUNT_BITS> {
    let sign = select(distance.get_bit(WRITE_COUNT_BITS - 1), bits::<16>(0xffff), bits::<16>(0));
    cat!(sign, distance)
}

impl Logic for Ack {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<AtomicRelease>::link(&mut self.atomic_release, &mut self.atomic_releases.tx);
        StreamTx::<ReadRelease>::link(&mut self.release, &mut self.releases.tx);
        self.closings.rx.valid.next = self.read_closed_valid.val();
        self.closings.rx.beat.next = self.read_closed.val();
        StreamTx::<TransmitRequest>::link(&mut self.tx, &mut self.packets.tx);
        StreamTx::<QpNotice>::link(&mut self.failure, &mut self.failures.tx);
        let done = self.done.q.val();
        let news = self.done_count.val() - done.get_bits::<WRITE_COUNT_BITS>(0);
        self.done.d.next = done + bit_cast::<COUNT_BITS, WRITE_COUNT_BITS>(news);

        // Choosing: commands and failures first, events and the line in turn.
        let step = self.step.q.val();
        let is_idle = step == Step::Idle;
        let turn = self.line.tx.beat.val();
        let may_send = self.line.tx.valid.val()
            && self.packets.rx.ready.val()
            && self.failures.rx.ready.val()
            && is_reached(done, turn.write_count);
        let sets = is_idle && self.setup.valid.val();
        let may_fail = is_idle && !self.setup.valid.val();
        let fails = may_fail && self.write_failure.valid.val() && self.failures.rx.ready.val();
        let closes = may_fail && !fails && self.closings.tx.valid.val();
        let goes_on = may_fail && !fails && !closes;
        let may_release = self.releases.rx.ready.val() && self.atomic_releases.rx.ready.val();
        let may_owe = self.place_reply.valid.val() && may_release;
        let owes = goes_on && may_owe && !(may_send && self.line_is_next.q.val());
        self.closings.tx.ready.next = closes;
        let closed = self.closings.tx.beat.val();
        let sends = goes_on && may_send && !owes;
        self.write_failure.ready.next = may_fail && self.failures.rx.ready.val();
        self.place_reply.ready.next = owes;
        self.line.tx.ready.next = sends;
        let owed = self.place_reply.beat.val();
        let failed_write = self.write_failure.beat.val();
        let event = self.setup.beat.val();
        if sets {
            self.step.d.next = Step::Setup;
            self.queue_pair.d.next = event.queue_pair;
        }
        if fails {
            self.step.d.next = Step::Fail;
            self.queue_pair.d.next = failed_write.queue_pair;
            self.write.d.next = failed_write;
        }
        if closes {
            self.step.d.next = Step::Close;
            self.queue_pair.d.next = closed.queue_pair;
            self.event.d.next.generation = closed.generation;
        }
        if owes {
            self.step.d.next = Step::Owe;
            self.queue_pair.d.next = owed.queue_pair;
            self.event.d.next = owed;
            self.event_count.d.next =
                done + extended(owed.write_count - done.get_bits::<WRITE_COUNT_BITS>(0));
            self.line_is_next.d.next = true;
        }
        if sends {
            self.step.d.next = Step::Send;
            self.queue_pair.d.next = turn.queue_pair;
            self.line_is_next.d.next = false;
        }
        self.records.read_enable.next = is_idle;
        self.records.read_address.next = if sets {
            event.queue_pair
        } else if fails {
            failed_write.queue_pair
        } else if closes {
            closed.queue_pair
        } else if owes {
            owed.queue_pair
        } else {
            turn.queue_pair
        };
        let record = self.records.read_data.val();
        let queue_pair = self.queue_pair.q.val();
        let sweep = self.sweep.q.val();
        let clears = step == Step::Clear;
        if clears {
            self.sweep.d.next = sweep + 1;
            if sweep.all() {
                self.step.d.next = Step::Idle;
            }
        }
        if !clears && !is_idle {
            self.step.d.next = Step::Idle;
        }

        // A command.
        self.setup.ready.next = step == Step::Setup;
        let restarts = event.kind == SetupKind::Restart;
        let is_alive = event.state != RESET;
        let forgets = restarts || !is_alive;
        // In ERR no READ is answered any more, so nothing has to wait for that.
        let has_ended = event.state == ERROR;
        let is_set = step == Step::Setup;
        let resumes =
            is_set && has_ended && record.reads_open.any() && record.first.is_owed && !record.in_line;
        let set = ReplyRecord {
            is_alive,
            generation: event.generation,
            in_line: record.in_line || resumes,
            failed: record.failed && !restarts,
            reads_open: select(forgets || has_ended, bits::<READ_COUNT_BITS>(0), record.reads_open),
            open_psn: select(event.kind == SetupKind::ReceivePsn, event.psn, record.open_psn),
            last_msn: select(restarts, bits::<24>(0), record.last_msn),
            first: select(forgets, nothing(), record.first),
            newest: select(forgets, nothing(), record.newest),
        };

        // A write that failed.
        let write = self.write.q.val();
        let is_hit = step == Step::Fail
            && write.owner == WriteOwner::Payload
            && write.generation == record.generation
            && record.is_alive
            && !record.failed;
        let last_words = Pending {
            is_owed: true,
            syndrome: bits::<8>(NAK_OPERATIONAL),
            psn: record.open_psn,
            msn: record.last_msn,
            write_count: done,
            has_event: false,
        };

        // A reply that is owed. A NAK covers what comes before its PSN, an acknowledgement its PSN too.
        let news = self.event.q.val();
        let is_current = news.generation == record.generation && record.is_alive;
        let releases = step == Step::Owe && is_current && news.is_read;
        self.releases.rx.valid.next = releases;
        self.releases.rx.beat.next = ReadRelease { queue_pair, generation: news.generation };
        self.atomic_releases.rx.valid.next = step == Step::Owe && news.is_atomic;
        self.atomic_releases.rx.beat.next = AtomicRelease { queue_pair };
        let has_closed = step == Step::Close && is_current && record.reads_open.any();
        let reads_open = if releases {
            record.reads_open + 1
        } else if has_closed {
            record.reads_open - 1
        } else {
            record.reads_open
        };
        let takes = step == Step::Owe && is_current && !record.failed && !news.is_read;
        let newer = Pending {
            is_owed: true,
            syndrome: news.syndrome,
            psn: news.psn,
            msn: news.msn,
            write_count: self.event_count.q.val(),
            has_event: news.has_event,
        };
        let newest_is_nak = record.newest.is_owed && record.newest.syndrome.get_bits::<3>(5).any();
        let news_is_nak = news.syndrome.get_bits::<3>(5).any();
        let replaces = !newest_is_nak || news_is_nak || !psn::is_before(news.psn, record.newest.psn);
        let is_only = takes && !record.first.is_owed;

        // The head of the line.
        let reply = record.first;
        let is_turn = step == Step::Send;
        let has_reads = record.reads_open.any();
        let leaves =
            is_turn && reply.is_owed && record.is_alive && is_reached(done, reply.write_count) && !has_reads;
        let is_nak = reply.syndrome.get_bits::<3>(5).any();
        let has_next = select(leaves, record.newest.is_owed, reply.is_owed);
        let stays = is_turn && record.is_alive && has_next && !has_reads;
        // A failed write has told already.
        let is_fatal = reply.syndrome == NAK_INVALID
            || reply.syndrome == NAK_ACCESS
            || reply.syndrome == NAK_OPERATIONAL;
        self.failures.rx.valid.next = is_hit || (leaves && is_fatal && !record.failed);
        self.failures.rx.beat.next = QpNotice {
            queue_pair,
            generation: record.generation,
            kind: NoticeKind::ResponderError,
            has_event: is_hit || reply.has_event,
            event_code: if is_hit || reply.syndrome == NAK_OPERATIONAL {
                bits::<8>(FATAL_EVENT)
            } else if reply.syndrome == NAK_INVALID {
                bits::<8>(REQUEST_EVENT)
            } else {
                bits::<8>(ACCESS_EVENT)
            },
        };
        let aeth: Bits<32> = cat!(swap_bytes(reply.msn), reply.syndrome);
        self.packets.rx.valid.next = leaves;
        self.packets.rx.beat.next = TransmitRequest {
            queue_pair,
            generation: record.generation,
            opcode: bits::<8>(ACKNOWLEDGE),
            solicited: false,
            ack_request: false,
            asks_if_newest: false,
            psn: reply.psn,
            extended: bit_cast::<EXTENDED_BITS, 32>(aeth),
            payload_bytes: bits::<13>(0),
            is_response: false,
            ends_response: false,
        };

        // A queue pair stands in line once.
        let is_free = has_closed && record.reads_open == 1 && reply.is_owed;
        let enters = (((is_hit || is_only) && !has_reads) || is_free || resumes) && !record.in_line;
        let next_count = if is_hit {
            done
        } else if is_only {
            newer.write_count
        } else if leaves {
            record.newest.write_count
        } else {
            reply.write_count
        };
        self.line.rx.valid.next = enters || stays;
        self.line.rx.beat.next = Turn { queue_pair, write_count: next_count };

        let changed = ReplyRecord {
            is_alive: record.is_alive,
            generation: record.generation,
            in_line: select(is_turn, stays, record.in_line || enters),
            failed: record.failed || is_hit,
            reads_open,
            // Responses cover what they answer.
            open_psn: if releases {
                news.psn + 1
            } else if !leaves {
                record.open_psn
            } else if is_nak {
                reply.psn
            } else {
                reply.psn + 1
            },
            last_msn: if releases { news.msn } else { select(leaves, reply.msn, record.last_msn) },
            first: if is_hit {
                last_words
            } else if is_only {
                newer
            } else if leaves {
                record.newest
            } else {
                record.first
            },
            newest: if is_hit || leaves {
                nothing()
            } else if takes && !is_only && replaces {
                newer
            } else {
                record.newest
            },
        };
        let empty = ReplyRecord {
            is_alive: false,
            generation: bits::<GENERATION_BITS>(0),
            in_line: false,
            failed: false,
            reads_open: bits::<READ_COUNT_BITS>(0),
            open_psn: bits::<24>(0),
            last_msn: bits::<24>(0),
            first: nothing(),
            newest: nothing(),
        };
        self.records.write_enable.next = !is_idle;
        self.records.write_address.next = select(clears, sweep, queue_pair);
        self.records.write_data.next = if clears {
            empty
        } else if step == Step::Setup {
            set
        } else {
            changed
        };

        let syndrome = reply.syndrome;
        let counts: Bits<7> = cat!(
            step == Step::Owe && !is_current,
            leaves && syndrome.get_bits::<3>(5) == 1,
            leaves && syndrome == NAK_OPERATIONAL,
            leaves && syndrome == NAK_ACCESS,
            leaves && syndrome == NAK_INVALID,
            leaves && syndrome == NAK_SEQUENCE,
            leaves && !is_nak
        );
        self.counts.d.next = counts;
        self.counts_acknowledgements_sent.next = self.counts.q.val().get_bit(0);
        self.counts_nak_sequence_sent.next = self.counts.q.val().get_bit(1);
        self.counts_nak_invalid_request_sent.next = self.counts.q.val().get_bit(2);
        self.counts_nak_access_sent.next = self.counts.q.val().get_bit(3);
        self.counts_nak_operational_sent.next = self.counts.q.val().get_bit(4);
        self.counts_nak_not_ready_sent.next = self.counts.q.val().get_bit(5);
        self.counts_stale_dropped.next = self.counts.q.val().get_bit(6);
    }
}
