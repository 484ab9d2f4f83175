"""Waits for `torch` to be imported, then hands over to `gpuwatch_probe`.

Every Python that inherits the environment of `gpuwatch run` executes this file at its start, so it must cost next to
nothing, import nothing, and never fail. Only one `sitecustomize` wins in Python: the one it hides is run afterwards.
"""

import os
import sys


class _OnTorch:
    """A finder that finds nothing itself: it lets the others find `torch` and hooks into its loader to attach the
    probe."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                try:
                    self._report(spec)
                except Exception:
                    pass
                return spec
        return None

    def _report(self, spec):
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module):
            if module.__name__ != "torch":
                # One loader may serve many modules (zip files do that).
                return execute(module)
            try:
                del loader.exec_module
            except AttributeError:
                pass
            # On a simulated machine (`gpuwatch fit`), its libraries take the place of NVIDIA's.
            first = os.environ.get("SIMGPU_FIRST")
            if first:
                try:
                    import ctypes

                    ctypes.CDLL(first)
                except Exception:
                    pass
            try:
                execute(module)
            except BaseException as error:
                # A traceback of the job's shows the job's frames only (Python 3.11 and newer take this to heart).
                error.__traceback__ = error.__traceback__.tb_next
                raise
            try:
                sys.meta_path.remove(self)
            except ValueError:
                pass
            if _IS_OFF:
                return
            try:
                from gpuwatch_probe import _attach

                _attach(module)
            except Exception:
                pass

        loader.exec_module = exec_module


def _run_the_hidden_one():
    """Runs the `sitecustomize` that would have run without us; whatever it raises is its own affair."""
    here = os.path.dirname(__file__)
    ours = sys.modules.pop("sitecustomize", None)
    away = [(at, it) for at, it in enumerate(sys.path) if it == here]
    for _, it in away:
        sys.path.remove(it)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        for at, it in away:
            sys.path.insert(at, it)
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


def _take_rank():
    """Under `gpuwatch fit`, gives this process the rank that it stands for, before the job reads it."""
    try:
        from gpuwatch_probe._fit_ranks import take

        take()
    except Exception:
        pass


# Older Pythons, which some jobs still start for something else, ask a finder by other names. A simulated machine is
# there also where the probe is off.
_IS_OFF = "off" in os.environ.get("GPUWATCH", "").split(",")
if sys.version_info >= (3, 9) and (not _IS_OFF or "SIMGPU_FIRST" in os.environ):
    sys.meta_path.insert(0, _OnTorch())
    if os.environ.get("GPUWATCH_FIT_RANKS"):
        _take_rank()
_run_the_hidden_one()
