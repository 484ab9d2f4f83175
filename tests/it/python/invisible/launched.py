"""Programs of their own, each in an interpreter of its own: what it prints, and how it ends."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import zipapp

from reported import program, run, stable

FOLDER = tempfile.mkdtemp()


def python(*arguments, given=None, **environment):
    named = {key: it for key, it in {**os.environ, **environment}.items() if it is not None}
    done = subprocess.run([sys.executable, *arguments], input=given, capture_output=True, text=True, env=named, timeout=60)
    # The times of imports differ in each run.
    error = re.sub(r"(?m)^import time: +\d+ \| +\d+ \|", "import time:", done.stderr).replace(FOLDER, "FOLDER")
    error = stable(error)
    return done.stdout.replace(FOLDER, "FOLDER").splitlines(), error.splitlines(), done.returncode


def file(name, text):
    path = os.path.join(FOLDER, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as it:
        it.write(text)
    return path


LOOK = """
import sys
print(sys.flags, sys.argv, *sys.modules, *sys.path, *(getattr(it, "__name__", type(it).__name__) for it in sys.meta_path), sep="\\n")
"""


@program
def isolated():
    return python("-I", "-c", LOOK)


@program
def without_site():
    return python("-S", "-c", LOOK)


@program
def without_environment():
    return python("-E", "-c", LOOK)


@program
def without_folder_of_the_user():
    return python("-s", "-c", LOOK)


@program
def optimized():
    return python("-OO", "-c", "assert False; print(__debug__)"), python("-B", "-u", "-c", "print(1)"), python("-b", "-c", "")


@program
def errors_of_warnings():
    return python("-W", "error", "-c", "import sys; print(sys.warnoptions)"), python("-X", "dev", "-c", "print(1)")


@program
def times_of_imports():
    return python("-X", "importtime", "-c", "import colorsys")[1]


@program
def imports_reported():
    return [it for it in python("-v", "-c", "pass")[1] if it.startswith("import ")]


@program
def a_module():
    return python("-m", "this"), python("-m", "no_such_module"), python("-m", "site", "--user-site")


@program
def a_package():
    file("package/__init__.py", "")
    file("package/__main__.py", "import sys; print(__name__, __package__, sys.argv[1:])")
    return python("-m", "package", "one", PYTHONPATH=FOLDER + os.pathsep + os.environ.get("PYTHONPATH", ""))


@program
def an_archive():
    file("app/__main__.py", "import sys; print(__file__, sys.path[0], len(sys.argv))")
    zipapp.create_archive(os.path.join(FOLDER, "app"), os.path.join(FOLDER, "app.pyz"))
    return python(os.path.join(FOLDER, "app.pyz"), "one")


@program
def standard_input():
    return python(given="print(1 + 1, __name__)\nraise SystemExit(7)\n"), python("-", "one", given="import sys; print(sys.argv)")


@program
def interactive():
    return python("-i", "-q", given="1 + 1\n1/0\nexit()\n")


@program
def exit_codes():
    ends = ["sys.exit()", "sys.exit(3)", "sys.exit('text')", "sys.exit(-1)", "sys.exit(256)", "os._exit(9)", "1/0",
            "raise SystemExit(None)", "raise KeyboardInterrupt", "os.kill(os.getpid(), 15)", "os.abort()",
            "exec('(')", "raise Exception('\\ud800')", "sys.stdout.close()", "sys.setrecursionlimit(50); f = lambda: f(); f()"]
    return [python("-c", "import os, sys\n" + it) for it in ends]


@program
def a_program_that_executes_itself():
    path = file("again.py", "import os, sys\nprint(len(sys.argv), sys.path[0], flush=True)\n"
                "if len(sys.argv) < 4: os.execv(sys.executable, [sys.executable, *sys.argv, 'more'])\n")
    return python(path, "one")


@program
def what_customizes():
    folder = os.path.dirname(file("custom/sitecustomize.py", "import sys; print('site', __file__, __name__, __spec__.name)"))
    file("custom/usercustomize.py", "print('user', __name__)")
    path = folder + os.pathsep + os.environ.get("PYTHONPATH", "")
    after = os.environ.get("PYTHONPATH", "") + os.pathsep + folder
    code = "import sitecustomize, sys; print(sitecustomize.__file__, 'sitecustomize' in sys.modules)"
    return python("-c", code, PYTHONPATH=path), python("-c", code, PYTHONPATH=after.lstrip(os.pathsep))


@program
def an_order_of_ends():
    code = """
import atexit, threading, weakref
class It:
    def __del__(self): print('del', self.name)
one, two = It(), It()
one.name, two.name, two.me = 'one', 'two', two
weakref.finalize(one, print, 'finalized')
atexit.register(print, 'first')
atexit.register(lambda: print('last', threading.active_count()))
threading.Thread(target=lambda: print('thread')).start()
"""
    return python("-c", code)


@program
def signals_end_it():
    ends = []
    # What starts the tests may ignore interrupts, and a signal must come at a line that is always the same.
    code = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
signals = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print(1, flush=True)
while not signal.sigpending(): time.sleep(0.01)
signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
"""
    for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        child.stdout.readline()
        child.send_signal(which)
        ends.append((child.communicate(), child.returncode))
    return ends


@program
def a_crash():
    out, error, code = python("-X", "faulthandler", "-c", "import ctypes; ctypes.string_at(0)")
    return out, [it for it in error if "File" in it or "Fatal" in it], code


@program
def a_closed_output():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", "print('x' * 100000)"], stdout=write, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


@program
def tools_of_python():
    test = file("test_one.py", "import unittest\nclass It(unittest.TestCase):\n def test(self): assert 1 + 1 == 2\n")
    run_test = python("-m", "unittest", "-q", test)
    return [it for it in run_test[1] if " in " not in it], run_test[2], python("-m", "trace", "--count", "--summary", "-C", FOLDER, file("one.py", "x = 1\n"))[0][:3]


@program
def rewritten_imports():
    """As pytest does: a finder before all others, and a loader that changes what it loads."""
    file("rewritten.py", "value = 1\n")
    code = """
import importlib.machinery as m, sys
class Loader(m.SourceFileLoader):
    def get_data(self, path): return b'value = 2'
class Finder:
    def find_spec(self, name, path=None, target=None):
        spec = m.PathFinder.find_spec(name, path, target)
        if name == 'rewritten':
            spec.loader = Loader(name, spec.origin)
            return spec
sys.meta_path.insert(0, Finder())
sys.dont_write_bytecode = True
import rewritten
print(rewritten.value)
"""
    return python("-c", code, PYTHONPATH=FOLDER + os.pathsep + os.environ.get("PYTHONPATH", ""))


@program
def a_torch_of_the_user():
    """A module that is named like PyTorch, found and loaded as the job wants it."""
    file("own/torch.py", "import sys\nprint(__name__, __spec__.name, type(__loader__).__name__, sorted(vars(__loader__)))\n")
    code = """
import importlib.util, sys
print(importlib.util.find_spec('torch').origin)
import torch
print(sorted(vars(torch)), type(torch.__loader__), sorted(vars(torch.__loader__)), 'torch' in sys.modules)
import importlib; importlib.reload(torch)
del sys.modules['torch']
import torch as again
print(again is torch, *[n for n in sys.modules if 'torch' in n], sep='\\n')
"""
    path = os.path.join(FOLDER, "own") + os.pathsep + os.environ.get("PYTHONPATH", "")
    failing = file("failing/torch.py", "raise RuntimeError('no')")
    return python("-c", code, PYTHONPATH=path), python("-c", "import torch", PYTHONPATH=os.path.dirname(failing) + os.pathsep + os.environ.get("PYTHONPATH", ""))


if __name__ == "__main__":
    run()
