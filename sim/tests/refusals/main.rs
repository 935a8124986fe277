//! Every bad input to the whole generated card: what it is refused with, what is counted, and that other queues run on.
//!
//! * [`legal`]: traffic in both directions with the reference endpoint, which must agree, before anything is wrong;
//! * [`reads`]: the endpoint READs from the card, and a peer whose request behind READs is refused;
//! * [`atomics`]: the endpoint does atomics on the card's memory;
//! * [`own_reads`], [`own_atomics`]: the card READs from the endpoint and asks it for atomics, and a peer whose answers are wrong;
//! * [`elements`]: messages of the card from six places, receives of three, and keys of these that do not hold;
//! * [`frames`]: frames of a peer, requests and answers;
//! * [`software`]: doorbells and commands;
//! * [`pages`]: regions of lists of pages at any byte, and regions that change;
//! * [`faults`]: memory of the host that the card cannot reach.
//!
//! All of it at 64 and at 512 bits, from one code, under all monitors.
mod atomics;
mod elements;
mod faults;
mod frames;
mod interpose;
mod legal;
mod own_atomics;
mod own_reads;
mod pages;
mod reads;
mod rig;
mod software;
#[path = "../support/mod.rs"]
mod support;

use anyhow::{Context, Result};
use faults::Common;
use rig::Rig;
use support::at_both_widths;

fn agrees_with_the_endpoint(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 1)?;
    legal::traffic(&mut rig)?;
    elements::traffic(&mut rig)?;
    reads::traffic(&mut rig)?;
    own_reads::traffic(&mut rig)?;
    atomics::traffic(&mut rig)?;
    own_atomics::traffic(&mut rig)?;
    rig.finish()
}

fn wrong_frames_are_refused(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 2)?;
    frames::not_ready(&mut rig)?;
    let requests = frames::requests(&mut rig)?;
    assert!(requests > 220, "{requests}");
    reads::before_a_refusal(&mut rig)?;
    rig.finish()
}

fn wrong_answers_are_refused(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 3)?;
    let responses = frames::responses(&mut rig)?;
    assert!(responses > 60, "{responses}");
    own_reads::refused(&mut rig)?;
    own_atomics::refused(&mut rig)?;
    rig.finish()
}

fn wrong_doorbells_and_commands_are_refused(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 4)?;
    let doorbells = software::doorbells(&mut rig)?;
    software::overrun(&mut rig)?;
    elements::wrong_keys(&mut rig)?;
    pages::regions(&mut rig)?;
    let commands = software::commands(&mut rig)?;
    assert!(doorbells >= 25 && commands >= 60, "{doorbells}, {commands}");
    rig.finish()
}

fn faults_of_the_host_end_what_they_must(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 5)?;
    faults::of_one_queue_pair(&mut rig)?;
    rig.finish()?;
    for common in Common::ALL {
        let rig = Rig::new(width_bits, 6)?;
        faults::of_the_device(rig, common).with_context(|| format!("{common:?}"))?;
    }
    Ok(())
}

at_both_widths! {
    agrees_with_the_endpoint: agrees_with_the_endpoint_at_64_bits, agrees_with_the_endpoint_at_512_bits;
    wrong_frames_are_refused: wrong_frames_are_refused_at_64_bits, wrong_frames_are_refused_at_512_bits;
    wrong_answers_are_refused: wrong_answers_are_refused_at_64_bits, wrong_answers_are_refused_at_512_bits;
    wrong_doorbells_and_commands_are_refused: wrong_doorbells_and_commands_are_refused_at_64_bits, wrong_doorbells_and_commands_are_refused_at_512_bits;
    faults_of_the_host_end_what_they_must: faults_of_the_host_end_what_they_must_at_64_bits, faults_of_the_host_end_what_they_must_at_512_bits;
}
