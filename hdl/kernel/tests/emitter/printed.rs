//! Snapshots of whole modules. Read them as a reviewer would: this is what the hardware engineer gets.
use crate::blocks::*;
use crate::lint;
use rnic_kernel::prelude::*;

fn printed<B: Block>(mut block: B, top: &str) -> String {
    let verilog = rnic_kernel::generate(&mut block, top).unwrap_or_else(|error| panic!("{error}"));
    lint::check(top, &verilog);
    verilog
}

#[test]
fn a_register_slice_keeps_reset_away_from_its_data() {
    insta::assert_snapshot!(printed(Skid::<Beat<32>>::default(), "skid"));
}

#[test]
fn a_comparison_of_sequence_numbers_reads_as_it_was_written() {
    insta::assert_snapshot!(printed(PsnWindow::default(), "psn_window"));
}

#[test]
fn a_state_machine_becomes_one_case_for_wires_and_one_for_registers() {
    insta::assert_snapshot!(printed(LineReader::default(), "line_reader"));
}

#[test]
fn names_that_clash_are_told_apart() {
    insta::assert_snapshot!(printed(Clashes::default(), "clashes"));
}

#[test]
fn a_chain_connects_its_stages_directly() {
    insta::assert_snapshot!(printed(Chain::<32, 3>::default(), "chain"));
}

#[test]
fn registers_stand_with_those_of_their_clock_and_reset() {
    insta::assert_snapshot!(printed(Domains::default(), "domains"));
}
