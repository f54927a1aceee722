"""What torch.compile(backend="coil") takes for small functions beyond Dynamo's and AOTAutograd's own time.

usage: PYTHONPATH=build/python python bench/torch_compile_latency.py

The same functions with a backend that compiles nothing ("aot_eager", through the same decompositions and partitioner as far as it has them) are the
base; coil's own share is what its statistics add up: writing the programs down, compiling, opening them. Medians of seven, seconds of wall time and,
since other work on the machine stretches that, of processor time.
"""

import statistics
import time

import torch

import coil

FUNCTIONS = {
    "pointwise": lambda a, b, n: (a * b + n).relu(),
    "softmax": lambda a, b, n: (a + b * n).softmax(-1),
    "layer norm and product": lambda a, b, n: torch.nn.functional.gelu(torch.nn.functional.layer_norm(a @ b.t() * n, (64,))),
}


def timed(function, backend, number, grad):
    torch._dynamo.reset()
    coil.reset_compile_stats()
    a, b = torch.randn(64, 64, requires_grad=grad), torch.randn(64, 64)
    wall, processor = time.perf_counter(), time.process_time()
    y = torch.compile(lambda a, b: function(a, b, number), backend=backend)(a, b)
    if grad:
        y.sum().backward()
    stats = coil.compile_stats()
    return time.perf_counter() - wall, time.process_time() - processor, stats.serialize_seconds + stats.compile_seconds + stats.load_seconds


def main():
    print(f"torch {torch.__version__}\n{'':34}{'coil wall':>11}{'cpu':>8}{'aot_eager wall':>16}{'cpu':>8}{'coil own share':>16}")
    for name, function in FUNCTIONS.items():
        for grad in (False, True):
            timed(function, "coil", 0.5, grad)  # the compiler's first use loads it
            timed(function, "aot_eager", 0.5, grad)
            ours = [timed(function, "coil", 1.0 + i, grad) for i in range(7)]
            base = [timed(function, "aot_eager", 1.0 + i, grad) for i in range(7)]
            median = lambda rows, i: statistics.median(r[i] for r in rows)
            print(f"{name + (' and gradient' if grad else ''):34}{median(ours, 0):11.3f}{median(ours, 1):8.3f}{median(base, 0):16.3f}{median(base, 1):8.3f}{median(ours, 2):16.3f}")


if __name__ == "__main__":
    main()
