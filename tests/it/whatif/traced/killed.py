# Allocates until three pieces of its trace are in the file, and is killed.
import glob
import os
import signal
import time

import gpuwatch_probe
import torch

folder = os.environ["GPUWATCH_TRACE"].partition(":")[2]
kept = []


def pieces():
    return sum(open(it, "rb").read().count(b'{"piece"') for it in glob.glob(folder + "/*.trace"))


for number in range(1, 4):
    for size in range(100):
        kept = kept[-20:] + [torch.empty((1 + size % 7) << 20, dtype=torch.uint8, device="cuda")]
    while pieces() < number:
        gpuwatch_probe._probe._trace.write_now()
        time.sleep(0.002)
os.kill(os.getpid(), signal.SIGKILL)
