"""`python -m coil` is the command `coil`."""

import os
import shutil
import subprocess
import sys

import harness


def run(path, *arguments):
    return subprocess.run([sys.executable, "-m", "coil", *map(str, arguments)], capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(path)})


def test_it_is_the_command():
    for arguments in (["--version"], ["run", "nothing.pt2"], ["comple"]):
        here, there = run(harness.PYTHON_PATH, *arguments), harness.coil(*arguments)
        assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)


def test_without_the_program_it_says_so(tmp_path):
    shutil.copytree(harness.PYTHON_PATH / "coil", tmp_path / "build/python/coil", ignore=shutil.ignore_patterns("_compiler*.so"))
    done = run(tmp_path / "build/python", "--version")
    assert done.returncode == 1 and "the command is not beside this package" in done.stderr
