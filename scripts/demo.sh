#!/usr/bin/env bash
# The demo: generates the 512-bit card, verilates it, joins two of them by a wire, and moves messages between their
# drivers; then sends every RoCEv2 frame of the captures in tests/vectors through the packet path. Leaves
# build/demo/{rnic.v, trace.pcap, captures.pcap, summary.json, report.svg}. `--seed N` chooses the run.
source "$(dirname "$0")/lib.sh"

scripts/setup.sh demo
export VIRTUAL_ENV="$root/.venv"

# `scripts/test.sh` names the simulator that its tests have compiled.
if [ -z "${RNIC_SIM:-}" ]; then
    step "compiling generator and simulator (about five minutes on a new machine)"
    cargo build --release --workspace --bin rnic-sim
    RNIC_SIM=${CARGO_TARGET_DIR:-target}/release/rnic-sim
fi

step "running two cards, and the packet path"
"$RNIC_SIM" demo "$@"
step "done"
