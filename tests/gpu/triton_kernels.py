"""Twelve kernels in Triton (tests/python/triton_kernels) on a GPU: from packages in coil's runtime, under torch.compile(backend="coil"),
in stock PyTorch and from the command, each against eager PyTorch with Triton and against plain PyTorch.

    python3 tests/gpu/triton_kernels.py [softmax matmul ...] [--tune]      about 2 minutes; a JSON file in $OUT or /tmp/coil-gpu

It needs Triton, a PyTorch for CUDA, and build/python for this interpreter. The exit status is that of all comparisons.
"""

import argparse
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from paths import COIL, REPO  # noqa: E402

sys.path.insert(0, str(COIL.parent / "python"))
sys.path.insert(0, str(REPO / "tests/python"))
import coil  # noqa: E402
import triton_kernels  # noqa: E402

CALLS = 12  # enough for a CUDA graph


def listed(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def exported(module, model, args):
    dims = {}
    shapes = tuple({at: dims.setdefault(name, torch.export.Dim(name, min=3, max=8192)) for at, name in spec.items()} for spec in module.dims)
    return torch.export.export(model, args, dynamic_shapes=shapes)


def farthest(actual, expected):
    """The largest distance beside the largest value; NaN counts as infinitely far."""
    most = 0.0
    for a, e in zip(listed(actual), listed(expected), strict=True):
        assert a.shape == e.shape and a.dtype == e.dtype, (a.shape, e.shape, a.dtype, e.dtype)
        if e.numel():
            a, e = a.double(), e.double().to(a.device)
            most = max(most, float(((a - e).abs().max() / (1 + e.abs().max())).nan_to_num(nan=float("inf"))))
    return most


def other_sizes(name, args):
    """The same arguments with fewer rows, and where they begin at an address that no more than their elements' size divides."""
    if name == "rotary":
        fewer = (args[0][:, :16].contiguous(), args[1][:16], args[2][:16])
    elif name == "attention":
        fewer = (args[0][:, :64].contiguous(),)
    elif name == "embedding_bag":
        fewer = (args[0][:31], args[1][:5])
    elif name == "matmul":
        fewer = (args[0][:64], args[1])
    else:
        fewer = tuple(a[:16] for a in args)
    shifted = []
    for a in args:
        memory = torch.empty(a.numel() + 1, dtype=a.dtype, device=a.device)
        memory[1:].copy_(a.flatten())
        shifted.append(memory[1:].view(a.shape))
    return {"fewer": fewer, "shifted": tuple(shifted)}


def check_package(name, module, model, args, row, tune):
    start = time.perf_counter()
    program = exported(module, model, args)
    options = {"tune": "fast", "tune_budget": "20s"} if tune else None
    package = coil.compile(program, device="cuda", options=options)
    row["compile_s"] = round(time.perf_counter() - start, 2)
    for _ in range(CALLS):
        result = package(*args)
    row["package"] = farthest(result, model(*args))
    for what, others in other_sizes(name, args).items():
        row[f"package_{what}"] = farthest(package(*others), model(*others))
    return package


def check_command(package, args, expected, row):
    """From a process that knows nothing of Python or Triton."""
    with tempfile.TemporaryDirectory(prefix="coil-triton-") as folder:
        path = pathlib.Path(folder)
        package.save(path / "model.coil.pt2")
        np.savez(path / "in.npz", **{f"in_{i}": a.cpu().numpy() for i, a in enumerate(args)})
        call = [COIL, "run", path / "model.coil.pt2", "--device", "cuda:0", "--input", path / "in.npz", "--output", path / "out.npz"]
        done = subprocess.run([str(c) for c in call], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        with np.load(path / "out.npz") as archive:
            results = [torch.from_numpy(archive[k]).cuda() for k in sorted(archive.files)]
        row["command"] = farthest(results, expected)
        stock = torch._inductor.aoti_load_package(str(path / "model.coil.pt2"))
        row["stock"] = farthest(stock(*args), expected)


def check_kernel(name, tune):
    module = importlib.import_module(f"triton_kernels.{name}")
    model = module.Model().eval().cuda()
    args = module.example("cuda")
    row = {"kernel": name, "tolerance": module.tolerance}
    with torch.no_grad():
        expected = model(*args)
        row["eager_from_reference"] = farthest(expected, module.reference(model, *args))
        for what, check in (("package", lambda: check_package(name, module, model, args, row, tune)), ("compiled", lambda: check_compiled(model, args, expected, row))):
            try:
                made = check()
                if what == "package":
                    check_command(made, args, expected, row)
            except Exception as error:  # noqa: BLE001 - every kernel gets its row
                row.setdefault("errors", []).append(f"{what}: {type(error).__name__}: {str(error)[:600]}")
                traceback.print_exc()
    distances = [v for k, v in row.items() if k in ("package", "package_fewer", "package_shifted", "command", "stock", "torch_compile")]
    row["ok"] = not row.get("errors") and len(distances) == 6 and all(d <= module.tolerance for d in distances) and row["fallbacks"] == 0
    return row


def check_compiled(model, args, expected, row):
    torch._dynamo.reset()
    coil.reset_compile_stats()
    compiled = torch.compile(model, backend="coil")
    for _ in range(CALLS):
        result = compiled(*args)
    row["torch_compile"] = farthest(result, expected)
    row["fallbacks"] = coil.compile_stats().fallback_operators


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tune", action="store_true", help="with the tuner, which chooses among configurations")
    given = parser.parse_args()
    rows = []
    for name in given.names or triton_kernels.NAMES:
        rows.append(check_kernel(name, given.tune))
        print(json.dumps(rows[-1]), flush=True)
    folder = pathlib.Path(os.environ.get("OUT", "/tmp/coil-gpu"))
    folder.mkdir(parents=True, exist_ok=True)
    triton = importlib.import_module("triton")
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__, "rows": rows}
    (folder / "triton_kernels.json").write_text(json.dumps(report, indent=1))
    print(f"{sum(r['ok'] for r in rows)} of {len(rows)} ok on {report['device']}, PyTorch {report['torch']}, Triton {report['triton']}")
    return 0 if all(r["ok"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
