"""pytest set-up: the command must be there; the zoo's programs that the collected tests want are exported first.

A test module may define `job(**parameters)`: the fixture `result` hands a test of the module what it returns. A module may define
`zoo_names(**parameters)` to name programs. Several processes at once: pytest -n 2 --dist worksteal.
"""

import os
import subprocess
import sys

import pytest

import harness


def pytest_sessionstart(session):
    if not os.access(harness.COIL, os.X_OK):
        pytest.exit(f"{harness.COIL} is missing: build first (make build), or set COIL_BIN", returncode=2)


@pytest.fixture
def fresh_compiles():
    """torch.compile knows nothing of what other tests compiled, coil's counts begin anew, and random numbers are the same each time."""
    import torch

    import coil

    torch._dynamo.reset()
    coil.reset_compile_stats()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def parameters(item):
    return item.callspec.params if hasattr(item, "callspec") else {}


def export(names):
    """Each process of tests asks; the first one exports."""
    import zoo

    with harness.one_at_a_time(zoo.root() / "lock"):
        missing = [name for name in names if not zoo.is_made(name)]
        command = [sys.executable, harness.REPO / "tests/models/zoo.py", "make", "--jobs", str(os.cpu_count()), *missing]
        if missing and subprocess.run(command).returncode:
            pytest.exit("PyTorch could not export a program of the zoo (see above)", returncode=3)


def pytest_collection_finish(session):
    if session.config.option.collectonly:
        return
    names = {}
    for item in session.items:
        if hasattr(item.module, "zoo_names"):
            names.update(dict.fromkeys(item.module.zoo_names(**parameters(item))))
    if names:
        export(names)


@pytest.fixture
def result(request):
    return request.module.job(**parameters(request.node))


@pytest.fixture(scope="session")
def digits_package(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "digits.coil.pt2"
    harness.coil_ok("compile", harness.DIGITS, "-o", path)
    return path
