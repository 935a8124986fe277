//! Latency: one message at a time from host 0 to host 1 on otherwise idle cards, so that everything at their ports belongs to
//! this message.
//!
//! ```text
//!   host 0          card 0                                  card 1          host 1
//!     doorbell ───────▸│
//!                      │ wqe_requested ... wqe_fetched
//!                      │ payload_requested ... payload_fetched     (not for inline data)
//!                      │ first_byte_on_the_wire ─────────▸│ last_byte_received
//!                      │                                  │ icrc_proven
//!                      │                                  │ payload_handed_over ... payload_at_the_host
//!                      │ ack_back ◂───────────────────────│ cqe_handed_over ... cqe_at_the_host
//! ```
//!
//! Dots mark the time of the host. The remaining time is the card's own (design 8): from the doorbell to the first byte without
//! the host's reads, and from the last byte to the CQE without the host's writes.
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_machine::function::{SharedWorld, lock};
use rnic_machine::monitor::trail::Moment;
use rnic_machine::world::Domain;
use rnic_workloads::Cards;
use rnic_workloads::plan::{Kind, Message, Piece, Place, Plan, Receive, Source, Target, TargetMemory};
use rnic_workloads::run::{Machine, Outcome, Post};
use serde::Serialize;
use std::collections::BTreeMap;

/// Messages that are measured.
const MESSAGES: usize = 32;
/// Calls of `idle` before a message, so that nothing of the previous one is in flight.
const QUIET_IDLE: usize = 60;
/// Calls of `idle` that a message may take.
const IDLE_MAX: usize = 1_000;

/// Stages of a message, in order.
pub const STAGES: [&str; 13] = [
    "doorbell",
    "wqe_requested",
    "wqe_fetched",
    "payload_requested",
    "payload_fetched",
    "first_byte_on_the_wire",
    "last_byte_received",
    "icrc_proven",
    "payload_handed_over",
    "payload_at_the_host",
    "cqe_handed_over",
    "cqe_at_the_host",
    "ack_back",
];

/// Distribution of a time, in core clock cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// Shortest time.
    pub min: u64,
    /// Median of the times.
    pub median: u64,
    /// Longest time.
    pub max: u64,
}

impl Spread {
    fn of(mut values: Vec<u64>) -> Option<Spread> {
        values.sort_unstable();
        Some(Spread { min: *values.first()?, median: values[values.len() / 2], max: *values.last()? })
    }
}

/// A message to measure: a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Length, in bytes.
    pub bytes: usize,
    /// The payload is inline data of the WQE.
    pub is_inline: bool,
}

/// Latency of a message.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Time from the doorbell to each stage.
    pub stages: BTreeMap<String, Spread>,
    /// Time from the doorbell to the first byte at the MAC, without the time of the host's reads.
    pub card_doorbell_to_wire: Spread,
    /// Time from the last byte at the MAC to the CQE at the host boundary, without the time of the host's payload writes.
    pub card_wire_to_completion: Spread,
}

/// Sends messages one at a time from host 0 to host 1 over an idle pair of the plan.
///
/// # Errors
/// If a message does not arrive, or a stage is not seen.
pub fn measure(
    world: &SharedWorld,
    cards: &mut Cards,
    plan: &Plan,
    pair: usize,
    ping: &Ping,
) -> Result<Latency> {
    let length = ping.bytes;
    let mut random = plan.seed.stream(&format!("pings/{length}"));
    let mut stages: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let (mut to_wire, mut to_completion) = (Vec::new(), Vec::new());
    for index in 0..MESSAGES {
        let tag = u64::from(ping.is_inline) << 63 | (length as u64) << 32 | index as u64;
        let payload = plan.payload(0, pair, length + index, length);
        let mut piece = || vec![Piece { length, lane: random.random_range(0..64) }];
        let receive = Receive { pieces: piece(), is_mistaken: false };
        let source = if ping.is_inline { Source::Inline(length) } else { Source::Pieces(piece()) };
        let message = Message {
            kind: Kind::Send,
            source,
            immediate: [0; 4],
            target: Target { memory: TargetMemory::Window, place: Place::Offset(0), key_change: 0 },
            signalled: true,
            solicited: false,
            operand: 0,
            is_equal: false,
            fence: false,
            mistake: None,
        };
        ensure!(cards.post_receive(1, pair, tag, &receive)?, "there is no room for one receive");
        cards.confirm(1)?;
        for _ in 0..QUIET_IDLE {
            cards.idle()?;
        }
        (0..2).for_each(|card| lock(world).host_mut(card).trail_mut().start());
        let posts = [Post { wr_id: tag, message: &message, payload: &payload, compare: 0 }];
        ensure!(cards.post_sends(0, pair, &posts)? == 1, "there is no room for one message");
        let mut outcomes = Vec::new();
        for _ in 0..IDLE_MAX {
            cards.idle()?;
            cards.poll(0, &mut outcomes)?;
            cards.poll(1, &mut outcomes)?;
            if outcomes.len() == 2 {
                break;
            }
        }
        let stop = |card: usize| lock(world).host_mut(card).trail_mut().stop();
        let trails = [0, 1].map(stop);
        arrived(&outcomes, &payload)?;
        let period_ps = lock(world).card(0).period_ps(Domain::Core);
        let seen = times(&trails)?;
        for (stage, time_ps) in seen.stages {
            stages.entry(stage.to_string()).or_default().push(time_ps.div_ceil(period_ps));
        }
        to_wire.push(seen.to_wire_ps.div_ceil(period_ps));
        to_completion.push(seen.to_completion_ps.div_ceil(period_ps));
    }
    let spread = |values: Vec<u64>| Spread::of(values).context("there was a message");
    let stages = stages.into_iter().map(|(stage, values)| Ok((stage, spread(values)?)));
    Ok(Latency {
        stages: stages.collect::<Result<_>>()?,
        card_doorbell_to_wire: spread(to_wire)?,
        card_wire_to_completion: spread(to_completion)?,
    })
}

fn arrived(outcomes: &[Outcome], payload: &[u8]) -> Result<()> {
    ensure!(outcomes.len() == 2, "{} of two completions come", outcomes.len());
    for outcome in outcomes {
        ensure!(outcome.status == CompletionStatus::Success, "{outcome:?}");
        ensure!(!outcome.is_receive || outcome.contents.concat() == payload, "a byte differs");
    }
    Ok(())
}

/// Times of one message, in picoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Times {
    /// Time from the doorbell to each stage that was seen.
    stages: Vec<(&'static str, u64)>,
    /// The card's own time from the doorbell to the wire.
    to_wire_ps: u64,
    /// The card's own time from the wire to the CQE.
    to_completion_ps: u64,
}

/// Finds the stages of one message in the trails of the sender and of the receiver.
fn times(trails: &[Vec<(u64, Moment)>; 2]) -> Result<Times> {
    let [sender, receiver] = trails;
    let at = |trail: &[(u64, Moment)], from_ps: u64, to_ps: u64, wanted: Moment| -> Vec<u64> {
        let inside =
            |(time_ps, moment): &&(u64, Moment)| (from_ps..=to_ps).contains(time_ps) && *moment == wanted;
        trail.iter().filter(inside).map(|(time_ps, _)| *time_ps).collect()
    };
    let first = |trail: &[(u64, Moment)], from_ps: u64, wanted: Moment| {
        at(trail, from_ps, u64::MAX, wanted).first().copied()
    };
    let doorbell = first(sender, 0, Moment::SendDoorbell).context("no doorbell was seen")?;
    let asked = first(sender, doorbell, Moment::ReadAsked).context("no WQE was requested")?;
    let fetched = first(sender, asked, Moment::ReadAnswered).context("no WQE was fetched")?;
    let wire = first(sender, fetched, Moment::FrameBegins).context("no frame left")?;
    let payload_requested = at(sender, fetched, wire, Moment::ReadAsked).first().copied();
    let payload_fetched =
        payload_requested.and_then(|asked| at(sender, asked, wire, Moment::ReadAnswered).last().copied());
    let waited = payload_requested.zip(payload_fetched).map_or(0, |(asked, fetched)| fetched - asked);

    let received = first(receiver, wire, Moment::FrameReceived).context("no frame arrived")?;
    let accepted = first(receiver, received, Moment::FrameAccepted);
    let completion =
        first(receiver, received, Moment::CompletionVisible).context("no completion was written")?;
    let last = |moment: Moment| at(receiver, received, completion, moment).last().copied();
    let handed = last(Moment::PayloadHanded).context("no payload was handed over")?;
    let payload = last(Moment::PayloadVisible).context("no payload was written")?;
    let completion_handed = last(Moment::CompletionHanded).context("no completion was handed over")?;
    let done = at(receiver, payload, completion_handed, Moment::WriteDone).last().copied();
    let done = done.context("the completion came before its payload was written")?;
    let ack = first(sender, wire, Moment::FrameReceived).context("no acknowledgement arrived")?;
    let times = [
        Some(doorbell),
        Some(asked),
        Some(fetched),
        payload_requested,
        payload_fetched,
        Some(wire),
        Some(received),
        accepted,
        Some(handed),
        Some(payload),
        Some(completion_handed),
        Some(completion),
        Some(ack),
    ];
    let seen = STAGES.into_iter().zip(times).filter_map(|(stage, time)| Some((stage, time? - doorbell)));
    Ok(Times {
        stages: seen.collect(),
        to_wire_ps: wire - doorbell - (fetched - asked) - waited,
        to_completion_ps: (handed - received) + (completion_handed - done),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_counted_from_the_doorbell() -> Result<()> {
        use Moment::*;
        let sender = vec![
            (90, ReadAnswered),
            (100, SendDoorbell),
            (120, ReadAsked),
            (150, ReadAnswered),
            (156, ReadAsked),
            (157, ReadAsked),
            (170, ReadAnswered),
            (180, ReadAnswered),
            (200, FrameBegins),
            (390, FrameReceived),
        ];
        let mut receiver = vec![
            (50, CompletionVisible),
            (250, FrameReceived),
            (260, FrameAccepted),
            (270, PayloadHanded),
            (275, PayloadHanded),
            (300, PayloadVisible),
            (301, WriteDone),
            (310, PayloadVisible),
            (312, WriteDone),
            (320, CompletionHanded),
            (330, CompletionVisible),
            (335, WriteDone),
            (340, PayloadVisible),
        ];
        let expected = [0, 20, 50, 56, 80, 100, 150, 160, 175, 210, 220, 230, 290];
        let found = times(&[sender.clone(), receiver.clone()])?;
        assert!(found.stages.iter().map(|(_, time)| *time).eq(expected));
        // 20 to the first request, 6 to the second, 20 from the last answer; 25 to the payload, 8 to the completion.
        assert_eq!((found.to_wire_ps, found.to_completion_ps), (46, 33));
        receiver.remove(2);
        let inline = sender.iter().copied().filter(|(time, _)| !(151..=180).contains(time)).collect();
        let found = times(&[inline, receiver.clone()])?;
        let missing = ["payload_requested", "payload_fetched", "icrc_proven"];
        assert!(
            found
                .stages
                .iter()
                .map(|(stage, _)| *stage)
                .eq(STAGES.into_iter().filter(|stage| !missing.contains(stage)))
        );
        assert_eq!(found.to_wire_ps, 70);
        assert!(times(&[sender, Vec::new()]).unwrap_err().to_string().contains("no frame arrived"));
        Ok(())
    }

    #[test]
    fn a_spread_has_its_middle() {
        assert_eq!(Spread::of(vec![5, 1, 9]), Some(Spread { min: 1, median: 5, max: 9 }));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
