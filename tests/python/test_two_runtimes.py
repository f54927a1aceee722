"""Two copies of the runtime in one process (the C library and the Python module, or an application's and PyTorch's) load code of their own."""

import subprocess
import sys

import harness

# The loader knows objects by path: the n-th code of one copy must not be taken for the n-th of the other.
ALTERNATING = """
import sys
sys.path[:0] = sys.argv[1:3]
import capi, coil, numpy
library, packages = sys.argv[3], sys.argv[4:]
kept = []
for n, path in enumerate(packages, 1):
    other = packages[-n]
    kept += [capi.Model(library, path), coil.load(other)]
    inputs = [numpy.full(3, 2.0, numpy.float32)] * (len(packages) + 1 - n)
    assert kept[-2].num_inputs == n, (path, kept[-2].num_inputs)
    assert (numpy.asarray(kept[-1](inputs)) == 2.0 * len(inputs)).all(), other
print("right")
"""


def test_code_is_not_taken_for_another_copys(tmp_path):
    import torch

    class Sum(torch.nn.Module):
        def forward(self, xs):
            return sum(xs)

    packages = []
    for count in range(1, 5):
        program, package = tmp_path / f"{count}.pt2", tmp_path / f"{count}.coil.pt2"
        torch.export.save(torch.export.export(Sum(), ([torch.ones(3) for _ in range(count)],)), program)
        harness.coil_ok("compile", program, "-o", package)
        packages.append(package)
    command = [sys.executable, "-c", ALTERNATING, harness.REPO / "tests/python", harness.PYTHON_PATH, harness.BUILD / "libcoil_runtime.so", *packages]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.stdout == "right\n", done.stderr
