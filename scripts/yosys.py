#!/usr/bin/env python3
"""Yosys as a program, over the library of the Python wheel `pyosys`, which brings none.

    yosys [-q] [-l LOG] [-p COMMANDS] [SCRIPT ...]

Takes the options that the tests and SymbiYosys give. What Yosys says goes to LOG, or nowhere with -q alone; errors go to
standard error, with exit code 1. `scripts/setup.sh test` puts this file into .venv/bin as `yosys`.
"""
import argparse
import os

from pyosys import libyosys


def main():
    parser = argparse.ArgumentParser(prog="yosys", description="Synthesis and checks of Verilog.")
    parser.add_argument("-q", action="store_true", help="say nothing but errors")
    parser.add_argument("-l", metavar="LOG", help="write the log to this file")
    parser.add_argument("-p", metavar="COMMANDS", action="append", default=[], help="run these commands, separated by ';'")
    parser.add_argument("scripts", metavar="SCRIPT", nargs="*", help="run these files of commands first")
    options = parser.parse_args()

    # The library logs to standard output whatever is asked for.
    if options.l or options.q:
        log = os.open(options.l or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
    design = libyosys.Design()
    for script in options.scripts:
        libyosys.run_pass(f"script {script}", design)
    for commands in options.p:
        for command in filter(None, map(str.strip, commands.split(";"))):
            libyosys.run_pass(command, design)


main()
