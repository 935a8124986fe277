#!/usr/bin/env bash
# Random tests for hours: those of scripts/test.sh, with seed after seed and larger numbers. Builds once, takes the parts in
# turn, says how far it is after each run, and keeps the output of a run only if it fails.
#
#   scripts/soak.sh                                          all parts for 8 hours
#   scripts/soak.sh --hours 0.5 --part operations            one part, by time
#   scripts/soak.sh --seeds 100 --first-seed 5000            all parts, by number of seeds
#   scripts/soak.sh --list                                   the parts
#
# Leaves build/soak/summary.txt, and the output of each failed run beside it; those of an earlier soak are removed.
# Exit code 1 if a run failed; the table at the end gives the command that repeats it. --part may be given several times.
source "$(dirname "$0")/lib.sh"

# One part per line, @ stands for the seed: name | N to run one seed in N, 0 to run the first seed only | arguments of
# cargo test | tests | environment | description.
parts=(
    "operations|1|-p rnic-sim --test card|random_operations|RNIC_FIRST_SEED=@ RNIC_SEEDS=1|random operations of 64 queue pairs between two cards, against the model, at 64 and 512 bits"
    "lifecycles|2|-p rnic-sim --test card|messages_end_in_the_middle receives_are_shared send_queues_drain keys_end|RNIC_FIRST_SEED=@ RNIC_SEEDS=1|queue pairs that fail, drain, share receives and invalidate keys while they are at work, at 64 and 512 bits"
    "model|1|-p rnic-workloads --lib --test operations|endpoints_do_what the_driver_does_what|RNIC_FIRST_SEED=@ RNIC_SEEDS=1|random operations of two reference endpoints, and of the driver on a card in software, against the model"
    "blocks|2|-p rnic-blocks -p rnic-host -p rnic-packet -p rnic-complete -p rnic-control -p rnic-dma -p rnic-protect -p rnic-requester -p rnic-responder --lib||RNIC_SEED=@ RNIC_SEEDS=4|the tests of all blocks, with another stimulus and four times as many rounds"
    "properties|2|-p rnic-layout -p rnic-driver --lib --test frames_of_our_own --test records_read_back||PROPTEST_RNG_SEED=@ PROPTEST_CASES=10000|properties of the wire formats, the registers, and the driver's memory and rings"
    "frames|10|-p rnic-packet-path --test packet_path|random_frames_agree|RNIC_FIRST_SEED=@ RNIC_FRAMES=400000|100,000 random frames at each width through the packet path, against the software view of the contract"
    "never_lock|20|-p rnic-sim --test card|never_lock|RNIC_FIRST_SEED=@ RNIC_CYCLES=10000000|two cards that READ from and WRITE to each other for 10,000,000 cycles, at 64 and 512 bits"
    "refusals|0|-p rnic-sim --test refusals||RNIC_SEEDS=1|every invalid request and response of a peer, in IPv4 and IPv6, at 64 and 512 bits"
    "mutants|0||||every mutant of the card, the driver and the endpoint, which a test of whole cards must catch (scripts/mutants.sh)"
    "language|10|-p rnic-kernel-check --test programs||RNIC_KERNEL_SEED=@ RNIC_KERNEL_PROGRAMS=40|40 random programs of the hardware language, against Verilator and Icarus (compiles them for each seed)"
)
# Part with programs that a build script draws, so that it is compiled again for each seed.
compiled_anew=language
# Part that is a script, which builds what it needs.
gate=mutants

usage() {
    sed -n '2,12s/^# \{0,1\}//p' "$0"
    exit "$1"
}

hours=8
seeds=
first_seed=1000
wanted=()
while [ $# -gt 0 ]; do
    case "$1" in
    --hours | --seeds | --first-seed | --part)
        [ $# -ge 2 ] || die "$1 needs a value"
        case "$1" in
        --hours) hours=$2 ;;
        --seeds) seeds=$2 ;;
        --first-seed) first_seed=$2 ;;
        --part) wanted+=("$2") ;;
        esac
        shift 2
        ;;
    --list)
        for part in "${parts[@]}"; do
            IFS='|' read -r name every _ _ _ about <<<"$part"
            case "$every" in
            0) share="once" ;;
            1) share="each seed" ;;
            *) share="1 seed in $every" ;;
            esac
            printf '%-11s %-13s %s\n' "$name" "$share" "$about"
        done
        exit 0
        ;;
    -h | --help) usage 0 ;;
    *)
        printf 'error: unknown option %s\n' "$1" >&2
        usage 1 >&2
        ;;
    esac
done
[[ "$hours" =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "--hours is '$hours', and must be a number"
[[ "${seeds:-1}" =~ ^[1-9][0-9]*$ ]] || die "--seeds is '$seeds', and must be a whole number above 0"
[[ "$first_seed" =~ ^[0-9]+$ ]] || die "--first-seed is '$first_seed', and must be a whole number"
for name in "${wanted[@]}"; do
    printf '%s\n' "${parts[@]}" | grep -q "^$name|" || die "there is no part '$name'; see --list"
done

is_wanted() {
    [ ${#wanted[@]} = 0 ] || [[ " ${wanted[*]} " == *" $1 "* ]]
}

# clock <seconds>: as hours, minutes and seconds.
clock() {
    printf '%d:%02d:%02d' $(($1 / 3600)) $(($1 / 60 % 60)) $(($1 % 60))
}

scripts/setup.sh test
export PATH="$root/.venv/bin:$PATH" VIRTUAL_ENV="$root/.venv"
folder=$root/build/soak
rm -rf "$folder"
mkdir -p "$folder/programs"

# Builds the test programs of a part, and lists for each the copy that is run, its package, and the folder of the package.
build() {
    local name=$1 arguments=$2
    # shellcheck disable=SC2086 # The arguments are words.
    cargo test --quiet --no-run --message-format=json-render-diagnostics $arguments >"$folder/programs/$name.json" || die "part $name does not build"
    python3 - "$folder/programs/$name.json" "$folder/programs/$name" >"$folder/programs/$name.list" <<'PYTHON'
import json, os, shutil, sys

messages, folder = sys.argv[1:]
os.makedirs(folder)
for line in open(messages):
    message = json.loads(line) if line.startswith("{") else {}
    if message.get("executable") and message["profile"]["test"]:
        copy = shutil.copy2(message["executable"], folder)
        manifest = message["manifest_path"]
        package = next(row.split('"')[1] for row in open(manifest) if row.startswith("name = "))
        print(copy, package, os.path.dirname(manifest), sep="|")
PYTHON
    [ -s "$folder/programs/$name.list" ] || die "part $name has no tests"
}

# Runs a part with a seed; its output goes to a file.
run() {
    local name=$1 arguments=$2 filters=$3 environment=${4//@/$5} program package package_folder
    if [ "$name" = "$compiled_anew" ]; then
        # shellcheck disable=SC2086 # Both are words.
        env $environment cargo test --quiet $arguments -- $filters
        return
    fi
    if [ "$name" = "$gate" ]; then
        scripts/mutants.sh
        return
    fi
    while IFS='|' read -r program package package_folder; do
        # shellcheck disable=SC2086 # Both are words.
        (cd "$package_folder" &&
            env CARGO_MANIFEST_DIR="$package_folder" CARGO_PKG_NAME="$package" RNIC_FAILURES="$folder/$name-$5" \
                $environment "$program" --nocapture $filters) || return
    done <"$folder/programs/$name.list"
}

step "building"
for part in "${parts[@]}"; do
    IFS='|' read -r name _ arguments _ _ _ <<<"$part"
    if is_wanted "$name" && [ "$name" != "$compiled_anew" ] && [ "$name" != "$gate" ]; then
        build "$name" "$arguments"
    fi
done

declare -A runs seconds failed
failures=()
interrupted=
trap 'interrupted=1' INT TERM
if [ -n "$seeds" ]; then
    step "running $seeds seeds from $first_seed on"
    deadline=
else
    step "running for $hours hours, from seed $first_seed on"
    deadline=$((SECONDS + $(awk -v hours="$hours" 'BEGIN { printf "%d", hours * 3600 }')))
fi

is_over() {
    [ -n "$interrupted" ] || { [ -n "$deadline" ] && [ "$SECONDS" -ge "$deadline" ]; }
}

soak_started=$SECONDS
for ((index = 0; ; index++)); do
    if is_over || { [ -n "$seeds" ] && [ "$index" -ge "$seeds" ]; }; then
        break
    fi
    seed=$((first_seed + index))
    ran=
    for part in "${parts[@]}"; do
        IFS='|' read -r name every arguments filters environment _ <<<"$part"
        is_wanted "$name" || continue
        if is_over; then
            break
        fi
        if [ "$every" = 0 ]; then
            [ "$index" = 0 ] || continue
        else
            [ $((index % every)) = 0 ] || continue
        fi
        ran=1
        log=$folder/$name-$seed.log
        run_started=$SECONDS
        verdict=ok
        run "$name" "$arguments" "$filters" "$environment" "$seed" >"$log" 2>&1 || verdict=FAILED
        # An interrupted run has no verdict.
        [ -z "$interrupted" ] || break
        runs[$name]=$((${runs[$name]:-0} + 1))
        seconds[$name]=$((${seconds[$name]:-0} + SECONDS - run_started))
        if [ "$verdict" = ok ]; then
            rm -f "$log"
        else
            failed[$name]=$((${failed[$name]:-0} + 1))
            again="${environment//@/$seed} cargo test $arguments -- --nocapture $filters"
            [ "$name" != "$gate" ] || again=scripts/mutants.sh
            failures+=("$name|$seed|$again")
        fi
        printf '[%s] %-11s seed %-8d %-6s %5d s; %d runs of this part, %d failed runs of all parts\n' \
            "$(clock $((SECONDS - soak_started)))" "$name" "$seed" "$verdict" $((SECONDS - run_started)) \
            "${runs[$name]}" ${#failures[@]}
        [ "$verdict" = ok ] ||
            printf '    output: %s\n    again:  %s\n' "${log#"$root"/}" "${failures[-1]##*|}"
    done
    # Only parts that run once are left.
    if [ -z "$ran" ] && [ "$index" -gt 100 ]; then
        break
    fi
done

{
    printf '\n%-11s %8s %8s %10s %10s\n' part runs failed time "a run"
    for part in "${parts[@]}"; do
        name=${part%%|*}
        [ -n "${runs[$name]:-}" ] || continue
        printf '%-11s %8d %8d %10s %8d s\n' "$name" "${runs[$name]}" "${failed[$name]:-0}" \
            "$(clock "${seconds[$name]}")" $((seconds[$name] / runs[$name]))
    done
    [ -z "$interrupted" ] || printf 'interrupted\n'
    for failure in "${failures[@]}"; do
        IFS='|' read -r name seed again <<<"$failure"
        printf '\n%s, seed %s: build/soak/%s-%s.log\n    %s\n' "$name" "$seed" "$name" "$seed" "$again"
    done
} | tee "$folder/summary.txt"
rm -rf "$folder/programs"
[ ${#failures[@]} = 0 ] || die "${#failures[@]} runs failed"
[ -n "${runs[*]:-}" ] || die "nothing was run"
step "no run failed"
