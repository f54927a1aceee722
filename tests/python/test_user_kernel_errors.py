"""Everything that the registration of a user's kernel can get wrong."""

import copy
import json
import os
import re
import subprocess
import sys

import pytest
import torch

import coil
import harness
from harness import assert_refused
from harness import coil as command
from test_user_kernels import files  # noqa: F401 (a fixture)
from user_kernel_programs import add_times, program, swish

GOOD = {"name": "usertest::good", "signature": "(Tensor x, int n=1) -> Tensor", "configs": [{"BLOCK": 64}, {"BLOCK": 128}],
        "cpu": {"text": "void good(auto x, auto n, auto out, coil::Range r) {}", "range": "x.numel() // n"}, "cuda": {"text": "__device__ void good(auto x, auto n, auto out) {}", "grid": "n", "block": "BLOCK"}}


def changed(path, value):
    registration = copy.deepcopy(GOOD)
    at = registration
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return registration


BAD = [
    (("name",), "good", "not of the form namespace::operator"),
    (("name",), "aten::add", "the namespace 'aten' is not the user's"),
    (("signature",), "Tensor x -> Tensor", "does not begin with '('"),
    (("signature",), "(Tensor x -> Tensor", "cannot be read"),
    (("signature",), "(Tensor x) ->", "results cannot be read"),
    (("signature",), "(Tensor x) -> ()", "gives no result and writes to no argument"),
    (("signature",), "(Tensor x) -> int", "a result is something else than a Tensor"),
    (("signature",), "(Tensor(a!) x) -> Tensor(a!)", "a result is an argument that is written to"),
    (("signature",), "(Tensor[] x) -> Tensor", "'x' is a list of something else than integers"),
    (("signature",), "(Tensor x, str mode) -> Tensor", "'mode' has a type that user kernels do not take"),
    (("signature",), "(Tensor x, int? n) -> Tensor", "'n' is optional and no tensor"),
    (("signature",), "(Tensor(a!)? x) -> ()", "'x' is written to"),
    (("signature",), "(Tensor x, Tensor x) -> Tensor", "'x' of the signature has no name of its own"),
    (("signature",), "(Tensor out) -> Tensor", "'out' of the signature has no name of its own"),
    (("configs",), [{"BLOCK": 64}, {"TILE": 3}], "other constants"),
    (("configs",), [{"BLOCK": 64}, {"BLOCK": 64}], "is there twice"),
    (("configs",), [{"BLOCK": 1.5}], "'BLOCK' of a configuration is no whole number"),
    (("configs",), [{"BLOCK": "64"}], "is no whole number"),
    (("configs",), [{"x": 1, "BLOCK": 1}], "'x' cannot be the name of a constant"),
    (("configs",), [{"for": 1, "BLOCK": 1}], "'for' cannot be the name of a constant"),
    (("configs",), [{"A B": 1, "BLOCK": 1}], "'A B' cannot be the name of a constant"),
    (("configs",), [{"BLOCK": 2048}], "cuda.block is 2048 with BLOCK=2048"),
    (("configs",), [{"TILE": 8}], "cuda.block.*'BLOCK' is no constant"),
    (("cpu", "range"), None, "cpu.range is missing"),
    (("cpu", "range"), "x.size(0", "a '\\)' is missing"),
    (("cpu", "range"), "x", "'x' is a tensor"),
    (("cpu", "range"), "y.numel()", "there is no tensor 'y'"),
    (("cpu", "range"), "m * 2", "'m' is no constant and no integer argument"),
    (("cpu", "range"), "x.numel() / 2", "'/' would be a fraction"),
    (("cpu", "range"), "x.length()", "'x.length' is not known"),
    (("cpu", "range"), "sqrt(1, 2)", "there is no function 'sqrt'"),
    (("cpu", "range"), "2 3", "'3' is not expected there"),
    (("cpu", "range"), "(" * 300 + "1" + ")" * 300, "nested too deep"),
    (("cpu", "range"), "99999999999999999999", "a number is too large"),
    (("cpu", "text"), " \n", "the source for the CPU is empty"),
    (("cpu", "source"), "a.cc", "has a \"source\" and a \"text\""),
    (("cpu",), {"source": "a.cc", "range": "1"}, "names no files"),
    (("cpu", "grid"), "3", "\"cpu\" has no field 'grid'"),
    (("cpu", "entry"), "a b", "'a b' cannot be the name of a function"),
    (("cuda", "block"), "x.numel()", "there is no tensor 'x'"),
    (("cuda", "grid"), ["1", "1", "1", "1"], "cuda.grid is missing"),
    (("cuda", "shared"), "0 - 1", "cuda.shared is -1"),
    (("key",), "BLOCK", "key.*'BLOCK' is no constant"),
    (("blocks",), 3, "no field 'blocks'"),
]


@pytest.mark.parametrize("path,value,message", BAD, ids=[f"{'.'.join(p)}-{i}" for i, (p, _, _) in enumerate(BAD)])
def test_wrong_registrations(path, value, message):
    compiler = __import__("importlib").import_module("coil._compiler")
    compiler.check_kernel(json.dumps(GOOD))
    with pytest.raises(coil.KernelError, match=f"(?s){message}" if ".*" in message or "\\" in message else re.escape(message)) as caught:
        compiler.check_kernel(json.dumps(changed(path, value)))
    assert caught.value.code == "COIL-E408"


def test_two_of_one_name(files, tmp_path):
    with pytest.raises(coil.KernelError, match="usertest::swish.*registered already"):
        coil.register_kernel("usertest::swish", signature="(Tensor x) -> Tensor", cpu="void swish() {}", range="1")
    with pytest.raises(coil.KernelError, match="PyTorch has an operator of this name"):
        torch.library.define("usertest::taken", "(Tensor x) -> Tensor")
        coil.register_kernel("usertest::taken", signature="(Tensor x) -> Tensor", cpu="void taken() {}", range="1")
    done = command("compile", files / "network.pt2", "-o", tmp_path / "p", "--kernels", files / "kernels", "--kernels", files / "kernels/swish.json")
    assert_refused(done, "usertest::swish", "two registrations have this name", code=408)


def test_files_that_are_not_there(files, tmp_path):
    assert_refused(command("compile", files / "network.pt2", "-o", tmp_path / "p", "--kernels", tmp_path / "nothing"), "nothing", code=1)
    (tmp_path / "empty").mkdir()
    assert_refused(command("compile", files / "network.pt2", "-o", tmp_path / "p", "--kernels", tmp_path / "empty"), "holds no registration", code=408)
    (tmp_path / "bad.json").write_text("{")
    assert_refused(command("compile", files / "network.pt2", "-o", tmp_path / "p", "--kernels", tmp_path / "bad.json"), "bad.json", code=12)
    (tmp_path / "no_source.json").write_text(json.dumps(changed(("cpu",), {"source": "no.cc", "range": "1"})))
    assert_refused(command("compile", files / "network.pt2", "-o", tmp_path / "p", "--kernels", tmp_path / "no_source.json"), "no.cc", code=1)


def compile_one(tmp_path, text, **more):
    """An operator of this source in a program: the error."""
    registration = {"name": "usertest::swish", "signature": swish.registration["signature"], "cpu": {"text": text, "file": "mine.cc", "range": "x.size(0)"}, **more}
    (tmp_path / "k.json").write_text(json.dumps(registration))

    class One(torch.nn.Module):
        def forward(self, x, w):
            return torch.ops.usertest.swish(x, w)

    torch.export.save(torch.export.export(One(), (torch.randn(2, 3), torch.randn(3))), tmp_path / "one.pt2")
    return command("compile", tmp_path / "one.pt2", "-o", tmp_path / "p", "--kernels", tmp_path / "k.json")


def test_source_errors_name_the_users_line(tmp_path):
    call = "coil calls it as swish(coil::Tensor<const float, 2> x, coil::Tensor<const float, 1> w, double alpha, coil::Tensor<float, 2> out, coil::Range range)"
    assert_refused(compile_one(tmp_path, "\n\nvoid swish(auto x, auto w, auto alpha, auto out, coil::Range r) {\n  out[0] = y;\n}\n"), "mine.cc:4:12: error", "usertest::swish", call, code=409)
    assert_refused(compile_one(tmp_path, "void swish(coil::Tensor<const int, 2> x) {}"), "too many arguments", "mine.cc:1:", call, code=409)
    assert_refused(compile_one(tmp_path, "void swash() {}"), "swish", call, code=409)
    assert_refused(compile_one(tmp_path, "#include <vector>\nvoid swish() {}"), "'vector' file not found", code=409)
    assert_refused(compile_one(tmp_path, "void swish( {"), "mine.cc:1:", code=409)
    assert_refused(compile_one(tmp_path, "void swish(auto x, auto w, auto alpha, auto out, coil::Range r) { out(0) = 1; }"), "one coordinate for each dimension", code=409)


def test_missing_target(tmp_path, files):
    text = "void swish(auto x, auto w, auto alpha, auto out, coil::Range r) {}"
    assert compile_one(tmp_path, text).returncode == 0
    done = command("compile", tmp_path / "one.pt2", "-o", tmp_path / "p", "--kernels", tmp_path / "k.json", "--target", "cuda:sm_90")
    assert_refused(done, "usertest::swish", "no source for CUDA", "test_user_kernel_errors.py:", code=408)
    registration = dict(swish.registration)
    del registration["cpu"]
    (tmp_path / "k.json").write_text(json.dumps(registration))
    assert_refused(command("compile", tmp_path / "one.pt2", "-o", tmp_path / "p", "--kernels", tmp_path / "k.json"), "no source for the CPU", code=408)
    rows = harness.coil("check", tmp_path / "one.pt2", "--kernels", tmp_path / "k.json")
    assert rows.returncode != 0 and "no source for the CPU" in rows.stdout + rows.stderr


def test_formulas_that_do_not_fit_the_program(tmp_path):
    text = "void swish(auto x, auto w, auto alpha, auto out, coil::Range r) {}"
    registration = {"text": text, "range": "w.size(1)"}
    assert_refused(compile_one(tmp_path, text, cpu=registration), "'w.size(1)'".replace("'", ""), "'w' has 1 dimensions", "test_user_kernel_errors.py:", code=408)


def test_complex_tensors_are_refused():
    class One(torch.nn.Module):
        def forward(self, x, w):
            return torch.ops.usertest.swish(x, w)

    program = torch.export.export(One(), (torch.randn(2, 3, dtype=torch.complex64), torch.randn(3)))
    with pytest.raises(coil.UnsupportedError, match="'x' is complex, which user kernels do not take"):
        coil.compile(program)


def test_headers_and_entry():
    kernel = coil.register_kernel("usertest::header", signature="(Tensor x) -> Tensor", range="x.numel()", headers={"scale.h": "inline float scale() { return 3; }\n"}, entry="triple",
                                  cpu='#include "scale.h"\n#include "math_all.h"\nvoid triple(coil::Tensor<const float, 1> x, coil::Tensor<float, 1> out, coil::Range r) {\n'
                                      "  for (int64_t i = r.begin; i < r.end; ++i) out[i] = cd::exp(scale() * x[i]);\n}\n")
    x = torch.randn(10)
    torch.testing.assert_close(kernel(x), torch.exp(3 * x))


def test_without_pytorch(files, tmp_path):
    """Registrations and programs need no PyTorch."""
    torch.export.save(program(), tmp_path / "p.pt2")
    script = f"""
import sys
sys.modules["torch"] = None
import coil, numpy
kernels = [coil.register_kernel(r["name"], signature=r["signature"], cpu=r["cpu"]["text"], range=r["cpu"]["range"], configs=r["configs"]) for r in {[swish.registration, add_times.registration]!r}]
assert coil.compile({str(tmp_path / 'p.pt2')!r}, kernels=kernels)(numpy.ones((2, 33), "f"))[0].shape == (2, 33)
assert coil.compile({str(tmp_path / 'p.pt2')!r}, kernels={str(files / 'kernels')!r})(numpy.ones((2, 33), "f"))[0].shape == (2, 33)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(harness.PYTHON_PATH)))
    assert done.returncode == 0, done.stderr
