//! The spaces of the model that are explored, and the runs that are chosen from them.
use rnic_protocol::{Cover, Fault, Kind, Message, Plan, PsnSpace, Settings, Side, Timer, Trace};

/// Mistakes of the model that show in frames or completions, and the side that makes them.
pub(crate) const FAULTS: [(Fault, Side); 20] = [
    (Fault::NakForEachPacket, Side::Responder),
    (Fault::AtomicAgain, Side::Responder),
    (Fault::AtomicFromMemory, Side::Responder),
    (Fault::GapAccepted, Side::Responder),
    (Fault::GapAcknowledged, Side::Responder),
    (Fault::ReplayFromFirst, Side::Responder),
    (Fault::AtomicNotSaved, Side::Responder),
    (Fault::DuplicateAcksRead, Side::Responder),
    (Fault::AckCompletesRead, Side::Requester),
    (Fault::ReadGapAccepted, Side::Requester),
    (Fault::RestartFromFirst, Side::Requester),
    (Fault::FirstAgainRefused, Side::Requester),
    (Fault::StaleAccepted, Side::Requester),
    (Fault::RetriesNotReloaded, Side::Requester),
    (Fault::RetriesNotCounted, Side::Requester),
    (Fault::SlotsIgnored, Side::Requester),
    (Fault::CompletesWhenSent, Side::Requester),
    (Fault::RnrWaitIgnored, Side::Requester),
    (Fault::RnrNotCounted, Side::Requester),
    (Fault::RnrTakesRetry, Side::Requester),
];

/// A wire that keeps order, except for so many faults of each kind, and a timer that fires at any time. PSNs have 4 bits, and the
/// highest one lies in the plan.
fn wire(losses: u8, duplicates: u8, reorders: u8, messages: &[(Kind, u8)]) -> Settings {
    let messages = messages.iter().map(|&(kind, packets)| Message::new(kind, packets)).collect();
    Settings {
        space: PsnSpace { bits: 4 },
        window: 8,
        capacity: 16,
        losses,
        duplicates,
        reorders: Some(reorders),
        retries: 1,
        timer: Timer::Early,
        // The implementation under test is not held back either.
        sends_at_once: true,
        ..Settings::new(Plan { first: 14, messages })
    }
}

/// The message of this number is refused, from its packet `packet` on.
fn refused(message: usize, packet: u8, mut settings: Settings) -> Settings {
    settings.plan.messages[message] = settings.plan.messages[message].refused_from(packet);
    settings
}

fn is_large() -> bool {
    std::env::var("RNIC_PROTOCOL").is_ok_and(|value| value == "large")
}

/// Distance of the runs that a card of a width plays.
pub(crate) fn step(width_bits: u32) -> usize {
    if width_bits == 64 || is_large() { 1 } else { 3 }
}

/// Spaces for a role of the implementation under test, small ones first.
pub(crate) fn spaces(role: Side, fault: Option<Fault>) -> Vec<Settings> {
    use Kind::{Atomic, Read, Send, Write, WriteImm};
    let more = u8::from(is_large());
    let worked = [(Write, 3), (Read, 3), (Send, 1), (Atomic, 1)];
    let mut spaces = vec![
        refused(0, 0, wire(1, 0, 0, &[(Write, 2), (Send, 1)])),
        refused(1, 0, wire(0, 1, 0, &[(Write, 1), (Read, 2), (Send, 1)])),
        refused(1, 0, wire(0, 0, 1, &[(Send, 1), (Atomic, 1), (Write, 1)])),
        Settings { slots: 1, ..wire(1, 0, 1, &[(Read, 2), (Atomic, 1), (Read, 1)]) },
        Settings { receives: 0, ..wire(1, 0, more, &[(WriteImm, 2), (Send, 1)]) },
        wire(1, more, 1, &[(Atomic, 1), (Send, 1), (Atomic, 1)]),
        Settings { timer: Timer::Patient, ..wire(1, more, 1, &worked) },
        wire(0, 1, more, &[(Read, 3), (Send, 1)]),
        wire(1, more, 1, &[(Write, 3), (Send, 2)]),
        wire(0, 1, 1, &[(Write, 2), (Send, 2)]),
        wire(1, more, 1, &[(Read, 3), (Send, 1)]),
        wire(0, 1, 1, &[(Atomic, 1), (Send, 1), (Atomic, 1)]),
    ];
    if role == Side::Requester {
        // What the responder may choose, or what no peer can make it do at a certain packet.
        spaces.push(Settings { replays_go_on: true, ..wire(1, 0, 1, &[(Read, 4), (Send, 1)]) });
        spaces.push(refused(1, 1, wire(0, 0, 1, &[(Write, 1), (Read, 3), (Send, 1)])));
    }
    for space in &mut spaces {
        space.fault = fault;
    }
    spaces
}

/// Runs for a role of the reference endpoint.
pub(crate) fn of_endpoint(role: Side) -> Cover {
    Cover::of(&spaces(role, None))
}

/// Runs for a role of the card. Where the protocol leaves a choice, another RNR NAK is no news while it waits after one (2.7), and it
/// keeps the last 16 READs and atomics, however many may be outstanding (3.5).
pub(crate) fn of_card(role: Side) -> Cover {
    let as_the_card = |space: Settings| Settings { waits_once: true, keeps_more: 16 - space.slots, ..space };
    Cover::of(&spaces(role, None).into_iter().map(as_the_card).collect::<Vec<_>>())
}

pub(crate) fn summary(cover: &Cover) -> String {
    let frames: usize = cover.traces.iter().map(|trace| trace.frames.len()).sum();
    let timeouts: usize = cover.traces.iter().map(|trace| trace.timeouts.len()).sum();
    let Cover { states, decisions, traces } = cover;
    format!(
        "{} runs, {frames} frames, {timeouts} timeouts, for {decisions} decisions in {states} states",
        traces.len()
    )
}

/// A run, one frame in a line.
pub(crate) fn described(trace: &Trace, role: Side, number: usize) -> String {
    let mut lines = format!("run {number} of the {role:?}, {:?}\n", trace.messages);
    for fate in &trace.frames {
        lines += &format!("{:3} {} arrives {:?}\n", fate.sent, fate.frame, fate.arrived);
    }
    let Trace { timeouts, rnr_waits, receives, completions, .. } = trace;
    lines
        + &format!(
            "timeouts {timeouts:?}, RNR waits end {rnr_waits:?}, receives {receives:?}, {completions:?}"
        )
}
