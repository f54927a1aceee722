"""Single operators at usual sizes, one thread, beside eager: what takes many times as long has a wrong algorithm.

COIL_BUILD=build python bench/operators.py [NAME...]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import randint, randn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/models"))
from case import Function

COIL = pathlib.Path(os.environ.get("COIL_BUILD", "build")) / "coil"
SECONDS = 0.4

OPERATORS = {
    "cumsum_rows": (lambda x: x.cumsum(1), lambda: (randn(512, 2048),)),
    "cumsum_cols": (lambda x: x.cumsum(0), lambda: (randn(2048, 512),)),
    "cumprod": (lambda x: x.cumprod(1), lambda: (randn(512, 2048),)),
    "cummax": (lambda x: x.cummax(1)[0], lambda: (randn(512, 2048),)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), lambda: (randn(128, 1024),)),
    "sort": (lambda x: x.sort(1), lambda: (randn(64, 4096),)),
    "argsort_big": (lambda x: x.argsort(), lambda: (randn(100000),)),
    "topk": (lambda x: x.topk(50), lambda: (randn(64, 50000),)),
    "topk_1": (lambda x: x.topk(1), lambda: (randn(64, 50000),)),
    "kthvalue": (lambda x: x.kthvalue(100, 1)[0], lambda: (randn(64, 4096),)),
    "median": (lambda x: x.median(1)[0], lambda: (randn(64, 4096),)),
    "quantile": (lambda x: x.quantile(0.3, 1), lambda: (randn(64, 4096),)),
    "nonzero": (lambda x: x.nonzero(), lambda: (randn(512, 512) > 0,)),
    "masked_select": (lambda x: x[x > 0], lambda: (randn(512, 512),)),
    "unique": (lambda x: x.unique(), lambda: (randint(0, 1000, (50000,)),)),
    "bincount": (lambda x: torch.bincount(x, minlength=1000), lambda: (randint(0, 1000, (50000,)),)),
    "histc": (lambda x: x.histc(100, -3, 3), lambda: (randn(50000),)),
    "searchsorted": (lambda a, v: torch.searchsorted(a, v), lambda: (torch.sort(randn(10000))[0], randn(50000))),
    "bucketize": (lambda v, a: torch.bucketize(v, a), lambda: (randn(50000), torch.sort(randn(1000))[0])),
    "index_put": (lambda x, i, v: x.index_put((i,), v), lambda: (randn(20000, 16), torch.randperm(20000)[:5000], randn(5000, 16))),
    "index_put2": (lambda x, i, j, v: x.index_put((i, j), v), lambda: (randn(1000, 1000), randint(0, 1000, (5000,)), randint(0, 1000, (5000,)), randn(5000))),
    "index_put_acc": (lambda x, i, j, v: x.index_put((i, j), v, accumulate=True), lambda: (randn(1000, 1000), randint(0, 1000, (5000,)), randint(0, 1000, (5000,)), randn(5000))),
    "scatter_rows": (lambda x, i, v: x.scatter(1, i, v), lambda: (randn(256, 5000), torch.stack([torch.randperm(5000)[:500] for _ in range(256)]), randn(256, 500))),
    "scatter_vocab": (lambda x, i: x.scatter(1, i, -1000000000.0), lambda: (randn(8, 50000), torch.stack([torch.randperm(50000)[:1000] for _ in range(8)]))),
    "scatter_add_rows": (lambda x, i, v: x.scatter_add(1, i, v), lambda: (randn(256, 5000), randint(0, 5000, (256, 500)), randn(256, 500))),
    "one_hot": (lambda x: F.one_hot(x, 1000).float(), lambda: (randint(0, 1000, (4096,)),)),
    "gather": (lambda x, i: x.gather(1, i), lambda: (randn(256, 5000), randint(0, 5000, (256, 500)))),
    "embedding": (lambda w, i: F.embedding(i, w), lambda: (randn(50000, 256), randint(0, 50000, (4096,)))),
    "embedding_bag": (lambda w, i, o: F.embedding_bag(i, w, o, mode="mean"), lambda: (randn(50000, 64), randint(0, 50000, (20000,)), torch.arange(0, 20000, 20))),
    "repeat_interleave": (lambda x: x.repeat_interleave(4, 0), lambda: (randn(4096, 256),)),
    "repeat_interleave_t": (lambda x, r: x.repeat_interleave(r, 0), lambda: (randn(4096, 64), randint(0, 5, (4096,)))),
    "roll": (lambda x: x.roll((3, 5), (1, 2)), lambda: (randn(8, 256, 256),)),
    "flip": (lambda x: x.flip(1, 2), lambda: (randn(8, 256, 256),)),
    "tril": (lambda x: x.tril(), lambda: (randn(1024, 1024),)),
    "diag_embed": (lambda x: x.diag_embed(), lambda: (randn(64, 256),)),
    "unfold": (lambda x: F.unfold(x, 3, padding=1), lambda: (randn(4, 64, 56, 56),)),
    "fold": (lambda x: F.fold(x, (56, 56), 3, padding=1), lambda: (randn(4, 576, 3136),)),
    "tensor_unfold": (lambda x: x.unfold(1, 400, 160).clone(), lambda: (randn(4, 160000),)),
    "stft": (lambda x: torch.stft(x, 400, 160, return_complex=True, window=torch.hann_window(400, device=x.device)).abs(), lambda: (randn(4, 16000 * 4),)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), lambda: (randn(4, 64, 64, 64), torch.rand(4, 64, 64, 2) * 2 - 1)),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), lambda: (randn(2, 32, 128, 128),)),
    "bilinear": (lambda x: F.interpolate(x, size=(300, 300), mode="bilinear"), lambda: (randn(2, 32, 128, 128),)),
    "bilinear_aa": (lambda x: F.interpolate(x, size=(100, 100), mode="bilinear", antialias=True), lambda: (randn(2, 3, 512, 512),)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), lambda: (randn(4, 64, 128, 128),)),
    "adaptive_avg": (lambda x: F.adaptive_avg_pool2d(x, (7, 7)), lambda: (randn(8, 256, 50, 50),)),
    "adaptive_max": (lambda x: F.adaptive_max_pool2d(x, (7, 7)), lambda: (randn(8, 256, 50, 50),)),
    "maxpool": (lambda x: F.max_pool2d(x, 3, 2, 1), lambda: (randn(8, 64, 112, 112),)),
    "maxpool13": (lambda x: F.max_pool2d(x, 13, 1, 6), lambda: (randn(1, 128, 20, 20),)),
    "avgpool_big": (lambda x: F.avg_pool2d(x, 15, 1, 7), lambda: (randn(1, 64, 64, 64),)),
    "maxpool3d": (lambda x: F.max_pool3d(x, 2), lambda: (randn(1, 32, 32, 64, 64),)),
    "lppool": (lambda x: F.lp_pool2d(x, 2, 3, 2), lambda: (randn(4, 64, 56, 56),)),
    "max_unpool": (lambda x: (lambda y, i: F.max_unpool2d(y, i, 2))(*F.max_pool2d(x, 2, return_indices=True)), lambda: (randn(4, 64, 56, 56),)),
    "local_resp": (lambda x: F.local_response_norm(x, 5), lambda: (randn(4, 64, 56, 56),)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), lambda: (randn(4, 64, 128, 128),)),
    "cdist": (lambda a, b: torch.cdist(a, b), lambda: (randn(1000, 64), randn(1000, 64))),
    "cdist_l1": (lambda a, b: torch.cdist(a, b, p=1.0), lambda: (randn(500, 64), randn(500, 64))),
    "pdist": (lambda a: F.pdist(a), lambda: (randn(500, 64),)),
    "cross": (lambda a, b: torch.linalg.cross(a, b), lambda: (randn(100000, 3), randn(100000, 3))),
    "einsum4": (lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), lambda: (randn(4, 8, 128, 64), randn(4, 8, 128, 64))),
    "einsum_tri": (lambda a, b, c: torch.einsum("bi,bj,ijk->bk", a, b, c), lambda: (randn(64, 64), randn(64, 64), randn(64, 64, 64))),
    "bilinear_layer": (lambda a, b, w: F.bilinear(a, b, w), lambda: (randn(64, 64), randn(64, 64), randn(32, 64, 64))),
    "matmul_bcast": (lambda a, b: a @ b, lambda: (randn(32, 1, 64, 64), randn(8, 64, 64))),
    "mv": (lambda a, b: a @ b, lambda: (randn(4096, 4096), randn(4096))),
    "outer": (lambda a, b: torch.outer(a, b), lambda: (randn(2048), randn(2048))),
    "kron": (lambda a, b: torch.kron(a, b), lambda: (randn(32, 32), randn(32, 32))),
    "svd": (lambda a: torch.linalg.svdvals(a), lambda: (randn(128, 128),)),
    "inv": (lambda a: torch.linalg.inv(a), lambda: (randn(16, 64, 64) + 8 * torch.eye(64),)),
    "cholesky": (lambda a: torch.linalg.cholesky(a @ a.mT + 64 * torch.eye(128, device=a.device)), lambda: (randn(8, 128, 128),)),
    "solve": (lambda a, b: torch.linalg.solve(a, b), lambda: (randn(256, 256), randn(256, 32))),
    "det": (lambda a: torch.linalg.det(a), lambda: (randn(64, 32, 32),)),
    "matrix_exp": (lambda a: torch.matrix_exp(a), lambda: (randn(16, 32, 32) * 0.1,)),
    "fft": (lambda x: torch.fft.rfft(x).abs(), lambda: (randn(64, 4096),)),
    "fft2": (lambda x: torch.fft.fft2(x).real, lambda: (randn(8, 256, 256),)),
    "erfinv": (lambda x: torch.erfinv(x.tanh()), lambda: (randn(500000),)),
    "ndtri": (lambda x: torch.special.ndtri(x.sigmoid()), lambda: (randn(500000),)),
    "i1e": (lambda x: torch.special.i1e(x), lambda: (randn(500000),)),
    "bessel_j0": (lambda x: torch.special.bessel_j0(x * 4), lambda: (randn(500000),)),
    "bessel_y1": (lambda x: torch.special.bessel_y1(x.abs() + 0.5), lambda: (randn(500000),)),
    "gammainc": (lambda a, x: torch.special.gammainc(a.abs() + 0.5, x.abs()), lambda: (randn(100000), randn(100000))),
    "bilinear of bytes": (lambda x: F.interpolate(x, size=(224, 224), mode="bilinear", antialias=False), lambda: (randint(0, 256, (1, 3, 512, 480), dtype=torch.uint8),)),
    "bilinear of bytes antialiased": (lambda x: F.interpolate(x, size=(224, 224), mode="bilinear", antialias=True), lambda: (randint(0, 256, (1, 3, 512, 480), dtype=torch.uint8),)),
    "bicubic of bytes": (lambda x: F.interpolate(x, size=(224, 224), mode="bicubic", antialias=False), lambda: (randint(0, 256, (1, 3, 512, 480), dtype=torch.uint8),)),
    "bicubic of bytes antialiased": (lambda x: F.interpolate(x, size=(224, 224), mode="bicubic", antialias=True), lambda: (randint(0, 256, (1, 3, 512, 480), dtype=torch.uint8),)),
    "digamma": (lambda x: torch.digamma(x.abs() + 0.1), lambda: (randn(200000),)),
    "pow_t": (lambda x, y: x.abs() ** y, lambda: (randn(1000000), randn(1000000))),
    "atan2": (lambda x, y: torch.atan2(x, y), lambda: (randn(1000000), randn(1000000))),
    "fmod": (lambda x, y: torch.fmod(x, y), lambda: (randn(1000000), randn(1000000))),
    "remainder_i": (lambda x: x % 7, lambda: (randint(0, 1 << 40, (1000000,)),)),
    "floor_div_i": (lambda x, y: x // y, lambda: (randint(0, 1 << 40, (1000000,)), randint(1, 1 << 20, (1000000,)))),
    "sum_i64": (lambda x: x.sum(1), lambda: (randint(0, 100, (1000, 1000)),)),
    "any": (lambda x: x.any(1), lambda: (randn(1000, 1000) > 3,)),
    "argmax": (lambda x: x.argmax(-1), lambda: (randn(64, 50000),)),
    "var_mean": (lambda x: torch.var_mean(x, 0), lambda: (randn(4096, 512),)),
    "std_all": (lambda x: x.std(), lambda: (randn(1000000),)),
    "norm_p3": (lambda x: x.norm(3, 1), lambda: (randn(1000, 1000),)),
    "logsumexp": (lambda x: x.logsumexp(1), lambda: (randn(64, 50000),)),
    "softmax_dim1": (lambda x: x.softmax(1), lambda: (randn(8, 64, 64, 64),)),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), lambda: (randn(512, 50000), randint(0, 50000, (512,)))),
    "batchnorm_train": (lambda x: F.batch_norm(x, None, None, training=True), lambda: (randn(8, 64, 56, 56),)),
    "instancenorm": (lambda x: F.instance_norm(x), lambda: (randn(8, 64, 56, 56),)),
    "rmsnorm": (lambda x: F.rms_norm(x, (1024,)), lambda: (randn(512, 1024),)),
    "glu": (lambda x: F.glu(x, 1), lambda: (randn(64, 512, 64),)),
    "prelu": (lambda x, w: F.prelu(x, w), lambda: (randn(8, 64, 56, 56), randn(64))),
    "nms_iou": (lambda b: (lambda lt, rb: (rb - lt).clamp(min=0).prod(-1))(torch.max(b[:, None, :2], b[None, :, :2]), torch.min(b[:, None, 2:], b[None, :, 2:])), lambda: (randn(1000, 4),)),
    "meshgrid": (lambda a, b: torch.stack(torch.meshgrid(a, b, indexing="ij"), -1), lambda: (randn(500), randn(500))),
    "where_3": (lambda a, b: torch.where(a > 0, a, b), lambda: (randn(1000, 1000), randn(1000, 1000))),
    "cat_many": (lambda *x: torch.cat(x, 1), lambda: tuple((randn(256, 37) for _ in range(20)))),
    "stack_last": (lambda *x: torch.stack(x, -1), lambda: tuple((randn(256, 512) for _ in range(8)))),
    "permute_copy": (lambda x: x.permute(0, 3, 1, 2).contiguous(), lambda: (randn(8, 128, 128, 32),)),
    "permute_5d": (lambda x: x.permute(0, 3, 1, 4, 2).contiguous(), lambda: (randn(4, 16, 32, 24, 40),)),
    "multinomial_like": (lambda p: (p.softmax(1).cumsum(1) > 0.5).int().argmax(1), lambda: (randn(64, 50000),)),
    "conv_transpose3d": (lambda x, w: F.conv_transpose3d(x, w, stride=2), lambda: (randn(1, 16, 12, 12, 12), randn(16, 16, 2, 2, 2))),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), lambda: (randn(1, 16, 16, 32, 32), randn(16, 16, 3, 3, 3))),
    "conv_f64": (lambda x, w: F.conv2d(x, w, padding=1), lambda: (randn(1, 32, 32, 32, dtype=torch.float64), randn(32, 32, 3, 3, dtype=torch.float64))),
    "mm_f64": (lambda x, w: x @ w, lambda: (randn(512, 512, dtype=torch.float64), randn(512, 512, dtype=torch.float64))),
    "mm_i64": (lambda x, w: x @ w, lambda: (randint(0, 9, (128, 128)), randint(0, 9, (128, 128)))),
    "mm_c64": (lambda x, w: x @ w, lambda: (randn(256, 256, dtype=torch.complex64), randn(256, 256, dtype=torch.complex64))),
}


def eager_us(module, args):
    """The quickest call, processor time."""
    times, end = [], time.thread_time() + SECONDS
    module(*args)
    while len(times) < 3 or time.thread_time() < end:
        start = time.thread_time()
        module(*args)
        times.append(time.thread_time() - start)
    return min(times) * 1e6


def coil_us(module, args, folder):
    torch.export.save(torch.export.export(module, args), folder / "m.pt2")
    np.savez(folder / "in.npz", **{f"in_{i}": a.numpy() for i, a in enumerate(args)})
    made = subprocess.run([COIL, "compile", folder / "m.pt2", "-o", folder / "c.pt2"], capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(made.stderr.strip()[:150])
    command = [COIL, "bench", folder / "c.pt2", "--threads", "1", "--seconds", str(SECONDS), "--json", "--input", folder / "in.npz"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["call_us"]["min"]


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for name in sys.argv[1:] or OPERATORS:
            function, inputs = OPERATORS[name]
            torch.manual_seed(0)
            module, args = Function(function), inputs()
            try:
                own = coil_us(module, args, pathlib.Path(folder))
            except Exception as error:  # one that cannot be exported or compiled is a row, too
                print(f"{name:20} {type(error).__name__}: {str(error)[:150]}", flush=True)
                continue
            eager = eager_us(module, args)
            print(f"{name:20} eager {eager:10.0f} us   coil {own:10.0f} us   {own / eager:7.2f}", flush=True)


if __name__ == "__main__":
    main()
