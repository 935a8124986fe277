//! Hostile input to the whole generated card (protocol 8.3): valid traffic whose frames are mutated, and queues of the host that
//! are malformed.
//!
//! * [`mutation`]: mutations of a frame, and what the table of protocol 8.3 requires of each;
//! * [`traffic`]: valid requests of every operation, as the state of a queue pair allows them;
//! * [`ground`]: the queue pairs under attack, and the reference endpoint that gets the same frames as the card;
//! * [`bystander`]: a queue pair that is not attacked, and that must move data at the wire's rate after each batch;
//! * [`batch`]: batches of frames, and the comparison of the card with the reference after each;
//! * [`crowd`]: all queue pairs of the card, each with a peer that makes it fail;
//! * [`queues`]: malformed WQEs, indices and doorbells in send queues, receive queues and shared receive queues.
//!
//! All runs are under all monitors. A failure names the seed and the numbers of the frames; the run is repeated up to them with
//!
//! | Variable | Meaning |
//! |---|---|
//! | `RNIC_FIRST_SEED` | the seed |
//! | `RNIC_HOSTILE_FRAMES` | how many frames are injected at each width, at least |
mod batch;
mod bystander;
mod crowd;
mod ground;
#[expect(dead_code, reason = "commands are replaced and memory is unmapped in the tests of refusals")]
#[path = "../refusals/interpose.rs"]
mod interpose;
mod mutation;
mod queues;
#[expect(dead_code, reason = "the tests of refusals need more of it")]
#[path = "../refusals/rig.rs"]
mod rig;
#[path = "../support/mod.rs"]
mod support;
mod traffic;

use anyhow::{Result, ensure};
use rig::Rig;
use rnic_machine::host::HostOptions;
use rnic_stimulus::chance;
use support::at_both_widths;

/// Variable with the number of frames.
const FRAMES: &str = "RNIC_HOSTILE_FRAMES";

/// log2 of the EQEs of event queue 0.
const EQES_LOG2: u32 = 8;

fn mutated_frames_do_what_the_table_says(width_bits: u32) -> Result<()> {
    // Verilated, 512 bits take three times as long.
    let frames = chance::number(FRAMES, if width_bits == 64 { 16_000 } else { 4_000 });
    for seed in chance::seeds(1) {
        let mut rig = Rig::on_host(width_bits, seed, EQES_LOG2, HostOptions::IDEAL)?;
        let counts = batch::run(&mut rig, width_bits, seed, frames)?;
        println!("{width_bits} bits, seed {seed}: {counts}");
        ensure!(
            counts.live * 10 >= counts.frames * 8,
            "most frames must meet a working queue pair: {counts}"
        );
        rig.finish()?;
    }
    Ok(())
}

fn malformed_queues_end_what_they_must(width_bits: u32) -> Result<()> {
    for seed in chance::seeds(1) {
        let mut rig = Rig::on_host(width_bits, seed, EQES_LOG2, HostOptions::IDEAL)?;
        queues::run(&mut rig, width_bits, seed)?;
        rig.finish()?;
    }
    Ok(())
}

fn a_thousand_peers_that_provoke_errors_leave_the_device_up(width_bits: u32) -> Result<()> {
    let mut rig = Rig::on_host(width_bits, 1, crowd::EQES_LOG2, HostOptions::IDEAL)?;
    let ended = crowd::fails(&mut rig, width_bits);
    let count = rig.explained(ended)?;
    println!("{width_bits} bits: {count} queue pairs have met an error");
    rig.finish()
}

at_both_widths! {
    a_thousand_peers_that_provoke_errors_leave_the_device_up: a_thousand_peers_that_provoke_errors_leave_the_device_up_at_64_bits, a_thousand_peers_that_provoke_errors_leave_the_device_up_at_512_bits;
    mutated_frames_do_what_the_table_says: mutated_frames_do_what_the_table_says_at_64_bits, mutated_frames_do_what_the_table_says_at_512_bits;
    malformed_queues_end_what_they_must: malformed_queues_end_what_they_must_at_64_bits, malformed_queues_end_what_they_must_at_512_bits;
}
