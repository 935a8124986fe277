#!/usr/bin/env bash
# Lets the kernel's own VFIO judge card and driver: boots a small Linux guest under QEMU whose PCI bus has the cards that
# `rnic-sim serve` serves, binds them to vfio-pci there, and runs a program of the driver and `rnic selftest` on /dev/vfio.
#
#   scripts/guest-vfio.sh                  two cards and one wire; first as they should not be opened, then as a user without rights,
#                                          who runs the example `messages` and all checks of the driver's suite
#   scripts/guest-vfio.sh --cards 1        one card, whose wire leads back to it
#   scripts/guest-vfio.sh --program PATH   another program alone: its arguments are the names of the cards, which RNIC_DEVICES has too
#                                          (a test of cargo takes them as filters, and runs nothing)
#
# QEMU (10.1 or later, for its client of vfio-user), kernel, busybox and lspci come from Debian packages, which are unpacked in
# build/guest and installed nowhere. Where to get them is taken from the machine's own sources of packages, with the suites of
# RNIC_GUEST_SUITES (trixie trixie-backports) in the place of theirs. No KVM is needed; the guest has an emulated IOMMU. What
# guest and server say stays in build/guest/{guest.log, serve.log}.
source "$(dirname "$0")/lib.sh"

cards=2 program=''
while [ $# -gt 0 ]; do
    case "$1" in
    --cards | --program)
        [ $# -gt 1 ] || die "$1 is followed by nothing"
        declare "${1#--}=$2"
        shift
        ;;
    -h | --help)
        sed -n '2,16s/^# \{0,1\}//p' "$root/scripts/guest-vfio.sh"
        exit 0
        ;;
    *) die "unknown argument '$1'; see --help" ;;
    esac
    shift
done
[[ $cards =~ ^[12]$ ]] || die "--cards is 1 or 2"
[ -z "$program" ] || [ -x "$program" ] || die "there is no program $program"

suites=${RNIC_GUEST_SUITES:-trixie trixie-backports}
folder=$root/build/guest
debian=$folder/debian
initramfs=$folder/initramfs
seconds_max=2400

# The private state of apt. The lists of packages are those of other suites, and nothing is known to be installed.
apt_options=(
    -o "Dir::Etc::sourcelist=$folder/apt/sources.list" -o "Dir::Etc::sourceparts=/dev/null"
    -o "Dir::Etc::preferences=/dev/null" -o "Dir::Etc::preferencesparts=/dev/null"
    -o "Dir::State=$folder/apt/state" -o "Dir::State::status=$folder/apt/status" -o "Dir::Cache=$folder/apt/cache"
    -o "APT::Sandbox::User=root" -o "APT::Install-Recommends=false" -q=1
)

# Writes the sources of packages: those of this machine that have its release, with other suites.
write_sources() {
    local release address keys suite
    release=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    # A file of stanzas, or lines of the old form.
    address=$(awk -v RS= -v release="$release" '
        $0 ~ "(^|\n)Suites:[^\n]* ?" release "( |\n|$)" && match($0, /(^|\n)URIs:[^\n]*/) {
            split(substr($0, RSTART, RLENGTH), words, /[ \n]+/)
            for (i in words) if (words[i] ~ /^[a-z]+:\/\//) { print words[i]; exit }
        }' /etc/apt/sources.list.d/*.sources 2>/dev/null || true)
    [ -n "$address" ] || address=$(awk -v release="$release" '
        $1 == "deb" { for (i = 2; i < NF; i++) if ($i ~ /^[a-z]+:\/\// && $(i + 1) == release) { print $i; exit } }
        ' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true)
    [ -n "$address" ] || die "this machine has no source of packages for its release '$release', from which others could be derived"
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e "$keys" ] || die "there is no $keys; the guest is made of Debian packages"
    for suite in $suites; do
        printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$address" "$suite"
    done >"$folder/apt/sources.list"
}

# Downloads and unpacks the packages, once.
get_packages() {
    local stamp="$suites: qemu, kernel, busybox, lspci; 1" first=${suites%% *} kernel package
    [ "$(cat "$folder/packages" 2>/dev/null)" != "$stamp" ] || return 0
    for package in apt-get dpkg; do
        command -v "$package" >/dev/null || die "there is no $package; the guest is made of Debian packages"
    done
    step "getting QEMU and a kernel from Debian packages (about 75 MB)"
    rm -rf "$folder/apt" "$debian"
    mkdir -p "$folder/apt/state/lists/partial" "$folder/apt/cache/archives/partial" "$debian"
    : >"$folder/apt/status"
    write_sources
    apt-get "${apt_options[@]}" update >"$folder/apt.log" 2>&1 || die "the lists of packages cannot be had; see $folder/apt.log"
    apt-get "${apt_options[@]}" -y -t "${suites##* }" -d install qemu-system-x86 busybox-static pciutils >>"$folder/apt.log" 2>&1 ||
        die "QEMU cannot be had from $suites; see $folder/apt.log"
    kernel=$(apt-cache "${apt_options[@]}" depends "linux-image-cloud-amd64/$first" | awk '/Depends:/ { print $2; exit }')
    [ -n "$kernel" ] || die "$first has no kernel; see $folder/apt.log"
    (cd "$folder/apt/cache/archives" && apt-get "${apt_options[@]}" download "$kernel/$first") >>"$folder/apt.log" 2>&1 ||
        die "$kernel cannot be had; see $folder/apt.log"
    for package in "$folder/apt/cache/archives/"*.deb; do dpkg -x "$package" "$debian"; done
    rm -rf "$folder/apt/cache"
    printf '%s' "$stamp" >"$folder/packages"
}

# in_debian <program> <arguments...>: runs an unpacked program with the libraries that were unpacked beside it.
in_debian() {
    local file=$debian/$1
    shift
    "$debian/usr/lib64/ld-linux-x86-64.so.2" --library-path "$debian/usr/lib/x86_64-linux-gnu" "$file" "$@"
}

# put <folder> <loader> <library path> <program>: copies a program with its libraries and the loader that finds them.
put() {
    local target=$initramfs/$1 library
    mkdir -p "$target"
    cp -L "$4" "$target/program"
    strip --strip-debug "$target/program" 2>/dev/null || true
    cp -L "$2" "$target/loader"
    "$2" ${3:+--library-path "$3"} --list "$4" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | while read -r library; do
        cp -L "$library" "$target/"
    done
}

# The first program of the guest. Each line that the log is searched for begins with a mark, so that no message of the kernel
# passes for it.
write_init() {
    cat >"$initramfs/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
for module in $(cat /modules/order); do insmod /modules/$module; done
cards=
for function in /sys/bus/pci/devices/*; do
    if [ "$(cat $function/vendor) $(cat $function/device)" = "0x1af4 0x10f0" ]; then cards="$cards ${function##*/}"; fi
done
names=
for card in $cards; do names="$names pci:$card,time-scale=1000"; done
names=${names# }
export RNIC_DEVICES="$names" RUST_BACKTRACE=1
run() { /app/loader --library-path /app /app/program "$@"; }
# The same as a user without rights.
run_as_nobody() { su nobody -c "/app/loader --library-path /app /app/program $*"; }
# The driver refuses, and says <text>.
refused() {
    mark=$1 text=$2
    shift 2
    said=$("$@" 2>&1) && { echo "GUEST $mark: not refused"; return; }
    case "$said" in
    *"$text"*) echo "GUEST $mark: ok" ;;
    *) echo "GUEST $mark: $said" ;;
    esac
}
if [ -e /refusals ]; then refused unbound "is bound to no driver, not to vfio-pci" run $names; fi
for card in $cards; do
    echo vfio-pci >/sys/bus/pci/devices/$card/driver_override
    echo $card >/sys/bus/pci/drivers_probe
    group=$(readlink /sys/bus/pci/devices/$card/iommu_group)
    groups="$groups /dev/vfio/${group##*/}"
done
echo "GUEST groups:" $groups
first=${groups# }
first=${first%% *}
if [ -e /refusals ]; then
    refused permission "this user may not open $first" run_as_nobody $names
    exec 3<>$first
    refused in-use "another process has opened $first" run $names
    exec 3>&-
    chown nobody $groups
    ulimit -l 64
    refused locked "this process may lock 65536 bytes" run_as_nobody $names
    ulimit -l unlimited
    run_as_nobody $names
    echo "GUEST program: status $?"
    su nobody -c "/suite/loader --library-path /suite /suite/program selftest $names"
    echo "GUEST suite: status $?"
else
    run $names
    echo "GUEST program: status $?"
fi
for card in $cards; do /lspci/loader --library-path /lspci /lspci/program -i /lspci/pci.ids -vv -s $card; done
dmesg | grep -iE "vfio|dmar|iommu"
echo "GUEST end"
poweroff -f
INIT
    chmod +x "$initramfs/init"
}

# Makes the file system of the guest: busybox, the modules of VFIO, lspci and the program.
make_initramfs() {
    local kernel module modules
    rm -rf "$initramfs"
    mkdir -p "$initramfs"/{bin,etc,proc,sys,dev,modules}
    printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$initramfs/etc/passwd"
    cp "$debian"/*bin/busybox "$initramfs/bin/" 2>/dev/null || cp "$debian/usr/bin/busybox" "$initramfs/bin/"
    kernel=$(echo "$debian"/usr/lib/modules/*/kernel "$debian"/lib/modules/*/kernel | tr ' ' '\n' | grep -v '\*' | head -1)
    modules="virt/lib/irqbypass drivers/vfio/vfio drivers/vfio/vfio_iommu_type1 drivers/vfio/pci/vfio-pci-core drivers/vfio/pci/vfio-pci"
    for module in $modules; do
        xz -dc "$kernel/$module.ko.xz" >"$initramfs/modules/${module##*/}.ko"
        printf '%s\n' "${module##*/}.ko"
    done >"$initramfs/modules/order"
    put lspci "$debian/usr/lib64/ld-linux-x86-64.so.2" "$debian/usr/lib/x86_64-linux-gnu" "$debian/usr/bin/lspci"
    cp "$debian/usr/share/misc/pci.ids" "$initramfs/lspci/"
    put app /lib64/ld-linux-x86-64.so.2 '' "$1"
    if [ -z "$program" ]; then
        touch "$initramfs/refusals"
        put suite /lib64/ld-linux-x86-64.so.2 '' "$2"
    fi
    write_init
    (cd "$initramfs" && find . | ./bin/busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$folder/initramfs.gz"
}

[ "$(uname -m)" = x86_64 ] || die "the guest needs a machine with x86_64, whose programs it runs"
mkdir -p "$folder"
get_packages
step "compiling"
if [ -z "$program" ]; then
    cargo build --quiet -p rnic-driver --example messages -p rnic-cli --bin rnic
    target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    make_initramfs "$target/debug/examples/messages" "$target/debug/rnic"
else
    make_initramfs "$program"
fi
cargo build --quiet -p rnic-sim --bin rnic-sim

step "serving $cards cards, and booting the guest"
run=$(mktemp -d)
server='' guest=''
# Ends what this script has started.
end() {
    [ -z "$guest" ] || kill "$guest" 2>/dev/null || true
    [ -z "$server" ] || kill -INT "$server" 2>/dev/null || true
    wait
    rm -rf "$run"
}
trap end EXIT
sockets=() devices=()
for ((card = 0; card < cards; card++)); do
    sockets+=(--socket "$run/card$card")
    devices+=(-device "pcie-root-port,id=port$card,chassis=$card,slot=$card")
    devices+=(-device "{\"driver\":\"vfio-user-pci\",\"bus\":\"port$card\",\"socket\":{\"path\":\"$run/card$card\",\"type\":\"unix\"}}")
done
target=${target:-$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')}
"$target/debug/rnic-sim" serve "${sockets[@]}" >"$folder/serve.log" 2>&1 &
server=$!
# The first start verilates and compiles the card.
for ((try = 0; try < 3000; try++)); do
    [ ! -S "$run/card$((cards - 1))" ] || break
    kill -0 "$server" 2>/dev/null || die "the server has ended; see $folder/serve.log"
    sleep 0.1
done

in_debian usr/bin/qemu-system-x86_64 -L "$debian/usr/share/qemu" -L "$debian/usr/share/seabios" \
    -machine q35,memory-backend=memory -m 512M -smp 1 -accel tcg \
    -object memory-backend-memfd,id=memory,size=512M,share=on \
    -device intel-iommu,intremap=on,caching-mode=on "${devices[@]}" \
    -nodefaults -no-user-config -display none -serial stdio -no-reboot \
    -kernel "$(echo "$debian"/boot/vmlinuz-*)" -initrd "$folder/initramfs.gz" \
    -append "console=ttyS0 intel_iommu=on no_timer_check nowatchdog panic=-1 quiet" </dev/null >"$folder/guest.log" 2>&1 &
guest=$!
for ((try = 0; try < seconds_max * 10; try++)); do
    kill -0 "$guest" 2>/dev/null || break
    sleep 0.1
done
if kill -0 "$guest" 2>/dev/null; then
    tail -n 30 "$folder/guest.log"
    die "the guest has not ended after $seconds_max s; see $folder/guest.log"
fi
guest=''
kill -INT "$server"
wait "$server" || die "the server has failed; see $folder/serve.log"
server=''

step "what the guest says"
tr -d '\r' <"$folder/guest.log" | sed 's/\x1b[^a-zA-Z]*[a-zA-Z]//g' >"$folder/guest.txt" && mv "$folder/guest.txt" "$folder/guest.log"
sed -n '/GUEST\|^pci:\|: ok\|^  \(passed\|failed\|not run\)\|^[0-9]* passed\|^[0-9a-f].*Ethernet\|Region\|MSI-X\|FLReset+\|Kernel driver/p' "$folder/guest.log"
grep "^card" "$folder/serve.log"

# expect <count> <text>: fails unless so many lines of the guest have the text.
expect() {
    local count
    count=$(grep -cF -- "$2" "$folder/guest.log" || true)
    [ "$count" -ge "$1" ] || die "the guest has said '$2' $count times and not $1; see $folder/guest.log"
}
expect 1 "GUEST end"
expect 1 "GUEST program: status 0"
if [ -z "$program" ]; then
    for refusal in unbound permission in-use locked; do expect 1 "GUEST $refusal: ok"; done
    expect 1 "GUEST suite: status 0"
    expect 1 " 0 failed, 0 not run"
fi
expect "$cards" "FLReset+"
expect "$cards" "MSI-X: Enable"
expect "$cards" "Kernel driver in use: vfio-pci"
# The card has no error of its own to report to the guest, which QEMU warns of.
! grep -E "^(qemu-system|vfio_)" "$folder/guest.log" | grep -v "warning: .*Could not enable error recovery" ||
    die "QEMU has complained; see $folder/guest.log"
step "the kernel's VFIO agrees with card and driver"
