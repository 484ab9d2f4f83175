"""A call that is not simulated returns its library's documented error; with SIMGPU_STRICT it ends the program."""

import ctypes
import sys

import torch


def refused(work, phrase):
    try:
        work()
    except RuntimeError as error:
        assert phrase in str(error), error
    else:
        raise AssertionError(phrase)


def product():
    sparse = torch.eye(8).to_sparse_csr().cuda()
    sparse @ sparse


if "strict" in sys.argv:
    product()
refused(product, "cusparseSpGEMM_createDescr")
runtime = ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0])
# Each wheel has functions of its own that nothing simulates.
unknown = "cudaMallocManaged" if hasattr(runtime, "cudaMallocManaged") else "cudaGraphDebugDotPrint"
assert getattr(runtime, unknown)(0, 0, 0) == 801 == runtime.cudaGetLastError(), "cudaErrorNotSupported"
torch.cuda.synchronize()
print("ok")
