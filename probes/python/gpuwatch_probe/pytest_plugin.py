"""A pytest plugin that tests GPU memory: `pytest --gpuwatch "RTX 4090"` runs the session on a simulated card.

Without `--gpuwatch` it does nothing. `--gpuwatch real` measures on this machine's GPU. A test is judged by its marker
`@pytest.mark.gpu_memory(limit="2 GiB", growth="0", against="baseline")`, and can look itself with the fixture
`gpu_memory`. It imports no torch: the tests do.
"""

import difflib
import json
import os
import shutil
import sys
import tempfile

import pytest

_REAL = "real"
_FOLDER = ".gpuwatch"
_PROPERTY = "gpuwatch"
# Only these arguments belong to the marker.
_ARGUMENTS = ("limit", "growth", "against", "budget")
_NO_GPU = (
    "--gpuwatch real: PyTorch finds no GPU on this machine (torch.cuda.is_available() is False); "
    "--gpuwatch 'RTX 4090' simulates one"
)
_COMPUTES = "computes with values of the simulated GPU, which are not computed; mark it with gpu_memory, or run it on a GPU"


def pytest_addoption(parser):
    group = parser.getgroup("gpuwatch", "GPU memory")
    group.addoption(
        "--gpuwatch",
        metavar="GPU",
        help="Test GPU memory on a simulated card, as in --gpuwatch 'RTX 4090'; 'real' takes this machine's GPU.",
    )
    group.addoption(
        "--gpuwatch-update",
        action="store_true",
        help="Write the baselines that tests name with against=NAME (.gpuwatch/NAME.json), instead of comparing.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    """Before any conftest imports torch."""
    gpu = getattr(early_config.known_args_namespace, "gpuwatch", None)
    if gpu is None:
        return
    from ._test_machine import MachineError, program, simulate

    folder = tempfile.mkdtemp(prefix="gpuwatch-pytest-")
    early_config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    try:
        program()
        name = None if gpu == _REAL else simulate(gpu, folder)
    except MachineError as error:
        raise pytest.UsageError("--gpuwatch: %s" % error)
    early_config._gpuwatch = folder, name


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "gpu_memory(limit=None, growth=None, against=None, budget='0'): the most GPU memory of the test's peak as in "
        "'2 GiB', the most that each step may add as in '0', and a stored baseline with how much more than it passes "
        "as in '0.5%'. It takes effect with --gpuwatch.",
    )
    if getattr(config, "_gpuwatch", None) is not None:
        config.pluginmanager.register(_Session(config), "gpuwatch-session")


@pytest.fixture
def gpu_memory(request):
    """The GPU memory of this test so far: `peak`, `parts`, `growth`, `lines`; `step()` ends a step."""
    session = request.config.pluginmanager.getplugin("gpuwatch-session")
    if session is None:
        pytest.skip("gpu_memory needs --gpuwatch")
    return GpuMemory(session)


class GpuMemory:
    """What a test finds out of its own memory; bytes."""

    def __init__(self, session):
        self._session = session

    @property
    def peak(self):
        """The highest allocated bytes of the test so far."""
        return 0 if self._session.memory is None else self._answer()["peak"]["allocated"]

    @property
    def before(self):
        """The bytes that were there before the test and are not the test's; no other figure has them."""
        memory = self._session.memory
        return 0 if memory is None else sum(map(memory.before, memory.blocks()))

    @property
    def parts(self):
        """What the peak consists of: {"weights": bytes, …}."""
        return self._answer()["peak"]["parts"]

    @property
    def lines(self):
        """The lines that hold it, the most first: [{"line": "model.py:211", "bytes": bytes, …}]."""
        lines = self._answer()["peak"]["lines"]
        return [dict(it, bytes=sum(it["parts"].values())) for it in lines]

    @property
    def growth(self):
        """The bytes that each step adds; None if the test has made fewer than 6 steps."""
        return _growth(self._session.judged({}))

    def step(self):
        """Ends a step, in tests without a torch.optim optimizer."""
        if self._session.memory is not None:
            self._session.memory.declare()

    def _answer(self):
        return self._session.judged({})["answer"]


def _growth(judged):
    """The bytes that each step adds; None if too few ran to know."""
    grown = (judged["answer"]["growth"] or {}).get("bytes", 0)
    return grown if judged["is_growth_known"] else None


class _Session:
    """The hooks of a session with --gpuwatch."""

    def __init__(self, config):
        self._config = config
        self._folder, self._name = config._gpuwatch
        self._is_worker = hasattr(config, "workerinput")
        self._is_updating = config.getoption("gpuwatch_update")
        self._baselines = {}
        self.memory = None
        # What each measured test needed, where the summary is printed.
        self._rows = []

    # Measuring

    def _marker(self, item):
        marker = item.get_closest_marker("gpu_memory")
        return None if marker is None else dict(marker.kwargs)

    def _is_measured(self, item):
        return self._marker(item) is not None or "gpu_memory" in getattr(item, "fixturenames", ())

    def _watch(self):
        """Watches torch, once the tests have imported it."""
        torch = sys.modules.get("torch")
        if self.memory is None and torch is not None and hasattr(torch._C, "_cuda_memoryStats"):
            from ._test_memory import TestMemory

            self.memory = TestMemory(torch, self._folder, self._name is not None)
            self.memory.wait_for_cuda()

    def pytest_collection_finish(self):
        self._watch()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        self._watch()
        if self.memory is not None:
            self.memory.begin(getattr(item, "fixturenames", ()))
        outcome = yield
        self._watch()
        if outcome.excinfo is None and self._is_measured(item):
            # A gate that skips would pass.
            why = _refused(item) or (_NO_GPU if self._has_no_gpu() else None)
            if why is not None:
                outcome.force_exception(pytest.fail.Exception(why, pytrace=False))

    def _has_no_gpu(self):
        torch = sys.modules.get("torch")
        return self._name is None and torch is not None and not torch.cuda.is_available()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        is_wide = fixturedef.scope != "function"
        before = self.memory.blocks() if is_wide and self.memory is not None else {}
        yield
        self._watch()
        if is_wide and self.memory is not None:
            self.memory.fixture(id(fixturedef), fixturedef.argname, before)

    def pytest_fixture_post_finalizer(self, fixturedef):
        if self.memory is not None:
            self.memory.forget_fixture(id(fixturedef))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        outcome = yield
        if not self._is_measured(item) or outcome.excinfo is not None:
            return
        self._watch()
        try:
            failures = self._judge(item)
        except Exception as error:
            failures = ["GPU memory could not be judged: %s" % error]
        if failures:
            outcome.force_exception(GpuMemoryError("\n".join(it.rstrip() + "\n" for it in failures)))

    def judged(self, wanted):
        """Judges the test so far."""
        from ._test_machine import ask

        self._watch()
        if self.memory is None:
            raise RuntimeError("the test has not imported torch")
        request = {"report": self.memory.end(), "device": self._device()}
        return ask({"test": dict(request, **wanted)})

    def _device(self):
        return self._name or sys.modules["torch"].cuda.get_device_name(0)

    def _judge(self, item):
        marker = self._marker(item) or {}
        if self.memory is None:
            return ["the test is marked gpu_memory, and has not imported torch"]
        name = marker.get("against")
        before = None if name is None or self._is_updating else self._baseline(name).get(item.nodeid)
        wanted = {key: None if marker.get(key) is None else str(marker[key]) for key in ("limit", "growth", "budget")}
        judged = self.judged(dict(wanted, before=before))
        answer = judged["answer"]
        row = {
            "test": item.nodeid,
            "peak": answer["peak"]["allocated"],
            "growth": _growth(judged),
            "difference": judged["difference"],
            "against": name,
            "is_new": name is not None and before is None,
            "answer": answer if name is not None and self._is_updating else None,
        }
        item.user_properties.append((_PROPERTY, row))
        return judged["failures"]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        report = outcome.get_result()
        if call.when == "call" and report.failed and self.memory is not None:
            is_own = call.excinfo is not None and call.excinfo.errisinstance(GpuMemoryError)
            if is_own:
                report.longrepr = str(call.excinfo.value)
            elif self._marker(item) is None and self.memory.reads():
                # It proves nothing, as without a GPU.
                report.outcome = "skipped"
                report.longrepr = (str(item.path), item.location[1] or 0, "Skipped: " + _COMPUTES)
        if call.when == "teardown" and self.memory is not None:
            self.memory.over()

    # Baselines

    def _path(self, name):
        if os.path.basename(name) != name or not name:
            raise ValueError("against=%r is the name of a baseline, not a path" % (name,))
        return os.path.join(str(self._config.rootpath), _FOLDER, name + ".json")

    def _baseline(self, name):
        """Returns the stored answers of a baseline, by test."""
        if name not in self._baselines:
            path = self._path(name)
            tests = {}
            if os.path.exists(path):
                with open(path) as file:
                    try:
                        stored = json.load(file)
                        tests = stored["tests"] if stored["schema"] == 1 else None
                    except (ValueError, KeyError, TypeError):
                        tests = None
                if not isinstance(tests, dict):
                    raise ValueError("%s is no baseline of gpuwatch: remove it, and run --gpuwatch-update" % path)
            self._baselines[name] = tests
        return self._baselines[name]

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and not self._is_worker:
            self._rows += [dict(row, outcome=report.outcome) for name, row in report.user_properties if name == _PROPERTY]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        if self._is_worker or not self._is_updating:
            return
        for name in sorted({it["against"] for it in self._rows if it["answer"] is not None}):
            tests = dict(self._baseline(name))
            tests.update((it["test"], it["answer"]) for it in self._rows if it["against"] == name and it["answer"])
            path = self._path(name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path + ".new", "w") as file:
                json.dump({"schema": 1, "tests": tests}, file, indent=1, sort_keys=True)
                file.write("\n")
            os.replace(path + ".new", path)

    def pytest_terminal_summary(self, terminalreporter):
        if not self._rows:
            return
        where = self._name or "this machine's GPU"
        terminalreporter.section("GPU memory, %s" % where)
        width = 34
        terminalreporter.write_line("%-*s%12s%15s%15s" % (width, "test", "peak", "baseline", "growth a step"))
        for row in self._rows:
            name = row["test"] if len(row["test"]) < width else "…" + row["test"][2 - width :]
            change = "" if row["against"] is None else "new" if row["is_new"] else _signed(row["difference"])
            growth = "–" if row["growth"] is None else _bytes(row["growth"])
            terminalreporter.write_line("%-*s%12s%15s%15s" % (width, name, _bytes(row["peak"]), change, growth))
        if any(row["is_new"] for row in self._rows) and not self._is_updating:
            terminalreporter.write_line("new: without a baseline; --gpuwatch-update writes it")


def _refused(item):
    """Returns why a test's marker cannot be understood; `None` where it can."""
    marker = item.get_closest_marker("gpu_memory")
    if marker is None:
        return None
    place = "%s:%d: " % (item.location[0], (item.location[1] or 0) + 1)
    takes = "it takes limit, growth, against and budget"
    if marker.args:
        return place + "gpu_memory(%r) has an argument without a name; %s, as in limit='2 GiB'" % (marker.args[0], takes)
    for name in sorted(set(marker.kwargs) - set(_ARGUMENTS)):
        close = difflib.get_close_matches(name, _ARGUMENTS, 1, 0.5)
        meant = " (did you mean %s?)" % close[0] if close else ""
        return place + "gpu_memory has no argument %s%s; %s" % (name, meant, takes)
    return None


class GpuMemoryError(AssertionError):
    """A test needs more GPU memory than it may."""


def _signed(count):
    return "–" if count is None else "equal" if count == 0 else ("+" if count > 0 else "-") + _bytes(abs(count))


def _bytes(count):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return "%.2f %s" % (count / size, unit)
    return "%d B" % count
