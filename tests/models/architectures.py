"""Whole models: exported, compiled standalone and compared with eager; or trained with torch.compile(backend="coil") beside eager.

usage: python tests/models/architectures.py [infer|train] [--jobs N] [--results FILE.jsonl] [--fresh] [--retry] [--report docs/models.md] [PATTERN...]
       python tests/models/architectures.py one NAME infer|train          one model in this process, its JSON line printed

Each model runs in a process of its own; its result is one JSON line. A second run goes on where the first stopped (--fresh: anew; --retry: what
was not right). PATTERN: names as in a shell. The package `coil` is taken from COIL_BUILD/python. Beside the tests' environment it wants
`pip install timm==1.0.31 diffusers==0.42.1 requests`; models of a package that is not installed are skipped.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(pathlib.Path(os.environ.get("COIL_BUILD", REPO / "build")).resolve() / "python"))

SECONDS = 900    # a model's time, of a busy machine
TOLERANCE = 2e-4  # of the largest magnitude of a result, in float32
STEPS = 20
# What is trained: small models of each kind, all operators of their steps included.
TRAINED = ["torchvision/resnet18", "torchvision/mobilenet_v2", "torchvision/vit", "torchvision/swin_t", "transformers/bert", "transformers/gpt2", "transformers/llama",
           "transformers/t5", "transformers/qwen3", "diffusers/unet2d", "timm/convnextv2_atto", "transformers/wav2vec2"]


def seeded_model(name):
    """(module, args, kwargs), the same in every process."""
    import torch
    from architecture_list import ARCHITECTURES

    torch.manual_seed(0)
    module, args, kwargs = ARCHITECTURES[name][1]()
    return module, args, kwargs


def tensors_of(value):
    """The tensors of a result, in order; of a ModelOutput or a dictionary its values'."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def error_of(actual, expected):
    """The largest difference, of the largest magnitude expected."""
    import torch

    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if not expected.is_floating_point():
        return 0.0 if torch.equal(actual, expected) else float("inf")
    actual, expected = actual.detach().double(), expected.detach().double()
    if not torch.equal(actual.isnan(), expected.isnan()) or not torch.equal(actual.isinf(), expected.isinf()):
        return float("inf")
    difference = (actual - expected)[expected.isfinite()].abs()
    return float(difference.max() / expected[expected.isfinite()].abs().max().clamp_min(1e-12)) if difference.numel() else 0.0


def busy_seconds():
    """The processor time that all processes of the machine have used since it started; None where the system does not say."""
    try:
        fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        user, nice, system, _, _, irq, softirq, steal = (int(f) for f in fields[:8])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


class Neighbours:
    """How many cores other processes kept busy during a block, which decides whether its times may be published (QUIET)."""

    def __enter__(self):
        self.start = time.perf_counter(), time.process_time(), busy_seconds()
        return self

    def __exit__(self, *_):
        wall, own, busy = time.perf_counter() - self.start[0], time.process_time() - self.start[1], busy_seconds()
        known = busy is not None and self.start[2] is not None and busy > self.start[2]
        self.cores = round(max(0.0, busy - self.start[2] - own) / wall, 2) if known else None


def loudest(*blocks):
    """The cores that others used during the busiest of the blocks; None: not known of one of them."""
    cores = [block.cores for block in blocks]
    return None if None in cores else max(cores)


def milliseconds(function, seconds=0.5):
    """The least time of a call, over at least three and about `seconds`."""
    function()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 200):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def infer(name):
    import torch

    module, args, kwargs = seeded_model(name)
    module = module.eval()
    result = {"parameters": sum(p.numel() for p in module.parameters())}
    with torch.no_grad():
        expected = tensors_of(module(*args, **kwargs))
        if all(bool((e == e.flatten()[0]).all()) if e.numel() else True for e in expected):
            return {**result, "status": "test", "reason": "eager's results say nothing: all elements are equal"}
        with Neighbours() as beside_eager:
            result["eager_ms"] = round(milliseconds(lambda: module(*args, **kwargs)), 3)
        start = time.perf_counter()
        try:
            program = torch.export.export(module, args, kwargs, strict=False)
        except Exception as error:
            return {**result, "status": "export", "reason": f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"[:300]}
        result["export_s"] = round(time.perf_counter() - start, 2)
        import coil

        start = time.perf_counter()
        with Neighbours() as beside_compile:
            try:
                model = coil.compile(program)
            except coil.Error as error:
                return {**result, "status": "refused", "reason": str(error)[:600]}
        result["compile_s"] = round(time.perf_counter() - start, 2)
        actual = tensors_of(model(*args, **kwargs))
        if len(actual) != len(expected):
            return {**result, "status": "wrong", "reason": f"{len(actual)} results instead of {len(expected)}"}
        result["error"] = max(error_of(a, e) for a, e in zip(actual, expected))
        if not result["error"] <= TOLERANCE:
            result.update(doubtful(module, args, kwargs, actual, expected))
        else:
            result["status"] = "right"
        with Neighbours() as beside_coil:
            result["coil_ms"] = round(milliseconds(lambda: model(*args, **kwargs)), 3)
        result["others"] = loudest(beside_eager, beside_compile, beside_coil)
    return result


def doubtful(module, args, kwargs, actual, expected):
    """Whether eager is as far from the model in double precision as coil is."""
    import copy

    import torch
    from torch.utils._pytree import tree_map

    double = lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
    try:
        exact = tensors_of(copy.deepcopy(module).double()(*tree_map(double, args), **tree_map(double, kwargs)))
    except Exception as error:
        return {"status": "wrong", "reason": f"and no result in double precision: {error}"[:300]}
    as_exact = lambda values: max(error_of(v.double() if v.is_floating_point() else v, e) for v, e in zip(values, exact))
    ours, eagers = as_exact(actual), as_exact(expected)
    if ours <= 3 * eagers:
        return {"status": "right", "reason": f"error against double precision {ours:.1e}, eager's {eagers:.1e}"}
    return {"status": "wrong", "reason": f"error against double precision {ours:.1e}, eager's {eagers:.1e}"}


def loss_of(output):
    """A number of all floating results, by which to train: their mean square with slowly changing targets."""
    import torch

    total = 0
    for value in tensors_of(output):
        if value.is_floating_point():
            target = torch.linspace(-1, 1, value.numel()).reshape(value.shape)
            total = total + (value - target).square().mean()
    return total


def curve(module, args, kwargs, forward):
    """The losses of STEPS steps of SGD with momentum, and the seconds of the last ones."""
    import torch

    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9)
    losses, seconds = [], []
    for step in range(STEPS):
        torch.manual_seed(step)
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_of(forward(*args, **kwargs))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        seconds.append(time.perf_counter() - start)
    return losses, seconds


def batch_of(args, size=8):
    """Images in numbers that batch norms have statistics of: with one image of few pixels in the last layers, a step magnifies the rounding of
    the one before, in eager as in coil."""
    import torch

    return tuple(torch.randn(size, *a.shape[1:]) if isinstance(a, torch.Tensor) and a.dim() == 4 and a.is_floating_point() and a.shape[0] == 1 else a for a in args)


def exact_curve(module, args, kwargs):
    """The losses in double precision, None where the model cannot be trained in it."""
    import torch
    from torch.utils._pytree import tree_map

    double = lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
    try:
        module = module.double()
        return curve(module, tree_map(double, args), tree_map(double, kwargs), module)[0]
    except Exception:
        return None


def distance_of(losses, others):
    """The largest relative difference of a step."""
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(losses, others))


def train(name):
    import copy

    import torch

    module, args, kwargs = seeded_model(name)
    args = batch_of(args)
    if "transformers" in name and hasattr(module, "config"):
        kwargs = {**kwargs, "return_dict": True}
    twin, third = copy.deepcopy(module), copy.deepcopy(module)
    with Neighbours() as beside_eager:
        losses, seconds = curve(module, args, kwargs, module)
    import coil

    coil.reset_compile_stats()
    with Neighbours() as beside_coil:
        followed, times = curve(twin, args, kwargs, torch.compile(twin, backend="coil"))
    stats = coil.compile_stats()
    distance = distance_of(followed, losses)
    right, reason = distance <= 1e-3 and losses[-1] != losses[0], ""
    if not right:
        reason = f"losses {losses[:3]}..{losses[-3:]} and {followed[:3]}..{followed[-3:]}"
        exact = exact_curve(third, args, kwargs)
        if exact and losses[-1] != losses[0]:
            ours, eagers = distance_of(followed, exact), distance_of(losses, exact)
            right = ours <= 2 * eagers <= 0.1
            reason = f"distance from training in double precision {ours:.1e}, eager's {eagers:.1e}" + ("" if right else "; " + reason)
    return {"status": "right" if right else "wrong", "reason": reason, "distance": distance,
            "first": losses[0], "last": losses[-1], "coil_last": followed[-1], "eager_ms": round(min(seconds[5:]) * 1e3, 2), "coil_ms": round(min(times[5:]) * 1e3, 2),
            "compile_s": round(sum(times[:2]) - 2 * min(times[5:]), 2), "operators": stats.operators, "in_torch": stats.fallback_operators,
            "fallbacks": stats.fallbacks, "others": loudest(beside_eager, beside_coil)}


def one(name, mode):
    """A model's line."""
    from architecture_list import ARCHITECTURES

    start = time.time()
    try:
        result = {"infer": infer, "train": train}[mode](name)
    except ModuleNotFoundError as error:
        result = {"status": "skipped", "reason": f"{error}"}
    except Exception as error:
        import traceback

        traceback.print_exc()
        result = {"status": "error", "reason": f"{type(error).__name__}: {error}"[:600]}
    return {"name": name, "mode": mode, "family": ARCHITECTURES[name][0], **result, "seconds": round(time.time() - start, 1)}


def in_process(name, mode, log):
    """one() in a process of its own, whatever becomes of it."""
    command = [sys.executable, __file__, "one", name, mode]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, timeout=SECONDS, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"name"')]
        if lines:
            return json.loads(lines[-1])
        status, reason = "crash", f"exit code {done.returncode}"
    except subprocess.TimeoutExpired:
        status, reason = "hang", f"more than {SECONDS} s"
    return {"name": name, "mode": mode, "status": status, "reason": reason}


def run_all(names, mode, jobs, results):
    todo, lock = queue.SimpleQueue(), threading.Lock()
    for name in names:
        todo.put(name)

    def work():
        with open(results.with_suffix(".log"), "a") as log:
            while True:
                try:
                    name = todo.get_nowait()
                except queue.Empty:
                    return
                result = in_process(name, mode, log)
                with lock, open(results, "a") as file:
                    file.write(json.dumps(result) + "\n")
                    print(f"{result['status']:8} {name:40} {result.get('seconds', '')} {result.get('reason', '')[:160]}", flush=True)

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read_results(path):
    """{(name, mode): result}, the last of each."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {(r["name"], r["mode"]): r for r in map(json.loads, lines)}


def main():
    from architecture_list import ARCHITECTURES

    if sys.argv[1:2] == ["one"]:
        print(json.dumps(one(sys.argv[2], sys.argv[3])), flush=True)
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["infer", "train"], nargs="?", default="infer")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("architectures.jsonl"))
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--retry", action="store_true")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_intermixed_args()
    if options.fresh:
        options.results.unlink(missing_ok=True)
    names = TRAINED if options.mode == "train" and not options.patterns else list(ARCHITECTURES)
    names = [n for n in names if not options.patterns or any(fnmatch.fnmatchcase(n, p) for p in options.patterns)]
    known = read_results(options.results)
    todo = [n for n in names if (n, options.mode) not in known or (options.retry and known[n, options.mode]["status"] != "right")]
    run_all(todo, options.mode, options.jobs, options.results)
    results = read_results(options.results)
    if options.report:
        import architecture_report

        options.report.write_text(architecture_report.text(list(results.values())))
    done = [results[n, options.mode] for n in names]
    right = sum(r["status"] == "right" for r in done)
    print(f"{right} of {len(done)} right; " + ", ".join(f"{r['name']} {r['status']}" for r in done if r["status"] != "right"))
    return 1 if any(r["status"] in ("wrong", "crash", "hang", "error") for r in done) else 0


if __name__ == "__main__":
    sys.exit(main())
