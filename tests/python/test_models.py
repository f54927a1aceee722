"""The whole models, in both forms; dynamic ones at several sizes through one package."""

import pytest

import harness
import zoo

CASES = [(name, form) for name, program in zoo.programs().items() if program.group == "model" for form in program.forms]
ONLY_AS_EXPORTED = {"b64"}  # the largest sizes, in one form only: time


def zoo_names(name=None, form=None):
    return [name] if name else []


def job(name, form):
    folder = zoo.make(name)
    meta = harness.zoo_meta(folder)
    sets = {tag: folder / f"{tag}.npz" for tag in meta["sets"] if form == "aten" or tag not in ONLY_AS_EXPORTED}
    return meta, harness.run_sets(folder / f"{name}.{form}.pt2", sets)


@pytest.mark.parametrize("name,form", CASES, ids=[f"{name}-{form}" for name, form in CASES])
def test_equals_eager(name, form, result):
    meta, runs = result
    folder = zoo.make(name)
    for tag, (done, outputs) in runs.items():
        assert done.returncode == 0, f"{tag}: exit code {done.returncode}\n{done.stderr[-3000:]}"
        expected = harness.load_expected(folder / f"{tag}.npz")
        harness.compare(outputs, expected, meta["tolerance"], tag)
        if meta["cosine"]:
            assert harness.cosine(outputs[0], expected[0]) > meta["cosine"], tag


def test_digits_accuracy(tmp_path, digits_package):
    import numpy as np

    harness.coil_ok("run", digits_package, "--input", harness.DIGITS_TEST, "--output", tmp_path / "out.npz")
    with np.load(harness.DIGITS_TEST) as data:
        accuracy = (harness.load_outputs(tmp_path / "out.npz")[0].argmax(1) == data["labels"]).mean()
    assert accuracy >= 0.97
