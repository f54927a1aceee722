"""What gpu_peers.py makes before it measures: programs and packages of each peer; and the table that it writes after."""

import pathlib
import statistics
import subprocess

from gpu_workloads import build, workloads  # first: it adds tests/gpu to the path

from paths import COIL, RUNTIME


PEERS = ["eager", "compile", "aoti", "coil", "coil:torch"]
ALL_PEERS = PEERS + ["compile:max", "compile:graphs", "floor"]
MODES = {"compile": None, "compile:max": "max-autotune-no-cudagraphs", "compile:graphs": "reduce-overhead"}


def leaves(values):
    from torch.utils._pytree import tree_leaves

    return tree_leaves(values)


def source_of(work, name):
    return work / f"{name}.pt2", work / f"{name}.coil.pt2"


def coil_package(torch, work, name, module, args, target, more=()):
    """Exports and compiles; whoever comes second (coil, coil:torch) waits for the first."""
    import fcntl

    source, package = source_of(work, name)
    with open(work / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not package.exists():
            torch.export.save(torch.export.export(module, args), source)
            done = subprocess.run([COIL, "compile", source, "--target", target, "-o", package, "-q", *more], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"coil compile: exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    return package


def prepare(options, peer, name):
    """(function to time, its outputs or None)."""
    import torch

    cuda = options.device.startswith("cuda")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.tf32
    work = pathlib.Path(options.work)
    if cuda:
        torch.cuda.set_device(options.device)
    if peer == "floor":
        with torch.device(options.device):
            return workloads()[name].floor[1](), None, None
    module, args = build(name, options.device)
    want = [t.clone() for t in leaves(module(*args))]
    if peer == "eager":
        call = lambda: module(*args)
    elif peer in MODES:
        compiled = torch.compile(module, mode=MODES[peer])
        call = lambda: compiled(*args)
    elif peer == "aoti":
        package = work / f"{name}.aoti.pt2"
        torch._inductor.aoti_compile_and_package(torch.export.export(module, args), package_path=str(package))
        call = stock(torch, package, args)
    else:
        target = "cuda:sm_%d%d" % torch.cuda.get_device_capability() if cuda else "cpu"
        package = coil_package(torch, work, name, module, args, target, ["--tf32"] if options.tf32 else [])
        if peer == "coil:torch":
            call = stock(torch, package, args)
        else:
            import coil_torch

            model = coil_torch.Model(coil_torch.library(RUNTIME), package, options.device)
            bound = model.bind([a for a in leaves(args) if isinstance(a, torch.Tensor)])
            model.call(bound)
            model.synchronize()
            got = [t.clone() for t in model.results(bound)]
            stream, run = model.stream(), model.lib.coil_run_on
            context, inputs, count, outputs, made = model.context, bound.inputs, bound.count, bound.outputs, bound.num_outputs

            def call(bound=bound):  # bound holds the tensors' memory
                for i in range(made):
                    outputs[i].data = None
                if run(context, stream, inputs, count, outputs, made):
                    raise RuntimeError(model.lib.coil_last_error().decode())

            return call, got, want
    return call, [t.clone() for t in leaves(call())], want


def stock(torch, package, args):
    loaded = torch._inductor.aoti_load_package(str(package))
    flat = [a for a in leaves(args) if isinstance(a, torch.Tensor)]
    return lambda: loaded.loader.run(flat)


def spread(values):
    return {"median": round(statistics.median(values), 4), "low": round(min(values), 4), "high": round(max(values), 4)}


def human(us):
    return f"{us:.2f}" if us < 100 else f"{us:.0f}"


def markdown(report):
    peers = report["peers"]
    lines = [f"# coil beside its peers: {report['machine'].get('gpu', report['device'])}", "",
             f"PyTorch {report['machine'].get('torch')}, {report['machine']['date']}. Microseconds a call: events around a burst, median of {report['rounds']} rounds (least-most); in brackets one call at a time, and the host's time to enqueue.", ""]
    lines += ["| model | " + " | ".join(peers) + " | coil / best | floor / coil | rate |", "|---" * (len(peers) + 4) + "|"]
    for row in report["rows"]:
        cells = []
        for peer in peers:
            p = row["peers"].get(peer, {})
            if "us" in p:
                cells.append(f"{human(p['us'])} ({human(p['us_low'])}-{human(p['us_high'])}) [{human(p['single'])}, {human(p['host'])}]" + (f" WRONG {p['wrong']}" if "wrong" in p else ""))
            else:
                cells.append("failed" if "failed" in p else "-")
        rate = f"{row['coil_tflop_s']} TFLOP/s" if "coil_tflop_s" in row and row["coil_tflop_s"] > 20 else f"{row['coil_gb_s']} GB/s" if "coil_gb_s" in row else "-"
        lines.append(f"| {row['model']} | " + " | ".join(cells) + f" | {row.get('coil_by_best', '-')} | {row.get('floor_by_coil', '-')} | {rate} |")
    failed = [f"- {row['model']}, {peer}: {p['failed'].splitlines()[0] if p['failed'] else ''}" for row in report["rows"] for peer, p in row["peers"].items() if "failed" in p]
    if failed:
        lines += ["", "Failed:", "", *failed]
    if report["startup"]:
        lines += ["", "| before the first result | compile s | kernels | driver ms | open ms | process start to first result s | host us to enqueue | us a launch |", "|---" * 8 + "|"]
        middle = lambda row, key: f"{row[key]['median']:g} ({row[key]['low']:g}-{row[key]['high']:g})" if key in row else "-"
        for row in report["startup"]:
            enqueue = row.get("bench", {}).get("enqueue_us", {}).get("median")
            lines.append(f"| {row['model']}{' FAILED: ' + row['failed'].splitlines()[0][:160] if 'failed' in row else ''} | {middle(row, 'compile_s')} | {row.get('kernels', '-')} | {middle(row, 'driver_ms')} | {middle(row, 'open_ms')} | "
                         f"{middle(row, 'first_result_s')} | {'-' if enqueue is None else f'{enqueue:.2f}'} | {row.get('host_us_per_launch', '-')} |")
    return "\n".join(lines) + "\n"
