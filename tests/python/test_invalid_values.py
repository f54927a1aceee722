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
    "quantile_large": (lambda x, q: torch.quantile(x, q, 1), [L, torch.tensor([0.0, 1.0])], [L, torch.tensor([0.5, 1.5])]),
    "quantile_of_one": (lambda x, q: torch.quantile(x, q), [L, torch.tensor(0.25)], [L, torch.tensor(-0.25)]),
    "nanquantile_nan": (lambda x, q: torch.nanquantile(x, q, 0), [L, torch.tensor([0.5])], [L, torch.tensor([float("nan")])]),
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
    "fill_u8": (lambda x, v: x.masked_fill(x > 0, v), [I4.to(torch.uint8), torch.tensor(255.5)], [I4.to(torch.uint8), torch.tensor(256.0)]),
    "fill_u8_negative": (lambda x, v: x.masked_fill(x > 0, v), [I4.to(torch.uint8), torch.tensor(-0.0)], [I4.to(torch.uint8), torch.tensor(-0.5)]),
    "fill_u8_integer": (lambda x, v: x.masked_fill(x > 0, v), [I4.to(torch.uint8), torch.tensor(-255)], [I4.to(torch.uint8), torch.tensor(-256)]),
    "fill_i8": (lambda x, v: x.masked_fill(x > 0, v), [I4.to(torch.int8), torch.tensor(127.9)], [I4.to(torch.int8), torch.tensor(-128.5)]),
    "fill_i8_integer": (lambda x, v: x.masked_fill(x > 0, v), [I4.to(torch.int8), torch.tensor(-128)], [I4.to(torch.int8), torch.tensor(128)]),
    "fill_i32_nan": (lambda x, v: x.masked_fill(x > 0, v), [I4.to(torch.int32), torch.tensor(-1.5)], [I4.to(torch.int32), torch.tensor(float("nan"))]),
    "fill_i64_infinite": (lambda x, v: x.masked_fill(x > 0, v), [I4, torch.tensor(-1.5)], [I4, torch.tensor(float("inf"))]),
    "fill_f16": (lambda x, v: x.masked_fill(x > 0, v), [W.half(), torch.tensor(float("inf"))], [W.half(), torch.tensor(65519.0)]),
    "fill_f16_integer": (lambda x, v: x.masked_fill(x > 0, v), [W.half(), torch.tensor(-65504)], [W.half(), torch.tensor(70000)]),
    "fill_bf16": (lambda x, v: x.masked_fill(x > 0, v), [W.bfloat16(), torch.tensor(float("nan"))], [W.bfloat16(), torch.tensor(3.4e38)]),
    "fill_f32": (lambda x, v: x.masked_fill(x > 0, v), [W, torch.tensor(3e38, dtype=torch.float64)], [W, torch.tensor(1e300, dtype=torch.float64)]),
    "filled_rows_u8": (lambda x, i, v: x.index_fill(0, i, v), [I4.to(torch.uint8), I4[:2], torch.tensor(255.5)], [I4.to(torch.uint8), I4[:2], torch.tensor(-0.5)]),
    "filled_rows_i8": (lambda x, i, v: x.index_fill(0, i, v), [I4.to(torch.int8), I4[:2], torch.tensor(-128)], [I4.to(torch.int8), I4[:2], torch.tensor(128)]),
    "filled_rows_f16": (lambda x, i, v: x.index_fill(0, i, v), [W.half(), I4[:1], torch.tensor(65504.0)], [W.half(), I4[:1], torch.tensor(70000.0)]),
    "nll_no_classes": (lambda x, t: F.nll_loss(x, t, ignore_index=0), [torch.ones(0), torch.tensor(0)], [torch.ones(0), torch.tensor(1)]),
    "nll_no_classes_sum": (lambda x, t: F.nll_loss(x, t, ignore_index=2, reduction="sum"), [torch.ones(2, 0), torch.tensor([2, 2])], [torch.ones(2, 0), torch.tensor([2, 0])]),
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


# AOTAutograd names other operators than the program: what eager refuses of these is refused too.
OTHER_NAMES = {
    **{f"{pool}{d}d": (lambda x, f=getattr(F, f"{pool}{d}d"): f(x, 2), d) for pool in ("adaptive_avg_pool", "adaptive_max_pool", "avg_pool") for d in (1, 2, 3)},
    "prelu": (lambda x: F.prelu(x, torch.ones(2, dtype=x.dtype)), 2),
    **{f"conv{d}d": (lambda x, d=d: getattr(F, f"conv{d}d")(x, torch.ones(3, 2, *[2] * d, dtype=x.dtype)), d) for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": (lambda x, d=d: getattr(F, f"conv_transpose{d}d")(x, torch.ones(2, 3, *[2] * d, dtype=x.dtype)), d) for d in (1, 2, 3)},
}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_types_under_torch_compile(name):
    import coil.dynamo  # noqa: F401

    function, dims = OTHER_NAMES[name]
    for dtype in (torch.int64, torch.bool, torch.float64):
        x = torch.arange(2 * 4**dims).reshape(1, 2, *[4] * dims).to(dtype)
        torch._dynamo.reset()
        try:
            expected = function(x)
        except RuntimeError:
            with pytest.raises(Exception, match="not implemented|COIL-E103|must match|should be the same"):
                torch.compile(function, backend="coil")(x)
        else:
            torch.testing.assert_close(torch.compile(function, backend="coil")(x), expected)


RESIZED = {  # as core ATen has them
    **{f"{name}{d}d": (lambda x, f=getattr(torch.ops.aten, f"{name}{d}d").default: f(x, [8] * (x.dim() - 2)), d) for name in ("upsample_nearest", "_upsample_nearest_exact") for d in (1, 2, 3)},
    **{name: (lambda x, f=getattr(torch.ops.aten, name).default: f(x, [8] * (x.dim() - 2), False), d)
       for name, d in (("upsample_linear1d", 1), ("upsample_bilinear2d", 2), ("upsample_bicubic2d", 2), ("upsample_trilinear3d", 3))},
}


@pytest.mark.parametrize("name", RESIZED)
def test_integers_are_not_resized(name, tmp_path):
    import errors

    function, dims = RESIZED[name]
    x = torch.ones(1, 2, *[4] * dims, dtype=torch.int64)
    with pytest.raises(RuntimeError):
        function(x)
    torch.export.save(torch.export.export(Function(function), (x,)), tmp_path / "program.pt2")
    status, text = errors.compiled(tmp_path / "program.pt2", tmp_path / "package.pt2")
    assert status == "refused" and "COIL-E103" in text, text


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_bytes_are_resized(mode, dims, tmp_path):
    import errors

    x = torch.arange(2 * 4**dims).reshape(1, 2, *[4] * dims).to(torch.uint8)
    resize = Function(lambda x: F.interpolate(x, scale_factor=1.5, mode=mode))
    torch.export.save(torch.export.export(resize, (x,)), tmp_path / "program.pt2")
    assert errors.compiled(tmp_path / "program.pt2", tmp_path / "package.pt2") is None
    status, found = errors.called(tmp_path / "package.pt2", [x])
    assert status == "results" and torch.equal(torch.load(found)[0], resize(x))


X, M, NONE = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool), torch.ones(0, 3)
I32 = torch.tensor([0, 1], dtype=torch.int32)
# Numbers that become elements.
FILLINGS = {
    "masked_fill": lambda a, v: a.masked_fill(a > 1, v),
    "index_fill": lambda a, v: a.index_fill(0, torch.tensor([0, 1]), v),
    "threshold": lambda a, v: F.threshold(a, 1, v),
    "pad": lambda a, v: F.pad(a, (1, 1), value=v),
    "scatter": lambda a, v: a.scatter(0, torch.tensor([0, 1]), v),
    "fill": lambda a, v: torch.fill(a, v),
    "full_like": torch.full_like,
    "unsafe_masked_index": lambda a, v: torch.ops.aten._unsafe_masked_index(a, a > 1, [torch.tensor([0, 1, 2, 3])], v),
}


@pytest.mark.parametrize("function", [lambda a, i: a.gather(0, i), lambda a, i: a.scatter(0, i, 1.0)], ids=["gather", "scatter"])
def test_no_positions_are_of_any_type(function, tmp_path):
    given = (torch.ones(5), torch.tensor([], dtype=torch.uint8))
    assert function(*given).dtype == torch.float32
    torch.export.save(torch.export.export(Function(function), given), tmp_path / "program.pt2")
    assert harness.coil("check", tmp_path / "program.pt2").returncode == 0


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
    "lengths_of_none": (lambda x, n: torch.segment_reduce(x, "max", lengths=n, initial=1), [X[0], I4[:0]]),
    "lengths_of_no_columns": (lambda x, n: torch.segment_reduce(x, "sum", lengths=n, axis=1), [X, torch.ones(2, 0, dtype=torch.long)]),
    "lengths_of_no_rows": (lambda x, n: torch.segment_reduce(x, "mean", lengths=n, axis=1, initial=2), [X, torch.ones(0, 3, dtype=torch.long)]),
    "lengths_of_fewer_rows": (lambda x, n: torch.segment_reduce(x, "mean", lengths=n, axis=1), [X, torch.ones(1, 2, dtype=torch.long)]),
    "lengths_along_another_axis": (lambda x, n: torch.segment_reduce(x, "mean", lengths=n), [X, torch.ones(2, 3, dtype=torch.long)]),
    "offsets_along_another_axis": (lambda x, n: torch.segment_reduce(x, "prod", offsets=n), [X, torch.tensor([[0, 1, 3]] * 2)]),
    "offsets_of_reals": (lambda x, n: torch.segment_reduce(x, "sum", offsets=n), [X[0], torch.tensor([0.0, 1, 3])]),
    "lengths_of_reals": (lambda x, n: torch.segment_reduce(x, "sum", lengths=n), [X[0], torch.tensor([1.0, 2])]),
    "positions_of_bytes": (lambda a, i, b: a.index_reduce(0, i, b, "mean"), [X, torch.tensor([0, 1], dtype=torch.uint8), X]),
    "filled_at_small_positions": (lambda a, i: a.index_fill(0, i, 1), [X, I32]),
    "filled_by_tensor_at_small_positions": (lambda a, i, v: a.index_fill(0, i, v), [X, I32, X[0, 0]]),
    "filled_by_complex": (lambda a, i, v: a.index_fill(0, i, v), [X, I32.long(), X[0, 0] + 1j]),
    "copied_to_small_positions": (lambda a, i, b: a.index_copy(0, i, b), [X, I32, X]),
    "put_at_small_positions": (lambda a, i, b: a.put(i, b), [X, I32, X[0, :2]]),
    "taken_from_small_positions": (lambda a, i: a.take(i), [X, I32]),
    "taken_along_small_positions": (lambda a, i: torch.take_along_dim(a, i, 0), [X, I32.expand(2, 2)]),
    "booleans_by_einsum": (lambda a, b: torch.einsum("ij,kj->ik", a, b), [M, M]),
    "booleans_by_inner": (torch.inner, [M, M]),
    "booleans_by_tensordot": (lambda a, b: torch.tensordot(a, b, [[1], [1]]), [M, M]),
    "booleans_by_power": (lambda a: torch.linalg.matrix_power(a, 2), [M[:, :2]]),
    "booleans_by_stirling": (lambda x, t: F.poisson_nll_loss(x, t, full=True), [X, M]),
    "booleans_as_rates": (lambda x, t: F.poisson_nll_loss(x, t, log_input=False), [M, X]),
    "shares_in_integers": (lambda x: torch.softmax(x, 1, dtype=torch.int64), [X]),
    "logarithms_in_integers": (lambda x: torch.log_softmax(x, 1, dtype=torch.int64), [X]),
    "booleans_added_up": (lambda x: torch.cumsum(x, 0, dtype=torch.bool), [X]),
    "booleans_multiplied_up": (lambda x: torch.cumprod(x, 0, dtype=torch.bool), [X]),
    "booleans_correlated": (torch.corrcoef, [M]),
    "booleans_searched": (torch.searchsorted, [M[0], M[0, 0]]),
    "booleans_bucketed": (torch.bucketize, [M[0, 0], M[0]]),
    "sorted_by_small_positions": (lambda a, v, s: torch.searchsorted(a, v, sorter=s), [X[0, :2], X, I32]),
    "small_classes": (lambda i: F.one_hot(i, 4), [I32]),
    "added_at_bytes": (lambda a, i, b: a.index_add(0, i, b), [X, I32.byte(), X]),
    "selected_by_bytes": (lambda a, i: a.index_select(0, i), [X, I32.byte()]),
    "gathered_by_shorts": (lambda a, i: a.gather(0, i), [X, I32.short()[None]]),
    "scattered_by_shorts": (lambda a, i, b: a.scatter_add(0, i, b), [X, I32.short()[None], X]),
    "looked_up_by_shorts": (lambda i, w: F.embedding(i, w), [I32.short(), X]),
    "positions_of_shorts": (lambda a, i: a[i], [X, I32.short()]),
    "values_of_another_type": (lambda a, i, v: a.index_put((i,), v), [X, I32, X.double()]),
    "one_value_of_another_type": (lambda a, i, v: a.index_put((i,), v), [X, I32, X[0, 0].double()]),
    **{f"{name}_beyond_bytes_{k}": (lambda a, f=f, v=v: f(a, v), [I4.byte()]) for k, v in enumerate((-256, 256, -0.5, 300.5, float("nan"))) for name, f in FILLINGS.items()},
    **{f"{name}_beyond_shorts_{k}": (lambda a, f=f, v=v: f(a, v), [I4.short()]) for k, v in enumerate((-32769, 32768, -32768.5, float("-inf"))) for name, f in FILLINGS.items()},
    "scaled_beyond_bytes": (lambda a, b: torch.add(a, b, alpha=300), [I4.byte(), I4.byte()]),
    "chosen_beyond_bytes": (lambda a: torch.where(a > 1, a, 300), [I4.byte()]),
    "mask_of_another_type": (lambda q, m: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q, attn_mask=m), [torch.ones(2, 2, 3, 8), torch.ones(3, 3, dtype=torch.float64)]),
    "booleans_reflected_1d": (lambda x: F.pad(x, (1, 1), mode="reflect"), [M]),
    "booleans_reflected_2d": (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), [M[None]]),
    "booleans_reflected_3d": (lambda x: F.pad(x, (1, 1, 0, 0, 0, 0), mode="reflect"), [M[None, None]]),
    "booleans_replicated": (lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), [M[None]]),
    **{f"bias_of_another_type_{n}d": (lambda x, w, b, f=f: f(x, w, b, padding="same"), [torch.ones(2, 4, *[8] * n), torch.ones(4, 4, *[3] * n), torch.ones(4, dtype=torch.float64)])
       for n, f in ((1, F.conv1d), (2, F.conv2d), (3, F.conv3d))},
    **{f"bias_of_another_type_transposed_{n}d": (f, [torch.ones(2, 4, *[8] * n), torch.ones(4, 4, *[3] * n), torch.ones(4, dtype=dtype)])
       for n, f, dtype in ((1, F.conv_transpose1d, torch.int64), (2, F.conv_transpose2d, torch.float64), (3, F.conv_transpose3d, torch.bfloat16))},
    "condition_of_no_square": (lambda x: torch.linalg.cond(x, "fro"), [NONE]),
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
