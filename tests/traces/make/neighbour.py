"""Another process on the device, without a probe: it grows steadily from a certain moment on, or comes and goes."""

import itertools
import json
import os
import sys
import time

import torch
from harness import monotonic_us
from labels import NEIGHBOUR_BYTES

mode, wait_s, path = sys.argv[1], float(sys.argv[2]), sys.argv[3]
held, first_us = [], None
torch.empty(1, device="cuda")
time.sleep(wait_s)
for turn in itertools.count():
    first_us = first_us or monotonic_us()
    if mode == "moves" and turn // 12 % 2:
        held.clear()
        torch.cuda.empty_cache()
    else:
        held.append(torch.empty(NEIGHBOUR_BYTES, dtype=torch.uint8, device="cuda"))
    # It is killed at any moment, and its output must be complete.
    with open(path + ".new", "w") as file:
        json.dump({"first_us": first_us, "fell": len(held) * NEIGHBOUR_BYTES, "events": len(held)}, file)
    os.replace(path + ".new", path)
    time.sleep(0.5)
