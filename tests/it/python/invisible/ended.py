"""Programs with PyTorch in processes of their own: what is there once it is imported, what children see, and ends."""

import os
import subprocess
import sys

from reported import program, run, stable

HERE = os.path.dirname(os.path.abspath(__file__))


def python(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=HERE)
    return stable(done.stdout), stable(done.stderr), done.returncode


@program
def an_import_leaves():
    code = """
import json, sys, os
import torch
on = torch.ones(1, device='cuda')
opt = torch.optim.SGD([torch.nn.Parameter(on)], lr=1)
for _ in range(3): opt.step()
print(json.dumps({
 'modules': sorted(sys.modules), 'finders': [getattr(it, '__name__', type(it).__name__) for it in sys.meta_path],
 'loader': sorted(vars(torch.__spec__.loader)), 'torch': sorted(vars(torch)), 'cuda': sorted(vars(torch.cuda)),
 'path': sys.path, 'queued': [it.__qualname__ for it, _ in torch.cuda._queued_calls],
}))
"""
    out, error, status = python(code)
    import json

    return json.loads(out), error, status


@program
def an_end_after_training():
    code = """
import atexit, threading, torch, weakref
atexit.register(lambda: print('at exit', threading.active_count(), [it.name for it in threading.enumerate()]))
opt = torch.optim.SGD([torch.nn.Parameter(torch.ones(1, device='cuda'))], lr=1)
class It:
    def __del__(self): print('del')
opt.it = It()
weakref.finalize(opt, print, 'finalized')
for _ in range(3): opt.step()
"""
    return [python(code), python(code + "raise ValueError('the end')"), python(code + "import sys; sys.exit(5)")]


@program
def warnings_are_errors():
    code = "import torch; torch.optim.SGD([torch.nn.Parameter(torch.ones(1, device='cuda'))], lr=1).step(); print('done')"
    done = subprocess.run([sys.executable, "-W", "error::ResourceWarning", "-X", "dev", "-c", code], capture_output=True, text=True)
    return stable(done.stdout), stable(done.stderr), done.returncode


@program
def out_of_memory():
    code = """
import torch
try:
    torch.empty(1 << 50, device='cuda')
except torch.cuda.OutOfMemoryError as error:
    print(str(error)[:60], type(error).__mro__, error.args.__len__(), sorted(vars(error)))
    print(sorted(vars(torch.cuda.OutOfMemoryError)))
torch.empty(1 << 50, device='cuda')
"""
    out, error, status = python(code)
    return out, [it for it in error.splitlines() if "MiB" not in it], status


@program
def children_with_pytorch():
    code = """
import torch, os, sys
torch.ones(1, device='cuda')
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    opt = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1)
    opt.step()
    print(os.listdir('/proc/self/task').__len__(), flush=True)
    os._exit(3)
print(os.waitpid(pid, 0)[1])
"""
    return python(code)


if __name__ == "__main__":
    run()
