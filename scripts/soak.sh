#!/usr/bin/env bash
# Random tests for hours, on all cores of this machine or on many machines. The parts are in scripts/soak.toml; the options
# are those of scripts/soak.py, which --help lists.
source "$(dirname "$0")/lib.sh"

case " $* " in
*" --help "* | *" -h "* | *" --list "*) exec python3 scripts/soak.py "$@" ;;
esac
scripts/setup.sh soak
export PATH="$root/.venv/bin:$PATH" VIRTUAL_ENV="$root/.venv"
exec .venv/bin/python scripts/soak.py "$@"
