#!/usr/bin/env bash
# Runs a program that is linked against libibverbs and librdmacm, as the distribution ships it, over rnic cards:
#
#   scripts/with-rnic.sh [--device <name>[,<name>...]] [--host <index>] -- <program> [<argument>...]
#
# Without --device it starts two simulated cards on one wire for the time of the program, which sees both, as rnic0 and rnic1. A name is
# vfu:<socket> or pci:<address>, as docs/driver.md has it. --host leaves the program one of the cards. The exit status is that of the
# program.
#
# RNIC_SIM, RNIC_IBVERBS and RNIC_RDMACM name a simulator and libraries that are built already; nothing is built or installed then.
caller=$PWD
source "$(dirname "$0")/lib.sh"

usage="usage: scripts/with-rnic.sh [--device <name>[,<name>...]] [--host <index>] -- <program> [<argument>...]"
devices=
host=
while [ $# -gt 0 ]; do
    case "$1" in
    --device) devices=${2:?"$usage"} && shift 2 ;;
    --host) host=${2:?"$usage"} && shift 2 ;;
    --) shift && break ;;
    *) die "$usage" ;;
    esac
done
[ $# -gt 0 ] || die "$usage"
case "$host" in *[!0-9]*) die "--host takes the index of a card, 0 or 1, and not '$host'" ;; esac

# target: where cargo builds, which is not the checkout if that cannot be written.
target() {
    if [ -n "${CARGO_TARGET_DIR:-}" ]; then
        echo "$CARGO_TARGET_DIR"
    elif [ -w "$root" ]; then
        echo "$root/target"
    else
        echo "${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/rnic/target"
    fi
}
CARGO_TARGET_DIR=$(target)
export CARGO_TARGET_DIR
# A relative name is one from the caller's folder.
from_caller() {
    case "$1" in /*) echo "$1" ;; *) echo "$caller/$1" ;; esac
}

# library <name> <variable>: sets `library` to that of the crate rnic-<name>: the one of the variable, or one that is built.
library() {
    library=${!2:-}
    if [ -z "$library" ]; then
        cargo build --release --locked --quiet -p "rnic-$1" >&2
        library=$CARGO_TARGET_DIR/release/lib$1.so
    fi
    library=$(from_caller "$library")
    [ -e "$library" ] || die "there is no library $library, which $2 names"
}
library ibverbs RNIC_IBVERBS
verbs=$library
library rdmacm RNIC_RDMACM
manager=$library

server=
card_folder "$verbs" "$manager"

# serve: starts two cards on one wire, and waits until they can be opened. The first start compiles the model of the card.
serve() {
    local simulator=${RNIC_SIM:-}
    if [ -z "$simulator" ]; then
        if [ -w "$root" ]; then
            scripts/setup.sh demo >&2
        fi
        cargo build --release --locked --quiet --workspace --bin rnic-sim >&2
        simulator=$CARGO_TARGET_DIR/release/rnic-sim
    fi
    simulator=$(from_caller "$simulator")
    if [ -d .venv ]; then
        export VIRTUAL_ENV="$root/.venv" PATH="$root/.venv/bin:$PATH"
    fi
    start_cards "$simulator" "$folder"
    devices="vfu:$folder/card0,vfu:$folder/card1"
}
path=$PATH
[ -n "$devices" ] || serve

if [ -n "$host" ]; then
    # A comma that begins no name belongs to the name before it.
    mapfile -t names < <(sed -E 's/,(vfu:|pci:)/\n\1/g' <<<"$devices")
    [ "$host" -lt ${#names[@]} ] || die "--host $host: there are ${#names[@]} cards, and the first one is 0"
    devices=${names[$host]}
fi

status=0
(
    cd "$caller"
    PATH=$path
    export RNIC_DEVICE="$devices" LD_LIBRARY_PATH="$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    exec "$@"
) || status=$?
# What the server remarks may be why.
if [ "$status" != 0 ] && [ -n "$server" ]; then
    grep -v '^serving card ' "$folder/log" >&2 || true
fi
exit "$status"
