#!/usr/bin/env bash
# The main job, end to end: generate the 512-bit packet path, verilate it, and pass every RoCE frame of the project's
# captures through it. Leaves build/demo/{rnic.v, trace.pcap, summary.json, report.svg}.
source "$(dirname "$0")/lib.sh"

scripts/setup.sh demo
export VIRTUAL_ENV="$root/.venv"

step "compiling generator and simulator (about four minutes on a new machine)"
cargo build --release -p rnic-sim --bin rnic-sim

step "running the packet path"
cargo run --release --quiet -p rnic-sim --bin rnic-sim -- demo
step "done"
