"""What is not simulated is refused with its library's documented error; with SIMGPU_STRICT it ends the program."""

import sys

import torch

device = "cuda"


def refused(work, words):
    try:
        work()
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)


if "strict" in sys.argv:
    torch.fft.rfft(torch.randn(8, 64, device=device))
refused(lambda: torch.fft.rfft(torch.randn(8, 64, device=device)), "CUFFT_NOT_SUPPORTED")
refused(lambda: torch.linalg.solve(torch.eye(64, device=device), torch.eye(64, device=device)), "cusolver")
refused(lambda: torch.ones(1, device=device).untyped_storage()._share_cuda_(), "operation not supported")
torch.cuda.synchronize()
print("ok")
