#!/usr/bin/env bash
# Everything that decides whether a change may land, from nothing: tools, style, tests at all widths, proofs, demo.
source "$(dirname "$0")/lib.sh"

scripts/setup.sh test
export PATH="$root/.venv/bin:$PATH" VIRTUAL_ENV="$root/.venv"

step "style: rustfmt and clippy"
cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --quiet

step "tests: contract, language, blocks, packet path, front ends, proofs (about 20 minutes)"
cargo test --workspace

step "demo"
scripts/demo.sh

step "all passed"
