"""Products of stacks (gradients of q, k and v, of which a joined projection's gradients want rows) read them where they are written, on every target."""

import re

import pytest
import torch

import coil
import harness


class Stacked(torch.nn.Module):
    """Once in one loop that selects its pieces, once in pieces of their own, along any axis."""

    def __init__(self, heads, at):
        super().__init__()
        self.heads, self.at = heads, at

    def forward(self, q, k, v, w, x):
        whole = torch.stack([q, k, v], self.at)  # [3, batch, (heads,) tokens, width], the 3 at `at`
        whole = whole.movedim(self.at, 0)
        rows = (whole.permute(1, 3, 0, 2, 4) if self.heads else whole.permute(1, 2, 0, 3)).flatten(2).flatten(0, 1)
        return rows @ w, rows.t() @ x


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
@pytest.mark.parametrize("heads,at", [(0, 0), (6, 0), (6, 1)])
def test_nothing_is_copied(heads, at, target, tmp_path):
    def part():
        return torch.randn(4, 50, heads, 64).transpose(1, 2) if heads else torch.randn(4, 50, 64)

    columns = 3 * 64 * max(heads, 1)
    inputs = (part(), part(), part(), torch.randn(columns, 40), torch.randn(200, 40))
    torch.export.save(torch.export.export(Stacked(heads, at), inputs), tmp_path / "m.pt2")
    harness.coil_ok("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.coil.pt2", "--target", target)
    names = [kernel["name"] for kernel in harness.coil_json("inspect", tmp_path / "m.coil.pt2", "--json")["kernels"]]
    assert not [name for name in names if name.startswith("copy")], names
    if target == "cpu":
        model = Stacked(heads, at)
        for got, want in zip(coil.load(tmp_path / "m.coil.pt2")(*inputs), model(*inputs)):
            torch.testing.assert_close(got, want, atol=1e-3, rtol=1e-4)


class NormOfRows(torch.nn.Module):
    """A batch norm in training over all places of all images, of what a layer gave for each image and place (LeViT)."""

    def forward(self, x, w):
        y = (x.flatten(2).transpose(1, 2) @ w).flatten(0, 1)
        variance, mean = torch.var_mean(y, dim=[0], correction=0, keepdim=True)
        return ((y - mean) * torch.rsqrt(variance + 1e-5)).view(x.shape[0], -1, w.shape[1])


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
def test_norms_read_rows_of_images_and_places_in_place(target, tmp_path):
    inputs = (torch.randn(4, 64, 10, 10).contiguous(memory_format=torch.channels_last), torch.randn(64, 40))
    torch.export.save(torch.export.export(NormOfRows(), inputs), tmp_path / "m.pt2")
    harness.coil_ok("compile", tmp_path / "m.pt2", "-o", tmp_path / "m.coil.pt2", "--target", target)
    names = [kernel["name"] for kernel in harness.coil_json("inspect", tmp_path / "m.coil.pt2", "--json")["kernels"]]
    assert not [name for name in names if name.startswith("copy")], names
    if target == "cpu":
        torch.testing.assert_close(coil.load(tmp_path / "m.coil.pt2")(*inputs), NormOfRows()(*inputs), atol=1e-3, rtol=1e-4)


class OverPlaces(torch.nn.Module):
    """A layer norm whose rows are turned for a product over the places (gMLP, Mixer)."""

    def forward(self, x, w, bias):
        y = torch.nn.functional.layer_norm(x.float(), x.shape[-1:]).transpose(1, 2).to(x.dtype)
        return (y @ w + bias).transpose(1, 2)


class TalkingHeads(torch.nn.Module):
    """Attention whose scores and probabilities are mixed between heads (CaiT)."""

    def forward(self, q, k, v, before, after):
        scores = (q @ k.transpose(-2, -1)).permute(0, 2, 3, 1) @ before
        heads = scores.permute(0, 3, 1, 2).float().softmax(-1).to(q.dtype).permute(0, 2, 3, 1) @ after
        return heads.permute(0, 3, 1, 2) @ v


def plan_of(module, inputs, folder):
    """The text of its plan for a GPU."""
    torch.export.save(torch.export.export(module, inputs), folder / "m.pt2")
    harness.coil_ok("compile", folder / "m.pt2", "-o", folder / "m.coil.pt2", "--target", "cuda:sm_90", env={"COIL_DUMP": str(folder / "dump")})
    text, = (folder / "dump").glob("*_plan_cuda.txt")
    return text.read_text()


def test_rows_of_a_norm_stay_rows_for_a_product_over_places(tmp_path):
    inputs = tuple(torch.randn(*n).bfloat16() for n in ((4, 49, 64), (49, 56), (56,)))
    text = plan_of(OverPlaces(), inputs, tmp_path)
    stores = [line for line in text.splitlines() if "* to" in line or "* layer_norm" in line]
    assert stores and all("[64*i0 + i1]" in line or "[3136*i0 + 64*i1 + i2]" in line for line in stores), text
    assert "kernel copy" not in text


def test_few_heads_lie_apart_where_all_walk_along_places(tmp_path):
    inputs = tuple(torch.randn(*n).bfloat16() for n in ((2, 4, 40, 48), (2, 4, 40, 48), (2, 4, 40, 48), (4, 4), (4, 4)))
    text = plan_of(TalkingHeads(), inputs, tmp_path)
    places = re.findall(r"(?:matmul|to)\w*\[([^]]*)\] =", text) + re.findall(r"load\((?:matmul|to)\w*, ([^)]*)\)", text)
    assert len(places) >= 6 and not [at for at in places if "4*i" in at.split(" + ")], text  # nothing lies head by head
