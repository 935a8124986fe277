//! Card and reference endpoint on runs of the model of the protocol (protocol 2 and 3, design 7.1).
//!
//! The model is explored, and runs are chosen in which each side meets every decision that the explored space has. In a run one
//! side is the implementation under test, and the model is the other side and the wire: the run says which frame arrives, is lost,
//! doubled or overtaken, when the timer fires and when a receive is posted. What the implementation then sends and completes must
//! be what the model sends and completes.
//!
//! * [`runs`]: the spaces, and the runs that are chosen;
//! * [`mapping`]: frames of the model as packets, with PSNs of 24 bits;
//! * [`play`]: a run as turns of one side, and the comparison of each turn;
//! * [`reference`]: the reference endpoint as either side;
//! * [`card`]: the verilated card as either side.
//!
//! The card plays all runs at 64 bits, and at 512 bits, where it costs three times as much, every third. `RNIC_PROTOCOL=large`
//! explores larger spaces, from which more runs follow, and plays them all at both widths.
mod card;
#[expect(dead_code, reason = "commands are replaced and memory is unmapped in the tests of refusals")]
#[path = "../refusals/interpose.rs"]
mod interpose;
mod mapping;
mod play;
mod reference;
#[expect(dead_code, reason = "the tests of refusals need more of it")]
#[path = "../refusals/rig.rs"]
mod rig;
mod runs;
#[path = "../support/mod.rs"]
mod support;

use anyhow::{Context, Result, ensure};
use rnic_protocol::{Cover, Fault, Settings, Side, Trace};
use support::at_both_widths;

/// Roles of the implementation under test.
const ROLES: [Side; 2] = [Side::Requester, Side::Responder];

#[test]
fn the_reference_endpoint_does_what_the_model_does() -> Result<()> {
    for role in ROLES {
        let cover = runs::of_endpoint(role);
        let mut failures = Vec::new();
        for (number, trace) in cover.traces.iter().enumerate() {
            if let Err(error) = reference::run(trace, role) {
                failures.push(format!("{}\n{error:#}", runs::described(trace, role, number)));
            }
        }
        let count = failures.len();
        ensure!(failures.is_empty(), "{count} of {}:\n{}", runs::summary(&cover), failures.join("\n"));
        println!("{role:?}: {}", runs::summary(&cover));
    }
    Ok(())
}

/// Runs of a model with a mistake are not what the endpoint does: the comparison sees each of these mistakes.
#[test]
fn a_mistake_of_one_side_is_seen() -> Result<()> {
    for (fault, role) in runs::FAULTS {
        let differs = |trace: &Trace| reference::run(trace, role).is_err();
        let seen = runs::spaces(role, Some(fault)).into_iter().any(|space| {
            let right = Settings { fault: None, ..space.clone() };
            let is_clean = !Cover::of(&[right]).traces.iter().any(differs);
            is_clean && Cover::of(&[space]).traces.iter().any(differs)
        });
        ensure!(seen, "{fault:?} of the {role:?} is not seen");
    }
    Ok(())
}

fn the_card_does_what_the_model_does(width_bits: u32) -> Result<()> {
    for role in ROLES {
        let cover = runs::of_card(role);
        let mut player = card::Player::new(width_bits)?;
        let chosen = cover.traces.iter().enumerate().step_by(runs::step(width_bits));
        for (number, trace) in chosen {
            let played = card::run(&mut player, trace, role);
            player.rig.explained(played).with_context(|| runs::described(trace, role, number))?;
        }
        println!("{role:?}, {width_bits} bits: {}", runs::summary(&cover));
        player.rig.finish()?;
    }
    // One mistake shows that the card, too, is compared.
    let (fault, role) = (Fault::NakForEachPacket, Side::Responder);
    ensure!(runs::FAULTS.contains(&(fault, role)), "the endpoint is tried on it as well");
    let mut player = card::Player::new(width_bits)?;
    let mut traces = runs::spaces(role, Some(fault)).into_iter().flat_map(|space| Cover::of(&[space]).traces);
    let seen = traces.any(|trace| card::run(&mut player, &trace, role).is_err());
    ensure!(seen, "{fault:?} is not seen");
    Ok(())
}

at_both_widths! {
    the_card_does_what_the_model_does: the_card_does_what_the_model_does_at_64_bits, the_card_does_what_the_model_does_at_512_bits;
}
