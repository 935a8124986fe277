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

# card_folder <libibverbs> <librdmacm>: makes `folder`, for the sockets of cards, with the libraries in `folder/lib`. At the end of the
# script it goes, and so do the cards.
card_folder() {
    # mktemp makes letters of these.
    folder=$(mktemp -d "${TMPDIR:-/tmp}/rnic.XXXXXX")
    # The path of a socket has at most 107 bytes.
    if [ ${#folder} -gt 95 ]; then
        rmdir "$folder"
        folder=$(mktemp -d /tmp/rnic.XXXXXX)
    fi
    trap 'stop_cards; rm -rf "$folder"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    mkdir "$folder/lib"
    ln -s "$1" "$folder/lib/libibverbs.so.1"
    ln -s "$2" "$folder/lib/librdmacm.so.1"
}

# start_cards <simulator> <folder>: serves two cards on one wire at sockets in the folder; sets `server` once they can be opened.
start_cards() {
    (cd "$2" && exec "$1" serve --socket card0 --socket card1) >"$2/log" 2>&1 &
    server=$!
    until grep -q '^serving card 1 ' "$2/log" 2>/dev/null; do
        if ! kill -0 "$server" 2>/dev/null; then
            server=
            die "the simulated cards did not start: $(cat "$2/log")"
        fi
        sleep 0.1
    done
}

# stop_cards: ends the cards that were started, which then tell in their log how many frames went past the wire.
stop_cards() {
    [ -n "${server:-}" ] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
