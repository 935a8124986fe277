//! Rules of [`Resolve`](super::Resolve): the outcome of a packet, and its status, syndrome and completion
//! (protocol 3.6, 3.7).
use crate::messages::{Admitted, Decision, ReceiveWqeFault, ResolveCounts};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::syndrome::{NakCode, Syndrome};

const NAK_INVALID: u64 = Syndrome::Nak(NakCode::InvalidRequest).emit() as u64;
const NAK_ACCESS: u64 = Syndrome::Nak(NakCode::RemoteAccessError).emit() as u64;
const NAK_OPERATIONAL: u64 = Syndrome::Nak(NakCode::RemoteOperationalError).emit() as u64;

/// Outcome of the earlier packets of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Verdict {
    /// One of them has failed.
    pub failed: Bit,
    /// A SEND holds a receive WQE: it has not ended, and all its packets so far were executed.
    pub holds: Bit,
}

/// What is known of a packet from its decision, its receive WQE and the packets before it. At most one of `is_late`,
/// `is_invalid`, `is_broken` and `is_good` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Judgement {
    /// Outcome of the earlier packets of its generation.
    pub before: Verdict,
    /// As in [`Outcome`].
    pub is_stale: Bit,
    /// As in [`Outcome`].
    pub is_late: Bit,
    /// As in [`Outcome`].
    pub is_invalid: Bit,
    /// As in [`Outcome`].
    pub is_broken: Bit,
    /// It is executed, unless the memory or the key that it names forbids it.
    pub is_good: Bit,
}

/// Outcome of a packet. At most one of `is_late`, `is_invalid`, `is_broken`, `is_kept_out` and `is_done` is
/// set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Outcome {
    /// Its queue pair was restarted before its receive WQE arrived; the packet is dropped.
    pub is_stale: Bit,
    /// A packet before it has failed; it is dropped, and its receive WQE is flushed.
    pub is_late: Bit,
    /// Admission has refused it.
    pub is_invalid: Bit,
    /// Its receive WQE is unusable.
    pub is_broken: Bit,
    /// The memory or the key that it names is not accessible.
    pub is_kept_out: Bit,
    /// Of `is_kept_out`: by a local key of its receive WQE, not by a key that the packet carries.
    pub is_local: Bit,
    /// Nothing forbids it, but for the key that it invalidates.
    pub may_be_done: Bit,
    /// It is executed.
    pub is_done: Bit,
    /// It is the first of its queue pair that fails.
    pub fails: Bit,
}

/// Gives the outcome of the earlier packets of the same generation of the queue pair.
#[kernel]
pub(super) fn verdict_before(packet: Admitted, found: Verdict) -> Verdict {
    Verdict {
        failed: found.failed && !packet.starts_generation,
        holds: found.holds && !packet.starts_generation,
    }
}

/// Judges a packet before its access answers are there.
#[kernel]
pub(super) fn judgement_of(packet: Admitted, fault: ReceiveWqeFault, before: Verdict) -> Judgement {
    // The receive WQE of its message never arrived.
    let is_orphan = packet.uses_held && !before.holds && !before.failed && packet.decision != Decision::Flush;
    let is_stale = fault == ReceiveWqeFault::Stale || is_orphan;
    let is_packet = (packet.decision == Decision::Execute
        || packet.decision == Decision::Reply
        || packet.decision == Decision::Refuse)
        && !is_stale;
    let is_tried = packet.decision == Decision::Execute && !before.failed && !is_stale;
    let is_good = fault == ReceiveWqeFault::Good;
    Judgement {
        before,
        is_stale,
        is_late: is_packet && before.failed,
        is_invalid: packet.decision == Decision::Refuse && !before.failed && !is_stale,
        is_broken: is_tried && !is_good,
        is_good: is_tried && is_good,
    }
}

/// Decides what happens to a packet. `refused` says that memory which it names is not accessible, `denied` that
/// the key which it invalidates must not be invalidated.
#[kernel]
pub(super) fn outcome_of(packet: Admitted, judged: Judgement, refused: Bit, denied: Bit) -> Outcome {
    let may_be_done = judged.is_good && !refused;
    let is_kept_out = judged.is_good && (refused || denied);
    Outcome {
        is_stale: judged.is_stale,
        is_late: judged.is_late,
        is_invalid: judged.is_invalid,
        is_broken: judged.is_broken,
        is_kept_out,
        is_local: packet.is_send && !denied,
        may_be_done,
        is_done: may_be_done && !denied,
        fails: judged.is_invalid || judged.is_broken || is_kept_out,
    }
}

/// Gives the AETH syndrome of the reply.
#[kernel]
pub(super) fn syndrome_of(packet: Admitted, fault: ReceiveWqeFault, outcome: Outcome) -> Bits<8> {
    if outcome.is_broken {
        select(fault == ReceiveWqeFault::TooShort, bits::<8>(NAK_INVALID), bits::<8>(NAK_OPERATIONAL))
    } else if outcome.is_kept_out {
        select(outcome.is_local, bits::<8>(NAK_OPERATIONAL), bits::<8>(NAK_ACCESS))
    } else {
        packet.syndrome
    }
}

/// Gives the completion status of the receive WQE, if the packet completes one.
#[kernel]
pub(super) fn status_of(packet: Admitted, fault: ReceiveWqeFault, outcome: Outcome) -> Bits<8> {
    if outcome.is_late || packet.decision == Decision::Flush {
        bits::<8>(CompletionStatus::Flushed as u64)
    } else if outcome.is_invalid {
        bits::<8>(CompletionStatus::RemoteInvalidRequest as u64)
    } else if fault == ReceiveWqeFault::TooShort {
        bits::<8>(CompletionStatus::LocalLength as u64)
    } else if fault == ReceiveWqeFault::Malformed {
        bits::<8>(CompletionStatus::LocalQueuePairOperation as u64)
    } else if outcome.is_kept_out {
        select(
            outcome.is_local,
            bits::<8>(CompletionStatus::LocalProtection as u64),
            bits::<8>(CompletionStatus::RemoteAccess as u64),
        )
    } else {
        bits::<8>(CompletionStatus::Success as u64)
    }
}

/// Decides whether a CQE is written, or the last WQE is reported. The `wr_id` of an unreadable WQE is not
/// known.
#[kernel]
pub(super) fn has_completion(
    packet: Admitted,
    fault: ReceiveWqeFault,
    before: Verdict,
    outcome: Outcome,
) -> Bit {
    let has_wqe =
        (packet.takes_wqe && fault != ReceiveWqeFault::Unreadable) || (packet.uses_held && before.holds);
    packet.is_last_wqe || (has_wqe && !outcome.is_stale && (packet.ends || !outcome.is_done))
}

/// Decides whether the peer gets a reply.
#[kernel]
pub(super) fn has_reply(packet: Admitted, before: Verdict, outcome: Outcome) -> Bit {
    let only_replies = packet.decision == Decision::Reply && !before.failed;
    outcome.fails || ((outcome.is_done || only_replies) && packet.has_reply)
}

/// Says whether the READ responder gets a duplicate READ or atomic; then the packet has a reply, too.
#[kernel]
pub(super) fn asks_again(packet: Admitted, before: Verdict) -> Bit {
    packet.is_again && packet.decision == Decision::Reply && !before.failed
}

/// Gives the MSN of the reply: admission has counted the message, but one that fails does not count
/// (protocol 3.7).
#[kernel]
pub(super) fn reply_msn(packet: Admitted, outcome: Outcome) -> Bits<24> {
    let was_counted = packet.decision == Decision::Execute && packet.ends && outcome.fails;
    select(was_counted, packet.msn - 1, packet.msn)
}

/// Gives the outcome of the packets up to this one. A packet that only gets a reply leaves its message as it
/// is.
#[kernel]
pub(super) fn verdict_after(packet: Admitted, before: Verdict, outcome: Outcome) -> Verdict {
    let only_replies = packet.decision == Decision::Reply;
    Verdict {
        failed: before.failed || outcome.fails,
        holds: select(only_replies, before.holds, outcome.is_done && packet.is_send && !packet.ends),
    }
}

/// Gives the counters that a packet increments in the cycle in which it is finished.
#[kernel]
pub(super) fn counts_of(is_finished: Bit, fault: ReceiveWqeFault, outcome: Outcome) -> ResolveCounts {
    ResolveCounts {
        requests_after_failure: is_finished && outcome.is_late,
        remote_protection: is_finished && outcome.is_kept_out && !outcome.is_local,
        local_protection: is_finished && outcome.is_kept_out && outcome.is_local,
        work_refused: is_finished && outcome.is_broken && fault == ReceiveWqeFault::Malformed,
        stale_dropped: is_finished && outcome.is_stale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Decision::{Drop, Execute, Flush, Refuse, Reply};
    use ReceiveWqeFault::{Good, Malformed, Stale, TooShort, Unreadable};

    const CLEAN: Verdict = Verdict { failed: false, holds: false };
    const FAILED: Verdict = Verdict { failed: true, holds: false };
    const HOLDS: Verdict = Verdict { failed: false, holds: true };

    fn packet(decision: Decision) -> Admitted {
        Admitted { decision, takes_wqe: true, is_send: true, ends: true, ..Admitted::default() }
    }

    fn outcome_after(
        packet: Admitted,
        fault: ReceiveWqeFault,
        before: Verdict,
        refused: bool,
        denied: bool,
    ) -> Outcome {
        outcome_of(packet, judgement_of(packet, fault, before), refused, denied)
    }

    /// The names of the flags that are set.
    fn flags(outcome: Outcome) -> Vec<&'static str> {
        [
            ("stale", outcome.is_stale),
            ("late", outcome.is_late),
            ("invalid", outcome.is_invalid),
            ("broken", outcome.is_broken),
            ("kept out", outcome.is_kept_out),
            ("done", outcome.is_done),
            ("fails", outcome.fails),
        ]
        .into_iter()
        .filter_map(|(name, is_set)| is_set.then_some(name))
        .collect()
    }

    #[test]
    fn a_packet_is_executed_only_if_nothing_forbids_it() {
        let rows: [(Decision, ReceiveWqeFault, Verdict, bool, bool, &[&str]); 18] = [
            (Execute, Good, CLEAN, false, false, &["done"]),
            (Execute, Good, CLEAN, true, false, &["kept out", "fails"]),
            (Execute, Good, CLEAN, false, true, &["kept out", "fails"]),
            (Execute, TooShort, CLEAN, false, false, &["broken", "fails"]),
            (Execute, Malformed, CLEAN, false, false, &["broken", "fails"]),
            (Execute, Unreadable, CLEAN, true, false, &["broken", "fails"]),
            (Execute, Stale, CLEAN, false, false, &["stale"]),
            (Execute, Stale, FAILED, false, false, &["stale"]),
            (Execute, Good, FAILED, false, false, &["late"]),
            (Execute, TooShort, FAILED, true, false, &["late"]),
            (Refuse, Good, CLEAN, false, false, &["invalid", "fails"]),
            (Refuse, Good, FAILED, false, false, &["late"]),
            (Reply, Good, CLEAN, false, false, &[]),
            (Reply, Good, FAILED, false, false, &["late"]),
            (Flush, Good, CLEAN, false, false, &[]),
            (Flush, Good, FAILED, false, false, &[]),
            (Drop, Good, CLEAN, false, false, &[]),
            (Drop, Good, FAILED, false, false, &[]),
        ];
        for (decision, fault, before, refused, denied, expected) in rows {
            let outcome = outcome_after(packet(decision), fault, before, refused, denied);
            assert_eq!(flags(outcome), expected, "{decision:?} {fault:?} {before:?} {refused} {denied}");
        }
    }

    #[test]
    fn a_packet_whose_message_lost_its_wqe_is_stale() {
        for (uses_held, before, decision, is_stale) in [
            (true, CLEAN, Execute, true),
            (true, HOLDS, Execute, false),
            (true, FAILED, Execute, false),
            (true, CLEAN, Flush, false),
            (false, CLEAN, Execute, false),
        ] {
            let packet = Admitted { uses_held, takes_wqe: false, ..packet(decision) };
            assert_eq!(outcome_after(packet, Good, before, false, false).is_stale, is_stale);
        }
    }

    #[test]
    fn the_first_packet_of_a_generation_starts_anew() {
        let first = Admitted { starts_generation: true, ..packet(Execute) };
        let found = Verdict { failed: true, holds: true };
        assert_eq!(verdict_before(first, found), CLEAN);
        assert_eq!(verdict_before(packet(Execute), found), found);
    }

    #[test]
    fn errors_have_the_status_and_syndrome_of_the_table() {
        // Row of protocol 3.6: is a SEND, fault, refused, denied; status, syndrome.
        use CompletionStatus as Status;
        for (is_send, fault, refused, denied, status, syndrome) in [
            (true, Good, false, false, Status::Success, 0x1f),
            (true, TooShort, false, false, Status::LocalLength, NAK_INVALID),
            (true, Malformed, false, false, Status::LocalQueuePairOperation, NAK_OPERATIONAL),
            (true, Good, true, false, Status::LocalProtection, NAK_OPERATIONAL),
            (false, Good, true, false, Status::RemoteAccess, NAK_ACCESS),
            (true, Good, false, true, Status::RemoteAccess, NAK_ACCESS),
        ] {
            let packet = Admitted { is_send, syndrome: bits(0x1f), ..packet(Execute) };
            let outcome = outcome_after(packet, fault, CLEAN, refused, denied);
            assert_eq!(status_of(packet, fault, outcome), bits(status as u64));
            assert_eq!(syndrome_of(packet, fault, outcome), bits(syndrome));
        }
        let refused = Admitted { syndrome: bits(NAK_INVALID), ..packet(Refuse) };
        let outcome = outcome_after(refused, Good, CLEAN, false, false);
        assert_eq!(status_of(refused, Good, outcome), bits(Status::RemoteInvalidRequest as u64));
        assert_eq!(syndrome_of(refused, Good, outcome), bits(NAK_INVALID));
        for (decision, before) in [(Flush, CLEAN), (Execute, FAILED), (Refuse, FAILED)] {
            let outcome = outcome_after(packet(decision), Good, before, false, false);
            assert_eq!(status_of(packet(decision), Good, outcome), bits(Status::Flushed as u64));
        }
    }

    #[test]
    fn a_wqe_completes_once_with_the_end_of_its_message_or_its_failure() {
        let middle = Admitted { ends: false, ..packet(Execute) };
        let held = Admitted { takes_wqe: false, uses_held: true, ..packet(Execute) };
        let write = Admitted { takes_wqe: false, is_send: false, ..packet(Execute) };
        let last_wqe = Admitted { takes_wqe: false, is_last_wqe: true, ..packet(Drop) };
        for (packet, fault, before, refused, expected) in [
            (packet(Execute), Good, CLEAN, false, true),
            (packet(Execute), Unreadable, CLEAN, false, false),
            (packet(Execute), Stale, CLEAN, false, false),
            (packet(Flush), Good, FAILED, false, true),
            (middle, Good, CLEAN, false, false),
            (middle, Good, CLEAN, true, true),
            (middle, Good, FAILED, false, true),
            (held, Good, HOLDS, false, true),
            (held, Good, CLEAN, false, false),
            (held, Good, FAILED, false, false),
            (write, Good, CLEAN, false, false),
            (write, Good, CLEAN, true, false),
            (last_wqe, Good, FAILED, false, true),
        ] {
            let outcome = outcome_after(packet, fault, before, refused, false);
            assert_eq!(has_completion(packet, fault, before, outcome), expected, "{packet:?} {fault:?}");
        }
    }

    #[test]
    fn the_peer_gets_a_reply_to_failures_and_where_admission_asks_for_one() {
        for (decision, asked, before, refused, expected) in [
            (Execute, true, CLEAN, false, true),
            (Execute, false, CLEAN, false, false),
            (Execute, false, CLEAN, true, true),
            (Execute, true, FAILED, false, false),
            (Reply, true, CLEAN, false, true),
            (Reply, true, FAILED, false, false),
            (Refuse, false, CLEAN, false, true),
            (Refuse, true, FAILED, false, false),
            (Drop, true, CLEAN, false, false),
        ] {
            let packet = Admitted { has_reply: asked, ..packet(decision) };
            let outcome = outcome_after(packet, Good, before, refused, false);
            assert_eq!(has_reply(packet, before, outcome), expected, "{decision:?} {asked} {before:?}");
        }
    }

    #[test]
    fn a_message_that_fails_is_not_counted() {
        for (decision, ends, refused, msn) in [
            (Execute, true, false, 7),
            (Execute, true, true, 6),
            (Execute, false, true, 7),
            (Refuse, true, false, 7),
        ] {
            let packet = Admitted { ends, msn: bits(7), ..packet(decision) };
            let outcome = outcome_after(packet, Good, CLEAN, refused, false);
            assert_eq!(reply_msn(packet, outcome), bits(msn));
        }
        let zero = packet(Execute);
        let outcome = outcome_after(zero, Good, CLEAN, true, false);
        assert_eq!(reply_msn(zero, outcome), bits(0xff_ffff));
    }

    #[test]
    fn a_send_holds_its_wqe_until_it_ends_or_fails() {
        let middle = Admitted { ends: false, ..packet(Execute) };
        let gap = Admitted { ends: false, ..packet(Reply) };
        for (packet, before, refused, failed, holds) in [
            (middle, CLEAN, false, false, true),
            (middle, HOLDS, false, false, true),
            (middle, HOLDS, true, true, false),
            (packet(Execute), HOLDS, false, false, false),
            (Admitted { is_send: false, ..middle }, CLEAN, false, false, false),
            (gap, HOLDS, false, false, true),
            (gap, CLEAN, false, false, false),
            (packet(Flush), FAILED, false, true, false),
        ] {
            let outcome = outcome_after(packet, Good, before, refused, false);
            assert_eq!(verdict_after(packet, before, outcome), Verdict { failed, holds }, "{packet:?}");
        }
    }

    #[test]
    fn each_packet_moves_at_most_one_counter() {
        let write = Admitted { is_send: false, ..packet(Execute) };
        let none = ResolveCounts::default();
        for (packet, fault, before, refused, expected) in [
            (packet(Execute), Good, CLEAN, false, none),
            (packet(Execute), Good, FAILED, false, ResolveCounts { requests_after_failure: true, ..none }),
            (write, Good, CLEAN, true, ResolveCounts { remote_protection: true, ..none }),
            (packet(Execute), Good, CLEAN, true, ResolveCounts { local_protection: true, ..none }),
            (packet(Execute), Malformed, CLEAN, false, ResolveCounts { work_refused: true, ..none }),
            (packet(Execute), TooShort, CLEAN, false, none),
            (packet(Execute), Stale, CLEAN, false, ResolveCounts { stale_dropped: true, ..none }),
        ] {
            let outcome = outcome_after(packet, fault, before, refused, false);
            assert_eq!(counts_of(false, fault, outcome), none);
            assert_eq!(counts_of(true, fault, outcome), expected, "{packet:?} {fault:?}");
        }
    }
}
