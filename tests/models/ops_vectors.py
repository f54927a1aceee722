"""Small programs of what CUDA kernels do to whole vectors: pieces of a concatenation that are chosen where they are read, scans of long
rows, softmax of rows that are read in batches; of lanes across running sums and outer products."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, BOOL, F16, F64, I64, U8, rand, registry, special

PROGRAMS, op = registry(__file__)


def rotated(x, angle):
    half = x.shape[-1] // 2
    return x * angle + torch.cat((-x[..., half:], x[..., :half]), -1) * (1 - angle)


op("rotate_half", rotated, lambda: (rand(2, 3, 5, 64), rand(5, 64)))
op("rotate_half_odd", rotated, lambda: (rand(2, 3, 22), rand(3, 22)))
op("rotate_half_bf16", rotated, lambda: (rand(2, 5, 3, 32, dtype=BF16).transpose(1, 2), rand(5, 32, dtype=BF16)), tolerance=2e-2)
op("cat_selected", lambda x, y, z: (torch.cat([x, y, -z], 1) * torch.cat([z, x, y], 1), torch.cat([x, x, y]) + 1), lambda: (rand(8, 5), rand(8, 5), rand(8, 5)))
op("cat_rows_selected", lambda x, y, z: torch.cat([x, -y]) * z, lambda: (rand(3, 7, 16), rand(2, 7, 16), rand(5, 7, 16)))
op("cat_selected_i64", lambda x, y: torch.cat([x, y.flip(-1), x], -1) * 3, lambda: (rand(4, 8, dtype=I64), rand(4, 2, dtype=I64)))
op("stack_interleaved", lambda x, y: torch.stack([-y, x], -1).flatten(-2) * 2, lambda: (rand(4, 16), rand(4, 16)))
op("dynamic_cat_selected", lambda x: torch.cat([x, -x, x * 2], 1) + 1, lambda: (rand(2, 5, 12),), dynamic=({0: Dim("batch", min=1, max=64), 1: Dim("seq", min=1, max=128)},),
   sets={"one": lambda: (rand(1, 1, 12),), "more": lambda: (rand(3, 16, 12),)})
op("pad_vectors", lambda x, y: F.pad(x, (8, 4)) * y, lambda: (rand(3, 20), rand(3, 32)))
op("scan_long", lambda *xs: [x.cumsum(-1) for x in xs], lambda: [rand(2, n) for n in (4096, 8192, 9001, 12004)])
op("scan_long_bf16", lambda x, y: (x.cumsum(-1), y.cumsum(-1)), lambda: (rand(2, 5003, dtype=BF16, low=0, high=1), rand(2, 4104, dtype=BF16, low=0, high=1)), tolerance=3e-2)
op("scan_long_i64", lambda x: (x.cumsum(-1), *x.cummax(-1)), lambda: (rand(2, 4101, dtype=I64),))
op("scan_long_f64", lambda x: x.cumprod(-1), lambda: (rand(2, 3000, dtype=F64, low=0.999, high=1.001),))
op("softmax_batches", lambda x, y: (x.log_softmax(-1), torch.logsumexp(y, -1)), lambda: (rand(2, 40_000), rand(3, 33_001) * 30))
op("softmax_batches_f64", lambda x: x.log_softmax(-1), lambda: (rand(2, 33_000, dtype=F64),))
op("softmax_of_two", lambda x: torch.logsumexp(x, (1, 2)), lambda: (rand(2, 50, 700),))
# Lanes along the columns of a running sum: whole steps of several vectors, single ones, a tail, and too few for any.
for columns in (1, 3, 4, 15, 16, 63, 64, 65, 131):
    op(f"scan_columns_{columns}", lambda x, y: (x.cumsum(0), x.cumprod(0), torch.cummax(x, 0)[0], torch.cummin(x, 0)[0], y.cumsum(1), x.cumsum(0).exp()),
       lambda columns=columns: (rand(37, columns, low=-1.2, high=1.2), rand(2, 5, columns, 1)))
op("scan_columns_types", lambda a, b, c, d, e, f: [x.cumsum(0) for x in (a, b, c, d, e, f)],
   lambda: (*(rand(29, 70, dtype=t) for t in (BF16, F16, F64, I64, BOOL)), rand(29, 70, dtype=U8, low=0, high=200)), tolerance=2e-2)
op("scan_columns_special", lambda x, y: (x.cumsum(0), x.cummax(0)[0], x.logcumsumexp(0), y.cumprod(0)), lambda: (special().repeat(40).reshape(20, 38), special(F64).repeat(40).reshape(19, 40).t()))
op("scan_columns_dynamic", lambda x: (x * 2).cumsum(1), lambda: (rand(3, 20, 40),), dynamic=({0: Dim("batch", min=1, max=64), 1: Dim("seq", min=0, max=128), 2: Dim("width", min=1, max=200)},),
   sets={"one": lambda: (rand(1, 1, 1),), "none": lambda: (rand(2, 0, 17),), "more": lambda: (rand(5, 100, 133),)})
op("kron_sizes", lambda a, b, c, d: (torch.kron(a, b), torch.kron(b, a), torch.kron(c, a), torch.kron(d, c) + 1, torch.kron(a, c.flip(0)), torch.kron(c, torch.zeros(0))),
   lambda: (rand(5, 7), rand(3, 40), rand(9), rand(2, 3, 4)))
op("kron_types", lambda a, b, c: (torch.kron(a, b), torch.kron(b, c), torch.kron(c, c)), lambda: (rand(5, 7, dtype=F64), rand(3, 4, dtype=I64), rand(4, 33, dtype=BOOL)))
# As eager, to the last place: near 0, near 1, at and beyond the ends.
op("erfinv_ends", lambda x: (torch.erfinv(x), torch.erfinv(x.double())),
   lambda: (torch.cat((special(), 1 - torch.logspace(-7.2, 0, 300), torch.logspace(-38, 0, 300))),), tolerance=2e-7)
op("erfinv_half", lambda x, y: (torch.erfinv(x), torch.erfinv(y)), lambda: (special(BF16), rand(200, dtype=F16).tanh()))
