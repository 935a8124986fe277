//! Proofs by k-induction of the blocks in which beats could be lost, doubled or mixed, each with mutations of the
//! generated Verilog that the proof is seen to catch.
//!
//! Payloads have 8 bits: no block here looks at them, so what holds for any 8 bits of a beat holds for each 8 bits of a
//! wider one.
use anyhow::Result;
use rnic_blocks::logic::psn::{PSN_BITS, PsnComparison, is_after, is_before, is_within};
use rnic_blocks::memory::Storage;
use rnic_blocks::stream::{Arbiter, AsyncFifo, Fifo, PacketFifo, RegisterSlice, Splitter};
use rnic_host::chunk_buffer::ChunkBuffer;
use rnic_host::ring::Ring;
use rnic_kernel::prelude::*;
use rnic_packet::free_cells::FreeCells;
use rnic_requester::acknowledge::Retries;
use rnic_requester::issue::Issue;
use rnic_responder::ack::Ack;
use rnic_tests::proof::{Proof, TOP};
use std::path::Path;

fn proof<B: Block>(name: &str, mut block: B) -> Result<Proof> {
    let generated = rnic_kernel::generate(&mut block, TOP)?;
    Proof::new(name, generated, Path::new(env!("CARGO_TARGET_TMPDIR")))
}

#[test]
fn a_register_slice_neither_loses_nor_doubles_a_beat() -> Result<()> {
    let proof = proof("slice", RegisterSlice::<Bits<8>>::default())?;
    proof.holds()?;
    proof.catches("loses", "spare_valid <= spare_valid || rx_valid;", "spare_valid <= spare_valid;")?;
    proof.catches("replaces", "head <= spare_valid ? spare : rx_beat;", "head <= rx_beat;")
}

#[test]
fn a_fifo_keeps_beats_in_order_and_counts_them() -> Result<()> {
    let proof = proof("fifo", Fifo::<Bits<8>, 2, 3>::new(Storage::Distributed))?;
    proof.holds()?;
    proof.catches("overflows", "push = rx_valid && !is_full;", "push = rx_valid;")?;
    proof.catches("overwrites_head", "(pop || !head_valid);", "1'b1;")?;
    proof.catches("miscounts", "if (pop && !push)", "if (pop)")
}

#[test]
fn a_packet_fifo_shows_committed_packets_and_nothing_else() -> Result<()> {
    let proof = proof("packet_fifo", PacketFifo::<Bits<8>, 2, 3>::new(Storage::Distributed))?;
    proof.holds()?;
    proof.catches("keeps_rolled_back", "write_pointer <= commit_pointer;", "write_pointer <= written;")?;
    proof.catches("commits_broken", "if (rollback || (commit && overflows))", "if (rollback)")?;
    proof.catches("shows_early", "fetch = commit_pointer !=", "fetch = write_pointer !=")
}

#[test]
fn an_arbiter_mixes_no_frames_and_starves_no_input() -> Result<()> {
    let proof = proof("arbiter", Arbiter::<Bits<8>, 3>::default())?;
    proof.holds()?;
    proof.catches("starves", "later <= ~(grant | (grant - 3'h1));", "later <= 3'h0;")?;
    proof.catches("mixes", "ends = |(grant & last);", "ends = 1'b1;")?;
    proof.catches("withdraws", "holder <= grant;", "holder <= tx_ready ? grant : 3'h0;")
}

#[test]
fn a_splitter_crosses_no_boundary_and_leaves_no_gap() -> Result<()> {
    let proof = proof("split", Splitter::<4, 5>::default())?;
    proof.holds()?;
    proof.catches("crosses", "room = 5'h10 - {1'b0, offset};", "room = 5'h10;")?;
    proof.catches("leaves_gap", "(address | 64'hf) + 64'h1;", "address + 64'h10;")?;
    proof.catches("ends_late", "ends = left <= {27'h0, room};", "ends = left < {27'h0, room};")
}

#[test]
fn an_asynchronous_fifo_keeps_order_whatever_its_clocks_do() -> Result<()> {
    let fifo = AsyncFifo::<Bits<8>, 2, 3>::new(Storage::Distributed);
    let proof = proof("async_fifo", fifo)?.with_two_clocks();
    proof.holds()?;
    proof.catches("crosses_in_binary", "assign write_gray = gray;", "assign write_gray = pointer;")?;
    proof.catches("underflows", "fetch = is_free && gray != write_gray;", "fetch = is_free;")?;
    proof.catches("overflows", "push = offered && !is_full;", "push = offered;")
}

/// The chunk buffer keeps its chunks and its tags in a ring each. That it gives back just what it took is assumed here,
/// and shown of the chunk buffer below.
#[test]
fn a_ring_owns_no_place_twice_and_loses_none() -> Result<()> {
    let proof = proof("ring", Ring::<2, 3>::default())?;
    proof.holds()?;
    proof.catches("takes_without_room", "if (reserve && fits_value)", "if (reserve)")?;
    proof.catches("gives_back_too_few", "head <= head + returned;", "head <= head + 3'h1;")
}

/// The request buffer keeps its payload in cells of this list. That it gives each back once is assumed here, and shown by the
/// tests of the request buffer.
#[test]
fn free_cells_are_lost_by_nobody_and_held_by_one_packet_at_most() -> Result<()> {
    let proof = proof("free_cells", FreeCells::<2>::new(4))?;
    proof.holds()?;
    proof.catches("takes_the_last", "has_cell_value = |spare;", "has_cell_value = 1'b1;")?;
    proof.catches("takes_what_has_just_come", "entered = {1'b0, has_entered}", "entered = {1'b0, enters}")?;
    proof.catches("loses_what_is_rolled_back", "rollback ? packet_start : taken_to", "taken_to")?;
    proof.catches("miscounts_what_is_rolled_back", "(rollback ? spare_at_start : left)", "left")?;
    proof.catches("takes_what_was_committed", "packet_start <= taken_to;", "packet_start <= first_free;")?;
    proof.catches(
        "breaks_the_chain",
        "entering = gives ? given : unused;",
        "entering = gives ? tail : unused;",
    )?;
    proof.catches("follows_another_cell", ".read_address(follows)", ".read_address(first_free)")
}

fn chunk_buffer() -> Result<Proof> {
    let buffer = ChunkBuffer::<512, 7, 3, 1, 2, 3, 4, 2>::new(Storage::Block);
    let is_late = "(now - orders_read_data_reserved_at) > {1'b0, limit}";
    proof("chunk_buffer", buffer)?.with_mapped_memories().with_cut(is_late, "f_is_overdue")
}

#[test]
fn a_chunk_buffer_gives_answers_whole_and_in_order() -> Result<()> {
    let proof = chunk_buffer()?;
    proof.holds()?;
    let returned = ".returned({1'b0, orders_read_data_last_index} + 4'h1)";
    proof.catches("gives_back_one", returned, ".returned(4'h1)")?;
    proof.catches("leaves_early", "progress_read_data_lap == orders_read_data_lap", "1'b1")?;
    proof.catches("leaves_in_part", "fetch && !progress_read_data_is_open && ", "fetch && ")?;
    proof.catches("overwrites_head", "fetch = is_here && may_fetch", "fetch = is_here")?;
    let same_tag = "is_same_tag <= arrival_value_tag == held_tag";
    proof.catches("forgets_what_was_just_written", same_tag, "is_same_tag <= 1'b0")
}

/// What [`a_chunk_buffer_gives_answers_whole_and_in_order`] says of answers that are given up, by its mutations.
#[test]
fn a_chunk_buffer_gives_up_late_answers_and_no_others() -> Result<()> {
    let proof = chunk_buffer()?;
    let quiet = "is_quiet = !(|recent) && !arrival_valid";
    proof.catches("gives_up_while_words_come", quiet, "is_quiet = 1'b1")?;
    proof.catches("gives_up_without_limit", "&& (|limit)", "")?;
    proof.catches("reuses_a_tag_that_rests", "is_known && !quarantine_holds_next", "is_known")?;
    proof.catches("reuses_a_tag_too_soon", "arrivals_is_clear && !has_lost", "arrivals_is_clear")?;
    proof.catches("writes_late_words", "writes = is_awaited && !is_quarantined", "writes = is_awaited")?;
    proof.catches("ends_as_if_whole", "memory_read_data_error || head_is_lost", "memory_read_data_error")?;
    proof.catches("keeps_chunks", ".returns(ends && !passes)", ".returns(ends && !passes && !loses)")
}

#[test]
fn the_psn_comparison_is_its_definition() -> Result<()> {
    let proof = proof("psn", PsnComparison::default())?;
    proof.holds()?;
    proof.catches("misplaces_half", "from_expected[23]", "from_expected[22]")
}

/// The functions that [`PsnComparison`] does not use, each with a wire of its own.
#[derive(Default, LogicBlock)]
struct PsnOrder {
    pub number: Signal<In, Bits<PSN_BITS>>,
    pub other: Signal<In, Bits<PSN_BITS>>,
    pub count: Signal<In, Bits<PSN_BITS>>,
    pub comes_before: Signal<Out, Bit>,
    pub comes_after: Signal<Out, Bit>,
    pub is_inside: Signal<Out, Bit>,
}

impl Logic for PsnOrder {
    #[kernel]
    fn update(&mut self) {
        self.comes_before.next = is_before(self.number.val(), self.other.val());
        self.comes_after.next = is_after(self.number.val(), self.other.val());
        self.is_inside.next = is_within(self.number.val(), self.other.val(), self.count.val());
    }
}

#[test]
fn the_order_of_psns_is_its_definition() -> Result<()> {
    let proof = proof("psn_order", PsnOrder::default())?;
    proof.holds()?;
    proof.catches("misplaces_half", "comes_before = difference[23]", "comes_before = difference[22]")?;
    proof.catches("comes_after_itself", "(|is_after_ahead) && !", "!")?;
    proof.catches("counts_one_more", "(number - other) < count", "(number - other) <= count")
}

/// What acknowledge does with the record of a queue pair, which is in registers here.
#[test]
fn retries_are_taken_as_often_as_allowed_and_epochs_do_not_meet() -> Result<()> {
    let proof = proof("retries", Retries::default())?;
    proof.holds()?;
    proof.catches("exceeds", "of_retries < peer_retry_count", "of_retries <= peer_retry_count")?;
    let given_back = "after_recovery_retries = recovery_progresses ? 3'h0 : progress_retries_taken";
    proof.catches("keeps_what_was_taken", given_back, "after_recovery_retries = progress_retries_taken")?;
    proof.catches("waits_without_end", "|| recovery_of_waits < peer_rnr_retry", "|| 1'b1")?;
    let is_last = "timeout_of_is_last = progress_retries_taken == peer_retry_count";
    proof.catches("fails_early", is_last, "timeout_of_is_last = |progress_retries_taken")?;
    let is_unsent = "progress_wants_rewind || issued_value_epoch != progress_retired_epoch ||";
    proof.catches("goes_back_again", is_unsent, "progress_wants_rewind ||")?;
    let is_sent = "is_outstanding && issued_value_epoch == progress_retired_epoch";
    proof.catches("times_out_before_it_sends", is_sent, "is_outstanding")
}

#[test]
fn a_packet_of_an_older_epoch_is_not_sent() -> Result<()> {
    let proof = proof("issue", Issue::default())?;
    proof.holds()?;
    proof.catches("ignores_the_epoch", "packet_beat_header_epoch != nows_read_data_epoch || ", "")?;
    proof.catches(
        "sends_what_is_stale",
        "packet_beat_kind_is_local && !outcome_of_is_stale",
        "packet_beat_kind_is_local",
    )?;
    proof.catches(
        "sends_what_is_closed",
        "nows_read_data_is_closed && nows_read_data_generation ==",
        "1'b0 && nows_read_data_generation ==",
    )?;
    proof.catches("knows_the_first_epoch_only", "sweep_is_sweeping ? 8'h0 : retired_retired_epoch", "8'h0")
}

#[test]
fn an_acknowledgement_passes_no_unsent_response() -> Result<()> {
    let proof = proof("ack", Ack::default())?.with_cut("&sweep", "f_swept")?;
    proof.holds()?;
    let leaves = "&& !difference_2[31]\n        && !(|records_read_data_reads_open)";
    proof.catches("passes", leaves, "&& !difference_2[31]")?;
    let opens = "(change_releases || change_repeats) ? records_read_data_reads_open + 10'h1";
    proof.catches(
        "passes_the_answer_to_a_duplicate",
        opens,
        "change_releases ? records_read_data_reads_open + 10'h1",
    )?;
    let is_last = "enters_queue_is_last = records_read_data_reads_open == {5'h0, closing_count}";
    proof.catches("forgets_who_waits", is_last, "enters_queue_is_last = 1'b0")
}
