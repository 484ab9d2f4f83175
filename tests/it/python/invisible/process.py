"""Programs without PyTorch: what a process sees of itself and of the interpreter."""

import asyncio
import atexit
import builtins
import faulthandler
import gc
import io
import multiprocessing
import os
import resource
import signal
import site
import subprocess
import sys
import threading
import traceback
import warnings

from reported import program, run, stable


@program
def modules():
    return [name for name in sys.modules]


@program
def import_system():
    finders = [getattr(it, "__name__", type(it).__name__) for it in sys.meta_path]
    return finders, len(sys.path_hooks), sys.path, sorted(sys.path_importer_cache), sys.dont_write_bytecode


@program
def names_of_builtins():
    return sorted(vars(builtins)), sorted(vars(sys)), sorted(vars(site)), sorted(vars(os))


@program
def flags():
    return str(sys.flags), sys.warnoptions, sorted(sys._xoptions), sys.argv[0].rpartition("/")[2], sys.orig_argv[1:]


@program
def local_names():
    names = {}
    exec("import sys\nseen = sorted(locals())", names)
    return names["seen"], sorted(name for name in vars(sys.modules["__main__"]) if name.startswith("__"))


@program
def filters_of_warnings():
    with warnings.catch_warnings(record=True) as seen:
        warnings.warn("one")
    return [str(it) for it in warnings.filters], len(seen)


@program
def environment():
    return ["=".join(it) for it in sorted(os.environ.items())]


@program
def environment_of_a_child():
    lines = subprocess.run(["env", "-0"], capture_output=True, check=True, text=True).stdout.split("\0")
    return sorted(it for it in lines if not it.startswith("_="))


@program
def file_descriptors():
    with open(os.devnull) as one, open(os.devnull) as other:
        return one.fileno(), other.fileno(), sorted(map(int, os.listdir("/proc/self/fd")))


@program
def inherited():
    mask = os.umask(0)
    os.umask(mask)
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT")}
    return mask, os.getcwd() == os.environ["PWD"], limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)


@program
def signals():
    handlers = [(int(it), repr(signal.getsignal(it))) for it in signal.valid_signals() if signal.getsignal(it)]
    status = [it for it in open("/proc/self/status") if it.startswith(("Sig", "Shd"))]
    return handlers, [str(it) for it in signal.pthread_sigmask(signal.SIG_BLOCK, ())], status[1:], signal.set_wakeup_fd(-1)


@program
def threads():
    return threading.active_count(), [it.name for it in threading.enumerate()], os.listdir("/proc/self/task").__len__()


@program
def interpreter():
    return [
        sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), repr(sys.excepthook),
        repr(sys.displayhook), repr(sys.unraisablehook), repr(threading.excepthook), sys.get_asyncgen_hooks()[0],
        faulthandler.is_enabled(), sys.getfilesystemencoding(), sys.stdout.encoding, sys.stderr.errors, sys.prefix,
        sys.exec_prefix, sys.get_coroutine_origin_tracking_depth(), sys.flags.hash_randomization, sys.executable,
    ]


@program
def collector():
    return gc.get_threshold(), gc.isenabled(), len(gc.callbacks), gc.get_freeze_count(), len(gc.garbage), gc.get_debug()


@program
def depth_of_recursion():
    def down(depth):
        try:
            return down(depth + 1)
        except RecursionError:
            return depth

    return down(0)


@program
def text_of_errors():
    texts = []
    for code in ("1/0", "import no_such_module", "import json.no_such_module", "x = (", "open('/nowhere')"):
        try:
            exec(compile(code, "job.py", "exec"))
        except BaseException:
            texts.append(traceback.format_exc())
    return texts


@program
def a_finder_of_the_user():
    """As tools that rewrite what they import, such as pytest, do."""
    asked = []

    class Finder:
        def find_spec(self, name, path=None, target=None):
            asked.append(name)

    finder = Finder()
    sys.meta_path.insert(0, finder)
    try:
        import no_such_module_either  # noqa: F401
    except ImportError:
        pass
    import colorsys  # noqa: F401

    sys.meta_path.remove(finder)
    return asked, [type(it).__name__ for it in sys.meta_path if isinstance(it, Finder)]


@program
def a_module_that_is_reloaded():
    import importlib

    import this_is_ours

    again = importlib.reload(this_is_ours)
    return again is this_is_ours, this_is_ours.__spec__.origin, this_is_ours.__loader__.__class__.__name__


@program
def calls_of_an_import():
    events = []
    sys.settrace(lambda frame, event, arg: events.append(frame.f_code.co_filename.rpartition("/")[2]))
    import fractions  # noqa: F401

    sys.settrace(None)
    return sorted(set(events))


@program
def loops():
    async def body():
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: None)
        await asyncio.sleep(0)
        return type(loop).__name__, len(asyncio.all_tasks())

    return asyncio.run(body())


def child(pipe):
    pipe.send((sorted(name for name in sys.modules), threading.active_count(), [type(it).__name__ for it in sys.meta_path]))


@program
def children():
    seen = {}
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        here, there = context.Pipe()
        process = context.Process(target=child, args=(there,))
        process.start()
        seen[method] = here.recv()
        process.join()
        seen[method + " ended"] = process.exitcode
    from multiprocessing import resource_tracker

    return seen, resource_tracker._resource_tracker._fd is not None


@program
def other_interpreters():
    try:
        import _interpreters as interpreters
    except ImportError:
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            return None
    read, write = os.pipe()
    one = interpreters.create()
    code = "import sys, os; os.write(%d, '\\n'.join([*(getattr(it, '__name__', type(it).__name__) for it in sys.meta_path), *sys.path]).encode())" % write
    seen = str(interpreters.run_string(one, code))
    interpreters.destroy(one)
    os.close(write)
    return seen, os.read(read, 1 << 16).decode().splitlines()


@program
def bytecode_of_a_function():
    return environment.__code__.co_code.hex(), child.__code__.co_consts.__len__(), sys.getsizeof(child)


@program
def ends():
    order = []
    atexit.register(order.append, 1)
    seen = atexit._ncallbacks()
    atexit.unregister(order.append)
    return seen, stable(repr(sys.stdin)), isinstance(sys.stdout, io.TextIOWrapper)


if __name__ == "__main__":
    run()
