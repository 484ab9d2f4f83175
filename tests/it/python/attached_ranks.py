"""Starts four ranks with torchrun, attaches to all of them, and prints what came of it as JSON.

    attached_ranks.py GPUWATCH SCRIPT
"""

import json
import os
import subprocess
import sys
import time

gpuwatch, script = sys.argv[1:]
launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", script]
torchrun = subprocess.Popen(launcher, stdout=subprocess.PIPE)
# The first rank prints once all of them have trained.
torchrun.stdout.readline()
attach = subprocess.run([gpuwatch, "attach", "--all", "--wait", "5m"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
printed = (attach.stdout + attach.stderr).decode()
if attach.returncode:
    sys.exit(printed)
found = sum(name.endswith(".sock") for name in os.listdir(os.environ["GPUWATCH_SOCKET_DIR"]))
recordings = os.path.join(os.environ["XDG_STATE_HOME"], "gpuwatch", "recordings")


def check():
    names = [os.path.join(recordings, name) for name in os.listdir(recordings)]
    output = subprocess.run([gpuwatch, "check", "--json", *names], stdout=subprocess.PIPE).stdout
    return json.loads(output)


while sum(it["rank"] is not None for it in check()["processes"]) < 4:
    time.sleep(0.1)
open("go-on", "w").close()
code = torchrun.wait()
# The recorder ends after the job.
while not check()["end_recorded"]:
    time.sleep(0.1)
print(json.dumps({"attach": {"code": attach.returncode, "printed": printed}, "sockets": found, "torchrun": code, "check": check()}))
