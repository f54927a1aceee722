"""In-place operators that give a tensor other sizes or strides: the program's own tensors take them, a caller's or a module's is refused by name."""

import pytest
import torch

import coil

CHANGES = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(-1, 0),
    "swapdims_": lambda x: x.swapdims_(0, 1),
    "resize_": lambda x: x.resize_(2, 2),
    "resize_as_": lambda x: x.resize_as_(torch.ones(3)),
    "written as well": lambda x: x.transpose_(0, 1).add_(1),
    "the second one": lambda x: x.add_(1).t_(),
}
KEPT = {
    "there and back": lambda x: x.t_().mul_(2).t_(),
    "no dimension of 1": lambda x: x.squeeze_(),
    "a view": lambda x: x.view(-1).unsqueeze_(0).mul_(2),
    "a result": lambda x: (x * 2).t_().unsqueeze_(0),
    "a matrix of one row": lambda x: x[:1].t_().squeeze_(),
    "no gradient": lambda x: x.detach_().add_(1),
    "its own sizes": lambda x: x.resize_(2, 3),
}


class OfInput(torch.nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.change(x) * 1


class OfBuffer(OfInput):
    def __init__(self, change):
        super().__init__(change)
        self.register_buffer("table", torch.arange(6.0).view(2, 3).clone())

    def forward(self, x):
        return self.change(self.table) * x


def exported(module, x):
    return torch.export.export(module, (x,), strict=False)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_refused(change):
    for module, x, name in ((OfInput(change), torch.arange(6.0).view(2, 3).clone(), "the caller's tensor 'x'"), (OfBuffer(change), torch.ones(1), "the module's tensor 'table'")):
        with pytest.raises(coil.UnsupportedError, match=name) as refused:
            coil.compile(exported(module, x))
        assert refused.value.code == "COIL-E105"


def test_a_square_matrix_is_turned_too():
    with pytest.raises(coil.UnsupportedError, match="strides after the call"):
        coil.compile(exported(OfInput(lambda x: x.t_()), torch.ones(3, 3)))


def test_what_keeps_its_form():
    """All in one program, whose second call goes on with the buffers of the first."""
    def every(x):
        return torch.cat([change(x).reshape(-1) for change in KEPT.values()])

    for module, x in ((OfInput(every), torch.arange(6.0).view(2, 3).clone()), (OfBuffer(every), torch.ones(1))):
        package = coil.compile(exported(module, x.clone()), options={"opt_level": 0})
        module = type(module)(every)
        ours, eagers = x.clone(), x.clone()
        for _ in range(2):
            torch.testing.assert_close(package(ours), module(eagers), rtol=0, atol=0)
            torch.testing.assert_close(ours, eagers, rtol=0, atol=0)
