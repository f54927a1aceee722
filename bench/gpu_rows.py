"""Rows on a GPU: gradients of pools, bags of embeddings, gradients of tables, rows written into a state. Eager beside packages and torch.compile.

usage: PYTHONPATH=build/python python bench/gpu_rows.py [--only TEXT] [--repeats N] [--device cuda:0]      medians in us; results are compared with eager's
"""

import argparse
import importlib

import torch
from torch import nn

import coil
import needs

aten = torch.ops.aten


class PoolGradient(nn.Module):
    """What ResNet-18's first pool does in a step."""

    def forward(self, grad, x, indices):
        return aten.max_pool2d_with_indices_backward(grad, x, [3, 3], [2, 2], [1, 1], [1, 1], False, indices)


class Recommender(nn.Module):
    """26 tables of 100000 rows of 64, a bag of 1 to 20 rows each."""

    def __init__(self, tables=26, rows=100000, width=64):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum", include_last_offset=True) for _ in range(tables)])

    def forward(self, indices, offsets):
        return torch.cat([bag(indices[i], offsets[i]) for i, bag in enumerate(self.bags)], 1)


class TableGradient(nn.Module):
    def forward(self, grad, indices):
        return aten.embedding_dense_backward(grad, indices, 50000, -1, False)


class Cache(nn.Module):
    """One row into a cache of keys."""

    def __init__(self, shape=(8, 32, 2048, 128), dtype=torch.bfloat16):
        super().__init__()
        self.register_buffer("keys", torch.zeros(shape, dtype=dtype))

    def forward(self, position, key):
        self.keys.index_copy_(2, position, key)
        return self.keys[:, :, :1].float().sum()


class Decoder(nn.Module):
    """8 caches, each a row longer, and attention over them."""

    def __init__(self, layers=4, shape=(1, 16, 2048, 128), dtype=torch.bfloat16):
        super().__init__()
        for i in range(layers):
            self.register_buffer(f"keys_{i}", torch.zeros(shape, dtype=dtype))
            self.register_buffer(f"values_{i}", torch.zeros(shape, dtype=dtype))
        self.layers = layers

    def forward(self, position, x):
        mask = torch.arange(2048, device=x.device)[None, :] <= position[:, None]
        for i in range(self.layers):
            keys, values = getattr(self, f"keys_{i}"), getattr(self, f"values_{i}")
            keys.index_copy_(2, position, x)
            values.index_copy_(2, position, x * 2)
            x = torch.nn.functional.scaled_dot_product_attention(x, keys, values, attn_mask=mask[None, None])
        return x


def bag_inputs(tables=26, bags=2048, rows=100000):
    lengths = torch.randint(1, 21, (tables, bags))
    lengths[:, -1] += lengths.sum(1).max() - lengths.sum(1)
    offsets = torch.cat([torch.zeros(tables, 1, dtype=torch.int64), lengths.cumsum(1)], 1)
    return torch.randint(0, rows, (tables, int(offsets[0, -1]))), offsets


def cases():
    x = torch.randn(32, 64, 112, 112)
    y, indices = torch.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)
    yield "max pool's gradient, 32x64x112x112", PoolGradient(), (torch.randn_like(y), x, indices), 1e-5
    yield "26 bags of 2048", Recommender(), bag_inputs(), 1e-5
    yield "gradient of a table of 50000x768, 4096 rows", TableGradient(), (torch.randn(4096, 768), torch.randint(0, 50000, (4096,))), 1e-5
    yield "gradient of a table, all rows the same", TableGradient(), (torch.randn(4096, 768), torch.zeros(4096, dtype=torch.int64)), 1e-4
    yield "a row of 8x32x2048x128 bf16", Cache(), (torch.tensor([7]), torch.randn(8, 32, 1, 128).bfloat16()), 1e-2
    yield "4 layers with caches of 1x16x2048x128 bf16", Decoder(), (torch.tensor([9]), torch.randn(1, 16, 1, 128).bfloat16()), 2e-2


def median(call, repeats, device):
    for _ in range(8):
        call()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(device)
        begin.record()
        for _ in range(10):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 100)
    return sorted(times)[len(times) // 2]


def package(model, inputs, device):
    with torch.no_grad():
        return coil.compile(torch.export.export(model, inputs), device=str(device))


def compiled(model):
    known = "coil" in torch._dynamo.list_backends(None)
    return torch.compile(model, backend="coil" if known else importlib.import_module("coil.dynamo").compile_fx)


def worst(actual, expected):
    actual, expected = actual.double(), expected.double()
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--device", default="cuda:0")
    args = parser.parse_args()
    needs.gpu(args.device)
    device = torch.device(args.device)
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name(device)}, PyTorch {torch.__version__}; us a call\n{'':52}{'eager':>9}{'package':>9}{'compile':>9}   errors")
    for name, model, inputs, tolerance in cases():
        if args.only not in name:
            continue
        inputs = tuple(t.to(device) for t in inputs)
        model = model.to(device).eval()
        row, errors = [], []
        with torch.no_grad():
            start = {n: b.clone() for n, b in model.named_buffers()}
            expected = model(*inputs)
            for way in ("eager", "package", "compile"):
                for n, b in model.named_buffers():
                    b.copy_(start[n])
                try:
                    call = model if way == "eager" else package(model, inputs, device) if way == "package" else compiled(model)
                    found = call(*inputs)
                    found = found[0] if isinstance(found, (list, tuple)) else found
                    errors.append(worst(found, expected))
                    row.append(median(lambda: call(*inputs), args.repeats, device))
                except Exception as problem:  # the other ways are of interest all the same
                    row.append(float("nan"))
                    errors.append(float("nan"))
                    print(f"  {way}: {type(problem).__name__}: {str(problem)[:300]}")
        good = all(e <= tolerance for e in errors)
        print(f"{name:52}" + "".join(f"{t:9.1f}" for t in row) + f"   {'right' if good else 'WRONG ' + str(errors)}", flush=True)


if __name__ == "__main__":
    main()
