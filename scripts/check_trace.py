#!/usr/bin/env python3
"""Checks a capture with two independent tools.

    .venv/bin/python scripts/check_trace.py build/demo/trace.pcap

* tshark must decode every frame as RoCEv2, and none as malformed. Its heuristic dissectors of payload are disabled: they
  take the random payload of short SENDs for RPC over RDMA, and report it as malformed.
* scapy must compute the same ICRC for every frame, and another one for a sample of frames in which one bit is flipped.
"""
import random
import subprocess
import sys

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader

NO_HEURISTICS = ["--disable-protocol", "rpcordma", "--disable-heuristic", "eth_over_ib"]
FLIPPED_EVERY = 100


def packet(frame):
    """The bytes from Ethernet to the end of the ICRC; a MAC may have padded the frame after it."""
    ether = Ether(frame)
    if IP in ether:
        return frame[: len(frame) - len(ether[IP].original) + ether[IP].len]
    if IPv6 in ether:
        return frame[: len(frame) - len(ether[IPv6].original) + 40 + ether[IPv6].plen]
    raise SystemExit(f"neither IPv4 nor IPv6: {frame.hex()}")


def icrc_agrees(frame):
    ether = Ether(frame)
    if BTH not in ether:
        return False
    return ether[BTH].compute_icrc(frame[-4:]) == frame[-4:]


def check_icrc(path):
    chance = random.Random(1)
    frames = 0
    for frame, _ in RawPcapReader(path):
        frame = packet(frame)
        if not icrc_agrees(frame):
            raise SystemExit(f"frame {frames}: scapy computes another ICRC: {frame.hex()}")
        if frames % FLIPPED_EVERY == 0:
            # The last byte before the ICRC; whatever it is, it is covered.
            flipped = bytearray(frame)
            flipped[-5] ^= 1 << chance.randrange(8)
            if icrc_agrees(bytes(flipped)):
                raise SystemExit(f"frame {frames}: scapy does not see a flipped bit")
        frames += 1
    return frames


def tshark_count(path, display_filter):
    command = ["tshark", "-n", "-r", path, *NO_HEURISTICS, "-Y", display_filter, "-T", "fields", "-e", "frame.number"]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if found.returncode != 0:
        raise SystemExit(f"failed: {' '.join(command)}")
    return len(found.stdout.split())


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    path = sys.argv[1]
    frames = check_icrc(path)
    if frames == 0:
        raise SystemExit(f"{path} holds no frame")
    roce = tshark_count(path, "infiniband.bth && udp.dstport == 4791")
    malformed = tshark_count(path, "_ws.malformed")
    if (roce, malformed) != (frames, 0):
        raise SystemExit(f"of {frames} frames tshark sees {roce} as RoCEv2, and {malformed} as malformed")
    print(f"{path}: {frames} frames; tshark decodes all as RoCEv2 and none as malformed, scapy computes the same ICRCs")


main()
