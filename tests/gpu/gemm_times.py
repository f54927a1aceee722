"""Times of every candidate of some products on a GPU, beside torch.matmul: test_gemm.py --bench [PROBLEM...] [--times=FILE].

FILE gets all of them, for bench/fit_gemm.cc.
"""
import re

import cuda_kernels as ck
from test_gemm import (BYTES, F32_TILES, MMA_TILES, SHARES, TF32_TILES, TF32_WGMMA, Args, compile_all, f32_blocks, gemv_axpy, gemv_dot, gemv_mma,
                       launch, mma, most_turns, params, simt, torch_type, up, usable, wgmma, wgmma_split, wgmma_tile)


def classes_of(k):
    """Classes of rows of k contiguous elements of 2 bytes."""
    return next((c for c in (1, 2, 4) if k * c % 16 == 0), 8)


def candidates(dtype, m, n, k, b_k):
    found = []
    if dtype == "f32":
        tiles = F32_TILES + [(128, 128, 8, 8, 8, 3, 1), (128, 128, 16, 8, 8, 3, 1), (256, 128, 8, 16, 8, 4, 1), (64, 64, 16, 8, 8, 4, 2)]
        found = [simt("f32", *t, True, b_k, s, f32_blocks(t)) for t in tiles for s in (1, 2, 4, 8)]
        found += [simt("f32", *F32_TILES[0], True, b_k), simt("f32", 128, 128, 16, 8, 8, 3, 1, True, b_k)]
    elif dtype == "tf32":
        found = [mma("tf32", *t, True, b_k, s) for t in TF32_TILES for s in (1, 2, 4, 8)]
        found += [wgmma_split("tf32", *t, s, down=down, across=across) for t in TF32_WGMMA for s in (1, 2, 4, 8) for down, across in [(1, 1)] + SHARES if b_k and s * down * across <= 8]
    else:
        found = [mma(dtype, *t, True, b_k, s) for t in MMA_TILES[1:] for s in (1, 2, 4, 8)] if m <= 64 else [mma(dtype, *t, True, b_k) for t in MMA_TILES]
        classes = classes_of(k)
        found += [wgmma(dtype, *wgmma_tile(bn), *share, True, b_k, classes) for bn in (256, 192, 160, 128, 64) for share in [(1, 1)] + SHARES]
        found += [wgmma(dtype, bn, stages, *share, True, b_k, bm=192) for bn, stages in ((192, 4), (160, 4), (128, 5), (96, 5)) for share in [(1, 1)] + SHARES] * (classes == 1)
        kinds = [(bm, bn, st, False) for bm, bn, st in ((64, 64, 6), (64, 64, 12), (64, 96, 8), (64, 128, 4), (64, 128, 8), (64, 160, 7), (64, 192, 6), (128, 64, 4), (128, 64, 8), (128, 80, 6), (128, 96, 4), (128, 96, 6),
                                                       (128, 128, 3), (128, 128, 6), (128, 160, 5), (128, 192, 5), (128, 256, 4))]
        kinds += [(bm, bn, st, True) for bm, bn, st in ((64, 64, 4), (64, 64, 6), (64, 128, 4), (64, 128, 6), (128, 64, 4), (128, 128, 3), (128, 128, 4), (128, 128, 6),
                                                       (128, 192, 5), (128, 256, 4))] if k % 8 or m <= 64 else []
        for bm, bn, st, copy in kinds:
            if not b_k and bn % 64 or m <= 64 < bm or copy and bn == 160:
                continue
            # More blocks than the machine holds at once only without a split.
            fit = 132 * max(1, 232448 // (max(st * (bm + bn) * 128, bm * bn * 4) + 1024))
            turns = range(1, 1 + most_turns(bm, bn, 1 if copy else classes))
            found += [wgmma_split(dtype, bm, bn, st, s, True, b_k, copy, 1 if copy else classes, *share, turns=turn) for s in (1, 2, 4, 8) for share in [(1, 1)] + SHARES * (not copy) for turn in turns
                      if up(m, bm) * up(n, bn) * s <= (fit if s > 1 else 2000) and s * share[0] * share[1] <= 8]
    found = [i for i in found if i.cluster == 1 or i.kind == "wgmma" or (up(m, i.bm) * up(n, i.bn) * i.cluster <= 600 * i.down * i.across and k >= 128 * i.cluster // (i.down * i.across))]
    found = [i for i in found if up(m, i.bm) * up(n, i.bn) <= 20000 and (m > 32 or i.bm <= 64)]
    if m <= 16:
        if BYTES[dtype] == 4:
            found += [gemv_dot("f32", r) for r in (1, 2, 4, 8)] if b_k else [gemv_axpy("f32", r, 8, s) for r in (1, 8) for s in (1, 2, 4)]
        elif b_k:
            found += [gemv_mma(dtype, g, w, s) for g in (1, 2) for w in (4, 8) for s in (1, 2, 4)]
        else:
            found += [gemv_axpy(dtype, r, 8, s) for r in (1, 4) for s in (1, 2, 4, 8)]
    return [i for i in found if usable(i)]


# dtype, m, n, k, whether b is a weight [n, k]
PROBLEMS = [("f32", 2048, 2048, 2048, True), ("f32", 2048, 2048, 2048, False), ("f32", 512, 512, 512, True), ("f32", 98, 512, 4608, True),
            ("f32", 1, 1000, 512, True), ("f32", 1, 4096, 4096, True),
            ("tf32", 2048, 2048, 2048, True), ("tf32", 2048, 2048, 2048, False), ("tf32", 4096, 4096, 4096, True), ("tf32", 512, 512, 512, True), ("tf32", 98, 512, 4608, True),
            ("tf32", 256, 1024, 1024, True), ("tf32", 1024, 768, 3072, True), ("tf32", 1024, 3072, 768, False), ("tf32", 196, 768, 768, True),
            ("bf16", 8192, 8192, 8192, True), ("bf16", 4096, 4096, 4096, True), ("bf16", 4096, 4096, 4096, False), ("bf16", 2048, 14336, 4096, True),
            ("bf16", 2048, 4096, 14336, True), ("bf16", 1024, 768, 3072, True), ("bf16", 1024, 3072, 768, False), ("bf16", 560, 1280, 3420, True),
            ("bf16", 1024, 1280, 3420, True), ("bf16", 2048, 1280, 3420, True), ("bf16", 4096, 1280, 3420, True), ("bf16", 2048, 1280, 3417, True), ("bf16", 64, 4096, 4096, True), ("bf16", 32, 14336, 4096, True), ("bf16", 128, 4096, 14336, True),
            ("bf16", 512, 1024, 1024, True), ("bf16", 196, 768, 768, True),
            ("bf16", 1, 4096, 4096, True), ("bf16", 4, 14336, 4096, True), ("bf16", 8, 4096, 14336, True), ("bf16", 1, 50304, 768, True),
            ("bf16", 4, 1024, 4096, True), ("bf16", 4, 768, 3072, True), ("bf16", 1, 3072, 768, False), ("bf16", 4, 768, 3072, False)]


TIMES_HEAD = "# dtype m n k b_is_nk kind rows columns stages split down across threads us\n"


def times_row(problem, i, us):
    """A line of what bench/fit_gemm.cc reads."""
    dtype, m, n, k, b_k = problem
    kind = {"wgmma": "wgmma", "split": "wgmma_split", "copy": "wgmma_copy"}.get(i.kind, i.name.split("_")[0])
    stages = int(re.search(r"_st(\d+)", i.name)[1]) if "_st" in i.name else 0
    return f"{dtype} {m} {n} {k} {int(b_k)} {kind} {i.bm} {i.bn} {stages} {i.cluster // (i.down * i.across)} {i.down} {i.across} {i.threads} {us:.3f}\n"


def bench(problem, keep=10, times_file=None):
    """(time of torch, [(time, name)]) in microseconds. Products that are bound by reading b rotate over copies that exceed the L2 cache. Rows of b [n, k]
    that are not multiples of 16 bytes long lie 128 bytes apart; torch's time is then that with rows of a and b padded beforehand."""
    import torch
    dtype, m, n, k, b_k = problem
    kind, size = torch_type(dtype), BYTES[dtype]
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    copies = min(40, up(240 << 20, n * k * size)) if m <= 128 else 1
    a = torch.randn(1, m, k, device="cuda").to(kind)
    weights = [torch.randn(1, *((n, k) if b_k else (k, n)), device="cuda").to(kind) for _ in range(copies)]
    if b_k and k % 8 and size == 2:
        weights = [torch.nn.functional.pad(w, (0, -k % 64))[:, :, :k] for w in weights]
    weights = [w.mT if b_k else w for w in weights]
    their_a, their_weights = a, weights
    if k % 8:
        their_a, their_weights = torch.nn.functional.pad(a, (0, -k % 8)), [torch.nn.functional.pad(w, (0, 0, 0, -k % 8)).mT.contiguous().mT if b_k else w for w in weights]
    out = torch.empty(1, m, n, dtype=kind, device="cuda")
    repeats = copies if copies > 1 else (5 if m * n * k > 1 << 34 else 20)

    def rotating(f):
        state = [0]

        def call():
            f(state[0] % copies)
            state[0] += 1
        return call

    def theirs():
        return ck.microseconds(rotating(lambda i: torch.matmul(their_a[0], their_weights[i][0], out=out[0])), repeats)

    want = (a[0] @ weights[0][0]).float()
    times, their_times = [], [theirs()]
    todo = candidates(dtype, m, n, k, b_k)
    compile_all(todo, False)
    for instance in todo:
        args = Args(out.data_ptr(), 1, m, n, m * n, n, None, None)
        ts = [params(instance, a, w) for w in weights]
        out.fill_(float("nan"))
        launch(instance, False, ts[0], args)
        torch.cuda.synchronize()
        error = ((out[0].float() - want).abs().max() / want.abs().max()).item()
        right = "" if error < 0.02 else f" WRONG {error:.3g}"
        times.append((ck.microseconds(rotating(lambda i: launch(instance, False, ts[i], args)), repeats), instance.name + right))
        if times_file and not right:
            times_file.write(times_row(problem, instance, times[-1][0]))
    their_times.append(theirs())
    return min(their_times), sorted(times)[:keep] + [t for t in sorted(times)[keep:] if "WRONG" in t[1]]


def bench_all(names, times_path=None):
    import torch
    times_file = open(times_path, "w", buffering=1) if times_path else None
    if times_file:
        times_file.write(f"# {torch.cuda.get_device_name(0)}\n{TIMES_HEAD}")
    torch.backends.cuda.matmul.allow_tf32 = False
    print(torch.cuda.get_device_name(0))
    for problem in PROBLEMS:
        dtype, m, n, k, b_k = problem
        name = f"{dtype} {m}x{n}x{k} {'[n,k]' if b_k else '[k,n]'}"
        if names and not any(x in name for x in names):
            continue
        try:
            theirs, ours = bench(problem, times_file=times_file)
        except Exception as e:  # one broken candidate must not hide the others' times
            print(f"{name:28} FAILED {e}", flush=True)
            continue
        rate = 2e-6 * m * n * k
        print(f"{name:28} torch {theirs:8.2f} us {rate / theirs:7.1f} TFLOP/s | " + " | ".join(f"{t:.2f} {i}" for t, i in ours) +
              f" | best {theirs / ours[0][0]:.2f}x", flush=True)


def main(words):
    times = next((w.partition("=")[2] for w in words if w.startswith("--times=")), None)
    bench_all([w for w in words if not w.startswith("-")], times)
