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


IN_PLACE = {
    "ldexp_": (lambda x: x.ldexp_(torch.tensor([1, 2, 3, 4, 5])), torch.float32),
    "polygamma_": (lambda x: x.abs_().add_(0.5).polygamma_(2), torch.float32),
    "float_power_": (lambda x: x.abs_().float_power_(2.5), torch.float64),
    "float_power_ of tensors": (lambda x: x.abs_().float_power_(x.clone()), torch.float64),
    "swapaxes_": (lambda x: (x + 1).swapaxes_(0, 2).mul_(2), torch.float32),
    "swapdims_": (lambda x: (x + 1).swapdims_(1, 2).mul_(2), torch.float32),
    "Dropout2d": (lambda x: torch.nn.functional.dropout2d(x, training=False, inplace=True), torch.float32),
    "AlphaDropout": (lambda x: torch.nn.functional.alpha_dropout(x, training=False, inplace=True), torch.float32),
    "FeatureAlphaDropout": (lambda x: torch.nn.functional.feature_alpha_dropout(x, training=False, inplace=True), torch.float32),
}


def test_in_place_operators_of_other_names():
    torch.manual_seed(0)
    writes = [write for write, _ in IN_PLACE.values()]
    inputs = [torch.randn(4, 6, 5, dtype=dtype) for _, dtype in IN_PLACE.values()]
    program = Program(writes)
    package = coil.compile(torch.export.export(program, tuple(x.clone() for x in inputs)), options={"opt_level": 1})
    ours, eagers = ([x.clone() for x in inputs] for _ in range(2))
    found, wanted = (torch.utils._pytree.tree_leaves(call(*x)) for call, x in ((package, ours), (program, eagers)))
    for mine, theirs in zip([*found, *ours], [*wanted, *eagers], strict=True):
        torch.testing.assert_close(mine, theirs)


def test_empty_tensors_have_no_sign():
    """A conjugated view of no elements needs no copy."""
    empty = torch.randn(0, 5, dtype=torch.complex64)
    package = coil.compile(torch.export.export(Program([lambda x: x]), (empty,)))
    assert package(empty.conj())[0].shape == (0, 5)
