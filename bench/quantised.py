#!/usr/bin/env python3
"""Quantised linear layers and convolutional networks beside float32: coil on each, and eager on float32, interleaved in one process.

Three linear layers of WIDTH x WIDTH with ReLUs between them, at several numbers of rows: PT2E's static and dynamic int8 (X86 quantizer),
torchao's dynamic int8, and its weight-only int8 and int4 (groups of 32). With one thread times are its processor time. Then torchvision's networks with random weights, PT2E's static int8.
Packages' sizes are printed too.

    ~/.cache/coil/venv/bin/python bench/quantised.py --build /tmp/build --threads 1
"""
import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests/models"))


def net(width):
    import torch

    torch.manual_seed(0)
    layer = lambda: torch.nn.Linear(width, width)
    return torch.nn.Sequential(layer(), torch.nn.ReLU(), layer(), torch.nn.ReLU(), layer()).eval()


def variants(width, x):
    """{name: module}"""
    import torch
    from quantised_models import pt2e, torchao, x86

    return {
        "float32": net(width),
        "int8 static (PT2E)": pt2e(net(width), (x,), x86(False)),
        "int8 dynamic (PT2E)": pt2e(net(width), (x,), x86(True)),
        "int8 dynamic (torchao)": torchao(net(width), lambda q: q.Int8DynamicActivationInt8WeightConfig()),
        "int8 weights (torchao)": torchao(net(width), lambda q: q.Int8WeightOnlyConfig()),
        "int4 weights (torchao)": torchao(net(width), lambda q: q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=q.PerGroup(32))),
    }


def burst(call, seconds, clock):
    times, end = [], clock() + seconds
    while clock() < end or len(times) < 3:
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times)


def network(name):
    import torch
    import torchvision

    torch.manual_seed(0)
    net = getattr(torchvision.models, name)(weights=None)
    for module in net.modules():  # as if trained: what leaves a batch norm has the size of what enters
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        for _ in range(2):
            net(torch.randn(4, 3, 224, 224))
    return net.eval()


def network_variants(name, x):
    from quantised_models import pt2e, x86

    return {"float32": network(name), "int8 static (PT2E)": pt2e(network(name), (x,), x86(False), [(x,), (x * 0.7,)])}


def measure(label, programs, x, folder, options, most_error):
    """One row of the table for each of {name: module}."""
    import coil
    import torch

    calls, sizes = {}, {}
    for i, (name, module) in enumerate(programs.items()):
        package = pathlib.Path(folder) / f"{i}.coil.pt2"
        model = coil.compile(torch.export.export(module, (x,)).run_decompositions(), package)
        want, got = module(x), model(x)
        error = ((want - got).abs().max() / want.abs().max()).item()
        assert error < most_error, f"{name}: {error}"
        calls[name], sizes[name] = (lambda m: lambda: m(x))(model), package.stat().st_size
        if name == "float32":
            calls["eager, float32"] = (lambda m: lambda: m(x))(module)
    times, clock = {name: [] for name in calls}, time.thread_time if options.threads == 1 else time.perf_counter
    for _ in range(options.rounds):
        for name, call in calls.items():
            times[name].append(burst(call, options.burst, clock))
    base = statistics.median(times["float32"])
    for name, list_ in times.items():
        median = statistics.median(list_)
        size = f"{sizes[name] / 1e6:.1f} MB" if name in sizes else ""
        print(f"| {label} | {name} | {size} | {median * 1e3:.3f} ms ({min(list_) * 1e3:.3f}-{max(list_) * 1e3:.3f}) | {base / median:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 16, 256])
    parser.add_argument("--networks", nargs="*", default=["resnet18", "mobilenet_v2"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--burst", type=float, default=0.2)
    options = parser.parse_args()
    os.environ["COIL_THREADS"] = str(options.threads)
    sys.path.insert(0, str(pathlib.Path(options.build) / "python"))
    import needs
    import torch

    needs.modules("torchao", "torchvision")
    torch.set_num_threads(options.threads)
    print("| rows | program | package | median (least-most) | float32 / it |\n|---|---|---|---|---|")
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            x = torch.randn(rows, options.width)
            measure(rows, variants(options.width, x), x, folder, options, 2e-2)
        for name in options.networks:
            x = torch.randn(options.batch, 3, 224, 224)
            # Quantised numbers of a layer may be neighbours of eager's, whose sums are rounded; all layers after it see that.
            measure(f"{name}, batch {options.batch}", network_variants(name, x), x, folder, options, 0.1)


if __name__ == "__main__":
    main()
