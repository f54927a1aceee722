"""Products whose tiles are timed: test_gemm.py --bench, and --times=FILE for bench/fit_gemm.cc."""
import re
import typing


class Problem(typing.NamedTuple):
    dtype: str
    m: int
    n: int
    k: int
    b_k: bool = True  # b is a weight [n, k]
    a_k: bool = True  # a is [m, k]; else [k, m], as for a weight's gradient
    batch: int = 1

    def __str__(self):
        batch = f"{self.batch}x " if self.batch > 1 else ""
        return f"{self.dtype} {batch}{self.m}x{self.n}x{self.k} {'[m,k]' if self.a_k else '[k,m]'} {'[n,k]' if self.b_k else '[k,n]'}"


def problem_of(name):
    """The product that is printed so."""
    match = re.fullmatch(r"(\w+) (?:(\d+)x )?(\d+)x(\d+)x(\d+) \[(m,k|k,m)\] \[(n,k|k,n)\]", name)
    if not match:
        raise ValueError(f"no product: {name!r} (as in 'bf16 4x 160x4096x4096 [m,k] [n,k]')")
    dtype, batch, m, n, k, a, b = match.groups()
    return Problem(dtype, int(m), int(n), int(k), b == "n,k", a == "m,k", int(batch or 1))


def problems(dtype, *sizes, **layout):
    return [Problem(dtype, *s, **layout) for s in sizes]


# Those that the kernels were made with.
FIRST = problems("f32", (2048, 2048, 2048), (2048, 2048, 2048, False), (512, 512, 512), (98, 512, 4608), (1, 1000, 512), (1, 4096, 4096))
FIRST += problems("tf32", (2048, 2048, 2048), (2048, 2048, 2048, False), (4096, 4096, 4096), (512, 512, 512), (98, 512, 4608), (256, 1024, 1024),
                  (1024, 768, 3072), (1024, 3072, 768, False), (196, 768, 768))
FIRST += problems("bf16", (8192, 8192, 8192), (4096, 4096, 4096), (4096, 4096, 4096, False), (2048, 14336, 4096), (2048, 4096, 14336), (1024, 768, 3072),
                  (1024, 3072, 768, False), (560, 1280, 3420), (1024, 1280, 3420), (2048, 1280, 3420), (4096, 1280, 3420), (2048, 1280, 3417),
                  (64, 4096, 4096), (32, 14336, 4096), (128, 4096, 14336), (512, 1024, 1024), (196, 768, 768), (1, 4096, 4096), (4, 14336, 4096),
                  (8, 4096, 14336), (1, 50304, 768), (4, 1024, 4096), (4, 768, 3072), (1, 3072, 768, False), (4, 768, 3072, False))

# What no constant was fitted to before 2026-11-29, by kind.
KINDS = {
    "models": problems("bf16", (1024, 768, 768), (1024, 2304, 768), (1024, 3072, 768), (1576, 3072, 1024), (1576, 1024, 1024), (1576, 4096, 1024),
                       (1576, 1024, 4096), (1568, 2048, 512), (1568, 512, 2048), (2048, 6144, 4096), (2048, 28672, 4096)),
    "few rows": problems("bf16", (17, 4096, 4096), (24, 1024, 4096), (32, 4096, 4096), (48, 11008, 4096), (64, 4096, 11008), (96, 2048, 2048),
                         (20, 50304, 768)),
    "odd columns": problems("bf16", (1024, 1000, 2048), (512, 10001, 768), (2048, 333, 1024), (1568, 1001, 768, False)),
    "odd k": problems("bf16", (1000, 768, 1021), (4096, 640, 1710), (784, 512, 1156), (3136, 384, 1160), (300, 2048, 2050)),
    "pixels": problems("bf16", (25088, 64, 576), (6272, 128, 1152), (1568, 512, 4608), (12544, 256, 64), (50176, 64, 256), (6272, 512, 128),
                       (3136, 256, 2304)),
    "columns contiguous": problems("bf16", (1024, 768, 768, False), (2048, 4096, 1024, False), (4096, 1024, 4096, False), (512, 512, 512, False),
                                   (1576, 768, 3072, False), (6304, 384, 1536, False)),
    "gradients": problems("bf16", (768, 768, 1024, False), (3072, 768, 1576, False), (1024, 4096, 6304, False), (384, 1536, 12608, False),
                          (2304, 768, 8192, False), (128, 512, 25088, False), (1024, 1024, 1024, True), (512, 2048, 3136, True), a_k=False),
    "batches": problems("bf16", (128, 128, 64), (128, 64, 128, False), batch=96) + problems("bf16", (512, 512, 512), batch=16) +
               problems("bf16", (1024, 256, 1024, False), (1024, 1024, 64), batch=12),
    "tf32": problems("tf32", (1576, 768, 768), (512, 3072, 768), (128, 4096, 4096), (3136, 256, 2304), (49, 2048, 1024), (6304, 384, 384)),
}


def one_of_each(kinds):
    """One of each kind after the other, so that a run that ends early has some of all."""
    longest = max(map(len, kinds.values()))
    return [p[i] for i in range(longest) for p in kinds.values() if i < len(p)]


SECOND = one_of_each(KINDS)

# What constants were judged on after they were fitted to the others.
HELD_OUT = problems("bf16", (18, 5120, 5120), (40, 4096, 4096), (56, 14336, 4096), (100, 8192, 2048), (120, 5120, 13824), (24, 32000, 2048))
HELD_OUT += problems("bf16", (160, 4096, 4096), (256, 11008, 4096), (384, 5120, 1280), (640, 2560, 640), (2048, 2048, 512), (4096, 1536, 6144),
                     (8192, 1024, 1024), (788, 3072, 768), (1970, 1152, 4304), (3000, 2304, 576), (5000, 640, 2560), (1024, 50257, 768))
HELD_OUT += problems("bf16", (700, 999, 1024), (4000, 77, 512), (1000, 1201, 320), (900, 640, 1283), (2000, 1024, 2732), (640, 896, 1420))
HELD_OUT += problems("bf16", (50176, 96, 192), (12544, 192, 864), (6272, 320, 1440), (3136, 640, 320), (802, 2048, 1024), (100352, 32, 288))
HELD_OUT += problems("bf16", (640, 1280, 5120, False), (2048, 1536, 512, False), (333 * 8, 512, 1024, False))
HELD_OUT += problems("bf16", (1280, 320, 8192, False), (768, 3072, 3152, False), (256, 2304, 12544, False), (640, 2560, 1024, True), a_k=False)
HELD_OUT += problems("bf16", (256, 256, 64), (577, 64, 640, False), batch=64) + problems("bf16", (320, 768, 256), batch=24)
HELD_OUT += problems("tf32", (788, 2304, 768), (2048, 1000, 2048), (64, 4096, 1024), (6272, 128, 1152))
