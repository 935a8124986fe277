//! Records of [`Admit`](super::Admit): what commands set of a queue pair and of an SRQ, and the state that
//! packets change (design decision 6).
use super::check::Findings;
use super::outcome::Outcome;
use super::step::{Setting, Step};
use crate::messages::{Decision, Stop};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::packet::PacketToken;
use rnic_messages::read::{READ_COUNT_BITS, ReadShare};
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{
    COMPLETION_QUEUE_BITS, GENERATION_BITS, QUEUE_PAIR_BITS, SHARED_RECEIVE_BITS, SOURCE_ADDRESS_BITS,
    WORK_INDEX_BITS,
};

/// Attributes of a queue pair, set by commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct AdmitPath {
    pub state: Bits<3>,
    pub generation: Bits<GENERATION_BITS>,
    pub local_qp: Bits<24>,
    pub service: Bits<2>,
    pub path_mtu: Bits<3>,
    pub remote_write: Bit,
    pub remote_read: Bit,
    pub remote_atomic: Bit,
    /// READs and atomics that may be in flight.
    pub reads_max: Bits<READ_COUNT_BITS>,
    /// Their slots.
    pub read_share: ReadShare,
    pub destination_address: Bits<128>,
    pub source_address_index: Bits<SOURCE_ADDRESS_BITS>,
    pub partition_key: Bits<16>,
    pub domain: Bits<24>,
    pub min_rnr_timer: Bits<5>,
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    pub receive_wqes_log2: Bits<4>,
    /// Receive WQEs come from an SRQ.
    pub is_shared: Bit,
    pub shared: Bits<SHARED_RECEIVE_BITS>,
}

/// Kind of the message that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(super) enum Message {
    /// None.
    Nothing,
    /// A SEND; its receive WQE is consumed.
    Send,
    /// A WRITE.
    Write,
}

/// A WRITE that is arriving, or the READ or atomic that a packet requests; undefined for a SEND.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Transfer {
    /// Key of the region.
    pub key: Bits<32>,
    /// Address of the next byte.
    pub address: Bits<64>,
    /// Length in its RETH.
    pub length: Bits<32>,
    /// Bytes received.
    pub received: Bits<32>,
}

/// State of a queue pair that packets change.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct AdmitRecord {
    pub expected_psn: Bits<24>,
    pub msn: Bits<24>,
    /// A NAK of the expected PSN was sent.
    pub nak_sent: Bit,
    /// A packet was refused.
    pub failed: Bit,
    /// A packet was forwarded since the restart.
    pub is_known: Bit,
    /// Free-running count of receive WQEs consumed; zero if they are of an SRQ.
    pub receive_index: Bits<WORK_INDEX_BITS>,
    pub message: Message,
    pub transfer: Transfer,
    /// Queue pair of an SRQ: in ERR, the last WQE is reported.
    pub is_last_wqe_reported: Bit,
    /// Control is told that communication is established.
    pub is_established: Bit,
    /// Free-running count of READs and atomics that were admitted.
    pub reads: Bits<READ_COUNT_BITS>,
    /// PSNs of READs and atomics since the last packet of a SEND or WRITE, or since the first PSN. From 2^23 on they are not counted
    /// any more: that packet is not in the window of duplicates.
    pub read_psns: Bits<24>,
}

/// A packet of this generation of a queue pair has failed in a later stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Stopped {
    pub has_failed: Bit,
    pub generation: Bits<GENERATION_BITS>,
}

/// Gives the attributes that a setup event sets, or those of a queue pair that does not exist.
#[kernel]
pub(super) fn path_of(event: SetupEvent, exists: Bit) -> AdmitPath {
    AdmitPath {
        state: select(exists, event.state, bits::<3>(QpState::Reset as u64)),
        generation: event.generation,
        local_qp: select(exists, event.path.local_qp, bits::<24>(0)),
        service: event.path.service,
        path_mtu: event.path.path_mtu,
        remote_write: event.path.remote_write,
        remote_read: event.path.remote_read,
        remote_atomic: event.path.remote_atomic,
        reads_max: event.path.destination_read_atomic,
        read_share: event.destination_read_share,
        destination_address: event.path.destination_address,
        source_address_index: event.path.source_address_index,
        partition_key: event.path.partition_key,
        domain: event.path.domain,
        min_rnr_timer: event.path.min_rnr_timer,
        completion_queue: event.path.receive_completion_queue.get_bits::<COMPLETION_QUEUE_BITS>(0),
        receive_wqes_log2: event.path.receive_wqes_log2,
        is_shared: event.path.shared_receive,
        shared: event.path.shared_receive_queue.get_bits::<SHARED_RECEIVE_BITS>(0),
    }
}

/// Gives the record of a queue pair without packets, which expects PSN 0.
#[kernel]
pub(super) fn untouched() -> AdmitRecord {
    AdmitRecord { expected_psn: bits(0), ..Default::default() }
}

/// Gives the record after a setup event. `restarts` says that the event is valid and restarts the queue pair.
#[kernel]
pub(super) fn record_set(record: AdmitRecord, event: SetupEvent, restarts: Bit) -> AdmitRecord {
    if restarts {
        untouched()
    } else if event.kind == SetupKind::ReceivePsn {
        AdmitRecord { expected_psn: event.psn, msn: bits(0), nak_sent: false, read_psns: bits(0), ..record }
    } else {
        record
    }
}

/// The queue pairs that a record may be written of in this cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct QueuePairs {
    /// That of the sweep, or of the record that is cleared.
    pub swept: Bits<QUEUE_PAIR_BITS>,
    /// That of the setup event.
    pub set: Bits<QUEUE_PAIR_BITS>,
    /// That of the packet.
    pub decided: Bits<QUEUE_PAIR_BITS>,
}

/// Gives the queue pair that a packet is for, or that the sweep looks at. A packet keeps its index although no queue pair has its
/// QPN: what it holds of the request buffer is counted so.
#[kernel]
pub(super) fn forwarded_of(step: Step, queue_pairs: QueuePairs) -> Bits<QUEUE_PAIR_BITS> {
    let is_sweep = step == Step::Look || step == Step::Flush;
    select(is_sweep, queue_pairs.swept, queue_pairs.decided)
}

/// A write to a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct RecordWrite {
    pub enable: Bit,
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    pub data: AdmitRecord,
}

/// A write to the note that a later stage stopped a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct StoppedWrite {
    pub enable: Bit,
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    pub data: Stopped,
}

/// Decides what is written of the record `after` a packet or a flush, and of the record `set` by a setup event.
/// Only a packet that is one of its queue pair, and comes after no failure, changes the record.
#[kernel]
pub(super) fn record_write_of(
    setting: Setting,
    is_decided: Bit,
    outcome: Outcome,
    queue_pairs: QueuePairs,
    set: AdmitRecord,
    after: AdmitRecord,
) -> RecordWrite {
    RecordWrite {
        enable: setting.clears
            || setting.sets
            || outcome.flush.flushes
            || (is_decided && outcome.order.is_checked),
        queue_pair: if setting.clears || outcome.flush.flushes {
            queue_pairs.swept
        } else if setting.applies {
            queue_pairs.set
        } else {
            queue_pairs.decided
        },
        data: if setting.clears {
            untouched()
        } else if setting.applies {
            set
        } else {
            after
        },
    }
}

/// Decides what is noted of failures in later stages: a stop, which may come in any cycle, or none after a
/// restart.
#[kernel]
pub(super) fn stopped_write_of(
    setting: Setting,
    stop: Stop,
    stops: Bit,
    restarts: Bit,
    queue_pairs: QueuePairs,
) -> StoppedWrite {
    StoppedWrite {
        enable: stops || setting.clears || (setting.applies && restarts),
        queue_pair: if stops {
            stop.queue_pair
        } else if setting.clears {
            queue_pairs.swept
        } else {
            queue_pairs.set
        },
        data: Stopped { has_failed: stops, generation: stop.generation },
    }
}

/// Gives the kind of the message that is arriving after a packet or a flush. A packet that is not executed
/// leaves its message as it is, unless it is refused.
#[kernel]
fn message_after(message: Message, found: Findings, outcome: Outcome) -> Message {
    if outcome.flush.flushes || outcome.refuses || (outcome.executes && found.class.ends) {
        Message::Nothing
    } else if outcome.executes {
        if found.class.is_send { Message::Send } else { Message::Write }
    } else {
        message
    }
}

/// Gives the progress of a WRITE after a packet.
#[kernel]
fn transfer_after(transfer: Transfer, token: PacketToken, found: Findings, executes: Bit) -> Transfer {
    let arrived = found.transfer;
    let moved = Transfer { address: arrived.address + bit_cast::<64, 13>(token.payload_bytes), ..arrived };
    select(executes, moved, transfer)
}

/// Gives the PSNs of READs and atomics since the last packet of a SEND or WRITE, after a packet.
#[kernel]
fn read_psns_after(read_psns: Bits<24>, found: Findings, executes: Bit) -> Bits<24> {
    let goes_on = !executes || (found.class.is_read && !found.follows_message);
    if goes_on {
        read_psns
    } else {
        select(found.class.is_read, read_psns + 1 + found.responses, bits::<24>(0))
    }
}

/// Gives the record of a queue pair after a packet, or after a flush of the sweep.
#[kernel]
pub(super) fn record_after(
    record: AdmitRecord,
    token: PacketToken,
    found: Findings,
    outcome: Outcome,
) -> AdmitRecord {
    let executes = outcome.executes;
    let after_psn = record.expected_psn + 1 + found.responses;
    AdmitRecord {
        expected_psn: select(executes, after_psn, record.expected_psn),
        msn: select(executes && found.class.ends, record.msn + 1, record.msn),
        nak_sent: !executes && (record.nak_sent || outcome.naks_gap || outcome.is_not_ready),
        failed: record.failed || outcome.refuses,
        is_known: record.is_known || outcome.decision != Decision::Drop,
        receive_index: select(outcome.takes_own_wqe, record.receive_index + 1, record.receive_index),
        message: message_after(record.message, found, outcome),
        transfer: transfer_after(record.transfer, token, found, executes),
        is_last_wqe_reported: record.is_last_wqe_reported || outcome.flush.reports_last_wqe,
        is_established: record.is_established || outcome.establishes,
        reads: select(executes && found.class.is_read, record.reads + 1, record.reads),
        read_psns: read_psns_after(record.read_psns, found, executes),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::PacketClass;
    use super::super::outcome::{Flush, Order};
    use super::*;

    /// A record in which no field has the value that it has after a restart.
    fn touched() -> AdmitRecord {
        AdmitRecord {
            expected_psn: bits(0xff_ffff),
            msn: bits(0xff_ffff),
            nak_sent: true,
            failed: true,
            is_known: true,
            receive_index: bits(0xffff),
            message: Message::Write,
            transfer: Transfer {
                key: bits(0x142),
                address: bits(0x7000),
                length: bits(300),
                received: bits(256),
            },
            is_last_wqe_reported: true,
            is_established: true,
            reads: bits(31),
            read_psns: bits(0xff_ffff),
        }
    }

    fn executed(class: PacketClass) -> (Findings, Outcome) {
        let outcome = Outcome { decision: Decision::Execute, executes: true, ..Outcome::default() };
        (Findings { class, ..Findings::default() }, outcome)
    }

    #[test]
    fn a_setup_event_changes_only_what_its_kind_says() {
        let psn_set = AdmitRecord {
            expected_psn: bits(0x12_3456),
            msn: bits(0),
            nak_sent: false,
            read_psns: bits(0),
            ..touched()
        };
        for (kind, expected) in [
            (SetupKind::Restart, AdmitRecord { message: Message::Nothing, ..AdmitRecord::default() }),
            (SetupKind::ReceivePsn, psn_set),
            (SetupKind::Life, touched()),
            (SetupKind::Path, touched()),
            (SetupKind::SendPsn, touched()),
            (SetupKind::Probe, touched()),
        ] {
            let event = SetupEvent { kind, psn: bits(0x12_3456), ..SetupEvent::default() };
            assert_eq!(record_set(touched(), event, kind == SetupKind::Restart), expected, "{kind:?}");
        }
    }

    #[test]
    fn a_queue_pair_that_does_not_exist_is_in_reset_and_has_no_qpn() {
        let mut event = SetupEvent { state: bits(QpState::ReadyToSend as u64), ..SetupEvent::default() };
        event.path.local_qp = bits(0x5a_c003);
        event.path.receive_completion_queue = bits(5);
        for (exists, state, qpn) in [(true, QpState::ReadyToSend, 0x5a_c003), (false, QpState::Reset, 0)] {
            let path = path_of(event, exists);
            assert_eq!((path.state, path.local_qp), (bits(state as u64), bits(qpn)));
            assert_eq!(path.completion_queue, bits(5));
        }
    }

    /// Protocol 2.1, 3.2, 3.7: PSN by the responses of the packet, MSN by the message, both modulo 2^24.
    #[test]
    fn an_executed_packet_advances_psn_and_msn() {
        let send = PacketClass { is_send: true, ..PacketClass::default() };
        let read = PacketClass { is_read: true, starts: true, ends: true, ..PacketClass::default() };
        // Class, ends, responses after the first, PSN before; PSN, MSN and READs after, which were 7 and 31.
        for (class, ends, responses, before, psn, msn, reads) in [
            (send, false, 0, 5, 6, 7, 31),
            (send, true, 0, 5, 6, 8, 31),
            (send, true, 0, 0xff_ffff, 0, 8, 31),
            (read, true, 0, 5, 6, 8, 0),
            (read, true, 2, 0xff_fffe, 1, 8, 0),
        ] {
            let (found, outcome) = executed(PacketClass { ends, ..class });
            let found = Findings { responses: bits(responses), ..found };
            let record = AdmitRecord { expected_psn: bits(before), msn: bits(7), ..touched() };
            let after = record_after(record, PacketToken::default(), found, outcome);
            assert_eq!((after.expected_psn, after.msn, after.reads), (bits(psn), bits(msn), bits(reads)));
        }
        let all = PacketClass { ends: true, ..send };
        let (found, outcome) = executed(all);
        let after = record_after(touched(), PacketToken::default(), found, outcome);
        assert_eq!(after.msn, bits(0), "the MSN wraps");
    }

    /// Protocol 3.4: what lies between the last packet of a SEND or WRITE and the expected PSN.
    #[test]
    fn psns_of_reads_are_counted_from_the_last_message_until_they_fill_the_window() {
        let send = PacketClass { is_send: true, ..PacketClass::default() };
        let write = PacketClass { is_write: true, ..PacketClass::default() };
        let read = PacketClass { is_read: true, ..PacketClass::default() };
        for (class, responses, executes, before, after) in [
            (read, 0, true, 0, 1),
            (read, 2, true, 1, 4),
            (read, 0, true, 0x7f_fffe, 0x7f_ffff),
            (read, 0, true, 0x7f_ffff, 0x80_0000),
            (read, 0x7f_ffff, true, 0x7f_ffff, 0xff_ffff),
            (read, 0x7f_ffff, true, 0x80_0000, 0x80_0000),
            (read, 0, true, 0xff_ffff, 0xff_ffff),
            (read, 2, false, 1, 1),
            (send, 0, true, 0xff_ffff, 0),
            (write, 0, true, 3, 0),
            (write, 0, false, 3, 3),
        ] {
            let follows_message = before < 1 << 23;
            let found =
                Findings { class, responses: bits(responses), follows_message, ..Findings::default() };
            let found = read_psns_after(bits(before), found, executes);
            assert_eq!(found, bits(after), "{class:?} {responses} {executes} {before:#x}");
        }
    }

    #[test]
    fn a_packet_that_is_not_executed_changes_neither_psn_nor_message() {
        let class = PacketClass { is_send: true, starts: true, ends: true, ..PacketClass::default() };
        let found = Findings { class, responses: bits(3), ..Findings::default() };
        let clean = AdmitRecord { nak_sent: false, failed: false, is_known: false, ..touched() };
        let drop = Outcome { decision: Decision::Drop, ..Outcome::default() };
        let reply = Outcome { decision: Decision::Reply, ..Outcome::default() };
        let refusal = Outcome { decision: Decision::Refuse, refuses: true, ..Outcome::default() };
        let known = AdmitRecord { is_known: true, ..clean };
        for (outcome, expected) in [
            (drop, clean),
            (Outcome { repeats: true, ..reply }, known),
            (Outcome { naks_gap: true, ..reply }, AdmitRecord { nak_sent: true, ..known }),
            (Outcome { is_not_ready: true, ..reply }, AdmitRecord { nak_sent: true, ..known }),
            (refusal, AdmitRecord { failed: true, message: Message::Nothing, ..known }),
        ] {
            assert_eq!(record_after(clean, PacketToken::default(), found, outcome), expected, "{outcome:?}");
        }
    }

    /// Protocol 3.2: a NAK that was sent is noted until the expected PSN advances.
    #[test]
    fn the_note_of_a_nak_is_cleared_by_an_executed_packet_only() {
        let (found, executed) = executed(PacketClass::default());
        let dropped = Outcome { decision: Decision::Drop, ..Outcome::default() };
        for (outcome, nak_sent) in [(executed, false), (dropped, true)] {
            let after = record_after(touched(), PacketToken::default(), found, outcome);
            assert_eq!(after.nak_sent, nak_sent, "{outcome:?}");
        }
    }

    #[test]
    fn the_message_is_that_of_the_last_executed_packet_until_its_end() {
        let middle = |is_send| PacketClass { is_send, is_write: !is_send, ..PacketClass::default() };
        let last = |is_send| PacketClass { ends: true, ..middle(is_send) };
        let flush = Outcome { flush: Flush { flushes: true, ..Flush::default() }, ..Outcome::default() };
        let (_, executes) = executed(middle(true));
        let refuses = Outcome { refuses: true, ..Outcome::default() };
        let nothing = Outcome::default();
        for (before, class, outcome, after) in [
            (Message::Nothing, middle(true), executes, Message::Send),
            (Message::Nothing, middle(false), executes, Message::Write),
            (Message::Send, middle(true), executes, Message::Send),
            (Message::Send, last(true), executes, Message::Nothing),
            (Message::Write, last(false), executes, Message::Nothing),
            (Message::Write, last(false), nothing, Message::Write),
            (Message::Send, middle(true), nothing, Message::Send),
            (Message::Write, middle(false), refuses, Message::Nothing),
            (Message::Send, middle(true), flush, Message::Nothing),
        ] {
            let found = Findings { class, ..Findings::default() };
            assert_eq!(message_after(before, found, outcome), after, "{before:?} {class:?}");
        }
    }

    #[test]
    fn the_address_of_a_write_moves_by_the_payload_of_each_executed_packet() {
        let transfer = Transfer {
            key: bits(0x207),
            address: bits(0xffff_ffff_ffff_f001),
            length: bits(5000),
            received: bits(4096),
        };
        let found = Findings { transfer, ..Findings::default() };
        let token = PacketToken { payload_bytes: bits(4096), ..PacketToken::default() };
        let before = touched().transfer;
        assert_eq!(transfer_after(before, token, found, false), before);
        // The address wraps at 2^64; the range was refused then (protocol 3.6 row 11).
        let moved = Transfer { address: bits(1), ..transfer };
        assert_eq!(transfer_after(before, token, found, true), moved);
    }

    #[test]
    fn receive_wqes_of_the_queue_pair_are_counted_and_wrap() {
        for (takes_own_wqe, after) in [(true, 0), (false, 0xffff)] {
            let outcome = Outcome { takes_own_wqe, ..Outcome::default() };
            let record = record_after(touched(), PacketToken::default(), Findings::default(), outcome);
            assert_eq!(record.receive_index, bits(after));
        }
    }
    const QUEUE_PAIRS: (u64, u64, u64) = (5, 7, 9);

    fn queue_pairs() -> QueuePairs {
        let (swept, set, decided) = QUEUE_PAIRS;
        QueuePairs { swept: bits(swept), set: bits(set), decided: bits(decided) }
    }

    #[test]
    fn a_sweep_forwards_for_its_own_queue_pair() {
        let (swept, _, decided) = QUEUE_PAIRS;
        for (step, expected) in [
            (Step::Compare, decided),
            (Step::Share, decided),
            (Step::Decide, decided),
            (Step::Look, swept),
            (Step::Flush, swept),
        ] {
            assert_eq!(forwarded_of(step, queue_pairs()), bits(expected), "{step:?}");
        }
    }

    #[test]
    fn a_record_has_one_writer_in_a_cycle() {
        let none = Setting::default();
        let clears = Setting { clears: true, ..none };
        let sets = Setting { applies: true, sets: true, ..none };
        let sets_srq = Setting { applies: true, sets_srq: true, ..none };
        let nothing = Outcome::default();
        let checked = Outcome { order: Order { is_checked: true, ..Order::default() }, ..nothing };
        let flush = Outcome { flush: Flush { flushes: true, ..Flush::default() }, ..nothing };
        let (swept, set, decided) = QUEUE_PAIRS;
        let set_record = AdmitRecord { msn: bits(1), ..touched() };
        let after = AdmitRecord { msn: bits(2), ..touched() };
        // Written record, if one is: its queue pair and data.
        for (setting, is_decided, outcome, expected) in [
            (none, false, nothing, None),
            (none, true, nothing, None),
            (none, false, checked, None),
            (none, true, checked, Some((decided, after))),
            (none, false, flush, Some((swept, after))),
            (clears, false, nothing, Some((swept, untouched()))),
            (sets, false, nothing, Some((set, set_record))),
            (sets_srq, false, nothing, None),
        ] {
            let write = record_write_of(setting, is_decided, outcome, queue_pairs(), set_record, after);
            let written = write.enable.then_some((write.queue_pair, write.data));
            let expected = expected.map(|(queue_pair, data)| (bits(queue_pair), data));
            assert_eq!(written, expected, "{setting:?} {is_decided} {outcome:?}");
        }
    }

    #[test]
    fn a_stop_is_noted_in_any_cycle_and_forgotten_at_a_restart() {
        let none = Setting::default();
        let clears = Setting { clears: true, ..none };
        let sets = Setting { applies: true, sets: true, ..none };
        let stop = Stop { queue_pair: bits(11), generation: bits(3) };
        let (swept, set, _) = QUEUE_PAIRS;
        for (setting, stops, restarts, expected) in [
            (none, false, false, None),
            (none, false, true, None),
            (none, true, false, Some((11, true))),
            (none, true, true, Some((11, true))),
            (clears, true, false, Some((11, true))),
            (clears, false, false, Some((swept, false))),
            (sets, false, false, None),
            (sets, false, true, Some((set, false))),
        ] {
            let write = stopped_write_of(setting, stop, stops, restarts, queue_pairs());
            let written = write.enable.then_some((write.queue_pair, write.data.has_failed));
            let expected = expected.map(|(queue_pair, has_failed)| (bits(queue_pair), has_failed));
            assert_eq!(written, expected, "{setting:?} {stops} {restarts}");
            assert_eq!(write.data.generation, bits(3));
        }
    }
}
