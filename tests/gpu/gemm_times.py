"""Times of candidates of some products on a GPU, beside torch.matmul: test_gemm.py --bench [PROBLEM...] [--times=FILE] [--seconds=N]
[--products=first|second|held-out].

Without FILE also of kernels that the compiler does not know. FILE gets the times of those that it knows, for bench/fit_gemm.cc.
"""
import concurrent.futures
import os
import re
import statistics
import time

import cuda_kernels as ck
from gemm_problems import FIRST, HELD_OUT, SECOND, problem_of
from gemm_kernels import (BYTES, COMPILED, F32_TILES, MMA_TILES, SHARES, TF32_TILES, TF32_WGMMA, Args, f32_blocks, gemv_axpy, gemv_dot, gemv_mma,
                       launch, mma, most_turns, params, simt, torch_type, up, usable, wgmma, wgmma_split, wgmma_tile)


def classes_of(k):
    """Classes of rows of k contiguous elements of 2 bytes."""
    return next((c for c in (1, 2, 4) if k * c % 16 == 0), 8)


def tried(dtype, m, n, k, b_k):
    """Candidates with other tiles and stages too than the compiler's."""
    found = []
    if dtype == "f32":
        tiles = F32_TILES + [(128, 256, 16, 8, 16, 3, 1), (64, 256, 16, 8, 16, 3, 1), (128, 64, 16, 8, 16, 3, 1), (32, 128, 32, 8, 16, 3, 4)]
        found = [simt("f32", *t, True, b_k, s, f32_blocks(t)) for t in tiles for s in range(1, 9)]
        found += [simt("f32", *F32_TILES[0], True, b_k)]
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


# The compiler's tiles of the wgmma kernels (src/templates/cuda_gemm_model.cc): rows, columns, stages; the persistent ones, those of one tile a block, those
# without TMA.
PERSISTENT = [(192, 192, 4), (192, 160, 4), (192, 128, 5), (192, 96, 5), (128, 256, 4), (128, 192, 4), (128, 160, 4), (128, 128, 6), (128, 64, 8)]
ONE_TILE = [(128, 160, 5), (128, 192, 5), (128, 128, 6), (128, 96, 6), (128, 80, 6), (128, 64, 8), (64, 192, 6), (64, 160, 7), (64, 128, 8),
            (64, 96, 8), (64, 64, 6)]
COPIED = [(128, 256, 4), (128, 192, 5), (128, 128, 4), (128, 64, 4), (64, 64, 4)]
SHORT = [(128, 64, 32, 64, 32, 2), (128, 32, 32, 32, 32, 2), (64, 64, 32, 32, 32, 2), (64, 32, 32, 32, 32, 2)]


def candidates(p):
    """Those of wgmma's kernels and of short products that the compiler chooses among (tile_choices), with its stages. Not what serves few rows, nor float32."""
    size, (a_k, b_k) = BYTES[p.dtype], (p.a_k, p.b_k)
    classes = classes_of(p.k) if p.dtype != "tf32" and a_k and p.batch == 1 else 1
    tma = (a_k or p.m % 8 == 0) and (b_k or p.n % 8 == 0) and (classes > 1 or p.k * size % 16 == 0 or not a_k)
    tma = tma and (p.dtype != "tf32" or a_k and b_k) and (p.batch == 1 or p.k % 64 == 0 or a_k and b_k)
    if p.dtype == "tf32" and not tma:
        return []
    steps, most = up(p.k * size, 128), 2 * 132

    def splits(bm, bn, share):
        tiles = up(p.m, bm) * up(p.n, bn) * p.batch
        return [s for s in (1, 2, 4, 8) if s == 1 or s * share[0] * share[1] <= 8 and p.k >= 128 * s and tiles * s <= most]

    found = []
    for bm, bn, stages in TF32_WGMMA if p.dtype == "tf32" else ONE_TILE if tma else []:
        stages = min(max(steps, 2), stages)
        if b_k or bn % 64 == 0 or bn == 160:
            found += [wgmma_split(p.dtype, bm, bn, stages, s, a_k, b_k, classes=classes, down=share[0], across=share[1])
                      for share in [(1, 1)] + SHARES for s in splits(bm, bn, share)]
    if p.dtype != "tf32":
        for bm, bn, stages in PERSISTENT if tma else []:
            if bm == 128 or classes == 1:
                found += [wgmma(p.dtype, bn, stages, *share, a_k, b_k, classes, bm) for share in [(1, 1)] + SHARES]
        for bm, bn, stages in COPIED if not tma else []:
            if b_k or bn <= 128:
                found += [wgmma_split(p.dtype, bm, bn, min(max(steps, min(3, stages)), stages), s, a_k, b_k, True) for s in splits(bm, bn, (1, 1))]
        found += [mma(p.dtype, *t, a_k, b_k) for t in SHORT if p.k <= 96]
    return found


TIMES_HEAD = "# dtype batch m n k a_is_mk b_is_nk kind rows columns stages split down across threads us\n"


def times_row(p, i, us):
    """A line of what bench/fit_gemm.cc reads."""
    kind = {"wgmma": "wgmma", "split": "wgmma_split", "copy": "wgmma_copy"}.get(i.kind, i.name.split("_")[0])
    stages = int(re.search(r"_st(\d+)", i.name)[1]) if "_st" in i.name else 0
    return (f"{p.dtype} {p.batch} {p.m} {p.n} {p.k} {int(p.a_k)} {int(p.b_k)} {kind} {i.bm} {i.bn} {stages} {i.cluster // (i.down * i.across)} {i.down} "
            f"{i.across} {i.threads} {us:.3f}\n")


class Compiling:
    """Compiles kernels in the order in which they are wanted, on all cores, while others are timed; NVRTC leaves the interpreter's lock."""

    def __init__(self, instances):
        self.pool = concurrent.futures.ThreadPoolExecutor(max(1, os.cpu_count() - 1))
        arch = ck.device_arch()
        self.made = {i: self.pool.submit(ck.compile_cubin, i.source(False), arch) for i in dict.fromkeys(instances)}

    def wait_for(self, instance):
        COMPILED[instance, False] = self.made[instance].result()

    def stop(self):
        self.pool.shutdown(wait=False, cancel_futures=True)


def graph_of(call, repeats):
    """`repeats` calls as one CUDA graph."""
    import torch
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(repeats):
            call(i)
    return graph


def in_turns(graphs, repeats, rounds=7):
    """Median microseconds of a call of each graph. They take turns, so that a clock that sinks is everybody's; those of twice the best one's time only at
    first."""
    import torch
    times = [[] for _ in graphs]

    def replay(i):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graphs[i].replay()
        end.record()
        end.synchronize()
        times[i].append(begin.elapsed_time(end) * 1000 / repeats)

    for turn in range(rounds):
        least = min(min(t) for t in times) if turn >= 2 else float("inf")
        for i in range(len(graphs)):
            if turn < 2 or min(times[i]) <= 2 * least:
                replay(i)
    return [statistics.median(t[1:]) for t in times]


def operands(p):
    """a, the weights that calls take in turn, and both as torch is given them. Products that are bound by reading b rotate over copies that exceed the L2
    cache. Rows of b [n, k] that are not multiples of 16 bytes long lie 128 bytes apart; torch's time is then that with rows of a and b padded beforehand."""
    import torch
    kind, size = torch_type(p.dtype), BYTES[p.dtype]
    copies = min(40, up(240 << 20, p.n * p.k * size)) if p.m <= 128 and p.batch == 1 else 1
    a = torch.randn(p.batch, *((p.m, p.k) if p.a_k else (p.k, p.m)), device="cuda").to(kind)
    weights = [torch.randn(p.batch, *((p.n, p.k) if p.b_k else (p.k, p.n)), device="cuda").to(kind) for _ in range(copies)]
    if p.b_k and p.k % 8 and size == 2:
        weights = [torch.nn.functional.pad(w, (0, -p.k % 64))[:, :, :p.k] for w in weights]
    a, weights = a if p.a_k else a.mT, [w.mT if p.b_k else w for w in weights]
    if not (p.k % 8 and p.a_k):
        return a, weights, a, weights
    their_weights = [torch.nn.functional.pad(w, (0, 0, 0, -p.k % 8)) for w in weights]
    return a, weights, torch.nn.functional.pad(a, (0, -p.k % 8)), [w.mT.contiguous().mT if p.b_k else w for w in their_weights]


def bench(p, todo, keep=10, times_file=None, rounds=7):
    """(time of torch, [(time, name)]) in microseconds."""
    import torch
    torch.backends.cuda.matmul.allow_tf32 = p.dtype == "tf32"
    a, weights, their_a, their_weights = operands(p)
    out = torch.empty(p.batch, p.m, p.n, dtype=a.dtype, device="cuda")
    copies = len(weights)
    repeats = copies if copies > 1 else (5 if p.batch * p.m * p.n * p.k > 1 << 34 else 20)
    want = (a @ weights[0]).float()
    args = Args(out.data_ptr(), p.batch, p.m, p.n, p.m * p.n, p.n, None, None)
    graphs, right = [graph_of(lambda i: torch.matmul(their_a, their_weights[i % copies], out=out), repeats)], [True]
    for instance in todo:
        ts = [params(instance, a, w) for w in weights]
        out.fill_(float("nan"))
        launch(instance, False, ts[0], args)
        right.append(((out.float() - want).abs().max() / want.abs().max()).item() < 0.02)
        graphs.append(graph_of(lambda i: launch(instance, False, ts[i % copies], args), repeats))
    times = in_turns(graphs, repeats, rounds)
    ours = []
    for instance, us, good in zip(todo, times[1:], right[1:]):
        ours.append((us, instance.name + ("" if good else " WRONG")))
        if times_file and good:
            times_file.write(times_row(p, instance, us))
    return times[0], sorted(ours)[:keep] + [t for t in sorted(ours)[keep:] if "WRONG" in t[1]]


def bench_all(names, times_path=None, seconds=None, which=None):
    import torch
    begin = time.monotonic()
    times_file = open(times_path, "w", buffering=1) if times_path else None
    if times_file:
        times_file.write(f"# {torch.cuda.get_device_name(0)}\n{TIMES_HEAD}")
    torch.backends.cuda.matmul.allow_tf32 = False
    print(torch.cuda.get_device_name(0))
    chosen = [p for p in {"held-out": HELD_OUT, "second": SECOND, "first": FIRST}.get(which, SECOND + FIRST) if not names or any(x in str(p) for x in names)]
    chosen += [problem_of(x) for x in names if not any(x in str(p) for p in chosen)]  # a product that no list has, spelled out
    plain = [p for p in chosen if p.a_k and p.batch == 1]
    todo = {p: [i for i in (candidates(p) if times_path or p not in plain else tried(p.dtype, p.m, p.n, p.k, p.b_k)) if usable(i)] for p in chosen}
    compiling = Compiling([i for p in chosen for i in todo[p]])
    for p in chosen:
        if seconds and time.monotonic() - begin > seconds:
            print(f"{p} and what comes after it: no time left", flush=True)
            break
        try:
            for i in todo[p]:
                compiling.wait_for(i)
            theirs, ours = bench(p, todo[p], times_file=times_file)
        except Exception as e:  # one broken candidate must not hide the others' times
            print(f"{str(p):36} FAILED {e}", flush=True)
            continue
        if not ours:
            continue
        rate = 2e-6 * p.batch * p.m * p.n * p.k
        print(f"{str(p):36} torch {theirs:8.2f} us {rate / theirs:7.1f} TFLOP/s | " + " | ".join(f"{t:.2f} {i}" for t, i in ours[:3 if times_path else None]) +
              f" | best {theirs / ours[0][0]:.2f}x", flush=True)
    compiling.stop()


def main(words):
    given = {w.partition("=")[0]: w.partition("=")[2] for w in words if w.startswith("--")}
    bench_all([w for w in words if not w.startswith("-")], given.get("--times"), float(given.get("--seconds") or 0), given.get("--products"))
