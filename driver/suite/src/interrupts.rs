//! Interrupts: vectors, event queues, and waits.

use crate::cards::{Card, Cards, Pair, until};
use anyhow::{Result, ensure};
use rnic_driver::{EventQueueOptions, QueuePairOptions, RemoteRights, SendRequest};
use rnic_layout::doorbell::Arm;
use std::time::Duration;

/// Limit of a wait that must end by it, for hardware.
const SHORT: Duration = Duration::from_micros(200);

/// The same on the clock of a card.
fn short(card: &Card) -> Duration {
    SHORT.saturating_mul(card.function.time_scale().min(100))
}

/// A pair in which the completions of end 1 raise a vector.
fn pair_with_vector(cards: &[Card; 2], vector: u32) -> Result<Pair> {
    let mut pair = Pair::of(cards.clone(), &Default::default())?;
    let end = &mut pair.ends[1];
    let events = end.card.device.create_event_queue(&EventQueueOptions { vector, ..Default::default() })?;
    end.completions = end.card.completion_queue(&events)?;
    let queue_pair =
        end.domain.create_queue_pair(&end.completions, &end.completions, &QueuePairOptions::default())?;
    let options = QueuePairOptions::default();
    let first = pair.ends[0].domain.create_queue_pair(
        &pair.ends[0].completions,
        &pair.ends[0].completions,
        &options,
    )?;
    let queue_pairs = [first.initialize(RemoteRights::ALL)?, queue_pair.initialize(RemoteRights::ALL)?];
    let [first, second] = crate::cards::connect(queue_pairs, &Default::default())?;
    pair.ends[0].queue_pair = first;
    pair.ends[1].queue_pair = second;
    Ok(pair)
}

pub(crate) fn vectors(cards: &Cards) -> Result<()> {
    let both = cards.open_both()?;
    let card = &both[1];
    let vectors =
        card.function.interrupt_vectors().min(card.device.limits().geometry.interrupt_vectors.into());
    ensure!(vectors > 0, "the back end delivers no interrupts");
    for vector in [0, 1, vectors / 2, vectors - 1] {
        let mut pair = pair_with_vector(&both, vector)?;
        let before = card.device.counters()?;
        for round in 0..2 {
            pair.receive(1, round, 8)?;
            // A wait arms the event queue, and leaves it armed when nothing comes.
            let completions = &pair.ends[1].completions;
            let early = completions.events().wait(short(card))?;
            ensure!(early.is_none(), "vector {vector}: an event before there is a reason: {early:?}");
            card.function.take_interrupt(vector)?;
            completions.arm(Arm::Next);
            pair.post(0, SendRequest::send(round).inline(b"wake up").signalled())?;
            let is_raised = card.function.wait_interrupt(vector, card.function.now() + card.patience())?;
            ensure!(is_raised, "vector {vector}: no interrupt within {:?}", card.patience());
            ensure!(
                pair.ends[1].completions.is_signalled()?,
                "vector {vector}: an interrupt without its event"
            );
            // The completion is there before its event, and the event before its interrupt.
            let done = pair.ends[1].completions.poll_one()?;
            ensure!(
                done.is_some_and(|done| done.is_success()),
                "vector {vector}: no completion at the interrupt"
            );
            pair.success(0)?;
        }
        let count = card.counted(&before, "interrupts_raised")?;
        ensure!(count >= 2, "vector {vector}: {count} interrupts are counted");
    }
    Ok(())
}

pub(crate) fn solicited(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    for wr_id in 0..2 {
        pair.receive(1, wr_id, 8)?;
    }
    pair.ends[1].completions.arm(Arm::Solicited);
    pair.post(0, SendRequest::send(2).inline(b"quiet").signalled())?;
    pair.success(0)?;
    // Its completion is there, and raises nothing.
    let card = pair.ends[1].card.clone();
    let end = card.function.now() + SHORT;
    while card.function.now() < end {
        ensure!(!pair.ends[1].completions.is_signalled()?, "a message that is not solicited raised an event");
        card.function.idle();
    }
    pair.post(0, SendRequest::send(3).inline(b"loud").solicited().signalled())?;
    until(&card, "the event of a solicited message", || {
        Ok(pair.ends[1].completions.is_signalled()?.then_some(()))
    })?;
    ensure!(!pair.success(1)?.solicited && pair.success(1)?.solicited, "which message is solicited");
    Ok(())
}

pub(crate) fn waiting(cards: &Cards) -> Result<()> {
    let mut pair = Pair::open(cards)?;
    let card = pair.ends[1].card.clone();
    let limit = short(&card);
    let start = card.function.now();
    ensure!(!pair.ends[1].completions.wait(limit)?, "a wait for nothing found something");
    let waited = card.function.now() - start;
    ensure!(waited >= limit && waited < limit + card.patience(), "a wait of {limit:?} took {waited:?}");
    for round in 0..10 {
        pair.receive(1, round, 8)?;
        pair.post(0, SendRequest::send(round).inline(b"message").signalled())?;
        ensure!(
            pair.ends[1].completions.wait(card.patience())?,
            "the wait for message {round} found nothing"
        );
        ensure!(pair.success(1)?.wr_id == round && pair.success(0)?.wr_id == round);
    }
    Ok(())
}
