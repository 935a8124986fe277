#!/usr/bin/env bash
# All checks of a change, on a new machine too: tools, style, documentation, tests at all widths, proofs, loom, demo.
source "$(dirname "$0")/lib.sh"

scripts/setup.sh soak
export PATH="$root/.venv/bin:$PATH" VIRTUAL_ENV="$root/.venv"

step "style: rustfmt and clippy"
cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --quiet

step "tests: contract, language, blocks, card, driver, front ends, proofs (30 to 50 minutes on two cores)"
cargo test --workspace

step "soak: a worker that dies costs no seed"
.venv/bin/python scripts/soak_test.py

step "loom: all interleavings of driver and card on the rings"
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p rnic-driver --release --test loom

step "mutants: a sample of the faults that whole-card tests must see"
scripts/mutants.sh --sample

step "demo"
scripts/demo.sh
.venv/bin/python scripts/check_trace.py build/demo/trace.pcap

step "all passed"
