"""Every small program of the zoo, as exported and after run_decompositions(), against eager PyTorch."""

import pytest

import harness
import zoo

CASES = [(name, form) for name, program in zoo.programs().items() if program.group == "op" for form in program.forms]

# Operators that coil may still refuse, by a proper error that names the operator and the source line. Once one of them compiles
# its results must be right; take it off this list then.
MAY_BE_REFUSED = {
    "unary_lgamma", "unary_erfinv", "binary_heaviside", "cumprod_cummax", "bucketize", "isin", "tensordot", "bilinear", "gru_cell", "diagonal",
    "batch_norm_statistics", "instance_norm", "interpolate_bicubic", "grid_sample", "one_hot", "cosine_similarity", "mse_l1", "cross_entropy", "nll_loss",
}


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
        if done.returncode and name in MAY_BE_REFUSED:
            harness.assert_refused(done, "aten.", ".py:")
            continue
        assert done.returncode == 0, f"{tag}: exit code {done.returncode}\n{done.stderr[-3000:]}"
        harness.compare(outputs, harness.load_expected(folder / f"{tag}.npz"), meta["tolerance"], tag)
