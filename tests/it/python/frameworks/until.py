"""Ends a leaking job when somebody has been told where it leaks: when the file exists that `UNTIL` names."""

import os

# A training that nothing ends otherwise.
STEPS = 1_000_000


def is_over():
    return os.path.exists(os.environ["UNTIL"])
