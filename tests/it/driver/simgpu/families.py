"""Calls cuDNN's recurrent networks, cuFFT, cuSOLVER, NVRTC and cuSPARSELt: each runs, and leaves no memory behind."""

import sys

import torch
from torch import nn


def recurrent():
    for kind, options in [
        (nn.LSTM, {}),
        (nn.LSTM, {"bidirectional": True, "dropout": 0.2}),
        (nn.LSTM, {"proj_size": 16}),
        (nn.GRU, {}),
        (nn.GRU, {"bidirectional": True, "bias": False}),
        (nn.RNN, {"nonlinearity": "relu"}),
    ]:
        model = kind(32, 48, num_layers=2, batch_first=True, **options).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        held = []
        for _ in range(4):
            y, _ = model(torch.randn(8, 20, 32).cuda())
            inside = torch.cuda.memory_allocated()
            y.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            del y
            held.append((torch.cuda.memory_allocated(), inside))
        assert len(set(held[1:])) == 1, (kind, options, held)
        # A forward pass keeps more for the backward pass than its output.
        assert held[-1][1] - held[-1][0] > 8 * 20 * 48 * 4, held
        with torch.no_grad():
            model.eval()(torch.randn(8, 20, 32).cuda())
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 7, 32).cuda(), [7, 5, 2], batch_first=True)
    nn.LSTM(32, 16).cuda()(packed)


def transforms():
    x = torch.randn(4, 64, 96).cuda().requires_grad_()
    for transform in (torch.fft.fft, torch.fft.rfft, torch.fft.fft2, torch.fft.rfft2, torch.fft.fftn):
        transform(x).abs().sum().backward()
    assert torch.fft.irfft(torch.fft.rfft(x.double())).shape == x.shape
    torch.stft(x[0], 32, window=torch.hann_window(32).cuda(), return_complex=True)


def algebra():
    for shape in ((24, 24), (3, 24, 24)):
        a = torch.randn(shape).cuda()
        b = torch.randn(*shape[:-1], 5).cuda()
        for function in ("svd", "qr", "eigh", "eigvalsh", "inv", "det", "slogdet", "svdvals", "lu_factor", "lu", "pinv"):
            getattr(torch.linalg, function)(a)
        torch.linalg.cholesky_ex(a)
        torch.linalg.cholesky(a)
        torch.linalg.solve(a, b)
        torch.linalg.lstsq(a, b)
        torch.linalg.ldl_factor(a)
        torch.cholesky_solve(b, a)
        torch.cholesky_inverse(a)
        torch.linalg.solve_triangular(a, b, upper=True)
        torch.linalg.matrix_norm(a, 2)
        torch.linalg.householder_product(a, a[..., 0])
        torch.ormqr(a, a[..., 0], b)
    torch.linalg.svd(torch.randn(4, 9).cuda(), full_matrices=False)


def compiled_at_run_time():
    torch.special.erfcx(torch.randn(8).cuda())
    torch.gcd(torch.arange(8).cuda(), torch.arange(8).cuda())
    torch.cuda.jiterator._create_jit_fn("template <typename T> T twice(T x) { return x + x; }")(torch.ones(4).cuda())


def semi_structured():
    from torch.sparse import SparseSemiStructuredTensorCUSPARSELT, to_sparse_semi_structured

    weight = torch.tensor([0, 0, 1, 1], dtype=torch.float16).tile((128, 32)).cuda()
    sparse = SparseSemiStructuredTensorCUSPARSELT.from_dense(weight)
    assert sparse.packed.numel() * 2 <= weight.numel() * 2 * 9 / 16 + 64, sparse.packed.shape
    torch.mm(sparse, torch.randn(128, 64).half().cuda())
    nn.functional.linear(torch.randn(64, 128).half().cuda(), sparse)


def sparse():
    m = torch.eye(16).to_sparse_csr().cuda()
    m @ torch.randn(16, 4).cuda()
    m @ torch.randn(16).cuda()
    nn.functional.ctc_loss(
        torch.randn(20, 2, 8).cuda().log_softmax(2), torch.ones(2, 5, dtype=torch.int32), torch.tensor([20, 20]),
        torch.tensor([5, 5]),
    )


def launched_by_the_driver():
    """As Triton launches: a module of the driver's, and a configuration that names the stream."""
    import ctypes

    class Configuration(ctypes.Structure):
        _fields_ = [("shape", ctypes.c_uint * 7), ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p)]

    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuModuleLoadData(ctypes.byref(module), b"code") == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"kernel") == 0
    here = Configuration((1,) * 6 + (0,), torch.cuda.Stream().cuda_stream)
    assert driver.cuLaunchKernelEx(ctypes.byref(here), function, None, None) == 0
    nowhere = Configuration((1,) * 6 + (0,), 0x123450)
    assert driver.cuLaunchKernelEx(ctypes.byref(nowhere), function, None, None) == 400, "CUDA_ERROR_INVALID_HANDLE"


for family in (recurrent, transforms, algebra, compiled_at_run_time, semi_structured, sparse, launched_by_the_driver):
    if len(sys.argv) == 1 or family.__name__ in sys.argv[1:]:
        family()
        torch.cuda.synchronize()
print("ok")
