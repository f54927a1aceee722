"""Every small program of the zoo against eager PyTorch: as exported, and one in four (all with COIL_TEST_ALL=1) after run_decompositions() too."""

import pytest

import harness
import zoo

CASES = [(name, form) for name, program in zoo.programs().items() if program.group == "op" for form in zoo.forms(name)]

def zoo_names(name, form):
    return [name]


def job(name, form):
    folder = zoo.make(name)
    meta = harness.zoo_meta(folder)
    return meta, harness.run_sets(folder / f"{name}.{form}.pt2", {tag: folder / f"{tag}.npz" for tag in meta["sets"]})


@pytest.mark.parametrize("name,form", CASES, ids=[f"{name}-{form}" for name, form in CASES])
def test_equals_eager(name, form, result):
    meta, runs = result
    folder = zoo.make(name)
    for tag, (done, outputs) in runs.items():
        assert done.returncode == 0, f"{tag}: exit code {done.returncode}\n{done.stderr[-3000:]}"
        harness.compare(outputs, harness.load_expected(folder / f"{tag}.npz"), meta["tolerance"], tag)
