"""Small programs, and faults that are planted into their kernels: what test_diff.py and test_bisect.py look for."""

import re

import numpy as np
import torch

from harness import coil_json, coil_ok

ROWS = 256


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x):
        return self.norm(x * 1.5) + 0.25


class Mlp(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.first, self.second, self.act = torch.nn.Linear(64, 96), torch.nn.Linear(96, 64), act

    def forward(self, x):
        return self.second(self.act(self.first(x)) * 0.75)


class Attend(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(64, 64) for _ in range(3))

    def forward(self, x):
        q, k, v = (layer(x).view(1, ROWS, 4, 16).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(ROWS, 64)
        return torch.tanh(y * 2.5) + x


class Conv(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.AvgPool2d(2)

    def forward(self, x):
        return self.pool(torch.nn.functional.hardswish(self.conv(x.view(16, 1, 32, 32).expand(16, 3, 32, 32))) * 1.25)


class Formula(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


def programs():
    """name: module of one float32 [ROWS, 64] input."""
    return {
        "norm": Norm(),
        "gelu": Mlp(torch.nn.functional.gelu),
        "silu": Mlp(torch.nn.functional.silu),
        "attend": Attend(),
        "conv": Conv(),
        "softmax": Formula(lambda x: torch.softmax(x * 0.3, -1)),
        "scale": Formula(lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 0.01)),
        "columns": Formula(lambda x: (x - x.mean(0)) / (x.std(0) + 0.125)),
        "mixed": Formula(lambda x: torch.sin(x * 0.7) * torch.exp(-x.abs() * 0.35)),
        "waves": Formula(lambda x: torch.cos(x * 1.3) + x * 0.45),
        "sorted": Formula(lambda x: torch.sort(x * 1.75, dim=-1).values.cumsum(-1) * 0.015625),
    }


def export(folder, names=None):
    """{name: (program, inputs)} of all, or of some."""
    torch.manual_seed(0)
    x = torch.randn(ROWS, 64)
    np.savez(folder / "x.npz", in_0=x.numpy())
    made = {}
    for name, module in programs().items():
        if names is not None and name not in names:
            continue
        torch.export.save(torch.export.export(module.eval(), (x,)), folder / f"{name}.pt2")
        made[name] = (folder / f"{name}.pt2", folder / "x.npz")
    return made


def kernels(program, folder, *options):
    """[(function, text)] of what a compile generates, in order, each function once."""
    package = folder / "plain.coil.pt2"
    coil_ok("compile", program, "-q", "-o", package, *options)
    found = {}
    for k in coil_json("inspect", package)["kernels"]:
        if k["function"]:
            text = coil_ok("inspect", package, "--source", k["function"]).stdout
            if "COIL_KERNEL" in text:
                found[k["function"]] = text
    return list(found.items())


def wrong_constant(text):
    """The text with one constant of its arithmetic changed by some percent; None: it has none."""
    numbers = list(re.finditer(r"(?<![\w.])(\d+\.\d+)f\b", text))
    numbers = [m for m in numbers if float(m[1]) not in (0.0,) and not re.search(r"e[-+]?\d+$", m[1])]
    if not numbers:
        return None
    m = max(numbers, key=lambda m: (float(m[1]) != 1.0, m.start()))
    value = m[1]
    return text.replace(f"{value}f", f"{float(value) * 1.0625 + 0.001:.9g}f")


def race(text):
    """Each part of a loop also clears a number of the next part's results, which are computed later, unless another thread already has; None: no such parts."""
    out = re.search(r"\] float\* (?:__restrict )?(p\d+) =", text)
    if not out:
        return None
    store = r"(?:cd::store1?(?:_tail)?\(" + out[1] + r" \+ |" + out[1] + r"\[)"
    row = re.search(store + r"\(\((\d+) \* (i0|row)\)", text)
    item = re.search(r"^    const long i0 = (?:item|rest % \d+);\n", text, re.M)
    block = re.search(r"^    const long stop = cd::minimum\(.*\(cd::i64\)\((\d+)\)\);\n", text, re.M)
    epilogue = re.search(r"^  for \(long row = row0; .*\n", text, re.M)
    if row and row[2] == "i0" and item:
        at, fault = item.end(), f"if (i0 + 1 < {ROWS}) {out[1]}[{row[1]} * (i0 + 1)] = 0;"
    elif block and re.search(store + r"i0\b", text) and int(block[1]) > 1024:
        at, fault = block.end(), f"if (stop < {block[1]}) {out[1]}[stop] = 0;"
    elif row and row[2] == "row" and epilogue:
        at, fault = epilogue.start(), f"if (row0 + rows < {ROWS}) {out[1]}[{row[1]} * (row0 + rows) + col0] = 0;"
    else:
        return None
    return text[:at] + f"    {fault}\n" + text[at:]


def slow(text, steps=3_000_000):
    """Each call of the function wastes some milliseconds."""
    at = text.index("const coil_args& a")
    return text[:at] + f"for (volatile long wasted = 0; wasted < {steps}; wasted = wasted + 1) {{}}\n  " + text[at:]


def planted(program, folder, change, *options):
    """(function, `--replace-kernel` arguments) for each kernel that the fault can be planted in."""
    out = []
    for function, text in kernels(program, folder, *options):
        bad = change(text)
        if bad is None or bad == text:
            continue
        file = folder / f"{function}.cc"
        file.write_text(bad)
        out.append((function, ("--replace-kernel", f"{function}={file}")))
    return out
