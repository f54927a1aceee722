"""Steps of optimizers under torch.compile beside PyTorch: eager (its foreach kernels, and fused ones where it has them), Inductor, coil.

usage: python bench/optimizers.py [--only WORD] [--parameters small,resnet50,gpt2] [--rounds 15] [--device cpu] [--no-inductor]

Each competitor has parameters of its own with the same values; the gradients stay. Rounds are interleaved: a step of each in turn, several times. Printed
are milliseconds a step (median of the rounds, with the quartiles), what the first step took (compiling), and the largest difference from eager's
parameters after the first ten steps, relative to what these steps changed.
"""

import argparse
import copy
import os
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from torch import nn  # noqa: E402

ROUNDS_FIRST = 10  # compared with eager


def blocks(width, depth):
    """The weights of transformer blocks: products, biases, norms."""
    layers = [[nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width), nn.LayerNorm(width)] for _ in range(depth)]
    return nn.ModuleList([nn.ModuleList(block) for block in layers])


def resnet50():
    import torchvision

    return torchvision.models.resnet50()


PARAMETERS = {
    "small": lambda: nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)]),
    "resnet50": resnet50,
    "gpt2": lambda: nn.ModuleList([blocks(768, 12), nn.Embedding(50257, 768)]),
}
OPTIMIZERS = {
    "sgd": (lambda p, **how: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=1e-4, **how), True),
    "adam": (lambda p, **how: torch.optim.Adam(p, lr=1e-3, **how), True),
    "adamw": (lambda p, **how: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01, **how), True),
    "rmsprop": (lambda p, **how: torch.optim.RMSprop(p, lr=1e-3, **how), False),
    "nadam": (lambda p, **how: torch.optim.NAdam(p, lr=1e-3, **how), False),
}


class Competitor:
    def __init__(self, name, model, make, backend=None, **how):
        self.name = name
        self.parameters = [p for p in copy.deepcopy(model).parameters()]
        generator = torch.Generator(self.parameters[0].device).manual_seed(3)
        for p in self.parameters:
            p.grad = torch.randn(p.shape, generator=generator, device=p.device) * 0.1
        self.optimizer = make(self.parameters, **how)
        self.step = torch.compile(self.optimizer.step, backend=backend) if backend else self.optimizer.step
        self.seconds = []

    def run(self):
        if self.parameters[0].device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        self.step()
        if self.parameters[0].device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start


def compare(label, model, make, fused, options):
    competitors = [Competitor("eager", model, make, foreach=True)]
    if fused:
        competitors.append(Competitor("fused", model, make, fused=True))
    if options.inductor:
        competitors.append(Competitor("inductor", model, make, "inductor", foreach=True))
    competitors.append(Competitor("coil", model, make, "coil", foreach=True))
    before = [p.detach().clone() for p in competitors[0].parameters]
    for one in competitors:
        torch._dynamo.reset()
        one.first = one.run()
        for _ in range(ROUNDS_FIRST - 1):
            one.run()
    after = [p.detach().clone() for p in competitors[0].parameters]
    moved = max((a - b).abs().max().item() for a, b in zip(after, before))
    errors = {one.name: max((p.detach() - a).abs().max().item() for p, a in zip(one.parameters, after)) / moved for one in competitors}
    for _ in range(options.rounds):
        for one in competitors:
            one.seconds.append(min(one.run() for _ in range(2)))
    for one in competitors:
        low, middle, high = (1e3 * q for q in statistics.quantiles(one.seconds, n=4))
        print(f"{label:18} {one.name:9} {middle:9.3f} ms ({low:.3f} to {high:.3f})  first step {one.first:6.2f} s  difference {errors[one.name]:.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--parameters", default="small,resnet50,gpt2")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-inductor", dest="inductor", action="store_false")
    options = parser.parse_args()
    build = os.environ.get("COIL_BUILD", os.path.join(os.path.dirname(__file__), "..", "build"))
    sys.path.insert(0, os.path.join(build, "python"))
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, {options.device}")
    for size in options.parameters.split(","):
        torch.manual_seed(0)
        model = PARAMETERS[size]().to(options.device)
        for name, (make, fused) in OPTIMIZERS.items():
            if options.only in name:
                compare(f"{name}, {size}", model, make, fused, options)


if __name__ == "__main__":
    main()
