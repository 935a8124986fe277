#!/usr/bin/env bash
# Runs programs of the verbs as Debian ships them, as server on one simulated card and as client on another, and prints a table:
#
#   scripts/apps.sh [<pattern>]
#
# A run is right if both programs end with status 0 within its time, and frames went past the wire in both directions. A pattern chooses
# the runs whose command line has it. The exit status is 0 only if all chosen runs are right. What does not work is in the table with
# the reason, and is not run.
#
# RNIC_SIM, RNIC_IBVERBS and RNIC_RDMACM name a simulator and libraries that are built already; nothing is built or installed then.
source "$(dirname "$0")/lib.sh"

pattern=${1:-}
# Bound of each run, in seconds.
patience=${RNIC_APPS_PATIENCE:-120}

if [ -z "${RNIC_SIM:-}" ] || [ -z "${RNIC_IBVERBS:-}" ] || [ -z "${RNIC_RDMACM:-}" ]; then
    scripts/setup.sh test
    cargo build --release --locked --quiet -p rnic-ibverbs -p rnic-rdmacm
    cargo build --release --locked --quiet --workspace --bin rnic-sim
fi
target=${CARGO_TARGET_DIR:-$root/target}
simulator=$(realpath "${RNIC_SIM:-$target/release/rnic-sim}")
verbs=$(realpath "${RNIC_IBVERBS:-$target/release/libibverbs.so}")
connections=$(realpath "${RNIC_RDMACM:-$target/release/librdmacm.so}")
if [ -d .venv ]; then
    export VIRTUAL_ENV="$root/.venv" PATH="$root/.venv/bin:$PATH"
fi

server=
card_folder "$verbs" "$connections"

# on <card> <program...>: runs a program on a card, with bounded time.
on() {
    local card=$1
    shift
    RNIC_DEVICE="vfu:$folder/card$card" LD_LIBRARY_PATH="$folder/lib" timeout "$patience" "$@"
}

# listens <port>: waits until a server listens at a port of this machine.
listens() {
    local port
    port=$(printf ':%04X 00000000:0000 0A\|:%04X 0\{32\}:0000 0A' "$1" "$1")
    for _ in {1..100}; do
        ! grep -q "$port" /proc/net/tcp /proc/net/tcp6 2>/dev/null || return 0
        sleep 0.1
    done
}

rows=()
failures=0
# row <command> <result> <seconds>: adds a row to the table.
row() {
    rows+=("$(printf '| %-46s | %-58s | %5s |' "$1" "$2" "$3")")
    printf '%s\n' "${rows[-1]}"
}

# judge <command> <result> <seconds>: adds the row of a run, which has failed unless the result is "ok".
judge() {
    row "$@"
    if [ "$2" != ok ]; then
        failures=$((failures + 1))
        tail -n 20 "$folder"/{server,client,log} 2>/dev/null >&2 || true
    fi
}

# chosen <command...>: whether the pattern chooses a run.
chosen() {
    case "$*" in *"$pattern"*) return 0 ;; *) return 1 ;; esac
}

# frames <direction>: frames that went past the wire.
frames() {
    sed -n "s/^wire $1: \([0-9]*\) frames.*/\1/p" "$folder/log"
}

# alone <program...>: runs a program on card 0.
alone() {
    chosen "$*" || return 0
    local began=$SECONDS result=ok
    start_cards "$simulator" "$folder"
    rm -f "$folder/client"
    on 0 "$@" >"$folder/server" 2>&1 || result="ends with status $?"
    stop_cards
    judge "$*" "$result" $((SECONDS - began))
}

# pair <program...>: runs a program as server on card 0, and with what `as_client` has as client on card 1.
port=18600
as_client=(localhost)
pair() {
    local began=$SECONDS result=ok server_status=0 client_status=0 program
    chosen "$*" || return 0
    port=$((port + 1))
    start_cards "$simulator" "$folder"
    # shellcheck disable=SC2086 # options are words
    on 0 "$@" ${as_server:-} -p "$port" >"$folder/server" 2>&1 &
    program=$!
    listens "$port"
    on 1 "$@" -p "$port" "${as_client[@]}" >"$folder/client" 2>&1 || client_status=$?
    wait "$program" || server_status=$?
    stop_cards
    if [ "$server_status$client_status" != 00 ]; then
        result="server ends with status $server_status, client with $client_status"
    elif [ "$(frames 0)" -eq 0 ] || [ "$(frames 1)" -eq 0 ]; then
        result="no frames went past the wire"
    fi
    judge "$*" "$result" $((SECONDS - began))
}

# lacks <command> <reason>: a run that does not work.
lacks() {
    ! chosen "$1" || row "$1" "does not work: $2" -
}

row "program" "result" "s"
row "---" "---" "---"
alone ibv_devices
alone ibv_devinfo -v
for options in "-c" "-c -e" "-c -s 20000 -m 1024"; do
    # shellcheck disable=SC2086 # options are words
    pair ibv_rc_pingpong -g 0 -n 50 $options
done
pair ibv_srq_pingpong -g 0 -n 50 -q 4
pair ibv_srq_pingpong -g 0 -n 50 -q 4 -e
# Messages are short enough for seconds of simulation.
for operation in write read send; do
    pair "ib_${operation}_bw" -x 0 -n 20 -s 4096
    pair "ib_${operation}_lat" -x 0 -n 50
done
pair ib_atomic_bw -x 0 -n 20
pair ib_atomic_lat -x 0 -n 50
pair ib_write_bw -x 0 -n 20 -s 1024 -q 4
pair ib_write_bw -x 0 -n 20 -s 1024 -b
pair ib_write_bw -x 0 -n 24 -s 1024 -l 8
pair ib_write_bw -x 0 -n 20 -s 64 -I 64
pair ib_write_bw -x 0 -n 20 -s 4096 -m 1024
pair ib_send_bw -x 0 -n 20 -s 1024 -e
pair ib_send_bw -x 0 -n 20 -s 1024 -r 64 --use-srq
pair ib_write_bw -R -x 0 -n 20 -s 4096
pair ib_send_lat -R -x 0 -n 50
as_server=-s as_client=(-c -a 127.0.0.1) && pair rping -C 10 -v
as_server='' as_client=(-s 127.0.0.1) && pair ucmatose -c 3 -C 5
lacks "ib_write_bw -a" "it moves 80 MB and more, which are minutes"
lacks "rstream" "the connection manager has no rsockets"
lacks "qperf rc_bw" "its address vector has no GID (is_global is 0)"
lacks "ibv_uc_pingpong" "the card has no UC queue pairs"
lacks "ibv_ud_pingpong" "the card has no UD queue pairs"
lacks "ibv_xsrq_pingpong" "the card has no XRC"

[ "$failures" = 0 ] || die "$failures of the runs failed"
