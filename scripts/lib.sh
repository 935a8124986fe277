# Shared by the scripts: where things are, and how steps are announced. Sourced, not run.
# shellcheck shell=bash

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
started=$SECONDS
# A build from nothing gains nothing from incremental compilation, which takes gigabytes.
export CARGO_INCREMENTAL=0

# step <text>: announces what comes next, with the time since the start, and notes it in `steps`.
steps=()
step() {
    steps+=("$((SECONDS - started)) $*")
    printf '\n==> [%3ds] %s\n' "$((SECONDS - started))" "$*"
}

# die <text>: says what went wrong and stops.
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# as_root <command...>: runs it as root, through sudo if need be.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "this needs root and there is no sudo: $*"
    fi
}
