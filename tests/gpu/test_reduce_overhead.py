"""mode="reduce-overhead" on a GPU: graphs recorded by PyTorch's trees with coil's programs in them, against eager, over many steps."""

import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)
pytest.importorskip("coil._runtime")


@pytest.fixture(autouse=True)
def exact_float32():
    """Convolutions in TensorFloat-32 would differ more between two layouts of an image than what is looked for here."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


class Convolutions(nn.Module):
    """Operators of PyTorch (convolutions in training) between coil's programs, statistics that are written to, and weights that share layers' programs."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()) for _ in range(3))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(F.max_pool2d(x, 2).mean((2, 3)))


def steps(model, run, shapes):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for i, shape in enumerate(shapes):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(i)).cuda()
        loss = run(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in (*model.parameters(), *model.buffers())]


@pytest.mark.parametrize("make,shape", [
    (Convolutions, (4, 3, 16, 16)),
    (lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0), (3, 10, 64)),
    (lambda: nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 24)), (5, 24)),
], ids=["convolutions", "transformer", "perceptron"])
@pytest.mark.parametrize("mode", ["reduce-overhead", "default"])
def test_training(make, shape, mode):
    torch.manual_seed(0)
    theirs = make().cuda().train()
    ours = make().cuda().train()
    ours.load_state_dict(theirs.state_dict())
    compiled = torch.compile(ours, backend="coil", mode=mode)
    expected, weights = steps(theirs, theirs, [shape] * 8)
    got, own = steps(ours, compiled, [shape] * 8)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-3)
    for a, b in zip(own, weights, strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=2e-3)


def test_dropout_differs_from_call_to_call():
    model = nn.Sequential(nn.Linear(32, 256), nn.Dropout(0.5), nn.Linear(256, 8)).cuda().train()
    compiled = torch.compile(model, backend="coil", mode="reduce-overhead")
    x = torch.randn(16, 32, device="cuda")
    seen = []
    for _ in range(6):
        torch.compiler.cudagraph_mark_step_begin()
        y = compiled(x)
        y.sum().backward()
        seen.append(y.detach().clone())
        model.zero_grad()
    assert all(not torch.equal(a, b) for i, a in enumerate(seen) for b in seen[:i])
    torch.testing.assert_close(torch.stack(seen).mean(0), nn.Sequential(model[0], model[2])(x), atol=2.0, rtol=2.0)


def test_sizes_in_turn():
    """Each combination of sizes is recorded once; a larger one takes more scratch memory and leaves that of the smaller ones alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 300), nn.GELU(), nn.LayerNorm(300), nn.Linear(300, 7)).cuda().eval()
    compiled = torch.compile(model, backend="coil", mode="reduce-overhead", dynamic=True)
    with torch.no_grad():
        for _ in range(4):
            for rows in (5, 3000, 64, 9):
                x = torch.randn(rows, 24, device="cuda")
                torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)


def test_host_takes_part(caplog):
    def function(x):
        return x[x > 0].sum()

    caplog.set_level(logging.INFO, "coil")
    x = torch.randn(64, device="cuda")
    compiled = torch.compile(function, backend="coil", mode="reduce-overhead")
    for _ in range(3):
        torch.testing.assert_close(compiled(x), function(x))


def test_index_out_of_range_is_told():
    table = torch.randn(10, 4, device="cuda")
    compiled = torch.compile(lambda i: F.embedding(i, table) * 2, backend="coil", mode="reduce-overhead")
    good = torch.tensor([1, 2, 3], device="cuda")
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(compiled(good), F.embedding(good, table) * 2)
        compiled(torch.tensor([1, 20, 3], device="cuda"))
        torch.cuda.synchronize()
        with pytest.raises(Exception, match="COIL-E2"):
            compiled(good)
        torch.testing.assert_close(compiled(good), F.embedding(good, table) * 2)
