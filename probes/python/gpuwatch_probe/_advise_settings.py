"""Settings of the process: the allocator's, cuBLAS's workspace, cuDNN's search for the fastest kernel.

The first two are variables of the environment, which `gpuwatch fit` sets before the job starts.
"""

import os

from ._advise_technique import Refused, Technique

_VARIABLES = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
BLAS = "CUBLAS_WORKSPACE_CONFIG"
_SMALL = ":16:8"


class ExpandableSegments(Technique):
    """Segments that grow, so that freed memory of one size serves another."""

    name = "expandable-segments"
    is_outside_functions = True

    def applied(self):
        setting = next((os.environ[it] for it in _VARIABLES if os.environ.get(it)), "")
        is_set = "expandable_segments:True" in setting.replace(" ", "")
        self.edit = [("environment", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")]
        if not self.is_active:
            if "expandable_segments" in setting:
                raise Refused("the job's allocator settings have expandable_segments already")
            return "the allocator"
        segments = self.torch.cuda.memory._snapshot()["segments"]
        if not is_set or not any(it.get("is_expandable") for it in segments):
            raise Refused("the job's allocator did not use expandable segments")
        return "the allocator"


class BlasWorkspace(Technique):
    """Small workspaces of cuBLAS."""

    name = "cublas-workspace"
    is_outside_functions = True

    def applied(self):
        self.edit = [("environment", "%s=%s" % (BLAS, _SMALL))]
        if not self.is_active and os.environ.get(BLAS):
            raise Refused("the job sets %s already" % BLAS)
        if self.is_active and os.environ.get(BLAS) != _SMALL:
            raise Refused("the job sets %s itself" % BLAS)
        return "cuBLAS"


class CudnnBenchmark(Technique):
    """No trial of cuDNN's algorithms, whose workspaces differ."""

    name = "cudnn-benchmark"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        self._was = False

    def install(self):
        self.advise.calls.on_first(self._begin)

    def _begin(self, module):
        backend = self.torch.backends.cudnn
        self._was |= bool(backend.benchmark)
        if self.is_active:
            backend.benchmark = False

    def applied(self):
        self.edit = [(None, "torch.backends.cudnn.benchmark = False")]
        if not self._was:
            raise Refused("the job does not set torch.backends.cudnn.benchmark")
        if self.is_active and self.torch.backends.cudnn.benchmark:
            raise Refused("the job sets torch.backends.cudnn.benchmark again")
        return "cuDNN"
