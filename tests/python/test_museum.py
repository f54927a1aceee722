"""Programs that older PyTorch versions exported: right, or refused with an error that says what was found and what is supported."""

import os
import pathlib
import re

import pytest

import harness

MUSEUM = pathlib.Path(os.environ.get("COIL_MUSEUM", harness.REPO.parent / "shared" / "museum"))
PROGRAMS = sorted(str(path.relative_to(MUSEUM)) for path in MUSEUM.glob("torch-*/*.pt2"))
MUST_BE_RIGHT_FROM = (2, 8)


def arrays_of(program):
    return MUSEUM / re.sub(r"(_core)?\.pt2$", ".npz", program)


def version(program):
    return tuple(map(int, re.match(r"torch-(\d+)\.(\d+)", program).groups()))


def job(program):
    if not arrays_of(program).exists():
        return {"only": (harness.coil("check", MUSEUM / program), None)}
    return harness.run_sets(MUSEUM / program, {"only": arrays_of(program)})


def test_museum_is_there():
    assert PROGRAMS, f"no programs in {MUSEUM}: set COIL_MUSEUM to the folder that holds torch-*/"


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
