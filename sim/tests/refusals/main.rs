//! Invalid input to the whole generated card: how it is refused and counted, and that other queue pairs keep working.
//!
//! * [`legal`]: valid traffic in both directions with the reference endpoint;
//! * [`reads`]: READs of the endpoint from the card, and invalid requests after READs;
//! * [`duplicates`]: READs and atomics that a peer asks for again;
//! * [`atomics`]: atomics of the endpoint on the card's memory;
//! * [`own_reads`], [`own_atomics`]: READs and atomics of the card on the endpoint's memory, and invalid responses;
//! * [`scatter_gather`]: messages of the card with six SGEs, receives with three, and SGEs with invalid keys;
//! * [`shared`]: peers that end in the middle of a message into a shared receive queue;
//! * [`frames`]: invalid requests and responses of a peer;
//! * [`slots`]: READ slots that all queue pairs share;
//! * [`software`]: invalid doorbells and commands;
//! * [`numbers`]: numbers of objects whose destruction the card has not confirmed;
//! * [`events`]: event queues that software does not read;
//! * [`interrupts`]: events and interrupts that are armed, masked and moderated, and a completion queue that overruns;
//! * [`middle`]: regions that end, and receives that are missing, in the middle of a message;
//! * [`holds`]: what a send queue holds back until the peer has answered, and what it asks an answer for;
//! * [`silence`]: peers that do not answer;
//! * [`cold`]: receive queues whose WQEs are not on the card, one of them flooded;
//! * [`kept`]: slots that the card keeps of send queues that wait;
//! * [`late_receives`]: receives that a slow host gives while the SENDs wait that take them;
//! * [`rings`]: send queues filled in all ways, and WQEs whose lengths contradict each other;
//! * [`room`]: the share of the request buffer that a queue pair has;
//! * [`pages`]: regions with page lists at any offset, and regions that are changed;
//! * [`recovery`]: packets that the wire loses, and that the card sends again;
//! * [`twofold`]: two causes at once, of which neither may hide the other;
//! * [`traces`], [`answered_traces`]: worked traces of the protocol with the card as requester, and as responder;
//! * [`faults`]: host memory that the card cannot access;
//! * [`given_back`]: memory that software uses again as soon as a SEND or WRITE in error has given it back;
//! * [`replies`]: what a queue pair owes its peer while it waits for host writes;
//! * [`reports`]: hosts that do not report writes.
//!
//! All tests run at 64 and at 512 bits, under all monitors. `scripts/soak.sh` runs them with:
//!
//! | Variable | Meaning | Default |
//! |---|---|---|
//! | `RNIC_BATCHES` | batches of messages over each kind of wire that loses, doubles and swaps frames | 1 |
//! | `RNIC_MACHINE` | seed of the machine that gets wrong frames; with 1 the host is hostile at 64 bits, with 2 at 512 | 0: an ideal host |
mod answered_traces;
mod asker;
mod atomics;
mod cold;
mod duplicates;
mod events;
mod faults;
mod frames;
mod given_back;
mod holds;
mod interpose;
mod interrupts;
mod kept;
mod late_receives;
mod legal;
mod middle;
mod numbers;
mod own_atomics;
mod own_reads;
mod pace;
mod pages;
mod reads;
mod recovery;
mod replies;
mod reports;
mod responses;
mod rig;
mod rings;
mod room;
mod scatter_gather;
mod shared;
mod silence;
mod slots;
mod software;
#[path = "../support/mod.rs"]
mod support;
mod traces;
mod twofold;

use anyhow::{Context, Result};
use faults::Common;
use reports::{First, Silence};
use rig::Rig;
use rnic_machine::host::HostOptions;
use rnic_stimulus::chance::{Delay, number};
use support::at_both_widths;

fn agrees_with_the_endpoint(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 1)?;
    legal::traffic(&mut rig)?;
    scatter_gather::traffic(&mut rig)?;
    reads::traffic(&mut rig)?;
    own_reads::traffic(&mut rig)?;
    atomics::traffic(&mut rig)?;
    own_atomics::traffic(&mut rig)?;
    rig.finish()
}

fn wrong_frames_are_refused(width_bits: u32) -> Result<()> {
    // So many cases take long on a slow host.
    let mut rig = match number("RNIC_MACHINE", 0) {
        0 => Rig::on_host(width_bits, 3, cold::EQES_LOG2, HostOptions::IDEAL)?,
        seed => Rig::new(width_bits, seed)?,
    };
    frames::not_ready(&mut rig)?;
    frames::damaged(&mut rig)?;
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

fn no_data_comes_after_its_read_was_flushed(width_bits: u32) -> Result<()> {
    let write_visible = Delay::nanoseconds(2_000);
    let host = HostOptions { write_visible, writes_max: 4, ..HostOptions::IDEAL };
    let mut rig = Rig::on_host(width_bits, 21, cold::EQES_LOG2, host)?;
    own_reads::flushed_with_data_on_its_way(&mut rig)?;
    rig.finish()
}

fn nothing_is_sent_after_it_was_flushed(width_bits: u32) -> Result<()> {
    let read_latency = Delay::Uniform { min_ps: 4_000_000, max_ps: 10_000_000 };
    let host = HostOptions { read_latency, ..HostOptions::IDEAL };
    let mut rig = Rig::on_host(width_bits, 22, cold::EQES_LOG2, host)?;
    let unseen = given_back::flushed_with_payload_on_its_way(&mut rig)?;
    assert!(unseen > 40, "{unseen}");
    rig.finish()
}

fn wrong_doorbells_and_commands_are_refused(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 4)?;
    let doorbells = software::doorbells(&mut rig)?;
    software::overrun(&mut rig)?;
    scatter_gather::wrong_keys(&mut rig)?;
    pages::regions(&mut rig)?;
    let commands = software::commands(&mut rig)?;
    assert!(doorbells >= 25 && commands >= 60, "{doorbells}, {commands}");
    rig.finish()
}

fn full_event_queues_are_no_failure(width_bits: u32) -> Result<()> {
    let mut rig = Rig::with_events(width_bits, 7, events::EQES_LOG2)?;
    events::unread(&mut rig)?;
    rig.finish()
}

/// At one width only: commands do not depend on it.
#[test]
fn read_slots_are_shared_until_none_is_left_at_64_bits() -> Result<()> {
    let mut rig = Rig::new(64, 1)?;
    slots::are_shared(&mut rig)?;
    rig.finish()
}

fn the_first_packet_in_rtr_is_an_event(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 20)?;
    events::of_established_queue_pairs(&mut rig)?;
    rig.finish()
}

fn no_event_of_an_object_comes_after_its_end(width_bits: u32) -> Result<()> {
    let mut rig = Rig::with_late_writes(width_bits, 7)?;
    events::of_destroyed_queue_pairs(&mut rig)?;
    rig.finish()
}

fn what_must_wait_is_held_back(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 10)?;
    kept::of_two_queue_pairs(&mut rig)?;
    holds::what_must_wait(&mut rig)?;
    rig.finish()?;
    let mut rig = Rig::with_late_writes(width_bits, 10)?;
    holds::late_writes(&mut rig)?;
    rig.finish()
}

fn a_peer_that_never_answers_ends_its_queue_pair_alone(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 13)?;
    silence::of_peers(&mut rig)?;
    rig.finish()
}

fn events_and_interrupts_come_when_due(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 11)?;
    interrupts::when_they_are_due(&mut rig)?;
    rig.finish()
}

fn send_queues_are_served_however_they_are_filled(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 12)?;
    rings::as_software_fills_them(&mut rig)?;
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

fn numbers_are_kept_until_their_object_has_ended(width_bits: u32) -> Result<()> {
    numbers::all_kinds(width_bits)
}

fn work_before_an_unreadable_payload_completes(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 7)?;
    faults::payload_unreadable_after_others(&mut rig)?;
    faults::failures_behind_failures(&mut rig)?;
    rig.finish()
}

fn receives_of_clients_that_end_come_back(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 8)?;
    shared::clients_that_end(&mut rig)?;
    rig.finish()
}

fn a_cqe_that_cannot_be_written_costs_its_queue_alone(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 7)?;
    faults::of_one_completion_queue(&mut rig)?;
    rig.finish()
}

fn a_read_that_is_answered_too_late_ends_what_it_must(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 8)?;
    faults::of_late_answers(&mut rig)?;
    rig.finish()?;
    faults::of_a_late_command(Rig::new(width_bits, 9)?)
}

fn a_host_that_reports_no_write_fails_the_device(width_bits: u32) -> Result<()> {
    for silence in Silence::ALL {
        for first in First::ALL {
            let rig = Rig::new(width_bits, 9)?;
            reports::of_no_write(rig, silence, first).with_context(|| format!("{silence:?}, {first:?}"))?;
        }
    }
    Ok(())
}

fn what_is_lost_is_sent_again(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 13)?;
    let ended = recovery::of_losses(&mut rig, 4);
    rig.explained(ended)?;
    rig.finish()
}

fn everything_is_executed_once_whatever_the_wire_does(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 14)?;
    let ended = recovery::of_everything(&mut rig, number("RNIC_BATCHES", 1));
    rig.explained(ended)?;
    rig.finish()
}

fn a_nak_that_is_owed_is_said(width_bits: u32) -> Result<()> {
    let mut rig = Rig::with_late_writes(width_bits, 27)?;
    let ended = replies::all_are_said(&mut rig).and_then(|()| replies::refused_write_behind_a_nak(&mut rig));
    rig.explained(ended)?;
    rig.finish()
}

fn no_cause_hides_another(width_bits: u32) -> Result<()> {
    on_ideal_host(width_bits, 25, |rig| twofold::causes(rig, width_bits))
}

/// At one width only: the datapath has no part in it.
#[test]
fn an_ack_at_an_expiry_comes_before_it_or_behind_it_at_64_bits() -> Result<()> {
    on_ideal_host(64, 26, twofold::acks_and_expiries)
}

fn duplicates_are_answered(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 13)?;
    duplicates::answered(&mut rig)?;
    rig.finish()
}

fn only_the_last_packet_comes_again_after_an_rnr_nak(width_bits: u32) -> Result<()> {
    let mut rig = Rig::new(width_bits, 17)?;
    let ended = middle::receives_are_missing(&mut rig);
    rig.explained(ended)?;
    rig.finish()
}

/// Runs a scenario on an ideal host.
fn on_ideal_host(width_bits: u32, seed: u64, scenario: impl FnOnce(&mut Rig) -> Result<()>) -> Result<()> {
    let mut rig = Rig::on_host(width_bits, seed, cold::EQES_LOG2, HostOptions::IDEAL)?;
    let ended = scenario(&mut rig);
    rig.explained(ended)?;
    rig.finish()
}

fn a_cold_receive_queue_delays_no_other(width_bits: u32) -> Result<()> {
    on_ideal_host(width_bits, 18, cold::receives)
}

fn room_that_is_left_comes_back(width_bits: u32) -> Result<()> {
    on_ideal_host(width_bits, 29, room::comes_back)
}

fn late_receives_are_given_in_order(width_bits: u32) -> Result<()> {
    on_ideal_host(width_bits, 28, late_receives::are_given_in_order)
}

fn a_flooded_queue_pair_takes_its_share_only(width_bits: u32) -> Result<()> {
    on_ideal_host(width_bits, 19, cold::floods)
}

fn the_smallest_frames_leave_room_for_others(width_bits: u32) -> Result<()> {
    on_ideal_host(width_bits, 20, |rig| cold::smallest_frames(rig, width_bits))
}

fn the_smallest_responses_leave_room_for_others(width_bits: u32) -> Result<()> {
    on_ideal_host(width_bits, 23, |rig| responses::smallest_responses(rig, width_bits))
}

fn a_host_that_takes_no_writes_leaves_room_for_responses(width_bits: u32) -> Result<()> {
    on_ideal_host(width_bits, 24, responses::responses_of_a_stuck_host)
}

fn a_host_that_takes_no_writes_leaves_room_for_others(width_bits: u32) -> Result<()> {
    on_ideal_host(width_bits, 21, cold::stuck_host)
}

fn frames_to_nobody_hold_no_room(width_bits: u32) -> Result<()> {
    on_ideal_host(width_bits, 22, cold::frames_to_nobody)
}

/// Runs a worked trace of protocol 3.12 with the card on one side, and then on the other.
fn plays(
    width_bits: u32,
    requester: impl FnOnce(&mut Rig) -> Result<()>,
    responder: impl FnOnce(&mut Rig) -> Result<()>,
) -> Result<()> {
    let mut rig = Rig::new(width_bits, 15)?;
    let ended = requester(&mut rig)
        .context("the card asks")
        .and_then(|()| responder(&mut rig).context("the card answers"));
    rig.explained(ended)?;
    rig.finish()
}

fn trace_a_no_loss(width_bits: u32) -> Result<()> {
    plays(width_bits, |rig| traces::of_requester(rig, 'A'), answered_traces::a_no_loss)
}

fn trace_b_request_lost(width_bits: u32) -> Result<()> {
    plays(width_bits, |rig| traces::of_requester(rig, 'B'), answered_traces::b_request_lost)
}

fn trace_c_response_lost(width_bits: u32) -> Result<()> {
    plays(width_bits, |rig| traces::of_requester(rig, 'C'), answered_traces::c_response_lost)
}

fn trace_d_ack_overtakes(width_bits: u32) -> Result<()> {
    plays(width_bits, |rig| traces::of_requester(rig, 'D'), answered_traces::d_ack_overtakes)
}

fn trace_e_receive_queue_empty(width_bits: u32) -> Result<()> {
    plays(width_bits, |rig| traces::of_requester(rig, 'E'), answered_traces::e_receive_queue_empty)
}

fn trace_f_acks_lost(width_bits: u32) -> Result<()> {
    plays(width_bits, |rig| traces::of_requester(rig, 'F'), answered_traces::f_acks_lost)
}

fn trace_g_atomic_ack_lost(width_bits: u32) -> Result<()> {
    plays(width_bits, |rig| traces::of_requester(rig, 'G'), answered_traces::g_atomic_ack_lost)
}

fn trace_h_wrong_key(width_bits: u32) -> Result<()> {
    plays(width_bits, traces::wrong_key, answered_traces::h_wrong_key)
}

fn trace_i_region_ends(width_bits: u32) -> Result<()> {
    plays(width_bits, middle::read_by_the_card, middle::read_of_the_card)
}

fn trace_j_nak_lost(width_bits: u32) -> Result<()> {
    plays(width_bits, |rig| traces::of_requester(rig, 'J'), answered_traces::j_nak_lost)
}

at_both_widths! {
    trace_a_no_loss: trace_a_no_loss_at_64_bits, trace_a_no_loss_at_512_bits;
    trace_b_request_lost: trace_b_request_lost_at_64_bits, trace_b_request_lost_at_512_bits;
    trace_c_response_lost: trace_c_response_lost_at_64_bits, trace_c_response_lost_at_512_bits;
    trace_d_ack_overtakes: trace_d_ack_overtakes_at_64_bits, trace_d_ack_overtakes_at_512_bits;
    trace_e_receive_queue_empty: trace_e_receive_queue_empty_at_64_bits, trace_e_receive_queue_empty_at_512_bits;
    trace_f_acks_lost: trace_f_acks_lost_at_64_bits, trace_f_acks_lost_at_512_bits;
    trace_g_atomic_ack_lost: trace_g_atomic_ack_lost_at_64_bits, trace_g_atomic_ack_lost_at_512_bits;
    trace_h_wrong_key: trace_h_wrong_key_at_64_bits, trace_h_wrong_key_at_512_bits;
    trace_i_region_ends: trace_i_region_ends_at_64_bits, trace_i_region_ends_at_512_bits;
    trace_j_nak_lost: trace_j_nak_lost_at_64_bits, trace_j_nak_lost_at_512_bits;
    only_the_last_packet_comes_again_after_an_rnr_nak: only_the_last_packet_comes_again_after_an_rnr_nak_at_64_bits, only_the_last_packet_comes_again_after_an_rnr_nak_at_512_bits;
    no_data_comes_after_its_read_was_flushed: no_data_comes_after_its_read_was_flushed_at_64_bits, no_data_comes_after_its_read_was_flushed_at_512_bits;
    nothing_is_sent_after_it_was_flushed: nothing_is_sent_after_it_was_flushed_at_64_bits, nothing_is_sent_after_it_was_flushed_at_512_bits;
    the_first_packet_in_rtr_is_an_event: the_first_packet_in_rtr_is_an_event_at_64_bits, the_first_packet_in_rtr_is_an_event_at_512_bits;
    a_flooded_queue_pair_takes_its_share_only: a_flooded_queue_pair_takes_its_share_only_at_64_bits, a_flooded_queue_pair_takes_its_share_only_at_512_bits;
    the_smallest_frames_leave_room_for_others: the_smallest_frames_leave_room_for_others_at_64_bits, the_smallest_frames_leave_room_for_others_at_512_bits;
    the_smallest_responses_leave_room_for_others: the_smallest_responses_leave_room_for_others_at_64_bits, the_smallest_responses_leave_room_for_others_at_512_bits;
    a_host_that_takes_no_writes_leaves_room_for_responses: a_host_that_takes_no_writes_leaves_room_for_responses_at_64_bits, a_host_that_takes_no_writes_leaves_room_for_responses_at_512_bits;
    frames_to_nobody_hold_no_room: frames_to_nobody_hold_no_room_at_64_bits, frames_to_nobody_hold_no_room_at_512_bits;
    a_host_that_takes_no_writes_leaves_room_for_others: a_host_that_takes_no_writes_leaves_room_for_others_at_64_bits, a_host_that_takes_no_writes_leaves_room_for_others_at_512_bits;
    late_receives_are_given_in_order: late_receives_are_given_in_order_at_64_bits, late_receives_are_given_in_order_at_512_bits;
    room_that_is_left_comes_back: room_that_is_left_comes_back_at_64_bits, room_that_is_left_comes_back_at_512_bits;
    a_cold_receive_queue_delays_no_other: a_cold_receive_queue_delays_no_other_at_64_bits, a_cold_receive_queue_delays_no_other_at_512_bits;
    everything_is_executed_once_whatever_the_wire_does: everything_is_executed_once_whatever_the_wire_does_at_64_bits, everything_is_executed_once_whatever_the_wire_does_at_512_bits;
    what_is_lost_is_sent_again: what_is_lost_is_sent_again_at_64_bits, what_is_lost_is_sent_again_at_512_bits;
    agrees_with_the_endpoint: agrees_with_the_endpoint_at_64_bits, agrees_with_the_endpoint_at_512_bits;
    wrong_frames_are_refused: wrong_frames_are_refused_at_64_bits, wrong_frames_are_refused_at_512_bits;
    wrong_answers_are_refused: wrong_answers_are_refused_at_64_bits, wrong_answers_are_refused_at_512_bits;
    wrong_doorbells_and_commands_are_refused: wrong_doorbells_and_commands_are_refused_at_64_bits, wrong_doorbells_and_commands_are_refused_at_512_bits;
    numbers_are_kept_until_their_object_has_ended: numbers_are_kept_until_their_object_has_ended_at_64_bits, numbers_are_kept_until_their_object_has_ended_at_512_bits;
    a_cqe_that_cannot_be_written_costs_its_queue_alone: a_cqe_that_cannot_be_written_costs_its_queue_alone_at_64_bits, a_cqe_that_cannot_be_written_costs_its_queue_alone_at_512_bits;
    a_read_that_is_answered_too_late_ends_what_it_must: a_read_that_is_answered_too_late_ends_what_it_must_at_64_bits, a_read_that_is_answered_too_late_ends_what_it_must_at_512_bits;
    a_host_that_reports_no_write_fails_the_device: a_host_that_reports_no_write_fails_the_device_at_64_bits, a_host_that_reports_no_write_fails_the_device_at_512_bits;
    no_event_of_an_object_comes_after_its_end: no_event_of_an_object_comes_after_its_end_at_64_bits, no_event_of_an_object_comes_after_its_end_at_512_bits;
    full_event_queues_are_no_failure: full_event_queues_are_no_failure_at_64_bits, full_event_queues_are_no_failure_at_512_bits;
    faults_of_the_host_end_what_they_must: faults_of_the_host_end_what_they_must_at_64_bits, faults_of_the_host_end_what_they_must_at_512_bits;
    work_before_an_unreadable_payload_completes: work_before_an_unreadable_payload_completes_at_64_bits, work_before_an_unreadable_payload_completes_at_512_bits;
    what_must_wait_is_held_back: what_must_wait_is_held_back_at_64_bits, what_must_wait_is_held_back_at_512_bits;
    a_peer_that_never_answers_ends_its_queue_pair_alone: a_peer_that_never_answers_ends_its_queue_pair_alone_at_64_bits, a_peer_that_never_answers_ends_its_queue_pair_alone_at_512_bits;
    events_and_interrupts_come_when_due: events_and_interrupts_come_when_due_at_64_bits, events_and_interrupts_come_when_due_at_512_bits;
    send_queues_are_served_however_they_are_filled: send_queues_are_served_however_they_are_filled_at_64_bits, send_queues_are_served_however_they_are_filled_at_512_bits;
    a_nak_that_is_owed_is_said: a_nak_that_is_owed_is_said_at_64_bits, a_nak_that_is_owed_is_said_at_512_bits;
    no_cause_hides_another: no_cause_hides_another_at_64_bits, no_cause_hides_another_at_512_bits;
    duplicates_are_answered: duplicates_are_answered_at_64_bits, duplicates_are_answered_at_512_bits;
    receives_of_clients_that_end_come_back: receives_of_clients_that_end_come_back_at_64_bits, receives_of_clients_that_end_come_back_at_512_bits;
}
