//! Proofs by k-induction of the blocks in which beats could be lost, doubled or mixed, each with mutations of the
//! generated Verilog that the proof is seen to catch.
//!
//! Payloads have 8 bits: no block here looks at them, so what holds for any 8 bits of a beat holds for each 8 bits of a
//! wider one.
use anyhow::Result;
use rnic_blocks::logic::psn::PsnComparison;
use rnic_blocks::memory::Storage;
use rnic_blocks::stream::{Arbiter, AsyncFifo, Fifo, PacketFifo, RegisterSlice, Splitter};
use rnic_host::ring::Ring;
use rnic_kernel::prelude::*;
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
    let proof = proof("fifo", Fifo::<Bits<8>, 2, 3>::new(Storage::Distributed)?)?;
    proof.holds()?;
    proof.catches("overflows", "push = rx_valid && !is_full;", "push = rx_valid;")?;
    proof.catches("overwrites_head", "(pop || !head_valid);", "1'b1;")?;
    proof.catches("miscounts", "if (pop && !push)", "if (pop)")
}

#[test]
fn a_packet_fifo_shows_committed_packets_and_nothing_else() -> Result<()> {
    let proof = proof("packet_fifo", PacketFifo::<Bits<8>, 2, 3>::new(Storage::Distributed)?)?;
    proof.holds()?;
    proof.catches("keeps_rolled_back", "write_pointer <= commit_pointer;", "write_pointer <= written;")?;
    proof.catches("commits_broken", "if (rollback || (commit && overflows))", "if (rollback)")?;
    proof.catches("shows_early", "fetch = commit_pointer !=", "fetch = write_pointer !=")
}

#[test]
fn an_arbiter_mixes_no_frames_and_starves_no_input() -> Result<()> {
    let proof = proof("arbiter", Arbiter::<Bits<8>, 3>::new()?)?;
    proof.holds()?;
    proof.catches("starves", "later <= ~(grant | (grant - 3'h1));", "later <= 3'h0;")?;
    proof.catches("mixes", "ends = |(grant & last);", "ends = 1'b1;")?;
    proof.catches("withdraws", "holder <= grant;", "holder <= tx_ready ? grant : 3'h0;")
}

#[test]
fn a_splitter_crosses_no_boundary_and_leaves_no_gap() -> Result<()> {
    let proof = proof("split", Splitter::<4, 5>::new()?)?;
    proof.holds()?;
    proof.catches("crosses", "room = 5'h10 - {1'b0, offset};", "room = 5'h10;")?;
    proof.catches("leaves_gap", "(address | 64'hf) + 64'h1;", "address + 64'h10;")?;
    proof.catches("ends_late", "ends = left <= {27'h0, room};", "ends = left < {27'h0, room};")
}

#[test]
fn an_asynchronous_fifo_keeps_order_whatever_its_clocks_do() -> Result<()> {
    let fifo = AsyncFifo::<Bits<8>, 2, 3>::new(Storage::Distributed)?;
    let proof = proof("async_fifo", fifo)?.with_two_clocks();
    proof.holds()?;
    proof.catches("crosses_in_binary", "assign write_gray = gray;", "assign write_gray = pointer;")?;
    proof.catches("underflows", "fetch = is_free && gray != write_gray;", "fetch = is_free;")?;
    proof.catches("overflows", "push = offered && !is_full;", "push = offered;")
}

/// The chunk buffer keeps its chunks and its tags in a ring each. That it gives back just what it took is assumed here,
/// and left to its own tests.
#[test]
fn a_ring_owns_no_place_twice_and_loses_none() -> Result<()> {
    let proof = proof("ring", Ring::<2, 3>::new()?)?;
    proof.holds()?;
    proof.catches("takes_without_room", "if (reserve && fits_value)", "if (reserve)")?;
    proof.catches("gives_back_too_few", "head <= head + returned;", "head <= head + 3'h1;")
}

#[test]
fn the_psn_comparison_is_its_definition() -> Result<()> {
    let proof = proof("psn", PsnComparison::default())?;
    proof.holds()?;
    proof.catches("misplaces_half", "from_expected[23]", "from_expected[22]")
}
