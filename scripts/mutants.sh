#!/usr/bin/env bash
# The mutation gate: plants faults in card, driver and endpoint, and runs the tests of whole cards until one sees the fault.
# All faults of the card are in one model, and the one that runs is chosen when a test starts.
#
#   scripts/mutants.sh                         all mutants
#   scripts/mutants.sh --only psn --only keys  those whose name has one of these parts
#   scripts/mutants.sh --own                   each with the judge that saw it soonest before, in place of all
#   scripts/mutants.sh --sample                the few that scripts/test.sh runs, as with --own
#   scripts/mutants.sh --judge endpoint        with this judge alone; may be given several times
#   scripts/mutants.sh --limit 300             without the unchanged card; each judge may take 300 seconds
#   scripts/mutants.sh --jobs 4                as many mutants side by side; as many as there are cores if not given
#   scripts/mutants.sh --list                  judges and mutants
#
# Leaves build/mutants/summary.txt, and the output of each judge beside it. Exit code 1 if a mutant survived or broke its
# judge, and if a judge fails without a mutant. To repeat a judge by hand: RNIC_MUTANT=<name> cargo test -p rnic-sim
# --features mutants --test <program> -- <test>.
source "$(dirname "$0")/lib.sh"

case " $* " in
*" --list "* | *" -h "* | *" --help "*) exec cargo run --quiet -p rnic-mutants --bin rnic-mutants -- "$@" ;;
esac

scripts/setup.sh test
export PATH="$root/.venv/bin:$PATH" VIRTUAL_ENV="$root/.venv"
folder=$root/build/mutants
rm -rf "$folder"
mkdir -p "$folder"

step "building the judges"
# With the faults of driver and endpoint, which no other build has; of the whole workspace and with its tests, so that all else
# is what `cargo test --workspace` has compiled.
judges=(--test card --test refusals --test replay)
case " $* " in
*" --sample "*) ;;
*) judges+=(--test hostile --test protocol_runs) ;;
esac
cargo build --quiet --message-format=json-render-diagnostics --workspace --features rnic-sim/mutants \
    --bin rnic-mutants "${judges[@]}" >"$folder/programs.json" || die "the judges do not build"
mapfile -t programs < <(python3 - "$folder/programs.json" "$root" <<'PYTHON'
import json, sys

for line in open(sys.argv[1]):
    message = json.loads(line) if line.startswith("{") else {}
    # Another package may have a test of the same name.
    is_ours = message.get("manifest_path") == sys.argv[2] + "/sim/Cargo.toml"
    if is_ours and message.get("executable") and message["profile"]["test"]:
        print("--program", message["target"]["name"] + "=" + message["executable"], sep="\n")
PYTHON
)
[ ${#programs[@]} -gt 0 ] || die "there are no judges"

step "judging"
target=${CARGO_TARGET_DIR:-target}
"$target/debug/rnic-mutants" "${programs[@]}" --package "$root/sim" --output "$folder" "$@" ||
    die "a mutant was not caught, or a judge failed: see build/mutants/summary.txt and the logs beside it"
step "every mutant was caught"
