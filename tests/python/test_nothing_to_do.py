"""Tensors without elements, and matrices that are none: eager has an answer, or refuses."""

import sys
import zipfile

import pytest
import torch
import torch.nn.functional as F

import harness
from case import Function

sys.path.insert(0, str(harness.REPO / "tests/conformance"))

W = torch.ones(2, 4)


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


L0, F0 = torch.zeros(0, dtype=torch.long), torch.zeros(0)


# name: (function, tensors): sizes of 0 that eager has an answer to
NOTHING = {
    **{f"histogram_{name}": (lambda x, b, w: torch.histogram(x, b, weight=w)[0], [torch.ones(sizes), torch.tensor([-8.0, -4, -1]), torch.ones(sizes)])
       for name, sizes in (("row", (0,)), ("cube", (0, 0, 0)), ("plane", (2, 0)))},
    "histogram_counted": (lambda x, w: torch.histogram(x, 3, range=(0.0, 1.0), weight=w, density=False)[0], [F0, F0]),
    "histogram_density": (lambda x: torch.histogram(x, 3, range=(0.0, 1.0), density=True)[0], [F0]),
    "histogramdd": (lambda x, w: torch.histogramdd(x, [2, 3], range=[0.0, 1.0, 0.0, 1.0], weight=w)[0], [torch.ones(0, 2), F0]),
    "histc": (lambda x: torch.histc(x, 4), [F0]),
    "bincount": (lambda i: torch.bincount(i, minlength=4), [L0]),
    "bincount_weighted": (lambda i, w: torch.bincount(i, w, minlength=4), [L0, F0]),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), [torch.ones(200, 3), L0, torch.ones(0, 3)]),
    "index_add_row": (lambda x, i, s: x.index_add(0, i, s), [torch.ones(200), L0, F0]),
    "scatter_add": (lambda x, i, s: x.scatter_add(0, i, s), [torch.ones(200), L0, F0]),
    "scatter_reduce": (lambda x, i, s: x.scatter_reduce(0, i, s, "amax"), [torch.ones(200), L0, F0]),
    "index_put": (lambda x, i, s: x.index_put((i,), s, accumulate=True), [torch.ones(200), L0, F0]),
    "segments": (lambda x, n: torch.segment_reduce(x, "mean", lengths=n), [F0, torch.zeros(3, dtype=torch.long)]),
    "segments_many": (lambda x, n: torch.segment_reduce(x, "sum", lengths=n), [torch.ones(0, 300), torch.zeros(200, dtype=torch.long)]),
    "segments_of_rows": (lambda x, n: torch.segment_reduce(x, "max", lengths=n, axis=1, initial=2), [torch.ones(5, 0), torch.zeros(5, 3, dtype=torch.long)]),
    "segments_none": (lambda x, n: torch.segment_reduce(x, "sum", lengths=n, unsafe=True), [torch.ones(5), L0]),
    "segments_by_offsets": (lambda x, n: torch.segment_reduce(x, "sum", offsets=n), [F0, torch.zeros(4, dtype=torch.long)]),
    "bucketize": (lambda x, b: torch.bucketize(x, b), [W, F0]),
    "bucketize_none": (lambda x, b: torch.bucketize(x, b), [F0, W[0]]),
    "searchsorted": (lambda b, x: torch.searchsorted(b, x), [torch.ones(2, 0), W]),
    "searchsorted_sorter": (lambda b, x, s: torch.searchsorted(b, x, sorter=s), [torch.ones(2, 0), W, torch.zeros(2, 0, dtype=torch.long)]),
    "unique": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), [F0]),
    "unique_consecutive": (lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), [F0]),
    "cumsum": (lambda x: (x.cumsum(0), x.cumsum(1)), [torch.ones(0, 3)]),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), [torch.ones(3, 0)]),
    "sort": (lambda x: (*x.sort(0), *x.sort(1)), [torch.ones(0, 3)]),
    "topk": (lambda x: x.topk(0), [W]),
    "topk_none": (lambda x: x.topk(0, 1), [torch.ones(3, 0)]),
    "nonzero": (lambda x: x.nonzero_static(size=3), [F0]),
    "take": (lambda x, i: x.take(i), [F0, L0]),
    "embedding_bag": (lambda i, w, o: F.embedding_bag(i, w, o), [L0, torch.ones(5, 8), torch.zeros(3, dtype=torch.long)]),
    "embedding_bag_weighted": (lambda i, w, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s), [L0, torch.ones(5, 8), torch.zeros(3, dtype=torch.long), F0]),
    "repeat_interleave": (lambda x, n: x.repeat_interleave(n, 0, output_size=0), [torch.ones(0, 2), L0]),
    **{f"cond_{name}_{p}": (lambda x, p=p: torch.linalg.cond(x, p), [torch.ones(sizes)])
       for name, sizes in (("square", (0, 0)), ("wide", (0, 5)), ("tall", (5, 0)), ("batch", (2, 0, 0))) for p in (None, -2, 1, "fro") if p != "fro" or name in ("square", "batch")},
    "attention_without_width_masked": (lambda q, k, m: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, k, 0.0, attn_mask=m),
                                       [torch.ones(2, 2, 3, 0), torch.ones(2, 2, 6, 0), torch.ones(3, 6)]),
    **{f"rank_of_hermitian_{name}": (lambda x: torch.linalg.matrix_rank(x, hermitian=True), [torch.ones(sizes)])
       for name, sizes in (("square", (2, 0, 0)), ("tall", (400, 0)), ("wide", (2, 0, 5)), ("batch", (2, 300, 0)))},
    "attention_without_width": (lambda q, k: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, k, 0.0, True), [torch.ones(2, 2, 3, 0), torch.ones(2, 2, 6, 0)]),
    "nll_of_no_classes": (lambda x, t: (F.nll_loss(x, t, ignore_index=0, reduction="sum"), F.nll_loss(x, t, ignore_index=0)), [F0, torch.tensor(0)]),
    "nll_of_no_rows": (lambda x, t, w: (F.nll_loss(x, t, w, reduction="sum"), F.nll_loss(x, t)), [torch.ones(0, 3), L0, torch.ones(3)]),
    "cross_entropy_of_no_classes": (lambda x, t: F.cross_entropy(x, t, ignore_index=0, reduction="none"), [torch.ones(2, 0), torch.tensor([0, 0])]),
}


@pytest.mark.parametrize("name", NOTHING)
def test_answers_to_nothing(name, tmp_path):
    """In a process of its own: what is read where nothing is may end it."""
    import errors

    function, tensors = NOTHING[name]
    expected = torch.utils._pytree.tree_leaves(function(*tensors))
    torch.export.save(torch.export.export(Function(function), tuple(tensors), strict=False), tmp_path / "program.pt2")
    problem = errors.compiled(tmp_path / "program.pt2", tmp_path / "package.pt2")
    assert problem is None, problem
    status, found = errors.called(tmp_path / "package.pt2", tensors)
    assert status == "results", f"{status}: {found}"
    for actual, wanted in zip(torch.load(found), expected, strict=True):
        torch.testing.assert_close(actual, wanted, equal_nan=True)


SQUARE = {"eigh": torch.linalg.eigh, "eig": torch.linalg.eig, "cholesky": torch.linalg.cholesky, "ldl": torch.linalg.ldl_factor, "det": torch.linalg.det, "matrix_exp": torch.matrix_exp,
          "inv": torch.linalg.inv, "cholesky_inverse": torch.cholesky_inverse}


@pytest.mark.parametrize("name", SQUARE)
def test_a_file_whose_matrix_is_not_square(name, tmp_path):
    """torch.export makes no such file: the routine would read and write behind the matrix."""
    torch.export.save(torch.export.export(Function(SQUARE[name]), (torch.eye(7),), strict=False), tmp_path / "program.pt2")
    square, narrow = ('"sizes": [{"as_int": 7}, {"as_int": %d}], "requires_grad"' % n for n in (7, 2))
    replaced = 0
    with zipfile.ZipFile(tmp_path / "program.pt2") as old, zipfile.ZipFile(tmp_path / "narrow.pt2", "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            text = old.read(entry)
            replaced += text.count(square.encode())
            new.writestr(entry.filename, text.replace(square.encode(), narrow.encode()))
    assert replaced
    harness.assert_refused(harness.coil("compile", tmp_path / "narrow.pt2", "-o", tmp_path / "p.pt2"), "aten.", "rows and columns are asked for")
