#!/usr/bin/env python3
"""torch.compile(backend="coil") on a GPU, beside eager and (--inductor) Inductor: right or not, ms a call or a step, programs, and what
stays in PyTorch. Needs PyTorch, torchvision and transformers there, and coil's Python package on PYTHONPATH (build/python).

  python bench/gpu_door.py                        # every case
  python bench/gpu_door.py --only resnet gpt2     # cases whose names contain a word
  python bench/gpu_door.py --inductor --json out.json
  python bench/gpu_door.py --mode reduce-overhead --inductor
  python bench/gpu_door.py --kernels              # attention and convolutions in training: PyTorch's kernels beside coil's
  python bench/gpu_door.py --only "gpt2 auto" --inductor --profile 20   # and the busiest kernels of a call, by torch.profiler
"""

import argparse
import json
import statistics
import sys
import time
import traceback

import torch
import torch.nn.functional as F
from torch import nn

import coil

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False


def device_ms(call, seconds=1.0):
    """Median of a call on the device, as the host submits it in a loop of its own."""
    for _ in range(6):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    rounds = max(5, min(200, int(seconds / 5 / max(time.perf_counter() - start, 1e-5))))
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(rounds):
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / rounds * 1e3)
    return statistics.median(times)


def error(ours, theirs, exact):
    """(coil's, eager's): the largest distance to float64 beside the largest number."""
    scale = exact.abs().max().clamp_min(1e-12)
    return [((t.double() - exact).abs().max() / scale).item() for t in (ours, theirs)]


class Case:
    """A model with its input. `loss`: a function of its output, for steps; None: inference."""

    def __init__(self, name, make, inputs, autocast=None, dtype=None, loss=None, step=False):
        self.name, self.make, self.inputs, self.autocast, self.dtype, self.loss, self.step = name, make, inputs, autocast, dtype, loss, step

    def model(self, dtype=None):
        torch.manual_seed(0)
        model = self.make().cuda()
        if dtype or self.dtype:
            model = model.to(dtype or self.dtype)
        return model.train(self.loss is not None)

    def arguments(self, dtype=None):
        torch.manual_seed(1)
        wanted = dtype or self.dtype
        return [t.cuda().to(wanted) if wanted and t.is_floating_point() else t.cuda() for t in self.inputs()]

    def context(self):
        return torch.autocast("cuda", self.autocast) if self.autocast else torch.autocast("cuda", enabled=False)

    def call(self, model, forward, arguments):
        """One call: results for inference; the loss for training, gradients in the parameters."""
        if self.loss is None:
            with torch.no_grad():
                return forward(*arguments)
        model.zero_grad(set_to_none=True)
        with self.context():
            loss = self.loss(forward(*arguments))
        loss.backward()
        return loss


def values(case, model, result):
    if case.loss is None:
        return [first(result).detach()]
    return [result.detach(), *[p.grad for p in model.parameters() if p.grad is not None]]


def first(y):
    while not isinstance(y, torch.Tensor):
        y = y[0] if isinstance(y, (tuple, list)) else next(iter(y.values()))
    return y


def busiest(call, rows):
    """The `rows` busiest kernels of a call: us a call, launches a call, name; in front the sums over all kernels."""
    from gpu_profile import kernel_times

    times = kernel_times(torch, call, 5)
    total = [sum(us for us, _ in times.values()), sum(n for _, n in times.values()), "all"]
    return [total, *([round(us, 1), round(n, 1), name[:110]] for name, (us, n) in list(times.items())[:rows])]


def run(case, backends, options, mode=None, profile=0):
    row = {"case": case.name}
    exact_model = case.model(torch.float64)
    nothing = Case(case.name, case.make, case.inputs, loss=case.loss)
    try:
        exact = [v.double() for v in values(case, exact_model, nothing.call(exact_model, exact_model, case.arguments(torch.float64)))]
    except Exception as problem:  # attention without code for float64, or too much memory: beside eager alone
        exact, row["exact"] = None, f"none: {problem}"[:100]
    del exact_model
    eager = None
    for backend in backends:
        torch._dynamo.reset()
        coil.reset_compile_stats()
        model, arguments = case.model(), case.arguments()
        forward = model if backend == "eager" else torch.compile(model, backend=backend, mode=mode) if mode else torch.compile(model, backend=backend, options=options if backend == "coil" else None)
        try:
            start = time.perf_counter()
            found = [v.float() for v in values(case, model, case.call(model, forward, arguments))]
            torch.cuda.synchronize()
            row[backend + "_first_s"] = round(time.perf_counter() - start, 1)
            if backend == "coil":
                stats = coil.compile_stats()
                row.update(programs=stats.packages, cached=stats.cache_hits, operators=stats.operators, in_pytorch=stats.fallback_operators, fallbacks=stats.fallbacks)
            if backend == "eager":
                eager = found
            else:
                pairs = [error(o, e, x) for o, e, x in zip(found, eager, exact or [e.double() for e in eager], strict=True)]
                worst = max(pairs, key=lambda p: p[0] / max(p[1], 2e-6 if not (case.dtype or case.autocast) else 4e-3))
                row[backend + "_error"], row[backend + "_eager_error"] = worst
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True) if case.step else None

            def call():
                case.call(model, forward, arguments)
                if optimizer:
                    optimizer.step()
            torch.cuda.reset_peak_memory_stats()
            row[backend + "_ms"] = round(device_ms(call), 3)
            row[backend + "_peak_MB"] = torch.cuda.max_memory_allocated() >> 20
            if profile:
                row[backend + "_kernels"] = busiest(call, profile)
        except Exception as problem:
            row[backend + "_failed"] = f"{type(problem).__name__}: {problem}"[:400]
            traceback.print_exc(limit=4)
        del model, forward
        torch.cuda.empty_cache()
    return row


def show(row):
    parts = [f"{row['case']:28}"]
    for backend in ("eager", "inductor", "coil"):
        if backend + "_ms" in row:
            parts.append(f"{backend} {row[backend + '_ms']:8.3f} ms ({row[backend + '_peak_MB']} MB, first {row[backend + '_first_s']} s)")
        elif backend + "_failed" in row:
            parts.append(f"{backend} FAILED: {row[backend + '_failed'][:200]}")
    if "coil_error" in row:
        parts.append(f"error {row['coil_error']:.1e} (eager {row['coil_eager_error']:.1e})")
    if "programs" in row:
        parts.append(f"{row['programs']}+{row['cached']} programs, {row['in_pytorch']} of {row['operators']} operators in PyTorch")
    print(" | ".join(parts), flush=True)
    for backend in ("eager", "inductor", "coil"):
        for us, launches, name in row.get(backend + "_kernels", []):
            print(f"      {backend:8} {us:9.1f} us {launches:6.1f} launches  {name}", flush=True)
    for reason, count in sorted(row.get("fallbacks", {}).items(), key=lambda kv: -kv[1])[:12]:
        print(f"      {count} x {reason}", flush=True)


# ---- The cases

def gpt2(layers, attention="sdpa"):
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(n_layer=layers, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation=attention))


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids).logits


class Attend(nn.Module):
    """Attention alone, in the forms that PyTorch chooses among."""

    def __init__(self, **options):
        super().__init__()
        self.options = options
        self.qkv = nn.Linear(256, 3 * 256)
        self.bias = nn.Parameter(torch.randn(8, 128, 128)) if options.pop("bias", False) else None

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 8, 32).permute(2, 0, 3, 1, 4)
        if "enable_gqa" in self.options:
            k, v = k[:, :2], v[:, :2]
        mask = self.bias.to(q.dtype).expand(x.shape[0], -1, -1, -1) if self.bias is not None else None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options).transpose(1, 2).flatten(2)


class Flex(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(256, 3 * 256)

    def forward(self, x):
        from torch.nn.attention.flex_attention import flex_attention
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 8, 32).permute(2, 0, 3, 1, 4)
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + 0.1 * (i - j).abs() * (h + 1)).transpose(1, 2).flatten(2)


def cases():
    import torchvision.models as tv
    bf16 = torch.bfloat16
    images = lambda n, size=224: (lambda: [torch.randn(n, 3, size, size)])
    ids = lambda b, n: (lambda: [torch.randint(0, 50257, (b, n))])
    rows = lambda b, n: (lambda: [torch.randn(b, n, 256)])
    square = lambda y: first(y).float().square().mean()
    found = [
        Case("attention bf16", lambda: Attend(is_causal=True), rows(4, 128), dtype=bf16),
        Case("attention bf16 train", lambda: Attend(is_causal=True), rows(4, 128), dtype=bf16, loss=square),
        Case("attention f16 train", lambda: Attend(), rows(4, 100), dtype=torch.float16, loss=square),
        Case("attention f32 train", lambda: Attend(is_causal=True), rows(4, 128), loss=square),
        Case("attention bias bf16 train", lambda: Attend(bias=True), rows(4, 128), dtype=bf16, loss=square),
        Case("attention gqa bf16 train", lambda: Attend(enable_gqa=True, is_causal=True), rows(4, 128), dtype=bf16, loss=square),
        Case("attention dropout bf16 train", lambda: Attend(dropout_p=0.1), rows(4, 128), dtype=bf16, loss=square),  # other bits than float64: not comparable
        Case("flex attention bf16", Flex, rows(4, 128), dtype=bf16),
        Case("flex attention bf16 train", Flex, rows(4, 128), dtype=bf16, loss=square),
        Case("gpt2 bf16", lambda: Logits(gpt2(12)), ids(8, 512), dtype=bf16),
        Case("gpt2 autocast step", lambda: Logits(gpt2(12)), ids(8, 512), autocast=bf16, loss=lambda y: y.float().logsumexp(-1).mean(), step=True),
        Case("vit_b_16 bf16", tv.vit_b_16, images(32), dtype=bf16),
        Case("vit_b_16 autocast step", tv.vit_b_16, images(32), autocast=bf16, loss=square, step=True),
        Case("resnet50 bf16", tv.resnet50, images(32), dtype=bf16),
        Case("resnet50 f32", tv.resnet50, images(32)),
        Case("resnet18 f32 step", tv.resnet18, images(32), loss=square, step=True),
        Case("resnet50 autocast step", tv.resnet50, images(32), autocast=bf16, loss=square, step=True),
        Case("vgg16 f32 train", tv.vgg16, images(2), loss=square),
        Case("googlenet f32 train", lambda: tv.googlenet(init_weights=False, aux_logits=False), images(2), loss=square),
        Case("squeezenet f32 train", tv.squeezenet1_1, images(2), loss=square),
        Case("mobilenet_v3 bf16", tv.mobilenet_v3_large, images(32), dtype=bf16),
        Case("convnext bf16", tv.convnext_tiny, images(32), dtype=bf16),
        Case("swin_t bf16", tv.swin_t, images(32), dtype=bf16),
    ]
    for case in found:
        if case.name.startswith(("vgg", "google", "squeeze", "vit", "swin", "convnext")):
            case.make = without_dropout(case.make)
    return found


def without_dropout(make):
    def made():
        model = make()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if type(module).__name__ == "StochasticDepth":
                module.p = 0.0
        return model
    return made


def main():
    import needs

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--kernels", action="store_true", help="in training: coil's attention and convolutions instead of PyTorch's, too")
    parser.add_argument("--mode", help="of torch.compile, for both compilers, such as reduce-overhead")
    parser.add_argument("--profile", type=int, default=0, metavar="ROWS", help="print so many of the busiest kernels of a call")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    needs.gpu()
    backends = ["eager", "inductor", "coil"] if arguments.inductor else ["eager", "coil"]
    chosen = [c for c in cases() if not arguments.only or any(word in c.name for word in arguments.only)]
    rows = []
    for case in chosen:
        forms = [("", None)]
        if arguments.kernels and case.loss is not None:
            forms += [(" [coil's attention]", {"attention": "coil"}), (" [coil's convolutions]", {"convolutions": "coil"})]
        for suffix, options in forms:
            row = run(case, backends if not suffix else ["eager", "coil"], options, arguments.mode, arguments.profile)
            row["case"] += suffix + (f" [{arguments.mode}]" if arguments.mode else "")
            show(row)
            rows.append(row)
            if arguments.json:
                with open(arguments.json, "w") as file:
                    json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, file, indent=1)
    return any("coil_failed" in row for row in rows)


if __name__ == "__main__":
    sys.exit(main())
