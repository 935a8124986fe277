#!/usr/bin/env python3
"""Compares the tables of docs/figures.md with what the programs say that made them; scripts/claims.sh tells how it is called."""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "build/claims"
SIMULATOR = ["cargo", "run", "--release", "--quiet", "-p", "rnic-sim", "--bin", "rnic-sim", "--"]

#: Columns of the tables, and the fields of the programs' results.
SIZE = {"LUT": "lut", "Flip-flops": "ff", "Block RAM": "bram", "UltraRAM": "uram", "Depth": "depth"}
SPEED = {"Million/s": "mmsg_per_s", "Payload, Gb/s": "payload_gbps", "% of the wire": "percent_of_wire"}
LOSS = {
    "Goodput, Gb/s": "gbps",
    "% of the wire": "percent_of_wire",
    "Bound for this window, %": "percent_bound",
}


class Off(Exception):
    """The document is not as it should be."""


def table(text, corner):
    """The rows of the table whose first column is called `corner`: pairs of the first cell and a mapping of all others."""
    lines = iter(text.splitlines())
    for line in lines:
        head = cells(line)
        if head and head[0] == corner:
            next(lines)
            rows = []
            for row in map(cells, lines):
                if not row:
                    return rows
                rows.append((row[0].strip("`"), dict(zip(head[1:], row[1:]))))
            return rows
    raise Off(f"docs/figures.md has no table whose first column is `{corner}`")


def cells(line):
    """The cells of a line of a table; none for another line."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []


def is_off(claim, measured):
    """Whether a figure is not the measured one, in the digits that it has."""
    digits = claim.replace(",", "")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", digits):
        raise Off(f"`{claim}` is no figure")
    return f"{measured:.{len(digits.partition('.')[2])}f}" != digits


def run(part, command):
    """Runs a program, shows what it says, and returns that; it is kept in build/claims."""
    OUT.mkdir(parents=True, exist_ok=True)
    said = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        for line in program.stdout:
            print(line, end="", flush=True)
            said.append(line)
    (OUT / f"{part}.txt").write_text("".join(said))
    if program.returncode:
        raise Off(f"{' '.join(command)} fails with {program.returncode}")
    return said


def size(text):
    run("size", ["scripts/synth_report.sh", "--only", "total"])
    found = json.loads((ROOT / "build/synth_report.json").read_text())["total"]
    ((lut, others),) = table(text, "LUT")
    for column, claim in {"LUT": lut, **others}.items():
        yield column, claim, found[SIZE[column]]


def speed(text):
    path = OUT / "speed.json"
    run("speed", [*SIMULATOR, "bench", "--config", "w512", "--quick", "--json", str(path)])
    found = json.loads(path.read_text())
    rows = {row["name"]: row for row in found["rows"]}
    for name, claims in table(text, "Messages"):
        if name not in rows:
            raise Off(f"the bench has no row {name}")
        for column, claim in claims.items():
            yield f"{name}, {column}", claim, rows[name][SPEED[column]]
    latency = {row["name"]: row for row in found["latency"]}
    for name, claims in table(text, "One message at a time"):
        for column, claim in claims.items():
            field = {"Doorbell to wire": "card_doorbell_to_wire", "Wire to CQE": "card_wire_to_completion"}[column]
            yield f"{name}, {column}", claim, latency[name][field]["median"]


def loss(text):
    path = OUT / "loss.json"
    run("loss", [*SIMULATOR, "goodput", "--against", "loss", "--json", str(path)])
    found = {f"{point['against']['loss']:g}": point for point in json.loads(path.read_text())}
    for name, claims in table(text, "Frames lost"):
        for percent, claim in claims.items():
            yield f"{percent} of all frames lost, {name}", claim, found[percent.removesuffix(" %")][LOSS[name]]


def neighbours(text):
    said = [line.split() for line in run("neighbours", [*SIMULATOR, "neighbours"])]
    # Gb/s, % of the fair share, latency, 64 B; the two columns that are left out are parts of the wire.
    measured = [(row[1], row[4], row[5], row[6]) for row in said if len(row) == 7 and re.fullmatch(r"[0-9.]+", row[1])]
    rows = table(text, "Neighbour")
    if len(rows) != len(measured):
        raise Off(f"{len(rows)} neighbours are claimed, {len(measured)} measured")
    for (name, claims), figures in zip(rows, measured):
        for (column, claim), figure in zip(claims.items(), figures):
            yield f"{name}, {column}", claim, float(figure)


PARTS = {"size": size, "speed": speed, "loss": loss, "neighbours": neighbours}


def main():
    chosen = sys.argv[1:] or list(PARTS)
    if unknown := [part for part in chosen if part not in PARTS]:
        sys.exit(f"error: unknown part '{unknown[0]}'; allowed: {', '.join(PARTS)}")
    text = (ROOT / "docs/figures.md").read_text()
    figures = wrong = 0
    for part in chosen:
        print(f"\n==> {part}", flush=True)
        try:
            for what, claim, measured in PARTS[part](text):
                # An empty cell claims nothing.
                if not claim:
                    continue
                figures += 1
                if is_off(claim, measured):
                    wrong += 1
                    print(f"off: {what}: docs/figures.md says {claim}, measured {measured}")
        except Off as error:
            wrong += 1
            print(f"error: {error}")
    print(f"\n{figures} figures compared, {wrong} off")
    sys.exit(wrong > 0 or figures == 0)


if __name__ == "__main__":
    main()
