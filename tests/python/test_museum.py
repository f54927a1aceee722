"""Programs that older PyTorch versions exported: right, or refused with an error that says what was found and what is supported."""

import os
import pathlib
import re
import zipfile

import numpy as np
import pytest
import torch

import harness
from case import Function

# COIL_MUSEUM: another folder of programs, of the same form.
MUSEUM = pathlib.Path(os.environ.get("COIL_MUSEUM", harness.REPO / "tests" / "museum"))
PROGRAMS = sorted(str(path.relative_to(MUSEUM)) for path in MUSEUM.glob("torch-*/*.pt2"))
MUST_BE_RIGHT_FROM = (2, 5)


def arrays_of(program):
    return MUSEUM / re.sub(r"(_core)?\.pt2$", ".npz", program)


def version(program):
    return tuple(map(int, re.match(r"torch-(\d+)\.(\d+)", program).groups()))


def job(program):
    if not arrays_of(program).exists():
        return {"only": (harness.coil("check", MUSEUM / program), None)}
    return harness.run_sets(MUSEUM / program, {"only": arrays_of(program)})


def test_museum_is_there():
    assert PROGRAMS, f"no programs in {MUSEUM}: the folder holds torch-*/, or COIL_MUSEUM names one that does"


@pytest.mark.parametrize("program", PROGRAMS)
def test_right_or_refused(program, result):
    done, outputs = result["only"]
    if done.returncode == 0:
        if outputs is not None:
            harness.compare(outputs, harness.load_expected(arrays_of(program)), 2e-2 if "bf16" in program else 1e-4, program)
        return
    if "-cuda" in program.split("/")[0]:  # a program for another device
        harness.assert_refused(done, "cuda")
        return
    assert version(program) < MUST_BE_RIGHT_FROM, f"exit code {done.returncode}\n{done.stderr[-3000:]}"
    harness.assert_refused(done, "schema", "coil reads", code=101)
    assert re.search(r"\d+\.\d+", done.stderr), done.stderr


# What PyTorch 2.5 and 2.6 write as Python's json module does, without quotes.
NOT_FINITE = {
    "masked_fill": lambda x: x.masked_fill(x > 0, float("-inf")).softmax(-1),
    "clamp": lambda x: x.clamp(float("-inf"), float("inf")) * 2,
    "full": lambda x: torch.full_like(x, float("nan")) + torch.where(x > 0, float("inf"), x),
    "nan_to_num": lambda x: (x / x.relu()).nan_to_num(nan=float("inf"), posinf=float("-inf"), neginf=1.0),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1), value=float("-inf")),
    "complex": lambda x: (x + complex(float("inf"), 0.0)).real,
}


def test_numbers_that_are_not_finite(tmp_path):
    seen = 0
    for name, function in NOT_FINITE.items():
        x = torch.linspace(-1, 1, 12).reshape(3, 4)
        today, older = tmp_path / f"{name}.pt2", tmp_path / f"{name}.older.pt2"
        torch.export.save(torch.export.export(Function(function), (x,)), today)
        with zipfile.ZipFile(today) as source, zipfile.ZipFile(older, "w") as target:
            for entry in source.namelist():
                data = source.read(entry)
                if entry.endswith("models/model.json"):
                    data, count = re.subn(rb'"(-?Infinity|NaN)"', rb"\1", data)
                    seen += count
                target.writestr(entry, data)
        np.savez(tmp_path / "x.npz", in_0=x.numpy())
        results = harness.run_sets(older, {"x": tmp_path / "x.npz"})["x"]
        assert results[0].returncode == 0, results[0].stderr
        harness.compare(results[1], [function(x).numpy()], 1e-6, name)
    assert seen >= 8, "the format of today writes them in another way"
