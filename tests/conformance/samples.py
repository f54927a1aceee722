"""What is asked of coil: the entries of PyTorch's op_db, a few samples of each, exported, with eager's results; kept in a cache.

A *pair* is an entry and a dtype. Its case is a folder of the cache: program.pt2, all its samples in one exported program, and
case.pt, inputs and expected results. Cases depend on PyTorch and this file only, so a new coil is tried without a new export:
raise LAYOUT when a change here changes them.
"""

import functools
import os
import pathlib
import warnings

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

LAYOUT = 1
DEVICE = "cpu"  # where eager and torch.compile call the operators: a worker's argument. Packages are called on the CPU.
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool, torch.complex64, torch.complex32, torch.uint16, torch.uint32, torch.uint64]
GRADIENT_DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64]
MAX_SAMPLES = 6
MAX_SEEN = 400  # samples of an entry that are looked at
MAX_ELEMENTS = 400_000  # of one sample's inputs
CALLS = 48  # of a random operator, whose results are compared as distributions
UNINITIALISED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
# Results that say something, of operators behind whose first ones are the seeds of a dropout that they were not asked for: whatever was in memory.
MEANT = {"torch.ops.aten._flash_attention_forward": 2, "torch.ops.aten._efficient_attention_forward": 2}
WIDER = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.complex64: torch.complex128, torch.complex32: torch.complex128}


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


@functools.cache
def entries():
    """{name: OpInfo} in op_db's order; variants have a name of their own after a dot."""
    warnings.filterwarnings("ignore")
    from torch.testing._internal import common_methods_invocations as invocations

    # Random entries seed the generator in each call, so that they seem to repeat.
    invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    table = {}
    for op in invocations.op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        assert name not in table, name
        table[name] = op
    return table


def supported(op):
    return [d for d in DTYPES if d in op.supported_dtypes(DEVICE)]


def pairs():
    return [(name, dtype_name(dtype)) for name, op in entries().items() for dtype in supported(op)]


def gradient_pairs():
    """Those that eager differentiates."""
    return [(name, dtype_name(d)) for name, op in entries().items() if op.supports_autograd
            for d in GRADIENT_DTYPES if d in op.supported_dtypes(DEVICE) and d in op.supported_backward_dtypes(DEVICE)]


def said(value):
    """A non-tensor argument as text that is the same in each run."""
    return getattr(value, "__name__", type(value).__name__) if callable(value) and not isinstance(value, torch.dtype) else repr(value)


def features(sample):
    """What makes a sample worth trying: (weight, thing) for each argument, shape and layout."""
    found = {}
    for where, value in [("input", sample.input), *enumerate(sample.args), *sample.kwargs.items()]:
        leaves = tree_flatten(value)[0]
        found["given", where] = 3
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                for feature, weight in [(("rank", leaf.dim()), 2), (("empty", leaf.numel() == 0), 2), (("dtype", leaf.dtype), 2), (("shape", tuple(leaf.shape)), 0.5),
                                        (("dense", leaf.is_contiguous()), 1), (("one", leaf.numel() == 1), 1)]:
                    found[(where, i, *feature)] = weight
            else:
                found[where, i, said(leaf)] = 3 if isinstance(leaf, (str, bool, torch.dtype, type(None))) else 1.5
    return found


def usable(sample):
    tensors = [t for t in tree_flatten((sample.input, sample.args, sample.kwargs))[0] if isinstance(t, torch.Tensor)]
    return (all(t.layout is torch.strided and not t.is_quantized and not t.is_nested for t in tensors)
            and sum(t.numel() for t in tensors) <= MAX_ELEMENTS)


def chosen(op, dtype, requires_grad=False):
    """Up to MAX_SAMPLES samples that differ as much as possible: each time the one with the most that is new."""
    torch.manual_seed(17)
    seen = []
    for sample in op.sample_inputs(DEVICE, dtype, requires_grad=requires_grad):
        if usable(sample):
            seen.append((features(sample), sample))
        if len(seen) == MAX_SEEN:
            break
    picked, known = [], set()
    while seen and len(picked) < MAX_SAMPLES:
        score = [sum(w for f, w in given.items() if f not in known) for given, _ in seen]
        best = max(range(len(seen)), key=lambda i: (score[i], -i))
        if picked and score[best] == 0:
            break
        given, sample = seen.pop(best)
        known.update(given)
        picked.append(sample)
    return picked


def same_layout(tensor):
    """A copy with the tensor's strides."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def spoil_free_memory():
    """What PyTorch's allocator has free on a GPU is NaN (or -1) afterwards: who reads what nobody wrote, or adds to it, is found."""
    if DEVICE != "cpu":
        for count, size in ((256, 512), (64, 8 << 10), (64, 100 << 10), (8, 4 << 20), (2, 64 << 20)):
            spoiled = [torch.empty(size, dtype=torch.int8, device=DEVICE).fill_(-1) for _ in range(count)]
            del spoiled


def on_cpu(values):
    return [v.cpu() if isinstance(v, torch.Tensor) else v for v in values]


class Call:
    """A sample's call with its tensors taken out."""

    def __init__(self, op, sample):
        self.function = op.op
        leaves, self.form = tree_flatten((sample.input, sample.args, sample.kwargs))
        self.tensors = [x.detach() for x in leaves if isinstance(x, torch.Tensor)]
        self.leaves = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.slots = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def __call__(self, tensors):
        leaves = list(self.leaves)
        for slot, tensor in zip(self.slots, tensors, strict=True):
            leaves[slot] = tensor
        first, args, kwargs = tree_unflatten(leaves, self.form)
        return self.function(first, *args, **kwargs)

    def fresh(self):
        """Copies of the tensors with their strides, for a call that may write to them."""
        return [same_layout(t) if t._is_view() or not t.is_contiguous() else t.clone() for t in self.tensors]

    def eager(self, seed=0):
        torch.manual_seed(seed)
        return self(self.fresh())


class Program(torch.nn.Module):
    """Several calls, one after the other."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, *tensors):
        results, at = [], 0
        for call in self.calls:
            results.append(call(tensors[at : at + len(call.slots)]))
            at += len(call.slots)
        return tuple(results)


def same(a, b):
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return a == b or a != a
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a.double(), b.double(), rtol=0, atol=0, equal_nan=True) if not a.is_complex() \
        else torch.equal(torch.view_as_real(a.resolve_conj()).nan_to_num(), torch.view_as_real(b.resolve_conj()).nan_to_num())


def summary(values):
    """Numbers of one call of a random operator, to be compared between many calls: [leaf][statistic]."""
    rows = []
    for v in values:
        if not isinstance(v, torch.Tensor) or v.numel() == 0:
            rows.append([])
            continue
        flat = (v.detach().abs() if v.is_complex() else v.detach()).double().flatten().nan_to_num(0, 1e6, -1e6)
        rows.append([flat.mean().item(), flat.abs().mean().item(), flat[0].item(), flat[-1].item()])
    return rows


def wide(call):
    """The results with every number in double precision, or None."""
    tensors = [t.to(WIDER.get(t.dtype, t.dtype)) for t in call.fresh()]
    leaves = [WIDER.get(x, x) if isinstance(x, torch.dtype) else x for x in call.leaves]
    again = object.__new__(Call)
    again.__dict__.update(call.__dict__, leaves=leaves)
    try:
        torch.manual_seed(0)
        return [v.detach() if isinstance(v, torch.Tensor) else v for v in tree_flatten(again(tensors))[0] if v is not None]
    except Exception:  # not every operator takes doubles
        return None


def expectation(op, call):
    """What eager says of one call."""
    result = call.eager()
    leaves, form = tree_flatten(result)
    values = [v.detach().resolve_conj().resolve_neg().clone() if isinstance(v, torch.Tensor) else v for v in leaves if v is not None]
    if any(isinstance(v, torch.Tensor) and v.layout is not torch.strided for v in values):
        raise ValueError("a result is sparse")
    row = {"values": values, "kind": "exact", "wide": None, "form": form, "leaves": [v is not None for v in leaves], "inputs": len(call.slots)}
    if op.name in UNINITIALISED:
        row["kind"] = "uninitialised"
    elif not all(same(a, b) for seed in (1, 2, 3, 4) for a, b in zip(values[: MEANT.get(op.name)], [v for v in tree_flatten(call.eager(seed))[0] if v is not None])):
        row["kind"] = "random"
        row["calls"] = [summary([v for v in tree_flatten(call.eager(i))[0] if v is not None]) for i in range(CALLS)]
    else:
        row["wide"] = wide(call)
    return {**row, "values": on_cpu(values), "wide": row["wide"] and on_cpu(row["wide"])}


def tolerance(op, dtype):
    """(rtol, atol) where the OpInfo has its own, else None."""
    found = []
    for decorator in op.decorators:
        if getattr(decorator, "cls_name", None) not in (None, "TestCommon", "TestDecomp", "TestInductorOpInfo", "TestOperators", "TestUnaryUfuncs", "TestReductions"):
            continue
        for inner in getattr(decorator, "decorators", [decorator]):
            given = getattr(inner, "d", None)
            if isinstance(given, dict) and dtype in given:
                value = given[dtype]
                found.append((value.rtol, value.atol) if hasattr(value, "rtol") else (0.0, value))
    return (max(r for r, _ in found), max(a for _, a in found)) if found else None


def short(error):
    text = f"{type(error).__name__}: {str(error).strip()}".splitlines()
    return text[0][:240]


def exported(calls):
    with torch.no_grad():
        return torch.export.export(Program(calls), tuple(t for call in calls for t in call.fresh()), strict=False)


def make_case(name, dtype, folder):
    """Writes program.pt2 and case.pt; the case says "eager" or "export" instead where one of these cannot."""
    op = entries()[name]
    calls, rows, refused, failures = [], [], [], []
    with torch.no_grad():
        for number, sample in enumerate(chosen(op, dtype)):
            call = Call(op, sample)
            try:
                rows.append({**expectation(op, call), "sample": number})
                calls.append(call)
            except Exception as error:
                failures.append(short(error))
    case = {"rows": rows, "eager": failures, "export": refused, "tolerance": tolerance(op, dtype)}
    program = None
    try:
        program = exported(calls) if calls else None
    except Exception:  # find out which
        kept = []
        for call, row in zip(calls, rows):
            try:
                exported([call])
                kept.append((call, row))
            except Exception as error:
                refused.append(short(error))
        calls, case["rows"] = [c for c, _ in kept], [r for _, r in kept]
        try:
            program = exported(calls) if calls else None
        except Exception as error:
            refused.append(short(error))
            case["rows"] = calls = []
    case["inputs"] = [t for call in calls for t in call.tensors]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if program is not None:
            torch.export.save(program, folder / "program.pt2")
    except Exception as error:  # what its file format has no place for
        refused.append("torch.export.save: " + short(error))
        case["rows"], case["inputs"] = [], []
    try:
        torch.save(case, folder / "case.tmp")
    except RuntimeError:  # inputs that share memory under several dtypes
        case["inputs"] = [t.clone() for t in case["inputs"]]
        torch.save(case, folder / "case.tmp")
    os.replace(folder / "case.tmp", folder / "case.pt")


@functools.cache
def root():
    base = pathlib.Path(os.environ.get("COIL_CONFORMANCE", "~/.cache/coil/conformance")).expanduser()
    return base / f"{LAYOUT}-{torch.__version__}"


def case_folder(name, dtype):
    return root() / f"{name.replace('/', '_')}.{dtype}"


def load_case(name, dtype):
    """The case of a pair, made now if it is not in the cache: (dictionary, folder)."""
    folder = case_folder(name, dtype)
    if not (folder / "case.pt").exists():
        make_case(name, getattr(torch, dtype), folder)
    return torch.load(folder / "case.pt", weights_only=False), folder
