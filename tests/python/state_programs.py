"""Random programs that write to their states and inputs, call after call against eager: for tests/python/test_state_programs.py, or alone.

usage: python tests/python/state_programs.py [--seed 0] [--programs 100] [--show SEED]

A program has one to three caches (buffers, or inputs that it changes) and some steps that write to them by position, mask, slice or whole, through views
too, and read them before, between and after. Some calls have a position that is out of range: both raise, and nothing has changed."""

import argparse
import os
import pathlib
import random
import re
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
CALLS = 7
U = -3  # the whole values among the inputs

# How a cache `c` of `rows` rows is written to: by positions p [n], one position q (0-d), values v [n, width], w [width], whole values u [rows, width], a
# mask m [rows]. `o` is another cache.
LATER_WRITES = ["c.copy_(c * 0.9 + (u[:, :, None] * w).sum(2))", "c.mul_(0.9 * one).add_((u[:, None] - u[:, :, None]).abs().amax(2))",
                "c.copy_((c[:, :, None] * w).sum(2) + c)"]
WRITES = [
    "c.index_copy_(0, p, v)", "c.index_put_((p,), v)", "c[p] = v", "c.index_put_((p,), v, accumulate=True)", "c.index_add_(0, p, v)",
    "c.scatter_(0, p[:, None].expand_as(v), v)", "c.scatter_add_(0, p[:, None].expand_as(v), v)", "c.index_fill_(0, p, 3)",
    "c.scatter_reduce_(0, p[:, None].expand_as(v), v, 'amax')", "c.index_reduce_(0, p, v, 'amin')",
    "c.index_put_((p, torch.zeros_like(p)), v[:, 0])", "c.index_put_((p, p % 3), v[:, 1], accumulate=True)",
    "c.t().index_copy_(1, p, v.t())", "c.view(-1).index_copy_(0, p, v[:, 0])", "c[:, 1:].index_put_((p,), v[:, 1:])", "c[:, ::2].index_copy_(0, p, v[:, ::2])",
    "c.index_copy_(0, q[None], w[None])", "c.index_put_((q,), w)", "c[q] = w * 2", "c.scatter_(0, q.expand(1, 4), w[None])",
    "c.copy_(torch.where(torch.arange(ROWS)[:, None] == q, w, c))", "c.copy_(torch.where(torch.arange(ROWS)[:, None] >= q, c, u))",
    "c.copy_(torch.where((torch.arange(ROWS)[:, None] == q) & m[:, None], w, c))", "c.copy_(torch.where(m[:, None] & (c > 0), u, c))",
    "c.masked_fill_(m[:, None], 2)", "c[m] = 1", "c.copy_(torch.where(torch.arange(ROWS)[:, None] == torch.arange(4), u, c))",
    "c[1:3] = u[:2]", "c[-1] = w", "c[:, 2] = u[:, 1]", "c[::2] += 1", "c[1:, :2].copy_(u[1:, 2:])", "c.select(1, 0).add_(u[:, 0])", "c.fill_diagonal_(1)",
    "c.copy_(torch.slice_scatter(c, u[:2], 0, 1, 3))", "c.copy_(torch.select_scatter(c, w, 0, 2))",
    "c.copy_(torch.cat([c[1:], w[None]]))", "c.copy_(torch.cat([w[None], c[:-1]]))", "c[1:] = c[:-1].clone()", "c.copy_(c.flip(0))", "c.copy_(c.roll(1, 0))",
    "c.add_(u)", "c.mul_(0.5 * one)", "c.copy_(u)", "c.copy_(c * 2 - u)", "c.zero_()", "c.addcmul_(u, u)", "c.copy_(c[u[:, 0].argsort(stable=True)])", "c.lerp_(u, 0.5 * one)",
    *LATER_WRITES,
    "c.copy_(c.index_select(0, p0))", "c.index_copy_(0, p, c[p] + v)", "c.index_copy_(0, p, c[p.flip(0)])", "c.index_copy_(0, p, v * c.sum())", "c[q] = c[q - 1]",
    "c[q] = c.mean(0)", "c.index_add_(0, p, c[p])", "c.cumsum_(0)", "c.copy_(torch.softmax(c, 1))", "c.copy_((c @ c.t())[:, :4])",
    "c.copy_(o)", "c.index_copy_(0, p, o[p])", "c.copy_(torch.where(m[:, None], o, c))", "c[q] = o[q]", "c.add_(o)", "c.copy_(o + c); o.copy_(c - o)",
    "t = c.clone(); c.copy_(o); o.copy_(t)", "c.index_copy_(0, p, v); o.index_copy_(0, p, v)", "c[q], o[q] = o[q].clone(), c[q].clone()", "c.index_put_((p,), o[q].expand_as(v))",
]
# Of seeds below FIRST_SEEDS, which found bugs: their programs stay what they were.
FIRST_SEEDS = 10000
FIRST_WRITES = [w.replace("u[:, 0].argsort(stable=True)", "u.sum(1).argsort()") for w in WRITES if w not in LATER_WRITES]
# What is read, then or later: `old` views stay what they were told of, also when the cache changes behind them.
READS = ["c * 1", "c[p]", "c[q]", "c.sum(0)", "c.t() + 1", "c.view(-1)[1:5] * 2", "c.clone()", "c[1:3] - c[:2]", "u @ c.t()", "torch.softmax(c, 1)", "c.gather(0, p[:, None].expand(-1, 4))",
         "c + o", "c[m.long()]", "c", "c.t()", "c[q] @ c.t()"]
OLD = ["c.t()", "c[1:]", "c.view(-1)", "c[:, :2]", "c.clone()", "c * 2", "c[p]", "c.sum(1)"]


def generate(seed):
    rng = random.Random(seed)
    caches = [("b0", "buffer")] + [(f"b{i}", rng.choice(["buffer", "buffer", "input"])) for i in range(1, rng.choice([1, 2, 2, 3]))]
    if rng.random() < 0.15:
        caches[0] = ("b0", "input")
    rows = rng.choice([5, 6, 6, 9])
    lines, results, reads = [], [], 0
    few = rng.random() < 0.5  # steps of one or two kinds come together more often
    known = FIRST_WRITES if seed < FIRST_SEEDS else WRITES
    writes = rng.sample(known, 3) if few else known

    def named(text):
        c = rng.choice(caches)[0]
        o = rng.choice([n for n, _ in caches if n != c] or [c])
        words = {"c": c, "o": o, "ROWS": str(rows)}
        out, word = "", ""
        for ch in text + "\0":
            if ch.isalnum() or ch == "_":
                word += ch
                continue
            out += (words.get(word, word) if not out.endswith(".") else word) + ch
            word = ""
        return out[:-1]

    kinds = [rng.choice("wwwrro") for _ in range(rng.randrange(1, 7))] + ["w"]
    rng.shuffle(kinds)
    for kind in kinds:
        if kind == "w":
            lines.append(named(rng.choice(writes)))
        else:
            lines.append(f"r{reads} = {named(rng.choice(READS if kind == 'r' else OLD))}")
            results.append(f"r{reads}" if kind == "r" else f"r{reads} + 0")
            reads += 1
    if rng.random() < 0.5:
        results += [rng.choice([n, f"{n} + 0", f"{n}.sum(0)"]) for n, _ in caches]
    # Which of two values for one position is kept, nobody says.
    ordered = all(re.match(r"r\d+ =", line) or not re.search(r"\bp\b", line) or re.search("_add|accumulate|_reduce|_fill", line) for line in lines)
    return {"seed": seed, "rows": rows, "caches": caches, "lines": lines, "results": results or [caches[0][0] + ".sum()"], "n": rng.choice([0, 1, 1, 2, 3, 3]), "dynamic": rng.random() < 0.3,
            "dtype": rng.choice(["float32", "float32", "float64", "int64"]), "decompose": rng.random() < 0.5, "duplicates": rng.random() < 0.3 and ordered, "begin": rng.random() < 0.5, "overlaps": seed % 5 == 0}


def source(program):
    inputs = [name for name, kind in program["caches"] if kind == "input"]
    text = f"def forward(self, {', '.join(inputs + ['p', 'p0', 'q', 'v', 'w', 'u', 'm', 'one'])}):\n"
    for name, kind in program["caches"]:
        if kind == "buffer":
            text += f"    {name} = self.{name}\n"
    text += "".join(f"    {line}\n" for line in program["lines"])
    return text + f"    return ({''.join(r + ', ' for r in program['results'])})\n"


def module_of(program):
    space = {"torch": torch}
    exec(source(program), space)
    module = type("M", (torch.nn.Module,), {"forward": space["forward"]})()
    dtype = getattr(torch, program["dtype"])
    torch.manual_seed(program["seed"])
    for name, kind in program["caches"]:
        if kind == "buffer":
            module.register_buffer(name, torch.randint(-4, 5, (program["rows"], 4)).to(dtype) if program["begin"] else torch.zeros(program["rows"], 4, dtype=dtype))
    return module


# Whether a position of this call is out of range is for eager to say.
def inputs_of(program, rng, n, wild):
    rows, dtype = program["rows"], getattr(torch, program["dtype"])

    def numbers(*sizes):
        return torch.tensor([rng.randrange(-4, 5) for _ in range(int(torch.Size(sizes).numel()))]).reshape(sizes).to(dtype)

    p = [rng.randrange(rows) for _ in range(n)] if program["duplicates"] else rng.sample(range(rows), n)
    q = rng.randrange(rows)
    if wild and n and rng.random() < 0.7:
        p[rng.randrange(n)] = rng.choice([-1, -rows, rows, -rows - 1, 2**40, -(2**63)])
    if wild and rng.random() < 0.5:
        q = rng.choice([-1, -rows, rows, -rows - 1, 2**62])
    fixed = [torch.tensor(p, dtype=torch.int64), torch.tensor([rng.randrange(rows) for _ in range(rows)]), torch.tensor(q), numbers(n, 4), numbers(4), numbers(rows, 4),
             torch.tensor([rng.random() < 0.5 for _ in range(rows)]), torch.ones((), dtype=dtype)]
    return [numbers(rows, 4) for _, kind in program["caches"] if kind == "input"] + fixed


def calls_of(program):
    rng = random.Random(program["seed"] + 1)
    for i in range(CALLS):
        n = rng.choice([2, 3, 5, 2]) if program["is_dynamic"] else program["n"]
        yield inputs_of(program, rng, n, i % 3 == 2)


def exported(program):
    """The exported program; an error of PyTorch's where it cannot be exported."""
    example = inputs_of({**program, "duplicates": False}, random.Random(program["seed"] + 1), 3 if program["dynamic"] else program["n"], False)
    program["is_dynamic"] = False
    if program["dynamic"]:
        n = torch.export.Dim("n", min=2, max=5)
        first = len(example) - 8
        try:
            ep = torch.export.export(module_of(program), tuple(example), dynamic_shapes=tuple([{}] * first + [{0: n}, {}, {}, {0: n}, {}, {}, {}, {}]))
            program["is_dynamic"] = True
        except Exception:
            program["n"] = 3
    if not program["is_dynamic"]:
        ep = torch.export.export(module_of(program), tuple(example))
    return ep.run_decompositions() if program["decompose"] else ep


def equal(got, want):
    if want.dtype != got.dtype or want.shape != got.shape:
        return False
    return torch.allclose(got, want, rtol=1e-4 if want.dtype == torch.float32 else 1e-9, atol=1e-4, equal_nan=True) if want.is_floating_point() else torch.equal(got, want)


def judged(program, compile):
    """"right", "export" (PyTorch cannot), "refused: ...", or what is wrong. Some calls are given what an earlier one gave, as it is; some an input whose
    memory is that of a cache: eager's result, or an error that says so."""
    try:
        ep = exported(program)
    except Exception as error:
        return f"export: {type(error).__name__}: {str(error)[:100]}"
    # A decomposed program is a program of its own: index_copy takes negative positions where it is index_put.
    eager, inputs_first = ep.module() if program["decompose"] else module_of(program), sum(kind == "input" for _, kind in program["caches"])
    try:
        model = compile(ep)
    except Exception as error:
        return ("WRONG: " if "COIL-E9" in str(error) or "COIL-E5" in str(error) else "refused: ") + str(error).splitlines()[0]
    others, want, got = random.Random(program["seed"] + 2), None, None
    for number, inputs in enumerate(calls_of(program)):
        kept = {k: v.clone() for k, v in eager.state_dict().items()}
        theirs, ours = [x.clone() for x in inputs], [x.clone() for x in inputs]
        fed = [i for i, w in enumerate(want or []) if w.shape == theirs[U].shape and w.dtype == theirs[U].dtype]
        if fed and got and others.random() < 0.5:
            i = others.choice(fed)
            theirs[U], ours[U] = want[i].clone(), got[i]
        overlaps = program["overlaps"] and inputs_first > 0 and others.random() < 0.3 and compile is not on_emulated_cuda  # which gets copies of its own
        if overlaps:
            theirs[U], ours[U] = theirs[0].view_as(theirs[0]), ours[0].view_as(ours[0])
        try:
            want = [r.clone() for r in eager(*theirs)]
        except (IndexError, RuntimeError):
            if number == 0:
                return "trivial: eager never takes it"
            want = None
            eager.load_state_dict(kept)
        before = [x.clone() for x in ours]
        try:
            got = model(*ours)
        except Exception as error:
            got = None
            if overlaps and "COIL-E209" in str(error):
                return "refused: " + str(error).splitlines()[0] if all(torch.equal(a, b) for a, b in zip(ours, before)) else f"WRONG: call {number} fails and has changed an input"
            if want is not None:
                return f"WRONG: call {number} raises {error}"
            if any(not torch.equal(a, b) for a, b in zip(ours[:inputs_first], before)):
                return f"WRONG: call {number} fails and has changed an input"
            continue
        if want is None:
            return f"WRONG: call {number} does not raise"
        got = [torch.as_tensor(g) for g in (got if isinstance(got, (tuple, list)) else [got])]
        for i, (g, w) in enumerate(zip(got + ours[:inputs_first], want + theirs[:inputs_first], strict=True)):
            if not equal(g, w):
                return f"WRONG: call {number}, result {i}:\n{g}\ninstead of\n{w}"
        if any(w.is_floating_point() and (w.abs() > 1e6).any() for w in list(eager.state_dict().values())):
            break  # no digit is certain from here on
    return "right"


def on_emulated_cuda(ep):
    import emulated_cuda

    return emulated_cuda.StatefulProgram(ep)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--show", type=int)
    parser.add_argument("--cuda", action="store_true", help="for an emulated device")
    options = parser.parse_args()
    sys.path.insert(0, str(pathlib.Path(os.environ.get("COIL_BUILD", HERE.parents[1] / "build")) / "python"))
    import coil
    import collections

    counts = collections.Counter()
    for seed in [options.show] if options.show is not None else range(options.seed, options.seed + options.programs):
        program = generate(seed)
        verdict = judged(program, on_emulated_cuda if options.cuda else lambda ep: coil.compile(ep, options={"opt_level": 1}))
        counts[verdict.split(":")[0]] += 1
        if verdict.startswith("WRONG") or options.show is not None:
            print(f"seed {seed}: {verdict}\n{ {k: v for k, v in program.items() if k not in ('lines', 'results')} }\n{source(program)}", flush=True)
        elif verdict != "right":
            print(f"seed {seed}: {verdict}", flush=True)
    print(dict(counts))
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
