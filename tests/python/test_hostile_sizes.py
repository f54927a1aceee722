"""Sizes that no memory holds: a named error with the amount and its formula, never a crash, a wrapped number or a hang."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest

import capi
import harness

MAKE = """
import sys, torch
from torch.export import Dim
A, B = Dim('a'), Dim('b')
class M(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f
class One(M):
    def forward(self, x): return self.f(x)
class Two(M):
    def forward(self, x, y): return self.f(x, y)
def save(name, f, *args, dims=None):
    m = (One if len(args) == 1 else Two)(f)
    torch.export.save(torch.export.export(m, args, dynamic_shapes=dims), f"{sys.argv[1]}/{name}.pt2")
v = lambda n: torch.rand(n)
save("outer", lambda x, y: x[:, None] * y[None, :], v(3), v(4), dims=({0: A}, {0: B}))
save("scratch", lambda x, y: (x[:, None] * y[None, :]).cumsum(0).sum(1), v(3), v(4), dims=({0: A}, {0: B}))
save("flat", lambda x: x.reshape(-1) * 2, torch.rand(3, 4), dims=({0: A, 1: B},))
save("cube", lambda x, y: (x[:, None, None] + y[None, :, None] + x[None, None, :]).amax(), v(3), v(4), dims=({0: A}, {0: B}))
save("number", lambda x, n: x.new_ones(n).cumsum(0) * x.sum(), v(3), 5, dims=(None, Dim.DYNAMIC))
save("matrix", lambda x, y: x @ y, torch.rand(3, 5), torch.rand(5, 4), dims=({0: A, 1: B}, {0: B, 1: Dim('c')}))
save("empty_2_40", lambda x: torch.empty(2**40).zero_() + x, v(1))
save("sort_2_44", lambda x: torch.ones(2**44).sort()[0][-1] + x, v(1))
save("expand_2_46", lambda x: torch.full((1,), 0.5).expand(2**46).sum() + x, v(1))
save("square_2_24", lambda x: (x.expand(2**24, 2**24) + 1).softmax(-1), v(1))
save("two_2_47", lambda x: (x.expand(2**47).sin(), x.expand(2**47) + 1), v(1))
save("many", lambda x: sum((x * (i + 1)).expand(2**45).sort()[0][:1] for i in range(9)), v(1))
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    done = subprocess.run([sys.executable, "-c", MAKE, folder], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def compiled(programs, name):
    package = programs / f"{name}.coil.pt2"
    if not package.exists():
        harness.coil_ok("compile", programs / f"{name}.pt2", "-o", package, timeout=120)
    return package


def call(package, *shapes, numbers=()):
    """Calls through the C API with tensors that say they have these shapes; their memory is one page. The outputs or the error."""
    model = capi.Model(harness.BUILD / "libcoil_runtime.so", package)
    try:
        page, kept = np.ones(4096, np.uint8).view(np.float32), []
        page[:] = 1
        tensors = (capi.Tensor * (len(shapes) + len(numbers)))()
        for i, shape in enumerate(shapes):
            sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
            kept.append(sizes)
            tensors[i] = capi.Tensor(page.ctypes.data, sizes, None, len(shape), 6, 0, 0)
        for i, n in enumerate(numbers):
            value = np.array(n, np.int64)
            kept.append(value)
            tensors[len(shapes) + i] = capi.Tensor(value.ctypes.data, None, None, 0, 4, 0, 0)
        outputs = (capi.Tensor * model.num_outputs)()
        model.check(model.lib.coil_run(model.context, tensors, len(tensors), outputs, model.num_outputs))
        return [model.array(t).copy() for t in outputs]
    except capi.Error as error:
        return str(error)
    finally:
        model.close()


HUGE = 2**62
RUNS = [
    ("outer", [(HUGE,), (4,)], 204, "more than any memory holds"),
    ("outer", [(2**63 - 1,), (0,)], 204, "more than any memory holds"),
    ("outer", [(-1,), (4,)], 204, "negative"),
    ("outer", [(2**40,), (2**40,)], 401, "4*"),
    ("outer", [(2**31,), (2**31,)], 401, "output"),
    ("outer", [(2**32,), (2**30,)], 401, "4*"),
    ("outer", [(2**23,), (2**23,)], 401, str(2**48)),
    ("scratch", [(2**40,), (2**40,)], 401, "4*"),
    ("scratch", [(2**24,), (2**23,)], 401, "scratch"),
    ("flat", [(2**48, 2**48)], 401, "4*"),
    ("flat", [(2**33, 2**31)], 401, "4*"),
    ("flat", [(HUGE, 0)], 204, "more than any memory holds"),
    ("cube", [(2**30,), (2**30,)], 401, "loop"),
    ("matrix", [(2**40, 2**10), (2**10, 2**40)], 401, "4*"),
    ("matrix", [(2**24, 0), (0, 2**25)], 401, "output"),
]


@pytest.mark.parametrize("name,shapes,code,text", RUNS, ids=[f"{r[0]}-{i}" for i, r in enumerate(RUNS)])
def test_run_time(name, shapes, code, text, programs):
    said = call(compiled(programs, name), *shapes)
    assert isinstance(said, str), f"computed {[o.shape for o in said]}"
    assert f"COIL-E{code}" in said and text in said, said


@pytest.mark.parametrize("n,code", [(HUGE, 401), (2**50, 401), (2**63 - 1, 401), (-5, 210), (-(2**63), 210)])
def test_symbolic_number(n, code, programs):
    said = call(compiled(programs, "number"), (3,), numbers=[n])
    assert isinstance(said, str) and f"COIL-E{code}" in said, said


def test_good_sizes_pass(programs):
    """The limits refuse nothing that fits: empty tensors with one large size, and ordinary ones."""
    assert call(compiled(programs, "flat"), (2**47, 0))[0].shape == (0,)
    assert call(compiled(programs, "outer"), (2**40,), (0,))[0].shape == (2**40, 0)
    assert call(compiled(programs, "outer"), (3,), (5,))[0].tolist() == [[1] * 5] * 3
    assert call(compiled(programs, "number"), (3,), numbers=[4])[0].tolist() == [3, 6, 9, 12]
    assert call(compiled(programs, "matrix"), (2, 8), (8, 3))[0].tolist() == [[8] * 3] * 2


@pytest.mark.parametrize("name", ["empty_2_40", "sort_2_44", "expand_2_46", "square_2_24", "two_2_47", "many"])
def test_constant_sizes(name, programs, tmp_path):
    """Compiles in no time or is refused; a call says what it would need. A reduction over a large domain needs no memory: it is not run."""
    done = harness.coil("compile", programs / f"{name}.pt2", "-o", tmp_path / "p.coil.pt2", timeout=60)
    if done.returncode:
        return harness.assert_refused(done)
    if name == "expand_2_46":
        return
    np.savez(tmp_path / "in.npz", in_0=np.ones(1, np.float32))
    run = harness.coil("run", tmp_path / "p.coil.pt2", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz", timeout=60)
    harness.assert_refused(run, code=401)


def test_stock_pytorch(programs):
    """The same limits hold where libtorch calls the code; it allocates the outputs."""
    script = ("import torch, sys\nm = torch._inductor.aoti_load_package(sys.argv[1])\n"
              "big = torch.ones(1).as_strided((2**14,), (1,)) if False else torch.ones(2**20)\n"
              "for a, b in ((big, big), (torch.ones(2**21), big)):\n    try:\n        m(a, b)\n        print('computed')\n"
              "    except RuntimeError as e:\n        print(str(e).replace(chr(10), ' '))\nprint(m(torch.ones(2), torch.ones(3)).tolist())")
    done = subprocess.run([sys.executable, "-c", script, compiled(programs, "scratch")], capture_output=True, text=True, timeout=300,
                          preexec_fn=lambda: __import__("resource").setrlimit(__import__("resource").RLIMIT_AS, (2**40, 2**40)))
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 3, done.stdout + done.stderr
    for line in lines[:2]:
        assert "COIL-E401" in line and "by the formula 64*" in line, line
    assert lines[2] == "[3.0, 6.0]"


@pytest.mark.parametrize("size", [2**40 + 1, HUGE, 2**63 - 1])
def test_sizes_on_the_command_line(size, programs):
    """Example sizes for `inspect` and random inputs for `bench`."""
    package = compiled(programs, "scratch")
    for command in ("inspect", "bench"):
        done = harness.coil(command, package, "--shape", f"s77={size}", "--shape", f"s17={size}", timeout=60)
        harness.assert_refused(done, "s77" if command == "inspect" else "", code=401)


def test_ranges_that_begin_high(programs, tmp_path):
    """What a program says of its sizes may be anything: compiling makes its choices for sizes that no call will have."""
    import json
    import zipfile

    for name in ("scratch", "matrix", "cube"):
        path = tmp_path / "high.pt2"
        with zipfile.ZipFile(programs / f"{name}.pt2") as old, zipfile.ZipFile(path, "w") as new:
            for info in old.infolist():
                data = old.read(info)
                if info.filename.endswith("models/model.json"):
                    program = json.loads(data)
                    for bounds in program["range_constraints"].values():
                        bounds["min_val"] = 2**46
                    data = json.dumps(program)
                new.writestr(info, data)
        done = harness.coil("compile", path, "-o", tmp_path / "high.coil.pt2", timeout=60)
        if done.returncode:
            harness.assert_refused(done)
        else:
            said = call(tmp_path / "high.coil.pt2", *([(2**46, 2**46)] * 2 if name == "matrix" else [(2**46,)] * 2))
            assert isinstance(said, str) and "COIL-E401" in said, said
