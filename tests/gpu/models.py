"""Compiles programs for a GPU and compares what they return with eager PyTorch there.

usage: python3 tests/gpu/models.py [--models PATTERN,...] [--device cuda:0] [--jobs 14] [--budget 230] [--out FOLDER] [--resume] [--museum DIR]

Each program is exported, compiled with `coil compile --target`, run through the C API on torch's tensors (outputs in the
context's memory; in the caller's, on another stream, the same bits; inputs at addresses that are aligned to an element only), and
loaded in stock PyTorch (aoti_load_package). Names: PROGRAM (exported on the CPU), PROGRAM@cuda (exported on the GPU),
PROGRAM@core (after run_decompositions()), fault/NAME (an index out of range: the error, and the next call right), api/NAME (see
api_checks.py), museum/FILE. Each row is in FOLDER/gpu_models.json (and .md) as soon as it is known. FOLDER: $OUT or /tmp/coil-gpu.
Exit code 1 when a row is not ok. With --device cpu the same is done with CPU packages: a rehearsal. With --device cpu --target
cuda:sm_90 programs are only exported and compiled, which needs no GPU.
"""

import argparse
import collections
import fnmatch
import hashlib
import json
import os
import pathlib
import sys
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import jobs
from paths import COIL, REPO, RUNTIME

# Models that are also exported on the GPU; of the small programs every fifth.
ON_GPU = {"digits", "mlp", "mlp_bf16", "norm_gelu_softmax", "resnet18_b2", "minilm", "gpt2_f32", "llama_bf16", "resnet50_channels_last_bf16"}
EVERY = 5
OP_SECONDS, MODEL_SECONDS = 75, 170
SLOW_FIRST = ["gpu_beyond_32_bits", "gpu_row_beyond_32_bits", "resnet50*", "mobilenet*", "vit*", "gpt2*", "encoder_12", "minilm*", "resnet18*", "llama*"]


def worker(options):
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")  # the loader's test compiles for the CPU: 20 seconds a process
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(pathlib.Path(options.work) / f"inductor_{os.getpid()}")  # else each loader's start waits for the others' lock
    import warnings

    warnings.simplefilter("ignore")
    import program_checks

    bench = program_checks.Bench(options)
    jobs.worker_loop(lambda item, stage: program_checks.check(bench, item, stage))


def binary_key():
    """Changes when the compiler or the runtime does: rows of another build are not resumed."""
    digest = hashlib.sha256()
    for path in (COIL, RUNTIME):
        stat = path.stat()
        digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:12]


def all_items(options):
    import api_checks
    import programs

    ids = {}
    forms = options.forms.split(",")
    for name, program in programs.programs().items():
        limit = MODEL_SECONDS if program.group == "model" or "beyond_32_bits" in name else OP_SECONDS
        base = {"limit": limit, "fresh": program.group == "model"}
        if "cpu" in forms:
            ids[name] = base
        if "cuda" in forms and (name in ON_GPU if program.group == "model" else zlib.crc32(name.encode()) % EVERY == 0) and options.device.startswith("cuda"):
            ids[f"{name}@cuda"] = base
        if "core" in forms and "beyond_32_bits" not in name:
            ids[f"{name}@core"] = base
    ids |= {f"fault/{name}": {"limit": OP_SECONDS} for name in programs.faults()}
    ids |= {} if options.target else {f"api/{name}": {"limit": OP_SECONDS, "fresh": True} for name in api_checks.CHECKS}
    if options.museum:
        for path in sorted(pathlib.Path(options.museum).rglob("*.pt2")):
            ids[f"museum/{path.parent.name}/{path.stem}"] = {"limit": OP_SECONDS, "path": str(path)}
    patterns = options.models.split(",") if options.models else ["*"]
    chosen = [{"id": name} | base for name, base in ids.items() if any(fnmatch.fnmatch(name, p) for p in patterns)]

    def order(item):
        slow = next((i for i, p in enumerate(SLOW_FIRST) if fnmatch.fnmatch(item["id"].partition("@")[0], p)), len(SLOW_FIRST))
        return slow, not item.get("fresh", False)

    return sorted(chosen, key=order)


GOOD = ("ok", "skipped")


def markdown(report):
    rows = report["rows"]
    groups = collections.defaultdict(collections.Counter)
    for row in rows.values():
        groups[row.get("group", "?")][row["status"]] += 1
    lines = [f"# coil on {report['machine'].get('gpu', report['device'])}: programs against eager PyTorch", "",
             f"PyTorch {report['machine'].get('torch')}, {len(rows)} of {report['wanted']} rows, {report['seconds']:.0f} s", "", "| group | " + "ok | skipped | not ok |", "|---|---|---|---|"]
    for group, counts in groups.items():
        rest = {k: v for k, v in counts.items() if k not in GOOD}
        lines.append(f"| {group} | {counts['ok']} | {counts['skipped']} | {sum(rest.values())} {', '.join(f'{v} {k}' for k, v in rest.items())} |")
    lines += ["", "## Models", "", "| model | status | dtype | error | stock | compile s | kernels | load ms |", "|---|---|---|---|---|---|---|---|"]
    number = lambda v: "-" if v is None else f"{v:.1e}"
    for name, row in sorted(rows.items()):
        if row.get("group") == "model":
            lines.append(f"| {name} | {row['status']} | {row.get('dtype', '-')} | {number(row.get('error'))} | {number(row.get('stock_error'))} | {row.get('compile_s', '-')} | {row.get('kernels', '-')} | {row.get('load_ms', '-')} |")
    failures = collections.defaultdict(list)
    for name, row in sorted(rows.items()):
        if row["status"] not in GOOD:
            failures[row["status"], (row.get("text") or "").splitlines()[0][:160] if row.get("text") else ""].append(name)
    lines += ["", f"## Not ok: {sum(map(len, failures.values()))}", ""]
    for (status, text), names in sorted(failures.items(), key=lambda kv: -len(kv[1])):
        lines += [f"- **{status}** {', '.join(names[:12])}{f' and {len(names) - 12} more' if len(names) > 12 else ''}: `{text}`"]
    skipped = [f"{name}: {row.get('text', '')[:110]}" for name, row in sorted(rows.items()) if row["status"] == "skipped"]
    return "\n".join(lines + ["", f"## Skipped (PyTorch itself could not): {len(skipped)}", "", *[f"- {s.splitlines()[0]}" for s in skipped]]) + "\n"


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", default=None, help="folder for programs and packages while they are needed")
    parser.add_argument("--models", help="shell patterns of names, with commas; default: all")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--budget", type=float, default=230, help="seconds; what has not started by then is not run")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT", "/tmp/coil-gpu")))
    parser.add_argument("--forms", default="cpu,cuda", help="of cpu,cuda,core")
    parser.add_argument("--museum", help="folder of programs that other PyTorch versions exported")
    parser.add_argument("--target", help="only export and compile for this target, cuda:sm_90: needs no GPU (with --device cpu)")
    parser.add_argument("--resume", action="store_true", help="keep rows of an earlier run with the same binaries that are ok")
    parser.add_argument("--no-stock", action="store_true", help="leave out aoti_load_package")
    parser.add_argument("--coil-args", type=lambda s: s.split(), default=[], help="more arguments for coil compile")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args(arguments)


def main():
    options = parse()
    if options.worker:
        return worker(options)
    start = time.monotonic()
    sys.path.insert(0, str(REPO / "bench"))
    import machine

    for path in (COIL, RUNTIME):
        if not path.exists():
            sys.exit(f"{path} is missing: build first, or set COIL_BUILD")
    items = all_items(options)
    if options.list:
        return print("\n".join(item["id"] for item in items))
    options.out.mkdir(parents=True, exist_ok=True)
    options.work = options.work or f"/tmp/coil-gpu-work-{os.getpid()}"
    os.makedirs(options.work, exist_ok=True)
    target = options.out / "gpu_models.json"
    report = {"machine": machine.describe(), "device": options.device, "binaries": binary_key(), "wanted": len(items), "rows": {}, "seconds": 0}
    if options.resume and target.exists():
        earlier = json.loads(target.read_text())
        if earlier["binaries"] == report["binaries"]:
            report["rows"] = {k: v for k, v in earlier["rows"].items() if v["status"] in GOOD}
    items = [item for item in items if item["id"] not in report["rows"]]
    written = [0.0]

    def save(force=False):
        if force or time.monotonic() - written[0] > 2:
            report["seconds"] = round(time.monotonic() - start, 1)
            target.write_text(json.dumps(report, indent=1))
            target.with_suffix(".md").write_text(markdown(report))
            written[0] = time.monotonic()

    def on_row(item, row):
        row.pop("retire", None)
        report["rows"][item["id"]] = row
        if row["status"] not in ("ok", "skipped", "not run"):
            print(f"{row['status']:8} {item['id']}: {(row.get('text') or '').splitlines()[0][:200] if row.get('text') else ''}", flush=True)
        elif row.get("group") == "model":
            print(f"{row['status']:8} {item['id']}: error {row.get('error', 0):.1e}, compile {row.get('compile_s', 0)} s, {row['seconds']} s", flush=True)
        save()

    command = [sys.executable, __file__, "--worker", "--device", options.device, "--work", options.work, "--coil-args=" + " ".join(options.coil_args)]
    command += (["--no-stock"] if options.no_stock else []) + (["--target", options.target] if options.target else [])
    jobs.run(command, items, options.jobs, on_row, deadline=start + options.budget)
    save(force=True)
    counts = collections.Counter(row["status"] for row in report["rows"].values())
    print(", ".join(f"{v} {k}" for k, v in counts.most_common()) + f" in {report['seconds']:.0f} s: {target}")
    return 0 if set(counts) <= set(GOOD) else 1


if __name__ == "__main__":
    sys.exit(main())
