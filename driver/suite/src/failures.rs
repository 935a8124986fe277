//! Failures of requests: completions with an error, asynchronous events, and flushes.

use crate::cards::{Cards, End, Pair, PairOptions, next, same};
use anyhow::{Context, Result, ensure};
use rnic_driver::{ConnectOptions, RemoteMemory, RemoteRights, SendOptions, SendRequest};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;

pub(crate) fn remote_access(cards: &Cards) -> Result<()> {
    let both = cards.open_both()?;
    for attempt in ["another key", "behind the end", "without the right"] {
        let mut pair = Pair::of(both.clone(), &PairOptions::default())?;
        let rights = if attempt == "without the right" { RemoteRights::NONE } else { RemoteRights::ALL };
        let target = pair.ends[1].domain.share(64, rights)?;
        let remote = match attempt {
            "another key" => RemoteMemory { key: target.remote().key ^ 1, ..target.remote() },
            "behind the end" => RemoteMemory { address: target.remote().address + 60, ..target.remote() },
            _ => target.remote(),
        };
        let context = || format!("a WRITE with {attempt}");
        pair.receive(1, 9, 64).with_context(context)?;
        pair.post(0, SendRequest::write(1, remote).inline(b"12345678").signalled())?;
        pair.post(0, SendRequest::write(2, target.remote()).inline(b"12345678").signalled())?;
        pair.failure(0, 1, CompletionStatus::RemoteAccess).with_context(context)?;
        pair.failure(0, 2, CompletionStatus::Flushed).with_context(context)?;
        pair.failure(1, 9, CompletionStatus::Flushed).with_context(context)?;
        let End { queue_pair, card, .. } = &pair.ends[1];
        card.event(AsyncEvent::QueuePairAccessError, queue_pair.number()).with_context(context)?;
        ensure!(queue_pair.has_failed()?, "{}: the queue pair goes on", context());
        let mut found = [0; 64];
        target.read(0, &mut found)?;
        same(&context(), &found, &[0; 64])?;
        card.device.check()?;
    }
    Ok(())
}

pub(crate) fn receiver_not_ready(cards: &Cards) -> Result<()> {
    // The shortest delay of the peer, 10 us, and one retry.
    let send = SendOptions { rnr_retry: 1, ..SendOptions::default() };
    let connect = ConnectOptions { min_rnr_timer: 1, send, ..ConnectOptions::default() };
    let mut pair = Pair::with(cards, &PairOptions { connect, ..PairOptions::default() })?;
    let before = pair.ends[1].card.device.counters()?;
    pair.post(0, SendRequest::send(1).inline(b"nobody waits").signalled())?;
    pair.failure(0, 1, CompletionStatus::RnrRetryExceeded)?;
    let count = pair.ends[1].card.counted(&before, "nak_rnr_sent")?;
    ensure!(count == 2, "{count} RNR NAKs answered a message and its retry");
    Ok(())
}

pub(crate) fn too_long(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    pair.receive(1, 1, 10)?;
    pair.post(0, SendRequest::send(2).inline(b"eleven byte").signalled())?;
    pair.failure(1, 1, CompletionStatus::LocalLength)?;
    pair.failure(0, 2, CompletionStatus::RemoteInvalidRequest)
}

pub(crate) fn no_peer(cards: &Cards) -> Result<()> {
    let both = cards.open_both()?;
    // 8 us, and one retry.
    let send = SendOptions { timeout: 1, retry_count: 1, ..SendOptions::default() };
    let connect = ConnectOptions { send, ..ConnectOptions::default() };
    let mut lost =
        Pair::of(both.clone(), &PairOptions { connect, stray: 0x40_0000, ..PairOptions::default() })?;
    let mut other = Pair::of(both, &PairOptions::default())?;
    let before = lost.ends[1].card.device.counters()?;
    lost.post(0, SendRequest::send(1).inline(b"is anybody there").signalled())?;
    lost.failure(0, 1, CompletionStatus::RetryExceeded)?;
    let count = lost.ends[1].card.counted(&before, "unknown_qp")?;
    ensure!(count == 2, "{count} packets came for an unknown queue pair instead of 2");
    other.receive(1, 2, 16)?;
    other.post(0, SendRequest::send(3).inline(b"beside").signalled())?;
    same("a message beside it", &other.success(1)?.message(), b"beside")?;
    other.success(0)?;
    Ok(())
}

pub(crate) fn flush(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    for wr_id in 0..20 {
        pair.receive(0, wr_id, 64)?;
    }
    let Pair { ends: [first, _second] } = pair;
    let End { queue_pair, completions, card, .. } = first;
    let failed = queue_pair.fail()?;
    for wr_id in 0..20 {
        let done = next(&completions, &card)?;
        ensure!(
            (done.wr_id, done.status) == (wr_id, CompletionStatus::Flushed),
            "receive {} completes with {} instead of {wr_id} flushed",
            done.wr_id,
            done.status.name()
        );
    }
    ensure!(failed.in_flight() == (0, 0), "{:?} requests are left", failed.in_flight());
    // Reset returns nothing a second time.
    failed.reset()?;
    ensure!(completions.poll_one()?.is_none(), "a receive completes twice");
    Ok(())
}
