"""What the tests of `coil report` share: a package, a page's data, and the page as a browser makes it, where there is one."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch

import coil

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DYNAMIC = torch.export.Dim.DYNAMIC


class Block(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(width, width) for _ in range(3))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        y = torch.nn.functional.scaled_dot_product_attention(self.q(x)[None], self.k(x)[None], self.v(x)[None])[0]
        return self.norm(y + x), x.t().contiguous()


@pytest.fixture(scope="module")
def block(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("block")
    x = torch.randn(40, 64)
    program = torch.export.export(Block().eval(), (x,), dynamic_shapes=({0: DYNAMIC},))
    torch.export.save(program, folder / "block.pt2")
    coil.compile(program).save(folder / "block.coil.pt2")
    np.savez(folder / "x.npz", in_0=x.numpy())
    return folder


def data_of(page):
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)


def dom(path, *more):
    done = subprocess.run([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", *more, "--dump-dom", path.as_uri() if hasattr(path, "as_uri") else path],
                          capture_output=True, text=True, timeout=100)
    return done.stdout
