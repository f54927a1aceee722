"""`import coil` on a GPU: packages called with CUDA tensors, and torch.compile(backend="coil") for inference and training.

    COIL_BUILD=build python3 -m pytest tests/gpu/test_python.py      needs build/python for this interpreter; says so where it is missing
"""
import os
import pathlib
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from paths import COIL  # noqa: E402

sys.path.insert(0, str(pathlib.Path(COIL).parent / "python"))
try:
    import coil
except ImportError:
    coil = None

pytestmark = pytest.mark.skipif(coil is None or not torch.cuda.is_available(), reason="needs a GPU, and build/python for this interpreter")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    coil.reset_compile_stats()
    torch.manual_seed(0)
    with torch.backends.cudnn.flags(allow_tf32=False):  # eager's own choice differs from call to call
        yield


def close(a, b):
    torch.testing.assert_close(a, b, atol=2e-3, rtol=2e-3)
    assert a.stride() == b.stride() and a.device == b.device


def test_a_program_on_the_gpu_is_compiled_for_it():
    module, x = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).cuda(), torch.randn(3, 8, device="cuda")
    for model in (coil.compile(module, args=(x,)), coil.compile(torch.export.export(module, (x,))), coil.compile({"a": torch.export.export(module, (x,))})):
        assert model.device == "cuda:0"
        close(model(x), module(x).detach())
    assert coil.compile(lambda a, b: a * b, args=(x, torch.tensor(2.0))).device == "cuda:0"
    assert coil.compile(module, args=(x,), target="cpu,cuda:sm_{}{}".format(*torch.cuda.get_device_capability())).device in ("cpu", "cuda:0")
    assert coil.compile(module.cpu(), args=(x.cpu(),)).device == "cpu"


def test_model():
    module, x = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8)).cuda(), torch.randn(5, 64, device="cuda")
    model = coil.compile(module, args=(x,), device="cuda")
    assert model.device == "cuda:0" and model.isa.startswith("sm_")
    close(model(x), module(x).detach())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = model(x)
    stream.synchronize()
    close(y, module(x).detach())
    with pytest.raises(coil.InputError):
        model(x.cpu())
    assert torch.isfinite(y).all()


def test_scratch_space_is_pytorchs_and_is_given_back():
    """Two functions of one large intermediate each: what one has used the other, and PyTorch, may have."""
    def function(a):
        return (a.sin().softmax(-1).cumsum(0) @ a.t()).sum(-1)

    x = torch.randn(2048, 4096, device="cuda").t().contiguous()
    models = [coil.compile(function, args=(x,), device="cuda") for _ in range(3)]
    for model in models:
        close(model(x), function(x))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, kept = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    models[0](x)
    assert torch.cuda.memory_allocated() == kept  # the result is gone, and so is the scratch space
    peak = torch.cuda.max_memory_allocated() - kept
    for model in models:
        model(x)
    assert torch.cuda.max_memory_allocated() - kept == peak  # not three times as much
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] >= free - (8 << 20)


def test_opens_where_pytorchs_cache_holds_all_memory():
    model_bytes = 256 << 20
    module = nn.Linear(8192, 8192, bias=False).cuda()
    x = torch.randn(4, 8192, device="cuda")
    path = coil.compile(module, args=(x,), device="cuda")
    close(path(x), module(x).detach())
    del path
    hoard = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(int(torch.cuda.mem_get_info()[0] // (1 << 30)))]
    more = []
    while torch.cuda.mem_get_info()[0] > model_bytes // 2:
        more.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
    del hoard, more  # PyTorch keeps it
    assert torch.cuda.mem_get_info()[0] < model_bytes
    model = coil.compile(module, args=(x,), device="cuda")
    close(model(x), module(x).detach())


def test_results_live_in_pytorchs_allocator():
    model = coil.compile(lambda a: a * 2, args=(torch.randn(1024, 1024, device="cuda"),), device="cuda")
    x = torch.randn(1024, 1024, device="cuda")
    model(x)
    before = torch.cuda.memory_allocated()
    y = model(x)
    assert torch.cuda.memory_allocated() - before == y.numel() * 4


@pytest.mark.parametrize("function", [
    lambda a, b: (a * b + 1).relu().sum(-1),
    lambda a, b: (a @ b.t()).softmax(-1),
    lambda a, b: (a.sin().t(), torch.cat([a, b])[::2]),
    lambda a, b: torch.linalg.svd(a @ a.t())[1] + b.sum(),
    lambda a, b: F.conv1d(a[None], b[:, None, :3].expand(-1, a.shape[0], -1)).relu(),
], ids=range(5))
def test_inference(function):
    a, b = torch.randn(16, 24, device="cuda"), torch.randn(16, 24, device="cuda")
    for ours, theirs in zip(torch.utils._pytree.tree_leaves(torch.compile(function, backend="coil")(a, b)), torch.utils._pytree.tree_leaves(function(a, b))):
        close(ours, theirs)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_repeated_calls(mode):
    module = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0).cuda().train()
    compiled = torch.compile(module, backend="coil", mode=mode)
    with torch.no_grad():
        for _ in range(12):
            x = torch.randn(4, 10, 64, device="cuda")
            close(compiled(x), module(x))


@pytest.mark.parametrize("how", [{"mode": "max-autotune"}, {"options": {"tune": "fast", "tune_budget": "3s"}}], ids=["max", "fast"])
def test_tuned(how, monkeypatch, tmp_path):
    """Tuned on the device that the process uses itself; the second compile finds everything in the cache."""
    monkeypatch.setenv("COIL_CACHE", str(tmp_path))
    module = nn.Sequential(nn.Linear(342, 256), nn.GELU(), nn.Linear(256, 40)).cuda().bfloat16()
    x = torch.randn(48, 342, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        for _ in range(2):
            torch._dynamo.reset()
            y = torch.compile(module, backend="coil", **how)(x)
            torch.testing.assert_close(y, module(x), atol=3e-2, rtol=3e-2)
    assert any(f.is_file() for f in tmp_path.rglob("*")), "the tuner keeps what it found"


@pytest.mark.parametrize("dynamic", [None, True])
def test_training(dynamic):
    """With dropout: PyTorch draws its masks, on the GPU as well."""
    losses = []
    for backend in (None, "coil"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(128), nn.Linear(128, 10)).cuda()
        run = torch.compile(model, backend=backend, dynamic=dynamic) if backend else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        history = []
        for step in range(6):
            torch.manual_seed(step)
            x = torch.randn(32 + (step if dynamic else 0), 64, device="cuda")
            optimizer.zero_grad()
            loss = F.cross_entropy(run(x), torch.arange(len(x), device="cuda") % 10)
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        losses.append(history)
    assert losses[1] == pytest.approx(losses[0], rel=2e-3), str(coil.compile_stats())


def test_a_number_on_the_cpu_among_cuda_tensors():
    compiled = torch.compile(lambda a, s: a * s + 1, backend="coil")
    a, s = torch.randn(8, device="cuda"), torch.tensor(3.0)
    close(compiled(a, s), a * s + 1)
