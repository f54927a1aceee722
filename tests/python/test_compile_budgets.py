"""Programs that once exploded while they were compiled: what grows is bounded by budgets, the work is linear in the program, and the results are eager's."""

import resource
import subprocess
import sys

import numpy as np
import pytest

import harness

sys.path.insert(0, str(harness.REPO / "bench"))
from scaling_programs import SHAPES  # noqa: E402

pytest.importorskip("torch")
GIGABYTE = 2**30


def compiled(shape, n, folder, *options):
    """The summary of compiling a shape of n nodes, with `cpu`, the seconds that it computed."""
    program = SHAPES[shape](n).save(folder / f"{shape}-{n}.pt2")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    bound = lambda: resource.setrlimit(resource.RLIMIT_AS, (12 * GIGABYTE, 12 * GIGABYTE))  # noqa: E731
    report = harness.coil_json("compile", program, "-o", folder / f"{shape}-{n}.coil.pt2", "--target", "cpu:x86-64-v3", "-O0", "--threads", 1, *options, preexec_fn=bound)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    report["cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return report


# With most operations of one kernel that each may have: what a program of n nodes becomes is linear, from few nodes on.
LINEAR = ["relu_chain", "same_choices", "diamonds", "where_nest", "where_diamonds", "coprime_reshapes", "coprime_reshapes_3d", "select_scatters", "slices_and_pads", "cats", "gathers",
          "constants", "reader_outputs", "writes_in_place"]


@pytest.mark.parametrize("shape", LINEAR)
def test_work_is_linear(shape, tmp_path):
    small, large = compiled(shape, 250, tmp_path), compiled(shape, 1000, tmp_path)
    for what in ("loops", "kernels", "functions", "code_bytes"):
        assert large[what] <= 4 * 1.3 * small[what] + (8192 if what == "code_bytes" else 4), f"{what}: {small[what]} for 250 nodes, {large[what]} for 1000"
    assert large["cpu"] < 4 * 2 * small["cpu"] + 1, f"{small['cpu']:.2f} s for 250 nodes, {large['cpu']:.2f} s for 1000"


@pytest.mark.parametrize("shape,n", [("where_nest", 260), ("where_diamonds", 200), ("coprime_reshapes", 80), ("coprime_reshapes_3d", 60), ("select_scatters", 150), ("slices_and_pads", 60),
                                     ("gathers", 60), ("constants", 200), ("diamonds", 90), ("norms", 200), ("cats", 60), ("slice_scatters", 90), ("running_total", 300), ("layers", 80),
                                     # more calls than one function of the host program has
                                     ("products", 1200), ("scans_and_sorts", 600), ("states", 1300), ("branches", 1000), ("nested_branches", 500), ("assertions", 1000)])
def test_results_are_eagers(shape, n, tmp_path):
    program = SHAPES[shape](n)
    inputs = program.examples()
    package = tmp_path / "p.coil.pt2"
    harness.coil_ok("compile", program.save(tmp_path / "p.pt2"), "-o", package, "--target", "cpu:x86-64-v3", "-O1")
    np.savez(tmp_path / "in.npz", **{f"x{i}": x for i, x in enumerate(inputs)})
    harness.coil_ok("run", package, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    harness.compare(harness.load_outputs(tmp_path / "out.npz"), program.replay(inputs), 1e-4, shape)


def test_names_are_short(tmp_path):
    """The name of what is inlined was put before the reader's for each reader: it doubled with each of these."""
    program = SHAPES["same_choices"](260).save(tmp_path / "p.pt2")
    env = {"COIL_DUMP": str(tmp_path / "dump"), "COIL_CACHE": "off", "PATH": "/usr/bin"}
    subprocess.run([harness.COIL, "compile", "-q", program, "-o", tmp_path / "p.coil.pt2", "--target", "cpu:x86-64-v3", "-O0"], check=True, timeout=60, env=env)
    longest = max((len(line), file.name) for file in (tmp_path / "dump").rglob("*") if file.is_file() for line in file.read_text().splitlines())
    assert longest[0] < 20_000, longest
