#!/usr/bin/env bash
# Size and logic depth of generated cards, for each block and in total, as a table and as build/synth_report.json.
#
#   scripts/synth_report.sh                    the 512-bit card (half an hour)
#   scripts/synth_report.sh w64 w128 w256 w512 all widths
#   scripts/synth_report.sh --only responder   one block of it, without the total
#   scripts/synth_report.sh --only total       the card in one piece, without its blocks (15 minutes)
source "$(dirname "$0")/lib.sh"

scripts/setup.sh test
step "synthesising with Yosys: ${*:-w512}"
cargo run --quiet --release -p rnic-tests --bin synth_report -- "$@"
