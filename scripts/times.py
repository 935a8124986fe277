#!/usr/bin/env python3
"""Says where the time of scripts/test.sh went.

    times.py LOG CACHE < STEPS

STEPS has a line for each step: the second in which it began, and its name; the last one is the end. LOG is what `cargo test`
printed. CACHE is the folder of the verilated models, each of which notes the milliseconds of Verilator and of the C++ compiler.
"""

import pathlib
import re
import sys

#: Test programs that are listed: the longest ones.
PROGRAMS = 12


def steps(lines):
    """Pairs of the seconds that a step took and its name."""
    begun = [(int(second), name) for second, name in (line.rstrip("\n").split(" ", 1) for line in lines)]
    return [(after - before, name) for (before, name), (after, _) in zip(begun, begun[1:])]


def programs(log):
    """Pairs of the seconds that a test program took and its path, the longest first."""
    found, program = [], ""
    for line in log.splitlines():
        if match := re.match(r" *Running (?:unittests )?\S+ \(\S*?([^/]+)-[0-9a-f]{16}\)", line):
            program = match[1]
        elif match := re.match(r" *Doc-tests (\S+)", line):
            program = f"documentation of {match[1]}"
        elif match := re.search(r"^test result: .* finished in ([0-9.]+)s$", line):
            found.append((float(match[1]), program))
    return sorted(found, reverse=True)


def models(cache):
    """How many models there are, and the seconds of Verilator and of the C++ compiler."""
    noted = [[int(number) for number in path.read_text().split()] for path in cache.glob("*/times")]
    verilator, compiler = (sum(times) / 1000 for times in zip(*noted)) if noted else (0, 0)
    return len(noted), verilator, compiler


def main():
    log, cache = (pathlib.Path(argument) for argument in sys.argv[1:])
    print("seconds  step")
    for seconds, name in steps(sys.stdin):
        print(f"{seconds:7}  {name}")
    print(f"\nseconds  test program, the {PROGRAMS} longest")
    for seconds, name in programs(log.read_text(errors="replace"))[:PROGRAMS]:
        print(f"{seconds:7.0f}  {name}")
    count, verilator, compiler = models(cache)
    print(f"\n{count} verilated models: {verilator:.0f} s of Verilator and {compiler:.0f} s of the C++ compiler, side by side")


if __name__ == "__main__":
    main()
