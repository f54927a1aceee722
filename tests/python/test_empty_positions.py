"""Positions for tensors without elements: what eager refuses is refused, where eager has nothing to do so does coil. Every operator of positions, every dimension."""

import pytest
import torch
import torch.nn.functional as F

import coil

SIZES = [(0, 3), (3, 0), (0, 0), (0, 3, 0), (2, 0, 0)]
# f(x, dimension, positions in a row, positions of the sizes of the source, source)
OPERATORS = {
    "index_fill": lambda x, d, i, k, s: x.index_fill(d, i, 2.0),
    "index_copy": lambda x, d, i, k, s: x.index_copy(d, i, s),
    "index_add": lambda x, d, i, k, s: x.index_add(d, i, s),
    "index_reduce": lambda x, d, i, k, s: x.index_reduce(d, i, s, "amax"),
    "index_select": lambda x, d, i, k, s: x.index_select(d, i),
    "index": lambda x, d, i, k, s: x[(slice(None),) * d + (i,)],
    "index_all": lambda x, d, i, k, s: x[(i,) * x.dim()],
    "index_put": lambda x, d, i, k, s: x.index_put((i,) * (d + 1), torch.ones(())),
    "index_put_accumulate": lambda x, d, i, k, s: x.index_put((i,) * (d + 1), torch.ones(()), accumulate=True),
    "gather": lambda x, d, i, k, s: x.gather(d, k),
    "take_along_dim": lambda x, d, i, k, s: x.take_along_dim(k, d),
    "scatter": lambda x, d, i, k, s: x.scatter(d, k, s),
    "scatter_number": lambda x, d, i, k, s: x.scatter(d, k, 2.0),
    "scatter_add": lambda x, d, i, k, s: x.scatter_add(d, k, s),
    "scatter_reduce": lambda x, d, i, k, s: x.scatter_reduce(d, k, s, "sum"),
    "take": lambda x, d, i, k, s: x.take(i),
    "put": lambda x, d, i, k, s: x.put(i, torch.ones(i.shape)),
    "embedding": lambda x, d, i, k, s: F.embedding(i, x),
    "embedding_bag": lambda x, d, i, k, s: F.embedding_bag(i, x, torch.zeros(1, dtype=torch.int64)),
}


class Positions(torch.nn.Module):
    def __init__(self, operator, dim):
        super().__init__()
        self.operator, self.dim = operator, dim

    def forward(self, *tensors):
        return self.operator(tensors[0], self.dim, *tensors[1:])


def tried(function, tensors):
    try:
        return function(*[t.clone() for t in tensors])
    except (RuntimeError, IndexError, ValueError, AssertionError, coil.Error) as error:
        return error


@pytest.mark.parametrize("name", OPERATORS)
def test_as_eager(name):
    wrong = []
    for sizes in SIZES:
        for dim in range(len(sizes)):
            for count in (0, 2):
                source = [count if d == dim else n for d, n in enumerate(sizes)]
                tensors = (torch.ones(sizes), torch.zeros(count, dtype=torch.int64), torch.zeros(source, dtype=torch.int64), torch.ones(source))
                model = Positions(OPERATORS[name], dim)
                theirs = tried(model, tensors)
                try:
                    program = torch.export.export(model, tensors)
                except (RuntimeError, IndexError, ValueError, AssertionError, torch._dynamo.exc.TorchDynamoException):
                    continue  # nothing that coil sees
                ours = tried(lambda *t, program=program: coil.compile(program)(*t), tensors)
                if not (isinstance(ours, coil.Error) if isinstance(theirs, Exception) else isinstance(ours, torch.Tensor) and torch.equal(ours, theirs)):
                    wrong.append((sizes, dim, count, repr(theirs)[:100], repr(ours)[:200]))
    assert not wrong
