"""Views of every kind that a packaged program writes to: the tensor behind them has the new elements, as in eager."""

import pytest
import torch

import coil

COMPLEX = {
    "real": lambda x: x.real.mul_(2),
    "imag": lambda x: x.imag.add_(1),
    "rows of imag": lambda x: x[1:].imag.mT.zero_(),
    "conj": lambda x: x.conj().mul_(2 + 1j),
    "imag of conj": lambda x: x.conj().imag.mul_(3),
    "mH": lambda x: x.mH.mul_(1j),
    "adjoint": lambda x: x[0].adjoint()[1].fill_(1 + 2j),
    "filter": lambda x: (x.real.clamp_(min=0), x.imag.neg_()),
    "view_as_real": lambda x: torch.view_as_real(x)[..., 1].mul_(2),
}
FLOATS = {
    "movedim": lambda x: x.movedim(0, 2).add_(torch.arange(4.0)),
    "moveaxis of lists": lambda x: x.moveaxis((0, 1), (2, 0))[0].zero_(),
    "tensor_split": lambda x: x.tensor_split(3, 1)[1].neg_(),
    "tensor_split at places": lambda x: x.tensor_split((1, 3))[1].mul_(x[3]),
    "hsplit": lambda x: x.hsplit(2)[1].zero_(),
    "vsplit": lambda x: x.vsplit((3,))[0].mul_(2),
    "dsplit": lambda x: x.dsplit(5)[4].exp_(),
    "bits": lambda x: x.view(torch.int32).bitwise_and_(0x7FFFFFFF),
    "halves of bits": lambda x: x.bfloat16().view(torch.int16).add_(1).view(torch.bfloat16).float(),
    "as_strided": lambda x: x.as_strided((4, 3), (30, 6)).neg_(),
    "as_strided behind the beginning": lambda x: x.as_strided((5, 2), (7, 40), 9).zero_(),
    "real of real": lambda x: x.real.mul_(2),
    "conj of real": lambda x: x.conj().mul_(2),
}


class Program(torch.nn.Module):
    def __init__(self, writes):
        super().__init__()
        self.writes = writes

    def forward(self, *inputs):
        """Writes to computed tensors, and to the inputs themselves."""
        found = []
        for write, x in zip(self.writes, inputs, strict=True):
            y = x * 0.5
            found += [write(y), y.clone(), write(x)]
        return [torch.utils._pytree.tree_map(lambda t: t.clone(), v) for v in found]


@pytest.mark.parametrize("writes, dtype", [(COMPLEX, torch.complex64), (COMPLEX, torch.complex128), (FLOATS, torch.float32)], ids=["complex64", "complex128", "float32"])
def test_equals_eager(writes, dtype):
    torch.manual_seed(0)
    inputs = [torch.randn(4, 6, 5, dtype=dtype) for _ in writes]
    ours, eagers = ([x.clone() for x in inputs] for _ in range(2))
    program = Program(list(writes.values()))
    package = coil.compile(torch.export.export(program, tuple(x.clone() for x in inputs)), options={"opt_level": 1})
    found, wanted = (torch.utils._pytree.tree_leaves(call(*x)) for call, x in ((package, ours), (program, eagers)))
    for mine, theirs in zip([*found, *ours], [*wanted, *eagers], strict=True):
        torch.testing.assert_close(mine.resolve_conj(), theirs.resolve_conj())
