"""Every tile of the products of bytes by wgmma (device/cuda/byte_wgmma.h, byte_f16.h), emulated and by itself, beside numbers in float64: the same instances as
tests/gpu/test_bytes.py has on a GPU."""

import ctypes

import numpy as np
import pytest

from emulated_tiles import aligned, build, call
from test_bytes import Args, Bytes, F16Tile, Kind, Tile, up

MAGIC = 0x70616D20656C6974
NUMPY = {"f32": np.float32, "f16": np.float16}


class Map(ctypes.Structure):
    """EmulatedTensorMap."""
    _fields_ = [("magic", ctypes.c_uint64), ("base", ctypes.c_uint64), ("sizes", ctypes.c_uint64 * 2), ("pitch", ctypes.c_uint64), ("box", ctypes.c_uint32 * 2), ("bytes", ctypes.c_uint32)]


class Problem:
    def __init__(self, kind, m, n, k):
        random = np.random.default_rng(m + n + k)
        self.kind, self.m, self.n, self.k = kind, m, n, k
        self.rows = aligned((m, up(k, 16) * 16), np.int8)
        self.rows[:, :k] = random.integers(-128, 128, (m, k))
        self.weight = random.integers(*((-8, 8) if kind.bits == 4 else (-128, 128)), (n, k))
        groups = k // kind.group if kind.group else 1
        self.scale = (random.random((n, groups)) + 0.5).astype(NUMPY[kind.scale])
        self.zero = random.standard_normal((n, groups)).astype(NUMPY[kind.zero]) if kind.zero else None
        wide = np.zeros((n, up(k, 32) * 32), np.int8)
        wide[:, :k] = self.weight
        if kind.bits == 4:
            halves = wide.reshape(n, -1, 2, 16)
            wide = (halves[:, :, 0] & 15 | halves[:, :, 1] << 4).reshape(n, -1)
        self.lines = aligned(wide.shape, np.int8)
        self.lines[:] = wide

    def wanted(self):
        weight = self.weight.reshape(self.n, self.scale.shape[1], -1).astype(np.float64)
        if self.zero is not None:
            weight = weight - self.zero.astype(np.float64)[..., None]
        return self.rows[:, : self.k].astype(np.float64) @ (weight * self.scale.astype(np.float64)[..., None]).reshape(self.n, -1).T

    def params(self, tile):
        t = Bytes(m=self.m, n=self.n, k=self.k, a=self.rows.ctypes.data, a_row=self.rows.shape[1], a_col=1, b=self.lines.ctypes.data, b_line=self.lines.shape[1],
                  scale=self.scale.ctypes.data, scale_group=1, scale_col=self.scale.shape[1])
        if self.zero is not None:
            t.zero, t.zero_group, t.zero_col = self.zero.ctypes.data, 1, self.zero.shape[1]
        for name, (x, lines, length, box) in {"map_a": (self.rows, self.m, self.k, tile.rows), "map_b": (self.lines, self.n, self.lines.shape[1], tile.columns)}.items():
            made = Map(MAGIC, x.ctypes.data, (length, lines), x.shape[1], (128, box), 1)
            ctypes.memmove(ctypes.addressof(getattr(t, name)), ctypes.addressof(made), ctypes.sizeof(made))
        return t


def run(kernel, tile, problem):
    out = np.full((problem.m, problem.n), np.nan, np.float32)
    call(kernel, (tile.grid(problem.m, problem.n), 1, 1), tile.threads, tile.shared, tile.split, problem.params(tile), Args(out.ctypes.data, None, problem.n))
    return out


# k, and tiles: of all of both sizes, stages that are used again, and parts of k, of which one has nothing to do.
KINDS = {
    "8 bits": (Kind(8), [192, 1541], [(128, 16, 1), (64, 32, 2), (128, 64, 4), (64, 192, 8), (128, 256, 1)]),
    "8 bits, zero points": (Kind(8, zero="f32"), [1100], [(64, 16, 4), (128, 128, 2), (128, 256, 1)]),
    "8 bits by 32": (Kind(8, 32, "f16"), [1120], [(64, 16, 1), (128, 128, 4)]),
    "8 bits by 128, zero points": (Kind(8, 128, "f16", "f32"), [1152], [(128, 32, 2), (64, 128, 1)]),
    "8 bits by 512, zero points": (Kind(8, 512, zero="f32"), [1536], [(128, 64, 2), (64, 16, 1)]),
    "4 bits": (Kind(4), [2100], [(64, 16, 2), (128, 128, 1), (128, 192, 8)]),
    "4 bits, zero points": (Kind(4, zero="f16"), [1300], [(64, 64, 2)]),
    "4 bits by 32, zero points": (Kind(4, 32, "f16", "f16"), [1376], [(128, 16, 1), (64, 128, 4)]),
    "4 bits by 64": (Kind(4, 64), [1344], [(128, 64, 1)]),
    "4 bits by 256": (Kind(4, 256, "f16"), [1280], [(64, 32, 2)]),
    "4 bits by 512": (Kind(4, 512, "f16"), [1536], [(128, 32, 2)]),
}


# The same in float16, with how the scales are shifted.
F16_KINDS = {
    "8 bits by 32": (Kind(8, 32, "f16"), [1120], [(128, 16, 1, 0), (256, 128, 2, -1)]),
    "8 bits by 16, zero points": (Kind(8, 16, "f16", "f16"), [1136], [(128, 32, 1, 0)]),
    "8 bits by 128, zero points": (Kind(8, 128, "f16", "f32"), [1152], [(128, 64, 2, 2)]),
    "4 bits by 32": (Kind(4, 32), [1376], [(128, 128, 1, -3), (256, 16, 4, 0)]),
    "4 bits by 32, zero points": (Kind(4, 32, "f16", "f16"), [1376], [(128, 64, 8, 0), (256, 64, 1, 0)]),
    "4 bits by 64": (Kind(4, 64), [1344], [(256, 128, 1, 1)]),
    "4 bits by 192": (Kind(4, 192, "f16"), [1344], [(128, 32, 2, 0)]),
    "4 bits by 512": (Kind(4, 512, "f16"), [1536], [(128, 16, 2, 0)]),
}


@pytest.mark.parametrize("kind", [*KINDS, *(f"{kind}, in float16" for kind in F16_KINDS)])
def test_tiles(kind, tmp_path):
    """Rows and columns that fill no tile."""
    if kind in KINDS:
        what, depths, tiles = KINDS[kind]
        tiles = [Tile(what, *tile) for tile in tiles]
    else:
        what, depths, tiles = F16_KINDS[kind.removesuffix(", in float16")]
        tiles = [F16Tile(what, *tile[:3], shift=tile[3]) for tile in tiles]
    for tile, kernel in zip(tiles, build([tile.source() for tile in tiles], ["cuda/byte_f16.h"], tmp_path / "tiles.so"), strict=True):
        for k in depths:
            for m, n in ((tile.rows + 3, tile.columns + 11), (5, 24)):
                problem = Problem(what, m, n, k)
                found, wanted = run(kernel, tile, problem).astype(np.float64), problem.wanted()
                error = np.abs(found - wanted).max(1) / np.abs(wanted).max(1)
                assert error.max() <= tile.tolerance, (str(tile), m, n, k, error)
