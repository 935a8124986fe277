//! Batches of mutated frames, requests and responses to requests of the card, and the comparison of the card with the reference
//! after each.
//!
//! For each frame, the reference must do what the table of protocol 8.3 requires of its mutation. After each batch, of card and
//! reference are the same: all responses, completions and events of each queue pair, all memory, and all counters that say what
//! became of a frame. A newer answer may take the place of an ACK, an RNR NAK or the NAK of a gap (protocol 3.8), so these are
//! compared if they are the last answer, and their counters with what the card has sent. Each frame has moved one of the counters
//! whose sum is the frames received. Then the bystander moves data at the wire's rate. Of every eighth batch, the frames are
//! minimum ones without a gap: the card may drop some for want of room, and nothing else may happen to any.
use crate::ground::{Ground, SIDES};
use crate::mutation::{Mutant, Required, mutate};
use crate::rig::{FREE, Moved, Rig};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand::seq::IteratorRandom;
use rand_chacha::ChaCha8Rng;
use rnic_endpoint::qp::Outcome;
use rnic_layout::registers::{COUNTERS, DROP_COUNTERS};
use rnic_layout::wire::DropReason;
use rnic_machine::world::CardOptions;
use rnic_stimulus::chance::Seed;
use std::collections::BTreeMap;
use std::fmt;

/// Frames of a batch.
const FRAMES: usize = 64;
/// Minimum frames of a burst.
const BURST: usize = 128;
/// Of so many batches, one is a burst.
const BURST_EVERY: u64 = 8;

/// Bytes of a frame that an error shows: all headers. The captures have the rest.
const SHOWN_BYTES: usize = 110;

/// What became of the frames of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) frames: u64,
    /// Their queue pair had not failed when they came.
    pub(crate) live: u64,
    executed: u64,
    refused: u64,
    duplicates: u64,
    /// Responses that the requester has taken.
    answered: u64,
    dropped: BTreeMap<&'static str, u64>,
    /// Queue pairs that were connected again after a failure.
    again: u64,
    batches: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { frames, live, executed, refused, duplicates, answered, dropped, again, batches } = self;
        write!(
            f,
            "{frames} frames in {batches} batches, {live} to a working queue pair: {executed} executed, \
             {refused} refused, {duplicates} duplicates, {answered} responses taken, dropped {dropped:?}; {again} queue pairs connected again"
        )
    }
}

/// A frame that was sent.
struct Sent {
    number: u64,
    side: usize,
    mutant: Mutant,
    outcome: Outcome,
}

/// A batch in the making.
struct Batch {
    sent: Vec<Sent>,
    /// The reference's counters before it.
    before: BTreeMap<&'static str, u64>,
    is_burst: bool,
}

/// Time after the last frame of a batch until the bystander begins.
const SETTLE_NS: u64 = 1000;

/// Counter of requests after a failure; `requests_after_failure` counts those that arrive while the failure is in progress.
const LATE: &str = "qp_not_ready";

impl Batch {
    fn new(ground: &Ground, is_burst: bool) -> Batch {
        let before = COUNTERS.iter().map(|counter| (counter.name, ground.count_of(counter.name))).collect();
        Batch { sent: Vec::new(), before, is_burst }
    }

    /// Gives a frame to card and reference, which must do what is required.
    fn send(
        &mut self,
        rig: &Rig,
        ground: &mut Ground,
        counts: &mut Counts,
        (side, mutant, meant): (usize, Mutant, Option<Outcome>),
    ) -> Result<()> {
        counts.live += u64::from(ground.is_live(side));
        let outcome = if mutant.is_damaged {
            rig.send_damaged(&mutant.bytes);
            Outcome::Dropped("mac_error")
        } else {
            if mutant.is_runt {
                rig.send_runt(&mutant.bytes);
            } else {
                rig.send(std::slice::from_ref(&mutant.bytes));
            }
            ground.tell(&mutant.bytes)?
        };
        let is_right = match mutant.required {
            Required::Ignored => meant.is_none_or(|meant| meant == outcome),
            Required::Dropped(names) => matches!(outcome, Outcome::Dropped(name) if names.contains(&name)),
            Required::Reference => true,
        };
        ensure!(
            is_right,
            "the reference does not what is required: frame {}, {outcome:?}, {mutant:?}",
            counts.frames
        );
        match outcome {
            Outcome::Executed => counts.executed += 1,
            Outcome::Refused => counts.refused += 1,
            Outcome::Duplicate => counts.duplicates += 1,
            Outcome::Answered => counts.answered += 1,
            Outcome::Dropped(name) => *counts.dropped.entry(name).or_default() += 1,
        }
        self.sent.push(Sent { number: counts.frames, side, mutant, outcome });
        counts.frames += 1;
        Ok(())
    }

    /// Bytes of its frames on the wire, with preamble, FCS and gap.
    fn wire_bytes(&self) -> u64 {
        self.sent.iter().map(|sent| sent.mutant.bytes.len().max(60) as u64 + 24).sum()
    }

    /// Counters that the frames must move, except for those that always move.
    fn expected(&self, ground: &Ground, passing: [(&'static str, u64); 2]) -> BTreeMap<&'static str, u64> {
        let mut expected = BTreeMap::new();
        for (name, before) in &self.before {
            *expected.entry(*name).or_default() += ground.count_of(name) - before;
        }
        let damaged = self.sent.iter().filter(|sent| sent.mutant.is_damaged).count() as u64;
        *expected.entry("mac_error").or_default() += damaged;
        let refused = expected["nak_access_sent"];
        *expected.entry("remote_protection").or_default() += refused;
        expected.extend(passing);
        without_lateness(expected)
    }

    /// Each frame has moved one counter, and it is the right one.
    fn check_counters(
        &self,
        ground: &Ground,
        moved: &Moved,
        others: (u64, u64),
        passing: [(&'static str, u64); 2],
    ) -> Result<()> {
        let received = self.sent.len() as u64 + others.0 + others.1;
        ensure!(moved.of("frames_received") == received, "{received} frames were sent: {moved:?}");
        let drops = COUNTERS[..DROP_COUNTERS].iter().map(|counter| moved.of(counter.name)).sum::<u64>();
        let passed = ["requests_received", "responses_received", "congestion_notifications_received"];
        let accounted = drops + passed.iter().map(|name| moved.of(name)).sum::<u64>();
        ensure!(accounted == received, "{accounted} of {received} frames are accounted for: {moved:?}");
        let mut found = without_lateness(moved.named());
        let mut expected = self.expected(ground, passing);
        if self.is_burst {
            // What was dropped for want of room would have moved one of these.
            let dropped: u64 =
                DropReason::WITHOUT_ROOM.iter().filter_map(|reason| found.remove(reason.name())).sum();
            let missing: u64 = expected
                .iter_mut()
                .map(|(name, count)| {
                    let less = count.saturating_sub(found.get(name).copied().unwrap_or_default());
                    *count -= less;
                    less
                })
                .sum();
            ensure!(missing == dropped, "{dropped} frames found no room, and {missing} are missing");
        }
        expected.retain(|_, count| *count != 0);
        ensure!(found == expected, "counters {found:?}, expected {expected:?}");
        Ok(())
    }

    /// The error of a batch: the numbers of its frames, and what was sent to a queue pair.
    fn failure(&self, rig: &Rig, seed: u64, side: Option<usize>, what: &str) -> anyhow::Error {
        let (Some(first), Some(last)) = (self.sent.first(), self.sent.last()) else {
            return anyhow::anyhow!("no frame was sent: {what}");
        };
        let mut text = format!(
            "frames {} to {} of seed {seed}; RNIC_HOSTILE_FRAMES={} ends with them: {what}",
            first.number,
            last.number,
            last.number + 1
        );
        for sent in self.sent.iter().filter(|sent| side.is_none_or(|side| side == sent.side)) {
            let Sent { number, side, mutant, outcome } = sent;
            let shown = mutant.bytes.len().min(SHOWN_BYTES);
            let bytes = hex::encode(&mutant.bytes[..shown]);
            text += &format!("\n  {number} to {side}: {}, {outcome:?}: {bytes}", mutant.name);
        }
        rig.world().failure(&text).into()
    }
}

/// The same with the counters of packets for a failed queue pair as one, and without those that always move.
fn without_lateness(mut counters: BTreeMap<&'static str, u64>) -> BTreeMap<&'static str, u64> {
    counters.retain(|name, _| !FREE.contains(name));
    if let Some(count) = counters.remove("requests_after_failure") {
        *counters.entry(LATE).or_default() += count;
    }
    counters.retain(|_, count| *count != 0);
    counters
}

/// Draws the frames of a batch.
fn draw(
    rig: &Rig,
    ground: &mut Ground,
    random: &mut ChaCha8Rng,
    counts: &mut Counts,
    batch: &mut Batch,
) -> Result<()> {
    let kept = ground.kept_numbers(rig);
    let failed: Vec<usize> = (0..SIDES).filter(|side| !ground.is_live(*side)).collect();
    for _ in 0..if batch.is_burst { BURST } else { FRAMES } {
        let live: Vec<usize> = (0..SIDES).filter(|side| ground.is_live(*side)).collect();
        if live.is_empty() {
            break;
        }
        let any = random.random_range(0..SIDES);
        let side = if live.contains(&any) { any } else { live[random.random_range(0..live.len())] };
        let (mutant, meant) = if batch.is_burst {
            let bytes = ground.idle_frame(random, side);
            let required = Required::Reference;
            (Mutant { bytes, is_damaged: false, name: "minimum".into(), required, is_runt: false }, None)
        } else if let Some(frame) = ground.response(random, side) {
            (mutate(random, &frame, &kept), Some(Outcome::Answered))
        } else {
            let (frame, is_valid) = ground.request(random, side);
            (mutate(random, &frame, &kept), is_valid.then_some(Outcome::Executed))
        };
        if ground.is_left_out(&mutant.bytes) {
            continue;
        }
        batch.send(rig, ground, counts, (side, mutant, meant))?;
        // What failed in an earlier batch is asked again. What has failed in this one is not: until its NAK has left, a queue pair
        // still counts gaps, answers duplicates and takes responses.
        let late = failed.iter().choose(random).copied();
        if let Some(side) = late.filter(|_| random.random_bool(0.1)) {
            let bytes = ground.late_frame(side);
            let (name, required) = ("after the failure".into(), Required::Dropped(&[LATE]));
            let mutant = Mutant { bytes, is_damaged: false, name, required, is_runt: false };
            batch.send(rig, ground, counts, (side, mutant, None))?;
        }
    }
    Ok(())
}

/// Sends a batch and compares.
fn round(
    rig: &mut Rig,
    ground: &mut Ground,
    random: &mut ChaCha8Rng,
    (seed, rate): (u64, u64),
    counts: &mut Counts,
) -> Result<()> {
    counts.again += ground.prepare(rig, random)?;
    rig.wait("the requests of the card", |rig| {
        ground.take(rig)?;
        Ok(ground.is_done().then_some(()))
    })?;
    rig.moved()?;
    counts.batches += 1;
    let mut batch = Batch::new(ground, counts.batches.is_multiple_of(BURST_EVERY));
    draw(rig, ground, random, counts, &mut batch)?;
    let wire_ns = batch.wire_bytes() * 8_000_000_000 / rate;
    rig.step_ns(wire_ns + SETTLE_NS)?;
    let awaited = rig.wait("what the reference does", |rig| {
        ground.take(rig)?;
        Ok(ground.is_done().then_some(()))
    });
    let others = ground.bystander.run(rig).context("the bystander");
    let taken = ground.take(rig);
    let passing =
        [("nak_sequence_sent", ground.heard(0x60..=0x60)), ("nak_rnr_sent", ground.heard(0x20..=0x3f))];
    let compared = ground.check();
    if let Err((side, what)) = compared {
        return Err(batch.failure(rig, seed, Some(side), &what));
    }
    let all = awaited.and(taken).and(others).and_then(|others| {
        let moved = rig.moved()?;
        batch.check_counters(ground, &moved, others, passing)
    });
    all.map_err(|error| batch.failure(rig, seed, None, &format!("{error:#}")))
}

/// Injects this many frames.
pub(crate) fn run(rig: &mut Rig, width_bits: u32, seed: u64, frames: u64) -> Result<Counts> {
    let mut random = Seed(seed).stream("hostile frames");
    let mut ground = Ground::new(rig, &mut random, width_bits)?;
    ground.bystander.run(rig).context("the bystander, before any attack")?;
    let rate = CardOptions::standard(width_bits).bits_per_second;
    let mut counts = Counts::default();
    while counts.frames < frames {
        round(rig, &mut ground, &mut random, (seed, rate), &mut counts)?;
    }
    Ok(counts)
}
