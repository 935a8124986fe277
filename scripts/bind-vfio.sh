#!/usr/bin/env bash
# Gives a PCI function to programs of this machine: binds it to vfio-pci, so that the driver can open it as pci:<address>.
#
#   scripts/bind-vfio.sh 0000:65:00.0                shows what it would do, and changes nothing
#   scripts/bind-vfio.sh --yes 0000:65:00.0          does it, as root or with sudo
#   scripts/bind-vfio.sh --yes --user me 0000:65:00.0   does it, and lets this user open the function
#   scripts/bind-vfio.sh --undo 0000:65:00.0         gives the function back to the kernel
#
# Nothing survives a restart of the machine. RNIC_ROOT is another root of the file system, for tests.
source "$(dirname "$0")/lib.sh"

usage() {
    sed -n '2,9s/^# \{0,1\}//p' "$root/scripts/bind-vfio.sh"
}

mode=show user='' address=''
while [ $# -gt 0 ]; do
    case "$1" in
    --yes) mode=bind ;;
    --undo) mode=undo ;;
    --user)
        [ $# -gt 1 ] || die "--user is followed by no name of a user"
        user=$2
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    -*) die "unknown option '$1'; see --help" ;;
    *)
        [ -z "$address" ] || die "one function at a time: $address or $1"
        address=$1
        ;;
    esac
    shift
done
[ -n "$address" ] || die "no function is named; write its address, as in $0 0000:65:00.0"
[[ $address =~ ^([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]$ ]] ||
    die "'$address' is no address of a PCI function; write domain, bus, device and function, as in 0000:65:00.0"
address=${address,,}
[[ $address == *:*:* ]] || address=0000:$address

base=${RNIC_ROOT:-}
pci=$base/sys/bus/pci
function=$pci/devices/$address
[ -d "$function" ] || die "there is no PCI function $address; 'lspci -D' lists those that there are"

# name_of <link>: the last part of what a link refers to, or nothing.
name_of() {
    local target
    target=$(readlink "$1") && printf '%s' "${target##*/}" || true
}

# driver_of <address>: the driver of a function, or 'no driver'.
driver_of() {
    local name
    name=$(name_of "$pci/devices/$1/driver")
    printf '%s' "${name:-no driver}"
}

# value <file>: its content, or nothing.
value() {
    cat "$1" 2>/dev/null || true
}

# write <text> <file>: what a root shell would do, with sudo if need be.
write() {
    if [ -w "$2" ]; then printf '%s\n' "$1" >"$2"; else printf '%s\n' "$1" | as_root tee "$2" >/dev/null; fi
}

# change <description> <command...>: says what is done, and does it unless this is a show.
change() {
    printf '  %s\n' "$1"
    shift
    [ "$mode" = show ] || "$@"
}

# wait_for_driver <name>: the kernel binds while it is written to; this is for slow ones.
wait_for_driver() {
    local try
    for try in {1..40}; do
        [ "$(driver_of "$address")" != "$1" ] || return 0
        sleep 0.05
    done
    return 1
}

found="$(value "$function/vendor"):$(value "$function/device")"
subsystem="$(value "$function/subsystem_vendor"):$(value "$function/subsystem_device")"
driver=$(driver_of "$address")
group=$(name_of "$function/iommu_group")

if [ "$mode" = undo ]; then
    [ "$driver" = vfio-pci ] || die "$address has $driver, so there is nothing to undo"
    printf '%s goes back to the kernel:\n' "$address"
    change "no driver is preferred any more" write '' "$function/driver_override"
    change "vfio-pci lets it go" write "$address" "$function/driver/unbind"
    change "the kernel looks for a driver" write "$address" "$pci/drivers_probe"
    printf '%s has %s\n' "$address" "$(driver_of "$address")"
    exit 0
fi

# The numbers of rnic-layout: a network card of somebody else is not to lose its driver by a slip.
[ "$found $subsystem" = "0x1af4:0x10f0 0x1af4:0x726e" ] ||
    die "$address is no rnic card: it is $found, subsystem $subsystem, and a card is 0x1af4:0x10f0, subsystem 0x1af4:0x726e"
[ -n "$group" ] ||
    die "$address is behind no IOMMU that the kernel uses; enable VT-d or AMD-Vi in the firmware, and start the kernel with intel_iommu=on (Intel) or without iommu=off (AMD)"

printf '%s: %s, subsystem %s, IOMMU group %s, %s\n' "$address" "$found" "$subsystem" "$group" "$driver"
for member in "$base/sys/kernel/iommu_groups/$group/devices/"*; do
    other=${member##*/}
    other_driver=$(driver_of "$other")
    case "$other_driver" in
    vfio-pci | pci-stub | pcieport | 'no driver') ;;
    *)
        [ "$other" = "$address" ] ||
            printf 'warning: %s of the same group has the driver %s; the group cannot be opened until that is unbound, too\n' "$other" "$other_driver" >&2
        ;;
    esac
done

if [ "$mode" = show ]; then printf 'with --yes:\n'; else printf 'doing:\n'; fi
if [ ! -d "$pci/drivers/vfio-pci" ]; then
    change "the module vfio-pci is loaded" as_root modprobe vfio-pci
fi
if [ "$driver" != vfio-pci ]; then
    change "vfio-pci is preferred, for this function only" write vfio-pci "$function/driver_override"
    if [ "$driver" != 'no driver' ]; then
        change "the driver $driver lets it go" write "$address" "$function/driver/unbind"
    fi
    change "vfio-pci takes it" write "$address" "$pci/drivers_probe"
fi
if [ "$mode" = bind ]; then
    wait_for_driver vfio-pci || die "$address has $(driver_of "$address") and not vfio-pci; see the messages of the kernel"
fi
if [ -n "$user" ]; then
    change "$user owns /dev/vfio/$group" as_root chown "$user" "$base/dev/vfio/$group"
fi
limit=$(ulimit -l)
if [ "$limit" != unlimited ] && [ "$limit" -lt 1048576 ]; then
    printf 'note: a process of this shell may lock %s KiB, in which all memory of its cards must fit; raise that with ulimit -l\n' "$limit"
fi
if [ "$mode" = bind ]; then
    printf 'ready: pci:%s\n' "$address"
fi
