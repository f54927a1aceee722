"""PTX in packages (--target cuda:compute_80), for chips that came after the compiler: the driver compiles it when it loads the package.
Made by the real NVRTC, run emulated as the driver of a later chip would choose it."""

import json
import os
import pathlib
import zipfile

import numpy as np
import pytest

import emulated_cuda
import harness

HAVE_NVRTC = any(pathlib.Path(p).exists() for p in ("/usr/local/cuda/lib64/libnvrtc.so.13", os.environ.get("COIL_NVRTC", "/no")))
pytestmark = pytest.mark.skipif(not HAVE_NVRTC, reason="needs NVRTC")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ptx")

    def compile(target):
        path = folder / (target.replace(":", "_").replace(",", "_") + ".coil.pt2")
        if not path.exists():
            harness.coil_ok("compile", harness.DIGITS, "--target", target, "-o", path, "--threads", 1)
        return path

    return compile


def read(package, end):
    with zipfile.ZipFile(package) as archive:
        return archive.read(next(n for n in archive.namelist() if n.endswith(end)))


def images(folder):
    path = folder / "images.npz"
    np.savez(path, in_0=np.random.default_rng(0).standard_normal((5, 1, 8, 8), dtype=np.float32))
    return path


def run(package, folder, sm):
    library = folder / "kernels.so"
    if not library.exists():
        emulated_cuda.build_kernels(*emulated_cuda.kernels_of(package), library)
    done = harness.coil("run", package, "--device", "cuda:0", "--input", images(folder), "--output", folder / "out.npz", env=emulated_cuda.environment(library, sm))
    return done, harness.load_outputs(folder / "out.npz") if done.returncode == 0 else None


def test_what_is_in_the_package(package):
    both, alone = package("cuda:sm_80,cuda:compute_80"), package("cuda:compute_80")
    assert json.loads(read(both, "data/coil/manifest.json"))["targets"][0]["architectures"] == ["sm_80", "compute_80"]
    assert json.loads(read(alone, "data/coil/manifest.json"))["targets"][0]["architectures"] == ["compute_80"]
    assert "compute_80" in harness.coil_ok("inspect", alone).stdout
    assert b".target sm_80" in read(alone, ".so") and b".target sm_80" in read(both, ".so")
    assert len(read(both, ".so")) > len(read(alone, ".so"))
    assert b".target sm_80" not in read(package("cuda:sm_80"), ".so")


@pytest.mark.parametrize("target,sm", [("cuda:compute_80", 80), ("cuda:compute_80", 90), ("cuda:compute_80", 120), ("cuda:sm_90,cuda:compute_86", 120)])
def test_later_chips_run_it(package, tmp_path, target, sm):
    done, outputs = run(package(target), tmp_path, sm)
    assert done.returncode == 0, done.stderr
    harness.coil_ok("run", package("cpu:x86-64-v3"), "--input", images(tmp_path), "--output", tmp_path / "cpu.npz")
    harness.compare(outputs, harness.load_outputs(tmp_path / "cpu.npz"), 1e-4, target)


@pytest.mark.parametrize("target,sm", [("cuda:compute_80", 75), ("cuda:compute_89", 86), ("cuda:sm_80", 90)])
def test_earlier_chips_and_cubins_alone_are_refused(package, tmp_path, target, sm):
    done, _ = run(package(target), tmp_path, sm)
    assert done.returncode != 0 and "COIL-E303" in done.stderr and f"sm_{sm}" in done.stderr, done.stderr


def test_only_what_all_later_chips_run(tmp_path):
    done = harness.coil("compile", harness.DIGITS, "--target", "cuda:compute_90", "-o", tmp_path / "no.pt2")
    assert done.returncode != 0 and "cuda:compute_89" in done.stderr, done.stderr
