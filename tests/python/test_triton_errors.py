"""Kernels in Triton that cannot be compiled: errors that name the kernel, its file and line, from Python and from the command line."""

import importlib
import json
import os
import sys

import pytest
import torch

import harness

pytest.importorskip("triton", exc_type=ImportError)
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from torch.library import triton_op, wrap_triton  # noqa: E402

import coil  # noqa: E402
import coil.triton  # noqa: E402
from coil import _compile  # noqa: E402
from triton_packages import add_into, exported, package_of, rows_of, whole  # noqa: E402


@triton.jit
def broken(x, y, BLOCK: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)) @ 3)


@triton_op("coiltest::broken", mutates_args={})
def broken_op(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    wrap_triton(broken)[(1,)](x, y, BLOCK=64)
    return y


@triton_op("coiltest::gaps_", mutates_args={"x"})
def gaps_(x: torch.Tensor) -> None:
    wrap_triton(add_into)[(1,)](x, x, x.shape[0], 1.0, True, BLOCK=64)


class Broken(torch.nn.Module):
    def forward(self, x):
        return broken_op(x)


class Gaps(torch.nn.Module):
    def forward(self, x):
        pairs = torch.ones(x.shape[0], 2)
        gaps_(pairs[:, 0])
        return pairs


class Whole(torch.nn.Module):
    def forward(self, x):
        return whole(x)


@pytest.mark.parametrize("model, code, text, dims", [
    (Broken(), 409, "Triton kernel 'broken': Triton cannot compile it", None),
    (Gaps(), 408, "Triton kernel 'add_into': it writes to 'total', a view with gaps", None),
    (Whole(), 408, "Triton kernel 'add_if': its constant 'flag' depends on a dynamic size", ({0: "n"},)),
])
def test_errors_name_the_kernel_and_the_line(model, code, text, dims, tmp_path):
    with pytest.raises(coil.Error, match=text) as caught:
        package_of(exported(model, (torch.randn(64),), dims), tmp_path / "x.coil.pt2")
    assert caught.value.number == code and "test_triton_errors.py:" in str(caught.value) and "hint:" in str(caught.value)


def test_heuristics_are_respected(tmp_path):
    """Two sizes, two values of the constant that the heuristic computes: other machine code, and the configuration's two warps."""
    codes = []
    for size in (128, 100):
        program, kernels = importlib.import_module("coil.triton").prepare(exported(Whole(), (torch.randn(size),)), "cuda:sm_90")
        (image, *_) = json.loads(kernels[0])["cuda"]["images"]
        assert image["threads"] == 64
        codes.append(image["code"])
    assert codes[0] != codes[1]


def test_registrations_are_checked(tmp_path):
    """The JSON between Python and the compiler is anyone's text."""
    from triton_kernels import softmax

    program, kernels = importlib.import_module("coil.triton").prepare(exported(softmax.Model(), softmax.example("cpu")), "cuda:sm_90")
    (text,) = kernels

    def compiled(change):
        registration = json.loads(text)
        change(registration)
        settings = dict(_compile.settings_of({}, "cuda:sm_90"), kernels=[json.dumps(registration)], name="x")
        importlib.import_module("coil._program").compile_exported(program, str(tmp_path / "x.coil.pt2"), settings)

    compiled(lambda r: None)
    images = lambda r: r["cuda"]["images"]  # noqa: E731
    wrong = {"base64": lambda r: images(r)[0].update(code="!!"), "out of its range": lambda r: images(r)[0].update(threads=5000),
             "does not fit the signature": lambda r: images(r)[0]["params"].append(["ptr", "nobody"]), "any alignment": lambda r: images(r).pop(),
             "not one grid": lambda r: r["cuda"]["grids"].append(["1"]), "no machine code for sm_90": lambda r: [i.update(sm=80) for i in images(r)],
             "not there": lambda r: images(r)[0].update(config=7), "initial": lambda r: r.update(initial=["nobody"]), "both a source": lambda r: r["cuda"].update(text="x")}
    for message, change in wrong.items():
        with pytest.raises(coil.KernelError, match=message):
            compiled(change)


def command(model, *arguments, **environment):
    env = {**os.environ, "COIL_TORCH": sys.executable, "PYTHONPATH": str(harness.BUILD / "python"), **environment}
    return harness.coil("compile", model, *arguments, env=env)


def test_command_line(tmp_path):
    """A file of torch.export.save, and the Python file of its operators: the package is that of coil.compile."""
    from triton_kernels import softmax

    program, file = exported(softmax.Model(), softmax.example("cpu"), softmax.dims), harness.REPO / "tests/python/triton_kernels/softmax.py"
    model, package = tmp_path / "model.pt2", tmp_path / "model.coil.pt2"
    torch.export.save(program, model, extra_files={"coil_dims.json": json.dumps({"s77": "rows"})})
    done = command(model, "--triton", file, "--target", "cuda:sm_90", "-o", package)
    assert done.returncode == 0, done.stderr
    assert rows_of(package) == rows_of(package_of(program, tmp_path / "same.coil.pt2"))
    assert "rows" in harness.coil("inspect", package).stdout
    harness.assert_refused(command(model, "--triton", file), "coiltest.softmax", "no code for the CPU", "softmax.py:", "--target cuda:sm_90", code=408)
    harness.assert_refused(command(model, "--triton", "nothing.py", "--target", "cuda:sm_90"), "there is no file 'nothing.py'", code=402)
    other = harness.REPO / "tests/python/triton_kernels/scan.py"
    harness.assert_refused(command(model, "--triton", other, "--target", "cuda:sm_90"), "no module defines", "coiltest.softmax.default", code=402)
    harness.assert_refused(command(model, "--triton", file, COIL_TORCH="/nowhere/python"), "cannot start", code=402)
    harness.assert_refused(command(model, "--target", "cuda:sm_90"), "--triton", code=102)


@pytest.mark.parametrize("text, line, what, hint", [
    ("import torch\nnothing\n", 2, "NameError", "mend the file"),
    ("def f(:\n", 1, "SyntaxError", "mend the file"),
    ("import module_that_nobody_has\n", 1, "ModuleNotFoundError", "install 'module_that_nobody_has'"),
    ("import sys\n\nsys.exit(3)\n", 3, "SystemExit", "mend the file"),
    ("def f():\n    raise ValueError('\x1b[31m \u00e9')\nf()\n", 2, "ValueError", "mend the file"),
])
def test_a_file_that_fails_is_named_with_its_line(tmp_path, text, line, what, hint):
    """The hint is about the file, not about the Python that ran it."""
    from triton_kernels import softmax

    torch.export.save(exported(softmax.Model(), softmax.example("cpu"), softmax.dims), tmp_path / "model.pt2")
    (tmp_path / "ops.py").write_text(text)
    done = command(tmp_path / "model.pt2", "--triton", tmp_path / "ops.py", "--target", "cuda:sm_90", "-o", tmp_path / "x.coil.pt2")
    harness.assert_refused(done, what, f"ops.py:{line}", hint, code=402)
    assert "set COIL_TORCH to" not in done.stderr and "\x1b" not in done.stderr
    harness.assert_refused(command(tmp_path / "model.pt2", "--triton", "module_that_nobody_has", "--target", "cuda:sm_90"), "path of a Python file", code=402)


def test_saved_programs(tmp_path):
    """coil.triton.save writes what the command compiles without Python."""
    from triton_kernels import softmax

    model = tmp_path / "model.pt2"
    importlib.import_module("coil.triton").save(exported(softmax.Model(), softmax.example("cpu")), model, "cuda:sm_90")
    done = harness.coil("compile", model, "--target", "cuda:sm_90", "-o", tmp_path / "model.coil.pt2")
    assert done.returncode == 0, done.stderr
    assert len(rows_of(tmp_path / "model.coil.pt2")) == 2
    harness.assert_refused(harness.coil("compile", model, "--target", "cuda:sm_80", "-o", tmp_path / "x.coil.pt2"), "no machine code for sm_80", "softmax.py:33", code=408)
