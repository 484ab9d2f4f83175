"""The thread that `gpuwatch attach` and `gpuwatch detach` start in a job: no module, but a script with its `order`.

It leaves the job's search path, modules and signals as they are, and answers in a file.
"""


def _attach_or_detach(order, reply):
    import os
    import signal
    import sys

    # The job's signals are for the job's threads.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    place = os.fsdecode(order["place"])
    os.close(os.open(os.path.join(place, os.fsdecode(order["begun"])), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        answer = _carry_out(order, os, sys)
    except BaseException as error:
        answer = "refused could not load the probe: %r" % (error,)
    if order["remove"]:
        _remove(order, os)
    if _is_waited_for(place, os):
        reply(answer.replace("\n", " "))
    else:
        _clear(place, os)
    if order["page"]:
        _give_back(order["page"])


def _is_waited_for(place, os):
    """Whether a gpuwatch waits for the answer: it holds the lock."""
    try:
        import fcntl

        lock = os.open(os.path.join(place, "lock"), os.O_RDWR | os.O_CLOEXEC)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _clear(place, os):
    """Removes the files of a request that no gpuwatch waits for any more."""
    for name in os.listdir(place):
        os.unlink(os.path.join(place, name))
    os.rmdir(place)


def _carry_out(order, os, sys):
    package = _package(order, os, sys)
    if package is None:
        return "refused has no probe"
    if order["do"] != "start":
        return _stop(package)
    from gpuwatch_probe import _process

    return _process.start(order)


def _stop(package):
    """Ends the probe; returns `ended`, or `refused` and the reason."""
    probe = package._probe
    if probe is None or probe.off:
        return "refused has no probe"
    probe.leave()
    package._probe = None
    return "ended"


def _package(order, os, sys):
    """Returns the package that is loaded already, if it is of the same release or has a probe that runs."""
    found = sys.modules.get("gpuwatch_probe")
    if found is not None:
        probe = getattr(found, "_probe", None)
        is_running = probe is not None and not probe.off
        folder = os.path.dirname(list(found.__path__)[0])
        if is_running or os.path.basename(folder) == os.path.basename(os.fsdecode(order["folder"])):
            return found
    if order["do"] != "start":
        return None
    for name in [it for it in list(sys.modules) if it.partition(".")[0] == "gpuwatch_probe"]:
        del sys.modules[name]
    return _load(os.fsdecode(order["folder"]), os, sys)


# Modules that only simulated jobs and pytest use begin with these.
_OTHERS = "_advise", "_fit", "_test_", "pytest_"


def _load(folder, os, sys):
    """Loads every module that a job may need, as the files may go."""
    import importlib.util

    folder = os.path.join(folder, "gpuwatch_probe")
    init = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location("gpuwatch_probe", init, submodule_search_locations=[folder])
    package = importlib.util.module_from_spec(spec)
    sys.modules["gpuwatch_probe"] = package
    try:
        spec.loader.exec_module(package)
        for name in sorted(os.listdir(folder)):
            stem, ending = os.path.splitext(name)
            is_of_jobs = ending == ".py" and not stem.startswith(_OTHERS)
            if is_of_jobs and stem not in ("__init__", "_attach_script"):
                importlib.import_module("gpuwatch_probe." + stem)
    except BaseException:
        for name in [it for it in list(sys.modules) if it.partition(".")[0] == "gpuwatch_probe"]:
            del sys.modules[name]
        raise
    return package


def _remove(order, os):
    folder = os.fsdecode(order["folder"])
    for above, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(above, name))
        for name in folders:
            os.rmdir(os.path.join(above, name))
    os.rmdir(folder)


def _give_back(page):
    """Gives back the page that the text was in which started this thread."""
    import ctypes

    unmap = ctypes.CDLL(None).munmap
    unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    unmap(page, 4096)


_attach_or_detach(order, reply)  # noqa: F821
