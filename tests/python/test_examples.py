"""The examples: built with gcc against include/ and libcoil_runtime as a user would, and run."""

import os
import subprocess
import sys

import numpy as np
import pytest

import harness
from harness import BUILD, DIGITS_TEST, REPO, coil_ok

SOURCES = sorted((REPO / "examples").glob("c*/*.c")) + sorted((REPO / "examples").glob("c*/*.cc")) + sorted((REPO / "examples").glob("c*/*.cpp"))
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def build(source, target, *libraries):
    compiler = ["gcc", "-std=c11"] if source.suffix == ".c" else ["g++", "-std=c++17"]
    subprocess.run([*compiler, *WARNINGS, "-O1", f"-I{REPO / 'include'}", source, *libraries, "-o", target], check=True, capture_output=True, text=True)
    return target


def shared():
    return [f"-L{BUILD}", "-lcoil_runtime", f"-Wl,-rpath,{BUILD}"]


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_examples_are_there():
    assert {".c", ".cc"} <= {s.suffix for s in SOURCES}, "one example in C, one in C++"


@pytest.mark.parametrize("source", SOURCES, ids=[str(s.relative_to(REPO)) for s in SOURCES])
def test_api_example(source, tmp_path, digits_package):
    assert "10" in run(build(source, tmp_path / "program", *shared()), digits_package)


def test_digits_demo(tmp_path, digits_package):
    text = run(build(REPO / "examples/digits/digits.cc", tmp_path / "demo", *shared()), digits_package, DIGITS_TEST)
    assert "accuracy" in text and "██" in text and "time per image" in text


def test_static_library(tmp_path, digits_package):
    """The static form of the runtime: a program with no shared coil library beside it."""
    program = build(REPO / "examples/digits/digits.cc", tmp_path / "demo", "-DCOIL_STATIC", BUILD / "libcoil_runtime.a", "-lpthread", "-ldl")
    assert "accuracy" in run(program, digits_package, DIGITS_TEST)
    assert "coil" not in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout


def test_python_example():
    text = run(sys.executable, REPO / "examples/python/spirals.py", env=dict(os.environ, PYTHONPATH=str(harness.PYTHON_PATH)))
    accuracy = float(text.split("accuracy ")[1].split()[0])
    assert accuracy > 0.95 and "PyTorch loaded: False" in text and "0 of them in PyTorch" in text, text


def test_kernel_example(tmp_path):
    text = run(sys.executable, REPO / "examples/kernels/rms_norm.py", tmp_path / "block.coil.pt2", env=dict(os.environ, PYTHONPATH=str(harness.PYTHON_PATH)))
    assert "3 configurations agree with the reference; the program agrees with PyTorch" in text, text
    kernels = harness.coil_json("inspect", tmp_path / "block.coil.pt2", "--json")["kernels"]
    assert [k["user"]["name"] for k in kernels if k["kind"] == "user"] == ["example::rms_norm"], kernels


def test_demo_script():
    text = run("sh", REPO / "tools/demo.sh", BUILD, env={"PATH": "/usr/bin:/bin"})
    assert all(word in text for word in ("accuracy", "compile time", "package", "time per image")), text


def test_minilm(tmp_path):
    run(sys.executable, REPO / "examples/minilm/export.py", tmp_path / "minilm.pt2")
    text = run(sys.executable, REPO / "examples/minilm/nearest.py", "--model", tmp_path / "minilm.pt2", "--coil", harness.COIL)
    assert "cosine" in text


def test_c_api_with_numpy(digits_package, tmp_path):
    """The same results through ctypes as through the command."""
    import capi

    with np.load(DIGITS_TEST) as data:
        images = data["in_0"]
    np.savez(tmp_path / "in.npz", in_0=images)
    coil_ok("run", digits_package, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    model = capi.Model(BUILD / "libcoil_runtime.so", digits_package)
    assert [model.input_name(i) for i in range(model.num_inputs)] == ["image"]
    assert np.array_equal(model.run(images)[0], harness.load_outputs(tmp_path / "out.npz")[0])
    with pytest.raises(capi.Error, match="COIL-E204.*batch"):
        model.run(np.zeros((513, 1, 8, 8), np.float32))
    np.testing.assert_allclose(model.run(images[:1])[0], model.run(images)[0][:1], rtol=1e-4, atol=1e-5)  # kernels for one row may sum in another order
