//! Rules of [`Acknowledge`](super::Acknowledge) about a turn, in which up to eight messages of a queue pair
//! leave the pool: the verdict on each, its CQE, and when the turn ends (protocol 2.11, 3.10).
use super::Step;
use super::record::{Peer, Progress, is_settled, sends};
use crate::messages::{
    BLOCK_BITS, Begun, Issued, OutstandingMessage, POOL_SLOT_BITS, PoolRead, Retired, RetiredWrite,
    WqeCompletion,
};
use crate::outstanding::is_shared_block;
use crate::vendor_error;
use rnic_blocks::logic::psn;
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::QpState;
use rnic_messages::complete::CqeToken;
use rnic_messages::setup::{NoticeKind, QpNotice};
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// What becomes of the oldest message.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(super) enum Verdict {
    /// It is not acknowledged.
    Stays,
    /// It is in error, and memory of the queue pair's messages may still be written or read.
    AwaitsLast,
    /// It leaves without a CQE.
    Silent,
    /// The peer has acknowledged it.
    Success,
    /// A message before it was in error.
    Flushed,
    /// It has a status of its own.
    Own,
    /// The peer refused it, or its payload could not be read.
    Failed,
}

/// A turn of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Turn {
    /// A LOCAL_INVALIDATE has left in this turn.
    pub has_invalidated: Bit,
    /// First block of the chain.
    pub head: Bits<BLOCK_BITS>,
    /// Messages of that block that have left, 0 to 8.
    pub head_count: Bits<4>,
    /// What has left.
    pub retired: Retired,
    /// Messages after the next one that may leave in this turn.
    pub left: Bits<3>,
    /// A block or a slot for READs is free again.
    pub frees: Bit,
    /// The oldest message stays.
    pub stays: Bit,
    /// It is in error, and stays until no memory of the queue pair's messages is written or read any more.
    pub awaits_last: Bit,
}

/// The oldest message, and what becomes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Judged {
    pub message: OutstandingMessage,
    pub verdict: Verdict,
    /// No other message leaves in this turn.
    pub is_last: Bit,
}

/// How a turn ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Closing {
    /// Messages are in the pool.
    pub has_more: Bit,
    /// Messages that were parsed before the state changed have not left.
    pub drains: Bit,
    /// The queue pair goes back to the ready queue.
    pub continues: Bit,
    /// The event of SQD is raised.
    pub is_drained: Bit,
    /// The cursor goes back to the oldest unacknowledged PSN.
    pub rewinds: Bit,
    /// What returns after the last response is sent, and the mark that returns after the last packet.
    pub sends_last: Bit,
    /// Nothing more is sent.
    pub is_closed: Bit,
}

/// The turn that begins.
#[kernel]
pub(super) fn begin_turn(progress: Progress, home: Bits<BLOCK_BITS>) -> Turn {
    Turn {
        has_invalidated: false,
        head: progress.head_from_home ^ home,
        head_count: progress.head_count,
        retired: progress.retired,
        left: bits::<3>(0) - 1,
        frees: false,
        stays: false,
        awaits_last: false,
    }
}

/// Says what follows when the record is there.
#[kernel]
pub(super) fn step_after_load(progress: Progress, issued: Issued) -> Step {
    if progress.retired.count == issued.count {
        Step::Store
    } else if progress.head_count.get_bit(3) {
        Step::Block
    } else {
        Step::Message
    }
}

/// Pool slot that is read in a step, for the next one.
#[kernel]
pub(super) fn pool_slot_of(
    step: Step,
    progress: Progress,
    home: Bits<BLOCK_BITS>,
    next_block: Bits<BLOCK_BITS>,
    turn: Turn,
) -> Bits<POOL_SLOT_BITS> {
    let next_count = turn.head_count + 1;
    match step {
        Step::Load => cat!(progress.head_from_home ^ home, progress.head_count.get_bits::<3>(0)),
        Step::Block => cat!(next_block, bits::<3>(0)),
        _ => cat!(turn.head, next_count.get_bits::<3>(0)),
    }
}

/// Reads of the pool in a step: the counts of the queue pair that comes next while none is served, else of the one that is.
#[kernel]
pub(super) fn pool_read_of(
    step: Step,
    next_queue_pair: Bits<QUEUE_PAIR_BITS>,
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    pool_slot: Bits<POOL_SLOT_BITS>,
) -> PoolRead {
    let is_idle = step == Step::Idle;
    PoolRead {
        queue_pair: select(is_idle, next_queue_pair, queue_pair),
        reads_issued: is_idle,
        reads_begun: is_idle || step == Step::AskHeld,
        pool_slot,
    }
}

/// Says whether a shared block is free after a turn has left it.
#[kernel]
pub(super) fn frees_shared(turn: Turn, next_block: Bits<BLOCK_BITS>) -> Bit {
    leaves_block(turn, next_block) && is_shared_block(turn.head)
}

/// Says whether a block returns; one that is used again follows itself.
#[kernel]
pub(super) fn leaves_block(turn: Turn, next_block: Bits<BLOCK_BITS>) -> Bit {
    next_block != turn.head
}

/// The turn after the end of a block.
#[kernel]
pub(super) fn after_block(turn: Turn, next_block: Bits<BLOCK_BITS>) -> Turn {
    let leaves = leaves_block(turn, next_block);
    let returns_home = leaves && !is_shared_block(turn.head);
    Turn {
        head: next_block,
        head_count: bits::<4>(0),
        frees: turn.frees || leaves,
        retired: Retired { home_lap: turn.retired.home_lap != returns_home, ..turn.retired },
        ..turn
    }
}

/// The turn after a step of it.
#[kernel]
pub(super) fn turn_after(
    step: Step,
    turn: Turn,
    progress: Progress,
    home: Bits<BLOCK_BITS>,
    next_block: Bits<BLOCK_BITS>,
    judged: Judged,
) -> Turn {
    match step {
        Step::Load => begin_turn(progress, home),
        Step::Block => after_block(turn, next_block),
        Step::Complete => after_message(turn, judged),
        _ => turn,
    }
}

/// Says what becomes of the oldest message.
#[kernel]
pub(super) fn verdict_of(
    message: OutstandingMessage,
    peer: Peer,
    progress: Progress,
    has_failed: Bit,
    is_denied: Bit,
) -> Verdict {
    let status = message.completion.status;
    let is_stale = message.generation != peer.generation || peer.state == QpState::Reset as u64;
    let is_failed = progress.will_fail && !psn::is_after(progress.failed_psn, message.last_psn);
    let is_acknowledged = psn::is_before(message.last_psn, progress.retired.una_psn);
    let has_own = status != CompletionStatus::Success as u64;
    let is_error = has_failed || has_own || is_denied || is_failed;
    if is_stale {
        Verdict::Silent
    } else if is_error && !is_settled(progress) {
        Verdict::AwaitsLast
    } else if has_failed || status == CompletionStatus::Flushed as u64 {
        Verdict::Flushed
    } else if has_own || is_denied {
        Verdict::Own
    } else if is_failed {
        Verdict::Failed
    } else if is_acknowledged && (!message.kind.is_local || progress.is_invalidated) {
        Verdict::Success
    } else {
        Verdict::Stays
    }
}

/// How a LOCAL_INVALIDATE completes that control has refused.
#[kernel]
pub(super) fn denied(completion: WqeCompletion) -> WqeCompletion {
    WqeCompletion {
        status: bits::<8>(CompletionStatus::LocalQueuePairOperation as u64),
        reason: bits::<8>(vendor_error::KEY),
        ..completion
    }
}

/// Judges the oldest message.
#[kernel]
pub(super) fn judge(
    message: OutstandingMessage,
    peer: Peer,
    progress: Progress,
    turn: Turn,
    issued: Issued,
) -> Judged {
    let is_denied = message.kind.is_local && progress.is_invalidated && progress.is_denied;
    let completion = select(is_denied, denied(message.completion), message.completion);
    Judged {
        message: OutstandingMessage { completion, ..message },
        verdict: verdict_of(message, peer, progress, turn.retired.has_failed, is_denied),
        is_last: turn.retired.count + 1 == issued.count || !turn.left.any(),
    }
}

/// Says whether a verdict is the first error of a queue pair.
#[kernel]
pub(super) fn is_first_error(verdict: Verdict) -> Bit {
    verdict == Verdict::Own || verdict == Verdict::Failed
}

/// The turn after a message. A queue pair that waits for a READ to complete is woken.
#[kernel]
pub(super) fn after_message(turn: Turn, judged: Judged) -> Turn {
    let verdict = judged.verdict;
    let leaves = leaves_pool(judged);
    let is_error = verdict == Verdict::Flushed || is_first_error(verdict);
    let opens = leaves && judged.message.is_open;
    // One that leaves in silence is of another life of the queue pair.
    let follows = leaves && verdict != Verdict::Silent;
    Turn {
        has_invalidated: turn.has_invalidated || (leaves && judged.message.kind.is_local),
        head_count: select(leaves, turn.head_count + 1, turn.head_count),
        retired: Retired {
            count: select(leaves, turn.retired.count + 1, turn.retired.count),
            reads: select(opens, turn.retired.reads + 1, turn.retired.reads),
            oldest_slot: select(follows, judged.message.next_slot, turn.retired.oldest_slot),
            oldest_psn: select(follows, judged.message.last_psn + 1, turn.retired.oldest_psn),
            has_failed: turn.retired.has_failed || is_error,
            ..turn.retired
        },
        left: select(leaves, turn.left - 1, turn.left),
        frees: turn.frees || opens,
        stays: !leaves,
        awaits_last: verdict == Verdict::AwaitsLast,
        ..turn
    }
}

/// Says whether a message that was judged leaves the pool.
#[kernel]
pub(super) fn leaves_pool(judged: Judged) -> Bit {
    judged.verdict != Verdict::Stays && judged.verdict != Verdict::AwaitsLast
}

/// Says what follows a message.
#[kernel]
pub(super) fn step_after_message(turn: Turn, judged: Judged) -> Step {
    let next_count = turn.head_count + 1;
    if !leaves_pool(judged) || judged.is_last {
        Step::Store
    } else if next_count.get_bit(3) {
        Step::Block
    } else {
        Step::Message
    }
}

/// Says whether a message writes a CQE; none reports one whose `wr_id` is not known (protocol 2.11).
#[kernel]
pub(super) fn writes_cqe(judged: Judged) -> Bit {
    let completion = judged.message.completion;
    let is_error = judged.verdict == Verdict::Flushed || is_first_error(judged.verdict);
    let is_success = judged.verdict == Verdict::Success;
    let reports = is_error || (is_success && completion.is_signalled);
    reports && completion.has_wr_id
}

/// Opcode of the CQE of a message.
#[kernel]
pub(super) fn opcode_of(message: OutstandingMessage) -> Bits<8> {
    if message.kind.is_local {
        bits::<8>(CompletionOpcode::LocalInvalidate as u64)
    } else if message.kind.is_compare {
        bits::<8>(CompletionOpcode::CompareSwap as u64)
    } else if message.kind.is_atomic {
        bits::<8>(CompletionOpcode::FetchAdd as u64)
    } else if message.kind.is_read {
        bits::<8>(CompletionOpcode::Read as u64)
    } else if message.kind.is_write {
        bits::<8>(CompletionOpcode::Write as u64)
    } else {
        bits::<8>(CompletionOpcode::Send as u64)
    }
}

/// The CQE of a message.
#[kernel]
pub(super) fn cqe_of(
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    judged: Judged,
    peer: Peer,
    progress: Progress,
) -> CqeToken {
    let message = judged.message;
    let has_length = judged.verdict == Verdict::Success && message.kind.is_read;
    CqeToken {
        completion_queue: peer.completion_queue,
        wr_id: message.completion.wr_id,
        length: select(has_length, message.length, bits::<32>(0)),
        immediate: bits::<32>(0),
        qp_number: peer.local_qp,
        queue_pair,
        generation: peer.generation,
        consumer_index: message.next_slot,
        opcode: opcode_of(message),
        status: match judged.verdict {
            Verdict::Flushed => bits::<8>(CompletionStatus::Flushed as u64),
            Verdict::Own => message.completion.status,
            Verdict::Failed => progress.failed_status,
            _ => bits::<8>(CompletionStatus::Success as u64),
        },
        vendor_error: match judged.verdict {
            Verdict::Own => message.completion.reason,
            Verdict::Failed => progress.failed_reason,
            _ => bits::<8>(0),
        },
        with_immediate: false,
        with_invalidate: false,
        is_last: false,
        solicited: false,
    }
}

/// Says whether a message in error has no CQE: its slot was never read, so its `wr_id` is not known.
#[kernel]
pub(super) fn is_unreportable(judged: Judged) -> Bit {
    let is_error = judged.verdict == Verdict::Flushed || is_first_error(judged.verdict);
    is_error && !judged.message.completion.has_wr_id
}

/// Says whether control is told of a message: it is the first in error, or is in error without a CQE.
#[kernel]
pub(super) fn tells_control(judged: Judged) -> Bit {
    is_first_error(judged.verdict) || is_unreportable(judged)
}

/// What control is told: of the event of SQD, or of an error, with an event if no CQE reports it.
#[kernel]
pub(super) fn notice_of(
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    peer: Peer,
    is_drained: Bit,
    judged: Judged,
) -> QpNotice {
    QpNotice {
        queue_pair,
        generation: peer.generation,
        kind: if is_drained { NoticeKind::Drained } else { NoticeKind::RequesterError },
        has_event: is_drained || is_unreportable(judged),
        event_code: if is_drained {
            bits::<8>(AsyncEvent::SendQueueDrained as u64)
        } else {
            bits::<8>(AsyncEvent::QueuePairFatal as u64)
        },
    }
}

/// Says how a turn ends.
#[kernel]
pub(super) fn closing_of(
    turn: Turn,
    progress: Progress,
    peer: Peer,
    issued: Issued,
    begun: Begun,
) -> Closing {
    let is_empty = begun.count == turn.retired.count;
    let has_more = turn.retired.count != issued.count;
    let drains = progress.is_draining && !is_empty;
    Closing {
        has_more,
        drains,
        continues: !turn.stays && (has_more || drains),
        is_drained: progress.reports_drained && is_empty && !turn.retired.has_failed,
        // After a wait the cursor goes on, also where nothing is left.
        rewinds: progress.wants_rewind
            && (turn.stays || (turn.retired.waits && !has_more))
            && !turn.retired.has_failed
            && !turn.awaits_last
            && sends(peer.state),
        sends_last: turn.awaits_last && !progress.is_closed,
        is_closed: turn.awaits_last || turn.retired.has_failed,
    }
}

/// What has left, when the turn has ended; a cursor that goes back begins an epoch.
#[kernel]
pub(super) fn retired_after(turn: Turn, progress: Progress, closing: Closing) -> Retired {
    Retired {
        epoch: select(closing.rewinds, turn.retired.epoch + 1, turn.retired.epoch),
        waits: select(closing.rewinds, progress.awaits_peer, turn.retired.waits),
        ..turn.retired
    }
}

/// What pool, segment and issue are told at the end of a turn.
#[kernel]
pub(super) fn retired_write_of(
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    peer: Peer,
    closing: Closing,
    retired: Retired,
    valid: Bit,
) -> RetiredWrite {
    RetiredWrite { queue_pair, generation: peer.generation, is_closed: closing.is_closed, retired, valid }
}

/// Says what follows a turn: wqe_parse may have something to send that waits for what is free now.
#[kernel]
pub(super) fn step_after_store(turn: Turn, closing: Closing) -> Step {
    if turn.frees || !closing.has_more || closing.rewinds { Step::AskHeld } else { Step::Idle }
}

/// Says what follows a step; after the last one of an input, and while nothing is chosen, the block is idle.
#[kernel]
pub(super) fn step_after(
    step: Step,
    progress: Progress,
    issued: Issued,
    turn: Turn,
    oldest: Judged,
    closing: Closing,
) -> Step {
    match step {
        Step::Failure => Step::Lost,
        Step::Timeout => Step::Expired,
        Step::Check => Step::Response,
        Step::Load => step_after_load(progress, issued),
        Step::Block => Step::Message,
        Step::Message => Step::Complete,
        Step::Complete => step_after_message(turn, oldest),
        Step::Store => step_after_store(turn, closing),
        _ => Step::Idle,
    }
}

/// Record after a turn.
#[kernel]
pub(super) fn after_turn(
    progress: Progress,
    turn: Turn,
    closing: Closing,
    home: Bits<BLOCK_BITS>,
) -> Progress {
    Progress {
        is_invalidated: progress.is_invalidated && !turn.has_invalidated,
        head_from_home: turn.head ^ home,
        head_count: turn.head_count,
        retired: retired_after(turn, progress, closing),
        wants_rewind: progress.wants_rewind && closing.has_more && !closing.rewinds,
        // Where all is acknowledged, and nothing was told to wait, there is nothing to wait for.
        awaits_peer: progress.awaits_peer && (closing.has_more || turn.retired.waits),
        is_queued: closing.continues,
        is_draining: closing.drains && (!turn.stays || turn.awaits_last),
        reports_drained: progress.reports_drained && !closing.is_drained,
        awaits_last: progress.awaits_last || closing.sends_last,
        awaits_mark: progress.awaits_mark || closing.sends_last,
        is_closed: progress.is_closed || closing.sends_last,
        ..progress
    }
}

#[cfg(test)]
mod tests;
