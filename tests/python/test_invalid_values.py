"""Values that eager refuses in the call: coil's program raises too, with the operator and the source line, and goes on with good ones."""

import sys

import pytest
import torch
import torch.nn.functional as F

import harness
from case import Function

sys.path.insert(0, str(harness.REPO / "tests/conformance"))

W = torch.ones(2, 4)
I4 = torch.tensor([0, 1, 2, 3])
L = torch.ones(3, 4)

# name: (function, good inputs, bad inputs)
CASES = {
    "multinomial_nan": (lambda w: torch.multinomial(w, 2), [W], [torch.tensor([[1.0, float("nan"), 1, 1]] * 2)]),
    "multinomial_negative": (lambda w: torch.multinomial(w, 2), [W], [torch.tensor([[1.0, -1, 1, 1]] * 2)]),
    "multinomial_infinite": (lambda w: torch.multinomial(w, 2), [W], [torch.tensor([[1.0, float("inf"), 1, 1]] * 2)]),
    "multinomial_zero": (lambda w: torch.multinomial(w, 2), [W], [torch.zeros(2, 4)]),
    "multinomial_replaced_nan": (lambda w: torch.multinomial(w, 2, True), [W], [torch.tensor([[1.0, float("nan"), 1, 1]] * 2)]),
    "multinomial_replaced_zero": (lambda w: torch.multinomial(w, 2, True), [W], [torch.tensor([[1.0, 1, 1, 1], [0, 0, 0, 0]])]),
    "multinomial_row": (lambda w: torch.multinomial(w, 2), [W[0]], [-W[0]]),
    "bernoulli_large": (lambda p: torch.bernoulli(p), [W / 2], [W * 2]),
    "bernoulli_nan": (lambda p: torch.bernoulli(p), [W / 2], [W * float("nan")]),
    "bernoulli_of": (lambda x, p: torch.empty_like(x).bernoulli_(p), [W, W / 2], [W, -W]),
    "normal_negative": (lambda m, s: torch.normal(m, s), [W, W], [W, -W]),
    "embedding_bag_decreasing": (lambda i, w, o: F.embedding_bag(i, w, o, mode="sum"), [I4, torch.ones(5, 8), torch.tensor([0, 2, 3])], [I4, torch.ones(5, 8), torch.tensor([0, 3, 1])]),
    "embedding_bag_first": (lambda i, w, o: F.embedding_bag(i, w, o, mode="mean"), [I4, torch.ones(5, 8), torch.tensor([0, 2])], [I4, torch.ones(5, 8), torch.tensor([1, 2])]),
    "embedding_bag_last": (lambda i, w, o: F.embedding_bag(i, w, o, mode="max"), [I4, torch.ones(5, 8), torch.tensor([0, 2])], [I4, torch.ones(5, 8), torch.tensor([0, 5])]),
    "segment_lengths_sum": (lambda x, n: torch.segment_reduce(x, "sum", lengths=n), [torch.ones(6, 2), torch.tensor([2, 4])], [torch.ones(6, 2), torch.tensor([2, 3])]),
    "segment_lengths_large": (lambda x, n: torch.segment_reduce(x, "max", lengths=n), [torch.ones(6, 2), torch.tensor([2, 4])], [torch.ones(6, 2), torch.tensor([2, 9])]),
    "segment_lengths_negative": (lambda x, n: torch.segment_reduce(x, "mean", lengths=n), [torch.ones(6, 2), torch.tensor([2, 4])], [torch.ones(6, 2), torch.tensor([-1, 7])]),
    "divide_by_zero": (lambda a, b: a // b, [I4, I4 + 1], [I4, I4]),
    "remainder_of_zero": (lambda a, b: a % b, [I4, I4 + 1], [I4, I4]),
    "fmod_of_zero": (lambda a, b: torch.fmod(a, b), [I4, I4 + 1], [I4, I4]),
    "truncated_division": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), [I4, I4 + 1], [I4, I4]),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), [L, torch.tensor([0, 1, 3])], [L, torch.tensor([0, 1, 4])]),
    "nll_loss2d": (lambda x, t: F.nll_loss(x, t), [torch.ones(2, 3, 2, 2), torch.zeros(2, 2, 2, dtype=torch.long)], [torch.ones(2, 3, 2, 2), torch.full((2, 2, 2), -1)]),
    "multi_margin": (lambda x, t: F.multi_margin_loss(x, t), [L, torch.tensor([0, 1, 3])], [L, torch.tensor([0, 1, 4])]),
    "multilabel_margin": (lambda x, t: F.multilabel_margin_loss(x, t), [L[0], torch.tensor([0, 1, -1, 3])], [L[0], torch.tensor([0, 4, -1, 3])]),
    "binary_cross_entropy": (lambda x, t: F.binary_cross_entropy(x, t), [W / 2, W], [W * 2, W]),
    "binary_cross_entropy_negative": (lambda x, t: F.binary_cross_entropy(x, t), [W / 2, W], [-W, W]),
    "one_hot": (lambda i: F.one_hot(i, 4), [I4], [I4 + 1]),
    "one_hot_negative": (lambda i: F.one_hot(i, 4), [I4], [I4 - 1]),
    "max_unpool": (lambda x, i: F.max_unpool2d(x, i, 2), [torch.ones(1, 1, 2, 2), torch.tensor([[[[0, 2], [8, 10]]]])], [torch.ones(1, 1, 2, 2), torch.tensor([[[[0, 2], [8, 16]]]])]),
    "histc_nan": (lambda x: torch.histc(x, 4), [W], [W * float("nan")]),
    "bincount": (lambda i: torch.bincount(i), [I4], [I4 - 1]),
    "repeat_interleave": (lambda x, n: x.repeat_interleave(n), [I4, I4], [I4, I4 - 1]),
    "searchsorted_sorter": (lambda x, v, s: torch.searchsorted(x, v, sorter=s), [torch.arange(4.0), W, I4], [torch.arange(4.0), W, I4 + 1]),
    "index_add": (lambda x, i: x.index_add(0, i, torch.ones(4, 4)), [torch.ones(4, 4), I4], [torch.ones(4, 4), I4 + 1]),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_in_the_call(name, tmp_path):
    import errors

    function, good, bad = CASES[name]
    function(*good)
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        function(*bad)
    program = torch.export.export(Function(function), tuple(good), strict=False)
    torch.export.save(program, tmp_path / "program.pt2")
    assert errors.compiled(tmp_path / "program.pt2", tmp_path / "package.pt2") is None
    status, found = errors.called(tmp_path / "package.pt2", good)
    assert status == "results", found
    status, found = errors.called(tmp_path / "package.pt2", bad)
    assert status == "raised", f"{status}: {found}"
    assert ".py:" in found and "COIL-E2" in found, found


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32]
# name: (function, tensors): core operators, tried with every pair of types
TYPED = {
    "mm": (torch.mm, [torch.ones(2, 3), torch.ones(3, 2)]),
    "linear": (F.linear, [torch.ones(2, 3), torch.ones(2, 3)]),
    "conv2d": (F.conv2d, [torch.ones(1, 2, 4, 4), torch.ones(1, 2, 3, 3)]),
    "adaptive_avg_pool2d": (lambda x, y: F.adaptive_avg_pool2d(x, 2), [torch.ones(1, 2, 4, 4), torch.ones(1)]),
    "add": (torch.add, [torch.ones(2, 3), torch.ones(2, 3)]),
}


@pytest.mark.parametrize("name", TYPED)
def test_types_that_eager_mixes_and_no_others(name, tmp_path):
    """Both directions: what eager refuses is refused, by the export or by coil with the operator and the line; what it computes compiles."""
    import errors

    function, tensors = TYPED[name]
    seen = 0
    for first in DTYPES:
        for second in DTYPES if name != "adaptive_avg_pool2d" else DTYPES[:1]:
            given = (tensors[0].to(first), tensors[1].to(second))
            try:
                function(*given)
                accepted = True
            except RuntimeError:
                accepted = False
            try:
                program = torch.export.export(Function(function), given, strict=False)
            except Exception:
                assert not accepted
                continue
            if accepted and first != second and name != "add":
                continue
            torch.export.save(program, tmp_path / "program.pt2")
            done = harness.coil("check", tmp_path / "program.pt2")
            seen += not accepted
            if accepted:
                assert done.returncode == 0, (first, second, done.stdout + done.stderr)
            else:
                harness.assert_refused(harness.coil("compile", tmp_path / "program.pt2", "-o", tmp_path / "p.pt2"), "aten.", ".py:")
    assert seen or name in ("add", "linear", "conv2d")


@pytest.mark.parametrize("size", [(0, 2), (0, 0), (2, 0)])
@pytest.mark.parametrize("pool", [F.adaptive_avg_pool2d, F.adaptive_max_pool2d], ids=["avg", "max"])
def test_pools_of_no_windows(pool, size, tmp_path):
    import errors

    x = torch.ones(1, 2, 4, 6)
    torch.export.save(torch.export.export(Function(lambda x: pool(x, size)), (x,)), tmp_path / "program.pt2")
    assert errors.compiled(tmp_path / "program.pt2", tmp_path / "package.pt2") is None
    status, found = errors.called(tmp_path / "package.pt2", [x])
    assert status == "results" and torch.load(found)[0].shape == pool(x, size).shape
    assert harness.coil("compile", tmp_path / "program.pt2", "--target", "cuda:sm_90", "-o", tmp_path / "c.pt2").returncode == 0


X, M, NONE = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool), torch.ones(0, 3)
# name: (function, tensors): calls that torch.export takes and eager does not
REFUSED = {
    "floats_as_bits": (lambda a, b: a & b, [X, X]),
    "bits_of_a_number": (lambda a, b: torch.bitwise_xor(a, b), [X[0, 0], X[0, 0]]),
    "booleans_subtracted": (lambda a, b: a - b, [M, M]),
    "booleans_multiplied": (torch.mm, [M, M.t()]),
    "divisors_of_floats": (lambda a, b: torch.gcd(a, b), [X, X]),
    "complex_of_two_types": (torch.complex, [X, X.double()]),
    "step_of_two_types": (torch.heaviside, [X, X.double()]),
    "integer_scaled": (lambda a, b: torch.add(a, b, alpha=0.5), [I4, I4]),
    "mean_of_integers": (lambda a: a.mean(), [I4]),
    "deviation_of_integers": (lambda a: a.std(), [I4]),
    "mask_of_floats": (lambda a, m: torch.masked_select(a, m), [X, X]),
    "classes_of_32_bits": (lambda a, t: F.cross_entropy(a, t), [X, torch.tensor([0, 1], dtype=torch.int32)]),
    "norm_of_two_types": (lambda a, w: F.layer_norm(a, (3,), w), [X.double(), X[0]]),
    "grid_of_another_type": (lambda a, g: F.grid_sample(a, g), [torch.ones(1, 1, 4, 4), torch.ones(1, 2, 2, 2, dtype=torch.float64)]),
    "uniform_integers": (lambda a: a.clone().uniform_(), [I4]),
    "uniform_backwards": (lambda a: a.clone().uniform_(3, 1), [X]),
    "drawn_too_often": (lambda w: torch.multinomial(w, 5), [torch.ones(4)]),
    "largest_of_none": (lambda a: a.max(), [NONE]),
    "largest_of_no_rows": (lambda a: a.max(0), [NONE]),
    "most_of_no_rows": (lambda a: a.mode(0), [NONE]),
    "mask_of_none": (lambda a, m: torch.masked_select(a, m), [X, M[:0]]),
    "matrix_by_short_vector": (lambda a, m, v: torch.addmv(a, m, v), [torch.ones(2), X, torch.ones(0)]),
    "diagonal_of_another_size": (lambda a, b: torch.diagonal_scatter(a, b), [torch.ones(4, 4), torch.ones(3)]),
    "resized_from_nothing": (lambda a: F.interpolate(a, (4, 4)), [torch.ones(1, 1, 0, 4)]),
    "resized_to_nothing": (lambda a: F.interpolate(a, (0, 4), mode="bilinear"), [torch.ones(1, 1, 4, 4)]),
    "pooled_from_nothing": (lambda a: F.adaptive_avg_pool2d(a, 2), [torch.ones(1, 2, 0, 4)]),
    "no_kernel": (lambda a, w: F.conv2d(a, w), [torch.ones(1, 2, 4, 4), torch.ones(2, 2, 0, 3)]),
    "no_dilation": (lambda a, w: F.conv3d(a, w, dilation=0), [torch.ones(1, 2, 4, 4, 4), torch.ones(2, 2, 3, 3, 3)]),
    "rows_of_another_rank": (lambda a, i, b: a.index_add(0, i, b), [X, I4[:2], torch.ones(2)]),
    "selected_place_too_small": (lambda a, b: a.select_scatter(b, 0, 1), [torch.ones(4, 4), torch.ones(3)]),
    "selected_place_beyond": (lambda a, b: a.select_scatter(b, 0, 7), [torch.ones(4, 4), torch.ones(4)]),
    "sliced_place_too_small": (lambda a, b: a.slice_scatter(b, 0, 0, 4, 2), [torch.ones(4, 4), torch.ones(2, 0)]),
    "values_for_other_positions": (lambda a, i, v: a.index_put((i,), v), [torch.ones(4, 4), I4[:2], torch.ones(3, 4)]),
    "values_for_a_plane": (lambda a, i, v: a.index_put((i, i), v), [torch.ones(4, 4), I4[:2], torch.ones(0)]),
    "mask_of_other_rows": (lambda a, m, v: a.index_put((m,), v), [torch.ones(4, 4), M[:, 0], torch.ones(4)]),
    "rows_for_other_positions": (lambda a, i, b: a.index_copy(0, i, b), [torch.ones(4, 4), I4, torch.ones(3, 4)]),
    "softmax_of_integers": (lambda a: a.softmax(0), [I4]),
    "boundaries_in_a_matrix": (lambda a, b: torch.bucketize(a, b), [X, X]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_when_it_is_compiled(name, tmp_path):
    """By torch.export, or by coil with the operator and the line."""
    function, tensors = REFUSED[name]
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        function(*tensors)
    try:
        program = torch.export.export(Function(function), tuple(tensors), strict=False)
    except Exception:
        return
    torch.export.save(program, tmp_path / "program.pt2")
    harness.assert_refused(harness.coil("compile", tmp_path / "program.pt2", "-o", tmp_path / "p.pt2"), "aten.", ".py:")


@pytest.mark.parametrize("function", [torch.cartesian_prod, lambda a, b: torch.outer(a, b), lambda a, b: torch.kron(a, b)], ids=["cartesian_prod", "outer", "kron"])
def test_results_without_elements(function, tmp_path):
    import errors

    tensors = [torch.ones(0), torch.ones(0)]
    torch.export.save(torch.export.export(Function(function), tuple(tensors)), tmp_path / "program.pt2")
    assert errors.compiled(tmp_path / "program.pt2", tmp_path / "package.pt2") is None
    status, found = errors.called(tmp_path / "package.pt2", tensors)
    assert status == "results" and torch.load(found)[0].shape == function(*tensors).shape


def test_attention_reads_no_values_that_are_not_there(tmp_path):
    """Eager answers with what lies behind them in memory."""
    q = torch.ones(1, 2, 4, 8)
    program = torch.export.export(Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v)), (q, q, q[:, :, :0]))
    torch.export.save(program, tmp_path / "program.pt2")
    harness.assert_refused(harness.coil("compile", tmp_path / "program.pt2", "-o", tmp_path / "p.pt2"), "scaled_dot_product", ".py:")
