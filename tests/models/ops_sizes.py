"""Small programs at the edges of what code generators cut work into: vectors, tiles for transposes, blocks of rows and columns."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, BOOL, F16, F32, F64, I8, distinct, rand, registry

PROGRAMS, op = registry(__file__)
ROWS, COLUMNS = Dim("rows", min=1, max=4096), Dim("columns", min=1, max=8192)
MATRIX = ({0: ROWS, 1: COLUMNS},)


def name(dtype):
    return str(dtype).removeprefix("torch.").replace("float", "f").replace("int", "i")


def matrices(sizes, dtype=F32):
    return {f"r{r}_c{c}": lambda r=r, c=c: (rand(r, c, dtype=dtype),) for r, c in sizes}


# Transposes: through tiles of 32 or 64 where the sizes are worth it.
for dtype, rows, columns in [(F32, 65, 100), (F64, 33, 40), (BF16, 130, 70), (F16, 64, 129), (I8, 67, 129), (BOOL, 40, 41)]:
    op(f"tile_transpose_{name(dtype)}", lambda x: x.t().contiguous(), lambda dtype=dtype, s=(rows, columns): (rand(*s, dtype=dtype),))
for dtype in (F32, BF16):
    op(f"tile_transpose_dynamic_{name(dtype)}", lambda x: x.t() * 2 + 1, lambda dtype=dtype: (rand(48, 80, dtype=dtype),), dynamic=MATRIX,
       sets=matrices([(1, 1), (16, 33), (64, 64), (65, 257), (300, 17), (128, 8)], dtype))
op("tile_transpose_two", lambda x, y, z: x.t() + y.t() * z, lambda: (rand(70, 50), rand(70, 50), rand(50, 70)))
op("tile_transpose_mixed", lambda x, y: x.t() * y.t(), lambda: (rand(70, 50), rand(70, 50, dtype=BF16)))
op("tile_transpose_batched", lambda x: x.transpose(1, 2).exp(), lambda: (rand(3, 50, 70),))
op("tile_transpose_heads", lambda x: x.permute(0, 2, 1, 3).contiguous(), lambda: (rand(2, 37, 5, 24, dtype=BF16),))
op("tile_channels_last", lambda x: x.permute(0, 2, 3, 1) + 1, lambda: (rand(2, 20, 17, 19),))
op("tile_channels_first", lambda x: x.permute(0, 3, 1, 2) * 2, lambda: (rand(2, 17, 19, 36, dtype=F16),))
op("tile_transpose_padded", lambda x: F.pad(x.t(), (1, 2, 3, 0), value=2.0), lambda: (rand(45, 66),))
op("tile_transpose_sliced", lambda x: x[3:, 1:-2].t() - 1, lambda: (rand(70, 90),))

# Rows: a warp, a block, registers or a loop, vectors with a rest.
for columns in (33, 257, 1023, 2048, 5001):
    for dtype in (F32, BF16):
        op(f"row_norm_{columns}_{name(dtype)}", lambda x: (F.layer_norm(x, x.shape[1:]), x.softmax(1)), lambda dtype=dtype, c=columns: (rand(3, c, dtype=dtype),))
op("row_reduce_dynamic", lambda x: (x.sum(1), x.amax(1), x.argmin(1)), lambda: (rand(4, 50),), dynamic=MATRIX,
   sets=matrices([(1, 1), (3, 31), (33, 32), (2, 127), (9, 1024), (1, 1025), (2, 8192)]))
op("row_reduce_dynamic_f16", lambda x: (x.mean(1), x.amin(1)), lambda: (rand(4, 50, dtype=F16),), dynamic=MATRIX, sets=matrices([(2, 7), (5, 64), (3, 2050)], F16))
op("row_argmax", lambda x: (x.argmax(1), x.argmin(1, keepdim=True)), lambda: (distinct(3, 2500),))
op("row_of_planes", lambda x: (x.sum((2, 3)), x.amax((1, 3))), lambda: (rand(3, 5, 33, 35),))
op("row_scaled", lambda x, y: (x * y).sum(-1, keepdim=True) * x, lambda: (rand(5, 1026), rand(5, 1026)))

# Columns: 32 at a time.
op("column_reduce", lambda x: (x.sum(0), x.amax(0)), lambda: (rand(1025, 33),))
op("column_reduce_few", lambda x: x.sum(0), lambda: (rand(3000, 3),))
op("column_reduce_middle", lambda x: (x.sum(1), x.var(1)), lambda: (rand(7, 300, 65),))
op("column_reduce_dynamic", lambda x: (x.sum(0), x.softmax(0)), lambda: (rand(40, 50),), dynamic=MATRIX,
   sets=matrices([(1, 1), (1, 33), (257, 31), (2, 64), (1000, 5)]))

# Scans and sorts.
op("scan_lengths", lambda *xs: [x.cumsum(1) for x in xs], lambda: [rand(3, n) for n in (1, 31, 255, 256, 257, 1000)])
op("scan_columns", lambda x: x.cumsum(0), lambda: (rand(300, 33),))
op("sort_lengths", lambda *xs: [r for x in xs for r in x.sort(1)], lambda: [distinct(2, n) for n in (1, 2, 511, 513, 1025)])
