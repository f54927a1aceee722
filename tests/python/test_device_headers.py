"""The headers of device/cuda: each includes what it needs, since a program includes no more than its kernels name."""

import subprocess

import pytest

import emulated_cuda

HEADERS = sorted(path.name for path in emulated_cuda.DEVICE.glob("*.h"))


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_alone(header):
    folder = emulated_cuda.made_tools()
    text = f'#include "builtins.h"\n#include "cuda/{header}"\n'
    command = [emulated_cuda.CLANG, *emulated_cuda.FLAGS, "-fsyntax-only", f"-I{folder}", "-x", "c++", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
