#!/usr/bin/env python3
"""Writes the programs whose texts fuzz_text and tests/compiler/foreign_text_test.cc replace: tests/fuzz/make_programs.py, into tests/fuzz/programs.
Together they have every kind of text that reaches generated code: assertions, sizes from data, positions from data, library calls, states that are
written, branches, loops, dynamic dimensions, and an operator of a user."""
import io
import json
import pathlib
import zipfile

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim

TARGET = pathlib.Path(__file__).resolve().parent / "programs"


@torch.library.custom_op("museum::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)


class Checks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.table = torch.nn.Embedding(7, 4)

    def forward(self, x, ids, n):
        k = n.item()
        torch._check(k > 2, lambda: "more than two are needed")
        torch._check(k < 9)
        torch._assert(x.sum() > 0, "a positive sum is needed")
        rows = torch.nonzero(ids).flatten()
        self.seen.add_(x.mean(0))
        return torch.fft.rfft(x).abs() + k, self.table(ids), ids[rows], torch.linalg.solve(torch.eye(4), x.T) * self.seen[0]


class Apart(torch.nn.Module):
    """For CUDA, where sizes from data are refused: an assertion, positions from data, states, kernels beside each other."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.table = torch.nn.Embedding(7, 4)

    def forward(self, x, ids):
        torch._assert_async(x.sum() > 0, "a positive sum is needed")
        self.seen.add_(x.mean(0))
        return self.table(ids).softmax(-1), torch.cat([x.sin(), x.cos(), x * 2], 1), torch.relu(x @ x.T) + self.seen.sum(), x.flip(0).clone()


class User(torch.nn.Module):
    def forward(self, x):
        return scaled(x + 1, 2.0) * 3


class Loop(torch.nn.Module):
    def forward(self, x):
        return torch.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x.sin() + 1), (torch.tensor(0), x))


class Fourier(torch.nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).abs()


class Lengths(torch.nn.Module):
    """Transforms of any length, each of the three kinds, in both precisions: tests/compiler/library_memory_test.cc."""

    def forward(self, x):
        y = torch.fft.fft(torch.complex(x.double(), x.double() + 1))
        return torch.fft.rfft(x), y, torch.fft.irfft(torch.complex(x, x * 2))


class Counted(torch.nn.Module):
    """What kernels for CUDA count in 32 bits: rows of products, pixels, queries and keys, rows that are sorted."""

    def forward(self, x, image, q):
        product = torch.relu(x @ torch.ones(8, 16))
        pixels = torch.nn.functional.conv2d(image, torch.ones(4, 8, 3, 3), padding=1)
        return product, pixels, torch.nn.functional.scaled_dot_product_attention(q, q, q), x.sort(1)[0]


class ManyRows(torch.nn.Module):
    """More of them than CUDA's kernels count: exported with a tensor that has no memory."""

    def forward(self, x):
        return torch.relu(x @ torch.ones(8, 16))


class Grids(torch.nn.Module):
    """Loops with a grid of their own each: of points, two beside each other, of tiles, of rows of few and of many terms, of scans, of columns."""

    def forward(self, points, left, right, tiles, short, long, scanned, columns):
        return (points * 2 + 1, torch.relu(left), torch.exp(right), tiles.mT.contiguous() + 1, short.sum(-1), torch.softmax(long, -1), scanned.cumsum(-1), columns.sum(1))


class LongRows(torch.nn.Module):
    """More rows than a grid has blocks, each of them long: exported with a tensor that has no memory."""

    def forward(self, x):
        return torch.relu(x[0, 0]), torch.softmax(x, -1)[:5]


class Solve(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.solve(x, x.T)


def without_samples(archive):
    """Only what coil reads, and without the metadata that only costs bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            if "/models/" in entry or "/data/weights/" in entry or "/data/constants/" in entry or entry.endswith(("archive_format", "archive_version", "byteorder")):
                data = old.read(entry)
                if entry.endswith(".json"):
                    data = json.dumps(shorten(json.loads(data)), separators=(",", ":")).encode()
                new.writestr(zipfile.ZipInfo(entry), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def shorten(value):
    if isinstance(value, dict):
        return {k: shorten(v) for k, v in value.items() if k not in ("torch_fn", "from_node", "source_fn_stack")}
    if isinstance(value, list):
        return [shorten(v) for v in value]
    return value.replace(str(pathlib.Path(__file__).resolve().parent) + "/", "") if isinstance(value, str) else value


def main():
    torch.manual_seed(0)
    TARGET.mkdir(exist_ok=True)
    batch = Dim("batch", min=2, max=64)
    x, ids = torch.rand(4, 4), torch.tensor([1, 0, 3, 2])
    with FakeTensorMode():
        large, long = torch.empty(2**31, 8), torch.empty(2**31, 1000)
    for name, module, inputs, dynamic in [
            ("checks", Checks(), (x, ids, torch.tensor(3)), None),
            ("apart", Apart(), (x, ids), ({0: batch}, None)),
            ("user", User(), (x,), ({0: batch},)),
            ("loop", Loop(), (x,), None),
            ("fourier", Fourier(), (x,), None),
            ("lengths", Lengths(), (torch.rand(4, 24),), ({0: batch, 1: Dim("points", min=2, max=100000)},)),
            ("counted", Counted(), (torch.rand(6, 8), torch.rand(2, 8, 5, 5), torch.rand(3, 2, 7, 16)),
             ({0: Dim("rows")}, {0: Dim("images"), 2: Dim("height")}, {0: Dim("batch_of_heads"), 2: Dim("queries")})),
            ("many_rows", ManyRows(), (large,), None),
            ("grids", Grids(), tuple(torch.rand(*sizes) for sizes in ((6, 8), (9, 8), (9, 8), (3, 40, 70), (6, 3), (6, 1000), (6, 500), (5, 300, 40))), tuple({0: Dim(f"n{i}")} for i in (0, 1, 1, 3, 4, 5, 6, 7))),
            ("long_rows", LongRows(), (long,), None),
            ("solve", Solve(), (x,), None)]:
        program = torch.export.export(module, inputs, dynamic_shapes=dynamic)
        program._example_inputs = None
        out = io.BytesIO()
        torch.export.save(program, out)
        (TARGET / f"{name}.pt2").write_bytes(without_samples(out.getvalue()))


if __name__ == "__main__":
    main()
