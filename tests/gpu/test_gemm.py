"""The CUDA matrix-product templates (device/cuda/gemm_*.h, gemv.h) on a GPU, beside torch in float64.

    python3 -m pytest -q tests/gpu/test_gemm.py
    python3 tests/gpu/test_gemm.py --bench [PROBLEM...] [--times=FILE]   times of tiles beside torch.matmul; all of them to FILE, for bench/fit_gemm.cc
    python3 tests/gpu/test_gemm.py --compile              every instance for every architecture; needs no GPU
"""
import dataclasses
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cuda_kernels as ck  # noqa: E402
from gemm_kernels import (BYTES, F32_TILES, F64_TILES, LAYOUTS, MMA_TILES, SHARES, TF32_TILES, TF32_WGMMA, Args, compile_all, f32_blocks, gemv_axpy,
                          gemv_dot, gemv_mma, launch, mma, params, simt, torch_type, up, usable, wgmma, wgmma_split, wgmma_tile)  # noqa: E402


def instances():
    found = []
    for a_k, b_k in LAYOUTS:
        found += [simt("f32", *t, a_k, b_k, 1, f32_blocks(t)) for t in F32_TILES] + [simt("f64", *t, a_k, b_k) for t in F64_TILES]
        found += [mma("bf16", *t, a_k, b_k) for t in MMA_TILES] + [mma("f16", *MMA_TILES[1], a_k, b_k)]
        found += [mma("tf32", *t, a_k, b_k) for t in TF32_TILES]
    found += [simt("f32", *F32_TILES[3], True, True, 8, 2), simt("f32", *F32_TILES[0], True, False, 2, 2), simt("f32", *F32_TILES[0], False, False, 7, 2), simt("f32", *F32_TILES[2], True, True, 3, 3), simt("f64", *F64_TILES[1], False, True, 4)]
    found += [mma("bf16", *MMA_TILES[0], True, True, 2), mma("f16", *MMA_TILES[1], True, False, 8), mma("bf16", *MMA_TILES[2], True, True, 4)]
    found += [mma("tf32", *TF32_TILES[1], True, False, 2), mma("tf32", *TF32_TILES[2], True, True, 8), mma("tf32", *TF32_TILES[3], False, True, 4)]
    found += [wgmma_split("tf32", *t) for t in TF32_WGMMA] + [wgmma_split("tf32", 64, 128, 8, 4), wgmma_split("tf32", 128, 128, 6, 2, down=2, across=1), wgmma_split("tf32", 128, 64, 8, 1, down=2, across=2)]
    for d in ("bf16", "f16"):
        found += [gemv_mma(d, 1, 8), gemv_mma(d, 2, 4), gemv_mma(d, 1, 4), gemv_mma(d, 1, 8, 4), gemv_axpy(d, 1), gemv_axpy(d, 4, 8, 4)]
    for d in ("f32", "f64"):
        found += [gemv_dot(d, r) for r in (1, 2, 4, 8)] + [gemv_axpy(d, 1), gemv_axpy(d, 8), gemv_axpy(d, 4, 8, 2)]
    for bn in (256, 192, 128, 64):
        found += [wgmma("bf16", *wgmma_tile(bn), 2 if bn == 256 else 1, 1, a_k, b_k) for a_k, b_k in LAYOUTS] + [wgmma("f16", *wgmma_tile(bn))]
        found += [wgmma("bf16", *wgmma_tile(bn), down, across, a_k, b_k) for a_k, b_k in LAYOUTS for down, across in SHARES if (bn == 128 or a_k != b_k) and (bn != 256 or across > 1)]
        found += [wgmma("bf16", bn, stages, down, across, a_k, b_k, bm=192) for bn, stages in ((192, 4), (160, 4), (128, 5), (96, 5)) for a_k, b_k in LAYOUTS
                  for down, across in ((1, 1), *SHARES)]
    found += [wgmma("f16", 192, 4, bm=192)]
    found += [dataclasses.replace(i, name=f"{i.name}_ahead{ahead}", ahead=ahead) for ahead in (16, 32)
              for i in (wgmma("bf16", 192, 4, bm=192), wgmma("bf16", 96, 5, b_k=False, bm=192), wgmma("bf16", *wgmma_tile(256), 2), wgmma("bf16", *wgmma_tile(64)),
                        wgmma("f16", *wgmma_tile(160), classes=2), wgmma("bf16", *wgmma_tile(128), classes=8)) if i.classes == 1 or ahead == 16]
    for a_k, b_k in LAYOUTS:
        found += [wgmma_split("bf16", 64, 128, 8, 4, a_k, b_k), wgmma_split("bf16", 128, 64, 8, 1, a_k, b_k), wgmma_split("bf16", 128, 128, 4, 1, a_k, b_k, True),
                  wgmma_split("bf16", 64, 64, 6, 8, a_k, b_k, True)]
    found += [wgmma_split("f16", 128, 96, 6, 2), wgmma_split("f16", 128, 192, 5, 4), wgmma_split("bf16", 128, 80, 6), wgmma_split("f16", 128, 80, 6, 4), wgmma_split("bf16", 64, 192, 6, 2), wgmma_split("f16", 128, 128, 4, 2, copy=True)]
    found += [wgmma("bf16", *wgmma_tile(160), b_k=b) for b in (True, False)] + [wgmma_split("bf16", 128, 160, 5, 2, b_k=b) for b in (True, False)]
    for down, across in SHARES:
        found += [wgmma("bf16", *wgmma_tile(160), down, across, b_k=b) for b in (True, False)]
        found += [wgmma_split("bf16", 128, 128, 6, split, a_k, b_k, down=down, across=across) for a_k, b_k in LAYOUTS for split in (1, 2)]
        found += [wgmma_split("f16", 64, 128, 8, 2, down=down, across=across), wgmma_split("bf16", 128, 96, 6, 1, down=down, across=across),
                  wgmma_split("bf16", 64, 64, 6, 1, False, False, down=down, across=across), wgmma_split("bf16", 128, 192, 5, 2, b_k=False, down=down, across=across)]
        for classes in (2, 8):
            found += [wgmma("bf16", *wgmma_tile(bn), down, across, classes=classes) for bn in (256, 160, 128)] + [wgmma("f16", *wgmma_tile(192), down, across, b_k=False, classes=classes)]
            found += [wgmma_split("bf16", *t, classes=classes, down=down, across=across) for t in ((128, 160, 5, 2), (64, 128, 8, 1), (64, 64, 6, 2), (128, 80, 6, 1))]
    for classes in (2, 4, 8):
        found += [wgmma("bf16", *wgmma_tile(bn), 2 if bn == 256 else 1, b_k=bn != 64, classes=classes) for bn in (256, 192, 160, 128, 64)]
        found += [wgmma_split("bf16", 128, 160, 5, 2, classes=classes), wgmma_split("f16", 128, 64, 8, 1, b_k=False, classes=classes), wgmma_split("bf16", 128, 96, 6, 2, classes=classes),
                  wgmma_split("bf16", 64, 64, 6, 4, classes=classes), wgmma_split("f16", 64, 128, 8, 2, classes=classes), wgmma_split("bf16", 64, 96, 8, 1, classes=classes, turns=1),
                  wgmma_split("bf16", 64, 160, 7, 1, b_k=False, classes=classes)]
    return found


def operand(batch, rows, cols, dtype, layout, gen):
    """A [batch, rows, cols] view amid NaN. layout: c (columns contiguous), r (rows contiguous), each with how its pitch and start are aligned:
    16, 8, 4 or 2 bytes (elements); o: with a start of 2; s: neither contiguous; 0: one matrix for the whole batch."""
    import torch
    size, share, odd = BYTES[dtype], "0" in layout, layout.endswith("o")
    layout = layout.removesuffix("o")
    kind, align = layout[0], max(1, int(layout[1:].replace("x", "") or 16) // size) if layout[1:] not in ("", "x") else 16 // size
    inner, outer = (cols, rows) if kind != "r" else (rows, cols)
    step = 2 if kind == "s" else 1
    pitch = up(inner * step + 1, align) * align
    if (pitch * size) % (2 * align * size) == 0 and align * size < 16:
        pitch += align  # no better aligned than asked for
    plane, batches = pitch * outer + (pitch if batch > 1 and align * size == 16 else align), 1 if share else batch
    store = torch.full((batches * plane + 64,), float("nan"), dtype=torch_type(dtype), device="cuda")
    start = 1 if odd else align if align * size < 16 else 16
    strides = (pitch, step) if kind != "r" else (step, pitch)
    view = store.as_strided((batches, rows, cols), (plane, *strides), start)
    values = torch.randn((batches, rows, cols), generator=gen, device="cuda", dtype=torch.float32)
    view.copy_(ck.tf32(values) if dtype == "tf32" else values)
    return view.expand(batch, rows, cols)


def run_checked(instance, batch, m, n, k, a_layout, b_layout, special=False):
    import torch
    gen = torch.Generator(device="cuda").manual_seed(m * 31 + n * 7 + k)
    a = operand(batch, m, k, instance.dtype, a_layout, gen)
    b = operand(batch, k, n, instance.dtype, b_layout, gen)
    if special:
        a[0, m // 2, k - 1] = float("inf")
        b[0, 0, n - 1] = float("nan")
    kind = torch.float64 if instance.dtype == "f64" else torch.float32
    row = n + 3 + (-(n + 3)) % 4 if n % 2 else n
    out = torch.full((batch, m, row), 7.5, dtype=kind, device="cuda")
    counts = torch.zeros(batch * m * row + 1, dtype=torch.int32, device="cuda")  # the last: those that were read ahead
    writes = counts[:-1].view(batch, m, row)
    more = torch.randn((batch, m, row), generator=gen, device="cuda").to(torch.bfloat16 if instance.ahead == 16 else torch.float32)
    bad = torch.zeros(1, dtype=torch.int32, device="cuda")
    args = Args(out.data_ptr(), batch, m, n, m * row, row, writes.data_ptr(), bad.data_ptr(), more.data_ptr())
    launch(instance, True, params(instance, a, b), args)
    torch.cuda.synchronize()
    where = f"{instance.name} {instance.dtype} a_k={instance.a_k} b_k={instance.b_k} batch {batch} {m}x{n}x{k} a:{a_layout} b:{b_layout}"
    assert bad.item() == 0, f"{where}: {bad.item()} calls of the epilogue out of place"
    assert bool((writes[:, :, :n] == 1).all()), f"{where}: elements not written once: {(writes[:, :, :n] != 1).sum().item()}"
    assert bool((out[:, :, n:] == 7.5).all()), f"{where}: wrote beyond the row"
    got, want = out[:, :, :n].double(), a.double() @ b.double()
    if k == 0 and not instance.ahead:
        assert bool((got == 0).all()), where
        return
    if instance.ahead:
        want = want + more[:, :, :n].double()
        assert not (m >= 2 * instance.bm and n >= 2 * instance.bn) or counts[-1].item() > 0, f"{where}: nothing was read ahead"
    finite = torch.isfinite(want)
    assert bool((torch.isfinite(got) == finite).all()), f"{where}: NaN or infinity differs"
    assert bool(torch.equal(torch.isnan(got), torch.isnan(want))), f"{where}: NaN differs"
    scale = a.double().abs() @ b.double().abs()
    limit = {"f64": 1e-14, "f32": 2e-6}.get(instance.dtype, 2e-5)
    if instance.ahead:
        scale = scale + more[:, :, :n].double().abs()
    error = ((got - want).abs() / (scale + 1e-30))[finite & torch.isfinite(scale)]
    worst = error.max().item() if error.numel() else 0.0
    assert worst <= limit, f"{where}: error {worst:.3g} of the terms' sum"


def layouts_for(instance):
    """Pairs of operand layouts that the instance is made for, and a few that it must only get right."""
    a, b = "c" if instance.a_k else "r", "r" if instance.b_k else "c"
    if instance.kind in ("wgmma", "split"):
        # In classes: every alignment of rows that falls into as many or fewer, and a first row anywhere.
        return [(a + layout, b + "16") for layout in {1: ("16",), 2: ("16", "16o"), 4: ("8", "16", "8o"), 8: ("2", "4", "8", "4o")}[instance.classes]]
    pairs = [(a + "16", b + "16"), (a + "8", b + "16"), (a + "16", b + "4"), (a + "4", b + "8"), (a + "2", b + "2"), ("s", "s"), (a + "16", b + "0")]
    return pairs


def shapes_for(instance):
    if instance.kind == "rows":
        return [(1, m, n, k) for m, n, k in ((1, 1, 1), (1, 64, 4096), (3, 50, 333), (8, 130, 1024), (5, 17, 2056), (11, 33, 700), (2, 1000, 0))] + [(3, 4, 40, 130)]
    if instance.classes > 1:
        odd = 8 // instance.classes
        return [(1, m, n, k) for m, n, k in ((128, 256, 64 + odd), (17, 8, 8 + odd), (777, 1000, 1032 + odd), (300, 520, 64 - odd), (1030, 1536, 3416 + odd), (1, 24, 4096 + odd), (260, 136, 192), (130, 72, 1))]
    if instance.kind in ("wgmma", "split"):
        batched = [(3, 130, 200, 192), (5, 40, 264, 128)] + [(4, 50, 72, 40)] * (instance.a_k and instance.b_k)
        return [(1, m, n, k) for m, n, k in ((128, 256, 64), (1, 8, 8), (777, 1000, 1032), (300, 520, 200), (2048, 1536, 520), (130, 24, 4104))] + batched
    if instance.kind == "copy":
        return [(1, m, n, k) for m, n, k in ((1, 1, 1), (128, 128, 128), (65, 67, 33), (560, 320, 1140), (2, 200, 0), (98, 100, 4608))] + [(3, 33, 129, 70)]
    return [(1, 1, 1, 1), (1, 128, 128, 128), (1, 65, 67, 33), (1, 300, 200, 171), (1, 40, 500, 1000), (3, 33, 129, 70), (2, 200, 96, 0), (1, 98, 100, 4608)]


def check_instance(instance):
    for pair in layouts_for(instance):
        for shape in shapes_for(instance):
            run_checked(instance, *shape, *pair)
    run_checked(instance, 1, 40, 48, 200 if instance.classes == 1 else 200 + 8 // instance.classes, *layouts_for(instance)[0], special=True)
    if instance.kind not in ("wgmma", "split"):
        run_checked(instance, 66000, 2, 3, 5, *layouts_for(instance)[0])


try:
    import pytest
    import torch
    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

    @pytest.fixture(scope="session")
    def compiled():
        compile_all([i for i in instances() if usable(i)], True)

    @pytest.mark.parametrize("instance", instances(), ids=lambda i: f"{i.name}-{i.dtype}-{'k' if i.a_k else 'm'}{'k' if i.b_k else 'n'}")
    def test_instance(instance, compiled):
        if not usable(instance):
            pytest.skip("needs an sm_90 GPU")
        check_instance(instance)

    def test_repeats_are_equal(compiled):
        """Split products sum in a fixed order."""
        import torch
        i = simt("f32", *F32_TILES[3], True, True, 8, 2)
        if not usable(i):
            pytest.skip("needs an sm_90 GPU")
        a, w = torch.randn(1, 98, 4608, device="cuda"), torch.randn(1, 512, 4608, device="cuda")
        outs = [torch.empty(98, 512, device="cuda") for _ in range(3)]
        for out in outs:
            launch(i, False, params(i, a, w.mT), Args(out.data_ptr(), 1, 98, 512, 0, 512, None, None))
        assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])
except ImportError:
    pass


def compile_everything():
    for arch in ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100"):
        for instance in instances():
            if instance.hopper and arch != "sm_90a":
                continue
            log = ck.compile_cubin(instance.source(False), arch)[1]
            note = ck.registers(log)
            if "spilled" in note or "C75" in log:
                print(arch, instance.name, instance.dtype, instance.a_k, instance.b_k, note, log if "C75" in log else "")
        print(arch, "done", flush=True)


if __name__ == "__main__":
    if "--compile" in sys.argv:
        compile_everything()
    elif "--bench" in sys.argv:
        import gemm_times
        gemm_times.main(sys.argv[1:])
    else:
        sys.exit(pytest.main(["-q", os.path.abspath(__file__)]))

