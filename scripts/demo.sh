#!/usr/bin/env bash
# The main job, end to end: generate the 512-bit card, verilate it, join two of them by a wire, and move messages between
# their drivers; then pass every RoCE frame of the project's captures through the packet path. Leaves
# build/demo/{rnic.v, trace.pcap, captures.pcap, summary.json, report.svg}. `--seed N` chooses the run.
source "$(dirname "$0")/lib.sh"

scripts/setup.sh demo
export VIRTUAL_ENV="$root/.venv"

step "compiling generator and simulator (about five minutes on a new machine)"
cargo build --release -p rnic-sim --bin rnic-sim

step "running two cards, and the packet path"
cargo run --release --quiet -p rnic-sim --bin rnic-sim -- demo "$@"
step "done"
