"""Runs the programs of a file, each a function, and prints what each has seen as a line of JSON."""

import json
import os
import re
import sys
import traceback

PROGRAMS = []


def program(function):
    """A program of a file: a function that returns what it sees, as JSON."""
    PROGRAMS.append(function)
    return function


def stable(text):
    """Text without addresses and process ids."""
    return re.sub(r"0x[0-9a-f]+", "0x", text).replace(str(os.getpid()), "PID")


def run():
    """Runs those that the arguments name, or all of them."""
    wanted = sys.argv[1:]
    for function in PROGRAMS:
        is_imported = function.__module__ != "__main__"
        if is_imported or wanted and function.__name__ not in wanted:
            continue
        try:
            seen = function()
        except BaseException:
            seen = stable(traceback.format_exc())
        print(json.dumps({"program": function.__name__, "seen": seen}, default=repr), flush=True)
