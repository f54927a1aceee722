"""Programs of whose results some are None: left out by the C API and the command, None in stock PyTorch. Values: test_differential.py."""

import json
import subprocess
import sys

import numpy as np
import pytest

import capi
import harness
import ops_checks
import zoo


def zoo_names(**parameters):
    return list(ops_checks.NONE)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("none")
    for name in ops_checks.NONE:
        harness.coil_ok("compile", zoo.make(name) / f"{name}.aten.pt2", "-o", folder / f"{name}.coil.pt2")
    return folder


@pytest.mark.parametrize("name", list(ops_checks.NONE))
def test_command_and_c_api(name, packages, tmp_path):
    package, none = packages / f"{name}.coil.pt2", ops_checks.NONE[name]
    np.savez(tmp_path / "in.npz", in_0=np.ones(4, np.float32))
    harness.coil_ok("run", package, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as file:
        keys = list(file.files)
    tensors = len(keys)
    places = [i for i in range(tensors + len(none)) if i not in none]
    assert keys == [f"out_{i}" for i in places]
    text = harness.coil_ok("inspect", package).stdout
    for place in none:
        assert any(line.split()[:2] == [f"out_{place}", "None"] for line in text.splitlines()), text

    model = capi.Model(harness.BUILD / "libcoil_runtime.so", package)
    assert model.num_outputs == tensors
    assert [model.lib.coil_output_position(model.model, i) for i in range(-1, tensors + 1)] == [-1, *places, -1]
    assert len(model.run(np.ones(4, np.float32))) == tensors
    model.close()


def test_stock_pytorch(packages):
    script = ("import json, sys, torch\nfrom torch.utils._pytree import tree_map\n"
              "print(json.dumps([tree_map(lambda v: v if v is None else v.tolist(), torch._inductor.aoti_load_package(p)(torch.ones(4))) for p in sys.argv[1:]]))")
    done = subprocess.run([sys.executable, "-c", script, *[packages / f"{name}.coil.pt2" for name in ops_checks.NONE]], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    one, two, zero = [1.0] * 4, [2.0] * 4, [0.0] * 4
    assert json.loads(done.stdout.strip().splitlines()[-1]) == [[two, None], [None, two], [4.0, None, {"a": None, "b": one}, [None, zero]], None]
