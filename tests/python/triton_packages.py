"""Programs with kernels in Triton: packages that need no device to be made, what stands in them, their calls on the emulated device,
and the kernels that several tests share."""

import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch

import emulated_cuda
import harness

pytest.importorskip("triton", exc_type=ImportError)
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from torch.library import triton_op, wrap_triton  # noqa: E402

from coil import _compile  # noqa: E402

TWINS = harness.REPO / "tests/python/triton_kernels/twins.cu"


def exported(model, args, dims=None):
    made = {}
    shapes = None if dims is None else tuple({at: made.setdefault(n, torch.export.Dim(n, min=3, max=8192)) for at, n in spec.items()} for spec in dims)
    return torch.export.export(model.eval(), args, dynamic_shapes=shapes)


def package_of(program, path, target="cuda:sm_90", **options):
    """Without opening it, which needs a device."""
    _compile._compile_any(program, str(path), None, None, None, _compile.settings_of(options, target))
    return path


def source_of(package):
    with zipfile.ZipFile(package) as archive:
        return next(archive.read(n).decode() for n in archive.namelist() if n.endswith("/host.cc"))


def rows_of(package):
    """(name, threads, shared memory, image) of the kernels that Triton made."""
    rows = re.findall(r'\{"(\w+)", (\d+), (\d+), \d+, "[^"]*", (\d+)\}', source_of(package))
    return [(name, int(threads), int(shared), int(image)) for name, threads, shared, image in rows if image != "0"]


class Emulated:
    """A package on the emulated device, where C++ twins stand in for the kernels of Triton."""

    def __init__(self, package, folder):
        self.package, self.folder, self.library = package, folder, folder / "kernels.so"
        source, names = emulated_cuda.kernels_of(package)
        twins = emulated_cuda.rewrite(TWINS.read_text())
        emulated_cuda.build_kernels(source + twins, [*names, *re.findall(r"COIL_KERNEL void (\w+)\(", twins)], self.library)

    def run(self, args, shift=0):
        inputs, out = self.folder / "in.npz", self.folder / "out.npz"
        np.savez(inputs, **{f"in_{i}": a.numpy() for i, a in enumerate(args)})
        env = emulated_cuda.environment(self.library, 90)
        if shift:
            script = harness.REPO / "tests/python/emulated_call.py"
            done = subprocess.run([sys.executable, script, harness.BUILD / "libcoil_runtime.so", self.package, inputs, out, str(shift)], capture_output=True, text=True, env=env)
        else:
            done = harness.coil("run", self.package, "--device", "cuda:0", "--input", inputs, "--output", out, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return harness.load_outputs(out)


def compare(actual, expected, tolerance):
    expected = [e.detach().numpy() for e in (expected if isinstance(expected, (tuple, list)) else [expected])]
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        assert a.shape == e.shape and a.dtype == e.dtype
        np.testing.assert_allclose(a.astype(np.float64), e.astype(np.float64), rtol=tolerance, atol=tolerance * (1 + np.abs(e.astype(np.float64)).max()))


@triton.jit
def add_into(x, total, n, by, flag, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if flag:
        tl.store(total + i, tl.load(total + i, mask=i < n) + by * tl.load(x + i, mask=i < n), mask=i < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2)], key=["n"])
@triton.heuristics({"flag": lambda args: args["n"] % 64 == 0})
@triton.jit
def add_if(x, total, n, by, flag: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(total + i, tl.load(x + i, mask=i < n) * (by if flag else 0), mask=i < n)


@triton_op("coiltest::whole", mutates_args={})
def whole(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    wrap_triton(add_if)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), 2.0)
    return y
