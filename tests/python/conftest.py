"""pytest set-up: the command must be there; the zoo's programs that the collected tests want are exported first; jobs run ahead.

A test module may define `job(**parameters)`: it is called on a background thread for each collected test of the module that has
the fixture `result`, which hands the test what job returned. A module may define `zoo_names(**parameters)` to name programs.
"""

import os
import subprocess
import sys

import pytest

import harness

FARM = harness.Farm()


def pytest_sessionstart(session):
    if not os.access(harness.COIL, os.X_OK):
        pytest.exit(f"{harness.COIL} is missing: build first (make build), or set COIL_BIN", returncode=2)


def pytest_collection_finish(session):
    if session.config.option.collectonly:
        return
    names = {}
    for item in session.items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if hasattr(item.module, "zoo_names"):
            names.update(dict.fromkeys(item.module.zoo_names(**parameters)))
        if "result" in item.fixturenames:
            FARM.plan(item.nodeid, lambda job=item.module.job, parameters=parameters: job(**parameters))
    if names:
        made = subprocess.run([sys.executable, harness.REPO / "tests/models/zoo.py", "make", "--jobs", str(harness.JOBS), *names])
        if made.returncode:
            pytest.exit("PyTorch could not export a program of the zoo (see above)", returncode=3)


def pytest_sessionfinish(session):
    FARM.close()


@pytest.fixture
def result(request):
    return FARM.result(request.node.nodeid)


@pytest.fixture(scope="session")
def digits_package(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "digits.coil.pt2"
    harness.coil_ok("compile", harness.DIGITS, "-o", path)
    return path
