#!/usr/bin/env bash
# Packages the library rnic and all that it is made of, as cargo publish would, into target/package. Arguments go to cargo, as in
# scripts/package.sh --no-verify.
source "$(dirname "$0")/lib.sh"

# Crates that say nothing about publish have it.
mapfile -t names < <(cargo metadata --no-deps --format-version 1 |
    python3 -c 'import json, sys; print(*("-p" + p["name"] for p in json.load(sys.stdin)["packages"] if p["publish"] is None), sep="\n")')
cargo package "${names[@]}" "$@"
