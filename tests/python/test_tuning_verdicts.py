"""A candidate that the tuner finds wrong is a bug of a kernel or of the comparison: products of many shapes, types and epilogues, and convolutions, have none."""

import torch
import torch.nn.functional as F

import harness


class Products(torch.nn.Module):
    """Each product reads the input, so that what one of them rounds is not seen by another."""

    # rows of the input are 96
    SHAPES = [(768, 2048, torch.float32, F.silu), (2048, 320, torch.float32, F.silu), (513, 70, torch.float32, F.gelu), (768, 640, torch.bfloat16, F.silu),
              (300, 100, torch.bfloat16, torch.sigmoid), (260, 96, torch.float64, F.silu), (40, 530, torch.float32, torch.tanh), (1024, 256, torch.float16, F.relu)]

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(k, n).to(dtype) for k, n, dtype, _ in self.SHAPES)
        self.convolution = torch.nn.Conv2d(16, 48, 3, padding=1)

    def forward(self, x, w, image):
        results = [epilogue(layer(x[:, :k].to(dtype))) for layer, (k, _, dtype, epilogue) in zip(self.layers, self.SHAPES)]
        return *results, F.silu(x[:, :768] @ w), F.silu(self.convolution(image))


def test_no_candidate_is_wrong(tmp_path):
    torch.manual_seed(0)
    args = (torch.randn(96, 2048), torch.randn(768, 200), torch.randn(1, 16, 24, 24))
    torch.export.save(torch.export.export(Products().eval(), args), tmp_path / "products.pt2")
    # Every candidate is compared with the own rule before any is timed; two fifths of the time are for that.
    harness.coil_ok("compile", tmp_path / "products.pt2", "-o", tmp_path / "products.coil.pt2", "--tune", "max", "--tune-budget", "12s", "--tune-log", tmp_path / "log.txt")
    log = (tmp_path / "log.txt").read_text()
    assert log.count("AUTOTUNE gemm") == len(Products.SHAPES) + 1 and "blocks of" in log, log
    assert "wrong result" not in log, log
