"""A wrong position ends the call where eager raises, also where nobody reads the result, or only a part of it (src/loop/unread_checks.h)."""

import warnings

import pytest

torch = pytest.importorskip("torch")
import coil  # noqa: E402

F = torch.nn.functional
# x [6, 4] and positions i [3] in [0, 6), of which the second one is wrong.
PROGRAMS = {
    "index": lambda x, i: (x[i], x + 1)[1],
    "gather": lambda x, i: (x.gather(0, i[:, None].expand(-1, 4)), x + 1)[1],
    "index_select": lambda x, i: (torch.index_select(x, 0, i), x * 1)[1],
    "embedding": lambda x, i: (F.embedding(i, x), x + 1)[1],
    "take": lambda x, i: (x.take(i * 4), x * 1)[1],
    "put": lambda x, i: (x.put(i * 4, x[:3, 0]), x * 1)[1],
    "index_fill": lambda x, i: (x.index_fill(0, i, 1), x * 1)[1],
    "one_hot": lambda x, i: (F.one_hot(i, 6), x * 1)[1],
    "nll_loss": lambda x, i: (F.nll_loss(x[:3], i % 4 + i // 6), x * 1)[1],
    "read_by_the_unread": lambda x, i: (torch.sin(x[i]) + 1, x * 1)[1],
    "first_row": lambda x, i: x[i][:1],
    "last_row": lambda x, i: x[i][2],
    "every_second_row": lambda x, i: x[i][::2],
    "no_row": lambda x, i: x[i][:0],
    "sizes_alone": lambda x, i: torch.zeros_like(x[i]),
    "never_chosen": lambda x, i: torch.where(torch.zeros((), dtype=torch.bool), x[i].sum(), x.sum()),
    "overwritten": lambda x, i: x.index_copy(0, i, x[:3]).zero_() + 1,
    "written_over": lambda x, i: x.clone().index_put_((i,), x[:3]).copy_(x * 2),
}


class Program(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x, i):
        return PROGRAMS[self.name](x, i)


@pytest.mark.parametrize("name", PROGRAMS)
def test_are_refused_as_eager_does(name):
    x, right, wrong = torch.randn(6, 4), torch.tensor([0, 3, 2]), torch.tensor([0, 99, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = coil.compile(torch.export.export(Program(name), (x, right)))
    assert torch.allclose(model(x, right), Program(name)(x, right))
    with pytest.raises((IndexError, RuntimeError)):
        Program(name)(x, wrong)
    with pytest.raises(Exception, match="COIL-E210"):
        model(x, wrong)
    assert torch.allclose(model(x, right), Program(name)(x, right))
