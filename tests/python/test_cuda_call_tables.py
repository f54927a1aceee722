"""Long programs on CUDA, emulated: calls that are alike are rows of a table in the host program, whose addresses are numbers, or texts where sizes decide them."""

import re
import zipfile

import torch

from test_cuda_sorts import check

TURNS = 40


def chain(x, w):
    """Products, sorts and reductions in turns, so that slots of several sizes take turns too. Values stay small."""
    results = []
    for i in range(TURNS):
        y = torch.tanh(x @ w + i / TURNS)
        s = y.sort(dim=0).values
        x = s - y.mean(dim=0, keepdim=True) + y.flip(0)
        if i % 10 == 3:
            results.append(torch.cat([x, y], 0).cumsum(0))
    return x, *results


def inputs(rows):
    torch.manual_seed(rows)
    return torch.randn(rows, 8), torch.randn(8, 8) / 4


def test_addresses_that_sizes_decide(tmp_path):
    rows = torch.export.Dim("rows", min=2, max=500)
    package = check(chain, [inputs(n) for n in (9, 2, 64, 301)], tmp_path, dynamic=(({0: rows}, {}),), tolerance=1e-4)
    host = next(s for s in sources(package.package) if "call_all" in s)
    assert len(set(re.findall(r"case \d+: return (call->arena[^;]*s\[0\][^;]*);", host))) >= 2, host
    assert host.count("cuda_launch") < TURNS * 2, "a statement for each call"


def sources(package):
    with zipfile.ZipFile(package) as z:
        return [z.read(n).decode(errors="replace") for n in z.namelist() if n.endswith((".cc", ".cpp"))]
