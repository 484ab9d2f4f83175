"""Ends a leaking job once its culprit was reported: when the file that `UNTIL` names exists."""

import os

# A training that nothing ends otherwise.
STEPS = 1_000_000


def is_over():
    return os.path.exists(os.environ["UNTIL"])
