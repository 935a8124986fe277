#!/usr/bin/env bash
# Makes the figures of docs/figures.md anew, and fails if one of them is off. A simulated card has the same figures on any machine.
#
#   scripts/claims.sh                 all: size takes fifteen minutes, the others some minutes each
#   scripts/claims.sh speed loss      these parts only: size, speed, loss, neighbours
#
# Leaves what the programs said in build/claims.
source "$(dirname "$0")/lib.sh"

scripts/setup.sh test
exec .venv/bin/python scripts/claims.py "$@"
