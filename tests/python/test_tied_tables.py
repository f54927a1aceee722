"""Tables that a product reads in panels and a lookup by rows are stored once; what the lookup gives is what it gave."""

import json

import pytest
import torch
from torch import nn

import coil
import harness

ROWS, WIDTH = 1003, 24  # the last panel is not full


class Tied(nn.Module):
    """A lookup, something between, and the product with the same table."""

    def __init__(self, dtype=torch.float32, form="embedding"):
        super().__init__()
        torch.manual_seed(0)
        self.form, self.dtype = form, dtype
        if dtype == torch.int8:
            self.register_buffer("table", torch.randint(-127, 128, (ROWS, WIDTH), dtype=torch.int8))
            self.register_buffer("scale", torch.rand(ROWS, 1) / 100)
        else:
            self.table = nn.Parameter(torch.randn(ROWS, WIDTH, dtype=dtype))

    def weight(self, ids=None):
        pick = (lambda t: t) if ids is None else (lambda t: t[ids])
        return pick(self.table).float() * pick(self.scale) if self.dtype == torch.int8 else pick(self.table)

    def forward(self, ids):
        if self.form == "embedding" and self.dtype != torch.int8:
            x = nn.functional.embedding(ids, self.table)
        elif self.form == "summed" and self.dtype != torch.int8:
            x = nn.functional.embedding(ids, self.table).sum(1, keepdim=True)
        else:
            x = self.weight(ids)
        logits = nn.functional.linear(torch.relu(x), self.weight())
        return (logits, self.weight().sum()) if self.form == "read whole" else logits


def constants_of(module, count, folder):
    torch.export.save(torch.export.export(module.eval(), (torch.zeros(1, count, dtype=torch.int64),)), folder / "m.export.pt2")
    harness.coil_ok("compile", folder / "m.export.pt2", "-q", "-o", folder / "m.pt2")
    return json.loads(harness.coil_ok("inspect", folder / "m.pt2", "--json").stdout)["memory"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.float64])
@pytest.mark.parametrize("form", ["embedding", "index", "summed"])
def test_stored_once(dtype, form, tmp_path):
    module = Tied(dtype, form)
    memory = constants_of(module, 3, tmp_path)
    once = 1024 * WIDTH * module.table.element_size() + (0 if dtype != torch.int8 else 2 * 1024 * 4)
    if dtype == torch.float64:  # other panels: two forms
        assert memory["again_bytes"] > ROWS * WIDTH
    else:
        assert memory.get("again_bytes", 0) <= (4 * ROWS if dtype == torch.int8 else 0)  # scales, as a lookup and as a product read them
        assert memory["constants_bytes"] < 1.05 * once + 256
    model = coil.load(tmp_path / "m.pt2")
    for ids in ([0, 31, 32], [ROWS - 1, 1000, 5], [999, 991, 992]):
        ids = torch.tensor([ids])
        with torch.no_grad():
            want = module(ids)
        tolerance = 2e-2 if dtype in (torch.bfloat16, torch.float16) else 1e-4
        torch.testing.assert_close(model(ids), want, rtol=tolerance, atol=tolerance)
    for wrong in (ROWS, -ROWS - 1):
        with pytest.raises(coil.InputError, match="COIL-E210"):
            model(torch.tensor([[0, wrong, 1]]))
    if form == "index":
        with torch.no_grad():
            torch.testing.assert_close(model(torch.tensor([[-1, -ROWS, -33]])), module(torch.tensor([[-1, -ROWS, -33]])), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("form,count", [("read whole", 3), ("embedding", 400)])
def test_stored_twice_where_that_is_faster(form, count, tmp_path):
    """A sum of the whole table reads it by rows, and so do lookups of many of its rows."""
    assert constants_of(Tied(form=form), count, tmp_path)["again_bytes"] > 0
    ids = torch.arange(count)[None]
    torch.testing.assert_close(coil.load(tmp_path / "m.pt2")(ids), Tied(form=form)(ids), rtol=1e-4, atol=1e-3)
