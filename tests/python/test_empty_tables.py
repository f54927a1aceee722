"""Positions that are data, in tables without a row: eager's answer, or COIL-E210 with the operator and the source line. Nothing is read."""

import sys

import pytest
import torch

import harness
from case import Function

sys.path.insert(0, str(harness.REPO / "tests/conformance"))

I = torch.tensor([2, 0, 1])
NONE = I[:0]
X = torch.randn(6, 8)
ONES = torch.ones(3, 8)
BAG = torch.tensor([0, 2])
MANY = torch.arange(600) % 5

# name: (function of a table and others, the table with rows, the others, dimensions that become 0)
READS = {
    "embedding": (lambda w, i: torch.nn.functional.embedding(i, w), X, [I]),
    "embedding_of_sum": (lambda w, i: torch.nn.functional.embedding(i, w + 1).exp(), X, [I]),
    "embedding_transposed": (lambda w, i: torch.nn.functional.embedding(i, w).t().contiguous(), X, [I]),
    "padded_embedding": (lambda w, i: torch.nn.functional.pad(torch.nn.functional.embedding(i, w), (1, 1, 1, 1)), X, [I]),
    "index_select": (lambda x, i: x.index_select(0, i), X, [I]),
    "index": (lambda x, i: x[i], X, [I]),
    "index_columns": (lambda x, i: x.t()[:, i], X, [I]),
    "index_both": (lambda x, i: x[i, i], X, [I]),
    "index_flipped": (lambda x, i: x.flip(0)[i], X, [I]),
    "gather": (lambda x, i: x.gather(0, i[:, None].expand(3, 8)), X, [I]),
    "take": (lambda x, i: x.take(i), X, [I]),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i[:, None].expand(3, 8), 0), X, [I]),
    "index_of_index": (lambda x, i: x[i][i], X, [I]),
    "masked_index": (lambda x, i: torch.where(i[:, None] > 5, x[i], 0.0), X, [I]),
    "embedding_bag": (lambda w, i: torch.nn.functional.embedding_bag(i, w, BAG, mode="sum"), X, [I]),
    "embedding_bag_mean": (lambda w, i: torch.nn.functional.embedding_bag(i, w, BAG, mode="mean"), X, [I]),
    "embedding_bag_many": (lambda w, i, o: torch.nn.functional.embedding_bag(i, w, o, mode="sum"), X, [MANY, torch.arange(0, 600, 3)]),
}
WRITES = {
    "scatter": (lambda x, i: x.scatter(0, i[:, None].expand(3, 8), ONES), X, [I]),
    "scatter_add": (lambda x, i: x.scatter_add(0, i[:, None].expand(3, 8), ONES), X, [I]),
    "scatter_one": (lambda x, i: x.scatter(0, i[:1, None].expand(1, 8), 1.0), X, [I]),
    "scatter_reduce": (lambda x, i: x.scatter_reduce(0, i[:, None].expand(3, 8), ONES, "amax"), X, [I]),
    "index_put": (lambda x, i: x.index_put((i,), ONES), X, [I]),
    "index_put_sum": (lambda x, i: x.index_put((i,), ONES, accumulate=True), X, [I]),
    "index_add": (lambda x, i: x.index_add(0, i, ONES), X, [I]),  # of an empty tensor eager does not look at the positions
    "index_copy": (lambda x, i: x.index_copy(0, i, ONES), X, [I]),
    "index_fill": (lambda x, i: x.index_fill(0, i, 1.0), X, [I]),
    "put": (lambda x, i: x.put(i, torch.ones(3)), X, [I]),
}
CASES = {**READS, **WRITES}


def judged(module, inputs, folder):
    """(eager's results or None, status, text or file of results)"""
    import errors

    try:
        expected = module(*inputs)
    except (RuntimeError, IndexError):
        expected = None
    try:
        program = torch.export.export(module, inputs, strict=False)
    except IndexError:
        return expected, "export", ""
    torch.export.save(program, folder / "program.pt2")
    return expected, *(errors.compiled(folder / "program.pt2", folder / "package.pt2") or errors.called(folder / "package.pt2", list(inputs)))


def agrees(expected, status, found):
    if status == "export":
        assert expected is None
    elif expected is None:
        assert status in ("raised", "refused"), f"{status}: {found}"
        # Where the sizes are known it is the compiler that says so.
        words = ("COIL-E104", "positions of sizes", "the tensor is empty") if status == "refused" else ("COIL-E210", "out of range")
        assert words[0] in found and ".py:" in found and any(word in found for word in words[1:]), found
    else:
        assert status == "results", f"{status}: {found}"
        (actual,) = torch.load(found)
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", CASES)
def test_no_row(name, tmp_path):
    function, table, others = CASES[name]
    agrees(*judged(Function(function), (table[:0].contiguous(), *others), tmp_path))


@pytest.mark.parametrize("name", CASES)
def test_no_row_at_run_time(name, tmp_path):
    """A dynamic number of rows that is 0 in the call. No positions are fine, any position is not; with rows all is as ever."""
    function, table, others = CASES[name]
    module = Function(function)
    shapes = (({0: torch.export.Dim("rows", min=0, max=64)}, *({} for _ in others)),)
    import errors

    try:
        program = torch.export.export(module, (table, *others), dynamic_shapes=shapes, strict=False)
    except torch._dynamo.exc.UserError:
        pytest.skip("the export does not allow other numbers of rows")
    torch.export.save(program, tmp_path / "program.pt2")
    assert errors.compiled(tmp_path / "program.pt2", tmp_path / "package.pt2") is None
    status, found = errors.called(tmp_path / "package.pt2", [table, *others])
    agrees(module(table, *others), status, found)
    status, found = errors.called(tmp_path / "package.pt2", [table[:0].contiguous(), *others])
    if status == "raised" and "COIL-E204" in found:
        pytest.skip("the export does not allow 0 rows")
    agrees(None, status, found)


@pytest.mark.parametrize("function", [lambda i: torch.ones(5, 8)[i], lambda i: torch.zeros(5).expand(4, 5)[:, i],
                                      lambda i: torch.nn.functional.embedding(i, torch.full((5, 8), 2.0)), lambda i: torch.arange(5.0)[None][i, i]])
def test_tables_whose_rows_are_the_same(function, tmp_path):
    """Nothing has to be read, but positions count."""
    agrees(*judged(Function(function), (I + 3,), tmp_path))
    agrees(*judged(Function(function), (I * 0,), tmp_path))


@pytest.mark.parametrize("name", ["embedding", "index_columns", "embedding_bag_many"])
def test_no_row_of_a_constant(name, tmp_path):
    function, table, others = CASES[name]
    agrees(*judged(Function(lambda *given: function(torch.ones(0, 8), *given)), tuple(others), tmp_path))


def test_a_slice_without_rows_of_a_table_with_rows(tmp_path):
    """What is indexed is empty, the memory behind it is not: the row behind its end stays unread."""
    agrees(*judged(Function(lambda x, i: x[6:][i]), (X, I), tmp_path))


@pytest.mark.parametrize("indices", [I, NONE], ids=["some", "none"])
def test_no_source(indices, tmp_path):
    """masked_scatter from nothing, where the mask asks for something and where it does not."""
    agrees(*judged(Function(lambda x, i, s: x.masked_scatter((torch.arange(6)[:, None] == i).any(1)[:, None], s)), (X, indices, X[:0]), tmp_path))


@pytest.mark.parametrize("name", ["embedding", "index_flipped", "index_of_index", "embedding_bag", "index_put", "scatter"])
def test_cuda(name, tmp_path):
    """The emulator stops at every access outside of an allocation."""
    import emulated_cuda
    import numpy as np

    function, table, others = CASES[name]
    shapes = (({0: torch.export.Dim("rows", min=0, max=64)}, *({} for _ in others)),)
    program = torch.export.export(Function(function), (table, *others), dynamic_shapes=shapes, strict=False)
    torch.export.save(program, tmp_path / "program.pt2")
    emulated = emulated_cuda.Emulated(tmp_path / "program.pt2", tmp_path)
    assert emulated.compiled.returncode == 0, emulated.compiled.stderr
    for rows, right in ((6, True), (0, False)):
        given = [table[:rows].contiguous(), *others]
        np.savez(tmp_path / "in.npz", **{f"in_{i}": t.numpy() for i, t in enumerate(given)})
        done, outputs = emulated.run(tmp_path / "in.npz")
        if right:
            assert done.returncode == 0, done.stderr
            torch.testing.assert_close(torch.from_numpy(outputs[0]), function(*given))
        else:
            harness.assert_refused(done, "out of range", code=210)
